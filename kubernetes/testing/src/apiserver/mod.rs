//! An API server for tests: ResourceSlices and ResourceClaims of `resource.k8s.io/v1`.
//!
//! Lists and watches with resource versions, optimistic locking (409), compaction (410), finalizers, the status subresource, merge
//! patches, server-side apply of a claim's `status.devices`, and rights by the rules of ClusterRoles. Every body is checked against
//! the published schema, and every object that results. What was refused for that is kept ([`ApiServer::complaints`]).

mod http;
mod objects;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::sync::watch;

use objects::{Objects, Place};

/// An API server, ended when dropped.
pub struct ApiServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    runtime: Option<tokio::runtime::Runtime>,
}

/// What the handlers share.
struct Shared {
    objects: Mutex<Objects>,
    /// The latest resource version.
    changed: watch::Sender<u64>,
    complaints: Mutex<Vec<String>>,
    /// Rules of each bearer token.
    rights: Mutex<HashMap<String, Vec<Value>>>,
    /// Requests that were answered, as `VERB RESOURCE`.
    requests: Mutex<Vec<String>>,
    /// So many writes are answered with a conflict.
    conflicts: Mutex<u32>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn change<T>(&self, what: impl FnOnce(&mut Objects) -> T) -> T {
        let mut objects = lock(&self.objects);
        let done = what(&mut objects);
        self.changed.send_replace(objects.version());
        done
    }
}

/// A claim, as a test names it.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Its namespace.
    pub namespace: String,
    /// Its name in that.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl ApiServer {
    /// Starts one on a free port.
    ///
    /// # Errors
    /// The system has no port, or no threads.
    pub fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let shared = Arc::new(Shared {
            objects: Mutex::default(),
            changed: watch::Sender::new(0),
            complaints: Mutex::default(),
            rights: Mutex::default(),
            requests: Mutex::default(),
            conflicts: Mutex::default(),
        });
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let router = http::router(shared.clone());
        runtime.spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, shared, runtime: Some(runtime) })
    }

    /// A kubeconfig for whoever has this bearer token.
    pub fn kubeconfig(&self, token: &str) -> String {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        config.to_string()
    }

    /// Gives whoever has the token the rights of a ClusterRole, and no others.
    pub fn grant(&self, token: &str, role: &Value) {
        let rules = role["rules"].as_array().cloned().unwrap_or_default();
        lock(&self.shared.rights).insert(token.to_owned(), rules);
    }

    /// What was refused because it was no good, or was no right of whoever asked.
    pub fn complaints(&self) -> Vec<String> {
        lock(&self.shared.complaints).clone()
    }

    /// How many requests began with this, such as `list resourceclaims`.
    pub fn requests(&self, of: &str) -> usize {
        lock(&self.shared.requests).iter().filter(|request| request.starts_with(of)).count()
    }

    /// Answers the next writes with a conflict, as if somebody else had been quicker.
    pub fn conflict(&self, writes: u32) {
        *lock(&self.shared.conflicts) = writes;
    }

    /// Forgets all earlier versions: who watches from one is told so (410), and has to list again.
    pub fn compact(&self) {
        self.shared.change(Objects::compact);
    }

    /// All published slices.
    pub fn slices(&self) -> Vec<Value> {
        lock(&self.shared.objects).list("resourceslices", None)
    }

    /// The devices of all slices.
    pub fn devices(&self) -> Vec<Value> {
        let slices = self.slices();
        slices
            .iter()
            .flat_map(|slice| slice["spec"]["devices"].as_array().cloned().unwrap_or_default())
            .collect()
    }

    /// Creates a claim in the namespace `default` of one request for `count` devices of the class `rgpu`.
    ///
    /// # Errors
    /// There is one of that name.
    pub fn create_claim(&self, name: &str, count: usize) -> Result<Claim> {
        self.create_claim_in("default", name, count)
    }

    /// The same in another namespace.
    ///
    /// # Errors
    /// There is one of that name.
    pub fn create_claim_in(&self, namespace: &str, name: &str, count: usize) -> Result<Claim> {
        let mut claim = Claim { namespace: namespace.to_owned(), name: name.to_owned(), uid: String::new() };
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": "rgpu", "count": count}}]}},
        });
        crate::schema::check(&object)?;
        let made = self.shared.change(|objects| objects.create(&place(&claim), object));
        let made = made.map_err(|e| anyhow::anyhow!("{}", e.message))?;
        claim.uid = made["metadata"]["uid"].as_str().context("an object has a UID")?.to_owned();
        Ok(claim)
    }

    /// Does to a claim what the scheduler does: allocates devices, reserves it for a pod on a node. Conditions are copied from the
    /// slice, where the device is in one.
    ///
    /// # Errors
    /// There is no such claim.
    pub fn allocate(
        &self,
        claim: &Claim,
        devices: &[Allocate],
        node: &str,
        config: Option<Value>,
    ) -> Result<()> {
        let published = self.devices();
        let results: Vec<Value> = devices
            .iter()
            .enumerate()
            .map(|(number, device)| {
                let mut result =
                    json!({"request": "gpus", "driver": "rgpu.dev", "pool": "rgpu", "device": device.device});
                if let Some(slice) = published.iter().find(|published| published["name"] == device.device) {
                    for list in ["bindingConditions", "bindingFailureConditions"] {
                        result[list] = slice[list].clone();
                    }
                }
                if let Some((memory, share)) = device.size {
                    result["consumedCapacity"] = json!({"memory": memory, "share": share});
                    result["shareID"] = json!(format!("00000000-0000-4000-8000-{number:012}"));
                }
                result
            })
            .collect();
        let config: Vec<Value> = config
            .into_iter()
            .map(|parameters| json!({"source": "FromClaim", "opaque": {"driver": "rgpu.dev", "parameters": parameters}}))
            .collect();
        self.edit(claim, |object, version| {
            object["status"]["allocation"] = json!({
                "allocationTimestamp": format!("2026-11-23T08:00:{:02}Z", version % 60),
                "devices": {"results": results, "config": config},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]},
            });
            object["status"]["reservedFor"] = json!([{"resource": "pods", "name": "p", "uid": "11111111-0000-4000-8000-000000000000"}]);
        })
    }

    /// No pod uses the claim any more, and its allocation is taken back.
    ///
    /// # Errors
    /// There is no such claim.
    pub fn deallocate(&self, claim: &Claim) -> Result<()> {
        self.edit(claim, |object, _| object["status"] = json!({}))
    }

    /// Begins to delete a claim; it goes with its last finalizer.
    ///
    /// # Errors
    /// There is no such claim.
    pub fn delete_claim(&self, claim: &Claim) -> Result<()> {
        let done = self.shared.change(|objects| objects.delete(&place(claim)));
        done.map(|_| ()).map_err(|e| anyhow::anyhow!("{}", e.message))
    }

    /// A claim as it is now.
    pub fn claim(&self, claim: &Claim) -> Option<Value> {
        let found = lock(&self.shared.objects).get(&place(claim)).cloned();
        found.filter(|object| object["metadata"]["uid"] == claim.uid)
    }

    /// Status, reason and message of a condition of the claim's first device.
    pub fn condition(&self, claim: &Claim, kind: &str) -> Option<(String, String, String)> {
        let object = self.claim(claim)?;
        let list = object["status"]["devices"][0]["conditions"].as_array()?.clone();
        let found = list.into_iter().find(|condition| condition["type"] == kind)?;
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        Some((text("status"), text("reason"), text("message")))
    }

    fn edit(&self, claim: &Claim, what: impl FnOnce(&mut Value, u64)) -> Result<()> {
        self.shared.change(|objects| {
            let version = objects.version();
            let mut object = objects.get(&place(claim)).cloned().context("there is no such claim")?;
            what(&mut object, version);
            crate::schema::check(&object)?;
            objects.put(&place(claim), object);
            Ok(())
        })
    }
}

fn place(claim: &Claim) -> Place {
    Place { resource: "resourceclaims", namespace: Some(claim.namespace.clone()), name: claim.name.clone() }
}

/// A device to allocate.
#[derive(Debug, Clone, Copy)]
pub struct Allocate<'a> {
    /// Its name in the pool.
    pub device: &'a str,
    /// Memory and share that are taken of it, as quantities; a whole device of its own without.
    pub size: Option<(&'a str, &'a str)>,
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
