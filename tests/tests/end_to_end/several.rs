//! One program, several servers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_control::LeaseId;
use rgpu_control::ticket::{LeaseServer, Ticket};
use rgpu_control::token::{Claims, Grant, LeaseClaims, PrivateKey};
use rgpu_test_runner::{Skip, Test};
use rgpu_tests::process::{self, Finished};
use rgpu_tests::product::{Daemon, clean, temporary};

use crate::context::{Followed, plain, product};

/// How soon a program must learn that one of its servers is lost.
const SOON: Duration = Duration::from_secs(60);

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("several::two_servers_devices_are_one_programs", || listed(&["1", "1"], "01", "shm")),
        Test::new("several::over_tcp", || listed(&["1", "1"], "01", "tcp")),
        Test::new("several::some_with_several_devices", || listed(&["2", "1", "1"], "0012", "auto")),
        Test::new("several::one_of_them_that_is_lost_is_named", lost),
        Test::new("several::one_of_them_that_is_absent_is_named", absent),
        Test::new("several::of_a_lease", of_a_lease),
        Test::new("several::a_lease_that_is_gone_says_so", gone),
    ]
}

/// A command that runs a program with the library preloaded, and nothing else said.
fn preloaded(program: &str) -> Result<Command> {
    let mut command = clean(&plain(program)?);
    command.env("LD_PRELOAD", product()?.shim());
    Ok(command)
}

fn with_servers(daemons: &[&Daemon], transport: &str, groups: &str) -> Result<Command> {
    let addresses: Vec<_> = daemons.iter().map(|daemon| daemon.address().to_string()).collect();
    let mut command = preloaded("two_servers")?;
    command.env("RGPU_SERVER", addresses.join(",")).env("RGPU_TRANSPORT", transport).arg(groups);
    Ok(command)
}

fn right(finished: Finished) -> Result<()> {
    let finished = finished.success()?;
    ensure!(finished.stdout.contains("two_servers: ok"), "{}", finished.output());
    Ok(())
}

fn listed(counts: &[&str], groups: &str, transport: &str) -> Result<()> {
    let start = |count: &&str| {
        Daemon::start_with(product()?, &["--device", &format!("software:{count}"), "--memory", "256M"])
    };
    let daemons = counts.iter().map(start).collect::<Result<Vec<_>>>()?;
    let daemons: Vec<_> = daemons.iter().collect();
    right(process::run(&mut with_servers(&daemons, transport, groups)?)?)?;
    for daemon in daemons {
        daemon.wait_until_idle(SOON)?;
    }
    Ok(())
}

fn lost() -> Result<()> {
    let (stays, mut goes) = (Daemon::start(product()?)?, Daemon::start(product()?)?);
    let mut command = with_servers(&[&stays, &goes], "tcp", "01")?;
    command.arg("wait");
    let program = Followed::start(command, "waiting")?;
    let address = goes.address().to_string();
    goes.kill();
    let finished = program.finish_within(SOON)?.expect_code(3)?;
    ensure!(finished.stderr.contains(&address), "nothing names {address}\n{}", finished.output());
    stays.wait_until_idle(SOON)?;
    Ok(())
}

fn absent() -> Result<()> {
    let (here, mut gone) = (Daemon::start(product()?)?, Daemon::start(product()?)?);
    let address = gone.address().to_string();
    gone.kill();
    let finished = process::run(&mut with_servers(&[&here, &gone], "auto", "01")?)?.expect_code(1)?;
    ensure!(finished.stderr.contains(&address), "nothing names {address}\n{}", finished.output());
    here.wait_until_idle(SOON)?;
    Ok(())
}

/// A lease of devices of some nodes, signed by the broker.
fn ticket(broker: &PrivateKey, servers: &[(&str, &Daemon, u32)]) -> Ticket {
    let holder = PrivateKey::generate();
    let now = rgpu_control::unix_time();
    let grants = servers.iter().flat_map(|(node, _, count)| {
        (0..*count).map(|device| Grant {
            node: (*node).to_owned(),
            device,
            memory: 512 << 20,
            share_milli: 1000,
        })
    });
    let claims = LeaseClaims {
        lease: LeaseId::random(),
        version: 1,
        orders: 1,
        tenant: "ann".into(),
        not_before: now - 1,
        expires: now + 600,
        holder: holder.public().to_text(),
        transport: "auto".into(),
        encrypt: false,
        grants: grants.collect(),
    };
    let server = |(node, daemon, devices): &(&str, &Daemon, u32)| LeaseServer {
        node: (*node).to_owned(),
        address: daemon.address().to_string(),
        devices: *devices,
        tls: false,
        fingerprint: None,
    };
    Ticket {
        lease: LeaseId(0x1ea5e),
        token: broker.sign(&Claims::Lease(claims)),
        key: holder.to_text(),
        transport: "auto".into(),
        servers: servers.iter().map(server).collect(),
        ca: None,
    }
}

fn of_a_lease() -> Result<()> {
    let product = product()?;
    let help = process::run(clean(&product.rgpu()).args(["serve", "--help"]))?;
    if !help.stdout.contains("--broker-key") {
        return Err(Skip("`rgpu serve` has no --broker-key".into()).into());
    }
    let broker = PrivateKey::generate();
    let key = temporary("broker-key");
    fs::write(&key, broker.public().to_text())?;
    let name = key.to_str().context("The path is not UTF-8")?;
    let start = |node: &str, device: &str| {
        let options = ["--device", device, "--broker-key", name, "--node", node];
        Daemon::start_with(product, &options)
    };
    let (first, second) = (start("n0", "software:2")?, start("n1", "software:1")?);
    let path = temporary("lease");
    let run = |ticket: &Ticket, groups: &str| -> Result<Finished> {
        ticket.write(&path)?;
        // The lease counts for more than what else is said.
        let mut command = preloaded("two_servers")?;
        command.env("RGPU_LEASE", &path).env("RGPU_SERVER", "127.0.0.1:1").arg(groups);
        process::run(&mut command)
    };
    right(run(&ticket(&broker, &[("n0", &first, 2), ("n1", &second, 1)]), "001")?)?;
    right(run(&ticket(&broker, &[("n1", &second, 1), ("n0", &first, 1)]), "01")?)?;
    // Nobody else's signature will do, nor another node's.
    let forged = run(&ticket(&PrivateKey::generate(), &[("n0", &first, 1), ("n1", &second, 1)]), "01")?;
    let forged = forged.expect_code(1)?;
    ensure!(forged.stderr.contains("signature"), "{}", forged.output());
    let wrong = run(&ticket(&broker, &[("n0", &second, 1), ("n1", &first, 1)]), "01")?.expect_code(1)?;
    ensure!(wrong.stderr.contains("refuses"), "{}", wrong.output());
    let files: [&PathBuf; 2] = [&key, &path];
    for file in files {
        fs::remove_file(file)?;
    }
    Ok(())
}

fn gone() -> Result<()> {
    let path = temporary("no-lease");
    let run = || -> Result<Finished> {
        let mut command = preloaded("vector_add")?;
        process::run(command.env("RGPU_LEASE", &path))?.expect_code(1)
    };
    let finished = run()?;
    ensure!(finished.stderr.contains("has ended"), "{}", finished.output());
    fs::write(&path, "{}")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    let finished = run()?;
    ensure!(finished.stderr.contains("readable by others"), "{}", finished.output());
    fs::remove_file(&path)?;
    Ok(())
}
