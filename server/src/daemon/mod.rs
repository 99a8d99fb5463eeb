//! The daemon: accepts, checks the hello, starts a process for each application, and reaps it.
//!
//! Each connection has a small thread in the daemon, which ends with the application's process. Nothing that
//! a client does reaches further into the daemon than the hello, which is short and read within a time limit. Of a client that
//! speaks TLS the daemon reads the first byte: its process is started at once, speaks with it, and hands the hello over
//! ([`client`]).

mod admission;
mod client;
mod listen;
mod process;
mod session;

use crate::agent::{Agent, Site, SiteTls};
use crate::encryption::Encrypts;
use crate::lease::LeaseTable;
use crate::ledger::Ledger;
use crate::options::{Encryption, Options};
use crate::partition::Partitions;
use crate::peer::{PeerSessions, rule::Rule};
use crate::store::ImageCache;
use crate::{DeviceSpec, inventory};
use admission::{Admits, read_key};
use listen::{Listeners, addresses};
use rgpu_protocol::transport::{Carrier, Choice, Connectors};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many clients may be saying hello at a time.
const MAX_GREETING: usize = 64;
/// How long application servers get to say goodbye when the daemon stops.
const STOP_TIME: Duration = Duration::from_secs(2);
/// What the daemon's threads share.
struct Daemon {
    device: DeviceSpec,
    partitions: Partitions,
    ledger: Arc<Ledger>,
    leases: Arc<LeaseTable>,
    admits: Admits,
    max_sessions: usize,
    /// The transports that there are, and which of them are offered.
    connectors: Connectors,
    transport: Choice,
    encrypts: Encrypts,
    /// How many clients are saying hello.
    greeting: AtomicUsize,
    /// The processes that serve applications.
    children: Mutex<Vec<u32>>,
    /// The processes that speak with clients who are not admitted.
    entrants: Mutex<Vec<u32>>,
    stopping: AtomicBool,
    /// Where images of modules are kept.
    image_cache: Option<Arc<ImageCache>>,
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
    let settled = inventory::settle(options.device.clone())?;
    // Before any thread is started.
    let listeners = Listeners::bind(&options, &addresses)?;
    let address = listeners.address()?;
    let ledger = Arc::new(Ledger::new(&settled.capacity)?);
    let leases = LeaseTable::new(ledger.clone(), settled.spec.count);
    if let Some((key, node)) = key {
        leases.set_identity(node, key);
    }
    let alone = options.agent.is_none() && address.ip().is_loopback();
    let rule = Rule { named: options.peers.clone(), loopback: alone };
    let daemon = Arc::new(Daemon {
        image_cache: image_store(&options),
        peers: PeerSessions::new(rule, leases.clone(), options.agent.is_some()),
        address,
        ledger,
        leases,
        device: settled.spec.clone(),
        partitions: settled.partitions.clone(),
        admits,
        max_sessions: options.max_sessions,
        connectors: options.connectors,
        transport: options.transport,
        encrypts,
        greeting: AtomicUsize::new(0),
        children: Mutex::default(),
        entrants: Mutex::default(),
        stopping: AtomicBool::new(false),
    });
    let agent = options.agent.as_ref().map(|agent| Agent::start(agent, daemon.site(settled))).transpose()?;
    daemon.announce()?;
    while listeners.accept(|socket, peer| daemon.clone().welcome(socket, peer))? {}
    drop(listeners);
    if let Some(agent) = agent {
        agent.stop();
    }
    daemon.stop();
    Ok(())
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

    /// Hears a client that has just connected, and serves it, in a thread of its own.
    fn welcome(self: Arc<Self>, stream: OwnedFd, peer: String) {
        if self.greeting.fetch_add(1, SeqCst) >= MAX_GREETING {
            self.greeting.fetch_sub(1, SeqCst);
            tracing::warn!("{peer}: too many clients at once are saying hello");
            return;
        }
        let counted = self.clone();
        let body = move || self.client(stream, &peer);
        let thread = std::thread::Builder::new().name("client".into()).stack_size(256 << 10).spawn(body);
        if let Err(e) = thread {
            counted.greeting.fetch_sub(1, SeqCst);
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
    text.chars().take(240).map(|c| if c.is_control() { '?' } else { c }).collect()
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
        assert_eq!(printable("a\nb\x1b[1m"), "a?b?[1m");
    }
}
