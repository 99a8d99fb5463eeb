//! The few driver calls that the measuring program makes, from whatever `libcuda.so.1` the loader finds:
//! the preloaded library, or the machine's own driver.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use libloading::{Library, Symbol};

use crate::Failure;

type Status = c_int;

/// A kernel that does nothing, with four arguments of the usual kinds: two pointers, a length, a factor.
const KERNEL: &CStr = c".version 6.4
.target sm_50
.address_size 64
.visible .entry nothing(.param .u64 a, .param .u64 b, .param .u32 n, .param .f32 f)
{
    ret;
}
";

/// An entry point of the driver.
///
/// # Safety
/// `T` must be the type of function that the name, which ends in a NUL, stands for.
unsafe fn entry<T: Copy>(library: &Library, name: &str) -> Result<T, Failure> {
    // SAFETY: the caller's promise.
    let symbol: Symbol<T> = unsafe { library.get(name.as_bytes()) }
        .map_err(|e| Failure::new(format!("The CUDA driver has no {}: {e}", name.trim_end_matches('\0'))))?;
    Ok(*symbol)
}

macro_rules! calls {
    ($($field:ident = $name:literal ($($arg:ty),*);)*) => {
        /// The driver's entry points that are used.
        struct Calls { $($field: unsafe extern "C" fn($($arg),*) -> Status,)* }
        impl Calls {
            fn load(library: &Library) -> Result<Self, Failure> {
                Ok(Self { $($field: {
                    type Entry = unsafe extern "C" fn($($arg),*) -> Status;
                    // SAFETY: the type is the one that the driver API documents for this name.
                    unsafe { entry::<Entry>(library, concat!($name, "\0")) }?
                },)* })
            }
        }
    };
}

calls! {
    init = "cuInit" (c_uint);
    get_error_name = "cuGetErrorName" (Status, *mut *const c_char);
    device_get = "cuDeviceGet" (*mut c_int, c_int);
    device_get_name = "cuDeviceGetName" (*mut c_char, c_int, c_int);
    retain = "cuDevicePrimaryCtxRetain" (*mut *mut c_void, c_int);
    set_current = "cuCtxSetCurrent" (*mut c_void);
    synchronize = "cuCtxSynchronize" ();
    alloc = "cuMemAlloc_v2" (*mut u64, usize);
    free = "cuMemFree_v2" (u64);
    alloc_host = "cuMemAllocHost_v2" (*mut *mut c_void, usize);
    free_host = "cuMemFreeHost" (*mut c_void);
    get_info = "cuMemGetInfo_v2" (*mut usize, *mut usize);
    to_device = "cuMemcpyHtoD_v2" (u64, *const c_void, usize);
    to_host = "cuMemcpyDtoH_v2" (*mut c_void, u64, usize);
    to_device_async = "cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, *mut c_void);
    memset = "cuMemsetD8_v2" (u64, u8, usize);
    memset_async = "cuMemsetD8Async" (u64, u8, usize, *mut c_void);
    load = "cuModuleLoadData" (*mut *mut c_void, *const c_void);
    unload = "cuModuleUnload" (*mut c_void);
    function = "cuModuleGetFunction" (*mut *mut c_void, *mut c_void, *const c_char);
    launch = "cuLaunchKernel" (*mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
                               *mut c_void, *mut *mut c_void, *mut *mut c_void);
    event_create = "cuEventCreate" (*mut *mut c_void, c_uint);
    event_destroy = "cuEventDestroy_v2" (*mut c_void);
    event_record = "cuEventRecord" (*mut c_void, *mut c_void);
    event_query = "cuEventQuery" (*mut c_void);
    event_synchronize = "cuEventSynchronize" (*mut c_void);
    stream_create = "cuStreamCreate" (*mut *mut c_void, c_uint);
    stream_destroy = "cuStreamDestroy_v2" (*mut c_void);
    stream_synchronize = "cuStreamSynchronize" (*mut c_void);
    attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
}

/// A driver with one device's primary context current, and a kernel that does nothing.
pub(crate) struct Driver {
    calls: Calls,
    device: c_int,
    first_call: u64,
    function: *mut c_void,
    _library: Library,
}

/// Host memory that the driver has pinned.
pub(crate) struct Pinned<'a> {
    driver: &'a Driver,
    at: *mut u8,
    len: usize,
}

/// Device memory.
pub(crate) struct Memory<'a> {
    driver: &'a Driver,
    /// The address of the memory on the device.
    pub at: u64,
}

impl Driver {
    /// Opens the driver and the first device.
    pub(crate) fn open() -> Result<Self, Failure> {
        // SAFETY: loading a CUDA driver runs its constructors, which is what is asked for.
        let library = unsafe { Library::new("libcuda.so.1") }
            .map_err(|e| Failure::new(format!("There is no CUDA driver here: {e}")))?;
        let calls = Calls::load(&library)?;
        let mut driver =
            Self { calls, device: 0, first_call: 0, function: ptr::null_mut(), _library: library };
        let mut context = ptr::null_mut();
        let (mut module, mut device) = (ptr::null_mut(), 0);
        let name = CString::from(c"nothing");
        let c = &driver.calls;
        // SAFETY: cuInit takes a number.
        let begun = driver.check("cuInit", unsafe { (c.init)(0) });
        begun?;
        driver.first_call = crate::start::monotonic();
        let c = &driver.calls;
        // SAFETY: all pointers are to variables of the documented types, alive during the calls.
        unsafe {
            driver.check("cuDeviceGet", (c.device_get)(&mut device, 0))?;
            driver.check("cuDevicePrimaryCtxRetain", (c.retain)(&mut context, device))?;
            driver.check("cuCtxSetCurrent", (c.set_current)(context))?;
            driver.check("cuModuleLoadData", (c.load)(&mut module, KERNEL.as_ptr().cast()))?;
            let mut function = ptr::null_mut();
            driver.check("cuModuleGetFunction", (c.function)(&mut function, module, name.as_ptr()))?;
            driver.function = function;
        }
        driver.device = device;
        Ok(driver)
    }

    /// When the first call had returned, by the system's monotonic clock.
    pub(crate) fn first_call(&self) -> u64 {
        self.first_call
    }

    /// The device's name.
    pub(crate) fn device_name(&self) -> Result<String, Failure> {
        let mut name = [0; 256];
        // SAFETY: the length is the buffer's.
        self.check("cuDeviceGetName", unsafe {
            (self.calls.device_get_name)(name.as_mut_ptr(), 256, self.device)
        })?;
        // SAFETY: the driver ends the name with a NUL inside the buffer.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }

    fn check(&self, call: &str, status: Status) -> Result<(), Failure> {
        if status == 0 {
            return Ok(());
        }
        let mut name = ptr::null();
        // SAFETY: the driver stores a pointer to a string that lives as long as it does, or null.
        let name = unsafe {
            (self.calls.get_error_name)(status, &mut name);
            if name.is_null() { "unknown error".into() } else { CStr::from_ptr(name).to_string_lossy() }
        };
        Err(Failure::new(format!("{call} failed: {name} ({status})")))
    }

    /// Waits for all work.
    pub(crate) fn synchronize(&self) -> Result<(), Failure> {
        // SAFETY: no arguments.
        self.check("cuCtxSynchronize", unsafe { (self.calls.synchronize)() })
    }

    /// Bytes of the device's memory that are free.
    pub(crate) fn free_memory(&self) -> Result<usize, Failure> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are stored in variables.
        self.check("cuMemGetInfo", unsafe { (self.calls.get_info)(&mut free, &mut total) })?;
        Ok(free)
    }

    /// Allocates `len` bytes on the device.
    pub(crate) fn alloc(&self, len: usize) -> Result<Memory<'_>, Failure> {
        let mut at = 0;
        // SAFETY: the address is stored in a variable.
        self.check("cuMemAlloc", unsafe { (self.calls.alloc)(&mut at, len) })?;
        Ok(Memory { driver: self, at })
    }

    /// Allocates `len` bytes of pinned host memory.
    pub(crate) fn pinned(&self, len: usize) -> Result<Pinned<'_>, Failure> {
        let mut at = ptr::null_mut();
        // SAFETY: the address is stored in a variable.
        self.check("cuMemAllocHost", unsafe { (self.calls.alloc_host)(&mut at, len) })?;
        Ok(Pinned { driver: self, at: at.cast(), len })
    }

    /// Copies bytes to the device.
    pub(crate) fn to_device(&self, to: &Memory, from: &[u8]) -> Result<(), Failure> {
        // SAFETY: the slice is readable; the driver checks the device's side.
        self.check("cuMemcpyHtoD", unsafe { (self.calls.to_device)(to.at, from.as_ptr().cast(), from.len()) })
    }

    /// Copies bytes from pinned memory to the device without waiting.
    pub(crate) fn to_device_async(&self, to: &Memory, from: &Pinned, len: usize) -> Result<(), Failure> {
        // SAFETY: as above; pinned memory outlives the copy, since its owner synchronises before freeing it.
        self.check("cuMemcpyHtoDAsync", unsafe {
            (self.calls.to_device_async)(to.at, from.at.cast(), len.min(from.len), ptr::null_mut())
        })
    }

    /// Copies bytes from the device.
    pub(crate) fn to_host(&self, to: &mut [u8], from: &Memory) -> Result<(), Failure> {
        // SAFETY: the slice is writable; the driver checks the device's side.
        self.check("cuMemcpyDtoH", unsafe { (self.calls.to_host)(to.as_mut_ptr().cast(), from.at, to.len()) })
    }

    /// Launches the kernel that does nothing, with four arguments, in the default stream.
    #[inline]
    pub(crate) fn launch(&self, at: u64) -> Result<(), Failure> {
        let (mut a, mut b, mut n, mut f) = (at, at, 1u32, 1f32);
        let mut arguments: [*mut c_void; 4] = [
            ptr::from_mut(&mut a).cast(),
            ptr::from_mut(&mut b).cast(),
            ptr::from_mut(&mut n).cast(),
            ptr::from_mut(&mut f).cast(),
        ];
        let (null, none) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: four pointers to arguments of the kernel's types.
        let status = unsafe {
            let arguments = arguments.as_mut_ptr();
            (self.calls.launch)(self.function, 1, 1, 1, 32, 1, 1, 0, null, arguments, none)
        };
        self.check("cuLaunchKernel", status)
    }

    /// The calls that `rgpu bench calls` measures, by name. Each does what it names once.
    pub(crate) fn named<'a>(
        &'a self,
        memory: &'a Memory,
        scratch: &'a mut [u8],
    ) -> Vec<(&'static str, Call<'a>)> {
        let calls = &self.calls;
        let at = memory.at;
        let null: *mut c_void = ptr::null_mut();
        let (host, host_len) = (scratch.as_mut_ptr().cast::<c_void>(), scratch.len().min(4096));
        // SAFETY (all below): pointers are to variables or to the scratch buffer, which live long enough and are
        // at least as long as the lengths given; device addresses are checked by the driver.
        macro_rules! call {
            ($name:literal, $body:expr) => {
                ($name, Box::new(move || self.check($name, $body)) as Call<'a>)
            };
        }
        // SAFETY: see above.
        unsafe {
            vec![
                call!("cuDeviceGetAttribute", (calls.attribute)(&mut 0, 16, self.device)),
                call!("cuMemGetInfo", (calls.get_info)(&mut 0, &mut 0)),
                call!("cuMemAlloc + cuMemFree", {
                    let mut at = 0;
                    match (calls.alloc)(&mut at, 1 << 20) {
                        0 => (calls.free)(at),
                        bad => bad,
                    }
                }),
                call!("cuMemcpyHtoD 4 B", (calls.to_device)(at, host, 4)),
                call!("cuMemcpyHtoD 4 KiB", (calls.to_device)(at, host, host_len)),
                call!("cuMemcpyDtoH 4 B", (calls.to_host)(host, at, 4)),
                call!("cuMemcpyDtoH 4 KiB", (calls.to_host)(host, at, host_len)),
                call!("cuMemsetD8", (calls.memset)(at, 1, 4096)),
                call!("cuMemsetD8Async", (calls.memset_async)(at, 1, 4096, null)),
                ("cuLaunchKernel", Box::new(move || self.launch(at)) as Call<'a>),
                call!("cuStreamSynchronize, idle", (calls.stream_synchronize)(null)),
                ("cuLaunchKernel + cuCtxSynchronize", {
                    Box::new(move || self.launch(at).and_then(|()| self.synchronize())) as Call<'a>
                }),
                call!("cuEventCreate + cuEventDestroy", {
                    let mut event = ptr::null_mut();
                    match (calls.event_create)(&mut event, 0) {
                        0 => (calls.event_destroy)(event),
                        bad => bad,
                    }
                }),
                call!("cuEventRecord + cuEventSynchronize", {
                    let mut event = ptr::null_mut();
                    let made = (calls.event_create)(&mut event, 0);
                    let recorded = (calls.event_record)(event, null);
                    let waited = (calls.event_synchronize)(event);
                    let _ = (calls.event_query)(event); // counted with the rest
                    [made, recorded, waited, (calls.event_destroy)(event)].into_iter().max().unwrap_or(0)
                }),
                call!("cuStreamCreate + cuStreamDestroy", {
                    let mut stream = ptr::null_mut();
                    match (calls.stream_create)(&mut stream, 0) {
                        0 => (calls.stream_destroy)(stream),
                        bad => bad,
                    }
                }),
                call!("cuModuleLoadData + cuModuleUnload", {
                    let mut module = ptr::null_mut();
                    match (calls.load)(&mut module, KERNEL.as_ptr().cast()) {
                        0 => (calls.unload)(module),
                        bad => bad,
                    }
                }),
            ]
        }
    }
}

/// One call, or a few that belong together.
pub(crate) type Call<'a> = Box<dyn FnMut() -> Result<(), Failure> + 'a>;

impl Pinned<'_> {
    /// The bytes.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the driver gave `len` bytes, which the exclusive borrow guards.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // SAFETY: freed once. A failure at the end of a measurement changes nothing.
        let _ = unsafe { (self.driver.calls.free_host)(self.at.cast()) };
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: freed once. A failure at the end of a measurement changes nothing.
        let _ = unsafe { (self.driver.calls.free)(self.at) };
    }
}
