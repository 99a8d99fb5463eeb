//! Which of a kernel's numbers are multiples of a power of two, whatever they are otherwise: an address that is one of an element's size needs no
//! test whether the element lies where it may.

use std::collections::HashMap;
use std::hash::Hash;

use cranelift_codegen::ir::{Block, Function, Inst, InstructionData, Opcode, Value};

use super::flow::Flow;
use super::shape::{constant, state_offset};

/// As many low bits as a number of 64 bits has.
const ALL: u32 = 64;

/// How many of the lowest bits of each value are zeros for certain.
#[derive(Default)]
pub(super) struct Multiples {
    zeros: HashMap<Value, u32>,
    /// The same of what threads keep in their states, by the offsets there.
    kept: HashMap<i32, u32>,
}

impl Multiples {
    /// Looks at a kernel.
    pub(super) fn new(func: &Function, flow: &Flow) -> Self {
        let mut this = Self::default();
        while this.round(func, flow) {}
        this
    }

    /// Of how many of its lowest bits it is known that they are zeros.
    pub(super) fn zeros(&self, func: &Function, value: Value) -> u32 {
        let value = func.dfg.resolve_aliases(value);
        match constant(func, value) {
            Some(number) => number.trailing_zeros(),
            None => self.zeros.get(&value).copied().unwrap_or(ALL),
        }
    }

    /// One round over all values, of which most is thought before anything is known; whether anything is known less well than before.
    fn round(&mut self, func: &Function, flow: &Flow) -> bool {
        let mut changed = false;
        for &param in func.dfg.block_params(flow.entry) {
            changed |= lower(&mut self.zeros, param, 0);
        }
        changed |= self.block(func, flow, flow.entry);
        changed |= lower(&mut self.zeros, flow.thread, 0);
        for (from, edges) in flow.edges.iter().enumerate() {
            changed |= self.block(func, flow, flow.blocks[from]);
            for edge in edges.iter().filter(|edge| edge.to < flow.exit()) {
                let params = func.dfg.block_params(flow.blocks[edge.to]);
                for (&param, &value) in params.iter().zip(&edge.args) {
                    changed |= {
                        let zeros = self.zeros(func, value);
                        lower(&mut self.zeros, param, zeros)
                    };
                }
            }
        }
        changed
    }

    fn block(&mut self, func: &Function, flow: &Flow, block: Block) -> bool {
        let mut changed = false;
        for inst in func.layout.block_insts(block) {
            let offset = state_offset(func, flow, inst);
            if let (InstructionData::Store { args: [value, _], .. }, Some(offset)) =
                (func.dfg.insts[inst], offset)
            {
                let zeros = self.zeros(func, value);
                changed |= lower(&mut self.kept, offset, zeros);
            }
            let zeros = match offset {
                Some(offset) => self.kept.get(&offset).copied().unwrap_or(ALL),
                None => self.result(func, inst),
            };
            for &result in func.dfg.inst_results(inst) {
                changed |= lower(&mut self.zeros, result, zeros);
            }
        }
        changed
    }

    /// What is known of an instruction's result.
    fn result(&self, func: &Function, inst: Inst) -> u32 {
        let args = func.dfg.inst_args(inst);
        let zeros = |at: usize| self.zeros(func, args[at]);
        match func.dfg.insts[inst].opcode() {
            Opcode::Iadd | Opcode::Isub | Opcode::Bor | Opcode::Bxor => zeros(0).min(zeros(1)),
            Opcode::Band => zeros(0).max(zeros(1)),
            Opcode::Imul => (zeros(0) + zeros(1)).min(ALL),
            Opcode::Ineg | Opcode::Uextend | Opcode::Sextend | Opcode::Ireduce => zeros(0),
            Opcode::Select => zeros(1).min(zeros(2)),
            Opcode::Ishl => match constant(func, args[1]) {
                Some(by @ 0..64) if by < i64::from(func.dfg.value_type(args[0]).bits()) => {
                    (zeros(0) + by as u32).min(ALL)
                }
                _ => zeros(0),
            },
            _ => 0,
        }
    }
}

/// Notes that something is known no better than this; whether it was.
fn lower<K: Eq + Hash>(known: &mut HashMap<K, u32>, what: K, zeros: u32) -> bool {
    let old = known.entry(what).or_insert(ALL);
    let changed = zeros < *old;
    *old = zeros.min(*old);
    changed
}
