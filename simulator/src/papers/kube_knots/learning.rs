//! Deep learning on 256 devices: training jobs of minutes to hours and queries of milliseconds to seconds, under four schedulers
//! (section V-C; figure 12 and table IV).
//!
//! Nodes of eight devices; a job has devices of one node, or whole nodes. Jobs on a device share its time, and a job goes as fast as
//! on its slowest device. What is simplified of Gandiva and Tiresias is said where they decide.

use rgpu_placement::Rng;
use rgpu_placement::harvest::{Footprint, Forecast, Need, Pod as Candidate, Scheme, decide};

use super::workload::MEMORY_MIB;
use crate::statistics::{exponential, normal};

const NODES: usize = 32;
const PER_NODE: usize = 8;
const DEVICES: usize = NODES * PER_NODE;
const TRAINING: usize = 520;
const QUERIES: usize = 1400;
/// The time in which they come.
const SPAN_S: f64 = 12.0 * 3600.0;
/// This part of them comes within the fourth hour, the rest evenly: the trace's arrivals are bursts.
const PEAK: f64 = 1.0 / 3.0;
const PEAK_S: [f64; 2] = [3.0 * 3600.0, 4.0 * 3600.0];
/// How often schedulers with slices look again.
const SLICE_S: f64 = 60.0;
/// What Gandiva's migration and Tiresias's pausing and resuming cost a job.
const MOVE_S: f64 = 5.0;
/// The device time after which Tiresias puts a job into its lower queue, in device seconds.
const ATTAINED_S: f64 = 3600.0;
/// A query misses its objective when it takes longer than this and its time alone.
const OBJECTIVE_S: f64 = 0.150;
const DEVICE: Need = Need { memory_mib: MEMORY_MIB, sm: 100.0 };

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheduler {
    /// First fit, decreasing by memory asked for.
    ResAg,
    /// Slices in turn, packing on trial, migration.
    Gandiva,
    /// Least attained service first, with preemption.
    Tiresias,
    /// First come, first served, sharing where harvesting admits it.
    Knots,
}

impl Scheduler {
    /// All, in the order of table IV, ours last.
    pub(super) const ALL: [Scheduler; 4] =
        [Scheduler::ResAg, Scheduler::Gandiva, Scheduler::Tiresias, Scheduler::Knots];

    /// What tables call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Scheduler::ResAg => "Res-Ag",
            Scheduler::Gandiva => "Gandiva-like",
            Scheduler::Tiresias => "Tiresias-like",
            Scheduler::Knots => "CBP+PP",
        }
    }
}

/// A kind of training: how its mini-batches come and go.
#[derive(Clone, Copy, Debug)]
struct Model {
    /// Percent of the multiprocessors in a mini-batch's computation, and between two of them.
    sm: [f64; 2],
    /// Part of the device's memory in use during the computation.
    memory: f64,
    /// How long a mini-batch takes, in seconds, and which part of it computes.
    batch: (f64, f64),
}

/// Six kinds of training.
const MODELS: [Model; 6] = [
    Model { sm: [90.0, 30.0], memory: 0.45, batch: (0.9, 0.7) },
    Model { sm: [70.0, 20.0], memory: 0.35, batch: (0.6, 0.6) },
    Model { sm: [60.0, 10.0], memory: 0.30, batch: (1.3, 0.6) },
    Model { sm: [45.0, 10.0], memory: 0.25, batch: (0.4, 0.5) },
    Model { sm: [30.0, 5.0], memory: 0.20, batch: (2.1, 0.6) },
    Model { sm: [20.0, 5.0], memory: 0.15, batch: (0.7, 0.5) },
];

/// A job.
#[derive(Clone, Debug)]
struct Job {
    arrival_s: f64,
    /// Time alone.
    alone_s: f64,
    devices: usize,
    /// Which of [`MODELS`], or `None` for a query.
    model: Option<usize>,
    /// Mean SM utilisation in percent.
    sm: f64,
    asked_mib: f64,
}

impl Job {
    fn is_query(&self) -> bool {
        self.model.is_none()
    }
}

/// A query's SM utilisation in percent.
const QUERY_SM: f64 = 30.0;

impl Model {
    /// SM utilisation and memory (MiB) at a moment of a run.
    fn at(&self, s: f64) -> Need {
        let computes = (s / self.batch.0).fract() < self.batch.1;
        let memory = if computes { self.memory } else { 0.7 * self.memory };
        Need { memory_mib: memory * MEMORY_MIB, sm: self.sm[usize::from(!computes)] }
    }

    fn mean_sm(&self) -> f64 {
        self.sm[0] * self.batch.1 + self.sm[1] * (1.0 - self.batch.1)
    }

    /// What Knots saw of it in an earlier run: five seconds.
    fn footprint(&self) -> Footprint {
        let samples: Vec<Need> = (0..500).map(|i| self.at(f64::from(i) / 100.0)).collect();
        let memory: Vec<f64> = samples.iter().map(|sample| sample.memory_mib).collect();
        let sm: Vec<f64> = samples.iter().map(|sample| sample.sm).collect();
        Footprint::new(&memory, &sm).expect("a run was measured")
    }
}

/// The workload of section V-C.
fn jobs(seed: u64) -> Vec<Job> {
    let mut rng = Rng::new(seed);
    let mut jobs = Vec::with_capacity(TRAINING + QUERIES);
    for i in 0..TRAINING + QUERIES {
        let (peak, at) = (rng.unit() < PEAK, rng.unit());
        let arrival_s = if peak { PEAK_S[0] + (PEAK_S[1] - PEAK_S[0]) * at } else { SPAN_S * at };
        jobs.push(if i < TRAINING {
            let model = rng.below(MODELS.len() as u64) as usize;
            // Minutes to hours, an hour and a half in the median: together about what the devices can do in that time.
            let alone_s = (5400.0 * libm::exp(1.2 * normal(&mut rng))).clamp(300.0, 8.0 * 3600.0);
            // A job on one device, or on powers of two.
            let size = rng.unit();
            let bounds = [(0.6, 1), (0.76, 2), (0.90, 4), (0.98, 8), (1.0, 16)];
            let devices = bounds.iter().find(|(bound, _)| size < *bound).map_or(1, |(_, devices)| *devices);
            let sm = MODELS[model].mean_sm();
            Job { arrival_s, alone_s, devices, model: Some(model), sm, asked_mib: 0.5 * MEMORY_MIB }
        } else {
            // Milliseconds to seconds.
            let alone_s = (0.1 * exponential(&mut rng)).clamp(0.01, 5.0);
            let asked_mib = 0.1 * MEMORY_MIB;
            Job { arrival_s, alone_s, devices: 1, model: None, sm: QUERY_SM, asked_mib }
        });
    }
    jobs.sort_by(|a, b| a.arrival_s.total_cmp(&b.arrival_s));
    jobs
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Times from arrival to end, in seconds, sorted.
    pub times_s: Vec<f64>,
    /// Of the queries, and of the training jobs alone.
    pub queries_s: Vec<f64>,
    /// See there.
    pub training_s: Vec<f64>,
    /// Queries that missed their objective.
    pub missed: usize,
}

struct State {
    jobs: Vec<Job>,
    footprints: Vec<Footprint>,
    query: Footprint,
    now_s: f64,
    /// Time alone that is still to be done.
    left_s: Vec<f64>,
    /// Device seconds that a job has had.
    attained_s: Vec<f64>,
    /// Until when a job only moves.
    moving_s: Vec<f64>,
    place: Vec<Vec<usize>>,
    /// Who is on each device.
    on: Vec<Vec<usize>>,
    /// Whose turn it is on a device with slices; a device without turns runs all.
    turn: Vec<usize>,
    /// Pairs that were packed on trial and stay so.
    packed: Vec<Vec<usize>>,
    pending: Vec<usize>,
    next: usize,
    outcome: Outcome,
    ended: usize,
    rng: Rng,
}

/// Runs the workload.
pub(super) fn run(scheduler: Scheduler, seed: u64) -> Outcome {
    let jobs = jobs(seed);
    let count = jobs.len();
    let mut state = State {
        footprints: MODELS.iter().map(Model::footprint).collect(),
        query: Footprint::new(&[0.07 * MEMORY_MIB], &[QUERY_SM]).expect("a run was measured"),
        now_s: 0.0,
        left_s: jobs.iter().map(|job| job.alone_s).collect(),
        attained_s: vec![0.0; count],
        moving_s: vec![0.0; count],
        place: vec![Vec::new(); count],
        on: vec![Vec::new(); DEVICES],
        turn: vec![0; DEVICES],
        packed: vec![Vec::new(); DEVICES],
        pending: Vec::new(),
        next: 0,
        outcome: Outcome::default(),
        ended: 0,
        rng: Rng::new(seed ^ 0x5eed),
        jobs,
    };
    let mut tick_s = SLICE_S;
    while state.ended < count {
        let rates = state.rates(scheduler);
        let mut until = tick_s;
        if let Some(job) = state.jobs.get(state.next) {
            until = until.min(job.arrival_s);
        }
        for (job, rate) in &rates {
            let begins = state.moving_s[*job].max(state.now_s);
            if *rate > 0.0 {
                until = until.min(begins + state.left_s[*job] / rate);
            }
        }
        state.advance(&rates, until);
        let mut look = state.collect();
        while state.jobs.get(state.next).is_some_and(|job| job.arrival_s <= state.now_s) {
            state.pending.push(state.next);
            state.next += 1;
            look = true;
        }
        let tick = state.now_s >= tick_s;
        if tick {
            tick_s += SLICE_S;
        }
        match scheduler {
            Scheduler::ResAg if look => state.first_fit(),
            Scheduler::Gandiva if look || tick => state.gandiva(tick),
            Scheduler::Tiresias if look || tick => state.tiresias(),
            Scheduler::Knots if look || tick => state.knots(),
            _ => {}
        }
    }
    let mut outcome = state.outcome;
    for times in [&mut outcome.times_s, &mut outcome.queries_s, &mut outcome.training_s] {
        times.sort_by(f64::total_cmp);
    }
    outcome
}

impl State {
    /// Who runs now, and how fast compared with being alone.
    fn rates(&self, scheduler: Scheduler) -> Vec<(usize, f64)> {
        let slices = scheduler == Scheduler::Gandiva;
        // Whoever runs on a device now: all, or whose turn it is with whom it was packed.
        let runs = |device: usize, job: usize| {
            let on = &self.on[device];
            if !slices || on.len() < 2 {
                return true;
            }
            let turn = on[self.turn[device] % on.len()];
            let packed = &self.packed[device];
            job == turn || (packed.contains(&job) && packed.contains(&turn))
        };
        let wanted: Vec<f64> = (0..DEVICES)
            .map(|device| {
                let running = self.on[device].iter().filter(|job| runs(device, **job));
                running.map(|job| self.jobs[*job].sm).sum::<f64>()
            })
            .collect();
        let mut rates = Vec::new();
        for job in 0..self.next {
            if self.place[job].is_empty() {
                continue;
            }
            // A gang's slices fall together: it has the smallest part of them that one of its devices gives.
            let rate = self.place[job].iter().map(|&device| {
                let share = if wanted[device] > 100.0 { 100.0 / wanted[device] } else { 1.0 };
                let gang = self.place[job].len() > 1;
                match (slices && self.on[device].len() > 1, gang) {
                    (true, true) => share / self.on[device].len() as f64,
                    _ if runs(device, job) => share,
                    _ => 0.0,
                }
            });
            rates.push((job, rate.fold(1.0, f64::min)));
        }
        rates
    }

    fn advance(&mut self, rates: &[(usize, f64)], until: f64) {
        for (job, rate) in rates {
            let from = self.moving_s[*job].max(self.now_s);
            if until > from {
                self.left_s[*job] -= (until - from) * rate;
                self.attained_s[*job] += (until - from) * self.jobs[*job].devices as f64;
            }
        }
        self.now_s = until;
    }

    /// Takes away those that are done. Whether there were any.
    fn collect(&mut self) -> bool {
        let done: Vec<usize> =
            (0..self.next).filter(|&job| !self.place[job].is_empty() && self.left_s[job] <= 1e-6).collect();
        for &job in &done {
            self.remove(job);
            let time_s = self.now_s - self.jobs[job].arrival_s;
            self.outcome.times_s.push(time_s);
            if self.jobs[job].is_query() {
                self.outcome.queries_s.push(time_s);
                let late = time_s > self.jobs[job].alone_s + OBJECTIVE_S;
                self.outcome.missed += usize::from(late);
            } else {
                self.outcome.training_s.push(time_s);
            }
        }
        self.ended += done.len();
        !done.is_empty()
    }

    fn remove(&mut self, job: usize) {
        for device in std::mem::take(&mut self.place[job]) {
            self.on[device].retain(|other| *other != job);
            self.packed[device].retain(|other| *other != job);
            if self.packed[device].len() < 2 {
                self.packed[device].clear();
            }
        }
    }

    fn put(&mut self, job: usize, devices: Vec<usize>) {
        for &device in &devices {
            self.on[device].push(job);
        }
        self.place[job] = devices;
    }

    /// Devices for a job among those that will do: in one node if they fit there, or else in whole nodes; the nodes with the
    /// fewest that would do first, so that large rooms stay.
    fn gather(&self, job: usize, suits: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
        let wanted = self.jobs[job].devices;
        let of = |node: usize| (node * PER_NODE..(node + 1) * PER_NODE).filter(|&device| suits(device));
        let mut nodes: Vec<(usize, usize)> = (0..NODES).map(|node| (of(node).count(), node)).collect();
        nodes.sort_unstable();
        if wanted <= PER_NODE {
            let (_, node) = nodes.into_iter().find(|(count, _)| *count >= wanted)?;
            return Some(of(node).take(wanted).collect());
        }
        let whole: Vec<usize> =
            nodes.into_iter().filter(|(count, _)| *count == PER_NODE).map(|(_, node)| node).collect();
        let needed = wanted / PER_NODE;
        (whole.len() >= needed).then(|| whole.into_iter().take(needed).flat_map(of).collect())
    }

    fn free(&self, job: usize) -> Option<Vec<usize>> {
        self.gather(job, |device| self.on[device].is_empty())
    }

    /// Res-Ag: the first devices whose memory, as asked for, has room; those that ask for most first.
    fn first_fit(&mut self) {
        let mut order = std::mem::take(&mut self.pending);
        order.sort_by(|&a, &b| self.jobs[b].asked_mib.total_cmp(&self.jobs[a].asked_mib).then(a.cmp(&b)));
        order.retain(|&job| {
            let room = |device: usize| {
                let given: f64 = self.on[device].iter().map(|other| self.jobs[*other].asked_mib).sum();
                given + self.jobs[job].asked_mib <= MEMORY_MIB
            };
            // In the order of the devices, whatever runs there.
            let wanted = self.jobs[job].devices;
            let mut found: Option<Vec<usize>> = None;
            if wanted <= PER_NODE {
                for node in 0..NODES {
                    let devices = (node * PER_NODE..(node + 1) * PER_NODE).filter(|&device| room(device));
                    let devices: Vec<usize> = devices.take(wanted).collect();
                    if devices.len() == wanted {
                        found = Some(devices);
                        break;
                    }
                }
            } else {
                found = self.gather(job, room);
            }
            let placed = found.is_some();
            if let Some(devices) = found {
                self.put(job, devices);
            }
            !placed
        });
        self.pending = order;
    }

    /// Gandiva, simplified: devices of its own while there are some; then the devices with the fewest jobs, in turn with them, a
    /// slice of a minute each. At each slice's end one job moves to where it is alone, if it can, and a random pair on each device with
    /// turns is packed on trial: it stays so if together they don't want more than the device.
    fn gandiva(&mut self, tick: bool) {
        for job in std::mem::take(&mut self.pending) {
            let devices = self.free(job).or_else(|| {
                let most = self.on.iter().map(Vec::len).max().unwrap_or(0);
                (1..=most).find_map(|limit| self.gather(job, |device| self.on[device].len() <= limit))
            });
            match devices {
                Some(devices) => self.put(job, devices),
                None => self.pending.push(job),
            }
        }
        if !tick {
            return;
        }
        for device in 0..DEVICES {
            self.turn[device] += 1;
            let count = self.on[device].len();
            if count < 2 {
                continue;
            }
            let mover = self.on[device][self.rng.below(count as u64) as usize];
            if self.jobs[mover].devices == 1
                && let Some(devices) = self.free(mover)
            {
                self.remove(mover);
                self.moving_s[mover] = self.now_s + MOVE_S;
                self.put(mover, devices);
                continue;
            }
            let first = self.rng.below(count as u64) as usize;
            let second = (first + 1 + self.rng.below(count as u64 - 1) as usize) % count;
            let pair = [self.on[device][first], self.on[device][second]];
            // The trial shows what they take together.
            if pair.iter().map(|job| self.jobs[*job].sm).sum::<f64>() <= 100.0 {
                self.packed[device] = pair.to_vec();
            }
        }
    }

    /// Tiresias, simplified: two queues by the device time that a job has had, in each by arrival; a job that must yield is paused
    /// and loses [`MOVE_S`], and so does a job that comes back, and whoever takes its place.
    fn tiresias(&mut self) {
        let alive = (0..self.next).filter(|&job| !self.place[job].is_empty() || self.pending.contains(&job));
        let mut order: Vec<usize> = alive.collect();
        order.sort_by_key(|&job| (self.attained_s[job] >= ATTAINED_S, job));
        // Whoever has devices keeps them while the sum of those before it leaves room.
        let mut room = DEVICES;
        let mut wanted = vec![false; self.next];
        for &job in &order {
            if self.jobs[job].devices <= room {
                room -= self.jobs[job].devices;
                wanted[job] = true;
            }
        }
        let mut freed = vec![false; DEVICES];
        for &job in &order {
            if !wanted[job] && !self.place[job].is_empty() {
                self.place[job].iter().for_each(|&device| freed[device] = true);
                self.remove(job);
                self.pending.push(job);
            }
        }
        for &job in &order {
            // Whoever fits what is left over has it, although it might have to yield soon.
            if self.place[job].is_empty() {
                let Some(devices) = self.free(job) else { continue };
                let waits = devices.iter().any(|&device| freed[device]);
                if waits || self.attained_s[job] > 0.0 {
                    self.moving_s[job] = self.now_s + MOVE_S;
                }
                self.put(job, devices);
                self.pending.retain(|other| *other != job);
            }
        }
    }

    fn known(&self, job: usize) -> Candidate<'_> {
        let footprint = match self.jobs[job].model {
            Some(model) => &self.footprints[model],
            None => &self.query,
        };
        let asked = Need { memory_mib: self.jobs[job].asked_mib, sm: DEVICE.sm };
        Candidate { asked, footprint: Some(footprint), short: self.jobs[job].is_query() }
    }

    /// What a device did in the last five seconds, and what follows for the next one: ten samples a second.
    fn forecast(&self, device: usize) -> Forecast {
        let (mut memory, mut sm) = (Vec::with_capacity(50), Vec::with_capacity(50));
        for i in 0..50 {
            let at_s = self.now_s - 5.0 + f64::from(i + 1) * 0.1;
            let mut sum = Need::default();
            for &job in &self.on[device] {
                let need = match self.jobs[job].model {
                    Some(model) if at_s >= self.jobs[job].arrival_s => MODELS[model].at(at_s),
                    Some(_) => Need::default(),
                    None => Need { memory_mib: 0.07 * MEMORY_MIB, sm: QUERY_SM },
                };
                sum.memory_mib += need.memory_mib;
                sum.sm += need.sm;
            }
            memory.push(sum.memory_mib);
            sm.push(sum.sm.min(100.0));
        }
        Forecast::new(&memory, &sm, 10)
    }

    /// CBP+PP: first come, first served, nothing is ever interrupted. Devices in use are shared where all of them admit the job; those
    /// with the most memory free first. The rest is free devices.
    fn knots(&mut self) {
        let mut order = std::mem::take(&mut self.pending);
        order.retain(|&job| {
            let candidate = self.known(job);
            let admits = |device: usize| {
                let residents: Vec<Candidate<'_>> =
                    self.on[device].iter().map(|&other| self.known(other)).collect();
                let ahead = || self.forecast(device);
                decide(Scheme::PeakPrediction, DEVICE, &residents, &candidate, ahead).admits()
            };
            let used = |device: usize| !self.on[device].is_empty() && admits(device);
            let Some(devices) = self.gather(job, used).or_else(|| self.gather(job, admits)) else {
                return true;
            };
            self.put(job, devices);
            false
        });
        self.pending = order;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workload_is_that_of_section_5c() {
        let jobs = jobs(1);
        assert_eq!(jobs.iter().filter(|job| job.is_query()).count(), 1400);
        let asked: f64 = jobs.iter().map(|job| job.alone_s * job.devices as f64).sum();
        let load = asked / (SPAN_S * DEVICES as f64);
        assert!((0.8..1.2).contains(&load), "{load}");
    }

    #[test]
    fn everybody_ends_under_every_scheduler_and_runs_repeat() {
        for scheduler in Scheduler::ALL {
            let outcome = run(scheduler, 1);
            assert_eq!(outcome.times_s.len(), TRAINING + QUERIES, "{scheduler:?}");
            assert_eq!(outcome.queries_s.len(), QUERIES);
            assert!(outcome.queries_s[0] >= 0.01 - 1e-6 && outcome.training_s[0] >= 300.0 - 1e-3);
        }
        assert_eq!(run(Scheduler::Gandiva, 2).times_s, run(Scheduler::Gandiva, 2).times_s);
    }
}
