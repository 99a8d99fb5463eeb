//! `rgpu status`: what a cluster does, as it happens.

#[cfg(feature = "top")]
mod live;
mod plain;
#[cfg(feature = "top")]
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;

use rgpu_control::api::{Device, Job, Lease, LeaseState, Node, Summary};
use rgpu_control::{Broker, ClientError};

use crate::control::{BrokerArguments, explain};
use crate::{Failure, Outcome};

/// Show a broker's nodes, GPUs, leases and queue as they change.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    rgpu status --broker http://broker:7080 --broker-token-file token\n  \
    rgpu status --once\n\n\
    Keys: q quits, the arrows scroll.")]
pub(crate) struct Arguments {
    /// Print tables once, as it also does where its output is no terminal
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    broker: BrokerArguments,
}

/// Shows it.
pub(crate) fn main(arguments: &Arguments) -> Outcome {
    let broker = arguments.broker.connect()?;
    // A first look that fails is told as every command does.
    let snapshot = Snapshot::fetch(&broker).map_err(explain)?;
    if arguments.once || !std::io::stdout().is_terminal() {
        crate::table::print_lines(&plain::lines(&snapshot));
    } else {
        show_live(&broker, snapshot)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the cluster as it changes.
#[cfg(feature = "top")]
fn show_live(broker: &Broker, snapshot: Snapshot) -> Result<(), Failure> {
    live::show(broker, snapshot)
}

#[cfg(not(feature = "top"))]
fn show_live(_: &Broker, snapshot: Snapshot) -> Result<(), Failure> {
    crate::table::print_lines(&plain::lines(&snapshot));
    eprintln!("rgpu: {}", crate::left_out::failure("The view that changes", "top").message);
    Ok(())
}

/// A cluster at a time.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    /// In a few numbers.
    pub summary: Summary,
    /// The nodes of the cluster.
    pub nodes: Vec<Node>,
    /// The devices of all nodes.
    pub devices: Vec<Device>,
    /// The leases that aren't over.
    pub leases: Vec<Lease>,
    /// What waits or runs.
    pub jobs: Vec<Job>,
}

impl Snapshot {
    /// Asks the broker.
    fn fetch(broker: &Broker) -> Result<Self, ClientError> {
        let mut snapshot = Self {
            summary: broker.summary()?,
            nodes: broker.nodes()?,
            devices: broker.devices()?,
            leases: broker.leases(false)?,
            jobs: broker.jobs()?,
        };
        snapshot.nodes.sort_by(|a, b| a.name.cmp(&b.name));
        snapshot.devices.sort_by(|a, b| (&a.node, a.report.index).cmp(&(&b.node, b.report.index)));
        let rank = |lease: &Lease| match lease.state {
            LeaseState::Active => 0,
            LeaseState::Ending => 1,
            LeaseState::Waiting => 2,
            LeaseState::Ended => 3,
        };
        snapshot.leases.sort_by_key(|lease| (rank(lease), lease.submitted, lease.id));
        Ok(snapshot)
    }

    /// What waits, in the queue's order.
    pub(crate) fn queue(&self) -> Vec<&Job> {
        let mut queue: Vec<&Job> = self.jobs.iter().filter(|job| job.place > 0).collect();
        queue.sort_by_key(|job| job.place);
        queue
    }
}

/// A cluster for tests: two nodes, a lease on one of them, and one that waits.
#[cfg(test)]
pub(crate) fn example() -> Snapshot {
    use rgpu_control::LeaseId;
    use rgpu_control::api::{DeviceLoad, DeviceReport, GrantUsage, NodeProcessors, ProcessorUsage};
    use rgpu_control::token::Grant;
    let node = |name: &str, state: &str, address: &str| Node {
        name: name.into(),
        state: state.into(),
        address: address.into(),
        cpu_milli: 8000,
        memory_mib: 32 << 10,
        nic_mbps: 10_000,
        nic_in_mbps: 120,
        nic_out_mbps: 30,
        others_mbps: 0,
        heard_s: 0.4,
        version: "0.1.0".into(),
        devices: 1,
        leases: 1,
        tls: false,
        nvmes: Vec::new(),
        peers: Vec::new(),
        controls: None,
    };
    let device = |node: &str, granted_milli: u32, available: bool| Device {
        node: node.into(),
        report: DeviceReport {
            index: 0,
            model: "rgpu software GPU".into(),
            uuid: "GPU-0".into(),
            memory: 2 << 30,
            bus_mbps: 0,
            partitionable: true,
            alone: false,
            compute_capability: "8.0".into(),
            software: true,
            enforced_by: "workers".into(),
        },
        load: DeviceLoad {
            index: 0,
            utilization_percent: 20,
            memory_used: 512 << 20,
            ..DeviceLoad::default()
        },
        granted_milli,
        granted_memory: 1 << 30,
        leases: vec![LeaseId(1)],
        available,
    };
    let lease = |id: u64, name: &str, state: LeaseState| Lease {
        id: LeaseId(id),
        name: name.into(),
        tenant: "ann".into(),
        state,
        reason: String::new(),
        version: 1,
        submitted: rgpu_control::unix_time(),
        granted: None,
        expires: None,
        ended: None,
        grants: Vec::new(),
        sizes: Vec::new(),
        servers: Vec::new(),
        token: None,
        transport: "auto".into(),
        client_node: "client".into(),
        remote: 0,
        usage: Vec::new(),
        processors: Vec::new(),
        sessions: 0,
        ca: None,
        deadline: None,
        deadline_kept: None,
        nvmes: Vec::new(),
        estimate: None,
        key: None,
    };
    let mut running = lease(1, "train", LeaseState::Active);
    running.grants = vec![Grant { node: "s0".into(), device: 0, memory: 1 << 30, share_milli: 250 }];
    running.usage = vec![GrantUsage { memory: 300 << 20, share_milli: 241, ..GrantUsage::default() }];
    running.processors = vec![NodeProcessors {
        node: "s0".into(),
        usage: ProcessorUsage { cpu_milli: 1930, cores: Some("4-5".into()), ..ProcessorUsage::default() },
    }];
    let mut waiting = lease(2, "infer", LeaseState::Waiting);
    waiting.reason = "all devices are taken".into();
    let job = Job {
        lease: LeaseId(2),
        name: "infer".into(),
        tenant: "ann".into(),
        state: "waiting".into(),
        submitted: rgpu_control::unix_time(),
        rounds: 3,
        reason: "all devices are taken".into(),
        place: 1,
        expected_s: None,
    };
    Snapshot {
        summary: Summary {
            nodes_ready: 1,
            nodes: 2,
            devices: 2,
            granted_milli: 250,
            active: 1,
            waiting: 1,
            rounds: 12,
            round_us: 340,
            launches_per_s: 1234.0,
            traffic_mbps: 98.7,
        },
        nodes: vec![node("s0", "ready", "10.0.0.1:7070"), node("s1", "lost", "10.0.0.2:7070")],
        devices: vec![device("s0", 250, true), device("s1", 0, false)],
        leases: vec![running, waiting],
        jobs: vec![job],
    }
}
