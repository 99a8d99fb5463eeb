//! Network simplex: from spanning tree to better spanning tree.

use super::error::Error;
use super::network::Network;
use super::prepare::{self, Limits};
use super::residual::NONE;
use super::solution::Solution;
use super::solver::Solver;
use super::split::fill_loops;

/// The primal network simplex method, with strongly feasible trees (Cunningham), so that it ends, and the entering arc
/// chosen as the best of a block of arcs.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetworkSimplex;

impl Solver for NetworkSimplex {
    fn name(&self) -> &'static str {
        "network-simplex"
    }

    fn solve(&mut self, network: &Network) -> Result<Solution, Error> {
        let limits = prepare::check(network)?;
        let mut simplex = Simplex::new(network, &limits);
        while let Some(entering) = simplex.entering() {
            simplex.pivot(entering);
        }
        simplex.solution(network)
    }
}

/// Where an arc's flow is, as the sign by which its reduced cost may be off.
const AT_LOWER: i8 = 1;
const AT_UPPER: i8 = -1;
const IN_TREE: i8 = 0;

/// An arc as pricing sees it.
#[derive(Clone, Copy, Debug)]
struct Arc {
    tail: u32,
    head: u32,
    cost: i64,
}

/// A node's place in the tree.
#[derive(Clone, Copy, Debug)]
struct Node {
    parent: u32,
    /// The arc between this node and its parent.
    arc: u32,
    /// Whether that arc leads to the parent.
    up: bool,
    depth: u32,
    first_child: u32,
    /// Among the parent's children.
    next: u32,
    previous: u32,
}

struct Simplex {
    arcs: Vec<Arc>,
    capacities: Vec<i64>,
    flows: Vec<i64>,
    states: Vec<i8>,
    /// The network's arc for each of `arcs` but the last, which join each node to the root.
    names: Vec<u32>,
    nodes: Vec<Node>,
    potentials: Vec<i64>,
    /// Where the next block begins, and how long blocks are.
    next: usize,
    block: usize,
    stack: Vec<u32>,
}

impl Simplex {
    /// The tree in which every node hangs on the root, by an arc that is dearer than any path.
    fn new(network: &Network, limits: &Limits) -> Self {
        let nodes = network.node_bound();
        let root = nodes as u32;
        let dear = (limits.cost + 1) * (nodes as i64 + 1);
        let mut simplex = Self {
            arcs: Vec::with_capacity(network.arc_bound() + nodes),
            capacities: Vec::with_capacity(network.arc_bound() + nodes),
            flows: Vec::new(),
            states: Vec::new(),
            names: Vec::with_capacity(network.arc_bound()),
            nodes: Vec::with_capacity(nodes + 1),
            potentials: Vec::with_capacity(nodes + 1),
            next: 0,
            block: 0,
            stack: Vec::new(),
        };
        for index in 0..network.arc_bound() {
            let (tail, head) = (network.tails[index], network.heads[index]);
            if network.is_arc(index) && tail != head && network.capacities[index] > 0 {
                simplex.arcs.push(Arc { tail, head, cost: network.costs[index] });
                simplex.capacities.push(limits.capacity(network.capacities[index]));
                simplex.names.push(index as u32);
            }
        }
        let real = simplex.arcs.len();
        simplex.flows = vec![0; real];
        simplex.states = vec![AT_LOWER; real];
        for (node, &supply) in (0..root).zip(&network.supplies) {
            let up = supply >= 0;
            let (tail, head) = if up { (node, root) } else { (root, node) };
            simplex.nodes.push(Node {
                parent: root,
                arc: simplex.arcs.len() as u32,
                up,
                depth: 1,
                first_child: NONE,
                next: if node + 1 < root { node + 1 } else { NONE },
                previous: if node > 0 { node - 1 } else { NONE },
            });
            simplex.arcs.push(Arc { tail, head, cost: dear });
            simplex.capacities.push(i64::MAX);
            simplex.flows.push(supply.abs());
            simplex.states.push(IN_TREE);
            simplex.potentials.push(if up { -dear } else { dear });
        }
        let first_child = if nodes > 0 { 0 } else { NONE };
        simplex.nodes.push(Node {
            parent: NONE,
            arc: NONE,
            up: false,
            depth: 0,
            first_child,
            next: NONE,
            previous: NONE,
        });
        simplex.potentials.push(0);
        // As LEMON's documentation reports, about the square root of the number of arcs is best.
        simplex.block = (real as f64).sqrt().max(16.0) as usize;
        simplex
    }

    /// The best arc of the next block that has one by which the flow can become cheaper.
    fn entering(&mut self) -> Option<usize> {
        let arcs = self.names.len();
        let (mut best, mut found) = (0, None);
        let mut left = self.block;
        for _ in 0..2 {
            // From the block on to the end, and once from the beginning.
            let start = self.next;
            for index in start..arcs {
                let arc = self.arcs[index];
                let reduced =
                    arc.cost + self.potentials[arc.tail as usize] - self.potentials[arc.head as usize];
                let signed = i64::from(self.states[index]) * reduced;
                if signed < best {
                    (best, found) = (signed, Some(index));
                }
                left -= 1;
                if left == 0 {
                    if found.is_some() {
                        self.next = index + 1;
                        return found;
                    }
                    left = self.block;
                }
            }
            self.next = 0;
            if start == 0 {
                break;
            }
        }
        found
    }

    /// Brings an arc into the tree, and the arc out that limits the flow around the cycle.
    fn pivot(&mut self, entering: usize) {
        let arc = self.arcs[entering];
        // Flow goes from `first` through the arc to `second`, and back through the tree.
        let (first, second) =
            if self.states[entering] == AT_LOWER { (arc.tail, arc.head) } else { (arc.head, arc.tail) };
        let join = self.join(first, second);
        let mut units = self.capacities[entering];
        // The node below the leaving arc, and whether that is on the first side.
        let mut leaving = None;
        // Of the arcs that limit, the last of the cycle as seen from the join: that keeps the tree strongly feasible.
        let mut node = first;
        while node != join {
            let below = self.nodes[node as usize];
            let room = if below.up { self.flows[below.arc as usize] } else { self.room(below.arc) };
            if room < units {
                (units, leaving) = (room, Some((node, true)));
            }
            node = below.parent;
        }
        node = second;
        while node != join {
            let below = self.nodes[node as usize];
            let room = if below.up { self.room(below.arc) } else { self.flows[below.arc as usize] };
            if room <= units {
                (units, leaving) = (room, Some((node, false)));
            }
            node = below.parent;
        }
        if units > 0 {
            self.push(first, second, join, units);
            self.flows[entering] += if first == arc.tail { units } else { -units };
        }
        let Some((below, on_first)) = leaving else {
            // From one bound to the other; the tree stays.
            self.states[entering] = -self.states[entering];
            return;
        };
        let left = self.nodes[below as usize].arc as usize;
        self.states[left] = if self.flows[left] == 0 { AT_LOWER } else { AT_UPPER };
        self.states[entering] = IN_TREE;
        let (inner, outer) = if on_first { (first, second) } else { (second, first) };
        self.hang(inner, outer, below, entering as u32);
    }

    #[inline]
    fn room(&self, arc: u32) -> i64 {
        self.capacities[arc as usize] - self.flows[arc as usize]
    }

    /// Where the paths to the root meet.
    fn join(&self, mut first: u32, mut second: u32) -> u32 {
        while first != second {
            let (a, b) = (self.nodes[first as usize], self.nodes[second as usize]);
            if a.depth >= b.depth {
                first = a.parent;
            }
            if b.depth >= a.depth {
                second = b.parent;
            }
        }
        first
    }

    /// Sends units down to `first` and from `second` up.
    fn push(&mut self, first: u32, second: u32, join: u32, units: i64) {
        let mut node = first;
        while node != join {
            let below = self.nodes[node as usize];
            self.flows[below.arc as usize] += if below.up { -units } else { units };
            node = below.parent;
        }
        node = second;
        while node != join {
            let below = self.nodes[node as usize];
            self.flows[below.arc as usize] += if below.up { units } else { -units };
            node = below.parent;
        }
    }

    /// Cuts the tree above `below`, turns the part below so that `inner` is its top, and hangs that on `outer`.
    fn hang(&mut self, inner: u32, outer: u32, below: u32, arc: u32) {
        let (mut node, mut parent, mut arc) = (inner, outer, arc);
        loop {
            let old = self.nodes[node as usize];
            self.detach(node);
            let up = self.arcs[arc as usize].tail == node;
            let child = parent;
            let next = self.nodes[child as usize].first_child;
            if next != NONE {
                self.nodes[next as usize].previous = node;
            }
            self.nodes[child as usize].first_child = node;
            let new = &mut self.nodes[node as usize];
            (new.parent, new.arc, new.up, new.next, new.previous) = (parent, arc, up, next, NONE);
            if node == below {
                break;
            }
            (parent, arc, node) = (node, old.arc, old.parent);
        }
        let top = self.nodes[inner as usize];
        let entering = self.arcs[top.arc as usize];
        // The entering arc's reduced cost becomes zero.
        let expected = if top.up {
            self.potentials[outer as usize] - entering.cost
        } else {
            self.potentials[outer as usize] + entering.cost
        };
        let change = expected - self.potentials[inner as usize];
        self.stack.push(inner);
        while let Some(node) = self.stack.pop() {
            self.potentials[node as usize] += change;
            let depth = self.nodes[self.nodes[node as usize].parent as usize].depth + 1;
            self.nodes[node as usize].depth = depth;
            let mut child = self.nodes[node as usize].first_child;
            while child != NONE {
                self.stack.push(child);
                child = self.nodes[child as usize].next;
            }
        }
    }

    /// Takes a node out of its parent's children.
    fn detach(&mut self, node: u32) {
        let Node { parent, next, previous, .. } = self.nodes[node as usize];
        match previous {
            NONE => self.nodes[parent as usize].first_child = next,
            previous => self.nodes[previous as usize].next = next,
        }
        if next != NONE {
            self.nodes[next as usize].previous = previous;
        }
    }

    fn solution(self, network: &Network) -> Result<Solution, Error> {
        let real = self.names.len();
        let nodes = network.node_bound();
        let unrouted: i64 = (real..self.arcs.len())
            .filter(|&arc| self.arcs[arc].head as usize == nodes)
            .map(|arc| self.flows[arc])
            .sum();
        if unrouted > 0 {
            return Err(Error::Infeasible { unrouted });
        }
        let mut flows = vec![0; network.arc_bound()];
        for (&name, &flow) in self.names.iter().zip(&self.flows) {
            flows[name as usize] = flow;
        }
        fill_loops(network, &mut flows);
        let mut potentials = self.potentials;
        potentials.truncate(nodes);
        Ok(Solution::new(network, flows, potentials))
    }
}
