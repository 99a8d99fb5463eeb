//! A module with its instructions decoded, and what is known about its functions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rgpu_device::{Code, Error};

use super::GlobalLayout;
use super::decode::decode;
use super::flow::{Flow, read_registers};
use super::inline::Source;
use super::op::{MemoryTarget, Op, Order};
use super::opcode::{Checker, Compare, Form};
use super::references;
use super::signature::{Shape, Table};
use super::vars::Vars;
use super::verify::Callee;
use crate::abi::Hold;
use crate::abi::device_runtime::{DeviceCall, own_name};
use rgpu_image::ptx::ast::{
    Function, FunctionId, Instruction, Locations, Module, Operand, Special, Statement, Symbol, Type, Variable,
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
    /// `setp.eq` of 64 bits
    pub(crate) const EQUAL: u32 = 15;
    /// All other blocks of the grid go first, to their ends.
    pub(crate) const GRID_YIELD: u32 = 16;
    /// All other blocks of the grid that have begun have a turn first.
    pub(crate) const GRID_TURN: u32 = 17;
    /// How many there are.
    pub(crate) const COUNT: u32 = 18;
}

fn synthetic_ops() -> Vec<Op> {
    let bits = [Type::B8, Type::B16, Type::B32, Type::B64];
    let mut ops = vec![Op::Bra];
    ops.extend(bits.map(|ty| Op::Mov { ty }));
    let (place, vector, order) = (MemoryTarget::Param, 1, Order::Weak);
    ops.extend(bits.map(|ty| Op::Ld { place, ty, vector, order }));
    ops.extend(bits.map(|ty| Op::St { place, ty, vector, order }));
    ops.extend([Op::Converge, Op::Yield]);
    ops.push(Op::Setp { compare: Compare::Eq, combine: None, ty: Type::U64, ftz: false });
    ops.extend([Hold::ToTheEnd, Hold::ForATurn].map(|hold| Op::GridYield { hold }));
    ops
}

/// Functions that a module may call without defining them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Builtin {
    Printf,
    Malloc,
    Free,
    AssertFail,
    /// A function of CUDA's device runtime.
    Runtime(DeviceCall),
}

impl Builtin {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "vprintf" => Self::Printf,
            "malloc" => Self::Malloc,
            "free" => Self::Free,
            "__assertfail" => Self::AssertFail,
            _ => Self::Runtime(DeviceCall::from_name(name)?),
        })
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
    /// Functions that something refers to by address, in order: those that can be called so, and declarations and
    /// kernels, whose addresses are only numbers.
    referenced: Vec<FunctionId>,
    /// Those of them that can be called, in order.
    addressed: Vec<FunctionId>,
    /// The signatures that calls through pointers may have, and their numbers.
    shapes: HashMap<Shape, u32>,
    /// Those of them that have to be inlined, and that calls through a pointer ask for.
    named: HashSet<FunctionId>,
    /// The number that stands for the address of the first of `referenced`.
    first_pointer: u64,
    /// What the text tells about the program's source.
    pub locations: Arc<Locations>,
}

/// The function that a name means in the end.
pub(super) fn resolve(module: &Module, id: FunctionId) -> FunctionId {
    let mut id = id;
    // Aliases of aliases, but not in circles.
    for _ in 0..8 {
        match module.functions[id.0 as usize].alias_of {
            Some(next) => id = next,
            None => break,
        }
    }
    id
}

/// The functions that something other than a call by name refers to: instructions, tables of call targets, initial
/// values of variables.
fn referenced(module: &Module, ops: &[Op]) -> Vec<FunctionId> {
    let mut found = HashSet::new();
    for function in &module.functions {
        for instruction in Unit::instructions(function) {
            let call = matches!(ops[instruction.form.0 as usize], Op::Call);
            for (index, operand) in instruction.operands.iter().enumerate() {
                if call && index == 1 {
                    continue;
                }
                super::flow::symbols(operand, &mut |symbol| {
                    if let Symbol::Function(id) = symbol {
                        found.insert(resolve(module, id));
                    }
                });
            }
        }
        found.extend(function.call_tables.iter().flatten().map(|&id| resolve(module, id)));
    }
    for variable in &module.variables {
        for relocation in variable.init.iter().flat_map(|init| &init.relocations) {
            if let Symbol::Function(id) = relocation.target {
                found.insert(resolve(module, id));
            }
        }
    }
    let mut found: Vec<FunctionId> = found.into_iter().collect();
    found.sort_unstable();
    found
}

fn refuse(line: u32, why: impl std::fmt::Display) -> Error {
    Error::new(Code::InvalidPtx, format!("PTX line {line}: {why}"))
}

impl Unit {
    /// Checks and decodes a module, for whatever architecture it is: what is not known is refused by opcode.
    pub(super) fn new(mut module: Module) -> Result<Self, Error> {
        if module.address_size != 64 {
            return Err(Error::new(Code::InvalidPtx, "PTX with addresses of 32 bits is not supported"));
        }
        super::budget::check_module(&module)?;
        let forms: Vec<Form> = module.forms.iter().map(|text| Form::parse(text)).collect();
        let ops = decode_all(&mut module, &forms)?;
        super::constants::insert(&mut module, &ops);
        super::locals::name(&mut module, &ops);
        super::lockstep::insert(&mut module, &forms, &ops);
        let locations = Arc::new(std::mem::take(&mut module.locations));
        let referenced = referenced(&module, &ops);
        // Numbers that stand for functions are never used twice in a process, so that a pointer to
        // another module's function is noticed.
        static NEXT: AtomicU64 = AtomicU64::new(1 << 20);
        let first_pointer = NEXT.fetch_add(referenced.len() as u64 + 1, Ordering::Relaxed);
        let number = |id| {
            let position = referenced.binary_search(&resolve(&module, id)).unwrap_or(referenced.len());
            first_pointer + position as u64
        };
        let globals = super::layout::globals(&module.variables, number)?;
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
            referenced,
            addressed: Vec::new(),
            shapes: HashMap::new(),
            named: HashSet::new(),
            first_pointer,
            locations,
        };
        unit.check_calls()?;
        unit.addressed = unit.referenced.iter().copied().filter(|id| unit.is_callable(*id)).collect();
        unit.collect_shapes();
        unit.find_stopping();
        while unit.name_callees() {
            // Whoever calls such a function by name has to be inlined, too.
            unit.find_stopping();
        }
        Ok(unit)
    }

    /// The function that a name means in the end.
    pub(super) fn resolve(&self, id: FunctionId) -> FunctionId {
        resolve(&self.module, id)
    }

    pub(super) fn source(&self) -> Source<'_> {
        Source { module: &self.module, ops: &self.ops }
    }

    fn is_callable(&self, id: FunctionId) -> bool {
        let function = &self.module.functions[id.0 as usize];
        !function.is_declaration && !function.is_entry
    }

    /// The built-in function that a declaration stands for.
    pub(super) fn builtin(&self, id: FunctionId) -> Option<Builtin> {
        let function = &self.module.functions[id.0 as usize];
        if function.is_declaration { Builtin::from_name(&function.name) } else { None }
    }

    /// What a pointer to the function looks like, which something refers to.
    pub(super) fn function_pointer(&self, id: FunctionId) -> u64 {
        let position = self.number(self.resolve(id)).unwrap_or(self.referenced.len());
        self.first_pointer + position as u64
    }

    /// The number that stands for the first function to which something refers; none where nothing refers to any.
    pub(super) fn first_number(&self) -> Option<u64> {
        (!self.referenced.is_empty()).then_some(self.first_pointer)
    }

    /// The kernel that a pointer stands for, as an index into the module's kernels.
    pub(super) fn kernel_at(&self, pointer: u64) -> Option<u32> {
        let position = usize::try_from(pointer.checked_sub(self.first_pointer)?).ok()?;
        let id = self.referenced.get(position)?;
        self.kernels.iter().position(|kernel| kernel == id).map(|index| index as u32)
    }

    /// The first pointer.
    pub(super) fn first_pointer(&self) -> u64 {
        self.first_pointer
    }

    /// A table without functions, with room for all that can have pointers. It is never empty.
    pub(super) fn table(&self) -> Arc<Table> {
        Table::new(self.referenced.len().max(1))
    }

    /// The function's place in the table of those that may be called through a pointer; none where nothing refers to it.
    pub(super) fn number(&self, id: FunctionId) -> Option<usize> {
        self.referenced.binary_search(&id).ok()
    }

    pub(super) fn instructions(function: &Function) -> impl Iterator<Item = &Instruction> {
        function.body.iter().filter_map(|statement| match statement {
            Statement::Instruction(instruction) => Some(instruction),
            Statement::Label(_) => None,
        })
    }

    fn op(&self, instruction: &Instruction) -> &Op {
        &self.ops[instruction.form.0 as usize]
    }

    /// Every call has to lead somewhere. Of CUDA's device runtime some functions are missing here: that is the business of the kernels alone that
    /// call them.
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
                let is_known = self.builtin(id).is_some() || own_name(&callee.name).is_some();
                if callee.is_declaration && !is_known {
                    return Err(refuse(
                        instruction.line,
                        format!("Unresolved extern function '{}'", callee.name),
                    ));
                }
            }
        }
        Ok(())
    }

    fn collect_shapes(&mut self) {
        let mut shapes: HashMap<Shape, u32> = HashMap::new();
        let mut add = |shape: Shape| {
            let next = shapes.len() as u32;
            shapes.entry(shape).or_insert(next);
        };
        for &id in &self.addressed {
            let function = &self.module.functions[id.0 as usize];
            add(Shape::of(&function.params, &function.returns));
        }
        for function in &self.module.functions {
            for prototype in &function.prototypes {
                add(Shape::of(&prototype.params, &prototype.returns));
            }
        }
        self.shapes = shapes;
    }

    /// The number of a signature, the same for those alone that agree in everything. None where no call through a pointer
    /// has it: then no function of this signature can be called so.
    pub(super) fn shape(&self, params: &[Variable], returns: &[Variable]) -> Option<u32> {
        let shape = Shape::of(params, returns);
        self.shapes.get(&shape).copied()
    }

    /// How a function is called by name.
    pub(super) fn callee(&self, id: FunctionId) -> Option<Callee> {
        let function = self.module.functions.get(id.0 as usize)?;
        Some(Shape::of(&function.params, &function.returns).callee())
    }

    /// How functions with this number of a signature are called through a pointer.
    pub(super) fn callee_of_shape(&self, number: u32) -> Option<Callee> {
        self.shapes.iter().find(|(_, known)| **known == number).map(|(shape, _)| shape.callee())
    }

    /// The parameters and results of the functions that an indirect call may enter, as its last operand says.
    pub(super) fn signature_of_call<'a>(
        &'a self,
        function: &'a Function,
        how: Option<&Operand>,
    ) -> Option<(&'a [Variable], &'a [Variable])> {
        match how? {
            Operand::Prototype(index) => {
                let prototype = function.prototypes.get(*index as usize)?;
                Some((&prototype.params, &prototype.returns))
            }
            // All that a table names can be called in one way only: that of the first.
            Operand::CallTable(index) => {
                let first = function.call_tables.get(*index as usize)?.first()?;
                let callee = &self.module.functions[self.resolve(*first).0 as usize];
                Some((&callee.params, &callee.returns))
            }
            _ => None,
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

    /// The line of an instruction of a kernel that is only right while threads of a block take turns; none if there is none.
    pub(super) fn needs_turns(&self, kernel: &Function) -> Option<u32> {
        let needs = |op: &Op| {
            matches!(
                op,
                Op::Mbarrier { .. }
                    | Op::StAsync { .. }
                    | Op::RedAsync { .. }
                    | Op::CpBulk { .. }
                    | Op::Tensor { .. }
                    | Op::ReplaceMap { .. }
            )
        };
        Self::instructions(kernel).find(|i| needs(self.op(i))).map(|i| i.line)
    }

    /// Whether functions that a kernel consists of can make addresses of other blocks' shared memory: by the instructions for that, or, as some programs do,
    /// by putting a block's number in the cluster into an address, whose bits 24 to 27 it is.
    pub(super) fn knows_cluster_addresses(&self, bodies: &[&Function]) -> bool {
        use Special::{ClusterCtaRank, ClusterCtaidX, ClusterCtaidY, ClusterCtaidZ};
        let is_number = |operand: &Operand| {
            matches!(
                operand,
                Operand::Special(ClusterCtaRank | ClusterCtaidX | ClusterCtaidY | ClusterCtaidZ)
            )
        };
        bodies.iter().flat_map(|body| Self::instructions(body)).any(|instruction| {
            self.op(instruction).knows_cluster_addresses() || instruction.operands.iter().any(is_number)
        })
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
                    self.source().callee(statement).is_some_and(|callee| self.inlined.contains(&callee))
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
        if kernel.counts_clusters {
            let why = "grids that count clusters (.blocksareclusters) are not supported";
            return Err(refuse(kernel.line, why));
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
            return Ok(());
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

    /// Has calls through a pointer ask first whether they lead to a function that has to be inlined, and call it by name; whether there are more of these
    /// functions than before.
    fn name_callees(&mut self) -> bool {
        let mut callees: HashMap<u32, Vec<FunctionId>> = HashMap::new();
        for &id in self.addressed.iter().filter(|id| self.inlined.contains(id)) {
            let function = &self.module.functions[id.0 as usize];
            if let Some(shape) = self.shape(&function.params, &function.returns)
                && self.named.insert(id)
            {
                callees.entry(shape).or_default().push(id);
            }
        }
        if callees.is_empty() {
            return false;
        }
        let calls = |function: &Function| -> HashMap<usize, Vec<FunctionId>> {
            let body = function.body.iter().enumerate();
            let callees = body.filter_map(|(at, statement)| {
                let Statement::Instruction(instruction) = statement else { return None };
                let (Op::Call, Some(Operand::Reg(_))) = (self.op(instruction), instruction.operands.get(1))
                else {
                    return None;
                };
                let (params, returns) = self.signature_of_call(function, instruction.operands.get(3))?;
                Some((at, callees.get(&self.shape(params, returns)?)?.clone()))
            });
            callees.collect()
        };
        let calls: Vec<_> = self.module.functions.iter().map(calls).collect();
        for (function, calls) in
            self.module.functions.iter_mut().zip(calls).filter(|(_, calls)| !calls.is_empty())
        {
            super::pointers::call_by_name(function, &calls);
        }
        true
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
        let mut all = false;
        let mut scan = |function: &Function, found: &mut Vec<FunctionId>| {
            for statement in &function.body {
                let Statement::Instruction(instruction) = statement else { continue };
                if !matches!(self.op(instruction), Op::Call) {
                    continue;
                }
                match self.source().callee(statement) {
                    Some(id) => add(id, found),
                    // All that can be called through a pointer: to be added once.
                    None if std::mem::replace(&mut all, true) => {}
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
    let Module { functions, variables, .. } = module;
    for function in functions {
        let Function { body, registers, .. } = function;
        let params = if function.is_entry { &function.params[..] } else { &[] };
        for statement in body {
            let Statement::Instruction(instruction) = statement else { continue };
            let own = instruction.form.0 as usize;
            instruction.form.0 += synthetic::COUNT;
            if !matches!(ops[instruction.form.0 as usize], Op::Refused) {
                checker
                    .check(own, &forms[own], &mut instruction.operands, registers)
                    .and_then(|()| {
                        let op = &ops[instruction.form.0 as usize];
                        let operands = &instruction.operands;
                        references::check(op, &forms[own].text, operands, variables, params)
                    })
                    .map_err(|why| refuse(instruction.line, why))?;
            }
        }
    }
    Ok(ops)
}
