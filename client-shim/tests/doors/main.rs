//! The driver's and the runtime's entry points over the software GPU in this process: both doors answer alike.

mod code;
mod contexts;
mod graphs;
#[path = "../library/mod.rs"]
mod library;
mod mem_ops;

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

use library::Library;

const PTX: &str = "
.version 7.0
.target sm_52
.address_size 64
.visible .entry put(.param .u64 at, .param .u32 value)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [at];
    ld.param.u32 %r1, [value];
    st.global.u32 [%rd1], %r1;
    ret;
}
\0";

const INVALID_VALUE: u32 = 1;
const INVALID_PTX: u32 = 218;
const INVALID_HANDLE: u32 = 400;
const TOO_LARGE: u32 = 720;
const NOT_SUPPORTED: u32 = 801;

type Handle = *mut c_void;
type With<T> = unsafe extern "C" fn(T) -> u32;
type GetFor<T, U> = unsafe extern "C" fn(*mut T, U) -> u32;
type PoolAttribute = unsafe extern "C" fn(Handle, i32, *mut c_void) -> u32;
type AllocAsync = unsafe extern "C" fn(*mut u64, usize, Handle) -> u32;
type AllocFromPool = unsafe extern "C" fn(*mut u64, usize, Handle, Handle) -> u32;
type FreeAsync = unsafe extern "C" fn(u64, Handle) -> u32;
type CopyOut = unsafe extern "C" fn(*mut c_void, u64, usize) -> u32;

/// `CUlaunchAttribute`, `cudaLaunchAttribute`.
#[repr(C)]
struct Attribute {
    id: u32,
    pad: u32,
    value: [u64; 8],
}

/// `CUlaunchConfig`, and `cudaLaunchConfig_t`, whose size of shared memory has the place of the padding too.
#[repr(C)]
struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    pad: u32,
    stream: Handle,
    attributes: *const Attribute,
    count: u32,
}

/// `CUmemPoolProps`, `cudaMemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy)]
struct PoolProps {
    kind: u32,
    handle_types: u32,
    place: [i32; 2],
    rest: [u64; 9],
}

/// The library, with device 0's primary context current.
fn library() -> &'static Library {
    struct Shared(Library);
    // SAFETY: a library's functions may be called from any thread.
    unsafe impl Sync for Shared {}
    // SAFETY: as above.
    unsafe impl Send for Shared {}
    static LIBRARY: OnceLock<Shared> = OnceLock::new();
    let library = &LIBRARY
        .get_or_init(|| {
            let library = Library::load();
            // SAFETY: these are the types of the functions of these names.
            unsafe {
                assert_eq!(library.symbol::<extern "C" fn() -> u32>("rgpu_use_in_process")(), 0);
                assert_eq!(library.symbol::<With<u32>>("cuInit")(0), 0);
            }
            Shared(library)
        })
        .0;
    let mut context = std::ptr::null_mut();
    // SAFETY: as above; the result is a variable.
    unsafe {
        assert_eq!(library.symbol::<GetFor<Handle, i32>>("cuDevicePrimaryCtxRetain")(&mut context, 0), 0);
        assert_eq!(library.symbol::<With<Handle>>("cuCtxSetCurrent")(context), 0);
    }
    library
}

/// A launch by either door.
struct Launcher {
    library: &'static Library,
    function: Handle,
    at: u64,
}

impl Launcher {
    fn new() -> Self {
        let library = library();
        let (mut module, mut function, mut at) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        type GetFunction = unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> u32;
        // SAFETY: these are the types of the functions of these names, and the results are variables.
        unsafe {
            let load: GetFor<Handle, *const u8> = library.symbol("cuModuleLoadData");
            assert_eq!(load(&mut module, PTX.as_ptr()), 0);
            let get: GetFunction = library.symbol("cuModuleGetFunction");
            assert_eq!(get(&mut function, module, c"put".as_ptr()), 0);
            assert_eq!(library.symbol::<GetFor<u64, usize>>("cuMemAlloc_v2")(&mut at, 4), 0);
        }
        Self { library, function, at }
    }

    /// Launches so many blocks that each write `value`, with an attribute; yields the error.
    fn launch(&self, door: &str, blocks: u32, value: u32, attribute: &Attribute) -> u32 {
        let config = Config {
            grid: [blocks, 1, 1],
            block: [1; 3],
            shared: 0,
            pad: 0,
            stream: std::ptr::null_mut(),
            attributes: attribute,
            count: 1,
        };
        let mut arguments =
            [(&raw const self.at).cast_mut().cast::<c_void>(), (&raw const value).cast_mut().cast()];
        type Runtime = unsafe extern "C" fn(*const Config, Handle, *mut Handle) -> u32;
        type Driver = unsafe extern "C" fn(*const Config, Handle, *mut Handle, *mut Handle) -> u32;
        // SAFETY: these are the types of the functions, and the arguments are those of the kernel.
        unsafe {
            match door {
                "cudaLaunchKernelExC" => {
                    self.library.symbol::<Runtime>(door)(&config, self.function, arguments.as_mut_ptr())
                }
                _ => {
                    let launch = self.library.symbol::<Driver>(door);
                    launch(&config, self.function, arguments.as_mut_ptr(), std::ptr::null_mut())
                }
            }
        }
    }

    /// What the kernel wrote last.
    fn written(&self) -> u32 {
        let mut value = 0_u32;
        // SAFETY: the type of the function, and a variable of that size.
        let copy = unsafe { self.library.symbol::<CopyOut>("cuMemcpyDtoH_v2") };
        // SAFETY: as above.
        assert_eq!(unsafe { copy((&raw mut value).cast(), self.at, 4) }, 0);
        value
    }
}

#[test]
fn launch_attributes_mean_the_same_by_both_doors() {
    let launcher = Launcher::new();
    let attribute = |id, value: &[u64]| {
        let mut all = [0; 8];
        all[..value.len()].copy_from_slice(value);
        Attribute { id, pad: 0, value: all }
    };
    // Access window, synchronisation policy, cluster scheduling, programmatic serialisation, priority, memory domains
    // and their map, preferred cluster, carve-out, NVLink: hints. 0 says that it is to be ignored.
    let hints = [0, 1, 3, 5, 6, 8, 9, 10, 11, 14, 16];
    let cases = hints.iter().map(|&id| (attribute(id, &[1]), 1, 0));
    let cases = cases.chain([
        (attribute(2, &[1]), 1, 0),
        (attribute(2, &[1]), 1 << 20, TOO_LARGE),
        (attribute(2, &[0]), 1 << 10, 0),
        (attribute(4, &[1 << 32 | 1, 1]), 1, 0),
        (attribute(4, &[1 << 32 | 2, 1]), 2, NOT_SUPPORTED),
        (attribute(13, &[0]), 1, 0),
        (attribute(13, &[1]), 1, NOT_SUPPORTED),
        (attribute(4711, &[0]), 1, NOT_SUPPORTED),
        (attribute(7, &[0xdead]), 1, INVALID_HANDLE),
        (attribute(12, &[0xdead]), 1, INVALID_HANDLE),
    ]);
    let mut value = 100;
    for (attribute, blocks, expected) in cases {
        for door in ["cuLaunchKernelEx", "cuLaunchKernelEx_ptsz", "cudaLaunchKernelExC"] {
            value += 1;
            let code = launcher.launch(door, blocks, value, &attribute);
            assert_eq!(code, expected, "attribute {} by {door}", attribute.id);
            if expected == 0 {
                assert_eq!(launcher.written(), value, "attribute {} by {door}", attribute.id);
            }
        }
    }
}

#[test]
fn a_kernel_that_cannot_be_executed_is_refused_when_it_is_asked_for() {
    const MULTIPLIED: &str = "
.version 7.0
.target sm_52
.address_size 64
.visible .entry multiplied() {
    .reg .f32 f; .reg .b32 r; .reg .b64 h;
    tex.2dms.v4.f32.s32 {f, f, f, f}, [h, {r, r, r, r}]; ret; }
.visible .entry plain() { ret; }
\0";
    let library = library();
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    type GetFunction = unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> u32;
    // SAFETY: these are the types of the functions of these names, and the results are variables.
    unsafe {
        let load: GetFor<Handle, *const u8> = library.symbol("cuModuleLoadData");
        assert_eq!(load(&mut module, MULTIPLIED.as_ptr()), 0);
        let get: GetFunction = library.symbol("cuModuleGetFunction");
        assert_eq!(get(&mut function, module, c"multiplied".as_ptr()), INVALID_PTX);
        assert!(function.is_null());
        assert_eq!(get(&mut function, module, c"plain".as_ptr()), 0);
        assert_eq!(get(&mut function, module, c"multiplied".as_ptr()), INVALID_PTX);
    }
}

#[test]
fn events_of_a_launch_are_recorded_by_both_doors() {
    let launcher = Launcher::new();
    for door in ["cuLaunchKernelEx", "cudaLaunchKernelExC"] {
        // A programmatic event, and one for the launch's completion.
        for id in [7, 12] {
            let (mut first, mut second, mut time) = (std::ptr::null_mut(), std::ptr::null_mut(), -1.0);
            // SAFETY: these are the types of the functions of these names, and the results are variables.
            unsafe {
                let create: GetFor<Handle, u32> = launcher.library.symbol("cuEventCreate");
                assert_eq!((create(&mut first, 0), create(&mut second, 0)), (0, 0));
                type Elapsed = unsafe extern "C" fn(*mut f32, Handle, Handle) -> u32;
                let elapsed: Elapsed = launcher.library.symbol("cuEventElapsedTime");
                assert_eq!(elapsed(&mut time, first, second), INVALID_HANDLE, "neither is recorded");
                for event in [first, second] {
                    let attribute = Attribute { id, pad: 0, value: [event as u64, 0, 0, 0, 0, 0, 0, 0] };
                    assert_eq!(launcher.launch(door, 1, id, &attribute), 0, "attribute {id} by {door}");
                }
                assert_eq!(launcher.library.symbol::<With<Handle>>("cuEventSynchronize")(second), 0);
                assert_eq!(elapsed(&mut time, first, second), 0, "attribute {id} by {door}");
            }
            assert!(time >= 0.0 && launcher.written() == id);
        }
    }
}

#[test]
fn pools_are_the_same_by_both_doors() {
    let library = library();
    let null = std::ptr::null_mut();
    let (mut pool, mut other, mut at) = (null, null, 0);
    let mut props = PoolProps { kind: 1, handle_types: 0, place: [1, 0], rest: [0; 9] };
    let mut stream = null;
    // SAFETY: these are the types of the functions of these names; results are variables of their types.
    unsafe {
        let create: GetFor<Handle, *const PoolProps> = library.symbol("cuMemPoolCreate");
        let destroy: With<Handle> = library.symbol("cuMemPoolDestroy");
        let default: GetFor<Handle, i32> = library.symbol("cuDeviceGetDefaultMemPool");
        let current: GetFor<Handle, i32> = library.symbol("cuDeviceGetMemPool");
        let make_current: unsafe extern "C" fn(i32, Handle) -> u32 = library.symbol("cuDeviceSetMemPool");
        let get: PoolAttribute = library.symbol("cuMemPoolGetAttribute");
        let set: PoolAttribute = library.symbol("cuMemPoolSetAttribute");
        let trim: unsafe extern "C" fn(Handle, usize) -> u32 = library.symbol("cuMemPoolTrimTo");
        let alloc_async: AllocAsync = library.symbol("cuMemAllocAsync");
        let alloc_from: AllocFromPool = library.symbol("cuMemAllocFromPoolAsync");
        let free_async: FreeAsync = library.symbol("cuMemFreeAsync");
        let free: With<u64> = library.symbol("cuMemFree_v2");
        assert_eq!(library.symbol::<GetFor<Handle, u32>>("cuStreamCreate")(&mut stream, 0), 0);
        let used = |pool| {
            let mut used = u64::MAX;
            assert_eq!(get(pool, 7, (&raw mut used).cast()), 0);
            used
        };

        assert_eq!(create(&mut pool, &props), 0);
        assert_eq!(create(std::ptr::null_mut(), &props), INVALID_VALUE);
        assert_eq!(create(&mut other, std::ptr::null()), INVALID_VALUE);
        props.place = [1, 99];
        assert_eq!(create(&mut other, &props), 101);
        props.place = [2, 0];
        assert_eq!(create(&mut other, &props), INVALID_VALUE);
        props.place = [1, 0];
        props.handle_types = 1;
        assert_eq!(create(&mut other, &props), NOT_SUPPORTED);

        // The device's default pool is the same by either door, stays, and is current until another is.
        assert_eq!(default(&mut other, 0), 0);
        let mut by_runtime = null;
        assert_eq!(
            library.symbol::<GetFor<Handle, i32>>("cudaDeviceGetDefaultMemPool")(&mut by_runtime, 0),
            0
        );
        assert_eq!(by_runtime, other);
        assert_eq!(destroy(other), INVALID_VALUE);
        assert_eq!(default(&mut other, 99), 101);
        assert_eq!((current(&mut by_runtime, 0), by_runtime), (0, other));
        type At = unsafe extern "C" fn(*mut Handle, *const [i32; 2], i32) -> u32;
        assert_eq!(
            (library.symbol::<At>("cuMemGetDefaultMemPool")(&mut by_runtime, &[1, 0], 1), by_runtime),
            (0, other)
        );
        assert_eq!(library.symbol::<At>("cuMemGetMemPool")(&mut by_runtime, &[1, 0], 2), NOT_SUPPORTED);

        // Attributes: a policy is an int, a threshold and what is used are 64 bits wide.
        let (mut policy, mut threshold) = (0_i32, 1_u64 << 40);
        assert_eq!((get(pool, 1, (&raw mut policy).cast()), policy), (0, 1));
        policy = 0;
        assert_eq!(set(pool, 1, (&raw mut policy).cast()), 0);
        policy = 7;
        assert_eq!((get(pool, 1, (&raw mut policy).cast()), policy), (0, 0));
        assert_eq!(set(pool, 4, (&raw mut threshold).cast()), 0);
        threshold = 0;
        assert_eq!((get(pool, 4, (&raw mut threshold).cast()), threshold), (0, 1 << 40));
        assert_eq!(get(pool, 99, (&raw mut threshold).cast()), INVALID_VALUE);
        assert_eq!(set(pool, 7, (&raw mut threshold).cast()), INVALID_VALUE);
        assert_eq!(get(pool, 4, null), INVALID_VALUE);

        // What is allocated counts until it is freed, whichever way.
        assert_eq!(alloc_from(&mut at, 5000, pool, stream), 0);
        assert_eq!(used(pool), 5000);
        let fill: unsafe extern "C" fn(u64, u8, usize, Handle) -> u32 = library.symbol("cuMemsetD8Async");
        assert_eq!(fill(at, 42, 5000, stream), 0);
        assert_eq!(library.symbol::<With<Handle>>("cuStreamSynchronize")(stream), 0);
        let mut bytes = [0_u8; 5000];
        assert_eq!(library.symbol::<CopyOut>("cuMemcpyDtoH_v2")(bytes.as_mut_ptr().cast(), at, 5000), 0);
        assert_eq!(bytes, [42; 5000]);
        assert_eq!(free_async(at, stream), 0);
        assert_eq!(used(pool), 0);
        let mut high = 0_u64;
        assert_eq!((get(pool, 8, (&raw mut high).cast()), high), (0, 5000));
        high = 0;
        assert_eq!(set(pool, 8, (&raw mut high).cast()), 0);
        assert_eq!(make_current(0, pool), 0);
        assert_eq!((current(&mut by_runtime, 0), by_runtime), (0, pool));
        for (allocate, release) in [(false, false), (false, true), (true, false), (true, true)] {
            if allocate {
                assert_eq!(library.symbol::<AllocAsync>("cudaMallocAsync")(&mut at, 300, stream), 0);
            } else {
                assert_eq!(alloc_async(&mut at, 300, stream), 0);
            }
            assert_eq!(used(pool), 300);
            if release {
                assert_eq!(library.symbol::<With<u64>>("cudaFree")(at), 0);
            } else {
                assert_eq!(free(at), 0);
            }
            assert_eq!(used(pool), 0);
        }
        assert_eq!((get(pool, 8, (&raw mut high).cast()), high), (0, 300));
        assert_eq!(alloc_from(&mut at, 0, pool, stream), INVALID_VALUE);
        assert_eq!(alloc_from(std::ptr::null_mut(), 8, pool, stream), INVALID_VALUE);

        // Access: a device has its own, which cannot be taken away.
        type GetAccess = unsafe extern "C" fn(*mut i32, Handle, *const [i32; 2]) -> u32;
        type SetAccess = unsafe extern "C" fn(Handle, *const [i32; 3], usize) -> u32;
        let set_access: SetAccess = library.symbol("cuMemPoolSetAccess");
        let mut flags = 0;
        assert_eq!(
            (library.symbol::<GetAccess>("cuMemPoolGetAccess")(&mut flags, pool, &[1, 0]), flags),
            (0, 3)
        );
        assert_eq!(set_access(pool, &[1, 0, 3], 1), 0);
        assert_eq!(set_access(pool, &[1, 0, 0], 1), INVALID_VALUE);
        assert_eq!(set_access(pool, std::ptr::null(), 1), INVALID_VALUE);

        assert_eq!(trim(pool, 0), 0);
        assert_eq!(destroy(pool), 0);
        assert_eq!((destroy(pool), trim(pool, 0), alloc_from(&mut at, 8, pool, stream)), (1, 1, 1));
        assert_eq!(
            (current(&mut by_runtime, 0), by_runtime),
            (0, other),
            "the default pool is current again"
        );
    }
}

#[test]
fn a_program_that_asks_by_name_gets_what_it_could_link_to() {
    let library = library();
    type Ask = unsafe extern "C" fn(*const c_char, *mut Handle, i32, u64, *mut u32) -> u32;
    // SAFETY: the types of the functions; results are variables.
    unsafe {
        let (mut found, mut status) = (std::ptr::null_mut(), 9);
        for door in ["cuGetProcAddress_v2", "cudaGetDriverEntryPointByVersion"] {
            let ask: Ask = library.symbol(door);
            let mut look_up = |name: &std::ffi::CStr, version: u32, flags| {
                // The runtime's has the version's type and place in common with the driver's.
                let code = ask(name.as_ptr(), &mut found, version as i32, flags, &mut status);
                (code, found, status)
            };
            for (name, version, flags, symbol) in [
                (c"cuMemAllocFromPoolAsync", 11020, 0, "cuMemAllocFromPoolAsync"),
                (c"cuMemAllocFromPoolAsync", 11020, 2, "cuMemAllocFromPoolAsync_ptsz"),
                (c"cuLaunchKernel", 13000, 1, "cuLaunchKernel"),
                (c"cuLaunchKernel", 13000, 2, "cuLaunchKernel_ptsz"),
            ] {
                let (code, address, status) = look_up(name, version, flags);
                assert_eq!((code, status), (0, 0), "{name:?} by {door}");
                assert!(!address.is_null());
                if symbol.starts_with("cuLaunchKernel") {
                    // Exported themselves; the others are jumps to what is found.
                    assert_eq!(address, library.symbol(symbol));
                }
            }
            assert_eq!(look_up(c"cuMemPoolCreate", 11010, 0), (500, std::ptr::null_mut(), 2), "{door}");
            assert_eq!(look_up(c"cuNothing", 13000, 0), (500, std::ptr::null_mut(), 1), "{door}");
            assert_eq!(look_up(c"cuInit", 13000, 3).0, INVALID_VALUE, "{door}");
        }
    }
}
