//! Operations on textures and bulk copies: a helper makes them for all threads of a group that are there, by one call.
//!
//! Their operands, which the code stores into the block, lie in an array of the function's own here, in which each lane has its place.

use std::mem::offset_of;

use cranelift_codegen::ir::{Inst, Value, types};

use super::flow::Refusal;
use super::shape::block_word;
use super::translate::{Form, Translator, all_lanes, vector_type};
use crate::abi::MOST_LANES;
use crate::abi::operands::Operands;

/// Bytes of all lanes of a word.
const ROW: usize = 4 * MOST_LANES;

impl<const LANES: usize> Translator<'_, LANES> {
    /// Loads a word, or two, of an operation's results, if that is what the instruction does.
    pub(super) fn load_word(&mut self, inst: Inst) -> Result<bool, Refusal> {
        let Some(word) = block_word(self.func, self.flow, inst) else { return Ok(false) };
        let result = self.func.dfg.first_result(inst);
        let low = self.lanes_of(word);
        let mut name = self.make(format!("load <{LANES} x i32>, ptr {low}, align {ROW}"));
        match self.type_of(result) {
            types::I32 => {}
            types::I64 => {
                let wide = vector_type::<LANES>(types::I64)?;
                let high = self.lanes_of(word + 1);
                let high = self.make(format!("load <{LANES} x i32>, ptr {high}, align {ROW}"));
                let [low, high] =
                    [name, high].map(|part| self.make(format!("zext <{LANES} x i32> {part} to {wide}")));
                let high = self.make(format!("shl {wide} {high}, {}", all_lanes::<LANES>("i64", 32)));
                name = self.make(format!("or {wide} {low}, {high}"));
            }
            _ => return Err("a word of another size".into()),
        }
        let name = self.make(format!("freeze {} {name}", vector_type::<LANES>(self.type_of(result))?));
        self.define(result, Form::Vector, name)?;
        Ok(true)
    }

    /// Stores a word, or two, of an operation's operands, if that is what the instruction does.
    pub(super) fn store_word(&mut self, inst: Inst, value: Value) -> Result<bool, Refusal> {
        let Some(word) = block_word(self.func, self.flow, inst) else { return Ok(false) };
        let given = self.get(value, Form::Vector)?;
        let ty = self.type_of(value);
        let parts = match ty {
            types::I32 => vec![given],
            types::I64 => {
                let wide = vector_type::<LANES>(ty)?;
                let high = self.make(format!("lshr {wide} {given}, {}", all_lanes::<LANES>("i64", 32)));
                [given, high].map(|part| self.make(format!("trunc {wide} {part} to <{LANES} x i32>"))).into()
            }
            _ => return Err("a word of another size".into()),
        };
        for (index, mut part) in parts.into_iter().enumerate() {
            let at = self.lanes_of(word + index);
            if let Some(mask) = self.mask.clone() {
                // Other lanes may have stored theirs already, and come to the operation later.
                let old = self.make(format!("load <{LANES} x i32>, ptr {at}, align {ROW}"));
                part = self.make(format!(
                    "select <{LANES} x i1> {mask}, <{LANES} x i32> {part}, <{LANES} x i32> {old}"
                ));
            }
            self.line(format!("store <{LANES} x i32> {part}, ptr {at}, align {ROW}"));
        }
        Ok(true)
    }

    /// Calls a helper for the lanes that are there. `object` is the operation's first argument, and `number` what it is.
    pub(super) fn operate(
        &mut self,
        inst: Inst,
        helper: usize,
        object: Value,
        number: Value,
    ) -> Result<(), Refusal> {
        let objects = self.get(object, Form::Vector)?;
        let at = self.in_operands(offset_of!(Operands, objects));
        self.line(format!("store {} {objects}, ptr {at}, align 64", vector_type::<LANES>(types::I64)?));
        let helper = self.function(helper);
        let number = self.get(number, Form::Scalar)?;
        let first = self.make("load i64, ptr %first");
        let bits = self.bits.clone();
        let lanes = self.make(format!("zext i{LANES} {bits} to i64"));
        let all = self.in_operands(0);
        let callee = self.make(format!("inttoptr i64 {helper} to ptr"));
        self.line(format!("call void {callee}(i64 %a2, i64 {first}, i64 {lanes}, i64 {number}, ptr {all})"));
        let result = self.func.dfg.first_result(inst);
        let at = self.in_operands(offset_of!(Operands, traps));
        let traps = self.make(format!("load <{LANES} x i32>, ptr {at}, align {ROW}"));
        self.define(result, Form::Vector, traps)
    }

    /// Where all lanes of a word are.
    fn lanes_of(&mut self, word: usize) -> String {
        self.in_operands(offset_of!(Operands, words) + ROW * word)
    }

    /// A place in the operands.
    fn in_operands(&mut self, offset: usize) -> String {
        if !std::mem::replace(&mut self.has_operands, true) {
            let bytes = size_of::<Operands>();
            self.places.push_str(&format!("%operands = alloca [{bytes} x i8], align 64\n"));
        }
        self.make(format!("getelementptr i8, ptr %operands, i64 {offset}"))
    }
}
