//! NVMe devices: what nodes offer, what leases get of it, and whether it reached their programs.
//!
//! A lease gets whole devices. The node that offers one attaches it when its orders name the lease, and says in its heartbeats what
//! came of that. Where it cannot, the lease ends with the node's words. While a lease is ending, its devices are granted to nobody
//! until the node has said that nothing of the lease is left, which it does once they are detached.

use rgpu_control::LeaseId;
use rgpu_control::api::*;
use rgpu_placement::{
    CapabilitySet, Cluster, ClusterState, DeviceId, DeviceKind, DeviceRequest, DeviceSpec, Grant, ModelSet,
    NodeId, WHOLE,
};

use super::core::Core;
use super::leases::{Found, NotGranted};
use super::live::Entry;
use super::model::MIB;
use super::problem;
use crate::store::LeaseRecord;

/// The most NVMe devices of a lease, and of a node.
const MOST: usize = 64;
/// The longest reason of a node that is kept, in characters.
const REASON: usize = 300;

/// Refuses requests for NVMe devices that are nonsense.
pub(super) fn check_request(request: &LeaseRequest) -> Result<(), Problem> {
    let bad = |text: String| Err(problem(ErrorCode::BadRequest, text));
    if usize::from(request.nvmes) > MOST {
        return bad(format!("nvmes is {}: a lease has {MOST} NVMe devices at most", request.nvmes));
    }
    if request.nvmes == 0 && (request.nvme_capacity > 0 || request.nvme_bandwidth_mbps > 0) {
        return bad("nvme_capacity and nvme_bandwidth_mbps are of each of the nvmes, and these are 0".into());
    }
    if request.nvme_capacity > 1 << 60 || request.nvme_bandwidth_mbps > 1 << 40 {
        return bad(format!(
            "nvme_capacity is {} bytes and nvme_bandwidth_mbps {}: no device has that much",
            request.nvme_capacity, request.nvme_bandwidth_mbps
        ));
    }
    Ok(())
}

/// Refuses descriptions of a node's NVMe devices that are nonsense.
pub(super) fn check_registration(nvmes: &[NvmeReport]) -> Result<(), Problem> {
    let bad = |text: String| Err(problem(ErrorCode::BadRequest, text));
    if nvmes.len() > MOST {
        return bad(format!("{} NVMe devices in one node: {MOST} at most", nvmes.len()));
    }
    for (i, nvme) in nvmes.iter().enumerate() {
        let name = &nvme.name;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
        if name.is_empty() || name.len() > 64 || name.starts_with('-') || !name.chars().all(plain) {
            return bad(format!(
                "{name:?} is no NVMe device's name: up to 64 letters, digits, and - _ . : /"
            ));
        }
        if nvmes[..i].iter().any(|other| other.name == *name) {
            return bad(format!("two NVMe devices are called {name}"));
        }
        if nvme.capacity < MIB || nvme.capacity > 1 << 60 || nvme.bandwidth_mbps > 1 << 40 {
            return bad(format!(
                "the NVMe device {name} has {} bytes and {} Mbit/s",
                nvme.capacity, nvme.bandwidth_mbps
            ));
        }
    }
    Ok(())
}

/// The name of a model that stands for a bandwidth, by which requests can insist on it. No GPU is called so.
pub(super) fn model(nvme: &NvmeReport) -> String {
    format!("\u{0}nvme {}", nvme.bandwidth_mbps)
}

/// A device as the placement has it.
pub(super) fn spec(nvme: &NvmeReport) -> DeviceSpec {
    DeviceSpec {
        kind: DeviceKind::Nvme,
        model: model(nvme),
        memory_mib: nvme.capacity / MIB,
        bus_mbps: nvme.bandwidth_mbps,
        partitionable: false,
        alone: false,
        numa: 0,
    }
}

/// What a request wants of a cluster's NVMe devices. The bandwidth that it asks for counts as traffic where a device is remote.
pub(super) fn device_request(cluster: &Cluster, request: &LeaseRequest) -> Option<DeviceRequest> {
    let devices = cluster.devices().iter().filter(|device| device.kind == DeviceKind::Nvme);
    let fast = devices.filter(|device| device.bus_mbps >= request.nvme_bandwidth_mbps);
    (request.nvmes > 0).then(|| DeviceRequest {
        kind: DeviceKind::Nvme,
        count: request.nvmes,
        milli: WHOLE,
        memory_mib: request.nvme_capacity.div_ceil(MIB),
        models: fast.fold(ModelSet::EMPTY, |models, device| models.with(device.model)),
        needs: CapabilitySet::NONE,
        node: None,
        traffic_mbps: request.nvme_bandwidth_mbps,
    })
}

/// A node's devices of a kind, in their order.
pub(super) fn of_kind(
    cluster: &Cluster,
    node: NodeId,
    kind: DeviceKind,
) -> impl Iterator<Item = DeviceId> + use<'_> {
    cluster.node(node).devices().filter(move |&device| cluster.device(device).kind == kind)
}

/// What a lease keeps others from having.
pub(super) fn held(lease: &LeaseRecord) -> impl Iterator<Item = &LeasedNvme> {
    lease.nvmes.iter().filter(|nvme| lease.holds(&nvme.node))
}

/// The requests and grants of the devices that a lease has, for the placement's model; the first grant answers request `first`.
pub(super) fn grants(
    state: &ClusterState,
    record: &LeaseRecord,
    home: NodeId,
    place: impl Fn(&LeasedNvme) -> Option<DeviceId>,
    first: usize,
) -> Vec<(DeviceRequest, Grant)> {
    let mut grants: Vec<(DeviceRequest, Grant)> = Vec::new();
    for device in held(record).filter_map(place) {
        let spec = state.cluster().device(device);
        let request = DeviceRequest {
            kind: DeviceKind::Nvme,
            count: 1,
            milli: WHOLE,
            memory_mib: spec.memory_mib,
            models: ModelSet::ANY,
            needs: CapabilitySet::NONE,
            node: None,
            traffic_mbps: record.request.nvme_bandwidth_mbps,
        };
        let number = (first + grants.len()) as u16;
        let grant = state.usage().grant(state.cluster(), home, device, &request, number);
        grants.push((request, grant));
    }
    grants
}

/// What a node is to attach for a lease.
pub(super) fn orders(record: &LeaseRecord, node: &str) -> Vec<NvmeOrder> {
    let own = record.nvmes.iter().filter(|nvme| nvme.node == node);
    own.map(|nvme| NvmeOrder { device: nvme.device.clone(), host: record.home.clone() }).collect()
}

/// Whether a node still offers what a lease has of it.
pub(super) fn is_offered(nvmes: &[NvmeReport], leased: &LeasedNvme) -> bool {
    let same = |nvme: &NvmeReport| nvme.name == leased.device && nvme.capacity == leased.capacity;
    nvmes.iter().any(same)
}

impl Core {
    /// The devices that a round found for a lease, if they all are (still) free.
    pub(super) fn nvme_grants(
        &self,
        request: &LeaseRequest,
        found: &[Found],
    ) -> Result<Vec<LeasedNvme>, NotGranted> {
        if found.len() != usize::from(request.nvmes) {
            return Err(NotGranted::Count { found: found.len(), wanted: request.nvmes });
        }
        let mut granted: Vec<LeasedNvme> = Vec::with_capacity(found.len());
        for Found { node, device, .. } in found {
            let entry = self.nodes.get(node).filter(|entry| entry.available());
            let entry = entry.ok_or_else(|| NotGranted::NodeGone(node.clone()))?;
            let report = entry.record.registration.nvmes.get(*device as usize);
            let report =
                report.ok_or_else(|| NotGranted::DeviceGone { node: node.clone(), device: *device })?.clone();
            let same = |other: &LeasedNvme| other.node == *node && other.device == report.name;
            let others = entry.live.leases.iter().filter_map(|id| self.leases.get(id));
            let taken = others.flat_map(|other| held(&other.record)).chain(&granted).any(same);
            if taken || report.capacity < request.nvme_capacity {
                return Err(NotGranted::NvmeTaken { node: node.clone(), device: report.name });
            }
            let NvmeReport { name, capacity, bandwidth_mbps } = report;
            granted.push(LeasedNvme {
                node: node.clone(),
                device: name,
                capacity,
                bandwidth_mbps,
                path: None,
            });
        }
        Ok(granted)
    }

    /// Takes note of what a node says of the devices that it was to attach. What could not be attached comes back.
    pub(super) fn hear_nvmes(&mut self, node: &str, states: Vec<NvmeState>) -> Vec<(LeaseId, String)> {
        let mut failed = Vec::new();
        for state in states {
            let Some(entry) = self.leases.get_mut(&state.lease) else { continue };
            let own = |nvme: &LeasedNvme| nvme.node == node && nvme.device == state.device;
            if entry.record.state != LeaseState::Active || !entry.record.nvmes.iter().any(own) {
                continue;
            }
            if let Some(why) = state.failure {
                let why: String = why.chars().take(REASON).collect();
                let text = format!("node {node} could not attach its NVMe device {}: {why}", state.device);
                failed.push((state.lease, text));
            } else if let Some(path) = state.path {
                let path: String = path.chars().take(REASON).collect();
                let place = (node.to_owned(), state.device);
                if entry.live.nvmes.insert(place, path.clone()).as_ref() != Some(&path) {
                    entry.live.changed.notify_waiters();
                }
            }
        }
        failed
    }
}

/// The devices of a lease, with where its program finds them.
pub(super) fn view(entry: &Entry) -> Vec<LeasedNvme> {
    let with_path = |nvme: &LeasedNvme| {
        let place = (nvme.node.clone(), nvme.device.clone());
        LeasedNvme { path: entry.live.nvmes.get(&place).cloned(), ..nvme.clone() }
    };
    entry.record.nvmes.iter().map(with_path).collect()
}
