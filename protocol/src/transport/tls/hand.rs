//! A session on its way from the process that has begun it to the one that goes on with it.

use super::engine::Engine;
use super::records::{Records, Secrets, Traffic};
use super::wipe::{self, Secret};
use super::{Fingerprint, Inbound, MAX_RECORD, Tcp, Tls, lock};
use crate::wire::{DecodeError, Reader, Wire};
use rustls::KeyLog;
use std::fmt::{self, Debug, Formatter};
use std::io;
use std::sync::{Arc, Mutex};
use zeroize::Zeroizing;

/// What [`Tls::resume`] needs besides the connection. Whoever has it can read what the session's two sides say: it is overwritten
/// when it is let go, and so should be what it travels in.
#[derive(Clone, PartialEq, Eq)]
pub struct Handed {
    secrets: Secrets,
    /// What has been received and not been looked at.
    cipher: Vec<u8>,
    /// What has been decrypted and not been taken.
    plain: Secret,
    /// Whether the client has said that nothing more will come.
    over: bool,
    server: Fingerprint,
}

impl Debug for Handed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Handed")
    }
}

impl Handed {
    /// As a message.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let Secrets { suite, receiving, sending } = &self.secrets;
        let all = [&receiving.secret, &sending.secret, &self.plain].map(|secret| 4 + secret.len());
        // What grew would leave a copy behind.
        let room = all.iter().sum::<usize>() + 4 + 8 + 8 + 1 + self.server.0.len() + 4 + self.cipher.len();
        let mut out = Zeroizing::new(Vec::with_capacity(room));
        u32::from(*suite).encode(&mut out);
        for Traffic { secret, sequence } in [receiving, sending] {
            wipe::append(secret, &mut out);
            sequence.encode(&mut out);
        }
        self.over.encode(&mut out);
        self.server.0.encode(&mut out);
        wipe::append(&self.plain, &mut out);
        wipe::append(&self.cipher, &mut out);
        out
    }

    /// Reads a message.
    pub fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let suite = u32::decode(&mut r)?;
        let suite = u16::try_from(suite)
            .map_err(|_| DecodeError::Unknown { what: "A cipher suite", value: suite.into() })?;
        let mut direction = || Ok(Traffic { secret: wipe::take(&mut r)?, sequence: u64::decode(&mut r)? });
        let secrets = Secrets { suite, receiving: direction()?, sending: direction()? };
        let (over, server) = (bool::decode(&mut r)?, Fingerprint(<[u8; 32]>::decode(&mut r)?));
        let (plain, mut cipher) = (wipe::take(&mut r)?, wipe::take(&mut r)?);
        r.finish()?;
        Ok(Self { secrets, cipher: std::mem::take(&mut *cipher), plain, over, server })
    }
}

/// Keeps the secrets of the one session for which it was made.
#[derive(Default)]
pub(super) struct Keeper(Mutex<(Secret, Secret)>);

impl Debug for Keeper {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Keeper")
    }
}

impl KeyLog for Keeper {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        match label {
            "CLIENT_TRAFFIC_SECRET_0" => lock(&self.0).0 = Zeroizing::new(secret.to_vec()),
            "SERVER_TRAFFIC_SECRET_0" => lock(&self.0).1 = Zeroizing::new(secret.to_vec()),
            _ => {}
        }
    }
}

impl Tls {
    /// Gives a session away that [`Tls::accept`] has begun: nothing can be sent or received here any more. The connection itself
    /// ([`Tls::tcp`]) goes with it.
    ///
    /// # Errors
    /// Something is still to be sent, or it is no session that can be given away.
    pub fn hand_over(&self) -> io::Result<Handed> {
        let odd = |text: &str| io::Error::other(text.to_owned());
        let keeper: &Arc<Keeper> = self.keeper.as_ref().ok_or_else(|| odd("it is the client's side"))?;
        // In the order in which receiving and sending take them.
        let mut inbound = lock(&self.inbound);
        if !lock(&self.outbound).cipher.is_empty() {
            return Err(odd("something is still to be sent"));
        }
        let mut engine = lock(&self.engine);
        if !engine.control.is_empty() {
            return Err(odd("TLS has something to say"));
        }
        let (suite, extracted) = engine.extract()?;
        let (client, server) = std::mem::take(&mut *lock(&keeper.0));
        let (sequence_in, keys_in) = extracted.rx;
        let (sequence_out, keys_out) = extracted.tx;
        let secrets = Secrets {
            suite,
            receiving: Traffic { secret: client, sequence: sequence_in },
            sending: Traffic { secret: server, sequence: sequence_out },
        };
        if !Records::new(secrets.clone())?.are(&keys_in, &keys_out)? {
            return Err(odd("its keys are others than those that it began with"));
        }
        // What comes from now on is somebody else's to receive.
        let left = Inbound { over: true, ..Inbound::default() };
        let Inbound { cipher, start, end, plain, taken, over, .. } = std::mem::replace(&mut *inbound, left);
        let plain = Zeroizing::new(plain);
        Ok(Handed {
            secrets,
            cipher: cipher[start..end].to_vec(),
            plain: Zeroizing::new(plain[taken..].to_vec()),
            over,
            server: self.server,
        })
    }

    /// Goes on with a session that another process has begun.
    ///
    /// # Errors
    /// It is damaged.
    pub fn resume(tcp: Tcp, handed: Handed) -> io::Result<Self> {
        let Handed { secrets, mut cipher, mut plain, over, server } = handed;
        let engine = Engine::of_records(Records::new(secrets)?);
        let end = cipher.len();
        cipher.resize(end.max(MAX_RECORD), 0);
        let plain = std::mem::take(&mut *plain);
        let inbound = Inbound { cipher, start: 0, end, plain, taken: 0, empty: 0, over };
        Ok(Self::begin(tcp, engine, inbound, server, None))
    }
}
