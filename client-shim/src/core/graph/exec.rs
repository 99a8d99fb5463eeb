//! Graphs that can be launched.

use std::sync::Arc;

use parking_lot::Mutex;

use super::op::Op;
use crate::core::error::{Result, invalid};
use crate::core::registry::Raw;

/// One thing that an executable graph does.
#[derive(Clone)]
pub(crate) struct Step {
    /// The node that it came from.
    pub node: Raw,
    /// The work: never a child graph, whose steps are listed instead.
    pub op: Op,
    /// Whether it is done at all.
    pub enabled: bool,
}

/// Why an executable graph cannot be made to do what another graph does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// The graphs have different shapes.
    Topology,
    /// Two nodes that stand for each other have different kinds. The second graph's node is named.
    Kind(Raw),
}

/// An executable graph: what to do, in order.
pub(crate) struct Exec {
    steps: Mutex<Arc<Vec<Step>>>,
    /// The flags that it was instantiated with.
    pub flags: u64,
}

impl Exec {
    pub(super) fn new(steps: Vec<Step>, flags: u64) -> Self {
        Self { steps: Mutex::new(Arc::new(steps)), flags }
    }

    /// What the graph does at present, in the order in which it is put on a stream.
    pub(crate) fn steps(&self) -> Arc<Vec<Step>> {
        self.steps.lock().clone()
    }

    /// Makes a node's step do something else.
    pub(crate) fn set(&self, node: Raw, op: Op) -> Result<()> {
        self.change(node, |step| {
            if step.op.kind() != op.kind() {
                return Err(invalid("the node is of another kind"));
            }
            step.op = op.with_attributes_of(&step.op);
            Ok(())
        })
    }

    /// `cudaGraphNodeSetEnabled`
    pub(crate) fn set_enabled(&self, node: Raw, enabled: bool) -> Result<()> {
        self.change(node, |step| {
            step.enabled = enabled;
            Ok(())
        })
    }

    /// `cudaGraphNodeGetEnabled`
    pub(crate) fn enabled(&self, node: Raw) -> Result<bool> {
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
