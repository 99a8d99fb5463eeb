//! Opcodes on several small numbers at once: video and matrix instructions.

use super::Reader;
use crate::compile::op::*;
use crate::compile::opcode::{Compare, Opcode, Rounding};
use rgpu_image::ptx::ast::{Space, Type};

impl Reader {
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

    /// `vadd` and its kin.
    pub(crate) fn video(&mut self) -> Option<Op> {
        use Opcode as O;
        use VideoOp as V;
        let opcode = self.form.opcode;
        let lanes = match opcode.row().name.as_bytes().last() {
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
            O::Vset | O::Vset2 | O::Vset4 => V::Set(self.video_compare()?),
            O::Vshl => V::Shl { wrap: self.one_of(&[("wrap", true), ("clamp", false)])? },
            O::Vshr => V::Shr { wrap: self.one_of(&[("wrap", true), ("clamp", false)])? },
            _ => return None,
        };
        let types = &[Type::U32, Type::S32];
        let (d, a, b) = if let V::Set(_) = op {
            let (a, b) = (self.ty_of(types)?, self.ty_of(types)?);
            (Type::U32, a, b)
        } else {
            (self.ty_of(types)?, self.ty_of(types)?, self.ty_of(types)?)
        };
        if matches!(op, V::Shl { .. } | V::Shr { .. }) && b != Type::U32 {
            return None;
        }
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
        Some(Op::Video { op, lanes, d, a, b, sat, secondary })
    }

    /// `vmad`
    pub(crate) fn vmad(&mut self) -> Option<Op> {
        let types = &[Type::U32, Type::S32];
        let (_, a, b) = (self.ty_of(types)?, self.ty_of(types)?, self.ty_of(types)?);
        let plus_one = self.other("po");
        let sat = Self::flag(&mut self.form.sat);
        let shift = self.one_of(&[("shr7", 7), ("shr15", 15)]).unwrap_or(0);
        Some(Op::VideoMad { a, b, plus_one, sat, shift })
    }

    /// `m16n8k16` among the modifiers.
    pub(super) fn shape(&mut self) -> Option<(u32, u32, u32)> {
        let at = self.form.others.iter().position(|m| parse_shape(m).is_some())?;
        parse_shape(&self.form.others.remove(at))
    }

    /// The next `row` or `col` among the modifiers: whether it is the former.
    fn layout(&mut self) -> Option<bool> {
        let at = self.form.others.iter().position(|m| m == "row" || m == "col")?;
        Some(self.form.others.remove(at) == "row")
    }

    /// `mma`
    pub(crate) fn mma(&mut self) -> Option<Op> {
        self.sync_aligned()?;
        let sparse = self.other("sp") || self.other("sp::ordered_metadata");
        let (m, n, k) = self.shape()?;
        let (a_row, b_row) = (self.layout()?, self.layout()?);
        let (d, a, b, c) = (self.ty()?, self.ty()?, self.ty()?, self.ty()?);
        self.plain_rounding()?;
        let sat = self.other("satfinite");
        let and = self.counted_bits(a)?;
        let shape = MatrixShape { m, n, k, a, b, c, d, a_row, b_row, sat, and };
        use crate::compile::emit::matrix;
        if sparse {
            return matrix::is_supported_sparse(&shape).then_some(Op::MmaSparse { shape });
        }
        matrix::is_supported_mma(&shape).then_some(Op::Mma { shape })
    }

    /// Products are rounded to nearest, said or not.
    fn plain_rounding(&mut self) -> Option<()> {
        matches!(self.form.rounding.take(), None | Some(Rounding::Nearest)).then_some(())
    }

    /// Whether products of single bits are those that both have (`.and.popc`), or that one has (`.xor.popc`).
    fn counted_bits(&mut self, ty: Type) -> Option<bool> {
        if ty != Type::B1 {
            return Some(false);
        }
        let and = self.one_of(&[("and", true), ("xor", false)])?;
        self.other("popc").then_some(and)
    }

    /// `wmma`
    pub(crate) fn wmma(&mut self) -> Option<Op> {
        self.sync_aligned()?;
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
            let and = self.counted_bits(a)?;
            let shape = MatrixShape { m, n, k, a, b, c, d, a_row, b_row, sat, and };
            return crate::compile::emit::matrix::is_supported_wmma(&shape).then_some(Op::WmmaMma { shape });
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
        let (a_row, b_row) = (row, row);
        let shape = MatrixShape { m, n, k, a: ty, b: ty, c: ty, d: ty, a_row, b_row, sat: false, and: false };
        if !crate::compile::emit::matrix::is_supported_fragment(fragment, &shape) {
            return None;
        }
        Some(if load {
            Op::WmmaLoad { fragment, shape, row, shared }
        } else {
            Op::WmmaStore { shape, row, shared }
        })
    }

    /// `ldmatrix`
    pub(crate) fn ldmatrix(&mut self) -> Option<Op> {
        let (count, transpose, shared) = self.moved_matrices()?;
        Some(Op::Ldmatrix { count, transpose, shared })
    }

    /// `stmatrix`
    pub(crate) fn stmatrix(&mut self) -> Option<Op> {
        let (count, transpose, shared) = self.moved_matrices()?;
        Some(Op::Stmatrix { count, transpose, shared })
    }

    /// How many 8 by 8 matrices are loaded or stored, whether transposed, and whether their addresses are those of shared memory.
    fn moved_matrices(&mut self) -> Option<(u32, bool, bool)> {
        self.sync_aligned()?;
        let count = self.one_of(&[("x1", 1), ("x2", 2), ("x4", 4)])?;
        let transpose = self.other("trans");
        let shared = match self.take_space()? {
            None => false,
            Some(Space::Shared | Space::SharedCta) => true,
            Some(_) => return None,
        };
        self.ty_of(&[Type::B16])?;
        self.other("m8n8").then_some((count, transpose, shared))
    }

    /// `movmatrix`
    pub(crate) fn movmatrix(&mut self) -> Option<Op> {
        self.sync_aligned()?;
        self.ty_of(&[Type::B16])?;
        (self.other("trans") && self.other("m8n8")).then_some(Op::Movmatrix)
    }
}

fn parse_shape(text: &str) -> Option<(u32, u32, u32)> {
    let (m, rest) = text.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    Some((m.parse().ok()?, n.parse().ok()?, k.parse().ok()?))
}
