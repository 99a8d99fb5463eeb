//! The twelve test programs of section 6.1 and how they behave. What the paper only draws is fixed here, once; `docs/profiles.md` has
//! the source of each number.

use rgpu_placement::Rng;
use rgpu_placement::spread::{Amounts, Class, Curve, classify, demand, scales};

/// A node: two processors of 14 cores, 20 ways of cache, and STREAM's bandwidth.
pub(super) const NODE: Amounts = Amounts { cores: 28.0, ways: 20.0, bandwidth: 118.26 };
/// The scale factors that are explored.
pub(super) const SCALES: [u32; 4] = [1, 2, 4, 8];
/// The slowdown threshold α.
pub(super) const ALPHA: f64 = 0.9;
/// The fewest ways that a job is given.
const LEAST_WAYS: u32 = 2;
/// The ways at which profiles are sampled.
const SAMPLED: [f64; 4] = [2.0, 4.0, 8.0, 20.0];

/// How a program's processes come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// MPI: a power of two, 16.
    Mpi,
    /// 16 or 28, which share the work.
    Parallel,
    /// 16 or 28 copies of a sequential program.
    Copies,
    /// 16 or 28 threads of one node.
    Threads,
}

/// A test program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    /// Its name in the paper.
    pub name: &'static str,
    kind: Kind,
    /// Seconds with 16 processes on one node.
    time_s: f64,
    /// How much faster 16 processes are on 2, 4 and 8 nodes, alone.
    speedup: [f64; 3],
    /// The ways with which 16 processes on one node reach 90% of their speed.
    ways: f64,
    /// The bandwidth of 16 processes on one node, in GB/s.
    bandwidth: f64,
}

/// The programs: scaling, compact, and neutral ones.
pub(super) static PROGRAMS: [Program; 12] = {
    use Kind::{Copies, Mpi, Parallel, Threads};
    const fn program(
        name: &'static str,
        kind: Kind,
        time_s: f64,
        speedup: [f64; 3],
        ways: f64,
        bandwidth: f64,
    ) -> Program {
        Program { name, kind, time_s, speedup, ways, bandwidth }
    }
    [
        program("MG", Mpi, 300.0, [1.207, 1.30, 1.36], 3.0, 112.0),
        program("CG", Mpi, 500.0, [1.13, 1.05, 0.98], 10.0, 42.9),
        program("LU", Mpi, 700.0, [1.15, 1.25, 1.32], 6.0, 95.0),
        program("TS", Parallel, 350.0, [1.12, 1.22, 1.31], 12.0, 60.0),
        program("BW", Copies, 1000.0, [1.15, 1.28, 1.35], 5.0, 100.0),
        program("BFS", Mpi, 250.0, [0.85, 0.70, 0.60], 17.9, 0.12),
        program("GAN", Threads, 600.0, [0.0; 3], 4.0, 12.0),
        program("RNN", Threads, 500.0, [0.0; 3], 4.0, 8.0),
        program("EP", Mpi, 350.0, [1.01, 1.02, 1.02], 2.0, 0.09),
        program("WC", Parallel, 400.0, [1.01, 1.02, 1.03], 5.0, 20.0),
        program("NW", Parallel, 450.0, [1.02, 1.03, 1.04], 16.0, 25.0),
        program("HC", Copies, 900.0, [1.01, 1.02, 1.03], 2.0, 5.0),
    ]
};

/// What STREAM gets with that many cores, in GB/s (figure 3).
pub(super) fn stream(cores: f64) -> f64 {
    let curve = [(0.0, 0.0), (1.0, 18.80), (2.0, 37.17), (4.0, 72.0), (8.0, 108.0), (28.0, 118.26)];
    Curve::new(curve.to_vec()).map_or(0.0, |curve| curve.at(cores))
}

/// How a job behaves at one scale factor, alone and with neighbours.
#[derive(Clone, Debug)]
pub(super) struct AtScale {
    /// The scale factor.
    pub scale: u32,
    /// Seconds alone.
    pub time_s: f64,
    /// What SNS sets aside for it on each node.
    pub demand: Amounts,
    /// The ways with which it reaches 90% of its speed.
    ways: f64,
    /// The bandwidth that it takes of each node, in GB/s.
    pub bandwidth: f64,
}

/// A program with a number of processes to a node at scale factor 1: all that is known of a job's behaviour.
#[derive(Clone, Debug)]
pub(super) struct Behaviour {
    /// Its class, as its times alone tell.
    pub class: Class,
    /// At each scale factor that it can have, in the order in which SNS tries them.
    pub tried: Vec<u32>,
    /// By scale factor, ascending.
    pub scales: Vec<AtScale>,
}

/// The part of its speed with all ways that a program has with fewer: a hyperbola through 0.9 at `ninety` and 1 at 20 ways.
fn speed(ninety: f64, ways: f64) -> f64 {
    let half = 2.0 * ninety / (18.0 - ninety).max(1e-3);
    let ways = ways.clamp(0.05, 20.0);
    ways / (ways + half) * (20.0 + half) / 20.0
}

impl AtScale {
    /// The part of its speed that these ways leave.
    pub(super) fn speed(&self, ways: f64) -> f64 {
        speed(self.ways, ways)
    }

    /// The part of its speed that is left when the node can give the part `share` of the bandwidth that all there want: what waits
    /// for memory takes longer, the rest does not.
    pub(super) fn throttled(&self, share: f64) -> f64 {
        let bound = (self.bandwidth / stream(self.demand.cores)).min(1.0);
        1.0 / (1.0 + bound * (1.0 / share.min(1.0) - 1.0))
    }
}

impl Program {
    /// Whether it is an MPI program, with 16 processes always.
    pub(super) fn rigid(&self) -> bool {
        self.kind == Kind::Mpi
    }

    /// With that many processes for each node of its smallest footprint.
    pub(super) fn behaviour(&self, processes: u32) -> Behaviour {
        let more = f64::from(processes) / 16.0;
        // Copies have as much work each; the others share theirs.
        let work = if self.kind == Kind::Copies { 1.0 } else { 1.0 / more };
        // More processes want more bandwidth than the node has: alone, too, they wait for it.
        let wanted = self.bandwidth * more;
        let bound = (wanted / stream(f64::from(processes))).min(1.0);
        let crowded = 1.0 + bound * (1.0 / (NODE.bandwidth / wanted).min(1.0) - 1.0);
        let mut found = Vec::new();
        for (i, scale) in SCALES.into_iter().enumerate() {
            let faster = if i == 0 { 1.0 } else { self.speedup[i - 1] };
            if faster == 0.0 {
                continue;
            }
            let time_s = self.time_s * work / faster * if i == 0 { crowded } else { 1.0 };
            // The same bytes, in less time, through more nodes.
            let bandwidth = (wanted * faster / f64::from(scale)).min(NODE.bandwidth);
            let ways = (self.ways / f64::from(scale)).max(f64::from(LEAST_WAYS));
            let cores = f64::from(processes.div_ceil(scale));
            // As the profiler sees it: four samples, straight lines between them.
            let ipc = Curve::new(SAMPLED.map(|w| (w, speed(ways, w))).to_vec()).expect("four points");
            let measured = Curve::new(SAMPLED.map(|w| (w, bandwidth)).to_vec()).expect("four points");
            let (granted, taken) = demand(&ipc, &measured, ALPHA, LEAST_WAYS, NODE.ways as u32);
            let demand = Amounts { cores, ways: f64::from(granted), bandwidth: taken };
            found.push(AtScale { scale, time_s, demand, ways, bandwidth });
        }
        let times: Vec<(u32, f64)> = found.iter().map(|at| (at.scale, at.time_s)).collect();
        Behaviour { class: classify(&times), tried: scales(&times, ALPHA), scales: found }
    }

    /// Draws how many processes a job of it has.
    pub(super) fn processes(&self, rng: &mut Rng) -> u32 {
        if self.rigid() || rng.below(2) == 0 { 16 } else { 28 }
    }
}

/// The program of that name.
pub(super) fn named(name: &str) -> &'static Program {
    PROGRAMS.iter().find(|program| program.name == name).expect("a test program")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_the_published_ones() {
        let of = |class: Class| {
            let names = PROGRAMS.iter().filter(move |program| program.behaviour(16).class == class);
            names.map(|program| program.name).collect::<Vec<_>>()
        };
        assert_eq!(of(Class::Scaling), ["MG", "CG", "LU", "TS", "BW"]);
        assert_eq!(of(Class::Compact), ["BFS", "GAN", "RNN"]);
        assert_eq!(of(Class::Neutral), ["EP", "WC", "NW", "HC"]);
        assert_eq!(named("CG").behaviour(16).tried[0], 2);
        assert_eq!(named("MG").behaviour(16).tried[0], 8);
        assert_eq!(named("BFS").behaviour(16).tried, [1]);
    }

    #[test]
    fn bandwidth_and_ways_are_the_published_ones() {
        let mg = named("MG").behaviour(16);
        assert!((mg.scales[1].bandwidth - 67.6).abs() < 0.1, "{}", mg.scales[1].bandwidth);
        let ways = |name: &str| named(name).behaviour(16).scales[0].demand.ways;
        // The profile's straight lines ask for a little more than the curve would.
        assert!((3.0..=4.0).contains(&ways("MG")) && ways("EP") == 2.0 && ways("HC") == 2.0);
        assert!((10.0..=13.0).contains(&ways("CG")) && (17.0..=18.0).contains(&ways("BFS")));
        assert_eq!((stream(1.0), stream(2.0), stream(28.0)), (18.80, 37.17, 118.26));
        assert!((speed(10.0, 10.0) - 0.9).abs() < 1e-12 && speed(3.0, 20.0) == 1.0);
    }

    #[test]
    fn copies_that_crowd_a_node_gain_more_by_spreading() {
        let gain = |processes| {
            let behaviour = named("BW").behaviour(processes);
            behaviour.scales[0].time_s / behaviour.scales[1].time_s
        };
        assert!(gain(28) > gain(16) && (gain(16) - 1.15).abs() < 1e-9);
    }
}
