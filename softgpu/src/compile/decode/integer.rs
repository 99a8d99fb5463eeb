//! Opcodes of integer arithmetic, logic and bit fields; those that floating-point numbers have, too, lead to
//! [`super::float`].

use super::{BITS, INTS, Reader, WORDS};
use crate::compile::op::*;
use crate::compile::opcode::{Combine, MulPart, Opcode};
use rgpu_image::ptx::ast::Type;

impl Reader {
    /// `add`, `addc`, `sub`, `subc`
    pub(crate) fn add(&mut self) -> Option<Op> {
        let subtract = matches!(self.form.opcode, Opcode::Sub | Opcode::Subc);
        let carry_in = matches!(self.form.opcode, Opcode::Addc | Opcode::Subc);
        let carry_out = Self::flag(&mut self.form.cc);
        if carry_in || carry_out {
            return Some(Op::AddCarry { ty: self.ty_of(WORDS)?, subtract, carry_in, carry_out });
        }
        if self.is_float() {
            let ty = self.ty()?;
            if ty == Type::Tf32 {
                return None;
            }
            let mode = self.mode();
            self.check_float(ty, mode)?;
            return Some(Op::Float { op: if subtract { FloatOp::Sub } else { FloatOp::Add }, ty, mode });
        }
        let ty = self.ty()?;
        let sat = Self::flag(&mut self.form.sat);
        Some(match (ty, sat, subtract) {
            (Type::S32, true, false) => Op::Int { op: IntOp::AddSat, ty },
            (Type::S32, true, true) => Op::Int { op: IntOp::SubSat, ty },
            (Type::U16x2 | Type::S16x2, false, false) => {
                Op::PackedInt { op: IntOp::Add, signed: ty == Type::S16x2 }
            }
            (_, false, _) if INTS.contains(&ty) => {
                Op::Int { op: if subtract { IntOp::Sub } else { IntOp::Add }, ty }
            }
            _ => return None,
        })
    }

    /// `mul`
    pub(crate) fn mul(&mut self) -> Option<Op> {
        if self.is_float() {
            let ty = self.ty()?;
            let mode = self.mode();
            self.check_float(ty, mode)?;
            return Some(Op::Float { op: FloatOp::Mul, ty, mode });
        }
        let ty = self.ty_of(INTS)?;
        Some(match self.form.part.take()? {
            MulPart::Lo => Op::Int { op: IntOp::MulLo, ty },
            MulPart::Hi => Op::Int { op: IntOp::MulHi, ty },
            MulPart::Wide if ty.bits() < 64 => Op::MulWide { ty },
            MulPart::Wide => return None,
        })
    }

    /// `mad`, `madc`
    pub(crate) fn mad(&mut self) -> Option<Op> {
        if self.is_float() {
            return self.fma();
        }
        let carry_in = self.form.opcode == Opcode::Madc;
        let carry_out = Self::flag(&mut self.form.cc);
        let part = self.form.part.take()?;
        if carry_in || carry_out {
            if part == MulPart::Wide {
                return None;
            }
            let high = part == MulPart::Hi;
            return Some(Op::MadCarry { ty: self.ty_of(WORDS)?, high, carry_in, carry_out });
        }
        let ty = self.ty_of(INTS)?;
        let sat = Self::flag(&mut self.form.sat);
        let op = match (part, sat) {
            (MulPart::Lo, false) => IntTernary::MadLo,
            (MulPart::Hi, false) => IntTernary::MadHi,
            (MulPart::Hi, true) if ty == Type::S32 => IntTernary::MadHiSat,
            (MulPart::Wide, false) if ty.bits() < 64 => return Some(Op::MadWide { ty }),
            _ => return None,
        };
        Some(Op::IntTernary { op, ty })
    }

    /// `mul24`
    pub(crate) fn mul24(&mut self) -> Option<Op> {
        let ty = self.ty_of(&[Type::U32, Type::S32])?;
        match self.form.part.take()? {
            MulPart::Lo => Some(Op::Int { op: IntOp::Mul24Lo, ty }),
            MulPart::Hi => Some(Op::Int { op: IntOp::Mul24Hi, ty }),
            MulPart::Wide => None,
        }
    }

    /// `mad24`
    pub(crate) fn mad24(&mut self) -> Option<Op> {
        let ty = self.ty_of(&[Type::U32, Type::S32])?;
        let sat = Self::flag(&mut self.form.sat);
        let op = match (self.form.part.take()?, sat) {
            (MulPart::Lo, false) => IntTernary::Mad24Lo,
            (MulPart::Hi, false) => IntTernary::Mad24Hi,
            (MulPart::Hi, true) if ty == Type::S32 => IntTernary::Mad24HiSat,
            _ => return None,
        };
        Some(Op::IntTernary { op, ty })
    }

    /// `div`
    pub(crate) fn div(&mut self) -> Option<Op> {
        if self.is_float() {
            self.float_div()
        } else {
            Some(Op::Int { op: IntOp::Div, ty: self.ty_of(INTS)? })
        }
    }

    /// `rem`
    pub(crate) fn rem(&mut self) -> Option<Op> {
        Some(Op::Int { op: IntOp::Rem, ty: self.ty_of(INTS)? })
    }

    /// `and`, `or`, `xor`
    pub(crate) fn logic(&mut self) -> Option<Op> {
        let op = match self.form.opcode {
            Opcode::And => IntOp::And,
            Opcode::Or => IntOp::Or,
            Opcode::Xor => IntOp::Xor,
            _ => return None,
        };
        match self.ty()? {
            Type::Pred => Some(Op::PredLogic { op }),
            ty if BITS.contains(&ty) => Some(Op::Int { op, ty }),
            _ => None,
        }
    }

    /// `not`, `cnot`
    pub(crate) fn not(&mut self) -> Option<Op> {
        let op = if self.form.opcode == Opcode::Cnot { IntUnary::Cnot } else { IntUnary::Not };
        match self.ty()? {
            Type::Pred if op == IntUnary::Not => Some(Op::PredNot),
            ty if BITS.contains(&ty) => Some(Op::IntUnary { op, ty }),
            _ => None,
        }
    }

    /// `shl`, `shr`
    pub(crate) fn shift(&mut self) -> Option<Op> {
        let ty = self.ty()?;
        if self.form.opcode == Opcode::Shl {
            return BITS.contains(&ty).then_some(Op::Int { op: IntOp::Shl, ty });
        }
        (INTS.contains(&ty) || BITS.contains(&ty)).then_some(Op::Int { op: IntOp::Shr, ty })
    }

    /// `shf`
    pub(crate) fn shf(&mut self) -> Option<Op> {
        self.ty_of(&[Type::B32])?;
        Some(Op::Shf {
            left: self.one_of(&[("l", true), ("r", false)])?,
            wrap: self.one_of(&[("wrap", true), ("clamp", false)])?,
        })
    }

    /// `popc`, `clz`, `brev`
    pub(crate) fn count_bits(&mut self) -> Option<Op> {
        let op = match self.form.opcode {
            Opcode::Popc => IntUnary::Popc,
            Opcode::Clz => IntUnary::Clz,
            Opcode::Brev => IntUnary::Brev,
            _ => return None,
        };
        Some(Op::IntUnary { op, ty: self.ty_of(&[Type::B32, Type::B64])? })
    }

    /// `bfind`
    pub(crate) fn bfind(&mut self) -> Option<Op> {
        let shift = self.other("shiftamt");
        Some(Op::IntUnary { op: IntUnary::Bfind { shift }, ty: self.ty_of(WORDS)? })
    }

    /// `sad`
    pub(crate) fn sad(&mut self) -> Option<Op> {
        Some(Op::IntTernary { op: IntTernary::Sad, ty: self.ty_of(INTS)? })
    }

    /// `bfe`
    pub(crate) fn bfe(&mut self) -> Option<Op> {
        Some(Op::IntTernary { op: IntTernary::Bfe, ty: self.ty_of(WORDS)? })
    }

    /// `bfi`
    pub(crate) fn bfi(&mut self) -> Option<Op> {
        Some(Op::Bfi { ty: self.ty_of(&[Type::B32, Type::B64])? })
    }

    /// `fns`
    pub(crate) fn fns(&mut self) -> Option<Op> {
        Some(Op::IntTernary { op: IntTernary::Fns, ty: self.ty_of(&[Type::B32])? })
    }

    /// `.clamp`, or else `.wrap`.
    fn clamps(&mut self) -> Option<bool> {
        self.one_of(&[("clamp", true), ("wrap", false)])
    }

    /// `bmsk`
    pub(crate) fn bmsk(&mut self) -> Option<Op> {
        self.ty_of(&[Type::B32])?;
        Some(Op::Bmsk { clamp: self.clamps()? })
    }

    /// `szext`
    pub(crate) fn szext(&mut self) -> Option<Op> {
        let clamp = self.clamps()?;
        Some(Op::Szext { signed: self.ty_of(&[Type::U32, Type::S32])?.is_signed(), clamp })
    }

    /// `prmt`
    pub(crate) fn prmt(&mut self) -> Option<Op> {
        use PrmtMode as P;
        let modes = [
            ("f4e", P::F4e),
            ("b4e", P::B4e),
            ("rc8", P::Rc8),
            ("ecl", P::Ecl),
            ("ecr", P::Ecr),
            ("rc16", P::Rc16),
        ];
        self.ty_of(&[Type::B32])?;
        Some(Op::Prmt { mode: self.one_of(&modes).unwrap_or(P::Index) })
    }

    /// `lop3`
    pub(crate) fn lop3(&mut self) -> Option<Op> {
        self.ty_of(&[Type::B32])?;
        Some(Op::Lop3 { predicate: self.one_of(&[("or", Combine::Or), ("and", Combine::And)]) })
    }

    /// Whether the factors of a dot product are signed.
    fn factors(&mut self) -> Option<(bool, bool)> {
        let types = &[Type::U32, Type::S32];
        Some((self.ty_of(types)?.is_signed(), self.ty_of(types)?.is_signed()))
    }

    /// `dp4a`
    pub(crate) fn dp4a(&mut self) -> Option<Op> {
        let (a_signed, b_signed) = self.factors()?;
        Some(Op::Dp4a { a_signed, b_signed })
    }

    /// `dp2a`
    pub(crate) fn dp2a(&mut self) -> Option<Op> {
        let high = self.one_of(&[("lo", false), ("hi", true)])?;
        let (a_signed, b_signed) = self.factors()?;
        Some(Op::Dp2a { a_signed, b_signed, high })
    }
}
