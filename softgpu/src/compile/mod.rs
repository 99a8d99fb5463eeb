//! From PTX to machine code.
//!
//! [`Program::new`] decodes every instruction of a module. What is no PTX is refused then; a kernel with an
//! instruction that cannot be executed, in itself or in a function that it calls, is refused when it is asked for
//! ([`FunctionInfo::refusal`]), by name and line, and the others run. [`Program::link`] fixes the addresses of the
//! module's variables; [`Linked::kernel`] compiles a kernel the first time that it is asked for. What compiled
//! code expects of its surroundings is described in [`crate::abi`].
//!
//! What there is to execute stands in two tables: opcodes, as they are written, in `opcode`, and the operations that
//! they come down to in `op`.

mod alike;
mod budget;
mod classes;
mod code;
mod constants;
mod decode;
mod emit;
mod flow;
mod helpers;
mod identity;
mod inline;
mod kept;
mod layout;
mod lines;
mod locals;
mod lockstep;
mod loops;
mod op;
mod opcode;
mod pointers;
mod references;
mod relocate;
mod renewed;
mod schedule;
mod signature;
mod state;
mod unit;
mod vars;
pub mod vector;
mod verify;

#[cfg(test)]
mod tests;

/// Conversions of halves, for the executor's helpers.
pub(crate) mod halves {
    pub(crate) use super::helpers::half::{bf16_from_f64, f16_from_f64, f32_from_f16};
}

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cranelift_codegen::ir::{self, AbiParam, UserFuncName, types};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use parking_lot::Mutex;
use rgpu_device::{ClusterInfo, Code, Error, FunctionInfo, GlobalKind, Host, ParamInfo, Range};

use crate::abi;
use code::{Image, Importer, Piece};
use emit::{Context, Emitter, Facts};
use helpers::group::Group;
use kept::{Compiled, Shelf};
use layout::SharedLayout;
use lines::Origins;
use rgpu_image::ptx::ast::{Function, FunctionId, Module, Space};
use signature::{Shape, Table};
use unit::Unit;
use vars::{Vars, parameter_offsets};
use verify::{Role, Surroundings};

pub(crate) use signature::TableEntry;
pub(crate) use unit::{Builtin, synthetic};

/// The base opcodes of PTX, such as `add`, and whether there are forms of each that can be executed.
pub fn opcodes() -> impl Iterator<Item = (&'static str, bool)> {
    let rows = opcode::Opcode::ALL.iter().map(|opcode| opcode.row()).filter(|row| !row.name.is_empty());
    rows.map(|row| (row.name, !matches!(row.operands, opcode::Operands::Any)))
}

/// A module that has been decoded and checked.
pub struct Program {
    unit: Unit,
    infos: Vec<FunctionInfo>,
}

/// A variable of a module, to be placed in memory by the executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalLayout {
    /// The name of the variable, as the module spells it.
    pub name: String,
    /// Its size in bytes (may be 0).
    pub size: u64,
    /// What its address has to be a multiple of.
    pub align: u64,
    /// Its state space.
    pub kind: GlobalKind,
    /// Its first bytes; the rest is zeros.
    pub bytes: Vec<u8>,
    /// Addresses to be added into the bytes.
    pub relocations: Vec<GlobalRelocation>,
}

/// The address of a variable inside the initial value of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalRelocation {
    /// Where the 64-bit address is stored, in bytes from the start of the variable.
    pub offset: u64,
    /// The variable whose address it is.
    pub symbol: String,
    /// Added to the address.
    pub addend: i64,
}

/// Where a program is going to run.
#[derive(Debug, Clone)]
pub struct Environment {
    /// All memory that kernels may touch. Its first and last [`abi::ARENA_MARGIN`] bytes are never mapped.
    pub arena: Range,
    /// The address of each variable of [`Program::globals`].
    pub globals: HashMap<String, u64>,
    /// What compiled code calls.
    pub helpers: abi::Helpers,
    /// What is looked at while kernels run.
    pub checks: abi::Checks,
}

/// A program with the addresses of its variables fixed.
pub struct Linked {
    unit: Unit,
    environment: Environment,
    /// Why kernels cannot be executed, by kernel.
    refusals: Vec<Option<Error>>,
    kernels: Vec<Mutex<Option<Arc<abi::Kernel>>>>,
    /// Where compiled kernels are kept, if they are.
    shelf: Option<Shelf>,
}

impl Program {
    /// Checks a module and lays its variables out. `compute_capability` is 80 for 8.0.
    pub fn new(module: Module, compute_capability: u32) -> Result<Program, Error> {
        let unit = Unit::new(module)?;
        let infos = unit.kernels.iter().map(|&id| info(&unit, id, compute_capability)).collect();
        Ok(Program { unit, infos })
    }

    /// The kernels. A launch names one by its index.
    pub fn functions(&self) -> Vec<FunctionInfo> {
        self.infos.clone()
    }

    /// The variables that need memory.
    pub fn globals(&self) -> &[GlobalLayout] {
        &self.unit.globals
    }

    /// Fixes the addresses of the variables.
    pub fn link(self, environment: Environment) -> Linked {
        let kernels = self.unit.kernels.iter().map(|_| Mutex::new(None)).collect();
        let refusals = self.infos.into_iter().map(|info| info.refusal).collect();
        Linked { unit: self.unit, environment, refusals, kernels, shelf: None }
    }
}

/// What a kernel is emitted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// One thread after another.
    Threads,
    /// Vectors of threads.
    Vectors,
    /// Vectors of threads, with the functions that it calls in it.
    VectorsInOne,
}

/// Statements of a kernel up to which functions are put into it for code for vectors.
const VECTOR_STATEMENTS: usize = 20_000;

/// A kernel's body with everything in it that has to be, and the functions that it calls.
struct Bodies<'a> {
    kernel: std::borrow::Cow<'a, Function>,
    functions: Vec<FunctionId>,
}

impl<'a> Bodies<'a> {
    fn new(unit: &'a Unit, id: FunctionId) -> Result<Self, Error> {
        Self::with(unit, id, &unit.inlined)
    }

    /// As [`Bodies::new`], with all functions in the kernel that can be, as long as it does not get too large: code for vectors of threads
    /// calls none.
    fn in_one(unit: &'a Unit, id: FunctionId) -> Result<Self, Error> {
        let plain = Self::new(unit, id)?;
        let alone = |id: &FunctionId| {
            let function = &unit.module.functions[id.0 as usize];
            !unit.reachable(function).contains(id)
        };
        let mut inlined = unit.inlined.clone();
        inlined.extend(plain.functions.iter().copied().filter(alone));
        match Self::with(unit, id, &inlined) {
            Ok(bodies) if bodies.kernel.body.len() <= VECTOR_STATEMENTS => Ok(bodies),
            _ => Ok(plain),
        }
    }

    fn with(unit: &'a Unit, id: FunctionId, inlined: &HashSet<FunctionId>) -> Result<Self, Error> {
        let kernel = match inline::expand(unit.source(), id, inlined, inline::LIMIT)? {
            Some(function) => std::borrow::Cow::Owned(function),
            None => std::borrow::Cow::Borrowed(&unit.module.functions[id.0 as usize]),
        };
        let functions = unit.reachable(&kernel);
        Ok(Self { kernel, functions })
    }

    /// The kernel and the functions.
    fn all<'b>(&'b self, unit: &'b Unit) -> Vec<&'b Function> {
        let functions = self.functions.iter().map(|id| &unit.module.functions[id.0 as usize]);
        std::iter::once(&*self.kernel).chain(functions).collect()
    }

    fn shared(&self, unit: &Unit) -> Result<SharedLayout, Error> {
        SharedLayout::new(unit, &self.all(unit))
    }
}

/// What is known about a kernel, and why it cannot be executed, if it cannot.
fn info(unit: &Unit, id: FunctionId, compute_capability: u32) -> FunctionInfo {
    let bodies = Bodies::new(unit, id);
    let checked = bodies.as_ref().map_err(Error::clone).and_then(|bodies| {
        let functions: Vec<&Function> =
            bodies.functions.iter().map(|id| &unit.module.functions[id.0 as usize]).collect();
        budget::check(&bodies.kernel, &functions, &unit.ops)?;
        unit.check_kernel(&bodies.kernel, &bodies.functions)?;
        bodies.shared(unit)
    });
    let kernel = match &bodies {
        Ok(bodies) => &*bodies.kernel,
        Err(_) => &unit.module.functions[id.0 as usize],
    };
    let vars = Vars::new(kernel, &unit.ops);
    let (offsets, _) = parameter_offsets(&kernel.params);
    let params = kernel
        .params
        .iter()
        .zip(offsets)
        // What is larger than all parameters may be is refused; sums of these numbers are still numbers.
        .map(|(param, offset)| ParamInfo {
            offset: offset.min(1 << 30),
            size: param.size.min(1 << 30) as u32,
        });
    let product = |dims: [u32; 3]| dims.iter().fold(1u32, |a, &b| a.saturating_mul(b.max(1)));
    let limit = kernel.required_threads.or(kernel.max_threads).map_or(abi::MAX_THREADS as u32, product);
    let constants =
        unit.globals.iter().filter(|g| g.kind == GlobalKind::Constant).map(|g| g.size).sum::<u64>();
    FunctionInfo {
        name: kernel.name.clone(),
        params: params.collect(),
        max_threads: limit.min(1024),
        registers: (kernel.registers.len() as u32).clamp(16, 64),
        static_shared: checked.as_ref().map_or(0, |shared| shared.size),
        local_bytes: vars.frame,
        const_bytes: u32::try_from(constants).unwrap_or(u32::MAX),
        ptx_version: unit.module.target_sm,
        binary_version: compute_capability,
        required_block: kernel.required_threads.unwrap_or_default(),
        cluster: ClusterInfo {
            required: kernel.required_cluster.unwrap_or_default(),
            must_be_set: kernel.needs_cluster && kernel.required_cluster.is_none(),
            most: kernel.max_cluster.unwrap_or(0),
        },
        refusal: checked.err(),
    }
}

impl Linked {
    /// Has compiled kernels taken from where the host keeps them, and kept there. What is equal in `module` is the same PTX, compiled
    /// for the same compute capability.
    pub fn keep(self, host: Arc<dyn Host>, module: [u8; 32]) -> Linked {
        Linked { shelf: Some(Shelf::new(host, module)), ..self }
    }

    /// The kernel with this index, if it has been compiled.
    pub fn compiled(&self, index: u32) -> Option<Arc<abi::Kernel>> {
        self.kernels.get(index as usize)?.lock().clone()
    }

    /// The index of the kernel whose address device code has as this number.
    pub fn kernel_at(&self, pointer: u64) -> Option<u32> {
        self.unit.kernel_at(pointer)
    }

    /// The kernel with this index, compiled when first asked for.
    ///
    /// # Errors
    /// Why it cannot be executed. [`Code::InvalidValue`] if there is none.
    pub fn kernel(&self, index: u32) -> Result<Arc<abi::Kernel>, Error> {
        let (Some(slot), Some(&id)) =
            (self.kernels.get(index as usize), self.unit.kernels.get(index as usize))
        else {
            return Err(Error::new(Code::InvalidValue, format!("The module has no kernel {index}")));
        };
        if let Some(Some(refusal)) = self.refusals.get(index as usize) {
            return Err(refusal.clone());
        }
        let mut slot = slot.lock();
        if let Some(kernel) = &*slot {
            return Ok(kernel.clone());
        }
        let kernel = Arc::new(self.find_or_compile(index, id)?);
        for &lanes in vector::mode().at_once() {
            self.add_vectors(index, id, &kernel, lanes, Some(u64::MAX));
        }
        *slot = Some(kernel.clone());
        Ok(kernel)
    }

    /// Gets code for groups of so many threads for a kernel, where there can be some: what an earlier process has kept, or else compiled now, if that takes
    /// no more than `most` nanoseconds, by an estimate. Launches from then on may use it. Yields what it would take, if that is more.
    pub fn improve(&self, index: u32, lanes: usize, most: Option<u64>) -> Option<u64> {
        let (kernel, &id) = (self.compiled(index)?, self.unit.kernels.get(index as usize)?);
        self.add_vectors(index, id, &kernel, lanes, most)
    }

    fn add_vectors(
        &self,
        index: u32,
        id: FunctionId,
        kernel: &abi::Kernel,
        lanes: usize,
        most: Option<u64>,
    ) -> Option<u64> {
        if kernel.vectors_of(lanes).is_some() {
            return None;
        }
        let made = self.find_or_compile_vectors(index, (id, lanes), kernel, most);
        let placed = made.and_then(|made| {
            made.place(self.unit.table(), self.unit.locations.clone()).map_err(|e| e.to_string().into())
        });
        match placed {
            Ok(vectors) => kernel.add_vectors(vectors),
            Err(vector::NotMade::Refused(why)) => vector::say(&kernel.name, &why),
            Err(vector::NotMade::Costs(nanoseconds)) => return Some(nanoseconds),
        }
        None
    }

    fn find_or_compile_vectors(
        &self,
        index: u32,
        (id, lanes): (FunctionId, usize),
        kernel: &abi::Kernel,
        most: Option<u64>,
    ) -> Result<vector::Made, vector::NotMade> {
        let kept = self
            .kept(index)
            .map_err(|e| e.to_string())?
            .map(|(shelf, name)| (shelf, vector::name(&name, lanes)));
        // The state is that of the code it stands beside.
        let fits = |made: &vector::Made| made.state_bytes == kernel.state_bytes && made.lanes == lanes;
        if let Some((shelf, name)) = &kept
            && let Some(made) = shelf.find(name, vector::Made::from_bytes).filter(fits)
        {
            return Ok(made);
        }
        let Some(most) = most else { return Err("nothing is kept".to_owned().into()) };
        // What threads leave at a cut has to be alike in both tiers, and functions that are part of a kernel might change it.
        let form = if kernel.cuts.is_empty() { Form::VectorsInOne } else { Form::Vectors };
        // Until it has been kept: a process that ends waits for this.
        let compiler = vector::Compiler::begin(most == u64::MAX)?;
        let made = self.compile_vectors(&compiler, (id, lanes), form, most)?;
        if !fits(&made) {
            return Err("its state is another one".to_owned().into());
        }
        if let Some((shelf, name)) = kept.filter(|_| made.is_movable) {
            shelf.keep(&name, &made.to_bytes());
        }
        Ok(made)
    }

    /// Where a kernel is kept, and under what name, if it is.
    fn kept(&self, index: u32) -> Result<Option<(&Shelf, kept::Name)>, Error> {
        let Some(shelf) = &self.shelf else { return Ok(None) };
        // What is counted in a kernel is not kept with its machine code.
        if self.environment.checks.counts {
            return Ok(None);
        }
        Ok(shelf.name(&self.unit, &self.environment, index)?.map(|name| (shelf, name)))
    }

    fn find_or_compile(&self, index: u32, id: FunctionId) -> Result<abi::Kernel, Error> {
        let unit = &self.unit;
        let kept = self.kept(index)?;
        if let Some((shelf, name)) = &kept
            && let Some(compiled) = shelf.find(name, Compiled::from_bytes)
            && let Ok(kernel) = self.place(id, compiled, unit.table())
        {
            return Ok(kernel);
        }
        let table = unit.table();
        let compiled = self.compile(id, &table)?;
        let is_movable = |piece: &Piece| relocate::is_movable(&piece.bytes, table.range());
        if let Some((shelf, name)) = &kept
            && compiled.pieces.iter().all(is_movable)
        {
            shelf.keep(name, &compiled.to_bytes());
        }
        self.place(id, compiled, table)
    }

    /// Has the kernel `id` emitted, optimised, verified and handed on, together with what it calls.
    fn with_kernel<R>(
        &self,
        id: FunctionId,
        table: &Table,
        form: Form,
        hand_on: impl FnOnce(Verified<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let unit = &self.unit;
        // Variables lie where the first tier has them: threads of one block may run in either.
        let plain = Bodies::new(unit, id)?;
        let shared = plain.shared(unit)?;
        let bodies = if form == Form::VectorsInOne { Bodies::in_one(unit, id)? } else { plain };
        let reserved_shared = Cell::new(false);
        let sites = RefCell::default();
        let context = Context {
            unit,
            env: &self.environment,
            shared: &shared,
            table,
            reserved_shared: &reserved_shared,
            for_vectors: form != Form::Threads,
            sites: &sites,
            cluster: unit.knows_cluster_addresses(&bodies.all(unit)),
        };
        let callee_of = |id| unit.callee(id);
        let callee_of_shape = |number| unit.callee_of_shape(number);
        let around = Surroundings {
            arena: self.environment.arena,
            table: table.range(),
            helpers: &self.environment.helpers,
            functions: &callee_of,
            signatures: &callee_of_shape,
        };
        let kernel = &*bodies.kernel;
        let vars = Vars::new(kernel, &unit.ops);
        check_frame(kernel, &vars)?;
        let mut builders = FunctionBuilderContext::new();
        let mut signature = ir::Signature::new(CallConv::SystemV);
        signature.params.extend([types::I64, types::I32, types::I64].map(AbiParam::new));
        let emit = || {
            let mut function =
                ir::Function::with_name_signature(UserFuncName::user(0, id.0), signature.clone());
            let mut importer = Importer::new()?;
            let builder = FunctionBuilder::new(&mut function, &mut builders);
            let facts = Emitter::kernel(&context, builder, &mut importer, kernel, &vars)?;
            Ok((function, facts))
        };
        let role = |facts: &Facts| Role::Kernel { frame: vars.frame, state: facts.state_bytes };
        let (machine, facts) = code::verified(emit, role, &around).map_err(|e| e.of(kernel, kernel))?;
        hand_on(Verified {
            bodies: &bodies,
            context: &context,
            around: &around,
            frame: vars.frame,
            machine,
            facts,
        })
    }

    /// Compiles a kernel for vectors of threads.
    fn compile_vectors(
        &self,
        compiler: &vector::Compiler,
        (id, lanes): (FunctionId, usize),
        form: Form,
        most: u64,
    ) -> Result<vector::Made, vector::NotMade> {
        if self.environment.checks.bits() != 0 {
            return Err("its accesses are looked at".to_owned().into());
        }
        let compiled = self.with_kernel(id, &self.unit.table(), form, |verified| {
            if self.unit.needs_turns(&verified.bodies.kernel).is_some() {
                return Ok(Err("its lanes take turns".to_owned().into()));
            }
            let sizes = (verified.facts.state_bytes, verified.frame);
            let Surroundings { helpers, table, .. } = *verified.around;
            let places = relocate::Places { helpers, table };
            Ok(compiler.compile(
                (id, lanes),
                (&verified.machine.func, &*verified.bodies.kernel),
                sizes,
                &verified.facts.cuts,
                &places,
                most,
            ))
        });
        compiled.map_err(|error| error.to_string().into()).flatten()
    }

    /// Compiles a kernel and all that it calls.
    fn compile(&self, id: FunctionId, table: &Table) -> Result<Compiled, Error> {
        self.with_kernel(id, table, Form::Threads, |verified| self.finish(id, verified))
    }

    fn finish(&self, id: FunctionId, verified: Verified<'_>) -> Result<Compiled, Error> {
        let unit = &self.unit;
        let Verified { bodies, context, around, frame, machine, facts } = verified;
        let kernel = &*bodies.kernel;
        let mut builders = FunctionBuilderContext::new();
        let mut pieces = vec![code::piece(id, machine, around, kernel)?];

        for &callee in &bodies.functions {
            let body = &unit.module.functions[callee.0 as usize];
            let vars = Vars::new(body, &unit.ops);
            check_frame(body, &vars)?;
            let called = Shape::of(&body.params, &body.returns).callee();
            let emit = || {
                let name = UserFuncName::user(0, callee.0);
                let mut function = ir::Function::with_name_signature(name, called.signature.clone());
                let mut importer = Importer::new()?;
                let builder = FunctionBuilder::new(&mut function, &mut builders);
                Emitter::device_function(context, builder, &mut importer, body, &vars)?;
                Ok((function, ()))
            };
            let role = |(): &()| Role::Function { arguments: called.arguments.clone() };
            let (piece, ()) =
                code::compile(callee, emit, role, around, body).map_err(|e| e.of(body, kernel))?;
            pieces.push(piece);
        }

        let entry = |&callee: &FunctionId| {
            let body = &unit.module.functions[callee.0 as usize];
            // Only those that something refers to can be called through a pointer, and only as what they are.
            Some((unit.number(callee)? as u32, callee, unit.shape(&body.params, &body.returns)?))
        };
        Ok(Compiled {
            state_bytes: facts.state_bytes,
            local_bytes: frame,
            static_shared: context.shared.size,
            reserved_shared: context.reserved_shared.get(),
            cuts: facts.cuts,
            matrix_ops: facts.matrix_ops,
            group_ops: facts.group_ops,
            pieces,
            entries: bodies.functions.iter().filter_map(entry).collect(),
            sites: self.environment.checks.counts.then(|| context.sites.take()),
        })
    }

    /// Puts a compiled kernel into its place in this process.
    fn place(&self, id: FunctionId, compiled: Compiled, table: Arc<Table>) -> Result<abi::Kernel, Error> {
        let missing = || Error::new(Code::Unknown, "The compiled kernel is not in its place");
        let image = Image::new(&compiled.pieces, table.clone())?;
        for &(number, callee, shape) in &compiled.entries {
            let address = image.address(callee).filter(|_| number < table.len()).ok_or_else(missing)?;
            table.set(number as usize, address as u64, shape);
        }
        let address = image.address(id).ok_or_else(missing)?;
        let operations = compiled.matrix_ops.iter().map(|operation| operation.function().ok_or_else(missing));
        // SAFETY: the emitter gives kernels the signature of `RunFn`.
        let run = unsafe { std::mem::transmute::<usize, abi::RunFn>(address) };
        Ok(abi::Kernel {
            name: self.unit.module.functions[id.0 as usize].name.clone(),
            run,
            vectors: Default::default(),
            state_bytes: compiled.state_bytes,
            local_bytes: compiled.local_bytes,
            static_shared: compiled.static_shared,
            reserved_shared: compiled.reserved_shared,
            cuts: compiled.cuts,
            matrix_ops: operations.collect::<Result<_, _>>()?,
            sites: compiled.sites,
            group_ops: compiled.group_ops.iter().map(Group::function).collect(),
            code: Arc::new(Origins { image: Arc::new(image), source: self.unit.locations.clone() }),
        })
    }
}

/// A kernel before machine code is made of it.
struct Verified<'a> {
    bodies: &'a Bodies<'a>,
    context: &'a Context<'a>,
    around: &'a Surroundings<'a>,
    /// Bytes of its local variables.
    frame: u32,
    machine: cranelift_codegen::Context,
    facts: Facts,
}

/// Frames have to be addressable.
fn check_frame(function: &Function, vars: &Vars) -> Result<(), Error> {
    if vars.frame > 1 << 30 {
        return Err(Error::new(
            Code::InvalidPtx,
            format!("PTX line {}: the local variables of {} are too large", function.line, function.name),
        ));
    }
    for variable in &function.variables {
        if !matches!(
            variable.space,
            Space::Local | Space::Param | Space::ParamFunc | Space::Shared | Space::SharedCta
        ) {
            return Err(Error::new(
                Code::InvalidPtx,
                format!("PTX line {}: a variable in .{} inside a function", variable.line, variable.space),
            ));
        }
    }
    Ok(())
}
