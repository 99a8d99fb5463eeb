//! How a session comes to go over the stream itself.

use super::Tcp;
use crate::transport::connector::{Accepted, Connector, Offered, StreamItself};
use crate::transport::dial::Dial;
use crate::transport::error::ConnectError;
use crate::transport::kind::Kind;
use crate::transport::stream::{Carrier, Stream};
use std::io;

/// TCP, which needs no offer: the stream that carries the hello carries the session. It is the one that can be inside TLS.
pub(crate) struct TcpConnector;

impl Connector for TcpConnector {
    fn kind(&self) -> Kind {
        Tcp::KIND
    }

    fn summary(&self) -> &'static str {
        "one connection, encrypted where that is wanted"
    }

    fn feature(&self) -> u64 {
        0
    }

    fn runs_over(&self, carrier: Carrier) -> bool {
        matches!(carrier, Carrier::Tcp | Carrier::Tls)
    }

    fn offer(&self, dial: &mut Dial<'_>) -> Result<Offered, ConnectError> {
        Ok(Offered { stream: dial.take_network()?, offer: Box::new(StreamItself) })
    }

    fn accept(&self, _stream: &Stream, _offer: &[u8]) -> io::Result<Option<Accepted>> {
        Ok(None)
    }
}
