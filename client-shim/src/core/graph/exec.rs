//! Graphs that can be launched.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::condition::Choice;
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
    /// Of a conditional node: the steps of its graphs, which follow this one.
    pub branches: Vec<Range<usize>>,
    /// Whether it is done at all.
    pub enabled: bool,
}

/// What has to be alike in two graphs of which one can be made to do what the other does: how many nodes they have, numbered
/// in the order in which they were added, which of them come after which, and their child graphs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub nodes: usize,
    /// In ascending order.
    pub edges: Vec<(usize, usize)>,
    /// By the numbers of their nodes, in ascending order.
    pub children: Vec<(usize, Shape)>,
    /// Likewise of the graphs that are done on conditions, and how they are chosen.
    pub conditional: Vec<(usize, Choice, Vec<Shape>)>,
}

/// A child graph, at whatever depth, within the steps of an executable graph.
pub(crate) struct Part {
    /// The node that it stands for.
    pub node: Raw,
    pub steps: Range<usize>,
    pub shape: Shape,
}

/// What a graph does, in order, with the steps of its child graphs in the places of their nodes.
#[derive(Default)]
pub(crate) struct Plan {
    pub steps: Vec<Step>,
    pub parts: Vec<Part>,
    pub shape: Shape,
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
    parts: Vec<Part>,
    shape: Shape,
    /// The flags that it was instantiated with.
    pub flags: u64,
}

impl Exec {
    pub(super) fn new(plan: Plan, flags: u64) -> Self {
        let Plan { steps, parts, shape } = plan;
        Self { steps: Mutex::new(Arc::new(steps)), parts, shape, flags }
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
    pub(super) fn update(&self, new: &Plan) -> std::result::Result<(), Mismatch> {
        if self.shape != new.shape {
            return Err(Mismatch::Topology);
        }
        self.replace(0..new.steps.len(), &new.steps)
    }

    /// Does from now on in the place of a child graph what `new` does, which must have the same shape.
    pub(super) fn set_child(&self, node: Raw, new: &Plan) -> Result<()> {
        let part = self.parts.iter().find(|part| part.node == node);
        let part = part.ok_or_else(|| invalid("the node is no child graph of this graph"))?;
        if part.shape != new.shape {
            return Err(invalid("the child graph has another shape than that of the node"));
        }
        let done = self.replace(part.steps.clone(), &new.steps);
        done.map_err(|_| invalid("the child graph has a node of another kind than that of the node"))
    }

    fn replace(&self, place: Range<usize>, new: &[Step]) -> std::result::Result<(), Mismatch> {
        let mut steps = self.steps.lock();
        let old = &steps[place.clone()];
        if old.len() != new.len() {
            return Err(Mismatch::Topology);
        }
        if let Some((_, other)) = old.iter().zip(new).find(|(a, b)| a.op.kind() != b.op.kind()) {
            return Err(Mismatch::Kind(other.node));
        }
        for (step, new) in Arc::make_mut(&mut steps)[place].iter_mut().zip(new) {
            step.op = new.op.clone();
        }
        Ok(())
    }
}
