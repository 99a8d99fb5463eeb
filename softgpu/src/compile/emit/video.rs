//! Instructions on several small integers in one register.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::{Emitter, Result};
use crate::compile::op::{Secondary, VideoOp};
use crate::compile::opcode::Compare;
use rgpu_image::ptx::ast::{Operand, Type};

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
        let x = self.src(self.operand(o, 1)?, Type::B32)?;
        let y = self.src(self.operand(o, 2)?, Type::B32)?;
        let c = match o.get(3) {
            Some(c) => self.src(c, Type::B32)?,
            // Scalars have a third source only for the second operation.
            None if lanes == 1 && secondary == Secondary::None => x,
            None => return Err(self.refuse("An operand is missing")),
        };
        let bits = 32 / lanes;
        let (x, y) = (self.resize(x, types::I64, false), self.resize(y, types::I64, false));
        let mut sum = c;
        let mut packed = self.iconst(types::I64, 0);
        let mut last = packed;
        for lane in 0..lanes {
            let p = self.lane_of(x, lane, bits, a.is_signed());
            let q = self.lane_of(y, lane, bits, b.is_signed());
            let value = self.video_lane(op, p, q);
            let value = match (sat, d.is_signed()) {
                (false, _) => value,
                (true, true) => self.clamp_signed(value, bits),
                (true, false) => self.clamp_unsigned(value, bits),
            };
            last = value;
            if secondary == Secondary::Add {
                // The sum takes the lanes as they are, truncated to their width only when stored.
                let value = self.truncate_lane(value, bits, d.is_signed());
                let value = self.b.ins().ireduce(types::I32, value);
                sum = self.b.ins().iadd(sum, value);
            }
            let mask = if bits == 64 { -1 } else { (1i64 << bits) - 1 };
            let part = self.b.ins().band_imm_u(value, mask);
            let part = self.b.ins().ishl_imm_u(part, i64::from(lane * bits));
            packed = self.b.ins().bor(packed, part);
        }
        let value = match secondary {
            Secondary::Add => sum,
            Secondary::None if lanes == 1 => self.b.ins().ireduce(types::I32, packed),
            Secondary::None => {
                // Without a mask all lanes are written, and c is only there for the lanes that are not.
                self.b.ins().ireduce(types::I32, packed)
            }
            Secondary::Min | Secondary::Max => {
                let value = self.b.ins().ireduce(types::I32, last);
                let op = if secondary == Secondary::Min {
                    crate::compile::op::IntOp::Min
                } else {
                    crate::compile::op::IntOp::Max
                };
                self.int_value(op, d, value, c)
            }
        };
        self.set(self.operand(o, 0)?, Type::B32, value)
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
        }
    }
}
