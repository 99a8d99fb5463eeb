//! Copies straight from one server to another: how two servers know each other, and who may connect where.
//!
//! A program has sessions with both. From the receiving one it gets a *key* and gives it to the sending one, whose daemon
//! connects to the other daemon, at its ordinary port. The connection is handed to the receiving session's process, and
//! nothing but bytes of copies travels over it, in one direction. The processes themselves open no sockets: they are
//! confined.
//!
//! **Keys.** A session's keys are numbered, and made of a root that its process and the daemon share ([`Identity`]), so that
//! the daemon can check one without keeping any. Each is good for one connection, for a minute, as long as the session lives.
//! Both sides prove to know the key's secret, which never crosses the wire between them ([`Introduction`]): whoever listens at
//! the address in the other server's place gets no bytes of the program's memory, and nothing that it could use elsewhere.
//! A key that is not good is answered in the same words whatever is wrong with it.
//!
//! **Where a daemon connects** is not the program's to say: see [`rule`].
//!
//! Between a daemon and a session's process there is a [`Channel`], whose messages are [`Ask`] and [`Tell`].

pub mod rule;
mod sessions;

pub use sessions::{PeerSessions, Registration, refusal};

use rgpu_protocol::calls::PeerKey;
use rgpu_protocol::transport::pass::{receive_message, send_message};
use rgpu_protocol::wire::{DecodeError, from_bytes, to_bytes};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// What is said of any key that is not good.
pub const REFUSAL: &str = "no session waits for this server";

/// Messages between a daemon and a session's process are no longer than this.
const MAX_MESSAGE: usize = 4096;
/// Until there is room for a message. The other side reads at once.
const ROOM_MS: libc::c_int = 1000;

/// What a session's keys are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its name in the daemon's table.
    pub session: [u8; 16],
    /// Known to the daemon and the session's process.
    pub root: [u8; 32],
}

impl Identity {
    /// A new one.
    pub fn random() -> Self {
        Self { session: rgpu_control::token::random_bytes(), root: rgpu_control::token::random_bytes() }
    }

    /// The key with a number.
    pub fn key(&self, number: u64) -> PeerKey {
        let mut hasher = blake3::Hasher::new_keyed(&self.root);
        hasher.update(b"rgpu 2026 key of a link");
        hasher.update(&number.to_le_bytes());
        PeerKey { session: self.session, number, secret: *hasher.finalize().as_bytes() }
    }
}

/// Who proves something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Connecting,
    Answering,
}

fn proof(key: &PeerKey, side: Side, nonce: &[u8; 16]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(&key.secret);
    hasher.update(match side {
        Side::Connecting => b"rgpu 2026 link: connecting",
        Side::Answering => b"rgpu 2026 link: answering.",
    });
    hasher.update(nonce);
    hasher.finalize()
}

/// What the connecting server shows in its hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Introduction {
    /// Which session it wants to reach.
    pub session: [u8; 16],
    /// With which key.
    pub number: u64,
    /// Made up for this connection.
    pub nonce: [u8; 16],
    proof: [u8; 32],
}

impl Introduction {
    const BYTES: usize = 16 + 8 + 16 + 32;

    /// Shows that a key is known.
    pub fn new(key: &PeerKey, nonce: [u8; 16]) -> Self {
        let proof = *proof(key, Side::Connecting, &nonce).as_bytes();
        Self { session: key.session, number: key.number, nonce, proof }
    }

    /// Whether whoever sent it knows the key. Takes as long whatever is wrong.
    pub fn knows(&self, key: &PeerKey) -> bool {
        self.session == key.session
            && self.number == key.number
            && proof(key, Side::Connecting, &self.nonce) == blake3::Hash::from_bytes(self.proof)
    }

    /// The hello's credential. It is in hexadecimal digits, because some of it is the program's choice: sent to something
    /// that is no rgpu server, it must not have a meaning there.
    pub fn to_credential(&self) -> Vec<u8> {
        let bytes = [&self.session[..], &self.number.to_le_bytes(), &self.nonce, &self.proof].concat();
        bytes.iter().flat_map(|b| [b >> 4, b & 15]).map(|d| b"0123456789abcdef"[usize::from(d)]).collect()
    }

    /// Reads a hello's credential.
    pub fn parse(credential: &[u8]) -> Option<Self> {
        if credential.len() != 2 * Self::BYTES {
            return None;
        }
        let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
        let mut bytes = [0; Self::BYTES];
        for (byte, pair) in bytes.iter_mut().zip(credential.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self {
            session: bytes[..16].try_into().ok()?,
            number: u64::from_le_bytes(bytes[16..24].try_into().ok()?),
            nonce: bytes[24..40].try_into().ok()?,
            proof: bytes[40..].try_into().ok()?,
        })
    }
}

/// Shows, in the answer to an introduction, that the key is known here, too.
pub fn answer(key: &PeerKey, nonce: &[u8; 16]) -> [u8; 32] {
    *proof(key, Side::Answering, nonce).as_bytes()
}

/// Whether an answer shows that.
pub fn is_answer(key: &PeerKey, nonce: &[u8; 16], answer: [u8; 32]) -> bool {
    proof(key, Side::Answering, nonce) == blake3::Hash::from_bytes(answer)
}

/// What a session's process asks the daemon for: a connection.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// To be named in the answer.
    pub link: u64,
    /// The node to connect to, where the session's lease names it.
    pub node: String,
    /// Its address, as the program knows it.
    pub address: String,
    /// What to show there.
    pub key: PeerKey,
}

impl Ask {
    /// As a message.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_bytes(&((self.link, self.node.clone()), (self.address.clone(), self.key.clone())))
    }

    /// Reads a message.
    pub fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let ((link, node), (address, key)) = from_bytes(bytes)?;
        Ok(Self { link, node, address, key })
    }
}

/// What the daemon tells a session's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tell {
    /// The connection that was asked for. A descriptor comes with it.
    Connected {
        /// As it was asked for.
        link: u64,
    },
    /// There is none.
    Failed {
        /// As it was asked for.
        link: u64,
        /// Why, for people.
        text: String,
    },
    /// Another server has shown that it knows a key. A descriptor comes with it, on which the answer is still to be given.
    Arrived {
        /// The key's.
        number: u64,
        /// For the answer.
        nonce: [u8; 16],
    },
}

impl Tell {
    /// As a message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (kind, number, nonce, text) = match self {
            Self::Connected { link } => (0u8, *link, [0; 16], ""),
            Self::Failed { link, text } => (1, *link, [0; 16], text.as_str()),
            Self::Arrived { number, nonce } => (2, *number, *nonce, ""),
        };
        to_bytes(&((kind, number), (nonce, text.to_owned())))
    }

    /// Reads a message.
    pub fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let ((kind, number), (nonce, text)): ((u8, u64), ([u8; 16], String)) = from_bytes(bytes)?;
        Ok(match kind {
            0 => Self::Connected { link: number },
            1 => Self::Failed { link: number, text },
            2 => Self::Arrived { number, nonce },
            _ => return Err(DecodeError::Unknown { what: "word of the daemon", value: kind.into() }),
        })
    }
}

/// One end of what a daemon and a session's process talk over: whole messages, with descriptors.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl From<OwnedFd> for Channel {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Channel {
    /// Both ends of a new channel.
    pub fn pair() -> io::Result<(Self, Self)> {
        let mut ends = [-1; 2];
        let flags = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: `ends` has room for the two descriptors.
        if unsafe { libc::socketpair(libc::AF_UNIX, flags, 0, ends.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded: both are fresh descriptors that nobody else owns.
        let [one, other] = ends.map(|fd| Self(unsafe { OwnedFd::from_raw_fd(fd) }));
        Ok((one, other))
    }

    /// Sends a message.
    pub fn send(&self, message: &[u8], descriptor: Option<RawFd>) -> io::Result<()> {
        if message.len() > MAX_MESSAGE {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        loop {
            match send_message(self.as_raw_fd(), message, descriptor.as_slice()) {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait(libc::POLLOUT, ROOM_MS)?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Waits for a message; none where the other side has gone.
    pub fn receive(&self) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
        let mut buffer = [0; MAX_MESSAGE];
        loop {
            match receive_message(self.as_raw_fd(), &mut buffer) {
                Ok((0, _)) => return Ok(None),
                Ok((n, mut descriptors)) => return Ok(Some((buffer[..n].to_vec(), descriptors.pop()))),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait(libc::POLLIN, -1)?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Whoever waits at either end learns that it is over.
    pub fn shut(&self) {
        // SAFETY: plain system call.
        unsafe { libc::shutdown(self.as_raw_fd(), libc::SHUT_RDWR) };
    }

    fn wait(&self, events: libc::c_short, milliseconds: libc::c_int) -> io::Result<()> {
        let mut fd = libc::pollfd { fd: self.as_raw_fd(), events, revents: 0 };
        // SAFETY: `fd` is one valid entry.
        match unsafe { libc::poll(&mut fd, 1, milliseconds) } {
            0 => Err(io::ErrorKind::TimedOut.into()),
            n if n < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted => {
                Err(io::Error::last_os_error())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_prove_that_they_know_the_key() {
        let (one, other) = (Identity::random(), Identity::random());
        let key = one.key(5);
        assert_eq!(key, one.key(5));
        let sent = Introduction::new(&key, [7; 16]).to_credential();
        assert!(sent.iter().all(u8::is_ascii_hexdigit));
        let heard = Introduction::parse(&sent).unwrap();
        assert!(heard.knows(&key));
        let imposter = PeerKey { session: one.session, ..other.key(5) };
        for wrong in [one.key(6), other.key(5), imposter.clone()] {
            assert!(!heard.knows(&wrong));
        }
        let shown = answer(&key, &heard.nonce);
        assert!(is_answer(&key, &[7; 16], shown));
        assert!(!is_answer(&key, &[8; 16], shown) && !is_answer(&imposter, &[7; 16], shown));
        // What one side has shown does not do for the other.
        assert!(!is_answer(&key, &[7; 16], heard.proof));
        for n in 0..sent.len() {
            assert_eq!(Introduction::parse(&sent[..n]), None);
        }
        assert_eq!(Introduction::parse(&[b'g'; 144]), None);
    }

    #[test]
    fn messages_cross_with_their_descriptors() {
        let (here, there) = Channel::pair().unwrap();
        let key = Identity::random().key(3);
        let ask = Ask { link: 9, node: "n".into(), address: "a:1".into(), key };
        here.send(&ask.to_bytes(), None).unwrap();
        let words = [
            Tell::Connected { link: 1 },
            Tell::Failed { link: 2, text: "why".into() },
            Tell::Arrived { number: 3, nonce: [4; 16] },
        ];
        for word in &words {
            here.send(&word.to_bytes(), Some(here.as_raw_fd())).unwrap();
        }
        let (bytes, descriptor) = there.receive().unwrap().unwrap();
        assert_eq!((Ask::parse(&bytes).unwrap(), descriptor.is_none()), (ask, true));
        for word in words {
            let (bytes, descriptor) = there.receive().unwrap().unwrap();
            assert_eq!((Tell::parse(&bytes).unwrap(), descriptor.is_some()), (word, true));
        }
        assert!(Tell::parse(&[9; 40]).is_err() && Ask::parse(b"").is_err());
        assert!(here.send(&[0; MAX_MESSAGE + 1], None).is_err());
        drop(here);
        assert!(there.receive().unwrap().is_none());
    }
}
