//! Finds stores that may overtake what other threads of the block read of the element's surroundings.
//!
//! Behind a barrier each thread reads elements beside one of its own, unless that is at an edge, and then stores to elements of its own, with no
//! barrier between, in the same variable: Rodinia's leukocyte renews an image in place so, one part of it behind the other. On a device all
//! threads of the block read at about the same time, and compute much before they store; here the first thread would have stored before the
//! others have read. So a thread lets all others go first before such a store.

use super::super::flow::Flow;
use super::super::op::Op;
use super::accesses::Access;
use super::address::Addresses;
use super::ahead::{before, waits};
use super::found::Found;
use rgpu_image::ptx::ast::{Function, Guard, Statement};

/// All threads have waited for each other, and not changed the block's memory since then.
const TOGETHER: u128 = 1;

/// More loads than there are other bits are not looked at.
const LOADS: usize = 127;

/// Stores before which a thread lets others go first, with their guards. Mostly none.
pub(super) fn stores(
    function: &Function,
    ops: &[Op],
    flow: &Flow,
    all: &[Vec<Found>],
    addresses: &Addresses,
) -> Vec<(usize, Option<Guard>)> {
    let is_load = |found: &&Found| found.access == Access::Load && found.at_edge;
    let loads: Vec<&Found> = all.iter().flatten().filter(is_load).take(LOADS).collect();
    if loads.is_empty() {
        return Vec::new();
    }
    let bits = |is: &dyn Fn(&Found) -> bool| {
        loads.iter().zip(1..).filter(|(load, _)| is(load)).fold(0, |bits, (_, bit)| bits | 1u128 << bit)
    };
    let mut stores = Vec::new();
    before(flow, 0, |block, mut now| {
        let mut found = all[block].iter().peekable();
        for at in flow.blocks[block].first..flow.blocks[block].end {
            let Statement::Instruction(instruction) = &function.body[at] else { continue };
            if waits(instruction, &ops[instruction.form.0 as usize]) {
                now = TOGETHER;
            }
            let Some(found) = found.next_if(|found| found.at == at) else { continue };
            if found.access != Access::Load {
                let overtaken = now & bits(&|load| is_in_place(found, load, addresses));
                if overtaken != 0 {
                    stores.push((at, found.instruction.guard));
                }
                now &= !(TOGETHER | overtaken);
            } else if now & TOGETHER != 0 {
                now |= bits(&|load| load.at == at);
            }
        }
        now
    });
    stores.sort_unstable_by_key(|(at, _)| *at);
    stores.dedup_by_key(|(at, _)| *at);
    stores
}

/// Whether threads store to elements of their own then, in the variable in which they have read others.
fn is_in_place(then: &Found, read: &Found, addresses: &Addresses) -> bool {
    let (Some(to), Some(from)) = (&then.address, &read.address) else { return false };
    then.access == Access::Store && then.by_lane && to != from && addresses.have_one_root(to, from)
}
