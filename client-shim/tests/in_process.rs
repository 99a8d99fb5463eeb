//! The library as "the driver" of a process that loads it: the exported switch.

use std::ffi::{c_char, c_void};

mod library;

type Call0 = extern "C" fn() -> u32;
type Init = extern "C" fn(u32) -> u32;
type GetCount = unsafe extern "C" fn(*mut i32) -> u32;
type GetName = unsafe extern "C" fn(*mut c_char, i32, i32) -> u32;
type Retain = unsafe extern "C" fn(*mut *mut c_void, i32) -> u32;
type SetCurrent = unsafe extern "C" fn(*mut c_void) -> u32;
type Alloc = unsafe extern "C" fn(*mut u64, usize) -> u32;
type Fill = unsafe extern "C" fn(u64, u32, usize) -> u32;
type Wait = unsafe extern "C" fn(*mut c_void, u64, u32, u32) -> u32;
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
    let library = library::Library::load();
    // SAFETY: these are the types of the functions of these names.
    unsafe {
        let switch: Call0 = library.symbol("rgpu_use_in_process");
        let init: Init = library.symbol("cuInit");
        // Nobody listens there. That it failed must not stand in the way.
        assert_ne!(init(0), 0);
        assert_eq!(switch(), 0);
        assert_eq!(switch(), 0);
        assert_eq!(init(0), 0);
        assert_eq!(switch(), 0);
        let mut count = 0;
        assert_eq!(library.symbol::<GetCount>("cuDeviceGetCount")(&mut count), 0);
        assert_eq!(count, 1);
        let mut text = [0 as c_char; 64];
        assert_eq!(library.symbol::<GetName>("cuDeviceGetName")(text.as_mut_ptr(), 64, 0), 0);
        let text = std::ffi::CStr::from_ptr(text.as_ptr()).to_str().unwrap();
        assert!(text.contains("software GPU"), "{text}");
        let mut context = std::ptr::null_mut();
        assert_eq!(library.symbol::<Retain>("cuDevicePrimaryCtxRetain")(&mut context, 0), 0);
        assert_eq!(library.symbol::<SetCurrent>("cuCtxSetCurrent")(context), 0);
        let (mut at, mut numbers) = (0, [0u32; 100]);
        assert_eq!(library.symbol::<Alloc>("cuMemAlloc_v2")(&mut at, 400), 0);
        assert_eq!(library.symbol::<Fill>("cuMemsetD32_v2")(at, 4711, 100), 0);
        assert_eq!(library.symbol::<CopyOut>("cuMemcpyDtoH_v2")(numbers.as_mut_ptr().cast(), at, 400), 0);
        assert_eq!(numbers, [4711; 100]);
        // The process ends although a stream waits for a value that no word will ever have.
        assert_eq!(library.symbol::<Wait>("cuStreamWaitValue32_v2")(std::ptr::null_mut(), at, 1, 1), 0);
    }
}
