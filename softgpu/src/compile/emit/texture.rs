//! Textures and surfaces: operands are put where the helper finds them ([`abi::texture`]), and results are taken from there.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::memory::Target;
use super::special::bits_type;
use super::{Emitter, Result, int_class, trusted};
use crate::abi;
use crate::abi::texture::{COORDINATES, Detail, Geometry, LAYER, REST, TextureOp};
use rgpu_image::ptx::ast::{AddressBase, Operand, Symbol, Type};

/// Where a word of an operation's operands and results is in the block.
fn word_offset(n: usize) -> i32 {
    (offset_of!(abi::Block, words) + 4 * n) as i32
}

impl<'a> Emitter<'a, '_> {
    /// `tex`, `tld4`, `txq`, `suq`, `suld`, `sust`, `sured`, `istypep`
    pub(crate) fn texture(&mut self, op: TextureOp, o: &'a [Operand]) -> Result<()> {
        match op {
            TextureOp::Sample { geometry, detail, .. } => {
                let handle = self.texture_place(self.operand(o, 1)?, geometry)?;
                match detail {
                    Detail::Base => {}
                    Detail::Level => {
                        let level = self.src(self.operand(o, 2)?, Type::B32)?;
                        self.put_word(REST, level);
                    }
                    Detail::Gradient => {
                        for side in 0..2 {
                            let given = self.vector(self.operand(o, 2 + side)?);
                            for (index, part) in given.iter().take(geometry.dimensions()).enumerate() {
                                let part = self.src(part, Type::B32)?;
                                self.put_word(REST + 3 * side + index, part);
                            }
                        }
                    }
                }
                self.call_texture(handle, op)?;
                self.take_texels(self.operand(o, 0)?)
            }
            TextureOp::Gather { geometry, .. } => {
                let handle = self.texture_place(self.operand(o, 1)?, geometry)?;
                self.call_texture(handle, op)?;
                self.take_texels(self.operand(o, 0)?)
            }
            TextureOp::Query { level, .. } => {
                if level {
                    let level = self.src(self.operand(o, 2)?, Type::B32)?;
                    self.put_word(0, level);
                }
                let handle = self.texture_handle(self.operand(o, 1)?)?;
                self.call_texture(handle, op)?;
                self.take_words(self.operand(o, 0)?, Type::B32)
            }
            TextureOp::Is { .. } => {
                let handle = self.src(self.operand(o, 1)?, Type::B64)?;
                self.call_texture(handle, op)?;
                let value = self.word(0);
                let value = self.b.ins().icmp_imm_u(IntCC::NotEqual, value, 0);
                self.set(self.operand(o, 0)?, Type::Pred, value)
            }
            TextureOp::Load { geometry, size, .. } => {
                let handle = self.texture_place(self.operand(o, 1)?, geometry)?;
                self.call_texture(handle, op)?;
                self.take_words(self.operand(o, 0)?, bits_type(8 << size))
            }
            TextureOp::Store { geometry, size, .. } => {
                let handle = self.texture_place(self.operand(o, 0)?, geometry)?;
                self.put_data(self.operand(o, 1)?, bits_type(8 << size))?;
                self.call_texture(handle, op)
            }
            TextureOp::StoreTexel { geometry, .. } => {
                let handle = self.texture_place(self.operand(o, 0)?, geometry)?;
                self.put_data(self.operand(o, 1)?, Type::B32)?;
                self.call_texture(handle, op)
            }
            TextureOp::Reduce { geometry, wide, .. } => {
                let handle = self.texture_place(self.operand(o, 0)?, geometry)?;
                self.put_data(self.operand(o, 1)?, if wide { Type::B64 } else { Type::B32 })?;
                self.call_texture(handle, op)
            }
        }
    }

    /// The object that `[a]` names.
    fn texture_handle(&mut self, operand: &Operand) -> Result<Value> {
        match operand {
            Operand::Address(AddressBase::Reg(reg), 0) => self.src(&Operand::Reg(*reg), Type::B64),
            // A reference is the header itself.
            Operand::Address(AddressBase::Symbol(symbol @ Symbol::Global(_)), 0) => self.symbol(*symbol, 0),
            // A parameter holds the handle of an object.
            Operand::Address(AddressBase::Symbol(symbol @ Symbol::Param(_)), 0) => {
                let Target { base, offset, flags } = self.symbol_target(*symbol, 0, 8)?;
                Ok(self.b.ins().load(types::I64, flags, base, offset))
            }
            _ => Err(self.refuse("What names the texture or surface is not supported")),
        }
    }

    /// Stores the coordinates of `[a, {…}]`, and yields the object.
    fn texture_place(&mut self, operand: &'a Operand, geometry: Geometry) -> Result<Value> {
        let Operand::Bracket(parts) = operand else { return Err(self.refuse("Coordinates are missing")) };
        let [object, coordinates] = &parts[..] else {
            return Err(self.refuse("Samplers of their own are not supported"));
        };
        let mut given = self.vector(coordinates).iter();
        if geometry.has_layer()
            && let Some(layer) = given.next()
        {
            let layer = self.src(layer, Type::B32)?;
            self.put_word(LAYER, layer);
        }
        for index in 0..geometry.dimensions() {
            let Some(part) = given.next() else { return Err(self.refuse("A coordinate is missing")) };
            let part = self.src(part, Type::B32)?;
            self.put_word(COORDINATES + index, part);
        }
        self.texture_handle(object)
    }

    /// Stores what is to be written.
    fn put_data(&mut self, operand: &'a Operand, ty: Type) -> Result<()> {
        for (index, part) in self.vector(operand).iter().enumerate() {
            let value = self.src(part, ty)?;
            if ty.bits() == 64 {
                let value = self.as_int(value);
                self.b.ins().store(trusted(), value, self.block, word_offset(REST + 2 * index));
            } else {
                self.put_word(REST + index, value);
            }
        }
        Ok(())
    }

    /// Stores an operand in the low bits of a word.
    pub(super) fn put_word(&mut self, n: usize, value: Value) {
        let value = self.as_int(value);
        let value = self.resize(value, types::I32, false);
        self.b.ins().store(trusted(), value, self.block, word_offset(n));
    }

    /// A result.
    pub(super) fn word(&mut self, n: usize) -> Value {
        self.b.ins().load(types::I32, trusted(), self.block, word_offset(n))
    }

    /// Puts what was sampled into registers, and into a predicate that it was there, where one is named: all of a texture is in memory.
    fn take_texels(&mut self, operand: &'a Operand) -> Result<()> {
        let Operand::Pair(pair) = operand else { return self.take_words(operand, Type::B32) };
        self.take_words(&pair.0, Type::B32)?;
        let yes = self.iconst(types::I8, 1);
        self.set(&pair.1, Type::Pred, yes)
    }

    /// Puts results into registers: a word for each, or two.
    fn take_words(&mut self, operand: &'a Operand, ty: Type) -> Result<()> {
        for (index, register) in self.vector(operand).iter().enumerate() {
            let value = if ty.bits() == 64 {
                self.b.ins().load(types::I64, trusted(), self.block, word_offset(2 * index))
            } else {
                let value = self.word(index);
                self.resize(value, int_class(ty.bits()), false)
            };
            self.set(register, ty, value)?;
        }
        Ok(())
    }

    /// Has the operation carried out; the thread ends if the helper says so.
    fn call_texture(&mut self, handle: Value, op: TextureOp) -> Result<()> {
        let handle = self.as_int(handle);
        let number = self.iconst(types::I64, op.number() as i64);
        let helper = self.cx.env.helpers.texture;
        let trap = self
            .call_helper(helper, Some(types::I32), &[self.block, handle, number])
            .ok_or_else(|| self.refuse("A helper returned nothing"))?;
        self.end_if(trap, &[abi::TRAP_MISALIGNED])
    }

    /// Ends the thread if a helper has returned a trap: one of these, or that of a bad address.
    pub(super) fn end_if(&mut self, trap: Value, known: &[u32]) -> Result<()> {
        let (bad, on) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(bad);
        self.b.ins().brif(trap, bad, &[], on, &[]);
        self.b.switch_to_block(bad);
        for &known in known {
            let (this, another) = (self.b.create_block(), self.b.create_block());
            [this, another].into_iter().for_each(|block| self.b.set_cold_block(block));
            let is_this = self.b.ins().icmp_imm_u(IntCC::Equal, trap, i64::from(known));
            self.b.ins().brif(is_this, this, &[], another, &[]);
            self.b.switch_to_block(this);
            self.stop(known)?;
            self.b.switch_to_block(another);
        }
        self.stop(abi::TRAP_ADDRESS)?;
        self.b.switch_to_block(on);
        Ok(())
    }
}
