//! Operations that four warps carry out together.

use rgpu_device::{Code, Result};

use super::Resident;
use crate::abi::{CutKind, GROUP, GroupWork, WARP};
use crate::exec::arena::WINDOW;

/// Warps that work together: the first one's number is a multiple of this.
const WARPS: usize = GROUP / WARP;

impl Resident {
    /// Carries out the operations to which all threads of four warps have come. True if some threads can go on.
    pub(super) fn release_groups(&mut self) -> Result<bool> {
        let mut any = false;
        for first in (0..self.warps.len()).step_by(WARPS) {
            let all = self.warps.get(first..first + WARPS);
            if all.is_none_or(|warps| warps.iter().any(|warp| warp.grouped != !0)) {
                continue;
            }
            let threads = &self.slot.threads[first * WARP..first * WARP + GROUP];
            let stop = threads[0].stop;
            if threads.iter().any(|thread| thread.stop != stop) {
                continue;
            }
            let (_, cut) = self.cut(first, 0);
            let CutKind::Group(index) = cut.kind else { continue };
            let grid = &self.context.grid;
            let Some(operation) = grid.kernel.group_ops.get(usize::from(index)) else { continue };
            let states = std::array::from_fn(|thread| threads[thread].state);
            let [a, b, adds, ..] = threads[0].op;
            let work = GroupWork {
                states: &states,
                shared: (self.slot.window as *const u8, WINDOW as u32),
                descriptors: [a, b],
                adds: adds & 1 != 0,
            };
            if operation(&work).is_err() {
                self.block.cursor = (&raw const self.slot.threads[first * WARP]).cast_mut();
                let what = "Illegal address (a matrix reaches out of the block's shared memory)";
                return Err(self.failure(Code::IllegalAddress, what, Some(cut.line)));
            }
            for warp in &mut self.warps[first..first + WARPS] {
                (warp.grouped, warp.ready) = (0, !0);
            }
            any = true;
        }
        Ok(any)
    }
}
