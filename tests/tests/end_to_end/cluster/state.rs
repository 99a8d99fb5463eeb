//! A broker that cannot store its state.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use rgpu_control::api::{ErrorCode, LeaseRequest, LeaseState};
use rgpu_control::token::PrivateKey;
use rgpu_test_runner::{Skip, Test};
use rgpu_tests::cluster::{Cluster, Setup};
use rgpu_tests::process;
use rgpu_tests::product::clean;

use super::{SOON, on_loopback, puppet};

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster::a_full_disk_is_an_error_and_loses_no_lease", full),
        Test::new("cluster::a_state_that_cannot_be_written_is_an_error", read_only),
    ]
}

/// The broker's command, in a mount namespace of its own in which `script` comes first; `$STATE` is the state's directory.
fn mounted(cluster: &Cluster, script: &str) -> Result<Command> {
    let tried =
        process::run(clean(Path::new("unshare")).args(["--mount", "mount", "-t", "tmpfs", "none", "/mnt"]));
    let why = match tried {
        Ok(finished) if finished.status.success() => None,
        Ok(finished) => Some(finished.stderr),
        Err(e) => Some(e.to_string()),
    };
    ensure!(why.is_none(), Skip(format!("nothing can be mounted here: {}", why.unwrap_or_default().trim())));
    let broker = cluster.broker_command();
    let mut command = clean(Path::new("unshare"));
    command.args(["--mount", "sh", "-ec", &format!("{script}\nexec \"$@\""), "sh"]);
    command.arg(broker.get_program()).args(broker.get_args()).env("STATE", cluster.state());
    Ok(command)
}

fn request() -> LeaseRequest {
    LeaseRequest {
        name: "probe".into(),
        gpus: 1,
        memory: 64 << 20,
        share_milli: 100,
        models: vec![],
        machine: "a-client".into(),
        node: None,
        holder: PrivateKey::generate().public().to_text(),
        transport: "tcp".into(),
        profile: None,
        program: None,
        input: None,
        scale: None,
        goal_s: None,
        importance: None,
        traffic_mbps: None,
        wait_s: 20,
        now_or_never: false,
        encrypt: false,
        harvest: false,
    }
}

fn full() -> Result<()> {
    let mut cluster = on_loopback(&Setup::servers(1))?;
    let small = "cp -a \"$STATE\" \"$STATE.kept\"\nmount -t tmpfs -o size=4m,mode=700 none \"$STATE\"\n\
                 cp -a \"$STATE.kept/.\" \"$STATE\"";
    let command = mounted(&cluster, small)?;
    cluster.broker()?.kill(false);
    cluster.start_broker_as(command)?;
    cluster.wait_ready()?;
    let mut puppet = puppet(&cluster, "ann", &["--gpus", "1", "--gpu-memory", "256MiB", "--share", "50%"])?;
    puppet.success("launch 0")?;
    let id = cluster.only_lease()?.id;

    // Now somebody else fills the disk.
    let inside = Path::new("/proc").join(cluster.broker()?.pid().to_string()).join("root");
    let state = inside.join(cluster.state().strip_prefix("/")?);
    let filler = state.join("filler");
    let full = std::fs::write(&filler, vec![1; 8 << 20]);
    ensure!(full.is_err(), "8 MiB fit into 4");
    let mut refused = None;
    // What is allocated already may take a few more.
    for _ in 0..2000 {
        let asked = cluster.tenant("bob", |broker| Ok(broker.request_lease(&request())))?;
        match asked {
            Ok(lease) => drop(cluster.tenant("bob", move |broker| broker.release(lease.id))),
            Err(e) => {
                refused = Some(e);
                break;
            }
        }
    }
    let refused = refused.ok_or_else(|| anyhow::anyhow!("a full disk is never noticed"))?;
    ensure!(refused.code() == Some(ErrorCode::Unavailable), "a full disk is answered with {refused:?}");
    println!("a full disk: {refused}");
    for _ in 0..60 {
        let health = cluster.ask("", rgpu_control::Broker::health)?;
        ensure!(health.status != "ok", "a broker that can store nothing says that all is well");
    }
    let lease = cluster.lease(id)?;
    ensure!(lease.state == LeaseState::Active, "the lease is lost: {lease:?}");
    puppet.success("launch 0")?;

    // There is room again: all is as before.
    std::fs::remove_file(&filler)?;
    cluster.wait("leases are granted again", SOON, |cluster| {
        let lease = cluster.tenant("bob", |broker| broker.request_lease(&request()))?;
        let id = lease.id;
        cluster.tenant("bob", move |broker| broker.release(id))?;
        Ok(lease.state == LeaseState::Active)
    })?;
    ensure!(cluster.lease(id)?.state == LeaseState::Active, "the lease is lost");
    // And a broker that starts with what was stored knows the lease. What is copied must not change meanwhile.
    cluster.broker()?.signal(libc::SIGSTOP);
    let kept = cluster.directory().join("kept");
    let copied = process::run(clean(Path::new("cp")).arg("-a").arg(&state).arg(&kept))?;
    copied.success()?;
    cluster.broker()?.kill(true);
    std::fs::remove_dir_all(cluster.state())?;
    std::fs::rename(&kept, cluster.state())?;
    cluster.start_broker()?;
    cluster.wait_ready()?;
    ensure!(cluster.lease(id)?.state == LeaseState::Active, "the lease is lost");
    puppet.success("launch 0")?;
    puppet.finish()?;
    cluster.wait_idle(SOON)
}

fn read_only() -> Result<()> {
    let mut cluster = on_loopback(&Setup::servers(1))?;
    let command =
        mounted(&cluster, "mount --bind \"$STATE\" \"$STATE\"\nmount -o remount,bind,ro \"$STATE\"");
    let mut command = command?;
    cluster.broker()?.kill(false);
    let finished = process::run(&mut command)?;
    ensure!(!finished.late, "it runs without being able to store anything");
    ensure!(!finished.status.success(), "{}", finished.output());
    let named = finished.stderr.contains(&*cluster.state().to_string_lossy());
    ensure!(named, "nothing names the state\n{}", finished.output());
    ensure!(!finished.stderr.contains("panicked"), "{}", finished.output());
    // Where it can be written again, all is well.
    cluster.start_broker()?;
    cluster.wait_ready()
}
