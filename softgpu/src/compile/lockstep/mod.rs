//! Keeps threads abreast where a program counts on it.
//!
//! Code from before `__syncwarp()` lets the lanes of a warp exchange values through `volatile` shared
//! memory without any synchronization: the last steps of a reduction, a scan of a warp. Today's devices do
//! not promise that this works, but it does work on them, because the lanes run abreast. Here each lane
//! runs alone from one cut to the next; so lanes wait for each other before a volatile access to shared
//! memory that could come before another lane's earlier one.
//!
//! Some exchange values through memory that is not volatile, of the block or of all; [`exchange`] finds them.
//!
//! Another habit: all threads read a variable of the block, and one of them writes it anew without a barrier
//! between, much later as a device counts. Here that thread may be the first to run; so it lets all others
//! go first.

mod address;
mod exchange;
mod single;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use self::single::Single;
use super::flow::Flow;
use super::op::Op;
use super::opcode::{Form, Opcode, Semantics};
use super::unit::synthetic;
use rgpu_image::ptx::ast::{
    AddressBase, FormId, Function, Instruction, Module, Operand, Space, Statement, Symbol,
};

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

/// An access to shared memory, and whether it is a volatile one.
fn access(form: &Form) -> Option<(Access, bool)> {
    if !matches!(form.space(), Some(Space::Shared | Space::SharedCta)) {
        return None;
    }
    let access = match form.opcode {
        Opcode::Ld => Some(Access::Load),
        Opcode::St => Some(Access::Store),
        _ => None,
    };
    access.map(|access| (access, form.semantics == Some(Semantics::Volatile)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Load,
    Store,
}

/// An access to memory that lanes share of which the text does not say that others look, except by volatile accesses to memory
/// other than the block's.
#[derive(Clone, Copy)]
struct Plain {
    direction: Direction,
}

fn plain(form: &Form) -> Option<Plain> {
    let global = match form.spaces[..] {
        [] | [Space::Global] => true,
        [Space::Shared | Space::SharedCta] => false,
        _ => return None,
    };
    let ordinary = match form.semantics {
        None | Some(Semantics::Weak) => true,
        Some(Semantics::Volatile) => global,
        _ => false,
    };
    let direction = match form.opcode {
        Opcode::Ld => Direction::Load,
        Opcode::St => Direction::Store,
        _ => return None,
    };
    (ordinary && !form.nc).then_some(Plain { direction })
}

/// Inserts the places where lanes wait for each other. `ops` are those of all forms, the synthetic ones
/// first, and `forms` the module's own.
pub(super) fn insert(module: &mut Module, forms: &[Form], ops: &[Op]) {
    let accesses: Vec<Option<(Access, bool)>> = forms.iter().map(access).collect();
    let shared = accesses.iter().any(Option::is_some);
    let volatile = accesses.iter().flatten().any(|&(_, volatile)| volatile);
    let synthetic = std::iter::repeat_n(None, synthetic::COUNT as usize);
    let plain: Vec<Option<Plain>> = synthetic.chain(forms.iter().map(plain)).collect();
    for function in module.functions.iter_mut().filter(|f| !f.is_declaration) {
        if function.is_entry {
            let converging = exchange::places(function, ops, &plain);
            let yielding = if shared { hasty_stores(function, ops, &accesses) } else { Vec::new() };
            if !(converging.is_empty() && yielding.is_empty()) {
                wait_before(function, &converging, &yielding);
            }
        }
        if volatile {
            align_lanes(function, ops, &accesses);
        }
    }
}

/// Puts waiting in front of statements.
fn wait_before(function: &mut Function, converging: &BTreeSet<usize>, yielding: &[usize]) {
    let body = std::mem::take(&mut function.body);
    for (index, statement) in body.into_iter().enumerate() {
        let line = match &statement {
            Statement::Instruction(instruction) => instruction.line,
            Statement::Label(_) => 0,
        };
        if converging.contains(&index) {
            function.body.push(Statement::Instruction(waiting(synthetic::CONVERGE, line)));
        }
        if let (true, Statement::Instruction(store)) = (yielding.contains(&index), &statement) {
            let first = waiting(synthetic::YIELD, store.line);
            function.body.push(Statement::Instruction(Instruction { guard: store.guard, ..first }));
        }
        function.body.push(statement);
    }
}

/// A variable of the block, by its name and offset, if that is what the instruction reads or writes.
fn variable(
    instruction: &Instruction,
    accesses: &[Option<(Access, bool)>],
) -> Option<(Access, (Symbol, i64))> {
    let form = instruction.form.0.checked_sub(synthetic::COUNT)?;
    let (access, _) = accesses[form as usize]?;
    let address = instruction.operands.get(if access == Access::Load { 1 } else { 0 })?;
    match *address {
        Operand::Address(AddressBase::Symbol(symbol), offset) | Operand::Symbol(symbol, offset) => {
            Some((access, (symbol, offset)))
        }
        _ => None,
    }
}

/// Statements that write a variable of the block which may have been read since the last barrier, by another thread than writes it.
fn hasty_stores(function: &Function, ops: &[Op], accesses: &[Option<(Access, bool)>]) -> Vec<usize> {
    let mut known: Vec<(Symbol, i64)> = Vec::new();
    for statement in &function.body {
        if let Statement::Instruction(instruction) = statement
            && let Some((Access::Load, place)) = variable(instruction, accesses)
            && !known.contains(&place)
            && known.len() < 64
        {
            known.push(place);
        }
    }
    if known.is_empty() {
        return Vec::new();
    }
    let flow = Flow::new(function, ops);
    let single = Single::find(function, ops, &flow);
    // What has been read when each block begins; a bit for each variable.
    let mut read = vec![0u64; flow.blocks.len()];
    let mut stores = Vec::new();
    let mut changed = true;
    while changed {
        changed = false;
        stores.clear();
        for (index, block) in flow.blocks.iter().enumerate() {
            let mut now = read[index];
            // What has been read here by one thread alone: it may write that at once.
            let mut alone = 0;
            for at in block.first..block.end {
                let Statement::Instruction(instruction) = &function.body[at] else { continue };
                if matches!(ops[instruction.form.0 as usize], Op::Bar { .. }) && instruction.guard.is_none() {
                    (now, alone) = (0, 0);
                }
                let Some((access, place)) = variable(instruction, accesses) else { continue };
                let Some(bit) = known.iter().position(|&k| k == place) else { continue };
                match access {
                    Access::Load if single.executes(index, instruction) => alone |= 1 << bit,
                    Access::Load => now |= 1 << bit,
                    Access::Store => {
                        let by_all = now >> bit & 1 != 0;
                        if by_all || alone >> bit & 1 != 0 && !single.executes(index, instruction) {
                            stores.push(at);
                        }
                        now &= !(1 << bit);
                        alone &= !(1 << bit);
                    }
                }
            }
            now |= alone;
            for &next in &block.successors {
                changed |= now & !read[next] != 0;
                read[next] |= now;
            }
        }
    }
    stores
}

fn align_lanes(function: &mut Function, ops: &[Op], accesses: &[Option<(Access, bool)>]) {
    let mut since = if function.is_entry { Since::Nothing } else { Since::Anything };
    let mut body = Vec::with_capacity(function.body.len());
    for statement in std::mem::take(&mut function.body) {
        match &statement {
            Statement::Label(_) => since = Since::Anything,
            Statement::Instruction(instruction) => {
                let form = instruction.form.0;
                let own = form.checked_sub(synthetic::COUNT);
                match own.and_then(|form| accesses[form as usize]) {
                    Some((access, true)) => {
                        let first = since == Since::Nothing;
                        let reads = access == Access::Load && since == Since::Loads;
                        if !first && !reads {
                            body.push(Statement::Instruction(waiting(synthetic::CONVERGE, instruction.line)));
                        }
                        since = if access == Access::Load { Since::Loads } else { Since::Anything };
                    }
                    _ => match &ops[form as usize] {
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

fn waiting(form: u32, line: u32) -> Instruction {
    Instruction { form: FormId(form), line, guard: None, operands: Vec::new() }
}
