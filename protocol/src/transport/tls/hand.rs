//! A session on its way from the process that has begun it to the one that goes on with it.

use super::engine::Engine;
use super::records::{Records, Secrets, Traffic};
use super::{Fingerprint, Inbound, MAX_RECORD, Tcp, Tls, lock};
use crate::wire::{DecodeError, from_bytes, to_bytes};
use rustls::KeyLog;
use std::fmt::{self, Debug, Formatter};
use std::io;
use std::sync::{Arc, Mutex};

/// What [`Tls::resume`] needs besides the connection. Whoever has it can read what the session's two sides say.
#[derive(Clone, PartialEq, Eq)]
pub struct Handed {
    secrets: Secrets,
    /// What has been received and not been looked at.
    cipher: Vec<u8>,
    /// What has been decrypted and not been taken.
    plain: Vec<u8>,
    server: Fingerprint,
}

impl Debug for Handed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Handed")
    }
}

impl Handed {
    /// As a message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let direction = |traffic: &Traffic| (traffic.secret.clone(), traffic.sequence);
        let Secrets { suite, receiving, sending } = &self.secrets;
        let secrets = (u32::from(*suite), (direction(receiving), direction(sending)));
        to_bytes(&(secrets, ((self.cipher.clone(), self.plain.clone()), self.server.0)))
    }

    /// Reads a message.
    pub fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        type Direction = (Vec<u8>, u64);
        type Message = ((u32, (Direction, Direction)), ((Vec<u8>, Vec<u8>), [u8; 32]));
        let ((suite, (receiving, sending)), ((cipher, plain), server)): Message = from_bytes(bytes)?;
        let direction = |(secret, sequence)| Traffic { secret, sequence };
        let suite = u16::try_from(suite)
            .map_err(|_| DecodeError::Unknown { what: "A cipher suite", value: suite.into() })?;
        let secrets = Secrets { suite, receiving: direction(receiving), sending: direction(sending) };
        Ok(Self { secrets, cipher, plain, server: Fingerprint(server) })
    }
}

/// Keeps the secrets of the one session for which it was made.
#[derive(Default)]
pub(super) struct Keeper(Mutex<(Vec<u8>, Vec<u8>)>);

impl Debug for Keeper {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Keeper")
    }
}

impl KeyLog for Keeper {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        match label {
            "CLIENT_TRAFFIC_SECRET_0" => lock(&self.0).0 = secret.to_vec(),
            "SERVER_TRAFFIC_SECRET_0" => lock(&self.0).1 = secret.to_vec(),
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
        let mut inbound = lock(&self.inbound);
        let Inbound { cipher, start, end, plain, taken, .. } = std::mem::take(&mut *inbound);
        Ok(Handed {
            secrets,
            cipher: cipher[start..end].to_vec(),
            plain: plain[taken..].to_vec(),
            server: self.server,
        })
    }

    /// Goes on with a session that another process has begun.
    ///
    /// # Errors
    /// It is damaged.
    pub fn resume(tcp: Tcp, handed: Handed) -> io::Result<Self> {
        let Handed { secrets, cipher, plain, server } = handed;
        let engine = Engine::of_records(Records::new(secrets)?);
        let end = cipher.len();
        let mut cipher = cipher;
        cipher.resize(end.max(MAX_RECORD), 0);
        let inbound = Inbound { cipher, start: 0, end, plain, taken: 0, over: false };
        Ok(Self::begin(tcp, engine, inbound, server, None))
    }
}
