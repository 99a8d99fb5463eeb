//! Bulk copies and tensor maps: operands are put where the helper finds them ([`abi::tensor`]).

use std::mem::offset_of;

use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::{Emitter, Result};
use crate::abi;
use crate::abi::tensor::{BYTES, COORDINATES, DISTANCES, RANK, SHARED, TensorOp, VALUE};
use crate::compile::op::MemoryTarget;
use rgpu_device::tensor_map::{Field, TENSOR_MAP_BYTES};
use rgpu_image::ptx::ast::{AddressBase, Operand, Type};

impl<'a> Emitter<'a, '_> {
    /// `cp.async.bulk.tensor`, `cp.async.bulk` into global memory, the same with `cp.reduce`, `tensormap.cp_fenceproxy`
    pub(crate) fn tensor(&mut self, op: TensorOp, o: &'a [Operand]) -> Result<()> {
        match op {
            TensorOp::Load { rank, im2col, multicast } => {
                let mut at = self.shared_offset(self.operand(o, 0)?)?;
                if multicast {
                    at = self.b.ins().band_imm_u(at, i64::from(abi::CLUSTER_STRIDE) - 1);
                }
                self.put_word(SHARED, at);
                let map = self.tensor_place(self.operand(o, 1)?)?;
                if im2col {
                    let distances = self.vector(self.operand(o, 3)?);
                    if distances.len() + 2 != usize::from(rank) {
                        return Err(self.refuse("As many distances as a pixel has coordinates are wanted"));
                    }
                    for (index, distance) in distances.iter().enumerate() {
                        let distance = self.src(distance, Type::U16)?;
                        self.put_word(DISTANCES + index, distance);
                    }
                }
                if multicast {
                    let barrier = self.own_barrier(self.operand(o, 2)?)?;
                    let blocks = self.operand(o, 3 + usize::from(im2col))?;
                    return self.in_each_block(blocks, |e, rank| {
                        e.put_word(RANK, rank);
                        e.call_tensor(map, op)?;
                        let bytes = e.word(BYTES);
                        e.complete_in(barrier, rank, bytes)
                    });
                }
                self.seen_as(abi::AccessKind::Barrier);
                let barrier = self.target_of(MemoryTarget::Shared, self.operand(o, 2)?, 8)?;
                self.call_tensor(map, op)?;
                let bytes = self.word(BYTES);
                self.complete(barrier, bytes);
                Ok(())
            }
            TensorOp::Store { .. } => {
                let map = self.tensor_place(self.operand(o, 0)?)?;
                let at = self.shared_offset(self.operand(o, 1)?)?;
                self.put_word(SHARED, at);
                self.call_tensor(map, op)
            }
            TensorOp::Copy { .. } => {
                let to = self.plain_address(self.operand(o, 0)?)?;
                let at = self.shared_offset(self.operand(o, 1)?)?;
                self.put_word(SHARED, at);
                let bytes = self.src(self.operand(o, 2)?, Type::U32)?;
                self.put_word(BYTES, bytes);
                self.call_tensor(to, op)
            }
            TensorOp::CopyMap => {
                if !matches!(self.operand(o, 2)?, Operand::Int(size, _) if *size == TENSOR_MAP_BYTES as _) {
                    return Err(self.refuse("A tensor map has 128 bytes"));
                }
                let to = self.plain_address(self.operand(o, 0)?)?;
                let at = self.shared_offset(self.operand(o, 1)?)?;
                self.put_word(SHARED, at);
                self.call_tensor(to, op)
            }
            TensorOp::Replace { .. } => Err(self.refuse("A field is replaced by an operation of its own")),
        }
    }

    /// `tensormap.replace`
    pub(crate) fn replace_map(&mut self, field: Field, shared: bool, o: &'a [Operand]) -> Result<()> {
        let map = self.operand(o, 0)?;
        let map = if shared {
            let at = self.shared_offset(map)?;
            let at = self.b.ins().uextend(types::I64, at);
            let window = self.own_shared_base();
            self.b.ins().iadd(window, at)
        } else {
            self.plain_address(map)?
        };
        let (ordinal, value) = match o {
            [_, Operand::Int(ordinal, _), value] => (u8::try_from(*ordinal).unwrap_or(u8::MAX), value),
            [_, value] => (0, value),
            _ => return Err(self.refuse("Which field is replaced has to be a constant")),
        };
        if ordinal >= field.count() {
            return Err(self.refuse("A tensor map has no such field"));
        }
        let long = matches!(field, Field::Address | Field::Stride);
        let value = self.src(value, if long { Type::B64 } else { Type::B32 })?;
        let value = self.as_int(value);
        let value = self.resize(value, types::I64, false);
        self.put_word(VALUE, value);
        let high = self.b.ins().ushr_imm_u(value, 32);
        self.put_word(VALUE + 1, high);
        self.call_tensor(map, TensorOp::Replace { field, ordinal })
    }

    /// The offset in the block's own shared memory that an address operand means, of 32 bits.
    fn shared_offset(&mut self, operand: &Operand) -> Result<Value> {
        let (base, offset) = self.parts(operand)?;
        let at = match base {
            AddressBase::Reg(reg) => {
                let value = self.register(reg);
                let value = self.as_int(value);
                let value = self.resize(value, types::I32, false);
                self.add_const(value, offset)
            }
            AddressBase::Symbol(symbol) => self.symbol(symbol, offset)?,
            AddressBase::Absolute => self.iconst(types::I64, offset),
        };
        let at = self.resize(at, types::I32, false);
        if !self.cx.cluster {
            return Ok(at);
        }
        // Another block's memory is out of bounds then.
        let own = self.block_field(types::I32, offset_of!(abi::Block, cluster.shared_offset));
        Ok(self.b.ins().isub(at, own))
    }

    /// The address that an operand means, as a number.
    fn plain_address(&mut self, operand: &Operand) -> Result<Value> {
        let (base, offset) = self.parts(operand)?;
        match base {
            AddressBase::Reg(reg) => {
                let address = self.address_register(MemoryTarget::Generic, reg)?;
                Ok(self.add_const(address, offset))
            }
            AddressBase::Absolute => Ok(self.iconst(types::I64, offset)),
            AddressBase::Symbol(symbol) => self.symbol(symbol, offset),
        }
    }

    /// Stores the coordinates of `[map, {…}]`, and yields the map's address.
    fn tensor_place(&mut self, operand: &'a Operand) -> Result<Value> {
        let Operand::Bracket(parts) = operand else { return Err(self.refuse("Coordinates are missing")) };
        let [map, coordinates] = &parts[..] else { return Err(self.refuse("Coordinates are missing")) };
        for (index, part) in self.vector(coordinates).iter().enumerate() {
            let part = self.src(part, Type::B32)?;
            self.put_word(COORDINATES + index, part);
        }
        self.plain_address(map)
    }

    /// Has the operation carried out; the thread ends if the helper says so.
    fn call_tensor(&mut self, address: Value, op: TensorOp) -> Result<()> {
        if self.looks() {
            self.store_line();
        }
        let number = self.iconst(types::I64, op.number() as i64);
        let helper = self.cx.env.helpers.tensor;
        let trap = self
            .call_helper(helper, Some(types::I32), &[self.block, address, number])
            .ok_or_else(|| self.refuse("A helper returned nothing"))?;
        self.end_if(trap, &[abi::TRAP_MISALIGNED, abi::TRAP_TENSOR_MAP])
    }
}
