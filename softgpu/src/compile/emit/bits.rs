//! Bit fields, byte permutation, funnel shifts and dot products.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::{Emitter, Result, class};
use crate::compile::op::PrmtMode;
use crate::compile::opcode::Combine;
use rgpu_image::ptx::ast::{Operand, Type};

impl<'a> Emitter<'a, '_> {
    /// Where a field begins, or its length. Devices look at the low byte for fields of 32 bits, and at the whole number for those of 64
    /// (seen on capability 9.0; PTX defines neither beyond 255).
    fn field_number(&mut self, operand: &Operand, ty: Type) -> Result<Value> {
        let value = self.src(operand, Type::U32)?;
        Ok(if ty.bits() == 64 { value } else { self.b.ins().band_imm_u(value, 0xff) })
    }

    /// A mask of so many ones, in 64 bits; from 64 on all are.
    fn ones(&mut self, count: Value) -> Value {
        let one = self.iconst(types::I64, 1);
        let power = self.shift_left(one, count);
        self.add_const(power, -1)
    }

    /// `bfe`
    pub(crate) fn bfe(&mut self, ty: Type, o: &'a [Operand]) -> Result<()> {
        let signed = ty.is_signed();
        let a = self.src(self.operand(o, 1)?, ty)?;
        let position = self.field_number(self.operand(o, 2)?, ty)?;
        let length = self.field_number(self.operand(o, 3)?, ty)?;
        let a = self.resize(a, types::I64, signed);
        let value = if signed {
            let top = self.iconst(types::I32, 63);
            let position = self.b.ins().umin(position, top);
            let shifted = self.b.ins().sshr(a, position);
            // Sign-extend from `length` bits.
            let width = self.iconst(types::I32, 64);
            let kept = self.b.ins().umin(length, width);
            let spare = self.b.ins().isub(width, kept);
            let left = self.b.ins().ishl(shifted, spare);
            let right = self.b.ins().sshr(left, spare);
            let none = self.b.ins().icmp_imm_u(IntCC::Equal, length, 0);
            let zero = self.iconst(types::I64, 0);
            self.b.ins().select(none, zero, right)
        } else {
            let shifted = self.shift_right(a, position);
            let mask = self.ones(length);
            self.b.ins().band(shifted, mask)
        };
        let value = self.resize(value, class(ty), false);
        self.set(self.operand(o, 0)?, ty, value)
    }

    /// `bfi`
    pub(crate) fn bfi(&mut self, ty: Type, o: &'a [Operand]) -> Result<()> {
        let a = self.src(self.operand(o, 1)?, ty)?;
        let b = self.src(self.operand(o, 2)?, ty)?;
        let position = self.field_number(self.operand(o, 3)?, ty)?;
        let length = self.field_number(self.operand(o, 4)?, ty)?;
        let (a, b) = (self.resize(a, types::I64, false), self.resize(b, types::I64, false));
        let mask = self.ones(length);
        let mask = self.shift_left(mask, position);
        let field = self.shift_left(a, position);
        let field = self.b.ins().band(field, mask);
        let outside = self.b.ins().bnot(mask);
        let rest = self.b.ins().band(b, outside);
        let value = self.b.ins().bor(rest, field);
        let value = self.resize(value, class(ty), false);
        self.set(self.operand(o, 0)?, ty, value)
    }

    /// `bmsk`
    pub(crate) fn bmsk(&mut self, clamp: bool, o: &'a [Operand]) -> Result<()> {
        let a = self.src(self.operand(o, 1)?, Type::U32)?;
        let b = self.src(self.operand(o, 2)?, Type::U32)?;
        let (a, b) =
            if clamp { (a, b) } else { (self.b.ins().band_imm_u(a, 31), self.b.ins().band_imm_u(b, 31)) };
        let mask = self.ones(b);
        let mask = self.shift_left(mask, a);
        let value = self.b.ins().ireduce(types::I32, mask);
        self.set(self.operand(o, 0)?, Type::B32, value)
    }

    /// `szext`: the low bits, extended.
    pub(crate) fn szext(&mut self, signed: bool, clamp: bool, o: &'a [Operand]) -> Result<()> {
        let a = self.src(self.operand(o, 1)?, Type::U32)?;
        let n = self.src(self.operand(o, 2)?, Type::U32)?;
        let width = self.iconst(types::I32, 32);
        let n = if clamp { self.b.ins().umin(n, width) } else { self.b.ins().band_imm_u(n, 31) };
        let spare = self.b.ins().isub(width, n);
        let a = self.b.ins().uextend(types::I64, a);
        let a = self.b.ins().ishl_imm_u(a, 32);
        // In the upper half of 64 bits a shift by 32 is no special case.
        let left = self.b.ins().ishl(a, spare);
        let right = if signed { self.b.ins().sshr(left, spare) } else { self.b.ins().ushr(left, spare) };
        let value = self.b.ins().ushr_imm_u(right, 32);
        let value = self.b.ins().ireduce(types::I32, value);
        self.set(self.operand(o, 0)?, Type::U32, value)
    }

    /// `prmt`
    pub(crate) fn prmt(&mut self, mode: PrmtMode, o: &'a [Operand]) -> Result<()> {
        let a = self.src(self.operand(o, 1)?, Type::B32)?;
        let b = self.src(self.operand(o, 2)?, Type::B32)?;
        let low = self.b.ins().uextend(types::I64, a);
        let high = self.b.ins().uextend(types::I64, b);
        let high = self.b.ins().ishl_imm_u(high, 32);
        let bytes = self.b.ins().bor(low, high);
        let selector = self.operand(o, 3)?;
        let value = if let Operand::Int(selector, _) = selector {
            self.permute_constant(mode, bytes, *selector as u32)
        } else {
            let selector = self.src(selector, Type::B32)?;
            self.permute(mode, bytes, selector)
        };
        self.set(self.operand(o, 0)?, Type::B32, value)
    }

    /// The byte numbers that a mode chooses.
    fn chosen(mode: PrmtMode, selector: u32) -> [u32; 4] {
        let s = selector & 3;
        match mode {
            PrmtMode::Index => [0, 4, 8, 12].map(|at| selector >> at & 0xf),
            PrmtMode::F4e => [s, s + 1, s + 2, s + 3],
            PrmtMode::B4e => [s, (s + 7) % 8, (s + 6) % 8, (s + 5) % 8],
            PrmtMode::Rc8 => [s; 4],
            PrmtMode::Ecl => [s, s.max(1), s.max(2), 3],
            PrmtMode::Ecr => [0, s.min(1), s.min(2), s],
            PrmtMode::Rc16 => {
                let base = (s & 1) * 2;
                [base, base + 1, base, base + 1]
            }
        }
    }

    fn permute_constant(&mut self, mode: PrmtMode, bytes: Value, selector: u32) -> Value {
        let mut value = None;
        for (place, choice) in Self::chosen(mode, selector).into_iter().enumerate() {
            let at = self.b.ins().ushr_imm_u(bytes, i64::from(choice & 7) * 8);
            let byte = if choice & 8 != 0 {
                let byte = self.b.ins().ireduce(types::I8, at);
                let sign = self.b.ins().sshr_imm_u(byte, 7);
                self.b.ins().uextend(types::I32, sign)
            } else {
                let at = self.b.ins().ireduce(types::I32, at);
                self.b.ins().band_imm_u(at, 0xff)
            };
            let byte = self.b.ins().ishl_imm_u(byte, place as i64 * 8);
            value = Some(match value {
                None => byte,
                Some(value) => self.b.ins().bor(value, byte),
            });
        }
        value.unwrap_or(bytes)
    }

    fn permute(&mut self, mode: PrmtMode, bytes: Value, selector: Value) -> Value {
        if mode != PrmtMode::Index {
            // Four possible selectors: compute all results.
            let s = self.b.ins().band_imm_u(selector, 3);
            let mut value = self.permute_constant(mode, bytes, 0);
            for choice in 1..4 {
                let other = self.permute_constant(mode, bytes, choice);
                let hit = self.b.ins().icmp_imm_u(IntCC::Equal, s, i64::from(choice));
                value = self.b.ins().select(hit, other, value);
            }
            return value;
        }
        let mut value = self.iconst(types::I32, 0);
        for place in 0..4 {
            let choice = self.b.ins().ushr_imm_u(selector, place * 4);
            let number = self.b.ins().band_imm_u(choice, 7);
            let shift = self.b.ins().ishl_imm_u(number, 3);
            let at = self.b.ins().ushr(bytes, shift);
            let byte = self.b.ins().ireduce(types::I8, at);
            let sign = self.b.ins().sshr_imm_u(byte, 7);
            let replicate = self.b.ins().band_imm_u(choice, 8);
            let byte = self.b.ins().select(replicate, sign, byte);
            let byte = self.b.ins().uextend(types::I32, byte);
            let byte = self.b.ins().ishl_imm_u(byte, place * 8);
            value = self.b.ins().bor(value, byte);
        }
        value
    }

    /// `lop3`
    pub(crate) fn lop3(&mut self, predicate: Option<Combine>, o: &'a [Operand]) -> Result<()> {
        let a = self.src(self.operand(o, 1)?, Type::B32)?;
        let b = self.src(self.operand(o, 2)?, Type::B32)?;
        let c = self.src(self.operand(o, 3)?, Type::B32)?;
        let Operand::Int(table, _) = self.operand(o, 4)? else {
            return Err(self.refuse("The table of lop3 has to be a constant"));
        };
        let value = self.lookup3(*table as u8, a, b, c);
        let destination = self.operand(o, 0)?;
        match (predicate, destination) {
            (None, destination) => self.set(destination, Type::B32, value),
            (Some(combine), Operand::Pair(pair)) => {
                let q = self.src(self.operand(o, 5)?, Type::Pred)?;
                let any = self.b.ins().icmp_imm_u(IntCC::NotEqual, value, 0);
                let p =
                    if combine == Combine::Or { self.b.ins().bor(any, q) } else { self.b.ins().band(any, q) };
                self.set(&pair.0, Type::B32, value)?;
                self.set(&pair.1, Type::Pred, p)
            }
            _ => Err(self.refuse("lop3 needs two results here")),
        }
    }

    /// Bitwise: bit `4a + 2b + c` of the table.
    fn lookup3(&mut self, table: u8, a: Value, b: Value, c: Value) -> Value {
        // Choose by a between two functions of b and c.
        let low = self.lookup2(table & 0xf, b, c);
        let high = self.lookup2(table >> 4, b, c);
        if table & 0xf == table >> 4 {
            return low;
        }
        let differ = self.b.ins().bxor(low, high);
        let pick = self.b.ins().band(a, differ);
        self.b.ins().bxor(low, pick)
    }

    fn lookup2(&mut self, table: u8, b: Value, c: Value) -> Value {
        let ty = types::I32;
        match table {
            0x0 => self.iconst(ty, 0),
            0xf => self.iconst(ty, -1),
            0xc => b,
            0xa => c,
            0x3 => self.b.ins().bnot(b),
            0x5 => self.b.ins().bnot(c),
            0x8 => self.b.ins().band(b, c),
            0xe => self.b.ins().bor(b, c),
            0x6 => self.b.ins().bxor(b, c),
            0x2 => {
                let not = self.b.ins().bnot(b);
                self.b.ins().band(c, not)
            }
            0x4 => {
                let not = self.b.ins().bnot(c);
                self.b.ins().band(b, not)
            }
            _ => {
                let opposite = self.lookup2(!table & 0xf, b, c);
                self.b.ins().bnot(opposite)
            }
        }
    }

    /// `shf`
    pub(crate) fn shf(&mut self, left: bool, wrap: bool, o: &'a [Operand]) -> Result<()> {
        let a = self.src(self.operand(o, 1)?, Type::B32)?;
        let b = self.src(self.operand(o, 2)?, Type::B32)?;
        let c = self.src(self.operand(o, 3)?, Type::U32)?;
        let n = if wrap {
            self.b.ins().band_imm_u(c, 31)
        } else {
            let top = self.iconst(types::I32, 32);
            self.b.ins().umin(c, top)
        };
        let low = self.b.ins().uextend(types::I64, a);
        let high = self.b.ins().uextend(types::I64, b);
        let high = self.b.ins().ishl_imm_u(high, 32);
        let both = self.b.ins().bor(low, high);
        let value = if left {
            let shifted = self.b.ins().ishl(both, n);
            self.b.ins().ushr_imm_u(shifted, 32)
        } else {
            self.b.ins().ushr(both, n)
        };
        let value = self.b.ins().ireduce(types::I32, value);
        self.set(self.operand(o, 0)?, Type::B32, value)
    }

    /// Part `index` of `bits` bits of a 32-bit number, extended to 32 bits.
    fn part(&mut self, value: Value, index: u32, bits: u32, signed: bool) -> Value {
        let top = self.b.ins().ishl_imm_u(value, i64::from(32 - bits * (index + 1)));
        if signed {
            self.b.ins().sshr_imm_u(top, i64::from(32 - bits))
        } else {
            self.b.ins().ushr_imm_u(top, i64::from(32 - bits))
        }
    }

    /// `dp4a`
    pub(crate) fn dp4a(&mut self, a_signed: bool, b_signed: bool, o: &'a [Operand]) -> Result<()> {
        let a = self.src(self.operand(o, 1)?, Type::B32)?;
        let b = self.src(self.operand(o, 2)?, Type::B32)?;
        let mut sum = self.src(self.operand(o, 3)?, Type::B32)?;
        for index in 0..4 {
            let (a, b) = (self.part(a, index, 8, a_signed), self.part(b, index, 8, b_signed));
            let product = self.b.ins().imul(a, b);
            sum = self.b.ins().iadd(sum, product);
        }
        self.set(self.operand(o, 0)?, Type::B32, sum)
    }

    /// `dp2a`
    pub(crate) fn dp2a(
        &mut self,
        a_signed: bool,
        b_signed: bool,
        high: bool,
        o: &'a [Operand],
    ) -> Result<()> {
        let a = self.src(self.operand(o, 1)?, Type::B32)?;
        let b = self.src(self.operand(o, 2)?, Type::B32)?;
        let mut sum = self.src(self.operand(o, 3)?, Type::B32)?;
        for index in 0..2 {
            let a = self.part(a, index, 16, a_signed);
            let b = self.part(b, index + if high { 2 } else { 0 }, 8, b_signed);
            let product = self.b.ins().imul(a, b);
            sum = self.b.ins().iadd(sum, product);
        }
        self.set(self.operand(o, 0)?, Type::B32, sum)
    }
}
