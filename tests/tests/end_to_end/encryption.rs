//! Encrypted connections: nothing on the wire can be read, only the server that was meant is spoken to, and faults show as
//! they do without.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::process::{self, Running};
use rgpu_tests::product::{Daemon, Stats, temporary};
use rgpu_tests::proxy::Proxy;

use crate::context::{Followed, forwarded, plain, product, signal};

/// Only tells hanging from working.
const SOON: Duration = Duration::from_secs(60);
/// What must not be read on the wire.
const SECRET: &str = "correct-horse-battery-staple";

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("encryption::programs_run_and_nothing_can_be_read_on_the_wire", unreadable),
        Test::new("encryption::connecting_takes_one_round_trip_more", round_trips),
        Test::new("encryption::another_server_than_the_one_meant_is_refused", another),
        Test::new("encryption::a_server_can_require_it", required),
        Test::new("encryption::what_cannot_be_encrypted_is_refused_and_says_why", impossible),
        Test::new("encryption::server_killed_while_a_kernel_runs", killed),
        Test::new("encryption::connection_cut_while_a_copy_runs", cut),
        Test::new("encryption::packets_silently_dropped_while_a_copy_runs", dropped),
        Test::new("encryption::client_killed_while_a_kernel_runs", client_killed),
        Test::new("encryption::garbage_in_place_of_a_handshake_ends_its_process_and_nothing_else", garbage),
        Test::new("encryption::clients_that_stop_in_mid_handshake_are_let_go", stopping),
        Test::new("encryption::the_private_key_is_not_in_the_application_s_process", no_key),
    ]
}

/// A daemon that encrypts, and what its certificate is known by.
fn encrypting(options: &[&str]) -> Result<(Daemon, String)> {
    let daemon = Daemon::start_with(product()?, options)?;
    let said = |line: &String| line.rsplit_once("certificate ").map(|(_, print)| print.to_owned());
    process::wait_until("the server says its fingerprint", SOON, || {
        daemon.log().iter().any(|l| said(l).is_some())
    })?;
    let fingerprint = daemon.log().iter().find_map(said).context("no fingerprint")?;
    ensure!(fingerprint.starts_with("sha256:"), "{fingerprint:?} is no fingerprint");
    Ok((daemon, fingerprint))
}

/// Has a command encrypt what it says to a server that has this certificate, and use no shared memory.
fn knowing<'c>(command: &'c mut Command, fingerprint: &str) -> &'c mut Command {
    command.env("RGPU_TRANSPORT", "tcp").env("RGPU_TLS_FINGERPRINT", fingerprint)
}

/// A program is refused, and somebody tells why.
fn is_refused(command: &mut Command, why: &[&str]) -> Result<()> {
    let finished = Running::start(command)?.finish_within(SOON)?.expect_code(1)?;
    for why in why {
        ensure!(finished.stderr.contains(why), "nothing says `{why}`\n{}", finished.output());
    }
    Ok(())
}

fn contains(bytes: &[u8], what: &str) -> bool {
    bytes.windows(what.len()).any(|window| window == what.as_bytes())
}

fn unreadable() -> Result<()> {
    plain("vector_add")?;
    let token = temporary("token");
    std::fs::write(&token, SECRET)?;
    let path = token.to_str().context("a path that is no text")?;
    let (daemon, fingerprint) = encrypting(&["--tls", "offer", "--token-file", path])?;
    let run = |proxy: &Proxy, name: &str| {
        let mut command = product()?.run(proxy.address());
        command.args(["--token-file", path, "--"]).arg(plain(name)?);
        Ok::<_, anyhow::Error>(command)
    };
    // Without encryption everything can be read.
    let open = Proxy::start(daemon.address())?;
    process::run(&mut run(&open, "vector_add")?)?.success()?;
    let seen = open.recorded();
    for what in [SECRET, "vector_add", "RGPU"] {
        ensure!(contains(&seen, what), "`{what}` is not on the wire: there is nothing to hide");
    }
    let proxy = Proxy::start(daemon.address())?;
    for name in ["vector_add", "host_memory", "streams_events_threads", "hostfunc_callback"] {
        process::run(knowing(&mut run(&proxy, name)?, &fingerprint))?.success().context(name.to_owned())?;
    }
    let seen = proxy.recorded();
    ensure!(seen.first() == Some(&0x16), "the connection does not begin with TLS");
    for what in [SECRET, "vector_add", "host_memory"] {
        ensure!(!contains(&seen, what), "`{what}` can be read on the wire");
    }
    ensure!(daemon.log().iter().any(|line| line.contains(", encrypted, begins")), "the log doesn't say it");
    let _ = std::fs::remove_file(token); // only tidiness
    Ok(())
}

fn round_trips() -> Result<()> {
    let (daemon, fingerprint) = encrypting(&["--tls", "offer"])?;
    let mut numbers = Vec::new();
    for encrypted in [false, true] {
        let file = temporary("stats.json");
        let mut command = product()?.run(daemon.address());
        command.arg(format!("--stats=json:{}", file.display())).arg("--").arg(plain("vector_add")?);
        command.env("RGPU_TRANSPORT", "tcp");
        if encrypted {
            knowing(&mut command, &fingerprint);
        }
        process::run(&mut command)?.success()?;
        let stats = Stats::take(&file)?;
        numbers.push((stats.number("round_trips")?, stats.number("encrypted_sessions")?));
    }
    ensure!(numbers == [(3, 0), (4, 1)], "round trips and encrypted sessions: {numbers:?}");
    let mut shown = product()?.run(daemon.address());
    shown.args(["--encrypt", "--stats", "--"]).arg(plain("vector_add")?);
    let shown = process::run(knowing(&mut shown, &fingerprint))?.success()?;
    ensure!(shown.stderr.contains("encrypted sessions"), "it is not said\n{}", shown.output());
    Ok(())
}

fn another() -> Result<()> {
    let (daemon, fingerprint) = encrypting(&["--tls", "offer"])?;
    let other = format!("sha256:{}", "07".repeat(32));
    is_refused(
        knowing(&mut forwarded(daemon.address(), "vector_add")?, &other),
        &[&fingerprint, "not the server"],
    )?;
    is_refused(
        knowing(&mut forwarded(daemon.address(), "vector_add")?, "sha256:12"),
        &["RGPU_TLS_FINGERPRINT"],
    )?;
    // One of several will do.
    let either = format!("{other},{fingerprint}");
    process::run(knowing(&mut forwarded(daemon.address(), "vector_add")?, &either))?.success()?;
    Ok(())
}

fn required() -> Result<()> {
    let (daemon, fingerprint) = encrypting(&["--tls", "require"])?;
    let mut without = forwarded(daemon.address(), "vector_add")?;
    is_refused(without.env("RGPU_TRANSPORT", "tcp"), &["encrypted connections only", "--encrypt"])?;
    process::run(knowing(&mut forwarded(daemon.address(), "vector_add")?, &fingerprint))?.success()?;
    // Shared memory doesn't leave the machine.
    let mut local = forwarded(daemon.address(), "vector_add")?;
    process::run(local.env("RGPU_TRANSPORT", "shm").env("RGPU_ENCRYPT", "1"))?.success()?;
    // Who asks for its devices encrypts likewise.
    let mut devices = rgpu_tests::product::clean(&product()?.rgpu());
    devices.args(["devices", "--server", &daemon.address().to_string()]);
    is_refused(&mut devices, &["encrypted connections only"])?;
    let listed = process::run(knowing(&mut devices, &fingerprint))?.success()?;
    ensure!(listed.stdout.contains("software GPU"), "{}", listed.output());
    Ok(())
}

fn impossible() -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    let some = format!("sha256:{}", "07".repeat(32));
    is_refused(knowing(&mut forwarded(daemon.address(), "vector_add")?, &some), &["--tls offer"])?;
    let mut unknown = forwarded(daemon.address(), "vector_add")?;
    unknown.env("RGPU_TRANSPORT", "tcp").env("RGPU_ENCRYPT", "1");
    is_refused(&mut unknown, &["RGPU_TLS_FINGERPRINT", "RGPU_TLS_CA"])?;
    let mut rdma = forwarded(daemon.address(), "vector_add")?;
    is_refused(rdma.env("RGPU_TRANSPORT", "rdma").env("RGPU_TLS_FINGERPRINT", &some), &["RDMA cannot be"])?;
    let alone = process::run(rgpu_tests::product::clean(&product()?.rgpu()).args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--device",
        "software",
        "--tls",
        "require",
        "--transport",
        "rdma",
    ]))?;
    ensure!(!alone.status.success() && alone.stderr.contains("--tls require"), "{}", alone.output());
    Ok(())
}

/// The program reports an error and ends with the status that says so; nothing hangs.
fn reports_loss(program: Followed) -> Result<()> {
    let finished = program.finish_within(SOON)?.expect_code(3)?;
    ensure!(finished.stderr.contains("cudaError"), "no error was reported\n{}", finished.output());
    ensure!(finished.stderr.contains("connection to the server"), "nothing says why\n{}", finished.output());
    Ok(())
}

fn killed() -> Result<()> {
    let (daemon, fingerprint) = encrypting(&["--tls", "offer"])?;
    let mut command = forwarded(daemon.address(), "endless")?;
    knowing(&mut command, &fingerprint);
    let program = Followed::start(command, "running")?;
    let servers = daemon.application_servers();
    ensure!(!servers.is_empty(), "no application server is running");
    servers.iter().for_each(|&pid| signal(pid, libc::SIGKILL));
    reports_loss(program)?;
    process::run(knowing(&mut forwarded(daemon.address(), "vector_add")?, &fingerprint))?.success()?;
    Ok(())
}

fn cut() -> Result<()> {
    let (daemon, fingerprint) = encrypting(&["--tls", "offer"])?;
    let proxy = Proxy::start(daemon.address())?;
    let mut command = forwarded(proxy.address(), "copying")?;
    knowing(&mut command, &fingerprint);
    let program = Followed::start(command, "running")?;
    proxy.cut();
    reports_loss(program)?;
    daemon.wait_until_idle(SOON)?;
    Ok(())
}

fn dropped() -> Result<()> {
    let (daemon, fingerprint) = encrypting(&["--tls", "offer"])?;
    let proxy = Proxy::start(daemon.address())?;
    let mut command = forwarded(proxy.address(), "copying")?;
    let program = Followed::start(
        {
            knowing(&mut command, &fingerprint);
            command
        },
        "running",
    )?;
    proxy.fall_silent();
    reports_loss(program)?;
    process::run(knowing(&mut forwarded(daemon.address(), "vector_add")?, &fingerprint))?.success()?;
    // Once the proxy is gone the connection is, and the memory that it was for.
    drop(proxy);
    daemon.wait_until_idle(SOON)?;
    Ok(())
}

/// Begins of TLS connections that are none: what a client sends, and whether it leaves.
fn strange_beginnings() -> Vec<Vec<u8>> {
    let long = [&[0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff][..], &[7; 200_000]].concat();
    vec![
        vec![0x16],
        vec![0x16; 5],
        [&[0x16, 3, 1, 0, 50][..], &[0x5a; 50]].concat(),
        [&[0x16, 3, 1, 0, 4, 2, 0, 0, 0][..], b"GET / HTTP/1.1\r\n\r\n"].concat(),
        long,
    ]
}

fn garbage() -> Result<()> {
    let (daemon, fingerprint) = encrypting(&["--tls", "offer"])?;
    for _ in 0..5 {
        for beginning in strange_beginnings() {
            let mut client = TcpStream::connect(daemon.address())?;
            // The server may have had enough of it before the end.
            let _ = client.write_all(&beginning);
        }
    }
    process::wait_until("the log names all of them", SOON, || {
        let log = daemon.log();
        log.iter().filter(|line| line.contains("no encrypted connection")).count() == 25
    })?;
    daemon.wait_until_idle(SOON)?;
    process::run(knowing(&mut forwarded(daemon.address(), "vector_add")?, &fingerprint))?.success()?;
    Ok(())
}

fn stopping() -> Result<()> {
    let (daemon, fingerprint) = encrypting(&["--tls", "offer"])?;
    // They say something, and stay. Others are served meanwhile. Until a record is whole, no process is spent on a client; the last
    // one sends a whole record with a part of a message.
    let part = vec![0x16, 3, 1, 0, 6, 1, 0, 1, 0xfc, 3, 3];
    let stay = [vec![0x16], vec![0x16, 3, 1], vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3], part];
    let mut clients = Vec::new();
    for beginning in stay {
        let mut client = TcpStream::connect(daemon.address())?;
        client.write_all(&beginning)?;
        clients.push(client);
    }
    process::wait_until("the last one has a process", SOON, || daemon.application_servers().len() == 1)?;
    process::run(knowing(&mut forwarded(daemon.address(), "vector_add")?, &fingerprint))?.success()?;
    daemon.wait_until_idle(SOON).context("after the time for a hello")?;
    for mut client in clients {
        client.set_read_timeout(Some(SOON))?;
        // An alert at most, and the end.
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest);
        ensure!(rest.len() < 100, "{} bytes were sent to a client that has said nothing", rest.len());
    }
    process::run(knowing(&mut forwarded(daemon.address(), "vector_add")?, &fingerprint))?.success()?;
    Ok(())
}

/// Looks for the private key in all of the process's memory that can be written.
fn no_key() -> Result<()> {
    let (certificate, key) = (temporary("cert.pem"), temporary("key.pem"));
    let [certificate, key] = [&certificate, &key].map(|path| path.to_str().unwrap_or_default().to_owned());
    let options = ["--tls", "offer", "--tls-certificate", &certificate, "--tls-key", &key];
    let (daemon, fingerprint) = encrypting(&options)?;
    let pem = std::fs::read_to_string(&key)?;
    let text: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let der = base64(&text);
    // A P-256 key in PKCS#8: its private number is the 32 bytes after this.
    let mark = [0x02, 0x01, 0x01, 0x04, 0x20];
    let at = der.windows(5).position(|window| window == mark).context("no private number in the key")? + 5;
    let number = &der[at..at + 32];
    let mut reversed = number.to_vec();
    reversed.reverse();
    let mut command = forwarded(daemon.address(), "endless")?;
    knowing(&mut command, &fingerprint);
    let program = Followed::start(command, "running")?;
    let servers = daemon.application_servers();
    ensure!(servers.len() == 1, "{} application servers", servers.len());
    let found = |pid: u32| -> Result<bool> {
        let memory = std::fs::File::open(format!("/proc/{pid}/mem"))?;
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let mut found = false;
        for line in maps.lines().filter(|line| line.contains(" rw") && !line.contains("/memfd:")) {
            let (range, _) = line.split_once(' ').context("a mapping")?;
            let (from, to) = range.split_once('-').context("a range")?;
            let (from, to) = (u64::from_str_radix(from, 16)?, u64::from_str_radix(to, 16)?);
            let mut bytes = vec![0; (to - from).min(64 << 20) as usize];
            // Some cannot be read.
            let Ok(n) = std::os::unix::fs::FileExt::read_at(&memory, &mut bytes, from) else { continue };
            let holds = |what: &[u8]| bytes[..n].windows(what.len()).any(|window| window == what);
            // As it stands in the file, and as machine words.
            found |= holds(number) || holds(&reversed);
        }
        Ok(found)
    };
    // The search finds it where it is.
    if let Ok(held) = found(daemon.pid()) {
        ensure!(held, "the key is not found in the daemon either");
        ensure!(!found(servers[0])?, "the private key is in the application's process");
    }
    drop(program);
    for path in [certificate, key] {
        let _ = std::fs::remove_file(path); // only tidiness
    }
    Ok(())
}

/// What base64 text says.
fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for digit in text.bytes().filter_map(|c| DIGITS.iter().position(|d| *d == c)) {
        bits = bits << 6 | digit as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    bytes
}

fn client_killed() -> Result<()> {
    let (daemon, fingerprint) = encrypting(&["--tls", "offer"])?;
    let mut command = forwarded(daemon.address(), "endless")?;
    knowing(&mut command, &fingerprint);
    let program = Followed::start(command, "running")?;
    ensure!(!daemon.application_servers().is_empty(), "no application server is running");
    signal(program.program_pid(), libc::SIGKILL);
    signal(program.pid(), libc::SIGKILL);
    daemon.wait_until_idle(SOON).context("after the client was killed")?;
    drop(program);
    Ok(())
}
