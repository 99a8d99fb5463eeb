//! Modules (of one context), libraries (of all), and the functions in them.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rgpu_device::{FunctionInfo, GlobalKind, Handle, ModuleInfo, Ordinal};

use super::context::Context;
use super::error::{Code, Error, Result, invalid, say_once};
use super::fatbin::ManagedVariable;
use super::image::{self, Image};
use super::process::Core;
use super::registry::{NumberMap, Raw};
use super::thread;

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
    /// What is in it, once the device has told; see [`Core::module_info`].
    info: OnceLock<ModuleInfo>,
    /// What is known about the kernels of a module that was begun.
    sketch: Option<Vec<FunctionInfo>>,
    /// Places of the functions in the sketch or else in `info`, by name.
    names: HashMap<String, u32>,
    /// Functions that were asked for, by place.
    functions: Mutex<NumberMap<u32, Arc<Function>>>,
    /// Its managed variables, where they go with it.
    managed: OnceLock<Vec<u64>>,
}

/// A kernel on one device (`CUfunction`, `cudaFunction_t`).
pub struct Function {
    /// The program's handle.
    pub raw: Raw,
    /// The module it is in.
    pub module: Arc<Module>,
    /// The number that launches name it by.
    pub index: u32,
    /// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`, or [`NOT_ASKED`].
    max_dynamic_shared: AtomicI32,
    /// `CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`.
    pub carveout: AtomicI32,
    /// Bytes of its parameter block.
    pub(super) param_bytes: u32,
    /// Whether there are bytes between the parameters.
    gaps: bool,
    /// What a launch needs to know about the kernel.
    declared: FunctionInfo,
}

/// How much dynamic shared memory a kernel may have has not been asked yet.
const NOT_ASKED: i32 = i32::MIN;

impl Module {
    /// What a launch needs to know about each kernel.
    fn declared(&self) -> &[FunctionInfo] {
        match (&self.sketch, self.info.get()) {
            (Some(sketch), _) => sketch,
            (None, Some(info)) => &info.functions,
            (None, None) => &[],
        }
    }
}

impl Function {
    /// What a launch needs to know about the kernel: its name, its parameters and its bounds. The rest may be zeros;
    /// [`Core::function_info`] has everything.
    pub fn declared(&self) -> &FunctionInfo {
        &self.declared
    }

    /// Puts the parameter block together. `None` where an argument is null, or the block too long.
    ///
    /// # Safety
    /// `args` must point to as many pointers as the kernel has parameters, and each but a null one to an argument.
    #[inline(always)]
    pub(super) unsafe fn pack_short<'b>(
        &self,
        args: *const *const std::ffi::c_void,
        block: &'b mut [MaybeUninit<u8>; super::relaunch::SHORT],
    ) -> Option<&'b [u8]> {
        let size = self.param_bytes as usize;
        if size > block.len() {
            return None;
        }
        let out = block.as_mut_ptr().cast::<u8>();
        if self.gaps {
            // SAFETY: the block is longer than that.
            unsafe { out.write_bytes(0, size) };
        }
        let mut next = args;
        for param in &self.declared.params {
            // SAFETY: the caller passes a pointer for every parameter, to so many bytes; `size` is the largest end of any
            // parameter, so all lie in the block.
            unsafe {
                let from = (*next).cast::<u8>();
                next = next.add(1);
                if from.is_null() {
                    return None;
                }
                let to = out.add(param.offset as usize);
                // The common sizes take no call.
                match param.size {
                    8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
                    4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
                    size => std::ptr::copy_nonoverlapping(from, to, size as usize),
                }
            }
        }
        // SAFETY: every byte up to `size` belongs to a parameter, or was zeroed.
        Some(unsafe { std::slice::from_raw_parts(out, size) })
    }
}

/// Code that is loaded on each device when first used there (`CUlibrary`; a registered fat binary is one).
pub struct Library {
    /// The program's handle.
    pub raw: Raw,
    image: Image,
    /// Why a part of it is not loaded.
    pub(super) left_out: OnceLock<Error>,
    /// As loaded, by context; failures are remembered.
    loaded: Mutex<NumberMap<Raw, Result<Arc<Module>>>>,
    kernels: Mutex<HashMap<String, Arc<Kernel>>>,
    /// Managed variables that nvcc's code registered.
    managed: Vec<ManagedVariable>,
    /// Where they were placed.
    placed: Mutex<Vec<(String, u64)>>,
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
        // SAFETY: the caller's promise; the image is not kept beyond this call.
        let image = unsafe { Image::at(image) }?;
        let image = image.loadable(&self.infos[context.ordinal as usize]);
        let (image, _) = image.inspect_err(|error| say_once(&error.message))?;
        self.module_load_bytes(context, &image)
    }

    /// As [`Core::module_load`], from bytes that were read from a file or linked.
    pub fn module_load_bytes(&self, context: &Arc<Context>, image: &[u8]) -> Result<Arc<Module>> {
        let mut placed = Vec::new();
        let loaded = self.place_managed(context, image, &mut placed).and_then(|()| {
            let module = self.load(context, image, &placed, false)?;
            if !placed.is_empty() {
                // Their initial values have come with the answer.
                self.after_wait();
                self.host_wrote();
            }
            let _ = module.managed.set(placed.iter().map(|(_, addr)| *addr).collect());
            Ok(module)
        });
        if loaded.is_err() {
            for (_, addr) in placed {
                let _ = self.managed_variable_free(addr);
            }
        }
        loaded
    }

    /// Allocates the managed variables of an image that nvcc's code has not registered.
    fn place_managed(
        &self,
        context: &Arc<Context>,
        image: &[u8],
        placed: &mut Vec<(String, u64)>,
    ) -> Result<()> {
        let device = &self.infos[context.ordinal as usize];
        for (name, size) in image::managed(image, device) {
            placed.push((name, self.managed_variable_alloc(context, size)?));
        }
        Ok(())
    }

    /// Loads an image. With `late`, that it cannot be loaded may be found out later.
    fn load(
        &self,
        context: &Arc<Context>,
        image: &[u8],
        managed: &[(String, u64)],
        late: bool,
    ) -> Result<Arc<Module>> {
        let ordinal = context.ordinal;
        let handle = self.device_handle();
        let device = &self.infos[ordinal as usize];
        let loaded = image::for_device(image, device).and_then(|bytes| {
            if managed.is_empty() && self.device.module_begin(ordinal, handle, &bytes, late)? {
                if let Some(kernels) = image::sketch(&bytes, device) {
                    return Ok((None, Some(kernels)));
                }
                let info = self.device.module_info(handle)?;
                let kernels = info.functions.clone();
                return Ok((Some(info), Some(kernels)));
            }
            Ok((Some(self.device.module_load(ordinal, handle, &bytes, managed)?), None))
        });
        let (info, sketch) = match self.note(ordinal, loaded) {
            Ok(loaded) => loaded,
            Err(error) => {
                say_once(&error.message);
                return Err(error);
            }
        };
        let functions = match (&sketch, &info) {
            (Some(functions), _) => functions.iter(),
            (None, Some(info)) => info.functions.iter(),
            (None, None) => [].iter(),
        };
        let names = functions.enumerate().map(|(i, function)| (function.name.clone(), i as u32)).collect();
        let module = self.modules.insert(|raw| Module {
            raw,
            handle,
            ordinal,
            context: context.raw,
            info: OnceLock::new(),
            sketch,
            names,
            functions: Mutex::default(),
            managed: OnceLock::new(),
        });
        if let Some(info) = info {
            self.told(&module, info);
        }
        Ok(module)
    }

    /// The device has told what is in a module.
    fn told<'m>(&self, module: &'m Module, info: ModuleInfo) -> &'m ModuleInfo {
        module.info.get_or_init(|| {
            for global in info.globals.iter().filter(|global| global.kind != GlobalKind::Managed) {
                self.variable_known(module.ordinal, module.context, global.addr, global.size);
            }
            info
        })
    }

    /// What is in a module; asks the device unless it has told already.
    pub fn module_info<'m>(&self, module: &'m Module) -> Result<&'m ModuleInfo> {
        if let Some(info) = module.info.get() {
            return Ok(info);
        }
        let info = match self.note(module.ordinal, self.device.module_info(module.handle)) {
            Ok(info) => info,
            Err(error) => {
                say_once(&error.message);
                return Err(error);
            }
        };
        for sketched in module.declared() {
            let real = info.functions.iter().find(|f| f.name == sketched.name);
            if real.is_none_or(|real| real.params != sketched.params) {
                let text = format!("The server sees other parameters in kernel {}", sketched.name);
                return Err(Error::new(Code::InvalidImage, text));
            }
        }
        Ok(self.told(module, info))
    }

    /// Asks what is in the modules of which that is not known yet: an address may be one of their variables'.
    #[cold]
    pub(super) fn ask_about_modules(&self) {
        for module in self.modules.filter(|module| module.info.get().is_none()) {
            let _ = self.module_info(&module); // the module's user sees why not
        }
    }

    /// Everything about a kernel; asks the device unless it has told already.
    pub fn function_info<'f>(&self, function: &'f Function) -> Result<&'f FunctionInfo> {
        let module = &*function.module;
        let info = self.module_info(module)?;
        let name = &function.declared().name;
        let found = match &module.sketch {
            None => info.functions.get(function.index as usize),
            Some(_) => info.functions.iter().find(|f| f.name == *name),
        };
        found.ok_or_else(|| Error::new(Code::NotFound, format!("The module has no kernel {name}")))
    }

    /// The most dynamic shared memory that a launch of a kernel may ask for.
    pub fn max_dynamic_shared(&self, function: &Function) -> Result<i32> {
        let known = function.max_dynamic_shared.load(Ordering::Relaxed);
        if known != NOT_ASKED {
            return Ok(known);
        }
        let own = self.function_info(function)?.static_shared;
        let room = self.launch_limits(function.module.ordinal).shared_per_block.saturating_sub(own) as i32;
        let set = function.max_dynamic_shared.compare_exchange(
            NOT_ASKED,
            room,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        Ok(set.map_or_else(|other| other, |_| room))
    }

    /// The module behind a handle.
    pub fn module(&self, raw: Raw) -> Result<Arc<Module>> {
        self.modules.get(raw)
    }

    /// `cuModuleUnload`.
    pub fn module_unload(&self, raw: Raw) -> Result<()> {
        let module = self.modules.remove(raw)?;
        self.forget_module(&module);
        let mut unloaded = self.note(module.ordinal, self.device.module_unload(module.handle));
        for addr in module.managed.get().into_iter().flatten() {
            unloaded = unloaded.and(self.managed_variable_free(*addr));
        }
        unloaded
    }

    /// Forgets what hangs on a module that is going away.
    pub(super) fn forget_module(&self, module: &Module) {
        super::fatbin::forget_functions();
        for global in module.info.get().iter().flat_map(|info| &info.globals) {
            self.variable_gone(global.addr);
        }
        for (_, function) in module.functions.lock().drain() {
            let _ = self.functions.remove(function.raw);
        }
    }

    /// Forgets the libraries' modules for which `which` holds.
    pub(super) fn forget_loaded(&self, which: impl Fn(&Module) -> bool) {
        let registered: Vec<Arc<Library>> = self.fat_binaries.read().values().cloned().collect();
        for library in self.libraries.filter(|_| true).iter().chain(&registered) {
            library.loaded.lock().retain(|_, module| module.as_ref().is_ok_and(|module| !which(module)));
        }
        super::fatbin::forget_functions();
    }

    /// `cuModuleGetFunction`; the same function has the same handle each time.
    pub fn module_function(&self, module: &Arc<Module>, name: &str) -> Result<Arc<Function>> {
        let Some(&index) = module.names.get(name) else {
            return Err(Error::new(Code::NotFound, format!("The module has no kernel {name}")));
        };
        let mut functions = module.functions.lock();
        if let Some(function) = functions.get(&index) {
            return Ok(function.clone());
        }
        let declared = &module.declared()[index as usize];
        if module.sketch.is_some() {
            self.note(module.ordinal, self.device.module_function(module.handle, index, name))?;
        }
        let function = self.functions.insert(|raw| Function {
            raw,
            module: module.clone(),
            index,
            max_dynamic_shared: AtomicI32::new(NOT_ASKED),
            carveout: AtomicI32::new(-1),
            param_bytes: declared.param_bytes(),
            gaps: {
                let ends = declared.params.iter().map(|p| p.offset + p.size);
                std::iter::once(0).chain(ends).zip(&declared.params).any(|(end, p)| p.offset != end)
            },
            declared: declared.clone(),
        });
        functions.insert(index, function.clone());
        Ok(function)
    }

    /// `cuModuleGetGlobal`: address and size.
    pub fn module_global(&self, module: &Module, name: &str) -> Result<(u64, u64)> {
        match self.module_info(module)?.globals.iter().find(|global| global.name == name) {
            Some(global) => Ok((global.addr, global.size)),
            None => Err(Error::new(Code::NotFound, format!("The module has no variable {name}"))),
        }
    }

    /// The function behind a handle. A kernel's handle gives its function in `context`, as CUDA allows.
    pub fn function(&self, context: &Arc<Context>, raw: Raw) -> Result<Arc<Function>> {
        match self.functions.get(raw) {
            Ok(function) => Ok(function),
            Err(error) => match self.kernels.get(raw) {
                Ok(kernel) => self.kernel_function(context, &kernel),
                Err(_) => Err(error),
            },
        }
    }

    /// `cuFuncGetAttribute`, by its `CUfunction_attribute` number; unknown numbers are an invalid value.
    pub fn function_attribute(&self, function: &Function, attribute: u32) -> Result<i32> {
        let info = self.function_info(function)?;
        Ok(match attribute {
            0 => info.max_threads as i32,
            1 => info.static_shared as i32,
            2 => info.const_bytes as i32,
            3 => info.local_bytes as i32,
            4 => info.registers as i32,
            5 => info.ptx_version as i32,
            6 => info.binary_version as i32,
            8 => self.max_dynamic_shared(function)?,
            9 => function.carveout.load(Ordering::Relaxed),
            // Caching mode, and everything about clusters, which no device here has.
            7 | 10..=15 => 0,
            _ => return Err(invalid(format!("Function attribute {attribute} does not exist"))),
        })
    }

    /// `cuFuncSetAttribute`.
    pub fn function_set_attribute(&self, function: &Function, attribute: u32, value: i32) -> Result<()> {
        match attribute {
            8 => {
                let most = self.launch_limits(function.module.ordinal).shared_per_block_optin;
                let room = most.saturating_sub(self.function_info(function)?.static_shared);
                if value < 0 || value as u32 > room {
                    return Err(invalid(format!(
                        "{value} bytes of dynamic shared memory are not possible, {room} are"
                    )));
                }
                function.max_dynamic_shared.store(value, Ordering::Relaxed);
                // What was found possible may not be any more.
                super::fatbin::forget_functions();
                Ok(())
            }
            9 if (-1..=100).contains(&value) => {
                function.carveout.store(value, Ordering::Relaxed);
                Ok(())
            }
            9 => Err(invalid(format!("A carve-out of {value} percent is not possible"))),
            14 if value == 0 => Ok(()),
            11..=15 => Err(super::error::not_implemented("thread block clusters")),
            _ => Err(invalid(format!("Function attribute {attribute} cannot be set"))),
        }
    }

    /// `cuLibraryLoadData`. The image is copied unless `preserved`, when the program promises to keep it.
    ///
    /// # Safety
    /// As for [`Core::module_load`].
    pub unsafe fn library_load(&self, image: *const u8, preserved: bool) -> Result<Arc<Library>> {
        // SAFETY: the caller's promise.
        let image = unsafe { Image::at(image) }?;
        Ok(self.new_library(if preserved { image } else { image.into_copy() }, Vec::new()))
    }

    /// As [`Core::library_load`], from bytes.
    pub fn library_load_bytes(&self, image: Vec<u8>) -> Result<Arc<Library>> {
        Ok(self.new_library(Image::of(image), Vec::new()))
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
    pub fn library(&self, raw: Raw) -> Result<Arc<Library>> {
        self.libraries.get(raw)
    }

    /// `cuLibraryUnload`.
    pub fn library_unload(&self, raw: Raw) -> Result<()> {
        let library = self.libraries.remove(raw)?;
        for (_, kernel) in library.kernels.lock().drain() {
            let _ = self.kernels.remove(kernel.raw);
        }
        let modules: Vec<_> = library.loaded.lock().drain().filter_map(|(_, module)| module.ok()).collect();
        let mut result = Ok(());
        for module in modules {
            if self.modules.contains(module.raw) {
                result = result.and(self.module_unload(module.raw));
            }
        }
        result
    }

    /// `cuLibraryGetModule`: the library as loaded in a context.
    pub fn library_module(&self, context: &Arc<Context>, library: &Library) -> Result<Arc<Module>> {
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

    fn load_library(&self, context: &Arc<Context>, library: &Library) -> Result<Arc<Module>> {
        let mut placed = library.placed.lock();
        // A reset of their device takes the variables with it.
        if placed.iter().any(|(_, addr)| self.managed_variable_at(*addr).is_none()) {
            placed.clear();
        }
        let known = !placed.is_empty();
        if !known {
            for variable in &library.managed {
                let addr = self.managed_variable_alloc(context, variable.size)?;
                placed.push((variable.name.clone(), addr));
            }
        }
        // Loading writes the initial values, which on a second device must not undo what was written since.
        let mut kept: Vec<Vec<u8>> = Vec::new();
        if known {
            self.wait_until_idle()?;
            for (variable, (_, addr)) in library.managed.iter().zip(placed.iter()) {
                let size = variable.size as usize;
                // SAFETY: the variable was placed in host-visible memory of this size.
                kept.push(unsafe { std::slice::from_raw_parts(*addr as *const u8, size) }.to_vec());
            }
        }
        let image = library.image.loadable(&self.infos[context.ordinal as usize]);
        let (image, left_out) = image.inspect_err(|error| say_once(&error.message))?;
        if let Some(error) = left_out {
            let _ = library.left_out.set(error);
        }
        let module = self.load(context, &image, &placed, true)?;
        if !placed.is_empty() {
            // Their initial values have come with the answer.
            self.after_wait();
        }
        for ((_, addr), bytes) in placed.iter().zip(&kept) {
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), *addr as *mut u8, bytes.len()) };
        }
        self.host_wrote();
        for (variable, (_, addr)) in library.managed.iter().zip(placed.iter()) {
            variable.tell(*addr);
        }
        Ok(module)
    }

    /// `cuLibraryGetKernel`; [`Code::NotFound`] where there is none of this name.
    pub fn library_kernel(&self, library: &Arc<Library>, name: &str) -> Result<Arc<Kernel>> {
        if let Some(kernel) = library.kernels.lock().get(name) {
            return Ok(kernel.clone());
        }
        let context = match thread::top().filter(|context| context.is_alive()) {
            Some(context) => context,
            None => self.primary_retain_quietly(thread::selected())?,
        };
        if !self.library_module(&context, library)?.names.contains_key(name) {
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
    pub fn kernel(&self, raw: Raw) -> Result<Arc<Kernel>> {
        self.kernels.get(raw)
    }

    /// `cuKernelGetFunction`.
    pub fn kernel_function(&self, context: &Arc<Context>, kernel: &Kernel) -> Result<Arc<Function>> {
        let module = self.library_module(context, &kernel.library)?;
        self.module_function(&module, &kernel.name)
    }
}
