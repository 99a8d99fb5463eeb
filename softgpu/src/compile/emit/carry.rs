//! Extended-precision arithmetic: instructions that pass a carry on.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};

use super::{Emitter, Result, class};
use crate::compile::op::IntOp;
use rgpu_image::ptx::ast::{Operand, Type};

impl<'a> Emitter<'a, '_> {
    fn carry(&mut self) -> Value {
        self.b.use_var(self.variables[self.vars.carry as usize])
    }

    fn set_carry(&mut self, value: Value) -> Result<()> {
        self.define(self.vars.carry, Type::Pred, value)
    }

    /// `a + b + carry` with the carry out.
    fn sum(&mut self, ty: Type, a: Value, b: Value, carry_in: bool) -> (Value, Value) {
        let sum = self.b.ins().iadd(a, b);
        let carry = self.b.ins().icmp(IntCC::UnsignedLessThan, sum, a);
        if !carry_in {
            return (sum, carry);
        }
        let incoming = self.carry();
        let incoming = self.b.ins().uextend(class(ty), incoming);
        let total = self.b.ins().iadd(sum, incoming);
        let second = self.b.ins().icmp(IntCC::UnsignedLessThan, total, sum);
        let carry = self.b.ins().bor(carry, second);
        (total, carry)
    }

    /// `add.cc`, `addc`, `sub.cc`, `subc`. As on devices, a subtraction adds the complement: its carry is set where nothing was
    /// borrowed. Mostly it goes to another subtraction, to which that makes no difference; NVIDIA's own division of 128 bits adds it.
    pub(crate) fn add_carry(
        &mut self,
        ty: Type,
        subtract: bool,
        carry_in: bool,
        carry_out: bool,
        o: &'a [Operand],
    ) -> Result<()> {
        let a = self.src(self.operand(o, 1)?, ty)?;
        let b = self.src(self.operand(o, 2)?, ty)?;
        let (value, carry) = match (subtract, carry_in) {
            (false, _) => self.sum(ty, a, b, carry_in),
            (true, true) => {
                let complement = self.b.ins().bnot(b);
                self.sum(ty, a, complement, true)
            }
            (true, false) => {
                let enough = self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, a, b);
                (self.b.ins().isub(a, b), enough)
            }
        };
        if carry_out {
            self.set_carry(carry)?;
        }
        self.set(self.operand(o, 0)?, ty, value)
    }

    /// `mad.cc`, `madc`.
    pub(crate) fn mad_carry(
        &mut self,
        ty: Type,
        high: bool,
        carry_in: bool,
        carry_out: bool,
        o: &'a [Operand],
    ) -> Result<()> {
        let a = self.src(self.operand(o, 1)?, ty)?;
        let b = self.src(self.operand(o, 2)?, ty)?;
        let c = self.src(self.operand(o, 3)?, ty)?;
        let product = self.int_value(if high { IntOp::MulHi } else { IntOp::MulLo }, ty, a, b);
        let (value, carry) = self.sum(ty, product, c, carry_in);
        if carry_out {
            self.set_carry(carry)?;
        }
        self.set(self.operand(o, 0)?, ty, value)
    }
}
