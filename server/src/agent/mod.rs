//! The node's agent: tells the broker what this machine has and does, and brings the broker's orders to the
//! [leases](crate::lease).
//!
//! It is a few threads in the daemon, none of them on the data path:
//!
//! - one registers, and then says regularly how things are (a heartbeat), or at once when a lease has begun or ended;
//! - one waits at the broker for orders;
//! - one measures how long other nodes are away.
//!
//! A broker that cannot be reached changes nothing for programs that run: they go on, and the agent goes on trying.

use crate::lease::LeaseTable;
use crate::ledger::Ledger;
use crate::options::DeviceSpec;
use rgpu_protocol::transport::Choice;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

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
}

/// What the agent works on.
pub struct Site {
    /// Where the server listens.
    pub address: SocketAddr,
    /// Its devices, settled.
    pub device: DeviceSpec,
    /// Memory that each of them has to promise.
    pub capacity: Vec<u64>,
    /// Which transports it offers.
    pub transport: Choice,
    /// Whether data connections are encrypted.
    pub tls: bool,
    /// What programs use.
    pub ledger: Arc<Ledger>,
    /// The leases.
    pub leases: Arc<LeaseTable>,
}

/// The running agent.
pub struct Agent {}

impl Agent {
    /// Starts the agent. The broker need not be there yet.
    ///
    /// # Errors
    /// Options that cannot be right: no token, an address that is none, a certificate that cannot be read.
    pub fn start(options: &AgentOptions, site: Site) -> io::Result<Self> {
        let _ = (options, site);
        Err(io::Error::new(io::ErrorKind::Unsupported, "the agent is not there yet"))
    }

    /// Tells the broker that this server is being stopped. Takes a second at most.
    pub fn stop(self) {}
}
