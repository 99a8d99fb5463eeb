//! Twenty programs at once, with mixed requests, on two servers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_control::api::LeaseState;
use rgpu_test_runner::Test;
use rgpu_tests::cluster::{Cluster, Setup, watch};
use rgpu_tests::examples;
use rgpu_tests::process::Running;

use super::{SOON, on_hosts, on_loopback};
use crate::context::plain;

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::alone("cluster::twenty_programs_at_once_on_hosts", || twenty(on_hosts)),
        Test::alone("cluster::twenty_programs_at_once_on_loopback", || twenty(on_loopback)),
    ]
}

/// What the programs ask for, in turn.
const REQUESTS: [&[&str]; 6] = [
    &["--gpus", "1", "--gpu-memory", "512MiB", "--share", "25%"],
    &["--gpus", "1", "--gpu-memory", "1GiB", "--share", "50%"],
    &["--gpus", "1", "--gpu-memory", "768MiB", "--share", "10%"],
    &["--gpus", "2", "--gpu-memory", "512MiB", "--share", "30%"],
    &["--gpus", "1"],
    &["--gpus", "2", "--gpu-memory", "1GiB"],
];

fn twenty(start: fn(&Setup) -> Result<Cluster>) -> Result<()> {
    let names: Vec<String> = examples::all()?.into_iter().map(|e| e.name).collect();
    let names: Vec<String> = names.iter().step_by((names.len() / 20).max(1)).take(20).cloned().collect();
    ensure!(names.len() == 20, "only {} examples", names.len());
    let cluster = start(&Setup::servers(2).each(&["--device", "software:2", "--memory", "1G"]))?;
    let one = |at: usize, name: &String| -> Result<()> {
        let mut command = cluster.run(["ann", "bob"][at % 2], REQUESTS[at % REQUESTS.len()])?;
        let running = Running::start(command.arg("--").arg(plain(name)?))?;
        let finished = running.finish_within(Duration::from_secs(240))?.success()?;
        let good = finished.stdout.lines().any(|line| line.starts_with(&format!("{name}: ok")));
        ensure!(good, "it did not say that its results are right\n{}", finished.output());
        Ok(())
    };
    let ((), seen) = watch::while_watching(&cluster, || {
        std::thread::scope(|scope| {
            let running: Vec<_> = names
                .iter()
                .enumerate()
                .map(|(at, name)| (at, name, scope.spawn(move || one(at, name))))
                .collect();
            running.into_iter().try_for_each(|(at, name, thread)| {
                let done = thread.join().expect("no thread panics");
                done.with_context(|| format!("{name} {}", REQUESTS[at % REQUESTS.len()].join(" ")))
            })
        })
    })?;
    println!(
        "asked {} times: at most {} leases were active, and {} MiB of a device in use",
        seen.looks,
        seen.most_active,
        seen.most_memory >> 20
    );
    ensure!(seen.most_active >= 2, "never did two programs run at a time");
    cluster.wait_idle(SOON)?;
    let leases = cluster.leases(true)?;
    let ended = leases.iter().filter(|lease| lease.state == LeaseState::Ended).count();
    ensure!(ended == 20, "{ended} leases have ended: {leases:?}");
    // What the servers have recorded, without gaps: the most that each program had of each device.
    for lease in &leases {
        for (grant, usage) in lease.grants.iter().zip(&lease.usage) {
            ensure!(usage.peak_memory <= grant.memory, "{} had {usage:?} of {grant:?}", lease.name);
        }
    }
    // And of each device, what all programs together had of it: every allocation is counted when it is made, so that nothing is
    // missed that lasted for less than a heartbeat. The heartbeat that tells of a lease's end tells of this, too.
    let devices = cluster.devices()?;
    ensure!(devices.len() == 4, "{} devices: {devices:?}", devices.len());
    for device in &devices {
        let (name, peak) = (format!("{}/{}", device.node, device.report.index), device.load.peak_memory);
        println!("{name}: {} KiB of {} at a time", peak >> 10, device.report.memory >> 10);
        ensure!(peak <= device.report.memory, "{name} was used beyond what it has: {device:?}");
    }
    let used = devices.iter().filter(|device| device.load.peak_memory > 0).count();
    ensure!(used > 0, "no device's memory is known to have been used: {devices:?}");
    let known = leases.iter().filter(|lease| lease.usage.iter().any(|usage| usage.peak_memory > 0)).count();
    println!("of {known} leases it is known what they used");
    ensure!(known > 0, "nothing is known of what the programs used: {leases:?}");
    let nodes = ["s0", "s1"].map(|n| leases.iter().any(|l| l.grants.iter().any(|g| g.node == n)));
    ensure!(nodes == [true, true], "one of the servers was never used");
    Ok(())
}
