//! Nodes and leases as the placement library has them.

use std::collections::HashMap;
use std::sync::Arc;

use rgpu_control::api::LeaseRequest;
use rgpu_placement::{
    CapabilitySet, Cluster, ClusterBuilder, DeviceKind, DeviceRequest, DeviceSpec, Job, JobId, ModelSet,
    NodeId, NodeSpec, Profile, ProfileId, Profiles, Task, WHOLE,
};

use super::Settings;
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
    spec.nic_mbps = if about.nic_mbps == 0 { settings.default_nic_mbps } else { about.nic_mbps };
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

/// The profiles of a configuration, and what traffic each one's remote devices make.
#[derive(Clone)]
pub(crate) struct ProfileTable {
    pub profiles: Arc<Profiles>,
    traffic: Vec<u64>,
    default: ProfileId,
}

impl ProfileTable {
    pub(super) fn new(settings: &Settings) -> Result<Self, rgpu_placement::Error> {
        // For programs of which nothing is known: neutral in every respect.
        let unknown = Profile::new("\u{0}unknown", 1.0);
        let all = std::iter::once(unknown).chain(settings.profiles.iter().map(|p| p.profile.clone()));
        let profiles = Profiles::new(all.collect())?;
        let default = profiles.find("default").unwrap_or(ProfileId(0));
        let traffic = std::iter::once(0).chain(settings.profiles.iter().map(|p| p.traffic_mbps)).collect();
        Ok(Self { profiles: Arc::new(profiles), traffic, default })
    }

    /// The profile that a request names, if there is one of that name.
    pub(super) fn find(&self, request: &LeaseRequest) -> Option<ProfileId> {
        match &request.profile {
            Some(name) => self.profiles.find(name),
            None => Some(self.default),
        }
    }

    /// What each remote device of a request puts on the network.
    pub(super) fn traffic_mbps(&self, request: &LeaseRequest) -> u64 {
        let profile = self.find(request).unwrap_or(self.default);
        request.traffic_mbps.unwrap_or_else(|| self.traffic[profile.index()]).min(1 << 40)
    }

    /// The job of a request, without its task.
    pub(super) fn job(
        &self,
        request: &LeaseRequest,
        id: JobId,
        name: String,
        submit_s: f64,
        task: Task,
    ) -> Job {
        Job {
            submit_s,
            // A profile that has gone from the configuration is as good as none.
            profile: self.find(request).unwrap_or(self.default),
            scale: request.scale.unwrap_or(1.0),
            goal_s: request.goal_s,
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
