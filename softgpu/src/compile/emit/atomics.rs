//! `atom` and `red`.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AtomicRmwOp, InstBuilder, MemFlagsData, Value, types};

use super::{Emitter, Result, alone, class, int_class, user};
use crate::compile::op::{IntOp, MemoryTarget};
use crate::compile::opcode::{Combine, Rounding};
use rgpu_image::ptx::ast::{Operand, Type};

impl<'a> Emitter<'a, '_> {
    /// `atom`, `red`
    pub(crate) fn atom(
        &mut self,
        shared: bool,
        op: Combine,
        ty: Type,
        vector: u32,
        result: bool,
        o: &'a [Operand],
    ) -> Result<()> {
        let (destination, rest) = if result { (Some(self.operand(o, 0)?), &o[1..]) } else { (None, o) };
        let place = if shared { MemoryTarget::Shared } else { MemoryTarget::Generic };
        let target = self.target_of(place, self.operand(rest, 0)?, ty.bytes() * vector)?;
        if vector > 1 {
            // Each element is atomic by itself.
            let sources = self.elements(self.operand(rest, 1)?, vector)?;
            let address = self.whole_address(target);
            let mut all = Vec::new();
            for (index, source) in (0i64..).zip(sources) {
                let value = self.src(source, ty)?;
                let address = self.add_const(address, index * i64::from(ty.bytes()));
                all.push(self.atomic(user(), op, ty, address, value, None)?);
            }
            let Some(destination) = destination else { return Ok(()) };
            let destinations = self.elements(destination, vector)?;
            return destinations.iter().zip(all).try_for_each(|(to, old)| self.set(to, ty, old));
        }
        let first = self.src(self.operand(rest, 1)?, ty)?;
        let second = match op {
            Combine::Cas => Some(self.src(self.operand(rest, 2)?, ty)?),
            _ => None,
        };
        let address = self.whole_address(target);
        let old = if shared && !self.cx.for_vectors {
            // One worker runs a block, so that nobody else touches its shared memory meanwhile.
            let old = self.b.ins().load(class(ty), user(), address, 0);
            let new = self.combined(op, ty, old, first, second)?;
            self.b.ins().store(user(), new, address, 0);
            old
        } else {
            // Where several threads are run at once, it has to stay in one piece.
            let flags = if shared { alone() } else { user() };
            self.atomic(flags, op, ty, address, first, second)?
        };
        match destination {
            Some(destination) => self.set(destination, ty, old),
            None => Ok(()),
        }
    }

    /// What is stored in place of `old`.
    fn combined(
        &mut self,
        op: Combine,
        ty: Type,
        old: Value,
        value: Value,
        second: Option<Value>,
    ) -> Result<Value> {
        Ok(match op {
            Combine::Exch => value,
            Combine::Cas => {
                let same = self.b.ins().icmp(IntCC::Equal, old, value);
                let new = second.ok_or_else(|| self.refuse("An operand is missing"))?;
                self.b.ins().select(same, new, old)
            }
            _ if matches!(ty, Type::F16x2 | Type::Bf16x2) => {
                let lane = super::half::lane(ty);
                let (a0, a1) = self.halves(old);
                let (b0, b1) = self.halves(value);
                let low = self.combined_half(op, lane, a0, b0);
                let high = self.combined_half(op, lane, a1, b1);
                self.join_halves(low, high)
            }
            _ if matches!(ty, Type::F16 | Type::Bf16) => self.combined_half(op, ty, old, value),
            Combine::Add if ty.is_float() => self.b.ins().fadd(old, value),
            Combine::Add => self.b.ins().iadd(old, value),
            Combine::And => self.b.ins().band(old, value),
            Combine::Or => self.b.ins().bor(old, value),
            Combine::Xor => self.b.ins().bxor(old, value),
            Combine::Min => self.int_value(IntOp::Min, ty, old, value),
            Combine::Max => self.int_value(IntOp::Max, ty, old, value),
            Combine::Inc => {
                let next = self.add_const(old, 1);
                let zero = self.iconst(types::I32, 0);
                let wraps = self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, old, value);
                self.b.ins().select(wraps, zero, next)
            }
            Combine::Dec => {
                let next = self.add_const(old, -1);
                let zero = self.b.ins().icmp_imm_u(IntCC::Equal, old, 0);
                let above = self.b.ins().icmp(IntCC::UnsignedGreaterThan, old, value);
                let wraps = self.b.ins().bor(zero, above);
                self.b.ins().select(wraps, value, next)
            }
            Combine::Popc => return Err(self.refuse("An atomic popc does not exist")),
        })
    }

    /// The sum of two halves, or the smaller or larger of them.
    fn combined_half(&mut self, op: Combine, ty: Type, a: Value, b: Value) -> Value {
        let (a, b) = (self.half_to_single(ty, a), self.half_to_single(ty, b));
        let value = match op {
            Combine::Add => self.b.ins().fadd(a, b),
            _ => self.min_max_value(op == Combine::Max, false, false, a, b),
        };
        self.single_to_half(ty, value, Rounding::Nearest)
    }

    /// The atomic operation on memory that other workers may be touching; the result is the old value.
    fn atomic(
        &mut self,
        flags: MemFlagsData,
        op: Combine,
        ty: Type,
        address: Value,
        value: Value,
        second: Option<Value>,
    ) -> Result<Value> {
        let direct = match op {
            Combine::Exch => Some(AtomicRmwOp::Xchg),
            Combine::Add | Combine::Min | Combine::Max if ty.is_float() => None,
            Combine::Add => Some(AtomicRmwOp::Add),
            Combine::And => Some(AtomicRmwOp::And),
            Combine::Or => Some(AtomicRmwOp::Or),
            Combine::Xor => Some(AtomicRmwOp::Xor),
            Combine::Min if ty.is_signed() => Some(AtomicRmwOp::Smin),
            Combine::Min => Some(AtomicRmwOp::Umin),
            Combine::Max if ty.is_signed() => Some(AtomicRmwOp::Smax),
            Combine::Max => Some(AtomicRmwOp::Umax),
            _ => None,
        };
        let int = int_class(ty.bits());
        if let Some(op) = direct {
            return Ok(self.b.ins().atomic_rmw(int, flags, op, address, value));
        }
        if op == Combine::Cas {
            let new = second.ok_or_else(|| self.refuse("An operand is missing"))?;
            return Ok(self.b.ins().atomic_cas(flags, address, value, new));
        }
        // Compute, and try to exchange, until nobody came in between.
        let (attempt, done) = (self.b.create_block(), self.b.create_block());
        let expected = self.b.append_block_param(attempt, int);
        let start = self.b.ins().atomic_load(int, flags, address);
        self.b.ins().jump(attempt, &[start.into()]);
        self.b.switch_to_block(attempt);
        let old = self.recast(expected, class(ty));
        let new = self.combined(op, ty, old, value, second)?;
        let new = self.as_int(new);
        let found = self.b.ins().atomic_cas(flags, address, expected, new);
        let same = self.b.ins().icmp(IntCC::Equal, found, expected);
        self.b.ins().brif(same, done, &[], attempt, &[found.into()]);
        self.b.switch_to_block(done);
        // Not `old`, which is the same: code for vectors may make the whole loop one operation, which yields only this.
        Ok(self.recast(found, class(ty)))
    }
}
