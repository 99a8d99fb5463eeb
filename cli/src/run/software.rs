//! What a program needs besides the preload where its device is a software GPU.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::elf::{FileHeader, SectionHeader};
use object::{LittleEndian, elf::FileHeader64};
use rgpu_control::settings::{
    self, IN_PROCESS_VARIABLE, LEASE_VARIABLE, SERVER_VARIABLE, SOFTWARE_TOOLS_VARIABLE,
};

use super::frameworks::{self, Python};
use super::{Arguments, DeviceSource};
use crate::library::{self, Links};
use crate::probe;

/// Whether the program's device is a software GPU: said by the user, known from where it is, or asked of the server. What is not
/// known is none.
pub(super) fn is_used(arguments: &Arguments, source: DeviceSource) -> bool {
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
    server.is_some_and(|server| !has_device_code(&program) && is_software(&server, arguments))
}

/// Whether a server says that its devices take PTX alone. Where it cannot be asked, the program will say why.
fn is_software(server: &str, arguments: &Arguments) -> bool {
    let first = server.split(',').next().unwrap_or_default().trim();
    let Ok(token) = probe::token(arguments.token_file.as_deref()) else { return false };
    let Ok(found) = probe::ask(first, &token) else { return false };
    let devices = &found.answer.devices;
    !devices.is_empty() && devices.iter().all(|device| device.accepts_ptx && !device.accepts_cubin)
}

/// Whether a program carries its device code, as nvcc makes them: it compiles nothing when it runs, and so nobody has to be asked.
fn has_device_code(program: &Path) -> bool {
    let path = frameworks::find(program);
    let Some(bytes) = path.and_then(|path| fs::read(path).ok()) else { return false };
    let sections = || {
        let header = FileHeader64::<LittleEndian>::parse(&*bytes).ok()?;
        header.sections(LittleEndian, &*bytes).ok()
    };
    sections().is_some_and(|sections| {
        sections.iter().any(|section| {
            sections.section_name(LittleEndian, section).is_ok_and(|name| name == b".nv_fatbin")
                && section.sh_size(LittleEndian) > 0
        })
    })
}

/// Tells the program, what it loads, and the frameworks that it may use.
pub(super) fn prepare(command: &mut Command, program: &OsStr, links: &Links) {
    command.env(SOFTWARE_TOOLS_VARIABLE, "1");
    let python = Python::of(Path::new(program));
    let path = command.get_envs().find(|(name, _)| *name == "LD_LIBRARY_PATH").and_then(|(_, value)| value);
    let mut path = library::prepend(&links.software(), path, b":;");
    // TensorFlow looks for the libraries of NVIDIA's packages nowhere else.
    if let Some(python) = python.as_ref().filter(|python| python.find("tensorflow/__init__.py").is_some()) {
        for folder in python.library_folders() {
            path.push(":");
            path.push(folder);
        }
    }
    command.env("LD_LIBRARY_PATH", path);
    for setting in frameworks::settings(python.as_ref(), &links.software()) {
        command.env(setting.name, setting.value);
    }
}
