//! Comparisons.

use super::case::{Case, Class, Want};
use super::float::{BF16, F16, F32, F64, Kind};
use super::oracle::Format;
use super::values::{Domain, signed};

const PRED: (Class, Domain) = (Class::Pred, Domain::Bool);

fn ordered<T: PartialOrd>(compare: &str, a: T, b: T) -> bool {
    match compare {
        "eq" => a == b,
        "ne" => a != b,
        "lt" | "lo" => a < b,
        "le" | "ls" => a <= b,
        "gt" | "hi" => a > b,
        "ge" | "hs" => a >= b,
        _ => panic!("{compare} is no comparison"),
    }
}

fn float(f: Format, compare: &str, a: u64, b: u64) -> bool {
    let nan = f.is_nan(a) || f.is_nan(b);
    match compare {
        "num" => !nan,
        "nan" => nan,
        // The ones that end in u are true for NaN; all others are false.
        "equ" | "neu" | "ltu" | "leu" | "gtu" | "geu" => {
            nan || ordered(&compare[..2], f.to_f64(a), f.to_f64(b))
        }
        _ => !nan && ordered(compare, f.to_f64(a), f.to_f64(b)),
    }
}

const FLOAT: [&str; 14] =
    ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"];

/// Results of one comparison in all forms: plain, with its complement, and combined.
fn setp(
    compare: &str,
    ty: &str,
    operand: (Class, Domain),
    model: impl Fn(u64, u64) -> bool + Send + Sync + Copy + 'static,
) -> Vec<Case> {
    let mut all = Vec::new();
    let opcode = format!("setp.{compare}.{ty}");
    // Halves have no second result.
    if ty.ends_with("f16") {
        all.push(Case::simple(&opcode, &[operand; 2], Class::Pred, move |a| {
            Want::Bits(u64::from(model(a[0], a[1])))
        }));
        for (combine, both) in [("and", [false, true]), ("or", [true, true]), ("xor", [true, false])] {
            let opcode = format!("setp.{compare}.{combine}.{ty}");
            let ins = [operand, operand, PRED];
            all.push(Case::simple(&opcode, &ins, Class::Pred, move |a| {
                let (result, other) = (model(a[0], a[1]), a[2] != 0);
                Want::Bits(u64::from(match (result, other) {
                    (false, false) => false,
                    (true, true) => both[1],
                    _ => both[0],
                }))
            }));
        }
        return all;
    }
    let body = format!("{opcode} d0, a0, a1; {opcode} d1|d2, a0, a1;");
    all.push(Case::new(&opcode, &body, &[operand; 2], &[Class::Pred; 3], move |a| {
        let result = u64::from(model(a[0], a[1]));
        vec![Want::Bits(result), Want::Bits(result), Want::Bits(result ^ 1)]
    }));
    for combine in ["and", "or", "xor"] {
        let opcode = format!("setp.{compare}.{combine}.{ty}");
        let body = format!("{opcode} d0|d1, a0, a1, a2; {opcode} d2, a0, a1, !a2;");
        all.push(Case::new(&opcode, &body, &[operand, operand, PRED], &[Class::Pred; 3], move |a| {
            let result = model(a[0], a[1]);
            let with = |t: bool, c: bool| {
                Want::Bits(u64::from(match combine {
                    "and" => t && c,
                    "or" => t || c,
                    _ => t != c,
                }))
            };
            let c = a[2] != 0;
            vec![with(result, c), with(!result, c), with(result, !c)]
        }));
    }
    all
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for bits in [16u32, 32, 64] {
        let class = [Class::B16, Class::B32, Class::B64][bits.trailing_zeros() as usize - 4];
        let operand = (class, Domain::Int(bits));
        for compare in ["eq", "ne"] {
            all.extend(setp(compare, &format!("b{bits}"), operand, move |a, b| ordered(compare, a, b)));
        }
        for compare in ["eq", "ne", "lt", "le", "gt", "ge"] {
            all.extend(setp(compare, &format!("s{bits}"), operand, move |a, b| {
                ordered(compare, signed(a, bits), signed(b, bits))
            }));
            all.extend(setp(compare, &format!("u{bits}"), operand, move |a, b| ordered(compare, a, b)));
        }
        for compare in ["lo", "ls", "hi", "hs"] {
            all.extend(setp(compare, &format!("u{bits}"), operand, move |a, b| ordered(compare, a, b)));
        }
    }
    for kind in [F16, BF16, F32, F64] {
        for compare in FLOAT {
            let f = kind.format;
            let cases =
                setp(compare, kind.ty, (kind.class, kind.domain), move |a, b| float(f, compare, a, b));
            // Comparisons of bf16 need sm_90.
            all.extend(
                cases.into_iter().map(|case| if f == Format::Bf16 { case.target("sm_90") } else { case }),
            );
        }
    }
    for compare in FLOAT {
        let f = Format::F32;
        let opcode = format!("setp.{compare}.ftz.f32");
        all.push(Case::simple(&opcode, &[(Class::F32, Domain::F32); 2], Class::Pred, move |a| {
            Want::Bits(u64::from(float(f, compare, f.flush(a[0]), f.flush(a[1]))))
        }));
    }
    all.extend(set());
    all
}

/// `set`: a number instead of a predicate.
fn set() -> Vec<Case> {
    let mut all = Vec::new();
    for compare in ["eq", "ne", "lt", "le", "gt", "ge"] {
        for (to, yes) in [("u32", 0xFFFF_FFFF), ("s32", 0xFFFF_FFFF), ("f32", 0x3F80_0000u64)] {
            let class = if to == "f32" { Class::F32 } else { Class::B32 };
            all.push(Case::simple(
                &format!("set.{compare}.{to}.s32"),
                &[(Class::B32, Domain::Int(32)); 2],
                class,
                move |a| {
                    Want::Bits(if ordered(compare, signed(a[0], 32), signed(a[1], 32)) { yes } else { 0 })
                },
            ));
            all.push(Case::simple(
                &format!("set.{compare}.{to}.u32"),
                &[(Class::B32, Domain::Int(32)); 2],
                class,
                move |a| Want::Bits(if ordered(compare, a[0], a[1]) { yes } else { 0 }),
            ));
            for kind in [F32, F64] {
                let f = kind.format;
                all.push(Case::simple(
                    &format!("set.{compare}.{to}.{}", kind.ty),
                    &[(kind.class, kind.domain); 2],
                    class,
                    move |a| Want::Bits(if float(f, compare, a[0], a[1]) { yes } else { 0 }),
                ));
            }
        }
    }
    for compare in FLOAT {
        all.extend(half_set(F16, compare, 0x3C00));
        all.extend(half_set(BF16, compare, 0x3F80));
    }
    all
}

fn half_set(kind: Kind, compare: &'static str, one: u64) -> Vec<Case> {
    let (f, ty) = (kind.format, kind.ty);
    let bf16 = f == Format::Bf16;
    let packed = [(Class::B32, if bf16 { Domain::Bf16x2 } else { Domain::F16x2 }); 2];
    let cases = vec![
        Case::simple(
            &format!("set.{compare}.{ty}.{ty}"),
            &[(kind.class, kind.domain); 2],
            kind.class,
            move |a| Want::Bits(if float(f, compare, a[0], a[1]) { one } else { 0 }),
        ),
        Case::simple(&format!("set.{compare}.{ty}x2.{ty}x2"), &packed, Class::B32, move |a| {
            let half = |shift: u32| {
                if float(f, compare, a[0] >> shift & 0xFFFF, a[1] >> shift & 0xFFFF) { one } else { 0 }
            };
            Want::Bits(half(0) | half(16) << 16)
        }),
        // A mask for each of the two.
        Case::simple(&format!("set.{compare}.u32.{ty}x2"), &packed, Class::B32, move |a| {
            let half = |shift: u32| {
                if float(f, compare, a[0] >> shift & 0xFFFF, a[1] >> shift & 0xFFFF) { 0xFFFF } else { 0 }
            };
            Want::Bits(half(0) | half(16) << 16)
        }),
    ];
    cases.into_iter().map(|case| if bf16 { case.target("sm_90") } else { case }).collect()
}
