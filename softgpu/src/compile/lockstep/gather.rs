//! Finds loops in which an operation of a warp takes whoever is there, and lets lanes meet before their next round.
//!
//! `activemask`, and with it cooperative groups' `coalesced_threads`, is for the lanes that have come to it together. On a device lanes that
//! part in a loop meet again where their ways do, before any of them goes on to the next round. Here a lane that goes the other way would
//! be round the loop already, and come to the operation from another round than those that wait there.

use std::collections::BTreeSet;

use super::super::flow::{Flow, instructions};
use super::super::op::Op;
use super::address;
use super::ways::{Ways, begins};
use rgpu_image::ptx::ast::{Function, Instruction};

/// Whether an instruction is such an operation.
fn is_gathering(instruction: &Instruction, ops: &[Op]) -> bool {
    matches!(ops[instruction.form.0 as usize], Op::ActiveMask)
}

/// Whether a function has one.
pub(super) fn gathers(function: &Function, ops: &[Op]) -> bool {
    address::instructions(function).any(|(_, instruction)| is_gathering(instruction, ops))
}

/// Statements before which the lanes of a warp have to wait for each other. None where there is no such loop.
pub(super) fn places(function: &Function, ops: &[Op], flow: &Flow, ways: &Ways) -> BTreeSet<usize> {
    let gathers = |block| instructions(function, block).any(|instruction| is_gathering(instruction, ops));
    let gathering: Vec<bool> = flow.blocks.iter().map(gathers).collect();
    let predecessors = flow.predecessors();
    let loops: Vec<Vec<usize>> =
        flow.back_edges().into_iter().map(|edge| flow.loop_blocks(edge, &predecessors)).collect();
    let meeting = ways.meetings().filter_map(|meeting| {
        let mut apart = false;
        meeting.between(flow, |block| apart |= gathering[block]);
        let goes_round =
            |members: &Vec<usize>| members.contains(&meeting.branch) && members.contains(&meeting.meet);
        (apart && loops.iter().any(goes_round)).then(|| begins(function, ops, &flow.blocks[meeting.meet]))?
    });
    meeting.collect()
}
