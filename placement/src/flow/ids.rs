//! Identifiers of a network's nodes and arcs.

/// A node of a [`Network`](super::Network); valid until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(super) u32);

/// An arc of a [`Network`](super::Network); valid until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArcId(pub(super) u32);

impl NodeId {
    /// Its place, counted from 0 in the order of adding.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl ArcId {
    /// Its place, counted from 0 in the order of adding.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
