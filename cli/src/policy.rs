//! `rgpu policy`: by which policy a broker places leases.

use std::process::ExitCode;

use rgpu_control::api::{Policies, PolicySettings};

use crate::control::{BrokerArguments, explain, print_json};
use crate::{Failure, Outcome};

/// Show or set the policy by which a broker places leases.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  rgpu policy\n  rgpu policy set --name first-fit\n  rgpu policy set --link-limit 0.8"
)]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    /// For programs
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    broker: BrokerArguments,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Show it
    Show,
    /// Set it; what is not given stays as it is
    Set(Change),
}

#[derive(clap::Args, Default)]
struct Change {
    /// The policy (`rgpu policy` lists them)
    #[arg(long)]
    name: Option<String>,
    /// Whether the network's load counts
    #[arg(long, value_name = "BOOL")]
    network_aware: Option<bool>,
    /// Up to which part of its capacity a link is loaded with remote traffic
    #[arg(long, value_name = "PART", value_parser = parse_number)]
    link_limit: Option<f64>,
    /// The share of devices that may be given remotely
    #[arg(long, value_name = "PART", value_parser = parse_number)]
    max_remote_share: Option<f64>,
    /// By which factor remote devices cost more
    #[arg(long, value_name = "FACTOR", value_parser = parse_number)]
    remote_preference: Option<f64>,
}

fn parse_number(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| format!("{text:?} is no number from 0 upwards"))
}

impl Change {
    fn apply(&self, settings: &PolicySettings) -> PolicySettings {
        PolicySettings {
            name: self.name.clone().unwrap_or_else(|| settings.name.clone()),
            network_aware: self.network_aware.unwrap_or(settings.network_aware),
            link_limit: self.link_limit.unwrap_or(settings.link_limit),
            max_remote_share: self.max_remote_share.unwrap_or(settings.max_remote_share),
            remote_preference: self.remote_preference.unwrap_or(settings.remote_preference),
        }
    }
}

/// Does what was asked for.
pub fn main(arguments: &Arguments) -> Outcome {
    let broker = arguments.broker.connect()?;
    let policies = match &arguments.action {
        Some(Action::Set(change)) => {
            let before = broker.policies().map_err(explain)?.active;
            let after = change.apply(&before);
            if after == before {
                let text = "Nothing would change: say what to set (`rgpu policy set --help`)";
                return Err(Failure::with_status(text, 2));
            }
            broker.set_policy(&after).map_err(explain)?
        }
        Some(Action::Show) | None => broker.policies().map_err(explain)?,
    };
    match arguments.json {
        true => print_json(&policies)?,
        false => crate::table::print_lines(&describe(&policies)),
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(policies: &Policies) -> Vec<String> {
    let active = &policies.active;
    vec![
        format!("policy             {}", active.name),
        format!("network-aware      {}", active.network_aware),
        format!("link-limit         {}", active.link_limit),
        format!("max-remote-share   {}", active.max_remote_share),
        format!("remote-preference  {}", active.remote_preference),
        format!("(there are {})", policies.names.join(", ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_given_stays() {
        let before = PolicySettings {
            name: "a".into(),
            network_aware: true,
            link_limit: 0.5,
            max_remote_share: 1.0,
            remote_preference: 1.25,
        };
        assert_eq!(Change::default().apply(&before), before);
        let change = Change { name: Some("b".into()), link_limit: Some(0.9), ..Change::default() };
        let after = change.apply(&before);
        assert_eq!((after.name.as_str(), after.link_limit, after.remote_preference), ("b", 0.9, 1.25));
        assert!(parse_number("-1").is_err() && parse_number("NaN").is_err());
        let text = describe(&Policies { active: after, names: vec!["a".into(), "b".into()] }).join("\n");
        assert!(text.contains("link-limit         0.9") && text.contains("a, b"), "{text}");
    }
}
