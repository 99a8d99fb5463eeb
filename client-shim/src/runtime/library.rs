//! Code that programs load by themselves: `cudaLibrary_t` and `cudaKernel_t`.

use std::ffi::{OsStr, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rgpu_device::GlobalKind;

use super::entry::{api, enter};
use super::types::LibraryRef;
use crate::abi::{CStrArg, In, Out};
use crate::core::error::{invalid, not_implemented};
use crate::core::{Code, Context, Core, Error, Module, Result, current};
use crate::doors::jit::JitLog;

/// `cudaLibraryBinaryIsPreserved`.
const BINARY_IS_PRESERVED: c_int = 1;

/// Whether the program promises to keep the image; other library options are refused.
fn preserved(options: In<c_int>, values: In<*mut c_void>, count: c_uint) -> Result<bool> {
    let mut preserved = false;
    // SAFETY: the program says that both lists have so many, if any.
    let (options, values) = unsafe {
        let values = if values.is_null() { vec![] } else { values.list(count as usize)? };
        (options.list(count as usize)?, values)
    };
    for (i, option) in options.into_iter().enumerate() {
        match option {
            BINARY_IS_PRESERVED => preserved = values.get(i).is_none_or(|value| !value.is_null()),
            _ => return Err(not_implemented("a library with a table of host functions")),
        }
    }
    Ok(preserved)
}

/// A library as loaded for the thread's current device.
fn module(library: LibraryRef) -> Result<(&'static Core, Arc<Context>, Arc<Module>)> {
    let (core, context) = enter()?;
    let module = core.library_module(&context, &*core.library(library)?)?;
    Ok((core, context, module))
}

/// Finds a variable of one of these kinds.
fn variable(
    ptr: Out<usize>,
    bytes: Out<usize>,
    library: LibraryRef,
    text: &CStrArg,
    managed: bool,
) -> Result<()> {
    let (core, _, module) = module(library)?;
    let name = text.text()?;
    let globals = &core.module_info(&module)?.globals;
    let is_wanted = |kind: GlobalKind| !kind.is_reference() && (kind == GlobalKind::Managed) == managed;
    let found = globals.iter().find(|g| g.name == name && is_wanted(g.kind));
    let found =
        found.ok_or_else(|| Error::new(Code::NotFound, format!("the library has no variable {name}")))?;
    ptr.set_if_wanted(found.addr as usize);
    bytes.set_if_wanted(found.size as usize);
    Ok(())
}

api! {
    /// `cudaLibraryLoadData`
    fn load_data as "cudaLibraryLoadData" (
        library: Out<LibraryRef>, code: In<u8>, jit_options: In<c_uint>, jit_values: Out<*mut c_void>,
        jit_count: c_uint, options: In<c_int>, values: In<*mut c_void>, count: c_uint,
    ) {
        library.check()?;
        if code.is_null() {
            return Err(invalid("there is no code"));
        }
        let core = current()?;
        let preserved = preserved(options, values, count)?;
        // SAFETY: the program says that both lists have so many.
        let log = unsafe { JitLog::new(jit_count, jit_options, jit_values) }?;
        // SAFETY: the program passes an image, as the call demands.
        library.set(log.tell(unsafe { core.library_load(code.as_ptr(), preserved) })?.raw)
    }

    /// `cudaLibraryLoadFromFile`
    fn load_from_file as "cudaLibraryLoadFromFile" (
        library: Out<LibraryRef>, file: CStrArg, jit_options: In<c_uint>, jit_values: Out<*mut c_void>,
        jit_count: c_uint, options: In<c_int>, values: In<*mut c_void>, count: c_uint,
    ) {
        library.check()?;
        let path = file.c_str()?;
        let core = current()?;
        preserved(options, values, count)?;
        // SAFETY: the program says that both lists have so many.
        let log = unsafe { JitLog::new(jit_count, jit_options, jit_values) }?;
        let image = std::fs::read(OsStr::from_bytes(path.to_bytes()))
            .map_err(|e| Error::new(Code::FileNotFound, format!("{}: {e}", path.to_string_lossy())));
        library.set(log.tell(image.and_then(|image| core.library_load_bytes(image)))?.raw)
    }

    /// `cudaLibraryUnload`
    fn unload as "cudaLibraryUnload" (library: LibraryRef) {
        current()?.library_unload(library)
    }

    /// `cudaLibraryGetKernel`
    fn get_kernel as "cudaLibraryGetKernel" (kernel: Out<usize>, library: LibraryRef, text: CStrArg) {
        kernel.check()?;
        let core = current()?;
        kernel.set(core.library_kernel(&core.library(library)?, text.text()?)?.raw)
    }

    /// `cudaLibraryGetKernelCount`
    fn get_kernel_count as "cudaLibraryGetKernelCount" (count: Out<c_uint>, library: LibraryRef) {
        count.check()?;
        let (core, _, module) = module(library)?;
        count.set(core.module_info(&module)?.functions.len() as c_uint)
    }

    /// `cudaLibraryEnumerateKernels`
    fn enumerate_kernels as "cudaLibraryEnumerateKernels" (
        kernels: Out<usize>, count: c_uint, library: LibraryRef,
    ) {
        kernels.check()?;
        let (core, _, module) = module(library)?;
        let library = core.library(library)?;
        for (i, function) in core.module_info(&module)?.functions.iter().take(count as usize).enumerate() {
            // SAFETY: the program says that there is room for `count`.
            unsafe { kernels.at(i) }.set(core.library_kernel(&library, &function.name)?.raw)?;
        }
        Ok(())
    }

    /// `cudaLibraryGetGlobal`
    fn get_global as "cudaLibraryGetGlobal" (
        ptr: Out<usize>, bytes: Out<usize>, library: LibraryRef, text: CStrArg,
    ) {
        variable(ptr, bytes, library, &text, false)
    }

    /// `cudaLibraryGetManaged`
    fn get_managed as "cudaLibraryGetManaged" (
        ptr: Out<usize>, bytes: Out<usize>, library: LibraryRef, text: CStrArg,
    ) {
        variable(ptr, bytes, library, &text, true)
    }
}
