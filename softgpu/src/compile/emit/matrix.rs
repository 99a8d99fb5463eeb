//! Matrix instructions, which a warp carries out together.
//!
//! Loading and storing of fragments is done by each thread for itself. Multiplying is a cut: the operands
//! are put behind the other contents of the thread's state, and the results are found there.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::cuts::registers;
use super::memory::Target;
use super::{Emitter, Result, class, trusted, user};
use crate::abi::{self, CutKind};
use crate::compile::helpers::matrix::{self, Offsets, Operation, Spread, Spreads};
use crate::compile::helpers::sparse::Sparse;
use crate::compile::op::{Fragment, MatrixShape, MemoryTarget};
use rgpu_image::ptx::ast::{Operand, Type};

/// Whether an `mma` is implemented.
pub(crate) fn is_supported_mma(shape: &MatrixShape) -> bool {
    matrix::mma(shape).is_some()
}

/// Whether an `mma.sp` is implemented.
pub(crate) fn is_supported_sparse(shape: &MatrixShape) -> bool {
    Sparse::new(shape, 0).is_some()
}

/// Whether a `wmma.mma` is implemented.
pub(crate) fn is_supported_wmma(shape: &MatrixShape) -> bool {
    matrix::wmma(shape).is_some()
}

/// Whether a `wmma.load` or `wmma.store` is implemented.
pub(crate) fn is_supported_fragment(fragment: Fragment, shape: &MatrixShape) -> bool {
    use Type::*;
    match fragment {
        // Where elements follow each other along k, A lies by rows and B by columns.
        Fragment::A | Fragment::B if matrix::is_in_words(shape.a) => {
            matrix::wmma_shape_exists(shape, shape.a) && shape.a_row == (fragment == Fragment::A)
        }
        Fragment::A | Fragment::B => matrix::wmma_shape_exists(shape, shape.a),
        Fragment::C | Fragment::D => match shape.c {
            F16 => matrix::wmma_shape_exists(shape, F16),
            F32 => [F16, Bf16, Tf32].iter().any(|&ty| matrix::wmma_shape_exists(shape, ty)),
            S32 => [S8, S4, B1].iter().any(|&ty| matrix::wmma_shape_exists(shape, ty)),
            F64 => matrix::wmma_shape_exists(shape, F64),
            _ => false,
        },
    }
}

impl<'a> Emitter<'a, '_> {
    /// Bytes at the end of the state, the same ones for every matrix instruction.
    pub(super) fn matrix_area(&mut self, bytes: u32) -> u32 {
        let start = self.state.as_ref().map_or(0, |state| state.bytes);
        self.facts.state_bytes = self.facts.state_bytes.max((start + bytes).next_multiple_of(16));
        start
    }

    /// The elements of a vector, or the operand itself.
    pub(super) fn vector(&self, operand: &'a Operand) -> &'a [Operand] {
        match operand {
            Operand::Vector(list) => list,
            single => std::slice::from_ref(single),
        }
    }

    pub(super) fn state_pointer(&mut self) -> Value {
        self.thread_field(types::I64, offset_of!(abi::Thread, state))
    }

    /// Stores a fragment's registers.
    pub(super) fn put_fragment(
        &mut self,
        state: Value,
        at: u32,
        ty: Type,
        operand: &'a Operand,
        words: usize,
    ) -> Result<()> {
        let list = self.vector(operand);
        // Numbers may stand in the place of registers; of which kind, the type says.
        let word = if matches!(ty, Type::F64 | Type::F32) { ty } else { Type::B32 };
        if list.len() as u32 * word.bytes() != words as u32 * 4 {
            return Err(self.refuse("A fragment with a wrong number of registers"));
        }
        for (index, register) in list.iter().enumerate() {
            let value = self.src(register, word)?;
            self.b.ins().store(trusted(), value, state, (at + index as u32 * word.bytes()) as i32);
        }
        Ok(())
    }

    /// Loads a fragment's registers.
    pub(super) fn get_fragment(&mut self, at: u32, ty: Type, operand: &'a Operand) -> Result<()> {
        let word = if ty == Type::F64 { Type::F64 } else { Type::B32 };
        let state = self.state_pointer();
        for (index, register) in self.vector(operand).iter().enumerate() {
            let offset = (at + index as u32 * word.bytes()) as i32;
            let value = self.b.ins().load(class(word), trusted(), state, offset);
            self.set(register, word, value)?;
        }
        Ok(())
    }

    /// Stops for an operation on the states of all lanes.
    fn matrix_stop(&mut self, operation: Operation, next: usize, results: &'a Operand) -> Result<()> {
        let Ok(index) = u16::try_from(self.facts.matrix_ops.len()) else {
            return Err(self.refuse("Too many matrix instructions in one kernel"));
        };
        self.facts.matrix_ops.push(operation);
        let everybody = self.iconst(types::I32, -1);
        self.store_op(3, everybody);
        let results: Vec<Option<&Operand>> = self.vector(results).iter().map(Some).collect();
        let results = registers(&results);
        self.stop_here(CutKind::Matrix(index), false, next, &results);
        Ok(())
    }

    /// `mma`
    pub(crate) fn mma(&mut self, shape: MatrixShape, o: &'a [Operand]) -> Result<bool> {
        let spreads = matrix::mma(&shape).ok_or_else(|| self.refuse("This shape is not supported"))?;
        self.multiply(&shape, &spreads, 0, |at| Operation::Multiply { shape, wmma: false, at }, o)
    }

    /// `mma.sp`
    pub(crate) fn mma_sparse(&mut self, shape: MatrixShape, o: &'a [Operand]) -> Result<bool> {
        let selector = match self.operand(o, 5)? {
            Operand::Int(value, _) => u32::try_from(*value).ok(),
            _ => None,
        };
        let found = selector.and_then(|selector| Some((selector, Sparse::new(&shape, selector)?)));
        let Some((selector, sparse)) = found else {
            return Err(self.refuse("This shape has no metadata in the lanes that the selector names"));
        };
        let metadata = self.matrix_area(16);
        let value = self.src(self.operand(o, 4)?, Type::B32)?;
        let state = self.state_pointer();
        self.b.ins().store(trusted(), value, state, metadata as i32);
        let operation = |at| Operation::MultiplySparse { shape, selector, at, metadata: metadata as usize };
        self.multiply(&shape, &sparse.spreads, 16, operation, o)
    }

    /// `wmma.mma`
    pub(crate) fn wmma_mma(&mut self, shape: MatrixShape, o: &'a [Operand]) -> Result<bool> {
        let spreads = matrix::wmma(&shape).ok_or_else(|| self.refuse("This shape is not supported"))?;
        self.multiply(&shape, &spreads, 0, |at| Operation::Multiply { shape, wmma: true, at }, o)
    }

    /// `movmatrix`
    pub(crate) fn movmatrix(&mut self, o: &'a [Operand]) -> Result<bool> {
        let next = self.behind_cut()?;
        let at = self.matrix_area(32);
        let value = self.src(self.operand(o, 1)?, Type::B32)?;
        let state = self.state_pointer();
        self.b.ins().store(trusted(), value, state, at as i32);
        let destination = self.operand(o, 0)?;
        let operation = Operation::Transpose { at: at as usize, out: at as usize + 16 };
        self.matrix_stop(operation, next, destination)?;
        self.get_fragment(at + 16, Type::B32, destination)?;
        self.go_on(next)
    }

    /// Has the warp multiply fragments, which lie in the states behind so many bytes of something else.
    fn multiply(
        &mut self,
        shape: &MatrixShape,
        spreads: &Spreads,
        behind: u32,
        operation: impl FnOnce(Offsets) -> Operation,
        o: &'a [Operand],
    ) -> Result<bool> {
        let next = self.behind_cut()?;
        let size = |spread: &Spread| (spread.words as u32 * 4).next_multiple_of(16);
        let total = size(&spreads.a) + size(&spreads.b) + size(&spreads.c) + size(&spreads.d);
        let a = self.matrix_area(behind + total) + behind;
        let b = a + size(&spreads.a);
        let c = b + size(&spreads.b);
        let d = c + size(&spreads.c);
        let destination = self.operand(o, 0)?;
        let state = self.state_pointer();
        self.put_fragment(state, a, shape.a, self.operand(o, 1)?, spreads.a.words)?;
        self.put_fragment(state, b, shape.b, self.operand(o, 2)?, spreads.b.words)?;
        self.put_fragment(state, c, shape.c, self.operand(o, 3)?, spreads.c.words)?;
        let words = self.vector(destination).len() * if shape.d == Type::F64 { 2 } else { 1 };
        if words != spreads.d.words {
            return Err(self.refuse("A fragment with a wrong number of registers"));
        }
        let at = Offsets { a: a as usize, b: b as usize, c: c as usize, d: d as usize };
        self.matrix_stop(operation(at), next, destination)?;
        self.get_fragment(d, shape.d, destination)?;
        self.go_on(next)
    }

    /// `ldmatrix`
    pub(crate) fn ldmatrix(
        &mut self,
        count: u32,
        transpose: bool,
        shared: bool,
        o: &'a [Operand],
    ) -> Result<bool> {
        let next = self.behind_cut()?;
        let at = self.matrix_area(32);
        let destination = self.operand(o, 0)?;
        if self.vector(destination).len() != count as usize {
            return Err(self.refuse("A fragment with a wrong number of registers"));
        }
        // The first lanes give the addresses of the rows.
        let place = if shared { MemoryTarget::Shared } else { MemoryTarget::Generic };
        let source = self.operand(o, 1)?;
        self.in_first_lanes(count * 8, |e| {
            let target = e.target_of(place, source, 16)?;
            let state = e.state_pointer();
            for half in 0..2 {
                let row = e.b.ins().load(types::I64, target.flags, target.base, target.offset + half * 8);
                e.b.ins().store(trusted(), row, state, at as i32 + half * 8);
            }
            Ok(())
        })?;
        let (count, rows, out) = (count as usize, at as usize, at as usize + 16);
        let operation = Operation::Distribute { count, transpose, rows, out };
        self.matrix_stop(operation, next, destination)?;
        self.get_fragment(at + 16, Type::B32, destination)?;
        self.go_on(next)
    }

    /// `stmatrix`
    pub(crate) fn stmatrix(
        &mut self,
        count: u32,
        transpose: bool,
        shared: bool,
        o: &'a [Operand],
    ) -> Result<bool> {
        let next = self.behind_cut()?;
        let at = self.matrix_area(48);
        let (words, rows) = (at + 16, at + 32);
        // Nothing that is in registers is there behind the cut.
        let place = if shared { MemoryTarget::Shared } else { MemoryTarget::Generic };
        let destination = self.parts(self.operand(o, 0)?)?;
        let address = self.generic_address(place, destination)?;
        let state = self.state_pointer();
        self.b.ins().store(trusted(), address, state, at as i32);
        self.put_fragment(state, words, Type::B32, self.operand(o, 1)?, count as usize)?;
        let operation = Operation::Collect {
            count: count as usize,
            transpose,
            words: words as usize,
            rows: rows as usize,
        };
        self.matrix_stop(operation, next, &Operand::Sink)?;
        // The first lanes have given the addresses of the rows.
        self.in_first_lanes(count * 8, |e| {
            let state = e.state_pointer();
            let address = e.b.ins().load(types::I64, trusted(), state, at as i32);
            let target = e.place_of(abi::AccessKind::Write, address, 16)?;
            for half in 0..2 {
                let row = e.b.ins().load(types::I64, trusted(), state, rows as i32 + half * 8);
                e.b.ins().store(target.flags, row, target.base, target.offset + half * 8);
            }
            Ok(())
        })?;
        self.go_on(next)
    }

    /// Emits what so many of the first lanes of a warp do, and the others do not.
    fn in_first_lanes(&mut self, lanes: u32, emit: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let lane = self.thread_field(types::I32, offset_of!(abi::Thread, lane));
        let takes_part = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, lane, i64::from(lanes));
        let (inside, after) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(takes_part, inside, &[], after, &[]);
        self.b.switch_to_block(inside);
        emit(self)?;
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
        Ok(())
    }

    /// Rows and columns of a fragment.
    fn dimensions(fragment: Fragment, shape: &MatrixShape) -> (u32, u32) {
        match fragment {
            Fragment::A => (shape.m, shape.k),
            Fragment::B => (shape.k, shape.n),
            Fragment::C | Fragment::D => (shape.m, shape.n),
        }
    }

    /// The address of the lane's element `index`.
    #[allow(clippy::too_many_arguments)]
    fn element_address(
        &mut self,
        target: Target,
        shared: bool,
        (rows, columns): (u32, u32),
        by_rows: bool,
        stride: Value,
        size: u32,
        index: u32,
    ) -> Result<Value> {
        let each = rows * columns / abi::WARP as u32;
        let lane = self.thread_field(types::I32, offset_of!(abi::Thread, lane));
        let first = self.b.ins().ishl_imm_u(lane, i64::from(each.trailing_zeros()));
        let element = self.add_const(first, i64::from(index));
        let row = self.b.ins().ushr_imm_u(element, i64::from(columns.trailing_zeros()));
        let column = self.b.ins().band_imm_u(element, i64::from(columns - 1));
        let (major, minor) = if by_rows { (row, column) } else { (column, row) };
        let major = self.b.ins().uextend(types::I64, major);
        let minor = self.b.ins().uextend(types::I64, minor);
        let offset = self.b.ins().imul(major, stride);
        let offset = self.b.ins().iadd(offset, minor);
        let offset = self.b.ins().ishl_imm_u(offset, i64::from(size.trailing_zeros()));
        let base = self.whole_address(target);
        if shared {
            // Addresses of shared memory have 32 bits.
            let window = self.shared_base();
            let start = self.b.ins().isub(base, window);
            let at = self.b.ins().iadd(start, offset);
            let at = self.b.ins().ireduce(types::I32, at);
            let at = self.b.ins().uextend(types::I64, at);
            if self.looks() {
                let address = self.b.ins().iadd(window, at);
                return self.seen(address, size).map(|target| target.base);
            }
            let window = self.aligned(window, at, size);
            return Ok(self.b.ins().iadd(window, at));
        }
        let address = self.b.ins().iadd(base, offset);
        if self.looks() {
            return self.seen(address, size).map(|target| target.base);
        }
        let base = self.confine(address);
        Ok(self.aligned(base, address, size))
    }

    /// The distance between rows (or columns), of which the operand tells the elements, so many of which stand together.
    fn stride(&mut self, operand: Option<&Operand>, default: u32, together: u32) -> Result<Value> {
        match operand {
            Some(operand) => {
                let stride = self.src(operand, Type::U32)?;
                let stride = self.b.ins().ushr_imm_u(stride, i64::from(together.trailing_zeros()));
                Ok(self.b.ins().uextend(types::I64, stride))
            }
            None => Ok(self.iconst(types::I64, i64::from(default))),
        }
    }

    fn memory_type(ty: Type) -> Type {
        match ty {
            Type::F64 => Type::F64,
            ty => super::special::bits_type(ty.bits()),
        }
    }

    /// `wmma.load`
    pub(crate) fn wmma_load(
        &mut self,
        fragment: Fragment,
        shape: MatrixShape,
        row: bool,
        shared: bool,
        o: &'a [Operand],
    ) -> Result<()> {
        let spread = match fragment {
            Fragment::A => matrix::wmma_a(&shape),
            Fragment::B => matrix::wmma_b(&shape),
            Fragment::C | Fragment::D => matrix::wmma_c(&shape, shape.c),
        };
        let (unit, together) = match fragment {
            Fragment::A | Fragment::B => matrix::unit(shape.a),
            Fragment::C | Fragment::D => (shape.a, 1),
        };
        let ty = Self::memory_type(unit);
        let shape = MatrixShape { k: shape.k / together, ..shape };
        let (rows, columns) = Self::dimensions(fragment, &shape);
        let place = if shared { MemoryTarget::Shared } else { MemoryTarget::Generic };
        let source = self.operand(o, 1)?;
        // Each element is looked at by itself.
        let target = self.unseen(|e| e.target_of(place, source, 1))?;
        let stride = self.stride(o.get(2), if row { columns } else { rows }, together)?;
        let each = rows * columns / abi::WARP as u32;
        let mut values = Vec::new();
        for index in 0..each {
            let address =
                self.element_address(target, shared, (rows, columns), row, stride, ty.bytes(), index)?;
            values.push(self.b.ins().load(class(ty), user(), address, 0));
        }
        let registers = self.vector(self.operand(o, 0)?);
        if ty == Type::F64 {
            if registers.len() != values.len() {
                return Err(self.refuse("A fragment with a wrong number of registers"));
            }
            for (register, value) in registers.iter().zip(values) {
                self.set(register, ty, value)?;
            }
            return Ok(());
        }
        if registers.len() != spread.words {
            return Err(self.refuse("A fragment with a wrong number of registers"));
        }
        let per_word = (32 / ty.bits()) as usize;
        let mut words: Vec<Value> = Vec::new();
        for group in values.chunks(per_word) {
            let mut word = self.resize(group[0], types::I32, false);
            for (index, &part) in group.iter().enumerate().skip(1) {
                let part = self.b.ins().uextend(types::I32, part);
                let part = self.b.ins().ishl_imm_u(part, i64::from(ty.bits()) * index as i64);
                word = self.b.ins().bor(word, part);
            }
            words.push(word);
        }
        // Registers beyond the elements repeat them, as they do on devices.
        for (index, register) in registers.iter().enumerate() {
            self.set(register, Type::B32, words[index % words.len()])?;
        }
        Ok(())
    }

    /// `wmma.store`
    pub(crate) fn wmma_store(
        &mut self,
        shape: MatrixShape,
        row: bool,
        shared: bool,
        o: &'a [Operand],
    ) -> Result<()> {
        let spread = matrix::wmma_c(&shape, shape.d);
        let ty = Self::memory_type(shape.d);
        let (rows, columns) = (shape.m, shape.n);
        let place = if shared { MemoryTarget::Shared } else { MemoryTarget::Generic };
        let destination = self.operand(o, 0)?;
        let target = self.unseen(|e| e.target_of(place, destination, 1))?;
        let stride = self.stride(o.get(2), if row { columns } else { rows }, 1)?;
        let registers = self.vector(self.operand(o, 1)?);
        let word = if ty == Type::F64 { Type::F64 } else { Type::B32 };
        if registers.len() as u32 * word.bytes() != spread.words as u32 * 4 {
            return Err(self.refuse("A fragment with a wrong number of registers"));
        }
        let per_word = word.bits() / ty.bits();
        let each = rows * columns / abi::WARP as u32;
        for index in 0..each {
            let value = self.src(&registers[(index / per_word) as usize], word)?;
            let value = if per_word > 1 {
                let part = self.b.ins().ushr_imm_u(value, i64::from(index % per_word * ty.bits()));
                self.resize(part, class(ty), false)
            } else {
                value
            };
            let address =
                self.element_address(target, shared, (rows, columns), row, stride, ty.bytes(), index)?;
            self.b.ins().store(user(), value, address, 0);
        }
        Ok(())
    }
}
