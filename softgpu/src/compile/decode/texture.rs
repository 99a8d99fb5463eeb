//! Opcodes on textures and surfaces.

use super::Reader;
use crate::abi::texture::{Detail, Field, Geometry, Outside, Reduce, TextureOp};
use crate::compile::op::*;
use crate::compile::opcode::Combine;
use rgpu_image::ptx::ast::Type;

impl Reader {
    fn geometry(&mut self) -> Option<Geometry> {
        use Geometry as G;
        self.one_of(&[
            ("1d", G::Line),
            ("2d", G::Plane),
            ("3d", G::Volume),
            ("a1d", G::Lines),
            ("a2d", G::Planes),
            ("cube", G::Cube),
            ("acube", G::Cubes),
        ])
    }

    /// The geometry of a surface, which is no cube.
    fn surface_geometry(&mut self) -> Option<Geometry> {
        self.geometry().filter(|geometry| !geometry.is_cube())
    }

    fn outside(&mut self) -> Option<Outside> {
        self.one_of(&[("trap", Outside::Trap), ("clamp", Outside::Clamp), ("zero", Outside::Zero)])
    }

    /// Takes `.v4`.
    fn four(&mut self) -> Option<()> {
        (std::mem::replace(&mut self.form.vector, 1) == 4).then_some(())
    }

    /// Takes how many elements there are, as a power of two.
    fn elements(&mut self) -> Option<u8> {
        match std::mem::replace(&mut self.form.vector, 1) {
            1 => Some(0),
            2 => Some(1),
            4 => Some(2),
            _ => None,
        }
    }

    /// `tex`
    pub(crate) fn tex(&mut self) -> Option<Op> {
        let detail = self.one_of(&[
            ("level", Detail::Level),
            ("grad", Detail::Gradient),
            // The first level, which is what an instruction without a level reads, too.
            ("base", Detail::Base),
        ]);
        let detail = detail.unwrap_or(Detail::Base);
        let geometry = self.geometry()?;
        self.four()?;
        self.ty_of(&[Type::U32, Type::S32, Type::F32])?;
        let whole = self.ty_of(&[Type::S32, Type::F32])? == Type::S32;
        let exists = match detail {
            Detail::Base => !(whole && geometry.is_cube()),
            Detail::Level => !whole,
            Detail::Gradient => !whole && !geometry.is_cube(),
        };
        exists.then_some(Op::Texture { op: TextureOp::Sample { geometry, detail, whole } })
    }

    /// `tld4`
    pub(crate) fn tld4(&mut self) -> Option<Op> {
        let channel = self.one_of(&[("r", 0), ("g", 1), ("b", 2), ("a", 3)])?;
        let geometry = self.geometry().filter(|geometry| geometry.dimensions() == 2 || geometry.is_cube())?;
        self.four()?;
        self.ty_of(&[Type::U32, Type::S32, Type::F32])?;
        self.ty_of(&[Type::F32])?;
        Some(Op::Texture { op: TextureOp::Gather { geometry, channel } })
    }

    /// `txq`, `suq`
    pub(crate) fn texture_query(&mut self) -> Option<Op> {
        let level = self.other("level");
        let field = self.one_of(&[
            ("width", Field::Width),
            ("height", Field::Height),
            ("depth", Field::Depth),
            ("array_size", Field::Layers),
            ("num_mipmap_levels", Field::Levels),
            ("normalized_coords", Field::Normalized),
        ])?;
        self.ty_of(&[Type::B32])?;
        let exists = !level || matches!(field, Field::Width | Field::Height | Field::Depth);
        exists.then_some(Op::Texture { op: TextureOp::Query { field, level } })
    }

    /// `istypep`
    pub(crate) fn istypep(&mut self) -> Option<Op> {
        let surface = self.ty_of(&[Type::TexRef, Type::SurfRef])? == Type::SurfRef;
        Some(Op::Texture { op: TextureOp::Is { surface } })
    }

    /// What is moved: bytes of an element, and how many there are, as powers of two.
    fn surface_data(&mut self) -> Option<(u8, u8)> {
        let count = self.elements()?;
        let size = match self.ty_of(&[Type::B8, Type::B16, Type::B32, Type::B64])? {
            Type::B8 => 0,
            Type::B16 => 1,
            Type::B32 => 2,
            _ => 3,
        };
        // No access is wider than 16 bytes.
        (size + count <= 4).then_some((size, count))
    }

    /// `suld`
    pub(crate) fn suld(&mut self) -> Option<Op> {
        if !self.other("b") {
            return None;
        }
        let geometry = self.surface_geometry()?;
        let (size, count) = self.surface_data()?;
        let outside = self.outside()?;
        Some(Op::Texture { op: TextureOp::Load { geometry, outside, size, count } })
    }

    /// `sust`
    pub(crate) fn sust(&mut self) -> Option<Op> {
        if self.other("p") {
            let geometry = self.surface_geometry()?;
            let count = self.elements()?;
            self.ty_of(&[Type::B32])?;
            let outside = self.outside()?;
            return Some(Op::Texture { op: TextureOp::StoreTexel { geometry, outside, count } });
        }
        if !self.other("b") {
            return None;
        }
        let geometry = self.surface_geometry()?;
        let (size, count) = self.surface_data()?;
        let outside = self.outside()?;
        Some(Op::Texture { op: TextureOp::Store { geometry, outside, size, count } })
    }

    /// `sured`
    pub(crate) fn sured(&mut self) -> Option<Op> {
        if !self.other("b") {
            return None;
        }
        let combine = self.form.combine.take()?;
        let geometry = self.surface_geometry()?;
        let ty = self.ty()?;
        let wide = ty.bits() == 64;
        let reduce = match (combine, ty) {
            (Combine::Add, Type::U32 | Type::S32 | Type::U64) => Reduce::Add,
            (Combine::Min, Type::S32 | Type::S64) => Reduce::MinSigned,
            (Combine::Max, Type::S32 | Type::S64) => Reduce::MaxSigned,
            (Combine::Min, Type::U32 | Type::U64) => Reduce::MinUnsigned,
            (Combine::Max, Type::U32 | Type::U64) => Reduce::MaxUnsigned,
            (Combine::And, Type::B32 | Type::B64) => Reduce::And,
            (Combine::Or, Type::B32 | Type::B64) => Reduce::Or,
            _ => return None,
        };
        let outside = self.outside()?;
        Some(Op::Texture { op: TextureOp::Reduce { geometry, outside, reduce, wide } })
    }
}
