//! Copies straight from one server to another.

use super::calls::{Dispatcher, Payload, Reply};
use rgpu_device::{Code, Error, Result};
use rgpu_protocol::calls::*;

impl Dispatcher {
    fn no_peers<T>() -> Result<T> {
        Err(Error::new(Code::PeerAccessUnsupported, "This server does not copy to other servers"))
    }

    pub(super) fn peer_expect(&mut self, _: PeerExpect, _: Payload<'_>) -> Reply<PeerKey> {
        Self::no_peers().into()
    }

    pub(super) fn peer_connect(&mut self, _: PeerConnect, _: Payload<'_>) -> Reply<()> {
        Self::no_peers().into()
    }

    pub(super) fn peer_send(&mut self, _: PeerSend, _: Payload<'_>) -> Reply<()> {
        Self::no_peers().into()
    }

    pub(super) fn peer_receive(&mut self, _: PeerReceive, _: Payload<'_>) -> Reply<()> {
        Self::no_peers().into()
    }

    pub(super) fn peer_close(&mut self, _: PeerClose, _: Payload<'_>) -> Result<()> {
        Self::no_peers()
    }
}
