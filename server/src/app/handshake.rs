//! The beginning of a process whose client speaks TLS: the handshake, the hello, and what the daemon decides.

use super::{Given, wall_in};
use crate::confine;
use crate::greeting::{ANSWER_TIME, hear_any};
use crate::handshake::{Ask, Handshake, Line, Tell, short};
use crate::ledger::Descriptors;
use crate::orders::Orders;
use rgpu_protocol::transport::blocking::send_all;
use rgpu_protocol::transport::tls::{AskToSign, Identity};
use rgpu_protocol::transport::{Stream, Tcp};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Has the daemon sign.
#[derive(Debug)]
struct Daemon {
    line: Arc<Line>,
    end: Instant,
}

impl AskToSign for Daemon {
    fn ask(&self, scheme: u16, message: &[u8]) -> io::Result<Vec<u8>> {
        self.line.ask(&Ask::Sign { scheme, message: message.to_vec() })?;
        match self.line.answer(self.end)? {
            (Tell::Signature(signature), _) => Ok(signature),
            _ => Err(io::Error::other("the daemon does not sign")),
        }
    }
}

/// Speaks with the client until the daemon has decided. `None` where the client is not served; the daemon knows why.
pub(super) fn begin(connection: OwnedFd, line: OwnedFd, start: Handshake) -> io::Result<Option<Given>> {
    let end = Instant::now() + Duration::from_millis(start.time_ms.into());
    let needs = if start.confined { confine::Needs::Nothing } else { confine::Needs::Driver };
    let processors = wall_in(start.daemon, needs, &start.limits, start.confined.then_some(start.number))?;
    if start.confined {
        // The device is opened later; then the rest of the wall is built.
        confine::confine(confine::Needs::Opening)?;
    }
    let line = Arc::new(Line::from_descriptor(line));
    let asks = Arc::new(Daemon { line: line.clone(), end });
    let identity = Identity::signed_elsewhere(start.shown, asks)?;
    let tcp = Tcp::adopt(connection, start.peer)?;
    tcp.probe_when_idle()?;
    let stream = match Stream::encrypted(tcp, &identity, end) {
        Ok(stream) => stream,
        Err(e) => {
            line.ask(&Ask::NoTls(short(&e)))?;
            return Ok(None);
        }
    };
    match hear_any(stream.transport(), end) {
        Ok((prefix, body)) => line.ask(&Ask::Hello { major: prefix.major, minor: prefix.minor, body })?,
        // It has left, and the daemon sees that this process does, too.
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(e) => line.ask(&Ask::NoHello(short(&e)))?,
    }
    match line.answer(Instant::now() + ANSWER_TIME)? {
        (Tell::Admitted, descriptors) => {
            let [orders, rules, usage, own, store, peers] =
                descriptors.try_into().map_err(|_| io::Error::other("its descriptors are missing"))?;
            let ledger = Descriptors { rules, usage, own };
            let mut orders = Orders::take(orders)?;
            orders.settle(processors);
            for (name, value) in &orders.environment {
                // SAFETY: no other thread has been started.
                unsafe { std::env::set_var(name, value) };
            }
            Ok(Some(Given { stream, orders, ledger, store, peers }))
        }
        (Tell::Refused(answer), _) => {
            // A client that has gone need not be told.
            let _ = send_all(stream.transport(), &answer, Instant::now() + ANSWER_TIME);
            stream.transport().shutdown();
            Ok(None)
        }
        (Tell::Signature(_), _) => Err(io::Error::other("the daemon signs what nobody has asked for")),
    }
}
