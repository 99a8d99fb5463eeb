//! What a benchmark runs on: the server, the raw peer, the shaping proxies, and a process for each way.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use crate::raw::{Exchange, Raw};
use crate::shape::{self, Shape};
use crate::way::{Launcher, Service, Way, Worker};
use crate::{Common, Failure};

/// Everything that was started for one invocation; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Rig {
    launcher: Launcher,
    ways: Vec<Way>,
    rounds: u32,
    peer: Option<String>,
    _services: Vec<Service>,
}

impl Rig {
    /// Starts what the options ask for.
    pub(crate) fn start(options: &Common) -> Result<Self, Failure> {
        let rgpu = std::env::current_exe().map_err(|e| Failure::new(format!("Where is rgpu? {e}")))?;
        let shape = options.shape();
        let mut services = Vec::new();
        let ways = ways(options)?;
        let (mut server, mut fingerprint) = (options.server.clone(), None);
        if server.is_none() && ways.iter().any(|way| way.is_remote()) {
            let device = options.device.as_str();
            let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--device", device];
            if ways.contains(&Way::Tls) {
                arguments.extend(["--tls", "offer"]);
            }
            let service = Service::start(&rgpu, &arguments)?;
            server = Some(service.address.clone());
            fingerprint = service.fingerprint.clone();
            services.push(service);
        }
        let mut peer = options.peer.clone();
        if peer.is_none() && options.server.is_none() {
            let service = Service::start(&rgpu, &["bench", "peer", "--listen", "127.0.0.1:0"])?;
            peer = Some(service.address.clone());
            services.push(service);
        }
        let mut shaped = None;
        if shape.changes() {
            if let Some(address) = &server {
                shaped = Some(shape::start(resolve(address)?, shape)?);
            }
            if let Some(address) = &mut peer {
                *address = shape::start(resolve(address)?, shape)?.to_string();
            }
        }
        let launcher = Launcher { rgpu, server, shaped, token_file: options.token_file.clone(), fingerprint };
        Ok(Self { launcher, ways, rounds: options.rounds, peer, _services: services })
    }

    /// The ways that are compared.
    pub(crate) fn ways(&self) -> &[Way] {
        &self.ways
    }

    /// How many rounds are counted.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Starts programs.
    pub(crate) fn launcher(&self) -> &Launcher {
        &self.launcher
    }

    /// A measuring process for each way.
    pub(crate) fn workers(&self) -> Result<Vec<Worker>, Failure> {
        self.ways.iter().map(|way| Worker::start(&self.launcher, *way)).collect()
    }

    /// A raw connection to the peer of the kind that the way uses; `None` where there is no peer, or no such kind.
    pub(crate) fn raw(&self, way: Way, exchange: Exchange) -> Result<Option<Raw>, Failure> {
        let connect = match way {
            Way::Tcp | Way::Tls => Raw::connect,
            Way::Shm => Raw::connect_local,
            Way::Native | Way::InProcess | Way::Rdma => return Ok(None),
        };
        self.peer.as_ref().map(|peer| connect(peer, exchange)).transpose()
    }
}

fn resolve(address: &str) -> Result<SocketAddr, Failure> {
    address
        .to_socket_addrs()
        .map_err(|e| Failure::new(format!("{address}: {e}")))?
        .next()
        .ok_or_else(|| Failure::new(format!("{address} has no address")))
}

fn ways(options: &Common) -> Result<Vec<Way>, Failure> {
    let mut ways = options.ways.clone();
    if ways.is_empty() {
        ways = vec![Way::InProcess, Way::Tcp];
        if options.server.is_none() && !options.shape().changes() {
            ways.insert(1, Way::Shm);
        }
        if native_driver().is_some() {
            ways.insert(0, Way::Native);
        }
    }
    if options.shape().changes()
        && let Some(way) = ways.iter().find(|way| matches!(way, Way::Shm | Way::Rdma))
    {
        return Err(Failure::new(format!("--delay and --rate shape TCP only, not {way}: leave {way} out")));
    }
    Ok(ways)
}

/// The machine's own driver, where there is one.
fn native_driver() -> Option<PathBuf> {
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"]
        .iter()
        .map(|directory| PathBuf::from(directory).join("libcuda.so.1"))
        .find(|path| path.exists())
}

impl Common {
    /// What the proxies add.
    pub(crate) fn shape(&self) -> Shape {
        Shape { delay: self.delay, rate: self.rate }
    }
}
