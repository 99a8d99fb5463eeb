//! Libraries: code for all devices, loaded in each context when first used there; registered fat binaries among them.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

use super::context::Context;
use super::devices::Devices;
use super::error::{Code, Error, Result, say_of_code};
use super::generation;
use super::image::Image;
use super::memory::Memory;
use super::module::{Function, Module, Modules};
use super::registration::{self, ManagedVariable};
use super::registry::{NumberMap, Raw, Registry};

/// Code that is loaded on each device when first used there (`CUlibrary`; a registered fat binary is one).
pub(crate) struct Library {
    /// The program's handle.
    pub raw: Raw,
    image: Image,
    /// Why a part of it is not loaded.
    left_out: OnceLock<Error>,
    /// As loaded, by context; failures are remembered.
    loaded: Mutex<NumberMap<Raw, Result<Arc<Module>>>>,
    kernels: Mutex<HashMap<String, Arc<Kernel>>>,
    /// Managed variables that nvcc's code registered.
    managed: Vec<ManagedVariable>,
    /// Where they were placed.
    placed: Mutex<Vec<(String, u64)>>,
}

/// A kernel of a library (`CUkernel`, `cudaKernel_t`), on whatever device.
pub(crate) struct Kernel {
    /// The program's handle.
    pub raw: Raw,
    /// The library that it is a kernel of.
    pub library: Arc<Library>,
    /// Its (mangled) name.
    pub name: String,
}

/// The living libraries and their kernels.
pub(super) struct Libraries {
    devices: Arc<Devices>,
    memory: Arc<Memory>,
    modules: Arc<Modules>,
    libraries: Registry<Library>,
    kernels: Registry<Kernel>,
    /// Registered fat binaries as libraries, by their handle.
    fat_binaries: RwLock<NumberMap<usize, Arc<Library>>>,
}

impl Libraries {
    /// There are none yet.
    pub(super) fn new(devices: Arc<Devices>, memory: Arc<Memory>, modules: Arc<Modules>) -> Self {
        Self {
            devices,
            memory,
            modules,
            libraries: Registry::new("library"),
            kernels: Registry::new("kernel"),
            fat_binaries: RwLock::new(NumberMap::default()),
        }
    }

    /// `cuLibraryLoadData`. The image is copied unless `preserved`, when the program promises to keep it.
    ///
    /// # Safety
    /// As for [`Modules::module_load`].
    pub(super) unsafe fn library_load(&self, image: *const u8, preserved: bool) -> Result<Arc<Library>> {
        // SAFETY: the caller's promise.
        let image = unsafe { Image::at(image) }?;
        image.check(self.devices.info(0)?)?;
        Ok(self.new_library(if preserved { image } else { image.into_copy() }, Vec::new()))
    }

    /// As [`Libraries::library_load`], from bytes.
    pub(super) fn library_load_bytes(&self, image: Vec<u8>) -> Result<Arc<Library>> {
        let image = Image::of(image);
        image.check(self.devices.info(0)?)?;
        Ok(self.new_library(image, Vec::new()))
    }

    /// A library over an image.
    pub(super) fn new_library(&self, image: Image, managed: Vec<ManagedVariable>) -> Arc<Library> {
        self.libraries.insert(|raw| Library {
            raw,
            image,
            left_out: OnceLock::new(),
            loaded: Mutex::default(),
            kernels: Mutex::default(),
            managed,
            placed: Mutex::default(),
        })
    }

    /// The library behind a handle.
    pub(super) fn library(&self, raw: Raw) -> Result<Arc<Library>> {
        self.libraries.get(raw)
    }

    /// `cuLibraryUnload`.
    pub(super) fn library_unload(&self, raw: Raw) -> Result<()> {
        let library = self.libraries.remove(raw)?;
        for (_, kernel) in library.kernels.lock().drain() {
            let _ = self.kernels.remove(kernel.raw);
        }
        let modules: Vec<_> = library.loaded.lock().drain().filter_map(|(_, module)| module.ok()).collect();
        let mut result = Ok(());
        for module in modules {
            if self.modules.is_loaded(&module) {
                result = result.and(self.modules.module_unload(module.raw));
            }
        }
        result
    }

    /// `cuLibraryGetModule`: the library as loaded in a context.
    pub(super) fn library_module(&self, context: &Context, library: &Library) -> Result<Arc<Module>> {
        // Held while loading: another thread that wants this library has to wait for it anyway.
        let mut loaded = library.loaded.lock();
        if let Some(known) = loaded.get(&context.raw) {
            return known.clone();
        }
        let module = self.load_library(context, library);
        if !module.as_ref().is_err_and(|error| error.code.is_sticky()) {
            loaded.insert(context.raw, module.clone());
        }
        module
    }

    fn load_library(&self, context: &Context, library: &Library) -> Result<Arc<Module>> {
        let mut placed = library.placed.lock();
        // A reset of their device takes the variables with it.
        if placed.iter().any(|(_, addr)| self.memory.managed_variable_at(*addr).is_none()) {
            placed.clear();
        }
        let known = !placed.is_empty();
        if !known {
            for variable in &library.managed {
                let addr = self.memory.managed_variable_alloc(context, variable.size)?;
                placed.push((variable.name.clone(), addr));
            }
        }
        // Loading writes the initial values, which on a second device must not undo what was written since.
        let mut kept: Vec<Vec<u8>> = Vec::new();
        if known {
            self.devices.wait_until_idle()?;
            for (variable, (_, addr)) in library.managed.iter().zip(placed.iter()) {
                let size = variable.size as usize;
                // SAFETY: the variable was placed in host-visible memory of this size.
                kept.push(unsafe { std::slice::from_raw_parts(*addr as *const u8, size) }.to_vec());
            }
        }
        let image = library.image.loadable(self.devices.info(context.ordinal)?);
        let (image, left_out) = image.inspect_err(say_of_code)?;
        if let Some(error) = left_out {
            let _ = library.left_out.set(error);
        }
        let module = self.modules.load(context, &image, &placed, true)?;
        if !placed.is_empty() {
            // Their initial values have come with the answer.
            self.devices.after_wait();
        }
        for ((_, addr), bytes) in placed.iter().zip(&kept) {
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), *addr as *mut u8, bytes.len()) };
        }
        self.devices.shared().host_wrote();
        for (variable, (_, addr)) in library.managed.iter().zip(placed.iter()) {
            variable.tell(*addr);
        }
        Ok(module)
    }

    /// `cuLibraryGetKernel`; [`Code::NotFound`] where there is none of this name. Loads the library in `context` unless the
    /// kernel is known already.
    pub(super) fn library_kernel(
        &self,
        library: &Arc<Library>,
        name: &str,
        context: impl FnOnce() -> Result<Arc<Context>>,
    ) -> Result<Arc<Kernel>> {
        if let Some(kernel) = library.kernels.lock().get(name) {
            return Ok(kernel.clone());
        }
        if !self.library_module(&*context()?, library)?.has_function(name) {
            return Err(Error::new(Code::NotFound, format!("The library has no kernel {name}")));
        }
        Ok(self.kernel_named(library, name))
    }

    /// A kernel that is known to exist, or whose existence is checked when it is first used.
    pub(super) fn kernel_named(&self, library: &Arc<Library>, name: &str) -> Arc<Kernel> {
        let mut kernels = library.kernels.lock();
        if let Some(kernel) = kernels.get(name) {
            return kernel.clone();
        }
        let kernel =
            self.kernels.insert(|raw| Kernel { raw, library: library.clone(), name: name.to_string() });
        kernels.insert(name.to_string(), kernel.clone());
        kernel
    }

    /// The kernel behind a handle.
    pub(super) fn kernel(&self, raw: Raw) -> Result<Arc<Kernel>> {
        self.kernels.get(raw)
    }

    /// `cuKernelGetFunction`.
    pub(super) fn kernel_function(&self, context: &Context, kernel: &Kernel) -> Result<Arc<Function>> {
        let module = self.library_module(context, &kernel.library)?;
        self.modules.module_function(&module, &kernel.name)
    }

    /// Forgets the libraries' modules for which `which` holds.
    pub(super) fn forget_loaded(&self, which: impl Fn(&Module) -> bool) {
        let registered: Vec<Arc<Library>> = self.fat_binaries.read().values().cloned().collect();
        for library in self.libraries.filter(|_| true).iter().chain(&registered) {
            library.loaded.lock().retain(|_, module| module.as_ref().is_ok_and(|module| !which(module)));
        }
        generation::begin_new();
    }

    /// The function behind a handle. A kernel's handle gives its function in `context`, as CUDA allows.
    pub(super) fn function(&self, context: &Context, raw: Raw) -> Result<Arc<Function>> {
        match self.modules.registered_function(raw) {
            Ok(function) => Ok(function),
            Err(error) => match self.kernels.get(raw) {
                Ok(kernel) => self.kernel_function(context, &kernel),
                Err(_) => Err(error),
            },
        }
    }

    /// The function that a handle stands for by itself, in whatever context it was loaded.
    pub(super) fn loaded_function(&self, raw: Raw) -> Option<Arc<Function>> {
        self.modules.registered_function(raw).ok()
    }

    /// The library of a registered fat binary.
    pub(super) fn registered_library(&self, binary: usize) -> Result<Arc<Library>> {
        if let Some(library) = self.fat_binaries.read().get(&binary) {
            return Ok(library.clone());
        }
        let (image, managed) = registration::fat_binary(binary)?;
        let mut binaries = self.fat_binaries.write();
        Ok(binaries.entry(binary).or_insert_with(|| self.new_library(image, managed)).clone())
    }

    /// Unloads the library of a fat binary that is no longer registered, if it was ever used.
    pub(super) fn unload_registered(&self, binary: usize) -> Result<()> {
        let library = self.fat_binaries.write().remove(&binary);
        library.map_or(Ok(()), |library| self.library_unload(library.raw))
    }

    /// The function that a host address stands for, loaded in `context`. Addresses nobody registered are
    /// [`Code::InvalidDeviceFunction`]. A `cudaKernel_t` or `cudaFunction_t` passed in its place is fine.
    pub(super) fn function_for(&self, context: &Context, host: *const c_void) -> Result<Arc<Function>> {
        let host = host as usize;
        let named = registration::function_at(host);
        if let Some(named) = named {
            let library = self.registered_library(named.binary)?;
            let module = self.library_module(context, &library)?;
            return self.modules.module_function(&module, &named.name).map_err(|error| {
                match (error.code, library.left_out.get()) {
                    (Code::NotFound, Some(why)) => {
                        say_of_code(why);
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
    pub(super) fn kernel_for(&self, host: *const c_void) -> Result<Arc<Kernel>> {
        let named = registration::function_at(host as usize);
        match named {
            Some(named) => Ok(self.kernel_named(&self.registered_library(named.binary)?, &named.name)),
            None => self.kernel(host as usize).map_err(|_| {
                Error::new(Code::InvalidDeviceFunction, format!("{host:p} stands for no kernel"))
            }),
        }
    }

    /// Address and size of the variable that a host address stands for; [`Code::InvalidSymbol`] for others.
    pub(super) fn symbol_for(&self, context: &Context, host: *const c_void) -> Result<(u64, u64)> {
        let named = registration::variable_at(host as usize);
        let invalid = |message: String| Error::new(Code::InvalidSymbol, message);
        if let Some(named) = named {
            let library = self.registered_library(named.binary)?;
            let module = self.library_module(context, &library)?;
            return self.modules.module_global(&module, &named.name).map_err(|error| invalid(error.message));
        }
        // Host code sees a managed variable as what its address points to.
        self.memory
            .managed_variable_at(host as u64)
            .ok_or_else(|| invalid(format!("{host:p} stands for no variable")))
    }
}
