//! Devices without a model of performance: exactly what is asked for, from the task's node or from another one.

use super::Round;
use crate::ids::{DeviceId, NodeId, ProfileId};
use crate::job::{DeviceRequest, Task};
use crate::placement::{Grant, TaskPlacement};
use crate::usage::Usage;

impl Round<'_> {
    /// Takes the cores of a node and the first devices that have room, the node's own before others; or changes nothing.
    pub(super) fn take_pooled(
        &mut self,
        node: NodeId,
        task: &Task,
        profile: ProfileId,
    ) -> Option<TaskPlacement> {
        let regions = self.usage.choose_regions(self.cluster, node, task);
        self.usage.take_server(self.cluster, node, &regions, task, profile);
        let mut at = TaskPlacement { node, regions, grants: Vec::new() };
        for (number, request) in task.devices.iter().enumerate() {
            for device in self.in_order(node, task, request) {
                let given = at.grants.iter().filter(|grant| usize::from(grant.request) == number);
                if given.count() == usize::from(request.count) {
                    break;
                }
                if let Some(grant) = self.can_give(&at, device, request, number as u16) {
                    self.usage.change_grant(self.cluster, node, &grant, true);
                    at.grants.push(grant);
                }
            }
            let given = at.grants.iter().filter(|grant| usize::from(grant.request) == number);
            if given.count() < usize::from(request.count) {
                self.usage.give_task(self.cluster, &at, task, profile);
                return None;
            }
        }
        Some(at)
    }

    /// The devices that may be given for a request, in the order in which they are tried.
    fn in_order(&self, node: NodeId, task: &Task, request: &DeviceRequest) -> Vec<DeviceId> {
        let of_kind = task.devices.iter().filter(|other| other.kind == request.kind);
        // One that is used alone spoils the others of its node for a task that wants several.
        let several = of_kind.map(|other| u32::from(other.count)).sum::<u32>() > 1;
        let own = self.cluster.node(node).devices();
        let mut devices: Vec<DeviceId> = own.clone().collect();
        if self.is_disaggregated(request.kind) {
            let all = (0..self.cluster.devices().len() as u32).map(DeviceId);
            devices.extend(all.filter(|device| self.cluster.device(*device).node != node));
        }
        devices.retain(|&device| self.cluster.device(device).kind == request.kind);
        devices.sort_by_key(|&device| several && self.cluster.device(device).alone);
        devices
    }

    fn can_give(
        &self,
        at: &TaskPlacement,
        device: DeviceId,
        request: &DeviceRequest,
        number: u16,
    ) -> Option<Grant> {
        let (cluster, usage) = (self.cluster, &self.usage);
        let from = cluster.device(device).node;
        let twice = at.grants.iter().any(|grant| grant.device == device && grant.request == number);
        let near = from == at.node
            || usage.fits_path(cluster, at.node, from, request.traffic_mbps, self.external_mbps, 1.0);
        let good = !twice
            && near
            && usage.fits_device(cluster, device, request)
            && Usage::goes_with(cluster, &at.grants, device)
            && !self.held.is_shared_by_model(device);
        good.then(|| usage.grant(cluster, at.node, device, request, number))
    }
}
