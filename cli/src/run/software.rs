//! What a program needs besides the preload where its device is a software GPU.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rgpu_control::libraries::{self, StandsIn};
use rgpu_control::preload::{LIBRARY_PATH_VARIABLE, prepend, separators};
use rgpu_control::settings::{
    self, IN_PROCESS_VARIABLE, LEASE_VARIABLE, SERVER_VARIABLE, SOFTWARE_TOOLS_VARIABLE,
};

use super::frameworks::{self, Python, Setting};
use super::{Arguments, DeviceSource};
use crate::library::Links;
use crate::probe;

/// Whether the program's device is a software GPU: said by the user, known from where it is, or asked of the server. What is not
/// known is none. What the program is, is `hidden` in a container.
pub(super) fn is_used(arguments: &Arguments, source: DeviceSource, hidden: bool) -> bool {
    if settings::variable(SOFTWARE_TOOLS_VARIABLE).is_some() {
        return settings::is_on(SOFTWARE_TOOLS_VARIABLE);
    }
    let inherited = source == DeviceSource::Inherited;
    if arguments.in_process || (inherited && settings::is_on(IN_PROCESS_VARIABLE)) {
        return true;
    }
    if source == DeviceSource::Leased || (inherited && settings::variable(LEASE_VARIABLE).is_some()) {
        return false;
    }
    let server = arguments.server.clone().or_else(|| settings::text(SERVER_VARIABLE));
    let program = arguments.command.first().map(PathBuf::from).unwrap_or_default();
    server.is_some_and(|server| (hidden || may_compile(&program)) && is_software(&server, arguments))
}

/// Whether a server says that its devices take PTX alone. Where it cannot be asked, the program will say why.
fn is_software(server: &str, arguments: &Arguments) -> bool {
    let first = server.split(',').next().unwrap_or_default().trim();
    let Ok(token) = probe::token(arguments.token_file.as_deref()) else { return false };
    let Ok(found) = probe::ask(first, &token) else { return false };
    let devices = &found.answer.devices;
    !devices.is_empty() && devices.iter().all(|device| device.accepts_ptx && !device.accepts_cubin)
}

/// Programs that start others.
const STARTERS: [&str; 16] = [
    "bash", "dash", "env", "fish", "ksh", "make", "mpiexec", "mpirun", "nice", "nohup", "sh", "time",
    "timeout", "uv", "xargs", "zsh",
];

/// Whether a program may want to compile or link for its device when it runs, or start one that does: a script, Python or a shell
/// where the Python environment has a package that makes code, or what is linked with a library that does. For the others, such as those that nvcc made, no server has to be asked.
fn may_compile(program: &Path) -> bool {
    let Some(path) = frameworks::find(program) else { return false };
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let python = || Python::of(program).is_some_and(|python| python.makes_code());
    if name.starts_with("python") || STARTERS.contains(&name.as_str()) {
        return python();
    }
    let Ok(bytes) = fs::read(&path) else { return false };
    if !bytes.starts_with(b"\x7fELF") {
        return python();
    }
    // Names of libraries stand in one table of strings, each ending in NUL.
    let mut files =
        [StandsIn::ForSoftware, StandsIn::InPartForSoftware].into_iter().flat_map(libraries::files);
    files.any(|file| memchr::memmem::find(&bytes, format!("\0{file}\0").as_bytes()).is_some())
}

/// Tells the program, what it loads, and the frameworks that it may use.
pub(super) fn prepare(command: &mut Command, program: &OsStr, links: &Links) {
    command.env(SOFTWARE_TOOLS_VARIABLE, "1");
    let python = Python::of(Path::new(program));
    let path =
        command.get_envs().find(|(name, _)| *name == LIBRARY_PATH_VARIABLE).and_then(|(_, value)| value);
    let mut path = prepend(&links.software(), path, separators(LIBRARY_PATH_VARIABLE));
    // TensorFlow looks for the libraries of NVIDIA's packages nowhere else.
    if let Some(python) = python.as_ref().filter(|python| python.find("tensorflow/__init__.py").is_some()) {
        for folder in python.library_folders() {
            path.push(":");
            path.push(folder);
        }
    }
    command.env("LD_LIBRARY_PATH", path);
    set(command, frameworks::settings(python.as_ref(), &links.software()));
}

/// Sets variables that options have not set already.
fn set(command: &mut Command, settings: Vec<Setting>) {
    for setting in settings {
        if !command.get_envs().any(|(name, value)| name == setting.name && value.is_some()) {
            command.env(setting.name, setting.value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_options_say_stays() {
        let mut command = Command::new("true");
        command.env("A", "option");
        let settings = ["A", "B"].map(|name| Setting { name, value: "package".into() });
        set(&mut command, settings.into());
        let value = |wanted: &str| {
            command
                .get_envs()
                .find(|(name, _)| *name == wanted)
                .and_then(|(_, value)| value.map(OsStr::to_owned))
        };
        assert_eq!((value("A"), value("B")), (Some("option".into()), Some("package".into())));
    }

    #[test]
    fn only_programs_that_may_compile_are_asked_about() {
        let scratch = std::env::temp_dir().join(format!("rgpu-may-compile-{}", std::process::id()));
        fs::create_dir_all(&scratch).unwrap();
        let program = |name: &str, contents: &[u8]| {
            let path = scratch.join(name);
            fs::write(&path, contents).unwrap();
            may_compile(&path)
        };
        let packages = scratch.join("lib/python3.12/site-packages");
        fs::create_dir_all(scratch.join("bin")).unwrap();
        fs::create_dir_all(&packages).unwrap();
        fs::write(scratch.join("pyvenv.cfg"), "").unwrap();
        assert!(!program("bin/python3.12", b"\x7fELF"), "there is nothing that makes code");
        fs::create_dir_all(packages.join("triton")).unwrap();
        assert!(program("bin/python3.12", b"\x7fELF"));
        let line = format!("#!{}\n", scratch.join("bin/python3.12").display());
        assert!(program("tool", line.as_bytes()));
        assert!(program("linker", b"\x7fELF..\0libc.so.6\0libnvJitLink.so.12\0"));
        assert!(program("compiler", b"\x7fELF..\0libnvrtc.so.13\0"));
        assert!(!program("app", b"\x7fELF..\0libcudart.so.13\0"));
        assert!(!program("other", b"\x7fELF..libnvrtc.so.13.pdf"));
        assert!(!may_compile(Path::new("/no/such/program")));
        fs::remove_dir_all(scratch).unwrap();
    }
}
