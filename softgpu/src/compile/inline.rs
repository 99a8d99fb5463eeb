//! Inlines functions in which threads can stop: a thread keeps no machine stack while it waits, so that it
//! can only wait in the kernel itself. Also those of which it has to be known what they do for the kernel that calls them.

use std::collections::HashSet;

use rgpu_device::{Code, Error};

use super::layout::local_name;
use super::op::Op;
use super::synthetic;
use rgpu_image::ptx::ast::{
    AddressBase, FormId, Function, FunctionId, Guard, Instruction, LabelId, LocalId, Module, Operand, RegId,
    Space, Statement, Symbol, Variable,
};

/// No kernel that was meant to run is larger than this many statements.
pub(super) const LIMIT: usize = super::budget::STATEMENTS;
/// Registers, variables and labels for each of them.
const NAMES: usize = 8;

/// A module, and what each form of its instructions does.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub module: &'a Module,
    pub ops: &'a [Op],
}

impl<'a> Source<'a> {
    pub(super) fn function(self, id: FunctionId) -> &'a Function {
        &self.module.functions[id.0 as usize]
    }

    /// The function that a statement calls by name.
    pub(super) fn callee(self, statement: &Statement) -> Option<FunctionId> {
        let Statement::Instruction(instruction) = statement else { return None };
        if !matches!(self.ops[instruction.form.0 as usize], Op::Call) {
            return None;
        }
        match instruction.operands.get(1) {
            Some(Operand::Symbol(Symbol::Function(id), _)) => Some(super::unit::resolve(self.module, *id)),
            _ => None,
        }
    }
}

/// The function with every call to one of `inlined` replaced by its body; `None` if there is none. It may have up to `limit` statements.
pub(super) fn expand(
    source: Source,
    id: FunctionId,
    inlined: &HashSet<FunctionId>,
    limit: usize,
) -> Result<Option<Function>, Error> {
    let function = source.function(id);
    let calls = |statement: &Statement| source.callee(statement).is_some_and(|id| inlined.contains(&id));
    if !function.body.iter().any(calls) {
        return Ok(None);
    }
    let mut into = function.clone();
    into.body.clear();
    let mut expansion = Expansion { source, inlined, limit, into, path: vec![id] };
    expansion.append(function, &Renaming::default())?;
    Ok(Some(expansion.into))
}

/// How the names of an inlined function map to those of the function that it is inlined into.
#[derive(Default, Clone)]
struct Renaming {
    registers: u32,
    labels: u32,
    locals: u32,
    branch_tables: u32,
    call_tables: u32,
    prototypes: u32,
    /// What stands for parameters and returns; empty in the outermost function.
    params: Vec<Symbol>,
    returns: Vec<Symbol>,
    /// Where `ret` goes.
    end: Option<LabelId>,
}

impl Renaming {
    fn register(&self, reg: RegId) -> RegId {
        RegId(reg.0 + self.registers)
    }

    fn symbol(&self, symbol: Symbol) -> Symbol {
        match symbol {
            Symbol::Local(id) => Symbol::Local(LocalId(id.0 + self.locals)),
            Symbol::Param(index) => self.params.get(index as usize).copied().unwrap_or(symbol),
            Symbol::Return(index) => self.returns.get(index as usize).copied().unwrap_or(symbol),
            other => other,
        }
    }

    fn operand(&self, operand: &Operand) -> Operand {
        let list = |list: &[Operand]| list.iter().map(|o| self.operand(o)).collect();
        match operand {
            Operand::Reg(reg) => Operand::Reg(self.register(*reg)),
            Operand::NotReg(reg) => Operand::NotReg(self.register(*reg)),
            Operand::Part(reg, part) => Operand::Part(self.register(*reg), *part),
            Operand::Address(base, offset) => {
                let base = match *base {
                    AddressBase::Reg(reg) => AddressBase::Reg(self.register(reg)),
                    AddressBase::Symbol(symbol) => AddressBase::Symbol(self.symbol(symbol)),
                    AddressBase::Absolute => AddressBase::Absolute,
                };
                Operand::Address(base, *offset)
            }
            Operand::Symbol(symbol, offset) => Operand::Symbol(self.symbol(*symbol), *offset),
            Operand::Bracket(o) => Operand::Bracket(list(o)),
            Operand::Vector(o) => Operand::Vector(list(o)),
            Operand::List(o) => Operand::List(list(o)),
            Operand::Pair(pair) => Operand::Pair(Box::new((self.operand(&pair.0), self.operand(&pair.1)))),
            Operand::Label(label) => Operand::Label(LabelId(label.0 + self.labels)),
            Operand::BranchTable(index) => Operand::BranchTable(index + self.branch_tables),
            Operand::CallTable(index) => Operand::CallTable(index + self.call_tables),
            Operand::Prototype(index) => Operand::Prototype(index + self.prototypes),
            other => other.clone(),
        }
    }
}

/// A function on its way to be one with others in it.
struct Expansion<'a> {
    source: Source<'a>,
    inlined: &'a HashSet<FunctionId>,
    limit: usize,
    into: Function,
    /// The functions that are being put into it, from the outermost.
    path: Vec<FunctionId>,
}

impl Expansion<'_> {
    /// Appends a function's body.
    fn append(&mut self, function: &Function, names: &Renaming) -> Result<(), Error> {
        for statement in &function.body {
            let into = &self.into;
            let named = into.registers.len() + into.variables.len() + into.label_names.len();
            if into.body.len() > self.limit || named > NAMES * self.limit {
                return Err(refuse(function, function.line, "The kernel becomes too large by inlining"));
            }
            match statement {
                Statement::Label(label) => {
                    self.into.body.push(Statement::Label(LabelId(label.0 + names.labels)));
                }
                Statement::Instruction(instruction) => {
                    let renamed = rename(instruction, names);
                    let callee = self.source.callee(statement);
                    if let Some(id) = callee.filter(|id| self.inlined.contains(id)) {
                        self.inline_call(&renamed, id)?;
                    } else if let (Op::Ret, Some(end)) =
                        (&self.source.ops[instruction.form.0 as usize], names.end)
                    {
                        self.into.body.push(branch(end, renamed.guard, renamed.line));
                    } else {
                        self.into.body.push(Statement::Instruction(renamed));
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts a function's body in place of a call, the operands of which are renamed already.
    fn inline_call(&mut self, call: &Instruction, id: FunctionId) -> Result<(), Error> {
        let source = self.source;
        let callee = source.function(id);
        if self.path.contains(&id) {
            let why = format!("{} is recursive, and threads can wait for each other in it", callee.name);
            return Err(refuse(callee, call.line, &why));
        }
        let into = &mut self.into;
        let mut names = Renaming {
            registers: into.registers.len() as u32,
            labels: into.labels,
            locals: into.variables.len() as u32,
            branch_tables: into.branch_tables.len() as u32,
            call_tables: into.call_tables.len() as u32,
            prototypes: into.prototypes.len() as u32,
            ..Renaming::default()
        };
        into.registers.extend(callee.registers.iter().cloned());
        into.labels += callee.labels + 2;
        into.label_names.extend(callee.label_names.iter().cloned());
        into.label_names.extend([String::new(), String::new()]);
        into.variables.extend(callee.variables.iter().map(|variable| {
            let mut variable = variable.clone();
            if matches!(variable.space, Space::Shared | Space::SharedCta) {
                variable.name = local_name(&callee.name, &variable.name);
            }
            variable
        }));
        for table in &callee.branch_tables {
            into.branch_tables.push(table.iter().map(|label| LabelId(label.0 + names.labels)).collect());
        }
        into.call_tables.extend(callee.call_tables.iter().cloned());
        into.prototypes.extend(callee.prototypes.iter().cloned());
        let end = LabelId(names.labels + callee.labels);
        names.end = Some(end);

        // A guarded call is skipped as a whole.
        let skip = LabelId(end.0 + 1);
        if let Some(guard) = call.guard {
            into.body.push(branch(skip, Some(Guard { negated: !guard.negated, ..guard }), call.line));
        }
        let (Some(Operand::List(returns)), Some(Operand::List(arguments))) =
            (call.operands.first(), call.operands.get(2))
        else {
            return Err(refuse(callee, call.line, "A call without lists of arguments"));
        };
        if returns.len() != callee.returns.len() || arguments.len() != callee.params.len() {
            return Err(refuse(callee, call.line, "A call with a wrong number of arguments"));
        }
        let mut after = Vec::new();
        for (param, argument) in callee.params.iter().zip(arguments) {
            let symbol = match (argument, &param.registers[..]) {
                (
                    Operand::Symbol(symbol @ (Symbol::Local(_) | Symbol::Param(_) | Symbol::Return(_)), 0),
                    [],
                ) => *symbol,
                (argument, []) => {
                    let local = temporary(into, param);
                    into.body.push(store(local, argument, param, call.line, callee)?);
                    local
                }
                (argument, &[register]) => {
                    into.body.push(copy(
                        Operand::Reg(names.register(register)),
                        argument,
                        param,
                        call.line,
                        callee,
                    )?);
                    Symbol::Param(u32::MAX)
                }
                _ => return Err(refuse(callee, call.line, "A vector of registers as a parameter")),
            };
            names.params.push(symbol);
        }
        for (param, result) in callee.returns.iter().zip(returns) {
            let symbol = match (result, &param.registers[..]) {
                (
                    Operand::Symbol(symbol @ (Symbol::Local(_) | Symbol::Param(_) | Symbol::Return(_)), 0),
                    [],
                ) => *symbol,
                (result, []) => {
                    let local = temporary(into, param);
                    after.push(load(result, local, param, call.line, callee)?);
                    local
                }
                (result, &[register]) => {
                    let source = Operand::Reg(names.register(register));
                    after.push(copy(result.clone(), &source, param, call.line, callee)?);
                    Symbol::Return(u32::MAX)
                }
                _ => return Err(refuse(callee, call.line, "A vector of registers as a result")),
            };
            names.returns.push(symbol);
        }
        self.path.push(id);
        self.append(callee, &names)?;
        self.path.pop();
        let into = &mut self.into;
        into.body.push(Statement::Label(end));
        into.body.extend(after);
        into.body.push(Statement::Label(skip));
        Ok(())
    }
}

fn rename(instruction: &Instruction, names: &Renaming) -> Instruction {
    Instruction {
        form: instruction.form,
        line: instruction.line,
        guard: instruction
            .guard
            .map(|guard| Guard { register: names.register(guard.register), negated: guard.negated }),
        operands: instruction.operands.iter().map(|o| names.operand(o)).collect(),
    }
}

/// A branch that a pass over a body adds.
pub(super) fn branch(to: LabelId, guard: Option<Guard>, line: u32) -> Statement {
    Statement::Instruction(Instruction {
        form: FormId(synthetic::BRANCH),
        line,
        guard,
        operands: vec![Operand::Label(to)],
    })
}

fn refuse(function: &Function, line: u32, why: &str) -> Error {
    Error::new(Code::InvalidPtx, format!("PTX line {line}: {why} (in {})", function.name))
}

/// A new variable for a parameter.
fn temporary(into: &mut Function, param: &Variable) -> Symbol {
    let mut variable = param.clone();
    variable.space = Space::Param;
    variable.registers.clear();
    into.variables.push(variable);
    Symbol::Local(LocalId(into.variables.len() as u32 - 1))
}

fn form(table: &[u32; 4], param: &Variable, line: u32, callee: &Function) -> Result<FormId, Error> {
    let index = match param.ty.bits() {
        8 => 0,
        16 => 1,
        32 => 2,
        64 => 3,
        _ => return Err(refuse(callee, line, "A parameter of an unusual size")),
    };
    Ok(FormId(table[index]))
}

fn statement(form: FormId, line: u32, operands: Vec<Operand>) -> Statement {
    Statement::Instruction(Instruction { form, line, guard: None, operands })
}

fn store(
    to: Symbol,
    from: &Operand,
    param: &Variable,
    line: u32,
    callee: &Function,
) -> Result<Statement, Error> {
    let address = Operand::Address(AddressBase::Symbol(to), 0);
    Ok(statement(form(&synthetic::STORE, param, line, callee)?, line, vec![address, from.clone()]))
}

fn load(
    to: &Operand,
    from: Symbol,
    param: &Variable,
    line: u32,
    callee: &Function,
) -> Result<Statement, Error> {
    let address = Operand::Address(AddressBase::Symbol(from), 0);
    Ok(statement(form(&synthetic::LOAD, param, line, callee)?, line, vec![to.clone(), address]))
}

fn copy(
    to: Operand,
    from: &Operand,
    param: &Variable,
    line: u32,
    callee: &Function,
) -> Result<Statement, Error> {
    match from {
        // A variable's value, not its address.
        Operand::Symbol(symbol @ (Symbol::Local(_) | Symbol::Param(_) | Symbol::Return(_)), 0) => {
            load(&to, *symbol, param, line, callee)
        }
        _ => Ok(statement(form(&synthetic::MOVE, param, line, callee)?, line, vec![to, from.clone()])),
    }
}
