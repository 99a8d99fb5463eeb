//! Kernels whose threads wait for each other at barriers: all groups of threads of a block go from one stop to the next by one loop, without the
//! executor.
//!
//! What lies between stops is a *phase*: what threads do from where they go on to their next stop. The code has a copy of it for each
//! cut, in which it is known where the groups come from, and one in which it is not, for threads that the executor has run one by one. It
//! is noted which lanes wait at which cut. From that follows what copy is next, and for which groups: a barrier of the block lets all go on once
//! all that have not ended are there; what whole warps do together, those warps that have come whole; and where a warp waits for whoever
//! comes, these lanes. Where that is not enough, the executor goes on. What it would find in the rows of the groups, had it
//! been called, is written there only when it is.

use std::collections::HashMap;
use std::mem::offset_of;

use cranelift_codegen::ir::{Function, InstructionData, Opcode};

use super::LANES;
use super::flow::{Flow, Refusal};
use super::rows::stored_field;
use super::shape::{Shapes, constant, thread_field};
use super::translate::{Translator, all_lanes};
use crate::abi::{self, Block, Cut, CutKind, Row, Thread};

/// A stop after which it is known how the threads go on without a look at what each has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// At a barrier of the whole block: the number of the cut.
    Barrier(u32),
    /// At a barrier of the whole block that reduces predicates: likewise.
    Reduce(u32),
    /// Where the lanes of a warp wait for each other: likewise, and whether each lane says for whom.
    Warp(u32, bool),
    /// At an operation of a whole warp: likewise.
    Exchange(u32, bool),
    /// Where lanes wait until no other of their warp can come: likewise.
    Converge(u32),
    /// For good.
    Exit,
}

impl Stop {
    /// As [`Thread::stop`] has it.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Barrier(cut) | Self::Reduce(cut) | Self::Converge(cut) => cut,
            Self::Warp(cut, _) | Self::Exchange(cut, _) => cut,
            Self::Exit => abi::STOP_EXIT,
        }
    }

    /// Whether what threads leave in a field when they stop so is not known elsewhere.
    pub(super) fn leaves(self, field: usize) -> bool {
        let operands = (OP..OP + 8 * MASK).contains(&field);
        let mask = field == OP + 8 * MASK;
        match self {
            Self::Barrier(_) | Self::Converge(_) => false,
            Self::Reduce(_) => operands,
            Self::Warp(_, named) => named && mask,
            Self::Exchange(_, named) => operands || named && mask,
            Self::Exit => field != offset_of!(Thread, stop),
        }
    }
}

/// What is known of a kernel's barriers.
#[derive(Debug)]
pub(super) struct Phases {
    /// The block that finds out where threads go on.
    dispatch: usize,
    /// The blocks that come before it, and itself.
    before: Vec<bool>,
    /// The blocks that stop so, by number.
    stops: HashMap<usize, Stop>,
    /// Barriers of the block that have another number than 0: by cut, that number.
    names: Vec<(u32, i64)>,
    /// How many cuts there are.
    cuts: u32,
    /// Sets of cuts, as bits: barriers of the block;
    barriers: u128,
    /// what whole warps do;
    of_warps: u128,
    /// those at which they exchange values, all with all;
    exchanges: u128,
    /// those at which each lane says with whom;
    named: u128,
    /// those whose lanes' masks are in their rows;
    masks: u128,
    /// barriers of the block that reduce predicates;
    reduces: u128,
    /// those that lanes go on from without the rest of their warp;
    converging: u128,
    /// and those that part of a group may go on from.
    split: u128,
}

/// All copies together have at most so many instructions.
const MOST_INSTRUCTIONS: usize = 6000;
/// A kernel has at most so many cuts: each has a bit in a word, beside [`ENDED`] and [`ELSEWHERE`].
const MOST_CUTS: usize = 120;
/// The bit of lanes that have ended.
const ENDED: u128 = 1 << abi::STOP_EXIT;
/// The bit of lanes that have stopped in a way which is not known.
const ELSEWHERE: u128 = 1 << 127;
/// The most groups that a block has: so many bytes tell which lanes of each wait at a cut.
const MOST_GROUPS: usize = abi::MAX_THREADS / LANES;
/// The same as words of the lanes of a warp each.
const WORDS: &str = "<32 x i32>";
/// The operands of a cut, and the one among them that names the lanes which wait for each other.
pub(super) const OP: usize = offset_of!(Thread, op);
const MASK: usize = 3;
/// After so many phases the executor may look whether the grid goes on at all.
const TURNS: u32 = 1000;

/// A cut, or 0 for the kernel's beginning, and the places of what threads do behind it.
type Behind = (u32, Vec<usize>);

/// The bit of a cut.
fn bit(cut: u32) -> u128 {
    1 << cut
}

impl Phases {
    /// Divides a kernel with these cuts into phases, if that can be done.
    pub(super) fn find(
        func: &Function,
        flow: &Flow,
        shapes: &Shapes,
        cuts: &[Cut],
    ) -> Option<(Self, Vec<Behind>)> {
        let simple = |cut: &Cut| {
            let waits = matches!(cut.kind, CutKind::Barrier | CutKind::BarrierReduce(_) | CutKind::WarpSync);
            waits || cut.kind == CutKind::Yield || is_exchange(cut.kind)
        };
        if !flow.has_cuts() || cuts.len() > MOST_CUTS || !cuts.iter().all(simple) {
            return None;
        }
        let dispatch = dispatch(func, flow)?;
        let mut phases = Self {
            dispatch,
            before: before(flow, dispatch),
            stops: HashMap::new(),
            names: Vec::new(),
            cuts: cuts.len() as u32,
            barriers: 0,
            of_warps: 0,
            exchanges: 0,
            named: 0,
            masks: 0,
            reduces: 0,
            converging: 0,
            split: 0,
        };
        for number in 0..flow.blocks.len() {
            let Some((stop, name)) = stop(func, flow, cuts, number) else { continue };
            phases.stops.insert(number, stop);
            match stop {
                Stop::Barrier(cut) => {
                    phases.barriers |= bit(cut);
                    if name != 0 {
                        phases.names.push((cut, name));
                    }
                }
                Stop::Reduce(cut) => phases.reduces |= bit(cut),
                Stop::Warp(cut, named) => {
                    phases.of_warps |= bit(cut);
                    phases.masks |= if named { bit(cut) } else { 0 };
                }
                Stop::Exchange(cut, named) => {
                    phases.of_warps |= bit(cut);
                    let set = if named { &mut phases.named } else { &mut phases.exchanges };
                    *set |= bit(cut);
                    phases.masks |= if named { bit(cut) } else { 0 };
                }
                Stop::Converge(cut) => phases.converging |= bit(cut),
                Stop::Exit => {}
            }
        }
        let met = phases.barriers | phases.reduces | phases.of_warps | phases.converging;
        if met == 0 {
            return None;
        }
        let begins = (0..=phases.cuts).filter(|&cut| cut == 0 || met & bit(cut) != 0);
        let copies: Vec<Behind> =
            begins.map(|cut| Some((cut, phases.behind(flow, cut)?))).collect::<Option<_>>()?;
        let blocks = copies.iter().flat_map(|(_, places)| places).map(|&place| flow.order[place]);
        let size: usize = blocks.map(|block| func.layout.block_insts(flow.blocks[block]).count()).sum();
        if size + flow.instructions(func) > MOST_INSTRUCTIONS {
            return None;
        }
        // Old operations without a mask go in the order of the program, together with these.
        let old = cuts.iter().any(|cut| cut.legacy && is_exchange(cut.kind));
        if old || !phases.begins_plainly(func, flow) {
            phases.converging = 0;
        }
        phases.find_split(flow, shapes, &copies);
        Some((phases, copies))
    }

    /// How a block stops.
    pub(super) fn stop(&self, number: usize) -> Option<Stop> {
        self.stops.get(&number).copied()
    }

    /// Whether a part of a group may go on from a cut.
    pub(super) fn is_split(&self, cut: u32) -> bool {
        self.split & bit(cut) != 0
    }

    /// Whether it does not matter who goes through what comes before the dispatch: nothing is written there but which thread runs.
    fn begins_plainly(&self, func: &Function, flow: &Flow) -> bool {
        let block = func.dfg.block_params(flow.entry)[2];
        let blocks = (0..flow.exit()).filter(|&number| self.before[number]);
        let mut insts = blocks.flat_map(|number| func.layout.block_insts(flow.blocks[number]));
        insts.all(|inst| match func.dfg.insts[inst] {
            InstructionData::Store { opcode: Opcode::Store, args: [_, address], offset, .. } => {
                func.dfg.resolve_aliases(address) == block
                    && i32::from(offset) as usize == offset_of!(Block, cursor)
            }
            ref data => !data.opcode().can_store() && !data.opcode().is_call(),
        })
    }

    /// Finds the cuts from which a part of a group may go on: it has come there apart from the rest, or has gone on from another such cut.
    fn find_split(&mut self, flow: &Flow, shapes: &Shapes, copies: &[Behind]) {
        loop {
            let comes_apart = |number: usize| {
                let mut split = copies.iter().filter(|(cut, _)| self.is_split(*cut));
                shapes.partial[number] || split.any(|(_, places)| places.contains(&flow.place[number]))
            };
            let found = self.stops.iter().filter_map(|(&number, &stop)| match stop {
                Stop::Converge(cut) if self.converging & bit(cut) != 0 && comes_apart(number) => {
                    Some(bit(cut))
                }
                _ => None,
            });
            let split = found.fold(0, |set, bit| set | bit);
            if std::mem::replace(&mut self.split, split) == split {
                return;
            }
        }
    }

    /// The places of what threads do behind a cut, to their next stop.
    fn behind(&self, flow: &Flow, cut: u32) -> Option<Vec<usize>> {
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
        Some((0..flow.order.len()).filter(|&place| has[flow.order[place]]).collect())
    }
}

/// The blocks that threads go through to the dispatch, and itself.
fn before(flow: &Flow, dispatch: usize) -> Vec<bool> {
    let mut has = vec![false; flow.exit()];
    let mut open = vec![0];
    while let Some(number) = open.pop() {
        if number < flow.exit() && !std::mem::replace(&mut has[number], true) && number != dispatch {
            open.extend(flow.successors(number));
        }
    }
    has
}

/// Whether an operation gives all lanes of a warp what depends on the operands of all.
fn is_exchange(kind: CutKind) -> bool {
    matches!(
        kind,
        CutKind::Shuffle(_)
            | CutKind::Vote(_)
            | CutKind::MatchAny
            | CutKind::MatchAll
            | CutKind::Redux(_)
            | CutKind::Elect
            | CutKind::ActiveMask
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
    let name = || known(OP).filter(|name| (0..16).contains(name) && known(OP + 8) == Some(0));
    let named = !cut.legacy && known(OP + 8 * MASK).is_none_or(|mask| mask as u32 != !0);
    match cut.kind {
        CutKind::Barrier => Some((Stop::Barrier(stop), name()?)),
        CutKind::BarrierReduce(_) => name().map(|_| (Stop::Reduce(stop), 0)),
        CutKind::WarpSync if cut.legacy => Some((Stop::Converge(stop), 0)),
        CutKind::WarpSync => Some((Stop::Warp(stop, named), 0)),
        kind if is_exchange(kind) => Some((Stop::Exchange(stop, named), 0)),
        _ => None,
    }
}

impl Translator<'_> {
    /// What is known of the barriers.
    fn phases(&self) -> Result<&Phases, Refusal> {
        self.phases.as_ref().ok_or_else(|| "no phases".into())
    }

    /// Which edge of a block is taken in the copy that is being written, where that is known before, and by which lanes, as bits.
    pub(super) fn enters(&mut self, number: usize) -> Option<(usize, String)> {
        let phases = self.phases.as_ref()?;
        let cut = self.copies[self.copy].enters.filter(|_| number == phases.dispatch)?;
        let lanes = if phases.is_split(cut) { self.lanes_that_go() } else { self.bits.clone() };
        Some((edge_of(cut), lanes))
    }

    /// Whether a part of a group may be in a block of the copy that is being written.
    pub(super) fn is_partial(&self, number: usize) -> bool {
        let copy = self.copies[self.copy].enters.zip(self.phases.as_ref());
        let split = copy.is_some_and(|(cut, phases)| phases.is_split(cut) && !phases.before[number]);
        split || self.shapes.partial[number]
    }

    /// The lanes of the group that go through the copy which is being written, as bits.
    pub(super) fn lanes_that_go(&mut self) -> String {
        let group = self.make("load i64, ptr %group");
        let at = self.make(format!("getelementptr i8, ptr %goes, i64 {group}"));
        self.make(format!("load i{LANES}, ptr {at}"))
    }

    /// All copies, and what leads from one to another. `end` is the end of the threads.
    pub(super) fn all_phases(&mut self, end: &str) -> Result<(), Refusal> {
        let rows = self.phases()?.cuts + 1;
        self.places.push_str(&format!(
            "%waits = alloca [{rows} x {WORDS}], align 32\n%goes = alloca {WORDS}, align 32\n\
             %stops = alloca i128\n%turns = alloca i32\n%warp = alloca i64\n%chosen = alloca i64\n%made = alloca i32\n%rest = alloca i128\n%some = alloca i64\n"
        ));
        for row in 0..rows {
            let at = self.make(format!("getelementptr {WORDS}, ptr %waits, i64 {row}"));
            self.line(format!("store {WORDS} zeroinitializer, ptr {at}, align 32"));
        }
        let sides: Vec<String> = (0..3)
            .map(|side| {
                let at = self.pointer("%a2", (offset_of!(Block, ntid) + 4 * side) as i64);
                self.make(format!("load i32, ptr {at}, align 4"))
            })
            .collect();
        let plane = self.make(format!("mul i32 {}, {}", sides[0], sides[1]));
        let all = self.make(format!("mul i32 {plane}, {}", sides[2]));
        let mut whole = self.make(format!("icmp eq i32 %a1, {all}"));
        let rest = self.make(format!("and i32 %a1, {}", abi::WARP - 1));
        self.line(format!("%warps = icmp eq i32 {rest}, 0"));
        if self.phases()?.exchanges | self.phases()?.named != 0 {
            whole = self.make(format!("and i1 {whole}, %warps"));
        }
        let at = self.pointer("%a2", offset_of!(Block, together) as i64);
        let known = self.make(format!("load i32, ptr {at}, align 4"));
        let words = self.make(format!("add i32 %a1, {}", abi::WARP - 1));
        let words = self.make(format!("lshr i32 {words}, {}", abi::WARP.trailing_zeros()));
        self.line(format!("%words = zext i32 {words} to i64"));
        self.line(format!("store i128 0, ptr %stops\nstore i32 {TURNS}, ptr %turns"));
        self.all_go();
        self.line(format!("br i1 {whole}, label %known, label %copy0"));
        self.begin("known");
        self.go_on_behind(&known, "copy0");
        for copy in 0..self.copies.len() {
            self.one_copy(copy, end)?;
            self.line("br label %next");
        }
        self.choose(&whole)?;
        self.begin("leave");
        // Where all threads of the block have ended, that is all that the executor wants to know.
        let stops = self.make("load i128, ptr %stops");
        let ended = self.make(format!("icmp eq i128 {stops}, {ENDED}"));
        let gone = self.make(format!("and i1 {ended}, {whole}"));
        self.line(format!("br i1 {gone}, label %gone, label %stay"));
        self.begin("stay");
        self.settle(end)?;
        let lowest = self.lowest(&stops);
        let number = self.make(format!("trunc i64 {lowest} to i32"));
        let one = self.is_one_bit(&stops);
        let known = self.make(format!("icmp sge i128 {stops}, 0"));
        let alike = self.make(format!("and i1 {one}, {known}"));
        let number = self.make(format!("select i1 {alike}, i32 {number}, i32 {}", abi::APART));
        self.line(format!("store i32 {number}, ptr %together\nbr label %told"));
        self.begin("gone");
        // No thread has a row that says how it stopped, so none is the last one that ran.
        let at = self.pointer("%a2", offset_of!(Block, cursor) as i64);
        self.line(format!("store ptr null, ptr {at}\nstore i32 {}, ptr %together", abi::STOP_EXIT));
        self.line("br label %told");
        self.begin("told");
        self.tell_together();
        self.line("ret void");
        Ok(())
    }

    /// Chooses which copy is next, and for whom.
    fn choose(&mut self, whole: &str) -> Result<(), Refusal> {
        let Phases { barriers, of_warps, converging, named, .. } = *self.phases()?;
        self.begin("next");
        let left = self.make("load i32, ptr %turns");
        let left = self.make(format!("sub i32 {left}, 1"));
        self.line(format!("store i32 {left}, ptr %turns"));
        let more = self.make(format!("icmp ne i32 {left}, 0"));
        let stops = self.make("load i128, ptr %stops");
        let known = self.make(format!("icmp sge i128 {stops}, 0"));
        let more = self.make(format!("and i1 {more}, {whole}"));
        let more = self.make(format!("and i1 {more}, {known}"));
        self.line(format!("br i1 {more}, label %look, label %leave"));

        self.begin("look");
        let one = self.is_one_bit(&stops);
        self.line(format!("br i1 {one}, label %all.stop, label %look.converging"));
        // All threads have stopped alike.
        self.begin("all.stop");
        let number = self.lowest(&stops);
        let ended = self.make(format!("icmp eq i64 {number}, {}", abi::STOP_EXIT));
        self.line(format!("br i1 {ended}, label %gone, label %all.look"));
        self.begin("all.look");
        let one_by_one = self.is_among(&number, named);
        self.line(format!("br i1 {one_by_one}, label %look.others, label %all.go"));
        self.begin("all.go");
        self.line("store i128 0, ptr %stops");
        let row = self.make(format!("getelementptr {WORDS}, ptr %waits, i64 {number}"));
        self.line(format!("store {WORDS} zeroinitializer, ptr {row}, align 32"));
        self.all_go();
        self.line(format!("store i64 {number}, ptr %chosen\nbr label %all.exchange"));

        // Lanes of a warp go on without the others of which some may have come farther: those first that are the least far.
        self.begin("look.converging");
        let found = self.make(format!("and i128 {stops}, {}", converging as i128));
        let any = self.make(format!("icmp ne i128 {found}, 0"));
        self.line(format!("br i1 {any}, label %some.stop, label %look.barrier"));
        self.begin("some.stop");
        let number = self.lowest(&found);
        let rest = self.make(format!("sub i128 {found}, 1"));
        let rest = self.make(format!("and i128 {found}, {rest}"));
        let own = self.make(format!("xor i128 {found}, {rest}"));
        let stops_left = self.make(format!("xor i128 {stops}, {own}"));
        self.line(format!("store i128 {stops_left}, ptr %stops"));
        self.each_warp("converge", &number, |t, waiting, at| {
            t.line(format!("store i32 0, ptr {at}"));
            Ok(waiting.to_owned())
        })?;
        self.line(format!("store i64 {number}, ptr %chosen\nbr label %some.exchange"));

        // All that have not ended are at one barrier, and no group has ended in part.
        self.begin("look.barrier");
        self.line("br i1 %warps, label %look.others, label %leave");
        self.begin("look.others");
        let others = self.make(format!("and i128 {stops}, {}", !ENDED as i128));
        let one = self.is_one_bit(&others);
        let found = self.make(format!("and i128 {others}, {}", barriers as i128));
        let any = self.make(format!("icmp ne i128 {found}, 0"));
        let one = self.make(format!("and i1 {one}, {any}"));
        self.line(format!("br i1 {one}, label %block.stop, label %look.warps"));
        self.begin("block.stop");
        let number = self.lowest(&others);
        self.line("store i64 0, ptr %some");
        self.each_warp("block", &number, |t, waiting, _| {
            let first = t.make(format!("and i32 {waiting}, {}", 0x0101_0101));
            let all = t.make(format!("mul i32 {first}, {}", 0xff));
            let parts = t.make(format!("xor i32 {all}, {waiting}"));
            let parts = t.make(format!("zext i32 {parts} to i64"));
            let before = t.make("load i64, ptr %some");
            let parts = t.make(format!("or i64 {before}, {parts}"));
            t.line(format!("store i64 {parts}, ptr %some"));
            Ok(waiting.to_owned())
        })?;
        let parts = self.make("load i64, ptr %some");
        let any = self.make(format!("icmp ne i64 {parts}, 0"));
        self.line(format!("br i1 {any}, label %leave, label %block.go"));
        self.begin("block.go");
        let row = self.make(format!("getelementptr {WORDS}, ptr %waits, i64 {number}"));
        self.line(format!("store {WORDS} zeroinitializer, ptr {row}, align 32"));
        let ended = self.make(format!("and i128 {stops}, {ENDED}"));
        self.line(format!("store i128 {ended}, ptr %stops"));
        self.line(format!("store i64 {number}, ptr %chosen\nbr label %some.exchange"));

        // What whole warps do: those of them go on that are there whole.
        self.begin("look.warps");
        let found = self.make(format!("and i128 {others}, {}", of_warps as i128));
        self.line(format!("store i128 {found}, ptr %rest\nbr label %warps.look"));
        self.begin("warps.look");
        let found = self.make("load i128, ptr %rest");
        let any = self.make(format!("icmp ne i128 {found}, 0"));
        self.line(format!("br i1 {any}, label %warps.stop, label %leave"));
        self.begin("warps.stop");
        let number = self.lowest(&found);
        let next = self.make(format!("sub i128 {found}, 1"));
        let next = self.make(format!("and i128 {found}, {next}"));
        let own = self.make(format!("xor i128 {found}, {next}"));
        // In the lower half whether a warp goes on, in the upper one whether lanes stay.
        self.line(format!("store i128 {next}, ptr %rest\nstore i64 0, ptr %some"));
        let by_name = self.is_among(&number, named);
        self.each_warp("warps", &number, |t, waiting, at| {
            let is_whole = t.make(format!("icmp eq i32 {waiting}, -1"));
            let goes = t.make(format!("sext i1 {is_whole} to i32"));
            let goes = if named == 0 { goes } else { t.exchange_by_name(&goes, &by_name, &number)? };
            let stays = t.make(format!("xor i32 {waiting}, {goes}"));
            t.line(format!("store i32 {stays}, ptr {at}"));
            let low = t.make(format!("zext i32 {goes} to i64"));
            let high = t.make(format!("zext i32 {stays} to i64"));
            let high = t.make(format!("shl i64 {high}, 32"));
            let before = t.make("load i64, ptr %some");
            let low = t.make(format!("or i64 {before}, {low}"));
            let both = t.make(format!("or i64 {low}, {high}"));
            t.line(format!("store i64 {both}, ptr %some"));
            Ok(goes)
        })?;
        let both = self.make("load i64, ptr %some");
        let goes = self.make(format!("trunc i64 {both} to i32"));
        let any = self.make(format!("icmp ne i32 {goes}, 0"));
        self.line(format!("br i1 {any}, label %warps.go, label %warps.look"));
        self.begin("warps.go");
        let stays = self.make(format!("icmp ugt i64 {both}, {}", u32::MAX));
        let without = self.make(format!("xor i128 {stops}, {own}"));
        let left = self.make(format!("select i1 {stays}, i128 {stops}, i128 {without}"));
        self.line(format!("store i128 {left}, ptr %stops"));
        self.line(format!("store i64 {number}, ptr %chosen\nbr label %some.exchange"));
        self.go_on()
    }

    /// Goes on behind the stop that was chosen, when the warps that go on have made the operation that they have come to there.
    fn go_on(&mut self) -> Result<(), Refusal> {
        let Phases { exchanges, reduces, .. } = *self.phases()?;
        self.begin("all.exchange");
        let number = self.make("load i64, ptr %chosen");
        let exchange = self.is_among(&number, exchanges | reduces);
        self.line(format!("br i1 {exchange}, label %all.make, label %go"));
        self.begin("all.make");
        self.exchange("%a0", "%a1");
        self.line("br label %go");
        self.begin("some.exchange");
        let number = self.make("load i64, ptr %chosen");
        let exchange = self.is_among(&number, exchanges);
        self.line("store i64 0, ptr %warp");
        self.line(format!("br i1 {exchange}, label %some.each, label %go"));
        self.begin("some.each");
        let warp = self.make("load i64, ptr %warp");
        let at = self.make(format!("getelementptr i32, ptr %goes, i64 {warp}"));
        let goes = self.make(format!("load i32, ptr {at}"));
        let any = self.make(format!("icmp ne i32 {goes}, 0"));
        self.line(format!("br i1 {any}, label %some.make, label %some.next"));
        self.begin("some.make");
        let bytes = self.make(format!("mul i64 {warp}, {}", abi::WARP * size_of::<Thread>()));
        let first = self.make(format!("add i64 %a0, {bytes}"));
        self.exchange(&first, &abi::WARP.to_string());
        self.line("br label %some.next");
        self.begin("some.next");
        self.next_warp(&warp, "some.each", "go");
        self.begin("go");
        let number = self.make("load i64, ptr %chosen");
        let number = self.make(format!("trunc i64 {number} to i32"));
        self.go_on_behind(&number, "leave");
        Ok(())
    }

    /// Whether the number of a stop is in a set.
    fn is_among(&mut self, number: &str, set: u128) -> String {
        let number = self.make(format!("zext i64 {number} to i128"));
        let own = self.make(format!("shl i128 1, {number}"));
        let found = self.make(format!("and i128 {own}, {}", set as i128));
        self.make(format!("icmp ne i128 {found}, 0"))
    }

    /// All lanes go through the next copy.
    fn all_go(&mut self) {
        let all = vec!["i32 -1"; MOST_GROUPS * LANES / abi::WARP].join(", ");
        self.line(format!("store {WORDS} <{all}>, ptr %goes, align 32"));
    }

    /// Goes through the warps of the block: `make` is given which lanes of one wait at a cut, as bits, and where that is noted, and says which of them
    /// go on.
    fn each_warp(
        &mut self,
        name: &str,
        number: &str,
        make: impl FnOnce(&mut Self, &str, &str) -> Result<String, Refusal>,
    ) -> Result<(), Refusal> {
        let row = self.make(format!("getelementptr {WORDS}, ptr %waits, i64 {number}"));
        self.line(format!("store i64 0, ptr %warp\nbr label %{name}.each"));
        self.begin(&format!("{name}.each"));
        let warp = self.make("load i64, ptr %warp");
        let at = self.make(format!("getelementptr i32, ptr {row}, i64 {warp}"));
        let waiting = self.make(format!("load i32, ptr {at}"));
        let goes = make(self, &waiting, &at)?;
        let at = self.make(format!("getelementptr i32, ptr %goes, i64 {warp}"));
        self.line(format!("store i32 {goes}, ptr {at}"));
        self.next_warp(&warp, &format!("{name}.each"), &format!("{name}.done"));
        self.begin(&format!("{name}.done"));
        Ok(())
    }

    /// Goes on with the next warp, as long as there is one.
    fn next_warp(&mut self, warp: &str, each: &str, done: &str) {
        let next = self.make(format!("add i64 {warp}, 1"));
        self.line(format!("store i64 {next}, ptr %warp"));
        let more = self.make(format!("icmp ult i64 {next}, %words"));
        self.line(format!("br i1 {more}, label %{each}, label %{done}"));
    }

    /// Whether a set of stops has one at most.
    fn is_one_bit(&mut self, stops: &str) -> String {
        let less = self.make(format!("sub i128 {stops}, 1"));
        let rest = self.make(format!("and i128 {stops}, {less}"));
        self.make(format!("icmp eq i128 {rest}, 0"))
    }

    /// The number of the first stop of a set.
    fn lowest(&mut self, stops: &str) -> String {
        self.declared.insert("declare i128 @llvm.cttz.i128(i128, i1)\n".into());
        let number = self.make(format!("call i128 @llvm.cttz.i128(i128 {stops}, i1 false)"));
        self.make(format!("trunc i128 {number} to i64"))
    }

    /// Has the warps of some threads make the operation that they have come to.
    fn exchange(&mut self, first: &str, count: &str) {
        let number = self.make("load i64, ptr %chosen");
        let cut = self.make(format!("trunc i64 {number} to i32"));
        let helper = self.function(self.own.helpers.exchange);
        let callee = self.make(format!("inttoptr i64 {helper} to ptr"));
        self.line(format!("call void {callee}(i64 %a2, i64 {first}, i32 {count}, i32 {cut})"));
    }

    /// Has a warp make an operation that each of its lanes makes with those whom it names, if it is one. Which lanes go on then: none where they do
    /// not name each other.
    fn exchange_by_name(&mut self, goes: &str, by_name: &str, number: &str) -> Result<String, Refusal> {
        self.line(format!("store i32 {goes}, ptr %made"));
        let any = self.make(format!("icmp ne i32 {goes}, 0"));
        let make = self.make(format!("and i1 {any}, {by_name}"));
        self.line(format!("br i1 {make}, label %name.make, label %name.made"));
        self.begin("name.make");
        let warp = self.make("load i64, ptr %warp");
        let bytes = self.make(format!("mul i64 {warp}, {}", abi::WARP * size_of::<Thread>()));
        let first = self.make(format!("add i64 %a0, {bytes}"));
        let cut = self.make(format!("trunc i64 {number} to i32"));
        let helper = self.function(self.own.helpers.exchange_by_name);
        let callee = self.make(format!("inttoptr i64 {helper} to ptr"));
        let made = self.make(format!("call i32 {callee}(i64 %a2, i64 {first}, i32 {cut})"));
        let lanes = self.make(format!("sub i32 0, {made}"));
        self.line(format!("store i32 {lanes}, ptr %made\nbr label %name.made"));
        self.begin("name.made");
        Ok(self.make("load i32, ptr %made"))
    }

    /// Goes to the copy behind a stop, or elsewhere if there is none.
    fn go_on_behind(&mut self, stopped: &str, elsewhere: &str) {
        let copies = self.copies.iter().enumerate().filter_map(|(n, copy)| Some((n, copy.enters?)));
        let copies: Vec<String> = copies.map(|(n, cut)| format!("i32 {cut}, label %copy{n}")).collect();
        self.line(format!("switch i32 {stopped}, label %{elsewhere} [ {} ]", copies.join(" ")));
    }

    /// The lanes that are there stop in a way that is known: nothing is written into their row yet.
    pub(super) fn stop_late(&mut self, stop: Stop) {
        let number = stop.number();
        let at = self.waiting(&number.to_string());
        let mut lanes = self.bits.clone();
        if self.mask.is_some() {
            let before = self.make(format!("load i{LANES}, ptr {at}"));
            lanes = self.make(format!("or i{LANES} {before}, {lanes}"));
        }
        self.line(format!("store i{LANES} {lanes}, ptr {at}"));
        self.note(bit(number));
    }

    /// The lanes that are there stop in a way that is not known: what they leave is in their row.
    pub(super) fn stop_at_once(&mut self) {
        self.note(ELSEWHERE);
    }

    /// Notes that there are lanes which have stopped so.
    fn note(&mut self, stop: u128) {
        let before = self.make("load i128, ptr %stops");
        let after = self.make(format!("or i128 {before}, {}", stop as i128));
        self.line(format!("store i128 {after}, ptr %stops"));
    }

    /// Where it is noted which lanes of the group wait at a cut.
    fn waiting(&mut self, number: &str) -> String {
        let row = self.make(format!("getelementptr {WORDS}, ptr %waits, i64 {number}"));
        let group = self.make("load i64, ptr %group");
        self.make(format!("getelementptr i8, ptr {row}, i64 {group}"))
    }

    /// Writes into the rows what is missing there.
    fn settle(&mut self, end: &str) -> Result<(), Refusal> {
        let Phases { exchanges, named, masks, reduces, ref names, .. } = *self.phases()?;
        let names = names.clone();
        self.begin_groups("%a0", "settle");
        let first = self.make("load i64, ptr %first");
        let row = self.row_address(&first);
        let stops = self.make("load i128, ptr %stops");
        let known = self.make(format!("and i128 {stops}, {}", !ELSEWHERE as i128));
        self.line(format!("store i128 {known}, ptr %rest\nbr label %late"));
        self.begin("late");
        let rest = self.make("load i128, ptr %rest");
        let any = self.make(format!("icmp ne i128 {rest}, 0"));
        self.line(format!("br i1 {any}, label %late.one, label %settled"));
        self.begin("late.one");
        let number = self.lowest(&rest);
        let less = self.make(format!("sub i128 {rest}, 1"));
        let less = self.make(format!("and i128 {rest}, {less}"));
        self.line(format!("store i128 {less}, ptr %rest"));
        let at = self.waiting(&number);
        let lanes = self.make(format!("load i{LANES}, ptr {at}"));
        let any = self.make(format!("icmp ne i{LANES} {lanes}, 0"));
        self.line(format!("br i1 {any}, label %late.stop, label %late"));
        self.begin("late.stop");
        let mask = self.mask_of(&lanes);
        let one = self.make(format!("trunc i64 {number} to i32"));
        let numbers = self.in_all_lanes("i32", &one);
        self.blend(&row, offset_of!(Row, stop), "i32", &numbers, &mask);
        let ended = self.make(format!("icmp eq i32 {one}, {}", abi::STOP_EXIT));
        self.line(format!("br i1 {ended}, label %late, label %late.cut"));
        self.begin("late.cut");
        self.blend(&row, offset_of!(Row, resume), "i32", &numbers, &mask);
        let operand = |n: usize| offset_of!(Row, op) + 8 * LANES * n;
        let has_mask = self.is_among(&number, masks);
        self.line(format!("br i1 {has_mask}, label %late.masked, label %late.mask"));
        self.begin("late.mask");
        self.blend(&row, operand(MASK), "i64", &all_lanes("i64", u32::MAX), &mask);
        self.line("br label %late.masked");
        self.begin("late.masked");
        let has_operands = self.is_among(&number, exchanges | named | reduces);
        self.line(format!("br i1 {has_operands}, label %late, label %late.name"));
        self.begin("late.name");
        let mut name = "0".to_owned();
        for (cut, other) in names {
            let here = self.make(format!("icmp eq i64 {number}, {cut}"));
            name = self.make(format!("select i1 {here}, i64 {other}, i64 {name}"));
        }
        let names = self.in_all_lanes("i64", &name);
        self.blend(&row, operand(0), "i64", &names, &mask);
        self.blend(&row, operand(1), "i64", "zeroinitializer", &mask);
        self.line("br label %late");
        self.begin("settled");
        self.end_groups(end, "settle", "done");
        Ok(())
    }

    /// Writes what some lanes leave into a row.
    fn blend(&mut self, row: &str, offset: usize, ty: &str, new: &str, mask: &str) {
        let at = self.pointer(row, offset as i64);
        let all = format!("<{LANES} x {ty}>");
        let old = self.make(format!("load {all}, ptr {at}, align 32"));
        let both = self.make(format!("select <{LANES} x i1> {mask}, {all} {new}, {all} {old}"));
        self.line(format!("store {all} {both}, ptr {at}, align 32"));
    }
}
