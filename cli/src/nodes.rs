//! `rgpu nodes`: the machines of a cluster.

use std::process::ExitCode;

use rgpu_control::api::Node;
use rgpu_control::units;

use crate::Outcome;
use crate::control::{BrokerArguments, explain, print_json};
use crate::table::Table;

/// List a broker's nodes, keep new leases from one, or forget one.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  rgpu nodes\n  rgpu nodes drain gpuhost1\n  rgpu nodes remove gpuhost1")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    /// For programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    broker: BrokerArguments,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Give the node no new leases; those that it has stay
    Drain(Which),
    /// Give the node new leases again
    Undrain(Which),
    /// Forget a node that is lost, or drained and without leases
    Remove(Which),
}

#[derive(clap::Args)]
struct Which {
    /// The node
    node: String,
}

/// Does what was asked for.
pub(crate) fn main(arguments: &Arguments) -> Outcome {
    let broker = arguments.broker.connect()?;
    match &arguments.action {
        None => {
            let nodes = broker.nodes().map_err(explain)?;
            match arguments.json {
                true => print_json(&nodes)?,
                false => table(&nodes).print(),
            }
        }
        Some(Action::Drain(which)) => {
            broker.drain(&which.node, true).map_err(explain)?;
            println!("{} gets no new leases", which.node);
        }
        Some(Action::Undrain(which)) => {
            broker.drain(&which.node, false).map_err(explain)?;
            println!("{} gets new leases again", which.node);
        }
        Some(Action::Remove(which)) => {
            broker.remove_node(&which.node).map_err(explain)?;
            println!("{} is forgotten", which.node);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Nodes, a line for each.
pub(crate) fn table(nodes: &[Node]) -> Table {
    let titles = &[
        "NODE", "STATE", "ADDRESS", "GPUS", "NVMES", "LEASES", "CORES", "MEMORY", "NETWORK", "IN", "OUT",
        "HEARD", "VERSION",
    ];
    let mut table = Table::new(titles, &[3, 4, 5, 6, 7, 8, 9, 10, 11]);
    for node in nodes {
        table.row([
            node.name.clone(),
            node.state.clone(),
            if node.address.is_empty() { "-".into() } else { node.address.clone() },
            node.devices.to_string(),
            node.nvmes.len().to_string(),
            node.leases.to_string(),
            format!("{}", node.cpu_milli as f64 / 1000.0),
            units::bytes(node.memory_mib << 20),
            units::rate(node.nic_mbps as f64),
            units::rate(node.nic_in_mbps as f64),
            units::rate(node.nic_out_mbps as f64),
            match node.state.as_str() {
                "client" => "-".into(),
                _ => units::seconds(node.heard_s.max(0.0) as u64),
            },
            node.version.clone(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::example;

    #[test]
    fn a_node_is_one_line() {
        let lines = table(&example().nodes).lines();
        for part in ["s0", "ready", "10.0.0.1:7070", "10.0 Gbit/s", "120 Mbit/s"] {
            assert!(lines[1].contains(part), "{part}: {lines:?}");
        }
    }
}
