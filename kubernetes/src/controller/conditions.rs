//! What a claim's status says of its lease.

use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::claim::results;
use crate::names::{DRIVER, GRANTED, REFUSED};

/// The longest message of a condition that Kubernetes takes, in characters; ours are kept far below it.
const LONGEST_MESSAGE: usize = 1024;

/// How a claim's lease stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Standing {
    granted: bool,
    refused: bool,
    reason: &'static str,
    message: String,
    lease: Option<String>,
}

impl Standing {
    pub(super) fn granted(lease: String, message: String) -> Self {
        Self { granted: true, refused: false, reason: "Granted", message, lease: Some(lease) }
    }

    pub(super) fn waiting(reason: &'static str, message: String) -> Self {
        Self { granted: false, refused: false, reason, message, lease: None }
    }

    pub(super) fn refused(reason: &'static str, message: String) -> Self {
        Self { granted: false, refused: true, reason, message, lease: None }
    }
}

/// Whether the claim's status says that its lease was granted.
pub(super) fn says_granted(claim: &ResourceClaim) -> bool {
    let mut devices = claim.status.iter().flat_map(|status| status.devices.iter().flatten());
    devices.any(|device| {
        let granted = |condition: &Condition| condition.type_ == GRANTED && condition.status == "True";
        device.driver == DRIVER && device.conditions.iter().flatten().any(granted)
    })
}

/// Writes how the lease stands into the claim's status, unless it says so already.
///
/// # Errors
/// What the API server answers.
pub(super) async fn write(
    api: &Api<ResourceClaim>,
    claim: &ResourceClaim,
    standing: &Standing,
) -> Result<(), kube::Error> {
    let now = Time(Timestamp::now());
    let old: Vec<&AllocatedDeviceStatus> = claim
        .status
        .iter()
        .flat_map(|status| status.devices.iter().flatten())
        .filter(|d| d.driver == DRIVER)
        .collect();
    let mut changed = false;
    let mut devices = Vec::new();
    for result in results(claim) {
        let known = old.iter().find(|known| is_of(known, result));
        let before =
            |kind: &str| known?.conditions.iter().flatten().find(|condition| condition.type_ == kind);
        let mut conditions = Vec::new();
        for (kind, truth) in [(GRANTED, standing.granted), (REFUSED, standing.refused)] {
            let new = condition(kind, truth, standing, before(kind), &now);
            changed |= before(kind) != Some(&new);
            conditions.push(new);
        }
        let data = standing.lease.as_ref().map(|lease| json!({"lease": lease}));
        changed |= known.and_then(|known| known.data.as_ref()).map(|data| &data.0) != data.as_ref();
        devices.push(entry(result, &conditions, data));
    }
    if !changed {
        return Ok(());
    }
    let patch = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": claim.name_any(), "namespace": claim.namespace(), "uid": claim.uid()},
        "status": {"devices": devices},
    });
    // Only these entries are this driver's: what others write meanwhile stays.
    let parameters = PatchParams::apply(DRIVER).force();
    api.patch_status(&claim.name_any(), &parameters, &Patch::Apply(&patch)).await.map(|_| ())
}

fn is_of(known: &AllocatedDeviceStatus, result: &DeviceRequestAllocationResult) -> bool {
    known.device == result.device && known.pool == result.pool && known.share_id == result.share_id
}

fn condition(
    kind: &str,
    truth: bool,
    standing: &Standing,
    before: Option<&Condition>,
    now: &Time,
) -> Condition {
    let status = if truth { "True" } else { "False" };
    let since =
        before.filter(|before| before.status == status).map_or(now, |before| &before.last_transition_time);
    Condition {
        type_: kind.into(),
        status: status.into(),
        reason: standing.reason.into(),
        message: standing.message.chars().take(LONGEST_MESSAGE).collect(),
        last_transition_time: since.clone(),
        observed_generation: None,
    }
}

fn entry(result: &DeviceRequestAllocationResult, conditions: &[Condition], data: Option<Value>) -> Value {
    let mut entry = json!({
        "driver": result.driver, "pool": result.pool, "device": result.device, "conditions": conditions,
    });
    if let Some(share) = &result.share_id {
        entry["shareID"] = json!(share);
    }
    if let Some(data) = data {
        entry["data"] = data;
    }
    entry
}
