//! The library as "the driver" of a process that loads it: the exported switch.

use std::ffi::{CString, c_char, c_void};
use std::path::PathBuf;

/// Finds an entry point.
///
/// # Safety
/// `T` must be the type of the function of this name.
unsafe fn symbol<T>(library: *mut c_void, name: &str) -> T {
    let text = CString::new(name).unwrap();
    // SAFETY: the library is open and the name ends in NUL.
    let found = unsafe { libc::dlsym(library, text.as_ptr()) };
    assert!(!found.is_null(), "there is no {name}");
    assert_eq!(size_of::<T>(), size_of::<*mut c_void>());
    // SAFETY: the caller's promise.
    unsafe { std::mem::transmute_copy(&found) }
}

type Call0 = extern "C" fn() -> u32;
type Init = extern "C" fn(u32) -> u32;
type GetCount = unsafe extern "C" fn(*mut i32) -> u32;
type GetName = unsafe extern "C" fn(*mut c_char, i32, i32) -> u32;
type Retain = unsafe extern "C" fn(*mut *mut c_void, i32) -> u32;
type SetCurrent = unsafe extern "C" fn(*mut c_void) -> u32;
type Alloc = unsafe extern "C" fn(*mut u64, usize) -> u32;
type Fill = unsafe extern "C" fn(u64, u32, usize) -> u32;
type CopyOut = unsafe extern "C" fn(*mut c_void, u64, usize) -> u32;

/// One story, because it is about the process.
#[test]
fn the_switch_makes_it_a_driver_whatever_the_environment_says() {
    // SAFETY: no other thread of this program looks at the environment.
    unsafe {
        std::env::set_var("RGPU_SERVER", "127.0.0.1:1");
        std::env::set_var("RGPU_IN_PROCESS", "0");
        std::env::set_var("RGPU_SOFT_DEVICES", "3");
    }
    let path: PathBuf = std::env::current_exe().unwrap().parent().unwrap().join("librgpu.so");
    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the name ends in NUL; the library is ours.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!library.is_null());
    // SAFETY: these are the types of the functions of these names.
    unsafe {
        let switch: Call0 = symbol(library, "rgpu_use_in_process");
        let init: Init = symbol(library, "cuInit");
        // Nobody listens there. That it failed must not stand in the way.
        assert_ne!(init(0), 0);
        assert_eq!(switch(), 0);
        assert_eq!(switch(), 0);
        assert_eq!(init(0), 0);
        assert_eq!(switch(), 0);
        let mut count = 0;
        assert_eq!(symbol::<GetCount>(library, "cuDeviceGetCount")(&mut count), 0);
        assert_eq!(count, 1);
        let mut text = [0 as c_char; 64];
        assert_eq!(symbol::<GetName>(library, "cuDeviceGetName")(text.as_mut_ptr(), 64, 0), 0);
        let text = std::ffi::CStr::from_ptr(text.as_ptr()).to_str().unwrap();
        assert!(text.contains("software GPU"), "{text}");
        let mut context = std::ptr::null_mut();
        assert_eq!(symbol::<Retain>(library, "cuDevicePrimaryCtxRetain")(&mut context, 0), 0);
        assert_eq!(symbol::<SetCurrent>(library, "cuCtxSetCurrent")(context), 0);
        let (mut at, mut numbers) = (0, [0u32; 100]);
        assert_eq!(symbol::<Alloc>(library, "cuMemAlloc_v2")(&mut at, 400), 0);
        assert_eq!(symbol::<Fill>(library, "cuMemsetD32_v2")(at, 4711, 100), 0);
        assert_eq!(symbol::<CopyOut>(library, "cuMemcpyDtoH_v2")(numbers.as_mut_ptr().cast(), at, 400), 0);
        assert_eq!(numbers, [4711; 100]);
    }
}
