//! Finding a way to the server.

use super::{LOWEST_DESCRIPTOR, unreachable_server};
use rgpu_control::proof::Binding;
use rgpu_device::{Code, Error, Result};
use rgpu_protocol::stats::Stats;
use rgpu_protocol::transport::tls::{Tls, Trust};
use rgpu_protocol::transport::{
    Choice, Kind, Rdma, RdmaInfo, Ready, Shm, TRANSPORT_VARIABLE, Tcp, Transport, local_name,
};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixStream};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A connection on which nothing has been said yet.
pub(super) struct Opened {
    /// Carries the hello.
    pub stream: Box<dyn Transport>,
    /// What ties a lease's proof to it, where it is encrypted.
    pub binding: Option<Binding>,
    /// The same again, where shared memory is to take over.
    pub local: Option<OwnedFd>,
    /// Our end of a connection by RDMA, which the server may take.
    pub rdma: Option<Rdma>,
}

/// How long connecting may take: what `RGPU_CONNECT_TIMEOUT` says, in seconds, or 20: a server on which many programs
/// start at once takes its time.
pub(super) fn time_from_environment() -> Duration {
    let given = std::env::var("RGPU_CONNECT_TIMEOUT").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.filter(|s| (1..=3600).contains(s)).unwrap_or(20))
}

/// What `RGPU_TRANSPORT` says.
pub(super) fn choice_from_environment() -> Result<Choice> {
    match std::env::var(TRANSPORT_VARIABLE) {
        Ok(text) if !text.is_empty() => {
            text.parse().map_err(|e| Error::new(Code::SystemNotReady, format!("{TRANSPORT_VARIABLE}: {e}")))
        }
        _ => Ok(Choice::Auto),
    }
}

/// That what leaves the machine is encrypted, and by what the server is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encrypt {
    /// By what the server is known; without it no server on another machine is used.
    pub trust: Option<Trust>,
    /// Why there is nothing to know it by, and what to do.
    pub missing: String,
}

/// Connects to `HOST:PORT`: over a Unix socket where the server is on this machine, else over TCP, encrypted where that is
/// wanted.
pub(super) fn open(
    address: &str,
    choice: Choice,
    encrypt: Option<&Encrypt>,
    time: Duration,
    stats: &Stats,
) -> Result<Opened> {
    let end = Instant::now() + time;
    if choice.allows(Kind::Shm) {
        if let Some(socket) = open_local(address) {
            let stream = socket.try_clone().map_err(|e| unreachable_server(address, &e))?;
            return Ok(Opened {
                stream: Box::new(Tcp::local(stream, address.to_owned()).move_above(LOWEST_DESCRIPTOR)),
                binding: None,
                local: Some(socket),
                rdma: None,
            });
        }
        if choice == Choice::Only(Kind::Shm) {
            let text = format!(
                "No server for {address} offers shared memory on this machine; is `rgpu serve` running here, \
                 for the same user? (Without {TRANSPORT_VARIABLE} or --transport, TCP would be used)"
            );
            return Err(Error::new(Code::SystemNotReady, text));
        }
    }
    if encrypt.is_some() && choice == Choice::Only(Kind::Rdma) {
        let text = format!(
            "The connection to the server {address} is to be encrypted, and RDMA cannot be: leave out \
             --transport rdma ({TRANSPORT_VARIABLE}) or --encrypt"
        );
        return Err(Error::new(Code::SystemNotReady, text));
    }
    let trust = match encrypt {
        None => None,
        Some(Encrypt { trust: Some(trust), .. }) => Some(trust),
        Some(Encrypt { missing, .. }) => {
            let text = format!("The connection to the server {address} is to be encrypted: {missing}");
            return Err(Error::new(Code::SystemNotReady, text));
        }
    };
    let stream = Tcp::connect(address, time)
        .map_err(|e| unreachable_server(address, &e))?
        .move_above(LOWEST_DESCRIPTOR);
    // Over a Unix socket nobody waits for the server to accept.
    stats.round_trips.fetch_add(1, Relaxed);
    if let Some(trust) = trust {
        stats.round_trips.fetch_add(1, Relaxed);
        let tls = Tls::connect(stream, address, trust, end).map_err(|e| {
            let why = match e.kind() {
                io::ErrorKind::UnexpectedEof => {
                    "it closed the connection during the TLS handshake; its log says more".into()
                }
                _ => e.to_string(),
            };
            let text = format!("No encrypted connection to the server {address}: {why}");
            Error::new(Code::SystemNotReady, text)
        })?;
        let binding = Some(tls.server().0);
        return Ok(Opened { stream: Box::new(tls), binding, local: None, rdma: None });
    }
    // On this machine TCP is as fast as a network device's detour, if not faster.
    let tries = match choice {
        Choice::Auto => stream.local_ip().is_some_and(|ip| !ip.is_loopback()),
        Choice::Only(kind) => kind == Kind::Rdma,
    };
    let rdma = match tries.then(|| Rdma::open(&stream, LOWEST_DESCRIPTOR)) {
        Some(Ok(rdma)) => Some(rdma),
        Some(Err(e)) if choice != Choice::Auto => {
            return Err(Error::new(Code::SystemNotReady, format!("RDMA cannot be used: {e}")));
        }
        _ => None,
    };
    Ok(Opened { stream: Box::new(stream), binding: None, local: None, rdma })
}

/// Connects to the server's end, which is told about right behind the answer, and sees whether that works.
pub(super) fn finish_rdma(stream: &dyn Transport, rdma: Rdma, end: Instant) -> io::Result<Rdma> {
    let mut bytes = [0; RdmaInfo::BYTES];
    let mut at = 0;
    while at < bytes.len() {
        match stream.recv(&mut bytes[at..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => at += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                stream.wait(Ready::READ, None, Some(left))?;
            }
            Err(e) => return Err(e),
        }
    }
    let info = RdmaInfo::parse(&bytes).ok_or(io::ErrorKind::InvalidData)?;
    rdma.connect(info)?;
    rdma.probe()?;
    Ok(rdma)
}

fn open_local(address: &str) -> Option<OwnedFd> {
    for meaning in address.to_socket_addrs().ok()? {
        if !is_here(meaning.ip()) {
            continue;
        }
        let any: IpAddr = match meaning.ip() {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        for address in [meaning, SocketAddr::new(any, meaning.port())] {
            let Ok(name) = UnixAddress::from_abstract_name(local_name(&address)) else { continue };
            let Ok(stream) = UnixStream::connect_addr(&name) else { continue };
            let socket = OwnedFd::from(stream);
            // Anybody could listen under that name: memory is shared with this user's servers alone.
            if is_ours(&socket) {
                return Some(socket);
            }
        }
    }
    None
}

/// Whether an address is one of this machine's.
fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

fn is_ours(socket: &OwnedFd) -> bool {
    let mut who = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both are valid places for the answer; the other call is plain.
    unsafe {
        let fd = socket.as_raw_fd();
        let r = libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &mut length);
        r == 0 && who.uid == libc::geteuid()
    }
}

/// Receives what the server passes over the socket once it has accepted.
pub(super) fn take_offer(
    stream: &dyn Transport,
    socket: &OwnedFd,
    time: Duration,
) -> io::Result<(Shm, Vec<OwnedFd>)> {
    let end = Instant::now() + time;
    loop {
        match Shm::join(socket, LOWEST_DESCRIPTOR, stream.peer()) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                stream.wait(Ready::READ, None, Some(left))?;
            }
            result => return result,
        }
    }
}

/// Writes a line to stderr, in one piece; a closed stderr is no reason to fail.
pub(super) fn warn(text: &str) {
    let _ = io::Write::write_all(&mut io::stderr(), format!("rgpu: {text}\n").as_bytes());
}
