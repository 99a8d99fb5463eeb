//! Finds copies (`cp.async`) that may overwrite what other threads of the block have not read yet.
//!
//! Behind a barrier threads read a block's results from its memory, store them for all, and begin to copy what comes next to the same
//! memory, with no barrier between: Marlin's products of matrices do, which serve language models. On a device the copies arrive long after
//! the last warp has read; here the first thread would have made them before. So all let others go first before the first of these copies.
//!
//! Copies behind which nothing was stored for all, as in the pipeline of a product's loop, are left alone: they go to another part of the memory.

use super::super::flow::Flow;
use super::super::op::Op;
use super::accesses::{Access, Accesses};
use super::ahead::{before, stores_for_all, waits};
use rgpu_image::ptx::ast::{Function, Statement};

/// All threads have waited for each other,
const TOGETHER: u128 = 1;
/// have read from the block's memory since then,
const READ: u128 = 2;
/// and have stored elsewhere since that.
const STORED: u128 = 4;

/// Whether a function has such copies at all.
pub(super) fn are_there(function: &Function, ops: &[Op]) -> bool {
    super::address::instructions(function).any(|(_, i)| matches!(ops[i.form.0 as usize], Op::CpAsync { .. }))
}

/// Statements before which threads let others go first.
pub(super) fn places(function: &Function, ops: &[Op], flow: &Flow, accesses: &Accesses) -> Vec<usize> {
    let mut found = Vec::new();
    let mut through = |block: usize, mut now: u128| {
        for at in flow.blocks[block].first..flow.blocks[block].end {
            let Statement::Instruction(instruction) = &function.body[at] else { continue };
            let op = &ops[instruction.form.0 as usize];
            let shared = accesses.shared(at, instruction).map(|(access, _)| access);
            match op {
                _ if waits(instruction, op) => now = TOGETHER,
                Op::CpAsync { .. } if now & STORED != 0 => {
                    found.push(at);
                    now = TOGETHER;
                }
                _ if stores_for_all(op) && shared.is_none() && now & READ != 0 => {
                    now |= STORED;
                }
                _ if shared == Some(Access::Load) && now & TOGETHER != 0 => now |= READ,
                _ => {}
            }
        }
        now
    };
    before(flow, 0, &mut through);
    found.sort_unstable();
    found.dedup();
    found
}
