//! Which opcodes are covered: the list of those that public programs use, against the cases here, and the
//! table in `docs/opcodes.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use rgpu_softgpu::compile::opcodes;

use super::case::Case;
use super::{
    approx, atomics, bits, cluster, compare, convert, float, group, integer, matrix, memory, tensor, texture,
    video, warp,
};

/// Opcodes with modifiers, commonest first, and in how many of 433 public programs each occurs.
const OPCODES: &str = include_str!("opcodes.csv");

/// How many of the commonest must be covered.
const COMMONEST: usize = 400;

fn listed() -> Vec<(&'static str, u32)> {
    let line = |line: &'static str| {
        let (opcode, programs) = line.split_once(',')?;
        Some((opcode, programs.parse().ok()?))
    };
    OPCODES.lines().skip(1).filter_map(line).collect()
}

/// All cases of all groups.
pub(crate) fn all_cases() -> Vec<Case> {
    [
        integer::cases(),
        bits::cases(),
        float::cases(),
        approx::cases(),
        convert::cases(),
        compare::cases(),
        memory::load_cases(),
        memory::store_cases(),
        memory::other_cases(),
        atomics::cases(),
        warp::cases(),
        cluster::cases(),
        video::cases(),
        matrix::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Every opcode that some case executes.
pub(crate) fn covered() -> BTreeSet<String> {
    let mut all: BTreeSet<String> = all_cases().into_iter().flat_map(|case| case.covers).collect();
    // Tested by themselves.
    all.extend(matrix::opcodes());
    all.extend(texture::opcodes());
    all.extend(tensor::opcodes());
    all.extend(group::opcodes());
    for opcode in ["vprintf", "shfl.bfly.b32", "shfl.down.b32", "vote.ballot.b32", "vote.all.pred"] {
        all.insert(opcode.to_owned());
    }
    all
}

#[test]
fn the_commonest_opcodes_are_covered() {
    let covered = covered();
    let missing: Vec<&str> = listed()
        .iter()
        .take(COMMONEST)
        .map(|(opcode, _)| *opcode)
        .filter(|opcode| !covered.contains(*opcode))
        .collect();
    assert!(missing.is_empty(), "{} of the {COMMONEST} commonest have no test: {missing:?}", missing.len());
}

#[test]
fn the_documentation_lists_what_is_covered() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/opcodes.md");
    let text = document();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &text).expect("docs/opcodes.md can be written");
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == text, "docs/opcodes.md is out of date: run this test with UPDATE_DOCS=1");
}

fn document() -> String {
    let (covered, listed) = (covered(), listed());
    let is_covered = |opcode: &str| covered.contains(opcode);
    let count = listed.iter().filter(|(opcode, _)| is_covered(opcode)).count();
    let run = listed.iter().take_while(|(opcode, _)| is_covered(opcode)).count();
    let weight = |all: bool| -> u64 {
        listed.iter().filter(|(o, _)| all || is_covered(o)).map(|(_, programs)| u64::from(*programs)).sum()
    };
    let mut text = String::new();
    writeln!(
        text,
        "# PTX opcodes\n\n\
         Written by `UPDATE_DOCS=1 cargo test -p rgpu-softgpu --test opcodes documentation`.\n\n\
         *Covered* means that a test executes the opcode, with these modifiers, on edge values and random ones, and compares\n\
         the results with a model of its own. A kernel that has an opcode which is not there, in itself or in a function that\n\
         it calls, is refused when it is asked for, with the opcode's name and line; the other kernels of its module run.\n\n\
         ## Opcodes of public programs\n\n\
         The {} opcodes that occur in 433 public CUDA programs (compiled for compute_80), commonest first: {count} are\n\
         covered, among them all of the first {run}. Each opcode counted once for every program it occurs in, {:.2} % are\n\
         covered. Not covered:\n",
        listed.len(),
        100.0 * weight(false) as f64 / weight(true) as f64,
    )
    .unwrap();
    writeln!(text, "| rank | opcode | programs |\n| ---: | --- | ---: |").unwrap();
    for (rank, (opcode, programs)) in listed.iter().enumerate() {
        if !is_covered(opcode) {
            writeln!(text, "| {} | `{opcode}` | {programs} |", rank + 1).unwrap();
        }
    }
    writeln!(
        text,
        "\n## All covered opcodes\n\n{} forms, those that differ in the last word only on one line:\n",
        covered.len()
    )
    .unwrap();
    let mut lines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for opcode in &covered {
        let (first, last) = opcode.rsplit_once('.').unwrap_or((opcode, ""));
        lines.entry(first).or_default().push(last);
    }
    for (first, last) in lines {
        match last[..] {
            [""] => writeln!(text, "- `{first}`").unwrap(),
            _ => writeln!(text, "- `{first}.` {}", last.join(" ")).unwrap(),
        }
    }
    let missing: Vec<String> = opcodes()
        .filter(|(_, can_be_executed)| !can_be_executed)
        .map(|(name, _)| format!("`{name}`"))
        .collect();
    writeln!(text, "\n## Opcodes that are not there\n\nNot in any form: {}.", missing.join(", ")).unwrap();
    text.push_str(
        "\n## What an H100 does otherwise\n\n\
         The models were compared with one ([measurements](measurements/2026-11-24-h100.md), [again](measurements/2026-11-27-h100.md)). These differ and are left so:\n\n\
         - with `.ftz` it replaces by zero what rounds up to the least normal number, too\n\
         - `cvt.rna.tf32` makes infinity of a NaN of which only the last bits say so\n\
         - video instructions of words, which ptxas emulates: `.h1` as destination takes the upper half of the result, `.min` and `.max` take their third operand as signed, `.sat` is left out or saturates to the wrong end (284 of 1,111 cases)\n\
         - guarded `testp` and `set` are executed whatever the guard says (ptxas of CUDA 13.0)\n\
         - a barrier that expects bytes may be complete before the last of them is counted\n",
    );
    text
}

#[test]
fn every_opcode_that_can_be_executed_is_covered() {
    let covered = covered();
    let is_covered = |name: &str| covered.iter().any(|form| form.split('.').next() == Some(name));
    let missing: Vec<&str> =
        opcodes().filter(|(name, there)| *there != is_covered(name)).map(|(name, _)| name).collect();
    assert!(missing.is_empty(), "without a test, or with one of nothing: {missing:?}");
}
