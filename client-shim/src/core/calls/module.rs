//! Modules, libraries, kernels, and what nvcc's code has registered.

use std::ffi::c_void;
use std::sync::Arc;

use rgpu_device::{FunctionInfo, ModuleInfo};

use super::forward;
use crate::core::context::Context;
use crate::core::error::Result;
use crate::core::image;
use crate::core::library::{Kernel, Library};
use crate::core::module::{Function, Module};
use crate::core::process::Core;
use crate::core::reference::Reference;
use crate::core::registry::Raw;

forward! { modules:
    /// As [`Core::module_load`], from bytes that were read from a file or linked.
    fn module_load_bytes(&self, context: &Arc<Context>, image: &[u8]) -> Result<Arc<Module>>;
    /// The most dynamic shared memory that a launch of a kernel may ask for.
    fn max_dynamic_shared(&self, function: &Function) -> Result<i32>;
    /// The module behind a handle.
    fn module(&self, raw: Raw) -> Result<Arc<Module>>;
    /// `cuModuleUnload`.
    fn module_unload(&self, raw: Raw) -> Result<()>;
    /// `cuModuleGetFunction`; the same function has the same handle each time.
    fn module_function(&self, module: &Arc<Module>, name: &str) -> Result<Arc<Function>>;
    /// `cuModuleGetGlobal`: address and size.
    fn module_global(&self, module: &Module, name: &str) -> Result<(u64, u64)>;
    /// `cuModuleGetTexRef`, or `cuModuleGetSurfRef`; the same reference has the same handle each time.
    fn module_reference(&self, module: &Module, name: &str, surface: bool) -> Result<Arc<Reference>>;
    /// `cuTexRefCreate`: a reference of no module.
    fn create_reference(&self, context: &Context) -> Result<Arc<Reference>>;
    /// `cuTexRefDestroy`: those of modules go with these.
    fn destroy_reference(&self, raw: Raw) -> Result<()>;
    /// The texture or surface reference behind a handle.
    fn reference(&self, raw: Raw, surface: bool) -> Result<Arc<Reference>>;
    /// `cuFuncGetAttribute`, by its `CUfunction_attribute` number; unknown numbers are an invalid value.
    fn function_attribute(&self, function: &Function, attribute: u32) -> Result<i32>;
    /// `cuFuncSetAttribute`.
    fn function_set_attribute(&self, function: &Function, attribute: u32, value: i32) -> Result<()>;
}

forward! { libraries:
    /// As [`Core::library_load`], from bytes.
    fn library_load_bytes(&self, image: Vec<u8>) -> Result<Arc<Library>>;
    /// The library behind a handle.
    fn library(&self, raw: Raw) -> Result<Arc<Library>>;
    /// `cuLibraryUnload`.
    fn library_unload(&self, raw: Raw) -> Result<()>;
    /// `cuLibraryGetModule`: the library as loaded in a context.
    fn library_module(&self, context: &Arc<Context>, library: &Library) -> Result<Arc<Module>>;
    /// The kernel behind a handle.
    fn kernel(&self, raw: Raw) -> Result<Arc<Kernel>>;
    /// `cuKernelGetFunction`.
    fn kernel_function(&self, context: &Arc<Context>, kernel: &Kernel) -> Result<Arc<Function>>;
    /// The function behind a handle. A kernel's handle gives its function in `context`, as CUDA allows.
    fn function(&self, context: &Arc<Context>, raw: Raw) -> Result<Arc<Function>>;
    /// The function that a handle stands for by itself, in whatever context it was loaded.
    fn loaded_function(&self, raw: Raw) -> Option<Arc<Function>>;
    /// The function that a host address stands for, loaded in `context`. Addresses nobody registered are
    /// [`InvalidDeviceFunction`](crate::core::Code::InvalidDeviceFunction). A `cudaKernel_t` or `cudaFunction_t` passed in
    /// its place is fine.
    fn function_for(&self, context: &Arc<Context>, host: *const c_void) -> Result<Arc<Function>>;
    /// The kernel that a host address stands for (`cudaGetKernel`).
    fn kernel_for(&self, host: *const c_void) -> Result<Arc<Kernel>>;
    /// Address and size of the variable that a host address stands for;
    /// [`InvalidSymbol`](crate::core::Code::InvalidSymbol) for others.
    fn symbol_for(&self, context: &Arc<Context>, host: *const c_void) -> Result<(u64, u64)>;
}

impl Core {
    /// What a program gives as PTX, up to its terminating NUL; [`InvalidPtx`](crate::core::Code::InvalidPtx) for what
    /// is none.
    pub(crate) fn check_ptx<'t>(&self, bytes: &'t [u8]) -> Result<&'t str> {
        image::check_ptx(bytes, self.devices.info(0)?)
    }

    /// `cuModuleLoadData`: a fat binary (wrapper or container), a cubin, or PTX text ending in NUL.
    ///
    /// # Safety
    /// `image` must point to one of these.
    pub(crate) unsafe fn module_load(&self, context: &Arc<Context>, image: *const u8) -> Result<Arc<Module>> {
        // SAFETY: the caller's promise.
        unsafe { self.modules.module_load(context, image) }
    }

    /// What is in a module; asks the device unless it has told already.
    pub(crate) fn module_info<'m>(&self, module: &'m Module) -> Result<&'m ModuleInfo> {
        self.modules.module_info(module)
    }

    /// Everything about a kernel; asks the device unless it has told already.
    pub(crate) fn function_info<'f>(&self, function: &'f Function) -> Result<&'f FunctionInfo> {
        self.modules.function_info(function)
    }

    /// `cuLibraryLoadData`. The image is copied unless `preserved`, when the program promises to keep it.
    ///
    /// # Safety
    /// As for [`Core::module_load`].
    pub(crate) unsafe fn library_load(&self, image: *const u8, preserved: bool) -> Result<Arc<Library>> {
        // SAFETY: the caller's promise.
        unsafe { self.libraries.library_load(image, preserved) }
    }

    /// `cuLibraryGetKernel`; [`NotFound`](crate::core::Code::NotFound) where there is none of this name.
    pub(crate) fn library_kernel(&self, library: &Arc<Library>, name: &str) -> Result<Arc<Kernel>> {
        self.libraries.library_kernel(library, name, || self.contexts.current_or_primary())
    }

    /// `__cudaInitModule`: brings the managed variables of a registered fat binary to life.
    pub(crate) fn init_module(&self, handle: *mut *mut c_void) -> Result<()> {
        let library = self.libraries.registered_library(handle as usize)?;
        let context = self.contexts.runtime_context()?;
        self.libraries.library_module(&context, &library).map(drop)
    }
}
