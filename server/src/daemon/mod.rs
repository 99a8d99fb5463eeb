//! The daemon: accepts, checks the hello, starts a process for each application, and reaps it.
//!
//! Each connection has a small thread in the daemon, which ends with the application's process. Nothing that
//! a client does reaches further into the daemon than the hello, which is short and read within a time limit. Of a client that
//! speaks TLS the daemon reads the first byte: its process is started at once, speaks with it, and hands the hello over
//! ([`client`]).

mod admission;
mod client;
mod door;
mod listen;
mod process;
mod session;

use crate::agent::{Agent, AgentOptions, Site, SiteTls};
use crate::applications::Applications;
use crate::confine::{Limits, walls};
use crate::device_spec::DeviceKind;
use crate::encryption::Encrypts;
use crate::lease::LeaseTable;
use crate::ledger::Ledger;
use crate::options::{Encryption, Options};
use crate::partition::Partitions;
use crate::peer::{PeerSessions, rule::Rule};
use crate::shelf::Shelf;
use crate::store::ImageCache;
use crate::{DeviceSpec, inventory};
use admission::{Admits, read_key};
use door::Caller;
use listen::{Listeners, addresses};
use rgpu_protocol::transport::{Carrier, Choice, Connectors};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long application servers get to say goodbye when the daemon stops.
const STOP_TIME: Duration = Duration::from_millis(1500);
/// What the daemon's threads share.
struct Daemon {
    device: DeviceSpec,
    partitions: Partitions,
    ledger: Arc<Ledger>,
    leases: Arc<LeaseTable>,
    /// Holds the applications of leases to what a broker orders.
    applications: Option<Arc<Applications>>,
    admits: Admits,
    max_sessions: usize,
    /// The transports that there are, and which of them are offered.
    connectors: Connectors,
    transport: Choice,
    encrypts: Encrypts,
    /// Those of the processes that serve applications.
    limits: Limits,
    /// The processes that serve applications.
    children: Mutex<Vec<u32>>,
    /// The processes that speak with clients who are not admitted.
    entrants: Mutex<Vec<u32>>,
    /// How many of those there have been.
    entered: AtomicU32,
    stopping: AtomicBool,
    /// Where images of modules are kept.
    image_cache: Option<Arc<ImageCache>>,
    /// Memory that applications' processes lend to each other.
    shelf: Arc<Shelf>,
    /// Where sessions meet other servers.
    peers: Arc<PeerSessions>,
    address: SocketAddr,
}

/// Serves until SIGTERM or SIGINT. Prints one line on stdout when it listens.
///
/// # Errors
/// Options that exclude each other or name what is not there, an address that is taken, and a device that cannot be had; in
/// words for people.
pub fn serve(options: Options) -> io::Result<()> {
    let addresses = addresses(&options)?;
    let admits = Admits::new(&options, &addresses)?;
    let key = options.broker_key.as_ref().map(|(path, node)| Ok::<_, io::Error>((read_key(path)?, node)));
    let key = key.transpose()?;
    let encrypts = encryption(&options)?;
    let device = DeviceSpec { identity: identity(&options), ..options.device.clone() };
    let settled = inventory::settle(device)?;
    // Before any thread is started.
    let limits = session_limits(&options, &settled.spec);
    say_what_is_missing(&settled.spec, &limits);
    let mut listeners = Listeners::bind(&options, &addresses)?;
    let address = listeners.address()?;
    let ledger = Arc::new(Ledger::new(&settled.capacity)?);
    let leases = LeaseTable::new(ledger.clone(), settled.spec.count);
    if let Some((key, node)) = key {
        leases.set_identity(node, key);
    }
    if options.agent.is_some() {
        leases.set_grace(options.lease_grace);
    }
    leases.watch_ends()?;
    let alone = options.agent.is_none() && address.ip().is_loopback();
    let rule = Rule { named: options.peers.clone(), loopback: alone };
    let node = options.agent.as_ref().and_then(AgentOptions::name);
    let applications = node.map(|node| Arc::new(Applications::new(&options.processors, &node)));
    let daemon = Arc::new(Daemon {
        image_cache: image_store(&options),
        shelf: Arc::default(),
        peers: PeerSessions::new(rule, leases.clone(), options.agent.is_some()),
        address,
        ledger,
        leases,
        applications,
        device: settled.spec.clone(),
        partitions: settled.partitions.clone(),
        admits,
        max_sessions: options.max_sessions,
        connectors: options.connectors,
        transport: options.transport,
        encrypts,
        limits,
        children: Mutex::default(),
        entrants: Mutex::default(),
        entered: AtomicU32::new(0),
        stopping: AtomicBool::new(false),
    });
    let agent = options.agent.as_ref().map(|agent| Agent::start(agent, daemon.site(settled))).transpose()?;
    daemon.announce()?;
    while let Some(callers) = listeners.next()? {
        callers.into_iter().for_each(|caller| daemon.clone().welcome(caller));
    }
    drop(listeners);
    std::thread::scope(|scope| {
        // Neither waits for the other.
        scope.spawn(|| daemon.stop());
        if let Some(agent) = agent {
            agent.stop();
        }
    });
    if let Some(applications) = &daemon.applications {
        applications.stop();
    }
    Ok(())
}

/// What this server's software GPUs are told apart by from those of others: the machine, and the node's name in its cluster or else where
/// it listens. It stays the same from one start to the next.
fn identity(options: &Options) -> u64 {
    let node = options.agent.as_ref().and_then(AgentOptions::name);
    let node = node.or_else(|| options.broker_key.as_ref().map(|(_, node)| node.clone()));
    let mut hash = blake3::Hasher::new();
    hash.update(&std::fs::read("/etc/machine-id").unwrap_or_default());
    hash.update(node.as_ref().unwrap_or(&options.listen).as_bytes());
    u64::from_le_bytes(*hash.finalize().as_bytes().first_chunk().unwrap_or(&[1; 8])).max(1)
}

/// How connections are encrypted.
fn encryption(options: &Options) -> io::Result<Encrypts> {
    // With a broker, that tells clients by what they know the server.
    let by_default = if options.agent.is_some() { Encryption::Offer } else { Encryption::Off };
    let encrypts = Encrypts::new(&options.tls, by_default)?;
    let (choice, list) = (options.transport, options.connectors);
    let in_the_clear = choice.needs(list, Carrier::Tcp) && !choice.needs(list, Carrier::Tls);
    match choice {
        Choice::Only(kind) if in_the_clear && encrypts.is_required() => {
            let text = format!(
                "{} cannot be encrypted: --transport {kind} and --tls require exclude each other",
                kind.title()
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
        _ => Ok(encrypts),
    }
}

/// The ceilings of each application's process.
fn session_limits(options: &Options, spec: &DeviceSpec) -> Limits {
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let workers = if spec.workers == 0 { processors } else { spec.workers.into() };
    // Workers of each device, links to 256 other servers, and what else a session has.
    let threads = 512 + 2 * workers * u64::from(spec.count.max(1));
    let memory = match (options.session_memory, spec.kind) {
        (Some(memory), _) => memory,
        // What NVIDIA's driver maps, and how much of that it touches, is not known.
        (None, DeviceKind::Nvidia) => 0,
        (None, _) => machine_memory() / 2,
    };
    Limits { memory, threads: options.session_threads.unwrap_or(threads.min(1 << 20) as u32) }
}

/// The machine's memory in bytes; 0 where it does not tell.
fn machine_memory() -> u64 {
    // SAFETY: plain system calls.
    let [pages, bytes] = unsafe { [libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)] };
    u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(bytes).unwrap_or(0))
}

/// Says once what the processes of applications cannot be given here. Must be called before any thread is started.
fn say_what_is_missing(spec: &DeviceSpec, limits: &Limits) {
    if spec.kind == DeviceKind::Nvidia {
        tracing::info!(
            "applications' processes run as this server's user, with its files: NVIDIA's driver needs them \
             (docs/confinement.md)"
        );
        return;
    }
    match walls::look(limits) {
        Ok(None) => {}
        Ok(Some(missing)) => tracing::warn!(
            "applications' processes have to do without {missing}; their system calls are filtered all the same \
             (docs/confinement.md says what to do)"
        ),
        Err(e) => tracing::warn!("what applications' processes can be given could not be found out: {e}"),
    }
}

/// Where images of modules are kept across sessions.
fn image_store(options: &Options) -> Option<Arc<ImageCache>> {
    let root = options.image_cache.as_deref().filter(|_| options.image_cache_bytes > 0)?;
    let opened = ImageCache::open(root, options.image_cache_bytes);
    opened.map(Arc::new).map_err(|e| tracing::warn!("modules are not kept across sessions: {e}")).ok()
}

impl Daemon {
    /// What the agent works on.
    fn site(&self, settled: inventory::Settled) -> Site {
        Site {
            address: self.address,
            settled,
            connectors: self.connectors,
            transport: self.transport,
            tls: self.encrypts.fingerprint().map(|fingerprint| SiteTls {
                required: self.encrypts.is_required(),
                fingerprint: fingerprint.to_string(),
            }),
            ledger: self.ledger.clone(),
            leases: self.leases.clone(),
            applications: self.applications.clone(),
        }
    }

    /// Says on stdout where the server listens.
    fn announce(&self) -> io::Result<()> {
        let mut said = format!("rgpu: listening on {}\n", self.address);
        if let Some(fingerprint) = self.encrypts.fingerprint() {
            said += &format!("rgpu: encrypts with the certificate {fingerprint}\n");
        }
        let mut stdout = io::stdout();
        stdout.write_all(said.as_bytes())?;
        stdout.flush()
    }

    fn children(&self) -> MutexGuard<'_, Vec<u32>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears a client that has begun to speak, and serves it, in a thread of its own.
    fn welcome(self: Arc<Self>, caller: Caller) {
        let body = move || self.client(caller);
        let thread = std::thread::Builder::new().name("client".into()).stack_size(256 << 10).spawn(body);
        if let Err(e) = thread {
            tracing::error!("no thread could be started: {e}");
        }
    }

    /// Ends all sessions.
    fn stop(&self) {
        self.stopping.store(true, SeqCst);
        let children = || self.children().clone();
        let signal_all = |signal| {
            for child in children() {
                // SAFETY: a child that is in the list has not been reaped for longer than an instant, in
                // which its number is not given to another process.
                unsafe { libc::kill(child as libc::pid_t, signal) };
            }
        };
        tracing::info!("stopping, with {} sessions", children().len());
        signal_all(libc::SIGTERM);
        for entrant in self.entrants.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // SAFETY: as above.
            unsafe { libc::kill(*entrant as libc::pid_t, libc::SIGKILL) };
        }
        let end = Instant::now() + STOP_TIME;
        while !children().is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        signal_all(libc::SIGKILL);
    }
}

/// A text from a client, fit for a log.
fn printable(text: &str) -> String {
    rgpu_control::units::printable(&text.chars().take(240).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_need_a_token_or_permission() {
        let options = Options { listen: "0.0.0.0:0".into(), ..Options::default() };
        let error = serve(options).unwrap_err().to_string();
        assert!(["--broker", "--token-file", "--insecure"].iter().all(|o| error.contains(o)), "{error}");
    }

    #[test]
    fn logs_stay_on_one_line() {
        assert_eq!(printable("a\nb\x1b[1m"), "a\\u{a}b\\u{1b}[1m");
    }
}
