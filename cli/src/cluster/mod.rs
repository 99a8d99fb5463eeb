//! `rgpu cluster`: a whole cluster on this machine, to try rgpu or to use the machine's GPUs by leases.

mod files;
mod supervisor;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rgpu_control::memory::Memory;
use rgpu_control::units::parse_bytes;
use rgpu_control::{Broker, Tls};
use rgpu_server::{DeviceKind, DeviceSpec};
use rustix::process::{Pid, Signal, kill_process};

use crate::own_cluster::{OwnCluster, Plan, PlannedNode};
use crate::table::Table;
use crate::{Failure, Outcome};
use files::{Member, State};
pub(crate) use supervisor::SUPERVISOR_COMMAND;

/// How long the cluster may take until its nodes can be used.
const READY_TIME: Duration = Duration::from_secs(60);
/// How long the supervisor may take to stop everything; it kills what has not stopped before.
const STOP_TIME: Duration = Duration::from_secs(40);
/// How often to look.
const LOOK: Duration = Duration::from_millis(50);
/// Nodes with software GPUs, where nothing was said.
const NODES: usize = 3;
/// The most nodes on one machine.
const MAX_NODES: usize = 64;

/// A whole cluster on this machine: a broker, and nodes with software GPUs or the machine's own
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    rgpu cluster up                    # a broker and three nodes, supervised; prints what to type next\n  \
    rgpu run --share 25% -- ./app      # uses it, as long as no other broker or server is named\n  \
    rgpu cluster status\n  \
    rgpu cluster down                  # stops it; its keys, tokens and what it has learnt stay\n  \
    rgpu cluster down --forget         # removes those, too\n\n\
    Its files are in RGPU_CLUSTER_DIR [default: ~/.local/state/rgpu/cluster]. Beyond one machine: docs/cluster.md.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Start the cluster, and wait until its nodes can be used
    Up(Up),
    /// Stop it, and the programs' sessions with it
    Down {
        /// Remove its files, too: keys, tokens, and what it has learnt of programs
        #[arg(long)]
        forget: bool,
    },
    /// Say what runs
    Status,
}

#[derive(clap::Args)]
struct Up {
    /// How many nodes [default: 3; 1 with NVIDIA GPUs]
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
    /// The GPUs of each node, as `rgpu serve --device` takes them. The machine's own can be one node's only
    #[arg(long, value_name = "KIND[:N]", default_value = "auto")]
    device: String,
    /// Memory of each GPU, such as 2G [default: as for `rgpu serve`, shared among all nodes]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// The port of 127.0.0.1 at which the broker listens [default: the last one, else 7080, else a free one]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Stay in the foreground until Ctrl-C, instead of starting a supervisor in the background
    #[arg(long)]
    foreground: bool,
}

/// Does what was asked for.
pub(crate) fn main(arguments: Arguments) -> Outcome {
    let cluster = OwnCluster::of_user().ok_or_else(|| {
        Failure::new("There is no home directory for the cluster's files: say where they are to be with RGPU_CLUSTER_DIR")
    })?;
    match arguments.action {
        Action::Up(up) => start(&cluster, &up)?,
        Action::Down { forget } => stop(&cluster, forget)?,
        Action::Status => return status(&cluster),
    }
    Ok(ExitCode::SUCCESS)
}

/// The main function of the supervisor: keeps the cluster in a directory running until it is told to stop.
pub(crate) fn supervise(directory: PathBuf) -> Outcome {
    supervisor::run(&OwnCluster::at(directory), || ())?;
    Ok(ExitCode::SUCCESS)
}

fn start(cluster: &OwnCluster, up: &Up) -> Result<(), Failure> {
    if cluster.supervisor().is_some() {
        return Err(Failure::new(
            "A cluster runs already: `rgpu cluster status` shows it, `rgpu cluster down` stops it",
        ));
    }
    let nodes = nodes(up)?;
    let plan = files::prepare(cluster, nodes, up.port)?;
    let directory = cluster.directory.display();
    if up.foreground {
        let at = cluster.clone();
        return supervisor::run(cluster, move || match wait_until_ready(&at, &plan, None) {
            Ok(()) => greet(&at, &plan),
            Err(failure) => eprintln!("rgpu: {}", failure.message),
        });
    }
    let mut child = spawn_supervisor(cluster)
        .map_err(|e| Failure::new(format!("Cannot start the cluster's supervisor in {directory}: {e}")))?;
    if let Err(failure) = wait_until_ready(cluster, &plan, Some(&mut child)) {
        // Half a cluster is of no use to anybody.
        let _ = stop(cluster, false);
        return Err(failure);
    }
    greet(cluster, &plan);
    Ok(())
}

/// The nodes that are asked for.
fn nodes(up: &Up) -> Result<Vec<PlannedNode>, Failure> {
    let wrong = |text: String| Failure::with_status(text, 2);
    let spec: DeviceSpec = up.device.parse().map_err(|e| wrong(format!("--device: {e}")))?;
    let own = match spec.kind {
        DeviceKind::Software => false,
        DeviceKind::Nvidia => true,
        DeviceKind::Auto => rgpu_server::inventory::nvidia_devices(None).is_ok_and(|found| !found.is_empty()),
    };
    let count = up.nodes.unwrap_or(if own { 1 } else { NODES });
    if !(1..=MAX_NODES).contains(&count) {
        return Err(wrong(format!("--nodes {count}: a cluster on one machine has 1 to {MAX_NODES} nodes")));
    }
    let device = |index: usize| match (own, index) {
        (true, 0) => up.device.clone(),
        // One node has the machine's own.
        (true, _) => "software".to_owned(),
        (false, _) if spec.kind == DeviceKind::Auto => "software".to_owned(),
        (false, _) => up.device.clone(),
    };
    // Software GPUs of all nodes share this machine's memory.
    let software = (count - usize::from(own)) as u32 * spec.count.max(1);
    let shared = Memory::look().map(|machine| machine.of_software_gpus(software));
    let memory = |index: usize| up.memory.or(shared.filter(|_| !own || index > 0));
    let node = |index| PlannedNode {
        name: format!("node{}", index + 1),
        device: device(index),
        memory: memory(index),
    };
    Ok((0..count).map(node).collect())
}

fn spawn_supervisor(cluster: &OwnCluster) -> io::Result<std::process::Child> {
    let log = files::log(cluster, "supervisor")?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(SUPERVISOR_COMMAND).arg(&cluster.directory);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    supervisor::detach(&mut command);
    command.spawn()
}

/// Waits until the broker says that all nodes can be used.
fn wait_until_ready(
    cluster: &OwnCluster,
    plan: &Plan,
    mut supervisor: Option<&mut std::process::Child>,
) -> Result<(), Failure> {
    let until = Instant::now() + READY_TIME;
    let mut said = String::from("nothing was heard of the broker yet");
    while Instant::now() < until {
        if let Some(child) = &mut supervisor
            && child.try_wait().is_ok_and(|ended| ended.is_some())
        {
            return Err(failed_to_start(cluster, "the supervisor has ended"));
        }
        match ready_nodes(cluster, plan) {
            Ok(count) if count == plan.nodes.len() => return Ok(()),
            Ok(count) => said = format!("{count} of {} nodes are ready", plan.nodes.len()),
            Err(failure) => said = failure,
        }
        std::thread::sleep(LOOK);
    }
    Err(failed_to_start(cluster, &format!("after {} s {said}", READY_TIME.as_secs())))
}

fn failed_to_start(cluster: &OwnCluster, why: &str) -> Failure {
    let mut text = format!("The cluster did not start: {why}");
    for (name, lines) in files::last_words(cluster) {
        text += &format!("\n  {name}: {lines}");
    }
    text += &format!("\n(all of it: {})", cluster.directory.join("log").display());
    Failure::new(text)
}

fn broker(cluster: &OwnCluster, plan: &Plan) -> Result<Broker, String> {
    let token = std::fs::read_to_string(cluster.admin_token()).map_err(|e| e.to_string())?;
    let broker = Broker::new(&plan.url(), token.trim(), &Tls::default()).map_err(|e| e.to_string())?;
    Ok(broker.with_patience(Duration::from_secs(2)))
}

/// How many of the cluster's nodes can be used.
fn ready_nodes(cluster: &OwnCluster, plan: &Plan) -> Result<usize, String> {
    let nodes = broker(cluster, plan)?.nodes().map_err(|e| e.to_string())?;
    let ready = |planned: &&PlannedNode| {
        nodes.iter().any(|node| node.name == planned.name && node.state == "ready" && node.devices > 0)
    };
    Ok(plan.nodes.iter().filter(ready).count())
}

/// What to type next.
fn greet(cluster: &OwnCluster, plan: &Plan) {
    let of_each = |node: &PlannedNode| format!("  {}: {}", node.name, node.device);
    let mut lines = vec![format!(
        "The cluster is up: a broker at {} and {}",
        plan.url(),
        match plan.nodes.len() {
            1 => "1 node".to_owned(),
            count => format!("{count} nodes"),
        }
    )];
    lines.extend(plan.nodes.iter().map(of_each));
    let command = std::env::args().next().unwrap_or_else(|| "rgpu".into());
    lines.push(String::new());
    lines.push("Now:".into());
    let next = [
        ("run -- ./app", "a program with a whole GPU"),
        ("run --share 25% --gpu-memory 1GiB -- ./app", "with a part of one"),
        ("status", "what is going on"),
        ("ui", "the same in a browser: prints the link"),
        ("explain LEASE", "why a program got its GPU, or waits"),
        ("cluster down", "stops it"),
    ];
    let width = next.iter().map(|(arguments, _)| arguments.len()).max().unwrap_or(0);
    lines.extend(next.map(|(arguments, what)| format!("  {command} {arguments:<width$}  # {what}")));
    lines.push(String::new());
    lines.push(format!("Files, logs and an administrator's token: {}", cluster.directory.display()));
    crate::table::print_lines(&lines);
    let _ = io::stdout().flush();
}

fn stop(cluster: &OwnCluster, forget: bool) -> Result<(), Failure> {
    let directory = cluster.directory.display();
    match cluster.supervisor() {
        Some(pid) => {
            end(cluster, pid)?;
            println!("The cluster is down");
        }
        None if !forget => println!("No cluster runs (its files would be in {directory})"),
        None => {}
    }
    if forget && cluster.directory.exists() {
        files::remove(cluster)?;
        println!("{directory} is removed");
    }
    Ok(())
}

/// Tells the supervisor to stop everything, and waits until it has.
fn end(cluster: &OwnCluster, pid: Pid) -> Result<(), Failure> {
    let failed = |e| Failure::new(format!("Cannot stop the cluster's supervisor (process {pid:?}): {e}"));
    kill_process(pid, Signal::TERM).map_err(failed)?;
    let until = Instant::now() + STOP_TIME;
    while cluster.supervisor().is_some() {
        if Instant::now() > until {
            let text = format!(
                "The cluster's supervisor (process {}) has been told to stop, and runs still after {} s",
                pid.as_raw_nonzero(),
                STOP_TIME.as_secs()
            );
            return Err(Failure::new(text));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Prints what runs; status 3, as service managers have it, where nothing does.
fn status(cluster: &OwnCluster) -> Outcome {
    let directory = cluster.directory.display();
    let plan = cluster
        .plan()
        .map_err(|e| Failure::new(format!("{} cannot be read: {e}", cluster.plan_path().display())))?;
    let (Some(pid), Some(plan)) = (cluster.supervisor(), plan) else {
        println!("No cluster runs (its files would be in {directory})");
        return Ok(ExitCode::from(3));
    };
    println!("A cluster runs in {directory}, supervised by process {}", pid.as_raw_nonzero());
    let mut table = Table::new(&["PROCESS", "PID", "STATE", "RESTARTS", "GPUS", "LEASES"], &[1, 3, 4, 5]);
    let state = State::read(cluster);
    let asked = broker(cluster, &plan).and_then(|broker| broker.nodes().map_err(|e| e.to_string()));
    let nodes = asked.as_deref().unwrap_or_default();
    for Member { name, pid, restarts } in &state.members {
        let node = nodes.iter().find(|node| node.name == *name);
        let number = |count: Option<u32>| count.map_or_else(|| "-".into(), |count| count.to_string());
        let heard = match (name.as_str(), pid) {
            (_, None) => "ended".to_owned(),
            ("broker", Some(_)) if asked.is_ok() => "answers".to_owned(),
            ("broker", Some(_)) => "silent".to_owned(),
            _ => node.map_or_else(|| "joining".into(), |node| node.state.clone()),
        };
        table.row([
            name.clone(),
            number(*pid),
            heard,
            restarts.to_string(),
            number(node.map(|node| node.devices)),
            number(node.map(|node| node.leases)),
        ]);
    }
    table.print();
    if let Err(why) = &asked {
        println!("The broker does not answer: {why}");
    }
    Ok(ExitCode::SUCCESS)
}
