//! Vectors whose types are arguments.

use std::ffi::c_void;

use rgpu_libraries::{Combination, Combine, DataType, Reduce, Reduction};

use super::handle::{Call, vector};
use super::level1::{combine, length};
use super::status::{Result, unsupported};
use super::types::{Count, data_type};

/// The type that is computed in, which is never a narrow one.
fn execution(number: u32) -> Result<DataType> {
    match data_type(number)? {
        kind @ (DataType::F32 | DataType::F64 | DataType::C32 | DataType::C64) => Ok(kind),
        DataType::F16 | DataType::Bf16 => Ok(DataType::F32),
        other => unsupported(&format!("A vector's execution type {other:?}")),
    }
}

/// The type to compute in where no argument says it.
fn wide(kind: DataType) -> DataType {
    if matches!(kind, DataType::F16 | DataType::Bf16) { DataType::F32 } else { kind }
}

/// One number of a vector.
struct Reducing<N> {
    what: Reduction,
    n: N,
    x: (*const c_void, u32, N),
    y: Option<(*const c_void, u32, N)>,
    result: (*mut c_void, u32),
    execution: u32,
}

impl<N: Count> Reducing<N> {
    fn run(self, call: &Call) -> Result<()> {
        let (x, kind) = (vector(self.x.0, data_type(self.x.1)?, self.x.2.get()), data_type(self.result.1)?);
        let y = match self.y {
            Some((y, kind, inc)) => vector(y, data_type(kind)?, inc.get()),
            None => Default::default(),
        };
        // A real type to compute in is one for the parts of complex numbers.
        let compute = match (execution(self.execution)?, x.kind) {
            (DataType::F32, DataType::C32) => DataType::C32,
            (DataType::F64, DataType::C64) => DataType::C64,
            (compute, _) => compute,
        };
        let n = if self.y.is_none() && self.x.2.get() < 1 { 0 } else { length(self.n) };
        call.result(self.result.0, kind, |result| {
            call.post(&Reduce { what: self.what, n, x, y, result, result_kind: kind, compute })
        })
    }
}

blas! {
    /// `cublasNrm2Ex`
    fn nrm2_ex<N: Count>(
        n: N, x: *const c_void, x_type: u32, incx: N, result: *mut c_void, result_type: u32, execution: u32,
    ) |call| {
        Reducing {
            what: Reduction::Norm, n, x: (x, x_type, incx), y: None, result: (result, result_type), execution,
        }
        .run(call)
    }

    /// `cublasAsumEx`
    fn asum_ex<N: Count>(
        n: N, x: *const c_void, x_type: u32, incx: N, result: *mut c_void, result_type: u32, execution: u32,
    ) |call| {
        Reducing {
            what: Reduction::AbsoluteSum, n, x: (x, x_type, incx), y: None, result: (result, result_type), execution,
        }
        .run(call)
    }

    /// `cublasDotEx`
    fn dot_ex<N: Count>(
        n: N, x: *const c_void, x_type: u32, incx: N, y: *const c_void, y_type: u32, incy: N,
        result: *mut c_void, result_type: u32, execution: u32,
    ) |call| {
        let (x, y) = ((x, x_type, incx), Some((y, y_type, incy)));
        Reducing { what: Reduction::Dot, n, x, y, result: (result, result_type), execution }.run(call)
    }

    /// `cublasDotcEx`
    fn dotc_ex<N: Count>(
        n: N, x: *const c_void, x_type: u32, incx: N, y: *const c_void, y_type: u32, incy: N,
        result: *mut c_void, result_type: u32, execution: u32,
    ) |call| {
        let (x, y) = ((x, x_type, incx), Some((y, y_type, incy)));
        Reducing { what: Reduction::DotConjugated, n, x, y, result: (result, result_type), execution }.run(call)
    }

    /// `cublasScalEx`
    fn scal_ex<N: Count>(
        n: N, alpha: *const c_void, alpha_type: u32, x: *mut c_void, x_type: u32, incx: N, execution_type: u32,
    ) |call| {
        let (alpha_kind, x) = (data_type(alpha_type)?, vector(x, data_type(x_type)?, incx.get()));
        let alpha = call.scalar_of(alpha, alpha_kind)?;
        let n = if incx.get() < 1 { 0 } else { length(n) };
        let (what, compute) = (Combination::Scale, execution(execution_type)?);
        combine(call, &Combine { what, n, alpha, alpha_kind, x, compute, ..Combine::default() })
    }

    /// `cublasAxpyEx`
    fn axpy_ex<N: Count>(
        n: N, alpha: *const c_void, alpha_type: u32, x: *const c_void, x_type: u32, incx: N,
        y: *mut c_void, y_type: u32, incy: N, execution_type: u32,
    ) |call| {
        let alpha_kind = data_type(alpha_type)?;
        let (x, y) = (vector(x, data_type(x_type)?, incx.get()), vector(y, data_type(y_type)?, incy.get()));
        let alpha = call.scalar_of(alpha, alpha_kind)?;
        let (what, compute) = (Combination::Axpy, execution(execution_type)?);
        combine(call, &Combine { what, n: length(n), alpha, alpha_kind, x, y, compute, ..Combine::default() })
    }

    /// `cublasCopyEx`
    fn copy_ex<N: Count>(
        n: N, x: *const c_void, x_type: u32, incx: N, y: *mut c_void, y_type: u32, incy: N,
    ) |call| {
        let (x, y) = (vector(x, data_type(x_type)?, incx.get()), vector(y, data_type(y_type)?, incy.get()));
        let compute = wide(x.kind);
        combine(call, &Combine { what: Combination::Copy, n: length(n), x, y, compute, ..Combine::default() })
    }

    /// `cublasSwapEx`
    fn swap_ex<N: Count>(
        n: N, x: *mut c_void, x_type: u32, incx: N, y: *mut c_void, y_type: u32, incy: N,
    ) |call| {
        let (x, y) = (vector(x, data_type(x_type)?, incx.get()), vector(y, data_type(y_type)?, incy.get()));
        let compute = wide(x.kind);
        combine(call, &Combine { what: Combination::Swap, n: length(n), x, y, compute, ..Combine::default() })
    }

    /// `cublasRotEx`
    fn rot_ex<N: Count>(
        n: N, x: *mut c_void, x_type: u32, incx: N, y: *mut c_void, y_type: u32, incy: N,
        c: *const c_void, s: *const c_void, cs_type: u32, execution_type: u32,
    ) |call| {
        let (x, y) = (vector(x, data_type(x_type)?, incx.get()), vector(y, data_type(y_type)?, incy.get()));
        let kind = data_type(cs_type)?;
        let (alpha, beta) = (call.scalar_of(c, kind)?, call.scalar_of(s, kind)?);
        let (what, compute) = (Combination::Rotate, execution(execution_type)?);
        combine(call, &Combine {
            what, n: length(n), alpha, beta, alpha_kind: kind, beta_kind: kind, x, y, compute, ..Combine::default()
        })
    }

    /// `cublasIamaxEx`
    fn iamax_ex<N: Count>(n: N, x: *const c_void, x_type: u32, incx: N, result: *mut N) |call| {
        place(call, Reduction::Greatest, n, vector(x, data_type(x_type)?, incx.get()), result)
    }

    /// `cublasIaminEx`
    fn iamin_ex<N: Count>(n: N, x: *const c_void, x_type: u32, incx: N, result: *mut N) |call| {
        place(call, Reduction::Least, n, vector(x, data_type(x_type)?, incx.get()), result)
    }
}

/// The place of the greatest or least element; where a distance makes no sense, there is none.
pub(super) fn place<N: Count>(
    call: &Call,
    what: Reduction,
    n: N,
    x: rgpu_libraries::Vector,
    result: *mut N,
) -> Result<()> {
    let (n, compute) = (if x.inc < 1 { 0 } else { length(n) }, wide(x.kind));
    call.result(result.cast(), N::KIND, |addr| {
        call.post(&Reduce { what, n, x, result: addr, result_kind: N::KIND, compute, ..Reduce::default() })
    })
}
