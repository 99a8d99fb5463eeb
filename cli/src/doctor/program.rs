//! What kind of program a command is, and whether its CUDA calls can be redirected.

use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{LittleEndian, ReadRef};

use super::{Finding, device_code};

type Header = FileHeader64<LittleEndian>;
const ENDIAN: LittleEndian = LittleEndian;
/// How many scripts may stand between a command and a program.
const SCRIPTS: usize = 4;
/// How many objects are looked at.
const OBJECTS: usize = 500;

/// Checks a command.
pub(super) fn check(command: &OsStr) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut path = match find(command) {
        Ok(path) => path,
        Err(finding) => return vec![finding],
    };
    for _ in 0..SCRIPTS {
        findings.extend(privileges(&path));
        match interpreter(&path) {
            Some(Ok(next)) => {
                findings.push(Finding::note(format!(
                    "{} is a script for {}",
                    path.display(),
                    next.display()
                )));
                path = next;
            }
            Some(Err(finding)) => {
                findings.push(finding);
                return findings;
            }
            None => break,
        }
    }
    program(&path, &mut findings);
    findings
}

/// Looks a command up as a shell does.
fn find(command: &OsStr) -> Result<PathBuf, Finding> {
    let name = command.to_string_lossy();
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return match fs::metadata(&path) {
            Ok(status) if status.is_dir() => {
                Err(Finding::bad(format!("{name} is a directory"), "name a program"))
            }
            Ok(status) if status.permissions().mode() & 0o111 == 0 => {
                Err(Finding::bad(format!("{name} is not executable"), format!("chmod +x {name}")))
            }
            Ok(_) => Ok(path),
            Err(e) => Err(Finding::bad(format!("{name}: {e}"), "name a program that is there")),
        };
    }
    let list = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&list)
        .map(|directory| directory.join(command))
        .find(|path| fs::metadata(path).is_ok_and(|s| s.is_file() && s.permissions().mode() & 0o111 != 0))
        .ok_or_else(|| {
            Finding::bad(format!("{name} is not in PATH"), format!("for a program right here, say ./{name}"))
        })
}

/// The dynamic loader ignores LD_PRELOAD where a program gets more rights than its user has.
fn privileges(path: &Path) -> Option<Finding> {
    let status = fs::metadata(path).ok()?;
    let name = path.display();
    let advice = "run a copy that has no such rights (cp keeps none)";
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let setuid = status.mode() & libc::S_ISUID != 0 && status.uid() != user;
    let setgid = status.mode() & libc::S_ISGID != 0 && status.gid() != group;
    if setuid || setgid {
        let what = format!("{name} is setuid or setgid, so that LD_PRELOAD is ignored");
        return Some(Finding::bad(what, advice));
    }
    // With no room for the value, its size is returned.
    let nothing: &mut [u8] = &mut [];
    let capabilities = rustix::fs::getxattr(path, c"security.capability", nothing);
    capabilities
        .is_ok_and(|size| size > 0)
        .then(|| Finding::bad(format!("{name} has file capabilities, so that LD_PRELOAD is ignored"), advice))
}

/// The program that runs a script; `None` if it isn't one.
fn interpreter(path: &Path) -> Option<Result<PathBuf, Finding>> {
    let mut start = Vec::new();
    fs::File::open(path).ok()?.take(512).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t' | b'\r')).filter(|word| !word.is_empty());
    let mut next = words.next()?;
    if next.ends_with(b"/env") {
        next = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
    }
    Some(find(OsStr::from_bytes(next)))
}

/// What is known of one ELF object.
#[derive(Debug, Default)]
struct Facts<'a> {
    interpreter: Option<Vec<u8>>,
    needed: Vec<String>,
    /// Where it looks for what it needs, before and after LD_LIBRARY_PATH.
    rpath: Option<String>,
    runpath: Option<String>,
    /// Its section of device code.
    device_code: Option<&'a [u8]>,
    /// The section of what its device code was linked from (`nvcc -rdc=true`).
    device_parts: Option<&'a [u8]>,
    has_symbols: bool,
    has_static_runtime: bool,
    /// A path of the driver that it opens by that very path.
    driver_path: Option<String>,
}

impl Facts<'_> {
    fn has_stripped_runtime(&self) -> bool {
        self.device_code.is_some()
            && !self.has_symbols
            && !self.needed.iter().any(|name| name.starts_with("libcudart.so"))
    }
}

/// Why a file is no program for this machine; said after its name.
#[derive(Debug, thiserror::Error)]
enum Unsuited {
    #[error("cannot be read: {0}")]
    Unreadable(std::io::Error),
    #[error("is no ELF program")]
    Alien,
    #[error("is a 32-bit program")]
    Bits32,
    #[error("is no readable ELF program: {0}")]
    Damaged(object::read::Error),
    #[error("is for another kind of processor")]
    Processor,
}

/// Reads an object for this machine.
fn read(bytes: &[u8]) -> Result<Facts<'_>, Unsuited> {
    if !bytes.starts_with(&elf::ELFMAG) {
        return Err(Unsuited::Alien);
    }
    if bytes.get(4) != Some(&elf::ELFCLASS64) {
        return Err(Unsuited::Bits32);
    }
    let header = Header::parse(bytes).map_err(Unsuited::Damaged)?;
    let machine = match std::env::consts::ARCH {
        "x86_64" => elf::EM_X86_64,
        "aarch64" => elf::EM_AARCH64,
        _ => header.e_machine(ENDIAN),
    };
    if header.e_machine(ENDIAN) != machine {
        return Err(Unsuited::Processor);
    }
    let mut facts = Facts::default();
    read_dynamic(header, bytes, &mut facts);
    read_sections(header, bytes, &mut facts);
    facts.driver_path = driver_path(bytes);
    Ok(facts)
}

fn read_dynamic(header: &Header, bytes: &[u8], facts: &mut Facts<'_>) {
    let Ok(segments) = header.program_headers(ENDIAN, bytes) else { return };
    let mut entries: &[elf::Dyn64<LittleEndian>] = &[];
    for segment in segments {
        if let Ok(Some(path)) = segment.interpreter(ENDIAN, bytes) {
            facts.interpreter = Some(path.to_vec());
        }
        if let Ok(Some(dynamic)) = segment.dynamic(ENDIAN, bytes) {
            entries = dynamic;
        }
    }
    let value = |tag: u32| {
        entries.iter().find(|entry| entry.tag32(ENDIAN) == Some(tag)).map(|entry| entry.d_val(ENDIAN))
    };
    let Some(strings) = value(elf::DT_STRTAB) else { return };
    let strings = segments.iter().find_map(|segment| {
        let (start, size) = (segment.p_vaddr(ENDIAN), segment.p_filesz(ENDIAN));
        let inside = segment.p_type(ENDIAN) == elf::PT_LOAD && strings >= start && strings - start < size;
        inside.then(|| segment.p_offset(ENDIAN) + (strings - start))
    });
    let Some(strings) = strings else { return };
    let string = |offset: u64| {
        let at = strings.checked_add(offset)?;
        let text = bytes.read_bytes_at_until(at..bytes.len() as u64, 0).ok()?;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    for entry in entries {
        let text = || string(entry.d_val(ENDIAN));
        match entry.tag32(ENDIAN) {
            Some(elf::DT_NULL) => break,
            Some(elf::DT_NEEDED) => facts.needed.extend(text()),
            Some(elf::DT_RPATH) => facts.rpath = text(),
            Some(elf::DT_RUNPATH) => facts.runpath = text(),
            _ => {}
        }
    }
}

fn read_sections<'a>(header: &'a Header, bytes: &'a [u8], facts: &mut Facts<'a>) {
    let Ok(sections) = header.sections(ENDIAN, bytes) else { return };
    let named = |wanted: &[u8]| {
        sections
            .iter()
            .filter(|section| sections.section_name(ENDIAN, section).is_ok_and(|name| name == wanted))
            .find_map(|section| section.data(ENDIAN, bytes).ok())
            .filter(|code| !code.is_empty())
    };
    facts.device_code = named(b".nv_fatbin");
    facts.device_parts = named(b"__nv_relfatbin");
    let Ok(symbols) = sections.symbols(ENDIAN, bytes, elf::SHT_SYMTAB) else { return };
    facts.has_symbols = !symbols.is_empty();
    let defines = |name: &[u8]| {
        symbols.iter().any(|symbol| {
            !symbol.is_undefined(ENDIAN) && symbol.name(ENDIAN, symbols.strings()).is_ok_and(|n| n == name)
        })
    };
    facts.has_static_runtime = defines(b"__cudaRegisterFatBinary") && defines(b"cudaRuntimeGetVersion");
}

/// An absolute path of the driver among a program's constants.
fn driver_path(bytes: &[u8]) -> Option<String> {
    const NAME: &[u8] = b"/libcuda.so";
    bytes.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME).find_map(|(at, _)| {
        let start = bytes[..at].iter().rposition(|byte| !byte.is_ascii_graphic()).map_or(0, |i| i + 1);
        let end = at + bytes[at..].iter().position(|byte| !byte.is_ascii_graphic())?;
        let text = &bytes[start..end];
        text.starts_with(b"/").then(|| String::from_utf8_lossy(text).into_owned())
    })
}

/// Checks a program and the libraries that it is linked with.
fn program(path: &Path, findings: &mut Vec<Finding>) {
    let name = path.display().to_string();
    let unsuited = |why: Unsuited| Finding::bad(format!("{name} {why}"), "name a program for this machine");
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) => {
            findings.push(unsuited(Unsuited::Unreadable(e)));
            return;
        }
    };
    let facts = match read(&bytes) {
        Ok(facts) => facts,
        Err(why) => {
            findings.push(unsuited(why));
            return;
        }
    };
    match facts.interpreter.as_deref() {
        None => {
            findings.push(Finding::bad(
                format!("{name} is linked fully statically, so that no library can be preloaded"),
                "link it without -static",
            ));
            return;
        }
        Some(loader) if loader.windows(7).any(|window| window == b"ld-musl") => {
            findings.push(Finding::bad(
                format!("{name} is linked with musl, and rgpu's library with glibc"),
                "build it on a distribution with glibc",
            ));
            return;
        }
        Some(_) => {}
    }

    let mut found_cuda = describe(&name, &facts, findings);
    let mut seen: HashSet<String> = HashSet::new();
    let mut queue: VecDeque<(String, PathBuf, Option<String>, Option<String>)> = VecDeque::new();
    let enqueue = |facts: &Facts<'_>, path: &Path, queue: &mut VecDeque<_>| {
        for needed in &facts.needed {
            queue.push_back((needed.clone(), path.to_owned(), facts.rpath.clone(), facts.runpath.clone()));
        }
    };
    enqueue(&facts, path, &mut queue);
    while let Some((needed, by, rpath, runpath)) = queue.pop_front() {
        if seen.len() >= OBJECTS || !seen.insert(needed.clone()) {
            continue;
        }
        if let Some(finding) = replaced(&needed, &by) {
            found_cuda = true;
            findings.push(finding);
            continue;
        }
        let Some(library) = locate(&needed, &by, rpath.as_deref(), runpath.as_deref()) else {
            findings.push(Finding::bad(
                format!("{} needs {needed}, which is not found", by.display()),
                format!("install it, or name its directory in LD_LIBRARY_PATH{}", maths_advice(&needed)),
            ));
            continue;
        };
        let Ok(bytes) = fs::read(&library) else { continue };
        let Ok(facts) = read(&bytes) else { continue };
        found_cuda |= describe(&library.display().to_string(), &facts, findings);
        enqueue(&facts, &library, &mut queue);
    }

    if path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"python")) {
        findings.push(Finding::note(
            "Python loads its modules later; those with a static CUDA runtime must not be stripped",
        ));
    } else if !found_cuda {
        findings.push(Finding::note(format!(
            "{name} contains no CUDA; what it loads or starts later gets the same treatment"
        )));
    }
}

/// Says what an object's CUDA is like; `false` if there is none.
fn describe(name: &str, facts: &Facts<'_>, findings: &mut Vec<Finding>) -> bool {
    if let Some(path) = &facts.driver_path {
        findings.push(Finding::note(format!(
            "{name} contains the driver's path {path}; opened by its path, that driver and not rgpu answers"
        )));
    }
    if let Some(code) = facts.device_code {
        findings.extend(device_code::check(name, code, facts.device_parts.unwrap_or_default()));
    }
    if facts.has_static_runtime {
        findings.push(if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            Finding::good(format!("{name} has a static CUDA runtime with symbols, which is redirected"))
        } else {
            Finding::bad(
                format!("{name} has a static CUDA runtime, which is redirected on x86-64 and AArch64 only"),
                "build it with nvcc -cudart shared",
            )
        });
        return true;
    }
    if facts.has_stripped_runtime() {
        findings.push(Finding::bad(
            format!("{name} has a static CUDA runtime without symbols, which cannot be redirected"),
            "build it without strip or -s, or with nvcc -cudart shared",
        ));
        return true;
    }
    facts.device_code.is_some()
}

/// What to say of a library that rgpu stands in for, or cannot.
fn replaced(needed: &str, by: &Path) -> Option<Finding> {
    let by = by.display();
    if let Some(version) = needed.strip_prefix("libcudart.so.") {
        return Some(match version {
            "12" | "13" => {
                Finding::good(format!("{by} uses the shared CUDA runtime {version}, which is replaced"))
            }
            _ => Finding::bad(
                format!("{by} needs {needed}, and only the CUDA runtimes 12 and 13 are replaced"),
                "build it with CUDA 12 or 13",
            ),
        });
    }
    match needed {
        "libcuda.so.1" => Some(Finding::good(format!("{by} uses the CUDA driver, which is replaced"))),
        "libnvidia-ml.so.1" => Some(Finding::good(format!("{by} uses NVML, which is replaced"))),
        _ => None,
    }
}

/// What to add where a CUDA library above the runtime is missing.
fn maths_advice(needed: &str) -> &'static str {
    let above = ["libcudnn", "libcufft", "libcurand", "libcusolver", "libcusparse", "libnccl"];
    if above.iter().any(|name| needed.starts_with(name)) {
        " (rgpu does not replace NVIDIA's libraries above the runtime yet)"
    } else {
        ""
    }
}

/// Finds a library as the dynamic loader does.
fn locate(name: &str, by: &Path, rpath: Option<&str>, runpath: Option<&str>) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let origin = by.canonicalize().ok()?.parent()?.to_owned();
    let expand = |list: &str| -> Vec<PathBuf> {
        let origin = origin.to_string_lossy();
        list.split(':')
            .filter(|item| !item.is_empty())
            .map(|item| item.replace("$ORIGIN", &origin).replace("${ORIGIN}", &origin).into())
            .collect()
    };
    let mut directories = Vec::new();
    if runpath.is_none() {
        directories.extend(rpath.map(expand).unwrap_or_default());
    }
    let list = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let items = list.as_bytes().split(|byte| b":;".contains(byte)).filter(|item| !item.is_empty());
    directories.extend(items.map(|item| PathBuf::from(OsString::from_vec(item.to_vec()))));
    directories.extend(runpath.map(expand).unwrap_or_default());
    directories.extend(system_directories());
    directories.into_iter().map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// The directories in the dynamic loader's configuration, and those built into it.
fn system_directories() -> Vec<PathBuf> {
    let mut directories = Vec::new();
    let mut files = vec![PathBuf::from("/etc/ld.so.conf")];
    if let Ok(entries) = fs::read_dir("/etc/ld.so.conf.d") {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    for file in files {
        let text = fs::read_to_string(file).unwrap_or_default();
        directories.extend(text.lines().map(str::trim).filter(|l| l.starts_with('/')).map(PathBuf::from));
    }
    let architecture = std::env::consts::ARCH;
    for directory in ["/lib", "/usr/lib"] {
        directories.push(format!("{directory}/{architecture}-linux-gnu").into());
        directories.push(format!("{directory}64").into());
        directories.push(directory.into());
    }
    directories
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_contains_no_cuda() {
        let findings = check(std::env::current_exe().unwrap().as_os_str());
        assert!(!findings.iter().any(Finding::is_bad), "{findings:?}");
        assert!(findings.iter().any(|f| f.to_string().contains("contains no CUDA")), "{findings:?}");
    }

    #[test]
    fn scripts_lead_to_their_interpreter() {
        let path = std::env::temp_dir().join(format!("rgpu-doctor-script-{}", std::process::id()));
        fs::write(&path, "#!/usr/bin/env sh\necho\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let findings = check(path.as_os_str());
        fs::remove_file(&path).unwrap();
        assert!(findings[0].to_string().contains("is a script for"), "{findings:?}");
        assert!(!findings.iter().any(Finding::is_bad), "{findings:?}");
    }

    #[test]
    fn what_cannot_run_is_named() {
        for (command, what) in [
            ("/nowhere/at/all", "No such file"),
            ("rgpu-no-such-command", "not in PATH"),
            ("/", "is a directory"),
            ("/etc/passwd", "not executable"),
        ] {
            let findings = check(OsStr::new(command));
            assert!(findings.len() == 1 && findings[0].is_bad(), "{findings:?}");
            assert!(findings[0].to_string().contains(what), "{findings:?}");
        }
        assert_eq!(read(b"not a program").err().unwrap().to_string(), "is no ELF program");
        assert_eq!(read(b"\x7fELF\x01\x01").err().unwrap().to_string(), "is a 32-bit program");
    }

    #[test]
    fn runtimes_of_other_versions_are_refused() {
        let by = Path::new("app");
        assert!(!replaced("libcudart.so.12", by).unwrap().is_bad());
        assert!(!replaced("libcudart.so.13", by).unwrap().is_bad());
        assert!(replaced("libcudart.so.11.0", by).unwrap().is_bad());
        assert!(replaced("libm.so.6", by).is_none());
    }

    #[test]
    fn absolute_driver_paths_are_found() {
        let path = driver_path(b"\0libcuda.so.1\0/usr/lib64/libcuda.so.1\0");
        assert_eq!(path.as_deref(), Some("/usr/lib64/libcuda.so.1"));
        assert_eq!(driver_path(b"\0%s/libcuda.so\0"), None);
    }
}
