//! Graphs: launching them, and what needs memory or other owners to make a node.
//!
//! A graph is executed as its nodes one after another, in an order that honours the edges, on the stream it
//! is launched in: every node becomes an ordinary call. So launching one needs no round trip.

use std::ffi::c_void;
use std::sync::Arc;

use rgpu_device::MemOp;

use crate::core::context::Context;
use crate::core::error::Result;
use crate::core::graph::exec::Exec;
use crate::core::graph::op::{GraphAllocation, Op};
use crate::core::mem_op;
use crate::core::memory::map::PointerKind;
use crate::core::params::Params;
use crate::core::process::Core;
use crate::core::stream::Stream;
use crate::core::transfer::{Direction, Wait};

/// The tags of the driver's `extra` array.
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;

impl GraphAllocation {
    /// Allocates memory for a node.
    pub(crate) fn new(core: &Core, context: &Arc<Context>, bytes: u64) -> Result<Arc<Self>> {
        core.graph_allocations.allocate(context, bytes)
    }
}

impl Core {
    /// An allocation in stream order: in a captured stream the graph makes it. `None` where it is to be made.
    pub(super) fn capture_allocation(
        &self,
        context: &Arc<Context>,
        stream: &Stream,
        bytes: u64,
    ) -> Option<Result<u64>> {
        if !self.captures.is_capturing(stream) {
            return None;
        }
        let mut addr = 0;
        let diverted = self.captures.divert(stream, || {
            let allocation = self.graph_allocations.allocate(context, bytes)?;
            addr = allocation.addr;
            Ok(Op::Alloc(allocation))
        });
        diverted.map(|result| result.map(|()| addr))
    }
}

impl Exec {
    /// Puts everything on a stream.
    pub(crate) fn launch(&self, core: &Core, stream: &Stream) -> Result<()> {
        let steps = self.steps();
        // Host memory that the graph itself may have changed must not be read before that is done.
        let mut host_changes = false;
        for step in steps.iter().filter(|s| s.enabled) {
            if host_changes && reads_host(core, &step.op) && !core.captures.is_capturing(stream) {
                core.stream_synchronize(stream)?;
                host_changes = false;
            }
            step.op.run(core, stream)?;
            host_changes |= changes_host(core, &step.op);
        }
        Ok(())
    }
}

impl Op {
    /// Puts the work on a stream.
    pub(crate) fn run(&self, core: &Core, stream: &Stream) -> Result<()> {
        match self {
            Self::Kernel(kernel) => {
                let len = kernel.params.len();
                let extra: [*const c_void; 5] = [
                    BUFFER_POINTER as *const c_void,
                    kernel.params.as_ptr().cast(),
                    BUFFER_SIZE as *const c_void,
                    (&raw const len).cast(),
                    std::ptr::null(),
                ];
                // SAFETY: the block was laid out for this kernel, and `extra` is as the driver has it.
                unsafe {
                    core.launch(&kernel.function, stream, &kernel.config, Params::Extra(extra.as_ptr()))
                }
            }
            Self::Library(work) => core.compute(stream, work.operation, &work.params),
            Self::Copy(what, direction) => core.copy_box(stream, what, *direction, Wait::Async),
            Self::Fill(region, value, element) => core.fill(stream, *region, *value, *element, Wait::Async),
            Self::Host(call) => {
                let call = *call;
                core.host_function(stream, true, Box::new(move |_| call.call()))
            }
            Self::MemOps(ops) => core.mem_ops(stream, ops),
            Self::Record(event) => core.event_record(event, stream),
            Self::Wait(event) => core.stream_wait_event(stream, event),
            // The memory is there as long as the node is; children were flattened.
            Self::Empty | Self::Alloc(_) | Self::Free(_) | Self::Child(_) => Ok(()),
        }
    }
}

/// Whether an address is memory that the host sees without the device's help.
fn is_host(core: &Core, addr: u64) -> bool {
    matches!(core.pointer_info(addr).kind, PointerKind::Unregistered | PointerKind::Host)
}

/// Whether the work reads host memory when it is put on a stream.
fn reads_host(core: &Core, op: &Op) -> bool {
    match op {
        Op::Copy(_, Direction::HostToDevice | Direction::HostToHost) => true,
        Op::Copy(what, Direction::Infer) => is_host(core, what.src.addr),
        _ => false,
    }
}

/// Whether the work changes host memory.
fn changes_host(core: &Core, op: &Op) -> bool {
    match op {
        Op::Host(_) | Op::Copy(_, Direction::DeviceToHost | Direction::HostToHost) => true,
        Op::Copy(what, Direction::Infer) => is_host(core, what.dst.addr),
        Op::MemOps(ops) => {
            let written = ops.iter().filter_map(|op| mem_op::read(op).ok()).filter(MemOp::writes);
            written.into_iter().any(|op| is_host(core, op.addr))
        }
        _ => false,
    }
}
