//! The driver door: cu*.
//!
//! Each exported function is one entry of a [`door!`] list: its name (and that of its twin whose default
//! stream is the thread's own), its arguments, and what it asks of [`crate::core`]. [`table`] knows them
//! all by name and version, for `cuGetProcAddress`; [`unsupported`] holds those that nobody implemented.

#![allow(non_snake_case)]

/// Defines exported functions. `fn name / twin (arguments) |core, per_thread| { body }`: the body returns
/// `Result<()>`; `per_thread` tells the twin from the ordinary one.
macro_rules! door {
    () => {};
    (fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) |$core:ident| $body:block $($rest:tt)*) => {
        door!(@define $name ($($arg: $ty),*) $core UNUSED false $body);
        door!($($rest)*);
    };
    (fn $name:ident / $twin:ident ($($arg:ident: $ty:ty),* $(,)?) |$core:ident, $pt:ident| $body:block $($rest:tt)*) => {
        door!(@define $name ($($arg: $ty),*) $core $pt false $body);
        door!(@define $twin ($($arg: $ty),*) $core $pt true $body);
        door!($($rest)*);
    };
    (@define $name:ident ($($arg:ident: $ty:ty),*) $core:ident $pt:ident $per_thread:literal $body:block) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> u32 {
            #[allow(dead_code)]
            const $pt: bool = $per_thread;
            $crate::core::error::guard_driver(stringify!($name), move || {
                let $core = $crate::driver::core()?;
                let _ = $core;
                $body
            })
        }
    };
}

mod capture;
mod context;
mod copy;
mod device;
mod errors;
mod graph;
mod launch;
mod link;
mod memory;
mod module;
mod stream;
pub mod table;
pub mod types;
mod unsupported;
mod virtual_memory;

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::core::error::{Code, Error, Result, guard_driver, guard_value, not_implemented};
use crate::core::{Core, current, existing};

// The table names every exported function.
pub use capture::*;
pub use context::*;
pub use copy::*;
pub use device::*;
pub use graph::*;
pub use launch::*;
pub use link::*;
pub use memory::*;
pub use module::*;
pub use stream::*;
pub use virtual_memory::*;

/// Set by `cuInit`.
static INITIALIZED: AtomicBool = AtomicBool::new(false);

/// The core, for a function that needs `cuInit` to have been called (by the program, or by the runtime
/// door on its behalf).
pub(crate) fn core() -> Result<&'static Core> {
    if !INITIALIZED.load(Ordering::Relaxed) && existing().is_none() {
        return Err(Error::new(Code::NotInitialized, "cuInit has not been called"));
    }
    current()
}

/// What an entry point answers that exists and is not implemented.
pub(crate) fn not_supported(symbol: &'static str) -> u32 {
    guard_driver(symbol, || Err(not_implemented(symbol)))
}

/// A place for a result; a null pointer is an invalid value.
pub(crate) fn set<T>(place: *mut T, value: T) -> Result<()> {
    if place.is_null() {
        return Err(Error::new(Code::InvalidValue, "a result pointer is null"));
    }
    // SAFETY: not null; that it is fit to be written to is the caller's part, as C has it.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// As [`set`], where CUDA allows the caller to pass null.
pub(crate) fn set_if_wanted<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: as in `set`.
        unsafe { place.write_unaligned(value) };
    }
}

/// A C string argument.
pub(crate) fn text<'a>(pointer: *const c_char) -> Result<&'a str> {
    if pointer.is_null() {
        return Err(Error::new(Code::InvalidValue, "a name is null"));
    }
    // SAFETY: not null; the caller passes a C string.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Error::new(Code::InvalidValue, "a name is not UTF-8"))
}

/// Writes a string and its NUL into a caller's buffer of `len` bytes, cut off where it doesn't fit.
pub(crate) fn set_text(buffer: *mut c_char, len: i32, value: &str) -> Result<()> {
    if buffer.is_null() || len <= 0 {
        return Err(Error::new(Code::InvalidValue, "a text buffer is null or empty"));
    }
    let bytes = &value.as_bytes()[..value.len().min(len as usize - 1)];
    // SAFETY: the caller says that `len` bytes are there.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len());
        buffer.add(bytes.len()).write(0);
    }
    Ok(())
}

/// A device ordinal argument.
pub(crate) fn ordinal(core: &Core, device: i32) -> Result<u32> {
    let ordinal = u32::try_from(device).map_err(|_| Error::from(Code::InvalidDevice))?;
    core.device_info(ordinal)?;
    Ok(ordinal)
}

/// `cuInit`.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: u32) -> u32 {
    guard_driver("cuInit", || {
        if flags != 0 {
            return Err(Error::new(Code::InvalidValue, "the flags of cuInit must be 0"));
        }
        current()?;
        INITIALIZED.store(true, Ordering::Relaxed);
        Ok(())
    })
}

/// `cuDriverGetVersion`: needs no `cuInit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut i32) -> u32 {
    guard_driver("cuDriverGetVersion", || {
        let number = match existing() {
            Some(core) if core.device_count() > 0 => core.device_info(0)?.driver_version as i32,
            _ => crate::driver::table::VERSION as i32,
        };
        set(version, number)
    })
}

/// `cuGetErrorName`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: u32, name: *mut *const c_char) -> u32 {
    guard_driver("cuGetErrorName", || match errors::name(error) {
        Some(text) => set(name, text.as_ptr()),
        None => {
            set_if_wanted(name, std::ptr::null());
            Err(Code::InvalidValue.into())
        }
    })
}

/// `cuGetErrorString`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(error: u32, text: *mut *const c_char) -> u32 {
    guard_driver("cuGetErrorString", || match errors::name(error) {
        Some(_) => set(text, crate::runtime::errors::get_error_string(error as i32)),
        None => {
            set_if_wanted(text, std::ptr::null());
            Err(Code::InvalidValue.into())
        }
    })
}

/// `cuGetExportTable`: the vendor's private tables are not imitated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetExportTable(table: *mut *const c_void, _id: *const types::Uuid) -> u32 {
    guard_driver("cuGetExportTable", || {
        // NVIDIA's own runtime is asking: one that could not be redirected.
        crate::loader::explain_obstacle();
        set_if_wanted(table, std::ptr::null());
        Err(Error::new(Code::NotFound, "private export tables are not offered"))
    })
}

/// Finds an entry point: the newest interface that is not newer than `version`. The error tells whether
/// the name is unknown or the version too old.
pub fn find(name: &str, version: u32, per_thread: bool) -> std::result::Result<*const (), bool> {
    let rows = &table::ROWS[table::ROWS.partition_point(|row| row.name < name)..];
    let rows = rows.iter().take_while(|row| row.name == name);
    let mut best: Option<&table::Row> = None;
    let mut known = false;
    for row in rows {
        known = true;
        if row.version > version || (row.per_thread && !per_thread) {
            continue;
        }
        // Ordered: ordinary rows ascending, then per-thread rows ascending. A per-thread row wins over
        // an ordinary one.
        best = Some(row);
    }
    best.map(|row| row.address.0).ok_or(known)
}

fn proc_address(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: i32,
    flags: u64,
    status: *mut u32,
    default_per_thread: bool,
) -> Result<()> {
    let name = text(symbol)?;
    if function.is_null() || version < 0 || flags > 2 {
        return Err(Error::new(Code::InvalidValue, "an argument of cuGetProcAddress is out of range"));
    }
    let per_thread = flags == 2 || (flags == 0 && default_per_thread);
    match find(name, version as u32, per_thread) {
        Ok(address) => {
            set_if_wanted(status, 0);
            set(function, address as *mut c_void)
        }
        Err(known) => {
            set_if_wanted(status, if known { 2 } else { 1 });
            set(function, std::ptr::null_mut())?;
            Err(Error::new(Code::NotFound, format!("there is no entry point {name:?} of version {version}")))
        }
    }
}

/// `cuGetProcAddress` of CUDA 11.3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: i32,
    flags: u64,
) -> u32 {
    guard_driver("cuGetProcAddress", || {
        proc_address(symbol, function, version, flags, std::ptr::null_mut(), false)
    })
}

/// `cuGetProcAddress` of CUDA 12.0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: i32,
    flags: u64,
    status: *mut u32,
) -> u32 {
    guard_driver("cuGetProcAddress", || proc_address(symbol, function, version, flags, status, false))
}

/// As [`cuGetProcAddress_v2`], from programs compiled for per-thread default streams.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2_ptsz(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: i32,
    flags: u64,
    status: *mut u32,
) -> u32 {
    guard_driver("cuGetProcAddress", || proc_address(symbol, function, version, flags, status, true))
}

/// `cuProfilerStart`: there is no profiler to start.
#[unsafe(no_mangle)]
pub extern "C" fn cuProfilerStart() -> u32 {
    0
}

/// `cuProfilerStop`.
#[unsafe(no_mangle)]
pub extern "C" fn cuProfilerStop() -> u32 {
    0
}

/// The entry points' names and whether each is implemented, for the documentation.
#[cfg(test)]
pub fn status() -> Vec<(&'static str, bool)> {
    let mut all: Vec<(&'static str, bool)> =
        table::ROWS.iter().map(|row| (row.symbol, !unsupported::UNSUPPORTED.contains(&row.symbol))).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Runs a callback of the program, which must not unwind into ours.
pub(crate) fn callback(body: impl FnOnce()) {
    guard_value((), body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_interface_is_found_for_each_version() {
        let at = |name, version, per_thread| find(name, version, per_thread);
        assert_eq!(at("cuGetProcAddress", 11030, false), Ok(cuGetProcAddress as *const ()));
        assert_eq!(at("cuGetProcAddress", 12000, false), Ok(cuGetProcAddress_v2 as *const ()));
        assert_eq!(at("cuMemcpyHtoD", 13000, false), Ok(cuMemcpyHtoD_v2 as *const ()));
        assert_eq!(at("cuMemcpyHtoD", 13000, true), Ok(cuMemcpyHtoD_v2_ptds as *const ()));
        assert_eq!(at("cuMemcpyHtoD", 3020, true), Ok(cuMemcpyHtoD_v2 as *const ()));
        assert_eq!(at("cuMemAlloc", 13000, true), Ok(cuMemAlloc_v2 as *const ()));
        assert_eq!(at("cuMemAlloc", 1000, false), Err(true));
        assert_eq!(at("cuNoSuchThing", 13000, false), Err(false));
        assert_eq!(at("", 13000, false), Err(false));
    }

    #[test]
    fn the_table_is_sorted() {
        let key = |row: &table::Row| (row.name, row.per_thread, row.version);
        assert!(table::ROWS.windows(2).all(|w| key(&w[0]) < key(&w[1])));
    }
}
