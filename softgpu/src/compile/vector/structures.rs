//! Loads and stores of structures, of two or four numbers that each lane has behind each other: an access for each number takes every second or
//! fourth one of a row. All of them together are the row, which is accessed at once and sorted in registers.

use cranelift_codegen::ir::{Function, Inst, InstructionData, Opcode, Type, Value};

use super::flow::Refusal;
use super::shape::Shape;
use super::translate::{Form, Translator, full, scalar_type, vector_type};

/// The accesses to the numbers of a structure, in the order in which the numbers lie there.
struct Structure {
    address: Value,
    /// The first number's place behind the address.
    offset: i64,
    ty: Type,
    accesses: Vec<Inst>,
    /// The access that comes last in its block.
    last: Inst,
}

/// An access: where it leads, and the type of what it moves.
pub(super) fn access(func: &Function, inst: Inst) -> Option<(Value, i64, Type)> {
    let (address, offset, value) = match func.dfg.insts[inst] {
        InstructionData::Load { opcode: Opcode::Load, arg, offset, .. } => {
            (arg, offset, func.dfg.first_result(inst))
        }
        InstructionData::Store { opcode: Opcode::Store, args: [value, address], offset, .. } => {
            (address, offset, value)
        }
        _ => return None,
    };
    Some((func.dfg.resolve_aliases(address), i32::from(offset).into(), func.dfg.value_type(value)))
}

impl<const LANES: usize> Translator<'_, LANES> {
    /// The structure of which an access is the first, where the accesses to the other numbers follow, and nothing between them that they must
    /// not be moved past.
    fn structure(&self, first: Inst) -> Option<Structure> {
        let (address, offset, ty) = access(self.func, first)?;
        let loads = self.func.dfg.insts[first].opcode().can_load();
        let mut found = vec![(offset, first)];
        let (mut next, mut last) = (self.func.layout.next_inst(first), first);
        while let Some(inst) = next.filter(|_| found.len() < 4) {
            let opcode = self.func.dfg.insts[inst].opcode();
            match access(self.func, inst) {
                Some((other, at, kind))
                    if other == address
                        && kind == ty
                        && opcode.can_load() == loads
                        && found.iter().all(|f| f.0 != at) =>
                {
                    found.push((at, inst));
                    last = inst;
                }
                _ if opcode.can_load() || opcode.can_store() || opcode.is_call() => break,
                _ if opcode.other_side_effects() || opcode.is_terminator() => break,
                _ => {}
            }
            next = self.func.layout.next_inst(inst);
        }
        let bytes = i64::from(ty.bytes());
        for count in [4, 2] {
            if found.len() < count {
                continue;
            }
            let mut some = found[..count].to_vec();
            some.sort_unstable_by_key(|access| access.0);
            if some.iter().enumerate().all(|(n, access)| access.0 == some[0].0 + n as i64 * bytes) {
                let last = if count == found.len() { last } else { found[count - 1].1 };
                let accesses = some.iter().map(|access| access.1).collect();
                return Some(Structure { address, offset: some[0].0, ty, accesses, last });
            }
        }
        None
    }

    /// Loads structures, if an access is the first of several that do so together.
    pub(super) fn load_structures(&mut self, inst: Inst) -> Result<bool, Refusal> {
        if self.mask.is_some() {
            return Ok(false);
        }
        let Some(structure) = self.structure(inst) else { return Ok(false) };
        let results: Vec<Value> =
            structure.accesses.iter().map(|&inst| self.func.dfg.first_result(inst)).collect();
        let plain = |result: &Value| {
            self.read.contains(result) && !matches!(self.shape(*result), Shape::Affine { .. })
        };
        if !results.iter().all(plain) {
            return Ok(false);
        }
        let (ty, vector, bytes) =
            (scalar_type(structure.ty)?, vector_type::<LANES>(structure.ty)?, structure.ty.bytes());
        let count = results.len();
        let Some(row) = self.row_of(structure.address, 0)? else { return Ok(false) };
        if row.step != count as i64 * i64::from(bytes) || row.valid == "false" {
            return Ok(false);
        }
        let all = self.get(structure.address, Form::Vector)?;
        let ways = self.divide(&row);
        self.fetch_ahead(&row, structure.address, bytes * count as u32, structure.offset);
        let at = self.pointer(&row.first, structure.offset);
        let wide = format!("<{} x {ty}>", LANES * count);
        let loaded = self.make(format!("load {wide}, ptr {at}, align {bytes}"));
        let mut names = Vec::new();
        for n in 0..count {
            let lanes: Vec<String> = (0..LANES).map(|lane| format!("i32 {}", lane * count + n)).collect();
            let lanes = format!("<{LANES} x i32> <{}>", lanes.join(", "));
            names.push(self.make(format!("shufflevector {wide} {loaded}, {wide} poison, {lanes}")));
        }
        if let Some([fast, slow, out]) = ways {
            self.line(format!("br label %{out}"));
            self.begin(&slow);
            let mut others = Vec::new();
            for n in 0..count {
                let at = self.pointers(&all, structure.offset + n as i64 * i64::from(bytes));
                others.push(self.gather(ty, bytes, &at, &full::<LANES>()));
            }
            self.line(format!("br label %{out}"));
            self.begin(&out);
            for (name, other) in names.iter_mut().zip(others) {
                *name = self.make(format!("phi {vector} [ {name}, %{fast} ], [ {other}, %{slow} ]"));
            }
        }
        for (result, name) in results.into_iter().zip(names) {
            let name = self.make(format!("freeze {vector} {name}"));
            self.define(result, Form::Vector, name)?;
        }
        self.done.extend(structure.accesses.into_iter().filter(|&other| other != inst));
        Ok(true)
    }

    /// Stores structures, if an access is one of several that do so together: at the last of them.
    pub(super) fn store_structures(&mut self, inst: Inst) -> Result<bool, Refusal> {
        if self.mask.is_some() {
            return Ok(false);
        }
        if let Some(structure) = self.stores.take_if(|structure| structure.1 == inst) {
            return self.store_now(&structure.0).map(|()| true);
        }
        let Some(Structure { address, offset, ty, accesses, last }) = self.structure(inst) else {
            return Ok(false);
        };
        let Some(row) = self.row_of(address, 0)? else { return Ok(false) };
        if row.step != accesses.len() as i64 * i64::from(ty.bytes()) || row.valid == "false" {
            return Ok(false);
        }
        self.done.extend(accesses.iter().copied().filter(|&other| other != inst && other != last));
        self.stores = Some((Stores { address, offset, ty, accesses }, last));
        Ok(true)
    }

    fn store_now(&mut self, stores: &Stores) -> Result<(), Refusal> {
        let (ty, bytes) = (scalar_type(stores.ty)?, stores.ty.bytes());
        let count = stores.accesses.len();
        let mut names = Vec::new();
        for &inst in &stores.accesses {
            let value = self.func.dfg.inst_args(inst)[0];
            names.push(self.get(value, Form::Vector)?);
        }
        let row = self.row_of(stores.address, 0)?.ok_or("a row that has gone")?;
        let all = self.get(stores.address, Form::Vector)?;
        let ways = self.divide(&row);
        let at = self.pointer(&row.first, stores.offset);
        // Pairs are put together first, and then pairs of pairs: lane by lane, number by number.
        let join = |t: &mut Self, a: &str, b: &str, size: usize| {
            let part = format!("<{size} x {ty}>");
            let lanes: Vec<String> = (0..2 * size).map(|n| format!("i32 {n}")).collect();
            let lanes = format!("<{} x i32> <{}>", 2 * size, lanes.join(", "));
            t.make(format!("shufflevector {part} {a}, {part} {b}, {lanes}"))
        };
        let mut parts = names.clone();
        let mut size = LANES;
        while parts.len() > 1 {
            parts = parts.chunks(2).map(|pair| join(self, &pair[0], &pair[1], size)).collect();
            size *= 2;
        }
        let wide = format!("<{} x {ty}>", LANES * count);
        let lanes: Vec<String> =
            (0..LANES * count).map(|n| format!("i32 {}", n % count * LANES + n / count)).collect();
        let lanes = format!("<{} x i32> <{}>", LANES * count, lanes.join(", "));
        let sorted = self.make(format!("shufflevector {wide} {}, {wide} poison, {lanes}", parts[0]));
        self.line(format!("store {wide} {sorted}, ptr {at}, align {bytes}"));
        let Some([_, slow, out]) = ways else { return Ok(()) };
        self.line(format!("br label %{out}"));
        self.begin(&slow);
        for (n, name) in names.iter().enumerate() {
            let at = self.pointers(&all, stores.offset + n as i64 * i64::from(bytes));
            self.scatter(ty, bytes, name, &at, &full::<LANES>());
        }
        self.line(format!("br label %{out}"));
        self.begin(&out);
        Ok(())
    }
}

/// Stores that are made together, at the last of them.
pub(super) struct Stores {
    address: Value,
    offset: i64,
    ty: Type,
    accesses: Vec<Inst>,
}
