//! Which servers a program is to use: those of its lease, or those that `RGPU_SERVER` names.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rgpu_control::LEASE_VARIABLE;
use rgpu_control::proof::{self, Binding};
use rgpu_control::ticket::Ticket;
use rgpu_protocol::transport::tls::{Fingerprint, Trust};
use rgpu_protocol::transport::{
    CA_VARIABLE, Choice, ENCRYPT_VARIABLE, FINGERPRINT_VARIABLE, TRANSPORT_VARIABLE,
};

use super::check;
use super::error::{Code, Error, Result};
use rgpu_remote::{ConnectOptions, Credential, Encrypt, Server};

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The servers that the environment names, in the order of their devices' ordinals; none where it names none. A lease counts
/// for more than `RGPU_SERVER`. The lease's file is read anew each time: it is replaced when the lease is renewed.
pub(crate) fn of_environment(observe: bool) -> Result<Vec<Server>> {
    if let Some(path) = variable(LEASE_VARIABLE) {
        return of_lease(Path::new(&path), observe);
    }
    let Some(list) = variable("RGPU_SERVER") else { return Ok(Vec::new()) };
    let credential = token_file()?;
    let trust = trust_of_environment()?;
    let missing = || {
        format!(
            "there is nothing by which to know it: set {FINGERPRINT_VARIABLE} to what `rgpu serve` says when it starts \
             (sha256:…), or {CA_VARIABLE} to a file with the certificate (PEM) that signs the server's"
        )
    };
    let encrypt = (trust.is_some() || is_encryption_wanted()).then(|| Encrypt { trust, missing: missing() });
    let options = ConnectOptions {
        credential: credential.into(),
        observe,
        encrypt,
        check: check::of_environment()?,
        ..ConnectOptions::default()
    };
    let list = list.to_string_lossy();
    let named = list.split(',').map(str::trim).filter(|address| !address.is_empty());
    Ok(named
        .map(|address| Server { address: address.to_owned(), node: String::new(), options: options.clone() })
        .collect())
}

/// What proves that this program may use the servers: the contents of the file that `RGPU_TOKEN_FILE` names.
fn token_file() -> Result<Vec<u8>> {
    let Some(name) = variable("RGPU_TOKEN_FILE") else { return Ok(Vec::new()) };
    let text = std::fs::read(&name).map_err(|e| {
        let name = name.to_string_lossy();
        Error::new(Code::NoDevice, format!("Cannot read the token file {name}: {e}"))
    })?;
    Ok(text.trim_ascii().to_vec())
}

/// Whether the environment wants what leaves the machine encrypted.
fn is_encryption_wanted() -> bool {
    variable(ENCRYPT_VARIABLE).is_some_and(|value| value != "0")
}

/// By what the environment says that servers are known.
fn trust_of_environment() -> Result<Option<Trust>> {
    let bad = |name: &str, why: String| Error::new(Code::NoDevice, format!("{name} cannot be used: {why}"));
    if let Some(list) = variable(FINGERPRINT_VARIABLE) {
        let known = Fingerprint::list(&list.to_string_lossy()).map_err(|e| bad(FINGERPRINT_VARIABLE, e))?;
        return Ok(Some(Trust::Fingerprints(known)));
    }
    let Some(path) = variable(CA_VARIABLE) else { return Ok(None) };
    let pem = std::fs::read(&path)
        .map_err(|e| bad(CA_VARIABLE, format!("cannot read {}: {e}", path.to_string_lossy())))?;
    Ok(Some(Trust::Authorities(pem)))
}

/// The servers of the lease in a file.
fn of_lease(path: &Path, observe: bool) -> Result<Vec<Server>> {
    let ticket = Ticket::read(path).map_err(|e| {
        let text = match e.kind() {
            io::ErrorKind::NotFound => format!(
                "The lease that {LEASE_VARIABLE} names ({}) is gone: it has ended, and with it the right to \
                 use its devices; ask for another one with `rgpu run`",
                path.display()
            ),
            _ => format!("{LEASE_VARIABLE} cannot be used: {e}"),
        };
        Error::new(Code::NoDevice, text)
    })?;
    let broken = |what: String| {
        let text = format!("The lease {} in {} {what}", ticket.lease, path.display());
        Error::new(Code::NoDevice, text)
    };
    if ticket.servers.is_empty() {
        return Err(broken("names no server".into()));
    }
    let key = ticket.private_key().map_err(|e| broken(format!("cannot be used: {e}")))?;
    // Without a word in the environment it is the lease's that counts.
    let transport = match variable(TRANSPORT_VARIABLE) {
        Some(_) => None,
        None => {
            let choice: std::result::Result<Choice, _> = ticket.transport.parse();
            Some(choice.map_err(|e| broken(format!("names a transport that is not known: {e}")))?)
        }
    };
    let check = check::of_environment()?;
    let mut servers = Vec::new();
    for server in &ticket.servers {
        let fingerprint = server.fingerprint.as_deref().map(str::parse).transpose();
        let fingerprint: Option<Fingerprint> =
            fingerprint.map_err(|e| broken(format!("says of {} that {e}", server.address)))?;
        let trust = match (fingerprint, &ticket.ca) {
            (Some(known), _) => Some(Trust::Fingerprints(vec![known])),
            (None, Some(pem)) => Some(Trust::Authorities(pem.clone().into_bytes())),
            (None, None) => trust_of_environment()?,
        };
        let missing =
            format!("it offers no encryption (`rgpu serve --tls offer`), says the broker of {}", server.node);
        let encrypt = (server.tls || is_encryption_wanted()).then_some(Encrypt { trust, missing });
        let (token, key, node) = (ticket.token.clone(), key.clone(), server.node.clone());
        let prove = move |session, binding: Option<&Binding>| {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let now_ms = since.map_or(0, |t| t.as_millis() as u64);
            proof::present_bound(&token, &key, session, &node, now_ms, binding)
        };
        servers.push(Server {
            address: server.address.clone(),
            node: server.node.clone(),
            options: ConnectOptions {
                credential: Credential::Made(Arc::new(prove)),
                transport,
                encrypt,
                observe,
                check,
                ..ConnectOptions::default()
            },
        });
    }
    Ok(servers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_control::LeaseId;
    use rgpu_control::proof::{Moment, Verifier};
    use rgpu_control::ticket::LeaseServer;
    use rgpu_control::token::{Claims, Grant, LeaseClaims, PrivateKey};

    fn ticket(broker: &PrivateKey) -> Ticket {
        let holder = PrivateKey::generate();
        let now = rgpu_control::unix_time();
        let grant = |node: &str| Grant { node: node.into(), device: 0, memory: 1 << 30, share_milli: 1000 };
        let server = |node: &str, address: &str| LeaseServer {
            node: node.into(),
            address: address.into(),
            devices: 1,
            tls: false,
            fingerprint: None,
        };
        let claims = LeaseClaims {
            lease: LeaseId(7),
            version: 1,
            orders: 1,
            tenant: "ann".into(),
            not_before: now - 1,
            expires: now + 60,
            holder: holder.public().to_text(),
            transport: "tcp".into(),
            encrypt: false,
            grants: vec![grant("n0"), grant("n1")],
        };
        Ticket {
            lease: LeaseId(7),
            token: broker.sign(&Claims::Lease(claims)),
            key: holder.to_text(),
            transport: "tcp".into(),
            servers: vec![server("n0", "a:1"), server("n1", "b:2")],
            ca: None,
        }
    }

    #[test]
    fn each_server_of_a_lease_is_shown_a_proof_of_its_own() {
        let path = std::env::temp_dir().join(format!("rgpu-lease-{}-{}", std::process::id(), line!()));
        let broker = PrivateKey::generate();
        let mut ticket = ticket(&broker);
        ticket.write(&path).unwrap();
        let servers = of_lease(&path, false).unwrap();
        assert_eq!(servers.iter().map(|s| &*s.address).collect::<Vec<_>>(), ["a:1", "b:2"]);
        let at = |unix_ms| Moment { unix_ms, steady_ms: unix_ms };
        let begun = at(rgpu_control::unix_time() * 1000 - 5000);
        let now = at(begun.unix_ms + 5000);
        for (server, node) in servers.iter().zip(["n0", "n1"]) {
            let Credential::Made(make) = &server.options.credential else { panic!("no proof") };
            let mut verifier = Verifier::new(broker.public(), node, begun);
            assert_eq!(verifier.admit(&make(5, None), 5, now).unwrap().tenant, "ann");
            assert!(verifier.admit(&make(6, None), 7, now).is_err());
            let bound = make(8, Some(&[1; 32]));
            assert!(verifier.admit(&bound, 8, now).is_err());
            assert!(verifier.admit_bound(&bound, 8, now, Some(&[1; 32])).is_ok());
            assert!(server.options.encrypt.is_none() || is_encryption_wanted());
        }
        let known = Fingerprint([7; 32]);
        (ticket.servers[0].tls, ticket.servers[0].fingerprint) = (true, Some(known.to_string()));
        (ticket.servers[1].tls, ticket.servers[1].address) = (true, "192.0.2.1:2".into());
        ticket.write(&path).unwrap();
        let servers = of_lease(&path, false).unwrap();
        let encrypt = servers[0].options.encrypt.clone().unwrap();
        assert_eq!(encrypt.trust, Some(Trust::Fingerprints(vec![known])));
        // Nothing leaves the machine for a server of which nothing is known.
        let unknown = servers[1].options.encrypt.clone().unwrap();
        assert!(unknown.trust.is_none() && unknown.missing.contains("n1"), "{unknown:?}");
        ticket.servers[0].fingerprint = Some("sha256:12".into());
        ticket.write(&path).unwrap();
        assert!(of_lease(&path, false).err().unwrap().message.contains("fingerprint"));
        ticket.servers[0].fingerprint = None;
        ticket.transport = "pigeon".into();
        ticket.write(&path).unwrap();
        if variable(TRANSPORT_VARIABLE).is_none() {
            assert!(of_lease(&path, false).err().unwrap().message.contains("pigeon"));
        }
        ticket.servers.clear();
        ticket.write(&path).unwrap();
        assert!(of_lease(&path, false).is_err());
        std::fs::remove_file(&path).unwrap();
        let gone = of_lease(&path, false).err().unwrap();
        assert!(gone.message.contains("has ended") && gone.code == Code::NoDevice, "{gone:?}");
    }
}
