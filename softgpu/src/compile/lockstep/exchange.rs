//! Finds where the lanes of a warp hand each other values through memory without waiting for each other, and lets them wait.
//!
//! The lanes of a device's warp execute a load only when all of them have executed the stores before it. Programs that count on
//! that are old, or wrong and never noticed; CuPy's selection of the smallest elements is one. What they do is this:
//! a store, and later, with no barrier, shuffle, vote or lock between, a load of what another lane may have
//! stored, or an atomic operation on it. Where a kernel has that, its lanes wait for each other before such a load, after a load of what
//! another lane may store soon, and where lanes meet again that have gone different ways. They also wait before a store to what another lane
//! may have stored.
//!
//! All other kernels should stay as they are. So a load and a store count only if their addresses say that they belong to
//! different lanes ([`conflict`]), and a kernel that does not ask which lane it is in is not looked at.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::super::flow::{Block, Flow};
use super::super::op::Op;
use super::super::opcode::Combine;
use super::accessed;
use super::accesses::{Access, Accesses};
use super::address::{self, Addresses, Kind, LANE, Linear, Rows, Term};
use super::compared::{self, Bound, Compared};
use super::ways::{Ways, begins};
use crate::abi::WARP;
use rgpu_image::ptx::ast::{Function, Instruction, Statement};

/// How many pairs of a store and a load are compared, how many words all sets of stores may take, and how many basic blocks a
/// kernel may have whose lanes are to be kept abreast. Larger kernels stay as they are.
const PAIRS: usize = 1 << 20;
const WORDS: usize = 1 << 20;
pub(super) const BLOCKS: usize = 1 << 12;

/// An access to memory that lanes share.
struct Candidate {
    /// Its statement.
    at: usize,
    block: usize,
    access: Access,
    /// Whether the text says that it is the block's memory.
    shared: bool,
    /// Whether it is a volatile access to the block's memory: lanes wait before it anyway, if they may have come from another one.
    volatile: bool,
    /// Whether it adds to what is there, or combines it otherwise: not what takes a lock or gives it back.
    combines: bool,
    /// How many conditions that may divide a warp it depends on.
    conditions: u32,
    bytes: i64,
    address: Linear,
}

impl Candidate {
    /// Whether it is of the memory of which the other one is.
    fn is_where(&self, other: &Candidate) -> bool {
        let apart = self.address.minus(&other.address);
        apart.terms.is_empty() && -other.bytes < apart.constant && apart.constant < self.bytes
    }

    /// Whether data that each lane has read tell the place.
    fn is_led_by_data(&self, addresses: &Addresses) -> bool {
        self.address
            .terms
            .iter()
            .map(|&(term, _)| addresses.kind(term))
            .any(|term| term.by_lane && term.of_data)
    }

    /// Whether something else than the lane's number tells the place, such as data that each lane has read, or a random number of its own.
    fn is_led(&self, addresses: &Addresses) -> bool {
        self.address.terms.iter().any(|&(term, _)| term != LANE && addresses.kind(term).by_lane)
    }

    /// Whether all lanes of a warp name one place.
    fn is_one_place(&self, addresses: &Addresses) -> bool {
        !self.address.terms.iter().any(|&(term, _)| addresses.kind(term).by_lane)
    }
}

/// Whether what is accessed first and what is accessed then may be the same memory in different lanes, by intention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Conflict {
    /// It is not to be expected.
    None,
    /// It is, if the second access comes after the first in the same turn of all loops.
    SameTurn,
    /// It is.
    Always,
}

/// How many accesses of a function are looked at.
pub(super) struct Count {
    loads: usize,
    stores: usize,
    atomics: usize,
}

impl Count {
    pub(super) fn of(exchanging: &BTreeMap<usize, Access>) -> Self {
        let count = |asked: Access| exchanging.values().filter(|&&access| access == asked).count();
        Self { loads: count(Access::Load), stores: count(Access::Store), atomics: count(Access::Atomic) }
    }

    /// Whether lanes may exchange values at all.
    pub(super) fn may_exchange(&self, function: &Function) -> bool {
        let asks =
            || address::instructions(function).any(|(_, i)| address::names_lane(&i.operands, Rows::Short));
        self.stores > 0 && self.loads + self.stores + self.atomics > 1 && asks()
    }

    /// Whether the kernel is small enough to be looked at.
    pub(super) fn are_few(&self, flow: &Flow) -> bool {
        let all = self.loads + self.stores + self.atomics;
        all.checked_mul(self.stores).is_some_and(|pairs| pairs <= PAIRS) && flow.blocks.len() <= BLOCKS
    }
}

/// Statements before which the lanes of a warp have to wait for each other, in order. Mostly none.
pub(super) fn places(
    function: &Function,
    ops: &[Op],
    exchanging: &BTreeMap<usize, Access>,
    all: &Accesses,
    flow: &Flow,
    addresses: &mut Addresses,
) -> BTreeSet<usize> {
    let ways = Ways::new(function, flow, |predicate| addresses.divides(predicate));
    let conditions = ways.conditions(flow);
    let accesses = collect(function, ops, exchanging, all, flow, &conditions, addresses);
    let pairs = pairs(function, ops, flow, &ways, &accesses, addresses);
    match exchanged(function, ops, flow, &accesses, &pairs, addresses) {
        Some(exchanged) if exchanged != Exchanged::default() => {
            let addresses = &*addresses;
            Alignment { function, ops, flow, ways, accesses: &accesses, exchanged, addresses }.places()
        }
        _ => BTreeSet::new(),
    }
}

/// All accesses that are looked at, in the order of the text.
fn collect(
    function: &Function,
    ops: &[Op],
    exchanging: &BTreeMap<usize, Access>,
    all: &Accesses,
    flow: &Flow,
    conditions: &[u32],
    addresses: &mut Addresses,
) -> Vec<Candidate> {
    let mut accesses = Vec::new();
    for (block, range) in flow.blocks.iter().enumerate() {
        for (&at, &access) in exchanging.range(range.first..range.end) {
            let Statement::Instruction(instruction) = &function.body[at] else { continue };
            let op = &ops[instruction.form.0 as usize];
            let shared = all.is_shared(at, op);
            let Some((operand, bytes)) = accessed(instruction, op) else { continue };
            let Some(address) = addresses.address(operand) else { continue };
            let guarded = instruction.guard.is_some_and(|g| addresses.divides(g.register.0));
            let conditions = conditions[block] + u32::from(guarded);
            let combines = matches!(op, Op::Atom { op, .. } if !matches!(op, Combine::Cas | Combine::Exch));
            let volatile = all.is_volatile(at, instruction);
            accesses.push(Candidate {
                at,
                block,
                access,
                shared,
                volatile,
                combines,
                conditions,
                bytes,
                address,
            });
        }
    }
    accesses
}

/// Whether threads have an order at an instruction without counting on going abreast.
fn orders(instruction: &Instruction, op: &Op) -> bool {
    match op {
        // A fence says in which order others see what a thread does, but has nobody wait.
        Op::Yield | Op::GridYield { .. } | Op::Fence => false,
        // What takes a lock or gives it back. Where lanes add to something, each goes on.
        Op::Atom { op, .. } => matches!(op, Combine::Cas | Combine::Exch),
        Op::Mbarrier { .. } | Op::Tensor { .. } | Op::Call => true,
        op => op.is_cut() && instruction.guard.is_none(),
    }
}

/// Whether two addresses have a pointer in common.
fn points_alike(a: &Candidate, b: &Candidate, addresses: &Addresses) -> bool {
    let alike = a.address.terms.iter().any(|&(term, factor)| {
        factor == 1
            && matches!(addresses.kind(term).kind, Kind::Root | Kind::Loaded | Kind::Invariant)
            && b.address.factor(term) == 1
    });
    let difference = a.address.minus(&b.address);
    let other =
        |sign: i64| difference.terms.iter().any(|&(t, f)| f == sign && addresses.kind(t).kind == Kind::Root);
    alike && !(other(1) && other(-1))
}

/// Whether the second of two accesses may be meant to reach what another lane accesses with the first.
fn conflict(first: &Candidate, second: &Candidate, addresses: &Addresses) -> Conflict {
    if !points_alike(first, second, addresses) {
        return Conflict::None;
    }
    let difference = second.address.minus(&first.address);
    let lane = (first.address.factor(LANE), second.address.factor(LANE));
    let size = first.bytes.max(second.bytes);
    let term = |t: u32| addresses.kind(t);
    let (mut wild, mut by_lane, mut given, mut of_data) = (false, false, false, false);
    for &(t, _) in difference.terms.iter().filter(|&&(t, _)| t != LANE) {
        let Term { kind, by_lane: differs, of_data: data, .. } = term(t);
        wild |= kind == Kind::Wild && !data;
        by_lane |= differs;
        given |= matches!(kind, Kind::Root | Kind::Invariant | Kind::Product) && !differs;
        of_data |= data;
    }
    // Lanes whose parts lie far apart have them for themselves, wherever in them they are; but not where a distance counts such parts.
    let counts_parts = |&(t, factor): &(u32, i64)| {
        t != LANE && term(t).kind == Kind::Wild && !term(t).of_data && factor.wrapping_rem(lane.0) == 0
    };
    let own_parts = lane.0 == lane.1
        && lane.0.unsigned_abs() >= 4 * size as u64
        && !difference.terms.iter().any(counts_parts);
    // Other values that differ among lanes, in both addresses.
    let own_values = || {
        let values =
            || first.address.terms.iter().filter(|&&(t, f)| t != LANE && second.address.factor(t) == f);
        (
            values().any(|&(t, _)| term(t).by_lane),
            values().any(|&(t, _)| term(t).by_lane && term(t).kind == Kind::Wild),
        )
    };
    let certainly = |yes: bool| if yes { Conflict::Always } else { Conflict::None };
    let is_spread = || {
        let mut terms = first.address.terms.iter().map(|&(t, _)| term(t));
        difference.constant == 0
            && terms.any(|t| t.kind == Kind::Product && t.by_lane && t.by_turn && !t.of_data)
    };
    // One lane stores, and all load, in turns at one place or another: a stack of the warp, whose top goes up and down.
    let one_place = lane == (0, 0) && !by_lane && !given && !own_values().0;
    let turns =
        || first.address.terms.iter().any(|&(t, _)| matches!(term(t).kind, Kind::Counter | Kind::Wild));
    if first.shared && second.shared && one_place && turns() {
        let (store, load) = if first.access == Access::Load { (second, first) } else { (first, second) };
        return certainly(load.access == Access::Load && store.conditions > load.conditions);
    }
    if difference.terms.is_empty() {
        let overlaps = |apart: i64| -second.bytes < apart && apart < first.bytes;
        return match lane.0 {
            0 => match own_values() {
                // One place for all lanes: some write, and more read.
                (false, _) => {
                    let (store, load) =
                        if first.access == Access::Load { (second, first) } else { (first, second) };
                    certainly(overlaps(difference.constant) && store.conditions > load.conditions)
                }
                // The lane's number times a number that changes from turn to turn is another lane's in the next.
                (true, _) if first.shared && second.shared && is_spread() => Conflict::Always,
                (true, wild) => certainly(wild && difference.constant != 0),
            },
            // Elements of a lane, and in another turn others beside them.
            step => certainly([0].into_iter().chain(shifts(first, second, addresses)).any(|shift: i64| {
                (1..32).any(|k: i64| {
                    let apart = step.wrapping_mul(k);
                    let apart = [apart, apart.wrapping_neg()].map(|by| difference.constant.wrapping_add(by));
                    apart
                        .into_iter()
                        .any(|by| overlaps(by.wrapping_add(shift)) || overlaps(by.wrapping_sub(shift)))
                })
            })),
        };
    }
    // So do lanes that have a column each, in which data tell the place. In the block's memory data that are each lane's own may lead from its element to another lane's, if these lie side by side.
    let leads_to_others = |&(t, factor): &(u32, i64)| {
        let Term { kind, by_lane, of_data, .. } = term(t);
        let elements =
            factor.wrapping_rem(lane.0) == 0 && factor.wrapping_div(lane.0).unsigned_abs() < WARP as u64;
        of_data && by_lane && kind != Kind::Product && elements
    };
    let side_by_side = first.shared && second.shared && lane.0 != 0 && lane.0.unsigned_abs() == size as u64;
    let own_column = || !(side_by_side && difference.terms.iter().any(leads_to_others));
    // A fraction of a number that is given, in elements: the distance of two halves, which becomes less and less.
    let is_fraction =
        |&(t, factor): &(u32, i64)| t != LANE && factor.wrapping_rem(lane.0) == 0 && addresses.is_fraction(t);
    // And so many rows, where the lanes of a warp are in several.
    let is_of_rows = |&(t, _): &(u32, i64)| {
        !term(t).by_lane && first.address.terms.iter().any(|&(rows, _)| addresses.counts_rows_of(rows, t))
    };
    if side_by_side
        && lane.0 == lane.1
        && difference.terms.len() == 1
        && difference.terms.iter().all(|t| is_fraction(t) || is_of_rows(t))
    {
        return Conflict::Always;
    }
    if own_parts || of_data && lane.0 == lane.1 && lane.0 != 0 && own_column() {
        return Conflict::None;
    }
    if by_lane {
        return if wild { Conflict::Always } else { Conflict::SameTurn };
    }
    if lane.0 != lane.1 {
        // A given distance leads to another part of the memory, unless one counts from its end, or a parameter is just the number of an element.
        let is_of_one = |step: i64| {
            let row = WARP as u64 * step.unsigned_abs();
            // The number of the warp, whose row it is, or where that row begins.
            let is_row = |&(t, factor): &(u32, i64)| {
                let Term { kind, by_lane, by_thread, .. } = term(t);
                let of_warp = !by_lane && by_thread && kind != Kind::Counter && factor.unsigned_abs() >= row;
                of_warp || factor.abs() == 1 && addresses.is_begin_of_row(t, step)
            };
            let is_number = |&(t, factor): &(u32, i64)| {
                factor.unsigned_abs() == step.unsigned_abs() && term(t).kind == Kind::Root
            };
            // All of such a row may be looked through in a loop.
            let goes_on =
                |&(t, _): &(u32, i64)| term(t).kind == Kind::Counter && !addresses.steps(t).is_empty();
            let others = difference.terms.iter().filter(|&&(t, _)| t != LANE);
            let (counters, rest): (Vec<_>, Vec<_>) = others.partition(|&other| goes_on(other));
            let is_near = difference.constant.unsigned_abs() < row;
            is_near && matches!(rest[..], [one] if is_row(one) || counters.is_empty() && is_number(one))
        };
        let backwards = lane.0.signum() * lane.1.signum() < 0;
        let is_one = match lane {
            (0, step) | (step, 0) => is_of_one(step),
            _ => false,
        };
        return certainly(!given || backwards || is_one);
    }
    // A distance that all lanes share: one that is doubled, halved or changes sides is meant to lead to another lane; one that is
    // counted up, or given, leads to another element of the lane's own.
    certainly(wild && (lane.0 != 0 || own_values().0))
}

/// How far the elements of both accesses may move together from one turn of a loop to another, where that is less than lanes are apart.
fn shifts(first: &Candidate, second: &Candidate, addresses: &Addresses) -> impl Iterator<Item = i64> {
    let step = first.address.factor(LANE);
    first.address.terms.iter().filter_map(move |&(t, factor)| {
        let Term { kind, by_lane, of_data, .. } = addresses.kind(t);
        let moves = kind == Kind::Wild && !by_lane && !of_data && second.address.factor(t) == factor;
        (moves && factor.unsigned_abs() < step.unsigned_abs()).then_some(factor)
    })
}

/// Where lanes may exchange values, by the numbers of the accesses.
#[derive(PartialEq, Eq, Default)]
struct Exchanged {
    /// A store or an atomic operation, and a load or an atomic operation that may find what another lane has stored or added.
    pairs: Vec<(usize, usize)>,
    /// Stores and atomic operations that may take away what another lane is to load before,
    overtaking: BTreeSet<usize>,
    /// and those loads.
    overtaken: BTreeSet<usize>,
    /// Stores that may be meant to come after another lane's store to the same place.
    overwriting: BTreeSet<usize>,
}

/// Finds them. None for kernels in which that would take long.
fn exchanged(
    function: &Function,
    ops: &[Op],
    flow: &Flow,
    accesses: &[Candidate],
    pairs: &[(usize, usize, Conflict)],
    addresses: &Addresses,
) -> Option<Exchanged> {
    if pairs.is_empty() {
        return Some(Exchanged::default());
    }
    let first: BTreeSet<usize> = pairs.iter().map(|p| p.0).collect();
    let first: Vec<usize> = first.into_iter().collect();
    let words = first.len().div_ceil(64);
    if words * flow.blocks.len() > WORDS {
        return None;
    }
    let (orders, last) = last_orders(function, ops, flow);
    let round: Vec<Vec<usize>> = flow.blocks.iter().map(|block| block.successors.clone()).collect();
    let straight = in_one_turn(flow, &last);
    let mut found = BTreeSet::new();
    let mut exchanged = Exchanged::default();
    let never_meet = |first: usize, then: usize| {
        let [first, then] = [first, then].map(|number| (&accesses[number].address, accesses[number].bytes));
        addresses.never_meet(first, then)
    };
    for (around, successors) in [(false, &straight), (true, &round)] {
        let conflicts = |c: Conflict| c == Conflict::Always || !around;
        let reaching = Reaching::new(successors, accesses, &first, (&orders, &last));
        for &(first, then, _) in pairs.iter().filter(|p| conflicts(p.2)) {
            if !reaching.reaches(first, &accesses[then]) || never_meet(first, then) {
                continue;
            }
            match (accesses[first].access, accesses[then].access) {
                (Access::Load, _) => {
                    exchanged.overtaking.insert(then);
                    exchanged.overtaken.insert(first);
                }
                (_, Access::Store) => _ = exchanged.overwriting.insert(then),
                _ => _ = found.insert((first, then)),
            }
        }
    }
    exchanged.pairs = found.into_iter().collect();
    Some(exchanged)
}

/// What comes first, what then, and whether that is to be expected, by the numbers of the accesses.
fn pairs(
    function: &Function,
    ops: &[Op],
    flow: &Flow,
    ways: &Ways,
    accesses: &[Candidate],
    addresses: &mut Addresses,
) -> Vec<(usize, usize, Conflict)> {
    // Lanes that ask each other may have one of them act for several.
    let asks = |op: &Op| matches!(op, Op::Match { .. } | Op::Vote { .. } | Op::ActiveMask);
    let aggregates = address::instructions(function).any(|(_, i)| asks(&ops[i.form.0 as usize]));
    let mut pairs = Vec::new();
    let mut decisions = None;
    let mut known: HashMap<usize, Vec<Compared>> = HashMap::new();
    // Whether a store is to the border of what is accessed first, or of what is stored.
    let mut is_of_border = |first: &Candidate, store: &Candidate, addresses: &mut Addresses| {
        let decisions = decisions.get_or_insert_with(|| ways.decisions(function, flow));
        let compared = known.entry(store.at).or_insert_with(|| {
            compared::before(function, ops, decisions, (store.block, store.at), addresses)
        });
        is_border(first, store, compared)
    };
    for (n, access) in accesses.iter().enumerate() {
        let stores = || accesses.iter().enumerate().filter(|(_, a)| a.access == Access::Store);
        if access.access == Access::Store {
            for (s, store) in stores().filter(|&(s, _)| s != n) {
                let shared = access.shared && store.shared;
                let known = pairs.len();
                if shared && is_of_neighbour(store, access, addresses)
                    || is_one_of_many(store, access, addresses)
                {
                    pairs.push((s, n, Conflict::Always));
                } else if shared
                    && (is_scattered(store, access, addresses)
                        || is_scattered(access, store, addresses)
                        || is_led_elsewhere(store, access, addresses))
                {
                    pairs.push((s, n, Conflict::SameTurn));
                }
                let some = pairs.len() > known && access.conditions > store.conditions;
                if some && is_of_border(store, access, addresses) {
                    pairs.truncate(known);
                }
            }
            continue;
        }
        // Where data tell the place, a lane that reads what it has stored itself wants just that.
        let own = stores().any(|(_, store)| store.address == access.address);
        for (s, store) in stores() {
            let conflict = match addresses.in_other_turn(&store.address, &access.address) {
                Some(address) => conflict(store, &Candidate { address, ..*access }, addresses),
                None => conflict(store, access, addresses),
            };
            let meant = || !own || is_of_all(store, access, addresses);
            if conflict == Conflict::Always || conflict == Conflict::SameTurn && meant() {
                pairs.push((s, n, conflict));
            }
            if is_set(store, access, addresses) {
                pairs.push((s, n, Conflict::Always));
            }
            // In the block's memory no lane shifts elements for itself alone, or puts them where data tell, or fetches them from there.
            if access.shared && store.shared && access.access == Access::Load {
                if is_of_neighbour(access, store, addresses) {
                    // In a tree those that store have read what no lane stores to.
                    if store.conditions == 0 || !is_of_border(access, store, addresses) {
                        pairs.push((n, s, Conflict::Always));
                    }
                } else if is_scattered(access, store, addresses)
                    || aggregates && is_leaders(access, store, addresses)
                {
                    pairs.push((n, s, Conflict::SameTurn));
                } else if !own && is_fetched(access, store, addresses) {
                    // What is stored in one turn is fetched in the next one.
                    pairs.extend([(n, s, Conflict::SameTurn), (s, n, Conflict::Always)]);
                } else if is_permuted(access, store, addresses)
                    && !accesses.iter().any(|a| a.access == Access::Load && a.address == store.address)
                {
                    // Who has loaded what is there as well exchanges two elements.
                    pairs.push((n, s, Conflict::SameTurn));
                }
            }
        }
        // What is there when all lanes have added to it.
        if access.access == Access::Load {
            let adds = |sum: &Candidate| is_sum(sum, access, addresses) || is_counted(sum, access, addresses);
            let sums = accesses.iter().enumerate().filter(|(_, sum)| adds(sum));
            pairs.extend(sums.map(|(a, _)| (a, n, Conflict::SameTurn)));
        }
        // A number that all lanes look at before some of them raise it.
        if access.access == Access::Atomic && access.shared {
            let loads = accesses.iter().enumerate().filter(|(_, a)| a.access == Access::Load && a.shared);
            let looked = loads.filter(|(_, load)| {
                load.address.factor(LANE) == 0
                    && load.address.minus(&access.address).terms.is_empty()
                    && conflict(load, access, addresses) == Conflict::Always
                    || aggregates && is_leaders(load, access, addresses)
            });
            pairs.extend(looked.map(|(l, _)| (l, n, Conflict::Always)));
        }
    }
    pairs.retain(|&(first, then, _)| !(accesses[first].volatile && accesses[then].volatile));
    pairs
}

/// Whether all lanes store to an element each, and then those at an edge to others beyond it: the border of a tile. No lane has stored to these. Or, in a tree,
/// the first few have read the elements behind their own, so many as they are themselves.
fn is_border(all: &Candidate, some: &Candidate, compared: &[Compared]) -> bool {
    let apart = some.address.minus(&all.address);
    compared.iter().filter_map(Compared::bound).any(|Bound { term: number, with, is_lower }| {
        let step = all.address.factor(number);
        if step == 0 || apart.constant % step != 0 {
            return false;
        }
        let by = apart.constant / step;
        match apart.terms[..] {
            // By as many elements before their own as there are such lanes.
            [] if by < 0 => (with == -by || with == -by - 1) && is_lower != Some(true),
            // By as many behind their own, where that is the end of a row of usual length.
            [] => {
                let ends = |row: i64| row % 8 == 0;
                by < with && is_lower == Some(true) && (ends(with + by) || ends(with + by + 1))
            }
            // One lane or row of them to an element before the first one, or behind its own.
            [(term, factor)] => term == number && factor == -step && (by < 0 || by == with + 1),
            _ => false,
        }
    })
}

/// Whether all lanes store to elements one turn after another, and then some to one that they are told.
fn is_one_of_many(all: &Candidate, one: &Candidate, addresses: &Addresses) -> bool {
    let term = |&(t, _): &(u32, i64)| addresses.kind(t);
    let turns = |t: &&(u32, i64)| {
        t.0 != LANE
            && !matches!(term(t).kind, Kind::Root | Kind::Loaded | Kind::Invariant)
            && one.address.factor(t.0) == 0
    };
    one.conditions > 0
        && points_alike(all, one, addresses)
        && all.address.factor(LANE) != 0
        && one.address.factor(LANE) == 0
        && !one.address.terms.iter().any(|t| term(t).by_lane)
        && all.address.terms.iter().any(|t| turns(&t))
}

/// Whether all lanes set one number, and then add to it, or some of them do.
fn is_set(store: &Candidate, sum: &Candidate, addresses: &Addresses) -> bool {
    sum.combines && store.shared && store.is_where(sum) && store.is_one_place(addresses)
}

/// Whether lanes add to what is loaded then. In memory of all blocks one that waits for other blocks may do both.
fn is_sum(sum: &Candidate, load: &Candidate, addresses: &Addresses) -> bool {
    sum.combines
        && sum.shared == load.shared
        && sum.is_where(load)
        && (sum.shared
            || sum.is_one_place(addresses) && (sum.conditions == 0 || load.conditions < sum.conditions))
}

/// Whether lanes change elements that data tell, or a computation of their own, and then each loads one by its number: a histogram, or a table of a warp.
fn is_counted(count: &Candidate, load: &Candidate, addresses: &Addresses) -> bool {
    count.access == Access::Atomic
        && count.shared
        && load.shared
        && load.address.factor(LANE) != 0
        && is_of_all(count, load, addresses)
        && count.is_led(addresses)
        && conflict(count, load, addresses) != Conflict::None
}

/// Whether a lane loads just what a neighbour's store is for.
fn is_of_neighbour(load: &Candidate, store: &Candidate, addresses: &Addresses) -> bool {
    let step = load.address.factor(LANE);
    let only_constant = || load.address.minus(&store.address).terms.is_empty();
    step != 0 && only_constant() && conflict(load, store, addresses) == Conflict::Always
}

/// Whether each lane has an element by its number alone, which another lane may be led to, too.
fn is_of_all(other: &Candidate, own: &Candidate, addresses: &Addresses) -> bool {
    let term = |t: u32| addresses.kind(t);
    let by_number =
        |&(t, _): &(u32, i64)| term(t).kind == Kind::Lane || !(term(t).by_lane || term(t).of_data);
    let difference = other.address.minus(&own.address);
    // A given distance, or a long one, leads to another part of the memory.
    let given = |&(t, _): &(u32, i64)| term(t).is_distance();
    own.address.terms.iter().all(by_number)
        && !difference.terms.iter().any(given)
        && difference.constant.unsigned_abs() < WARP as u64 * own.address.factor(LANE).unsigned_abs()
}

/// Whether each lane has an element by its number, and stores to one that data tell, or the other way round.
fn is_scattered(own: &Candidate, store: &Candidate, addresses: &Addresses) -> bool {
    is_of_all(store, own, addresses)
        && store.is_led_by_data(addresses)
        && conflict(own, store, addresses) != Conflict::None
}

/// Whether each lane stores to an element by its number, and then some of them to one that their number tells otherwise: one for every
/// few lanes, say, behind those of a row that is shorter than a warp, where the other lanes have just stored what is not wanted. Or all of them
/// store then to one in the row that is their column.
fn is_led_elsewhere(all: &Candidate, some: &Candidate, addresses: &Addresses) -> bool {
    let difference = some.address.minus(&all.address);
    let by_number = |&(t, _): &(u32, i64)| {
        let Term { kind, by_lane, of_data, .. } = addresses.kind(t);
        kind == Kind::Lane || by_lane && !of_data && some.conditions > all.conditions
    };
    some.conditions >= all.conditions
        && all.address.factor(LANE) != 0
        && !difference.terms.is_empty()
        && difference.terms.iter().all(by_number)
        && points_alike(all, some, addresses)
        && is_of_all(some, all, addresses)
}

/// Whether lanes look at a place that data tell, and then some of them change it, such as one for all that are led there.
fn is_leaders(look: &Candidate, change: &Candidate, addresses: &Addresses) -> bool {
    change.conditions > look.conditions && look.is_where(change) && look.is_led_by_data(addresses)
}

/// Whether all lanes load elements of others, and then each stores to its own.
fn is_fetched(load: &Candidate, own: &Candidate, addresses: &Addresses) -> bool {
    let backwards = load.address.factor(LANE).signum() * own.address.factor(LANE).signum() < 0;
    // Two parts of the memory that take turns.
    let takes_turns = |&(term, _): &(u32, i64)| {
        let Term { kind, by_lane, by_turn, .. } = addresses.kind(term);
        kind == Kind::Wild && by_turn && !by_lane
    };
    is_of_all(load, own, addresses)
        && load.address.minus(&own.address).terms.iter().filter(|term| takes_turns(term)).count() < 2
        && load.conditions <= own.conditions
        && (backwards || load.is_led(addresses))
        && conflict(load, own, addresses) != Conflict::None
}

/// Whether all lanes load elements of their own, and then each stores to one whose number is computed.
fn is_permuted(own: &Candidate, store: &Candidate, addresses: &Addresses) -> bool {
    (own.conditions, store.conditions) == (0, 0)
        && own.address.factor(LANE) != 0
        && is_fetched(store, own, addresses)
        && !store.is_led_by_data(addresses)
}

/// For each statement the last one before it in its block that gives an order, and for each block the last one in it.
fn last_orders(function: &Function, ops: &[Op], flow: &Flow) -> (Vec<Option<usize>>, Vec<Option<usize>>) {
    let mut before = vec![None; function.body.len()];
    let last = flow.blocks.iter().map(|block| {
        let mut last = None;
        for (at, before) in (block.first..).zip(&mut before[block.first..block.end]) {
            *before = last;
            if let Statement::Instruction(i) = &function.body[at]
                && orders(i, &ops[i.form.0 as usize])
            {
                last = Some(at);
            }
        }
        last
    });
    let last = last.collect();
    (before, last)
}

/// The blocks that come after each block in the same turn of all loops that both are in, with the last instruction of each block that gives an order:
/// the end of a loop's turn leads to where the loop is left from its beginning.
fn in_one_turn(flow: &Flow, last: &[Option<usize>]) -> Vec<Vec<usize>> {
    let mut successors: Vec<Vec<usize>> = flow.blocks.iter().map(|block| block.successors.clone()).collect();
    let predecessors = flow.predecessors();
    for (tail, head) in flow.back_edges() {
        let inside: HashSet<usize> = flow.loop_blocks((tail, head), &predecessors).into_iter().collect();
        successors[tail].retain(|&next| next != head);
        let mut seen = HashSet::from([head]);
        let mut work = vec![head];
        while let Some(block) = work.pop().filter(|&block| last[block].is_none()) {
            for &next in &flow.blocks[block].successors {
                if !inside.contains(&next) {
                    successors[tail].push(next);
                } else if seen.insert(next) {
                    work.push(next);
                }
            }
        }
    }
    successors
}

/// Which accesses come before which others with nothing between that gives an order.
struct Reaching<'a> {
    accesses: &'a [Candidate],
    first: &'a [usize],
    /// For each statement, the last one before it in its block that gives an order.
    orders: &'a [Option<usize>],
    words: usize,
    /// For each block, the first ones that come before it.
    before: Vec<u64>,
}

impl<'a> Reaching<'a> {
    fn new(
        successors: &[Vec<usize>],
        accesses: &'a [Candidate],
        first: &'a [usize],
        (orders, last): (&'a [Option<usize>], &[Option<usize>]),
    ) -> Self {
        let words = first.len().div_ceil(64);
        let before = vec![0u64; words * successors.len()];
        let mut this = Self { accesses, first, orders, words, before };
        let mut own = vec![0u64; words * successors.len()];
        for (bit, access) in first.iter().map(|s| &accesses[*s]).enumerate() {
            // An atomic operation gives an order itself.
            if last[access.block].is_none_or(|last| access.at >= last) {
                own[access.block * words + bit / 64] |= 1 << (bit % 64);
            }
        }
        let mut changed = true;
        while changed {
            changed = false;
            for (index, last) in last.iter().enumerate() {
                for &next in &successors[index] {
                    for word in 0..words {
                        let through = if last.is_some() { 0 } else { this.before[index * words + word] };
                        let out = own[index * words + word] | through;
                        let into = &mut this.before[next * words + word];
                        changed |= out & !*into != 0;
                        *into |= out;
                    }
                }
            }
        }
        this
    }

    fn reaches(&self, first: usize, then: &Candidate) -> bool {
        let from = &self.accesses[first];
        let last = self.orders[then.at];
        if from.block == then.block && from.at < then.at && last.is_none_or(|last| from.at >= last) {
            return true;
        }
        let Ok(bit) = self.first.binary_search(&first) else { return false };
        last.is_none() && self.before[then.block * self.words + bit / 64] >> (bit % 64) & 1 != 0
    }
}

/// A kernel whose lanes are to be kept abreast.
struct Alignment<'a> {
    function: &'a Function,
    ops: &'a [Op],
    flow: &'a Flow,
    ways: Ways,
    accesses: &'a [Candidate],
    exchanged: Exchanged,
    addresses: &'a Addresses<'a>,
}

impl Alignment<'_> {
    fn places(&self) -> BTreeSet<usize> {
        let at = |number: usize| self.accesses[number].at;
        let Exchanged { pairs, overtaking, overtaken, overwriting } = &self.exchanged;
        let mut places: BTreeSet<usize> = overwriting.iter().map(|&store| at(store)).collect();
        let reading: BTreeSet<usize> = pairs.iter().map(|pair| at(pair.1)).collect();
        let storing: BTreeSet<usize> =
            pairs.iter().map(|pair| pair.0).chain(overtaking.iter().copied()).collect();
        let storing: Vec<&Candidate> = {
            let alike =
                |a: &Candidate| storing.iter().any(|s| points_alike(a, &self.accesses[*s], self.addresses));
            let stores = |(n, access): &(usize, &Candidate)| {
                overtaking.contains(n) || access.access == Access::Store && alike(access)
            };
            self.accesses.iter().enumerate().filter(stores).map(|(_, access)| access).collect()
        };
        let stores: BTreeSet<usize> = storing.iter().map(|store| store.at).collect();
        let loads = self.accesses.iter().filter(|access| access.access == Access::Load);
        let read: BTreeSet<usize> = loads
            .filter(|load| {
                storing.iter().any(|store| conflict(load, store, self.addresses) != Conflict::None)
            })
            .map(|load| load.at)
            .chain(overtaken.iter().map(|&load| at(load)))
            .collect();
        let sums = pairs.iter().filter(|pair| self.accesses[pair.0].access == Access::Atomic);
        let sums: BTreeSet<usize> = sums.map(|pair| at(pair.0)).collect();
        self.after_loads(&stores, &read, &mut places);
        self.before_loads(&stores, &sums, &reading, &mut places);
        self.where_lanes_meet(&mut places);
        places
    }

    fn orders(&self, at: usize) -> bool {
        match &self.function.body[at] {
            Statement::Instruction(i) => orders(i, &self.ops[i.form.0 as usize]),
            Statement::Label(_) => false,
        }
    }

    /// All lanes have read before one of them stores: they wait after the last load before a store.
    fn after_loads(&self, stores: &BTreeSet<usize>, loads: &BTreeSet<usize>, places: &mut BTreeSet<usize>) {
        let blocks = &self.flow.blocks;
        // Whether a store is what comes next when a block begins.
        let mut next = vec![false; blocks.len()];
        let mut changed = true;
        while changed {
            changed = false;
            for index in (0..blocks.len()).rev() {
                let own = (blocks[index].first..blocks[index].end).find_map(|at| {
                    let store = stores.contains(&at);
                    (store || loads.contains(&at) || self.orders(at)).then_some(store)
                });
                let now = own.unwrap_or_else(|| blocks[index].successors.iter().any(|&s| next[s]));
                changed |= now && !next[index];
                next[index] |= now;
            }
        }
        for block in blocks {
            let mut last = None;
            for at in block.first..block.end {
                if loads.contains(&at) {
                    last = Some(at);
                } else if stores.contains(&at) {
                    places.extend(last.take().map(|at: usize| at + 1));
                } else if self.orders(at) {
                    last = None;
                }
            }
            if last.is_some() && block.successors.iter().any(|&s| next[s]) {
                places.extend(last.map(|at| at + 1));
            }
        }
    }

    /// All lanes have stored, or added to sums, before one of them reads.
    fn before_loads(
        &self,
        stores: &BTreeSet<usize>,
        sums: &BTreeSet<usize>,
        loads: &BTreeSet<usize>,
        places: &mut BTreeSet<usize>,
    ) {
        let blocks = &self.flow.blocks;
        let mut stored = vec![false; blocks.len()];
        let mut changed = true;
        let mut found = Vec::new();
        while changed {
            changed = false;
            found.clear();
            for (index, block) in blocks.iter().enumerate() {
                let mut now = stored[index];
                for at in block.first..block.end {
                    // Before a label wait only those that come from the block in front of it.
                    now &= matches!(self.function.body[at], Statement::Label(_)) || !places.contains(&at);
                    if now && loads.contains(&at) {
                        found.push(at);
                        now = false;
                    }
                    now = (now || stores.contains(&at)) && !self.orders(at) || sums.contains(&at);
                }
                now &= !places.contains(&block.end);
                for &next in &block.successors {
                    changed |= now && !stored[next];
                    stored[next] |= now;
                }
            }
        }
        places.extend(&found);
    }

    /// Whether lanes wait somewhere in a block. Those that wait before a label have come from the block in front of it.
    fn waits_in(&self, block: &Block, places: &BTreeSet<usize>) -> bool {
        let is_label = |at: usize| matches!(self.function.body.get(at), Some(Statement::Label(_)));
        let begins = block.first + usize::from(is_label(block.first));
        places.range(begins..block.end).next().is_some() || is_label(block.end) && places.contains(&block.end)
    }

    /// Lanes that have gone another way than those which wait somewhere on theirs wait where the ways meet.
    fn where_lanes_meet(&self, places: &mut BTreeSet<usize>) {
        let blocks = &self.flow.blocks;
        let mut changed = true;
        while changed {
            changed = false;
            for meeting in self.ways.meetings() {
                let mut waits = false;
                meeting.between(self.flow, |block| {
                    waits |= self.waits_in(&blocks[block], places);
                });
                if waits && let Some(first) = begins(self.function, self.ops, &blocks[meeting.meet]) {
                    changed |= places.insert(first);
                }
            }
        }
    }
}
