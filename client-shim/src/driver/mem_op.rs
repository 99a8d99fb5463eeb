//! Operations of streams on words of memory.

use super::stream::stream_of;
use super::types::*;
use super::*;
use crate::abi::{In, Out};
use crate::core::error::invalid;
use crate::core::mem_op::{self, RawMemOp};
use crate::graph::{self, Op};

/// `CU_STREAM_MEM_OP_WAIT_VALUE_32` and so on.
const WAIT_32: u64 = 1;
const WRITE_32: u64 = 2;
const WAIT_64: u64 = 4;
const WRITE_64: u64 = 5;
/// As many operations may be in one batch.
const MOST: u32 = 256;

/// One operation.
fn one(core: &Core, stream: Opaque, pt: bool, raw: RawMemOp) -> Result<()> {
    core.mem_ops(&*stream_of(core, stream, pt)?, &[raw].into())
}

/// The operations of a batch.
fn list(count: u32, ops: In<RawMemOp>, flags: u32) -> Result<Vec<RawMemOp>> {
    if flags != 0 || count > MOST {
        return Err(invalid(format!("a batch has no flags, and at most {MOST} memory operations")));
    }
    // SAFETY: the program says that so many are there.
    unsafe { ops.list(count as usize) }
}

fn batch(core: &Core, stream: Opaque, pt: bool, count: u32, ops: In<RawMemOp>, flags: u32) -> Result<()> {
    let stream = stream_of(core, stream, pt)?;
    let ops = list(count, ops, flags)?;
    if ops.is_empty() { Ok(()) } else { core.mem_ops(&stream, &ops.into()) }
}

/// What a node does.
pub(super) fn node(core: &Core, given: &BatchMemOpNodeParams) -> Result<Op> {
    core.driver_context()?;
    let ops = list(given.count, given.list, given.flags)?;
    if ops.is_empty() {
        return Err(invalid("a node of memory operations has none"));
    }
    ops.iter().try_for_each(|op| mem_op::read(op).map(drop))?;
    Ok(Op::MemOps(ops.into()))
}

door! {
    fn cuStreamWriteValue32<const PT>(stream: Opaque, address: DevicePtr, value: u32, flags: u32) |core| {
        one(core, stream, PT, [WRITE_32, address, value.into(), flags.into(), 0, 0])
    }
    fn cuStreamWriteValue64<const PT>(stream: Opaque, address: DevicePtr, value: u64, flags: u32) |core| {
        one(core, stream, PT, [WRITE_64, address, value, flags.into(), 0, 0])
    }
    fn cuStreamWaitValue32<const PT>(stream: Opaque, address: DevicePtr, value: u32, flags: u32) |core| {
        one(core, stream, PT, [WAIT_32, address, value.into(), flags.into(), 0, 0])
    }
    fn cuStreamWaitValue64<const PT>(stream: Opaque, address: DevicePtr, value: u64, flags: u32) |core| {
        one(core, stream, PT, [WAIT_64, address, value, flags.into(), 0, 0])
    }
    fn cuStreamBatchMemOp<const PT>(stream: Opaque, count: u32, ops: In<RawMemOp>, flags: u32) |core| {
        batch(core, stream, PT, count, ops, flags)
    }
    fn cuGraphBatchMemOpNodeGetParams(node: usize, out: Out<BatchMemOpNodeParams>) |core| {
        out.check()?;
        let Op::MemOps(ops) = graph::op(node)? else {
            return Err(invalid("this is no node of memory operations"));
        };
        let context = core.driver_context()?.raw as Opaque;
        // SAFETY: the list is the node's, which keeps it until it is set anew.
        let list = unsafe { In::new(ops.as_ptr()) };
        out.set(BatchMemOpNodeParams { context, count: ops.len() as u32, list, flags: 0 })
    }
    fn cuGraphBatchMemOpNodeSetParams(target: usize, params: In<BatchMemOpNodeParams>) |core| {
        graph::set_op(target, node(core, &params.get()?)?)
    }
    fn cuGraphExecBatchMemOpNodeSetParams(exec: usize, target: usize, params: In<BatchMemOpNodeParams>) |core| {
        graph::exec(exec)?.set(target, node(core, &params.get()?)?)
    }
}
