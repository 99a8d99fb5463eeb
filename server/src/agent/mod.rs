//! The node's agent: tells the broker what this machine has and does, and brings the broker's orders to the
//! [leases](crate::lease).
//!
//! It is a few threads in the daemon, none of them on the data path:
//!
//! - one registers, and then says regularly how things are (a heartbeat), or at once when a lease has begun or ended;
//! - one waits at the broker for orders;
//! - one measures how long other nodes are away;
//! - where the node offers [NVMe devices](crate::nvme), one attaches and detaches them.
//!
//! A broker that cannot be reached changes nothing for programs that run: they go on, and the agent goes on trying.

mod backoff;
mod facts;
mod link;
mod network;
mod peers;
mod telemetry;

use crate::applications::Applications;
use crate::inventory::Settled;
use crate::lease::LeaseTable;
use crate::ledger::Ledger;
use crate::nvme::{NvmeKeeper, NvmeOptions};
use link::BrokerLink;
use rgpu_control::{Broker, Tls};
use rgpu_protocol::transport::{Choice, Connectors};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
pub use telemetry::{TELEMETRY_COMMAND, telemetry_main};

/// Which broker a server belongs to, and as what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentOptions {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub broker: String,
    /// The file with the node's role token.
    pub token_file: PathBuf,
    /// The node's name; without one, the token's.
    pub node: Option<String>,
    /// `HOST:PORT` where programs on other machines reach this server, where that is not what it listens on.
    pub advertise: Option<String>,
    /// Capacity of the network interface, where the system does not know it.
    pub nic_mbps: Option<u64>,
    /// The switch that the machine is connected to, as the broker's configuration names it.
    pub switch: Option<String>,
    /// Certificates (PEM) that sign the broker's.
    pub ca: Option<PathBuf>,
    /// The node's certificate and private key (PEM), for a broker that asks for them.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Whether to speak to a broker on another machine without encryption.
    pub plain: bool,
    /// The NVMe devices that the node offers, if any.
    pub nvmes: Option<NvmeOptions>,
}

impl AgentOptions {
    /// The node's name, if the token's file can be read.
    pub(crate) fn name(&self) -> Option<String> {
        let token = std::fs::read_to_string(&self.token_file).ok()?;
        facts::name(self.node.as_deref(), &token).ok()
    }
}

/// What programs must know of a server that encrypts.
pub struct SiteTls {
    /// Whether it takes only encrypted connections from other machines.
    pub required: bool,
    /// What its certificate is known by.
    pub fingerprint: String,
}

/// What the agent works on.
pub struct Site {
    /// Where the server listens.
    pub address: SocketAddr,
    /// The devices that the node offers.
    pub settled: Settled,
    /// The transports that it knows.
    pub connectors: Connectors,
    /// Which of them it offers.
    pub transport: Choice,
    /// How data connections are encrypted, where they can be.
    pub tls: Option<SiteTls>,
    /// What programs use.
    pub ledger: Arc<Ledger>,
    /// The leases that the broker's orders change.
    pub leases: Arc<LeaseTable>,
    /// Their applications, which the orders change, too.
    pub(crate) applications: Option<Arc<Applications>>,
}

/// The running agent.
pub struct Agent {
    link: Arc<BrokerLink>,
}

impl Agent {
    /// Starts the agent. The broker need not be there yet.
    ///
    /// # Errors
    /// Options that cannot be right: no token, an address that is none, a certificate that cannot be read.
    pub fn start(options: &AgentOptions, site: Site) -> io::Result<Self> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        let file = &options.token_file;
        let token = std::fs::read_to_string(file)
            .map_err(|e| io::Error::new(e.kind(), format!("Cannot read {}: {e}", file.display())))?;
        crate::secret::warn_if_readable(file);
        let name = facts::name(options.node.as_deref(), &token)
            .map_err(|e| invalid(format!("The broker's token in {} is of no use: {e}", file.display())))?;
        if let Some(address) = options.advertise.as_deref().filter(|address| !facts::is_address(address)) {
            return Err(invalid(format!("--advertise {address:?} is no address: give HOST:PORT")));
        }
        let identity =
            options.identity.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()));
        let tls = Tls::read(options.ca.as_deref(), identity).map_err(|e| invalid(e.to_string()))?;
        let tls = Tls { plain: options.plain, ..tls };
        let broker = Broker::new(&options.broker, &token, &tls).map_err(|e| invalid(e.to_string()))?;
        let devices = facts::devices(&site.settled);
        let elsewhere = network::address_towards(&network::host_and_port(broker.url()))
            .is_ok_and(|address| !address.is_loopback());
        if elsewhere && site.address.ip().is_loopback() && options.advertise.is_none() {
            tracing::warn!(
                "programs on other machines cannot reach {}: listen on another address, or say with --advertise where it \
                 is reached",
                site.address
            );
        }
        let nvmes = options.nvmes.clone().map(|nvmes| NvmeKeeper::start(&name, nvmes)).transpose()?;
        let link = BrokerLink::new(broker, (name, token), options.clone(), site, devices, nvmes);
        type Body = fn(&BrokerLink);
        let threads: [(&str, Body); 3] = [
            ("agent", BrokerLink::send_heartbeats),
            ("agent-orders", BrokerLink::fetch_orders),
            ("agent-peers", BrokerLink::measure_peers),
        ];
        for (name, body) in threads {
            let link = link.clone();
            std::thread::Builder::new().name(name.into()).stack_size(512 << 10).spawn(move || body(&link))?;
        }
        Ok(Self { link })
    }

    /// Tells the broker that this server is being stopped. Takes a second at most.
    pub fn stop(self) {
        self.link.stop();
    }
}
