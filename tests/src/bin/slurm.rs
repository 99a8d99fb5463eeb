//! `rgpu-slurm-jobs JOBS SEED`: what `cargo xtask slurm` runs. The same jobs on the same Slurm cluster of four nodes with a GPU each: once with
//! whole GPUs that Slurm gives (`--gres`), once with the parts of GPUs that they ask rgpu for.

use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rgpu_control::api::LeaseState;
use rgpu_tests::cluster::{self, Cluster};
use rgpu_tests::examples::{self, Linking};
use rgpu_tests::product::Product;
use rgpu_tests::slurm::{Programs, Setup, Slurm};
use rgpu_tests::toolkit::Version;

/// Nodes, each with one GPU.
const NODES: usize = 4;
/// Which parts of a GPU jobs need, in thousandths, and how many of 20 jobs need them.
const SHARES: [(u16, u64); 4] = [(125, 4), (250, 6), (500, 6), (1000, 4)];
/// How long a job holds its GPUs, in tenths of seconds.
const TIMES: [u64; 5] = [10, 15, 20, 30, 40];

/// A job.
#[derive(Debug, Clone, Copy)]
struct Job {
    gpus: u16,
    share_milli: u16,
    tenths: u64,
}

/// Jobs of mixed sizes, by chance that a seed tells: every tenth has two GPUs.
fn jobs(count: usize, seed: u64) -> Vec<Job> {
    let mut state = seed;
    // SplitMix64.
    let mut below = |n: u64| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    };
    (0..count)
        .map(|_| {
            let mut at = below(20);
            let share = SHARES.iter().find(|(_, weight)| {
                let found = at < *weight;
                at = at.saturating_sub(*weight);
                found
            });
            Job {
                gpus: 1 + u16::from(below(10) == 0),
                share_milli: share.map_or(1000, |(share, _)| *share),
                tenths: TIMES[below(TIMES.len() as u64) as usize],
            }
        })
        .collect()
}

/// What came of them.
struct Ran {
    makespan: Duration,
    right: usize,
    /// What they held, in seconds of whole GPUs, while their programs ran.
    gpu_seconds: f64,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [count, seed] = arguments.as_slice() else { bail!("give: JOBS SEED") };
    let jobs = jobs(count.parse()?, seed.parse()?);
    let (product, programs) = (Product::build()?, Programs::find()?);
    let example = examples::all()?.into_iter().find(|example| example.name == "vector_add");
    let program = example.context("There is no vector_add")?.program(Version::Cuda13, Linking::Static);
    ensure!(program.exists(), "{} is missing: `cargo xtask examples` compiles it", program.display());
    let program = program.to_str().context("The path is not UTF-8")?;

    println!("{} jobs, {NODES} nodes with one GPU each, seed {seed}", jobs.len());
    let inside = format!("{} run --in-process --workers 1 -- {program}", product.rgpu().display());
    let whole = {
        let (cluster, slurm) = start(&product, &programs)?;
        let ran = submit(&slurm, &jobs, &inside, |job| {
            vec![
                format!("--nodes={}", job.gpus),
                "--gres=gpu:1".into(),
                format!("--comment={}", 1000 * job.gpus),
            ]
        })?;
        drop((slurm, cluster));
        ran
    };
    say("whole GPUs (gres)", &whole, jobs.len());
    let (cluster, slurm) = start(&product, &programs)?;
    let mut sync = slurm.sync(&cluster, &product)?;
    let mut sync = sync.args(["--interval", "2s"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let parts = submit(&slurm, &jobs, program, |job| {
        vec![
            format!("--rgpus={}", job.gpus),
            format!("--rgpu-share={}", f64::from(job.share_milli) / 1000.0),
            format!("--comment={}", job.gpus * job.share_milli),
        ]
    });
    let _ = sync.kill();
    let _ = sync.wait();
    let parts = parts?;
    say("parts of GPUs (rgpu)", &parts, jobs.len());
    let leases = cluster.leases(true)?;
    let ended = leases.iter().filter(|lease| lease.state == LeaseState::Ended).count();
    println!("leases: {}, of which ended: {ended}", leases.len());
    println!("nodes: {}", slurm.node_states()?.join(", "));
    println!(
        "makespan: {:.2} times as short; GPU-seconds held: {:.2} times as few",
        whole.makespan.as_secs_f64() / parts.makespan.as_secs_f64(),
        whole.gpu_seconds / parts.gpu_seconds
    );
    ensure!(whole.right == jobs.len() && parts.right == jobs.len(), "not all jobs were right");
    ensure!(leases.len() == jobs.len() && ended == leases.len(), "leases are left, or too few");
    Ok(())
}

fn start(product: &Product, programs: &Programs) -> Result<(Cluster, Slurm)> {
    let options = ["--device", "software", "--memory", "1G", "--workers", "1"];
    let setup = cluster::Setup::servers(NODES).each(&options).config("[policy]\nspread = false\n");
    let cluster = Cluster::on_loopback(product, &setup)?;
    let setup = Setup {
        nodes: NODES,
        cpus: 16,
        licences: 1000 * NODES as u64,
        gpus: 1,
        wait: "10m".into(),
        ..Setup::default()
    };
    let slurm = Slurm::start(programs, product, &cluster, &setup)?;
    Ok((cluster, slurm))
}

/// Submits all jobs, one after the other, and waits for their ends.
fn submit(slurm: &Slurm, jobs: &[Job], program: &str, options: impl Fn(&Job) -> Vec<String>) -> Result<Ran> {
    let began = Instant::now();
    let mut ids = Vec::new();
    for job in jobs {
        // The program before and after the time in which the job holds its GPUs.
        let pause = job.tenths as f64 / 10.0;
        let script = format!(
            "begin=$(date +%s%N)\n{program} && sleep {pause} && {program} && echo took $(($(date +%s%N) - begin))"
        );
        let options = options(job);
        let all: Vec<&str> = options.iter().map(String::as_str).collect();
        ids.push(slurm.submit("job", &all, &script)?);
    }
    println!("submitted after {:.1} s", began.elapsed().as_secs_f64());
    let end = Instant::now() + Duration::from_secs(3600);
    while !slurm.run("squeue", &["-h"])?.trim().is_empty() {
        ensure!(Instant::now() < end, "the jobs did not end within an hour\n{}", slurm.logs());
        std::thread::sleep(Duration::from_millis(250));
    }
    let makespan = began.elapsed();
    let mut ran = Ran { makespan, right: 0, gpu_seconds: 0.0 };
    for (job, id) in jobs.iter().zip(ids) {
        let output = slurm.output("job", id);
        if output.matches("vector_add: ok").count() == 2 && slurm.field(id, "State")? == "COMPLETED" {
            ran.right += 1;
        } else {
            println!("job {id} ({job:?}): {output}");
        }
        let took =
            output.lines().find_map(|line| line.strip_prefix("took ")?.parse::<f64>().ok()).unwrap_or(0.0);
        let milli: f64 = slurm.field(id, "Comment")?.parse()?;
        ran.gpu_seconds += took / 1e9 * milli / 1000.0;
    }
    Ok(ran)
}

fn say(what: &str, ran: &Ran, all: usize) {
    println!(
        "{what}: {} of {all} right, makespan {:.1} s, {:.1} GPU-seconds held",
        ran.right,
        ran.makespan.as_secs_f64(),
        ran.gpu_seconds
    );
}
