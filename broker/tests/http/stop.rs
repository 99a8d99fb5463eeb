//! A broker that is told to stop answers what it has begun.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;

use rgpu_broker::serve::Server;
use rgpu_control::api::{Event, LeaseState};
use rgpu_control::token::Role;

use crate::support::{PATIENCE, broker, config, request, wish};

#[test]
fn what_waits_is_answered_and_leases_outlive_the_broker() {
    let bench = broker("");
    let welcome = bench.add_node("n0");
    let ann = bench.client(Role::Tenant, "ann");
    let mut all = wish("all");
    (all.share_milli, all.memory) = (1000, 0);
    let active = ann.request_lease(&all).unwrap();
    assert_eq!(active.state, LeaseState::Active);

    // Nothing is free: this one waits, and so do the node for orders and a viewer for events.
    let (ann2, ann3) = (ann.clone(), ann.clone());
    let waiting = thread::spawn(move || ann2.request_lease(&all));
    let queued = {
        let node = bench.client(Role::Node, "n0");
        let current = node.orders("n0", 0, 0).unwrap().version.max(welcome.orders.version);
        thread::spawn(move || node.orders("n0", current, 50))
    };
    let (sender, events) = mpsc::channel::<Event>();
    let viewer = thread::spawn(move || {
        ann3.events(0, |event| {
            let _ = sender.send(event);
            std::ops::ControlFlow::Continue(())
        })
    });
    // Events say when the request is in the queue.
    while events.recv_timeout(PATIENCE).unwrap().kind != "lease_waiting" {}
    while ann.leases(false).unwrap().len() < 2 {
        thread::yield_now();
    }
    let address = bench.server.address();
    let directory = bench.scratch.0.join("broker");
    bench.server.stop();

    let waiting = waiting.join().unwrap().unwrap();
    assert_eq!(waiting.state, LeaseState::Waiting);
    queued.join().unwrap().unwrap();
    assert!(viewer.join().unwrap().is_err(), "the stream of events has ended");
    assert!(TcpStream::connect(address).is_err());

    // Another one goes on with the same leases.
    let server = Server::start(&config(&directory, "")).unwrap();
    let token = rgpu_broker::setup::issue(server.key(), Role::Tenant, "ann", 60).unwrap().token;
    let ann = rgpu_control::Broker::new(&server.url(), &token, &rgpu_control::Tls::default()).unwrap();
    assert_eq!(ann.lease(active.id, 0).unwrap().state, LeaseState::Active);
    assert_eq!(ann.lease(waiting.id, 0).unwrap().state, LeaseState::Waiting);
    server.stop();
}

#[test]
fn a_request_whose_asker_has_gone_is_given_back() {
    let bench = broker("");
    bench.add_node("n0");
    let ann = bench.client(Role::Tenant, "ann");
    let mut all = wish("all");
    (all.share_milli, all.memory) = (1000, 0);
    ann.request_lease(&all).unwrap();
    // Waits, and goes.
    let body = serde_json::to_string(&all).unwrap();
    let mut stream = TcpStream::connect(bench.server.address()).unwrap();
    stream
        .write_all(request("POST", "/v1/leases", &bench.token(Role::Tenant, "ann"), Some(&body)).as_bytes())
        .unwrap();
    while ann.leases(false).unwrap().len() < 2 {
        thread::yield_now();
    }
    drop(stream);
    while ann.leases(false).unwrap().len() > 1 {
        thread::yield_now();
    }
    let ended = ann.leases(true).unwrap();
    assert!(
        ended.iter().any(|lease| lease.state == LeaseState::Ended && lease.granted.is_none()),
        "{ended:?}"
    );
}

#[test]
fn idle_connections_do_not_keep_it_from_stopping() {
    let bench = broker("");
    let mut idle = TcpStream::connect(bench.server.address()).unwrap();
    let mut half = TcpStream::connect(bench.server.address()).unwrap();
    half.write_all(b"GET /v1/health HT").unwrap();
    bench.ask("GET", "/v1/health", "", None);
    bench.server.stop();
    idle.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(idle.read(&mut [0]).unwrap_or(0), 0);
}
