//! The linker wrapper: what the C compiler runs instead of the linker when it links `librgpu.so`.
//!
//! It replaces rustc's version script by one with the nodes of the CUDA runtime libraries, and adds an
//! object file with the second version of each runtime symbol:
//!
//! | name | bound to |
//! | --- | --- |
//! | `cudaX@@libcudart.so.13` | `cudaX` |
//! | `cudaX@libcudart.so.12`  | `cudaX_v12` where the crate exports it, else `cudaX` |
//! | `cuX`, `nvmlX`, `ncclX`, `nvJitLinkX`, `rgpu_use_X` | themselves, without a version |
//!
//! Everything else becomes local. A name without a version is what the loader finds, too, when a program asks for it with
//! one, such as `cublasX@libcublas.so.12`, as long as the file has a node of that name: so it has an empty one for each file of
//! NVIDIA's libraries.

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use object::write::{Object, Relocation, SectionId, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationEncoding, RelocationFlags, RelocationKind, SectionKind,
    SymbolFlags, SymbolKind, SymbolScope,
};

use super::libraries::LIBRARIES;
use super::old_glibc::{self, StandIn};

/// The name under which the C compiler looks for the linker, given `-fuse-ld=bfd`.
pub(crate) const WRAPPER_NAME: &str = "ld.bfd";
/// The file beside the wrapper that says where the real linker is.
pub(crate) const REAL_LINKER_FILE: &str = "real-linker";

/// What is linked for; build scripts run on what they build for, or the loader has no use for the result.
const ARCHITECTURE: Option<Architecture> = if cfg!(target_arch = "x86_64") {
    Some(Architecture::X86_64)
} else if cfg!(target_arch = "aarch64") {
    Some(Architecture::Aarch64)
} else {
    None
};
const OLD_NODE: &str = "libcudart.so.12";
const NEW_NODE: &str = "libcudart.so.13";
/// What the variant of an entry point for callers of the old node is called.
const OLD_SUFFIX: &str = "_v12";
/// How the names begin that a program may look up.
const PUBLIC_PREFIXES: [&str; 7] = ["cu", "nvml", "nccl", "nvJitLink", "__cuda", "__nvJitLink", "rgpu_use_"];

/// Links as the command line says, with the version script replaced.
pub(crate) fn main(wrapper: &Path) -> Result<(), Box<dyn Error>> {
    let directory = wrapper.parent().ok_or("The linker wrapper has no directory")?;
    let real = PathBuf::from(OsString::from_vec(fs::read(directory.join(REAL_LINKER_FILE))?));
    let arguments = expand(std::env::args_os().skip(1).collect())?;

    let mut kept = Vec::new();
    let mut script = None;
    for argument in arguments {
        match argument.to_str() {
            Some(text) if text.starts_with("--version-script=") => {
                script = text.strip_prefix("--version-script=").map(PathBuf::from);
            }
            Some("--no-undefined-version") => {}
            _ => kept.push(argument),
        }
    }
    let script = script.ok_or("rustc passed no version script, so the library's exports are unknown")?;
    let exports = parse_exports(&fs::read_to_string(&script)?);

    let place = kept.iter().position(|argument| argument == "-lgcc_s" || argument == "-lc");
    for stand_in in old_glibc::stand_ins() {
        let library = make_stand_in(stand_in, &real, script.parent().unwrap_or(Path::new(".")))?;
        // Before the C library itself, after all that refers to it.
        kept.insert(place.unwrap_or(kept.len()), library.into());
    }

    // Beside rustc's own script, in its temporary directory, so that builds at the same time do not meet.
    let our_script = script.with_file_name("versions.map");
    let our_object = script.with_file_name("versions.o");
    fs::write(&our_script, version_script(&exports))?;
    fs::write(&our_object, old_versions(&exports)?)?;

    let mut option = OsString::from("--version-script=");
    option.push(&our_script);
    let status = Command::new(&real)
        .args(kept)
        .arg(option)
        .arg(&our_object)
        .status()
        .map_err(|e| format!("Cannot run the linker {}: {e}", real.display()))?;
    std::process::exit(status.code().unwrap_or(1));
}

/// Replaces `@file` arguments by what the files say: words, quoted with `"` or `'`, `\` escaping.
fn expand(arguments: Vec<OsString>) -> Result<Vec<OsString>, Box<dyn Error>> {
    let mut expanded = Vec::new();
    for argument in arguments {
        let Some(file) = argument.as_bytes().strip_prefix(b"@") else {
            expanded.push(argument);
            continue;
        };
        let text = fs::read(PathBuf::from(OsString::from_vec(file.to_vec())))?;
        expanded.extend(words(&text).into_iter().map(OsString::from_vec));
    }
    Ok(expanded)
}

fn words(text: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (_, b'\\') => word.get_or_insert_default().extend(bytes.next()),
            (Some(open), _) if byte == open => quote = None,
            (None, b'"' | b'\'') => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (None, _) if byte.is_ascii_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words
}

/// The names in rustc's version script, `{ global: a; b; local: *; };`.
fn parse_exports(script: &str) -> BTreeSet<String> {
    let global = script.split_once("global:").map_or("", |(_, rest)| rest);
    let global = global.split_once("local:").map_or(global, |(names, _)| names);
    global.split(';').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn is_runtime(name: &str) -> bool {
    name.starts_with("cuda") || name.starts_with("__cuda")
}

/// The entry point that `name` is the old node's variant of.
fn old_variant_of(name: &str) -> Option<&str> {
    if is_runtime(name) { name.strip_suffix(OLD_SUFFIX) } else { None }
}

/// Our version script. Names without a version cannot be listed beside named nodes: they are what no
/// pattern matches, so the local patterns are the complement of [`PUBLIC_PREFIXES`].
fn version_script(exports: &BTreeSet<String>) -> String {
    let mut script = format!("{OLD_NODE} {{\n}};\n");
    for (file, _) in LIBRARIES.iter().flat_map(|library| library.files) {
        let _ = writeln!(script, "{file} {{\n}};");
    }
    let _ = write!(script, "{NEW_NODE} {{\nglobal:\n");
    for name in exports.iter().filter(|name| is_runtime(name) && old_variant_of(name).is_none()) {
        let _ = writeln!(script, "  {name};");
    }
    script.push_str("local:\n");
    let mut local = BTreeSet::new();
    for prefix in PUBLIC_PREFIXES {
        for end in 0..prefix.len() {
            let head = &prefix[..end];
            // Names that leave all prefixes right after `head`, and `head` itself.
            let next: BTreeSet<char> = PUBLIC_PREFIXES
                .iter()
                .filter_map(|other| other.strip_prefix(head))
                .filter_map(|rest| rest.chars().next())
                .collect();
            local.insert(format!("{head}[!{}]*", next.iter().collect::<String>()));
            // As a pattern, because linkers complain about plain names that do not occur.
            if let Some(last) = head.chars().next_back() {
                local.insert(format!("{}[{last}]", &head[..end - last.len_utf8()]));
            }
        }
    }
    local.extend(exports.iter().filter(|name| old_variant_of(name).is_some()).cloned());
    for pattern in local {
        let _ = writeln!(script, "  {pattern};");
    }
    script.push_str("};\n");
    script
}

/// An object file that defines each runtime symbol a second time, for the old node, as a jump to the
/// entry point: a symbol can be given another name only where it is defined.
fn old_versions(exports: &BTreeSet<String>) -> Result<Vec<u8>, Box<dyn Error>> {
    let (mut object, text) = new_object()?;
    let architecture = object.architecture();
    if architecture == Architecture::X86_64 {
        old_glibc::define_missing(&mut object, text)?;
    }
    let names = exports.iter().filter(|name| is_runtime(name));
    let names: BTreeSet<&str> = names.map(|name| old_variant_of(name).unwrap_or(name)).collect();
    for name in names {
        let old = format!("{name}{OLD_SUFFIX}");
        let target = if exports.contains(&old) { &old } else { name };
        // x86-64: jmp rel32. AArch64: b imm26.
        let (code, kind, at, addend): (&[u8], _, _, _) = match architecture {
            Architecture::X86_64 => {
                (&[0xe9, 0, 0, 0, 0, 0xcc, 0xcc, 0xcc], RelocationEncoding::X86Branch, 1, -4)
            }
            _ => (&[0, 0, 0, 0x14, 0, 0, 0, 0], RelocationEncoding::AArch64Call, 0, 0),
        };
        let size = if architecture == Architecture::X86_64 { 32 } else { 26 };
        let offset = object.append_section_data(text, code, 8);
        let symbol = object.add_symbol(undefined(target));
        let flags = RelocationFlags::Generic { kind: RelocationKind::PltRelative, encoding: kind, size };
        object.add_relocation(text, Relocation { offset: offset + at, symbol, addend, flags })?;
        define(&mut object, text, &format!("{name}@{OLD_NODE}"), offset, code.len() as u64);
    }
    Ok(object.write()?)
}

/// Makes a shared object that has a library's name and its symbols.
fn make_stand_in(stand_in: &StandIn, real: &Path, directory: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let (mut object, text) = new_object()?;
    stand_in.define_in(&mut object, text);
    let file = |suffix: &str| directory.join(format!("{}{suffix}", stand_in.soname));
    fs::write(file(".o"), object.write()?)?;
    fs::write(file(".map"), stand_in.script())?;
    let mut option = OsString::from("--version-script=");
    option.push(file(".map"));
    let library = file(".so");
    let status = Command::new(real)
        .args(["-shared", "-soname", stand_in.soname])
        .arg(option)
        .arg(file(".o"))
        .arg("-o")
        .arg(&library)
        .status()?;
    if !status.success() {
        return Err(format!("Cannot link a stand-in for {}", stand_in.soname).into());
    }
    Ok(library)
}

fn new_object() -> Result<(Object<'static>, SectionId), Box<dyn Error>> {
    let architecture = ARCHITECTURE
        .ok_or_else(|| format!("librgpu.so cannot be linked for {} yet", std::env::consts::ARCH))?;
    let mut object = Object::new(BinaryFormat::Elf, architecture, Endianness::Little);
    let text = object.add_section(Vec::new(), b".text.rgpu".to_vec(), SectionKind::Text);
    object.add_section(Vec::new(), b".note.GNU-stack".to_vec(), SectionKind::Other);
    Ok((object, text))
}

/// Defines a function.
pub(crate) fn define(object: &mut Object<'_>, text: SectionId, name: &str, offset: u64, size: u64) {
    object.add_symbol(Symbol {
        name: name.as_bytes().to_vec(),
        value: offset,
        size,
        kind: SymbolKind::Text,
        scope: SymbolScope::Dynamic,
        weak: false,
        section: SymbolSection::Section(text),
        flags: SymbolFlags::None,
    });
}

/// A function that is defined elsewhere.
pub(crate) fn undefined(name: &str) -> Symbol {
    Symbol {
        name: name.as_bytes().to_vec(),
        value: 0,
        size: 0,
        kind: SymbolKind::Text,
        scope: SymbolScope::Unknown,
        weak: false,
        section: SymbolSection::Undefined,
        flags: SymbolFlags::None,
    }
}
