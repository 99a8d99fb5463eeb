//! In which order jobs are placed, so that few slivers are left over while more is asked for than there is.
//!
//! See "Slivers" in `docs/placement.md`.

use super::pass::{self, BATCH};
use super::view::View;
use crate::cluster::WHOLE;
use crate::error::Error;
use crate::ids::DeviceKind;
use crate::job::Job;
use crate::policy::{Decisions, Reason};
use crate::queue::Waiting;

/// Whether a job wants parts of devices. Others leave no slivers.
fn wants_parts(job: &Job) -> bool {
    job.tasks.iter().flat_map(|task| &task.devices).any(|request| request.milli < WHOLE)
}

/// Whether it matters what parts leave over: of some kind, more devices are wanted than are wholly free, even if each part took
/// a whole one, and somebody wants a whole one. Who wants a part himself has use for rests, too.
fn matter(view: &View<'_>, waiting: &[Waiting]) -> bool {
    let (mut wanted, mut wholes) = ([0u64; DeviceKind::COUNT], [0u64; DeviceKind::COUNT]);
    for request in waiting.iter().flat_map(|waiting| &waiting.job.tasks).flat_map(|task| &task.devices) {
        wanted[request.kind.index()] += u64::from(request.count);
        if request.milli == WHOLE {
            wholes[request.kind.index()] += u64::from(request.count);
        }
    }
    let free = |kind| view.nodes().map(|node| u64::from(view.usage.node(node).whole[kind])).sum::<u64>();
    (0..wanted.len()).any(|kind| wholes[kind] > 0 && wanted[kind] > wholes[kind] && wanted[kind] > free(kind))
}

/// Places what it can of what waits, and says why the others were left.
///
/// Where slivers [`matter`], jobs that have waited for [`sliver_rounds`](super::settings::SLIVER_ROUNDS) come first, one after
/// another and whatever they leave over. Then come passes over the others, in each of which parts may leave over more than in the
/// one before; in the last one they may leave over anything. So nothing stays free that somebody could use.
pub(super) fn place(
    view: &mut View<'_>,
    waiting: &[Waiting],
    decisions: &mut Decisions,
) -> Result<(), Error> {
    view.max_sliver = WHOLE;
    let mut done: Vec<(&Waiting, Reason)>;
    let mut others: Vec<&Waiting> = Vec::new();
    if view.settings.max_sliver >= WHOLE || !matter(view, waiting) {
        done = pass::run(view, waiting, BATCH, decisions)?;
    } else {
        let in_turn = |waiting: &&Waiting| waiting.rounds >= view.settings.sliver_rounds;
        let first: Vec<&Waiting>;
        (first, others) = waiting.iter().partition(in_turn);
        done = pass::run(view, first, 1, decisions)?;
    }
    let mut limit = view.settings.max_sliver;
    while !others.is_empty() {
        view.max_sliver = limit;
        let left = pass::run(view, std::mem::take(&mut others), BATCH, decisions)?;
        for (waiting, reason) in left {
            match limit < WHOLE && wants_parts(&waiting.job) {
                true => others.push(waiting),
                false => done.push((waiting, reason)),
            }
        }
        limit = (limit * 2).clamp(WHOLE / 100, WHOLE);
    }
    done.sort_by_key(|(waiting, _)| (waiting.job.submit_s.to_bits(), waiting.job.id));
    decisions.left.extend(done.into_iter().map(|(waiting, reason)| (waiting.job.id, reason)));
    Ok(())
}
