//! Which sources have an arc to a node.

use super::pages::vec_in_large_pages;
use super::residual::NONE;
use super::split::{RowArc, Split};

/// An arc of a source, as its head sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub source: u32,
    /// In the source's row.
    pub place: u32,
    /// Where the arc leads that the source uses; to nowhere while the source uses none. Here, because looking it up for each
    /// entry of a column would take longest of all.
    pub head: u32,
    /// What the arc costs more than the one that the source uses.
    pub extra: i32,
}

/// Where a node's column is in the pool.
#[derive(Clone, Copy, Debug, Default)]
struct Column {
    start: u32,
    end: u32,
    /// The end of the place that is set aside.
    limit: u32,
}

/// The arcs of sources by the node that they lead to.
#[derive(Debug)]
pub(super) struct Columns {
    /// All entries, one column after another, each with room for some more.
    pool: Vec<Entry>,
    columns: Vec<Column>,
    /// By place in the rows, which entry stands for it; `NONE` without one.
    slots: Vec<u32>,
    /// By node, whether there are arcs that its column leaves out.
    hidden: Vec<bool>,
}

const UNUSED: Entry = Entry { source: NONE, place: NONE, head: NONE, extra: 0 };

impl Columns {
    /// The columns of all nodes but some.
    pub(super) fn new(split: &Split, using: &[RowArc], left_out: &[bool]) -> Self {
        let mut counts = vec![0u32; split.core_nodes.len()];
        for source in 0..split.sources.len() as u32 {
            for place in split.row(source) {
                counts[split.rows[place].head as usize] += 1;
            }
        }
        let mut size = 0;
        // With room for some more, so that a newcomer needn't move all.
        let columns = counts.iter().zip(left_out).map(|(&count, &out)| {
            let start = size;
            size += if out { 0 } else { count + count / 8 + 4 };
            Column { start, end: start, limit: size }
        });
        let columns = columns.collect();
        let mut all = Self {
            pool: vec_in_large_pages(UNUSED, size as usize),
            columns,
            slots: vec_in_large_pages(NONE, split.rows.len()),
            hidden: vec![false; left_out.len()],
        };
        for source in 0..split.sources.len() as u32 {
            for place in split.row(source) {
                all.add(split.rows[place], source, place as u32, using[source as usize], left_out);
            }
        }
        all
    }

    /// Notes a source's arc, and the one that the source uses.
    pub(super) fn add(&mut self, arc: RowArc, source: u32, place: u32, own: RowArc, left_out: &[bool]) {
        let head = arc.head as usize;
        if self.columns.len() <= head {
            self.columns.resize(head + 1, Column::default());
            self.hidden.resize(head + 1, false);
        }
        if self.slots.len() <= place as usize {
            self.slots.resize(place as usize + 1, NONE);
        }
        if left_out[head] {
            self.hidden[head] = true;
            self.slots[place as usize] = NONE;
            return;
        }
        if self.columns[head].end == self.columns[head].limit {
            self.enlarge(head);
        }
        let end = &mut self.columns[head].end;
        self.slots[place as usize] = *end;
        self.pool[*end as usize] = Entry { source, place, head: own.head, extra: arc.cost - own.cost };
        *end += 1;
    }

    /// Moves a column to the end, with room for as many again.
    fn enlarge(&mut self, node: usize) {
        let old = self.columns[node];
        let (start, length) = (self.pool.len() as u32, old.end - old.start);
        self.pool.extend_from_within(old.start as usize..old.end as usize);
        for (slot, entry) in (start..).zip(&self.pool[start as usize..]) {
            self.slots[entry.place as usize] = slot;
        }
        let limit = start + 2 * length + 8;
        self.pool.resize(limit as usize, UNUSED);
        self.columns[node] = Column { start, end: start + length, limit };
    }

    /// Notes that there is no longer an arc to `head` at a place.
    pub(super) fn remove(&mut self, head: u32, place: u32) {
        let slot = std::mem::replace(&mut self.slots[place as usize], NONE);
        if slot != NONE {
            // The last of the column takes its place.
            let end = &mut self.columns[head as usize].end;
            *end -= 1;
            if *end != slot {
                let moved = self.pool[*end as usize];
                self.pool[slot as usize] = moved;
                self.slots[moved.place as usize] = slot;
            }
        }
    }

    /// Notes that a source's arc is at another place now.
    pub(super) fn relocate(&mut self, from: u32, to: u32) {
        if self.slots.len() <= to as usize {
            self.slots.resize(to as usize + 1, NONE);
        }
        let slot = std::mem::replace(&mut self.slots[from as usize], NONE);
        self.slots[to as usize] = slot;
        if slot != NONE {
            self.pool[slot as usize].place = to;
        }
    }

    /// Notes what the arc at a place costs.
    pub(super) fn price(&mut self, place: u32, arc: RowArc, own: RowArc) {
        let slot = self.slots[place as usize];
        if slot != NONE {
            self.pool[slot as usize].extra = arc.cost - own.cost;
        }
    }

    /// Notes that a source uses another arc, or none.
    pub(super) fn choose(&mut self, split: &Split, source: u32, own: RowArc) {
        for place in split.row(source) {
            let slot = self.slots[place];
            if slot != NONE {
                let entry = &mut self.pool[slot as usize];
                (entry.head, entry.extra) = (own.head, split.rows[place].cost - own.cost);
            }
        }
    }

    /// Notes that a source's arcs are about to be removed.
    pub(super) fn forget(&mut self, split: &Split, source: u32) {
        for place in split.row(source) {
            self.remove(split.rows[place].head, place as u32);
        }
    }

    /// Whether there may be arcs to a node that its column leaves out.
    pub(super) fn is_hidden(&self, node: u32) -> bool {
        self.hidden.get(node as usize).copied().unwrap_or(false)
    }

    /// The entries of a node.
    pub(super) fn of(&self, node: u32) -> &[Entry] {
        self.columns
            .get(node as usize)
            .map_or(&[], |column| &self.pool[column.start as usize..column.end as usize])
    }
}
