//! What only one thread of a block executes.

use super::super::flow::{Access, Flow, visit};
use super::super::op::{Control, Op};
use super::super::opcode::Compare;
use super::super::vars::Vars;
use super::address::{Addresses, instructions, names_row};
use rgpu_image::ptx::ast::{Function, Guard, Instruction, Operand, Special, Statement};

/// Parts of a kernel that one thread of each block executes: where `%tid.x` was compared with a number, or a value that all threads share, such as whose turn it
/// is. That is one thread only if the kernel does not look at the other coordinates either, and in blocks of one row; and one thread at a time, where the value changes.
pub(super) struct Single {
    /// By register: what it says of the thread, if it is a predicate that was written once.
    predicates: Vec<Option<Compare>>,
    /// By block: whether it is reached only where such a predicate was asked.
    blocks: Vec<bool>,
}

impl Single {
    pub(super) fn find(function: &Function, ops: &[Op], flow: &Flow, addresses: Option<&Addresses>) -> Self {
        let vars = Vars::new(function, ops);
        let none = Self { predicates: vec![None; vars.types.len()], blocks: vec![false; flow.blocks.len()] };
        let mut writers: Vec<Vec<&Instruction>> = vec![Vec::new(); vars.types.len()];
        if names_row(function) {
            return none;
        }
        for (_, instruction) in instructions(function) {
            visit(instruction, &ops[instruction.form.0 as usize], &vars, &mut |register, access| {
                if access == Access::Define {
                    writers[register as usize].push(instruction);
                }
            });
        }
        let number = |operand: &Operand| match operand {
            Operand::Special(Special::TidX) => true,
            Operand::Reg(register) => match writers[register.0 as usize][..] {
                [Instruction { guard: None, form, operands, .. }] => {
                    matches!(ops[form.0 as usize], Op::Mov { .. })
                        && matches!(operands.get(1), Some(Operand::Special(Special::TidX)))
                }
                _ => false,
            },
            _ => false,
        };
        let asks = |written: &Vec<&Instruction>| {
            let [Instruction { guard: None, form, operands, .. }] = written[..] else { return None };
            let Op::Setp { compare, combine: None, .. } = ops[form.0 as usize] else { return None };
            let [_, a, b] = &operands[..] else { return None };
            let is_alike = |operand: &Operand| match operand {
                Operand::Int(..) => true,
                Operand::Reg(register) => addresses.is_some_and(|known| !known.differs(register.0)),
                _ => false,
            };
            let is_one = number(a) && is_alike(b) || number(b) && is_alike(a);
            (matches!(compare, Compare::Eq | Compare::Ne) && is_one).then_some(compare)
        };
        let mut single = Self { predicates: writers.iter().map(asks).collect(), ..none };
        let before = flow.predecessors();
        let asked = |index: usize| {
            let [from] = before[index][..] else { return false };
            let ways = flow.blocks[from].successors.len();
            let Some(Statement::Instruction(last)) = function.body[..flow.blocks[from].end].last() else {
                return false;
            };
            let branches = ops[last.form.0 as usize].traits().control == Control::Branch && ways == 2;
            let Some(guard) = last.guard.filter(|_| branches) else { return false };
            // Behind the branch goes on who does not take it.
            let takes = index != from + 1;
            single.is_of_one(Guard { negated: guard.negated == takes, ..guard })
        };
        // And what only such blocks lead to.
        let mut blocks: Vec<bool> = (0..flow.blocks.len()).map(asked).collect();
        let mut changed = true;
        while changed {
            changed = false;
            for (index, before) in before.iter().enumerate() {
                let now = blocks[index] || !before.is_empty() && before.iter().all(|&from| blocks[from]);
                changed |= now != blocks[index];
                blocks[index] = now;
            }
        }
        single.blocks = blocks;
        single
    }

    /// Whether a guard lets one thread pass.
    fn is_of_one(&self, guard: Guard) -> bool {
        match self.predicates[guard.register.0 as usize] {
            Some(Compare::Eq) => !guard.negated,
            Some(Compare::Ne) => guard.negated,
            _ => false,
        }
    }

    /// Whether one thread executes an instruction of a block.
    pub(super) fn executes(&self, block: usize, instruction: &Instruction) -> bool {
        self.blocks[block] || instruction.guard.is_some_and(|guard| self.is_of_one(guard))
    }
}
