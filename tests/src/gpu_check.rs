//! What is carried to a machine with a GPU: the product, the compiled examples, programs that provoke errors and
//! measure, and a script that runs everything natively and through rgpu (`tests/gpu_check/gpu_check.py`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::examples::{self, Example, Linking};
use crate::product::Product;
use crate::toolkit::{Toolkit, Version};

/// The bundle's directory, and the archive's name without its ending.
pub const NAME: &str = "rgpu-gpu-check";
/// The script in it.
pub const SCRIPT: &str = "gpu_check.py";
/// The most bytes that the archive may have.
pub const LIMIT: u64 = 64 << 20;

/// A directory that needs nothing outside of itself but a driver, and Python.
#[derive(Debug)]
pub struct Bundle {
    directory: PathBuf,
}

impl Bundle {
    /// Puts a bundle into `place`, with examples whose name contains one of `filter` (all, if there is none), compiled
    /// for a version. What isn't compiled yet is.
    pub fn make(
        place: &Path,
        product: &Product,
        toolkit: &Toolkit,
        version: Version,
        filter: &[&str],
    ) -> Result<Self> {
        let mut all = examples::all()?;
        let left_out = [&examples::OF_SOFTWARE_GPUS[..], &examples::OF_ONE_ARCHITECTURE].concat();
        all.retain(|e| !left_out.contains(&e.name.as_str()));
        all.retain(|e| filter.is_empty() || filter.iter().any(|f| e.name.contains(f)));
        let programs = examples::for_gpu_check()?;
        let both: Vec<Example> = all.iter().chain(&programs).cloned().collect();
        examples::build(toolkit, &both, &[version])?;

        let directory = place.join(NAME);
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        for folder in ["bin", "examples", "programs"] {
            fs::create_dir_all(directory.join(folder))?;
        }
        for binary in [product.rgpu(), product.shim()] {
            strip(&binary, &directory.join("bin").join(binary.file_name().context("No name")?))?;
        }
        for (folder, list) in [("examples", &all), ("programs", &programs)] {
            for file in list.iter().flat_map(|e| e.files(version, Linking::Static)) {
                let name = file.file_name().context("No name")?;
                // As they are: a program with a static runtime that is stripped cannot be served.
                fs::copy(&file, directory.join(folder).join(name))
                    .with_context(|| format!("Copying {}", file.display()))?;
            }
        }
        let script = examples::repository().join("tests/gpu_check").join(SCRIPT);
        fs::copy(script, directory.join(SCRIPT))?;
        let manifest = serde_json::json!({
            "made": now(),
            "commit": commit(),
            "examples": all.iter().map(|e| &e.name).collect::<Vec<_>>(),
            "libraries": examples::OF_LIBRARIES,
            "compiled for": version.architectures(),
        });
        fs::write(directory.join("manifest.json"), serde_json::to_string_pretty(&manifest)?)?;
        Ok(Self { directory })
    }

    /// Where it lies.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The script.
    pub fn script(&self) -> PathBuf {
        self.directory.join(SCRIPT)
    }

    /// Packs it into one file beside it. Returns that and its size; one that is too large is an error.
    pub fn pack(&self) -> Result<(PathBuf, u64)> {
        let archive = self.directory.with_file_name(format!("{NAME}.tar.gz"));
        let parent = self.directory.parent().context("No parent")?;
        let status = Command::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "-czf"])
            .arg(&archive)
            .arg("-C")
            .arg(parent)
            .arg(NAME)
            .status()
            .context("Starting tar")?;
        ensure!(status.success(), "tar failed");
        let size = fs::metadata(&archive)?.len();
        let limit = LIMIT >> 20;
        ensure!(size <= LIMIT, "the bundle has {size} bytes, more than {limit} MiB: {}", archive.display());
        Ok((archive, size))
    }
}

fn strip(from: &Path, to: &Path) -> Result<()> {
    let output = Command::new("strip").arg("-o").arg(to).arg(from).output().context("Starting strip")?;
    ensure!(output.status.success(), "strip failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The commit that the tree is at, marked where the tree has other contents.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(examples::repository()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|list| !list.is_empty());
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".into());
    if changed { format!("{commit} with changes") } else { commit }
}

/// Seconds since 1970, by which bundles are told apart.
fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
