//! The description says what is there, all of it, and nothing else.

use std::collections::BTreeSet;
use std::path::Path;

use rgpu_control::token::Role;
use serde_json::Value;

use crate::support::broker;

fn described() -> Value {
    serde_json::to_value(rgpu_broker::api::openapi()).unwrap()
}

fn operations(description: &Value) -> BTreeSet<(String, String)> {
    let paths = description["paths"].as_object().unwrap();
    let each = paths.iter().flat_map(|(path, item)| {
        item.as_object().unwrap().keys().map(move |method| (path.clone(), method.to_uppercase()))
    });
    each.collect()
}

#[test]
fn the_file_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    let now = rgpu_broker::api::openapi().to_pretty_json().unwrap() + "\n";
    if std::env::var_os("RGPU_WRITE_DOCS").is_some() {
        std::fs::write(&path, now).unwrap();
        return;
    }
    let file = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(file == now, "docs/openapi.json is not what the code says: run this test with RGPU_WRITE_DOCS=1");
}

/// The constants of `rgpu_control::api::paths`, with the methods that their comments name.
fn contract() -> BTreeSet<(String, String)> {
    let source = include_str!("../../../control/src/api/mod.rs");
    let module = source.split_once("pub mod paths {").unwrap().1.split_once("\n}").unwrap().0;
    let mut found = BTreeSet::new();
    let mut comment = String::new();
    for line in module.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            comment += text;
        } else if let Some((_, value)) = line.split_once(": &str = ") {
            let path = value.trim_matches(['"', ';']);
            let words: Vec<&str> = comment.split(|c: char| !c.is_ascii_alphabetic()).collect();
            let methods = ["GET", "POST", "PUT", "PATCH", "DELETE"];
            let before = found.len();
            for method in methods.iter().filter(|method| words.contains(method)) {
                found.insert((path.to_owned(), (*method).to_owned()));
            }
            assert!(found.len() > before, "no method is named for {path}");
            comment.clear();
        }
    }
    found
}

#[test]
fn every_path_and_method_of_the_contract_is_described_and_no_other() {
    let contract = contract();
    assert!(contract.len() >= 25, "{contract:?}");
    assert_eq!(operations(&described()), contract);
}

/// The operations that no method of the client calls: descriptions and metrics are for other programs.
const FOR_OTHERS: [&str; 2] = ["OPENAPI", "METRICS"];

#[test]
fn the_client_knows_every_path() {
    let paths = include_str!("../../../control/src/api/mod.rs").split_once("pub mod paths {").unwrap().1;
    let paths = paths.split_once("\n}").unwrap().0;
    let client = include_str!("../../../control/src/client.rs");
    let names = paths.lines().filter_map(|line| line.trim().strip_prefix("pub const "));
    let names: Vec<&str> = names.map(|line| line.split(':').next().unwrap()).collect();
    assert!(names.len() >= 19, "{names:?}");
    for name in names {
        let used = client.contains(&format!("paths::{name},"))
            || client.contains(&format!("paths::{name})"))
            || client.contains(&format!("paths::{name}."));
        assert_eq!(used, !FOR_OTHERS.contains(&name), "control/src/client.rs and paths::{name}");
    }
}

#[test]
fn the_documentation_lists_every_operation() {
    let page = include_str!("../../../docs/broker.md");
    for (path, method) in operations(&described()) {
        let name = format!("`{method} {path}");
        let listed = page.match_indices(&name).any(|(at, _)| {
            let next = page[at + name.len()..].chars().next();
            matches!(next, Some('`' | '?'))
        });
        assert!(listed, "docs/broker.md does not list {method} {path}");
    }
}

#[test]
fn every_described_operation_answers_and_only_for_its_roles() {
    let bench = broker("");
    let (admin, tenant) = (bench.token(Role::Admin, "root"), bench.token(Role::Tenant, "ann"));
    let description = described();
    for (path, method) in operations(&description) {
        let about = &description["paths"][&path][method.to_lowercase()];
        let body = about.get("requestBody").map(|_| "{}");
        let filled = path.replace("{name}", "n0").replace("{id}", "00000000000000ab");
        let answer = bench.ask(&method, &filled, &admin, body);
        assert!(answer.status != 405 && answer.status != 0, "{method} {path}: {answer:?}");
        assert!(!answer.body.contains("/openapi.json says what there is"), "{method} {path}: {answer:?}");
        let status = answer.status.to_string();
        assert!(
            about["responses"].get(&status).is_some(),
            "{method} {path} is not said to answer {status}: {answer:?}"
        );
        // Without a token, and with one that isn't enough.
        let open = about["security"].as_array().is_some_and(Vec::is_empty);
        let answer = bench.ask(&method, &filled, "", body);
        assert_eq!(answer.status == 401, !open, "{method} {path}: {answer:?}");
        let who = about["description"].as_str().unwrap();
        if who.starts_with("For the role") && !who.contains("tenant") {
            let answer = bench.ask(&method, &filled, &tenant, body);
            assert_eq!(answer.status, 403, "{method} {path}: {answer:?}");
            assert!(
                answer.body.contains("forbidden") && answer.body.contains("the role tenant"),
                "{answer:?}"
            );
        }
    }
}

#[test]
fn references_lead_somewhere() {
    let description = described();
    fn visit<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str));
                map.values().for_each(|value| visit(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| visit(value, found)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    visit(&description, &mut found);
    assert!(found.len() > 30, "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(description.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn it_is_served_to_everybody() {
    let bench = broker("");
    let answer = bench.ask("GET", "/openapi.json", "", None);
    assert_eq!((answer.status, serde_json::from_str::<Value>(&answer.body).unwrap()), (200, described()));
}
