//! Which sources have an arc to a node.

use super::residual::NONE;
use super::split::{RowArc, Split};

/// An arc of a source, as its head sees it.
#[derive(Clone, Copy, Debug)]
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

/// The arcs of sources by the node that they lead to.
#[derive(Debug)]
pub(super) struct Columns {
    columns: Vec<Vec<Entry>>,
    /// By place in the rows, which entry of its head's column stands for it; `NONE` without one.
    slots: Vec<u32>,
    /// By node, whether there are arcs that its column leaves out.
    hidden: Vec<bool>,
}

impl Columns {
    /// The columns of all nodes but some.
    pub fn new(split: &Split, using: &[RowArc], left_out: &[bool]) -> Self {
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
        let mut all = Self {
            columns: columns.collect(),
            slots: vec![NONE; split.rows.len()],
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
    pub fn add(&mut self, arc: RowArc, source: u32, place: u32, own: RowArc, left_out: &[bool]) {
        let head = arc.head as usize;
        if self.columns.len() <= head {
            self.columns.resize_with(head + 1, Vec::new);
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
        self.slots[place as usize] = self.columns[head].len() as u32;
        self.columns[head].push(Entry { source, place, head: own.head, extra: arc.cost - own.cost });
    }

    /// Notes that there is no longer an arc to `head` at a place.
    pub fn remove(&mut self, head: u32, place: u32) {
        let slot = std::mem::replace(&mut self.slots[place as usize], NONE);
        if slot != NONE {
            let column = &mut self.columns[head as usize];
            column.swap_remove(slot as usize);
            if let Some(moved) = column.get(slot as usize) {
                self.slots[moved.place as usize] = slot;
            }
        }
    }

    /// Notes that the arc to `head` at a place is at another now.
    pub fn relocate(&mut self, head: u32, from: u32, to: u32) {
        if self.slots.len() <= to as usize {
            self.slots.resize(to as usize + 1, NONE);
        }
        let slot = std::mem::replace(&mut self.slots[from as usize], NONE);
        self.slots[to as usize] = slot;
        if slot != NONE {
            self.columns[head as usize][slot as usize].place = to;
        }
    }

    /// Notes what the arc at a place costs.
    pub fn price(&mut self, arc: RowArc, place: u32, own: RowArc) {
        let slot = self.slots[place as usize];
        if slot != NONE {
            self.columns[arc.head as usize][slot as usize].extra = arc.cost - own.cost;
        }
    }

    /// Notes that a source uses another arc, or none.
    pub fn choose(&mut self, split: &Split, source: u32, own: RowArc) {
        for place in split.row(source) {
            let slot = self.slots[place];
            if slot != NONE {
                let arc = split.rows[place];
                let entry = &mut self.columns[arc.head as usize][slot as usize];
                (entry.head, entry.extra) = (own.head, arc.cost - own.cost);
            }
        }
    }

    /// Whether there may be arcs to a node that its column leaves out.
    pub fn is_hidden(&self, node: u32) -> bool {
        self.hidden.get(node as usize).copied().unwrap_or(false)
    }

    /// The entries of a node.
    pub fn of(&self, node: u32) -> &[Entry] {
        self.columns.get(node as usize).map_or(&[], Vec::as_slice)
    }
}
