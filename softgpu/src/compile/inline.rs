//! Inlines functions in which threads can stop: a thread keeps no machine stack while it waits, so that it
//! can only wait in the kernel itself.

use std::collections::HashSet;

use rgpu_device::{Code, Error};

use super::layout::local_name;
use super::{Unit, synthetic};
use rgpu_image::ptx::ast::{
    AddressBase, FormId, Function, FunctionId, Guard, Instruction, LabelId, LocalId, Operand, RegId, Space,
    Statement, Symbol, Variable,
};

/// No kernel that was meant to run is larger than this many statements.
const LIMIT: usize = super::budget::STATEMENTS;

/// The function with every call to one of `inlined` replaced by its body; `None` if there is none.
pub(super) fn expand(
    unit: &Unit,
    id: FunctionId,
    inlined: &HashSet<FunctionId>,
) -> Result<Option<Function>, Error> {
    let function = &unit.module.functions[id.0 as usize];
    let calls = |statement: &Statement| callee(unit, statement).is_some_and(|id| inlined.contains(&id));
    if !function.body.iter().any(calls) {
        return Ok(None);
    }
    let mut result = function.clone();
    result.body.clear();
    let mut path = vec![id];
    append(unit, function, &mut result, &Renaming::default(), inlined, &mut path)?;
    Ok(Some(result))
}

/// The function that a statement calls by name.
pub(super) fn callee(unit: &Unit, statement: &Statement) -> Option<FunctionId> {
    let Statement::Instruction(instruction) = statement else { return None };
    if !matches!(unit.ops[instruction.form.0 as usize], super::op::Op::Call) {
        return None;
    }
    match instruction.operands.get(1) {
        Some(Operand::Symbol(Symbol::Function(id), _)) => Some(unit.resolve(*id)),
        _ => None,
    }
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

/// Appends a function's body to `into`.
fn append(
    unit: &Unit,
    function: &Function,
    into: &mut Function,
    names: &Renaming,
    inlined: &HashSet<FunctionId>,
    path: &mut Vec<FunctionId>,
) -> Result<(), Error> {
    for statement in &function.body {
        if into.body.len() > LIMIT {
            return Err(refuse(function, function.line, "The kernel becomes too large by inlining"));
        }
        match statement {
            Statement::Label(label) => {
                into.body.push(Statement::Label(LabelId(label.0 + names.labels)));
            }
            Statement::Instruction(instruction) => {
                let renamed = rename(instruction, names);
                if let Some(id) = callee(unit, statement).filter(|id| inlined.contains(id)) {
                    inline_call(unit, &renamed, id, into, inlined, path)?;
                } else if let (super::op::Op::Ret, Some(end)) =
                    (&unit.ops[instruction.form.0 as usize], names.end)
                {
                    into.body.push(branch(end, renamed.guard, renamed.line));
                } else {
                    into.body.push(Statement::Instruction(renamed));
                }
            }
        }
    }
    Ok(())
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

fn branch(to: LabelId, guard: Option<Guard>, line: u32) -> Statement {
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

/// Puts a function's body in place of a call, the operands of which are renamed already.
fn inline_call(
    unit: &Unit,
    call: &Instruction,
    id: FunctionId,
    into: &mut Function,
    inlined: &HashSet<FunctionId>,
    path: &mut Vec<FunctionId>,
) -> Result<(), Error> {
    let callee = &unit.module.functions[id.0 as usize];
    if path.contains(&id) {
        let why = format!("{} is recursive, and threads can wait for each other in it", callee.name);
        return Err(refuse(callee, call.line, &why));
    }
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
            (Operand::Symbol(symbol @ (Symbol::Local(_) | Symbol::Param(_) | Symbol::Return(_)), 0), []) => {
                *symbol
            }
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
            (Operand::Symbol(symbol @ (Symbol::Local(_) | Symbol::Param(_) | Symbol::Return(_)), 0), []) => {
                *symbol
            }
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
    path.push(id);
    append(unit, callee, into, &names, inlined, path)?;
    path.pop();
    into.body.push(Statement::Label(end));
    into.body.extend(after);
    into.body.push(Statement::Label(skip));
    Ok(())
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
