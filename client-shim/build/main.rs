//! Builds `librgpu.so` so that the dynamic loader takes it for the CUDA driver and runtime.
//!
//! Three things about the library cannot be said in Rust: its SONAME, that its constructor runs before
//! all others, and its symbol versions. The first two are linker options. The third is not, because rustc
//! passes an anonymous version script of its own, which no linker accepts together with named nodes. So
//! the link of the library goes through a wrapper that replaces that script ([`rgpu_linker`], [`linker`]).

#[expect(
    dead_code,
    unreachable_pub,
    reason = "a file of another crate, of which the link needs the names alone"
)]
#[path = "../../control/src/libraries.rs"]
mod libraries;
mod linker;

use rgpu_linker::Build;

fn main() -> rgpu_linker::Result<()> {
    let options = [
        "-Wl,-soname,libcuda.so.1",
        // The constructor runs before those of the program's own libraries.
        "-Wl,-z,initfirst",
        // The dynamic loader itself calls into the library from then on, so it can never be unloaded.
        "-Wl,-z,nodelete",
        // Calls inside the library stay inside, whatever names the program has.
        "-Wl,-Bsymbolic",
    ];
    let build = Build::library(&options, &["build", "../control/src/libraries.rs"]);
    rgpu_linker::main(&build, linker::adjust)
}
