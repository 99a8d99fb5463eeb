//! Networks to test and to measure with, the same ones from the same seed.

use super::error::Error;
use super::ids::{ArcId, NodeId};
use super::network::{Network, UNLIMITED};

/// Random numbers from a seed (SplitMix64), so that this module needs nobody else's.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`, or 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        let span = (i128::from(high) - i128::from(low) + 1).max(1) as u128;
        (i128::from(low) + ((u128::from(self.bits()) * span) >> 64) as i128) as i64
    }
}

/// The shape of a scheduler's network: every task has arcs to some machines, to an aggregator that reaches every
/// machine, and to its job's node for tasks that wait; machines and jobs have arcs to the sink.
#[derive(Clone, Copy, Debug)]
pub struct Scheduling {
    /// How many machines there are, each a node of the network.
    pub machines: usize,
    /// Tasks, each a unit of supply.
    pub tasks: usize,
    /// Jobs, over which the tasks are spread evenly.
    pub jobs: usize,
    /// Arcs from each task to machines that it prefers.
    pub preferences: usize,
    /// Tasks that fit on all machines, in percent of the tasks that there are.
    pub slots_percent: usize,
}

/// A scheduler's network with names for its parts.
#[derive(Clone, Debug)]
pub struct SchedulingNetwork {
    /// The network, which is balanced and has a solution.
    pub network: Network,
    /// A node for each task.
    pub tasks: Vec<NodeId>,
    /// A node for each job's waiting tasks.
    pub jobs: Vec<NodeId>,
    /// A node for each machine.
    pub machines: Vec<NodeId>,
    /// The arc from each machine to the sink.
    pub slots: Vec<ArcId>,
    /// The node that every task may pass to reach any machine.
    pub aggregator: NodeId,
    /// Where all flow ends.
    pub sink: NodeId,
    /// The preference arcs, those of one task after those of another.
    pub preferences: Vec<ArcId>,
}

impl Scheduling {
    /// Builds such a network.
    pub fn build(&self, seed: u64) -> Result<SchedulingNetwork, Error> {
        let mut random = Random::new(seed);
        let nodes = self.tasks + self.jobs + self.machines + 2;
        let arcs = self.tasks * (self.preferences + 2) + self.jobs + self.machines * 2;
        let mut network = Network::with_capacity(nodes, arcs);
        let mut add = |count: usize, supply: i64| -> Result<Vec<NodeId>, Error> {
            (0..count).map(|_| network.add_node(supply)).collect()
        };
        let tasks = add(self.tasks, 1)?;
        let jobs = add(self.jobs, 0)?;
        let machines = add(self.machines, 0)?;
        let aggregator = network.add_node(0)?;
        let sink = network.add_node(-(self.tasks as i64))?;
        let mut preferences = Vec::with_capacity(self.tasks * self.preferences);
        for (index, &task) in tasks.iter().enumerate() {
            let job = jobs[index * self.jobs / self.tasks.max(1)];
            self.add_task_arcs(
                &mut network,
                task,
                job,
                aggregator,
                &machines,
                &mut random,
                &mut preferences,
            )?;
        }
        for &job in &jobs {
            network.add_arc(job, sink, UNLIMITED, 0)?;
        }
        for &machine in &machines {
            network.add_arc(aggregator, machine, UNLIMITED, random.between(0, 500))?;
        }
        let total = self.tasks * self.slots_percent / 100;
        let mut slots = Vec::with_capacity(self.machines);
        for (index, &machine) in machines.iter().enumerate() {
            let fit = total * (index + 1) / self.machines - total * index / self.machines;
            slots.push(network.add_arc(machine, sink, fit as i64, 0)?);
        }
        Ok(SchedulingNetwork { network, tasks, jobs, machines, slots, aggregator, sink, preferences })
    }

    /// Adds the arcs of one task.
    #[allow(clippy::too_many_arguments)]
    fn add_task_arcs(
        &self,
        network: &mut Network,
        task: NodeId,
        job: NodeId,
        aggregator: NodeId,
        machines: &[NodeId],
        random: &mut Random,
        preferences: &mut Vec<ArcId>,
    ) -> Result<(), Error> {
        for _ in 0..self.preferences {
            let machine = machines[random.below(machines.len())];
            preferences.push(network.add_arc(task, machine, 1, random.between(1, 1000))?);
        }
        network.add_arc(task, aggregator, 1, random.between(500, 1500))?;
        network.add_arc(task, job, 1, random.between(2000, 5000))?;
        Ok(())
    }
}
