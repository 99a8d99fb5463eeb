//! Registration of fat binaries, and launching the kernels in them.
//!
//! What nvcc's code does, in the order in which it does it: a constructor of each translation unit calls
//! `__cudaRegisterFatBinary`, then `__cudaRegisterFunction` and `__cudaRegisterVar` for what is in it, then
//! `__cudaRegisterFatBinaryEnd`. `kernel<<<grid, block, shared, stream>>>(…)` becomes
//! `__cudaPushCallConfiguration(…)` and a call of the host stub, which calls `__cudaGetKernel` once (13.x
//! stubs), `__cudaPopCallConfiguration`, and then `__cudaLaunchKernel` (13.x) or `cudaLaunchKernel` (12.x).

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint, c_void};

use super::entry::{api, call, enter, enter_stream};
use super::types::{Dim3, LaunchConfig};
use crate::abi::launch::LaunchAttributes;
use crate::abi::types::StreamRef;
use crate::abi::{CStrArg, In, KernelArguments, Out, c_functions};
use crate::core::error::{guard_value, invalid};
use crate::core::relaunch::{Door, launch_again};
use crate::core::thread::{Configuration, HOT};
use crate::core::{Code, Config, Error, Result, current, fatbin};

thread_local! {
    /// Configurations that found no place in [`Hot`](crate::core::thread::Hot).
    static DEEPER: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

c_functions! {
    /// `__cudaRegisterFatBinary`
    fn register_fat_binary(wrapper: In<c_void>) -> *mut *mut c_void {
        // SAFETY: nvcc's code passes its wrapper, which lives as long as the object that it is in.
        guard_value(std::ptr::null_mut(), || unsafe { fatbin::register(wrapper.as_ptr()) })
    }

    /// `__cudaRegisterFatBinaryEnd`: nothing waits for it, because loading is lazy.
    fn register_fat_binary_end(_handle: *mut *mut c_void) {}

    /// `__cudaUnregisterFatBinary`
    fn unregister_fat_binary(handle: *mut *mut c_void) {
        guard_value((), || fatbin::unregister(handle));
    }

    /// `__cudaRegisterFunction`. What follows the names were launch bounds once and is unused.
    fn register_function(
        handle: *mut *mut c_void,
        host: *const c_void,
        _device: CStrArg,
        name: CStrArg,
    ) {
        // SAFETY: nvcc's code passes a C string.
        guard_value((), || unsafe { fatbin::register_function(handle, host, name.as_ptr()) });
    }

    /// `__cudaRegisterVar`
    fn register_var(
        handle: *mut *mut c_void,
        host: *const c_void,
        _device: CStrArg,
        name: CStrArg,
        _external: c_int,
        size: usize,
    ) {
        // SAFETY: nvcc's code passes a C string.
        guard_value((), || unsafe { fatbin::register_variable(handle, host, name.as_ptr(), size as u64) });
    }

    /// `__cudaRegisterManagedVar`
    fn register_managed_var(
        handle: *mut *mut c_void,
        host: Out<*mut c_void>,
        _device: CStrArg,
        name: CStrArg,
        _external: c_int,
        size: usize,
    ) {
        // SAFETY: nvcc's code passes a C string, and its variable's shadow, which lives until it unregisters.
        guard_value((), || unsafe { fatbin::register_managed(handle, host.as_ptr(), name.as_ptr(), size as u64) });
    }

    /// `__cudaInitModule`: called before the program first touches a managed variable. Yields 1.
    fn init_module(handle: *mut *mut c_void) -> c_char {
        call("__cudaInitModule", || current()?.init_module(handle));
        1
    }

    /// `__cudaPushCallConfiguration`
    fn push_call_configuration(
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
    args: KernelArguments,
    shared_bytes: usize,
    stream: StreamRef,
    (cooperative, cluster): (bool, [u32; 3]),
    pt: bool,
) -> Result<()> {
    if function.is_null() {
        return Err(Error::new(Code::InvalidDeviceFunction, "the kernel is null"));
    }
    let Ok(shared_bytes) = u32::try_from(shared_bytes) else {
        return Err(invalid("too much dynamic shared memory"));
    };
    let config = Config { grid: grid.into(), block: block.into(), shared_bytes, cooperative, cluster };
    // SAFETY: the program passes pointers to the kernel's arguments, as the call demands.
    unsafe { current()?.launch_symbol(function, stream, pt, &config, args.as_ptr()) }
}

c_functions! {
    /// `__cudaPopCallConfiguration`. As short as can be, because every launch passes here.
    fn pop_call_configuration(
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

    /// `cudaLaunchKernel` and `__cudaLaunchKernel` of 13.x
    fn launch_kernel<const PT>(
        function: *const c_void,
        grid: Dim3,
        block: Dim3,
        args: KernelArguments,
        shared_bytes: usize,
        stream: StreamRef,
    ) -> c_int {
        launch_kernel_of::<PT>(Runtime::Cuda13, function, grid, block, args, shared_bytes, stream)
    }

    /// `cudaLaunchKernel` and `__cudaLaunchKernel` of 12.x
    fn launch_kernel_12<const PT>(
        function: *const c_void,
        grid: Dim3,
        block: Dim3,
        args: KernelArguments,
        shared_bytes: usize,
        stream: StreamRef,
    ) -> c_int {
        launch_kernel_of::<PT>(Runtime::Cuda12, function, grid, block, args, shared_bytes, stream)
    }
}

/// Whose answers a program expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runtime {
    /// 12.x looks at a launch's shape itself.
    Cuda12,
    /// 13.x leaves that to the driver, which knows no error of its own for it.
    Cuda13,
}

#[inline(always)]
fn launch_kernel_of<const PT: bool>(
    runtime: Runtime,
    function: *const c_void,
    grid: Dim3,
    block: Dim3,
    args: KernelArguments,
    shared_bytes: usize,
    stream: StreamRef,
) -> c_int {
    if let Ok(bytes) = u32::try_from(shared_bytes) {
        let config = Config {
            grid: grid.into(),
            block: block.into(),
            shared_bytes: bytes,
            cooperative: false,
            cluster: [0; 3],
        };
        // SAFETY: the program passes pointers to the kernel's arguments, as the call demands.
        let done = unsafe { launch_again(Door::Runtime, function, stream, PT, &config, args.as_ptr()) };
        if let Some(code) = done {
            return code as c_int;
        }
    }
    launch_kernel_guarded::<PT>(runtime, function, grid, block, args, shared_bytes, stream)
}

#[cold]
fn launch_kernel_guarded<const PT: bool>(
    runtime: Runtime,
    function: *const c_void,
    grid: Dim3,
    block: Dim3,
    args: KernelArguments,
    shared_bytes: usize,
    stream: StreamRef,
) -> c_int {
    call("cudaLaunchKernel", || {
        let done = launch(function, grid, block, args, shared_bytes, stream, (false, [0; 3]), PT);
        done.map_err(|error| match error.code {
            Code::InvalidConfiguration if runtime == Runtime::Cuda13 => invalid(error.message),
            _ => error,
        })
    })
}

api! {
    /// `__cudaGetKernel`: what a stub asks for once and then passes to every launch. The stub's own address
    /// does for that, and needs no device yet.
    fn get_kernel_of_stub as "__cudaGetKernel" (kernel: Out<*const c_void>, stub: *const c_void) {
        kernel.set(stub)
    }

    /// `cudaLaunchCooperativeKernel`
    fn launch_cooperative_kernel<const PT> as "cudaLaunchCooperativeKernel" (
        function: *const c_void, grid: Dim3, block: Dim3, args: KernelArguments, shared_bytes: usize,
        stream: StreamRef,
    ) {
        launch(function, grid, block, args, shared_bytes, stream, (true, [0; 3]), PT)
    }

    /// `cudaLaunchKernelExC`
    fn launch_kernel_exc<const PT> as "cudaLaunchKernelExC" (
        config: In<LaunchConfig>, function: *const c_void, args: KernelArguments,
    ) {
        let config = config.get()?;
        // SAFETY: the program says that the configuration has so many.
        let attributes = unsafe { LaunchAttributes::read(config.attrs, config.num_attrs) }?;
        let LaunchConfig { grid, block, shared_bytes, stream, .. } = config;
        let how = (attributes.cooperative, attributes.cluster);
        launch(function, grid, block, args, shared_bytes, stream, how, PT)?;
        if attributes.has_events() {
            let (core, _, stream) = enter_stream(stream, PT)?;
            attributes.record_events(core, &stream)?;
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

    const CUBE: Dim3 = Dim3 { x: 1, y: 2, z: 3 };

    #[test]
    fn configurations_nest() {
        let mut got = (CUBE, CUBE, 0, 0);
        let mut pop = || {
            // SAFETY: the variables outlive the call.
            unsafe {
                pop_call_configuration(
                    Out::new(&raw mut got.0),
                    Out::new(&raw mut got.1),
                    Out::new(&raw mut got.2),
                    Out::new(&raw mut got.3),
                )
            }
        };
        assert_eq!(pop(), Code::MissingConfiguration as c_int);
        assert_eq!(push_call_configuration(CUBE, [4, 5, 6].into(), 7, 8), 0);
        assert_eq!(push_call_configuration(CUBE, CUBE, 9, 10), 0);
        assert_eq!((pop(), pop()), (0, 0));
        assert_eq!(got, (CUBE, [4, 5, 6].into(), 7, 8));
    }
}
