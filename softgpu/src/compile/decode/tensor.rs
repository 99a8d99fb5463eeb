//! Bulk copies, tensor maps and `wgmma`.

use super::Reader;
use crate::abi::tensor::{BulkReduce, Number, TensorOp};
use crate::compile::emit::group;
use crate::compile::op::*;
use crate::compile::opcode::{Scope, Semantics};
use rgpu_device::tensor_map::Field;
use rgpu_image::ptx::ast::{Space, Type};

/// Which places of a tensor are copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Tile,
    /// Pixels, at a distance that the instruction says.
    Im2col,
    /// Pixels.
    Im2colNoOffsets,
}

impl Reader {
    /// `cp.async.bulk` and `cp.reduce.async.bulk`: copies are made at once, and prefetched is nothing.
    pub(super) fn bulk(&mut self) -> Option<Op> {
        let spaces = std::mem::take(&mut self.form.spaces);
        let told = self.other("mbarrier::complete_tx::bytes");
        let grouped = self.other("bulk_group");
        let multicast = self.other("multicast::cluster");
        // A policy of the cache's may follow the operands, which changes nothing.
        self.other("L2::cache_hint");
        let prefetch = self.other("prefetch");
        let reduces = self.other("reduce");
        let into_shared =
            matches!(spaces[..], [Space::Shared | Space::SharedCta | Space::SharedCluster, Space::Global])
                && told;
        let from_shared = matches!(spaces[..], [Space::Global, Space::Shared | Space::SharedCta]) && grouped;
        let within = spaces[..] == [Space::SharedCluster, Space::SharedCta] && told;
        if multicast && spaces[..] != [Space::SharedCluster, Space::Global] {
            return None;
        }
        let fetched = prefetch && !reduces && spaces[..] == [Space::Global];
        let tensor = self.other("tensor");
        if fetched && !self.other("L2") || told && grouped || reduces && !from_shared {
            return None;
        }
        let reduce = if reduces { Some(self.bulk_reduce()?) } else { None };
        if tensor {
            let rank = self.one_of(&[("1d", 1), ("2d", 2), ("3d", 3), ("4d", 4), ("5d", 5)])?;
            let modes =
                [("tile", Mode::Tile), ("im2col", Mode::Im2col), ("im2col_no_offs", Mode::Im2colNoOffsets)];
            let mode = self.one_of(&modes).unwrap_or(Mode::Tile);
            let im2col = mode != Mode::Tile;
            if im2col && (rank < 3 || (mode == Mode::Im2colNoOffsets) != from_shared) {
                return None;
            }
            return match (fetched, into_shared, from_shared) {
                (true, ..) => Some(Op::Nop),
                (_, true, _) => Some(Op::Tensor { op: TensorOp::Load { rank, im2col, multicast } }),
                (.., true) => Some(Op::Tensor { op: TensorOp::Store { rank, im2col, reduce } }),
                _ => None,
            };
        }
        if within && !prefetch {
            return Some(Op::CpBulk { shared: true, multicast: false });
        }
        match (fetched, into_shared, from_shared, reduce) {
            (true, ..) => Some(Op::Nop),
            (_, true, ..) => Some(Op::CpBulk { shared: false, multicast }),
            (_, _, true, None) => Some(Op::Tensor { op: TensorOp::Copy { reduce: None } }),
            (_, _, true, Some(op)) => {
                let number = self.bulk_number(op)?;
                Some(Op::Tensor { op: TensorOp::Copy { reduce: Some((op, number)) } })
            }
            _ => None,
        }
    }

    /// How values are combined.
    fn bulk_reduce(&mut self) -> Option<BulkReduce> {
        use BulkReduce::*;
        let all = [Add, Min, Max, Inc, Dec, And, Or, Xor];
        let names = ["add", "min", "max", "inc", "dec", "and", "or", "xor"];
        names.iter().zip(all).find(|(name, _)| self.other(name)).map(|(_, op)| op)
    }

    /// What is combined, where the instruction says so.
    fn bulk_number(&mut self, op: BulkReduce) -> Option<Number> {
        let bits = matches!(op, BulkReduce::And | BulkReduce::Or | BulkReduce::Xor);
        let noftz = Self::flag(&mut self.form.noftz);
        let number = match self.ty()? {
            Type::B32 if bits => Number::U32,
            Type::B64 if bits => Number::U64,
            _ if bits => return None,
            Type::U32 => Number::U32,
            Type::S32 => Number::S32,
            Type::U64 => Number::U64,
            Type::S64 => Number::S64,
            Type::F16 => Number::F16,
            Type::Bf16 => Number::Bf16,
            Type::F32 => Number::F32,
            Type::F64 => Number::F64,
            _ => return None,
        };
        let half = matches!(number, Number::F16 | Number::Bf16);
        (number.allows(op) && noftz == (half && op == BulkReduce::Add)).then_some(number)
    }

    /// `setmaxnreg`: threads have as many registers as they want.
    pub(crate) fn setmaxnreg(&mut self) -> Option<Op> {
        self.sync_aligned()?;
        self.ty_of(&[Type::U32])?;
        (self.other("inc") || self.other("dec")).then_some(Op::Nop)
    }

    /// `tensormap`
    pub(crate) fn tensormap(&mut self) -> Option<Op> {
        if self.other("cp_fenceproxy") {
            self.sync_aligned()?;
            let spaces = std::mem::take(&mut self.form.spaces);
            let sane = matches!(spaces[..], [Space::Global, Space::Shared | Space::SharedCta])
                && self.form.semantics.take() == Some(Semantics::Release)
                && matches!(
                    self.form.scope.take(),
                    Some(Scope::Cta | Scope::Cluster | Scope::Gpu | Scope::Sys)
                )
                && self.other("tensormap::generic");
            return sane.then_some(Op::Tensor { op: TensorOp::CopyMap });
        }
        let field = (self.other("replace") && self.other("tile") && self.other("b1024"))
            .then(|| {
                self.one_of(&[
                    ("global_address", Field::Address),
                    ("rank", Field::Rank),
                    ("box_dim", Field::Box),
                    ("global_dim", Field::Size),
                    ("global_stride", Field::Stride),
                    ("element_stride", Field::Step),
                    ("elemtype", Field::Element),
                    ("interleave_layout", Field::Interleave),
                    ("swizzle_mode", Field::Swizzle),
                    ("fill_mode", Field::Fill),
                ])
            })
            .flatten()?;
        let long = matches!(field, Field::Address | Field::Stride);
        self.ty_of(&[if long { Type::B64 } else { Type::B32 }])?;
        let shared = match self.take_space()? {
            None | Some(Space::Global) => false,
            Some(Space::Shared | Space::SharedCta) => true,
            Some(_) => return None,
        };
        Some(Op::ReplaceMap { field, shared })
    }

    /// `wgmma`: products are there at once, so that there is nothing to wait for.
    pub(crate) fn wgmma(&mut self) -> Option<Op> {
        self.sync_aligned()?;
        if self.other("fence") || self.other("commit_group") || self.other("wait_group") {
            return Some(Op::Nop);
        }
        if !self.other("mma_async") {
            return None;
        }
        let sparse = self.other("sp");
        let (m, n, k) = self.shape()?;
        let (d, a, b) = (self.ty()?, self.ty()?, self.ty()?);
        let sat = self.other("satfinite");
        let shape = MatrixShape { m, n, k, a, b, c: d, d, a_row: true, b_row: false, sat, and: false };
        let exists = if sparse { group::is_supported_sparse(&shape) } else { group::is_supported(&shape) };
        exists.then_some(Op::Wgmma { shape, sparse })
    }
}
