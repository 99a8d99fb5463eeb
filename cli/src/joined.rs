//! A cluster that this user, or this machine as a node, has joined: a folder with what it takes to speak to the broker.
//!
//! `rgpu join` writes it. Where a broker's URL is asked for, the folder can be named as well; commands that are told of no broker use the
//! user's own.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rgpu_control::files;
use rgpu_control::token::Role;
use serde::{Deserialize, Serialize};

use crate::control::{BrokerArguments, Identity};
use crate::{Failure, folders};

/// What a broker's administrator can give somebody as a file: what a line for `rgpu join` says, and certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bundle {
    /// The broker's URL, or several with commas between.
    pub broker: String,
    /// The role token.
    pub token: String,
    /// Certificates (PEM) that sign the broker's; none for the machine's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// A certificate and its private key (PEM), for a broker that asks for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<(String, String)>,
}

/// The names of the folder's files. The URL is written last: without it nothing was joined.
const URL: &str = "broker";
const TOKEN: &str = "token";
const CA: &str = "ca.pem";
const CERTIFICATE: &str = "identity.pem";
const KEY: &str = "identity.key";
/// The same for the service of a node (`packaging/rgpu-serve.service`): variables.
const SERVICE: &str = "serve.env";
/// Where the service looks.
const SERVICE_FOLDER: &str = "/etc/rgpu/node";

/// The folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Joined(pub PathBuf);

impl Joined {
    /// The user's, where a cluster was joined.
    pub(crate) fn of_user() -> Option<Self> {
        Some(Self(folders::config()?.join("user"))).filter(|joined| joined.0.join(URL).exists())
    }

    /// Where whoever has a role joins: users and administrators for themselves, a node's root for the service.
    pub(crate) fn place(role: Role) -> Option<Self> {
        let folder = match role {
            Role::Node if rustix::process::geteuid().is_root() => PathBuf::from(SERVICE_FOLDER),
            Role::Node => folders::config()?.join("node"),
            Role::Tenant | Role::Engine | Role::Admin => folders::config()?.join("user"),
        };
        Some(Self(folder))
    }

    /// Whether the service of a node finds it.
    pub(crate) fn is_services(&self) -> bool {
        self.0 == Path::new(SERVICE_FOLDER)
    }

    /// How to speak to its broker.
    ///
    /// # Errors
    /// It is no folder that `rgpu join` wrote.
    pub(crate) fn arguments(&self) -> Result<BrokerArguments, Failure> {
        let url = fs::read_to_string(self.0.join(URL)).map_err(|e| {
            let text = format!("{} is no folder that `rgpu join` wrote: {URL}: {e}", self.0.display());
            Failure::with_status(text, 2)
        })?;
        let there = |name: &str| Some(self.0.join(name)).filter(|path| path.exists());
        let identity = there(CERTIFICATE).zip(there(KEY));
        Ok(BrokerArguments {
            broker: Some(url.trim().to_owned()),
            broker_token_file: Some(self.0.join(TOKEN)),
            broker_ca: there(CA),
            broker_identity: identity.map(|(certificate, key)| Identity { certificate, key }),
            broker_insecure: url.contains("http://"),
        })
    }

    /// Writes it, in place of an earlier one.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn write(&self, bundle: &Bundle) -> Result<(), Failure> {
        let failed = |e: io::Error| Failure::new(format!("Cannot write {}: {e}", self.0.display()));
        // The service runs as a user of its own, and is given the token by systemd.
        let mode = if self.is_services() { 0o755 } else { 0o700 };
        DirBuilder::new().recursive(true).mode(mode).create(&self.0).map_err(failed)?;
        self.remove(URL).map_err(failed)?;
        let (certificate, key) = bundle.identity.clone().unzip();
        let mut service = format!("RGPU_BROKER={}\n", bundle.broker);
        if bundle.ca.is_some() {
            service += &format!("RGPU_BROKER_CA={}\n", self.0.join(CA).display());
        }
        let files = [
            (CA, 0o644, bundle.ca.clone()),
            (CERTIFICATE, 0o644, certificate),
            (KEY, 0o600, key),
            (TOKEN, 0o600, Some(format!("{}\n", bundle.token))),
            (SERVICE, 0o644, self.is_services().then_some(service)),
            (URL, 0o644, Some(format!("{}\n", bundle.broker))),
        ];
        for (name, mode, text) in files {
            self.remove(name).map_err(failed)?;
            let Some(text) = text else { continue };
            let path = self.0.join(name);
            let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
            file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)?;
        }
        Ok(())
    }

    /// Removes its files.
    ///
    /// # Errors
    /// There are none, or they cannot be removed.
    pub(crate) fn forget(&self) -> Result<(), Failure> {
        let failed = |e: io::Error| Failure::new(format!("Cannot remove {}: {e}", self.0.display()));
        if !self.0.join(URL).exists() {
            return Err(Failure::new(format!("No cluster was joined in {}", self.0.display())));
        }
        for name in [URL, TOKEN, KEY, CERTIFICATE, CA, SERVICE] {
            self.remove(name).map_err(failed)?;
        }
        // What is left belongs to somebody else.
        match fs::remove_dir(&self.0) {
            Err(e) if e.kind() != io::ErrorKind::DirectoryNotEmpty => Err(failed(e)),
            _ => Ok(()),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        files::remove(&self.0.join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_says_what_was_joined_until_it_is_forgotten() {
        let joined = Joined(std::env::temp_dir().join(format!("rgpu-joined-{}", std::process::id())));
        let _ = fs::remove_dir_all(&joined.0);
        assert!(joined.arguments().is_err() && joined.forget().is_err());
        let bundle = Bundle {
            broker: "https://b:1,https://c:1".into(),
            token: "t".into(),
            ca: Some("ca".into()),
            identity: Some(("certificate".into(), "key".into())),
        };
        joined.write(&bundle).unwrap();
        let arguments = joined.arguments().unwrap();
        assert_eq!(arguments.broker.as_deref(), Some("https://b:1,https://c:1"));
        assert!(!arguments.broker_insecure);
        for secret in [arguments.broker_token_file.unwrap(), arguments.broker_identity.unwrap().key] {
            assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
        }
        // Another one leaves nothing of the first.
        joined.write(&Bundle { broker: "http://b:1".into(), ca: None, identity: None, ..bundle }).unwrap();
        let arguments = joined.arguments().unwrap();
        assert_eq!((arguments.broker_ca, arguments.broker_identity.is_none()), (None, true));
        assert!(arguments.broker_insecure);
        joined.forget().unwrap();
        assert!(!joined.0.exists());
    }
}
