//! Loads and stores of 16 bytes at once, which others may be looking at: each lane makes one access, whatever the others do.
//!
//! The numbers of 16 bytes are no values of lanes like others: they are made and taken apart in the block in which they are accessed.

use cranelift_codegen::ir::{Inst, InstructionData, Opcode, Value};

use super::flow::Refusal;
use super::shape::UNIFORM;
use super::structures::Numbers;
use super::translate::{Form, Translator, scalar_type};

/// A number of 16 bytes.
#[derive(Debug, Clone)]
pub(super) enum Whole {
    /// What all lanes have loaded from one place.
    Same(String),
    /// The components that the lanes have loaded.
    Loaded(Vec<String>),
    /// Put together of these.
    Built(Vec<Value>),
}

/// Bytes of such a number.
const BYTES: usize = 16;
/// The most bytes that a lane accesses at once.
pub(super) const MOST_BYTES: usize = 32;

impl<const LANES: usize> Translator<'_, LANES> {
    /// Writes an instruction that deals with 16 bytes at once, if it is one.
    pub(super) fn at_once(&mut self, inst: Inst) -> Result<bool, Refusal> {
        let result = self.func.dfg.inst_results(inst).first().copied();
        match self.func.dfg.insts[inst] {
            InstructionData::Load { opcode: Opcode::Load, arg, offset, .. }
                if result.is_some_and(|result| self.type_of(result).is_vector()) =>
            {
                let result = result.ok_or("a load of nothing")?;
                let whole = self.load_whole(result, arg, i32::from(offset).into())?;
                self.wholes.insert(result, whole);
            }
            InstructionData::Store { opcode: Opcode::Store, args: [value, address], offset, .. }
                if self.type_of(value).is_vector() =>
            {
                self.store_whole(value, address, i32::from(offset).into())?;
            }
            InstructionData::Unary { opcode: Opcode::ScalarToVector, arg } => {
                let result = result.ok_or("a vector of nothing")?;
                self.wholes.insert(result, Whole::Built(vec![arg]));
            }
            InstructionData::TernaryImm8 { opcode: Opcode::Insertlane, args: [vector, value], imm } => {
                let result = result.ok_or("a vector of nothing")?;
                match self.whole_of(vector)? {
                    Whole::Built(mut parts) if parts.len() == usize::from(imm) => {
                        parts.push(value);
                        self.wholes.insert(result, Whole::Built(parts));
                    }
                    _ => return Err("a component of a vector that was loaded".into()),
                }
            }
            InstructionData::BinaryImm8 { opcode: Opcode::Extractlane, arg, imm } => {
                let result = result.ok_or("a component of nothing")?;
                match self.whole_of(arg)? {
                    Whole::Same(name) => {
                        let (ty, count) = self.components_of(arg)?;
                        let name = self.make(format!("extractelement <{count} x {ty}> {name}, i32 {imm}"));
                        if self.shape(result) == UNIFORM {
                            self.define(result, Form::Scalar, name)?;
                        } else {
                            let all = self.in_all_lanes(ty, &name);
                            self.define(result, Form::Vector, all)?;
                        }
                    }
                    Whole::Loaded(parts) => {
                        let name = parts.get(usize::from(imm)).cloned();
                        self.define(result, Form::Vector, name.ok_or("a component that is not there")?)?;
                    }
                    // What the thread has stored there itself.
                    Whole::Built(parts) => {
                        let part = *parts.get(usize::from(imm)).ok_or("a component that is not there")?;
                        let form = if self.shape(result) == UNIFORM { Form::Scalar } else { Form::Vector };
                        let name = self.get(part, form)?;
                        self.define(result, form, name)?;
                    }
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn whole_of(&self, value: Value) -> Result<Whole, Refusal> {
        let value = self.func.dfg.resolve_aliases(value);
        self.wholes.get(&value).cloned().ok_or_else(|| "a vector of another block".into())
    }

    /// The components of a number of 16 bytes: their type, and how many there are.
    fn components_of(&self, value: Value) -> Result<(&'static str, usize), Refusal> {
        let ty = self.type_of(value);
        Ok((scalar_type(ty.lane_type())?, ty.lane_count() as usize))
    }

    fn load_whole(&mut self, result: Value, address: Value, offset: i64) -> Result<Whole, Refusal> {
        let (ty, count) = self.components_of(result)?;
        // Nothing may take such a load apart.
        if self.shape(address) == UNIFORM {
            let at = self.get(address, Form::Scalar)?;
            let at = self.pointer(&at, offset);
            let name = self.make(format!("load volatile <{count} x {ty}>, ptr {at}, align {BYTES}"));
            return Ok(Whole::Same(self.make(format!("freeze <{count} x {ty}> {name}"))));
        }
        let numbers = Numbers { ty: self.type_of(result).lane_type(), count, whole: true };
        let names = self.load_numbers(address, offset, &numbers)?;
        let parts = names.into_iter().map(|name| self.make(format!("freeze <{LANES} x {ty}> {name}")));
        Ok(Whole::Loaded(parts.collect()))
    }

    fn store_whole(&mut self, value: Value, address: Value, offset: i64) -> Result<(), Refusal> {
        let Whole::Built(parts) = self.whole_of(value)? else {
            return Err("a vector that was loaded".into());
        };
        let (ty, count) = self.components_of(value)?;
        if parts.len() != count {
            return Err("a vector without some of its components".into());
        }
        if self.shape(address) == UNIFORM && parts.iter().all(|&part| self.shape(part) == UNIFORM) {
            let mut name = "poison".to_owned();
            for (n, &part) in parts.iter().enumerate() {
                let part = self.get(part, Form::Scalar)?;
                name = self.make(format!("insertelement <{count} x {ty}> {name}, {ty} {part}, i32 {n}"));
            }
            let at = self.get(address, Form::Scalar)?;
            let at = self.pointer(&at, offset);
            self.line(format!("store volatile <{count} x {ty}> {name}, ptr {at}, align {BYTES}"));
            return Ok(());
        }
        let mut names = Vec::new();
        for &part in &parts {
            names.push(self.get(part, Form::Vector)?);
        }
        let numbers = Numbers { ty: self.type_of(value).lane_type(), count, whole: true };
        self.store_numbers(names, address, offset, &numbers)
    }

    /// A pointer for each lane: to the place that it names, or, where it is not there, to one that is nobody's, with [`MOST_BYTES`].
    pub(super) fn places_of_lanes(&mut self, address: Value, offset: i64) -> Result<Vec<String>, Refusal> {
        if let Some(places) = self.places(address, offset)? {
            return Ok(places);
        }
        let all = self.get(address, Form::Vector)?;
        let mut at = self.pointers(&all, offset);
        if let Some(mask) = self.mask.clone() {
            const NOBODYS: &str = "%nobodys";
            let place = format!("{NOBODYS} = alloca [{MOST_BYTES} x i8], align {MOST_BYTES}\n");
            if !self.places.contains(&place) {
                self.places.push_str(&place);
            }
            let other = self.in_all_lanes("ptr", NOBODYS);
            let vector = format!("<{LANES} x ptr>");
            at = self.make(format!("select <{LANES} x i1> {mask}, {vector} {at}, {vector} {other}"));
        }
        Ok((0..LANES)
            .map(|lane| self.make(format!("extractelement <{LANES} x ptr> {at}, i32 {lane}")))
            .collect())
    }
}
