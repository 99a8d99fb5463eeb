//! The device whose calls are forwarded to a server.
//!
//! [`Remote`] implements [`rgpu_device::Device`] over a [transport](rgpu_protocol::transport). Posted
//! calls gather in one buffer ([`link`]), which keeps their order across threads; it is sent when it is
//! large, when anything is asked, and soon in any case ([`service`]). Whoever waits for an answer reads
//! the connection itself, and hands others what is theirs.
//!
//! **When the connection is lost** (or the server vanishes, or sends something malformed) the reason is
//! written to stderr once, whoever waits gets an error, and every call from then on returns
//! [`Code::SystemNotReady`](rgpu_device::Code::SystemNotReady) (802). Nothing hangs, and nothing is retried.
//!
//! **Callbacks.** [`Host`]'s methods, [`Done`](rgpu_device::Done)s and [`CopySink`](rgpu_device::CopySink)s
//! are called on whatever thread reads the connection, which may hold the sending buffer. They must not call
//! the `Remote` again, nor wait for a thread that does.
//!
//! **Errors of posted calls** arrive with a later answer. The first is returned once by the next
//! synchronisation, query or copy to the host that would otherwise succeed; a sticky one is returned by
//! every later call on its ordinal, until the ordinal is reset.

mod bulk;
mod chunks;
mod connect;
mod convert;
mod credit;
pub(crate) mod device_impl;
mod direct;
mod errors;
mod fork;
mod incoming;
mod link;
mod modules;
mod outgoing;
mod peers;
mod quiet;
mod reserve;
#[cfg(any(test, feature = "test-support"))]
pub mod script;
mod service;
mod stubs;
#[cfg(test)]
mod tests;
mod window;

pub use connect::Encrypt;
use link::Link;
use parking_lot::Mutex;
use reserve::{Reservation, candidates, refusal};
use rgpu_control::proof::Binding;
use rgpu_device::{
    AddressPlan, Code, DeviceInfo, Done, Error, Handle, Host, Ordinal, PreparedLaunch, Range, Region, Result,
    Seat,
};
use rgpu_protocol::calls::{Call, Mark, PeerExpect};
use rgpu_protocol::hello::{
    self, Hello, HelloAnswer, HelloExtras, HelloMore, HelloSeat, MAJOR, MAX_HELLO_ANSWER, MINOR,
    PREFIX_BYTES, Prefix, Status,
};
use rgpu_protocol::stats::Stats;
use rgpu_protocol::transport::{Choice, Kind, Ready, Transport};
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Cuts a copy between regions of the same shape into parts of at most 1 MiB.
pub fn cut(dst: Region, src: Region) -> Vec<(Region, Region)> {
    chunks::chunks(dst, src, false)
}

/// Descriptors of this library are numbered from here, out of the way of the program's own.
const LOWEST_DESCRIPTOR: i32 = 512;

/// Makes a credential for a session, over a connection with this binding.
type Prove = dyn Fn(u64, Option<&Binding>) -> Vec<u8> + Send + Sync;

/// What proves that the client may use the server.
#[derive(Clone)]
pub enum Credential {
    /// Always the same bytes; none where the server wants none.
    Fixed(Vec<u8>),
    /// Made for each session, whose id it is given, and the binding of its connection where that is encrypted.
    Made(Arc<Prove>),
}

impl From<Vec<u8>> for Credential {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Fixed(bytes)
    }
}

impl From<&str> for Credential {
    fn from(text: &str) -> Self {
        Self::Fixed(text.into())
    }
}

/// A place among several servers of one program.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Which of them it is.
    pub seat: Seat,
    /// What is proposed to all of them. Whoever connects has reserved it.
    pub range: Range,
}

/// How to connect.
#[derive(Clone)]
pub struct ConnectOptions {
    /// Proves that the client may use the server; empty where none is needed.
    pub credential: Credential,
    /// How long connecting may take in all.
    pub timeout: Duration,
    /// Which transport to use; without it the environment says (`RGPU_TRANSPORT`).
    pub transport: Option<Choice>,
    /// Whether what leaves the machine is encrypted.
    pub encrypt: Option<Encrypt>,
    /// Whether only to look: such a session has no addresses and no memory, and asks for
    /// [`telemetry`](rgpu_device::Device::telemetry).
    pub observe: bool,
    /// Where the program has several servers: which of them this is. A server that refuses the range is then not asked for
    /// another one: connecting fails with [`Code::MapFailed`].
    pub place: Option<Place>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            credential: Vec::new().into(),
            timeout: connect::time_from_environment(),
            transport: None,
            encrypt: None,
            observe: false,
            place: None,
        }
    }
}

/// A session with a server. See the module's text.
pub struct Remote {
    link: Arc<Link>,
    /// The protocol's minor version that both sides speak.
    minor: u16,
    /// Whether the server copies straight to others.
    meets_peers: bool,
    infos: Vec<DeviceInfo>,
    plan: AddressPlan,
    /// The devices' memory, where server and client share it.
    direct: direct::DirectMemory,
    inventory: modules::Inventory,
    credit: Arc<credit::Credit>,
    /// Mirrored allocations, with their ordinals.
    mirrored: Mutex<HashMap<u64, Ordinal>>,
    /// The plan's addresses are this process's as long as the session lives.
    _reservation: Option<Reservation>,
}

impl Remote {
    /// Connects to `HOST:PORT`, reserving addresses on the way: one round trip after TCP's own.
    pub fn connect(address: &str, options: ConnectOptions, host: Arc<dyn Host>) -> Result<Arc<Self>> {
        let stats = Stats::from_environment();
        let result = Self::try_connect(address, &options, host, stats);
        if result.is_err() {
            stats.failures.fetch_add(1, Relaxed);
        }
        result
    }

    fn try_connect(
        address: &str,
        options: &ConnectOptions,
        host: Arc<dyn Host>,
        stats: &'static Stats,
    ) -> Result<Arc<Self>> {
        let end = Instant::now() + options.timeout;
        let mut candidates = candidates();
        let mut reservation = match options {
            ConnectOptions { observe: true, .. } | ConnectOptions { place: Some(_), .. } => None,
            _ => Some(next_free(&mut candidates)?),
        };
        let session = random();
        let choice = match options.transport {
            Some(choice) => choice,
            None => connect::choice_from_environment()?,
        };
        let encrypt = options.encrypt.as_ref();
        let connect::Opened { stream: transport, binding, local, rdma } =
            connect::open(address, choice, encrypt, options.timeout, stats)?;
        let credential = match &options.credential {
            Credential::Fixed(bytes) => bytes.clone(),
            Credential::Made(make) => make(session, binding.as_ref()),
        };
        loop {
            let reserved = reservation.as_ref().map(Reservation::range).unwrap_or_default();
            let range = options.place.map_or(reserved, |place| place.range);
            let hello = Hello {
                features: if local.is_some() { hello::FEATURE_SHARED_MEMORY } else { 0 }
                    | if rdma.is_some() { hello::FEATURE_RDMA } else { 0 }
                    | if crate::trace::is_on() { hello::FEATURE_TRACE } else { 0 }
                    | if options.observe { hello::FEATURE_OBSERVE } else { 0 }
                    | if options.place.is_some() { hello::FEATURE_PEERS } else { 0 },
                session,
                credential: credential.clone(),
                program: program_name(),
                pid: std::process::id(),
                range: convert::wire_range(range),
            };
            stats.round_trips.fetch_add(1, Relaxed);
            let seat = options.place.map_or(Seat::ALONE, |place| place.seat);
            let more = HelloMore {
                rdma: rdma.as_ref().map_or(Vec::new(), |r| r.info().to_bytes().to_vec()),
                seat: HelloSeat { index: seat.index, of: seat.of },
            };
            let (minor, answer, extras) = exchange(&*transport, &hello::message(&(hello, more)), end, stats)
                .map_err(|e| Error::new(Code::SystemNotReady, format!("{address}: {e}")))?;
            match Status::from_number(answer.status) {
                Status::Accepted if options.place.is_some() && minor < 2 => {
                    let text = format!(
                        "The server {address} is of an older release of rgpu, which serves no program \
                         together with other servers"
                    );
                    return Err(Error::new(Code::SystemNotReady, text));
                }
                Status::Accepted => {
                    stats.sessions.fetch_add(1, Relaxed);
                    stats.encrypted.fetch_add(u64::from(transport.is_encrypted()), Relaxed);
                    let rdma = match rdma {
                        Some(rdma) if answer.features & hello::FEATURE_RDMA != 0 => {
                            match connect::finish_rdma(&*transport, rdma, end) {
                                Ok(rdma) => Some(rdma),
                                Err(e) if choice == Choice::Auto => {
                                    // Both have RDMA, but not the same network.
                                    connect::warn(&format!("RDMA does not reach {address} ({e}): using TCP"));
                                    let only = Some(Choice::Only(Kind::Tcp));
                                    let options = ConnectOptions { transport: only, ..options.clone() };
                                    drop((transport, reservation));
                                    return Self::try_connect(address, &options, host, stats);
                                }
                                Err(e) => {
                                    let text = format!("{address} cannot be reached by RDMA: {e}");
                                    return Err(Error::new(Code::SystemNotReady, text));
                                }
                            }
                        }
                        Some(_) if choice == Choice::Only(Kind::Rdma) => {
                            let text = format!("The server {address} offers no RDMA; its log may say why");
                            return Err(Error::new(Code::SystemNotReady, text));
                        }
                        _ => None,
                    };
                    let (transport, files): (Box<dyn Transport>, _) = match &local {
                        None => match rdma {
                            Some(rdma) => (Box::new(rdma), Vec::new()),
                            None => (transport, Vec::new()),
                        },
                        Some(_) if answer.features & hello::FEATURE_SHARED_MEMORY == 0 => {
                            if choice == Choice::Only(Kind::Shm) {
                                let text = format!(
                                    "The server {address} offers no shared memory that this release of rgpu \
                                     knows: use the same one on both sides"
                                );
                                return Err(Error::new(Code::SystemNotReady, text));
                            }
                            (transport, Vec::new())
                        }
                        Some(socket) => {
                            let left = end.saturating_duration_since(Instant::now());
                            let (shm, files) =
                                connect::take_offer(&*transport, socket, left).map_err(|e| {
                                    let text =
                                        format!("{address}: the server's shared memory cannot be used: {e}");
                                    Error::new(Code::SystemNotReady, text)
                                })?;
                            (Box::new(shm), files)
                        }
                    };
                    return Self::begin(
                        address,
                        transport,
                        files,
                        minor,
                        (answer, extras),
                        (range, reservation),
                        host,
                        stats,
                    );
                }
                Status::RangeRefused if options.observe => {
                    let text = format!(
                        "The server {address} serves nobody who only looks: use the same release of rgpu"
                    );
                    return Err(Error::new(Code::SystemNotReady, text));
                }
                Status::RangeRefused if options.place.is_some() => {
                    let text = format!("The server {address} refuses addresses: {}", answer.message);
                    return Err(Error::new(Code::MapFailed, text));
                }
                Status::RangeRefused => {
                    drop(reservation);
                    let next = next_free(&mut candidates).map_err(|e| {
                        let text =
                            format!("{} (the server refuses smaller ones: {})", e.message, answer.message);
                        Error::new(e.code, text)
                    })?;
                    reservation = Some(next);
                }
                Status::Version | Status::Credential | Status::Unavailable => {
                    let text = format!("The server {address} refuses: {}", answer.message);
                    return Err(Error::new(Code::SystemNotReady, text));
                }
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn begin(
        address: &str,
        transport: Box<dyn Transport>,
        files: Vec<OwnedFd>,
        minor: u16,
        (answer, extras): (HelloAnswer, HelloExtras),
        (reserved, reservation): (Range, Option<Reservation>),
        host: Arc<dyn Host>,
        stats: &'static Stats,
    ) -> Result<Arc<Self>> {
        let plan = convert::plan(&answer.plan);
        let whole = plan.whole;
        let inside = |r: &Range| r.size == 0 || whole.contains(r.base, r.size);
        let agreed = reserved.contains(whole.base, whole.size)
            && plan.devices.iter().chain([&plan.shared]).all(inside)
            && plan.devices.len() == answer.devices.len()
            && plan.devices.len() == answer.credit.len();
        if !agreed {
            let text = format!("The server {address} answered with an address plan that was not agreed");
            return Err(Error::new(Code::SystemNotReady, text));
        }
        let reservation = reservation.map(|reservation| reservation.shrink(whole));
        let link = Link::new(transport, host, stats)?;
        if minor >= Mark::SINCE {
            link.window.open();
        }
        let credit = Arc::new(credit::Credit::new(answer.credit));
        let _ = link.credit.set(credit.clone());
        Ok(Arc::new(Self {
            link,
            minor,
            meets_peers: answer.features & hello::FEATURE_PEERS != 0 && minor >= PeerExpect::SINCE,
            infos: answer.devices.into_iter().map(convert::device_info).collect(),
            direct: direct::DirectMemory::new(&plan, &files),
            plan,
            inventory: modules::Inventory::new(extras),
            credit,
            mirrored: Mutex::default(),
            _reservation: reservation,
        }))
    }

    /// What was agreed about addresses; [`Device::reserve`](rgpu_device::Device::reserve) returns the same.
    pub fn plan(&self) -> &AddressPlan {
        &self.plan
    }

    /// The server's address, for people.
    pub fn address(&self) -> String {
        self.link.transport.peer()
    }

    /// Has a stream stop when it gets there, until [`Remote::release`] is called with the same id. `done` is called when it
    /// has stopped (or never will, because the session is over).
    pub fn hold_later(&self, stream: Handle, id: u64, done: Done) {
        self.link.attention_begins();
        // Whoever is to let the stream go on may have to post something first.
        self.link.bulk.host_func_begins();
        let link = self.link.clone();
        let done: Done = Box::new(move |result| {
            link.attention_ends();
            done(result);
        });
        let call = rgpu_protocol::calls::Hold { stream, id, now: false };
        // A failure has completed the callback.
        let _ = self.link.ask_later(&call, incoming::Pending::Done(done));
    }

    /// Lets a held stream go on.
    pub fn release(&self, id: u64) -> Result<()> {
        self.link.bulk.host_func_ends();
        self.link.release(id).and_then(|()| self.link.flush())
    }

    /// The stream of a prepared launch.
    pub fn stream_of(&self, prepared: &PreparedLaunch) -> Handle {
        device_impl::stream_of(prepared)
    }

    /// Why the session failed, if it did.
    pub fn failure(&self) -> Option<Error> {
        self.link.failure().cloned()
    }

    /// Takes the error of a posted call that an answer has brought, if there is one.
    pub fn take_pending_error(&self) -> Result<()> {
        self.link.errors.take_pending()
    }

    /// Sends what is buffered, without waiting for anything but room.
    pub fn flush(&self) -> Result<()> {
        self.link.flush()
    }

    /// Asks for what the device has changed in mirrored memory, as of its finished work: one round trip.
    /// [`Device::collect_shared_writes`](rgpu_device::Device::collect_shared_writes) then hands it out;
    /// after a synchronisation it does so without this.
    pub fn pull_shared_writes(&self) -> Result<()> {
        self.link.collect_shared_writes()
    }

    /// Ends the session at the program's exit. Never waits, unless calls are traced.
    pub fn goodbye(&self) {
        if crate::trace::is_on() && !self.link.is_over() {
            // The answer brings what the server has measured since the last one.
            let _ = self.link.counters();
        }
        self.link.leave();
    }

    /// For a forked child: forgets the parent's session without any input or output. The child's copy of
    /// the connection has been closed at the fork already.
    pub fn abandon_after_fork(self: Arc<Self>) {
        std::mem::forget(self);
    }
}

/// Addresses for several servers of one program, of which each gets a part.
pub struct CommonAddresses(Reservation);

impl CommonAddresses {
    /// Reserves the best range that was not tried yet, for so many servers, and notes what was tried.
    pub fn next(tried: &mut Vec<Range>, count: u32) -> Result<Self> {
        let mut last = io::Error::from_raw_os_error(libc::ENOMEM);
        for candidate in reserve::candidates_for(count) {
            if tried.contains(&candidate) {
                continue;
            }
            tried.push(candidate);
            match Reservation::new(candidate) {
                Ok(reservation) => return Ok(Self(reservation)),
                Err(e) => last = e,
            }
        }
        Err(refusal(&last))
    }

    /// What was reserved.
    pub fn range(&self) -> Range {
        self.0.range()
    }
}

fn next_free(candidates: &mut impl Iterator<Item = Range>) -> Result<Reservation> {
    let mut last = io::Error::from_raw_os_error(libc::ENOMEM);
    for candidate in candidates {
        match Reservation::new(candidate) {
            Ok(reservation) => return Ok(reservation),
            Err(e) => last = e,
        }
    }
    Err(refusal(&last))
}

fn unreachable_server(address: &str, e: &io::Error) -> Error {
    let advice = match e.kind() {
        io::ErrorKind::ConnectionRefused => "; is `rgpu serve` running there?",
        io::ErrorKind::TimedOut => "; is the address right, and no firewall in between?",
        _ => "",
    };
    Error::new(Code::SystemNotReady, format!("Cannot connect to the server {address}: {e}{advice}"))
}

/// Sends a hello and reads the answer. Returns it with the minor version that both sides speak.
fn exchange(
    transport: &dyn Transport,
    said: &[u8],
    end: Instant,
    stats: &Stats,
) -> std::result::Result<(u16, HelloAnswer, HelloExtras), String> {
    let mut sent = 0;
    while sent < said.len() {
        sent += retry(transport, Ready::WRITE, end, || transport.send(&[IoSlice::new(&said[sent..])]))?;
    }
    stats.bytes_sent.fetch_add(said.len() as u64, Relaxed);
    let read_exact = |into: &mut [u8]| {
        let mut at = 0;
        while at < into.len() {
            let n = retry(transport, Ready::READ, end, || transport.recv(&mut into[at..]))?;
            if n == 0 {
                return Err("the server closed the connection instead of answering".to_owned());
            }
            at += n;
        }
        Ok(())
    };
    let mut bytes = [0; PREFIX_BYTES];
    read_exact(&mut bytes)?;
    let prefix = Prefix::parse(&bytes, MAX_HELLO_ANSWER)
        .map_err(|e| format!("what answers there is no rgpu server: {e}"))?;
    let mut body = vec![0; prefix.length as usize];
    read_exact(&mut body)?;
    stats.bytes_received.fetch_add((PREFIX_BYTES + body.len()) as u64, Relaxed);
    let (answer, extras) =
        HelloAnswer::parse_with_extras(prefix, &body).map_err(|e| format!("the answer is malformed: {e}"))?;
    if answer.status == Status::Accepted as u32 && prefix.major != MAJOR {
        return Err(format!(
            "the server speaks version {}.{} of the protocol, this library {MAJOR}.{MINOR}; \
             use the same release of rgpu on both sides",
            prefix.major, prefix.minor
        ));
    }
    Ok((prefix.minor.min(MINOR), answer, extras))
}

fn retry(
    transport: &dyn Transport,
    want: Ready,
    end: Instant,
    mut action: impl FnMut() -> io::Result<usize>,
) -> std::result::Result<usize, String> {
    loop {
        match action() {
            Ok(n) => return Ok(n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err("the server accepts connections, but does not answer".into());
                }
                transport.wait(want, None, Some(left)).map_err(|e| e.to_string())?;
            }
            Err(e) => return Err(format!("the connection failed during the hello: {e}")),
        }
    }
}

fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: `bytes` is valid for 8 bytes. Failure leaves zeros, and the id is for people anyway.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
    u64::from_le_bytes(bytes)
}

fn program_name() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let mut name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.truncate((0..=128.min(name.len())).rev().find(|&n| name.is_char_boundary(n)).unwrap_or(0));
    name
}
