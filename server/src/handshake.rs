//! What the daemon and the process of an application that is not admitted yet say to each other, where the client speaks TLS.
//!
//! The daemon starts the process before a byte of the client's has been looked at but the first. The process does the handshake
//! and hears the hello; the daemon, which has the certificate's private key and knows who is admitted, signs once and decides:
//!
//! ```text
//!   daemon                                               the application's process
//!   Begin::Handshake (a memory file) ------------------>  confines itself, speaks TLS
//!   <----------------------------------- Ask::Sign -----  in the handshake, once
//!   Tell::Signature ------------------------------------>
//!   <----------------------------------- Ask::Hello ----  what the client has said
//!   Tell::Admitted, with the descriptors of the orders,
//!     the ledger, the store and the channel ------------>  serves the application
//!   or Tell::Refused ----------------------------------->  says so, and ends
//! ```
//!
//! Both believe each other no more than that: a process that a client has taken over can ask for the one signature that the client
//! could have had anyway, and say one hello.

use crate::confine::Limits;
use rgpu_protocol::hello::MAX_HELLO;
use rgpu_protocol::transport::pass::{receive_message, send_message};
use rgpu_protocol::transport::tls::Shown;
use rgpu_protocol::wire::{DecodeError, Reader, Wire, from_bytes, to_bytes};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// The longest of an [`Ask`]: a hello.
const MAX_ASK: usize = 16 + MAX_HELLO;
/// The longest of a [`Tell`]: a refusal, or a signature by a large RSA key.
const MAX_TELL: usize = 64 << 10;
/// What is said of a failure is cut there.
pub(crate) const MAX_TEXT: usize = 1000;

/// What a process is told that is to do a handshake.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Handshake {
    pub peer: String,
    pub daemon: u32,
    /// How long handshake and hello may take, in milliseconds.
    pub time_ms: u32,
    pub shown: Shown,
    /// Whether the devices that an application can get are opened by a process that may do no more than compute, so that the
    /// process confines itself before it hears anything.
    pub confined: bool,
    pub limits: Limits,
    /// Which user of those that nobody else is the process becomes, where it can.
    pub number: u32,
}

impl Wire for Handshake {
    const MIN_BYTES: usize = 4 + 4 + 4 + Shown::MIN_BYTES + 1 + 8 + 4 + 4;
    fn encode(&self, out: &mut Vec<u8>) {
        self.peer.encode(out);
        (self.daemon, self.time_ms).encode(out);
        self.shown.encode(out);
        self.confined.encode(out);
        (self.limits.memory, (self.limits.threads, self.number)).encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let peer = Wire::decode(reader)?;
        let (daemon, time_ms) = Wire::decode(reader)?;
        let shown = Wire::decode(reader)?;
        let confined = Wire::decode(reader)?;
        let (memory, (threads, number)) = Wire::decode(reader)?;
        let limits = Limits { memory, threads };
        Ok(Self { peer, daemon, time_ms, shown, confined, limits, number })
    }
}

/// What the process asks for or tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ask {
    /// A signature of this kind of this message.
    Sign { scheme: u16, message: Vec<u8> },
    /// What the client has said first, and in which version of the protocol.
    Hello { major: u16, minor: u16, body: Vec<u8> },
    /// There is no encrypted connection.
    NoTls(String),
    /// There is one, and what came over it is no hello.
    NoHello(String),
}

impl Wire for Ask {
    const MIN_BYTES: usize = 1 + 4;
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Sign { scheme, message } => {
                1u8.encode(out);
                scheme.encode(out);
                message.encode(out);
            }
            Self::Hello { major, minor, body } => {
                2u8.encode(out);
                (*major, *minor).encode(out);
                body.encode(out);
            }
            Self::NoTls(text) => {
                3u8.encode(out);
                text.encode(out);
            }
            Self::NoHello(text) => {
                4u8.encode(out);
                text.encode(out);
            }
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(reader)? {
            1 => Self::Sign { scheme: Wire::decode(reader)?, message: Wire::decode(reader)? },
            2 => {
                let (major, minor) = Wire::decode(reader)?;
                Self::Hello { major, minor, body: Wire::decode(reader)? }
            }
            3 => Self::NoTls(Wire::decode(reader)?),
            4 => Self::NoHello(Wire::decode(reader)?),
            value => return Err(DecodeError::Unknown { what: "A wish", value: value.into() }),
        })
    }
}

/// What the daemon answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tell {
    /// What was asked for.
    Signature(Vec<u8>),
    /// The client is to be told this, and no more.
    Refused(Vec<u8>),
    /// The client is served. The message has six descriptors: orders, the ledger's three, store and the channel to other servers.
    Admitted,
}

impl Wire for Tell {
    const MIN_BYTES: usize = 1;
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Signature(bytes) => {
                1u8.encode(out);
                bytes.encode(out);
            }
            Self::Refused(bytes) => {
                2u8.encode(out);
                bytes.encode(out);
            }
            Self::Admitted => 3u8.encode(out),
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(reader)? {
            1 => Self::Signature(Wire::decode(reader)?),
            2 => Self::Refused(Wire::decode(reader)?),
            3 => Self::Admitted,
            value => return Err(DecodeError::Unknown { what: "An answer", value: value.into() }),
        })
    }
}

/// One end of the socket between the two.
#[derive(Debug)]
pub(crate) struct Line(OwnedFd);

impl Line {
    /// Two ends.
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(a), Self(b)))
    }

    /// The end with this descriptor.
    pub(crate) fn from_descriptor(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    fn send(&self, message: &impl Wire, descriptors: &[RawFd]) -> io::Result<()> {
        let bytes = to_bytes(message);
        // A fresh socket has room for the few messages that there are.
        let sent = send_message(self.0.as_raw_fd(), &bytes, descriptors)?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// The other end's next message; `None` where there will be none.
    fn receive<T: Wire>(&self, most: usize, end: Instant) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut room = vec![0; most];
        loop {
            match receive_message(self.0.as_raw_fd(), &mut room) {
                Ok((0, _)) => return Ok(None),
                Ok((n, descriptors)) => {
                    let message = from_bytes(&room[..n]);
                    let message = message.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
                    return Ok(Some((message, descriptors)));
                }
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait(end)?,
                Err(e) => return Err(e),
            }
        }
    }

    /// Until there is something to receive, or the other end has gone.
    fn wait(&self, end: Instant) -> io::Result<()> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut fds = [libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        let most = i32::try_from(left.as_millis()).unwrap_or(i32::MAX).max(1);
        // SAFETY: `fds` is valid for its length.
        if unsafe { libc::poll(fds.as_mut_ptr(), 1, most) } < 0 {
            let e = io::Error::last_os_error();
            return if e.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(e) };
        }
        Ok(())
    }

    /// In the process: says something, and waits for nothing.
    pub(crate) fn ask(&self, ask: &Ask) -> io::Result<()> {
        self.send(ask, &[])
    }

    /// In the process: the daemon's answer.
    pub(crate) fn answer(&self, end: Instant) -> io::Result<(Tell, Vec<OwnedFd>)> {
        self.receive(MAX_TELL, end)?.ok_or_else(|| io::Error::other("the daemon has gone"))
    }

    /// In the daemon: what the process wants; `None` where it has gone.
    pub(crate) fn asked(&self, end: Instant) -> io::Result<Option<Ask>> {
        Ok(self.receive(MAX_ASK, end)?.map(|(ask, _)| ask))
    }

    /// In the daemon: answers.
    pub(crate) fn tell(&self, tell: &Tell, descriptors: &[RawFd]) -> io::Result<()> {
        self.send(tell, descriptors)
    }

    /// In the daemon: waits until the process has gone, or the time is over. What it says is not looked at.
    pub(crate) fn wait_for_end(&self, time: Duration) {
        let end = Instant::now() + time;
        let mut room = [0; MAX_ASK];
        loop {
            match receive_message(self.0.as_raw_fd(), &mut room) {
                Ok((n, _)) if n > 0 => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && self.wait(end).is_ok() => {}
                _ => return,
            }
        }
    }
}

impl AsRawFd for Line {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A text that fits into a message.
pub(crate) fn short(error: &io::Error) -> String {
    error.to_string().chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_protocol::transport::tls::Identity;

    #[test]
    fn messages_come_back_and_parts_of_them_are_refused() {
        let asks = [
            Ask::Sign { scheme: 7, message: vec![1; 130] },
            Ask::Hello { major: 1, minor: 2, body: vec![3; MAX_HELLO] },
            Ask::NoTls("a".into()),
            Ask::NoHello("b".into()),
        ];
        for ask in asks {
            let bytes = to_bytes(&ask);
            assert!(bytes.len() <= MAX_ASK);
            assert_eq!(from_bytes::<Ask>(&bytes), Ok(ask));
            assert!((0..bytes.len()).all(|end| from_bytes::<Ask>(&bytes[..end]).is_err()));
        }
        for tell in [Tell::Signature(vec![1; 70]), Tell::Refused(vec![2; 300]), Tell::Admitted] {
            let bytes = to_bytes(&tell);
            assert_eq!(from_bytes::<Tell>(&bytes), Ok(tell));
            assert!((0..bytes.len()).all(|end| from_bytes::<Tell>(&bytes[..end]).is_err()));
        }
        let made = rcgen::generate_simple_self_signed(vec!["rgpu".to_owned()]).unwrap();
        let key = made.signing_key.serialize_pem();
        let identity = Identity::from_pem(made.cert.pem().as_bytes(), key.as_bytes()).unwrap();
        let start = Handshake {
            peer: "a".into(),
            daemon: 1,
            time_ms: 2,
            shown: identity.shown(),
            confined: true,
            limits: Limits { memory: 3, threads: 4 },
            number: 5,
        };
        let bytes = to_bytes(&start);
        assert_eq!(from_bytes::<Handshake>(&bytes), Ok(start));
        // The private key is nowhere in it.
        let secret = made.signing_key.serialize_der();
        let secret = &secret[secret.len() / 2 - 16..secret.len() / 2];
        assert!(!bytes.windows(16).any(|window| window == secret));
    }

    #[test]
    fn messages_and_descriptors_cross_a_line_and_its_end_is_seen() {
        let (daemon, process) = Line::pair().unwrap();
        let end = || Instant::now() + Duration::from_secs(30);
        process.ask(&Ask::NoTls("a".into())).unwrap();
        assert_eq!(daemon.asked(end()).unwrap(), Some(Ask::NoTls("a".into())));
        let some = daemon.as_raw_fd();
        daemon.tell(&Tell::Admitted, &[some; 4]).unwrap();
        let (tell, descriptors) = process.answer(end()).unwrap();
        assert_eq!((tell, descriptors.len()), (Tell::Admitted, 4));
        // What was passed is the daemon's end, too.
        drop((process, descriptors));
        assert_eq!(daemon.asked(end()).unwrap(), None);
        daemon.wait_for_end(Duration::from_secs(30));
    }
}
