//! `rgpu profiles`: what a broker has learnt of programs.

use std::process::ExitCode;

use rgpu_control::api::{LearntProfile, Quantity};
use rgpu_control::units::bytes;

use crate::Outcome;
use crate::control::{BrokerArguments, explain, print_json};
use crate::table::{Table, print_lines};

/// Show what a broker has learnt of programs from their runs.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  rgpu profiles\n  rgpu profiles --csv > profiles.csv\n  \
    rgpu sim run --cluster cluster.csv --jobs jobs.csv --profiles profiles.csv\n  rgpu profiles forget train.py")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    /// For programs
    #[arg(long)]
    json: bool,
    /// As `rgpu sim --profiles` reads it: a line for each program and input
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    #[command(flatten)]
    broker: BrokerArguments,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Forget what was learnt of a program: it counts as never seen
    Forget {
        /// Its name
        program: String,
    },
}

pub(crate) fn main(arguments: &Arguments) -> Outcome {
    let broker = arguments.broker.connect()?;
    if let Some(Action::Forget { program }) = &arguments.action {
        broker.forget_profile(program).map_err(explain)?;
        return Ok(ExitCode::SUCCESS);
    }
    let profiles = broker.profiles().map_err(explain)?;
    if arguments.json {
        print_json(&profiles)?;
    } else if arguments.csv {
        print_lines(&csv(&profiles));
    } else {
        table(&profiles).print();
    }
    Ok(ExitCode::SUCCESS)
}

/// A quantity and how uncertain it is.
fn within(of: Quantity) -> String {
    format!("{:.2} ±{:.2}", of.mean, of.deviation)
}

/// What was learnt, a line for each program.
pub(crate) fn table(profiles: &[LearntProfile]) -> Table {
    let titles =
        &["PROGRAM", "TENANT", "RUNS", "REMOTE", "SENSITIVITY", "SECONDS", "MEMORY", "SHARE", "TRAFFIC"];
    let mut table = Table::new(titles, &[2, 3, 4, 5, 6, 7, 8]);
    for profile in profiles {
        let absent = || "-".to_owned();
        // The inputs have times of their own; here is how far they go.
        let times = profile.local_s.values().map(|time| time.mean);
        let (least, most) =
            times.fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), time| (a.min(time), b.max(time)));
        let seconds = match profile.local_s.len() {
            0 => absent(),
            1 => profile.local_s.values().next().map_or_else(absent, |time| within(*time)),
            _ => format!("{least:.2} to {most:.2}"),
        };
        let program = match profile.written {
            true => format!("{} (written)", profile.program),
            false => profile.program.clone(),
        };
        table.row([
            program,
            profile.tenant.clone(),
            profile.runs.to_string(),
            within(profile.slowdown),
            within(profile.sensitivity),
            seconds,
            profile.memory.map_or_else(absent, |memory| bytes(memory.mean as u64)),
            profile.share_milli.map_or_else(absent, |share| format!("{:.0}%", share.mean / 10.0)),
            profile.traffic_mbps.map_or_else(absent, |mbps| format!("{:.0} Mbit/s", mbps.mean)),
        ]);
    }
    table
}

/// The profiles as the simulator reads them. A profile's name is the program's; with several inputs, the input's number follows.
pub(crate) fn csv(profiles: &[LearntProfile]) -> Vec<String> {
    let header = "name,local_seconds,network_share,loaded_share,transfer_mib,gpus,gpu_memory_mib";
    let mut lines = vec![header.to_owned()];
    for profile in profiles {
        // What the network takes of a remote run, and what it takes of one beside others' traffic.
        let quiet = (1.0 - 1.0 / profile.slowdown.mean.max(1.0)).min(0.99);
        let loaded = (1.0 - (1.0 - quiet) / (1.0 + profile.sensitivity.mean)).clamp(quiet, 0.99);
        for (input, time) in &profile.local_s {
            let name = profile.program.replace([',', '"'], "_");
            let name = if profile.local_s.len() == 1 { name } else { format!("{name}-{input}") };
            let remote_s = time.mean * profile.slowdown.mean;
            let transfer = profile.traffic_mbps.map_or(0.0, |mbps| mbps.mean * remote_s / 8.388_608);
            let memory = profile.memory.map_or(0.0, |memory| memory.mean / f64::from(1 << 20)).ceil();
            lines.push(format!("{name},{:.6},{quiet:.6},{loaded:.6},{transfer:.3},1,{memory:.0}", time.mean));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learnt(inputs: &[(&str, f64)]) -> LearntProfile {
        let of = |mean| Quantity { mean, deviation: 0.5 };
        LearntProfile {
            program: "nw,x".into(),
            tenant: "ann".into(),
            runs: 3,
            last: 7,
            slowdown: of(1.25),
            sensitivity: of(0.6),
            local_s: inputs.iter().map(|(input, seconds)| ((*input).to_owned(), of(*seconds))).collect(),
            traffic_mbps: Some(of(100.0)),
            memory: Some(of(3e9)),
            share_milli: None,
            written: false,
        }
    }

    #[test]
    fn the_simulator_reads_what_was_learnt() {
        let lines = csv(&[learnt(&[("1", 31.0), ("2", 62.0)])]);
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("nw_x-1,31.000000,0.200000,0.500000,"), "{}", lines[1]);
        #[cfg(feature = "sim")]
        {
            let path = std::env::temp_dir().join(format!("rgpu-profiles-{}.csv", std::process::id()));
            std::fs::write(&path, lines.join("\n")).unwrap();
            let read = rgpu_simulator::Applications::load(&path);
            std::fs::remove_file(&path).unwrap();
            let profiles = read.unwrap().profiles;
            let profile = profiles.get(profiles.find("nw_x-2").unwrap());
            assert!(
                (profile.remote_s - 77.5).abs() < 1e-3 && (profile.sensitivity - 0.6).abs() < 1e-5,
                "{profile:?}"
            );
        }
    }

    #[test]
    fn several_inputs_show_how_far_they_go() {
        let lines = table(&[learnt(&[("1", 31.0), ("2", 62.0)]), learnt(&[("1", 31.0)])]).lines();
        assert!(lines[1].contains("31.00 to 62.00") && lines[2].contains("31.00 ±0.50"), "{lines:?}");
    }
}
