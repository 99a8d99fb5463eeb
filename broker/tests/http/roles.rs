//! Who may do what, and see what.

use rgpu_broker::setup;
use rgpu_control::api::*;
use rgpu_control::token::{Claims, PrivateKey, Role, RoleClaims};
use rgpu_control::{LeaseId, unix_time};

use crate::support::{broker, heartbeat, registration, wish};

fn body(answer: &crate::support::Answer) -> Problem {
    serde_json::from_str::<ErrorBody>(&answer.body).unwrap_or_else(|e| panic!("{e}: {answer:?}")).error
}

#[test]
fn bad_tokens_are_refused_with_the_reason() {
    let bench = broker("");
    let key = bench.server.key();
    let now = unix_time();
    let role = |key: &PrivateKey, not_before, expires| {
        key.sign(&Claims::Role(RoleClaims { role: Role::Admin, name: "a".into(), not_before, expires }))
    };
    let good = role(key, now, now + 60);
    let lease = {
        bench.add_node("n0");
        bench.client(Role::Tenant, "ann").request_lease(&wish("job")).unwrap().token.unwrap()
    };
    for (token, reason) in [
        (String::new(), "a role token is needed"),
        ("x".into(), "no token of rgpu's"),
        (role(&PrivateKey::generate(), now, now + 60), "signature"),
        (role(key, now - 100, now - 50), "expired"),
        (role(key, now + 100, now + 200), "clocks"),
        (lease, "an API token is needed"),
        (format!("{good}A"), ""),
        ("x".repeat(8000), "no token of rgpu's"),
    ] {
        let answer = bench.ask("GET", paths::NODES, &token, None);
        assert_eq!(answer.status, 401, "{token}: {answer:?}");
        assert_eq!(body(&answer).code, ErrorCode::Unauthorized);
        assert!(body(&answer).message.contains(reason), "{reason}: {answer:?}");
        assert!(answer.head.to_lowercase().contains("www-authenticate: bearer"), "{answer:?}");
    }
    assert_eq!(bench.ask("GET", paths::NODES, &good, None).status, 200);
    let twice = format!(
        "GET /v1/nodes HTTP/1.1\r\nhost: b\r\nconnection: close\r\nauthorization: Bearer {good}\r\nauthorization: Bearer x\r\n\r\n"
    );
    assert_eq!(bench.raw(twice.as_bytes()).status, 401);
    let basic = "GET /v1/nodes HTTP/1.1\r\nhost: b\r\nconnection: close\r\nauthorization: Basic eDp5\r\n\r\n";
    assert!(body(&bench.raw(basic.as_bytes())).message.contains("Bearer"));
}

#[test]
fn other_tenants_neither_see_nor_touch_a_lease() {
    let bench = broker("");
    bench.add_node("n0");
    let ann = bench.client(Role::Tenant, "ann");
    let lease = ann.request_lease(&wish("job")).unwrap();
    assert_eq!(lease.state, LeaseState::Active);
    let token = lease.token.clone().unwrap();
    let signature = token.rsplit('.').next().unwrap();
    let path = format!("/v1/leases/{}", lease.id);
    for (role, name) in [(Role::Tenant, "bob"), (Role::Node, "n0"), (Role::Node, "ann")] {
        let other = bench.token(role, name);
        for (method, path, with) in [
            ("GET", path.clone(), None),
            ("GET", path.clone() + "/explain", None),
            ("POST", path.clone() + "/renew", Some("{}")),
            ("PATCH", path.clone(), Some(r#"{"share_milli":100}"#)),
            ("DELETE", path.clone(), None),
        ] {
            let answer = bench.ask(method, &path, &other, with);
            let wanted: &[u16] = if role == Role::Tenant { &[403, 404] } else { &[403] };
            assert!(wanted.contains(&answer.status), "{method} {path}: {answer:?}");
            assert!(!answer.body.contains(signature), "{answer:?}");
        }
    }
    let bob = bench.client(Role::Tenant, "bob");
    assert_eq!(bob.leases(true).unwrap(), []);
    assert_eq!(bob.jobs().unwrap(), []);
    // An administrator sees it, but cannot use it.
    let seen = bench.client(Role::Admin, "root").lease(lease.id, 0).unwrap();
    assert_eq!((seen.tenant.as_str(), seen.token), ("ann", None));
    // It is as it was.
    let same = ann.lease(lease.id, 0).unwrap();
    assert_eq!((same.state, &same.grants), (LeaseState::Active, &lease.grants));
    assert!(same.token.is_some());
}

#[test]
fn nodes_speak_for_themselves_only() {
    let bench = broker("");
    bench.add_node("n0");
    let other = bench.client(Role::Node, "n1");
    assert_eq!(other.register(&registration("n0")).unwrap_err().code(), Some(ErrorCode::Forbidden));
    assert_eq!(other.heartbeat("n0", &heartbeat(0)).unwrap_err().code(), Some(ErrorCode::Forbidden));
    assert_eq!(other.orders("n0", 0, 0).unwrap_err().code(), Some(ErrorCode::Forbidden));
    let tenant = bench.client(Role::Tenant, "ann");
    for error in [
        tenant.register(&registration("ann")).unwrap_err(),
        tenant.drain("n0", true).unwrap_err(),
        tenant.remove_node("n0").unwrap_err(),
        tenant.tenants().unwrap_err(),
        tenant.set_policy(&tenant.policies().unwrap().active).unwrap_err(),
        tenant.issue_token(&TokenRequest { role: Role::Admin, name: "ann".into(), valid_s: 9 }).unwrap_err(),
        bench.client(Role::Node, "n0").request_lease(&wish("job")).unwrap_err(),
    ] {
        assert_eq!(error.code(), Some(ErrorCode::Forbidden), "{error}");
    }
}

#[test]
fn issued_tokens_are_good() {
    let bench = broker("");
    let admin = bench.client(Role::Admin, "root");
    let issued =
        admin.issue_token(&TokenRequest { role: Role::Tenant, name: "ann".into(), valid_s: 60 }).unwrap();
    assert_eq!(bench.ask("GET", paths::LEASES, &issued.token, None).status, 200);
    assert!(issued.expires <= unix_time() + 60);
    for (name, valid_s) in [("", 60), ("ann", 0), ("a\nb", 60)] {
        let request = TokenRequest { role: Role::Tenant, name: name.into(), valid_s };
        assert_eq!(admin.issue_token(&request).unwrap_err().code(), Some(ErrorCode::BadRequest), "{name:?}");
    }
    let offline = setup::issue(bench.server.key(), Role::Tenant, "ann", 60).unwrap();
    assert_eq!(bench.ask("GET", paths::LEASES, &offline.token, None).status, 200);
}

#[test]
fn withdrawn_tokens_count_no_more_also_after_a_restart() {
    let bench = broker("");
    bench.add_node("n0");
    let admin = bench.client(Role::Admin, "root");
    let issue = |name: &str, valid_s| {
        admin.issue_token(&TokenRequest { role: Role::Tenant, name: name.into(), valid_s }).unwrap()
    };
    let (first, second, bob) = (issue("ann", 600), issue("ann", 601), issue("bob", 600));
    let status = |token: &str| bench.ask("GET", paths::LEASES, token, None).status;
    for token in [&first, &second, &bob] {
        assert_eq!(status(&token.token), 200);
    }
    let seen = admin.tokens().unwrap().seen;
    assert!(
        seen.iter().any(|seen| seen.id == first.id && seen.name == "ann" && seen.expires == first.expires)
    );
    // One of them, which ends what it has open as well.
    let mut events = std::net::TcpStream::connect(bench.server.address()).unwrap();
    events.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
    std::io::Write::write_all(
        &mut events,
        crate::support::request("GET", paths::EVENTS, &first.token, None).as_bytes(),
    )
    .unwrap();
    let by_id = TokenWithdrawal { id: Some(first.id.clone()), role: None, name: None };
    assert_eq!(
        bench.client(Role::Tenant, "ann").withdraw_tokens(&by_id).unwrap_err().code(),
        Some(ErrorCode::Forbidden)
    );
    admin.withdraw_tokens(&by_id).unwrap();
    std::io::copy(&mut events, &mut std::io::sink()).unwrap();
    let answer = bench.ask("GET", paths::LEASES, &first.token, None);
    assert_eq!(answer.status, 401);
    assert!(body(&answer).message.contains("was withdrawn"), "{answer:?}");
    assert_eq!((status(&second.token), status(&bob.token)), (200, 200));
    // All of a name; those that are issued afterwards are good.
    let by_name = TokenWithdrawal { id: None, role: Some(Role::Tenant), name: Some("ann".into()) };
    assert_eq!(admin.withdraw_tokens(&by_name).unwrap().len(), 2);
    let third = issue("ann", 600);
    assert_eq!((status(&second.token), status(&bob.token), status(&third.token)), (401, 200, 200));
    let odd = TokenWithdrawal { id: Some("x".into()), role: None, name: None };
    assert_eq!(admin.withdraw_tokens(&odd).unwrap_err().code(), Some(ErrorCode::BadRequest));
    let directory = bench.scratch.0.join("broker");
    bench.server.stop();
    let server = rgpu_broker::serve::Server::start(&crate::support::config(&directory, "")).unwrap();
    let status = |token: &str| {
        let text = crate::support::request("GET", paths::LEASES, token, None);
        crate::support::raw(server.address(), text.as_bytes()).status
    };
    assert_eq!((status(&first.token), status(&second.token), status(&bob.token)), (401, 401, 200));
}

#[test]
fn metrics_need_a_token_unless_they_are_open() {
    let bench = broker("");
    bench.add_node("n0");
    bench.client(Role::Tenant, "ann").request_lease(&wish("job")).unwrap();
    assert_eq!(bench.ask("GET", paths::METRICS, "", None).status, 401);
    let answer = bench.ask("GET", paths::METRICS, &bench.token(Role::Tenant, "ann"), None);
    assert!(answer.head.contains("application/openmetrics-text"), "{answer:?}");
    for line in [
        "rgpu_broker_leases{tenant=\"ann\",state=\"active\"} 1.0",
        "rgpu_broker_device_granted_ratio{node=\"n0\",device=\"0\"} 0.25",
        "rgpu_broker_device_memory_bytes{node=\"n0\",device=\"0\"} 4294967296.0",
        "rgpu_broker_device_memory_granted_bytes{node=\"n0\",device=\"0\"} 1073741824.0",
        "rgpu_broker_node_ready{node=\"n0\"} 1.0",
        "rgpu_broker_grants_total 1.0",
        "rgpu_broker_grant_seconds_count 1",
        "rgpu_broker_http_requests_total{path=\"/v1/leases\",method=\"POST\",status=\"201\"} 1",
        "rgpu_broker_http_panics_total 0",
    ] {
        assert!(answer.body.lines().any(|found| found == line), "{line}\n{}", answer.body);
    }
    // A tenant is told of itself, an administrator of all, and a node of no tenant.
    bench.client(Role::Tenant, "bob").request_lease(&wish("other")).unwrap();
    let tenants = |role, name| {
        let answer = bench.ask("GET", paths::METRICS, &bench.token(role, name), None);
        let told = |name: &str| answer.body.contains(&format!("tenant=\"{name}\""));
        assert_eq!(answer.status, 200);
        (told("ann"), told("bob"))
    };
    assert_eq!(tenants(Role::Tenant, "ann"), (true, false));
    assert_eq!(tenants(Role::Tenant, "bob"), (false, true));
    assert_eq!(tenants(Role::Admin, "root"), (true, true));
    assert_eq!(tenants(Role::Node, "n0"), (false, false));
    let open = broker("open_metrics = true");
    assert_eq!(open.ask("GET", paths::METRICS, "", None).status, 200);
}

#[test]
fn nodes_get_their_switch_from_the_configuration() {
    let bench = broker("[[switch]]\nname = 'rack'\nuplink_mbps = 1000\n[node_switch]\nn0 = 'rack'");
    bench.add_node("n0");
    let client = bench.client(Role::Node, "n1");
    let mut elsewhere = registration("n1");
    elsewhere.switch = Some("no-such-switch".into());
    assert_eq!(client.register(&elsewhere).unwrap_err().code(), Some(ErrorCode::BadRequest));
}

#[test]
fn paths_and_methods_that_are_not_there_are_said_so() {
    let bench = broker("");
    let answer = bench.ask("GET", "/v1/nothing", "", None);
    assert_eq!((answer.status, body(&answer).code), (404, ErrorCode::NotFound));
    let answer = bench.ask("PUT", paths::LEASES, "", Some("{}"));
    assert_eq!((answer.status, body(&answer).code), (405, ErrorCode::MethodNotAllowed));
    assert!(answer.head.to_lowercase().contains("allow: "), "{answer:?}");
    let missing = bench.client(Role::Tenant, "ann").lease(LeaseId(7), 0).unwrap_err();
    assert_eq!(missing.code(), Some(ErrorCode::NotFound));
}
