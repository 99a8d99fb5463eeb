//! Operations of mathematical libraries.

use rgpu_device::LibraryCall;

use crate::core::error::Result;
use crate::core::graph::op::{LibraryWork, Op};
use crate::core::process::Core;
use crate::core::stream::Stream;

impl Core {
    /// Enqueues an operation of a mathematical library; in a captured stream the graph will. `params` are its arguments as the
    /// device reads them, in which addresses are the device's.
    pub(crate) fn compute(&self, stream: &Stream, operation: u32, params: &[u8]) -> Result<()> {
        self.devices.check_sticky(stream.ordinal)?;
        let captured = self
            .captures
            .divert(stream, || Ok(Op::Library(LibraryWork { operation, params: params.into() })));
        if let Some(captured) = captured {
            return captured;
        }
        self.devices.before_device_work()?;
        let call = LibraryCall { stream: stream.handle, operation, params };
        if let Err(error) = self.devices.device().library(call) {
            self.devices.note_error(stream.ordinal, &error);
            return Err(error);
        }
        self.devices.work_enqueued(stream);
        Ok(())
    }

    /// The version of a mathematical library at a device, as that library numbers its versions. It is asked for once.
    pub(crate) fn math_version(&self, ordinal: u32, library: u32) -> Result<u32> {
        self.devices.library_version(ordinal, library)
    }
}
