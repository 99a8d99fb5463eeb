//! Loading modules.

use super::core::Core;
use super::image::Contents;
use super::sys::{self, function_attribute};
use parking_lot::Mutex;
use rgpu_device::{
    ClusterInfo, Code, Error, FunctionInfo, GlobalInfo, GlobalKind, Handle, ModuleInfo, Ordinal, ParamInfo,
    Result, attribute,
};

/// A kernel.
pub(crate) struct Kernel {
    /// What callers know about it.
    pub info: FunctionInfo,
    /// The driver's kernel.
    pub raw: sys::Function,
    /// Dynamic shared memory in bytes that the driver was told to allow.
    pub dynamic_shared: Mutex<u32>,
}

/// A loaded module.
pub(crate) struct Module {
    /// The device it was loaded on.
    pub ordinal: Ordinal,
    /// The driver's module.
    pub raw: sys::Module,
    /// Its kernels, by their number in the module.
    pub kernels: Vec<Kernel>,
    /// Whether they may print.
    pub prints: bool,
}

/// Loads a module, and describes it.
pub(crate) fn load(
    core: &Core,
    ordinal: Ordinal,
    handle: Handle,
    image: &[u8],
    managed: &[(String, u64)],
) -> Result<(Module, ModuleInfo)> {
    if image.is_empty() {
        return Err(Error::new(Code::InvalidImage, "The image is empty"));
    }
    let mut contents = Contents::of(image);
    core.enter(ordinal)?;
    let raw = core.note(ordinal, core.driver.module_load(&padded(image)))?;
    for (name, _) in managed {
        contents.variables.insert(name.clone(), GlobalKind::Managed);
    }
    let described = describe(core, ordinal, handle, raw, &contents, managed);
    match described {
        Ok((kernels, info)) => Ok((Module { ordinal, raw, kernels, prints: contents.prints }, info)),
        Err(error) => {
            let _ = core.driver.module_unload(raw);
            Err(error)
        }
    }
}

/// The image at an address that is a multiple of 8, with NULs behind it.
fn padded(image: &[u8]) -> Vec<u64> {
    let words = image.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    });
    words.chain([0]).collect()
}

fn describe(
    core: &Core,
    ordinal: Ordinal,
    handle: Handle,
    raw: sys::Module,
    contents: &Contents,
    managed: &[(String, u64)],
) -> Result<(Vec<Kernel>, ModuleInfo)> {
    let driver = &core.driver;
    let named = driver.module_functions(raw).unwrap_or_else(|| {
        // What the image seems to have and the driver does not know is no kernel.
        let find = |name: &String| Some((name.clone(), driver.function(raw, name).ok()?));
        contents.kernels.keys().filter_map(find).collect()
    });
    let mut kernels = Vec::with_capacity(named.len());
    for (name, function) in named {
        let info = core.note(ordinal, describe_kernel(core, contents, name, function))?;
        let usual = core.gpu(ordinal)?.info.attribute(attribute::MAX_SHARED_MEMORY_PER_BLOCK).max(0) as u32;
        let dynamic_shared = Mutex::new(usual.saturating_sub(info.static_shared));
        kernels.push(Kernel { info, raw: function, dynamic_shared });
    }
    let mut globals = Vec::new();
    for (name, &kind) in &contents.variables {
        let Ok((addr, size)) = driver.global(raw, name) else { continue };
        let mut global = GlobalInfo { name: name.clone(), addr, size, kind };
        if kind == GlobalKind::Managed {
            let Some((_, given)) = managed.iter().find(|m| m.0 == *name) else {
                let text = format!("The managed variable {name} was given no address");
                return Err(Error::new(Code::InvalidValue, text));
            };
            let mirrored = {
                let state = core.state.lock();
                state.table.as_ref().is_some_and(|table| table.is_mirrored(*given, size))
            };
            if !mirrored {
                let text = format!("There is no shared memory for the managed variable {name} at {given:#x}");
                return Err(Error::new(Code::InvalidValue, text));
            }
            core.mirror.add_variable(core, ordinal, handle, *given, addr, size)?;
            global.addr = *given;
        }
        globals.push(global);
    }
    let functions = kernels.iter().map(|k| k.info.clone()).collect();
    Ok((kernels, ModuleInfo { functions, globals }))
}

fn describe_kernel(
    core: &Core,
    contents: &Contents,
    name: String,
    function: sys::Function,
) -> Result<FunctionInfo> {
    let driver = &core.driver;
    let read = contents.kernels.get(&name);
    let params = match driver.function_params(function) {
        Some(params) => params.into_iter().map(|(offset, size)| ParamInfo { offset, size }).collect(),
        None => read.map(|k| k.params.clone()).unwrap_or_default(),
    };
    let get = |attribute| driver.function_attribute(function, attribute);
    // Drivers that know nothing of clusters do not know these.
    let side = |axis| get(function_attribute::REQUIRED_CLUSTER_WIDTH + axis).unwrap_or(0);
    let cluster = ClusterInfo { required: [side(0), side(1), side(2)], must_be_set: false, most: 0 };
    let must_be_set = get(function_attribute::CLUSTER_SIZE_MUST_BE_SET).unwrap_or(0) != 0;
    let required_block = read.map_or([0; 3], |k| k.required_block);
    // The driver's number is not that of the blocks that the kernel prescribes.
    let prescribed = required_block.iter().product::<u32>();
    let most = get(function_attribute::MAX_THREADS)?;
    Ok(FunctionInfo {
        params,
        max_threads: if prescribed == 0 { most } else { most.min(prescribed) },
        registers: get(function_attribute::REGISTERS)?,
        static_shared: get(function_attribute::STATIC_SHARED)?,
        local_bytes: get(function_attribute::LOCAL_BYTES)?,
        const_bytes: get(function_attribute::CONST_BYTES)?,
        ptx_version: get(function_attribute::PTX_VERSION)?,
        binary_version: get(function_attribute::BINARY_VERSION)?,
        required_block,
        cluster: ClusterInfo { must_be_set: must_be_set && cluster.required == [0; 3], ..cluster },
        // The driver refuses a whole module or nothing.
        refusal: None,
        name,
    })
}
