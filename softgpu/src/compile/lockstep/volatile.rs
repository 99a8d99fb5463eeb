//! Keeps lanes abreast at volatile accesses to the block's memory.

use std::collections::BTreeSet;

use super::super::flow::{Block, Flow};
use super::super::op::Op;
use super::super::unit::synthetic;
use super::accesses::{Access, Accesses, Forms};
use super::address::{Addresses, Rows};
use super::exchange::BLOCKS;
use super::ways::{Ways, begins};
use super::{Places, slots, wait_before, waiting};
use rgpu_image::ptx::ast::{Function, Instruction, Module, Statement};

/// What the lanes have done since they were last abreast.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    /// Nothing that another lane could notice.
    Nothing,
    /// They have only read.
    Loads,
    /// They may have written, or nothing is known.
    Anything,
}

/// Whether a function has volatile accesses to the block's memory.
pub(super) fn accesses(function: &Function, module: &Module, ops: &[Op], forms: &Forms) -> bool {
    forms.volatile && volatile(function, module, ops, forms).iter().any(Option::is_some)
}

/// Lets lanes wait for each other before volatile accesses to the block's memory, and where ways meet on which some of them do.
/// Whether there are any such accesses.
pub(super) fn align(function: &mut Function, module: &Module, ops: &[Op], forms: &Forms) -> bool {
    if !forms.volatile {
        return false;
    }
    let found = volatile(function, module, ops, forms);
    before_accesses(function, ops, &found) && {
        // Those places have moved the statements.
        let found = volatile(function, module, ops, forms);
        let converging = where_lanes_meet(function, ops, &found);
        wait_before(function, &Places { converging, ..Places::default() });
        true
    }
}

/// The volatile accesses to the block's memory, by statement.
fn volatile(function: &Function, module: &Module, ops: &[Op], forms: &Forms) -> Vec<Option<Access>> {
    let known = function.is_entry && forms.has_generic_volatile(function);
    let seen = known.then(|| slots::in_registers(function, ops));
    let mut addresses = seen.as_deref().and_then(|seen| Addresses::new(seen, ops, Rows::Whole));
    let accesses = Accesses::new(function, module, ops, forms, addresses.as_mut());
    let access = |(at, statement): (usize, &Statement)| match statement {
        Statement::Instruction(i) => {
            accesses.shared(at, i).filter(|(_, volatile)| *volatile).map(|(access, _)| access)
        }
        Statement::Label(_) => None,
    };
    function.body.iter().enumerate().map(access).collect()
}

/// Puts waiting in front of volatile accesses to the block's memory. Whether there are any.
fn before_accesses(function: &mut Function, ops: &[Op], volatile: &[Option<Access>]) -> bool {
    let mut since = if function.is_entry { Since::Nothing } else { Since::Anything };
    let mut waits = false;
    let mut body = Vec::with_capacity(function.body.len());
    for (statement, volatile) in std::mem::take(&mut function.body).into_iter().zip(volatile) {
        match &statement {
            Statement::Label(_) => since = Since::Anything,
            Statement::Instruction(instruction) => match volatile {
                Some(access) => {
                    let first = since == Since::Nothing;
                    let reads = *access == Access::Load && since == Since::Loads;
                    if !first && !reads {
                        waits = true;
                        body.push(Statement::Instruction(waiting(synthetic::CONVERGE, instruction.line)));
                    }
                    since = if *access == Access::Load { Since::Loads } else { Since::Anything };
                }
                None => match &ops[instruction.form.0 as usize] {
                    Op::Call | Op::Atom { .. } => since = Since::Anything,
                    Op::Yield | Op::GridYield { .. } => {}
                    op if op.is_cut() && instruction.guard.is_none() => since = Since::Nothing,
                    _ => {}
                },
            },
        }
        body.push(statement);
    }
    function.body = body;
    waits
}

/// Statements before which lanes wait for those that have gone another way and come to such an access on it, before they come to the next one
/// themselves. So does the first lane that takes the sum of a row before the others go on to the next row.
fn where_lanes_meet(function: &Function, ops: &[Op], volatile: &[Option<Access>]) -> BTreeSet<usize> {
    let flow = Flow::new(function, ops);
    let mut places = BTreeSet::new();
    if flow.blocks.len() > BLOCKS {
        return places;
    }
    // What callers of a function give it may differ.
    let seen = function.is_entry.then(|| slots::in_registers(function, ops));
    let addresses = seen.as_deref().and_then(|seen| Addresses::new(seen, ops, Rows::Short));
    let divides = |predicate| addresses.as_ref().is_none_or(|addresses| addresses.divides(predicate));
    let ways = Ways::new(function, &flow, divides);
    let what = |at: usize| match &function.body[at] {
        Statement::Instruction(i) => What::of(i, &ops[i.form.0 as usize], volatile[at].is_some()),
        Statement::Label(_) => None,
    };
    let of_block = |block: &Block| (block.first..block.end).filter_map(what).collect();
    let whats: Vec<Vec<What>> = flow.blocks.iter().map(of_block).collect();
    for meeting in ways.meetings() {
        let mut accessed = false;
        meeting.between(&flow, |block| accessed |= whats[block].contains(&What::Access));
        if accessed && comes_to_access(&flow, &whats, meeting.meet) {
            places.extend(begins(function, ops, &flow.blocks[meeting.meet]));
        }
    }
    places
}

/// What matters to where lanes meet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// A volatile access, or what may be one; or an operation of whoever has come.
    Access,
    /// All lanes wait for each other.
    Order,
}

impl What {
    fn of(instruction: &Instruction, op: &Op, volatile: bool) -> Option<Self> {
        if volatile || matches!(op, Op::Call | Op::ActiveMask) {
            return Some(Self::Access);
        }
        let orders = op.is_cut()
            && instruction.guard.is_none()
            && !matches!(op, Op::Yield | Op::GridYield { .. } | Op::Converge);
        orders.then_some(Self::Order)
    }
}

/// Whether lanes may come to an access from where a block begins, with nothing before that gives an order.
fn comes_to_access(flow: &Flow, whats: &[Vec<What>], from: usize) -> bool {
    let mut seen = vec![false; flow.blocks.len()];
    let mut work = vec![from];
    while let Some(block) = work.pop() {
        if !std::mem::replace(&mut seen[block], true) {
            match whats[block].first() {
                Some(What::Access) => return true,
                Some(What::Order) => {}
                None => work.extend(&flow.blocks[block].successors),
            }
        }
    }
    false
}
