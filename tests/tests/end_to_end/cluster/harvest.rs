//! Harvesting on a living system: programs that leave most of what they were promised, and more of them than fit by promise.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rgpu_control::api::{Lease, LeaseState};
use rgpu_control::token::Role;
use rgpu_test_runner::Test;
use rgpu_tests::cluster::puppet::Puppet;
use rgpu_tests::cluster::{Cluster, Setup};
use rgpu_tests::process;

use super::{SOON, on_loopback, puppet};

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![Test::alone(
        "cluster::what_programs_leave_is_lent_and_owners_keep_what_they_were_promised",
        harvested,
    )]
}

/// What each program asks for: two fit a device.
const SHARE: &str = "40%";
/// How many programs there are.
const PROGRAMS: usize = 4;
/// How long they may work in each way, in seconds.
const SECONDS: u64 = 25;
/// A program works for so long, and then rests for so long.
const BURST: &str = "work 0 0 0.05";
const REST: Duration = Duration::from_millis(400);

fn cluster(policy: &str) -> Result<Cluster> {
    let setup = Setup::servers(1).each(&["--device", "software", "--memory", "2G", "--workers", "2"]);
    on_loopback(&setup.config(&format!("[policy]\nname = {policy:?}\n")))
}

fn options(harvest: bool) -> Vec<&'static str> {
    let mut options = vec!["--gpus", "1", "--gpu-memory", "256MiB", "--share", SHARE];
    options.extend(harvest.then_some("--harvest"));
    options
}

/// Programs, of which the first have leases before the others ask for any.
fn programs(cluster: &Cluster, harvest: bool) -> Result<Vec<Puppet>> {
    let mut puppets = Vec::new();
    for number in 0..PROGRAMS {
        puppets.push(puppet(cluster, "ann", &options(harvest))?);
        cluster.wait("the lease is asked for", SOON, |cluster| {
            Ok(cluster.leases(false)?.len() == number + 1
                && (number >= 2 || active(cluster)?.len() == number + 1))
        })?;
    }
    Ok(puppets)
}

/// The active leases, the oldest first.
fn active(cluster: &Cluster) -> Result<Vec<Lease>> {
    let mut leases = cluster.leases(false)?;
    leases.retain(|lease| lease.state == LeaseState::Active);
    Ok(leases)
}

/// Kernels that each program gets done in bursts, within a time in which it may wait for a lease, too.
fn bursts(puppets: &mut [Puppet], time: Duration) -> Result<Vec<u64>> {
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        let work = |puppet: &mut Puppet| -> Result<u64> {
            let mut kernels = 0;
            while Instant::now() < until {
                puppet.tell(BURST)?;
                // Who has no lease says nothing.
                let Ok(answer) = puppet.answer(BURST, until.saturating_duration_since(Instant::now())) else {
                    break;
                };
                kernels += answer.first().and_then(|count| count.parse::<u64>().ok()).context("no count")?;
                std::thread::sleep(REST);
            }
            Ok(kernels)
        };
        let threads: Vec<_> = puppets.iter_mut().map(|puppet| scope.spawn(move || work(puppet))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    })
}

/// Device time of each active lease so far, in ms.
fn used(cluster: &Cluster) -> Result<Vec<f64>> {
    Ok(active(cluster)?.iter().map(|lease| lease.usage.iter().map(|of| of.busy_ms as f64).sum()).collect())
}

/// The broker's metrics.
fn metrics(cluster: &Cluster) -> Result<String> {
    let url = cluster.url();
    let mut stream = TcpStream::connect(url.strip_prefix("http://").context("no address")?)?;
    let token = cluster.token(Role::Admin, "root");
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn harvested() -> Result<()> {
    let time = Duration::from_secs(SECONDS);
    let fixed = {
        let cluster = cluster("drmaestro")?;
        let mut puppets = programs(&cluster, false)?;
        let kernels = bursts(&mut puppets, time)?;
        ensure!(active(&cluster)?.iter().all(|lease| lease.version == 1 && lease.sizes.is_empty()));
        kernels
    };
    let cluster = cluster("cbp-pp")?;
    let mut puppets = programs(&cluster, true)?;
    let lent = bursts(&mut puppets, time)?;
    let (before, after) = (fixed.iter().sum::<u64>(), lent.iter().sum::<u64>());
    println!(
        "kernels in {SECONDS} s: {before} with fixed leases {fixed:?}, {after} where time is lent {lent:?}"
    );
    let leases = active(&cluster)?;
    println!("sizes: {:?}", leases.iter().map(|lease| lease.sizes.clone()).collect::<Vec<_>>());
    let listed = process::run(&mut cluster.client("ann", &["leases"])?)?.success()?;
    println!("{}", listed.stdout);
    ensure!(listed.stdout.contains("FIRM") && listed.stdout.contains("SET ASIDE"), "{}", listed.stdout);
    ensure!(leases.len() == PROGRAMS, "only {} programs have a lease", leases.len());
    ensure!(after * 10 >= before * 13, "{after} kernels are less than 1.3 times {before}");
    ensure!(
        leases.iter().any(|lease| lease.sizes.iter().any(|size| size.set_aside_milli < 400)),
        "{leases:?}"
    );
    // The owners did as much as they do with fixed leases, of which each gets what it wants as long as it does not meet the other.
    for owner in 0..2 {
        ensure!(
            lent[owner] * 10 >= fixed[owner] * 7,
            "an owner got less done: {lent:?}, and {fixed:?} before"
        );
    }
    // Now all of them want all they can get. The first two have what they were promised, of what there is; the last one, which
    // has nothing firm, what they leave.
    let firm: Vec<f64> = leases.iter().map(|lease| f64::from(lease.sizes[0].firm_milli) / 1000.0).collect();
    ensure!(firm == [0.4, 0.4, 0.2, 0.0], "{firm:?}");
    for puppet in &mut puppets {
        puppet.tell("work 0 0 14")?;
    }
    std::thread::sleep(Duration::from_secs(4));
    let first = used(&cluster)?;
    std::thread::sleep(Duration::from_secs(8));
    let last = used(&cluster)?;
    let ms: Vec<f64> = last.iter().zip(&first).map(|(last, first)| last - first).collect();
    let all: f64 = ms.iter().sum();
    let parts: Vec<f64> = ms.iter().map(|ms| ms / all).collect();
    println!("when all want all: {parts:.3?} of {all:.0} ms of device time, and {firm:?} are firm");
    for puppet in &mut puppets {
        puppet.answer("work", SOON)?;
    }
    // Where other programs take the machine's time, nobody gets what was promised, and what each gets is the machine's choice.
    let enough = all >= 0.85 * 8000.0;
    if enough {
        for (part, firm) in parts.iter().zip(&firm) {
            ensure!(*part >= firm - 0.06, "{parts:?} of the device's time, and {firm:?} are firm");
        }
    } else {
        println!(
            "other programs leave this machine too little time: whether each has its firm part is not seen"
        );
    }
    // What they use is set aside for them again, and each change was ordered and heard of.
    let resized = metrics(&cluster)?;
    let value = |name: &str| -> Option<f64> {
        let line = resized.lines().find(|line| line.split(' ').next() == Some(name))?;
        line.split(' ').nth(1)?.parse().ok()
    };
    let count = value("rgpu_broker_resize_seconds_count").context("no times of resizes")?;
    let within = value("rgpu_broker_resize_seconds_bucket{le=\"0.1\"}").context("no such bucket")?;
    println!("{count} resizes, {within} of them reported by the node within 0.1 s of the decision");
    ensure!(count >= 4.0 && within >= count * 0.5, "{resized}");
    for puppet in puppets {
        puppet.finish()?;
    }
    cluster.wait_idle(SOON)
}
