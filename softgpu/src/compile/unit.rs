//! A module with its instructions decoded, and what is known about its functions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rgpu_device::{Code, Error};

use super::GlobalLayout;
use super::decode::decode;
use super::flow::{Flow, read_registers};
use super::op::{MemoryTarget, Op, Order};
use super::opcode::{Checker, Form};
use super::vars::{Vars, is_scalar};
use rgpu_image::ptx::ast::{
    Function, FunctionId, Instruction, Module, Operand, Statement, Symbol, Type, Variable,
};

/// Forms that no text contains but that inlining needs. The module's own are numbered after them.
pub(crate) mod synthetic {
    /// `bra`
    pub(crate) const BRANCH: u32 = 0;
    /// `mov` of 8, 16, 32 and 64 bits.
    pub(crate) const MOVE: [u32; 4] = [1, 2, 3, 4];
    /// `ld.param`
    pub(crate) const LOAD: [u32; 4] = [5, 6, 7, 8];
    /// `st.param`
    pub(crate) const STORE: [u32; 4] = [9, 10, 11, 12];
    /// The lanes of a warp wait for each other.
    pub(crate) const CONVERGE: u32 = 13;
    /// The other threads of the block go first.
    pub(crate) const YIELD: u32 = 14;
    /// How many there are.
    pub(crate) const COUNT: u32 = 15;
}

fn synthetic_ops() -> Vec<Op> {
    let bits = [Type::B8, Type::B16, Type::B32, Type::B64];
    let mut ops = vec![Op::Bra];
    ops.extend(bits.map(|ty| Op::Mov { ty }));
    let (place, vector, order) = (MemoryTarget::Param, 1, Order::Weak);
    ops.extend(bits.map(|ty| Op::Ld { place, ty, vector, order }));
    ops.extend(bits.map(|ty| Op::St { place, ty, vector, order }));
    ops.extend([Op::Converge, Op::Yield]);
    ops
}

/// Functions that a module may call without defining them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Builtin {
    Printf,
    Malloc,
    Free,
    AssertFail,
}

impl Builtin {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "vprintf" => Self::Printf,
            "malloc" => Self::Malloc,
            "free" => Self::Free,
            "__assertfail" => Self::AssertFail,
            _ => return None,
        })
    }
}

/// A function in the table of those that may be called through a pointer.
#[repr(C)]
pub(crate) struct TableEntry {
    /// Its machine code.
    pub code: AtomicU64,
    /// What its parameters and results look like; see [`Unit::shape`].
    pub shape: AtomicU32,
}

/// The table of a kernel, indexed by function.
pub(super) struct Table(Vec<TableEntry>);

impl Table {
    /// With no function in it.
    pub(super) fn new(count: usize) -> Arc<Self> {
        let entry = || TableEntry { code: AtomicU64::new(0), shape: AtomicU32::new(u32::MAX) };
        Arc::new(Self((0..count).map(|_| entry()).collect()))
    }

    /// Where it lies.
    pub(super) fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// Enters a function.
    pub(super) fn set(&self, id: FunctionId, code: u64, shape: u32) {
        let entry = &self.0[id.0 as usize];
        entry.code.store(code, Ordering::Relaxed);
        entry.shape.store(shape, Ordering::Relaxed);
    }
}

/// See the module.
pub(super) struct Unit {
    pub module: Module,
    /// What each form of an instruction does, by the form's number.
    pub ops: Vec<Op>,
    pub globals: Vec<GlobalLayout>,
    pub kernels: Vec<FunctionId>,
    /// Functions in which threads can stop.
    pub inlined: HashSet<FunctionId>,
    /// Functions that may notice what other threads do.
    observers: HashSet<FunctionId>,
    /// Functions whose address is taken.
    addressed: Vec<FunctionId>,
    shapes: Vec<Vec<u64>>,
    /// The number that stands for the address of function 0.
    first_pointer: u64,
}

fn refuse(line: u32, why: impl std::fmt::Display) -> Error {
    Error::new(Code::InvalidPtx, format!("PTX line {line}: {why}"))
}

impl Unit {
    /// Checks and decodes a module.
    pub(super) fn new(mut module: Module, compute_capability: u32) -> Result<Self, Error> {
        if module.target_sm > compute_capability {
            return Err(Error::new(
                Code::InvalidPtx,
                format!(
                    "The PTX is for {}, which is newer than the device (compute capability {}.{})",
                    module.target,
                    compute_capability / 10,
                    compute_capability % 10
                ),
            ));
        }
        if module.address_size != 64 {
            return Err(Error::new(Code::InvalidPtx, "PTX with addresses of 32 bits is not supported"));
        }
        let forms: Vec<Form> = module.forms.iter().map(|text| Form::parse(text)).collect();
        let ops = decode_all(&mut module, &forms)?;
        super::lockstep::insert(&mut module, &forms, &ops);
        // Numbers that stand for functions are never used twice in a process, so that a pointer to
        // another module's function is noticed.
        static NEXT: AtomicU64 = AtomicU64::new(1 << 20);
        let first_pointer = NEXT.fetch_add(module.functions.len() as u64 + 1, Ordering::Relaxed);
        let globals = super::layout::globals(&module.variables, |id| first_pointer + u64::from(id.0))?;
        let kernels = (0..module.functions.len() as u32)
            .map(FunctionId)
            .filter(|id| {
                let function = &module.functions[id.0 as usize];
                function.is_entry && !function.is_declaration
            })
            .collect();
        let mut unit = Self {
            module,
            ops,
            globals,
            kernels,
            inlined: HashSet::new(),
            observers: HashSet::new(),
            addressed: Vec::new(),
            shapes: Vec::new(),
            first_pointer,
        };
        unit.check_calls()?;
        unit.collect_addressed();
        unit.collect_shapes();
        unit.find_stopping();
        Ok(unit)
    }

    /// The function that a name means in the end.
    pub(super) fn resolve(&self, id: FunctionId) -> FunctionId {
        let mut id = id;
        // Aliases of aliases, but not in circles.
        for _ in 0..8 {
            match self.module.functions[id.0 as usize].alias_of {
                Some(next) => id = next,
                None => break,
            }
        }
        id
    }

    /// The built-in function that a declaration stands for.
    pub(super) fn builtin(&self, id: FunctionId) -> Option<Builtin> {
        let function = &self.module.functions[id.0 as usize];
        if function.is_declaration { Builtin::from_name(&function.name) } else { None }
    }

    /// What a pointer to the function looks like.
    pub(super) fn function_pointer(&self, id: FunctionId) -> u64 {
        self.first_pointer + u64::from(self.resolve(id).0)
    }

    /// The first pointer and how many there are.
    pub(super) fn pointer_range(&self) -> (u64, u32) {
        (self.first_pointer, self.module.functions.len() as u32)
    }

    fn instructions(function: &Function) -> impl Iterator<Item = &Instruction> {
        function.body.iter().filter_map(|statement| match statement {
            Statement::Instruction(instruction) => Some(instruction),
            Statement::Label(_) => None,
        })
    }

    fn op(&self, instruction: &Instruction) -> &Op {
        &self.ops[instruction.form.0 as usize]
    }

    /// Every call has to lead somewhere.
    fn check_calls(&self) -> Result<(), Error> {
        for function in &self.module.functions {
            for instruction in Self::instructions(function) {
                if !matches!(self.op(instruction), Op::Call) {
                    continue;
                }
                let Some(Operand::Symbol(Symbol::Function(id), _)) = instruction.operands.get(1) else {
                    continue;
                };
                let id = self.resolve(*id);
                let callee = &self.module.functions[id.0 as usize];
                if callee.is_declaration && self.builtin(id).is_none() {
                    return Err(refuse(
                        instruction.line,
                        format!("Unresolved extern function '{}'", callee.name),
                    ));
                }
            }
        }
        Ok(())
    }

    fn collect_addressed(&mut self) {
        let mut found = HashSet::new();
        for function in &self.module.functions {
            for instruction in Self::instructions(function) {
                let call = matches!(self.op(instruction), Op::Call);
                for (index, operand) in instruction.operands.iter().enumerate() {
                    if call && index == 1 {
                        continue;
                    }
                    super::flow::symbols(operand, &mut |symbol| {
                        if let Symbol::Function(id) = symbol {
                            found.insert(self.resolve(id));
                        }
                    });
                }
            }
        }
        for variable in &self.module.variables {
            for relocation in variable.init.iter().flat_map(|init| &init.relocations) {
                if let Symbol::Function(id) = relocation.target {
                    found.insert(self.resolve(id));
                }
            }
        }
        found.retain(|id| {
            let function = &self.module.functions[id.0 as usize];
            !function.is_declaration && !function.is_entry
        });
        self.addressed = found.into_iter().collect();
        self.addressed.sort_unstable();
    }

    /// What two functions have to agree on to be called in the same way.
    fn shape_of(params: &[Variable], returns: &[Variable]) -> Vec<u64> {
        let one = |variable: &Variable| {
            if is_scalar(variable) {
                let float = matches!(variable.ty, Type::F32 | Type::F64);
                u64::from(variable.ty.bits()) << 1 | u64::from(float)
            } else {
                1 << 63 | variable.size
            }
        };
        let mut shape: Vec<u64> = returns.iter().map(one).collect();
        shape.push(u64::MAX);
        shape.extend(params.iter().map(one));
        shape
    }

    fn collect_shapes(&mut self) {
        let mut shapes = Vec::new();
        let mut add = |shape: Vec<u64>| {
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        };
        for &id in &self.addressed {
            let function = &self.module.functions[id.0 as usize];
            add(Self::shape_of(&function.params, &function.returns));
        }
        for function in &self.module.functions {
            for prototype in &function.prototypes {
                add(Self::shape_of(&prototype.params, &prototype.returns));
            }
        }
        self.shapes = shapes;
    }

    /// A number for what a function's parameters and results look like.
    pub(super) fn shape(&self, params: &[Variable], returns: &[Variable]) -> u32 {
        let shape = Self::shape_of(params, returns);
        match self.shapes.iter().position(|known| *known == shape) {
            Some(index) => index as u32,
            // Nobody calls it through a pointer.
            None => u32::MAX - 1,
        }
    }

    /// Whether an instruction may notice what other threads do.
    pub(super) fn observes(&self, instruction: &Instruction, op: &Op, read: &[bool]) -> bool {
        match op {
            Op::Atom { result: true, .. } => {
                matches!(instruction.operands.first(), Some(Operand::Reg(reg)) if read[reg.0 as usize])
            }
            Op::Call => match instruction.operands.get(1) {
                Some(Operand::Symbol(Symbol::Function(id), _)) => self.observers.contains(&self.resolve(*id)),
                // Through a pointer: some function that does, if any does.
                _ => self.addressed.iter().any(|id| self.observers.contains(id)),
            },
            op => op.traits().observes_others,
        }
    }

    /// Finds the functions that observe others, and those in which threads can stop.
    fn find_stopping(&mut self) {
        let ids: Vec<FunctionId> = (0..self.module.functions.len() as u32)
            .map(FunctionId)
            .filter(|id| {
                let function = &self.module.functions[id.0 as usize];
                !function.is_entry && !function.is_declaration
            })
            .collect();
        let mut facts = HashMap::new();
        for &id in &ids {
            let function = &self.module.functions[id.0 as usize];
            let vars = Vars::new(function, &self.ops);
            facts.insert(id, read_registers(function, &self.ops, &vars));
        }
        loop {
            let before = self.observers.len();
            for &id in &ids {
                let function = &self.module.functions[id.0 as usize];
                if Self::instructions(function).any(|i| self.observes(i, self.op(i), &facts[&id])) {
                    self.observers.insert(id);
                }
            }
            if self.observers.len() == before {
                break;
            }
        }
        for &id in &ids {
            let function = &self.module.functions[id.0 as usize];
            let stops = Self::instructions(function).any(|i| self.op(i).is_cut())
                || !Flow::new(function, &self.ops)
                    .waiting_edges(function, &self.ops, |i, op| self.observes(i, op, &facts[&id]))
                    .is_empty();
            if stops {
                self.inlined.insert(id);
            }
        }
        loop {
            let before = self.inlined.len();
            for &id in &ids {
                let function = &self.module.functions[id.0 as usize];
                if function.body.iter().any(|statement| {
                    super::inline::callee(self, statement)
                        .is_some_and(|callee| self.inlined.contains(&callee))
                }) {
                    self.inlined.insert(id);
                }
            }
            if self.inlined.len() == before {
                break;
            }
        }
    }

    /// Whether a kernel and the functions that it can reach can be executed; an error says what not.
    pub(super) fn check_kernel(&self, kernel: &Function, functions: &[FunctionId]) -> Result<(), Error> {
        if kernel.needs_cluster || kernel.required_cluster.is_some() {
            return Err(refuse(kernel.line, "clusters of blocks are not supported"));
        }
        let bodies = || {
            let functions = functions.iter().map(|id| &self.module.functions[id.0 as usize]);
            std::iter::once(kernel).chain(functions)
        };
        let mut refused: Vec<(u32, u32)> = Vec::new();
        for instruction in bodies().flat_map(Self::instructions) {
            let form = instruction.form.0;
            if matches!(self.op(instruction), Op::Refused) && refused.iter().all(|&(_, other)| other != form)
            {
                refused.push((instruction.line, form));
            }
        }
        if refused.is_empty() {
            return bodies().try_for_each(|function| self.check_pointers(function));
        }
        refused.sort_unstable();
        let named = refused.iter().take(8).map(|&(line, form)| format!("line {line}: {}", self.text(form)));
        let named = named.collect::<Vec<_>>().join(", ");
        let more = if refused.len() > 8 { format!(" and {} more", refused.len() - 8) } else { String::new() };
        Err(Error::new(
            Code::InvalidPtx,
            format!("Kernel {} has PTX instructions that are not supported: {named}{more}", kernel.name),
        ))
    }

    /// How the opcode of a form is written, with its modifiers; empty for forms that no text contains.
    pub(super) fn text(&self, form: u32) -> &str {
        let own = form.checked_sub(synthetic::COUNT);
        own.and_then(|form| self.module.forms.get(form as usize)).map_or("", String::as_str)
    }

    /// Functions that have to be inlined cannot be called through a pointer.
    fn check_pointers(&self, function: &Function) -> Result<(), Error> {
        for instruction in Self::instructions(function) {
            let (Op::Call, Some(Operand::Reg(_))) = (self.op(instruction), instruction.operands.get(1))
            else {
                continue;
            };
            let shape = match instruction.operands.get(3) {
                Some(Operand::Prototype(index)) => {
                    let prototype = &function.prototypes[*index as usize];
                    self.shape(&prototype.params, &prototype.returns)
                }
                _ => continue,
            };
            for &id in &self.addressed {
                let callee = &self.module.functions[id.0 as usize];
                if self.inlined.contains(&id) && self.shape(&callee.params, &callee.returns) == shape {
                    return Err(refuse(
                        instruction.line,
                        format!(
                            "{} may be called through a pointer here, and threads wait for each other in it: not supported",
                            callee.name
                        ),
                    ));
                }
            }
        }
        Ok(())
    }

    /// The functions that a kernel can reach by calls, itself left out.
    pub(super) fn reachable(&self, kernel: &Function) -> Vec<FunctionId> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let mut add = |id: FunctionId, found: &mut Vec<FunctionId>| {
            if !self.module.functions[id.0 as usize].is_declaration && seen.insert(id) {
                found.push(id);
            }
        };
        let mut scan = |function: &Function, found: &mut Vec<FunctionId>| {
            for statement in &function.body {
                let Statement::Instruction(instruction) = statement else { continue };
                if !matches!(self.op(instruction), Op::Call) {
                    continue;
                }
                match super::inline::callee(self, statement) {
                    Some(id) => add(id, found),
                    None => {
                        for &id in &self.addressed {
                            if !self.inlined.contains(&id) {
                                add(id, found);
                            }
                        }
                    }
                }
            }
        };
        scan(kernel, &mut found);
        let mut next = 0;
        while next < found.len() {
            let function = &self.module.functions[found[next].0 as usize];
            scan(function, &mut found);
            next += 1;
        }
        found
    }
}

/// Decodes all forms, checks the operands of what can be executed, and renumbers the forms after the synthetic ones.
/// What cannot be executed becomes [`Op::Refused`]: kernels that do without it can run.
fn decode_all(module: &mut Module, forms: &[Form]) -> Result<Vec<Op>, Error> {
    let mut ops = synthetic_ops();
    ops.extend(forms.iter().map(|form| decode(form).unwrap_or(Op::Refused)));
    let mut checker = Checker::default();
    for function in &mut module.functions {
        let Function { body, registers, .. } = function;
        for statement in body {
            let Statement::Instruction(instruction) = statement else { continue };
            let own = instruction.form.0 as usize;
            instruction.form.0 += synthetic::COUNT;
            if !matches!(ops[instruction.form.0 as usize], Op::Refused) {
                checker
                    .check(own, &forms[own], &mut instruction.operands, registers)
                    .map_err(|why| refuse(instruction.line, why))?;
            }
        }
    }
    Ok(ops)
}
