//! Handles, and what a call needs of one.

use std::ffi::c_void;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rgpu_libraries::{Arguments, DataType, Library, Matrix, Scalar, Vector};

use super::status::{Failure, In, Result, Status, invalid};
use super::types::{Element, parts_at};
use crate::core::registry::Registry;
use crate::core::{self, Context, Core, Direction, Stream, Wait, error};

/// `CUBLAS_POINTER_MODE_DEVICE`.
const DEVICE: u32 = 1;
/// Room for any result.
const SCRATCH_BYTES: u64 = 256;

/// A handle.
pub(super) struct Handle {
    pub(super) raw: usize,
    pub(super) context: Arc<Context>,
    pub(super) settings: Mutex<Settings>,
}

/// What a program has set.
#[derive(Clone)]
pub(super) struct Settings {
    /// The stream, and what the program calls it.
    pub(super) stream: (usize, Arc<Stream>),
    pub(super) pointer_mode: u32,
    pub(super) math_mode: u32,
    pub(super) atomics_mode: u32,
    pub(super) multiprocessors: i32,
    pub(super) emulation: u32,
    /// Device memory for results on their way to the host, or 0.
    scratch: u64,
}

static HANDLES: LazyLock<Registry<Handle>> = LazyLock::new(|| Registry::new("cuBLAS handle"));

/// A call on a handle.
pub(super) struct Call {
    pub(super) core: &'static Core,
    pub(super) handle: Arc<Handle>,
    stream: Arc<Stream>,
    device_scalars: bool,
}

/// Whether the device can compute what the library's calls ask for; it is asked once.
pub(in crate::libraries) fn check_device(core: &Core, context: &Context, library: Library) -> Result<u32> {
    core.math_version(context.ordinal, library as u32).map_err(|error| {
        let why =
            format!("{} cannot be used with device {}: {}", library.name(), context.ordinal, error.message);
        error::say_once(&why);
        Failure { status: Status::NotInitialized, why }
    })
}

/// A new handle in the calling thread's context.
pub(super) fn create(core: &'static Core) -> Result<usize> {
    let context = core.runtime_context()?;
    check_device(core, &context, Library::Blas)?;
    let stream = core.stream(&context, 0, false)?;
    let settings = Settings {
        stream: (0, stream),
        pointer_mode: 0,
        math_mode: 0,
        atomics_mode: 0,
        multiprocessors: 0,
        emulation: 0,
        scratch: 0,
    };
    Ok(HANDLES.insert(|raw| Handle { raw, context, settings: Mutex::new(settings) }).raw)
}

/// Whether a number is a handle, which programs may pass where cuBLASLt wants one of its own.
pub(in crate::libraries) fn is_handle(raw: usize) -> bool {
    HANDLES.contains(raw)
}

/// Ends a handle.
pub(super) fn destroy(raw: usize) -> Result<()> {
    let Ok(handle) = HANDLES.remove(raw) else { return unknown(raw) };
    let scratch = std::mem::take(&mut handle.settings.lock().scratch);
    if scratch != 0 && handle.context.is_alive() {
        core::current()?.free(scratch)?;
    }
    Ok(())
}

fn unknown<T>(raw: usize) -> Result<T> {
    Err(Failure { status: Status::NotInitialized, why: format!("{raw:#x} is not a living cuBLAS handle") })
}

/// The handle behind what a program passed.
pub(super) fn enter(raw: usize) -> Result<Call> {
    let Ok(handle) = HANDLES.get(raw) else { return unknown(raw) };
    let core = core::current()?;
    let (stream, device_scalars) = {
        let settings = handle.settings.lock();
        (settings.stream.1.clone(), settings.pointer_mode == DEVICE)
    };
    Ok(Call { core, handle, stream, device_scalars })
}

impl Call {
    /// Enqueues an operation in the handle's stream.
    pub(super) fn post(&self, arguments: &impl Arguments) -> Result<()> {
        let (operation, params) = arguments.written();
        Ok(self.core.compute(&self.stream, operation, &params)?)
    }

    /// Whether factors and results lie in device memory.
    pub(super) fn device_scalars(&self) -> bool {
        self.device_scalars
    }

    /// A factor.
    pub(super) fn scalar<T: Element>(&self, place: In<T>) -> Result<Scalar> {
        if self.device_scalars && !place.is_null() {
            return Ok(Scalar::device(place.as_ptr() as u64));
        }
        let [re, im] = place.get()?.parts();
        Ok(Scalar::complex(re, im))
    }

    /// A factor of a type that another argument says.
    pub(super) fn scalar_of(&self, place: *const c_void, kind: DataType) -> Result<Scalar> {
        if place.is_null() {
            return invalid("a factor's pointer is null");
        }
        if self.device_scalars {
            return Ok(Scalar::device(place as u64));
        }
        // SAFETY: the program says that a number of this type lies there.
        let [re, im] = unsafe { parts_at(place.cast(), kind) };
        Ok(Scalar::complex(re, im))
    }

    /// Has a result of this type computed, and puts it where the program wants it.
    pub(super) fn result(
        &self,
        place: *mut c_void,
        kind: DataType,
        compute: impl FnOnce(u64) -> Result<()>,
    ) -> Result<()> {
        if place.is_null() {
            return invalid("a result pointer is null");
        }
        if self.device_scalars {
            return compute(place as u64);
        }
        let scratch = {
            let mut settings = self.handle.settings.lock();
            if settings.scratch == 0 {
                settings.scratch = self.core.alloc(&self.handle.context, SCRATCH_BYTES)?;
            }
            settings.scratch
        };
        compute(scratch)?;
        let (to, direction) = (place as u64, Direction::DeviceToHost);
        Ok(self.core.copy(&self.stream, to, scratch, kind.bytes(), direction, Wait::Sync)?)
    }
}

/// A matrix that is one problem's.
pub(super) fn matrix<T>(at: *const T, kind: DataType, ld: u64) -> Matrix {
    Matrix { addr: at as u64, kind, ld, stride: 0 }
}

/// A vector that is one problem's.
pub(super) fn vector<T>(at: *const T, kind: DataType, inc: i64) -> Vector {
    Vector { addr: at as u64, kind, inc, stride: 0 }
}
