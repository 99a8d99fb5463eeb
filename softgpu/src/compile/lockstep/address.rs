//! What the addresses of a kernel's loads and stores are made of.
//!
//! An address is a sum of terms with constant factors ([`Linear`]): where it points, the number of the lane, and values of
//! which only a few things are known ([`Term`]). Two addresses in which the lane's number has the same factor and all else
//! is equal belong to the same lane; that is what [`super::exchange`] asks.
//!
//! Nothing here has to be exact. Sums are not cut to the width of their registers, blocks are taken to consist of whole warps, and the lanes of a warp to differ
//! in `%tid.x` alone, or in its other coordinates as well, as the one who asks says ([`Rows`]).

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::flow::{Access, visit};
use super::super::op::{IntOp, IntTernary, IntUnary, MemoryTarget, Op};
use super::super::vars::{Home, Vars};
use crate::abi::{ShuffleMode, WARP};
use rgpu_image::ptx::ast::{AddressBase, Function, Instruction, Operand, Special, Statement, Symbol};

/// More terms than this make a value a term of its own.
const TERMS: usize = 12;
/// How far a value is followed back at once; values are looked at in the order of the text, so that this is rarely far.
const DEPTH: u32 = 40;
/// Lanes that deal with so many elements each, one after another, have them for themselves.
const PART: u64 = 4;
/// Facts that go round in loops settle after a few passes. What does not is left alone.
const PASSES: usize = 24;

/// What is known about a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The lane's number, or a mask of it, or that of the row in which it is.
    Lane,
    /// A variable's address, or a parameter: something that may be where an address points.
    Root,
    /// A special register or another value that stays the same.
    Invariant,
    /// Read from memory, or got from another thread.
    Loaded,
    /// A product of two values that are not constant.
    Product,
    /// Made by operations on bits, comparisons, divisions, from something that is not the same in all lanes or turns of a loop;
    /// or a variable of a loop that is not counted up by equal steps. Such values tell which lane deals with which.
    Wild,
    /// A variable of a loop that is counted up by equal steps.
    Counter,
}

/// How a block's rows lie in its warps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rows {
    /// A row is one warp or several, so that the lanes of a warp differ in `%tid.x` alone.
    Whole,
    /// A warp is several rows.
    Short,
}

/// A value that is not taken apart further.
#[derive(Debug, Clone, Copy)]
pub(super) struct Term {
    pub kind: Kind,
    /// Whether lanes may have different ones.
    pub by_lane: bool,
    /// Whether threads of a block may have different ones.
    pub by_thread: bool,
    /// Whether it may differ in the turns of a loop.
    pub by_turn: bool,
    /// Whether it depends on what was read from memory.
    pub of_data: bool,
}

impl Term {
    /// Something that is the same for all threads.
    fn shared(kind: Kind) -> Self {
        Self { kind, by_lane: false, by_thread: false, by_turn: false, of_data: false }
    }

    /// Whether it is a given distance, in which two addresses differ that lead to different parts of the memory.
    pub(super) fn is_distance(self) -> bool {
        !self.by_thread && !self.by_turn && matches!(self.kind, Kind::Root | Kind::Invariant | Kind::Product)
    }
}

/// A sum of terms with factors, in the order of the terms, and a constant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Linear {
    pub terms: Vec<(u32, i64)>,
    pub constant: i64,
}

impl Linear {
    fn of(term: u32) -> Self {
        Self { terms: vec![(term, 1)], constant: 0 }
    }

    fn constant(constant: i64) -> Self {
        Self { terms: Vec::new(), constant }
    }

    fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The factor of a term.
    pub(super) fn factor(&self, term: u32) -> i64 {
        self.terms.iter().find(|&&(t, _)| t == term).map_or(0, |&(_, factor)| factor)
    }

    pub(super) fn scaled(&self, by: i64) -> Self {
        let terms = self.terms.iter().map(|&(t, f)| (t, f.wrapping_mul(by))).filter(|&(_, f)| f != 0);
        Self { terms: terms.collect(), constant: self.constant.wrapping_mul(by) }
    }

    fn plus(&self, other: &Self) -> Self {
        let mut terms = Vec::with_capacity(self.terms.len() + other.terms.len());
        let (mut a, mut b) = (self.terms.iter().peekable(), other.terms.iter().peekable());
        loop {
            let (term, factor) = match (a.peek(), b.peek()) {
                (Some(&&(x, f)), Some(&&(y, g))) if x == y => {
                    a.next();
                    b.next();
                    (x, f.wrapping_add(g))
                }
                (Some(&&(x, f)), other) if other.is_none_or(|&&(y, _)| x < y) => {
                    a.next();
                    (x, f)
                }
                (_, Some(&&(y, g))) => {
                    b.next();
                    (y, g)
                }
                (_, None) => break,
            };
            if factor != 0 {
                terms.push((term, factor));
            }
        }
        Self { terms, constant: self.constant.wrapping_add(other.constant) }
    }

    /// Whether a sum is so many times another one, which is not 0.
    pub(super) fn is_multiple_of(&self, other: &Self) -> bool {
        let first = |sum: &Self| sum.terms.first().map_or(sum.constant, |&(_, factor)| factor);
        match first(other) {
            0 => false,
            unit => *self == other.scaled(first(self) / unit),
        }
    }

    /// The difference of two sums.
    pub(super) fn minus(&self, other: &Self) -> Self {
        self.plus(&other.scaled(-1))
    }
}

/// What makes two terms the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Lane,
    Special(Special),
    Symbol(Symbol),
    Param(u32, i64),
    /// What lies in constant memory there.
    Constant(Linear),
    /// The only value of a register.
    Value(u32),
    /// A register that is written in several places.
    Several(u32),
    /// What is left of such a register when what all its first values have in common is taken away.
    Rest(u32),
    /// A part of what an instruction computes.
    Part(usize),
    /// What an operation makes of two sums, wherever it stands.
    Result(IntOp, Linear, Linear),
}

/// The values of a kernel's registers as sums.
pub(super) struct Addresses<'a> {
    function: &'a Function,
    ops: &'a [Op],
    /// How lanes are taken to differ.
    rows: Rows,
    /// Statements that write each register.
    definitions: Vec<Vec<u32>>,
    /// Registers that may have different values in the lanes of a warp.
    by_lane: Vec<bool>,
    /// Registers that may have different values in the threads of a block.
    by_thread: Vec<bool>,
    /// Registers that may have different values in the turns of a loop.
    varying: Vec<bool>,
    /// Registers that depend on what was read from memory, parameters aside.
    of_data: Vec<bool>,
    /// Registers that tell a neighbour's element, and another one for those whose own element is at an edge.
    at_edge: Vec<bool>,
    values: Vec<Option<Linear>>,
    /// What registers that are written in several places are made of, once that is known.
    several: HashMap<u32, Linear>,
    terms: Vec<Term>,
    numbers: HashMap<Key, u32>,
    /// Terms that are a sum without some of its low bits, moved to the right or where it was: by what operation, and the sums.
    parts: HashMap<u32, (IntOp, Linear)>,
    /// Terms that are products, and which of their factors all lanes share.
    factors: HashMap<u32, Vec<u32>>,
    /// Terms that are a fraction of another value, alike in all threads and turns,
    fractions: HashSet<u32>,
    /// and by how many bits terms are shifted to the right for that, as a mask.
    halved: HashMap<u32, u64>,
    /// By what counters go up,
    steps: HashMap<u32, Vec<Linear>>,
    /// and the registers that they follow.
    follows: HashMap<u32, Vec<u32>>,
    /// Terms that an operation makes of a sum and a constant: by which one.
    bits: HashMap<u32, (IntOp, Linear, i64)>,
    /// Terms that are a variable's address: the variables.
    symbols: HashMap<u32, Symbol>,
    /// The registers that stand for local variables.
    passed: Vec<Option<u32>>,
    /// Terms that are the address of one variable or another, such as those of two that take turns, or of one of these variables: the first of them.
    taking_turns: HashMap<u32, Symbol>,
}

/// A number of which so many low bits are known is known altogether.
const ALL_BITS: u32 = 62;

/// Lanes may have different values in any bit.
const MANY: u32 = 64;

/// The number of the term that is the lane's.
pub(super) const LANE: u32 = 0;

impl<'a> Addresses<'a> {
    /// Looks at all registers. None where that would take long.
    pub(super) fn new(function: &'a Function, ops: &'a [Op], rows: Rows) -> Option<Self> {
        let vars = Vars::new(function, ops);
        let count = vars.types.len();
        let mut definitions = vec![Vec::new(); count];
        for (at, instruction) in instructions(function) {
            visit(instruction, &ops[instruction.form.0 as usize], &vars, &mut |register, access| {
                if access == Access::Define {
                    definitions[register as usize].push(at as u32);
                }
            });
        }
        let mut addresses = Self {
            function,
            ops,
            rows,
            varying: definitions.iter().map(|d: &Vec<u32>| d.len() > 1).collect(),
            definitions,
            by_lane: vec![false; count],
            by_thread: vec![false; count],
            of_data: vec![false; count],
            at_edge: vec![false; count],
            values: vec![None; count],
            several: HashMap::new(),
            terms: Vec::new(),
            numbers: HashMap::new(),
            parts: HashMap::new(),
            factors: HashMap::new(),
            fractions: HashSet::new(),
            halved: HashMap::new(),
            steps: HashMap::new(),
            follows: HashMap::new(),
            bits: HashMap::new(),
            symbols: HashMap::new(),
            passed: vars.locals.iter().map(Home::register).collect(),
            taking_turns: HashMap::new(),
        };
        addresses.spread(&vars)?;
        let lane =
            addresses.term(Key::Lane, Term { by_lane: true, by_thread: true, ..Term::shared(Kind::Lane) });
        debug_assert_eq!(lane, LANE);
        addresses.find_chosen();
        for (at, instruction) in instructions(function) {
            visit(instruction, &ops[instruction.form.0 as usize], &vars, &mut |register, access| {
                if access == Access::Define && addresses.definitions[register as usize][..] == [at as u32] {
                    addresses.value(register, DEPTH);
                }
            });
        }
        for register in 0..count as u32 {
            if addresses.definitions[register as usize].len() > 1 {
                addresses.take_apart(register);
            }
        }
        Some(addresses)
    }

    /// Which lanes of a warp may go another way than others at a branch with this predicate.
    pub(super) fn divides(&self, predicate: u32) -> bool {
        self.by_lane[predicate as usize]
    }

    /// Which threads of a block may go another way than others at a branch with this predicate, or name another address in this register.
    pub(super) fn differs(&self, register: u32) -> bool {
        self.by_thread[register as usize]
    }

    /// Whether an address in this register is one beside the thread's own, but where that is at an edge.
    pub(super) fn is_at_edge(&self, register: u32) -> bool {
        self.at_edge[register as usize]
    }

    /// Whether all threads of a block have one value in a register, which does not depend on what was read from memory.
    pub(super) fn is_given(&self, register: u32) -> bool {
        !self.by_thread[register as usize] && !self.of_data[register as usize]
    }

    pub(super) fn kind(&self, term: u32) -> Term {
        self.terms[term as usize]
    }

    /// Whether two addresses point into one variable or parameter's memory.
    pub(super) fn have_one_root(&self, a: &Linear, b: &Linear) -> bool {
        let root = |&(term, factor): &(u32, i64)| {
            factor == 1 && self.kind(term).kind == Kind::Root && b.factor(term) == 1
        };
        a.terms.iter().any(root)
    }

    /// The variable in which an address lies, if one is known.
    pub(super) fn symbol_of(&self, address: &Linear) -> Option<Symbol> {
        let symbol = |&(term, factor): &(u32, i64)| {
            let known = self.symbols.get(&term).or_else(|| self.taking_turns.get(&term));
            known.copied().filter(|_| factor == 1)
        };
        address.terms.iter().find_map(symbol)
    }

    /// The variable and the offset in it, where nothing else is in an address.
    pub(super) fn place_in_variable(&self, address: &Linear) -> Option<(Symbol, i64)> {
        match address.terms[..] {
            [(term, 1)] => Some((*self.symbols.get(&term)?, address.constant)),
            _ => None,
        }
    }

    /// Whether a number is the address of something in a variable or behind a parameter.
    pub(super) fn is_pointer(&mut self, operand: &Operand) -> bool {
        let sum = self.operand(operand, DEPTH).map(|sum| self.expand(sum));
        sum.is_some_and(|sum| self.leads(&sum, Kind::Root))
    }

    /// The address that a load or store names; none where it is none of memory that lanes share.
    pub(super) fn address(&mut self, operand: &Operand) -> Option<Linear> {
        let sum = self.located(operand, DEPTH)?;
        Some(self.expand(sum))
    }

    /// Likewise, with registers that are written in several places as terms.
    fn located(&mut self, operand: &Operand, depth: u32) -> Option<Linear> {
        match operand {
            Operand::Address(AddressBase::Reg(register), offset) => {
                Some(self.value(register.0, depth).plus(&Linear::constant(*offset)))
            }
            Operand::Address(AddressBase::Symbol(symbol), offset) | Operand::Symbol(symbol, offset) => {
                Some(self.symbol(*symbol).plus(&Linear::constant(*offset)))
            }
            _ => None,
        }
    }

    /// Whether a term is how many threads are side by side in a block.
    pub(super) fn is_width_of_block(&self, term: u32) -> bool {
        self.numbers.get(&Key::Special(Special::NtidX)) == Some(&term)
    }

    /// By what a term goes up from turn to turn, if it is a counter: in one loop or another.
    pub(super) fn steps(&self, term: u32) -> Vec<Linear> {
        let of = |term: u32| self.steps.get(&term).into_iter().flatten().cloned();
        let followed = self.follows.get(&term).into_iter().flatten().filter_map(|t| self.several.get(t));
        let followed = followed.flat_map(|sum| sum.terms.iter().filter(|(_, factor)| *factor == 1));
        of(term).chain(followed.flat_map(|&(t, _)| of(t))).collect()
    }

    /// The instruction that writes a register, if there is only one.
    pub(super) fn only_definition(&self, register: u32) -> Option<&'a Instruction> {
        let [at] = self.definitions[register as usize][..] else { return None };
        match &self.function.body[at as usize] {
            Statement::Instruction(instruction) => Some(instruction),
            Statement::Label(_) => None,
        }
    }

    /// The difference of two numbers.
    pub(super) fn difference(&mut self, a: &Operand, b: &Operand) -> Option<Linear> {
        let difference = self.operand(a, DEPTH)?.minus(&self.operand(b, DEPTH)?);
        Some(self.expand(difference))
    }

    /// Finds the registers that differ among lanes, and among turns of a loop.
    fn spread(&mut self, vars: &Vars) -> Option<()> {
        // Registers whose values do not go up with the lanes from a multiple of a warp's.
        let mut moved = vec![false; self.by_lane.len()];
        // In how many low bits lanes have different values.
        let mut low_bits = vec![0; self.by_lane.len()];
        for _ in 0..PASSES {
            let mut changed = false;
            for (_, instruction) in instructions(self.function) {
                let op = &self.ops[instruction.form.0 as usize];
                let (mut lane, mut varying) = (names_lane(&instruction.operands, self.rows), false);
                let mut thread = names_thread(&instruction.operands);
                let mut moves = self.moves_lanes(instruction, op);
                let mut bits = bits_of_lane(&instruction.operands, self.rows);
                let mut at_edge = false;
                let mut data = reads_data(op) || matches!(op, Op::Atom { .. } | Op::Call);
                visit(instruction, op, vars, &mut |register, access| {
                    if access == Access::Use {
                        lane |= self.by_lane[register as usize];
                        bits = bits.max(low_bits[register as usize]);
                        thread |= self.by_thread[register as usize];
                        varying |= self.varying[register as usize];
                        moves |= moved[register as usize];
                        data |= self.of_data[register as usize];
                        at_edge |= self.at_edge[register as usize];
                    }
                });
                thread |= matches!(
                    op,
                    Op::Atom { .. } | Op::Elect | Op::Match { .. } | Op::Vote { .. } | Op::ActiveMask
                ) || matches!(op, Op::Redux { .. } | Op::Bar { warp: true, .. } | Op::Shfl { .. });
                // Where nothing is known they are taken to differ as their numbers do.
                let likely = if bits > 32 { 5 } else { bits };
                lane = match op {
                    Op::Atom { .. } | Op::Elect | Op::Match { .. } => true,
                    Op::Vote { .. } | Op::ActiveMask | Op::Redux { .. } | Op::Bar { .. } => false,
                    Op::Shfl { mode: ShuffleMode::Index, .. } => self.is_by_lane(instruction, 2),
                    Op::Int { op: IntOp::Shr, .. } => {
                        lane && (moves || int(instruction, 2).is_none_or(|by| by < i64::from(likely)))
                    }
                    Op::Int { op: IntOp::And, .. } => {
                        let kept = |mask: i64| mask & ((1 << likely) - 1);
                        lane && (moves || int(instruction, 2).is_none_or(|mask| kept(mask) != 0))
                    }
                    _ => lane,
                };
                at_edge = match op {
                    Op::Selp { .. } | Op::Int { op: IntOp::Min | IntOp::Max, .. } => lane,
                    Op::Ld { .. } | Op::Atom { .. } | Op::Call | Op::Setp { .. } => false,
                    op => at_edge && !op.is_cut(),
                };
                let bits = if moves { MANY } else { self.bits_of_result(instruction, op, bits) };
                if !(lane || thread || varying || data) {
                    continue;
                }
                moves &= lane;
                visit(instruction, op, vars, &mut |register, access| {
                    if access == Access::Define {
                        let facts = [
                            &mut self.by_lane,
                            &mut self.by_thread,
                            &mut self.varying,
                            &mut self.of_data,
                            &mut self.at_edge,
                            &mut moved,
                        ];
                        let known = &mut low_bits[register as usize];
                        if lane && bits > *known {
                            (*known, changed) = (bits, true);
                        }
                        for (fact, now) in
                            facts.into_iter().zip([lane, thread, varying, data, at_edge, moves])
                        {
                            changed |= now && !fact[register as usize];
                            fact[register as usize] |= now;
                        }
                    }
                });
            }
            if !changed {
                return Some(());
            }
        }
        None
    }

    /// In how many of its low bits lanes may have different results, where they do so in as many bits of what goes into it.
    fn bits_of_result(&self, instruction: &Instruction, op: &Op, bits: u32) -> u32 {
        let shift = || int(instruction, 2).and_then(|by| u32::try_from(by).ok());
        match op {
            _ if bits > 32 => MANY,
            Op::Mov { .. } | Op::Cvt { .. } | Op::Cvta { .. } | Op::Int { op: IntOp::And, .. } => bits,
            Op::Ld { place: MemoryTarget::Param, .. } | Op::St { place: MemoryTarget::Param, .. } => bits,
            Op::Int { op: IntOp::Shr, .. } => shift().map_or(MANY, |by| bits.saturating_sub(by)),
            Op::Int { op: IntOp::Shl, .. } => shift().map_or(MANY, |by| bits.saturating_add(by)),
            // The numbers of a warp's threads begin with a multiple of its size.
            Op::Int { op: IntOp::Add, .. } if bits == 5 => bits,
            Op::IntTernary { op: IntTernary::MadLo, .. }
                if bits == 5 && !self.is_by_lane(instruction, 1) && !self.is_by_lane(instruction, 2) =>
            {
                bits
            }
            _ => MANY,
        }
    }

    /// Whether lanes may have different values of an operand.
    fn is_by_lane(&self, instruction: &Instruction, index: usize) -> bool {
        instruction.operands.get(index).is_some_and(|operand| match operand {
            Operand::Reg(register) | Operand::Part(register, _) => self.by_lane[register.0 as usize],
            other => names_lane(std::slice::from_ref(other), self.rows),
        })
    }

    /// Whether an operation turns the order of lanes, or moves them by what is no multiple of a warp: then a part of a warp may be found
    /// in its result's higher bits.
    fn moves_lanes(&self, instruction: &Instruction, op: &Op) -> bool {
        let odd = |index: usize| int(instruction, index).is_some_and(|by| !is_high_mask(by));
        match op {
            Op::Int { op: IntOp::Add, .. } => odd(2),
            Op::Int { op: IntOp::Sub, .. } => self.is_by_lane(instruction, 2) || odd(2),
            Op::IntUnary { op: IntUnary::Not | IntUnary::Neg | IntUnary::Brev, .. } => {
                self.is_by_lane(instruction, 1)
            }
            // Nothing is known of the bits of data.
            op if reads_data(op) => true,
            Op::Atom { .. } => true,
            // Made to mix the bits of numbers. What divides them has the higher half of a product.
            Op::Int { op: IntOp::MulLo, .. } | Op::IntTernary { op: IntTernary::MadLo, .. } => {
                int(instruction, 2).is_some_and(|by| by.unsigned_abs() >= 1 << 16)
            }
            _ => false,
        }
    }

    fn term(&mut self, key: Key, term: Term) -> u32 {
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        let number = self.terms.len() as u32;
        self.terms.push(term);
        if let Key::Result(op, a, b) = &key {
            self.note_result(number, (*op, a, b));
        }
        self.numbers.insert(key, number);
        number
    }

    /// A register as a term of its own.
    fn opaque(&mut self, key: Key, kind: Kind, register: u32) -> Linear {
        let of = |facts: &[bool]| facts[register as usize];
        let (by_lane, by_thread) = (of(&self.by_lane), of(&self.by_thread));
        let (by_turn, of_data) = (of(&self.varying), of(&self.of_data));
        Linear::of(self.term(key, Term { kind, by_lane, by_thread, by_turn, of_data }))
    }

    fn symbol(&mut self, symbol: Symbol) -> Linear {
        let term = self.term(Key::Symbol(symbol), Term::shared(Kind::Root));
        self.symbols.insert(term, symbol);
        Linear::of(term)
    }

    /// What a parameter of a function that was put into the kernel stands for, or a result of one.
    fn passed(&mut self, operand: &Operand, depth: u32) -> Option<Linear> {
        let Operand::Address(AddressBase::Symbol(Symbol::Local(id)), 0) = operand else { return None };
        let register = self.passed.get(id.0 as usize).copied()??;
        Some(self.value(register, depth))
    }

    /// Finds registers that are the address of one variable or another, such as those of two that take turns.
    fn find_chosen(&mut self) {
        for register in 0..self.definitions.len() as u32 {
            if let Some(symbols) = self.variables_of(register)
                && let [first, _, ..] = symbols[..]
            {
                for symbol in symbols {
                    let term = self.symbol(symbol).terms[0].0;
                    self.taking_turns.entry(term).or_insert(first);
                }
                let term = self.term(Key::Value(register), Term::shared(Kind::Root));
                self.taking_turns.insert(term, first);
                self.values[register as usize] = Some(Linear::of(term));
            }
        }
    }

    /// The second of two addresses as if it were in the first one's variable, where both are in variables that take turns: what is stored in one of them in one
    /// turn is loaded from it in the next, by another register.
    pub(super) fn in_other_turn(&self, first: &Linear, second: &Linear) -> Option<Linear> {
        let find = |address: &Linear| {
            let base = |&(term, factor): &(u32, i64)| {
                Some((term, *self.taking_turns.get(&term)?)).filter(|_| factor == 1)
            };
            address.terms.iter().find_map(base)
        };
        let ((a, one), (b, other)) = (find(first)?, find(second)?);
        (a != b && one == other).then(|| second.minus(&Linear::of(b)).plus(&Linear::of(a)))
    }

    /// The variables of which a register may have the address, in their order, if it never has anything else.
    fn variables_of(&self, register: u32) -> Option<Vec<Symbol>> {
        let (mut seen, mut open, mut found) = (HashSet::from([register]), vec![register], BTreeMap::new());
        while let Some(register) = open.pop() {
            let definitions = &self.definitions[register as usize];
            if definitions.is_empty() || seen.len() > DEPTH as usize {
                return None;
            }
            for &at in definitions {
                let Statement::Instruction(instruction) = &self.function.body[at as usize] else {
                    return None;
                };
                let sources = match self.ops[instruction.form.0 as usize] {
                    Op::Mov { .. } | Op::Cvta { .. } | Op::Cvt { .. } => 1..2,
                    Op::Selp { .. } => 1..3,
                    _ => return None,
                };
                for source in instruction.operands.get(sources)? {
                    match *source {
                        Operand::Symbol(symbol @ Symbol::Local(id), 0) => _ = found.insert((0, id.0), symbol),
                        Operand::Symbol(symbol @ Symbol::Global(id), 0) => {
                            _ = found.insert((1, id.0), symbol)
                        }
                        Operand::Reg(source) if !seen.insert(source.0) => {}
                        Operand::Reg(source) => open.push(source.0),
                        _ => return None,
                    }
                }
            }
        }
        Some(found.into_values().collect())
    }

    /// A register's value.
    fn value(&mut self, register: u32, depth: u32) -> Linear {
        if let Some(value) = &self.values[register as usize] {
            return value.clone();
        }
        let value = match self.definitions[register as usize][..] {
            [] => self.opaque(Key::Value(register), Kind::Invariant, register),
            [at] if depth > 0 => match self.computed(at as usize, depth - 1) {
                Some(sum) if sum.terms.len() <= TERMS => sum,
                _ => {
                    let kind = self.kind_of_result(at as usize, register);
                    let key = self.result(at as usize, depth - 1).unwrap_or(Key::Value(register));
                    self.opaque(key, kind, register)
                }
            },
            [at] => {
                let kind = self.kind_of_result(at as usize, register);
                // Not kept: it is known better when its turn comes.
                return self.opaque(Key::Value(register), kind, register);
            }
            _ => self.opaque(Key::Several(register), Kind::Counter, register),
        };
        self.values[register as usize] = Some(value.clone());
        value
    }

    /// What makes the result of an operation on two numbers the same as that of another one.
    fn result(&mut self, at: usize, depth: u32) -> Option<Key> {
        let function = self.function;
        let Statement::Instruction(instruction) = &function.body[at] else { return None };
        let Op::Int { op, .. } = self.ops[instruction.form.0 as usize] else { return None };
        let a = self.operand(instruction.operands.get(1)?, depth)?;
        let b = self.operand(instruction.operands.get(2)?, depth)?;
        (a.terms.len() + b.terms.len() <= TERMS).then_some(Key::Result(op, a, b))
    }

    /// A product of two sums, or where the part of each lane begins that is as large as one of them says, as a term of its own.
    fn product_of(&mut self, op: IntOp, a: Linear, b: Linear) -> Linear {
        let any = |f: fn(Term) -> bool| a.terms.iter().chain(&b.terms).any(|&(t, _)| f(self.kind(t)));
        let (by_turn, of_data) = (any(|t| t.by_turn), any(|t| t.of_data));
        let (by_lane, by_thread) = (any(|t| t.by_lane), any(|t| t.by_thread));
        let term = Term { kind: Kind::Product, by_lane, by_thread, by_turn, of_data };
        Linear::of(self.term(Key::Result(op, a, b), term))
    }

    /// Whether the smaller or larger of two sums is where the part of each lane begins, kept within bounds: a product of the lane's number and the
    /// size of such parts.
    fn are_parts_of_lanes(&self, a: &Linear, b: &Linear) -> bool {
        let differs = |sum: &Linear| sum.terms.iter().any(|&(t, _)| self.kind(t).by_lane);
        let is_part = |sum: &Linear| {
            let mut own = sum.terms.iter().filter(|&&(t, _)| self.kind(t).by_lane);
            own.all(|&(t, factor)| match self.kind(t).kind {
                Kind::Lane => factor.unsigned_abs() >= PART,
                kind => kind == Kind::Product,
            })
        };
        differs(a) != differs(b) && is_part(a) && is_part(b)
    }

    /// Notes of what numbers a new term is the product, or, if threads and turns of loops have the same, that it is a fraction.
    fn note_result(&mut self, term: u32, (op, a, b): (IntOp, &Linear, &Linear)) {
        let is_alike = !self.kind(term).by_thread && !self.kind(term).by_turn;
        if let (IntOp::And | IntOp::Xor | IntOp::Shr, Some(by)) = (op, b.as_constant()) {
            self.bits.insert(term, (op, a.clone(), by));
        }
        match op {
            IntOp::MulLo => {
                let numbers = [a, b].into_iter().filter_map(|number| match number.terms[..] {
                    [(number, 1)] if !self.kind(number).by_lane => Some(number),
                    _ => None,
                });
                self.factors.insert(term, numbers.collect());
            }
            IntOp::Shr | IntOp::Div | IntOp::Min if is_alike => {
                self.fractions.insert(term);
                if let (IntOp::Shr, &[(whole, 1)], Some(by @ 1..32)) = (op, &a.terms[..], b.as_constant()) {
                    *self.halved.entry(whole).or_default() |= 1 << by;
                }
            }
            _ => {}
        }
    }

    /// What a term is in a lane, and of how many of its low bits that is known.
    fn in_lane(&self, term: u32, lane: i64, depth: u32) -> Option<(i64, u32)> {
        if term == LANE {
            return Some((lane, WARP.ilog2()));
        }
        let (op, sum, by) = self.bits.get(&term).filter(|_| depth > 0)?;
        let (mut value, mut known) = (sum.constant, ALL_BITS);
        for &(term, factor) in &sum.terms {
            let (part, bits) = self.in_lane(term, lane, depth - 1)?;
            value = value.wrapping_add(part.wrapping_mul(factor));
            known = known.min(bits + factor.trailing_zeros());
        }
        let is_low = known < ALL_BITS;
        let low = |value: i64| if is_low { value & ((1 << known) - 1) } else { value };
        match (op, u32::try_from(*by)) {
            (IntOp::And, Ok(mask)) if !is_low || i64::from(mask) < 1 << known => {
                Some((value & i64::from(mask), ALL_BITS))
            }
            (IntOp::Xor, Ok(mask)) => Some((low(value) ^ i64::from(mask), known)),
            // With or without a sign.
            (IntOp::Shr, Ok(by)) if by < known && low(value) >= 0 => {
                Some((low(value) >> by, if is_low { known - by } else { known }))
            }
            _ => None,
        }
    }

    /// Whether it is certain that no two lanes of a warp meet, where one accesses so many bytes at the first address, and another one at the second: what is
    /// added to the number of a lane is made of bits of that.
    pub(super) fn never_meet(&self, first: (&Linear, i64), second: (&Linear, i64)) -> bool {
        let ((a, a_bytes), (b, b_bytes)) = (first, second);
        let differs = |&&(term, _): &&(u32, i64)| self.kind(term).by_lane;
        let is_alike = |&(term, _): &(u32, i64)| a.factor(term) == b.factor(term) && !self.kind(term).by_turn;
        let both = || a.terms.iter().chain(&b.terms);
        let is_made_of_bits = both().any(|&(term, _)| term != LANE && self.kind(term).by_lane);
        if !is_made_of_bits
            || a.factor(LANE) != b.factor(LANE)
            || !both().filter(|term| !differs(term)).all(is_alike)
        {
            return false;
        }
        let place = |sum: &Linear, lane: i64| {
            sum.terms.iter().filter(differs).try_fold(sum.constant, |at, &(term, factor)| {
                let (value, known) = self.in_lane(term, lane, DEPTH)?;
                (term == LANE || known == ALL_BITS).then_some(at.wrapping_add(value.wrapping_mul(factor)))
            })
        };
        let places =
            |sum: &Linear| (0..WARP as i64).map(|lane| place(sum, lane)).collect::<Option<Vec<i64>>>();
        let (Some(ours), Some(theirs)) = (places(a), places(b)) else { return false };
        !ours.iter().enumerate().any(|(lane, &at)| {
            theirs.iter().enumerate().any(|(other, &place)| {
                lane != other && -b_bytes < place.wrapping_sub(at) && place.wrapping_sub(at) < a_bytes
            })
        })
    }

    /// Whether a term is where the row of a warp begins in which lanes are so far apart.
    pub(super) fn is_begin_of_row(&self, term: u32, step: i64) -> bool {
        let sum = self.parts.get(&term).filter(|(op, _)| *op == IntOp::And).map(|(_, sum)| sum);
        let Term { by_lane, by_thread, .. } = self.kind(term);
        by_thread && !by_lane && sum.is_some_and(|sum| sum.factor(LANE) == step)
    }

    /// Whether a term is the length of the rows that another term counts, as a product of such a length and a number that lanes do not share, or
    /// so many times as long.
    pub(super) fn counts_rows_of(&self, rows: u32, length: u32) -> bool {
        let of = |term: u32| self.factors.get(&term).map_or(&[][..], |factors| factors);
        let is_length = |term: &u32| *term == length || of(length).contains(term);
        self.kind(rows).by_lane && of(rows).iter().any(is_length)
    }

    /// Whether all threads have one value of a term, which was divided, or is a half and a fourth of what was, or the smaller of two: such a distance leads to another
    /// lane's element sooner than to another array.
    pub(super) fn is_fraction(&self, term: u32) -> bool {
        const HALF_AND_FOURTH: u64 = 1 << 1 | 1 << 2;
        let is_whole = |by: &u64| by & HALF_AND_FOURTH == HALF_AND_FOURTH;
        self.fractions.contains(&term) || self.halved.get(&term).is_some_and(is_whole)
    }

    /// What is known of a value that cannot be taken apart.
    fn kind_of_result(&self, at: usize, register: u32) -> Kind {
        let Statement::Instruction(instruction) = &self.function.body[at] else { return Kind::Invariant };
        let changes = self.by_lane[register as usize] || self.varying[register as usize];
        match self.ops[instruction.form.0 as usize] {
            Op::Ld { .. } | Op::Atom { .. } | Op::Call | Op::Shfl { .. } => Kind::Loaded,
            Op::Int { op: IntOp::MulLo, .. } | Op::MulWide { .. } => Kind::Product,
            Op::Mov { .. } => Kind::Loaded,
            _ if changes => Kind::Wild,
            _ => Kind::Invariant,
        }
    }

    fn operand(&mut self, operand: &Operand, depth: u32) -> Option<Linear> {
        Some(match operand {
            Operand::Reg(register) => self.value(register.0, depth),
            Operand::Int(value, _) => Linear::constant(*value as i64),
            Operand::Special(Special::TidX | Special::LaneId) => Linear::of(LANE),
            Operand::Special(special) => {
                let operand = std::slice::from_ref(operand);
                let (by_lane, by_thread) = (names_lane(operand, self.rows), names_thread(operand));
                let kind = if by_lane { Kind::Lane } else { Kind::Invariant };
                let term = Term { by_lane, by_thread, ..Term::shared(kind) };
                Linear::of(self.term(Key::Special(*special), term))
            }
            Operand::Symbol(symbol, offset) => self.symbol(*symbol).plus(&Linear::constant(*offset)),
            _ => return None,
        })
    }

    /// The value that a statement computes, as far as it is a sum.
    fn computed(&mut self, at: usize, depth: u32) -> Option<Linear> {
        let function = self.function;
        let Statement::Instruction(instruction) = &function.body[at] else { return None };
        let operand = |index: usize| instruction.operands.get(index);
        match &self.ops[instruction.form.0 as usize] {
            Op::Mov { .. } | Op::Cvta { .. } => self.operand(operand(1)?, depth),
            Op::Cvt { convert } if !(convert.dst.is_float() || convert.src.is_float()) => {
                self.operand(operand(1)?, depth)
            }
            Op::Ld { place: MemoryTarget::Param, .. } => match operand(1)? {
                Operand::Address(AddressBase::Symbol(Symbol::Param(index)), offset)
                    if function.is_entry && matches!(operand(0)?, Operand::Reg(_)) =>
                {
                    Some(Linear::of(self.term(Key::Param(*index, *offset), Term::shared(Kind::Root))))
                }
                passed => self.passed(passed, depth),
            },
            // Kernels may get their arrays in constant memory, in a structure.
            Op::Ld { place: MemoryTarget::Constant, ty, vector: 1, .. } if ty.bits() == 64 => {
                let at = self.located(operand(1)?, depth)?;
                let is_alike = |&(t, _): &(u32, i64)| !self.kind(t).by_thread && !self.kind(t).by_turn;
                at.terms.iter().all(is_alike).then_some(())?;
                Some(Linear::of(self.term(Key::Constant(at), Term::shared(Kind::Root))))
            }
            Op::St { place: MemoryTarget::Param, .. } => self.operand(operand(1)?, depth),
            // Compilers write `n + ~i` for `n - 1 - i`.
            Op::IntUnary { op: op @ (IntUnary::Not | IntUnary::Neg), .. } => {
                let a = self.operand(operand(1)?, depth)?;
                Some(Linear::constant(if *op == IntUnary::Not { -1 } else { 0 }).minus(&a))
            }
            Op::Int { op, .. } => {
                let a = self.operand(operand(1)?, depth)?;
                let b = self.operand(operand(2)?, depth)?;
                // Of the lane and some more, or a number that is given, the low bits are those of another lane.
                let given = |&(t, _): &(u32, i64)| self.kind(t).kind == Kind::Root || self.is_fraction(t);
                let is_lane = a.factor(LANE) == 1 && a.constant & 31 == 0 && !a.terms.iter().any(given);
                match (op, b.as_constant()) {
                    (IntOp::Add, _) => Some(
                        self.padded(&a, &b).or_else(|| self.padded(&b, &a)).unwrap_or_else(|| a.plus(&b)),
                    ),
                    // Numbers of elements have no sign.
                    (IntOp::Shr, Some(31)) => Some(Linear::default()),
                    (IntOp::Shr, Some(by @ 0..31)) if a.terms.is_empty() => {
                        Some(Linear::constant(a.constant >> by))
                    }
                    (IntOp::Shr, Some(3..31)) => self.part_of(at, IntOp::Shr, a, b),
                    // What is left of a number, divided by a warp's size or a multiple of it.
                    (IntOp::Sub, None) if self.whole_of(&b, IntOp::And) == Some(&a) => None,
                    (IntOp::Sub, _) => Some(a.minus(&b)),
                    (IntOp::MulLo | IntOp::Mul24Lo, _) => product(&a, &b),
                    (IntOp::Min | IntOp::Max, _) if self.are_parts_of_lanes(&a, &b) => {
                        Some(self.product_of(*op, a, b))
                    }
                    (IntOp::Shl, Some(by @ 0..63)) => Some(a.scaled(1 << by)),
                    // Compilers write `or` for a sum of what has no bit in common.
                    (IntOp::Or, Some(bits @ 0..=4096)) => Some(a.plus(&Linear::constant(bits))),
                    (IntOp::And, Some(mask)) if a.terms.is_empty() => {
                        Some(Linear::constant(a.constant & mask))
                    }
                    // Blocks are taken to have whole warps, so that what numbers of threads begin with has no low bits.
                    (IntOp::And, Some(31)) if is_lane => Some(Linear::of(LANE)),
                    // The offset of the lane's element in the warp's part.
                    (IntOp::And, Some(mask)) if is_scaled_lane(&a, mask) => Some(a),
                    (IntOp::And, Some(mask)) if is_warp_mask(mask) && is_lane => {
                        Some(a.minus(&Linear::of(LANE)))
                    }
                    (IntOp::And, Some(mask)) if is_high_mask(mask) && a.factor(LANE) != 0 => {
                        self.part_of(at, IntOp::And, a, b)
                    }
                    (IntOp::And, Some(mask)) if is_low_mask(mask) && is_lane => {
                        let rest = Term { by_thread: true, ..Term::shared(Kind::Invariant) };
                        let rest = self.term(Key::Part(at), rest);
                        Some(Linear::of(LANE).plus(&Linear::of(rest)))
                    }
                    _ => None,
                }
            }
            Op::MulWide { .. } => {
                let (a, b) = (self.operand(operand(1)?, depth)?, self.operand(operand(2)?, depth)?);
                product(&a, &b)
            }
            Op::IntTernary { op: IntTernary::MadLo, .. } | Op::MadWide { .. } => {
                let (a, b) = (self.operand(operand(1)?, depth)?, self.operand(operand(2)?, depth)?);
                let c = self.operand(operand(3)?, depth)?;
                let product = product(&a, &b).unwrap_or_else(|| self.product_of(IntOp::MulLo, a, b));
                Some(product.plus(&c))
            }
            _ => None,
        }
    }

    /// What is left of a sum without its low bits, moved to the right or where it was, as a term that is known to come from it.
    fn part_of(&mut self, at: usize, op: IntOp, sum: Linear, by: Linear) -> Option<Linear> {
        let Statement::Instruction(instruction) = &self.function.body[at] else { return None };
        let Some(Operand::Reg(register)) = instruction.operands.first() else { return None };
        let kind = self.kind_of_result(at, register.0);
        let term = self.opaque(Key::Result(op, sum.clone(), by), kind, register.0);
        self.parts.insert(term.terms[0].0, (op, sum));
        Some(term)
    }

    /// The sum without some of whose low bits a number is, where an operation has taken them away.
    fn whole_of(&self, part: &Linear, by: IntOp) -> Option<&Linear> {
        let [(term, 1)] = part.terms[..] else { return None };
        self.parts.get(&term).filter(|(op, _)| *op == by).map(|(_, sum)| sum)
    }

    /// The number of an element, if what is added to it keeps a place free behind every few elements: such elements are told apart by
    /// their numbers just as well.
    fn padded(&self, number: &Linear, padding: &Linear) -> Option<Linear> {
        let of = self.whole_of(padding, IntOp::Shr)?;
        // A compiler shifts half the number by one bit less, and the number before one less.
        let is_number = |half: i64| of.scaled(1 << half).terms == number.terms;
        (padding.constant == 0 && !number.terms.is_empty() && (0..4).any(is_number)).then(|| number.clone())
    }

    /// Finds what a register that is written in several places is made of: what all its first values have in common, and
    /// a rest, which is a counter where everything else that it gets is itself and a step that all lanes share.
    fn take_apart(&mut self, register: u32) {
        let own = self.opaque(Key::Several(register), Kind::Counter, register).terms[0].0;
        let mut common: Option<Linear> = None;
        let (mut kind, mut by_lane) = (Kind::Counter, false);
        let (mut steps, mut firsts) = (Vec::new(), Vec::new());
        // Whether all first values are addresses, such as those of one array or another, or may be, and whether some are.
        let (mut may_point, mut points) = (true, false);
        for at in self.definitions[register as usize].clone() {
            let sum = self.computed(at as usize, DEPTH).filter(|sum| sum.terms.len() <= TERMS);
            let Some(sum) = sum else {
                let result = self.kind_of_result(at as usize, register);
                if matches!(result, Kind::Loaded | Kind::Wild) {
                    kind = result;
                }
                may_point = false;
                by_lane |= self.by_lane[register as usize];
                common = Some(Linear::default());
                continue;
            };
            let lanes =
                |sum: &Linear, terms: &[Term]| sum.terms.iter().any(|&(t, _)| terms[t as usize].by_lane);
            let wild = |sum: &Linear, terms: &[Term]| {
                sum.terms.iter().any(|&(t, _)| terms[t as usize].kind == Kind::Wild)
            };
            match sum.factor(own) {
                0 => {
                    let is_address = self.leads(&sum, Kind::Root);
                    points |= is_address;
                    // What a loop makes of it is known later.
                    may_point &=
                        is_address || [Kind::Loaded, Kind::Counter].iter().any(|&k| self.leads(&sum, k));
                    if self.varying_sum(&sum, own) && wild(&sum, &self.terms) {
                        // Such as a distance that is halved.
                        kind = Kind::Wild;
                    }
                    let shared = match &common {
                        None => sum.clone(),
                        Some(before) => {
                            let shared = Linear {
                                terms: before
                                    .terms
                                    .iter()
                                    .filter(|&&(t, f)| sum.factor(t) == f)
                                    .copied()
                                    .collect(),
                                constant: before.constant,
                            };
                            by_lane |= lanes(&before.minus(&shared), &self.terms)
                                || lanes(&sum.minus(&shared), &self.terms);
                            shared
                        }
                    };
                    common = Some(shared);
                    firsts.push(sum);
                }
                1 => {
                    let step = sum.minus(&Linear::of(own));
                    by_lane |= lanes(&step, &self.terms);
                    steps.push(step);
                }
                // Such as a distance that is doubled.
                _ => kind = Kind::Wild,
            }
        }
        let known = common.as_ref().is_some_and(|sum| self.leads(sum, Kind::Root));
        if points && may_point && kind == Kind::Counter && !known {
            kind = Kind::Root;
        }
        let (by_thread, of_data) = (self.by_thread[register as usize], self.of_data[register as usize]);
        let rest = Term { kind, by_lane, by_thread, by_turn: true, of_data };
        let rest = self.term(Key::Rest(register), rest);
        let common = common.unwrap_or_default();
        if kind == Kind::Counter {
            let follows = firsts.iter().filter_map(|sum| match sum.minus(&common).terms[..] {
                [(term, 1)] => Some(term),
                _ => None,
            });
            self.follows.insert(rest, follows.collect());
            self.steps.insert(rest, steps);
        }
        let mut value = common.plus(&Linear::of(rest));
        // What is made of itself by a way round is not followed.
        value.terms.retain(|&(t, _)| t != own);
        self.several.insert(own, value);
    }

    /// Whether a sum has a term of a kind, as an address has one that says in what memory it is.
    fn leads(&self, sum: &Linear, kind: Kind) -> bool {
        sum.terms.iter().filter(|&&(_, factor)| factor == 1).any(|&(term, _)| match self.several.get(&term) {
            Some(of) => of.terms.iter().any(|&(t, f)| f == 1 && self.kind(t).kind == kind),
            None => self.kind(term).kind == kind,
        })
    }

    /// Whether a sum has a term that may change in a loop, other than the given one.
    fn varying_sum(&self, sum: &Linear, own: u32) -> bool {
        sum.terms.iter().any(|&(t, _)| t != own && matches!(self.kind(t).kind, Kind::Wild | Kind::Counter))
    }

    /// Replaces registers that are written in several places by what they are made of.
    fn expand(&self, mut sum: Linear) -> Linear {
        for _ in 0..DEPTH {
            let Some((term, factor)) =
                sum.terms.iter().find(|(term, _)| self.several.contains_key(term)).copied()
            else {
                break;
            };
            let rest = Linear { terms: vec![(term, factor)], constant: 0 };
            sum = sum.minus(&rest).plus(&self.several[&term].scaled(factor));
        }
        sum
    }
}

/// Whether an operation reads what may have been stored, or what a program has given as data.
fn reads_data(op: &Op) -> bool {
    matches!(op, Op::Ld { place, .. } if !matches!(place, MemoryTarget::Param | MemoryTarget::Constant))
}

/// The product of two sums of which one is constant.
fn product(a: &Linear, b: &Linear) -> Option<Linear> {
    match (a.as_constant(), b.as_constant()) {
        (_, Some(by)) => Some(a.scaled(by)),
        (Some(by), _) => Some(b.scaled(by)),
        _ => None,
    }
}

/// Whether a mask keeps the lane's number.
fn is_low_mask(mask: i64) -> bool {
    mask >= 31 && (mask & mask.wrapping_add(1)) == 0
}

/// Whether a sum is the offset of one element for each lane, by the size of usual elements, and a mask keeps just that.
fn is_scaled_lane(sum: &Linear, mask: i64) -> bool {
    let [(LANE, factor)] = sum.terms[..] else { return false };
    sum.constant == 0 && matches!(factor, 4 | 8 | 16) && mask == 31 * factor
}

/// Whether a mask takes all of the lane's number away.
fn is_high_mask(mask: i64) -> bool {
    mask & 31 == 0
}

/// Whether a mask takes the lane's number away from a number of usual size, and nothing else.
fn is_warp_mask(mask: i64) -> bool {
    mask & 0xFFFF == 0xFFE0
}

fn int(instruction: &Instruction, index: usize) -> Option<i64> {
    match instruction.operands.get(index)? {
        Operand::Int(value, _) => Some(*value as i64),
        _ => None,
    }
}

/// Whether an operand is a special register that differs among the lanes of a warp.
pub(super) fn names_lane(operands: &[Operand], rows: Rows) -> bool {
    operands.iter().any(|operand| match operand {
        Operand::Special(
            Special::TidX
            | Special::LaneId
            | Special::LanemaskEq
            | Special::LanemaskLe
            | Special::LanemaskLt
            | Special::LanemaskGe
            | Special::LanemaskGt,
        ) => true,
        operand => rows == Rows::Short && is_row(operand),
    })
}

/// Whether an operand is a special register that tells in which row of its block a thread is.
fn is_row(operand: &Operand) -> bool {
    matches!(operand, Operand::Special(Special::TidY | Special::TidZ))
}

/// Whether a function asks in which row of its block a thread is.
pub(super) fn names_row(function: &Function) -> bool {
    instructions(function).any(|(_, instruction)| instruction.operands.iter().any(is_row))
}

/// In how many of its low bits an operand that is a special register differs among the lanes of a warp.
fn bits_of_lane(operands: &[Operand], rows: Rows) -> u32 {
    let number = operands.iter().any(|o| matches!(o, Operand::Special(Special::TidX | Special::LaneId)));
    if number {
        5
    } else if names_lane(operands, rows) {
        MANY
    } else {
        0
    }
}

/// Whether an operand is a special register that differs among the threads of a block.
fn names_thread(operands: &[Operand]) -> bool {
    names_lane(operands, Rows::Short) || operands.contains(&Operand::Special(Special::WarpId))
}

/// The instructions of a function and where they stand.
pub(super) fn instructions(function: &Function) -> impl Iterator<Item = (usize, &Instruction)> {
    function.body.iter().enumerate().filter_map(|(at, statement)| match statement {
        Statement::Instruction(instruction) => Some((at, instruction)),
        Statement::Label(_) => None,
    })
}
