//! Nodes and leases as the placement library has them.

use std::collections::HashMap;
use std::sync::Arc;

use rgpu_control::api::{Basis, LeaseRequest};
use rgpu_placement::learning::{Estimate, Uncertain, estimate};
use rgpu_placement::part::stretch;
use rgpu_placement::{
    CapabilitySet, Cluster, ClusterBuilder, Device, DeviceKind, DeviceRequest, DeviceSpec, Job, JobId,
    ModelSet, NodeId, NodeSpec, Profile, ProfileId, Profiles, Task, WHOLE,
};

use super::learnt::{Learnt, Program};
use super::{Settings, nvmes};
use crate::store::NodeRecord;

/// The placement counts memory in these.
pub(crate) const MIB: u64 = 1 << 20;

/// What a node offers whose server encrypts connections, as explanations call it.
const ENCRYPTION: &str = "encryption";

/// A node, with its devices or without.
pub(crate) fn node_spec(settings: &Settings, node: &NodeRecord, with_devices: bool) -> NodeSpec {
    let about = &node.registration;
    // The broker gives devices, not cores or memory: programs are where they are.
    let mut spec = NodeSpec::new(about.name.clone(), 0, 0);
    spec.nic_mbps = settings.nic_mbps(about);
    let known = |name: &String| settings.switches.iter().any(|switch| switch.name == *name);
    spec.switch = about.switch.clone().filter(known);
    if about.tls {
        spec = spec.offering(ENCRYPTION);
    }
    super::processors::describe(&mut spec, about.controls.as_ref());
    if with_devices {
        spec.devices = about
            .devices
            .iter()
            .map(|device| DeviceSpec {
                kind: DeviceKind::Gpu,
                model: device.model.clone(),
                memory_mib: device.memory / MIB,
                bus_mbps: device.bus_mbps,
                partitionable: device.partitionable,
                alone: device.alone,
                numa: 0,
            })
            // The devices of leases are numbered without these.
            .chain(about.nvmes.iter().map(nvmes::spec))
            .collect();
    }
    spec
}

/// A machine where programs run and that offers nothing. The placement's names never look like nodes'.
pub(crate) fn client_spec(settings: &Settings, name: String) -> NodeSpec {
    NodeSpec::new(name, 0, 0).with_nic(settings.default_nic_mbps)
}

/// All of these nodes.
pub(crate) fn cluster(
    settings: &Settings,
    nodes: impl Iterator<Item = NodeSpec>,
) -> Result<Arc<Cluster>, rgpu_placement::Error> {
    let mut builder = ClusterBuilder::new().capability(ENCRYPTION).nodes(nodes);
    for switch in &settings.switches {
        builder = builder.switch(switch.clone());
    }
    builder.build().map(Arc::new)
}

/// How programs behave: the profiles of a configuration, and those that were learnt; and what traffic each one's remote devices make.
/// Clones are the same table.
#[derive(Clone)]
pub(crate) struct ProfileTable {
    pub profiles: Arc<Profiles>,
    traffic: Arc<Vec<u64>>,
    learnt: Arc<HashMap<Program, LearntIds>>,
    default: ProfileId,
}

/// The profiles that were learnt of a program.
struct LearntIds {
    /// What they were made of.
    estimate: Estimate,
    by_input: HashMap<u64, ProfileId>,
    /// For inputs that it never had.
    other: ProfileId,
}

impl ProfileTable {
    pub(super) fn new(settings: &Settings, learnt: &Learnt) -> Result<Self, rgpu_placement::Error> {
        let profile = |name: String, local_s: f64, of: &Estimate| Profile {
            remote_s: local_s * of.slowdown.mean,
            sensitivity: of.sensitivity.mean,
            ..Profile::new(name, local_s)
        };
        // Programs of which nothing is known are as most are.
        let mut all = vec![profile("\u{0}unknown".into(), 1.0, &estimate(&[]))];
        let mut traffic = vec![0];
        for written in &settings.profiles {
            all.push(written.profile.clone());
            traffic.push(written.traffic_mbps);
        }
        let mut ids = HashMap::new();
        for (program, known) in learnt.iter() {
            let estimate = known.estimate();
            let name = |what: &str| format!("\u{0}{}\u{0}{}\u{0}{what}", program.0, program.1);
            let mut add = |name: String, local_s: f64| {
                all.push(profile(name, local_s, estimate));
                // What it sends is measured while it runs. Nothing is reserved for it: an estimate must keep nobody waiting for a
                // link that would have carried what there is.
                traffic.push(0);
                ProfileId(all.len() as u32 - 1)
            };
            let known = estimate.local_s.values().map(|time| time.mean.ln()).sum::<f64>();
            let typical = (known / estimate.local_s.len().max(1) as f64).exp();
            let other = add(name("other"), typical);
            let by_input = estimate.local_s.iter();
            let by_input = by_input.map(|(input, time)| (*input, add(name(&input.to_string()), time.mean)));
            let by_input = by_input.collect();
            ids.insert(program.clone(), LearntIds { estimate: estimate.clone(), by_input, other });
        }
        let profiles = Profiles::new(all)?;
        let default = profiles.find("default").unwrap_or(ProfileId(0));
        let (profiles, traffic, learnt) = (Arc::new(profiles), Arc::new(traffic), Arc::new(ids));
        Ok(Self { profiles, traffic, learnt, default })
    }

    /// What the profiles of a program were made of, if it had been learnt by then.
    pub(super) fn taught(&self, program: &Program) -> Option<&Estimate> {
        self.learnt.get(program).map(|ids| &ids.estimate)
    }

    /// The profiles that were learnt of a program.
    pub(super) fn of_program(&self, program: &Program) -> impl Iterator<Item = ProfileId> {
        let ids = self.learnt.get(program);
        ids.into_iter().flat_map(|ids| ids.by_input.values().copied().chain([ids.other]))
    }

    /// Whether there are profiles of other programs than these.
    pub(super) fn has_others(&self, learnt: &Learnt) -> bool {
        self.learnt.keys().any(|program| !learnt.has(program))
    }

    /// The profile of a tenant's request: the one that it names, if there is one of that name; else the one that somebody has
    /// written for its program, or that was learnt of it, or the default.
    pub(super) fn find(&self, tenant: &str, request: &LeaseRequest) -> Option<ProfileId> {
        if let Some(name) = &request.profile {
            return self.profiles.find(name);
        }
        let Some(program) = &request.program else { return Some(self.default) };
        let written = self.profiles.find(program);
        let learnt = || {
            let ids = self.learnt.get(&(tenant.to_owned(), program.clone()))?;
            Some(*ids.by_input.get(&request.input.unwrap_or(0)).unwrap_or(&ids.other))
        };
        Some(written.or_else(learnt).unwrap_or(self.default))
    }

    /// Which of the configuration's profiles a request's is, by its number there.
    pub(super) fn written(&self, tenant: &str, request: &LeaseRequest) -> Option<usize> {
        // The first is of programs of which nothing is known, and what was learnt comes after those that were written.
        self.find(tenant, request).and_then(|id| id.index().checked_sub(1))
    }

    /// What each remote device of a request puts on the network.
    pub(super) fn traffic_mbps(&self, tenant: &str, request: &LeaseRequest) -> u64 {
        let profile = self.find(tenant, request).unwrap_or(self.default);
        request.traffic_mbps.unwrap_or_else(|| self.traffic[profile.index()]).min(1 << 40)
    }

    /// The job of a tenant's request, whose share is decided, with that task.
    pub(super) fn job(
        &self,
        tenant: &str,
        request: &LeaseRequest,
        id: JobId,
        name: String,
        submit_s: f64,
        task: Task,
    ) -> Job {
        // A profile that has gone from the configuration is as good as none.
        let profile = self.find(tenant, request).unwrap_or(self.default);
        let stretch = if is_timed(request) { self.stretch(tenant, request) } else { 1.0 };
        Job {
            submit_s,
            profile,
            scale: self.scale(profile, request) * stretch,
            goal_s: request.goal_s,
            deadline_s: request.deadline_s,
            importance: request.importance.unwrap_or(1.0),
            ..Job::new(id, name, task)
        }
    }
}

/// Whether a request says something of its program's time, so that the time of its job is that with its share of devices.
pub(super) fn is_timed(request: &LeaseRequest) -> bool {
    request.deadline_s.is_some() || request.estimate_s.is_some()
}

/// What is known of how long a request's program runs, besides its profile.
pub(crate) struct RunTime {
    /// Where that comes from.
    pub basis: Basis,
    /// The standard deviations of what is known of a local run's time and of the slowdown of a remote one, as parts of them.
    local: f64,
    slowdown: f64,
    /// How far the inputs differ, where this one was never seen, likewise.
    inputs: f64,
    /// The share of a whole device's time that it uses.
    busy: f64,
}

impl RunTime {
    /// How far two runs of a program differ that do the same, as a part of their time: what nothing else is known of.
    const NOISE: f64 = 0.1;
    /// How far runs with different inputs differ at least.
    const INPUTS: f64 = 0.5;

    /// The standard deviation of a run's time, as a part of it.
    pub(super) fn deviation(&self, is_remote: bool) -> f64 {
        // Who was only seen remote has a time that is known well, but not what the network's part in it is: both errors are the
        // same then, and cancel. Who was only seen local has a slowdown that nobody knows.
        let known = if is_remote { (self.slowdown - self.local).abs() } else { self.local };
        Self::NOISE.hypot(known).hypot(self.inputs)
    }

    /// By which factor a run takes longer that is held to a share (0 to 1) of each device.
    pub(super) fn stretch(&self, share: f64) -> f64 {
        stretch(self.busy, share)
    }
}

impl ProfileTable {
    /// What is known of how long a tenant's request runs; `None` where that is nothing: a typical program's profile says how it
    /// depends on the network, not how long it takes.
    pub(super) fn run_time(&self, tenant: &str, request: &LeaseRequest) -> Option<RunTime> {
        let said = |basis| RunTime { basis, local: 0.0, slowdown: 0.0, inputs: 0.0, busy: 0.0 };
        let written = |_| said(Basis::Profile);
        if request.estimate_s.is_some() {
            return Some(said(Basis::Estimate));
        }
        if let Some(name) = &request.profile {
            return self.profiles.find(name).map(written);
        }
        let program = request.program.as_ref()?;
        if let Some(profile) = self.profiles.find(program) {
            return Some(written(profile));
        }
        let estimate = &self.learnt.get(&(tenant.to_owned(), program.clone()))?.estimate;
        let part = |of: Uncertain| of.deviation / of.mean.max(f64::MIN_POSITIVE);
        let count = estimate.local_s.len() as f64;
        let over_inputs = |of: fn(&Uncertain) -> f64| estimate.local_s.values().map(of).sum::<f64>() / count;
        let (basis, local, inputs) = match estimate.local_s.get(&request.input.unwrap_or(0)) {
            Some(time) => (Basis::Learnt, part(*time), 0.0),
            None if estimate.local_s.is_empty() => return None,
            None => {
                let mean = over_inputs(|time| time.mean);
                let square = over_inputs(|time| time.mean * time.mean) - mean * mean;
                let inputs = (square.max(0.0).sqrt() / mean).max(RunTime::INPUTS);
                (Basis::Similar, over_inputs(|time| time.deviation / time.mean), inputs)
            }
        };
        let busy = estimate.share.map_or(0.0, |share| share.mean);
        Some(RunTime { basis, local, slowdown: part(estimate.slowdown), inputs, busy })
    }
}

/// The models that will do for a request, and what nodes must offer for it.
fn limits(cluster: &Cluster, request: &LeaseRequest) -> (ModelSet, CapabilitySet) {
    let models = match request.models.as_slice() {
        [] => ModelSet::ANY,
        names => {
            let known = names.iter().filter_map(|model| cluster.model(model));
            known.fold(ModelSet::EMPTY, ModelSet::with)
        }
    };
    let needs = match request.encrypt {
        true => cluster.capability(ENCRYPTION).unwrap_or_default(),
        false => CapabilitySet::NONE,
    };
    (models, needs)
}

/// The memory of the smallest GPU that will do for a request, in MiB; 0 where there is none.
pub(super) fn smallest_mib(cluster: &Cluster, request: &LeaseRequest) -> u64 {
    let (models, needs) = limits(cluster, request);
    let devices = cluster.sorts_of_devices();
    let suits = |device: &&Device| {
        device.kind == DeviceKind::Gpu && models.contains(device.model) && device.offers.has_all(needs)
    };
    devices.filter(suits).map(|device| device.memory_mib).min().unwrap_or(0)
}

/// What a request, whose share is decided, wants of a cluster.
pub(crate) fn device_request(cluster: &Cluster, request: &LeaseRequest, traffic_mbps: u64) -> DeviceRequest {
    let (models, needs) = limits(cluster, request);
    let memory_mib = match (request.memory, request.share_milli) {
        // All memory of a whole device: whoever has all its time has that, too.
        (0, WHOLE) => 0,
        // The same part of the memory: of the smallest device that will do, at least.
        (0, milli) => smallest_mib(cluster, request) * u64::from(milli) / u64::from(WHOLE),
        (memory, _) => memory.div_ceil(MIB),
    };
    // A node that has gone since is none that anybody has.
    let node = request.on_node.as_ref().map(|name| cluster.find(name).unwrap_or(NodeId(u32::MAX)));
    DeviceRequest {
        kind: DeviceKind::Gpu,
        count: request.gpus,
        milli: request.share_milli,
        memory_mib,
        models,
        needs,
        node,
        traffic_mbps,
    }
}

/// The task of a waiting request whose program runs in `home`.
///
/// Policies that don't give devices of other nodes have to find a node for the task as a whole. They choose where the devices are,
/// and the program uses them from where it is.
pub(crate) fn task(
    wishes: impl IntoIterator<Item = DeviceRequest>,
    home: NodeId,
    disaggregates: bool,
) -> Task {
    let wishes = wishes.into_iter().filter(|wish| wish.count > 0);
    let task = wishes.fold(Task::default(), Task::with);
    match disaggregates {
        true => Task { only: vec![home], ..task },
        false => Task { preferred: vec![home], ..task },
    }
}

/// The numbers of a cluster's nodes, by name.
pub(crate) fn numbers(cluster: &Cluster) -> HashMap<String, NodeId> {
    cluster.nodes().iter().zip(0..).map(|(node, i)| (node.name.clone(), NodeId(i))).collect()
}
