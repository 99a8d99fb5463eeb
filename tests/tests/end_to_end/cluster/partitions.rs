//! What a lease grants is what a program has: memory, share of time, devices on several servers.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rgpu_control::api::LeaseChange;
use rgpu_test_runner::{Skip, Test};
use rgpu_tests::cluster::puppet::Puppet;
use rgpu_tests::cluster::{Cluster, Node, Setup};
use rgpu_tests::process;
use rgpu_tests::product::temporary;

use super::{SOON, on_hosts, on_loopback, puppet};

const MIB: u64 = 1 << 20;

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster::memory_beyond_the_grant_is_out_of_memory", memory),
        Test::new("cluster::processes_of_one_lease_share_its_memory", tree),
        Test::new("cluster::a_leases_memory_is_changed_while_it_runs", resize_memory),
        Test::alone("cluster::a_leases_share_is_changed_while_it_runs", resize_share),
        Test::new("cluster::devices_of_two_servers_are_one_programs", several),
        Test::alone("cluster::shares_of_25_and_75_percent_are_kept", || shares(on_hosts)),
        Test::alone("cluster::shares_are_kept_on_loopback", || shares(on_loopback)),
    ]
}

fn memory() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(1))?;
    let mut puppet = puppet(&cluster, "ann", &["--gpus", "1", "--gpu-memory", "256MiB", "--share", "50%"])?;
    let info = puppet.numbers("info 0")?;
    ensure!(info[1..] == [256, 256] && info[0] <= 256, "cudaMemGetInfo and the properties say {info:?} MiB");
    puppet.success("alloc 0 200")?;
    ensure!(puppet.numbers("info 0")?[0] <= 56, "more is free than there can be");
    let error = puppet.error_of("alloc 0 100")?;
    ensure!(error == "cudaErrorMemoryAllocation", "memory beyond the grant gives {error}");
    // That is no lasting error, and what is freed can be had again.
    puppet.success("launch 0")?;
    puppet.success("free")?;
    puppet.success("alloc 0 240")?;
    cluster.wait("the broker is told what is used", SOON, |cluster| {
        let lease = cluster.only_lease()?;
        Ok(lease.usage.first().is_some_and(|u| u.memory >= 240 * MIB && u.peak_memory <= 256 * MIB))
    })?;
    puppet.finish()?;
    cluster.wait_idle(SOON)
}

fn tree() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(1))?;
    // Two processes of one `rgpu run`, each of which wants more than half. The first holds its part until the second has tried.
    let place = temporary("tree");
    std::fs::create_dir(&place)?;
    let mut command = cluster.run("ann", &["--gpus", "1", "--gpu-memory", "256MiB", "--share", "50%"])?;
    let script = "cd \"$1\" && mkfifo tell told && exec 3<>tell 4<>told || exit 9
        \"$0\" <tell >told & echo 'alloc 0 150' >&3; read first <&4
        second=$(\"$0\" 'alloc 0 150'); echo quit >&3; wait; echo \"first: $first; second: $second\"";
    command.args(["--", "bash", "-c", script]).arg(crate::context::plain("puppet")?).arg(&place);
    let finished = process::run(&mut command)?.success()?;
    let said = &finished.stdout;
    ensure!(
        said.contains("first: alloc cudaSuccess; second: alloc cudaErrorMemoryAllocation"),
        "two processes of a lease got its memory twice\n{}",
        finished.output()
    );
    std::fs::remove_dir_all(&place)?;
    cluster.wait_idle(SOON)
}

fn change(cluster: &Cluster, change: LeaseChange) -> Result<()> {
    let id = cluster.only_lease()?.id;
    cluster.tenant("ann", move |broker| broker.change_lease(id, &change))?;
    Ok(())
}

fn resize_memory() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(1))?;
    let mut puppet = puppet(&cluster, "ann", &["--gpus", "1", "--gpu-memory", "256MiB", "--share", "50%"])?;
    puppet.success("alloc 0 200")?;
    let mut becomes = |mib: u64| -> Result<()> {
        change(&cluster, LeaseChange { memory: Some(mib * MIB), share_milli: None })?;
        let mut info = vec![];
        process::wait_until("the program sees its new memory", SOON, || {
            info = puppet.numbers("info 0").unwrap_or_default();
            info.get(1) == Some(&mib)
        })
        .map_err(|e| e.context(format!("it sees {info:?}")))?;
        Ok(())
    };
    becomes(1024)?;
    puppet.success("alloc 0 600")?;
    // Less than what is in use: nothing is taken away, but there is nothing more.
    let becomes = |mib: u64| change(&cluster, LeaseChange { memory: Some(mib * MIB), share_milli: None });
    becomes(512)?;
    process::wait_until("a program beyond its grant gets no more", SOON, || {
        puppet.error_of("alloc 0 32").is_ok_and(|error| error == "cudaErrorMemoryAllocation")
    })?;
    puppet.success("launch 0").or_else(|e| {
        // The launch's own few KiB may be refused, too; the device itself must be well.
        if e.to_string().contains("cudaErrorMemoryAllocation") { Ok(()) } else { Err(e) }
    })?;
    puppet.success("free")?;
    puppet.success("alloc 0 400")?;
    let error = puppet.error_of("alloc 0 200")?;
    ensure!(error == "cudaErrorMemoryAllocation", "beyond the new grant: {error}");
    // More than the device has is refused, and changes nothing.
    let refused = change(&cluster, LeaseChange { memory: Some(1 << 40), share_milli: None });
    ensure!(refused.is_err(), "a terabyte was granted");
    puppet.finish()?;
    cluster.wait_idle(SOON)
}

fn resize_share() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(1).each(&["--device", "software", "--workers", "1"]))?;
    let mut puppet = puppet(&cluster, "ann", &["--gpus", "1", "--gpu-memory", "256MiB", "--share", "10%"])?;
    puppet.numbers("work 0 1 0.5")?; // what was saved up at the beginning is spent
    let before = puppet.numbers("work 0 0.5 4")?;
    change(&cluster, LeaseChange { memory: None, share_milli: Some(900) })?;
    cluster.wait("the new share is granted", SOON, |cluster| {
        Ok(cluster.only_lease()?.grants.iter().all(|grant| grant.share_milli == 900))
    })?;
    let rate = |counted: &[u64]| counted[0] as f64 / counted[1].max(1) as f64;
    for attempt in 1.. {
        let after = puppet.numbers("work 0 2 4")?;
        println!("work done with 10% of the device: {before:?}, with 90%: {after:?} (count, ms)");
        // Nine times as much; on a busy machine less, but the first is held down however busy that is.
        if rate(&after) > 2.0 * rate(&before) {
            break;
        }
        ensure!(attempt < 3, "the new share made no difference");
    }
    puppet.finish()
}

fn several() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(2))?;
    let mut puppet = puppet(&cluster, "ann", &["--gpus", "2", "--gpu-memory", "128MiB", "--share", "60%"])?;
    ensure!(puppet.numbers("count")? == [2], "the program doesn't have two devices");
    let lease = cluster.only_lease()?;
    let nodes: Vec<&str> = lease.grants.iter().map(|grant| grant.node.as_str()).collect();
    ensure!(nodes.len() == 2 && nodes[0] != nodes[1], "not on both servers: {nodes:?}");
    for device in 0..2 {
        ensure!(puppet.numbers(&format!("info {device}"))?[1] == 128, "device {device} shows another memory");
        puppet.success(&format!("launch {device}"))?;
    }
    puppet.success("move 0 1")?;
    puppet.success("move 1 0")?;
    puppet.success("alloc 1 100")?;
    let error = puppet.error_of("alloc 1 100")?;
    ensure!(error == "cudaErrorMemoryAllocation", "beyond the second device's grant: {error}");
    puppet.success("alloc 0 100")?;
    puppet.finish()?;
    cluster.wait_idle(SOON)
}

/// Idle and all time of the machine's processors, in ticks.
fn machine_time() -> Result<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|t| t.parse().ok()).collect();
    ensure!(ticks.len() >= 8, "/proc/stat says {line}");
    Ok((ticks[3], ticks[..8].iter().sum()))
}

/// How long threads of the processes that serve programs were kept waiting for a processor, in ms; 0 where that isn't told.
fn kept_waiting(cluster: &Cluster) -> f64 {
    let processes = cluster.nodes.iter().flat_map(Node::application_servers);
    let threads =
        processes.flat_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten());
    let waited = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse::<f64>().ok()
    };
    threads.flatten().filter_map(waited).sum::<f64>() / 1e6
}

/// The device time that both tenants' leases had used at a moment that is known only so far.
struct Used {
    ms: [f64; 2],
    /// It was not measured earlier.
    since: Instant,
    /// It was not measured later.
    until: Instant,
}

fn used(cluster: &Cluster) -> Result<Used> {
    let read = || -> Result<[f64; 2]> {
        let leases = cluster.leases(false)?;
        Ok(["ann", "bob"].map(|tenant| {
            let lease = leases.iter().find(|lease| lease.tenant == tenant);
            lease.map_or(0.0, |lease| lease.usage.iter().map(|u| u.busy_ms as f64).sum())
        }))
    };
    // What a heartbeat said was measured some time before it came, but after the heartbeat before it was answered. So two
    // are waited for: when the first came, it had not been there at `since`.
    let (mut ms, mut since) = (read()?, Instant::now());
    for first in [true, false] {
        let old = ms;
        process::wait_until("the next heartbeat", SOON, || {
            let asked = Instant::now();
            ms = read().unwrap_or(old);
            if first && ms == old {
                since = asked;
            }
            ms != old
        })?;
    }
    Ok(Used { ms, since, until: Instant::now() })
}

/// What both got of the device while both wanted all of it.
struct Shares {
    /// Device time, of the time that passed.
    of_device: [f64; 2],
    /// The least that the former can have been: of the longest time that can have passed.
    at_least: [f64; 2],
    /// Device time, of what both had.
    of_time: [f64; 2],
    /// Kernels, of those of both.
    of_work: [f64; 2],
    /// How much of the time the machine had nothing to do.
    idle: f64,
    /// How long those that serve the programs waited for a processor, of the time.
    waited: f64,
}

impl Shares {
    fn measure(cluster: &Cluster, puppets: &mut [Puppet]) -> Result<Self> {
        for puppet in &mut *puppets {
            // What was saved up while they idled is spent in the first three seconds.
            puppet.tell("work 0 3 12")?;
        }
        std::thread::sleep(Duration::from_millis(3500));
        let (before, idle_before, waited) = (used(cluster)?, machine_time()?, kept_waiting(cluster));
        std::thread::sleep(Duration::from_millis(8000));
        let (after, idle_after, waited) = (used(cluster)?, machine_time()?, kept_waiting(cluster) - waited);
        let mut work = [0.0; 2];
        for (puppet, work) in puppets.iter_mut().zip(&mut work) {
            let answer = puppet.answer("work", SOON)?;
            *work = answer.first().and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0);
        }
        let ms = [after.ms[0] - before.ms[0], after.ms[1] - before.ms[1]];
        ensure!(ms.iter().sum::<f64>() > 0.0 && work.iter().sum::<f64>() > 0.0, "nothing was measured");
        let longest = (after.until - before.since).as_secs_f64() * 1000.0;
        let shortest = (after.since - before.until).as_secs_f64() * 1000.0;
        let time = (longest + shortest) / 2.0;
        let idle = (idle_after.0 - idle_before.0) as f64 / (idle_after.1 - idle_before.1).max(1) as f64;
        let shares = Self {
            of_device: ms.map(|ms| ms / time),
            at_least: ms.map(|ms| ms / longest),
            of_time: ms.map(|part| part / ms.iter().sum::<f64>()),
            of_work: work.map(|part| part / work.iter().sum::<f64>()),
            idle,
            waited: waited / time,
        };
        println!(
            "device time over {time:.0} ms: {:.0} and {:.0} ms; {:.1}% and {:.1}% of what both had; work: {:.1}% and \
             {:.1}%; the machine was {:.0}% idle, who serves waited for it {:.1}% of the time",
            ms[0],
            ms[1],
            100.0 * shares.of_time[0],
            100.0 * shares.of_time[1],
            100.0 * shares.of_work[0],
            100.0 * shares.of_work[1],
            100.0 * idle,
            100.0 * shares.waited
        );
        Ok(shares)
    }

    fn are(&self, wanted: [f64; 2]) -> bool {
        let close = |got: [f64; 2]| got.iter().zip(wanted).all(|(got, wanted)| (got - wanted).abs() <= 0.05);
        close(self.of_time) && close(self.of_work) && self.of_device.iter().sum::<f64>() >= 0.85
    }
}

fn shares(start: fn(&Setup) -> Result<Cluster>) -> Result<()> {
    // One worker, so that the device is one core, and the programs and the rest of the machine have another.
    let cluster = start(&Setup::servers(1).each(&["--device", "software", "--workers", "1"]))?;
    let wanted = [0.25, 0.75];
    let parts = [("ann", "25%"), ("bob", "75%")];
    let mut puppets = parts
        .map(|(tenant, share)| {
            puppet(&cluster, tenant, &["--gpus", "1", "--gpu-memory", "128MiB", "--share", share])
        })
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    for puppet in &mut puppets {
        puppet.success("launch 0")?;
    }
    // Shares are limits, not weights: where others take the machine's time, both get what they can. So nobody may ever have
    // more than is granted, but that everybody has as much is tried three times.
    let mut starved = false;
    for attempt in 1.. {
        let got = Shares::measure(&cluster, &mut puppets)?;
        for (got, wanted) in got.at_least.iter().zip(wanted) {
            ensure!(*got <= wanted + 0.05, "{got:.3} of the device's time, and {wanted} is granted");
        }
        if got.are(wanted) {
            break;
        }
        // A processor that is there but not for us (another's, or beyond a container's limit) counts as idle.
        starved |= got.of_device.iter().sum::<f64>() < 0.85 && (got.idle < 0.25 || got.waited > 0.05);
        if attempt == 3 {
            ensure!(!starved, Skip("other programs leave this machine too little time".into()));
            bail!("the device time of both is not what was granted, and the machine had time to give");
        }
    }
    for puppet in puppets {
        puppet.finish()?;
    }
    cluster.wait_idle(SOON)
}
