//! Links programs and libraries so that they run with glibc 2.28 or newer, whatever the machine has that links them.
//!
//! The linker binds each function of the C library to its newest version, and so the result to the newest C library that any of
//! them needs, although nearly all of them have older versions that every C library still answers to. rustc lets nobody choose. So
//! the link goes through a wrapper, which is the build script itself, copied to a directory where the C compiler looks for
//! its linker. What it does to the link says [`glibc`]; a build script can change more ([`Link`]).
//!
//! ```no_run
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     rgpu_linker::main(&rgpu_linker::Build::programs(), |_| Ok(()))
//! }
//! ```
//!
//! All of it is asked for by what the build script prints, so it needs no configuration and touches only that package's programs or
//! library. It is for x86-64 and AArch64 with glibc; for others nothing is changed.

mod arguments;
mod code;
mod glibc;

use std::error::Error;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use code::Machine;
use object::write::{Object, Relocation, StandardSection, Symbol, SymbolSection};
use object::{BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind, SymbolScope};

/// Anything that can go wrong, for people.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The name under which the C compiler looks for the linker, given `-fuse-ld=bfd`.
const WRAPPER_NAME: &str = "ld.bfd";
/// The file beside the wrapper that says where the real linker is.
const REAL_LINKER_FILE: &str = "real-linker";
/// The file beside the wrapper that says which processor is linked for.
const MACHINE_FILE: &str = "machine";

/// What a build script asks for.
#[derive(Debug)]
pub struct Build<'a> {
    /// Which of the package's outputs, as Cargo's instruction names them.
    instruction: &'static str,
    /// More options for the C compiler that links.
    options: &'a [&'a str],
    /// What the build script is made of, for Cargo to look at.
    sources: &'a [&'a str],
}

impl<'a> Build<'a> {
    /// For all programs of a package whose build script is `build.rs`.
    pub fn programs() -> Self {
        Self { instruction: "rustc-link-arg-bins", options: &[], sources: &["build.rs"] }
    }

    /// For a package's shared library.
    pub fn library(options: &'a [&'a str], sources: &'a [&'a str]) -> Self {
        Self { instruction: "rustc-cdylib-link-arg", options, sources }
    }
}

/// The whole of a build script's `main`: prepares the link, or links, with what `adjust` changes.
///
/// # Errors
/// Cargo's variables are missing, files cannot be written, or there is no linker. A linker's own failure ends the process with its
/// status.
pub fn main(build: &Build<'_>, adjust: impl FnOnce(&mut Link) -> Result<()>) -> Result<()> {
    let program = env::args_os().next().map(PathBuf::from).unwrap_or_default();
    if program.file_name().is_some_and(|name| name == WRAPPER_NAME) {
        link(&program, adjust)
    } else {
        prepare(build)
    }
}

fn prepare(build: &Build<'_>) -> Result<()> {
    for source in build.sources {
        println!("cargo::rerun-if-changed={source}");
    }
    println!("cargo::rerun-if-env-changed=RUSTC");
    let architecture = variable("CARGO_CFG_TARGET_ARCH")?;
    let glibc = variable("CARGO_CFG_TARGET_OS")? == "linux"
        && env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|name| name == "gnu");
    if !glibc || Machine::named(&architecture).is_none() {
        return Ok(());
    }
    let directory = PathBuf::from(variable("OUT_DIR")?).join("linker");
    fs::create_dir_all(&directory)?;
    let wrapper = directory.join(WRAPPER_NAME);
    // A new file rather than an overwritten one: the old one may be running.
    let _ = fs::remove_file(&wrapper);
    fs::copy(env::current_exe()?, &wrapper)?;
    fs::write(directory.join(REAL_LINKER_FILE), real_linker(&architecture)?.as_os_str().as_bytes())?;
    fs::write(directory.join(MACHINE_FILE), architecture)?;

    let argument = |text: &str| println!("cargo::{}={text}", build.instruction);
    argument("-fuse-ld=bfd");
    argument(&format!("-B{}", directory.display()));
    build.options.iter().for_each(|option| argument(option));
    Ok(())
}

/// The linker that does the work: rustc's own where it has one, else the system's.
fn real_linker(architecture: &str) -> Result<PathBuf> {
    let output = Command::new(variable("RUSTC")?).args(["--print", "sysroot"]).output()?;
    let sysroot = String::from_utf8(output.stdout)?;
    let rust_lld =
        Path::new(sysroot.trim()).join("lib/rustlib").join(variable("HOST")?).join("bin/gcc-ld/ld.lld");
    if rust_lld.is_file() {
        return Ok(rust_lld);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let of_target = format!("{architecture}-linux-gnu-ld");
    for name in ["ld.lld", &of_target, "ld.bfd", "ld"] {
        if let Some(found) = env::split_paths(&path).map(|p| p.join(name)).find(|p| p.is_file()) {
            return Ok(found);
        }
    }
    Err("No linker was found: install binutils or lld".into())
}

fn variable(name: &str) -> Result<String> {
    env::var(name).map_err(|e| format!("Cargo did not set {name}: {e}").into())
}

/// A link that is about to be made.
#[derive(Debug)]
pub struct Link {
    /// The linker's arguments.
    pub arguments: Vec<OsString>,
    /// A directory for files that the linker reads.
    pub directory: PathBuf,
    machine: Machine,
    object: Object<'static>,
}

/// Links as the command line says, with what [`glibc`] and the build script change.
fn link(wrapper: &Path, adjust: impl FnOnce(&mut Link) -> Result<()>) -> Result<()> {
    let beside = wrapper.parent().ok_or("The linker wrapper has no directory")?;
    let real = PathBuf::from(OsString::from_vec(fs::read(beside.join(REAL_LINKER_FILE))?));
    let name = fs::read_to_string(beside.join(MACHINE_FILE))?;
    let machine = Machine::named(&name).ok_or_else(|| format!("Nothing can be linked for {name}"))?;
    let directory = env::temp_dir().join(format!("rgpu-link-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let mut link = Link {
        arguments: arguments::expand(env::args_os().skip(1).collect())?,
        directory: directory.clone(),
        machine,
        object: new_object(machine),
    };
    let status =
        glibc::adjust(&mut link, &real).and_then(|()| adjust(&mut link)).and_then(|()| link.run(&real));
    fs::remove_dir_all(&directory)?;
    std::process::exit(status?);
}

impl Link {
    /// Defines a function that jumps to another one, with whatever arguments it has. A name can have a version: `exp@GLIBC_2.2.5`.
    pub fn jump(&mut self, name: &str, target: &str, seen: Seen) -> Result<()> {
        self.define(name, &self.machine.jump(target), seen)
    }

    fn define(&mut self, name: &str, code: &code::Code, seen: Seen) -> Result<()> {
        // A section for each, so that what nobody calls is left out.
        let section = format!(".text.rgpu.{name}").into_bytes();
        let section = self.object.add_section(Vec::new(), section, SectionKind::Text);
        let offset = self.object.append_section_data(section, &code.bytes, 16);
        for reference in &code.references {
            let symbol =
                self.object.add_symbol(symbol(reference.symbol.as_bytes(), SymbolSection::Undefined));
            self.object.add_relocation(
                section,
                Relocation {
                    offset: offset + reference.at,
                    symbol,
                    addend: reference.addend,
                    flags: RelocationFlags::Elf { r_type: reference.kind },
                },
            )?;
        }
        let mut defined = symbol(name.as_bytes(), SymbolSection::Section(section));
        (defined.value, defined.size, defined.scope) = (offset, code.bytes.len() as u64, seen.scope());
        self.object.add_symbol(defined);
        Ok(())
    }

    /// Has a function that callers look for at run time be absent.
    fn remove(&mut self, name: &str) {
        let mut absent = symbol(name.as_bytes(), SymbolSection::Absolute);
        (absent.kind, absent.scope) = (SymbolKind::Data, SymbolScope::Linkage);
        self.object.add_symbol(absent);
    }

    /// Puts a file before the C library, after all that refers to it.
    fn before_c_library(&mut self, file: PathBuf) {
        let place = self.arguments.iter().position(|argument| argument == "-lgcc_s" || argument == "-lc");
        self.arguments.insert(place.unwrap_or(self.arguments.len()), file.into());
    }

    /// Runs the linker, and returns its status.
    fn run(self, real: &Path) -> Result<i32> {
        let object = self.directory.join("rgpu.o");
        fs::write(&object, self.object.write()?)?;
        let status = Command::new(real)
            .args(self.arguments)
            .arg(&object)
            .status()
            .map_err(|e| format!("Cannot run the linker {}: {e}", real.display()))?;
        Ok(status.code().unwrap_or(1))
    }
}

/// Where a definition is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// In what is being linked.
    Inside,
    /// By other libraries and programs as well, unless a version script says otherwise.
    Everywhere,
}

impl Seen {
    fn scope(self) -> SymbolScope {
        match self {
            Self::Inside => SymbolScope::Linkage,
            Self::Everywhere => SymbolScope::Dynamic,
        }
    }
}

fn new_object(machine: Machine) -> Object<'static> {
    let mut object = Object::new(BinaryFormat::Elf, machine.architecture(), Endianness::Little);
    object.section_id(StandardSection::Text);
    object.add_section(Vec::new(), b".note.GNU-stack".to_vec(), SectionKind::Other);
    object
}

fn symbol(name: &[u8], section: SymbolSection) -> Symbol {
    Symbol {
        name: name.to_vec(),
        value: 0,
        size: 0,
        kind: SymbolKind::Text,
        scope: SymbolScope::Unknown,
        weak: false,
        section,
        flags: SymbolFlags::None,
    }
}
