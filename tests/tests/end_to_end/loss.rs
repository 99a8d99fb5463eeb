//! Servers that are absent or lost, and clients that disappear.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_protocol::hello::{self, HelloAnswer, PREFIX_BYTES, Status};
use rgpu_tests::process::{self, Running};
use rgpu_tests::product::Daemon;
use rgpu_tests::proxy::Proxy;
use rgpu_tests::runner::Test;

use crate::context::{Followed, forwarded, product, serves, signal};

/// How soon a program must learn that its server is lost. The protocol gives up after 8 s of silence.
const SOON: Duration = Duration::from_secs(25);

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("loss::no_server_is_an_error_that_names_the_address", no_server),
        Test::new("loss::a_server_that_never_answers_is_an_error", mute_server),
        Test::new("loss::a_server_of_another_protocol_version_is_an_error", other_version),
        Test::new("loss::something_that_is_no_server_is_an_error", no_rgpu_server),
        Test::new("loss::server_killed_while_a_kernel_runs", || killed("endless")),
        Test::new("loss::server_killed_while_a_copy_runs", || killed("copying")),
        Test::new("loss::daemon_killed_while_a_kernel_runs", daemon_killed),
        Test::new("loss::connection_cut_while_a_kernel_runs", || wire("endless", Proxy::cut)),
        Test::new("loss::connection_cut_while_a_copy_runs", || wire("copying", Proxy::cut)),
        Test::new("loss::packets_silently_dropped_while_a_kernel_runs", || {
            wire("endless", Proxy::fall_silent)
        }),
        Test::new("loss::packets_silently_dropped_while_a_copy_runs", || wire("copying", Proxy::fall_silent)),
        Test::new("loss::client_killed_during_an_endless_kernel", client_killed),
        Test::new("loss::client_interrupted_during_an_endless_kernel", client_interrupted),
    ]
}

fn no_server() -> Result<()> {
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let finished =
        Running::start(&mut forwarded(address, "vector_add")?)?.finish_within(SOON)?.expect_code(1)?;
    ensure!(finished.stderr.contains(&address.to_string()), "nothing names {address}\n{}", finished.output());
    Ok(())
}

fn mute_server() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let held = std::thread::spawn(move || listener.accept());
    let finished =
        Running::start(&mut forwarded(address, "vector_add")?)?.finish_within(SOON)?.expect_code(1)?;
    ensure!(finished.stderr.contains(&address.to_string()), "nothing names {address}\n{}", finished.output());
    ensure!(held.is_finished(), "nobody came");
    Ok(())
}

/// Answers one hello with these bytes.
fn answering(bytes: Vec<u8>) -> Result<std::net::SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        let mut prefix = [0; PREFIX_BYTES];
        stream.read_exact(&mut prefix)?;
        stream.write_all(&bytes)?;
        let _ = stream.read(&mut [0; 1 << 16])?; // the rest, or the end
        std::thread::sleep(Duration::from_secs(1));
        Ok(())
    });
    Ok(address)
}

fn other_version() -> Result<()> {
    let mut answer =
        hello::message(&HelloAnswer::refused(Status::Version, "this server speaks version 77.0"));
    answer[4..6].copy_from_slice(&77u16.to_le_bytes());
    let address = answering(answer)?;
    let finished =
        Running::start(&mut forwarded(address, "vector_add")?)?.finish_within(SOON)?.expect_code(1)?;
    ensure!(finished.stderr.contains("77"), "nothing tells the version\n{}", finished.output());
    Ok(())
}

fn no_rgpu_server() -> Result<()> {
    let address = answering(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())?;
    let finished =
        Running::start(&mut forwarded(address, "vector_add")?)?.finish_within(SOON)?.expect_code(1)?;
    ensure!(finished.stderr.contains(&address.to_string()), "nothing names {address}\n{}", finished.output());
    Ok(())
}

/// The program reports an error and ends with the status that says so; nothing hangs.
fn reports_loss(program: Followed) -> Result<()> {
    let finished = program.finish_within(SOON)?.expect_code(3)?;
    ensure!(finished.stderr.contains("cudaError"), "no error was reported\n{}", finished.output());
    Ok(())
}

fn killed(name: &str) -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    let program = Followed::start(forwarded(daemon.address(), name)?, "running")?;
    let servers = daemon.application_servers();
    ensure!(!servers.is_empty(), "no application server is running");
    servers.iter().for_each(|&pid| signal(pid, libc::SIGKILL));
    reports_loss(program)?;
    serves(daemon.address())?;
    Ok(())
}

fn daemon_killed() -> Result<()> {
    let mut daemon = Daemon::start(product()?)?;
    let program = Followed::start(forwarded(daemon.address(), "endless")?, "running")?;
    daemon.kill();
    reports_loss(program)
}

fn wire(name: &str, lose: fn(&Proxy)) -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    let proxy = Proxy::start(daemon.address())?;
    let program = Followed::start(forwarded(proxy.address(), name)?, "running")?;
    lose(&proxy);
    reports_loss(program)?;
    serves(daemon.address())?;
    // Once the proxy is gone the connection is, and what it was for.
    drop(proxy);
    daemon.wait_until_idle(SOON)?;
    Ok(())
}

fn client_killed() -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    let program = Followed::start(forwarded(daemon.address(), "endless")?, "running")?;
    let before = daemon.application_servers();
    ensure!(!before.is_empty(), "no application server is running");
    signal(program.program_pid(), libc::SIGKILL);
    signal(program.pid(), libc::SIGKILL);
    // Others are served meanwhile, and the dead one's server is gone within seconds.
    serves(daemon.address())?;
    daemon.wait_until_idle(Duration::from_secs(10)).context("after the client was killed")?;
    drop(program);
    Ok(())
}

fn client_interrupted() -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    let program = Followed::start(forwarded(daemon.address(), "endless")?, "running")?;
    program.signal(libc::SIGINT);
    let finished = program.finish_within(Duration::from_secs(10))?;
    let by_signal = process::signal_of(finished.status) == Some(libc::SIGINT);
    ensure!(
        by_signal || finished.status.code() == Some(128 + libc::SIGINT),
        "it ended with {}",
        finished.status
    );
    daemon.wait_until_idle(Duration::from_secs(10))?;
    Ok(())
}
