//! Finds loops in which threads read what others have stored in a loop before, with no barrier between.
//!
//! The threads of a block fill an array, each every so many-th element as there are threads, and then each goes through elements of it in another order, such as
//! those of a row: Rodinia's tracking of a heart's wall adds up so what it has just subtracted. On a device all threads are through with the first loop at
//! about the same time, and the second one begins with what was stored first; here the first thread would go on alone. So a thread lets all others go
//! first before it begins with the second loop.
//!
//! Or one thread stores to an element that another one has just stored to: SHOC's clusters clear their marks so, and then set one.

use std::collections::BTreeMap;

use super::super::flow::Flow;
use super::super::op::{Control, Op};
use super::accesses::Access;
use super::address::{Addresses, LANE, Linear};
use super::ahead::{before, waits};
use super::found::Found;
use super::single::Single;
use crate::abi::WARP;
use rgpu_image::ptx::ast::{Function, Guard, Statement};

/// More stores are not looked at.
const STORES: usize = 128;

/// A store in a loop.
struct Fill<'a> {
    block: usize,
    found: &'a Found<'a>,
    /// How far the elements are apart that a thread stores to, in one loop or another.
    strides: Vec<Linear>,
}

/// Statements before which a thread lets others go first, with their guards.
pub(super) fn places(
    (function, ops): (&Function, &[Op]),
    flow: &Flow,
    all: &[Vec<Found>],
    addresses: &Addresses,
) -> Vec<(usize, Option<Guard>)> {
    let in_order = || all.iter().enumerate().flat_map(|(block, all)| all.iter().map(move |f| (block, f)));
    let fills = in_order().filter_map(|(block, found)| fill(block, found, addresses));
    let fills: Vec<Fill> = fills.take(STORES).collect();
    if fills.is_empty() {
        return Vec::new();
    }
    let loops = flow.loops();
    let around = |of: usize, but: usize| {
        loops.iter().filter(move |(_, blocks)| blocks.contains(&of) && !blocks.contains(&but))
    };
    // The stores of other loops that threads are through with when they come to a block, with their bits.
    let before_it = |block: usize| {
        let through = move |(_, fill): &(u128, &Fill)| around(fill.block, block).next().is_some();
        fills.iter().enumerate().map(|(bit, fill)| (1 << bit, fill)).filter(through)
    };
    let single = Single::find(function, ops, flow, Some(addresses));
    // The loops that begin with such loads, by their first blocks; and the stores of one thread, by their places. To which stores they belong.
    let (mut begun, mut marked) = (BTreeMap::<usize, u128>::new(), Vec::new());
    for (block, found) in in_order() {
        if found.access == Access::Load {
            for (bit, fill) in before_it(block) {
                let outermost = around(block, fill.block).max_by_key(|(_, blocks)| blocks.len());
                if let Some((&head, _)) = outermost
                    && reads_others(found, fill, &fills, addresses)
                {
                    *begun.entry(head).or_default() |= bit;
                }
            }
        } else if found.access == Access::Store && single.executes(block, found.instruction) {
            let marks = before_it(block).filter(|(_, fill)| marks_others(found, fill, addresses));
            let stored = marks.fold(0, |bits, (bit, _)| bits | bit);
            marked.extend((stored != 0).then_some(((block, found.at), stored, found.instruction.guard)));
        }
    }
    let predecessors = flow.predecessors();
    let entries = begun.iter().flat_map(|(head, &stored)| {
        let outside = predecessors[*head].iter().filter(|from| !loops[head].contains(from));
        outside.map(move |&from| ((from, end(function, ops, flow, from)), stored, None))
    });
    let mut places: BTreeMap<(usize, usize), Option<Guard>> = BTreeMap::new();
    for (place, stored, guard) in entries.chain(marked) {
        let through = |block: usize, to: usize, mut now: u128| {
            for at in flow.blocks[block].first..to {
                let Statement::Instruction(instruction) = &function.body[at] else { continue };
                let waits = waits(instruction, &ops[instruction.form.0 as usize]);
                if waits || places.contains_key(&(block, at)) {
                    now = 0;
                }
                let stored = fills.iter().zip(0..).filter(|(fill, _)| fill.found.at == at);
                now = stored.fold(now, |now, (_, bit)| now | 1 << bit);
            }
            now
        };
        let at_begin = before(flow, 0, |block, now| through(block, flow.blocks[block].end, now));
        if through(place.0, place.1, at_begin[place.0]) & stored != 0 {
            places.insert(place, guard);
        }
    }
    places.into_iter().map(|((_, at), guard)| (at, guard)).collect()
}

/// The store, if it is one of threads that fill an array together.
fn fill<'a>(block: usize, found: &'a Found<'a>, addresses: &Addresses) -> Option<Fill<'a>> {
    let address = found.address.as_ref().filter(|_| found.access == Access::Store)?;
    let bytes = found.bytes.unsigned_abs();
    let is_stride = |step: &Linear| match step.terms[..] {
        [] => step.constant.unsigned_abs() >= WARP as u64 * bytes,
        [(term, factor)] => addresses.is_width_of_block(term) && factor.unsigned_abs().is_multiple_of(bytes),
        _ => false,
    };
    let is_row = address.factor(LANE).unsigned_abs() == bytes;
    address.terms.iter().find_map(|&(term, factor)| {
        let strides: Vec<Linear> = addresses.steps(term).iter().map(|step| step.scaled(factor)).collect();
        let is_filled = is_row && !strides.is_empty() && strides.iter().all(is_stride);
        is_filled.then_some(Fill { block, found, strides })
    })
}

/// Whether threads read elements in a loop that others have stored to.
fn reads_others(load: &Found, fill: &Fill, fills: &[Fill], addresses: &Addresses) -> bool {
    let (Some(to), Some(from)) = (&fill.found.address, &load.address) else { return false };
    if !addresses.have_one_root(to, from) {
        return false;
    }
    // How far the elements are apart that a thread has stored to, also where the loop was unrolled.
    let mut own: Vec<Linear> = Vec::new();
    for other in fills {
        if let Some(address) = &other.found.address
            && addresses.have_one_root(to, address)
        {
            own.extend(other.strides.iter().cloned());
            own.push(address.minus(to));
        }
    }
    from.terms.iter().any(|&(term, factor)| {
        addresses.steps(term).iter().any(|step| {
            let step = step.scaled(factor);
            let is_alike = |&(term, _): &(u32, i64)| !addresses.kind(term).by_thread;
            step.terms.iter().all(is_alike) && !own.iter().any(|own| step.is_multiple_of(own))
        })
    })
}

/// Whether one thread stores to an element that another one has stored to.
fn marks_others(mark: &Found, fill: &Fill, addresses: &Addresses) -> bool {
    let (Some(to), Some(mark)) = (&fill.found.address, &mark.address) else { return false };
    let is_lanes = |&(term, _): &(u32, i64)| term == LANE || !addresses.steps(term).is_empty();
    let of_first = Linear { terms: to.terms.iter().copied().filter(|term| !is_lanes(term)).collect(), ..*to };
    addresses.have_one_root(to, mark) && *mark != of_first && mark.terms.iter().all(|term| !is_lanes(term))
}

/// Where a block ends, before it branches.
fn end(function: &Function, ops: &[Op], flow: &Flow, block: usize) -> usize {
    let last = flow.last(block, function);
    let branches = last.is_some_and(|i| ops[i.form.0 as usize].traits().control == Control::Branch);
    flow.blocks[block].end - usize::from(branches)
}
