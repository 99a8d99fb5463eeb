//! Where clients come: a TCP listener, a Unix socket beside it, the door behind both, and the signals that end the server.

use super::door::{Caller, Door, Source};
use crate::local::LocalListener;
use crate::options::Options;
use rgpu_protocol::sys::SignalSet;
use rgpu_protocol::transport::{Carrier, Choice};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// What `--listen` means.
pub(super) fn addresses(options: &Options) -> io::Result<Vec<SocketAddr>> {
    let addresses = options.listen.to_socket_addrs().map_err(|e| {
        let text = format!(
            "`{}` is no address to listen on ({e}): give HOST:PORT, such as 127.0.0.1:7070 or [::1]:7070",
            options.listen
        );
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })?;
    Ok(addresses.collect())
}

/// The listeners, and what ends listening.
pub(super) struct Listeners {
    tcp: TcpListener,
    /// Whether clients that come by TCP are served; otherwise they are let go at once.
    serves_tcp: bool,
    local: Option<LocalListener>,
    /// Readable on a signal to stop.
    _signals: OwnedFd,
    door: Door,
}

/// What the door tells of the listeners: their tokens.
const SIGNALS: u64 = 0;
const TCP: u64 = 1;
const LOCAL: u64 = 2;
/// So many clients of a kind are accepted before others are looked after.
const IN_A_ROW: usize = 64;

impl Listeners {
    /// Listens. Must be called before any thread is started, so that all of them leave SIGTERM and SIGINT to this one.
    pub(super) fn bind(options: &Options, addresses: &[SocketAddr]) -> io::Result<Self> {
        let stop = SignalSet::of(&[libc::SIGTERM, libc::SIGINT]);
        stop.block();
        let signals = stop.descriptor()?;
        let tcp = TcpListener::bind(addresses)
            .map_err(|e| io::Error::new(e.kind(), format!("Cannot listen on {}: {e}", options.listen)))?;
        tcp.set_nonblocking(true)?;
        let choice = options.transport;
        let needs = |carrier| choice.needs(options.connectors, carrier);
        let local = match needs(Carrier::Local).then(|| LocalListener::bind(&tcp.local_addr()?)) {
            None => None,
            Some(Ok(local)) => Some(local),
            Some(Err(e)) if choice == Choice::Auto => {
                tracing::warn!("clients on this machine have to use TCP: {e}");
                None
            }
            Some(Err(e)) => return Err(e),
        };
        let door = Door::new()?;
        door.watch(signals.as_raw_fd(), SIGNALS)?;
        door.watch(tcp.as_raw_fd(), TCP)?;
        if let Some(local) = &local {
            door.watch(local.as_raw_fd(), LOCAL)?;
        }
        Ok(Self { tcp, serves_tcp: needs(Carrier::Tcp), local, _signals: signals, door })
    }

    /// Where TCP is listened for.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Waits for clients, and says who can be heard; `None` on a signal to stop.
    pub(super) fn next(&mut self) -> io::Result<Option<Vec<Caller>>> {
        let seen = self.door.wait()?;
        if seen.watched.contains(&SIGNALS) {
            return Ok(None);
        }
        if seen.watched.contains(&LOCAL) {
            self.accept_local();
        }
        if seen.watched.contains(&TCP) {
            self.accept_tcp();
        }
        Ok(Some(seen.callers))
    }

    fn accept_local(&mut self) {
        let Some(local) = &self.local else { return };
        for _ in 0..IN_A_ROW {
            match local.accept() {
                Ok((socket, peer)) => self.door.enter(socket, peer, Source::Local),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) => return refused(&mut self.door, &e),
            }
        }
    }

    fn accept_tcp(&mut self) {
        for _ in 0..IN_A_ROW {
            match self.tcp.accept() {
                Ok(_) if !self.serves_tcp => {}
                Ok((stream, peer)) => {
                    self.door.enter(stream.into(), peer.to_string(), Source::Address(peer.ip()));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) => return refused(&mut self.door, &e),
            }
        }
    }
}

/// Out of descriptors, or the client has gone already: either passes.
fn refused(door: &mut Door, e: &io::Error) {
    tracing::warn!("accepting failed: {e}");
    if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) && !door.make_room() {
        std::thread::sleep(Duration::from_millis(50));
    }
}
