//! Ten nodes with a device each, in steps of a millisecond: pods share a device's time and its memory.

use rgpu_placement::harvest::{Footprint, Forecast};
use rgpu_placement::harvest::{Need, Pod as Candidate, Sample, Scheme, Telemetry, decide};

use super::workload::{APPS, MEMORY_MIB, Phase, Pod};

/// Devices of the paper's cluster.
pub(super) const DEVICES: usize = 10;
/// How long Knots looks back, in ms.
const WINDOW_MS: u64 = 5_000;
/// How far peak prediction looks ahead, in ms.
pub(super) const AHEAD_MS: u64 = 1_000;
/// How long a pod that crashed takes until it waits again, in ms.
const RELAUNCH_MS: u64 = 2_000;
/// After how long without pods a device falls into its deepest idle state, in ms.
const DOZE_MS: u64 = 1_000;
/// Power of a device that is awake, and of one in its deepest idle state, in watts.
const POWER_W: [f64; 2] = [250.0, 25.0];
/// The device's memory and time.
const DEVICE: Need = Need { memory_mib: MEMORY_MIB, sm: 100.0 };
/// The objective of a query, from its arrival to its end, in ms.
pub(super) const OBJECTIVE_MS: u64 = 150;
/// How often those that wait are looked at again when nothing but the forecast can have changed, in ms.
const RETRY_MS: u64 = 10;

/// Who decides where pods go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheduler {
    /// Kubernetes as it is: a device for each pod, first come, first served, round the devices.
    Uniform,
    /// First fit, decreasing by the memory asked for, whatever the devices do.
    ResAg,
    /// By what Knots measured.
    Knots(Scheme),
}

impl Scheduler {
    /// All, in the order of the tables.
    pub(super) const ALL: [Scheduler; 4] = [
        Scheduler::Uniform,
        Scheduler::ResAg,
        Scheduler::Knots(Scheme::Cbp),
        Scheduler::Knots(Scheme::PeakPrediction),
    ];

    /// As the paper calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Scheduler::Uniform => "uniform",
            Scheduler::ResAg => "Res-Ag",
            Scheduler::Knots(Scheme::Cbp) => "CBP",
            Scheduler::Knots(Scheme::PeakPrediction) => "CBP+PP",
        }
    }
}

/// A pod on a device.
struct Running {
    pod: usize,
    phase: usize,
    /// What is left of the phase, in ms of the device alone.
    left_ms: f64,
    /// Memory and SM utilisation so far, for the footprint of an application that was never seen.
    record: Option<(Vec<f64>, Vec<f64>)>,
}

/// A device, its pods, and what was measured of it.
struct Device {
    running: Vec<Running>,
    telemetry: Telemetry,
    /// When it last had pods, in ms.
    used_ms: u64,
    asleep: bool,
    /// How many milliseconds it spent awake at each percent of SM utilisation.
    awake: [u64; 101],
    /// Sums over all milliseconds of SM utilisation and of its square.
    sums: [f64; 2],
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Queries that came, and those that took longer than [`OBJECTIVE_MS`].
    pub queries: [u64; 2],
    /// Pods that crashed for want of memory.
    pub crashes: u64,
    /// How long it took until the last pod ended, in ms.
    pub makespan_ms: u64,
    /// Mean power of all devices together, in watts, until the last pod ended.
    pub power_w: f64,
    /// The mean number of devices that were awake.
    pub awake: f64,
    /// For each device, the milliseconds that it spent awake at each percent of SM utilisation.
    pub levels: Vec<[u64; 101]>,
    /// For each device, the coefficient of variation of its SM utilisation over the whole run; infinite if it was never used.
    pub variation: Vec<f64>,
    /// Mean time from arrival to end of batch pods, in ms.
    pub batch_ms: f64,
    /// How many pods were let in by a forecast.
    pub by_forecast: u64,
    /// For each device, its samples of every millisecond, if asked for.
    pub samples: Vec<Vec<Sample>>,
}

/// How a run is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    /// Who decides.
    pub scheduler: Scheduler,
    /// How often the devices are asked, in ms.
    pub heartbeat_ms: u64,
    /// Whether all samples are kept.
    pub keep: bool,
}

struct Cluster<'a> {
    setup: Setup,
    pods: &'a [Pod],
    devices: Vec<Device>,
    /// Pods that wait, in the order in which they came.
    pending: Vec<usize>,
    /// Crashed pods, and when they wait again.
    relaunched: Vec<(u64, usize)>,
    /// What each application did in its first run.
    footprints: Vec<Option<Footprint>>,
    now_ms: u64,
    /// Whether anything came or went since the scheduler last looked.
    changed: bool,
    next: usize,
    ended: usize,
    batch_ms: [f64; 2],
    outcome: Outcome,
}

/// Runs the pods.
pub(super) fn run(setup: Setup, pods: &[Pod]) -> Outcome {
    let length = (WINDOW_MS / setup.heartbeat_ms.max(1)) as usize;
    let device = || Device {
        running: Vec::new(),
        telemetry: Telemetry::new(length),
        used_ms: 0,
        asleep: true,
        awake: [0; 101],
        sums: [0.0; 2],
    };
    let mut cluster = Cluster {
        setup,
        pods,
        devices: (0..DEVICES).map(|_| device()).collect(),
        pending: Vec::new(),
        relaunched: Vec::new(),
        footprints: vec![None; APPS.len()],
        now_ms: 0,
        changed: false,
        next: 0,
        ended: 0,
        batch_ms: [0.0; 2],
        outcome: Outcome { samples: vec![Vec::new(); DEVICES], ..Outcome::default() },
    };
    while cluster.ended < pods.len() {
        cluster.arrive();
        cluster.schedule();
        for device in 0..DEVICES {
            cluster.work(device);
        }
        cluster.measure();
        cluster.now_ms += 1;
    }
    cluster.finish()
}

impl Running {
    fn phase<'p>(&self, pods: &'p [Pod]) -> &'p Phase {
        let phases = &pods[self.pod].phases;
        &phases[self.phase.min(phases.len() - 1)]
    }
}

impl Cluster<'_> {
    fn arrive(&mut self) {
        while self.pods.get(self.next).is_some_and(|pod| pod.arrival_ms <= self.now_ms) {
            self.pending.push(self.next);
            self.next += 1;
            self.changed = true;
        }
        let now_ms = self.now_ms;
        let due: Vec<usize> =
            self.relaunched.iter().filter(|(at, _)| *at <= now_ms).map(|(_, pod)| *pod).collect();
        if !due.is_empty() {
            self.relaunched.retain(|(at, _)| *at > now_ms);
            self.pending.extend(due);
            self.changed = true;
        }
    }

    fn start(&mut self, pod: usize, device: usize) {
        let known = self.footprints[self.pods[pod].app].is_some();
        let device = &mut self.devices[device];
        device.asleep = false;
        device.running.push(Running {
            pod,
            phase: 0,
            left_ms: self.pods[pod].phases[0].ms,
            record: (!known).then(Default::default),
        });
    }

    fn schedule(&mut self) {
        let forecasts = self.setup.scheduler == Scheduler::Knots(Scheme::PeakPrediction);
        let again = self.changed || (forecasts && self.now_ms.is_multiple_of(RETRY_MS));
        if self.pending.is_empty() || !again {
            return;
        }
        self.changed = false;
        match self.setup.scheduler {
            Scheduler::Uniform => {
                while let Some(&pod) = self.pending.first() {
                    // The one that has been idle for longest.
                    let idle = (0..DEVICES).filter(|&device| self.devices[device].running.is_empty());
                    let Some(device) = idle.min_by_key(|&device| (self.devices[device].used_ms, device))
                    else {
                        return;
                    };
                    self.pending.remove(0);
                    self.start(pod, device);
                    self.devices[device].used_ms = self.now_ms + 1;
                }
            }
            Scheduler::ResAg => self.decreasing(|cluster, pod| {
                let asked = |pod: usize| cluster.pods[pod].asked_mib;
                (0..DEVICES).find(|&device| {
                    let given: f64 =
                        cluster.devices[device].running.iter().map(|running| asked(running.pod)).sum();
                    given + asked(pod) <= MEMORY_MIB
                })
            }),
            Scheduler::Knots(scheme) => {
                let mut forecasts: Vec<Option<Forecast>> = vec![None; DEVICES];
                let mut predicted = 0;
                self.decreasing(|cluster, pod| {
                    let (device, by_forecast) = cluster.harvest(scheme, pod, &mut forecasts)?;
                    predicted += u64::from(by_forecast);
                    Some(device)
                });
                self.outcome.by_forecast += predicted;
            }
        }
    }

    /// Places those that wait, those that ask for most memory first.
    fn decreasing(&mut self, mut choose: impl FnMut(&Self, usize) -> Option<usize>) {
        let mut order = std::mem::take(&mut self.pending);
        order.sort_by(|&a, &b| self.pods[b].asked_mib.total_cmp(&self.pods[a].asked_mib).then(a.cmp(&b)));
        order.retain(|&pod| match choose(self, pod) {
            Some(device) => {
                self.start(pod, device);
                false
            }
            None => true,
        });
        self.pending = order;
    }

    /// What the scheduler may know of a pod.
    fn known(&self, pod: usize) -> Candidate<'_> {
        let pod = &self.pods[pod];
        Candidate {
            // Nobody says how much of the device's time a pod needs: all, until it was seen.
            asked: Need { memory_mib: pod.asked_mib, sm: DEVICE.sm },
            footprint: self.footprints[pod.app].as_ref(),
            short: APPS[pod.app].query,
        }
    }

    /// Algorithm 1: the active device with the most memory free that admits the pod, or else one that sleeps.
    fn harvest(
        &self,
        scheme: Scheme,
        pod: usize,
        forecasts: &mut [Option<Forecast>],
    ) -> Option<(usize, bool)> {
        let mut active: Vec<usize> = (0..DEVICES).filter(|&device| !self.devices[device].asleep).collect();
        let used = |device: &usize| self.devices[*device].telemetry.memory_mib();
        active.sort_by(|a, b| used(a).total_cmp(&used(b)).then(a.cmp(b)));
        let steps = (AHEAD_MS / self.setup.heartbeat_ms.max(1)).max(1) as usize;
        let candidate = self.known(pod);
        for device in active {
            let there = &self.devices[device];
            let residents: Vec<Candidate<'_>> =
                there.running.iter().map(|running| self.known(running.pod)).collect();
            let ahead = || *forecasts[device].get_or_insert_with(|| there.telemetry.forecast(steps));
            let verdict = decide(scheme, DEVICE, &residents, &candidate, ahead);
            if verdict.admits() {
                return Some((device, verdict == rgpu_placement::harvest::Verdict::Forecast));
            }
        }
        (0..DEVICES).find(|&device| self.devices[device].asleep).map(|device| (device, false))
    }

    /// One millisecond of a device.
    fn work(&mut self, device: usize) {
        let pods = self.pods;
        let there = &mut self.devices[device];
        if there.running.is_empty() {
            return;
        }
        there.used_ms = self.now_ms + 1;
        let wanted: f64 = there.running.iter().map(|running| running.phase(pods).sm).sum();
        let speed = if wanted > 100.0 { 100.0 / wanted } else { 1.0 };
        let mut grown = None;
        for running in &mut there.running {
            let Phase { memory_mib: before, sm: wants, .. } = *running.phase(pods);
            if let Some((memory_mib, sm)) = &mut running.record
                && self.now_ms.is_multiple_of(self.setup.heartbeat_ms)
            {
                memory_mib.push(before);
                sm.push(wants * speed);
            }
            running.left_ms -= speed;
            while running.left_ms <= 0.0 && running.phase < pods[running.pod].phases.len() {
                running.phase += 1;
                if let Some(phase) = pods[running.pod].phases.get(running.phase) {
                    running.left_ms += phase.ms;
                }
            }
            if running.phase(pods).memory_mib > before {
                grown = Some(running.pod);
            }
        }
        let (left, ended): (Vec<Running>, Vec<Running>) = std::mem::take(&mut there.running)
            .into_iter()
            .partition(|running| running.phase < pods[running.pod].phases.len());
        there.running = left;
        // What grows beyond the memory crashes: the pod that grew last, or else the youngest.
        loop {
            let memory: f64 = there.running.iter().map(|running| running.phase(pods).memory_mib).sum();
            if memory <= MEMORY_MIB {
                break;
            }
            let at = there.running.iter().position(|running| Some(running.pod) == grown);
            let crashed = there.running.remove(at.unwrap_or(there.running.len() - 1));
            self.relaunched.push((self.now_ms + RELAUNCH_MS, crashed.pod));
            self.outcome.crashes += 1;
            self.changed = true;
            grown = None;
        }
        for running in ended {
            self.end(running);
        }
    }

    fn end(&mut self, running: Running) {
        let pod = &self.pods[running.pod];
        self.changed = true;
        self.ended += 1;
        let took_ms = self.now_ms + 1 - pod.arrival_ms;
        if APPS[pod.app].query {
            self.outcome.queries[0] += 1;
            self.outcome.queries[1] += u64::from(took_ms > OBJECTIVE_MS);
        } else {
            self.batch_ms[0] += took_ms as f64;
            self.batch_ms[1] += 1.0;
        }
        let footprint = &mut self.footprints[pod.app];
        if footprint.is_none()
            && let Some((memory_mib, sm)) = running.record
        {
            *footprint = Footprint::new(&memory_mib, &sm);
        }
    }

    /// Knots asks the devices.
    fn measure(&mut self) {
        let mut power_w = 0.0;
        let pods = self.pods;
        for (i, device) in self.devices.iter_mut().enumerate() {
            if device.running.is_empty() && self.now_ms >= device.used_ms + DOZE_MS && !device.asleep {
                device.asleep = true;
                self.changed = true;
            }
            let mut sample = Sample { power_w: POWER_W[usize::from(device.asleep)], ..Sample::default() };
            let wanted: f64 = device.running.iter().map(|running| running.phase(pods).sm).sum();
            let speed = if wanted > 100.0 { 100.0 / wanted } else { 1.0 };
            for running in &device.running {
                let phase = running.phase(pods);
                sample.memory_mib += phase.memory_mib;
                sample.rx_mb_s += phase.rx_mb_s * speed;
                sample.tx_mb_s += phase.tx_mb_s * speed;
            }
            sample.sm = wanted * speed;
            power_w += sample.power_w;
            device.sums[0] += sample.sm;
            device.sums[1] += sample.sm * sample.sm;
            if !device.asleep {
                device.awake[sample.sm.round() as usize] += 1;
                self.outcome.awake += 1.0;
            }
            if self.now_ms.is_multiple_of(self.setup.heartbeat_ms) {
                device.telemetry.push(&sample);
            }
            if self.setup.keep {
                self.outcome.samples[i].push(sample);
            }
        }
        self.outcome.power_w += power_w;
    }

    fn finish(mut self) -> Outcome {
        let all = self.now_ms.max(1) as f64;
        self.outcome.makespan_ms = self.now_ms;
        self.outcome.power_w /= all;
        self.outcome.awake /= all;
        self.outcome.batch_ms = self.batch_ms[0] / self.batch_ms[1].max(1.0);
        for device in &self.devices {
            let [sum, squares] = device.sums;
            let mean = sum / all;
            let variance = (squares / all - mean * mean).max(0.0);
            self.outcome.variation.push(if mean > 0.0 { variance.sqrt() / mean } else { f64::INFINITY });
            self.outcome.levels.push(device.awake);
        }
        self.outcome
    }
}

/// The percent of SM utilisation below or at which a share of the time awake lies, over devices together; 0 if none was awake.
pub(super) fn level(levels: &[[u64; 101]], share: f64) -> f64 {
    let at = |percent: usize| levels.iter().map(|device| device[percent]).sum::<u64>();
    let all: u64 = (0..=100).map(at).sum();
    let rank = ((share * all as f64).ceil() as u64).clamp(1, all.max(1));
    let mut seen = 0;
    for percent in 0..=100 {
        seen += at(percent);
        if seen >= rank {
            return percent as f64;
        }
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::super::workload::{MIXES, pods};
    use super::*;

    fn pod(app: usize, asked_mib: f64, phases: &[(f64, f64, f64)]) -> Pod {
        let phase = |&(ms, sm, memory_mib): &(f64, f64, f64)| Phase {
            ms,
            sm,
            memory_mib,
            rx_mb_s: 0.0,
            tx_mb_s: 0.0,
        };
        Pod { app, arrival_ms: 0, asked_mib, phases: phases.iter().map(phase).collect() }
    }

    fn by(scheduler: Scheduler, pods: &[Pod]) -> Outcome {
        run(Setup { scheduler, heartbeat_ms: 1, keep: false }, pods)
    }

    #[test]
    fn a_devices_time_is_shared_and_its_power_is_that_of_being_awake() {
        let two = [pod(0, 4000.0, &[(100.0, 80.0, 100.0)]), pod(1, 4000.0, &[(100.0, 80.0, 100.0)])];
        // Alone each; together, at 160% of one device.
        assert_eq!(by(Scheduler::Uniform, &two).makespan_ms, 100);
        let shared = by(Scheduler::ResAg, &two);
        assert_eq!((shared.makespan_ms, shared.crashes), (160, 0));
        assert_eq!((shared.awake, shared.power_w), (1.0, 250.0 + 9.0 * 25.0));
        assert_eq!(level(&shared.levels, 0.5), 100.0);
        // Nobody knows them yet, so Knots keeps them apart.
        assert_eq!(by(Scheduler::Knots(Scheme::Cbp), &two).awake, 2.0);
    }

    #[test]
    fn who_grows_beyond_the_memory_crashes_and_comes_again() {
        let grows = |app| pod(app, 7000.0, &[(50.0, 10.0, 7000.0), (50.0, 10.0, 10_000.0)]);
        let outcome = by(Scheduler::ResAg, &[grows(0), grows(1)]);
        assert_eq!(outcome.crashes, 1);
        // It crashes within the 50th millisecond.
        assert_eq!(outcome.makespan_ms, 49 + RELAUNCH_MS + 100);
    }

    #[test]
    fn queries_that_wait_too_long_are_counted() {
        let query = APPS.iter().position(|app| app.query).unwrap();
        let mut queue: Vec<Pod> = (0..DEVICES).map(|_| pod(0, 100.0, &[(500.0, 90.0, 1.0)])).collect();
        queue.push(pod(query, 100.0, &[(20.0, 10.0, 1.0)]));
        assert_eq!(by(Scheduler::Uniform, &queue).queries, [1, 1]);
        assert_eq!(by(Scheduler::Uniform, &queue[DEVICES..]).queries, [1, 0]);
    }

    #[test]
    fn every_scheduler_ends_every_mix_and_repeats() {
        for mix in &MIXES {
            let pods = pods(mix, 3.0, DEVICES, 1);
            for scheduler in Scheduler::ALL {
                let outcome = by(scheduler, &pods);
                assert_eq!(outcome.queries, by(scheduler, &pods).queries);
                assert!(outcome.makespan_ms > 2000 && outcome.queries[0] > 0, "{scheduler:?}");
                assert!(outcome.awake <= DEVICES as f64);
            }
        }
    }
}
