//! Conversions.

use super::case::{Case, Class, Want};
use super::float::{BF16, F16, F32, F64, Kind};
use super::integer::low_high;
use super::oracle::Format;
use super::values::{Domain, mask, signed};

fn int(bits: u32) -> (Class, Domain) {
    match bits {
        8 | 16 => (Class::B16, Domain::Int(16)),
        32 => (Class::B32, Domain::Int(32)),
        _ => (Class::B64, Domain::Int(64)),
    }
}

fn width(ty: &str) -> u32 {
    ty[1..].parse().unwrap()
}

fn number(value: u64, ty: &str) -> i128 {
    let bits = width(ty);
    if ty.starts_with('s') { signed(value & mask(bits), bits) } else { i128::from(value & mask(bits)) }
}

const INTEGERS: [&str; 8] = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"];
const MODES: [&str; 4] = ["rn", "rz", "rm", "rp"];
const INT_MODES: [&str; 4] = ["rni", "rzi", "rmi", "rpi"];

pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for to in INTEGERS {
        for from in INTEGERS {
            let (bits, (low, high)) = (width(to), low_high(to));
            // The result is extended to the register's size.
            let register = bits.max(16);
            let out = int(bits).0;
            if to != from {
                all.push(Case::simple(&format!("cvt.{to}.{from}"), &[int(width(from))], out, move |a| {
                    let truncated = number(a[0], from) as u64 & mask(bits);
                    Want::Bits(number(truncated, to) as u64 & mask(register))
                }));
            }
            // There is no such instruction where every number fits.
            let (wider, signs) = (width(from) <= bits, [from, to].map(|ty| ty.starts_with('s')));
            if wider && signs[0] == signs[1] || width(from) < bits && signs == [false, true] {
                continue;
            }
            all.push(Case::simple(&format!("cvt.sat.{to}.{from}"), &[int(width(from))], out, move |a| {
                Want::Bits(number(a[0], from).clamp(low, high) as u64 & mask(register))
            }));
        }
    }
    all.extend(["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"].map(pack));
    for kind in [F16, BF16, F32, F64] {
        for ty in INTEGERS {
            all.extend(integers(kind, ty));
        }
    }
    all.extend(floats());
    all.extend(wide_registers());
    all.extend(eighths());
    all
}

/// The value of a number of 8 bits without its sign, from its definition: none for NaN.
fn eighth(bits: u64, e5m2: bool) -> Option<f64> {
    let (mantissa, bias) = if e5m2 { (2, 15) } else { (3, 7) };
    let (field, fraction) = (bits >> mantissa, (bits & ((1 << mantissa) - 1)) as f64);
    match (e5m2, bits) {
        (false, 0x7F) => None,
        (true, 0x7C) => Some(f64::INFINITY),
        (true, 0x7D..) => None,
        _ if field == 0 => Some(fraction * 2f64.powi(1 - bias - mantissa)),
        _ => Some((1.0 + fraction / 2f64.powi(mantissa)) * 2f64.powi(field as i32 - bias)),
    }
}

/// The number of 8 bits that is nearest, found among all of them: of two the even one, and at most the largest.
fn nearest_eighth(x: f64, e5m2: bool) -> u64 {
    if x.is_nan() {
        return 0x7F;
    }
    let sign = u64::from(x.is_sign_negative()) << 7;
    let distance = |bits: u64| eighth(bits, e5m2).map_or(f64::INFINITY, |value| (value - x.abs()).abs());
    let largest = if e5m2 { 0x7B } else { 0x7E };
    if x.abs() >= eighth(largest, e5m2).unwrap() {
        return sign | largest;
    }
    let best = (0..=largest).min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))));
    sign | best.unwrap()
}

/// Two integers narrowed with saturation, and a third one above them if there is room.
fn pack(ty: &'static str) -> Case {
    let (bits, three) = (width(ty), width(ty) < 16);
    let inputs = &[int(32); 3][..if three { 3 } else { 2 }];
    let name = format!("cvt.pack.sat.{ty}.s32{}", if three { ".b32" } else { "" });
    Case::simple(&name, inputs, Class::B32, move |a| {
        let (low, high) = low_high(ty);
        let narrow = |value: u64| number(value, "s32").clamp(low, high) as u64 & mask(bits);
        let above = if three { a[2] << (2 * bits) } else { 0 };
        Want::Bits((above | narrow(a[0]) << bits | narrow(a[1])) & mask(32))
    })
}

/// Conversions of packed numbers of 8 bits.
fn eighths() -> Vec<Case> {
    let mut all = Vec::new();
    for (ty, e5m2) in [("e4m3x2", false), ("e5m2x2", true)] {
        for (relu, clamp) in [("", false), (".relu", true)] {
            let narrow = move |x: f64| {
                let bits = nearest_eighth(x, e5m2);
                if clamp && bits >> 7 != 0 { 0 } else { bits }
            };
            let ins = [(Class::F32, Domain::F32); 2];
            let opcode = format!("cvt.rn.satfinite{relu}.{ty}.f32");
            let singles = Case::simple(&opcode, &ins, Class::B16, move |a| {
                let of = |bits: u64| narrow(f64::from(f32::from_bits(bits as u32)));
                Want::Bits(of(a[0]) << 8 | of(a[1]))
            });
            all.push(singles.target("sm_89"));
            let opcode = format!("cvt.rn.satfinite{relu}.{ty}.f16x2");
            let ins = [(Class::B32, Domain::F16x2)];
            let halves = Case::simple(&opcode, &ins, Class::B16, move |a| {
                let of = |bits: u64| {
                    let double = Format::F16.convert(bits & 0xFFFF, Format::F64, "rn");
                    narrow(f64::from_bits(double))
                };
                Want::Bits(of(a[0] >> 16) << 8 | of(a[0]))
            });
            all.push(halves.target("sm_89"));
            let opcode = format!("cvt.rn{relu}.f16x2.{ty}");
            let wide = Case::simple(&opcode, &[(Class::B16, Domain::Int(16))], Class::B32, move |a| {
                let of = |bits: u64| {
                    let value = eighth(bits & 0x7F, e5m2);
                    let Some(value) = value else { return Want::NanF16 };
                    let value = if bits >> 7 & 1 == 0 {
                        value
                    } else if clamp {
                        0.0
                    } else {
                        -value
                    };
                    Want::Bits(Format::F64.convert(value.to_bits(), Format::F16, "rn"))
                };
                Want::Halves(Box::new(of(a[0])), Box::new(of(a[0] >> 8)))
            });
            all.push(wide.target("sm_89"));
        }
    }
    all
}

/// Between a floating-point type and an integer type.
fn integers(kind: Kind, ty: &'static str) -> Vec<Case> {
    let mut all = Vec::new();
    let (bits, is_signed, f) = (width(ty), ty.starts_with('s'), kind.format);
    // There are no such instructions.
    if f == Format::Bf16 && bits == 8 {
        return all;
    }
    for mode in MODES {
        let case =
            Case::simple(&format!("cvt.{mode}.{}.{ty}", kind.ty), &[int(bits)], kind.class, move |a| {
                f.want(f.integer(number(a[0], ty), mode))
            });
        all.push(case.target("sm_90"));
    }
    for mode in INT_MODES {
        let register = bits.max(16);
        for (extra, flush) in [("", false), ("ftz.", true)] {
            if flush && f != Format::F32 {
                continue;
            }
            let opcode = format!("cvt.{mode}.{extra}{ty}.{}", kind.ty);
            let case = Case::simple(&opcode, &[(kind.class, kind.domain)], int(bits).0, move |a| {
                let value = if flush { f.flush(a[0]) } else { a[0] };
                if f.is_nan(value) {
                    // 0, but from f64 or to 64 bits the number with only the top bit set.
                    return match (f, bits) {
                        (Format::F32 | Format::F16 | Format::Bf16, 8 | 16 | 32) => Want::Bits(0),
                        _ => Want::Bits(number(1 << (bits - 1), ty) as u64 & mask(register)),
                    };
                }
                Want::Bits(f.to_integer(value, mode, is_signed, bits) as u64 & mask(register))
            });
            all.push(if f == Format::Bf16 { case.target("sm_90") } else { case });
        }
    }
    all
}

/// Between floating-point types, and rounding to integral values.
fn floats() -> Vec<Case> {
    let mut all = Vec::new();
    let case = |opcode: String, from: Kind, to: Kind, model: Box<dyn Fn(u64) -> u64 + Send + Sync>| {
        let name = opcode.clone();
        Case::simple(&opcode, &[(from.class, from.domain)], to.class, move |a| {
            to.format.want_of(&name, model(a[0]))
        })
        .target("sm_90") // conversions of bf16 want it
    };
    // Narrowing rounds.
    for mode in MODES {
        for (from, to) in
            [(F64, F32), (F64, F16), (F32, F16), (F32, BF16), (F64, BF16), (F16, BF16), (BF16, F16)]
        {
            let (f, t) = (from.format, to.format);
            let name = format!("cvt.{mode}.{}.{}", to.ty, from.ty);
            all.push(case(name, from, to, Box::new(move |a| f.convert(a, t, mode))));
            if [f, t].contains(&Format::Bf16) {
                continue;
            }
            let name = format!("cvt.{mode}.sat.{}.{}", to.ty, from.ty);
            all.push(case(name, from, to, Box::new(move |a| t.saturate(f.convert(a, t, mode)))));
        }
        let name = format!("cvt.{mode}.ftz.f32.f64");
        all.push(case(
            name,
            F64,
            F32,
            Box::new(move |a| Format::F32.flush(Format::F64.convert(a, Format::F32, mode))),
        ));
        let name = format!("cvt.{mode}.ftz.f16.f32");
        all.push(case(
            name,
            F32,
            F16,
            // What becomes a half is not flushed.
            Box::new(move |a| Format::F32.convert(a, Format::F16, mode)),
        ));
    }
    for mode in ["rn", "rz"] {
        for kind in [F16, BF16] {
            for relu in [false, true] {
                let f = kind.format;
                let convert = move |a: u64| {
                    let value = Format::F32.convert(a, f, mode);
                    if relu && !f.is_nan(value) && value >> 15 != 0 { 0 } else { value }
                };
                let relu = if relu { ".relu" } else { "" };
                let ins = [(Class::F32, Domain::F32); 2];
                // The first operand goes to the upper half.
                all.push(Case::simple(
                    &format!("cvt.{mode}{relu}.{}x2.f32", kind.ty),
                    &ins,
                    Class::B32,
                    move |a| Want::Halves(Box::new(f.want(convert(a[1]))), Box::new(f.want(convert(a[0])))),
                ));
            }
        }
    }
    // Widening is exact.
    for (from, to) in [(F32, F64), (F16, F32), (F16, F64), (BF16, F32), (BF16, F64)] {
        let (f, t) = (from.format, to.format);
        all.push(case(
            format!("cvt.{}.{}", to.ty, from.ty),
            from,
            to,
            Box::new(move |a| f.convert(a, t, "rn")),
        ));
        if f != Format::Bf16 {
            let name = format!("cvt.sat.{}.{}", to.ty, from.ty);
            all.push(case(name, from, to, Box::new(move |a| t.saturate(f.convert(a, t, "rn")))));
        }
    }
    all.push(case(
        "cvt.ftz.f64.f32".into(),
        F32,
        F64,
        Box::new(|a| Format::F32.convert(Format::F32.flush(a), Format::F64, "rn")),
    ));
    for mode in INT_MODES {
        all.push(case(
            format!("cvt.{mode}.bf16.bf16"),
            BF16,
            BF16,
            Box::new(move |a| Format::Bf16.integral(a, mode)),
        ));
    }
    for kind in [F16, F32, F64] {
        let (f, ty) = (kind.format, kind.ty);
        for mode in INT_MODES {
            all.push(case(
                format!("cvt.{mode}.{ty}.{ty}"),
                kind,
                kind,
                Box::new(move |a| f.integral(a, mode)),
            ));
            all.push(case(
                format!("cvt.{mode}.sat.{ty}.{ty}"),
                kind,
                kind,
                Box::new(move |a| f.saturate(f.integral(a, mode))),
            ));
        }
        all.push(case(format!("cvt.sat.{ty}.{ty}"), kind, kind, Box::new(move |a| f.saturate(a))));
    }
    let f = Format::F32;
    all.push(case("cvt.ftz.f32.f32".into(), F32, F32, Box::new(move |a| f.flush(a))));
    all.push(case("cvt.ftz.sat.f32.f32".into(), F32, F32, Box::new(move |a| f.saturate(f.flush(a)))));
    for mode in INT_MODES {
        all.push(case(
            format!("cvt.{mode}.ftz.f32.f32"),
            F32,
            F32,
            Box::new(move |a| f.integral(f.flush(a), mode)),
        ));
    }
    let name = "cvt.rna.tf32.f32";
    all.push(Case::simple(name, &[(Class::F32, Domain::F32)], Class::B32, |a| {
        // 10 bits of fraction, ties away from zero; the low 13 bits are not specified.
        if Format::F32.is_nan(a[0]) {
            // What there is no room for is cut off: of some no NaN is left.
            return Want::OneOf(vec![Want::NanF32, Want::Bits(a[0] & !0x1FFF)]);
        }
        let rounded = if a[0] & 0x7FFF_FFFF >= 0x7F80_0000 { a[0] } else { (a[0] + 0x1000) & !0x1FFF };
        Want::Bits(rounded & 0xFFFF_FFFF)
    }));
    all
}

/// Operands in registers wider than their type, results in wider ones.
fn wide_registers() -> Vec<Case> {
    let mut all = Vec::new();
    let wide = [(Class::B32, Domain::Int(32))];
    let body = "cvt.s32.s8 d0, a0; cvt.u32.u8 d1, a0; cvt.s32.s16 d2, a0; cvt.u64.u16 d3, a0; cvt.s64.s8 d4, a0; cvt.s16.s8 d5, a0; cvt.rn.f32.u8 d6, a0; cvt.u16.u8 d7, a0;";
    let outs =
        [Class::B32, Class::B32, Class::B32, Class::B64, Class::B64, Class::B16, Class::F32, Class::B16];
    all.push(Case::new("cvt.s32.s8", body, &wide, &outs, |a| {
        vec![
            Want::Bits(signed(a[0] & 0xFF, 8) as u64 & mask(32)),
            Want::Bits(a[0] & 0xFF),
            Want::Bits(signed(a[0] & 0xFFFF, 16) as u64 & mask(32)),
            Want::Bits(a[0] & 0xFFFF),
            Want::Bits(signed(a[0] & 0xFF, 8) as u64),
            Want::Bits(signed(a[0] & 0xFF, 8) as u64 & mask(16)),
            Want::Bits(u64::from(((a[0] & 0xFF) as f32).to_bits())),
            Want::Bits(a[0] & 0xFF),
        ]
    }));
    let body = "cvt.u8.u32 d0, a0; cvt.s8.s32 d1, a0; cvt.u16.u32 d2, a0; cvt.s16.s32 d3, a0;";
    all.push(Case::new("cvt.u8.u32", body, &wide, &[Class::B32; 4], |a| {
        vec![
            Want::Bits(a[0] & 0xFF),
            Want::Bits(signed(a[0] & 0xFF, 8) as u64 & mask(32)),
            Want::Bits(a[0] & 0xFFFF),
            Want::Bits(signed(a[0] & 0xFFFF, 16) as u64 & mask(32)),
        ]
    }));
    all
}
