//! Triangular systems, and incomplete factorisations.

use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rgpu_libraries::{
    BlockIncomplete, BlockMatrix, DataType, DenseMatrix, IncompleteTask, Scalar, SparseIncomplete,
    SparseSolve,
};

use super::descriptors::{matrix, vector};
use super::handle::{check, on_device, queue, scalar};
use super::sum::{Given, rows};
use super::{CUSPARSE, kind_of, matrices, op, typed};
use crate::core::registry::Registry;
use crate::libraries::math::{Kind, Out, Result, fail, home, invalid, math, missing};

/// Descriptors of triangular systems; what they would remember is computed again.
static SYSTEMS: LazyLock<Registry<()>> = LazyLock::new(|| Registry::new("cuSPARSE triangular system"));
/// What is known of incomplete factorisations, and of triangles of blocks.
static FACTORS: LazyLock<Registry<Mutex<Factors>>> =
    LazyLock::new(|| Registry::new("cuSPARSE incomplete factorisation"));

/// What is known of an incomplete factorisation.
#[derive(Debug, Default)]
pub(super) struct Factors {
    /// The device address where the wrong pivot stands, or 0.
    pub(super) at: u64,
    /// Up to which absolute value pivots are replaced, and by what.
    pub(super) boost: Option<(Scalar, Scalar)>,
}

/// What is known of an incomplete factorisation.
pub(super) fn factors(info: usize) -> Result<Arc<Mutex<Factors>>> {
    Ok(FACTORS.get(info)?)
}

/// Forgets an incomplete factorisation.
pub(super) fn destroy_factors(info: usize) -> Result<()> {
    FACTORS.remove(info)?;
    Ok(())
}

/// Says which pivots are to be replaced, and by what.
pub(super) fn set_boost(
    handle: usize,
    info: usize,
    enable: bool,
    tolerance: usize,
    (boost, kind): (usize, DataType),
) -> Result<()> {
    let info = factors(info)?;
    let given = if enable {
        Some((scalar(handle, tolerance, DataType::F64)?, scalar(handle, boost, kind)?))
    } else {
        None
    };
    info.lock().boost = given;
    Ok(())
}

fn create_system(out: Out<usize>) -> Result<()> {
    out.check()?;
    let mut raw = 0;
    SYSTEMS.insert(|handle| raw = handle);
    out.set(raw)
}

/// Makes something to know of an incomplete factorisation.
pub(super) fn create_factors(out: Out<usize>) -> Result<()> {
    out.check()?;
    let mut raw = 0;
    FACTORS.insert(|handle| {
        raw = handle;
        Mutex::default()
    });
    out.set(raw)
}

/// What a triangular system has of its call, besides its right sides and its solution.
struct Call {
    handle: usize,
    op_a: u32,
    op_b: u32,
    alpha: usize,
    a: usize,
    kind: u32,
    descriptor: usize,
}

impl Call {
    fn system(&self, b: DenseMatrix, c: DenseMatrix) -> Result<SparseSolve> {
        SYSTEMS.get(self.descriptor)?;
        let a = matrices::matrix(self.a)?;
        let kind = kind_of(self.kind)?;
        if [a.kind, b.kind, c.kind] != [kind; 3] {
            return missing("cuSPARSE: triangular systems in several types");
        }
        let of_b = if self.op_b == 0 { (b.rows, b.columns) } else { (b.columns, b.rows) };
        if a.rows != a.columns || c.rows != a.rows || of_b != (c.rows, c.columns) {
            return invalid(format!("{} x {} is no triangle for {of_b:?}", a.rows, a.columns));
        }
        let [fill, diagonal, ..] = matrices::attributes(self.a)?;
        let alpha = scalar(self.handle, self.alpha, kind)?;
        let (op_a, op_b) = (op(self.op_a)?, op(self.op_b)?);
        Ok(SparseSolve { op_a, op_b, upper: fill == 1, unit: diagonal == 1, alpha, a, b, c })
    }
}

/// Posts an incomplete factorisation, or its analysis. The buffer is where the wrong pivot goes.
fn factor(
    handle: usize,
    task: IncompleteTask,
    (kind, m): (rgpu_libraries::DataType, i32),
    given: Given,
    (info, buffer): (usize, usize),
) -> Result<()> {
    let info = FACTORS.get(info)?;
    let a = rows(kind, (m, m), given)?;
    if buffer == 0 {
        return invalid("There is no buffer");
    }
    let position = buffer as u64;
    let boost = info.lock().boost.filter(|_| task == IncompleteTask::Lu);
    match boost {
        // A matrix of blocks of one element.
        Some((tolerance, boost)) => {
            let a = BlockMatrix { blocks: a, size: 1, by_columns: false };
            queue(handle)?.post(&BlockIncomplete { task, a, boosts: true, tolerance, boost, position })?;
        }
        None => queue(handle)?.post(&SparseIncomplete { task, a, position })?,
    }
    info.lock().at = position;
    Ok(())
}

/// Says which pivot is wrong, once it is known; it is an error where there is one.
pub(super) fn wrong_pivot(handle: usize, info: usize, position: usize) -> Result<()> {
    if position == 0 {
        return invalid("There is no place for a pivot's number");
    }
    let queue = queue(handle)?;
    let at = FACTORS.get(info)?.lock().at;
    let number = if at == 0 { -1 } else { home::<i32>(&queue, at, 1)?[0] };
    if !on_device(handle)? {
        // SAFETY: by the call's description, a number lies there.
        unsafe { (position as *mut i32).write_unaligned(number) };
    } else if at != 0 {
        super::handle::copy(&queue, position as u64, at, 4)?;
    } else {
        return missing("cuSPARSE: a pivot's number in device memory, before anything was analysed");
    }
    if number < 0 { Ok(()) } else { fail(Kind::ZeroPivot, format!("Pivot {number} is wrong")) }
}

typed! {
    [
        cusparseScsrilu02_bufferSize => F32, cusparseDcsrilu02_bufferSize => F64,
        cusparseCcsrilu02_bufferSize => C32, cusparseZcsrilu02_bufferSize => C64,
        cusparseScsric02_bufferSize => F32, cusparseDcsric02_bufferSize => F64,
        cusparseCcsric02_bufferSize => C32, cusparseZcsric02_bufferSize => C64
    ] (
        handle: usize, m: i32, stored: i32, of_a: usize, a: usize, offsets: usize, indices: usize, info: usize,
        size: Out<i32>,
    ) {
        check(handle)?;
        FACTORS.get(info)?;
        rows(KIND, (m, m), (of_a, stored, a, offsets, indices))?;
        size.set(4)
    }

    [
        cusparseScsrilu02_bufferSizeExt => F32, cusparseDcsrilu02_bufferSizeExt => F64,
        cusparseCcsrilu02_bufferSizeExt => C32, cusparseZcsrilu02_bufferSizeExt => C64,
        cusparseScsric02_bufferSizeExt => F32, cusparseDcsric02_bufferSizeExt => F64,
        cusparseCcsric02_bufferSizeExt => C32, cusparseZcsric02_bufferSizeExt => C64
    ] (
        handle: usize, m: i32, stored: i32, of_a: usize, a: usize, offsets: usize, indices: usize, info: usize,
        size: Out<usize>,
    ) {
        check(handle)?;
        FACTORS.get(info)?;
        rows(KIND, (m, m), (of_a, stored, a, offsets, indices))?;
        size.set(4)
    }

    [
        cusparseScsrilu02_analysis => F32, cusparseDcsrilu02_analysis => F64,
        cusparseCcsrilu02_analysis => C32, cusparseZcsrilu02_analysis => C64,
        cusparseScsric02_analysis => F32, cusparseDcsric02_analysis => F64,
        cusparseCcsric02_analysis => C32, cusparseZcsric02_analysis => C64
    ] (
        handle: usize, m: i32, stored: i32, of_a: usize, a: usize, offsets: usize, indices: usize, info: usize,
        _policy: u32, buffer: usize,
    ) {
        let given = (of_a, stored, a, offsets, indices);
        factor(handle, IncompleteTask::Analyse, (KIND, m), given, (info, buffer))
    }

    [
        cusparseScsrilu02 => F32, cusparseDcsrilu02 => F64, cusparseCcsrilu02 => C32, cusparseZcsrilu02 => C64
    ] (
        handle: usize, m: i32, stored: i32, of_a: usize, a: usize, offsets: usize, indices: usize, info: usize,
        _policy: u32, buffer: usize,
    ) {
        factor(handle, IncompleteTask::Lu, (KIND, m), (of_a, stored, a, offsets, indices), (info, buffer))
    }

    [
        cusparseScsric02 => F32, cusparseDcsric02 => F64, cusparseCcsric02 => C32, cusparseZcsric02 => C64
    ] (
        handle: usize, m: i32, stored: i32, of_a: usize, a: usize, offsets: usize, indices: usize, info: usize,
        _policy: u32, buffer: usize,
    ) {
        factor(handle, IncompleteTask::Cholesky, (KIND, m), (of_a, stored, a, offsets, indices), (info, buffer))
    }
}

math! {
    CUSPARSE;

    fn cusparseCreateCsrilu02Info(out: Out<usize>) {
        create_factors(out)
    }

    fn cusparseDestroyCsrilu02Info(raw: usize) {
        FACTORS.remove(raw)?;
        Ok(())
    }

    fn cusparseXcsrilu02_zeroPivot(handle: usize, info: usize, position: usize) {
        wrong_pivot(handle, info, position)
    }

    fn cusparseCreateCsric02Info(out: Out<usize>) {
        create_factors(out)
    }

    fn cusparseDestroyCsric02Info(raw: usize) {
        FACTORS.remove(raw)?;
        Ok(())
    }

    fn cusparseXcsric02_zeroPivot(handle: usize, info: usize, position: usize) {
        wrong_pivot(handle, info, position)
    }

    fn cusparseSpSV_createDescr(out: Out<usize>) {
        create_system(out)
    }

    fn cusparseSpSV_destroyDescr(raw: usize) {
        SYSTEMS.remove(raw)?;
        Ok(())
    }

    fn cusparseSpSV_bufferSize(
        handle: usize, op_a: u32, alpha: usize, a: usize, x: usize, y: usize, kind: u32, _algorithm: u32,
        descriptor: usize, size: Out<usize>,
    ) {
        Call { handle, op_a, op_b: 0, alpha, a, kind, descriptor }.system(vector(x)?, vector(y)?)?;
        size.set(0)
    }

    fn cusparseSpSV_analysis(
        handle: usize, op_a: u32, alpha: usize, a: usize, x: usize, y: usize, kind: u32, _algorithm: u32,
        descriptor: usize, _buffer: usize,
    ) {
        Call { handle, op_a, op_b: 0, alpha, a, kind, descriptor }.system(vector(x)?, vector(y)?).map(drop)
    }

    fn cusparseSpSV_solve(
        handle: usize, op_a: u32, alpha: usize, a: usize, x: usize, y: usize, kind: u32, _algorithm: u32,
        descriptor: usize,
    ) {
        let call = Call { handle, op_a, op_b: 0, alpha, a, kind, descriptor };
        queue(handle)?.post(&call.system(vector(x)?, vector(y)?)?)
    }

    fn cusparseSpSM_createDescr(out: Out<usize>) {
        create_system(out)
    }

    fn cusparseSpSM_destroyDescr(raw: usize) {
        SYSTEMS.remove(raw)?;
        Ok(())
    }

    fn cusparseSpSM_bufferSize(
        handle: usize, op_a: u32, op_b: u32, alpha: usize, a: usize, b: usize, c: usize, kind: u32, _algorithm: u32,
        descriptor: usize, size: Out<usize>,
    ) {
        Call { handle, op_a, op_b, alpha, a, kind, descriptor }.system(matrix(b)?, matrix(c)?)?;
        size.set(0)
    }

    fn cusparseSpSM_analysis(
        handle: usize, op_a: u32, op_b: u32, alpha: usize, a: usize, b: usize, c: usize, kind: u32, _algorithm: u32,
        descriptor: usize, _buffer: usize,
    ) {
        Call { handle, op_a, op_b, alpha, a, kind, descriptor }.system(matrix(b)?, matrix(c)?).map(drop)
    }

    fn cusparseSpSM_solve(
        handle: usize, op_a: u32, op_b: u32, alpha: usize, a: usize, b: usize, c: usize, kind: u32, _algorithm: u32,
        descriptor: usize,
    ) {
        let call = Call { handle, op_a, op_b, alpha, a, kind, descriptor };
        queue(handle)?.post(&call.system(matrix(b)?, matrix(c)?)?)
    }
}
