//! A proxy that watches the wire, and disturbs it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

#[derive(Default)]
struct ProxyState {
    asked: AtomicU64,
    reached: AtomicU64,
    stalled: AtomicBool,
    garbled: AtomicBool,
}

/// Forwards one connection.
pub(crate) struct Proxy {
    pub address: String,
    state: Arc<ProxyState>,
    ends: Arc<std::sync::Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    pub(crate) fn new(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(ProxyState::default());
        let ends = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (shared, kept, server) = (state.clone(), ends.clone(), server.to_owned());
        std::thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect(server).unwrap();
            kept.lock().unwrap().extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
            let (c, s, up) = (client.try_clone().unwrap(), server.try_clone().unwrap(), shared.clone());
            std::thread::spawn(move || forward(c, s, &up, false));
            forward(server, client, &shared, true);
        });
        Self { address, state, ends }
    }

    /// How many answers have come by.
    pub(crate) fn asked(&self) -> u64 {
        self.state.asked.load(SeqCst)
    }

    /// How many notices have come by that say how far a stream has got.
    pub(crate) fn reached(&self) -> u64 {
        self.state.reached.load(SeqCst)
    }

    /// Drops everything from now on, as a dead network would.
    pub(crate) fn stall(&self) {
        self.state.stalled.store(true, SeqCst);
    }

    /// Replaces the next bytes from the server by nonsense.
    pub(crate) fn garble(&self) {
        self.state.garbled.store(true, SeqCst);
    }

    /// Closes both connections.
    pub(crate) fn cut(&self) {
        for end in &*self.ends.lock().unwrap() {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, state: &ProxyState, to_client: bool) {
    // Follows the frames, to count answers: first the hello, then header after header.
    let (mut skip, mut header, mut greeted) = (0usize, Vec::new(), false);
    let mut buffer = [0; 1 << 16];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        let mut rest = &buffer[..n];
        while to_client && !rest.is_empty() {
            let skipped = skip.min(rest.len());
            skip -= skipped;
            rest = &rest[skipped..];
            let want = if greeted { 16 } else { 12 } - header.len();
            let taken = if skip > 0 { 0 } else { want.min(rest.len()) };
            header.extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
            if !greeted && header.len() == 12 {
                skip = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
                (greeted, header) = (true, Vec::new());
            } else if header.len() == 16 {
                skip = u32::from_le_bytes(header[..4].try_into().unwrap()) as usize;
                state.asked.fetch_add(u64::from(header[4] == 2), SeqCst);
                state.reached.fetch_add(u64::from(header[4..8] == [3, 0, 11, 0]), SeqCst);
                header.clear();
            }
        }
        if state.stalled.load(SeqCst) {
            continue;
        }
        if to_client && state.garbled.load(SeqCst) {
            buffer[..n].fill(0xee);
        }
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
