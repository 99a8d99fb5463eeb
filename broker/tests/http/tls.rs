//! Encrypted connections, and clients that must show who they are.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rgpu_broker::serve::Server;
use rgpu_broker::setup;
use rgpu_control::token::Role;
use rgpu_control::{Broker, Tls};

use crate::support::{Scratch, config, raw_and_no_more};

/// An authority that signs certificates.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    Authority { pem, issuer: Issuer::new(params, key) }
}

impl Authority {
    /// A certificate for a name, and its key.
    fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

fn secret(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A directory with a broker's files, and the authorities of broker and clients.
fn files() -> (Scratch, Authority, Authority) {
    let scratch = Scratch::new();
    let directory = scratch.0.join("broker");
    setup::init(&directory, None).unwrap();
    let (brokers, clients) = (authority("brokers"), authority("clients"));
    let (certificate, key) = brokers.sign("127.0.0.1");
    fs::write(directory.join("cert.pem"), certificate).unwrap();
    secret(&directory.join("key.pem"), &key);
    fs::write(directory.join("clients.pem"), &clients.pem).unwrap();
    (scratch, brokers, clients)
}

const MUTUAL: &str = "[tls]\ncertificate = 'cert.pem'\nkey = 'key.pem'\nclient_ca = 'clients.pem'";

fn start(scratch: &Scratch, more: &str) -> Server {
    Server::start(&config(&scratch.0.join("broker"), more)).unwrap()
}

fn refused(scratch: &Scratch, more: &str) -> String {
    match Server::start(&config(&scratch.0.join("broker"), more)) {
        Ok(_) => panic!("it started with {more}"),
        Err(e) => e.to_string(),
    }
}

fn client(server: &Server, ca: &Authority, identity: Option<(String, String)>) -> Broker {
    let token = setup::issue(server.key(), Role::Tenant, "ann", 60).unwrap().token;
    let identity = identity.map(|(certificate, key)| (certificate.into_bytes(), key.into_bytes()));
    let tls = Tls { ca: Some(ca.pem.clone().into_bytes()), identity, ..Tls::default() };
    Broker::new(&server.url(), &token, &tls).unwrap()
}

#[test]
fn with_an_authority_clients_must_show_its_certificate() {
    let (scratch, brokers, clients) = files();
    let server = start(&scratch, MUTUAL);
    assert!(server.url().starts_with("https://"));

    let good = client(&server, &brokers, Some(clients.sign("ann")));
    assert_eq!(good.health().unwrap().status, "ok");
    assert!(good.leases(false).unwrap().is_empty());

    for (what, bad) in [
        ("no certificate", client(&server, &brokers, None)),
        ("another authority's", client(&server, &brokers, Some(authority("others").sign("ann")))),
        ("a broker's", client(&server, &brokers, Some(brokers.sign("ann")))),
    ] {
        let error = bad.health().map(|health| panic!("{what} was enough: {health:?}")).unwrap_err();
        assert!(error.to_string().contains(&server.url()), "{what}: {error}");
    }
    // The client checks the broker as well.
    let fooled = client(&server, &authority("others"), Some(clients.sign("ann")));
    assert!(fooled.health().unwrap_err().to_string().contains("ertificate"));
    // Somebody without encryption gets nothing, and does no harm.
    let answer = raw_and_no_more(server.address(), b"GET /v1/health HTTP/1.1\r\nhost: b\r\n\r\n");
    assert_eq!(answer.status, 0, "{answer:?}");
    assert_eq!(good.health().unwrap().status, "ok");
    server.stop();
}

#[test]
fn without_an_authority_they_need_not() {
    let (scratch, brokers, _) = files();
    let server = start(&scratch, "[tls]\ncertificate = 'cert.pem'\nkey = 'key.pem'");
    assert!(client(&server, &brokers, None).leases(false).is_ok());
    server.stop();
}

#[test]
fn bad_files_are_told() {
    let (scratch, _, clients) = files();
    let directory = scratch.0.join("broker");
    fs::write(directory.join("empty.pem"), "nothing here\n").unwrap();
    for (more, parts) in [
        (MUTUAL.replace("cert.pem", "missing.pem"), ["certificate", "missing.pem"]),
        (MUTUAL.replace("cert.pem", "empty.pem"), ["no certificate", "empty.pem"]),
        (MUTUAL.replace("key.pem", "clients.pem"), ["private key", "clients.pem"]),
        (MUTUAL.replace("clients.pem", "empty.pem"), ["no certificate", "empty.pem"]),
    ] {
        fs::set_permissions(directory.join("clients.pem"), fs::Permissions::from_mode(0o600)).unwrap();
        let error = refused(&scratch, &more);
        assert!(parts.iter().all(|part| error.contains(part)), "{more}: {error}");
    }
    // Another certificate's key.
    secret(&directory.join("other.pem"), &clients.sign("x").1);
    let error = refused(&scratch, &MUTUAL.replace("key.pem", "other.pem"));
    assert!(error.contains("key") && error.contains("cert.pem"), "{error}");
    fs::set_permissions(directory.join("key.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(refused(&scratch, MUTUAL).contains("chmod 600"));
}
