//! Opcodes of floating-point arithmetic, and conversions.

use super::Reader;
use super::{HALVES, INTS};
use crate::compile::op::*;
use rgpu_image::ptx::ast::Type;
use rgpu_image::ptx::opcode::{Opcode, Rounding};

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

    pub(super) fn fma(&mut self) -> Option<Op> {
        let ty = self.ty()?;
        let mode = self.mode();
        let relu = self.other("relu");
        self.check_float(ty, mode)?;
        if relu && (!HALVES.contains(&ty) || mode.sat) {
            return None;
        }
        Some(Op::Fma { ty, mode, relu })
    }

    pub(super) fn min_max(&mut self) -> Option<Op> {
        let max = self.form.opcode == Opcode::Max;
        let op = if max { IntOp::Max } else { IntOp::Min };
        let ty = self.ty()?;
        if INTS.contains(&ty) {
            return Some(Op::Int(op, ty));
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

    pub(super) fn float_unary(&mut self) -> Option<Op> {
        use FloatUnary as U;
        let op = match self.form.opcode {
            Opcode::Rcp => U::Rcp,
            Opcode::Sqrt => U::Sqrt,
            Opcode::Rsqrt => U::Rsqrt,
            Opcode::Sin => U::Sin,
            Opcode::Cos => U::Cos,
            Opcode::Lg2 => U::Lg2,
            Opcode::Ex2 => U::Ex2,
            _ => U::Tanh,
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

    pub(super) fn cvt(&mut self) -> Option<Op> {
        if self.other("pack") {
            if !Self::flag(&mut self.form.sat) {
                return None;
            }
            let to = self.ty_of(&[Type::U16, Type::S16, Type::U8, Type::S8])?;
            let from = self.ty_of(&[Type::S32])?;
            let three = self.ty().map(|ty| ty == Type::B32);
            return match (to.bits(), three) {
                (16, None) => Some(Op::CvtPack { to, from, three: false }),
                (8, Some(true)) => Some(Op::CvtPack { to, from, three: true }),
                _ => None,
            };
        }
        let dst = self.ty()?;
        let src = self.ty()?;
        let rounding = self.form.rounding.take();
        let int_rounding = self.form.int_rounding.take();
        let ftz = Self::flag(&mut self.form.ftz);
        let sat = Self::flag(&mut self.form.sat);
        let relu = self.other("relu");
        let satfinite = self.other("satfinite");
        if matches!(dst, Type::F16x2 | Type::Bf16x2) {
            let rounding = rounding.filter(|r| matches!(r, Rounding::Nearest | Rounding::Zero))?;
            if src != Type::F32 || ftz || sat || int_rounding.is_some() {
                return None;
            }
            return Some(Op::CvtPair { to: dst, from: src, rounding, relu, satfinite });
        }
        let is_int = |ty: Type| {
            matches!(
                ty,
                Type::U8 | Type::S8 | Type::U16 | Type::S16 | Type::U32 | Type::S32 | Type::U64 | Type::S64
            )
        };
        let is_scalar_float = |ty: Type| matches!(ty, Type::F16 | Type::Bf16 | Type::F32 | Type::F64);
        let convert = Convert { dst, src, rounding, int_rounding, ftz, sat, relu, satfinite };
        let directed = |r: Option<Rounding>| {
            matches!(r, Some(Rounding::Nearest | Rounding::Zero | Rounding::Down | Rounding::Up))
        };
        let plain = !relu && !satfinite;
        let fits = if is_int(dst) && is_int(src) {
            plain && rounding.is_none() && int_rounding.is_none() && !ftz
        } else if is_int(dst) && is_scalar_float(src) {
            plain && int_rounding.is_some() && rounding.is_none()
        } else if is_scalar_float(dst) && is_int(src) {
            plain && directed(rounding) && int_rounding.is_none() && !ftz
        } else if dst == Type::Tf32 && src == Type::F32 {
            matches!(rounding, Some(Rounding::NearestAway | Rounding::Nearest | Rounding::Zero))
                && !ftz
                && !sat
                && int_rounding.is_none()
        } else if is_scalar_float(dst) && is_scalar_float(src) {
            if dst == src {
                plain && rounding.is_none()
            } else if dst.bits() > src.bits() {
                plain && rounding.is_none() && int_rounding.is_none()
            } else if dst.bits() < src.bits() {
                let half = matches!(dst, Type::F16 | Type::Bf16);
                directed(rounding)
                    && int_rounding.is_none()
                    && (plain || half && src == Type::F32)
                    && (!half || matches!(rounding, Some(Rounding::Nearest | Rounding::Zero)))
                    && !(dst == Type::Bf16 && src != Type::F32)
            } else {
                false
            }
        } else {
            false
        };
        fits.then_some(Op::Cvt(convert))
    }
}
