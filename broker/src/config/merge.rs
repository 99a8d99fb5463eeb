//! From flags, the environment and the file, the configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rgpu_control::api::SettingValue;
use rgpu_control::token::Role;
use rgpu_placement::{Profile, SwitchSpec};
use toml::Spanned;

use super::file::{File, FilePolicy, FileProfile, FileSetting, FileSwitch};
use super::said::{Said, Source, name_problem, ranged, token_name_problem};
use super::{Config, ConfigError, Overrides, TlsFiles};
use crate::engine::{
    EVERY_TENANT, Limits, ProcessorSettings, ProfileProcessors, ProfileSettings, from_control, setting,
};

impl Config {
    /// The same, with the file's text. Relative paths in it are relative to the file's directory.
    pub fn parse(text: &str, path: &Path, overrides: Overrides) -> Result<Self, ConfigError> {
        let file: File = toml::from_str(text).map_err(|e| ConfigError::Syntax {
            path: path.to_path_buf(),
            why: e.to_string().trim_end().to_owned(),
        })?;
        let source = Source { text, path };
        let directory = path.parent().unwrap_or(Path::new(""));
        let mut config = Self::default();

        if let Some(listen) = source.pick(overrides.listen, "listen", file.listen) {
            let port = listen.value.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            if port.is_none() || listen.value.starts_with(':') {
                return Err(listen.wrong("listen", format!("{:?}", listen.value), "give HOST:PORT"));
            }
            config.listen = listen.value;
        }
        if let Some(url) = file.url.map(|url| source.said(url)) {
            if !url.value.starts_with("https://") && !url.value.starts_with("http://") {
                return Err(url.wrong("url", format!("{:?}", url.value), "give https://HOST:PORT"));
            }
            config.url = Some(url.value);
        }
        // Paths on the command line are relative to where it was typed.
        config.data_dir = match (overrides.data_dir, file.data_dir) {
            (Some(path), _) => path,
            (None, Some(path)) => directory.join(path.into_inner()),
            (None, None) => config.data_dir,
        };
        config.insecure = overrides.insecure.or(file.insecure.map(Spanned::into_inner)).unwrap_or(false);
        config.open_metrics =
            overrides.open_metrics.or(file.open_metrics.map(Spanned::into_inner)).unwrap_or(false);
        let counts = [
            ("max_connections", file.max_connections, &mut config.max_connections),
            (
                "max_connections_per_address",
                file.max_connections_per_address,
                &mut config.max_connections_per_address,
            ),
            ("max_requests_per_token", file.max_requests_per_token, &mut config.max_requests_per_token),
        ];
        for (key, said, count) in counts {
            let mut value = *count as u64;
            ranged(&mut value, key, source.pick(None, key, said), 8..=1_000_000)?;
            *count = value as usize;
        }
        let ttl = source.pick(overrides.lease_ttl_s, "lease_ttl_s", file.lease_ttl_s);
        ranged(&mut config.lease_ttl_s, "lease_ttl_s", ttl, 3..=86_400)?;
        let timeout = source.pick(overrides.node_timeout_s, "node_timeout_s", file.node_timeout_s);
        ranged(&mut config.node_timeout_s, "node_timeout_s", timeout, 1..=3600)?;
        let heartbeat = source.pick(overrides.heartbeat_ms, "heartbeat_ms", file.heartbeat_ms);
        let heartbeat_at = heartbeat.as_ref().map_or("the default".into(), |said| said.at.clone());
        ranged(&mut config.heartbeat_ms, "heartbeat_ms", heartbeat, 50..=60_000)?;
        if config.heartbeat_ms * 2 > config.node_timeout_s * 1000 {
            return Err(ConfigError::Value {
                key: "heartbeat_ms".into(),
                value: config.heartbeat_ms.to_string(),
                at: heartbeat_at,
                why: format!(
                    "node_timeout_s is {}: at least two heartbeats must fit into that",
                    config.node_timeout_s
                ),
            });
        }
        let nic = source.pick(overrides.client_nic_mbps, "client_nic_mbps", file.client_nic_mbps);
        ranged(&mut config.client_nic_mbps, "client_nic_mbps", nic, 0..=100_000_000)?;

        config.set_policy(&source, overrides.policy, file.policy)?;
        config.processors =
            ProcessorSettings { cores: file.processors.cores, weights: file.processors.weights };
        config.set_switches(&source, file.switch, file.node_switch)?;
        config.set_profiles(&source, file.profile)?;
        if let Some(name) = source.pick(overrides.default_profile, "default_profile", file.default_profile) {
            if !config.profiles.iter().any(|known| known.profile.name == name.value) {
                return Err(name.wrong(
                    "default_profile",
                    format!("{:?}", name.value),
                    "no [[profile]] has that name",
                ));
            }
            config.default_profile = Some(name.value);
        }

        config.limits = file.limits.over(Limits::default());
        for (name, limits) in file.tenant {
            let parts = name.strip_suffix(EVERY_TENANT).unwrap_or(&name);
            if let Some(why) = token_name_problem(Role::Tenant, parts) {
                let at = path.display().to_string();
                return Err(ConfigError::Value {
                    key: "tenant".into(),
                    value: format!("{name:?}"),
                    at,
                    why: why.into(),
                });
            }
            // What is for all tenants of an engine comes first, by its name.
            let base = config.limits_of(&name);
            config.tenants.insert(name, limits.over(base));
        }

        let inside = |path: Option<Spanned<PathBuf>>| path.map(|path| directory.join(path.into_inner()));
        config.history = file.history.map(Spanned::into_inner).unwrap_or(config.history);
        config.encrypt = file.encrypt.map(Spanned::into_inner).unwrap_or(false);
        config.data_ca = inside(file.data_ca);
        config.peer = file.peer.map(Spanned::into_inner);
        config.peer_ca = inside(file.peer_ca);
        if let Some(standby) = file.standby.map(|standby| source.said(standby)) {
            if standby.value && config.peer.is_none() {
                return Err(standby.wrong("standby", true, "peer is missing: the URL of the other broker"));
            }
            config.standby = standby.value;
        }
        let certificate = overrides.tls_certificate.or_else(|| inside(file.tls.certificate));
        let key = overrides.tls_key.or_else(|| inside(file.tls.key));
        let client_ca = overrides.tls_client_ca.or_else(|| inside(file.tls.client_ca));
        config.tls = match (certificate, key, client_ca) {
            (Some(certificate), Some(key), client_ca) => Some(TlsFiles { certificate, key, client_ca }),
            (None, None, None) => None,
            (certificate, key, _) => {
                let missing = match (certificate.is_some(), key.is_some()) {
                    (false, true) => "tls.certificate is missing",
                    (true, false) => "tls.key is missing",
                    _ => "tls.certificate and tls.key are missing",
                };
                let at = path.display().to_string();
                let why = format!("{missing}: encryption needs the broker's certificate and its key");
                return Err(ConfigError::Value { key: "tls".into(), value: "{ … }".into(), at, why });
            }
        };
        Ok(config)
    }

    fn set_policy(
        &mut self,
        source: &Source<'_>,
        flag: Option<String>,
        file: FilePolicy,
    ) -> Result<(), ConfigError> {
        let (name, settings): (Vec<_>, Vec<_>) = file.into_iter().partition(|(key, _)| key == "name");
        let name = name.into_iter().next().map(|(_, name)| source.said(name));
        let name = name
            .map(|said| match said.value {
                FileSetting::Text(name) => Ok(Said { value: name, at: said.at }),
                other => Err(said_wrong(&said.at, "policy.name", other, "it must be a policy's name")),
            })
            .transpose()?;
        let flag = source.pick(flag, "policy", None);
        if let Some(name) = flag.or(name) {
            if let Err(why) = self.policies.find(&name.value) {
                return Err(name.wrong("policy.name", format!("{:?}", name.value), why));
            }
            self.policy.name = name.value;
        }
        for (name, value) in settings {
            let key = format!("policy.{name}");
            let Said { value, at } = source.said(value);
            let value = match value {
                FileSetting::Flag(value) => SettingValue::Flag(value),
                FileSetting::Number(value) => SettingValue::Number(value),
                FileSetting::Text(_) => {
                    return Err(said_wrong(&at, &key, value, "it must be true, false or a number"));
                }
            };
            let checked = setting(&self.policies, &name)
                .and_then(|setting| setting.check_finite(from_control(value)).map(|()| setting));
            match checked {
                Ok(setting) => self.policy.settings.insert(setting.name().into(), value),
                Err(why) => return Err(Said { value, at }.wrong(&key, value, why)),
            };
        }
        Ok(())
    }

    fn set_switches(
        &mut self,
        source: &Source<'_>,
        switches: Vec<FileSwitch>,
        nodes: BTreeMap<String, Spanned<String>>,
    ) -> Result<(), ConfigError> {
        let mut parents = Vec::new();
        for switch in switches {
            let name = source.said(switch.name);
            let shown = format!("{:?}", name.value);
            if let Some(why) = name_problem(&name.value) {
                return Err(name.wrong("switch.name", shown, why));
            }
            if self.switches.iter().any(|other| other.name == name.value) {
                return Err(name.wrong("switch.name", shown, "another switch has that name"));
            }
            let mut uplink_mbps = 0;
            ranged(
                &mut uplink_mbps,
                "switch.uplink_mbps",
                Some(source.said(switch.uplink_mbps)),
                1..=1_000_000_000,
            )?;
            let parent = switch.parent.map(|parent| source.said(parent));
            self.switches.push(SwitchSpec {
                name: name.value,
                parent: parent.as_ref().map(|parent| parent.value.clone()),
                uplink_mbps,
            });
            parents.extend(parent);
        }
        let known = |name: &str| self.switches.iter().find(|switch| switch.name == name);
        for parent in parents {
            let shown = format!("{:?}", parent.value);
            let Some(mut above) = known(&parent.value) else {
                return Err(parent.wrong("switch.parent", shown, "no [[switch]] has that name"));
            };
            for _ in 0..self.switches.len() {
                match above.parent.as_deref().and_then(known) {
                    Some(next) => above = next,
                    None => break,
                }
            }
            if above.parent.as_deref().and_then(known).is_some() {
                return Err(parent.wrong(
                    "switch.parent",
                    shown,
                    "the switches above each other form a circle",
                ));
            }
        }
        for (node, switch) in nodes {
            let switch = source.said(switch);
            let shown = format!("{:?}", switch.value);
            if known(&switch.value).is_none() {
                return Err(switch.wrong(
                    &format!("node_switch.{node}"),
                    shown,
                    "no [[switch]] has that name",
                ));
            }
            if let Some(why) = name_problem(&node) {
                return Err(switch.wrong(&format!("node_switch.{node:?}"), shown, why));
            }
            self.node_switches.insert(node, switch.value);
        }
        Ok(())
    }

    fn set_profiles(&mut self, source: &Source<'_>, profiles: Vec<FileProfile>) -> Result<(), ConfigError> {
        for profile in profiles {
            let name = source.said(profile.name);
            let shown = format!("{:?}", name.value);
            if let Some(why) = name_problem(&name.value) {
                return Err(name.wrong("profile.name", shown, why));
            }
            if self.profiles.iter().any(|other| other.profile.name == name.value) {
                return Err(name.wrong("profile.name", shown, "another profile has that name"));
            }
            let said = |value: Option<Spanned<f64>>| value.map(|value| source.said(value));
            let (mut local_s, mut sensitivity, mut numa_slowdown, mut traffic_mbps) = (0.0, 0.0, 0.0, 0);
            ranged(&mut local_s, "profile.local_s", said(Some(profile.local_s)), 1e-6..=1e12)?;
            let mut remote_s = local_s;
            ranged(&mut remote_s, "profile.remote_s", said(profile.remote_s), 1e-6..=1e12)?;
            ranged(&mut sensitivity, "profile.sensitivity", said(profile.sensitivity), 0.0..=1e6)?;
            ranged(&mut numa_slowdown, "profile.numa_slowdown", said(profile.numa_slowdown), 0.0..=1e6)?;
            let traffic = profile.traffic_mbps.map(|value| source.said(value));
            ranged(&mut traffic_mbps, "profile.traffic_mbps", traffic, 0..=100_000_000)?;
            let processors = ProfileProcessors {
                llc_ways: optional(source, "profile.llc_ways", profile.llc_ways, 1..=64)?,
                memory_bandwidth_percent: optional(
                    source,
                    "profile.memory_bandwidth_percent",
                    profile.memory_bandwidth_percent,
                    1..=100,
                )?,
            };
            self.profiles.push(ProfileSettings {
                processors,
                profile: Profile {
                    local_s,
                    remote_s,
                    sensitivity,
                    numa_slowdown,
                    spread: processors.spread(),
                    ..Profile::new(name.value, local_s)
                },
                traffic_mbps,
            });
        }
        Ok(())
    }
}

/// A number that may be left out.
fn optional(
    source: &Source<'_>,
    key: &str,
    value: Option<Spanned<u32>>,
    range: std::ops::RangeInclusive<u32>,
) -> Result<Option<u32>, ConfigError> {
    let Some(value) = value.map(|value| source.said(value)) else { return Ok(None) };
    let mut number = 0;
    ranged(&mut number, key, Some(value), range)?;
    Ok(Some(number))
}

/// That a value of `[policy]` is of the wrong kind.
fn said_wrong(at: &str, key: &str, value: FileSetting, why: &str) -> ConfigError {
    let shown = match value {
        FileSetting::Flag(value) => value.to_string(),
        FileSetting::Number(value) => value.to_string(),
        FileSetting::Text(value) => format!("{value:?}"),
    };
    Said { value: (), at: at.into() }.wrong(key, shown, why)
}
