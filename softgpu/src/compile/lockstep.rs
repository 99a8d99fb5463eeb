//! Keeps the lanes of a warp abreast where a program counts on it.
//!
//! Code from before `__syncwarp()` lets the lanes of a warp exchange values through `volatile` shared
//! memory without any synchronization: the last steps of a reduction, a scan of a warp. Today's devices do
//! not promise that this works, but it does work on them, because the lanes run abreast. Here each lane
//! runs alone from one cut to the next; so lanes wait for each other before a volatile access to shared
//! memory that could come before another lane's earlier one.

use super::op::Op;
use super::unit::synthetic;
use crate::ptx::ast::{FormId, Function, Instruction, Module, Space, Statement};
use crate::ptx::opcode::{Form, Opcode, Semantics};

/// What the lanes have done since they were last abreast.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    /// Nothing that another lane could notice.
    Nothing,
    /// They have only read.
    Loads,
    /// They may have written, or nothing is known.
    Anything,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Load,
    Store,
}

/// A volatile access to shared memory.
fn access(form: &Form) -> Option<Access> {
    if form.semantics != Some(Semantics::Volatile)
        || !matches!(form.space(), Some(Space::Shared | Space::SharedCta))
    {
        return None;
    }
    match form.opcode {
        Opcode::Ld => Some(Access::Load),
        Opcode::St => Some(Access::Store),
        _ => None,
    }
}

/// Inserts the places where lanes wait for each other. `ops` are those of all forms, the synthetic ones
/// first.
pub fn insert(module: &mut Module, ops: &[Op]) {
    let accesses: Vec<Option<Access>> = module.forms.iter().map(access).collect();
    if accesses.iter().all(Option::is_none) {
        return;
    }
    for function in &mut module.functions {
        insert_into(function, ops, &accesses);
    }
}

fn insert_into(function: &mut Function, ops: &[Op], accesses: &[Option<Access>]) {
    let mut since = if function.is_entry { Since::Nothing } else { Since::Anything };
    let mut body = Vec::with_capacity(function.body.len());
    for statement in std::mem::take(&mut function.body) {
        match &statement {
            Statement::Label(_) => since = Since::Anything,
            Statement::Instruction(instruction) => {
                let form = instruction.form.0;
                let own = form.checked_sub(synthetic::COUNT);
                match own.and_then(|form| accesses[form as usize]) {
                    Some(access) => {
                        let first = since == Since::Nothing;
                        let reads = access == Access::Load && since == Since::Loads;
                        if !first && !reads {
                            body.push(converge(instruction.line));
                        }
                        since = if access == Access::Load { Since::Loads } else { Since::Anything };
                    }
                    None => match &ops[form as usize] {
                        Op::Call => since = Since::Anything,
                        Op::Yield => {}
                        op if op.is_cut() && instruction.guard.is_none() => since = Since::Nothing,
                        _ => {}
                    },
                }
            }
        }
        body.push(statement);
    }
    function.body = body;
}

fn converge(line: u32) -> Statement {
    let form = FormId(synthetic::CONVERGE);
    Statement::Instruction(Instruction { form, line, guard: None, operands: Vec::new() })
}
