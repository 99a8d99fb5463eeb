//! A daemon that is fed garbage, truncated, oversized, random and mutated bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_protocol::frame::{HEADER_BYTES, Header, Kind, MAX_BODY};
use rgpu_protocol::hello::{self, HelloAnswer, PREFIX_BYTES, Prefix, Status};
use rgpu_test_runner::Test;
use rgpu_tests::process;
use rgpu_tests::product::Daemon;
use rgpu_tests::proxy::Proxy;

use crate::context::{forwarded, product, serves};

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("bad_bytes::a_client_of_another_version_is_told_so", other_version),
        Test::new("bad_bytes::garbage_instead_of_a_hello", garbage),
        Test::new("bad_bytes::truncated_and_oversized_hellos_and_frames", truncated_and_oversized),
        Test::new("bad_bytes::mutated_sessions", mutated),
    ]
}

/// xorshift64*
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n.max(1)
    }
}

/// Sends bytes, and whatever comes back until the connection ends or a little time has passed.
fn send(address: SocketAddr, bytes: &[u8], wait: Duration) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).context("The daemon does not accept")?;
    stream.set_read_timeout(Some(wait))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    // A daemon that has already had enough closes its end: that is an answer, too.
    let sent = stream.write_all(bytes).is_ok();
    if sent {
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
    let mut back = vec![];
    let mut buffer = [0; 4096];
    while let Ok(n) = stream.read(&mut buffer) {
        if n == 0 || back.len() > 1 << 20 {
            break;
        }
        back.extend_from_slice(&buffer[..n]);
    }
    Ok(back)
}

/// The daemon lives, serves, and has nothing left over.
fn unharmed(daemon: &mut Daemon) -> Result<()> {
    ensure!(daemon.is_running(), "the daemon has died:\n{}", daemon.log().join("\n"));
    daemon.wait_until_idle(Duration::from_secs(60))?;
    serves(daemon.address())?;
    let panics: Vec<_> = daemon.log().into_iter().filter(|l| l.contains("panicked")).collect();
    ensure!(panics.is_empty(), "something panicked: {}", panics.join("\n"));
    let pss = process::pss(daemon.pid())?;
    ensure!(pss < 40 << 20, "the daemon's memory has grown to {} MiB", pss >> 20);
    Ok(())
}

fn other_version() -> Result<()> {
    let mut daemon = Daemon::start(product()?)?;
    let mut bytes = hello::message(&hello::Hello::default());
    bytes[4..6].copy_from_slice(&77u16.to_le_bytes());
    let back = send(daemon.address(), &bytes, Duration::from_secs(60))?;
    ensure!(back.len() > PREFIX_BYTES, "no answer to the hello: {} bytes", back.len());
    let prefix = Prefix::parse(back[..PREFIX_BYTES].try_into()?, hello::MAX_HELLO_ANSWER)?;
    let answer = HelloAnswer::parse(prefix, &back[PREFIX_BYTES..])?;
    ensure!(Status::from_number(answer.status) == Status::Version, "the answer is {answer:?}");
    ensure!(answer.message.contains("77"), "the answer does not name the version: {}", answer.message);
    unharmed(&mut daemon)
}

fn garbage() -> Result<()> {
    let mut daemon = Daemon::start(product()?)?;
    let mut random = Random(42);
    let brief = Duration::from_millis(500);
    send(daemon.address(), b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", brief)?;
    send(daemon.address(), b"", brief)?;
    for i in 0..60 {
        let mut bytes: Vec<u8> = (0..random.below(3000)).map(|_| random.next() as u8).collect();
        if i % 2 == 0 && bytes.len() > 8 {
            // Past the first door.
            bytes[..4].copy_from_slice(&hello::MAGIC.to_le_bytes());
            bytes[4..6].copy_from_slice(&hello::MAJOR.to_le_bytes());
            bytes[6..8].copy_from_slice(&hello::MINOR.to_le_bytes());
        }
        send(daemon.address(), &bytes, brief)?;
    }
    unharmed(&mut daemon)
}

/// What a real client sends in a whole session.
fn recorded(daemon: &Daemon, name: &str) -> Result<Vec<u8>> {
    let proxy = Proxy::start(daemon.address())?;
    process::run(&mut forwarded(proxy.address(), name)?)?.success()?;
    let bytes = proxy.recorded();
    ensure!(bytes.len() > PREFIX_BYTES + HEADER_BYTES, "nothing was recorded");
    Ok(bytes)
}

/// Where the frames of a recorded session begin.
fn frames(session: &[u8]) -> Result<Vec<usize>> {
    let mut at = 0;
    while let Ok(prefix) = Prefix::parse(session[at..at + PREFIX_BYTES].try_into()?, hello::MAX_HELLO) {
        at += PREFIX_BYTES + prefix.length as usize;
    }
    let mut starts = vec![];
    while at + HEADER_BYTES <= session.len() {
        let header = Header::parse(session[at..at + HEADER_BYTES].try_into()?)?;
        starts.push(at);
        at += HEADER_BYTES + header.length as usize;
    }
    ensure!(!starts.is_empty(), "the recorded session has no frames");
    Ok(starts)
}

fn truncated_and_oversized() -> Result<()> {
    let mut daemon = Daemon::start(product()?)?;
    let session = recorded(&daemon, "memcpy2d3d")?;
    let starts = frames(&session)?;
    let first = starts[0];
    let brief = Duration::from_millis(700);
    for cut in
        [1, PREFIX_BYTES - 1, PREFIX_BYTES, PREFIX_BYTES + 5, first - 1, first + 3, first + HEADER_BYTES]
    {
        send(daemon.address(), &session[..cut], brief)?;
    }
    // A hello that claims to be longer than any is.
    let mut bytes = session[..first].to_vec();
    bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    send(daemon.address(), &bytes, brief)?;
    // Frames that claim too much, an unknown kind, call or flag, and bodies of a wrong length.
    let header = |length: u32, call: u16| {
        Header { length, kind: Kind::Call, flags: 0, call, sequence: 1 }.to_bytes().to_vec()
    };
    let mut bad =
        vec![header(MAX_BODY as u32, 11), header(0, 11), header(0, 0), header(0, 9999), header(8, 31)];
    let mut huge = header(0, 11);
    huge[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut kind = header(0, 31);
    kind[4] = 200;
    let mut flags = header(0, 31);
    flags[5] = 0xff;
    bad.extend([huge, kind, flags]);
    for frame in bad {
        let mut bytes = session[..first].to_vec();
        bytes.extend(frame);
        bytes.extend([0; 8]);
        send(daemon.address(), &bytes, brief)?;
    }
    unharmed(&mut daemon)
}

fn mutated() -> Result<()> {
    let mut daemon = Daemon::start(product()?)?;
    let mut random = Random(7);
    let sessions = [
        recorded(&daemon, "memcpy2d3d")?,
        recorded(&daemon, "streams_events_threads")?,
        recorded(&daemon, "errors")?,
        recorded(&daemon, "managed_memory")?,
    ];
    for round in 0..120 {
        let session = &sessions[round % sessions.len()];
        let starts = frames(session).unwrap_or_else(|_| vec![PREFIX_BYTES]);
        let mut bytes = session.clone();
        for _ in 0..1 + random.below(6) {
            // Mostly in headers and arguments, where it matters.
            let start = starts[random.below(starts.len())];
            let at = (start + random.below(64)).min(bytes.len() - 1);
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
                2 => bytes.truncate(at.max(PREFIX_BYTES)),
                _ => {
                    let n = random.below(16);
                    let piece: Vec<u8> = (0..n).map(|_| random.next() as u8).collect();
                    bytes.splice(at..at, piece);
                }
            }
            if bytes.len() <= PREFIX_BYTES {
                break;
            }
        }
        send(daemon.address(), &bytes, Duration::from_millis(400))?;
        ensure!(daemon.is_running(), "the daemon died in round {round}:\n{}", daemon.log().join("\n"));
    }
    unharmed(&mut daemon)
}
