//! Registration of fat binaries, and launching the kernels in them.
//!
//! What nvcc's code does, in the order in which it does it: a constructor of each translation unit calls
//! `__cudaRegisterFatBinary`, then `__cudaRegisterFunction` and `__cudaRegisterVar` for what is in it, then
//! `__cudaRegisterFatBinaryEnd`. `kernel<<<grid, block, shared, stream>>>(…)` becomes
//! `__cudaPushCallConfiguration(…)` and a call of the host stub, which calls `__cudaGetKernel` once (13.x
//! stubs), `__cudaPopCallConfiguration`, and then `__cudaLaunchKernel` (13.x) or `cudaLaunchKernel` (12.x).

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint, c_void};

use super::abi::{In, Out, api, call, enter, enter_stream};
use super::types::{Dim3, EventRef, LaunchConfig, StreamRef, launch_attribute};
use crate::core::error::{guard_value, invalid, not_implemented};
use crate::core::relaunch::{Door, launch_again};
use crate::core::thread::{Configuration, HOT};
use crate::core::{Code, Config, Error, Result, current, fatbin};

thread_local! {
    /// Configurations that found no place in [`Hot`](crate::core::thread::Hot).
    static DEEPER: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

/// `__cudaRegisterFatBinary`
pub(crate) extern "C" fn register_fat_binary(wrapper: *const c_void) -> *mut *mut c_void {
    // SAFETY: nvcc's code passes its wrapper, which lives as long as the object that it is in.
    guard_value(std::ptr::null_mut(), || unsafe { fatbin::register(wrapper) })
}

/// `__cudaRegisterFatBinaryEnd`: nothing waits for it, because loading is lazy.
pub(crate) extern "C" fn register_fat_binary_end(_handle: *mut *mut c_void) {}

/// `__cudaUnregisterFatBinary`
pub(crate) extern "C" fn unregister_fat_binary(handle: *mut *mut c_void) {
    guard_value((), || fatbin::unregister(handle));
}

/// `__cudaRegisterFunction`. What follows the names were launch bounds once and is unused.
pub(crate) extern "C" fn register_function(
    handle: *mut *mut c_void,
    host: *const c_void,
    _device: *const c_char,
    name: *const c_char,
) {
    // SAFETY: nvcc's code passes a C string.
    guard_value((), || unsafe { fatbin::register_function(handle, host, name) });
}

/// `__cudaRegisterVar`
pub(crate) extern "C" fn register_var(
    handle: *mut *mut c_void,
    host: *const c_void,
    _device: *const c_char,
    name: *const c_char,
    _external: c_int,
    size: usize,
) {
    // SAFETY: nvcc's code passes a C string.
    guard_value((), || unsafe { fatbin::register_variable(handle, host, name, size as u64) });
}

/// `__cudaRegisterManagedVar`
pub(crate) extern "C" fn register_managed_var(
    handle: *mut *mut c_void,
    host: *mut *mut c_void,
    _device: *const c_char,
    name: *const c_char,
    _external: c_int,
    size: usize,
) {
    // SAFETY: nvcc's code passes a C string, and its variable's shadow, which lives until it unregisters.
    guard_value((), || unsafe { fatbin::register_managed(handle, host, name, size as u64) });
}

/// `__cudaInitModule`: called before the program first touches a managed variable. Yields 1.
pub(crate) extern "C" fn init_module(handle: *mut *mut c_void) -> c_char {
    super::abi::call("__cudaInitModule", || current()?.init_module(handle));
    1
}

/// `__cudaPushCallConfiguration`
pub(crate) extern "C" fn push_call_configuration(
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: StreamRef,
) -> c_uint {
    let pushed = HOT.try_with(|hot| {
        let depth = hot.depth.get();
        match hot.places.get(depth) {
            // SAFETY: the cell is this thread's, and nobody has a reference to what is in it.
            Some(place) => unsafe {
                let place = place.as_ptr();
                (*place).grid = grid.into();
                (*place).block = block.into();
                (*place).shared_bytes = shared_bytes;
                (*place).stream = stream;
            },
            None => {
                let (grid, block) = (grid.into(), block.into());
                push_deeper(Configuration { grid, block, shared_bytes, stream })?;
            }
        }
        hot.depth.set(depth + 1);
        Some(())
    });
    // Anything but 0 keeps the stub from being called.
    c_uint::from(!matches!(pushed, Ok(Some(()))))
}

#[cold]
fn push_deeper(configuration: Configuration) -> Option<()> {
    DEEPER.try_with(|deeper| deeper.borrow_mut().push(configuration)).ok()
}

#[cold]
fn pop_deeper() -> Option<Configuration> {
    DEEPER.try_with(|deeper| deeper.borrow_mut().pop()).ok().flatten()
}

/// Launches a kernel.
#[allow(clippy::too_many_arguments)]
fn launch(
    function: *const c_void,
    grid: Dim3,
    block: Dim3,
    args: *mut *mut c_void,
    shared_bytes: usize,
    stream: StreamRef,
    cooperative: bool,
    pt: bool,
) -> Result<()> {
    if function.is_null() {
        return Err(Error::new(Code::InvalidDeviceFunction, "the kernel is null"));
    }
    let Ok(shared_bytes) = u32::try_from(shared_bytes) else {
        return Err(invalid("too much dynamic shared memory"));
    };
    let config = Config { grid: grid.into(), block: block.into(), shared_bytes, cooperative };
    // SAFETY: the program passes pointers to the kernel's arguments, as the call demands.
    unsafe { current()?.launch_symbol(function, stream, pt, &config, args.cast_const().cast()) }
}

/// What a launch's attributes ask for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    cooperative: bool,
    /// Events to be recorded once the kernel is done: earlier would do, where the program asks for that.
    events: Vec<EventRef>,
}

impl Attributes {
    /// Reads a configuration's attributes. What cannot be ignored without changing results is refused.
    fn read(config: &LaunchConfig) -> Result<Self> {
        use launch_attribute as id;
        let mut found = Self::default();
        for attribute in In(config.attrs).list(config.num_attrs as usize)? {
            match attribute.id {
                id::COOPERATIVE => found.cooperative = attribute.first() != 0,
                id::CLUSTER_DIMENSION => {
                    let [xy, z, ..] = attribute.value;
                    if [xy as u32, (xy >> 32) as u32, z as u32].iter().any(|&n| n > 1) {
                        return Err(not_implemented("a launch in clusters of blocks"));
                    }
                }
                id::PROGRAMMATIC_EVENT | id::LAUNCH_COMPLETION_EVENT => {
                    found.events.push(attribute.value[0] as EventRef);
                }
                id::IGNORE
                | id::ACCESS_POLICY_WINDOW
                | id::SYNCHRONIZATION_POLICY
                | id::CLUSTER_SCHEDULING
                | id::PROGRAMMATIC_SERIALIZATION
                | id::PRIORITY
                | id::MEM_SYNC_DOMAIN_MAP
                | id::MEM_SYNC_DOMAIN
                | id::PREFERRED_CLUSTER_DIMENSION
                | id::PREFERRED_CARVEOUT => {}
                other => return Err(not_implemented(&format!("launch attribute {other}"))),
            }
        }
        Ok(found)
    }
}

/// `__cudaPopCallConfiguration`. As short as can be, because every launch passes here.
pub(crate) extern "C" fn pop_call_configuration(
    grid: Out<Dim3>,
    block: Out<Dim3>,
    shared_bytes: Out<usize>,
    stream: Out<StreamRef>,
) -> c_int {
    let popped = HOT.try_with(|hot| {
        let depth = hot.depth.get().checked_sub(1)?;
        hot.depth.set(depth);
        let configuration = match hot.places.get(depth) {
            Some(place) => place.get(),
            None => pop_deeper()?,
        };
        // One after the other: together, the compiler would make more of it.
        let all = grid.set_well(configuration.grid.into())
            && block.set_well(configuration.block.into())
            && shared_bytes.set_well(configuration.shared_bytes)
            && stream.set_well(configuration.stream);
        Some(all)
    });
    match popped {
        Ok(Some(true)) => 0,
        Ok(Some(false)) => call("__cudaPopCallConfiguration", || Err(invalid("a result pointer is null"))),
        _ => call("__cudaPopCallConfiguration", || Err(Code::MissingConfiguration.into())),
    }
}

/// `cudaLaunchKernel`, `__cudaLaunchKernel`
pub(crate) extern "C" fn launch_kernel<const PT: bool>(
    function: *const c_void,
    grid: Dim3,
    block: Dim3,
    args: *mut *mut c_void,
    shared_bytes: usize,
    stream: StreamRef,
) -> c_int {
    if let Ok(bytes) = u32::try_from(shared_bytes) {
        let config =
            Config { grid: grid.into(), block: block.into(), shared_bytes: bytes, cooperative: false };
        // SAFETY: the program passes pointers to the kernel's arguments, as the call demands.
        let done =
            unsafe { launch_again(Door::Runtime, function, stream, PT, &config, args.cast_const().cast()) };
        if let Some(code) = done {
            return code as c_int;
        }
    }
    launch_kernel_guarded::<PT>(function, grid, block, args, shared_bytes, stream)
}

#[cold]
fn launch_kernel_guarded<const PT: bool>(
    function: *const c_void,
    grid: Dim3,
    block: Dim3,
    args: *mut *mut c_void,
    shared_bytes: usize,
    stream: StreamRef,
) -> c_int {
    call("cudaLaunchKernel", || launch(function, grid, block, args, shared_bytes, stream, false, PT))
}

api! {
    /// `__cudaGetKernel`: what a stub asks for once and then passes to every launch. The stub's own address
    /// does for that, and needs no device yet.
    fn get_kernel_of_stub as "__cudaGetKernel" (kernel: Out<*const c_void>, stub: *const c_void) {
        kernel.set(stub)
    }

    /// `cudaLaunchCooperativeKernel`
    fn launch_cooperative_kernel<const PT> as "cudaLaunchCooperativeKernel" (
        function: *const c_void, grid: Dim3, block: Dim3, args: *mut *mut c_void, shared_bytes: usize,
        stream: StreamRef,
    ) {
        launch(function, grid, block, args, shared_bytes, stream, true, PT)
    }

    /// `cudaLaunchKernelExC`
    fn launch_kernel_exc<const PT> as "cudaLaunchKernelExC" (
        config: In<LaunchConfig>, function: *const c_void, args: *mut *mut c_void,
    ) {
        let config = config.get()?;
        let attributes = Attributes::read(&config)?;
        let LaunchConfig { grid, block, shared_bytes, stream, .. } = config;
        launch(function, grid, block, args, shared_bytes, stream, attributes.cooperative, PT)?;
        if !attributes.events.is_empty() {
            let (core, _, stream) = enter_stream(stream, PT)?;
            for event in attributes.events {
                core.event_record(&*core.event(event)?, &stream)?;
            }
        }
        Ok(())
    }

    /// `cudaGetFuncBySymbol`
    fn get_func_by_symbol as "cudaGetFuncBySymbol" (function: Out<usize>, symbol: *const c_void) {
        function.check()?;
        let (core, context) = enter()?;
        function.set(core.function_for(&context, symbol)?.raw)
    }

    /// `cudaGetKernel`
    fn get_kernel as "cudaGetKernel" (kernel: Out<usize>, symbol: *const c_void) {
        kernel.check()?;
        kernel.set(current()?.kernel_for(symbol)?.raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::types::LaunchAttribute;

    const CUBE: Dim3 = Dim3 { x: 1, y: 2, z: 3 };

    #[test]
    fn configurations_nest() {
        let mut got = (CUBE, CUBE, 0, 0);
        let mut pop = || {
            pop_call_configuration(
                Out(&raw mut got.0),
                Out(&raw mut got.1),
                Out(&raw mut got.2),
                Out(&raw mut got.3),
            )
        };
        assert_eq!(pop(), Code::MissingConfiguration as c_int);
        assert_eq!(push_call_configuration(CUBE, [4, 5, 6].into(), 7, 8), 0);
        assert_eq!(push_call_configuration(CUBE, CUBE, 9, 10), 0);
        assert_eq!((pop(), pop()), (0, 0));
        assert_eq!(got, (CUBE, [4, 5, 6].into(), 7, 8));
    }

    fn attribute(id: c_uint, first: u64) -> LaunchAttribute {
        LaunchAttribute { id, pad: 0, value: [first, 0, 0, 0, 0, 0, 0, 0] }
    }

    fn read(attributes: &[LaunchAttribute]) -> Result<Attributes> {
        Attributes::read(&LaunchConfig {
            grid: CUBE,
            block: CUBE,
            shared_bytes: 0,
            stream: 0,
            attrs: attributes.as_ptr(),
            num_attrs: attributes.len() as c_uint,
        })
    }

    #[test]
    fn attributes_that_matter_are_heeded_or_refused() {
        assert_eq!(read(&[]).unwrap(), Attributes::default());
        assert!(read(&[attribute(launch_attribute::COOPERATIVE, 1)]).unwrap().cooperative);
        assert!(read(&[attribute(launch_attribute::CLUSTER_DIMENSION, 0x1_0000_0001)]).is_ok());
        assert!(read(&[attribute(launch_attribute::CLUSTER_DIMENSION, 0x2_0000_0001)]).is_err());
        assert!(read(&[attribute(4711, 0)]).is_err());
    }
}
