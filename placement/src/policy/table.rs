//! The table of policies: one row each. Names, parsing, construction, help texts, the broker's configuration keys and
//! their limits, and the list in `docs/placement.md` all come from it.
//!
//! To add a policy, write a file that implements [`Policy`] (or, for one that looks for the best node of the moment,
//! [`Rule`](super::greedy::Rule), which takes some twenty lines), and add its row here. `docs/placement.md` has an example.

use std::collections::BTreeMap;

use super::Policy;
use super::deadline::{self, DeadlineFirst, Strategy};
use super::flow_model::FlowModel;
use super::flow_model::settings::{DRMAESTRO_SETTINGS, FIRMAMENT_SETTINGS, disaggregates};
use super::greedy::{BestFit, Fgd, FirstFit, Greedy, Harvest, Random};
use super::setting::{Key, Setting, Value};
use super::spreading::{self, Sharing, Spreading};
use crate::error::Error;
use crate::harvest::Scheme;
use crate::job::Task;

/// A row of the table: a policy that can be built.
#[derive(Debug)]
pub struct PolicyKind {
    /// The name by which people choose it.
    pub name: &'static str,
    /// What it does, in one line without a full stop.
    pub about: &'static str,
    /// The settings that it reads. The same setting can be read by several policies.
    pub settings: &'static [Setting],
    /// Whether, set so, it ever gives devices of other nodes.
    pub disaggregates: fn(&PolicyConfig) -> bool,
    /// Whether it counts jobs with what they were measured to use, and lends what they leave
    /// ([`Observed::set_lenders`](crate::Observed::set_lenders)).
    pub harvests: bool,
    /// Builds it. The configuration was checked.
    pub build: fn(&PolicyConfig) -> Box<dyn Policy + Send>,
}

/// The policies of this crate, the usual one first.
static STANDARD: &[PolicyKind] = &[
    PolicyKind {
        name: "drmaestro",
        about: "the flow model: devices may come from other nodes, and jobs wait whose objective no placement keeps",
        settings: DRMAESTRO_SETTINGS,
        disaggregates,
        harvests: false,
        build: |config| Box::new(FlowModel::drmaestro(config)),
    },
    PolicyKind {
        name: "firmament",
        about: "the same flow networks with nothing disaggregated: all of a task in one node",
        settings: FIRMAMENT_SETTINGS,
        disaggregates: |_| false,
        harvests: false,
        build: |config| Box::new(FlowModel::firmament(config)),
    },
    PolicyKind {
        name: "first-fit",
        about: "the first node that has room, and there the first devices",
        settings: &[],
        disaggregates: |_| false,
        harvests: false,
        build: |config| Box::new(Greedy::new(config.name(), FirstFit)),
    },
    PolicyKind {
        name: "best-fit",
        about: "the node with the least left, cores and devices each as a part of the greatest node's",
        settings: &[],
        disaggregates: |_| false,
        harvests: false,
        build: |config| Box::new(Greedy::new(config.name(), BestFit)),
    },
    PolicyKind {
        name: "random",
        about: "any node that has room, drawn by lot, and there any devices",
        settings: &[],
        disaggregates: |_| false,
        harvests: false,
        build: |config| Box::new(Greedy::new(config.name(), Random::new(config.seed))),
    },
    PolicyKind {
        name: "fgd",
        about: "fragmentation gradient descent: where the expected fragmentation of the GPUs grows the least",
        settings: &[],
        disaggregates: |_| false,
        harvests: false,
        build: |config| Box::new(Greedy::new(config.name(), Fgd::new(&config.typical))),
    },
    PolicyKind {
        name: "cbp",
        about: "GPUs in use first, the one with the most memory free, unless who is there was measured to peak at the same time",
        settings: &[],
        disaggregates: |_| false,
        harvests: true,
        build: |config| Box::new(Greedy::new(config.name(), Harvest::new(Scheme::Cbp))),
    },
    PolicyKind {
        name: "cbp-pp",
        about: "the same, and there, too, where the measured series forecast enough room (peak prediction)",
        settings: &[],
        disaggregates: |_| false,
        harvests: true,
        build: |config| Box::new(Greedy::new(config.name(), Harvest::new(Scheme::PeakPrediction))),
    },
    PolicyKind {
        name: "deadline-first",
        about: "the earliest deadline first, in the first node that has room, with the first devices of the cluster",
        settings: deadline::SETTINGS,
        disaggregates,
        harvests: false,
        build: |config| Box::new(DeadlineFirst::new(config, Strategy::FirstFit)),
    },
    PolicyKind {
        name: "max-composition",
        about: "the earliest deadline first; NVMes are shared, or composed as long as that makes the job faster",
        settings: deadline::SETTINGS,
        disaggregates,
        harvests: false,
        build: |config| Box::new(DeadlineFirst::new(config, Strategy::MaxComposition)),
    },
    PolicyKind {
        name: "min-fragmentation",
        about: "the earliest deadline first; NVMes are shared where the least of them and of the cores is left over",
        settings: deadline::SETTINGS,
        disaggregates,
        harvests: false,
        build: |config| Box::new(DeadlineFirst::new(config, Strategy::MinFragmentation)),
    },
    PolicyKind {
        name: "disaggregation-aware",
        about: "max-composition or min-fragmentation, as the load of the NVMes says",
        settings: deadline::SETTINGS,
        disaggregates,
        harvests: false,
        build: |config| Box::new(DeadlineFirst::new(config, Strategy::DisaggregationAware)),
    },
    PolicyKind {
        name: "heterogeneity-aware",
        about: "the earliest deadline first; composed NVMes and parts of GPUs, in the node that keeps the most cores",
        settings: deadline::SETTINGS,
        disaggregates,
        harvests: false,
        build: |config| Box::new(DeadlineFirst::new(config, Strategy::HeterogeneityAware)),
    },
    PolicyKind {
        name: "compact-exclusive",
        about: "the fewest nodes that hold a job, which it has alone",
        settings: &[],
        disaggregates: |_| false,
        harvests: false,
        build: |config| Box::new(Spreading::new(config, Sharing::Exclusive)),
    },
    PolicyKind {
        name: "compact-share",
        about: "the fewest nodes that hold a job, or as many times more as it takes to find idle cores, whoever else is there",
        settings: &[],
        disaggregates: |_| false,
        harvests: false,
        build: |config| Box::new(Spreading::new(config, Sharing::Cores)),
    },
    PolicyKind {
        name: "spread-n-share",
        about: "jobs are spread as their profiles say, on the least occupied nodes with the cache ways and memory bandwidth that they need",
        settings: spreading::SETTINGS,
        disaggregates: |_| false,
        harvests: false,
        build: |config| Box::new(Spreading::new(config, Sharing::Profiles)),
    },
];

/// Two rows are the same where they have the same name.
impl PartialEq for PolicyKind {
    fn eq(&self, other: &PolicyKind) -> bool {
        self.name == other.name
    }
}

/// The policies that somebody can choose from.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyTable {
    rows: Vec<&'static PolicyKind>,
}

impl Default for PolicyTable {
    fn default() -> PolicyTable {
        PolicyTable::standard()
    }
}

impl PolicyTable {
    /// The policies of this crate.
    pub fn standard() -> PolicyTable {
        PolicyTable { rows: STANDARD.iter().collect() }
    }

    /// The same with one more policy, which replaces one of the same name.
    #[must_use]
    pub fn with(mut self, kind: &'static PolicyKind) -> PolicyTable {
        self.rows.retain(|row| row.name != kind.name);
        self.rows.push(kind);
        self
    }

    /// The rows, the usual policy first.
    pub fn rows(&self) -> &[&'static PolicyKind] {
        &self.rows
    }

    /// The policies' names.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.rows.iter().map(|row| row.name)
    }

    /// The policy of that name; the error lists those that there are.
    pub fn find(&self, name: &str) -> Result<&'static PolicyKind, Error> {
        let found = self.rows.iter().find(|row| row.name == name).copied();
        found.ok_or_else(|| Error::UnknownPolicy(name.into(), self.names().collect::<Vec<_>>().join(", ")))
    }

    /// The policy of that name with default settings.
    pub fn config(&self, name: &str) -> Result<PolicyConfig, Error> {
        self.find(name).map(PolicyConfig::of)
    }

    /// The settings of all policies, each once, in the order of the rows.
    pub fn settings(&self) -> Vec<Setting> {
        let mut settings: Vec<Setting> = Vec::new();
        for setting in self.rows.iter().flat_map(|row| row.settings) {
            if !settings.iter().any(|known| known.name() == setting.name()) {
                settings.push(*setting);
            }
        }
        settings
    }

    /// The settings that a broker's administrator can set: [`PolicyTable::settings`] without those for experiments.
    pub fn broker_settings(&self) -> Vec<Setting> {
        let mut settings = self.settings();
        settings.retain(|setting| setting.in_broker());
        settings
    }

    /// The setting of that name, of whatever policy; the error lists those that there are.
    pub fn setting(&self, name: &str) -> Result<Setting, Error> {
        let settings = self.settings();
        settings.iter().find(|setting| setting.name() == name).copied().ok_or_else(|| {
            let names: Vec<&str> = settings.iter().map(|setting| setting.name()).collect();
            Error::UnknownSetting(name.into(), names.join(", "))
        })
    }
}

/// A policy, and how it is set: what [`PolicyConfig::build`] builds.
#[derive(Clone, Debug)]
pub struct PolicyConfig {
    kind: &'static PolicyKind,
    /// For policies that draw lots.
    pub seed: u64,
    /// The workload's typical tasks and how frequent each is, for policies that look at fragmentation. Empty: learnt from
    /// the tasks that were seen.
    pub typical: Vec<(Task, f64)>,
    /// What is not at its default, by the setting's name.
    values: BTreeMap<&'static str, (Setting, Value)>,
}

impl PolicyConfig {
    /// The names of this crate's policies, the usual one first.
    pub const NAMES: [&'static str; STANDARD.len()] = {
        let mut names = [""; STANDARD.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = STANDARD[i].name;
            i += 1;
        }
        names
    };

    /// A policy with default settings.
    pub fn of(kind: &'static PolicyKind) -> PolicyConfig {
        PolicyConfig { kind, seed: 0, typical: Vec::new(), values: BTreeMap::new() }
    }

    /// The policy of this crate that has that name, with default settings: GPUs and NVMes disaggregated, network-aware,
    /// links used up to their capacity.
    pub fn named(name: &str) -> Result<PolicyConfig, Error> {
        PolicyTable::standard().config(name)
    }

    /// The policy's name.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// The policy's row.
    pub fn kind(&self) -> &'static PolicyKind {
        self.kind
    }

    /// What a setting is. A policy reads only the settings of its row, but others can be set, too: that way, several
    /// policies can be set alike.
    pub fn get<K: Key>(&self, key: &'static K) -> K::Value {
        key.read(self.values.get(key.setting().name()).map(|(_, value)| *value))
    }

    /// The same with a setting changed. [`PolicyConfig::build`] checks its limits.
    #[must_use]
    pub fn with<K: Key>(mut self, key: &'static K, value: K::Value) -> PolicyConfig {
        self.values.insert(key.setting().name(), (key.setting(), K::store(value)));
        self
    }

    /// The same with another seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> PolicyConfig {
        PolicyConfig { seed, ..self }
    }

    /// Changes a setting. Nothing is changed if the value is not of its type, or out of its limits.
    pub fn set(&mut self, setting: Setting, value: Value) -> Result<(), Error> {
        setting.check(value)?;
        self.values.insert(setting.name(), (setting, value));
        Ok(())
    }

    /// What a report calls it: its name, and what is said of flags of this policy that are not at their default.
    pub fn label(&self) -> String {
        let mut label = self.name().to_owned();
        for setting in self.kind.settings {
            if let Setting::Flag(flag) = setting
                && self.get(*flag) != flag.default
            {
                label = format!("{label}-{}", flag.otherwise);
            }
        }
        label
    }

    /// Whether the policy ever gives devices of other nodes: what [`Job::check`](crate::Job::check) must know.
    pub fn disaggregates(&self) -> bool {
        (self.kind.disaggregates)(self)
    }

    /// Whether the policy lends what jobs leave.
    pub fn harvests(&self) -> bool {
        self.kind.harvests
    }

    /// Builds the policy.
    pub fn build(&self) -> Result<Box<dyn Policy + Send>, Error> {
        for (setting, value) in self.values.values() {
            setting.check(*value)?;
        }
        for (_, frequency) in &self.typical {
            if !frequency.is_finite() || *frequency <= 0.0 {
                return Err(Error::Range {
                    what: "a typical task's frequency",
                    of: format!("policy {:?}", self.name()),
                    value: frequency.to_string(),
                    must: "greater than 0",
                });
            }
        }
        Ok((self.kind.build)(self))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::super::{LINK_LIMIT, NETWORK_AWARE, REMOTE_PREFERENCE};
    use super::*;

    #[test]
    fn names_are_unique_and_settings_are_one_thing_each() {
        let table = PolicyTable::standard();
        let names: BTreeSet<&str> = table.names().collect();
        assert_eq!(names.len(), table.rows().len());
        assert_eq!(table.names().collect::<Vec<_>>(), PolicyConfig::NAMES);
        let same = |a: Setting, b: Setting| match (a, b) {
            (Setting::Flag(a), Setting::Flag(b)) => std::ptr::eq(a, b),
            (Setting::Number(a), Setting::Number(b)) => std::ptr::eq(a, b),
            _ => false,
        };
        for setting in table.rows().iter().flat_map(|row| row.settings) {
            assert!(same(*setting, table.setting(setting.name()).unwrap()), "{}", setting.name());
            setting.check(setting.default()).unwrap();
            let plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(setting.name().chars().all(plain) && setting.name() != "name", "{}", setting.name());
            assert!(!setting.about().is_empty() && !setting.about().ends_with('.'));
        }
        let unknown = table.setting("no_such").unwrap_err().to_string();
        assert!(unknown.contains("no_such") && unknown.contains("link_limit"), "{unknown}");
    }

    #[test]
    fn values_are_checked_and_read_back() {
        let limit = Setting::Number(&LINK_LIMIT);
        let mut config = PolicyConfig::named("drmaestro").unwrap();
        assert_eq!(config.get(&LINK_LIMIT), 1.0);
        config.set(limit, Value::Number(2.0)).unwrap();
        assert_eq!(config.get(&LINK_LIMIT), 2.0);
        config.set(limit, Value::Number(f64::INFINITY)).unwrap();
        for wrong in [Value::Number(-0.1), Value::Number(f64::NAN), Value::Number(1e300), Value::Flag(true)] {
            let error = config.set(limit, wrong).unwrap_err().to_string();
            assert!(error.contains("link_limit") && error.contains("from 0 to 1000"), "{error}");
        }
        assert_eq!(config.get(&LINK_LIMIT), f64::INFINITY);
        assert_eq!(limit.parse("0.5"), Ok(Value::Number(0.5)));
        assert_eq!(Setting::Flag(&NETWORK_AWARE).parse("false"), Ok(Value::Flag(false)));
        assert!(Setting::Flag(&NETWORK_AWARE).parse("0").is_err() && limit.parse("much").is_err());
        let below = config.with(&REMOTE_PREFERENCE, 0.99);
        assert!(matches!(below.build(), Err(Error::Setting { name: "remote_preference", .. })));
    }

    #[test]
    fn labels_tell_flags_that_are_off() {
        let config = |name| PolicyConfig::named(name).unwrap().with(&NETWORK_AWARE, false);
        assert_eq!(config("drmaestro").label(), "drmaestro-unaware");
        assert_eq!(config("firmament").label(), "firmament");
        assert_eq!(PolicyConfig::named("drmaestro").unwrap().label(), "drmaestro");
    }

    /// The policies and their settings as `docs/placement.md` has them.
    fn described() -> String {
        let table = PolicyTable::standard();
        let mut text = String::from("| name | what it does |\n| --- | --- |\n");
        for row in table.rows() {
            text += &format!("| `{}` | {} |\n", row.name, row.about);
        }
        text += "\n| setting | of | default | can be | |\n| --- | --- | --- | --- | --- |\n";
        for setting in table.settings() {
            let of: Vec<&str> = table
                .rows()
                .iter()
                .filter(|row| row.settings.iter().any(|other| other.name() == setting.name()))
                .map(|row| row.name)
                .collect();
            let star = if setting.in_broker() { "" } else { " *" };
            let (name, about) = (setting.name(), setting.about());
            let default = match (setting.default(), setting.default_in_broker()) {
                (default, broker) if default == broker => default.to_string(),
                (default, broker) => format!("{default}; in a broker {broker}"),
            };
            text += &format!(
                "| `{name}`{star} | {} | {default} | {} | {about} |\n",
                of.join(", "),
                setting.limits()
            );
        }
        text
    }

    #[test]
    fn the_documentation_lists_the_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/placement.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let (begin, end) = ("<!-- the table of policies -->\n", "<!-- end of the table -->\n");
        let (before, rest) = text.split_once(begin).expect("the table's beginning");
        let (table, after) = rest.split_once(end).expect("the table's end");
        if std::env::var_os("RGPU_WRITE_DOCS").is_some() {
            std::fs::write(&path, [before, begin, &described(), end, after].concat()).unwrap();
            return;
        }
        assert!(
            table == described(),
            "docs/placement.md does not list what the code has: run this test with RGPU_WRITE_DOCS=1"
        );
    }
}
