//! Loads, stores and addresses. Every access that a kernel can steer is confined to the arena.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, Value, types};

use super::{Emitter, REACH, Result, class, int_class, trusted, user};
use crate::abi;
use crate::compile::op::{MemoryTarget, Order, SpaceTest};
use crate::compile::vars::Home;
use rgpu_image::ptx::ast::{AddressBase, Operand, RegId, Symbol, Type};

/// Where an access goes: a base, an offset, and the flags of the access.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub base: Value,
    pub offset: i32,
    pub flags: ir::MemFlagsData,
}

impl<'a> Emitter<'a, '_> {
    /// The address itself if an access near it can only hit the arena; an address that faults otherwise.
    pub(crate) fn confine(&mut self, address: Value) -> Value {
        let arena = self.cx.env.arena;
        let low = arena.base.wrapping_add(REACH as u64);
        let span = arena.size.saturating_sub(2 * REACH as u64);
        let low = self.iconst(types::I64, low as i64);
        let span = self.iconst(types::I64, span as i64);
        let distance = self.b.ins().isub(address, low);
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, distance, span);
        let fault = self.iconst(types::I64, abi::FAULT_ADDRESS as i64);
        self.b.ins().select(inside, address, fault)
    }

    /// The address in the thread's local memory that ends in these 32 bits: compilers may keep local addresses in registers of
    /// 32 bits (LLVM's short pointers, which Triton uses). No frame is as large as what 32 bits tell apart.
    fn local_address(&mut self, short: Value) -> Value {
        let frame = self.b.ins().ireduce(types::I32, self.frame);
        let distance = self.b.ins().isub(short, frame);
        let distance = self.b.ins().sextend(types::I64, distance);
        self.b.ins().iadd(self.frame, distance)
    }

    /// A register that holds an address, as 64 bits.
    pub(crate) fn address_register(&mut self, place: MemoryTarget, reg: RegId) -> Result<Value> {
        let value = self.register(reg);
        let value = self.as_int(value);
        match self.type_of(value) {
            types::I64 => Ok(value),
            types::I32 if place == MemoryTarget::Local => Ok(self.local_address(value)),
            types::I32 => Ok(self.b.ins().uextend(types::I64, value)),
            _ => Err(self.refuse("An address needs a register of 32 or 64 bits")),
        }
    }

    /// Where an address operand leads, for an access of `width` bytes in all.
    pub(crate) fn target_of(&mut self, place: MemoryTarget, operand: &Operand, width: u32) -> Result<Target> {
        let (base, offset) = self.parts(operand)?;
        if let Some(target) = self.seen_target(place, (base, offset), width)? {
            return Ok(target);
        }
        if place == MemoryTarget::Shared {
            return self.shared_target(base, offset, width);
        }
        match base {
            AddressBase::Reg(reg) => {
                let address = self.address_register(place, reg)?;
                if let Some(target) = self.target_in_variable(reg, address, offset, width) {
                    return Ok(target);
                }
                Ok(self.confined(address, offset, width))
            }
            AddressBase::Absolute => {
                let address = self.iconst(types::I64, offset);
                Ok(self.confined(address, 0, width))
            }
            // What is passed lies where the compiler has put it, in whatever pieces a program takes it.
            AddressBase::Symbol(symbol) if place == MemoryTarget::Param => {
                self.symbol_target(symbol, offset, width)
            }
            AddressBase::Symbol(symbol) => {
                let target = self.symbol_target(symbol, offset, width)?;
                Ok(self.symbol_aligned(symbol, offset, target, width))
            }
        }
    }

    /// Where a register leads, if that is an aligned place in one of the function's variables, whatever its index is: the bits that this may have are
    /// taken from the address itself, so that it needs no comparison.
    fn target_in_variable(&mut self, reg: RegId, address: Value, behind: i64, width: u32) -> Option<Target> {
        let place = self.places.get(&reg.0)?;
        let whole = place.inside(self.function, behind, width)?;
        let Some(Home::Frame(at)) = self.vars.home(place.symbol).copied() else { return None };
        let (from, to) = (i64::from(at) + place.offset, i64::from(at) + whole.offset);
        // Frames begin at multiples of 16.
        let aligned =
            width.is_power_of_two() && width <= 16 && (to | place.index as i64) % i64::from(width) == 0;
        let offset = i32::try_from(to).ok().filter(|_| aligned && from >= 0)?;
        let index = i64::try_from(place.index).ok()?;
        let begin = self.add_const(self.frame, from);
        let distance = self.b.ins().isub(address, begin);
        let index = self.b.ins().band_imm_u(distance, index);
        let base = self.b.ins().iadd(self.frame, index);
        Some(Target { base, offset, flags: trusted() })
    }

    /// The place at an address that was computed, where an access of a kind is made.
    pub(super) fn place_of(&mut self, kind: abi::AccessKind, address: Value, width: u32) -> Result<Target> {
        if self.looks() {
            self.seen_as(kind);
            return self.seen(address, width);
        }
        Ok(self.confined(address, 0, width))
    }

    fn confined(&mut self, address: Value, offset: i64, width: u32) -> Target {
        // Together with the widest access an offset has to stay within the margin.
        let (address, offset) = if offset.abs() <= REACH - 256 {
            (address, offset)
        } else {
            (self.add_const(address, offset), 0)
        };
        let base = self.confine(address);
        // Accesses of one size through one register share the check, whatever multiple of the size they add.
        let whole = self.add_const(address, offset.rem_euclid(i64::from(width.max(1))));
        let base = self.aligned(base, whole, width);
        Target { base, offset: offset as i32, flags: user() }
    }

    /// A base that faults if the address is no multiple of the access's size, a power of two: the bits that would have to
    /// be zero are added at the top, where no address has any. So a misaligned access costs a shift and no branch, and
    /// the executor tells it from one that is only outside of the arena ([`abi::TRAP_MISALIGNED`]).
    pub(crate) fn aligned(&mut self, base: Value, address: Value, width: u32) -> Value {
        if width < 2 || !width.is_power_of_two() {
            return base;
        }
        let wrong = self.b.ins().ishl_imm_u(address, i64::from(64 - width.trailing_zeros()));
        self.b.ins().iadd(base, wrong)
    }

    /// An access whose misalignment is known when the kernel is compiled, and that faults when a thread comes to it.
    fn misaligned(&mut self) -> Target {
        Target { base: self.iconst(types::I64, abi::MISALIGNED_ADDRESS as i64), offset: 0, flags: user() }
    }

    /// [`Self::aligned`] for a symbol that is named: mostly that is known now.
    fn symbol_aligned(&mut self, symbol: Symbol, offset: i64, target: Target, width: u32) -> Target {
        let width = width.max(1);
        let known = match (self.vars.home(symbol).copied(), symbol) {
            // Frames begin at multiples of 16.
            (Some(Home::Frame(at)), _) => Some((i64::from(at) + offset).rem_euclid(i64::from(width.min(16)))),
            (Some(_), _) => None,
            (None, Symbol::Global(id)) => {
                let name = &self.cx.unit.module.variables[id.0 as usize].name;
                let address = self.cx.env.globals.get(name);
                address.map(|&address| (address as i64).wrapping_add(offset).rem_euclid(i64::from(width)))
            }
            (None, _) => None,
        };
        match known {
            Some(0) => target,
            Some(_) => self.misaligned(),
            None => {
                let address = self.whole_address(target);
                Target { base: self.aligned(target.base, address, width), ..target }
            }
        }
    }

    pub(super) fn symbol_target(&mut self, symbol: Symbol, offset: i64, width: u32) -> Result<Target> {
        let function = self.function;
        let size = match symbol {
            Symbol::Global(id) => self.cx.unit.module.variables[id.0 as usize].size,
            Symbol::Local(id) => function.variables[id.0 as usize].size,
            Symbol::Param(index) => function.params[index as usize].size,
            Symbol::Return(index) => function.returns[index as usize].size,
            Symbol::Function(_) => return Err(self.refuse("A function is no memory")),
        };
        let inside = offset >= 0 && (offset as u64).saturating_add(u64::from(width)) <= size;
        if !inside {
            let address = self.symbol(symbol, offset)?;
            return Ok(self.confined(address, 0, 1));
        }
        match self.vars.home(symbol).copied() {
            Some(Home::Frame(at)) => {
                Ok(Target { base: self.frame, offset: (i64::from(at) + offset) as i32, flags: trusted() })
            }
            Some(Home::Block(at)) => {
                let params = self.block_field(types::I64, offset_of!(abi::Block, params));
                Ok(Target { base: params, offset: (i64::from(at) + offset) as i32, flags: self.fixed() })
            }
            Some(Home::Pointer(reg)) => {
                let base = self.register(RegId(reg));
                Ok(Target { base, offset: offset as i32, flags: user() })
            }
            _ => {
                let base = self.symbol(symbol, 0)?;
                let base = self.add_const(base, offset);
                Ok(Target { base, offset: 0, flags: user() })
            }
        }
    }

    fn shared_target(&mut self, base: AddressBase, offset: i64, width: u32) -> Result<Target> {
        let at = match base {
            AddressBase::Reg(reg) => {
                let value = self.register(reg);
                let value = self.as_int(value);
                let value = self.resize(value, types::I32, false);
                let value = self.add_const(value, offset);
                self.b.ins().uextend(types::I64, value)
            }
            AddressBase::Symbol(symbol) => {
                let at = match symbol {
                    Symbol::Global(id) => self.cx.shared.global(id),
                    Symbol::Local(id) => {
                        self.cx.shared.local(self.function, &self.function.variables[id.0 as usize])
                    }
                    _ => None,
                };
                let Some(at) = at else {
                    return Err(self.refuse("The symbol is not in shared memory"));
                };
                let at = i64::from(at) + offset;
                if at % i64::from(width.max(1)) != 0 {
                    return Ok(self.misaligned());
                }
                if (0..=i64::from(i32::MAX)).contains(&at) {
                    return Ok(Target { base: self.own_shared_base(), offset: at as i32, flags: user() });
                }
                // Addresses have 32 bits. One outside is a fault, but only where a thread comes to it.
                self.shared_address(i64::from(at as u32))
            }
            AddressBase::Absolute => self.shared_address(i64::from(offset as u32)),
        };
        let shared = self.shared_base();
        let base = self.aligned(shared, at, width);
        Ok(Target { base: self.b.ins().iadd(base, at), offset: 0, flags: user() })
    }

    /// The base and offset added up.
    pub(crate) fn whole_address(&mut self, target: Target) -> Value {
        self.add_const(target.base, i64::from(target.offset))
    }

    /// The registers of a vector operand, or the one operand.
    pub(super) fn elements(&self, operand: &'a Operand, vector: u32) -> Result<&'a [Operand]> {
        match operand {
            Operand::Vector(list) if list.len() == vector as usize => Ok(list),
            other if vector == 1 => Ok(std::slice::from_ref(other)),
            _ => Err(self.refuse("The vector has a wrong number of components")),
        }
    }

    /// A register that stands for a whole parameter.
    fn parameter_register(&self, place: MemoryTarget, operand: &Operand) -> Option<RegId> {
        match (place, operand) {
            (MemoryTarget::Param, Operand::Address(AddressBase::Symbol(symbol), 0)) => {
                match self.vars.home(*symbol) {
                    Some(Home::Reg(reg)) => Some(RegId(*reg)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// `ld`
    pub(crate) fn ld(
        &mut self,
        place: MemoryTarget,
        ty: Type,
        vector: u32,
        order: Order,
        o: &'a [Operand],
    ) -> Result<()> {
        let destinations = self.elements(self.operand(o, 0)?, vector)?;
        let source = self.operand(o, 1)?;
        if let Some(reg) = self.parameter_register(place, source) {
            let value = self.register(reg);
            let value = self.fit(value, ty)?;
            return self.set(&destinations[0], ty, value);
        }
        let width = ty.bytes();
        let target = self.target_of(place, source, width * vector)?;
        match order {
            Order::Strong => return self.ld_strong(ty, target, destinations),
            Order::Together => {
                let whole = self.whole_class(ty, vector)?;
                let value = self.b.ins().load(whole, target.flags, target.base, target.offset);
                return self.components(ty, value, destinations);
            }
            Order::Weak => {}
        }
        let mut values = Vec::with_capacity(destinations.len());
        for index in 0..vector {
            let at = target.offset + (index * width) as i32;
            values.push(self.b.ins().load(class(ty), target.flags, target.base, at));
        }
        for (destination, value) in destinations.iter().zip(values) {
            self.set(destination, ty, value)?;
        }
        Ok(())
    }

    /// A load that sees what others store: all components at once, up to 16 bytes.
    fn ld_strong(&mut self, ty: Type, target: Target, destinations: &'a [Operand]) -> Result<()> {
        let bits = ty.bits();
        let total = bits * destinations.len() as u32;
        let address = self.whole_address(target);
        let whole = self.whole_class(ty, destinations.len() as u32)?;
        let value = if total > 64 {
            // Processors load 16 aligned bytes at once. An atomic load beside it keeps this one from
            // being merged with an earlier one.
            let fuel = self.add_const(self.thread, offset_of!(abi::Thread, fuel) as i64);
            self.b.ins().atomic_load(types::I32, trusted(), fuel);
            let value = self.b.ins().load(whole, user(), address, 0);
            self.order();
            value
        } else {
            self.b.ins().atomic_load(whole, user(), address)
        };
        self.components(ty, value, destinations)
    }

    /// What so many components are loaded as at once: a number, or a vector of 16 bytes.
    fn whole_class(&self, ty: Type, vector: u32) -> Result<types::Type> {
        let total = ty.bits() * vector;
        if total <= 64 {
            return Ok(int_class(total));
        }
        if total > 128 {
            return Err(self.refuse("Vectors of more than 16 bytes cannot be accessed at once"));
        }
        let whole = class(ty).by(vector).filter(|whole| whole.bits() == 128);
        whole.ok_or_else(|| self.refuse("A vector of this shape"))
    }

    /// Sets registers to the components of what was loaded at once.
    fn components(&mut self, ty: Type, whole: Value, destinations: &'a [Operand]) -> Result<()> {
        let (bits, is_vector) = (ty.bits(), self.type_of(whole).is_vector());
        for (index, destination) in destinations.iter().enumerate() {
            let value = if is_vector {
                self.b.ins().extractlane(whole, index as u8)
            } else {
                let shift = i64::from(bits) * index as i64;
                let part = if index > 0 { self.b.ins().ushr_imm_u(whole, shift) } else { whole };
                let part = self.resize(part, int_class(bits), false);
                self.recast(part, class(ty))
            };
            self.set(destination, ty, value)?;
        }
        Ok(())
    }

    /// `st`
    pub(crate) fn st(
        &mut self,
        place: MemoryTarget,
        ty: Type,
        vector: u32,
        order: Order,
        o: &'a [Operand],
    ) -> Result<()> {
        let sources = self.elements(self.operand(o, 1)?, vector)?;
        let destination = self.operand(o, 0)?;
        if let Some(reg) = self.parameter_register(place, destination) {
            let value = self.src(&sources[0], ty)?;
            return self.define(reg.0, ty, value);
        }
        let mut values = Vec::with_capacity(sources.len());
        for source in sources {
            values.push(self.src(source, ty)?);
        }
        let width = ty.bytes();
        let target = self.target_of(place, destination, width * vector)?;
        if target.flags.readonly() {
            return Err(self.refuse("A kernel cannot write its parameters"));
        }
        if order != Order::Weak && vector > 1 {
            let whole = self.whole_class(ty, vector)?;
            let whole = self.join(whole, &values);
            if order == Order::Strong {
                self.order();
            }
            self.b.ins().store(target.flags, whole, target.base, target.offset);
            return Ok(());
        }
        if order == Order::Strong {
            self.order();
        }
        for (index, value) in values.into_iter().enumerate() {
            let at = target.offset + index as i32 * width as i32;
            self.b.ins().store(target.flags, value, target.base, at);
        }
        Ok(())
    }

    /// Components as one number or vector, to be stored at once.
    fn join(&mut self, whole: types::Type, values: &[Value]) -> Value {
        let mut parts = values.iter().copied().enumerate();
        if whole.is_vector() {
            let first = self.b.ins().scalar_to_vector(whole, values[0]);
            return parts
                .skip(1)
                .fold(first, |vector, (index, part)| self.b.ins().insertlane(vector, part, index as u8));
        }
        let first = self.iconst(whole, 0);
        parts.by_ref().fold(first, |value, (index, part)| {
            let part = self.as_int(part);
            let bits = self.type_of(part).bits();
            let part = self.resize(part, whole, false);
            let part =
                if index > 0 { self.b.ins().ishl_imm_u(part, i64::from(bits) * index as i64) } else { part };
            if index > 0 { self.b.ins().bor(value, part) } else { part }
        })
    }

    /// Where a load that acquires has been, or a store that releases comes: on x86-64 their instructions do by themselves, and nothing
    /// is moved over them here.
    fn order(&mut self) {
        if !cfg!(target_arch = "x86_64") {
            self.b.ins().fence();
        }
    }

    /// `membar`, `fence`
    pub(crate) fn fence(&mut self, _: &'a [Operand]) -> Result<()> {
        self.b.ins().fence();
        Ok(())
    }

    /// `cp.async`: copies at once. The fourth operand is how many bytes to read; the rest becomes zeros. With a hint,
    /// the last operand is a cache policy, which means nothing here.
    pub(crate) fn cp_async(&mut self, hint: bool, o: &'a [Operand]) -> Result<()> {
        let o = if hint { &o[..o.len().saturating_sub(1)] } else { o };
        let Operand::Int(size, _) = *self.operand(o, 2)? else {
            return Err(self.refuse("The size of cp.async has to be a constant"));
        };
        let (ty, count) = match size {
            4 => (types::I32, 1),
            8 => (types::I64, 1),
            16 => (types::I64, 2),
            _ => return Err(self.refuse("cp.async copies 4, 8 or 16 bytes")),
        };
        let wide = ty.bytes() as i32;
        self.seen_as(abi::AccessKind::Write);
        let to = self.target_of(MemoryTarget::Shared, self.operand(o, 0)?, size as u32)?;
        self.seen_as(abi::AccessKind::Read);
        let source = self.operand(o, 1)?;
        let from = match o.get(3) {
            None => self.target_of(MemoryTarget::Generic, source, size as u32)?,
            // Each byte that is read is looked at below.
            Some(_) => self.unseen(|e| e.target_of(MemoryTarget::Generic, source, size as u32))?,
        };
        let mut values = Vec::new();
        match o.get(3) {
            None => {
                for index in 0..count {
                    values.push(self.b.ins().load(ty, from.flags, from.base, from.offset + index * wide));
                }
            }
            Some(limit) => {
                // Fewer bytes, down to none at all: then nothing may be read.
                let limit = match limit {
                    Operand::Reg(reg) if self.classes[reg.0 as usize] == types::I8 => {
                        // A predicate: whether to ignore the source.
                        let ignore = self.register(*reg);
                        let none = self.iconst(types::I32, 0);
                        let all = self.iconst(types::I32, size as i64);
                        self.b.ins().select(ignore, none, all)
                    }
                    limit => self.src(limit, Type::U32)?,
                };
                values = self.load_limited(from, size as u32, limit, ty, count)?;
            }
        }
        for (index, value) in values.into_iter().enumerate() {
            self.b.ins().store(to.flags, value, to.base, to.offset + index as i32 * wide);
        }
        Ok(())
    }

    /// `cp.async.bulk` into shared memory, from global or from the block's shared memory: copied at once, 16 bytes at a time, each of which is checked; then the barrier is told.
    pub(crate) fn cp_bulk(&mut self, shared: bool, multicast: bool, o: &'a [Operand]) -> Result<()> {
        let (to, from) = (self.operand(o, 0)?, self.operand(o, 1)?);
        let to = self.unseen(|e| e.target_of(MemoryTarget::Shared, to, 16))?;
        let place = if shared { MemoryTarget::Shared } else { MemoryTarget::Generic };
        let from = self.unseen(|e| e.target_of(place, from, 16))?;
        let bytes = self.src(self.operand(o, 2)?, Type::U32)?;
        // No barrier can count more, and what is no multiple of 16 is not defined.
        let bytes = self.b.ins().band_imm_u(bytes, super::mbarrier::MOST_BYTES & !15);
        let (to, from) = (self.whole_address(to), self.whole_address(from));
        if multicast {
            let barrier = self.own_barrier(self.operand(o, 3)?)?;
            return self.in_each_block(self.operand(o, 4)?, |e, rank| {
                let to = e.in_block(to, rank);
                e.copy_bulk(to, from, bytes)?;
                e.complete_in(barrier, rank, bytes)
            });
        }
        self.seen_as(abi::AccessKind::Barrier);
        let barrier = self.target_of(MemoryTarget::Shared, self.operand(o, 3)?, 8)?;
        self.copy_bulk(to, from, bytes)?;
        self.complete(barrier, bytes);
        Ok(())
    }

    /// Copies so many bytes, a multiple of 16.
    fn copy_bulk(&mut self, to: Value, from: Value, bytes: Value) -> Result<()> {
        let end = self.b.ins().uextend(types::I64, bytes);
        let (next, copy, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let at = self.b.append_block_param(next, types::I64);
        let start = self.iconst(types::I64, 0);
        self.b.ins().jump(next, &[start.into()]);
        self.b.switch_to_block(next);
        let more = self.b.ins().icmp(IntCC::UnsignedLessThan, at, end);
        self.b.ins().brif(more, copy, &[], done, &[]);
        self.b.switch_to_block(copy);
        let (source, destination) = (self.b.ins().iadd(from, at), self.b.ins().iadd(to, at));
        let source = self.place_of(abi::AccessKind::Read, source, 16)?;
        let destination = self.place_of(abi::AccessKind::Write, destination, 16)?;
        for offset in [0, 8] {
            let word = self.b.ins().load(types::I64, source.flags, source.base, offset);
            self.b.ins().store(destination.flags, word, destination.base, offset);
        }
        let after = self.add_const(at, 16);
        self.b.ins().jump(next, &[after.into()]);
        self.b.switch_to_block(done);
        Ok(())
    }

    /// Loads the first `limit` bytes, one by one, of `size`; the others are zeros.
    fn load_limited(
        &mut self,
        from: Target,
        size: u32,
        limit: Value,
        ty: ir::Type,
        count: i32,
    ) -> Result<Vec<Value>> {
        let zero = self.iconst(ty, 0);
        let mut words = vec![zero; count as usize];
        let per_word = ty.bytes();
        for index in 0..size {
            let (then, after) = (self.b.create_block(), self.b.create_block());
            let byte = self.b.append_block_param(after, types::I8);
            let wanted = self.iconst(types::I32, i64::from(index));
            let wanted = self.b.ins().icmp(IntCC::UnsignedLessThan, wanted, limit);
            let none = self.iconst(types::I8, 0);
            self.b.ins().brif(wanted, then, &[], after, &[none.into()]);
            self.b.switch_to_block(then);
            let mut from = Target { offset: from.offset + index as i32, ..from };
            if self.looks() {
                let address = self.whole_address(from);
                from = self.seen(address, 1)?;
            }
            let value = self.b.ins().load(types::I8, from.flags, from.base, from.offset);
            self.b.ins().jump(after, &[value.into()]);
            self.b.switch_to_block(after);
            let byte = self.b.ins().uextend(ty, byte);
            let byte = self.b.ins().ishl_imm_u(byte, i64::from(index % per_word) * 8);
            let word = &mut words[(index / per_word) as usize];
            *word = self.b.ins().bor(*word, byte);
        }
        Ok(words)
    }

    /// `cvta`
    pub(crate) fn cvta(&mut self, place: MemoryTarget, to: bool, o: &'a [Operand]) -> Result<()> {
        let source = self.operand(o, 1)?;
        let source = if let Operand::Address(AddressBase::Symbol(symbol), offset) = source {
            self.symbol(*symbol, *offset)?
        } else {
            self.src(source, Type::U64)?
        };
        let value = match (place, to) {
            (MemoryTarget::Shared, false) => {
                let base = self.shared_base();
                self.b.ins().iadd(base, source)
            }
            (MemoryTarget::Shared, true) => {
                let base = self.shared_base();
                self.b.ins().isub(source, base)
            }
            // What has been widened from 32 bits is a whole address again.
            (MemoryTarget::Local, false) => {
                let short = self.b.ins().ireduce(types::I32, source);
                self.local_address(short)
            }
            _ => source,
        };
        self.set(self.operand(o, 0)?, Type::U64, value)
    }

    /// `isspacep`
    pub(crate) fn isspacep(&mut self, space: SpaceTest, o: &'a [Operand]) -> Result<()> {
        let address = self.src(self.operand(o, 1)?, Type::U64)?;
        let value = self.lies_in(space, address);
        self.set(self.operand(o, 0)?, Type::Pred, value)
    }

    fn lies_in(&mut self, space: SpaceTest, address: Value) -> Value {
        let within = |e: &mut Self, base: Value, size: Value| {
            let distance = e.b.ins().isub(address, base);
            e.b.ins().icmp(IntCC::UnsignedLessThan, distance, size)
        };
        match space {
            SpaceTest::Shared => {
                let base = self.own_shared_base();
                let size = self.iconst(types::I64, abi::CLUSTER_STRIDE.into());
                within(self, base, size)
            }
            SpaceTest::Cluster => {
                let base = self.cluster_shared_base();
                let size = self.iconst(types::I64, 1 << 32);
                within(self, base, size)
            }
            SpaceTest::Local => {
                let base = self.thread_field(types::I64, offset_of!(abi::Thread, local_base));
                let end = self.thread_field(types::I64, offset_of!(abi::Thread, local_end));
                let size = self.b.ins().isub(end, base);
                within(self, base, size)
            }
            SpaceTest::Param => {
                let base = self.block_field(types::I64, offset_of!(abi::Block, params));
                let size = self.iconst(types::I64, 32768);
                within(self, base, size)
            }
            SpaceTest::Const => {
                let mut value = self.iconst(types::I8, 0);
                let unit = self.cx.unit;
                for variable in &unit.globals {
                    if variable.kind != rgpu_device::GlobalKind::Constant {
                        continue;
                    }
                    let Some(&base) = self.cx.env.globals.get(&variable.name) else { continue };
                    let base = self.iconst(types::I64, base as i64);
                    let size = self.iconst(types::I64, variable.size as i64);
                    let hit = within(self, base, size);
                    value = self.b.ins().bor(value, hit);
                }
                value
            }
            SpaceTest::Global => {
                let arena = self.cx.env.arena;
                let base = self.iconst(types::I64, arena.base as i64);
                let size = self.iconst(types::I64, arena.size as i64);
                let mut value = within(self, base, size);
                for other in [SpaceTest::Cluster, SpaceTest::Local, SpaceTest::Const] {
                    let hit = self.lies_in(other, address);
                    let not = self.b.ins().bxor_imm_u(hit, 1);
                    value = self.b.ins().band(value, not);
                }
                value
            }
        }
    }
}
