//! Code that is compiled and linked at run time, and what is said about it and about errors in general.

use std::ffi::{CStr, CString, c_int};
use std::sync::Mutex;

use super::*;

const FILE_NOT_FOUND: u32 = 301;
const INVALID_IMAGE: u32 = 200;

type AddFile = unsafe extern "C" fn(Handle, u32, *const c_char, u32, *const u32, *mut Handle) -> u32;
type AddData = unsafe extern "C" fn(
    Handle,
    u32,
    *const c_void,
    usize,
    *const c_char,
    u32,
    *const u32,
    *mut Handle,
) -> u32;
type Create = unsafe extern "C" fn(u32, *const u32, *mut Handle, *mut Handle) -> u32;
type Complete = unsafe extern "C" fn(Handle, *mut *mut c_void, *mut usize) -> u32;

/// Where the compiler's messages go: information, errors, and the time.
struct Logs {
    text: [[u8; 300]; 2],
    options: [u32; 5],
    values: [Handle; 5],
}

impl Logs {
    fn new() -> Box<Self> {
        let mut logs = Box::new(Self {
            text: [[0xEE; 300]; 2],
            options: [3, 4, 5, 6, 2],
            values: [std::ptr::null_mut(); 5],
        });
        let [info, error] = logs.text.each_mut().map(|text| text.as_mut_ptr().cast());
        logs.values = [info, 300 as Handle, error, 300 as Handle, usize::MAX as Handle];
        logs
    }

    /// The message about an error; the size that was returned is its length.
    fn error(&self) -> &str {
        let text = CStr::from_bytes_until_nul(&self.text[1]).unwrap().to_str().unwrap();
        assert_eq!(self.values[3] as usize, text.len());
        assert_eq!((self.text[0][0], self.values[1] as usize), (0, 0), "there is no information");
        assert!((0.0..60_000.0).contains(&f32::from_bits(self.values[4] as usize as u32)));
        text
    }
}

const BROKEN: &str =
    ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry f() { mov.u32 %r1, 5; ret; }\n\0";

#[test]
fn what_is_wrong_with_code_stands_in_the_log() {
    let library = library();
    let mut made = std::ptr::null_mut();
    // SAFETY: these are the types of the functions of these names; buffers are as large as they are told.
    unsafe {
        type LoadEx = unsafe extern "C" fn(*mut Handle, *const u8, u32, *const u32, *mut Handle) -> u32;
        let mut logs = Logs::new();
        let load: LoadEx = library.symbol("cuModuleLoadDataEx");
        let code = load(&mut made, BROKEN.as_ptr(), 5, logs.options.as_ptr(), logs.values.as_mut_ptr());
        assert_eq!(code, INVALID_PTX);
        assert!(logs.error().contains("line 4"), "{}", logs.error());
        let mut logs = Logs::new();
        assert_eq!(load(&mut made, PTX.as_ptr(), 5, logs.options.as_ptr(), logs.values.as_mut_ptr()), 0);
        assert_eq!(logs.error(), "");
        assert_eq!(
            load(&mut made, PTX.as_ptr(), 5, std::ptr::null(), logs.values.as_mut_ptr()),
            INVALID_VALUE
        );

        type LoadLibrary = unsafe extern "C" fn(
            *mut Handle,
            *const u8,
            *const u32,
            *mut Handle,
            u32,
            *const u32,
            *mut Handle,
            u32,
        ) -> u32;
        for door in ["cuLibraryLoadData", "cudaLibraryLoadData"] {
            let load: LoadLibrary = library.symbol(door);
            let mut load = |text: &str, logs: &mut Logs| {
                let (null, none) = (std::ptr::null(), std::ptr::null_mut());
                let (options, values) = (logs.options.as_ptr(), logs.values.as_mut_ptr());
                load(&mut made, text.as_ptr(), options, values, 5, null, none, 0)
            };
            let mut logs = Logs::new();
            assert_eq!(load(BROKEN, &mut logs), INVALID_PTX, "{door}");
            assert!(logs.error().contains("line 4"), "{}", logs.error());
            let mut logs = Logs::new();
            assert_eq!(load("\0\0\0\0", &mut logs), INVALID_IMAGE, "{door}");
            assert!(!logs.error().is_empty());
            assert_eq!(load(PTX, &mut Logs::new()), 0, "{door}");
        }
    }
}

#[test]
fn a_link_says_what_is_wrong_with_its_inputs() {
    let library = library();
    let (mut link, mut logs) = (std::ptr::null_mut(), Logs::new());
    let directory = std::env::temp_dir().join(format!("rgpu-link-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = |name: &str| CString::new(directory.join(name).to_str().unwrap()).unwrap();
    std::fs::write(directory.join("empty.ptx"), "").unwrap();
    std::fs::write(directory.join("good.ptx"), PTX).unwrap();
    // SAFETY: these are the types of the functions of these names; the buffers outlive the link.
    unsafe {
        let create: Create = library.symbol("cuLinkCreate_v2");
        assert_eq!(create(5, logs.options.as_ptr(), logs.values.as_mut_ptr(), &mut link), 0);
        let (none, nothing) = (std::ptr::null(), std::ptr::null_mut());
        let add_file: AddFile = library.symbol("cuLinkAddFile_v2");
        let add = |name: &str| add_file(link, 1, path(name).as_ptr(), 0, none, nothing);
        assert_eq!(add("missing.ptx"), FILE_NOT_FOUND);
        assert!(logs.error().contains("missing.ptx"), "{}", logs.error());
        assert_eq!(add("empty.ptx"), INVALID_PTX);
        assert!(logs.error().contains("empty.ptx"), "{}", logs.error());
        assert_eq!(add_file(link, 1, std::ptr::null(), 0, none, nothing), INVALID_VALUE);
        let complete: Complete = library.symbol("cuLinkComplete");
        let (mut image, mut size) = (std::ptr::null_mut(), 0);
        assert_eq!(complete(link, &mut image, &mut size), INVALID_VALUE, "there is nothing to link");

        let add_data: AddData = library.symbol("cuLinkAddData_v2");
        let data = BROKEN.as_ptr().cast();
        let mut own = Logs::new();
        let options = own.options.as_ptr();
        assert_eq!(
            add_data(link, 1, data, BROKEN.len(), c"broken".as_ptr(), 5, options, own.values.as_mut_ptr()),
            INVALID_PTX
        );
        for log in [&own, &logs] {
            assert!(log.error().contains("broken: ") && log.error().contains("line 4"), "{}", log.error());
        }
        assert_eq!(add_data(link, 1, std::ptr::null(), 9, none.cast(), 0, none, nothing), INVALID_VALUE);
        assert_eq!(add_data(link, 2, data, 9, none.cast(), 0, none, nothing), NOT_SUPPORTED);
        assert_eq!(add_data(link, 77, data, 9, none.cast(), 0, none, nothing), INVALID_VALUE);

        assert_eq!(add("good.ptx"), 0);
        assert_eq!(complete(link, &mut image, &mut size), 0);
        assert_eq!(logs.error(), "");
        let mut module = std::ptr::null_mut();
        let load: GetFor<Handle, *const u8> = library.symbol("cuModuleLoadData");
        assert_eq!(load(&mut module, image.cast_const().cast()), 0);
        assert_eq!(library.symbol::<With<Handle>>("cuLinkDestroy")(link), 0);
        assert_eq!(library.symbol::<With<Handle>>("cuLinkDestroy")(link), INVALID_HANDLE);
    }
    std::fs::remove_dir_all(directory).unwrap();
}

/// What the function for messages was told.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Takes messages down, and makes a mistake of its own, of which it is told nothing.
unsafe extern "C" fn listen(library: *mut c_void, level: c_int, message: *mut c_char, len: usize) {
    // SAFETY: the text ends in NUL, and the data are what was registered.
    let (text, library) = unsafe { (CStr::from_ptr(message), &*library.cast::<Library>()) };
    assert_eq!((level, text.to_bytes().len()), (0, len));
    let text = text.to_str().unwrap();
    if text.contains("[cuMemFree_v2]") {
        // SAFETY: the type of the function.
        let status = unsafe { library.symbol::<With<Handle>>("cuStreamDestroy_v2")(std::ptr::null_mut()) };
        assert_eq!(status, INVALID_HANDLE);
        TOLD.lock().unwrap().push(text.to_owned());
    }
    assert!(!text.contains("[cuStreamDestroy_v2]"));
}

#[test]
fn errors_are_told_to_who_asks() {
    let library = library();
    // SAFETY: these are the types of the functions of these names; buffers are as large as they are told.
    unsafe {
        type Register = unsafe extern "C" fn(
            Option<unsafe extern "C" fn(*mut c_void, c_int, *mut c_char, usize)>,
            *const Library,
            *mut Handle,
        ) -> u32;
        let mut handle = std::ptr::null_mut();
        let register: Register = library.symbol("cuLogsRegisterCallback");
        assert_eq!(register(None, library, &mut handle), INVALID_VALUE);
        assert_eq!(register(Some(listen), library, &mut handle), 0);
        let mut start = 0_u32;
        let current: GetFor<u32, u32> = library.symbol("cudaLogsCurrent");
        assert_eq!((current(&mut start, 0), current(&mut start, 1)), (0, INVALID_VALUE));
        let free: With<u64> = library.symbol("cuMemFree_v2");
        assert_eq!((free(0x1235), free(0x6789)), (1, 1));
        assert_eq!(library.symbol::<With<Handle>>("cudaLogsUnregisterCallback")(handle), 0);
        assert_eq!(library.symbol::<With<Handle>>("cuLogsUnregisterCallback")(handle), INVALID_VALUE);
        assert_eq!(free(0x1111), 1);
        let told = TOLD.lock().unwrap().clone();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("][CUDA][E][cuMemFree_v2] ") && told[0].contains("0x1235"), "{told:?}");

        // Other tests make mistakes at the same time, so lines are looked for.
        type ToMemory = unsafe extern "C" fn(*mut u32, *mut u8, *mut usize, u32) -> u32;
        let to_memory: ToMemory = library.symbol("cuLogsDumpToMemory");
        let (mut text, mut size, mut at) = (vec![0xEE_u8; 60_000], 60_000, start);
        assert_eq!(to_memory(&mut at, text.as_mut_ptr(), &mut size, 0), 0);
        let lines = std::str::from_utf8(&text[..size]).unwrap();
        assert_eq!(text[size], 0);
        for wanted in [told[0].as_str(), told[1].as_str(), "0x1111"] {
            assert!(lines.lines().any(|line| line.contains(wanted)), "{wanted} in {lines}");
        }
        assert!(at.wrapping_sub(start) >= 3);
        let mut small = 20;
        assert_eq!(to_memory(&mut start.clone(), text.as_mut_ptr(), &mut small, 0), INVALID_VALUE);
        assert_eq!(small, 0);

        type ToFile = unsafe extern "C" fn(*mut u32, *const c_char, u32) -> u32;
        let path = std::env::temp_dir().join(format!("rgpu-logs-{}", std::process::id()));
        let name = CString::new(path.to_str().unwrap()).unwrap();
        assert_eq!(library.symbol::<ToFile>("cuLogsDumpToFile")(&mut start, name.as_ptr(), 0), 0);
        let written = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert!(written.contains(&told[1]), "{written}");
    }
}
