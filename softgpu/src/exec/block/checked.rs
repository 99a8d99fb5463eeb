//! What [`check`](super::super::check) is told of a block's barriers.

use super::super::check::Place;
use super::super::warp::lanes;
use super::Resident;
use crate::abi::{BARRIER_ALIGNED, CutKind, Thread, WARP};

impl Resident {
    /// The lanes of a warp that a block begins with.
    fn full(&self, w: usize) -> u32 {
        let lanes = (self.slot.threads.len() - w * WARP).min(WARP);
        if lanes == WARP { !0 } else { (1 << lanes) - 1 }
    }

    fn report(&self, thread: &Thread, what: &str) {
        let Some(check) = &self.context.check else { return };
        let line = (thread.stop as usize).checked_sub(1).and_then(|n| self.context.grid.kernel.cuts.get(n));
        let place = Place { block: &self.block, thread };
        check.borrow().bad_barrier(&self.context.grid, &place, line.map_or(0, |cut| cut.line), what);
    }

    /// A barrier lets those go that have arrived.
    pub(super) fn look_at_barrier(&self, number: usize) {
        let Some(check) = &self.context.check else { return };
        let warps = self.warps.len();
        let arrived: Vec<u32> = (0..warps).map(|w| self.barriers.arrived(number, w)).collect();
        let waits = |w: usize, lane: usize| {
            self.warps[w].barred >> lane & 1 != 0
                && self.slot.threads[w * WARP + lane].op[0] as usize == number
        };
        let waiting: Vec<u32> = (0..warps)
            .map(|w| lanes(arrived[w]).filter(|&lane| waits(w, lane)).fold(0, |mask, lane| mask | 1 << lane))
            .collect();
        check.borrow_mut().released(&waiting, &arrived);
        if !check.borrow().of_barriers() {
            return;
        }
        let thread = |w: usize, lane: usize| &self.slot.threads[w * WARP + lane];
        let mut whole = true;
        for w in 0..warps {
            let Some(first) = lanes(waiting[w]).next() else { continue };
            let leader = thread(w, first);
            whole &= leader.op[1] == 0;
            let aligned = |t: &Thread| t.op[BARRIER_ALIGNED] != 0;
            let apart =
                lanes(waiting[w]).find(|&l| thread(w, l).stop != leader.stop && aligned(thread(w, l)));
            let missing = arrived[w] != self.full(w) && aligned(leader);
            if let Some(lane) = apart {
                self.report(thread(w, lane), "Divergent thread(s) in warp");
                return;
            }
            if missing {
                self.report(leader, "Divergent thread(s) in warp");
                return;
            }
        }
        let absent = (0..warps).any(|w| arrived[w] != self.full(w));
        if whole
            && absent
            && let Some((w, lane)) = (0..warps).find_map(|w| Some((w, lanes(waiting[w]).next()?)))
        {
            self.report(thread(w, lane), "Divergent thread(s) in block");
        }
    }

    /// All threads have come to a barrier at once.
    pub(super) fn look_at_whole_barrier(&self) {
        if let Some(check) = &self.context.check {
            let all: Vec<u32> = (0..self.warps.len()).map(|w| self.full(w)).collect();
            check.borrow_mut().released(&all, &[]);
        }
    }

    /// Lanes of a warp carry an operation out together.
    pub(super) fn look_at_warp(&self, w: usize, kind: CutKind, group: u32) {
        let Some(check) = &self.context.check else { return };
        let Some(first) = lanes(group).next() else { return };
        let thread = &self.slot.threads[w * WARP + first];
        let (_, cut) = self.cut(w, first);
        if cut.legacy || kind == CutKind::ActiveMask {
            return;
        }
        check.borrow_mut().converged(w, group);
        if !check.borrow().of_barriers() {
            return;
        }
        let mask = thread.op[3] as u32;
        let full = self.full(w);
        let names_itself = |&l: &usize| self.slot.threads[w * WARP + l].op[3] >> l & 1 != 0;
        if let Some(stranger) = lanes(group).find(|lane| !names_itself(lane)) {
            let thread = &self.slot.threads[w * WARP + stranger];
            let mask = thread.op[3] as u32;
            self.report(
                thread,
                &format!("Invalid arguments: the mask {mask:#010x} does not name the thread itself"),
            );
        } else if mask & full & !self.warps[w].alive != 0 {
            let gone = mask & full & !self.warps[w].alive;
            self.report(thread, &format!("Divergent thread(s) in warp: the mask {mask:#010x} names lanes that have ended ({gone:#010x})"));
        }
    }
}
