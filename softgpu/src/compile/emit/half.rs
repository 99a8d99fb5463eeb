//! Arithmetic on `f16` and `bf16`, alone or in pairs.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::{Emitter, Result};
use crate::compile::helpers;
use crate::compile::op::{FloatOp, FloatUnary, Mode};
use crate::compile::opcode::Rounding;
use rgpu_image::ptx::ast::{Operand, Type};

/// Whether two numbers share a register.
pub(super) fn is_pair(ty: Type) -> bool {
    matches!(ty, Type::F16x2 | Type::Bf16x2)
}

/// The type of one of the pair.
pub(super) fn lane(ty: Type) -> Type {
    match ty {
        Type::F16x2 => Type::F16,
        Type::Bf16x2 => Type::Bf16,
        ty => ty,
    }
}

impl<'a> Emitter<'a, '_> {
    /// Widens a half to single precision, exactly.
    pub(crate) fn half_to_single(&mut self, ty: Type, value: Value) -> Value {
        let bits = self.b.ins().uextend(types::I32, value);
        if lane(ty) == Type::Bf16 {
            let bits = self.b.ins().ishl_imm_u(bits, 16);
            return self.recast(bits, types::F32);
        }
        // Exponent and mantissa moved into place are the number divided by 2^112, denormals included.
        let magnitude = self.b.ins().band_imm_u(bits, 0x7fff);
        let shifted = self.b.ins().ishl_imm_u(magnitude, 13);
        let small = self.recast(shifted, types::F32);
        let scale = self.f32const(((112 + 127) as u32) << 23);
        let number = self.b.ins().fmul(small, scale);
        let number = self.recast(number, types::I32);
        let special = self.b.ins().bor_imm_u(shifted, 0x7f80_0000);
        let is_special = self.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, magnitude, 0x7c00);
        let number = self.b.ins().select(is_special, special, number);
        let sign = self.b.ins().band_imm_u(bits, 0x8000);
        let sign = self.b.ins().ishl_imm_u(sign, 16);
        let bits = self.b.ins().bor(number, sign);
        self.recast(bits, types::F32)
    }

    /// Rounds a single to a half.
    pub(crate) fn single_to_half(&mut self, ty: Type, value: Value, rounding: Rounding) -> Value {
        if lane(ty) == Type::Bf16 {
            return self.single_to_bf16(value, rounding);
        }
        if rounding != Rounding::Nearest {
            let helper = helpers::half::f16_from_f32 as extern "C" fn(f32, u32) -> u32;
            let mode = self.iconst(types::I32, helpers::half::mode(rounding));
            return self.half_helper(helper as usize, &[value, mode]);
        }
        let bits = self.recast(value, types::I32);
        let sign = self.b.ins().ushr_imm_u(bits, 16);
        let sign = self.b.ins().band_imm_u(sign, 0x8000);
        let magnitude = self.b.ins().band_imm_u(bits, 0x7fff_ffff);
        // Normal results: rebias the exponent, and round to nearest even by adding.
        let odd = self.b.ins().ushr_imm_u(magnitude, 13);
        let odd = self.b.ins().band_imm_u(odd, 1);
        let rounded = self.add_const(magnitude, 0xfff - (112 << 23));
        let rounded = self.b.ins().iadd(rounded, odd);
        let normal = self.b.ins().ushr_imm_u(rounded, 13);
        // Results that are denormal: let the addition of 0.5 shift and round.
        let half = self.f32const(0x3f00_0000);
        let number = self.recast(magnitude, types::F32);
        let sum = self.b.ins().fadd(number, half);
        let sum = self.recast(sum, types::I32);
        let denormal = self.add_const(sum, -0x3f00_0000);
        let is_small = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, magnitude, 113 << 23);
        let result = self.b.ins().select(is_small, denormal, normal);
        // Overflow, infinity and NaN.
        let infinity = self.iconst(types::I32, 0x7c00);
        let is_large = self.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, magnitude, 0x4780_0000);
        let result = self.b.ins().select(is_large, infinity, result);
        let result = self.b.ins().bor(result, sign);
        let nan = self.iconst(types::I32, 0x7fff);
        let is_nan = self.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThan, magnitude, 0x7f80_0000);
        let result = self.b.ins().select(is_nan, nan, result);
        self.b.ins().ireduce(types::I16, result)
    }

    fn single_to_bf16(&mut self, value: Value, rounding: Rounding) -> Value {
        let bits = self.recast(value, types::I32);
        // What is cut off carries into the part that is kept, or does not.
        let rounded = match rounding {
            Rounding::Down | Rounding::Up => {
                let negative = self.b.ins().sshr_imm_u(bits, 31);
                let away = if rounding == Rounding::Down { negative } else { self.b.ins().bnot(negative) };
                let most = self.b.ins().band_imm_u(away, 0xffff);
                self.b.ins().iadd(bits, most)
            }
            Rounding::Nearest => {
                let odd = self.b.ins().ushr_imm_u(bits, 16);
                let odd = self.b.ins().band_imm_u(odd, 1);
                let sum = self.b.ins().iadd(bits, odd);
                self.add_const(sum, 0x7fff)
            }
            // The two others do not come here: decoding lets nobody round to these formats so.
            Rounding::Zero | Rounding::NearestAway | Rounding::Stochastic => bits,
        };
        let result = self.b.ins().ushr_imm_u(rounded, 16);
        let nan = self.iconst(types::I32, 0x7fff);
        let is_nan = self.b.ins().fcmp(FloatCC::Unordered, value, value);
        let result = self.b.ins().select(is_nan, nan, result);
        self.b.ins().ireduce(types::I16, result)
    }

    /// Calls a helper whose result is a half in the low bits of a `u32`.
    fn half_helper(&mut self, helper: usize, args: &[Value]) -> Value {
        match self.call_helper(helpers::of_numbers(helper), Some(types::I32), args) {
            Some(value) => self.b.ins().ireduce(types::I16, value),
            None => self.iconst(types::I16, 0),
        }
    }

    /// Applies a function of halves to each lane, and writes the result.
    fn by_lanes(
        &mut self,
        ty: Type,
        o: &'a [Operand],
        sources: usize,
        f: &mut dyn FnMut(&mut Self, &[Value]) -> Result<Value>,
    ) -> Result<()> {
        let mut values = Vec::new();
        for index in 1..=sources {
            values.push(self.src(self.operand(o, index)?, ty)?);
        }
        let result = if is_pair(ty) {
            let (low, high): (Vec<_>, Vec<_>) = values.iter().map(|&value| self.halves(value)).unzip();
            let low = f(self, &low)?;
            let high = f(self, &high)?;
            self.join_halves(low, high)
        } else {
            f(self, &values)?
        };
        self.set(self.operand(o, 0)?, ty, result)
    }

    /// Replaces a denormal `f16` by a zero of its sign.
    fn flush_half(&mut self, ty: Type, ftz: bool, value: Value) -> Value {
        if !ftz || lane(ty) != Type::F16 {
            return value;
        }
        let exponent = self.b.ins().band_imm_u(value, 0x7c00);
        let sign = self.b.ins().band_imm_u(value, 0x8000);
        let tiny = self.b.ins().icmp_imm_u(IntCC::Equal, exponent, 0);
        self.b.ins().select(tiny, sign, value)
    }

    /// `add`, `sub`, `mul`. A single's precision is more than twice a half's, so that rounding twice is
    /// as good as rounding once.
    pub(crate) fn half_arithmetic(
        &mut self,
        op: FloatOp,
        ty: Type,
        mode: Mode,
        o: &'a [Operand],
    ) -> Result<()> {
        self.by_lanes(ty, o, 2, &mut |e, values| {
            let (a, b) = (e.flush_half(ty, mode.ftz, values[0]), e.flush_half(ty, mode.ftz, values[1]));
            let (a, b) = (e.half_to_single(ty, a), e.half_to_single(ty, b));
            let value = match op {
                FloatOp::Add => e.b.ins().fadd(a, b),
                FloatOp::Sub => e.b.ins().fsub(a, b),
                FloatOp::Mul => e.b.ins().fmul(a, b),
                FloatOp::Div => e.b.ins().fdiv(a, b),
            };
            let value = if mode.sat { e.saturate(value) } else { value };
            let value = e.single_to_half(ty, value, Rounding::Nearest);
            Ok(e.flush_half(ty, mode.ftz, value))
        })
    }

    /// The sum of two numbers and what is missing of it, exactly, unless it overflows (Knuth's two-sum).
    fn two_sum(&mut self, a: Value, b: Value) -> (Value, Value) {
        let sum = self.b.ins().fadd(a, b);
        let of_b = self.b.ins().fsub(sum, a);
        let of_a = self.b.ins().fsub(sum, of_b);
        let (rest_a, rest_b) = (self.b.ins().fsub(a, of_a), self.b.ins().fsub(b, of_b));
        (sum, self.b.ins().fadd(rest_a, rest_b))
    }

    /// Rounds to odd: of the two singles next to a number, of which one is the nearest and something is missing, the one whose
    /// mantissa is odd. To round that to a half is as good as to round the number itself.
    fn round_to_odd(&mut self, nearest: Value, missing: Value) -> Value {
        let single = self.b.func.dfg.value_type(missing) == types::F32;
        let zero = if single { self.f32const(0) } else { self.f64const(0) };
        let (more, less) = (
            self.b.ins().fcmp(FloatCC::GreaterThan, missing, zero),
            self.b.ins().fcmp(FloatCC::LessThan, missing, zero),
        );
        let bits = self.recast(nearest, types::I32);
        let negative = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, bits, 0);
        let is_inexact = self.b.ins().bor(more, less);
        // Away from zero, the bits of a number count up.
        let inwards = self.b.ins().bxor(less, negative);
        let (one, minus_one) = (self.iconst(types::I32, 1), self.iconst(types::I32, -1));
        let step = self.b.ins().select(inwards, minus_one, one);
        let moved = self.b.ins().iadd(bits, step);
        let odd = self.b.ins().band_imm_u(bits, 1);
        let is_odd = self.b.ins().icmp_imm_u(IntCC::NotEqual, odd, 0);
        let kept = self.b.ins().select(is_odd, bits, moved);
        let bits = self.b.ins().select(is_inexact, kept, bits);
        self.recast(bits, types::F32)
    }

    /// The sum of a product and a number, of halves as singles, rounded once.
    fn half_fma_value(&mut self, ty: Type, [a, b, c]: [Value; 3]) -> Value {
        let odd = if lane(ty) == Type::F16 {
            // A single has the product of two halves.
            let product = self.b.ins().fmul(a, b);
            let (sum, missing) = self.two_sum(product, c);
            self.round_to_odd(sum, missing)
        } else {
            // A double has it: the exponents of this format are those of singles.
            let [a, b, c] = [a, b, c].map(|value| self.b.ins().fpromote(types::F64, value));
            let product = self.b.ins().fmul(a, b);
            let (sum, missing) = self.two_sum(product, c);
            let nearest = self.b.ins().fdemote(types::F32, sum);
            let wide = self.b.ins().fpromote(types::F64, nearest);
            let rest = self.b.ins().fsub(sum, wide);
            let missing = self.b.ins().fadd(rest, missing);
            self.round_to_odd(nearest, missing)
        };
        self.single_to_half(ty, odd, Rounding::Nearest)
    }

    /// `fma`
    pub(crate) fn half_fma(&mut self, ty: Type, mode: Mode, relu: bool, o: &'a [Operand]) -> Result<()> {
        self.by_lanes(ty, o, 3, &mut |e, values| {
            let [a, b, c] = [0, 1, 2].map(|n| e.flush_half(ty, mode.ftz, values[n]));
            let wide = [a, b, c].map(|value| e.half_to_single(ty, value));
            let value = e.half_fma_value(ty, wide);
            let value = e.flush_half(ty, mode.ftz, value);
            if !mode.sat && !relu {
                return Ok(value);
            }
            let single = e.half_to_single(ty, value);
            let single = if mode.sat {
                e.saturate(single)
            } else {
                let zero = e.f32const(0);
                let negative = e.b.ins().fcmp(FloatCC::LessThan, single, zero);
                e.b.ins().select(negative, zero, single)
            };
            let value = e.single_to_half(ty, single, Rounding::Nearest);
            if relu {
                // -0 is clamped as well.
                let minus_zero = e.b.ins().icmp_imm_u(IntCC::Equal, value, 0x8000);
                let zero = e.iconst(types::I16, 0);
                return Ok(e.b.ins().select(minus_zero, zero, value));
            }
            Ok(value)
        })
    }

    /// `min`, `max`
    pub(crate) fn half_min_max(
        &mut self,
        max: bool,
        ty: Type,
        ftz: bool,
        nan: bool,
        xorsign: bool,
        o: &'a [Operand],
    ) -> Result<()> {
        self.by_lanes(ty, o, 2, &mut |e, values| {
            let (a, b) = (e.flush_half(ty, ftz, values[0]), e.flush_half(ty, ftz, values[1]));
            let (a, b) = (e.half_to_single(ty, a), e.half_to_single(ty, b));
            let value = e.min_max_value(max, nan, xorsign, a, b);
            Ok(e.single_to_half(ty, value, Rounding::Nearest))
        })
    }

    /// `neg`, `abs`
    pub(crate) fn half_sign(&mut self, ty: Type, ftz: bool, abs: bool, o: &'a [Operand]) -> Result<()> {
        self.by_lanes(ty, o, 1, &mut |e, values| {
            let value = e.flush_half(ty, ftz, values[0]);
            Ok(if abs { e.b.ins().band_imm_u(value, 0x7fff) } else { e.b.ins().bxor_imm_u(value, 0x8000) })
        })
    }

    /// `ex2`, `tanh`
    pub(crate) fn half_unary(&mut self, op: FloatUnary, ty: Type, o: &'a [Operand]) -> Result<()> {
        self.by_lanes(ty, o, 1, &mut |e, values| {
            let value = e.half_to_single(ty, values[0]);
            let mode = Mode { rounding: Rounding::Nearest, ftz: false, sat: false };
            let value = e.float_unary_value(op, Type::F32, mode, true, value)?;
            Ok(e.single_to_half(ty, value, Rounding::Nearest))
        })
    }
}
