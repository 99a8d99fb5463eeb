//! Decodes an opcode with its modifiers, and refuses it unless every modifier was understood.

mod float;
mod groups;
mod memory;

use super::op::*;
use crate::abi::{ReduceOp, ShuffleMode, VoteMode};
use rgpu_image::ptx::ast::{Form, Opcode, Space, Type};
use rgpu_image::ptx::opcode::{Combine, Compare, MulPart, Rounding};

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
}

impl Op {
    /// Itself, if the only type is this one.
    fn with_type(self, reader: &mut Reader, ty: Type) -> Option<Self> {
        (reader.ty()? == ty).then_some(self)
    }
}
