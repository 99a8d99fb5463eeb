//! The DIMACS format of minimum-cost-flow problems.
//!
//! Lines are `c` comments, one `p min NODES ARCS`, `n NODE SUPPLY` and `a TAIL HEAD LOWER CAPACITY COST`; nodes are
//! counted from 1. A negative capacity, as in some generators, means none. A lower bound is taken out of the network
//! by moving it into the supplies; [`Problem`] keeps what puts it back.

use std::fmt::Write as _;

use super::ids::ArcId;
use super::network::{Network, UNLIMITED};
use super::solution::Solution;

/// The most nodes that a file may announce.
const MAX_NODES: usize = 1 << 28;

/// A problem as read.
#[derive(Clone, Debug, Default)]
pub struct Problem {
    /// The network, whose arcs all have a lower bound of 0.
    pub network: Network,
    /// The lower bounds by arc index; empty if all of them are 0.
    pub lower: Vec<i64>,
    /// What the lower bounds cost: to be added to the network's optimum.
    pub base_cost: i128,
}

impl Problem {
    /// What a solution costs with the lower bounds.
    pub fn cost(&self, solution: &Solution) -> i128 {
        self.base_cost + solution.cost()
    }

    /// The flow through an arc with its lower bound.
    pub fn flow(&self, solution: &Solution, arc: ArcId) -> i64 {
        solution.flow(arc) + self.lower.get(arc.index()).copied().unwrap_or(0)
    }
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Line {line}: {problem}")]
pub struct ReadError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: String,
}

/// Reads a problem.
pub fn read(text: &str) -> Result<Problem, ReadError> {
    let mut reader = Reader::default();
    let mut last = 0;
    for (index, line) in text.lines().enumerate() {
        last = index + 1;
        reader.line(line).map_err(|problem| ReadError { line: last, problem })?;
    }
    reader.finish().map_err(|problem| ReadError { line: last, problem })
}

#[derive(Default)]
struct Reader {
    problem: Problem,
    /// The nodes and arcs that the problem line announces.
    announced: Option<(usize, usize)>,
    has_supply: Vec<bool>,
    lower: Vec<i64>,
    /// By how much lower bounds change supplies.
    moved: Vec<i128>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            None | Some("c") => return Ok(()),
            Some("p") => self.problem_line(&mut words)?,
            Some("n") => self.node_line(&mut words)?,
            Some("a") => self.arc_line(&mut words)?,
            // Comments without a space occur.
            Some(word) if word.starts_with('c') => return Ok(()),
            Some(word) => return Err(format!("a line begins with c, p, n or a, not {word:?}")),
        }
        match words.next() {
            None => Ok(()),
            Some(word) => Err(format!("{word:?} is one word too many")),
        }
    }

    fn problem_line<'a>(&mut self, words: &mut impl Iterator<Item = &'a str>) -> Result<(), String> {
        if self.announced.is_some() {
            return Err("a second problem line".into());
        }
        match words.next() {
            Some("min") => {}
            Some(kind) => return Err(format!("the problem is {kind:?}, not \"min\"")),
            None => return Err("the problem line ends early: p min NODES ARCS".into()),
        }
        let nodes = count(words, "the number of nodes")?;
        let arcs = count(words, "the number of arcs")?;
        // A short file must not take all memory.
        if nodes > MAX_NODES {
            return Err(format!("{nodes} nodes are more than {MAX_NODES}"));
        }
        for _ in 0..nodes {
            self.problem.network.add_node(0).map_err(|e| e.to_string())?;
        }
        self.has_supply = vec![false; nodes];
        self.moved = vec![0; nodes];
        self.announced = Some((nodes, arcs));
        Ok(())
    }

    fn node_line<'a>(&mut self, words: &mut impl Iterator<Item = &'a str>) -> Result<(), String> {
        let index = self.node(words, "the node")?;
        let supply = number(words, "the supply")?;
        if std::mem::replace(&mut self.has_supply[index], true) {
            return Err(format!("node {} has a supply already", index + 1));
        }
        let node = self.problem.network.node_at(index).ok_or("no such node")?;
        self.problem.network.set_supply(node, supply).map_err(|e| e.to_string())
    }

    fn arc_line<'a>(&mut self, words: &mut impl Iterator<Item = &'a str>) -> Result<(), String> {
        let tail = self.node(words, "the tail")?;
        let head = self.node(words, "the head")?;
        let lower = number(words, "the lower bound")?;
        let capacity = match number(words, "the capacity")? {
            negative if negative < 0 => UNLIMITED,
            capacity => capacity,
        };
        let cost = number(words, "the cost")?;
        if lower < 0 {
            return Err(format!("the lower bound is negative: {lower}"));
        }
        if capacity < lower {
            return Err(format!("the capacity {capacity} is below the lower bound {lower}"));
        }
        let announced = self.announced.map_or(0, |(_, arcs)| arcs);
        if self.problem.network.arc_count() == announced {
            return Err(format!("more arcs than the {announced} of the problem line"));
        }
        let room = if capacity == UNLIMITED { UNLIMITED } else { capacity - lower };
        let network = &mut self.problem.network;
        let (Some(from), Some(to)) = (network.node_at(tail), network.node_at(head)) else {
            return Err("no such node".into());
        };
        let arc = network.add_arc(from, to, room, cost).map_err(|e| e.to_string())?;
        if lower > 0 {
            self.lower.resize(arc.index(), 0);
            self.lower.push(lower);
            self.moved[tail] -= i128::from(lower);
            self.moved[head] += i128::from(lower);
            self.problem.base_cost += i128::from(lower) * i128::from(cost);
        }
        Ok(())
    }

    fn node<'a>(&self, words: &mut impl Iterator<Item = &'a str>, what: &str) -> Result<usize, String> {
        let Some((nodes, _)) = self.announced else {
            return Err("the problem line (p min NODES ARCS) must come first".into());
        };
        match count(words, what)? {
            node if (1..=nodes).contains(&node) => Ok(node - 1),
            node => Err(format!("{what} is {node}, but nodes are 1 to {nodes}")),
        }
    }

    fn finish(mut self) -> Result<Problem, String> {
        let Some((_, arcs)) = self.announced else {
            return Err("there is no problem line (p min NODES ARCS)".into());
        };
        let found = self.problem.network.arc_count();
        if found != arcs {
            return Err(format!("the file ends after {found} of the {arcs} arcs of the problem line"));
        }
        if !self.lower.is_empty() {
            self.lower.resize(arcs, 0);
            let nodes: Vec<_> = self.problem.network.nodes().collect();
            for node in nodes {
                let supply = i128::from(self.problem.network.supply(node).map_err(|e| e.to_string())?)
                    + self.moved[node.index()];
                let supply = i64::try_from(supply)
                    .map_err(|_| format!("lower bounds at node {} add up to {supply}", node.index() + 1))?;
                self.problem.network.set_supply(node, supply).map_err(|e| e.to_string())?;
            }
        }
        self.problem.lower = self.lower;
        Ok(self.problem)
    }
}

fn word<'a>(words: &mut impl Iterator<Item = &'a str>, what: &str) -> Result<&'a str, String> {
    words.next().ok_or_else(|| format!("{what} is missing"))
}

fn number<'a>(words: &mut impl Iterator<Item = &'a str>, what: &str) -> Result<i64, String> {
    let word = word(words, what)?;
    word.parse().map_err(|_| format!("{what} is not a 64-bit integer: {word:?}"))
}

fn count<'a>(words: &mut impl Iterator<Item = &'a str>, what: &str) -> Result<usize, String> {
    let word = word(words, what)?;
    // Identifiers have 32 bits.
    word.parse::<u32>().map(|n| n as usize).map_err(|_| format!("{what} is not a 32-bit count: {word:?}"))
}

/// Writes a network. Removed nodes stay as nodes without arcs; arcs are numbered anew.
pub fn write(network: &Network) -> String {
    let mut text = format!("p min {} {}\n", network.node_bound(), network.arc_count());
    for node in network.nodes() {
        match network.supplies[node.index()] {
            0 => {}
            supply => _ = writeln!(text, "n {} {supply}", node.index() + 1),
        }
    }
    for (_, arc) in network.arcs() {
        let (tail, head) = (arc.tail.index() + 1, arc.head.index() + 1);
        let capacity = if arc.capacity == UNLIMITED { -1 } else { arc.capacity };
        let _ = writeln!(text, "a {tail} {head} 0 {capacity} {}", arc.cost);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Algorithm;

    const TEXT: &str = "c an example\np min 4 5\nn 1 4\nn 4 -4\na 1 2 0 4 2\na 1 3 0 2 2\na 2 3 0 2 1\na 2 4 0 3 3\na 3 4 0 5 1\n";

    fn problem_at(text: &str) -> (usize, String) {
        let error = read(text).map(|_| ()).expect_err(text);
        (error.line, error.problem)
    }

    #[test]
    fn a_problem_is_read_solved_and_written() {
        let problem = read(TEXT).unwrap();
        let solution = Algorithm::Auto.solve(&problem.network).unwrap();
        assert_eq!(problem.cost(&solution), 14);
        let again = read(&write(&problem.network)).unwrap();
        assert_eq!(Algorithm::Auto.solve(&again.network).unwrap().cost(), 14);
    }

    #[test]
    fn lower_bounds_hold() {
        // Without the lower bound the optimum is 14: two units by 3, two by 2.
        let text = TEXT.replace("a 2 4 0 3 3", "a 2 4 3 3 3");
        let problem = read(&text).unwrap();
        let solution = Algorithm::Auto.solve(&problem.network).unwrap();
        let arc = problem.network.arc_at(3).unwrap();
        assert_eq!(problem.flow(&solution, arc), 3);
        assert_eq!(problem.cost(&solution), 3 * (2 + 3) + (2 + 1));
    }

    #[test]
    fn errors_name_the_line() {
        assert_eq!(problem_at("").1, "there is no problem line (p min NODES ARCS)");
        assert_eq!(problem_at("n 1 4\n").0, 1);
        assert_eq!(problem_at("p max 3 4\n").0, 1);
        for (from, to, line) in [
            ("n 4 -4", "n 5 -4", 4),
            ("n 4 -4", "n 1 -4", 4),
            ("n 4 -4", "n 4", 4),
            ("n 4 -4", "n 4 -4 3", 4),
            ("a 1 3 0 2 2", "a 1 0 0 2 2", 6),
            ("a 1 3 0 2 2", "a 1 3 0 2 99999999999999999999", 6),
            ("a 1 3 0 2 2", "a 1 3 0 2 9223372036854775807", 6),
            ("a 1 3 0 2 2", "a 1 3 3 2 2", 6),
            ("a 1 3 0 2 2", "a 1 3 -1 2 2", 6),
            ("a 1 3 0 2 2", "b 1 3 0 2 2", 6),
            ("a 1 3 0 2 2", "a 1 3 0 2 2\na 1 3 0 2 2", 10),
            ("a 3 4 0 5 1\n", "", 8),
            ("p min 4 5", "p min 4 5\np min 4 5", 3),
            ("p min 4 5", "p min 4000000000 5", 2),
        ] {
            assert_eq!(problem_at(&TEXT.replace(from, to)).0, line, "{to}");
        }
    }

    #[test]
    fn no_capacity_limit_is_a_negative_capacity() {
        let problem = read("p min 2 1\nn 1 7\nn 2 -7\na 1 2 0 -1 1\n").unwrap();
        assert_eq!(problem.network.arcs().next().unwrap().1.capacity, UNLIMITED);
        assert!(write(&problem.network).contains("a 1 2 0 -1 1"));
    }
}
