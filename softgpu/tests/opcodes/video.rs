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
    all
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
        let (low, high) = if d == "s32" {
            (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1)
        } else {
            (0, (1i128 << width) - 1)
        };
        let lane = |n: u32| {
            let (x, y) = (part(v[0], n, width, a), part(v[1], n, width, b));
            let result = match op {
                "vadd" => x + y,
                "vsub" => x - y,
                "vabsdiff" => (x - y).abs(),
                "vmin" => x.min(y),
                "vmax" => x.max(y),
                // The mean, rounded away from zero.
                _ => (x + y + i128::from(x + y >= 0)) >> 1,
            };
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
