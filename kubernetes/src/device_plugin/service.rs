//! What the kubelet asks.

use std::path::PathBuf;
use std::pin::Pin;

use futures_util::Stream;
use rgpu_control::LeaseId;
use rgpu_control::api::{LeaseRequest, LeaseState};
use rgpu_control::unix_time;
use rgpu_kubelet_api::device_plugin as api;
use rgpu_kubelet_api::device_plugin::device_plugin_server::DevicePlugin;
use tonic::{Request, Response, Status};

use crate::claim::Allocated;
use crate::container::Edits;
use crate::leases::{Asked, Leases};
use crate::store::{Prepared, Store};

/// How long the kubelet is kept waiting for a grant, in seconds.
const WAIT_S: u32 = 20;
/// What the names of devices begin with.
const NAME: &str = "rgpu-";

/// Answers the kubelet.
#[derive(Clone)]
pub(super) struct Plugin {
    pub(super) leases: Leases,
    pub(super) store: Store,
    pub(super) library: PathBuf,
    pub(super) count: u16,
    pub(super) memory: u64,
    pub(super) share_milli: u16,
    pub(super) models: Vec<String>,
    pub(super) node: String,
}

impl Plugin {
    /// A lease for a container, and what the container gets.
    async fn allocate_one(&self, devices: &[String]) -> Result<(Prepared, Edits), String> {
        let known = |device: &String| {
            let number = device.strip_prefix(NAME).and_then(|number| number.parse::<u16>().ok());
            number.is_some_and(|number| number < self.count)
        };
        let Some(first) = devices.first() else { return Err("the container is given no device".into()) };
        if let Some(other) = devices.iter().find(|device| !known(device)) {
            return Err(format!(
                "there is no device {other:?}: this plugin has {NAME}0 to {NAME}{}",
                self.count - 1
            ));
        }
        // Whoever had these devices before has them no longer, else the kubelet would not give them again.
        for old in self.store.all() {
            if old.key.starts_with(KEY) && old.devices.iter().any(|device| devices.contains(&device.device)) {
                let _ = self.leases.release(old.lease).await; // else it is not renewed, and ends
                self.store.lock().and_then(|locked| locked.remove(&old.id)).map_err(|e| e.to_string())?;
            }
        }
        let id = format!("{first}-{}", LeaseId::random());
        let key = format!("{KEY}{}/{id}", self.node);
        let lease = self.lease(devices.len(), &id, &key).await?;
        let allocated =
            |device: &String| Allocated { request: String::new(), device: device.clone(), share_id: None };
        let prepared = Prepared {
            id: id.clone(),
            namespace: String::new(),
            name: String::new(),
            key: key.clone(),
            lease: lease.id,
            devices: devices.iter().map(allocated).collect(),
            since: unix_time(),
        };
        let ticket = self.leases.ticket(&lease, &key);
        let written = match ticket {
            Some(ticket) => {
                let put = self.store.lock().and_then(|locked| locked.put(&prepared, &ticket));
                put.map_err(|e| format!("the ticket cannot be written: {e}"))
            }
            None => Err(format!("the broker shows no token of the lease {}", lease.id)),
        };
        if let Err(why) = written {
            let _ = self.leases.release(lease.id).await; // else it is not renewed, and ends
            return Err(why);
        }
        Ok((prepared, Edits::new(&self.library, &self.store.lease_folder(&id))))
    }

    async fn lease(&self, gpus: usize, id: &str, key: &str) -> Result<Box<rgpu_control::api::Lease>, String> {
        let holder = self.leases.key(key).public().to_text();
        let machine = blake3::hash(self.node.as_bytes()).to_hex().to_string();
        let request = LeaseRequest {
            gpus: u16::try_from(gpus).map_err(|_| "too many devices".to_owned())?,
            memory: self.memory,
            share_milli: self.share_milli,
            models: self.models.clone(),
            wait_s: WAIT_S,
            key: Some(key.to_owned()),
            ..LeaseRequest::new(format!("{id} of {}", self.node), machine, holder)
        };
        match self.leases.request_for(request, &self.node).await {
            Asked::Has(lease) if lease.state == LeaseState::Active => Ok(lease),
            Asked::Has(lease) => {
                // The kubelet fails the pod, and asks with other devices for the next one.
                let _ = self.leases.release(lease.id).await;
                Err(format!("no GPU is free: {}", lease.reason))
            }
            Asked::Refused(problem) => Err(format!("the broker refuses the lease: {}", problem.message)),
            Asked::NotNow { message, .. } => Err(message),
        }
    }
}

/// What the keys of this plugin's leases begin with.
pub(super) const KEY: &str = "kubernetes-device/";

#[tonic::async_trait]
impl DevicePlugin for Plugin {
    async fn get_device_plugin_options(
        &self,
        _: Request<api::Empty>,
    ) -> Result<Response<api::DevicePluginOptions>, Status> {
        Ok(Response::new(api::DevicePluginOptions::default()))
    }

    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<api::ListAndWatchResponse, Status>> + Send>>;

    async fn list_and_watch(
        &self,
        _: Request<api::Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let device =
            |number| api::Device { id: format!("{NAME}{number}"), health: "Healthy".into(), topology: None };
        let list = api::ListAndWatchResponse { devices: (0..self.count).map(device).collect() };
        // The list never changes; the stream stays open for as long as the kubelet listens.
        let stream = futures_util::stream::once(async { Ok(list) });
        let stream = futures_util::StreamExt::chain(stream, futures_util::stream::pending());
        Ok(Response::new(Box::pin(stream)))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<api::PreferredAllocationRequest>,
    ) -> Result<Response<api::PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("all devices are alike: none is preferred"))
    }

    async fn allocate(
        &self,
        request: Request<api::AllocateRequest>,
    ) -> Result<Response<api::AllocateResponse>, Status> {
        let mut done: Vec<(Prepared, Edits)> = Vec::new();
        for container in request.into_inner().container_requests {
            match self.allocate_one(&container.devices_ids).await {
                Ok(one) => done.push(one),
                Err(why) => {
                    // The pod is not started: nothing of it is left.
                    for (prepared, _) in done {
                        let _ = self.leases.release(prepared.lease).await; // else it is not renewed, and ends
                        let _ = self.store.lock().and_then(|locked| locked.remove(&prepared.id));
                    }
                    tracing::warn!("a container gets no GPU: {why}");
                    return Err(Status::failed_precondition(why));
                }
            }
        }
        let response = |(_, edits): (Prepared, Edits)| api::ContainerAllocateResponse {
            envs: edits.environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            mounts: edits
                .mounts
                .into_iter()
                .map(|mount| api::Mount {
                    container_path: mount.container.into(),
                    host_path: mount.host.to_string_lossy().into_owned(),
                    read_only: true,
                })
                .collect(),
            ..Default::default()
        };
        let container_responses = done.into_iter().map(response).collect();
        Ok(Response::new(api::AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _: Request<api::PreStartContainerRequest>,
    ) -> Result<Response<api::PreStartContainerResponse>, Status> {
        Ok(Response::new(api::PreStartContainerResponse {}))
    }
}
