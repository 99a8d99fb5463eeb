//! `rgpu policy`: by which policy a broker places leases.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::Arg;
use rgpu_control::api::{Policies, PolicySettings, SettingValue};
use rgpu_placement::policy::setting::Number;
use rgpu_placement::policy::{PolicyTable, Setting, Value};

use crate::control::{BrokerArguments, explain, print_json};
use crate::{Failure, Outcome};

/// Show or set the policy by which a broker places leases.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  rgpu policy\n  rgpu policy set --name first-fit\n  rgpu policy set --link-limit 0.8"
)]
pub(crate) struct Arguments {
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

/// What is to be set: a policy's name, and settings by name, as the table of policies has them.
#[derive(Default)]
struct Change {
    name: Option<String>,
    settings: BTreeMap<String, SettingValue>,
}

/// The settings that a broker takes, each with its name as a flag has it.
static FLAGS: LazyLock<Vec<(Setting, String)>> = LazyLock::new(|| {
    let settings = PolicyTable::standard().broker_settings().into_iter();
    settings.map(|setting| (setting, setting.name().replace('_', "-"))).collect()
});

/// Reads a setting's value; JSON carries no infinite ones.
fn parse(setting: Setting, text: &str) -> Result<SettingValue, String> {
    let value = setting.parse(text).map_err(|e| e.to_string())?;
    setting.check_finite(value).map_err(|e| e.to_string())?;
    Ok(match value {
        Value::Flag(value) => SettingValue::Flag(value),
        Value::Number(value) => SettingValue::Number(value),
    })
}

impl clap::Args for Change {
    fn augment_args(command: clap::Command) -> clap::Command {
        let table = PolicyTable::standard();
        let names: Vec<&str> = table.names().collect();
        let name = Arg::new("name").long("name").value_name("NAME");
        let name = name.help(format!("The policy: {} (the broker's list counts)", names.join(", ")));
        FLAGS.iter().fold(command.arg(name), |command, (setting, flag)| {
            let (setting, about) = (*setting, setting.about());
            let (kind, help) = match setting {
                Setting::Flag(_) => ("BOOL", about.to_owned()),
                Setting::Number(Number { range, .. }) => {
                    ("NUMBER", format!("{about}, from {} to {}", range.start(), range.end()))
                }
            };
            let arg = Arg::new(setting.name()).long(flag.as_str()).value_name(kind);
            command.arg(arg.help(help).value_parser(move |text: &str| parse(setting, text)))
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Change {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let mut change = Change::default();
        change.update_from_arg_matches(matches)?;
        Ok(change)
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        if let Some(name) = matches.get_one::<String>("name") {
            self.name = Some(name.clone());
        }
        for (setting, _) in FLAGS.iter() {
            if let Some(value) = matches.get_one::<SettingValue>(setting.name()) {
                self.settings.insert(setting.name().into(), *value);
            }
        }
        Ok(())
    }
}

impl Change {
    fn apply(&self, settings: &PolicySettings) -> PolicySettings {
        let mut after = settings.clone();
        after.name = self.name.clone().unwrap_or(after.name);
        after.settings.extend(self.settings.iter().map(|(name, value)| (name.clone(), *value)));
        after
    }
}

/// Does what was asked for.
pub(crate) fn main(arguments: Arguments) -> Outcome {
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
    let mut lines = vec![format!("policy             {}", active.name)];
    // In the table's order; a newer broker may have more of them.
    let known = PolicyTable::standard().broker_settings();
    let place = |name: &str| known.iter().position(|setting| setting.name() == name).unwrap_or(known.len());
    let mut settings: Vec<_> = active.settings.iter().collect();
    settings.sort_by_key(|(name, _)| place(name));
    lines.extend(settings.into_iter().map(|(name, value)| format!("{:<18} {value}", name.replace('_', "-"))));
    lines.push(format!("(there are {})", policies.names.join(", ")));
    lines
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        change: Change,
    }

    fn change(line: &str) -> Result<Change, clap::Error> {
        Line::try_parse_from(line.split_whitespace()).map(|line| line.change)
    }

    #[test]
    fn what_is_not_given_stays() {
        let settings = [
            ("network_aware", SettingValue::Flag(true)),
            ("link_limit", SettingValue::Number(0.5)),
            ("max_remote_share", SettingValue::Number(1.0)),
            ("remote_preference", SettingValue::Number(1.25)),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value)).into();
        let before = PolicySettings { name: "a".into(), settings };
        assert_eq!(change("set").unwrap().apply(&before), before);
        let after = change("set --name b --link-limit 0.9 --network-aware false").unwrap().apply(&before);
        assert_eq!(after.name, "b");
        assert_eq!(after.settings["link_limit"], SettingValue::Number(0.9));
        assert_eq!(after.settings["network_aware"], SettingValue::Flag(false));
        assert_eq!(after.settings["remote_preference"], SettingValue::Number(1.25));
        for wrong in
            ["--link-limit -1", "--link-limit NaN", "--link-limit inf", "--network-aware 1", "--max-sliver 1"]
        {
            assert!(change(&format!("set {wrong}")).is_err(), "{wrong}");
        }
        let text = describe(&Policies { active: after, names: vec!["a".into(), "b".into()] }).join("\n");
        assert!(text.contains("link-limit         0.9") && text.contains("a, b"), "{text}");
        assert!(text.starts_with("policy             b\nnetwork-aware      false\n"), "{text}");
    }
}
