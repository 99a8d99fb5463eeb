//! Tests of the configuration.

use rgpu_control::api::SettingValue;

use super::*;
use rgpu_control::units::parse_bytes;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("dir/broker.toml"), Overrides::default())
}

#[test]
fn nothing_said_is_the_defaults() {
    assert_eq!(parse("").unwrap(), Config::default());
    assert_eq!(Config::load(None, Overrides::default()).unwrap(), Config::default());
}

#[test]
fn the_example_says_the_defaults() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/broker.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let example = Config::parse(&text, &path, Overrides::default()).unwrap();
    assert_eq!(example, Config::default());
    // What is commented out there is right, too.
    let all: String =
        text.lines().map(|line| line.strip_prefix("#: ").unwrap_or(line).to_owned() + "\n").collect();
    let all = Config::parse(&all, Path::new("/etc/rgpu/broker.toml"), Overrides::default()).unwrap();
    assert!(!all.switches.is_empty() && !all.profiles.is_empty() && !all.tenants.is_empty());
    assert!(all.tls.unwrap().client_ca.is_some() && !all.node_switches.is_empty());
    assert!(all.default_profile.is_some() && all.limits.max_memory.is_some());
}

/// The default that a row of the page's table tells for a key.
fn told(key: &str) -> String {
    let page = include_str!("../../../docs/broker.md");
    let row = page.lines().find(|line| line.starts_with(&format!("| `{key}`"))).unwrap_or_else(|| {
        panic!("docs/broker.md has no row for {key}");
    });
    row.trim_end_matches('|').rsplit('|').next().unwrap().trim().trim_matches('`').to_owned()
}

#[test]
fn the_page_and_the_help_tell_the_defaults() {
    let config = Config::default();
    let help = <Overrides as clap::Args>::augment_args(clap::Command::new("broker"));
    let defaults = [
        ("listen", config.listen.clone()),
        ("data_dir", config.data_dir.display().to_string()),
        ("insecure", config.insecure.to_string()),
        ("open_metrics", config.open_metrics.to_string()),
        ("max_connections", config.max_connections.to_string()),
        ("max_connections_per_address", config.max_connections_per_address.to_string()),
        ("max_requests_per_token", config.max_requests_per_token.to_string()),
        ("lease_ttl_s", config.lease_ttl_s.to_string()),
        ("node_timeout_s", config.node_timeout_s.to_string()),
        ("heartbeat_ms", config.heartbeat_ms.to_string()),
        ("client_nic_mbps", config.client_nic_mbps.to_string()),
        ("policy.name", config.policy.name.clone()),
        ("encrypt", config.encrypt.to_string()),
        ("history", config.history.to_string()),
    ];
    for (key, value) in &defaults {
        assert_eq!(&told(key), value, "docs/broker.md, {key}");
        let flag = if *key == "policy.name" { "policy" } else { key };
        let Some(argument) = help.get_arguments().find(|argument| argument.get_id() == flag) else {
            assert!(["encrypt", "history"].contains(key) || key.starts_with("max_"), "no flag sets {key}");
            continue;
        };
        // A flag that is given or not has no default to tell.
        let text = argument.get_help().unwrap().to_string();
        let expected = format!("[default: {value}]");
        assert_eq!(text.contains(&expected), !matches!(value.as_str(), "true" | "false"), "--{flag}: {text}");
    }
    let settings = config.policy.settings.values().map(ToString::to_string).collect::<Vec<_>>();
    let page = include_str!("../../../docs/broker.md");
    for name in config.policy.settings.keys() {
        assert!(page.contains(&format!("`{name}`")) || page.contains(&format!("`policy.{name}`")), "{name}");
    }
    // By name.
    assert_eq!(settings, ["1", "1", "true", "1.25", "true"]);
    assert_eq!(told("policy.network_aware"), "true`, 1, 1, 1.25, true");
    let example = include_str!("../../../packaging/broker.toml");
    let names = config.policies.names().collect::<Vec<_>>();
    let (last, names) = names.split_last().unwrap();
    assert!(example.contains(&format!("# {} or {last}.", names.join(", "))));
}

#[test]
fn all_of_a_file_is_heeded() {
    let config = parse(
        r#"
        listen = "0.0.0.0:1"
        data_dir = "state"
        lease_ttl_s = 10
        default_profile = "train"
        [policy]
        name = "fgd"
        network_aware = false
        link_limit = 2
        [tls]
        certificate = "c.pem"
        key = "/k.pem"
        [[switch]]
        name = "core"
        uplink_mbps = 100000
        [[switch]]
        name = "rack"
        parent = "core"
        uplink_mbps = 40000
        [node_switch]
        "gpu-1.example.org" = "rack"
        [[profile]]
        name = "train"
        local_s = 100
        remote_s = 120.5
        llc_ways = 4
        [processors]
        cores = true
        [limits]
        max_gpu_milli = 4000
        max_memory = "64GiB"
        [tenant.ann]
        max_memory = "unlimited"
        max_leases = 3
        [tenant."slurm/physics"]
        max_leases = 5
        [tenant."slurm/*"]
        max_gpu_milli = 500
        "#,
    )
    .unwrap();
    assert_eq!(config.data_dir, Path::new("dir/state"));
    assert_eq!((config.lease_ttl_s, config.policy.name.as_str()), (10, "fgd"));
    assert_eq!(config.policy.settings["link_limit"], SettingValue::Number(2.0));
    assert_eq!(config.policy.settings["network_aware"], SettingValue::Flag(false));
    assert_eq!(config.policy.settings["max_remote_share"], SettingValue::Number(1.0));
    let tls = config.tls.as_ref().unwrap();
    assert_eq!((tls.certificate.as_path(), tls.key.as_path()), (Path::new("dir/c.pem"), Path::new("/k.pem")));
    assert_eq!(config.switches[1].parent.as_deref(), Some("core"));
    assert_eq!((config.processors.cores, config.processors.weights), (true, false));
    let known = &config.profiles[0];
    assert_eq!((known.processors.llc_ways, known.processors.memory_bandwidth_percent), (Some(4), None));
    assert_eq!(known.profile.spread.as_ref().map(|spread| spread.at(1).ways), Some(4));
    assert_eq!(config.node_switches["gpu-1.example.org"], "rack");
    assert_eq!(config.limits_of("bob").max_memory, Some(64 << 30));
    let ann = Limits { max_gpu_milli: Some(4000), max_memory: None, max_leases: Some(3) };
    assert_eq!(config.limits_of("ann"), ann);
    let limits = |name: &str| config.limits_of(name);
    assert_eq!(
        (limits("slurm/chemistry").max_gpu_milli, limits("slurm/chemistry").max_leases),
        (Some(500), None)
    );
    assert_eq!(
        (limits("slurm/physics").max_gpu_milli, limits("slurm/physics").max_leases),
        (Some(500), Some(5))
    );
    assert_eq!((limits("slurm").max_gpu_milli, limits("slurmy/a").max_gpu_milli), (Some(4000), Some(4000)));
}

#[test]
fn flags_precede_the_file() {
    let overrides = Overrides {
        listen: Some("127.0.0.1:0".into()),
        data_dir: Some("here".into()),
        insecure: Some(false),
        policy: Some("random".into()),
        ..Overrides::default()
    };
    let text =
        "listen = '1.2.3.4:5'\ndata_dir = 'there'\ninsecure = true\nnode_timeout_s = 9\npolicy.name = 'fgd'";
    let config = Config::parse(text, Path::new("dir/f"), overrides).unwrap();
    assert_eq!((config.listen.as_str(), config.data_dir.as_path()), ("127.0.0.1:0", Path::new("here")));
    assert_eq!((config.insecure, config.node_timeout_s), (false, 9));
    assert_eq!(config.policy.name, "random");
}

#[test]
fn mistakes_name_the_key_and_the_line() {
    for (text, parts) in [
        ("\nlisten_on = 'a:1'", &["line 2", "listen_on", "unknown field"][..]),
        ("\n\nlease_ttl_s = 'x'", &["line 3", "lease_ttl_s", "invalid type"]),
        ("lease_ttl_s = 60\nlisten = ", &["line 2", "listen"]),
        ("\nlease_ttl_s = 0", &["line 2", "lease_ttl_s = 0", "from 3 to 86400"]),
        ("heartbeat_ms = 5000", &["line 1", "heartbeat_ms", "two heartbeats"]),
        ("node_timeout_s = 1\n", &["heartbeat_ms = 1000", "the default", "two heartbeats"]),
        ("listen = 'nowhere'", &["line 1", "listen", "HOST:PORT"]),
        ("[policy]\nname = 'best'", &["line 2", "policy.name", "drmaestro"]),
        ("[policy]\nlink_limit = nan", &["line 2", "policy.link_limit"]),
        ("[policy]\nremote_preference = 0.5", &["line 2", "remote_preference", "from 1 to 1000"]),
        ("[policy]\nname = 7", &["line 2", "policy.name = 7"]),
        ("[policy]\nlink_limit = 'x'", &["line 2", "policy.link_limit = \"x\""]),
        ("[policy]\nlink_limit = inf", &["line 2", "policy.link_limit", "from 0 to 1000"]),
        ("[policy]\nnetwork_aware = 1", &["line 2", "policy.network_aware", "true or false"]),
        ("[policy]\nmax_sliver = 0.5", &["line 2", "policy.max_sliver", "there are network_aware"]),
        ("[[switch]]\nname = 'a'\n", &["uplink_mbps"]),
        ("[[switch]]\nname = 'a'\nparent = 'b'\nuplink_mbps = 1", &["line 3", "switch.parent", "\"b\""]),
        ("[[switch]]\nname = 'a'\nparent = 'a'\nuplink_mbps = 1", &["line 3", "circle"]),
        ("[node_switch]\nn = 'x'", &["line 2", "node_switch.n", "\"x\""]),
        ("[[profile]]\nname = 'p'\nlocal_s = -1", &["line 3", "profile.local_s"]),
        ("[[profile]]\nname = 'p'\nlocal_s = 1\nllc_ways = 0", &["line 4", "profile.llc_ways = 0", "from 1"]),
        ("[processors]\ncache = true", &["line 2", "cache", "unknown field"]),
        ("default_profile = 'p'", &["line 1", "default_profile", "\"p\""]),
        ("[limits]\nmax_memory = '4 elephants'", &["line 2", "max_memory", "elephants"]),
        ("[limits]\nmax_leases = -1", &["line 2", "max_leases", "negative"]),
        ("[tenant.'a b']\nmax_leases = 1", &["tenant", "a b"]),
        ("[tls]\nkey = 'k'", &["tls.certificate is missing"]),
        ("[tls]\nclient_ca = 'k'", &["tls.certificate and tls.key are missing"]),
    ] {
        let Err(error) = parse(text) else { panic!("{text:?} was accepted") };
        let error = error.to_string();
        for part in parts {
            assert!(error.contains(part), "{text:?}: {error}");
        }
        assert!(error.contains("dir/broker.toml") || error.contains("the default"), "{error}");
    }
}

#[test]
fn without_encryption_only_this_machine() {
    let (near, far) = ("127.0.0.1:1".parse().unwrap(), "10.0.0.1:1".parse().unwrap());
    let mut config = Config::default();
    assert!(config.may_listen(&[near]).is_ok());
    assert!(config.may_listen(&[near, far]).unwrap_err().to_string().contains("--insecure"));
    config.insecure = true;
    assert!(config.may_listen(&[far]).is_ok());
}

#[test]
fn sizes_are_read() {
    for (text, bytes) in [("0", 0), ("4GiB", 4 << 30), ("512M", 512 << 20), ("1 kib", 1024), ("7b", 7)] {
        assert_eq!(parse_bytes(text), Ok(bytes));
    }
    for wrong in ["", "GiB", "1.5G", "-1", "4 GB", "99999999999T", "1ü"] {
        assert!(parse_bytes(wrong).is_err(), "{wrong}");
    }
}
