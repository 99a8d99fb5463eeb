//! Loads and stores of structures, of two or four numbers that each lane has behind each other: an access for each number takes every second or
//! fourth one of a row. All of them together are the row, which is accessed at once and sorted in registers. Where they are in no row, each lane's
//! structure is accessed at once.

use cranelift_codegen::ir::{Function, Inst, InstructionData, Opcode, Type, Value};

use super::effects::Row;
use super::flow::Refusal;
use super::shape::{Shape, UNIFORM};
use super::translate::{Form, Translator, full, scalar_type, vector_type};
use super::whole::MOST_BYTES;

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
        let Some(structure) = self.structure(inst) else { return Ok(false) };
        let results: Vec<Value> =
            structure.accesses.iter().map(|&inst| self.func.dfg.first_result(inst)).collect();
        let plain = |result: &Value| {
            self.read.contains(result) && !matches!(self.shape(*result), Shape::Affine { .. })
        };
        if !results.iter().all(plain) {
            return Ok(false);
        }
        let numbers = Numbers { ty: structure.ty, count: results.len(), whole: false };
        if !self.is_together(structure.address, &numbers)? {
            return Ok(false);
        }
        let names = self.load_numbers(structure.address, structure.offset, &numbers)?;
        let vector = vector_type::<LANES>(structure.ty)?;
        for (result, name) in results.into_iter().zip(names) {
            let name = self.make(format!("freeze {vector} {name}"));
            self.define(result, Form::Vector, name)?;
        }
        self.done.extend(structure.accesses.into_iter().filter(|&other| other != inst));
        Ok(true)
    }

    /// Stores structures, if an access is one of several that do so together: at the last of them.
    pub(super) fn store_structures(&mut self, inst: Inst) -> Result<bool, Refusal> {
        if let Some(structure) = self.stores.take_if(|structure| structure.1 == inst) {
            return self.store_now(&structure.0).map(|()| true);
        }
        let Some(Structure { address, offset, ty, accesses, last }) = self.structure(inst) else {
            return Ok(false);
        };
        if !self.is_together(address, &Numbers { ty, count: accesses.len(), whole: false })? {
            return Ok(false);
        }
        self.done.extend(accesses.iter().copied().filter(|&other| other != inst && other != last));
        self.stores = Some((Stores { address, offset, ty, accesses }, last));
        Ok(true)
    }

    fn store_now(&mut self, stores: &Stores) -> Result<(), Refusal> {
        let mut names = Vec::new();
        for &inst in &stores.accesses {
            let value = self.func.dfg.inst_args(inst)[0];
            names.push(self.get(value, Form::Vector)?);
        }
        let numbers = Numbers { ty: stores.ty, count: names.len(), whole: false };
        self.store_numbers(names, stores.address, stores.offset, &numbers)
    }

    /// Whether numbers are accessed together: in a row, or lane by lane.
    fn is_together(&mut self, address: Value, numbers: &Numbers) -> Result<bool, Refusal> {
        Ok(self.goes_by_lanes(address, numbers) || self.row_of_numbers(address, numbers)?.is_some())
    }

    /// Whether the numbers of each lane are accessed together where they are in no row: wherever they lie, that is faster than an access for each of
    /// them.
    fn goes_by_lanes(&self, address: Value, numbers: &Numbers) -> bool {
        let size = numbers.size();
        let fits = (8..=MOST_BYTES).contains(&size) && size.is_power_of_two();
        numbers.whole || fits && self.shape(address) != UNIFORM
    }

    /// The row in which the lanes' numbers lie, where all lanes are there. Processors take no aligned 16 bytes of it apart.
    fn row_of_numbers(&mut self, address: Value, numbers: &Numbers) -> Result<Option<Row>, Refusal> {
        if self.mask.is_some() {
            return Ok(None);
        }
        let row = self.row_of(address, 0)?;
        Ok(row.filter(|row| row.step == numbers.size() as i64 && row.valid != "false"))
    }

    /// Loads the numbers of all lanes: for each of them, all lanes'.
    pub(super) fn load_numbers(
        &mut self,
        address: Value,
        offset: i64,
        numbers: &Numbers,
    ) -> Result<Vec<String>, Refusal> {
        let &Numbers { ty, count, .. } = numbers;
        let (how, align, vector) = (numbers.how(), numbers.align(), vector_type::<LANES>(ty)?);
        let (ty, bytes) = (scalar_type(ty)?, ty.bytes());
        let row = self.row_of_numbers(address, numbers)?;
        let all = self.get(address, Form::Vector)?;
        let ways = row.as_ref().and_then(|row| self.divide(row));
        let mut names = Vec::new();
        if let Some(row) = &row {
            self.fetch_ahead(row, address, numbers.size() as u32, offset);
            let at = self.pointer(&row.first, offset);
            let loaded = self.make(format!("load {how}<{} x {ty}>, ptr {at}, align {align}", LANES * count));
            names = self.each_number(ty, &loaded, count);
        }
        if row.is_some() && ways.is_none() {
            return Ok(names);
        }
        if let Some([_, slow, out]) = &ways {
            self.line(format!("br label %{out}"));
            self.begin(slow);
        }
        let mut others = Vec::new();
        if self.goes_by_lanes(address, numbers) {
            let mut lanes = Vec::new();
            for at in self.places_of_lanes(address, offset)? {
                lanes.push(self.make(format!("load {how}<{count} x {ty}>, ptr {at}, align {align}")));
            }
            let loaded = self.joined(ty, count, lanes);
            others = self.each_number(ty, &loaded, count);
        } else {
            for n in 0..count {
                let at = self.pointers(&all, offset + n as i64 * i64::from(bytes));
                others.push(self.gather(ty, bytes, &at, &full::<LANES>()));
            }
        }
        let Some([fast, slow, out]) = &ways else { return Ok(others) };
        self.line(format!("br label %{out}"));
        self.begin(out);
        let both = names.iter().zip(others).map(|(name, other)| {
            self.make(format!("phi {vector} [ {name}, %{fast} ], [ {other}, %{slow} ]"))
        });
        Ok(both.collect())
    }

    /// Stores the numbers of all lanes, which are given number by number.
    pub(super) fn store_numbers(
        &mut self,
        names: Vec<String>,
        address: Value,
        offset: i64,
        numbers: &Numbers,
    ) -> Result<(), Refusal> {
        let &Numbers { ty, count, .. } = numbers;
        let (how, align) = (numbers.how(), numbers.align());
        let (ty, bytes) = (scalar_type(ty)?, ty.bytes());
        let row = self.row_of_numbers(address, numbers)?;
        let all = self.get(address, Form::Vector)?;
        let together = self.joined(ty, LANES, names.clone());
        let mut ways = None;
        if let Some(row) = &row {
            ways = self.divide(row);
            let at = self.pointer(&row.first, offset);
            let wide = format!("<{} x {ty}>", LANES * count);
            let sorted =
                self.chosen(ty, &together, count, (0..LANES * count).map(|n| n % count * LANES + n / count));
            self.line(format!("store {how}{wide} {sorted}, ptr {at}, align {align}"));
            let Some([_, slow, out]) = &ways else { return Ok(()) };
            self.line(format!("br label %{out}"));
            self.begin(slow);
        }
        if self.goes_by_lanes(address, numbers) {
            for (lane, at) in self.places_of_lanes(address, offset)?.into_iter().enumerate() {
                let one = self.chosen(ty, &together, count, (0..count).map(|n| n * LANES + lane));
                self.line(format!("store {how}<{count} x {ty}> {one}, ptr {at}, align {align}"));
            }
        } else {
            for (n, name) in names.iter().enumerate() {
                let at = self.pointers(&all, offset + n as i64 * i64::from(bytes));
                self.scatter(ty, bytes, name, &at, &full::<LANES>());
            }
        }
        if let Some([_, _, out]) = &ways {
            self.line(format!("br label %{out}"));
            self.begin(out);
        }
        Ok(())
    }

    /// Vectors of so many numbers, as many as a power of two, one behind the other: pairs are put together first, and then pairs of pairs.
    fn joined(&mut self, ty: &str, mut size: usize, mut parts: Vec<String>) -> String {
        while parts.len() > 1 {
            let part = format!("<{size} x {ty}>");
            let lanes: Vec<String> = (0..2 * size).map(|n| format!("i32 {n}")).collect();
            let lanes = format!("<{} x i32> <{}>", 2 * size, lanes.join(", "));
            let pair = |pair: &[String]| {
                self.make(format!("shufflevector {part} {}, {part} {}, {lanes}", pair[0], pair[1]))
            };
            parts = parts.chunks(2).map(pair).collect();
            size *= 2;
        }
        parts.swap_remove(0)
    }

    /// Of `count` numbers of each lane, lane by lane, each number of all lanes.
    fn each_number(&mut self, ty: &str, all: &str, count: usize) -> Vec<String> {
        let number = |n| self.chosen(ty, all, count, (0..LANES).map(|lane| lane * count + n));
        (0..count).map(number).collect()
    }

    /// Of `count` numbers of each lane, those at some places, one behind the other.
    fn chosen(
        &mut self,
        ty: &str,
        all: &str,
        count: usize,
        places: impl ExactSizeIterator<Item = usize>,
    ) -> String {
        let (wide, found) = (format!("<{} x {ty}>", LANES * count), places.len());
        let places: Vec<String> = places.map(|place| format!("i32 {place}")).collect();
        let places = format!("<{found} x i32> <{}>", places.join(", "));
        self.make(format!("shufflevector {wide} {all}, {wide} poison, {places}"))
    }
}

/// Numbers that each lane has behind each other.
pub(super) struct Numbers {
    /// The type of each.
    pub ty: Type,
    /// How many there are.
    pub count: usize,
    /// Whether nothing may take the access to them apart, and they lie at a multiple of their bytes.
    pub whole: bool,
}

impl Numbers {
    fn size(&self) -> usize {
        self.count * self.ty.bytes() as usize
    }

    fn how(&self) -> &'static str {
        if self.whole { "volatile " } else { "" }
    }

    fn align(&self) -> usize {
        if self.whole { self.size() } else { self.ty.bytes() as usize }
    }
}

/// Stores that are made together, at the last of them.
pub(super) struct Stores {
    address: Value,
    offset: i64,
    ty: Type,
    accesses: Vec<Inst>,
}
