//! `cargo xtask package`: the Debian packages and the wheel, of a build that is the same wherever it is made.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rgpu_tests::examples::{repository, target};
use rgpu_tests::packages::{Contents, debian, wheel};

use super::cargo;

/// What to package.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Cargo's profile; `dev` is built sooner
    #[arg(long, default_value = "release")]
    profile: String,
    /// Builds nothing: packages `rgpu` and `librgpu.so` of this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "profile")]
    binaries: Option<PathBuf>,
    /// Where the packages go
    #[arg(long, value_name = "FOLDER", default_value = "target/packages")]
    out: PathBuf,
}

/// Builds the product and makes the packages.
pub(crate) fn package(arguments: &Arguments) -> Result<bool> {
    let out = std::env::current_dir()?.join(&arguments.out);
    let binaries = match &arguments.binaries {
        Some(folder) => folder.clone(),
        None => build(&arguments.profile)?,
    };
    let scratch = out.join(format!(".scratch-{}", std::process::id()));
    let made = make(&binaries, &scratch, &out);
    fs::remove_dir_all(&scratch).with_context(|| format!("Removing {}", scratch.display()))?;
    for file in made? {
        let sum = Command::new("sha256sum").arg(&file).output().context("Starting sha256sum")?;
        print!("{}", String::from_utf8_lossy(&sum.stdout));
    }
    Ok(true)
}

fn make(
    binaries: &std::path::Path,
    scratch: &std::path::Path,
    out: &std::path::Path,
) -> Result<Vec<PathBuf>> {
    let contents = Contents::collect(binaries, scratch)?;
    println!(
        "The binaries are for {} with glibc 2.{} or newer",
        contents.architecture.name(),
        contents.glibc_minor
    );
    let mut made = debian::make(&contents, scratch, out)?;
    made.push(wheel::make(&contents, out)?);
    Ok(made)
}

/// Builds without the names of this machine's folders. Everything is compiled once more for it, in a folder of its own.
fn build(profile: &str) -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let home = home.context("Neither CARGO_HOME nor HOME is set")?;
    let folder = target().join("package");
    // The longest match counts, and of equal ones the last.
    let names = [(repository(), "/rgpu"), (folder.clone(), "/rgpu/target"), (home, "/cargo")];
    let remap = |option: &str| {
        let options = names.iter().map(|(path, name)| format!("{option}={}={name}", path.display()));
        options.collect::<Vec<_>>().join(" ")
    };
    let mut command = cargo(&["build", "--locked", "--profile", profile, "--target-dir"]);
    command.arg(&folder);
    command.env("RUSTFLAGS", remap("--remap-path-prefix"));
    // SQLite, zstd and the like.
    command.env("CFLAGS", remap("-ffile-prefix-map"));
    println!("Building rgpu for packages in {}", folder.display());
    ensure!(command.status().context("Starting cargo")?.success(), "`cargo build` failed");
    Ok(folder.join(if profile == "dev" { "debug" } else { profile }))
}
