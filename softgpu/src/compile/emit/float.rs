//! Floating-point arithmetic in single and double precision.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{self, InstBuilder, Value, types};

use super::{Emitter, Result};
use crate::compile::helpers;
use crate::compile::op::{FloatOp, FloatUnary, Mode, TestKind};
use crate::compile::opcode::Rounding;
use rgpu_image::ptx::ast::{Operand, Type};

/// The NaN that the devices produce in single precision.
const NAN32: u32 = 0x7fff_ffff;
/// The same in double precision.
const NAN64: u64 = 0x7ff8_0000_0000_0000;

/// What a directed operation computes, before it is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Directed {
    Add,
    Sub,
    Mul,
    Fma,
    Div,
    Sqrt,
}

impl<'a> Emitter<'a, '_> {
    pub(super) fn f32const(&mut self, bits: u32) -> Value {
        self.b.ins().f32const(ir::immediates::Ieee32::with_bits(bits))
    }

    pub(super) fn f64const(&mut self, bits: u64) -> Value {
        self.b.ins().f64const(ir::immediates::Ieee64::with_bits(bits))
    }

    /// Replaces a denormal single by a zero of its sign.
    pub(crate) fn flush(&mut self, value: Value) -> Value {
        if self.flushed.contains(&value) {
            return value;
        }
        let bits = self.recast(value, types::I32);
        let exponent = self.b.ins().band_imm_u(bits, 0x7f80_0000);
        let sign = self.b.ins().band_imm_u(bits, 0x8000_0000);
        let tiny = self.b.ins().icmp_imm_u(IntCC::Equal, exponent, 0);
        let bits = self.b.ins().select(tiny, sign, bits);
        let value = self.recast(bits, types::F32);
        self.flushed.insert(value);
        value
    }

    /// Clamps to 0 … 1; NaN becomes 0.
    pub(crate) fn saturate(&mut self, value: Value) -> Value {
        let (zero, one) = if self.type_of(value) == types::F64 {
            (self.f64const(0), self.f64const(1f64.to_bits()))
        } else {
            (self.f32const(0), self.f32const(1f32.to_bits()))
        };
        let positive = self.b.ins().fcmp(FloatCC::GreaterThan, value, zero);
        let value = self.b.ins().select(positive, value, zero);
        let above = self.b.ins().fcmp(FloatCC::GreaterThan, value, one);
        self.b.ins().select(above, one, value)
    }

    /// Replaces any NaN by the devices' own.
    pub(crate) fn canonical(&mut self, value: Value) -> Value {
        let nan = if self.type_of(value) == types::F64 { self.f64const(NAN64) } else { self.f32const(NAN32) };
        let is_nan = self.b.ins().fcmp(FloatCC::Unordered, value, value);
        self.b.ins().select(is_nan, nan, value)
    }

    /// A single-precision source, flushed if the instruction says so.
    fn float_src(&mut self, operand: &Operand, ty: Type, ftz: bool) -> Result<Value> {
        let value = self.src(operand, ty)?;
        Ok(if ftz && ty == Type::F32 { self.flush(value) } else { value })
    }

    /// Flushes, clamps and writes a result.
    fn float_result(&mut self, operand: &Operand, ty: Type, mode: Mode, value: Value) -> Result<()> {
        let mut value = value;
        if mode.sat {
            value = self.saturate(value);
        }
        if mode.ftz && ty == Type::F32 {
            value = self.flush(value);
        }
        self.set(operand, ty, value)
    }

    /// `add`, `sub`, `mul`, `div`
    pub(crate) fn float(&mut self, op: FloatOp, ty: Type, mode: Mode, o: &'a [Operand]) -> Result<()> {
        if ty == Type::F32x2 {
            return self.two_singles(mode, o, |e, v| e.float_value(op, mode, v[0], v[1]));
        }
        if ty != Type::F32 && ty != Type::F64 {
            return self.half_arithmetic(op, ty, mode, o);
        }
        let a = self.float_src(self.operand(o, 1)?, ty, mode.ftz)?;
        let b = self.float_src(self.operand(o, 2)?, ty, mode.ftz)?;
        let value = self.float_value(op, mode, a, b)?;
        self.float_result(self.operand(o, 0)?, ty, mode, value)
    }

    /// The result of an operation on two numbers, rounded.
    fn float_value(&mut self, op: FloatOp, mode: Mode, a: Value, b: Value) -> Result<Value> {
        if mode.rounding == Rounding::Nearest {
            return Ok(match op {
                FloatOp::Add => self.b.ins().fadd(a, b),
                FloatOp::Sub => self.b.ins().fsub(a, b),
                FloatOp::Mul => self.b.ins().fmul(a, b),
                FloatOp::Div => {
                    let quotient = self.b.ins().fdiv(a, b);
                    self.canonical(quotient)
                }
            });
        }
        let op = match op {
            FloatOp::Add => Directed::Add,
            FloatOp::Sub => Directed::Sub,
            FloatOp::Mul => Directed::Mul,
            FloatOp::Div => Directed::Div,
        };
        self.directed(op, mode.rounding, &[a, b])
    }

    /// An operation on pairs of singles, each in a register of 64 bits.
    fn two_singles(
        &mut self,
        mode: Mode,
        o: &'a [Operand],
        operation: impl Fn(&mut Self, &[Value]) -> Result<Value>,
    ) -> Result<()> {
        let (destination, sources) = o.split_first().ok_or_else(|| self.refuse("An operand is missing"))?;
        let mut parts = [Vec::new(), Vec::new()];
        for source in sources {
            let value = self.src(source, Type::B64)?;
            for (half, part) in parts.iter_mut().enumerate() {
                let bits = if half == 0 { value } else { self.b.ins().ushr_imm_u(value, 32) };
                let bits = self.b.ins().ireduce(types::I32, bits);
                let single = self.recast(bits, types::F32);
                part.push(if mode.ftz { self.flush(single) } else { single });
            }
        }
        let mut joined = None;
        for part in &parts {
            let mut value = operation(self, part)?;
            if mode.ftz {
                value = self.flush(value);
            }
            let bits = self.as_int(value);
            let bits = self.b.ins().uextend(types::I64, bits);
            joined = Some(match joined {
                None => bits,
                Some(low) => {
                    let high = self.b.ins().ishl_imm_u(bits, 32);
                    self.b.ins().bor(low, high)
                }
            });
        }
        let value = joined.ok_or_else(|| self.refuse("An operand is missing"))?;
        self.set(destination, Type::B64, value)
    }

    /// `fma`, `mad`
    pub(crate) fn fma(&mut self, ty: Type, mode: Mode, relu: bool, o: &'a [Operand]) -> Result<()> {
        if ty == Type::F32x2 {
            return self.two_singles(mode, o, |e, v| e.fma_value(mode, [v[0], v[1], v[2]]));
        }
        if ty != Type::F32 && ty != Type::F64 {
            return self.half_fma(ty, mode, relu, o);
        }
        let a = self.float_src(self.operand(o, 1)?, ty, mode.ftz)?;
        let b = self.float_src(self.operand(o, 2)?, ty, mode.ftz)?;
        let c = self.float_src(self.operand(o, 3)?, ty, mode.ftz)?;
        let value = self.fma_value(mode, [a, b, c])?;
        self.float_result(self.operand(o, 0)?, ty, mode, value)
    }

    /// A product and a sum, rounded once.
    fn fma_value(&mut self, mode: Mode, [a, b, c]: [Value; 3]) -> Result<Value> {
        if mode.rounding == Rounding::Nearest {
            return Ok(self.b.ins().fma(a, b, c));
        }
        self.directed(Directed::Fma, mode.rounding, &[a, b, c])
    }

    /// An operation rounded toward zero, down or up.
    fn directed(&mut self, op: Directed, rounding: Rounding, args: &[Value]) -> Result<Value> {
        let single = self.type_of(args[0]) == types::F32;
        if !single || matches!(op, Directed::Div | Directed::Sqrt) {
            let ty = self.type_of(args[0]);
            let helper = helpers::rounding::directed(op, rounding, single);
            let value = self.call_helper(helpers::of_numbers(helper), Some(ty), args);
            return value.ok_or_else(|| self.refuse("A helper returned nothing"));
        }
        // In double precision the product of two singles is exact, and so is a sum together with its
        // rounding error.
        let wide: Vec<Value> = args.iter().map(|&v| self.b.ins().fpromote(types::F64, v)).collect();
        let (sum, error) = match op {
            Directed::Mul => (self.b.ins().fmul(wide[0], wide[1]), None),
            Directed::Add => self.exact_sum(wide[0], wide[1]),
            Directed::Sub => {
                let negated = self.b.ins().fneg(wide[1]);
                self.exact_sum(wide[0], negated)
            }
            _ => {
                let product = self.b.ins().fmul(wide[0], wide[1]);
                self.exact_sum(product, wide[2])
            }
        };
        let value = self.narrow_directed(sum, error, rounding);
        // A sum that is exactly zero has the sign of the direction, unless both parts have one sign.
        Ok(match (op, rounding) {
            (Directed::Mul, _) => value,
            (_, Rounding::Down) => {
                let (x, y) = match op {
                    Directed::Fma => (self.b.ins().fmul(wide[0], wide[1]), wide[2]),
                    Directed::Sub => {
                        let negated = self.b.ins().fneg(wide[1]);
                        (wide[0], negated)
                    }
                    _ => (wide[0], wide[1]),
                };
                let (x, y) = (self.recast(x, types::I64), self.recast(y, types::I64));
                let either = self.b.ins().bor(x, y);
                let sign = self.b.ins().ushr_imm_u(either, 63);
                let sign = self.b.ins().ireduce(types::I32, sign);
                let sign = self.b.ins().ishl_imm_u(sign, 31);
                let zero = self.f32const(0);
                let is_zero = self.b.ins().fcmp(FloatCC::Equal, value, zero);
                let exact = self.f64const(0);
                let is_exact = self.b.ins().fcmp(FloatCC::Equal, sum, exact);
                let both = self.b.ins().band(is_zero, is_exact);
                let signed_zero = self.recast(sign, types::F32);
                self.b.ins().select(both, signed_zero, value)
            }
            _ => value,
        })
    }

    /// The rounded sum of two doubles, and what rounding took away.
    fn exact_sum(&mut self, a: Value, b: Value) -> (Value, Option<Value>) {
        let sum = self.b.ins().fadd(a, b);
        let b_part = self.b.ins().fsub(sum, a);
        let a_part = self.b.ins().fsub(sum, b_part);
        let b_error = self.b.ins().fsub(b, b_part);
        let a_error = self.b.ins().fsub(a, a_part);
        let error = self.b.ins().fadd(a_error, b_error);
        (sum, Some(error))
    }

    /// Rounds the double `value + error` to single precision in a direction.
    pub(crate) fn narrow_directed(
        &mut self,
        value: Value,
        error: Option<Value>,
        rounding: Rounding,
    ) -> Value {
        let near = self.b.ins().fdemote(types::F32, value);
        if rounding == Rounding::Nearest {
            return near;
        }
        let back = self.b.ins().fpromote(types::F64, near);
        // Whether `near` lies above or below the exact value.
        let mut above = self.b.ins().fcmp(FloatCC::GreaterThan, back, value);
        let mut below = self.b.ins().fcmp(FloatCC::LessThan, back, value);
        if let Some(error) = error {
            let zero = self.f64const(0);
            let same = self.b.ins().fcmp(FloatCC::Equal, back, value);
            let minus = self.b.ins().fcmp(FloatCC::LessThan, error, zero);
            let plus = self.b.ins().fcmp(FloatCC::GreaterThan, error, zero);
            let above_by_error = self.b.ins().band(same, minus);
            let below_by_error = self.b.ins().band(same, plus);
            above = self.b.ins().bor(above, above_by_error);
            below = self.b.ins().bor(below, below_by_error);
        }
        // One step of the bits is one step of the number, away from or towards zero.
        let bits = self.recast(near, types::I32);
        let exact_bits = self.recast(value, types::I64);
        let negative = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, exact_bits, 0);
        let one = self.iconst(types::I32, 1);
        let minus_one = self.iconst(types::I32, -1);
        let zero = self.iconst(types::I32, 0);
        let step = match rounding {
            // Down: where above, decrease: bits grow if negative.
            Rounding::Down => {
                let step = self.b.ins().select(negative, one, minus_one);
                self.b.ins().select(above, step, zero)
            }
            Rounding::Up => {
                let step = self.b.ins().select(negative, minus_one, one);
                self.b.ins().select(below, step, zero)
            }
            _ => {
                let outward = self.b.ins().select(negative, below, above);
                self.b.ins().select(outward, minus_one, zero)
            }
        };
        let stepped = self.b.ins().iadd(bits, step);
        // From zero a step outward keeps the sign, which `near` has already.
        self.recast(stepped, types::F32)
    }

    /// `min`, `max`
    pub(crate) fn float_min_max(
        &mut self,
        max: bool,
        ty: Type,
        ftz: bool,
        nan: bool,
        xorsign: bool,
        o: &'a [Operand],
    ) -> Result<()> {
        if ty != Type::F32 && ty != Type::F64 {
            return self.half_min_max(max, ty, ftz, nan, xorsign, o);
        }
        let a = self.float_src(self.operand(o, 1)?, ty, ftz)?;
        let b = self.float_src(self.operand(o, 2)?, ty, ftz)?;
        let mut value = self.min_max_value(max, nan, xorsign, a, b);
        if let Some(third) = o.get(3) {
            let third = self.float_src(third, ty, ftz)?;
            value = self.min_max_value(max, nan, xorsign, value, third);
        }
        self.set(self.operand(o, 0)?, ty, value)
    }

    /// The smaller or larger of two numbers; a NaN loses, or wins if `nan`. -0 is less than +0.
    pub(crate) fn min_max_value(&mut self, max: bool, nan: bool, xorsign: bool, a: Value, b: Value) -> Value {
        let ty = self.type_of(a);
        let (a, b, sign) = if xorsign {
            let (ai, bi) = (self.as_int(a), self.as_int(b));
            let sign = self.b.ins().bxor(ai, bi);
            let top = i64::from(ty.bits() - 1);
            let sign = self.b.ins().ushr_imm_u(sign, top);
            let sign = self.b.ins().ishl_imm_u(sign, top);
            (self.b.ins().fabs(a), self.b.ins().fabs(b), Some(sign))
        } else {
            (a, b, None)
        };
        // Cranelift's minimum orders zeros, and yields NaN if any operand is one.
        let both = if max { self.b.ins().fmax(a, b) } else { self.b.ins().fmin(a, b) };
        let value = if nan {
            self.canonical(both)
        } else {
            let a_nan = self.b.ins().fcmp(FloatCC::Unordered, a, a);
            let b_nan = self.b.ins().fcmp(FloatCC::Unordered, b, b);
            let value = self.b.ins().select(b_nan, a, both);
            let value = self.b.ins().select(a_nan, b, value);
            // Both: canonical.
            let none = self.b.ins().band(a_nan, b_nan);
            let canonical = if ty == types::F64 { self.f64const(NAN64) } else { self.f32const(NAN32) };
            self.b.ins().select(none, canonical, value)
        };
        match sign {
            Some(sign) => {
                // A NaN result stays as it is.
                let bits = self.as_int(value);
                let signed = self.b.ins().bor(bits, sign);
                let signed = self.recast(signed, ty);
                let is_nan = self.b.ins().fcmp(FloatCC::Unordered, value, value);
                self.b.ins().select(is_nan, value, signed)
            }
            None => value,
        }
    }

    /// `neg`
    pub(crate) fn float_neg(&mut self, ty: Type, ftz: bool, o: &'a [Operand]) -> Result<()> {
        self.float_sign(ty, ftz, false, o)
    }

    /// `abs`
    pub(crate) fn float_abs(&mut self, ty: Type, ftz: bool, o: &'a [Operand]) -> Result<()> {
        self.float_sign(ty, ftz, true, o)
    }

    /// `neg`, `abs`
    fn float_sign(&mut self, ty: Type, ftz: bool, abs: bool, o: &'a [Operand]) -> Result<()> {
        if ty != Type::F32 && ty != Type::F64 {
            return self.half_sign(ty, ftz, abs, o);
        }
        let a = self.float_src(self.operand(o, 1)?, ty, ftz)?;
        let value = if abs { self.b.ins().fabs(a) } else { self.b.ins().fneg(a) };
        if ftz && ty == Type::F32 {
            self.flushed.insert(value);
        }
        self.set(self.operand(o, 0)?, ty, value)
    }

    /// `copysign`: the second operand's magnitude with the first one's sign.
    pub(crate) fn copysign(&mut self, ty: Type, o: &'a [Operand]) -> Result<()> {
        let a = self.src(self.operand(o, 1)?, ty)?;
        let b = self.src(self.operand(o, 2)?, ty)?;
        let value = self.b.ins().fcopysign(b, a);
        self.set(self.operand(o, 0)?, ty, value)
    }

    /// `testp`
    pub(crate) fn testp(&mut self, kind: TestKind, ty: Type, o: &'a [Operand]) -> Result<()> {
        let a = self.src(self.operand(o, 1)?, ty)?;
        let magnitude = self.b.ins().fabs(a);
        let bits = self.as_int(magnitude);
        let (infinity, least) =
            if ty == Type::F64 { (0x7ff << 52, 1i64 << 52) } else { (0x7f80_0000, 0x80_0000) };
        let value = match kind {
            TestKind::Finite => self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, bits, infinity),
            TestKind::Infinite => self.b.ins().icmp_imm_u(IntCC::Equal, bits, infinity),
            TestKind::Number => self.b.ins().icmp_imm_u(IntCC::UnsignedLessThanOrEqual, bits, infinity),
            TestKind::NotANumber => self.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThan, bits, infinity),
            // Zero counts as normal.
            TestKind::Normal => {
                let above = self.add_const(bits, -least);
                let normal = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, above, infinity - least);
                let zero = self.b.ins().icmp_imm_u(IntCC::Equal, bits, 0);
                self.b.ins().bor(normal, zero)
            }
            TestKind::Subnormal => {
                let above = self.add_const(bits, -1);
                self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, above, least - 1)
            }
        };
        self.set(self.operand(o, 0)?, Type::Pred, value)
    }

    /// `rcp`, `sqrt`, `rsqrt`, `sin`, `cos`, `lg2`, `ex2`, `tanh`
    pub(crate) fn float_unary(
        &mut self,
        op: FloatUnary,
        ty: Type,
        mode: Mode,
        approx: bool,
        o: &'a [Operand],
    ) -> Result<()> {
        if ty != Type::F32 && ty != Type::F64 {
            return self.half_unary(op, ty, o);
        }
        let a = self.float_src(self.operand(o, 1)?, ty, mode.ftz)?;
        let value = self.float_unary_value(op, ty, mode, approx, a)?;
        self.float_result(self.operand(o, 0)?, ty, mode, value)
    }

    pub(super) fn float_unary_value(
        &mut self,
        op: FloatUnary,
        ty: Type,
        mode: Mode,
        approx: bool,
        a: Value,
    ) -> Result<Value> {
        let class = self.type_of(a);
        let double = ty == Type::F64;
        let one = if double { self.f64const(1f64.to_bits()) } else { self.f32const(1f32.to_bits()) };
        let value = match op {
            FloatUnary::Rcp if mode.rounding != Rounding::Nearest => {
                self.directed(Directed::Div, mode.rounding, &[one, a])?
            }
            FloatUnary::Sqrt if mode.rounding != Rounding::Nearest => {
                self.directed(Directed::Sqrt, mode.rounding, &[a])?
            }
            FloatUnary::Rcp if double && approx => {
                let a = self.without_lower_word(a);
                let a = self.flush_double(a);
                let quotient = self.b.ins().fdiv(one, a);
                let value = self.upper_word(quotient);
                return Ok(self.flush_double(value));
            }
            FloatUnary::Rsqrt if double => {
                let a = if mode.ftz {
                    let a = self.without_lower_word(a);
                    self.flush_double(a)
                } else {
                    a
                };
                let root = self.b.ins().sqrt(a);
                let quotient = self.b.ins().fdiv(one, root);
                return Ok(if mode.ftz { self.upper_word(quotient) } else { self.canonical(quotient) });
            }
            FloatUnary::Rcp => self.b.ins().fdiv(one, a),
            FloatUnary::Sqrt => self.b.ins().sqrt(a),
            FloatUnary::Rsqrt => {
                let root = self.b.ins().sqrt(a);
                self.b.ins().fdiv(one, root)
            }
            FloatUnary::Ex2 => return Ok(self.exp2(a)),
            FloatUnary::Sin | FloatUnary::Cos | FloatUnary::Lg2 | FloatUnary::Tanh => {
                let helper = match op {
                    FloatUnary::Sin => helpers::sin as extern "C" fn(f32) -> f32,
                    FloatUnary::Cos => helpers::cos,
                    FloatUnary::Lg2 => helpers::log2,
                    _ => helpers::tanh,
                };
                let value = self.call_helper(helpers::of_numbers(helper as usize), Some(class), &[a]);
                value.ok_or_else(|| self.refuse("A helper returned nothing"))?
            }
        };
        Ok(self.canonical(value))
    }

    /// Replaces a denormal double by a zero of its sign.
    fn flush_double(&mut self, value: Value) -> Value {
        let bits = self.as_int(value);
        let exponent = self.b.ins().band_imm_u(bits, 0x7ff0_0000_0000_0000);
        let sign = self.b.ins().band_imm_u(bits, i64::MIN);
        let tiny = self.b.ins().icmp_imm_u(IntCC::Equal, exponent, 0);
        let bits = self.b.ins().select(tiny, sign, bits);
        self.recast(bits, types::F64)
    }

    /// The number with the lower half of its bits cleared; any NaN as the devices' own.
    fn upper_word(&mut self, value: Value) -> Value {
        let value = self.canonical(value);
        self.without_lower_word(value)
    }

    fn without_lower_word(&mut self, value: Value) -> Value {
        let bits = self.as_int(value);
        let bits = self.b.ins().band_imm_u(bits, 0xffff_ffff_0000_0000u64 as i64);
        self.recast(bits, types::F64)
    }

    /// Two to the power of a single, within an ulp, for all arguments.
    pub(super) fn exp2(&mut self, x: Value) -> Value {
        let x = self.b.ins().fpromote(types::F64, x);
        // Beyond these the result is 0 or infinite anyway; NaN passes.
        let low = self.f64const((-200f64).to_bits());
        let high = self.f64const(200f64.to_bits());
        let too_low = self.b.ins().fcmp(FloatCC::LessThan, x, low);
        let clamped = self.b.ins().select(too_low, low, x);
        let too_high = self.b.ins().fcmp(FloatCC::GreaterThan, clamped, high);
        let clamped = self.b.ins().select(too_high, high, clamped);
        // Adding 1.5 * 2^52 rounds to an integer, which then lies in the lowest bits.
        let magic = self.f64const(6_755_399_441_055_744f64.to_bits());
        let shifted = self.b.ins().fadd(clamped, magic);
        let integer = self.as_int(shifted);
        let whole = self.b.ins().fsub(shifted, magic);
        let part = self.b.ins().fsub(clamped, whole);
        // The Taylor series of 2^part for |part| <= 1/2: ln(2)^n / n!.
        let mut coefficient = 1f64;
        let coefficients: Vec<f64> = (0..10)
            .map(|n| {
                if n > 0 {
                    coefficient *= std::f64::consts::LN_2 / f64::from(n);
                }
                coefficient
            })
            .collect();
        let mut value = self.f64const(coefficients[9].to_bits());
        for c in coefficients[..9].iter().rev() {
            let c = self.f64const(c.to_bits());
            value = self.b.ins().fma(value, part, c);
        }
        let exponent = self.b.ins().ishl_imm_u(integer, 52);
        let bits = self.as_int(value);
        let scaled = self.b.ins().iadd(bits, exponent);
        let scaled = self.recast(scaled, types::F64);
        let result = self.b.ins().fdemote(types::F32, scaled);
        let nan = self.f32const(NAN32);
        let is_nan = self.b.ins().fcmp(FloatCC::Unordered, x, x);
        self.b.ins().select(is_nan, nan, result)
    }
}
