//! Compiled kernels that are kept from one program to the next, inside programs and by a server.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::process::{self, Finished, Running};
use rgpu_tests::product::{Daemon, temporary};

use crate::context::{plain, product};

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("kept_code::a_second_program_compiles_nothing_again", second),
        Test::new("kept_code::what_is_damaged_or_can_be_anothers_is_compiled_again", damaged),
        Test::new("kept_code::programs_at_the_same_time_keep_whole_files", together),
        Test::new("kept_code::servers_keep_it_for_each_tenant", server),
    ]
}

/// A file's number, which a new file may get as soon as the old one is removed, and so when it was made, where the file system knows that.
type Identity = (u64, Option<SystemTime>);

/// A directory for what is kept, removed in the end.
struct Caches(PathBuf);

impl Caches {
    fn new() -> Self {
        Self(temporary("caches"))
    }

    /// A program with the software GPU inside that keeps so much, which says what goes wrong. It runs thread by thread: whether a kernel is compiled for vectors, too,
    /// depends on how long it takes.
    fn command(&self, most: &str) -> Result<Command> {
        let mut command = product()?.run_in_process();
        command.env("XDG_CACHE_HOME", &self.0).env("RGPU_CODE_CACHE", most).env("RGPU_LOG", "1");
        command.env("RGPU_VECTORS", "off");
        command.arg("--").arg(plain("vector_add")?);
        Ok(command)
    }

    fn run(&self, most: &str) -> Result<Finished> {
        process::run(&mut self.command(most)?)?.success()
    }

    /// The files of compiled kernels below, and what tells each from others that had its name before.
    fn files(&self) -> Result<BTreeMap<PathBuf, Identity>> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.0.clone()];
        while let Some(folder) = folders.pop() {
            for file in fs::read_dir(&folder).into_iter().flatten() {
                let file = file?;
                if file.file_type()?.is_dir() {
                    folders.push(file.path());
                } else if is_code(&folder) {
                    let about = file.metadata()?;
                    found.insert(file.path(), (about.ino(), about.created().ok()));
                }
            }
        }
        Ok(found)
    }
}

impl Drop for Caches {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // may never have been made
    }
}

/// Whether a folder is one for compiled kernels: of a user's programs, or of a server's tenant.
fn is_code(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name == "kernels" || name.to_string_lossy().ends_with("-code"))
}

fn second() -> Result<()> {
    let caches = Caches::new();
    caches.run("0")?;
    ensure!(caches.files()?.is_empty(), "with RGPU_CODE_CACHE=0 something was kept");
    caches.run("1G")?;
    let first = caches.files()?;
    ensure!(!first.is_empty(), "nothing was kept");
    let folder = caches.0.join("rgpu/code");
    ensure!(fs::metadata(&folder)?.mode() & 0o777 == 0o700, "others may look into {}", folder.display());
    // What is compiled is written: the same files are there.
    caches.run("1G")?;
    ensure!(caches.files()? == first, "{:?} after {first:?}", caches.files()?);
    Ok(())
}

fn damaged() -> Result<()> {
    let caches = Caches::new();
    caches.run("1G")?;
    let first = caches.files()?;
    let file = first.keys().next().context("nothing was kept")?;
    let flip = || -> Result<()> {
        let mut bytes = fs::read(file)?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        Ok(fs::write(file, bytes)?)
    };
    let cut = || Ok(fs::write(file, &fs::read(file)?[..40])?);
    let open = || Ok(fs::set_permissions(file, Permissions::from_mode(0o666))?);
    let spoil: [(&str, &dyn Fn() -> Result<()>); 3] =
        [("damaged", &flip), ("damaged", &cut), ("may write it", &open)];
    for (why, spoil) in spoil {
        spoil()?;
        let before = caches.files()?;
        let said = caches.run("1G")?.stderr;
        ensure!(said.contains("compiled again") && said.contains(why), "{said}");
        let after = caches.files()?;
        let changed = after.iter().filter(|(path, inode)| before.get(*path) != Some(inode)).count();
        ensure!(after.len() == before.len() && changed == 1, "{why}: {before:?}, then {after:?}");
        let said = caches.run("1G")?.stderr;
        ensure!(!said.contains("compiled again") && caches.files()? == after, "{said}");
    }
    Ok(())
}

fn together() -> Result<()> {
    let caches = Caches::new();
    let programs: Vec<Running> =
        (0..4).map(|_| Running::start(&mut caches.command("1G")?)).collect::<Result<_>>()?;
    for program in programs {
        program.finish()?.success()?;
    }
    let files = caches.files()?;
    let said = caches.run("1G")?.stderr;
    ensure!(!files.is_empty() && caches.files()? == files, "{:?} after {files:?}", caches.files()?);
    ensure!(!said.contains("compiled again"), "{said}");
    Ok(())
}

fn server() -> Result<()> {
    let caches = Caches::new();
    let place = caches.0.display().to_string();
    let run = || -> Result<BTreeMap<PathBuf, Identity>> {
        let daemon = Daemon::start_with(product()?, &["--image-cache", &place])?;
        let mut command = product()?.run(daemon.address());
        process::run(command.arg("--").arg(plain("vector_add")?))?.success()?;
        caches.files()
    };
    let first = run()?;
    ensure!(!first.is_empty(), "nothing was kept");
    // Another daemon, and another process for the application: everything lies elsewhere.
    let second = run()?;
    ensure!(first == second, "{second:?} after {first:?}");
    Ok(())
}
