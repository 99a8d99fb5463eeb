//! `mbarrier`: barriers that are objects in shared memory.
//!
//! The object's 64 bits are opaque to programs. Here they hold, from the lowest: 20 bits of arrivals that are
//! still missing, 20 bits of how many a phase needs, and the number of the phase. One worker runs a block, so
//! that plain loads and stores will do.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::memory::Target;
use super::{Emitter, Result, user};
use crate::compile::op::{MbarrierOp, MemoryTarget};
use rgpu_image::ptx::ast::{Operand, Type};

const BITS: i64 = 20;
const MASK: i64 = (1 << BITS) - 1;
const PHASE: i64 = 2 * BITS;

impl<'a> Emitter<'a, '_> {
    /// `mbarrier.*`, and `cp.async.mbarrier.arrive`.
    pub(crate) fn mbarrier(&mut self, op: MbarrierOp, shared: bool, o: &'a [Operand]) -> Result<()> {
        let place = if shared { MemoryTarget::Shared } else { MemoryTarget::Generic };
        match op {
            MbarrierOp::Init => {
                let target = self.target_of(place, self.operand(o, 0)?, 8)?;
                let count = self.src(self.operand(o, 1)?, Type::U32)?;
                let count = self.b.ins().uextend(types::I64, count);
                let count = self.b.ins().band_imm_u(count, MASK);
                let needed = self.b.ins().ishl_imm_u(count, BITS);
                let object = self.b.ins().bor(needed, count);
                self.put_object(target, object);
                Ok(())
            }
            // What is left behind has no meaning.
            MbarrierOp::Invalidate => Ok(()),
            MbarrierOp::Arrive { drop, result } => {
                let (destination, rest) =
                    if result { (Some(self.operand(o, 0)?), &o[1..]) } else { (None, o) };
                let target = self.target_of(place, self.operand(rest, 0)?, 8)?;
                let count = match rest.get(1) {
                    Some(count) => {
                        let count = self.src(count, Type::U32)?;
                        self.b.ins().uextend(types::I64, count)
                    }
                    None => self.iconst(types::I64, 1),
                };
                let before = self.arrive(target, count, drop);
                match destination {
                    Some(destination) => self.set(destination, Type::B64, before),
                    None => Ok(()),
                }
            }
            MbarrierOp::Test { parity } => {
                let target = self.target_of(place, self.operand(o, 1)?, 8)?;
                let object = self.get_object(target);
                let phase = self.b.ins().ushr_imm_u(object, PHASE);
                let over = if parity {
                    let parity = self.src(self.operand(o, 2)?, Type::U32)?;
                    let parity = self.b.ins().uextend(types::I64, parity);
                    let differ = self.b.ins().bxor(phase, parity);
                    self.b.ins().band_imm_u(differ, 1)
                } else {
                    let token = self.src(self.operand(o, 2)?, Type::B64)?;
                    let of_token = self.b.ins().ushr_imm_u(token, PHASE);
                    self.b.ins().bxor(phase, of_token)
                };
                let value = self.b.ins().icmp_imm_u(IntCC::NotEqual, over, 0);
                self.set(self.operand(o, 0)?, Type::Pred, value)
            }
            MbarrierOp::Pending => {
                let token = self.src(self.operand(o, 1)?, Type::B64)?;
                let count = self.b.ins().band_imm_u(token, MASK);
                let count = self.b.ins().ireduce(types::I32, count);
                self.set(self.operand(o, 0)?, Type::U32, count)
            }
        }
    }

    /// Lowers the number of missing arrivals; the phase ends with the last. Yields the object as it was.
    fn arrive(&mut self, target: Target, count: Value, drop: bool) -> Value {
        let before = self.get_object(target);
        let object = if drop {
            let dropped = self.b.ins().ishl_imm_u(count, BITS);
            self.b.ins().isub(before, dropped)
        } else {
            before
        };
        let object = self.b.ins().isub(object, count);
        let missing = self.b.ins().band_imm_u(object, MASK);
        let needed = self.b.ins().ushr_imm_u(object, BITS);
        let needed = self.b.ins().band_imm_u(needed, MASK);
        let next = self.add_const(object, 1 << PHASE);
        let next = self.b.ins().bor(next, needed);
        let last = self.b.ins().icmp_imm_u(IntCC::Equal, missing, 0);
        let after = self.b.ins().select(last, next, object);
        self.put_object(target, after);
        before
    }

    fn get_object(&mut self, target: Target) -> Value {
        // Others change it while this thread lets them run.
        let address = self.whole_address(target);
        self.b.ins().atomic_load(types::I64, user(), address)
    }

    fn put_object(&mut self, target: Target, object: Value) {
        self.b.ins().store(user(), object, target.base, target.offset);
    }
}
