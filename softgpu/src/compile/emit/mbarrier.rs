//! `mbarrier`: barriers that are objects in shared memory.
//!
//! The object's 64 bits are opaque to programs. Here they hold, from the lowest: 20 bits of arrivals that are
//! still missing, 20 bits of how many a phase needs, 21 bits of how many bytes are still expected (modulo their number: bytes may be there before
//! they are expected), and the number of the phase modulo 8. One worker runs a block, so that plain loads and stores will do.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::memory::Target;
use super::{Emitter, Result, user};
use crate::compile::op::{MbarrierOp, MemoryTarget};
use rgpu_image::ptx::ast::{Operand, Type};

const BITS: i64 = 20;
const MASK: i64 = (1 << BITS) - 1;
/// Where the bytes that are expected stand, and how many bits they have.
const BYTES: i64 = 2 * BITS;
const BYTES_BITS: i64 = 21;
const BYTES_MASK: i64 = ((1 << BYTES_BITS) - 1) << BYTES;
const PHASE: i64 = BYTES + BYTES_BITS;
/// As many bytes as a barrier can count.
pub(super) const MOST_BYTES: i64 = (1 << (BYTES_BITS - 1)) - 1;

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
            MbarrierOp::Arrive { drop, result, expects } => {
                let (destination, rest) =
                    if result { (Some(self.operand(o, 0)?), &o[1..]) } else { (None, o) };
                let target = self.target_of(place, self.operand(rest, 0)?, 8)?;
                if expects {
                    let bytes = self.src(self.operand(rest, 1)?, Type::U32)?;
                    self.expect(target, bytes);
                }
                let count = match rest.get(1).filter(|_| !expects) {
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
            MbarrierOp::Expect | MbarrierOp::Complete => {
                let target = self.target_of(place, self.operand(o, 0)?, 8)?;
                let bytes = self.src(self.operand(o, 1)?, Type::U32)?;
                if op == MbarrierOp::Expect {
                    self.expect(target, bytes);
                } else {
                    self.complete(target, bytes);
                }
                Ok(())
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
        self.put_or_end(target, object);
        before
    }

    /// Stores an object, or that of the next phase if nothing is missing from this one.
    fn put_or_end(&mut self, target: Target, object: Value) {
        let missing = self.b.ins().band_imm_s(object, MASK | BYTES_MASK);
        let needed = self.b.ins().ushr_imm_u(object, BITS);
        let needed = self.b.ins().band_imm_u(needed, MASK);
        let next = self.add_const(object, 1 << PHASE);
        let next = self.b.ins().bor(next, needed);
        let last = self.b.ins().icmp_imm_u(IntCC::Equal, missing, 0);
        let after = self.b.ins().select(last, next, object);
        self.put_object(target, after);
    }

    /// So many more bytes are expected. That alone ends no phase.
    fn expect(&mut self, target: Target, bytes: Value) {
        let object = self.get_object(target);
        let object = self.with_bytes(object, bytes, true);
        self.put_object(target, object);
    }

    /// So many bytes are there, which may end the phase.
    pub(super) fn complete(&mut self, target: Target, bytes: Value) {
        let object = self.get_object(target);
        let object = self.with_bytes(object, bytes, false);
        self.put_or_end(target, object);
    }

    /// An object with more or fewer bytes that are expected.
    fn with_bytes(&mut self, object: Value, bytes: Value, more: bool) -> Value {
        let bytes = self.b.ins().uextend(types::I64, bytes);
        let bytes = self.b.ins().ishl_imm_u(bytes, BYTES);
        let sum = if more { self.b.ins().iadd(object, bytes) } else { self.b.ins().isub(object, bytes) };
        let sum = self.b.ins().band_imm_s(sum, BYTES_MASK);
        let rest = self.b.ins().band_imm_s(object, !BYTES_MASK);
        self.b.ins().bor(rest, sum)
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
