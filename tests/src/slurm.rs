//! A Slurm cluster on this machine: munged, slurmctld and slurmds that are each a node, all on the loopback interface, as whoever starts
//! it; and rgpu's plugin in it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_control::token::{Role, random_bytes};

use crate::cluster::Cluster;
use crate::debian::Packages;
use crate::examples::repository;
use crate::process::{self, Finished, wait_until};
use crate::product::{self, Product};

/// How long anything of Slurm's may take.
pub const SOON: Duration = Duration::from_secs(60);

/// The Debian packages that it is made of.
const PACKAGES: [&str; 4] = ["munge", "slurmctld", "slurmd", "slurm-client"];

/// What a Slurm cluster is to be like.
#[derive(Debug, Clone)]
pub struct Setup {
    /// How many nodes.
    pub nodes: usize,
    /// How many jobs a node can run at a time.
    pub cpus: usize,
    /// Which of them lacks the plugin.
    pub without_plugin: Option<usize>,
    /// How many licences, thousandths of GPUs, the configuration counts.
    pub licences: u64,
    /// GPUs of each node that Slurm itself gives to jobs (`--gres=gpu:N`).
    pub gpus: usize,
    /// Whose a job's lease is, `account` or `user`, with an engine's token; without it, the tenant `slurm` has all.
    pub tenant: Option<&'static str>,
    /// How long a job waits for its lease.
    pub wait: String,
    /// More of slurm.conf.
    pub config: String,
}

impl Default for Setup {
    fn default() -> Self {
        let (wait, config) = ("60s".into(), String::new());
        Self { nodes: 4, cpus: 4, without_plugin: None, licences: 4000, gpus: 0, tenant: None, wait, config }
    }
}

impl Setup {
    /// What token nodes have.
    fn role(&self) -> Role {
        if self.tenant.is_some() { Role::Engine } else { Role::Tenant }
    }
}

/// The programs of Slurm.
#[derive(Debug, Clone)]
pub struct Programs {
    packages: Packages,
    plugins: PathBuf,
}

impl Programs {
    /// Those that are installed, or else Debian's. The error is a reason to skip a test.
    pub fn find() -> Result<Self> {
        let packages = Packages::find(&PACKAGES, "slurmctld")?;
        let plugins = packages.file("usr/lib/x86_64-linux-gnu/slurm-wlm");
        ensure!(plugins.is_dir(), "Slurm's plugins are not in {}", plugins.display());
        let programs = Self { packages, plugins };
        for program in ["munged", "slurmctld", "slurmd", "slurmstepd", "srun"] {
            programs.program(program)?;
        }
        Ok(programs)
    }

    /// Where a program is. Only the packages' scripts, which are not run, make links without the ending to some of them.
    fn program(&self, name: &str) -> Result<PathBuf> {
        self.packages.program(name).or_else(|_| self.packages.program(&format!("{name}-wlm")))
    }
}

/// A Slurm cluster; it ends when this is dropped.
#[derive(Debug)]
pub struct Slurm {
    programs: Programs,
    directory: PathBuf,
    processes: Vec<Child>,
    nodes: usize,
    role: Role,
}

impl Drop for Slurm {
    fn drop(&mut self) {
        self.end_steps();
        for child in self.processes.iter_mut().rev() {
            // SAFETY: a group of our own, named after our own child, which was not waited for.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            let _ = child.wait();
        }
        if std::thread::panicking() || std::env::var_os("RGPU_TEST_KEEP").is_some() {
            println!("what Slurm's processes kept is in {}", self.directory.display());
        } else {
            let _ = fs::remove_dir_all(&self.directory); // only tidiness
        }
    }
}

impl Slurm {
    /// Starts it, for jobs that get GPUs of `cluster`, as the tenant `slurm`.
    pub fn start(programs: &Programs, product: &Product, cluster: &Cluster, setup: &Setup) -> Result<Self> {
        let directory = product::temporary("slurm");
        fs::DirBuilder::new().mode(0o755).create(&directory)?;
        for name in ["run", "log", "spool", "jobs"] {
            fs::DirBuilder::new().mode(0o755).create(directory.join(name))?;
        }
        let (nodes, role) = (setup.nodes, setup.role());
        let mut slurm = Self { programs: programs.clone(), directory, processes: Vec::new(), nodes, role };
        slurm.write_files(product, cluster, setup)?;
        slurm.start_daemons(setup)?;
        Ok(slurm)
    }

    /// Where its files are; jobs write into `jobs`.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// What a node keeps of jobs, and who renews their leases, is below this.
    pub fn rgpu_spool(&self) -> PathBuf {
        self.file("rgpu")
    }

    fn write_files(&self, product: &Product, cluster: &Cluster, setup: &Setup) -> Result<()> {
        let key = self.file("munge.key");
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o400).open(&key)?;
        std::io::Write::write_all(&mut file, &random_bytes::<128>())?;
        let plugin = self.file("rgpu.so");
        let mut more = setup.tenant.map_or_else(String::new, |tenant| format!(" tenant={tenant}"));
        // A prolog has no PATH.
        if self.programs.packages.root() != Path::new("/") {
            write!(more, " slurm-bin={}", self.programs.packages.file("usr/bin").display())?;
        }
        let line = format!(
            "required {} command={} spool={} broker={} broker-token-file={} wait={}{more}\n",
            plugin.display(),
            product.rgpu().display(),
            self.rgpu_spool().display(),
            cluster.url(),
            cluster.token_file(setup.role(), "slurm")?.display(),
            setup.wait,
        );
        fs::write(self.file("plugstack.conf"), line)?;
        fs::write(self.file("no-plugstack.conf"), "")?;
        let lua = fs::read_to_string(repository().join("packaging/slurm/job_submit.lua"))?;
        fs::write(self.file("job_submit.lua"), lua)?;
        let conf = self.configuration(setup)?;
        fs::write(self.file("slurm.conf"), &conf)?;
        fs::create_dir(self.file("without"))?;
        fs::write(self.file("without/slurm.conf"), conf.replace("/plugstack.conf", "/no-plugstack.conf"))?;
        let mut write = self.command_of(&product.rgpu())?;
        process::run(write.args(["slurm", "plugin", "--output"]).arg(&plugin))?
            .success()
            .context("rgpu slurm plugin")?;
        if setup.gpus > 0 {
            for n in 0..setup.gpus {
                File::create(self.file(&format!("run/gpu{n}")))?;
            }
            let files = format!("{}[0-{}]", self.file("run/gpu").display(), setup.gpus - 1);
            let text = format!("NodeName=n[0-{}] Name=gpu File={files}\n", setup.nodes - 1);
            fs::write(self.file("gres.conf"), &text)?;
            fs::write(self.file("without/gres.conf"), &text)?;
        }
        Ok(())
    }

    fn configuration(&self, setup: &Setup) -> Result<String> {
        let name = fs::read_to_string("/proc/sys/kernel/hostname")?.trim().to_owned();
        // SAFETY: takes nothing.
        let uid = unsafe { libc::getuid() };
        let place = self.directory.display();
        let ports = free_ports(1 + setup.nodes)?;
        let mut conf = format!(
            "ClusterName=test\nSlurmctldHost={name}(127.0.0.1)\nSlurmctldPort={}\n\
             CommunicationParameters=NoInAddrAny,NoCtldInAddrAny\nAuthType=auth/munge\nAuthInfo=socket={place}/run/munge.socket\n\
             SlurmUser={uid}\nSlurmdUser={uid}\nStateSaveLocation={place}/spool/controller\nSlurmdSpoolDir={place}/spool/%n\n\
             SlurmctldPidFile={place}/run/slurmctld.pid\nSlurmdPidFile={place}/run/%n.pid\n\
             SlurmctldLogFile={place}/log/slurmctld.log\nSlurmdLogFile={place}/log/%n.log\nSlurmdDebug=verbose\n\
             PluginDir={}\nPlugStackConfig={place}/plugstack.conf\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             JobAcctGatherType=jobacct_gather/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nReturnToService=2\n\
             MpiDefault=none\nSlurmdParameters=config_overrides\nPrologFlags=Alloc\nJobSubmitPlugins=lua\n\
             Licenses=rgpu:{}\nDebugFlags=NO_CONF_HASH\nSchedulerParameters=bf_interval=1,sched_interval=2\nKillWait=3\n\
             InactiveLimit=0\nMinJobAge=3600\n{}\n",
            ports[0],
            self.programs.plugins.display(),
            setup.licences,
            setup.config,
        );
        if setup.gpus > 0 {
            conf.push_str("GresTypes=gpu\n");
        }
        for (at, port) in ports[1..].iter().enumerate() {
            let gres = if setup.gpus > 0 { format!(" Gres=gpu:{}", setup.gpus) } else { String::new() };
            let cpus = setup.cpus;
            writeln!(
                conf,
                "NodeName=n{at} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory=4096{gres}"
            )?;
        }
        writeln!(conf, "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP")?;
        Ok(conf)
    }

    fn start_daemons(&mut self, setup: &Setup) -> Result<()> {
        fs::create_dir_all(self.file("spool/controller"))?;
        let place = |name: &str| self.file(name).into_os_string();
        let mut munged = self.command("munged")?;
        munged.args(["--foreground", "--force", "--num-threads=2"]);
        for (option, file) in [
            ("--key-file", "munge.key"),
            ("--socket", "run/munge.socket"),
            ("--pid-file", "run/munged.pid"),
            ("--log-file", "log/munged.log"),
            ("--seed-file", "run/munge.seed"),
        ] {
            munged.arg(option).arg(place(file));
        }
        self.spawn(munged, "munged")?;
        let socket = self.file("run/munge.socket");
        wait_until("munged listens", SOON, || socket.exists())?;
        let mut controller = self.command("slurmctld")?;
        controller.args(["-D", "-i"]);
        self.spawn(controller, "slurmctld")?;
        for node in 0..self.nodes {
            self.start_node(node, setup.without_plugin != Some(node))?;
        }
        let all = self.nodes;
        wait_until("all of Slurm's nodes are idle", SOON, || {
            let idle = self.run("sinfo", &["-h", "-N", "-o", "%T"]);
            idle.is_ok_and(|text| text.lines().filter(|line| *line == "idle").count() == all)
        })
        .map(drop)
        .with_context(|| self.logs())
    }

    /// Starts a node's daemon.
    pub fn start_node(&mut self, node: usize, plugin: bool) -> Result<()> {
        let mut daemon = self.command("slurmd")?;
        daemon.args(["-D", "-N", &format!("n{node}"), "-d"]).arg(self.slurmstepd()?);
        if !plugin {
            daemon.env("SLURM_CONF", self.file("without/slurm.conf"));
        }
        self.spawn(daemon, &format!("n{node}"))
    }

    /// What starts steps. slurmd starts it for prologs with an environment that does not say where unpacked libraries are.
    fn slurmstepd(&self) -> Result<PathBuf> {
        let program = self.programs.program("slurmstepd")?;
        if self.programs.packages.root() == Path::new("/") {
            return Ok(program);
        }
        let command = self.command_of(&program)?;
        let libraries =
            command.get_envs().find_map(|(name, value)| (name == "LD_LIBRARY_PATH").then_some(value));
        let libraries = libraries.flatten().unwrap_or_default().display().to_string();
        let wrapper = self.file("slurmstepd");
        let text = format!("#!/bin/sh\nLD_LIBRARY_PATH='{libraries}' exec '{}' \"$@\"\n", program.display());
        if !wrapper.exists() {
            fs::write(&wrapper, text)?;
            fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
        }
        Ok(wrapper)
    }

    fn spawn(&mut self, mut command: Command, name: &str) -> Result<()> {
        let log = File::create(self.file(&format!("log/{name}.out")))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        self.processes.push(command.spawn().with_context(|| format!("Starting {name}"))?);
        Ok(())
    }

    fn command_of(&self, program: &Path) -> Result<Command> {
        let mut command = product::clean(program);
        for (name, value) in self.programs.packages.environment()? {
            command.env(name, value);
        }
        if self.programs.packages.root() != Path::new("/") {
            let mut libraries = self.programs.plugins.clone().into_os_string();
            let given =
                command.get_envs().find_map(|(name, value)| (name == "LD_LIBRARY_PATH").then_some(value));
            if let Some(given) = given.flatten() {
                libraries.push(":");
                libraries.push(given);
            }
            command.env("LD_LIBRARY_PATH", libraries);
        }
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SLURM_") {
                command.env_remove(name);
            }
        }
        command.env("SLURM_CONF", self.file("slurm.conf")).current_dir(self.file("jobs"));
        Ok(command)
    }

    /// A command of Slurm's.
    pub fn command(&self, program: &str) -> Result<Command> {
        self.command_of(&self.programs.program(program)?)
    }

    /// `rgpu slurm sync` for this cluster; its options are to be added.
    pub fn sync(&self, cluster: &Cluster, product: &Product) -> Result<Command> {
        let mut command = self.command_of(&product.rgpu())?;
        command.args(["slurm", "sync", "--broker", &cluster.url(), "--broker-token-file"]);
        command.arg(cluster.token_file(self.role, "slurm")?);
        Ok(command)
    }

    /// Runs a command of Slurm's to its end, whatever that is.
    pub fn finish(&self, program: &str, arguments: &[&str]) -> Result<Finished> {
        process::run(self.command(program)?.args(arguments))
    }

    /// Runs a command of Slurm's, which is to end well; what it wrote.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let finished = self.finish(program, arguments)?.success();
        Ok(finished.with_context(|| format!("{program} {}", arguments.join(" ")))?.stdout)
    }

    /// Submits a shell script, whose output goes to `jobs/NAME-JOB`; the job's id.
    pub fn submit(&self, name: &str, options: &[&str], script: &str) -> Result<u32> {
        let file = self.file(&format!("jobs/{name}.sh"));
        fs::write(&file, format!("#!/bin/bash\n{script}\n"))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        let output = format!("--output={}", self.file(&format!("jobs/{name}-%j")).display());
        let file = file.to_str().context("The path is not UTF-8")?;
        let text = self.run("sbatch", &[&["--parsable", &output], options, &[file]].concat())?;
        text.trim().parse().with_context(|| format!("sbatch said {text:?}"))
    }

    /// What a job that was submitted has written so far.
    pub fn output(&self, name: &str, job: u32) -> String {
        fs::read_to_string(self.file(&format!("jobs/{name}-{job}"))).unwrap_or_default()
    }

    /// A field of a job, as `squeue --Format` calls it.
    pub fn field(&self, job: u32, field: &str) -> Result<String> {
        let format = format!("--Format=JobID:20,{field}:200");
        let text =
            self.run("squeue", &["-h", "--array", "--states=all", "--job", &job.to_string(), &format])?;
        // Other components of a heterogeneous job, and other tasks of an array, are shown, too.
        let own = text.lines().find_map(|line| {
            let (id, value) = line.trim_start().split_once(' ')?;
            (id == job.to_string()).then(|| value.trim().to_owned())
        });
        own.with_context(|| format!("squeue does not show job {job}: {text}"))
    }

    /// Waits until a job's state is one of these; which.
    pub fn wait_state(&self, job: u32, states: &[&str]) -> Result<String> {
        let mut seen = String::new();
        let what = format!("job {job} is {}", states.join(" or "));
        wait_until(&what, SOON * 2, || {
            seen = self.field(job, "State").unwrap_or_default();
            states.contains(&seen.as_str())
        })
        .with_context(|| format!("it is {seen:?}\n{}", self.logs()))?;
        Ok(seen)
    }

    /// The states of all nodes: `idle`, `mixed`, `drained`, ….
    pub fn node_states(&self) -> Result<Vec<String>> {
        let text = self.run("sinfo", &["-h", "-N", "-o", "%T"])?;
        Ok(text.lines().map(|line| line.trim().to_owned()).collect())
    }

    /// The processes that belong to a node's daemon: the steps' and what they have started.
    pub fn processes(&self, name: &str) -> Vec<u32> {
        let roots = self.processes.iter().flat_map(|child| process::descendants(child.id()));
        roots.filter(|pid| process_name(*pid).starts_with(name)).collect()
    }

    /// Steps leave the daemons' groups; so they are ended one by one.
    fn end_steps(&self) {
        let _ = self.finish("scancel", &["--state=running", "--me"]);
        let spool = self.directory.to_string_lossy().into_owned();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            // The cluster's configuration has a name that nothing else has.
            if String::from_utf8_lossy(&environment).contains(&format!("SLURM_CONF={spool}/")) {
                // SAFETY: takes no pointers; a process of this cluster's.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
    }

    /// What its daemons have written, for whoever looks for a fault.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for entry in fs::read_dir(self.file("log")).into_iter().flatten().flatten() {
            let log = fs::read_to_string(entry.path()).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(12)..];
            let _ = writeln!(text, "{}:\n{}", entry.file_name().display(), last.join("\n"));
        }
        text
    }
}

fn process_name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// Ports that nobody listens on; all at once, so that they differ.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    Ok(listeners
        .iter()
        .map(|listener| listener.local_addr().map(|at| at.port()))
        .collect::<Result<_, _>>()?)
}
