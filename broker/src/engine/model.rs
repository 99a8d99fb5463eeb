//! Nodes and leases as the placement library has them.

use std::collections::HashMap;
use std::sync::Arc;

use rgpu_control::api::LeaseRequest;
use rgpu_placement::learning::{Estimate, estimate};
use rgpu_placement::{
    CapabilitySet, Cluster, ClusterBuilder, DeviceKind, DeviceRequest, DeviceSpec, Job, JobId, ModelSet,
    NodeId, NodeSpec, Profile, ProfileId, Profiles, Task, WHOLE,
};

use super::Settings;
use super::learnt::{Learnt, Program};
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

    /// What each remote device of a request puts on the network.
    pub(super) fn traffic_mbps(&self, tenant: &str, request: &LeaseRequest) -> u64 {
        let profile = self.find(tenant, request).unwrap_or(self.default);
        request.traffic_mbps.unwrap_or_else(|| self.traffic[profile.index()]).min(1 << 40)
    }

    /// The job of a tenant's request, without its task.
    pub(super) fn job(
        &self,
        tenant: &str,
        request: &LeaseRequest,
        id: JobId,
        name: String,
        submit_s: f64,
        task: Task,
    ) -> Job {
        Job {
            submit_s,
            // A profile that has gone from the configuration is as good as none.
            profile: self.find(tenant, request).unwrap_or(self.default),
            scale: request.scale.unwrap_or(1.0),
            goal_s: request.goal_s,
            deadline_s: None,
            importance: request.importance.unwrap_or(1.0),
            ..Job::new(id, name, task)
        }
    }
}

/// What a request wants of a cluster.
pub(crate) fn device_request(cluster: &Cluster, request: &LeaseRequest, traffic_mbps: u64) -> DeviceRequest {
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
    let memory_mib = match (request.memory, request.share_milli) {
        // All memory of a whole device: whoever has all its time has that, too.
        (0, WHOLE) => 0,
        // The same part of the memory: of the smallest device that will do, at least.
        (0, milli) => {
            let devices = cluster.devices().iter();
            let devices =
                devices.filter(|device| models.contains(device.model) && device.offers.has_all(needs));
            devices.map(|device| device.memory_mib * u64::from(milli) / u64::from(WHOLE)).min().unwrap_or(0)
        }
        (memory, _) => memory.div_ceil(MIB),
    };
    DeviceRequest {
        kind: DeviceKind::Gpu,
        count: request.gpus,
        milli: request.share_milli,
        memory_mib,
        models,
        needs,
        traffic_mbps,
    }
}

/// The task of a waiting request whose program runs in `home`.
///
/// Policies that don't give devices of other nodes have to find a node for the task as a whole. They choose where the devices are,
/// and the program uses them from where it is.
pub(crate) fn task(wish: DeviceRequest, home: NodeId, disaggregates: bool) -> Task {
    let task = Task::default().with(wish);
    match disaggregates {
        true => Task { only: vec![home], ..task },
        false => Task { preferred: vec![home], ..task },
    }
}

/// The numbers of a cluster's nodes, by name.
pub(crate) fn numbers(cluster: &Cluster) -> HashMap<String, NodeId> {
    cluster.nodes().iter().zip(0..).map(|(node, i)| (node.name.clone(), NodeId(i))).collect()
}
