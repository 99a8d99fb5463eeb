//! Vectors.

use rgpu_libraries::{Combination, Combine, Reduce, Reduction, Vector};

use super::handle::{Call, vector};
use super::level1_ex::place;
use super::status::{In, Out, Result, invalid};
use super::types::{Count, Element};

/// How many elements there are; BLAS takes fewer than none for none.
pub(super) fn length<N: Count>(n: N) -> u64 {
    u64::try_from(n.get()).unwrap_or(0)
}

/// Posts something that is done to each element, unless there are none.
pub(super) fn combine(call: &Call, work: &Combine) -> Result<()> {
    if work.n == 0 { Ok(()) } else { call.post(work) }
}

blas! {
    /// `cublasSaxpy_v2` and its like.
    fn axpy<T: Element, N: Count>(n: N, alpha: In<T>, x: *const T, incx: N, y: *mut T, incy: N) |call| {
        let (x, y) = (vector(x, T::KIND, incx.get()), vector(y, T::KIND, incy.get()));
        let alpha = call.scalar(alpha)?;
        let what = Combination::Axpy;
        combine(call, &Combine { what, n: length(n), alpha, alpha_kind: T::KIND, x, y, compute: T::KIND, ..Combine::default() })
    }

    /// `cublasSscal_v2` and its like, and those that multiply complex numbers by real ones.
    fn scal<T: Element, S: Element, N: Count>(n: N, alpha: In<S>, x: *mut T, incx: N) |call| {
        let x = vector(x, T::KIND, incx.get());
        let alpha = call.scalar(alpha)?;
        let n = if incx.get() < 1 { 0 } else { length(n) };
        let what = Combination::Scale;
        combine(call, &Combine { what, n, alpha, alpha_kind: S::KIND, x, compute: T::KIND, ..Combine::default() })
    }

    /// `cublasScopy_v2` and its like.
    fn copy<T: Element, N: Count>(n: N, x: *const T, incx: N, y: *mut T, incy: N) |call| {
        let (x, y) = (vector(x, T::KIND, incx.get()), vector(y, T::KIND, incy.get()));
        combine(call, &Combine { what: Combination::Copy, n: length(n), x, y, compute: T::KIND, ..Combine::default() })
    }

    /// `cublasSswap_v2` and its like.
    fn swap<T: Element, N: Count>(n: N, x: *mut T, incx: N, y: *mut T, incy: N) |call| {
        let (x, y) = (vector(x, T::KIND, incx.get()), vector(y, T::KIND, incy.get()));
        combine(call, &Combine { what: Combination::Swap, n: length(n), x, y, compute: T::KIND, ..Combine::default() })
    }

    /// `cublasSrot_v2` and its like.
    fn rot<T: Element, R: Element, S: Element, N: Count>(
        n: N, x: *mut T, incx: N, y: *mut T, incy: N, c: In<R>, s: In<S>,
    ) |call| {
        let (x, y) = (vector(x, T::KIND, incx.get()), vector(y, T::KIND, incy.get()));
        let (alpha, beta) = (call.scalar(c)?, call.scalar(s)?);
        let (alpha_kind, beta_kind) = (R::KIND, S::KIND);
        let what = Combination::Rotate;
        combine(call, &Combine {
            what, n: length(n), alpha, beta, alpha_kind, beta_kind, x, y, compute: T::KIND, ..Combine::default()
        })
    }

    /// `cublasSrotm_v2` and its like.
    fn rotm<T: Element, N: Count>(n: N, x: *mut T, incx: N, y: *mut T, incy: N, numbers: In<T>) |call| {
        let (x, y) = (vector(x, T::KIND, incx.get()), vector(y, T::KIND, incy.get()));
        let what = Combination::RotateModified;
        let mut work =
            Combine { what, n: length(n), alpha_kind: T::KIND, x, y, compute: T::KIND, ..Combine::default() };
        if call.device_scalars() {
            if numbers.is_null() {
                return invalid("the numbers of a rotation are null");
            }
            work.numbers_addr = numbers.as_ptr() as u64;
        } else {
            // SAFETY: the call takes five numbers.
            let list = unsafe { numbers.list(5) }?;
            work.numbers = std::array::from_fn(|i| list[i].parts()[0]);
        }
        combine(call, &work)
    }

    /// `cublasSdot_v2`, `cublasCdotu_v2` and their like.
    fn dot<T: Element, N: Count>(n: N, x: *const T, incx: N, y: *const T, incy: N, result: *mut T) |call| {
        products(call, Reduction::Dot, length(n), [vector(x, T::KIND, incx.get()), vector(y, T::KIND, incy.get())], result)
    }

    /// `cublasCdotc_v2` and its like.
    fn dotc<T: Element, N: Count>(n: N, x: *const T, incx: N, y: *const T, incy: N, result: *mut T) |call| {
        let (x, y) = (vector(x, T::KIND, incx.get()), vector(y, T::KIND, incy.get()));
        products(call, Reduction::DotConjugated, length(n), [x, y], result)
    }

    /// `cublasSnrm2_v2` and its like.
    fn nrm2<T: Element, R: Element, N: Count>(n: N, x: *const T, incx: N, result: *mut R) |call| {
        sum(call, Reduction::Norm, n, x, incx, result)
    }

    /// `cublasSasum_v2` and its like.
    fn asum<T: Element, R: Element, N: Count>(n: N, x: *const T, incx: N, result: *mut R) |call| {
        sum(call, Reduction::AbsoluteSum, n, x, incx, result)
    }

    /// `cublasIsamax_v2` and its like.
    fn iamax<T: Element, N: Count>(n: N, x: *const T, incx: N, result: *mut N) |call| {
        place(call, Reduction::Greatest, n, vector(x, T::KIND, incx.get()), result)
    }

    /// `cublasIsamin_v2` and its like.
    fn iamin<T: Element, N: Count>(n: N, x: *const T, incx: N, result: *mut N) |call| {
        place(call, Reduction::Least, n, vector(x, T::KIND, incx.get()), result)
    }
}

fn products<T: Element>(
    call: &Call,
    what: Reduction,
    n: u64,
    [x, y]: [Vector; 2],
    result: *mut T,
) -> Result<()> {
    call.result(result.cast(), T::KIND, |addr| {
        call.post(&Reduce { what, n, x, y, result: addr, result_kind: T::KIND, compute: T::KIND })
    })
}

fn sum<T: Element, R: Element, N: Count>(
    call: &Call,
    what: Reduction,
    n: N,
    x: *const T,
    incx: N,
    result: *mut R,
) -> Result<()> {
    let n = if incx.get() < 1 { 0 } else { length(n) };
    call.result(result.cast(), R::KIND, |addr| {
        let x = vector(x, T::KIND, incx.get());
        call.post(&Reduce {
            what,
            n,
            x,
            result: addr,
            result_kind: R::KIND,
            compute: T::KIND,
            ..Reduce::default()
        })
    })
}

/// A Givens rotation that makes b zero: its cosine and sine, and what a and b become.
fn rotation(a: f64, b: f64) -> (f64, f64, f64, f64) {
    if a == 0.0 && b == 0.0 {
        return (1.0, 0.0, 0.0, 0.0);
    }
    let sign = if a.abs() > b.abs() { a.signum() } else { b.signum() };
    let r = sign * a.hypot(b);
    let (c, s) = (a / r, b / r);
    let z = if a.abs() > b.abs() {
        s
    } else if c != 0.0 {
        1.0 / c
    } else {
        1.0
    };
    (c, s, r, z)
}

/// `cublasSrotg_v2` and `cublasDrotg_v2`: computed here, where the numbers are the program's own.
macro_rules! rotg {
    ($($name:ident $t:ty;)*) => {
        blas! {$(
            /// `cublasSrotg_v2`, `cublasDrotg_v2`.
            fn $name(a: Out<$t>, b: Out<$t>, c: Out<$t>, s: Out<$t>) |call| {
                if call.device_scalars() {
                    return super::status::unsupported("A rotation made of numbers in device memory");
                }
                let (cosine, sine, r, z) = rotation(a.get()?.into(), b.get()?.into());
                c.check()?;
                s.check()?;
                a.set(r as $t)?;
                b.set(z as $t)?;
                c.set(cosine as $t)?;
                s.set(sine as $t)
            }
        )*}
    };
}
rotg! {
    srotg f32;
    drotg f64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotations_make_zeros() {
        for (a, b) in [(3.0, 4.0), (-5.0, 2.0), (0.0, 2.0), (1.0, 0.0), (0.0, 0.0)] {
            let (c, s, r, _) = rotation(a, b);
            assert!((c * a + s * b - r).abs() < 1e-12 && (c * b - s * a).abs() < 1e-12, "{a} {b}");
            assert!((c * c + s * s - 1.0).abs() < 1e-12);
        }
    }
}
