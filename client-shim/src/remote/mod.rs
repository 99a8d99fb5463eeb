//! The device whose calls are forwarded to a server.
