//! Instructions on several small integers in one register.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::{Emitter, Result};
use crate::compile::op::{IntOp, Secondary, VideoOp};
use crate::compile::opcode::Compare;
use rgpu_image::ptx::ast::{Operand, Part, Type};

impl<'a> Emitter<'a, '_> {
    /// `vadd4` and its kin. Lanes are computed in 64 bits, where nothing overflows.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn video(
        &mut self,
        op: VideoOp,
        lanes: u32,
        d: Type,
        a: Type,
        b: Type,
        sat: bool,
        secondary: Secondary,
        o: &'a [Operand],
    ) -> Result<()> {
        if lanes == 1 {
            return self.video_of_words(op, (d, a, b), sat, secondary, o);
        }
        let x = self.src(self.operand(o, 1)?, Type::B32)?;
        let y = self.src(self.operand(o, 2)?, Type::B32)?;
        let c = self.src(self.operand(o, 3)?, Type::B32)?;
        let bits = 32 / lanes;
        let (x, y) = (self.resize(x, types::I64, false), self.resize(y, types::I64, false));
        let mut sum = c;
        let mut packed = self.iconst(types::I64, 0);
        for lane in 0..lanes {
            let p = self.lane_of(x, lane, bits, a.is_signed());
            let q = self.lane_of(y, lane, bits, b.is_signed());
            let value = self.video_lane(op, p, q);
            let value = if sat { self.clamp(value, bits, d) } else { value };
            if secondary == Secondary::Add {
                // The sum takes the lanes as they are, truncated to their width only when stored.
                let value = self.truncate_lane(value, bits, d.is_signed());
                let value = self.b.ins().ireduce(types::I32, value);
                sum = self.b.ins().iadd(sum, value);
            }
            let part = self.b.ins().band_imm_u(value, (1i64 << bits) - 1);
            let part = self.b.ins().ishl_imm_u(part, i64::from(lane * bits));
            packed = self.b.ins().bor(packed, part);
        }
        // Without a mask all lanes are written, and c is only there for the lanes that are not.
        let value = if secondary == Secondary::Add { sum } else { self.b.ins().ireduce(types::I32, packed) };
        self.set(self.operand(o, 0)?, Type::B32, value)
    }

    /// The same on words, and on halves and bytes of them. What is computed takes 34 bits.
    fn video_of_words(
        &mut self,
        op: VideoOp,
        (d, a, b): (Type, Type, Type),
        sat: bool,
        secondary: Secondary,
        o: &'a [Operand],
    ) -> Result<()> {
        let x = self.part_of(self.operand(o, 1)?, a)?;
        let y = self.part_of(self.operand(o, 2)?, b)?;
        let value = self.video_lane(op, x, y);
        let target = self.operand(o, 0)?;
        let (register, part) = match *target {
            Operand::Part(register, part) => (Operand::Reg(register), part),
            _ => (target.clone(), Part::WHOLE),
        };
        let value = if sat { self.clamp(value, part.bits.into(), d) } else { value };
        let mut value = self.b.ins().ireduce(types::I32, value);
        if let Some(c) = o.get(3) {
            let c = self.src(c, Type::B32)?;
            value = match secondary {
                Secondary::Add => self.b.ins().iadd(value, c),
                Secondary::Min => self.int_value(IntOp::Min, d, value, c),
                Secondary::Max => self.int_value(IntOp::Max, d, value, c),
                Secondary::None => {
                    let bits = ((1i64 << part.bits) - 1) << part.first;
                    let value = self.b.ins().ishl_imm_u(value, i64::from(part.first));
                    let value = self.b.ins().band_imm_u(value, bits);
                    let others = self.b.ins().band_imm_u(c, !bits & 0xffff_ffff);
                    self.b.ins().bor(others, value)
                }
            };
        }
        self.set(&register, Type::B32, value)
    }

    /// `vmad`: the product of two parts and a third number, of which one may be negated. All of that takes 66 bits.
    pub(crate) fn video_mad(
        &mut self,
        a: Type,
        b: Type,
        plus_one: bool,
        sat: bool,
        shift: u8,
        o: &'a [Operand],
    ) -> Result<()> {
        let negative = |operand: &Operand| matches!(operand, Operand::Part(_, part) if part.negative);
        let of_product = negative(self.operand(o, 1)?) != negative(self.operand(o, 2)?);
        let of_sum = negative(self.operand(o, 3)?);
        if of_product && of_sum || plus_one && o.iter().any(negative) {
            return Err(self.refuse("Only the product or what is added can be negated, and nothing with .po"));
        }
        let (x, y) = (self.part_of(self.operand(o, 1)?, a)?, self.part_of(self.operand(o, 2)?, b)?);
        let c = match *self.operand(o, 3)? {
            Operand::Part(register, _) => self.src(&Operand::Reg(register), Type::B32)?,
            ref c => self.src(c, Type::B32)?,
        };
        let signed = a.is_signed() || b.is_signed() || of_product || of_sum;
        // In two words. A product that one of both signs is in fits one.
        let product = self.b.ins().imul(x, y);
        let zero = self.iconst(types::I64, 0);
        let mut above =
            if a.is_signed() || b.is_signed() { self.b.ins().sshr_imm_u(product, 63) } else { zero };
        let mut low = product;
        if of_product {
            (low, above) = (self.b.ins().bnot(low), self.b.ins().bnot(above));
        }
        let c = if of_sum { self.b.ins().bnot(c) } else { c };
        let c = self.resize(c, types::I64, signed);
        let c_above = if signed { self.b.ins().sshr_imm_u(c, 63) } else { zero };
        above = self.b.ins().iadd(above, c_above);
        let one = self.iconst(types::I64, i64::from(plus_one || of_product || of_sum));
        for more in [c, one] {
            low = self.b.ins().iadd(low, more);
            let carry = self.b.ins().icmp(IntCC::UnsignedLessThan, low, more);
            let carry = self.b.ins().uextend(types::I64, carry);
            above = self.b.ins().iadd(above, carry);
        }
        if shift > 0 {
            let shift = i64::from(shift);
            let into = self.b.ins().ishl_imm_u(above, 64 - shift);
            low = self.b.ins().ushr_imm_u(low, shift);
            low = self.b.ins().bor(low, into);
            above = if signed {
                self.b.ins().sshr_imm_u(above, shift)
            } else {
                self.b.ins().ushr_imm_u(above, shift)
            };
        }
        if sat {
            // What does not fit one word is far beyond the range.
            let sign = if signed { self.b.ins().sshr_imm_u(low, 63) } else { zero };
            let fits = self.b.ins().icmp(IntCC::Equal, above, sign);
            low = if signed {
                let far = self.b.ins().sshr_imm_u(above, 63);
                let far = self.b.ins().bxor_imm_u(far, i64::MAX);
                let low = self.b.ins().select(fits, low, far);
                self.clamp_signed(low, 32)
            } else {
                let most = self.iconst(types::I64, 0xffff_ffff);
                let low = self.b.ins().select(fits, low, most);
                self.b.ins().umin(low, most)
            };
        }
        let value = self.b.ins().ireduce(types::I32, low);
        self.set(self.operand(o, 0)?, Type::B32, value)
    }

    /// Clamps a number to what fits so many bits of a type.
    fn clamp(&mut self, value: Value, bits: u32, ty: Type) -> Value {
        if ty.is_signed() { self.clamp_signed(value, bits) } else { self.clamp_unsigned(value, bits) }
    }

    /// A source, or the part of it that is named, extended to 64 bits.
    fn part_of(&mut self, operand: &Operand, ty: Type) -> Result<Value> {
        let (value, part) = match *operand {
            Operand::Part(register, part) => (self.src(&Operand::Reg(register), Type::B32)?, part),
            ref whole => (self.src(whole, Type::B32)?, Part::WHOLE),
        };
        let wide = self.b.ins().uextend(types::I64, value);
        let bits = u32::from(part.bits);
        Ok(self.lane_of(wide, u32::from(part.first) / bits, bits, ty.is_signed()))
    }

    /// A lane, extended to 64 bits.
    fn lane_of(&mut self, value: Value, lane: u32, bits: u32, signed: bool) -> Value {
        let top = self.b.ins().ishl_imm_u(value, i64::from(64 - bits * (lane + 1)));
        if signed {
            self.b.ins().sshr_imm_u(top, i64::from(64 - bits))
        } else {
            self.b.ins().ushr_imm_u(top, i64::from(64 - bits))
        }
    }

    fn truncate_lane(&mut self, value: Value, bits: u32, signed: bool) -> Value {
        self.lane_of(value, 0, bits, signed)
    }

    fn video_lane(&mut self, op: VideoOp, p: Value, q: Value) -> Value {
        match op {
            VideoOp::Add => self.b.ins().iadd(p, q),
            VideoOp::Sub => self.b.ins().isub(p, q),
            VideoOp::AbsDiff => {
                let difference = self.b.ins().isub(p, q);
                self.b.ins().iabs(difference)
            }
            VideoOp::Min => self.b.ins().smin(p, q),
            VideoOp::Max => self.b.ins().smax(p, q),
            VideoOp::Avrg => {
                // Half of the sum, rounded up; away from zero if negative.
                let sum = self.b.ins().iadd(p, q);
                let sign = self.b.ins().sshr_imm_u(sum, 63);
                let one = self.add_const(sum, 1);
                let one = self.b.ins().iadd(one, sign);
                self.b.ins().sshr_imm_u(one, 1)
            }
            VideoOp::Set(compare) => {
                let condition = match compare {
                    Compare::Eq => IntCC::Equal,
                    Compare::Ne => IntCC::NotEqual,
                    Compare::Lt => IntCC::SignedLessThan,
                    Compare::Le => IntCC::SignedLessThanOrEqual,
                    Compare::Gt => IntCC::SignedGreaterThan,
                    _ => IntCC::SignedGreaterThanOrEqual,
                };
                let bit = self.b.ins().icmp(condition, p, q);
                self.b.ins().uextend(types::I64, bit)
            }
            VideoOp::Shl { wrap } => {
                let amount = self.shift_amount(q, wrap);
                let value = self.b.ins().ishl(p, amount);
                // By 32 nothing is left of a word but on which side of its range the result is.
                let all = self.b.ins().icmp_imm_s(IntCC::Equal, amount, 32);
                let (low, high) = (self.iconst(types::I64, -1), self.iconst(types::I64, 1));
                let side = self.b.ins().smax(p, low);
                let side = self.b.ins().smin(side, high);
                let far = self.b.ins().ishl_imm_u(side, 32);
                self.b.ins().select(all, far, value)
            }
            VideoOp::Shr { wrap } => {
                let amount = self.shift_amount(q, wrap);
                self.b.ins().sshr(p, amount)
            }
        }
    }

    /// By how much is shifted: up to 32, or modulo that.
    fn shift_amount(&mut self, amount: Value, wrap: bool) -> Value {
        if wrap {
            return self.b.ins().band_imm_u(amount, 31);
        }
        let most = self.iconst(types::I64, 32);
        self.b.ins().umin(amount, most)
    }
}
