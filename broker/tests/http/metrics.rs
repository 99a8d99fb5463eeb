//! What `/metrics` answers is OpenMetrics, and its names keep to Prometheus' rules.

use std::collections::{BTreeMap, BTreeSet};

use rgpu_control::api::paths;
use rgpu_control::token::Role;

use crate::support::{broker, wish};

/// A family of metrics, as its comments describe it.
#[derive(Debug, Default)]
pub(crate) struct Family {
    kind: String,
    help: String,
    unit: String,
    /// The names of its samples, and their labels and values.
    pub samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

/// The suffixes that the samples of a kind have.
fn suffixes(kind: &str) -> &'static [&'static str] {
    match kind {
        "counter" => &["_total"],
        "gauge" => &[""],
        "histogram" => &["_bucket", "_sum", "_count"],
        "info" => &["_info"],
        other => panic!("no metric here is a {other:?}"),
    }
}

fn is_name(name: &str) -> bool {
    let start = |c: char| c.is_ascii_lowercase();
    name.starts_with(start) && name.chars().all(|c| start(c) || c.is_ascii_digit() || c == '_')
}

/// The labels between braces. Values are quoted, with `\`, `"` and line ends escaped.
fn labels(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("labels {text:?}"));
        assert!(is_name(name), "the label {name:?}");
        let (mut unescaped, mut chars) = (String::new(), value.char_indices());
        let end = loop {
            match chars.next() {
                Some((_, '\\')) => match chars.next() {
                    Some((_, 'n')) => unescaped.push('\n'),
                    Some((_, c @ ('\\' | '"'))) => unescaped.push(c),
                    other => panic!("{other:?} is escaped in {text:?}"),
                },
                Some((at, '"')) => break at,
                Some((_, c)) => unescaped.push(c),
                None => panic!("labels {text:?} don't end"),
            }
        };
        assert!(found.insert(name.to_owned(), unescaped).is_none(), "{name} is there twice in {text:?}");
        rest = &value[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    found
}

/// The families of an exposition, which must be OpenMetrics to the letter.
pub(crate) fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    let body = text.strip_suffix("# EOF\n").expect("it ends with # EOF");
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name) = (words.next().unwrap(), words.next().unwrap());
            let value = words.next().unwrap_or_default().to_owned();
            if name != current {
                // A family's lines stand together.
                assert!(!families.contains_key(name), "{name} comes twice");
                current = name.to_owned();
            }
            let family = families.entry(name.to_owned()).or_default();
            assert!(family.samples.is_empty(), "a comment among the samples of {name}");
            let slot = match what {
                "HELP" => &mut family.help,
                "TYPE" => &mut family.kind,
                "UNIT" => &mut family.unit,
                other => panic!("{other:?}: {line}"),
            };
            assert!(slot.is_empty() && !value.is_empty(), "{line}");
            *slot = value;
            continue;
        }
        let (head, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
        let (name, labels) = match head.split_once('{') {
            Some((name, rest)) => (name, labels(rest.strip_suffix('}').expect("labels end"))),
            None => (head, BTreeMap::new()),
        };
        let value: f64 = value.parse().unwrap_or_else(|e| panic!("{line}: {e}"));
        let family = families.get_mut(&current).unwrap_or_else(|| panic!("{line} has no family"));
        let suffix = name.strip_prefix(current.as_str()).unwrap_or_else(|| panic!("{name} is in {current}"));
        assert!(
            suffixes(&family.kind).contains(&suffix),
            "{name} is no sample of the {} {current}",
            family.kind
        );
        family.samples.push((name.to_owned(), labels, value));
    }
    families
}

/// What the rules say of one family.
fn check(name: &str, family: &Family) {
    assert!(is_name(name), "{name}");
    assert!(!family.help.is_empty() && !family.kind.is_empty(), "{name} has no help or no type");
    if family.unit.is_empty() {
        // Times, sizes and parts are in base units, and say so.
        for unit in ["second", "byte", "ratio", "milli", "_ms", "_us", "mib", "_mb", "percent", "time"] {
            assert!(!name.contains(unit), "{name} has a unit in its name, but doesn't declare it");
        }
    } else {
        let base = ["seconds", "bytes", "ratio", "watts", "bytes_per_second"];
        assert!(base.contains(&family.unit.as_str()), "{name}: {} is no base unit", family.unit);
        assert!(
            name.ends_with(&format!("_{}", family.unit)),
            "{name} doesn't end with its unit {}",
            family.unit
        );
    }
    // These belong to samples, or are said by the type.
    for end in ["_total", "_count", "_sum", "_bucket", "_info", "_gauge", "_counter", "_histogram"] {
        assert!(!name.ends_with(end), "{name} ends with {end}");
    }
    let mut seen = BTreeSet::new();
    for (sample, labels, value) in &family.samples {
        assert!(seen.insert((sample, labels)), "{sample}{labels:?} is there twice");
        assert_eq!(labels.contains_key("le"), sample.ends_with("_bucket"), "{sample}{labels:?}");
        assert!(family.kind == "gauge" || *value >= 0.0, "{sample} is {value}");
        if family.unit == "ratio" {
            assert!((0.0..=1.0).contains(value), "{sample} is {value}");
        }
    }
    if family.kind == "histogram" {
        check_histogram(name, family);
    }
}

/// Buckets are cumulative, and the last one counts everything.
fn check_histogram(name: &str, family: &Family) {
    let mut series: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
    for (sample, labels, value) in &family.samples {
        if sample.ends_with("_bucket") {
            let mut labels = labels.clone();
            let bound = labels.remove("le").expect("it was looked for").parse().expect("a bound is a number");
            series.entry(labels).or_default().push((bound, *value));
        }
    }
    for (labels, buckets) in series {
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name}{labels:?}: {buckets:?}");
        let last = buckets.last().expect("it has one");
        let count =
            family.samples.iter().find(|s| s.0.ends_with("_count") && s.1 == labels).expect("a count");
        assert_eq!((last.0, last.1), (f64::INFINITY, count.2), "{name}{labels:?}");
    }
}

#[test]
fn metrics_are_openmetrics_and_their_names_keep_to_the_rules() {
    let bench = broker("");
    bench.add_node("n0");
    // A name that has to be escaped among the labels, and all kinds of requests.
    let ann = bench.client(Role::Tenant, "ann");
    let lease = ann.request_lease(&wish("job \"x\"\\\n")).map_err(|e| e.to_string());
    assert!(lease.is_err(), "a name with control characters was accepted");
    let lease = ann.request_lease(&wish("job")).unwrap();
    ann.renew(lease.id).unwrap();
    assert_eq!(bench.ask("GET", "/nowhere", "", None).status, 404);
    let answer = bench.ask("GET", paths::METRICS, &bench.token(Role::Admin, "prometheus"), None);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.head.to_lowercase().contains("content-type: application/openmetrics-text; version=1.0.0"));
    let families = parse(&answer.body);
    for (name, family) in &families {
        check(name, family);
        assert!(name.starts_with("rgpu_broker_") || name.starts_with("process_"), "{name}");
    }
    for (name, kind) in [
        ("rgpu_broker_grant_seconds", "histogram"),
        ("rgpu_broker_grants", "counter"),
        ("rgpu_broker_build", "info"),
        ("rgpu_broker_placement_seconds", "counter"),
        ("rgpu_broker_device_granted_ratio", "gauge"),
        ("process_resident_memory_bytes", "gauge"),
    ] {
        let family = families.get(name).unwrap_or_else(|| panic!("{name} is missing in\n{}", answer.body));
        assert_eq!(family.kind, kind, "{name}");
        assert!(!family.samples.is_empty(), "{name} has no samples");
    }
    let granted = &families["rgpu_broker_device_granted_ratio"].samples;
    assert!(granted.iter().any(|(_, labels, value)| labels["node"] == "n0" && *value == 0.25), "{granted:?}");
}
