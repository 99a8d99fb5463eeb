//! Contexts with parameters, functions' and streams' attributes, and what pointers tell.

use super::*;

/// `CUctxCreateParams`.
#[repr(C)]
struct CreateParams {
    affinities: *const u64,
    count: i32,
    cig: *const u64,
}

#[test]
fn parameters_of_a_context_that_ask_for_nothing_are_none() {
    let library = library();
    let null = std::ptr::null();
    let something = [0_u64; 4];
    let something = something.as_ptr();
    let mut context = std::ptr::null_mut();
    // SAFETY: these are the types of the functions of these names.
    unsafe {
        type Create = unsafe extern "C" fn(*mut Handle, *const CreateParams, u32, i32) -> u32;
        let create: Create = library.symbol("cuCtxCreate_v4");
        let destroy: With<Handle> = library.symbol("cuCtxDestroy_v2");
        let nothing = CreateParams { affinities: null, count: 0, cig: null };
        for parameters in [std::ptr::null(), &raw const nothing] {
            assert_eq!(create(&mut context, parameters, 0, 0), 0);
            let mut current = std::ptr::null_mut();
            assert_eq!(library.symbol::<With<*mut Handle>>("cuCtxGetCurrent")(&mut current), 0);
            assert_eq!(current, context);
            assert_eq!(destroy(context), 0);
        }
        let affinity = CreateParams { affinities: something, count: 1, cig: null };
        let no_list = CreateParams { affinities: null, count: 1, cig: null };
        let cig = CreateParams { affinities: null, count: 0, cig: something };
        for (parameters, code) in [(affinity, NOT_SUPPORTED), (cig, NOT_SUPPORTED), (no_list, INVALID_VALUE)]
        {
            assert_eq!(create(&mut context, &parameters, 0, 0), code);
        }
        assert_eq!(create(std::ptr::null_mut(), &nothing, 0, 0), INVALID_VALUE);
    }
}

#[test]
fn clusters_are_of_one_block_or_refused() {
    let launcher = Launcher::new();
    let library = launcher.library;
    // SAFETY: these are the types of the functions of these names; results are variables.
    unsafe {
        let set: unsafe extern "C" fn(Handle, u32, i32) -> u32 = library.symbol("cuFuncSetAttribute");
        let get: unsafe extern "C" fn(*mut i32, u32, Handle) -> u32 = library.symbol("cuFuncGetAttribute");
        let mut value = 9;
        for (attribute, good, bad, code) in [
            (11, 1, 2, NOT_SUPPORTED),
            (13, 1, 8, NOT_SUPPORTED),
            (14, 1, 2, INVALID_VALUE),
            (15, 2, 3, INVALID_VALUE),
        ] {
            assert_eq!((get(&mut value, attribute, launcher.function), value), (0, 0));
            assert_eq!(set(launcher.function, attribute, good), 0);
            assert_eq!(set(launcher.function, attribute, bad), code);
            assert_eq!((get(&mut value, attribute, launcher.function), value), (0, good));
        }
        assert_eq!(set(launcher.function, 10, 1), INVALID_VALUE, "it is for reading");

        for door in ["cu", "cuda"] {
            let occupancy = |name: &str, attribute: &Attribute| {
                let config = Config {
                    grid: [8, 1, 1],
                    block: [1024, 1, 1],
                    shared: 0,
                    pad: 0,
                    stream: std::ptr::null_mut(),
                    attributes: attribute,
                    count: 1,
                };
                type Ask = unsafe extern "C" fn(*mut i32, Handle, *const Config) -> u32;
                let mut answer = -1;
                let ask: Ask = library.symbol(&format!("{door}{name}"));
                (ask(&mut answer, launcher.function, &config), answer)
            };
            let cluster =
                |blocks: u64| Attribute { id: 4, pad: 0, value: [1 << 32 | blocks, 1, 0, 0, 0, 0, 0, 0] };
            assert_eq!(occupancy("OccupancyMaxPotentialClusterSize", &cluster(1)), (0, 1));
            let (code, clusters) = occupancy("OccupancyMaxActiveClusters", &cluster(1));
            assert!(code == 0 && clusters >= 1, "{code} {clusters}");
            for name in ["OccupancyMaxPotentialClusterSize", "OccupancyMaxActiveClusters"] {
                assert_eq!(occupancy(name, &cluster(2)).0, NOT_SUPPORTED);
            }
        }
    }
}

#[test]
fn what_is_set_of_streams_and_pointers_can_be_read() {
    let library = library();
    let (mut first, mut second, mut at) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
    // SAFETY: these are the types of the functions of these names; results are variables of the attributes' sizes.
    unsafe {
        let create: GetFor<Handle, u32> = library.symbol("cuStreamCreate");
        assert_eq!((create(&mut first, 0), create(&mut second, 0)), (0, 0));
        type StreamAttribute = unsafe extern "C" fn(Handle, u32, *mut [u64; 8]) -> u32;
        let mut value = [3, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(library.symbol::<StreamAttribute>("cuStreamSetAttribute")(first, 3, &mut value), 0);
        let copy: unsafe extern "C" fn(Handle, Handle) -> u32 = library.symbol("cuStreamCopyAttributes");
        assert_eq!(copy(second, first), 0);
        for door in ["cuStreamGetAttribute", "cudaStreamGetAttribute"] {
            value = [0; 8];
            assert_eq!(library.symbol::<StreamAttribute>(door)(second, 3, &mut value), 0);
            assert_eq!(value[0], 3);
            assert_eq!(library.symbol::<StreamAttribute>(door)(second, 2, &mut value), INVALID_VALUE);
        }

        assert_eq!(library.symbol::<AllocAsync>("cuMemAllocAsync")(&mut at, 4096, first), 0);
        type Get = unsafe extern "C" fn(*mut u64, u32, u64) -> u32;
        type Set = unsafe extern "C" fn(*const u32, u32, u64) -> u32;
        let get: Get = library.symbol("cuPointerGetAttribute");
        let set: Set = library.symbol("cuPointerSetAttribute");
        let word = |number| {
            let mut word = 0;
            assert_eq!(get(&mut word, number, at + 100), 0, "attribute {number}");
            word
        };
        assert_eq!((word(6), word(12), word(11), word(3), word(21)), (0, 4096, at, at + 100, 0));
        assert_eq!(set(&1, 6, at + 200), 0);
        assert_eq!(word(6), 1);
        assert_eq!(set(&0, 6, at), 0);
        assert_eq!(word(6), 0);
        assert_eq!((set(&1, 7, at), set(std::ptr::null(), 6, at), set(&1, 6, 8)), (1, 1, 1));
        let mut pool = std::ptr::null_mut::<std::ffi::c_void>();
        assert_eq!(library.symbol::<GetFor<Handle, i32>>("cuDeviceGetMemPool")(&mut pool, 0), 0);
        assert_eq!(word(17), pool as u64);
        let mut out = 0;
        assert_eq!((get(&mut out, 5, at), get(&mut out, 99, at)), (NOT_SUPPORTED, INVALID_VALUE));
    }
}
