//! `rgpu leases`: what a broker has leased to whom.

use std::process::ExitCode;

use rgpu_control::api::{Lease, LeaseChange, LeaseState};
use rgpu_control::units::{self, parse_bytes, parse_share};
use rgpu_control::unix_time;

use crate::Outcome;
use crate::control::{BrokerArguments, explain, find_lease, print_json};
use crate::table::Table;

/// List a broker's leases, give one back, or change one.
///
/// A tenant sees its own. SHARE is what a lease was promised of each GPU's time. Of those that may be resized (`rgpu run --harvest`),
/// FIRM is the part of it that they get whenever they want it, and SET ASIDE what is kept for them now, by what they use.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    rgpu leases --broker http://broker:7080 --broker-token-file token\n  \
    rgpu leases release 00c0ffee00c0ffee\n  \
    rgpu leases resize 00c0ffee00c0ffee --gpu-memory 2GiB --share 50%")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    /// Those too that ended lately
    #[arg(long)]
    all: bool,
    /// For programs
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    broker: BrokerArguments,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Give a lease back: its programs lose their GPUs
    Release {
        /// Which: its id, or as much of its beginning as no other has
        lease: String,
    },
    /// Change what a lease gives, while its programs run
    Resize {
        /// Which: its id, or as much of its beginning as no other has
        lease: String,
        /// Memory of each GPU from now on, such as 2GiB
        #[arg(long, value_name = "BYTES", value_parser = parse_bytes, required_unless_present = "share")]
        gpu_memory: Option<u64>,
        /// Share of each GPU's time from now on, such as 50%
        #[arg(long, value_name = "SHARE", value_parser = parse_share)]
        share: Option<u16>,
    },
}

/// Does what was asked for.
pub(crate) fn main(arguments: &Arguments) -> Outcome {
    let broker = arguments.broker.connect()?;
    match &arguments.action {
        None => {
            let leases = broker.leases(arguments.all).map_err(explain)?;
            match arguments.json {
                true => print_json(&leases)?,
                false => table(&leases).print(),
            }
        }
        Some(Action::Release { lease }) => {
            let lease = find_lease(&broker, lease)?;
            broker.release(lease).map_err(explain)?;
            println!("{lease} is given back");
        }
        Some(Action::Resize { lease, gpu_memory, share }) => {
            let change = LeaseChange { memory: *gpu_memory, share_milli: *share };
            let lease = find_lease(&broker, lease)?;
            let changed = broker.change_lease(lease, &change).map_err(explain)?;
            match arguments.json {
                true => print_json(&changed)?,
                false => table(&[changed]).print(),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Leases, a line for each.
pub(crate) fn table(leases: &[Lease]) -> Table {
    let titles = &[
        "LEASE",
        "NAME",
        "TENANT",
        "STATE",
        "GPUS",
        "MEMORY",
        "SHARE",
        "FIRM",
        "SET ASIDE",
        "USED",
        "BUSY",
        "CPUS",
        "CORES",
        "WHERE",
        "FOR",
        "AGE",
        "DEADLINE",
        "NOTE",
    ];
    let mut table = Table::new(titles, &[4, 5, 6, 7, 8, 9, 10, 11, 15]);
    for lease in leases {
        table.row([
            lease.id.to_string(),
            lease.name.clone(),
            lease.tenant.clone(),
            lease.state.name().to_owned(),
            match lease.grants.len() {
                0 => "-".into(),
                count => count.to_string(),
            },
            each(lease.grants.iter().map(|grant| units::bytes(grant.memory))),
            each(lease.grants.iter().map(|grant| units::percent(grant.share_milli.into()))),
            each(lease.sizes.iter().map(|size| units::percent(size.firm_milli.into()))),
            each(lease.sizes.iter().map(|size| units::percent(size.set_aside_milli.into()))),
            each(lease.usage.iter().map(|usage| units::bytes(usage.memory))),
            each(lease.usage.iter().map(|usage| units::percent(usage.share_milli.into()))),
            each(lease.processors.iter().map(|node| cpus(node.usage.cpu_milli))),
            each(lease.processors.iter().filter_map(|node| node.usage.cores.clone())),
            places(lease),
            lease.client_node.clone(),
            units::age(lease.submitted),
            deadline(lease, unix_time()),
            note(lease),
        ]);
    }
    table
}

/// When a lease's program is to have ended, and whether that is expected; for people.
fn deadline(lease: &Lease, now: u64) -> String {
    let Some(deadline) = lease.deadline else { return "-".into() };
    let over = matches!(lease.state, LeaseState::Ending | LeaseState::Ended);
    match (over, lease.deadline_kept) {
        (true, Some(true)) => "kept".into(),
        (true, None) => "-".into(),
        (true, Some(false)) => "missed".into(),
        (false, _) if deadline < now => "missed".into(),
        (false, kept) => {
            let left = units::seconds(deadline - now);
            let how = match kept {
                Some(true) => "",
                Some(false) => ", late",
                None => "?",
            };
            format!("in {left}{how}")
        }
    }
}

/// Why it waits or has ended, and when one that waits is expected to begin.
fn note(lease: &Lease) -> String {
    match &lease.estimate {
        Some(estimate) => format!("{}; begins: {}", lease.reason, crate::explain::short(estimate)),
        None => lease.reason.clone(),
    }
}

/// Thousandths of processors.
fn cpus(milli: u32) -> String {
    format!("{:.1}", f64::from(milli) / 1000.0)
}

/// What all devices have, or what each has.
fn each(values: impl Iterator<Item = String>) -> String {
    let mut values: Vec<String> = values.collect();
    values.dedup();
    if values.is_empty() { "-".into() } else { values.join(",") }
}

/// Nodes, device numbers and NVMe devices, such as `a:0,1 b:0 b:nvme0n1`.
pub(crate) fn places(lease: &Lease) -> String {
    let mut text = String::new();
    let mut last = "";
    for grant in &lease.grants {
        if grant.node == last {
            text += &format!(",{}", grant.device);
            continue;
        }
        let gap = if text.is_empty() { "" } else { " " };
        text += &format!("{gap}{}:{}", grant.node, grant.device);
        last = &grant.node;
    }
    for nvme in &lease.nvmes {
        let gap = if text.is_empty() { "" } else { " " };
        text += &format!("{gap}{}:{}", nvme.node, nvme.device);
    }
    if text.is_empty() { "-".into() } else { text }
}

#[cfg(test)]
mod tests {
    use rgpu_control::api::LeaseSize;

    use super::*;
    use crate::status::example;

    #[test]
    fn of_resizable_leases_the_promise_and_the_present_size_are_shown() {
        let mut lease = example().leases[0].clone();
        lease.sizes = vec![LeaseSize { firm_milli: 120, set_aside_milli: 80 }];
        let lines = table(&[lease.clone()]).lines();
        for part in ["25%", "12%", "8%"] {
            assert!(lines[1].contains(part), "{part}: {lines:?}");
        }
        lease.sizes = Vec::new();
        assert!(!table(&[lease]).lines()[1].contains("12%"));
    }

    #[test]
    fn a_lease_is_one_line() {
        let snapshot = example();
        let lines = table(&snapshot.leases).lines();
        assert_eq!(lines.len(), 1 + snapshot.leases.len());
        for part in ["train", "ann", "active", "1.0 GiB", "25%", "1.9", "4-5", "s0:0", "client"] {
            assert!(lines[1].contains(part), "{part}: {lines:?}");
        }
        assert!(lines[2].contains("waiting") && lines[2].contains("all devices are taken"), "{lines:?}");
    }

    #[test]
    fn deadlines_are_said_with_what_is_expected() {
        let mut lease = example().leases[0].clone();
        assert_eq!(deadline(&lease, 100), "-");
        lease.deadline = Some(130);
        for (kept, text) in [(Some(true), "in 30s"), (Some(false), "in 30s, late"), (None, "in 30s?")] {
            lease.deadline_kept = kept;
            assert_eq!(deadline(&lease, 100), text);
        }
        assert_eq!(deadline(&lease, 131), "missed");
        lease.state = LeaseState::Ended;
        for (kept, text) in [(Some(true), "kept"), (Some(false), "missed"), (None, "-")] {
            lease.deadline_kept = kept;
            assert_eq!(deadline(&lease, 200), text);
        }
    }

    #[test]
    fn places_name_each_node_once() {
        let mut lease = example().leases[0].clone();
        let grant = lease.grants[0].clone();
        lease.grants.push(rgpu_control::token::Grant { device: 1, ..grant.clone() });
        lease.grants.push(rgpu_control::token::Grant { node: "s1".into(), ..grant });
        assert_eq!(places(&lease), "s0:0,1 s1:0");
    }
}
