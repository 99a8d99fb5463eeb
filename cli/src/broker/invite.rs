//! What somebody is given to join the cluster with.

use std::io::Write;
use std::path::Path;

use rgpu_broker::authority::Authority;
use rgpu_broker::config::Config;
use rgpu_broker::setup;

use super::failed;
use crate::Failure;
use crate::encrypted::is_this_machine;
use crate::joined::Bundle;

/// What `rgpu join` is to be told.
pub(super) struct Invitation {
    bundle: Bundle,
    /// The fingerprint of the cluster's authority, where it has one.
    pin: Option<String>,
}

/// What it takes to join as whom a token is for.
pub(super) fn invitation(
    config: &Config,
    token: &str,
    name: &str,
    as_file: bool,
) -> Result<Invitation, Failure> {
    let authority = Authority::read(&config.data_dir).map_err(failed)?;
    let authority = authority.filter(|_| config.tls.is_some());
    let asked = config.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    let identity = match (&authority, asked) {
        (_, false) => None,
        (_, true) if !as_file => {
            return Err(failed(
                "The broker asks everybody for a certificate (tls.client_ca), which does not fit into a line: use --bundle FILE",
            ));
        }
        (Some(authority), true) => Some(authority.client(name).map_err(failed)?),
        (None, true) => {
            return Err(failed(
                "The broker asks everybody for a certificate (tls.client_ca), and this is signed by an authority that is not the \
                 cluster's own: issue certificates there, and give the token with --out",
            ));
        }
    };
    let bundle = Bundle {
        broker: url(config)?,
        token: token.to_owned(),
        ca: authority.as_ref().map(|authority| authority.pem().to_owned()),
        identity: identity.map(|signed| (signed.certificate, signed.key)),
    };
    Ok(Invitation { bundle, pin: authority.map(|authority| authority.fingerprint()) })
}

/// By which URL the broker is reached: what the configuration says, or, on this machine alone, where it listens.
fn url(config: &Config) -> Result<String, Failure> {
    if let Some(url) = &config.url {
        return Ok(url.clone());
    }
    if !is_this_machine(&config.listen) {
        return Err(failed(
            "Say in the configuration by which URL other machines reach the broker: url = \"https://HOST:PORT\"",
        ));
    }
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    Ok(format!("{scheme}://{}", config.listen))
}

/// Prints it as a command, or writes it to a file.
pub(super) fn give(invitation: Invitation, file: Option<&Path>) -> crate::Outcome {
    let Invitation { bundle, pin } = invitation;
    match file {
        Some(path) => {
            let text = serde_json::to_string_pretty(&bundle).map_err(failed)? + "\n";
            setup::write_secret(path, &text).map_err(failed)?;
            eprintln!("rgpu broker: bring {} to where it is for, and there: rgpu join FILE", path.display());
        }
        None => {
            let pin = pin.map_or_else(String::new, |pin| format!("#{pin}"));
            let line = format!("rgpu join {}@{}{pin}\n", bundle.token, bundle.broker);
            std::io::stdout().write_all(line.as_bytes()).map_err(failed)?;
        }
    }
    Ok(std::process::ExitCode::SUCCESS)
}
