//! The nvJitLink door: what links PTX, machine code and LTO-IR into a program for one device.
//!
//! For a software GPU the result, which programs take for machine code, is PTX text again, with the NUL that ends an image of
//! text: one input passes as it is, several are linked by [`rgpu_image::link`], as `cuLink*` does. LTO-IR is a format of
//! NVIDIA's, which their own library makes PTX of where it is installed ([`lto`]); machine code cannot be used.
//!
//! With another device NVIDIA's library does it all. Where a program finds its symbols here all the same, because it is linked
//! with them and this library comes first, they are passed on.

#![allow(non_snake_case)]

/// Defines functions of the library. The body, which returns [`Result<()>`], runs where the device is a software GPU; else the
/// call goes to NVIDIA's library.
macro_rules! nvjitlink {
    ($($(#[$meta:meta])* fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $crate::abi::c_functions! {$(
            $(#[$meta])*
            fn $name($($arg: $ty),*) -> u32 {
                const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes()
                ) {
                    Ok(name) => name,
                    Err(_) => panic!("a name with a NUL"),
                };
                if let Some(real) = $crate::libraries::nvjitlink::passed_on(NAME) {
                    let Some(real) = real else { return $crate::libraries::nvjitlink::Failure::Internal as u32 };
                    // SAFETY: NVIDIA's function of this name, which is declared like this in the public header.
                    let real: extern "C" fn($($ty),*) -> u32 = unsafe { std::mem::transmute(real) };
                    return real($($arg),*);
                }
                $crate::libraries::nvjitlink::guard(stringify!($name), move || $body)
            }
        )*}
    };
}

mod input;
mod lto;
mod options;
mod output;
mod table;

use std::ffi::CStr;
use std::sync::{Arc, LazyLock, OnceLock};

use parking_lot::Mutex;

use super::Door;
use super::real::Real;
use crate::abi::{self, NotUtf8, NullPointer};
use crate::core::error;
use crate::core::registry::Registry;
use crate::doors::table::Address;
use options::Options;

/// How the names of the library's files begin.
const STEM: &str = "libnvJitLink.so";

/// The door.
pub(super) const DOOR: Door = Door {
    name: "nvjitlink",
    table: table::TABLE,
    prefixes: &["nvJitLink", "__nvJitLink"],
    row_name: table::row_name,
    kept: &[],
    unknown: Address(unknown as *const ()),
};

/// What a call returns when it fails (`nvJitLinkResult`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Failure {
    UnrecognizedOption = 1,
    MissingArch = 2,
    InvalidInput = 3,
    PtxCompile = 4,
    NvvmCompile = 5,
    Internal = 6,
    UnrecognizedInput = 8,
    Finalize = 9,
    NullInput = 10,
    UnrecognizedArch = 16,
}

impl From<NullPointer> for Failure {
    fn from(_: NullPointer) -> Self {
        Self::NullInput
    }
}

impl From<NotUtf8> for Failure {
    fn from(_: NotUtf8) -> Self {
        Self::InvalidInput
    }
}

type Result<T> = std::result::Result<T, Failure>;
type Out<T> = abi::Out<T, Failure>;
type In<T> = abi::In<T, Failure>;
type CStrArg = abi::CStrArg<Failure>;

/// What is linked.
enum Input {
    /// PTX text, without a NUL.
    Ptx(String),
    /// NVIDIA's intermediate code, and what the program calls it.
    Lto(Vec<u8>, String),
}

/// A link under way, or done.
struct Link {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    options: Options,
    inputs: Vec<Input>,
    /// What went wrong, in lines.
    errors: String,
    /// PTX text and a NUL, once the link is complete.
    linked: Option<Vec<u8>>,
}

static LINKS: LazyLock<Registry<Link>> = LazyLock::new(|| Registry::new("nvJitLink handle"));

/// The link behind a handle.
fn link(handle: usize) -> Result<Arc<Link>> {
    LINKS.get(handle).map_err(|_| Failure::InvalidInput)
}

impl State {
    /// Writes a line to the error log, and to rgpu's own, and says how the call fails.
    fn fail(&mut self, failure: Failure, line: &str) -> Failure {
        error::log(&format!("nvJitLink: {line}"));
        self.errors.push_str(line);
        self.errors.push('\n');
        failure
    }
}

/// Runs the body of an exported function: catches panics and logs failures.
fn guard(name: &'static str, body: impl FnOnce() -> Result<()>) -> u32 {
    match error::guard_value(Err(Failure::Internal), body) {
        Ok(()) => 0,
        Err(failure) => {
            error::log(&format!("{name}: {failure:?} (nvJitLink error {})", failure as u32));
            failure as u32
        }
    }
}

/// NVIDIA's function of this name, where the device is no software GPU; `Some(None)` where it is missing.
fn passed_on(name: &CStr) -> Option<Option<*const ()>> {
    if super::for_software() {
        return None;
    }
    static REAL: OnceLock<Option<Real>> = OnceLock::new();
    let found = error::guard_value(None, || {
        let real = REAL.get_or_init(|| Real::open(STEM));
        let function = real.and_then(|real| real.function(name));
        if function.is_none() {
            error::say_once(&format!(
                "{} was called, but NVIDIA's {STEM} is not installed; with a software GPU, start the program with `rgpu run`",
                name.to_string_lossy()
            ));
        }
        function
    });
    Some(found)
}

/// What a function answers that exists and is not implemented.
fn refuse(name: &'static str) -> u32 {
    guard(name, || {
        error::say_once(&format!("{name} is not implemented for a software GPU"));
        Err(Failure::InvalidInput)
    })
}

extern "C" fn unknown() -> u32 {
    refuse("a function of nvJitLink that rgpu does not know")
}
