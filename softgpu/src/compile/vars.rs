//! Where the variables and parameters of one function live.

use super::op::{MemoryTarget, Op};
use rgpu_image::ptx::ast::{AddressBase, Function, Operand, Space, Statement, Symbol, Type, Variable};

/// Where a variable or parameter lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// A register, numbered after the function's own.
    Reg(u32),
    /// At this offset of the function's frame in local memory.
    Frame(u32),
    /// Elsewhere in local memory: a register holds the address.
    Pointer(u32),
    /// At this offset of the kernel's parameter block.
    Block(u32),
    /// Shared memory; its offset is the kernel's matter.
    Shared,
}

impl Home {
    /// The register that is the home.
    pub(super) fn register(&self) -> Option<u32> {
        match *self {
            Self::Reg(register) => Some(register),
            _ => None,
        }
    }
}

/// The registers and homes of a function.
#[derive(Debug, Clone, Default)]
pub(super) struct Vars {
    /// Types of all registers: the function's, then those added for parameters, then the carry flag.
    pub types: Vec<Type>,
    /// The number of the carry flag.
    pub carry: u32,
    /// Where each parameter lies, by the number in [`Symbol::Param`].
    pub params: Vec<Home>,
    /// Where each returned value lies, by the number in [`Symbol::Return`].
    pub returns: Vec<Home>,
    /// Where each local variable lies, by the number in [`Symbol::Local`].
    pub locals: Vec<Home>,
    /// Bytes of the frame in local memory, a multiple of 16.
    pub frame: u32,
}

/// Whether a parameter of a function is passed as a value. Otherwise its address is.
pub(super) fn is_scalar(variable: &Variable) -> bool {
    variable.dims.is_empty() && variable.vector == 1 && (8..=64).contains(&variable.ty.bits())
}

/// Offsets of a kernel's parameters, and where they end.
pub(super) fn parameter_offsets(params: &[Variable]) -> (Vec<u32>, u32) {
    let mut end = 0u32;
    let mut offsets = Vec::new();
    for param in params {
        // What is larger than any launch's parameters cannot be launched.
        end = end.checked_next_multiple_of(param.align.max(1)).unwrap_or(u32::MAX);
        offsets.push(end);
        end = end.saturating_add(u32::try_from(param.size).unwrap_or(u32::MAX));
    }
    (offsets, end)
}

impl Vars {
    /// Finds a home for everything.
    pub(super) fn new(function: &Function, ops: &[Op]) -> Vars {
        let mut vars = Vars { types: function.registers.iter().map(|r| r.ty).collect(), ..Vars::default() };
        let plain = plain_accesses(function, ops);
        let mut frame = 0u64;
        if function.is_entry {
            let (offsets, _) = parameter_offsets(&function.params);
            vars.params = offsets.into_iter().map(Home::Block).collect();
        } else {
            for (index, param) in function.params.iter().enumerate() {
                let home = vars.parameter(param, plain.params[index], &mut frame);
                vars.params.push(home);
            }
        }
        for (index, param) in function.returns.iter().enumerate() {
            let home = vars.parameter(param, plain.returns[index], &mut frame);
            vars.returns.push(home);
        }
        for (index, variable) in function.variables.iter().enumerate() {
            let home = match variable.space {
                Space::Shared | Space::SharedCta => Home::Shared,
                Space::Param if is_scalar(variable) && plain.locals[index] => {
                    Home::Reg(vars.add(variable.ty))
                }
                _ => place(variable, &mut frame),
            };
            vars.locals.push(home);
        }
        vars.carry = vars.add(Type::Pred);
        vars.frame = u32::try_from(frame.next_multiple_of(16)).unwrap_or(u32::MAX);
        vars
    }

    fn parameter(&mut self, param: &Variable, plain: bool, frame: &mut u64) -> Home {
        if let [register] = param.registers[..] {
            Home::Reg(register.0)
        } else if !is_scalar(param) {
            Home::Pointer(self.add(Type::B64))
        } else if plain {
            Home::Reg(self.add(param.ty))
        } else {
            place(param, frame)
        }
    }

    fn add(&mut self, ty: Type) -> u32 {
        self.types.push(ty);
        self.types.len() as u32 - 1
    }

    /// Where a function's own symbol lives; `None` for those of the module.
    pub(super) fn home(&self, symbol: Symbol) -> Option<&Home> {
        match symbol {
            Symbol::Param(index) => self.params.get(index as usize),
            Symbol::Return(index) => self.returns.get(index as usize),
            Symbol::Local(id) => self.locals.get(id.0 as usize),
            Symbol::Global(_) | Symbol::Function(_) => None,
        }
    }
}

/// Puts a variable into the frame.
fn place(variable: &Variable, frame: &mut u64) -> Home {
    *frame = frame.next_multiple_of(u64::from(variable.align.max(1)));
    let offset = *frame;
    *frame += variable.size;
    Home::Frame(u32::try_from(offset).unwrap_or(u32::MAX))
}

/// Which symbols are only ever accessed whole, so that a register can stand for them.
struct Plain {
    params: Vec<bool>,
    returns: Vec<bool>,
    locals: Vec<bool>,
}

fn plain_accesses(function: &Function, ops: &[Op]) -> Plain {
    let mut plain = Plain {
        params: vec![true; function.params.len()],
        returns: vec![true; function.returns.len()],
        locals: vec![true; function.variables.len()],
    };
    for statement in &function.body {
        let Statement::Instruction(instruction) = statement else { continue };
        let op = &ops[instruction.form.0 as usize];
        if matches!(op, Op::Call) {
            // Arguments stand in lists, whole.
            continue;
        }
        let width = match op {
            Op::Ld { place: MemoryTarget::Param, ty, vector: 1, .. }
            | Op::St { place: MemoryTarget::Param, ty, vector: 1, .. } => Some(ty.bits()),
            _ => None,
        };
        for operand in &instruction.operands {
            super::flow::symbols(operand, &mut |symbol| {
                let (variable, flag) = match symbol {
                    Symbol::Param(i) => (&function.params[i as usize], &mut plain.params[i as usize]),
                    Symbol::Return(i) => (&function.returns[i as usize], &mut plain.returns[i as usize]),
                    Symbol::Local(id) => {
                        (&function.variables[id.0 as usize], &mut plain.locals[id.0 as usize])
                    }
                    Symbol::Global(_) | Symbol::Function(_) => return,
                };
                let whole = matches!(operand, Operand::Address(AddressBase::Symbol(_), 0))
                    && width == Some(variable.ty.bits());
                *flag &= whole;
            });
        }
    }
    plain
}
