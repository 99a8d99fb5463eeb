//! Which machine type each register gets: what its type says, except that untyped registers which mostly
//! take part in floating-point arithmetic are kept as floating-point numbers.

use cranelift_codegen::ir::{self, types};

use super::emit::class;
use super::op::{Floats, Op};
use super::vars::Vars;
use rgpu_image::ptx::ast::{Function, Operand, Statement, Type};

/// The machine type of every register.
pub(super) fn classes(function: &Function, ops: &[Op], vars: &Vars) -> Vec<ir::Type> {
    let mut classes: Vec<ir::Type> = vars.types.iter().map(|&ty| class(ty)).collect();
    if !function.registers.iter().any(|r| matches!(r.ty, Type::B32 | Type::B64)) {
        return classes;
    }
    let mut votes = vec![0i32; classes.len()];
    for statement in &function.body {
        let Statement::Instruction(instruction) = statement else { continue };
        let floats = ops[instruction.form.0 as usize].traits().floats;
        for (index, operand) in instruction.operands.iter().enumerate() {
            let Some(float) = is_float(floats, index) else { continue };
            let mut vote = |operand: &Operand| {
                if let Operand::Reg(reg) = operand {
                    votes[reg.0 as usize] += if float { 2 } else { -1 };
                }
            };
            match operand {
                Operand::Vector(list) => list.iter().for_each(&mut vote),
                operand => vote(operand),
            }
        }
    }
    for (index, register) in function.registers.iter().enumerate() {
        if votes[index] > 0 {
            match register.ty {
                Type::B32 => classes[index] = types::F32,
                Type::B64 => classes[index] = types::F64,
                _ => {}
            }
        }
    }
    classes
}

/// Whether an operand is used as a floating-point number; `None` where it does not matter.
fn is_float(floats: Floats, index: usize) -> Option<bool> {
    let of = |ty: Type| matches!(ty, Type::F32 | Type::F64);
    match floats {
        Floats::Never => Some(false),
        Floats::Whatever => None,
        Floats::All(ty) => Some(of(ty)),
        Floats::Sources(ty) => (index > 0).then_some(of(ty)),
        Floats::Each(first, others) => Some(of(if index == 0 { first } else { others })),
        Floats::Moved(at, ty) => (index == at && of(ty)).then_some(true),
    }
}
