//! Opcodes that compare and choose.

use super::{BITS, INTS, Reader};
use crate::compile::op::*;
use crate::compile::opcode::{Combine, Compare};
use rgpu_image::ptx::ast::Type;

impl Reader {
    fn ftz_of(&mut self, ty: Type) -> Option<bool> {
        let ftz = Self::flag(&mut self.form.ftz);
        (!ftz || matches!(ty, Type::F32 | Type::F16 | Type::F16x2)).then_some(ftz)
    }

    fn check_compare(&self, compare: Compare, ty: Type) -> Option<()> {
        use Compare as C;
        let fits = if ty.is_float() {
            !matches!(ty, Type::Tf32 | Type::F32x2) && !matches!(compare, C::Lo | C::Ls | C::Hi | C::Hs)
        } else if BITS.contains(&ty) {
            matches!(compare, C::Eq | C::Ne)
        } else if INTS.contains(&ty) {
            matches!(compare, C::Eq | C::Ne | C::Lt | C::Le | C::Gt | C::Ge | C::Lo | C::Ls | C::Hi | C::Hs)
        } else {
            false
        };
        fits.then_some(())
    }

    fn check_combine(&self, combine: Option<Combine>) -> Option<()> {
        matches!(combine, None | Some(Combine::And | Combine::Or | Combine::Xor)).then_some(())
    }

    /// `setp`
    pub(crate) fn setp(&mut self) -> Option<Op> {
        let (compare, combine) = (self.form.compare.take()?, self.form.combine.take());
        let ty = self.ty()?;
        self.check_compare(compare, ty)?;
        self.check_combine(combine)?;
        Some(Op::Setp { compare, combine, ty, ftz: self.ftz_of(ty)? })
    }

    /// `set`
    pub(crate) fn set(&mut self) -> Option<Op> {
        let (compare, combine) = (self.form.compare.take()?, self.form.combine.take());
        let dst = self.ty()?;
        let ty = self.ty()?;
        self.check_compare(compare, ty)?;
        self.check_combine(combine)?;
        let packed = |ty| matches!(ty, Type::F16x2 | Type::Bf16x2);
        let fits = match dst {
            Type::U32 | Type::S32 => true,
            Type::F32 => !packed(ty),
            Type::U16 | Type::S16 | Type::F16 | Type::Bf16 => {
                matches!(ty, Type::F16 | Type::Bf16) || dst == Type::F16 && !packed(ty)
            }
            Type::F16x2 | Type::Bf16x2 => dst == ty,
            _ => false,
        };
        if !fits {
            return None;
        }
        Some(Op::Set { compare, combine, dst, ty, ftz: self.ftz_of(ty)? })
    }

    /// `selp`
    pub(crate) fn selp(&mut self) -> Option<Op> {
        let ty = self.ty()?;
        (16..=64).contains(&ty.bits()).then_some(Op::Selp { ty })
    }

    /// `slct`
    pub(crate) fn slct(&mut self) -> Option<Op> {
        let ty = self.ty()?;
        let select = self.ty_of(&[Type::S32, Type::F32])?;
        let ftz = Self::flag(&mut self.form.ftz);
        (16..=64).contains(&ty.bits()).then_some(Op::Slct { ty, select, ftz })
    }
}
