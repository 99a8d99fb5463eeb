//! Kube-Knots (Thinakaran et al., CLUSTER 2019): sharing devices by what was measured of them.
//!
//! Ten nodes under the mixes of table I ([`cluster`], [`workload`]), the accuracy of the forecast ([`accuracy`]), and deep learning on
//! 256 devices ([`learning`]). Who may join whom on a device is decided by `rgpu_placement::harvest`. What the paper only draws or
//! leaves open is in `docs/profiles.md`.

mod accuracy;
mod cluster;
mod learning;
mod workload;

use rgpu_placement::harvest::{Sample, Scheme};

use crate::error::Result;
use crate::papers::cells::{cell, texts};
use crate::papers::{Options, Paper, Report};
use crate::parallel;
use crate::plot::{Plot, Series};
use crate::report::align;
use crate::statistics::{mean, quantile};

use accuracy::{HEARTBEATS_MS, Right, accuracy, correlations};
use cluster::{DEVICES, Outcome, Scheduler, Setup, level};
use workload::MIXES;

/// The paper's row.
pub(super) const PAPER: Paper = Paper {
    name: "kube-knots",
    about: "Kube-Knots: harvesting shared GPUs by correlation and peak prediction, and deep learning on 256 GPUs",
    parts: &["utilisation", "qos", "power", "accuracy", "4"],
    unit: "simulations",
    total: |options| {
        let runs = Parts::of(options);
        let mixes = if runs.mixes { MIXES.len() * Scheduler::ALL.len() } else { 0 };
        let learning = if runs.learning { learning::Scheduler::ALL.len() } else { 0 };
        options.seeds * (mixes + usize::from(runs.accuracy) + learning) as u64
    },
    run,
};

/// How long pods come, in seconds.
const SECONDS: f64 = 60.0;
/// The same where every sample is kept.
const SAMPLED_S: f64 = 30.0;
/// The shares whose SM utilisation figures 6, 8 and 9 show, and their names.
const LEVELS: [(f64, &str); 4] = [(0.5, "50%"), (0.9, "90%"), (0.99, "99%"), (1.0, "most")];

/// Published violations of queries' objectives in percent: uniform on average; Res-Ag in app-mix 1, not printed, in app-mix 3.
const PUBLISHED_QOS: [[&str; 3]; 4] =
    [["18 on average", "", ""], ["53", "", "10"], ["< 1", "< 1", "< 1"], ["< 1", "< 1", "< 1"]];
/// Published mean power in percent of uniform's; CBP's is PP's and 15.
const PUBLISHED_POWER: [&str; 4] = ["100", "33", "58", "43"];
/// Published job completion times by those of CBP+PP: mean, median, 99%.
const PUBLISHED_TIMES: [[f64; 3]; 3] = [[1.63, 1.67, 1.47], [1.36, 1.30, 1.11], [1.07, 1.11, 0.91]];

/// What is to be run.
struct Parts {
    mixes: bool,
    accuracy: bool,
    learning: bool,
}

impl Parts {
    fn of(options: &Options<'_>) -> Parts {
        let has = |names: &[&str]| options.part.is_none_or(|part| names.contains(&part));
        Parts {
            mixes: has(&["utilisation", "qos", "power"]),
            accuracy: has(&["accuracy"]),
            learning: has(&["4"]),
        }
    }
}

fn run(options: &Options<'_>) -> Result<Report> {
    let parts = Parts::of(options);
    let shows = |part: &str| options.part.is_none_or(|chosen| chosen == part);
    let mut report = Report::default();
    let mut tables = Vec::new();
    if parts.mixes {
        let runs = Mixes::run(options)?;
        if shows("utilisation") {
            tables.push(runs.utilisation());
            tables.push(runs.variation());
            report.plots.push(("figure-9-utilisation.svg".into(), runs.plot()));
        }
        if shows("qos") {
            tables.push(runs.objectives());
        }
        if shows("power") {
            tables.push(runs.power());
        }
    }
    if parts.accuracy {
        let (text, plot) = predictions(options)?;
        tables.push(text);
        report.plots.push(("figure-10b-accuracy.svg".into(), plot));
    }
    if parts.learning {
        let (text, plot) = deep_learning(options)?;
        tables.push(text);
        report.plots.push(("figure-12a-completion.svg".into(), plot));
    }
    report.text = tables.join("\n");
    Ok(report)
}

/// All runs of the mixes: by mix, by scheduler, by seed.
struct Mixes(Vec<Vec<Vec<Outcome>>>);

impl Mixes {
    fn run(options: &Options<'_>) -> Result<Mixes> {
        let mut work = Vec::new();
        for mix in &MIXES {
            for scheduler in Scheduler::ALL {
                work.extend((1..=options.seeds).map(|seed| (mix, scheduler, seed)));
            }
        }
        let outcomes = parallel::map(&work, options.threads, |(mix, scheduler, seed)| {
            let pods = workload::pods(mix, SECONDS, DEVICES, *seed);
            let outcome = cluster::run(Setup { scheduler: *scheduler, heartbeat_ms: 1, keep: false }, &pods);
            (options.progress)(1);
            Ok(outcome)
        })?;
        let mut outcomes = outcomes.into_iter();
        let mut next = |count: usize| outcomes.by_ref().take(count).collect::<Vec<_>>();
        let seeds = options.seeds as usize;
        Ok(Mixes(MIXES.iter().map(|_| Scheduler::ALL.map(|_| next(seeds)).into()).collect()))
    }

    fn values(&self, mix: usize, scheduler: usize, value: impl Fn(&Outcome) -> f64) -> Vec<f64> {
        self.0[mix][scheduler].iter().map(value).collect()
    }

    /// Figures 6, 8 and 9: SM utilisation of devices while they are awake.
    fn utilisation(&self) -> String {
        let mut header = texts(&["SM utilisation while awake", "scheduler", "mean"]);
        header.extend(LEVELS.iter().map(|(_, name)| (*name).to_owned()));
        header.extend(texts(&["mean of uniform's", "batch pods [ms]", "by forecast", "crashes"]));
        let mut rows = vec![header];
        for (mix, table) in MIXES.iter().enumerate() {
            let uniform = mean(&self.values(mix, 0, utilisation));
            for (i, scheduler) in Scheduler::ALL.iter().enumerate() {
                let first = if i == 0 { format!("app-mix {}", table.number) } else { String::new() };
                let mut row = vec![first, scheduler.name().to_owned()];
                row.push(cell(&self.values(mix, i, utilisation), 1));
                for (share, _) in LEVELS {
                    row.push(format!("{:.0}", mean(&self.values(mix, i, |run| level(&run.levels, share)))));
                }
                let ours = mean(&self.values(mix, i, utilisation));
                row.push(format!("{:+.0}%", (ours / uniform - 1.0) * 100.0));
                row.push(cell(&self.values(mix, i, |run| run.batch_ms), 0));
                row.push(format!("{:.0}", mean(&self.values(mix, i, |run| run.by_forecast as f64))));
                row.push(format!("{:.1}", mean(&self.values(mix, i, |run| run.crashes as f64))));
                rows.push(row);
            }
        }
        align(&rows)
    }

    /// Figures 7 and 11b: how unlike a device's utilisation is over time.
    fn variation(&self) -> String {
        let names = ["variation of SM load", "scheduler", "published", "least", "most", "never used"];
        let mut rows = vec![texts(&names)];
        for (mix, table) in MIXES.iter().enumerate() {
            for (i, scheduler) in Scheduler::ALL.iter().enumerate() {
                let published = match (table.number, i) {
                    (1, 1) => "0.1 to 0.7",
                    (2, 1) => "below 1",
                    (3, 1) => "above 1",
                    _ => "",
                };
                let used = |run: &Outcome| run.variation.iter().copied().filter(|v| v.is_finite()).collect();
                let least = |run: &Outcome| -> f64 {
                    let used: Vec<f64> = used(run);
                    used.into_iter().fold(f64::INFINITY, f64::min)
                };
                let most = |run: &Outcome| -> f64 {
                    let used: Vec<f64> = used(run);
                    used.into_iter().fold(0.0, f64::max)
                };
                let never = |run: &Outcome| run.variation.iter().filter(|v| v.is_infinite()).count() as f64;
                let first = if i == 0 { format!("app-mix {}", table.number) } else { String::new() };
                rows.push(vec![
                    first,
                    scheduler.name().to_owned(),
                    published.to_owned(),
                    cell(&self.values(mix, i, least), 2),
                    cell(&self.values(mix, i, most), 2),
                    format!("{:.1}", mean(&self.values(mix, i, never))),
                ]);
            }
        }
        align(&rows)
    }

    /// Figure 10a.
    fn objectives(&self) -> String {
        let mut header = texts(&["queries later than 150 ms [%]", "published (mix 1, 2, 3)"]);
        header.extend(MIXES.iter().map(|mix| format!("app-mix {}", mix.number)));
        header.push("on average".into());
        let mut rows = vec![header];
        for (i, scheduler) in Scheduler::ALL.iter().enumerate() {
            let missed = |mix: usize| self.values(mix, i, missed);
            let all: Vec<f64> =
                (0..missed(0).len()).map(|seed| mean(&[0, 1, 2].map(|mix| missed(mix)[seed]))).collect();
            let published = PUBLISHED_QOS[i].iter().filter(|text| !text.is_empty()).copied();
            let mut row = vec![scheduler.name().to_owned(), published.collect::<Vec<_>>().join(", ")];
            row.extend((0..MIXES.len()).map(|mix| cell(&missed(mix), 2)));
            row.push(cell(&all, 2));
            rows.push(row);
        }
        align(&rows)
    }

    /// Figure 11a.
    fn power(&self) -> String {
        let mut header = texts(&["power, % of uniform's", "published"]);
        header.extend(MIXES.iter().map(|mix| format!("app-mix {}", mix.number)));
        header.extend(texts(&["on average", "devices awake"]));
        let mut rows = vec![header];
        for (i, scheduler) in Scheduler::ALL.iter().enumerate() {
            let part = |mix: usize| -> Vec<f64> {
                let uniform = self.values(mix, 0, |run| run.power_w);
                self.values(mix, i, |run| run.power_w)
                    .iter()
                    .zip(uniform)
                    .map(|(w, u)| w / u * 100.0)
                    .collect()
            };
            let all: Vec<f64> =
                (0..part(0).len()).map(|seed| mean(&[0, 1, 2].map(|mix| part(mix)[seed]))).collect();
            let awake = mean(&[0, 1, 2].map(|mix| mean(&self.values(mix, i, |run| run.awake))));
            let mut row = vec![scheduler.name().to_owned(), PUBLISHED_POWER[i].to_owned()];
            row.extend((0..MIXES.len()).map(|mix| cell(&part(mix), 1)));
            row.extend([cell(&all, 1), format!("{awake:.1}")]);
            rows.push(row);
        }
        align(&rows)
    }

    fn plot(&self) -> Plot {
        let series = MIXES.iter().enumerate().flat_map(|(mix, table)| {
            [1, 3].map(|i| Series {
                name: format!("app-mix {}, {}", table.number, Scheduler::ALL[i].name()),
                points: (0..=100)
                    .map(|x| f64::from(x) / 100.0)
                    .map(|x| (x * 100.0, mean(&self.values(mix, i, |run| level(&run.levels, x)))))
                    .collect(),
            })
        });
        Plot {
            title: "SM utilisation of devices that are awake".into(),
            x: "share of the time [%]".into(),
            y: "SM utilisation [%]".into(),
            steps: true,
            log_x: false,
            series: series.collect(),
        }
    }
}

/// Mean SM utilisation while awake, in percent.
fn utilisation(run: &Outcome) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for device in &run.levels {
        for (percent, ms) in device.iter().enumerate() {
            sum += percent as f64 * *ms as f64;
            count += *ms as f64;
        }
    }
    if count > 0.0 { sum / count } else { 0.0 }
}

/// Queries that missed their objective, in percent.
fn missed(run: &Outcome) -> f64 {
    let [all, missed] = run.queries;
    if all == 0 { 0.0 } else { missed as f64 / all as f64 * 100.0 }
}

/// Figure 10b.
fn predictions(options: &Options<'_>) -> Result<(String, Plot)> {
    let seeds: Vec<u64> = (1..=options.seeds).collect();
    let found = parallel::map(&seeds, options.threads, |seed| {
        let pods = workload::pods(&MIXES[0], SAMPLED_S, DEVICES, *seed);
        let scheduler = Scheduler::Knots(Scheme::PeakPrediction);
        let outcome = cluster::run(Setup { scheduler, heartbeat_ms: 1, keep: true }, &pods);
        let right: Vec<Right> =
            HEARTBEATS_MS.iter().map(|heartbeat| accuracy(&outcome.samples, *heartbeat)).collect();
        // What the scheduler makes of such heartbeats.
        let effects: Vec<Outcome> = HEARTBEATS_MS
            .iter()
            .map(|&heartbeat| {
                let heartbeat_ms = heartbeat as u64;
                cluster::run(Setup { scheduler, heartbeat_ms, keep: false }, &pods)
            })
            .collect();
        (options.progress)(1);
        Ok((right, correlations(&outcome.samples), effects))
    })?;
    let names = [
        "forecasts right within 10% of the device [%]",
        "published",
        "next heartbeat",
        "next second",
        "late queries [%]",
        "devices awake",
    ];
    let mut rows = vec![texts(&names)];
    let mut series =
        ["next heartbeat", "next second"].map(|name| Series { name: name.to_owned(), points: Vec::new() });
    for (i, heartbeat) in HEARTBEATS_MS.iter().enumerate() {
        let published = match heartbeat {
            1 => "84",
            1000 => "36",
            _ => "",
        };
        let next: Vec<f64> = found.iter().map(|(right, ..)| right[i].next).collect();
        let second: Vec<f64> = found.iter().map(|(right, ..)| right[i].second).collect();
        series[0].points.push((*heartbeat as f64, mean(&next)));
        series[1].points.push((*heartbeat as f64, mean(&second)));
        rows.push(vec![
            format!("heartbeat {heartbeat} ms"),
            published.to_owned(),
            cell(&next, 1),
            cell(&second, 1),
            cell(&found.iter().map(|(.., effects)| missed(&effects[i])).collect::<Vec<_>>(), 2),
            cell(&found.iter().map(|(.., effects)| effects[i].awake).collect::<Vec<_>>(), 1),
        ]);
    }
    let mut table = vec![texts(&["Spearman's correlation on a device"])];
    table[0].extend(texts(&Sample::NAMES));
    for (i, name) in Sample::NAMES.iter().enumerate() {
        let mut row = vec![(*name).to_owned()];
        for j in 0..Sample::NAMES.len() {
            row.push(format!("{:.2}", mean(&found.iter().map(|(_, c, _)| c[i][j]).collect::<Vec<_>>())));
        }
        table.push(row);
    }
    let plot = Plot {
        title: "Forecasts that were right within 10% of the device".into(),
        x: "heartbeat [ms]".into(),
        y: "right [%]".into(),
        steps: false,
        log_x: true,
        series: series.into(),
    };
    Ok((align(&rows) + "\n" + &align(&table), plot))
}

/// Table IV and figure 12.
fn deep_learning(options: &Options<'_>) -> Result<(String, Plot)> {
    let schedulers = learning::Scheduler::ALL;
    let work: Vec<(usize, u64)> =
        (0..schedulers.len()).flat_map(|i| (1..=options.seeds).map(move |seed| (i, seed))).collect();
    let outcomes = parallel::map(&work, options.threads, |(i, seed)| {
        let outcome = learning::run(schedulers[*i], *seed);
        (options.progress)(1);
        Ok(outcome)
    })?;
    let seeds = options.seeds as usize;
    let of = |i: usize| &outcomes[i * seeds..(i + 1) * seeds];
    let names = [
        "completion times by those of CBP+PP",
        "published (mean, median, 99%)",
        "mean",
        "median",
        "99%",
        "training, mean",
        "queries, mean",
        "queries late an hour",
    ];
    let mut rows = vec![texts(&names)];
    let last = schedulers.len() - 1;
    for (i, scheduler) in schedulers.iter().enumerate() {
        let ratio = |value: &dyn Fn(&learning::Outcome) -> f64| -> String {
            let ratios: Vec<f64> =
                of(i).iter().zip(of(last)).map(|(theirs, ours)| value(theirs) / value(ours)).collect();
            cell(&ratios, 2)
        };
        let published = PUBLISHED_TIMES.get(i).map(|p| format!("{:.2}, {:.2}, {:.2}", p[0], p[1], p[2]));
        let late: Vec<f64> = of(i).iter().map(|run| run.missed as f64 / 12.0).collect();
        rows.push(vec![
            scheduler.name().to_owned(),
            published.unwrap_or_default(),
            ratio(&|run| mean(&run.times_s)),
            ratio(&|run| quantile(&run.times_s, 0.5)),
            ratio(&|run| quantile(&run.times_s, 0.99)),
            ratio(&|run| mean(&run.training_s)),
            ratio(&|run| mean(&run.queries_s)),
            cell(&late, 1),
        ]);
    }
    let series = schedulers.iter().enumerate().map(|(i, scheduler)| {
        let hours: Vec<f64> = of(i)[0].times_s.iter().map(|s| s / 3600.0).collect();
        crate::plot::cdf(scheduler.name().to_owned(), hours)
    });
    let plot = Plot {
        title: "Job completion time, 520 training jobs and 1,400 queries on 256 devices".into(),
        x: "time [h]".into(),
        y: "jobs [%]".into(),
        steps: true,
        log_x: true,
        series: series.collect(),
    };
    Ok((align(&rows), plot))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_run_shows_every_scheduler_and_repeats() {
        for part in ["qos", "accuracy"] {
            let options = Options { part: Some(part), seeds: 1, threads: 2, clock: None, progress: &|_| {} };
            let report = PAPER.run(&options).unwrap();
            if part == "accuracy" {
                assert!(report.text.contains("heartbeat 1000 ms"), "{}", report.text);
            } else {
                assert_eq!(report.text, PAPER.run(&options).unwrap().text);
                for scheduler in Scheduler::ALL {
                    assert!(report.text.contains(scheduler.name()), "{}", report.text);
                }
                assert!(!report.text.contains("heartbeat"));
            }
        }
    }
}
