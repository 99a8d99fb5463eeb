//! Counting in one resident block.

use std::sync::Arc;

use super::visits::{Visits, mix};
use super::{Counts, Memory};
use crate::abi::counted::{Event, Sites};
use crate::abi::{Access, AccessKind, Kernel, WARP};
use crate::exec::arena::PARAM_SLOT;
use crate::exec::block::Context;
use crate::exec::check::Place;

/// Bytes of a sector, the smallest piece of global memory that a GPU moves.
const SECTOR: u64 = 32;
/// Banks of shared memory, of four bytes each.
const BANKS: usize = 32;
/// Where lanes went from a region: nowhere yet, or to the end of the function.
const NOWHERE: u32 = u32::MAX;
const END: u32 = u32::MAX - 1;

/// A loop that a thread is in.
#[derive(Clone, Copy, Default)]
struct Turns {
    /// What the thread was doing when it came to the loop.
    around: u64,
    /// How many turns it has begun since.
    count: u64,
    /// Both of it.
    key: u64,
}

/// A call that a thread is in, the kernel itself being the first.
struct Frame {
    /// What it was called for.
    around: u64,
    loops: Vec<Turns>,
    /// The region that it was in last, and the number of that visit.
    last: Option<(u32, u64)>,
}

/// Lanes of a warp have come to a region together.
struct Visit {
    region: u32,
    /// Where the first of them went.
    next: u32,
    diverged: bool,
}

/// Lanes of a warp have accessed memory together.
struct Request {
    access: u32,
    memory: Memory,
    /// Sectors of global memory, or words of shared memory, in order.
    units: Vec<u64>,
}

#[derive(Default)]
struct Warp {
    visits: Visits<Visit>,
    requests: Visits<Request>,
}

/// What counts in one resident block.
pub(in super::super) struct BlockCounter {
    kernel: Arc<Kernel>,
    counts: Counts,
    /// By thread.
    frames: Vec<Vec<Frame>>,
    warps: Vec<Warp>,
    /// The warp that was counted last, where each is run to its end before the next.
    current: Option<usize>,
}

/// Whether a loop is `outer`, or part of it.
fn is_inside(sites: &Sites, mut inner: Option<u32>, outer: u32) -> bool {
    while let Some(at) = inner {
        if at == outer {
            return true;
        }
        inner = sites.loops[at as usize].parent;
    }
    false
}

/// How often the banks of shared memory have to take turns for these words.
fn turns_of_banks(words: &[u64]) -> u64 {
    let mut of_bank = [0; BANKS];
    words.iter().for_each(|word| of_bank[(word % BANKS as u64) as usize] += 1);
    of_bank.into_iter().max().unwrap_or(0)
}

impl BlockCounter {
    /// For the blocks of a launch with so many threads. None for a kernel that is not compiled to be counted.
    pub(in super::super) fn new(kernel: &Arc<Kernel>, threads: usize) -> Option<Self> {
        kernel.sites.as_ref()?;
        Some(Self {
            kernel: kernel.clone(),
            counts: Counts::of(kernel),
            frames: (0..threads).map(|_| Vec::new()).collect(),
            warps: (0..threads.div_ceil(WARP)).map(|_| Warp::default()).collect(),
            current: None,
        })
    }

    /// The block has ended: what was counted in it.
    pub(in super::super) fn take(&mut self) -> Counts {
        (0..self.warps.len()).for_each(|warp| self.settle(warp));
        self.current = None;
        self.frames.iter_mut().for_each(Vec::clear);
        std::mem::replace(&mut self.counts, Counts::of(&self.kernel))
    }

    /// Counts what a warp has done.
    fn settle(&mut self, warp: usize) {
        let Warp { visits, requests } = &mut self.warps[warp];
        let counts = &mut self.counts;
        counts.estimated |= visits.drain(|visit, weight| {
            let count = &mut counts.regions[visit.region as usize];
            count.warps += weight;
            count.diverged += if visit.diverged { weight } else { 0 };
        });
        counts.estimated |= requests.drain(|request, weight| {
            let count = &mut counts.accesses[request.access as usize][request.memory as usize];
            count.requests += weight;
            count.units += weight
                * match request.memory {
                    Memory::Shared => turns_of_banks(&request.units),
                    _ => request.units.len() as u64,
                };
        });
    }

    /// A thread says where it is.
    pub(in super::super) fn event(&mut self, thread: usize, event: Event) {
        let kernel = self.kernel.clone();
        let Some(sites) = &kernel.sites else { return };
        let frame = |around| Frame { around, loops: vec![Turns::default(); sites.loops.len()], last: None };
        let warp = thread / WARP;
        let frames = &mut self.frames[thread];
        match event {
            Event::Call => {
                let from = frames.last().and_then(|frame| frame.last).map_or(0, |(_, number)| number);
                frames.push(frame(mix(1, from)));
            }
            Event::Leave => {
                if let Some((region, number)) = frames.pop().and_then(|frame| frame.last) {
                    self.go_on(sites, warp, (region, number), END);
                }
            }
            Event::Enter(number) => {
                if frames.is_empty() {
                    frames.push(frame(0));
                    if kernel.cuts.is_empty() && self.current.is_some_and(|current| current != warp) {
                        (0..self.warps.len()).for_each(|warp| self.settle(warp));
                    }
                    self.current = Some(warp);
                }
                self.enter(sites, thread, number);
            }
        }
    }

    /// A thread comes to a region.
    fn enter(&mut self, sites: &Sites, thread: usize, number: u32) {
        let Some(frame) = self.frames[thread].last_mut() else { return };
        let region = &sites.regions[number as usize];
        let last = frame.last;
        if let Some(head) = region.heads {
            let before = last.and_then(|(last, _)| sites.regions[last as usize].within);
            let parent = sites.loops[head as usize].parent;
            let around = parent.map_or(frame.around, |parent| frame.loops[parent as usize].key);
            let turns = &mut frame.loops[head as usize];
            if is_inside(sites, before, head) {
                turns.count += 1;
            } else {
                (turns.around, turns.count) = (around, 0);
            }
            turns.key = mix(mix(turns.around, head.into()), turns.count);
        }
        let key = region.within.map_or(frame.around, |within| frame.loops[within as usize].key);
        let visit = mix(key, u64::from(number) + 1);
        frame.last = Some((number, visit));
        let warp = thread / WARP;
        if let Some(last) = last {
            self.go_on(sites, warp, last, number);
        }
        self.counts.regions[number as usize].threads += 1;
        let make = || Visit { region: number, next: NOWHERE, diverged: false };
        self.warps[warp].visits.visit(visit, make);
    }

    /// A lane goes from where it was to another place.
    fn go_on(&mut self, sites: &Sites, warp: usize, (region, number): (u32, u64), next: u32) {
        if sites.regions[region as usize].branch.is_none() {
            return;
        }
        if let Some(visit) = self.warps[warp].visits.find(number) {
            visit.diverged |= visit.next != NOWHERE && visit.next != next;
            visit.next = next;
        }
    }

    /// A thread accesses memory.
    pub(in super::super) fn access(
        &mut self,
        context: &Context,
        place: &Place<'_>,
        address: u64,
        access: Access,
    ) {
        let Some(site) = self.kernel.sites.as_ref().and_then(|s| s.accesses.get(access.line as usize)) else {
            return;
        };
        let window = address.wrapping_sub(place.block.shared_base);
        let (memory, at, unit) = if window < 1 << 32 {
            (Memory::Shared, window, 4)
        } else if context.is_local(address) {
            (Memory::Local, address, 0)
        } else if address.wrapping_sub(place.block.params) < PARAM_SLOT {
            return;
        } else if site.constant {
            (Memory::Constant, address, 0)
        } else {
            (Memory::Global, address, SECTOR)
        };
        let thread = context.index_of(place.thread);
        let size = u64::from(access.size);
        let count = &mut self.counts.accesses[access.line as usize][memory as usize];
        count.threads += 1;
        let kind = match access.kind {
            AccessKind::Read => 0,
            AccessKind::Write => 1,
            AccessKind::Atomic | AccessKind::Barrier => 2,
        };
        count.bytes[kind] += size;
        let visit = self.frames[thread].last().and_then(|frame| frame.last).map_or(0, |(_, number)| number);
        let number = mix(visit, u64::from(access.line) << 2 | memory as u64);
        let make = || Request { access: access.line, memory, units: Vec::new() };
        let Some(request) = self.warps[thread / WARP].requests.visit(number, make) else { return };
        if unit == 0 {
            return;
        }
        for one in at / unit..=(at.saturating_add(size.max(1) - 1)) / unit {
            if let Err(place) = request.units.binary_search(&one) {
                request.units.insert(place, one);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::turns_of_banks;

    #[test]
    fn banks_take_turns_for_words_of_one_bank() {
        let of = |stride: u64| turns_of_banks(&(0..32).map(|lane| lane * stride).collect::<Vec<_>>());
        assert_eq!([1, 2, 3, 8, 32, 33].map(of), [1, 2, 1, 8, 32, 1]);
        assert_eq!((turns_of_banks(&[5]), turns_of_banks(&[])), (1, 0));
    }
}
