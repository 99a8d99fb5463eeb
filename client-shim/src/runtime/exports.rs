//! The symbols that programs link to: for each entry of the [table](super::table) a jump to its function.
//!
//! `cudaX` is what a 13.x program is bound to, and a 12.x program too unless there is a `cudaX_v12`.

use super::table::for_each_runtime_entry_point;

/// A jump, which leaves all arguments where they are.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($symbol:ident, $($path:tt)+) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[allow(non_snake_case)]
        pub(crate) extern "C" fn $symbol() {
            std::arch::naked_asm!("jmp {}", sym crate::runtime::$($path)+)
        }
    };
}

/// A jump, which leaves all arguments where they are.
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($symbol:ident, $($path:tt)+) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[allow(non_snake_case)]
        pub(crate) extern "C" fn $symbol() {
            std::arch::naked_asm!("b {}", sym crate::runtime::$($path)+)
        }
    };
}

macro_rules! make_exports {
    ($($node:ident $name:ident as $symbol:ident [$($path:tt)+];)*) => {
        $(jump!($symbol, $($path)+);)*
    };
}
for_each_runtime_entry_point!(make_exports);
