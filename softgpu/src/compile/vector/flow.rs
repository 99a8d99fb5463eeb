//! The control flow of a verified kernel, as the translator needs it: the blocks that one thread runs, in an order in which
//! each comes behind all that lead to it (but for the edges that close loops) and each loop lies in one piece; the loops;
//! and for each block the one where all threads meet again.

use std::collections::HashMap;
use std::mem::offset_of;

use cranelift_codegen::ir::{Block, Function, Inst, InstructionData, Opcode, Value};

use crate::abi::Thread;

/// Why a kernel is not translated.
pub(super) type Refusal = String;

/// That of a kernel in whose control flow a loop has several beginnings.
pub(super) const SEVERAL: &str = "a loop with several beginnings";

/// An edge of the control flow: where it leads, and with what values.
#[derive(Debug, Clone)]
pub(super) struct Edge {
    /// The block that it leads to, by number.
    pub to: usize,
    /// The values of that block's parameters.
    pub args: Vec<Value>,
}

/// A loop: its first block has the smallest place in the order.
#[derive(Debug, Clone)]
pub(super) struct Loop {
    /// Its first block.
    pub header: usize,
    /// By block, whether it belongs to it.
    pub has: Vec<bool>,
    /// The last place of its blocks in the order.
    pub last: usize,
    /// How many blocks it has.
    size: usize,
}

/// See the module.
pub(super) struct Flow {
    /// The function's first block, which runs before all threads.
    pub entry: Block,
    /// The parameter that is the thread.
    pub thread: Value,
    /// The blocks that a thread runs. Number 0 is the first.
    pub blocks: Vec<Block>,
    /// Their numbers.
    pub index: HashMap<Block, usize>,
    /// The edges out of each block. What ends a thread leads to [`Flow::exit`].
    pub edges: Vec<Vec<Edge>>,
    /// The blocks in their order.
    pub order: Vec<usize>,
    /// The place of each block in the order.
    pub place: Vec<usize>,
    /// The loops, outer ones before those in them.
    pub loops: Vec<Loop>,
    /// Where all that leave a block by different edges are together again at the latest.
    pub meet: Vec<usize>,
    /// By block: whether threads stop there to go on later.
    pub cuts: Vec<bool>,
    /// As `meet`, of those threads alone that come to a cut; none for blocks that lead to none.
    pub meet_before_cut: Vec<Option<usize>>,
}

/// The edges out of an instruction that ends a block.
pub(super) fn destinations(func: &Function, inst: Inst) -> Result<Vec<(Block, Vec<Value>)>, Refusal> {
    let data = &func.dfg.insts[inst];
    let calls = data.branch_destination(&func.dfg.jump_tables, &func.dfg.exception_tables);
    let pool = &func.dfg.value_lists;
    calls
        .iter()
        .map(|call| {
            let args = call.args(pool).map(|arg| arg.as_value().map(|v| func.dfg.resolve_aliases(v)));
            let args = args.collect::<Option<Vec<_>>>().ok_or("an argument that is no value")?;
            Ok((call.block(pool), args))
        })
        .collect()
}

/// The instruction that ends a block.
fn last_of(func: &Function, block: Block) -> Result<Inst, Refusal> {
    func.layout.last_inst(block).ok_or_else(|| "an empty block".into())
}

/// The first block of a kernel, and the first one of each of its threads.
pub(super) fn beginning(func: &Function) -> Result<(Block, Block), Refusal> {
    let entry = func.layout.entry_block().ok_or("no entry")?;
    let threads = func.dfg.block_params(entry)[0];
    let header = destinations(func, last_of(func, entry)?)?
        .into_iter()
        .find(|(block, args)| args[..] == [threads] && func.dfg.block_params(*block).len() == 1)
        .ok_or("no loop over threads")?
        .0;
    Ok((entry, header))
}

impl Flow {
    /// The number that stands for the end of all threads.
    pub(super) fn exit(&self) -> usize {
        self.blocks.len()
    }

    /// Looks at a kernel.
    pub(super) fn new(func: &Function) -> Result<Self, Refusal> {
        let (entry, header) = beginning(func)?;
        let last = |block| last_of(func, block);
        let thread = func.dfg.block_params(header)[0];
        let mut latch = None;
        for block in func.layout.blocks().filter(|&block| block != entry) {
            if destinations(func, last(block)?)?.iter().any(|(to, _)| *to == header) {
                if latch.is_some() {
                    return Err("two ends of a thread's turn".into());
                }
                latch = Some(block);
            }
        }
        if let Some(latch) = latch {
            let plain = |inst| {
                let opcode = func.dfg.insts[inst].opcode();
                !opcode.can_load() && !opcode.can_store() && !opcode.is_call() && !opcode.can_trap()
            };
            if latch == header || !func.layout.block_insts(latch).all(plain) {
                return Err("a thread's turn ends with more than a step".into());
            }
        }
        let mut blocks = vec![header];
        let mut index = HashMap::from([(header, 0)]);
        let mut edges: Vec<Vec<Edge>> = Vec::new();
        let mut next = 0;
        while next < blocks.len() {
            let inst = last(blocks[next])?;
            let mut list = Vec::new();
            if func.dfg.insts[inst].opcode() == Opcode::Return {
                list.push(Edge { to: usize::MAX, args: Vec::new() });
            }
            for (to, args) in destinations(func, inst)? {
                if Some(to) == latch {
                    list.push(Edge { to: usize::MAX, args });
                    continue;
                }
                let number = *index.entry(to).or_insert_with(|| {
                    blocks.push(to);
                    blocks.len() - 1
                });
                list.push(Edge { to: number, args });
            }
            if list.is_empty() {
                let InstructionData::Trap { .. } = func.dfg.insts[inst] else {
                    return Err("a block that ends in nothing known".into());
                };
                return Err("trap".into());
            }
            edges.push(list);
            next += 1;
        }
        let exit = blocks.len();
        edges.iter_mut().flatten().filter(|e| e.to == usize::MAX).for_each(|e| e.to = exit);
        let mut flow = Self {
            entry,
            thread,
            blocks,
            index,
            edges,
            order: Vec::new(),
            place: Vec::new(),
            loops: Vec::new(),
            meet: Vec::new(),
            cuts: Vec::new(),
            meet_before_cut: Vec::new(),
        };
        flow.cuts = flow.blocks.iter().map(|&block| flow.is_cut(func, block)).collect();
        let forward: Vec<Vec<usize>> = (0..=exit).map(|b| flow.successors(b)).collect();
        let backward = reversed(&forward);
        let (dominators, numbers) = dominators(&forward, &backward, 0);
        let (meet, _) = self::dominators(&backward, &forward, exit);
        flow.meet = meet.into_iter().map(|m| if m == usize::MAX { exit } else { m }).collect();
        let mut staying = forward.clone();
        for (block, _) in flow.cuts.iter().enumerate().filter(|(_, cut)| !**cut) {
            staying[block].retain(|&to| to != exit);
        }
        let (meet, _) = self::dominators(&reversed(&staying), &staying, exit);
        flow.meet_before_cut = meet.into_iter().map(|m| (m != usize::MAX).then_some(m)).collect();
        flow.find_loops(&backward, &dominators);
        flow.sort(&backward, &dominators, &numbers)?;
        Ok(flow)
    }

    /// Whether threads stop in a block to go on later: they say where.
    fn is_cut(&self, func: &Function, block: Block) -> bool {
        func.layout.block_insts(block).any(|inst| match func.dfg.insts[inst] {
            InstructionData::Store { args: [_, address], offset, .. } => {
                func.dfg.resolve_aliases(address) == self.thread
                    && i32::from(offset) as usize == offset_of!(Thread, resume)
            }
            _ => false,
        })
    }

    /// How many instructions a thread's blocks have.
    pub(super) fn instructions(&self, func: &Function) -> usize {
        self.blocks.iter().map(|&block| func.layout.block_insts(block).count()).sum()
    }

    /// Whether the kernel has cuts.
    pub(super) fn has_cuts(&self) -> bool {
        self.cuts.contains(&true)
    }

    /// The blocks to which a block leads.
    pub(super) fn successors(&self, block: usize) -> Vec<usize> {
        let mut list: Vec<usize> = self.edges.get(block).into_iter().flatten().map(|edge| edge.to).collect();
        list.sort_unstable();
        list.dedup();
        list
    }

    /// Whether an edge closes a loop.
    pub(super) fn is_back(&self, from: usize, to: usize) -> bool {
        to < self.exit() && self.place[to] <= self.place[from]
    }

    fn find_loops(&mut self, backward: &[Vec<usize>], dominators: &[usize]) {
        let count = self.blocks.len();
        let mut loops: HashMap<usize, Vec<bool>> = HashMap::new();
        for from in 0..count {
            for header in self.successors(from) {
                if header == count || !dominates(dominators, header, from) {
                    continue;
                }
                let has = loops.entry(header).or_insert_with(|| vec![false; count]);
                has[header] = true;
                let mut stack = vec![from];
                while let Some(block) = stack.pop() {
                    if !std::mem::replace(&mut has[block], true) {
                        stack.extend(&backward[block]);
                    }
                }
            }
        }
        let size = |has: &[bool]| has.iter().filter(|has| **has).count();
        let mut loops: Vec<Loop> =
            loops.into_iter().map(|(header, has)| Loop { header, size: size(&has), has, last: 0 }).collect();
        loops.sort_by_key(|l| (std::cmp::Reverse(l.size), l.header));
        self.loops = loops;
    }

    /// Orders the blocks. What has loops with several beginnings is refused.
    fn sort(
        &mut self,
        backward: &[Vec<usize>],
        dominators: &[usize],
        numbers: &[usize],
    ) -> Result<(), Refusal> {
        let count = self.blocks.len();
        let mut waits: Vec<usize> = (0..count)
            .map(|b| backward[b].iter().filter(|&&from| !dominates(dominators, b, from)).count())
            .collect();
        self.place = vec![usize::MAX; count];
        let mut ready = vec![0];
        let mut open: Vec<usize> = Vec::new();
        let mut left: Vec<usize> = self.loops.iter().map(|l| l.size).collect();
        while !ready.is_empty() {
            while open.last().is_some_and(|&l| left[l] == 0) {
                open.pop();
            }
            let inside = |b: usize| open.last().is_none_or(|&l| self.loops[l].has[b]);
            let best = (0..ready.len()).filter(|&i| inside(ready[i])).min_by_key(|&i| numbers[ready[i]]);
            let block = ready.swap_remove(best.ok_or(SEVERAL)?);
            self.place[block] = self.order.len();
            self.order.push(block);
            for (number, l) in self.loops.iter_mut().enumerate() {
                if l.has[block] {
                    left[number] -= 1;
                    l.last = self.order.len() - 1;
                    if l.header == block {
                        open.push(number);
                    }
                }
            }
            for to in self.successors(block) {
                if to < count && !dominates(dominators, to, block) {
                    waits[to] -= 1;
                    if waits[to] == 0 {
                        ready.push(to);
                    }
                }
            }
        }
        if self.order.len() < count { Err(SEVERAL.into()) } else { Ok(()) }
    }
}

fn reversed(graph: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut reversed = vec![Vec::new(); graph.len()];
    for (from, list) in graph.iter().enumerate() {
        list.iter().for_each(|&to| reversed[to].push(from));
    }
    reversed
}

/// Whether every way to `b` leads through `a`.
fn dominates(dominators: &[usize], a: usize, b: usize) -> bool {
    let mut at = b;
    loop {
        if at == a {
            return true;
        }
        let up = dominators[at];
        if up == at || up == usize::MAX {
            return false;
        }
        at = up;
    }
}

/// The immediate dominator of each node (its own number for the root, none for what cannot be reached), and the numbers of
/// nodes in reverse post-order.
fn dominators(forward: &[Vec<usize>], backward: &[Vec<usize>], root: usize) -> (Vec<usize>, Vec<usize>) {
    let count = forward.len();
    let mut seen = vec![false; count];
    let mut post = Vec::with_capacity(count);
    let mut stack = vec![(root, 0)];
    seen[root] = true;
    while let Some((node, at)) = stack.pop() {
        match forward[node].get(at) {
            Some(&next) => {
                stack.push((node, at + 1));
                if !std::mem::replace(&mut seen[next], true) {
                    stack.push((next, 0));
                }
            }
            None => post.push(node),
        }
    }
    let mut numbers = vec![usize::MAX; count];
    post.iter().rev().enumerate().for_each(|(number, &node)| numbers[node] = number);
    let mut up = vec![usize::MAX; count];
    up[root] = root;
    let mut changed = true;
    while changed {
        changed = false;
        for &node in post.iter().rev().filter(|&&node| node != root) {
            let mut new = usize::MAX;
            for &from in backward[node].iter().filter(|&&from| up[from] != usize::MAX) {
                if new == usize::MAX {
                    new = from;
                    continue;
                }
                let (mut a, mut b) = (new, from);
                while a != b {
                    if numbers[a] > numbers[b] { a = up[a] } else { b = up[b] }
                }
                new = a;
            }
            if up[node] != new {
                up[node] = new;
                changed = true;
            }
        }
    }
    (up, numbers)
}
