//! Accesses of a kernel to its block's memory, or to that of all blocks.

use super::super::flow::Flow;
use super::super::op::{MemoryTarget, Op};
use super::accessed;
use super::accesses::{Access, Accesses};
use super::address::{Addresses, Linear};
use rgpu_image::ptx::ast::{AddressBase, Function, Instruction, Operand, Statement, Symbol};

/// An access to such memory.
pub(super) struct Found<'a> {
    pub at: usize,
    pub access: Access,
    pub instruction: &'a Instruction,
    /// The variable and the offset in it, if all threads name the same.
    pub named: Option<(Symbol, i64)>,
    /// None without [`Addresses`].
    pub address: Option<Linear>,
    /// Whether threads name different addresses;
    pub differs: bool,
    /// also those of one warp.
    pub by_lane: bool,
    /// Whether they name elements beside their own, but where these are at an edge.
    pub at_edge: bool,
    /// Whether it is volatile, so that the lanes of a warp wait before it anyway.
    pub volatile: bool,
    /// On how many conditions that may divide a block it depends.
    pub conditions: u32,
    pub bytes: i64,
}

impl Found<'_> {
    /// What is stored; none where nothing is, or more is done than that.
    pub(super) fn value(&self) -> Option<&Operand> {
        self.instruction.operands.get(1).filter(|_| self.access == Access::Store)
    }
}

/// What memory is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// The block's.
    Block,
    /// That of all blocks, but for atomic operations.
    All,
}

/// All accesses to a memory, by the blocks that they stand in. `conditions` says of each of these on how many conditions that may divide a block it depends.
pub(super) fn find<'a>(
    (function, ops): (&'a Function, &[Op]),
    memory: Memory,
    accesses: &Accesses,
    flow: &Flow,
    conditions: &[u32],
    mut addresses: Option<&mut Addresses>,
) -> Vec<Vec<Found<'a>>> {
    let mut find = |at: usize, conditions: u32| {
        let Statement::Instruction(instruction) = &function.body[at] else { return None };
        let op = &ops[instruction.form.0 as usize];
        let access = match (memory, accesses.shared(at, instruction), op) {
            (Memory::Block, Some((access, _)), _) => access,
            (Memory::Block, None, Op::Atom { .. }) if accesses.is_shared(at, op) => Access::Atomic,
            (Memory::All, None, Op::Ld { place: MemoryTarget::Generic, .. }) => Access::Load,
            (Memory::All, None, Op::St { place: MemoryTarget::Generic, .. }) => Access::Store,
            _ => return None,
        };
        let volatile = accesses.is_volatile(at, instruction);
        let (operand, bytes) = accessed(instruction, op)?;
        let named = match *operand {
            Operand::Address(AddressBase::Symbol(symbol), offset) | Operand::Symbol(symbol, offset) => {
                Some((symbol, offset))
            }
            _ => None,
        };
        let address = addresses.as_deref_mut().and_then(|addresses| addresses.address(operand));
        let computed = || addresses.as_deref()?.place_in_variable(address.as_ref()?);
        let named = named.or_else(computed);
        let differs = |register: u32| addresses.as_deref().is_some_and(|a| a.differs(register));
        let guarded = instruction.guard.is_some_and(|g| differs(g.register.0));
        let conditions = conditions + u32::from(guarded);
        let by_lane = |register: u32| addresses.as_deref().is_some_and(|a| a.divides(register));
        let at_edge = |register: u32| addresses.as_deref().is_some_and(|a| a.is_at_edge(register));
        let (differs, by_lane, at_edge) = match *operand {
            Operand::Address(AddressBase::Reg(r), _) => (differs(r.0), by_lane(r.0), at_edge(r.0)),
            _ => (false, false, false),
        };
        Some(Found {
            at,
            access,
            instruction,
            named,
            address,
            differs,
            by_lane,
            at_edge,
            volatile,
            conditions,
            bytes,
        })
    };
    let blocks = flow.blocks.iter().zip(conditions);
    blocks
        .map(|(block, &conditions)| (block.first..block.end).filter_map(|at| find(at, conditions)).collect())
        .collect()
}
