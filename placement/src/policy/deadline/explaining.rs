//! Explanations: which nodes had cores, and which had the devices.

use super::Round;
use crate::cluster::Cluster;
use crate::error::Phase;
use crate::ids::{DeviceId, NodeId};
use crate::job::{DeviceRequest, Job, Task};
use crate::placement::Placement;
use crate::policy::explain::{Candidate, RuledOut, Step};
use crate::policy::local::why_not;

impl Round<'_> {
    /// For each task the nodes that could host it, and for each of its requests the nodes whose devices could serve it, as they are
    /// before the job is placed.
    pub(super) fn steps(&self, job: &Job) -> Vec<Step> {
        let mut steps = Vec::new();
        for (number, task) in job.tasks.iter().enumerate() {
            let local: Vec<DeviceRequest> =
                task.devices.iter().filter(|request| !self.is_disaggregated(request.kind)).cloned().collect();
            let here = Task { devices: local, ..task.clone() };
            let server = |node| why_not(self.cluster, &self.usage, node, &here).map_or(Ok(()), Err);
            steps.push(
                self.step(Phase::ServerCentric, number, &here.devices, server, |node| self.cost(node, task)),
            );
            for request in task.devices.iter().filter(|request| self.is_disaggregated(request.kind)) {
                let serves = |node: NodeId| {
                    let mut devices = self.cluster.node(node).devices();
                    let free = |device: DeviceId| self.usage.fits_device(self.cluster, device, request);
                    devices.any(free).then_some(()).ok_or("no suitable devices free")
                };
                let requests = std::slice::from_ref(request);
                steps.push(self.step(Phase::Device(request.kind), number, requests, serves, |_| 0.0));
            }
        }
        steps
    }

    fn step(
        &self,
        phase: Phase,
        task: usize,
        requests: &[DeviceRequest],
        fits: impl Fn(NodeId) -> Result<(), &'static str>,
        cost: impl Fn(NodeId) -> f64,
    ) -> Step {
        let (mut candidates, mut ruled_out) = (Vec::new(), RuledOut::default());
        for node in (0..self.cluster.nodes().len() as u32).map(NodeId) {
            match fits(node) {
                Ok(()) => candidates.push(Candidate {
                    place: self.cluster.node(node).name.clone(),
                    cost: cost(node),
                    expected_s: None,
                    load: 0.0,
                    utility: None,
                    preference: 1.0,
                    chosen: false,
                }),
                Err(why) => ruled_out.add(why, self.cluster, node, requests),
            }
        }
        let places = candidates.len();
        candidates.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        Step { phase, task, candidates, places, ruled_out: ruled_out.in_words(), unscheduled: None }
    }
}

/// Marks where the job went, and shortens the lists of candidates.
pub(super) fn mark(steps: &mut [Step], cluster: &Cluster, placement: Option<&Placement>) {
    for step in steps {
        if let Some(at) = placement.and_then(|placement| placement.tasks.get(step.task)) {
            let name = |node: NodeId| cluster.node(node).name.as_str();
            let chosen: Vec<&str> = match step.phase {
                Phase::ServerCentric => vec![name(at.node)],
                Phase::Device(kind) => {
                    let of_kind = at.grants.iter().map(|grant| cluster.device(grant.device));
                    of_kind.filter(|device| device.kind == kind).map(|device| name(device.node)).collect()
                }
            };
            for candidate in &mut step.candidates {
                candidate.chosen = chosen.contains(&candidate.place.as_str());
            }
        }
        step.candidates.sort_by_key(|candidate| !candidate.chosen);
        step.candidates.truncate(Step::SHOWN);
    }
}
