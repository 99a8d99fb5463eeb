//! Modules, libraries, functions and kernels.

use std::sync::Arc;

use super::types::*;
use super::*;
use crate::core::{Kernel, Library, Module};

/// `CU_JIT_ERROR_LOG_BUFFER` and its size, `CU_JIT_INFO_LOG_BUFFER` and its size.
const JIT_LOGS: [(u32, u32); 2] = [(3, 4), (5, 6)];

/// The just-in-time compiler's options that say where its words go.
pub(crate) struct JitLog {
    error: Option<(*mut c_char, usize, *mut *mut c_void)>,
    info: Option<*mut *mut c_void>,
}

impl JitLog {
    /// Reads the options; unknown ones tune a compiler that isn't there.
    pub(crate) fn new(count: u32, options: *const u32, values: *mut *mut c_void) -> Self {
        let mut log = Self { error: None, info: None };
        if options.is_null() || values.is_null() {
            return log;
        }
        let find = |number: u32| {
            (0..count as usize).find_map(|i| {
                // SAFETY: the caller says that both lists have `count` entries.
                unsafe { (options.add(i).read_unaligned() == number).then(|| values.add(i)) }
            })
        };
        let [info, error] = JIT_LOGS;
        if let (Some(buffer), Some(size)) = (find(error.0), find(error.1)) {
            // SAFETY: `find` returns places in `values`.
            let (buffer, bytes) = unsafe { (buffer.read_unaligned().cast(), size.read_unaligned() as usize) };
            log.error = Some((buffer, bytes, size));
        }
        log.info = find(info.1);
        log
    }

    /// Tells the program how it went, and passes the result on.
    pub(crate) fn tell<T>(&self, result: Result<T>) -> Result<T> {
        if let Some(size) = self.info {
            set_if_wanted(size, std::ptr::null_mut());
        }
        if let Some((buffer, bytes, size)) = self.error {
            let message = result.as_ref().err().map_or("", |error| error.message.as_str());
            if !buffer.is_null() && bytes > 0 {
                let _ = set_text(buffer, bytes.min(i32::MAX as usize) as i32, message);
            }
            set_if_wanted(size, message.len().min(bytes) as *mut c_void);
        }
        result
    }
}

fn load(core: &Core, module: *mut Opaque, image: *const c_void) -> Result<()> {
    if module.is_null() || image.is_null() {
        return Err(Error::new(Code::InvalidValue, "a module's image or result pointer is null"));
    }
    let context = core.driver_context()?;
    // SAFETY: the program passes an image that CUDA can load, as for cuModuleLoadData.
    let loaded = unsafe { core.module_load(&context, image.cast())? };
    set(module, loaded.raw as Opaque)
}

pub(crate) fn read_file(path: *const c_char) -> Result<Vec<u8>> {
    let path = text(path)?;
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
fn param(info: &rgpu_device::FunctionInfo, index: usize, offset: *mut usize, size: *mut usize) -> Result<()> {
    let Some(param) = info.params.get(index) else {
        return Err(Error::new(Code::InvalidValue, format!("{} has no parameter {index}", info.name)));
    };
    set(offset, param.offset as usize)?;
    set_if_wanted(size, param.size as usize);
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
fn preserved(count: u32, options: *const u32, values: *const *const c_void) -> bool {
    !options.is_null()
        && (0..count as usize).any(|i| {
            // SAFETY: the caller says that both lists have `count` entries.
            unsafe {
                options.add(i).read_unaligned() == 1
                    && (values.is_null() || !values.add(i).read_unaligned().is_null())
            }
        })
}

door! {
    fn cuModuleLoadData(module: *mut Opaque, image: *const c_void) |core| {
        load(core, module, image)
    }
    fn cuModuleLoadDataEx(
        module: *mut Opaque, image: *const c_void, count: u32, options: *const u32, values: *mut *mut c_void,
    ) |core| {
        JitLog::new(count, options, values).tell(load(core, module, image))
    }
    fn cuModuleLoadFatBinary(module: *mut Opaque, image: *const c_void) |core| {
        load(core, module, image)
    }
    fn cuModuleLoad(module: *mut Opaque, path: *const c_char) |core| {
        if module.is_null() {
            return Err(Code::InvalidValue.into());
        }
        let context = core.driver_context()?;
        set(module, core.module_load_bytes(&context, &read_file(path)?)?.raw as Opaque)
    }
    fn cuModuleUnload(module: Opaque) |core| {
        core.driver_context()?;
        core.module_unload(module as usize)
    }
    fn cuModuleGetFunction(function: *mut Opaque, module: Opaque, name: *const c_char) |core| {
        core.driver_context()?;
        let module = core.module(module as usize)?;
        set(function, core.module_function(&module, text(name)?)?.raw as Opaque)
    }
    fn cuModuleGetFunctionCount(count: *mut u32, module: Opaque) |core| {
        set(count, core.module_info(&*core.module(module as usize)?)?.functions.len() as u32)
    }
    fn cuModuleEnumerateFunctions(functions: *mut Opaque, count: u32, module: Opaque) |core| {
        let module = core.module(module as usize)?;
        for (i, info) in core.module_info(&module)?.functions.iter().take(count as usize).enumerate() {
            set(functions.wrapping_add(i), core.module_function(&module, &info.name)?.raw as Opaque)?;
        }
        Ok(())
    }
    fn cuModuleGetGlobal_v2(address: *mut DevicePtr, bytes: *mut usize, module: Opaque, name: *const c_char) |core| {
        core.driver_context()?;
        let module = core.module(module as usize)?;
        let (at, size) = core.module_global(&module, text(name)?)?;
        set_if_wanted(address, at);
        set_if_wanted(bytes, size as usize);
        Ok(())
    }

    fn cuFuncGetAttribute(value: *mut i32, attribute: u32, function: Opaque) |core| {
        let function = core.function(&core.driver_context()?, function as usize)?;
        set(value, core.function_attribute(&function, attribute)?)
    }
    fn cuFuncSetAttribute(function: Opaque, attribute: u32, value: i32) |core| {
        let function = core.function(&core.driver_context()?, function as usize)?;
        core.function_set_attribute(&function, attribute, value)
    }
    fn cuFuncSetCacheConfig(function: Opaque, config: u32) |core| {
        core.function(&core.driver_context()?, function as usize)?;
        if config > 3 { Err(Code::InvalidValue.into()) } else { Ok(()) }
    }
    fn cuFuncSetSharedMemConfig(function: Opaque, config: u32) |core| {
        core.function(&core.driver_context()?, function as usize)?;
        if config > 2 { Err(Code::InvalidValue.into()) } else { Ok(()) }
    }
    fn cuFuncGetModule(module: *mut Opaque, function: Opaque) |core| {
        let function = core.function(&core.driver_context()?, function as usize)?;
        set(module, function.module.raw as Opaque)
    }
    fn cuFuncGetName(name: *mut *const c_char, function: Opaque) |core| {
        let function = core.function(&core.driver_context()?, function as usize)?;
        set(name, kept_name(&function.declared().name))
    }
    fn cuFuncGetParamInfo(function: Opaque, index: usize, offset: *mut usize, size: *mut usize) |core| {
        let function = core.function(&core.driver_context()?, function as usize)?;
        param(function.declared(), index, offset, size)
    }
    fn cuFuncIsLoaded(state: *mut u32, function: Opaque) |core| {
        core.function(&core.driver_context()?, function as usize)?;
        set(state, 1)
    }
    fn cuFuncLoad(function: Opaque) |core| {
        core.function(&core.driver_context()?, function as usize).map(|_| ())
    }

    fn cuLibraryLoadData(
        library: *mut Opaque, image: *const c_void, jit_options: *const u32, jit_values: *mut *mut c_void,
        jit_count: u32, options: *const u32, values: *const *const c_void, count: u32,
    ) |core| {
        if library.is_null() || image.is_null() {
            return Err(Code::InvalidValue.into());
        }
        // SAFETY: the program passes an image that CUDA can load, and keeps it if it says so.
        let loaded = unsafe { core.library_load(image.cast(), preserved(count, options, values)) };
        let loaded = JitLog::new(jit_count, jit_options, jit_values).tell(loaded)?;
        set(library, loaded.raw as Opaque)
    }
    fn cuLibraryLoadFromFile(
        library: *mut Opaque, path: *const c_char, jit_options: *const u32, jit_values: *mut *mut c_void,
        jit_count: u32, _options: *const u32, _values: *const *const c_void, _count: u32,
    ) |core| {
        if library.is_null() {
            return Err(Code::InvalidValue.into());
        }
        let loaded = read_file(path).and_then(|bytes| core.library_load_bytes(bytes));
        set(library, JitLog::new(jit_count, jit_options, jit_values).tell(loaded)?.raw as Opaque)
    }
    fn cuLibraryUnload(library: Opaque) |core| {
        core.library_unload(library as usize)
    }
    fn cuLibraryGetKernel(kernel: *mut Opaque, library: Opaque, name: *const c_char) |core| {
        let library = core.library(library as usize)?;
        set(kernel, core.library_kernel(&library, text(name)?)?.raw as Opaque)
    }
    fn cuLibraryGetKernelCount(count: *mut u32, library: Opaque) |core| {
        let (_, module) = library_module(core, library)?;
        set(count, core.module_info(&module)?.functions.len() as u32)
    }
    fn cuLibraryEnumerateKernels(kernels: *mut Opaque, count: u32, library: Opaque) |core| {
        let (library, module) = library_module(core, library)?;
        for i in 0..core.module_info(&module)?.functions.len().min(count as usize) {
            set(kernels.wrapping_add(i), kernel_at(core, &library, &module, i)?.raw as Opaque)?;
        }
        Ok(())
    }
    fn cuLibraryGetModule(module: *mut Opaque, library: Opaque) |core| {
        set(module, library_module(core, library)?.1.raw as Opaque)
    }
    fn cuLibraryGetGlobal(address: *mut DevicePtr, bytes: *mut usize, library: Opaque, name: *const c_char) |core| {
        let (_, module) = library_module(core, library)?;
        let (at, size) = core.module_global(&module, text(name)?)?;
        set_if_wanted(address, at);
        set_if_wanted(bytes, size as usize);
        Ok(())
    }
    fn cuLibraryGetManaged(address: *mut DevicePtr, bytes: *mut usize, library: Opaque, name: *const c_char) |core| {
        let (_, module) = library_module(core, library)?;
        let (at, size) = core.module_global(&module, text(name)?)?;
        set_if_wanted(address, at);
        set_if_wanted(bytes, size as usize);
        Ok(())
    }
    fn cuKernelGetFunction(function: *mut Opaque, kernel: Opaque) |core| {
        let kernel = core.kernel(kernel as usize)?;
        set(function, core.kernel_function(&core.driver_context()?, &kernel)?.raw as Opaque)
    }
    fn cuKernelGetLibrary(library: *mut Opaque, kernel: Opaque) |core| {
        set(library, core.kernel(kernel as usize)?.library.raw as Opaque)
    }
    fn cuKernelGetName(name: *mut *const c_char, kernel: Opaque) |core| {
        set(name, kept_name(&core.kernel(kernel as usize)?.name))
    }
    fn cuKernelGetAttribute(value: *mut i32, attribute: u32, kernel: Opaque, device: Device) |core| {
        let kernel = core.kernel(kernel as usize)?;
        let context = core.primary_retain(ordinal(core, device)?)?;
        let result = core.kernel_function(&context, &kernel).and_then(|f| core.function_attribute(&f, attribute));
        let _ = core.primary_release(context.ordinal);
        set(value, result?)
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
    fn cuKernelGetParamInfo(kernel: Opaque, index: usize, offset: *mut usize, size: *mut usize) |core| {
        let kernel = core.kernel(kernel as usize)?;
        let function = core.kernel_function(&core.driver_context()?, &kernel)?;
        param(function.declared(), index, offset, size)
    }
}
