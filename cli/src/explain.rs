//! `rgpu explain`: why a lease is where it is.

use std::process::ExitCode;

use rgpu_control::api::LeaseExplanation;

use crate::Outcome;
use crate::control::{self, BrokerArguments, print_json};
use crate::table::{Table, print_lines, printable};

/// Say why a broker placed a lease where it is, or why it waits.
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

fn describe(explanation: &LeaseExplanation) -> Vec<String> {
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
    use rgpu_control::api::{ExplanationCandidate, ExplanationStep};

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
        });
        assert!(lines.iter().any(|line| line.starts_with("  *") && line.contains("s0")), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("3 ruled out (too little memory)")), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("50.0%") && line.contains("12.000 s")), "{lines:?}");
    }
}
