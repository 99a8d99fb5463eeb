//! The Grafana dashboard and Prometheus' alert rules in `packaging/`: their expressions parse, and use metrics and labels that the
//! broker's `/metrics` has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use promql_parser::label::Matchers;
use promql_parser::parser::{Expr, LabelModifier, VectorMatchCardinality, parse};
use rgpu_broker::engine::Counters;
use rgpu_broker::metrics::{Metrics, Snapshot};
use rgpu_control::api::{DeviceLoad, LeaseRequest, paths};
use rgpu_control::token::Role;
use serde_json::Value;

use crate::metrics::parse as families;
use crate::support::{Bench, broker, heartbeat, wish};

/// Metrics and labels that Prometheus itself makes of what it scrapes.
const SCRAPED: (&str, [&str; 2]) = ("up", ["job", "instance"]);

/// By the name of each sample, its labels.
type Known = BTreeMap<String, BTreeSet<String>>;

/// What a broker says that has everything: nodes, measurements, leases of all states.
fn known() -> Known {
    let bench: Bench = broker("");
    bench.add_node("n0");
    let load = DeviceLoad { power_w: Some(100.0), ..DeviceLoad::default() };
    let orders = 1 << 51;
    let beat = rgpu_control::api::Heartbeat { devices: vec![load], ..heartbeat(orders) };
    let _ = bench.client(Role::Node, "n0").heartbeat("n0", &beat).unwrap();
    let ann = bench.client(Role::Tenant, "ann");
    ann.request_lease(&wish("has")).unwrap();
    ann.request_lease(&LeaseRequest { share_milli: 1000, memory: 0, wait_s: 0, ..wish("waits") }).unwrap();
    let answer = bench.ask("GET", paths::METRICS, &bench.token(Role::Admin, "prometheus"), None);
    // What only a broker with a standby says.
    let alone = Metrics::default();
    alone.peer_is_up(true);
    let nothing = Snapshot {
        counters: Counters::default(),
        nodes: Vec::new(),
        devices: Vec::new(),
        leases: Vec::new(),
        now: 0,
        version: String::new(),
    };
    let mut known = Known::new();
    for text in [answer.body, alone.text(nothing).unwrap()] {
        for (sample, labels, _) in families(&text).values().flat_map(|family| &family.samples) {
            known.entry(sample.clone()).or_default().extend(labels.keys().cloned());
        }
    }
    let scraped = SCRAPED.1.map(str::to_owned);
    known.values_mut().for_each(|labels| labels.extend(scraped.clone()));
    known.insert(SCRAPED.0.into(), scraped.into());
    known
}

/// What is wrong with an expression: an unknown metric, or a label that none of its metrics has. The labels that it has come back.
fn check(text: &str, known: &Known) -> Result<BTreeSet<String>, String> {
    // What Grafana fills in.
    let filled = text.replace("$__rate_interval", "5m").replace("$__range", "1h");
    let expression = parse(&filled).map_err(|e| format!("{text}: {e}"))?;
    let labels = labels_of(&expression, known).map_err(|e| format!("{text}: {e}"))?;
    match labels.is_empty() && uses(&filled, known) == 0 {
        true => Err(format!("{text}: it uses no metric")),
        false => Ok(labels),
    }
}

fn uses(text: &str, known: &Known) -> usize {
    known.keys().filter(|name| text.contains(name.as_str())).count()
}

fn labels_of(expression: &Expr, known: &Known) -> Result<BTreeSet<String>, String> {
    let all_in =
        |names: &[String], labels: &BTreeSet<String>| match names.iter().find(|name| !labels.contains(*name))
        {
            Some(name) => Err(format!("nothing there has a label {name:?}: {labels:?}")),
            None => Ok(()),
        };
    let selected = |name: &Option<String>, matchers: &Matchers| {
        let name = name.as_ref().ok_or("a selector without a metric's name")?;
        let labels = known.get(name).ok_or_else(|| format!("there is no metric {name}"))?;
        let named: Vec<String> = matchers.matchers.iter().map(|matcher| matcher.name.clone()).collect();
        all_in(&named, labels).map_err(|e| format!("{name}: {e}"))?;
        Ok::<_, String>(labels.clone())
    };
    Ok(match expression {
        Expr::VectorSelector(one) => selected(&one.name, &one.matchers)?,
        Expr::MatrixSelector(one) => selected(&one.vs.name, &one.vs.matchers)?,
        Expr::Paren(one) => labels_of(&one.expr, known)?,
        Expr::Unary(one) => labels_of(&one.expr, known)?,
        Expr::Subquery(one) => labels_of(&one.expr, known)?,
        Expr::Aggregate(one) => {
            let labels = labels_of(&one.expr, known)?;
            match &one.modifier {
                None => BTreeSet::new(),
                Some(LabelModifier::Include(by)) => {
                    all_in(&by.labels, &labels)?;
                    by.labels.iter().cloned().collect()
                }
                Some(LabelModifier::Exclude(without)) => {
                    all_in(&without.labels, &labels)?;
                    labels.into_iter().filter(|label| !without.labels.contains(label)).collect()
                }
            }
        }
        Expr::Binary(one) => {
            let (left, right) = (labels_of(&one.lhs, known)?, labels_of(&one.rhs, known)?);
            if let Some(modifier) = &one.modifier {
                if let Some(LabelModifier::Include(on)) = &modifier.matching {
                    all_in(&on.labels, &left)?;
                    all_in(&on.labels, &right)?;
                }
                if let VectorMatchCardinality::ManyToOne(more) = &modifier.card {
                    all_in(&more.labels, &right)?;
                }
            }
            left.union(&right).cloned().collect()
        }
        Expr::Call(call) => {
            let mut labels = BTreeSet::new();
            for argument in &call.args.args {
                labels.extend(labels_of(argument, known)?);
            }
            if call.func.name == "histogram_quantile" && !labels.remove("le") {
                return Err("a histogram's quantile without le".into());
            }
            labels
        }
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) => BTreeSet::new(),
        other => return Err(format!("the test does not know {other:?}")),
    })
}

/// The names after `opening` in a text, up to what ends a label's name.
fn labels_in(text: &str, opening: &str) -> Vec<String> {
    let name = |rest: &str| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    text.split(opening).skip(1).map(|rest| name(rest.trim_start())).collect()
}

fn packaged(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn alert_rules_use_metrics_and_labels_that_there_are() {
    let known = known();
    let rules: Value = serde_saphyr::from_str(&packaged("prometheus/rgpu-alerts.yml")).unwrap();
    let mut names = BTreeSet::new();
    for group in rules["groups"].as_array().unwrap() {
        assert!(names.insert(group["name"].as_str().unwrap().to_owned()), "{group}");
        for rule in group["rules"].as_array().unwrap() {
            let (name, text) = (rule["alert"].as_str().unwrap(), rule["expr"].as_str().unwrap());
            assert!(names.insert(name.to_owned()) && name.starts_with("Rgpu"), "{name}");
            let labels = check(text, &known).unwrap_or_else(|e| panic!("{name}: {e}"));
            let fields: Vec<&str> = rule.as_object().unwrap().keys().map(String::as_str).collect();
            let allowed = ["alert", "expr", "for", "labels", "annotations"];
            assert!(fields.iter().all(|field| allowed.contains(field)), "{name}: {fields:?}");
            let severity = rule["labels"]["severity"].as_str().unwrap();
            assert!(["critical", "warning", "info"].contains(&severity), "{name}: {severity}");
            for field in ["summary", "description"] {
                let said = rule["annotations"][field].as_str().unwrap();
                assert!(said.len() > 20, "{name}: {said}");
                for label in labels_in(said, "$labels.") {
                    assert!(labels.contains(&label), "{name} says {label}, and has {labels:?}");
                }
            }
        }
    }
    assert!(names.len() >= 15, "{names:?}");
}

#[test]
fn the_dashboard_uses_metrics_and_labels_that_there_are() {
    let known = known();
    let dashboard: Value = serde_json::from_str(&packaged("grafana/rgpu.json")).unwrap();
    let (mut ids, mut places, mut count) = (BTreeSet::new(), BTreeSet::new(), 0);
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is another panel's");
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{title} is beyond the right edge");
        for place in
            (at("y")..at("y") + at("h")).flat_map(|y| (at("x")..at("x") + at("w")).map(move |x| (x, y)))
        {
            assert!(places.insert(place), "{title} overlaps another panel at {place:?}");
        }
        for target in panel["targets"].as_array().into_iter().flatten() {
            let labels =
                check(target["expr"].as_str().unwrap(), &known).unwrap_or_else(|e| panic!("{title}: {e}"));
            for label in labels_in(target["legendFormat"].as_str().unwrap(), "{{") {
                assert!(labels.contains(&label), "{title}'s legend says {label}, and there is {labels:?}");
            }
            count += 1;
        }
    }
    assert!(count >= 30, "{count} expressions");
    let mut variables = BTreeSet::new();
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        variables.insert(format!("${}", variable["name"].as_str().unwrap()));
        let Some(query) = variable["query"]["query"].as_str() else { continue };
        let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')')).unwrap();
        let (metric, label) = inside.split_once(", ").unwrap();
        assert!(known.get(metric).is_some_and(|labels| labels.contains(label)), "{query}");
    }
    for used in labels_in(&packaged("grafana/rgpu.json"), "=~\\\"$") {
        assert!(variables.contains(&format!("${used}")), "${used} is no variable of the dashboard");
    }
}

#[test]
fn what_is_not_there_is_noticed() {
    let known = known();
    for (wrong, why) in [
        ("rgpu_broker_leases{state=", "invalid"),
        ("rgpu_broker_leasez", "there is no metric rgpu_broker_leasez"),
        ("rgpu_broker_grants", "there is no metric"),
        ("rgpu_broker_leases{nodes=\"n\"}", "nodes"),
        ("sum by (node) (rgpu_broker_leases)", "node"),
        ("rgpu_broker_leases / on (device) rgpu_broker_device_available", "device"),
        ("histogram_quantile(0.5, rate(rgpu_broker_grant_seconds_sum[5m]))", "without le"),
        ("rate(rgpu_broker_grants_total)", ""),
        ("1 + 1", "no metric"),
    ] {
        let error = check(wrong, &known).expect_err(wrong);
        assert!(error.contains(why) || why == "invalid", "{wrong}: {error}");
    }
    for right in [
        "sum by (tenant) (rgpu_broker_leases{state=\"waiting\"})",
        "histogram_quantile(0.5, sum by (le) (rate(rgpu_broker_grant_seconds_bucket[$__rate_interval])))",
        "rgpu_broker_peer_up == 0",
    ] {
        check(right, &known).unwrap();
    }
}
