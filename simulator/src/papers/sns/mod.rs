//! Spread-n-Share (Tang et al., SC 2019): parallel jobs are spread where they hinder themselves, and share nodes where they suit
//! each other.
//!
//! Random job sequences on 8 nodes (figures 14 to 18), the share of jobs that gain by being spread (figure 19), and clusters of 4,096
//! to 32,768 nodes (figure 20). The decisions are those of `rgpu_placement::spread`; what nodes do to jobs is in [`cluster`], how
//! programs behave in [`programs`]. What the paper only draws or leaves open is in `docs/profiles.md`.

mod cluster;
mod programs;

use rgpu_placement::Rng;
use rgpu_placement::spread::Class;

use crate::error::Result;
use crate::papers::cells::{cell, texts};
use crate::papers::{Options, Paper, Report};
use crate::parallel;
use crate::plot::{Plot, Series};
use crate::report::align;
use crate::statistics::{deviation, mean, normal};

use cluster::{Job, Outcome, Strategy, run as simulate};
use programs::{ALPHA, Behaviour, NODE, PROGRAMS, named};

/// The paper's row.
pub(super) const PAPER: Paper = Paper {
    name: "sns",
    about: "Spread-n-Share: spreading and co-locating parallel jobs against compact placement, exclusive and shared",
    parts: &["14", "19", "20"],
    unit: "simulations",
    total: |options| {
        let has = |part: &str| options.part.is_none_or(|chosen| chosen == part);
        let mut total = 0;
        total += if has("14") { options.seeds * (SEQUENCES * Strategy::ALL.len()) as u64 } else { 0 };
        total += if has("19") { options.seeds * (RATIOS * 2) as u64 } else { 0 };
        total
            + if has("20") { large_seeds(options) * (LARGE.len() * RATIOS_LARGE.len() * 2) as u64 } else { 0 }
    },
    run,
};

/// Random sequences of section 6.2, jobs of each, and nodes.
const SEQUENCES: usize = 36;
const JOBS: usize = 20;
const NODES: usize = 8;
/// Sequences of section 6.3, and jobs of each.
const RATIOS: usize = 11;
const RATIO_JOBS: usize = 30;
/// The clusters of section 6.4, and the shares of jobs that gain by being spread.
const LARGE: [usize; 3] = [4096, 8192, 32_768];
const RATIOS_LARGE: [f64; 2] = [0.9, 0.5];
/// The trace of section 6.4: jobs, hours, and the part of 4,096 nodes that they keep busy.
const TRACE_JOBS: usize = 7044;
const TRACE_H: f64 = 1900.0;
const TRACE_LOAD: f64 = 0.95;

/// The large clusters are simulated for three seeds at most: they are the same but for lots that thousands of jobs draw.
fn large_seeds(options: &Options<'_>) -> u64 {
    options.seeds.min(3)
}

fn run(options: &Options<'_>) -> Result<Report> {
    let has = |part: &str| options.part.is_none_or(|chosen| chosen == part);
    let mut report = Report::default();
    let mut tables = Vec::new();
    if has("14") {
        let (text, plots) = sequences(options)?;
        tables.push(text);
        report.plots.extend(plots);
    }
    if has("19") {
        let (text, plot) = ratios(options)?;
        tables.push(text);
        report.plots.push(plot);
    }
    if has("20") {
        tables.push(large(options)?);
    }
    report.text = tables.join("\n");
    Ok(report)
}

/// Every program with 16 and with 28 processes a node: the numbers 2i and 2i + 1.
fn behaviours() -> Vec<Behaviour> {
    PROGRAMS.iter().flat_map(|program| [16, 28].map(|processes| program.behaviour(processes))).collect()
}

/// Which behaviour a job of that program has, its number of processes drawn by lot.
fn draw(program: usize, rng: &mut Rng) -> usize {
    2 * program + usize::from(PROGRAMS[program].processes(rng) == 28)
}

/// The mean time from submission to end.
fn turnaround(jobs: &[Job], outcome: &Outcome) -> f64 {
    mean(&jobs.iter().zip(&outcome.times).map(|(job, times)| times.end_s - job.arrival_s).collect::<Vec<_>>())
}

fn run_times(outcome: &Outcome) -> Vec<f64> {
    outcome.times.iter().map(|times| times.end_s - times.start_s).collect()
}

fn wait(jobs: &[Job], outcome: &Outcome) -> f64 {
    mean(
        &jobs
            .iter()
            .zip(&outcome.times)
            .map(|(job, times)| times.start_s - job.arrival_s)
            .collect::<Vec<_>>(),
    )
}

/// The part of the core time under CE that jobs have which gain by being spread.
fn scaling_ratio(behaviours: &[Behaviour], jobs: &[Job]) -> f64 {
    let time = |job: &Job| {
        let at = &behaviours[job.behaviour].scales[0];
        at.time_s * job.factor * at.demand.cores * job.nodes as f64
    };
    let scaling = jobs.iter().filter(|job| behaviours[job.behaviour].class == Class::Scaling);
    scaling.map(time).fold(0.0, |sum, time| sum + time) / jobs.iter().map(time).sum::<f64>()
}

/// What came of one random sequence: by strategy.
struct Sequence {
    seed: u64,
    ratio: f64,
    /// Throughput of CS and SNS by that of CE.
    throughput: [f64; 2],
    /// Geometric mean, least and most of the jobs' run times by those under CE, of CS and SNS.
    run_time: [[f64; 3]; 2],
    /// Jobs of SNS that took longer than α allows, and by how much in the mean and at most.
    slow: Vec<f64>,
    /// The deviation of episodes' bandwidth by the node's, of CE and SNS.
    balance: [f64; 2],
}

fn sequence(behaviours: &[Behaviour], seed: u64, number: usize) -> Sequence {
    let mut rng = Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
    let jobs: Vec<Job> = (0..JOBS)
        .map(|_| {
            let program = rng.below(PROGRAMS.len() as u64) as usize;
            Job { arrival_s: 0.0, behaviour: draw(program, &mut rng), nodes: 1, factor: 1.0 }
        })
        .collect();
    let runs = Strategy::ALL.map(|strategy| simulate(strategy, behaviours, &jobs, NODES, true));
    let base = turnaround(&jobs, &runs[0]);
    let times = runs.each_ref().map(run_times);
    let relative = |i: usize| -> Vec<f64> { times[i].iter().zip(&times[0]).map(|(t, ce)| t / ce).collect() };
    let spread = |i: usize| {
        let relative = relative(i);
        let logs: Vec<f64> = relative.iter().map(|t| libm::log(*t)).collect();
        let least = relative.iter().copied().fold(f64::INFINITY, f64::min);
        let most = relative.iter().copied().fold(0.0, f64::max);
        [libm::exp(mean(&logs)), least, most]
    };
    let balance = |i: usize| -> f64 {
        let cells: Vec<f64> = runs[i].bandwidth.iter().flatten().copied().collect();
        deviation(&cells) / NODE.bandwidth
    };
    Sequence {
        seed,
        ratio: scaling_ratio(behaviours, &jobs),
        throughput: [1, 2].map(|i| base / turnaround(&jobs, &runs[i])),
        run_time: [spread(1), spread(2)],
        slow: relative(2).into_iter().filter(|time| *time > 1.0 / ALPHA + 1e-9).collect(),
        balance: [balance(0), balance(2)],
    }
}

/// Figures 14 to 18.
fn sequences(options: &Options<'_>) -> Result<(String, Vec<(String, Plot)>)> {
    let behaviours = behaviours();
    let work: Vec<(u64, usize)> =
        (1..=options.seeds).flat_map(|seed| (0..SEQUENCES).map(move |number| (seed, number))).collect();
    let found = parallel::map(&work, options.threads, |(seed, number)| {
        let sequence = sequence(&behaviours, *seed, *number);
        (options.progress)(Strategy::ALL.len());
        Ok(sequence)
    })?;
    // One value for each seed's 36 sequences.
    let by_seed = |value: &dyn Fn(&[&Sequence]) -> f64| -> String {
        let values: Vec<f64> = (1..=options.seeds)
            .map(|seed| value(&found.iter().filter(|found| found.seed == seed).collect::<Vec<_>>()))
            .collect();
        cell(&values, 1)
    };
    let average = |value: fn(&Sequence) -> f64| {
        by_seed(&move |all| mean(&all.iter().map(|found| value(found)).collect::<Vec<_>>()))
    };
    let most = |value: fn(&Sequence) -> f64| {
        by_seed(&move |all| all.iter().map(|found| value(found)).fold(f64::NEG_INFINITY, f64::max))
    };
    let count = |value: fn(&Sequence) -> bool| {
        by_seed(&move |all| all.iter().filter(|found| value(found)).count() as f64)
    };
    let row = |what: &str, published: &str, ours: String| vec![what.to_owned(), published.to_owned(), ours];
    let rows = vec![
        texts(&["36 random sequences of 20 jobs", "published", "ours"]),
        row("throughput of SNS over CE, mean [%]", "19.8", average(|s| (s.throughput[1] - 1.0) * 100.0)),
        row("throughput of SNS over CE, most [%]", "42.1", most(|s| (s.throughput[1] - 1.0) * 100.0)),
        row("sequences where SNS is below CE", "1", count(|s| s.throughput[1] < 1.0)),
        row("throughput of CS over CE, mean [%]", "13.7", average(|s| (s.throughput[0] - 1.0) * 100.0)),
        row(
            "throughput of SNS over CS, most [%]",
            "27.0",
            most(|s| (s.throughput[1] / s.throughput[0] - 1.0) * 100.0),
        ),
        row("sequences where SNS is above CS", "26", count(|s| s.throughput[1] > s.throughput[0])),
        row("run time under SNS by CE's, greatest mean of a sequence", "1.172", {
            let values: Vec<f64> = found.iter().map(|s| s.run_time[1][0]).collect();
            format!("{:.3}", values.into_iter().fold(0.0, f64::max))
        }),
        row(
            "sequences where SNS's mean run time is below CS's",
            "36",
            count(|s| s.run_time[1][0] < s.run_time[0][0]),
        ),
        row("sequences with longer mean run time under SNS than CE", "9", count(|s| s.run_time[1][0] > 1.0)),
        row("greatest run time of a job under CS by CE's", "3.5", {
            let values: Vec<f64> = found.iter().map(|s| s.run_time[0][2]).collect();
            format!("{:.2}", values.into_iter().fold(0.0, f64::max))
        }),
        row(
            "jobs of 720 slower under SNS than α allows",
            "136",
            by_seed(&|all| all.iter().map(|s| s.slow.len() as f64).sum()),
        ),
        row("greatest run time of a job under SNS by CE's", "2.26", {
            let values: Vec<f64> = found.iter().map(|s| s.run_time[1][2]).collect();
            format!("{:.2}", values.into_iter().fold(0.0, f64::max))
        }),
        row(
            "deviation of nodes' bandwidth by its peak, CE [%]",
            "40 (one sequence)",
            average(|s| s.balance[0] * 100.0),
        ),
        row("the same, SNS [%]", "25 (one sequence)", average(|s| s.balance[1] * 100.0)),
        row(
            "scaling ratio, least [%]",
            "40",
            by_seed(&|all| all.iter().map(|s| s.ratio * 100.0).fold(100.0, f64::min)),
        ),
        row("scaling ratio, most [%]", "80", most(|s| s.ratio * 100.0)),
    ];
    let first: Vec<&Sequence> = found.iter().filter(|found| found.seed == 1).collect();
    let series = |i: usize| {
        let mut points: Vec<(f64, f64)> =
            first.iter().map(|s| (s.ratio * 100.0, (s.throughput[i] - 1.0) * 100.0)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name: Strategy::ALL[i + 1].name().to_owned(), points }
    };
    let plot = Plot {
        title: "Throughput over CE, 36 random sequences".into(),
        x: "scaling ratio [%]".into(),
        y: "improvement [%]".into(),
        steps: false,
        log_x: false,
        series: vec![series(0), series(1)],
    };
    Ok((align(&rows), vec![("figure-14-throughput.svg".into(), plot)]))
}

/// Figure 19: 30 jobs of 28 processes, BW or HC.
fn ratios(options: &Options<'_>) -> Result<(String, (String, Plot))> {
    let behaviours = [named("BW").behaviour(28), named("HC").behaviour(28)];
    let work: Vec<(usize, u64)> =
        (0..RATIOS).flat_map(|i| (1..=options.seeds).map(move |seed| (i, seed))).collect();
    let found = parallel::map(&work, options.threads, |(i, seed)| {
        // So many of the 30 are BW, in an order drawn by lot.
        let scaling = (RATIO_JOBS * i + (RATIOS - 1) / 2) / (RATIOS - 1);
        let mut kinds: Vec<usize> = (0..RATIO_JOBS).map(|job| usize::from(job >= scaling)).collect();
        Rng::new(*seed).shuffle(&mut kinds);
        let jobs: Vec<Job> = kinds
            .into_iter()
            .map(|behaviour| Job { arrival_s: 0.0, behaviour, nodes: 1, factor: 1.0 })
            .collect();
        let [ce, sns] = [Strategy::Ce, Strategy::Sns]
            .map(|strategy| simulate(strategy, &behaviours, &jobs, NODES, false));
        (options.progress)(2);
        let part = |value: &dyn Fn(&Outcome) -> f64| value(&sns) / value(&ce);
        Ok((
            *i,
            scaling_ratio(&behaviours, &jobs),
            [
                part(&|run| mean(&run_times(run))),
                part(&|run| wait(&jobs, run)),
                part(&|run| turnaround(&jobs, run)),
            ],
        ))
    })?;
    let mut rows = vec![texts(&["SNS by CE, scaling ratio [%]", "run", "wait", "turnaround"])];
    let mut series =
        ["run", "wait", "turnaround"].map(|name| Series { name: name.into(), points: Vec::new() });
    for i in 0..RATIOS {
        let of: Vec<_> = found.iter().filter(|found| found.0 == i).collect();
        let ratio = mean(&of.iter().map(|found| found.1 * 100.0).collect::<Vec<_>>());
        let mut row = vec![format!("{ratio:.0}")];
        for (metric, series) in series.iter_mut().enumerate() {
            let values: Vec<f64> = of.iter().map(|found| found.2[metric]).collect();
            series.points.push((ratio, mean(&values)));
            row.push(cell(&values, 3));
        }
        rows.push(row);
    }
    let plot = Plot {
        title: "SNS by CE, by the share of jobs that gain by being spread".into(),
        x: "scaling ratio [%]".into(),
        y: "by CE".into(),
        steps: false,
        log_x: false,
        series: series.into(),
    };
    Ok((align(&rows), ("figure-19-scaling-ratio.svg".into(), plot)))
}

/// A trace as long and as large as that of section 6.4, and as busy as its figure says.
fn trace(ratio: f64, seed: u64, behaviours: &[Behaviour]) -> Vec<Job> {
    let mut rng = Rng::new(seed);
    let of = |scaling: bool| -> Vec<usize> {
        let class = |i: &usize| (behaviours[2 * i].class == Class::Scaling) == scaling;
        (0..PROGRAMS.len()).filter(class).collect()
    };
    let pools = [of(true), of(false)];
    let mut jobs: Vec<Job> = (0..TRACE_JOBS)
        .map(|_| {
            let pool = &pools[usize::from(rng.unit() >= ratio)];
            let program = pool[rng.below(pool.len() as u64) as usize];
            // Powers of two up to 4,096; small ones are more frequent.
            let nodes = 1usize << (12.999 * rng.unit() * rng.unit()) as u32;
            let hours = libm::exp(1.3 * normal(&mut rng)).clamp(1.0 / 6.0, 24.0);
            let behaviour = draw(program, &mut rng);
            let arrival_s = TRACE_H * 3600.0 * rng.unit();
            Job {
                arrival_s,
                behaviour,
                nodes,
                factor: hours * 3600.0 / behaviours[behaviour].scales[0].time_s,
            }
        })
        .collect();
    jobs.sort_by(|a, b| a.arrival_s.total_cmp(&b.arrival_s));
    let time = |job: &Job| behaviours[job.behaviour].scales[0].time_s * job.factor * job.nodes as f64;
    let busy: f64 = jobs.iter().map(time).sum();
    let stretch = TRACE_LOAD * LARGE[0] as f64 * TRACE_H * 3600.0 / busy;
    jobs.iter_mut().for_each(|job| job.factor *= stretch);
    jobs
}

/// Figure 20.
fn large(options: &Options<'_>) -> Result<String> {
    let behaviours = behaviours();
    let mut work = Vec::new();
    for ratio in RATIOS_LARGE {
        for nodes in LARGE {
            work.extend((1..=large_seeds(options)).map(|seed| (ratio, nodes, seed)));
        }
    }
    let found = parallel::map(&work, options.threads, |(ratio, nodes, seed)| {
        let jobs = trace(*ratio, *seed, &behaviours);
        let runs = [Strategy::Ce, Strategy::Sns].map(|strategy| {
            let outcome = simulate(strategy, &behaviours, &jobs, *nodes, false);
            (options.progress)(1);
            [mean(&run_times(&outcome)), wait(&jobs, &outcome)]
        });
        let base = runs[0][0] + runs[0][1];
        Ok(runs.map(|run| run.map(|time| time / base)))
    })?;
    let names = [
        "by CE's turnaround",
        "nodes",
        "CE run",
        "CE wait",
        "SNS run",
        "SNS wait",
        "throughput of SNS [%]",
        "published",
    ];
    let mut rows = vec![texts(&names)];
    let seeds = large_seeds(options) as usize;
    for (i, chunk) in found.chunks(seeds).enumerate() {
        let (ratio, nodes, _) = work[i * seeds];
        let of = |strategy: usize, metric: usize| -> Vec<f64> {
            chunk.iter().map(|run| run[strategy][metric]).collect()
        };
        let gain: Vec<f64> = chunk.iter().map(|run| (1.0 / (run[1][0] + run[1][1]) - 1.0) * 100.0).collect();
        let published = match (ratio > 0.7, nodes) {
            (true, 4096) => "below 0",
            (true, 32_768) => "15.7",
            (true, _) => "above 0",
            (false, 4096) => "much above 0",
            _ => "above 0, less than with 0.9",
        };
        rows.push(vec![
            format!("scaling ratio {ratio}"),
            nodes.to_string(),
            cell(&of(0, 0), 3),
            cell(&of(0, 1), 3),
            cell(&of(1, 0), 3),
            cell(&of(1, 1), 3),
            cell(&gain, 1),
            published.to_owned(),
        ]);
    }
    Ok(align(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_sweep_runs_and_repeats() {
        let options = Options { part: Some("19"), seeds: 1, threads: 2, clock: None, progress: &|_| {} };
        let report = PAPER.run(&options).unwrap();
        assert_eq!(report.text, PAPER.run(&options).unwrap().text);
        assert_eq!(report.text.lines().count(), RATIOS + 1);
        // With neutral jobs only, SNS is CE.
        assert!(report.text.lines().nth(1).unwrap().contains("1.000 ±0.000"), "{}", report.text);
    }

    #[test]
    fn the_trace_is_as_long_and_as_busy_as_it_should_be() {
        let behaviours = behaviours();
        let jobs = trace(0.9, 1, &behaviours);
        assert_eq!(jobs.len(), 7044);
        let time = |job: &Job| behaviours[job.behaviour].scales[0].time_s * job.factor * job.nodes as f64;
        let load = jobs.iter().map(time).sum::<f64>() / (4096.0 * TRACE_H * 3600.0);
        assert!((load - 0.95).abs() < 1e-9);
        let largest = jobs.iter().map(|job| job.nodes).max().unwrap();
        assert!((2048..=4096).contains(&largest), "{largest}");
    }
}
