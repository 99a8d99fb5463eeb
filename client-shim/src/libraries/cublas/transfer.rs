//! Copies of vectors and matrices between the program's memory and the device's.

use std::ffi::c_void;

use super::status::{Result, guard, invalid};
use super::types::{Count, extent, leading};
use crate::core::{self, CopyBox, CopySide, Direction, Wait};

/// So many elements from one column, or element, to the next on each side.
struct Shape {
    rows: u64,
    columns: u64,
    element: u64,
    from: u64,
    to: u64,
}

impl Shape {
    /// A vector: each of its elements is a column of one.
    fn vector<N: Count>(n: N, element: N, from: N, to: N) -> Result<Self> {
        let (columns, element) = (extent("n", n)?, extent("elemSize", element)?);
        let (from, to) = (leading("incx", from, 1)?, leading("incy", to, 1)?);
        Ok(Self { rows: 1, columns, element, from, to })
    }

    fn matrix<N: Count>(rows: N, columns: N, element: N, from: N, to: N) -> Result<Self> {
        let (rows, columns) = (extent("rows", rows)?, extent("cols", columns)?);
        let element = extent("elemSize", element)?;
        let (from, to) = (leading("lda", from, rows)?, leading("ldb", to, rows)?);
        Ok(Self { rows, columns, element, from, to })
    }

    fn copy(
        self,
        from: *const c_void,
        to: *mut c_void,
        direction: Direction,
        stream: Option<usize>,
    ) -> Result<()> {
        if self.element == 0 {
            return invalid("an element has no bytes");
        }
        if self.rows == 0 || self.columns == 0 {
            return Ok(());
        }
        let core = core::current()?;
        let stream_of = core.stream(&core.runtime_context()?, stream.unwrap_or(0), false)?;
        let wait = if stream.is_some() { Wait::Async } else { Wait::Sync };
        let side = |addr: u64, step: u64| {
            let row_pitch = step.saturating_mul(self.element);
            CopySide { addr, row_pitch, slice_pitch: row_pitch.saturating_mul(self.columns) }
        };
        let what = CopyBox {
            dst: side(to as u64, self.to),
            src: side(from as u64, self.from),
            width: self.rows.saturating_mul(self.element),
            height: self.columns,
            depth: 1,
        };
        Ok(core.copy_box(&stream_of, &what, direction, wait)?)
    }
}

macro_rules! transfers {
    ($($(#[$doc:meta])* $name:ident $async:ident $shape:ident ($($arg:ident),*) $direction:ident;)*) => {$(
        $(#[$doc])*
        pub(crate) extern "C" fn $name<N: Count>(
            $($arg: N,)* x: *const c_void, from: N, y: *mut c_void, to: N,
        ) -> u32 {
            guard(stringify!($name), move || {
                Shape::$shape($($arg,)* from, to)?.copy(x, y, Direction::$direction, None)
            })
        }

        $(#[$doc])*
        #[allow(clippy::too_many_arguments, reason = "so the call is declared")]
        pub(crate) extern "C" fn $async<N: Count>(
            $($arg: N,)* x: *const c_void, from: N, y: *mut c_void, to: N, stream: usize,
        ) -> u32 {
            guard(stringify!($async), move || {
                Shape::$shape($($arg,)* from, to)?.copy(x, y, Direction::$direction, Some(stream))
            })
        }

        #[cfg(test)]
        #[allow(non_camel_case_types)]
        pub(crate) type $name<N> = extern "C" fn($(transfers!(@n N $arg),)* *const c_void, N, *mut c_void, N) -> u32;
        #[cfg(test)]
        #[allow(non_camel_case_types)]
        pub(crate) type $async<N> =
            extern "C" fn($(transfers!(@n N $arg),)* *const c_void, N, *mut c_void, N, usize) -> u32;
    )*};
    (@n $n:ident $arg:ident) => { $n };
}

transfers! {
    /// `cublasSetVector` and its like.
    set_vector set_vector_async vector (n, element) HostToDevice;
    /// `cublasGetVector` and its like.
    get_vector get_vector_async vector (n, element) DeviceToHost;
    /// `cublasSetMatrix` and its like.
    set_matrix set_matrix_async matrix (rows, columns, element) HostToDevice;
    /// `cublasGetMatrix` and its like.
    get_matrix get_matrix_async matrix (rows, columns, element) DeviceToHost;
}
