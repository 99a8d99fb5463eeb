//! Modules (of one context), libraries (of all), and the functions in them.

use std::sync::Arc;
use std::sync::atomic::AtomicI32;

use super::context::Context;
use super::error::{Result, not_implemented};
use super::process::Core;
use super::registry::Raw;
use rgpu_device::{FunctionInfo, Handle, ModuleInfo, Ordinal};

/// A module, loaded on a device.
pub struct Module {
    /// The program's handle.
    pub raw: Raw,
    /// The device's handle.
    pub handle: Handle,
    /// The device.
    pub ordinal: Ordinal,
    /// Handle of the context that it belongs to.
    pub context: Raw,
    /// What is in it.
    pub info: ModuleInfo,
}

/// A kernel on one device (`CUfunction`, `cudaFunction_t`).
pub struct Function {
    /// The program's handle.
    pub raw: Raw,
    /// The module it is in.
    pub module: Arc<Module>,
    /// Its place in the module.
    pub index: u32,
    /// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
    pub max_dynamic_shared: AtomicI32,
    /// `CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`.
    pub carveout: AtomicI32,
}

impl Function {
    /// What is known about the kernel.
    pub fn info(&self) -> &FunctionInfo {
        &self.module.info.functions[self.index as usize]
    }
}

/// Code that is loaded on each device when first used there (`CUlibrary`; a registered fat binary is one).
pub struct Library {
    /// The program's handle.
    pub raw: Raw,
}

/// A kernel of a library (`CUkernel`, `cudaKernel_t`), on whatever device.
pub struct Kernel {
    /// The program's handle.
    pub raw: Raw,
    /// Its library.
    pub library: Arc<Library>,
    /// Its (mangled) name.
    pub name: String,
}

impl Core {
    /// `cuModuleLoadData`: a fat binary (wrapper or container), a cubin, or PTX text ending in NUL.
    ///
    /// # Safety
    /// `image` must point to one of these.
    pub unsafe fn module_load(&self, context: &Arc<Context>, image: *const u8) -> Result<Arc<Module>> {
        let _ = (context, image);
        Err(not_implemented("module_load"))
    }

    /// As [`Core::module_load`], from bytes that were read from a file or linked.
    pub fn module_load_bytes(&self, context: &Arc<Context>, image: &[u8]) -> Result<Arc<Module>> {
        let _ = (context, image);
        Err(not_implemented("module_load_bytes"))
    }

    /// The module behind a handle.
    pub fn module(&self, raw: Raw) -> Result<Arc<Module>> {
        let _ = raw;
        Err(not_implemented("module"))
    }

    /// `cuModuleUnload`.
    pub fn module_unload(&self, raw: Raw) -> Result<()> {
        let _ = raw;
        Err(not_implemented("module_unload"))
    }

    /// `cuModuleGetFunction`; the same function has the same handle each time.
    pub fn module_function(&self, module: &Arc<Module>, name: &str) -> Result<Arc<Function>> {
        let _ = (module, name);
        Err(not_implemented("module_function"))
    }

    /// `cuModuleGetGlobal`: address and size.
    pub fn module_global(&self, module: &Module, name: &str) -> Result<(u64, u64)> {
        let _ = (module, name);
        Err(not_implemented("module_global"))
    }

    /// The function behind a handle. A kernel's handle gives its function in `context`, as CUDA allows.
    pub fn function(&self, context: &Arc<Context>, raw: Raw) -> Result<Arc<Function>> {
        let _ = (context, raw);
        Err(not_implemented("function"))
    }

    /// `cuFuncGetAttribute`, by its `CUfunction_attribute` number; unknown numbers are an invalid value.
    pub fn function_attribute(&self, function: &Function, attribute: u32) -> Result<i32> {
        let _ = (function, attribute);
        Err(not_implemented("function_attribute"))
    }

    /// `cuFuncSetAttribute`.
    pub fn function_set_attribute(&self, function: &Function, attribute: u32, value: i32) -> Result<()> {
        let _ = (function, attribute, value);
        Err(not_implemented("function_set_attribute"))
    }

    /// `cuLibraryLoadData`. The image is copied unless `preserved`, when the program promises to keep it.
    ///
    /// # Safety
    /// As for [`Core::module_load`].
    pub unsafe fn library_load(&self, image: *const u8, preserved: bool) -> Result<Arc<Library>> {
        let _ = (image, preserved);
        Err(not_implemented("library_load"))
    }

    /// As [`Core::library_load`], from bytes.
    pub fn library_load_bytes(&self, image: Vec<u8>) -> Result<Arc<Library>> {
        let _ = image;
        Err(not_implemented("library_load_bytes"))
    }

    /// The library behind a handle.
    pub fn library(&self, raw: Raw) -> Result<Arc<Library>> {
        let _ = raw;
        Err(not_implemented("library"))
    }

    /// `cuLibraryUnload`.
    pub fn library_unload(&self, raw: Raw) -> Result<()> {
        let _ = raw;
        Err(not_implemented("library_unload"))
    }

    /// `cuLibraryGetModule`: the library as loaded in a context.
    pub fn library_module(&self, context: &Arc<Context>, library: &Library) -> Result<Arc<Module>> {
        let _ = (context, library);
        Err(not_implemented("library_module"))
    }

    /// `cuLibraryGetKernel`; [`super::Code::NotFound`] where there is none of this name.
    pub fn library_kernel(&self, library: &Arc<Library>, name: &str) -> Result<Arc<Kernel>> {
        let _ = (library, name);
        Err(not_implemented("library_kernel"))
    }

    /// The kernel behind a handle.
    pub fn kernel(&self, raw: Raw) -> Result<Arc<Kernel>> {
        let _ = raw;
        Err(not_implemented("kernel"))
    }

    /// `cuKernelGetFunction`.
    pub fn kernel_function(&self, context: &Arc<Context>, kernel: &Kernel) -> Result<Arc<Function>> {
        let _ = (context, kernel);
        Err(not_implemented("kernel_function"))
    }
}
