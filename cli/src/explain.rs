//! `rgpu explain`: why a lease is where it is.

use std::process::ExitCode;

use rgpu_control::api::{Basis, BlockingLease, LeaseExplanation, StartEstimate};
use rgpu_control::units;

use crate::Outcome;
use crate::control::{self, BrokerArguments, print_json};
use crate::table::{Table, print_lines, printable};

/// Say why a broker placed a lease where it is, or why it waits: what is in its way, when it is expected to begin, and what would let
/// it begin now.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  rgpu explain 00c0ffee00c0ffee --broker http://broker:7080 --broker-token-file token"
)]
pub(crate) struct Arguments {
    /// Which lease: its id, or as much of its beginning as no other has (`rgpu leases` lists them)
    lease: String,
    /// For programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    broker: BrokerArguments,
}

/// Says it.
pub(crate) fn main(arguments: &Arguments) -> Outcome {
    let broker = arguments.broker.connect()?;
    let lease = control::find_lease(&broker, &arguments.lease)?;
    let explanation = broker.explain(lease).map_err(control::explain)?;
    match arguments.json {
        true => print_json(&explanation)?,
        false => print_lines(&describe(&explanation)),
    }
    Ok(ExitCode::SUCCESS)
}

/// In how much time a moment is, and how uncertain that is; `now` and the moment are seconds since 1970.
fn moment(at: u64, deviation_s: Option<f64>, now: u64) -> String {
    let about = match deviation_s {
        Some(deviation) if deviation >= 0.5 => {
            format!(", give or take {}", units::seconds(deviation.round() as u64))
        }
        _ => String::new(),
    };
    match at.saturating_sub(now) {
        0 => "any moment".to_owned() + &about,
        left => format!("in {}{about}", units::seconds(left)),
    }
}

/// When a waiting lease is expected to begin, in few words.
pub(crate) fn short(estimate: &StartEstimate) -> String {
    match estimate.start {
        Some(at) => moment(at, None, rgpu_control::unix_time()),
        None => "unknown".into(),
    }
}

fn end_of(lease: &BlockingLease, now: u64) -> String {
    let end = match lease.end {
        Some(at) => moment(at, lease.end_deviation_s, now),
        None => "nobody knows".to_owned(),
    };
    match lease.basis {
        Basis::Expiry => end + " (not renewed)",
        Basis::Ending => end + " (being ended)",
        Basis::Similar => end + " (by other inputs)",
        _ => end,
    }
}

/// Of a lease that waits: when it is expected to begin, what is in its way, and what would let it begin now.
fn waiting(explanation: &LeaseExplanation, estimate: &StartEstimate, now: u64) -> Vec<String> {
    let why = printable(&estimate.why);
    let mut lines = vec![
        format!("it waits: {}", printable(&explanation.outcome)),
        match estimate.start {
            Some(at) => format!("expected to begin {}: {why}", moment(at, estimate.deviation_s, now)),
            None => format!("when it begins is unknown: {why}"),
        },
    ];
    if !explanation.blocked_by.is_empty() {
        lines.push("in its way:".into());
        let mut table = Table::new(&["LEASE", "NAME", "TENANT", "WHERE", "SHARE", "MEMORY", "ENDS"], &[4, 5]);
        for lease in &explanation.blocked_by {
            let (id, tenant) = match (lease.lease, &lease.tenant) {
                (Some(id), Some(tenant)) => (id.to_string(), tenant.clone()),
                _ => ("another tenant's".to_owned(), "-".to_owned()),
            };
            let before = if lease.waits { "waits before it; " } else { "" };
            table.row([
                id,
                lease.name.clone().unwrap_or_else(|| "-".into()),
                tenant,
                format!("{}:{}{}", lease.node, if lease.nvme { "nvme " } else { "" }, lease.device),
                units::percent(lease.share_milli.into()),
                units::bytes(lease.memory),
                format!("{before}{}", end_of(lease, now)),
            ]);
        }
        lines.extend(table.lines().into_iter().map(|line| format!("  {line}")));
    }
    if !explanation.alternatives.is_empty() {
        lines.push("it would begin now with any one of these:".into());
        lines.extend(explanation.alternatives.iter().map(|one| format!("  {}", printable(&one.text))));
    }
    lines.push("how the policy looked at it:".into());
    lines
}

fn describe(explanation: &LeaseExplanation) -> Vec<String> {
    let mut lines = match &explanation.estimate {
        Some(estimate) => waiting(explanation, estimate, rgpu_control::unix_time()),
        None => Vec::new(),
    };
    lines.extend(choices(explanation));
    lines
}

/// The choices that the policy had.
fn choices(explanation: &LeaseExplanation) -> Vec<String> {
    let mut lines: Vec<String> = explanation.text.lines().map(printable).collect();
    // More than a headline tells the choices already.
    if lines.len() > 1 {
        return lines;
    }
    lines.push(format!("policy {}: {}", explanation.policy, printable(&explanation.outcome)));
    for step in &explanation.steps {
        let mut line = format!("{}: {} places fitted", printable(&step.phase), step.places);
        for (why, count) in &step.ruled_out {
            line += &format!(", {count} ruled out ({})", printable(why));
        }
        lines.push(line);
        if !step.candidates.is_empty() {
            let mut table = Table::new(&["", "PLACE", "COST", "EXPECTED", "LOAD"], &[2, 3, 4]);
            for candidate in &step.candidates {
                table.row([
                    if candidate.chosen { "*" } else { "" }.to_owned(),
                    candidate.place.clone(),
                    format!("{:.6}", candidate.cost),
                    candidate.expected_s.map_or("-".into(), |s| format!("{s:.3} s")),
                    format!("{:.1}%", candidate.load * 100.0),
                ]);
            }
            lines.extend(table.lines().into_iter().map(|line| format!("  {line}")));
        }
        if let Some(cost) = step.unscheduled_cost {
            lines.push(format!("  leaving it in the queue would have cost {cost:.6}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_control::LeaseId;
    use rgpu_control::api::{Alternative, ExplanationCandidate, ExplanationStep};

    #[test]
    fn the_chosen_place_is_marked() {
        let candidate = |place: &str, chosen| ExplanationCandidate {
            place: place.into(),
            cost: 0.25,
            expected_s: Some(12.0),
            load: 0.5,
            chosen,
        };
        let step = ExplanationStep {
            phase: "device".into(),
            places: 2,
            ruled_out: vec![("too little memory".into(), 3)],
            candidates: vec![candidate("s0", true), candidate("s1", false)],
            unscheduled_cost: Some(9.0),
        };
        let lines = describe(&LeaseExplanation {
            lease: LeaseId(1),
            text: "It went to s0.".into(),
            policy: "drmaestro".into(),
            outcome: "granted".into(),
            steps: vec![step],
            estimate: None,
            blocked_by: Vec::new(),
            alternatives: Vec::new(),
        });
        assert!(lines.iter().any(|line| line.starts_with("  *") && line.contains("s0")), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("3 ruled out (too little memory)")), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("50.0%") && line.contains("12.000 s")), "{lines:?}");
    }

    #[test]
    fn who_waits_reads_what_is_in_the_way_and_for_how_long() {
        let now = 1_000_000;
        let blocking = |lease: Option<u64>, waits, end: Option<u64>, basis| BlockingLease {
            lease: lease.map(LeaseId),
            name: lease.map(|_| "train".into()),
            tenant: lease.map(|_| "ann".into()),
            waits,
            node: "s0".into(),
            device: 1,
            nvme: false,
            share_milli: 500,
            memory: 8 << 30,
            expires: None,
            end: end.map(|s| now + s),
            end_deviation_s: end.map(|_| 4.0),
            basis,
        };
        let estimate = StartEstimate {
            start: Some(now + 90),
            deviation_s: Some(12.0),
            basis: Basis::Learnt,
            queued: 1,
            why: "by earlier runs".into(),
        };
        let explanation = LeaseExplanation {
            lease: LeaseId(1),
            text: "one line".into(),
            policy: "drmaestro".into(),
            outcome: "no placement fits what is free".into(),
            steps: Vec::new(),
            estimate: Some(estimate.clone()),
            blocked_by: vec![
                blocking(Some(7), false, Some(60), Basis::Learnt),
                blocking(None, true, Some(90), Basis::Similar),
                blocking(None, false, None, Basis::Unknown),
            ],
            alternatives: vec![Alternative {
                change: "share_milli".into(),
                value: Some(250),
                text: "a smaller share: --share 25%".into(),
            }],
        };
        let lines = waiting(&explanation, &estimate, now);
        assert!(lines.len() <= 12, "{lines:?}");
        assert_eq!(lines[0], "it waits: no placement fits what is free");
        assert_eq!(lines[1], "expected to begin in 90s, give or take 12s: by earlier runs");
        assert!(lines[4].contains("0000000000000007") && lines[4].contains("train"), "{lines:?}");
        assert!(lines[4].ends_with("in 60s, give or take 4s"), "{lines:?}");
        assert!(lines[5].contains("another tenant's") && !lines[5].contains("ann"), "{lines:?}");
        assert!(lines[5].contains("waits before it") && lines[5].ends_with("(by other inputs)"), "{lines:?}");
        assert!(lines[6].ends_with("nobody knows") && lines[8].ends_with("--share 25%"), "{lines:?}");
        let unknown = StartEstimate { start: None, why: "no run is known".into(), ..estimate };
        assert!(waiting(&explanation, &unknown, now)[1].starts_with("when it begins is unknown: no run"));
        assert_eq!(short(&unknown), "unknown");
    }
}
