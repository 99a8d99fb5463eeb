//! What is known about a value of the compiled form, found by looking at how it is made.

use cranelift_codegen::ir::condcodes::{CondCode, IntCC};
use cranelift_codegen::ir::{Block, Function, Inst, InstructionData, Opcode, Value, ValueDef, types};
use rgpu_device::Range;
use rustc_hash::FxHashMap;

use super::{Argument, Role};
use crate::abi;

/// Memory that compiled code may touch, each piece with its own limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Region {
    /// The [`abi::Thread`] that runs.
    Thread,
    /// The [`abi::Block`].
    Block,
    /// [`abi::Thread::state`].
    State,
    /// The function's own part of local memory, and what lies behind it for those that it calls.
    Frame,
    /// The parameters of the launch.
    Params,
    /// The shared memory of the block, or of its cluster, and the addresses behind it, where at most the rest of the cluster's is.
    Shared,
    /// What an argument of the function points to, by its position.
    Bytes(usize),
    /// What has been confined: somewhere in the arena, not near its ends, or at [`abi::FAULT_ADDRESS`].
    Confined,
}

/// What a value is known to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fact {
    /// Anything.
    Any,
    /// An unsigned number between these, both included.
    Number(u64, u64),
    /// A multiple of 2⁵⁹. Added to an address it leaves it as it is, or makes one that the processor does not have: bits
    /// 47 to 63 of an address are all equal, those of the sum are not.
    High,
    /// So many bytes, between these, from the beginning of a region. May be an address that the processor does not have.
    At(Region, i64, i64),
}

/// The bits below the ones that [`Fact::High`] may have.
const LOW_BITS: u64 = (1 << 59) - 1;
/// Chains of instructions are followed so far.
const DEPTH: u32 = 24;
/// So many sums are taken apart to compare two values.
const STEPS: usize = 64;

impl Fact {
    fn add(self, other: Self) -> Self {
        match (self, other) {
            (Self::At(region, low, high), other) | (other, Self::At(region, low, high)) => match other {
                Self::High => Self::At(region, low, high),
                Self::Number(a, b) if a == b && a & LOW_BITS == 0 => Self::At(region, low, high),
                Self::Number(a, b) if a == b => moved(region, low, high, a as i64, a as i64),
                Self::Number(a, b) if b < 1 << 60 => moved(region, low, high, a as i64, b as i64),
                _ => Self::Any,
            },
            (Self::Number(a, b), Self::Number(c, d)) if a == b && c == d => {
                Self::Number(a.wrapping_add(c), a.wrapping_add(c))
            }
            (Self::Number(a, b), Self::Number(c, d)) => match (a.checked_add(c), b.checked_add(d)) {
                (Some(low), Some(high)) => Self::Number(low, high),
                _ => Self::Any,
            },
            (Self::High, Self::High) => Self::High,
            _ => Self::Any,
        }
    }

    fn negate(self) -> Self {
        match self {
            Self::High => Self::High,
            Self::Number(a, b) if a == b => Self::Number(a.wrapping_neg(), a.wrapping_neg()),
            _ => Self::Any,
        }
    }

    /// What holds for either.
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Number(a, b), Self::Number(c, d)) => Self::Number(a.min(c), b.max(d)),
            (Self::At(r, a, b), Self::At(s, c, d)) if r == s => Self::At(r, a.min(c), b.max(d)),
            _ => Self::Any,
        }
    }
}

fn moved(region: Region, low: i64, high: i64, by_low: i64, by_high: i64) -> Fact {
    match (low.checked_add(by_low), high.checked_add(by_high)) {
        // Far enough for anything, and not so far that addresses would wrap.
        (Some(low), Some(high)) if low > -(1 << 40) && high < 1 << 40 => Fact::At(region, low, high),
        _ => Fact::Any,
    }
}

/// A sum of values, each a number of times, and a constant; all modulo 2⁶⁴.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    terms: Vec<(Value, u64)>,
    constant: u64,
}

/// Finds facts.
pub(super) struct Facts<'a> {
    pub func: &'a Function,
    role: &'a Role,
    arena: Range,
    known: FxHashMap<Value, Fact>,
    /// What blocks are entered with: where from, and the instruction that goes there.
    entries: Option<FxHashMap<Block, Vec<Inst>>>,
}

impl<'a> Facts<'a> {
    /// Of a function in this role.
    pub(super) fn new(func: &'a Function, role: &'a Role, arena: Range) -> Self {
        Self { func, role, arena, known: FxHashMap::default(), entries: None }
    }

    /// What is known about a value.
    pub(super) fn of(&mut self, value: Value) -> Fact {
        self.find(value, DEPTH)
    }

    fn find(&mut self, value: Value, depth: u32) -> Fact {
        let value = self.func.dfg.resolve_aliases(value);
        if let Some(&fact) = self.known.get(&value) {
            return fact;
        }
        if depth == 0 {
            return Fact::Any;
        }
        let fact = match self.func.dfg.value_def(value) {
            ValueDef::Param(block, index) => self.parameter(value, block, index, depth - 1),
            ValueDef::Result(inst, _) => self.result(inst, depth - 1),
            ValueDef::Union(..) => Fact::Any,
        };
        let fact = self.within_type(value, fact);
        self.known.insert(value, fact);
        fact
    }

    /// No number is larger than its type.
    fn within_type(&self, value: Value, fact: Fact) -> Fact {
        let ty = self.func.dfg.value_type(value);
        match fact {
            Fact::Any if ty.is_int() && ty.bits() < 64 => Fact::Number(0, (1 << ty.bits()) - 1),
            Fact::Number(_, high) if ty.bits() < 64 && high >> ty.bits() != 0 => {
                Fact::Number(0, (1 << ty.bits()) - 1)
            }
            fact if ty == types::I64 || matches!(fact, Fact::Number(..)) => fact,
            _ => Fact::Any,
        }
    }

    fn result(&mut self, inst: Inst, depth: u32) -> Fact {
        let func = self.func;
        match func.dfg.insts[inst] {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, .. } => {
                let value = self.constant(func.dfg.first_result(inst)).unwrap_or(0);
                Fact::Number(value, value)
            }
            InstructionData::Unary { opcode: Opcode::Uextend, arg } => match self.find(arg, depth) {
                fact @ Fact::Number(..) => fact,
                _ => Fact::Any,
            },
            InstructionData::Binary { opcode, args: [a, b] } => self.binary(opcode, a, b, depth),
            InstructionData::Ternary { opcode: Opcode::Select, args: [c, a, b] } => {
                self.select(c, a, b, depth)
            }
            InstructionData::Load { opcode: Opcode::Load, arg, offset, .. } => {
                let whole = func.dfg.value_type(func.dfg.first_result(inst)) == types::I64;
                match self.find(arg, depth) {
                    Fact::At(region, low, high) if whole && low == high => {
                        self.field(region, low.wrapping_add(offset.into()))
                    }
                    _ => Fact::Any,
                }
            }
            _ => Fact::Any,
        }
    }

    /// Fields that hold the addresses of regions. Compiled code cannot change them: that is checked of stores.
    fn field(&self, region: Region, offset: i64) -> Fact {
        let is = |field: usize| offset == field as i64;
        match region {
            Region::Thread if is(std::mem::offset_of!(abi::Thread, state)) => Fact::At(Region::State, 0, 0),
            // A kernel's frame begins where the thread's local memory does; a function is told where its own is.
            Region::Thread
                if is(std::mem::offset_of!(abi::Thread, local_base))
                    && matches!(self.role, Role::Kernel { .. }) =>
            {
                Fact::At(Region::Frame, 0, 0)
            }
            Region::Block
                if is(std::mem::offset_of!(abi::Block, shared_base))
                    || is(std::mem::offset_of!(abi::Block, cluster.shared_base)) =>
            {
                Fact::At(Region::Shared, 0, 0)
            }
            Region::Block if is(std::mem::offset_of!(abi::Block, params)) => Fact::At(Region::Params, 0, 0),
            _ => Fact::Any,
        }
    }

    fn binary(&mut self, opcode: Opcode, a: Value, b: Value, depth: u32) -> Fact {
        let wide = self.func.dfg.value_type(a) == types::I64;
        if !wide && opcode != Opcode::Band {
            // Narrow numbers wrap; all that is known is how wide they are.
            return Fact::Any;
        }
        let shift = self.constant(b).map(|bits| bits & 63);
        if let (Opcode::Ishl, Some(59..)) = (opcode, shift) {
            return Fact::High;
        }
        let (first, second) = (self.find(a, depth), self.find(b, depth));
        match opcode {
            Opcode::Iadd => first.add(second),
            Opcode::Isub => first.add(second.negate()),
            Opcode::Ishl => match (first, shift) {
                (Fact::Number(low, high), Some(bits)) if high <= u64::MAX >> bits => {
                    Fact::Number(low << bits, high << bits)
                }
                _ => Fact::Any,
            },
            Opcode::Ushr => match (first, shift) {
                (Fact::Number(low, high), Some(bits)) => Fact::Number(low >> bits, high >> bits),
                (_, Some(bits)) => Fact::Number(0, u64::MAX >> bits),
                _ => Fact::Any,
            },
            Opcode::Imul => match (first, second) {
                (Fact::Number(a, b), Fact::Number(c, d)) => match b.checked_mul(d) {
                    Some(high) => Fact::Number(a * c, high),
                    None => Fact::Any,
                },
                _ => Fact::Any,
            },
            Opcode::Band => match (first, second) {
                (_, Fact::Number(_, high)) | (Fact::Number(_, high), _) if high < u64::MAX => {
                    let other = if let Fact::Number(_, other) = first { other } else { u64::MAX };
                    Fact::Number(0, high.min(other))
                }
                _ => Fact::Any,
            },
            _ => Fact::Any,
        }
    }

    /// A choice: of an address and a safe one, of an index and a safe one, or of two things alike.
    fn select(&mut self, condition: Value, a: Value, b: Value, depth: u32) -> Fact {
        if self.func.dfg.value_type(a) != types::I64 {
            return Fact::Any;
        }
        if let Some((value, bound, when)) = self.bound(condition) {
            let (inside, other) = if when { (a, b) } else { (b, a) };
            let otherwise = self.find(other, depth);
            if self.same(value, inside) {
                return Fact::Number(0, bound - 1).join(otherwise);
            }
            // The chosen value lies at this distance from a constant.
            if let Fact::Number(_, 0..4096) = otherwise
                && let Some(low) = self.difference(inside, value)
                && self.is_well_inside(low, bound)
            {
                return Fact::At(Region::Confined, 0, 0);
            }
        }
        self.find(a, depth).join(self.find(b, depth))
    }

    /// Whether so many bytes from `low` on are as far inside of the arena as an offset may lead away from them.
    fn is_well_inside(&self, low: u64, size: u64) -> bool {
        let reach = super::REACH as u64;
        low.checked_sub(reach).is_some_and(|begin| {
            size.checked_add(2 * reach).is_some_and(|size| self.arena.contains(begin, size))
        })
    }

    /// What a condition says: whether the value is below the constant exactly when it holds, or exactly when not.
    fn bound(&self, condition: Value) -> Option<(Value, u64, bool)> {
        let (cond, a, b) = self.comparison(condition)?;
        let (cond, value, constant) = match (self.constant(a), self.constant(b)) {
            (_, Some(constant)) => (cond, a, constant),
            (Some(constant), _) => (cond.swap_args(), b, constant),
            _ => return None,
        };
        let (bound, when) = match cond {
            IntCC::UnsignedLessThan => (constant, true),
            IntCC::UnsignedLessThanOrEqual => (constant.checked_add(1)?, true),
            IntCC::UnsignedGreaterThanOrEqual => (constant, false),
            IntCC::UnsignedGreaterThan => (constant.checked_add(1)?, false),
            _ => return None,
        };
        (bound > 0 && self.func.dfg.value_type(value) == types::I64).then_some((value, bound, when))
    }

    /// The comparison that a value is the result of.
    pub(super) fn comparison(&self, value: Value) -> Option<(IntCC, Value, Value)> {
        match self.made_by(value)? {
            InstructionData::IntCompare { cond, args: [a, b], .. } => Some((cond, a, b)),
            _ => None,
        }
    }

    /// The number that a value always is.
    pub(super) fn constant(&self, value: Value) -> Option<u64> {
        match self.made_by(value)? {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => {
                let bits = self.func.dfg.value_type(value).bits();
                Some(imm.bits() as u64 & if bits < 64 { (1 << bits) - 1 } else { u64::MAX })
            }
            _ => None,
        }
    }

    /// The instruction that makes a value.
    pub(super) fn made_by(&self, value: Value) -> Option<InstructionData> {
        let value = self.func.dfg.resolve_aliases(value);
        match self.func.dfg.value_def(value) {
            ValueDef::Result(inst, 0) => Some(self.func.dfg.insts[inst]),
            _ => None,
        }
    }

    /// Whether two values are one.
    pub(super) fn same(&self, a: Value, b: Value) -> bool {
        self.func.dfg.resolve_aliases(a) == self.func.dfg.resolve_aliases(b)
    }

    /// By how much `a` is more than `b`, modulo 2⁶⁴, where that is always the same.
    pub(super) fn difference(&self, a: Value, b: Value) -> Option<u64> {
        let sum = self.sum(&[(a, 1), (b, u64::MAX)], 0);
        sum.terms.is_empty().then_some(sum.constant)
    }

    /// What a value's distance from a constant is always a multiple of (0 where it is the constant).
    pub(super) fn step(&self, value: Value, from: u64) -> Option<u64> {
        let sum = self.sum(&[(value, 1)], from.wrapping_neg());
        sum.terms.iter().map(|(_, times)| *times).chain([sum.constant]).reduce(|a, b| {
            // Powers of two are all that is asked for.
            1u64.checked_shl((a | b).trailing_zeros()).unwrap_or(0)
        })
    }

    /// The sum of some values, each so many times, and a constant. What is itself a sum is taken apart, what was made last
    /// first: so what two values are both made of goes away before it is looked into, however long the way to there was.
    fn sum(&self, values: &[(Value, u64)], constant: u64) -> Sum {
        let mut sum = Sum { constant, ..Sum::default() };
        values.iter().for_each(|&(value, times)| self.add(&mut sum, value, times));
        for _ in 0..STEPS {
            let parts = |(at, &(value, _)): (usize, &(Value, u64))| Some((value, at, self.parts(value)?));
            let latest = sum.terms.iter().enumerate().filter_map(parts).max_by_key(|(value, ..)| *value);
            let Some((_, at, parts)) = latest else { break };
            let (_, times) = sum.terms.swap_remove(at);
            sum.constant = sum.constant.wrapping_add(times.wrapping_mul(parts.constant));
            for (value, count) in parts.terms {
                self.add(&mut sum, value, times.wrapping_mul(count));
            }
        }
        sum
    }

    /// Adds a value so many times.
    fn add(&self, sum: &mut Sum, value: Value, times: u64) {
        let value = self.func.dfg.resolve_aliases(value);
        match sum.terms.iter_mut().find(|(term, _)| *term == value) {
            Some((_, count)) => *count = count.wrapping_add(times),
            None => sum.terms.push((value, times)),
        }
        sum.terms.retain(|(_, count)| *count != 0);
    }

    /// What a value is the sum of, where an instruction adds it up.
    fn parts(&self, value: Value) -> Option<Sum> {
        if self.func.dfg.value_type(value) != types::I64 {
            return None;
        }
        let mut sum = Sum::default();
        match self.made_by(value)? {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => sum.constant = imm.bits() as u64,
            InstructionData::Unary { opcode: Opcode::Ineg, arg } => self.add(&mut sum, arg, u64::MAX),
            InstructionData::Binary { opcode, args: [a, b] } => match opcode {
                Opcode::Iadd => [a, b].into_iter().for_each(|part| self.add(&mut sum, part, 1)),
                Opcode::Isub => {
                    [(a, 1), (b, u64::MAX)].into_iter().for_each(|(v, n)| self.add(&mut sum, v, n))
                }
                Opcode::Imul => {
                    let (value, factor) =
                        [(a, b), (b, a)].into_iter().find_map(|(v, f)| Some((v, self.constant(f)?)))?;
                    self.add(&mut sum, value, factor);
                }
                Opcode::Ishl => self.add(&mut sum, a, 1 << (self.constant(b)? & 63)),
                _ => return None,
            },
            _ => return None,
        }
        Some(sum)
    }

    /// A block's parameter: the function's argument, or what all that go there agree on.
    fn parameter(&mut self, value: Value, block: Block, index: usize, depth: u32) -> Fact {
        if self.func.layout.entry_block() == Some(block) {
            return self.argument(index);
        }
        if self.func.dfg.value_type(value) != types::I64 {
            return Fact::Any;
        }
        if self.is_thread(value, block, index) {
            return Fact::At(Region::Thread, 0, 0);
        }
        // In a circle it is nothing until something is found out about it.
        self.known.insert(value, Fact::Any);
        let mut fact: Option<Fact> = None;
        for (_, given, _) in self.arguments_of(block, index) {
            let next = if self.same(given, value) { continue } else { self.find(given, depth) };
            fact = Some(fact.map_or(next, |fact| fact.join(next)));
            if fact == Some(Fact::Any) {
                break;
            }
        }
        fact.unwrap_or(Fact::Any)
    }

    fn argument(&self, index: usize) -> Fact {
        match self.role {
            Role::Kernel { .. } => match index {
                0 => Fact::At(Region::Thread, 0, 0),
                2 => Fact::At(Region::Block, 0, 0),
                _ => Fact::Any,
            },
            Role::Function { arguments, .. } => match arguments.get(index) {
                Some(Argument::Thread) => Fact::At(Region::Thread, 0, 0),
                Some(Argument::Block) => Fact::At(Region::Block, 0, 0),
                Some(Argument::Frame) => Fact::At(Region::Frame, 0, 0),
                Some(Argument::Bytes(_)) => Fact::At(Region::Bytes(index), 0, 0),
                Some(Argument::Number) | None => Fact::Any,
            },
        }
    }

    /// Whether a kernel's value goes through the threads of the row that it was given: it begins with the first, and
    /// what follows one is the next, unless that is the end.
    fn is_thread(&mut self, value: Value, block: Block, index: usize) -> bool {
        let Role::Kernel { .. } = self.role else { return false };
        let Some(entry) = self.func.layout.entry_block() else { return false };
        let &[first, count, ..] = self.func.dfg.block_params(entry) else { return false };
        let size = size_of::<abi::Thread>() as u64;
        let given = self.arguments_of(block, index);
        !given.is_empty()
            && given.into_iter().all(|(from, given, taken)| {
                if self.same(given, first) {
                    // The executor never asks for no thread at all.
                    return true;
                }
                if self.difference(given, value) != Some(size) {
                    return false;
                }
                let Some(InstructionData::Brif { arg, .. }) = self.terminator(from) else { return false };
                let Some((cond, a, b)) = self.comparison(arg) else { return false };
                let differ = match cond {
                    IntCC::NotEqual => taken == Some(true),
                    IntCC::Equal => taken == Some(false),
                    _ => false,
                };
                // One of the two is the end: as many threads behind the first as there are.
                differ
                    && [(a, b), (b, a)].into_iter().any(|(next, end)| {
                        self.difference(next, given) == Some(0) && self.is_end(end, first, count, size)
                    })
            })
    }

    /// Whether a value is `first + size * count`.
    fn is_end(&self, end: Value, first: Value, count: Value, size: u64) -> bool {
        let sum = self.sum(&[(end, 1), (first, u64::MAX)], 0);
        let [(term, times)] = sum.terms[..] else { return false };
        let widened = matches!(self.made_by(term), Some(InstructionData::Unary { opcode: Opcode::Uextend, arg })
            if self.same(arg, count));
        widened && times == size && sum.constant == 0
    }

    /// The last instruction of a block.
    pub(super) fn terminator(&self, block: Block) -> Option<InstructionData> {
        self.func.layout.last_inst(block).map(|inst| self.func.dfg.insts[inst])
    }

    /// With what a block's parameter is given: from which block, the value, and on which side of a branch.
    fn arguments_of(&mut self, block: Block, index: usize) -> Vec<(Block, Value, Option<bool>)> {
        let func = self.func;
        let entries = self.entries.get_or_insert_with(|| entries(func));
        let mut found = Vec::new();
        for &inst in entries.get(&block).into_iter().flatten() {
            let Some(from) = func.layout.inst_block(inst) else { continue };
            let data = &func.dfg.insts[inst];
            let calls = data.branch_destination(&func.dfg.jump_tables, &func.dfg.exception_tables);
            let sided = matches!(data, InstructionData::Brif { .. });
            for (side, call) in calls.iter().enumerate() {
                if call.block(&func.dfg.value_lists) != block {
                    continue;
                }
                let given = call.args(&func.dfg.value_lists).nth(index).and_then(|arg| arg.as_value());
                // Whatever else a block can be given is nothing known.
                let Some(given) = given else { return Vec::new() };
                found.push((from, given, sided.then_some(side == 0)));
            }
        }
        found
    }
}

/// The instructions that go to each block.
fn entries(func: &Function) -> FxHashMap<Block, Vec<Inst>> {
    let mut entries: FxHashMap<Block, Vec<Inst>> = FxHashMap::default();
    for block in func.layout.blocks() {
        let Some(last) = func.layout.last_inst(block) else { continue };
        let data = &func.dfg.insts[last];
        for call in data.branch_destination(&func.dfg.jump_tables, &func.dfg.exception_tables) {
            let list = entries.entry(call.block(&func.dfg.value_lists)).or_default();
            if list.last() != Some(&last) {
                list.push(last);
            }
        }
    }
    entries
}
