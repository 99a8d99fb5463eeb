//! Puts constants where operations of a warp have registers that only ever hold one: compilers keep masks and bounds of shuffles in registers, which
//! threads would have to keep from one operation to the next, and of which it would not be seen that they name all lanes.

use std::collections::HashMap;

use super::flow::writes;
use super::op::Op;
use super::unit::Unit;
use super::vars::Vars;
use rgpu_image::ptx::ast::{Function, Instruction, Module, Operand, Statement, Type};

/// Replaces them in all functions.
pub(super) fn insert(module: &mut Module, ops: &[Op]) {
    for function in module.functions.iter_mut().filter(|f| !f.is_declaration) {
        let is_candidate = |i: &Instruction| is_of_warp(&ops[i.form.0 as usize]);
        if !Unit::instructions(function).any(is_candidate) {
            continue;
        }
        let constants = find(function, ops);
        let statements = function.body.iter_mut().filter_map(|statement| match statement {
            Statement::Instruction(instruction) => Some(instruction),
            Statement::Label(_) => None,
        });
        for instruction in statements.filter(|i| is_of_warp(&ops[i.form.0 as usize])) {
            // The first operand is the result.
            for operand in instruction.operands.iter_mut().skip(1) {
                if let Operand::Reg(register) = operand
                    && let Some(constant) = constants.get(&register.0)
                {
                    *operand = constant.clone();
                }
            }
        }
    }
}

/// Operations whose operands may be numbers.
fn is_of_warp(op: &Op) -> bool {
    matches!(op, Op::Shfl { .. } | Op::Vote { .. } | Op::Match { .. } | Op::Redux { .. })
}

/// Registers that are written once, with a number, whatever else is so. Whoever reads one before has nothing that is defined.
fn find(function: &Function, ops: &[Op]) -> HashMap<u32, Operand> {
    let vars = Vars::new(function, ops);
    let writes = writes(function, ops, &vars);
    let mut found = HashMap::new();
    for instruction in Unit::instructions(function) {
        let op = &ops[instruction.form.0 as usize];
        if let (Op::Mov { .. }, None, [Operand::Reg(register), number @ Operand::Int(..)]) =
            (op, instruction.guard, &instruction.operands[..])
        {
            found.insert(register.0, number.clone());
        }
    }
    found
        .retain(|&register, _| writes[register as usize] == 1 && vars.types[register as usize] != Type::Pred);
    found
}
