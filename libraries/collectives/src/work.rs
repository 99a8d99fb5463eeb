//! The operations.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use crate::exchange::{Receive, Send, Tag};
use crate::group::Group;
use crate::reduce::{Factor, Reduction, combine, scale};
use crate::wire::Header;
use crate::{Failure, Result};

/// So many bytes of an operation are in this process's memory at a time, more or less.
const SEGMENT: u64 = 8 << 20;
/// So many bytes of a message are. Both sides cut it up in the same way, whatever else each of them is doing.
const PIECE: u64 = 1 << 20;
/// Up to this many bytes in all, a reduction's ranks send everything to each other and save a step.
const SMALL: u64 = 32 << 10;
/// From this many bytes on, a broadcast's root sends each rank a part, which the ranks pass on.
const SHARED: u64 = 64 << 10;

/// Memory that operations read and write.
pub trait Memory {
    /// Reads what lies there.
    ///
    /// # Errors
    /// Why that cannot be.
    fn read(&mut self, from: u64, to: &mut [u8]) -> std::result::Result<(), String>;

    /// Writes there.
    ///
    /// # Errors
    /// Why that cannot be.
    fn write(&mut self, to: u64, from: &[u8]) -> std::result::Result<(), String>;
}

/// An operation that all ranks do. Addresses are the [`Memory`]'s; counts are of bytes, or of elements where they are
/// reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the parts have NCCL's names")]
pub enum Work {
    /// All get the reduction of all.
    AllReduce { send: u64, recv: u64, count: u64, reduction: Reduction },
    /// The root gets the reduction of all.
    Reduce { send: u64, recv: u64, count: u64, reduction: Reduction, root: u32 },
    /// Each gets its block of the reduction of all; `count` is a block's.
    ReduceScatter { send: u64, recv: u64, count: u64, reduction: Reduction },
    /// All get what the root has.
    Broadcast { send: u64, recv: u64, bytes: u64, root: u32 },
    /// All get what all have, by rank.
    AllGather { send: u64, recv: u64, bytes: u64 },
    /// The root gets what all have, by rank.
    Gather { send: u64, recv: u64, bytes: u64, root: u32 },
    /// Each gets its block of what the root has.
    Scatter { send: u64, recv: u64, bytes: u64, root: u32 },
    /// Each gets its block of what each has.
    AllToAll { send: u64, recv: u64, bytes: u64 },
}

/// A message from one rank to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Whether this rank sends it.
    pub is_send: bool,
    /// The other rank.
    pub peer: u32,
    /// Where it lies, or goes.
    pub addr: u64,
    /// How long it is.
    pub bytes: u64,
}

/// The numbers of operations in messages, and what people call them.
const NAMES: [&str; 11] = [
    "AllReduce",
    "Reduce",
    "ReduceScatter",
    "Broadcast",
    "AllGather",
    "Gather",
    "Scatter",
    "AllToAll",
    "Send and Recv",
    "Split",
    "Shrink",
];
const TRANSFER: u8 = 8;
const SPLIT: u8 = 9;
const SHRINK: u8 = 10;

impl Work {
    fn tag(&self) -> Tag {
        let plain = |operation, total, root| Tag { operation, total, root, ..Tag::default() };
        let reduced = |operation, total, root, reduction: &Reduction| Tag {
            element: reduction.element as u8,
            operator: reduction.operator as u8,
            ..plain(operation, total, root)
        };
        match self {
            Self::AllReduce { count, reduction, .. } => reduced(0, *count, 0, reduction),
            Self::Reduce { count, reduction, root, .. } => reduced(1, *count, *root, reduction),
            Self::ReduceScatter { count, reduction, .. } => reduced(2, *count, 0, reduction),
            Self::Broadcast { bytes, root, .. } => plain(3, *bytes, *root),
            Self::AllGather { bytes, .. } => plain(4, *bytes, 0),
            Self::Gather { bytes, root, .. } => plain(5, *bytes, *root),
            Self::Scatter { bytes, root, .. } => plain(6, *bytes, *root),
            Self::AllToAll { bytes, .. } => plain(7, *bytes, 0),
        }
    }
}

/// What a message belongs to, for people.
pub(crate) fn described(header: &Header) -> String {
    let name = NAMES.get(usize::from(header.operation)).copied().unwrap_or("an unknown operation");
    let (total, step, sequence) = (header.total, header.step, header.sequence);
    match header.operation {
        0..=2 => format!(
            "{name} of {total} elements (type {}, operator {}, root {}), step {step}, message {sequence}",
            header.element, header.operator, header.root
        ),
        TRANSFER => format!("{name} of {total} bytes, message {sequence}"),
        _ => format!("{name} of {total} bytes (root {}), step {step}, message {sequence}", header.root),
    }
}

/// Pieces of a whole, none longer than `most`.
fn segments(whole: u64, most: u64) -> impl Iterator<Item = Range<u64>> {
    let most = most.max(1);
    (0..whole.div_ceil(most)).map(move |i| i * most..(i * most).saturating_add(most).min(whole))
}

/// The part of so many elements that a rank looks after, in bytes.
fn share(count: usize, element: usize, ranks: usize, rank: usize) -> Range<usize> {
    let edge = |rank: usize| (count as u128 * rank as u128 / ranks as u128) as usize * element;
    edge(rank)..edge(rank + 1)
}

fn read(memory: &mut dyn Memory, from: u64, to: &mut [u8]) -> Result<()> {
    if to.is_empty() { Ok(()) } else { memory.read(from, to).map_err(Failure::Memory) }
}

fn write(memory: &mut dyn Memory, to: u64, from: &[u8]) -> Result<()> {
    if from.is_empty() { Ok(()) } else { memory.write(to, from).map_err(Failure::Memory) }
}

impl Tag {
    fn step(self, step: u8) -> Self {
        Self { step, ..self }
    }
}

impl Group {
    /// Does one operation. When it fails, the group is of no use any more.
    ///
    /// # Errors
    /// Why it did not happen.
    pub fn perform(&mut self, work: &Work, memory: &mut dyn Memory) -> Result<()> {
        let tag = work.tag();
        match *work {
            Work::AllReduce { send, recv, count, reduction } => {
                self.in_segments(count, reduction, 1, |group, at, bytes, reduction| {
                    let mut data = group.own(memory, send + at, bytes, reduction)?;
                    group.all_reduce(tag, &mut data, reduction)?;
                    write(memory, recv + at, &data)
                })
            }
            Work::Reduce { send, recv, count, reduction, root } => {
                self.in_segments(count, reduction, 1, |group, at, bytes, reduction| {
                    let mut data = group.own(memory, send + at, bytes, reduction)?;
                    group.reduce(tag, &mut data, reduction)?;
                    if group.rank == root { write(memory, recv + at, &data) } else { Ok(()) }
                })
            }
            Work::ReduceScatter { send, recv, count, reduction } => {
                let block = count * reduction.element.bytes() as u64;
                let ranks = u64::from(self.ranks());
                self.in_segments(count, reduction, ranks, |group, at, bytes, reduction| {
                    let mut blocks = Vec::new();
                    for rank in 0..ranks {
                        blocks.push(group.own(memory, send + rank * block + at, bytes, reduction)?);
                    }
                    let own = group.reduce_blocks(tag, &blocks, reduction)?;
                    write(memory, recv + at, &own)
                })
            }
            Work::Broadcast { send, recv, bytes, root } => segments(bytes, SEGMENT).try_for_each(|part| {
                let mut data = vec![0; (part.end - part.start) as usize];
                if self.rank == root {
                    read(memory, send + part.start, &mut data)?;
                }
                self.broadcast(tag, &mut data, root)?;
                if self.rank == root && send == recv {
                    Ok(())
                } else {
                    write(memory, recv + part.start, &data)
                }
            }),
            Work::AllGather { send, recv, bytes } => {
                self.blocks(tag, memory, bytes, |_, rank| (Some(send), Some(recv + u64::from(rank) * bytes)))
            }
            Work::Gather { send, recv, bytes, root } => self.blocks(tag, memory, bytes, |group, rank| {
                let place = (group.rank == root).then_some(recv + u64::from(rank) * bytes);
                ((rank == root).then_some(send), place)
            }),
            Work::Scatter { send, recv, bytes, root } => self.blocks(tag, memory, bytes, |group, rank| {
                let block = (group.rank == root).then_some(send + u64::from(rank) * bytes);
                (block, (rank == root).then_some(recv))
            }),
            Work::AllToAll { send, recv, bytes } => self.blocks(tag, memory, bytes, |_, rank| {
                let at = u64::from(rank) * bytes;
                (Some(send + at), Some(recv + at))
            }),
        }
    }

    /// Does all of these at the same time. Those between the same two ranks are paired in order.
    ///
    /// # Errors
    /// Why it did not happen; the group is of no use any more then.
    pub fn transfer(&mut self, transfers: &[Transfer], memory: &mut dyn Memory) -> Result<()> {
        let longest = transfers.iter().map(|transfer| transfer.bytes).max().unwrap_or(0);
        segments(longest, PIECE).try_for_each(|part| self.transfer_part(transfers, &part, memory))
    }

    fn transfer_part(
        &mut self,
        transfers: &[Transfer],
        part: &Range<u64>,
        memory: &mut dyn Memory,
    ) -> Result<()> {
        let active: Vec<&Transfer> = transfers.iter().filter(|t| t.bytes > part.start).collect();
        let mut buffers = Vec::new();
        for transfer in &active {
            let mut buffer = vec![0; (part.end.min(transfer.bytes) - part.start) as usize];
            if transfer.is_send {
                read(memory, transfer.addr + part.start, &mut buffer)?;
            }
            buffers.push(buffer);
        }
        let (mut sends, mut receives): (Vec<Send<'_>>, Vec<Receive<'_>>) = (Vec::new(), Vec::new());
        for (transfer, buffer) in active.iter().zip(&mut buffers) {
            let tag = Tag { operation: TRANSFER, total: transfer.bytes, ..Tag::default() };
            if transfer.is_send {
                sends.push((transfer.peer, tag, buffer));
            } else {
                receives.push((transfer.peer, tag, buffer));
            }
        }
        self.exchange(sends, receives)?;
        for (transfer, buffer) in active.iter().zip(&buffers).filter(|(transfer, _)| !transfer.is_send) {
            write(memory, transfer.addr + part.start, buffer)?;
        }
        Ok(())
    }

    /// Tells all ranks something, and hears of all the same.
    ///
    /// # Errors
    /// As [`Group::perform`].
    pub fn tell_all(&mut self, step: u8, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let tag = Tag { operation: SPLIT, total: mine.len() as u64, step, ..Tag::default() };
        let mut all: Vec<Vec<u8>> = (0..self.ranks()).map(|_| vec![0; mine.len()]).collect();
        let sends = (0..self.ranks()).map(|rank| (rank, tag, mine)).collect();
        let receives = (0..).zip(&mut all).map(|(rank, bytes)| (rank, tag, bytes.as_mut_slice())).collect();
        self.exchange(sends, receives)?;
        Ok(all)
    }

    /// The first of these ranks, of which this is one, tells the others something.
    ///
    /// # Errors
    /// As [`Group::perform`].
    pub fn tell(&mut self, members: &[u32], message: &mut [u8]) -> Result<()> {
        let tag = Tag { operation: SHRINK, total: members.len() as u64, ..Tag::default() };
        let Some((first, others)) = members.split_first() else { return Ok(()) };
        if *first == self.rank {
            let message = &*message;
            self.exchange(others.iter().map(|rank| (*rank, tag, message)).collect(), Vec::new())
        } else {
            self.exchange(Vec::new(), vec![(*first, tag, message)])
        }
    }

    /// Calls `body` for each piece of so many elements, with where it is and how long, and the reduction with its
    /// factor's value.
    fn in_segments(
        &mut self,
        count: u64,
        reduction: Reduction,
        blocks: u64,
        mut body: impl FnMut(&mut Self, u64, u64, Reduction) -> Result<()>,
    ) -> Result<()> {
        if !reduction.element.can_be_reduced() {
            return Err(Failure::Invalid(format!("{:?} is not reduced", reduction.element)));
        }
        let element = reduction.element.bytes() as u64;
        segments(count, SEGMENT / element / blocks).try_for_each(|part| {
            body(self, part.start * element, (part.end - part.start) * element, reduction)
        })
    }

    /// This rank's elements, multiplied by their factor.
    fn own(&self, memory: &mut dyn Memory, from: u64, bytes: u64, reduction: Reduction) -> Result<Vec<u8>> {
        let mut data = vec![0; bytes as usize];
        read(memory, from, &mut data)?;
        let factor = match reduction.factor {
            None => return Ok(data),
            Some(Factor::Value(value)) => value,
            Some(Factor::At(place)) => {
                let mut value = [0; 8];
                read(memory, place, &mut value[..reduction.element.bytes()])?;
                value
            }
        };
        scale(reduction.element, factor, &mut data);
        Ok(data)
    }

    fn all_reduce(&mut self, tag: Tag, data: &mut [u8], reduction: Reduction) -> Result<()> {
        if data.len() as u64 * u64::from(self.ranks()) > SMALL {
            let own = self.reduce_shares(tag, data, reduction)?;
            return self.gather_shares(tag.step(1), data, &own, reduction.element.bytes(), None);
        }
        let mut all: Vec<Vec<u8>> = (0..self.ranks()).map(|_| vec![0; data.len()]).collect();
        let mine = &*data;
        let sends = (0..self.ranks()).map(|rank| (rank, tag, mine)).collect();
        let receives = (0..).zip(&mut all).map(|(rank, place)| (rank, tag, place.as_mut_slice())).collect();
        self.exchange(sends, receives)?;
        let pieces: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        combine(reduction.element, reduction.operator, &pieces, data);
        Ok(())
    }

    /// As [`Group::all_reduce`], where the root alone gets it.
    fn reduce(&mut self, tag: Tag, data: &mut [u8], reduction: Reduction) -> Result<()> {
        let own = self.reduce_shares(tag, data, reduction)?;
        self.gather_shares(tag.step(1), data, &own, reduction.element.bytes(), Some(tag.root))
    }

    /// Yields this rank's share of the reduction.
    fn reduce_shares(&mut self, tag: Tag, data: &[u8], reduction: Reduction) -> Result<Vec<u8>> {
        let (element, ranks) = (reduction.element.bytes(), self.peers.len());
        let blocks: Vec<&[u8]> =
            (0..ranks).map(|rank| &data[share(data.len() / element, element, ranks, rank)]).collect();
        self.reduce_blocks(tag, &blocks, reduction)
    }

    /// Sends each rank its block, and yields the reduction of this rank's blocks.
    fn reduce_blocks<B: AsRef<[u8]>>(
        &mut self,
        tag: Tag,
        blocks: &[B],
        reduction: Reduction,
    ) -> Result<Vec<u8>> {
        let mut own = vec![0; blocks[self.rank as usize].as_ref().len()];
        let mut pieces: Vec<Vec<u8>> = (0..self.ranks()).map(|_| own.clone()).collect();
        let sends = (0..).zip(blocks).map(|(rank, block)| (rank, tag, block.as_ref())).collect();
        let receives =
            (0..).zip(&mut pieces).map(|(rank, place)| (rank, tag, place.as_mut_slice())).collect();
        self.exchange(sends, receives)?;
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        combine(reduction.element, reduction.operator, &pieces, &mut own);
        Ok(own)
    }

    /// Puts the ranks' shares together, at all ranks or at the root.
    fn gather_shares(
        &mut self,
        tag: Tag,
        data: &mut [u8],
        own: &[u8],
        element: usize,
        root: Option<u32>,
    ) -> Result<()> {
        let (ranks, count) = (self.peers.len(), data.len() / element);
        let gets = |rank: u32| root.is_none_or(|root| root == rank);
        let sends = (0..self.ranks()).filter(|rank| gets(*rank)).map(|rank| (rank, tag, own)).collect();
        let mut receives = Vec::new();
        if gets(self.rank) {
            let mut rest = data;
            for rank in 0..ranks {
                let (place, after) = rest.split_at_mut(share(count, element, ranks, rank).len());
                receives.push((rank as u32, tag, place));
                rest = after;
            }
        }
        self.exchange(sends, receives)
    }

    fn broadcast(&mut self, tag: Tag, data: &mut [u8], root: u32) -> Result<()> {
        let ranks = self.peers.len();
        if ranks <= 3 || (data.len() as u64) < SHARED {
            return if self.rank == root {
                let data = &*data;
                let others = (0..self.ranks()).filter(|rank| *rank != root);
                self.exchange(others.map(|rank| (rank, tag, data)).collect(), Vec::new())
            } else {
                self.exchange(Vec::new(), vec![(root, tag, data)])
            };
        }
        let mut own = vec![0; share(data.len(), 1, ranks, self.rank as usize).len()];
        let mut sends: Vec<Send<'_>> = Vec::new();
        if self.rank == root {
            let part = |rank: u32| &data[share(data.len(), 1, ranks, rank as usize)];
            sends.extend((0..ranks as u32).map(|rank| (rank, tag, part(rank))));
        }
        self.exchange(sends, vec![(root, tag, &mut own)])?;
        self.gather_shares(tag.step(1), data, &own, 1, None)
    }

    /// Exchanges blocks of the same length: `places` says for each rank which block it gets, and where that of it goes.
    fn blocks(
        &mut self,
        tag: Tag,
        memory: &mut dyn Memory,
        bytes: u64,
        places: impl Fn(&Self, u32) -> (Option<u64>, Option<u64>),
    ) -> Result<()> {
        let ranks = self.ranks();
        let of: Vec<_> = (0..ranks).map(|rank| places(self, rank)).collect();
        segments(bytes, SEGMENT / u64::from(ranks)).try_for_each(|part| {
            let length = (part.end - part.start) as usize;
            // A block that goes to all is read once.
            let mut sent: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
            let mut got: Vec<(u32, u64, Vec<u8>)> = Vec::new();
            for (rank, (from, to)) in (0..).zip(&of) {
                if let Some(Entry::Vacant(place)) = from.map(|from| sent.entry(from)) {
                    let mut block = vec![0; length];
                    read(memory, place.key() + part.start, &mut block)?;
                    place.insert(block);
                }
                got.extend(to.map(|to| (rank, to + part.start, vec![0; length])));
            }
            let sends =
                (0..).zip(&of).filter_map(|(rank, (from, _))| Some((rank, tag, sent[&(*from)?].as_slice())));
            let sends = sends.collect();
            let receives =
                got.iter_mut().map(|(rank, _, place)| (*rank, tag, place.as_mut_slice())).collect();
            self.exchange(sends, receives)?;
            got.iter().try_for_each(|(_, to, block)| write(memory, *to, block))
        })
    }
}
