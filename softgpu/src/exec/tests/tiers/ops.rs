//! What a thread computes by itself: each operation as PTX, and what it comes to by exact integers, Rust's own arithmetic and,
//! where something is rounded otherwise, `rustc_apfloat`. Nothing here knows of the code generator.

use std::sync::OnceLock;

use rustc_apfloat::ieee::Half;
use rustc_apfloat::{Float, Round};

use super::float;

/// The kinds of registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// 16 bits.
    H,
    /// 32 bits.
    V,
    /// 64 bits.
    W,
    /// `f32`.
    F,
    /// `f64`.
    D,
    /// `f16`.
    X,
    /// A predicate.
    P,
}

use Class::{D, F, H, P, V, W, X};

impl Class {
    pub(super) const ALL: [Self; 7] = [H, V, W, F, D, X, P];

    pub(super) fn prefix(self) -> &'static str {
        ["h", "v", "w", "f", "d", "x", "p"][self as usize]
    }

    /// How many registers of the kind a program has.
    pub(super) fn count(self) -> usize {
        if self == V { 6 } else { 3 }
    }

    /// Bytes in memory, as which predicates take four.
    pub(super) fn bytes(self) -> usize {
        [2, 4, 8, 4, 8, 2, 4][self as usize]
    }

    /// The register's type.
    pub(super) fn ty(self) -> &'static str {
        [".b16", ".b32", ".b64", ".f32", ".f64", ".b16", ".pred"][self as usize]
    }

    /// Whether it holds numbers of which there are several that are none.
    pub(super) fn is_float(self) -> bool {
        matches!(self, F | D | X)
    }

    /// A value with one bit pattern for what is no number.
    pub(super) fn canonical(self, bits: u64) -> u64 {
        match self {
            F if f32::from_bits(bits as u32).is_nan() => 0x7FC0_0000,
            D if f64::from_bits(bits).is_nan() => 0x7FF8 << 48,
            X if bits & 0x7FFF > 0x7C00 => 0x7E00,
            P => bits & 1,
            _ => bits & (u64::MAX >> (64 - 8 * self.bytes())),
        }
    }
}

macro_rules! by_class {
    ($class:expr, $T:ident => $body:expr) => {
        match $class {
            Class::F => {
                type $T = rustc_apfloat::ieee::Single;
                $body
            }
            Class::D => {
                type $T = rustc_apfloat::ieee::Double;
                $body
            }
            _ => {
                type $T = rustc_apfloat::ieee::Half;
                $body
            }
        }
    };
}
pub(super) use by_class;

type Eval = Box<dyn Fn(&[u64]) -> u64 + Send + Sync>;

/// An operation of one thread.
pub(super) struct Op {
    /// Its text: `$d` is the result, `$a` to `$e` are the operands.
    pub text: String,
    pub result: Class,
    pub args: Vec<Class>,
    pub eval: Eval,
}

impl Op {
    /// Whether it is one instruction, which a guard can stand before.
    pub(super) fn is_single(&self) -> bool {
        self.text.matches(';').count() == 1
    }
}

/// All operations.
pub(super) fn all() -> &'static [Op] {
    static ALL: OnceLock<Vec<Op>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut table = Table(Vec::new());
        table.integers();
        table.bits();
        table.floats();
        table.halves();
        table.conversions();
        table.0
    })
}

/// Functions whose results are only nearly right: what they come to is compared between the tiers alone.
pub(super) const APPROXIMATIONS: [&str; 10] = [
    "sin.approx.f32 g0, $a;",
    "cos.approx.ftz.f32 g0, $a;",
    "ex2.approx.f32 g0, $a;",
    "lg2.approx.ftz.f32 g0, $a;",
    "rcp.approx.f32 g0, $a;",
    "rsqrt.approx.f32 g0, $a;",
    "tanh.approx.f32 g0, $a;",
    "sqrt.approx.f32 g0, $a;",
    "div.approx.f32 g0, $a, 0f3FC00000;",
    "div.full.ftz.f32 g0, 0f3FC00000, $a;",
];

pub(super) struct Table(Vec<Op>);

pub(super) fn f32_of(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn of_f32(value: f32) -> u64 {
    u64::from(value.to_bits())
}

/// Extends the low bits by their sign.
pub(super) fn extend(value: u64, bits: u32) -> i64 {
    (value << (64 - bits)) as i64 >> (64 - bits)
}

impl Table {
    pub(super) fn add(
        &mut self,
        text: impl Into<String>,
        result: Class,
        args: &[Class],
        eval: impl Fn(&[u64]) -> u64 + Send + Sync + 'static,
    ) {
        let mut text: String = text.into();
        // The short form: an opcode whose operands follow in order.
        if !text.contains('$') {
            let names = ["$a", "$b", "$c", "$e"];
            text = format!("{text} $d, {};", names[..args.len()].join(", "));
        }
        let eval = Box::new(move |a: &[u64]| eval(a) & (u64::MAX >> (64 - 8 * result.bytes())));
        self.0.push(Op { text, result, args: args.to_vec(), eval });
    }

    fn integers(&mut self) {
        for (class, bits) in [(H, 16u32), (V, 32), (W, 64)] {
            let two = [class, class];
            let signed = move |value: u64| i128::from(extend(value, bits));
            let unsigned = move |value: u64| i128::from(value);
            let mut simple = |name: &str, eval: fn(u64, u64) -> u64| {
                self.add(format!("{name}{bits}"), class, &two, move |a| eval(a[0], a[1]));
            };
            simple("add.u", u64::wrapping_add);
            simple("sub.s", u64::wrapping_sub);
            simple("mul.lo.u", u64::wrapping_mul);
            simple("and.b", |a, b| a & b);
            simple("or.b", |a, b| a | b);
            simple("xor.b", |a, b| a ^ b);
            simple("min.u", u64::min);
            simple("max.u", u64::max);
            self.add(format!("min.s{bits}"), class, &two, move |a| signed(a[0]).min(signed(a[1])) as u64);
            self.add(format!("max.s{bits}"), class, &two, move |a| signed(a[0]).max(signed(a[1])) as u64);
            self.add(format!("mul.hi.u{bits}"), class, &two, move |a| {
                ((u128::from(a[0]) * u128::from(a[1])) >> bits) as u64
            });
            self.add(format!("mul.hi.s{bits}"), class, &two, move |a| {
                ((signed(a[0]) * signed(a[1])) >> bits) as u64
            });
            self.add(format!("mad.lo.s{bits}"), class, &[class; 3], |a| {
                a[0].wrapping_mul(a[1]).wrapping_add(a[2])
            });
            self.add(format!("not.b{bits}"), class, &[class], |a| !a[0]);
            self.add(format!("cnot.b{bits}"), class, &[class], |a| u64::from(a[0] == 0));
            self.add(format!("neg.s{bits}"), class, &[class], |a| a[0].wrapping_neg());
            self.add(format!("abs.s{bits}"), class, &[class], move |a| signed(a[0]).unsigned_abs() as u64);
            self.add(format!("sad.u{bits}"), class, &[class; 3], |a| a[0].abs_diff(a[1]).wrapping_add(a[2]));
            self.add(format!("sad.s{bits}"), class, &[class; 3], move |a| {
                ((signed(a[0]) - signed(a[1])).unsigned_abs() as u64).wrapping_add(a[2])
            });
            let by = [class, V];
            self.add(format!("shl.b{bits}"), class, &by, |a| a[0].checked_shl(a[1] as u32).unwrap_or(0));
            self.add(format!("shr.u{bits}"), class, &by, |a| a[0].checked_shr(a[1] as u32).unwrap_or(0));
            self.add(format!("shr.s{bits}"), class, &by, move |a| (signed(a[0]) >> a[1].min(100)) as u64);
            // Divisors are made positive: what else comes out is not said.
            let temporary = ["k0", "t5", "u2"][(bits.ilog2() - 4) as usize];
            for name in ["div", "rem"] {
                let text = format!("or.b{bits} {temporary}, $b, 1; {name}.u{bits} $d, $a, {temporary};");
                let is_div = name == "div";
                self.add(text, class, &two, move |a| {
                    let b = a[1] | 1;
                    if is_div { a[0] / b } else { a[0] % b }
                });
                let top = 1u64 << (bits - 1);
                let text = format!(
                    "or.b{bits} {temporary}, $b, 1; and.b{bits} {temporary}, {temporary}, {}; {name}.s{bits} $d, $a, {temporary};",
                    top - 1
                );
                self.add(text, class, &two, move |a| {
                    let b = i128::from((a[1] | 1) & (top - 1));
                    (if is_div { signed(a[0]) / b } else { signed(a[0]) % b }) as u64
                });
            }
            for (name, holds) in COMPARISONS {
                for (sign, number) in [("u", 0), ("s", 1)] {
                    let number = move |v: u64| if number == 0 { unsigned(v) } else { signed(v) };
                    self.add(format!("setp.{name}.{sign}{bits}"), P, &two, move |a| {
                        u64::from(holds(number(a[0]).cmp(&number(a[1]))))
                    });
                }
            }
            self.add(format!("selp.b{bits}"), class, &[class, class, P], |a| {
                if a[2] & 1 != 0 { a[0] } else { a[1] }
            });
            self.add(format!("slct.b{bits}.s32"), class, &[class, class, V], |a| {
                if a[2] as i32 >= 0 { a[0] } else { a[1] }
            });
        }
        self.add("mul.wide.u16", V, &[H, H], |a| a[0] * a[1]);
        self.add("mul.wide.s16", V, &[H, H], |a| extend(a[0], 16).wrapping_mul(extend(a[1], 16)) as u64);
        self.add("mul.wide.u32", W, &[V, V], |a| a[0] * a[1]);
        self.add("mul.wide.s32", W, &[V, V], |a| extend(a[0], 32).wrapping_mul(extend(a[1], 32)) as u64);
        self.add("mad.wide.u32", W, &[V, V, W], |a| (a[0] * a[1]).wrapping_add(a[2]));
        self.add("mad.hi.u32", V, &[V, V, V], |a| ((a[0] * a[1]) >> 32).wrapping_add(a[2]));
        self.add("mul24.lo.u32", V, &[V, V], |a| (a[0] & 0xFF_FFFF) * (a[1] & 0xFF_FFFF));
        self.add("mul24.lo.s32", V, &[V, V], |a| extend(a[0], 24).wrapping_mul(extend(a[1], 24)) as u64);
        self.add("add.sat.s32", V, &[V, V], |a| (a[0] as i32).saturating_add(a[1] as i32) as u32 as u64);
        self.add("add.cc.u32 t5, $a, $b; addc.u32 $d, $c, 0;", V, &[V, V, V], |a| {
            a[2] + ((a[0] + a[1]) >> 32)
        });
        self.add("sub.cc.u32 t5, $a, $b; subc.u32 $d, $c, 1;", V, &[V, V, V], |a| {
            a[2].wrapping_sub(1 + u64::from(a[0] < a[1]))
        });
        self.add("dp4a.u32.u32", V, &[V, V, V], |a| {
            (0..4).fold(a[2], |sum, n| sum + (a[0] >> (8 * n) & 255) * (a[1] >> (8 * n) & 255))
        });
        self.add("dp4a.s32.s32", V, &[V, V, V], |a| {
            (0..4).fold(a[2], |sum, n| {
                sum.wrapping_add((extend(a[0] >> (8 * n), 8) * extend(a[1] >> (8 * n), 8)) as u64)
            })
        });
        self.add("set.lt.u32.s32", V, &[V, V], |a| if (a[0] as i32) < a[1] as i32 { u64::MAX } else { 0 });
        self.add("set.ge.f32.u32", F, &[V, V], |a| if a[0] >= a[1] { of_f32(1.0) } else { 0 });
        self.add("setp.gt.and.s32 $d, $a, $b, $c;", P, &[V, V, P], |a| {
            u64::from(a[0] as i32 > a[1] as i32) & a[2]
        });
        self.add("setp.ne.xor.u32 $d, $a, $b, !$c;", P, &[V, V, P], |a| u64::from(a[0] != a[1]) ^ a[2] ^ 1);
        self.add("and.pred", P, &[P, P], |a| a[0] & a[1]);
        self.add("or.pred", P, &[P, P], |a| a[0] | a[1]);
        self.add("xor.pred", P, &[P, P], |a| a[0] ^ a[1]);
        self.add("not.pred", P, &[P], |a| a[0] ^ 1);
        for class in [H, V, W, F, D, X] {
            let ty = class.ty();
            self.add(format!("mov{ty}"), class, &[class], |a| a[0]);
        }
    }

    fn bits(&mut self) {
        for (class, bits) in [(V, 32u32), (W, 64)] {
            let top = bits - 1;
            self.add(format!("popc.b{bits}"), V, &[class], |a| u64::from(a[0].count_ones()));
            self.add(format!("clz.b{bits}"), V, &[class], move |a| {
                u64::from(a[0].leading_zeros() - (64 - bits))
            });
            self.add(format!("brev.b{bits}"), class, &[class], move |a| a[0].reverse_bits() >> (64 - bits));
            self.add(format!("bfind.u{bits}"), V, &[class], |a| {
                u64::from(63u32.wrapping_sub(a[0].leading_zeros()))
            });
            self.add(format!("bfind.s{bits}"), V, &[class], move |a| {
                let value = extend(a[0], bits);
                let value = if value < 0 { !value } else { value };
                u64::from(63u32.wrapping_sub(value.leading_zeros()))
            });
            // The low byte counts for 32 bits, and all for 64.
            let field = move |n: u64| if bits == 64 { (n as u32).min(128) } else { n as u32 & 255 };
            for (sign, is_signed) in [("u", false), ("s", true)] {
                self.add(format!("bfe.{sign}{bits}"), class, &[class, V, V], move |a| {
                    let (from, count) = (field(a[1]), field(a[2]));
                    let fill =
                        if is_signed && count != 0 { a[0] >> (from + count - 1).min(top) & 1 } else { 0 };
                    (0..bits).fold(0, |all, n| {
                        let bit = if n < count && from + n <= top { a[0] >> (from + n) & 1 } else { fill };
                        all | bit << n
                    })
                });
            }
            self.add(format!("bfi.b{bits}"), class, &[class, class, V, V], move |a| {
                let (to, count) = (field(a[2]), field(a[3]));
                (0..count.min(bits))
                    .filter(|n| to + n <= top)
                    .fold(a[1], |all, n| all & !(1 << (to + n)) | (a[0] >> n & 1) << (to + n))
            });
        }
        self.add("prmt.b32", V, &[V, V, V], |a| {
            let both = a[1] << 32 | a[0];
            (0..4).fold(0, |all, n| {
                let selector = a[2] >> (4 * n) & 15;
                let byte = both >> (8 * (selector & 7)) & 255;
                let byte = if selector & 8 == 0 { byte } else { (byte >> 7) * 255 };
                all | byte << (8 * n)
            })
        });
        for table in [0x96u64, 0xE8, 0xCA] {
            self.add(format!("lop3.b32 $d, $a, $b, $c, {table};"), V, &[V, V, V], move |a| {
                (0..32).fold(0, |all, n| {
                    let at = (a[0] >> n & 1) << 2 | (a[1] >> n & 1) << 1 | a[2] >> n & 1;
                    all | (table >> at & 1) << n
                })
            });
        }
        for (mode, limit) in [("wrap", 31u64), ("clamp", 0)] {
            let amount = move |c: u64| if limit == 31 { c & 31 } else { c.min(32) };
            self.add(format!("shf.l.{mode}.b32"), V, &[V, V, V], move |a| {
                (a[1] << 32 | a[0]).wrapping_shl(amount(a[2]) as u32) >> 32
            });
            self.add(format!("shf.r.{mode}.b32"), V, &[V, V, V], move |a| {
                (a[1] << 32 | a[0]).wrapping_shr(amount(a[2]) as u32)
            });
        }
        self.add("mov.b64 $d, {$a, $b};", W, &[V, V], |a| a[1] << 32 | a[0]);
        self.add("mov.b64 {_, $d}, $a;", V, &[W], |a| a[0] >> 32);
        self.add("mov.b32 $d, {$a, $b};", V, &[H, H], |a| a[1] << 16 | a[0]);
        self.add("mov.b32 {_, $d}, $a;", H, &[V], |a| a[0] >> 16);
    }

    fn floats(&mut self) {
        for (class, bits) in [(F, 32u32), (D, 64)] {
            for (mode, round) in ROUNDINGS {
                for operator in ["add", "sub", "mul", "div"] {
                    let text = format!("{operator}.{mode}.f{bits}");
                    self.add(text, class, &[class; 2], move |a| {
                        by_class!(class, T => {
                            let (a, b) = (T::from_bits(a[0].into()), T::from_bits(a[1].into()));
                            let result = match operator {
                                "add" => a.add_r(b, round),
                                "sub" => a.sub_r(b, round),
                                "mul" => a.mul_r(b, round),
                                _ => a.div_r(b, round),
                            };
                            result.value.to_bits() as u64
                        })
                    });
                }
                self.add(format!("fma.{mode}.f{bits}"), class, &[class; 3], move |a| {
                    by_class!(class, T => {
                        let [a, b, c] = [a[0], a[1], a[2]].map(|v| T::from_bits(v.into()));
                        a.mul_add_r(b, c, round).value.to_bits() as u64
                    })
                });
            }
            self.add(format!("sqrt.rn.f{bits}"), class, &[class], move |a| match class {
                F => of_f32(f32_of(a[0]).sqrt()),
                _ => f64::from_bits(a[0]).sqrt().to_bits(),
            });
            self.add(format!("abs.f{bits}"), class, &[class], move |a| a[0] & !(1 << (bits - 1)));
            self.add(format!("neg.f{bits}"), class, &[class], move |a| a[0] ^ 1 << (bits - 1));
            for (name, maximum) in [("min", false), ("max", true)] {
                self.add(format!("{name}.f{bits}"), class, &[class; 2], move |a| {
                    float::min_max(class, a[0], a[1], maximum)
                });
            }
            for (name, holds) in COMPARISONS {
                for (suffix, otherwise) in [("", 0), ("u", 1)] {
                    self.add(format!("setp.{name}{suffix}.f{bits}"), P, &[class; 2], move |a| {
                        float::compare(class, a[0], a[1]).map_or(otherwise, |order| u64::from(holds(order)))
                    });
                }
            }
            self.add(format!("setp.nan.f{bits}"), P, &[class; 2], move |a| {
                u64::from(float::compare(class, a[0], a[1]).is_none())
            });
            self.add(format!("selp.f{bits}"), class, &[class, class, P], |a| {
                if a[2] & 1 != 0 { a[0] } else { a[1] }
            });
        }
        // The sign of a zero is not said where results are clamped.
        self.add("fma.rn.sat.f32 $d, $a, $b, $c; add.f32 $d, $d, 0f00000000;", F, &[F; 3], |a| {
            let value = f32_of(a[0]).mul_add(f32_of(a[1]), f32_of(a[2]));
            of_f32(if value > 0.0 { value.min(1.0) } else { 0.0 })
        });
        self.add("add.ftz.f32", F, &[F; 2], |a| {
            float::flush(of_f32(f32_of(float::flush(a[0])) + f32_of(float::flush(a[1]))))
        });
        self.add("mul.ftz.f32", F, &[F; 2], |a| {
            float::flush(of_f32(f32_of(float::flush(a[0])) * f32_of(float::flush(a[1]))))
        });
        self.add("testp.finite.f32", P, &[F], |a| u64::from(f32_of(a[0]).is_finite()));
        self.add("testp.subnormal.f64", P, &[D], |a| u64::from(f64::from_bits(a[0]).is_subnormal()));
    }

    fn halves(&mut self) {
        let half = |bits: u64| Half::from_bits(bits.into());
        let of = |value: Half| value.to_bits() as u64;
        self.add("add.rn.f16", X, &[X; 2], move |a| of((half(a[0]) + half(a[1])).value));
        self.add("sub.rn.f16", X, &[X; 2], move |a| of((half(a[0]) - half(a[1])).value));
        self.add("mul.rn.f16", X, &[X; 2], move |a| of((half(a[0]) * half(a[1])).value));
        self.add("fma.rn.f16", X, &[X; 3], move |a| {
            of(half(a[0]).mul_add_r(half(a[1]), half(a[2]), Round::NearestTiesToEven).value)
        });
        self.add(
            "mov.b32 t5, {$a, $b}; mov.b32 t6, {$b, $c}; fma.rn.f16x2 t5, t5, t6, t6; mov.b32 {_, $d}, t5;",
            X,
            &[X; 3],
            move |a| of(half(a[1]).mul_add_r(half(a[2]), half(a[2]), Round::NearestTiesToEven).value),
        );
        self.add("mov.b32 t5, {$a, $b}; add.f16x2 t5, t5, t5; mov.b32 {$d, _}, t5;", X, &[X; 2], move |a| {
            of((half(a[0]) + half(a[0])).value)
        });
        self.add("neg.f16", X, &[X], |a| a[0] ^ 0x8000);
        self.add("abs.f16", X, &[X], |a| a[0] & 0x7FFF);
        self.add("max.f16", X, &[X; 2], |a| float::min_max(X, a[0], a[1], true));
        self.add("setp.lt.f16", P, &[X; 2], |a| {
            u64::from(float::compare(X, a[0], a[1]).is_some_and(|order| order.is_lt()))
        });
        self.add("selp.b16", X, &[X, X, P], |a| if a[2] & 1 != 0 { a[0] } else { a[1] });
        self.add(
            "cvt.rn.bf16.f32 k0, $a; mov.b16 k1, 0; mov.b32 t5, {k1, k0}; mov.b32 $d, t5;",
            F,
            &[F],
            |a| float::convert_bf16(a[0]) << 16,
        );
    }
}

/// Text that moves a number's bits to a register for integers, with one pattern for what is no number.
pub(super) fn canonical_text(class: Class, from: &str, to: &str) -> String {
    match class {
        F => {
            format!("setp.nan.f32 q2, {from}, {from}; mov.b32 t7, {from}; selp.b32 {to}, 0x7FC00000, t7, q2;")
        }
        D => format!(
            "setp.nan.f64 q2, {from}, {from}; mov.b64 u3, {from}; selp.b64 {to}, 0x7FF8000000000000, u3, q2;"
        ),
        _ => format!("setp.nan.f16 q2, {from}, {from}; selp.b16 {to}, 0x7E00, {from}, q2;"),
    }
}

type Holds = fn(std::cmp::Ordering) -> bool;

const COMPARISONS: [(&str, Holds); 6] = [
    ("lt", std::cmp::Ordering::is_lt),
    ("le", std::cmp::Ordering::is_le),
    ("gt", std::cmp::Ordering::is_gt),
    ("ge", std::cmp::Ordering::is_ge),
    ("eq", std::cmp::Ordering::is_eq),
    ("ne", std::cmp::Ordering::is_ne),
];

pub(super) const ROUNDINGS: [(&str, Round); 4] = [
    ("rn", Round::NearestTiesToEven),
    ("rz", Round::TowardZero),
    ("rm", Round::TowardNegative),
    ("rp", Round::TowardPositive),
];
