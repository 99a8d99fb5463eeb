//! Without an RDMA device there is little to test; `cargo xtask test --rdma` runs the rest in a virtual machine that has one.

use super::*;

#[test]
fn infos_come_back() {
    let bytes: Vec<u8> = (0..Info::BYTES as u8).map(|b| if b == 11 { 1 } else { b }).collect();
    assert_eq!(Info::parse(&bytes).unwrap().to_bytes()[..], bytes);
    assert_eq!(Info::parse(&bytes[1..]), None);
}
