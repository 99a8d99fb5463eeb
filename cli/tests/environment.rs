//! The table of environment variables, against everything that speaks of one: sources, documents, examples, `--help`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use rgpu_broker::config::Config;
use rgpu_control::settings::{self, Reader, Setting};

/// Set to write the page instead of comparing it.
const WRITE: &str = "RGPU_WRITE_DOCS";
/// Variables that nobody reads: a test of the server looks whether they are passed on.
const READ_BY_NOBODY: [&str; 2] = ["RGPU_SECRET", "RGPU_THAT_NOBODY_SETS"];
/// Variables of the systemd units alone.
const OF_THE_UNIT: [&str; 3] = ["RGPU_SERVE_LISTEN", "RGPU_SERVE_OPTIONS", "RGPU_SLURM_OPTIONS"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files below a folder whose names end in one of these, but nothing that was built.
fn files(folder: &Path, ends: &[&str], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap_or_default());
        if entry.file_type().unwrap().is_dir() {
            if name != "target" && !name.starts_with('.') {
                files(&path, ends, found);
            }
        } else if ends.iter().any(|end| name.ends_with(end)) {
            found.push(path);
        }
    }
}

/// The variables that a text names.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.match_indices("RGPU_").map(|(at, _)| at);
    starts.filter_map(|at| {
        let word = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        if text[..at].ends_with(word) {
            return None;
        }
        let rest = &text[at..];
        let name = &rest[..rest.find(|c| !word(c)).unwrap_or(rest.len())];
        (name.len() > "RGPU_".len() && !name.ends_with('_')).then_some(name)
    })
}

fn setting(name: &str) -> Setting {
    settings::all().into_iter().find(|setting| setting.name == name).unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn the_page_says_what_the_table_says() {
    let file = repository().join("docs/environment.md");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&file, settings::page()).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == settings::page(),
        "docs/environment.md is out of date: {WRITE}=1 cargo test -p rgpu --test environment"
    );
}

#[test]
fn every_variable_in_the_sources_is_a_row() {
    let mut sources = Vec::new();
    files(&repository(), &[".rs"], &mut sources);
    assert!(sources.len() > 300, "only {} sources were found", sources.len());
    let rows: BTreeSet<&str> = settings::all().iter().map(|setting| setting.name).collect();
    let (mut unknown, mut read) = (BTreeSet::new(), BTreeSet::new());
    for path in sources {
        let text = std::fs::read_to_string(&path).unwrap();
        // In a string, and the whole of it: what is said about variables elsewhere is not read.
        for name in names(&text) {
            if text.contains(&format!("\"{name}\""))
                && !READ_BY_NOBODY.contains(&name)
                && !OF_THE_UNIT.contains(&name)
            {
                if !rows.contains(name) {
                    unknown.insert(format!("{name} in {}", path.display()));
                }
                if !path.ends_with("control/src/settings.rs") {
                    read.insert(name.to_owned());
                }
            }
        }
    }
    assert!(unknown.is_empty(), "no row of control/src/settings.rs: {unknown:?}");
    // And each row that has no constant there is read somewhere.
    let table = std::fs::read_to_string(repository().join("control/src/settings.rs")).unwrap();
    for name in rows {
        let constant = table.contains(&format!("&str = \"{name}\""));
        assert!(constant || read.contains(name), "nobody reads {name}");
    }
}

#[test]
fn every_variable_in_the_documents_is_a_row() {
    let mut pages = vec![repository().join("README.md"), repository().join("CONTRIBUTING.md")];
    files(&repository().join("docs"), &[".md"], &mut pages);
    files(&repository().join("packaging"), &[".toml", ".service"], &mut pages);
    let rows: BTreeSet<&str> = settings::all().iter().map(|setting| setting.name).collect();
    for path in pages {
        for name in names(&std::fs::read_to_string(&path).unwrap()) {
            assert!(rows.contains(name) || OF_THE_UNIT.contains(&name), "{name} in {}", path.display());
        }
    }
}

/// What `rgpu` prints for `--help`.
fn help(command: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_rgpu")).args([command, "--help"]).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help_and_documents_say_the_defaults() {
    let timeout = setting("RGPU_CONNECT_TIMEOUT").default;
    assert_eq!(timeout, settings::CONNECT_TIMEOUT_S.to_string());
    assert!(help("run").contains(&format!("how many seconds connecting may take [default: {timeout}]")));
    let page = std::fs::read_to_string(repository().join("docs/transports.md")).unwrap();
    assert!(page.contains(&format!("gives up connecting after {timeout} seconds")));
    for command in ["run", "serve", "broker", "devices", "doctor"] {
        let help = help(command);
        let rows: BTreeSet<&str> = settings::all().iter().map(|setting| setting.name).collect();
        for name in names(&help) {
            assert!(rows.contains(name), "{name} in `rgpu {command} --help`");
        }
    }
}

#[test]
fn the_brokers_defaults_are_those_of_its_configuration() {
    let config = Config::default();
    let defaults = [
        ("RGPU_BROKER_LISTEN", format!("`{}`", config.listen)),
        ("RGPU_BROKER_DATA_DIR", format!("`{}`", config.data_dir.display())),
        ("RGPU_BROKER_INSECURE", format!("`{}`", config.insecure)),
        ("RGPU_BROKER_OPEN_METRICS", format!("`{}`", config.open_metrics)),
        ("RGPU_BROKER_LEASE_TTL_S", config.lease_ttl_s.to_string()),
        ("RGPU_BROKER_NODE_TIMEOUT_S", config.node_timeout_s.to_string()),
        ("RGPU_BROKER_HEARTBEAT_MS", config.heartbeat_ms.to_string()),
        ("RGPU_BROKER_CLIENT_NIC_MBPS", config.client_nic_mbps.to_string()),
        ("RGPU_BROKER_POLICY", format!("`{}`", config.policy.name)),
        ("RGPU_BROKER_DEFAULT_PROFILE", config.default_profile.unwrap_or_default()),
    ];
    let page = std::fs::read_to_string(repository().join("docs/broker.md")).unwrap();
    let help = help("broker");
    for (name, default) in defaults {
        assert_eq!(setting(name).default, default, "{name}");
        let shown = if default.is_empty() { "none" } else { &default };
        let row = page.lines().find(|line| line.contains(&format!("`{name}`"))).unwrap_or_default();
        assert!(row.ends_with(&format!("| {shown} |")), "{name}: {row}");
    }
    for row in settings::all().iter().filter(|row| row.reader == Reader::Broker) {
        assert!(help.contains(row.name), "{} is not in `rgpu broker --help`", row.name);
    }
}
