//! Memory that sessions of one tenant lend to each other, by way of the daemon.

use super::answers::Reply;
use super::calls::{Dispatcher, Payload};
use crate::desk::Counter;
use crate::shelf::Token;
use rgpu_device::{Code, Error, Range, Result};
use rgpu_protocol::calls::{MemoryExport, MemoryImport, MemoryWithdraw};
use std::collections::HashSet;
use std::sync::Arc;

/// What a session lends.
#[derive(Default)]
pub(super) struct Lending {
    /// The way to the daemon, where it can be told whose the session is.
    pub(super) counter: Option<Arc<Counter>>,
    tokens: HashSet<Token>,
}

impl Lending {
    fn counter(&self) -> Result<&Counter> {
        self.counter.as_deref().ok_or_else(|| {
            let text = "sharing memory with other processes (cuIpcGetMemHandle and its like) needs a server that can tell whose \
                        programs these are: by a token, a lease, or because they run on its own machine";
            Error::new(Code::NotSupported, text)
        })
    }
}

impl Dispatcher {
    pub(super) fn memory_export(&mut self, call: MemoryExport, _: Payload<'_>) -> Reply<Token> {
        self.ordinal = call.ordinal;
        Reply::Now(self.export(Range { base: call.addr, size: call.size }))
    }

    fn export(&mut self, range: Range) -> Result<Token> {
        let counter = self.lending.counter()?;
        let (file, offset) = self.device.lend_memory(self.ordinal, range)?;
        let token: Token = rgpu_control::token::random_bytes();
        if !counter.lend(&token, file, offset, range.size) {
            let text = "The server lends no more of this program's memory to others";
            return Err(Error::new(Code::OperatingSystem, text));
        }
        self.lending.tokens.insert(token);
        Ok(token)
    }

    pub(super) fn memory_withdraw(&mut self, call: MemoryWithdraw, _: Payload<'_>) -> Result<()> {
        if self.lending.tokens.remove(&call.token) {
            self.lending.counter()?.withdraw(&call.token);
        }
        Ok(())
    }

    pub(super) fn memory_import(&mut self, call: MemoryImport, _: Payload<'_>) -> Reply<()> {
        self.ordinal = call.ordinal;
        Reply::Now(self.import(Range { base: call.addr, size: call.size }, &call.token))
    }

    fn import(&mut self, place: Range, token: &Token) -> Result<()> {
        let unknown = || {
            let text = "No session of this server and tenant has memory of this handle (any more)";
            Error::new(Code::InvalidValue, text)
        };
        let (file, offset, size) = self.lending.counter()?.borrow(token).ok_or_else(unknown)?;
        if size != place.size {
            return Err(unknown());
        }
        self.device.borrow_memory(self.ordinal, place, file, offset)
    }
}
