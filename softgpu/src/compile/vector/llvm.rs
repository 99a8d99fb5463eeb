//! The machine's own libLLVM, if it has one: opened when a kernel is first to be compiled with it, never needed to build rgpu.
//! All of LLVM's C interface that is used stands here.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use libloading::Library;
use parking_lot::{RwLock, RwLockReadGuard};

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
    LLVMParseCommandLineOptions: fn(c_int, *const *const c_char, *const c_char);
    LLVMInitializeX86TargetInfo: fn();
    LLVMInitializeX86Target: fn();
    LLVMInitializeX86TargetMC: fn();
    LLVMInitializeX86AsmPrinter: fn();
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
    LLVMGetTargetFromTriple: fn(*const c_char, *mut Pointer, *mut *mut c_char) -> c_int;
    LLVMCreateTargetMachine: fn(Pointer, *const c_char, *const c_char, *const c_char, c_int, c_int, c_int) -> Pointer;
    LLVMDisposeTargetMachine: fn(Pointer);
    LLVMCreateTargetDataLayout: fn(Pointer) -> Pointer;
    LLVMSetModuleDataLayout: fn(Pointer, Pointer);
    LLVMDisposeTargetData: fn(Pointer);
    LLVMTargetMachineEmitToMemoryBuffer: fn(Pointer, Pointer, c_int, *mut *mut c_char, *mut Pointer) -> c_int;
    LLVMGetBufferStart: fn(Pointer) -> *const c_char;
    LLVMGetBufferSize: fn(Pointer) -> usize;
    LLVMDisposeMemoryBuffer: fn(Pointer);
    LLVMPrintModuleToString: fn(Pointer) -> *mut c_char;
}

/// What is opened, newest first.
const NAMES: [&str; 13] = [
    "libLLVM.so.23.1",
    "libLLVM.so.22.1",
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
    WITH_TYPED_POINTERS,
];

/// The last version whose pointers say what they lead to, unless it is told otherwise.
const WITH_TYPED_POINTERS: &str = "libLLVM-14.so.1";

/// The option that tells it.
const OPAQUE_POINTERS: &CStr = c"-opaque-pointers";

/// Keeps the pass that makes instructions of two operands from moving them about: it looks at instructions there that it has removed, and mostly, but not always,
/// finds what they were (LLVM 15, with a crash in half of all compiles of some kernels).
const STAYS_IN_ORDER: &CStr = c"-twoaddr-reschedule=0";

/// Leaves out the pass that moves logic from general registers to those of masks where that is shorter: on processors with AVX-512 it took most of the
/// time of a long kernel with many masks.
const MASKS_STAY: &CStr = c"-disable-x86-domain-reassignment";

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
    let _opening = OPENING.write();
    BEGUN_BY.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: LLVM's constructors only register its parts.
    let library = NAMES.iter().find_map(|&name| Some((name, unsafe { Library::new(name) }.ok()?)));
    let (name, library) = library.ok_or("there is no libLLVM 14 to 23")?;
    let opaque = (name == WITH_TYPED_POINTERS).then_some(OPAQUE_POINTERS);
    let arguments = [Some(c"rgpu"), Some(STAYS_IN_ORDER), Some(MASKS_STAY), opaque];
    let arguments = arguments.map(|argument| argument.map(CStr::as_ptr));
    let arguments: Vec<_> = arguments.into_iter().flatten().collect();
    let functions = Functions::of(library)?;
    // SAFETY: called before anything else of the library, and all arguments are strings. An option that a version does not know is passed over.
    unsafe {
        (functions.LLVMParseCommandLineOptions)(arguments.len() as c_int, arguments.as_ptr(), c"".as_ptr());
    }
    // SAFETY: called once, before anything is compiled. What is registered behind the library's own destructors runs before
    // them.
    unsafe {
        libc::atexit(wait_for_all);
        #[cfg(target_arch = "x86_64")]
        if !super::exit::registers_no_more(functions.LLVMContextCreate as *const c_void) {
            return Err("this libLLVM could not be kept from taking itself apart".into());
        }
        (functions.LLVMInitializeX86TargetInfo)();
        (functions.LLVMInitializeX86Target)();
        (functions.LLVMInitializeX86TargetMC)();
        (functions.LLVMInitializeX86AsmPrinter)();
    }
    Ok(functions)
}

/// Held for reading by who compiles. True as soon as the process ends.
static ENDS: RwLock<bool> = RwLock::new(false);

/// Somebody compiles: a process that ends waits for that.
pub(super) struct Busy {
    _ends: RwLockReadGuard<'static, bool>,
}

impl Busy {
    /// Begins to compile; not where the process ends already. Whoever has one must not ask for another.
    pub(super) fn begin() -> Result<Self, String> {
        BEGUN_BY.store(std::process::id(), Ordering::Relaxed);
        let ends = ENDS.read();
        if *ends { Err("the process ends".into()) } else { Ok(Self { _ends: ends }) }
    }
}

/// The process that has compiled, or opened the library; none yet: 0.
static BEGUN_BY: AtomicU32 = AtomicU32::new(0);

/// Held for writing while the library is opened. Until that is done, what it has registered for the end of the process goes before
/// [`wait_for_all`].
static OPENING: RwLock<()> = RwLock::new(());

/// Whether this process is the one that compiles. A child that was forked has no thread that does, even where it was forked while one did.
fn is_own_compiler() -> bool {
    [0, std::process::id()].contains(&BEGUN_BY.load(Ordering::Relaxed))
}

/// Waits until nobody compiles, and nobody begins any more: what the library registered when it was opened goes behind this.
extern "C" fn wait_for_all() {
    if is_own_compiler() {
        *ENDS.write() = true;
    }
}

/// Called when a thread ends that [`wait_when_thread_ends`] was called in, or the process if that thread ends it.
extern "C" fn thread_ends(_: *mut c_void) {
    // SAFETY: plain calls.
    if unsafe { libc::gettid() == libc::getpid() } {
        wait_for_all();
    } else if is_own_compiler() {
        // Nobody can tell whether only this thread ends, so it waits for no more than can take the library apart too early.
        drop(OPENING.read());
    }
}

thread_local! {
    static NOTED: Cell<bool> = const { Cell::new(false) };
}

/// Has a process that this thread ends wait for who compiles, if it is the first thread, and else for the library to be open. The C library lets go of
/// what belongs to the thread before it takes anything apart: even while the library is being opened, and has registered some of its own parts
/// for that.
///
/// Must not be called with a lock held: the C library takes the loader's, which a thread may hold that loads or unloads a library and waits for that lock.
pub(super) fn wait_when_thread_ends() {
    type Register = unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, *const c_void) -> c_int;
    if NOTED.replace(true) {
        return;
    }
    // A destructor of Rust's would not do: in the client library those of the first thread do not run when the process ends.
    // SAFETY: the name is a string, and the function has this type in the C library that has it. It calls `thread_ends` once, with the null
    // pointer, and keeps this library loaded until then.
    unsafe {
        let register = libc::dlsym(libc::RTLD_DEFAULT, c"__cxa_thread_atexit_impl".as_ptr());
        if !register.is_null() {
            let register = std::mem::transmute::<*mut c_void, Register>(register);
            register(thread_ends, null_mut(), (&raw const OPENING).cast());
        }
    }
}

/// Whether there is an LLVM, and why not.
pub(super) fn available() -> Result<(), String> {
    functions().map(|_| ())
}

/// How long the first launch that needs the library waits for it.
const SOON: Duration = Duration::from_secs(10);

/// Whether a launch has waited in vain. The library is still being opened then, and later launches have it when it is.
static LATE: AtomicBool = AtomicBool::new(false);

/// Opens the library, or says that this takes too long: it takes the dynamic loader's lock, which a thread may have that waits for this launch, in a
/// constructor of a library that the program opens.
pub(super) fn open_soon() -> Result<(), String> {
    const WHY: &str = "libLLVM could not be opened, for the loader has been busy";
    if FUNCTIONS.get().is_none() {
        // A program that opens and closes libraries again and again may leave the lock to nobody: not every launch is to wait for it.
        if LATE.load(Ordering::Relaxed) {
            return Err(WHY.into());
        }
        let (done, opened) = mpsc::channel();
        let open = move || {
            // The process waits for that.
            let _busy = Busy::begin();
            let _ = functions();
            let _ = done.send(());
        };
        std::thread::Builder::new().name("rgpu-compiler".into()).spawn(open).map_err(|e| e.to_string())?;
        opened.recv_timeout(SOON).map_err(|_| {
            LATE.store(true, Ordering::Relaxed);
            WHY
        })?;
    }
    available()
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

/// What compiling needs, given back in the end.
struct Work {
    f: &'static Functions,
    context: Pointer,
    module: Pointer,
    machine: Pointer,
    object: Pointer,
}

impl Drop for Work {
    fn drop(&mut self) {
        let f = self.f;
        // SAFETY: what is not null is this work's own. The context goes last.
        unsafe {
            for (pointer, dispose) in [
                (self.object, f.LLVMDisposeMemoryBuffer),
                (self.machine, f.LLVMDisposeTargetMachine),
                (self.module, f.LLVMDisposeModule),
                (self.context, f.LLVMContextDispose),
            ] {
                if !pointer.is_null() {
                    dispose(pointer);
                }
            }
        }
    }
}

// Of LLVM's enumerations.
const OPTIMISED: c_int = 2;
const POSITION_INDEPENDENT: c_int = 2;
const SMALL: c_int = 3;
const OBJECT_FILE: c_int = 1;

/// Compiles a module's text to an object file of this machine's format.
pub(super) fn compile(text: &str, _: &Busy) -> Result<Vec<u8>, String> {
    let f = functions()?;
    let (context, module, machine, object) = (null_mut(), null_mut(), null_mut(), null_mut());
    let mut work = Work { f, context, module, machine, object };
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
        work.machine = machine_for(f, work.module)?;
        let passes = (f.LLVMCreatePassBuilderOptions)();
        (f.LLVMPassBuilderOptionsSetLoopVectorization)(passes, 0);
        (f.LLVMPassBuilderOptionsSetSLPVectorization)(passes, 0);
        let error = (f.LLVMRunPasses)(work.module, c"default<O2>".as_ptr(), work.machine, passes);
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
        let (machine, module) = (work.machine, work.module);
        let emit = f.LLVMTargetMachineEmitToMemoryBuffer;
        if emit(machine, module, OBJECT_FILE, &mut why, &mut work.object) != 0 {
            work.object = null_mut();
            return Err(message(f, why));
        }
        let (start, size) = ((f.LLVMGetBufferStart)(work.object), (f.LLVMGetBufferSize)(work.object));
        Ok(std::slice::from_raw_parts(start.cast::<u8>(), size).to_vec())
    }
}

/// Has a module compiled for this machine: code that may lie anywhere.
///
/// # Safety
/// `module` must be a module that no other thread knows.
unsafe fn machine_for(f: &Functions, module: Pointer) -> Result<Pointer, String> {
    // SAFETY: as LLVM's headers ask; the texts and the layout are given back.
    unsafe {
        let triple = (f.LLVMGetDefaultTargetTriple)();
        let (mut target, mut why) = (null_mut(), null_mut());
        let found = (f.LLVMGetTargetFromTriple)(triple, &mut target, &mut why);
        if found != 0 {
            (f.LLVMDisposeMessage)(triple);
            return Err(message(f, why));
        }
        let (name, features) = ((f.LLVMGetHostCPUName)(), (f.LLVMGetHostCPUFeatures)());
        let create = f.LLVMCreateTargetMachine;
        let machine = create(target, triple, name, features, OPTIMISED, POSITION_INDEPENDENT, SMALL);
        if !machine.is_null() {
            (f.LLVMSetTarget)(module, triple);
            let layout = (f.LLVMCreateTargetDataLayout)(machine);
            (f.LLVMSetModuleDataLayout)(module, layout);
            (f.LLVMDisposeTargetData)(layout);
        }
        [triple, name, features].into_iter().for_each(|text| (f.LLVMDisposeMessage)(text));
        if machine.is_null() { Err("LLVM knows no such machine".into()) } else { Ok(machine) }
    }
}
