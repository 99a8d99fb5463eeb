//! What a ResourceClaim that is allocated to this driver asks for.
//!
//! A program holds one lease, so all devices of a claim are of one kind and size. All that follows from a claim, the lease's key
//! above all, is made of the claim alone: the controller and the plugins of all nodes come to the same without speaking to
//! each other, whatever was restarted.

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequestAllocationResult, ResourceClaim};
use kube::ResourceExt;

use crate::names::{DRIVER, MEMORY, POOL, SHARE, kind};
use crate::parameters::Parameters;
use crate::quantity::milli;

/// What a claim wants of the broker.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The claim's UID.
    pub uid: String,
    /// `NAMESPACE/NAME`.
    pub claim: String,
    /// The claim's namespace, on behalf of which an engine's token asks.
    pub namespace: String,
    /// The devices of the pool that it was allocated, one for each GPU.
    pub devices: Vec<Allocated>,
    /// Bytes of memory of each; 0 is as much as goes with the share.
    pub memory: u64,
    /// Thousandths of each device's time, from 1 to 1000.
    pub share_milli: u16,
    /// The node where its pod runs, where the allocation says so.
    pub node: Option<String>,
    /// What the claim and its class say besides.
    pub parameters: Parameters,
    /// Names this allocation of the claim towards the broker: of two requests with it, the second gets the lease of the first.
    pub key: String,
}

/// A device that was allocated.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Allocated {
    /// The claim's request that it is for.
    pub request: String,
    /// The device's name in the pool.
    pub device: String,
    /// Which of the shares of the device it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
}

/// The results of an allocation that are this driver's.
pub fn results(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let devices = allocation(claim).and_then(|allocation| allocation.devices.as_ref());
    let results = devices.and_then(|devices| devices.results.as_ref()).into_iter().flatten();
    results.filter(|result| result.driver == DRIVER)
}

fn allocation(claim: &ResourceClaim) -> Option<&AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

/// Whether some pod may use the claim.
pub fn is_reserved(claim: &ResourceClaim) -> bool {
    let status = claim.status.as_ref();
    status.and_then(|status| status.reserved_for.as_ref()).is_some_and(|list| !list.is_empty())
}

/// Whether the claim is being deleted and nobody uses it any more.
pub fn is_over(claim: &ResourceClaim) -> bool {
    claim.metadata.deletion_timestamp.is_some() && !is_reserved(claim)
}

/// What an allocated claim wants; `None` where it has nothing of this driver's.
///
/// # Errors
/// It wants something that no lease can be, in words for whoever wrote the claim.
pub fn wanted(claim: &ResourceClaim) -> Option<Result<Wanted, String>> {
    let results: Vec<_> = results(claim).collect();
    let allocation = allocation(claim)?;
    (!results.is_empty()).then(|| read(claim, allocation, &results))
}

fn read(
    claim: &ResourceClaim,
    allocation: &AllocationResult,
    results: &[&DeviceRequestAllocationResult],
) -> Result<Wanted, String> {
    let uid = claim.uid().unwrap_or_default();
    if let Some(other) = results.iter().find(|result| result.pool != POOL) {
        return Err(format!(
            "The claim has a device of the pool {:?}; this driver's pool is {POOL:?}",
            other.pool
        ));
    }
    if results.iter().any(|result| result.admin_access == Some(true)) {
        return Err(
            "The claim asks for access as an administrator (adminAccess), which leases do not give".into()
        );
    }
    let sizes = results.iter().map(|result| size(result)).collect::<Result<Vec<_>, _>>()?;
    let (memory, share_milli) = sizes[0];
    if results.iter().any(|result| kind(&result.device) != kind(&results[0].device))
        || sizes.iter().any(|size| *size != sizes[0])
    {
        let text = "The claim's devices differ in model, memory or share. A program has one lease, whose GPUs are alike: ask for all of them \
                    in one request with `count`, and use one claim for each container that wants others";
        return Err(text.into());
    }
    let node = allocation.node_selector.as_ref().and_then(node_of);
    let requests: Vec<&str> = results.iter().map(|result| main_request(&result.request)).collect();
    let configurations =
        allocation.devices.as_ref().and_then(|devices| devices.config.as_ref()).into_iter().flatten();
    let applies = |names: &Option<Vec<String>>| {
        names.as_ref().is_none_or(|names| {
            names.is_empty() || names.iter().any(|name| requests.contains(&main_request(name)))
        })
    };
    let mut parameters = Parameters::default();
    for configuration in configurations.filter(|configuration| applies(&configuration.requests)) {
        let Some(opaque) = configuration.opaque.as_ref().filter(|opaque| opaque.driver == DRIVER) else {
            continue;
        };
        parameters = parameters.then(Parameters::read(&opaque.parameters.0)?);
    }
    let devices: Vec<Allocated> = results
        .iter()
        .map(|result| Allocated {
            request: result.request.clone(),
            device: result.device.clone(),
            share_id: result.share_id.clone(),
        })
        .collect();
    // What makes it this allocation and no other: a claim can be allocated anew.
    let when = allocation.allocation_timestamp.as_ref().map(|time| time.0.to_string());
    let said = serde_json::json!([devices, memory, share_milli, node, when]).to_string();
    let hash = blake3::hash(said.as_bytes()).to_hex();
    let namespace = claim.namespace().unwrap_or_default();
    let name = format!("{namespace}/{}", claim.name_any());
    let key = format!("kubernetes/{uid}/{}", &hash[..16]);
    Ok(Wanted { uid, claim: name, namespace, devices, memory, share_milli, node, parameters, key })
}

/// Memory and thousandths of a device's time.
fn size(result: &DeviceRequestAllocationResult) -> Result<(u64, u16), String> {
    let consumed = |name: &str| {
        let map = result.consumed_capacity.as_ref()?;
        map.get(name).or_else(|| map.get(&format!("{DRIVER}/{name}")))
    };
    let read = |name: &str| match consumed(name) {
        None => Ok(None),
        Some(quantity) => {
            let text =
                || format!("The allocation's {name} {:?} is no quantity that can be leased", quantity.0);
            milli(quantity).ok_or_else(text).map(Some)
        }
    };
    let memory = read(MEMORY)?.map_or(0, |milli| milli.div_ceil(1000));
    let memory = u64::try_from(memory)
        .map_err(|_| "The allocation's memory is more than any device has".to_owned())?;
    match read(SHARE)?.unwrap_or(1000) {
        share @ 1..=1000 => Ok((memory, share as u16)),
        _ => {
            Err("The allocation's share is not between 1m (a thousandth of a device) and 1 (all of it)"
                .into())
        }
    }
}

/// The name of a request, without that of a subrequest.
fn main_request(name: &str) -> &str {
    name.split_once('/').map_or(name, |(main, _)| main)
}

/// The one node that a selector allows.
fn node_of(selector: &NodeSelector) -> Option<String> {
    let [term] = selector.node_selector_terms.as_slice() else { return None };
    let fields = term.match_fields.iter().flatten().filter(|field| field.key == "metadata.name");
    let labels =
        term.match_expressions.iter().flatten().filter(|label| label.key == "kubernetes.io/hostname");
    fields.chain(labels).find_map(|one| match (one.operator.as_str(), one.values.as_deref()) {
        ("In", Some([node])) => Some(node.clone()),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
