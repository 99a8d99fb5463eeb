//! Modules, libraries, functions and kernels.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use super::types::*;
use super::*;
use crate::abi::{CStrArg, In, Out};
use crate::core::{Function, Kernel, Library, Module};
use crate::doors::jit::JitLog;

fn load(core: &Core, module: Out<Opaque>, image: In<c_void>) -> Result<()> {
    if module.is_null() || image.is_null() {
        return Err(Error::new(Code::InvalidValue, "a module's image or result pointer is null"));
    }
    let context = core.driver_context()?;
    // SAFETY: the program passes an image that CUDA can load, as for cuModuleLoadData.
    let loaded = unsafe { core.module_load(&context, image.as_ptr().cast())? };
    module.set(loaded.raw as Opaque)
}

pub(crate) fn read_file(path: &CStrArg) -> Result<Vec<u8>> {
    let path = path.text()?;
    std::fs::read(path).map_err(|error| Error::new(Code::FileNotFound, format!("Can't read {path}: {error}")))
}

/// The library and its module in the current context.
fn library_module(core: &Core, library: Opaque) -> Result<(Arc<Library>, Arc<Module>)> {
    let library = core.library(library as usize)?;
    let module = core.library_module(&core.driver_context()?, &library)?;
    Ok((library, module))
}

fn kernel_at(core: &Core, library: &Arc<Library>, module: &Module, index: usize) -> Result<Arc<Kernel>> {
    core.library_kernel(library, &core.module_info(module)?.functions[index].name)
}

/// Where and how large a parameter is; past the last one is an invalid value.
fn param(info: &rgpu_device::FunctionInfo, index: usize, offset: Out<usize>, size: Out<usize>) -> Result<()> {
    let Some(param) = info.params.get(index) else {
        return Err(Error::new(Code::InvalidValue, format!("{} has no parameter {index}", info.name)));
    };
    offset.set(param.offset as usize)?;
    size.set_if_wanted(param.size as usize);
    Ok(())
}

/// Names handed out as C strings stay valid as long as the process: they are few and kept once.
fn kept_name(name: &str) -> *const c_char {
    use std::collections::HashMap;
    use std::ffi::CString;
    use std::sync::Mutex;
    static KEPT: Mutex<Option<HashMap<String, CString>>> = Mutex::new(None);
    let mut kept = KEPT.lock().unwrap_or_else(|e| e.into_inner());
    kept.get_or_insert_default()
        .entry(name.to_string())
        .or_insert_with(|| CString::new(name.replace('\0', "")).unwrap_or_default())
        .as_ptr()
}

/// Whether the image of a library carries the option that the program keeps it in place
/// (`CU_LIBRARY_BINARY_IS_PRESERVED`).
///
/// # Safety
/// Both lists have `count` entries, if any.
unsafe fn preserved(count: u32, options: In<u32>, values: In<*const c_void>) -> bool {
    !options.is_null()
        && (0..count as usize).any(|i| {
            // SAFETY: both lists have `count` entries, if any.
            let (option, value) = unsafe { (options.at(i), values.at(i)) };
            option.get().is_ok_and(|option| option == 1)
                && (values.is_null() || value.get().is_ok_and(|value| !value.is_null()))
        })
}

/// The function behind a `CUfunction`; a `CUkernel` in its place means the function in the thread's current context.
fn named_function(core: &Core, raw: Opaque) -> Result<Arc<Function>> {
    core.check_current()?;
    match core.loaded_function(raw as usize) {
        Some(function) => Ok(function),
        None => core.function(&core.driver_context()?, raw as usize),
    }
}

door! {
    fn cuModuleLoadData(module: Out<Opaque>, image: In<c_void>) |core| {
        load(core, module, image)
    }
    fn cuModuleLoadDataEx(
        module: Out<Opaque>, image: In<c_void>, count: u32, options: In<u32>, values: Out<*mut c_void>,
    ) |core| {
        // SAFETY: the program says that both lists have so many.
        unsafe { JitLog::new(count, options, values) }?.tell(load(core, module, image))
    }
    fn cuModuleLoadFatBinary(module: Out<Opaque>, image: In<c_void>) |core| {
        load(core, module, image)
    }
    fn cuModuleLoad(module: Out<Opaque>, path: CStrArg) |core| {
        if module.is_null() {
            return Err(Code::InvalidValue.into());
        }
        let context = core.driver_context()?;
        module.set(core.module_load_bytes(&context, &read_file(&path)?)?.raw as Opaque)
    }
    fn cuModuleUnload(module: Opaque) |core| {
        core.check_current()?;
        core.module_unload(module as usize)
    }
    fn cuModuleGetFunction(function: Out<Opaque>, module: Opaque, name: CStrArg) |core| {
        core.check_current()?;
        let module = core.module(module as usize)?;
        function.set(core.module_function(&module, name.text()?)?.raw as Opaque)
    }
    fn cuModuleGetFunctionCount(count: Out<u32>, module: Opaque) |core| {
        count.set(core.module_info(&*core.module(module as usize)?)?.functions.len() as u32)
    }
    fn cuModuleEnumerateFunctions(functions: Out<Opaque>, count: u32, module: Opaque) |core| {
        let module = core.module(module as usize)?;
        for (i, info) in core.module_info(&module)?.functions.iter().take(count as usize).enumerate() {
            // SAFETY: the program says that there is room for `count`.
            unsafe { functions.at(i) }.set(core.module_function(&module, &info.name)?.raw as Opaque)?;
        }
        Ok(())
    }
    fn cuModuleGetGlobal_v2(address: Out<DevicePtr>, bytes: Out<usize>, module: Opaque, name: CStrArg) |core| {
        core.check_current()?;
        let module = core.module(module as usize)?;
        let (at, size) = core.module_global(&module, name.text()?)?;
        address.set_if_wanted(at);
        bytes.set_if_wanted(size as usize);
        Ok(())
    }

    fn cuFuncGetAttribute(value: Out<i32>, attribute: u32, function: Opaque) |core| {
        let function = named_function(core, function)?;
        value.set(core.function_attribute(&function, attribute)?)
    }
    fn cuFuncSetAttribute(function: Opaque, attribute: u32, value: i32) |core| {
        let function = named_function(core, function)?;
        core.function_set_attribute(&function, attribute, value)
    }
    fn cuFuncSetCacheConfig(function: Opaque, config: u32) |core| {
        named_function(core, function)?;
        if config > 3 { Err(Code::InvalidValue.into()) } else { Ok(()) }
    }
    // What these two say is for `cuLaunch` and `cuLaunchGrid`, which are not there. PyCUDA says it before `cuLaunchKernel`, too, which
    // is told the same itself.
    fn cuFuncSetBlockShape(function: Opaque, x: i32, y: i32, z: i32) |core| {
        named_function(core, function)?;
        if [x, y, z].iter().any(|&threads| threads <= 0) { Err(Code::InvalidValue.into()) } else { Ok(()) }
    }
    fn cuFuncSetSharedSize(function: Opaque, _bytes: u32) |core| {
        named_function(core, function).map(|_| ())
    }
    fn cuFuncSetSharedMemConfig(function: Opaque, config: u32) |core| {
        named_function(core, function)?;
        if config > 2 { Err(Code::InvalidValue.into()) } else { Ok(()) }
    }
    fn cuFuncGetModule(module: Out<Opaque>, function: Opaque) |core| {
        let function = named_function(core, function)?;
        module.set(function.module.raw as Opaque)
    }
    fn cuFuncGetName(name: Out<*const c_char>, function: Opaque) |core| {
        let function = named_function(core, function)?;
        name.set(kept_name(&function.declared().name))
    }
    fn cuFuncGetParamInfo(function: Opaque, index: usize, offset: Out<usize>, size: Out<usize>) |core| {
        let function = named_function(core, function)?;
        param(function.declared(), index, offset, size)
    }
    fn cuFuncIsLoaded(state: Out<u32>, function: Opaque) |core| {
        named_function(core, function)?;
        state.set(1)
    }
    fn cuFuncLoad(function: Opaque) |core| {
        named_function(core, function).map(|_| ())
    }

    fn cuLibraryLoadData(
        library: Out<Opaque>, image: In<c_void>, jit_options: In<u32>, jit_values: Out<*mut c_void>,
        jit_count: u32, options: In<u32>, values: In<*const c_void>, count: u32,
    ) |core| {
        if library.is_null() || image.is_null() {
            return Err(Code::InvalidValue.into());
        }
        // SAFETY: the program says that both lists have so many.
        let log = unsafe { JitLog::new(jit_count, jit_options, jit_values) }?;
        // SAFETY: the program passes an image that CUDA can load, and keeps it if it says so.
        let loaded = unsafe { core.library_load(image.as_ptr().cast(), preserved(count, options, values)) };
        library.set(log.tell(loaded)?.raw as Opaque)
    }
    fn cuLibraryLoadFromFile(
        library: Out<Opaque>, path: CStrArg, jit_options: In<u32>, jit_values: Out<*mut c_void>,
        jit_count: u32, _options: In<u32>, _values: In<*const c_void>, _count: u32,
    ) |core| {
        if library.is_null() {
            return Err(Code::InvalidValue.into());
        }
        // SAFETY: the program says that both lists have so many.
        let log = unsafe { JitLog::new(jit_count, jit_options, jit_values) }?;
        let loaded = read_file(&path).and_then(|bytes| core.library_load_bytes(bytes));
        library.set(log.tell(loaded)?.raw as Opaque)
    }
    fn cuLibraryUnload(library: Opaque) |core| {
        core.library_unload(library as usize)
    }
    fn cuLibraryGetKernel(kernel: Out<Opaque>, library: Opaque, name: CStrArg) |core| {
        let library = core.library(library as usize)?;
        kernel.set(core.library_kernel(&library, name.text()?)?.raw as Opaque)
    }
    fn cuLibraryGetKernelCount(count: Out<u32>, library: Opaque) |core| {
        let (_, module) = library_module(core, library)?;
        count.set(core.module_info(&module)?.functions.len() as u32)
    }
    fn cuLibraryEnumerateKernels(kernels: Out<Opaque>, count: u32, library: Opaque) |core| {
        let (library, module) = library_module(core, library)?;
        for i in 0..core.module_info(&module)?.functions.len().min(count as usize) {
            // SAFETY: the program says that there is room for `count`.
            unsafe { kernels.at(i) }.set(kernel_at(core, &library, &module, i)?.raw as Opaque)?;
        }
        Ok(())
    }
    fn cuLibraryGetModule(module: Out<Opaque>, library: Opaque) |core| {
        module.set(library_module(core, library)?.1.raw as Opaque)
    }
    fn cuLibraryGetGlobal(address: Out<DevicePtr>, bytes: Out<usize>, library: Opaque, name: CStrArg) |core| {
        let (_, module) = library_module(core, library)?;
        let (at, size) = core.module_global(&module, name.text()?)?;
        address.set_if_wanted(at);
        bytes.set_if_wanted(size as usize);
        Ok(())
    }
    fn cuLibraryGetManaged(address: Out<DevicePtr>, bytes: Out<usize>, library: Opaque, name: CStrArg) |core| {
        let (_, module) = library_module(core, library)?;
        let (at, size) = core.module_global(&module, name.text()?)?;
        address.set_if_wanted(at);
        bytes.set_if_wanted(size as usize);
        Ok(())
    }
    fn cuKernelGetFunction(function: Out<Opaque>, kernel: Opaque) |core| {
        let kernel = core.kernel(kernel as usize)?;
        function.set(core.kernel_function(&core.driver_context()?, &kernel)?.raw as Opaque)
    }
    fn cuKernelGetLibrary(library: Out<Opaque>, kernel: Opaque) |core| {
        library.set(core.kernel(kernel as usize)?.library.raw as Opaque)
    }
    fn cuKernelGetName(name: Out<*const c_char>, kernel: Opaque) |core| {
        name.set(kept_name(&core.kernel(kernel as usize)?.name))
    }
    fn cuKernelGetAttribute(value: Out<i32>, attribute: u32, kernel: Opaque, device: Device) |core| {
        let kernel = core.kernel(kernel as usize)?;
        let context = core.primary_retain(ordinal(core, device)?)?;
        let result = core.kernel_function(&context, &kernel).and_then(|f| core.function_attribute(&f, attribute));
        let _ = core.primary_release(context.ordinal);
        value.set(result?)
    }
    fn cuKernelSetAttribute(attribute: u32, value: i32, kernel: Opaque, device: Device) |core| {
        let kernel = core.kernel(kernel as usize)?;
        let context = core.primary_retain(ordinal(core, device)?)?;
        let function = core.kernel_function(&context, &kernel);
        let result = function.and_then(|f| core.function_set_attribute(&f, attribute, value));
        let _ = core.primary_release(context.ordinal);
        result
    }
    fn cuKernelSetCacheConfig(kernel: Opaque, config: u32, device: Device) |core| {
        core.kernel(kernel as usize)?;
        ordinal(core, device)?;
        if config > 3 { Err(Code::InvalidValue.into()) } else { Ok(()) }
    }
    fn cuKernelGetParamInfo(kernel: Opaque, index: usize, offset: Out<usize>, size: Out<usize>) |core| {
        let kernel = core.kernel(kernel as usize)?;
        let function = core.kernel_function(&core.driver_context()?, &kernel)?;
        param(function.declared(), index, offset, size)
    }
}
