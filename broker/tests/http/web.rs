//! The web page's files, and what was made for it: a node's last hour, the latest rounds, when leases ended.

use rgpu_control::api::LeaseRequest;
use rgpu_control::token::Role;

use crate::support::{broker, wish};

#[test]
fn the_page_is_served_to_everybody_with_headers_that_bind_browsers() {
    let bench = broker("");
    for path in ["/", "/ui"] {
        let answer = bench.ask("GET", path, "", None);
        assert_eq!(answer.status, 303, "{path}: {answer:?}");
        assert!(answer.head.contains("location: /ui/"), "{answer:?}");
    }
    let page = bench.ask("GET", "/ui/", "", None);
    assert_eq!(page.status, 200, "{page:?}");
    for header in [
        "content-type: text/html; charset=utf-8",
        "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cache-control: no-cache",
    ] {
        assert!(page.head.contains(header), "{header}: {}", page.head);
    }
    assert!(!page.head.contains("unsafe"), "{}", page.head);
    // Whatever the page names is there, and of the right type: browsers load nothing else.
    let named = page
        .body
        .split(['"', '\''])
        .filter(|word| [".js", ".css", ".svg"].iter().any(|end| word.ends_with(end)));
    let named: Vec<&str> = named.collect();
    assert!(named.len() >= 3, "{named:?}");
    for name in named {
        let answer = bench.ask("GET", &format!("/ui/{name}"), "", None);
        assert_eq!(answer.status, 200, "{name}");
        let kind = if name.ends_with(".js") {
            "text/javascript"
        } else if name.ends_with(".css") {
            "text/css"
        } else {
            "image/svg"
        };
        assert!(answer.head.contains(&format!("content-type: {kind}")), "{name}: {}", answer.head);
    }
    let tag = page.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let again = format!("GET /ui/ HTTP/1.1\r\nhost: b\r\nconnection: close\r\nif-none-match: {tag}\r\n\r\n");
    let again = bench.raw(again.as_bytes());
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    for (method, path, status) in [
        ("GET", "/ui/nothing.js", 404),
        ("GET", "/ui/..%2f..%2fbroker.toml", 404),
        ("GET", "/ui/a/b", 404),
        ("POST", "/ui/", 405),
    ] {
        assert_eq!(bench.ask(method, path, "", None).status, status, "{method} {path}");
    }
}

#[test]
fn a_node_tells_its_last_hour_and_rounds_what_they_came_to() {
    let bench = broker("");
    bench.add_node("n0");
    let (ann, bob) = (bench.client(Role::Tenant, "ann"), bench.client(Role::Tenant, "bob"));
    let history = ann.history("n0", 0).unwrap();
    assert_eq!((history.node.as_str(), history.interval_s, history.devices.len()), ("n0", 10, 1));
    // An hour, of which nothing is known yet.
    assert!(history.nic_in_mbps.len() == 360 && history.nic_in_mbps.iter().all(Option::is_none));
    assert_eq!(history.devices[0].busy_milli.len(), 360);
    assert!(ann.history("n0", history.end).unwrap().nic_in_mbps.len() <= 1);
    assert!(ann.history("n1", 0).unwrap_err().to_string().contains("n1"));

    let first = ann.request_lease(&wish("first")).unwrap();
    assert_eq!(first.ended, None);
    let whole = LeaseRequest { share_milli: 1000, memory: 0, wait_s: 1, ..wish("second") };
    let second = bob.request_lease(&whole).unwrap();
    let rounds = bench.client(Role::Admin, "root").rounds().unwrap();
    let granted: Vec<_> = rounds.iter().flat_map(|round| &round.granted).collect();
    assert_eq!(granted.len(), 1, "{rounds:?}");
    assert_eq!((granted[0].lease, &granted[0].grants), (first.id, &first.grants));
    let left: Vec<_> = rounds.iter().flat_map(|round| &round.left).collect();
    assert!(left.iter().any(|one| one.lease == second.id && !one.reason.is_empty()), "{rounds:?}");
    let seen = bob.rounds().unwrap();
    assert!(seen.iter().all(|round| round.granted.is_empty()), "{seen:?}");
    assert_eq!(seen.iter().map(|round| round.granted_count).sum::<u32>(), 1);

    bob.release(second.id).unwrap();
    let ended = bob.leases(true).unwrap();
    let before = rgpu_control::unix_time();
    assert!(ended[0].ended.is_some_and(|at| at <= before && at + 60 > before), "{ended:?}");
}

#[test]
fn without_history_nothing_is_kept() {
    let bench = broker("history = false\n");
    bench.add_node("n0");
    let history = bench.client(Role::Tenant, "ann").history("n0", 0).unwrap();
    assert!(history.devices.is_empty() && history.nic_in_mbps.iter().all(Option::is_none), "{history:?}");
}
