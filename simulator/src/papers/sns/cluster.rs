//! Nodes that parallel jobs share: cores, cache and memory bandwidth, from event to event.

use std::collections::HashMap;

use rgpu_placement::spread::{Amounts, BETA, choose};

use super::programs::{AtScale, Behaviour, NODE};

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// Compact and exclusive.
    Ce,
    /// Compact and shared: the smallest scale factor for which there are idle cores.
    Cs,
    /// Spread and shared, by profiles.
    Sns,
}

impl Strategy {
    /// All, in the order of the tables.
    pub(super) const ALL: [Strategy; 3] = [Strategy::Ce, Strategy::Cs, Strategy::Sns];

    /// As the paper calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Strategy::Ce => "CE",
            Strategy::Cs => "CS",
            Strategy::Sns => "SNS",
        }
    }
}

/// A job.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// When it comes.
    pub arrival_s: f64,
    /// Which of the behaviours it has.
    pub behaviour: usize,
    /// How many nodes it has at scale factor 1.
    pub nodes: usize,
    /// By what its times are multiplied.
    pub factor: f64,
}

/// When a job ran.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Times {
    /// When it started.
    pub start_s: f64,
    /// When it ended.
    pub end_s: f64,
    /// The scale factor that it had.
    pub scale: u32,
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// Of each job.
    pub times: Vec<Times>,
    /// Of each node, the mean bandwidth in GB/s over episodes of [`EPISODE_S`]; empty unless asked for.
    pub bandwidth: Vec<Vec<f64>>,
}

/// How long an episode of figure 17 is.
pub(super) const EPISODE_S: f64 = 30.0;
/// After how many rounds in which it was passed over a job lets nobody pass any more.
const AGE_LIMIT: u32 = 10;
/// How many of the waiting jobs are looked at in a round.
const LOOKED_AT: usize = 100;

/// A job that runs.
struct Running {
    nodes: Vec<usize>,
    at: usize,
    rate: f64,
    left_s: f64,
}

struct Cluster<'a> {
    strategy: Strategy,
    behaviours: &'a [Behaviour],
    jobs: &'a [Job],
    /// What isn't set aside.
    free: Vec<Amounts>,
    on: Vec<Vec<usize>>,
    running: HashMap<usize, Running>,
    /// Those that wait, and in how many rounds others passed them.
    pending: Vec<(usize, u32)>,
    now_s: f64,
    outcome: Outcome,
}

/// Runs the jobs, which come in the order of their arrivals, on that many nodes.
pub(super) fn run(
    strategy: Strategy,
    behaviours: &[Behaviour],
    jobs: &[Job],
    nodes: usize,
    episodes: bool,
) -> Outcome {
    let mut cluster = Cluster {
        strategy,
        behaviours,
        jobs,
        free: vec![NODE; nodes],
        on: vec![Vec::new(); nodes],
        running: HashMap::new(),
        pending: Vec::new(),
        now_s: 0.0,
        outcome: Outcome {
            times: vec![Times::default(); jobs.len()],
            bandwidth: if episodes { vec![Vec::new(); nodes] } else { Vec::new() },
        },
    };
    let (mut next, mut ended) = (0, 0);
    while ended < jobs.len() {
        let mut until = jobs.get(next).map_or(f64::INFINITY, |job| job.arrival_s);
        for running in cluster.running.values() {
            until = until.min(cluster.now_s + running.left_s / running.rate);
        }
        cluster.advance(until);
        ended += cluster.collect();
        while jobs.get(next).is_some_and(|job| job.arrival_s <= cluster.now_s) {
            cluster.pending.push((next, 0));
            next += 1;
        }
        cluster.round();
    }
    cluster.outcome
}

impl Cluster<'_> {
    fn at(&self, job: usize, at: usize) -> &AtScale {
        &self.behaviours[self.jobs[job].behaviour].scales[at]
    }

    /// What a job takes of each of its nodes.
    fn wanted(&self, at: &AtScale) -> Amounts {
        match self.strategy {
            Strategy::Ce => NODE,
            Strategy::Cs => Amounts { cores: at.demand.cores, ..Amounts::default() },
            Strategy::Sns => at.demand,
        }
    }

    fn advance(&mut self, until: f64) {
        for node in 0..self.outcome.bandwidth.len() {
            let used: f64 = self.on[node].iter().map(|job| self.bandwidth(*job)).sum();
            let episodes = &mut self.outcome.bandwidth[node];
            let mut from = self.now_s;
            while from < until {
                let episode = (from / EPISODE_S) as usize;
                let to = until.min((episode + 1) as f64 * EPISODE_S);
                if episodes.len() <= episode {
                    episodes.resize(episode + 1, 0.0);
                }
                episodes[episode] += used.min(NODE.bandwidth) * (to - from) / EPISODE_S;
                if to <= from {
                    break;
                }
                from = to;
            }
        }
        for running in self.running.values_mut() {
            running.left_s -= (until - self.now_s) * running.rate;
        }
        self.now_s = until;
    }

    /// The bandwidth that a running job takes of each of its nodes now.
    fn bandwidth(&self, job: usize) -> f64 {
        let running = &self.running[&job];
        self.at(job, running.at).bandwidth * running.rate
    }

    fn collect(&mut self) -> usize {
        let mut done: Vec<usize> =
            self.running.iter().filter(|(_, running)| running.left_s <= 1e-6).map(|(job, _)| *job).collect();
        done.sort_unstable();
        for &job in &done {
            let Some(running) = self.running.remove(&job) else { continue };
            self.outcome.times[job].end_s = self.now_s;
            let wanted = self.wanted(self.at(job, running.at));
            for &node in &running.nodes {
                let free = &mut self.free[node];
                free.cores += wanted.cores;
                free.ways += wanted.ways;
                free.bandwidth += wanted.bandwidth;
                self.on[node].retain(|other| *other != job);
            }
            self.renew(&running.nodes);
        }
        done.len()
    }

    /// One scheduling round: the longest waiting first.
    fn round(&mut self) {
        // What wasn't found once in a round isn't found later in it, nor is more of the same.
        let mut hopeless: HashMap<(usize, u32), usize> = HashMap::new();
        let mut passed = Vec::new();
        let mut rest = std::mem::take(&mut self.pending).into_iter();
        for (looked, (job, age)) in rest.by_ref().enumerate() {
            if !self.place(job, &mut hopeless) {
                passed.push((job, age));
                if age >= AGE_LIMIT {
                    break;
                }
            }
            if looked + 1 >= LOOKED_AT {
                break;
            }
        }
        // Only those that somebody behind them passed have aged.
        let last =
            self.outcome.times.iter().rposition(|times| times.scale > 0 && times.start_s == self.now_s);
        for (job, age) in &mut passed {
            *age += u32::from(last.is_some_and(|last| last > *job));
        }
        passed.extend(rest);
        self.pending = passed;
    }

    fn place(&mut self, job: usize, hopeless: &mut HashMap<(usize, u32), usize>) -> bool {
        let Job { behaviour, nodes, factor, .. } = self.jobs[job];
        let known = &self.behaviours[behaviour];
        let order: Vec<u32> = match self.strategy {
            Strategy::Ce => vec![1],
            Strategy::Cs => known.scales.iter().map(|at| at.scale).collect(),
            Strategy::Sns => known.tried.clone(),
        };
        for scale in order {
            let count = nodes * scale as usize;
            if count > self.free.len()
                || hopeless.get(&(behaviour, scale)).is_some_and(|least| count >= *least)
            {
                continue;
            }
            let Some(at) = known.scales.iter().position(|at| at.scale == scale) else { continue };
            let wanted = self.wanted(&known.scales[at]);
            let beta = if self.strategy == Strategy::Sns { BETA } else { 0.0 };
            let Some(chosen) = choose(&self.free, |_| NODE, &wanted, count, beta) else {
                hopeless.insert((behaviour, scale), count);
                continue;
            };
            for &node in &chosen {
                let free = &mut self.free[node];
                free.cores -= wanted.cores;
                free.ways -= wanted.ways;
                free.bandwidth = (free.bandwidth - wanted.bandwidth).max(0.0);
                self.on[node].push(job);
            }
            let left_s = known.scales[at].time_s * factor;
            self.outcome.times[job] = Times { start_s: self.now_s, end_s: f64::INFINITY, scale };
            self.running.insert(job, Running { nodes: chosen.clone(), at, rate: 1.0, left_s });
            self.renew(&chosen);
            return true;
        }
        false
    }

    /// Whoever has something on these nodes goes at a new speed.
    fn renew(&mut self, nodes: &[usize]) {
        let mut affected: Vec<usize> = nodes.iter().flat_map(|node| &self.on[*node]).copied().collect();
        affected.sort_unstable();
        affected.dedup();
        for job in affected {
            let running = &self.running[&job];
            let slowest = running.nodes.iter().map(|node| self.speed(job, running.at, *node));
            let rate = slowest.fold(1.0, f64::min);
            if let Some(running) = self.running.get_mut(&job) {
                running.rate = rate;
            }
        }
    }

    /// The part of its speed alone that a job has on one of its nodes.
    fn speed(&self, job: usize, at: usize, node: usize) -> f64 {
        let there = &self.on[node];
        if there.len() < 2 {
            return 1.0;
        }
        let of = |other: &usize| self.at(*other, self.running[other].at);
        let all: f64 = there.iter().map(|other| of(other).bandwidth).sum();
        let mine = self.at(job, at);
        let ways = match self.strategy {
            // What nobody was promised is given away in equal parts.
            Strategy::Sns => mine.demand.ways + self.free[node].ways / there.len() as f64,
            // Nothing keeps them apart: half by the cores that fill the cache, half by what they move through it.
            _ => {
                let cores: f64 = there.iter().map(|other| of(other).demand.cores).sum();
                NODE.ways * 0.5 * (mine.demand.cores / cores + mine.bandwidth / all)
            }
        };
        mine.speed(ways) * mine.throttled(NODE.bandwidth / all)
    }
}

#[cfg(test)]
mod tests {
    use super::super::programs::{PROGRAMS, named};
    use super::*;

    fn behaviours(names: &[&str]) -> Vec<Behaviour> {
        names.iter().map(|name| named(name).behaviour(16)).collect()
    }

    fn job(behaviour: usize) -> Job {
        Job { arrival_s: 0.0, behaviour, nodes: 1, factor: 1.0 }
    }

    #[test]
    fn compact_and_exclusive_takes_turns() {
        let behaviours = behaviours(&["EP"]);
        let outcome = run(Strategy::Ce, &behaviours, &[job(0), job(0), job(0)], 2, false);
        let ends: Vec<f64> = outcome.times.iter().map(|times| times.end_s).collect();
        assert_eq!(ends, [350.0, 350.0, 700.0]);
    }

    #[test]
    fn idle_cores_are_used_and_bandwidth_is_shared() {
        let behaviours = behaviours(&["EP", "MG"]);
        let jobs = [job(0), job(1)];
        // 16 and 12 of 28 cores don't hold both on one node; spread over two, they share both.
        let compact = run(Strategy::Cs, &behaviours, &jobs, 2, true);
        assert_eq!(compact.times[0].scale, 1);
        let bandwidth: f64 = compact.bandwidth.iter().flatten().sum();
        // 112 GB/s for 300 s, and next to nothing for 350.
        assert!((bandwidth * EPISODE_S / (112.0 * 300.0) - 1.0).abs() < 0.02, "{bandwidth}");
        let spread = run(Strategy::Sns, &behaviours, &jobs[1..], 8, false);
        assert_eq!(spread.times[0].scale, 8);
        assert!((spread.times[0].end_s - 300.0 / 1.36).abs() < 1e-6);
    }

    #[test]
    fn nothing_is_promised_twice_and_nobody_starves() {
        let behaviours: Vec<Behaviour> = PROGRAMS.iter().map(|program| program.behaviour(28)).collect();
        let jobs: Vec<Job> = (0..60).map(|i| job(i % 12)).collect();
        for strategy in Strategy::ALL {
            let outcome = run(strategy, &behaviours, &jobs, 8, false);
            assert!(outcome.times.iter().all(|times| times.end_s.is_finite() && times.end_s > times.start_s));
            assert_eq!(outcome, run(strategy, &behaviours, &jobs, 8, false));
        }
    }
}
