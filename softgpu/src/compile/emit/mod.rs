//! Turns one function's body into Cranelift's intermediate representation.

mod arith;
mod atomics;
mod bits;
mod carry;
mod check;
mod cluster;
mod control;
mod convert;
mod counted;
mod cuts;
mod device_runtime;
mod float;
pub(super) mod group;
mod half;
pub(super) mod matrix;
mod mbarrier;
mod memory;
mod special;
mod tensor;
mod texture;
mod video;

pub(super) use float::Directed;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, MemFlagsData, Value, types};
use cranelift_frontend::{FunctionBuilder, Variable};
use rgpu_device::{Code, Error};

use super::code::Importer;
use super::flow::{Flow, Liveness};
use super::helpers::group::Group;
use super::helpers::matrix::Operation;
use super::layout::SharedLayout;
use super::locals::{self, Place};
use super::op::Op;
use super::renewed::Renewed;
use super::state::SavedRegisters;
use super::vars::{Home, Vars};
use super::{Environment, Table, Unit};
use crate::abi;
use rgpu_image::ptx::ast::{Function, Instruction, Operand, RegId, Statement, Symbol, Type};

/// Half of the arena's margin: offsets up to this are added to an address after its check.
const REACH: i64 = (abi::ARENA_MARGIN / 2) as i64;

/// What the emission of any function of a kernel needs.
pub(super) struct Context<'a> {
    /// The module that the function belongs to.
    pub unit: &'a Unit,
    /// The addresses that compiled code has built in.
    pub env: &'a Environment,
    /// Offsets of the kernel's shared variables.
    pub shared: &'a SharedLayout,
    /// The table of functions that may be called through a pointer.
    pub table: &'a Table,
    /// Whether anything asks where reserved shared memory is.
    pub reserved_shared: &'a Cell<bool>,
    /// Whether code for vectors of threads is made of it.
    pub for_vectors: bool,
    /// What is counted in the kernel and the functions that it calls.
    pub sites: &'a RefCell<abi::counted::Sites>,
    /// Whether the kernel can make addresses of other blocks' shared memory: then all addresses of shared memory are the cluster's.
    pub cluster: bool,
}

/// What emission found out about a kernel.
#[derive(Default)]
pub(super) struct Facts {
    /// The places where its threads stop, in the order of their numbers.
    pub cuts: Vec<abi::Cut>,
    /// Bytes of state per thread.
    pub state_bytes: u32,
    /// Operations on matrix fragments.
    pub matrix_ops: Vec<Operation>,
    /// Operations of four warps.
    pub group_ops: Vec<Group>,
}

/// The result of emitting something that can be refused for its operands.
pub(super) type Result<T> = std::result::Result<T, Error>;

/// Emits one function.
pub(super) struct Emitter<'a, 'f> {
    cx: &'a Context<'a>,
    b: FunctionBuilder<'f>,
    import: &'a mut Importer,
    function: &'a Function,
    vars: &'a Vars,
    /// Registers that lead into the function's own variables.
    places: HashMap<u32, Place>,
    flow: Flow,
    liveness: Option<Liveness>,
    state: Option<SavedRegisters>,
    /// What is made in front of the places where threads go on.
    renewed: Renewed,
    /// Back edges where a thread lets others go first, and how much fuel a turn takes.
    waiting: HashMap<(usize, usize), i64>,
    variables: Vec<Variable>,
    classes: Vec<ir::Type>,
    blocks: Vec<ir::Block>,
    /// `*mut Thread`
    thread: Value,
    /// `*mut Block`
    block: Value,
    /// Address of the function's frame in local memory.
    frame: Value,
    /// Addresses of non-scalar return values, by index.
    return_pointers: Vec<Option<Value>>,
    /// Kernels only: where a thread that has stopped goes.
    latch: Option<ir::Block>,
    resumes: Vec<ir::Block>,
    facts: Facts,
    /// Yields to be emitted: a block, where it leads, and how much fuel it takes.
    pending: Vec<(ir::Block, usize, i64)>,
    /// While a guarded instruction without side effects is emitted: its results are chosen by this.
    choose: Option<Value>,
    /// Values that are known not to be denormal.
    flushed: HashSet<Value>,
    /// The block that is being emitted.
    current: usize,
    /// Whether loads of what never changes may be moved out of loops.
    hoist: bool,
    /// Whether accesses are looked at before they are made.
    looks: bool,
    /// Where threads are counted, if they are.
    counting: Option<counted::Counting>,
    /// What the accesses do that are being emitted.
    access: abi::AccessKind,
    /// What is being emitted, for messages: its line, and its opcode with modifiers.
    line: u32,
    text: &'a str,
}

/// The Cranelift type that holds a PTX type.
pub(super) fn class(ty: Type) -> ir::Type {
    match ty {
        Type::F32 => types::F32,
        Type::F64 => types::F64,
        _ => int_class(ty.bits()),
    }
}

/// The integer type with so many bits.
pub(super) fn int_class(bits: u32) -> ir::Type {
    match bits {
        0..=8 => types::I8,
        9..=16 => types::I16,
        17..=32 => types::I32,
        33..=64 => types::I64,
        _ => types::I128,
    }
}

/// Flags for memory that only the executor writes, and not while the function runs.
pub(super) fn fixed() -> MemFlagsData {
    MemFlagsData::trusted().with_readonly().with_can_move()
}

/// Flags for memory that cannot fault.
pub(super) fn trusted() -> MemFlagsData {
    MemFlagsData::trusted()
}

/// Flags for memory that a kernel names: an access may fault.
pub(super) fn user() -> MemFlagsData {
    MemFlagsData::new()
}

/// Flags for an atomic operation on memory that no other worker touches, in what is emitted for vectors of threads: it need not be atomic, but
/// each thread's comes behind the one before it. Cranelift looks at this flag only where something is loaded.
pub(super) fn alone() -> MemFlagsData {
    user().with_can_move()
}

/// What a function's signature looks like in machine code; see [`Emitter::device_function`].
pub(super) fn signature_of(
    call_conv: cranelift_codegen::isa::CallConv,
    params: &[rgpu_image::ptx::ast::Variable],
    returns: &[rgpu_image::ptx::ast::Variable],
) -> ir::Signature {
    use super::vars::is_scalar;
    let mut signature = ir::Signature::new(call_conv);
    for _ in 0..3 {
        signature.params.push(ir::AbiParam::new(types::I64));
    }
    signature.returns.push(ir::AbiParam::new(types::I32));
    for variable in returns {
        if is_scalar(variable) {
            signature.returns.push(ir::AbiParam::new(class(variable.ty)));
        } else {
            signature.params.push(ir::AbiParam::new(types::I64));
        }
    }
    for variable in params {
        let ty = if is_scalar(variable) { class(variable.ty) } else { types::I64 };
        signature.params.push(ir::AbiParam::new(ty));
    }
    signature
}

impl<'a, 'f> Emitter<'a, 'f> {
    fn new(
        cx: &'a Context<'a>,
        mut b: FunctionBuilder<'f>,
        import: &'a mut Importer,
        function: &'a Function,
        vars: &'a Vars,
    ) -> Self {
        let ops = &cx.unit.ops;
        let flow = Flow::new(function, ops);
        let classes: Vec<_> = super::classes::classes(function, ops, vars);
        let variables = classes.iter().map(|&ty| b.declare_var(ty)).collect();
        let blocks = flow.blocks.iter().map(|_| b.create_block()).collect();
        let nothing = Value::from_u32(0);
        Self {
            cx,
            b,
            import,
            function,
            vars,
            places: locals::places(function, ops, vars),
            flow,
            liveness: None,
            state: None,
            renewed: Renewed::default(),
            waiting: HashMap::new(),
            variables,
            classes,
            blocks,
            thread: nothing,
            block: nothing,
            frame: nothing,
            return_pointers: Vec::new(),
            latch: None,
            resumes: Vec::new(),
            facts: Facts::default(),
            pending: Vec::new(),
            choose: None,
            flushed: HashSet::new(),
            current: 0,
            hoist: true,
            looks: cx.env.checks.of_accesses(),
            counting: None,
            access: abi::AccessKind::Read,
            line: function.line,
            text: "",
        }
    }

    /// Emits a kernel: a loop over the threads of a [`abi::RunFn`].
    pub(super) fn kernel(
        cx: &'a Context<'a>,
        b: FunctionBuilder<'f>,
        import: &'a mut Importer,
        function: &'a Function,
        vars: &'a Vars,
    ) -> Result<Facts> {
        let mut e = Self::new(cx, b, import, function, vars);
        let ops = &cx.unit.ops;
        let read = super::flow::read_registers(function, ops, vars);
        let unit = cx.unit;
        e.waiting =
            e.flow.waiting_edges(function, ops, |instruction, op| unit.observes(instruction, op, &read));
        let has_cuts = !e.waiting.is_empty() || e.flow.blocks.iter().any(|block| block.cut);
        if has_cuts {
            let cuts = e.waiting.len() + e.flow.blocks.iter().filter(|block| block.cut).count();
            e.hoist = cuts <= 48;
            let liveness = Liveness::new(&e.flow, function, ops, vars);
            let yields: Vec<_> = e.waiting.keys().copied().collect();
            e.renewed = Renewed::find(function, ops, vars, &e.flow, &liveness, &yields);
            let skip = &e.renewed.registers;
            let state =
                SavedRegisters::new(function, ops, vars, &e.flow, &liveness, &e.classes, &yields, skip);
            e.facts.state_bytes = state.bytes;
            (e.liveness, e.state) = (Some(liveness), Some(state));
        }

        let entry = e.b.create_block();
        e.b.append_block_params_for_function_params(entry);
        e.b.switch_to_block(entry);
        let [threads, count, block] = e.b.block_params(entry)[..] else { unreachable!() };
        e.block = block;
        let header = e.b.create_block();
        let thread = e.b.append_block_param(header, types::I64);
        let latch = e.b.create_block();
        let done = e.b.create_block();
        let count = e.b.ins().uextend(types::I64, count);
        let size = e.iconst(types::I64, size_of::<abi::Thread>() as i64);
        let bytes = e.b.ins().imul(count, size);
        let end = e.b.ins().iadd(threads, bytes);
        let any = e.b.ins().icmp(IntCC::NotEqual, threads, end);
        e.b.ins().brif(any, header, &[threads.into()], done, &[]);

        e.b.switch_to_block(header);
        e.thread = thread;
        e.latch = Some(latch);
        e.b.ins().store(trusted(), thread, block, offset_of!(abi::Block, cursor) as i32);
        e.frame = e.b.ins().load(types::I64, fixed(), thread, offset_of!(abi::Thread, local_base) as i32);
        e.clear_registers();
        e.renew()?;
        let dispatch = e.b.create_block();
        e.b.ins().jump(dispatch, &[]);

        e.body()?;

        // The dispatch comes last, when all places to resume at are known.
        e.b.switch_to_block(dispatch);
        let begin = e.blocks[0];
        if e.resumes.is_empty() {
            e.b.ins().jump(begin, &[]);
        } else {
            let resume =
                e.b.ins().load(types::I32, trusted(), thread, offset_of!(abi::Thread, resume) as i32);
            let pool = &mut e.b.func.dfg.value_lists;
            let default = ir::BlockCall::new(begin, [], pool);
            let mut targets = vec![default];
            targets.extend(e.resumes.iter().map(|&block| ir::BlockCall::new(block, [], pool)));
            let table = e.b.create_jump_table(ir::JumpTableData::new(default, &targets));
            e.b.ins().br_table(resume, table);
        }

        e.b.switch_to_block(latch);
        let next = e.b.ins().iadd(thread, size);
        let more = e.b.ins().icmp(IntCC::NotEqual, next, end);
        e.b.ins().brif(more, header, &[next.into()], done, &[]);
        e.b.switch_to_block(done);
        e.b.ins().return_(&[]);
        e.finish()
    }

    /// Emits a function that kernels call. It takes the thread, the block, the address of its frame in
    /// local memory, the addresses of the return values that are no scalars, and the arguments (those
    /// that are no scalars by address); it returns a status (0, or how the thread stopped, plus 1) and the
    /// scalar return values.
    pub(super) fn device_function(
        cx: &'a Context<'a>,
        b: FunctionBuilder<'f>,
        import: &'a mut Importer,
        function: &'a Function,
        vars: &'a Vars,
    ) -> Result<()> {
        use super::vars::is_scalar;
        let mut e = Self::new(cx, b, import, function, vars);
        let entry = e.b.create_block();
        e.b.append_block_params_for_function_params(entry);
        e.b.switch_to_block(entry);
        let values = e.b.block_params(entry).to_vec();
        (e.thread, e.block, e.frame) = (values[0], values[1], values[2]);
        let mut values = values[3..].iter().copied();

        // The frame has to end below the end of local memory. Even functions without a frame take a
        // little, so that endless recursion ends here.
        let used = i64::from(vars.frame.max(16));
        let top = e.b.ins().load(types::I64, fixed(), e.thread, offset_of!(abi::Thread, local_end) as i32);
        let frame_end = e.add_const(e.frame, used);
        let fits = e.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, frame_end, top);
        let (go, overflow) = (e.b.create_block(), e.b.create_block());
        e.b.set_cold_block(overflow);
        e.b.ins().brif(fits, go, &[], overflow, &[]);
        e.b.switch_to_block(overflow);
        e.return_status(abi::TRAP_STACK)?;
        e.b.switch_to_block(go);

        for (index, variable) in function.returns.iter().enumerate() {
            let pointer = if is_scalar(variable) { None } else { values.next() };
            if let (Some(pointer), Home::Pointer(reg)) = (pointer, vars.returns[index]) {
                e.b.def_var(e.variables[reg as usize], pointer);
            }
            e.return_pointers.push(pointer);
        }
        for (index, variable) in function.params.iter().enumerate() {
            let Some(value) = values.next() else { break };
            match vars.params[index] {
                Home::Reg(reg) | Home::Pointer(reg) => e.define(reg, variable.ty, value)?,
                Home::Frame(offset) => {
                    e.b.ins().store(trusted(), value, e.frame, offset as i32);
                }
                Home::Block(_) | Home::Shared => return Err(e.refuse("a parameter in a strange place")),
            }
        }
        e.count_call();
        let begin = e.blocks[0];
        e.b.ins().jump(begin, &[]);
        e.body()?;
        e.finish()?;
        Ok(())
    }

    /// Gives every register a number. One that a thread reads before it writes it would be handed on from thread to thread, and the threads of a group
    /// would depend on each other; nvcc leaves registers so whose value does not matter on some way through a kernel.
    fn clear_registers(&mut self) {
        let mut zeros: Vec<(ir::Type, Value)> = Vec::new();
        for reg in 0..self.variables.len() {
            let ty = self.classes[reg];
            let zero = match zeros.iter().find(|zero| zero.0 == ty) {
                Some(zero) => zero.1,
                None => {
                    let zero = self.zero(ty);
                    zeros.push((ty, zero));
                    zero
                }
            };
            self.b.def_var(self.variables[reg], zero);
        }
    }

    fn finish(mut self) -> Result<Facts> {
        self.b.seal_all_blocks();
        let config = self.import.frontend_config();
        self.b.finalize(config);
        Ok(self.facts)
    }

    /// Emits all blocks.
    fn body(&mut self) -> Result<()> {
        self.begin_counting();
        for index in 0..self.flow.blocks.len() {
            self.current = index;
            let block = self.blocks[index];
            self.b.switch_to_block(block);
            let (first, end) = (self.flow.blocks[index].first, self.flow.blocks[index].end);
            let mut ended = false;
            let function = self.function;
            self.count_region(first);
            for (index, statement) in function.body[first..end].iter().enumerate() {
                if let Statement::Instruction(instruction) = statement {
                    if !self.renewed.has(first + index) {
                        ended = self.statement(first + index, instruction)?;
                    }
                    self.count_behind(instruction, first + index + 1, end, ended);
                    // What follows a call that does not return is never reached.
                    if ended {
                        break;
                    }
                }
            }
            if !ended {
                match self.flow.blocks[index].successors[..] {
                    [next] => self.jump_to(next)?,
                    _ => self.ret()?,
                }
            }
            self.waiting_blocks();
        }
        Ok(())
    }

    /// Gives the registers their values that are the same wherever they are made.
    fn renew(&mut self) -> Result<()> {
        let function = self.function;
        // Each is computed where it is read, and loaded there.
        let hoist = std::mem::replace(&mut self.hoist, true);
        for at in self.renewed.statements.clone() {
            if let Statement::Instruction(instruction) = &function.body[at] {
                self.statement(at, instruction)?;
            }
        }
        self.hoist = hoist;
        Ok(())
    }

    /// Emits the instruction that is a statement of the function; true when it ended the block.
    fn statement(&mut self, at: usize, instruction: &'a Instruction) -> Result<bool> {
        self.line = instruction.line;
        self.text = self.cx.unit.text(instruction.form.0);
        self.b.set_srcloc(ir::SourceLoc::new(at as u32));
        self.instruction(instruction)
    }

    /// Emits an instruction with its guard; true when it ended the block.
    fn instruction(&mut self, instruction: &'a Instruction) -> Result<bool> {
        let unit = self.cx.unit;
        let op = &unit.ops[instruction.form.0 as usize];
        self.access = check::kind_of(op);
        let Some(guard) = instruction.guard else { return self.operation(op, &instruction.operands) };
        let predicate = self.b.use_var(self.variables[guard.register.0 as usize]);
        if matches!(op, Op::Bra) {
            return self.conditional_branch(predicate, guard.negated, instruction);
        }
        if op.traits().pure {
            let predicate = if guard.negated { self.b.ins().bxor_imm_u(predicate, 1) } else { predicate };
            self.choose = Some(predicate);
            let ended = self.operation(op, &instruction.operands);
            self.choose = None;
            return ended;
        }
        let (then, after) = (self.b.create_block(), self.b.create_block());
        if guard.negated {
            self.b.ins().brif(predicate, after, &[], then, &[]);
        } else {
            self.b.ins().brif(predicate, then, &[], after, &[]);
        }
        self.b.switch_to_block(then);
        if !self.operation(op, &instruction.operands)? {
            self.b.ins().jump(after, &[]);
        }
        self.b.switch_to_block(after);
        Ok(false)
    }

    /// The refusal of the instruction that is being emitted.
    fn refuse(&self, why: &str) -> Error {
        let Self { line, text, function, .. } = self;
        let text = if text.is_empty() { String::new() } else { format!("{text}: ") };
        Error::new(Code::InvalidPtx, format!("PTX line {line}: {text}{why} (in {})", function.name))
    }

    /// An operand that has to be there.
    fn operand(&self, o: &'a [Operand], index: usize) -> Result<&'a Operand> {
        o.get(index).ok_or_else(|| self.refuse("An operand is missing"))
    }

    fn iconst(&mut self, ty: ir::Type, value: i64) -> Value {
        let bits = ty.bits();
        let value = if bits < 64 { value & ((1i64 << bits) - 1) } else { value };
        self.b.ins().iconst(ty, value)
    }

    fn add_const(&mut self, value: Value, addend: i64) -> Value {
        if addend == 0 {
            return value;
        }
        let ty = self.b.func.dfg.value_type(value);
        let addend = self.iconst(ty, addend);
        self.b.ins().iadd(value, addend)
    }

    fn type_of(&self, value: Value) -> ir::Type {
        self.b.func.dfg.value_type(value)
    }

    /// The same bits as another type of the same width.
    fn recast(&mut self, value: Value, ty: ir::Type) -> Value {
        let from = self.type_of(value);
        if from == ty { value } else { self.b.ins().bitcast(ty, MemFlagsData::new(), value) }
    }

    /// The bits as an integer.
    fn as_int(&mut self, value: Value) -> Value {
        let ty = self.type_of(value);
        if ty.is_int() { value } else { self.recast(value, int_class(ty.bits())) }
    }

    /// Widens or narrows an integer.
    fn resize(&mut self, value: Value, to: ir::Type, signed: bool) -> Value {
        let from = self.type_of(value);
        if from.bits() < to.bits() {
            if signed { self.b.ins().sextend(to, value) } else { self.b.ins().uextend(to, value) }
        } else if from.bits() > to.bits() {
            self.b.ins().ireduce(to, value)
        } else {
            value
        }
    }

    /// The value of a register as it is.
    fn register(&mut self, reg: RegId) -> Value {
        self.b.use_var(self.variables[reg.0 as usize])
    }

    /// The value of an operand, seen as this type.
    fn src(&mut self, operand: &Operand, ty: Type) -> Result<Value> {
        let want = class(ty);
        Ok(match operand {
            Operand::Reg(reg) => {
                let value = self.register(*reg);
                self.fit(value, ty)?
            }
            Operand::NotReg(reg) => {
                let value = self.register(*reg);
                if ty != Type::Pred || self.type_of(value) != types::I8 {
                    return Err(self.refuse("Only a predicate can be negated"));
                }
                self.b.ins().bxor_imm_u(value, 1)
            }
            Operand::Int(bits, _) => match ty {
                Type::F32 => self.b.ins().f32const(ir::immediates::Ieee32::with_bits(*bits as u32)),
                Type::F64 => self.b.ins().f64const(ir::immediates::Ieee64::with_bits(*bits)),
                Type::Pred => self.iconst(types::I8, i64::from(*bits != 0)),
                _ => self.iconst(want, *bits as i64),
            },
            Operand::F32(bits) => match ty {
                Type::F32 => self.b.ins().f32const(ir::immediates::Ieee32::with_bits(*bits)),
                Type::B32 | Type::U32 | Type::S32 => self.iconst(types::I32, i64::from(*bits)),
                _ => return Err(self.refuse("A single-precision constant does not fit here")),
            },
            Operand::F64(bits) => match ty {
                Type::F64 => self.b.ins().f64const(ir::immediates::Ieee64::with_bits(*bits)),
                Type::B64 | Type::U64 | Type::S64 => self.iconst(types::I64, *bits as i64),
                Type::F32 => {
                    let single = f64::from_bits(*bits) as f32;
                    self.b.ins().f32const(ir::immediates::Ieee32::with_bits(single.to_bits()))
                }
                _ => return Err(self.refuse("A double-precision constant does not fit here")),
            },
            Operand::Symbol(symbol, offset) => {
                let address = self.symbol(*symbol, *offset)?;
                if want.is_int() {
                    self.resize(address, want, false)
                } else {
                    return Err(self.refuse("An address does not fit here"));
                }
            }
            Operand::Special(special) => {
                let value = self.special(*special)?;
                let value = self.as_int(value);
                let value = self.resize(value, int_class(ty.bits()), false);
                self.recast(value, want)
            }
            _ => return Err(self.refuse("An operand is of a kind that is not allowed here")),
        })
    }

    /// A register's value as a type that is as wide or narrower.
    fn fit(&mut self, value: Value, ty: Type) -> Result<Value> {
        let want = class(ty);
        let have = self.type_of(value);
        if have == want {
            return Ok(value);
        }
        if have.bits() < want.bits() {
            return Err(self.refuse("A register is narrower than the instruction's type"));
        }
        let value = self.as_int(value);
        let value = self.resize(value, int_class(want.bits()), false);
        Ok(self.recast(value, want))
    }

    /// Writes a result of this type to a register, as wide or wider: signed types are sign-extended.
    fn set(&mut self, operand: &Operand, ty: Type, value: Value) -> Result<()> {
        match operand {
            Operand::Reg(reg) => self.define(reg.0, ty, value),
            Operand::Sink => Ok(()),
            _ => Err(self.refuse("A result has to go to a register")),
        }
    }

    fn define(&mut self, reg: u32, ty: Type, value: Value) -> Result<()> {
        let class = self.classes[reg as usize];
        let variable = self.variables[reg as usize];
        let have = self.type_of(value);
        let mut value = value;
        if have != class {
            if have.bits() > class.bits() {
                return Err(self.refuse("A register is narrower than the result"));
            }
            value = self.as_int(value);
            value = self.resize(value, int_class(class.bits()), ty.is_signed());
            value = self.recast(value, class);
        }
        if let Some(predicate) = self.choose {
            let old = self.b.use_var(variable);
            value = self.b.ins().select(predicate, value, old);
        }
        self.b.def_var(variable, value);
        Ok(())
    }

    /// The address of a symbol in its own space (generic, except for shared memory).
    fn symbol(&mut self, symbol: Symbol, offset: i64) -> Result<Value> {
        match symbol {
            Symbol::Global(id) => {
                let variable = &self.cx.unit.module.variables[id.0 as usize];
                if let Some(at) = self.cx.shared.global(id) {
                    return Ok(self.shared_address(i64::from(at) + offset));
                }
                let Some(&address) = self.cx.env.globals.get(&variable.name) else {
                    return Err(self.refuse(&format!("{} has no address", variable.name)));
                };
                Ok(self.iconst(types::I64, (address as i64).wrapping_add(offset)))
            }
            Symbol::Function(id) => {
                let value = self.cx.unit.function_pointer(id) as i64;
                Ok(self.iconst(types::I64, value.wrapping_add(offset)))
            }
            Symbol::Param(_) | Symbol::Return(_) | Symbol::Local(_) => {
                let Some(&home) = self.vars.home(symbol) else {
                    return Err(self.refuse("A symbol has no home"));
                };
                let base = match home {
                    Home::Frame(at) => {
                        return Ok(self.add_const(self.frame, i64::from(at) + offset));
                    }
                    Home::Block(at) => {
                        let params = self.block_field(types::I64, offset_of!(abi::Block, params));
                        return Ok(self.add_const(params, i64::from(at) + offset));
                    }
                    Home::Pointer(reg) => self.register(RegId(reg)),
                    Home::Shared => {
                        let Symbol::Local(id) = symbol else {
                            return Err(self.refuse("A parameter in shared memory"));
                        };
                        let Some(at) =
                            self.cx.shared.local(self.function, &self.function.variables[id.0 as usize])
                        else {
                            return Err(self.refuse("A shared variable has no place"));
                        };
                        return Ok(self.shared_address(i64::from(at) + offset));
                    }
                    Home::Reg(_) => return Err(self.refuse("A parameter has no address")),
                };
                Ok(self.add_const(base, offset))
            }
        }
    }

    /// A field of the block's description that does not change.
    fn block_field(&mut self, ty: ir::Type, offset: usize) -> Value {
        let flags = self.fixed();
        self.b.ins().load(ty, flags, self.block, offset as i32)
    }

    /// Flags for memory that only the executor writes, and not while the function runs. In large kernels
    /// such loads stay where they are used, because registers are scarce.
    fn fixed(&self) -> MemFlagsData {
        if self.hoist { fixed() } else { trusted().with_readonly() }
    }

    /// Calls a function of the executor or of this crate.
    fn call_helper(&mut self, address: usize, returns: Option<ir::Type>, args: &[Value]) -> Option<Value> {
        let params: Vec<_> = args.iter().map(|&arg| self.type_of(arg)).collect();
        let signature = self.import.helper_signature(&mut self.b, &params, returns);
        let callee = self.iconst(types::I64, address as i64);
        let call = self.b.ins().call_indirect(signature, callee, args);
        self.b.inst_results(call).first().copied()
    }
}

/// Whether control ends with an operation; most say nothing, and it goes on.
trait Ends {
    fn ends(self) -> bool;
}

impl Ends for () {
    fn ends(self) -> bool {
        false
    }
}

impl Ends for bool {
    fn ends(self) -> bool {
        self
    }
}

macro_rules! emitters {
    ($($(#[$doc:meta])* $op:ident $({ $($field:ident: $ty:ty),* })? = $traits:expr, $emit:ident;)*) => {
        impl<'a> Emitter<'a, '_> {
            /// Emits what an instruction does when its guard holds; true when control does not go on behind it.
            fn operation(&mut self, op: &'a Op, o: &'a [Operand]) -> Result<bool> {
                match op { $(
                    Op::$op $({ $($field),* })? => Ok(self.$emit($($(*$field,)*)? o)?.ends()),
                )* }
            }
        }
    };
}
super::op::operations!(emitters);
