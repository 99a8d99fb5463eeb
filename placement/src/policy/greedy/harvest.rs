//! Sharing devices by what was measured of them: Kube-Knots' CBP and peak prediction.

use super::{Pick, Rule, fitting, grant_locally};
use crate::cluster::Cluster;
use crate::harvest::{Footprint, Forecast, Need, Pod, Scheme, decide};
use crate::ids::{DeviceId, DeviceKind, NodeId, ProfileId};
use crate::job::{DeviceRequest, Job, Task};
use crate::observed::{Resizable, Size};
use crate::placement::{Grant, TaskPlacement};
use crate::state::ClusterState;
use crate::usage::Usage;

/// The GPU in use that has the most memory free and admits the task ([`decide`]); else one that nobody uses; else the task waits.
///
/// What was measured comes from [`ClusterState::observed`]; of applications that were never measured, what they ask for counts.
/// Tasks with another number of GPUs than one, or with other devices, go to the first node that has room. Memory is granted as it is
/// asked for. Where [`Observed::set_lenders`](crate::Observed::set_lenders) was called, device time is lent: jobs that have a
/// [`Size`] count with what is set aside for them, and go to a device that lends, or where all that they are promised is free.
#[derive(Debug)]
pub struct Harvest {
    scheme: Scheme,
    /// The job whose tasks are being placed: its profile, if its use counts, and its size, if it may be resized.
    profile: Option<ProfileId>,
    size: Option<Size>,
    /// What can be resized, in this round.
    resizable: Option<Resizable>,
    devices: Vec<Shared>,
    footprints: Vec<Option<Footprint>>,
}

/// What a rule knows of a device in a round.
#[derive(Debug, Default)]
struct Shared {
    /// The profile of each whose use counts, and what it has.
    residents: Vec<(Option<ProfileId>, Need)>,
    /// Memory in use in MiB, if it was measured.
    used_mib: Option<f64>,
    forecast: Forecast,
}

impl Harvest {
    /// By that scheme.
    pub fn new(scheme: Scheme) -> Harvest {
        Harvest {
            scheme,
            profile: None,
            size: None,
            resizable: None,
            devices: Vec::new(),
            footprints: Vec::new(),
        }
    }

    fn footprint(&self, profile: ProfileId) -> Option<&Footprint> {
        self.footprints.get(profile.index())?.as_ref()
    }

    /// The size of a job, and its profile where what it uses counts, and not what it asks for.
    fn known(&self, job: &Job) -> (Option<Size>, Option<ProfileId>) {
        let size = self.resizable.as_ref().and_then(|resizable| resizable.size(job.id));
        let counts = self.resizable.is_none() || size.is_some();
        (size, counts.then_some(job.profile))
    }

    /// What the job whose tasks are being placed would have of a device.
    fn wanted(&self, request: &DeviceRequest) -> Need {
        match self.size {
            Some(size) => size.set_aside,
            None => Harvest::need(request.milli, request.memory_mib),
        }
    }

    /// Whether a device can give what the job was promised, or lends.
    fn keeps_promise(&self, usage: &Usage, device: DeviceId) -> bool {
        let lends = self.resizable.as_ref().is_some_and(|resizable| resizable.lends(device));
        self.size.is_none_or(|size| lends || usage.device_milli(device) >= size.promised_milli)
    }

    /// What a grant or a request asks for, of which a thousandth is a tenth of a percent of the device's time.
    fn need(milli: u16, memory_mib: u64) -> Need {
        Need { memory_mib: memory_mib as f64, sm: f64::from(milli) / 10.0 }
    }

    fn admits(&self, cluster: &Cluster, device: DeviceId, request: &DeviceRequest) -> bool {
        let shared = &self.devices[device.index()];
        let pod = |profile: Option<ProfileId>, asked| Pod {
            asked,
            footprint: profile.and_then(|profile| self.footprint(profile)),
            short: false,
        };
        let residents: Vec<Pod<'_>> =
            shared.residents.iter().map(|(profile, asked)| pod(*profile, *asked)).collect();
        let newcomer = pod(self.profile, self.wanted(request));
        let memory_mib = cluster.device(device).memory_mib as f64;
        let capacity = Need { memory_mib, sm: 100.0 };
        decide(self.scheme, capacity, &residents, &newcomer, || shared.forecast).admits()
    }

    /// How full a device is, from 0 (nobody uses it: the last to be taken) to less than −1 (in use, with much memory free).
    fn score(&self, cluster: &Cluster, usage: &Usage, device: DeviceId) -> f64 {
        let shared = &self.devices[device.index()];
        if shared.residents.is_empty() {
            return 0.0;
        }
        let all = cluster.device(device).memory_mib.max(1) as f64;
        let free = match shared.used_mib {
            Some(used) => all - used,
            None => usage.device_memory_mib(device) as f64,
        };
        -1.0 - free / all
    }

    /// The best device of a node for the only device that a task asks for.
    fn best(
        &self,
        cluster: &Cluster,
        usage: &Usage,
        node: NodeId,
        request: &DeviceRequest,
    ) -> Option<(f64, DeviceId)> {
        let devices = cluster.node(node).devices();
        devices
            .filter(|&device| {
                usage.fits_device(cluster, device, request)
                    && self.keeps_promise(usage, device)
                    && self.admits(cluster, device, request)
            })
            .map(|device| (self.score(cluster, usage, device), device))
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
    }
}

/// The task's only request, if it is for one GPU.
fn single(task: &Task) -> Option<&DeviceRequest> {
    match task.devices.as_slice() {
        [request] if request.kind == DeviceKind::Gpu && request.count == 1 => Some(request),
        _ => None,
    }
}

impl Rule for Harvest {
    const ALIKE: bool = false;

    fn begin(&mut self, state: &ClusterState) {
        let cluster = state.cluster();
        self.devices.clear();
        self.devices.resize_with(cluster.devices().len(), Shared::default);
        self.footprints.clear();
        self.resizable = state.observed().and_then(|observed| observed.resizable()).cloned();
        if let Some(observed) = state.observed() {
            let profiles = (0..state.profiles().len() as u32).map(ProfileId);
            self.footprints.extend(profiles.map(|profile| observed.footprint(profile).cloned()));
            for (i, shared) in self.devices.iter_mut().enumerate() {
                let Some(telemetry) = observed.device(DeviceId(i as u32)) else { continue };
                shared.used_mib = Some(telemetry.memory_mib());
                if self.scheme == Scheme::PeakPrediction {
                    shared.forecast = telemetry.forecast(observed.ahead());
                }
            }
        }
        for running in state.all_running() {
            let (size, profile) = self.known(&running.job);
            for grant in running.placement.tasks.iter().flat_map(|at| &at.grants) {
                let need = size.map_or(Harvest::need(grant.milli, grant.memory_mib), |size| size.set_aside);
                self.devices[grant.device.index()].residents.push((profile, need));
            }
        }
    }

    fn consider(&mut self, job: &Job) {
        (self.size, self.profile) = self.known(job);
    }

    fn choose(&mut self, cluster: &Cluster, usage: &Usage, task: &Task) -> Option<NodeId> {
        let Some(request) = single(task) else { return fitting(cluster, usage, task).next() };
        let best = |node| self.best(cluster, usage, node, request).map(|(score, _)| (score, node));
        let found = fitting(cluster, usage, task).filter_map(best);
        found.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))).map(|(_, node)| node)
    }

    fn grant(
        &mut self,
        cluster: &Cluster,
        usage: &Usage,
        node: NodeId,
        task: &Task,
    ) -> Option<TaskPlacement> {
        let placement = match single(task) {
            Some(request) => {
                let (_, device) = self.best(cluster, usage, node, request)?;
                let grant: Grant = usage.grant(cluster, node, device, request, 0);
                TaskPlacement {
                    node,
                    regions: usage.choose_regions(cluster, node, task),
                    grants: vec![grant],
                }
            }
            None => grant_locally(cluster, usage, node, task, Pick::First)?,
        };
        // Who comes later in the round finds them there, even if the rest of the gang finds no place.
        for grant in &placement.grants {
            let need = self.size.map_or(Harvest::need(grant.milli, grant.memory_mib), |size| size.set_aside);
            self.devices[grant.device.index()].residents.push((self.profile, need));
        }
        Some(placement)
    }

    fn cost(&mut self, cluster: &Cluster, usage: &Usage, node: NodeId, task: &Task) -> f64 {
        let best = single(task).map(|request| self.best(cluster, usage, node, request));
        best.map_or(f64::from(node.0), |best| best.map_or(f64::INFINITY, |(score, _)| score))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::{ClusterBuilder, DeviceSpec, NodeSpec};
    use crate::harvest::Sample;
    use crate::ids::JobId;
    use crate::observed::Observed;
    use crate::policy::{Decisions, PolicyConfig, Reason};
    use crate::profile::{Profile, Profiles};
    use crate::queue::{Queue, Waiting};

    /// Two nodes with a GPU of 100 MiB each.
    fn state() -> ClusterState {
        let node = |name: &str| NodeSpec::new(name, 8000, 1000).with_devices(1, DeviceSpec::gpu("P100", 100));
        let cluster = ClusterBuilder::new().nodes([node("a"), node("b")]).build().unwrap();
        let profiles = Profiles::new(vec![Profile::new("up", 10.0), Profile::new("down", 10.0)]).unwrap();
        ClusterState::new(Arc::new(cluster), Arc::new(profiles))
    }

    fn job(id: u32, profile: u32) -> Job {
        let request = DeviceRequest { memory_mib: 40, ..DeviceRequest::part(400) };
        Job {
            profile: ProfileId(profile),
            ..Job::new(JobId(id), format!("j{id}"), Task::new(100, 1).with(request))
        }
    }

    fn waiting(jobs: impl IntoIterator<Item = Job>) -> Vec<Waiting> {
        let mut queue = Queue::new();
        jobs.into_iter().for_each(|job| queue.push(Arc::new(job)).unwrap());
        queue.waiting().to_vec()
    }

    fn decide(name: &str, state: &ClusterState, jobs: Vec<Job>) -> Decisions {
        PolicyConfig::named(name).unwrap().build().unwrap().schedule(state, &waiting(jobs), 0.0).unwrap()
    }

    fn devices(decisions: &Decisions) -> Vec<u32> {
        decisions.placed.iter().map(|(_, placement)| placement.tasks[0].grants[0].device.0).collect()
    }

    fn observed() -> Observed {
        let mut observed = Observed::new(2, 50, 10);
        let up: Vec<f64> = (0..50).map(f64::from).collect();
        let down: Vec<f64> = up.iter().rev().copied().collect();
        observed.learn(ProfileId(0), Footprint::new(&up, &up).unwrap());
        observed.learn(ProfileId(1), Footprint::new(&down, &down).unwrap());
        observed
    }

    #[test]
    fn without_measurements_devices_are_filled_by_what_is_asked_for() {
        for name in ["cbp", "cbp-pp"] {
            // Two of 40 MiB and 40% fit a device; the fifth waits.
            let decisions = decide(name, &state(), (0..5).map(|i| job(i, 0)).collect());
            assert_eq!(devices(&decisions), [0, 0, 1, 1]);
            assert_eq!(decisions.left, [(JobId(4), Reason::NoRoom)]);
        }
    }

    #[test]
    fn those_that_peak_together_go_to_different_devices() {
        let mut state = state();
        state.set_observed(Some(observed()));
        let decisions = decide("cbp", &state, vec![job(0, 0), job(1, 0), job(2, 1)]);
        assert_eq!(devices(&decisions), [0, 1, 0]);
        // A fourth of the first kind has none left, and one of the other kind still has.
        let decisions = decide("cbp", &state, vec![job(0, 0), job(1, 0), job(2, 0), job(3, 1)]);
        assert_eq!(devices(&decisions), [0, 1, 0]);
        assert_eq!(decisions.left, [(JobId(2), Reason::NoRoom)]);
    }

    #[test]
    fn a_forecast_lets_in_what_cbp_refuses() {
        let mut state = state();
        let mut observed = observed();
        for device in 0..2 {
            for i in 0..30 {
                let sinks = 90.0 * 0.8f64.powi(i);
                let sample = Sample { sm: sinks, memory_mib: sinks, ..Sample::default() };
                observed.sample(DeviceId(device), &sample).unwrap();
            }
        }
        state.set_observed(Some(observed));
        let three = || vec![job(0, 0), job(1, 0), job(2, 0)];
        assert_eq!(decide("cbp", &state, three()).placed.len(), 2);
        assert_eq!(decide("cbp-pp", &state, three()).placed.len(), 3);
    }

    #[test]
    fn jobs_that_may_be_resized_count_with_their_size_where_devices_lend() {
        let mut state = state();
        let mut observed = Observed::new(2, 50, 10);
        observed.set_lenders([DeviceId(1)]);
        // It takes nothing for good; 40% were promised, and 20% would be set aside.
        let small = |id| {
            let mut job = job(id, 0);
            (job.tasks[0].devices[0].milli, job.tasks[0].devices[0].memory_mib) = (0, 10);
            job
        };
        let size = Size { set_aside: Need { memory_mib: 10.0, sm: 20.0 }, promised_milli: 400 };
        (10..18).for_each(|id| observed.resize(JobId(id), size));
        // What was learnt of a job that may not be resized does not count.
        observed.learn(ProfileId(1), Footprint::new(&[1.0], &[1.0]).unwrap());
        state.set_observed(Some(observed));
        // Those with lower numbers come first.
        let fixed = (0..3).map(|id| job(id, 1));
        let decisions = decide("cbp", &state, fixed.chain((10..14).map(small)).collect());
        // The first device has 20% left that are not promised, and does not lend; the other one lends what is not set aside.
        assert_eq!(devices(&decisions), [0, 0, 1, 1, 1, 1]);
        assert_eq!(decisions.left, [(JobId(13), Reason::NoRoom)]);
    }

    #[test]
    fn tasks_with_several_devices_or_none_go_where_there_is_room() {
        let node = NodeSpec::new("a", 8000, 1000).with_devices(2, DeviceSpec::gpu("P100", 100));
        let cluster = ClusterBuilder::new().node(node).build().unwrap();
        let state = ClusterState::new(Arc::new(cluster), Arc::new(Profiles::unknown()));
        let two = Job::new(JobId(0), "two", Task::new(100, 1).with_gpus(2));
        let none = Job::new(JobId(1), "none", Task::new(100, 1));
        assert_eq!(decide("cbp-pp", &state, vec![two, none]).placed.len(), 2);
    }
}
