//! Links the plugin so that it runs with glibc 2.28.

use rgpu_linker::Build;

fn main() -> rgpu_linker::Result<()> {
    rgpu_linker::main(&Build::library(&[], &["build.rs"]), |_| Ok(()))
}
