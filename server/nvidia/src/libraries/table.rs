//! The tables of the libraries' functions: each one that an operation calls, described once.
//!
//! A row is the function's arguments and its name in the library; where there is one for each type of elements, it is
//! a list. A library may lack any of them: whoever calls it is told by name.

use rgpu_device::{Code, Error, Result};
use std::ffi::{c_int, c_void};

/// `cublasStatus_t` and its like; 0 is success.
pub(crate) type Status = c_int;
/// An opaque handle or descriptor of a library.
pub(crate) type Object = *mut c_void;
/// An address on the device, where a function takes a pointer.
pub(crate) type Address = u64;
/// A factor: on the host, or on the device where the library was told so.
pub(crate) type Factor = *const c_void;

/// Finds a symbol of a library, or null.
pub(crate) type Find<'a> = &'a dyn Fn(&str) -> *const c_void;

/// A function of a library.
pub(crate) struct Entry<F> {
    /// Its name.
    pub name: &'static str,
    /// The function, where the library has it.
    pub found: Option<F>,
}

impl<F: Copy> Entry<F> {
    /// The function.
    pub(crate) fn get(&self) -> Result<F> {
        self.found.ok_or_else(|| {
            Error::new(Code::NotSupported, format!("The server's library has no {}", self.name))
        })
    }
}

/// What is known about an entry of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// The functions' names.
    pub names: &'static [&'static str],
    /// The arguments' types, as they are written in Rust.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests compare them with headers"))]
    pub arguments: &'static [&'static str],
}

/// A table of functions.
pub(crate) trait Functions: Sized {
    /// What it has.
    const ROWS: &'static [Row];

    /// Finds all functions.
    ///
    /// # Safety
    /// What is found must be the library's.
    unsafe fn load(find: Find<'_>) -> Self;
}

/// Makes a `Table` of rows `field(arguments): KIND names;`. Kinds are `one` function; functions for `four` types (S,
/// D, C and Z) or for the `real` or `complex` ones alone, given by what stands before and behind the letter; and a
/// `list` of four names.
macro_rules! functions {
    ($($field:ident($($argument:ty),* $(,)?): $kind:ident $($name:literal)+;)*) => {
        /// The library's functions.
        pub(crate) struct Table {
            $(pub $field: functions!(@type $kind unsafe extern "C" fn($($argument),*) -> Status),)*
        }

        impl Functions for Table {
            const ROWS: &'static [Row] = &[$(Row {
                names: &functions!(@names $kind $($name)+),
                arguments: &[$(stringify!($argument)),*],
            },)*];

            unsafe fn load(find: Find<'_>) -> Self {
                Self { $($field: functions!(@names $kind $($name)+).map(|name| {
                    let address = find(name);
                    // SAFETY: the caller vouches for the library, whose interface the row describes. Null becomes
                    // `None`.
                    let found = unsafe {
                        std::mem::transmute::<
                            *const std::ffi::c_void,
                            Option<unsafe extern "C" fn($($argument),*) -> Status>,
                        >(address)
                    };
                    Entry { name, found }
                }),)* }
            }
        }
    };
    (@type one $function:ty) => { [Entry<$function>; 1] };
    (@type real $function:ty) => { [Entry<$function>; 2] };
    (@type complex $function:ty) => { [Entry<$function>; 2] };
    (@type four $function:ty) => { [Entry<$function>; 4] };
    (@type list $function:ty) => { [Entry<$function>; 4] };
    (@names one $name:literal) => { [$name] };
    (@names list $a:literal $b:literal $c:literal $d:literal) => { [$a, $b, $c, $d] };
    (@names real $a:literal $b:literal) => { [concat!($a, "S", $b), concat!($a, "D", $b)] };
    (@names complex $a:literal $b:literal) => { [concat!($a, "C", $b), concat!($a, "Z", $b)] };
    (@names four $a:literal $b:literal) => {
        [concat!($a, "S", $b), concat!($a, "D", $b), concat!($a, "C", $b), concat!($a, "Z", $b)]
    };
}
pub(crate) use functions;

/// Calls a function of a table: `call!(table.field(arguments))`, with `[number]` behind the field where there are
/// several. What it answers is looked up in the file's `STATUS`.
macro_rules! call {
    ($table:ident.$field:ident($($argument:expr),* $(,)?)) => { call!($table.$field[0]($($argument),*)) };
    ($table:ident.$field:ident[$number:expr]($($argument:expr),* $(,)?)) => {{
        let entry = &$table.$field[$number];
        match entry.get() {
            // SAFETY: the table says what the function takes. What the host's pointers point to outlives the call,
            // and is as long as the function says; what those of the device point to is the device's to check.
            Ok(function) => STATUS.check(entry.name, unsafe { function($($argument),*) }),
            Err(error) => Err(error),
        }
    }};
}
pub(crate) use call;

/// A new object, which `create` puts into its place.
pub(crate) fn made(create: impl FnOnce(&mut Object) -> Result<()>) -> Result<Object> {
    let mut object = std::ptr::null_mut();
    create(&mut object)?;
    Ok(object)
}

/// A library's version as one number: `per_major` times the major version, 100 times the minor one, and what comes then.
/// `part` gets a `libraryPropertyType` and writes the part.
pub(crate) fn assembled(per_major: c_int, part: impl Fn(u32, &mut c_int) -> Result<()>) -> Result<u32> {
    let mut parts = [0; 3];
    for (which, place) in (0..).zip(&mut parts) {
        part(which, place)?;
    }
    Ok((parts[0] * per_major + parts[1] * 100 + parts[2]) as u32)
}

/// A status of a library: its number, its name behind the prefix, and what it is to a device.
pub(crate) type Named = (Status, &'static str, Code);

/// The statuses of a library.
pub(crate) struct Statuses {
    /// What their names begin with.
    pub prefix: &'static str,
    /// All that are known. Others are failures of the library.
    pub known: &'static [Named],
}

impl Statuses {
    /// The error of a status that `function` has answered.
    pub(crate) fn check(&self, function: &str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let known = self.known.iter().find(|(number, ..)| *number == status);
        let (name, code) = match known {
            Some((_, name, code)) => (format!("{}{name}", self.prefix), *code),
            None => (format!("the status {status}"), Code::LaunchFailed),
        };
        Err(Error::new(code, format!("{function} on the server answered {name}")))
    }
}
