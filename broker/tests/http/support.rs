//! A broker of a test's own, and HTTP byte for byte.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rgpu_broker::config::{Config, Overrides};
use rgpu_broker::serve::Server;
use rgpu_broker::setup;
use rgpu_control::api::{DeviceLoad, DeviceReport, Heartbeat, LeaseRequest, Registration, Welcome};
use rgpu_control::token::{PrivateKey, Role};
use rgpu_control::{Broker, Tls};

/// How long anything may take; only something that hangs takes that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A directory that goes with its test.
pub(crate) struct Scratch(pub PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("rgpu-broker-http-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running broker.
pub(crate) struct Bench {
    pub server: Server,
    pub scratch: Scratch,
}

/// Starts one whose configuration is the example's, with more text before it.
pub(crate) fn broker(more: &str) -> Bench {
    let scratch = Scratch::new();
    let directory = scratch.0.join("broker");
    setup::init(&directory, None).unwrap();
    let server = Server::start(&config(&directory, more)).unwrap();
    Bench { server, scratch }
}

/// The configuration of a directory that `init` made.
pub(crate) fn config(directory: &Path, more: &str) -> Config {
    // Nodes of these tests say something once and never again.
    let text = format!("listen = '127.0.0.1:0'\ndata_dir = 'state'\nnode_timeout_s = 3600\n{more}");
    Config::parse(&text, &directory.join("broker.toml"), Overrides::default()).unwrap()
}

impl Bench {
    pub(crate) fn token(&self, role: Role, name: &str) -> String {
        setup::issue(self.server.key(), role, name, 3600).unwrap().token
    }

    /// The broker, as somebody.
    pub(crate) fn client(&self, role: Role, name: &str) -> Broker {
        Broker::new(&self.server.url(), &self.token(role, name), &Tls::default()).unwrap()
    }

    /// Adds a node with one device, which takes what it is told.
    pub(crate) fn add_node(&self, name: &str) -> Welcome {
        let client = self.client(Role::Node, name);
        let welcome = client.register(&registration(name)).unwrap();
        client.heartbeat(name, &heartbeat(welcome.orders.version)).unwrap();
        welcome
    }

    /// Sends bytes and reads an answer.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Answer {
        raw(self.server.address(), bytes)
    }

    /// A request with a token and, perhaps, a body.
    pub(crate) fn ask(&self, method: &str, path: &str, token: &str, body: Option<&str>) -> Answer {
        self.raw(request(method, path, token, body).as_bytes())
    }
}

pub(crate) fn request(method: &str, path: &str, token: &str, body: Option<&str>) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: broker\r\nconnection: close\r\n");
    if !token.is_empty() {
        text += &format!("authorization: Bearer {token}\r\n");
    }
    if let Some(body) = body {
        text += &format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    }
    text + "\r\n" + body.unwrap_or("")
}

pub(crate) fn registration(name: &str) -> Registration {
    Registration {
        name: name.into(),
        instance: 1,
        address: "127.0.0.1:7070".into(),
        local_address: None,
        machine: format!("machine-of-{name}"),
        cpu_milli: 8000,
        memory_mib: 16 << 10,
        nic_mbps: 10_000,
        switch: None,
        controls: None,
        devices: vec![DeviceReport {
            index: 0,
            model: "Soft".into(),
            uuid: format!("GPU-{name}"),
            memory: 4 << 30,
            bus_mbps: 100_000,
            partitionable: true,
            alone: false,
            compute_capability: "8.0".into(),
            software: true,
            enforced_by: "workers".into(),
        }],
        nvmes: Vec::new(),
        transports: vec!["tcp".into()],
        tls: false,
        tls_required: false,
        tls_fingerprint: None,
        version: "0.1.0".into(),
        leases: Vec::new(),
    }
}

pub(crate) fn heartbeat(orders: u64) -> Heartbeat {
    Heartbeat {
        instance: 1,
        devices: vec![DeviceLoad { index: 0, ..DeviceLoad::default() }],
        leases: Vec::new(),
        orders,
        ended: Vec::new(),
        used: Vec::new(),
        nic_in_mbps: 0,
        nic_out_mbps: 0,
        own_in_mbps: 0,
        own_out_mbps: 0,
        peers: Vec::new(),
        nvmes: Vec::new(),
        proofs: Vec::new(),
        leaving: false,
    }
}

/// A request that anybody could grant.
pub(crate) fn wish(name: &str) -> LeaseRequest {
    let holder = PrivateKey::generate().public().to_text();
    let whole = LeaseRequest::new(name.into(), "machine-of-a-client".into(), holder);
    LeaseRequest { memory: 1 << 30, share_milli: 250, wait_s: 30, ..whole }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    /// 0 where nothing came.
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    fn of(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }
}

/// Sends bytes, and reads until the other side has no more to say.
pub(crate) fn raw(address: SocketAddr, bytes: &[u8]) -> Answer {
    exchange(address, bytes, false)
}

/// The same, saying after the bytes that no more will come.
pub(crate) fn raw_and_no_more(address: SocketAddr, bytes: &[u8]) -> Answer {
    exchange(address, bytes, true)
}

fn exchange(address: SocketAddr, bytes: &[u8], no_more: bool) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    // The other side may refuse before all is said.
    let _ = stream.write_all(bytes);
    if no_more {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    loop {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => break,
            Ok(n) => answer.extend_from_slice(&part[..n]),
        }
        // A stream of events doesn't end.
        let head = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(0);
        if answer[..head].windows(17).any(|w| w == b"text/event-stream") {
            break;
        }
    }
    Answer::of(&answer)
}
