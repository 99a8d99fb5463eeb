//! Connections that say nothing, or nonsense, keep nobody out, and do not keep the broker from stopping.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rgpu_control::api::paths;
use rgpu_control::token::Role;

use crate::support::{PATIENCE, broker, request, wish};

/// So many silent connections, and as many that send what no HTTP is.
const CROWD: usize = 1000;

fn silent(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(address).unwrap()).collect()
}

fn garbage(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let one = |i: usize| {
        let mut stream = TcpStream::connect(address).unwrap();
        let bytes: Vec<u8> = (0..64).map(|at| (i * 31 + at * 17) as u8 | 0x80).collect();
        // The broker may have closed it already.
        let _ = stream.write_all(&bytes);
        stream
    };
    (0..count).map(one).collect()
}

#[test]
fn a_crowd_that_says_nothing_keeps_nobody_out() {
    let bench = broker("max_connections = 256\nmax_connections_per_address = 128");
    bench.add_node("n0");
    let address = bench.server.address();
    let _silent = silent(address, CROWD);
    let _garbage = garbage(address, CROWD);
    let token = bench.token(Role::Tenant, "ann");
    let mut times = Vec::new();
    for newcomer in 0..50 {
        // Both who shows a token and who doesn't, each by a connection of its own.
        let (path, token) = if newcomer % 2 == 0 { (paths::HEALTH, "") } else { (paths::LEASES, &*token) };
        let began = Instant::now();
        let answer = bench.ask("GET", path, token, None);
        assert_eq!(answer.status, 200, "newcomer {newcomer}: {answer:?}");
        times.push(began.elapsed());
    }
    times.sort();
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{} newcomers: median {median:?}, longest {longest:?}", times.len());
    let lease = bench.client(Role::Tenant, "ann").request_lease(&wish("job")).unwrap();
    bench.client(Role::Tenant, "ann").renew(lease.id).unwrap();
}

#[test]
fn whoever_is_in_the_midst_of_something_is_not_shut_out_by_a_crowd() {
    let bench = broker("max_connections = 256\nmax_connections_per_address = 128");
    bench.add_node("n0");
    let ann = bench.client(Role::Tenant, "ann");
    let mut all = wish("all");
    (all.share_milli, all.memory) = (1000, 0);
    let first = ann.request_lease(&all).unwrap();
    let waiting = {
        let ann = ann.clone();
        std::thread::spawn(move || ann.request_lease(&all))
    };
    while ann.leases(false).unwrap().len() < 2 {
        std::thread::yield_now();
    }
    let _crowd = silent(bench.server.address(), CROWD);
    assert_eq!(bench.ask("GET", paths::HEALTH, "", None).status, 200);
    // The long poll is answered over the connection that it came by.
    ann.release(first.id).unwrap();
    bench
        .client(Role::Node, "n0")
        .heartbeat(
            "n0",
            &rgpu_control::api::Heartbeat {
                ended: vec![first.id],
                ..crate::support::heartbeat(u64::MAX >> 1)
            },
        )
        .unwrap();
    assert!(waiting.join().unwrap().is_ok());
}

#[test]
fn one_token_cannot_take_all_connections() {
    let bench = broker("max_requests_per_token = 8");
    bench.add_node("n0");
    let token = bench.token(Role::Tenant, "ann");
    let mut streams = Vec::new();
    let mut refused = 0;
    for _ in 0..24 {
        let mut stream = TcpStream::connect(bench.server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // These stay open and answer slowly: a stream of events has no end.
        stream.write_all(request("GET", paths::EVENTS, &token, None).as_bytes()).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        match &head[9..] {
            b"200" => streams.push(stream),
            b"429" => refused += 1,
            other => panic!("{:?}", String::from_utf8_lossy(other)),
        }
    }
    assert_eq!((streams.len(), refused), (8, 16));
    assert_eq!(bench.ask("GET", paths::LEASES, &bench.token(Role::Tenant, "bob"), None).status, 200);
    // They are given back.
    drop(streams);
    let began = Instant::now();
    while bench.ask("GET", paths::LEASES, &token, None).status != 200 {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_refused_request_is_answered_although_its_body_is_on_the_way() {
    let bench = broker("");
    let token = bench.token(Role::Tenant, "ann");
    // More than a socket takes at once, slowly.
    let body = "x".repeat(900_000);
    for _ in 0..20 {
        let mut stream = TcpStream::connect(bench.server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let text = request("POST", paths::NODES, &token, Some(&body));
        let (start, end) = text.as_bytes().split_at(text.len() / 2);
        stream.write_all(start).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        stream.write_all(end).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer:?}");
    }
}

#[test]
fn it_stops_at_once_with_silent_connections_and_long_polls() {
    let bench = broker("");
    let welcome = bench.add_node("n0");
    let address = bench.server.address();
    let mut crowd = silent(address, 50);
    for text in ["GET /v1/health HT", "POST /v1/nodes HTTP/1.1\r\nhost: b\r\ncontent-length: 100\r\n\r\n{"] {
        let mut half = TcpStream::connect(address).unwrap();
        half.write_all(text.as_bytes()).unwrap();
        crowd.push(half);
    }
    // An authorised request whose body never comes.
    let token = bench.token(Role::Node, "n0");
    let mut slow = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /v1/nodes HTTP/1.1\r\nhost: b\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    );
    slow.write_all(head.as_bytes()).unwrap();
    let node = bench.client(Role::Node, "n0");
    let polling = std::thread::spawn(move || node.orders("n0", welcome.orders.version + 1_000_000, 50));
    bench.ask("GET", paths::HEALTH, "", None);
    let began = Instant::now();
    bench.server.stop();
    // Two seconds are promised; ten were what it took. The limit is between, for slow machines.
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    let _ = polling.join().unwrap();
}
