//! Kernels whose threads wait for each other at barriers: all groups of threads of a block go from one stop to the next by one loop, without the
//! executor.
//!
//! What lies between stops is a *phase*: what threads do from where they go on to their next stop. The code has a copy of it for each
//! cut, in which it is known where the groups come from, and one in which it is not, for threads that the executor has run one by one. It
//! is noted which lanes wait at which cut. From that follows what copy is next, and for which groups: a barrier of the block lets all go on once
//! all that have not ended are there; what whole warps do together, those warps that have come whole; and where a warp waits for whoever
//! comes, these lanes. Where that is not enough, the executor goes on. What it would find in the rows of the groups, had it
//! been called, is written there only when it is.

mod write;

use std::collections::{BTreeMap, HashMap};
use std::mem::offset_of;

use cranelift_codegen::ir::{Function, InstructionData, Opcode, Type};

use super::flow::Flow;
use super::rows::stored_field;
use super::shape::{Shape, Shapes, Span, UNIFORM, constant, thread_field};
use crate::abi::{self, Block, Cut, CutKind, Thread};

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
    /// The values of the state that are the same in all threads of a block which wait at a cut, by their offsets there, and their types.
    common: BTreeMap<i32, Type>,
}

/// All copies together have at most so many instructions.
const MOST_INSTRUCTIONS: usize = 6000;
/// A kernel has at most so many cuts: each has a bit in a word, beside [`ENDED`] and [`ELSEWHERE`].
const MOST_CUTS: usize = 120;
/// The bit of lanes that have ended.
const ENDED: u128 = 1 << abi::STOP_EXIT;
/// The bit of lanes that have stopped in a way which is not known.
const ELSEWHERE: u128 = 1 << 127;
/// The operands of a cut, and the one among them that names the lanes which wait for each other.
pub(super) const OP: usize = offset_of!(Thread, op);
const MASK: usize = 3;

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
            waits || cut.kind.yields() || is_exchange(cut.kind)
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
            common: BTreeMap::new(),
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
                Stop::Warp(cut, named) | Stop::Exchange(cut, named) => {
                    phases.of_warps |= bit(cut);
                    if named {
                        phases.masks |= bit(cut);
                    }
                    if matches!(stop, Stop::Exchange(..)) {
                        let set = if named { &mut phases.named } else { &mut phases.exchanges };
                        *set |= bit(cut);
                    }
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
        phases.find_common(func, flow, shapes);
        Some((phases, copies))
    }

    /// Finds the values of the state that one place is enough for. Warps that go on without others have values of their own.
    fn find_common(&mut self, func: &Function, flow: &Flow, shapes: &Shapes) {
        if self.of_warps | self.converging != 0 {
            return;
        }
        let Ok(whole) = Shapes::new(func, flow, shapes.state_bytes, Span::Block) else { return };
        let is_common = |&(offset, cell): &(&i32, &(Shape, Type))| {
            cell.0 == UNIFORM && shapes.cells.get(offset).is_some_and(|own| own.0 == UNIFORM)
        };
        let common = whole.cells.iter().filter(is_common);
        self.common = common.map(|(&offset, &(_, ty))| (offset, ty)).collect();
    }

    /// Whether one place is enough for a value of the state.
    pub(super) fn is_common(&self, offset: i32) -> bool {
        self.common.contains_key(&offset)
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
