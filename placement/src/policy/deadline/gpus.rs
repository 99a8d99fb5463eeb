//! Parts of GPUs by a model of performance: algorithms 3 and 4.

use super::Round;
use super::compositions::Member;
use crate::cluster::WHOLE;
use crate::ids::{DeviceId, NodeId};
use crate::job::{DeviceRequest, Job, Task};
use crate::part::equal_parts;
use crate::placement::TaskPlacement;

impl<'a> Round<'a> {
    /// Algorithm 4: a part of a GPU in use on which all keep their deadlines, or a GPU that nobody uses, whichever is expected to
    /// end the job sooner; and the node with cores that the strategy prefers.
    pub(super) fn place_on_gpu(&mut self, job: &'a Job, task: &'a Task) -> Option<TaskPlacement> {
        let request = &task.devices[0];
        let mut best: Option<(f64, TaskPlacement)> = None;
        for host in self.hosts(task) {
            let devices = (0..self.cluster.devices().len() as u32).map(DeviceId);
            for gpu in devices.filter(|&gpu| self.reaches(host, gpu, request)) {
                let Some(ends_s) = self.ends_on_gpu(job, task, host, gpu) else { continue };
                if best.as_ref().is_none_or(|(least, _)| ends_s < *least) {
                    let grants = vec![self.usage.grant(self.cluster, host, gpu, request, 0)];
                    let regions = self.usage.choose_regions(self.cluster, host, task);
                    best = Some((ends_s, TaskPlacement { node: host, regions, grants }));
                }
            }
            // Whoever runs in which node does not matter for the GPU, unless it has to be the node's own.
            if best.is_some() {
                break;
            }
        }
        best.map(|(_, at)| at)
    }

    /// Whether a task in a node can use that device: it is free, and near enough.
    fn reaches(&self, host: NodeId, device: DeviceId, request: &DeviceRequest) -> bool {
        let at = self.cluster.device(device).node;
        self.usage.fits_device(self.cluster, device, request)
            && (at == host
                || self.is_disaggregated(request.kind)
                    && self.usage.fits_path(
                        self.cluster,
                        host,
                        at,
                        request.traffic_mbps,
                        self.external_mbps,
                        1.0,
                    ))
    }

    /// When a job is expected to end on a GPU, if it may go there.
    fn ends_on_gpu(&self, job: &Job, task: &Task, host: NodeId, gpu: DeviceId) -> Option<f64> {
        let request = &task.devices[0];
        let device = self.cluster.device(gpu);
        let remote = f64::from(u8::from(device.node != host));
        let member = Member::new(self.profiles.get(job.profile), job, task, 1.0, remote);
        let sharing = member.sharing()?;
        let Some(users) = self.held.iter().find(|composition| composition.devices.contains(&gpu)) else {
            return Some(member.ends_s(self.now_s, 1, 1));
        };
        // The parts are those of the greatest request that is served now.
        let milli = users.members.iter().map(|other| other.milli).max().unwrap_or(WHOLE);
        let memory_mib = users.members.iter().map(|other| other.memory_mib).max().unwrap_or(0);
        let fits = device.partitionable
            && users.is_open_for(sharing)
            && request.milli <= milli
            && request.memory_mib <= memory_mib
            && users.members.len() < equal_parts(milli, memory_mib, device.memory_mib)
            && users.keeps_deadlines_with(&member, self.now_s);
        fits.then(|| member.ends_s(self.now_s, 1, users.members.len() + 1))
    }
}
