//! What nvcc's start-up code registers: fat binaries, and which host address stands for which kernel or variable.
//!
//! Registration only remembers; nothing of CUDA comes to life by it.

use std::ffi::{CStr, c_char, c_void};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

use super::error::{Code, Error, Result};
use super::generation;
use super::image::Image;
use super::registry::NumberMap;

/// A `__managed__` variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ManagedVariable {
    /// Its (mangled) name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Where the program keeps its address.
    host: usize,
}

impl ManagedVariable {
    /// Tells the program where the variable lies.
    pub(super) fn tell(&self, addr: u64) {
        // SAFETY: nvcc's code registered this place for the purpose, and it lives until it is unregistered.
        unsafe { (self.host as *mut u64).write(addr) };
    }
}

struct FatBinary {
    wrapper: usize,
    managed: Vec<ManagedVariable>,
}

/// A kernel or variable of a fat binary.
#[derive(Clone)]
pub(super) struct Named {
    /// The fat binary's handle.
    pub(super) binary: usize,
    /// Its (mangled) name.
    pub(super) name: Arc<str>,
}

/// Everything that was registered and not unregistered.
struct Registered {
    binaries: NumberMap<usize, FatBinary>,
    functions: NumberMap<usize, Named>,
    variables: NumberMap<usize, Named>,
}

/// It is the process's, not a core's: the start-up code of the program and of its libraries registers before there is a core,
/// and whatever core there will be uses it.
static REGISTERED: RwLock<Registered> = RwLock::new(Registered {
    binaries: NumberMap::with_hasher(BuildHasherDefault::new()),
    functions: NumberMap::with_hasher(BuildHasherDefault::new()),
    variables: NumberMap::with_hasher(BuildHasherDefault::new()),
});

/// Handles of fat binaries, for the same reason the process's: nvcc's code reads nothing through them.
static NEXT: AtomicUsize = AtomicUsize::new(0x0052_4750_4600_0000);

/// `__cudaRegisterFatBinary`: the result is what the other registrations pass.
///
/// # Safety
/// `wrapper` must be what nvcc's code passes.
pub(crate) unsafe fn register(wrapper: *const c_void) -> *mut *mut c_void {
    let handle = NEXT.fetch_add(16, Ordering::Relaxed);
    let binary = FatBinary { wrapper: wrapper as usize, managed: Vec::new() };
    REGISTERED.write().binaries.insert(handle, binary);
    handle as *mut *mut c_void
}

/// # Safety
/// `name` must be null or a C string.
unsafe fn text(name: *const c_char) -> Option<Arc<str>> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into())
}

/// `__cudaRegisterFunction`.
///
/// # Safety
/// `name` must be a C string.
pub(crate) unsafe fn register_function(handle: *mut *mut c_void, host: *const c_void, name: *const c_char) {
    // SAFETY: the caller's promise.
    if let Some(name) = unsafe { text(name) } {
        let named = Named { binary: handle as usize, name };
        REGISTERED.write().functions.insert(host as usize, named);
        generation::begin_new();
    }
}

/// `__cudaRegisterVar`, for `__device__` and `__constant__` variables.
///
/// # Safety
/// `name` must be a C string.
pub(crate) unsafe fn register_variable(
    handle: *mut *mut c_void,
    host: *const c_void,
    name: *const c_char,
    size: u64,
) {
    let _ = size;
    // SAFETY: the caller's promise.
    if let Some(name) = unsafe { text(name) } {
        let named = Named { binary: handle as usize, name };
        REGISTERED.write().variables.insert(host as usize, named);
    }
}

/// `__cudaRegisterManagedVar`: `host` is where the program keeps the variable's address.
///
/// # Safety
/// `name` must be a C string, `host` the program's pointer, valid until it unregisters.
pub(crate) unsafe fn register_managed(
    handle: *mut *mut c_void,
    host: *mut *mut c_void,
    name: *const c_char,
    size: u64,
) {
    // SAFETY: the caller's promise.
    if let Some(name) = unsafe { text(name) }
        && let Some(binary) = REGISTERED.write().binaries.get_mut(&(handle as usize))
    {
        binary.managed.push(ManagedVariable { name: name.to_string(), size, host: host as usize });
    }
}

/// Forgets a fat binary and everything that was registered with it. What was loaded of it is not touched.
pub(super) fn forget(binary: usize) {
    {
        let mut registered = REGISTERED.write();
        registered.binaries.remove(&binary);
        registered.functions.retain(|_, named| named.binary != binary);
        registered.variables.retain(|_, named| named.binary != binary);
    }
    generation::begin_new();
}

/// The image and the managed variables of a registered fat binary; [`Code::InvalidImage`] where it is not registered.
pub(super) fn fat_binary(binary: usize) -> Result<(Image, Vec<ManagedVariable>)> {
    let unknown = || Error::new(Code::InvalidImage, "The fat binary is not registered");
    let (wrapper, managed) = {
        let registered = REGISTERED.read();
        let found = registered.binaries.get(&binary).ok_or_else(unknown)?;
        (found.wrapper, found.managed.clone())
    };
    // SAFETY: nvcc's code registered this wrapper, which lives until it is unregistered.
    Ok((unsafe { Image::at(wrapper as *const u8) }?, managed))
}

/// The kernel that a host address was registered for.
pub(super) fn function_at(host: usize) -> Option<Named> {
    REGISTERED.read().functions.get(&host).cloned()
}

/// The variable that a host address was registered for.
pub(super) fn variable_at(host: usize) -> Option<Named> {
    REGISTERED.read().variables.get(&host).cloned()
}
