//! Opcodes of floating-point arithmetic.

use super::{HALVES, INTS, Reader};
use crate::compile::op::*;
use crate::compile::opcode::{Opcode, Rounding};
use rgpu_image::ptx::ast::Type;

impl Reader {
    /// `.ftz` exists for single (and half) precision only.
    pub(super) fn no_ftz_on_double(&self, ty: Type, mode: Mode) -> Option<()> {
        (!(ty == Type::F64 && (mode.ftz || mode.sat))).then_some(())
    }

    /// Which modes the arithmetic of a type has.
    pub(super) fn check_float(&mut self, ty: Type, mode: Mode) -> Option<()> {
        match ty {
            Type::F32 => {
                (!matches!(mode.rounding, Rounding::NearestAway | Rounding::Stochastic)).then_some(())
            }
            Type::F32x2 => (!mode.sat
                && !matches!(mode.rounding, Rounding::NearestAway | Rounding::Stochastic))
            .then_some(()),
            Type::F64 => (!mode.ftz
                && !mode.sat
                && !matches!(mode.rounding, Rounding::NearestAway | Rounding::Stochastic))
            .then_some(()),
            Type::F16 | Type::F16x2 => (mode.rounding == Rounding::Nearest).then_some(()),
            Type::Bf16 | Type::Bf16x2 => {
                (mode.rounding == Rounding::Nearest && !mode.ftz && !mode.sat).then_some(())
            }
            _ => None,
        }
    }

    /// `div` of floating-point numbers.
    pub(super) fn float_div(&mut self) -> Option<Op> {
        let ty = self.ty_of(&[Type::F32, Type::F64])?;
        let inexact = Self::flag(&mut self.form.approx) | Self::flag(&mut self.form.full);
        if inexact && ty != Type::F32 {
            return None;
        }
        if inexact == self.form.rounding.is_some() {
            // One or the other has to be said.
            return None;
        }
        let mode = self.mode();
        self.no_ftz_on_double(ty, mode)?;
        Some(Op::Float { op: FloatOp::Div, ty, mode })
    }

    /// `neg`, `abs`
    pub(crate) fn sign(&mut self) -> Option<Op> {
        let negates = self.form.opcode == Opcode::Neg;
        let ty = self.ty()?;
        let ftz = Self::flag(&mut self.form.ftz);
        match ty {
            Type::S16 | Type::S32 | Type::S64 if !ftz => {
                Some(Op::IntUnary { op: if negates { IntUnary::Neg } else { IntUnary::Abs }, ty })
            }
            _ if ty.is_float() && ty != Type::F32x2 && ty != Type::Tf32 => {
                Some(if negates { Op::FloatNeg { ty, ftz } } else { Op::FloatAbs { ty, ftz } })
            }
            _ => None,
        }
    }

    /// `copysign`
    pub(crate) fn copysign(&mut self) -> Option<Op> {
        Some(Op::Copysign { ty: self.ty_of(&[Type::F32, Type::F64])? })
    }

    /// `testp`
    pub(crate) fn testp(&mut self) -> Option<Op> {
        use TestKind as T;
        let kinds = [
            ("finite", T::Finite),
            ("infinite", T::Infinite),
            ("number", T::Number),
            ("notanumber", T::NotANumber),
            ("normal", T::Normal),
            ("subnormal", T::Subnormal),
        ];
        Some(Op::Testp { kind: self.one_of(&kinds)?, ty: self.ty_of(&[Type::F32, Type::F64])? })
    }

    /// `fma`, and `mad` of floating-point numbers.
    pub(crate) fn fma(&mut self) -> Option<Op> {
        let ty = self.ty()?;
        let mode = self.mode();
        let relu = self.other("relu");
        self.check_float(ty, mode)?;
        if ty == Type::F32x2 && self.form.opcode != Opcode::Fma {
            return None;
        }
        if relu && (!HALVES.contains(&ty) || mode.sat) {
            return None;
        }
        Some(Op::Fma { ty, mode, relu })
    }

    /// `min`, `max`
    pub(crate) fn min_max(&mut self) -> Option<Op> {
        let max = self.form.opcode == Opcode::Max;
        let op = if max { IntOp::Max } else { IntOp::Min };
        let ty = self.ty()?;
        if INTS.contains(&ty) {
            return Some(Op::Int { op, ty });
        }
        if matches!(ty, Type::U16x2 | Type::S16x2) {
            return Some(Op::PackedInt { op, signed: ty == Type::S16x2 });
        }
        if !ty.is_float() || matches!(ty, Type::Tf32 | Type::F32x2) {
            return None;
        }
        let ftz = Self::flag(&mut self.form.ftz);
        let nan = Self::flag(&mut self.form.nan);
        let xorsign = self.other("xorsign");
        if xorsign != self.other("abs") || ty == Type::F64 && (ftz || nan || xorsign) {
            return None;
        }
        if ftz && matches!(ty, Type::Bf16 | Type::Bf16x2) {
            return None;
        }
        Some(Op::FloatMinMax { max, ty, ftz, nan, xorsign })
    }

    /// `rcp`, `sqrt`, `rsqrt`, `sin`, `cos`, `lg2`, `ex2`, `tanh`
    pub(crate) fn float_unary(&mut self) -> Option<Op> {
        use FloatUnary as U;
        let op = match self.form.opcode {
            Opcode::Rcp => U::Rcp,
            Opcode::Sqrt => U::Sqrt,
            Opcode::Rsqrt => U::Rsqrt,
            Opcode::Sin => U::Sin,
            Opcode::Cos => U::Cos,
            Opcode::Lg2 => U::Lg2,
            Opcode::Ex2 => U::Ex2,
            Opcode::Tanh => U::Tanh,
            _ => return None,
        };
        let ty = self.ty()?;
        let approx = Self::flag(&mut self.form.approx);
        if approx == self.form.rounding.is_some() {
            return None;
        }
        let mode = self.mode();
        let exact_mode = !matches!(mode.rounding, Rounding::NearestAway | Rounding::Stochastic);
        let nearest = mode.rounding == Rounding::Nearest;
        let fits = match (op, ty, approx) {
            (U::Rcp | U::Sqrt, Type::F32, true) => nearest,
            (U::Rcp | U::Sqrt, Type::F32, false) => exact_mode,
            (U::Rcp | U::Sqrt, Type::F64, false) => exact_mode && !mode.ftz,
            (U::Rcp, Type::F64, true) => nearest,
            (U::Rsqrt, Type::F32 | Type::F64, true) => nearest,
            (U::Sin | U::Cos | U::Lg2, Type::F32, true) => nearest,
            (U::Ex2, Type::F32 | Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2, true) => nearest,
            (U::Tanh, Type::F32 | Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2, true) => {
                nearest && !mode.ftz
            }
            _ => false,
        };
        (fits && !mode.sat).then_some(Op::FloatUnary { op, ty, mode, approx })
    }
}
