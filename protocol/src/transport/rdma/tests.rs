//! Without an RDMA device there is little to test: `cargo xtask test --rdma` runs the ignored ones in a virtual machine
//! that has one, at this address.

use super::*;
use std::net::TcpListener;
use std::sync::Arc;

const ADDRESS: &str = "10.77.0.1:0";

#[test]
fn infos_come_back() {
    let bytes: Vec<u8> = (0..Info::BYTES as u8).map(|b| if b == 11 { 1 } else { b }).collect();
    assert_eq!(Info::parse(&bytes).unwrap().to_bytes()[..], bytes);
    assert_eq!(Info::parse(&bytes[1..]), None);
}

fn unconnected() -> (Rdma, Rdma) {
    let listener = TcpListener::bind(ADDRESS).unwrap();
    let client = Tcp::connect(&listener.local_addr().unwrap().to_string(), Duration::from_secs(5)).unwrap();
    let server = Tcp::adopt(listener.accept().unwrap().0.into(), "client".into()).unwrap();
    (Rdma::open(&server, 0).unwrap(), Rdma::open(&client, 300).unwrap())
}

fn both() -> (Arc<Rdma>, Arc<Rdma>) {
    let (server, client) = unconnected();
    server.connect(client.info()).unwrap();
    client.connect(server.info()).unwrap();
    client.probe().unwrap();
    (Arc::new(server), Arc::new(client))
}

fn read_exact(rdma: &Rdma, into: &mut [u8]) -> io::Result<()> {
    let mut at = 0;
    while at < into.len() {
        match rdma.recv(&mut into[at..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => at += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                rdma.wait(Ready::READ, None, Some(Duration::from_secs(20)))?;
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn write_all(rdma: &Rdma, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rdma.send(&[io::IoSlice::new(bytes)]) {
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                rdma.wait(Ready::WRITE, None, Some(Duration::from_secs(20)))?;
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs an RDMA device"]
fn messages_go_back_and_forth() {
    let (server, client) = both();
    let echo = std::thread::spawn(move || {
        let mut bytes = [0; 40];
        while read_exact(&server, &mut bytes).is_ok() {
            write_all(&server, &bytes).unwrap();
        }
    });
    for round in 0..1500u64 {
        let mut bytes = [0; 40];
        bytes[..8].copy_from_slice(&round.to_le_bytes());
        write_all(&client, &bytes).unwrap();
        let mut back = [0; 40];
        read_exact(&client, &mut back).unwrap();
        assert_eq!(back, bytes);
    }
    drop(client);
    echo.join().unwrap();
}

/// Sends more than the rings hold both ways, odd pieces and all.
fn exchange(server: Arc<Rdma>, client: Arc<Rdma>, announced: bool) {
    let sent: Vec<u8> = (0..5 * RING + 12345).map(|i| (i * 7 % 253) as u8).collect();
    let sent = Arc::new(sent);
    let threads: Vec<_> = [(server.clone(), client.clone()), (client, server)]
        .into_iter()
        .map(|(from, to)| {
            let sent = sent.clone();
            let copy = sent.clone();
            let writer = std::thread::spawn(move || {
                if announced {
                    // SAFETY: it lives until it is retired.
                    unsafe { from.announce(copy.as_ptr() as u64, copy.len() as u64) };
                }
                write_all(&from, b"ahead").unwrap();
                write_all(&from, &copy).unwrap();
                from.retire(copy.as_ptr() as u64);
            });
            let reader = std::thread::spawn(move || {
                let mut got = vec![0; 5 + sent.len()];
                read_exact(&to, &mut got).unwrap();
                assert!(got[..5] == *b"ahead" && got[5..] == sent[..]);
            });
            [writer, reader]
        })
        .collect();
    threads.into_iter().flatten().for_each(|t| t.join().unwrap());
}

#[test]
#[ignore = "needs an RDMA device"]
fn much_more_than_the_rings_hold_comes_through() {
    let (server, client) = both();
    exchange(server, client, false);
}

#[test]
#[ignore = "needs an RDMA device"]
fn announced_memory_is_sent_from_where_it_is() {
    let (server, client) = both();
    exchange(server.clone(), client.clone(), true);
    assert!(server.awaited.load(SeqCst) > 0 && client.awaited.load(SeqCst) > 0);
}

#[test]
#[ignore = "needs an RDMA device"]
fn where_no_memory_can_be_registered_it_is_copied() {
    // Enough for the rings of two ends.
    let limit = libc::rlimit { rlim_cur: 6 << 20, rlim_max: libc::RLIM_INFINITY };
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls on valid places. The capability to lock any amount is lost to this thread and those that
    // it starts. (The device must be opened afterwards.)
    unsafe {
        libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut before);
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit), 0);
        let header = [0x2008_0522u32, 0];
        let mut sets = [0u32; 6];
        assert_eq!(libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()), 0);
        const IPC_LOCK: u32 = 1 << 14;
        sets[0] &= !IPC_LOCK;
        assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()), 0);
    }
    let (server, client) = both();
    exchange(server.clone(), client.clone(), true);
    assert_eq!(server.awaited.load(SeqCst) + client.awaited.load(SeqCst), 0, "it was registered after all");
    // A new connection finds no room for its rings, and says so.
    let listener = TcpListener::bind(ADDRESS).unwrap();
    let tcp = Tcp::connect(&listener.local_addr().unwrap().to_string(), Duration::from_secs(5)).unwrap();
    let error = Rdma::open(&tcp, 0).err().unwrap().to_string();
    assert!(error.contains("registered"), "{error}");
    // SAFETY: as above.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &before) };
}

#[test]
#[ignore = "needs an RDMA device"]
fn a_peers_end_is_noticed_by_whoever_waits() {
    let (server, client) = both();
    write_all(&client, b"last words").unwrap();
    let waiting = server.clone();
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 10];
        read_exact(&waiting, &mut bytes).unwrap();
        assert_eq!(&bytes, b"last words");
        read_exact(&waiting, &mut bytes).is_err()
    });
    std::thread::sleep(Duration::from_millis(300));
    drop(client);
    assert!(reader.join().unwrap());
    assert!(server.wait_for_hangup(Some(Duration::from_secs(5))).unwrap());
    assert!(write_all(&server, &vec![0; 2 * RING]).is_err());
}

#[test]
#[ignore = "needs an RDMA device"]
fn a_failed_write_is_an_error_with_a_name() {
    let (server, client) = unconnected();
    server.connect(client.info()).unwrap();
    let mut wrong = server.info();
    wrong.rkey ^= 0x55;
    client.connect(wrong).unwrap();
    let error = match client.probe() {
        Ok(()) => write_all(&client, &[0; 100]).and_then(|()| read_exact(&client, &mut [0])).unwrap_err(),
        Err(e) => e,
    };
    let text = client.failure.get().cloned().unwrap_or_default();
    assert!(text.contains("access") || text.contains("invalid"), "{error} ({text})");
    let error = client.send(&[io::IoSlice::new(b"x")]).unwrap_err();
    assert!(error.to_string().contains("RDMA"), "{error}");
}

#[test]
#[ignore = "needs an RDMA device"]
fn a_peer_that_is_not_there_is_an_error() {
    let (server, client) = unconnected();
    client.connect(server.info()).unwrap();
    drop(server);
    assert!(client.probe().is_err());
}
