//! The plugin of a node: the kubelet has it prepare claims for pods.
//!
//! ```text
//! kubelet                       this plugin                      API server, broker
//!    │  (sees the socket)           │
//!    ├── GetInfo ──────────────────►│
//!    ├── NotifyRegistrationStatus ─►│
//!    ├── NodePrepareResources ─────►│── the claim? ───────────────────►│
//!    │                              │── its lease, by its key ────────►│
//!    │◄──── names of CDI devices ───┤   writes ticket, CDI file
//!    │                              │── renews, for as long as it is prepared
//!    ├── NodeUnprepareResources ───►│   removes both
//! ```

mod prepare;
mod refresh;
mod service;

use std::path::PathBuf;

use anyhow::Context;
use kube::Client;
use rgpu_kubelet_api::dra_v1::dra_plugin_server::DraPluginServer;
use rgpu_kubelet_api::dra_v1beta1::dra_plugin_server::DraPluginServer as DraPluginBetaServer;
use rgpu_kubelet_api::registration::registration_server::RegistrationServer;
use tonic::transport::Server;

use crate::container;
use crate::leases::{BrokerArguments, Leases};
use crate::names::{DRIVER, is_plain};
use crate::sockets::Socket;
use crate::store::Store;
use prepare::Preparer;
use service::{Plugin, Registrar};

/// Options of a plugin of a node, whichever way it is asked.
#[derive(clap::Args, Debug)]
pub struct NodeArguments {
    /// The library that containers get
    #[arg(long, value_name = "FILE", default_value = "/usr/lib/rgpu/librgpu.so")]
    pub library: PathBuf,
    /// A folder of the node where tickets and the library are kept; it must be the same path for container runtimes
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/rgpu-kubernetes")]
    pub state: PathBuf,
}

/// Options of `rgpu-kubernetes node`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    broker: BrokerArguments,
    #[command(flatten)]
    node: NodeArguments,
    /// The folder in which the kubelet looks for plugins
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/kubelet/plugins_registry")]
    registry: PathBuf,
    /// The kubelet's folder of plugins' sockets
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/kubelet/plugins")]
    plugins: PathBuf,
    /// The folder where container runtimes look for descriptions of devices (CDI)
    #[arg(long, value_name = "FOLDER", default_value = "/var/run/cdi")]
    cdi: PathBuf,
    /// A name that no other instance on this node has, such as the pod's UID: with it, an earlier and a later one can run side by side
    #[arg(long, env = "POD_UID", value_name = "NAME", default_value = "single")]
    instance: String,
}

/// Runs until it is told to end (SIGTERM). What is prepared stays.
///
/// # Errors
/// It cannot begin.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    anyhow::ensure!(
        is_plain(&arguments.instance),
        "--instance {:?} is not of letters, digits and hyphens",
        arguments.instance
    );
    let leases = Leases::new(&arguments.broker)?;
    let store = Store::open(&arguments.node.state)?;
    let library = container::install_library(&arguments.node.library, &arguments.node.state)?;
    let client = Client::try_default().await.context("The API server's address is not known")?;
    let preparer = Preparer { client, leases, store, library, cdi: arguments.cdi };

    let plugins = arguments.plugins.join(DRIVER);
    let mut plugin = Socket::bind(&plugins.join(format!("dra-{}.sock", arguments.instance)))?;
    // The kubelet calls as soon as it sees this one, so the other is there first.
    let mut registry =
        Socket::bind(&arguments.registry.join(format!("{DRIVER}-{}-reg.sock", arguments.instance)))?;
    let (incoming, registering) = (plugin.incoming(), registry.incoming());
    let service = Plugin(preparer.clone());
    let serve = Server::builder()
        .add_service(DraPluginServer::new(service.clone()))
        .add_service(DraPluginBetaServer::new(service))
        .serve_with_incoming(incoming);
    let registrar = Registrar { endpoint: plugin.path().to_string_lossy().into_owned() };
    let register =
        Server::builder().add_service(RegistrationServer::new(registrar)).serve_with_incoming(registering);
    tracing::info!("the plugin {} serves at {}", arguments.instance, plugin.path().display());
    tokio::select! {
        done = serve => done.context("The plugin's socket failed")?,
        done = register => done.context("The registration's socket failed")?,
        () = refresh::keep(preparer) => {}
        stopped = crate::stop::signal() => stopped?,
    }
    tracing::info!("the plugin {} ends; what is prepared stays", arguments.instance);
    Ok(())
}
