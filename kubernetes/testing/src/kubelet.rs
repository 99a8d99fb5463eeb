//! What a kubelet does with plugins' sockets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rgpu_kubelet_api::device_plugin::device_plugin_client::DevicePluginClient;
use rgpu_kubelet_api::device_plugin::registration_server::{Registration, RegistrationServer};
use rgpu_kubelet_api::dra_v1::dra_plugin_client::DraPluginClient;
use rgpu_kubelet_api::dra_v1beta1::dra_plugin_client::DraPluginClient as DraPluginBetaClient;
use rgpu_kubelet_api::pod_resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use rgpu_kubelet_api::registration::registration_client::RegistrationClient;
use rgpu_kubelet_api::registration::{InfoRequest, PluginInfo, RegistrationStatus};
use rgpu_kubelet_api::{device_plugin, dra_v1, dra_v1beta1, pod_resources};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use crate::apiserver::Claim;
use crate::cdi;

/// How long a plugin may take to appear, and a call to be answered. Only tells hanging from working.
const LIMIT: Duration = Duration::from_secs(60);

/// A kubelet of a test, with its folders below one.
pub struct Kubelet {
    runtime: tokio::runtime::Runtime,
    folder: PathBuf,
    devices: Arc<Mutex<Devices>>,
}

/// What the kubelet knows of device plugins.
#[derive(Default)]
struct Devices {
    registered: Vec<device_plugin::RegisterRequest>,
    /// Devices of each pod.
    pods: BTreeMap<String, Vec<String>>,
}

/// A driver's plugin that was registered.
#[derive(Debug, Clone)]
pub struct Plugin {
    /// The socket by which it was found.
    pub registration: PathBuf,
    /// Its socket.
    pub endpoint: PathBuf,
}

/// Which version of the interface is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// `v1`.
    Stable,
    /// `v1beta1`.
    Beta,
}

impl Kubelet {
    /// Makes the folders.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(folder: &Path) -> Result<Self> {
        let kubelet = Self {
            runtime: tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?,
            folder: folder.to_owned(),
            devices: Arc::default(),
        };
        for folder in [kubelet.registry(), kubelet.plugins(), kubelet.device_plugins(), kubelet.cdi()] {
            std::fs::create_dir_all(folder)?;
        }
        Ok(kubelet)
    }

    /// Where plugins are looked for.
    pub fn registry(&self) -> PathBuf {
        self.folder.join("plugins_registry")
    }

    /// Where their sockets are.
    pub fn plugins(&self) -> PathBuf {
        self.folder.join("plugins")
    }

    /// Where device plugins are.
    pub fn device_plugins(&self) -> PathBuf {
        self.folder.join("device-plugins")
    }

    /// The socket of the pod resources service.
    pub fn pod_resources(&self) -> PathBuf {
        self.folder.join("pod-resources.sock")
    }

    /// Where container runtimes look for devices.
    pub fn cdi(&self) -> PathBuf {
        self.folder.join("cdi")
    }

    fn run<T>(&self, what: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.block_on(async { tokio::time::timeout(LIMIT, what).await.context("it takes too long")? })
    }

    /// Waits for a plugin's socket other than those of `known`, and registers it as the kubelet's plugin manager does.
    ///
    /// # Errors
    /// None appears, or says something of itself that a kubelet would not take.
    pub fn register(&self, known: &[&Plugin]) -> Result<Plugin> {
        let end = Instant::now() + LIMIT;
        let found = loop {
            let sockets = std::fs::read_dir(self.registry())?.flatten().map(|entry| entry.path());
            let new = sockets
                .filter(|path| !known.iter().any(|plugin| plugin.registration == *path))
                .find(|path| std::os::unix::net::UnixStream::connect(path).is_ok());
            match new {
                Some(found) => break found,
                None if Instant::now() > end => bail!("no plugin appears in {}", self.registry().display()),
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        let info = self.info(&found)?;
        ensure!(info.r#type == "DRAPlugin", "{info:?}");
        ensure!(info.name == "rgpu.dev", "{info:?}");
        ensure!(info.supported_versions == ["v1.DRAPlugin", "v1beta1.DRAPlugin"], "{info:?}");
        let endpoint = PathBuf::from(&info.endpoint);
        ensure!(
            endpoint.is_absolute() && endpoint.exists(),
            "{info:?}: the socket has to be there before it is named"
        );
        self.run(async {
            let status = RegistrationStatus { plugin_registered: true, error: String::new() };
            RegistrationClient::new(connect(&found).await?).notify_registration_status(status).await?;
            Ok(())
        })?;
        Ok(Plugin { registration: found, endpoint })
    }

    /// What a plugin says of itself.
    ///
    /// # Errors
    /// It does not answer.
    pub fn info(&self, socket: &Path) -> Result<PluginInfo> {
        self.run(async {
            Ok(RegistrationClient::new(connect(socket).await?).get_info(InfoRequest {}).await?.into_inner())
        })
    }

    /// Tells a plugin that it is not wanted.
    ///
    /// # Errors
    /// It does not answer.
    pub fn reject(&self, plugin: &Plugin, why: &str) -> Result<()> {
        self.run(async {
            let status = RegistrationStatus { plugin_registered: false, error: why.into() };
            RegistrationClient::new(connect(&plugin.registration).await?)
                .notify_registration_status(status)
                .await?;
            Ok(())
        })
    }

    /// Has claims prepared. For each: the names of its CDI devices, or why not.
    ///
    /// # Errors
    /// The plugin does not answer as the interface says.
    pub fn prepare(
        &self,
        plugin: &Plugin,
        version: Version,
        claims: &[&Claim],
    ) -> Result<BTreeMap<String, Result<Vec<String>, String>>> {
        type Answer = (Vec<(Vec<String>, String, String, Vec<String>)>, String);
        let answers: BTreeMap<String, Answer> = self.run(async {
            let channel = connect(&plugin.endpoint).await?;
            // The kubelet of one version asks by the types of that version.
            macro_rules! ask {
                ($module:ident, $client:ident) => {{
                    let claim = |claim: &&Claim| $module::Claim {
                        namespace: claim.namespace.clone(),
                        uid: claim.uid.clone(),
                        name: claim.name.clone(),
                    };
                    let request =
                        $module::NodePrepareResourcesRequest { claims: claims.iter().map(claim).collect() };
                    let answer = $client::new(channel).node_prepare_resources(request).await?.into_inner();
                    let device = |device: $module::Device| {
                        (device.request_names, device.pool_name, device.device_name, device.cdi_device_ids)
                    };
                    let answers = answer.claims.into_iter();
                    answers
                        .map(|(uid, one)| (uid, (one.devices.into_iter().map(device).collect(), one.error)))
                        .collect()
                }};
            }
            Ok(match version {
                Version::Stable => ask!(dra_v1, DraPluginClient),
                Version::Beta => ask!(dra_v1beta1, DraPluginBetaClient),
            })
        })?;
        let mut all = BTreeMap::new();
        for (uid, (devices, error)) in answers {
            let answer = if error.is_empty() {
                ensure!(!devices.is_empty(), "{uid}: prepared, without a device");
                let mut names = Vec::new();
                for (requests, pool, device, ids) in devices {
                    ensure!(!pool.is_empty() && !device.is_empty(), "{uid}: a device has a pool and a name");
                    ensure!(requests == ["gpus"], "{uid}: of the requests {requests:?}");
                    names.extend(ids);
                }
                names.sort();
                names.dedup();
                // A runtime must find them.
                cdi::inject(&self.cdi(), &names)?;
                Ok(names)
            } else {
                Err(error)
            };
            all.insert(uid, answer);
        }
        for claim in claims {
            ensure!(all.contains_key(&claim.uid), "the answer lacks the claim {}", claim.uid);
        }
        ensure!(all.len() == claims.len(), "the answer has claims that were not asked for");
        Ok(all)
    }

    /// [`Kubelet::prepare`] of one claim by the stable version: what its container gets, or why not.
    ///
    /// # Errors
    /// The plugin does not answer as the interface says.
    pub fn prepare_one(&self, plugin: &Plugin, claim: &Claim) -> Result<Result<cdi::Container, String>> {
        let mut answers = self.prepare(plugin, Version::Stable, &[claim])?;
        match answers.remove(&claim.uid).context("the answer lacks the claim")? {
            Ok(names) => Ok(Ok(cdi::inject(&self.cdi(), &names)?)),
            Err(why) => Ok(Err(why)),
        }
    }

    /// Has claims unprepared. For each: nothing, or why not.
    ///
    /// # Errors
    /// The plugin does not answer as the interface says.
    pub fn unprepare(
        &self,
        plugin: &Plugin,
        version: Version,
        claims: &[&Claim],
    ) -> Result<BTreeMap<String, String>> {
        let answers: BTreeMap<String, String> = self.run(async {
            let channel = connect(&plugin.endpoint).await?;
            macro_rules! ask {
                ($module:ident, $client:ident) => {{
                    let claim = |claim: &&Claim| $module::Claim {
                        namespace: claim.namespace.clone(),
                        uid: claim.uid.clone(),
                        name: claim.name.clone(),
                    };
                    let request =
                        $module::NodeUnprepareResourcesRequest { claims: claims.iter().map(claim).collect() };
                    let answer = $client::new(channel).node_unprepare_resources(request).await?.into_inner();
                    answer.claims.into_iter().map(|(uid, one)| (uid, one.error)).collect()
                }};
            }
            Ok(match version {
                Version::Stable => ask!(dra_v1, DraPluginClient),
                Version::Beta => ask!(dra_v1beta1, DraPluginBetaClient),
            })
        })?;
        for claim in claims {
            ensure!(answers.contains_key(&claim.uid), "the answer lacks the claim {}", claim.uid);
        }
        Ok(answers)
    }

    /// Takes device plugins' registrations, and says which pods have what.
    ///
    /// # Errors
    /// What the system says.
    pub fn serve(&self) -> Result<()> {
        for (path, lists) in
            [(self.device_plugins().join("kubelet.sock"), false), (self.pod_resources(), true)]
        {
            let _ = std::fs::remove_file(&path);
            let _inside = self.runtime.enter();
            let listener = tokio::net::UnixListener::bind(&path)?;
            let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
            let service = Service(self.devices.clone());
            let mut server = Server::builder();
            let router = match lists {
                true => server.add_service(PodResourcesListerServer::new(service)),
                false => server.add_service(RegistrationServer::new(service)),
            };
            self.runtime.spawn(router.serve_with_incoming(incoming));
        }
        Ok(())
    }

    /// The registrations of device plugins so far.
    pub fn registered(&self) -> Vec<device_plugin::RegisterRequest> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner).registered.clone()
    }

    /// The names of the devices that a device plugin lists at first.
    ///
    /// # Errors
    /// It does not answer.
    pub fn devices(&self, socket: &Path) -> Result<Vec<String>> {
        self.run(async {
            let mut client = DevicePluginClient::new(connect(socket).await?);
            client.get_device_plugin_options(device_plugin::Empty {}).await?;
            let mut lists = client.list_and_watch(device_plugin::Empty {}).await?.into_inner();
            let list = lists.message().await?.context("no list comes")?;
            ensure!(
                list.devices.iter().all(|device| device.health == "Healthy" && device.id.len() <= 63),
                "{list:?}"
            );
            Ok(list.devices.into_iter().map(|device| device.id).collect())
        })
    }

    /// Gives a pod's container devices; `Ok(Err(…))` is the plugin's refusal. The pod is not said to have them yet.
    ///
    /// # Errors
    /// The plugin does not answer as the interface says.
    pub fn allocate(&self, socket: &Path, devices: &[&str]) -> Result<Result<cdi::Container, String>> {
        self.run(async {
            let devices_ids = devices.iter().map(|&device| device.to_owned()).collect();
            let request = device_plugin::AllocateRequest {
                container_requests: vec![device_plugin::ContainerAllocateRequest { devices_ids }],
            };
            let answer = match DevicePluginClient::new(connect(socket).await?).allocate(request).await {
                Ok(answer) => answer.into_inner(),
                Err(status) => return Ok(Err(status.message().to_owned())),
            };
            ensure!(answer.container_responses.len() == 1, "{answer:?}");
            let one = answer.container_responses.into_iter().next().context("it has one")?;
            let mount = |mount: device_plugin::Mount| cdi::Mount {
                host_path: mount.host_path.into(),
                container_path: mount.container_path.into(),
                options: if mount.read_only { vec!["ro".into()] } else { Vec::new() },
            };
            let mounts: Vec<cdi::Mount> = one.mounts.into_iter().map(mount).collect();
            ensure!(mounts.iter().all(|mount| mount.host_path.exists()), "{mounts:?}");
            Ok(Ok(cdi::Container { environment: one.envs.into_iter().collect(), mounts }))
        })
    }

    /// Says which devices a pod has from now on; none is that the pod is gone.
    pub fn pod(&self, name: &str, devices: &[&str]) {
        let mut all = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        if devices.is_empty() {
            all.pods.remove(name);
        } else {
            all.pods.insert(name.to_owned(), devices.iter().map(|&device| device.to_owned()).collect());
        }
    }
}

async fn connect(socket: &Path) -> Result<Channel> {
    let endpoint = Endpoint::try_from(format!("unix://{}", socket.display()))?;
    endpoint.connect().await.with_context(|| format!("connecting to {}", socket.display()))
}

#[derive(Clone)]
struct Service(Arc<Mutex<Devices>>);

#[tonic::async_trait]
impl Registration for Service {
    async fn register(
        &self,
        request: Request<device_plugin::RegisterRequest>,
    ) -> Result<Response<device_plugin::Empty>, Status> {
        let request = request.into_inner();
        if request.version != "v1beta1"
            || request.resource_name != "rgpu.dev/gpu"
            || request.endpoint.contains('/')
        {
            return Err(Status::invalid_argument(format!("{request:?}")));
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).registered.push(request);
        Ok(Response::new(device_plugin::Empty {}))
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Service {
    async fn list(
        &self,
        _: Request<pod_resources::ListPodResourcesRequest>,
    ) -> Result<Response<pod_resources::ListPodResourcesResponse>, Status> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pod = |(name, devices): (&String, &Vec<String>)| pod_resources::PodResources {
            name: name.clone(),
            namespace: "default".into(),
            containers: vec![pod_resources::ContainerResources {
                name: "app".into(),
                devices: vec![pod_resources::ContainerDevices {
                    resource_name: "rgpu.dev/gpu".into(),
                    device_ids: devices.clone(),
                }],
            }],
        };
        Ok(Response::new(pod_resources::ListPodResourcesResponse {
            pod_resources: all.pods.iter().map(pod).collect(),
        }))
    }
}
