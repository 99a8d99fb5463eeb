//! Engines' tokens: what they allow, and how others are refused what they do.

use rgpu_control::api::*;
use rgpu_control::token::Role;
use rgpu_control::{Broker, Tls};

use crate::support::{broker, wish};

fn for_tenant(name: &str) -> LeaseRequest {
    LeaseRequest { on_behalf_of: Some(name.into()), ..wish("job") }
}

#[test]
fn an_engine_sees_and_renews_its_tenants_leases_alone() {
    let bench = broker("[tenant.\"slurm/chemistry\"]\nmax_leases = 0");
    bench.add_node("n0");
    let slurm = bench.client(Role::Engine, "slurm");
    assert!(slurm.is_engines() && !bench.client(Role::Tenant, "slurm").is_engines());
    let lease = slurm.request_lease(&for_tenant("physics")).unwrap();
    assert_eq!((lease.state, lease.tenant.as_str()), (LeaseState::Active, "slurm/physics"));
    let foreign = bench.client(Role::Tenant, "ann").request_lease(&wish("other")).unwrap();
    let seen: Vec<_> = slurm.leases(true).unwrap().into_iter().map(|lease| lease.id).collect();
    assert_eq!(seen, [lease.id]);
    assert_eq!(slurm.lease(foreign.id, 0).unwrap_err().code(), Some(ErrorCode::Forbidden));
    assert!(slurm.renew(lease.id).unwrap().token.is_some());
    assert!(slurm.explain(lease.id).is_ok() && !slurm.nodes().unwrap().is_empty());
    let limited = slurm.request_lease(&for_tenant("chemistry")).unwrap_err();
    assert_eq!(limited.code(), Some(ErrorCode::Limit), "{limited}");
    let metrics = bench.ask("GET", paths::METRICS, &bench.token(Role::Engine, "slurm"), None).body;
    assert!(metrics.contains("tenant=\"slurm/physics\"") && !metrics.contains("tenant=\"ann\""), "{metrics}");
    // What it has no need of it may not do.
    let change = LeaseChange { share_milli: Some(100), memory: None };
    for error in [
        slurm.change_lease(lease.id, &change).unwrap_err(),
        slurm.tenants().unwrap_err(),
        slurm.profiles().unwrap_err(),
        slurm.drain("n0", true).unwrap_err(),
        slurm.issue_token(&TokenRequest { role: Role::Tenant, name: "ann".into(), valid_s: 9 }).unwrap_err(),
        bench.client(Role::Tenant, "ann").request_lease(&for_tenant("physics")).unwrap_err(),
        bench.client(Role::Admin, "root").request_lease(&for_tenant("physics")).unwrap_err(),
    ] {
        assert_eq!(error.code(), Some(ErrorCode::Forbidden), "{error}");
    }
    slurm.release(lease.id).unwrap();
}

#[test]
fn a_broker_that_knows_no_engines_is_named_as_the_reason() {
    // It answers as earlier releases answer a token whose role they do not know.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let old = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 4096];
            let _ = std::io::Read::read(&mut stream, &mut head).unwrap();
            let body = r#"{"error":{"code":"unauthorized","message":"this is no token of rgpu's"}}"#;
            let answer = format!(
                "HTTP/1.1 401 Unauthorized\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            std::io::Write::write_all(&mut stream, answer.as_bytes()).unwrap();
        }
    });
    let bench = broker("");
    let ask = |role| {
        let url = format!("http://{address}");
        let client = Broker::new(&url, &bench.token(role, "slurm"), &Tls::default()).unwrap();
        client.nodes().unwrap_err().to_string()
    };
    let (engine, tenant) = (ask(Role::Engine), ask(Role::Tenant));
    assert!(engine.contains("earlier releases do not know: update the broker"), "{engine}");
    assert_eq!(tenant, "this is no token of rgpu's");
    old.join().unwrap();
}
