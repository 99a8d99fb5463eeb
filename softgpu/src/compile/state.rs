//! What of a thread's registers is kept in its state while it waits, and where.
//!
//! Every register that is live across some cut has one place in the state for good. It is stored at a cut
//! only if it may have changed since it was last stored or loaded there, so that a value which is live
//! across a hundred shuffles is stored once, and loaded where it is used.

use std::collections::HashMap;

use cranelift_codegen::ir;

use super::alike::{self, Alike};
use super::flow::{Access, Flow, Liveness, instructions, visit};
use super::op::Op;
use super::vars::Vars;
use rgpu_image::ptx::ast::Function;

/// A set of registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Set(Vec<u64>);

impl Set {
    fn empty(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn full(count: usize) -> Self {
        Self(vec![!0; count.div_ceil(64)])
    }

    fn insert(&mut self, reg: u32) {
        self.0[reg as usize / 64] |= 1 << (reg % 64);
    }

    fn remove(&mut self, reg: u32) {
        self.0[reg as usize / 64] &= !(1 << (reg % 64));
    }

    /// Whether the register is in it.
    pub(super) fn contains(&self, reg: u32) -> bool {
        self.0[reg as usize / 64] >> (reg % 64) & 1 == 1
    }

    /// Keeps what is in both; whether anything went.
    fn intersect(&mut self, other: &Self) -> bool {
        let mut changed = false;
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            changed |= *word & !other != 0;
            *word &= other;
        }
        changed
    }
}

/// Places of registers in the state, and which of them hold the current values.
pub(super) struct SavedRegisters {
    /// Offset of each register that has a place.
    places: HashMap<u32, u32>,
    /// Registers whose place holds their value at the end of each block (before its cut, if it has one).
    clean: Vec<Set>,
    /// Registers that are read after the beginning of each block before they are next loaded.
    needed: Vec<Set>,
    /// Bytes in all.
    pub bytes: u32,
}

impl SavedRegisters {
    /// Plans the state of a kernel. `yields` are the edges with yields, `skip` the registers
    /// that need not be kept.
    #[allow(clippy::too_many_arguments)] // What is known of the function, each from another pass.
    pub(super) fn new(
        function: &Function,
        ops: &[Op],
        vars: &Vars,
        flow: &Flow,
        liveness: &Liveness,
        classes: &[ir::Type],
        yields: &[(usize, usize)],
        skip: &[bool],
    ) -> Self {
        let count = vars.types.len();
        let results = |block: usize| {
            let mut results = Vec::new();
            if flow.blocks[block].cut
                && let Some(cut) = instructions(function, &flow.blocks[block]).last()
            {
                visit(cut, &ops[cut.form.0 as usize], vars, &mut |reg, access| {
                    if access == Access::Define {
                        results.push(reg);
                    }
                });
            }
            results
        };
        // What is saved at each cut: of blocks, then of edges.
        let mut saved: Vec<Vec<u32>> = Vec::new();
        let mut at_block = vec![usize::MAX; flow.blocks.len()];
        for (index, block) in flow.blocks.iter().enumerate() {
            if block.cut && index + 1 < flow.blocks.len() {
                let results = results(index);
                let mut live = liveness.at(index + 1);
                live.retain(|reg| !results.contains(reg) && !skip[*reg as usize]);
                at_block[index] = saved.len();
                saved.push(live);
            }
        }
        for &(_, target) in yields {
            let mut live = liveness.at(target);
            live.retain(|reg| !skip[*reg as usize]);
            saved.push(live);
        }
        let alike = alike::find(function, ops, vars, flow);
        let (places, bytes) = places(&saved, classes, &alike);
        let clean = clean(function, ops, vars, flow, count, &saved, &at_block);
        let needed = needed(function, flow, liveness, yields, skip, &clean);
        Self { places, clean, needed, bytes }
    }

    /// Where a register is kept.
    pub(super) fn place(&self, reg: u32) -> Option<u32> {
        self.places.get(&reg).copied()
    }

    /// Whether a register has to be loaded on the way to a block.
    pub(super) fn is_needed(&self, block: usize, reg: u32) -> bool {
        self.needed[block].contains(reg)
    }

    /// Whether at the end of a block a register's place holds its value already.
    pub(super) fn is_clean(&self, block: usize, reg: u32) -> bool {
        self.clean[block].contains(reg)
    }
}

/// Gives registers places such that no two which are saved at one cut overlap, and none which lanes have alike is where they have another one otherwise.
fn places(saved: &[Vec<u32>], classes: &[ir::Type], alike: &[Alike]) -> (HashMap<u32, u32>, u32) {
    let words = saved.len().div_ceil(64);
    let mut cuts: HashMap<u32, Vec<u64>> = HashMap::new();
    for (cut, registers) in saved.iter().enumerate() {
        for &reg in registers {
            cuts.entry(reg).or_insert_with(|| vec![0; words])[cut / 64] |= 1 << (cut % 64);
        }
    }
    let mut order: Vec<u32> = cuts.keys().copied().collect();
    // Large ones first, so that all are aligned; those with many cuts first, to pack well.
    order.sort_by_key(|&reg| {
        let busy: u32 = cuts[&reg].iter().map(|w| w.count_ones()).sum();
        (std::cmp::Reverse(classes[reg as usize].bytes()), std::cmp::Reverse(busy), reg)
    });
    // Those that each lane has for itself may be of any type.
    let kind = |reg: u32| match (alike[reg as usize], classes[reg as usize]) {
        (Alike::Not, ty) => (ty.bytes(), Alike::Not, None),
        (alike, ty) => (ty.bytes(), alike, Some(ty)),
    };
    let mut slots = Vec::new();
    let mut places = HashMap::new();
    let mut end = 0;
    for reg in order {
        let (kind, mine) = (kind(reg), &cuts[&reg]);
        let is_free = |taken: &[u64]| taken.iter().zip(mine).all(|(a, b)| a & b == 0);
        let free =
            slots.iter_mut().find(|(_, other, taken): &&mut (_, _, Vec<_>)| *other == kind && is_free(taken));
        if let Some((at, _, taken)) = free {
            taken.iter_mut().zip(mine).for_each(|(a, b)| *a |= b);
            places.insert(reg, *at);
        } else {
            slots.push((end, kind, mine.clone()));
            places.insert(reg, end);
            end += kind.0;
        }
    }
    (places, end.next_multiple_of(16))
}

/// Forward over the blocks: which registers' places hold their values, on every path.
fn clean(
    function: &Function,
    ops: &[Op],
    vars: &Vars,
    flow: &Flow,
    count: usize,
    saved: &[Vec<u32>],
    at_block: &[usize],
) -> Vec<Set> {
    let blocks = flow.blocks.len();
    // Registers changed by each block, its cut left out, and by its cut.
    let mut changed = Vec::with_capacity(blocks);
    let mut guarded = vec![false; blocks];
    for (index, block) in flow.blocks.iter().enumerate() {
        let mut own = Vec::new();
        let mut cut = Vec::new();
        let last = instructions(function, block).count().saturating_sub(1);
        for (position, instruction) in instructions(function, block).enumerate() {
            let is_cut = block.cut && position == last;
            if is_cut {
                guarded[index] = instruction.guard.is_some();
            }
            visit(instruction, &ops[instruction.form.0 as usize], vars, &mut |reg, access| {
                if access == Access::Define {
                    if is_cut { cut.push(reg) } else { own.push(reg) }
                }
            });
        }
        changed.push((own, cut));
    }
    let mut inputs = vec![Set::full(count); blocks];
    if let Some(first) = inputs.first_mut() {
        *first = Set::empty(count);
    }
    let mut work: Vec<usize> = (0..blocks).rev().collect();
    let mut waiting = vec![true; blocks];
    while let Some(index) = work.pop() {
        waiting[index] = false;
        let (own, cut) = &changed[index];
        let mut set = inputs[index].clone();
        own.iter().for_each(|&reg| set.remove(reg));
        if at_block[index] != usize::MAX && !guarded[index] {
            // Behind a cut everything that is live has been saved.
            saved[at_block[index]].iter().for_each(|&reg| set.insert(reg));
        }
        cut.iter().for_each(|&reg| set.remove(reg));
        for &successor in &flow.blocks[index].successors {
            if inputs[successor].intersect(&set) && !std::mem::replace(&mut waiting[successor], true) {
                work.push(successor);
            }
        }
    }
    for (set, (own, _)) in inputs.iter_mut().zip(&changed) {
        own.iter().for_each(|&reg| set.remove(reg));
    }
    inputs
}

/// Backward over the blocks: what is read before the next cut that a thread passes, where the registers
/// that are read by storing them count only if they have changed.
fn needed(
    function: &Function,
    flow: &Flow,
    liveness: &Liveness,
    yields: &[(usize, usize)],
    skip: &[bool],
    clean: &[Set],
) -> Vec<Set> {
    let blocks = flow.blocks.len();
    let words = liveness.words();
    let stored_at = |block: usize, next: usize| {
        let mut set = Set(vec![0; words]);
        for reg in liveness.at(next) {
            if !skip[reg as usize] && !clean[block].contains(reg) {
                set.insert(reg);
            }
        }
        set
    };
    // What leaving each block reads by itself.
    let mut leaving: Vec<Set> = (0..blocks).map(|_| Set(vec![0; words])).collect();
    let mut ends_in_cut = vec![false; blocks];
    for (index, block) in flow.blocks.iter().enumerate() {
        if block.cut && index + 1 < blocks {
            leaving[index] = stored_at(index, index + 1);
            let guarded = instructions(function, block).last().is_some_and(|cut| cut.guard.is_some());
            ends_in_cut[index] = !guarded;
        }
    }
    for &(from, to) in yields {
        let stored = stored_at(from, to);
        leaving[from].0.iter_mut().zip(&stored.0).for_each(|(a, b)| *a |= b);
    }
    let mut sets: Vec<Set> = (0..blocks).map(|_| Set(vec![0; words])).collect();
    let mut changed = true;
    while changed {
        changed = false;
        for index in (0..blocks).rev() {
            let (used, defined) = liveness.summary(index);
            for word in 0..words {
                let mut out = leaving[index].0[word];
                if !ends_in_cut[index] {
                    for &successor in &flow.blocks[index].successors {
                        out |= sets[successor].0[word];
                    }
                }
                let value = used[word] | out & !defined[word];
                changed |= value & !sets[index].0[word] != 0;
                sets[index].0[word] |= value;
            }
        }
    }
    sets
}
