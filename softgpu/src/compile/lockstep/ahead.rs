//! Finds where a warp may get too far ahead of the others of its block.
//!
//! The warps of a device's block begin at about the same time, and go on about as fast; here one warp may come to its next barrier before another
//! begins. Programs with a barrier too few work on devices nonetheless:
//!
//! - The threads of a block clear an array, each its own elements, and then some store what they have found out, also into elements that
//!   other warps clear. The flash attention of llama.cpp does this for single queries.
//! - Behind a barrier each thread reads its neighbour's element, and then stores its own: the neighbour may be in the next warp. The sums of
//!   SHOC's scan do this, from one window to the next.
//! - Behind a barrier each thread reads another one's element, stores what comes of it for all, and then puts its part of the next tile where
//!   others may still read this one.
//!
//! So all threads that have cleared, or read, let others go first.

use std::collections::BTreeSet;

use super::super::flow::{Block, Flow};
use super::super::op::{MemoryTarget, Op};
use super::accesses::Access;
use super::address::{Addresses, Kind, LANE};
use super::found::Found;
use super::ways::{Ways, begins};
use crate::abi::WARP;
use rgpu_image::ptx::ast::{Function, Instruction, Operand, Statement};

/// More accesses that others may come too early for are not looked at.
const FIRST: usize = 64;

/// Statements before which all threads of a block let others go first. Mostly none.
pub(super) fn places(
    function: &Function,
    ops: &[Op],
    flow: &Flow,
    ways: &Ways,
    all: &[Vec<Found>],
    addresses: &Addresses,
) -> BTreeSet<usize> {
    let in_order = || all.iter().enumerate().flat_map(|(block, found)| found.iter().map(move |f| (block, f)));
    let is_first =
        |found: &Found| clears(found, addresses) || reads(found, addresses) || reads_a_tile(found, addresses);
    let first: Vec<(usize, &Found)> = in_order().filter(|(_, found)| is_first(found)).take(FIRST).collect();
    let comes_after = |then: &Found, first: &Found| match first.access {
        Access::Load => reads(first, addresses) && is_read_by_neighbour(then, first),
        _ => is_in_danger(then, first, addresses),
    };
    let is_next =
        |then: &Found, first: &Found| reads_a_tile(first, addresses) && is_anothers(then, first, addresses);
    let steps = |(block, found): (&Block, &Vec<Found>)| {
        let mut found = found.iter().peekable();
        let step = |at: usize| {
            let Statement::Instruction(instruction) = &function.body[at] else { return None };
            let op = &ops[instruction.form.0 as usize];
            if waits(instruction, op) {
                return Some(Step::Barrier);
            }
            let Some(found) = found.next_if(|found| found.at == at) else {
                return stores_for_all(op).then_some(Step::Out);
            };
            let bits = |f: &dyn Fn(&Found) -> bool| {
                let bits = first.iter().enumerate().filter(|(_, (_, first))| f(first));
                bits.fold(0u64, |bits, (bit, _)| bits | 1 << bit)
            };
            Some(Step::Access {
                access: found.access,
                first: bits(&|first| first.at == found.at),
                after: bits(&|first| comes_after(found, first)),
                next: bits(&|first| is_next(found, first)),
            })
        };
        (block.first..block.end).filter_map(step).collect::<Vec<Step>>()
    };
    let steps: Vec<Vec<Step>> = flow.blocks.iter().zip(all).map(steps).collect();
    let early = without_barrier(flow, &steps);
    if early == 0 {
        return BTreeSet::new();
    }
    // Behind the last one of each block.
    let mut last: Vec<Option<usize>> = vec![None; flow.blocks.len()];
    let early = first.iter().enumerate().filter(|(bit, _)| early >> bit & 1 != 0);
    early.for_each(|(_, (block, first))| last[*block] = Some(first.at));
    let places = last.iter().enumerate().filter_map(|(block, at)| {
        let at = (*at)?;
        match ways.where_all_come(flow, block) {
            there if there == block => Some(at + 1),
            there => begins(function, ops, &flow.blocks[there]),
        }
    });
    places.collect()
}

/// What threads come to.
enum Step {
    /// Threads wait for each other.
    Barrier,
    /// An access to the block's memory: which one it is of those that come first, as a bit; which of them it should come after; and which of
    /// them, if something was stored for all between.
    Access { access: Access, first: u64, after: u64, next: u64 },
    /// Something is stored elsewhere.
    Out,
}

/// Whether all threads of a block wait for each other, or all of a warp: a program that has this there knows what is the warp's own.
pub(super) fn waits(instruction: &Instruction, op: &Op) -> bool {
    matches!(op, Op::Bar { .. }) && instruction.guard.is_none()
}

/// Which accesses come before one that should come after them in all threads, with no barrier of the block between. Loads count only where
/// the block's memory was not changed since the last barrier: other programs wait for no more than their warp.
fn without_barrier(flow: &Flow, steps: &[Vec<Step>]) -> u64 {
    let changed = before(flow, 1, |block, mut changed| {
        for step in &steps[block] {
            match step {
                Step::Barrier => changed = 0,
                Step::Access { access: Access::Load, .. } | Step::Out => {}
                Step::Access { .. } => changed = 1,
            }
        }
        changed
    });
    let mut found = 0;
    // In the lower half what came first, and in the upper half what of that was followed by something stored for all.
    before(flow, 0, |block, both| {
        let (mut now, mut out) = (both as u64, (both >> 64) as u64);
        let mut changed = changed[block];
        for step in &steps[block] {
            match *step {
                Step::Barrier => (now, out, changed) = (0, 0, 0),
                Step::Out => out |= now,
                Step::Access { access, first, after, next } => {
                    found |= now & after | out & next;
                    match access {
                        Access::Load if changed != 0 => {}
                        Access::Load => now |= first,
                        _ => (now, changed) = (now | first, 1),
                    }
                }
            }
        }
        u128::from(now) | u128::from(out) << 64
    });
    found
}

/// What may be so when each block begins, as bits, where `through` tells what becomes of it there.
pub(super) fn before(flow: &Flow, begin: u128, mut through: impl FnMut(usize, u128) -> u128) -> Vec<u128> {
    let mut before = vec![0; flow.blocks.len()];
    before[0] = begin;
    let mut changed = true;
    while changed {
        changed = false;
        for (index, block) in flow.blocks.iter().enumerate() {
            let now = through(index, before[index]);
            for &next in &block.successors {
                changed |= now & !before[next] != 0;
                before[next] |= now;
            }
        }
    }
    before
}

/// Whether all threads read elements, one beside the other.
fn reads(found: &Found, addresses: &Addresses) -> bool {
    let Some(address) =
        found.address.as_ref().filter(|_| found.access == Access::Load && found.conditions == 0)
    else {
        return false;
    };
    let otherwise = |&(term, _): &(u32, i64)| term != LANE && addresses.kind(term).by_lane;
    address.factor(LANE) != 0 && !address.terms.iter().any(otherwise)
}

/// Whether an instruction stores to memory of which the text does not say that it is the block's or the thread's.
pub(super) fn stores_for_all(op: &Op) -> bool {
    matches!(op, Op::St { place: MemoryTarget::Generic, .. })
}

/// Whether all threads read elements of their own choice.
fn reads_a_tile(found: &Found, addresses: &Addresses) -> bool {
    let of_data = |&(term, _): &(u32, i64)| addresses.kind(term).of_data;
    found.access == Access::Load
        && found.conditions == 0
        && found.address.as_ref().is_some_and(|a| a.factor(LANE) != 0 && !a.terms.iter().any(of_data))
}

/// Whether what all threads store then is what others read: in the same part of the memory, in another order.
fn is_anothers(then: &Found, read: &Found, addresses: &Addresses) -> bool {
    let (Some(to), Some(from)) = (&then.address, &read.address) else { return false };
    let difference = to.minus(from);
    let elsewhere = |&(term, _): &(u32, i64)| addresses.kind(term).is_distance();
    then.access == Access::Store
        && then.conditions == 0
        && addresses.have_one_root(to, from)
        && to.factor(LANE) != 0
        && difference.factor(LANE) != 0
        && !difference.terms.iter().any(elsewhere)
}

/// Whether what is written then is what another thread reads, which may be in the next warp.
fn is_read_by_neighbour(then: &Found, read: &Found) -> bool {
    let (Some(to), Some(from)) = (&then.address, &read.address) else { return false };
    let difference = to.minus(from);
    let step = from.factor(LANE).unsigned_abs();
    let apart = difference.constant.unsigned_abs();
    then.access != Access::Load
        && difference.terms.is_empty()
        && apart.is_multiple_of(step)
        && (1..WARP as u64).contains(&(apart / step))
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
    let is_same = || then.value().is_some() && then.value() == clear.value();
    if then.access == Access::Load || is_same() {
        return false;
    }
    // Threads that have a column each clear that themselves, whatever leads to a place in it.
    if !addresses.have_one_root(cleared, to) || to.factor(LANE) == cleared.factor(LANE) {
        return false;
    }
    let of_warp = |term: u32| term != LANE && addresses.kind(term).by_thread;
    let difference = to.minus(cleared);
    // A given distance leads to another part of the memory, and a warp that has a part of its own clears that itself.
    let elsewhere = |&(term, _): &(u32, i64)| addresses.kind(term).is_distance();
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
