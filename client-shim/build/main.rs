//! Builds `librgpu.so` so that the dynamic loader takes it for the CUDA driver and runtime.
//!
//! Three things about the library cannot be said in Rust: its SONAME, that its constructor runs before
//! all others, and its symbol versions. The first two are linker options. The third is not, because rustc
//! passes an anonymous version script of its own, which no linker accepts together with named nodes. So
//! the link of the library goes through a wrapper that replaces that script: this very program, copied to
//! a directory where the C compiler looks for its linker ([`linker`]).
//!
//! All of it is asked for with `cargo::rustc-cdylib-link-arg`, so it needs no configuration outside this
//! package and touches nothing but the library.

#[expect(
    dead_code,
    unreachable_pub,
    reason = "a file of another crate, of which the link needs the names alone"
)]
#[path = "../../control/src/libraries.rs"]
mod libraries;
mod linker;
mod old_glibc;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let program = env::args_os().next().map(PathBuf::from).unwrap_or_default();
    if program.file_name().is_some_and(|name| name == linker::WRAPPER_NAME) {
        return linker::main(&program);
    }
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=../control/src/libraries.rs");
    println!("cargo::rerun-if-env-changed=RUSTC");

    let directory = PathBuf::from(variable("OUT_DIR")?).join("linker");
    fs::create_dir_all(&directory)?;
    let wrapper = directory.join(linker::WRAPPER_NAME);
    // A new file rather than an overwritten one: the old one may be running.
    let _ = fs::remove_file(&wrapper);
    fs::copy(env::current_exe()?, &wrapper)?;
    fs::write(directory.join(linker::REAL_LINKER_FILE), real_linker()?.as_os_str().as_encoded_bytes())?;

    let argument = |text: &str| println!("cargo::rustc-cdylib-link-arg={text}");
    argument("-fuse-ld=bfd");
    argument(&format!("-B{}", directory.display()));
    argument("-Wl,-soname,libcuda.so.1");
    // The constructor runs before those of the program's own libraries.
    argument("-Wl,-z,initfirst");
    // The dynamic loader itself calls into the library from then on, so it can never be unloaded.
    argument("-Wl,-z,nodelete");
    // Calls inside the library stay inside, whatever names the program has.
    argument("-Wl,-Bsymbolic");
    Ok(())
}

/// The linker that does the work: rustc's own where it has one, else the system's.
fn real_linker() -> Result<PathBuf, Box<dyn Error>> {
    let output = Command::new(variable("RUSTC")?).args(["--print", "sysroot"]).output()?;
    let sysroot = String::from_utf8(output.stdout)?;
    let rust_lld =
        Path::new(sysroot.trim()).join("lib/rustlib").join(variable("HOST")?).join("bin/gcc-ld/ld.lld");
    if rust_lld.is_file() {
        return Ok(rust_lld);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    for name in ["ld.lld", "ld.bfd", "ld"] {
        if let Some(found) = env::split_paths(&path).map(|p| p.join(name)).find(|p| p.is_file()) {
            return Ok(found);
        }
    }
    Err("No linker was found: install binutils or lld".into())
}

fn variable(name: &str) -> Result<String, Box<dyn Error>> {
    env::var(name).map_err(|e| format!("Cargo did not set {name}: {e}").into())
}
