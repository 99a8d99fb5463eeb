//! The example programs and how they are compiled.
//!
//! `examples/NAME.cu` is a program. Lines at its top that begin with `// rgpu-` say what it needs beyond a
//! plain `nvcc NAME.cu`:
//!
//! ```text
//! // rgpu-nvcc: OPTIONS…          more options for nvcc
//! // rgpu-part: SHORT FILE        another file that the program is linked from
//! // rgpu-library: SHORT FILE     a shared library libNAME_SHORT.so that the program is linked with
//! // rgpu-plugin: SHORT FILE      a shared library libNAME_SHORT.so that lies beside the program
//! // rgpu-fatbin: SHORT FILE      NAME_SHORT.fatbin and NAME_SHORT.ptx beside the program
//! // rgpu-libcuda: …              the program is linked with -lcuda
//! // rgpu-cudadevrt: …            the program is linked with -lcudadevrt, for kernels that launch kernels
//! // rgpu-cuda12: …               a program that only tests use is compiled for CUDA 12, too
//! ```
//!
//! Each example is compiled once per CUDA version and linked with the static and the shared runtime; most programs that only tests use are
//! for the newest version alone. What was built is kept under `target/examples` for as long as nothing that it depends on changes.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};

use crate::toolkit::{Toolkit, Version};

/// Changes when the way in which programs are compiled does, so that all are compiled anew.
const RECIPE: u32 = 2;

/// How a program gets its CUDA runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Linking {
    /// nvcc's default: inside the program.
    Static,
    /// `-cudart shared`.
    Shared,
}

impl Linking {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Static, Self::Shared];

    /// As nvcc calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Shared => "shared",
        }
    }
}

/// One example program.
#[derive(Debug, Clone)]
pub struct Example {
    /// Its name.
    pub name: String,
    source: PathBuf,
    options: Vec<String>,
    parts: Vec<(String, PathBuf)>,
    libraries: Vec<(String, PathBuf)>,
    plugins: Vec<(String, PathBuf)>,
    fatbins: Vec<(String, PathBuf)>,
    libcuda: bool,
    cudadevrt: bool,
    cuda12: bool,
}

/// The repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in the repository").to_owned()
}

/// Cargo's target directory.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from)
}

/// All examples, by name.
pub fn all() -> Result<Vec<Example>> {
    let mut examples = in_directory(&repository().join("examples"))?;
    examples.iter_mut().for_each(|example| example.cuda12 = true);
    Ok(examples)
}

/// The test programs that use libraries of mathematics, by name.
pub const OF_LIBRARIES: [&str; 3] = ["cublas", "mathematics", "transformer"];

/// The examples that need a software GPU, by name: what they use is refused on an NVIDIA GPU.
pub const OF_SOFTWARE_GPUS: [&str; 3] = ["textures", "texture_references", "conditional_graphs"];

/// The examples that are compiled for one architecture alone, by name, and so not for what `cargo xtask gpu-check` packs.
pub const OF_ONE_ARCHITECTURE: [&str; 1] = ["wgmma_matmul"];

/// The programs that `cargo xtask gpu-check` takes along besides the examples, by name.
pub fn for_gpu_check() -> Result<Vec<Example>> {
    let mut programs = in_directory(&repository().join("tests/gpu_check"))?;
    programs.extend(
        for_tests()?.into_iter().filter(|program| {
            program.name == "nvml_queries" || OF_LIBRARIES.contains(&program.name.as_str())
        }),
    );
    Ok(programs)
}

/// The programs that only tests use, by name.
pub fn for_tests() -> Result<Vec<Example>> {
    in_directory(&repository().join("tests/programs"))
}

fn in_directory(directory: &Path) -> Result<Vec<Example>> {
    let mut examples = vec![];
    for entry in fs::read_dir(directory).with_context(|| format!("Reading {}", directory.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "cu") {
            examples.push(Example::read(&path)?);
        }
    }
    examples.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(examples)
}

/// Builds what isn't built yet of the versions that a program is for, with as many jobs as there are processors. Returns how many were compiled.
pub fn build(toolkit: &Toolkit, examples: &[Example], versions: &[Version]) -> Result<usize> {
    let place = target().join("examples");
    fs::create_dir_all(&place)?;
    let lock = File::create(place.join("lock"))?;
    // SAFETY: flock takes a descriptor, which `lock` keeps open, and no pointers.
    let locked = unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) };
    ensure!(locked == 0, "Cannot lock: {}", std::io::Error::last_os_error());

    let mut due = VecDeque::new();
    for &version in versions {
        for example in examples.iter().filter(|e| e.cuda12 || version != Version::Cuda12) {
            let hash = example.hash(toolkit)?;
            let stamp = example.stamp(version);
            if fs::read_to_string(&stamp).is_ok_and(|s| s == hash) {
                continue;
            }
            due.push_back((example, version, stamp, hash));
        }
    }
    let count = due.len();
    if count > 0 {
        println!("Compiling CUDA programs with nvcc: {count}");
    }
    let queue = Mutex::new(due);
    let jobs = std::thread::available_parallelism().map_or(2, |n| n.get());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    loop {
                        let next = queue.lock().expect("no worker panics").pop_front();
                        let Some((example, version, stamp, hash)) = next else { return Ok(()) };
                        example.compile(toolkit, version).inspect_err(|_| {
                            queue.lock().expect("no worker panics").clear();
                        })?;
                        fs::write(stamp, hash)?;
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|w| w.join().expect("no worker panics"))
    })?;
    Ok(count)
}

impl Example {
    fn read(source: &Path) -> Result<Self> {
        let text = fs::read_to_string(source)?;
        let directory = source.parent().context("A source without a directory")?;
        let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut example = Self {
            name,
            source: source.to_owned(),
            options: vec![],
            parts: vec![],
            libraries: vec![],
            plugins: vec![],
            fatbins: vec![],
            libcuda: false,
            cudadevrt: false,
            cuda12: false,
        };
        for line in text.lines().take_while(|l| l.starts_with("//")) {
            let Some((key, value)) = line.strip_prefix("// rgpu-").and_then(|l| l.split_once(": ")) else {
                continue;
            };
            let pair = || -> Result<(String, PathBuf)> {
                let (short, file) =
                    value.split_once(' ').with_context(|| format!("`{line}` lacks a file"))?;
                Ok((short.to_owned(), directory.join(file)))
            };
            match key {
                "nvcc" => example.options.extend(value.split_whitespace().map(str::to_owned)),
                "part" => example.parts.push(pair()?),
                "library" => example.libraries.push(pair()?),
                "plugin" => example.plugins.push(pair()?),
                "fatbin" => example.fatbins.push(pair()?),
                "libcuda" => example.libcuda = true,
                "cudadevrt" => example.cudadevrt = true,
                "cuda12" => example.cuda12 = true,
                _ => anyhow::bail!("{}: unknown line `{line}`", source.display()),
            }
        }
        Ok(example)
    }

    /// Where the program lies once it is built.
    pub fn program(&self, version: Version, linking: Linking) -> PathBuf {
        directory(version, linking).join(&self.name)
    }

    /// The program and the files that have to lie beside it.
    pub fn files(&self, version: Version, linking: Linking) -> Vec<PathBuf> {
        let directory = directory(version, linking);
        let mut files = vec![self.program(version, linking)];
        for (short, _) in self.libraries.iter().chain(&self.plugins) {
            files.push(directory.join(format!("lib{}_{short}.so", self.name)));
        }
        for (short, _) in &self.fatbins {
            files.extend(
                ["fatbin", "ptx"].map(|kind| directory.join(format!("{}_{short}.{kind}", self.name))),
            );
        }
        files
    }

    fn stamp(&self, version: Version) -> PathBuf {
        objects(version).join(format!("{}.stamp", self.name))
    }

    /// A digest of everything that the built program depends on.
    fn hash(&self, toolkit: &Toolkit) -> Result<String> {
        let mut inputs = vec![self.source.clone()];
        for shared in [repository().join("examples/common")] {
            for file in fs::read_dir(shared)? {
                inputs.push(file?.path());
            }
        }
        let named = self.parts.iter().chain(&self.libraries).chain(&self.plugins).chain(&self.fatbins);
        inputs.extend(named.map(|file| file.1.clone()));
        inputs.sort();
        let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        let mut add = |bytes: &[u8]| {
            // FNV-1a: this tells versions of files apart, and guards against nothing.
            for &b in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
                hash = (hash ^ u128::from(b)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013B);
            }
        };
        add(&RECIPE.to_le_bytes());
        add(toolkit.root().as_os_str().as_encoded_bytes());
        add(target().as_os_str().as_encoded_bytes());
        for input in inputs {
            add(&fs::read(&input).with_context(|| format!("Reading {}", input.display()))?);
        }
        Ok(format!("{hash:032x}"))
    }

    fn compile(&self, toolkit: &Toolkit, version: Version) -> Result<()> {
        let objects = objects(version);
        fs::create_dir_all(&objects)?;
        let nvcc = |arguments: &mut dyn FnMut(&mut Command)| -> Result<()> {
            let mut command = Command::new(toolkit.nvcc());
            command.args(toolkit.compile_options(version)).arg("-I").arg(repository().join("examples"));
            arguments(&mut command);
            run(&mut command).with_context(|| format!("Compiling {} for CUDA {}", self.name, version.major()))
        };
        let object = objects.join(format!("{}.o", self.name));
        // What a program asks for itself is for programs that need more than nvcc's own choice.
        let own = |option: &&String| version.architectures().is_empty() || !option.starts_with("-arch");
        let options: Vec<_> = self.options.iter().filter(own).collect();
        nvcc(&mut |c| {
            c.args(&options).args(version.architectures()).arg("-c").arg(&self.source).arg("-o").arg(&object);
        })?;
        let mut parts = vec![object.clone()];
        for (short, source) in &self.parts {
            let part = objects.join(format!("{}_{short}.o", self.name));
            nvcc(&mut |c| {
                c.args(&options).args(version.architectures()).arg("-c").arg(source).arg("-o").arg(&part);
            })?;
            parts.push(part);
        }
        let lib = toolkit.lib(version);
        let library_options = |c: &mut Command, linking: Linking| {
            c.args(["-cudart", linking.name()]).arg("-L").arg(&lib);
        };
        for linking in Linking::ALL {
            fs::create_dir_all(directory(version, linking))?;
        }
        for (short, source) in self.libraries.iter().chain(&self.plugins) {
            let object = objects.join(format!("{}_{short}.o", self.name));
            nvcc(&mut |c| {
                c.args(&options).args(version.architectures());
                c.args(["-Xcompiler", "-fPIC", "-c"]).arg(source).arg("-o").arg(&object);
            })?;
            for linking in Linking::ALL {
                let library = directory(version, linking).join(format!("lib{}_{short}.so", self.name));
                nvcc(&mut |c| {
                    library_options(c, linking);
                    c.arg("-shared").arg(&object).arg("-o").arg(&library);
                })?;
            }
        }
        for (short, source) in &self.fatbins {
            for kind in ["fatbin", "ptx"] {
                let file = format!("{}_{short}.{kind}", self.name);
                nvcc(&mut |c| {
                    c.args(["-arch=sm_80", &format!("-{kind}")])
                        .arg(source)
                        .arg("-o")
                        .arg(objects.join(&file));
                })?;
                for linking in Linking::ALL {
                    fs::copy(objects.join(&file), directory(version, linking).join(&file))?;
                }
            }
        }
        let libcuda = if self.libcuda { Some(self.stand_in_libcuda(&object, &objects)?) } else { None };
        for linking in Linking::ALL {
            let directory = directory(version, linking);
            nvcc(&mut |c| {
                library_options(c, linking);
                c.args(version.architectures()).args(&parts).arg("-o").arg(self.program(version, linking));
                // A step that finds nothing to do where no device code calls that of another file. One of the two has it, as programs have.
                if linking == Linking::Shared && !self.options.iter().any(|option| option.starts_with("-rdc"))
                {
                    c.arg("--no-device-link");
                }
                c.arg("-L").arg(&directory).args([
                    "-Xlinker",
                    "-rpath",
                    "-Xlinker",
                    "$ORIGIN",
                    "-lpthread",
                    "-ldl",
                ]);
                for (short, _) in &self.libraries {
                    c.arg(format!("-l{}_{short}", self.name));
                }
                if self.cudadevrt {
                    c.arg("-lcudadevrt");
                }
                if let Some(place) = &libcuda {
                    c.arg("-L").arg(place).arg("-lcuda");
                }
            })?;
        }
        Ok(())
    }

    /// A library to link with in place of the driver's, as the toolkit's stubs are: the names that the
    /// object asks for, and the driver's SONAME.
    fn stand_in_libcuda(&self, object: &Path, objects: &Path) -> Result<PathBuf> {
        let symbols =
            Command::new("nm").arg("--undefined-only").arg(object).output().context("Calling nm")?;
        ensure!(symbols.status.success(), "nm failed on {}", object.display());
        let names = String::from_utf8_lossy(&symbols.stdout);
        let source: String = names
            .split_whitespace()
            .filter(|n| n.starts_with("cu") && n[2..].starts_with(|c: char| c.is_ascii_uppercase()))
            .map(|n| format!("int {n}(void) {{ return 999; }}\n"))
            .collect();
        let place = objects.join(format!("{}_libcuda", self.name));
        fs::create_dir_all(&place)?;
        let file = place.join("stub.c");
        fs::write(&file, source)?;
        let mut command = Command::new("g++");
        command.args(["-x", "c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]);
        run(command.arg(&file).arg("-o").arg(place.join("libcuda.so")))?;
        Ok(place)
    }
}

/// Where programs for a version lie.
pub fn directory(version: Version, linking: Linking) -> PathBuf {
    target().join("examples").join(format!("{}{}", linking.name(), version.suffix()))
}

fn objects(version: Version) -> PathBuf {
    target().join("examples").join(format!("objects{}", version.suffix()))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("Starting {:?}", command.get_program()))?;
    ensure!(
        output.status.success(),
        "{command:?} failed:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
