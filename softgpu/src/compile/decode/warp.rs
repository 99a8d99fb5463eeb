//! Opcodes by which the lanes of a warp tell each other something.

use super::Reader;
use crate::abi::{ReduceOp, ShuffleMode, VoteMode};
use crate::compile::op::*;
use crate::compile::opcode::Combine;
use rgpu_image::ptx::ast::Type;

impl Reader {
    /// `shfl`
    pub(crate) fn shfl(&mut self) -> Option<Op> {
        use ShuffleMode as S;
        let modes = [("up", S::Up), ("down", S::Down), ("bfly", S::Butterfly), ("idx", S::Index)];
        let mode = self.one_of(&modes)?;
        self.ty_of(&[Type::B32])?;
        Some(Op::Shfl { mode, sync: Self::flag(&mut self.form.sync) })
    }

    /// `vote`
    pub(crate) fn vote(&mut self) -> Option<Op> {
        use VoteMode as V;
        let mode = if Self::flag(&mut self.form.uni) {
            V::Uniform
        } else {
            self.one_of(&[("all", V::All), ("any", V::Any), ("ballot", V::Ballot)])?
        };
        self.ty_of(&[if mode == V::Ballot { Type::B32 } else { Type::Pred }])?;
        Some(Op::Vote { mode, sync: Self::flag(&mut self.form.sync) })
    }

    /// `match`
    pub(crate) fn lane_match(&mut self) -> Option<Op> {
        let all = self.one_of(&[("all", true), ("any", false)])?;
        self.sync()?;
        Some(Op::Match { all, ty: self.ty_of(&[Type::B32, Type::B64])? })
    }

    /// `redux`
    pub(crate) fn redux(&mut self) -> Option<Op> {
        let combine = self.form.combine.take()?;
        self.sync()?;
        let reduce = match (combine, self.ty()?) {
            (Combine::Add, Type::U32 | Type::S32) => ReduceOp::Add,
            (Combine::Min, Type::S32) => ReduceOp::MinS32,
            (Combine::Max, Type::S32) => ReduceOp::MaxS32,
            (Combine::Min, Type::U32) => ReduceOp::MinU32,
            (Combine::Max, Type::U32) => ReduceOp::MaxU32,
            (Combine::And, Type::B32) => ReduceOp::And,
            (Combine::Or, Type::B32) => ReduceOp::Or,
            (Combine::Xor, Type::B32) => ReduceOp::Xor,
            _ => return None,
        };
        Some(Op::Redux { reduce })
    }

    /// `activemask`
    pub(crate) fn activemask(&mut self) -> Option<Op> {
        self.ty_of(&[Type::B32])?;
        Some(Op::ActiveMask)
    }

    /// `elect`
    pub(crate) fn elect(&mut self) -> Option<Op> {
        self.sync()?;
        Some(Op::Elect)
    }
}
