//! Which sources have an arc to a node.

use super::residual::NONE;
use super::split::{RowArc, Split};

/// An arc of a source, as its head sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub source: u32,
    /// In the source's row.
    pub place: u32,
    pub cost: i32,
    /// What the arc costs that the source uses, and where it leads; to nowhere while the source waits. Here, because looking it up for each
    /// entry of a column would take longest of all. Not kept up to date for sources that have just begun to wait.
    pub own: i32,
    pub head: u32,
}

/// The arcs of sources by the node that they lead to.
#[derive(Debug)]
pub(super) struct Columns {
    columns: Vec<Vec<Entry>>,
    /// By place in the rows, which entry of its head's column stands for it; `NONE` without one. Entries that no place has are of
    /// arcs that are gone.
    slots: Vec<u32>,
    /// By node, whether there are arcs that its column leaves out.
    hidden: Vec<bool>,
    /// All entries, good or not.
    size: usize,
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
            size: 0,
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
        self.columns[head].push(Entry { source, place, cost: arc.cost, own: own.cost, head: own.head });
        self.size += 1;
    }

    /// Notes that a source uses another arc.
    pub fn choose(&mut self, split: &Split, source: u32, own: RowArc) {
        for place in split.row(source) {
            let slot = self.slots[place];
            if slot != NONE {
                let entry = &mut self.columns[split.rows[place].head as usize][slot as usize];
                (entry.own, entry.head) = (own.cost, own.head);
            }
        }
    }

    /// Whether an entry of a node's column still stands for an arc.
    pub fn is_good(&self, split: &Split, node: u32, index: usize) -> bool {
        let Entry { source, place, .. } = self.columns[node as usize][index];
        let span = split.spans[source as usize];
        (span.start..span.end).contains(&place)
            && self.slots[place as usize] as usize == index
            && split.rows[place as usize].head == node
    }

    /// Whether there may be arcs to a node that its column leaves out.
    pub fn is_hidden(&self, node: u32) -> bool {
        self.hidden.get(node as usize).copied().unwrap_or(false)
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
