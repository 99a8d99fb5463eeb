//! A server's devices: there is one.

/// The most devices of a server.
pub(crate) const MAX_DEVICES: u32 = 1;
