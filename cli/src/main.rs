//! The one command that people type.
fn main() {}
