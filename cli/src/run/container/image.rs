//! What an image says of itself, and whether its programs can load the library.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde::Deserialize;

use super::LIBRARY;
use super::line::Line;
use crate::{Failure, library};

/// The loader of glibc, whose place every program names that is linked with it.
#[cfg(target_arch = "x86_64")]
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
#[cfg(target_arch = "aarch64")]
const LOADER: &str = "/lib/ld-linux-aarch64.so.1";
/// This machine's architecture, as engines call it.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &str = "amd64";
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: &str = "arm64";

/// What is known of an image.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Image {
    id: String,
    architecture: String,
    config: Option<Config>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Config {
    env: Option<Vec<String>>,
    user: String,
}

/// What a loader said of the library.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It can be loaded.
    Loads,
    /// It cannot, and why.
    Cannot(String),
    /// The container could not be started, which the engine will say itself.
    Unknown,
}

impl Image {
    /// Asks the engine for the image, and the image's loader for the library. Refuses one whose programs could not load it. An image
    /// that the engine has yet to fetch is not known.
    pub(super) fn look_at(line: &Line, library: &Path) -> Result<Self, Failure> {
        if line.is_on(&["rootfs"]) {
            return Self::in_directory(Path::new(line.image()));
        }
        let mut inspect = engine(line);
        inspect.args(["image", "inspect"]).arg(line.image());
        let found = inspect.output().map_err(|e| super::super::cannot_start(&line.program, &e))?;
        let known: Option<Vec<Self>> =
            found.status.success().then(|| serde_json::from_slice(&found.stdout).ok()).flatten();
        let image = known.and_then(|known| known.into_iter().next());
        let Some(image) = image else {
            eprintln!(
                "rgpu: {} has no image {} yet, so rgpu cannot tell whether its programs can load the library",
                line.engine,
                line.image().to_string_lossy()
            );
            return Ok(Self::default());
        };
        image.check(line, library)?;
        Ok(image)
    }

    /// A root directory without an image.
    fn in_directory(root: &Path) -> Result<Self, Failure> {
        let loader = root.join(LOADER.trim_start_matches('/'));
        // Not followed: a link there leads to somewhere in that directory.
        if root.is_dir() && loader.symlink_metadata().is_err() && !root.join("lib64").is_symlink() {
            return Err(no_glibc(root.as_os_str()));
        }
        Ok(Self::default())
    }

    /// A variable that the image sets.
    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        let variables = self.config.as_ref()?.env.as_ref()?;
        let value = variables.iter().find_map(|one| one.strip_prefix(name)?.strip_prefix('='))?;
        Some(OsString::from_vec(value.as_bytes().to_vec()))
    }

    /// The user that its programs run as, if it names one.
    pub(super) fn user(&self) -> Option<String> {
        self.config.as_ref().map(|config| config.user.clone()).filter(|user| !user.is_empty())
    }

    fn check(&self, line: &Line, library: &Path) -> Result<(), Failure> {
        let name = line.image().to_string_lossy();
        if !self.architecture.is_empty() && self.architecture != ARCHITECTURE {
            let text = format!(
                "The image {name} is for {}, and librgpu.so for {ARCHITECTURE}: its programs cannot load it",
                self.architecture
            );
            return Err(Failure::new(text));
        }
        let known = self.marker(library);
        if known.as_ref().is_some_and(|known| known.exists()) {
            return Ok(());
        }
        match ask_loader(line, library) {
            Verdict::Cannot(why) if why.is_empty() => return Err(no_glibc(line.image())),
            Verdict::Cannot(why) => {
                return Err(Failure::new(format!(
                    "The programs of the image {name} cannot load librgpu.so, which needs glibc 2.28 or newer and libgcc_s.so.1. Its loader says: {why}"
                )));
            }
            Verdict::Loads => {
                // Only saves time.
                let _ = known.map(|known| fs::write(known, ""));
            }
            Verdict::Unknown => {}
        }
        Ok(())
    }

    /// The file that says that this image can load this library: an image's id is a hash of all that it has.
    fn marker(&self, library: &Path) -> Option<PathBuf> {
        let about = fs::metadata(library).ok()?;
        let mut hasher = DefaultHasher::new();
        (&self.id, library, about.ino(), about.size(), about.mtime(), about.mtime_nsec()).hash(&mut hasher);
        let folder = library::private_folder("images-that-load")?;
        (!self.id.is_empty()).then(|| folder.join(format!("{:016x}", hasher.finish())))
    }
}

fn engine(line: &Line) -> Command {
    let mut command = Command::new(&line.program);
    command.args(&line.globals).stdin(Stdio::null());
    command
}

fn no_glibc(image: &OsStr) -> Failure {
    Failure::new(format!(
        "The image {} has no {LOADER}: its programs are linked with another C library than glibc (Alpine's is musl) or with none, and cannot \
         load librgpu.so. Use an image that is based on Debian, Ubuntu, Fedora or the like, of 2018 or later",
        image.to_string_lossy()
    ))
}

/// Has the image's own loader say whether it could load the library, in a container that does nothing else.
fn ask_loader(line: &Line, library: &Path) -> Verdict {
    let mut options = Vec::new();
    if super::mount(&mut options, library, LIBRARY, false).is_err() {
        return Verdict::Unknown;
    }
    let mut command = engine(line);
    command.args(["run", "--rm", "--network", "none", "--user", "0", "--entrypoint", LOADER]).args(options);
    command.arg(line.image()).args(["--list", LIBRARY]);
    command.output().map_or(Verdict::Unknown, |output| verdict(&output))
}

/// Loaders end with status 127 or 1 where something is missing, and engines with 125 to 127 where they could not start the loader.
fn verdict(output: &Output) -> Verdict {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let complaint = text.lines().find(|line| {
        line.contains("not found") && (line.contains("version `") || line.contains("=>"))
            || line.contains("cannot open shared object file")
    });
    let no_such_file = ["no such file", "not found", "executable file"];
    match (output.status.code(), complaint) {
        (Some(0..=127), Some(line)) => Verdict::Cannot(crate::table::printable(line.trim()).to_string()),
        (Some(0), None) => Verdict::Loads,
        (Some(127), None) if no_such_file.iter().any(|word| text.to_lowercase().contains(word)) => {
            Verdict::Cannot(String::new())
        }
        _ => Verdict::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn said(code: i32, stdout: &str, stderr: &str) -> Verdict {
        let status = ExitStatus::from_raw(code << 8);
        verdict(&Output { status, stdout: stdout.into(), stderr: stderr.into() })
    }

    #[test]
    fn what_loaders_and_engines_say_is_understood() {
        assert_eq!(said(0, "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f)", ""), Verdict::Loads);
        let old = "/opt/rgpu/librgpu.so: /lib64/libm.so.6: version `GLIBC_2.27' not found (required by /opt/rgpu/librgpu.so)";
        assert_eq!(said(1, "", old), Verdict::Cannot(old.into()));
        assert_eq!(
            said(0, "\tlibgcc_s.so.1 => not found", ""),
            Verdict::Cannot("libgcc_s.so.1 => not found".into())
        );
        let missing =
            "Error: crun: executable file `/lib64/ld-linux-x86-64.so.2` not found: No such file or directory";
        assert_eq!(said(127, "", missing), Verdict::Cannot(String::new()));
        let docker = "docker: Error response from daemon: exec: \"/lib64/ld-linux-x86-64.so.2\": stat: no such file or directory: unknown.";
        assert_eq!(said(127, "", docker), Verdict::Cannot(String::new()));
        assert_eq!(said(126, "", "Error: OCI runtime error: crun: cgroups in hybrid mode"), Verdict::Unknown);
        assert_eq!(said(125, "", "Cannot connect to the Docker daemon"), Verdict::Unknown);
    }

    #[test]
    fn what_engines_say_of_an_image_is_read() {
        let text = r#"[{"Id":"sha256:1","Architecture":"amd64","Size":5,
            "Config":{"Env":["PATH=/bin","LD_LIBRARY_PATH=/a:/b"],"User":"7"}}]"#;
        let image: Image = serde_json::from_str::<Vec<_>>(text).unwrap().remove(0);
        assert_eq!(image.variable("LD_LIBRARY_PATH").unwrap(), "/a:/b");
        assert!(image.variable("LD_PRELOAD").is_none() && image.variable("LD_LIBRARY").is_none());
        assert_eq!((image.user().as_deref(), image.id.as_str()), (Some("7"), "sha256:1"));
        let bare: Image = serde_json::from_str(r#"{"Id":"1","Config":null}"#).unwrap();
        assert!(bare.user().is_none() && bare.variable("PATH").is_none());
    }
}
