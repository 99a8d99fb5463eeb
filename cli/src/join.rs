//! `rgpu join`: makes a user, or a machine as a node, part of a cluster.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use rgpu_control::token::{self, Claims, PublicKey, Role, RoleClaims};
use rgpu_control::{Broker, Tls, presented, unix_time};
use rgpu_protocol::transport::tls::Fingerprint;

use crate::control::explain;
use crate::joined::{Bundle, Joined};
use crate::{Failure, Outcome};

/// How long the broker may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Join a cluster: with a line from its administrator (`rgpu broker token --join`), as a user or as a node
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    rgpu join rgpu1.eyJy…@https://broker:7080#sha256:51f0…    # then: rgpu run -- ./app\n  \
    rgpu join gpu-1.bundle                                     # a file of `rgpu broker token --bundle`\n  \
    rgpu join --forget\n\n\
    The token says whether this is a user or a node. The fingerprint tells the broker from others who might answer at its address;\n\
    its authority's certificate is taken from the broker and kept.")]
pub(crate) struct Arguments {
    /// TOKEN@URL#FINGERPRINT, or the file of a bundle
    #[arg(value_name = "TOKEN@URL", required_unless_present = "forget")]
    target: Option<String>,
    /// Where to keep it [default: ~/.config/rgpu/user for users; for a node /etc/rgpu/node as root, else ~/.config/rgpu/node]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Join although the connection is not encrypted: others on the way can read the token
    #[arg(long)]
    broker_insecure: bool,
    /// Forget the cluster that was joined
    #[arg(long, conflicts_with_all = ["target", "broker_insecure"])]
    forget: bool,
}

fn wrong(text: impl Into<String>) -> Failure {
    Failure::with_status(text, 2)
}

/// Joins, or forgets.
pub(crate) fn main(arguments: Arguments) -> Outcome {
    let place = |role| arguments.folder.clone().map(Joined).or_else(|| Joined::place(role));
    let nowhere = || wrong("Say with --folder where to keep what is joined: this user has no home");
    let Some(target) = &arguments.target else {
        let joined = arguments.folder.clone().map(Joined).or_else(Joined::of_user);
        joined.or_else(|| Joined::place(Role::Node)).ok_or_else(nowhere)?.forget()?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut bundle = match target.contains("@http") {
        true => from_line(target)?,
        false => from_file(Path::new(target))?,
    };
    let Ok(Claims::Role(claims)) = token::peek(&bundle.token) else {
        return Err(wrong(
            "The part before the @ is no role token, or is damaged: ask the administrator for the line again",
        ));
    };
    let joined = place(claims.role).ok_or_else(nowhere)?;
    check(&mut bundle, arguments.broker_insecure)?;
    joined.write(&bundle)?;
    say(&claims, &bundle, &joined);
    Ok(ExitCode::SUCCESS)
}

/// What a line says; where it has a fingerprint, the broker is asked for the certificate.
fn from_line(line: &str) -> Result<Bundle, Failure> {
    let (token, rest) = line.trim().split_once('@').unwrap_or_default();
    let (broker, pin) = rest.split_once('#').map_or((rest, None), |(broker, pin)| (broker, Some(pin)));
    let broker = broker.trim_end_matches('/').to_owned();
    let ca = match pin {
        None => None,
        Some(_) if broker.starts_with("http://") => {
            return Err(wrong("A fingerprint is of use with https:// only"));
        }
        Some(pin) => Some(authority(&broker, pin.parse().map_err(wrong)?)?),
    };
    Ok(Bundle { broker, token: token.to_owned(), ca, identity: None })
}

fn from_file(path: &Path) -> Result<Bundle, Failure> {
    let read = std::fs::read(path).map_err(|e| {
        let path = path.display();
        wrong(format!("{path} is neither TOKEN@URL nor a bundle's file: {e}"))
    })?;
    serde_json::from_slice(&read).map_err(|e| wrong(format!("{} is no bundle: {e}", path.display())))
}

/// The certificate with a fingerprint, as one of the cluster's brokers shows it.
fn authority(brokers: &str, pin: Fingerprint) -> Result<String, Failure> {
    let mut last = None;
    for broker in brokers.split(',').map(str::trim) {
        match presented(broker) {
            Ok(chain) => {
                let found = chain.into_iter().find(|certificate| Fingerprint::of(&certificate.0) == pin);
                return found.map(|certificate| certificate.pem()).ok_or_else(|| {
                    Failure::new(format!(
                        "Whoever answers at {broker} shows no certificate with the fingerprint {pin}: either that is not the \
                         broker that is meant, or it has a new authority. Nothing was sent to it. Ask the administrator for a new line"
                    ))
                });
            }
            Err(e) => last = Some(explain(e)),
        }
    }
    Err(last.unwrap_or_else(|| wrong("No broker is named behind the @")))
}

/// Whether the broker is what it should be, and takes the token.
fn check(bundle: &mut Bundle, insecure: bool) -> Result<(), Failure> {
    let bytes =
        |(certificate, key): &(String, String)| (certificate.clone().into_bytes(), key.clone().into_bytes());
    let tls = Tls {
        ca: bundle.ca.clone().map(String::into_bytes),
        identity: bundle.identity.as_ref().map(bytes),
        plain: insecure,
    };
    let broker = Broker::new(&bundle.broker, &bundle.token, &tls).map_err(explain)?.with_patience(PATIENCE);
    let health = broker.health().map_err(explain)?;
    let key = PublicKey::parse(&health.public_key)
        .ok_or_else(|| Failure::new(format!("{} does not answer as a broker does", broker.url())))?;
    let refused = |e| Failure::new(format!("The broker at {} would not take the token: {e}", broker.url()));
    key.verify_role(&bundle.token, unix_time()).map_err(refused)?;
    Ok(())
}

fn say(claims: &RoleClaims, bundle: &Bundle, joined: &Joined) {
    let days = claims.expires.saturating_sub(unix_time()) / 86_400;
    let folder = joined.0.display();
    println!(
        "Joined the cluster of {} as the {} {}; the token is good for {days} days. Kept in {folder}.",
        bundle.broker,
        claims.role.name(),
        claims.name
    );
    match claims.role {
        Role::Node if joined.is_services() => println!("Now: systemctl enable --now rgpu-serve"),
        Role::Node => println!("Now: rgpu serve --listen 0.0.0.0:7070 --broker {folder}"),
        Role::Tenant => println!("Now: rgpu run -- ./app"),
        Role::Admin | Role::Engine => println!("Now: rgpu status"),
    }
}
