//! Decodes an opcode with its modifiers, and refuses it unless every modifier was understood.

use super::op::*;
use crate::abi::{ReduceOp, ShuffleMode, VoteMode};
use crate::ptx::ast::{Form, Opcode, Space, Type};
use crate::ptx::opcode::{Combine, Compare, MulPart, Rounding, Semantics};

/// What an opcode means; `None` when it is not implemented.
pub fn decode(form: &Form) -> Option<Op> {
    let mut reader = Reader { form: form.clone() };
    let op = reader.op()?;
    reader.is_empty().then_some(op)
}

/// A form from which everything that was understood has been taken.
struct Reader {
    form: Form,
}

const INTS: &[Type] = &[Type::U16, Type::U32, Type::U64, Type::S16, Type::S32, Type::S64];
const BITS: &[Type] = &[Type::B16, Type::B32, Type::B64];
const WORDS: &[Type] = &[Type::U32, Type::S32, Type::U64, Type::S64];
const HALVES: &[Type] = &[Type::F16, Type::F16x2, Type::Bf16, Type::Bf16x2];

impl Reader {
    /// Whether nothing is left that was not understood.
    fn is_empty(&self) -> bool {
        let f = &self.form;
        f.types.is_empty()
            && f.vector == 1
            && f.spaces.is_empty()
            && f.rounding.is_none()
            && f.int_rounding.is_none()
            && f.compare.is_none()
            && f.combine.is_none()
            && f.part.is_none()
            && f.semantics.is_none()
            && f.scope.is_none()
            && !(f.ftz || f.sat || f.approx || f.full || f.cc || f.uni || f.sync || f.aligned)
            && !(f.nc || f.to || f.nan || f.noftz)
            && f.others.is_empty()
    }

    /// Takes the next type.
    fn ty(&mut self) -> Option<Type> {
        if self.form.types.is_empty() { None } else { Some(self.form.types.remove(0)) }
    }

    /// Takes the next type, which has to be one of these.
    fn ty_of(&mut self, allowed: &[Type]) -> Option<Type> {
        self.ty().filter(|ty| allowed.contains(ty))
    }

    /// Takes a modifier out of `others`.
    fn other(&mut self, name: &str) -> bool {
        match self.form.others.iter().position(|m| m == name) {
            Some(at) => {
                self.form.others.remove(at);
                true
            }
            None => false,
        }
    }

    /// Takes the first of these modifiers that is there.
    fn one_of<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        choices.iter().find(|(name, _)| self.other(name)).map(|&(_, value)| value)
    }

    fn flag(flag: &mut bool) -> bool {
        std::mem::take(flag)
    }

    fn mode(&mut self) -> Mode {
        let f = &mut self.form;
        Mode {
            rounding: f.rounding.take().unwrap_or(Rounding::Nearest),
            ftz: Self::flag(&mut f.ftz),
            sat: Self::flag(&mut f.sat),
        }
    }

    /// Whether the type is one of floating point.
    fn is_float(&self) -> bool {
        self.form.types.first().is_some_and(|ty| ty.is_float())
    }

    fn op(&mut self) -> Option<Op> {
        use Opcode as O;
        Some(match self.form.opcode {
            O::Add | O::Addc => self.add(false)?,
            O::Sub | O::Subc => self.add(true)?,
            O::Mul => self.mul()?,
            O::Mad | O::Madc => self.mad()?,
            O::Fma => self.fma()?,
            O::Mul24 => {
                let ty = self.ty_of(&[Type::U32, Type::S32])?;
                match self.form.part.take()? {
                    MulPart::Lo => Op::Int(IntOp::Mul24Lo, ty),
                    MulPart::Hi => Op::Int(IntOp::Mul24Hi, ty),
                    MulPart::Wide => return None,
                }
            }
            O::Mad24 => {
                let ty = self.ty_of(&[Type::U32, Type::S32])?;
                let sat = Self::flag(&mut self.form.sat);
                match (self.form.part.take()?, sat) {
                    (MulPart::Lo, false) => Op::IntTernary(IntTernary::Mad24Lo, ty),
                    (MulPart::Hi, false) => Op::IntTernary(IntTernary::Mad24Hi, ty),
                    (MulPart::Hi, true) if ty == Type::S32 => Op::IntTernary(IntTernary::Mad24HiSat, ty),
                    _ => return None,
                }
            }
            O::Div => {
                if self.is_float() {
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
                    Op::Float(FloatOp::Div, ty, mode)
                } else {
                    Op::Int(IntOp::Div, self.ty_of(INTS)?)
                }
            }
            O::Rem => Op::Int(IntOp::Rem, self.ty_of(INTS)?),
            O::Min | O::Max => self.min_max()?,
            O::And | O::Or | O::Xor => {
                let op = match self.form.opcode {
                    O::And => IntOp::And,
                    O::Or => IntOp::Or,
                    _ => IntOp::Xor,
                };
                match self.ty()? {
                    Type::Pred => Op::PredLogic(op),
                    ty if BITS.contains(&ty) => Op::Int(op, ty),
                    _ => return None,
                }
            }
            O::Not => match self.ty()? {
                Type::Pred => Op::PredNot,
                ty if BITS.contains(&ty) => Op::IntUnary(IntUnary::Not, ty),
                _ => return None,
            },
            O::Cnot => Op::IntUnary(IntUnary::Cnot, self.ty_of(BITS)?),
            O::Shl => Op::Int(IntOp::Shl, self.ty_of(BITS)?),
            O::Shr => {
                let ty = self.ty()?;
                (INTS.contains(&ty) || BITS.contains(&ty)).then_some(Op::Int(IntOp::Shr, ty))?
            }
            O::Shf => Op::Shf {
                left: self.one_of(&[("l", true), ("r", false)])?,
                wrap: self.one_of(&[("wrap", true), ("clamp", false)])?,
            }
            .with_type(self, Type::B32)?,
            O::Neg => {
                let ty = self.ty()?;
                let ftz = Self::flag(&mut self.form.ftz);
                match ty {
                    Type::S16 | Type::S32 | Type::S64 if !ftz => Op::IntUnary(IntUnary::Neg, ty),
                    _ if ty.is_float() && ty != Type::F32x2 && ty != Type::Tf32 => Op::FloatNeg { ty, ftz },
                    _ => return None,
                }
            }
            O::Abs => {
                let ty = self.ty()?;
                let ftz = Self::flag(&mut self.form.ftz);
                match ty {
                    Type::S16 | Type::S32 | Type::S64 if !ftz => Op::IntUnary(IntUnary::Abs, ty),
                    _ if ty.is_float() && ty != Type::F32x2 && ty != Type::Tf32 => Op::FloatAbs { ty, ftz },
                    _ => return None,
                }
            }
            O::Popc => Op::IntUnary(IntUnary::Popc, self.ty_of(&[Type::B32, Type::B64])?),
            O::Clz => Op::IntUnary(IntUnary::Clz, self.ty_of(&[Type::B32, Type::B64])?),
            O::Brev => Op::IntUnary(IntUnary::Brev, self.ty_of(&[Type::B32, Type::B64])?),
            O::Bfind => {
                let shift = self.other("shiftamt");
                Op::IntUnary(IntUnary::Bfind { shift }, self.ty_of(WORDS)?)
            }
            O::Sad => Op::IntTernary(IntTernary::Sad, self.ty_of(INTS)?),
            O::Bfe => Op::IntTernary(IntTernary::Bfe, self.ty_of(WORDS)?),
            O::Bfi => Op::Bfi(self.ty_of(&[Type::B32, Type::B64])?),
            O::Fns => Op::IntTernary(IntTernary::Fns, self.ty_of(&[Type::B32])?),
            O::Bmsk => {
                let clamp = self.one_of(&[("clamp", true), ("wrap", false)])?;
                Op::Bmsk { clamp }.with_type(self, Type::B32)?
            }
            O::Szext => {
                let clamp = self.one_of(&[("clamp", true), ("wrap", false)])?;
                Op::Szext { signed: self.ty_of(&[Type::U32, Type::S32])?.is_signed(), clamp }
            }
            O::Prmt => {
                use PrmtMode as P;
                let modes = [
                    ("f4e", P::F4e),
                    ("b4e", P::B4e),
                    ("rc8", P::Rc8),
                    ("ecl", P::Ecl),
                    ("ecr", P::Ecr),
                    ("rc16", P::Rc16),
                ];
                let mode = self.one_of(&modes).unwrap_or(P::Index);
                Op::Prmt(mode).with_type(self, Type::B32)?
            }
            O::Lop3 => {
                let predicate = self.one_of(&[("or", Combine::Or), ("and", Combine::And)]);
                Op::Lop3 { predicate }.with_type(self, Type::B32)?
            }
            O::Dp4a => {
                let types = &[Type::U32, Type::S32];
                let (a, b) = (self.ty_of(types)?, self.ty_of(types)?);
                Op::Dp4a { a_signed: a.is_signed(), b_signed: b.is_signed() }
            }
            O::Dp2a => {
                let high = self.one_of(&[("lo", false), ("hi", true)])?;
                let types = &[Type::U32, Type::S32];
                let (a, b) = (self.ty_of(types)?, self.ty_of(types)?);
                Op::Dp2a { a_signed: a.is_signed(), b_signed: b.is_signed(), high }
            }
            O::Copysign => Op::Copysign(self.ty_of(&[Type::F32, Type::F64])?),
            O::Testp => {
                use TestKind as T;
                let kinds = [
                    ("finite", T::Finite),
                    ("infinite", T::Infinite),
                    ("number", T::Number),
                    ("notanumber", T::NotANumber),
                    ("normal", T::Normal),
                    ("subnormal", T::Subnormal),
                ];
                Op::Testp(self.one_of(&kinds)?, self.ty_of(&[Type::F32, Type::F64])?)
            }
            O::Rcp | O::Sqrt | O::Rsqrt | O::Sin | O::Cos | O::Lg2 | O::Ex2 | O::Tanh => {
                self.float_unary()?
            }
            O::Setp => {
                let (compare, combine) = (self.form.compare.take()?, self.form.combine.take());
                let ty = self.ty()?;
                self.check_compare(compare, ty)?;
                self.check_combine(combine)?;
                Op::Setp { compare, combine, ty, ftz: self.ftz_of(ty)? }
            }
            O::Set => {
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
                Op::Set { compare, combine, dst, ty, ftz: self.ftz_of(ty)? }
            }
            O::Selp => {
                let ty = self.ty()?;
                if ty.bits() < 16 || ty.bits() > 64 {
                    return None;
                }
                Op::Selp(ty)
            }
            O::Slct => {
                let ty = self.ty()?;
                let select = self.ty_of(&[Type::S32, Type::F32])?;
                if ty.bits() < 16 || ty.bits() > 64 {
                    return None;
                }
                Op::Slct { ty, select, ftz: Self::flag(&mut self.form.ftz) }
            }
            O::Cvt => self.cvt()?,
            O::Mov => {
                let ty = self.ty()?;
                if ty.bits() > 64 || ty.bits() < 16 && ty != Type::Pred {
                    return None;
                }
                Op::Mov(ty)
            }
            O::Cvta => {
                let to = Self::flag(&mut self.form.to);
                let space = self.take_space()??;
                self.ty_of(&[Type::U64])?;
                match space {
                    Space::Shared | Space::SharedCta => Op::Cvta { shared: true, to },
                    Space::Global | Space::Local | Space::Const | Space::Param | Space::ParamEntry => {
                        Op::Cvta { shared: false, to }
                    }
                    _ => return None,
                }
            }
            O::Isspacep => Op::Isspacep(match self.take_space()?? {
                Space::Const => SpaceTest::Const,
                Space::Global => SpaceTest::Global,
                Space::Local => SpaceTest::Local,
                Space::Shared | Space::SharedCta | Space::SharedCluster => SpaceTest::Shared,
                Space::Param | Space::ParamEntry => SpaceTest::Param,
                _ => return None,
            }),
            O::Ld | O::Ldu | O::St => self.load_store()?,
            O::Atom | O::Red => self.atomic()?,
            O::Membar | O::Fence => {
                // Some combination of these says which accesses are ordered; here all are.
                let f = &mut self.form;
                (f.semantics, f.scope) = (None, None);
                Op::Fence
            }
            O::Prefetch | O::Prefetchu | O::Applypriority | O::Discard => {
                // `discard` allows the bytes to be lost, it need not lose them.
                self.form.spaces.clear();
                self.form.others.retain(|m| !matches!(m.as_str(), "L1" | "L2"));
                Op::Nop
            }
            O::Pmevent => {
                self.other("mask");
                Op::Nop
            }
            O::Cp => self.cp()?,
            O::Mbarrier => self.mbarrier()?,
            O::Bra => {
                self.form.uni = false;
                Op::Bra
            }
            O::Brx => {
                self.form.uni = false;
                self.other("idx").then_some(Op::Brx)?
            }
            O::Call => {
                self.form.uni = false;
                Op::Call
            }
            O::Ret => {
                self.form.uni = false;
                Op::Ret
            }
            O::Exit => Op::Exit,
            O::Trap | O::Brkpt => Op::Trap,
            O::Nanosleep => {
                self.ty_of(&[Type::U32])?;
                Op::Yield
            }
            O::Bar | O::Barrier => self.bar()?,
            O::Shfl => {
                use ShuffleMode as S;
                let modes = [("up", S::Up), ("down", S::Down), ("bfly", S::Butterfly), ("idx", S::Index)];
                let mode = self.one_of(&modes)?;
                let sync = Self::flag(&mut self.form.sync);
                Op::Shfl { mode, sync }.with_type(self, Type::B32)?
            }
            O::Vote => {
                use VoteMode as V;
                let modes = [("all", V::All), ("any", V::Any), ("uni", V::Uniform), ("ballot", V::Ballot)];
                let mode = self.one_of(&modes)?;
                let sync = Self::flag(&mut self.form.sync);
                let ty = if mode == V::Ballot { Type::B32 } else { Type::Pred };
                Op::Vote { mode, sync }.with_type(self, ty)?
            }
            O::Match => {
                let all = self.one_of(&[("all", true), ("any", false)])?;
                if !Self::flag(&mut self.form.sync) {
                    return None;
                }
                Op::Match { all, ty: self.ty_of(&[Type::B32, Type::B64])? }
            }
            O::Redux => {
                let combine = self.form.combine.take()?;
                if !Self::flag(&mut self.form.sync) {
                    return None;
                }
                let ty = self.ty()?;
                Op::Redux(match (combine, ty) {
                    (Combine::Add, Type::U32 | Type::S32) => ReduceOp::Add,
                    (Combine::Min, Type::S32) => ReduceOp::MinS32,
                    (Combine::Max, Type::S32) => ReduceOp::MaxS32,
                    (Combine::Min, Type::U32) => ReduceOp::MinU32,
                    (Combine::Max, Type::U32) => ReduceOp::MaxU32,
                    (Combine::And, Type::B32) => ReduceOp::And,
                    (Combine::Or, Type::B32) => ReduceOp::Or,
                    (Combine::Xor, Type::B32) => ReduceOp::Xor,
                    _ => return None,
                })
            }
            O::Activemask => Op::ActiveMask.with_type(self, Type::B32)?,
            O::Elect => {
                if !Self::flag(&mut self.form.sync) {
                    return None;
                }
                Op::Elect
            }
            O::Vadd
            | O::Vsub
            | O::Vabsdiff
            | O::Vmin
            | O::Vmax
            | O::Vshl
            | O::Vshr
            | O::Vmad
            | O::Vset
            | O::Vadd2
            | O::Vsub2
            | O::Vavrg2
            | O::Vabsdiff2
            | O::Vmin2
            | O::Vmax2
            | O::Vset2
            | O::Vadd4
            | O::Vsub4
            | O::Vavrg4
            | O::Vabsdiff4
            | O::Vmin4
            | O::Vmax4
            | O::Vset4 => self.video()?,
            O::Createpolicy => {
                // A policy says how long data are worth keeping in a cache: any value will do.
                self.form.others.clear();
                self.form.spaces.clear();
                self.ty_of(&[Type::B64])?;
                Op::Policy
            }
            O::Griddepcontrol => {
                // Grids follow one another completely here.
                (self.other("launch_dependents") | self.other("wait")).then_some(Op::Nop)?
            }
            O::Setmaxnreg => return None,
            O::Mma => self.mma()?,
            O::Wmma => self.wmma()?,
            O::Ldmatrix => {
                let aligned = Self::flag(&mut self.form.sync) & Self::flag(&mut self.form.aligned);
                let count = self.one_of(&[("x1", 1), ("x2", 2), ("x4", 4)])?;
                let transpose = self.other("trans");
                let shared = match self.take_space()? {
                    None => false,
                    Some(Space::Shared | Space::SharedCta) => true,
                    Some(_) => return None,
                };
                self.ty_of(&[Type::B16])?;
                if !aligned || !self.other("m8n8") {
                    return None;
                }
                Op::Ldmatrix { count, transpose, shared }
            }
            O::Movmatrix => {
                let aligned = Self::flag(&mut self.form.sync) & Self::flag(&mut self.form.aligned);
                if !aligned || !self.other("trans") || !self.other("m8n8") {
                    return None;
                }
                Op::Movmatrix.with_type(self, Type::B16)?
            }
            _ => return None,
        })
    }

    /// Takes the state space: an error if there are two, `Some(None)` if there is none.
    fn take_space(&mut self) -> Option<Option<Space>> {
        match self.form.spaces[..] {
            [] => Some(None),
            [space] => {
                self.form.spaces.clear();
                Some(Some(space))
            }
            _ => None,
        }
    }

    /// `.ftz` exists for single (and half) precision only.
    fn no_ftz_on_double(&self, ty: Type, mode: Mode) -> Option<()> {
        (!(ty == Type::F64 && (mode.ftz || mode.sat))).then_some(())
    }

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

    fn add(&mut self, subtract: bool) -> Option<Op> {
        let carry_in = matches!(self.form.opcode, Opcode::Addc | Opcode::Subc);
        let carry_out = Self::flag(&mut self.form.cc);
        if carry_in || carry_out {
            return Some(Op::AddCarry { ty: self.ty_of(WORDS)?, subtract, carry_in, carry_out });
        }
        if self.is_float() {
            let ty = self.ty()?;
            if ty == Type::Tf32 || ty == Type::F32x2 {
                return None;
            }
            let mode = self.mode();
            self.check_float(ty, mode)?;
            return Some(Op::Float(if subtract { FloatOp::Sub } else { FloatOp::Add }, ty, mode));
        }
        let ty = self.ty()?;
        let sat = Self::flag(&mut self.form.sat);
        Some(match (ty, sat, subtract) {
            (Type::S32, true, false) => Op::Int(IntOp::AddSat, ty),
            (Type::S32, true, true) => Op::Int(IntOp::SubSat, ty),
            (Type::U16x2 | Type::S16x2, false, false) => {
                Op::PackedInt { op: IntOp::Add, signed: ty == Type::S16x2 }
            }
            (_, false, _) if INTS.contains(&ty) => {
                Op::Int(if subtract { IntOp::Sub } else { IntOp::Add }, ty)
            }
            _ => return None,
        })
    }

    /// Which modes the arithmetic of a type has.
    fn check_float(&mut self, ty: Type, mode: Mode) -> Option<()> {
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

    fn mul(&mut self) -> Option<Op> {
        if self.is_float() {
            let ty = self.ty()?;
            let mode = self.mode();
            self.check_float(ty, mode)?;
            return Some(Op::Float(FloatOp::Mul, ty, mode));
        }
        let ty = self.ty_of(INTS)?;
        Some(match self.form.part.take()? {
            MulPart::Lo => Op::Int(IntOp::MulLo, ty),
            MulPart::Hi => Op::Int(IntOp::MulHi, ty),
            MulPart::Wide if ty.bits() < 64 => Op::MulWide(ty),
            MulPart::Wide => return None,
        })
    }

    fn mad(&mut self) -> Option<Op> {
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
            return Some(Op::MadCarry {
                ty: self.ty_of(WORDS)?,
                high: part == MulPart::Hi,
                carry_in,
                carry_out,
            });
        }
        let ty = self.ty_of(INTS)?;
        let sat = Self::flag(&mut self.form.sat);
        Some(match (part, sat) {
            (MulPart::Lo, false) => Op::IntTernary(IntTernary::MadLo, ty),
            (MulPart::Hi, false) => Op::IntTernary(IntTernary::MadHi, ty),
            (MulPart::Hi, true) if ty == Type::S32 => Op::IntTernary(IntTernary::MadHiSat, ty),
            (MulPart::Wide, false) if ty.bits() < 64 => Op::MadWide(ty),
            _ => return None,
        })
    }

    fn fma(&mut self) -> Option<Op> {
        let ty = self.ty()?;
        let mode = self.mode();
        let relu = self.other("relu");
        self.check_float(ty, mode)?;
        if relu && (!HALVES.contains(&ty) || mode.sat) {
            return None;
        }
        Some(Op::Fma { ty, mode, relu })
    }

    fn min_max(&mut self) -> Option<Op> {
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

    fn float_unary(&mut self) -> Option<Op> {
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

    fn cvt(&mut self) -> Option<Op> {
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

    fn load_store(&mut self) -> Option<Op> {
        let store = self.form.opcode == Opcode::St;
        let place = match self.take_space()? {
            None | Some(Space::Global | Space::Const | Space::Local) => Place::Generic,
            Some(Space::Shared | Space::SharedCta) => Place::Shared,
            Some(Space::Param | Space::ParamEntry | Space::ParamFunc) => Place::Param,
            Some(_) => return None,
        };
        self.form.nc = false;
        self.form.scope = None;
        let order = match self.form.semantics.take() {
            None | Some(Semantics::Weak) => Order::Weak,
            Some(Semantics::SeqCst | Semantics::AcqRel) => return None,
            Some(_) => Order::Strong,
        };
        self.other("L2::cache_hint");
        if store && place == Place::Param && order != Order::Weak {
            return None;
        }
        let vector = std::mem::replace(&mut self.form.vector, 1);
        let ty = self.ty()?;
        let simple = matches!(
            ty,
            Type::B8
                | Type::U8
                | Type::S8
                | Type::B16
                | Type::U16
                | Type::S16
                | Type::B32
                | Type::U32
                | Type::S32
                | Type::F32
                | Type::B64
                | Type::U64
                | Type::S64
                | Type::F64
                | Type::F16
                | Type::Bf16
                | Type::F16x2
                | Type::Bf16x2
        );
        if !simple {
            return None;
        }
        Some(if store { Op::St { place, ty, vector, order } } else { Op::Ld { place, ty, vector, order } })
    }

    fn atomic(&mut self) -> Option<Op> {
        let result = self.form.opcode == Opcode::Atom;
        let shared = match self.take_space()? {
            None | Some(Space::Global) => false,
            Some(Space::Shared | Space::SharedCta) => true,
            Some(_) => return None,
        };
        (self.form.semantics, self.form.scope) = (None, None);
        self.form.noftz = false;
        self.other("L2::cache_hint");
        let op = self.form.combine.take()?;
        let vector = std::mem::replace(&mut self.form.vector, 1);
        let ty = self.ty()?;
        use Combine as C;
        let fits = match op {
            C::And | C::Or | C::Xor => matches!(ty, Type::B32 | Type::B64),
            C::Exch => matches!(ty, Type::B32 | Type::B64),
            C::Cas => matches!(ty, Type::B16 | Type::B32 | Type::B64) && result,
            C::Add => {
                matches!(
                    ty,
                    Type::U32
                        | Type::S32
                        | Type::U64
                        | Type::S64
                        | Type::F32
                        | Type::F64
                        | Type::F16
                        | Type::F16x2
                        | Type::Bf16
                        | Type::Bf16x2
                )
            }
            C::Inc | C::Dec => ty == Type::U32,
            C::Min | C::Max => matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::S64),
            C::Popc => false,
        };
        if !fits || vector != 1 {
            return None;
        }
        Some(Op::Atom { shared, op, ty, vector, result })
    }

    fn cp(&mut self) -> Option<Op> {
        if !self.other("async") {
            return None;
        }
        if self.other("mbarrier") {
            // The copies are complete already. With `.noinc` that is one of the expected arrivals; without it
            // is one more that is expected, and comes at once.
            if !self.other("arrive") {
                return None;
            }
            let shared = self.mbarrier_space()?;
            self.ty_of(&[Type::B64])?;
            if !self.other("noinc") {
                return Some(Op::Nop);
            }
            return Some(Op::Mbarrier { op: MbarrierOp::Arrive { drop: false, result: false }, shared });
        }
        // The copy is performed at once, so that there is never anything to wait for.
        if self.other("commit_group") || self.other("wait_group") || self.other("wait_all") {
            return Some(Op::Nop);
        }
        let spaces = std::mem::take(&mut self.form.spaces);
        self.other("L2::cache_hint");
        match spaces[..] {
            [Space::Shared | Space::SharedCta, Space::Global] => Some(Op::CpAsync),
            _ => None,
        }
    }

    /// Where the object is: whether in shared memory, or at a generic address.
    fn mbarrier_space(&mut self) -> Option<bool> {
        match self.take_space()? {
            None => Some(false),
            Some(Space::Shared | Space::SharedCta) => Some(true),
            Some(_) => None,
        }
    }

    fn mbarrier(&mut self) -> Option<Op> {
        // Whatever the order that is asked for, one worker runs the whole block.
        self.form.others.retain(|m| !matches!(m.as_str(), "release" | "acquire" | "relaxed" | "cta"));
        (self.form.semantics, self.form.scope) = (None, None);
        let shared = self.mbarrier_space()?;
        self.ty_of(&[Type::B64])?;
        let no_complete = self.other("noComplete");
        let op = if self.other("init") {
            MbarrierOp::Init
        } else if self.other("inval") {
            MbarrierOp::Invalidate
        } else if self.other("arrive") {
            MbarrierOp::Arrive { drop: false, result: true }
        } else if self.other("arrive_drop") {
            MbarrierOp::Arrive { drop: true, result: true }
        } else if self.other("test_wait") || self.other("try_wait") {
            MbarrierOp::Test { parity: self.other("parity") }
        } else if self.other("pending_count") {
            MbarrierOp::Pending
        } else {
            return None;
        };
        (!no_complete || matches!(op, MbarrierOp::Arrive { .. })).then_some(Op::Mbarrier { op, shared })
    }

    fn bar(&mut self) -> Option<Op> {
        self.other("cta");
        self.form.aligned = false;
        if self.other("warp") {
            return Self::flag(&mut self.form.sync).then_some(Op::Bar {
                reduce: None,
                warp: true,
                arrive: false,
            });
        }
        if self.other("arrive") {
            return Some(Op::Bar { reduce: None, warp: false, arrive: true });
        }
        if self.other("red") {
            let reduce = match (self.form.combine.take()?, self.ty()?) {
                (Combine::Popc, Type::U32) => ReduceOp::Popc,
                (Combine::And, Type::Pred) => ReduceOp::PredicateAnd,
                (Combine::Or, Type::Pred) => ReduceOp::PredicateOr,
                _ => return None,
            };
            return Some(Op::Bar { reduce: Some(reduce), warp: false, arrive: false });
        }
        Self::flag(&mut self.form.sync).then_some(Op::Bar { reduce: None, warp: false, arrive: false })
    }

    fn video(&mut self) -> Option<Op> {
        use Opcode as O;
        use VideoOp as V;
        let opcode = self.form.opcode;
        let lanes = match opcode.name().as_bytes().last() {
            Some(b'2') => 2,
            Some(b'4') => 4,
            _ => 1,
        };
        let op = match opcode {
            O::Vadd | O::Vadd2 | O::Vadd4 => V::Add,
            O::Vsub | O::Vsub2 | O::Vsub4 => V::Sub,
            O::Vabsdiff | O::Vabsdiff2 | O::Vabsdiff4 => V::AbsDiff,
            O::Vmin | O::Vmin2 | O::Vmin4 => V::Min,
            O::Vmax | O::Vmax2 | O::Vmax4 => V::Max,
            O::Vavrg2 | O::Vavrg4 => V::Avrg,
            O::Vset2 | O::Vset4 => V::Set(self.video_compare()?),
            // Of the scalar forms, those above are implemented.
            _ => return None,
        };
        let types = &[Type::U32, Type::S32];
        let (d, a, b) = if let V::Set(_) = op {
            let (a, b) = (self.ty_of(types)?, self.ty_of(types)?);
            (Type::U32, a, b)
        } else {
            (self.ty_of(types)?, self.ty_of(types)?, self.ty_of(types)?)
        };
        let sat = Self::flag(&mut self.form.sat);
        let secondary = if self.other("add") {
            Secondary::Add
        } else if lanes == 1 && self.other("min") {
            Secondary::Min
        } else if lanes == 1 && self.other("max") {
            Secondary::Max
        } else {
            Secondary::None
        };
        Some(Op::Video { op, lanes, d, a, b, sat, secondary, plus_one: false })
    }

    fn video_compare(&mut self) -> Option<Compare> {
        use Compare as C;
        self.one_of(&[
            ("eq", C::Eq),
            ("ne", C::Ne),
            ("lt", C::Lt),
            ("le", C::Le),
            ("gt", C::Gt),
            ("ge", C::Ge),
        ])
    }

    /// `m16n8k16` among the modifiers.
    fn shape(&mut self) -> Option<(u32, u32, u32)> {
        let at = self.form.others.iter().position(|m| parse_shape(m).is_some())?;
        parse_shape(&self.form.others.remove(at))
    }

    fn layout(&mut self) -> Option<bool> {
        let at = self.form.others.iter().position(|m| m == "row" || m == "col")?;
        Some(self.form.others.remove(at) == "row")
    }

    fn mma(&mut self) -> Option<Op> {
        let aligned = Self::flag(&mut self.form.sync) & Self::flag(&mut self.form.aligned);
        let (m, n, k) = self.shape()?;
        let (a_row, b_row) = (self.layout()?, self.layout()?);
        let (d, a, b, c) = (self.ty()?, self.ty()?, self.ty()?, self.ty()?);
        self.plain_rounding()?;
        let sat = self.other("satfinite");
        let shape = Box::new(MatrixShape { m, n, k, a, b, c, d, a_row, b_row, sat });
        (aligned && super::emit::matrix::is_supported_mma(&shape)).then_some(Op::Mma(shape))
    }

    /// Products are rounded to nearest, said or not.
    fn plain_rounding(&mut self) -> Option<()> {
        matches!(self.form.rounding.take(), None | Some(Rounding::Nearest)).then_some(())
    }

    fn wmma(&mut self) -> Option<Op> {
        let aligned = Self::flag(&mut self.form.sync) & Self::flag(&mut self.form.aligned);
        if !aligned {
            return None;
        }
        if self.other("mma") {
            let (m, n, k) = self.shape()?;
            let (a_row, b_row) = (self.layout()?, self.layout()?);
            let types = std::mem::take(&mut self.form.types);
            let (d, a, b, c) = match types[..] {
                [d, c] => (d, Type::F16, Type::F16, c),
                [d, a, b, c] => (d, a, b, c),
                _ => return None,
            };
            self.plain_rounding()?;
            let sat = self.other("satfinite");
            let shape = Box::new(MatrixShape { m, n, k, a, b, c, d, a_row, b_row, sat });
            return super::emit::matrix::is_supported_wmma(&shape).then_some(Op::WmmaMma(shape));
        }
        let load = self.other("load");
        if !load && !self.other("store") {
            return None;
        }
        use Fragment as F;
        let fragment = self.one_of(&[("a", F::A), ("b", F::B), ("c", F::C), ("d", F::D)])?;
        let row = self.layout()?;
        let (m, n, k) = self.shape()?;
        let shared = match self.take_space()? {
            None | Some(Space::Global) => false,
            Some(Space::Shared | Space::SharedCta) => true,
            _ => return None,
        };
        let ty = self.ty()?;
        let shape =
            Box::new(MatrixShape { m, n, k, a: ty, b: ty, c: ty, d: ty, a_row: row, b_row: row, sat: false });
        if !super::emit::matrix::is_supported_fragment(fragment, &shape) {
            return None;
        }
        Some(if load {
            Op::WmmaLoad { fragment, shape, row, shared }
        } else {
            Op::WmmaStore { shape, row, shared }
        })
    }
}

fn parse_shape(text: &str) -> Option<(u32, u32, u32)> {
    let (m, rest) = text.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    Some((m.parse().ok()?, n.parse().ok()?, k.parse().ok()?))
}

impl Op {
    /// Itself, if the only type is this one.
    fn with_type(self, reader: &mut Reader, ty: Type) -> Option<Self> {
        (reader.ty()? == ty).then_some(self)
    }
}
