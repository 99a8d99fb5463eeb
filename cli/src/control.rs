//! Reaching the broker.

use std::path::{Path, PathBuf};

use rgpu_control::settings::{self, BROKER_CA_VARIABLE, BROKER_TOKEN_VARIABLE, BROKER_VARIABLE};
use rgpu_control::{Broker, ClientError, LeaseId, Tls};

use crate::Failure;
use crate::joined::Joined;
use crate::own_cluster::OwnCluster;

/// Which broker, and as whom.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct BrokerArguments {
    /// The broker's URL, or the folder of a cluster that was joined [default: RGPU_BROKER, else this machine's own cluster while it
    /// runs (`rgpu cluster up`), else the one that you have joined (`rgpu join`)]
    #[arg(long, global = true, value_name = "URL", help_heading = "Broker")]
    pub broker: Option<String>,
    /// The file with the token that says who you are [default: RGPU_BROKER_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Broker")]
    pub broker_token_file: Option<PathBuf>,
    /// Certificates (PEM) that sign the broker's [default: RGPU_BROKER_CA, else the machine's own]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Broker")]
    pub broker_ca: Option<PathBuf>,
    /// Your certificate and private key (PEM), for a broker that asks for them
    #[arg(long, global = true, value_name = "CERT,KEY", value_parser = parse_identity, help_heading = "Broker")]
    pub broker_identity: Option<Identity>,
    /// Speak to a broker on another machine without encryption: others on the way can then read your token
    /// [default: RGPU_BROKER_INSECURE]
    #[arg(long, global = true, help_heading = "Broker")]
    pub broker_insecure: bool,
}

/// A certificate and its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The certificate's file.
    pub certificate: PathBuf,
    /// The key's file.
    pub key: PathBuf,
}

/// Two files, separated by a comma.
pub(crate) fn parse_identity(text: &str) -> Result<Identity, String> {
    match text.split_once(',') {
        Some((certificate, key)) if !certificate.is_empty() && !key.is_empty() => {
            Ok(Identity { certificate: certificate.into(), key: key.into() })
        }
        _ => Err("give two files, separated by a comma: the certificate and its private key".into()),
    }
}

impl BrokerArguments {
    /// The broker's address, where one is known.
    pub(crate) fn url(&self) -> Option<String> {
        self.broker.clone().or_else(|| settings::text(BROKER_VARIABLE))
    }

    /// Whether anything of this was said on the command line.
    pub(crate) fn given(&self) -> bool {
        self.broker.is_some()
            || self.broker_token_file.is_some()
            || self.broker_ca.is_some()
            || self.broker_identity.is_some()
            || self.broker_insecure
    }

    /// The same for a broker that is known by what others have written down, where this does not say otherwise.
    fn within(&self, known: Self) -> Self {
        Self {
            broker: known.broker,
            broker_token_file: self.broker_token_file.clone().or(known.broker_token_file),
            broker_ca: self.broker_ca.clone().or(known.broker_ca),
            broker_identity: self.broker_identity.clone().or(known.broker_identity),
            broker_insecure: self.broker_insecure || known.broker_insecure,
        }
    }

    /// With the broker's address, and with what was written down where that is the folder of a cluster that was joined.
    fn resolved(&self) -> Result<Self, Failure> {
        match self.url() {
            Some(url) if is_folder(&url) => Ok(self.within(Joined(url.into()).arguments()?)),
            Some(url) => Ok(Self { broker: Some(url), ..self.clone() }),
            None => Ok(self.within(implied()?)),
        }
    }

    /// The token that says who this is.
    pub(crate) fn token(&self) -> Result<String, Failure> {
        let file = self.resolved()?.broker_token_file.or_else(|| settings::path(BROKER_TOKEN_VARIABLE));
        let file = file.ok_or_else(|| {
            let text = "Say who you are: --broker-token-file FILE, or RGPU_BROKER_TOKEN_FILE; the broker's administrator \
                        issues the token (`rgpu broker token --role tenant --name YOU`)";
            Failure::with_status(text, 2)
        })?;
        read_token(&file)
    }

    /// Prepares to speak to it. Nothing is sent yet.
    pub(crate) fn connect(&self) -> Result<Broker, Failure> {
        let known = self.resolved()?;
        let (url, token) = (known.broker.clone().unwrap_or_default(), known.token()?);
        let identity = known.broker_identity.as_ref().map(|i| (i.certificate.as_path(), i.key.as_path()));
        let ca = known.broker_ca.clone().or_else(|| settings::path(BROKER_CA_VARIABLE));
        let plain = known.broker_insecure || settings::allows_plain_broker();
        let tls = Tls { plain, ..Tls::read(ca.as_deref(), identity).map_err(explain)? };
        Broker::new(&url, &token, &tls).map_err(explain)
    }
}

/// Whether a broker's address is the folder of a cluster that was joined.
pub(crate) fn is_folder(url: &str) -> bool {
    !url.contains("://") && url.contains('/')
}

/// Whether there is a broker where none is named: this machine's own cluster, or one that the user has joined.
pub(crate) fn is_implied() -> bool {
    OwnCluster::running().is_some() || Joined::of_user().is_some()
}

/// How to speak to it.
fn implied() -> Result<BrokerArguments, Failure> {
    if let Some((cluster, plan)) = OwnCluster::running() {
        return Ok(BrokerArguments {
            broker: Some(plan.url()),
            broker_token_file: Some(cluster.admin_token()),
            ..BrokerArguments::default()
        });
    }
    let joined = Joined::of_user().ok_or_else(|| {
        let text = "Say which broker to ask: --broker URL, or RGPU_BROKER; or join a cluster (`rgpu join`), or start one on \
                    this machine (`rgpu cluster up`)";
        Failure::with_status(text, 2)
    })?;
    joined.arguments()
}

/// The lease that somebody means who writes its id, or so much of its beginning that no other lease begins like that.
pub(crate) fn find_lease(broker: &Broker, text: &str) -> Result<LeaseId, Failure> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    if text.is_empty() || text.len() > 16 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        let text =
            format!("{text:?} is no lease's id: up to 16 hexadecimal digits (`rgpu leases` lists them)");
        return Err(Failure::with_status(text, 2));
    }
    let start = text.to_ascii_lowercase();
    // Those that there are come before those that have ended.
    for all in [false, true] {
        let leases = broker.leases(all).map_err(explain)?;
        if let Some(id) = only_with(&start, leases.iter().map(|lease| lease.id))? {
            return Ok(id);
        }
    }
    Err(Failure::new(format!("There is no lease that begins with {start} (`rgpu leases --all` lists them)")))
}

/// The one of some leases that begins so, if any does.
fn only_with(start: &str, leases: impl Iterator<Item = LeaseId>) -> Result<Option<LeaseId>, Failure> {
    let found: Vec<LeaseId> = leases.filter(|id| id.to_string().starts_with(start)).collect();
    match found.as_slice() {
        [] => Ok(None),
        [id] => Ok(Some(*id)),
        several => {
            let several: Vec<String> = several.iter().take(5).map(LeaseId::to_string).collect();
            let text = format!("Several leases begin with {start}: {}", several.join(", "));
            Err(Failure::with_status(text, 2))
        }
    }
}

fn read_token(file: &Path) -> Result<String, Failure> {
    let token = std::fs::read_to_string(file)
        .map_err(|e| Failure::new(format!("Cannot read the broker's token in {}: {e}", file.display())))?;
    let token = token.trim().to_owned();
    rgpu_control::token::peek(&token)
        .map_err(|e| Failure::new(format!("The broker's token in {} is of no use: {e}", file.display())))?;
    Ok(token)
}

/// The exit status where something was not to be had in time.
pub(crate) const TRY_LATER: u8 = 75;

/// A failure, with what to do about it.
pub(crate) fn explain(error: ClientError) -> Failure {
    use rgpu_control::api::ErrorCode::{Conflict, Forbidden, Limit, Unauthorized, Unavailable};
    let advice = match (&error, error.code()) {
        (ClientError::Setup(_), _) => return Failure::with_status(error.to_string(), 2),
        (ClientError::Unreachable { .. }, _) => {
            ". Is `rgpu broker` running there, and is this address right (--broker, RGPU_BROKER)?"
        }
        (_, Some(Unauthorized)) => ". The token comes from --broker-token-file or RGPU_BROKER_TOKEN_FILE",
        (_, Some(Forbidden)) => ". Another token may allow it: --broker-token-file, RGPU_BROKER_TOKEN_FILE",
        _ => "",
    };
    let status = if matches!(error.code(), Some(Conflict | Limit | Unavailable)) { TRY_LATER } else { 1 };
    Failure::with_status(format!("{error}{advice}"), status)
}

/// Prints what the broker answered, for programs.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Failure::new(format!("The answer has no JSON form: {e}")))?;
    crate::table::print_lines(&[text]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_two_files() {
        let identity = parse_identity("a.pem,b.pem").unwrap();
        assert_eq!((identity.certificate, identity.key), ("a.pem".into(), "b.pem".into()));
        for bad in ["", "a", "a,", ",b"] {
            assert!(parse_identity(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_lease_is_found_by_as_much_of_its_id_as_no_other_has() {
        let ids = [0xABCD_0000_0000_0001, 0xABCE_0000_0000_0002, 0x00FF_0000_0000_0003].map(LeaseId);
        let find = |start: &str| only_with(start, ids.into_iter());
        assert_eq!(find("abcd").unwrap(), Some(ids[0]));
        assert_eq!(find("abce000000000002").unwrap(), Some(ids[1]));
        assert_eq!(find("0").unwrap(), Some(ids[2]), "zeros at the beginning count");
        assert_eq!((find("ff").unwrap(), find("abcf").unwrap()), (None, None));
        let failure = find("abc").unwrap_err();
        assert!(failure.message.contains("abcd000000000001, abce000000000002"), "{failure:?}");
        assert!(!failure.message.contains("00ff"), "{failure:?}");
    }

    #[test]
    fn what_is_no_beginning_of_an_id_is_refused_before_anybody_is_asked() {
        // Nobody is there.
        let broker = Broker::new("http://127.0.0.1:1", "t", &Tls::default()).unwrap();
        for bad in ["", "xyz", "12 ", "00112233445566778", "*", "%"] {
            let failure = find_lease(&broker, bad).unwrap_err();
            assert!(failure.message.contains("hexadecimal"), "{bad}: {failure:?}");
        }
        // A whole one needs no list; what ends it will say whether there is such a lease.
        assert_eq!(find_lease(&broker, "00000000000000ff").unwrap(), LeaseId(0xFF));
        assert!(find_lease(&broker, "FF").unwrap_err().message.contains("127.0.0.1:1"));
    }

    #[test]
    fn failures_say_what_to_do() {
        let gone = ClientError::Unreachable { broker: "http://b:1".into(), why: "refused".into() };
        let failure = explain(gone);
        assert!(
            failure.message.contains("http://b:1") && failure.message.contains("RGPU_BROKER"),
            "{failure:?}"
        );
        let arguments = BrokerArguments {
            broker: Some("http://b:1".into()),
            broker_token_file: Some("/nonexistent/token".into()),
            ..BrokerArguments::default()
        };
        assert!(arguments.connect().err().unwrap().message.contains("/nonexistent/token"));
    }
}
