//! The devices in use: which are composed, who shares them, and until when.

use crate::cluster::{Cluster, WHOLE};
use crate::ids::{DeviceId, DeviceKind, NodeId};
use crate::job::{Job, Task};
use crate::placement::TaskPlacement;
use crate::profile::{Conditions, Profile, Profiles};
use crate::sharing::Sharing;
use crate::state::ClusterState;
use crate::usage::Usage;

/// A job on a composition, or one that may join it.
#[derive(Clone, Debug)]
pub(super) struct Member<'a> {
    profile: &'a Profile,
    scale: f64,
    /// The part of its work that is left.
    left: f64,
    /// When it is to have ended.
    pub due_s: f64,
    /// ρ: the share of its devices that are remote.
    remote_share: f64,
    /// Thousandths of a device's bandwidth that it asks for.
    pub milli: u16,
    /// The capacity that it asks for.
    pub memory_mib: u64,
}

impl<'a> Member<'a> {
    /// A job whose only request is for one device.
    pub(super) fn new(
        profile: &'a Profile,
        job: &Job,
        task: &Task,
        left: f64,
        remote_share: f64,
    ) -> Member<'a> {
        let request = &task.devices[0];
        let (milli, memory_mib) = (request.milli, request.memory_mib);
        Member { profile, scale: job.scale, left, due_s: job.due_s(), remote_share, milli, memory_mib }
    }

    /// Its model, which every member has.
    pub(super) fn sharing(&self) -> Option<&'a Sharing> {
        self.profile.sharing.as_ref()
    }

    /// When it ends on so many devices with so many sharers, were that to last.
    pub(super) fn ends_s(&self, now_s: f64, composed: usize, sharers: usize) -> f64 {
        let crowding = self.sharing().map_or(0.0, |sharing| sharing.time(composed, sharers) - 1.0);
        let conditions = Conditions { remote_share: self.remote_share, crowding, ..Conditions::default() };
        now_s + self.left * self.profile.completion_s(&conditions) * self.scale
    }

    /// Whether it then keeps its deadline.
    pub(super) fn keeps(&self, now_s: f64, composed: usize, sharers: usize) -> bool {
        self.ends_s(now_s, composed, sharers) <= self.due_s + 1e-6
    }
}

/// Devices of one kind and node that are used as one.
#[derive(Clone, Debug)]
pub(super) struct Composition<'a> {
    /// Sorted.
    pub devices: Vec<DeviceId>,
    /// The node to which it is attached; `None` if its users are in several.
    pub node: Option<NodeId>,
    /// Who uses it.
    pub members: Vec<Member<'a>>,
    /// Whether somebody uses a part of it in a way that no model describes, so that nobody may join.
    closed: bool,
}

impl Composition<'_> {
    /// Thousandths of a device's bandwidth that nobody asks for; less than 0 where more is asked for than there is.
    pub(super) fn unallocated_milli(&self) -> i64 {
        let asked: i64 = self.members.iter().map(|member| i64::from(member.milli)).sum();
        self.devices.len() as i64 * i64::from(WHOLE) - asked
    }

    /// Capacity that is free, spread evenly over the devices.
    pub(super) fn free_mib(&self, usage: &Usage) -> u64 {
        let least = self.devices.iter().map(|&device| usage.device_memory_mib(device)).min();
        least.unwrap_or(0) * self.devices.len() as u64
    }

    /// Whether one more job keeps its deadline here, and everybody else who keeps it now.
    pub(super) fn keeps_deadlines_with(&self, job: &Member<'_>, now_s: f64) -> bool {
        let (composed, sharers) = (self.devices.len(), self.members.len());
        let stays = |other: &Member<'_>| {
            !other.keeps(now_s, composed, sharers) || other.keeps(now_s, composed, sharers + 1)
        };
        job.keeps(now_s, composed, sharers + 1) && self.members.iter().all(stays)
    }

    /// Whether models say how such a job shares this with those who use it: either all have their bandwidth for themselves, or none.
    pub(super) fn is_open_for(&self, sharing: &Sharing) -> bool {
        let sharers = self.members.len() + 1;
        let alike = |other: &Sharing| {
            let enough = other.reserves || other.most_sharers().is_none_or(|most| sharers <= most);
            other.kind == sharing.kind && other.reserves == sharing.reserves && enough
        };
        !self.closed
            && alike(sharing)
            && self.members.iter().all(|member| member.sharing().is_some_and(alike))
    }
}

/// All compositions in use, in the order in which their first users started.
#[derive(Clone, Debug, Default)]
pub(super) struct Compositions<'a>(Vec<Composition<'a>>);

impl<'a> Compositions<'a> {
    /// What the running jobs use.
    pub(super) fn of(state: &'a ClusterState, now_s: f64) -> Compositions<'a> {
        let mut all = Compositions::default();
        let mut running: Vec<_> = state.all_running().collect();
        running.sort_by(|a, b| a.started_s.total_cmp(&b.started_s).then(a.job.id.cmp(&b.job.id)));
        for running in running {
            let left = 1.0 - running.done(now_s);
            for (task, at) in running.job.tasks.iter().zip(&running.placement.tasks) {
                all.add(state.profiles(), &running.job, task, at, state.cluster(), left);
            }
        }
        all
    }

    /// Notes what a task has been given.
    pub(super) fn add(
        &mut self,
        profiles: &'a Profiles,
        job: &Job,
        task: &Task,
        at: &TaskPlacement,
        cluster: &Cluster,
        left: f64,
    ) {
        let profile = profiles.get(job.profile);
        for kind in DeviceKind::ALL {
            let of_kind = at.grants.iter().filter(|grant| cluster.device(grant.device).kind == kind);
            let mut devices: Vec<DeviceId> = of_kind.map(|grant| grant.device).collect();
            devices.sort_unstable();
            devices.dedup();
            if devices.is_empty() {
                continue;
            }
            let model = profile.sharing.as_ref().filter(|sharing| sharing.kind == kind);
            let simple = job.tasks.len() == 1 && task.devices.len() == 1 && task.devices[0].count == 1;
            let member = model.filter(|_| simple).map(|_| {
                let remote = devices.iter().filter(|&&device| cluster.device(device).node != at.node).count();
                Member::new(profile, job, task, left, remote as f64 / devices.len() as f64)
            });
            self.put(devices, at.node, member);
        }
    }

    fn put(&mut self, devices: Vec<DeviceId>, node: NodeId, member: Option<Member<'a>>) {
        let mut closed = member.is_none();
        for other in &mut self.0 {
            if other.devices == devices {
                other.closed |= closed;
                other.node = other.node.filter(|&at| at == node);
                other.members.extend(member);
                return;
            }
            if other.devices.iter().any(|device| devices.contains(device)) {
                other.closed = true;
                closed = true;
            }
        }
        self.0.push(Composition { devices, node: Some(node), members: member.into_iter().collect(), closed });
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Composition<'a>> {
        self.0.iter()
    }

    /// Whether somebody uses the device without having a part of it for himself.
    pub(super) fn is_shared_by_model(&self, device: DeviceId) -> bool {
        let model = |member: &Member<'_>| member.sharing().is_some_and(|sharing| !sharing.reserves);
        self.0.iter().any(|one| one.devices.contains(&device) && one.members.iter().any(model))
    }
}
