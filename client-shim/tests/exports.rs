//! What `librgpu.so` looks like to the dynamic loader.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, Sym};

const ENDIAN: LittleEndian = LittleEndian;

fn library() -> Vec<u8> {
    let test = std::env::current_exe().unwrap();
    let path: PathBuf = test.parent().unwrap().join("librgpu.so");
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The exported symbols: name, and the version that each is bound to (empty without one).
fn exports(bytes: &[u8]) -> BTreeSet<(String, String)> {
    let header = FileHeader64::<LittleEndian>::parse(bytes).unwrap();
    let sections = header.sections(ENDIAN, bytes).unwrap();
    let symbols = sections.symbols(ENDIAN, bytes, elf::SHT_DYNSYM).unwrap();
    let versions = sections.versions(ENDIAN, bytes).unwrap().unwrap();
    symbols
        .enumerate()
        .filter(|(_, symbol)| !symbol.is_undefined(ENDIAN) && symbol.st_shndx(ENDIAN) != elf::SHN_ABS)
        .map(|(index, symbol)| {
            let name = symbol.name(ENDIAN, symbols.strings()).unwrap();
            let version = versions.version_index(ENDIAN, index);
            let version = versions.version(version).unwrap().map_or(&b""[..], |version| version.name());
            (String::from_utf8_lossy(name).into_owned(), String::from_utf8_lossy(version).into_owned())
        })
        .collect()
}

#[test]
fn only_nvidias_names_and_one_switch_are_exported() {
    let mut exports = exports(&library());
    assert!(exports.remove(&("rgpu_use_in_process".into(), String::new())));
    let strangers: Vec<_> = exports
        .iter()
        .filter(|(name, _)| {
            let prefixes = ["cu", "__cuda", "nvml", "nvJitLink", "__nvJitLink", "nccl"];
            !prefixes.iter().any(|prefix| name.starts_with(prefix))
        })
        .collect();
    assert!(strangers.is_empty(), "{strangers:?}");
}

#[test]
fn runtime_names_have_both_nodes_and_driver_names_none() {
    let exports = exports(&library());
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, version) in &exports {
        versions.entry(name).or_default().insert(version);
    }
    let runtime = |name: &str| name.starts_with("cuda") || name.starts_with("__cuda");
    let mut counts = (0, 0);
    for (name, versions) in &versions {
        assert!(!name.ends_with("_v12"), "{name} is a variant, not a name");
        let versions: Vec<_> = versions.iter().copied().collect();
        if !runtime(name) {
            counts.1 += 1;
            // The library's own name stands for the lack of a version.
            assert!(versions.iter().all(|v| ["", "libcuda.so.1"].contains(v)), "{name} {versions:?}");
        } else {
            counts.0 += 1;
            assert!(versions.contains(&"libcudart.so.12"), "{name} {versions:?}");
            assert!(versions.iter().all(|v| v.starts_with("libcudart.so.1")), "{name} {versions:?}");
        }
    }
    assert!(counts.0 > 400 && counts.1 > 400, "{counts:?}");
    assert_eq!(versions["cudaMalloc"], BTreeSet::from(["libcudart.so.12", "libcudart.so.13"]));
}

#[test]
fn programs_linked_with_other_libraries_find_their_version() {
    let bytes = library();
    let header = FileHeader64::<LittleEndian>::parse(&*bytes).unwrap();
    let sections = header.sections(ENDIAN, &*bytes).unwrap();
    let (mut definitions, link) = sections.gnu_verdef(ENDIAN, &*bytes).unwrap().unwrap();
    let strings = sections.strings(ENDIAN, &*bytes, link).unwrap();
    let mut nodes = BTreeSet::new();
    while let Some((_, mut names)) = definitions.next().unwrap() {
        while let Some(name) = names.next().unwrap() {
            nodes.insert(name.name(ENDIAN, strings).unwrap().to_vec());
        }
    }
    for (file, _) in rgpu_control::libraries::LIBRARIES.iter().flat_map(|library| library.files) {
        assert!(nodes.contains(file.as_bytes()), "there is no version {file}");
    }
    let exports = exports(&bytes);
    for name in ["nvJitLinkCreate", "__nvJitLinkCreate_12_0", "__nvJitLinkGetLinkedCubin_13_5"] {
        assert!(exports.contains(&(name.into(), String::new())), "{name}");
    }
}

#[test]
fn the_loader_takes_it_for_the_driver_and_runs_it_first() {
    let bytes = library();
    let header = FileHeader64::<LittleEndian>::parse(&*bytes).unwrap();
    let sections = header.sections(ENDIAN, &*bytes).unwrap();
    let (entries, link) = sections.dynamic(ENDIAN, &*bytes).unwrap().unwrap();
    let strings = sections.strings(ENDIAN, &*bytes, link).unwrap();
    let entry = |tag: u32| entries.iter().find(|entry| entry.tag32(ENDIAN) == Some(tag));
    let soname = entry(elf::DT_SONAME).unwrap().string(ENDIAN, strings).unwrap();
    assert_eq!(soname, b"libcuda.so.1");
    let flags = entry(elf::DT_FLAGS_1).unwrap().d_val(ENDIAN);
    for flag in [elf::DF_1_INITFIRST, elf::DF_1_NODELETE, elf::DF_1_NOW] {
        assert_ne!(flags & u64::from(flag), 0, "flags are {flags:#x}");
    }
}

#[test]
fn destructors_of_threads_need_no_lock_of_the_loader() {
    let bytes = library();
    let header = FileHeader64::<LittleEndian>::parse(&*bytes).unwrap();
    let sections = header.sections(ENDIAN, &*bytes).unwrap();
    let symbols = sections.symbols(ENDIAN, &*bytes, elf::SHT_DYNSYM).unwrap();
    let names: Vec<_> =
        symbols.iter().map(|symbol| symbol.name(ENDIAN, symbols.strings()).unwrap()).collect();
    assert!(names.contains(&&b"pthread_key_create"[..]), "Rust keeps no list of its own");
    // Neither the C library's, nor ours for the program.
    assert!(!names.contains(&&b"__cxa_thread_atexit_impl"[..]));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn no_newer_c_library_than_2_28_is_needed() {
    let bytes = library();
    let header = FileHeader64::<LittleEndian>::parse(&*bytes).unwrap();
    let sections = header.sections(ENDIAN, &*bytes).unwrap();
    let (mut needs, link) = sections.gnu_verneed(ENDIAN, &*bytes).unwrap().unwrap();
    let strings = sections.strings(ENDIAN, &*bytes, link).unwrap();
    let mut seen = 0;
    while let Some((_, mut versions)) = needs.next().unwrap() {
        while let Some(version) = versions.next().unwrap() {
            let name = String::from_utf8_lossy(version.name(ENDIAN, strings).unwrap()).into_owned();
            let Some(number) = name.strip_prefix("GLIBC_2.") else { continue };
            let minor: u32 = number.split('.').next().unwrap().parse().unwrap();
            assert!(minor <= 28, "{name}");
            seen += 1;
        }
    }
    assert!(seen > 3);
}
