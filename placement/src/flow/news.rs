//! What sources are told when potentials rise.

use super::columns::Entry;
use super::repair::{FAR, Pseudoflow, User};

/// Sources to be told, when potentials rise, that a node has become more attractive.
#[derive(Debug, Default)]
pub(super) struct News {
    told: Vec<Told>,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    node: u32,
    source: u32,
    /// The node that the source uses an arc to.
    head: u32,
    /// What the arc to the node costs more than that.
    extra: i32,
}

/// Arcs that are worse than a source's own by more than this are not told of, and not distinguished by [`User::stay`].
const WORSE: i64 = 32;

impl News {
    /// Whether a source with an arc to a node, which would be `distance` away by that arc, has to be told. The node
    /// rises by no more than what it is nearer than `bound`.
    #[inline]
    pub(super) fn is_near(distance: i64, bound: i64) -> bool {
        distance.saturating_sub(bound) < WORSE
    }

    /// Notes a source with an arc to a node, which uses another one.
    #[inline]
    pub(super) fn note(&mut self, node: u32, entry: &Entry) {
        self.told.push(Told { node, source: entry.source, head: entry.head, extra: entry.extra });
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.told.clear();
    }
}

impl User {
    /// Notes up to which potential of its node a source has nowhere better to go. Said at each look at the node, while the
    /// node's potential is `potential`; so that whoever was not told of an arc, because it was worse by [`WORSE`], is looked at
    /// again when the potential has fallen by as much.
    #[inline]
    pub(super) fn stay(&mut self, level: i64, potential: i64) {
        self.level = if level == -FAR { level } else { level.max(potential - WORSE) };
    }
}

impl Pseudoflow {
    /// Tells sources that nodes, which they have arcs to, have become more attractive.
    pub(super) fn tell(&mut self, news: &News) {
        for &Told { node, source, head, extra } in &news.told {
            let value = self.potentials[node as usize] - i64::from(extra);
            let user = &mut self.users[head as usize][self.position[source as usize] as usize];
            user.level = user.level.max(value);
        }
    }
}
