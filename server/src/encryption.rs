//! Connections that are encrypted (TLS): who gets one, the certificate, and the relay.
//!
//! The keys stay in the daemon. An application's process gets one end of a pair of sockets; two threads of the daemon carry what
//! comes over the one to the other, and encrypt and decrypt on the way. Both have a buffer of a fixed size and wait where the
//! other side does not read. When either side ends, the other is told.

use crate::options::{Encryption, TlsOptions};
use rgpu_protocol::transport::tls::{FIRST_BYTE, Fingerprint, Identity};
use rgpu_protocol::transport::{Ready, Tcp, Tls, Transport};
use std::fs::{self, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a thread that waits looks whether the other machine still answers.
const LOOK: Duration = Duration::from_secs(2);
/// How long a process that does not read may take for what a client has sent before it left.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// How long a client may take for what a process has sent before it ended.
const FAREWELL: Duration = Duration::from_secs(5);
/// What is carried at a time.
const BUFFER: usize = 64 << 10;
/// The relay's threads need little.
const STACK: usize = 256 << 10;

/// How a server encrypts.
#[derive(Debug)]
pub struct Encrypts {
    identity: Option<Identity>,
    required: bool,
}

impl Encrypts {
    /// By the options; a certificate is made where none was given.
    pub fn new(options: &TlsOptions, by_default: Encryption) -> io::Result<Self> {
        let mode = options.encryption.unwrap_or(by_default);
        let identity = match (mode, &options.files) {
            (Encryption::Off, None) => None,
            (Encryption::Off, Some(_)) => {
                let text = "--tls-certificate is of no use with --tls off: say --tls offer or --tls require";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            (_, None) => {
                let (certificate, key) = make()?;
                Some(Identity::from_pem(certificate.as_bytes(), key.as_bytes())?)
            }
            (_, Some((certificate, key))) => Some(from_files(certificate, key)?),
        };
        Ok(Self { identity, required: mode == Encryption::Require })
    }

    /// By what clients know this server, if it encrypts.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.identity.as_ref().map(Identity::fingerprint)
    }

    /// Whether only encrypted connections are taken from other machines.
    pub fn is_required(&self) -> bool {
        self.required
    }

    /// Looks at how a client begins, and goes on in that way.
    pub fn greet(&self, tcp: Tcp, end: Instant) -> io::Result<Wire> {
        match &self.identity {
            Some(identity) if first_byte(&tcp, end)? == Some(FIRST_BYTE) => {
                Tls::accept(tcp, identity, end).map(|tls| Wire::Tls(Arc::new(tls)))
            }
            _ => Ok(Wire::Plain(tcp)),
        }
    }
}

/// A client's first byte, which stays where it is; none where the client leaves.
fn first_byte(tcp: &Tcp, end: Instant) -> io::Result<Option<u8>> {
    let mut byte = 0u8;
    loop {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        // SAFETY: receives one byte into a valid place.
        let n = unsafe { libc::recv(tcp.descriptor(), (&raw mut byte).cast(), 1, flags) };
        match n {
            0 => return Ok(None),
            1 => return Ok(Some(byte)),
            _ => {}
        }
        let e = io::Error::last_os_error();
        match e.kind() {
            io::ErrorKind::Interrupted => continue,
            io::ErrorKind::WouldBlock => {}
            _ => return Err(e),
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        tcp.wait(Ready::READ, None, Some(left))?;
    }
}

/// A certificate that nobody has signed but itself, and its key: PEM.
fn make() -> io::Result<(String, String)> {
    let made = rcgen::generate_simple_self_signed(vec!["rgpu".to_owned()]).map_err(io::Error::other)?;
    Ok((made.cert.pem(), made.signing_key.serialize_pem()))
}

/// What two files hold. Where neither exists, they are made.
fn from_files(certificate: &Path, key: &Path) -> io::Result<Identity> {
    let named = |path: &Path, e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    if !certificate.exists() && !key.exists() {
        let (public, private) = make()?;
        let create = |path: &Path, mode, text: &str| {
            let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
            file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|e| named(path, e))
        };
        create(key, 0o600, &private)?;
        create(certificate, 0o644, &public)?;
        tracing::info!("made a certificate, {}", certificate.display());
    }
    let about = fs::metadata(key).map_err(|e| named(key, e))?;
    if about.mode() & 0o007 != 0 {
        let text = format!("the private key {} is readable by every user: chmod 600 it", key.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let read = |path: &Path| fs::read(path).map_err(|e| named(path, e));
    Identity::from_pem(&read(certificate)?, &read(key)?).map_err(|e| named(certificate, e))
}

/// A client's connection.
pub enum Wire {
    /// As it comes.
    Plain(Tcp),
    /// Encrypted.
    Tls(Arc<Tls>),
}

impl Deref for Wire {
    type Target = dyn Transport;
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => &**tls,
        }
    }
}

impl Wire {
    /// What ties a lease's proof to it.
    pub fn binding(&self) -> Option<[u8; 32]> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => Some(tls.server().0),
        }
    }

    /// What an application's process is given in place of an encrypted connection, and what becomes the relay.
    pub fn pair(&self) -> io::Result<Option<(Ends, OwnedFd)>> {
        let Self::Tls(tls) = self else { return Ok(None) };
        let (ours, theirs) = UnixStream::pair()?;
        Ok(Some((Ends { tls: tls.clone(), socket: ours }, theirs.into())))
    }
}

/// What a relay is to connect.
pub struct Ends {
    tls: Arc<Tls>,
    socket: UnixStream,
}

/// Carries bytes between an application and its process.
pub struct Relay {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Ends {
    /// Begins to carry.
    pub fn relay(self) -> io::Result<Relay> {
        self.tls.tcp().probe_when_idle()?;
        let ends = Arc::new(self);
        let ended = Arc::new(AtomicBool::new(false));
        let mut relay = Relay { ended: ended.clone(), threads: Vec::new() };
        let thread = |name: &str| std::thread::Builder::new().name(name.into()).stack_size(STACK);
        let down = ends.clone();
        let to_client = move || down.to_client(&ended);
        relay.threads.push(thread("to-client").spawn(to_client).inspect_err(|_| ends.part())?);
        let up = ends.clone();
        relay.threads.push(thread("to-process").spawn(move || up.to_process()).inspect_err(|_| ends.part())?);
        Ok(relay)
    }

    /// Both sides see that the other has gone.
    fn part(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        self.tls.shutdown();
    }

    /// From the client to the process, until one of them has gone.
    fn to_process(&self) {
        let mut buffer = vec![0; BUFFER];
        loop {
            match self.tls.recv(&mut buffer) {
                // The process may still have something to say.
                Ok(0) => break drop(self.socket.shutdown(Shutdown::Write)),
                Ok(n) if self.deliver(&buffer[..n]) => {}
                Ok(_) => break drop(self.socket.shutdown(Shutdown::Write)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let ready = self.tls.wait(Ready::READ, None, Some(LOOK));
                    if !ready.is_ok_and(|ready| ready.read) && self.tls.is_unanswered() {
                        break self.part();
                    }
                }
                Err(e) => {
                    tracing::debug!("{}: {e}", self.tls.peer());
                    break self.part();
                }
            }
        }
    }

    /// Hands bytes to the process. False where it has gone, or the client has and the process takes no notice.
    fn deliver(&self, mut bytes: &[u8]) -> bool {
        let mut left_at = None;
        while !bytes.is_empty() {
            let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
            // SAFETY: the bytes are valid for their length.
            let n = unsafe { libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
            if n >= 0 {
                bytes = &bytes[n as usize..];
                continue;
            }
            match io::Error::last_os_error().kind() {
                io::ErrorKind::Interrupted => continue,
                io::ErrorKind::WouldBlock => {}
                _ => return false,
            }
            let time = match left_at {
                None => LOOK,
                Some(at) => LAST_WORDS.saturating_sub(Instant::elapsed(&at)),
            };
            if time.is_zero() || self.tls.is_unanswered() {
                return false;
            }
            let client = if left_at.is_none() { self.tls.descriptor() } else { -1 };
            let mut fds = [
                libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 },
                libc::pollfd { fd: client, events: libc::POLLRDHUP, revents: 0 },
            ];
            // SAFETY: `fds` is valid for its length.
            unsafe { libc::poll(fds.as_mut_ptr(), 2, time.as_millis().max(1) as libc::c_int) };
            if fds[1].revents != 0 {
                left_at = Some(Instant::now());
            }
        }
        true
    }

    /// From the process to the client, until one of them has gone.
    fn to_client(&self, ended: &AtomicBool) {
        let mut buffer = vec![0; BUFFER];
        loop {
            match (&self.socket).read(&mut buffer) {
                Ok(n) if n > 0 && self.send(&buffer[..n], ended) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                _ => return self.part(),
            }
        }
    }

    /// Sends bytes to the client. False where it has gone, or is too slow for what a process has left behind.
    fn send(&self, mut bytes: &[u8], ended: &AtomicBool) -> bool {
        let mut ended_at = None;
        while !bytes.is_empty() {
            match self.tls.send(&[IoSlice::new(bytes)]) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if ended.load(SeqCst) && ended_at.get_or_insert_with(Instant::now).elapsed() > FAREWELL {
                        return false;
                    }
                    let ready = self.tls.wait(Ready::WRITE, None, Some(LOOK));
                    if !ready.is_ok_and(|ready| ready.write) && self.tls.is_unanswered() {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
        true
    }
}

impl Relay {
    /// The process has ended: what it has sent is still delivered, if the client takes it.
    pub fn finish(self) {
        self.ended.store(true, SeqCst);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_protocol::transport::tls::Trust;
    use std::net::{TcpListener, TcpStream};

    /// Only tells hanging from working.
    const LIMIT: Duration = Duration::from_secs(30);

    fn options(encryption: Encryption) -> TlsOptions {
        TlsOptions { encryption: Some(encryption), files: None }
    }

    /// A client's encrypted connection, the process's end, and the relay in between.
    fn connected() -> (Tls, UnixStream, Relay) {
        let encrypts = Encrypts::new(&options(Encryption::Require), Encryption::Off).unwrap();
        let trust = Trust::Fingerprints(vec![encrypts.fingerprint().unwrap()]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let end = Instant::now() + LIMIT;
        let client = std::thread::spawn(move || {
            let tcp = Tcp::adopt(TcpStream::connect(address).unwrap().into(), "server".into()).unwrap();
            Tls::connect(tcp, "server:1", &trust, end).unwrap()
        });
        let tcp = Tcp::adopt(listener.accept().unwrap().0.into(), "client".into()).unwrap();
        let wire = encrypts.greet(tcp, end).unwrap();
        assert!(wire.is_encrypted() && wire.binding() == encrypts.fingerprint().map(|f| f.0));
        let (ends, theirs) = wire.pair().unwrap().unwrap();
        drop(wire);
        let few: libc::c_int = 4096;
        let (fd, length) = (ends.socket.as_raw_fd(), size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: the option's value is an int.
        unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, (&raw const few).cast(), length) };
        let process = UnixStream::from(theirs);
        process.set_read_timeout(Some(LIMIT)).unwrap();
        (client.join().unwrap(), process, ends.relay().unwrap())
    }

    fn patiently(tls: &Tls, want: Ready, mut action: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        loop {
            match action() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let ready = tls.wait(want, None, Some(LIMIT)).unwrap();
                    assert!(ready.read || ready.write, "nothing happens");
                }
                result => return result,
            }
        }
    }

    #[test]
    fn bytes_are_carried_both_ways_and_wait_for_who_does_not_read() {
        let (client, mut process, relay) = connected();
        let bytes: Vec<u8> = (0..10_000_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut at = 0;
                while at < bytes.len() {
                    let send = || client.send(&[IoSlice::new(&bytes[at..])]);
                    at += patiently(&client, Ready::WRITE, send).unwrap();
                }
            });
            let mut echo = vec![0; bytes.len()];
            process.read_exact(&mut echo).unwrap();
            assert!(echo == bytes);
        });
        std::thread::scope(|scope| {
            scope.spawn(|| process.write_all(&bytes).unwrap());
            let (mut got, mut buffer) = (Vec::new(), vec![0; 100_000]);
            while got.len() < bytes.len() {
                let n = patiently(&client, Ready::READ, || client.recv(&mut buffer)).unwrap();
                got.extend_from_slice(&buffer[..n]);
            }
            assert!(got == bytes);
        });
        drop(process);
        relay.finish();
    }

    #[test]
    fn the_process_s_end_reaches_the_client_after_its_last_words() {
        let (client, mut process, relay) = connected();
        process.write_all(b"goodbye").unwrap();
        drop(process);
        let mut buffer = [0; 64];
        let mut got = Vec::new();
        loop {
            match patiently(&client, Ready::READ, || client.recv(&mut buffer)).unwrap() {
                0 => break,
                n => got.extend_from_slice(&buffer[..n]),
            }
        }
        assert_eq!(got, b"goodbye");
        relay.finish();
    }

    #[test]
    fn the_client_s_end_reaches_the_process_even_where_that_does_not_read() {
        for polite in [true, false] {
            let (client, mut process, relay) = connected();
            // More than the process's socket holds, but not so much that the end itself could not come through the network.
            let sent = 50_000;
            assert_eq!(client.send(&[IoSlice::new(&vec![1; sent])]).unwrap(), sent);
            match polite {
                true => client.shutdown(),
                false => drop(client),
            }
            let tcp = Tcp::local(process.try_clone().unwrap().into(), "relay".into());
            assert!(tcp.wait_for_hangup(Some(LIMIT)).unwrap());
            let mut rest = Vec::new();
            process.read_to_end(&mut rest).unwrap();
            assert!(rest.iter().all(|byte| *byte == 1) && rest.len() < sent);
            drop((process, tcp));
            relay.finish();
        }
    }

    #[test]
    fn garbage_ends_the_session_on_both_sides() {
        let (client, mut process, relay) = connected();
        client.tcp().send(&[IoSlice::new(&[23, 3, 3, 0, 32, 1, 2, 3]), IoSlice::new(&[9; 64])]).unwrap();
        assert_eq!(process.read(&mut [0; 8]).unwrap(), 0);
        let mut buffer = [0; 64];
        let end = patiently(&client, Ready::READ, || client.recv(&mut buffer));
        assert!(!matches!(end, Ok(1..)), "{end:?}");
        drop(process);
        relay.finish();
    }

    #[test]
    fn clients_that_speak_plainly_are_told_from_others() {
        let encrypts = Encrypts::new(&options(Encryption::Offer), Encryption::Off).unwrap();
        let (client, server) = UnixStream::pair().unwrap();
        (&client).write_all(b"RGPU").unwrap();
        let wire = encrypts.greet(Tcp::local(server.into(), "a".into()), Instant::now() + LIMIT).unwrap();
        assert!(!wire.is_encrypted() && wire.binding().is_none() && wire.pair().unwrap().is_none());
        let mut bytes = [0; 4];
        assert_eq!((wire.recv(&mut bytes).unwrap(), &bytes), (4, b"RGPU"));
        let (client, server) = UnixStream::pair().unwrap();
        let soon = Instant::now() + Duration::from_millis(20);
        let silent = encrypts.greet(Tcp::local(server.into(), "a".into()), soon);
        assert_eq!(silent.err().map(|e| e.kind()), Some(io::ErrorKind::TimedOut));
        drop(client);
    }

    #[test]
    fn a_certificate_is_made_once_and_its_key_is_secret() {
        use std::os::unix::fs::PermissionsExt;
        let directory = std::env::temp_dir().join(format!("rgpu-tls-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let files = (directory.join("cert.pem"), directory.join("key.pem"));
        let options = TlsOptions { encryption: Some(Encryption::Offer), files: Some(files.clone()) };
        let made = Encrypts::new(&options, Encryption::Off).unwrap();
        let again = Encrypts::new(&options, Encryption::Off).unwrap();
        assert!(made.fingerprint().is_some() && made.fingerprint() == again.fingerprint());
        assert_eq!(fs::metadata(&files.1).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&files.1, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Encrypts::new(&options, Encryption::Off).unwrap_err().to_string().contains("chmod 600"));
        let off = TlsOptions { encryption: Some(Encryption::Off), ..options };
        assert!(Encrypts::new(&off, Encryption::Offer).unwrap_err().to_string().contains("--tls offer"));
        fs::remove_dir_all(&directory).unwrap();
    }
}
