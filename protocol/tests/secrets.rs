//! Secrets of an encrypted session are not left in freed memory.
//!
//! The allocator of this program keeps what one thread frees while it is told to, so that it can be looked through afterwards.

use rgpu_protocol::transport::tls::{Handed, Identity, Trust};
use rgpu_protocol::transport::{Ready, Tcp, Tls, Transport};
use ring::hkdf::{HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// More than a test frees.
const MOST: usize = 1 << 16;
/// Only tells hanging from working.
const LIMIT: Duration = Duration::from_secs(30);

thread_local! {
    static KEEPS: Cell<bool> = const { Cell::new(false) };
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static KEPT: RefCell<[(usize, usize); MOST]> = const { RefCell::new([(0, 0); MOST]) };
}

struct Keeping;

// SAFETY: it is the system's allocator, which gets some of its memory back later or never.
unsafe impl GlobalAlloc for Keeping {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        match KEEPS.try_with(Cell::get) {
            Ok(true) => {
                let at = COUNT.get();
                assert!(at < MOST, "more is freed than expected");
                KEPT.with_borrow_mut(|kept| kept[at] = (address as usize, layout.size()));
                COUNT.set(at + 1);
            }
            // SAFETY: passed on.
            _ => unsafe { System.dealloc(address, layout) },
        }
    }
    // What grows goes through the two above: `realloc` of a trait's default does.
}

#[global_allocator]
static ALLOCATOR: Keeping = Keeping;

/// What was freed.
struct Freed;

impl Freed {
    /// From now on.
    fn begin() -> Self {
        COUNT.set(0);
        KEEPS.set(true);
        Self
    }

    /// How many pieces of freed memory hold these bytes.
    fn holding(&self, bytes: &[u8]) -> usize {
        KEEPS.set(false);
        let count = COUNT.get();
        let found = KEPT.with_borrow(|kept| {
            let held = kept[..count].iter().filter(|(address, size)| {
                // SAFETY: the program has freed it, the system has not got it, and nobody else knows of it. Not all of it has
                // been written to, but it is memory.
                let piece = unsafe { std::slice::from_raw_parts(*address as *const u8, *size) };
                piece.windows(bytes.len()).any(|window| window == bytes)
            });
            held.count()
        });
        KEEPS.set(true);
        found
    }
}

impl Drop for Freed {
    fn drop(&mut self) {
        KEEPS.set(false);
    }
}

/// What is searched for must not itself be found: it lies on no heap.
#[derive(Clone, Copy)]
struct Needle([u8; 48], usize);

impl Needle {
    fn new(bytes: &[u8]) -> Self {
        let mut needle = Self([0; 48], bytes.len());
        needle.0[..bytes.len()].copy_from_slice(bytes);
        needle
    }

    fn bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }

    /// The key or secret that follows from a secret.
    fn derive(&self, label: &str, length: usize) -> Self {
        struct Length(usize);
        impl KeyType for Length {
            fn len(&self) -> usize {
                self.0
            }
        }
        let algorithm = if self.1 == 48 { HKDF_SHA384 } else { HKDF_SHA256 };
        let (number, name) = ((length as u16).to_be_bytes(), [b"tls13 ", label.as_bytes()].concat());
        let info = [&number[..], &[name.len() as u8], &name, &[0]];
        let mut needle = Self([0; 48], length);
        let prk = Prk::new_less_safe(algorithm, self.bytes());
        prk.expand(&info, Length(length)).unwrap().fill(&mut needle.0[..length]).unwrap();
        needle
    }
}

fn receive(tls: &Tls, length: usize) -> Vec<u8> {
    let (mut bytes, mut at, end) = (vec![0; length], 0, Instant::now() + LIMIT);
    while at < length {
        match tls.recv(&mut bytes[at..]) {
            Ok(n) => at += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                assert!(Instant::now() < end, "nothing comes");
                tls.wait(Ready::READ, None, Some(LIMIT)).unwrap();
            }
            Err(e) => panic!("{e}"),
        }
    }
    bytes
}

#[test]
fn a_session_on_its_way_to_another_process_leaves_no_secrets_behind() {
    let made = rcgen::generate_simple_self_signed(vec!["rgpu".into()]).unwrap();
    let identity =
        Identity::from_pem(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes()).unwrap();
    let trust = Trust::Fingerprints(vec![identity.fingerprint()]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (up, go) = std::sync::mpsc::channel();
    let client = std::thread::spawn(move || {
        let tcp = Tcp::adopt(TcpStream::connect(address).unwrap().into(), "server".into()).unwrap();
        let tls = Tls::connect(tcp, "server:1", &trust, Instant::now() + LIMIT).unwrap();
        assert_eq!(tls.send(&[IoSlice::new(b"hello")]).unwrap(), 5);
        go.recv().unwrap();
        assert_eq!(receive(&tls, 7), b"welcome");
    });
    let tcp = Tcp::adopt(listener.accept().unwrap().0.into(), "client".into()).unwrap();

    let first = Tls::accept(tcp, &identity, Instant::now() + LIMIT).unwrap();
    // What has been decrypted and not been taken is handed over, too.
    assert_eq!(receive(&first, 2), b"he");
    let freed = Freed::begin();
    let handed = first.hand_over().unwrap();
    let bytes = handed.to_bytes();
    let parsed = Handed::parse(&bytes).unwrap();
    // After the cipher suite: a secret and a number for either direction.
    let length = bytes[4] as usize;
    let secrets = [8, 8 + length + 8 + 4].map(|at| Needle::new(&bytes[at..at + length]));
    for secret in secrets {
        assert_eq!(freed.holding(secret.bytes()), 0, "a secret");
    }
    // rustls does not overwrite its own ciphers' keys. So these are searched for in what is freed from now on.
    drop(freed);
    let freed = Freed::begin();
    drop((handed, bytes));
    let second = Tls::resume(first.into_tcp(), parsed).unwrap();
    assert_eq!(receive(&second, 3), b"llo");
    assert_eq!(second.send(&[IoSlice::new(b"welcome")]).unwrap(), 7);
    drop(second);

    up.send(()).unwrap();
    client.join().unwrap();
    let longest = if length == 48 { 32 } else { 16 };
    for secret in secrets {
        assert_eq!(freed.holding(secret.bytes()), 0, "a secret");
        assert_eq!(freed.holding(secret.derive("key", longest).bytes()), 0, "a key");
        assert_eq!(freed.holding(secret.derive("iv", 12).bytes()), 0, "an IV");
    }
    // The search itself finds what is there.
    let left = b"what was not overwritten".repeat(3);
    drop(left);
    assert_eq!(freed.holding(b"not overwritten"), 1);
}
