//! The cluster as text.

use crate::table::{Table, printable};
use crate::{leases, nodes};
use rgpu_control::api::{Device, Job, Summary};
use rgpu_control::units;

use super::Snapshot;

/// All of it.
pub(super) fn lines(snapshot: &Snapshot) -> Vec<String> {
    let mut lines = vec![summary(&snapshot.summary)];
    let mut part = |title: &str, table: Table, empty: bool| {
        lines.extend([String::new(), title.to_owned()]);
        match empty {
            true => lines.push("  none".into()),
            false => lines.extend(table.lines().into_iter().map(|line| format!("  {line}"))),
        }
    };
    part("Nodes", nodes::table(&snapshot.nodes), snapshot.nodes.is_empty());
    part("GPUs", devices(&snapshot.devices), snapshot.devices.is_empty());
    part("Leases", leases::table(&snapshot.leases), snapshot.leases.is_empty());
    let queue = snapshot.queue();
    part("Queue", queue_table(&queue), queue.is_empty());
    lines
}

/// The cluster in one line.
pub(super) fn summary(summary: &Summary) -> String {
    format!(
        "{}/{} nodes ready, {} GPUs, {} granted, {} leases active, {} waiting, {:.0} launches/s, {}, round {} in {:.1} ms",
        summary.nodes_ready,
        summary.nodes,
        summary.devices,
        units::percent(match summary.devices {
            0 => 0,
            devices => summary.granted_milli / u64::from(devices),
        }),
        summary.active,
        summary.waiting,
        summary.launches_per_s,
        units::rate(summary.traffic_mbps.max(0.0)),
        summary.rounds,
        summary.round_us as f64 / 1000.0,
    )
}

fn devices(devices: &[Device]) -> Table {
    let titles = &[
        "GPU", "MODEL", "STATE", "GRANTED", "BUSY", "MEMORY", "GRANTED", "USED", "POWER", "LEASES", "HELD BY",
    ];
    let mut table = Table::new(titles, &[3, 4, 5, 6, 7, 8, 9]);
    for device in devices {
        table.row([
            format!("{}:{}", device.node, device.report.index),
            device.report.model.clone(),
            if device.available { "ready" } else { "away" }.into(),
            units::percent(device.granted_milli.into()),
            format!("{}%", device.load.utilization_percent),
            units::bytes(device.report.memory),
            units::bytes(device.granted_memory),
            units::bytes(device.load.memory_used),
            device.load.power_w.map_or("-".into(), |watts| format!("{watts:.0} W")),
            device.leases.len().to_string(),
            match device.report.enforced_by.as_str() {
                "" => "-".into(),
                by => printable(by),
            },
        ]);
    }
    table
}

fn queue_table(queue: &[&Job]) -> Table {
    let mut table = Table::new(&["PLACE", "LEASE", "NAME", "TENANT", "AGE", "ROUNDS", "WHY"], &[0, 4, 5]);
    for job in queue {
        table.row([
            job.place.to_string(),
            job.lease.to_string(),
            job.name.clone(),
            job.tenant.clone(),
            units::age(job.submitted),
            job.rounds.to_string(),
            printable(&job.reason),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::example;

    #[test]
    fn everything_is_in_it() {
        let text = lines(&example()).join("\n");
        for part in [
            "1/2 nodes ready",
            "12.5% granted",
            "1234 launches/s",
            "99 Mbit/s",
            "s1:0",
            "away",
            "train",
            "all devices",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn an_empty_cluster_has_nothing() {
        let mut snapshot = example();
        (snapshot.nodes, snapshot.devices, snapshot.leases, snapshot.jobs) = Default::default();
        snapshot.summary.devices = 0;
        let text = lines(&snapshot).join("\n");
        assert_eq!(text.matches("  none").count(), 4, "{text}");
    }
}
