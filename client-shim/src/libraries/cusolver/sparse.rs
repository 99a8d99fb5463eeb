//! Systems of equations with sparse matrices.

use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rgpu_libraries::{DataType, SparseFormat, SparseMatrix, SparseSystem};

use super::handle::number_in;
use super::{CUSOLVER, count};
use crate::core::registry::Registry;
use crate::core::{Context, current};
use crate::libraries::cusparse;
use crate::libraries::math::{Out, Queue, Result, math};

/// Room for a number on its way to the program.
const SCRATCH_BYTES: u64 = 256;

/// What a handle stands for.
struct Handle {
    stream: usize,
    /// Device memory for results on their way to the host, or 0, and where it is.
    scratch: (u64, Option<Arc<Context>>),
}

static HANDLES: LazyLock<Registry<Mutex<Handle>>> = LazyLock::new(|| Registry::new("cuSOLVER sparse handle"));

/// A matrix by rows: description, rows, elements, values, offsets, columns.
type Given = (usize, i32, i32, usize, usize, usize);

/// Solves a system. Whether the matrix is singular is asked of the device, so this waits for it.
fn solve(
    handle: usize,
    kind: DataType,
    (described, n, stored, values, offsets, indices): Given,
    (b, x): (usize, usize),
    (tolerance, positive): (f64, bool),
    singularity: Out<i32>,
) -> Result<()> {
    singularity.check()?;
    let handle = HANDLES.get(handle)?;
    let n = count(n.into())?;
    let a = SparseMatrix {
        format: SparseFormat::Csr,
        rows: n,
        columns: n,
        stored: count(stored.into())?,
        offsets: offsets as u64,
        indices: indices as u64,
        values: values as u64,
        kind,
        base: cusparse::index_base(described)?,
        ..SparseMatrix::default()
    };
    let (stream, singular) = {
        let mut handle = handle.lock();
        if handle.scratch.0 == 0 {
            let core = current()?;
            let context = core.runtime_context()?;
            handle.scratch = (core.alloc(&context, SCRATCH_BYTES)?, Some(context));
        }
        (handle.stream, handle.scratch.0)
    };
    let queue = Queue::of(stream)?;
    queue.post(&SparseSystem { a, b: b as u64, x: x as u64, positive, tolerance, singular })?;
    singularity.set(number_in(&queue, singular)?)
}

/// Functions whose tolerance is of their elements' real type.
macro_rules! solving {
    ($($name:ident, $kind:ident, $tolerance:ty, $positive:literal;)*) => {
        math! {
            CUSOLVER;
            $(
                fn $name(
                    handle: usize, m: i32, stored: i32, of_a: usize, values: usize, offsets: usize, indices: usize,
                    b: usize, tolerance: $tolerance, _reorder: i32, x: usize, singularity: Out<i32>,
                ) {
                    let given = (of_a, m, stored, values, offsets, indices);
                    solve(handle, DataType::$kind, given, (b, x), (tolerance.into(), $positive), singularity)
                }
            )*
        }
    };
}
solving! {
    cusolverSpScsrlsvqr, F32, f32, false;
    cusolverSpDcsrlsvqr, F64, f64, false;
    cusolverSpCcsrlsvqr, C32, f32, false;
    cusolverSpZcsrlsvqr, C64, f64, false;
    cusolverSpScsrlsvchol, F32, f32, true;
    cusolverSpDcsrlsvchol, F64, f64, true;
    cusolverSpCcsrlsvchol, C32, f32, true;
    cusolverSpZcsrlsvchol, C64, f64, true;
}

math! {
    CUSOLVER;

    fn cusolverSpCreate(out: Out<usize>) {
        out.check()?;
        CUSOLVER.version()?;
        let mut raw = 0;
        HANDLES.insert(|handle| {
            raw = handle;
            Mutex::new(Handle { stream: 0, scratch: (0, None) })
        });
        out.set(raw)
    }

    fn cusolverSpDestroy(handle: usize) {
        let handle = HANDLES.remove(handle)?;
        let (scratch, context) = std::mem::take(&mut handle.lock().scratch);
        if context.is_some_and(|context| context.is_alive()) {
            current()?.free(scratch)?;
        }
        Ok(())
    }

    fn cusolverSpSetStream(handle: usize, stream: usize) {
        HANDLES.get(handle)?.lock().stream = stream;
        Ok(())
    }

    fn cusolverSpGetStream(handle: usize, stream: Out<usize>) {
        stream.set(HANDLES.get(handle)?.lock().stream)
    }
}
