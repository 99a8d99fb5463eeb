//! TLS 1.3's records, without the rest of TLS: what is left to do when the handshake is over (RFC 8446, section 5).
//!
//! A process that serves a client is handed a session that another one has begun, and so never sees the server's private key.
//! It is given the secrets of this one session ([`Secrets`]): the bytes that it reads and writes anyway. Secrets, and the keys
//! that follow from them, are overwritten when they are replaced or the session ends ([`wipe`](super::wipe)).

use super::engine::{HEADER, MAX_PLAIN, MAX_RECORD, Step};
use super::wipe::{Flat, Secret};
use ring::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};
use ring::hkdf::{HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use rustls::{CipherSuite, ConnectionTrafficSecrets};
use std::io;
use zeroize::Zeroizing;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
/// Alerts.
const CLOSE_NOTIFY: u8 = 0;
pub(super) const UNEXPECTED_MESSAGE: u8 = 10;
const BAD_RECORD_MAC: u8 = 20;
pub(super) const RECORD_OVERFLOW: u8 = 22;
const ILLEGAL_PARAMETER: u8 = 47;
const USER_CANCELED: u8 = 90;
/// The message that the sender's next record is encrypted with other keys, and whether the receiver's are to be others, too.
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];
/// So many records at most are encrypted with one key: half of what is safe with AES-GCM.
const REFRESH_AFTER: u64 = 1 << 23;
const TAG: usize = 16;

fn broken(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

/// How a session encrypts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Suite(CipherSuite);

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Suite {
    fn new(number: u16) -> io::Result<Self> {
        let suite = CipherSuite::from(number);
        let known = [
            CipherSuite::TLS13_AES_128_GCM_SHA256,
            CipherSuite::TLS13_AES_256_GCM_SHA384,
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        ];
        match known.contains(&suite) {
            true => Ok(Self(suite)),
            false => Err(broken(format!("{suite:?} is not known here"))),
        }
    }

    fn hash(self) -> (ring::hkdf::Algorithm, usize) {
        match self.0 {
            CipherSuite::TLS13_AES_256_GCM_SHA384 => (HKDF_SHA384, 48),
            _ => (HKDF_SHA256, 32),
        }
    }

    fn cipher(self) -> &'static ring::aead::Algorithm {
        match self.0 {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => &AES_128_GCM,
            CipherSuite::TLS13_AES_256_GCM_SHA384 => &AES_256_GCM,
            _ => &CHACHA20_POLY1305,
        }
    }

    /// HKDF-Expand-Label with an empty context.
    fn expand(self, secret: &[u8], label: &str, length: usize) -> io::Result<Secret> {
        let name = format!("tls13 {label}");
        let info = [&(length as u16).to_be_bytes()[..], &[name.len() as u8], name.as_bytes(), &[0]];
        let prk = Flat::new(Prk::new_less_safe(self.hash().0, secret));
        let mut out = Zeroizing::new(vec![0; length]);
        let filled = prk.expand(&info, Length(length)).and_then(|okm| okm.fill(&mut out));
        filled.map_err(|_| broken("a key cannot be derived"))?;
        Ok(out)
    }
}

/// What one direction of a session is encrypted with.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Traffic {
    /// From which the keys follow, and the next secret.
    pub secret: Secret,
    /// The number of the next record.
    pub sequence: u64,
}

/// What a session is encrypted with.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secrets {
    pub suite: u16,
    pub receiving: Traffic,
    pub sending: Traffic,
}

/// One direction.
struct Half {
    suite: Suite,
    secret: Secret,
    key: Flat<LessSafeKey>,
    iv: Zeroizing<[u8; NONCE_LEN]>,
    sequence: u64,
}

impl Half {
    fn new(suite: Suite, traffic: Traffic) -> io::Result<Self> {
        let Traffic { secret, sequence } = traffic;
        if secret.len() != suite.hash().1 {
            return Err(broken("a session's secret has a wrong length"));
        }
        let cipher = suite.cipher();
        let key = UnboundKey::new(cipher, &suite.expand(&secret, "key", cipher.key_len())?);
        let key = Flat::new(LessSafeKey::new(key.map_err(|_| broken("a key has a wrong length"))?));
        let mut iv = Zeroizing::new([0; NONCE_LEN]);
        iv.copy_from_slice(&suite.expand(&secret, "iv", NONCE_LEN)?);
        Ok(Self { suite, secret, key, iv, sequence })
    }

    /// Whether these are the keys that rustls has.
    fn is(&self, theirs: &ConnectionTrafficSecrets) -> io::Result<bool> {
        let (key, iv) = match theirs {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv }
            | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
            | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key, iv),
            _ => return Ok(false),
        };
        let own = self.suite.expand(&self.secret, "key", self.suite.cipher().key_len())?;
        Ok(own.as_slice() == key.as_ref() && self.iv.as_slice() == iv.as_ref())
    }

    /// Other keys, of which the present ones tell nothing afterwards.
    fn refresh(&mut self) -> io::Result<()> {
        let secret = self.suite.expand(&self.secret, "traffic upd", self.suite.hash().1)?;
        *self = Self::new(self.suite, Traffic { secret, sequence: 0 })?;
        Ok(())
    }

    /// A nonce is used once.
    fn nonce(&mut self) -> io::Result<Nonce> {
        let mut nonce = *self.iv;
        for (byte, count) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= count;
        }
        self.sequence =
            self.sequence.checked_add(1).ok_or_else(|| broken("the session's keys are used up"))?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }

    fn seal(&mut self, kind: u8, data: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        if data.len() > MAX_PLAIN {
            return Err(broken("a record would be too long"));
        }
        let nonce = self.nonce()?;
        let [high, low] = ((data.len() + 1 + TAG) as u16).to_be_bytes();
        let header = [DATA, 3, 3, high, low];
        out.extend_from_slice(&header);
        let at = out.len();
        out.extend_from_slice(data);
        out.push(kind);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(header), &mut out[at..]);
        out.extend_from_slice(tag.map_err(|_| broken("a record cannot be encrypted"))?.as_ref());
        Ok(())
    }

    /// The kind and the content of a record, in its place; the alert to answer with where it is none.
    fn open<'r>(&mut self, record: &'r mut [u8]) -> Result<(u8, &'r [u8]), u8> {
        let (header, body) = record.split_at_mut_checked(HEADER).ok_or(UNEXPECTED_MESSAGE)?;
        // Nothing is unencrypted any more, not even `change_cipher_spec`.
        if header[0] != DATA {
            return Err(UNEXPECTED_MESSAGE);
        }
        if body.len() > MAX_RECORD - HEADER {
            return Err(RECORD_OVERFLOW);
        }
        let nonce = self.nonce().map_err(|_| BAD_RECORD_MAC)?;
        let plain = self.key.open_in_place(nonce, Aad::from(&*header), body).map_err(|_| BAD_RECORD_MAC)?;
        // The limit is for content, kind and padding together.
        if plain.len() > MAX_PLAIN + 1 {
            return Err(RECORD_OVERFLOW);
        }
        let at = plain.iter().rposition(|byte| *byte != 0).ok_or(UNEXPECTED_MESSAGE)?;
        Ok((plain[at], &plain[..at]))
    }
}

/// A session whose handshake is over.
pub(super) struct Records {
    receiving: Half,
    sending: Half,
    /// The peer has asked for other keys in this direction, too. However often it asks before something is sent, it gets them
    /// once.
    wanted: bool,
}

impl Records {
    pub(super) fn new(secrets: Secrets) -> io::Result<Self> {
        let suite = Suite::new(secrets.suite)?;
        Ok(Self {
            receiving: Half::new(suite, secrets.receiving)?,
            sending: Half::new(suite, secrets.sending)?,
            wanted: false,
        })
    }

    /// Whether these are the keys that rustls has for receiving and sending.
    pub(super) fn are(
        &self,
        receiving: &ConnectionTrafficSecrets,
        sending: &ConnectionTrafficSecrets,
    ) -> io::Result<bool> {
        Ok(self.receiving.is(receiving)? && self.sending.is(sending)?)
    }

    /// Takes one whole record. Data goes to `sink`, and what is to be answered to `control`.
    pub(super) fn decrypt(
        &mut self,
        record: &mut [u8],
        control: &mut Vec<u8>,
        sink: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Step> {
        let (kind, content) = match self.receiving.open(record) {
            Ok(opened) => opened,
            Err(alert) => {
                self.alert(alert, control);
                return Err(broken(match alert {
                    BAD_RECORD_MAC => "a record is not the peer's, or was changed on the way",
                    RECORD_OVERFLOW => "a record is too long",
                    _ => "a record is none of this session's",
                }));
            }
        };
        match (kind, content) {
            (DATA, data) => {
                sink(data);
                Ok(Step::Data)
            }
            (ALERT, [_, CLOSE_NOTIFY]) => Ok(Step::Closed),
            (ALERT, [_, USER_CANCELED]) => Ok(Step::Idle),
            (ALERT, [_, number]) => {
                Err(broken(format!("the other side ended the TLS session: alert {number}")))
            }
            (HANDSHAKE, [message @ .., wanted]) if *message == KEY_UPDATE => {
                if *wanted > 1 {
                    self.alert(ILLEGAL_PARAMETER, control);
                    return Err(broken("the peer asks for other keys in a way that does not exist"));
                }
                self.receiving.refresh()?;
                self.wanted |= *wanted == 1;
                Ok(Step::Idle)
            }
            _ => {
                self.alert(UNEXPECTED_MESSAGE, control);
                Err(broken("the peer does something that was not agreed"))
            }
        }
    }

    /// Appends data (at most [`MAX_PLAIN`]) to `out`, as a record.
    pub(super) fn encrypt(&mut self, data: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        if self.wanted || self.sending.sequence >= REFRESH_AFTER {
            self.refresh(out)?;
        }
        self.sending.seal(DATA, data, out)
    }

    /// Appends the word that nothing more will come.
    pub(super) fn close(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.sending.seal(ALERT, &[1, CLOSE_NOTIFY], out)
    }

    /// Has what comes after this encrypted with other keys.
    pub(super) fn refresh(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let [a, b, c, d] = KEY_UPDATE;
        self.sending.seal(HANDSHAKE, &[a, b, c, d, 0], out)?;
        self.wanted = false;
        self.sending.refresh()
    }

    /// Appends the word that the session is at its end, and why.
    pub(super) fn alert(&mut self, number: u8, control: &mut Vec<u8>) {
        // Without keys there is nothing to be said.
        let _ = self.sending.seal(ALERT, &[2, number], control);
    }
}

#[cfg(test)]
mod tests;
