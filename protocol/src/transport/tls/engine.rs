//! TLS itself: what turns bytes into records and back. It knows no sockets.

use super::trust::{self, Fingerprint};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use std::io;

/// A record's header.
pub(super) const HEADER: usize = 5;
/// The most that a record brings.
pub(super) const MAX_PLAIN: usize = 16 << 10;
/// The longest record.
pub(super) const MAX_RECORD: usize = HEADER + MAX_PLAIN + 256;

/// The length of the record that these bytes begin with, header included, once its header is there.
pub(super) fn record_length(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some(length) = bytes.get(3..HEADER) else { return Ok(None) };
    let length = HEADER + usize::from(u16::from_be_bytes([length[0], length[1]]));
    if length > MAX_RECORD {
        return Err(broken("a record is too long"));
    }
    Ok(Some(length))
}

fn broken(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

fn failed(error: &rustls::Error) -> io::Error {
    broken(trust::explain(error))
}

/// Either end.
pub(super) enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// There may be more to do.
    Again,
    /// Data has come.
    Data,
    /// Nothing more can be done with these bytes.
    Idle,
    /// The peer has said that nothing more will come.
    Closed,
}

/// One end of a session.
pub(super) struct Engine {
    side: Side,
    /// Records that TLS itself wants sent, before any others.
    pub control: Vec<u8>,
    /// Nothing can be done any more.
    failed: bool,
}

/// Does what a state wants. Data goes to `sink`.
fn advance<Data>(
    state: ConnectionState<'_, '_, Data>,
    control: &mut Vec<u8>,
    sink: &mut dyn FnMut(&[u8]),
) -> io::Result<Step> {
    Ok(match state {
        ConnectionState::EncodeTlsData(mut data) => {
            let at = control.len();
            let mut room = 1024;
            let length = loop {
                control.resize(at + room, 0);
                match data.encode(&mut control[at..]) {
                    Ok(length) => break length,
                    Err(EncodeError::InsufficientSize(more)) => room = more.required_size,
                    Err(e) => return Err(broken(e.to_string())),
                }
            };
            control.truncate(at + length);
            Step::Again
        }
        ConnectionState::TransmitTlsData(data) => {
            // Whoever holds the engine sends what is in `control` before anything else.
            data.done();
            Step::Again
        }
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                sink(record.map_err(|e| failed(&e))?.payload);
            }
            Step::Data
        }
        ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => Step::Idle,
        ConnectionState::PeerClosed | ConnectionState::Closed => Step::Closed,
        _ => return Err(broken("the peer does something that was not agreed")),
    })
}

fn take<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    control: &mut Vec<u8>,
    sink: &mut dyn FnMut(&[u8]),
) -> (usize, io::Result<Step>) {
    let UnbufferedStatus { discard, state } = status;
    let step = state.map_err(|e| failed(&e)).and_then(|state| advance(state, control, sink));
    (discard, step)
}

/// Encrypts, if the state is the one for that; otherwise does what it wants.
fn write<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    control: &mut Vec<u8>,
    data: Option<&[u8]>,
    out: &mut [u8],
) -> io::Result<Option<usize>> {
    let state = match status.state.map_err(|e| failed(&e))? {
        ConnectionState::WriteTraffic(mut traffic) => {
            let written = match data {
                Some(data) => traffic.encrypt(data, out),
                None => traffic.queue_close_notify(out),
            };
            return match written {
                Ok(length) => Ok(Some(length)),
                Err(EncryptError::EncryptExhausted) => Err(broken("the session's keys are used up")),
                Err(e) => Err(broken(e.to_string())),
            };
        }
        ConnectionState::BlockedHandshake | ConnectionState::Closed => {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        state => state,
    };
    advance(state, control, &mut |_| {}).map(|_| None)
}

impl Engine {
    pub(super) fn new(side: Side) -> Self {
        Self { side, control: Vec::new(), failed: false }
    }

    fn step(&mut self, bytes: &mut [u8], sink: &mut dyn FnMut(&[u8])) -> (usize, io::Result<Step>) {
        match &mut self.side {
            Side::Client(client) => take(client.process_tls_records(bytes), &mut self.control, sink),
            Side::Server(server) => take(server.process_tls_records(bytes), &mut self.control, sink),
        }
    }

    /// Whether the handshake is not over.
    pub(super) fn is_handshaking(&self) -> bool {
        match &self.side {
            Side::Client(client) => client.is_handshaking(),
            Side::Server(server) => server.is_handshaking(),
        }
    }

    /// The certificate that the peer has shown.
    pub(super) fn peer(&self) -> Option<Fingerprint> {
        match &self.side {
            Side::Client(client) => trust::fingerprint_of_peer(client.peer_certificates()),
            Side::Server(server) => trust::fingerprint_of_peer(server.peer_certificates()),
        }
    }

    /// Goes on with the handshake. Says how many of the bytes it has used up, and what came of it: `Idle` where more are
    /// needed, or the handshake is over. What TLS wants sent is then in `control`, also where it failed.
    pub(super) fn shake(
        &mut self,
        bytes: &mut [u8],
        sink: &mut dyn FnMut(&[u8]),
    ) -> (usize, io::Result<Step>) {
        let mut used = 0;
        loop {
            match self.step(&mut bytes[used..], sink) {
                (discard, Ok(Step::Again)) => used += discard,
                (discard, Ok(step)) => return (used + discard, Ok(step)),
                (discard, Err(e)) => {
                    self.failed = true;
                    used += discard;
                    // What the peer is told of it is in line before the failure, which would come again. The bytes must be the
                    // ones that it had before: it remembers where its messages lie in them.
                    let _ = self.step(&mut bytes[used..], &mut |_| {});
                    return (used, Err(e));
                }
            }
        }
    }

    /// Takes one whole record, after the handshake. Data goes to `sink`.
    pub(super) fn decrypt(&mut self, record: &mut [u8], sink: &mut dyn FnMut(&[u8])) -> io::Result<Step> {
        match self.shake(record, sink) {
            (used, Ok(step)) if used == record.len() => Ok(step),
            // What is kept of a part of a message is where it lies among the bytes; nobody has a reason to send parts now.
            (_, Ok(Step::Idle | Step::Data)) => {
                self.failed = true;
                Err(broken("the peer sends parts of TLS messages"))
            }
            (_, result) => result,
        }
    }

    /// Ends the session because the record that begins with these bytes is too long.
    pub(super) fn refuse_long(&mut self, bytes: &mut [u8]) {
        // It sees by itself what is wrong, and says so, unless that is within its own, wider limit.
        drop(self.shake(bytes, &mut |_| {}));
        self.failed = true;
    }

    /// Ends the session because the peer sends records without anything in them.
    pub(super) fn refuse_empty(&mut self) {
        self.failed = true;
    }

    fn write(&mut self, data: Option<&[u8]>, out: &mut Vec<u8>) -> io::Result<()> {
        if self.failed {
            // Why it has failed is still to be told.
            out.append(&mut self.control);
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // More than once in the rare case that TLS has something to say first.
        for _ in 0..16 {
            out.append(&mut self.control);
            let at = out.len();
            out.resize(at + MAX_RECORD + 256, 0);
            let written = match &mut self.side {
                Side::Client(client) => {
                    write(client.process_tls_records(&mut []), &mut self.control, data, &mut out[at..])
                }
                Side::Server(server) => {
                    write(server.process_tls_records(&mut []), &mut self.control, data, &mut out[at..])
                }
            };
            out.truncate(at + written.as_ref().map_or(0, |length| length.unwrap_or(0)));
            if written?.is_some() {
                return Ok(());
            }
        }
        Err(broken("TLS does not come to an end"))
    }

    /// Appends data (at most [`MAX_PLAIN`]) to `out`, as a record.
    pub(super) fn encrypt(&mut self, data: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.write(Some(data), out)
    }

    /// Appends the word that nothing more will come.
    pub(super) fn close(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.write(None, out)
    }

    /// Has the next record encrypted with new keys.
    #[cfg(test)]
    pub(super) fn refresh(&mut self) {
        fn refresh<Data>(status: UnbufferedStatus<'_, '_, Data>) {
            let Ok(ConnectionState::WriteTraffic(traffic)) = status.state else { panic!("not now") };
            traffic.refresh_traffic_keys().unwrap();
        }
        match &mut self.side {
            Side::Client(client) => refresh(client.process_tls_records(&mut [])),
            Side::Server(server) => refresh(server.process_tls_records(&mut [])),
        }
    }
}
