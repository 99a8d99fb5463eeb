//! Threads of a block that use the same shared memory without having waited for each other.
//!
//! For each byte it is known who wrote it last, and which two threads read it last, with where their warps stood then. Whether two
//! accesses are in order is told by clocks: each warp counts the barriers that it has been at, and knows how far it has heard of
//! each other warp; what one has heard at a barrier, all that wait there hear. Within a warp, each pair of lanes knows when both last took
//! part in an operation of the warp, or in a barrier.
//!
//! Accesses that say how they are ordered (`cuda::atomic`'s) are in order with each other, and tell: a store, or an atomic operation, leaves at
//! its place what its warp has heard, and a load there hears it. Relaxed ones do so as well, as fences beside them are not looked at, and all lanes
//! of a warp tell and hear together: so races are missed there, and none is reported that is not one.

use std::collections::HashMap;

use crate::abi::{Access, AccessKind, WARP};

/// The most warps of a block.
const WARPS: usize = 32;
const NOBODY: u16 = u16::MAX;

/// What two accesses did that are not in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hazard {
    /// A write, and then a read.
    ReadAfterWrite,
    /// A read, and then a write.
    WriteAfterRead,
    /// Two writes.
    WriteAfterWrite,
}

impl Hazard {
    /// Both accesses, in words.
    pub(super) fn kinds(self) -> (&'static str, &'static str) {
        match self {
            Self::ReadAfterWrite => ("Write", "Read"),
            Self::WriteAfterRead => ("Read", "Write"),
            Self::WriteAfterWrite => ("Write", "Write"),
        }
    }
}

/// An access that was made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp {
    /// The thread's number in its block.
    pub thread: u16,
    atomic: bool,
    /// Its warp's clock.
    clock: u32,
    /// Its warp's count of operations.
    step: u32,
    /// The line of the PTX text.
    pub line: u32,
}

const NEVER: Stamp = Stamp { thread: NOBODY, atomic: false, clock: 0, step: 0, line: 0 };

#[derive(Debug, Clone, Copy)]
struct Cell {
    write: Stamp,
    /// By different threads, the latest first.
    reads: [Stamp; 2],
}

const UNTOUCHED: Cell = Cell { write: NEVER, reads: [NEVER; 2] };

/// What one warp knows.
#[derive(Clone)]
struct Warp {
    /// How many barriers it has been at.
    clock: u32,
    /// Accesses of each warp up to this count, itself left out, come before what it does now.
    heard: [u32; WARPS],
    step: u32,
    /// When all lanes last waited for each other, and when each pair did.
    all: u32,
    pairs: Box<[[u32; WARP]; WARP]>,
}

/// Adds what somebody else has heard, as of [`Warp::heard`].
fn also(heard: &mut [u32; WARPS], others: &[u32; WARPS]) {
    heard.iter_mut().zip(others).for_each(|(known, new)| *known = (*known).max(*new));
}

/// What an access that says how it is ordered has left at its place.
struct Told {
    /// As of [`Warp::heard`].
    heard: [u32; WARPS],
    /// The threads that told, and their warps' steps behind that.
    by: Vec<(u16, u32)>,
}

/// The shared memory of one block.
pub(super) struct Race {
    cells: Vec<Cell>,
    warps: Vec<Warp>,
    /// By place.
    told: HashMap<usize, Told>,
    touched: bool,
}

impl Race {
    /// For blocks of so many threads with so many bytes.
    pub(super) fn new(threads: usize, bytes: usize) -> Self {
        let warp = Warp { clock: 0, heard: [0; WARPS], step: 0, all: 0, pairs: Box::new([[0; WARP]; WARP]) };
        let warps = vec![warp; threads.div_ceil(WARP).min(WARPS)];
        Self { cells: vec![UNTOUCHED; bytes], warps, told: HashMap::new(), touched: false }
    }

    /// Another block begins.
    pub(super) fn begin(&mut self) {
        if std::mem::take(&mut self.touched) {
            self.cells.fill(UNTOUCHED);
            self.told.clear();
        }
    }

    /// Threads have met at a barrier: the lanes of each warp that waited there, and those that only let others wait for them.
    pub(super) fn released(&mut self, lanes: &[u32], arrived: &[u32]) {
        let takes_part = |w: usize| {
            let both = lanes.get(w).copied().unwrap_or(0) | arrived.get(w).copied().unwrap_or(0);
            both != 0
        };
        let mut heard = [0u32; WARPS];
        for (w, warp) in self.warps.iter().enumerate().filter(|(w, _)| takes_part(*w)) {
            also(&mut heard, &warp.heard);
            heard[w] = heard[w].max(warp.clock + 1);
        }
        for w in 0..self.warps.len() {
            if takes_part(w) {
                self.warps[w].clock += 1;
            }
            let waited = lanes.get(w).copied().unwrap_or(0);
            if waited != 0 {
                self.warps[w].heard = heard;
                self.converged(w, waited);
            }
        }
    }

    /// Lanes of a warp have waited for each other.
    pub(super) fn converged(&mut self, w: usize, group: u32) {
        let Some(warp) = self.warps.get_mut(w) else { return };
        warp.step += 1;
        if group == !0 {
            warp.all = warp.step;
            return;
        }
        for a in (0..WARP).filter(|a| group >> a & 1 != 0) {
            for b in (0..WARP).filter(|b| group >> b & 1 != 0) {
                warp.pairs[a][b] = warp.step;
            }
        }
    }

    /// An operation on a barrier in memory: who waits there and for whom is not known, so all that was before counts as in order.
    fn meet_all(&mut self) {
        let everybody = vec![!0; self.warps.len()];
        self.released(&everybody, &[]);
    }

    /// A thread leaves what its warp has heard and done: besides what others have left there, or instead of it.
    fn tell(&mut self, thread: usize, at: usize, besides: bool) {
        let w = thread / WARP;
        let Some(warp) = self.warps.get_mut(w) else { return };
        let mut heard = warp.heard;
        heard[w] = heard[w].max(warp.clock + 1);
        // What the warp does from now on is not told.
        warp.clock += 1;
        warp.step += 1;
        let by = (thread as u16, warp.step);
        match self.told.get_mut(&at).filter(|_| besides) {
            Some(told) => {
                also(&mut told.heard, &heard);
                told.by.retain(|(other, _)| *other != by.0);
                told.by.push(by);
            }
            None => drop(self.told.insert(at, Told { heard, by: vec![by] })),
        }
    }

    /// A thread hears what others have left at a place.
    fn hear(&mut self, thread: usize, at: usize) {
        let (Some(told), Some(warp)) = (self.told.get(&at), self.warps.get_mut(thread / WARP)) else {
            return;
        };
        also(&mut warp.heard, &told.heard);
        let lane = thread % WARP;
        let own = told.by.iter().filter(|(other, _)| usize::from(*other) / WARP == thread / WARP);
        for &(other, step) in own {
            let other = usize::from(other) % WARP;
            // And what that lane has heard of others.
            for third in (0..WARP).filter(|third| *third != lane) {
                let known = if third == other { step } else { warp.pairs[third][other] };
                warp.pairs[third][lane] = warp.pairs[third][lane].max(known);
            }
        }
    }

    fn is_before(&self, stamp: &Stamp, thread: usize) -> bool {
        if stamp.thread == NOBODY || usize::from(stamp.thread) == thread {
            return true;
        }
        let other = usize::from(stamp.thread);
        let warp = &self.warps[thread / WARP];
        if other / WARP == thread / WARP {
            return warp.all.max(warp.pairs[other % WARP][thread % WARP]) > stamp.step;
        }
        warp.heard[other / WARP] > stamp.clock
    }

    /// A thread accesses bytes. The first hazard with an access before it, if there is one.
    pub(super) fn access(&mut self, thread: usize, at: usize, access: Access) -> Option<(Hazard, Stamp)> {
        if access.kind == AccessKind::Barrier {
            self.meet_all();
            return None;
        }
        if access.ordered && access.kind != AccessKind::Write {
            self.hear(thread, at);
        }
        let warp = self.warps.get(thread / WARP)?;
        let atomic = access.kind == AccessKind::Atomic || access.ordered;
        let stamp =
            Stamp { thread: thread as u16, atomic, clock: warp.clock, step: warp.step, line: access.line };
        self.touched = true;
        let mut found = None;
        for at in at..at + access.size as usize {
            let Some(&cell) = self.cells.get(at) else { break };
            let apart = |other: &Stamp| !(self.is_before(other, thread) || atomic && other.atomic);
            if access.kind == AccessKind::Read {
                if found.is_none() && apart(&cell.write) {
                    found = Some((Hazard::ReadAfterWrite, cell.write));
                }
                let cell = &mut self.cells[at];
                if cell.reads[0].thread != stamp.thread {
                    cell.reads[1] = cell.reads[0];
                }
                cell.reads[0] = stamp;
            } else {
                if found.is_none() {
                    let read = cell.reads.into_iter().find(apart).map(|read| (Hazard::WriteAfterRead, read));
                    let write = Some((Hazard::WriteAfterWrite, cell.write)).filter(|(_, w)| apart(w));
                    found = write.or(read);
                }
                self.cells[at].write = stamp;
            }
        }
        if access.ordered && access.kind != AccessKind::Read {
            self.tell(thread, at, access.kind == AccessKind::Atomic);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn race() -> Race {
        Race::new(96, 64)
    }

    fn go(race: &mut Race, thread: usize, kind: AccessKind, at: usize) -> Option<Hazard> {
        let access = Access { kind, ordered: false, size: 4, line: 1 };
        race.access(thread, at, access).map(|(hazard, _)| hazard)
    }

    /// As it is ordered by what it says itself.
    fn ordered(race: &mut Race, thread: usize, kind: AccessKind, at: usize) -> Option<Hazard> {
        let access = Access { kind, ordered: true, size: 4, line: 1 };
        race.access(thread, at, access).map(|(hazard, _)| hazard)
    }

    use AccessKind::{Atomic, Read, Write};

    #[test]
    fn accesses_are_in_order_behind_a_barrier_and_not_before() {
        let mut race = race();
        assert_eq!(go(&mut race, 0, Write, 8), None);
        assert_eq!(go(&mut race, 0, Read, 8), None);
        assert_eq!(go(&mut race, 40, Read, 8), Some(Hazard::ReadAfterWrite));
        assert_eq!(go(&mut race, 40, Read, 12), None);
        assert_eq!(go(&mut race, 70, Write, 10), Some(Hazard::WriteAfterWrite));
        race.released(&[!0, !0, !0], &[]);
        for thread in [1, 41, 71] {
            assert_eq!(go(&mut race, thread, Read, 8), None);
        }
        assert_eq!(go(&mut race, 41, Write, 8), Some(Hazard::WriteAfterRead));
        race.begin();
        assert_eq!(go(&mut race, 3, Write, 8), None);
    }

    #[test]
    fn lanes_of_a_warp_are_in_order_by_its_own_operations() {
        let mut race = race();
        go(&mut race, 0, Write, 0);
        assert_eq!(go(&mut race, 1, Read, 0), Some(Hazard::ReadAfterWrite));
        race.converged(0, 0b11);
        assert_eq!(go(&mut race, 1, Read, 0), None);
        assert_eq!(go(&mut race, 2, Read, 0), Some(Hazard::ReadAfterWrite));
        race.converged(0, !0);
        assert_eq!(go(&mut race, 2, Read, 0), None);
        assert_eq!(go(&mut race, 33, Read, 0), Some(Hazard::ReadAfterWrite), "another warp");
    }

    #[test]
    fn what_is_heard_at_one_barrier_is_told_at_the_next() {
        let mut race = race();
        go(&mut race, 0, Write, 0);
        // The first warp only arrives; the second waits, and then meets the third.
        race.released(&[0, !0, 0], &[!0, 0, 0]);
        assert_eq!(go(&mut race, 70, Read, 0), Some(Hazard::ReadAfterWrite));
        race.released(&[0, !0, !0], &[]);
        assert_eq!(go(&mut race, 71, Read, 0), None);
        go(&mut race, 71, Write, 4);
        assert_eq!(go(&mut race, 0, Read, 4), Some(Hazard::ReadAfterWrite), "who arrives hears nothing");
    }

    #[test]
    fn atomic_operations_are_in_order_with_each_other() {
        let mut race = race();
        assert_eq!(go(&mut race, 0, Atomic, 0), None);
        assert_eq!(go(&mut race, 50, Atomic, 0), None);
        assert_eq!(go(&mut race, 80, Read, 0), Some(Hazard::ReadAfterWrite));
    }

    #[test]
    fn a_store_that_releases_tells_a_load_that_acquires() {
        let mut race = race();
        // In another warp, and in the same one.
        for reader in [40, 1] {
            race.begin();
            go(&mut race, 0, Write, 0);
            assert_eq!(ordered(&mut race, reader, Read, 4), None);
            assert_eq!(go(&mut race, reader, Read, 0), Some(Hazard::ReadAfterWrite), "nothing is told yet");
            assert_eq!(ordered(&mut race, 0, Write, 4), None);
            go(&mut race, 0, Write, 8);
            assert_eq!(go(&mut race, reader, Read, 0), Some(Hazard::ReadAfterWrite), "it has not heard");
            assert_eq!(ordered(&mut race, reader, Read, 4), None);
            assert_eq!(go(&mut race, reader, Read, 0), None);
            assert_eq!(
                go(&mut race, reader, Read, 8),
                Some(Hazard::ReadAfterWrite),
                "later than what was told"
            );
            assert_eq!(go(&mut race, reader, Read, 4), None, "the flag's value is heard of, too");
            assert_eq!(
                go(&mut race, 2, Write, 4),
                Some(Hazard::WriteAfterWrite),
                "a plain store is none of them"
            );
        }
    }

    #[test]
    fn atomic_operations_that_release_tell_of_all_that_came_before() {
        let mut race = race();
        for thread in [0, 1, 40] {
            go(&mut race, thread, Write, 4 * (thread % 16));
            assert_eq!(ordered(&mut race, thread, Atomic, 60), None);
        }
        // The last of these hears both, and a third warp hears all.
        assert_eq!(go(&mut race, 40, Read, 4), None);
        assert_eq!(go(&mut race, 80, Read, 0), Some(Hazard::ReadAfterWrite));
        assert_eq!(ordered(&mut race, 80, Read, 60), None);
        for at in [0, 4, 32] {
            assert_eq!(go(&mut race, 80, Read, at), None);
        }
        // A store leaves only its own.
        go(&mut race, 70, Write, 12);
        assert_eq!(ordered(&mut race, 33, Write, 60), None);
        assert_eq!(ordered(&mut race, 5, Read, 60), None);
        assert_eq!(go(&mut race, 5, Read, 12), Some(Hazard::ReadAfterWrite));
    }
}
