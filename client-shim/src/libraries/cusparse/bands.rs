//! Systems with three or five diagonals, and the counting of what is not zero.

use rgpu_libraries::{BandSolve, DataType, DenseLines, DenseMatrix};

use super::handle::{check, description, on_device, queue};
use super::{count, typed};
use crate::libraries::math::{Out, Result, home, invalid};

/// Systems with the diagonals of `lists`, from the lowest to the highest; three or five of them.
fn systems(
    kind: DataType,
    n: i32,
    lists: &[usize],
    x: usize,
    problems: u64,
    [step, stride, stride_x]: [u64; 3],
) -> Result<BandSolve> {
    if n < 3 {
        return invalid(format!("{n} equations, and there are at least three"));
    }
    let middle = lists.len() / 2;
    let at = |index: Option<usize>| index.and_then(|index| lists.get(index)).map_or(0, |&addr| addr as u64);
    Ok(BandSolve {
        kind,
        n: count(n.into())?,
        count: problems,
        step,
        stride,
        stride_x,
        lowest: at(middle.checked_sub(2)),
        lower: at(middle.checked_sub(1)),
        diagonal: at(Some(middle)),
        upper: at(Some(middle + 1)),
        highest: at(Some(middle + 2)),
        x: x as u64,
    })
}

/// Has systems solved whose values are there: how much room that takes can be asked for without any.
fn solve(handle: usize, work: &BandSolve, lists: &[usize]) -> Result<()> {
    if lists.contains(&0) || work.x == 0 {
        return invalid("A diagonal or the right sides are null");
    }
    queue(handle)?.post(work)
}

/// Several right sides of one matrix.
fn of_one(kind: DataType, (m, n): (i32, i32), lists: [usize; 3], (x, ld): (usize, i32)) -> Result<BandSolve> {
    let (columns, ld) = (count(n.into())?, count(ld.into())?);
    if ld < count(m.into())?.max(1) {
        return invalid(format!("A leading dimension of {ld} for {m} equations"));
    }
    systems(kind, m, &lists, x, columns, [1, 0, ld])
}

/// Systems that lie one behind the other.
fn apart(
    kind: DataType,
    m: i32,
    lists: [usize; 3],
    x: usize,
    (problems, stride): (i32, i32),
) -> Result<BandSolve> {
    let (problems, stride) = (count(problems.into())?, count(stride.into())?);
    if stride < count(m.into())? {
        return invalid(format!("Systems of {m} equations that lie {stride} apart"));
    }
    systems(kind, m, &lists, x, problems, [1, stride, stride])
}

/// Systems whose elements of one place lie side by side. All algorithms are one.
fn interleaved(
    kind: DataType,
    (algorithm, most): (i32, i32),
    m: i32,
    lists: &[usize],
    x: usize,
    problems: i32,
) -> Result<BandSolve> {
    if !(0..=most).contains(&algorithm) {
        return invalid(format!("There is no algorithm {algorithm}"));
    }
    let problems = count(problems.into())?;
    systems(kind, m, lists, x, problems, [problems, 1, 1])
}

typed! {
    [
        cusparseSgtsv2_bufferSizeExt => F32, cusparseDgtsv2_bufferSizeExt => F64,
        cusparseCgtsv2_bufferSizeExt => C32, cusparseZgtsv2_bufferSizeExt => C64,
        cusparseSgtsv2_nopivot_bufferSizeExt => F32, cusparseDgtsv2_nopivot_bufferSizeExt => F64,
        cusparseCgtsv2_nopivot_bufferSizeExt => C32, cusparseZgtsv2_nopivot_bufferSizeExt => C64
    ] (
        handle: usize, m: i32, n: i32, lower: usize, diagonal: usize, upper: usize, x: usize, ld: i32, size: Out<usize>,
    ) {
        check(handle)?;
        of_one(KIND, (m, n), [lower, diagonal, upper], (x, ld))?;
        size.set(0)
    }

    [
        cusparseSgtsv2 => F32, cusparseDgtsv2 => F64, cusparseCgtsv2 => C32, cusparseZgtsv2 => C64,
        cusparseSgtsv2_nopivot => F32, cusparseDgtsv2_nopivot => F64,
        cusparseCgtsv2_nopivot => C32, cusparseZgtsv2_nopivot => C64
    ] (
        handle: usize, m: i32, n: i32, lower: usize, diagonal: usize, upper: usize, x: usize, ld: i32, _buffer: usize,
    ) {
        let lists = [lower, diagonal, upper];
        solve(handle, &of_one(KIND, (m, n), lists, (x, ld))?, &lists)
    }

    [
        cusparseSgtsv2StridedBatch_bufferSizeExt => F32, cusparseDgtsv2StridedBatch_bufferSizeExt => F64,
        cusparseCgtsv2StridedBatch_bufferSizeExt => C32, cusparseZgtsv2StridedBatch_bufferSizeExt => C64
    ] (
        handle: usize, m: i32, lower: usize, diagonal: usize, upper: usize, x: usize, problems: i32, stride: i32,
        size: Out<usize>,
    ) {
        check(handle)?;
        apart(KIND, m, [lower, diagonal, upper], x, (problems, stride))?;
        size.set(0)
    }

    [
        cusparseSgtsv2StridedBatch => F32, cusparseDgtsv2StridedBatch => F64,
        cusparseCgtsv2StridedBatch => C32, cusparseZgtsv2StridedBatch => C64
    ] (
        handle: usize, m: i32, lower: usize, diagonal: usize, upper: usize, x: usize, problems: i32, stride: i32,
        _buffer: usize,
    ) {
        let lists = [lower, diagonal, upper];
        solve(handle, &apart(KIND, m, lists, x, (problems, stride))?, &lists)
    }

    [
        cusparseSgtsvInterleavedBatch_bufferSizeExt => F32, cusparseDgtsvInterleavedBatch_bufferSizeExt => F64,
        cusparseCgtsvInterleavedBatch_bufferSizeExt => C32, cusparseZgtsvInterleavedBatch_bufferSizeExt => C64
    ] (
        handle: usize, algorithm: i32, m: i32, lower: usize, diagonal: usize, upper: usize, x: usize, problems: i32,
        size: Out<usize>,
    ) {
        check(handle)?;
        interleaved(KIND, (algorithm, 2), m, &[lower, diagonal, upper], x, problems)?;
        size.set(0)
    }

    [
        cusparseSgtsvInterleavedBatch => F32, cusparseDgtsvInterleavedBatch => F64,
        cusparseCgtsvInterleavedBatch => C32, cusparseZgtsvInterleavedBatch => C64
    ] (
        handle: usize, algorithm: i32, m: i32, lower: usize, diagonal: usize, upper: usize, x: usize, problems: i32,
        _buffer: usize,
    ) {
        let lists = [lower, diagonal, upper];
        solve(handle, &interleaved(KIND, (algorithm, 2), m, &lists, x, problems)?, &lists)
    }

    [
        cusparseSgpsvInterleavedBatch_bufferSizeExt => F32, cusparseDgpsvInterleavedBatch_bufferSizeExt => F64,
        cusparseCgpsvInterleavedBatch_bufferSizeExt => C32, cusparseZgpsvInterleavedBatch_bufferSizeExt => C64
    ] (
        handle: usize, algorithm: i32, m: i32, lowest: usize, lower: usize, diagonal: usize, upper: usize,
        highest: usize, x: usize, problems: i32, size: Out<usize>,
    ) {
        check(handle)?;
        interleaved(KIND, (algorithm, 0), m, &[lowest, lower, diagonal, upper, highest], x, problems)?;
        size.set(0)
    }

    [
        cusparseSgpsvInterleavedBatch => F32, cusparseDgpsvInterleavedBatch => F64,
        cusparseCgpsvInterleavedBatch => C32, cusparseZgpsvInterleavedBatch => C64
    ] (
        handle: usize, algorithm: i32, m: i32, lowest: usize, lower: usize, diagonal: usize, upper: usize,
        highest: usize, x: usize, problems: i32, _buffer: usize,
    ) {
        let lists = [lowest, lower, diagonal, upper, highest];
        solve(handle, &interleaved(KIND, (algorithm, 0), m, &lists, x, problems)?, &lists)
    }

    [cusparseSnnz => F32, cusparseDnnz => F64, cusparseCnnz => C32, cusparseZnnz => C64] (
        handle: usize, direction: u32, m: i32, n: i32, described: usize, a: usize, ld: i32, per_line: usize,
        total: usize,
    ) {
        if direction > 1 {
            return invalid(format!("There is no cusparseDirection_t {direction}"));
        }
        if total == 0 {
            return invalid("There is no place for the number of all elements");
        }
        description(described)?;
        let (rows, columns, ld) = (count(m.into())?, count(n.into())?, count(ld.into())?);
        if ld < rows.max(1) {
            return invalid(format!("A leading dimension of {ld} for {rows} rows"));
        }
        let by_columns = direction == 1;
        let on_device = on_device(handle)?;
        let queue = queue(handle)?;
        let a = DenseMatrix { addr: a as u64, kind: KIND, rows, columns, ld, by_rows: false };
        let of_device = if on_device { total as u64 } else { 0 };
        queue.post(&DenseLines { a, by_columns, per_line: per_line as u64, total: of_device })?;
        if !on_device {
            let lines = if by_columns { columns } else { rows };
            let sum: i32 = home::<i32>(&queue, per_line as u64, lines as usize)?.into_iter().sum();
            // SAFETY: by the call's description, a number of the program's lies there.
            unsafe { (total as *mut i32).write_unaligned(sum) };
        }
        Ok(())
    }
}
