//! Instructions that touch memory or call.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AtomicRmwOp, BlockArg, BlockCall, Inst, InstructionData, MemFlags, Opcode, Value, ValueDef, types,
};

use super::flow::Refusal;
use super::shape::{Shape, UNIFORM, constant, thread_field};
use super::translate::{Form, Translator, scalar_type, vector_type};

/// Blocks whose rows of threads access fewer bytes together than this are small.
const SMALL: usize = 256;

/// The addresses of a row of elements.
pub(super) struct Row {
    /// The first lane's address.
    pub first: String,
    /// From one lane to the next.
    pub step: i64,
    /// What has to hold for that.
    pub valid: String,
}

/// How the lanes of a value are found from other values.
enum Way {
    /// They go up by so much from the first lane's.
    Known(i64),
    /// The value is a sum or a difference.
    Sum(Opcode, [Value; 2]),
    /// The value is `inside` where a distance, which goes up by `step` from lane to lane, is below a bound, and where it is a multiple of 2 to the power
    /// of `zeros`, as the distance is then. It faults otherwise.
    Bounded { inside: Value, distance: Value, step: i64, bound: u64, zeros: u32 },
    /// The value is `base` and a number of 32 bits made longer, where that is such a multiple, and faults otherwise.
    Short { base: Value, long: Value, short: Value, step: i64, zeros: u32 },
}

/// So many operations are looked through for that.
const DEEPEST: u32 = 4;

impl<const LANES: usize> Translator<'_, LANES> {
    /// Writes an instruction that touches memory or calls.
    pub(super) fn effect(&mut self, inst: Inst) -> Result<(), Refusal> {
        let data = self.func.dfg.insts[inst];
        match data {
            _ if self.done.remove(&inst) => Ok(()),
            InstructionData::Load { opcode: Opcode::Load, .. }
                if self.load_word(inst)? || self.load_from_row(inst)? =>
            {
                Ok(())
            }
            InstructionData::Store { opcode: Opcode::Store, args: [value, _], .. }
                if self.store_word(inst, value)?
                    || self.store_to_row(inst, value)?
                    || self.store_of_little(inst, value)? =>
            {
                Ok(())
            }
            InstructionData::Load { opcode: Opcode::Load, .. } if self.load_structures(inst)? => Ok(()),
            InstructionData::Store { opcode: Opcode::Store, .. } if self.store_structures(inst)? => Ok(()),
            InstructionData::Load { opcode: Opcode::Load, arg, flags, offset } => {
                self.load(inst, arg, flags, i32::from(offset).into())
            }
            InstructionData::Store { opcode: Opcode::Store, args: [value, address], offset, .. } => {
                self.store(value, address, i32::from(offset).into())
            }
            InstructionData::LoadNoOffset { opcode: Opcode::AtomicLoad, arg, .. } => {
                let result = self.func.dfg.first_result(inst);
                let (ty, bytes) = (scalar_type(self.type_of(result))?, self.type_of(result).bytes());
                self.lane_by_lane(inst, &[arg], Turns::Loop, |t, lane| {
                    let at = t.make(format!("inttoptr i64 {} to ptr", lane[0]));
                    Ok(Some(t.make(format!("load atomic volatile {ty}, ptr {at} seq_cst, align {bytes}"))))
                })
            }
            InstructionData::StoreNoOffset {
                opcode: Opcode::AtomicStore, args: [value, address], ..
            } => {
                let (ty, bytes) = (scalar_type(self.type_of(value))?, self.type_of(value).bytes());
                self.lane_by_lane(inst, &[value, address], Turns::Loop, |t, lane| {
                    let at = t.make(format!("inttoptr i64 {} to ptr", lane[1]));
                    t.line(format!(
                        "store atomic volatile {ty} {}, ptr {at} seq_cst, align {bytes}",
                        lane[0]
                    ));
                    Ok(None)
                })
            }
            InstructionData::AtomicRmw { args: [address, value], op, flags, .. } => {
                if self.is_alone(flags) {
                    return self.one_after_another(inst, address, value, |t, ty, old, value| {
                        t.combined(op, ty, old, value)
                    });
                }
                let (ty, bytes) = (scalar_type(self.type_of(value))?, self.type_of(value).bytes());
                let name = match op {
                    AtomicRmwOp::Smin => "min".into(),
                    AtomicRmwOp::Smax => "max".into(),
                    op => op.to_string(),
                };
                self.lane_by_lane(inst, &[address, value], Turns::Loop, |t, lane| {
                    let at = t.make(format!("inttoptr i64 {} to ptr", lane[0]));
                    Ok(Some(t.make(format!(
                        "atomicrmw volatile {name} ptr {at}, {ty} {} seq_cst, align {bytes}",
                        lane[1]
                    ))))
                })
            }
            InstructionData::AtomicCas { args: [address, ..], flags, .. }
                if let Some(value) = self.sum_of(inst) =>
            {
                self.sum(inst, address, value, self.is_alone(flags))
            }
            InstructionData::AtomicCas { args: [address, old, new], flags, .. } => {
                let (ty, bytes) = (scalar_type(self.type_of(old))?, self.type_of(old).bytes());
                let alone = self.is_alone(flags);
                let turns = if alone { Turns::Row } else { Turns::Loop };
                self.lane_by_lane(inst, &[address, old, new], turns, |t, lane| {
                    let at = t.make(format!("inttoptr i64 {} to ptr", lane[0]));
                    let (old, new) = (&lane[1], &lane[2]);
                    if alone {
                        let found = t.make(format!("load {ty}, ptr {at}, align {bytes}"));
                        let found = t.make(format!("freeze {ty} {found}"));
                        let same = t.make(format!("icmp eq {ty} {found}, {old}"));
                        let next = t.make(format!("select i1 {same}, {ty} {new}, {ty} {found}"));
                        t.line(format!("store {ty} {next}, ptr {at}, align {bytes}"));
                        return Ok(Some(found));
                    }
                    let order = format!("seq_cst seq_cst, align {bytes}");
                    let pair = t.make(format!("cmpxchg volatile ptr {at}, {ty} {old}, {ty} {new} {order}"));
                    Ok(Some(t.make(format!("extractvalue {{ {ty}, i1 }} {pair}, 0"))))
                })
            }
            InstructionData::NullAry { opcode: Opcode::Fence } => {
                self.line("fence seq_cst");
                Ok(())
            }
            InstructionData::CallIndirect { opcode: Opcode::CallIndirect, .. } => self.call(inst),
            data => Err(data.opcode().to_string()),
        }
    }

    /// An operation on memory that nobody else touches meanwhile: whether it is one.
    fn is_alone(&self, flags: MemFlags) -> bool {
        self.func.dfg.mem_flags[flags].can_move()
    }

    /// An operation that need not be atomic, but is each lane's behind the one before it. `combined` makes what is stored.
    fn one_after_another(
        &mut self,
        inst: Inst,
        address: Value,
        value: Value,
        combined: impl Fn(&mut Self, &str, &str, &str) -> String,
    ) -> Result<(), Refusal> {
        let (ty, bytes) = (scalar_type(self.type_of(value))?, self.type_of(value).bytes());
        self.lane_by_lane(inst, &[address, value], Turns::Row, |t, lane| {
            let at = t.make(format!("inttoptr i64 {} to ptr", lane[0]));
            let old = t.make(format!("load {ty}, ptr {at}, align {bytes}"));
            let old = t.make(format!("freeze {ty} {old}"));
            let new = combined(t, ty, &old, &lane[1]);
            t.line(format!("store {ty} {new}, ptr {at}, align {bytes}"));
            Ok(Some(old))
        })
    }

    /// What an atomic sum adds, if a compare and exchange is that of one: of a loop that tries until nobody has come in between. Lanes with one address
    /// would come in between of each other, so the whole loop is made for one lane after another.
    fn sum_of(&self, inst: Inst) -> Option<Value> {
        let dfg = &self.func.dfg;
        let result_of = |value: Value, opcode: Opcode| {
            let made = dfg.value_def(dfg.resolve_aliases(value)).inst()?;
            (dfg.insts[made].opcode() == opcode).then_some(made)
        };
        let InstructionData::AtomicCas { args: [_, expected, new], .. } = dfg.insts[inst] else {
            return None;
        };
        let (expected, found) = (dfg.resolve_aliases(expected), dfg.first_result(inst));
        let block = self.func.layout.inst_block(inst)?;
        let again = |target: &BlockCall| {
            let found = BlockArg::from(found);
            target.block(&dfg.value_lists) == block && target.args(&dfg.value_lists).eq([found])
        };
        let last = self.func.layout.last_inst(block)?;
        let InstructionData::Brif { arg, blocks: [_, attempt], .. } = &dfg.insts[last] else { return None };
        let same = result_of(*arg, Opcode::Icmp)?;
        if !again(attempt) || dfg.block_params(block) != [expected] {
            return None;
        }
        let sum = result_of(dfg.inst_args(result_of(new, Opcode::Bitcast)?)[0], Opcode::Fadd)?;
        let &[old, value] = dfg.inst_args(sum) else { return None };
        let old = result_of(old, Opcode::Bitcast)?;
        let outside = |value| match dfg.value_def(dfg.resolve_aliases(value)) {
            ValueDef::Result(made, _) => self.func.layout.inst_block(made) != Some(block),
            ValueDef::Param(other, _) => other != block,
            ValueDef::Union(..) => false,
        };
        let compares =
            dfg.inst_args(same).iter().map(|&value| dfg.resolve_aliases(value)).eq([found, expected]);
        let equal = matches!(dfg.insts[same], InstructionData::IntCompare { cond: IntCC::Equal, .. });
        // Nothing else sees what was expected, which was found in turns that did not succeed.
        let reads = |&made: &Inst| dfg.inst_values(made).any(|value| dfg.resolve_aliases(value) == expected);
        let mut readers =
            self.func.layout.blocks().flat_map(|block| self.func.layout.block_insts(block)).filter(reads);
        let alone = dfg.resolve_aliases(dfg.inst_args(old)[0]) == expected
            && readers.all(|reader| [inst, same, old].contains(&reader));
        (compares && equal && alone && outside(value)).then_some(value)
    }

    /// Whether two numbers are what an atomic sum found and what it had expected: it goes on until they are one.
    pub(super) fn is_settled(&self, values: &[Value]) -> bool {
        let made = values.first().and_then(|&found| self.func.dfg.value_def(found).inst());
        made.is_some_and(|made| {
            let read = self.func.dfg.inst_args(made).get(1);
            self.sum_of(made).is_some()
                && read.map(|&value| self.func.dfg.resolve_aliases(value)) == values.get(1).copied()
        })
    }

    /// An atomic sum.
    fn sum(&mut self, inst: Inst, address: Value, value: Value, alone: bool) -> Result<(), Refusal> {
        let (ty, bytes) = (scalar_type(self.type_of(value))?, self.type_of(value).bytes());
        let turns = if alone { Turns::Row } else { Turns::Loop };
        self.lane_by_lane(inst, &[address, value], turns, |t, lane| {
            let at = t.make(format!("inttoptr i64 {} to ptr", lane[0]));
            let old = if alone {
                let old = t.make(format!("load {ty}, ptr {at}, align {bytes}"));
                let sum = t.make(format!("fadd {ty} {old}, {}", lane[1]));
                t.line(format!("store {ty} {sum}, ptr {at}, align {bytes}"));
                old
            } else {
                t.make(format!("atomicrmw volatile fadd ptr {at}, {ty} {} seq_cst, align {bytes}", lane[1]))
            };
            Ok(Some(t.make(format!("bitcast {ty} {old} to i{}", 8 * bytes))))
        })
    }

    /// What an atomic operation stores.
    fn combined(&mut self, op: AtomicRmwOp, ty: &str, old: &str, value: &str) -> String {
        let order = match op {
            AtomicRmwOp::Xchg => return value.to_owned(),
            AtomicRmwOp::Nand => {
                let both = self.make(format!("and {ty} {old}, {value}"));
                return self.make(format!("xor {ty} {both}, -1"));
            }
            AtomicRmwOp::Umin => "ult",
            AtomicRmwOp::Umax => "ugt",
            AtomicRmwOp::Smin => "slt",
            AtomicRmwOp::Smax => "sgt",
            AtomicRmwOp::Add | AtomicRmwOp::Sub | AtomicRmwOp::And | AtomicRmwOp::Or | AtomicRmwOp::Xor => {
                return self.make(format!("{op} {ty} {old}, {value}"));
            }
        };
        let first = self.make(format!("icmp {order} {ty} {old}, {value}"));
        self.make(format!("select i1 {first}, {ty} {old}, {ty} {value}"))
    }

    /// A pointer, so far behind an address.
    pub(super) fn pointer(&mut self, address: &str, offset: i64) -> String {
        let at = self.make(format!("add i64 {address}, {offset}"));
        self.make(format!("inttoptr i64 {at} to ptr"))
    }

    pub(super) fn pointers(&mut self, addresses: &str, offset: i64) -> String {
        let vector = format!("<{LANES} x i64>");
        let all = super::translate::all_lanes::<LANES>("i64", offset);
        let at = self.make(format!("add {vector} {addresses}, {all}"));
        self.make(format!("inttoptr {vector} {at} to <{LANES} x ptr>"))
    }

    /// How a value follows from others of which it is known how lanes follow from the first one: nothing where that is not known.
    fn way_to(&self, value: Value) -> Option<Way> {
        if let Some(way) = self.way_to_multiple(value) {
            return Some(way);
        }
        if let Shape::Affine { step, .. } = self.shape(value) {
            return Some(Way::Known(step));
        }
        let ValueDef::Result(inst, _) = self.func.dfg.value_def(value) else { return None };
        match self.func.dfg.insts[inst] {
            InstructionData::Binary { opcode: opcode @ (Opcode::Iadd | Opcode::Isub), args } => {
                Some(Way::Sum(opcode, args.map(|arg| self.func.dfg.resolve_aliases(arg))))
            }
            // An address if it is below a bound: so are all lanes' if the first and the last are.
            InstructionData::Ternary { args: [condition, inside, _], .. } => {
                let condition = self.func.dfg.resolve_aliases(condition);
                let compare = self.func.dfg.value_def(condition).inst()?;
                let InstructionData::IntCompare { cond, args, .. } = self.func.dfg.insts[compare] else {
                    return None;
                };
                let [inside, distance, bound] =
                    [inside, args[0], args[1]].map(|value| self.func.dfg.resolve_aliases(value));
                let below = matches!(cond, IntCC::UnsignedLessThan | IntCC::UnsignedLessThanOrEqual);
                let bound = constant(self.func, bound).and_then(|bound| u64::try_from(bound).ok())?;
                let bound = bound + u64::from(cond == IntCC::UnsignedLessThanOrEqual);
                let Shape::Affine { step, .. } = self.shape(distance) else { return None };
                let good = below && (1..=4096).contains(&step) && bound > self.reach(step);
                good.then_some(Way::Bounded { inside, distance, step, bound, zeros: 0 })
            }
            _ => None,
        }
    }

    /// The terms of a value that is a sum.
    fn terms(&self, value: Value) -> Option<[Value; 2]> {
        match self.func.dfg.insts[self.func.dfg.value_def(value).inst()?] {
            InstructionData::Binary { opcode: Opcode::Iadd, args } => {
                Some(args.map(|arg| self.func.dfg.resolve_aliases(arg)))
            }
            _ => None,
        }
    }

    /// What makes an address fault that is no multiple of a power of two: the number whose lowest bits it has at the top, and how many.
    fn lowest_bits(&self, value: Value) -> Option<(Value, u32)> {
        let InstructionData::Binary { opcode: Opcode::Ishl, args } =
            self.func.dfg.insts[self.func.dfg.value_def(value).inst()?]
        else {
            return None;
        };
        let zeros = 64 - constant(self.func, args[1]).filter(|by| (48..64).contains(by))?;
        Some((self.func.dfg.resolve_aliases(args[0]), zeros as u32))
    }

    /// The way to an address that faults where it is no multiple of a power of two, if all lanes' are where the first one's is: then one comparison
    /// says both that it is, and that all lanes follow.
    fn way_to_multiple(&self, value: Value) -> Option<Way> {
        let [a, b] = self.terms(value)?;
        let fits = |step: i64, zeros: u32| (1..=4096).contains(&step) && step % (1 << zeros) == 0;
        if let Some((of, zeros)) = self.lowest_bits(b)
            && let Some(Way::Bounded { inside, distance, step, bound, zeros: 0 }) = self.way_to(a)
        {
            let made = self.func.dfg.value_def(distance).inst()?;
            let InstructionData::Binary { opcode: Opcode::Isub, args } = self.func.dfg.insts[made] else {
                return None;
            };
            // The distance is one from such a multiple.
            let from = constant(self.func, args[1]).is_some_and(|from| from % (1 << zeros) == 0);
            let same = inside == of && self.func.dfg.resolve_aliases(args[0]) == of;
            let good = from && same && fits(step, zeros);
            return good.then_some(Way::Bounded { inside, distance, step, bound, zeros });
        }
        let [base, low] = self.terms(a)?;
        let (long, zeros) = self.lowest_bits(low).filter(|low| low.0 == b)?;
        let made = self.func.dfg.value_def(long).inst()?;
        let InstructionData::Unary { opcode: Opcode::Uextend, arg } = self.func.dfg.insts[made] else {
            return None;
        };
        let short = self.func.dfg.resolve_aliases(arg);
        let Shape::Affine { step, .. } = self.shape(long) else { return None };
        let good = self.shape(base) == UNIFORM
            && self.type_of(short) == types::I32
            && matches!(self.shape(short), Shape::Affine { .. })
            && fits(step, zeros);
        good.then_some(Way::Short { base, long, short, step, zeros })
    }

    /// The values from which [`row_of`](Self::row_of) finds the way to a value's lanes.
    pub(super) fn row_parts(&self, value: Value, parts: &mut Vec<Value>) {
        let mut open = vec![(self.func.dfg.resolve_aliases(value), 0)];
        while let Some((value, depth)) = open.pop() {
            match self.way_to(value).filter(|_| depth <= DEEPEST) {
                Some(Way::Known(_)) => parts.push(value),
                Some(Way::Sum(_, args)) => open.extend(args.map(|arg| (arg, depth + 1))),
                Some(Way::Bounded { inside, distance, .. }) => {
                    parts.push(distance);
                    open.push((inside, depth + 1));
                }
                Some(Way::Short { base, long, short, .. }) => parts.extend([base, long, short]),
                None => {}
            }
        }
    }

    /// The way to a value's lanes from its first one, where there is one. What is written for that is dropped where it is not used.
    pub(super) fn row_of(&mut self, value: Value, depth: u32) -> Result<Option<Row>, Refusal> {
        let value = self.func.dfg.resolve_aliases(value);
        let Some(way) = self.way_to(value).filter(|_| depth <= DEEPEST) else { return Ok(None) };
        match way {
            Way::Known(step) => {
                if !self.is_at_hand(value) {
                    return Ok(None);
                }
                let (first, valid) = (self.get(value, Form::Scalar)?, self.get(value, Form::Valid)?);
                Ok(Some(Row { first, step, valid }))
            }
            Way::Sum(opcode, [a, b]) => {
                let (Some(a), Some(b)) = (self.row_of(a, depth + 1)?, self.row_of(b, depth + 1)?) else {
                    return Ok(None);
                };
                let valid = self.both(&a.valid, &b.valid);
                let (name, step) = match opcode {
                    Opcode::Iadd => ("add", a.step.wrapping_add(b.step)),
                    _ => ("sub", a.step.wrapping_sub(b.step)),
                };
                let first = self.make(format!("{name} i64 {}, {}", a.first, b.first));
                Ok(Some(Row { first, step, valid }))
            }
            Way::Short { base, long, short, step, zeros } => {
                if ![base, long, short].iter().all(|&part| self.is_at_hand(part)) {
                    return Ok(None);
                }
                let (first, follows) = (self.get(short, Form::Scalar)?, self.get(short, Form::Valid)?);
                let zeros = if self.multiples.zeros(self.func, short) < zeros { zeros } else { 0 };
                let good = match (self.mask.is_some(), zeros) {
                    (true, zeros) => {
                        let most = (u64::from(u32::MAX) - self.reach(step)) >> zeros;
                        self.is_multiple("i32", &first, zeros, most)
                    }
                    // Where all lanes are there, a row that goes beyond 32 bits begins in the guard behind the block's memory, faults there for its
                    // first lane, and ends in that guard: it is that much longer.
                    (false, 0) => "true".into(),
                    (false, zeros) => {
                        let low = self.make(format!("and i32 {first}, {}", (1 << zeros) - 1));
                        self.make(format!("icmp eq i32 {low}, 0"))
                    }
                };
                let valid = self.both(&follows, &good);
                let (base, long) = (self.get(base, Form::Scalar)?, self.get(long, Form::Scalar)?);
                let first = self.make(format!("add i64 {base}, {long}"));
                Ok(Some(Row { first, step, valid }))
            }
            Way::Bounded { inside, distance, step, bound, zeros } => {
                if !self.is_at_hand(distance) {
                    return Ok(None);
                }
                let Some(row) = self.row_of(inside, depth + 1)? else { return Ok(None) };
                let (first, follows) = (self.get(distance, Form::Scalar)?, self.get(distance, Form::Valid)?);
                let good = self.is_multiple("i64", &first, zeros, (bound - 1 - self.reach(step)) >> zeros);
                let valid = self.both(&row.valid, &follows);
                let valid = self.both(&valid, &good);
                Ok(Some(Row { valid, ..row }))
            }
        }
    }

    /// How far the last lane's number is from the first one's.
    fn reach(&self, step: i64) -> u64 {
        step.unsigned_abs() * (LANES as u64 - 1)
    }

    /// Whether a number is a multiple of 2 to the power of `zeros`, and so many times that at most. Turned about, the bits that have to be zero are the
    /// highest ones.
    fn is_multiple(&mut self, ty: &str, number: &str, zeros: u32, most: u64) -> String {
        self.declared.insert(format!("declare {ty} @llvm.fshr.{ty}({ty}, {ty}, {ty})\n"));
        let turned =
            self.make(format!("call {ty} @llvm.fshr.{ty}({ty} {number}, {ty} {number}, {ty} {zeros})"));
        self.make(format!("icmp ule {ty} {turned}, {most}"))
    }

    /// The row that an access to elements of so many bytes goes along, if it may.
    fn dense(&mut self, address: Value, bytes: u32) -> Result<Option<Row>, Refusal> {
        let row = self.row_of(address, 0)?;
        if let Some(row) = row.filter(|row| row.valid != "false") {
            return Ok((row.step == i64::from(bytes)).then_some(row));
        }
        self.row_found(address, bytes).map(Some)
    }

    /// The row that an access goes along if the addresses, which may be anything, turn out to make one.
    fn row_found(&mut self, address: Value, bytes: u32) -> Result<Row, Refusal> {
        let vector = format!("<{LANES} x i64>");
        let all = self.get(address, Form::Vector)?;
        // In lanes that are not there it may be undefined, which has to be one number for good.
        let all = self.make(format!("freeze {vector} {all}"));
        let first = self.make(format!("extractelement {vector} {all}, i32 0"));
        let step = i64::from(bytes);
        let row = self.row(address, &first, step)?;
        let same = self.make(format!("icmp eq {vector} {all}, {row}"));
        let same = self.bits_of(&same);
        let there = self.bits.clone();
        let good = self.make(format!("and i{LANES} {same}, {there}"));
        let valid = self.make(format!("icmp eq i{LANES} {good}, {there}"));
        Ok(Row { first, step, valid })
    }

    /// Has the processor fetch what the block beside this one will most likely access there: what the row of threads behind this one would. In
    /// a loop with the grid's stride it is what the next round will access. In other loops addresses go their own way, and what is fetched might
    /// be in the way.
    pub(super) fn fetch_ahead(&mut self, row: &Row, address: Value, bytes: u32, offset: i64) {
        let in_loop = self.number.is_some_and(|number| self.flow.loops.iter().any(|l| l.has[number]));
        let strides = self.segments[self.segment].strides;
        if in_loop && strides == 0 || !self.is_confined(address, 0) {
            return;
        }
        let ahead = match strides {
            0 => {
                let beside = self.make(format!("mul i64 %width, {bytes}"));
                // Small blocks that load a tile and its border, and then wait, would access what they have fetched for the next one right
                // then: for those it is the block behind that.
                if self.flow.has_cuts() {
                    let small = self.make(format!("icmp ult i64 {beside}, {SMALL}"));
                    let behind = self.make(format!("shl i64 {beside}, 1"));
                    self.make(format!("select i1 {small}, i64 {behind}, i64 {beside}"))
                } else {
                    beside
                }
            }
            strides => self.make(format!("mul i64 %stride, {}", bytes * strides)),
        };
        let at = self.make(format!("add i64 {}, {ahead}", row.first));
        let at = self.pointer(&at, offset);
        self.declared.insert("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)\n".into());
        self.line(format!("call void @llvm.prefetch.p0(ptr {at}, i32 0, i32 3, i32 1)"));
    }

    /// Whether an address is confined to the device's memory by a comparison, so that it leads to none that blocks have for themselves.
    fn is_confined(&self, address: Value, depth: u32) -> bool {
        let address = self.func.dfg.resolve_aliases(address);
        let ValueDef::Result(inst, _) = self.func.dfg.value_def(address) else { return false };
        match self.func.dfg.insts[inst] {
            InstructionData::Ternary { .. } => true,
            InstructionData::Binary { opcode: Opcode::Iadd, args } if depth < 3 => {
                args.into_iter().any(|arg| self.is_confined(arg, depth + 1))
            }
            _ => false,
        }
    }

    /// Divides control in two by whether a row is one.
    pub(super) fn divide(&mut self, row: &Row) -> Option<[String; 3]> {
        if row.valid == "true" {
            return None;
        }
        let labels = [self.label(), self.label(), self.label()];
        self.line(format!("br i1 {}, label %{}, label %{}", row.valid, labels[0], labels[1]));
        self.begin(&labels[0]);
        Some(labels)
    }

    /// The pointers to so many places in a row that do not touch each other, where all lanes are there.
    pub(super) fn places(&mut self, address: Value, offset: i64) -> Result<Option<Vec<String>>, Refusal> {
        let Shape::Affine { step, guarded: false } = self.shape(address) else { return Ok(None) };
        if self.mask.is_some() || step.unsigned_abs() > 1 << 20 {
            return Ok(None);
        }
        let first = self.get(address, Form::Scalar)?;
        Ok(Some((0..LANES as i64).map(|lane| self.pointer(&first, offset + lane * step)).collect()))
    }

    fn load(&mut self, inst: Inst, address: Value, flags: MemFlags, offset: i64) -> Result<(), Refusal> {
        let result = self.func.dfg.first_result(inst);
        let (ty, bytes) = (scalar_type(self.type_of(result))?, self.type_of(result).bytes());
        let vector = vector_type::<LANES>(self.type_of(result))?;
        let shape = self.shape(result);
        let readonly = self.func.dfg.mem_flags[flags].readonly();
        if !self.read.contains(&result) {
            // Whether it faults is all that counts, which LLVM would not keep.
            if self.func.dfg.mem_flags[flags].notrap() {
                return Ok(());
            }
            return self.lane_by_lane(inst, &[address], Turns::Loop, |t, lane| {
                let at = t.pointer(&lane[0], offset);
                Ok(Some(t.make(format!("load volatile {ty}, ptr {at}, align {bytes}"))))
            });
        }
        if matches!(shape, Shape::Affine { .. }) {
            let at = if thread_field(self.func, self.flow, inst).is_some() {
                self.get(self.flow.thread, Form::Scalar)?
            } else {
                self.get(address, Form::Scalar)?
            };
            let at = self.pointer(&at, offset);
            let tail = if readonly { ", !invariant.load !0" } else { "" };
            // Whether the address is good counts even where LLVM finds that the value does not.
            let how = if self.func.dfg.mem_flags[flags].notrap() { "" } else { "volatile " };
            let mut name = self.make(format!("load {how}{ty}, ptr {at}, align {bytes}{tail}"));
            if !readonly {
                // One value for good, whatever other threads write there.
                name = self.make(format!("freeze {ty} {name}"));
            }
            return self.define(result, Form::Scalar, name);
        }
        let row = self.dense(address, bytes)?;
        if row.is_none()
            && let Some(places) = self.places(address, offset)?
        {
            let mut name = "poison".to_string();
            for (lane, at) in places.iter().enumerate() {
                let one = self.make(format!("load {ty}, ptr {at}, align {bytes}"));
                name = self.make(format!("insertelement {vector} {name}, {ty} {one}, i32 {lane}"));
            }
            let name = self.make(format!("freeze {vector} {name}"));
            return self.define(result, Form::Vector, name);
        }
        let whole = self.mask.is_none();
        let mask = self.mask();
        let all = self.get(address, Form::Vector)?;
        let mut name = String::new();
        let mut ways = None;
        if let Some(row) = &row {
            ways = self.divide(row);
            self.fetch_ahead(row, address, bytes, offset);
            let at = self.pointer(&row.first, offset);
            name = if whole {
                self.make(format!("load {vector}, ptr {at}, align {bytes}"))
            } else {
                let kind = format!("v{LANES}{}", tail(ty));
                self.declared.insert(format!(
                    "declare {vector} @llvm.masked.load.{kind}.p0(ptr, i32, <{LANES} x i1>, {vector})\n"
                ));
                self.make(format!(
                    "call {vector} @llvm.masked.load.{kind}.p0(ptr {at}, i32 {bytes}, <{LANES} x i1> {mask}, {vector} zeroinitializer)"
                ))
            };
        }
        if row.is_none() || ways.is_some() {
            if let Some([_, slow, out]) = &ways {
                self.line(format!("br label %{out}"));
                self.begin(slow);
            }
            let at = self.pointers(&all, offset);
            let gathered = self.gather(ty, bytes, &at, &mask);
            name = match &ways {
                Some([fast, slow, out]) => {
                    self.line(format!("br label %{out}"));
                    self.begin(out);
                    self.make(format!("phi {vector} [ {name}, %{fast} ], [ {gathered}, %{slow} ]"))
                }
                None => gathered,
            };
        }
        let name = self.make(format!("freeze {vector} {name}"));
        self.define(result, Form::Vector, name)
    }

    /// Loads the lanes of a mask from pointers that may lead anywhere.
    pub(super) fn gather(&mut self, ty: &str, bytes: u32, pointers: &str, mask: &str) -> String {
        let (vector, kind) = (format!("<{LANES} x {ty}>"), format!("v{LANES}{}", tail(ty)));
        self.declared.insert(format!(
            "declare {vector} @llvm.masked.gather.{kind}.v{LANES}p0(<{LANES} x ptr>, i32, <{LANES} x i1>, {vector})\n"
        ));
        self.make(format!(
            "call {vector} @llvm.masked.gather.{kind}.v{LANES}p0(<{LANES} x ptr> {pointers}, i32 {bytes}, <{LANES} x i1> {mask}, {vector} zeroinitializer)"
        ))
    }

    /// Stores the lanes of a mask to pointers that may lead anywhere.
    pub(super) fn scatter(&mut self, ty: &str, bytes: u32, value: &str, pointers: &str, mask: &str) {
        let (vector, kind) = (format!("<{LANES} x {ty}>"), format!("v{LANES}{}", tail(ty)));
        self.declared.insert(format!(
            "declare void @llvm.masked.scatter.{kind}.v{LANES}p0({vector}, <{LANES} x ptr>, i32, <{LANES} x i1>)\n"
        ));
        self.line(format!(
            "call void @llvm.masked.scatter.{kind}.v{LANES}p0({vector} {value}, <{LANES} x ptr> {pointers}, i32 {bytes}, <{LANES} x i1> {mask})"
        ));
    }

    fn store(&mut self, value: Value, address: Value, offset: i64) -> Result<(), Refusal> {
        let (ty, bytes) = (scalar_type(self.type_of(value))?, self.type_of(value).bytes());
        let vector = vector_type::<LANES>(self.type_of(value))?;
        if self.shape(address) == UNIFORM {
            let cursor = self.func.dfg.resolve_aliases(value) == self.flow.thread;
            if cursor || self.shape(value) == UNIFORM {
                let name = self.get(value, Form::Scalar)?;
                let at = self.get(address, Form::Scalar)?;
                let at = self.pointer(&at, offset);
                self.line(format!("store {ty} {name}, ptr {at}, align {bytes}"));
                return Ok(());
            }
        }
        let row = self.dense(address, bytes)?;
        if row.is_none()
            && let Some(places) = self.places(address, offset)?
        {
            let uniform = self.shape(value) == UNIFORM;
            let name = self.get(value, if uniform { Form::Scalar } else { Form::Vector })?;
            for (lane, at) in places.iter().enumerate() {
                let one = match uniform {
                    true => name.clone(),
                    false => self.make(format!("extractelement {vector} {name}, i32 {lane}")),
                };
                self.line(format!("store {ty} {one}, ptr {at}, align {bytes}"));
            }
            return Ok(());
        }
        let whole = self.mask.is_none();
        let mask = self.mask();
        let name = self.get(value, Form::Vector)?;
        let all = self.get(address, Form::Vector)?;
        let mut ways = None;
        if let Some(row) = &row {
            ways = self.divide(row);
            let at = self.pointer(&row.first, offset);
            if whole {
                self.line(format!("store {vector} {name}, ptr {at}, align {bytes}"));
            } else {
                let kind = format!("v{LANES}{}", tail(ty));
                self.declared.insert(format!(
                    "declare void @llvm.masked.store.{kind}.p0({vector}, ptr, i32, <{LANES} x i1>)\n"
                ));
                self.line(format!(
                    "call void @llvm.masked.store.{kind}.p0({vector} {name}, ptr {at}, i32 {bytes}, <{LANES} x i1> {mask})"
                ));
            }
            let Some([_, slow, out]) = &ways else { return Ok(()) };
            self.line(format!("br label %{out}"));
            self.begin(slow);
        }
        let at = self.pointers(&all, offset);
        self.scatter(ty, bytes, &name, &at, &mask);
        if let Some([_, _, out]) = &ways {
            self.line(format!("br label %{out}"));
            self.begin(out);
        }
        Ok(())
    }

    /// Calls a function of the executor or of this crate for each lane.
    fn call(&mut self, inst: Inst) -> Result<(), Refusal> {
        let args = self.func.dfg.inst_args(inst).to_vec();
        let InstructionData::CallIndirect { sig_ref, .. } = self.func.dfg.insts[inst] else {
            return Err("a call".into());
        };
        let signature = &self.func.dfg.signatures[sig_ref];
        let Some(callee) = constant(self.func, args[0]) else {
            return Err("a call through a pointer".into());
        };
        let helpers = self.own.helpers;
        for (one, all) in [(helpers.texture, helpers.textures), (helpers.tensor, helpers.tensors)] {
            if let &[_, _, object, number] = &args[..]
                && callee == one as i64
            {
                return self.operate(inst, all, object, number);
            }
        }
        let small = signature.params.iter().chain(&signature.returns).any(|p| p.value_type.bits() < 32);
        if small || signature.returns.len() > 1 {
            return Err("a call with small arguments".into());
        }
        let result = match signature.returns.first() {
            Some(result) => scalar_type(result.value_type)?,
            None => "void",
        };
        let mut kinds = Vec::new();
        for &arg in &args[1..] {
            kinds.push(scalar_type(self.type_of(arg))?);
        }
        let callee = self.get(args[0], Form::Scalar)?;
        self.lane_by_lane(inst, &args[1..], Turns::Loop, |t, lane| {
            let list: Vec<String> = kinds.iter().zip(lane).map(|(ty, arg)| format!("{ty} {arg}")).collect();
            let at = t.make(format!("inttoptr i64 {callee} to ptr"));
            let call = format!("call {result} {at}({})", list.join(", "));
            if result == "void" {
                t.line(call);
                Ok(None)
            } else {
                Ok(Some(t.make(call)))
            }
        })
    }

    /// Does something for each lane that is there, in their order. `once` gets the lane's values, and writes code without blocks.
    fn lane_by_lane(
        &mut self,
        inst: Inst,
        values: &[Value],
        turns: Turns,
        mut once: impl FnMut(&mut Self, &[String]) -> Result<Option<String>, Refusal>,
    ) -> Result<(), Refusal> {
        let mask = self.mask();
        let mut all = Vec::new();
        for &value in values {
            all.push((vector_type::<LANES>(self.type_of(value))?, self.get(value, Form::Vector)?));
        }
        let result = self.func.dfg.inst_results(inst).first().copied().filter(|r| self.read.contains(r));
        let bits = format!("i{LANES}");
        let first = self.bits_of(&mask);
        let (before, turn, out) = (self.label(), self.label(), self.label());
        // Where all lanes are there, they need not be looked for.
        let mut whole = None;
        if turns == Turns::Row {
            let row = self.label();
            if self.mask.is_some() {
                let all_there = self.make(format!("icmp eq {bits} {first}, -1"));
                self.line(format!("br i1 {all_there}, label %{row}, label %{before}"));
            } else {
                self.line(format!("br label %{row}"));
            }
            self.begin(&row);
            let made = self.each_lane(&all, result, &mut once)?;
            self.line(format!("br label %{out}"));
            if self.mask.is_none() {
                self.begin(&out);
                return match (result, made) {
                    (Some(result), Some(made)) => self.define(result, Form::Vector, made),
                    _ => Ok(()),
                };
            }
            whole = Some((row, made));
        } else {
            self.line(format!("br label %{before}"));
        }
        self.begin(&before);
        self.line(format!("br label %{turn}"));
        self.begin(&turn);
        let (left, rest) = (self.fresh(), self.fresh());
        self.line(format!("{left} = phi {bits} [ {first}, %{before} ], [ {rest}, %{turn} ]"));
        let gathered = match result {
            Some(result) => {
                let vector = vector_type::<LANES>(self.type_of(result))?;
                let (old, new) = (self.fresh(), self.fresh());
                self.line(format!("{old} = phi {vector} [ zeroinitializer, %{before} ], [ {new}, %{turn} ]"));
                Some((vector, old, new))
            }
            None => None,
        };
        let lane = self.first_lane(&left);
        let thread = self.thread_of(&lane)?;
        self.set_cursor(&thread)?;
        let mut lanes = Vec::new();
        for (vector, value) in &all {
            lanes.push(self.make(format!("extractelement {vector} {value}, i32 {lane}")));
        }
        let made = once(self, &lanes)?;
        if let (Some((vector, old, new)), Some(made), Some(result)) = (&gathered, made, result) {
            let ty = scalar_type(self.type_of(result))?;
            self.line(format!("{new} = insertelement {vector} {old}, {ty} {made}, i32 {lane}"));
        }
        let less = self.make(format!("sub {bits} {left}, 1"));
        self.line(format!("{rest} = and {bits} {left}, {less}"));
        let more = self.make(format!("icmp ne {bits} {rest}, 0"));
        self.line(format!("br i1 {more}, label %{turn}, label %{out}"));
        self.begin(&out);
        let (Some(result), Some((vector, _, mut new))) = (result, gathered) else { return Ok(()) };
        if let Some((row, Some(made))) = whole {
            new = self.make(format!("phi {vector} [ {made}, %{row} ], [ {new}, %{turn} ]"));
        }
        let name = self.make(format!("freeze {vector} {new}"));
        self.define(result, Form::Vector, name)
    }

    /// Does something for all lanes, and returns the vector of the results.
    fn each_lane(
        &mut self,
        all: &[(String, String)],
        result: Option<Value>,
        once: &mut impl FnMut(&mut Self, &[String]) -> Result<Option<String>, Refusal>,
    ) -> Result<Option<String>, Refusal> {
        let mut gathered = None;
        for lane in 0..LANES {
            let thread = self.thread_of(&lane.to_string())?;
            self.set_cursor(&thread)?;
            let mut lanes = Vec::new();
            for (vector, value) in all {
                lanes.push(self.make(format!("extractelement {vector} {value}, i32 {lane}")));
            }
            if let (Some(made), Some(result)) = (once(self, &lanes)?, result) {
                let (ty, vector) =
                    (scalar_type(self.type_of(result))?, vector_type::<LANES>(self.type_of(result))?);
                let old = gathered.take().unwrap_or_else(|| "poison".into());
                gathered = Some(self.make(format!("insertelement {vector} {old}, {ty} {made}, i32 {lane}")));
            }
        }
        Ok(gathered)
    }
}

/// How lanes take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turns {
    /// By a loop over those that are there.
    Loop,
    /// One behind the other where all are there, else by a loop.
    Row,
}

/// The end of an intrinsic function's name.
pub(super) fn tail(ty: &str) -> &str {
    match ty {
        "float" => "f32",
        "double" => "f64",
        ty => ty,
    }
}
