//! The machine's own libLLVM, if it has one: opened when a kernel is first to be compiled with it, never needed to build rgpu.
//! All of LLVM's C interface that is used stands here.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use libloading::Library;
use parking_lot::RwLock;

type Pointer = *mut c_void;

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library that are called.
        #[allow(non_snake_case)] // The names are LLVM's.
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Keeps them.
            _library: Library,
        }

        impl Functions {
            fn of(library: Library) -> Result<Self, String> {
                // SAFETY: the types are those of LLVM's headers, alike in all versions that are opened.
                unsafe {
                    Ok(Self {
                        $($name: *library
                            .get(concat!(stringify!($name), "\0").as_bytes())
                            .map_err(|e| e.to_string())?,)*
                        _library: library,
                    })
                }
            }
        }
    };
}

functions! {
    LLVMInitializeX86TargetInfo: fn();
    LLVMInitializeX86Target: fn();
    LLVMInitializeX86TargetMC: fn();
    LLVMInitializeX86AsmPrinter: fn();
    LLVMLinkInMCJIT: fn();
    LLVMContextCreate: fn() -> Pointer;
    LLVMContextDispose: fn(Pointer);
    LLVMCreateMemoryBufferWithMemoryRangeCopy: fn(*const c_char, usize, *const c_char) -> Pointer;
    LLVMParseIRInContext: fn(Pointer, Pointer, *mut Pointer, *mut *mut c_char) -> c_int;
    LLVMDisposeMessage: fn(*mut c_char);
    LLVMDisposeModule: fn(Pointer);
    LLVMGetHostCPUName: fn() -> *mut c_char;
    LLVMGetHostCPUFeatures: fn() -> *mut c_char;
    LLVMGetDefaultTargetTriple: fn() -> *mut c_char;
    LLVMSetTarget: fn(Pointer, *const c_char);
    LLVMCreatePassBuilderOptions: fn() -> Pointer;
    LLVMDisposePassBuilderOptions: fn(Pointer);
    LLVMPassBuilderOptionsSetLoopVectorization: fn(Pointer, c_int);
    LLVMPassBuilderOptionsSetSLPVectorization: fn(Pointer, c_int);
    LLVMRunPasses: fn(Pointer, *const c_char, Pointer, Pointer) -> Pointer;
    LLVMGetErrorMessage: fn(Pointer) -> *mut c_char;
    LLVMDisposeErrorMessage: fn(*mut c_char);
    LLVMCreateMCJITCompilerForModule: fn(*mut Pointer, Pointer, Pointer, usize, *mut *mut c_char) -> c_int;
    LLVMInitializeMCJITCompilerOptions: fn(Pointer, usize);
    LLVMGetExecutionEngineTargetMachine: fn(Pointer) -> Pointer;
    LLVMGetFunctionAddress: fn(Pointer, *const c_char) -> u64;
    LLVMDisposeExecutionEngine: fn(Pointer);
    LLVMPrintModuleToString: fn(Pointer) -> *mut c_char;
}

/// What is opened, newest first. Versions before 15 have other pointers.
const NAMES: [&str; 10] = [
    "libLLVM.so.21.1",
    "libLLVM.so.20.1",
    "libLLVM.so.19.1",
    "libLLVM.so.18.1",
    "libLLVM-19.so.1",
    "libLLVM-18.so.1",
    "libLLVM-17.so.1",
    "libLLVM-16.so.1",
    "libLLVM-15.so.1",
    "libLLVM-15.so",
];

// SAFETY: pointers to functions, which any thread may call; each compile has a context of its own.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();

/// Whether the library has been opened.
pub(super) fn is_open() -> bool {
    matches!(FUNCTIONS.get(), Some(Ok(_)))
}

fn functions() -> Result<&'static Functions, String> {
    FUNCTIONS.get_or_init(open).as_ref().map_err(String::clone)
}

fn open() -> Result<Functions, String> {
    // SAFETY: LLVM's constructors only register its parts.
    let library = NAMES.iter().find_map(|name| unsafe { Library::new(name) }.ok());
    let functions = Functions::of(library.ok_or("there is no libLLVM 15 to 21")?)?;
    // SAFETY: called once, before anything else of the library. What is registered behind the library's own destructors runs before
    // them.
    unsafe {
        OPENED_BY.store(std::process::id(), Ordering::Relaxed);
        libc::atexit(wait_for_all);
        #[cfg(target_arch = "x86_64")]
        if !super::exit::registers_no_more(functions.LLVMContextCreate as *const c_void) {
            return Err("this libLLVM could not be kept from taking itself apart".into());
        }
        (functions.LLVMInitializeX86TargetInfo)();
        (functions.LLVMInitializeX86Target)();
        (functions.LLVMInitializeX86TargetMC)();
        (functions.LLVMInitializeX86AsmPrinter)();
        (functions.LLVMLinkInMCJIT)();
    }
    Ok(functions)
}

/// Held for reading by who compiles. True as soon as the process ends.
static ENDS: RwLock<bool> = RwLock::new(false);

/// The process that has opened the library.
static OPENED_BY: AtomicU32 = AtomicU32::new(0);

/// Waits until nobody compiles, and nobody begins any more: what the library registered when it was opened goes behind this. A child that
/// was forked has no thread that compiles, even where it was forked while one did.
extern "C" fn wait_for_all() {
    if OPENED_BY.load(Ordering::Relaxed) == std::process::id() {
        *ENDS.write() = true;
    }
}

/// Whether there is an LLVM, and why not.
pub(super) fn available() -> Result<(), String> {
    functions().map(|_| ())
}

/// A text of LLVM's, which is given back to it.
///
/// # Safety
/// `text` must be null or a text that `LLVMDisposeMessage` takes.
unsafe fn message(f: &Functions, text: *mut c_char) -> String {
    if text.is_null() {
        return "LLVM does not say why".into();
    }
    // SAFETY: a text that ends with a zero, ours to give back.
    unsafe {
        let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
        (f.LLVMDisposeMessage)(text);
        copy
    }
}

/// The processor, as attributes of a function.
pub(super) fn processor() -> Result<String, String> {
    let f = functions()?;
    // SAFETY: both texts are ours.
    let (name, features) =
        unsafe { (message(f, (f.LLVMGetHostCPUName)()), message(f, (f.LLVMGetHostCPUFeatures)())) };
    Ok(format!(
        "\"target-cpu\"=\"{name}\" \"target-features\"=\"{features}\" \"prefer-vector-width\"=\"512\""
    ))
}

/// Machine code that LLVM has made, with the function in it.
pub(super) struct Compiled {
    engine: Pointer,
    context: Pointer,
    /// The address of the function `kernel`.
    pub address: usize,
}

// SAFETY: nothing of it is changed before it is dropped, by whoever has it last.
unsafe impl Send for Compiled {}
// SAFETY: as above.
unsafe impl Sync for Compiled {}

impl Drop for Compiled {
    fn drop(&mut self) {
        let ends = ENDS.read();
        if let (Ok(f), false) = (functions(), *ends) {
            // SAFETY: both are ours; kernels that run keep this alive.
            unsafe {
                (f.LLVMDisposeExecutionEngine)(self.engine);
                (f.LLVMContextDispose)(self.context);
            }
        }
    }
}

/// What compiling needs, disposed of if it fails.
struct Work {
    f: &'static Functions,
    context: Pointer,
    module: Pointer,
    engine: Pointer,
}

impl Drop for Work {
    fn drop(&mut self) {
        // SAFETY: what is not null is this work's own; the engine owns the module.
        unsafe {
            if !self.engine.is_null() {
                (self.f.LLVMDisposeExecutionEngine)(self.engine);
            } else if !self.module.is_null() {
                (self.f.LLVMDisposeModule)(self.module);
            }
            if !self.context.is_null() {
                (self.f.LLVMContextDispose)(self.context);
            }
        }
    }
}

/// Layout of `LLVMMCJITCompilerOptions`, with room for what newer versions add.
#[repr(C)]
struct Options {
    level: u32,
    model: c_int,
    no_frame_pointer_elimination: c_int,
    fast_selection: c_int,
    manager: Pointer,
}

/// Compiles a module's text.
pub(super) fn compile(text: &str) -> Result<Compiled, String> {
    let f = functions()?;
    let ends = ENDS.read();
    if *ends {
        return Err("the process ends".into());
    }
    let mut work = Work { f, context: null_mut(), module: null_mut(), engine: null_mut() };
    let text = CString::new(text).map_err(|e| e.to_string())?;
    // SAFETY: the calls are as LLVM's headers ask; everything belongs to this context, which no other thread knows.
    unsafe {
        work.context = (f.LLVMContextCreate)();
        let bytes = text.as_bytes();
        let buffer =
            (f.LLVMCreateMemoryBufferWithMemoryRangeCopy)(text.as_ptr(), bytes.len(), c"kernel".as_ptr());
        let mut why = null_mut();
        if (f.LLVMParseIRInContext)(work.context, buffer, &mut work.module, &mut why) != 0 {
            work.module = null_mut();
            return Err(message(f, why));
        }
        let triple = (f.LLVMGetDefaultTargetTriple)();
        (f.LLVMSetTarget)(work.module, triple);
        (f.LLVMDisposeMessage)(triple);
        let mut options = std::mem::zeroed::<Options>();
        (f.LLVMInitializeMCJITCompilerOptions)((&raw mut options).cast(), size_of::<Options>());
        options.level = 2;
        let size = size_of::<Options>();
        let created = (f.LLVMCreateMCJITCompilerForModule)(
            &mut work.engine,
            work.module,
            (&raw mut options).cast(),
            size,
            &mut why,
        );
        if created != 0 {
            work.engine = null_mut();
            return Err(message(f, why));
        }
        let passes = (f.LLVMCreatePassBuilderOptions)();
        (f.LLVMPassBuilderOptionsSetLoopVectorization)(passes, 0);
        (f.LLVMPassBuilderOptionsSetSLPVectorization)(passes, 0);
        let machine = (f.LLVMGetExecutionEngineTargetMachine)(work.engine);
        let error = (f.LLVMRunPasses)(work.module, c"default<O2>".as_ptr(), machine, passes);
        (f.LLVMDisposePassBuilderOptions)(passes);
        if !error.is_null() {
            let text = (f.LLVMGetErrorMessage)(error);
            let why = CStr::from_ptr(text).to_string_lossy().into_owned();
            (f.LLVMDisposeErrorMessage)(text);
            return Err(why);
        }
        if super::SHOWS {
            eprintln!("{}", message(f, (f.LLVMPrintModuleToString)(work.module)));
        }
        let address = (f.LLVMGetFunctionAddress)(work.engine, c"kernel".as_ptr()) as usize;
        if address == 0 {
            return Err("LLVM made no machine code".into());
        }
        let compiled = Compiled { engine: work.engine, context: work.context, address };
        (work.engine, work.module, work.context) = (null_mut(), null_mut(), null_mut());
        Ok(compiled)
    }
}
