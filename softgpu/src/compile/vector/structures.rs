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
        let (ty, vector, bytes) =
            (scalar_type(structure.ty)?, vector_type::<LANES>(structure.ty)?, structure.ty.bytes());
        let count = results.len();
        let size = count * bytes as usize;
        let by_lanes = self.goes_by_lanes(structure.address, size);
        let row = self.structure_row(structure.address, size)?;
        if row.is_none() && !by_lanes {
            return Ok(false);
        }
        let all = self.get(structure.address, Form::Vector)?;
        let ways = row.as_ref().and_then(|row| self.divide(row));
        let mut names = Vec::new();
        if let Some(row) = &row {
            self.fetch_ahead(row, structure.address, size as u32, structure.offset);
            let at = self.pointer(&row.first, structure.offset);
            let wide = format!("<{} x {ty}>", LANES * count);
            let loaded = self.make(format!("load {wide}, ptr {at}, align {bytes}"));
            for n in 0..count {
                names.push(self.every(ty, &loaded, (count, n)));
            }
        }
        if row.is_none() || ways.is_some() {
            if let Some([_, slow, out]) = &ways {
                self.line(format!("br label %{out}"));
                self.begin(slow);
            }
            let mut others = Vec::new();
            if by_lanes {
                let mut lanes = Vec::new();
                for at in self.places_of_lanes(structure.address, structure.offset)? {
                    lanes.push(self.make(format!("load <{count} x {ty}>, ptr {at}, align {bytes}")));
                }
                let loaded = self.joined(ty, count, lanes);
                (0..count).for_each(|n| others.push(self.every(ty, &loaded, (count, n))));
            } else {
                for n in 0..count {
                    let at = self.pointers(&all, structure.offset + n as i64 * i64::from(bytes));
                    others.push(self.gather(ty, bytes, &at, &full::<LANES>()));
                }
            }
            if let Some([fast, slow, out]) = &ways {
                self.line(format!("br label %{out}"));
                self.begin(out);
                for (name, other) in names.iter_mut().zip(others) {
                    *name = self.make(format!("phi {vector} [ {name}, %{fast} ], [ {other}, %{slow} ]"));
                }
            } else {
                names = others;
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
        if let Some(structure) = self.stores.take_if(|structure| structure.1 == inst) {
            return self.store_now(&structure.0).map(|()| true);
        }
        let Some(Structure { address, offset, ty, accesses, last }) = self.structure(inst) else {
            return Ok(false);
        };
        let size = accesses.len() * ty.bytes() as usize;
        if !self.goes_by_lanes(address, size) && self.structure_row(address, size)?.is_none() {
            return Ok(false);
        }
        self.done.extend(accesses.iter().copied().filter(|&other| other != inst && other != last));
        self.stores = Some((Stores { address, offset, ty, accesses }, last));
        Ok(true)
    }

    /// Vectors of so many numbers, as many as a power of two, one behind the other: pairs are put together first, and then pairs of pairs.
    pub(super) fn joined(&mut self, ty: &str, mut size: usize, mut parts: Vec<String>) -> String {
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

    /// Of structures of `count` numbers, one for each lane, one behind the other, the one numbered `n`.
    pub(super) fn every(&mut self, ty: &str, all: &str, (count, n): (usize, usize)) -> String {
        let wide = format!("<{} x {ty}>", LANES * count);
        let lanes: Vec<String> = (0..LANES).map(|lane| format!("i32 {}", lane * count + n)).collect();
        let lanes = format!("<{LANES} x i32> <{}>", lanes.join(", "));
        self.make(format!("shufflevector {wide} {all}, {wide} poison, {lanes}"))
    }

    /// Of `count` numbers of each lane, number by number, the numbers lane by lane.
    pub(super) fn by_lanes(&mut self, ty: &str, all: &str, count: usize) -> String {
        let wide = format!("<{} x {ty}>", LANES * count);
        let lanes: Vec<String> =
            (0..LANES * count).map(|n| format!("i32 {}", n % count * LANES + n / count)).collect();
        let lanes = format!("<{} x i32> <{}>", LANES * count, lanes.join(", "));
        self.make(format!("shufflevector {wide} {all}, {wide} poison, {lanes}"))
    }

    fn store_now(&mut self, stores: &Stores) -> Result<(), Refusal> {
        let (ty, bytes) = (scalar_type(stores.ty)?, stores.ty.bytes());
        let count = stores.accesses.len();
        let mut names = Vec::new();
        for &inst in &stores.accesses {
            let value = self.func.dfg.inst_args(inst)[0];
            names.push(self.get(value, Form::Vector)?);
        }
        let size = count * bytes as usize;
        let by_lanes = self.goes_by_lanes(stores.address, size);
        let row = self.structure_row(stores.address, size)?;
        let all = self.get(stores.address, Form::Vector)?;
        let together = self.joined(ty, LANES, names.clone());
        let mut ways = None;
        if let Some(row) = &row {
            ways = self.divide(row);
            let at = self.pointer(&row.first, stores.offset);
            let wide = format!("<{} x {ty}>", LANES * count);
            let sorted = self.by_lanes(ty, &together, count);
            self.line(format!("store {wide} {sorted}, ptr {at}, align {bytes}"));
            let Some([_, slow, out]) = &ways else { return Ok(()) };
            self.line(format!("br label %{out}"));
            self.begin(slow);
        }
        if by_lanes {
            for (lane, at) in self.places_of_lanes(stores.address, stores.offset)?.into_iter().enumerate() {
                let one = self.of_lane(ty, &together, (count, lane));
                self.line(format!("store <{count} x {ty}> {one}, ptr {at}, align {bytes}"));
            }
        } else {
            for (n, name) in names.iter().enumerate() {
                let at = self.pointers(&all, stores.offset + n as i64 * i64::from(bytes));
                self.scatter(ty, bytes, name, &at, &full::<LANES>());
            }
        }
        if let Some([_, _, out]) = &ways {
            self.line(format!("br label %{out}"));
            self.begin(out);
        }
        Ok(())
    }

    /// Whether structures of so many bytes are accessed lane by lane where they are in no row: wherever they lie, that is faster than an access for
    /// each of their numbers.
    fn goes_by_lanes(&self, address: Value, size: usize) -> bool {
        (8..=MOST_BYTES).contains(&size) && size.is_power_of_two() && self.shape(address) != UNIFORM
    }

    /// The row in which structures of so many bytes lie, where all lanes are there.
    pub(super) fn structure_row(&mut self, address: Value, size: usize) -> Result<Option<Row>, Refusal> {
        if self.mask.is_some() {
            return Ok(None);
        }
        let row = self.row_of(address, 0)?;
        Ok(row.filter(|row| row.step == size as i64 && row.valid != "false"))
    }

    /// Of `count` numbers of each lane, number by number, those of a lane.
    pub(super) fn of_lane(&mut self, ty: &str, all: &str, (count, lane): (usize, usize)) -> String {
        let wide = format!("<{} x {ty}>", LANES * count);
        let own: Vec<String> = (0..count).map(|n| format!("i32 {}", n * LANES + lane)).collect();
        let own = format!("<{count} x i32> <{}>", own.join(", "));
        self.make(format!("shufflevector {wide} {all}, {wide} poison, {own}"))
    }
}

/// Stores that are made together, at the last of them.
pub(super) struct Stores {
    address: Value,
    offset: i64,
    ty: Type,
    accesses: Vec<Inst>,
}
