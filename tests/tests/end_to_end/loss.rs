//! Servers that are absent or lost, and clients that disappear.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rgpu_protocol::hello::{self, HelloAnswer, PREFIX_BYTES, Status};
use rgpu_test_runner::{Skip, Test};
use rgpu_tests::process::{self, Running};
use rgpu_tests::product::Daemon;
use rgpu_tests::proxy::Proxy;

use crate::context::{Followed, forwarded, plain, product, serves, signal};

/// How soon a program must learn that its server is lost. Only tells hanging from working: the protocol gives up after 8 s of
/// silence.
const SOON: Duration = Duration::from_secs(60);

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
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
        Test::new("loss::a_network_that_goes_down_is_noticed_on_both_sides", network_down),
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

/// Daemon and program in a network of their own, which goes down without a word to either: no packet
/// arrives any more, and none is refused.
const NETWORK_DOWN: &str = r#"
ip link set lo up || exit 77
out=$(mktemp -d) || exit 77
trap 'kill -9 $program $daemon 2>/dev/null; rm -rf "$out"' EXIT
"$1" serve --listen 127.0.0.1:0 --device software >"$out/serve" 2>&1 &
daemon=$!
for i in {1..300}; do
    address=$(grep -o '127\.0\.0\.1:[0-9]*' "$out/serve" | head -n 1)
    [ -n "$address" ] && break
    sleep 0.1
done
"$1" run --server "$address" --transport tcp -- "$2" 2>"$out/program" &
program=$!
for i in {1..300}; do grep -q running "$out/program" && break; sleep 0.1; done
servers() { cat /proc/$daemon/task/*/children 2>/dev/null; }
[ -n "$(servers)" ] || { echo "no application server is running"; cat "$out"/*; exit 1; }
ip link set lo down
for i in {1..400}; do
    kill -0 $program 2>/dev/null || gone_program=1
    [ -z "$(servers)" ] && gone_server=1
    [ -n "$gone_program" ] && [ -n "$gone_server" ] && break
    sleep 0.1
done
[ -n "$gone_program" ] || { echo "the program hangs"; cat "$out"/*; exit 1; }
[ -n "$gone_server" ] || { echo "the application server stays"; cat "$out"/*; exit 1; }
kill -0 $daemon || { echo "the daemon has died"; cat "$out"/*; exit 1; }
wait $program
status=$?
[ $status = 3 ] || { echo "the program ended with $status"; cat "$out"/*; exit 1; }
"#;

fn network_down() -> Result<()> {
    let endless = plain("endless")?;
    let mut command = rgpu_tests::product::clean(std::path::Path::new("unshare"));
    command.args(["--user", "--map-root-user", "--net", "bash", "-c", NETWORK_DOWN, "bash"]);
    let finished = match Running::start(command.arg(product()?.rgpu()).arg(endless)) {
        Ok(running) => running.finish()?,
        Err(_) => bail!(Skip("it needs unshare, which is not here".into())),
    };
    let refused = finished.stderr.contains("unshare: ") || finished.status.code() == Some(77);
    ensure!(!refused, Skip(format!("no network of one's own can be had here: {}", finished.stderr.trim())));
    finished.success()?;
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
    daemon.wait_until_idle(SOON).context("after the client was killed")?;
    drop(program);
    Ok(())
}

fn client_interrupted() -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    let program = Followed::start(forwarded(daemon.address(), "endless")?, "running")?;
    program.signal(libc::SIGINT);
    let finished = program.finish_within(SOON)?;
    let by_signal = process::signal_of(finished.status) == Some(libc::SIGINT);
    ensure!(
        by_signal || finished.status.code() == Some(128 + libc::SIGINT),
        "it ended with {}",
        finished.status
    );
    daemon.wait_until_idle(SOON)?;
    Ok(())
}
