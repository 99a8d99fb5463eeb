//! Handles, and the descriptors of the older interface.

use std::sync::LazyLock;

use parking_lot::Mutex;
use rgpu_libraries::{DataType, Scalar};

use super::CUSPARSE;
use crate::abi::c_functions;
use crate::core::registry::Registry;
use crate::core::{Direction, Wait};
use crate::libraries::math::{Out, Queue, Result, home, invalid, math, property};

/// What a handle stands for.
#[derive(Debug, Clone, Copy)]
struct Handle {
    stream: usize,
    /// `cusparsePointerMode_t`: whether factors are in device memory.
    on_device: bool,
}

/// `cusparseMatDescr_t`: type, triangle, diagonal, and what places begin with.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Description {
    kind: u32,
    /// `cusparseFillMode_t`.
    pub(super) fill: u32,
    /// `cusparseDiagType_t`.
    pub(super) diagonal: u32,
    /// What places begin with.
    pub(super) base: u32,
}

static HANDLES: LazyLock<Registry<Mutex<Handle>>> = LazyLock::new(|| Registry::new("cuSPARSE handle"));
static DESCRIPTIONS: LazyLock<Registry<Mutex<Description>>> =
    LazyLock::new(|| Registry::new("cuSPARSE matrix description"));

/// An error where there is no such handle.
pub(super) fn check(handle: usize) -> Result<()> {
    HANDLES.get(handle)?;
    Ok(())
}

/// A handle's stream.
pub(super) fn queue(handle: usize) -> Result<Queue> {
    let stream = HANDLES.get(handle)?.lock().stream;
    Queue::of(stream)
}

/// A description, as the program has set it.
pub(super) fn description(raw: usize) -> Result<Description> {
    Ok(*DESCRIPTIONS.get(raw)?.lock())
}

/// A factor: read now where it is the program's, or to be read on the device.
pub(super) fn scalar(handle: usize, at: usize, kind: DataType) -> Result<Scalar> {
    if at == 0 {
        return invalid("A factor is null");
    }
    if HANDLES.get(handle)?.lock().on_device {
        return Ok(Scalar::device(at as u64));
    }
    // SAFETY: by the call's description, a factor of this type lies there. Alignment is not needed.
    unsafe {
        let f32_at = |i: usize| f64::from((at as *const f32).add(i).read_unaligned());
        let f64_at = |i: usize| (at as *const f64).add(i).read_unaligned();
        Ok(match kind {
            DataType::F32 => Scalar::real(f32_at(0)),
            DataType::C32 => Scalar::complex(f32_at(0), f32_at(1)),
            DataType::C64 => Scalar::complex(f64_at(0), f64_at(1)),
            _ => Scalar::real(f64_at(0)),
        })
    }
}

/// The name and the explanation of a status.
fn status(number: u32) -> (&'static std::ffi::CStr, &'static std::ffi::CStr) {
    match number {
        0 => (c"CUSPARSE_STATUS_SUCCESS", c"success"),
        1 => (c"CUSPARSE_STATUS_NOT_INITIALIZED", c"the handle is none, or the library cannot be used"),
        2 => (c"CUSPARSE_STATUS_ALLOC_FAILED", c"there is no memory"),
        3 => (c"CUSPARSE_STATUS_INVALID_VALUE", c"an argument makes no sense"),
        4 => (c"CUSPARSE_STATUS_ARCH_MISMATCH", c"the device lacks a feature"),
        5 => (c"CUSPARSE_STATUS_MAPPING_ERROR", c"memory could not be mapped"),
        6 => (c"CUSPARSE_STATUS_EXECUTION_FAILED", c"the device could not do it"),
        7 => (c"CUSPARSE_STATUS_INTERNAL_ERROR", c"an internal error"),
        8 => (c"CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED", c"a matrix has a type that does not fit"),
        9 => (c"CUSPARSE_STATUS_ZERO_PIVOT", c"a pivot is zero"),
        10 => (c"CUSPARSE_STATUS_NOT_SUPPORTED", c"this is not implemented"),
        11 => (c"CUSPARSE_STATUS_INSUFFICIENT_RESOURCES", c"resources do not suffice"),
        _ => (c"unrecognized error code", c"unrecognized error code"),
    }
}

/// Sets something of a description that has values up to `most`.
fn describe(raw: usize, value: u32, most: u32, set: impl FnOnce(&mut Description)) -> Result<()> {
    if value > most {
        return invalid(format!("There is no such property of a matrix: {value}"));
    }
    set(&mut DESCRIPTIONS.get(raw)?.lock());
    Ok(())
}

/// What the description says; these functions have no way of telling of an error.
fn described(raw: usize, get: impl FnOnce(&Description) -> u32) -> u32 {
    DESCRIPTIONS.get(raw).map_or(0, |description| get(&description.lock()))
}

c_functions! {
    fn cusparseGetErrorName(number: u32) -> *const std::ffi::c_char {
        status(number).0.as_ptr()
    }

    fn cusparseGetErrorString(number: u32) -> *const std::ffi::c_char {
        status(number).1.as_ptr()
    }

    fn cusparseGetMatType(raw: usize) -> u32 {
        described(raw, |description| description.kind)
    }

    fn cusparseGetMatFillMode(raw: usize) -> u32 {
        described(raw, |description| description.fill)
    }

    fn cusparseGetMatDiagType(raw: usize) -> u32 {
        described(raw, |description| description.diagonal)
    }

    fn cusparseGetMatIndexBase(raw: usize) -> u32 {
        described(raw, |description| description.base)
    }
}

math! {
    CUSPARSE;

    fn cusparseCreate(out: Out<usize>) {
        out.check()?;
        CUSPARSE.version()?;
        let mut raw = 0;
        HANDLES.insert(|handle| {
            raw = handle;
            Mutex::new(Handle { stream: 0, on_device: false })
        });
        out.set(raw)
    }

    fn cusparseDestroy(handle: usize) {
        HANDLES.remove(handle)?;
        Ok(())
    }

    fn cusparseGetVersion(handle: usize, version: Out<i32>) {
        check(handle)?;
        version.check()?;
        version.set(CUSPARSE.version()? as i32)
    }

    fn cusparseGetProperty(which: u32, value: Out<i32>) {
        value.check()?;
        value.set(property(CUSPARSE.version()?, 1000, 100, which)?)
    }

    fn cusparseSetStream(handle: usize, stream: usize) {
        HANDLES.get(handle)?.lock().stream = stream;
        Ok(())
    }

    fn cusparseGetStream(handle: usize, stream: Out<usize>) {
        stream.set(HANDLES.get(handle)?.lock().stream)
    }

    fn cusparseSetPointerMode(handle: usize, mode: u32) {
        if mode > 1 {
            return invalid(format!("There is no cusparsePointerMode_t {mode}"));
        }
        HANDLES.get(handle)?.lock().on_device = mode == 1;
        Ok(())
    }

    fn cusparseGetPointerMode(handle: usize, mode: Out<u32>) {
        mode.set(HANDLES.get(handle)?.lock().on_device.into())
    }

    fn cusparseCreateMatDescr(out: Out<usize>) {
        out.check()?;
        let mut raw = 0;
        DESCRIPTIONS.insert(|handle| {
            raw = handle;
            Mutex::default()
        });
        out.set(raw)
    }

    fn cusparseDestroyMatDescr(raw: usize) {
        DESCRIPTIONS.remove(raw)?;
        Ok(())
    }

    fn cusparseSetMatType(raw: usize, value: u32) {
        describe(raw, value, 3, |description| description.kind = value)
    }

    fn cusparseSetMatFillMode(raw: usize, value: u32) {
        describe(raw, value, 1, |description| description.fill = value)
    }

    fn cusparseSetMatDiagType(raw: usize, value: u32) {
        describe(raw, value, 1, |description| description.diagonal = value)
    }

    fn cusparseSetMatIndexBase(raw: usize, value: u32) {
        describe(raw, value, 1, |description| description.base = value)
    }
}

/// Whether factors and results are in device memory.
pub(super) fn on_device(handle: usize) -> Result<bool> {
    Ok(HANDLES.get(handle)?.lock().on_device)
}

/// Copies within device memory, in the stream's order.
pub(super) fn copy(queue: &Queue, to: u64, from: u64, bytes: u64) -> Result<()> {
    Ok(queue.core.copy(&queue.stream, to, from, bytes, Direction::DeviceToDevice, Wait::Async)?)
}

/// The eight bytes at a device address, once the stream has come there.
pub(super) fn fetch(queue: &Queue, from: u64) -> Result<i64> {
    Ok(home(queue, from, 1)?[0])
}
