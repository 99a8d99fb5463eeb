//! `cvt` in all its forms.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::{Emitter, Result, class, int_class};
use crate::compile::helpers;
use crate::compile::op::{Convert, EighthFormat};
use crate::compile::opcode::{IntRounding, Rounding};
use rgpu_image::ptx::ast::{Operand, Type};

fn is_half(ty: Type) -> bool {
    matches!(ty, Type::F16 | Type::Bf16)
}

impl<'a> Emitter<'a, '_> {
    /// `cvt`
    pub(crate) fn cvt(&mut self, c: Convert, o: &'a [Operand]) -> Result<()> {
        let source = self.operand(o, 1)?;
        let a = self.src(source, c.src)?;
        let value = match (c.src.is_float(), c.dst.is_float()) {
            (false, false) => self.int_to_int(c, a),
            (false, true) => self.int_to_float(c, a)?,
            (true, false) => self.float_to_int(c, a)?,
            (true, true) => self.float_to_float(c, a)?,
        };
        self.set(self.operand(o, 0)?, c.dst, value)
    }

    fn int_to_int(&mut self, c: Convert, a: Value) -> Value {
        let to = class(c.dst);
        if !c.sat {
            return self.resize(a, to, c.src.is_signed());
        }
        let (bits, signed) = (c.dst.bits(), c.dst.is_signed());
        // In 64 bits everything fits but u64, which is clamped as what it is.
        if c.src == Type::U64 {
            let top = if signed { i64::MAX as u64 >> (64 - bits) } else { u64::MAX >> (64 - bits) };
            let top = self.iconst(types::I64, top as i64);
            let value = self.b.ins().umin(a, top);
            return self.resize(value, to, false);
        }
        let wide = self.resize(a, types::I64, c.src.is_signed());
        let value = match (bits, signed) {
            (64, true) => wide,
            (64, false) => {
                let zero = self.iconst(types::I64, 0);
                self.b.ins().smax(wide, zero)
            }
            (bits, true) => self.clamp_signed(wide, bits),
            (bits, false) => self.clamp_unsigned(wide, bits),
        };
        self.resize(value, to, false)
    }

    fn int_to_float(&mut self, c: Convert, a: Value) -> Result<Value> {
        let signed = c.src.is_signed();
        let rounding = c.rounding.unwrap_or(Rounding::Nearest);
        let narrow = c.src.bits() <= 32;
        let wide = if c.src.bits() < 32 {
            self.resize(a, types::I32, signed)
        } else if c.src == Type::U32 {
            self.resize(a, types::I64, false)
        } else {
            a
        };
        // Once extended, only u64 needs an unsigned conversion.
        let convert = |e: &mut Self, to| {
            if c.src == Type::U64 {
                e.b.ins().fcvt_from_uint(to, wide)
            } else {
                e.b.ins().fcvt_from_sint(to, wide)
            }
        };
        let value = match c.dst {
            Type::F64 if rounding == Rounding::Nearest || narrow => convert(self, types::F64),
            Type::F32 if rounding == Rounding::Nearest => convert(self, types::F32),
            Type::F32 if narrow => {
                let double = convert(self, types::F64);
                self.narrow_directed(double, None, rounding)
            }
            Type::F32 | Type::F64 => {
                let helper = helpers::rounding::from_int(signed, rounding, c.dst == Type::F32);
                let value = self.call_helper(helpers::of_numbers(helper), Some(class(c.dst)), &[wide]);
                value.ok_or_else(|| self.refuse("A helper returned nothing"))?
            }
            _ => {
                // Halves: through the helper, which rounds once.
                let wide = self.resize(wide, types::I64, signed);
                let is_signed = self.iconst(types::I32, i64::from(signed));
                let mode = self.iconst(types::I32, helpers::half::mode(rounding));
                let helper = if c.dst == Type::F16 {
                    helpers::half::f16_from_int as extern "C" fn(i64, u32, u32) -> u32
                } else {
                    helpers::half::bf16_from_int
                };
                let value = self.call_helper(
                    helpers::of_numbers(helper as usize),
                    Some(types::I32),
                    &[wide, is_signed, mode],
                );
                let value = value.ok_or_else(|| self.refuse("A helper returned nothing"))?;
                self.b.ins().ireduce(types::I16, value)
            }
        };
        if !c.sat {
            return Ok(value);
        }
        if is_half(c.dst) {
            let single = self.half_to_single(c.dst, value);
            let single = self.saturate(single);
            return Ok(self.single_to_half(c.dst, single, Rounding::Nearest));
        }
        Ok(self.saturate(value))
    }

    fn round_to_integer(&mut self, rounding: IntRounding, value: Value) -> Value {
        match rounding {
            IntRounding::Nearest => self.b.ins().nearest(value),
            IntRounding::Zero => self.b.ins().trunc(value),
            IntRounding::Down => self.b.ins().floor(value),
            IntRounding::Up => self.b.ins().ceil(value),
        }
    }

    fn float_to_int(&mut self, c: Convert, a: Value) -> Result<Value> {
        let a = if is_half(c.src) { self.half_to_single(c.src, a) } else { a };
        let a = if c.ftz && c.src == Type::F32 { self.flush(a) } else { a };
        let rounding = c.int_rounding.unwrap_or(IntRounding::Zero);
        let rounded = if rounding == IntRounding::Zero { a } else { self.round_to_integer(rounding, a) };
        let (bits, signed) = (c.dst.bits(), c.dst.is_signed());
        // Converting saturates whether or not `.sat` is given.
        let value = if bits >= 32 {
            let to = int_class(bits);
            if signed {
                self.b.ins().fcvt_to_sint_sat(to, rounded)
            } else {
                self.b.ins().fcvt_to_uint_sat(to, rounded)
            }
        } else {
            let wide = self.b.ins().fcvt_to_sint_sat(types::I32, rounded);
            let wide = self.b.ins().sextend(types::I64, wide);
            let value = if signed { self.clamp_signed(wide, bits) } else { self.clamp_unsigned(wide, bits) };
            self.b.ins().ireduce(int_class(bits), value)
        };
        // NaN is 0 where both types have at most 32 bits, and else the top bit alone.
        if c.src != Type::F64 && bits < 64 {
            return Ok(value);
        }
        let is_nan = self.b.ins().fcmp(FloatCC::Unordered, a, a);
        let top = self.iconst(int_class(bits), 1i64 << (bits - 1));
        Ok(self.b.ins().select(is_nan, top, value))
    }

    fn float_to_float(&mut self, c: Convert, a: Value) -> Result<Value> {
        if c.dst == Type::Tf32 {
            return Ok(self.tf32_of(c, a));
        }
        if c.dst == c.src {
            return Ok(self.same_float(c, a));
        }
        let rounding = c.rounding.unwrap_or(Rounding::Nearest);
        // To single precision, or through it.
        let a = if is_half(c.src) { self.half_to_single(c.src, a) } else { a };
        // What becomes a half is not flushed: with directed rounding it may become the least of all.
        let a = if c.ftz && c.src == Type::F32 && !is_half(c.dst) { self.flush(a) } else { a };
        let value = match (c.dst, self.type_of(a) == types::F64) {
            (Type::F64, true) => a,
            (Type::F64, false) => self.b.ins().fpromote(types::F64, a),
            (Type::F32, true) => {
                let single = self.narrow_directed(a, None, rounding);
                let single = self.nan_or(single);
                if c.ftz { self.flush(single) } else { single }
            }
            (Type::F32, false) => a,
            (_, true) => {
                let mode = self.iconst(types::I32, helpers::half::mode(rounding));
                let helper = match c.dst {
                    Type::Bf16 => helpers::half::bf16_from_f64 as extern "C" fn(f64, u32) -> u32,
                    _ => helpers::half::f16_from_f64,
                };
                let value =
                    self.call_helper(helpers::of_numbers(helper as usize), Some(types::I32), &[a, mode]);
                let value = value.ok_or_else(|| self.refuse("A helper returned nothing"))?;
                let value = self.b.ins().ireduce(types::I16, value);
                return Ok(if c.sat { self.saturate_half(c.dst, value) } else { value });
            }
            (_, false) => {
                let a = if c.sat { self.saturate(a) } else { a };
                return Ok(self.narrow_half(c.dst, a, rounding, c.relu, c.satfinite));
            }
        };
        Ok(if c.sat { self.saturate(value) } else { value })
    }

    fn nan_or(&mut self, value: Value) -> Value {
        self.canonical(value)
    }

    fn saturate_half(&mut self, ty: Type, value: Value) -> Value {
        let single = self.half_to_single(ty, value);
        let single = self.saturate(single);
        self.single_to_half(ty, single, Rounding::Nearest)
    }

    /// Rounds a single to a half; with `relu` negative results become 0, with `satfinite` infinite ones
    /// the largest number.
    fn narrow_half(&mut self, ty: Type, a: Value, rounding: Rounding, relu: bool, satfinite: bool) -> Value {
        let mut value = self.single_to_half(ty, a, rounding);
        if satfinite {
            let infinity = if ty == Type::F16 { 0x7c00 } else { 0x7f80 };
            let magnitude = self.b.ins().band_imm_u(value, 0x7fff);
            let is_infinite = self.b.ins().icmp_imm_u(IntCC::Equal, magnitude, infinity);
            let sign = self.b.ins().band_imm_u(value, 0x8000);
            let largest = self.b.ins().bor_imm_u(sign, infinity - 1);
            value = self.b.ins().select(is_infinite, largest, value);
        }
        if relu {
            let zero = self.iconst(types::I16, 0);
            let negative = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, value, 0);
            value = self.b.ins().select(negative, zero, value);
        }
        value
    }

    /// The same format: rounding to an integer, clamping, flushing.
    fn same_float(&mut self, c: Convert, a: Value) -> Value {
        let half = is_half(c.src);
        let mut value = if half { self.half_to_single(c.src, a) } else { a };
        let ftz = c.ftz && c.src == Type::F32;
        if ftz {
            value = self.flush(value);
        }
        if let Some(rounding) = c.int_rounding {
            value = self.round_to_integer(rounding, value);
        }
        if c.sat {
            value = self.saturate(value);
        }
        if half {
            return if c.int_rounding.is_none() && !c.sat {
                a
            } else {
                self.single_to_half(c.src, value, Rounding::Nearest)
            };
        }
        value
    }

    /// Single precision with 10 bits of mantissa.
    fn tf32_of(&mut self, c: Convert, a: Value) -> Value {
        let bits = self.recast(a, types::I32);
        let rounded = match c.rounding {
            Some(Rounding::Zero) => bits,
            Some(Rounding::Nearest) => {
                let odd = self.b.ins().ushr_imm_u(bits, 13);
                let odd = self.b.ins().band_imm_u(odd, 1);
                let sum = self.b.ins().iadd(bits, odd);
                self.add_const(sum, 0xfff)
            }
            _ => self.add_const(bits, 0x1000),
        };
        let mut value = self.b.ins().band_imm_u(rounded, 0xffff_e000);
        if c.satfinite {
            let magnitude = self.b.ins().band_imm_u(value, 0x7fff_ffff);
            let is_infinite = self.b.ins().icmp_imm_u(IntCC::Equal, magnitude, 0x7f80_0000);
            let sign = self.b.ins().band_imm_u(value, 0x8000_0000);
            let largest = self.b.ins().bor_imm_u(sign, 0x7f7f_e000);
            value = self.b.ins().select(is_infinite, largest, value);
        }
        // Infinity and NaN are not to be rounded.
        let magnitude = self.b.ins().band_imm_u(bits, 0x7fff_ffff);
        let is_nan = self.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThan, magnitude, 0x7f80_0000);
        let nan = self.iconst(types::I32, 0x7fff_ffff);
        value = self.b.ins().select(is_nan, nan, value);
        if c.relu {
            let zero = self.iconst(types::I32, 0);
            let negative = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, value, 0);
            value = self.b.ins().select(negative, zero, value);
        }
        value
    }

    /// `cvt.f16x2.f32 d, a, b`: `a` becomes the upper half.
    pub(crate) fn cvt_pair(
        &mut self,
        to: Type,
        rounding: Rounding,
        relu: bool,
        satfinite: bool,
        o: &'a [Operand],
    ) -> Result<()> {
        let lane = super::half::lane(to);
        let a = self.src(self.operand(o, 1)?, Type::F32)?;
        let b = self.src(self.operand(o, 2)?, Type::F32)?;
        let high = self.narrow_half(lane, a, rounding, relu, satfinite);
        let low = self.narrow_half(lane, b, rounding, relu, satfinite);
        let value = self.join_halves(low, high);
        self.set(self.operand(o, 0)?, Type::B32, value)
    }

    /// `cvt` to two numbers of 8 bits. Of two sources the first becomes the upper one.
    pub(crate) fn cvt_to_eighths(
        &mut self,
        format: EighthFormat,
        halves: bool,
        relu: bool,
        o: &'a [Operand],
    ) -> Result<()> {
        let ty = if halves { Type::B32 } else { Type::F32 };
        let mut arguments = vec![self.src(self.operand(o, 1)?, ty)?];
        if !halves {
            arguments.push(self.src(self.operand(o, 2)?, ty)?);
        }
        let helper = if halves {
            helpers::eighth::from_halves as extern "C" fn(u32, u32, u32) -> u32 as usize
        } else {
            helpers::eighth::from_singles as extern "C" fn(f32, f32, u32, u32) -> u32 as usize
        };
        let value = self.eighths(helper, arguments, format, relu)?;
        let value = self.b.ins().ireduce(types::I16, value);
        self.set(self.operand(o, 0)?, Type::B16, value)
    }

    /// `cvt` of two numbers of 8 bits to halves.
    pub(crate) fn cvt_from_eighths(
        &mut self,
        format: EighthFormat,
        relu: bool,
        o: &'a [Operand],
    ) -> Result<()> {
        let pair = self.src(self.operand(o, 1)?, Type::B16)?;
        let pair = self.b.ins().uextend(types::I32, pair);
        let helper = helpers::eighth::to_halves as extern "C" fn(u32, u32, u32) -> u32;
        let value = self.eighths(helper as usize, vec![pair], format, relu)?;
        self.set(self.operand(o, 0)?, Type::B32, value)
    }

    fn eighths(
        &mut self,
        helper: usize,
        mut arguments: Vec<Value>,
        format: EighthFormat,
        relu: bool,
    ) -> Result<Value> {
        for fact in [helpers::eighth::number(format), i64::from(relu)] {
            arguments.push(self.iconst(types::I32, fact));
        }
        let value = self.call_helper(helpers::of_numbers(helper), Some(types::I32), &arguments);
        value.ok_or_else(|| self.refuse("A helper returned nothing"))
    }

    /// `cvt.pack`: two integers narrowed with saturation, and above them, where there is room, the low bits of a third one.
    pub(crate) fn cvt_pack(&mut self, to: Type, o: &'a [Operand]) -> Result<()> {
        let a = self.src(self.operand(o, 1)?, Type::S32)?;
        let b = self.src(self.operand(o, 2)?, Type::S32)?;
        let bits = to.bits();
        let mut narrow = |value: Value| {
            let wide = self.b.ins().sextend(types::I64, value);
            let value =
                if to.is_signed() { self.clamp_signed(wide, bits) } else { self.clamp_unsigned(wide, bits) };
            let value = self.b.ins().ireduce(types::I32, value);
            self.b.ins().band_imm_u(value, (1i64 << bits) - 1)
        };
        let (a, b) = (narrow(a), narrow(b));
        let a = self.b.ins().ishl_imm_u(a, i64::from(bits));
        let mut value = self.b.ins().bor(a, b);
        if bits < 16 {
            let c = self.src(self.operand(o, 3)?, Type::B32)?;
            let c = self.b.ins().ishl_imm_u(c, i64::from(2 * bits));
            value = self.b.ins().bor(value, c);
        }
        self.set(self.operand(o, 0)?, Type::B32, value)
    }
}
