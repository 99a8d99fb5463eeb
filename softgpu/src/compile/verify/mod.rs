//! Looks at every kernel and function in its compiled form, at every compile, and finds out whether it could touch memory
//! that is not the kernel's. What fails is never run.
//!
//! The emitter confines what a kernel can steer; this is the check that it did so everywhere, and that nothing on the way
//! to machine code has undone it. It knows nothing of PTX and of what the emitter meant: it looks at Cranelift's
//! instructions, after the optimiser and everything else that changes them, right before they become machine code. For the
//! address of each load, store and atomic operation it asks how the value is made ([`facts`]), and it has to be one of
//! these:
//!
//! - a *confined* address: the choice between an address, if it lies in the arena and far enough from its ends, and one
//!   that is never mapped;
//! - the beginning of a region that the executor or a caller hands over, and a distance from there that stays inside: the
//!   thread's and the block's description (where only the fields that are meant to be written may be), the thread's saved
//!   state, the function's frame in local memory, the parameters, shared memory with an offset of 32 bits, an argument's
//!   bytes;
//! - a constant in the arena, or where nothing is ever mapped;
//! - for loads: the table of functions, at a bounded index.
//!
//! A call goes to a function of the module with arguments as that takes them; through the table, to what was compared
//! with the signature of the call; or to a function of the executor or this crate, which gets only numbers, confined
//! addresses and its own block. Any other instruction that could touch memory is refused, whatever it is.

mod facts;
#[cfg(test)]
pub(super) mod tests;

use cranelift_codegen::ir::{Block, Function, Inst, InstructionData, Opcode, Signature, Value, types};
use rgpu_device::Range;
use rgpu_image::ptx::ast::FunctionId;

use super::{TableEntry, helpers};
use crate::abi::{self, device_runtime::ARGUMENTS};
use facts::{Fact, Facts, Region};

/// How far an access may be from a confined address.
const REACH: i64 = (abi::ARENA_MARGIN / 2) as i64;
/// Shared memory is reached by 32 bits. In so many bytes behind the beginning of a block's, there is nothing else than
/// the shared memory of blocks of its cluster.
const SHARED: i64 = (1 << 32) + (1 << 20);
/// Addresses below this are never mapped: the system does not let any process have them.
const LOWEST: i128 = 1 << 16;

/// What a function is to its caller.
#[derive(Debug, Clone)]
pub(super) enum Role {
    /// The function that the executor calls, with as many bytes of local memory and state as it is told.
    Kernel {
        /// Bytes of local memory of a thread.
        frame: u32,
        /// Bytes of state of a thread.
        state: u32,
    },
    /// A function that others call.
    Function {
        /// What it is given.
        arguments: Vec<Argument>,
    },
}

/// What a function is given, and what its callers have to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Argument {
    /// The thread that runs.
    Thread,
    /// Its block.
    Block,
    /// Where the function's own part of local memory begins.
    Frame,
    /// The address of so many bytes that it may read and write.
    Bytes(u64),
    /// A number, which is never followed as an address.
    Number,
}

/// How a function is called.
pub(super) struct Callee {
    /// In Cranelift's terms.
    pub signature: Signature,
    /// What each argument means.
    pub arguments: Vec<Argument>,
}

/// Where a function is going to run.
pub(super) struct Surroundings<'a> {
    /// All that kernels may touch.
    pub arena: Range,
    /// The table of functions.
    pub table: Range,
    /// The executor's functions.
    pub helpers: &'a abi::Helpers,
    /// How each function of the module is called.
    pub functions: &'a dyn Fn(FunctionId) -> Option<Callee>,
    /// How functions with this number of a signature are called.
    pub signatures: &'a dyn Fn(u32) -> Option<Callee>,
}

/// What is wrong with a function.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Violation {
    /// The instruction.
    pub inst: Inst,
    /// What is wrong with it.
    pub why: &'static str,
}

/// Checks a function.
pub(super) fn verify(func: &Function, role: &Role, around: &Surroundings<'_>) -> Result<(), Violation> {
    let mut verifier = Verifier { facts: Facts::new(func, role, around.arena), role, around, frame: None };
    for block in func.layout.blocks() {
        for inst in func.layout.block_insts(block) {
            verifier.instruction(inst, block).map_err(|why| Violation { inst, why })?;
        }
    }
    Ok(())
}

struct Verifier<'a> {
    facts: Facts<'a>,
    role: &'a Role,
    around: &'a Surroundings<'a>,
    /// Bytes of the frame that were found to be there, and the two blocks where that is not known yet.
    frame: Option<(i64, [Option<Block>; 2])>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

type Check = Result<(), &'static str>;

impl Verifier<'_> {
    fn instruction(&mut self, inst: Inst, block: Block) -> Check {
        let func = self.facts.func;
        let data = func.dfg.insts[inst];
        let bytes = |value: Value| i64::from(func.dfg.value_type(value).bytes());
        let result = || func.dfg.first_result(inst);
        match data {
            InstructionData::Load { opcode: Opcode::Load, arg, offset, .. } => {
                self.access(block, arg, offset.into(), bytes(result()), Access::Read)
            }
            InstructionData::Store { opcode: Opcode::Store, args: [value, address], offset, .. } => {
                if self.is_cursor(value, address, offset.into()) {
                    return Ok(());
                }
                self.access(block, address, offset.into(), bytes(value), Access::Write)
            }
            InstructionData::LoadNoOffset { opcode: Opcode::AtomicLoad, arg, .. } => {
                self.access(block, arg, 0, bytes(result()), Access::Read)
            }
            InstructionData::StoreNoOffset {
                opcode: Opcode::AtomicStore, args: [value, address], ..
            } => self.access(block, address, 0, bytes(value), Access::Write),
            InstructionData::AtomicRmw { args: [address, _], .. }
            | InstructionData::AtomicCas { args: [address, ..], .. } => {
                self.access(block, address, 0, bytes(result()), Access::Write)
            }
            InstructionData::Call { opcode: Opcode::Call, func_ref, .. } => self.call(inst, func_ref),
            InstructionData::CallIndirect { opcode: Opcode::CallIndirect, sig_ref, .. } => {
                let arguments = func.dfg.inst_args(inst);
                let Some((&callee, arguments)) = arguments.split_first() else {
                    return Err("a call of nothing");
                };
                self.call_indirect(callee, &func.dfg.signatures[sig_ref], arguments)
            }
            data => {
                let opcode = data.opcode();
                let harmless = matches!(
                    opcode,
                    Opcode::Fence
                        | Opcode::Nop
                        | Opcode::Trap
                        | Opcode::Trapz
                        | Opcode::Trapnz
                        | Opcode::Jump
                        | Opcode::Brif
                        | Opcode::BrTable
                        | Opcode::Return
                );
                let touches = opcode.can_load()
                    || opcode.can_store()
                    || opcode.is_call()
                    || opcode.is_branch()
                    || opcode.is_terminator()
                    || opcode.other_side_effects();
                if harmless || !touches { Ok(()) } else { Err("an instruction that nobody checks") }
            }
        }
    }

    /// The one pointer that compiled code writes: the running thread, into its block.
    fn is_cursor(&mut self, value: Value, address: Value, offset: i64) -> bool {
        offset == std::mem::offset_of!(abi::Block, cursor) as i64
            && self.facts.of(address) == Fact::At(Region::Block, 0, 0)
            && self.facts.func.dfg.value_type(value) == types::I64
            && self.facts.of(value) == Fact::At(Region::Thread, 0, 0)
    }

    /// Checks an access of so many bytes, so far behind an address.
    fn access(&mut self, block: Block, address: Value, offset: i64, bytes: i64, access: Access) -> Check {
        let inside = match self.facts.of(address) {
            Fact::At(region, low, high) => {
                let (low, high) = (low + offset, high + offset + bytes);
                self.is_inside(region, low, high, access, block)
            }
            Fact::Number(low, high) => self.is_absolute(low, high, offset, bytes, access),
            // Nothing but the bits that no address has: at most an address that is never mapped.
            Fact::High => offset >= 0 && i128::from(offset + bytes) <= LOWEST,
            Fact::Any => false,
        };
        if inside { Ok(()) } else { Err("an access to an address that was not confined") }
    }

    /// Whether the bytes from `low` to `high` of a region may be accessed.
    fn is_inside(&mut self, region: Region, low: i64, high: i64, access: Access, block: Block) -> bool {
        let within = |size: i64| low >= 0 && high <= size;
        match region {
            Region::Thread if access == Access::Read => within(size_of::<abi::Thread>() as i64),
            // What a thread says when it stops.
            Region::Thread => {
                let op = std::mem::offset_of!(abi::Thread, op) as i64;
                let fields = [
                    (std::mem::offset_of!(abi::Thread, resume) as i64, 4),
                    (std::mem::offset_of!(abi::Thread, stop) as i64, 4),
                    (std::mem::offset_of!(abi::Thread, fuel) as i64, 4),
                    (op, size_of::<[u64; 6]>() as i64),
                ];
                fields.iter().any(|&(at, size)| low >= at && high <= at + size)
            }
            Region::Block if access == Access::Read => within(size_of::<abi::Block>() as i64),
            // Operands of operations on textures and bulk copies.
            Region::Block => {
                let words = std::mem::offset_of!(abi::Block, words) as i64;
                low >= words && high <= words + size_of::<abi::operands::Words>() as i64
            }
            Region::State => match self.role {
                Role::Kernel { state, .. } => within((*state).into()),
                Role::Function { .. } => false,
            },
            Region::Frame => {
                let size = self.frame_of(block);
                within(size)
            }
            Region::Params => within(rgpu_device::MAX_PARAM_BYTES.into()),
            Region::Shared => within(SHARED),
            Region::Bytes(index) => match self.role {
                Role::Function { arguments, .. } => match arguments.get(index) {
                    Some(Argument::Bytes(size)) => i64::try_from(*size).is_ok_and(within),
                    _ => false,
                },
                Role::Kernel { .. } => false,
            },
            Region::Confined => low >= -REACH && high <= REACH,
        }
    }

    /// Whether what lies between two constants, and so far behind, may be accessed.
    fn is_absolute(&self, low: u64, high: u64, offset: i64, bytes: i64, access: Access) -> bool {
        let (low, high) =
            (i128::from(low) + i128::from(offset), i128::from(high) + i128::from(offset + bytes));
        let within = |range: Range| low >= i128::from(range.base) && high <= i128::from(range.end());
        within(self.around.arena)
            || access == Access::Read && within(self.around.table)
            // Below and above these, there is nothing in any process: its first pages, and what the processor does not take
            // for an address, or leaves to the system.
            || low >= -(1 << 40) && high <= LOWEST
            || low >= 1 << 57 && high <= (1 << 64) - (1 << 40)
    }

    /// Bytes of the function's frame that may be accessed in a block.
    fn frame_of(&mut self, block: Block) -> i64 {
        if let Role::Kernel { frame, .. } = self.role {
            return (*frame).into();
        }
        let (size, unknown) = match self.frame {
            Some(found) => found,
            None => {
                let found = self.checked_frame().unwrap_or((0, [None, None]));
                self.frame = Some(found);
                found
            }
        };
        if unknown.contains(&Some(block)) { 0 } else { size }
    }

    /// A function begins by looking whether its frame ends before the thread's local memory does, and returns otherwise.
    /// What the size is then, and the blocks that are not behind the question.
    fn checked_frame(&mut self) -> Option<(i64, [Option<Block>; 2])> {
        use cranelift_codegen::ir::condcodes::IntCC;
        let func = self.facts.func;
        let entry = func.layout.entry_block()?;
        let InstructionData::Brif { arg, blocks, .. } = self.facts.terminator(entry)? else { return None };
        let (cond, a, b) = self.facts.comparison(arg)?;
        let (end, top, sides) = match cond {
            IntCC::UnsignedLessThanOrEqual => (a, b, [1, 0]),
            IntCC::UnsignedGreaterThanOrEqual => (b, a, [1, 0]),
            IntCC::UnsignedGreaterThan => (a, b, [0, 1]),
            IntCC::UnsignedLessThan => (b, a, [0, 1]),
            _ => return None,
        };
        let [beyond, go] = sides.map(|side| blocks[side].block(&func.dfg.value_lists));
        let InstructionData::Load { opcode: Opcode::Load, arg, offset, .. } = self.facts.made_by(top)? else {
            return None;
        };
        let local_end = std::mem::offset_of!(abi::Thread, local_end) as i64;
        let is_top = self.facts.of(arg) == Fact::At(Region::Thread, 0, 0)
            && i64::from(offset) == local_end
            && func.dfg.value_type(top) == types::I64;
        let Fact::At(Region::Frame, size, also) = self.facts.of(end) else { return None };
        // Where the frame is too large the function returns at once.
        let returns = matches!(self.facts.terminator(beyond)?.opcode(), Opcode::Return);
        (is_top && size == also && (0..=1 << 31).contains(&size) && returns && go != beyond)
            .then_some((size, [Some(entry), Some(beyond)]))
    }

    fn call(&mut self, inst: Inst, callee: cranelift_codegen::ir::FuncRef) -> Check {
        let func = self.facts.func;
        let data = &func.dfg.ext_funcs[callee];
        let cranelift_codegen::ir::ExternalName::User(name) = data.name else {
            return Err("a call of a function that is none of the module's");
        };
        let id = FunctionId(func.params.user_named_funcs()[name].index);
        let Some(callee) = (self.around.functions)(id) else {
            return Err("a call of a function that is not there");
        };
        let signature = &func.dfg.signatures[data.signature];
        self.passes(&callee, signature, func.dfg.inst_args(inst))
    }

    /// Whether a call's arguments are what the callee takes.
    fn passes(&mut self, callee: &Callee, signature: &Signature, arguments: &[Value]) -> Check {
        if callee.signature != *signature || callee.arguments.len() != arguments.len() {
            return Err("a call with another signature than the function's");
        }
        for (wanted, &value) in callee.arguments.iter().zip(arguments) {
            let right = match *wanted {
                Argument::Number => true,
                Argument::Thread => self.facts.of(value) == Fact::At(Region::Thread, 0, 0),
                Argument::Block => self.facts.of(value) == Fact::At(Region::Block, 0, 0),
                // Where it ends is for the callee to look at.
                Argument::Frame => {
                    matches!(self.facts.of(value), Fact::At(Region::Frame, 0.., ..=0x8000_0000))
                }
                Argument::Bytes(size) => self.hands_over(value, size),
            };
            if !right {
                return Err("a call with an argument that could lead anywhere");
            }
        }
        Ok(())
    }

    /// Whether a value is the address of so many bytes that the function itself may access.
    fn hands_over(&mut self, value: Value, size: u64) -> bool {
        let (Fact::At(region, low, high), Ok(size)) = (self.facts.of(value), i64::try_from(size)) else {
            return false;
        };
        let Some(block) = self.facts.func.layout.last_block() else { return false };
        match region {
            // Calls are behind the question whether the frame fits: before it there are none.
            Region::Frame | Region::Params | Region::Bytes(_) => {
                size < 1 << 40 && self.is_inside(region, low, high + size, Access::Write, block)
            }
            _ => false,
        }
    }

    fn call_indirect(&mut self, callee: Value, signature: &Signature, arguments: &[Value]) -> Check {
        if let Some(address) = self.facts.constant(callee) {
            return self.call_helper(address as usize, signature, arguments);
        }
        let Some(callee) = self.entry_of_table(callee) else {
            return Err("a call of what was not compared with the call's signature");
        };
        self.passes(&callee, signature, arguments)
    }

    /// What the table was found to hold: `signature == S ? code : 0`, both read from one entry.
    fn entry_of_table(&mut self, callee: Value) -> Option<Callee> {
        use cranelift_codegen::ir::condcodes::IntCC;
        let InstructionData::Ternary { opcode: Opcode::Select, args: [condition, code, nowhere] } =
            self.facts.made_by(callee)?
        else {
            return None;
        };
        let (cond, a, b) = self.facts.comparison(condition)?;
        let (code, nowhere) = match cond {
            IntCC::Equal => (code, nowhere),
            IntCC::NotEqual => (nowhere, code),
            _ => return None,
        };
        let (shape, number) = match (self.facts.constant(a), self.facts.constant(b)) {
            (_, Some(number)) => (a, number),
            (Some(number), _) => (b, number),
            _ => return None,
        };
        let code = self.read_of_table(code, types::I64, std::mem::offset_of!(TableEntry, code))?;
        let shape = self.read_of_table(shape, types::I32, std::mem::offset_of!(TableEntry, shape))?;
        let one_entry = self.facts.difference(code, shape) == Some(0);
        (one_entry && self.facts.constant(nowhere) == Some(0))
            .then(|| (self.around.signatures)(number as u32))
            .flatten()
    }

    /// The address of the entry that a field was read from.
    fn read_of_table(
        &mut self,
        value: Value,
        ty: cranelift_codegen::ir::Type,
        field: usize,
    ) -> Option<Value> {
        let func = self.facts.func;
        let InstructionData::Load { opcode: Opcode::Load, arg, offset, .. } = self.facts.made_by(value)?
        else {
            return None;
        };
        let Fact::Number(low, high) = self.facts.of(arg) else { return None };
        let entry = size_of::<TableEntry>() as u64;
        // Entries begin at multiples of their size.
        let whole = self.facts.step(arg, self.around.table.base).is_some_and(|step| step % entry == 0);
        let fits = low >= self.around.table.base
            && high.checked_add(entry).is_some_and(|end| end <= self.around.table.end());
        (whole && fits && func.dfg.value_type(value) == ty && i64::from(offset) == field as i64)
            .then_some(arg)
    }

    /// Checks a call of a function outside of the module.
    fn call_helper(&mut self, address: usize, signature: &Signature, arguments: &[Value]) -> Check {
        use cranelift_codegen::isa::CallConv;
        if signature.call_conv != CallConv::SystemV || signature.params.len() != arguments.len() {
            return Err("a call of a helper with another signature");
        }
        if helpers::is_of_numbers(address) {
            return Ok(());
        }
        let around = self.around.helpers;
        let (block, number, place) = (Helped::Block, Helped::Number, Helped::Address);
        let mut of_runtime = [number; 2 + ARGUMENTS];
        of_runtime[0] = block;
        let known: [(usize, &[Helped]); 11] = [
            (around.vprintf, &[block, place, place]),
            (around.malloc, &[block, number]),
            (around.free, &[block, number]),
            (around.assertfail, &[block, place, place, number, place]),
            (around.globaltimer, &[]),
            (around.clock, &[]),
            (around.device_runtime, &of_runtime),
            (around.check, &[block, number, number]),
            // It checks the handle, and what it finds there, itself.
            (around.texture, &[block, number, number]),
            (around.count, &[block, number]),
            // It checks the address, and what it finds there, itself.
            (around.tensor, &[block, number, number]),
        ];
        let mut found = false;
        for (_, wanted) in known.iter().filter(|(known, _)| *known == address) {
            found = true;
            if wanted.len() == arguments.len()
                && wanted.iter().zip(arguments).all(|(wanted, &value)| self.helps(*wanted, value))
            {
                return Ok(());
            }
        }
        Err(if found {
            "a call of a helper with an address that was not confined"
        } else {
            "a call of an address that is no function's"
        })
    }

    fn helps(&mut self, wanted: Helped, value: Value) -> bool {
        match (wanted, self.facts.of(value)) {
            (Helped::Number, _) | (Helped::Block, Fact::At(Region::Block, 0, 0)) => true,
            (Helped::Address, Fact::At(Region::Confined, 0, 0)) => true,
            (Helped::Address, Fact::Number(low, high)) => self.is_absolute(low, high, 0, 1, Access::Write),
            _ => false,
        }
    }
}

/// What the executor's functions take.
#[derive(Debug, Clone, Copy)]
enum Helped {
    Block,
    Number,
    Address,
}
