//! Taking what a job is given, and giving it back.

use super::view::View;
use crate::cluster::WHOLE;
use crate::cost;
use crate::ids::{DeviceId, LinkId, NodeId};
use crate::job::{DeviceRequest, Job, Task};
use crate::placement::{Grant, TaskPlacement};
use crate::usage::Usage;

impl View<'_> {
    /// Takes a task's server-centric part in a node: cores, memory, and the devices of kinds that aren't
    /// disaggregated; if `with_devices`, all devices if they are all there.
    pub(super) fn take_server(
        &mut self,
        job: &Job,
        task: &Task,
        node: NodeId,
        with_devices: bool,
    ) -> Option<TaskPlacement> {
        if !self.usage.fits_server(node, task) || !task.allows(node) {
            return None;
        }
        let parts = task.devices.iter().any(|request| request.milli < WHOLE);
        let with_devices = with_devices && !(parts && self.spares_slivers());
        let all = with_devices || task.devices.iter().all(|request| !self.disaggregated(request));
        let local = if all { self.grant_in(node, task) } else { None };
        let at = match local {
            Some(at) => at,
            None => {
                let mut only_local = task.clone();
                only_local.devices.retain(|request| !self.disaggregated(request));
                let mut at = self.grant_in(node, &only_local)?;
                // The numbers of the requests are those of the whole task.
                let numbers: Vec<u16> = (0..task.devices.len() as u16)
                    .filter(|&i| !self.disaggregated(&task.devices[usize::from(i)]))
                    .collect();
                at.grants.iter_mut().for_each(|grant| grant.request = numbers[usize::from(grant.request)]);
                at
            }
        };
        self.usage.take_task(self.cluster, &at, task, job.profile);
        Some(at)
    }

    /// Takes a task's server-centric part and all its devices in one node; takes nothing where a device is not there.
    pub(super) fn take_local(&mut self, job: &Job, task: &Task, node: NodeId) -> Option<TaskPlacement> {
        let mut at = self.take_server(job, task, node, true)?;
        for (number, request) in task.devices.iter().enumerate() {
            let have = at.grants.iter().filter(|grant| usize::from(grant.request) == number).count();
            for _ in have..usize::from(request.count) {
                if !self.take_device(&mut at, request, number as u16, node) {
                    self.usage.give_task(self.cluster, &at, task, job.profile);
                    return None;
                }
            }
        }
        Some(at)
    }

    /// Takes one device of a node for a task that is in `at.node`: the one where fragmentation grows the least or, where parts are
    /// spread, of which most is free.
    pub(super) fn take_device(
        &mut self,
        at: &mut TaskPlacement,
        request: &DeviceRequest,
        number: u16,
        node: NodeId,
    ) -> bool {
        let mut best: Option<((bool, u16), DeviceId)> = None;
        for device in self.cluster.node(node).devices() {
            let taken = at.grants.iter().any(|grant| grant.device == device && grant.request == number);
            if !taken && self.fits(device, request) && Usage::goes_with(self.cluster, &at.grants, device) {
                // After one that is used alone, the node has no other for the task.
                let alone = request.count > 1 && self.cluster.device(device).alone;
                let free = self.usage.device_milli(device);
                let rank = (alone, if self.spreads(request) { WHOLE - free } else { free });
                if best.is_none_or(|(least, _)| rank < least) {
                    best = Some((rank, device));
                }
            }
        }
        let Some((_, mut device)) = best else { return false };
        if request.milli < WHOLE && !self.spares_slivers() && !self.spreads(request) {
            let key = self.device_key(request);
            if let Some(choice) = self.fragmentation.grant(self.cluster, &self.usage, node, key.task())
                && !at.grants.iter().any(|g| g.device == choice.grants[0].device && g.request == number)
                && Usage::goes_with(self.cluster, &at.grants, choice.grants[0].device)
            {
                device = choice.grants[0].device;
            }
        }
        if node != at.node && !self.fits_path(at.node, node, request.traffic_mbps) {
            return false;
        }
        let grant: Grant = self.usage.grant(self.cluster, at.node, device, request, number);
        self.usage.change_grant(self.cluster, at.node, &grant, true);
        at.grants.push(grant);
        true
    }

    /// Gives back everything that a job got.
    pub(super) fn take_back(&mut self, job: &Job, placed: &[TaskPlacement]) {
        for (task, at) in job.tasks.iter().zip(placed) {
            self.usage.give_task(self.cluster, at, task, job.profile);
        }
    }

    /// The completion time that a job can expect where it was put: for the network-aware policy, before the job is
    /// made a neighbour, but after its traffic was counted.
    pub(super) fn expected_of(&mut self, job: &Job, placed: &[TaskPlacement]) -> f64 {
        let profile = self.profiles.get(job.profile);
        let mut own: Vec<(LinkId, u64)> = Vec::new();
        for (task, at) in job.tasks.iter().zip(placed) {
            crate::state::own_traffic(self.cluster, task, at, &mut own);
        }
        own.sort_unstable();
        let mut longest: f64 = 0.0;
        for at in placed {
            let mut conditions = crate::state::conditions_at(self.cluster, at);
            for grant in &at.grants {
                self.cluster.for_path(at.node, self.cluster.device(grant.device).node, |link| {
                    let from = own.partition_point(|(l, _)| *l < link);
                    let mine: u64 = own[from..].iter().take_while(|(l, _)| *l == link).map(|(_, m)| m).sum();
                    let all = self.usage.link_mbps(link) + self.external[link.index()];
                    let load = crate::state::load(self.cluster, link, all.saturating_sub(mine));
                    conditions.load = conditions.load.max(load);
                });
            }
            let alone_s = cost::expected_s(job, profile, conditions, self.settings.network_aware);
            conditions.interference = self.interference(job, at.node, alone_s);
            let expected = cost::expected_s(job, profile, conditions, self.settings.network_aware);
            longest = longest.max(expected);
        }
        longest
    }
}
