//! The client's side of a session against the server's, in one process.

#[path = "../../client-shim/src/remote/mod.rs"]
#[allow(dead_code)]
mod remote;

#[test]
fn x() {}
