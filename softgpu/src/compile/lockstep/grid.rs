//! Finds where one thread, or one block, reads what all blocks of the grid have just stored.
//!
//! Threads divide elements by their sum, each its own, and then the first thread of the grid adds all of them up, behind a barrier of its block alone (Rodinia's
//! particle filter). By CUDA's rules other blocks may not have begun then. On a device they have been through for long: a grid of a few blocks begins at
//! once, and one thread that reads thousands of elements takes its time. Here the block may be the first of all to run. So it lets all others go first.
//!
//! That is not done where blocks may wait for each other: what one of them waits for might be what this block does.

use std::collections::BTreeSet;

use super::super::flow::{Access, Flow, visit};
use super::super::op::{IntOp, IntTernary, MemoryTarget, Op, Order};
use super::super::opcode::Compare;
use super::super::vars::Vars;
use super::address::{Addresses, Linear, instructions};
use super::ahead::stores_for_all;
use super::ways::reached;
use rgpu_image::ptx::ast::{AddressBase, Function, Instruction, Operand, Special, Statement};

/// Whether a function has branches for one block or thread of the grid alone, and loops, and stores for all.
pub(super) fn are_there(function: &Function, ops: &[Op]) -> bool {
    let op = |instruction: &Instruction| &ops[instruction.form.0 as usize];
    let mut seen = (false, false, false);
    for (_, instruction) in instructions(function) {
        let op = op(instruction);
        if may_wait(op) {
            return false;
        }
        seen.0 |= stores_for_all(op);
        seen.1 |= instruction.operands.iter().any(is_number_of_block);
        seen.2 |= matches!(op, Op::Setp { compare: Compare::Eq | Compare::Ne, .. });
    }
    let one = || of_one_block(function, ops, &Vars::new(function, ops)).iter().any(Option::is_some);
    seen == (true, true, true) && one()
}

/// Whether a thread may find out by an operation what other blocks do meanwhile.
fn may_wait(op: &Op) -> bool {
    match op {
        Op::Atom { shared, result, .. } => !shared && *result,
        Op::Ld { place, order, .. } => *place == MemoryTarget::Generic && *order == Order::Strong,
        Op::Call => true,
        _ => false,
    }
}

fn is_number_of_block(operand: &Operand) -> bool {
    matches!(operand, Operand::Special(Special::CtaidX | Special::CtaidY | Special::CtaidZ))
}

/// By register: whether it depends on the number of a block through operations that pass this on.
fn depending(function: &Function, ops: &[Op], vars: &Vars, passes: fn(&Op) -> bool) -> Vec<bool> {
    let op = |instruction: &Instruction| &ops[instruction.form.0 as usize];
    let mut differs = vec![false; vars.types.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (_, instruction) in instructions(function).filter(|(_, i)| passes(op(i))) {
            let mut reads = instruction.operands.iter().any(is_number_of_block);
            let mut written = Vec::new();
            visit(instruction, op(instruction), vars, &mut |register, access| match access {
                Access::Use => reads |= differs[register as usize],
                Access::Define => written.push(register),
            });
            for register in written.into_iter().filter(|_| reads) {
                changed |= !std::mem::replace(&mut differs[register as usize], true);
            }
        }
    }
    differs
}

/// By register: whether it is a predicate that is so for one block alone, or for some of its threads.
fn of_one_block(function: &Function, ops: &[Op], vars: &Vars) -> Vec<Option<bool>> {
    let numbers = depending(function, ops, vars, is_sum);
    let mut predicates = vec![None; vars.types.len()];
    let writes = super::super::flow::writes(function, ops, vars);
    for (_, instruction) in instructions(function).filter(|(_, i)| i.guard.is_none()) {
        let Some(Operand::Reg(written)) = instruction.operands.first() else { continue };
        let number = |operand: &Operand| match operand {
            Operand::Reg(register) => numbers[register.0 as usize],
            operand => is_number_of_block(operand),
        };
        let known = |operand: &Operand| match operand {
            Operand::Reg(register) => predicates[register.0 as usize],
            Operand::NotReg(register) => predicates[register.0 as usize].map(|is: bool| !is),
            _ => None,
        };
        let sources = &instruction.operands[1..];
        // One of them is enough where both have to be so.
        let either = |asked: bool| sources.iter().map(known).find(|is| *is == Some(asked)).flatten();
        let of_one = match &ops[instruction.form.0 as usize] {
            Op::Setp { compare, combine: None, .. } => {
                let compares = matches!(compare, Compare::Eq | Compare::Ne);
                let one = compares && sources.iter().filter(|source| number(source)).count() == 1;
                one.then_some(*compare == Compare::Eq)
            }
            Op::PredLogic { op: IntOp::And } => either(true),
            Op::PredLogic { op: IntOp::Or } => either(false),
            Op::PredNot => sources.first().and_then(known).map(|is| !is),
            _ => None,
        };
        if writes[written.0 as usize] == 1 {
            predicates[written.0 as usize] = of_one;
        }
    }
    predicates
}

/// Whether an operation makes of a block's number one that differs from block to block.
fn is_sum(op: &Op) -> bool {
    match op {
        Op::Mov { .. } | Op::MulWide { .. } | Op::MadWide { .. } | Op::Cvt { .. } => true,
        Op::Int { op, .. } => matches!(op, IntOp::Add | IntOp::Sub | IntOp::MulLo | IntOp::Shl | IntOp::Or),
        Op::IntTernary { op, .. } => *op == IntTernary::MadLo,
        _ => false,
    }
}

/// Statements before which a thread lets all other blocks go first.
pub(super) fn places(
    function: &Function,
    ops: &[Op],
    flow: &Flow,
    addresses: &mut Addresses,
) -> BTreeSet<usize> {
    let vars = Vars::new(function, ops);
    let predicates = of_one_block(function, ops, &vars);
    let differs = depending(function, ops, &vars, |op| !matches!(op, Op::Ld { .. } | Op::Atom { .. }));
    let before = flow.predecessors();
    let loops = flow.loops();
    let mut found = BTreeSet::new();
    for from in 0..flow.blocks.len() {
        let Some(guard) = flow.last(from, function).and_then(|last| last.guard) else { continue };
        let Some(is_one) = predicates[guard.register.0 as usize] else { continue };
        // Behind the branch goes on who does not take it.
        let taken = is_one != guard.negated;
        let entry = flow.blocks[from].successors.iter().copied().find(|&to| (to == from + 1) != taken);
        let Some(entry) = entry.filter(|&entry| before[entry][..] == [from]) else { continue };
        let inside = dominated(flow, &before, entry);
        let in_loop = |block: usize| {
            let own = |(head, of): (&usize, &BTreeSet<usize>)| inside[*head] && of.contains(&block);
            loops.iter().any(own)
        };
        let gathered = accesses(function, ops, flow, addresses, |block, _, op| {
            inside[block] && in_loop(block) && matches!(op, Op::Ld { place: MemoryTarget::Generic, .. })
        });
        if gathered.is_empty() {
            continue;
        }
        let leads = reached(before.len(), &before[entry], |block| &before[block]);
        let stored = accesses(function, ops, flow, addresses, |block, instruction, op| {
            let address = match instruction.operands.first() {
                Some(Operand::Address(AddressBase::Reg(register), _)) => Some(register),
                _ => None,
            };
            let own = address.is_some_and(|register| differs[register.0 as usize]);
            stores_for_all(op) && own && leads[block] && !inside[block]
        });
        let goes_round = |load: &&Linear| load.terms.iter().any(|&(term, _)| addresses.kind(term).by_turn);
        let reads_all = gathered
            .iter()
            .filter(goes_round)
            .any(|load| stored.iter().any(|store| addresses.have_one_root(load, store)));
        let first = (flow.blocks[entry].first..flow.blocks[entry].end)
            .find(|&at| matches!(function.body[at], Statement::Instruction(_)));
        found.extend(first.filter(|_| reads_all));
    }
    found
}

/// The addresses of some accesses.
fn accesses(
    function: &Function,
    ops: &[Op],
    flow: &Flow,
    addresses: &mut Addresses,
    asked: impl Fn(usize, &Instruction, &Op) -> bool,
) -> Vec<Linear> {
    let mut found = Vec::new();
    for (number, block) in flow.blocks.iter().enumerate() {
        for statement in &function.body[block.first..block.end] {
            let Statement::Instruction(instruction) = statement else { continue };
            let op = &ops[instruction.form.0 as usize];
            if asked(number, instruction, op)
                && let Some((operand, _)) = super::accessed(instruction, op)
            {
                found.extend(addresses.address(operand));
            }
        }
    }
    found
}

/// The blocks that are come to through one of them alone.
fn dominated(flow: &Flow, before: &[Vec<usize>], entry: usize) -> Vec<bool> {
    let mut inside = reached(flow.blocks.len(), &[entry], |block| &flow.blocks[block].successors);
    let mut changed = true;
    while changed {
        changed = false;
        for block in 0..inside.len() {
            if inside[block] && block != entry && before[block].iter().any(|&from| !inside[from]) {
                inside[block] = false;
                changed = true;
            }
        }
    }
    inside
}
