//! `cargo xtask imports`: which of NVIDIA's functions the binaries of Python frameworks import, and how many of them rgpu implements.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// Beginnings of the names of NVIDIA's functions, and what they belong to where no page of ours lists them.
const FAMILIES: [(&str, &str); 18] = [
    ("cublasLt", "cuBLASLt"),
    ("cublas", "cuBLAS"),
    ("cudnn", "cuDNN"),
    ("cufft", "cuFFT"),
    ("cuFile", "cuFile"),
    ("cupti", "CUPTI"),
    ("curand", "cuRAND"),
    ("cusolver", "cuSOLVER"),
    ("cusparseLt", "cuSPARSELt"),
    ("cusparse", "cuSPARSE"),
    ("nccl", "NCCL"),
    ("nvrtc", "NVRTC"),
    ("nvJitLink", "nvJitLink"),
    ("nvml", "NVML"),
    ("nvshmem", "NVSHMEM"),
    ("__cuda", "CUDA runtime"),
    ("cuda", "CUDA runtime"),
    ("cu", "CUDA driver"),
];

/// What a symbol belongs to, if it is a function of NVIDIA's.
fn family(symbol: &str) -> Option<&'static str> {
    let (prefix, family) = FAMILIES.iter().find(|(prefix, _)| symbol.starts_with(prefix))?;
    let rest = symbol[prefix.len()..].trim_start_matches('_');
    let named = rest.starts_with(|c: char| c.is_ascii_uppercase()) || prefix.len() > 4;
    named.then_some(family)
}

/// Libraries whose functions are NVIDIA's own also under rgpu: NVRTC works without a device.
const NVIDIAS_OWN: [&str; 1] = ["NVRTC"];

/// The functions that `docs/api.md` lists, and whether they are implemented.
fn implemented(page: &str) -> BTreeMap<&str, bool> {
    let (mut functions, mut state) = (BTreeMap::new(), false);
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            state = heading == "Implemented";
        } else if let Some(name) = line.strip_prefix("- `").and_then(|rest| rest.split('`').next()) {
            *functions.entry(name).or_default() |= state;
        }
    }
    functions
}

/// All shared libraries below a folder but NVIDIA's own.
fn libraries(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && name != "nvidia" => libraries(&path, found),
            Ok(kind) if kind.is_file() && name.contains(".so") => found.push(path),
            _ => {}
        }
    }
}

/// What a file wants of other files.
fn imports(file: &Path) -> Vec<String> {
    let listed = Command::new("nm").args(["-D", "--undefined-only"]).arg(file).output();
    let Ok(listed) = listed else { return Vec::new() };
    let lines = String::from_utf8_lossy(&listed.stdout).into_owned();
    let symbol = |line: &str| line.split_whitespace().last()?.split('@').next().map(str::to_owned);
    lines.lines().filter_map(symbol).collect()
}

/// Prints, for each folder of packages, a table by library; and below it what is missing.
pub(crate) fn print(folders: &[PathBuf]) -> Result<()> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/api.md");
    let page = fs::read_to_string(&page).with_context(|| format!("Reading {}", page.display()))?;
    let known = implemented(&page);
    for folder in folders {
        let mut files = Vec::new();
        libraries(folder, &mut files);
        let symbols: BTreeSet<String> = files.iter().flat_map(|file| imports(file)).collect();
        let mut families: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for symbol in &symbols {
            if let Some(family) = family(symbol) {
                families.entry(family).or_default().push(symbol);
            }
        }
        println!("\n{}: {} files\n", folder.display(), files.len());
        println!("| library | imported | implemented | |\n| --- | ---: | ---: | ---: |");
        let is_there = |symbol: &&&str| known.get(**symbol).copied().unwrap_or(false);
        for (family, symbols) in &families {
            if NVIDIAS_OWN.contains(family) {
                println!("| {family} | {} | NVIDIA's own | |", symbols.len());
                continue;
            }
            let there = symbols.iter().filter(is_there).count();
            println!("| {family} | {} | {there} | {} % |", symbols.len(), 100 * there / symbols.len());
        }
        for (family, symbols) in families.iter().filter(|(family, _)| !NVIDIAS_OWN.contains(family)) {
            let missing: Vec<&str> = symbols.iter().filter(|s| !is_there(s)).copied().collect();
            if !missing.is_empty() {
                println!("\n{family} lacks {}", missing.join(", "));
            }
        }
    }
    Ok(())
}
