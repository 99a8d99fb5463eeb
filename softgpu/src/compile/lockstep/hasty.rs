//! Finds threads that may write a variable of the block before others have read what was there.
//!
//! All threads read a variable, and one of them, or one of each warp, writes it anew with no barrier between. On a device
//! that thread does much else before, such as another reduction of its warp; here it may be the first to run. The same goes for a place of
//! which each warp has one, and that all lanes of the warp read.

use super::super::flow::Flow;
use super::super::op::Op;
use super::accesses::Access;
use super::address::{Addresses, Linear};
use super::found::Found;
use super::single::Single;
use rgpu_image::ptx::ast::{Function, Guard, Statement, Symbol};

/// More variables than this are not told apart; what is read of others does not count.
const PLACES: usize = 64;

/// What is read by threads that all name one address, or all of each warp.
#[derive(PartialEq)]
enum Place {
    /// A variable and an offset in it.
    Named(Symbol, i64),
    /// An address that was computed.
    Computed(Linear),
}

/// The place that all threads name, or all of each warp.
fn place(found: &Found) -> Option<Place> {
    match (found.named, &found.address) {
        (Some((symbol, offset)), _) => Some(Place::Named(symbol, offset)),
        (None, Some(address)) if !found.by_lane => Some(Place::Computed(address.clone())),
        _ => None,
    }
}

/// Statements that write a variable of the block which may have been read since the last barrier, by another thread than writes it. Where that is
/// an atomic operation, which threads may repeat, it is the statement behind the load. With the guard of the access.
pub(super) fn stores(
    function: &Function,
    ops: &[Op],
    flow: &Flow,
    all: &[Vec<Found>],
    addresses: Option<&Addresses>,
) -> Vec<(usize, Option<Guard>)> {
    let mut known: Vec<(Place, &Found)> = Vec::new();
    for found in all.iter().flatten().filter(|found| found.access == Access::Load) {
        if let Some(place) = place(found)
            && known.len() < PLACES
            && !known.iter().any(|(other, _)| *other == place)
        {
            known.push((place, found));
        }
    }
    // The place that is read, as a bit, and the places that may be written.
    let read = |load: &Found| {
        let place = place(load);
        known.iter().position(|(known, _)| Some(known) == place.as_ref()).map_or(0, |bit| 1u64 << bit)
    };
    let written = |store: &Found| {
        let hits = known.iter().enumerate().filter(|(_, (place, load))| match (place, store.named) {
            (Place::Named(symbol, offset), Some(named)) => (*symbol, *offset) == named,
            _ => addresses.is_some_and(|addresses| may_write(store, load, addresses)),
        });
        hits.fold(0u64, |bits, (bit, _)| bits | 1 << bit)
    };
    let bits_of = |found: &Found| if found.access == Access::Load { read(found) } else { written(found) };
    let of_block = |block: &Vec<Found>| -> Vec<u64> { block.iter().map(bits_of).collect() };
    let bits: Vec<Vec<u64>> = all.iter().map(of_block).collect();
    let is_written = |(found, bits): (&Found, &u64)| found.access != Access::Load && *bits != 0;
    if !all.iter().flatten().zip(bits.iter().flatten()).any(is_written) {
        return Vec::new();
    }
    let single = Single::find(function, ops, flow, addresses);
    // What has been read when each block begins; a bit for each place.
    let mut read = vec![0u64; flow.blocks.len()];
    let mut stores = Vec::new();
    // What atomic operations may change that all have read.
    let mut raised = 0;
    let mut changed = true;
    while changed {
        changed = false;
        stores.clear();
        for (index, block) in flow.blocks.iter().enumerate() {
            let mut now = read[index];
            // What has been read here by one thread alone: it may write that at once.
            let mut alone = 0;
            let mut found = all[index].iter().zip(&bits[index]).peekable();
            for at in block.first..block.end {
                let Statement::Instruction(instruction) = &function.body[at] else { continue };
                if matches!(ops[instruction.form.0 as usize], Op::Bar { .. }) && instruction.guard.is_none() {
                    (now, alone) = (0, 0);
                }
                let Some((found, &bits)) = found.next_if(|(found, _)| found.at == at) else { continue };
                match found.access {
                    Access::Load if single.executes(index, found.instruction) => alone |= bits,
                    Access::Load => now |= bits,
                    Access::Store => {
                        let by_all = now & bits != 0;
                        if by_all || alone & bits != 0 && !single.executes(index, found.instruction) {
                            stores.push((at, found.instruction.guard));
                        }
                        now &= !bits;
                        alone &= !bits;
                    }
                    Access::Atomic => raised |= now & bits,
                }
            }
            now |= alone;
            for &next in &block.successors {
                changed |= now & !read[next] != 0;
                read[next] |= now;
            }
        }
    }
    let all = all.iter().flatten().zip(bits.iter().flatten());
    stores.extend(
        all.filter(|(found, bits)| found.access == Access::Load && **bits & raised != 0)
            .map(|(found, _)| (found.at + 1, found.instruction.guard)),
    );
    stores
}

/// Whether a store, at an address that was computed or behind a load of one, may be meant for what all threads have read, or all of a warp.
fn may_write(store: &Found, load: &Found, addresses: &Addresses) -> bool {
    let (Some(to), Some(from)) = (&store.address, &load.address) else { return false };
    if !addresses.have_one_root(to, from) {
        return false;
    }
    let difference = to.minus(from);
    if store.differs {
        // Where a warp has a place of its own, those lanes of it that read and write it may be one and the same.
        if !store.by_lane && load.differs && store.conditions <= load.conditions {
            return false;
        }
        // A given distance leads to another part of the memory.
        return !difference.terms.iter().any(|&(term, _)| addresses.kind(term).is_distance());
    }
    let overlaps = -store.bytes < difference.constant && difference.constant < load.bytes;
    difference.terms.is_empty() && overlaps && store.conditions > load.conditions
}
