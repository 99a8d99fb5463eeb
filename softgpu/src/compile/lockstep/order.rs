//! Puts the blocks of a kernel in an order in which lanes that have gone different ways meet again.
//!
//! Lanes that wait at different places are let go from the one that comes first in the text, so that those who have gone the longer way come to
//! where the ways meet before the others leave it. That wants a text in which the ways come before the place where they meet, and loops before
//! what comes behind them. Compilers write most kernels so, but not those with loops that begin in their middle, or whose turns end at several places:
//! these are made to end at one, where lanes can meet before the next turn.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use super::super::flow::Flow;
use super::super::inline::branch;
use super::super::op::Op;
use rgpu_image::ptx::ast::{Function, LabelId, Operand, Statement};

/// Loops times blocks, beyond which a kernel stays as it is.
const WORK: usize = 1 << 18;

/// Lets all turns of each loop end at one place, where they end at several. Whether there is such a loop.
pub(super) fn join_turns(function: &mut Function, ops: &[Op]) -> bool {
    let flow = Flow::new(function, ops);
    let mut tails: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    flow.back_edges().into_iter().for_each(|(tail, head)| tails.entry(head).or_default().push(tail));
    let names_table = |&tail: &usize| {
        let operands = flow.last(tail, function).map_or(&[][..], |last| &last.operands[..]);
        operands.iter().any(|operand| matches!(operand, Operand::BranchTable(_)))
    };
    tails.retain(|_, tails| tails.len() > 1 && !tails.iter().any(names_table));
    let ends = flow.predecessors().last().is_some_and(|before| !before.is_empty());
    if tails.is_empty() || ends {
        return false;
    }
    let begins: HashMap<usize, usize> =
        flow.labels.iter().enumerate().map(|(label, &block)| (block, label)).collect();
    let mut joined = Vec::new();
    // What statements are to be put behind others.
    let mut behind: BTreeMap<usize, Statement> = BTreeMap::new();
    for (head, tails) in tails {
        let Some(&begin) = begins.get(&head) else { continue };
        let end = new_label(function);
        for tail in tails {
            let at = flow.blocks[tail].end - 1;
            let falls = tail + 1 == head && flow.falls(tail, function, ops);
            let line = flow.last(tail, function).map_or(function.line, |last| last.line);
            if let Statement::Instruction(last) = &mut function.body[at]
                && let Some(Operand::Label(label)) = last.operands.first_mut()
                && flow.labels[label.0 as usize] == head
            {
                *label = end;
            }
            if falls {
                behind.insert(at, branch(end, None, line));
            }
        }
        joined.extend([Statement::Label(end), branch(LabelId(begin as u32), None, function.line)]);
    }
    let body = std::mem::take(&mut function.body);
    for (at, statement) in body.into_iter().enumerate() {
        function.body.push(statement);
        function.body.extend(behind.remove(&at));
    }
    function.body.extend(joined);
    true
}

fn new_label(function: &mut Function) -> LabelId {
    function.labels += 1;
    function.label_names.push(String::new());
    LabelId(function.labels - 1)
}

/// Puts a kernel's blocks in that order, where they are not and there is one.
pub(super) fn arrange(function: &mut Function, ops: &[Op]) {
    let flow = Flow::new(function, ops);
    if let Some(order) = order(&flow)
        && order.iter().enumerate().any(|(place, &block)| place != block)
    {
        rearrange(function, ops, &flow, &order);
    }
}

/// The blocks in order; as they stand in the text, as far as that is one. None if there is none, as in loops that are entered at several places.
fn order(flow: &Flow) -> Option<Vec<usize>> {
    let count = flow.blocks.len();
    let mut after: Vec<Vec<usize>> = flow.blocks.iter().map(|block| block.successors.clone()).collect();
    let back = flow.back_edges();
    if back.len().checked_mul(count).is_none_or(|work| work > WORK) {
        return None;
    }
    for (tail, head) in back {
        after[tail].retain(|&next| next != head);
    }
    // What comes behind a loop comes behind all of it, and so behind a node that stands for its end.
    for inside in flow.loops().values() {
        let end = after.len();
        inside.iter().for_each(|&block| after[block].push(end));
        let left = |&block: &usize| flow.blocks[block].successors.iter().copied();
        let exits: BTreeSet<usize> =
            inside.iter().flat_map(left).filter(|next| !inside.contains(next)).collect();
        after.push(exits.into_iter().collect());
    }
    // Where the text ends, the function does.
    after[..count - 1].iter_mut().for_each(|after| after.push(count - 1));
    let mut missing = vec![0; after.len()];
    after.iter().flatten().for_each(|&next| missing[next] += 1);
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..count).filter(|&block| missing[block] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(Reverse(block)) = ready.pop() {
        order.push(block);
        let mut done = vec![block];
        while let Some(node) = done.pop() {
            for &next in &after[node] {
                missing[next] -= 1;
                match missing[next] {
                    0 if next < count => ready.push(Reverse(next)),
                    0 => done.push(next),
                    _ => {}
                }
            }
        }
    }
    (order.len() == count && order.first() == Some(&0)).then_some(order)
}

/// Writes the blocks in another order, with branches where one followed the other.
fn rearrange(function: &mut Function, ops: &[Op], flow: &Flow, order: &[usize]) {
    let falls: Vec<bool> = (0..flow.blocks.len()).map(|block| flow.falls(block, function, ops)).collect();
    let body = std::mem::take(&mut function.body);
    let mut labels: Vec<Option<LabelId>> = flow
        .blocks
        .iter()
        .map(|block| match body.get(block.first) {
            Some(Statement::Label(label)) if block.first < block.end => Some(*label),
            _ => None,
        })
        .collect();
    // The blocks that followed those behind which others stand now.
    let led: Vec<Option<usize>> = order
        .iter()
        .enumerate()
        .map(|(place, &block)| {
            let next = Some(block + 1).filter(|&next| next < flow.blocks.len() && falls[block])?;
            (order.get(place + 1) != Some(&next)).then_some(next)
        })
        .collect();
    for &next in led.iter().flatten() {
        labels[next].get_or_insert_with(|| new_label(function));
    }
    let mut line = function.line;
    for (&block, next) in order.iter().zip(led) {
        let statements = &body[flow.blocks[block].first..flow.blocks[block].end];
        if let Some(label) = labels[block]
            && !matches!(statements.first(), Some(Statement::Label(_)))
        {
            function.body.push(Statement::Label(label));
        }
        for statement in statements {
            if let Statement::Instruction(instruction) = statement {
                line = instruction.line;
            }
            function.body.push(statement.clone());
        }
        if let Some(label) = next.and_then(|next| labels[next]) {
            function.body.push(branch(label, None, line));
        }
    }
}
