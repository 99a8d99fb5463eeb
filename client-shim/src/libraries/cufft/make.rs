//! Plans are created, made and described.

use rgpu_libraries::DataType;

use super::CUFFT;
use super::plan::{Made, Shape, Side, Type, create, destroy, get, make};
use crate::libraries::math::{In, Out, Result, invalid, math, missing, property};

/// An array of dimensions; `None` where it is null.
///
/// # Safety
/// `rank` numbers are there, if any.
unsafe fn list<T: Copy + Into<i64>>(numbers: In<T>, rank: i32) -> Result<Option<Vec<i64>>> {
    if !(1..=3).contains(&rank) {
        return invalid(format!("A transform of {rank} dimensions"));
    }
    if numbers.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    Ok(Some(unsafe { numbers.list(rank as usize) }?.into_iter().map(Into::into).collect()))
}

/// A plan in an advanced layout. Each side is its embedding, stride and distance.
///
/// # Safety
/// The arrays have `rank` numbers, if any.
unsafe fn many<T: Copy + Into<i64>>(
    of: Type,
    (rank, n): (i32, In<T>),
    input: (In<T>, T, T),
    output: (In<T>, T, T),
    count: T,
) -> Result<Made> {
    // SAFETY: the caller's promise.
    let (n, embed_in, embed_out) = unsafe { (list(n, rank)?, list(input.0, rank)?, list(output.0, rank)?) };
    let Some(n) = n else { return invalid("The dimensions are null") };
    let input = Side { embed: embed_in.as_deref(), stride: input.1.into(), distance: input.2.into() };
    let output = Side { embed: embed_out.as_deref(), stride: output.1.into(), distance: output.2.into() };
    Made::new(of, &n, input, output, count.into())
}

/// A plan of numbers side by side.
fn basic(n: &[i32], kind: u32, count: i32) -> Result<Made> {
    let n: Vec<i64> = n.iter().map(|&n| n.into()).collect();
    Made::new(Type::of(kind)?, &n, Side::USUAL, Side::USUAL, count.into())
}

/// Creates and makes a plan.
fn plan(out: Out<i32>, made: Result<Made>) -> Result<()> {
    out.check()?;
    let made = made?;
    CUFFT.version()?;
    out.set(create(Some(made)))
}

/// The size of a work area for what can be planned.
fn size(made: Result<Made>, out: Out<usize>) -> Result<()> {
    made?;
    out.set(0)
}

/// The types of a plan by the elements of its sides. What is computed in may be told as a real or a complex number, where one side is real.
fn types(from: u32, to: u32, computed: u32) -> Result<Type> {
    use DataType::{C32, C64, F32, F64};
    let of = |number| DataType::from_number(number);
    match (of(from), of(to), of(computed)) {
        (Some(C32), Some(C32), Some(C32)) => Ok(Type { shape: Shape::Complex, double: false }),
        (Some(F32), Some(C32), Some(C32 | F32)) => Ok(Type { shape: Shape::FromReal, double: false }),
        (Some(C32), Some(F32), Some(C32 | F32)) => Ok(Type { shape: Shape::ToReal, double: false }),
        (Some(C64), Some(C64), Some(C64)) => Ok(Type { shape: Shape::Complex, double: true }),
        (Some(F64), Some(C64), Some(C64 | F64)) => Ok(Type { shape: Shape::FromReal, double: true }),
        (Some(C64), Some(F64), Some(C64 | F64)) => Ok(Type { shape: Shape::ToReal, double: true }),
        _ => {
            missing(&format!("cuFFT: a transform from type {from} to type {to} computed in type {computed}"))
        }
    }
}

math! {
    CUFFT;

    fn cufftCreate(out: Out<i32>) {
        out.check()?;
        CUFFT.version()?;
        out.set(create(None))
    }

    fn cufftDestroy(handle: i32) {
        destroy(handle)
    }

    fn cufftPlan1d(out: Out<i32>, nx: i32, kind: u32, batch: i32) {
        plan(out, basic(&[nx], kind, batch))
    }

    fn cufftPlan2d(out: Out<i32>, nx: i32, ny: i32, kind: u32) {
        plan(out, basic(&[nx, ny], kind, 1))
    }

    fn cufftPlan3d(out: Out<i32>, nx: i32, ny: i32, nz: i32, kind: u32) {
        plan(out, basic(&[nx, ny, nz], kind, 1))
    }

    fn cufftPlanMany(
        out: Out<i32>, rank: i32, n: In<i32>, inembed: In<i32>, istride: i32, idist: i32,
        onembed: In<i32>, ostride: i32, odist: i32, kind: u32, batch: i32,
    ) {
        // SAFETY: by the call's description the arrays have `rank` numbers.
        let made = unsafe {
            many(Type::of(kind)?, (rank, n), (inembed, istride, idist), (onembed, ostride, odist), batch)
        };
        plan(out, made)
    }

    fn cufftMakePlan1d(handle: i32, nx: i32, kind: u32, batch: i32, work_size: Out<usize>) {
        make(handle, basic(&[nx], kind, batch)?, work_size)
    }

    fn cufftMakePlan2d(handle: i32, nx: i32, ny: i32, kind: u32, work_size: Out<usize>) {
        make(handle, basic(&[nx, ny], kind, 1)?, work_size)
    }

    fn cufftMakePlan3d(handle: i32, nx: i32, ny: i32, nz: i32, kind: u32, work_size: Out<usize>) {
        make(handle, basic(&[nx, ny, nz], kind, 1)?, work_size)
    }

    fn cufftMakePlanMany(
        handle: i32, rank: i32, n: In<i32>, inembed: In<i32>, istride: i32, idist: i32,
        onembed: In<i32>, ostride: i32, odist: i32, kind: u32, batch: i32, work_size: Out<usize>,
    ) {
        // SAFETY: by the call's description the arrays have `rank` numbers.
        let made = unsafe {
            many(Type::of(kind)?, (rank, n), (inembed, istride, idist), (onembed, ostride, odist), batch)
        };
        make(handle, made?, work_size)
    }

    fn cufftMakePlanMany64(
        handle: i32, rank: i32, n: In<i64>, inembed: In<i64>, istride: i64, idist: i64,
        onembed: In<i64>, ostride: i64, odist: i64, kind: u32, batch: i64, work_size: Out<usize>,
    ) {
        // SAFETY: by the call's description the arrays have `rank` numbers.
        let made = unsafe {
            many(Type::of(kind)?, (rank, n), (inembed, istride, idist), (onembed, ostride, odist), batch)
        };
        make(handle, made?, work_size)
    }

    fn cufftXtMakePlanMany(
        handle: i32, rank: i32, n: In<i64>, inembed: In<i64>, istride: i64, idist: i64, from: u32,
        onembed: In<i64>, ostride: i64, odist: i64, to: u32, batch: i64, work_size: Out<usize>, computed: u32,
    ) {
        let of = types(from, to, computed)?;
        // SAFETY: by the call's description the arrays have `rank` numbers.
        let made = unsafe { many(of, (rank, n), (inembed, istride, idist), (onembed, ostride, odist), batch) };
        make(handle, made?, work_size)
    }

    fn cufftEstimate1d(nx: i32, kind: u32, batch: i32, work_size: Out<usize>) {
        size(basic(&[nx], kind, batch), work_size)
    }

    fn cufftEstimate2d(nx: i32, ny: i32, kind: u32, work_size: Out<usize>) {
        size(basic(&[nx, ny], kind, 1), work_size)
    }

    fn cufftEstimate3d(nx: i32, ny: i32, nz: i32, kind: u32, work_size: Out<usize>) {
        size(basic(&[nx, ny, nz], kind, 1), work_size)
    }

    fn cufftEstimateMany(
        rank: i32, n: In<i32>, inembed: In<i32>, istride: i32, idist: i32, onembed: In<i32>, ostride: i32,
        odist: i32, kind: u32, batch: i32, work_size: Out<usize>,
    ) {
        // SAFETY: by the call's description the arrays have `rank` numbers.
        let made = unsafe {
            many(Type::of(kind)?, (rank, n), (inembed, istride, idist), (onembed, ostride, odist), batch)
        };
        size(made, work_size)
    }

    fn cufftGetSize1d(handle: i32, nx: i32, kind: u32, batch: i32, work_size: Out<usize>) {
        get(handle)?;
        size(basic(&[nx], kind, batch), work_size)
    }

    fn cufftGetSize2d(handle: i32, nx: i32, ny: i32, kind: u32, work_size: Out<usize>) {
        get(handle)?;
        size(basic(&[nx, ny], kind, 1), work_size)
    }

    fn cufftGetSize3d(handle: i32, nx: i32, ny: i32, nz: i32, kind: u32, work_size: Out<usize>) {
        get(handle)?;
        size(basic(&[nx, ny, nz], kind, 1), work_size)
    }

    fn cufftGetSizeMany(
        handle: i32, rank: i32, n: In<i32>, inembed: In<i32>, istride: i32, idist: i32,
        onembed: In<i32>, ostride: i32, odist: i32, kind: u32, batch: i32, work_size: Out<usize>,
    ) {
        get(handle)?;
        // SAFETY: by the call's description the arrays have `rank` numbers.
        let made = unsafe {
            many(Type::of(kind)?, (rank, n), (inembed, istride, idist), (onembed, ostride, odist), batch)
        };
        size(made, work_size)
    }

    fn cufftGetSizeMany64(
        handle: i32, rank: i32, n: In<i64>, inembed: In<i64>, istride: i64, idist: i64,
        onembed: In<i64>, ostride: i64, odist: i64, kind: u32, batch: i64, work_size: Out<usize>,
    ) {
        get(handle)?;
        // SAFETY: by the call's description the arrays have `rank` numbers.
        let made = unsafe {
            many(Type::of(kind)?, (rank, n), (inembed, istride, idist), (onembed, ostride, odist), batch)
        };
        size(made, work_size)
    }

    fn cufftXtGetSizeMany(
        handle: i32, rank: i32, n: In<i64>, inembed: In<i64>, istride: i64, idist: i64, from: u32,
        onembed: In<i64>, ostride: i64, odist: i64, to: u32, batch: i64, work_size: Out<usize>, computed: u32,
    ) {
        get(handle)?;
        let of = types(from, to, computed)?;
        // SAFETY: by the call's description the arrays have `rank` numbers.
        let made = unsafe { many(of, (rank, n), (inembed, istride, idist), (onembed, ostride, odist), batch) };
        size(made, work_size)
    }

    fn cufftGetSize(handle: i32, work_size: Out<usize>) {
        get(handle)?;
        work_size.set(0)
    }

    fn cufftGetVersion(version: Out<i32>) {
        version.check()?;
        version.set(CUFFT.version()? as i32)
    }

    fn cufftGetProperty(which: u32, value: Out<i32>) {
        value.check()?;
        value.set(property(CUFFT.version()?, 1000, 100, which)?)
    }
}
