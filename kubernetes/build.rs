//! Links the driver so that it runs with glibc 2.28.

use rgpu_linker::Build;

fn main() -> rgpu_linker::Result<()> {
    rgpu_linker::main(&Build::programs(), |_| Ok(()))
}
