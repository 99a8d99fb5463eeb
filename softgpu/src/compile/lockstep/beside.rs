//! Finds stores that may overtake what other threads of the block read of the element's surroundings.
//!
//! Behind a barrier each thread reads elements beside one of its own, unless that is at an edge, and then stores to elements of its own, with no
//! barrier between, in the same variable: Rodinia's leukocyte renews an image in place so, one part of it behind the other. On a device all
//! threads of the block read at about the same time, and compute much before they store; here the first thread would have stored before the
//! others have read. So a thread lets all others go first before such a store.
//!
//! Or the threads of all warps read the same elements, one for each lane, and those of one warp store to them: the shortest paths of the ECL suite begin their next
//! phase so.
//!
//! Or each thread reads another one's element, whose number was computed from its own or was read, and stores its own: a ring, a tile that is transposed in place, or a list
//! in which each skips the next (Wyllie's ranking).
//!
//! Or each thread that has one reads the element at a distance that is doubled or halved from turn to turn, and adds it to its own: the scan of
//! Kogge and Stone as textbooks have it, `if (t >= d) s[t] += s[t - d]` behind a barrier. Sums in a tree (`if (t < d) s[t] += s[t + d]`) look
//! alike, but nobody reads what they change: the condition does not tell whether the element that is read is there.
//!
//! The last two count in memory of all blocks as well, where one block may have all to itself that it reads; and there all threads read one element of a row and then
//! store to the row, by which each divides its own.

use std::cell::LazyCell;

use super::super::flow::Flow;
use super::super::op::{MemoryTarget, Op};
use super::accesses::Access;
use super::address::{Addresses, Kind, LANE, Linear, Rows, instructions, names_lane};
use super::ahead::{before, stores_for_all, waits};
use super::compared::{self, Bound, Compared};
use super::found::{Found, Memory};
use super::single::Single;
use super::ways::Ways;
use crate::abi::WARP;
use rgpu_image::ptx::ast::{Function, Guard, Statement};

/// All threads have waited for each other, and not changed the block's memory since then.
const TOGETHER: u128 = 1;

/// More loads than there are other bits are not looked at.
const LOADS: usize = 127;

/// A load of what another thread may store to next.
struct Load<'a> {
    found: &'a Found<'a>,
    /// What was compared on the way to it.
    compared: Vec<Compared>,
}

/// Whether a function stores to memory of all blocks, and loads or stores there once more, and asks which thread it is.
pub(super) fn may_renew_for_all(function: &Function, ops: &[Op]) -> bool {
    let count = |is: fn(&Op) -> bool| {
        instructions(function).filter(|(_, i)| is(&ops[i.form.0 as usize])).take(2).count()
    };
    let loads = || count(|op| matches!(op, Op::Ld { place: MemoryTarget::Generic, .. })) > 0;
    let stores = count(stores_for_all);
    (stores > 1 || stores > 0 && loads())
        && instructions(function).any(|(_, i)| names_lane(&i.operands, Rows::Short))
}

/// Stores before which a thread lets others go first, with their guards. Mostly none.
pub(super) fn stores(
    (function, ops): (&Function, &[Op]),
    flow: &Flow,
    ways: &Ways,
    (memory, all): (Memory, &[Vec<Found>]),
    addresses: &mut Addresses,
) -> Vec<(usize, Option<Guard>)> {
    let looked_at: Vec<(usize, &Found)> = {
        let in_order = all.iter().enumerate().flat_map(|(block, all)| all.iter().map(move |f| (block, f)));
        let is_met = |load: &Found| match memory {
            Memory::Block => true,
            Memory::All => all.iter().flatten().any(|store| may_be_for_all(store, load, addresses)),
        };
        let single = LazyCell::new(|| Single::find(function, ops, flow, Some(&*addresses)));
        let all_read = |block: usize, found: &Found| {
            let one = || found.access == Access::Load && !found.differs;
            memory == Memory::All && one() && !single.executes(block, found.instruction)
        };
        in_order
            .filter(|&(block, found)| is_met(found) && (is_looked_at(found) || all_read(block, found)))
            .take(LOADS)
            .collect()
    };
    if looked_at.is_empty() {
        return Vec::new();
    }
    let decisions = ways.decisions(function, flow);
    let loads: Vec<Load> = looked_at
        .into_iter()
        .map(|(block, found)| {
            let compared = compared::before(function, ops, &decisions, (block, found.at), addresses);
            Load { found, compared }
        })
        .collect();
    let of_warp: Vec<bool> = (0..all.len())
        .map(|block| {
            let guards = decisions.iter().filter_map(|decision| decision.about(block));
            let mut guards = guards.peekable();
            guards.peek().is_some() && guards.all(|(guard, _)| !addresses.divides(guard.register.0))
        })
        .collect();
    let bits = |is: &dyn Fn(&Load) -> bool| {
        loads.iter().zip(1..).filter(|(load, _)| is(load)).fold(0, |bits, (_, bit)| bits | 1u128 << bit)
    };
    let mut stores = Vec::new();
    // Without barriers a distance that is doubled is a warp's.
    let has_barriers = instructions(function).any(|(_, i)| waits(i, &ops[i.form.0 as usize]));
    // What all blocks have is there when the kernel begins.
    let begin = if memory == Memory::All { TOGETHER } else { 0 };
    before(flow, begin, |block, mut now| {
        let mut found = all[block].iter().peekable();
        for at in flow.blocks[block].first..flow.blocks[block].end {
            let Statement::Instruction(instruction) = &function.body[at] else { continue };
            if waits(instruction, &ops[instruction.form.0 as usize]) {
                now = TOGETHER;
            }
            let Some(found) = found.next_if(|found| found.at == at) else { continue };
            if found.access != Access::Load {
                let overtaken = now
                    & bits(&|load| match memory {
                        Memory::Block => is_overtaken(load, found, of_warp[block], addresses),
                        Memory::All => {
                            may_be_for_all(found, load.found, addresses)
                                && (has_barriers && is_at_distance(found, load, addresses)
                                    || is_fetched(found, load.found, addresses)
                                    || is_backwards(found, load.found, addresses)
                                    || is_of_row(found, load.found, addresses))
                        }
                    });
                if overtaken != 0 {
                    stores.push((at, found.instruction.guard));
                }
                now &= !(TOGETHER | overtaken);
            } else if now & TOGETHER != 0 {
                now |= bits(&|load| load.found.at == at);
            }
        }
        now
    });
    stores.sort_unstable_by_key(|(at, _)| *at);
    stores.dedup_by_key(|(at, _)| *at);
    stores
}

/// Whether it is a load of elements that are beside the thread's own at an edge, or lie in a row, or that all threads choose.
fn is_looked_at(found: &Found) -> bool {
    let may_be = || found.at_edge || is_one_of_a_row(found) || found.by_lane && found.conditions == 0;
    found.access == Access::Load && may_be()
}

/// Whether threads that lie side by side access elements that do.
fn is_one_of_a_row(found: &Found) -> bool {
    is_row(found) && !found.volatile
}

/// Likewise, volatile or not.
fn is_row(found: &Found) -> bool {
    let lane = found.address.as_ref().map_or(0, |address| address.factor(LANE));
    lane.unsigned_abs() == found.bytes.unsigned_abs()
}

/// Whether a store may be to what threads have loaded, but for one that does both.
fn is_overtaken(load: &Load, then: &Found, of_warp: bool, addresses: &Addresses) -> bool {
    if then.access != Access::Store {
        return false;
    }
    load.found.at_edge && is_in_place(then, load.found, addresses)
        || is_at_distance(then, load, addresses)
        || of_warp && is_read_by_all(then, load.found, addresses)
        || is_fetched(then, load.found, addresses)
}

/// Whether a store to memory of all blocks may be to what threads have loaded, as a short look says.
fn may_be_for_all(store: &Found, load: &Found, addresses: &Addresses) -> bool {
    let (Some(to), Some(from)) = (&store.address, &load.address) else { return false };
    store.access == Access::Store && to != from && addresses.have_one_root(to, from)
}

/// Whether all threads store to elements of their own then, and have read others from back to front.
fn is_backwards(then: &Found, read: &Found, addresses: &Addresses) -> bool {
    let (Some(to), Some(from)) = (&then.address, &read.address) else { return false };
    let apart = to.minus(from);
    is_row(then)
        && (read.conditions, then.conditions) == (0, 0)
        && apart.factor(LANE) == 2 * to.factor(LANE)
        && is_given(&apart, addresses)
}

/// Whether threads store to the elements of a row then, and have all read one of it.
fn is_of_row(then: &Found, read: &Found, addresses: &Addresses) -> bool {
    let (Some(to), Some(from)) = (&then.address, &read.address) else { return false };
    is_row(then)
        && !read.differs
        && read.conditions <= then.conditions
        && is_given(&to.minus(from), addresses)
}

/// Whether two addresses that are so far apart differ in nothing but the lane's number and one given distance.
fn is_given(apart: &Linear, addresses: &Addresses) -> bool {
    let given = |&(term, _): &(u32, i64)| term == LANE || addresses.kind(term).is_distance();
    apart.terms.len() <= 2 && apart.terms.iter().all(given)
}

/// Whether all threads store to elements of their own then, in a row or in the rows of a tile, and have read others that they do not store to.
fn is_fetched(then: &Found, read: &Found, addresses: &Addresses) -> bool {
    let (Some(to), Some(from)) = (&then.address, &read.address) else { return false };
    if read.volatile || read.conditions > 0 || then.conditions > 0 || to.factor(LANE) == 0 {
        return false;
    }
    let apart = to.minus(from);
    let is_computed = |term: u32| {
        let known = addresses.kind(term);
        known.by_lane && (known.kind == Kind::Wild && !known.of_data || known.kind == Kind::Loaded)
    };
    // What is far away is another array.
    let is_near = || apart.constant.unsigned_abs() < WARP as u64 * to.factor(LANE).unsigned_abs();
    match apart.terms[..] {
        [(LANE, own), (term, other)] if own == to.factor(LANE) && is_computed(term) => {
            // Computed from numbers of elements, or of bytes.
            let is_one = other.unsigned_abs() == own.unsigned_abs() || other.unsigned_abs() == 1;
            is_one_of_a_row(then) && is_one && is_near()
        }
        [(LANE, own), (row, other)] => {
            let is_swapped = from.factor(LANE) == to.factor(row) && from.factor(row) == to.factor(LANE);
            own == -other && is_swapped && addresses.kind(row).by_thread && apart.constant == 0
        }
        _ => false,
    }
}

/// Whether one warp stores to the elements then that all warps have read.
fn is_read_by_all(then: &Found, read: &Found, addresses: &Addresses) -> bool {
    let (Some(to), Some(from)) = (&then.address, &read.address) else { return false };
    let of_warp = |&(term, _): &(u32, i64)| term != LANE && addresses.kind(term).by_thread;
    is_one_of_a_row(read) && read.conditions == 0 && to == from && !from.terms.iter().any(of_warp)
}

/// Whether threads store to elements then that are at a distance from those that they have read, where a condition told whether there is one, or all do.
fn is_at_distance(then: &Found, Load { found: read, compared }: &Load, addresses: &Addresses) -> bool {
    let all = read.conditions == 0 && then.conditions == 0;
    let (Some(to), Some(from)) = (&then.address, &read.address) else { return false };
    let (apart, step) = (to.minus(from), from.factor(LANE));
    if !(is_one_of_a_row(read) && to.factor(LANE) == step) {
        return false;
    }
    // A number of the thread was compared to which the distance is added as in the address.
    let tells = |Compared { difference: compared, .. }: &Compared, distance: u32| {
        let (lane, factor) = (compared.factor(LANE), compared.factor(distance));
        lane != 0 && factor.wrapping_mul(step) == from.minus(to).factor(distance).wrapping_mul(lane)
    };
    match apart.terms[..] {
        // A distance that changes from turn to turn and is the same for all. The first one is no part of the term.
        [(term, factor)] => {
            let known = addresses.kind(term);
            known.kind == Kind::Wild
                && known.by_turn
                && !(known.by_thread || known.of_data)
                && factor.unsigned_abs() == step.unsigned_abs()
                && (all || compared.iter().any(|compared| tells(compared, term)))
        }
        // The same in a turn of a loop that the compiler has unrolled: so many of the first threads have no such element.
        [] => {
            let distance = apart.constant / step;
            let tells = |Bound { term, with, is_lower }: Bound| {
                term == LANE && is_lower == Some(true) && (with == distance || with == distance - 1)
            };
            // Or in each turn there is one thread less that has its neighbour's.
            let goes_up = |term: u32| addresses.kind(term).by_turn && !addresses.kind(term).by_thread;
            let beside = || distance == 1 && compared.iter().filter_map(Compared::least).any(goes_up);
            distance > 0
                && apart.constant % step == 0
                && (compared.iter().filter_map(Compared::bound).any(tells) || beside())
        }
        _ => false,
    }
}

/// Whether threads store to elements of their own then, in the variable in which they have read others.
fn is_in_place(then: &Found, read: &Found, addresses: &Addresses) -> bool {
    let (Some(to), Some(from)) = (&then.address, &read.address) else { return false };
    then.by_lane && to != from && addresses.have_one_root(to, from)
}
