//! Loops with the stride of the whole grid, which all groups of threads of a block go through side by side.
//!
//! In such a loop the threads of a block access memory that lies together, and in the next round memory that lies far from it. On a GPU all warps go
//! through it at about the same time. If one group of threads went through all of it before the next, each line of memory would be fetched
//! several times, and by accesses that no processor foresees. So the code is divided into segments: what comes before such a loop, one round of it,
//! and what comes behind it. Each segment is run for some groups in turn, and what a group has to keep from one segment to another
//! lies in an array with a place for each of them.

use std::mem::offset_of;
use std::ops::Range;

use cranelift_codegen::ir::{Function, InstructionData, Opcode, Value, ValueDef};

use super::LANES;
use super::flow::{Flow, Refusal};
use super::rows::NOBODY;
use super::translate::{FULL, Form, Translator};
use crate::abi::{Block, Thread};

/// Part of the order of blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    /// The places of its blocks, in their order.
    pub places: Vec<usize>,
    /// If it is what all threads of a block do behind a cut: the number of that, or 0 for the kernel's beginning.
    pub enters: Option<u32>,
    /// The first block of the loop that it is one round of, if it is that.
    pub header: Option<usize>,
    /// Then: how often the grid's stride is added in a round.
    pub strides: u32,
}

impl Segment {
    /// What is no loop.
    pub(super) fn plain(places: Range<usize>) -> Self {
        Self { places: places.collect(), enters: None, header: None, strides: 0 }
    }
}

/// How many groups go through a segment before the next begins.
pub(super) const SIDE_BY_SIDE: usize = 32;

/// From the first thread of a group to that of the next one.
const GROUP_BYTES: usize = size_of::<Thread>() * LANES;

/// Larger loops compute more than they access.
const LONG: usize = 300;
/// What groups may leave between segments, so that it stays in the nearest cache.
const MOST_BYTES: usize = 16 << 10;
/// As many operations are looked through for what a loop's step is made of.
const DEPTH: usize = 8;

/// Divides a kernel's code.
pub(super) fn segments(func: &Function, flow: &Flow) -> Vec<Segment> {
    let mut rounds: Vec<Segment> = Vec::new();
    for (number, l) in flow.loops.iter().enumerate() {
        let alone = flow.loops.iter().enumerate().all(|(other, o)| {
            other == number || flow.order.iter().all(|&block| !(l.has[block] && o.has[block]))
        });
        let places = flow.place[l.header]..l.last + 1;
        let blocks = || places.clone().map(|place| flow.order[place]);
        let size: usize = blocks().map(|b| func.layout.block_insts(flow.blocks[b]).count()).sum();
        let cut = blocks().any(|block| flow.cuts[block]);
        let mut insts = blocks().flat_map(|block| func.layout.block_insts(flow.blocks[block]));
        // What is done lane by lane takes longer than memory.
        let slow = insts.any(|inst| {
            let opcode = func.dfg.insts[inst].opcode();
            opcode.is_call() || matches!(opcode, Opcode::AtomicRmw | Opcode::AtomicCas)
        });
        if alone && !cut && !slow && places.start > 0 && size <= LONG {
            let strides = strides(func, flow, l.header);
            if strides > 0 {
                rounds.push(Segment { header: Some(l.header), strides, ..Segment::plain(places) });
            }
        }
    }
    rounds.sort_by_key(|round| round.places[0]);
    let mut segments = Vec::new();
    let mut at = 0;
    for round in rounds {
        if round.places[0] > at {
            segments.push(Segment::plain(at..round.places[0]));
        }
        at = round.places[0] + round.places.len();
        segments.push(round);
    }
    if at < flow.order.len() {
        segments.push(Segment::plain(at..flow.order.len()));
    }
    // They are counted in the bits of a word.
    if segments.len() > 60 { Vec::new() } else { segments }
}

/// How often in a round of a loop something goes up by what depends on the number of the grid's blocks.
fn strides(func: &Function, flow: &Flow, header: usize) -> u32 {
    let params = func.dfg.block_params(flow.blocks[header]);
    let edges = flow.edges.iter().enumerate().flat_map(|(from, edges)| edges.iter().map(move |e| (from, e)));
    let back = edges.filter(|(from, edge)| edge.to == header && flow.is_back(*from, header));
    let pairs = back.flat_map(|(_, edge)| params.iter().zip(&edge.args));
    pairs.filter_map(|(&param, &next)| added(func, flow, next, param, DEPTH)).max().unwrap_or(0)
}

/// How often to a parameter what depends on the number of the grid's blocks was added, if nothing but additions made a value of it.
fn added(func: &Function, flow: &Flow, value: Value, param: Value, depth: usize) -> Option<u32> {
    let value = func.dfg.resolve_aliases(value);
    if value == param {
        return Some(0);
    }
    let ValueDef::Result(inst, _) = func.dfg.value_def(value) else { return None };
    let InstructionData::Binary { opcode: Opcode::Iadd, args: [a, b] } = func.dfg.insts[inst] else {
        return None;
    };
    let depth = depth.checked_sub(1)?;
    [(a, b), (b, a)].into_iter().find_map(|(from, by)| {
        let known = added(func, flow, from, param, depth)?;
        Some(known + u32::from(counts_blocks(func, flow, by, DEPTH)))
    })
}

/// Whether a value is computed from the number of the grid's blocks, by a few operations.
fn counts_blocks(func: &Function, flow: &Flow, value: Value, depth: usize) -> bool {
    const X: usize = offset_of!(Block, nctaid);
    const END: usize = X + size_of::<[u32; 3]>();
    let value = func.dfg.resolve_aliases(value);
    let ValueDef::Result(inst, _) = func.dfg.value_def(value) else { return false };
    if let InstructionData::Load { opcode: Opcode::Load, arg, offset, .. } = func.dfg.insts[inst] {
        let block = func.dfg.block_params(flow.entry)[2];
        let offset = usize::try_from(i32::from(offset)).unwrap_or(usize::MAX);
        return func.dfg.resolve_aliases(arg) == block && (X..END).contains(&offset);
    }
    depth > 0 && func.dfg.inst_args(inst).iter().any(|&arg| counts_blocks(func, flow, arg, depth - 1))
}

impl Translator<'_> {
    /// The loop over groups of threads.
    pub(super) fn groups(&mut self) -> Result<(), Refusal> {
        for (number, _) in self.flow.blocks.iter().enumerate() {
            self.places.push_str(&format!("%m{number} = alloca i{LANES}\n"));
        }
        for number in self.crossings() {
            self.places.push_str(&format!("%k{number} = alloca [{SIDE_BY_SIDE} x i{LANES}]\n"));
        }
        self.places.push_str("%first = alloca i64\n%row = alloca i64\n%together = alloca i32\n");
        self.places.push_str("%begin = alloca i64\n%group = alloca i64\n%again = alloca i1\n");
        self.line(format!("store i32 {NOBODY}, ptr %together"));
        let at = self.pointer("%a2", offset_of!(Block, ntid) as i64);
        let width = self.make(format!("load i32, ptr {at}, align 4"));
        self.line(format!("%width = zext i32 {width} to i64"));
        let at = self.pointer("%a2", offset_of!(Block, nctaid) as i64);
        let blocks = self.make(format!("load i32, ptr {at}, align 4"));
        let blocks = self.make(format!("zext i32 {blocks} to i64"));
        self.line(format!("%stride = mul i64 %width, {blocks}"));
        let count = self.make("zext i32 %a1 to i64");
        let bytes = self.make(format!("mul i64 {count}, {}", size_of::<Thread>()));
        let end = self.make(format!("add i64 %a0, {bytes}"));
        if self.phases.is_some() {
            return self.all_phases(&end);
        }
        self.line("store i64 %a0, ptr %begin\nbr label %some");
        // Some groups, that go through all segments.
        self.begin("some");
        let begin = self.make("load i64, ptr %begin");
        let stop = if self.segments.len() == 1 {
            end.clone()
        } else {
            let left = self.make(format!("sub i64 {end}, {begin}"));
            let most = SIDE_BY_SIDE * GROUP_BYTES;
            let fewer = self.make(format!("icmp ult i64 {left}, {most}"));
            let bytes = self.make(format!("select i1 {fewer}, i64 {left}, i64 {most}"));
            self.make(format!("add i64 {begin}, {bytes}"))
        };
        for segment in 0..self.segments.len() {
            self.segment = segment;
            self.line(format!("br label %r{segment}"));
            self.one_segment(&begin, &stop)?;
        }
        self.line(format!("store i64 {stop}, ptr %begin"));
        let more = self.make(format!("icmp ne i64 {stop}, {end}"));
        self.line(format!("br i1 {more}, label %some, label %done"));
        self.begin("done");
        self.tell_together();
        self.line("ret void");
        Ok(())
    }

    /// Has the groups of some threads go through a segment.
    pub(super) fn one_segment(&mut self, begin: &str, stop: &str) -> Result<(), Refusal> {
        let n = self.segment;
        let Segment { places, header, .. } = self.segments[n].clone();
        // Between barriers, nothing but the threads' states goes from one segment to another.
        let is_phase = self.phases.is_some();
        let is_first = n == 0 || is_phase;
        self.begin(&format!("r{n}"));
        if is_phase {
            self.line(format!("store i32 {NOBODY}, ptr %together"));
        }
        self.line("store i1 false, ptr %again");
        self.begin_groups(begin, &format!("g{n}"));
        // No loop begins with the first block.
        if let Some(header) = header {
            let at = self.kept_mask(header);
            let bits = self.make(format!("load i{LANES}, ptr {at}"));
            let waits = self.make(format!("icmp ne i{LANES} {bits}, 0"));
            self.line(format!("br i1 {waits}, label %w{n}, label %n{n}"));
            self.begin(&format!("w{n}"));
        }
        let touched = self.touched_masks(n);
        for number in 0..self.flow.blocks.len() {
            if is_first || !touched.contains(&number) {
                let bits = if is_first && number == 0 { FULL } else { "0" };
                self.line(format!("store i{LANES} {bits}, ptr %m{number}"));
            } else {
                let at = self.kept_mask(number);
                let bits = self.make(format!("load i{LANES}, ptr {at}"));
                self.line(format!("store i{LANES} {bits}, ptr %m{number}"));
            }
        }
        self.names.clear();
        self.seams.push([self.text.len(); 2]);
        let first = self.make("load i64, ptr %first");
        self.keep(self.flow.thread, Form::Scalar, &first, None)?;
        self.find_row(&first)?;
        self.line(format!("br label %{}", self.at('c', places[0])));
        for place in places {
            self.block(place)?;
        }
        self.seams[n][1] = self.text.len();
        let all = self.crossings();
        for &number in if is_first { &all } else { &touched } {
            let at = self.kept_mask(number);
            let bits = self.make(format!("load i{LANES}, ptr %m{number}"));
            self.line(format!("store i{LANES} {bits}, ptr {at}"));
            if header == Some(number) {
                let waits = self.make(format!("icmp ne i{LANES} {bits}, 0"));
                let before = self.make("load i1, ptr %again");
                let again = self.make(format!("or i1 {before}, {waits}"));
                self.line(format!("store i1 {again}, ptr %again"));
            }
        }
        self.line(format!("br label %n{n}"));
        self.begin(&format!("n{n}"));
        self.end_groups(stop, &format!("g{n}"), &format!("o{n}"));
        if header.is_some() {
            let again = self.make("load i1, ptr %again");
            let out = self.label();
            self.line(format!("br i1 {again}, label %r{n}, label %{out}"));
            self.begin(&out);
        }
        Ok(())
    }

    /// Begins a loop over groups of threads, with the label of its body.
    pub(super) fn begin_groups(&mut self, begin: &str, body: &str) {
        self.line(format!("store i64 {begin}, ptr %first\nstore i64 0, ptr %group\nbr label %{body}"));
        self.begin(body);
    }

    /// Goes on with the next group, as long as there is one.
    pub(super) fn end_groups(&mut self, end: &str, body: &str, done: &str) {
        let first = self.make("load i64, ptr %first");
        let next = self.make(format!("add i64 {first}, {GROUP_BYTES}"));
        self.line(format!("store i64 {next}, ptr %first"));
        let number = self.make("load i64, ptr %group");
        let number = self.make(format!("add i64 {number}, 1"));
        self.line(format!("store i64 {number}, ptr %group"));
        let more = self.make(format!("icmp ne i64 {next}, {end}"));
        self.line(format!("br i1 {more}, label %{body}, label %{done}"));
        self.begin(done);
    }

    /// Where a group's mask of a block lies between segments.
    fn kept_mask(&mut self, number: usize) -> String {
        let group = self.make("load i64, ptr %group");
        self.make(format!("getelementptr i{LANES}, ptr %k{number}, i64 {group}"))
    }

    /// The segment that a block belongs to.
    fn segment_of(&self, number: usize) -> usize {
        let place = self.flow.place[number];
        self.segments.iter().position(|segment| segment.places.contains(&place)).unwrap_or(0)
    }

    /// The blocks that lanes may wait in front of between segments. Between phases they wait nowhere.
    fn crossings(&self) -> Vec<usize> {
        if self.phases.is_some() {
            return Vec::new();
        }
        let mut blocks: Vec<usize> = self.segments.iter().filter_map(|segment| segment.header).collect();
        for (from, edges) in self.flow.edges.iter().enumerate() {
            let apart = |&to: &usize| to < self.flow.exit() && self.segment_of(to) != self.segment_of(from);
            blocks.extend(edges.iter().map(|edge| edge.to).filter(apart));
        }
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// Those of them that belong to a segment, or that lanes come to from there.
    fn touched_masks(&self, segment: usize) -> Vec<usize> {
        let reached = |number: usize| {
            self.flow.edges.iter().enumerate().any(|(from, edges)| {
                self.segment_of(from) == segment && edges.iter().any(|edge| edge.to == number)
            })
        };
        let mut blocks = self.crossings();
        blocks.retain(|&number| self.segment_of(number) == segment || reached(number));
        blocks
    }

    /// Writes, where segments begin and end, what takes values out of their arrays and puts them there. False if that is too much.
    pub(super) fn join_segments(&mut self) -> bool {
        // What one round of a loop leaves to the next goes through the first block's parameters.
        let carried: Vec<Value> = self
            .segments
            .iter()
            .filter_map(|segment| segment.header)
            .flat_map(|header| self.func.dfg.block_params(self.flow.blocks[header]).to_vec())
            .collect();
        let mut slots: Vec<_> = self.slots.iter().filter(|(_, slot)| !slot.is_common).collect();
        slots.sort_by(|a, b| a.1.name.cmp(&b.1.name));
        let mut seams = vec![[String::new(), String::new()]; self.segments.len()];
        let mut bytes = 0;
        let mut arrays = String::new();
        for ((value, form), slot) in slots {
            let (name, ty) = (&slot.name, &slot.ty);
            let touched = slot.touched[0] | slot.touched[1];
            let crosses = self.phases.is_none() && (touched.count_ones() > 1 || carried.contains(value));
            if crosses {
                arrays.push_str(&format!("{name}.all = alloca [{SIDE_BY_SIDE} x {ty}]\n"));
                let one = self.func.dfg.value_type(*value).bytes() as usize;
                bytes += SIDE_BY_SIDE * one * if *form == Form::Vector { LANES } else { 1 };
            }
            for (n, [begin, end]) in seams.iter_mut().enumerate().filter(|(n, _)| touched >> n & 1 == 1) {
                if !crosses || n == 0 {
                    // What one group has left there is nothing to the next.
                    begin.push_str(&format!("store {ty} undef, ptr {name}\n"));
                } else {
                    begin.push_str(&format!(
                        "{name}.g{n} = load i64, ptr %group\n{name}.p{n} = getelementptr {ty}, ptr {name}.all, i64 {name}.g{n}\n\
                         {name}.b{n} = load {ty}, ptr {name}.p{n}\nstore {ty} {name}.b{n}, ptr {name}\n"
                    ));
                }
                if crosses && slot.touched[1] >> n & 1 == 1 {
                    end.push_str(&format!(
                        "{name}.h{n} = load i64, ptr %group\n{name}.q{n} = getelementptr {ty}, ptr {name}.all, i64 {name}.h{n}\n\
                         {name}.e{n} = load {ty}, ptr {name}\nstore {ty} {name}.e{n}, ptr {name}.q{n}\n"
                    ));
                }
            }
        }
        for ([begin, end], texts) in self.seams.iter().zip(&seams).rev() {
            self.text.insert_str(*end, &texts[1]);
            self.text.insert_str(*begin, &texts[0]);
        }
        self.places.push_str(&arrays);
        bytes <= MOST_BYTES
    }
}
