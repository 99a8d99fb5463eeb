//! Preparing claims and taking that back.

use std::path::PathBuf;

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{Api, Client, ResourceExt};
use rgpu_control::api::{Lease, LeaseState};
use rgpu_control::{files, unix_time};

use crate::claim::{Wanted, is_over, is_reserved, wanted};
use crate::container::{Edits, cdi_file, write_cdi};
use crate::leases::{Asked, Leases};
use crate::names::is_plain;
use crate::store::{Prepared, Store};

/// How long one call waits for the grant of a lease; the kubelet calls again.
const WAIT_S: u32 = 5;

/// Prepares claims.
#[derive(Clone)]
pub(super) struct Preparer {
    pub(super) client: Client,
    pub(super) leases: Leases,
    pub(super) store: Store,
    /// The folder of the node with the library.
    pub(super) library: PathBuf,
    pub(super) cdi: PathBuf,
}

/// What the API server says of a claim.
pub(super) enum Found {
    /// It is allocated and in use.
    Good(Box<Wanted>),
    /// It is not to have a lease, and why.
    Bad(String),
    /// The API server cannot be asked, and why.
    Unknown(String),
}

impl Preparer {
    /// Prepares a claim. What was prepared already is so still, whatever has become of the API server and the broker.
    ///
    /// # Errors
    /// Why not, in words that the pod's events show.
    pub(super) async fn prepare(&self, namespace: &str, name: &str, uid: &str) -> Result<Prepared, String> {
        if !is_plain(uid) {
            return Err(format!("{uid:?} is no UID of a claim"));
        }
        if namespace.is_empty() || name.is_empty() {
            return Err("the claim has no namespace, or no name".into());
        }
        let known = self.store.get(uid);
        let found = self.find(namespace, name, uid).await;
        let wanted = match (found, &known) {
            (Found::Good(wanted), _) => wanted,
            (Found::Bad(why), _) => return Err(why),
            (Found::Unknown(_), Some(known)) => return self.describe(known).map(|()| known.clone()),
            (Found::Unknown(why), None) => return Err(why),
        };
        if let Some(known) = known.filter(|known| known.key == wanted.key) {
            return self.describe(&known).map(|()| known);
        }
        let lease = match self.leases.obtain(&wanted, WAIT_S).await {
            Asked::Has(lease) if lease.state == LeaseState::Active => lease,
            Asked::Has(lease) => {
                return Err(format!("the lease {} is {}: {}", lease.id, lease.state.name(), lease.reason));
            }
            Asked::Refused(problem) => {
                return Err(format!("the broker refuses the lease: {}", problem.message));
            }
            Asked::NotNow { message, .. } => return Err(message),
        };
        let prepared = Prepared {
            id: uid.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            key: wanted.key.clone(),
            lease: lease.id,
            devices: wanted.devices.clone(),
            since: unix_time(),
        };
        // The claim may have been deleted meanwhile, and its lease given back before this one was asked for.
        match self.find(namespace, name, uid).await {
            Found::Good(now) if now.key == wanted.key => {}
            Found::Unknown(why) => return Err(why),
            found => {
                let _ = self.leases.release(lease.id).await; // else it is not renewed, and ends
                return Err(match found {
                    Found::Bad(why) => why,
                    _ => "the claim was allocated anew meanwhile".into(),
                });
            }
        }
        self.put(&prepared, &lease)?;
        self.describe(&prepared)?;
        tracing::info!("the claim {namespace}/{name} is prepared, with the lease {}", lease.id);
        Ok(prepared)
    }

    /// Takes back what was prepared; the lease is the claim's, and stays. Nothing is no error.
    ///
    /// # Errors
    /// Why not, in words.
    pub(super) fn unprepare(&self, uid: &str) -> Result<(), String> {
        if !is_plain(uid) {
            return Ok(()); // nothing can have been prepared
        }
        let done = self.store.lock().and_then(|locked| {
            files::remove(&cdi_file(&self.cdi, uid))?;
            locked.remove(uid)
        });
        done.map_err(|e| format!("what was prepared for the claim is not removed: {e}"))
    }

    /// Whether a claim is to have a lease here.
    pub(super) async fn find(&self, namespace: &str, name: &str, uid: &str) -> Found {
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        let claim = match api.get_opt(name).await {
            Ok(Some(claim)) => claim,
            Ok(None) => return Found::Bad(format!("there is no claim {namespace}/{name} any more")),
            Err(kube::Error::Api(status)) if status.code == 400 || status.code == 403 => {
                return Found::Unknown(format!("the API server does not show the claim: {}", status.message));
            }
            Err(error) => {
                return Found::Unknown(format!("the API server cannot be asked about the claim: {error}"));
            }
        };
        if claim.uid().as_deref() != Some(uid) {
            return Found::Bad(format!(
                "the claim {namespace}/{name} is another one now: its UID is not {uid}"
            ));
        }
        if is_over(&claim) {
            return Found::Bad(format!("the claim {namespace}/{name} is being deleted"));
        }
        match wanted(&claim) {
            None => Found::Bad(format!(
                "the claim {namespace}/{name} is not allocated to {}",
                crate::names::DRIVER
            )),
            Some(Err(why)) => Found::Bad(why),
            Some(Ok(_)) if !is_reserved(&claim) => {
                Found::Bad(format!("the claim {namespace}/{name} is not reserved for a pod"))
            }
            Some(Ok(wanted)) => Found::Good(Box::new(wanted)),
        }
    }

    /// Writes the ticket of a claim.
    pub(super) fn put(&self, prepared: &Prepared, lease: &Lease) -> Result<(), String> {
        let ticket = self.leases.ticket(lease, &prepared.key);
        let ticket = ticket.ok_or_else(|| format!("the broker shows no token of the lease {}", lease.id))?;
        let done = self.store.lock().and_then(|locked| locked.put(prepared, &ticket));
        done.map_err(|e| format!("the ticket cannot be written: {e}"))
    }

    /// Writes the description for container runtimes: also where it was, for a folder that a restart of the machine empties.
    fn describe(&self, prepared: &Prepared) -> Result<(), String> {
        let edits = Edits::new(&self.library, &self.store.lease_folder(&prepared.id));
        let done = self.store.lock().and_then(|_locked| write_cdi(&self.cdi, &prepared.id, &edits));
        done.map_err(|e| format!("the CDI description cannot be written into {}: {e}", self.cdi.display()))
    }
}
