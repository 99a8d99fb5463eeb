//! Leases on servers that drive NVIDIA's driver, for which our own library stands in: launches go through the code that paces
//! them on real GPUs, and are executed by the software GPU behind the driver's interface.

use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::cluster::puppet::Puppet;
use rgpu_tests::cluster::{Cluster, Setup};
use rgpu_tests::product;

use super::{SOON, on_loopback};
use crate::context::plain;

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::alone("cluster::launches_on_nvidia_devices_are_paced", pacing),
        Test::new("cluster::the_multi_process_service_gives_programs_their_part_while_it_runs", service),
        Test::new("cluster::how_devices_are_divided_must_be_possible", impossible),
    ]
}

fn over_driver(options: &[&str]) -> Result<Setup> {
    let shim = crate::context::product()?.shim();
    let shim = shim.to_str().context("The library's path is not UTF-8")?.to_owned();
    let all = [&["--device", "nvidia", "--driver", &shim, "--memory", "1G"], options].concat();
    Ok(Setup::servers(1).each(&all))
}

/// Device time in seconds and launches that a tenant's lease has used.
fn used(cluster: &Cluster, tenant: &str) -> Result<(f64, u64)> {
    let leases = cluster.leases(false)?;
    let lease = leases.iter().find(|lease| lease.tenant == tenant).context("the lease is gone")?;
    Ok(lease.usage.first().map_or((0.0, 0), |usage| (usage.busy_ms as f64 / 1e3, usage.launches)))
}

/// Two programs that would like to have all of the device: neither gets more than its lease gives, however busy the machine is.
fn pacing() -> Result<()> {
    let cluster = on_loopback(&over_driver(&[])?.environment("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent"))?;
    let by = cluster.devices()?.first().map(|device| device.report.enforced_by.clone());
    ensure!(by.as_deref() == Some("pacing"), "leases are held to their share by {by:?}");
    let mut programs = vec![];
    for (tenant, share) in [("ann", "25%"), ("bob", "75%")] {
        let options = ["--gpus", "1", "--gpu-memory", "128MiB", "--share", share];
        let mut puppet = super::puppet(&cluster, tenant, &options)?;
        puppet.success("launch 0")?;
        programs.push((tenant, puppet));
    }
    // A kernel that is being executed while the machine is busy elsewhere takes long on the device's clock, too. That is paid
    // back, but perhaps not before the end; so this may be tried again.
    for attempt in 1.. {
        let worst = excess(&cluster, &mut programs)?;
        if worst <= 0.0 {
            break;
        }
        ensure!(attempt < 3, "three times a program used more than its share, at last by {worst:.3} s");
    }
    for (_, puppet) in programs {
        puppet.finish()?;
    }
    Ok(())
}

/// Has programs with 25% and 75% of a device work for three seconds. By how many seconds the worse of them used more than it
/// may; negative where neither did.
fn excess(cluster: &Cluster, programs: &mut [(&str, Puppet)]) -> Result<f64> {
    let before = programs.iter().map(|(tenant, _)| used(cluster, tenant)).collect::<Result<Vec<_>>>()?;
    let mut times = vec![];
    let begun = Instant::now();
    for (_, puppet) in &mut *programs {
        puppet.tell("work 0 0 3")?;
    }
    for (tenant, puppet) in &mut *programs {
        let answer = puppet.answer("work", Duration::from_secs(60))?;
        let count: u64 = answer.first().and_then(|n| n.parse().ok()).unwrap_or(0);
        ensure!(count > 0, "{tenant} got nothing of the device: {answer:?}");
        times.push((begun.elapsed().as_secs_f64(), count));
    }
    let mut worst = f64::MIN;
    for (i, (tenant, _)) in programs.iter().enumerate() {
        let (share, (time, count)) = ([0.25, 0.75][i], times[i]);
        let mut seen = (0.0, 0);
        cluster.wait("the broker is told what was used", SOON, |cluster| {
            seen = used(cluster, tenant)?;
            Ok(seen.1 >= before[i].1 + count)
        })?;
        let device = seen.0 - before[i].0;
        println!("{tenant}: {device:.3} s of the device in {time:.3} s, {count} kernels");
        ensure!(device > 0.0, "nothing was measured for {tenant}");
        // What was saved up, and a kernel that was being executed in the end and took long.
        worst = worst.max(device - (share * (time + 0.25) + 0.5));
    }
    Ok(worst)
}

/// The variables that the processes of applications were started with.
fn environments(cluster: &Cluster) -> Vec<Vec<String>> {
    let processes = cluster.nodes[0].application_servers();
    let is_application = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains("__app-server"))
    };
    processes
        .into_iter()
        .filter(is_application)
        .filter_map(|pid| std::fs::read(format!("/proc/{pid}/environ")).ok())
        .map(|bytes| String::from_utf8_lossy(&bytes).split('\0').map(str::to_owned).collect())
        .collect()
}

fn service() -> Result<()> {
    let folder = product::temporary("mps");
    std::fs::create_dir(&folder)?;
    // Who listens there is enough: our own library does not ask it for anything.
    let control = UnixListener::bind(folder.join("control"))?;
    let setup = over_driver(&["--partition", "mps"])?;
    let said = folder.to_str().context("The folder's path is not UTF-8")?;
    let cluster = on_loopback(&setup.environment("CUDA_MPS_PIPE_DIRECTORY", said))?;
    let by = cluster.devices()?.first().map(|device| device.report.enforced_by.clone());
    ensure!(by.as_deref() == Some("mps"), "leases are held to their share by {by:?}");
    // What a client has in its environment is its own affair.
    let mut command = cluster.run("ann", &["--gpus", "1", "--gpu-memory", "128MiB", "--share", "25%"])?;
    command.env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "77").arg("--").arg(plain("puppet")?);
    let mut puppet = Puppet::start(command)?;
    puppet.success("launch 0")?;
    let found = environments(&cluster);
    ensure!(found.len() == 1, "{} processes of applications", found.len());
    let wanted = [
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25".to_owned(),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=392M".to_owned(),
        format!("CUDA_MPS_PIPE_DIRECTORY={said}"),
    ];
    for variable in wanted {
        ensure!(found[0].contains(&variable), "{variable} is not among {:?}", found[0]);
    }
    let log = cluster.nodes[0].log();
    ensure!(log.contains("mps at 25%"), "the log does not say what holds the lease\n{log}");
    puppet.finish()?;
    cluster.wait_idle(SOON)?;
    // It ends. Sessions that begin then are paced, and are told nothing of it.
    drop(control);
    let mut puppet =
        super::puppet(&cluster, "ann", &["--gpus", "1", "--gpu-memory", "128MiB", "--share", "25%"])?;
    puppet.success("launch 0")?;
    let found = environments(&cluster);
    ensure!(found.len() == 1, "{} processes of applications", found.len());
    let told = found[0]
        .iter()
        .find(|variable| variable.starts_with("CUDA_MPS_ACTIVE") || variable.starts_with("CUDA_MPS_PINNED"));
    ensure!(told.is_none(), "{told:?} is of no use without the service");
    let log = cluster.nodes[0].log();
    for word in ["this session's launches are paced", "held_by"] {
        ensure!(log.contains(word), "the log does not say `{word}`\n{log}");
    }
    puppet.finish()?;
    cluster.wait_idle(SOON)?;
    let _ = std::fs::remove_dir_all(&folder); // only tidiness
    Ok(())
}

fn impossible() -> Result<()> {
    let product = crate::context::product()?;
    let shim = product.shim();
    let shim = shim.to_str().context("The library's path is not UTF-8")?;
    let cases: [(&[&str], &str); 3] = [
        (&["--device", "nvidia", "--driver", shim, "--partition", "mps"], "nvidia-cuda-mps-control"),
        (&["--device", "nvidia", "--driver", shim, "--partition", "mig"], "nvidia-smi -L"),
        (&["--device", "software", "--partition", "pacing"], "--partition"),
    ];
    for (options, wanted) in cases {
        let mut command = product::clean(&product.rgpu());
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(options);
        command.env("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent");
        let ended = rgpu_tests::process::run(&mut command)?;
        let text = ended.stderr.clone();
        ensure!(ended.success().is_err() && text.contains(wanted), "{options:?}: {text}");
    }
    Ok(())
}
