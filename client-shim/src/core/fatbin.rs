//! What nvcc's start-up code registers: fat binaries, and which host address stands for which kernel or variable.
//!
//! Registration only remembers; nothing of CUDA comes to life by it.

use std::ffi::{CStr, c_char, c_void};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;

use super::context::Context;
use super::error::{Code, Error, Result, log, say_once};
use super::image::Image;
use super::module::{Function, Kernel, Library};
use super::process::{Core, existing};
use super::registry::NumberMap;

/// A `__managed__` variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedVariable {
    /// Its (mangled) name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Where the program keeps its address.
    host: usize,
}

impl ManagedVariable {
    /// Tells the program where the variable lies.
    pub fn tell(&self, addr: u64) {
        // SAFETY: nvcc's code registered this place for the purpose, and it lives until it is unregistered.
        unsafe { (self.host as *mut u64).write(addr) };
    }
}

struct FatBinary {
    wrapper: usize,
    managed: Vec<ManagedVariable>,
}

#[derive(Clone)]
struct Named {
    binary: usize,
    name: Arc<str>,
}

struct Registered {
    binaries: NumberMap<usize, FatBinary>,
    functions: NumberMap<usize, Named>,
    variables: NumberMap<usize, Named>,
}

static REGISTERED: RwLock<Registered> = RwLock::new(Registered {
    binaries: NumberMap::with_hasher(BuildHasherDefault::new()),
    functions: NumberMap::with_hasher(BuildHasherDefault::new()),
    variables: NumberMap::with_hasher(BuildHasherDefault::new()),
});

/// Handles of fat binaries: nvcc's code reads nothing through them.
static NEXT: AtomicUsize = AtomicUsize::new(0x0052_4750_4600_0000);

/// Changes when host addresses may have come to stand for something else.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// The number of the present generation; see [`forget_functions`].
#[inline]
pub(super) fn generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

/// Forgets which host address stands for which function, and what launches were found possible, everywhere.
pub fn forget_functions() {
    GENERATION.fetch_add(1, Ordering::Release);
}

/// `__cudaRegisterFatBinary`: the result is what the other registrations pass.
///
/// # Safety
/// `wrapper` must be what nvcc's code passes.
pub unsafe fn register(wrapper: *const c_void) -> *mut *mut c_void {
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
pub unsafe fn register_function(handle: *mut *mut c_void, host: *const c_void, name: *const c_char) {
    // SAFETY: the caller's promise.
    if let Some(name) = unsafe { text(name) } {
        let named = Named { binary: handle as usize, name };
        REGISTERED.write().functions.insert(host as usize, named);
        forget_functions();
    }
}

/// `__cudaRegisterVar`, for `__device__` and `__constant__` variables.
///
/// # Safety
/// `name` must be a C string.
pub unsafe fn register_variable(
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
pub unsafe fn register_managed(
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

/// `__cudaUnregisterFatBinary`
pub fn unregister(handle: *mut *mut c_void) {
    let binary = handle as usize;
    {
        let mut registered = REGISTERED.write();
        registered.binaries.remove(&binary);
        registered.functions.retain(|_, named| named.binary != binary);
        registered.variables.retain(|_, named| named.binary != binary);
    }
    forget_functions();
    if let Some(core) = existing()
        && let Some(library) = core.fat_binaries.write().remove(&binary)
        && let Err(error) = core.library_unload(library.raw)
    {
        log(&format!("unloading a fat binary: {error}"));
    }
}

impl Core {
    /// The library of a registered fat binary.
    fn registered_library(&self, binary: usize) -> Result<Arc<Library>> {
        if let Some(library) = self.fat_binaries.read().get(&binary) {
            return Ok(library.clone());
        }
        let unknown = || Error::new(Code::InvalidImage, "The fat binary is not registered");
        let (wrapper, managed) = {
            let registered = REGISTERED.read();
            let found = registered.binaries.get(&binary).ok_or_else(unknown)?;
            (found.wrapper, found.managed.clone())
        };
        // SAFETY: nvcc's code registered this wrapper, which lives until it is unregistered.
        let image = unsafe { Image::at(wrapper as *const u8) }?;
        let mut binaries = self.fat_binaries.write();
        Ok(binaries.entry(binary).or_insert_with(|| self.new_library(image, managed)).clone())
    }

    /// `__cudaInitModule`: brings the managed variables of a registered fat binary to life.
    pub fn init_module(&self, handle: *mut *mut c_void) -> Result<()> {
        let library = self.registered_library(handle as usize)?;
        let context = self.runtime_context()?;
        self.library_module(&context, &library).map(drop)
    }

    /// The function that a host address stands for, loaded in `context`. Addresses nobody registered are
    /// [`Code::InvalidDeviceFunction`]. A `cudaKernel_t` or `cudaFunction_t` passed in its place is fine.
    pub fn function_for(&self, context: &Arc<Context>, host: *const c_void) -> Result<Arc<Function>> {
        self.look_up_function(context, host as usize)
    }

    fn look_up_function(&self, context: &Arc<Context>, host: usize) -> Result<Arc<Function>> {
        let named = REGISTERED.read().functions.get(&host).cloned();
        if let Some(named) = named {
            let library = self.registered_library(named.binary)?;
            let module = self.library_module(context, &library)?;
            return self.module_function(&module, &named.name).map_err(|error| {
                match (error.code, library.left_out.get()) {
                    (Code::NotFound, Some(why)) => {
                        say_once(&why.message);
                        why.clone()
                    }
                    (Code::NotFound, None) => Error::new(Code::InvalidDeviceFunction, error.message),
                    _ => error,
                }
            });
        }
        self.function(context, host).map_err(|error| match error.code {
            Code::InvalidHandle => {
                Error::new(Code::InvalidDeviceFunction, format!("{host:#x} stands for no kernel"))
            }
            _ => error,
        })
    }

    /// The kernel that a host address stands for (`cudaGetKernel`).
    pub fn kernel_for(&self, host: *const c_void) -> Result<Arc<Kernel>> {
        let named = REGISTERED.read().functions.get(&(host as usize)).cloned();
        match named {
            Some(named) => Ok(self.kernel_named(&self.registered_library(named.binary)?, &named.name)),
            None => self.kernel(host as usize).map_err(|_| {
                Error::new(Code::InvalidDeviceFunction, format!("{host:p} stands for no kernel"))
            }),
        }
    }

    /// Address and size of the variable that a host address stands for; [`Code::InvalidSymbol`] for others.
    pub fn symbol_for(&self, context: &Arc<Context>, host: *const c_void) -> Result<(u64, u64)> {
        let named = REGISTERED.read().variables.get(&(host as usize)).cloned();
        let invalid = |message: String| Error::new(Code::InvalidSymbol, message);
        if let Some(named) = named {
            let library = self.registered_library(named.binary)?;
            let module = self.library_module(context, &library)?;
            return self.module_global(&module, &named.name).map_err(|error| invalid(error.message));
        }
        // Host code sees a managed variable as what its address points to.
        self.managed_variable_at(host as u64)
            .ok_or_else(|| invalid(format!("{host:p} stands for no variable")))
    }
}
