//! Shares that waiting leases leave to the broker: what time passes takes from their deadlines, so they are chosen anew.

use rgpu_control::LeaseId;
use rgpu_placement::{JobId, NodeId, Waiting};

use super::super::feed::Seen;
use super::Planner;
use crate::store::LeaseRecord;

/// The share that was chosen for a lease that waits.
pub(super) struct Choice {
    pub milli: u16,
    pub submit_s: f64,
}

impl Planner {
    /// The share that a waiting lease is to get now: what it asks for, or what its deadline wants.
    pub(super) fn share(&self, record: &LeaseRecord, home: NodeId, submit_s: f64, now_s: f64) -> u16 {
        match (&self.state, record.request.deadline_s) {
            (Some(state), Some(deadline)) if record.request.share_milli == 0 => {
                let left_s = submit_s + deadline - now_s;
                self.profiles.part(state.cluster(), &record.tenant, &record.request, home, left_s)
            }
            _ => record.request.share_milli,
        }
    }

    /// Chooses the shares anew that waiting leases leave to the broker: while they wait, less is left until their deadlines.
    pub(super) fn choose_again(&mut self, now_s: f64) {
        let different = |waiting: &Waiting| {
            let id = self.ids.get(&waiting.job.id)?;
            let known = self.known.get(id)?;
            let choice = known.choice.as_ref()?;
            let milli = self.share(&known.record, known.home, choice.submit_s, now_s);
            (milli != choice.milli).then_some(*id)
        };
        let different: Vec<LeaseId> = self.queue.waiting().iter().filter_map(different).collect();
        for id in different {
            let job = JobId(self.next_job);
            let Some(known) = self.known.get_mut(&id) else { continue };
            let (old, home) = (std::mem::replace(&mut known.job, job), known.home);
            let Some(Choice { submit_s, .. }) = known.choice.take() else { continue };
            let record = known.record.clone();
            self.next_job += 1;
            let waiting = self.queue.waiting().iter().find(|waiting| waiting.job.id == old);
            let rounds = waiting.map_or(0, |waiting| waiting.rounds);
            self.queue.remove(old);
            self.ids.remove(&old);
            self.ids.insert(job, id);
            let seen = Seen { id, record: None, submit_s, granted_s: 0.0, rounds, set_aside_milli: None };
            if let Err(e) = self.enqueue(&seen, &record, job, home, now_s) {
                tracing::error!("the lease {id} is missing in the cluster's model: {e}");
            }
        }
    }
}
