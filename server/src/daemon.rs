//! The daemon: accepts, checks the hello, starts a process for each application, and reaps it.
//!
//! Each connection has a small thread in the daemon, which ends with the application's process. Nothing that
//! a client does reaches further into the daemon than the hello, which is short and read within a time limit.

use crate::agent::{Agent, Site, SiteTls};
use crate::app::{CONNECTION, LEDGER, ORDERS, Orders, PEERS, STORE, hear_any, say};
use crate::encryption::{Encrypts, Wire};
use crate::lease::{Admission, LeaseTable};
use crate::ledger::Ledger;
use crate::local::{self, LocalListener};
use crate::options::{Encryption, Options};
use crate::partition::{Arrangement, Partitions};
use crate::peer::{self, Channel, Switchboard, rule::Rule};
use crate::store::{ImageCache, Tenant, TenantImages};
use crate::{APP_SERVER_COMMAND, DeviceSpec, inventory};
use rgpu_control::proof::Binding;
use rgpu_control::token::PublicKey;
use rgpu_protocol::hello::{
    FEATURE_EARLIER_SHARED_MEMORY, FEATURE_LINK, FEATURE_OBSERVE, FEATURE_PEERS, FEATURE_RDMA,
    FEATURE_SHARED_MEMORY, Hello, HelloAnswer, HelloExtras, HelloMore, MAJOR, MINOR, Status,
};
use rgpu_protocol::transport::{Choice, Kind, Tcp, Transport};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a client may take for its hello.
const HELLO_TIME: Duration = Duration::from_secs(15);
/// How many clients may be saying hello at a time.
const MAX_STRANGERS: usize = 64;
/// How long application servers get to say goodbye when the daemon stops.
const STOP_TIME: Duration = Duration::from_secs(2);
/// Longest token.
const MAX_TOKEN: usize = 4096;

/// Who is served.
#[derive(Debug, Default)]
struct Admits {
    /// Who knows this token.
    token: Option<Vec<u8>>,
    /// Who has a lease.
    leases: bool,
    /// Everybody.
    everybody: bool,
}

/// A stranger whose hello is in order.
struct Heard {
    wire: Wire,
    hello: Hello,
    more: HelloMore,
    /// The protocol's minor version that it speaks.
    minor: u16,
    lease: Option<Admission>,
}

/// What the daemon's threads share.
struct Daemon {
    device: DeviceSpec,
    partitions: Partitions,
    ledger: Arc<Ledger>,
    leases: Arc<LeaseTable>,
    admits: Admits,
    max_sessions: usize,
    transport: Choice,
    encrypts: Encrypts,
    strangers: AtomicUsize,
    children: Mutex<Vec<u32>>,
    stopping: AtomicBool,
    /// Where images of modules are kept.
    cupboard: Option<Arc<ImageCache>>,
    /// Where sessions meet other servers.
    peers: Arc<Switchboard>,
    address: SocketAddr,
}

/// Serves until SIGTERM or SIGINT. Prints one line on stdout when it listens.
pub fn serve(options: Options) -> io::Result<()> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    let token = options.token_file.as_deref().map(read_token).transpose()?;
    let addresses: Vec<_> = options
        .listen
        .to_socket_addrs()
        .map_err(|e| {
            invalid(format!(
                "`{}` is no address to listen on ({e}): give HOST:PORT, such as 127.0.0.1:7070 or [::1]:7070",
                options.listen
            ))
        })?
        .collect();
    let key = options.broker_key.as_ref().map(|(path, node)| Ok::<_, io::Error>((read_key(path)?, node)));
    let key = key.transpose()?;
    let leases = key.is_some() || options.agent.is_some();
    if token.is_none() && !leases && !options.insecure && addresses.iter().any(|a| !a.ip().is_loopback()) {
        return Err(invalid(format!(
            "Others can reach {}: give --broker URL, --token-file FILE, or --insecure to serve anybody",
            options.listen
        )));
    }
    // A token is asked for wherever there is one; without one and without a broker, whoever reaches the address is served.
    let everybody = token.is_none() && (options.insecure || !leases);
    let admits = Admits { token, leases, everybody };
    // With a broker, that tells clients by what they know the server.
    let by_default = if options.agent.is_some() { Encryption::Offer } else { Encryption::Off };
    let encrypts = Encrypts::new(&options.tls, by_default)?;
    if encrypts.is_required() && options.transport == Choice::Only(Kind::Rdma) {
        return Err(invalid(
            "RDMA cannot be encrypted: --transport rdma and --tls require exclude each other".into(),
        ));
    }
    let settled = inventory::settle(options.device)?;
    // Before any thread is started, so that all of them leave the signals to this one.
    let signals = signal_descriptor(&[libc::SIGTERM, libc::SIGINT])?;
    let listener = TcpListener::bind(&addresses[..])
        .map_err(|e| io::Error::new(e.kind(), format!("Cannot listen on {}: {e}", options.listen)))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let cupboard = options.image_cache.as_deref().filter(|_| options.image_cache_bytes > 0);
    let cupboard = cupboard.and_then(|root| match ImageCache::open(root, options.image_cache_bytes) {
        Ok(cupboard) => Some(Arc::new(cupboard)),
        Err(e) => {
            tracing::warn!("modules are not kept across sessions: {e}");
            None
        }
    });
    let ledger = Arc::new(Ledger::new(&settled.capacity)?);
    let leases = LeaseTable::new(ledger.clone(), settled.spec.count);
    if let Some((key, node)) = key {
        leases.set_identity(node, key);
    }
    let alone = options.agent.is_none() && address.ip().is_loopback();
    let rule = Rule { named: options.peers, loopback: alone };
    let daemon = Arc::new(Daemon {
        cupboard,
        peers: Switchboard::new(rule, leases.clone(), options.agent.is_some()),
        address,
        ledger,
        leases,
        device: settled.spec.clone(),
        partitions: settled.partitions.clone(),
        admits,
        max_sessions: options.max_sessions,
        transport: options.transport,
        encrypts,
        strangers: AtomicUsize::new(0),
        children: Mutex::default(),
        stopping: AtomicBool::new(false),
    });
    let local = match options.transport.allows(Kind::Shm).then(|| LocalListener::bind(&address)) {
        None => None,
        Some(Ok(local)) => Some(local),
        Some(Err(e)) if options.transport == Choice::Auto => {
            tracing::warn!("clients on this machine have to use TCP: {e}");
            None
        }
        Some(Err(e)) => return Err(e),
    };
    let agent = options.agent.as_ref().map(|agent| {
        let site = Site {
            address,
            settled,
            transport: options.transport,
            tls: daemon.encrypts.fingerprint().map(|fingerprint| SiteTls {
                required: daemon.encrypts.is_required(),
                fingerprint: fingerprint.to_string(),
            }),
            ledger: daemon.ledger.clone(),
            leases: daemon.leases.clone(),
        };
        Agent::start(agent, site)
    });
    let agent = agent.transpose()?;
    let mut stdout = io::stdout();
    let mut said = format!("rgpu: listening on {address}\n");
    if let Some(fingerprint) = daemon.encrypts.fingerprint() {
        said += &format!("rgpu: encrypts with the certificate {fingerprint}\n");
    }
    stdout.write_all(said.as_bytes())?;
    stdout.flush()?;
    while !poll(&listener, local.as_ref(), &signals)? {
        if let Some(local) = &local {
            match local.accept() {
                Ok(Some((socket, peer))) => daemon.clone().welcome(socket, peer),
                Ok(None) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => tracing::warn!("accepting failed: {e}"),
            }
        }
        match listener.accept() {
            Ok(_) if options.transport == Choice::Only(Kind::Shm) => {}
            Ok((stream, peer)) => daemon.clone().welcome(stream.into(), peer.to_string()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => {
                // Out of descriptors, or the client has gone already: either passes.
                tracing::warn!("accepting failed: {e}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
    drop(listener);
    if let Some(agent) = agent {
        agent.stop();
    }
    daemon.stop();
    Ok(())
}

fn read_token(path: &std::path::Path) -> io::Result<Vec<u8>> {
    let name = |e: io::Error| io::Error::new(e.kind(), format!("Cannot read {}: {e}", path.display()));
    let text = std::fs::read(path).map_err(name)?;
    let token = text.trim_ascii();
    if token.is_empty() || token.len() > MAX_TOKEN {
        let text = format!("{} must hold 1 to {MAX_TOKEN} bytes", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(token.to_vec())
}

fn read_key(path: &std::path::Path) -> io::Result<PublicKey> {
    let name = |e: io::Error| io::Error::new(e.kind(), format!("Cannot read {}: {e}", path.display()));
    let text = std::fs::read_to_string(path).map_err(name)?;
    PublicKey::parse(&text).ok_or_else(|| {
        let text = format!("{} does not hold a broker's public key", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

/// Waits for a connection; true on a signal to stop.
fn poll(listener: &TcpListener, local: Option<&LocalListener>, signals: &OwnedFd) -> io::Result<bool> {
    let readable = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let local = local.map_or(-1, AsRawFd::as_raw_fd);
    let mut fds = [readable(listener.as_raw_fd()), readable(signals.as_raw_fd()), readable(local)];
    loop {
        // SAFETY: `fds` is valid for its length.
        if unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1) } >= 0 {
            return Ok(fds[1].revents != 0);
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

fn signal_descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: all zeros is a valid set; the rest are plain system calls on it.
    let fd = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        libc::signalfd(-1, &set, libc::SFD_CLOEXEC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Daemon {
    fn welcome(self: Arc<Self>, stream: OwnedFd, peer: String) {
        if self.strangers.fetch_add(1, SeqCst) >= MAX_STRANGERS {
            self.strangers.fetch_sub(1, SeqCst);
            tracing::warn!("{peer}: too many clients at once are saying hello");
            return;
        }
        let counted = self.clone();
        let body = move || self.client(stream, &peer);
        let thread = std::thread::Builder::new().name("client".into()).stack_size(256 << 10).spawn(body);
        if let Err(e) = thread {
            counted.strangers.fetch_sub(1, SeqCst);
            tracing::error!("no thread could be started: {e}");
        }
    }

    fn client(&self, stream: OwnedFd, peer: &str) {
        let heard = self.hear(stream, peer);
        self.strangers.fetch_sub(1, SeqCst);
        let Some(Heard { wire, hello, more, minor, lease }) = heard else { return };
        let refuse = |text: &str| {
            tracing::warn!("{peer}: refused: {text}");
            let _ = say(&*wire, &HelloAnswer::refused(Status::Unavailable, text));
        };
        if self.stopping.load(SeqCst) {
            return refuse("the server is being stopped");
        }
        let terms = lease.as_ref().map(|lease| &lease.terms[..]);
        let arranged =
            match self.partitions.arrange(&self.device, terms, hello.features & FEATURE_OBSERVE != 0) {
                Ok(arranged) => arranged,
                Err(why) => return refuse(&why.to_string()),
            };
        let sessions = self.children.lock().unwrap_or_else(PoisonError::into_inner).len();
        let slot = if sessions < self.max_sessions { self.ledger.take_slot() } else { None };
        let Some(slot) = slot else {
            return refuse(&format!("it serves {sessions} applications already, which is its limit"));
        };
        if let Some(lease) = &lease
            && let Err(why) = self.leases.begin(lease, slot)
        {
            self.ledger.clear_slot(slot);
            tracing::warn!("{peer}: refused: {why}");
            let _ = say(&*wire, &HelloAnswer::refused(Status::Credential, why.to_string()));
            return;
        }
        let name = printable(&hello.program);
        let (session, pid) = (hello.session, hello.pid);
        let shelf = self.shelf(&*wire, &hello, lease.as_ref(), peer);
        let (peers, channel) = self.meet_peers(&*wire, &hello, lease.as_ref()).unzip();
        let orders = Orders {
            device: arranged.device.clone(),
            ceiling: arranged.ceiling,
            slot: slot as u32,
            daemon: std::process::id(),
            peer: peer.to_owned(),
            // The application's process has no use for the credential.
            hello: Hello { credential: Vec::new(), ..hello },
            rdma: more.rdma,
            minor: minor.min(MINOR),
            seat: more.seat,
            extras: HelloExtras {
                keeps_images: shelf.is_some(),
                images: shelf.as_ref().map(TenantImages::beginnings).unwrap_or_default(),
            },
            peers: peers.as_ref().map(|open| open.identity().clone()),
            tls: match wire.hand_over() {
                Ok(handed) => handed,
                Err(e) => {
                    self.leave(slot, lease.as_ref());
                    return tracing::error!("{peer}: the encrypted session cannot be handed on: {e}");
                }
            },
        };
        let encrypted = if wire.is_encrypted() { ", encrypted," } else { "" };
        match self.start(wire.descriptor(), channel, &orders, &arranged, lease.as_ref()) {
            Ok((mut child, socket)) => {
                // Only the child's end of it stays, so that its death closes the connection.
                drop((wire, orders));
                match &lease {
                    None => tracing::info!(
                        "{peer}: session {session:016x} of {name} (process {pid}){encrypted} begins"
                    ),
                    Some(lease) => tracing::info!(
                        lease = %lease.lease,
                        tenant = printable(&lease.tenant),
                        held_by = arranged.describe(),
                        "{peer}: session {session:016x} of {name} (process {pid}){encrypted} begins"
                    ),
                }
                if let (Some(shelf), Some(socket)) = (&shelf, socket) {
                    shelf.serve(socket);
                }
                let status = child.wait();
                drop(peers);
                self.children.lock().unwrap_or_else(PoisonError::into_inner).retain(|c| *c != child.id());
                let died = match status {
                    Ok(s) if s.success() => None,
                    Ok(s) => Some(match s.signal() {
                        Some(signal) => format!("its server process was killed by signal {signal}"),
                        None => format!("its server process failed with status {}", s.code().unwrap_or(-1)),
                    }),
                    Err(e) => Some(format!("its server process is lost: {e}")),
                };
                let s = self.ledger.slot(slot);
                let reason = died.or_else(|| s.reason()).unwrap_or_else(|| "for a reason unknown".into());
                tracing::info!(
                    launches = s.launches.load(SeqCst),
                    bytes_in = s.bytes_in.load(SeqCst),
                    bytes_out = s.bytes_out.load(SeqCst),
                    peak_memory = s.peak_memory.load(SeqCst),
                    "{peer}: session {session:016x} of {name} ends: {}",
                    printable(&reason)
                );
            }
            Err(e) => {
                tracing::error!("{peer}: no process could be started: {e}");
                if let Ok(wire) = wire.take_back(orders.tls) {
                    let text = format!("no process could be started: {e}");
                    let _ = say(&*wire, &HelloAnswer::refused(Status::Unavailable, text));
                }
            }
        }
        self.leave(slot, lease.as_ref());
    }

    /// A session has ended.
    fn leave(&self, slot: usize, lease: Option<&Admission>) {
        match lease {
            None => self.ledger.clear_slot(slot),
            Some(lease) => self.leases.end(lease.lease, slot),
        }
    }

    /// Reads and checks what a stranger says.
    fn hear(&self, stream: OwnedFd, peer: &str) -> Option<Heard> {
        let adopted = match local::is_local(stream.as_raw_fd()) {
            true => Ok(Tcp::local(stream, peer.to_owned())),
            false => Tcp::adopt(stream, peer.to_owned()),
        };
        let tcp = match adopted {
            Ok(tcp) => tcp,
            Err(e) => {
                tracing::warn!("{peer}: {e}");
                return None;
            }
        };
        let (end, here) = (Instant::now() + HELLO_TIME, local::is_local(tcp.descriptor()));
        let wire = match if here { Ok(Wire::Plain(tcp)) } else { self.encrypts.greet(tcp, end) } {
            Ok(wire) => wire,
            Err(e) => {
                tracing::warn!("{peer}: no encrypted connection: {e}");
                return None;
            }
        };
        let refuse = |status, text: String| {
            tracing::warn!("{peer}: refused: {text}");
            let _ = say(&*wire, &HelloAnswer::refused(status, text));
        };
        let (prefix, body) = match hear_any(&*wire, end) {
            Ok(heard) => heard,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                tracing::debug!("{peer}: left without saying hello");
                return None;
            }
            Err(e) => {
                refuse(Status::Unavailable, format!("the hello is not one of rgpu's: {e}"));
                return None;
            }
        };
        if prefix.major != MAJOR {
            let text = format!(
                "it speaks version {MAJOR}.{MINOR} of the protocol, the client {}.{}; use the same release \
                 of rgpu on both sides",
                prefix.major, prefix.minor
            );
            refuse(Status::Version, text);
            return None;
        }
        let (mut hello, mut more) = match Hello::parse_with_more(&body) {
            Ok(hello) => hello,
            Err(e) => {
                refuse(Status::Unavailable, format!("the hello is malformed: {e}"));
                return None;
            }
        };
        let plain = !here && !wire.is_encrypted();
        if plain && self.encrypts.is_required() {
            let text = "it takes encrypted connections only: start the program with `rgpu run --encrypt` and, without a \
                        broker, RGPU_TLS_FINGERPRINT or RGPU_TLS_CA";
            refuse(Status::Unavailable, text.into());
            return None;
        }
        if hello.features & FEATURE_LINK != 0 {
            // Another server, which a session waits for, or none does.
            match &wire {
                Wire::Plain(tcp) => self.peers.arrive(tcp, &hello, peer),
                Wire::Tls(_) => refuse(Status::Unavailable, "other servers come without encryption".into()),
            }
            return None;
        }
        let lease = match self.check(&hello, wire.binding().as_ref()) {
            Ok(lease) => lease,
            Err(text) => {
                refuse(Status::Credential, text);
                return None;
            }
        };
        if plain && lease.as_ref().is_some_and(Admission::is_encrypted) {
            let text =
                "its lease is for encrypted connections only: start the program with `rgpu run --encrypt`";
            refuse(Status::Credential, text.into());
            return None;
        }
        if wire.is_encrypted() {
            // Neither can be.
            hello.features &= !(FEATURE_RDMA | FEATURE_SHARED_MEMORY);
        }
        if hello.features & FEATURE_EARLIER_SHARED_MEMORY != 0 {
            let text = "its shared memory works otherwise: use the same release of rgpu on both sides, or \
                        `rgpu run --transport tcp`";
            refuse(Status::Unavailable, text.into());
            return None;
        }
        if !self.transport.allows(Kind::Rdma) || hello.features & FEATURE_RDMA == 0 {
            hello.features &= !FEATURE_RDMA;
            more.rdma.clear();
        }
        if self.transport == Choice::Only(Kind::Rdma) && more.rdma.is_empty() {
            refuse(Status::Unavailable, "it is reached by RDMA alone (`rgpu run --transport rdma`)".into());
            return None;
        }
        Some(Heard { wire, hello, more, minor: prefix.minor, lease })
    }

    /// Whether somebody is served, and by which lease.
    fn check(&self, hello: &Hello, binding: Option<&Binding>) -> Result<Option<Admission>, String> {
        let Admits { token, leases, everybody } = &self.admits;
        if token.as_ref().is_some_and(|token| same(token, &hello.credential)) {
            return Ok(None);
        }
        // Who may come as they are may still bring a lease, and is held to it.
        if *leases && !(*everybody && hello.credential.is_empty()) {
            let admitted = self.leases.admit_bound(&hello.credential, hello.session, binding);
            return admitted.map(Some).map_err(|e| e.to_string());
        }
        match (*everybody, hello.credential.is_empty()) {
            (true, _) => Ok(None),
            (false, true) => Err("it wants a token (RGPU_TOKEN_FILE, or `rgpu run --token-file`)".into()),
            (false, false) => Err("the token is wrong".into()),
        }
    }

    /// A place among other servers, for an application that has several and whose data may travel between them in the clear.
    fn meet_peers(
        &self,
        tcp: &dyn Transport,
        hello: &Hello,
        lease: Option<&Admission>,
    ) -> Option<(peer::Open, Channel)> {
        let wanted = hello.features & FEATURE_PEERS != 0 && self.transport.allows(Kind::Tcp);
        if !wanted || tcp.is_encrypted() || lease.is_some_and(Admission::is_encrypted) {
            return None;
        }
        let opened = self.peers.open(lease.map(|lease| lease.lease));
        opened.map_err(|e| tracing::warn!("no copies go straight to other servers: {e}")).ok()
    }

    /// Where an application's modules are kept: nowhere, if it cannot be told whose it is.
    fn shelf(
        &self,
        tcp: &dyn Transport,
        hello: &Hello,
        lease: Option<&Admission>,
        peer: &str,
    ) -> Option<TenantImages> {
        let cupboard = self.cupboard.as_ref()?;
        let tenant = if let Some(lease) = lease {
            Tenant::of_broker(&lease.tenant)
        } else if self.admits.token.is_some() {
            Tenant::of_token(&hello.credential)
        } else if local::is_local(tcp.descriptor()) {
            Tenant::of_user(local::user(tcp.descriptor())?)
        } else {
            Tenant::of_loopback(self.address, peer.parse().ok()?)?
        };
        cupboard.of_tenant(&tenant).map_err(|e| tracing::warn!("modules are not kept: {e}")).ok()
    }

    /// Starts the process that serves an application. The socket is where it asks for images.
    fn start(
        &self,
        connection: RawFd,
        peers: Option<Channel>,
        orders: &Orders,
        arranged: &Arrangement,
        lease: Option<&Admission>,
    ) -> io::Result<(Child, Option<UnixStream>)> {
        let (slot, keeps_images) = (orders.slot as usize, orders.extras.keeps_images);
        let orders = memory_file(&orders.to_bytes())?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(APP_SERVER_COMMAND).stdin(Stdio::null()).stdout(Stdio::null());
        inventory::without_our_variables(&mut command);
        command.envs(arranged.environment.iter().map(|(name, value)| (name, value)));
        let (ours, theirs) = match keeps_images.then(UnixStream::pair).transpose()? {
            Some((ours, theirs)) => (Some(ours), Some(theirs)),
            None => (None, None),
        };
        let descriptors = [
            (connection, CONNECTION),
            (orders.as_raw_fd(), ORDERS),
            (self.ledger.descriptor(), LEDGER),
            // Without a store this is nothing that the process would look at.
            (theirs.as_ref().map_or(orders.as_raw_fd(), AsRawFd::as_raw_fd), STORE),
            // Likewise.
            (peers.as_ref().map_or(orders.as_raw_fd(), AsRawFd::as_raw_fd), PEERS),
        ];
        // SAFETY: only async-signal-safe functions are called.
        unsafe { command.pre_exec(move || prepare_child(descriptors)) };
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.spawn()?;
        children.push(child.id());
        drop(children);
        if let Some(lease) = lease {
            self.leases.started(lease.lease, slot, child.id());
        }
        Ok((child, ours))
    }

    /// Ends all sessions.
    fn stop(&self) {
        self.stopping.store(true, SeqCst);
        let children = || self.children.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let signal_all = |signal| {
            for child in children() {
                // SAFETY: a child that is in the list has not been reaped for longer than an instant, in
                // which its number is not given to another process.
                unsafe { libc::kill(child as libc::pid_t, signal) };
            }
        };
        tracing::info!("stopping, with {} sessions", children().len());
        signal_all(libc::SIGTERM);
        let end = Instant::now() + STOP_TIME;
        while !children().is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        signal_all(libc::SIGKILL);
    }
}

/// Runs in the child between fork and exec.
fn prepare_child(descriptors: [(RawFd, RawFd); 5]) -> io::Result<()> {
    let check = |r: libc::c_int| if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r) };
    // SAFETY: plain system calls, all async-signal-safe.
    unsafe {
        // Away from the places where they are to go first, so that none overwrites another.
        let mut high = [0; 5];
        for (place, (from, _)) in high.iter_mut().zip(descriptors) {
            *place = check(libc::fcntl(from, libc::F_DUPFD_CLOEXEC, 16))?;
        }
        for (from, (_, to)) in high.into_iter().zip(descriptors) {
            check(libc::dup2(from, to))?;
        }
        // The daemon's own are close-on-exec anyway; this is for what it has inherited.
        libc::syscall(libc::SYS_close_range, PEERS + 1, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        // A Ctrl-C is the daemon's business.
        libc::setsid();
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
    Ok(())
}

/// A file that is nowhere but in memory.
pub(crate) fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: the name is a valid string; the result is a fresh descriptor.
    let fd = unsafe { libc::memfd_create(c"rgpu-orders".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    let mut file = unsafe { std::fs::File::from_raw_fd(fd) };
    file.write_all(bytes)?;
    Ok(file.into())
}

/// Compares in a time that tells nothing but the length.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |d, (x, y)| d | (x ^ y)) == 0
}

/// A text from a stranger, fit for a log.
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
    fn tokens_are_compared_whole() {
        assert!(same(b"abc", b"abc"));
        assert!(!same(b"abc", b"abd") && !same(b"abc", b"ab") && !same(b"abc", b""));
    }

    #[test]
    fn logs_stay_on_one_line() {
        assert_eq!(printable("a\nb\x1b[1m"), "a?b?[1m");
    }
}
