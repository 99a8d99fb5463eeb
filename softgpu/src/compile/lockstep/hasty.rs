//! Finds threads that may write a variable of the block before others have read what was there.
//!
//! All threads read a variable, and one of them, or one of each warp, writes it anew with no barrier between. On a device
//! that thread does much else before, such as another reduction of its warp; here it may be the first to run.

use super::super::flow::Flow;
use super::super::op::Op;
use super::super::unit::synthetic;
use super::Access;
use super::address::{Addresses, Kind, Linear};
use super::exchange::Ways;
use super::single::Single;
use rgpu_image::ptx::ast::{AddressBase, Function, Instruction, Operand, Statement, Symbol};

/// More variables than this are not told apart; what is read of others does not count.
const PLACES: usize = 64;

/// What is read by threads that all name one address.
#[derive(PartialEq)]
enum Place {
    /// A variable and an offset in it, as the text names them.
    Named(Symbol, i64),
    /// An address that was computed.
    Computed(Linear),
}

/// A load or store of the block's memory.
struct Found<'a> {
    at: usize,
    access: Access,
    instruction: &'a Instruction,
    named: Option<(Symbol, i64)>,
    /// None without [`Addresses`].
    address: Option<Linear>,
    /// Whether threads name different addresses.
    differs: bool,
    /// On how many conditions that may divide a block it depends.
    conditions: u32,
    bytes: i64,
}

/// Statements that write a variable of the block which may have been read since the last barrier, by another thread than writes it.
pub(super) fn stores(
    function: &Function,
    ops: &[Op],
    accesses: &[Option<(Access, bool)>],
    flow: &Flow,
    mut addresses: Option<&mut Addresses>,
) -> Vec<usize> {
    let conditions = addresses.as_deref().map_or_else(Vec::new, |addresses| {
        Ways::new(function, flow, |predicate| addresses.differs(predicate)).conditions(flow)
    });
    let mut all: Vec<Vec<Found>> = Vec::new();
    for (index, block) in flow.blocks.iter().enumerate() {
        let found = (block.first..block.end).filter_map(|at| {
            let Statement::Instruction(instruction) = &function.body[at] else { return None };
            let mut found = find(at, instruction, ops, accesses)?;
            if let Some(addresses) = addresses.as_deref_mut() {
                let operand = &instruction.operands[if found.access == Access::Load { 1 } else { 0 }];
                found.address = addresses.address(operand);
                found.differs =
                    matches!(operand, Operand::Address(AddressBase::Reg(r), _) if addresses.differs(r.0));
                let guarded = instruction.guard.is_some_and(|g| addresses.differs(g.register.0));
                found.conditions = conditions[index] + u32::from(guarded);
            }
            Some(found)
        });
        all.push(found.collect());
    }
    let addresses = addresses.as_deref();
    let mut known: Vec<(Place, &Found)> = Vec::new();
    for found in all.iter().flatten().filter(|found| found.access == Access::Load) {
        let place = match (found.named, &found.address) {
            (Some((symbol, offset)), _) => Place::Named(symbol, offset),
            (None, Some(address)) if !found.differs => Place::Computed(address.clone()),
            _ => continue,
        };
        if known.len() < PLACES && !known.iter().any(|(other, _)| *other == place) {
            known.push((place, found));
        }
    }
    if known.is_empty() {
        return Vec::new();
    }
    let bit_of = |found: &Found| {
        known.iter().position(|(place, _)| match place {
            Place::Named(symbol, offset) => found.named == Some((*symbol, *offset)),
            Place::Computed(address) => {
                found.named.is_none() && !found.differs && found.address.as_ref() == Some(address)
            }
        })
    };
    // The places that it may write.
    let written = |store: &Found| {
        let hits = known.iter().enumerate().filter(|(_, (place, load))| match (place, store.named) {
            (Place::Named(symbol, offset), Some(named)) => (*symbol, *offset) == named,
            _ => addresses.is_some_and(|addresses| may_write(store, load, addresses)),
        });
        hits.fold(0u64, |bits, (bit, _)| bits | 1 << bit)
    };
    let events: Vec<Vec<(&Found, u64)>> = all
        .iter()
        .map(|block| {
            let events = block.iter().map(|found| match found.access {
                Access::Load => (found, bit_of(found).map_or(0, |bit| 1 << bit)),
                Access::Store => (found, written(found)),
            });
            events.filter(|&(_, bits)| bits != 0).collect()
        })
        .collect();
    let written = || events.iter().flatten().any(|(found, _)| found.access == Access::Store);
    if !written() {
        return Vec::new();
    }
    let single = Single::find(function, ops, flow);
    // What has been read when each block begins; a bit for each place.
    let mut read = vec![0u64; flow.blocks.len()];
    let mut stores = Vec::new();
    let mut changed = true;
    while changed {
        changed = false;
        stores.clear();
        for (index, block) in flow.blocks.iter().enumerate() {
            let mut now = read[index];
            // What has been read here by one thread alone: it may write that at once.
            let mut alone = 0;
            let mut events = events[index].iter().peekable();
            for at in block.first..block.end {
                let Statement::Instruction(instruction) = &function.body[at] else { continue };
                if matches!(ops[instruction.form.0 as usize], Op::Bar { .. }) && instruction.guard.is_none() {
                    (now, alone) = (0, 0);
                }
                let Some((found, bits)) = events.next_if(|(found, _)| found.at == at) else { continue };
                match found.access {
                    Access::Load if single.executes(index, found.instruction) => alone |= bits,
                    Access::Load => now |= bits,
                    Access::Store => {
                        let by_all = now & bits != 0;
                        if by_all || alone & bits != 0 && !single.executes(index, found.instruction) {
                            stores.push(at);
                        }
                        now &= !bits;
                        alone &= !bits;
                    }
                }
            }
            now |= alone;
            for &next in &block.successors {
                changed |= now & !read[next] != 0;
                read[next] |= now;
            }
        }
    }
    stores
}

fn find<'a>(
    at: usize,
    instruction: &'a Instruction,
    ops: &[Op],
    accesses: &[Option<(Access, bool)>],
) -> Option<Found<'a>> {
    let form = instruction.form.0.checked_sub(synthetic::COUNT)?;
    let (access, _) = accesses[form as usize]?;
    let (Op::Ld { ty, vector, .. } | Op::St { ty, vector, .. }) = ops[instruction.form.0 as usize] else {
        return None;
    };
    let named = match *instruction.operands.get(if access == Access::Load { 1 } else { 0 })? {
        Operand::Address(AddressBase::Symbol(symbol), offset) | Operand::Symbol(symbol, offset) => {
            Some((symbol, offset))
        }
        _ => None,
    };
    let bytes = i64::from(ty.bits() / 8) * i64::from(vector);
    Some(Found { at, access, instruction, named, address: None, differs: false, conditions: 0, bytes })
}

/// Whether a store, at an address that was computed or behind a load of one, may be meant for what all threads have read.
fn may_write(store: &Found, load: &Found, addresses: &Addresses) -> bool {
    let (Some(to), Some(from)) = (&store.address, &load.address) else { return false };
    let root = |&(term, factor): &(u32, i64)| {
        factor == 1 && addresses.kind(term).kind == Kind::Root && from.factor(term) == 1
    };
    if !to.terms.iter().any(root) {
        return false;
    }
    let difference = to.minus(from);
    let term = |&(term, _): &(u32, i64)| addresses.kind(term);
    if store.differs {
        // A given distance leads to another part of the memory.
        let given =
            |t| !term(t).by_thread && matches!(term(t).kind, Kind::Root | Kind::Invariant | Kind::Product);
        return !difference.terms.iter().any(given);
    }
    let overlaps = -store.bytes < difference.constant && difference.constant < load.bytes;
    difference.terms.is_empty() && overlaps && store.conditions > load.conditions
}
