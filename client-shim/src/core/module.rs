//! Modules, each of one context, and the functions in them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rgpu_device::{FunctionInfo, GlobalKind, Handle, MAX_CLUSTER, ModuleInfo, Ordinal, PORTABLE_CLUSTER};

use super::context::Context;
use super::devices::Devices;
use super::error::{Code, Error, Result, invalid, not_implemented, say_of_code, say_once};
use super::generation;
use super::image::{self, Image};
use super::launch::Config;
use super::memory::Memory;
use super::params::ParamLayout;
use super::reference::{Reference, References};
use super::registry::{NumberMap, Raw, Registry};

/// A module, loaded on a device.
pub(crate) struct Module {
    /// The program's handle.
    pub raw: Raw,
    /// The device's handle.
    pub handle: Handle,
    /// The ordinal of the device it is loaded on.
    pub ordinal: Ordinal,
    /// Handle of the context that it belongs to.
    pub context: Raw,
    /// What is in it, once the device has told; see [`Modules::module_info`].
    info: OnceLock<ModuleInfo>,
    /// What is known about the kernels of a module that was begun.
    sketch: Option<Vec<FunctionInfo>>,
    /// Places of the functions in the sketch or else in `info`, by name.
    names: HashMap<String, u32>,
    /// Functions that were asked for, by place.
    functions: Mutex<NumberMap<u32, Arc<Function>>>,
    /// Its managed variables, where they go with it.
    managed: OnceLock<Vec<u64>>,
    /// Its texture and surface references.
    pub(super) references: References,
}

/// A kernel on one device (`CUfunction`, `cudaFunction_t`).
pub(crate) struct Function {
    /// The program's handle.
    pub raw: Raw,
    /// The module it is in.
    pub module: Arc<Module>,
    /// The number that launches name it by.
    pub index: u32,
    /// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`, or [`NOT_ASKED`].
    max_dynamic_shared: AtomicI32,
    /// The preferred carve-out of shared memory, in percent, or -1 (`CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`).
    pub carveout: AtomicI32,
    /// What was set about clusters of blocks: the attributes [`CLUSTER_ATTRIBUTES`].
    clusters: [AtomicI32; 5],
    /// How its parameters are put together.
    layout: ParamLayout,
    /// What a launch needs to know about the kernel.
    declared: FunctionInfo,
}

/// `CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH` and so on up to `…_CLUSTER_SCHEDULING_POLICY_PREFERENCE`.
const CLUSTER_ATTRIBUTES: std::ops::RangeInclusive<u32> = 11..=15;
/// How much dynamic shared memory a kernel may have has not been asked yet.
const NOT_ASKED: i32 = i32::MIN;

impl Module {
    /// Whether it has a kernel of this name.
    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// What the device tells of the kernel of this place and name.
    fn described<'i>(&self, info: &'i ModuleInfo, index: u32, name: &str) -> Option<&'i FunctionInfo> {
        match &self.sketch {
            None => info.functions.get(index as usize),
            // The sketch has an order of its own.
            Some(_) => info.functions.iter().find(|function| function.name == name),
        }
    }

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
    /// [`Modules::function_info`] has everything.
    pub(crate) fn declared(&self) -> &FunctionInfo {
        &self.declared
    }

    /// How its parameters are put together.
    #[inline(always)]
    pub(crate) fn layout(&self) -> &ParamLayout {
        &self.layout
    }
}

/// The living modules and functions.
pub(super) struct Modules {
    devices: Arc<Devices>,
    memory: Arc<Memory>,
    modules: Registry<Module>,
    functions: Registry<Function>,
    references: Registry<Reference>,
}

impl Modules {
    /// Nothing is loaded yet, on any device.
    pub(super) fn new(devices: Arc<Devices>, memory: Arc<Memory>) -> Self {
        let (modules, functions) = (Registry::new("module"), Registry::new("function"));
        Self {
            devices,
            memory,
            modules,
            functions,
            references: Registry::new("texture or surface reference"),
        }
    }

    /// `cuModuleLoadData`: a fat binary (wrapper or container), a cubin, or PTX text ending in NUL.
    ///
    /// # Safety
    /// `image` must point to one of these.
    pub(super) unsafe fn module_load(&self, context: &Context, image: *const u8) -> Result<Arc<Module>> {
        // SAFETY: the caller's promise; the image is not kept beyond this call.
        let image = unsafe { Image::at(image) }?;
        let image = image.loadable(self.devices.info(context.ordinal)?);
        let (image, _) = image.inspect_err(say_of_code)?;
        self.module_load_bytes(context, &image)
    }

    /// As [`Modules::module_load`], from bytes that were read from a file or linked.
    pub(super) fn module_load_bytes(&self, context: &Context, image: &[u8]) -> Result<Arc<Module>> {
        let mut placed = Vec::new();
        let loaded = self.place_managed(context, image, &mut placed).and_then(|()| {
            let module = self.load(context, image, &placed, false)?;
            if !placed.is_empty() {
                // Their initial values have come with the answer.
                self.devices.after_wait();
                self.devices.shared().host_wrote();
            }
            let _ = module.managed.set(placed.iter().map(|(_, addr)| *addr).collect());
            Ok(module)
        });
        if loaded.is_err() {
            for (_, addr) in placed {
                let _ = self.memory.managed_variable_free(addr);
            }
        }
        loaded
    }

    /// Allocates the managed variables of an image that nvcc's code has not registered.
    fn place_managed(&self, context: &Context, image: &[u8], placed: &mut Vec<(String, u64)>) -> Result<()> {
        let device = self.devices.info(context.ordinal)?;
        for (name, size) in image::managed(image, device) {
            placed.push((name, self.memory.managed_variable_alloc(context, size)?));
        }
        Ok(())
    }

    /// Loads an image. With `late`, that it cannot be loaded may be found out later.
    pub(super) fn load(
        &self,
        context: &Context,
        image: &[u8],
        managed: &[(String, u64)],
        late: bool,
    ) -> Result<Arc<Module>> {
        let ordinal = context.ordinal;
        let handle = self.devices.new_handle();
        let device = self.devices.info(ordinal)?;
        let loaded = image::for_device(image, device).and_then(|bytes| {
            if managed.is_empty() && self.devices.device().module_begin(ordinal, handle, &bytes, late)? {
                if let Some(kernels) = image::sketch(&bytes, device) {
                    return Ok((None, Some(kernels)));
                }
                let info = self.devices.device().module_info(handle)?;
                let kernels = info.functions.clone();
                return Ok((Some(info), Some(kernels)));
            }
            Ok((Some(self.devices.device().module_load(ordinal, handle, &bytes, managed)?), None))
        });
        let (info, sketch) = match self.devices.note(ordinal, loaded) {
            Ok(loaded) => loaded,
            Err(error) => {
                say_of_code(&error);
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
            references: References::default(),
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
                self.memory.variable_known(module.ordinal, module.context, global.addr, global.size);
            }
            info
        })
    }

    /// What is in a module; asks the device unless it has told already.
    pub(super) fn module_info<'m>(&self, module: &'m Module) -> Result<&'m ModuleInfo> {
        if let Some(info) = module.info.get() {
            return Ok(info);
        }
        let info = match self.devices.note(module.ordinal, self.devices.device().module_info(module.handle)) {
            Ok(info) => info,
            Err(error) => {
                say_of_code(&error);
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

    /// Everything about a kernel that can be executed; asks the device unless it has told already.
    ///
    /// # Errors
    /// [`FunctionInfo::refusal`], besides those of [`Modules::module_info`].
    pub(super) fn function_info<'f>(&self, function: &'f Function) -> Result<&'f FunctionInfo> {
        let module = &*function.module;
        let info = self.module_info(module)?;
        let name = &function.declared().name;
        let found = module.described(info, function.index, name);
        let found =
            found.ok_or_else(|| Error::new(Code::NotFound, format!("The module has no kernel {name}")))?;
        found.check_executable().inspect_err(|refusal| say_once(&refusal.message))?;
        Ok(found)
    }

    /// The most dynamic shared memory that a launch of a kernel may ask for.
    pub(super) fn max_dynamic_shared(&self, function: &Function) -> Result<i32> {
        let known = function.max_dynamic_shared.load(Ordering::Relaxed);
        if known != NOT_ASKED {
            return Ok(known);
        }
        let own = self.function_info(function)?.static_shared;
        let room =
            self.devices.launch_limits(function.module.ordinal).shared_per_block.saturating_sub(own) as i32;
        let set = function.max_dynamic_shared.compare_exchange(
            NOT_ASKED,
            room,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        Ok(set.map_or_else(|other| other, |_| room))
    }

    /// The module behind a handle.
    pub(super) fn module(&self, raw: Raw) -> Result<Arc<Module>> {
        self.modules.get(raw)
    }

    /// `cuModuleUnload`.
    pub(super) fn module_unload(&self, raw: Raw) -> Result<()> {
        let module = self.modules.remove(raw)?;
        self.forget_module(&module);
        let mut unloaded =
            self.devices.note(module.ordinal, self.devices.device().module_unload(module.handle));
        for addr in module.managed.get().into_iter().flatten() {
            unloaded = unloaded.and(self.memory.managed_variable_free(*addr));
        }
        unloaded
    }

    /// Forgets what hangs on a module that is going away.
    fn forget_module(&self, module: &Module) {
        generation::begin_new();
        for global in module.info.get().iter().flat_map(|info| &info.globals) {
            self.memory.variable_gone(global.addr);
        }
        for (_, function) in module.functions.lock().drain() {
            let _ = self.functions.remove(function.raw);
        }
        for reference in module.references.take() {
            let _ = self.references.remove(reference.raw);
        }
    }

    /// `cuModuleGetFunction`; the same function has the same handle each time. A kernel that the device cannot execute is
    /// refused here where the device has told what is in the module, else by whatever asks for more than the handle.
    pub(super) fn module_function(&self, module: &Arc<Module>, name: &str) -> Result<Arc<Function>> {
        let Some(&index) = module.names.get(name) else {
            return Err(Error::new(Code::NotFound, format!("The module has no kernel {name}")));
        };
        let mut functions = module.functions.lock();
        if let Some(function) = functions.get(&index) {
            return Ok(function.clone());
        }
        let declared = &module.declared()[index as usize];
        let told = module.info.get().and_then(|info| module.described(info, index, name));
        if let Some(refusal) = told.and_then(|told| told.refusal.as_ref()) {
            say_once(&refusal.message);
            return Err(refusal.clone());
        }
        if module.sketch.is_some() {
            self.devices
                .note(module.ordinal, self.devices.device().module_function(module.handle, index, name))?;
        }
        let function = self.functions.insert(|raw| Function {
            raw,
            module: module.clone(),
            index,
            max_dynamic_shared: AtomicI32::new(NOT_ASKED),
            carveout: AtomicI32::new(-1),
            clusters: Default::default(),
            layout: ParamLayout::new(&declared.params),
            declared: declared.clone(),
        });
        functions.insert(index, function.clone());
        Ok(function)
    }

    /// `cuModuleGetGlobal`: address and size.
    pub(super) fn module_global(&self, module: &Module, name: &str) -> Result<(u64, u64)> {
        let globals = &self.module_info(module)?.globals;
        match globals.iter().find(|global| global.name == name && !global.kind.is_reference()) {
            Some(global) => Ok((global.addr, global.size)),
            None => Err(Error::new(Code::NotFound, format!("The module has no variable {name}"))),
        }
    }

    /// References are a software GPU's. A device that runs NVIDIA's machine code has its own, which nobody forwards.
    fn check_references(&self, ordinal: Ordinal) -> Result<()> {
        if self.devices.info(ordinal)?.accepts_cubin {
            return Err(not_implemented("a texture or surface reference on an NVIDIA GPU"));
        }
        Ok(())
    }

    /// `cuModuleGetTexRef`, or `cuModuleGetSurfRef`; the same reference has the same handle each time.
    pub(super) fn module_reference(
        &self,
        module: &Module,
        name: &str,
        surface: bool,
    ) -> Result<Arc<Reference>> {
        self.check_references(module.ordinal)?;
        let (kind, what) = match surface {
            false => (GlobalKind::Texture, "texture"),
            true => (GlobalKind::Surface, "surface"),
        };
        let globals = &self.module_info(module)?.globals;
        let found = globals.iter().find(|global| global.name == name && global.kind == kind);
        let found = found.ok_or_else(|| {
            Error::new(Code::NotFound, format!("The module has no {what} reference {name}"))
        })?;
        let insert = |make: Box<dyn FnOnce(Raw) -> Reference>| self.references.insert(make);
        Ok(module.references.get((name, found.addr), surface, module.ordinal, insert))
    }

    /// `cuTexRefCreate`: a reference of no module.
    pub(super) fn create_reference(&self, context: &Context) -> Result<Arc<Reference>> {
        self.check_references(context.ordinal)?;
        Ok(self.references.insert(|raw| Reference::free(raw, context.ordinal)))
    }

    /// `cuTexRefDestroy`: those of modules go with these.
    pub(super) fn destroy_reference(&self, raw: Raw) -> Result<()> {
        if self.reference(raw, false)?.is_of_module() {
            return Err(invalid("A module's texture reference goes with the module"));
        }
        self.references.remove(raw).map(drop)
    }

    /// The texture or surface reference behind a handle.
    pub(super) fn reference(&self, raw: Raw, surface: bool) -> Result<Arc<Reference>> {
        let found = self.references.get(raw)?;
        if found.surface == surface {
            return Ok(found);
        }
        let (is, wanted) = if surface { ("texture", "surface") } else { ("surface", "texture") };
        Err(Error::new(
            Code::InvalidHandle,
            format!("{raw:#x} is a {is} reference, not a {wanted} reference"),
        ))
    }

    /// `cuFuncGetAttribute`, by its `CUfunction_attribute` number; unknown numbers are an invalid value.
    pub(super) fn function_attribute(&self, function: &Function, attribute: u32) -> Result<i32> {
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
            // Caching mode.
            7 => 0,
            10 => {
                let cluster = function.declared.cluster;
                (cluster.must_be_set || cluster.prescribed().is_some()).into()
            }
            number if CLUSTER_ATTRIBUTES.contains(&number) => {
                let index = (number - CLUSTER_ATTRIBUTES.start()) as usize;
                match function.declared.cluster.prescribed() {
                    Some(own) if index < 3 => own[index] as i32,
                    _ => function.clusters[index].load(Ordering::Relaxed),
                }
            }
            _ => return Err(invalid(format!("Function attribute {attribute} does not exist"))),
        })
    }

    /// `cuFuncSetAttribute`.
    pub(super) fn function_set_attribute(
        &self,
        function: &Function,
        attribute: u32,
        value: i32,
    ) -> Result<()> {
        match attribute {
            8 => {
                let most = self.devices.launch_limits(function.module.ordinal).shared_per_block_optin;
                let room = most.saturating_sub(self.function_info(function)?.static_shared);
                if value < 0 || value as u32 > room {
                    return Err(invalid(format!(
                        "{value} bytes of dynamic shared memory are not possible, {room} are"
                    )));
                }
                function.max_dynamic_shared.store(value, Ordering::Relaxed);
                // What was found possible may not be any more.
                generation::begin_new();
                Ok(())
            }
            9 if (-1..=100).contains(&value) => {
                function.carveout.store(value, Ordering::Relaxed);
                Ok(())
            }
            9 => Err(invalid(format!("A carve-out of {value} percent is not possible"))),
            number if CLUSTER_ATTRIBUTES.contains(&number) => {
                self.check_cluster(function, number, value)?;
                function.clusters[(number - CLUSTER_ATTRIBUTES.start()) as usize]
                    .store(value, Ordering::Relaxed);
                generation::begin_new();
                Ok(())
            }
            _ => Err(invalid(format!("Function attribute {attribute} cannot be set"))),
        }
    }

    /// Whether an attribute about clusters of blocks can be set so.
    fn check_cluster(&self, function: &Function, attribute: u32, value: i32) -> Result<()> {
        let is_side = (11..=13).contains(&attribute);
        if is_side && function.declared.cluster.prescribed().is_some() {
            let text =
                format!("{} prescribes its clusters itself: they cannot be set", function.declared.name);
            return Err(Error::new(Code::InvalidValue, text));
        }
        if is_side && value > 1 && !self.devices.launch_limits(function.module.ordinal).clusters {
            return Err(not_implemented(
                "clusters of blocks before compute capability 9.0 (cuFuncSetAttribute)",
            ));
        }
        match (attribute, value) {
            (11..=13, 0..) | (14, 0 | 1) | (15, 0..=2) => Ok(()),
            _ => Err(invalid(format!("Function attribute {attribute} cannot be {value}"))),
        }
    }

    /// The most blocks that a cluster of the kernel may have.
    pub(super) fn max_cluster(&self, function: &Function) -> u32 {
        let allowed = function.clusters[3].load(Ordering::Relaxed) != 0;
        if allowed { MAX_CLUSTER } else { PORTABLE_CLUSTER }
    }

    /// How a kernel is launched, with what was set of its clusters where the launch says nothing. Zeros are left where nobody does
    /// but perhaps the kernel itself.
    #[inline]
    pub(super) fn with_cluster(&self, function: &Function, config: &Config) -> Config {
        let mut config = *config;
        if config.cluster == [0; 3] {
            let set = [0, 1, 2].map(|side| function.clusters[side].load(Ordering::Relaxed).max(0) as u32);
            if set != [0; 3] {
                config.cluster = set.map(|side| side.max(1));
            }
        }
        // Clusters of one block are none, where there are no others.
        if config.cluster == [1; 3] && !self.devices.launch_limits(function.module.ordinal).clusters {
            config.cluster = [0; 3];
        }
        config
    }

    /// The function behind a handle.
    pub(super) fn registered_function(&self, raw: Raw) -> Result<Arc<Function>> {
        self.functions.get(raw)
    }

    /// Whether the module is neither unloaded nor gone with its context.
    pub(super) fn is_loaded(&self, module: &Module) -> bool {
        self.modules.contains(module.raw)
    }

    /// Unloads the modules of a context that is being destroyed.
    pub(super) fn unload_all_of(&self, context: Raw) -> Result<()> {
        self.functions.remove_where(|function| function.module.context == context);
        let mut result = Ok(());
        for module in self.modules.remove_where(|module| module.context == context) {
            self.forget_module(&module);
            result = result.and(self.devices.device().module_unload(module.handle));
        }
        result
    }

    /// The device has just been reset: forgets what was loaded on it.
    pub(super) fn forget(&self, ordinal: Ordinal) {
        self.functions.remove_where(|function| function.module.ordinal == ordinal);
        for module in self.modules.remove_where(|module| module.ordinal == ordinal) {
            self.forget_module(&module);
        }
    }
}
