//! Atomic operations.

use super::case::{Case, Class, Want};
use super::oracle::Format;
use super::values::{Domain, mask, signed};

/// What an operation leaves in memory, given what was there and the operands.
fn after(op: &str, ty: &str, old: u64, b: u64, c: u64) -> u64 {
    let bits: u32 =
        ty.trim_start_matches(|c: char| c.is_ascii_alphabetic()).split('x').next().unwrap().parse().unwrap();
    let s = |v: u64| signed(v, bits);
    let float = |f: Format| f.binary('+', old, b, "rn");
    let value = match (op, ty) {
        ("add", "f32") => float(Format::F32),
        ("add", "f64") => float(Format::F64),
        ("add", "f16") => float(Format::F16),
        ("add", "f16x2") => {
            let half = |n: u32| Format::F16.binary('+', old >> n & 0xFFFF, b >> n & 0xFFFF, "rn") << n;
            return half(0) | half(16);
        }
        ("add", _) => old.wrapping_add(b),
        ("exch", _) => b,
        ("cas", _) => {
            if old == b {
                c
            } else {
                old
            }
        }
        ("and", _) => old & b,
        ("or", _) => old | b,
        ("xor", _) => old ^ b,
        ("inc", _) => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        ("dec", _) => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
        ("min", _) if ty.starts_with('s') => {
            if s(b) < s(old) {
                b
            } else {
                old
            }
        }
        ("max", _) if ty.starts_with('s') => {
            if s(b) > s(old) {
                b
            } else {
                old
            }
        }
        ("min", _) => old.min(b),
        ("max", _) => old.max(b),
        _ => panic!("{op}.{ty}"),
    };
    value & mask(bits)
}

fn want(ty: &str, bits: u64) -> Want {
    match ty {
        "f32" => Format::F32.want(bits),
        "f64" => Format::F64.want(bits),
        "f16" => Format::F16.want(bits),
        "f16x2" => {
            Want::Halves(Box::new(Format::F16.want(bits & 0xFFFF)), Box::new(Format::F16.want(bits >> 16)))
        }
        _ => Want::Bits(bits),
    }
}

fn operand(ty: &str) -> (Class, Domain) {
    match ty {
        "f32" => (Class::F32, Domain::F32),
        "f64" => (Class::F64, Domain::F64),
        "f16" => (Class::B16, Domain::F16),
        "f16x2" => (Class::B32, Domain::F16x2),
        _ if ty.ends_with("16") => (Class::B16, Domain::Int(16)),
        _ if ty.ends_with("64") => (Class::B64, Domain::Int(64)),
        _ => (Class::B32, Domain::Int(32)),
    }
}

const OPERATIONS: &[(&str, &[&str])] = &[
    ("add", &["u32", "s32", "u64", "f32", "f64"]),
    ("add.noftz", &["f16", "f16x2"]),
    ("exch", &["b32", "b64"]),
    ("cas", &["b16", "b32", "b64"]),
    ("and", &["b32", "b64"]),
    ("or", &["b32", "b64"]),
    ("xor", &["b32", "b64"]),
    ("inc", &["u32"]),
    ("dec", &["u32"]),
    ("min", &["u32", "s32", "u64", "s64"]),
    ("max", &["u32", "s32", "u64", "s64"]),
];

/// Words between `atom` and the operation; the space.
const KINDS: &[(&str, &str)] = &[
    (".global", "global"),
    ("", "global"),
    (".shared", "shared"),
    ("", "shared"),
    (".global.gpu", "global"),
    (".global.sys", "global"),
    (".global.cta", "global"),
    (".relaxed.gpu.global", "global"),
    (".relaxed.sys.global", "global"),
    (".acquire.gpu.global", "global"),
    (".release.gpu.global", "global"),
    (".acq_rel.gpu.global", "global"),
    (".acq_rel.sys", "global"),
    (".relaxed.cta.shared", "shared"),
    (".acq_rel.cta.shared::cta", "shared"),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (kind, space) in KINDS {
        for (op, types) in OPERATIONS {
            for ty in *types {
                all.push(alone("atom", kind, space, op, ty));
                if !matches!(*op, "exch" | "cas") && !kind.contains("acq") {
                    all.push(alone("red", kind, space, op, ty));
                }
            }
        }
    }
    for kind in [".global", ".relaxed.gpu.global", ""] {
        for (ty, most) in [("f32", 4), ("f16x2", 4), ("bf16x2", 4), ("f16", 8), ("bf16", 8)] {
            for op in ["add", "min", "max"] {
                for vector in [2, 4, 8] {
                    if vector <= most && (ty != "f32" || op == "add") {
                        all.push(of_vectors("atom", kind, op, vector, ty));
                        all.push(of_vectors("red", kind, op, vector, ty));
                    }
                }
            }
        }
    }
    all.extend(together());
    all
}

/// The same on several numbers, each of which is added to by itself.
fn of_vectors(base: &str, kind: &str, op: &'static str, vector: usize, ty: &'static str) -> Case {
    let noftz = if ty == "f32" { "" } else { ".noftz" };
    let opcode = format!("{base}{kind}.{op}{noftz}.v{vector}.{ty}");
    let (format, halves, class, domain) = match ty {
        "f16" => (Format::F16, 1, Class::B16, Domain::F16),
        "bf16" => (Format::Bf16, 1, Class::B16, Domain::Bf16),
        "f16x2" => (Format::F16, 2, Class::B32, Domain::F16x2),
        "bf16x2" => (Format::Bf16, 2, Class::B32, Domain::Bf16x2),
        _ => (Format::F32, 1, Class::F32, Domain::F32),
    };
    let bytes = if class == Class::B16 { 2 } else { 4 };
    let list = |name: &str, first: usize| {
        (first..first + vector).map(|n| format!("{name}{n}")).collect::<Vec<_>>().join(", ")
    };
    let mut body = String::from(
        ".reg .b64 at; .reg .b64 own; mov.u64 at, room; mul.wide.u32 own, gid, 32; add.u64 at, at, own;\n",
    );
    for n in 0..vector {
        let old = vector + n;
        body += &format!("st.global.b{0} [at+{1}], a{n}; mov.b{0} d{old}, 0;\n", 8 * bytes, n * bytes);
    }
    let result = if base == "atom" { format!("{{{}}}, ", list("d", vector)) } else { String::new() };
    body += &format!("{opcode} {result}[at], {{{}}};\n", list("a", vector));
    for n in 0..vector {
        body += &format!("ld.global.b{} d{n}, [at+{}];\n", 8 * bytes, n * bytes);
    }
    let is_atom = base == "atom";
    let combined = move |old: u64, b: u64| match op {
        "add" => format.binary('+', old, b, "rn"),
        _ => format.min_max(old, b, op == "max"),
    };
    let wanted = move |old: u64, b: u64| {
        let new = format.want(combined(old, b));
        if ty != "f32" {
            return new;
        }
        let flushed = format.want(format.flush(combined(format.flush(old), format.flush(b))));
        Want::OneOf(vec![new, flushed])
    };
    let case =
        Case::new(&opcode, &body, &vec![(class, domain); 2 * vector], &vec![class; 2 * vector], move |a| {
            let (old, b) = a.split_at(vector);
            let new = old.iter().zip(b).map(|(&old, &b)| {
                if halves == 1 {
                    return wanted(old, b);
                }
                let [low, high] = [0, 16].map(|at| Box::new(wanted(old >> at & 0xFFFF, b >> at & 0xFFFF)));
                Want::Halves(low, high)
            });
            let before = old.iter().map(|&old| Want::Bits(if is_atom { old } else { 0 }));
            new.chain(before).collect()
        });
    case.with(".global .align 32 .b8 room[131072];").target("sm_90")
}

/// Each thread has its own word: the result and what is left are exact.
fn alone(base: &str, kind: &str, space: &str, op: &'static str, ty: &'static str) -> Case {
    let opcode = format!("{base}{kind}.{op}.{ty}");
    let (class, domain) = operand(ty);
    let third = if op == "cas" { ", a2" } else { "" };
    let (setup, at, suffix) = match (space, kind) {
        ("global", "") => ("", "pout+8", ""),
        ("global", _) => ("", "pout+8", ".global"),
        (_, "") => (
            ".shared .align 16 .b8 place[1024]; .reg .b32 at; .reg .b64 base, where; mul.lo.u32 at, tid, 8; mov.u32 scratch, place; add.u32 at, at, scratch; cvt.u64.u32 base, at; cvta.shared.u64 where, base;",
            "where",
            "",
        ),
        _ => (
            ".shared .align 16 .b8 place[1024]; .reg .b32 at; mul.lo.u32 at, tid, 8; mov.u32 scratch, place; add.u32 at, at, scratch;",
            "at",
            ".shared",
        ),
    };
    let bits = match class {
        Class::B16 => 16,
        Class::B64 | Class::F64 => 64,
        _ => 32,
    };
    let (first, result) = match base {
        "atom" => ("d0, ", String::new()),
        _ => ("", format!("mov.b{bits} d0, 0;")),
    };
    let body = format!(
        "{setup} st{suffix}.b{bits} [{at}], a0; {result} {opcode} {first}[{at}], a1{third}; ld{suffix}.b{bits} d1, [{at}];"
    );
    let ins = vec![(class, domain); if op == "cas" { 3 } else { 2 }];
    let is_atom = base == "atom";
    Case::new(&opcode, &body, &ins, &[class; 2], move |a| {
        let name = op.split('.').next().unwrap();
        let new = after(name, ty, a[0], a[1], a.get(2).copied().unwrap_or(0));
        let old = if is_atom { Want::Bits(a[0]) } else { Want::Bits(0) };
        let mut new = want(ty, new);
        if ty == "f32" {
            // Subnormal numbers may be flushed in global memory.
            let [x, y] = [a[0], a[1]].map(|v| Format::F32.flush(v));
            let flushed = Format::F32.flush(after(name, ty, x, y, 0));
            new = Want::OneOf(vec![new, want(ty, flushed)]);
        }
        vec![old, new]
    })
}

/// All threads of a block hit one word of shared memory.
fn together() -> Vec<Case> {
    let mut all = Vec::new();
    let int = (Class::B32, Domain::Int(32));
    let setup = ".shared .align 8 .b32 word; .reg .pred first; setp.eq.u32 first, tid, 0;";
    for (op, ty, initial) in [
        ("add", "u32", 0u64),
        ("and", "b32", 0xFFFF_FFFF),
        ("or", "b32", 0),
        ("xor", "b32", 0),
        ("min", "s32", 0x7FFF_FFFF),
        ("max", "u32", 0),
        ("inc", "u32", 5),
    ] {
        for base in ["atom", "red"] {
            let result = if base == "atom" { "d1, " } else { "" };
            let body = format!(
                "{setup} @first st.shared.u32 [word], {initial:#x}; bar.sync 0; mov.b32 d1, 0; {base}.shared.{op}.{ty} {result}[word], a0; bar.sync 0; ld.shared.u32 d0, [word];"
            );
            all.push(Case::group(
                &format!("{base}.shared.{op}.{ty}"),
                &body,
                &[int],
                &[Class::B32; 2],
                128,
                move |a| {
                    // All but inc end the same in whatever order; inc only with equal limits, so is not checked.
                    let last = a.iter().fold(initial, |old, operands| after(op, ty, old, operands[0], 0));
                    let last = if op == "inc" { Want::Any } else { Want::Bits(last) };
                    vec![vec![last, Want::Any]; a.len()]
                },
            ));
        }
    }
    // Every thread gets a ticket of its own: they are handed in again through a table.
    let body = format!(
        "{setup} .shared .align 4 .b32 seen[128]; .reg .b64 at; @first st.shared.u32 [word], 0; bar.sync 0; atom.shared.add.u32 scratch, [word], 1;
         mul.lo.u32 scratch, scratch, 4; mov.u32 d0, seen; add.u32 scratch, scratch, d0; st.shared.u32 [scratch], 77; bar.sync 0;
         mul.lo.u32 scratch, tid, 4; add.u32 scratch, scratch, d0; ld.shared.u32 d0, [scratch];"
    );
    all.push(Case::group("atom.shared.add.u32", &body, &[], &[Class::B32], 128, |a| {
        vec![vec![Want::Bits(77)]; a.len()]
    }));
    // A lock of compare-and-swap over the whole grid, in global memory.
    let body = "atom.global.add.u32 scratch, [total], a0; membar.gl; .reg .pred p; .reg .b32 old, new; ld.volatile.global.u32 old, [count];
        AGAIN: add.u32 new, old, 1; atom.global.cas.b32 d0, [count], old, new; setp.ne.u32 p, d0, old; mov.u32 old, d0; @p bra AGAIN;";
    all.push(
        Case::group(
            "atom.global.cas.b32",
            body,
            &[(Class::B32, Domain::Below(100))],
            &[Class::B32],
            128,
            |a| vec![vec![Want::Any]; a.len()],
        )
        .with(".global .u32 total; .global .u32 count;"),
    );
    all
}
