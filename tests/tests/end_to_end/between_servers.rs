//! Copies between the servers of one program, which don't pass through it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_protocol::hello::{self, FEATURE_LINK, Hello, LinkAnswer, PREFIX_BYTES, Status};
use rgpu_protocol::wire::from_bytes;
use rgpu_test_runner::Test;
use rgpu_tests::cluster::Setup;
use rgpu_tests::process;
use rgpu_tests::product::{Daemon, Stats, temporary};

use crate::cluster::on_hosts;
use crate::context::{Followed, plain, product, serves};

/// How soon a program must learn that one of its servers is lost.
const SOON: Duration = Duration::from_secs(60);
/// Whom these servers connect to: others on this machine.
const HERE: &str = "127.0.0.1";
/// Whom nobody finds anything at: an address for documentation.
const NOWHERE: &str = "203.0.113.1";

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("between_servers::copies_are_right_and_don't_pass_through_the_program", || {
            straight(&[HERE, HERE], "tcp")
        }),
        Test::new("between_servers::three_in_a_ring", || straight(&[HERE, HERE, HERE], "auto")),
        Test::new("between_servers::through_the_program_where_servers_don't_connect", relayed),
        Test::new("between_servers::one_way_straight_and_the_other_through_the_program", one_way),
        Test::new("between_servers::through_the_program_where_a_server_is_not_reached", unreached),
        Test::new("between_servers::a_silent_server_holds_no_copy_up", silent),
        Test::new("between_servers::a_server_lost_in_the_middle_is_named", lost),
        Test::new("between_servers::a_program_killed_in_the_middle_leaves_nothing", killed),
        Test::new("between_servers::who_has_no_key_is_refused", no_key),
        Test::new("between_servers::hosts_of_a_cluster_know_where_to_connect", of_a_cluster),
    ]
}

fn servers(peers: &[&str]) -> Result<Vec<Daemon>> {
    let start = |peers: &&str| {
        Daemon::start_with(product()?, &["--device", "software", "--memory", "256M", "--peers", peers])
    };
    peers.iter().map(start).collect()
}

fn with(daemons: &[Daemon], transport: &str, more: &[&str]) -> Result<Command> {
    let addresses: Vec<_> = daemons.iter().map(Daemon::address).collect();
    at(&addresses, transport, more)
}

fn at(addresses: &[SocketAddr], transport: &str, more: &[&str]) -> Result<Command> {
    let addresses: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
    let mut command = rgpu_tests::product::clean(&product()?.rgpu());
    command.args(["run", "--server", &addresses.join(","), "--transport", transport]).args(more);
    command.arg("--").arg(plain("server_copies")?);
    // However slow the machine is, the first copy waits until the servers are connected.
    command.env("RGPU_PEER_PATIENCE", "600");
    Ok(command)
}

/// What a program that does all kinds of copies has counted.
pub(crate) struct Counted {
    /// Bytes that it has copied from server to server.
    pub copied: u64,
    /// Those of them that went straight.
    pub straight: u64,
    /// Those that passed through it.
    pub relayed: u64,
    own: u64,
    /// Of its sessions, so many were encrypted.
    pub encrypted: u64,
}

/// Runs a command that ends in the program and `check`, with statistics in that file.
pub(crate) fn counted(command: &mut Command, file: &std::path::Path) -> Result<Counted> {
    let finished = process::run(command)?.success()?;
    let said = finished.stdout.split("server_copies: ok copied ").nth(1);
    let copied = said.and_then(|rest| rest.split(' ').next()).and_then(|number| number.parse().ok());
    let stats = Stats::take(file)?;
    Ok(Counted {
        copied: copied.with_context(|| format!("it says nothing\n{}", finished.output()))?,
        straight: stats.number("bytes_between_servers")?,
        relayed: stats.number("bytes_relayed")?,
        own: stats.number("bytes_sent")? + stats.number("bytes_received")?,
        encrypted: stats.number("encrypted_sessions")?,
    })
}

fn check(daemons: &[Daemon], transport: &str) -> Result<Counted> {
    let addresses: Vec<_> = daemons.iter().map(Daemon::address).collect();
    check_at(&addresses, daemons, transport)
}

fn check_at(addresses: &[SocketAddr], daemons: &[Daemon], transport: &str) -> Result<Counted> {
    let file = temporary("between-servers");
    let stats = format!("--stats=json:{}", file.display());
    let counted = counted(at(addresses, transport, &[&stats])?.arg("check"), &file)?;
    for daemon in daemons {
        daemon.wait_until_idle(SOON)?;
    }
    Ok(counted)
}

/// All copies went from server to server.
fn all_straight(counted: &Counted) -> Result<()> {
    let Counted { copied, straight, relayed, own, .. } = *counted;
    ensure!(
        straight == copied && relayed == 0,
        "of {copied} bytes {straight} went straight, {relayed} did not"
    );
    ensure!(own < copied / 100, "{own} bytes passed through the program for {copied} that were copied");
    Ok(())
}

fn straight(peers: &[&str], transport: &str) -> Result<()> {
    all_straight(&check(&servers(peers)?, transport)?)
}

fn relayed() -> Result<()> {
    let Counted { copied, straight, relayed, .. } = check(&servers(&[NOWHERE, NOWHERE])?, "tcp")?;
    ensure!(
        straight == 0 && relayed == copied,
        "of {copied} bytes {straight} went straight, {relayed} did not"
    );
    Ok(())
}

fn one_way() -> Result<()> {
    let Counted { copied, straight, relayed, .. } = check(&servers(&[HERE, NOWHERE])?, "tcp")?;
    ensure!(straight + relayed == copied, "of {copied} bytes {straight} went straight, {relayed} did not");
    ensure!(straight > 0 && relayed > 0, "{straight} bytes went straight, {relayed} did not");
    Ok(())
}

/// An address that leads to a server, once.
fn once(server: SocketAddr) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || -> std::io::Result<()> {
        let (mut client, _) = listener.accept()?;
        drop(listener);
        let mut server = TcpStream::connect(server)?;
        let (mut back, mut to) = (server.try_clone()?, client.try_clone()?);
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut back, &mut to); // until either end goes
            let _ = to.shutdown(Shutdown::Both);
        });
        let _ = std::io::copy(&mut client, &mut server); // likewise
        server.shutdown(Shutdown::Both)
    });
    Ok(address)
}

fn unreached() -> Result<()> {
    let daemons = servers(&[HERE, HERE])?;
    // The program is the first that comes to the second server, and the last.
    let addresses = [daemons[0].address(), once(daemons[1].address())?];
    let Counted { copied, straight, relayed, .. } = check_at(&addresses, &daemons, "tcp")?;
    ensure!(straight + relayed == copied, "of {copied} bytes {straight} went straight, {relayed} did not");
    ensure!(straight > 0 && relayed > 0, "{straight} bytes went straight, {relayed} did not");
    Ok(())
}

/// An address that leads to a server, once; later whoever comes is let in, and never hears anything. Says how many those were.
fn once_then_silent(server: SocketAddr) -> Result<(SocketAddr, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (address, ignored) = (listener.local_addr()?, Arc::new(AtomicUsize::new(0)));
    let count = ignored.clone();
    std::thread::spawn(move || -> std::io::Result<()> {
        let (mut client, _) = listener.accept()?;
        let mut server = TcpStream::connect(server)?;
        let (mut back, mut to) = (server.try_clone()?, client.try_clone()?);
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut back, &mut to); // until either end goes
            let _ = to.shutdown(Shutdown::Both);
        });
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut client, &mut server); // likewise
            server.shutdown(Shutdown::Both)
        });
        let mut kept = Vec::new();
        loop {
            kept.push(listener.accept()?);
            count.fetch_add(1, SeqCst);
        }
    });
    Ok((address, ignored))
}

fn silent() -> Result<()> {
    let daemons = servers(&[HERE, HERE])?;
    let (address, ignored) = once_then_silent(daemons[1].address())?;
    let file = temporary("between-servers");
    let stats = format!("--stats=json:{}", file.display());
    let mut command = at(&[daemons[0].address(), address], "tcp", &[&stats])?;
    // It waits for no link at all: what is not there is not used.
    let counted = counted(command.env("RGPU_PEER_PATIENCE", "0").arg("check"), &file)?;
    let Counted { copied, straight, relayed, .. } = counted;
    ensure!(straight + relayed == copied, "of {copied} bytes {straight} went straight, {relayed} did not");
    ensure!(relayed > 0, "all of {straight} bytes went straight to a server that says nothing");
    // It was tried, once.
    process::wait_until("the silent server is asked", SOON, || ignored.load(SeqCst) > 0)?;
    for daemon in &daemons {
        daemon.wait_until_idle(SOON)?;
    }
    ensure!(ignored.load(SeqCst) == 1, "it was tried {} times", ignored.load(SeqCst));
    Ok(())
}

fn lost() -> Result<()> {
    let mut daemons = servers(&[HERE, HERE])?;
    let mut command = with(&daemons, "tcp", &[])?;
    command.arg("loop");
    let program = Followed::start(command, "copying")?;
    let address = daemons[1].address().to_string();
    daemons[1].kill();
    let finished = program.finish_within(SOON)?.expect_code(3)?;
    ensure!(finished.stderr.contains(&address), "nothing names {address}\n{}", finished.output());
    daemons[0].wait_until_idle(SOON)?;
    Ok(())
}

fn killed() -> Result<()> {
    let daemons = servers(&[HERE, HERE])?;
    let mut command = with(&daemons, "tcp", &[])?;
    command.arg("loop");
    let program = Followed::start(command, "copying")?;
    crate::context::signal(program.program_pid(), libc::SIGKILL);
    for daemon in &daemons {
        daemon.wait_until_idle(SOON)?;
    }
    program.finish_within(SOON)?;
    serves(daemons[0].address())?;
    Ok(())
}

/// What a server answers to whoever says that it is another server, with this to show.
fn knock(address: SocketAddr, credential: Vec<u8>) -> Result<LinkAnswer> {
    let hello = Hello { features: FEATURE_LINK, credential, ..Hello::default() };
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(SOON))?;
    stream.write_all(&hello::message(&hello))?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    ensure!(answer.len() > PREFIX_BYTES, "no answer but {answer:?}");
    Ok(from_bytes(&answer[PREFIX_BYTES..])?)
}

fn no_key() -> Result<()> {
    let daemons = servers(&[HERE, HERE])?;
    let mut command = with(&daemons, "tcp", &[])?;
    command.arg("loop");
    let program = Followed::start(command, "copying")?;
    let address = daemons[0].address();
    // With and without a session that could be meant: always the same.
    let shown = [vec![], b"0".to_vec(), vec![b'0'; 144], vec![b'f'; 144], vec![0xff; 4000]];
    let answers = shown.into_iter().map(|shown| knock(address, shown)).collect::<Result<Vec<_>>>()?;
    for answer in &answers {
        ensure!(answer.status == Status::Credential as u32 && answer.proof == [0; 32], "{answer:?}");
        ensure!(answer == &answers[0], "{answer:?} instead of {:?}", answers[0]);
    }
    ensure!(program.text().lines().count() == 1, "the program was disturbed: {}", program.text());
    crate::context::signal(program.program_pid(), libc::SIGKILL);
    program.finish_within(SOON)?;
    serves(address)?;
    Ok(())
}

fn of_a_cluster() -> Result<()> {
    let cluster = on_hosts(&Setup::servers(2))?;
    let file = temporary("between-hosts");
    let stats = format!("--stats=json:{}", file.display());
    let options = ["--gpus", "2", "--gpu-memory", "256MiB", &stats];
    let mut command = cluster.run("ann", &options)?;
    command.arg("--").arg(plain("server_copies")?).arg("check").env("RGPU_PEER_PATIENCE", "600");
    let counted = counted(&mut command, &file)?;
    all_straight(&counted)?;
    // The servers have counted for the lease what they have received.
    cluster.wait_idle(SOON)?;
    let leases = cluster.leases(true)?;
    let came: u64 = leases.iter().flat_map(|lease| &lease.usage).map(|usage| usage.bytes_in).sum();
    ensure!(
        came >= counted.copied,
        "{} bytes were copied; the lease counts {came} that came",
        counted.copied
    );
    Ok(())
}
