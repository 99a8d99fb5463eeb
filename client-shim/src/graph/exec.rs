//! Graphs that can be launched.

use std::sync::Arc;

use parking_lot::Mutex;

use super::op::Op;
use crate::core::error::invalid;
use crate::core::registry::Raw;
use crate::core::{Core, Direction, PointerKind, Result, Stream};

/// One thing that an executable graph does.
#[derive(Clone)]
pub(super) struct Step {
    /// The node that it came from.
    pub(super) node: Raw,
    pub(super) op: Op,
    pub(super) enabled: bool,
}

/// Why an executable graph cannot be made to do what another graph does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// The graphs have different shapes.
    Topology,
    /// Two nodes that stand for each other have different kinds. The second graph's node is named.
    Kind(Raw),
}

/// An executable graph: what to do, in order.
pub struct Exec {
    steps: Mutex<Arc<Vec<Step>>>,
    /// The flags that it was instantiated with.
    pub flags: u64,
}

impl Exec {
    pub(super) fn new(steps: Vec<Step>, flags: u64) -> Self {
        Self { steps: Mutex::new(Arc::new(steps)), flags }
    }

    /// How many nodes it executes.
    #[cfg(test)]
    pub(super) fn steps(&self) -> usize {
        self.steps.lock().len()
    }

    /// Puts everything on a stream.
    pub fn launch(&self, core: &Core, stream: &Stream) -> Result<()> {
        let steps = self.steps.lock().clone();
        // Host memory that the graph itself may have changed must not be read before that is done.
        let mut host_changes = false;
        for step in steps.iter().filter(|s| s.enabled) {
            if host_changes && reads_host(core, &step.op) && !super::capture::is_capturing(stream) {
                core.stream_synchronize(stream)?;
                host_changes = false;
            }
            step.op.run(core, stream)?;
            host_changes |= changes_host(core, &step.op);
        }
        Ok(())
    }

    /// Makes a node's step do something else.
    pub fn set(&self, node: Raw, op: Op) -> Result<()> {
        self.change(node, |step| {
            if step.op.kind() != op.kind() {
                return Err(invalid("the node is of another kind"));
            }
            step.op = op;
            Ok(())
        })
    }

    /// `cudaGraphNodeSetEnabled`
    pub fn set_enabled(&self, node: Raw, enabled: bool) -> Result<()> {
        self.change(node, |step| {
            step.enabled = enabled;
            Ok(())
        })
    }

    /// `cudaGraphNodeGetEnabled`
    pub fn enabled(&self, node: Raw) -> Result<bool> {
        let steps = self.steps.lock();
        let step = steps.iter().find(|s| s.node == node);
        step.map(|s| s.enabled).ok_or_else(|| invalid("the node is not in this graph"))
    }

    fn change(&self, node: Raw, f: impl FnOnce(&mut Step) -> Result<()>) -> Result<()> {
        let mut steps = self.steps.lock();
        let index = steps.iter().position(|s| s.node == node);
        let index = index.ok_or_else(|| invalid("the node is not in this graph"))?;
        f(&mut Arc::make_mut(&mut steps)[index])
    }

    /// Does from now on what `new` does, which must have the same shape.
    pub(super) fn update(&self, new: &[Step]) -> std::result::Result<(), Mismatch> {
        let mut steps = self.steps.lock();
        if steps.len() != new.len() {
            return Err(Mismatch::Topology);
        }
        if let Some((_, other)) = steps.iter().zip(new).find(|(a, b)| a.op.kind() != b.op.kind()) {
            return Err(Mismatch::Kind(other.node));
        }
        for (step, new) in Arc::make_mut(&mut steps).iter_mut().zip(new) {
            step.op = new.op.clone();
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
        _ => false,
    }
}
