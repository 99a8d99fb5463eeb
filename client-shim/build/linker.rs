//! What the linker wrapper changes when it links `librgpu.so`.
//!
//! It replaces rustc's version script by one with the nodes of the CUDA runtime libraries, and adds
//! the second version of each runtime symbol, besides hiding one of the C library's functions ([`NO_LOCK_FOR_DESTRUCTORS`]):
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
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use rgpu_linker::{Link, Result, Seen};

use super::libraries::LIBRARIES;

const OLD_NODE: &str = "libcudart.so.12";
const NEW_NODE: &str = "libcudart.so.13";
/// What the variant of an entry point for callers of the old node is called.
const OLD_SUFFIX: &str = "_v12";
/// How the names begin that a program may look up.
const PUBLIC_PREFIXES: [&str; 7] = ["cu", "nvml", "nccl", "nvJitLink", "__cuda", "__nvJitLink", "rgpu_use_"];

/// Hides the C library's function that registers a destructor of a thread's own variable from Rust's standard library, which then keeps a list of its own.
/// The C library's takes the lock of the dynamic loader, and Rust calls it when a thread begins, and when one first waits for a lock. A program that
/// holds the loader's lock may wait for just that thread: one that opens or closes a library whose constructors or destructors use the GPU.
const NO_LOCK_FOR_DESTRUCTORS: &str = "--defsym=__cxa_thread_atexit_impl=0";

/// Replaces the version script, adds the symbols, and hides a function.
pub(crate) fn adjust(link: &mut Link) -> Result<()> {
    let mut script = None;
    link.arguments.retain(|argument| match argument.to_str() {
        Some(text) if text.starts_with("--version-script=") => {
            script = text.strip_prefix("--version-script=").map(PathBuf::from);
            false
        }
        argument => argument != Some("--no-undefined-version"),
    });
    let script = script.ok_or("rustc passed no version script, so the library's exports are unknown")?;
    let exports = parse_exports(&fs::read_to_string(&script)?);
    let ours = link.directory.join("versions.map");
    fs::write(&ours, version_script(&exports))?;
    let mut option = OsString::from("--version-script=");
    option.push(&ours);
    link.arguments.push(option);
    link.arguments.push(NO_LOCK_FOR_DESTRUCTORS.into());
    add_old_versions(link, &exports)
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

/// Defines each runtime symbol a second time, for the old node, as a jump to the entry point: a symbol can be given another name
/// only where it is defined.
fn add_old_versions(link: &mut Link, exports: &BTreeSet<String>) -> Result<()> {
    let names = exports.iter().filter(|name| is_runtime(name));
    let names: BTreeSet<&str> = names.map(|name| old_variant_of(name).unwrap_or(name)).collect();
    for name in names {
        let old = format!("{name}{OLD_SUFFIX}");
        let target = if exports.contains(&old) { &old } else { name };
        link.jump(&format!("{name}@{OLD_NODE}"), target, Seen::Everywhere)?;
    }
    Ok(())
}
