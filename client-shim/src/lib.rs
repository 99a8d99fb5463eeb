//! The client shim.
