//! What threads leave at a cut and find behind it: in the row of their group, where one instruction stores or loads a value of all lanes.

use std::mem::offset_of;

use cranelift_codegen::ir::{Function, Inst, InstructionData, Opcode, Type, Value};

use super::flow::{Flow, Refusal};
use super::phases::OP;
use super::shape::{Shape, UNIFORM, state_offset, thread_field};
use super::translate::{Form, Translator, scalar_type, vector_type};
use crate::abi::{self, MOST_LANES, ROW_OPERANDS, Row, Thread};

/// No thread has stopped yet: no number of a stop.
pub(super) const NOBODY: u32 = abi::APART - 1;

const RESUME: usize = offset_of!(Thread, resume);
const STOP: usize = offset_of!(Thread, stop);

/// Something in the row of a group.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Bytes behind the row's beginning.
    offset: usize,
    /// What is known of it. All lanes have a place of their own, unless they follow from the first.
    shape: Shape,
}

impl Place {
    /// Whether only the first lane's value is there.
    fn is_one(self) -> bool {
        matches!(self.shape, Shape::Affine { guarded: false, .. })
    }
}

/// The field of the thread that is stored to.
pub(super) fn stored_field(func: &Function, flow: &Flow, inst: Inst) -> Option<usize> {
    let InstructionData::Store { opcode: Opcode::Store, args: [_, address], offset, .. } =
        func.dfg.insts[inst]
    else {
        return None;
    };
    (func.dfg.resolve_aliases(address) == flow.thread)
        .then(|| usize::try_from(i32::from(offset)).ok())
        .flatten()
}

/// Where a value of the state lies that is the same in all threads of a block,
pub(super) fn common_place(offset: i32) -> String {
    format!("%c{offset}")
}

/// and what groups that have gone on leave of it for the next phase.
pub(super) fn next_place(offset: i32) -> String {
    format!("%d{offset}")
}

impl<const LANES: usize> Translator<'_, LANES> {
    /// How far behind the beginning of its row a group keeps a value of the state.
    fn behind_row(offset: i32) -> i64 {
        size_of::<Row>() as i64 + LANES as i64 * i64::from(offset)
    }

    /// Where an access to a thread's field or state leads to in the row, if it does.
    fn place_of(&self, inst: Inst) -> Option<Place> {
        if !self.flow.has_cuts() {
            return None;
        }
        if let Some(offset) = state_offset(self.func, self.flow, inst) {
            let shape = self.shapes.cells.get(&offset)?.0;
            return Some(Place { offset: usize::try_from(Self::behind_row(offset)).ok()?, shape });
        }
        const END: usize = OP + 8 * ROW_OPERANDS;
        let field =
            thread_field(self.func, self.flow, inst).or_else(|| stored_field(self.func, self.flow, inst))?;
        let offset = match field {
            RESUME => offset_of!(Row, resume),
            STOP => offset_of!(Row, stop),
            OP..END => offset_of!(Row, op) + MOST_LANES * (field - OP),
            _ => return None,
        };
        Some(Place { offset, shape: Shape::Varying })
    }

    /// Where in the state a value is that an access is to, if all threads of the block have it in one place in the copy that is being written.
    fn common_offset(&self, inst: Inst) -> Option<i32> {
        let (phases, _) = self.phases.as_ref().zip(self.copies[self.copy].enters)?;
        state_offset(self.func, self.flow, inst).filter(|&offset| phases.is_common(offset))
    }

    /// A pointer to a place.
    fn in_row(&mut self, place: Place) -> String {
        let row = self.make("load i64, ptr %row");
        self.pointer(&row, place.offset as i64)
    }

    /// Loads from the row, if that is what the instruction does.
    pub(super) fn load_from_row(&mut self, inst: Inst) -> Result<bool, Refusal> {
        let Some(place) = self.place_of(inst) else { return Ok(false) };
        let result = self.func.dfg.first_result(inst);
        if !self.read.contains(&result) {
            return Ok(true);
        }
        if let Some(offset) = self.common_offset(inst) {
            let ty = scalar_type(self.type_of(result))?;
            let name = self.make(format!("load {ty}, ptr {}", common_place(offset)));
            return self.define(result, Form::Scalar, name).map(|()| true);
        }
        let at = self.in_row(place);
        let ty = self.type_of(result);
        let (one, all) = (scalar_type(ty)?, vector_type::<LANES>(ty)?);
        if self.shape(result) == UNIFORM || place.is_one() {
            let first = self.make(format!("load {one}, ptr {at}, align {}", ty.bytes()));
            if matches!(self.shape(result), Shape::Affine { guarded: false, .. }) {
                self.define(result, Form::Scalar, first)?;
                return Ok(true);
            }
            let Shape::Affine { step, .. } = place.shape else { return Err("a value of the state".into()) };
            let name = self.row(result, &first, step)?;
            if matches!(self.shape(result), Shape::Affine { .. }) {
                self.define(result, Form::Scalar, first)?;
                self.define(result, Form::Valid, "true".into())?;
            }
            self.define(result, Form::Vector, name)?;
            return Ok(true);
        }
        let name = self.make(format!("load {all}, ptr {at}, align {}", ty.bytes()));
        if let Shape::Affine { step, guarded: true } = self.shape(result) {
            let first = self.make(format!("extractelement {all} {name}, i32 0"));
            let row = self.row(result, &first, step)?;
            let same = self.make(format!("icmp eq {all} {name}, {row}"));
            let bits = self.bits_of(&same);
            let valid = self.make(format!("icmp eq i{LANES} {bits}, -1"));
            self.define(result, Form::Scalar, first)?;
            self.define(result, Form::Valid, valid)?;
        }
        self.define(result, Form::Vector, name)?;
        Ok(true)
    }

    /// Stores into the row, if that is what the instruction does.
    pub(super) fn store_to_row(&mut self, inst: Inst, value: Value) -> Result<bool, Refusal> {
        let Some(place) = self.place_of(inst) else { return Ok(false) };
        if let Some(field) = stored_field(self.func, self.flow, inst) {
            if self.phases.is_none() {
                self.note_stop(field, value);
            } else if self.stops_in_phase(field, value) {
                return Ok(true);
            }
        }
        let ty = self.type_of(value);
        if let Some(offset) = self.common_offset(inst) {
            let name = self.get(value, Form::Scalar)?;
            self.line(format!("store {} {name}, ptr {}", scalar_type(ty)?, next_place(offset)));
            return Ok(true);
        }
        let at = self.in_row(place);
        if place.is_one() {
            let name = self.get(value, Form::Scalar)?;
            self.line(format!("store {} {name}, ptr {at}, align {}", scalar_type(ty)?, ty.bytes()));
            return Ok(true);
        }
        let all = vector_type::<LANES>(ty)?;
        let mut name = self.get(value, Form::Vector)?;
        if let Some(mask) = self.mask.clone() {
            // Nobody else sees the row.
            let old = self.make(format!("load {all}, ptr {at}, align {}", ty.bytes()));
            name = self.make(format!("select <{LANES} x i1> {mask}, {all} {name}, {all} {old}"));
        }
        self.line(format!("store {all} {name}, ptr {at}, align {}", ty.bytes()));
        Ok(true)
    }

    /// Notes whether all threads stop alike: with the same constants.
    fn note_stop(&mut self, field: usize, value: Value) {
        let number = super::shape::constant(self.func, value);
        match field {
            field if field == OP || field == OP + 8 => {
                self.plain &= number.is_some();
            }
            RESUME => {
                self.stop_together(number.filter(|_| self.plain).unwrap_or(i64::from(abi::APART)));
            }
            STOP if number == Some(i64::from(abi::STOP_EXIT)) => {
                self.stop_together(i64::from(abi::STOP_EXIT));
            }
            _ => {}
        }
    }

    /// Notes how threads stop whose phases follow each other. True if what is stored need not be yet.
    fn stops_in_phase(&mut self, field: usize, value: Value) -> bool {
        let exits = super::shape::constant(self.func, value) == Some(i64::from(abi::STOP_EXIT));
        let is_last = match field {
            RESUME => true,
            STOP => exits,
            _ => false,
        };
        match self.stop {
            Some(stop) => {
                if is_last {
                    self.stop_late(stop);
                }
                !stop.leaves(field)
            }
            None => {
                if is_last {
                    self.stop_at_once();
                }
                false
            }
        }
    }

    /// The lanes that are there stop with this number.
    fn stop_together(&mut self, number: i64) {
        let before = self.make("load i32, ptr %together");
        let none = self.make(format!("icmp eq i32 {before}, {NOBODY}"));
        let same = self.make(format!("icmp eq i32 {before}, {number}"));
        let mut alike = self.make(format!("or i1 {none}, {same}"));
        if let Some(mask) = self.mask.clone() {
            let bits = self.bits_of(&mask);
            let all = self.make(format!("icmp eq i{LANES} {bits}, -1"));
            alike = self.make(format!("and i1 {alike}, {all}"));
        }
        let now = self.make(format!("select i1 {alike}, i32 {number}, i32 {}", abi::APART));
        self.line(format!("store i32 {now}, ptr %together"));
    }

    /// Tells the executor whether all threads have stopped alike.
    pub(super) fn tell_together(&mut self) {
        if self.flow.has_cuts() {
            let number = self.make("load i32, ptr %together");
            let at = self.pointer("%a2", offset_of!(abi::Block, together) as i64);
            self.line(format!("store i32 {number}, ptr {at}"));
        }
    }

    /// Whether it is the store of what counts for nobody: how often threads let others go first, where the first lane's number counts, and
    /// that a thread has ended, in a kernel without cuts.
    pub(super) fn store_of_little(&mut self, inst: Inst, value: Value) -> Result<bool, Refusal> {
        let Some(field) = stored_field(self.func, self.flow, inst) else { return Ok(false) };
        if field == offset_of!(Thread, fuel) && self.shape(value) == UNIFORM {
            let name = self.get(value, Form::Scalar)?;
            let thread = self.get(self.flow.thread, Form::Scalar)?;
            let at = self.pointer(&thread, field as i64);
            self.line(format!("store i32 {name}, ptr {at}, align 4"));
            return Ok(true);
        }
        let ended = super::shape::constant(self.func, value) == Some(i64::from(abi::STOP_EXIT));
        Ok(field == offset_of!(Thread, stop) && ended && !self.flow.has_cuts())
    }

    /// The values of the state that are kept.
    pub(super) fn cells(&self) -> Vec<abi::Cell> {
        let cell = |(&offset, &(shape, ty)): (&i32, &(Shape, Type))| {
            let step = match shape {
                Shape::Affine { step, guarded: false } => Some(step),
                _ => None,
            };
            abi::Cell { offset: offset as u32, bytes: ty.bytes(), step }
        };
        self.shapes.cells.iter().map(cell).collect()
    }

    /// Finds the row of the group.
    pub(super) fn find_row(&mut self) {
        if self.flow.has_cuts() {
            let group = self.make("load i64, ptr %group");
            let row = self.row_address(&group);
            self.line(format!("store i64 {row}, ptr %row"));
        }
    }

    /// The address of the row of a group, of which the function is given the first.
    pub(super) fn row_address(&mut self, group: &str) -> String {
        let behind =
            self.make(format!("mul i64 {group}, {}", Row::group_bytes(self.shapes.state_bytes, LANES)));
        self.make(format!("add i64 %row0, {behind}"))
    }

    /// Finds the row of the first group.
    pub(super) fn find_first_row(&mut self) {
        if self.flow.has_cuts() {
            let at = self.pointer("%a0", offset_of!(Thread, state) as i64);
            let state = self.make(format!("load i64, ptr {at}"));
            self.line(format!("%row0 = add i64 {state}, {}", Row::offset(self.shapes.state_bytes, LANES)));
        }
    }

    /// A pointer to a value that is the same in all lanes, in a row.
    pub(super) fn in_row_at(&mut self, row: &str, offset: i32) -> String {
        self.pointer(row, Self::behind_row(offset))
    }
}
