//! `cargo xtask package`: the Debian packages and the wheel, of a build that is the same wherever it is made.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use rgpu_tests::cross::Trial;
use rgpu_tests::examples::{repository, target};
use rgpu_tests::packages::debian::{self, Effort};
use rgpu_tests::packages::{Contents, MORE, wheel};
use rgpu_tests::product::Product;

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
    /// For another processor than this machine's: aarch64-unknown-linux-gnu
    #[arg(long, value_name = "TARGET", conflicts_with = "binaries")]
    target: Option<String>,
    /// Where the packages go
    #[arg(long, value_name = "FOLDER", default_value = "target/packages")]
    out: PathBuf,
}

/// Tells [`as_rustc`] which folders get other names: `PATH=NAME`, a line each.
const RENAMED: &str = "XTASK_RENAMED_FOLDERS";

/// Where cargo runs this program in place of rustc, for [`build`]: runs rustc so that it writes other names for folders.
pub(crate) fn as_rustc() -> Option<ExitCode> {
    let renamed = std::env::var(RENAMED).ok()?;
    let mut arguments = std::env::args_os().skip(1);
    let mut rustc = Command::new(arguments.next()?);
    rustc.args(arguments);
    // For a compiler's questions about itself, as for its work.
    rustc.args(renamed.lines().map(|name| format!("--remap-path-prefix={name}")));
    let error = rustc.exec();
    eprintln!("error: rustc cannot be run: {error}");
    Some(ExitCode::FAILURE)
}

/// Builds the product and makes the packages.
pub(crate) fn package(arguments: &Arguments) -> Result<bool> {
    let out = std::env::current_dir()?.join(&arguments.out);
    let binaries = match &arguments.binaries {
        Some(folder) => folder.clone(),
        None => build(&arguments.profile, arguments.target.as_deref())?,
    };
    let scratch = out.join(format!(".scratch-{}", std::process::id()));
    let made = make(&binaries, &scratch, &out);
    fs::remove_dir_all(&scratch).with_context(|| format!("Removing {}", scratch.display()))?;
    for file in made? {
        let sum = Command::new("sha256sum").arg(&file).output().context("Starting sha256sum")?;
        print!("{}", String::from_utf8_lossy(&sum.stdout));
    }
    if arguments.target.is_some() {
        try_out(&binaries)?;
    }
    Ok(true)
}

/// Runs programs with the library of another processor, where the tools for that are there.
fn try_out(binaries: &Path) -> Result<()> {
    match Trial::prepare(binaries) {
        Ok(trial) => {
            let own = Product::build()?;
            trial.run(&own)?.iter().for_each(|what| println!("ran emulated: {what}"));
        }
        Err(e) => println!("Programs were not run with these binaries: {e:#}"),
    }
    Ok(())
}

fn make(binaries: &Path, scratch: &Path, out: &Path) -> Result<Vec<PathBuf>> {
    let contents = Contents::collect(&[binaries], scratch)?;
    println!(
        "The binaries are for {} with glibc 2.{} or newer",
        contents.architecture.name(),
        contents.glibc_minor
    );
    for name in MORE.iter().filter(|name| !contents.more.contains_key(*name)) {
        println!("{name} is not in {}: its package is left out", binaries.display());
    }
    if contents.completions.is_empty() {
        println!(
            "Manual pages and completions are left out: the command cannot be run here (docs/packages.md)"
        );
    }
    let mut made = debian::make(&contents, scratch, out, Effort::Full)?;
    made.push(wheel::make(&contents, out)?);
    Ok(made)
}

/// Builds without the names of this machine's folders. Everything is compiled once more for it, in a folder of its own.
fn build(profile: &str, of: Option<&str>) -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let home = home.context("Neither CARGO_HOME nor HOME is set")?;
    let folder = target().join("package");
    // The longest match counts, and of equal ones the last.
    let names = [(repository(), "/rgpu"), (folder.clone(), "/rgpu/target"), (home, "/cargo")];
    let names = names.map(|(path, name)| format!("{}={name}", path.display()));
    let mut command = cargo(&["build", "--locked", "--profile", profile, "--target-dir"]);
    command.arg(&folder);
    // Not by RUSTFLAGS: these make the names of folders below the target folder, which generated sources lie in.
    command.env_remove("RUSTFLAGS").env("RUSTC_WRAPPER", std::env::current_exe()?);
    command.env(RENAMED, names.join("\n"));
    // SQLite, zstd and the like.
    command.env("CFLAGS", names.map(|name| format!("-ffile-prefix-map={name}")).join(" "));
    for package in ["rgpu", "rgpu-client", "rgpu-slurm", "rgpu-kubernetes"] {
        command.args(["--package", package]);
    }
    let mut built = folder.clone();
    if let Some(of) = of {
        command.args(["--target", of]);
        built = folder.join(of);
        // Debian's cross compilers; what is set already counts.
        let linker = format!("CARGO_TARGET_{}_LINKER", of.to_uppercase().replace('-', "_"));
        if std::env::var_os(&linker).is_none() {
            command.env(linker, format!("{}-gcc", of.replace("-unknown-", "-")));
        }
    }
    println!("Building rgpu for packages in {}", built.display());
    ensure!(command.status().context("Starting cargo")?.success(), "`cargo build` failed");
    Ok(built.join(if profile == "dev" { "debug" } else { profile }))
}
