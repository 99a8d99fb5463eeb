//! A verified kernel as text of LLVM's intermediate representation, for `LANES` threads at a time.
//!
//! Each block has a mask of the threads that wait in front of it. Blocks come in the order of [`Flow`]; one whose mask is empty
//! is skipped, and a loop goes on while threads wait in front of its first block. A value that is the same in all lanes
//! is a scalar; one that goes up by a constant is the first lane's, and a vector where one is needed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write;
use std::mem::offset_of;

use cranelift_codegen::ir::{self, Function, Inst, InstructionData, Opcode, Value, types};
use rgpu_image::ptx::ast;

use super::debug::{DebugInfo, OF_KERNEL};
use super::flow::{Edge, Flow, Refusal, destinations};
use super::multiples::Multiples;
use super::object::ADDRESSES;
use super::phases::{Phases, Stop};
use super::segments::{MOST_SEGMENTS, PhaseCopy, Segment, divide, rounds};
use super::shape::{Shape, Shapes, UNIFORM, home, is_constant};
use super::structures::{Stores, access};
use super::whole::Whole;
use crate::abi::{self, Cut};
use crate::compile::relocate::{Places, Target};

/// How a value is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// The first lane's, of which the others follow.
    Scalar,
    /// All lanes'.
    Vector,
    /// Whether the others follow.
    Valid,
}

/// The bits of a mask of all lanes.
pub(super) const FULL: &str = "-1";

/// Kernels with more instructions get no code of their own for blocks that all lanes have come to.
const LONG: usize = 6000;

/// See the module.
pub(super) struct Translator<'a, const LANES: usize> {
    pub(super) func: &'a Function,
    pub(super) flow: &'a Flow,
    pub(super) shapes: &'a Shapes,
    pub(super) multiples: Multiples,
    pub(super) text: String,
    pub(super) debug: DebugInfo<'a>,
    pub(super) places: String,
    pub(super) declared: BTreeSet<String>,
    next: u32,
    /// What is known by name in the block that is being written.
    pub(super) names: HashMap<(Value, Form), String>,
    pub(super) slots: HashMap<(Value, Form), Slot>,
    /// What the code is divided into, and which part is being written.
    pub(super) segments: Vec<Segment>,
    pub(super) segment: usize,
    /// How the parts follow each other, and which of these copies is being written.
    pub(super) copies: Vec<PhaseCopy>,
    pub(super) copy: usize,
    /// Where each part begins and ends with what a group has left elsewhere.
    pub(super) seams: Vec<[usize; 2]>,
    /// If the copies are what lies between barriers: what is known of these.
    pub(super) phases: Option<Phases>,
    /// How the block that is being written stops.
    pub(super) stop: Option<Stop>,
    /// How threads stop in the copy that is being written, as numbers of bits.
    pub(super) noted: BTreeSet<u32>,
    /// Values that are read in other blocks than the one that makes them.
    pub(super) travels: HashSet<Value>,
    /// Values that something with an effect depends on.
    pub(super) read: HashSet<Value>,
    /// The mask of the block that is being written; none if all lanes are there.
    pub(super) mask: Option<String>,
    /// The same as bits: a number, or [`FULL`].
    pub(super) bits: String,
    /// The block that is being written.
    pub(super) number: Option<usize>,
    /// Whether what the block has written so far of the operands of a cut are constants.
    pub(super) plain: bool,
    /// Accesses of the block that have been made with others.
    pub(super) done: HashSet<Inst>,
    /// Stores that are to be made at the last of them.
    pub(super) stores: Option<(Stores, Inst)>,
    /// What the block has of 16 bytes that are accessed at once.
    pub(super) wholes: HashMap<Value, Whole>,
    /// Whether the function has room for the operands of operations on textures and bulk copies.
    pub(super) has_operands: bool,
    /// Where this library's functions are in this process.
    pub(super) own: &'a Places<'a>,
    /// What the code's table of addresses holds.
    addresses: Vec<Target>,
    /// Whether the code means the same in every process.
    is_movable: bool,
}

/// Where a value lies that goes from block to block.
pub(super) struct Slot {
    pub name: String,
    pub ty: String,
    /// Whether it is the same for all groups.
    pub is_common: bool,
    /// By segment, as bits: where it is loaded, and where it is stored.
    pub touched: [u128; 2],
}

/// A kernel as LLVM's text.
pub(super) struct Translated {
    pub text: String,
    /// So many bytes of that are not debug information.
    pub own_bytes: usize,
    /// What it keeps of its threads' states.
    pub cells: Vec<abi::Cell>,
    /// Whether it is divided into phases.
    pub phases: bool,
    /// What its table of addresses holds.
    pub addresses: Vec<Target>,
    /// Whether it means the same in every process.
    pub is_movable: bool,
}

/// The type as LLVM has it.
pub(super) fn scalar_type(ty: ir::Type) -> Result<&'static str, Refusal> {
    Ok(match ty {
        types::I8 => "i8",
        types::I16 => "i16",
        types::I32 => "i32",
        types::I64 => "i64",
        types::F32 => "float",
        types::F64 => "double",
        other => return Err(format!("values of the type {other}")),
    })
}

/// A vector of the type.
pub(super) fn vector_type<const LANES: usize>(ty: ir::Type) -> Result<String, Refusal> {
    Ok(format!("<{LANES} x {}>", scalar_type(ty)?))
}

/// The same value in all lanes.
pub(super) fn all_lanes<const LANES: usize>(ty: &str, value: impl std::fmt::Display) -> String {
    let lane = format!("{ty} {value}");
    format!("<{}>", vec![lane; LANES].join(", "))
}

/// A mask of all lanes.
pub(super) fn full<const LANES: usize>() -> String {
    all_lanes::<LANES>("i1", "true")
}

impl<'a, const LANES: usize> Translator<'a, LANES> {
    /// Translates a kernel. `attributes` are those of the function.
    pub(super) fn translate(
        func: &'a Function,
        flow: &'a Flow,
        shapes: &'a Shapes,
        cuts: &[Cut],
        attributes: &str,
        own: &'a Places<'a>,
        body: &'a ast::Function,
    ) -> Result<Translated, Refusal> {
        let rounds = rounds(func, flow);
        if !rounds.is_empty() {
            let t = Self::new(func, flow, shapes, cuts, (own, body), &rounds);
            if t.segments.len() <= MOST_SEGMENTS
                && let Some(translated) = t.whole(attributes)?
            {
                return Ok(translated);
            }
        }
        let t = Self::new(func, flow, shapes, cuts, (own, body), &[]);
        t.whole(attributes)?.ok_or_else(|| "too much to keep".into())
    }

    fn new(
        func: &'a Function,
        flow: &'a Flow,
        shapes: &'a Shapes,
        cuts: &[Cut],
        (own, body): (&'a Places<'a>, &'a ast::Function),
        rounds: &[Segment],
    ) -> Self {
        let whole: Vec<usize> = (0..flow.order.len()).collect();
        let (mut segments, mut copies) = (Vec::new(), Vec::new());
        let mut add = |enters, parts: Vec<Segment>| {
            let first = segments.len();
            segments.extend(parts);
            copies.push(PhaseCopy { enters, parts: first..segments.len() });
        };
        let mut phases = None;
        match Phases::find(func, flow, shapes, cuts) {
            Some((found, behind)) => {
                // Few threads go through what is there for those that are apart.
                add(None, divide(&whole, &[]));
                for (cut, places) in behind {
                    let rounds = if found.is_split(cut) { &[] } else { rounds };
                    add(Some(cut), divide(&places, rounds));
                }
                phases = Some(found);
            }
            None => add(None, divide(&whole, rounds)),
        }
        Self {
            func,
            flow,
            shapes,
            multiples: Multiples::new(func, flow),
            text: String::new(),
            places: String::new(),
            declared: BTreeSet::new(),
            next: 0,
            names: HashMap::new(),
            slots: HashMap::new(),
            segments,
            segment: 0,
            copies,
            copy: 0,
            seams: Vec::new(),
            phases,
            stop: None,
            noted: BTreeSet::new(),
            travels: HashSet::new(),
            read: HashSet::new(),
            mask: None,
            bits: FULL.into(),
            number: None,
            plain: true,
            done: HashSet::new(),
            stores: None,
            wholes: HashMap::new(),
            has_operands: false,
            own,
            addresses: Vec::new(),
            is_movable: true,
            debug: DebugInfo::new(body),
        }
    }

    /// Translates all of it. None if groups would have to leave too much between segments.
    fn whole(mut self, attributes: &str) -> Result<Option<Translated>, Refusal> {
        self.find_travels();
        self.find_read();
        self.before_threads()?;
        self.groups()?;
        if !self.join_segments()? {
            return Ok(None);
        }
        let mut module =
            format!("define void @kernel(i64 %a0, i32 %a1, i64 %a2) #0 {OF_KERNEL} {{\nentry:\n");
        module.push_str(&self.places);
        module.push_str(&self.text);
        module.push_str("}\n");
        self.declared.iter().for_each(|line| module.push_str(line));
        if !self.addresses.is_empty() {
            let _ =
                writeln!(module, "@{ADDRESSES} = external hidden constant [{} x i64]", self.addresses.len());
        }
        // Nothing of the C library is called.
        let _ = writeln!(
            module,
            "attributes #0 = {{ nounwind \"no-builtins\" \"null-pointer-is-valid\"=\"true\" \"probe-stack\"=\"inline-asm\" {attributes} }}\n!0 = !{{}}"
        );
        let own_bytes = module.len() - self.debug.added();
        module.push_str(&self.debug.metadata());
        let (cells, phases) = (self.cells(), self.phases.is_some());
        let (addresses, is_movable) = (self.addresses, self.is_movable);
        Ok(Some(Translated { text: module, own_bytes, cells, phases, addresses, is_movable }))
    }

    fn find_travels(&mut self) {
        for block in self.func.layout.blocks() {
            let number = self.flow.index.get(&block).copied();
            for inst in self.func.layout.block_insts(block) {
                let branches = destinations(self.func, inst).unwrap_or_default();
                let given = branches.into_iter().flat_map(|(_, args)| args);
                let args = self.func.dfg.inst_args(inst).iter().map(|&v| self.func.dfg.resolve_aliases(v));
                let mut values: Vec<Value> = args.chain(given).collect();
                if let Some((address, _, _)) = access(self.func, inst) {
                    self.row_parts(address, &mut values);
                }
                for value in values {
                    if home(self.func, self.flow, value) != number {
                        self.travels.insert(value);
                    }
                }
            }
        }
    }

    /// Whether what is known of a value in the block that makes it can be used in the block that is being written: not behind a loop that lanes
    /// leave at different times.
    pub(super) fn is_at_hand(&self, value: Value) -> bool {
        let way = home(self.func, self.flow, value).zip(self.number);
        way.is_none_or(|(made, number)| !self.shapes.leaves_apart(self.flow, made, number))
    }

    /// Finds what something with an effect depends on: an access whose result does not count is there for its faults alone, and
    /// LLVM would not keep it.
    fn find_read(&mut self) {
        let mut open = Vec::new();
        let mut given: HashMap<Value, Vec<Value>> = HashMap::new();
        for block in self.func.layout.blocks() {
            for inst in self.func.layout.block_insts(block) {
                let opcode = self.func.dfg.insts[inst].opcode();
                let effect = opcode.can_load()
                    || opcode.can_store()
                    || opcode.is_call()
                    || opcode.is_terminator()
                    || opcode.other_side_effects();
                if effect {
                    open.extend(self.func.dfg.inst_args(inst).iter().copied());
                }
                for (to, args) in destinations(self.func, inst).unwrap_or_default() {
                    for (&param, arg) in self.func.dfg.block_params(to).iter().zip(args) {
                        given.entry(param).or_default().push(arg);
                    }
                }
            }
        }
        while let Some(value) = open.pop() {
            let value = self.func.dfg.resolve_aliases(value);
            if !self.read.insert(value) {
                continue;
            }
            match self.func.dfg.value_def(value) {
                ir::ValueDef::Result(inst, _) => open.extend(self.func.dfg.inst_args(inst).iter().copied()),
                _ => open.extend(given.get(&value).into_iter().flatten().copied()),
            }
        }
    }

    /// A new name.
    pub(super) fn fresh(&mut self) -> String {
        self.next += 1;
        format!("%t{}", self.next)
    }

    /// A new label.
    pub(super) fn label(&mut self) -> String {
        self.next += 1;
        format!("l{}", self.next)
    }

    /// Writes a line.
    pub(super) fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    /// Writes an instruction, and returns the name of its result.
    pub(super) fn make(&mut self, instruction: impl AsRef<str>) -> String {
        let name = self.fresh();
        self.line(format!("{name} = {}", instruction.as_ref()));
        name
    }

    /// Begins a block.
    pub(super) fn begin(&mut self, label: &str) {
        self.line(format!("{label}:"));
    }

    /// The mask of the block, as a value.
    pub(super) fn mask(&self) -> String {
        self.mask.clone().unwrap_or_else(full::<LANES>)
    }

    /// What is known of a value.
    pub(super) fn shape(&self, value: Value) -> Shape {
        self.shapes.of(self.func, value)
    }

    /// The type of a value.
    pub(super) fn type_of(&self, value: Value) -> ir::Type {
        self.func.dfg.value_type(value)
    }

    /// The forms in which a value is made; others follow from them.
    fn forms(shape: Shape) -> &'static [Form] {
        match shape {
            Shape::Affine { guarded: false, .. } => &[Form::Scalar],
            Shape::Affine { guarded: true, .. } => &[Form::Scalar, Form::Vector, Form::Valid],
            Shape::Varying | Shape::Unknown => &[Form::Vector],
        }
    }

    fn form_type(&self, value: Value, form: Form) -> Result<String, Refusal> {
        let ty = self.type_of(value);
        Ok(match form {
            Form::Scalar => scalar_type(ty)?.into(),
            Form::Vector => vector_type::<LANES>(ty)?,
            Form::Valid => "i1".into(),
        })
    }

    /// Where a value lies that goes from block to block, for loading (0) or storing (1).
    fn slot(&mut self, value: Value, form: Form, access: usize) -> Result<String, Refusal> {
        if !self.slots.contains_key(&(value, form)) {
            let (name, ty) = (self.fresh(), self.form_type(value, form)?);
            let _ = writeln!(self.places, "{name} = alloca {ty}");
            // What is made before all groups, and which thread is the first, is known in all segments.
            let is_common = self.seams.is_empty() || value == self.flow.thread;
            self.slots.insert((value, form), Slot { name, ty, is_common, touched: [0; 2] });
        }
        let segment = 1 << self.segment;
        let slot = self.slots.get_mut(&(value, form)).ok_or("no place for a value")?;
        slot.touched[access] |= segment;
        Ok(slot.name.clone())
    }

    /// A value by name.
    pub(super) fn get(&mut self, value: Value, form: Form) -> Result<String, Refusal> {
        let value = self.func.dfg.resolve_aliases(value);
        if let Some(name) = self.names.get(&(value, form)) {
            return Ok(name.clone());
        }
        let shape = self.shape(value);
        let name = match self.constant(value, form)? {
            Some(name) => name,
            None if Self::forms(shape).contains(&form) => {
                if home(self.func, self.flow, value) == self.number && !self.is_param(value) {
                    return Err("a value that is read before it is made".into());
                }
                let slot = self.slot(value, form, 0)?;
                let ty = self.form_type(value, form)?;
                self.make(format!("load {ty}, ptr {slot}"))
            }
            None => match (shape, form) {
                (Shape::Affine { .. }, Form::Valid) => "true".into(),
                (Shape::Affine { step, .. }, Form::Vector) => {
                    let first = self.get(value, Form::Scalar)?;
                    self.row(value, &first, step)?
                }
                _ => return Err("a vector where one value is wanted".into()),
            },
        };
        self.names.insert((value, form), name.clone());
        Ok(name)
    }

    fn is_param(&self, value: Value) -> bool {
        matches!(self.func.dfg.value_def(value), ir::ValueDef::Param(..))
    }

    /// A vector of a first lane and a step.
    pub(super) fn row(&mut self, value: Value, first: &str, step: i64) -> Result<String, Refusal> {
        let (ty, vector) = (scalar_type(self.type_of(value))?, vector_type::<LANES>(self.type_of(value))?);
        let all = self.in_all_lanes(ty, first);
        if step == 0 {
            return Ok(all);
        }
        let steps: Vec<String> =
            (0..LANES as i64).map(|n| format!("{ty} {}", narrow(ty, n.wrapping_mul(step)))).collect();
        Ok(self.make(format!("add {vector} {all}, <{}>", steps.join(", "))))
    }

    /// A number that is known when the code runs, in all lanes.
    pub(super) fn in_all_lanes(&mut self, ty: &str, value: &str) -> String {
        let vector = format!("<{LANES} x {ty}>");
        let one = self.make(format!("insertelement {vector} poison, {ty} {value}, i32 0"));
        let lanes = format!("<{LANES} x i32> zeroinitializer");
        self.make(format!("shufflevector {vector} {one}, {vector} poison, {lanes}"))
    }

    fn constant(&mut self, value: Value, form: Form) -> Result<Option<String>, Refusal> {
        let ir::ValueDef::Result(inst, _) = self.func.dfg.value_def(value) else { return Ok(None) };
        let data = &self.func.dfg.insts[inst];
        if !is_constant(data.opcode()) {
            return Ok(None);
        }
        if form == Form::Valid {
            return Ok(Some("true".into()));
        }
        let ty = scalar_type(self.type_of(value))?;
        let (bits, int) = match *data {
            InstructionData::UnaryImm { imm, .. } => {
                let number = narrow(ty, imm.bits());
                if ty == "i64"
                    && let Some(name) = self.address(number)
                {
                    return Ok(Some(if form == Form::Vector { self.row(value, &name, 0)? } else { name }));
                }
                return Ok(Some(if form == Form::Vector {
                    all_lanes::<LANES>(ty, number)
                } else {
                    number.to_string()
                }));
            }
            InstructionData::UnaryIeee32 { imm, .. } => (i64::from(imm.bits()), "i32"),
            InstructionData::UnaryIeee64 { imm, .. } => (imm.bits() as i64, "i64"),
            _ => return Err("a constant".into()),
        };
        Ok(Some(if form == Form::Vector {
            let lanes = all_lanes::<LANES>(int, bits);
            self.make(format!("bitcast <{LANES} x {int}> {lanes} to <{LANES} x {ty}>"))
        } else {
            self.make(format!("bitcast {int} {bits} to {ty}"))
        }))
    }

    /// The address of something that another process has elsewhere, by name, if the number is one.
    fn address(&mut self, number: i64) -> Option<String> {
        let target = self.own.target(number as u64)?;
        if !matches!(target, Target::Own(_)) {
            self.is_movable = false;
            return None;
        }
        let at = self.addresses.iter().position(|&other| other == target).unwrap_or_else(|| {
            self.addresses.push(target);
            self.addresses.len() - 1
        });
        Some(
            self.make(format!("load i64, ptr getelementptr inbounds (i8, ptr @{ADDRESSES}, i64 {})", 8 * at)),
        )
    }

    /// The address of a function of this library.
    pub(super) fn function(&mut self, address: usize) -> String {
        self.address(address as i64).unwrap_or_else(|| address.to_string())
    }

    /// Names a value that the block has made.
    pub(super) fn define(&mut self, value: Value, form: Form, name: String) -> Result<(), Refusal> {
        if self.travels.contains(&value) {
            let escapes = self.shapes.escapes.contains_key(&value);
            self.keep(value, form, &name, if escapes { self.mask.clone() } else { None })?;
        }
        self.names.insert((value, form), name);
        Ok(())
    }

    /// Stores a value for other blocks; with a mask, of these lanes alone.
    pub(super) fn keep(
        &mut self,
        value: Value,
        form: Form,
        name: &str,
        mask: Option<String>,
    ) -> Result<(), Refusal> {
        let slot = self.slot(value, form, 1)?;
        let ty = self.form_type(value, form)?;
        let mut name = name.to_owned();
        if let (Some(mask), Form::Vector) = (mask, form) {
            let old = self.make(format!("load {ty}, ptr {slot}"));
            name = self.make(format!("select <{LANES} x i1> {mask}, {ty} {name}, {ty} {old}"));
        }
        self.line(format!("store {ty} {name}, ptr {slot}"));
        Ok(())
    }

    /// The function's first block, which is run once.
    fn before_threads(&mut self) -> Result<(), Refusal> {
        let params = self.func.dfg.block_params(self.flow.entry).to_vec();
        for (at, param) in params.into_iter().enumerate() {
            self.define(param, Form::Scalar, format!("%a{at}"))?;
        }
        let insts: Vec<Inst> = self.func.layout.block_insts(self.flow.entry).collect();
        for inst in insts.into_iter().filter(|&inst| !self.func.dfg.insts[inst].opcode().is_terminator()) {
            if self.func.dfg.insts[inst].opcode().can_store() || self.func.dfg.insts[inst].opcode().is_call()
            {
                return Err("effects before all threads".into());
            }
            self.instruction(inst)?;
        }
        Ok(())
    }

    /// Whether threads wait in front of a block: the name of the mask's bits, and of the answer.
    fn waits(&mut self, number: usize) -> (String, String) {
        let bits = self.make(format!("load i{LANES}, ptr %m{number}"));
        let any = self.make(format!("icmp ne i{LANES} {bits}, 0"));
        (bits, any)
    }

    /// Writes a block; what follows is where it goes on.
    pub(super) fn block(&mut self, place: usize) -> Result<(), Refusal> {
        let number = self.flow.order[place];
        self.number = Some(number);
        self.begin(&self.at('c', place));
        let (bits, any) = self.waits(number);
        self.line(format!("store i{LANES} 0, ptr %m{number}"));
        let [enter, whole_block, some_lanes, end] = ['b', 'f', 'p', 'e'].map(|part| self.at(part, place));
        self.line(format!("br i1 {any}, label %{enter}, label %{end}"));
        self.begin(&enter);
        let whole = (None, FULL.to_owned());
        if !self.is_partial(number) {
            self.body(place, whole)?;
        } else {
            // Mostly all lanes come together, and then nothing has to be masked.
            if self.flow.instructions(self.func) <= LONG {
                let all = self.make(format!("icmp eq i{LANES} {bits}, {FULL}"));
                self.line(format!("br i1 {all}, label %{whole_block}, label %{some_lanes}"));
                self.begin(&whole_block);
                self.body(place, whole)?;
                self.begin(&some_lanes);
            }
            let mask = self.mask_of(&bits);
            self.body(place, (Some(mask), bits))?;
        }
        self.begin(&end);
        let segment = self.segments[self.segment].clone();
        // The loops of which this is the last block here.
        let last =
            |has: &[bool]| segment.places.iter().rfind(|&&at| has[self.flow.order[at]]) == Some(&place);
        let loops = self.flow.loops.iter().rev().filter(|l| last(&l.has)).map(|l| l.header);
        let again = |header: &usize| {
            segment.header != Some(*header) && segment.places.contains(&self.flow.place[*header])
        };
        let ends: Vec<usize> = loops.filter(again).collect();
        for header in ends {
            let (_, any) = self.waits(header);
            let out = self.label();
            let begin = self.at('c', self.flow.place[header]);
            self.line(format!("br i1 {any}, label %{begin}, label %{out}"));
            self.begin(&out);
        }
        if let Some(&next) = segment.places.iter().find(|&&at| at > place) {
            self.line(format!("br label %{}", self.at('c', next)));
        }
        Ok(())
    }

    /// The label of a part of the block at a place, in the segment that is being written.
    pub(super) fn at(&self, part: char, place: usize) -> String {
        format!("{part}{}.{place}", self.segment)
    }

    /// What a block does, for the lanes of a mask.
    fn body(&mut self, place: usize, (mask, bits): (Option<String>, String)) -> Result<(), Refusal> {
        let number = self.flow.order[place];
        self.names.clear();
        self.wholes.clear();
        self.plain = true;
        (self.mask, self.bits) = (mask, bits);
        self.stop = self.phases.as_ref().and_then(|phases| phases.stop(number));
        let insts: Vec<Inst> = self.func.layout.block_insts(self.flow.blocks[number]).collect();
        for inst in insts {
            if self.func.dfg.insts[inst].opcode().is_terminator() {
                let end = self.at('e', place);
                self.leave(inst, number, &end)?;
            } else {
                self.instruction(inst)?;
            }
        }
        Ok(())
    }

    /// The end of a block.
    fn leave(&mut self, inst: Inst, number: usize, end: &str) -> Result<(), Refusal> {
        let edges = self.flow.edges[number].clone();
        let mask = self.bits.clone();
        if let Some((taken, lanes)) = self.enters(number) {
            self.go(&edges[taken], &lanes)?;
            self.line(format!("br label %{end}"));
            return Ok(());
        }
        match self.func.dfg.insts[inst] {
            InstructionData::Jump { .. } => self.go(&edges[0], &mask)?,
            InstructionData::Brif { arg, .. } if self.shape(arg) == UNIFORM => {
                let condition = self.get(arg, Form::Scalar)?;
                let ty = scalar_type(self.type_of(arg))?;
                let yes = self.make(format!("icmp ne {ty} {condition}, 0"));
                self.fetch(&edges)?;
                let labels = [self.label(), self.label()];
                self.line(format!("br i1 {yes}, label %{}, label %{}", labels[0], labels[1]));
                return self.arms(&labels, &edges, &mask, end);
            }
            InstructionData::Brif { arg, .. } => {
                self.fetch(&edges)?;
                if self.mask.is_none()
                    && let Some(ends) = self.ends(arg)?
                {
                    let mut answers = [(&edges[0], ends.all), (&edges[1], ends.none)];
                    if !self.flow.is_back(number, edges[0].to) {
                        // A branch ahead is for what is rare.
                        answers.reverse();
                    }
                    for (edge, answer) in answers {
                        let Some(answer) = answer else { continue };
                        let [alike, other] = std::array::from_fn(|_| self.label());
                        self.line(format!("br i1 {answer}, label %{alike}, label %{other}"));
                        self.arms(&[alike], std::slice::from_ref(edge), &mask, end)?;
                        self.begin(&other);
                    }
                }
                let yes = self.holds(arg)?;
                let yes = self.bits_of(&yes);
                let not = self.make(format!("xor i{LANES} {yes}, {FULL}"));
                for (choice, edge) in [yes, not].into_iter().zip(&edges) {
                    let some = self.make(format!("and i{LANES} {mask}, {choice}"));
                    self.go(edge, &some)?;
                }
            }
            InstructionData::BranchTable { arg, .. } if self.shape(arg) == UNIFORM => {
                let index = self.get(arg, Form::Scalar)?;
                let ty = scalar_type(self.type_of(arg))?;
                self.fetch(&edges)?;
                let labels: Vec<String> = edges.iter().map(|_| self.label()).collect();
                let cases: Vec<String> = labels
                    .iter()
                    .skip(1)
                    .enumerate()
                    .map(|(n, label)| format!("{ty} {n}, label %{label}"))
                    .collect();
                self.line(format!("switch {ty} {index}, label %{} [ {} ]", labels[0], cases.join(" ")));
                return self.arms(&labels, &edges, &mask, end);
            }
            InstructionData::BranchTable { arg, .. } => {
                let index = self.get(arg, Form::Vector)?;
                let ty = scalar_type(self.type_of(arg))?;
                self.fetch(&edges)?;
                let mut rest = mask;
                for (n, edge) in edges.iter().skip(1).enumerate() {
                    let same =
                        self.make(format!("icmp eq <{LANES} x {ty}> {index}, {}", all_lanes::<LANES>(ty, n)));
                    let same = self.bits_of(&same);
                    let some = self.make(format!("and i{LANES} {rest}, {same}"));
                    rest = self.make(format!("xor i{LANES} {rest}, {some}"));
                    self.go(edge, &some)?;
                }
                self.go(&edges[0], &rest)?;
            }
            InstructionData::MultiAry { opcode: Opcode::Return, .. } => {
                // A thread that traps ends the whole block: the executor finds it by the cursor.
                let lane = self.first_lane(&mask);
                let thread = self.thread_of(&lane)?;
                self.set_cursor(&thread)?;
                self.line("ret void");
                return Ok(());
            }
            ref data => return Err(data.opcode().to_string()),
        }
        self.line(format!("br label %{end}"));
        Ok(())
    }

    /// Where all of the lanes, as bits, take the same edge: what each edge does, behind its label.
    fn arms(&mut self, labels: &[String], edges: &[Edge], lanes: &str, end: &str) -> Result<(), Refusal> {
        for (label, edge) in labels.iter().zip(edges) {
            self.begin(label);
            self.go(edge, lanes)?;
            self.line(format!("br label %{end}"));
        }
        Ok(())
    }

    /// The mask of some bits, each found in its lane: LLVM takes the bits one after another where they are turned into a vector.
    pub(super) fn mask_of(&mut self, bits: &str) -> String {
        let vector = format!("<{LANES} x i32>");
        let bits = self.in_32_bits(bits);
        let all = self.in_all_lanes("i32", &bits);
        let own: Vec<String> = (0..LANES).map(|lane| format!("i32 {}", 1 << lane)).collect();
        let own = format!("<{}>", own.join(", "));
        let found = self.make(format!("and {vector} {all}, {own}"));
        self.make(format!("icmp eq {vector} {found}, {own}"))
    }

    /// The bits of a mask.
    pub(super) fn bits_of(&mut self, mask: &str) -> String {
        self.make(format!("bitcast <{LANES} x i1> {mask} to i{LANES}"))
    }

    /// The number of the first lane among the bits of a mask, in 32 bits.
    pub(super) fn first_lane(&mut self, bits: &str) -> String {
        self.declared.insert(format!("declare i{LANES} @llvm.cttz.i{LANES}(i{LANES}, i1)\n"));
        let lane = self.make(format!("call i{LANES} @llvm.cttz.i{LANES}(i{LANES} {bits}, i1 false)"));
        self.in_32_bits(&lane)
    }

    /// A value of as many bits as there are lanes, in 32 bits.
    fn in_32_bits(&mut self, value: &str) -> String {
        match LANES {
            32 => value.to_owned(),
            _ => self.make(format!("zext i{LANES} {value} to i32")),
        }
    }

    /// The thread in a lane.
    pub(super) fn thread_of(&mut self, lane: &str) -> Result<String, Refusal> {
        let first = self.make("load i64, ptr %first");
        let lane = self.make(format!("zext i32 {lane} to i64"));
        let bytes = self.make(format!("mul i64 {lane}, {}", size_of::<abi::Thread>()));
        Ok(self.make(format!("add i64 {first}, {bytes}")))
    }

    /// Says which thread runs.
    pub(super) fn set_cursor(&mut self, thread: &str) -> Result<(), Refusal> {
        let at = self.make(format!("add i64 %a2, {}", offset_of!(abi::Block, cursor)));
        let at = self.make(format!("inttoptr i64 {at} to ptr"));
        self.line(format!("store i64 {thread}, ptr {at}"));
        Ok(())
    }

    /// In which lanes a condition holds.
    pub(super) fn holds(&mut self, condition: Value) -> Result<String, Refusal> {
        let vector = vector_type::<LANES>(self.type_of(condition))?;
        let value = self.get(condition, Form::Vector)?;
        Ok(self.make(format!("icmp ne {vector} {value}, zeroinitializer")))
    }

    /// Has the values that go along edges named before control divides.
    fn fetch(&mut self, edges: &[Edge]) -> Result<(), Refusal> {
        for edge in edges.iter().filter(|edge| edge.to < self.flow.exit()) {
            let params = self.func.dfg.block_params(self.flow.blocks[edge.to]).to_vec();
            for (param, &arg) in params.into_iter().zip(&edge.args) {
                for &form in Self::forms(self.shape(param)) {
                    self.get(arg, form)?;
                }
            }
        }
        Ok(())
    }

    /// Has the lanes of a mask, as bits, wait in front of another block.
    fn go(&mut self, edge: &Edge, bits: &str) -> Result<(), Refusal> {
        if edge.to == self.flow.exit() {
            return Ok(());
        }
        let params = self.func.dfg.block_params(self.flow.blocks[edge.to]).to_vec();
        let comes = |&source: &usize| self.flow.edges[source].iter().any(|e| e.to == edge.to);
        let mut sources = (0..self.flow.blocks.len()).filter(comes);
        let blend = self.shapes.joins[edge.to]
            || sources.any(|source| self.shapes.leaves_apart(self.flow, source, edge.to));
        let mut values = Vec::new();
        for (&param, &arg) in params.iter().zip(&edge.args) {
            for &form in Self::forms(self.shape(param)) {
                values.push((param, form, self.get(arg, form)?));
            }
        }
        let blends: Vec<bool> = values
            .iter()
            .map(|(param, ..)| (blend || self.shapes.escapes.contains_key(param)) && bits != FULL)
            .collect();
        let mask = blends.contains(&true).then(|| match &self.mask {
            Some(mask) if *bits == self.bits => mask.clone(),
            _ => self.mask_of(bits),
        });
        for ((param, form, name), blend) in values.into_iter().zip(blends) {
            self.keep(param, form, &name, mask.clone().filter(|_| blend))?;
        }
        let old = self.make(format!("load i{LANES}, ptr %m{}", edge.to));
        let new = self.make(format!("or i{LANES} {old}, {bits}"));
        self.line(format!("store i{LANES} {new}, ptr %m{}", edge.to));
        Ok(())
    }
}

/// The number as one of the type.
pub(super) fn narrow(ty: &str, number: i64) -> i64 {
    match ty {
        "i8" => i64::from(number as i8),
        "i16" => i64::from(number as i16),
        "i32" => i64::from(number as i32),
        _ => number,
    }
}
