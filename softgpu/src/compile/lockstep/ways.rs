//! Where the threads of a warp or a block part, and where they meet again.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use super::super::flow::{Block, Flow};
use super::super::op::Op;
use rgpu_image::ptx::ast::{Function, Guard, Statement};

/// Branches times blocks, beyond which conditions are not counted.
const CONDITIONS: usize = 1 << 20;

/// The branches at which the lanes of a warp may go different ways.
pub(super) struct Ways {
    /// Their blocks, and those where the lanes meet again, if not at the end.
    pub(super) branches: Vec<(usize, Option<usize>)>,
    /// The same for branches in loops that some lanes may leave behind them: where those meet that stay, before the next turn, and the loop's
    /// blocks.
    turns: Vec<(usize, usize, Rc<BTreeSet<usize>>)>,
}

/// What a branch decides.
pub(super) struct Decision {
    guard: Guard,
    /// The blocks that come before all meet again, where the branch is taken, and where not.
    ways: [Vec<bool>; 2],
}

impl Decision {
    /// The guard, if it depends on the branch whether a lane comes to a block, and whether it takes the branch then, if that is known.
    pub(super) fn about(&self, block: usize) -> Option<(Guard, Option<bool>)> {
        match [self.ways[0][block], self.ways[1][block]] {
            [false, false] => None,
            [true, true] => Some((self.guard, None)),
            [taken, _] => Some((self.guard, Some(taken))),
        }
    }
}

/// Where lanes part, and where they meet again.
pub(super) struct Meeting<'a> {
    pub(super) branch: usize,
    pub(super) meet: usize,
    /// The blocks of the loop in which they stay, if others leave it.
    inside: Option<&'a BTreeSet<usize>>,
}

impl Meeting<'_> {
    /// Tells the blocks on the ways.
    pub(super) fn between(&self, flow: &Flow, f: impl FnMut(usize)) {
        let inside = |block: usize| self.inside.is_none_or(|inside| inside.contains(&block));
        walk(flow, self.branch, Some(self.meet), inside, f);
    }
}

/// The blocks that one comes to from some, and these, of so many; `next` says which follow on each.
pub(super) fn reached<'a>(count: usize, from: &[usize], next: impl Fn(usize) -> &'a [usize]) -> Vec<bool> {
    let mut reached = vec![false; count];
    let mut open = from.to_vec();
    while let Some(block) = open.pop() {
        if !std::mem::replace(&mut reached[block], true) {
            open.extend(next(block));
        }
    }
    reached
}

impl Ways {
    /// Finds them, where `divides` says of which predicates lanes may have different ones.
    pub(super) fn new(function: &Function, flow: &Flow, divides: impl Fn(u32) -> bool) -> Self {
        let blocks = &flow.blocks;
        let meets = meeting_blocks(blocks);
        let divided = |block: usize| {
            flow.last(block, function).is_some_and(|i| i.guard.is_none_or(|g| divides(g.register.0)))
        };
        let branches = (0..blocks.len()).filter(|&b| blocks[b].successors.len() > 1 && divided(b));
        let branches: Vec<_> = branches.map(|b| (b, meets[b])).collect();
        let turns = turns(flow, &branches);
        Self { branches, turns }
    }

    /// Where lanes part, and where they meet again; also those that stay in a loop, before its next turn.
    pub(super) fn meetings(&self) -> impl Iterator<Item = Meeting<'_>> {
        let branches = self.branches.iter();
        let branches =
            branches.filter_map(|&(branch, meet)| Some(Meeting { branch, meet: meet?, inside: None }));
        let turns = self.turns.iter();
        branches.chain(turns.map(|(branch, meet, inside)| Meeting {
            branch: *branch,
            meet: *meet,
            inside: Some(&**inside),
        }))
    }

    /// Tells the blocks on the ways from a branch to where they meet.
    pub(super) fn between(&self, flow: &Flow, branch: usize, meet: Option<usize>, f: impl FnMut(usize)) {
        walk(flow, branch, meet, |_| true, f);
    }

    /// On how many of the branches it depends whether a lane comes to each block; 0 in kernels with very many.
    pub(super) fn conditions(&self, flow: &Flow) -> Vec<u32> {
        let mut conditions = vec![0; flow.blocks.len()];
        if self.branches.len() * flow.blocks.len() <= CONDITIONS {
            for &(branch, meet) in &self.branches {
                self.between(flow, branch, meet, |block| conditions[block] += 1);
            }
        }
        conditions
    }

    /// What each branch decides; nothing in kernels with very many.
    pub(super) fn decisions(&self, function: &Function, flow: &Flow) -> Vec<Decision> {
        if self.branches.len() * flow.blocks.len() > CONDITIONS {
            return Vec::new();
        }
        let decision = |&(branch, meet): &(usize, Option<usize>)| {
            let guard = flow.last(branch, function)?.guard?;
            // Behind the branch goes on who does not take it.
            let ways = [true, false].map(|taken| {
                let successors = flow.blocks[branch].successors.iter();
                let other = successors.copied().find(|&block| (block == branch + 1) == taken);
                let mut leads = vec![false; flow.blocks.len()];
                walk(flow, branch, meet, |block| Some(block) != other, |block| leads[block] = true);
                leads
            });
            Some(Decision { guard, ways })
        };
        self.branches.iter().filter_map(decision).collect()
    }

    /// The blocks on the ways from the last branch before a block to where they meet again; none where all come to it, and in kernels with very many.
    pub(super) fn own_way(&self, flow: &Flow, of: usize) -> Option<BTreeSet<usize>> {
        if self.branches.len() * flow.blocks.len() > CONDITIONS {
            return None;
        }
        let between = self.branches.iter().map(|&(branch, meet)| {
            let mut blocks = BTreeSet::new();
            self.between(flow, branch, meet, |block| _ = blocks.insert(block));
            blocks
        });
        between.filter(|blocks| blocks.contains(&of)).min_by_key(BTreeSet::len)
    }

    /// The next block, or the same, that all who have not ended come to, whichever way they have gone.
    pub(super) fn where_all_come(&self, flow: &Flow, mut block: usize) -> usize {
        loop {
            let mut meets = self.branches.iter().filter_map(|&(branch, meet)| Some((branch, meet?)));
            let next = meets.find(|&(branch, meet)| {
                let mut lies_between = false;
                self.between(flow, branch, Some(meet), |between| lies_between |= between == block);
                lies_between
            });
            match next {
                // All ways from the block lead there, and none of them back but through it, so that this comes to an end.
                Some((_, meet)) => block = meet,
                None => return block,
            }
        }
    }
}

/// Tells the blocks on the ways from a branch to a place, as far as `passes` lets them.
fn walk(
    flow: &Flow,
    branch: usize,
    to: Option<usize>,
    passes: impl Fn(usize) -> bool,
    mut f: impl FnMut(usize),
) {
    let mut seen = vec![false; flow.blocks.len()];
    if let Some(to) = to {
        seen[to] = true;
    }
    let mut work: Vec<usize> = flow.blocks[branch].successors.clone();
    while let Some(block) = work.pop() {
        if !std::mem::replace(&mut seen[block], true) && passes(block) {
            f(block);
            work.extend(&flow.blocks[block].successors);
        }
    }
}

/// For branches behind which some lanes may leave a loop, where those meet again that stay in it, and the loop's blocks.
fn turns(flow: &Flow, branches: &[(usize, Option<usize>)]) -> Vec<(usize, usize, Rc<BTreeSet<usize>>)> {
    if branches.is_empty() || flow.back_edges().len() * flow.blocks.len() > CONDITIONS {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (head, inside) in flow.loops() {
        let leaves = |&&(branch, meet): &&(usize, Option<usize>)| {
            inside.contains(&branch) && meet.is_none_or(|meet| !inside.contains(&meet))
        };
        let branches: Vec<usize> = branches.iter().filter(leaves).map(|&(branch, _)| branch).collect();
        if branches.is_empty() {
            continue;
        }
        // The loop alone, whose turns end in a block of their own.
        let numbers: HashMap<usize, usize> =
            inside.iter().enumerate().map(|(n, &block)| (block, n)).collect();
        let next = |next: &usize| if *next == head { Some(inside.len()) } else { numbers.get(next).copied() };
        let alone = |block: &usize| Block {
            successors: flow.blocks[*block].successors.iter().filter_map(next).collect(),
            ..Block::default()
        };
        let mut blocks: Vec<Block> = inside.iter().map(alone).collect();
        blocks.push(Block::default());
        let meets = meeting_blocks(&blocks);
        let blocks: Vec<usize> = inside.iter().copied().collect();
        let inside = Rc::new(inside);
        found.extend(branches.into_iter().filter_map(|branch| {
            let meet = *blocks.get(meets[numbers[&branch]]?)?;
            Some((branch, meet, Rc::clone(&inside)))
        }));
    }
    found
}

/// The first instruction of a block, before which lanes that meet there can wait; none where they end with it.
pub(super) fn begins(function: &Function, ops: &[Op], block: &Block) -> Option<usize> {
    (block.first..block.end)
        .find_map(|at| match &function.body[at] {
            Statement::Instruction(first) => Some((at, &ops[first.form.0 as usize])),
            Statement::Label(_) => None,
        })
        .filter(|(_, op)| !matches!(op, Op::Ret | Op::Exit))
        .map(|(at, _)| at)
}

/// For each block, the first one that all ways from it lead to; none where there is no such block but the kernel's end.
fn meeting_blocks(blocks: &[Block]) -> Vec<Option<usize>> {
    let end = blocks.len();
    // Blocks in the order in which a search backwards from the end leaves them.
    let mut predecessors = vec![Vec::new(); end + 1];
    for (index, block) in blocks.iter().enumerate() {
        block.successors.iter().for_each(|&s| predecessors[s].push(index));
        if block.successors.is_empty() {
            predecessors[end].push(index);
        }
    }
    let mut position = vec![usize::MAX; end + 1];
    let mut order = Vec::new();
    let mut seen = vec![false; end + 1];
    let mut path = vec![(end, 0)];
    seen[end] = true;
    while let Some((block, child)) = path.last_mut() {
        let block = *block;
        if let Some(&next) = predecessors[block].get(*child) {
            *child += 1;
            if !std::mem::replace(&mut seen[next], true) {
                path.push((next, 0));
            }
        } else {
            position[block] = order.len();
            order.push(block);
            path.pop();
        }
    }
    // The nearest common block on all ways to the end (Cooper, Harvey and Kennedy).
    let mut meets = vec![usize::MAX; end + 1];
    meets[end] = end;
    let mut changed = true;
    while changed {
        changed = false;
        for &block in order.iter().rev().filter(|&&b| b != end) {
            let successors = &blocks[block].successors;
            let ways = if successors.is_empty() { &[end][..] } else { &successors[..] };
            let mut meet = usize::MAX;
            for &way in ways.iter().filter(|&&way| meets[way] != usize::MAX) {
                if meet == usize::MAX {
                    meet = way;
                    continue;
                }
                let mut other = way;
                while meet != other {
                    while position[meet] < position[other] {
                        meet = meets[meet];
                    }
                    while position[other] < position[meet] {
                        other = meets[other];
                    }
                }
            }
            changed |= meets[block] != meet;
            meets[block] = meet;
        }
    }
    meets[..end].iter().map(|&meet| (meet < end).then_some(meet)).collect()
}
