//! Leases of containers that run are renewed, those of others given back.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rgpu_control::api::LeaseState;
use rgpu_control::unix_time;
use rgpu_kubelet_api::pod_resources::ListPodResourcesRequest;
use rgpu_kubelet_api::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use tonic::transport::Endpoint;

use super::service::KEY;
use crate::leases::{Asked, Leases, renewal};
use crate::names::RESOURCE;
use crate::store::{Prepared, Store};

/// How often the kubelet is asked who has what.
const TICK: Duration = Duration::from_secs(1);
/// After a failure.
const AGAIN: Duration = Duration::from_secs(2);
/// How long an answer of the kubelet may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Renews and gives back, for ever.
pub(super) async fn keep(leases: Leases, store: Store, pod_resources: PathBuf, grace: Duration) {
    let mut due: HashMap<String, Instant> = HashMap::new();
    let mut said = false;
    loop {
        let mine: Vec<Prepared> = store.all().into_iter().filter(|one| one.key.starts_with(KEY)).collect();
        due.retain(|id, _| mine.iter().any(|one| one.id == *id));
        let used = match mine.is_empty() {
            true => Ok(HashSet::new()),
            false => in_use(&pod_resources).await,
        };
        match &used {
            Err(error) if !said => {
                tracing::warn!(
                    "the kubelet does not say who has what: {error:#}; nothing is given back until it does"
                );
                said = true;
            }
            other => said &= other.is_err(),
        }
        for one in mine {
            let young = unix_time() < one.since.saturating_add(grace.as_secs());
            let gone =
                |used: &HashSet<String>| !one.devices.iter().any(|device| used.contains(&device.device));
            if !young && used.as_ref().is_ok_and(gone) {
                match leases.release(one.lease).await {
                    Ok(()) => tracing::info!(
                        "no pod has {} any more: the lease {} is given back",
                        one.id,
                        one.lease
                    ),
                    Err(error) => tracing::warn!("the lease {} is not renewed any more: {error}", one.lease),
                }
                if let Err(e) = store.lock().and_then(|locked| locked.remove(&one.id)) {
                    tracing::error!("{} is not removed: {e}", one.id);
                }
                continue;
            }
            if due.get(&one.id).is_none_or(|due| *due <= Instant::now()) {
                let next = renew(&leases, &store, &one).await;
                due.insert(one.id, Instant::now() + next);
            }
        }
        tokio::time::sleep(TICK).await;
    }
}

/// The devices that pods have.
async fn in_use(socket: &Path) -> anyhow::Result<HashSet<String>> {
    let ask = async {
        let channel = Endpoint::try_from(format!("unix://{}", socket.display()))?.connect().await?;
        let answer = PodResourcesListerClient::new(channel).list(ListPodResourcesRequest {}).await?;
        anyhow::Ok(answer.into_inner())
    };
    let answer = tokio::time::timeout(PATIENCE, ask).await??;
    let containers = answer.pod_resources.into_iter().flat_map(|pod| pod.containers);
    let devices = containers.flat_map(|container| container.devices);
    Ok(devices
        .filter(|devices| devices.resource_name == RESOURCE)
        .flat_map(|devices| devices.device_ids)
        .collect())
}

/// Renews a lease and its ticket; says when again.
async fn renew(leases: &Leases, store: &Store, one: &Prepared) -> Duration {
    let lease = match leases.renew(one.lease).await {
        Some(Asked::Has(lease)) if lease.state == LeaseState::Active => lease,
        // The container's programs get errors; nobody can be told but by them.
        None => return Duration::from_secs(60),
        _ => return AGAIN,
    };
    let Some(ticket) = leases.ticket(&lease, &one.key) else { return AGAIN };
    match store.lock().and_then(|locked| locked.renew(one, &ticket)) {
        Ok(()) => renewal(&lease),
        Err(e) => {
            tracing::error!("the ticket of {} is not written: {e}", one.id);
            AGAIN
        }
    }
}
