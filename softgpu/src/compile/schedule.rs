//! Puts instructions back into the order of the program.
//!
//! Cranelift's optimiser moves every instruction without side effects to where its result is first
//! needed by one that has some. In code such as an unrolled dot product all loads then come first and all
//! arithmetic last, and there are not nearly enough registers for that. Here such instructions go back to
//! their place in the PTX, as far as what they depend on allows.

use std::collections::HashMap;

use cranelift_codegen::ir::{Block, Function, Inst, Opcode, ValueDef};

/// Reorders the instructions within every block.
pub(super) fn restore_order(function: &mut Function) {
    let blocks: Vec<Block> = function.layout.blocks().collect();
    for block in blocks {
        let before: Vec<Inst> = function.layout.block_insts(block).collect();
        if before.len() < 4 {
            continue;
        }
        let after = Scheduler::new(function, &before).run();
        debug_assert_eq!(before.len(), after.len());
        if after == before {
            continue;
        }
        for &inst in &before {
            function.layout.remove_inst(inst);
        }
        for &inst in &after {
            function.layout.append_inst(inst, block);
        }
    }
}

/// Whether an instruction has to keep its place among others like it.
fn is_fixed(opcode: Opcode) -> bool {
    opcode.is_terminator()
        || opcode.is_branch()
        || opcode.is_call()
        || opcode.can_load()
        || opcode.can_store()
        || opcode.can_trap()
        || opcode.other_side_effects()
}

/// Whether it is best made where it is used.
fn is_constant(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Iconst | Opcode::F32const | Opcode::F64const | Opcode::Vconst)
}

struct Scheduler {
    insts: Vec<Inst>,
    fixed: Vec<bool>,
    /// MemoryTarget in the program.
    keys: Vec<u32>,
    /// Instructions of the block that each one needs.
    needs: Vec<Vec<usize>>,
    done: Vec<bool>,
    order: Vec<Inst>,
}

impl Scheduler {
    fn new(function: &Function, insts: &[Inst]) -> Self {
        let places: HashMap<Inst, usize> = insts.iter().enumerate().map(|(i, &inst)| (inst, i)).collect();
        let mut keys: Vec<u32> = Vec::with_capacity(insts.len());
        let mut fixed = Vec::with_capacity(insts.len());
        let mut needs: Vec<Vec<usize>> = Vec::with_capacity(insts.len());
        let mut last = 0;
        for &inst in insts {
            let opcode = function.dfg.insts[inst].opcode();
            let own: Vec<usize> = function
                .dfg
                .inst_values(inst)
                .filter_map(|value| match function.dfg.value_def(value) {
                    ValueDef::Result(inst, _) => places.get(&inst).copied(),
                    _ => None,
                })
                .collect();
            let is_fixed = is_fixed(opcode);
            let place = function.srcloc(inst);
            let key = if is_constant(opcode) {
                u32::MAX
            } else if !place.is_default() {
                place.bits()
            } else {
                // Made by the optimiser: as early as what it depends on.
                own.iter()
                    .map(|&need: &usize| keys[need])
                    .filter(|&key| key != u32::MAX)
                    .max()
                    .unwrap_or(last)
            };
            if is_fixed {
                last = key;
            }
            keys.push(key);
            fixed.push(is_fixed);
            needs.push(own);
        }
        let count = insts.len();
        Self {
            insts: insts.to_vec(),
            fixed,
            keys,
            needs,
            done: vec![false; count],
            order: Vec::with_capacity(count),
        }
    }

    fn run(mut self) -> Vec<Inst> {
        let count = self.insts.len();
        let mut free: Vec<usize> =
            (0..count).filter(|&i| !self.fixed[i] && self.keys[i] != u32::MAX).collect();
        free.sort_by_key(|&i| (self.keys[i], i));
        let mut next = 0;
        // What waits for a fixed instruction, by that instruction.
        let mut waiting: HashMap<usize, Vec<usize>> = HashMap::new();
        for fixed in (0..count).filter(|&i| self.fixed[i]).collect::<Vec<_>>() {
            while next < free.len() && self.keys[free[next]] < self.keys[fixed] {
                let candidate = free[next];
                next += 1;
                if let Some(blocker) = self.blocker(candidate) {
                    waiting.entry(blocker).or_default().push(candidate);
                } else {
                    self.emit(candidate);
                }
            }
            self.emit(fixed);
            let mut woken = waiting.remove(&fixed).unwrap_or_default();
            woken.sort_by_key(|&i| (self.keys[i], i));
            for candidate in woken {
                if let Some(blocker) = self.blocker(candidate) {
                    waiting.entry(blocker).or_default().push(candidate);
                } else {
                    self.emit(candidate);
                }
            }
        }
        // Whatever is left is used in later blocks only, and belongs before the end of this one.
        let end = self.order.pop();
        for index in 0..count {
            self.emit(index);
        }
        self.order.extend(end);
        self.order
    }

    /// A fixed instruction that has to come first and has not yet; none once it has all it needs.
    fn blocker(&self, index: usize) -> Option<usize> {
        let mut work = vec![index];
        // Chains are short; what is done ends the search.
        let mut steps = 0;
        while let Some(at) = work.pop() {
            steps += 1;
            if steps > 256 {
                // Too tangled: let it stay where it is needed.
                return Some(self.insts.len());
            }
            for &need in &self.needs[at] {
                if self.done[need] {
                    continue;
                }
                if self.fixed[need] {
                    return Some(need);
                }
                work.push(need);
            }
        }
        None
    }

    /// Emits an instruction behind what it needs.
    fn emit(&mut self, index: usize) {
        let mut work = vec![index];
        while let Some(&at) = work.last() {
            if self.done[at] {
                work.pop();
                continue;
            }
            let missing: Vec<usize> =
                self.needs[at].iter().copied().filter(|&need| !self.done[need]).collect();
            if missing.is_empty() {
                self.done[at] = true;
                self.order.push(self.insts[at]);
                work.pop();
            } else {
                work.extend(missing);
            }
        }
    }
}
