//! The product built for another kind of processor, tried on this machine: CUDA programs for that processor, compiled here, run emulated
//! with its library: with the software GPU inside, and with this machine's server.
//!
//! nvcc compiles for another processor with that one's C++ compiler and CUDA runtime; PyPI has the latter.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::examples::{self, target};
use crate::packages::Architecture;
use crate::product::{Daemon, Product};
use crate::toolkit::{Toolkit, wheels};
use crate::{cached, emulator, process};

/// The runtime, and the digest of its wheel for 64-bit ARM.
const RUNTIME: &str = "nvidia-cuda-runtime==13.0.96 --hash=sha256:ef9bcbe90493a2b9d810e43d249adb3d02e98dd30200d86607d8d02687c43f55";
/// Examples that are tried: kernels, atomic operations and order among threads, streams, host memory, and one that loads a library
/// with kernels later. Each is seconds of emulation at most.
const PROGRAMS: [&str; 8] = [
    "vector_add",
    "memory_order",
    "histogram_atomics",
    "reduction_shuffle",
    "streams_events_threads",
    "host_memory",
    "errors",
    "graphs",
];

/// What is tried, for 64-bit ARM.
#[derive(Debug)]
pub struct Trial {
    folder: PathBuf,
    library: PathBuf,
    runtime: PathBuf,
    compiler: PathBuf,
}

impl Trial {
    /// Of a built library, `librgpu.so` in `binaries`.
    ///
    /// # Errors
    /// Something is missing, and what: the library, the emulator, compilers, or the runtime. It is a reason to skip a test.
    pub fn prepare(binaries: &Path) -> Result<Self> {
        let library = binaries.join("librgpu.so");
        ensure!(
            library.exists(),
            "{} is missing: cargo xtask package --target aarch64-unknown-linux-gnu builds it",
            library.display()
        );
        emulator::command(&library, Architecture::Aarch64)?;
        let compiler = format!("{}-g++", Architecture::Aarch64.triplet());
        let status = Command::new(&compiler).arg("--version").stdout(Stdio::null()).status();
        ensure!(
            status.is_ok_and(|status| status.success()),
            "there is no {compiler} (on Debian: apt-get install g++-aarch64-linux-gnu)"
        );
        let toolkit = Toolkit::fetch()?.toolkit;
        let runtime = cached::cache()?.join("cuda-runtime-13.0.96-aarch64");
        let what = "the CUDA runtime for 64-bit ARM from PyPI (2 MB)";
        cached::once(&runtime, what, |temporary| {
            let platform = ["--platform", "manylinux2014_aarch64"];
            let lib = wheels(temporary, RUNTIME, &platform, what)?.join("nvidia/cu13/lib");
            symlink("libcudart.so.13", lib.join("libcudart.so"))?;
            Ok(lib)
        })?;
        let folder = target().join("examples/aarch64");
        fs::create_dir_all(&folder)?;
        Ok(Self { folder, library, runtime, compiler: toolkit.nvcc() })
    }

    /// Runs all programs in all ways, and returns what was run. `own` is the product for this machine.
    ///
    /// # Errors
    /// The first program that fails, and how.
    pub fn run(&self, own: &Product) -> Result<Vec<String>> {
        let daemon = Daemon::start(own)?;
        let mut seen = Vec::new();
        for (index, name) in PROGRAMS.into_iter().enumerate() {
            for link in ["static", "shared"] {
                // Linking is looked at with the first program.
                if link == "shared" && index > 0 {
                    continue;
                }
                let program = self.compile(name, link)?;
                for server in [None, Some(daemon.address())] {
                    let mut command = emulator::command(&program, Architecture::Aarch64)?;
                    match server {
                        None => command.env("RGPU_IN_PROCESS", "1").env("RGPU_SOFT_WORKERS", "2"),
                        Some(address) => {
                            command.env("RGPU_SERVER", address.to_string()).env("RGPU_TRANSPORT", "tcp")
                        }
                    };
                    // The emulator of Debian is linked statically, so it is only the program that these are for.
                    command.env("LD_PRELOAD", &self.library).env("LD_LIBRARY_PATH", self.links()?);
                    let way = if server.is_some() { "server" } else { "in-process" };
                    let what = format!("{name}, {link} runtime, {way}");
                    let done = process::run(&mut command)
                        .and_then(process::Finished::success)
                        .with_context(|| what.clone())?;
                    ensure!(done.stdout.contains(&format!("{name}: ok")), "{what}: {}", done.output());
                    seen.push(what);
                }
            }
        }
        Ok(seen)
    }

    /// A folder in which programs find the library under the runtime's name.
    fn links(&self) -> Result<PathBuf> {
        let folder = self.folder.join("links");
        fs::create_dir_all(&folder)?;
        let link = folder.join("libcudart.so.13");
        let _ = fs::remove_file(&link);
        symlink(self.library.canonicalize()?, link)?;
        Ok(folder)
    }

    /// Compiles an example unless it is there.
    fn compile(&self, name: &str, link: &str) -> Result<PathBuf> {
        let source = examples::repository().join("examples").join(format!("{name}.cu"));
        let program = self.folder.join(format!("{name}.{link}"));
        if program.exists() && fs::metadata(&program)?.modified()? > fs::metadata(&source)?.modified()? {
            return Ok(program);
        }
        let mut nvcc = Command::new(&self.compiler);
        nvcc.arg("-ccbin").arg(format!("{}-g++", Architecture::Aarch64.triplet()));
        nvcc.args(["-cudart", "none", "-o"]).arg(&program).arg(&source).arg("-L").arg(&self.runtime);
        match link {
            "static" => nvcc.args(["-lcudart_static", "-lpthread", "-ldl", "-lrt"]),
            _ => nvcc.arg("-lcudart"),
        };
        nvcc.arg("-I").arg(examples::repository().join("examples"));
        process::run(&mut nvcc)?.success().with_context(|| format!("Compiling {name} for 64-bit ARM"))?;
        Ok(program)
    }
}
