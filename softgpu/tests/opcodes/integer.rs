//! Integer arithmetic.

use super::case::{Case, Class, Want};
use super::values::{Domain, mask, signed};

fn class(bits: u32) -> Class {
    match bits {
        16 => Class::B16,
        32 => Class::B32,
        _ => Class::B64,
    }
}

fn int(bits: u32) -> (Class, Domain) {
    (class(bits), Domain::Int(bits))
}

/// The number that an operand stands for.
fn number(value: u64, ty: &str) -> i128 {
    let bits = width(ty);
    if ty.starts_with('s') { signed(value, bits) } else { i128::from(value & mask(bits)) }
}

fn width(ty: &str) -> u32 {
    ty[1..].parse().unwrap()
}

fn wrap(value: i128, bits: u32) -> Want {
    Want::Bits(value as u64 & mask(bits))
}

/// The smallest and the largest number of a type.
pub(crate) fn low_high(ty: &str) -> (i128, i128) {
    let bits = width(ty);
    if ty.starts_with('s') { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

/// A case with operands of one type, computed on exact integers.
fn exact(
    opcode: &str,
    ty: &'static str,
    operands: usize,
    model: impl Fn(&[i128]) -> i128 + Send + Sync + 'static,
) -> Case {
    let bits = width(ty);
    Case::simple(&format!("{opcode}.{ty}"), &vec![int(bits); operands], class(bits), move |a| {
        let numbers: Vec<i128> = a.iter().map(|v| number(*v, ty)).collect();
        wrap(model(&numbers), bits)
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for ty in ["u16", "u32", "u64", "s16", "s32", "s64"] {
        let bits = width(ty);
        all.push(exact("add", ty, 2, |a| a[0] + a[1]));
        all.push(exact("sub", ty, 2, |a| a[0] - a[1]));
        all.push(exact("mul.lo", ty, 2, |a| a[0].wrapping_mul(a[1])));
        all.push(exact("mul.hi", ty, 2, move |a| a[0].wrapping_mul(a[1]) >> bits).wide_product(ty));
        all.push(exact("mad.lo", ty, 3, |a| a[0].wrapping_mul(a[1]).wrapping_add(a[2])));
        all.push(exact("mad.hi", ty, 3, move |a| (a[0].wrapping_mul(a[1]) >> bits) + a[2]).wide_product(ty));
        all.push(exact("min", ty, 2, |a| a[0].min(a[1])));
        all.push(exact("max", ty, 2, |a| a[0].max(a[1])));
        all.push(exact("sad", ty, 3, |a| a[2] + (a[0] - a[1]).abs()));
        // Division by zero is unspecified; the largest negative number by -1 wraps.
        for (opcode, remainder) in [("div", false), ("rem", true)] {
            let ins = [int(bits), (class(bits), Domain::NonZero(bits))];
            all.push(Case::simple(&format!("{opcode}.{ty}"), &ins, class(bits), move |a| {
                let (a, b) = (number(a[0], ty), number(a[1], ty));
                if (a, b) == (low_high(ty).0, -1) {
                    return Want::Any;
                }
                wrap(if remainder { a % b } else { a / b }, bits)
            }));
        }
        if ty.starts_with('s') {
            all.push(exact("neg", ty, 1, |a| -a[0]));
            all.push(exact("abs", ty, 1, |a| a[0].abs()));
        }
        if bits < 64 {
            let ins = [int(bits), int(bits)];
            all.push(Case::simple(&format!("mul.wide.{ty}"), &ins, class(bits * 2), move |a| {
                wrap(number(a[0], ty) * number(a[1], ty), bits * 2)
            }));
            let ins = [int(bits), int(bits), int(bits * 2)];
            all.push(Case::simple(&format!("mad.wide.{ty}"), &ins, class(bits * 2), move |a| {
                wrap(number(a[0], ty) * number(a[1], ty) + i128::from(a[2]), bits * 2)
            }));
        }
    }
    // A register narrower operands are taken from may be wider than they are.
    for ty in ["u32", "s32"] {
        let (low, high) = low_high(ty);
        for (part, shift) in [("lo", 0), ("hi", 16)] {
            let narrow =
                move |v: u64| if low < 0 { signed(v & 0xFF_FFFF, 24) } else { i128::from(v & 0xFF_FFFF) };
            all.push(Case::simple(
                &format!("mul24.{part}.{ty}"),
                &[int(32), int(32)],
                Class::B32,
                move |a| wrap(narrow(a[0]) * narrow(a[1]) >> shift, 32),
            ));
            all.push(Case::simple(&format!("mad24.{part}.{ty}"), &[int(32); 3], Class::B32, move |a| {
                wrap((narrow(a[0]) * narrow(a[1]) >> shift) + number(a[2], ty), 32)
            }));
        }
        if ty == "s32" {
            all.push(exact("add.sat", ty, 2, move |a| (a[0] + a[1]).clamp(low, high)));
            all.push(exact("sub.sat", ty, 2, move |a| (a[0] - a[1]).clamp(low, high)));
            all.push(exact("mad.hi.sat", ty, 3, move |a| ((a[0] * a[1] >> 32) + a[2]).clamp(low, high)));
        }
        for bits_ty in [ty] {
            for (other, model) in [("u32", false), ("s32", true)] {
                let four = format!("dp4a.{bits_ty}.{other}");
                let byte = |v: u64, n: u32, s: bool| {
                    if s { signed(v >> (8 * n) & 0xFF, 8) } else { i128::from(v >> (8 * n) & 0xFF) }
                };
                let half = |v: u64, n: u32, s: bool| {
                    if s { signed(v >> (16 * n) & 0xFFFF, 16) } else { i128::from(v >> (16 * n) & 0xFFFF) }
                };
                let first = bits_ty == "s32";
                all.push(Case::simple(&four, &[int(32); 3], Class::B32, move |a| {
                    wrap(
                        (0..4).map(|n| byte(a[0], n, first) * byte(a[1], n, model)).sum::<i128>()
                            + i128::from(a[2]),
                        32,
                    )
                }));
                for (part, from) in [("lo", 0), ("hi", 2)] {
                    let two = format!("dp2a.{part}.{bits_ty}.{other}");
                    all.push(Case::simple(&two, &[int(32); 3], Class::B32, move |a| {
                        wrap(
                            (0..2).map(|n| half(a[0], n, first) * byte(a[1], n + from, model)).sum::<i128>()
                                + i128::from(a[2]),
                            32,
                        )
                    }));
                }
            }
        }
    }
    all.extend(carries());
    all
}

impl Case {
    /// Products of 64-bit numbers do not fit `i128` when both are unsigned: a model of its own.
    fn wide_product(self, ty: &'static str) -> Case {
        if ty != "u64" {
            return self;
        }
        let add = self.ins.len() == 3;
        let opcode = self.covers[0].clone();
        Case::simple(&opcode, &self.ins.clone(), Class::B64, move |a| {
            let high = (u128::from(a[0]) * u128::from(a[1]) >> 64) as u64;
            Want::Bits(if add { high.wrapping_add(a[2]) } else { high })
        })
    }
}

/// Extended-precision arithmetic: whole chains, because the carry flag lives between instructions.
fn carries() -> Vec<Case> {
    let mut all = Vec::new();
    for (ty, bits) in [("u32", 32u32), ("s32", 32), ("u64", 64), ("s64", 64)] {
        let c = class(bits);
        let wide =
            move |low: u64, high: u64| u128::from(low & mask(bits)) | u128::from(high & mask(bits)) << bits;
        let three = move |a: &[u64], at: usize| (wide(a[at], a[at + 1]), a[at + 2] & mask(bits));
        let split = move |low: u128, high: u64| {
            vec![
                Want::Bits(low as u64 & mask(bits)),
                Want::Bits((low >> bits) as u64 & mask(bits)),
                Want::Bits(high & mask(bits)),
            ]
        };
        let full = move |v: u128| if bits == 64 { v } else { v & u128::from(u64::MAX) };
        let chain =
            |op: &str| format!("{op}.cc.{ty} d0, a0, a3; {op}c.cc.{ty} d1, a1, a4; {op}c.{ty} d2, a2, a5;");
        all.push(
            Case::new(&format!("add.cc.{ty}"), &chain("add"), &[int(bits); 6], &[c; 3], move |a| {
                let ((x, xh), (y, yh)) = (three(a, 0), three(a, 3));
                let (sum, carry) = x.overflowing_add(y);
                let carry = carry || bits == 32 && sum >> 64 != 0;
                split(full(sum), xh.wrapping_add(yh).wrapping_add(u64::from(carry)))
            })
            .and(&format!("addc.cc.{ty}"))
            .and(&format!("addc.{ty}")),
        );
        all.push(
            Case::new(&format!("sub.cc.{ty}"), &chain("sub"), &[int(bits); 6], &[c; 3], move |a| {
                let ((x, xh), (y, yh)) = (three(a, 0), three(a, 3));
                let borrow = x < y;
                split(full(x.wrapping_sub(y)), xh.wrapping_sub(yh).wrapping_sub(u64::from(borrow)))
            })
            .and(&format!("subc.cc.{ty}"))
            .and(&format!("subc.{ty}")),
        );
        // A subtraction's carry is that of adding the complement: set where nothing is borrowed.
        let body = format!(
            "sub.cc.{ty} d0, a0, a1; addc.{ty} d1, 0, 0; add.cc.{ty} d0, a0, a1; subc.{ty} d2, a2, 0; sub.cc.{ty} d0, a0, a1; subc.cc.{ty} d0, a2, a1; addc.{ty} d0, a2, 0;"
        );
        all.push(
            Case::new(&format!("sub.cc.{ty}"), &body, &[int(bits); 3], &[c; 3], move |a| {
                let [x, y, z] = [0, 1, 2].map(|n| a[n] & mask(bits));
                let (enough, over) = (x >= y, u128::from(x) + u128::from(y) > u128::from(mask(bits)));
                let again = u128::from(z) >= u128::from(y) + u128::from(!enough);
                let want =
                    [z.wrapping_add(u64::from(again)), u64::from(enough), z.wrapping_sub(u64::from(!over))];
                want.map(|value| Want::Bits(value & mask(bits))).to_vec()
            })
            .and(&format!("addc.{ty}")),
        );
        if ty.starts_with('u') {
            // (a1:a0) * a2 + (a5:a4:a3), as compilers write long multiplication.
            let body = format!(
                "mad.lo.cc.{ty} d0, a0, a2, a3; madc.hi.cc.{ty} d1, a0, a2, a4; addc.{ty} d2, a5, 0;
                 mad.lo.cc.{ty} d1, a1, a2, d1; madc.hi.{ty} d2, a1, a2, d2;"
            );
            all.push(
                Case::new(&format!("mad.lo.cc.{ty}"), &body, &[int(bits); 6], &[c; 3], move |a| {
                    let product = |x: u64, y: u64| u128::from(x) * u128::from(y);
                    let m = u128::from(mask(bits));
                    // Schoolbook, digit by digit, in the base 2^bits.
                    let p0 = product(a[0], a[2]);
                    let p1 = product(a[1], a[2]);
                    let t0 = (p0 & m) + u128::from(a[3]);
                    let t1 = (p0 >> bits) + u128::from(a[4]) + (t0 >> bits);
                    let u1 = (t1 & m) + (p1 & m);
                    let t2 = u128::from(a[5]) + (t1 >> bits) + (p1 >> bits) + (u1 >> bits);
                    [t0, u1, t2].map(|v| Want::Bits((v & m) as u64)).to_vec()
                })
                .and(&format!("madc.hi.cc.{ty}"))
                .and(&format!("madc.hi.{ty}")),
            );
            let body = format!(
                "add.cc.{ty} d0, a0, a1; madc.lo.{ty} d1, a2, a3, a4;
                 add.cc.{ty} d0, a0, a1; madc.lo.cc.{ty} d2, a2, a3, a4; addc.{ty} d3, a5, 0;
                 mad.hi.cc.{ty} d4, a2, a3, a4; addc.{ty} d5, a5, a5;"
            );
            all.push(
                Case::new(&format!("madc.lo.{ty}"), &body, &[int(bits); 6], &[c; 6], move |a| {
                    let m = u128::from(mask(bits));
                    let sum = u128::from(a[0]) + u128::from(a[1]);
                    let product = u128::from(a[2]) * u128::from(a[3]);
                    let low = (product & m) + u128::from(a[4]) + (sum >> bits);
                    let high = (product >> bits) + u128::from(a[4]);
                    let d3 = u128::from(a[5]) + (low >> bits);
                    let d5 = u128::from(a[5]) * 2 + (high >> bits);
                    [sum, low, low, d3, high, d5].map(|v| Want::Bits((v & m) as u64)).to_vec()
                })
                .and(&format!("madc.lo.cc.{ty}"))
                .and(&format!("mad.hi.cc.{ty}")),
            );
        }
    }
    all
}
