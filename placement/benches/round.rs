//! Measures one placement round in a cluster as a broker has it: nodes with devices and nothing else, clients that are no nodes, leases that
//! stay, and requests of which some fit and others do not.
//!
//!     cargo bench -p rgpu-placement --bench round -- \
//!         [--nodes N,N,…] [--devices N] [--waiting N] [--fitting N] [--watched N] [--distinct] [--rounds N]
//!
//! `--waiting` requests want whole devices, which nothing fits; `--fitting` want parts; `--watched` decisions are explained. With
//! `--distinct` no two nodes' links carry the same traffic. Times are processor time, of which the least counts.

// Only the library has no clock.
#![allow(clippy::disallowed_methods)]

use std::sync::Arc;
use std::time::Duration;

use rgpu_placement::policy::SPREAD;
use rgpu_placement::{
    ClusterBuilder, ClusterState, DeviceId, DeviceRequest, DeviceSpec, Grant, Job, JobId, LinkId, NodeId,
    NodeSpec, Placement, PolicyConfig, PolicyTable, Profile, Profiles, Queue, Rng, Task, TaskPlacement,
};

type Failure = Box<dyn std::error::Error>;

/// Machines that programs run on, which are no nodes.
const CLIENTS: u32 = 100;
const DEVICE_MIB: u64 = 16 << 10;
/// Leases of a quarter of a device that stay, for each node.
const STANDING: u32 = 10;

struct Options {
    nodes: Vec<u32>,
    devices: u32,
    waiting: u32,
    fitting: u32,
    watched: usize,
    distinct: bool,
    rounds: u32,
}

fn main() -> Result<(), Failure> {
    let mut options = Options {
        nodes: vec![100, 1000, 3000, 10_000],
        devices: 8,
        waiting: 40,
        fitting: 4,
        watched: 0,
        distinct: false,
        rounds: 5,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().unwrap_or_default().parse::<u32>();
        match argument.as_str() {
            "--nodes" => {
                let list = arguments.next().unwrap_or_default();
                options.nodes = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            "--devices" => options.devices = number()?,
            "--waiting" => options.waiting = number()?,
            "--fitting" => options.fitting = number()?,
            "--watched" => options.watched = number()? as usize,
            "--rounds" => options.rounds = number()?,
            "--distinct" => options.distinct = true,
            // What `cargo bench` adds.
            "--bench" => {}
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    println!("{:>7} {:>8} {:>10} {:>8} {:>8}", "nodes", "waiting", "round, ms", "placed", "left");
    for nodes in options.nodes.clone() {
        measure(nodes, &options)?;
    }
    Ok(())
}

/// The processor time of this thread.
fn now() -> Result<Duration, Failure> {
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(Duration::from_nanos(text.split_whitespace().next().ok_or("no time")?.parse()?))
}

fn measure(nodes: u32, options: &Options) -> Result<(), Failure> {
    let mut state = cluster(nodes, options)?;
    let mut policy = config()?.build()?;
    let mut queue = Queue::new();
    let mut next = nodes * STANDING;
    let mut least: Option<(Duration, usize, usize)> = None;
    for number in 0..options.waiting {
        queue.push(Arc::new(request(next, nodes, number, false)))?;
        next += 1;
    }
    for round in 0..=options.rounds {
        for number in 0..options.fitting {
            queue.push(Arc::new(request(next, nodes, next + number, true)))?;
            next += 1;
        }
        let watched = queue.waiting().iter().rev().take(options.watched);
        let watched: Vec<JobId> = watched.map(|waiting| waiting.job.id).collect();
        watched.iter().for_each(|job| policy.watch(*job));
        let began = now()?;
        let decisions = policy.schedule(&state, queue.waiting(), f64::from(round))?;
        let took = now()? - began;
        watched.iter().for_each(|job| policy.unwatch(*job));
        for (id, placement) in &decisions.placed {
            let job = queue.waiting().iter().find(|waiting| waiting.job.id == *id).ok_or("no such job")?;
            state.start(job.job.clone(), placement.clone(), f64::from(round))?;
        }
        queue.apply(&decisions);
        // In the first one the policy learns what there is.
        if round > 0 && least.is_none_or(|(least, ..)| took < least) {
            least = Some((took, decisions.placed.len(), decisions.left.len()));
        }
    }
    let (took, placed, left) = least.ok_or("at least one round")?;
    let ms = took.as_secs_f64() * 1e3;
    println!("{nodes:>7} {:>8} {ms:>10.3} {placed:>8} {left:>8}", placed + left);
    Ok(())
}

/// The policy as a broker sets it.
fn config() -> Result<PolicyConfig, Failure> {
    Ok(PolicyTable::standard().config("drmaestro")?.with(&SPREAD, true))
}

fn cluster(nodes: u32, options: &Options) -> Result<ClusterState, Failure> {
    let node = |number: u32| {
        let model = if number.is_multiple_of(2) { "A100" } else { "H100" };
        let device = DeviceSpec::gpu(model, DEVICE_MIB);
        NodeSpec::new(format!("n{number}"), 0, 0)
            .with_nic(100_000)
            .with_devices(options.devices as usize, device)
    };
    let client = |number| NodeSpec::new(format!("c{number}"), 0, 0).with_nic(10_000);
    let builder = ClusterBuilder::new().nodes((0..nodes).map(node)).nodes((0..CLIENTS).map(client));
    let profile = Profile { remote_s: 1.2, sensitivity: 0.3, ..Profile::new("p", 1.0) };
    let mut state = ClusterState::new(Arc::new(builder.build()?), Arc::new(Profiles::new(vec![profile])?));
    let mut rng = Rng::new(1);
    for number in 0..nodes {
        let mbps = if options.distinct { rng.below(50_000) } else { 50 };
        state.set_external_mbps(LinkId(number), mbps)?;
        for lease in 0..STANDING {
            let id = number * STANDING + lease;
            let device = DeviceId(number * options.devices + lease % options.devices);
            let request = DeviceRequest { memory_mib: DEVICE_MIB / 8, ..DeviceRequest::part(250) };
            let grant = Grant { device, milli: 250, memory_mib: DEVICE_MIB / 8, traffic_mbps: 0, request: 0 };
            let at = TaskPlacement {
                node: NodeId(nodes + id % CLIENTS),
                regions: Vec::new(),
                grants: vec![grant],
            };
            let job = Job::new(JobId(id), format!("standing-{id}"), Task::default().with(request));
            state.start(Arc::new(job), Placement { tasks: vec![at] }, 0.0)?;
        }
    }
    Ok(state)
}

/// A request of a client: for a part of a device, or for one or two whole ones.
fn request(id: u32, nodes: u32, number: u32, part: bool) -> Job {
    let wish = match (part, number % 3) {
        (true, 0) => DeviceRequest { memory_mib: DEVICE_MIB / 4, ..DeviceRequest::part(500) },
        (true, _) => DeviceRequest { memory_mib: DEVICE_MIB / 8, ..DeviceRequest::part(250) },
        (false, 0) => DeviceRequest::gpus(2),
        (false, _) => DeviceRequest::gpus(1),
    };
    let wish = DeviceRequest { traffic_mbps: 10, ..wish };
    let task = Task { only: vec![NodeId(nodes + number % CLIENTS)], ..Task::default().with(wish) };
    Job { submit_s: f64::from(id), ..Job::new(JobId(id), format!("request-{id}"), task) }
}
