//! Graphs: launching them, and what needs memory or other owners to make a node.
//!
//! A graph is executed as its nodes one after another, in an order that honours the edges, on the stream it
//! is launched in: every node becomes an ordinary call. So launching one needs no round trip, but for conditional nodes: each look
//! at a condition is one, and the launch returns when the last of them has been made.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use rgpu_device::MemOp;

use crate::core::context::Context;
use crate::core::error::{Result, invalid, not_implemented};
use crate::core::graph::condition::{Choice, Condition, Conditional};
use crate::core::graph::exec::{Exec, Step};
use crate::core::graph::memory::{Freeing, GraphAllocation};
use crate::core::graph::op::Op;
use crate::core::mem_op;
use crate::core::memory::map::PointerKind;
use crate::core::params::Params;
use crate::core::process::Core;
use crate::core::registry::Raw;
use crate::core::stream::Stream;
use crate::core::transfer::{Direction, Wait};

/// The tags of the driver's `extra` array.
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;

/// `cudaGraphInstantiateFlagAutoFreeOnLaunch`: what an earlier launch has allocated, and nobody freed, is freed by the next launch.
const AUTO_FREE_ON_LAUNCH: u64 = 1;

impl GraphAllocation {
    /// Allocates memory for a node.
    pub(crate) fn new(core: &Core, context: &Arc<Context>, bytes: u64) -> Result<Arc<Self>> {
        core.graph_allocations.allocate(context, bytes)
    }
}

impl Core {
    /// `cudaGraphConditionalHandleCreate`: the handle.
    pub(crate) fn create_condition(
        &self,
        graph: Raw,
        context: &Arc<Context>,
        value: u32,
        each_time: bool,
    ) -> Result<u64> {
        if self.devices.info(context.ordinal)?.accepts_cubin {
            // Its kernels set what the driver made, and not a word of ours.
            return Err(not_implemented("a conditional node on an NVIDIA GPU"));
        }
        self.graphs.check(graph)?;
        let word = self.graph_allocations.allocate(context, Condition::BYTES)?;
        let handle = word.addr;
        self.graphs.add_condition(graph, Arc::new(Condition::new(word, value, each_time)))?;
        Ok(handle)
    }

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
        self.check_allocations(core, &steps)?;
        for condition in steps.iter().filter_map(Step::conditional).map(|work| &work.condition) {
            // What is chosen is not known before it is executed.
            core.captures.refuse(stream)?;
            if let Some(value) = condition.at_launch() {
                core.fill(stream, condition.region(), value, Condition::BYTES as u32, Wait::Async)?;
            }
        }
        Run { core, stream, steps: &steps, host_changes: false }.all(0..steps.len())
    }

    /// What an earlier launch has allocated must have been freed, unless the graph does so itself.
    fn check_allocations(&self, core: &Core, steps: &[Step]) -> Result<()> {
        if self.flags & AUTO_FREE_ON_LAUNCH != 0 {
            return Ok(());
        }
        let lives = |step: &Step| matches!(&step.op, Op::Alloc(a) if core.graph_allocations.is_live(a.addr));
        match steps.iter().any(lives) {
            true => Err(invalid("a graph is launched again of which memory is not freed yet")),
            false => Ok(()),
        }
    }
}

impl Step {
    /// What a conditional node does.
    fn conditional(&self) -> Option<&Conditional> {
        match &self.op {
            Op::Conditional(work) => Some(work),
            _ => None,
        }
    }
}

/// A graph that is being put on a stream.
struct Run<'a> {
    core: &'a Core,
    stream: &'a Stream,
    steps: &'a [Step],
    /// Whether the graph itself may have changed host memory, which must not be read before that is done.
    host_changes: bool,
}

impl Run<'_> {
    /// Puts some of its steps on the stream, with what they choose to do.
    fn all(&mut self, range: Range<usize>) -> Result<()> {
        let mut next = range.start;
        while next < range.end {
            let step = &self.steps[next];
            next = step.branches.last().map_or(next + 1, |last| last.end);
            if step.enabled {
                match step.conditional() {
                    Some(work) => self.choose(work, &step.branches)?,
                    None => self.one(&step.op)?,
                }
            }
        }
        Ok(())
    }

    fn one(&mut self, op: &Op) -> Result<()> {
        let Self { core, stream, .. } = *self;
        if self.host_changes && reads_host(core, op) && !core.captures.is_capturing(stream) {
            core.stream_synchronize(stream)?;
            self.host_changes = false;
        }
        op.run(core, stream)?;
        self.host_changes |= changes_host(core, op);
        Ok(())
    }

    /// Does what a condition says, when it is known.
    fn choose(&mut self, work: &Conditional, branches: &[Range<usize>]) -> Result<()> {
        loop {
            let value = self.value(&work.condition)?;
            let branch = work.choice.graph(value).and_then(|number| branches.get(number));
            let Some(branch) = branch else { return Ok(()) };
            self.all(branch.clone())?;
            if work.choice != Choice::While {
                return Ok(());
            }
        }
    }

    /// What a condition is, when all is done that has been put on the stream.
    fn value(&mut self, condition: &Condition) -> Result<u32> {
        let mut value = 0;
        let (to, from) = (&raw mut value as u64, condition.word.addr);
        self.core.copy(self.stream, to, from, Condition::BYTES, Direction::DeviceToHost, Wait::Sync)?;
        self.host_changes = false;
        Ok(value)
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
            Self::Alloc(_) | Self::Free(_) => match core.captures.divert(stream, || Ok(self.clone())) {
                Some(captured) => captured,
                None => self.allocate_or_free(core, stream),
            },
            // Children and what is done on conditions have steps of their own.
            Self::Empty | Self::Child(_) | Self::Conditional(_) => Ok(()),
        }
    }

    /// What a node for memory does, and any other one not.
    fn allocate_or_free(&self, core: &Core, stream: &Stream) -> Result<()> {
        match self {
            Self::Alloc(allocation) => core.graph_allocations.begin(allocation.addr),
            Self::Free(addr) if core.graph_allocations.end(*addr)? == Freeing::Left => {
                core.memory.free_in_order(stream, *addr)?;
            }
            _ => {}
        }
        Ok(())
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
