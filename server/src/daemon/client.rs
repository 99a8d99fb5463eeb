//! A client in the daemon's eyes, until its application is admitted: it speaks with the daemon itself or, where it speaks TLS, with
//! a process that does so in the daemon's stead.

use super::{Daemon, printable};
use crate::device_spec::DeviceKind;
use crate::greeting::{ANSWER_TIME, say};
use crate::handshake::{Ask, Handshake, Line, Tell};
use crate::ledger::SLOTS;
use crate::orders::{Begin, CONNECTION, LINE, ORDERS};
use rgpu_control::proof::Binding;
use rgpu_protocol::hello::{self, HelloAnswer, Prefix};
use rgpu_protocol::transport::tls::Identity;
use rgpu_protocol::transport::{Carrier, Stream, Tcp, Transport};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::process::Child;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// So much longer than a client a process may take to say that it was too slow.
const GRACE: Duration = Duration::from_secs(2);

/// How a client is spoken with.
pub(super) enum Client<'d> {
    /// By the daemon.
    Here(Stream),
    /// By a process that has been started for it.
    Elsewhere(Entrant<'d>),
}

impl Client<'_> {
    pub(super) fn carrier(&self) -> Carrier {
        match self {
            Self::Here(stream) => stream.carrier(),
            Self::Elsewhere(_) => Carrier::Tls,
        }
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.carrier() == Carrier::Tls
    }

    /// What ties a lease's proof to the connection.
    pub(super) fn binding(&self) -> Option<Binding> {
        match self {
            Self::Here(stream) => stream.binding(),
            Self::Elsewhere(entrant) => Some(entrant.binding),
        }
    }

    /// The connection, where the daemon has it.
    pub(super) fn stream(&self) -> Option<&Stream> {
        match self {
            Self::Here(stream) => Some(stream),
            Self::Elsewhere(_) => None,
        }
    }

    /// Tells a client that it is not served. One that has gone need not be told.
    pub(super) fn refuse(&self, answer: &HelloAnswer) {
        match self {
            Self::Here(stream) => drop(say(stream.transport(), answer)),
            Self::Elsewhere(entrant) => {
                let told = entrant.line.tell(&Tell::Refused(hello::message(answer)), &[]);
                if told.is_ok() {
                    entrant.line.wait_for_end(ANSWER_TIME + GRACE);
                }
            }
        }
    }
}

/// A process that speaks with a client who is not admitted. It ends with this, unless it was [let go](Entrant::admit).
pub(super) struct Entrant<'d> {
    child: Option<Child>,
    line: Line,
    binding: Binding,
    /// The daemon, to which the process is no longer to be known when it has ended.
    daemon: &'d Daemon,
}

impl<'d> Entrant<'d> {
    /// Starts a process that speaks TLS with a client.
    pub(super) fn start(
        daemon: &'d Daemon,
        tcp: &Tcp,
        identity: &Identity,
        peer: &str,
        end: Instant,
    ) -> io::Result<Self> {
        let (line, theirs) = Line::pair()?;
        let left = end.saturating_duration_since(Instant::now()).as_millis();
        let begin = Begin::Handshake(Handshake {
            peer: peer.to_owned(),
            daemon: std::process::id(),
            time_ms: u32::try_from(left).unwrap_or(u32::MAX),
            shown: identity.shown(),
            confined: daemon.device.kind == DeviceKind::Software,
            limits: daemon.limits,
            // Sessions have the users of their slots. That two processes get one takes millions of clients in the time of one.
            number: SLOTS as u32 + daemon.entered.fetch_add(1, Relaxed) % (1 << 24),
        });
        let begin = begin.to_file()?;
        // The rest comes when the client is admitted.
        let descriptors =
            [(tcp.descriptor(), CONNECTION), (begin.as_raw_fd(), ORDERS), (theirs.as_raw_fd(), LINE)];
        let mut entrants = daemon.entrants.lock().unwrap_or_else(PoisonError::into_inner);
        let child = daemon.spawn(descriptors, daemon.device.kind, &[])?;
        entrants.push(child.id());
        drop(entrants);
        let binding = identity.fingerprint().0;
        Ok(Self { child: Some(child), line, binding, daemon })
    }

    /// Hears what the client says first, and signs its handshake. `None` where it is not to be served, and need not be told; an
    /// error where it is to be told.
    pub(super) fn hear(
        &self,
        identity: &Identity,
        peer: &str,
        end: Instant,
    ) -> io::Result<Option<(Prefix, Vec<u8>)>> {
        match hear(&self.line, identity, end + GRACE) {
            Ok(said) => Ok(Some(said)),
            Err(Unheard::Left) => {
                tracing::debug!("{peer}: left without saying hello");
                Ok(None)
            }
            Err(Unheard::NoTls(text)) => {
                tracing::warn!("{peer}: no encrypted connection: {text}");
                Ok(None)
            }
            Err(Unheard::NoHello(text)) => Err(io::Error::other(text)),
            Err(Unheard::Strange(why)) => {
                tracing::error!("{peer}: the process that speaks with it is ended: {why}");
                Ok(None)
            }
        }
    }

    /// Lets the process serve the application: it gets what an admitted application's process starts with.
    pub(super) fn admit(mut self, descriptors: &[RawFd; 6]) -> io::Result<Child> {
        self.line.tell(&Tell::Admitted, descriptors)?;
        let child = self.child.take().ok_or_else(|| io::Error::other("the process has gone"))?;
        // In this order, so that the daemon knows it at any time.
        self.daemon.children().push(child.id());
        self.daemon.forget_entrant(child.id());
        Ok(child)
    }
}

/// Why no hello was heard.
#[derive(Debug)]
enum Unheard {
    /// The client has left, or its process has ended.
    Left,
    /// There is no encrypted connection; the text says why.
    NoTls(String),
    /// What the client says is no hello; the text says why.
    NoHello(String),
    /// The process does what it never does by itself.
    Strange(String),
}

/// Hears the process of a client until that has said hello, and signs once.
fn hear(line: &Line, identity: &Identity, end: Instant) -> Result<(Prefix, Vec<u8>), Unheard> {
    let strange = |text: &str| Unheard::Strange(text.to_owned());
    let mut signed = false;
    loop {
        let ask = line
            .asked(end)
            .map_err(|e| Unheard::Strange(format!("it says nothing that is understood: {e}")))?;
        match ask.ok_or(Unheard::Left)? {
            Ask::Sign { .. } if signed => return Err(strange("it wants a second signature")),
            Ask::Sign { scheme, message } => {
                signed = true;
                let signature = identity.sign(scheme, &message).map_err(|e| {
                    Unheard::Strange(format!("it wants a signature that it does not get: {e}"))
                })?;
                line.tell(&Tell::Signature(signature), &[]).map_err(|_| Unheard::Left)?;
            }
            // Without a signature there can be no session, and so no hello.
            Ask::Hello { .. } | Ask::NoHello(_) if !signed => {
                return Err(strange("it has heard a hello before it could"));
            }
            Ask::Hello { major, minor, body } => {
                let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
                return Ok((Prefix { major, minor, length }, body));
            }
            Ask::NoTls(text) => return Err(Unheard::NoTls(printable(&text))),
            Ask::NoHello(text) => return Err(Unheard::NoHello(printable(&text))),
        }
    }
}

impl Drop for Entrant<'_> {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let _ = child.kill(); // it may have ended
        let ended = child.wait();
        self.daemon.forget_entrant(child.id());
        if let Err(e) = ended {
            tracing::error!("a process that spoke with a client is lost: {e}");
        }
    }
}

impl Daemon {
    fn forget_entrant(&self, id: u32) {
        self.entrants.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| *known != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_protocol::transport::pass::send_message;

    /// Only tells hanging from working.
    const LIMIT: Duration = Duration::from_secs(30);
    /// ECDSA with P-256, which the certificates that servers make for themselves have.
    const SCHEME: u16 = 0x0403;

    fn identity() -> Identity {
        let made = rcgen::generate_simple_self_signed(vec!["rgpu".to_owned()]).unwrap();
        Identity::from_pem(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes()).unwrap()
    }

    fn verify(hash: usize) -> Ask {
        let message = [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0", &vec![1; hash]].concat();
        Ask::Sign { scheme: SCHEME, message }
    }

    fn hello() -> Ask {
        Ask::Hello { major: 1, minor: 2, body: vec![3; 4] }
    }

    /// What comes of what a process says, and the signatures that it gets.
    fn said(asks: &[Ask]) -> (Result<(Prefix, Vec<u8>), Unheard>, usize) {
        let (ours, theirs) = Line::pair().unwrap();
        asks.iter().for_each(|ask| theirs.ask(ask).unwrap());
        let heard = hear(&ours, &identity(), Instant::now() + LIMIT);
        let mut signatures = 0;
        // What was answered is there.
        while let Ok((Tell::Signature(_), _)) = theirs.answer(Instant::now()) {
            signatures += 1;
        }
        (heard, signatures)
    }

    #[test]
    fn one_handshake_is_signed_and_the_hello_is_heard() {
        for hash in [32, 48] {
            let (heard, signatures) = said(&[verify(hash), hello()]);
            assert_eq!(heard.unwrap(), (Prefix { major: 1, minor: 2, length: 4 }, vec![3; 4]));
            assert_eq!(signatures, 1);
        }
    }

    #[test]
    fn a_second_signature_is_refused() {
        let (heard, signatures) = said(&[verify(32), verify(32), hello()]);
        assert!(matches!(heard, Err(Unheard::Strange(why)) if why.contains("second signature")));
        assert_eq!(signatures, 1);
        // Nor is there another after one that was refused.
        let other = Ask::Sign { scheme: SCHEME, message: b"pay 1000 to Mallory".to_vec() };
        assert!(matches!(said(&[other, verify(32)]), (Err(Unheard::Strange(_)), 0)));
    }

    #[test]
    fn nothing_else_is_signed() {
        let Ask::Sign { message, .. } = verify(32) else { unreachable!() };
        let text = String::from_utf8(message.clone()).unwrap();
        for (scheme, message) in [
            (SCHEME, Vec::new()),
            (SCHEME, text.replace("server", "client").into_bytes()),
            (SCHEME, message[1..].to_vec()),
            (SCHEME, message[..message.len() - 1].to_vec()),
            (SCHEME, [&message[..], b"x"].concat()),
            (0x0401, message),
        ] {
            let (heard, signatures) = said(&[Ask::Sign { scheme, message }]);
            assert!(matches!(heard, Err(Unheard::Strange(why)) if why.contains("does not get")));
            assert_eq!(signatures, 0);
        }
    }

    #[test]
    fn a_process_that_says_anything_else_is_not_heard() {
        let (ours, theirs) = Line::pair().unwrap();
        drop(theirs);
        assert!(matches!(hear(&ours, &identity(), Instant::now() + LIMIT), Err(Unheard::Left)));
        assert!(matches!(said(&[hello()]), (Err(Unheard::Strange(_)), 0)));
        assert!(matches!(said(&[Ask::NoHello("x".into())]), (Err(Unheard::Strange(_)), 0)));
        assert!(
            matches!(said(&[Ask::NoTls("a\nb".into())]).0, Err(Unheard::NoTls(text)) if text == "a\\u{a}b")
        );
        assert!(matches!(said(&[verify(32), Ask::NoHello("x".into())]), (Err(Unheard::NoHello(_)), 1)));
        for garbage in [&[0u8][..], &[9; 40], &[1, 0, 0, 0xff, 0xff, 0xff, 0xff], &[2; 9000], &[7; 60_000]] {
            let (ours, theirs) = Line::pair().unwrap();
            assert_eq!(send_message(theirs.as_raw_fd(), garbage, &[]).unwrap(), garbage.len());
            let heard = hear(&ours, &identity(), Instant::now() + LIMIT);
            assert!(matches!(heard, Err(Unheard::Strange(_))));
        }
        // Silence has an end.
        let (ours, _theirs) = Line::pair().unwrap();
        let heard = hear(&ours, &identity(), Instant::now() + Duration::from_millis(30));
        assert!(matches!(heard, Err(Unheard::Strange(_))));
    }
}
