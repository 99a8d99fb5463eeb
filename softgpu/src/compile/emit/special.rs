//! `mov` and special registers.

use std::mem::offset_of;

use cranelift_codegen::ir::{self, InstBuilder, Value, types};

use super::{Emitter, Result, class, int_class};
use crate::abi;
use rgpu_image::ptx::ast::{AddressBase, Operand, Special, Type};

impl<'a> Emitter<'a, '_> {
    /// `mov`: copies, takes addresses, joins and splits vectors.
    pub(crate) fn mov(&mut self, ty: Type, o: &'a [Operand]) -> Result<()> {
        let (destination, source) = (self.operand(o, 0)?, self.operand(o, 1)?);
        match (destination, source) {
            (_, Operand::Vector(parts)) => {
                let bits = self.part_bits(ty, parts.len())?;
                let whole = int_class(ty.bits());
                let mut value = self.iconst(whole, 0);
                for (index, part) in parts.iter().enumerate() {
                    let part = self.src(part, bits_type(bits))?;
                    let part = self.as_int(part);
                    let part = self.resize(part, whole, false);
                    let part = if index > 0 {
                        self.b.ins().ishl_imm_u(part, i64::from(bits) * index as i64)
                    } else {
                        part
                    };
                    value = if index > 0 { self.b.ins().bor(value, part) } else { part };
                }
                self.set(destination, bits_type(ty.bits()), value)
            }
            (Operand::Vector(parts), _) => {
                let bits = self.part_bits(ty, parts.len())?;
                let value = self.src(source, bits_type(ty.bits()))?;
                for (index, part) in parts.iter().enumerate() {
                    let shifted = if index > 0 {
                        self.b.ins().ushr_imm_u(value, i64::from(bits) * index as i64)
                    } else {
                        value
                    };
                    let piece = self.resize(shifted, int_class(bits), false);
                    self.set(part, bits_type(bits), piece)?;
                }
                Ok(())
            }
            (_, Operand::Reg(reg)) => {
                // Whatever the type says, these are the same bits.
                let value = self.register(*reg);
                if self.type_of(value).bits() != class(ty).bits() {
                    let value = self.fit(value, ty)?;
                    return self.set(destination, ty, value);
                }
                self.set(destination, ty, value)
            }
            (_, Operand::Address(AddressBase::Symbol(symbol), offset)) => {
                let value = self.symbol(*symbol, *offset)?;
                let value = self.resize(value, int_class(ty.bits()), false);
                self.set(destination, ty, value)
            }
            _ => {
                let value = self.src(source, ty)?;
                self.set(destination, ty, value)
            }
        }
    }

    /// `createpolicy`
    pub(crate) fn policy(&mut self, o: &'a [Operand]) -> Result<()> {
        let zero = self.iconst(types::I64, 0);
        self.set(self.operand(o, 0)?, Type::B64, zero)
    }

    fn part_bits(&self, ty: Type, parts: usize) -> Result<u32> {
        let bits = ty.bits() / parts.max(1) as u32;
        if matches!(bits, 8 | 16 | 32) && bits as usize * parts == ty.bits() as usize {
            Ok(bits)
        } else {
            Err(self.refuse("The vector does not fit the type"))
        }
    }

    /// A field of the thread's description that does not change while it runs.
    pub(super) fn thread_field(&mut self, ty: ir::Type, offset: usize) -> Value {
        let flags = self.fixed();
        self.b.ins().load(ty, flags, self.thread, offset as i32)
    }

    /// The thread's number in the block.
    fn linear(&mut self) -> Value {
        let tid = offset_of!(abi::Thread, tid);
        let (x, y, z) = (
            self.thread_field(types::I32, tid),
            self.thread_field(types::I32, tid + 4),
            self.thread_field(types::I32, tid + 8),
        );
        let ntid = offset_of!(abi::Block, ntid);
        let (nx, ny) = (self.block_field(types::I32, ntid), self.block_field(types::I32, ntid + 4));
        let rows = self.b.ins().imul(z, ny);
        let rows = self.b.ins().iadd(rows, y);
        let before = self.b.ins().imul(rows, nx);
        self.b.ins().iadd(before, x)
    }

    /// The value of a special register, 32 or 64 bits.
    pub(crate) fn special(&mut self, special: Special) -> Result<Value> {
        use Special as S;
        let i32 = types::I32;
        let tid = offset_of!(abi::Thread, tid);
        let ntid = offset_of!(abi::Block, ntid);
        let ctaid = offset_of!(abi::Block, ctaid);
        let nctaid = offset_of!(abi::Block, nctaid);
        let helpers = self.cx.env.helpers;
        Ok(match special {
            S::TidX => self.thread_field(i32, tid),
            S::TidY => self.thread_field(i32, tid + 4),
            S::TidZ => self.thread_field(i32, tid + 8),
            S::NtidX => self.block_field(i32, ntid),
            S::NtidY => self.block_field(i32, ntid + 4),
            S::NtidZ => self.block_field(i32, ntid + 8),
            S::CtaidX => self.block_field(i32, ctaid),
            S::CtaidY => self.block_field(i32, ctaid + 4),
            S::CtaidZ => self.block_field(i32, ctaid + 8),
            S::NctaidX => self.block_field(i32, nctaid),
            S::NctaidY => self.block_field(i32, nctaid + 4),
            S::NctaidZ => self.block_field(i32, nctaid + 8),
            S::LaneId => self.thread_field(i32, offset_of!(abi::Thread, lane)),
            S::WarpId => {
                let linear = self.linear();
                self.b.ins().ushr_imm_u(linear, 5)
            }
            S::NwarpId => {
                let (x, y, z) = (
                    self.block_field(i32, ntid),
                    self.block_field(i32, ntid + 4),
                    self.block_field(i32, ntid + 8),
                );
                let threads = self.b.ins().imul(x, y);
                let threads = self.b.ins().imul(threads, z);
                let threads = self.add_const(threads, 31);
                self.b.ins().ushr_imm_u(threads, 5)
            }
            S::WarpSize => self.iconst(i32, abi::WARP as i64),
            S::SmId => self.block_field(i32, offset_of!(abi::Block, smid)),
            S::NsmId => self.block_field(i32, offset_of!(abi::Block, nsmid)),
            S::GridId => self.block_field(types::I64, offset_of!(abi::Block, gridid)),
            S::LanemaskEq | S::LanemaskLe | S::LanemaskLt | S::LanemaskGe | S::LanemaskGt => {
                let lane = self.thread_field(i32, offset_of!(abi::Thread, lane));
                let one = self.iconst(i32, 1);
                let own = self.b.ins().ishl(one, lane);
                let below = self.add_const(own, -1);
                match special {
                    S::LanemaskEq => own,
                    S::LanemaskLt => below,
                    S::LanemaskLe => self.b.ins().bor(own, below),
                    S::LanemaskGe => self.b.ins().bnot(below),
                    _ => {
                        let up_to = self.b.ins().bor(own, below);
                        self.b.ins().bnot(up_to)
                    }
                }
            }
            S::Clock | S::ClockHi | S::Clock64 => {
                let value = self.time(helpers.clock)?;
                self.part_of_time(value, special == S::Clock64, special == S::ClockHi)
            }
            S::GlobalTimer | S::GlobalTimerLo | S::GlobalTimerHi => {
                let value = self.time(helpers.globaltimer)?;
                self.part_of_time(value, special == S::GlobalTimer, special == S::GlobalTimerHi)
            }
            S::DynamicSmemSize => self.block_field(i32, offset_of!(abi::Block, dynamic_shared)),
            S::TotalSmemSize | S::AggrSmemSize => {
                let dynamic = self.block_field(i32, offset_of!(abi::Block, dynamic_shared));
                self.add_const(dynamic, i64::from(self.cx.shared.size))
            }
            S::ReservedSmemBegin | S::ReservedSmemEnd | S::ReservedSmemCap | S::ReservedSmemOffset(_) => {
                self.cx.reserved_shared.set(true);
                let (at, size) = (abi::RESERVED_SHARED_AT, abi::RESERVED_SHARED_BYTES);
                let value = match special {
                    S::ReservedSmemEnd => at + size,
                    S::ReservedSmemCap => size,
                    S::ReservedSmemOffset(n) => at + u32::from(n) * (size / 2),
                    _ => at,
                };
                match special {
                    S::ReservedSmemCap => self.iconst(i32, i64::from(value)),
                    _ => {
                        let address = self.shared_address(value.into());
                        self.b.ins().ireduce(i32, address)
                    }
                }
            }
            S::ClusterIdX => self.block_field(i32, offset_of!(abi::Block, cluster.id)),
            S::ClusterIdY => self.block_field(i32, offset_of!(abi::Block, cluster.id) + 4),
            S::ClusterIdZ => self.block_field(i32, offset_of!(abi::Block, cluster.id) + 8),
            S::NclusterIdX => self.block_field(i32, offset_of!(abi::Block, cluster.count)),
            S::NclusterIdY => self.block_field(i32, offset_of!(abi::Block, cluster.count) + 4),
            S::NclusterIdZ => self.block_field(i32, offset_of!(abi::Block, cluster.count) + 8),
            S::ClusterCtaidX => self.block_field(i32, offset_of!(abi::Block, cluster.ctaid)),
            S::ClusterCtaidY => self.block_field(i32, offset_of!(abi::Block, cluster.ctaid) + 4),
            S::ClusterCtaidZ => self.block_field(i32, offset_of!(abi::Block, cluster.ctaid) + 8),
            S::ClusterNctaidX => self.block_field(i32, offset_of!(abi::Block, cluster.nctaid)),
            S::ClusterNctaidY => self.block_field(i32, offset_of!(abi::Block, cluster.nctaid) + 4),
            S::ClusterNctaidZ => self.block_field(i32, offset_of!(abi::Block, cluster.nctaid) + 8),
            S::ClusterCtaRank => self.block_field(i32, offset_of!(abi::Block, cluster.rank)),
            S::ClusterNctaRank => self.block_field(i32, offset_of!(abi::Block, cluster.blocks)),
            S::IsExplicitCluster => self.block_field(i32, offset_of!(abi::Block, cluster.explicit)),
            S::EnvReg(n @ (1 | 2)) => {
                let value = self.block_field(types::I64, offset_of!(abi::Block, envreg));
                self.part_of_time(value, false, n == 2)
            }
            S::EnvReg(_) | S::Pm(_) => self.iconst(i32, 0),
            other => return Err(self.refuse(&format!("The special register {other:?} is not supported"))),
        })
    }

    fn time(&mut self, helper: usize) -> Result<Value> {
        let value = self.call_helper(helper, Some(types::I64), &[]);
        value.ok_or_else(|| self.refuse("A helper returned nothing"))
    }

    /// All of a 64-bit number, or one half.
    fn part_of_time(&mut self, value: Value, whole: bool, high: bool) -> Value {
        if whole {
            return value;
        }
        let value = if high { self.b.ins().ushr_imm_u(value, 32) } else { value };
        self.b.ins().ireduce(types::I32, value)
    }
}

/// The untyped PTX type with so many bits.
pub(super) fn bits_type(bits: u32) -> Type {
    match bits {
        0..=8 => Type::B8,
        9..=16 => Type::B16,
        17..=32 => Type::B32,
        _ => Type::B64,
    }
}
