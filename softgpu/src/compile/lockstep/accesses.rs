//! Which instructions access memory that lanes share, and what memory that is.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::super::locals::is_variable;
use super::super::op::{IntOp, MemoryTarget, Op};
use super::super::opcode::{Form, Opcode, Semantics};
use super::super::unit::synthetic;
use super::accessed;
use super::address::{self, Addresses};
use rgpu_image::ptx::ast::{AddressBase, Function, Instruction, Module, Operand, RegId, Space, Symbol};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Load,
    Store,
    /// Both at once.
    Atomic,
}

/// What each form of an instruction does, as far as the text of the form says it.
pub(super) struct Forms {
    /// Loads and stores of shared memory, and whether they are volatile.
    shared: Vec<Option<(Access, bool)>>,
    /// The same of memory of which the text does not say where it is.
    generic: Vec<Option<(Access, bool)>>,
    exchanging: Vec<Option<Access>>,
    /// Those whose text does not say in what memory anything is,
    placeless: Vec<bool>,
    /// and those that wait for copies made in the background.
    waiting: Vec<bool>,
    /// Whether there are any volatile accesses to what is shared memory, or may be.
    pub(super) volatile: bool,
}

impl Forms {
    /// Looks at a module's own forms.
    pub(super) fn new(forms: &[Form]) -> Self {
        let synthetic = synthetic::COUNT as usize;
        let access = |is: fn(&Form) -> bool| -> Vec<Option<(Access, bool)>> {
            let forms = forms.iter().map(|form| access(form).filter(|_| is(form)));
            std::iter::repeat_n(None, synthetic).chain(forms).collect()
        };
        let shared = access(|form| matches!(form.space(), Some(Space::Shared | Space::SharedCta)));
        let generic = access(|form| form.spaces.is_empty());
        let exchanging = std::iter::repeat_n(None, synthetic).chain(forms.iter().map(exchanging)).collect();
        let volatile = shared.iter().chain(&generic).flatten().any(|&(_, volatile)| volatile);
        let all = |is: fn(&Form) -> bool| -> Vec<bool> {
            std::iter::repeat_n(false, synthetic).chain(forms.iter().map(is)).collect()
        };
        let placeless = all(|form| form.spaces.is_empty());
        let waiting = all(|form| {
            let waits = form.has("wait_group") || form.has("wait_all");
            form.opcode == Opcode::Cp && waits && !form.has("bulk")
        });
        Self { shared, generic, exchanging, placeless, waiting, volatile }
    }

    /// Whether the text of an instruction does not say in what memory it accesses anything.
    pub(super) fn is_generic(&self, instruction: &Instruction) -> bool {
        self.placeless[instruction.form.0 as usize]
    }

    /// Whether an instruction waits for copies made in the background.
    pub(super) fn waits_for_copies(&self, instruction: &Instruction) -> bool {
        self.waiting[instruction.form.0 as usize]
    }

    /// The statements of a function that access memory which lanes share and of which the text does not say that others look,
    /// except by volatile accesses and by relaxed stores; or are atomic operations.
    pub(super) fn exchanging(&self, function: &Function, ops: &[Op]) -> BTreeMap<usize, Access> {
        let stack = of_stack(function, ops);
        address::instructions(function)
            .filter_map(|(at, i)| Some((at, self.exchanging[i.form.0 as usize]?)))
            .filter(|(at, _)| !stack.contains(at))
            .collect()
    }

    /// Whether an instruction accesses memory that lanes share, or may.
    pub(super) fn accesses(&self, instruction: &Instruction) -> bool {
        let form = instruction.form.0 as usize;
        self.exchanging[form].is_some() || self.shared[form].is_some() || self.generic[form].is_some()
    }

    /// Whether a function has volatile accesses of which the text does not say to what memory.
    pub(super) fn has_generic_volatile(&self, function: &Function) -> bool {
        let is = |i: &Instruction| matches!(self.generic[i.form.0 as usize], Some((_, true)));
        address::instructions(function).any(|(_, instruction)| is(instruction))
    }

    /// Whether a function may read the block's memory and write it.
    pub(super) fn may_change_shared(&self, function: &Function, ops: &[Op]) -> bool {
        let any = |is: &dyn Fn(&Instruction) -> bool| address::instructions(function).any(|(_, i)| is(i));
        let does = |asked: Access| {
            move |i: &Instruction| {
                let form = i.form.0 as usize;
                self.shared[form].or(self.generic[form]).is_some_and(|(access, _)| access == asked)
            }
        };
        let raises = |i: &Instruction| matches!(ops[i.form.0 as usize], Op::Atom { shared: true, .. });
        any(&does(Access::Load)) && (any(&does(Access::Store)) || any(&raises))
    }
}

/// A load or a store, and whether it is volatile.
fn access(form: &Form) -> Option<(Access, bool)> {
    let access = match form.opcode {
        Opcode::Ld => Some(Access::Load),
        Opcode::St => Some(Access::Store),
        _ => None,
    };
    access.map(|access| (access, form.semantics == Some(Semantics::Volatile)))
}

/// See [`Forms::exchanging`].
fn exchanging(form: &Form) -> Option<Access> {
    // A copy made in the background is there when a lane has waited for it, as its own stores are.
    if form.opcode == Opcode::Cp {
        let copies = matches!(form.spaces[..], [Space::Shared | Space::SharedCta, Space::Global]);
        return (copies && !form.has("bulk")).then_some(Access::Store);
    }
    if !matches!(form.spaces[..], [] | [Space::Global | Space::Shared | Space::SharedCta]) {
        return None;
    }
    let access = match form.opcode {
        Opcode::Ld => Access::Load,
        Opcode::St => Access::Store,
        Opcode::Atom | Opcode::Red => return Some(Access::Atomic),
        _ => return None,
    };
    let ordinary = match form.semantics {
        None | Some(Semantics::Weak | Semantics::Volatile) => true,
        Some(Semantics::Relaxed) => access == Access::Store,
        _ => false,
    };
    (ordinary && !form.nc).then_some(access)
}

/// The statements of a function that load and store its own variables in local memory though the text does not say so: all that
/// was built for a debugger does it with each of them.
fn of_stack(function: &Function, ops: &[Op]) -> BTreeSet<usize> {
    // Registers that lead to the stack, and those that may lead elsewhere, as well.
    let (mut stack, mut others) = (HashSet::new(), HashSet::new());
    let mut statements = BTreeSet::new();
    for (at, instruction) in address::instructions(function) {
        let op = &ops[instruction.form.0 as usize];
        let leads = |operand: &Operand, stack: &HashSet<RegId>| match operand {
            Operand::Reg(register) | Operand::Address(AddressBase::Reg(register), _) => {
                stack.contains(register)
            }
            Operand::Symbol(symbol, _) | Operand::Address(AddressBase::Symbol(symbol), _) => {
                is_variable(function, *symbol)
            }
            _ => false,
        };
        if accessed(instruction, op).is_some_and(|(operand, _)| leads(operand, &stack)) {
            statements.insert(at);
        }
        let [Operand::Reg(result), operands @ ..] = &instruction.operands[..] else { continue };
        let passes = matches!(op, Op::Mov { .. } | Op::Cvta { .. } | Op::Int { op: IntOp::Add, .. });
        if passes && operands.iter().any(|operand| leads(operand, &stack)) && !others.contains(result) {
            stack.insert(*result);
        } else {
            stack.remove(result);
            others.insert(*result);
        }
    }
    statements
}

/// What the instructions of a function access.
pub(super) struct Accesses<'a> {
    pub(super) forms: &'a Forms,
    /// Statements that access the block's memory though the text does not say so.
    shared: BTreeSet<usize>,
}

impl<'a> Accesses<'a> {
    /// Finds what leads to the block's memory, if it is known what addresses are made of.
    pub(super) fn new(
        function: &Function,
        module: &Module,
        ops: &[Op],
        forms: &'a Forms,
        addresses: Option<&mut Addresses>,
    ) -> Self {
        let is_shared = |symbol: Symbol| {
            let variable = match symbol {
                Symbol::Local(id) => function.variables.get(id.0 as usize),
                Symbol::Global(id) => module.variables.get(id.0 as usize),
                _ => None,
            };
            variable.is_some_and(|variable| matches!(variable.space, Space::Shared | Space::SharedCta))
        };
        let mut shared = BTreeSet::new();
        if let Some(addresses) = addresses {
            for (at, instruction) in address::instructions(function) {
                let op = &ops[instruction.form.0 as usize];
                let generic = match op {
                    Op::Atom { shared, .. } => !shared,
                    _ => forms.generic[instruction.form.0 as usize].is_some(),
                };
                if generic
                    && let Some((operand, _)) = accessed(instruction, op)
                    && let Some(address) = addresses.address(operand)
                    && addresses.symbol_of(&address).is_some_and(is_shared)
                {
                    shared.insert(at);
                }
            }
        }
        Self { forms, shared }
    }

    /// A load or store of the block's memory, and whether it is a volatile one.
    pub(super) fn shared(&self, at: usize, instruction: &Instruction) -> Option<(Access, bool)> {
        let form = instruction.form.0 as usize;
        self.forms.shared[form].or_else(|| self.forms.generic[form].filter(|_| self.shared.contains(&at)))
    }

    /// Whether a statement accesses the block's memory.
    pub(super) fn is_shared(&self, at: usize, op: &Op) -> bool {
        let said = matches!(op, Op::Atom { shared: true, .. })
            || matches!(op, Op::CpAsync { .. })
            || matches!(op, Op::Ld { place, .. } | Op::St { place, .. } if *place == MemoryTarget::Shared);
        said || self.shared.contains(&at)
    }

    /// Whether a statement is a volatile access to the block's memory, before which lanes wait anyway.
    pub(super) fn is_volatile(&self, at: usize, instruction: &Instruction) -> bool {
        matches!(self.shared(at, instruction), Some((_, true)))
    }
}
