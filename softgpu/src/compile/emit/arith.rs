//! Integer arithmetic, comparisons and selection.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::{Emitter, Result, class, int_class};
use crate::compile::op::{IntOp, IntTernary, IntUnary};
use crate::compile::opcode::{Combine, Compare};
use rgpu_image::ptx::ast::{Operand, Type};

impl<'a> Emitter<'a, '_> {
    /// Two sources, one result of the same type.
    pub(crate) fn int(&mut self, op: IntOp, ty: Type, o: &'a [Operand]) -> Result<()> {
        if let (IntOp::Shl | IntOp::Shr, Operand::Int(amount, _)) = (op, self.operand(o, 2)?) {
            let a = self.src(self.operand(o, 1)?, ty)?;
            let value = self.shift_by_constant(op, ty, a, *amount as u32);
            return self.set(self.operand(o, 0)?, ty, value);
        }
        let a = self.src(self.operand(o, 1)?, ty)?;
        let second = self.operand(o, 2)?;
        let b = match op {
            IntOp::Shl | IntOp::Shr => self.src(second, Type::U32)?,
            _ => self.src(second, ty)?,
        };
        let positive = match second {
            Operand::Int(value, _) => {
                let bits = ty.bits();
                let value = if bits < 64 { value & ((1 << bits) - 1) } else { *value };
                value != 0 && (!ty.is_signed() || value >> (bits - 1) == 0)
            }
            _ => false,
        };
        let value = match op {
            IntOp::Div | IntOp::Rem => self.divide(op == IntOp::Rem, ty, a, b, positive),
            _ => self.int_value(op, ty, a, b),
        };
        self.set(self.operand(o, 0)?, ty, value)
    }

    fn shift_by_constant(&mut self, op: IntOp, ty: Type, a: Value, amount: u32) -> Value {
        let bits = ty.bits();
        let signed = ty.is_signed();
        if amount >= bits && !(op == IntOp::Shr && signed) {
            return self.iconst(class(ty), 0);
        }
        let amount = self.iconst(types::I32, i64::from(amount.min(bits - 1)));
        match (op, signed) {
            (IntOp::Shl, _) => self.b.ins().ishl(a, amount),
            (_, true) => self.b.ins().sshr(a, amount),
            (_, false) => self.b.ins().ushr(a, amount),
        }
    }

    /// The result of an operation that cannot fail.
    pub(crate) fn int_value(&mut self, op: IntOp, ty: Type, a: Value, b: Value) -> Value {
        let signed = ty.is_signed();
        let class = class(ty);
        match op {
            IntOp::Add => self.b.ins().iadd(a, b),
            IntOp::Sub => self.b.ins().isub(a, b),
            IntOp::MulLo => self.b.ins().imul(a, b),
            IntOp::MulHi => self.mul_high(a, b, signed),
            IntOp::Mul24Lo | IntOp::Mul24Hi => {
                let product = self.product24(a, b, signed);
                let product =
                    if op == IntOp::Mul24Hi { self.b.ins().ushr_imm_u(product, 16) } else { product };
                self.b.ins().ireduce(types::I32, product)
            }
            IntOp::Min if signed => self.b.ins().smin(a, b),
            IntOp::Min => self.b.ins().umin(a, b),
            IntOp::Max if signed => self.b.ins().smax(a, b),
            IntOp::Max => self.b.ins().umax(a, b),
            IntOp::And => self.b.ins().band(a, b),
            IntOp::Or => self.b.ins().bor(a, b),
            IntOp::Xor => self.b.ins().bxor(a, b),
            IntOp::Shl => self.shift_left(a, b),
            IntOp::Shr if signed => {
                let top = self.iconst(types::I32, i64::from(ty.bits() - 1));
                let amount = self.b.ins().umin(b, top);
                self.b.ins().sshr(a, amount)
            }
            IntOp::Shr => self.shift_right(a, b),
            IntOp::AddSat | IntOp::SubSat => {
                let (a, b) = (self.b.ins().sextend(types::I64, a), self.b.ins().sextend(types::I64, b));
                let wide =
                    if op == IntOp::AddSat { self.b.ins().iadd(a, b) } else { self.b.ins().isub(a, b) };
                let narrow = self.clamp_signed(wide, 32);
                self.b.ins().ireduce(class, narrow)
            }
            IntOp::Div => self.divide(false, ty, a, b, false),
            IntOp::Rem => self.divide(true, ty, a, b, false),
        }
    }

    /// `a << b`, 0 where `b` is at least the width.
    pub(crate) fn shift_left(&mut self, a: Value, b: Value) -> Value {
        let ty = self.type_of(a);
        let shifted = self.b.ins().ishl(a, b);
        let fits = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, b, i64::from(ty.bits()));
        let zero = self.iconst(ty, 0);
        self.b.ins().select(fits, shifted, zero)
    }

    /// `a >> b` without sign, 0 where `b` is at least the width.
    pub(crate) fn shift_right(&mut self, a: Value, b: Value) -> Value {
        let ty = self.type_of(a);
        let shifted = self.b.ins().ushr(a, b);
        let fits = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, b, i64::from(ty.bits()));
        let zero = self.iconst(ty, 0);
        self.b.ins().select(fits, shifted, zero)
    }

    /// Clamps a 64-bit number to a signed range.
    pub(crate) fn clamp_signed(&mut self, value: Value, bits: u32) -> Value {
        let low = self.iconst(types::I64, -(1i64 << (bits - 1)));
        let high = self.iconst(types::I64, (1i64 << (bits - 1)) - 1);
        let value = self.b.ins().smax(value, low);
        self.b.ins().smin(value, high)
    }

    /// Clamps a signed 64-bit number to an unsigned range.
    pub(crate) fn clamp_unsigned(&mut self, value: Value, bits: u32) -> Value {
        let low = self.iconst(types::I64, 0);
        let high = self.iconst(types::I64, (1i64 << bits) - 1);
        let value = self.b.ins().smax(value, low);
        self.b.ins().smin(value, high)
    }

    fn mul_high(&mut self, a: Value, b: Value, signed: bool) -> Value {
        let ty = self.type_of(a);
        if ty == types::I64 {
            return if signed { self.b.ins().smulhi(a, b) } else { self.b.ins().umulhi(a, b) };
        }
        let wide = int_class(ty.bits() * 2);
        let (a, b) = (self.resize(a, wide, signed), self.resize(b, wide, signed));
        let product = self.b.ins().imul(a, b);
        let high = self.b.ins().ushr_imm_u(product, i64::from(ty.bits()));
        self.b.ins().ireduce(ty, high)
    }

    /// The 48-bit product of the low 24 bits.
    fn product24(&mut self, a: Value, b: Value, signed: bool) -> Value {
        let mut part = |value: Value| {
            let wide = self.b.ins().uextend(types::I64, value);
            let top = self.b.ins().ishl_imm_u(wide, 40);
            if signed { self.b.ins().sshr_imm_u(top, 40) } else { self.b.ins().ushr_imm_u(top, 40) }
        };
        let (a, b) = (part(a), part(b));
        self.b.ins().imul(a, b)
    }

    /// Division, never trapping: by zero all bits are set (as on the devices), and the remainder is the
    /// dividend.
    fn divide(&mut self, rem: bool, ty: Type, a: Value, b: Value, positive: bool) -> Value {
        let signed = ty.is_signed();
        let class = class(ty);
        if ty.bits() < 32 {
            let (a, b) = (self.resize(a, types::I32, signed), self.resize(b, types::I32, signed));
            let wide = if signed { Type::S32 } else { Type::U32 };
            let value = self.divide(rem, wide, a, b, positive);
            return self.b.ins().ireduce(class, value);
        }
        if positive {
            return match (rem, signed) {
                (false, false) => self.b.ins().udiv(a, b),
                (false, true) => self.b.ins().sdiv(a, b),
                (true, false) => self.b.ins().urem(a, b),
                (true, true) => self.b.ins().srem(a, b),
            };
        }
        let zero = self.b.ins().icmp_imm_u(IntCC::Equal, b, 0);
        let one = self.iconst(class, 1);
        let ones = self.iconst(class, -1);
        if !signed {
            let divisor = self.b.ins().select(zero, one, b);
            return if rem {
                let value = self.b.ins().urem(a, divisor);
                self.b.ins().select(zero, a, value)
            } else {
                let value = self.b.ins().udiv(a, divisor);
                self.b.ins().select(zero, ones, value)
            };
        }
        // The one quotient that overflows comes from dividing by -1, which is negation.
        let minus = self.b.ins().icmp(IntCC::Equal, b, ones);
        let special = self.b.ins().bor(zero, minus);
        let divisor = self.b.ins().select(special, one, b);
        if rem {
            let value = self.b.ins().srem(a, divisor);
            self.b.ins().select(zero, a, value)
        } else {
            let value = self.b.ins().sdiv(a, divisor);
            let negated = self.b.ins().ineg(a);
            let value = self.b.ins().select(minus, negated, value);
            self.b.ins().select(zero, ones, value)
        }
    }

    fn wide_type(ty: Type) -> Type {
        match ty {
            Type::U16 => Type::U32,
            Type::S16 => Type::S32,
            Type::U32 => Type::U64,
            _ => Type::S64,
        }
    }

    fn wide_product(&mut self, ty: Type, o: &'a [Operand]) -> Result<Value> {
        let (a, b) = (self.src(self.operand(o, 1)?, ty)?, self.src(self.operand(o, 2)?, ty)?);
        let wide = class(Self::wide_type(ty));
        let (a, b) = (self.resize(a, wide, ty.is_signed()), self.resize(b, wide, ty.is_signed()));
        Ok(self.b.ins().imul(a, b))
    }

    /// `mul.wide`
    pub(crate) fn mul_wide(&mut self, ty: Type, o: &'a [Operand]) -> Result<()> {
        let product = self.wide_product(ty, o)?;
        self.set(self.operand(o, 0)?, Self::wide_type(ty), product)
    }

    /// `mad.wide`
    pub(crate) fn mad_wide(&mut self, ty: Type, o: &'a [Operand]) -> Result<()> {
        let product = self.wide_product(ty, o)?;
        let c = self.src(self.operand(o, 3)?, Self::wide_type(ty))?;
        let sum = self.b.ins().iadd(product, c);
        self.set(self.operand(o, 0)?, Self::wide_type(ty), sum)
    }

    /// One source.
    pub(crate) fn int_unary(&mut self, op: IntUnary, ty: Type, o: &'a [Operand]) -> Result<()> {
        let a = self.src(self.operand(o, 1)?, ty)?;
        let class = class(ty);
        let (value, ty) = match op {
            IntUnary::Neg => (self.b.ins().ineg(a), ty),
            IntUnary::Abs => (self.b.ins().iabs(a), ty),
            IntUnary::Not => (self.b.ins().bnot(a), ty),
            IntUnary::Cnot => {
                let zero = self.b.ins().icmp_imm_u(IntCC::Equal, a, 0);
                (self.b.ins().uextend(class, zero), ty)
            }
            IntUnary::Popc => {
                let count = self.b.ins().popcnt(a);
                (self.resize(count, types::I32, false), Type::U32)
            }
            IntUnary::Clz => {
                let count = self.b.ins().clz(a);
                (self.resize(count, types::I32, false), Type::U32)
            }
            IntUnary::Brev => (self.b.ins().bitrev(a), ty),
            IntUnary::Bfind { shift } => {
                let a = if ty.is_signed() {
                    let sign = self.b.ins().sshr_imm_u(a, i64::from(ty.bits() - 1));
                    self.b.ins().bxor(a, sign)
                } else {
                    a
                };
                let zeros = self.b.ins().clz(a);
                let zeros = self.resize(zeros, types::I32, false);
                let top = self.iconst(types::I32, i64::from(ty.bits() - 1));
                let found = if shift { zeros } else { self.b.ins().isub(top, zeros) };
                let none = self.b.ins().icmp_imm_u(IntCC::Equal, a, 0);
                let ones = self.iconst(types::I32, -1);
                (self.b.ins().select(none, ones, found), Type::U32)
            }
        };
        self.set(self.operand(o, 0)?, ty, value)
    }

    /// Three sources.
    pub(crate) fn int_ternary(&mut self, op: IntTernary, ty: Type, o: &'a [Operand]) -> Result<()> {
        use IntTernary as T;
        if op == T::Bfe {
            return self.bfe(ty, o);
        }
        if op == T::Fns {
            let mask = self.src(self.operand(o, 1)?, Type::B32)?;
            let base = self.src(self.operand(o, 2)?, Type::B32)?;
            let offset = self.src(self.operand(o, 3)?, Type::B32)?;
            let helper = crate::compile::helpers::fns as extern "C" fn(u32, u32, i32) -> u32;
            let value = self.call_helper(
                crate::compile::helpers::of_numbers(helper as usize),
                Some(types::I32),
                &[mask, base, offset],
            );
            let value = value.ok_or_else(|| self.refuse("A helper returned nothing"))?;
            return self.set(self.operand(o, 0)?, Type::B32, value);
        }
        let a = self.src(self.operand(o, 1)?, ty)?;
        let b = self.src(self.operand(o, 2)?, ty)?;
        let c = self.src(self.operand(o, 3)?, ty)?;
        let product = match op {
            T::MadLo => self.b.ins().imul(a, b),
            T::MadHi | T::MadHiSat => self.int_value(IntOp::MulHi, ty, a, b),
            T::Mad24Lo => self.int_value(IntOp::Mul24Lo, ty, a, b),
            T::Mad24Hi | T::Mad24HiSat => self.int_value(IntOp::Mul24Hi, ty, a, b),
            T::Sad | T::Bfe | T::Fns => {
                let high = self.int_value(IntOp::Max, ty, a, b);
                let low = self.int_value(IntOp::Min, ty, a, b);
                self.b.ins().isub(high, low)
            }
        };
        let sum = match op {
            T::MadHiSat | T::Mad24HiSat => self.int_value(IntOp::AddSat, ty, product, c),
            _ => self.b.ins().iadd(product, c),
        };
        self.set(self.operand(o, 0)?, ty, sum)
    }

    /// `add`, `min` and `max` of two 16-bit integers in one register.
    pub(crate) fn packed_int(&mut self, op: IntOp, signed: bool, o: &'a [Operand]) -> Result<()> {
        let a = self.src(self.operand(o, 1)?, Type::B32)?;
        let b = self.src(self.operand(o, 2)?, Type::B32)?;
        let ty = if signed { Type::S16 } else { Type::U16 };
        let (a0, a1) = self.halves(a);
        let (b0, b1) = self.halves(b);
        let low = self.int_value(op, ty, a0, b0);
        let high = self.int_value(op, ty, a1, b1);
        let value = self.join_halves(low, high);
        self.set(self.operand(o, 0)?, Type::B32, value)
    }

    /// The two 16-bit halves of a 32-bit integer, low first.
    pub(crate) fn halves(&mut self, value: Value) -> (Value, Value) {
        let low = self.b.ins().ireduce(types::I16, value);
        let high = self.b.ins().ushr_imm_u(value, 16);
        let high = self.b.ins().ireduce(types::I16, high);
        (low, high)
    }

    /// The opposite of [`Self::halves`].
    pub(crate) fn join_halves(&mut self, low: Value, high: Value) -> Value {
        let low = self.b.ins().uextend(types::I32, low);
        let high = self.b.ins().uextend(types::I32, high);
        let high = self.b.ins().ishl_imm_u(high, 16);
        self.b.ins().bor(low, high)
    }

    /// `and`, `or`, `xor` of predicates.
    pub(crate) fn pred_logic(&mut self, op: IntOp, o: &'a [Operand]) -> Result<()> {
        let a = self.src(self.operand(o, 1)?, Type::Pred)?;
        let b = self.src(self.operand(o, 2)?, Type::Pred)?;
        let value = self.int_value(op, Type::U8, a, b);
        self.set(self.operand(o, 0)?, Type::Pred, value)
    }

    /// `not` of a predicate.
    pub(crate) fn pred_not(&mut self, o: &'a [Operand]) -> Result<()> {
        let a = self.src(self.operand(o, 1)?, Type::Pred)?;
        let not = self.b.ins().bxor_imm_u(a, 1);
        self.set(self.operand(o, 0)?, Type::Pred, not)
    }

    /// `selp`
    pub(crate) fn selp(&mut self, ty: Type, o: &'a [Operand]) -> Result<()> {
        let (a, b) = (self.src(self.operand(o, 1)?, ty)?, self.src(self.operand(o, 2)?, ty)?);
        let p = self.src(self.operand(o, 3)?, Type::Pred)?;
        let value = self.b.ins().select(p, a, b);
        self.set(self.operand(o, 0)?, ty, value)
    }

    /// Compares two values of a type, yielding 0 or 1.
    pub(crate) fn compare(&mut self, compare: Compare, ty: Type, ftz: bool, a: Value, b: Value) -> Value {
        use Compare as C;
        if ty.is_float() {
            let (a, b) = match ty {
                Type::F32 | Type::F64 => (a, b),
                _ => (self.half_to_single(ty, a), self.half_to_single(ty, b)),
            };
            let (a, b) = if ftz && ty == Type::F32 { (self.flush(a), self.flush(b)) } else { (a, b) };
            let condition = match compare {
                C::Eq => FloatCC::Equal,
                C::Ne => FloatCC::OrderedNotEqual,
                C::Lt | C::Lo => FloatCC::LessThan,
                C::Le | C::Ls => FloatCC::LessThanOrEqual,
                C::Gt | C::Hi => FloatCC::GreaterThan,
                C::Ge | C::Hs => FloatCC::GreaterThanOrEqual,
                C::Equ => FloatCC::UnorderedOrEqual,
                C::Neu => FloatCC::NotEqual,
                C::Ltu => FloatCC::UnorderedOrLessThan,
                C::Leu => FloatCC::UnorderedOrLessThanOrEqual,
                C::Gtu => FloatCC::UnorderedOrGreaterThan,
                C::Geu => FloatCC::UnorderedOrGreaterThanOrEqual,
                C::Num => FloatCC::Ordered,
                C::Nan => FloatCC::Unordered,
            };
            return self.b.ins().fcmp(condition, a, b);
        }
        let signed = ty.is_signed();
        let condition = match compare {
            C::Eq | C::Equ | C::Num => IntCC::Equal,
            C::Ne | C::Neu | C::Nan => IntCC::NotEqual,
            C::Lt | C::Ltu if signed => IntCC::SignedLessThan,
            C::Le | C::Leu if signed => IntCC::SignedLessThanOrEqual,
            C::Gt | C::Gtu if signed => IntCC::SignedGreaterThan,
            C::Ge | C::Geu if signed => IntCC::SignedGreaterThanOrEqual,
            C::Lt | C::Ltu | C::Lo => IntCC::UnsignedLessThan,
            C::Le | C::Leu | C::Ls => IntCC::UnsignedLessThanOrEqual,
            C::Gt | C::Gtu | C::Hi => IntCC::UnsignedGreaterThan,
            C::Ge | C::Geu | C::Hs => IntCC::UnsignedGreaterThanOrEqual,
        };
        self.b.ins().icmp(condition, a, b)
    }

    fn combine(&mut self, combine: Combine, a: Value, b: Value) -> Value {
        match combine {
            Combine::And => self.b.ins().band(a, b),
            Combine::Or => self.b.ins().bor(a, b),
            _ => self.b.ins().bxor(a, b),
        }
    }

    /// Comparisons of the lanes of packed halves, or of the whole; the second one only for packed types.
    fn comparisons(
        &mut self,
        compare: Compare,
        ty: Type,
        ftz: bool,
        o: &'a [Operand],
    ) -> Result<(Value, Option<Value>)> {
        let a = self.src(self.operand(o, 1)?, ty)?;
        let b = self.src(self.operand(o, 2)?, ty)?;
        let lane = match ty {
            Type::F16x2 => Type::F16,
            Type::Bf16x2 => Type::Bf16,
            _ => return Ok((self.compare(compare, ty, ftz, a, b), None)),
        };
        let (a0, a1) = self.halves(a);
        let (b0, b1) = self.halves(b);
        let low = self.compare(compare, lane, ftz, a0, b0);
        let high = self.compare(compare, lane, ftz, a1, b1);
        Ok((low, Some(high)))
    }

    /// `setp`
    pub(crate) fn setp(
        &mut self,
        compare: Compare,
        combine: Option<Combine>,
        ty: Type,
        ftz: bool,
        o: &'a [Operand],
    ) -> Result<()> {
        let (first, second) = self.comparisons(compare, ty, ftz, o)?;
        let c = match combine {
            Some(_) => Some(self.src(self.operand(o, 3)?, Type::Pred)?),
            None => None,
        };
        let apply = |e: &mut Self, value: Value| match (combine, c) {
            (Some(combine), Some(c)) => e.combine(combine, value, c),
            _ => value,
        };
        let value = apply(self, first);
        match self.operand(o, 0)? {
            Operand::Pair(pair) => {
                let other = match second {
                    Some(high) => high,
                    None => self.b.ins().bxor_imm_u(first, 1),
                };
                let other = apply(self, other);
                self.set(&pair.0, Type::Pred, value)?;
                self.set(&pair.1, Type::Pred, other)
            }
            _ if second.is_some() => Err(self.refuse("Two predicates are needed here")),
            single => self.set(single, Type::Pred, value),
        }
    }

    /// `set`
    pub(crate) fn set_compare(
        &mut self,
        compare: Compare,
        combine: Option<Combine>,
        dst: Type,
        ty: Type,
        ftz: bool,
        o: &'a [Operand],
    ) -> Result<()> {
        let (mut first, mut second) = self.comparisons(compare, ty, ftz, o)?;
        if let Some(combine) = combine {
            let c = self.src(self.operand(o, 3)?, Type::Pred)?;
            first = self.combine(combine, first, c);
            second = second.map(|second| self.combine(combine, second, c));
        }
        let truth = |dst: Type| match dst {
            Type::F32 => i64::from(1f32.to_bits()),
            Type::F16 | Type::F16x2 => 0x3C00,
            Type::Bf16 | Type::Bf16x2 => 0x3F80,
            _ => -1,
        };
        let value = match second {
            None => {
                let int = int_class(dst.bits());
                let (yes, no) = (self.iconst(int, truth(dst)), self.iconst(int, 0));
                let bits = self.b.ins().select(first, yes, no);
                self.recast(bits, class(dst))
            }
            Some(second) => {
                let (yes, no) = (self.iconst(types::I16, truth(dst)), self.iconst(types::I16, 0));
                let low = self.b.ins().select(first, yes, no);
                let high = self.b.ins().select(second, yes, no);
                self.join_halves(low, high)
            }
        };
        self.set(self.operand(o, 0)?, dst, value)
    }

    /// `slct`
    pub(crate) fn slct(&mut self, ty: Type, select: Type, ftz: bool, o: &'a [Operand]) -> Result<()> {
        let a = self.src(self.operand(o, 1)?, ty)?;
        let b = self.src(self.operand(o, 2)?, ty)?;
        let c = self.src(self.operand(o, 3)?, select)?;
        let condition = if select == Type::F32 {
            let c = if ftz { self.flush(c) } else { c };
            let zero = self.b.ins().f32const(0.0);
            self.b.ins().fcmp(FloatCC::GreaterThanOrEqual, c, zero)
        } else {
            self.b.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, c, 0)
        };
        let value = self.b.ins().select(condition, a, b);
        self.set(self.operand(o, 0)?, ty, value)
    }
}
