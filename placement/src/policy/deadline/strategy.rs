//! What these policies differ in: where a job goes.

use super::compositions::{Composition, Member};
use crate::cluster::WHOLE;
use crate::ids::{DeviceKind, NodeId};
use crate::job::Task;
use crate::state::ClusterState;
use crate::usage::Usage;

/// Where jobs go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) enum Strategy {
    /// The first node with room, and the first devices with room; nothing is known of how jobs share devices.
    FirstFit,
    /// Algorithm 1: compositions in use first, new ones as large as the job profits from.
    MaxComposition,
    /// Algorithm 2: compositions in use first, what leaves the least over; new ones as small as possible.
    MinFragmentation,
    /// [`Strategy::MaxComposition`] or [`Strategy::MinFragmentation`], as the load says (equation 4.4).
    DisaggregationAware,
    /// Section 5.3: compositions as of algorithm 1, the first that fits, and nodes by what they have left (equation 5.1).
    HeterogeneityAware,
}

/// Equation 4.4: whether compositions are maximised rather than fragmentation minimised, at these loads of bandwidth and capacity
/// (what the running jobs ask for, by what there is).
pub fn composes(bandwidth: f64, capacity: f64) -> bool {
    (bandwidth <= 0.5 && capacity <= 0.5) || (bandwidth >= 0.7 && capacity <= 0.7)
}

impl Strategy {
    /// The strategy to follow in a round.
    pub(super) fn now(self, state: &ClusterState) -> Strategy {
        if self != Strategy::DisaggregationAware {
            return self;
        }
        let (mut milli, mut memory) = (0u64, 0u64);
        for task in state.all_running().flat_map(|running| &running.job.tasks) {
            for request in task.devices.iter().filter(|request| request.kind == DeviceKind::Nvme) {
                milli += u64::from(request.count) * u64::from(request.milli);
                memory += u64::from(request.count) * request.memory_mib;
            }
        }
        let nvmes = state.cluster().devices().iter().filter(|device| device.kind == DeviceKind::Nvme);
        let (count, total) = nvmes.fold((0u64, 0u64), |sum, device| (sum.0 + 1, sum.1 + device.memory_mib));
        let part = |wanted: u64, there: u64| if there == 0 { 0.0 } else { wanted as f64 / there as f64 };
        match composes(part(milli, count * u64::from(WHOLE)), part(memory, total)) {
            true => Strategy::MaxComposition,
            false => Strategy::MinFragmentation,
        }
    }

    /// Whether a new composition gets more devices than needed if the job ends sooner with them.
    pub(super) fn over_provisions(self) -> bool {
        matches!(self, Strategy::MaxComposition | Strategy::HeterogeneityAware)
    }

    /// How late a node is tried that has `free` of its `all` thousandths of cores free, for a task that wants `wanted`.
    pub(super) fn cost_of_host(self, free: u64, all: u64, wanted: u64) -> f64 {
        match self {
            Strategy::FirstFit | Strategy::MaxComposition | Strategy::DisaggregationAware => 0.0,
            // Equation 4.3.
            Strategy::MinFragmentation => 1.0 - free as f64 / all.max(1) as f64,
            // Equation 5.1, whose divisor is the same for all nodes.
            Strategy::HeterogeneityAware => -(free.saturating_sub(wanted) as f64),
        }
    }

    /// By what compositions in use are compared, of which the least is taken, and of equals the first.
    pub(super) fn cost_of_composition(
        self,
        usage: &Usage,
        composition: &Composition,
        node: NodeId,
        job: &Member<'_>,
        task: &Task,
        now_s: f64,
    ) -> (f64, f64) {
        let request = &task.devices[0];
        let free_milli = composition.unallocated_milli();
        let free_mib = composition.free_mib(usage) as i64;
        match self {
            Strategy::MaxComposition => {
                let sharers = composition.members.len();
                let composed = composition.devices.len();
                // Line 5: TTL(job) − TTL(c), which are moments.
                let job_ends_s = job.ends_s(now_s, composed, sharers + 1);
                let others = composition.members.iter().map(|member| member.ends_s(now_s, composed, sharers));
                // Equation 4.1, in thousandths of devices and in MiB.
                let left = (free_milli - i64::from(request.milli)) + (free_mib - request.memory_mib as i64);
                (job_ends_s - others.fold(now_s, f64::max), left as f64)
            }
            Strategy::MinFragmentation => {
                // Equation 4.2. Where more bandwidth is promised than there is, next to nothing is left.
                let part = |wanted: f64, free: i64| wanted / free.max(1) as f64;
                let used =
                    part(f64::from(request.milli), free_milli) + part(request.memory_mib as f64, free_mib);
                let cores = task.cpu_milli.max(1) as f64 / usage.node(node).cpu_milli.max(1) as f64;
                ((1.0 - used) / cores, 0.0)
            }
            _ => (0.0, 0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equation_4_4() {
        for (bandwidth, capacity, composing) in [
            (0.5, 0.5, true),
            (0.51, 0.5, false),
            (0.5, 0.51, false),
            (0.69, 0.1, false),
            (0.7, 0.7, true),
            (1.4, 0.71, false),
        ] {
            assert_eq!(composes(bandwidth, capacity), composing, "{bandwidth} {capacity}");
        }
    }

    #[test]
    fn nodes_by_hand() {
        // Equation 4.3 prefers the node of which the greater part is free, equation 5.1 the one with more cores left.
        let min = |free, all| Strategy::MinFragmentation.cost_of_host(free, all, 2);
        assert!(min(10, 20) < min(12, 40));
        let aware = |free, all| Strategy::HeterogeneityAware.cost_of_host(free, all, 2);
        assert!(aware(10, 20) > aware(12, 40));
        assert_eq!(
            Strategy::MaxComposition.cost_of_host(1, 2, 1),
            Strategy::MaxComposition.cost_of_host(9, 9, 1)
        );
    }
}
