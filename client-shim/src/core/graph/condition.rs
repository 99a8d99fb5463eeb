//! Conditional nodes: graphs that are done or not, or again and again, as a word of device memory says.
//!
//! A program makes the word with `cudaGraphConditionalHandleCreate`; its address is the handle. Kernels set it with `cudaGraphSetConditional`.
//! The graph is executed on this side of the connection, so each look at the word waits for what comes before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rgpu_device::Region;

use super::memory::GraphAllocation;
use super::op::NodeKind;
use crate::core::error::{Result, invalid};
use crate::core::registry::Raw;

/// A word that kernels set and that graphs are done by.
pub(crate) struct Condition {
    /// The word. Its address is the handle.
    pub word: Arc<GraphAllocation>,
    /// What it is when the graph is launched for the first time.
    value: u32,
    /// Whether it becomes that again with each launch.
    each_time: bool,
    launched: AtomicBool,
}

impl Condition {
    /// A condition with its value when the graph is launched, for the first time or `each_time`.
    pub(crate) fn new(word: Arc<GraphAllocation>, value: u32, each_time: bool) -> Self {
        Self { word, value, each_time, launched: AtomicBool::new(false) }
    }

    /// The graph is launched: what the word becomes, if anything.
    pub(crate) fn at_launch(&self) -> Option<u32> {
        let first = !self.launched.swap(true, Ordering::Relaxed);
        (first || self.each_time).then_some(self.value)
    }

    /// Bytes of the word.
    pub(crate) const BYTES: u64 = size_of::<u32>() as u64;

    /// Where the word is.
    pub(crate) fn region(&self) -> Region {
        Region::linear(self.word.addr, Self::BYTES)
    }
}

/// How a condition chooses among graphs, numbered as `cudaGraphConditionalNodeType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The first one where it is not 0, and else the second, if there is one.
    If = 0,
    /// The only one, as long as it is not 0.
    While = 1,
    /// That of its number, if there is one.
    Switch = 2,
}

impl Choice {
    /// The way of choosing with this number, among so many graphs.
    pub(crate) fn new(number: u32, graphs: u32) -> Result<Self> {
        match (number, graphs) {
            (0, 1 | 2) => Ok(Self::If),
            (1, 1) => Ok(Self::While),
            (2, 1..) => Ok(Self::Switch),
            _ => Err(invalid(format!("a conditional node of type {number} with {graphs} graphs"))),
        }
    }

    /// Which graph is done where the word has a value.
    pub(crate) fn graph(self, value: u32) -> Option<usize> {
        match self {
            Self::If => Some(usize::from(value == 0)),
            Self::While => (value != 0).then_some(0),
            Self::Switch => usize::try_from(value).ok(),
        }
    }
}

/// What a conditional node does.
pub(crate) struct Conditional {
    /// By what.
    pub condition: Arc<Condition>,
    /// How.
    pub choice: Choice,
    /// The graphs, by their handles. The program is told where the list is.
    pub graphs: Box<[Raw]>,
}

/// Checks that a node may be in a graph that is done on a condition.
pub(super) fn check_inside(kind: NodeKind) -> Result<()> {
    match kind {
        NodeKind::Kernel
        | NodeKind::Memcpy
        | NodeKind::Memset
        | NodeKind::Empty
        | NodeKind::Graph
        | NodeKind::Conditional => Ok(()),
        other => Err(invalid(format!("a node of the kind {other:?} in a graph that is done on a condition"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_chooses_as_its_node_says() {
        let number = |choice: Choice, value| choice.graph(value);
        let either = Choice::new(0, 2).unwrap();
        assert_eq!((number(either, 5), number(either, 0)), (Some(0), Some(1)));
        let again = Choice::new(1, 1).unwrap();
        assert_eq!((number(again, 1), number(again, 0)), (Some(0), None));
        let one_of = Choice::new(2, 3).unwrap();
        assert_eq!((number(one_of, 0), number(one_of, 7)), (Some(0), Some(7)));
        for (kind, graphs) in [(0, 0), (0, 3), (1, 2), (2, 0), (3, 1)] {
            assert!(Choice::new(kind, graphs).is_err(), "type {kind} with {graphs} graphs");
        }
    }
}
