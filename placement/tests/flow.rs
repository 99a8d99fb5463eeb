//! Minimum-cost flow: all solvers agree and prove their optima, from scratch and after changes.

use proptest::prelude::*;
use rgpu_placement::flow::generate::{Random, Scheduling};
use rgpu_placement::flow::{
    Algorithm, ArcId, Error, Incremental, MAX_COST, Network, NodeId, Solution, UNLIMITED, dimacs,
};

/// Kinds of random networks, each hard for somebody.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Anything: loops, parallel arcs, arcs without capacity, costs of both signs.
    Wild,
    /// All costs equal or zero: every tree is degenerate and every path a tie.
    Degenerate,
    /// Unit supplies to choose among few places, more than fit at the cheap ones.
    Assignment,
    /// A grid with capacities of one and two.
    Grid,
    /// Capacities and costs near the limits.
    Large,
    /// Unlimited arcs of both signs of cost.
    Unlimited,
}

const KINDS: [Kind; 6] =
    [Kind::Wild, Kind::Degenerate, Kind::Assignment, Kind::Grid, Kind::Large, Kind::Unlimited];

fn build(kind: Kind, seed: u64) -> Network {
    let mut random = Random::new(seed);
    let mut network = Network::new();
    let count = 2 + random.below(12);
    match kind {
        Kind::Wild | Kind::Degenerate | Kind::Large | Kind::Unlimited => {
            let nodes: Vec<NodeId> = (0..count).map(|_| network.add_node(0).unwrap()).collect();
            let unit = if matches!(kind, Kind::Large) { 1 << 40 } else { 1 };
            for _ in 0..random.below(count * 4) {
                let (tail, head) = (nodes[random.below(count)], nodes[random.below(count)]);
                let (capacity, cost) = match kind {
                    Kind::Wild => (random.between(0, 6), random.between(-5, 10)),
                    Kind::Degenerate => (random.between(0, 2), random.between(0, 1)),
                    Kind::Large => (random.between(0, 1 << 44), random.between(-(1 << 38), 1 << 40)),
                    _ if random.below(3) == 0 => (UNLIMITED, random.between(-1, 8)),
                    _ => (random.between(0, 5), random.between(-3, 8)),
                };
                network.add_arc(tail, head, capacity, cost).unwrap();
            }
            for _ in 0..random.below(4) {
                let (from, to) = (nodes[random.below(count)], nodes[random.below(count)]);
                let units = random.between(0, 3) * unit;
                network.set_supply(from, network.supply(from).unwrap() + units).unwrap();
                network.set_supply(to, network.supply(to).unwrap() - units).unwrap();
            }
        }
        Kind::Assignment => {
            let places = 1 + random.below(5);
            let sources: Vec<NodeId> = (0..count).map(|_| network.add_node(1).unwrap()).collect();
            let heads: Vec<NodeId> = (0..places).map(|_| network.add_node(0).unwrap()).collect();
            let sink = network.add_node(-(count as i64)).unwrap();
            for &source in &sources {
                for _ in 0..1 + random.below(4) {
                    let head = heads[random.below(places)];
                    network.add_arc(source, head, random.between(0, 2), random.between(-2, 9)).unwrap();
                }
                if random.below(8) > 0 {
                    network.add_arc(source, sink, 1, random.between(10, 30)).unwrap();
                }
            }
            for index in 0..places {
                network.add_arc(heads[index], sink, random.between(0, 4), random.between(0, 3)).unwrap();
                if index > 0 {
                    network.add_arc(heads[index - 1], heads[index], random.between(0, 3), 1).unwrap();
                }
            }
        }
        Kind::Grid => {
            let (width, height) = (2 + random.below(4), 2 + random.below(4));
            let nodes: Vec<NodeId> = (0..width * height).map(|_| network.add_node(0).unwrap()).collect();
            for y in 0..height {
                for x in 0..width {
                    let at = nodes[y * width + x];
                    if x + 1 < width {
                        network.add_arc(at, nodes[y * width + x + 1], 1, random.between(0, 4)).unwrap();
                    }
                    if y + 1 < height {
                        let below = nodes[(y + 1) * width + x];
                        network.add_arc(at, below, 2, random.between(0, 4)).unwrap();
                        network.add_arc(below, at, 1, random.between(-1, 4)).unwrap();
                    }
                }
            }
            network.set_supply(nodes[0], 2).unwrap();
            network.set_supply(nodes[width * height - 1], -2).unwrap();
        }
    }
    network
}

/// Results that must agree: the optimum, or why there is none.
fn summary(network: &Network, result: Result<Solution, Error>) -> Result<i128, String> {
    match result {
        Ok(solution) => {
            solution.verify(network).unwrap();
            Ok(solution.cost())
        }
        // Which cycle is found may differ.
        Err(Error::Unbounded { .. }) => Err("unbounded".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn agree(network: &Network) -> Result<i128, String> {
    let first = summary(network, Algorithm::Auto.solve(network));
    for algorithm in Algorithm::ALL {
        let result = summary(network, algorithm.solve(network));
        assert_eq!(result, first, "{algorithm}\n{}", dimacs::write(network));
    }
    first
}

#[test]
fn all_solvers_agree_on_thousands_of_networks() {
    let mut solved = 0;
    let mut failed = 0;
    for seed in 0..6000 {
        match agree(&build(KINDS[seed as usize % KINDS.len()], seed)) {
            Ok(_) => solved += 1,
            Err(_) => failed += 1,
        }
    }
    // Both kinds must be there for the test to say something.
    assert!(solved > 2000 && failed > 500, "{solved} solved, {failed} without an optimum");
}

#[test]
fn all_solvers_agree_on_schedulers_networks() {
    for (seed, slots_percent) in [(1, 30), (2, 100), (3, 101), (4, 300)] {
        let shape = Scheduling { machines: 20, tasks: 300, jobs: 30, preferences: 5, slots_percent };
        agree(&shape.build(seed).unwrap().network).unwrap();
    }
    let shape = Scheduling { machines: 300, tasks: 250, jobs: 25, preferences: 6, slots_percent: 100 };
    agree(&shape.build(5).unwrap().network).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn changes_lead_to_the_same_optimum_as_solving_from_scratch(seed in any::<u64>(), kind in 0..KINDS.len()) {
        let mut random = Random::new(seed);
        let mut kept = Incremental::new(build(KINDS[kind], seed));
        for _ in 0..8 {
            let result = match kept.solve() {
                Ok(cost) => {
                    kept.verify().unwrap();
                    assert_eq!(kept.solution().unwrap().cost(), cost);
                    for (id, _) in kept.network().arcs() {
                        assert_eq!(kept.flow(id), kept.solution().unwrap().flow(id));
                    }
                    Ok(cost)
                }
                Err(Error::Unbounded { .. }) => Err("unbounded".into()),
                Err(error) => Err(error.to_string()),
            };
            let fresh = summary(kept.network(), Algorithm::SuccessiveShortestPaths.solve(kept.network()));
            prop_assert_eq!(result, fresh, "{}", dimacs::write(kept.network()));
            for _ in 0..1 + random.below(4) {
                change(&mut kept, &mut random);
            }
        }
    }
}

/// Makes some change that leaves the supplies balanced.
fn change(kept: &mut Incremental, random: &mut Random) {
    let nodes: Vec<NodeId> = kept.network().nodes().collect();
    let arcs: Vec<ArcId> = kept.network().arcs().map(|(id, _)| id).collect();
    let node = |random: &mut Random| nodes[random.below(nodes.len())];
    let sink = nodes[nodes.len() - 1];
    let shift = |kept: &mut Incremental, node: NodeId, units: i64| {
        let supply = kept.network().supply(node).unwrap();
        kept.set_supply(node, supply + units).unwrap();
    };
    match random.below(8) {
        0 => {
            // A task arrives.
            let task = kept.add_node(1).unwrap();
            shift(kept, sink, -1);
            for _ in 0..random.below(4) {
                kept.add_arc(task, node(random), random.between(0, 2), random.between(0, 9)).unwrap();
            }
            kept.add_arc(task, sink, 1, 40).unwrap();
        }
        1 if nodes.len() > 2 => {
            let gone = nodes[random.below(nodes.len() - 1)];
            let supply = kept.network().supply(gone).unwrap();
            kept.remove_node(gone).unwrap();
            shift(kept, sink, supply);
        }
        2 => {
            kept.add_arc(node(random), node(random), random.between(0, 4), random.between(-2, 9)).unwrap();
        }
        3 if !arcs.is_empty() => kept.remove_arc(arcs[random.below(arcs.len())]).unwrap(),
        4 if !arcs.is_empty() => {
            kept.set_cost(arcs[random.below(arcs.len())], random.between(-3, 12)).unwrap();
        }
        5 if !arcs.is_empty() => {
            let capacity = if random.below(5) == 0 { UNLIMITED } else { random.between(0, 5) };
            kept.set_capacity(arcs[random.below(arcs.len())], capacity).unwrap();
        }
        6 => {
            let new = kept.add_node(0).unwrap();
            kept.add_arc(node(random), new, 3, random.between(0, 5)).unwrap();
            kept.add_arc(new, sink, 3, random.between(0, 5)).unwrap();
        }
        _ => {
            let (from, to, units) = (node(random), node(random), random.between(-1, 2));
            shift(kept, from, units);
            shift(kept, to, -units);
        }
    }
}

#[test]
fn a_schedulers_clock_ticks() {
    // Few machines with many slots, and many with few; room to spare, just enough, and too little. In the largest, searches from
    // both sides have far to go.
    for (machines, tasks, rounds) in [(40, 400, 12), (600, 500, 6), (2000, 6000, 3)] {
        for slots_percent in [50, 100, 120, 200] {
            let shape = Scheduling { machines, tasks, jobs: 40, preferences: 6, slots_percent };
            tick(&shape, rounds);
        }
    }
}

/// Changes a scheduler's network again and again, and solves it each time both ways.
fn tick(shape: &Scheduling, rounds: usize) {
    let mut parts = shape.build(11).unwrap();
    let mut random = Random::new(12);
    let mut kept = Incremental::new(std::mem::take(&mut parts.network));
    let fit = (shape.tasks * shape.slots_percent / 100 / shape.machines) as i64;
    for _ in 0..rounds {
        let cost = kept.solve().unwrap();
        kept.verify().unwrap();
        let fresh = Algorithm::CostScaling.solve(kept.network()).unwrap();
        assert_eq!(cost, fresh.cost(), "{shape:?}");
        for _ in 0..shape.tasks / 40 {
            let index = random.below(parts.tasks.len());
            kept.remove_node(parts.tasks[index]).unwrap();
            let task = kept.add_node(1).unwrap();
            parts.tasks[index] = task;
            for _ in 0..6 {
                let machine = parts.machines[random.below(parts.machines.len())];
                kept.add_arc(task, machine, 1, random.between(1, 1000)).unwrap();
            }
            kept.add_arc(task, parts.aggregator, 1, random.between(500, 1500)).unwrap();
            kept.add_arc(task, parts.jobs[random.below(parts.jobs.len())], 1, 3000).unwrap();
            let slot = parts.slots[random.below(parts.slots.len())];
            kept.set_capacity(slot, (fit + random.between(-2, 2)).max(0)).unwrap();
            let joins = kept.network().arcs().find(|(_, arc)| arc.tail == parts.aggregator).unwrap().0;
            kept.set_cost(joins, random.between(0, 500)).unwrap();
        }
    }
}

#[test]
fn an_infeasible_network_is_reported_with_what_is_left_and_can_be_mended() {
    let mut network = Network::new();
    let source = network.add_node(5).unwrap();
    let sink = network.add_node(-5).unwrap();
    let arc = network.add_arc(source, sink, 3, 1).unwrap();
    assert_eq!(agree(&network), Err(Error::Infeasible { unrouted: 2 }.to_string()));
    let mut kept = Incremental::new(network);
    assert_eq!(kept.solve(), Err(Error::Infeasible { unrouted: 2 }));
    kept.set_capacity(arc, 5).unwrap();
    assert_eq!(kept.solve(), Ok(5));
    kept.set_capacity(arc, 4).unwrap();
    assert_eq!(kept.solve(), Err(Error::Infeasible { unrouted: 1 }));
    kept.add_arc(source, sink, UNLIMITED, 7).unwrap();
    assert_eq!(kept.solve(), Ok(11));
}

#[test]
fn a_network_where_nothing_can_be_routed_for_long_is_reported_soon() {
    // A long chain before the missing arc: potentials would fall for the square of its length.
    let mut network = Network::new();
    let nodes: Vec<NodeId> = (0..300).map(|_| network.add_node(0).unwrap()).collect();
    for pair in nodes.windows(2) {
        network.add_arc(pair[0], pair[1], 10, 1).unwrap();
    }
    let sink = network.add_node(-7).unwrap();
    network.set_supply(nodes[0], 7).unwrap();
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.solve(&network), Err(Error::Infeasible { unrouted: 7 }), "{algorithm}");
    }
    network.add_arc(nodes[299], sink, 7, 1).unwrap();
    assert_eq!(agree(&network), Ok(2100));
}

#[test]
fn unbounded_unbalanced_and_overflowing_networks_are_errors() {
    let mut network = Network::new();
    let a = network.add_node(0).unwrap();
    let b = network.add_node(0).unwrap();
    let there = network.add_arc(a, b, UNLIMITED, -3).unwrap();
    let back = network.add_arc(b, a, UNLIMITED, 2).unwrap();
    for algorithm in Algorithm::ALL {
        let Err(Error::Unbounded { mut cycle }) = algorithm.solve(&network) else { panic!("{algorithm}") };
        cycle.sort();
        assert_eq!(cycle, [there, back]);
    }
    network.set_capacity(back, 10).unwrap();
    assert_eq!(agree(&network), Ok(-10));
    network.set_supply(a, 1).unwrap();
    assert_eq!(agree(&network), Err(Error::Unbalanced { supply: 1, demand: 0 }.to_string()));
    network.set_supply(a, i64::MAX).unwrap();
    network.set_supply(b, -i64::MAX).unwrap();
    assert!(matches!(Algorithm::Auto.solve(&network), Err(Error::Overflow(_))));
    assert!(matches!(network.add_arc(a, b, 1, MAX_COST + 1), Err(Error::Overflow(_))));
    assert!(matches!(network.add_arc(a, b, 1, i64::MIN), Err(Error::Overflow(_))));
    assert_eq!(network.add_arc(a, b, -1, 0), Err(Error::NegativeCapacity(-1)));
}

#[test]
fn costs_up_to_the_limit_are_no_trouble() {
    let mut network = Network::new();
    let nodes: Vec<NodeId> = (0..20).map(|_| network.add_node(0).unwrap()).collect();
    let mut random = Random::new(3);
    for _ in 0..150 {
        let (tail, head) = (nodes[random.below(20)], nodes[random.below(20)]);
        network.add_arc(tail, head, random.between(0, 3), random.between(MAX_COST - 9, MAX_COST)).unwrap();
    }
    for pair in nodes.windows(2) {
        network.add_arc(pair[0], pair[1], UNLIMITED, random.between(0, MAX_COST)).unwrap();
    }
    network.set_supply(nodes[0], 9).unwrap();
    network.set_supply(nodes[19], -9).unwrap();
    let cost = agree(&network).unwrap();
    assert_eq!(Incremental::new(network).solve(), Ok(cost));
}

#[test]
fn dangling_references_are_errors() {
    let mut network = Network::new();
    let a = network.add_node(0).unwrap();
    let b = network.add_node(0).unwrap();
    let arc = network.add_arc(a, b, 1, 1).unwrap();
    assert_eq!(network.remove_node(b), Err(Error::NodeInUse { node: b, arcs: 1 }));
    network.remove_arc(arc).unwrap();
    assert_eq!(network.remove_arc(arc), Err(Error::NoSuchArc(arc)));
    assert_eq!(network.set_cost(arc, 1), Err(Error::NoSuchArc(arc)));
    network.remove_node(b).unwrap();
    assert_eq!(network.add_arc(a, b, 1, 1), Err(Error::NoSuchNode(b)));
    assert_eq!(network.set_supply(b, 1), Err(Error::NoSuchNode(b)));
    let mut kept = Incremental::new(network);
    assert_eq!(kept.remove_node(b), Err(Error::NoSuchNode(b)));
    assert_eq!(kept.solve(), Ok(0));
}

#[test]
fn a_wrong_solution_does_not_pass() {
    let mut network = Network::new();
    let a = network.add_node(1).unwrap();
    let b = network.add_node(-1).unwrap();
    let dear = network.add_arc(a, b, 1, 5).unwrap();
    let solution = Algorithm::Auto.solve(&network).unwrap();
    solution.verify(&network).unwrap();
    // A cheaper way appears: the flow is no longer optimal.
    let mut other = network.clone();
    other.add_arc(a, b, 1, 2).unwrap();
    assert!(solution.verify(&other).is_err());
    other = network.clone();
    other.set_capacity(dear, 0).unwrap();
    assert!(solution.verify(&other).is_err());
    other = network.clone();
    other.set_cost(dear, 6).unwrap();
    assert!(solution.verify(&other).is_err());
    network.set_supply(a, 0).unwrap();
    assert!(solution.verify(&network).is_err());
}
