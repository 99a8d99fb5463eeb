//! Floating-point arithmetic with IEEE results.

use super::case::{Case, Class, Want};
use super::oracle::Format;
use super::values::Domain;

/// A format with how its operands are written, held and chosen.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub ty: &'static str,
    pub format: Format,
    pub class: Class,
    pub domain: Domain,
}

pub(crate) const F16: Kind = Kind { ty: "f16", format: Format::F16, class: Class::B16, domain: Domain::F16 };
pub(crate) const BF16: Kind =
    Kind { ty: "bf16", format: Format::Bf16, class: Class::B16, domain: Domain::Bf16 };
pub(crate) const F32: Kind = Kind { ty: "f32", format: Format::F32, class: Class::F32, domain: Domain::F32 };
pub(crate) const F64: Kind = Kind { ty: "f64", format: Format::F64, class: Class::F64, domain: Domain::F64 };

impl Kind {
    fn ins(self, count: usize) -> Vec<(Class, Domain)> {
        vec![(self.class, self.domain); count]
    }

    /// A case on one number each.
    fn scalar(
        self,
        opcode: String,
        count: usize,
        model: impl Fn(&[u64]) -> u64 + Send + Sync + 'static,
    ) -> Case {
        let name = opcode.clone();
        Case::simple(&opcode, &self.ins(count), self.class, move |a| self.format.want_of(&name, model(a)))
    }

    /// The same on two numbers packed into 32 bits.
    fn packed(
        self,
        opcode: String,
        count: usize,
        model: impl Fn(&[u64]) -> u64 + Send + Sync + 'static,
    ) -> Case {
        let domain = if self.format == Format::F16 { Domain::F16x2 } else { Domain::Bf16x2 };
        let name = opcode.clone();
        Case::simple(&opcode, &vec![(Class::B32, domain); count], Class::B32, move |a| {
            let half = |shift: u32| {
                let operands: Vec<u64> = a.iter().map(|v| v >> shift & 0xFFFF).collect();
                Box::new(self.format.want_of(&name, model(&operands)))
            };
            Want::Halves(half(0), half(16))
        })
    }
}

/// From the bits of operands to those of the result.
type BitsModel = Box<dyn Fn(&[u64]) -> u64 + Send + Sync>;

const MODES: [&str; 4] = ["rn", "rz", "rm", "rp"];

pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for kind in [F32, F64] {
        let (ty, f) = (kind.ty, kind.format);
        let arithmetic = [("add", '+'), ("sub", '-'), ("mul", '*'), ("div", '/')];
        for (name, operator) in arithmetic {
            if operator != '/' {
                all.push(
                    kind.scalar(format!("{name}.{ty}"), 2, move |a| f.binary(operator, a[0], a[1], "rn")),
                );
            }
            for mode in MODES {
                all.push(
                    kind.scalar(format!("{name}.{mode}.{ty}"), 2, move |a| {
                        f.binary(operator, a[0], a[1], mode)
                    }),
                );
            }
        }
        for mode in MODES {
            all.push(kind.scalar(format!("fma.{mode}.{ty}"), 3, move |a| f.fma(a[0], a[1], a[2], mode)));
            all.push(kind.scalar(format!("mad.{mode}.{ty}"), 3, move |a| f.fma(a[0], a[1], a[2], mode)));
            all.push(kind.scalar(format!("sqrt.{mode}.{ty}"), 1, move |a| f.sqrt(a[0], mode)));
            let one = f.integer(1, "rn");
            all.push(kind.scalar(format!("rcp.{mode}.{ty}"), 1, move |a| f.binary('/', one, a[0], mode)));
        }
        let sign = 1u64 << (f.bits() - 1);
        all.push(kind.scalar(format!("neg.{ty}"), 1, move |a| a[0] ^ sign));
        all.push(kind.scalar(format!("abs.{ty}"), 1, move |a| a[0] & !sign));
        all.push(kind.scalar(format!("copysign.{ty}"), 2, move |a| a[0] & sign | a[1] & !sign));
        for (name, maximum) in [("min", false), ("max", true)] {
            all.push(kind.scalar(format!("{name}.{ty}"), 2, move |a| f.min_max(a[0], a[1], maximum)));
        }
        for class in ["finite", "infinite", "number", "notanumber", "normal", "subnormal"] {
            all.push(Case::simple(&format!("testp.{class}.{ty}"), &kind.ins(1), Class::Pred, move |a| {
                let value = a[0] & !sign;
                let is = match class {
                    "finite" => value < f.infinity(),
                    "infinite" => value == f.infinity(),
                    "number" => !f.is_nan(value),
                    "notanumber" => f.is_nan(value),
                    "normal" => value < f.infinity() && (value >> f.fraction() != 0 || value == 0),
                    _ => value >> f.fraction() == 0 && value != 0,
                };
                Want::Bits(u64::from(is))
            }));
        }
    }
    all.extend(flushing());
    all.extend(halves());
    all.extend(two_singles());
    all
}

/// Pairs of `f32` in a register of 64 bits.
fn two_singles() -> Vec<Case> {
    let f = Format::F32;
    let case = |opcode: String, count: usize, model: BitsModel| {
        let mut body = ".reg .b64 r, v0, v1, v2;".to_owned();
        let mut operands = String::new();
        for index in 0..count {
            body.push_str(&format!("mov.b64 v{index}, {{a{}, a{}}};", 2 * index, 2 * index + 1));
            operands.push_str(&format!(", v{index}"));
        }
        body.push_str(&format!("{opcode} r{operands}; mov.b64 {{d0, d1}}, r;"));
        let (name, outs) = (opcode.clone(), [Class::F32, Class::F32]);
        let ins = vec![(Class::F32, Domain::F32); 2 * count];
        Case::new(&opcode, &body, &ins, &outs, move |a| {
            let half = |first: usize| {
                let operands: Vec<u64> = a[first..].iter().step_by(2).copied().collect();
                f.want_of(&name, model(&operands))
            };
            vec![half(0), half(1)]
        })
        .target("sm_100")
    };
    let mut all = Vec::new();
    for ftz in [false, true] {
        let (suffix, flush) =
            (if ftz { ".ftz.f32x2" } else { ".f32x2" }, move |v| if ftz { f.flush(v) } else { v });
        for (name, operator) in [("add", '+'), ("sub", '-'), ("mul", '*')] {
            let result = move |a: &[u64], mode| flush(f.binary(operator, flush(a[0]), flush(a[1]), mode));
            all.push(case(format!("{name}{suffix}"), 2, Box::new(move |a| result(a, "rn"))));
            for mode in MODES {
                all.push(case(format!("{name}.{mode}{suffix}"), 2, Box::new(move |a| result(a, mode))));
            }
        }
        for mode in MODES {
            let result = move |a: &[u64]| flush(f.fma(flush(a[0]), flush(a[1]), flush(a[2]), mode));
            all.push(case(format!("fma.{mode}{suffix}"), 3, Box::new(result)));
        }
    }
    all
}

/// `.ftz`, `.sat`, `.NaN` and three operands, for `f32`.
fn flushing() -> Vec<Case> {
    let mut all = Vec::new();
    let f = Format::F32;
    let arithmetic = [("add", '+'), ("sub", '-'), ("mul", '*'), ("div", '/')];
    for (name, operator) in arithmetic {
        for mode in MODES {
            all.push(F32.scalar(format!("{name}.{mode}.ftz.f32"), 2, move |a| {
                f.flush(f.binary(operator, f.flush(a[0]), f.flush(a[1]), mode))
            }));
            if operator != '/' {
                all.push(F32.scalar(format!("{name}.{mode}.sat.f32"), 2, move |a| {
                    f.saturate(f.binary(operator, a[0], a[1], mode))
                }));
            }
        }
        if operator != '/' {
            all.push(F32.scalar(format!("{name}.ftz.f32"), 2, move |a| {
                f.flush(f.binary(operator, f.flush(a[0]), f.flush(a[1]), "rn"))
            }));
            all.push(F32.scalar(format!("{name}.sat.f32"), 2, move |a| {
                f.saturate(f.binary(operator, a[0], a[1], "rn"))
            }));
            all.push(F32.scalar(format!("{name}.ftz.sat.f32"), 2, move |a| {
                f.saturate(f.flush(f.binary(operator, f.flush(a[0]), f.flush(a[1]), "rn")))
            }));
        }
    }
    for mode in MODES {
        let flushed = move |a: &[u64]| f.flush(f.fma(f.flush(a[0]), f.flush(a[1]), f.flush(a[2]), mode));
        all.push(F32.scalar(format!("fma.{mode}.ftz.f32"), 3, flushed));
        all.push(F32.scalar(format!("fma.{mode}.ftz.sat.f32"), 3, move |a| f.saturate(flushed(a))));
        all.push(
            F32.scalar(format!("fma.{mode}.sat.f32"), 3, move |a| f.saturate(f.fma(a[0], a[1], a[2], mode))),
        );
        all.push(F32.scalar(format!("mad.{mode}.ftz.f32"), 3, flushed));
        all.push(
            F32.scalar(format!("sqrt.{mode}.ftz.f32"), 1, move |a| f.flush(f.sqrt(f.flush(a[0]), mode))),
        );
        all.push(F32.scalar(format!("rcp.{mode}.ftz.f32"), 1, move |a| {
            f.flush(f.binary('/', 0x3F80_0000, f.flush(a[0]), mode))
        }));
    }
    all.push(F32.scalar("neg.ftz.f32".into(), 1, move |a| f.flush(a[0]) ^ 0x8000_0000));
    all.push(F32.scalar("abs.ftz.f32".into(), 1, move |a| f.flush(a[0]) & 0x7FFF_FFFF));
    for (name, maximum) in [("min", false), ("max", true)] {
        for count in [2, 3] {
            all.push(F32.scalar(format!("{name}.ftz.f32"), count, move |a| {
                let flushed: Vec<u64> = a.iter().map(|&number| f.flush(number)).collect();
                extreme(f, &flushed, maximum)
            }));
            all.push(F32.scalar(format!("{name}.NaN.f32"), count, move |a| nan_wins(f, a, maximum)));
        }
        all.push(F32.scalar(format!("{name}.f32"), 3, move |a| extreme(f, a, maximum)));
    }
    all
}

/// `min` and `max` of as many numbers as there are.
fn extreme(f: Format, a: &[u64], maximum: bool) -> u64 {
    a[1..].iter().fold(a[0], |first, &then| f.min_max(first, then, maximum))
}

/// The same where a NaN wins.
fn nan_wins(f: Format, a: &[u64], maximum: bool) -> u64 {
    a.iter().copied().find(|v| f.is_nan(*v)).unwrap_or_else(|| extreme(f, a, maximum))
}

/// `f16`, `bf16`, and two of them at once.
fn halves() -> Vec<Case> {
    let mut all = Vec::new();
    for kind in [F16, BF16] {
        let (ty, f) = (kind.ty, kind.format);
        for packed in [false, true] {
            let make = move |opcode: &str, count: usize, model: BitsModel| {
                if packed {
                    kind.packed(format!("{opcode}.{ty}x2"), count, model)
                } else {
                    kind.scalar(format!("{opcode}.{ty}"), count, model)
                }
            };
            for (name, operator) in [("add", '+'), ("sub", '-'), ("mul", '*')] {
                let exact = move |a: &[u64]| f.binary(operator, a[0], a[1], "rn");
                for mode in ["", ".rn"] {
                    all.push(make(&format!("{name}{mode}"), 2, Box::new(exact)).target("sm_90"));
                }
                if kind.format == Format::F16 {
                    let flushed = move |a: &[u64]| f.flush(exact(&[f.flush(a[0]), f.flush(a[1])]));
                    all.push(make(&format!("{name}.ftz"), 2, Box::new(flushed)));
                    all.push(make(&format!("{name}.sat"), 2, Box::new(move |a| f.saturate(exact(a)))));
                }
            }
            all.push(make("fma.rn", 3, Box::new(move |a| f.fma(a[0], a[1], a[2], "rn"))));
            all.push(make(
                "fma.rn.relu",
                3,
                Box::new(move |a| {
                    let value = f.fma(a[0], a[1], a[2], "rn");
                    // Negative results become +0, NaN stays.
                    if !f.is_nan(value) && value >> 15 != 0 { 0 } else { value }
                }),
            ));
            if kind.format == Format::F16 {
                all.push(make(
                    "fma.rn.ftz",
                    3,
                    Box::new(move |a| f.flush(f.fma(f.flush(a[0]), f.flush(a[1]), f.flush(a[2]), "rn"))),
                ));
                all.push(make("fma.rn.sat", 3, Box::new(move |a| f.saturate(f.fma(a[0], a[1], a[2], "rn")))));
            }
            all.push(make("neg", 1, Box::new(|a| a[0] ^ 0x8000)));
            all.push(make("abs", 1, Box::new(|a| a[0] & 0x7FFF)));
            for (name, maximum) in [("min", false), ("max", true)] {
                all.push(make(name, 2, Box::new(move |a| f.min_max(a[0], a[1], maximum))));
                all.push(make(&format!("{name}.NaN"), 2, Box::new(move |a| nan_wins(f, a, maximum))));
            }
        }
    }
    all
}
