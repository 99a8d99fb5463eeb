//! Conversions.

use super::Reader;
use crate::compile::op::*;
use crate::compile::opcode::Rounding;
use rgpu_image::ptx::ast::Type;

impl Reader {
    /// `cvt`
    pub(crate) fn cvt(&mut self) -> Option<Op> {
        if self.other("pack") {
            if !Self::flag(&mut self.form.sat) {
                return None;
            }
            use Type::{S2, S4, S8, S16, U2, U4, U8, U16};
            let to = self.ty_of(&[U16, S16, U8, S8, U4, S4, U2, S2])?;
            self.ty_of(&[Type::S32])?;
            let third = (to.bits() < 16).then_some(Type::B32);
            return (self.ty() == third).then_some(Op::CvtPack { to });
        }
        let dst = self.ty()?;
        let src = self.ty()?;
        let rounding = self.form.rounding.take();
        let int_rounding = self.form.int_rounding.take();
        let ftz = Self::flag(&mut self.form.ftz);
        let sat = Self::flag(&mut self.form.sat);
        let relu = self.other("relu");
        let satfinite = self.other("satfinite");
        if matches!(dst, Type::F16x2 | Type::Bf16x2) && !matches!(src, Type::E4m3x2 | Type::E5m2x2) {
            let rounding = rounding.filter(|r| matches!(r, Rounding::Nearest | Rounding::Zero))?;
            if src != Type::F32 || ftz || sat || int_rounding.is_some() {
                return None;
            }
            return Some(Op::CvtPair { to: dst, rounding, relu, satfinite });
        }
        let eighth = |ty: Type| match ty {
            Type::E4m3x2 => Some(EighthFormat::E4m3),
            Type::E5m2x2 => Some(EighthFormat::E5m2),
            _ => None,
        };
        if eighth(dst).is_some() || eighth(src).is_some() {
            let plain = rounding == Some(Rounding::Nearest) && int_rounding.is_none() && !ftz && !sat;
            return match (eighth(dst), eighth(src), plain) {
                (Some(format), None, true) if satfinite && matches!(src, Type::F32 | Type::F16x2) => {
                    Some(Op::CvtToEighths { format, halves: src == Type::F16x2, relu })
                }
                (None, Some(format), true) if !satfinite && dst == Type::F16x2 => {
                    Some(Op::CvtFromEighths { format, relu })
                }
                _ => None,
            };
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
            } else {
                // Narrowing rounds, and so does going from one half to the other.
                let half = matches!(dst, Type::F16 | Type::Bf16);
                let clamps =
                    half && src == Type::F32 && matches!(rounding, Some(Rounding::Nearest | Rounding::Zero));
                directed(rounding) && int_rounding.is_none() && (plain || clamps)
            }
        } else {
            false
        };
        fits.then_some(Op::Cvt { convert })
    }
}
