//! Decodes an opcode with its modifiers, and refuses it unless every modifier was understood.
//!
//! Which function of [`Reader`] decodes an opcode, its row in the table says ([`super::opcode`]).

mod compare;
mod control;
mod convert;
mod float;
mod groups;
mod integer;
mod memory;
mod tensor;
mod texture;
mod warp;

use super::op::*;
use super::opcode::{Form, Rounding};
use rgpu_image::ptx::ast::{Space, Type};

/// What an opcode with its modifiers means; `None` when it is not implemented.
pub(super) fn decode(form: &Form) -> Option<Op> {
    let mut reader = Reader { form: form.clone() };
    let op = (form.opcode.row().decode)(&mut reader)?;
    reader.is_empty().then_some(op)
}

/// A form from which everything that was understood has been taken.
pub(super) struct Reader {
    form: Form,
}

const INTS: &[Type] = &[Type::U16, Type::U32, Type::U64, Type::S16, Type::S32, Type::S64];
const BITS: &[Type] = &[Type::B16, Type::B32, Type::B64];
const WORDS: &[Type] = &[Type::U32, Type::S32, Type::U64, Type::S64];
const HALVES: &[Type] = &[Type::F16, Type::F16x2, Type::Bf16, Type::Bf16x2];

impl Reader {
    /// Of opcodes that cannot be executed, whatever their modifiers are. It has one address, by which tests know it.
    #[inline(never)]
    pub(super) fn refused(&mut self) -> Option<Op> {
        None
    }

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

    /// Takes `.sync` and `.aligned`, which have to be there.
    fn sync_aligned(&mut self) -> Option<()> {
        let aligned = Self::flag(&mut self.form.sync) & Self::flag(&mut self.form.aligned);
        aligned.then_some(())
    }

    /// Takes `.sync`, which has to be there.
    fn sync(&mut self) -> Option<()> {
        Self::flag(&mut self.form.sync).then_some(())
    }
}
