//! Logic, shifts, moves, selection, and operations on bits.

use super::case::{Case, Class, Want};
use super::values::{Domain, mask, signed};

fn int(bits: u32) -> (Class, Domain) {
    let class = match bits {
        16 => Class::B16,
        32 => Class::B32,
        _ => Class::B64,
    };
    (class, Domain::Int(bits))
}

const PRED: (Class, Domain) = (Class::Pred, Domain::Bool);
const SMALL: (Class, Domain) = (Class::B32, Domain::Small);

fn exact(
    opcode: &str,
    ins: &[(Class, Domain)],
    bits: u32,
    model: impl Fn(&[u64]) -> u64 + Send + Sync + 'static,
) -> Case {
    Case::simple(opcode, ins, int(bits).0, move |a| Want::Bits(model(a) & mask(bits)))
}

type Logic = (&'static str, fn(u64, u64) -> u64);

pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let logic: [Logic; 3] = [("and", |a, b| a & b), ("or", |a, b| a | b), ("xor", |a, b| a ^ b)];
    for (name, function) in logic {
        all.push(Case::simple(&format!("{name}.pred"), &[PRED, PRED], Class::Pred, move |a| {
            Want::Bits(function(a[0], a[1]))
        }));
        for bits in [16, 32, 64] {
            all.push(exact(&format!("{name}.b{bits}"), &[int(bits); 2], bits, move |a| function(a[0], a[1])));
        }
    }
    let base = (Class::B32, Domain::Below(32));
    all.push(exact("fns.b32", &[int(32), base, int(32)], 32, |a| {
        // The n-th of the bits that are set, upwards or downwards from the base, which itself counts.
        let is_set = |at: &u64| a[0] >> at & 1 != 0;
        let offset = a[2] as u32 as i32;
        let nth = offset.unsigned_abs() as usize;
        let found = match offset {
            i32::MIN => Some(0),
            0 => Some(a[1]).filter(is_set),
            1.. => (a[1]..32).filter(is_set).nth(nth - 1),
            _ => (0..=a[1]).rev().filter(is_set).nth(nth - 1),
        };
        found.unwrap_or(u64::MAX)
    }));
    all.push(Case::simple("not.pred", &[PRED], Class::Pred, |a| Want::Bits(a[0] ^ 1)));
    all.push(Case::simple("mov.pred", &[PRED], Class::Pred, |a| Want::Bits(a[0])));
    for bits in [16u32, 32, 64] {
        all.push(exact(&format!("not.b{bits}"), &[int(bits)], bits, |a| !a[0]));
        all.push(exact(&format!("cnot.b{bits}"), &[int(bits)], bits, |a| u64::from(a[0] == 0)));
        let amount = |v: u64| v & 0xFFFF_FFFF;
        all.push(exact(&format!("shl.b{bits}"), &[int(bits), SMALL], bits, move |a| {
            if amount(a[1]) >= u64::from(bits) { 0 } else { a[0] << amount(a[1]) }
        }));
        for ty in ['b', 'u', 's'] {
            all.push(exact(&format!("shr.{ty}{bits}"), &[int(bits), SMALL], bits, move |a| {
                let amount = amount(a[1]).min(64);
                match ty {
                    's' => (signed(a[0], bits) >> amount) as u64,
                    _ if amount >= u64::from(bits) => 0,
                    _ => a[0] >> amount,
                }
            }));
            all.push(exact(&format!("mov.{ty}{bits}"), &[int(bits)], bits, |a| a[0]));
            let ins = [int(bits), int(bits), PRED];
            all.push(exact(&format!("selp.{ty}{bits}"), &ins, bits, |a| if a[2] != 0 { a[0] } else { a[1] }));
            let ins = [int(bits), int(bits), int(32)];
            all.push(exact(&format!("slct.{ty}{bits}.s32"), &ins, bits, |a| {
                if signed(a[2], 32) >= 0 { a[0] } else { a[1] }
            }));
        }
    }
    for (ty, class, domain) in [("f32", Class::F32, Domain::F32), ("f64", Class::F64, Domain::F64)] {
        all.push(Case::simple(&format!("mov.{ty}"), &[(class, domain)], class, |a| Want::Bits(a[0])));
        let ins = [(class, domain), (class, domain), PRED];
        all.push(Case::simple(&format!("selp.{ty}"), &ins, class, |a| {
            Want::Bits(if a[2] != 0 { a[0] } else { a[1] })
        }));
        let ins = [(class, domain), (class, domain), (Class::F32, Domain::F32)];
        all.push(Case::simple(&format!("slct.{ty}.f32"), &ins, class, |a| {
            // NaN selects the second; -0 counts as 0.
            Want::Bits(if f32::from_bits(a[2] as u32) >= 0.0 { a[0] } else { a[1] })
        }));
    }
    all.extend(counting());
    all.extend(fields());
    all.extend(packing());
    all
}

fn counting() -> Vec<Case> {
    let mut all = Vec::new();
    for bits in [32u32, 64] {
        let zeros = move |v: u64| u64::from(v.leading_zeros()) - u64::from(64 - bits);
        all.push(exact(&format!("popc.b{bits}"), &[int(bits)], 32, |a| u64::from(a[0].count_ones())));
        all.push(exact(&format!("clz.b{bits}"), &[int(bits)], 32, move |a| zeros(a[0])));
        all.push(exact(&format!("brev.b{bits}"), &[int(bits)], bits, move |a| {
            a[0].reverse_bits() >> (64 - bits)
        }));
        for ty in ['u', 's'] {
            for shift in ["", "shiftamt."] {
                all.push(exact(&format!("bfind.{shift}{ty}{bits}"), &[int(bits)], 32, move |a| {
                    let negative = ty == 's' && signed(a[0], bits) < 0;
                    let value = if negative { !a[0] & mask(bits) } else { a[0] };
                    match value {
                        0 => 0xFFFF_FFFF,
                        _ if shift.is_empty() => u64::from(bits) - 1 - zeros(value),
                        _ => zeros(value),
                    }
                }));
            }
        }
    }
    all
}

fn fields() -> Vec<Case> {
    let mut all = Vec::new();
    for bits in [32u32, 64] {
        // The low byte counts for 32 bits, and all for 64.
        let field = move |n: u64| if bits == 64 { n.min(128) } else { n & 0xFF };
        for ty in ['u', 's'] {
            all.push(exact(&format!("bfe.{ty}{bits}"), &[int(bits), SMALL, SMALL], bits, move |a| {
                let (position, length) = (field(a[1]) as u32, field(a[2]) as u32);
                if length == 0 {
                    return 0;
                }
                // Bits beyond the top are copies of the sign, or zeros.
                let value = if ty == 's' { signed(a[0], bits) as u128 } else { u128::from(a[0]) };
                let field = value.checked_shr(position.min(127)).unwrap_or(0);
                let field = if ty == 's' { (value as i128 >> position.min(127)) as u128 } else { field };
                if length >= 64 {
                    return field as u64;
                }
                let top = position + length - 1;
                let low = field as u64 & mask(length);
                let negative = ty == 's' && signed(a[0], bits) >> top.min(bits - 1) & 1 != 0;
                if negative { low | !mask(length) } else { low }
            }));
        }
        all.push(exact(&format!("bfi.b{bits}"), &[int(bits), int(bits), SMALL, SMALL], bits, move |a| {
            let (position, length) = (field(a[2]), field(a[3]));
            let mut result = a[1];
            for n in 0..length {
                let at = position + n;
                if at < u64::from(bits) {
                    let bit = a[0].checked_shr(n as u32).unwrap_or(0) & 1;
                    result = result & !(1 << at) | bit << at;
                }
            }
            result
        }));
    }
    for mode in ["clamp", "wrap"] {
        all.push(exact(&format!("bmsk.{mode}.b32"), &[SMALL, SMALL], 32, move |a| {
            let (position, width) = match mode {
                "wrap" => (a[0] & 31, a[1] & 31),
                _ => (a[0] & 0xFFFF_FFFF, (a[1] & 0xFFFF_FFFF).min(32)),
            };
            if position >= 32 { 0 } else { ((1u64 << width) - 1) << position }
        }));
        for ty in ['u', 's'] {
            all.push(exact(&format!("szext.{mode}.{ty}32"), &[int(32), SMALL], 32, move |a| {
                let n = if mode == "wrap" { a[1] & 31 } else { (a[1] & 0xFFFF_FFFF).min(32) };
                match (n, ty) {
                    (0, _) => 0,
                    (_, 's') => signed(a[0] & mask(n as u32), n as u32) as u64,
                    _ => a[0] & mask(n as u32),
                }
            }));
        }
        for (direction, left) in [("l", true), ("r", false)] {
            all.push(exact(
                &format!("shf.{direction}.{mode}.b32"),
                &[int(32), int(32), SMALL],
                32,
                move |a| {
                    let n = if mode == "wrap" { a[2] & 31 } else { (a[2] & 0xFFFF_FFFF).min(32) };
                    let both = a[1] << 32 | a[0];
                    if left { (both << n) >> 32 } else { both >> n }
                },
            ));
        }
    }
    // `shf.l.clamp` by 32 takes the low word: a shift of 64 bits does that, too.
    for table in [0x00u64, 0x1E, 0x40, 0x96, 0xB8, 0xCA, 0xE8, 0xFF] {
        let opcode = "lop3.b32";
        let body = format!("lop3.b32 d0, a0, a1, a2, {table};");
        all.push(Case::new(opcode, &body, &[int(32); 3], &[Class::B32], move |a| {
            let bit = |n: u32| {
                let index = (a[0] >> n & 1) << 2 | (a[1] >> n & 1) << 1 | a[2] >> n & 1;
                (table >> index & 1) << n
            };
            vec![Want::Bits((0..32).map(bit).sum())]
        }));
    }
    all
}

fn packing() -> Vec<Case> {
    let mut all = Vec::new();
    let byte = |v: u64, n: u64| v >> (8 * n) & 0xFF;
    all.push(exact("prmt.b32", &[int(32), int(32), int(32)], 32, move |a| {
        let both = a[1] << 32 | a[0];
        (0..4)
            .map(|n| {
                let selector = a[2] >> (4 * n) & 0xF;
                let byte = byte(both, selector & 7);
                let byte = if selector & 8 == 0 {
                    byte
                } else if byte & 0x80 != 0 {
                    0xFF
                } else {
                    0
                };
                byte << (8 * n)
            })
            .sum()
    }));
    let modes: [Logic; 6] = [
        ("f4e", |n, s| n + s),
        ("b4e", |n, s| (s + 8 - n) & 7),
        ("rc8", |_, s| s),
        ("ecl", |n, s| n.max(s)),
        ("ecr", |n, s| n.min(s)),
        ("rc16", |n, s| 2 * (s & 1) + (n & 1)),
    ];
    for (mode, pick) in modes {
        all.push(exact(&format!("prmt.b32.{mode}"), &[int(32), int(32), int(32)], 32, move |a| {
            let both = a[1] << 32 | a[0];
            (0..4).map(|n| byte(both, pick(n, a[2] & 3)) << (8 * n)).sum()
        }));
    }
    // Moves between vectors and scalars.
    all.push(Case::new(
        "mov.b64",
        "mov.b64 d0, {a0, a1}; mov.b64 {d1, d2}, d0; mov.b64 {_, d3}, d0;",
        &[int(32); 2],
        &[Class::B64, Class::B32, Class::B32, Class::B32],
        |a| vec![Want::Bits(a[1] << 32 | a[0]), Want::Bits(a[0]), Want::Bits(a[1]), Want::Bits(a[1])],
    ));
    all.push(Case::new(
        "mov.b32",
        "mov.b32 d0, {a0, a1}; mov.b32 {d1, d2}, d0;",
        &[int(16); 2],
        &[Class::B32, Class::B16, Class::B16],
        |a| vec![Want::Bits(a[1] << 16 | a[0]), Want::Bits(a[0]), Want::Bits(a[1])],
    ));
    all.push(Case::new(
        "mov.b64",
        "mov.b64 d0, {a0, a1, a2, a3}; mov.b64 {d1, d2, d3, d4}, d0;",
        &[int(16); 4],
        &[Class::B64, Class::B16, Class::B16, Class::B16, Class::B16],
        |a| {
            let all = a[3] << 48 | a[2] << 32 | a[1] << 16 | a[0];
            [all, a[0], a[1], a[2], a[3]].map(Want::Bits).to_vec()
        },
    ));
    all.push(Case::new(
        "mov.b32",
        "mov.b32 d0, a0; mov.b32 d1, a1;",
        &[(Class::F32, Domain::F32), int(32)],
        &[Class::B32, Class::F32],
        |a| vec![Want::Bits(a[0]), Want::Bits(a[1])],
    ));
    all
}
