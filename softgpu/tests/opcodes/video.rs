//! Video instructions: arithmetic on whole, half and quarter registers.

use super::case::{Case, Class, Want};
use super::values::{Domain, mask, signed};

const INT: (Class, Domain) = (Class::B32, Domain::Int(32));

pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for lanes in [1u32, 2, 4] {
        for (d, a, b) in [
            ("u32", "u32", "u32"),
            ("s32", "s32", "s32"),
            ("s32", "u32", "u32"),
            ("u32", "s32", "u32"),
            ("s32", "s32", "u32"),
        ] {
            for op in ["vadd", "vsub", "vabsdiff", "vmin", "vmax", "vavrg"] {
                if op == "vavrg" && lanes == 1 {
                    continue;
                }
                for sat in ["", ".sat"] {
                    all.push(case(op, lanes, d, a, b, sat, ""));
                }
                if lanes == 1 {
                    for second in [".add", ".min", ".max"] {
                        all.push(case(op, lanes, d, a, b, "", second));
                    }
                } else if op == "vabsdiff" && (d, a, b) == ("u32", "u32", "u32") {
                    all.push(case(op, lanes, d, a, b, "", ".add"));
                }
            }
        }
    }
    for lanes in [2u32, 4] {
        for compare in ["eq", "ne", "lt", "le", "gt", "ge"] {
            for ty in ["u32", "s32"] {
                let opcode = format!("vset{lanes}.{ty}.{ty}.{compare}");
                let body = format!("{opcode} d0, a0, a1, a2;");
                all.push(Case::new(&opcode, &body, &[INT; 3], &[Class::B32], move |a| {
                    let width = 32 / lanes;
                    let bit = |n: u32| {
                        let [x, y] = [a[0], a[1]].map(|v| part(v, n, width, ty));
                        let is = match compare {
                            "eq" => x == y,
                            "ne" => x != y,
                            "lt" => x < y,
                            "le" => x <= y,
                            "gt" => x > y,
                            _ => x >= y,
                        };
                        u64::from(is) << (n * width)
                    };
                    vec![Want::Bits((0..lanes).map(bit).sum())]
                }));
            }
        }
    }
    words(&mut all);
    products(&mut all);
    all
}

/// What an instruction makes of its sources, or of a lane of each, before it is clamped.
fn computed(op: &str, x: i128, y: i128) -> i128 {
    match op {
        "vadd" => x + y,
        "vsub" => x - y,
        "vabsdiff" => (x - y).abs(),
        "vmin" => x.min(y),
        "vmax" => x.max(y),
        // The mean, rounded away from zero.
        "vavrg" => (x + y + i128::from(x + y >= 0)) >> 1,
        "vset.lt" => i128::from(x < y),
        "vset.ge" => i128::from(x >= y),
        "vshl.clamp" => x << y.min(32),
        "vshl.wrap" => x << (y & 31),
        "vshr.clamp" => x >> y.min(32),
        "vshr.wrap" => x >> (y & 31),
        _ => unreachable!("{op}"),
    }
}

/// The numbers that a type of so many bits holds.
fn range(ty: &str, bits: u32) -> (i128, i128) {
    if ty == "s32" { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

/// A selector's number of the part, and its bits.
fn selected(selector: &str) -> (u32, u32) {
    let number = selector.chars().last().and_then(|c| c.to_digit(10)).unwrap_or(0);
    (number, [("h", 16), ("b", 8)].into_iter().find(|(name, _)| selector.contains(name)).map_or(32, |s| s.1))
}

/// The part of a source that a selector names, as a number.
fn source(value: u64, selector: &str, ty: &str) -> i128 {
    let (number, bits) = selected(selector);
    part(value, number, bits, ty)
}

/// Instructions on words that name parts of them, and that write part of their result.
fn words(all: &mut Vec<Case>) {
    let selectors =
        [(".h0", ".h1", ""), (".b3", "", ".h1"), ("", ".b1", ".b2"), (".h1", ".b0", ".b0"), ("", "", ".h0")];
    for op in [
        "vadd",
        "vsub",
        "vabsdiff",
        "vmin",
        "vmax",
        "vset.lt",
        "vset.ge",
        "vshl.clamp",
        "vshl.wrap",
        "vshr.clamp",
        "vshr.wrap",
    ] {
        for (d, a, b) in
            [("u32", "u32", "u32"), ("s32", "s32", "u32"), ("s32", "s32", "s32"), ("u32", "s32", "u32")]
        {
            let (name, kind) = op.split_once('.').unwrap_or((op, ""));
            let (compares, shifts) = (name == "vset", name.starts_with("vsh"));
            if shifts && b != "u32" || compares && d != "u32" {
                continue;
            }
            for (x, y, z) in selectors.into_iter().chain([("", "", "")]) {
                for end in ["", ".add", ".max", ".sat"] {
                    let second = [".add", ".max"].contains(&end);
                    if second && !z.is_empty() || compares && end == ".sat" {
                        continue;
                    }
                    let opcode = match (compares, shifts) {
                        (true, _) => format!("vset.{a}.{b}.{kind}{end}"),
                        (_, true) if second => format!("{name}.{d}.{a}.{b}.{kind}{end}"),
                        (_, true) => format!("{name}.{d}.{a}.{b}{end}.{kind}"),
                        _ => format!("{name}.{d}.{a}.{b}{end}"),
                    };
                    let third = if second || !z.is_empty() { ", a2" } else { "" };
                    let body = format!("{opcode} d0{z}, a0{x}, a1{y}{third};");
                    all.push(Case::new(&opcode, &body, &[INT; 3], &[Class::B32], move |v| {
                        let (number, bits) = selected(z);
                        let value = computed(op, source(v[0], x, a), source(v[1], y, b));
                        let (low, high) = range(d, bits);
                        let value = if end == ".sat" { value.clamp(low, high) } else { value };
                        let word = value as u64 & mask(32);
                        let as_number = |v: u64| part(v, 0, 32, d);
                        let result = match end {
                            ".add" => word.wrapping_add(v[2]),
                            ".max" => as_number(word).max(as_number(v[2])) as u64,
                            _ if z.is_empty() => word,
                            _ => {
                                let place = mask(bits) << (number * bits);
                                v[2] & !place | (value as u64) << (number * bits) & place
                            }
                        };
                        vec![Want::Bits(result & mask(32))]
                    }));
                }
            }
        }
    }
}

/// `vmad`: signs, parts, what is negated, and how the result is shifted and clamped.
fn products(all: &mut Vec<Case>) {
    for (a, b) in [("u32", "u32"), ("s32", "s32"), ("u32", "s32"), ("s32", "u32")] {
        for (x, y) in [("", ""), (".h0", ".b3"), (".b1", ".h1")] {
            for negated in ["", "a", "b", "c", "ab", "po"] {
                for end in ["", ".sat", ".shr7", ".sat.shr15"] {
                    let minus = |operand: &str| if negated.contains(operand) { "-" } else { "" };
                    let one = if negated == "po" { ".po" } else { "" };
                    let signed = [a, b].contains(&"s32") || ["a", "b", "c"].contains(&negated);
                    let d = if signed { "s32" } else { "u32" };
                    let opcode = format!("vmad.{d}.{a}.{b}{one}{end}");
                    let body =
                        format!("{opcode} d0, {}a0{x}, {}a1{y}, {}a2;", minus("a"), minus("b"), minus("c"));
                    all.push(Case::new(&opcode, &body, &[INT; 3], &[Class::B32], move |v| {
                        let product = source(v[0], x, a) * source(v[1], y, b);
                        let c = part(v[2], 0, 32, d);
                        let sum = match negated {
                            "a" | "b" => c - product,
                            // All of its bits are turned over before it is taken for a number with a sign, as PTX has it.
                            "c" => product + part(!v[2] & mask(32), 0, 32, "s32") + 1,
                            "po" => product + c + 1,
                            _ => product + c,
                        };
                        let shift = if end.contains("15") {
                            15
                        } else if end.contains('7') {
                            7
                        } else {
                            0
                        };
                        let (low, high) = range(d, 32);
                        let value = sum >> shift;
                        let value = if end.starts_with(".sat") { value.clamp(low, high) } else { value };
                        vec![Want::Bits(value as u64 & mask(32))]
                    }));
                }
            }
        }
    }
}

/// One lane as a number.
fn part(value: u64, lane: u32, width: u32, ty: &str) -> i128 {
    let bits = value >> (lane * width) & mask(width);
    if ty == "s32" { signed(bits, width) } else { i128::from(bits) }
}

fn case(
    op: &'static str,
    lanes: u32,
    d: &'static str,
    a: &'static str,
    b: &'static str,
    sat: &'static str,
    second: &'static str,
) -> Case {
    let number = if lanes == 1 { String::new() } else { lanes.to_string() };
    let opcode = format!("{op}{number}.{d}.{a}.{b}{sat}{second}");
    let third = if lanes == 1 && second.is_empty() { "" } else { ", a2" };
    let body = format!("{opcode} d0, a0, a1{third};");
    Case::new(&opcode, &body, &[INT; 3], &[Class::B32], move |v| {
        let width = 32 / lanes;
        let (low, high) = range(d, width);
        let lane = |n: u32| {
            let result = computed(op, part(v[0], n, width, a), part(v[1], n, width, b));
            if sat.is_empty() { result } else { result.clamp(low, high) }
        };
        let result = if lanes == 1 {
            let (result, c) = (lane(0) as u64 & mask(32), v[2]);
            let number = |v: u64| if d == "s32" { signed(v, 32) } else { i128::from(v) };
            match second {
                ".add" => result.wrapping_add(c),
                ".min" => number(result).min(number(c)) as u64,
                ".max" => number(result).max(number(c)) as u64,
                _ => result,
            }
        } else if second == ".add" {
            (0..lanes).map(|n| lane(n) as u64).sum::<u64>().wrapping_add(v[2])
        } else {
            (0..lanes).map(|n| (lane(n) as u64 & mask(width)) << (n * width)).sum()
        };
        vec![Want::Bits(result & mask(32))]
    })
}
