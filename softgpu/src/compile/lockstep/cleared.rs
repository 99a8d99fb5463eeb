//! Finds threads that may clear what others have written already.
//!
//! The threads of a block give the elements of an array one value, each its own elements, and then, with no barrier between, some store what they
//! have found out, also into elements that other warps clear. On a device all warps have cleared theirs long before the first
//! result is there; here one warp may come to its next barrier before another one begins. So all threads that have cleared let others go first.
//! The flash attention of llama.cpp does this for single queries.

use std::collections::BTreeSet;

use super::super::flow::Flow;
use super::super::op::Op;
use super::Access;
use super::address::{Addresses, Kind, LANE, Term};
use super::found::Found;
use super::ways::{Ways, begins};
use rgpu_image::ptx::ast::{Function, Operand, Statement};

/// More stores that clear than this are not looked at.
const CLEARS: usize = 64;

/// Statements before which all threads of a block let others go first. Mostly none.
pub(super) fn places(
    function: &Function,
    ops: &[Op],
    flow: &Flow,
    all: &[Vec<Found>],
    addresses: &Addresses,
) -> BTreeSet<usize> {
    let in_order = || all.iter().enumerate().flat_map(|(block, found)| found.iter().map(move |f| (block, f)));
    let clears: Vec<(usize, &Found)> =
        in_order().filter(|(_, found)| clears(found, addresses)).take(CLEARS).collect();
    // Of each access, as bits, which of those might clear what it has written.
    let endangers = |then: &Found| {
        let bits = clears.iter().enumerate().filter(|(_, (_, clear))| is_in_danger(then, clear, addresses));
        bits.fold(0u64, |bits, (bit, _)| bits | 1 << bit)
    };
    let endangered: Vec<(usize, u64)> =
        in_order().map(|(_, then)| (then.at, endangers(then))).filter(|(_, bits)| *bits != 0).collect();
    if endangered.is_empty() {
        return BTreeSet::new();
    }
    let found = without_barrier(function, ops, flow, &clears, &endangered);
    if found == 0 {
        return BTreeSet::new();
    }
    let ways = Ways::new(function, flow, |predicate| addresses.differs(predicate));
    let clears = clears.iter().enumerate().filter(|(bit, _)| found >> bit & 1 != 0).map(|(_, clear)| clear);
    // Behind the last one of each block.
    let mut last: Vec<Option<usize>> = vec![None; flow.blocks.len()];
    clears.for_each(|(block, clear)| last[*block] = Some(clear.at));
    let places = last.iter().enumerate().filter_map(|(block, at)| {
        let at = (*at)?;
        match ways.where_all_come(flow, block) {
            there if there == block => Some(at + 1),
            there => begins(function, ops, &flow.blocks[there]),
        }
    });
    places.collect()
}

/// Which of the clearing stores come before an access that they endanger, with no barrier of the block between.
fn without_barrier(
    function: &Function,
    ops: &[Op],
    flow: &Flow,
    clears: &[(usize, &Found)],
    endangered: &[(usize, u64)],
) -> u64 {
    let mut before = vec![0u64; flow.blocks.len()];
    let (mut found, mut changed) = (0, true);
    while changed {
        changed = false;
        for (index, block) in flow.blocks.iter().enumerate() {
            let mut now = before[index];
            let mut own = clears.iter().enumerate().filter(|(_, (of, _))| *of == index).peekable();
            let begin = endangered.partition_point(|(at, _)| *at < block.first);
            let mut then = endangered[begin..].iter().peekable();
            for at in block.first..block.end {
                let Statement::Instruction(instruction) = &function.body[at] else { continue };
                if matches!(ops[instruction.form.0 as usize], Op::Bar { .. }) && instruction.guard.is_none() {
                    now = 0;
                }
                if let Some((_, bits)) = then.next_if(|(then, _)| *then == at) {
                    found |= now & bits;
                }
                if let Some((bit, _)) = own.next_if(|(_, (_, clear))| clear.at == at) {
                    now |= 1 << bit;
                }
            }
            for &next in &block.successors {
                changed |= now & !before[next] != 0;
                before[next] |= now;
            }
        }
    }
    found
}

/// Whether threads give elements of their own one value that has nothing to do with data.
fn clears(found: &Found, addresses: &Addresses) -> bool {
    let Some(address) = found.address.as_ref().filter(|_| found.access == Access::Store && found.by_lane)
    else {
        return false;
    };
    let of_data = address.terms.iter().any(|&(term, _)| addresses.kind(term).of_data);
    !of_data && address.factor(LANE) != 0 && found.value().is_some_and(|value| is_given(value, addresses))
}

/// Whether a value is the same for all threads, and not of data.
fn is_given(value: &Operand, addresses: &Addresses) -> bool {
    match value {
        Operand::Int(..) | Operand::F32(_) | Operand::F64(_) => true,
        Operand::Reg(register) => addresses.is_given(register.0),
        Operand::Vector(values) => values.iter().all(|value| is_given(value, addresses)),
        _ => false,
    }
}

/// Whether what is written then may lie where another warp clears.
fn is_in_danger(then: &Found, clear: &Found, addresses: &Addresses) -> bool {
    let (Some(to), Some(cleared)) = (&then.address, &clear.address) else { return false };
    if then.access == Access::Load || then.at == clear.at || then.value().is_some() && then.value() == clear.value()
    {
        return false;
    }
    let root = |&(term, factor): &(u32, i64)| {
        factor == 1 && addresses.kind(term).kind == Kind::Root && to.factor(term) == 1
    };
    if !cleared.terms.iter().any(root) {
        return false;
    }
    let of_warp = |term: u32| term != LANE && addresses.kind(term).by_thread;
    let difference = to.minus(cleared);
    // A given distance leads to another part of the memory, and a warp that has a part of its own clears that itself.
    let elsewhere = |&(term, _): &(u32, i64)| {
        let Term { kind, by_thread, .. } = addresses.kind(term);
        !by_thread && matches!(kind, Kind::Root | Kind::Invariant | Kind::Product)
    };
    let own = |&(term, factor): &(u32, i64)| of_warp(term) && to.factor(term) == factor;
    if difference.terms.iter().any(elsewhere) || cleared.terms.iter().any(own) {
        return false;
    }
    // What another thread clears: the place depends on data or on the warp in another way, or one thread goes through many.
    let turns = |term: u32| matches!(addresses.kind(term).kind, Kind::Counter | Kind::Wild);
    let goes_round = to.factor(LANE) == 0 && then.conditions > clear.conditions;
    difference.terms.iter().any(|&(term, _)| {
        of_warp(term) || term != LANE && addresses.kind(term).of_data || goes_round && turns(term)
    })
}
