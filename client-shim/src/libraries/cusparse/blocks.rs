//! Matrices of dense blocks: products, triangular systems, and incomplete factorisations.

use rgpu_libraries::{
    BlockIncomplete, BlockMatrix, BlockProduct, BlockSolve, DataType, DenseMatrix, IncompleteTask, Transpose,
};

use super::handle::{check, description, queue, scalar};
use super::solve::{create_factors, destroy_factors, factors, set_boost, wrong_pivot};
use super::sum;
use super::{CUSPARSE, count, op, typed};
use crate::libraries::math::{Out, Result, invalid, math, missing};

/// Direction, rows and columns of blocks, how many of them are stored, and rows of a block.
type Shape = (u32, i32, i32, i32, i32);
/// Description, values, offsets, columns.
type Parts = (usize, usize, usize, usize);

/// A matrix of blocks.
fn blocks(
    kind: DataType,
    (direction, rows, columns, stored, size): Shape,
    (described, values, offsets, indices): Parts,
) -> Result<BlockMatrix> {
    if direction > 1 {
        return invalid(format!("There is no cusparseDirection_t {direction}"));
    }
    let size = count(size.into())?;
    if size == 0 {
        return invalid("Blocks without elements");
    }
    let blocks = sum::rows(kind, (rows, columns), (described, stored, values, offsets, indices))?;
    Ok(BlockMatrix { blocks, size, by_columns: direction == 1 })
}

/// A dense matrix by columns; with `turned` the transpose of what is stored so.
fn dense(
    kind: DataType,
    addr: usize,
    (rows, columns): (u64, u64),
    ld: i32,
    turned: bool,
) -> Result<DenseMatrix> {
    let ld = count(ld.into())?;
    if ld < if turned { columns } else { rows }.max(1) {
        return invalid(format!("A leading dimension of {ld} for {rows} x {columns}"));
    }
    Ok(DenseMatrix { addr: addr as u64, kind, rows, columns, ld, by_rows: turned })
}

/// A vector.
fn vector(kind: DataType, addr: usize, rows: u64) -> DenseMatrix {
    DenseMatrix { addr: addr as u64, kind, rows, columns: 1, ld: rows.max(1), by_rows: false }
}

/// Whether a matrix is used transposed.
fn turned(number: u32, kind: DataType) -> Result<bool> {
    match op(number)? {
        Transpose::None => Ok(false),
        Transpose::Adjoint if matches!(kind, DataType::C32 | DataType::C64) => {
            missing("cuSPARSE: dense matrices whose adjoints are used with matrices of blocks")
        }
        _ => Ok(true),
    }
}

/// The matrix of a product, which NVIDIA's library only uses as it is.
fn as_it_is(number: u32) -> Result<()> {
    if op(number)? == Transpose::None {
        Ok(())
    } else {
        missing("cuSPARSE: products with transposed matrices of blocks")
    }
}

/// Rows of elements.
fn rows(a: &BlockMatrix) -> u64 {
    a.blocks.rows * a.size
}

/// A triangular system, without right sides and solution.
fn triangle(kind: DataType, trans: u32, shape: Shape, parts: Parts) -> Result<BlockSolve> {
    let described = description(parts.0)?;
    let a = blocks(kind, shape, parts)?;
    let (upper, unit) = (described.fill == 1, described.diagonal == 1);
    let (b, c) = (vector(kind, 0, rows(&a)), vector(kind, 0, rows(&a)));
    Ok(BlockSolve { op: op(trans)?, upper, unit, a, b, c, ..BlockSolve::default() })
}

/// Posts the analysis of a triangle. The buffer is where the wrong pivot goes.
fn analyse(handle: usize, of: BlockSolve, info: usize, buffer: usize) -> Result<()> {
    post_system(handle, BlockSolve { analyses: true, ..of }, info, buffer)
}

/// Posts a triangular system.
fn post_system(handle: usize, of: BlockSolve, info: usize, buffer: usize) -> Result<()> {
    let info = factors(info)?;
    if buffer == 0 {
        return invalid("There is no buffer");
    }
    queue(handle)?.post(&BlockSolve { position: buffer as u64, ..of })?;
    info.lock().at = buffer as u64;
    Ok(())
}

/// Posts an incomplete factorisation, or its analysis. The buffer is where the wrong pivot goes.
fn factor(handle: usize, task: IncompleteTask, a: BlockMatrix, info: usize, buffer: usize) -> Result<()> {
    let info = factors(info)?;
    if buffer == 0 {
        return invalid("There is no buffer");
    }
    let boost = info.lock().boost.filter(|_| task == IncompleteTask::Lu);
    let (tolerance, by) = boost.unwrap_or_default();
    let position = buffer as u64;
    queue(handle)?.post(&BlockIncomplete {
        task,
        a,
        boosts: boost.is_some(),
        tolerance,
        boost: by,
        position,
    })?;
    info.lock().at = position;
    Ok(())
}

typed! {
    [
        cusparseSbsrmv => F32, cusparseDbsrmv => F64, cusparseCbsrmv => C32, cusparseZbsrmv => C64
    ] (
        handle: usize, direction: u32, trans: u32, m: i32, n: i32, stored: i32, alpha: usize, of_a: usize, a: usize,
        offsets: usize, indices: usize, size: i32, x: usize, beta: usize, y: usize,
    ) {
        as_it_is(trans)?;
        let a = blocks(KIND, (direction, m, n, stored, size), (of_a, a, offsets, indices))?;
        let (alpha, beta) = (scalar(handle, alpha, KIND)?, scalar(handle, beta, KIND)?);
        let (b, c) = (vector(KIND, x, a.blocks.columns * a.size), vector(KIND, y, rows(&a)));
        queue(handle)?.post(&BlockProduct { alpha, a, b, beta, c, ..BlockProduct::default() })
    }

    [
        cusparseSbsrmm => F32, cusparseDbsrmm => F64, cusparseCbsrmm => C32, cusparseZbsrmm => C64
    ] (
        handle: usize, direction: u32, trans: u32, trans_b: u32, m: i32, n: i32, k: i32, stored: i32, alpha: usize,
        of_a: usize, a: usize, offsets: usize, indices: usize, size: i32, b: usize, ldb: i32, beta: usize, c: usize,
        ldc: i32,
    ) {
        as_it_is(trans)?;
        let a = blocks(KIND, (direction, m, k, stored, size), (of_a, a, offsets, indices))?;
        let (alpha, beta) = (scalar(handle, alpha, KIND)?, scalar(handle, beta, KIND)?);
        let columns = count(n.into())?;
        let b = dense(KIND, b, (a.blocks.columns * a.size, columns), ldb, turned(trans_b, KIND)?)?;
        let c = dense(KIND, c, (rows(&a), columns), ldc, false)?;
        queue(handle)?.post(&BlockProduct { alpha, a, b, beta, c, ..BlockProduct::default() })
    }

    [
        cusparseSbsrsv2_bufferSize => F32, cusparseDbsrsv2_bufferSize => F64,
        cusparseCbsrsv2_bufferSize => C32, cusparseZbsrsv2_bufferSize => C64
    ] (
        handle: usize, direction: u32, trans: u32, m: i32, stored: i32, of_a: usize, a: usize, offsets: usize,
        indices: usize, block: i32, info: usize, size: Out<i32>,
    ) {
        check(handle)?;
        factors(info)?;
        triangle(KIND, trans, (direction, m, m, stored, block), (of_a, a, offsets, indices))?;
        size.set(4)
    }

    [
        cusparseSbsrsv2_bufferSizeExt => F32, cusparseDbsrsv2_bufferSizeExt => F64,
        cusparseCbsrsv2_bufferSizeExt => C32, cusparseZbsrsv2_bufferSizeExt => C64
    ] (
        handle: usize, direction: u32, trans: u32, m: i32, stored: i32, of_a: usize, a: usize, offsets: usize,
        indices: usize, block: i32, info: usize, size: Out<usize>,
    ) {
        check(handle)?;
        factors(info)?;
        triangle(KIND, trans, (direction, m, m, stored, block), (of_a, a, offsets, indices))?;
        size.set(4)
    }

    [
        cusparseSbsrsv2_analysis => F32, cusparseDbsrsv2_analysis => F64,
        cusparseCbsrsv2_analysis => C32, cusparseZbsrsv2_analysis => C64
    ] (
        handle: usize, direction: u32, trans: u32, m: i32, stored: i32, of_a: usize, a: usize, offsets: usize,
        indices: usize, size: i32, info: usize, _policy: u32, buffer: usize,
    ) {
        let of = triangle(KIND, trans, (direction, m, m, stored, size), (of_a, a, offsets, indices))?;
        analyse(handle, of, info, buffer)
    }

    [
        cusparseSbsrsv2_solve => F32, cusparseDbsrsv2_solve => F64,
        cusparseCbsrsv2_solve => C32, cusparseZbsrsv2_solve => C64
    ] (
        handle: usize, direction: u32, trans: u32, m: i32, stored: i32, alpha: usize, of_a: usize, a: usize,
        offsets: usize, indices: usize, size: i32, info: usize, f: usize, x: usize, _policy: u32, buffer: usize,
    ) {
        let of = triangle(KIND, trans, (direction, m, m, stored, size), (of_a, a, offsets, indices))?;
        let alpha = scalar(handle, alpha, KIND)?;
        let (b, c) = (vector(KIND, f, rows(&of.a)), vector(KIND, x, rows(&of.a)));
        post_system(handle, BlockSolve { alpha, b, c, ..of }, info, buffer)
    }

    [
        cusparseSbsrsm2_bufferSize => F32, cusparseDbsrsm2_bufferSize => F64,
        cusparseCbsrsm2_bufferSize => C32, cusparseZbsrsm2_bufferSize => C64
    ] (
        handle: usize, direction: u32, trans: u32, trans_x: u32, m: i32, n: i32, stored: i32, of_a: usize, a: usize,
        offsets: usize, indices: usize, block: i32, info: usize, size: Out<i32>,
    ) {
        check(handle)?;
        factors(info)?;
        turned(trans_x, KIND)?;
        count(n.into())?;
        triangle(KIND, trans, (direction, m, m, stored, block), (of_a, a, offsets, indices))?;
        size.set(4)
    }

    [
        cusparseSbsrsm2_bufferSizeExt => F32, cusparseDbsrsm2_bufferSizeExt => F64,
        cusparseCbsrsm2_bufferSizeExt => C32, cusparseZbsrsm2_bufferSizeExt => C64
    ] (
        handle: usize, direction: u32, trans: u32, trans_x: u32, m: i32, n: i32, stored: i32, of_a: usize, a: usize,
        offsets: usize, indices: usize, block: i32, info: usize, size: Out<usize>,
    ) {
        check(handle)?;
        factors(info)?;
        turned(trans_x, KIND)?;
        count(n.into())?;
        triangle(KIND, trans, (direction, m, m, stored, block), (of_a, a, offsets, indices))?;
        size.set(4)
    }

    [
        cusparseSbsrsm2_analysis => F32, cusparseDbsrsm2_analysis => F64,
        cusparseCbsrsm2_analysis => C32, cusparseZbsrsm2_analysis => C64
    ] (
        handle: usize, direction: u32, trans: u32, trans_x: u32, m: i32, n: i32, stored: i32, of_a: usize, a: usize,
        offsets: usize, indices: usize, size: i32, info: usize, _policy: u32, buffer: usize,
    ) {
        turned(trans_x, KIND)?;
        count(n.into())?;
        let of = triangle(KIND, trans, (direction, m, m, stored, size), (of_a, a, offsets, indices))?;
        analyse(handle, of, info, buffer)
    }

    [
        cusparseSbsrsm2_solve => F32, cusparseDbsrsm2_solve => F64,
        cusparseCbsrsm2_solve => C32, cusparseZbsrsm2_solve => C64
    ] (
        handle: usize, direction: u32, trans: u32, trans_x: u32, m: i32, n: i32, stored: i32, alpha: usize, of_a: usize,
        a: usize, offsets: usize, indices: usize, size: i32, info: usize, b: usize, ldb: i32, x: usize, ldx: i32,
        _policy: u32, buffer: usize,
    ) {
        let of = triangle(KIND, trans, (direction, m, m, stored, size), (of_a, a, offsets, indices))?;
        let alpha = scalar(handle, alpha, KIND)?;
        let (shape, turned) = ((rows(&of.a), count(n.into())?), turned(trans_x, KIND)?);
        let (b, c) = (dense(KIND, b, shape, ldb, turned)?, dense(KIND, x, shape, ldx, turned)?);
        post_system(handle, BlockSolve { alpha, b, c, ..of }, info, buffer)
    }

    [
        cusparseSbsrilu02_bufferSize => F32, cusparseDbsrilu02_bufferSize => F64,
        cusparseCbsrilu02_bufferSize => C32, cusparseZbsrilu02_bufferSize => C64,
        cusparseSbsric02_bufferSize => F32, cusparseDbsric02_bufferSize => F64,
        cusparseCbsric02_bufferSize => C32, cusparseZbsric02_bufferSize => C64
    ] (
        handle: usize, direction: u32, m: i32, stored: i32, of_a: usize, a: usize, offsets: usize, indices: usize,
        block: i32, info: usize, size: Out<i32>,
    ) {
        check(handle)?;
        factors(info)?;
        blocks(KIND, (direction, m, m, stored, block), (of_a, a, offsets, indices))?;
        size.set(4)
    }

    [
        cusparseSbsrilu02_bufferSizeExt => F32, cusparseDbsrilu02_bufferSizeExt => F64,
        cusparseCbsrilu02_bufferSizeExt => C32, cusparseZbsrilu02_bufferSizeExt => C64,
        cusparseSbsric02_bufferSizeExt => F32, cusparseDbsric02_bufferSizeExt => F64,
        cusparseCbsric02_bufferSizeExt => C32, cusparseZbsric02_bufferSizeExt => C64
    ] (
        handle: usize, direction: u32, m: i32, stored: i32, of_a: usize, a: usize, offsets: usize, indices: usize,
        block: i32, info: usize, size: Out<usize>,
    ) {
        check(handle)?;
        factors(info)?;
        blocks(KIND, (direction, m, m, stored, block), (of_a, a, offsets, indices))?;
        size.set(4)
    }

    [
        cusparseSbsrilu02_analysis => F32, cusparseDbsrilu02_analysis => F64,
        cusparseCbsrilu02_analysis => C32, cusparseZbsrilu02_analysis => C64,
        cusparseSbsric02_analysis => F32, cusparseDbsric02_analysis => F64,
        cusparseCbsric02_analysis => C32, cusparseZbsric02_analysis => C64
    ] (
        handle: usize, direction: u32, m: i32, stored: i32, of_a: usize, a: usize, offsets: usize, indices: usize,
        size: i32, info: usize, _policy: u32, buffer: usize,
    ) {
        let a = blocks(KIND, (direction, m, m, stored, size), (of_a, a, offsets, indices))?;
        factor(handle, IncompleteTask::Analyse, a, info, buffer)
    }

    [
        cusparseSbsrilu02 => F32, cusparseDbsrilu02 => F64, cusparseCbsrilu02 => C32, cusparseZbsrilu02 => C64
    ] (
        handle: usize, direction: u32, m: i32, stored: i32, of_a: usize, a: usize, offsets: usize, indices: usize,
        size: i32, info: usize, _policy: u32, buffer: usize,
    ) {
        let a = blocks(KIND, (direction, m, m, stored, size), (of_a, a, offsets, indices))?;
        factor(handle, IncompleteTask::Lu, a, info, buffer)
    }

    [
        cusparseSbsric02 => F32, cusparseDbsric02 => F64, cusparseCbsric02 => C32, cusparseZbsric02 => C64
    ] (
        handle: usize, direction: u32, m: i32, stored: i32, of_a: usize, a: usize, offsets: usize, indices: usize,
        size: i32, info: usize, _policy: u32, buffer: usize,
    ) {
        let a = blocks(KIND, (direction, m, m, stored, size), (of_a, a, offsets, indices))?;
        factor(handle, IncompleteTask::Cholesky, a, info, buffer)
    }

    [
        cusparseSbsrilu02_numericBoost => F32, cusparseDbsrilu02_numericBoost => F64,
        cusparseCbsrilu02_numericBoost => C32, cusparseZbsrilu02_numericBoost => C64,
        cusparseScsrilu02_numericBoost => F32, cusparseDcsrilu02_numericBoost => F64,
        cusparseCcsrilu02_numericBoost => C32, cusparseZcsrilu02_numericBoost => C64
    ] (handle: usize, info: usize, enable: i32, tolerance: usize, boost: usize) {
        check(handle)?;
        set_boost(handle, info, enable != 0, tolerance, (boost, KIND))
    }
}

math! {
    CUSPARSE;

    fn cusparseCreateBsrsv2Info(out: Out<usize>) {
        create_factors(out)
    }

    fn cusparseDestroyBsrsv2Info(raw: usize) {
        destroy_factors(raw)
    }

    fn cusparseXbsrsv2_zeroPivot(handle: usize, info: usize, position: usize) {
        wrong_pivot(handle, info, position)
    }

    fn cusparseCreateBsrsm2Info(out: Out<usize>) {
        create_factors(out)
    }

    fn cusparseDestroyBsrsm2Info(raw: usize) {
        destroy_factors(raw)
    }

    fn cusparseXbsrsm2_zeroPivot(handle: usize, info: usize, position: usize) {
        wrong_pivot(handle, info, position)
    }

    fn cusparseCreateBsrilu02Info(out: Out<usize>) {
        create_factors(out)
    }

    fn cusparseDestroyBsrilu02Info(raw: usize) {
        destroy_factors(raw)
    }

    fn cusparseXbsrilu02_zeroPivot(handle: usize, info: usize, position: usize) {
        wrong_pivot(handle, info, position)
    }

    fn cusparseCreateBsric02Info(out: Out<usize>) {
        create_factors(out)
    }

    fn cusparseDestroyBsric02Info(raw: usize) {
        destroy_factors(raw)
    }

    fn cusparseXbsric02_zeroPivot(handle: usize, info: usize, position: usize) {
        wrong_pivot(handle, info, position)
    }
}
