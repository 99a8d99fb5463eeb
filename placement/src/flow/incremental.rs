//! The optimum again, after changes.

use super::algorithm::Algorithm;
use super::error::Error;
use super::ids::{ArcId, NodeId};
use super::live::Live;
use super::network::{Arc, Network, UNLIMITED};
use super::prepare::{self, MAX_FLOW};
use super::solution::{Flaw, Solution};

/// A network with its optimum, which is found again after changes in time that depends on the changes.
///
/// The flow and the potentials are kept. What a change makes infeasible or no longer optimal is taken back where it
/// is, and routed anew along shortest paths, near by where that is possible. Some changes make the next [`Self::solve`] go through the whole network
/// once: a node's first arc in, if it had only arcs out and a supply of one; a supply other than 0 and 1 there; and
/// more supply than twice that of the start. Arcs of negative cost without a limit are always solved from scratch.
#[derive(Debug, Default)]
pub struct Incremental {
    network: Network,
    live: Option<Live>,
    /// The last optimum, where it was found from scratch and not kept in `live`.
    solution: Option<Solution>,
    sums: Sums,
    solved: bool,
}

/// Sums over the network, kept so that checking them doesn't take long.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    supply: i128,
    demand: i128,
    /// Arcs of negative cost without a limit.
    unlimited_negative: usize,
    /// Capacities of the other arcs of negative cost.
    negative_capacity: i128,
    /// The largest cost there has been, either way from zero.
    cost: i64,
    /// What full loops of negative cost cost.
    loops: i128,
}

fn loop_cost(arc: Arc) -> i128 {
    if arc.tail == arc.head { i128::from(arc.cost.min(0)) * i128::from(arc.capacity) } else { 0 }
}

impl Sums {
    fn supply(&mut self, supply: i64, sign: i128) {
        if supply > 0 {
            self.supply += sign * i128::from(supply);
        } else {
            self.demand -= sign * i128::from(supply);
        }
    }

    fn add(&mut self, arc: Arc) {
        self.loops += loop_cost(arc);
        self.cost = self.cost.max(arc.cost.abs());
        if arc.cost < 0 && arc.capacity == UNLIMITED {
            self.unlimited_negative += 1;
        } else if arc.cost < 0 {
            self.negative_capacity += i128::from(arc.capacity);
        }
    }

    fn remove(&mut self, arc: Arc) {
        self.loops -= loop_cost(arc);
        if arc.cost < 0 && arc.capacity == UNLIMITED {
            self.unlimited_negative -= 1;
        } else if arc.cost < 0 {
            self.negative_capacity -= i128::from(arc.capacity);
        }
    }
}

impl Incremental {
    /// Takes a network. Nothing is solved yet.
    pub fn new(network: Network) -> Self {
        let mut sums = Sums::default();
        network.supplies.iter().for_each(|&supply| sums.supply(supply, 1));
        network.arcs().for_each(|(_, arc)| sums.add(arc));
        Self { network, live: None, solution: None, sums, solved: false }
    }

    /// The network as it is now.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Gives the network back.
    pub fn into_network(self) -> Network {
        self.network
    }

    /// Adds a node; see [`Network::add_node`].
    pub fn add_node(&mut self, supply: i64) -> Result<NodeId, Error> {
        let node = self.network.add_node(supply)?;
        self.sums.supply(supply, 1);
        self.change(|live| live.add_node(node.0, supply));
        Ok(node)
    }

    /// Adds an arc; see [`Network::add_arc`].
    pub fn add_arc(&mut self, tail: NodeId, head: NodeId, capacity: i64, cost: i64) -> Result<ArcId, Error> {
        let id = self.network.add_arc(tail, head, capacity, cost)?;
        let arc = Arc { tail, head, capacity, cost };
        self.sums.add(arc);
        self.change(|live| live.add_arc(id.0, arc));
        Ok(id)
    }

    /// Removes a node and its arcs. This takes longest for nodes that many unit sources have arcs to.
    pub fn remove_node(&mut self, node: NodeId) -> Result<(), Error> {
        let supply = self.network.supply(node)?;
        let arcs = match &self.live {
            Some(live) => live.arcs_of(&self.network, node.0, self.network.degree(node)),
            None => self
                .network
                .arcs()
                .filter(|(_, arc)| arc.tail == node || arc.head == node)
                .map(|(id, _)| id.0)
                .collect(),
        };
        self.change(|live| live.clear_node(node.0));
        // The last of a row first, so that none has to move up.
        for arc in arcs.into_iter().rev() {
            self.remove_arc(ArcId(arc))?;
        }
        self.sums.supply(supply, -1);
        self.change(|live| live.remove_node(node.0, supply));
        self.network.remove_node(node)
    }

    /// Removes an arc.
    pub fn remove_arc(&mut self, arc: ArcId) -> Result<(), Error> {
        let old = self.network.arc(arc)?;
        self.network.remove_arc(arc)?;
        self.sums.remove(old);
        self.change(|live| live.remove_arc(arc.0, old));
        Ok(())
    }

    /// Changes a supply.
    pub fn set_supply(&mut self, node: NodeId, supply: i64) -> Result<(), Error> {
        let old = self.network.supply(node)?;
        self.network.set_supply(node, supply)?;
        self.sums.supply(old, -1);
        self.sums.supply(supply, 1);
        self.change(|live| live.set_supply(node.0, old, supply));
        Ok(())
    }

    /// Changes a capacity.
    pub fn set_capacity(&mut self, arc: ArcId, capacity: i64) -> Result<(), Error> {
        let old = self.network.arc(arc)?;
        self.network.set_capacity(arc, capacity)?;
        let new = Arc { capacity, ..old };
        self.sums.remove(old);
        self.sums.add(new);
        self.change(|live| live.set_capacity(arc.0, new));
        Ok(())
    }

    /// Changes a cost.
    pub fn set_cost(&mut self, arc: ArcId, cost: i64) -> Result<(), Error> {
        let old = self.network.arc(arc)?;
        self.network.set_cost(arc, cost)?;
        let new = Arc { cost, ..old };
        self.sums.remove(old);
        self.sums.add(new);
        self.change(|live| live.set_cost(arc.0, new));
        Ok(())
    }

    /// Finds the optimum of the network as it is now, and what it costs.
    ///
    /// After an error the network is as it was, and may be changed and solved again.
    pub fn solve(&mut self) -> Result<i128, Error> {
        self.solved = false;
        self.solution = None;
        let Sums { supply, demand, .. } = self.sums;
        if supply != demand {
            return Err(Error::Unbalanced { supply, demand });
        }
        let cost = if self.sums.unlimited_negative > 0 {
            self.live = None;
            let solution = Algorithm::Auto.solve(&self.network)?;
            let cost = solution.cost();
            self.solution = Some(solution);
            cost
        } else {
            self.solve_live()?
        };
        self.solved = true;
        Ok(cost)
    }

    fn solve_live(&mut self) -> Result<i128, Error> {
        let most = self.sums.supply + self.sums.negative_capacity;
        let path = i128::from(self.sums.cost) * (self.network.node_bound() as i128 + 2);
        let overflows = most > MAX_FLOW || path > MAX_FLOW;
        let live = match self.live.take() {
            Some(live) if live.is_usable(most) && !overflows => live,
            other => {
                // Says what overflows, if anything does.
                let mut limits = prepare::check(&self.network)?;
                // Room for some more supply.
                limits.most = limits.most.saturating_mul(2).min(MAX_FLOW as i64);
                match other {
                    Some(old) if old.is_in_range() => old.rebuilt(&self.network, &limits),
                    _ => Live::solved(&self.network, &limits)?,
                }
            }
        };
        // Kept also where there is no optimum: further changes may bring one.
        let live = self.live.insert(live);
        live.route()?;
        Ok(live.cost() + self.sums.loops)
    }

    /// Tells the kept optimum of a change.
    fn change(&mut self, tell: impl FnOnce(&mut Live)) {
        if let Some(live) = &mut self.live {
            tell(live);
        }
    }

    /// The flow through an arc, in the last optimum if nothing was changed since.
    pub fn flow(&self, arc: ArcId) -> i64 {
        match (&self.live, &self.solution) {
            (Some(live), _) => live.flow(&self.network, arc.0),
            (None, Some(solution)) => solution.flow(arc),
            (None, None) => 0,
        }
    }

    /// The potential of a node, in the last optimum if nothing was changed since.
    pub fn potential(&self, node: NodeId) -> i64 {
        match (&self.live, &self.solution) {
            (Some(live), _) => live.potential(node.0),
            (None, Some(solution)) => solution.potential(node),
            (None, None) => 0,
        }
    }

    /// A copy of the last optimum, if the network was solved. Takes time for the whole network.
    pub fn solution(&self) -> Option<Solution> {
        match (&self.live, &self.solution) {
            (Some(live), _) if self.solved => Some(live.solution(&self.network)),
            (_, solution) => solution.clone(),
        }
    }

    /// Checks the last optimum's proof; see [`Solution::verify`].
    pub fn verify(&self) -> Result<(), Flaw> {
        match self.solution() {
            Some(solution) => solution.verify(&self.network),
            None => Err(Flaw::Shape { nodes: 0, arcs: 0 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::generate::{Random, Scheduling};

    /// Searches from both sides alone, after changes of small networks with ties, in which halves of ways run into each other.
    #[test]
    fn searches_from_both_sides_lead_to_the_optimum() {
        for seed in 0..1500 {
            let mut random = Random::new(seed);
            let tasks = 6 + random.below(30);
            let shape = Scheduling {
                machines: 2 + random.below(12),
                tasks,
                jobs: 1 + random.below(tasks),
                preferences: 1 + random.below(4),
                slots_percent: [40, 100, 100, 110, 200][random.below(5)],
            };
            // Few different costs make many ways equally long.
            let dearest = [1, 3, 1000][random.below(3)];
            let mut parts = shape.build(seed).unwrap();
            let mut network = std::mem::take(&mut parts.network);
            let arcs: Vec<ArcId> = network.arcs().map(|(id, _)| id).collect();
            for &arc in &arcs {
                let cost = network.arc(arc).unwrap().cost;
                network.set_cost(arc, cost % (dearest + 1)).unwrap();
            }
            let mut kept = Incremental::new(network);
            kept.solve().unwrap();
            for _ in 0..6 {
                if let Some(live) = &mut kept.live {
                    live.by_meeting_alone();
                }
                for _ in 0..1 + random.below(4) {
                    match random.below(3) {
                        0 => {
                            let index = random.below(parts.tasks.len());
                            kept.remove_node(parts.tasks[index]).unwrap();
                            let task = kept.add_node(1).unwrap();
                            parts.tasks[index] = task;
                            for _ in 0..1 + random.below(4) {
                                let machine = parts.machines[random.below(parts.machines.len())];
                                kept.add_arc(task, machine, 1, random.between(0, dearest)).unwrap();
                            }
                            kept.add_arc(task, parts.jobs[0], 1, random.between(0, 2 * dearest)).unwrap();
                        }
                        1 => {
                            let slot = parts.slots[random.below(parts.slots.len())];
                            kept.set_capacity(slot, random.between(0, 6)).unwrap();
                        }
                        _ => {
                            let arcs: Vec<ArcId> = kept.network().arcs().map(|(id, _)| id).collect();
                            let arc = arcs[random.below(arcs.len())];
                            kept.set_cost(arc, random.between(0, dearest)).unwrap();
                        }
                    }
                }
                let cost = kept.solve().unwrap();
                kept.verify().unwrap();
                if let Some(live) = &kept.live {
                    live.assert_consistent();
                }
                let fresh = Algorithm::SuccessiveShortestPaths.solve(kept.network()).unwrap();
                assert_eq!(cost, fresh.cost(), "seed {seed}");
            }
        }
    }
}
