//! Where clients come: a TCP listener, a Unix socket beside it, and the signals that end the server.

use crate::local::LocalListener;
use crate::options::Options;
use rgpu_protocol::sys::SignalSet;
use rgpu_protocol::transport::{Carrier, Choice};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
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
    signals: OwnedFd,
}

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
        Ok(Self { tcp, serves_tcp: needs(Carrier::Tcp), local, signals })
    }

    /// Where TCP is listened for.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Waits for clients, and accepts one of each kind at most; false on a signal to stop.
    pub(super) fn accept(&self, mut welcome: impl FnMut(OwnedFd, String)) -> io::Result<bool> {
        if self.wait()? {
            return Ok(false);
        }
        if let Some(local) = &self.local {
            match local.accept() {
                Ok(Some((socket, peer))) => welcome(socket, peer),
                Ok(None) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => tracing::warn!("accepting failed: {e}"),
            }
        }
        match self.tcp.accept() {
            Ok(_) if !self.serves_tcp => {}
            Ok((stream, peer)) => welcome(stream.into(), peer.to_string()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => {
                // Out of descriptors, or the client has gone already: either passes.
                tracing::warn!("accepting failed: {e}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(true)
    }

    /// Waits for a connection; true on a signal to stop.
    fn wait(&self) -> io::Result<bool> {
        let readable = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let local = self.local.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let mut fds = [readable(self.tcp.as_raw_fd()), readable(self.signals.as_raw_fd()), readable(local)];
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
}
