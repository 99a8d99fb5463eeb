//! What a lease has of its node's processors and caches. The machine's resctrl is a tree of plain files: what is tested is which
//! groups a server makes of it, and for whom, not what a processor makes of those.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rgpu_control::api::{Lease, LeaseChange, ProcessorUsage};
use rgpu_test_runner::Test;
use rgpu_tests::cluster::{Cluster, Setup};
use rgpu_tests::process;
use rgpu_tests::product::temporary;

use super::{SOON, on_loopback, puppet};

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster::a_lease_has_processors_and_cache_ways_of_its_own", held),
        Test::new("cluster::what_a_machine_cannot_give_is_said_once", said_once),
    ]
}

const CONFIG: &str = "[processors]\ncores = true\nweights = true\n\
    [[profile]]\nname = \"cached\"\nlocal_s = 1.0\nllc_ways = 2\nmemory_bandwidth_percent = 40\n";

const OPTIONS: [&str; 8] = ["--gpus", "1", "--gpu-memory", "256MiB", "--share", "50%", "--profile", "cached"];

/// Files as resctrl and a cgroup have them.
fn trees() -> Result<PathBuf> {
    let place = temporary("processors");
    for folder in ["resctrl/info/L3", "resctrl/info/MB", "cgroup"] {
        fs::create_dir_all(place.join(folder))?;
    }
    fs::write(place.join("resctrl/schemata"), "    L3:0=fff;1=fff\n    MB:0=100;1=100\n")?;
    fs::write(place.join("resctrl/info/L3/cbm_mask"), "fff\n")?;
    fs::write(place.join("resctrl/info/L3/min_cbm_bits"), "1\n")?;
    fs::write(place.join("cgroup/cgroup.controllers"), "cpu memory\n")?;
    Ok(place)
}

fn setup(place: &Path) -> Setup {
    let [resctrl, cgroup] = ["resctrl", "cgroup"].map(|tree| place.join(tree).display().to_string());
    let options = ["--device", "software", "--memory", "2G", "--resctrl", &resctrl, "--cgroup", &cgroup];
    Setup::servers(1).each(&options).config(CONFIG)
}

/// On how many processors each thread of a process may run.
fn affinity(process: u32) -> Result<Vec<usize>> {
    let threads = fs::read_dir(format!("/proc/{process}/task"))?;
    let count = |status: String| {
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned();
        let part = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(last.parse::<usize>().ok()? - first.parse::<usize>().ok()? + 1)
        };
        list.split(',').map(part).sum::<Option<usize>>()
    };
    threads
        .map(|thread| {
            let status = fs::read_to_string(thread?.path().join("status"))?;
            count(status).context("no list of processors")
        })
        .collect()
}

fn usage(lease: &Lease) -> ProcessorUsage {
    lease.processors.first().map(|node| node.usage.clone()).unwrap_or_default()
}

/// Waits until all threads of the only application's server process may run on so many processors.
fn wait_for_affinity(cluster: &Cluster, cores: usize) -> Result<()> {
    cluster.wait("the process is held to its processors", SOON, |cluster| {
        let servers = cluster.nodes[0].application_servers();
        let [server] = servers[..] else { return Ok(false) };
        let threads = affinity(server)?;
        Ok(!threads.is_empty() && threads.iter().all(|count| *count == cores))
    })
}

fn held() -> Result<()> {
    let place = trees()?;
    let resctrl = place.join("resctrl");
    // One group is an earlier server's of this node, one another node's.
    let (stale, other) = (resctrl.join("rgpu.s0.00000000000000ff"), resctrl.join("rgpu.s9.00000000000000ff"));
    fs::create_dir(&stale)?;
    fs::create_dir(&other)?;
    fs::write(other.join("schemata"), "L3:0=f00;1=f00\n")?;
    let cluster = on_loopback(&setup(&place))?;
    ensure!(!stale.exists() && other.exists(), "groups of an earlier server stay, or another node's do not");
    let controls = cluster.node_infos()?[0].controls.clone().context("the node says nothing")?;
    ensure!(controls.llc_ways == 11 && controls.memory_bandwidth && controls.weights, "{controls:?}");

    let mut puppet = puppet(&cluster, "ann", &OPTIONS)?;
    let all = std::thread::available_parallelism()?.get();
    ensure!(controls.cores as usize == all, "{controls:?}");
    // The session begins with the first call; its threads are held whenever they were started.
    puppet.success("launch 0")?;
    wait_for_affinity(&cluster, all.div_ceil(2))?;
    let lease = cluster.only_lease()?.id;
    let group = format!("rgpu.s0.{lease}");
    let read = |file: &str| Ok::<_, anyhow::Error>(fs::read_to_string(place.join(file))?);
    let schemata = read(&format!("resctrl/{group}/schemata"))?;
    // The highest ways are the other node's.
    ensure!(schemata == "L3:0=c0;1=c0\nMB:0=40;1=40\n", "{schemata}");
    let server = cluster.nodes[0].application_servers()[0].to_string();
    for file in [format!("resctrl/{group}/tasks"), format!("cgroup/{group}/cgroup.procs")] {
        let text = read(&file)?;
        ensure!(text.lines().any(|line| line == server), "{file} lacks {server}: {text:?}");
    }
    let weight = read(&format!("cgroup/{group}/cpu.weight"))?;
    ensure!(weight == "50\n", "{weight}");

    puppet.ask("work 0 0.1 0.5")?;
    cluster.wait("the broker is told what is used, and what the lease has", SOON, |cluster| {
        let usage = usage(&cluster.only_lease()?);
        let has = (usage.llc_mask.as_deref(), usage.memory_bandwidth_percent, usage.weight);
        Ok(usage.cpu_ms > 0 && has == (Some("c0"), Some(40), Some(50)) && usage.cores.is_some())
    })?;
    let cores = usage(&cluster.only_lease()?).cores.context("no processors")?;
    let shown = process::run(&mut cluster.client("ann", &["leases"])?)?.success()?.stdout;
    let line = shown.lines().nth(1).context("no lease is shown")?;
    ensure!(line.split_whitespace().any(|word| word == cores), "{cores} is not in {shown}");

    // More of the device is more processors.
    let change = LeaseChange { share_milli: Some(1000), memory: None };
    cluster.tenant("ann", move |broker| broker.change_lease(lease, &change))?;
    wait_for_affinity(&cluster, all)?;
    puppet.finish()?;
    cluster.wait_idle(SOON)?;
    cluster.wait("the lease's groups are gone", SOON, |_| {
        Ok(!resctrl.join(&group).exists() && !place.join("cgroup").join(&group).exists())
    })?;
    drop(cluster);
    ensure!(other.exists(), "another node's group is gone");
    fs::remove_dir_all(place)?;
    Ok(())
}

fn said_once() -> Result<()> {
    let cluster = on_loopback(&setup(&temporary("no-such-place")))?;
    for _ in 0..2 {
        let mut puppet = puppet(&cluster, "ann", &OPTIONS)?;
        puppet.success("launch 0")?;
        let all = std::thread::available_parallelism()?.get();
        // What it can do, it does.
        wait_for_affinity(&cluster, all.div_ceil(2))?;
        puppet.finish()?;
        cluster.wait_idle(SOON)?;
    }
    let log = cluster.nodes[0].log();
    let count = |part: &str| log.lines().filter(|line| line.contains(part)).count();
    ensure!(count("not: cache ways and memory bandwidth") == 1, "{log}");
    ensure!(count("is to have ways of the last-level cache") == 1, "{log}");
    ensure!(count("is to have a weight") == 1, "{log}");
    Ok(())
}
