//! The form of a door's table: one row for each entry point of a library that this one stands in for.
//!
//! ```text
//! name     suffix  from, until    twin           body
//! cuMemcpyHtoD(_v2) 3020          / _ptds 7000   [copy::cuMemcpyHtoD_v2];
//! cudaGetDeviceProperties 12000..13000 as _v12   [device::get_device_properties_11];
//! cuSurfObjectCreate 5000                        [unsupported];
//! ```
//!
//! - *Name*: by which programs ask for it, linked, with `dlsym` or through `cuGetProcAddress`. Where a library has
//!   several interfaces under one name, the suffix in parentheses leads to the symbol of this one.
//! - *From* which version (13000 is CUDA 13.0) the name means this interface: until the next row of the same name, or
//!   up to the version after the two dots, from which on the library has it no more. Where two rows of a library
//!   whose programs see one version each would have the same symbol, the older is exported with what follows `as`.
//!   A library that tells its versions apart by the file's name alone has rows from the oldest that is served.
//! - *Twin*: what programs call that were compiled for per-thread default streams, and since when.
//! - *Body*: the function, which also tells the signature (see [`c_functions`](crate::abi::c_functions)), for some types where
//!   one function stands for several: `[level1::axpy<f32, i64>]`; where there is
//!   a twin, it is generic over which of both it is. `[exported a, b]` are a function and its twin that are exported
//!   themselves, for launches, where a jump more would count. `[unsupported]` says its name once and refuses.
//!
//! From a table come the library's symbols (each a jump to its body), the answers of `cuGetProcAddress`, the targets
//! to which a statically linked runtime is redirected, and the page of supported calls. A test compares it with the
//! public headers. To add a call is to write a row, or to replace `unsupported` in it, and the body.

#[cfg(test)]
use crate::abi::signature::Signature;

/// The address of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address(pub(crate) *const ());
// SAFETY: the address of a function may be read from any thread.
unsafe impl Sync for Address {}
// SAFETY: as above.
unsafe impl Send for Address {}

/// The variant of an entry point whose stream 0 is the calling thread's own default stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Twin {
    /// What its name ends in: `_ptsz`, or `_ptds` where the call has no stream among its arguments.
    pub(crate) suffix: &'static str,
    /// The symbol under which it is exported.
    #[cfg(test)]
    pub(crate) symbol: &'static str,
    /// The version from which it is there.
    pub(crate) since: u32,
    /// The function.
    pub(crate) address: Address,
}

/// One interface of one entry point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// The name by which programs ask for it.
    pub(crate) name: &'static str,
    /// The symbol under which it is exported.
    #[cfg(test)]
    pub(crate) symbol: &'static str,
    /// The version from which the name means this interface.
    pub(crate) since: u32,
    /// The version from which it is no longer there.
    pub(crate) until: u32,
    /// The function.
    pub(crate) address: Address,
    /// Its variant for per-thread default streams.
    pub(crate) twin: Option<Twin>,
    /// Whether there is more behind it than a refusal.
    #[cfg(test)]
    pub(crate) implemented: bool,
    /// How it is called, where it is implemented.
    #[cfg(test)]
    pub(crate) signature: Option<Signature>,
}

impl Row {
    /// Whether a library of this version has it.
    pub(crate) fn is_in(&self, version: u32) -> bool {
        (self.since..self.until).contains(&version)
    }
}

/// The rows of one name in a table, which are ascending by name and then by version.
pub(crate) fn rows_of<'t>(table: &'t [Row], name: &str) -> &'t [Row] {
    let table = &table[table.partition_point(|row| row.name < name)..];
    &table[..table.partition_point(|row| row.name == name)]
}

/// A symbol that is a jump to a function, which leaves all arguments where they are; yields the function's address.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($symbol:expr, $($function:tt)+) => {{
        #[unsafe(export_name = $symbol)]
        #[unsafe(naked)]
        extern "C" fn jump() {
            std::arch::naked_asm!("jmp {}", sym $($function)+)
        }
        $crate::doors::table::Address($($function)+ as *const ())
    }};
}

/// A symbol that is a jump to a function, which leaves all arguments where they are; yields the function's address.
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($symbol:expr, $($function:tt)+) => {{
        #[unsafe(export_name = $symbol)]
        #[unsafe(naked)]
        extern "C" fn jump() {
            std::arch::naked_asm!("b {}", sym $($function)+)
        }
        $crate::doors::table::Address($($function)+ as *const ())
    }};
}
pub(crate) use jump;

/// Exports what a row's body says under a symbol, and yields the function's address. In brackets: the row's twin, if
/// it has one; `twin` stands for the twin itself.
macro_rules! entry_point {
    ($refuse:path, $symbol:expr, $which:tt, unsupported) => {{
        #[unsafe(export_name = $symbol)]
        extern "C" fn unsupported() -> u32 {
            $refuse($symbol)
        }
        $crate::doors::table::Address(unsupported as *const ())
    }};
    ($refuse:path, $symbol:expr, [$twin:ident], exported $($body:ident)::+, $($other:ident)::+) => {
        $crate::doors::table::Address($($body)::+ as *const ())
    };
    ($refuse:path, $symbol:expr, twin, exported $($other:ident)::+, $($body:ident)::+) => {
        $crate::doors::table::Address($($body)::+ as *const ())
    };
    ($refuse:path, $symbol:expr, [], $($body:ident)::+) => {
        $crate::doors::table::jump!($symbol, $($body)::+)
    };
    ($refuse:path, $symbol:expr, [], $($body:ident)::+ < $($of:ty),+ >) => {
        $crate::doors::table::jump!($symbol, $($body)::+::<$($of),+>)
    };
    ($refuse:path, $symbol:expr, [$twin:ident], $($body:ident)::+) => {
        $crate::doors::table::jump!($symbol, $($body)::+::<false>)
    };
    ($refuse:path, $symbol:expr, twin, $($body:ident)::+) => {
        $crate::doors::table::jump!($symbol, $($body)::+::<true>)
    };
}
pub(crate) use entry_point;

/// Makes a table from rows, and the library's symbols. What nobody implemented answers with what the function after
/// `refusing by` makes of its symbol.
macro_rules! entry_points {
    ($(#[$meta:meta])* static $table:ident refusing by $refuse:path; $(
        $name:ident $(($version:ident))? $since:literal $(.. $until:literal $(as $old:ident)?)?
            $(/ $twin:ident $twin_since:literal)? [$($body:tt)+];
    )*) => {
        $(#[$meta])*
        pub(crate) static $table: &[$crate::doors::table::Row] = &[$($crate::doors::table::Row {
            name: stringify!($name),
            #[cfg(test)]
            symbol: concat!(stringify!($name) $(, stringify!($version))? $($(, stringify!($old))?)?),
            since: $since,
            until: $crate::doors::table::entry_points!(@until $($until)?),
            address: $crate::doors::table::entry_point!(
                $refuse,
                concat!(stringify!($name) $(, stringify!($version))? $($(, stringify!($old))?)?),
                [$($twin)?],
                $($body)+
            ),
            twin: $crate::doors::table::entry_points!(
                @twin [$($twin $twin_since)?] $refuse, [$name $($version)?] [$($($old)?)?] $($body)+
            ),
            #[cfg(test)]
            implemented: $crate::doors::table::entry_points!(@implemented $($body)+),
            #[cfg(test)]
            signature: $crate::doors::table::entry_points!(@signature $($body)+),
        }),*];

        // A table that nobody looks into still makes the library's symbols.
        const _: &&[$crate::doors::table::Row] = &$table;
    };
    (@until) => {
        u32::MAX
    };
    (@until $until:literal) => {
        $until
    };
    (@twin [] $($rest:tt)*) => {
        None
    };
    (@twin [$twin:ident $since:literal] $refuse:path, [$($name:ident)+] [$($old:ident)?] $($body:tt)+) => {
        Some($crate::doors::table::Twin {
            suffix: stringify!($twin),
            #[cfg(test)]
            symbol: concat!($(stringify!($name),)+ stringify!($twin) $(, stringify!($old))?),
            since: $since,
            address: $crate::doors::table::entry_point!(
                $refuse,
                concat!($(stringify!($name),)+ stringify!($twin) $(, stringify!($old))?),
                twin,
                $($body)+
            ),
        })
    };
    (@implemented unsupported) => {
        false
    };
    (@implemented $($body:tt)+) => {
        true
    };
    (@signature unsupported) => {
        None
    };
    (@signature exported $($body:ident)::+, $($other:ident)::+) => {
        Some(<$($body)::+ as $crate::abi::signature::CFunction>::SIGNATURE)
    };
    (@signature $($body:ident)::+ < $($of:ty),+ >) => {
        Some(<$($body)::+<$($of),+> as $crate::abi::signature::CFunction>::SIGNATURE)
    };
    (@signature $($body:ident)::+) => {
        Some(<$($body)::+ as $crate::abi::signature::CFunction>::SIGNATURE)
    };
}
pub(crate) use entry_points;
