//! A GPU by its driver alone, for tests that hold the software GPU to what hardware computes.
//!
//! Nothing of rgpu is between the test and the driver. Tests ask for it by the variable [`VARIABLE`], which names the
//! driver's library.

use libloading::Library;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};

/// The variable that names the driver's library, such as `libcuda.so.1`.
pub const VARIABLE: &str = "RGPU_TEST_DRIVER";

/// Bytes of memory that kernels are given.
pub const MEMORY: usize = 64 << 20;

/// Bytes of shared memory that a launch may add without being asked.
const USUAL_SHARED: u32 = 48 << 10;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`
const MAX_DYNAMIC_SHARED: c_int = 8;

type Status = c_int;

/// The first GPU of a driver, with [`MEMORY`] bytes of its memory.
#[derive(Debug)]
pub struct Hardware {
    driver: Library,
    device: c_int,
    context: *mut c_void,
    memory: u64,
}

/// A kernel that is loaded.
#[derive(Debug)]
pub struct Kernel {
    module: *mut c_void,
    function: *mut c_void,
}

/// How many blocks and threads, and bytes of shared memory that the launch adds.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes.
    pub shared: u32,
}

/// Calls a function of the driver by its name; an error says which failed, and how.
macro_rules! call {
    ($self:ident, $name:literal($($argument:expr => $kind:ty),*)) => {{
        // SAFETY: it is the type of the driver's function of that name.
        let function = unsafe {
            $self.driver.get::<unsafe extern "C" fn($($kind),*) -> Status>(concat!($name, "\0").as_bytes())
        };
        match function {
            Err(error) => Err(format!("the driver has no {}: {error}", $name)),
            Ok(function) => {
                // SAFETY: pointers are to variables of the caller that outlive the call; the rest are numbers and the driver's handles.
                let status = unsafe { function($($argument),*) };
                if status == 0 { Ok(()) } else { Err(format!("{} failed with error {status}", $name)) }
            }
        }
    }};
}

impl Hardware {
    /// The GPU, where [`VARIABLE`] asks for one.
    ///
    /// # Panics
    ///
    /// Where the driver that it names cannot be used.
    pub fn asked() -> Option<Self> {
        let driver = std::env::var(VARIABLE).ok().filter(|path| !path.is_empty())?;
        Some(Self::open(&driver).unwrap_or_else(|why| panic!("{VARIABLE}={driver}: {why}")))
    }

    /// Opens a driver and takes its first GPU.
    ///
    /// # Errors
    ///
    /// What failed, and with which of CUDA's error codes.
    pub fn open(driver: &str) -> Result<Self, String> {
        // SAFETY: a driver's initialisation needs nothing.
        let driver = unsafe { Library::new(driver) }.map_err(|error| error.to_string())?;
        let mut hardware = Self { driver, device: 0, context: std::ptr::null_mut(), memory: 0 };
        call!(hardware, "cuInit"(0 => c_uint))?;
        call!(hardware, "cuDeviceGet"(&mut hardware.device => *mut c_int, 0 => c_int))?;
        hardware.begin()?;
        Ok(hardware)
    }

    fn begin(&mut self) -> Result<(), String> {
        call!(self, "cuDevicePrimaryCtxRetain"(&mut self.context => *mut *mut c_void, self.device => c_int))?;
        self.enter()?;
        call!(self, "cuMemAlloc_v2"(&mut self.memory => *mut u64, MEMORY => usize))
    }

    /// Makes the context the calling thread's.
    fn enter(&self) -> Result<(), String> {
        call!(self, "cuCtxSetCurrent"(self.context => *mut c_void))
    }

    /// Begins anew, which a kernel's fault makes necessary. Memory may be elsewhere afterwards.
    ///
    /// # Errors
    ///
    /// What failed, and how.
    pub fn reset(&mut self) -> Result<(), String> {
        call!(self, "cuDevicePrimaryCtxReset_v2"(self.device => c_int))?;
        self.begin()
    }

    /// Its compute capability: 90 for 9.0.
    ///
    /// # Errors
    ///
    /// What failed, and how.
    pub fn capability(&self) -> Result<u32, String> {
        const MAJOR: c_int = 75;
        const MINOR: c_int = 76;
        let get = |attribute: c_int| {
            let mut value: c_int = 0;
            call!(self, "cuDeviceGetAttribute"(&mut value => *mut c_int, attribute => c_int, self.device => c_int))?;
            Ok::<_, String>(value as u32)
        };
        Ok(get(MAJOR)? * 10 + get(MINOR)?)
    }

    /// Where its memory begins.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Writes to its memory, from a place on.
    ///
    /// # Errors
    ///
    /// What failed, and how.
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<(), String> {
        assert!(at + bytes.len() <= MEMORY, "{} bytes at {at} are more than there is", bytes.len());
        if bytes.is_empty() {
            return Ok(());
        }
        self.enter()?;
        let (to, from) = (self.memory + at as u64, bytes.as_ptr().cast());
        call!(self, "cuMemcpyHtoD_v2"(to => u64, from => *const c_void, bytes.len() => usize))
    }

    /// Reads its memory, from a place on.
    ///
    /// # Errors
    ///
    /// What failed, and how: a kernel's fault, too.
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> Result<(), String> {
        assert!(at + bytes.len() <= MEMORY, "{} bytes at {at} are more than there is", bytes.len());
        if bytes.is_empty() {
            return Ok(());
        }
        self.enter()?;
        let (to, from) = (bytes.as_mut_ptr().cast(), self.memory + at as u64);
        call!(self, "cuMemcpyDtoH_v2"(to => *mut c_void, from => u64, bytes.len() => usize))
    }

    /// Loads a module's kernel.
    ///
    /// # Errors
    ///
    /// What the driver's compiler says.
    pub fn load(&self, ptx: &str, kernel: &str) -> Result<Kernel, String> {
        const ERROR_LOG: c_uint = 5;
        const ERROR_LOG_BYTES: c_uint = 6;
        self.enter()?;
        let text = CString::new(ptx).map_err(|error| error.to_string())?;
        let name = CString::new(kernel).map_err(|error| error.to_string())?;
        let mut log = vec![0u8; 4096];
        let mut options = [ERROR_LOG, ERROR_LOG_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void];
        let mut loaded = Kernel { module: std::ptr::null_mut(), function: std::ptr::null_mut() };
        call!(self, "cuModuleLoadDataEx"(
            &mut loaded.module => *mut *mut c_void, text.as_ptr() => *const c_char, 2 => c_uint,
            options.as_mut_ptr() => *mut c_uint, values.as_mut_ptr() => *mut *mut c_void
        ))
        .map_err(|error| {
            let said = log.split(|&byte| byte == 0).next().unwrap_or_default();
            format!("{error}: {}", String::from_utf8_lossy(said))
        })?;
        call!(self, "cuModuleGetFunction"(
            &mut loaded.function => *mut *mut c_void, loaded.module => *mut c_void, name.as_ptr() => *const c_char
        ))?;
        Ok(loaded)
    }

    /// Lets a kernel go.
    ///
    /// # Errors
    ///
    /// What failed, and how.
    pub fn unload(&self, kernel: Kernel) -> Result<(), String> {
        self.enter()?;
        call!(self, "cuModuleUnload"(kernel.module => *mut c_void))
    }

    /// Launches a kernel with a block of parameters, and waits for it.
    ///
    /// # Errors
    ///
    /// What failed, and how: a kernel's fault, too, after which there is nothing but [`reset`](Self::reset).
    pub fn launch(&self, kernel: &Kernel, shape: Shape, params: &[u8]) -> Result<(), String> {
        // CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END.
        let mut length = params.len();
        let mut extra = [
            std::ptr::without_provenance_mut::<c_void>(1),
            params.as_ptr().cast_mut().cast(),
            std::ptr::without_provenance_mut(2),
            (&raw mut length).cast(),
            std::ptr::null_mut(),
        ];
        let nothing: *mut *mut c_void = std::ptr::null_mut();
        let (grid, block) = (shape.grid, shape.block);
        self.enter()?;
        if shape.shared > USUAL_SHARED {
            call!(self, "cuFuncSetAttribute"(kernel.function => *mut c_void, MAX_DYNAMIC_SHARED => c_int, shape.shared as c_int => c_int))?;
        }
        call!(self, "cuLaunchKernel"(
            kernel.function => *mut c_void,
            grid[0] => c_uint, grid[1] => c_uint, grid[2] => c_uint,
            block[0] => c_uint, block[1] => c_uint, block[2] => c_uint,
            shape.shared => c_uint, std::ptr::null_mut() => *mut c_void,
            nothing => *mut *mut c_void, extra.as_mut_ptr() => *mut *mut c_void
        ))?;
        call!(self, "cuCtxSynchronize"())
    }
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Hardware {}
