use super::*;
use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::crypto::CryptoProvider;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// Only tells hanging from working.
const LIMIT: Duration = Duration::from_secs(30);

fn end() -> Instant {
    Instant::now() + LIMIT
}

fn identity() -> Identity {
    let made = rcgen::generate_simple_self_signed(vec!["rgpu".into()]).unwrap();
    Identity::from_pem(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes()).unwrap()
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn tcp(stream: TcpStream) -> Tcp {
    Tcp::adopt(stream.into(), "test".into()).unwrap()
}

fn meet(trust: &Trust, address: &str, identity: &Identity) -> (io::Result<Tls>, io::Result<Tls>) {
    let (client, server) = sockets();
    thread::scope(|scope| {
        let server = scope.spawn(|| Tls::accept(tcp(server), identity, end()));
        (Tls::connect(tcp(client), address, trust, end()), server.join().unwrap())
    })
}

fn pair() -> (Tls, Tls) {
    let identity = identity();
    let trust = Trust::Fingerprints(vec![identity.fingerprint()]);
    let (client, server) = meet(&trust, "localhost:1", &identity);
    (client.unwrap(), server.unwrap())
}

fn patiently(tls: &Tls, want: Ready, mut action: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    let end = end();
    loop {
        match action() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                assert!(Instant::now() < end, "nothing happens");
                tls.wait(want, None, Some(LIMIT)).unwrap();
            }
            result => return result,
        }
    }
}

fn send_all(tls: &Tls, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let n = patiently(tls, Ready::WRITE, || tls.send(&[IoSlice::new(bytes)])).unwrap();
        assert!(n > 0);
        bytes = &bytes[n..];
    }
}

fn receive(tls: &Tls, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut at = 0;
    while at < length {
        let n = patiently(tls, Ready::READ, || tls.recv(&mut bytes[at..])).unwrap();
        assert!(n > 0, "it ended after {at} of {length} bytes");
        at += n;
    }
    bytes
}

fn pattern(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn both_ends_send_and_receive_at_once() {
    let (a, b) = pair();
    assert_eq!(a.server(), b.server());
    assert!(a.is_encrypted() && !a.survives_bad_memory());
    let (up, down) = (pattern(5_000_001, 1), pattern(3_000_003, 2));
    thread::scope(|scope| {
        scope.spawn(|| send_all(&a, &up));
        scope.spawn(|| send_all(&b, &down));
        let at_b = scope.spawn(|| receive(&b, up.len()));
        assert!(receive(&a, down.len()) == down);
        assert!(at_b.join().unwrap() == up);
    });
}

#[test]
fn short_pieces_share_a_record_and_what_is_left_of_one_is_seen_without_the_socket() {
    let (a, b) = pair();
    let (long, short) = (pattern(40_000, 3), [7u8; 22]);
    let pieces = [&short[..], &[], &long, &short].map(IoSlice::new);
    let whole = [&short[..], &long, &short].concat();
    assert_eq!(a.send(&pieces).unwrap(), whole.len());
    assert_eq!(receive(&b, 5), whole[..5]);
    // The rest of the record is nowhere but here.
    assert!(b.wait(Ready::READ, None, Some(Duration::ZERO)).unwrap().read);
    assert_eq!(receive(&b, whole.len() - 5), whole[5..]);
    assert!(!b.wait(Ready::READ, None, Some(Duration::ZERO)).unwrap().read);
    let nothing = b.recv(&mut [0; 4]).unwrap_err();
    assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn what_has_no_room_is_reported_once_it_is_on_its_way() {
    let (a, b) = pair();
    let bytes = pattern(64 << 20, 4);
    let mut sent = 0;
    while let Ok(n) = a.send(&[IoSlice::new(&bytes[sent..])]) {
        sent += n;
        assert!(sent < bytes.len(), "the kernel takes everything");
    }
    // It is not as if nothing had happened: other bytes must not follow.
    let other = a.send(&[IoSlice::new(b"x")]).unwrap_err();
    assert_eq!(other.kind(), io::ErrorKind::WouldBlock);
    thread::scope(|scope| {
        scope.spawn(|| send_all(&a, &bytes[sent..]));
        assert!(receive(&b, bytes.len()) == bytes);
    });
}

#[test]
fn keys_are_renewed_in_between() {
    let (a, b) = pair();
    for round in 0..5 {
        for (from, to) in [(&a, &b), (&b, &a)] {
            lock(&from.engine).refresh();
            let bytes = pattern(100_000, round);
            thread::scope(|scope| {
                scope.spawn(|| send_all(from, &bytes));
                assert!(receive(to, bytes.len()) == bytes);
            });
        }
    }
}

#[test]
fn an_end_is_an_end_with_or_without_a_last_word() {
    for polite in [true, false] {
        let (a, b) = pair();
        send_all(&a, b"last");
        match polite {
            true => a.shutdown(),
            false => a.tcp().shutdown(),
        }
        assert_eq!(receive(&b, 4), b"last");
        let mut byte = [0];
        assert_eq!(patiently(&b, Ready::READ, || b.recv(&mut byte)).unwrap(), 0);
        assert!(b.wait_for_hangup(Some(LIMIT)).unwrap());
        assert!(b.wait(Ready::READ, None, None).unwrap().read);
        assert_eq!(b.recv(&mut byte).unwrap(), 0);
    }
}

#[test]
fn what_is_changed_on_the_way_ends_the_session() {
    for garbage in
        [&[23, 3, 3, 0, 20][..], &[23, 3, 3, 0xff, 0xff], b"GET / HTTP/1.0\r\n\r\n", &[22, 3, 3, 0, 1, 0]]
    {
        let (a, b) = pair();
        let bytes = [garbage, &[0x5a; 10_000]].concat();
        a.tcp().send(&[IoSlice::new(&bytes)]).unwrap();
        let mut byte = [0];
        let failed = patiently(&b, Ready::READ, || b.recv(&mut byte)).unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::InvalidData, "{failed}");
        assert_eq!(b.recv(&mut byte).unwrap(), 0);
    }
}

#[test]
fn another_certificate_is_refused_and_both_sides_say_why() {
    let (right, wrong) = (identity(), identity());
    let trust = Trust::Fingerprints(vec![right.fingerprint()]);
    let (client, server) = meet(&trust, "127.0.0.1:7070", &wrong);
    let text = client.err().unwrap().to_string();
    assert!(text.contains(&wrong.fingerprint().to_string()) && text.contains("not the server"), "{text}");
    assert!(server.is_err());
    let both = Trust::Fingerprints(vec![right.fingerprint(), wrong.fingerprint()]);
    assert!(meet(&both, "[::1]:7070", &wrong).0.is_ok());
    assert!(Tls::connect(tcp(sockets().0), "a:1", &Trust::Fingerprints(Vec::new()), end()).is_err());
}

#[test]
fn authorities_vouch_for_names_and_times() {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority");
    let key = KeyPair::generate().unwrap();
    let ca = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let sign = |name: &str, until: i32| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(until, 1, 1));
        let certificate = params.signed_by(&key, &issuer).unwrap().pem();
        Identity::from_pem(certificate.as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    };
    let trust = Trust::Authorities(ca.into_bytes());
    assert!(meet(&trust, "gpu.example:7070", &sign("gpu.example", 4000)).0.is_ok());
    assert!(meet(&trust, "127.0.0.1:7070", &sign("127.0.0.1", 4000)).0.is_ok());
    for (identity, said) in [
        (sign("other.example", 4000), "another name"),
        (sign("gpu.example", 2021), "expired"),
        (identity(), "none of the authorities"),
    ] {
        let text = meet(&trust, "gpu.example:7070", &identity).0.err().unwrap().to_string();
        assert!(text.contains(said), "{text}");
    }
    assert!(meet(&Trust::Authorities(b"none".to_vec()), "a:1", &identity()).0.is_err());
    assert!(Identity::from_pem(b"none", b"none").is_err());
}

#[test]
fn servers_that_do_not_encrypt_are_recognised() {
    let (client, server) = sockets();
    let trust = Trust::Fingerprints(vec![Fingerprint([1; 32])]);
    // What a server says to somebody whose hello it doesn't understand.
    tcp(server).send(&[IoSlice::new(b"RGPU\x01\x00\x03\x00\x04\x00\x00\x00abcd")]).unwrap();
    let refused = Tls::connect(tcp(client), "a:1", &trust, end()).err().unwrap();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    assert!(refused.to_string().contains("--tls"), "{refused}");
}

#[test]
fn strangers_who_send_garbage_or_leave_or_stay_silent_are_let_go() {
    let identity = identity();
    let accept = |said: &[u8], leaves: bool, time: Duration| {
        let (client, server) = sockets();
        let client = tcp(client);
        client.send(&[IoSlice::new(said)]).unwrap();
        let stays = match leaves {
            true => {
                drop(client);
                None
            }
            false => Some(client),
        };
        let result = Tls::accept(tcp(server), &identity, Instant::now() + time);
        drop(stays);
        result.err().expect("no client").kind()
    };
    let garbage = pattern(100_000, 9);
    assert_eq!(
        accept(&[&[FIRST_BYTE, 3, 1, 0, 50], &garbage[..]].concat(), false, LIMIT),
        io::ErrorKind::InvalidData
    );
    assert_eq!(accept(&[FIRST_BYTE, 3, 1, 1], true, LIMIT), io::ErrorKind::UnexpectedEof);
    assert_eq!(accept(&[FIRST_BYTE, 3, 1, 1], false, Duration::from_millis(50)), io::ErrorKind::TimedOut);
    // A message that claims to be long, in records that are: no more is kept than a handshake may have.
    let mut endless = Vec::new();
    for _ in 0..20 {
        endless.extend([FIRST_BYTE, 3, 1, 0x40, 0]);
        endless.extend(if endless.len() == 5 { vec![1, 0, 0xff, 0xff] } else { Vec::new() });
        endless.resize(endless.len().next_multiple_of(16384 + 5), 0);
    }
    assert_eq!(accept(&endless, false, LIMIT), io::ErrorKind::InvalidData);
}

#[test]
fn fingerprints_are_read_as_people_write_them() {
    let fingerprint = Fingerprint(std::array::from_fn(|i| i as u8 * 7));
    let text = fingerprint.to_string();
    assert_eq!(text.parse(), Ok(fingerprint));
    let digits = text["sha256:".len()..].to_uppercase();
    let colons: Vec<&str> = (0..32).map(|i| &digits[2 * i..2 * i + 2]).collect();
    assert_eq!(Fingerprint::list(&format!(" SHA256:{}, {text}", colons.join(":"))), Ok(vec![fingerprint; 2]));
    for bad in ["", "sha256:", "sha256:12", &text[1..], &format!("{text}0"), "sha256:é"] {
        assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
    }
    assert_eq!((host_of("a.b:1"), host_of("[::1]:2"), host_of("c")), ("a.b", "::1", "c"));
}

#[test]
fn every_cipher_carries_long_and_short_data_both_ways_with_new_keys_now_and_then() {
    let made = rcgen::generate_simple_self_signed(vec!["rgpu".into()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    for suite in trust::crypto().cipher_suites.clone() {
        let crypto = CryptoProvider { cipher_suites: vec![suite], ..(*trust::crypto()).clone() };
        let identity =
            Identity::with_crypto(certificate.as_bytes(), key.as_bytes(), Arc::new(crypto)).unwrap();
        let trust = Trust::Fingerprints(vec![identity.fingerprint()]);
        let (client, server) = meet(&trust, "localhost:1", &identity);
        let (client, server) = (client.unwrap(), server.unwrap());
        for round in 0..3 {
            let (up, down) = (pattern(1_000_001, round), pattern(2_000_003, round + 9));
            thread::scope(|scope| {
                scope.spawn(|| send_all(&client, &up));
                scope.spawn(|| send_all(&server, &down));
                let there = scope.spawn(|| receive(&server, up.len()));
                assert!(receive(&client, down.len()) == down);
                assert!(there.join().unwrap() == up);
            });
            lock(&client.engine).refresh();
            if round == 1 {
                lock(&server.engine).refresh();
            }
        }
        // The end is told.
        server.shutdown();
        assert_eq!(patiently(&client, Ready::READ, || client.recv(&mut [0; 4])).unwrap(), 0);
    }
}

#[test]
fn a_session_ends_where_a_record_was_changed_and_the_client_is_told() {
    let (client, server) = pair();
    client.tcp().send(&[IoSlice::new(&[23, 3, 3, 0, 32]), IoSlice::new(&[9; 32])]).unwrap();
    let end = patiently(&server, Ready::READ, || server.recv(&mut [0; 8])).unwrap_err();
    assert_eq!(end.kind(), io::ErrorKind::InvalidData);
    assert!(server.send(&[IoSlice::new(b"x")]).is_err());
    let told = patiently(&client, Ready::READ, || client.recv(&mut [0; 8])).unwrap_err();
    assert!(told.to_string().contains("BadRecordMac"), "{told}");
}

#[test]
fn a_record_that_is_too_long_is_answered_with_the_reason() {
    let (client, server) = pair();
    client.tcp().send(&[IoSlice::new(&[23, 3, 3, 0xff, 0xff])]).unwrap();
    let end = patiently(&server, Ready::READ, || server.recv(&mut [0; 8])).unwrap_err();
    assert!(end.to_string().contains("too long"), "{end}");
    let told = patiently(&client, Ready::READ, || client.recv(&mut [0; 8])).unwrap_err();
    // rustls is a little more generous about lengths, and calls it by another name.
    assert!(told.to_string().contains("DecodeError"), "{told}");
    assert!(server.send(&[IoSlice::new(b"x")]).is_err());
    assert_eq!(server.recv(&mut [0; 8]).unwrap(), 0);
}

/// Sends so many records that bring nothing but the word that new keys follow.
fn send_empty(tls: &Tls, count: usize) {
    let mut out = Vec::new();
    for _ in 0..count {
        let mut engine = lock(&tls.engine);
        engine.refresh();
        engine.encrypt(&[], &mut out).unwrap();
    }
    assert!(out.len() >= 22 * count, "they are there");
    super::send_all(tls.tcp(), &out, end()).unwrap();
}

#[test]
fn records_without_anything_in_them_come_to_an_end() {
    let (client, server) = pair();
    for (from, to) in [(&client, &server), (&server, &client)] {
        // Some are nothing to object to, and what comes between them counts.
        for _ in 0..3 {
            send_empty(from, MOST_EMPTY as usize - 8);
            send_all(from, b"data");
            assert_eq!(receive(to, 4), b"data");
        }
    }
    send_empty(&client, MOST_EMPTY as usize + 1);
    let end = patiently(&server, Ready::READ, || server.recv(&mut [0; 8])).unwrap_err();
    // rustls counts by itself.
    let words = ["without anything", "TooManyKeyUpdateRequests"];
    assert!(words.iter().any(|word| end.to_string().contains(word)), "{end}");
    assert_eq!(server.recv(&mut [0; 8]).unwrap(), 0);
    assert!(server.send(&[IoSlice::new(b"x")]).is_err());
}

#[test]
fn what_follows_the_last_word_is_not_taken() {
    let (client, server) = pair();
    send_all(&client, b"last");
    let mut out = Vec::new();
    lock(&client.engine).close(&mut out).unwrap();
    super::send_all(client.tcp(), &out, end()).unwrap();
    assert_eq!(receive(&server, 4), b"last");
    let mut two = [0; 2];
    assert_eq!(patiently(&server, Ready::READ, || server.recv(&mut two)).unwrap(), 0);
    client.tcp().send(&[IoSlice::new(&[23, 3, 3, 0, 32]), IoSlice::new(&[9; 32])]).unwrap();
    assert_eq!(server.recv(&mut two).unwrap(), 0);
    assert!(server.wait(Ready::READ, None, Some(Duration::ZERO)).unwrap().read);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is done to the client's bytes on their way, the server gets a prefix of what was said, and then an end.
    /// All that was said is heard only where the change is in a record's type or version. They are constants (RFC 8446,
    /// section 5.2), so that rustls checks the rest with the constants and does not look at most changes of these bytes.
    #[test]
    fn bytes_that_were_changed_on_the_way_are_never_taken_for_what_was_said(
        pieces in proptest::collection::vec(1usize..20_000, 1..4), at: prop::sample::Index, flip in 1u8..,
    ) {
        let (client, server) = pair();
        let said: Vec<u8> = pieces.iter().enumerate().flat_map(|(i, n)| pattern(*n, i as u32)).collect();
        let mut out = Vec::new();
        for piece in said.chunks(MAX_PLAIN) {
            lock(&client.engine).encrypt(piece, &mut out).unwrap();
        }
        let (mut constants, mut header) = (Vec::new(), 0);
        while header < out.len() {
            constants.extend(header..header + 3);
            header += 5 + usize::from(u16::from_be_bytes([out[header + 3], out[header + 4]]));
        }
        let at = at.index(out.len());
        out[at] ^= flip;
        let heard = thread::scope(|scope| {
            scope.spawn(|| {
                // The server may have gone already.
                let _ = super::send_all(client.tcp(), &out, end());
                client.tcp().shutdown();
            });
            let (mut heard, mut room) = (Vec::new(), [0; 5000]);
            loop {
                match patiently(&server, Ready::READ, || server.recv(&mut room)) {
                    Ok(n) if n > 0 => heard.extend_from_slice(&room[..n]),
                    _ => break heard,
                }
            }
        });
        prop_assert!(said.starts_with(&heard));
        prop_assert!(heard.len() < said.len() || constants.contains(&at), "byte {} of {}", at, out.len());
    }
}
