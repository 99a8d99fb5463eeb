//! What is known to be done, so that nobody need be asked.
//!
//! When a synchronisation or a copy to the host has been answered, and no thread has put anything on any stream
//! meanwhile, the stream stays *quiet* until somebody does. Until then waiting for it takes no round trip, and the bytes of a
//! short copy to the host are taken from where the [device's memory](super::direct) lies in this process, if it does.
//!
//! Calls are told apart by whether they add work, and posting one must cost next to nothing. So what is counted are the others,
//! which all wait for an answer anyway; see [`Out::work`](super::outgoing::Out::work).

use super::direct;
use super::incoming::Pending;
use rgpu_device::Target;
use rgpu_protocol::calls::{
    Call, Counters, CreditAsk, EventElapsed, MemInfo, Query, Synchronize, Telemetry, TensorMap,
};

/// So many targets are remembered at a time.
const TARGETS: usize = 8;
/// Copies of fewer bytes are made while other threads wait to post.
pub(super) const COPY_BELOW: u64 = direct::RECEIVE_FROM;

/// Which streams and devices are quiet.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    /// How many calls so far put no work anywhere.
    pub workless: u64,
    /// How much work there was when it was last known that some of it was done.
    work: u64,
    /// Whose work that was.
    targets: Vec<Target>,
}

impl Quiet {
    /// Of a target it is known that all is done of so much work.
    pub(super) fn note(&mut self, work: u64, target: Target) {
        if self.work != work {
            self.work = work;
            self.targets.clear();
        }
        if !self.targets.contains(&target) {
            if self.targets.len() == TARGETS {
                self.targets.remove(0);
            }
            self.targets.push(target);
        }
    }

    pub(super) fn is(&self, work: u64, target: Target) -> bool {
        self.work == work && self.targets.contains(&target)
    }
}

/// Whether a call whose outcome goes there leaves quiet streams quiet. A copy that somebody else waits for is work.
pub(super) fn adds_no_work(call: u16, pending: &Pending) -> bool {
    const NONE: [u16; 8] = [
        MemInfo::NUMBER,
        EventElapsed::NUMBER,
        Synchronize::NUMBER,
        Query::NUMBER,
        Counters::NUMBER,
        CreditAsk::NUMBER,
        Telemetry::NUMBER,
        TensorMap::NUMBER,
    ];
    match pending {
        Pending::CopyFor(..) => true,
        Pending::Waiter(_) => NONE.contains(&call),
        Pending::Done(_) | Pending::Copy(_) | Pending::CopyInto(..) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_known_to_be_done_is_forgotten_with_the_next_work() {
        let mut quiet = Quiet::default();
        let (a, b) = (Target::Stream(100), Target::Stream(101));
        assert!(!quiet.is(0, a));
        quiet.note(5, a);
        quiet.note(5, b);
        assert!(quiet.is(5, a) && quiet.is(5, b) && !quiet.is(6, a));
        quiet.note(6, b);
        assert!(!quiet.is(6, a) && quiet.is(6, b));
        // However many there are.
        (0..100).for_each(|stream| quiet.note(6, Target::Stream(stream)));
        assert!(quiet.is(6, Target::Stream(99)) && !quiet.is(6, b) && quiet.targets.len() == TARGETS);
    }
}
