//! What the fuzzer needs of this crate and nobody else does. No part of its interface.

use crate::DeviceSpec;
use crate::confine::Limits;
use crate::handshake::{Ask, Tell};
use crate::orders::{Begin, Orders};
use crate::peer::Identity;
use rgpu_protocol::hello::{Hello, HelloCheck, HelloExtras, HelloSeat};
use rgpu_protocol::wire::{Wire, from_bytes, to_bytes};

/// What the daemon has written for a process.
pub fn begin(bytes: &[u8]) -> bool {
    Begin::parse(bytes).is_ok()
}

/// What a process that speaks with a client asks for.
///
/// # Errors
/// It does not come back.
pub fn ask(bytes: &[u8]) -> Result<bool, String> {
    comes_back::<Ask>(bytes)
}

/// What the daemon answers.
///
/// # Errors
/// It does not come back.
pub fn tell(bytes: &[u8]) -> Result<bool, String> {
    comes_back::<Tell>(bytes)
}

fn comes_back<T: Wire>(bytes: &[u8]) -> Result<bool, String> {
    match from_bytes::<T>(bytes) {
        Ok(value) if to_bytes(&value) == bytes => Ok(true),
        Ok(_) => Err("it does not come back as it was".into()),
        Err(_) => Ok(false),
    }
}

/// Messages between the daemon and a process that speaks TLS.
pub fn messages() -> Vec<Vec<u8>> {
    let sign = Ask::Sign { scheme: 0x0403, message: vec![b' '; 130] };
    let hello = Ask::Hello { major: 1, minor: 2, body: vec![3; 60] };
    let asks = [sign, hello, Ask::NoTls("why".into()), Ask::NoHello("why".into())];
    let tells = [Tell::Signature(vec![1; 70]), Tell::Refused(vec![2; 60]), Tell::Admitted];
    asks.iter().map(to_bytes).chain(tells.iter().map(to_bytes)).collect()
}

/// What processes begin with.
pub fn beginnings() -> Vec<Vec<u8>> {
    let orders = Orders {
        device: DeviceSpec {
            driver: Some("/lib/x".into()),
            numbers: vec![1, 0],
            visible: vec!["GPU-x".into()],
            ..DeviceSpec::default()
        },
        ceiling: 100,
        slot: 1,
        daemon: 2,
        limits: Limits { memory: 5, threads: 6 },
        walled: true,
        peer: "127.0.0.1:1".into(),
        hello: Hello { program: "a".into(), ..Hello::default() },
        offer: vec![1; 40],
        minor: 2,
        seat: HelloSeat { index: 0, of: 1 },
        check: HelloCheck { tools: 3, limit: 4 },
        desk: true,
        extras: HelloExtras { keeps_images: true, images: vec![17, 18] },
        environment: vec![("A".into(), "b".into())],
        peers: Some(Identity { session: [1; 16], root: [2; 32] }),
    };
    // A handshake's certificates are bytes like others.
    let handshake =
        [1, 1, 0, 0, 0, b'a', 2, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 9, 9, 3, 1, 0, 0, 0, 3, 4, 1];
    vec![orders.to_bytes().to_vec(), handshake.to_vec()]
}
