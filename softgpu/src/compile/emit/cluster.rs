//! Clusters of blocks: each other's shared memory, and the barrier of all of them.
//!
//! See [`abi::Place`] for what an address of shared memory is in a kernel that knows those of other blocks.

use std::mem::offset_of;

use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::{Emitter, Result};
use crate::abi::{self, AccessKind, CutKind};
use crate::compile::op::{MemoryTarget, Order};
use crate::compile::opcode::Combine;
use rgpu_image::ptx::ast::{Operand, Type};

impl<'a> Emitter<'a, '_> {
    /// Where the block's own shared memory begins.
    pub(super) fn own_shared_base(&mut self) -> Value {
        self.block_field(types::I64, offset_of!(abi::Block, shared_base))
    }

    /// Where the shared memory of the cluster begins.
    pub(super) fn cluster_shared_base(&mut self) -> Value {
        self.block_field(types::I64, offset_of!(abi::Block, cluster.shared_base))
    }

    /// What addresses of shared memory in registers are counted from.
    pub(super) fn shared_base(&mut self) -> Value {
        if self.cx.cluster { self.cluster_shared_base() } else { self.own_shared_base() }
    }

    /// The address, counted so, of a place in the block's own shared memory.
    pub(super) fn shared_address(&mut self, at: i64) -> Value {
        if !self.cx.cluster {
            return self.iconst(types::I64, at);
        }
        let own = self.block_field(types::I32, offset_of!(abi::Block, cluster.shared_offset));
        let own = self.add_const(own, at);
        self.b.ins().uextend(types::I64, own)
    }

    /// An operand's address as one of 32 bits in the shared memory of the cluster.
    fn cluster_address(&mut self, ty: Type, generic: bool, operand: &'a Operand) -> Result<Value> {
        let value = self.src(operand, ty)?;
        if generic {
            let address = self.resize(value, types::I64, false);
            return Ok(self.offset_in_cluster(address));
        }
        Ok(self.resize(value, types::I32, false))
    }

    /// A generic address as one of 32 bits in the shared memory of the cluster.
    fn offset_in_cluster(&mut self, address: Value) -> Value {
        let base = self.cluster_shared_base();
        let at = self.b.ins().isub(address, base);
        self.b.ins().ireduce(types::I32, at)
    }

    /// The address, of 64 bits, in the shared memory of the cluster's block of a rank, where one of 32 bits lies in that of its block;
    /// it is counted from the beginning of the cluster's.
    fn at_rank(&mut self, at: Value, rank: Value) -> Value {
        let at = self.b.ins().band_imm_u(at, i64::from(abi::CLUSTER_STRIDE) - 1);
        let block = self.b.ins().ishl_imm_u(rank, i64::from(abi::CLUSTER_SHIFT));
        let at = self.b.ins().bor(block, at);
        self.b.ins().uextend(types::I64, at)
    }

    /// `mapa`
    pub(crate) fn mapa(&mut self, ty: Type, generic: bool, o: &'a [Operand]) -> Result<()> {
        let at = self.cluster_address(ty, generic, self.operand(o, 1)?)?;
        let rank = self.src(self.operand(o, 2)?, Type::U32)?;
        let mut value = self.at_rank(at, rank);
        if generic {
            let base = self.cluster_shared_base();
            value = self.b.ins().iadd(base, value);
        }
        let value = self.resize(value, super::int_class(ty.bits()), false);
        self.set(self.operand(o, 0)?, ty, value)
    }

    /// `getctarank`
    pub(crate) fn get_cta_rank(&mut self, ty: Type, generic: bool, o: &'a [Operand]) -> Result<()> {
        let at = self.cluster_address(ty, generic, self.operand(o, 1)?)?;
        let rank = self.b.ins().ushr_imm_u(at, i64::from(abi::CLUSTER_SHIFT));
        self.set(self.operand(o, 0)?, Type::U32, rank)
    }

    /// `barrier.cluster`
    pub(crate) fn bar_cluster(&mut self, wait: bool, _: &'a [Operand]) -> Result<bool> {
        let next = self.behind_cut()?;
        self.stop_here(if wait { CutKind::ClusterWait } else { CutKind::ClusterArrive }, false, next, &[]);
        self.go_on(next)
    }

    /// `st.async`: stored at once; then the barrier is told.
    pub(crate) fn st_async(&mut self, ty: Type, vector: u32, o: &'a [Operand]) -> Result<()> {
        let (what, barrier) = o.split_at(2.min(o.len()));
        self.st(MemoryTarget::Shared, ty, vector, Order::Weak, what)?;
        self.told(barrier, ty.bytes() * vector)
    }

    /// `red.async`: likewise.
    pub(crate) fn red_async(&mut self, op: Combine, ty: Type, o: &'a [Operand]) -> Result<()> {
        let (what, barrier) = o.split_at(2.min(o.len()));
        self.atom(true, op, ty, 1, false, what)?;
        self.told(barrier, ty.bytes())
    }

    /// Has something done for each block of the cluster that an operand of 16 bits names, by its rank.
    pub(super) fn in_each_block(
        &mut self,
        blocks: &'a Operand,
        what: impl FnOnce(&mut Self, Value) -> Result<()>,
    ) -> Result<()> {
        let blocks = self.src(blocks, Type::U16)?;
        let blocks = self.as_int(blocks);
        let blocks = self.resize(blocks, types::I32, false);
        let [next, look, this, step, done] = std::array::from_fn(|_| self.b.create_block());
        let left = self.b.append_block_param(next, types::I32);
        let rank = self.b.append_block_param(next, types::I32);
        let first = self.iconst(types::I32, 0);
        self.b.ins().jump(next, &[blocks.into(), first.into()]);
        self.b.switch_to_block(next);
        self.b.ins().brif(left, look, &[], done, &[]);
        self.b.switch_to_block(look);
        let named = self.b.ins().band_imm_u(left, 1);
        self.b.ins().brif(named, this, &[], step, &[]);
        self.b.switch_to_block(this);
        what(self, rank)?;
        self.b.ins().jump(step, &[]);
        self.b.switch_to_block(step);
        let others = self.b.ins().ushr_imm_u(left, 1);
        let following = self.add_const(rank, 1);
        self.b.ins().jump(next, &[others.into(), following.into()]);
        self.b.switch_to_block(done);
        Ok(())
    }

    /// The address that lies in the shared memory of the cluster's block of a rank where this one lies in its block's.
    pub(super) fn in_block(&mut self, address: Value, rank: Value) -> Value {
        let at = self.offset_in_cluster(address);
        let at = self.at_rank(at, rank);
        let base = self.cluster_shared_base();
        self.b.ins().iadd(base, at)
    }

    /// The address of a barrier in the block's own shared memory, which stands for those of other blocks.
    pub(super) fn own_barrier(&mut self, barrier: &'a Operand) -> Result<Value> {
        let barrier = self.unseen(|e| e.target_of(MemoryTarget::Shared, barrier, 8))?;
        Ok(self.whole_address(barrier))
    }

    /// Tells the barrier of the cluster's block of a rank that so many bytes are there.
    pub(super) fn complete_in(&mut self, barrier: Value, rank: Value, bytes: Value) -> Result<()> {
        let barrier = self.in_block(barrier, rank);
        let barrier = self.place_of(AccessKind::Barrier, barrier, 8)?;
        self.complete(barrier, bytes);
        Ok(())
    }

    /// Tells a barrier that so many bytes are there.
    fn told(&mut self, barrier: &'a [Operand], bytes: u32) -> Result<()> {
        self.seen_as(AccessKind::Barrier);
        let barrier = self.target_of(MemoryTarget::Shared, self.operand(barrier, 0)?, 8)?;
        let bytes = self.iconst(types::I32, bytes.into());
        self.complete(barrier, bytes);
        Ok(())
    }
}
