//! Finds where one thread of a block counts the block as done before its others are.
//!
//! All threads of a block store for all, or add to a sum, and then one of them raises the number of blocks that are done (`atomicInc`), with no barrier
//! between; who finds that all blocks are takes what they have left. PCL's reconstruction from depth images counts its points so. On a device a block's warps go on
//! at about the same time, so that at most the last ones are missed; here the first thread would come there before the others have begun. So it
//! lets them go first.

use std::collections::BTreeSet;

use super::super::flow::Flow;
use super::super::op::Op;
use super::super::opcode::Combine;
use super::address::{Addresses, instructions};
use super::ahead::{before, stores_for_all};
use super::ways::Ways;
use rgpu_image::ptx::ast::{AddressBase, Function, Guard, Instruction, Operand, Statement};

/// Others may have stored since all threads have waited for each other.
const STORED: u128 = 1;
/// More numbers of blocks are not looked at.
const NUMBERS: usize = 8;

/// Whether a function raises such numbers at all.
pub(super) fn are_there(function: &Function, ops: &[Op]) -> bool {
    instructions(function).any(|(_, instruction)| raises(&ops[instruction.form.0 as usize]))
}

/// Whether an operation raises a number of which it is known where it ends, in memory of all blocks.
fn raises(op: &Op) -> bool {
    matches!(op, Op::Atom { shared: false, op: Combine::Inc, .. })
}

/// Statements before which the thread that executes them lets others go first, with their guards.
pub(super) fn places(
    function: &Function,
    ops: &[Op],
    flow: &Flow,
    addresses: &Addresses,
) -> Vec<(usize, Option<Guard>)> {
    let ways = Ways::new(function, flow, |predicate| addresses.differs(predicate));
    let op = |instruction: &Instruction| &ops[instruction.form.0 as usize];
    let raised = instructions(function).filter(|(_, instruction)| raises(op(instruction)));
    let is_number = |(at, instruction): (usize, &Instruction)| {
        let one = match instruction.operands.iter().find(|o| matches!(o, Operand::Address(..))) {
            Some(Operand::Address(AddressBase::Reg(register), _)) => !addresses.differs(register.0),
            found => found.is_some(),
        };
        let own_block = flow.blocks.iter().position(|block| (block.first..block.end).contains(&at))?;
        let guarded = instruction.guard.is_some_and(|guard| addresses.differs(guard.register.0));
        let own = if guarded { BTreeSet::new() } else { ways.own_way(flow, own_block)? };
        let comes_first = || {
            let mut first = false;
            before(flow, 0, |block, mut now| {
                for (place, statement) in (flow.blocks[block].first..)
                    .zip(&function.body[flow.blocks[block].first..flow.blocks[block].end])
                {
                    let Statement::Instruction(other) = statement else { continue };
                    if matches!(op(other), Op::Bar { warp: false, .. }) && other.guard.is_none() {
                        now = 0;
                    } else if place == at {
                        first |= now & STORED != 0;
                    } else if changes_for_all(op(other)) && !own.contains(&block) {
                        now |= STORED;
                    }
                }
                now
            });
            first
        };
        (one && comes_first()).then_some((at, instruction.guard))
    };
    raised.take(NUMBERS).filter_map(is_number).collect()
}

/// Whether an operation changes memory of all blocks, or may.
fn changes_for_all(op: &Op) -> bool {
    stores_for_all(op) || matches!(op, Op::Atom { shared: false, .. })
}
