//! Slurm's jobs get GPUs by options of sbatch, srun and salloc, and leave nothing behind, however they end: a whole Slurm cluster beside
//! a broker and servers with software GPUs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_control::api::{Lease, LeaseRequest, LeaseState};
use rgpu_control::slurm::{JobFiles, JobKey, JobRequest, REQUEST_VARIABLE};
use rgpu_control::token::{PrivateKey, Role};
use rgpu_test_runner::{Skip, Test};
use rgpu_tests::cluster::{self, Cluster};
use rgpu_tests::process::{self, wait_until};
use rgpu_tests::slurm::{Programs, SOON, Setup, Slurm};

use crate::context::{plain, product, signal};

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("slurm::jobs_of_all_kinds_get_one_lease_each", kinds),
        Test::new("slurm::however_a_job_ends_it_leaves_nothing", endings),
        Test::new("slurm::what_cannot_be_had_is_an_error_where_slurm_says_its_own", refused),
        Test::new("slurm::licences_follow_the_broker_and_leases_follow_the_jobs", sync),
        Test::new("slurm::a_lease_is_its_jobs_accounts_and_counts_for_its_limits", accounts),
        Test::new("slurm::a_lease_is_its_jobs_users", users),
        Test::new("slurm::a_prolog_that_is_told_the_account_does_not_ask_for_it", told),
    ]
}

/// Slurm with four nodes, and two GPUs.
struct World {
    slurm: Slurm,
    cluster: Cluster,
    program: String,
}

impl World {
    fn start(setup: &Setup) -> Result<Self> {
        Self::with(setup, "")
    }

    /// The same, with more of the broker's configuration.
    fn with(setup: &Setup, config: &str) -> Result<Self> {
        let program = plain("vector_add")?.to_str().context("The path is not UTF-8")?.to_owned();
        let programs = Programs::find().map_err(|e| Skip(format!("it needs Slurm: {e:#}")))?;
        let plugin = product()?.directory().join("librgpu_slurm.so");
        if !plugin.exists() {
            return Err(Skip(format!("{} is missing", plugin.display())).into());
        }
        let cluster =
            Cluster::on_loopback(product()?, &cluster::Setup::servers(2).impatient().config(config))?;
        let slurm =
            Slurm::start(&programs, product()?, &cluster, &Setup { licences: 2000, ..setup.clone() })?;
        Ok(Self { slurm, cluster, program })
    }

    /// The leases that there were, by their jobs.
    fn leases(&self) -> Result<BTreeMap<String, Lease>> {
        let leases = self.cluster.leases(true)?.into_iter();
        Ok(leases.filter_map(|lease| Some((lease.key.clone()?, lease))).collect())
    }

    fn lease(&self, job: u32, restart: u32) -> Result<Lease> {
        let key = JobKey { cluster: "test".into(), job, restart }.to_string();
        self.leases()?.remove(&key).with_context(|| format!("there was no lease {key}"))
    }

    /// Waits until no lease is left, nor what nodes keep of them; all nodes must be idle.
    fn nothing_is_left(&self) -> Result<()> {
        let mut seen = Vec::new();
        wait_until("nothing is left", SOON, || {
            seen = self.left().unwrap_or_else(|e| vec![format!("{e:#}")]);
            seen.is_empty()
        })
        .map(drop)
        .with_context(|| format!("left are {seen:?}\n{}", self.slurm.logs()))
    }

    fn left(&self) -> Result<Vec<String>> {
        let leases = self.cluster.leases(false)?.into_iter();
        let mut left: Vec<String> = leases
            .filter(|lease| lease.state != LeaseState::Ended)
            .map(|lease| format!("{} lease {:?} ({})", lease.state.name(), lease.key, lease.reason))
            .collect();
        for node in fs::read_dir(self.slurm.rgpu_spool()).into_iter().flatten().flatten() {
            if node.file_name() != "links" {
                for file in fs::read_dir(node.path())? {
                    left.push(format!("{}", file?.path().display()));
                }
            }
        }
        left.extend(self.keepers().into_iter().map(|pid| format!("process {pid}")));
        // The scheduler plans with idle nodes.
        left.extend(
            self.slurm
                .node_states()?
                .into_iter()
                .filter(|state| !["idle", "planned"].contains(&state.as_str())),
        );
        Ok(left)
    }

    /// The processes that renew leases.
    fn keepers(&self) -> Vec<u32> {
        let spool = self.slurm.rgpu_spool().to_string_lossy().into_owned();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains("slurm keep ") && line.contains(&spool)
        })
        .collect()
    }

    /// Submits a job that computes and then sleeps; answers when it sleeps.
    fn sleeper(&self, name: &str, options: &[&str]) -> Result<u32> {
        let script = format!("{} || exit 3\necho ready\nsleep 600", self.program);
        let job = self.slurm.submit(name, options, &script)?;
        self.wait_ready(name, job)?;
        Ok(job)
    }

    fn wait_ready(&self, name: &str, job: u32) -> Result<()> {
        wait_until("the job computes", SOON, || self.slurm.output(name, job).contains("ready"))
            .map(drop)
            .with_context(|| format!("{}\n{}", self.slurm.output(name, job), self.slurm.logs()))
    }

    /// Runs a batch job to its end, which must be good; what it wrote.
    fn batch(&self, name: &str, options: &[&str], script: &str) -> Result<(u32, String)> {
        let job = self.slurm.submit(name, options, script)?;
        let state = self.slurm.wait_state(job, &["COMPLETED", "FAILED", "CANCELLED"])?;
        let output = self.slurm.output(name, job);
        ensure!(state == "COMPLETED", "job {job} is {state}: {output}\n{}", self.slurm.logs());
        Ok((job, output))
    }
}

fn kinds() -> Result<()> {
    let world = World::start(&Setup::default())?;
    let program = world.program.as_str();
    let ok = |text: &str| text.matches("vector_add: ok").count();

    let text = world.slurm.run("srun", &["--rgpus=1", program])?;
    ensure!(ok(&text) == 1, "{text}");
    let text = world.slurm.run("salloc", &["--rgpu-share=25%", "srun", program])?;
    ensure!(ok(&text) == 1, "{text}");
    world.nothing_is_left()?;
    let shares: Vec<u16> = world.leases()?.values().map(|lease| lease.grants[0].share_milli).collect();
    ensure!(shares == [1000, 250], "{shares:?}");

    // Tasks on two nodes, and the script itself, have one lease; what else is preloaded stays.
    let script = format!(
        "export LD_PRELOAD=$LD_PRELOAD:/lib/x86_64-linux-gnu/libdl.so.2\n{program}\n\
         srun --nodes=2 --ntasks=2 sh -c '{program}; echo preload $LD_PRELOAD; stat -c \"mode %a %u\" $RGPU_LEASE'"
    );
    let (job, text) = world.batch("nodes", &["--nodes=2", "--rgpus=1", "--rgpu-memory=512M"], &script)?;
    ensure!(ok(&text) == 3, "{text}");
    // SAFETY: takes nothing.
    let mode = format!("mode 600 {}", unsafe { libc::getuid() });
    ensure!(text.matches(&mode).count() == 2, "{text}");
    for line in text.lines().filter(|line| line.starts_with("preload ")) {
        ensure!(line.matches("librgpu.so").count() == 1 && line.contains("libdl.so.2"), "{line}");
    }
    let of_job = |all: &BTreeMap<String, Lease>, job| {
        all.keys().filter(|key| key.contains(&format!("/{job}/"))).count()
    };
    ensure!(of_job(&world.leases()?, job) == 1 && world.lease(job, 0)?.grants[0].memory == 512 << 20);

    let first = world.slurm.submit("array", &["--array=0-2", "--rgpu-share=25%"], program)?;
    wait_until("the array's tasks end", SOON, || {
        let left = world.slurm.run("squeue", &["-h", "--job", &first.to_string()]);
        left.is_ok_and(|left| left.trim().is_empty())
    })?;
    world.nothing_is_left()?;
    let before = 3;
    ensure!(world.leases()?.len() == before + 3, "{:?}", world.leases()?.keys());

    // Each component has its own lease, and none by `--rgpus=0`.
    let options = ["--rgpu-share=25%", ":", "--rgpu-share=50%", ":", "--rgpus=0"];
    let script = format!("srun --het-group=0,1 {program}");
    let (job, text) = world.batch("components", &options, &script)?;
    ensure!(ok(&text) == 2, "{text}");
    let shares = [job, job + 1].map(|job| world.lease(job, 0).map(|lease| lease.grants[0].share_milli));
    ensure!(matches!(shares, [Ok(250), Ok(500)]), "{shares:?}");
    ensure!(world.lease(job + 2, 0).is_err());

    another_user(&world)?;
    let asked = world.leases()?.len();
    let text = world.slurm.run("srun", &["env"])?;
    ensure!(!text.contains("librgpu") && !text.contains("RGPU_LEASE"), "{text}");
    world.nothing_is_left()?;
    ensure!(world.leases()?.len() == asked, "{:?}", world.leases()?.keys());
    Ok(())
}

/// Where root has Slurm run jobs of all users: the ticket is the job's user's.
fn another_user(world: &World) -> Result<()> {
    const NOBODY: u32 = 65534;
    let mut readable = Command::new("test");
    readable.arg("-r").arg(product()?.shim()).uid(NOBODY).gid(NOBODY);
    // SAFETY: takes nothing.
    if unsafe { libc::getuid() } != 0 || !readable.status().is_ok_and(|status| status.success()) {
        println!("left out: a job of another user (it needs root, and files that everybody can read)");
        return Ok(());
    }
    let jobs = world.slurm.directory().join("jobs");
    fs::set_permissions(&jobs, fs::Permissions::from_mode(0o777))?;
    let program = jobs.join("vector_add");
    fs::copy(&world.program, &program)?;
    let script = format!("{} && stat -c 'mode %a %u %g' $RGPU_LEASE", program.display());
    let options = ["--uid=65534", "--gid=65534", "--rgpu-share=25%"];
    let (_, text) = world.batch("nobody", &options, &script)?;
    ensure!(text.contains("vector_add: ok") && text.contains("mode 600 65534 65534"), "{text}");
    Ok(())
}

fn endings() -> Result<()> {
    // A daemon that does not answer is noticed, and so is a step that is gone.
    let world = World::start(&Setup { config: "SlurmdTimeout=15".into(), ..Setup::default() })?;
    let slurm = &world.slurm;
    let share = "--rgpu-share=20%";
    // Slurm's limits are in minutes.
    // Long after its first token is too old the job computes again.
    let program = &world.program;
    let script = format!("{program} && echo ready\nsleep 46\n{program} && echo fresh\nsleep 600");
    let late = slurm.submit("late", &[share, "--time=1"], &script)?;
    world.wait_ready("late", late)?;

    let cancelled = world.sleeper("cancelled", &[share])?;
    let lease = world.lease(cancelled, 0)?;
    ensure!(lease.state == LeaseState::Active && lease.key.is_some(), "{lease:?}");
    slurm.run("scancel", &[&cancelled.to_string()])?;
    slurm.wait_state(cancelled, &["CANCELLED"])?;
    wait_until("the lease ends", SOON, || {
        world.lease(cancelled, 0).is_ok_and(|lease| lease.state == LeaseState::Ended)
    })?;

    let requeued = world.sleeper("requeued", &[share, "--requeue", "--open-mode=truncate"])?;
    let job = requeued.to_string();
    slurm.run("scontrol", &["requeue", &job])?;
    wait_until("the job waits again", SOON, || {
        slurm.field(requeued, "State").is_ok_and(|state| state == "PENDING")
    })?;
    wait_until("the first run's lease ends", SOON, || {
        world.lease(requeued, 0).is_ok_and(|lease| lease.state == LeaseState::Ended)
    })?;
    let _ = fs::remove_file(slurm.directory().join(format!("jobs/requeued-{job}")));
    // slurmd tells runs of a job apart by seconds, and runs no second prolog within one; Slurm itself waits for two minutes.
    std::thread::sleep(Duration::from_secs(3));
    slurm.run("scontrol", &["update", &format!("JobId={job}"), "StartTime=now"])?;
    world.wait_ready("requeued", requeued)?;
    let (first, second) = (world.lease(requeued, 0)?, world.lease(requeued, 1)?);
    ensure!(first.id != second.id && second.state == LeaseState::Active, "{second:?}");
    slurm.run("scancel", &[&job])?;

    // A step's daemon is killed: its tasks go on, but what they had is not theirs any more.
    let killed = world.sleeper("killed", &[share])?;
    let steps: Vec<u32> = fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("slurmstepd") && line.contains(&format!(": [{killed}."))
        })
        .collect();
    ensure!(!steps.is_empty(), "the step's daemon was not found");
    steps.iter().for_each(|pid| signal(*pid, libc::SIGKILL));
    std::thread::sleep(Duration::from_secs(1));
    slurm.run("scancel", &[&killed.to_string()])?;
    wait_until("the killed step's lease ends", SOON * 2, || {
        world.lease(killed, 0).is_ok_and(|lease| lease.state == LeaseState::Ended)
    })
    .with_context(|| slurm.logs())?;

    slurm.wait_state(late, &["TIMEOUT"])?;
    let text = slurm.output("late", late);
    ensure!(text.contains("fresh"), "{text}");
    world.nothing_is_left()
}

fn refused() -> Result<()> {
    let setup = Setup { without_plugin: Some(3), wait: "3s".into(), ..Setup::default() };
    let mut world = World::start(&setup)?;
    let program = world.program.clone();
    for (command, option) in [
        ("srun", "--rgpus=two"),
        ("srun", "--rgpus=17"),
        ("sbatch", "--rgpu-memory=4GB"),
        ("salloc", "--rgpu-share=150%"),
        ("srun", "--rgpu-shares=1"),
    ] {
        let job = if command == "sbatch" { "--wrap=true" } else { &program };
        let finished = world.slurm.finish(command, &[option, job])?;
        let name = option.split_once('=').map_or(option, |(name, _)| name);
        ensure!(!finished.status.success() && finished.stderr.contains(name), "{}", finished.output());
    }
    // More than there is at all is Slurm's to refuse, by its licences.
    let finished = world.slurm.finish("srun", &["--rgpus=9", &program])?;
    ensure!(!finished.status.success() && finished.stderr.contains("license"), "{}", finished.output());
    let refused = |world: &World, options: &[&str], words: &str| -> Result<()> {
        let finished = world.slurm.finish("srun", &[options, &[program.as_str()]].concat())?;
        let found = finished.stderr.contains(words) && !finished.status.success();
        ensure!(found, "{words}: {}\n{}", finished.output(), world.slurm.logs());
        world.nothing_is_left()
    };
    refused(&world, &["--nodelist=n0", "--rgpu-memory=100G"], "got no GPUs")?;
    // A request that no option made.
    let finished = process::run(world.slurm.command("salloc")?.args(["srun", "--rgpus=1", &program]))?;
    ensure!(
        !finished.status.success() && finished.stderr.contains("give it to sbatch or salloc"),
        "{}",
        finished.output()
    );
    // A node without the plugin knows nothing of GPUs, and so does the program.
    let finished = world.slurm.finish("srun", &["--nodelist=n3", "--rgpus=1", &program])?;
    ensure!(!finished.status.success(), "{}", finished.output());
    let asked = world.leases()?;
    ensure!(asked.is_empty(), "{asked:?}");

    let port = world.cluster.broker()?.address().to_owned();
    world.cluster.broker()?.kill(true);
    let gone = world.slurm.finish("srun", &["--nodelist=n0", "--rgpus=1", &program])?;
    ensure!(
        !gone.status.success() && gone.stderr.contains("cannot be reached") && gone.stderr.contains(&port),
        "{}",
        gone.output()
    );
    world.cluster.start_broker()?;
    world.cluster.wait_ready()?;
    let text = world.slurm.run("srun", &["--nodelist=n0", "--rgpus=1", &program])?;
    ensure!(text.contains("vector_add: ok"), "{text}");
    world.nothing_is_left()
}

fn sync() -> Result<()> {
    let mut world = World::start(&Setup { wait: "10m".into(), ..Setup::default() })?;
    let once = |world: &World| -> Result<process::Finished> {
        process::run(world.slurm.sync(&world.cluster, product()?)?.arg("--once"))
    };
    let free = |world: &World| -> Result<String> {
        let text = world.slurm.run("scontrol", &["--oneliner", "show", "licenses", "rgpu"])?;
        let reserved = text.split_whitespace().find_map(|word| word.strip_prefix("Reserved="));
        Ok(reserved.unwrap_or_default().to_owned())
    };
    let holder = || PrivateKey::generate().public().to_text();
    once(&world)?.success()?;
    ensure!(free(&world)? == "0", "{}", free(&world)?);

    // Somebody else has half of one GPU, and a lease is left of a job that nobody knows.
    let request = LeaseRequest {
        share_milli: 500,
        wait_s: 30,
        ..LeaseRequest::new("other".into(), "elsewhere".into(), holder())
    };
    let other = world.cluster.tenant("ann", |broker| broker.request_lease(&request))?;
    let key = Some(JobKey { cluster: "test".into(), job: 9999, restart: 0 }.to_string());
    let request = LeaseRequest { key, share_milli: 100, holder: holder(), ..request };
    let left = world.cluster.tenant("slurm", |broker| broker.request_lease(&request))?;
    let said = once(&world)?.success()?.stderr;
    ensure!(said.contains("job 9999 is unknown to Slurm"), "{said}");
    ensure!(world.cluster.lease(left.id)?.state != LeaseState::Active);
    ensure!(free(&world)? == "500", "{}", free(&world)?);

    // A job for all GPUs waits in Slurm's queue until the broker has them.
    let script = format!("{}\necho ready\nsleep 600", world.program);
    let job = world.slurm.submit("all", &["--rgpus=2"], &script)?;
    wait_until("the job waits for licences", SOON, || {
        world.slurm.field(job, "Reason").is_ok_and(|reason| reason == "Licenses")
    })?;
    world.cluster.tenant("ann", |broker| broker.release(other.id))?;
    wait_until("the licences are there", SOON, || {
        once(&world).is_ok_and(|finished| finished.status.success())
            && free(&world).is_ok_and(|free| free == "0")
    })?;
    world.wait_ready("all", job)?;
    once(&world)?.success()?;
    let lease = world.lease(job, 0)?;
    let shown = world.slurm.run("scontrol", &["show", "job", &job.to_string()])?;
    let comment = format!("AdminComment=rgpu lease={} gpu_milli=2000 gpu_seconds=", lease.id);
    ensure!(shown.contains(&comment) && shown.contains("Licenses=rgpu:2000"), "{shown}");
    ensure!(free(&world)? == "0", "{}", free(&world)?);

    // While the broker is away, no job is started that would get nothing.
    world.cluster.broker()?.kill(true);
    let failed = once(&world)?;
    ensure!(!failed.status.success() && failed.stderr.contains("cannot be reached"), "{}", failed.output());
    ensure!(free(&world)? == "2000", "{}", free(&world)?);
    world.cluster.start_broker()?;
    world.cluster.wait_ready()?;
    wait_until("the licences are back", SOON, || {
        once(&world).is_ok_and(|finished| finished.status.success())
            && free(&world).is_ok_and(|free| free == "0")
    })?;
    world.slurm.run("scancel", &[&job.to_string()])?;
    world.nothing_is_left()?;

    // A job that was started too soon waits for its lease in its prolog, and no longer than it is wanted.
    let request = LeaseRequest { gpus: 2, share_milli: 1000, key: None, holder: holder(), ..request };
    let other = world.cluster.tenant("ann", |broker| broker.request_lease(&request))?;
    let job = world.slurm.submit("waiting", &["--rgpus=1"], "true")?;
    wait_until("the lease is waited for", SOON, || {
        world.lease(job, 0).is_ok_and(|lease| lease.state == LeaseState::Waiting)
    })?;
    world.slurm.run("scancel", &[&job.to_string()])?;
    once(&world)?.success()?;
    world.slurm.wait_state(job, &["CANCELLED"])?;
    world.cluster.tenant("ann", |broker| broker.release(other.id))?;
    world.nothing_is_left()
}

fn accounts() -> Result<()> {
    let limits = "[tenant.\"slurm/*\"]\nmax_gpu_milli = 500\n";
    let world =
        World::with(&Setup { tenant: Some("account"), wait: "5s".into(), ..Setup::default() }, limits)?;
    // All nodes of a job come to the same account, and lease.
    let job = world.sleeper("physics", &["--account=physics", "--rgpu-share=50%", "--nodes=2"])?;
    let lease = world.lease(job, 0)?;
    ensure!((lease.tenant.as_str(), lease.state) == ("slurm/physics", LeaseState::Active), "{lease:?}");
    // Its account may have no more; another account has limits of its own.
    let run = |account: &str| world.slurm.finish("srun", &[account, "--rgpu-share=25%", &world.program]);
    let refused = run("--account=physics")?;
    let said = refused.stderr.contains("limit of tenant \"slurm/physics\" is 500");
    ensure!(said && !refused.status.success(), "{}\n{}", refused.output(), world.slurm.logs());
    let other = run("--account=chemistry")?.success()?;
    ensure!(other.stdout.contains("vector_add: ok"), "{}", other.output());
    // Without an account it is nobody's.
    let nobodys = world.slurm.finish("srun", &["--rgpu-share=25%", &world.program])?;
    ensure!(
        !nobodys.status.success()
            && nobodys.stderr.contains("has no account")
            && nobodys.stderr.contains("--account"),
        "{}",
        nobodys.output()
    );
    let shown = process::run(&mut world.cluster.admins_client(&["leases", "--all"])?)?.success()?.stdout;
    ensure!(shown.contains("slurm/physics") && shown.contains("slurm/chemistry"), "{shown}");
    // `rgpu slurm sync` sees the leases of all accounts, and gives back what is nobody's job any more.
    let key = Some(JobKey { cluster: "test".into(), job: 9999, restart: 0 }.to_string());
    let holder = PrivateKey::generate().public().to_text();
    let left = LeaseRequest {
        key,
        share_milli: 100,
        wait_s: 30,
        on_behalf_of: Some("biology".into()),
        ..LeaseRequest::new("left".into(), "elsewhere".into(), holder)
    };
    let engine = world.cluster.token(Role::Engine, "slurm");
    let left = world.cluster.ask(&engine, |broker| broker.request_lease(&left))?;
    process::run(world.slurm.sync(&world.cluster, product()?)?.arg("--once"))?.success()?;
    ensure!(world.cluster.lease(left.id)?.state != LeaseState::Active, "{left:?}");
    ensure!(world.lease(job, 0)?.state == LeaseState::Active, "the job's lease was given back");
    world.slurm.run("scancel", &[&job.to_string()])?;
    world.nothing_is_left()
}

fn users() -> Result<()> {
    let world = World::start(&Setup { tenant: Some("user"), ..Setup::default() })?;
    let user = process::run(Command::new("id").arg("-un"))?.success()?.stdout;
    let (job, _) = world.batch("user", &["--account=physics", "--rgpus=1"], &world.program)?;
    let lease = world.lease(job, 0)?;
    ensure!(lease.tenant == format!("slurm/{}", user.trim()), "{lease:?}");
    world.nothing_is_left()
}

/// As releases of Slurm later than Debian's tell a prolog; there is no `scontrol` here.
fn told() -> Result<()> {
    let cluster = Cluster::on_loopback(product()?, &cluster::Setup::servers(1).impatient())?;
    let spool = cluster.directory().join("slurm");
    let token = cluster.token_file(Role::Engine, "slurm")?;
    let own = fs::metadata(cluster.directory())?;
    let request = JobRequest { gpus: 1, memory: 0, share_milli: 250 };
    let part = |action: &str, job: u32, account: &str| -> Result<()> {
        let mut command = Command::new(product()?.rgpu());
        command.env_clear().args(["slurm", action, "--broker", &cluster.url(), "--slurm-bin", "/nowhere"]);
        command.arg("--spool").arg(&spool).arg("--broker-token-file").arg(&token);
        command.env("SLURM_CLUSTER_NAME", "test").env("SLURM_JOB_ID", job.to_string());
        command.env("SLURMD_NODENAME", "n0").env("SLURM_JOB_USER", "ann").env("SLURM_JOB_ACCOUNT", account);
        command.env("SLURM_JOB_UID", own.uid().to_string()).env("SLURM_JOB_GID", own.gid().to_string());
        command.env(REQUEST_VARIABLE, request.to_string());
        process::run(&mut command)?.success().map(drop)
    };
    part("prolog", 7, "physics")?;
    let lease = cluster.only_lease()?;
    ensure!((lease.tenant.as_str(), lease.state) == ("slurm/physics", LeaseState::Active), "{lease:?}");
    part("epilog", 7, "physics")?;
    cluster.wait_idle(SOON)?;
    // One that is told nothing asks, and the job's tasks are told why that failed.
    part("prolog", 8, "")?;
    let record = JobFiles::new(&spool, "n0", 8).read()?.context("nothing was written down of job 8")?;
    let error = record.error.context("job 8 has a lease")?;
    ensure!(error.contains("/nowhere/scontrol") && error.contains("slurm-bin=FOLDER"), "{error}");
    ensure!(cluster.leases(false)?.is_empty(), "{:?}", cluster.leases(false)?);
    part("epilog", 8, "")
}
