//! The commands that work on this repository.
fn main() {}
