//! `rgpu sim grid`: policies × workloads × seeds in one report.

use std::path::PathBuf;

use rgpu_placement::policy::{PolicyConfig, Setting, Value};
use rgpu_simulator::grid::{Grid, Load, Variant};
use rgpu_simulator::study::{Input, Source};
use rgpu_simulator::{Mix, Rounds, Workload};

use super::{
    AssumptionArguments, bar, fail, parse_rounds, parse_setting, policy_help, setting_help, threads,
};
use crate::Failure;

/// Simulate several policies on several workloads with several seeds, and write one report
#[derive(clap::Args)]
#[command(after_help = "Example:\n  \
    rgpu sim grid --cluster cluster.csv --workload jobs.csv --workload generate:512,rate=16,goal=1.05 \\\n    \
    --workload pods.csv,cluster=nodes.csv,rate=1 --policy drmaestro,drmaestro:max_sliver=1,fgd --seeds 10 --out report")]
pub(super) struct Arguments {
    /// Nodes, one a row, of the workloads that name no others
    #[arg(long, value_name = "CSV")]
    cluster: Option<PathBuf>,
    /// A file of jobs or of an openb trace's pods, or generate:JOBS for made-up ones, and after commas what is to be known of
    /// it: name=NAME, cluster=CSV, switches=CSV, profiles=CSV, rate=ARRIVALS-A-SECOND, goal=FACTOR, mix=uniform or mix=normal
    #[arg(long = "workload", value_name = "WHAT", required = true)]
    workloads: Vec<String>,
    #[arg(long = "policy", value_name = "NAME[:SETTING=VALUE]", value_delimiter = ',', default_value = PolicyConfig::NAMES[0],
        help = "Policies with commas between, each with what is set of it alone", long_help = policy_help())]
    policies: Vec<String>,
    #[arg(long = "set", value_name = "SETTING=VALUE", value_parser = parse_setting,
        help = "Set something of all policies, such as wait_weight=0.1; --help lists what", long_help = setting_help())]
    set: Vec<(Setting, Value)>,
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 5)]
    seeds: u64,
    /// When the scheduler is called: an interval like 1s or 500ms, or on-change
    #[arg(long, value_name = "WHEN", default_value = "1s", value_parser = parse_rounds)]
    rounds: Rounds,
    /// Where report.md, report.json and the plots go
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// How many simulations to run at once [default: as many as there are cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    assumptions: AssumptionArguments,
}

/// Reads `NAME[:SETTING=VALUE]…`; `set` comes before what stands there.
fn variant(text: &str, set: &[(Setting, Value)]) -> Result<Variant, Failure> {
    let mut parts = text.split(':');
    let mut config = PolicyConfig::named(parts.next().unwrap_or_default()).map_err(fail)?;
    for (setting, value) in set {
        config.set(*setting, *value).map_err(fail)?;
    }
    for part in parts {
        let (setting, value) = parse_setting(part).map_err(fail)?;
        let reads = |known: &Setting| known.name() == setting.name();
        if !config.kind().settings.iter().any(reads) {
            return Err(fail(format!("{} has no setting {:?}", config.name(), setting.name())));
        }
        config.set(setting, value).map_err(fail)?;
    }
    config.build().map_err(fail)?;
    Ok(Variant { name: text.to_owned(), config })
}

/// Reads a workload: what it is, and then `KEY=VALUE`, with commas between.
fn load(text: &str, arguments: &Arguments) -> Result<Load, Failure> {
    let wrong = |what: String| fail(format!("--workload {text}: {what}"));
    let mut parts = text.split(',');
    let what = parts.next().unwrap_or_default();
    let (mut name, mut cluster) = (None, arguments.cluster.clone());
    let (mut switches, mut profiles, mut rate, mut goal, mut mix) = (None, None, None, None, None);
    for part in parts {
        let (key, value) = part.split_once('=').ok_or_else(|| wrong(format!("{part:?} is not KEY=VALUE")))?;
        let number = || {
            let number = value.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
            number.ok_or_else(|| wrong(format!("{key} is {value:?}, not a number above 0")))
        };
        match key {
            "name" => name = Some(value.to_owned()),
            "cluster" => cluster = Some(value.into()),
            "switches" => switches = Some(value.into()),
            "profiles" => profiles = Some(value.into()),
            "rate" => rate = Some(number()?),
            "goal" => goal = Some(number()?),
            "mix" => {
                mix = Some(match value {
                    "uniform" => Mix::Uniform,
                    "normal" => Mix::Normal,
                    _ => return Err(wrong(format!("mix is {value:?}, not uniform or normal"))),
                });
            }
            _ => {
                return Err(wrong(format!(
                    "there is no {key:?}, but name, cluster, switches, profiles, rate, goal and mix"
                )));
            }
        }
    }
    let cluster = cluster.ok_or_else(|| {
        wrong("it has no cluster: name one with --cluster, or with cluster=CSV here".into())
    })?;
    let (jobs, usual) = match what.strip_prefix("generate:") {
        Some(count) => {
            let jobs = count
                .parse()
                .ok()
                .filter(|jobs| (1..=10_000_000).contains(jobs))
                .ok_or_else(|| wrong(format!("{count:?} is not a number of jobs from 1 to 10000000")))?;
            let made_up = Workload {
                jobs,
                rate: rate.take().unwrap_or(16.0),
                mix: mix.unwrap_or(Mix::Uniform),
                goal,
                seed: 0,
            };
            (Source::MadeUp(made_up), format!("generate-{count}"))
        }
        None if goal.is_some() || mix.is_some() => {
            return Err(wrong("goal and mix are for generate:JOBS; a file says what its jobs are".into()));
        }
        None => {
            let path = PathBuf::from(what);
            let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            (Source::File(path), stem)
        }
    };
    let assumptions = arguments.assumptions.assumptions();
    let about = format!("`{text}` on `{}`", cluster.display());
    let input = Input { cluster, switches, profiles, jobs, rate, seed: 0, assumptions };
    Ok(Load { name: name.unwrap_or(usual), about, input })
}

pub(super) fn main(arguments: &Arguments) -> Result<(), Failure> {
    let grid = Grid {
        loads: arguments.workloads.iter().map(|text| load(text, arguments)).collect::<Result<_, _>>()?,
        variants: arguments
            .policies
            .iter()
            .map(|text| variant(text, &arguments.set))
            .collect::<Result<_, _>>()?,
        seeds: arguments.seeds,
        rounds: arguments.rounds,
    };
    let loaded = grid.load().map_err(fail)?;
    let bar = bar(loaded.jobs(), "jobs");
    let cells = loaded.run(threads(arguments.threads), &|jobs| bar.inc(jobs as u64));
    bar.finish_and_clear();
    let cells = cells.map_err(fail)?;
    grid.write(&arguments.out, &cells).map_err(fail)?;
    print!("{}", grid.markdown(&cells));
    let refused = cells.iter().filter(|cell| cell.result.is_err()).count();
    if refused > 0 {
        eprintln!("{refused} of {} simulations could not be made; the report says why", cells.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use rgpu_placement::policy::MAX_SLIVER;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Arguments {
        Line::try_parse_from(line.split(' ')).unwrap().arguments
    }

    #[test]
    fn workloads_say_what_they_are() {
        let arguments = parse("grid --cluster c.csv --workload x --out o");
        let made_up = load("generate:512,rate=4,goal=1.5,mix=normal,name=mine", &arguments).ok().unwrap();
        assert_eq!(made_up.name, "mine");
        let workload = Workload { jobs: 512, rate: 4.0, mix: Mix::Normal, goal: Some(1.5), seed: 0 };
        assert_eq!(made_up.input.jobs, Source::MadeUp(workload));
        assert_eq!(made_up.input.rate, None);
        let file = load("a/pods.csv,cluster=n.csv,rate=2", &arguments).ok().unwrap();
        assert_eq!((file.name.as_str(), file.input.rate), ("pods", Some(2.0)));
        assert_eq!(file.input.cluster, PathBuf::from("n.csv"));
        for (wrong, why) in [
            ("generate:none", "number of jobs"),
            ("generate:5,rate=0", "above 0"),
            ("generate:5,mix=odd", "uniform or normal"),
            ("a.csv,goal=2", "for generate"),
            ("a.csv,colour=2", "there is no \"colour\""),
            ("a.csv,fast", "KEY=VALUE"),
        ] {
            assert!(load(wrong, &arguments).err().unwrap().message.contains(why), "{wrong}");
        }
        let none = parse("grid --workload x --out o");
        assert!(load("a.csv", &none).err().unwrap().message.contains("no cluster"));
    }

    #[test]
    fn policies_have_settings_of_their_own() {
        let set = [parse_setting("max_sliver=0.5").unwrap()];
        let of = |text| variant(text, &set).map(|variant| variant.config.get(&MAX_SLIVER));
        assert_eq!(of("drmaestro").ok(), Some(0.5));
        assert_eq!(of("drmaestro:max_sliver=1:network_aware=false").ok(), Some(1.0));
        for wrong in ["nope", "fgd:max_sliver=1", "drmaestro:max_sliver", "drmaestro:max_sliver=2"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
