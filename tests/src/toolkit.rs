//! The CUDA compiler, headers and runtimes, fetched from PyPI into the user's cache.
//!
//! One copy serves every clone of the repository. It is complete or absent: it is unpacked in a temporary
//! directory beside its place and renamed. No GPU, driver or root is needed. The only things that have to
//! be there are `python3` with pip or venv, and a host compiler for nvcc.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::cached;

/// What is fetched: exact versions, and the digests of their wheels, which pip checks.
const REQUIREMENTS: &str = "\
nvidia-cuda-nvcc==13.0.88 --hash=sha256:56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
nvidia-cuda-crt==13.0.88 --hash=sha256:2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
nvidia-nvvm==13.0.88 --hash=sha256:c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0
nvidia-cuda-runtime==13.0.96 --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
nvidia-cuda-cccl==13.0.85 --hash=sha256:e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649
nvidia-nvml-dev==13.5.37 --hash=sha256:7394fcbefa9ba537e8238cbb1caa4cd2db6bbfbff208d217a8a884947113ae6d
nvidia-cuda-runtime-cu12==12.9.79 --hash=sha256:25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3
nvidia-cuda-cccl-cu12==12.9.27 --hash=sha256:37869e17ce2e1ecec6eddf1927cca0f8c34e64fd848d40453df559091e2d7117
";

/// Name of the directory; to be changed together with the list or the layout.
const DIRECTORY: &str = "cuda-13.0.88-12.9.79-3";

/// Which CUDA runtime a program is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// 12.9
    Cuda12,
    /// 13.0
    Cuda13,
    /// 13.0, with machine code for the GPUs of data centres besides PTX.
    Gpus,
}

impl Version {
    /// The two that programs are tested with, the newer first.
    pub const ALL: [Self; 2] = [Self::Cuda13, Self::Cuda12];

    /// The major version.
    pub fn major(self) -> &'static str {
        match self {
            Self::Cuda12 => "12",
            Self::Cuda13 | Self::Gpus => "13",
        }
    }

    /// What names of directories end in.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Gpus => "13-gpus",
            other => other.major(),
        }
    }

    /// Options for what programs are compiled for, beyond nvcc's own choice.
    pub fn architectures(self) -> &'static [&'static str] {
        match self {
            // PTX of 8.0 as well, which drivers compile for what is newer, and the software GPU runs.
            Self::Gpus => &[
                "-gencode",
                "arch=compute_80,code=[sm_80,compute_80]",
                "-gencode",
                "arch=compute_90,code=sm_90",
            ],
            Self::Cuda12 | Self::Cuda13 => &[],
        }
    }
}

/// A complete toolkit on this machine.
#[derive(Debug, Clone)]
pub struct Toolkit {
    root: PathBuf,
}

/// What [`Toolkit::fetch`] did.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// The toolkit.
    pub toolkit: Toolkit,
    /// How long it took, where it wasn't there already.
    pub took: Option<Duration>,
}

impl Toolkit {
    /// Where the toolkit belongs, whether or not it is there.
    pub fn place() -> Result<PathBuf> {
        Ok(cached::cache()?.join(DIRECTORY))
    }

    /// The toolkit, if it has been fetched and the machine can use it; the error says what is missing.
    pub fn find() -> Result<Self> {
        let root = Self::place()?;
        ensure!(
            root.join("cu13/bin/nvcc").exists(),
            "no CUDA compiler in {} (`cargo xtask toolkit` fetches it)",
            root.display()
        );
        host_compiler()?;
        Ok(Self { root })
    }

    /// Fetches the toolkit unless it is there.
    pub fn fetch() -> Result<Fetched> {
        host_compiler()?;
        let root = Self::place()?;
        let what = "the CUDA compiler and runtimes from PyPI (about 110 MB)";
        let took = cached::once(&root, what, |temporary| {
            unpack(temporary)?;
            Ok(temporary.join("toolkit"))
        })?;
        Ok(Fetched { toolkit: Self { root }, took })
    }

    /// Its directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The compiler.
    pub fn nvcc(&self) -> PathBuf {
        self.root.join("cu13/bin/nvcc")
    }

    /// The directory of a version's runtime libraries.
    pub fn lib(&self, version: Version) -> PathBuf {
        self.root.join(format!("cu{}", version.major())).join("lib")
    }

    /// The options that make nvcc compile for a version.
    pub fn compile_options(&self, version: Version) -> Vec<String> {
        match version {
            Version::Cuda13 | Version::Gpus => vec![],
            // nvcc's own directories come after those given.
            Version::Cuda12 => vec![format!("-I{}", self.root.join("cu12/include").display())],
        }
    }
}

/// Whether nvcc will find the compiler that it needs for the host's part.
fn host_compiler() -> Result<()> {
    let found = Command::new("g++").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    ensure!(
        found.is_ok_and(|s| s.success()),
        "nvcc needs a host compiler, and there is no g++. On Debian: apt-get install g++"
    );
    Ok(())
}

/// A way to call pip that works on this machine, where something (`what`) is to be fetched with it.
///
/// # Errors
/// There is none.
pub fn pip(temporary: &Path, what: &str) -> Result<Command> {
    let works = |command: &mut Command| {
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
    };
    ensure!(
        works(Command::new("python3").arg("--version")),
        "{what} is fetched with Python's pip, and there is no python3. On Debian: apt-get install python3-venv"
    );
    let venv = temporary.join("venv");
    if works(Command::new("python3").args(["-m", "venv"]).arg(&venv)) {
        let mut command = Command::new(venv.join("bin/python"));
        command.args(["-m", "pip"]);
        return Ok(command);
    }
    if works(Command::new("python3").args(["-m", "pip", "--version"])) {
        let mut command = Command::new("python3");
        command.args(["-m", "pip"]);
        return Ok(command);
    }
    bail!(
        "{what} is fetched with Python's pip, and this python3 has neither venv nor pip. \
         On Debian: apt-get install python3-venv"
    )
}

/// Downloads wheels and unpacks all of them in one folder, which is returned.
pub(crate) fn wheels(temporary: &Path, requirements: &str, platform: &[&str], what: &str) -> Result<PathBuf> {
    let list = temporary.join("requirements.txt");
    fs::write(&list, requirements)?;
    let wheels = temporary.join("wheels");
    let mut attempt = 1;
    loop {
        let output = pip(temporary, what)?
            .args(["download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"])
            .args(["--disable-pip-version-check", "--no-cache-dir", "--retries", "5"])
            .args(platform)
            .arg("--dest")
            .arg(&wheels)
            .arg("--requirement")
            .arg(&list)
            .output()?;
        if output.status.success() {
            break;
        }
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        ensure!(attempt < 3, "pip could not download it, tried {attempt} times: {what}: {reason}");
        println!("Trying again: {reason}");
        std::thread::sleep(Duration::from_secs(5 * attempt));
        attempt += 1;
    }
    let site = temporary.join("site");
    for wheel in fs::read_dir(&wheels)? {
        let wheel = wheel?.path();
        let status = Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&site).status()?;
        ensure!(status.success(), "Cannot unpack {}", wheel.display());
    }
    Ok(site)
}

/// Downloads the wheels and lays the toolkit out in `temporary/toolkit`.
fn unpack(temporary: &Path) -> Result<()> {
    let site = wheels(temporary, REQUIREMENTS, &[], "The CUDA compiler")?;
    let toolkit = temporary.join("toolkit");
    fs::create_dir_all(&toolkit)?;
    let (cu13, cu12) = (toolkit.join("cu13"), toolkit.join("cu12"));
    fs::rename(site.join("nvidia/cu13"), &cu13).context("The packages are laid out otherwise")?;
    fs::rename(site.join("nvidia/cuda_runtime"), &cu12).context("The packages are laid out otherwise")?;
    // A wheel's unpacking loses who may execute what.
    for bin in ["bin", "nvvm/bin"] {
        for file in fs::read_dir(cu13.join(bin))? {
            let file = file?.path();
            if file.is_file() {
                fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
            }
        }
    }
    // The 12.x runtime's headers want the C++ libraries of their own time.
    for part in
        fs::read_dir(site.join("nvidia/cuda_cccl/include")).context("The packages are laid out otherwise")?
    {
        let part = part?;
        if part.path().is_dir() {
            fs::rename(part.path(), cu12.join("include").join(part.file_name()))?;
        }
    }
    // What the packages leave out: the names that the linker looks for.
    std::os::unix::fs::symlink("libcudart.so.13", cu13.join("lib/libcudart.so"))?;
    std::os::unix::fs::symlink("libcudart.so.12", cu12.join("lib/libcudart.so"))?;
    // There is no nvcc 12 on PyPI. nvcc 13 compiles for the 12.x runtime with that runtime's headers, but
    // for those that nvcc's own generated code relies on.
    let crt = cu12.join("include/crt");
    if crt.exists() {
        fs::remove_dir_all(&crt)?;
    }
    std::os::unix::fs::symlink("../../cu13/include/crt", &crt)?;
    let section = cu12.join("include/fatbinary_section.h");
    if section.exists() {
        fs::remove_file(&section)?;
    }
    std::os::unix::fs::symlink("../../cu13/include/fatbinary_section.h", &section)?;
    Ok(())
}
