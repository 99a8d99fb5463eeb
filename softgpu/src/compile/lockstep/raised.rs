//! Finds where a thread raises a number that threads of other blocks may still wait for to be just so.
//!
//! Xiao and Feng's barrier for all blocks of a grid ("Inter-block GPU communication via fast barrier synchronization", 2010): one thread of each block adds one to a number, and looks at it again
//! and again until it equals what it is when all blocks have come (`while (mutex != goal)`). Who has seen that goes on, and adds one at the next such barrier, where the others wait for
//! ever if they have not looked meanwhile. On a device each of them looks every few hundred cycles. Here a block that waits may not run for long. So a thread lets all other blocks have
//! a turn before it raises such a number.

use std::collections::BTreeMap;

use super::super::flow::Flow;
use super::super::op::{MemoryTarget, Op, Order};
use super::super::opcode::{Combine, Compare};
use super::accessed;
use super::address::{Addresses, Linear, instructions};
use super::ways::reached;
use rgpu_image::ptx::ast::{Function, Guard, Instruction, Operand, RegId, Statement};

/// Whether a function has what may be such numbers at all.
pub(super) fn are_there(function: &Function, ops: &[Op]) -> bool {
    let mut seen = (false, false, false);
    for (_, instruction) in instructions(function) {
        let op = &ops[instruction.form.0 as usize];
        seen.0 |= raises(instruction, op);
        seen.1 |= looks(instruction, op);
        seen.2 |= compares(op);
    }
    seen == (true, true, true)
}

/// Whether an instruction raises a number in memory of all blocks.
fn raises(instruction: &Instruction, op: &Op) -> bool {
    let Op::Atom { shared: false, op: Combine::Add | Combine::Inc, result, .. } = op else { return false };
    !matches!(instruction.operands.get(1 + usize::from(*result)), Some(Operand::Int(0, _)))
}

/// Whether an instruction looks at a number in memory of all blocks that others may raise meanwhile.
fn looks(instruction: &Instruction, op: &Op) -> bool {
    match op {
        Op::Ld { place: MemoryTarget::Generic, order: Order::Strong, vector: 1, .. } => true,
        Op::Atom { shared: false, op: Combine::Add, result: true, .. } => {
            matches!(instruction.operands.get(2), Some(Operand::Int(0, _)))
        }
        _ => false,
    }
}

/// Whether an operation asks whether two numbers are the same.
fn compares(op: &Op) -> bool {
    matches!(op, Op::Setp { compare: Compare::Eq | Compare::Ne, combine: None, .. })
}

/// Statements before which a thread lets all other blocks have a turn, with their guards.
pub(super) fn places(
    function: &Function,
    ops: &[Op],
    flow: &Flow,
    addresses: &mut Addresses,
) -> BTreeMap<usize, Option<Guard>> {
    let op = |instruction: &Instruction| &ops[instruction.form.0 as usize];
    let statements = |block: usize| {
        let range = flow.blocks[block].first..flow.blocks[block].end;
        range.filter_map(|at| match &function.body[at] {
            Statement::Instruction(instruction) => Some((at, instruction)),
            Statement::Label(_) => None,
        })
    };
    // Numbers that threads wait for in loops, and the loops' first blocks.
    let mut awaited: Vec<(usize, Linear)> = Vec::new();
    for (&head, inside) in &flow.loops() {
        let within = || inside.iter().flat_map(|&block| statements(block));
        // What else is raised there is no wait.
        if within().any(|(_, instruction)| raises(instruction, op(instruction))) {
            continue;
        }
        for (_, look) in within().filter(|(_, instruction)| looks(instruction, op(instruction))) {
            let Some(&Operand::Reg(RegId(seen))) = look.operands.first() else { continue };
            let is_compared = within().any(|(_, instruction)| {
                let mut sources = instruction.operands.iter().skip(1);
                compares(op(instruction))
                    && sources.any(|o| matches!(o, Operand::Reg(RegId(r)) if *r == seen))
            });
            if is_compared && let Some((operand, _)) = accessed(look, op(look)) {
                awaited.extend(addresses.address(operand).map(|address| (head, address)));
            }
        }
    }
    let mut found = BTreeMap::new();
    if awaited.is_empty() {
        return found;
    }
    // What comes before a block without going back.
    let mut before = flow.predecessors();
    for (tail, head) in flow.back_edges() {
        before[head].retain(|&from| from != tail);
    }
    let awaited: Vec<(Vec<bool>, Linear)> = awaited
        .into_iter()
        .map(|(head, number)| (reached(before.len(), &before[head], |block| &before[block]), number))
        .collect();
    for block in 0..flow.blocks.len() {
        for (at, raise) in statements(block).filter(|(_, instruction)| raises(instruction, op(instruction))) {
            let Some((operand, _)) = accessed(raise, op(raise)) else { continue };
            let Some(address) = addresses.address(operand) else { continue };
            if awaited.iter().any(|(comes_before, number)| *number == address && comes_before[block]) {
                found.insert(at, raise.guard);
            }
        }
    }
    found
}
