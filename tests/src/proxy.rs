//! A proxy between client and daemon that watches the wire, and can lose it.
//!
//! It counts round trips for itself: each connection made, and each answer that passes from the server, to
//! a hello or to a call, is something that the client has waited for.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use rgpu_protocol::frame::{HEADER_BYTES, Header, Kind};
use rgpu_protocol::hello::{PREFIX_BYTES, Prefix};

/// How many bytes of what clients send are kept.
const RECORD: usize = 4 << 20;

#[derive(Debug, Default)]
struct ProxyState {
    connections: AtomicU64,
    hello_answers: AtomicU64,
    calls: AtomicU64,
    answers: AtomicU64,
    to_server: AtomicU64,
    to_client: AtomicU64,
    silent: AtomicBool,
    closing: AtomicBool,
    wrong: Mutex<Vec<String>>,
    recorded: Mutex<Vec<u8>>,
    streams: Mutex<Vec<TcpStream>>,
}

/// What passed a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Connections made.
    pub connections: u64,
    /// Connections, answers to hellos, and answers to calls.
    pub round_trips: u64,
    /// Calls that got no answer.
    pub posted_calls: u64,
    /// Bytes from clients.
    pub to_server: u64,
    /// Bytes to clients.
    pub to_client: u64,
}

/// A listening proxy; its connections end when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: Arc<ProxyState>,
}

impl Proxy {
    /// Listens on a free port, and forwards to `target`.
    pub fn start(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = Arc::new(ProxyState::default());
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.closing.load(SeqCst) {
                    break;
                }
                shared.connections.fetch_add(1, SeqCst);
                if shared.join(client, target).is_err() {
                    shared.note("the proxy could not reach the daemon".into());
                }
            }
        });
        Ok(Self { address, state })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What has passed so far. Fails where something passed that isn't the protocol.
    pub fn counts(&self) -> Result<Counts> {
        let s = &self.state;
        let wrong = s.wrong.lock().expect("no thread panics");
        ensure!(wrong.is_empty(), "The proxy saw: {}", wrong.join("; "));
        let (calls, answers) = (s.calls.load(SeqCst), s.answers.load(SeqCst));
        Ok(Counts {
            connections: s.connections.load(SeqCst),
            round_trips: s.connections.load(SeqCst) + s.hello_answers.load(SeqCst) + answers,
            posted_calls: calls.saturating_sub(answers),
            to_server: s.to_server.load(SeqCst),
            to_client: s.to_client.load(SeqCst),
        })
    }

    /// From now on nothing gets through, and nobody is told.
    pub fn fall_silent(&self) {
        self.state.silent.store(true, SeqCst);
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for stream in self.state.streams.lock().expect("no thread panics").drain(..) {
            let _ = stream.shutdown(Shutdown::Both); // may have ended already
        }
    }

    /// The first bytes that clients have sent.
    pub fn recorded(&self) -> Vec<u8> {
        self.state.recorded.lock().expect("no thread panics").clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.closing.store(true, SeqCst);
        self.cut();
        let _ = TcpStream::connect(self.address); // wakes the accepting thread
    }
}

impl ProxyState {
    fn note(&self, what: String) {
        self.wrong.lock().expect("no thread panics").push(what);
    }

    fn join(self: &Arc<Self>, client: TcpStream, target: SocketAddr) -> std::io::Result<()> {
        let server = TcpStream::connect(target)?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
            self.streams.lock().expect("no thread panics").push(stream.try_clone()?);
        }
        let (client2, server2) = (client.try_clone()?, server.try_clone()?);
        let (up, down) = (self.clone(), self.clone());
        std::thread::spawn(move || up.pump(client, server, true));
        std::thread::spawn(move || down.pump(server2, client2, false));
        Ok(())
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream, upward: bool) {
        let mut watcher = Watcher::default();
        let mut buffer = vec![0; 256 << 10];
        loop {
            let n = match from.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(n) => n,
            };
            while self.silent.load(SeqCst) && !self.closing.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(20));
            }
            let bytes = &buffer[..n];
            let count = if upward { &self.to_server } else { &self.to_client };
            count.fetch_add(n as u64, SeqCst);
            if upward {
                let mut recorded = self.recorded.lock().expect("no thread panics");
                let room = RECORD.saturating_sub(recorded.len());
                recorded.extend_from_slice(&bytes[..n.min(room)]);
            }
            watcher.watch(bytes, upward, self);
            if to.write_all(bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write); // passes the end on, where the other side still lives
    }
}

/// Follows one direction of one connection.
#[derive(Debug, Default)]
struct Watcher {
    /// Bytes of a header that hasn't arrived whole.
    partial: Vec<u8>,
    /// Bytes of a body that are still to come.
    skip: u64,
    /// Whether hellos are over.
    frames: bool,
    /// Nothing more can be made of what passes.
    lost: bool,
    /// Hellos seen, where a refused address range leads to another one.
    pending_hello: bool,
}

impl Watcher {
    fn watch(&mut self, mut bytes: &[u8], upward: bool, state: &ProxyState) {
        while !bytes.is_empty() && !self.lost {
            if self.skip > 0 {
                let n = self.skip.min(bytes.len() as u64);
                self.skip -= n;
                bytes = &bytes[n as usize..];
                continue;
            }
            // A hello is told from a frame by its magic: a frame that long would be refused.
            self.partial.push(bytes[0]);
            bytes = &bytes[1..];
            if self.partial.len() == PREFIX_BYTES && !self.frames {
                let prefix = self.partial[..].try_into().expect("as long as a prefix");
                if let Ok(prefix) = Prefix::parse(&prefix, usize::MAX) {
                    self.skip = prefix.length.into();
                    self.partial.clear();
                    self.pending_hello = true;
                    if !upward {
                        state.hello_answers.fetch_add(1, SeqCst);
                    }
                    continue;
                }
                if !self.pending_hello {
                    self.lost = true;
                    state.note("something that is not a hello".into());
                    continue;
                }
                self.frames = true;
            }
            if self.partial.len() == HEADER_BYTES {
                let header = self.partial[..].try_into().expect("as long as a header");
                self.partial.clear();
                match Header::parse(&header) {
                    Ok(header) => {
                        self.skip = header.length.into();
                        match (header.kind, upward) {
                            (Kind::Call, true) => state.calls.fetch_add(1, SeqCst),
                            (Kind::Answer, false) => state.answers.fetch_add(1, SeqCst),
                            (Kind::Notice, false) => 0,
                            _ => {
                                state.note(format!("{:?} in the wrong direction", header.kind));
                                0
                            }
                        };
                    }
                    Err(e) => {
                        self.lost = true;
                        state.note(format!("a bad header: {e}"));
                    }
                }
            }
        }
    }
}
