//! What Python frameworks want to be told where their GPU is a software GPU: docs/frameworks.md says why each is set.
//!
//! Only what the user has not said is set, and only for packages that the interpreter's environment has.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// What stands between the directories of a Python environment and its packages.
const PACKAGES: [&str; 2] = ["site-packages", "dist-packages"];
/// The flags that XLA needs, which other versions of it may not have.
const XLA_FLAGS: [(&str, &str); 4] = [
    ("xla_gpu_autotune_level", "0"),
    // Products of matrices by cuBLAS, which the device computes with a library of the processor's, and not by kernels.
    ("xla_gpu_enable_triton_gemm", "false"),
    ("xla_gpu_enable_libnvptxcompiler", "false"),
    ("xla_gpu_enable_libnvjitlink", "false"),
];

/// A Python interpreter, and where its packages are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Python {
    /// The interpreter.
    pub(crate) interpreter: PathBuf,
    /// The directories of packages, in the order in which they are searched.
    pub(crate) packages: Vec<PathBuf>,
}

/// A variable that is set for a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its value.
    pub(crate) value: OsString,
}

impl Python {
    /// The interpreter that a command starts: itself, or the one that its first line names.
    pub(crate) fn started_by(command: &Path) -> Option<Self> {
        Self::at(interpreter(command)?)
    }

    /// The same; for any other command, which may start Python all the same, the one that a shell finds.
    pub(crate) fn of(command: &Path) -> Option<Self> {
        Self::started_by(command)
            .or_else(|| ["python3", "python"].iter().find_map(|name| Self::started_by(Path::new(name))))
    }

    fn at(interpreter: PathBuf) -> Option<Self> {
        let prefix = interpreter.parent()?.parent()?;
        let mut packages: Vec<PathBuf> =
            std::env::split_paths(&std::env::var_os("PYTHONPATH").unwrap_or_default()).collect();
        packages.extend(packages_in(&prefix.join("lib")));
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        if !prefix.join("pyvenv.cfg").exists() {
            packages.extend(packages_in(&home.join(".local/lib")));
            // Not through a link such as /usr/bin/python3 alone, but to where the interpreter really is.
            if let Some(real) =
                interpreter.canonicalize().ok().as_deref().and_then(Path::parent).and_then(Path::parent)
                && real != prefix
            {
                packages.extend(packages_in(&real.join("lib")));
            }
        }
        packages.retain(|directory| directory.is_dir());
        Some(Self { interpreter, packages })
    }

    /// Where something lies below one of the directories of packages.
    pub(crate) fn find(&self, path: &str) -> Option<PathBuf> {
        self.packages.iter().map(|directory| directory.join(path)).find(|path| path.exists())
    }

    /// Whether it has a package that makes code for GPUs when it runs.
    pub(crate) fn makes_code(&self) -> bool {
        const PACKAGES: [&str; 10] = [
            "cuda",
            "cupy",
            "jax",
            "numba",
            "numba_cuda",
            "taichi",
            "tensorflow",
            "tinygrad",
            "torch",
            "triton",
        ];
        PACKAGES.iter().any(|package| self.find(package).is_some())
    }

    /// Folders with libraries of NVIDIA's packages.
    pub(crate) fn library_folders(&self) -> Vec<PathBuf> {
        let folders = self.packages.iter().flat_map(|directory| sorted(&directory.join("nvidia")));
        folders.map(|package| package.join("lib")).filter(|path| path.is_dir()).collect()
    }

    /// NVIDIA's library of mathematical functions for compilers, which XLA links with what it makes.
    pub(crate) fn libdevice(&self) -> Option<PathBuf> {
        const FILE: &str = "nvvm/libdevice/libdevice.10.bc";
        let packages = self.packages.iter().flat_map(|directory| sorted(&directory.join("nvidia")));
        let usual =
            ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(|name| std::env::var_os(name).map(PathBuf::from));
        let mut places =
            packages.chain(usual).chain([PathBuf::from("/usr/local/cuda")]).map(|place| place.join(FILE));
        places.find(|path| path.is_file()).or_else(|| self.find("triton/backends/nvidia/lib/libdevice.10.bc"))
    }

    /// The installed packages, as their folders of descriptions are named, and their versions.
    pub(crate) fn installed(&self) -> Vec<(String, String)> {
        let entries = self.packages.iter().flat_map(|directory| sorted(directory));
        let described = entries.filter_map(|path| {
            let name = path.file_name()?.to_str()?.strip_suffix(".dist-info")?;
            let (name, version) = name.split_once('-')?;
            Some((name.to_lowercase(), version.to_owned()))
        });
        described.collect()
    }

    /// Whether NVIDIA's headers can be found.
    pub(crate) fn has_headers(&self) -> bool {
        const FILE: &str = "include/cuda_fp16.h";
        let packages = self.packages.iter().flat_map(|directory| sorted(&directory.join("nvidia")));
        let usual =
            ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(|name| std::env::var_os(name).map(PathBuf::from));
        packages
            .chain(usual)
            .chain([PathBuf::from("/usr/local/cuda")])
            .any(|place| place.join(FILE).is_file())
    }

    /// JAX's plugin for CUDA.
    fn jax_plugin(&self) -> Option<PathBuf> {
        ["13", "12"]
            .iter()
            .find_map(|major| self.find(&format!("jax_plugins/xla_cuda{major}/xla_cuda_plugin.so")))
    }
}

fn interpreter(command: &Path) -> Option<PathBuf> {
    let mut path = find(command)?;
    for _ in 0..2 {
        if path.file_name()?.to_str()?.starts_with("python") {
            return Some(path);
        }
        let mut head = [0; 256];
        let mut file = fs::File::open(&path).ok()?;
        let length = std::io::Read::read(&mut file, &mut head).ok()?;
        let line = std::str::from_utf8(head.get(..length)?.split(|byte| *byte == b'\n').next()?).ok()?;
        let mut words = line.strip_prefix("#!")?.split_whitespace();
        let first = words.next()?;
        path = if first.ends_with("/env") {
            find(Path::new(words.find(|word| !word.starts_with('-'))?))?
        } else {
            first.into()
        };
    }
    None
}

/// Looks a command up as a shell does.
pub(super) fn find(command: &Path) -> Option<PathBuf> {
    if command.components().count() > 1 {
        return std::path::absolute(command).ok().filter(|path| path.is_file());
    }
    let directories = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&directories).map(|directory| directory.join(command)).find(|path| path.is_file())
}

fn sorted(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

fn packages_in(library: &Path) -> Vec<PathBuf> {
    let pythons = sorted(library)
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3")));
    pythons.flat_map(|path| PACKAGES.map(|name| path.join(name))).collect()
}

/// What is to be set for programs of an environment. `tools` is the folder with `bin/ptxas`, whose `nvvm` is free for a link.
pub(crate) fn settings(python: Option<&Python>, tools: &Path) -> Vec<Setting> {
    let ptxas = tools.join("bin/ptxas").into_os_string();
    let mut list = vec![
        Setting { name: "TRITON_PTXAS_PATH", value: ptxas.clone() },
        Setting { name: "TRITON_PTXAS_BLACKWELL_PATH", value: ptxas },
    ];
    let Some(python) = python else { return unset(list) };
    let (plugin, tensorflow) = (python.jax_plugin(), python.find("tensorflow/__init__.py").is_some());
    let mut flags = Vec::new();
    if plugin.is_some() || tensorflow {
        let linked = python.libdevice().is_some_and(|libdevice| link_libdevice(&libdevice, tools).is_ok());
        if plugin.is_some() && linked {
            list.push(Setting { name: "CUDA_ROOT", value: tools.as_os_str().to_owned() });
        }
        let xla = plugin.or_else(|| python.find("tensorflow/libtensorflow_cc.so.2"));
        let known = xla.map(|xla| known_flags(&xla, tools)).unwrap_or_default();
        flags.extend(known.into_iter().map(|(name, value)| (name, value.to_owned())));
    }
    if tensorflow {
        list.push(Setting { name: "TF_MIN_GPU_MULTIPROCESSOR_COUNT", value: "1".into() });
        // It finds NVIDIA's assembler beside itself, wherever else there is one; JAX has CUDA_ROOT.
        flags.push(("xla_gpu_cuda_data_dir", tools.display().to_string()));
    }
    if !flags.is_empty() {
        let before = std::env::var_os("XLA_FLAGS").unwrap_or_default();
        let all = with_flags(&before.to_string_lossy(), &flags);
        if all != before.to_string_lossy() {
            list.push(Setting { name: "XLA_FLAGS", value: all.into() });
        }
    }
    if python.find("torch/__init__.py").is_some() {
        list.push(Setting { name: "TORCHINDUCTOR_SHAPE_PADDING", value: "0".into() });
    }
    if python.find("cupy/__init__.py").is_some() {
        // None: what CuPy brings along may be machine code alone, and it does not notice that it has not run.
        list.push(Setting { name: "CUPY_ACCELERATORS", value: OsString::new() });
        if let Some(home) = std::env::var_os("HOME") {
            let value = PathBuf::from(home).join(".cupy/rgpu_kernel_cache").into_os_string();
            list.push(Setting { name: "CUPY_CACHE_DIR", value });
        }
    }
    unset(list)
}

/// Leaves out what the user has set; flags are added to theirs.
fn unset(list: Vec<Setting>) -> Vec<Setting> {
    list.into_iter()
        .filter(|setting| setting.name == "XLA_FLAGS" || std::env::var_os(setting.name).is_none())
        .collect()
}

/// XLA looks for libdevice where it looks for ptxas.
fn link_libdevice(libdevice: &Path, tools: &Path) -> std::io::Result<()> {
    let folder = tools.join("nvvm/libdevice");
    fs::create_dir_all(&folder)?;
    crate::library::put_link(&folder, "libdevice.10.bc", libdevice)
}

/// The user's flags, and those of ours that they do not mention.
fn with_flags(flags: &str, ours: &[(&str, String)]) -> String {
    let mut all = flags.to_owned();
    for (name, value) in ours {
        let mentioned =
            flags.split_whitespace().any(|flag| flag.trim_start_matches('-').split('=').next() == Some(name));
        if !mentioned {
            if !all.is_empty() {
                all.push(' ');
            }
            all.push_str(&format!("--{name}={value}"));
        }
    }
    all
}

/// Which of [`XLA_FLAGS`] a library knows. Looking through some hundred megabytes takes a second or two, so the answer is kept.
/// An unknown flag would end the program.
fn known_flags(library: &Path, tools: &Path) -> Vec<(&'static str, &'static str)> {
    let known = known_names(library, tools);
    XLA_FLAGS.into_iter().filter(|(name, _)| known.contains(name)).collect()
}

fn known_names(library: &Path, tools: &Path) -> Vec<&'static str> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let Ok(about) = fs::metadata(library) else { return Vec::new() };
    let mut hasher = DefaultHasher::new();
    (library, about.len(), about.modified().ok(), XLA_FLAGS).hash(&mut hasher);
    let kept = tools.join(format!("xla-{:016x}", hasher.finish()));
    let names = XLA_FLAGS.map(|(name, _)| name);
    if let Ok(text) = fs::read_to_string(&kept) {
        return names.into_iter().filter(|name| text.lines().any(|line| line == *name)).collect();
    }
    let Ok(found) = occurring(library, &names) else { return Vec::new() };
    let _ = fs::write(&kept, found.join("\n"));
    found
}

/// Which of these words occur in a file.
fn occurring(file: &Path, words: &[&'static str]) -> std::io::Result<Vec<&'static str>> {
    use std::io::Read;
    const PIECE: usize = 4 << 20;
    const OVERLAP: usize = 64;
    let mut file = fs::File::open(file)?;
    let mut buffer = vec![0; OVERLAP + PIECE];
    let mut found = Vec::new();
    loop {
        let length = file.read(&mut buffer[OVERLAP..])?;
        let piece = &buffer[..OVERLAP + length];
        for word in words {
            if !found.contains(word) && memchr::memmem::find(piece, word.as_bytes()).is_some() {
                found.push(*word);
            }
        }
        if length == 0 || found.len() == words.len() {
            return Ok(found);
        }
        buffer.copy_within(length..length + OVERLAP, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("rgpu-frameworks-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn flags_are_added_and_never_replaced() {
        let known = [("xla_gpu_autotune_level", "0"), ("xla_gpu_enable_libnvjitlink", "false")];
        let known = known.map(|(name, value)| (name, value.to_owned()));
        assert_eq!(with_flags("", &known), "--xla_gpu_autotune_level=0 --xla_gpu_enable_libnvjitlink=false");
        assert_eq!(
            with_flags("--xla_gpu_autotune_level=4 --xla_x", &known),
            "--xla_gpu_autotune_level=4 --xla_x --xla_gpu_enable_libnvjitlink=false"
        );
        assert_eq!(with_flags("--xla_x", &[]), "--xla_x");
    }

    #[test]
    fn an_environment_and_what_it_has_are_found() {
        let base = scratch("environment");
        let packages = base.join("env/lib/python3.11/site-packages");
        let plugin = packages.join("jax_plugins/xla_cuda12");
        let libdevice = packages.join("nvidia/cuda_nvcc/nvvm/libdevice");
        for directory in [&plugin, &libdevice, &base.join("env/bin"), &packages.join("nvidia/cublas/lib")] {
            fs::create_dir_all(directory).unwrap();
        }
        fs::write(base.join("env/pyvenv.cfg"), "").unwrap();
        fs::write(libdevice.join("libdevice.10.bc"), "BC").unwrap();
        // A word across the border of two pieces is found.
        let mut text = vec![b'.'; (4 << 20) - 7];
        text.extend(b"xla_gpu_autotune_level");
        fs::write(plugin.join("xla_cuda_plugin.so"), text).unwrap();
        symlink("/bin/sh", base.join("env/bin/python3.11")).unwrap();
        let script = base.join("env/bin/tool");
        fs::write(&script, format!("#!{}\nimport os\n", base.join("env/bin/python3.11").display())).unwrap();

        let python = Python::of(&script).unwrap();
        assert_eq!(python.interpreter, base.join("env/bin/python3.11"));
        assert!(python.packages.contains(&packages));
        assert!(python.library_folders().contains(&packages.join("nvidia/cublas/lib")));
        let tools = base.join("tools");
        fs::create_dir(&tools).unwrap();
        for _ in 0..2 {
            let list = settings(Some(&python), &tools);
            let value =
                |name: &str| list.iter().find(|setting| setting.name == name).map(|s| s.value.clone());
            if std::env::var_os("XLA_FLAGS").is_none() {
                assert_eq!(value("XLA_FLAGS"), Some("--xla_gpu_autotune_level=0".into()));
            }
            assert_eq!(value("CUDA_ROOT").is_some(), std::env::var_os("CUDA_ROOT").is_none());
            assert!(value("TF_MIN_GPU_MULTIPROCESSOR_COUNT").is_none());
        }
        assert_eq!(fs::read(tools.join("nvvm/libdevice/libdevice.10.bc")).unwrap(), b"BC");
        fs::remove_dir_all(base).unwrap();
    }
}
