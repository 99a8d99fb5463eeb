//! Kernels that the fake driver knows by name: what the PTX of `rgpu-conformance` says, in Rust.

use crate::sys::Status;

/// A kernel, with the addresses of the variables that it uses.
pub(super) enum Known {
    Store,
    Successor,
    Sum(u64, u64),
    Strict,
    Narrow,
    Failing,
    Speaking,
}

impl Known {
    /// The kernel with this name.
    pub(super) fn named(name: &str, variable: impl Fn(&str) -> u64) -> Option<Self> {
        Some(match name {
            "store" => Self::Store,
            "successor" => Self::Successor,
            "sum" => Self::Sum(variable("start"), variable("fixed")),
            "strict" => Self::Strict,
            "narrow" => Self::Narrow,
            "failing" => Self::Failing,
            "speaking" => Self::Speaking,
            _ => return None,
        })
    }

    /// Runs it; says what has become of the context.
    pub(super) fn run(&self, threads: u64, params: &[u8]) -> Status {
        let long = |at: usize| u64::from_le_bytes(params[at..at + 8].try_into().unwrap());
        let put = |at: u64, word: u32| {
            if at < 4096 {
                return 700;
            }
            // SAFETY: the cases pass device memory, which is memory of this process, or an address that is refused above.
            unsafe { (at as *mut u32).write_unaligned(word) };
            0
        };
        // SAFETY: as above.
        let get = |at: u64| unsafe { (at as *const u32).read_unaligned() };
        match self {
            Self::Store => {
                let value = u32::from_le_bytes(params[8..12].try_into().unwrap());
                (0..threads).map(|i| put(long(0) + i * 4, value + i as u32)).max().unwrap_or(0)
            }
            Self::Successor => put(long(0), get(long(8)) + 1),
            Self::Sum(start, fixed) => put(long(0), get(*start) + get(*fixed)),
            Self::Strict => put(long(0), 9),
            Self::Failing => 710,
            Self::Narrow | Self::Speaking => 0,
        }
    }
}
