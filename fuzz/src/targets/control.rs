//! What a broker, its clients and its nodes say, and what people write.

use crate::input::Material;
use crate::random::Random;
use rgpu_control::api;
use rgpu_control::proof::{Moment, Verifier, present};
use rgpu_control::ticket::Ticket;
use rgpu_control::token::{self, Claims, Grant, LeaseClaims, PrivateKey, PublicKey, Role, RoleClaims};
use rgpu_control::{LeaseId, units};
use std::cell::RefCell;
use std::sync::LazyLock;

/// In seconds since 1970.
const NOW: u64 = 1_800_000_000;

/// Keys that are the same in every run.
fn key(number: u8) -> PrivateKey {
    // 32 bytes in base64.
    let letter = char::from(b'A' + number);
    PrivateKey::parse(&format!("{letter}{}", "A".repeat(42))).expect("it is one")
}

/// The key that the broker signs with is known by this.
static BROKER: LazyLock<PublicKey> = LazyLock::new(|| key(0).public());
/// What the broker has signed.
static SIGNED: LazyLock<[Claims; 2]> = LazyLock::new(|| [role(), Claims::Lease(claims())]);

fn claims() -> LeaseClaims {
    LeaseClaims {
        lease: LeaseId(7),
        version: 1,
        orders: 2,
        tenant: "ann".into(),
        not_before: NOW - 10,
        expires: NOW + 3600,
        holder: key(1).public().to_text(),
        transport: "auto".into(),
        encrypt: false,
        grants: vec![Grant { node: "node".into(), device: 0, memory: 1 << 30, share_milli: 500 }],
    }
}

fn role() -> Claims {
    Claims::Role(RoleClaims {
        role: Role::Tenant,
        name: "ann".into(),
        not_before: NOW - 10,
        expires: NOW + 60,
    })
}

pub(super) fn tokens(bytes: &[u8]) -> Result<bool, String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(false) };
    let peeked = token::peek(text).is_ok();
    let Ok(claims) = BROKER.verify(text, NOW) else { return Ok(peeked) };
    // Nobody but the broker signs.
    if !SIGNED.contains(&claims) {
        return Err(format!("a token that was never signed is believed: {claims:?}"));
    }
    Ok(true)
}

pub(super) fn token_texts() -> Material {
    let (broker, other) = (key(0), key(2));
    let signed = [broker.sign(&role()), broker.sign(&Claims::Lease(claims())), other.sign(&role())];
    let texts: Vec<&str> = signed.iter().map(String::as_str).collect();
    Material::texts(&texts, &[".", "~", "=", "rgpu1", "eyJ", "=="])
}

/// A moment on a clock that nobody sets.
fn moment(unix_ms: u64) -> Moment {
    Moment { unix_ms, steady_ms: unix_ms }
}

thread_local! {
    static VERIFIER: RefCell<Verifier> =
        RefCell::new(Verifier::new(*BROKER, "node", moment(NOW * 1000 - 60_000)));
}

pub(super) fn proofs(bytes: &[u8]) -> Result<bool, String> {
    // None of the examples is for session 9 of this node, with the holder's key: nothing may be admitted.
    VERIFIER.with_borrow_mut(|verifier| {
        let bound = [3; 32];
        if verifier.admit_bound(bytes, 8, moment(NOW * 1000), Some(&bound)).is_ok() {
            return Err("a proof for no certificate is taken for one".into());
        }
        match verifier.admit(bytes, 9, moment(NOW * 1000)) {
            Ok(claims) => Err(format!("a proof of another session is believed: {claims:?}")),
            Err(_) => Ok(bytes.contains(&b'~')),
        }
    })
}

pub(super) fn proof_texts() -> Material {
    let token = key(0).sign(&Claims::Lease(claims()));
    let of = |session, node| present(&token, &key(1), session, node, NOW * 1000);
    let stranger = present(&token, &key(2), 9, "node", NOW * 1000);
    let words = [&b"~"[..], b"."].map(<[u8]>::to_vec).to_vec();
    Material { examples: vec![of(7, "node"), of(9, "other"), stranger], words }
}

fn json<T: serde_json_value::Comes>(bytes: &[u8]) -> Result<bool, String> {
    T::comes_back(bytes)
}

/// Types that JSON becomes.
mod serde_json_value {
    use std::fmt::Debug;

    pub(super) trait Comes {
        fn comes_back(bytes: &[u8]) -> Result<bool, String>;
    }

    impl<T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug> Comes for T {
        fn comes_back(bytes: &[u8]) -> Result<bool, String> {
            let Ok(value) = serde_json::from_slice::<T>(bytes) else { return Ok(false) };
            let text = serde_json::to_vec(&value).map_err(|e| format!("{value:?} cannot be written: {e}"))?;
            match serde_json::from_slice::<T>(&text) {
                Ok(again) if again == value => Ok(true),
                // Numbers that are none (from 1e999) have no form in JSON.
                Err(_) if text.windows(4).any(|four| four == b"null") => Ok(true),
                again => Err(format!("{value:?} comes back as {again:?}")),
            }
        }
    }
}

pub(super) fn tickets(bytes: &[u8]) -> Result<bool, String> {
    if let Ok(ticket) = serde_json::from_slice::<Ticket>(bytes) {
        let _ = ticket.private_key();
    }
    json::<Ticket>(bytes)
}

const TICKET: &str = r#"{"lease":"0000000000000007","token":"a.b.c","key":"AAAA","transport":"auto","servers":[{"node":"n",
"address":"127.0.0.1:7070","devices":1,"tls":true,"fingerprint":"sha256:00"}],"ca":"-----BEGIN CERTIFICATE-----"}"#;

pub(super) fn ticket_texts() -> Material {
    Material::texts(&[TICKET], JSON_WORDS)
}

pub(super) fn requests(bytes: &[u8]) -> Result<bool, String> {
    let mut good = false;
    good |= json::<api::LeaseRequest>(bytes)?;
    good |= json::<api::LeaseChange>(bytes)?;
    good |= json::<api::Renewal>(bytes)?;
    good |= json::<api::Registration>(bytes)?;
    good |= json::<api::Heartbeat>(bytes)?;
    good |= json::<api::Drain>(bytes)?;
    good |= json::<api::PolicySettings>(bytes)?;
    good |= json::<api::TokenRequest>(bytes)?;
    // What clients and nodes read of a broker.
    good |= json::<api::ErrorBody>(bytes)?;
    good |= json::<api::Lease>(bytes)?;
    good |= json::<api::Orders>(bytes)?;
    good |= json::<api::Welcome>(bytes)?;
    good |= json::<api::Node>(bytes)?;
    Ok(good)
}

const JSON_WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1e999",
    "18446744073709551616",
    "1.5",
    "\\u0000",
    "\\ud800",
    "\"gpus\":",
    "\"memory\":",
    "\"name\":",
    "\"devices\":",
    "\"leases\":",
    "\"share_milli\":",
    "\"version\":",
    "\"uuid\":",
    "{}",
    "[]",
    "\"\"",
];

pub(super) fn request_texts() -> Material {
    Material::texts(
        &[
            r#"{"gpus":2,"gpu_memory":1073741824,"share_milli":250,"holder":"AAAA","transport":"tcp","encrypt":true}"#,
            r#"{"devices":[{"number":0,"uuid":"GPU-x","name":"Software GPU","memory":8589934592}],"address":"10.0.0.1:7070"}"#,
            r#"{"leases":[{"lease":"0000000000000007","version":1}],"devices":[{"number":0,"memory_used":5}],"orders":3}"#,
            r#"{"role":"tenant","name":"ann","seconds":3600}"#,
            r#"{"drain":true}"#,
            r#"{"policy":"flow","weights":{"a":1.5}}"#,
            r#"{"error":{"code":"not_found","message":"no such lease"}}"#,
            TICKET,
            "{}",
        ],
        JSON_WORDS,
    )
}

/// JSON of any form, up to deeper than is allowed.
pub(super) fn some_json(random: &mut Random, out: &mut Vec<u8>) {
    let depth = if random.one_in(50) { 200 } else { random.below(6) };
    value(random, out, depth);
}

fn value(random: &mut Random, out: &mut Vec<u8>, depth: usize) {
    if depth == 0 || out.len() > 4000 {
        let plain: &[&[u8]] =
            &[b"0", b"-1", b"null", b"true", b"\"x\"", b"1.5e3", b"18446744073709551615", b"\"\""];
        out.extend_from_slice(random.pick(plain).copied().unwrap_or(b"0"));
        return;
    }
    let names =
        ["gpus", "devices", "name", "leases", "lease", "memory", "version", "token", "node", "address", "é"];
    let count = if depth > 20 { 1 } else { random.below(4) };
    let list = random.one_in(3);
    out.push(if list { b'[' } else { b'{' });
    for at in 0..count {
        if at > 0 {
            out.push(b',');
        }
        if !list {
            let name = random.pick(&names).copied().unwrap_or("x");
            out.push(b'"');
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
        }
        value(random, out, depth - 1);
    }
    out.push(if list { b']' } else { b'}' });
}

pub(super) fn units(bytes: &[u8]) -> Result<bool, String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(false) };
    let mut good = false;
    if let Ok(number) = units::parse_bytes(text) {
        good = true;
        let again = units::parse_bytes(&number.to_string());
        if again != Ok(number) {
            return Err(format!("{number} bytes come back as {again:?}"));
        }
        let _ = units::bytes(number);
    }
    if let Ok(rate) = units::parse_rate(text) {
        good = true;
        if !rate.is_finite() || rate < 0.0 {
            return Err(format!("a rate of {rate}"));
        }
        let _ = units::rate(rate);
    }
    if let Ok(part) = units::parse_part(text) {
        good = true;
        if !(0.0..=1.0).contains(&part) {
            return Err(format!("a part of {part}"));
        }
    }
    if let Ok(share) = units::parse_share(text) {
        good = true;
        if share > 1000 {
            return Err(format!("a share of {share} thousandths"));
        }
    }
    good |= units::parse_duration(text).is_ok();
    good |= units::parse_seconds(text).is_ok_and(|seconds| !units::seconds(seconds).is_empty());
    good |= units::parse_mbps(text).is_ok();
    good |= units::parse_capability(text).is_ok();
    Ok(good)
}

pub(super) fn unit_texts() -> Material {
    Material::texts(
        &[
            "4GiB",
            "512 MiB",
            "1.5GB",
            "90s",
            "5ms",
            "2h",
            "1h30m",
            "10Gbit",
            "100Mbit/s",
            "25%",
            "0.5",
            "8.0",
            "3600",
        ],
        &[
            "GiB",
            "MB",
            "k",
            "%",
            ".",
            "-",
            "+",
            "e9",
            "inf",
            "NaN",
            "99999999999999999999",
            "s",
            "ms",
            "µs",
            "d",
            " ",
            "0x",
        ],
    )
}
