use super::*;
use std::sync::Arc;

fn both() -> (Arc<Shm>, Arc<Shm>) {
    let (a, b) = UnixStream::pair().unwrap();
    let (server, passed) = Shm::create(a.into(), "client".into()).unwrap();
    passed.send(server.descriptor(), &[]).unwrap();
    let (client, files) = Shm::join(&b, 100, "server".into()).unwrap();
    assert!(files.is_empty());
    (Arc::new(server), Arc::new(client))
}

fn read_exact(shm: &Shm, into: &mut [u8]) -> io::Result<()> {
    let mut at = 0;
    while at < into.len() {
        match shm.recv(&mut into[at..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => at += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => drop(shm.wait(Ready::READ, None, None)?),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn write_all(shm: &Shm, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match shm.send(&[io::IoSlice::new(bytes)]) {
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => drop(shm.wait(Ready::WRITE, None, None)?),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[test]
fn messages_go_back_and_forth() {
    let (server, client) = both();
    let echo = std::thread::spawn(move || {
        let mut bytes = [0; 24];
        while read_exact(&server, &mut bytes).is_ok() {
            write_all(&server, &bytes).unwrap();
        }
    });
    for round in 0..2000u64 {
        // Now and then long enough for the other side to fall asleep.
        if round % 500 == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&round.to_le_bytes());
        write_all(&client, &bytes).unwrap();
        let mut back = [0; 24];
        read_exact(&client, &mut back).unwrap();
        assert_eq!(back, bytes);
    }
    client.shutdown();
    echo.join().unwrap();
}

#[test]
fn much_more_than_the_ring_holds_comes_through() {
    let (server, client) = both();
    let sent: Vec<u8> = (0..5 * CAPACITY + 12345).map(|i| (i * 7 % 253) as u8).collect();
    let copy = sent.clone();
    let writer = std::thread::spawn(move || write_all(&client, &copy).map(|()| client));
    let mut got = vec![0; sent.len()];
    // The reader starts late, so that the writer has fallen asleep.
    std::thread::sleep(Duration::from_millis(50));
    read_exact(&server, &mut got).unwrap();
    assert!(got == sent);
    writer.join().unwrap().unwrap();
}

#[test]
fn a_peers_end_is_noticed_by_whoever_waits_and_what_it_wrote_is_read_first() {
    let (server, client) = both();
    write_all(&client, b"last words").unwrap();
    let waiting = server.clone();
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 10];
        read_exact(&waiting, &mut bytes).unwrap();
        assert_eq!(&bytes, b"last words");
        read_exact(&waiting, &mut bytes).unwrap_err().kind()
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(!server.wait_for_hangup(Some(Duration::ZERO)).unwrap());
    drop(client);
    assert_eq!(reader.join().unwrap(), io::ErrorKind::UnexpectedEof);
    assert!(server.wait_for_hangup(None).unwrap());
    assert!(server.send(&[io::IoSlice::new(b"x")]).is_err());
}

/// Ends the connection as a peer does that is killed: nobody is rung.
fn kill(shm: &Shm) {
    // SAFETY: plain system call.
    unsafe { libc::shutdown(shm.descriptor(), libc::SHUT_RDWR) };
}

#[test]
fn a_client_that_sleeps_notices_that_the_server_was_killed() {
    let (server, client) = both();
    let reader = std::thread::spawn(move || read_exact(&client, &mut [0]).unwrap_err().kind());
    std::thread::sleep(Duration::from_millis(50));
    kill(&server);
    assert_eq!(reader.join().unwrap(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_servers_thread_that_waits_for_the_end_wakes_the_one_that_sleeps() {
    let (server, client) = both();
    let sleeper = server.clone();
    let reader = std::thread::spawn(move || read_exact(&sleeper, &mut [0]).unwrap_err().kind());
    std::thread::sleep(Duration::from_millis(50));
    kill(&client);
    assert!(server.wait_for_hangup(None).unwrap());
    assert_eq!(reader.join().unwrap(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn reading_and_writing_threads_of_one_side_are_both_woken() {
    let (server, client) = both();
    let (reader, writer) = (client.clone(), client.clone());
    let many = 3 * CAPACITY;
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; many];
        read_exact(&reader, &mut got).map(|()| got)
    });
    let writer = std::thread::spawn(move || write_all(&writer, &vec![5; many]));
    // Both are asleep: the one because nothing has come, the other because there is no room.
    std::thread::sleep(Duration::from_millis(50));
    let mut got = vec![0; many];
    read_exact(&server, &mut got).unwrap();
    assert!(got.iter().all(|b| *b == 5));
    writer.join().unwrap().unwrap();
    write_all(&server, &vec![7; many]).unwrap();
    assert!(reader.join().unwrap().unwrap().iter().all(|b| *b == 7));
}

#[test]
fn a_writer_that_waits_for_room_notices_the_end() {
    let (server, client) = both();
    let writer = std::thread::spawn(move || write_all(&client, &vec![0; 2 * CAPACITY]).unwrap_err().kind());
    std::thread::sleep(Duration::from_millis(50));
    drop(server);
    assert_eq!(writer.join().unwrap(), io::ErrorKind::BrokenPipe);
}

#[test]
fn a_watching_thread_is_woken_by_bytes_and_by_its_own_descriptor() {
    let (server, client) = both();
    let (wake, waker) = UnixStream::pair().unwrap();
    let watcher = {
        let client = client.clone();
        std::thread::spawn(move || client.wait(Ready::READ, Some(wake.as_raw_fd()), None).map(|r| (r, wake)))
    };
    std::thread::sleep(Duration::from_millis(50));
    write_all(&server, b"x").unwrap();
    let (ready, wake) = watcher.join().unwrap().unwrap();
    assert!(ready.read && !ready.wake);
    read_exact(&client, &mut [0]).unwrap();
    assert_eq!(
        client.wait(Ready::READ, Some(wake.as_raw_fd()), Some(Duration::from_millis(1))).unwrap(),
        Ready::default()
    );
    io::Write::write_all(&mut &waker, b"x").unwrap();
    assert!(client.wait(Ready::READ, Some(wake.as_raw_fd()), None).unwrap().wake);
}

#[test]
fn a_hostile_peer_is_an_error() {
    let (server, client) = both();
    // SAFETY: the client's own mapping; the first word is the index of what it has written.
    unsafe { client._memory.base().cast::<u64>().write_volatile(u64::MAX / 3) };
    assert_eq!(server.recv(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert!(server.wait(Ready::READ, None, None).unwrap().read);
    // SAFETY: likewise, of what it has read.
    unsafe { client._memory.base().add(INDEX_BYTES + 128).cast::<u64>().write_volatile(77) };
    let much = vec![0; CAPACITY + 1];
    assert_eq!(server.send(&[io::IoSlice::new(&much)]).unwrap_err().kind(), io::ErrorKind::InvalidData);
}
