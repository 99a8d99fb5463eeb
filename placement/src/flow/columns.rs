//! Which sources have an arc to a node.

use super::split::Split;

/// An arc of a source, as its head sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub source: u32,
    /// In the source's row. Rows change; an entry is good if this is still in the source's row and leads to the node.
    pub place: u32,
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
        let columns =
            counts.iter().zip(left_out).map(|(&count, &out)| Vec::with_capacity(if out { 0 } else { count }));
        let mut all = Self { columns: columns.collect(), size: 0 };
        for source in 0..split.sources.len() as u32 {
            for place in split.row(source) {
                let head = split.rows[place].head;
                if !left_out[head as usize] {
                    all.add(head, Entry { source, place: place as u32 });
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

    /// The entries of a node, from which those that are no longer good are removed.
    pub fn of(&mut self, split: &Split, node: u32) -> &[Entry] {
        let Some(column) = self.columns.get_mut(node as usize) else { return &[] };
        let before = column.len();
        column.retain(|entry| {
            let span = split.spans[entry.source as usize];
            (span.start..span.end).contains(&entry.place) && split.rows[entry.place as usize].head == node
        });
        self.size -= before - column.len();
        column
    }
}
