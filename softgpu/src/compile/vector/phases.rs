//! Kernels whose threads wait for each other at barriers of the block: all its groups of threads go from one barrier to the next by one
//! loop, without the executor.
//!
//! What lies between barriers is a *phase*: what threads do from where they go on to their next stop. The code has a copy of it for each
//! barrier, in which it is known where the groups come from, and one in which it is not, for threads that have stopped in several places. As long
//! as all threads of the block stop alike, the copies follow each other. What the executor would find in the rows of the
//! groups, had it been called, is written there only when it is.

use std::collections::HashMap;
use std::mem::offset_of;

use cranelift_codegen::ir::{Function, InstructionData, Opcode};

use super::LANES;
use super::flow::{Flow, Refusal};
use super::rows::{NOBODY, stored_field};
use super::segments::Segment;
use super::shape::{constant, thread_field};
use super::translate::{Translator, all_lanes};
use crate::abi::{self, Block, Cut, CutKind, Row, Thread};

/// A stop after which it is known how the threads go on without a look at what each has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// At a barrier of the whole block: the number of the cut.
    Barrier(u32),
    /// At an operation of whole warps, of which all in the block make one: likewise.
    Exchange(u32),
    /// For good.
    Exit,
}

impl Stop {
    /// As [`Thread::stop`] has it.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Barrier(cut) | Self::Exchange(cut) => cut,
            Self::Exit => abi::STOP_EXIT,
        }
    }
}

/// What the executor finds in the rows of groups that have come to a barrier.
#[derive(Debug, Clone, Copy)]
struct Barrier {
    /// The number of the cut.
    cut: u32,
    /// Its number among the barriers of the block; of no meaning where only warps wait.
    name: i64,
}

/// What is known of a kernel's barriers.
#[derive(Debug)]
pub(super) struct Phases {
    /// The block that finds out where threads go on.
    dispatch: usize,
    /// The blocks that stop so, by number.
    stops: HashMap<usize, Stop>,
    barriers: Vec<Barrier>,
    /// The numbers of the cuts at which warps exchange values.
    exchanges: Vec<u32>,
}

/// All copies together have at most so many instructions.
const MOST_INSTRUCTIONS: usize = 3000;
/// And so many copies there are at most.
const MOST_COPIES: usize = 64;
/// The most groups that a block has.
const MOST_GROUPS: usize = abi::MAX_THREADS / LANES;
/// The operand that names the lanes of a warp which wait for each other.
pub(super) const MASK: usize = 3;
/// After so many phases the executor may look whether the grid goes on at all.
const TURNS: u32 = 1000;

impl Phases {
    /// Divides a kernel with these cuts into phases, if that can be done.
    pub(super) fn find(func: &Function, flow: &Flow, cuts: &[Cut]) -> Option<(Self, Vec<Segment>)> {
        let simple = |cut: &Cut| {
            matches!(cut.kind, CutKind::Barrier | CutKind::WarpSync | CutKind::Yield) || is_exchange(cut.kind)
        };
        if !flow.has_cuts() || !cuts.iter().all(simple) {
            return None;
        }
        let dispatch = dispatch(func, flow)?;
        let mut phases =
            Self { dispatch, stops: HashMap::new(), barriers: Vec::new(), exchanges: Vec::new() };
        for number in 0..flow.blocks.len() {
            let Some((stop, name)) = stop(func, flow, cuts, number) else { continue };
            phases.stops.insert(number, stop);
            match stop {
                Stop::Barrier(cut) => phases.barriers.push(Barrier { cut, name }),
                Stop::Exchange(cut) => phases.exchanges.push(cut),
                Stop::Exit => {}
            }
        }
        let met: Vec<u32> =
            phases.barriers.iter().map(|b| b.cut).chain(phases.exchanges.iter().copied()).collect();
        if met.is_empty() || met.len() >= MOST_COPIES {
            return None;
        }
        let begins = std::iter::once(0).chain(met);
        let copies: Vec<Segment> = begins.map(|cut| phases.behind(flow, cut)).collect::<Option<_>>()?;
        let blocks = copies.iter().flat_map(|copy| &copy.places).map(|&place| flow.order[place]);
        let size: usize = blocks.map(|block| func.layout.block_insts(flow.blocks[block]).count()).sum();
        (size + flow.instructions(func) <= MOST_INSTRUCTIONS).then_some((phases, copies))
    }

    /// How a block stops.
    pub(super) fn stop(&self, number: usize) -> Option<Stop> {
        self.stops.get(&number).copied()
    }

    /// What threads do behind a cut, to their next stop.
    fn behind(&self, flow: &Flow, cut: u32) -> Option<Segment> {
        let mut has = vec![false; flow.exit()];
        let mut open = vec![0];
        while let Some(number) = open.pop() {
            if number == flow.exit() || std::mem::replace(&mut has[number], true) {
                continue;
            }
            if number == self.dispatch {
                open.push(flow.edges[number].get(edge_of(cut))?.to);
            } else {
                open.extend(flow.successors(number));
            }
        }
        let places = (0..flow.order.len()).filter(|&place| has[flow.order[place]]).collect();
        Some(Segment { places, enters: Some(cut), ..Segment::plain(0..0) })
    }
}

/// Whether an operation gives all lanes of a warp what depends on the operands of all.
fn is_exchange(kind: CutKind) -> bool {
    matches!(
        kind,
        CutKind::Shuffle(_) | CutKind::Vote(_) | CutKind::MatchAny | CutKind::MatchAll | CutKind::Redux(_)
    )
}

/// Which edge of the dispatch leads behind a cut: what comes first is where no number is one of a cut.
fn edge_of(cut: u32) -> usize {
    1 + cut as usize
}

/// The block that finds out where threads go on.
fn dispatch(func: &Function, flow: &Flow) -> Option<usize> {
    (0..flow.blocks.len()).find(|&number| {
        let last = func.layout.last_inst(flow.blocks[number]);
        let Some(InstructionData::BranchTable { arg, .. }) = last.map(|inst| func.dfg.insts[inst]) else {
            return false;
        };
        let made = func.dfg.value_def(func.dfg.resolve_aliases(arg)).inst();
        made.is_some_and(|inst| thread_field(func, flow, inst) == Some(offset_of!(Thread, resume)))
    })
}

/// How a block stops, if that is known, and the number of the barrier.
fn stop(func: &Function, flow: &Flow, cuts: &[Cut], number: usize) -> Option<(Stop, i64)> {
    const OP: usize = offset_of!(Thread, op);
    let mut stored = HashMap::new();
    for inst in func.layout.block_insts(flow.blocks[number]) {
        if let InstructionData::Store { opcode: Opcode::Store, args: [value, _], .. } = func.dfg.insts[inst]
            && let Some(field) = stored_field(func, flow, inst)
        {
            stored.insert(field, constant(func, value));
        }
    }
    let known = |field: usize| stored.get(&field).copied().flatten();
    let stop = u32::try_from(known(offset_of!(Thread, stop))?).ok()?;
    if stop == abi::STOP_EXIT {
        return Some((Stop::Exit, 0));
    }
    let goes_on = known(offset_of!(Thread, resume)) == Some(i64::from(stop));
    let cut = cuts.get(stop as usize - 1).filter(|_| goes_on)?;
    let name = match cut.kind {
        CutKind::Barrier => known(OP).filter(|name| (0..16).contains(name) && known(OP + 8) == Some(0))?,
        // Where all threads of the block have come to it, so have those of each warp.
        kind if cut.legacy || known(OP + 8 * MASK).is_some_and(|mask| mask as u32 == !0) => match kind {
            CutKind::WarpSync => 0,
            kind if is_exchange(kind) => return Some((Stop::Exchange(stop), 0)),
            _ => return None,
        },
        _ => return None,
    };
    Some((Stop::Barrier(stop), name))
}

impl Translator<'_> {
    /// Which edge of a block is taken in the copy that is being written, where that is known before.
    pub(super) fn enters(&self, number: usize) -> Option<usize> {
        let dispatch = self.phases.as_ref()?.dispatch;
        self.segments[self.segment].enters.filter(|_| number == dispatch).map(edge_of)
    }

    /// All copies, and what leads from one to another. `end` is the end of the threads.
    pub(super) fn all_phases(&mut self, end: &str) -> Result<(), Refusal> {
        self.places.push_str(&format!("%late = alloca [{MOST_GROUPS} x i32]\n%turns = alloca i32\n"));
        let sides: Vec<String> = (0..3)
            .map(|side| {
                let at = self.pointer("%a2", (offset_of!(Block, ntid) + 4 * side) as i64);
                self.make(format!("load i32, ptr {at}, align 4"))
            })
            .collect();
        let plane = self.make(format!("mul i32 {}, {}", sides[0], sides[1]));
        let all = self.make(format!("mul i32 {plane}, {}", sides[2]));
        let mut whole = self.make(format!("icmp eq i32 %a1, {all}"));
        let exchanges = self.exchanges();
        if !exchanges.is_empty() {
            let rest = self.make(format!("and i32 %a1, {}", abi::WARP - 1));
            let warps = self.make(format!("icmp eq i32 {rest}, 0"));
            whole = self.make(format!("and i1 {whole}, {warps}"));
        }
        let at = self.pointer("%a2", offset_of!(Block, together) as i64);
        let known = self.make(format!("load i32, ptr {at}, align 4"));
        self.line(format!("store i32 {TURNS}, ptr %turns"));
        self.line(format!("br i1 {whole}, label %known, label %r0"));
        self.begin("known");
        self.go_on_behind(&known, "r0", 'r');
        for segment in 0..self.segments.len() {
            self.segment = segment;
            self.one_segment("%a0", end)?;
            let left = self.make("load i32, ptr %turns");
            let left = self.make(format!("sub i32 {left}, 1"));
            self.line(format!("store i32 {left}, ptr %turns"));
            let more = self.make(format!("icmp ne i32 {left}, 0"));
            let more = self.make(format!("and i1 {more}, {whole}"));
            let next = self.label();
            self.line(format!("br i1 {more}, label %{next}, label %leave"));
            self.begin(&next);
            let stopped = self.make("load i32, ptr %together");
            let exits = self.make(format!("icmp eq i32 {stopped}, {}", abi::STOP_EXIT));
            let next = self.label();
            self.line(format!("br i1 {exits}, label %gone, label %{next}"));
            self.begin(&next);
            self.go_on_behind(&stopped, "leave", 'x');
        }
        for (n, copy) in self.segments.clone().iter().enumerate() {
            let Some(cut) = copy.enters else { continue };
            self.begin(&format!("x{n}"));
            if exchanges.contains(&cut) {
                self.exchange(cut);
            }
            self.line(format!("br label %r{n}"));
        }
        self.begin("leave");
        // Where all threads of the block have ended, that is all that the executor wants to know.
        let stopped = self.make("load i32, ptr %together");
        let exits = self.make(format!("icmp eq i32 {stopped}, {}", abi::STOP_EXIT));
        let gone = self.make(format!("and i1 {exits}, {whole}"));
        self.line(format!("br i1 {gone}, label %gone, label %stay"));
        self.begin("stay");
        self.settle(end);
        self.line("br label %told");
        self.begin("gone");
        // No thread has a row that says how it stopped, so none is the last one that ran.
        let at = self.pointer("%a2", offset_of!(Block, cursor) as i64);
        self.line(format!("store ptr null, ptr {at}\nbr label %told"));
        self.begin("told");
        self.tell_together();
        self.line("ret void");
        Ok(())
    }

    /// Has all warps of the block make the operation that they have come to.
    fn exchange(&mut self, cut: u32) {
        let helper = self.function(self.own.helpers.exchange);
        let callee = self.make(format!("inttoptr i64 {helper} to ptr"));
        self.line(format!("call void {callee}(i64 %a2, i64 %a0, i32 %a1, i32 {cut})"));
    }

    /// Goes to the copy behind a stop, or elsewhere if there is none. `part` begins the labels of the copies.
    fn go_on_behind(&mut self, stopped: &str, elsewhere: &str, part: char) {
        let copies = self.segments.iter().enumerate().filter_map(|(n, copy)| Some((n, copy.enters?)));
        let copies: Vec<String> = copies.map(|(n, cut)| format!("i32 {cut}, label %{part}{n}")).collect();
        self.line(format!("switch i32 {stopped}, label %{elsewhere} [ {} ]", copies.join(" ")));
    }

    /// All lanes of a group stop in a way that is known: nothing is written into their row yet.
    pub(super) fn stop_late(&mut self, stop: Stop) {
        let number = stop.number();
        let at = self.late();
        self.line(format!("store i32 {number}, ptr {at}"));
        self.stop_together(i64::from(number));
    }

    /// Some lanes of a group stop, or in a way that is not known: what they leave is in their row.
    pub(super) fn stop_at_once(&mut self) {
        let at = self.late();
        self.line(format!("store i32 {NOBODY}, ptr {at}\nstore i32 {}, ptr %together", abi::APART));
    }

    /// Where it is noted how a group has stopped whose row does not say it yet.
    fn late(&mut self) -> String {
        let group = self.make("load i64, ptr %group");
        self.make(format!("getelementptr i32, ptr %late, i64 {group}"))
    }

    /// The numbers of the cuts at which warps exchange values.
    fn exchanges(&self) -> Vec<u32> {
        self.phases.as_ref().map(|phases| phases.exchanges.clone()).unwrap_or_default()
    }

    /// Writes an operand of all lanes into a row.
    fn put_operand(&mut self, row: &str, n: usize, operand: &str) {
        let at = self.pointer(row, (offset_of!(Row, op) + 8 * LANES * n) as i64);
        self.line(format!("store <{LANES} x i64> {operand}, ptr {at}, align 64"));
    }

    /// Writes into the rows what is missing there.
    fn settle(&mut self, end: &str) {
        self.begin_groups("%a0", "settle");
        let at = self.late();
        let number = self.make(format!("load i32, ptr {at}"));
        let done = self.make(format!("icmp eq i32 {number}, {NOBODY}"));
        self.line(format!("br i1 {done}, label %settled, label %late.stop"));
        self.begin("late.stop");
        let first = self.make("load i64, ptr %first");
        let row = self.row_address(&first);
        let numbers = self.in_all_lanes("i32", &number);
        let at = self.pointer(&row, offset_of!(Row, stop) as i64);
        self.line(format!("store <{LANES} x i32> {numbers}, ptr {at}, align 32"));
        let exits = self.make(format!("icmp eq i32 {number}, {}", abi::STOP_EXIT));
        self.line(format!("br i1 {exits}, label %settled, label %late.barrier"));
        self.begin("late.barrier");
        let at = self.pointer(&row, offset_of!(Row, resume) as i64);
        self.line(format!("store <{LANES} x i32> {numbers}, ptr {at}, align 32"));
        self.put_operand(&row, MASK, &all_lanes("i64", u32::MAX));
        // Operands of an exchange are there already.
        let there: Vec<String> =
            self.exchanges().iter().map(|cut| format!("i32 {cut}, label %settled")).collect();
        self.line(format!("switch i32 {number}, label %late.names [ {} ]", there.join(" ")));
        self.begin("late.names");
        let barriers = self.phases.as_ref().map(|phases| phases.barriers.clone()).unwrap_or_default();
        let ty = format!("<{LANES} x i64>");
        let mut names = "zeroinitializer".to_owned();
        for Barrier { cut, name } in barriers.into_iter().filter(|barrier| barrier.name != 0) {
            let here = self.make(format!("icmp eq i32 {number}, {cut}"));
            let own = all_lanes("i64", name);
            names = self.make(format!("select i1 {here}, {ty} {own}, {ty} {names}"));
        }
        self.put_operand(&row, 0, &names);
        self.put_operand(&row, 1, "zeroinitializer");
        self.line("br label %settled");
        self.begin("settled");
        self.end_groups(end, "settle", "done");
    }
}
