//! Capturing streams of the process's core, for the doors; see [`captures`](super::captures).

pub(crate) use super::captures::{Info, Lane, Mode};

use super::op::Op;
use crate::core::error::Result;
use crate::core::process::{current, existing};
use crate::core::registry::Raw;

/// Whether the stream is being captured.
pub(crate) fn is_capturing(stream: impl Into<Lane>) -> bool {
    existing().is_some_and(|core| core.captures.is_capturing(stream))
}

/// If the stream is being captured, makes a node of what `op` yields: `Some` of how that went. `None` where the
/// work is to be executed.
pub(crate) fn divert(stream: impl Into<Lane>, op: impl FnOnce() -> Result<Op>) -> Option<Result<()>> {
    existing()?.captures.divert(stream, op)
}

/// Refuses a call that a captured stream does not allow, which also breaks the capture.
pub(crate) fn refuse(stream: impl Into<Lane>) -> Result<()> {
    current()?.captures.refuse(stream)
}

/// `cudaStreamBeginCapture`, into a graph of the program's own where one is given, after these nodes of it.
pub(crate) fn begin(stream: impl Into<Lane>, mode: Mode, into: Option<(Raw, Vec<Raw>)>) -> Result<()> {
    current()?.captures.begin(stream, mode, into)
}

/// `cudaStreamEndCapture`: the graph. It has to be `wanted`, but where it is the program's own.
pub(crate) fn end(stream: impl Into<Lane>, wanted: bool) -> Result<Raw> {
    current()?.captures.end(stream, wanted)
}

/// What a stream takes part in.
pub(crate) fn info(stream: impl Into<Lane>) -> Result<Info> {
    existing().map_or_else(|| Ok(Info::default()), |core| core.captures.info(stream))
}

/// `cudaStreamUpdateCaptureDependencies`
pub(crate) fn set_frontier(stream: impl Into<Lane>, nodes: &[Raw], replace: bool) -> Result<()> {
    current()?.captures.set_frontier(stream, nodes, replace)
}

/// A stream is destroyed: see [`super::captures::Captures::forget_stream`].
pub(crate) fn forget_stream(stream: impl Into<Lane>) {
    if let Some(core) = existing() {
        core.captures.forget_stream(stream);
    }
}
