//! The device plugin, for clusters without dynamic resource allocation: a container that asks for `rgpu.dev/gpu: N` gets a lease of
//! N GPUs, or parts of GPUs, of the size that this plugin was started with.
//!
//! A device plugin is told when a container gets its devices, and never when it gives them back. So what the kubelet says that pods have
//! (its *pod resources* service) decides: what no pod has is given back.

mod keep;
mod service;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use rgpu_control::units::{parse_bytes, parse_share};
use rgpu_kubelet_api::device_plugin::RegisterRequest;
use rgpu_kubelet_api::device_plugin::device_plugin_server::DevicePluginServer;
use rgpu_kubelet_api::device_plugin::registration_client::RegistrationClient;
use tonic::transport::{Endpoint, Server};

use crate::container;
use crate::leases::{BrokerArguments, Leases};
use crate::names::RESOURCE;
use crate::node::NodeArguments;
use crate::sockets::Socket;
use crate::store::Store;
use service::Plugin;

/// The name of the plugin's socket.
const SOCKET: &str = "rgpu.sock";
/// The version of the kubelet's interface.
const VERSION: &str = "v1beta1";

/// Options of `rgpu-kubernetes device-plugin`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    broker: BrokerArguments,
    #[command(flatten)]
    node: NodeArguments,
    /// How many of the resource this node's pods can have at a time. The broker says how many there are
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    count: u16,
    /// Share of a GPU's time that one of the resource is, such as 25%
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "100%")]
    share: u16,
    /// Memory that one of the resource is, such as 4GiB [default: as much of a GPU's as the share]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    gpu_memory: Option<u64>,
    /// A GPU model that will do; can be given several times [default: any]
    #[arg(long, value_name = "NAME")]
    model: Vec<String>,
    /// This node's name
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: String,
    /// The kubelet's folder of device plugins
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/kubelet/device-plugins")]
    plugins: PathBuf,
    /// The socket of the kubelet's pod resources service
    #[arg(long, value_name = "SOCKET", default_value = "/var/lib/kubelet/pod-resources/kubelet.sock")]
    pod_resources: PathBuf,
    /// How long the kubelet may take, after it was given devices for a container, to say that a pod has them, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    grace: u64,
}

/// Runs until it is told to end (SIGTERM). What containers have stays.
///
/// # Errors
/// It cannot begin.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let leases = Leases::new(&arguments.broker)?;
    let store = Store::open(&arguments.node.state)?;
    let library = container::install_library(&arguments.node.library, &arguments.node.state)?;
    let plugin = Plugin {
        leases: leases.clone(),
        store: store.clone(),
        library,
        count: arguments.count,
        memory: arguments.gpu_memory.unwrap_or(0),
        share_milli: arguments.share,
        models: arguments.model,
        node: arguments.node_name,
    };
    let grace = Duration::from_secs(arguments.grace);
    let kubelet = arguments.plugins.join("kubelet.sock");
    let keep = keep::keep(leases, store, arguments.pod_resources, grace);
    let stop = crate::stop::signal();
    tokio::pin!(keep, stop);
    loop {
        let mut socket = Socket::bind(&arguments.plugins.join(SOCKET))?;
        let incoming = socket.incoming();
        let serve = Server::builder()
            .add_service(DevicePluginServer::new(plugin.clone()))
            .serve_with_incoming(incoming);
        let path = socket.path().to_owned();
        let registered = async {
            register(&kubelet).await;
            // A kubelet that is restarted empties its folder, and wants to be registered with again.
            while path.exists() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            done = serve => done.context("The plugin's socket failed")?,
            () = registered => tracing::info!("the kubelet was restarted"),
            () = &mut keep => {}
            stopped = &mut stop => return stopped.map_err(Into::into),
        }
    }
}

/// Tells the kubelet about the plugin, as often as it takes.
async fn register(kubelet: &std::path::Path) {
    let mut said = false;
    loop {
        match try_register(kubelet).await {
            Ok(()) => return tracing::info!("the kubelet offers {RESOURCE}"),
            Err(error) if !said => {
                tracing::warn!(
                    "the kubelet at {} does not take the plugin: {error:#}; trying again",
                    kubelet.display()
                );
                said = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn try_register(kubelet: &std::path::Path) -> anyhow::Result<()> {
    let channel = Endpoint::try_from(format!("unix://{}", kubelet.display()))?.connect().await?;
    let request = RegisterRequest {
        version: VERSION.into(),
        endpoint: SOCKET.into(),
        resource_name: RESOURCE.into(),
        options: None,
    };
    RegistrationClient::new(channel).register(request).await?;
    Ok(())
}
