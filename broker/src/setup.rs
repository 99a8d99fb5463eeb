//! The files that a broker needs before its first start, and role tokens made from them.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rgpu_control::api::IssuedToken;
use rgpu_control::token::{self, Claims, PrivateKey, Role, RoleClaims};

use crate::authority::{Authority, TLS_CERTIFICATE, TLS_KEY, certificate_path, check_address};
use crate::config::token_name_problem;

/// The example configuration.
pub const EXAMPLE: &str = include_str!("../../packaging/broker.toml");
/// The key's name in the directory of the state.
const KEY: &str = "broker.key";
/// The state's name in its directory.
const STATE: &str = "broker.sqlite";
/// For how long the first administrator's token is good.
const ADMIN_VALID_S: u64 = 365 * 86_400;
/// The longest that a role token may be good for.
pub const MAX_VALID_S: u64 = 10 * 365 * 86_400;

/// Why a broker cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A file cannot be read or written.
    #[error("{path}: {why}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// There is no key.
    #[error(
        "there is no key in {path}: make one with `rgpu broker init DIR`, and name the configuration in DIR with --config"
    )]
    NoKey {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The key is no secret.
    #[error(
        "the key in {path} can be read by other users: chmod 600 it, and issue all tokens anew if they should have"
    )]
    Exposed {
        /// Where.
        path: PathBuf,
    },
    /// The key is no key.
    #[error("the key in {path} is damaged")]
    Damaged {
        /// Where.
        path: PathBuf,
    },
    /// Something asked for makes no sense.
    #[error("{0}")]
    Asked(String),
}

pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> SetupError + '_ {
    |why| SetupError::File { path: path.to_path_buf(), why }
}

/// Where a directory's key is.
pub fn key_path(data_dir: &Path) -> PathBuf {
    data_dir.join(KEY)
}

/// Where a directory's state is.
pub fn state_path(data_dir: &Path) -> PathBuf {
    data_dir.join(STATE)
}

/// Writes a file that only this user can read. One that is there already is an error.
pub fn write_secret(path: &Path, text: &str) -> Result<(), SetupError> {
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(at(path))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(at(path))
}

/// Reads a file that only this user can read; `None` where there is none.
pub(crate) fn read_secret(path: &Path) -> Result<Option<String>, SetupError> {
    let about = match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        about => about.map_err(at(path))?,
    };
    if about.mode() & 0o077 != 0 {
        return Err(SetupError::Exposed { path: path.to_path_buf() });
    }
    fs::read_to_string(path).map(Some).map_err(at(path))
}

/// Reads the key that tokens are signed with.
pub fn read_key(data_dir: &Path) -> Result<PrivateKey, SetupError> {
    let path = key_path(data_dir);
    let Some(text) = read_secret(&path)? else { return Err(SetupError::NoKey { path }) };
    PrivateKey::parse(&text).ok_or(SetupError::Damaged { path })
}

/// Makes a key in a directory, and the directory, unless there is one. Tells whether there was none.
pub fn make_key(data_dir: &Path) -> Result<bool, SetupError> {
    match read_key(data_dir) {
        Err(SetupError::NoKey { path }) => {
            DirBuilder::new().recursive(true).mode(0o700).create(data_dir).map_err(at(data_dir))?;
            write_secret(&path, &(PrivateKey::generate().to_text() + "\n"))?;
            Ok(true)
        }
        known => known.map(|_| false),
    }
}

/// How a new broker is reached from other machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reach {
    /// The names and addresses by which others reach it, without a port; the first one stands in its URL.
    pub addresses: Vec<String>,
    /// Where it listens, `HOST:PORT`.
    pub listen: String,
    /// Whether everybody must show a certificate that the cluster's authority signed.
    pub clients: bool,
}

/// What [`init`] made.
#[derive(Debug)]
pub struct Made {
    /// The configuration file that was written.
    pub config: PathBuf,
    /// The file of the private key that tokens are signed with.
    pub key: PathBuf,
    /// The first administrator's token.
    pub admin_token: PathBuf,
    /// The certificate of the cluster's own authority, where the broker is reached from other machines.
    pub authority: Option<PathBuf>,
}

/// Makes a directory with a new key, the example configuration for it, and an administrator's token; for a broker that other
/// machines reach, also an authority and a certificate that it signed.
///
/// Nothing that is there already is replaced.
///
/// # Errors
/// There is a broker, an address is none, or the directory cannot be written to.
pub fn init(directory: &Path, reach: Option<&Reach>) -> Result<Made, SetupError> {
    let directory = std::path::absolute(directory).map_err(at(directory))?;
    let state = directory.join("state");
    let made = Made {
        config: directory.join("broker.toml"),
        key: key_path(&state),
        admin_token: directory.join("admin.token"),
        authority: reach.map(|_| certificate_path(&state)),
    };
    for path in [&made.config, &made.key, &made.admin_token].into_iter().chain(&made.authority) {
        if fs::symlink_metadata(path).is_ok() {
            let text = format!(
                "{} is there already: a broker was set up here, and its key is not replaced",
                path.display()
            );
            return Err(SetupError::Asked(text));
        }
    }
    let text = configuration(reach)?;
    make_key(&state)?;
    let key = read_key(&state)?;
    let token = issue(&key, Role::Admin, "admin", ADMIN_VALID_S)?;
    write_secret(&made.admin_token, &(token.token + "\n"))?;
    if let Some(reach) = reach {
        Authority::make(&state)?.install(&state, &with_this_machine(&reach.addresses))?;
    }
    fs::write(&made.config, text).map_err(at(&made.config))?;
    Ok(made)
}

/// Addresses, and those by which the broker's own machine reaches it.
pub fn with_this_machine(addresses: &[String]) -> Vec<String> {
    let mut all = addresses.to_vec();
    for own in ["localhost", "127.0.0.1", "::1"] {
        if !all.iter().any(|address| address == own) {
            all.push(own.into());
        }
    }
    all
}

/// The example configuration for a broker in a directory, with paths relative to it, so that it can be moved.
fn configuration(reach: Option<&Reach>) -> Result<String, SetupError> {
    let replaced = |text: String, old: &str, new: &str| {
        assert!(text.contains(old), "the example configuration has no {old}");
        text.replacen(old, new, 1)
    };
    let text =
        replaced(EXAMPLE.into(), "\ndata_dir = \"/var/lib/rgpu-broker\"\n", "\ndata_dir = \"state\"\n");
    let Some(Reach { addresses, listen, clients }) = reach else { return Ok(text) };
    addresses.iter().try_for_each(|address| check_address(address))?;
    let first = addresses.first().ok_or_else(|| SetupError::Asked("no address is given".into()))?;
    let host = if first.contains(':') { format!("[{first}]") } else { first.clone() };
    let port = listen.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    let port = port.ok_or_else(|| SetupError::Asked(format!("{listen:?} is no HOST:PORT to listen on")))?;
    let text = replaced(text, "\nlisten = \"127.0.0.1:7080\"\n", &format!("\nlisten = {listen:?}\n"));
    let url = format!("\nurl = \"https://{host}:{port}\"\n");
    let text = replaced(text, "\n#: url = \"https://broker.example.org:7080\"\n", &url);
    let authority = certificate_path(Path::new("state"));
    let client_ca = format!("{}client_ca = \"{}\"", if *clients { "" } else { "#: " }, authority.display());
    let tls =
        format!("[tls]\ncertificate = \"state/{TLS_CERTIFICATE}\"\nkey = \"state/{TLS_KEY}\"\n{client_ca}\n");
    let example = "#: [tls]\n#: certificate = \"broker.pem\"\n#: key = \"broker.key.pem\"\n#: client_ca = \"clients.pem\"\n";
    Ok(replaced(text, example, &tls))
}

/// Issues a role token, good from now on.
pub fn issue(key: &PrivateKey, role: Role, name: &str, valid_s: u64) -> Result<IssuedToken, SetupError> {
    if let Some(why) = token_name_problem(role, name) {
        return Err(SetupError::Asked(format!("{name:?} cannot be a name: {why}")));
    }
    if valid_s == 0 || valid_s > MAX_VALID_S {
        let text = format!("a token is good for 1 s to {} days, not for {valid_s} s", MAX_VALID_S / 86_400);
        return Err(SetupError::Asked(text));
    }
    let now = rgpu_control::unix_time();
    let expires = now + valid_s;
    let claims = RoleClaims { role, name: name.into(), not_before: now, expires };
    let token = key.sign(&Claims::Role(claims));
    Ok(IssuedToken { id: token::id(&token), token, expires })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides};
    use std::os::unix::fs::PermissionsExt;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("rgpu-broker-setup-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn what_init_makes_is_enough_and_secret() {
        let directory = scratch("init");
        let made = init(&directory, None).unwrap();
        for path in [&made.key, &made.admin_token] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o600, "{path:?}");
        }
        let config = Config::load(Some(&made.config), Overrides::default()).unwrap();
        assert_eq!(config.data_dir, directory.join("state"));
        let key = read_key(&config.data_dir).unwrap();
        let token = fs::read_to_string(&made.admin_token).unwrap();
        let claims = key.public().verify_role(token.trim(), rgpu_control::unix_time()).unwrap();
        assert_eq!((claims.role, claims.name.as_str()), (Role::Admin, "admin"));
        // A second time, nothing is replaced.
        assert!(init(&directory, None).unwrap_err().to_string().contains("not replaced"));
        assert_eq!(read_key(&config.data_dir).unwrap().public(), key.public());
        fs::set_permissions(&made.key, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(read_key(&config.data_dir), Err(SetupError::Exposed { .. })));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_broker_for_other_machines_has_a_certificate_and_an_address() {
        let directory = scratch("reach");
        let reach = Reach {
            addresses: vec!["fd00::1".into(), "broker.example".into()],
            listen: "0.0.0.0:7443".into(),
            clients: true,
        };
        let bad = Reach { addresses: vec!["a/b".into()], ..reach.clone() };
        assert!(init(&directory, Some(&bad)).unwrap_err().to_string().contains("neither"));
        assert!(!directory.exists());
        let made = init(&directory, Some(&reach)).unwrap();
        let config = Config::load(Some(&made.config), Overrides::default()).unwrap();
        assert_eq!(
            (config.listen.as_str(), config.url.as_deref()),
            ("0.0.0.0:7443", Some("https://[fd00::1]:7443"))
        );
        let tls = config.tls.unwrap();
        crate::tls::server_config(&tls).unwrap();
        assert_eq!(tls.client_ca, made.authority);
        assert!(init(&directory, Some(&reach)).unwrap_err().to_string().contains("not replaced"));
        fs::remove_dir_all(&directory).unwrap();
        let open = Reach { clients: false, ..reach };
        let made = init(&directory, Some(&open)).unwrap();
        let config = Config::load(Some(&made.config), Overrides::default()).unwrap();
        assert_eq!(config.tls.unwrap().client_ca, None);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn bad_keys_are_told_and_good_ones_stay() {
        let directory = scratch("bad");
        assert!(read_key(&directory).unwrap_err().to_string().contains("rgpu broker init"));
        assert!(make_key(&directory).unwrap());
        let key = read_key(&directory).unwrap();
        assert!(!make_key(&directory).unwrap());
        assert_eq!(read_key(&directory).unwrap().public(), key.public());
        fs::remove_file(key_path(&directory)).unwrap();
        write_secret(&key_path(&directory), "rubbish").unwrap();
        assert!(matches!(read_key(&directory), Err(SetupError::Damaged { .. })));
        assert!(make_key(&directory).is_err());
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn tokens_have_names_and_ends() {
        let key = PrivateKey::generate();
        assert!(issue(&key, Role::Tenant, "ann", 60).is_ok());
        assert!(issue(&key, Role::Tenant, "slurm/physics", 60).is_ok());
        for (role, bad) in
            [(Role::Tenant, ""), (Role::Tenant, "a/b/c"), (Role::Tenant, "a/"), (Role::Engine, "a/b")]
        {
            assert!(issue(&key, role, bad, 60).is_err(), "{bad:?}");
        }
        assert!(issue(&key, Role::Tenant, "a\nb", 60).is_err());
        assert!(issue(&key, Role::Tenant, "ann", 0).is_err());
        assert!(issue(&key, Role::Tenant, "ann", u64::MAX).is_err());
    }
}
