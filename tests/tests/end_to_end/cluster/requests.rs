//! What requests say beside how many GPUs they want: deadlines, and NVMe devices.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use rgpu_control::api::{Lease, LeaseState};
use rgpu_control::settings::{DEADLINE_VARIABLE, NVME_DEVICES_VARIABLE};
use rgpu_test_runner::Test;
use rgpu_tests::cluster::puppet::Puppet;
use rgpu_tests::cluster::{Cluster, Setup};
use rgpu_tests::process;
use rgpu_tests::product::temporary;

use super::SOON;
use crate::context::product;

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster::a_tight_deadline_gets_a_whole_gpu_and_a_lax_one_a_part", deadlines),
        Test::new("cluster::nvme_devices_are_attached_for_a_lease_and_detached_after_it", nvmes),
        Test::new("cluster::an_nvme_device_that_cannot_be_attached_gives_the_lease_back", not_attached),
        Test::new("cluster::a_server_that_restarts_detaches_what_is_left_over", left_over),
    ]
}

/// Starts a program that answers what it is told, with a lease that these options ask for.
fn cat(cluster: &Cluster, options: &[&str], environment: Option<(&str, &str)>) -> Result<Puppet> {
    let mut command = cluster.run("ann", options)?;
    command.envs(environment).args(["--", "cat"]);
    let mut puppet = Puppet::start(command)?;
    puppet.ask("begun")?;
    Ok(puppet)
}

fn active(cluster: &Cluster) -> Result<Vec<Lease>> {
    let mut leases = cluster.leases(false)?;
    leases.retain(|lease| lease.state == LeaseState::Active);
    Ok(leases)
}

fn deadlines() -> Result<()> {
    let cluster = Cluster::on_loopback(product()?, &Setup::servers(2))?;
    let tight = cat(&cluster, &["--share", "auto", "--deadline", "50m", "--estimate", "40m"], None)?;
    let whole = active(&cluster)?.pop().context("no lease")?;
    ensure!(whole.grants[0].share_milli == 1000, "a tight deadline got {:?}", whole.grants);
    // Eight times as long with an eighth: by the environment this time.
    let options = ["--share", "auto", "--estimate", "40m"];
    let lax = cat(&cluster, &options, Some((DEADLINE_VARIABLE, "8h")))?;
    let part = active(&cluster)?.into_iter().find(|lease| lease.id != whole.id).context("no lease")?;
    ensure!(part.grants[0].share_milli == 125, "a lax deadline got {:?}", part.grants);
    ensure!(part.grants[0].memory == (2 << 30) / 1000 * 125, "{:?}", part.grants);
    ensure!((whole.deadline_kept, part.deadline_kept) == (Some(true), Some(true)), "{whole:?} {part:?}");
    let listed = process::run(&mut cluster.client("ann", &["leases"])?)?.success()?.stdout;
    // A moment may have passed.
    let shows = |texts: [&str; 2]| texts.iter().any(|text| listed.contains(text));
    ensure!(shows(["in 50m", "in 49m"]) && shows(["in 8h", "in 7h"]), "{listed}");
    let id = part.id.to_string();
    let why = process::run(&mut cluster.client("ann", &["explain", &id])?)?.success()?.stdout;
    ensure!(why.contains("expected to be kept") && why.contains("125/1000"), "{why}");
    // Nonsense is said to be that before anything waits.
    for (options, words) in [
        (["--deadline", "1m", "--estimate", "2m"], "no device keeps that deadline"),
        (["--share", "auto", "--estimate", "2m"], "none is given"),
    ] {
        let finished = process::run(cluster.run("ann", &options)?.args(["--", "true"]))?;
        ensure!(!finished.status.success() && finished.stderr.contains(words), "{}", finished.output());
    }
    tight.finish()?;
    lax.finish()?;
    cluster.wait_idle(SOON)
}

/// A folder with commands that stand in for those that attach and detach NVMe devices, and what they were called with.
struct Commands(PathBuf);

impl Commands {
    fn new() -> Result<Self> {
        let folder = temporary("nvme");
        fs::create_dir_all(&folder)?;
        let script = format!(
            "#!/bin/sh\necho \"$*\" >> {0}/log\nif [ $1 = attach ] && [ -e {0}/fail ]; then\n echo nothing works >&2\n \
             echo no path to $2 >&2\n exit 3\nfi\necho working\necho /dev/fake-$2\n",
            folder.display()
        );
        let path = folder.join("nvme");
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        Ok(Self(folder))
    }

    /// A cluster of one server, with a GPU and two NVMe devices.
    fn cluster(&self, mut setup: Setup) -> Result<Cluster> {
        let command =
            |what: &str| format!("{}/nvme {what} {{device}} {{lease}} {{target}} {{host}}", self.0.display());
        let state = self.0.join("state").display().to_string();
        let options = [
            "--nvme=small=1G,10Gbit".to_owned(),
            "--nvme=large=4G,20Gbit".to_owned(),
            format!("--nvme-attach={}", command("attach")),
            format!("--nvme-detach={}", command("detach")),
            format!("--nvme-state={state}"),
        ];
        setup.servers[0].extend(options);
        Cluster::on_loopback(product()?, &setup)
    }

    /// What was called, the first two words of each.
    fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.0.join("log")).unwrap_or_default();
        log.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // only tidiness
    }
}

fn nvmes() -> Result<()> {
    let commands = Commands::new()?;
    let cluster = commands.cluster(Setup::servers(1))?;
    let show = format!("echo got ${NVME_DEVICES_VARIABLE}");
    let run = |options: &[&str]| -> Result<process::Finished> {
        process::run(cluster.run("ann", options)?.args(["--", "sh", "-c", &show]))
    };
    let finished = run(&["--gpus", "0", "--nvme", "1", "--nvme-capacity", "2G"])?.success()?;
    ensure!(finished.stdout.trim() == "got /dev/fake-large", "{}", finished.output());
    cluster.wait_idle(SOON)?;
    // The lease is over only when the device is detached.
    ensure!(commands.log() == ["attach large", "detach large"], "{:?}", commands.log());
    let finished = run(&["--gpus", "1", "--share", "50%", "--nvme", "2"])?.success()?;
    ensure!(finished.stdout.trim() == "got /dev/fake-small,/dev/fake-large", "{}", finished.output());
    cluster.wait_idle(SOON)?;
    ensure!(commands.log().len() == 6, "{:?}", commands.log());
    // What nobody has is refused at once.
    let refused = run(&["--nvme", "1", "--nvme-capacity", "5G"])?;
    ensure!(!refused.status.success() && refused.stderr.contains("never be granted"), "{}", refused.output());
    Ok(())
}

fn not_attached() -> Result<()> {
    let commands = Commands::new()?;
    let cluster = commands.cluster(Setup::servers(1))?;
    let fail = commands.0.join("fail");
    fs::write(&fail, "")?;
    let run = || process::run(cluster.run("ann", &["--nvme", "1"])?.args(["--", "echo", "it runs"]));
    let finished = run()?;
    ensure!(!finished.status.success() && !finished.stdout.contains("it runs"), "{}", finished.output());
    let reason = "could not attach its NVMe device small: no path to small";
    ensure!(finished.stderr.contains(reason), "{}", finished.output());
    cluster.wait_idle(SOON)?;
    let ended = cluster.leases(true)?.pop().context("no lease")?;
    ensure!(ended.reason.contains(reason), "{ended:?}");
    // Nothing is left of it: the next one has the device.
    fs::remove_file(&fail)?;
    run()?.success()?;
    cluster.wait_idle(SOON)
}

fn left_over() -> Result<()> {
    let commands = Commands::new()?;
    // The server that is killed has to be lost before another one takes its place at another address.
    let mut cluster = commands.cluster(Setup::servers(1).impatient())?;
    let program = cat(&cluster, &["--gpus", "0", "--nvme", "1"], None)?;
    ensure!(commands.log() == ["attach small"], "{:?}", commands.log());
    cluster.nodes[0].service()?.kill(false);
    cluster.start_node(0)?;
    // The lease goes on, so that the device is attached again.
    process::wait_until("the device is attached anew", SOON, || commands.log().len() >= 3)?;
    let log = commands.log();
    ensure!(log == ["attach small", "detach small", "attach small"], "{log:?}");
    program.finish()?;
    cluster.wait_idle(SOON)?;
    ensure!(commands.log().last().is_some_and(|last| last == "detach small"), "{:?}", commands.log());
    Ok(())
}
