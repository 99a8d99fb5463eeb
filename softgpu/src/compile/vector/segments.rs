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

use super::flow::{Flow, Refusal};
use super::rows::NOBODY;
use super::translate::{FULL, Form, Translator};
use crate::abi::{Block, Thread};

/// Part of the order of blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    /// The places of its blocks, in their order.
    pub places: Vec<usize>,
    /// The first block of the loop that it is one round of, if it is that.
    pub header: Option<usize>,
    /// Then: how often the grid's stride is added in a round.
    pub strides: u32,
}

impl Segment {
    /// What is no loop.
    fn plain(places: &[usize]) -> Self {
        Self { places: places.to_vec(), header: None, strides: 0 }
    }
}

/// What groups go through from where they begin to where they stop, in segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PhaseCopy {
    /// If it is what all threads of a block do behind a cut: the number of that, or 0 for the kernel's beginning.
    pub enters: Option<u32>,
    /// Its segments among those of all copies.
    pub parts: Range<usize>,
}

/// How many groups go through a segment before the next begins.
pub(super) const SIDE_BY_SIDE: usize = 32;

/// Larger loops compute more than they access.
const LONG: usize = 300;
/// What groups may leave between segments, so that it stays in the nearest cache.
const MOST_BYTES: usize = 16 << 10;
/// As many operations are looked through for what a loop's step is made of.
const DEPTH: usize = 8;

/// More segments than this are not told apart: they are counted in the bits of a word.
pub(super) const MOST_SEGMENTS: usize = u128::BITS as usize;

/// One round of each loop with the grid's stride.
pub(super) fn rounds(func: &Function, flow: &Flow) -> Vec<Segment> {
    let mut rounds: Vec<Segment> = Vec::new();
    for (number, l) in flow.loops.iter().enumerate() {
        let alone = flow.loops.iter().enumerate().all(|(other, o)| {
            other == number || flow.order.iter().all(|&block| !(l.has[block] && o.has[block]))
        });
        let places: Vec<usize> = (flow.place[l.header]..l.last + 1).collect();
        let blocks = || places.iter().map(|&place| flow.order[place]);
        let size: usize = blocks().map(|b| func.layout.block_insts(flow.blocks[b]).count()).sum();
        let cut = blocks().any(|block| flow.cuts[block]);
        let mut insts = blocks().flat_map(|block| func.layout.block_insts(flow.blocks[block]));
        // What is done lane by lane takes longer than memory.
        let slow = insts.any(|inst| {
            let opcode = func.dfg.insts[inst].opcode();
            opcode.is_call() || matches!(opcode, Opcode::AtomicRmw | Opcode::AtomicCas)
        });
        if alone && !cut && !slow && places[0] > 0 && size <= LONG {
            let strides = strides(func, flow, l.header);
            if strides > 0 {
                rounds.push(Segment { header: Some(l.header), strides, places });
            }
        }
    }
    rounds.sort_by_key(|round| round.places[0]);
    rounds
}

/// Divides the blocks at some places into those rounds that lie there whole, and what comes before and behind each.
pub(super) fn divide(mut places: &[usize], rounds: &[Segment]) -> Vec<Segment> {
    let mut segments = Vec::new();
    for round in rounds {
        let Some(at) = places.iter().position(|place| *place == round.places[0]) else { continue };
        let behind = at + round.places.len();
        if places.get(at..behind) != Some(&round.places[..]) {
            continue;
        }
        if at > 0 {
            segments.push(Segment::plain(&places[..at]));
        }
        segments.push(round.clone());
        places = &places[behind..];
    }
    if !places.is_empty() {
        segments.push(Segment::plain(places));
    }
    segments
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

impl<const LANES: usize> Translator<'_, LANES> {
    /// From the first thread of a group to that of the next one.
    const GROUP_BYTES: usize = size_of::<Thread>() * LANES;

    /// The loop over groups of threads.
    pub(super) fn groups(&mut self) -> Result<(), Refusal> {
        for (number, _) in self.flow.blocks.iter().enumerate() {
            self.places.push_str(&format!("%m{number} = alloca i{LANES}\n"));
        }
        let mut crossings: Vec<usize> =
            (0..self.copies.len()).flat_map(|copy| self.crossings(copy)).collect();
        crossings.sort_unstable();
        crossings.dedup();
        for number in crossings {
            self.places.push_str(&format!("%k{number} = alloca [{SIDE_BY_SIDE} x i{LANES}]\n"));
        }
        self.places.push_str("%first = alloca i64\n%row = alloca i64\n%together = alloca i32\n");
        self.places.push_str("%begin = alloca i64\n%group = alloca i64\n%again = alloca i1\n");
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
        self.find_first_row();
        if self.phases.is_some() {
            return self.all_phases(&end);
        }
        self.line("br label %copy0");
        self.one_copy(0, &end)?;
        self.tell_together();
        self.line("ret void");
        Ok(())
    }

    /// Has all groups go through a copy: some go through all of its segments, and then the next ones. `end` is the end of the threads.
    pub(super) fn one_copy(&mut self, copy: usize, end: &str) -> Result<(), Refusal> {
        let parts = self.copies[copy].parts.clone();
        self.copy = copy;
        self.begin(&format!("copy{copy}"));
        if self.phases.is_none() {
            self.line(format!("store i32 {NOBODY}, ptr %together"));
        }
        if parts.len() == 1 {
            return self.one_segment(parts.start, "%a0", end);
        }
        self.line(format!("store i64 %a0, ptr %begin\nbr label %chunk{copy}"));
        self.begin(&format!("chunk{copy}"));
        let begin = self.make("load i64, ptr %begin");
        let left = self.make(format!("sub i64 {end}, {begin}"));
        let most = SIDE_BY_SIDE * Self::GROUP_BYTES;
        let fewer = self.make(format!("icmp ult i64 {left}, {most}"));
        let bytes = self.make(format!("select i1 {fewer}, i64 {left}, i64 {most}"));
        let stop = self.make(format!("add i64 {begin}, {bytes}"));
        for segment in parts {
            self.one_segment(segment, &begin, &stop)?;
        }
        self.line(format!("store i64 {stop}, ptr %begin"));
        let more = self.make(format!("icmp ne i64 {stop}, {end}"));
        let out = self.label();
        self.line(format!("br i1 {more}, label %chunk{copy}, label %{out}"));
        self.begin(&out);
        Ok(())
    }

    /// Has the groups of some threads go through a segment of the copy that is being written.
    fn one_segment(&mut self, n: usize, begin: &str, stop: &str) -> Result<(), Refusal> {
        self.segment = n;
        let Segment { places, header, .. } = self.segments[n].clone();
        let is_first = self.is_first(n);
        self.line(format!("br label %r{n}"));
        self.begin(&format!("r{n}"));
        self.line("store i1 false, ptr %again");
        self.begin_groups(begin, &format!("g{n}"));
        if self.copies[self.copy].enters.is_some() {
            let lanes = self.lanes_that_go();
            let go = self.make(format!("icmp ne i{LANES} {lanes}, 0"));
            self.line(format!("br i1 {go}, label %y{n}, label %n{n}"));
            self.begin(&format!("y{n}"));
        }
        // No loop begins with the first block.
        if let Some(header) = header {
            let at = self.kept_mask(header);
            let bits = self.make(format!("load i{LANES}, ptr {at}"));
            let waits = self.make(format!("icmp ne i{LANES} {bits}, 0"));
            self.line(format!("br i1 {waits}, label %w{n}, label %n{n}"));
            self.begin(&format!("w{n}"));
        }
        let touched = self.touched_masks(n);
        for number in self.blocks_of(self.copy) {
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
        self.find_row();
        self.line(format!("br label %{}", self.at('c', places[0])));
        for place in places {
            self.block(place)?;
        }
        self.seams[n][1] = self.text.len();
        let all = self.crossings(self.copy);
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
        let before = self.make(format!("sub i64 {begin}, %a0"));
        let number = self.make(format!("udiv exact i64 {before}, {}", Self::GROUP_BYTES));
        self.line(format!("store i64 {begin}, ptr %first\nstore i64 {number}, ptr %group\nbr label %{body}"));
        self.begin(body);
    }

    /// Goes on with the next group, as long as there is one.
    pub(super) fn end_groups(&mut self, end: &str, body: &str, done: &str) {
        let first = self.make("load i64, ptr %first");
        let next = self.make(format!("add i64 {first}, {}", Self::GROUP_BYTES));
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
        let group = self.make(format!("and i64 {group}, {}", SIDE_BY_SIDE - 1));
        self.make(format!("getelementptr i{LANES}, ptr %k{number}, i64 {group}"))
    }

    /// Whether groups come to a segment from nowhere else.
    fn is_first(&self, segment: usize) -> bool {
        self.copies.iter().any(|copy| copy.parts.start == segment)
    }

    /// The blocks that a copy has.
    fn blocks_of(&self, copy: usize) -> Vec<usize> {
        let parts = &self.segments[self.copies[copy].parts.clone()];
        parts.iter().flat_map(|part| &part.places).map(|&place| self.flow.order[place]).collect()
    }

    /// The segment that a block belongs to in a copy, if it is there.
    fn segment_of(&self, copy: usize, number: usize) -> Option<usize> {
        let place = self.flow.place[number];
        self.copies[copy].parts.clone().find(|&n| self.segments[n].places.contains(&place))
    }

    /// The blocks that lanes may wait in front of between the segments of a copy.
    fn crossings(&self, copy: usize) -> Vec<usize> {
        let parts = &self.segments[self.copies[copy].parts.clone()];
        let mut blocks: Vec<usize> = parts.iter().filter_map(|segment| segment.header).collect();
        for (from, edges) in self.flow.edges.iter().enumerate() {
            let Some(here) = self.segment_of(copy, from) else { continue };
            let apart = |&to: &usize| {
                to < self.flow.exit() && self.segment_of(copy, to).is_some_and(|there| there != here)
            };
            blocks.extend(edges.iter().map(|edge| edge.to).filter(apart));
        }
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// Those of them, in the copy that is being written, that belong to a segment, or that lanes come to from there.
    fn touched_masks(&self, segment: usize) -> Vec<usize> {
        let is_here = |number: usize| self.segment_of(self.copy, number) == Some(segment);
        let reached = |number: usize| {
            let mut edges = self.flow.edges.iter().enumerate();
            edges.any(|(from, edges)| is_here(from) && edges.iter().any(|edge| edge.to == number))
        };
        let mut blocks = self.crossings(self.copy);
        blocks.retain(|&number| is_here(number) || reached(number));
        blocks
    }

    /// Writes, where segments begin and end, what takes values out of their arrays and puts them there. False if that is too much.
    pub(super) fn join_segments(&mut self) -> Result<bool, Refusal> {
        let mut slots: Vec<_> = self.slots.iter().filter(|(_, slot)| !slot.is_common).collect();
        slots.sort_by(|a, b| a.1.name.cmp(&b.1.name));
        let mut seams = vec![[String::new(), String::new()]; self.segments.len()];
        let mut bytes = 0;
        let mut arrays = String::new();
        for ((value, form), slot) in slots {
            let (name, ty) = (&slot.name, &slot.ty);
            let touched = slot.touched[0] | slot.touched[1];
            let mut has_array = false;
            for copy in &self.copies {
                let parts = copy.parts.clone().filter(|n| touched >> n & 1 == 1);
                let [loaded, stored] = slot.touched.map(|set| parts.clone().any(|n| set >> n & 1 == 1));
                if loaded && !stored {
                    return Err(format!("the value {value}, which is read and never made"));
                }
                // What one round of a loop leaves to the next goes through the first block's parameters.
                let is_carried = |n: usize| {
                    let header = self.segments[n].header;
                    header.is_some_and(|b| self.func.dfg.block_params(self.flow.blocks[b]).contains(value))
                };
                let crosses = parts.clone().count() > 1 || parts.clone().any(is_carried);
                has_array |= crosses;
                for n in parts {
                    let [begin, end] = &mut seams[n];
                    if !crosses || n == copy.parts.start {
                        // What one group has left there is nothing to the next.
                        begin.push_str(&format!("store {ty} undef, ptr {name}\n"));
                    } else {
                        begin.push_str(&place_in_array(name, ty, ['g', 'p'], n));
                        begin.push_str(&format!(
                            "{name}.b{n} = load {ty}, ptr {name}.p{n}\nstore {ty} {name}.b{n}, ptr {name}\n"
                        ));
                    }
                    if crosses && slot.touched[1] >> n & 1 == 1 {
                        end.push_str(&place_in_array(name, ty, ['h', 'q'], n));
                        end.push_str(&format!(
                            "{name}.e{n} = load {ty}, ptr {name}\nstore {ty} {name}.e{n}, ptr {name}.q{n}\n"
                        ));
                    }
                }
            }
            if has_array {
                arrays.push_str(&format!("{name}.all = alloca [{SIDE_BY_SIDE} x {ty}]\n"));
                let one = self.func.dfg.value_type(*value).bytes() as usize;
                bytes += SIDE_BY_SIDE * one * if *form == Form::Vector { LANES } else { 1 };
            }
        }
        for ([begin, end], texts) in self.seams.iter().zip(&seams).rev() {
            self.text.insert_str(*end, &texts[1]);
            self.text.insert_str(*begin, &texts[0]);
        }
        self.places.push_str(&arrays);
        Ok(bytes <= MOST_BYTES)
    }
}

/// Finds a group's place in the array of a slot. Two letters tell the names of that from others.
fn place_in_array(name: &str, ty: &str, [group, place]: [char; 2], n: usize) -> String {
    format!(
        "{name}.{group}{n} = load i64, ptr %group\n\
         {name}.{group}{n}.low = and i64 {name}.{group}{n}, {}\n\
         {name}.{place}{n} = getelementptr {ty}, ptr {name}.all, i64 {name}.{group}{n}.low\n",
        SIDE_BY_SIDE - 1
    )
}
