//! What a Python program would find under rgpu: packages that use GPUs, NVIDIA's libraries, and what `rgpu run` would set.

use std::ffi::OsStr;
use std::path::Path;

use rgpu_control::libraries::{self, StandsIn};

use super::Finding;
use crate::library::{self, Links};
use crate::run::frameworks::{self, Python};

/// Packages that use GPUs: the names under which they are installed.
const PACKAGES: [&str; 12] = [
    "jax_cuda12_plugin",
    "jax_cuda13_plugin",
    "torch",
    "triton",
    "numba_cuda",
    "cupy_cuda12x",
    "cupy_cuda13x",
    "cuda_core",
    "taichi",
    "tinygrad",
    "tensorflow",
    "xgboost",
];

/// Checks the environment of a command that is Python or a script for it; nothing for any other.
pub(super) fn check(command: &OsStr) -> Vec<Finding> {
    let Some(python) = Python::started_by(Path::new(command)) else { return Vec::new() };
    let mut findings = vec![Finding::note(format!("Python is {}", python.interpreter.display()))];
    let found: Vec<(String, String)> =
        python.installed().into_iter().filter(|(name, _)| PACKAGES.contains(&name.as_str())).collect();
    if found.is_empty() {
        findings.push(Finding::note(format!(
            "it has none of the packages that rgpu knows: {}",
            PACKAGES.join(", ")
        )));
        return findings;
    }
    let list: Vec<String> = found.iter().map(|(name, version)| format!("{name} {version}")).collect();
    findings.push(Finding::good(format!("it has {}", list.join(", "))));
    findings.extend(nvidias_libraries(&python));
    let has = |start: &str| found.iter().any(|(name, _)| name.starts_with(start));
    if has("jax_cuda") && python.libdevice().is_none() {
        findings.push(Finding::bad(
            "JAX finds no libdevice, which XLA links with what it makes for a software GPU",
            "pip install nvidia-cuda-nvcc-cu12 (with JAX for CUDA 13: nvidia-nvvm)",
        ));
    }
    if has("cupy") && !python.has_headers() {
        findings.push(Finding::bad(
            "CuPy finds no headers of CUDA, which it compiles its kernels with",
            "pip install cupy-cuda12x[ctk] (or cupy-cuda13x[ctk]), or set CUDA_PATH",
        ));
    }
    let links = library::find().and_then(|library| Links::create(&library));
    if let Ok(links) = links {
        let settings = frameworks::settings(Some(&python), &links.software());
        findings.extend(settings.into_iter().map(|setting| {
            let text = format!("{}={}", setting.name, setting.value.to_string_lossy());
            Finding::note(format!("for a software GPU `rgpu run` sets {text}"))
        }));
    }
    findings
}

/// Which of NVIDIA's libraries the environment has, and who answers their calls.
fn nvidias_libraries(python: &Python) -> Vec<Finding> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for folder in python.library_folders() {
        for (file, library) in
            libraries::LIBRARIES.iter().flat_map(|l| l.files.iter().map(move |(file, _)| (*file, l)))
        {
            if folder.join(file).exists() {
                let list = if library.stands_in == StandsIn::Never { &mut theirs } else { &mut ours };
                list.push(file);
            }
        }
    }
    let mut findings = Vec::new();
    if !ours.is_empty() {
        findings.push(Finding::good(format!("rgpu answers calls of {}", ours.join(", "))));
    }
    if !theirs.is_empty() {
        findings.push(Finding::note(format!(
            "rgpu does not stand in for {} yet: what needs them fails",
            theirs.join(", ")
        )));
    }
    findings
}
