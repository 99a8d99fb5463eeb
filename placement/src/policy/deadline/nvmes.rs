//! NVMes by a model of performance: compositions in use, and new ones (algorithms 1 and 2).

use super::Round;
use super::compositions::{Composition, Member};
use crate::cluster::WHOLE;
use crate::ids::{DeviceId, NodeId};
use crate::job::{DeviceRequest, Job, Task};
use crate::placement::{Grant, TaskPlacement};
use crate::sharing::Sharing;

impl<'a> Round<'a> {
    /// Where a job goes whose only request is for an NVMe, and whose performance is known.
    pub(super) fn place_on_nvmes(&mut self, job: &'a Job, task: &'a Task) -> Option<TaskPlacement> {
        let sharing = self.profiles.get(job.profile).sharing.as_ref()?;
        if let Some(at) = self.join_composition(job, task, sharing) {
            return Some(at);
        }
        let key = (job.tasks.as_slice(), job.profile);
        if self.hopeless.contains(&key) {
            return None;
        }
        let at = self.new_composition(task, sharing);
        if at.is_none() {
            self.hopeless.insert(key);
        }
        at
    }

    /// Lines 3 to 12 of algorithm 1, and 3 to 11 of algorithm 2: the best composition in use on which all keep their deadlines. All
    /// jobs of a composition run in the node to which it is attached.
    fn join_composition(&self, job: &Job, task: &Task, sharing: &Sharing) -> Option<TaskPlacement> {
        let mut best: Option<((f64, f64), TaskPlacement)> = None;
        for composition in self.held.iter().filter(|composition| composition.is_open_for(sharing)) {
            let Some(node) = composition.node else { continue };
            if !task.allows(node) || !self.usage.fits_server(node, task) {
                continue;
            }
            let request = &task.devices[0];
            if sharing.reserves && composition.unallocated_milli() < i64::from(request.milli) {
                continue;
            }
            let Some(at) = self.on(node, &composition.devices, task, sharing) else { continue };
            let member = self.member(job, task, node, composition);
            if !composition.keeps_deadlines_with(&member, self.now_s) {
                continue;
            }
            let cost =
                self.strategy.cost_of_composition(&self.usage, composition, node, &member, task, self.now_s);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, at));
            }
        }
        best.map(|(_, at)| at)
    }

    fn member(&self, job: &Job, task: &Task, node: NodeId, composition: &Composition<'_>) -> Member<'a> {
        let remote = composition.devices.iter().filter(|&&device| self.cluster.device(device).node != node);
        let share = remote.count() as f64 / composition.devices.len().max(1) as f64;
        Member::new(self.profiles.get(job.profile), job, task, 1.0, share)
    }

    /// Lines 14 to 17 of algorithm 1, and 13 to 15 of algorithm 2: free devices of one pool (a node's), in a node with cores.
    fn new_composition(&self, task: &Task, sharing: &Sharing) -> Option<TaskPlacement> {
        let request = &task.devices[0];
        let pools = (0..self.cluster.nodes().len() as u32).map(NodeId);
        let free: Vec<(NodeId, Vec<DeviceId>)> = pools
            .map(|pool| (pool, self.free_devices(pool, request)))
            .filter(|(_, devices)| !devices.is_empty())
            .collect();
        if free.is_empty() {
            return None;
        }
        for host in self.hosts(task) {
            // A node's own devices come first.
            let own = free.iter().filter(|(pool, _)| *pool == host);
            let others = free.iter().filter(|(pool, _)| *pool != host && self.is_disaggregated(request.kind));
            for (_, devices) in own.chain(others) {
                let capacity = self.cluster.device(devices[0]).memory_mib.max(1);
                let least = (request.memory_mib.div_ceil(capacity) as usize).max(1);
                if least > devices.len().min(sharing.most_composed()) {
                    continue;
                }
                let size = match self.strategy.over_provisions() {
                    true => sharing.best_composed(least, devices.len()),
                    false => least,
                };
                if let Some(at) = self.on(host, &devices[..size], task, sharing) {
                    return Some(at);
                }
            }
        }
        None
    }

    /// The devices of a node that nobody uses, that would do, and that can be composed: all as large as the first.
    fn free_devices(&self, pool: NodeId, request: &DeviceRequest) -> Vec<DeviceId> {
        let any_size = DeviceRequest { memory_mib: 0, ..request.clone() };
        let mut free: Vec<DeviceId> = self
            .cluster
            .node(pool)
            .devices()
            .filter(|&device| {
                self.usage.device_users(device) == 0
                    && self.usage.fits_device(self.cluster, device, &any_size)
            })
            .collect();
        if let Some(&first) = free.first() {
            let size = |device: DeviceId| self.cluster.device(device).memory_mib;
            let alone = self.cluster.device(first).alone;
            free.retain(|&device| {
                device == first || !alone && !self.cluster.device(device).alone && size(device) == size(first)
            });
        }
        free
    }

    /// The task in a node with a part of each of these devices, if there is room for it.
    fn on(
        &self,
        node: NodeId,
        devices: &[DeviceId],
        task: &Task,
        sharing: &Sharing,
    ) -> Option<TaskPlacement> {
        let request = &task.devices[0];
        let pool = self.cluster.device(devices[0]).node;
        if pool != node {
            let paths = |mbps| self.usage.fits_path(self.cluster, node, pool, mbps, self.external_mbps, 1.0);
            let each = request.traffic_mbps.div_ceil(devices.len() as u64);
            if !self.is_disaggregated(request.kind) || !paths(each * devices.len() as u64) {
                return None;
            }
        }
        let count = devices.len();
        let milli = match sharing.most_sharers().filter(|_| !sharing.reserves) {
            // When as many share it as the model knows, all of it is given.
            Some(most) => (usize::from(WHOLE) / most).max(1) as u16,
            None => request.milli.div_ceil(count as u16).max(1),
        };
        let mut grants = Vec::with_capacity(count);
        for &device in devices {
            let spec = self.cluster.device(device);
            let right = self.usage.grant(self.cluster, node, device, request, 0);
            let grant = Grant {
                milli: if spec.partitionable { milli } else { WHOLE },
                memory_mib: request.memory_mib.div_ceil(count as u64),
                traffic_mbps: right.traffic_mbps.div_ceil(count as u64),
                ..right
            };
            let suits = request.models.contains(spec.model) && spec.offers.has_all(request.needs);
            let free = self.usage.device_milli(device) >= grant.milli
                && self.usage.device_memory_mib(device) >= grant.memory_mib;
            if !suits || !free {
                return None;
            }
            grants.push(grant);
        }
        Some(TaskPlacement { node, regions: self.usage.choose_regions(self.cluster, node, task), grants })
    }
}
