//! Which sources have an arc to a node.

use super::split::Split;

/// An arc of a source, as its head sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub source: u32,
    /// In the source's row. Rows change; an entry is good if this is still there, leads to the node, and costs as much.
    pub place: u32,
    pub cost: i32,
}

impl Entry {
    /// Whether the arc is still there.
    pub fn is_good(self, split: &Split, node: u32) -> bool {
        let (span, arc) = (split.spans[self.source as usize], split.rows[self.place as usize]);
        (span.start..span.end).contains(&self.place) && arc.head == node && arc.cost == self.cost
    }
}

/// The arcs of sources by the node that they lead to.
#[derive(Debug)]
pub(super) struct Columns {
    columns: Vec<Vec<Entry>>,
    /// All entries, good or not.
    size: usize,
}

impl Columns {
    /// The columns of all nodes but some.
    pub fn new(split: &Split, left_out: &[bool]) -> Self {
        let mut counts = vec![0usize; split.core_nodes.len()];
        for source in 0..split.sources.len() as u32 {
            for place in split.row(source) {
                counts[split.rows[place].head as usize] += 1;
            }
        }
        // With room for some more, so that a newcomer needn't move all.
        let room = |count: usize| count + count / 8 + 4;
        let columns = counts
            .iter()
            .zip(left_out)
            .map(|(&count, &out)| Vec::with_capacity(if out { 0 } else { room(count) }));
        let mut all = Self { columns: columns.collect(), size: 0 };
        for source in 0..split.sources.len() as u32 {
            for place in split.row(source) {
                let arc = split.rows[place];
                if !left_out[arc.head as usize] {
                    all.add(arc.head, Entry { source, place: place as u32, cost: arc.cost });
                }
            }
        }
        all
    }

    /// Notes an arc.
    pub fn add(&mut self, head: u32, entry: Entry) {
        if self.columns.len() <= head as usize {
            self.columns.resize_with(head as usize + 1, Vec::new);
        }
        self.columns[head as usize].push(entry);
        self.size += 1;
    }

    /// How many entries there are, good or not.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The entries of a node, good or not.
    pub fn of(&self, node: u32) -> &[Entry] {
        self.columns.get(node as usize).map_or(&[], Vec::as_slice)
    }
}
