use super::*;
use crate::transport::tcp::Tcp;
use crate::transport::tls::{Tls, Trust};
use crate::wire::{from_bytes, to_bytes};
use proptest::prelude::*;
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Only tells hanging from working.
const LIMIT: Duration = Duration::from_secs(30);

fn identity(algorithm: &'static rcgen::SignatureAlgorithm) -> Identity {
    let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
    let params = rcgen::CertificateParams::new(vec!["rgpu".into()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    Identity::from_pem(certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap()
}

fn to_be_signed(hash: usize) -> Vec<u8> {
    [&[b' '; SPACES][..], CONTEXT, &vec![7; hash]].concat()
}

/// Somebody who has the key, and what was asked for.
#[derive(Debug)]
struct Keeper {
    identity: Identity,
    asked: Mutex<Vec<(u16, Vec<u8>)>>,
}

impl AskToSign for Keeper {
    fn ask(&self, scheme: u16, message: &[u8]) -> io::Result<Vec<u8>> {
        self.asked.lock().unwrap().push((scheme, message.to_vec()));
        self.identity.sign(scheme, message)
    }
}

/// Says nothing, or nonsense.
#[derive(Debug)]
struct Useless(Option<Vec<u8>>);

impl AskToSign for Useless {
    fn ask(&self, _scheme: u16, _message: &[u8]) -> io::Result<Vec<u8>> {
        self.0.clone().ok_or_else(|| io::Error::other("nobody signs"))
    }
}

fn shake(identity: &Identity, trust: &Trust) -> (io::Result<Tls>, io::Result<Tls>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server = listener.accept().unwrap().0;
    let tcp = |stream: TcpStream| Tcp::adopt(stream.into(), "test".into()).unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| Tls::accept(tcp(server), identity, Instant::now() + LIMIT));
        let client = Tls::connect(tcp(client), "localhost:1", trust, Instant::now() + LIMIT);
        (client, server.join().unwrap())
    })
}

#[test]
fn a_handshake_takes_one_signature_of_somebody_else_whatever_the_kind_of_key() {
    for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
        let keeper = Arc::new(Keeper { identity: identity(algorithm), asked: Mutex::default() });
        let trust = Trust::Fingerprints(vec![keeper.identity.fingerprint()]);
        let shown: Shown = from_bytes(&to_bytes(&keeper.identity.shown())).unwrap();
        let without_key = Identity::signed_elsewhere(shown, keeper.clone()).unwrap();
        assert_eq!(without_key.fingerprint(), keeper.identity.fingerprint());
        let (client, server) = shake(&without_key, &trust);
        assert_eq!(client.unwrap().server(), server.unwrap().server());
        let asked = keeper.asked.lock().unwrap();
        assert_eq!(asked.len(), 1, "{algorithm:?}");
        assert!(is_certificate_verify(&asked[0].1));
    }
}

#[test]
fn without_a_signature_there_is_no_session() {
    let right = identity(&rcgen::PKCS_ECDSA_P256_SHA256);
    let trust = Trust::Fingerprints(vec![right.fingerprint()]);
    for (answer, said) in [(None, "nobody signs"), (Some(vec![1; 70]), "DecryptError")] {
        let without_key = Identity::signed_elsewhere(right.shown(), Arc::new(Useless(answer))).unwrap();
        let (client, server) = shake(&without_key, &trust);
        assert!(client.is_err());
        let text = server.err().unwrap().to_string();
        assert!(text.contains(said), "{text}");
    }
    let none = Shown { chain: Vec::new(), ..right.shown() };
    assert!(Identity::signed_elsewhere(none, Arc::new(Useless(None))).is_err());
}

#[test]
fn only_what_a_server_signs_in_a_handshake_is_signed() {
    let identity = identity(&rcgen::PKCS_ECDSA_P256_SHA256);
    let scheme = identity.shown().schemes[0];
    for hash in [32, 48] {
        assert!(identity.sign(scheme, &to_be_signed(hash)).is_ok());
    }
    let good = to_be_signed(32);
    let client = String::from_utf8_lossy(&good).replace("server", "client").into_bytes();
    let mut wrong = vec![Vec::new(), good[1..].to_vec(), [&good[..], &[0]].concat(), client];
    wrong.extend([0, 20, 31, 33, 47, 49, 64].map(to_be_signed));
    // No byte but the hash's may be another.
    for at in 0..SPACES + CONTEXT.len() {
        let mut changed = good.clone();
        changed[at] ^= 1;
        wrong.push(changed);
    }
    for message in wrong {
        let refused = identity.sign(scheme, &message).unwrap_err().to_string();
        assert!(refused.contains("not what a server signs"), "{refused}");
    }
    // Kinds of signature that TLS 1.3 has no use for, or that are another key's.
    for scheme in [0, 0x0401, 0x0201, 0x0804, 0x0807, 0xffff] {
        let refused = identity.sign(scheme, &good).unwrap_err().to_string();
        assert!(refused.contains("makes no signatures by"), "{refused}");
    }
}

proptest! {
    #[test]
    fn no_other_bytes_are_signed(bytes: Vec<u8>, spaces in 0usize..70, cut: prop::sample::Index) {
        prop_assert!(!is_certificate_verify(&bytes));
        let longer = [&vec![b' '; spaces][..], CONTEXT, &bytes].concat();
        prop_assert_eq!(is_certificate_verify(&longer), spaces == SPACES && HASHES.contains(&bytes.len()));
        prop_assert!(from_bytes::<Shown>(&bytes).is_err() || bytes.len() >= Shown::MIN_BYTES);
        let good = to_be_signed(48);
        prop_assert!(!is_certificate_verify(&good[..cut.index(SPACES + CONTEXT.len() + 32)]));
    }
}
