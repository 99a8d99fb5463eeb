//! End-to-end tests (being written).
fn main() {}
