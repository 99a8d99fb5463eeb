//! Redirects the CUDA runtime inside one object.

use std::sync::atomic::Ordering;

use super::link_map::LinkMap;
use super::machine;
use super::object_file::{Function, Mapping, ObjectFile, Symbols};
use super::obstacle::Obstacle;
use super::variables;
use crate::runtime::{table, version};

/// What [`inspect`] found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// There is no CUDA runtime inside.
    Nothing,
    /// Its CUDA runtime now calls this library.
    Redirected,
    /// It has a CUDA runtime of its own that keeps running.
    Obstacle(Obstacle),
}

/// Entry points that every copy of the runtime has, and nobody else has all of.
const MARKS: [&str; 4] =
    ["__cudaRegisterFatBinary", "cudaGetExportTable", "cudaMalloc", "cudaRuntimeGetVersion"];

/// Looks for a CUDA runtime inside an object, and redirects it if `may_redirect`.
///
/// A shared runtime counts as well, where a program opens it by its path.
pub(super) fn inspect(map: &LinkMap, may_redirect: bool) -> Outcome {
    let path = if map.is_program() { c"/proc/self/exe" } else { map.name() };
    if !path.to_bytes().contains(&b'/') {
        // The kernel's own object.
        return Outcome::Nothing;
    }
    let Some(mapping) = Mapping::open(path) else { return Outcome::Nothing };
    let Some(file) = mapping.parse() else { return Outcome::Nothing };
    if may_redirect {
        variables::leave_to(map, &file);
    }

    let dynamic = map.is_shared_runtime();
    let names = file.symbol_names(dynamic);
    let found = if names.is_empty() || !MARKS.iter().all(|mark| holds(names, mark.as_bytes())) {
        None
    } else {
        file.symbols(dynamic).and_then(|symbols| Runtime::find(&symbols, &file).map(|r| (symbols, r)))
    };
    let Some((symbols, runtime)) = found else {
        let hidden = names.is_empty() && file.has_device_code() && !map.needs_shared_runtime();
        return if hidden { Outcome::Obstacle(Obstacle::Stripped) } else { Outcome::Nothing };
    };
    if !may_redirect {
        return Outcome::Obstacle(Obstacle::NotPreloaded);
    }
    if !machine::CAN_REDIRECT {
        return Outcome::Obstacle(Obstacle::Processor);
    }
    match redirect(map, &file, &symbols, &runtime) {
        Ok(()) => Outcome::Redirected,
        Err(obstacle) => Outcome::Obstacle(obstacle),
    }
}

/// For the fuzzer: reads bytes as [`inspect`] reads an object's file, and whatever else can be read of it. Says whether they
/// are an object's.
pub(crate) fn read_as_object(bytes: &[u8]) -> bool {
    let Some(file) = ObjectFile::parse(bytes) else { return false };
    let _ = file.has_device_code();
    let _ = variables::may_be_there(&file);
    for dynamic in [false, true] {
        let names = file.symbol_names(dynamic);
        let _ = MARKS.iter().all(|mark| holds(names, mark.as_bytes()));
        let Some(symbols) = file.symbols(dynamic) else { continue };
        let _ = symbols.variables().count();
        let _ = Runtime::find(&symbols, &file);
        for function in symbols.functions().take(64) {
            let code = file.code_at(function.address).unwrap_or(&[]);
            let code = &code[..code.len().min(function.size as usize).min(256)];
            machine::calls(code, function.address).for_each(drop);
            machine::stored_constants(code).for_each(drop);
        }
    }
    true
}

/// Whether the bytes of `needle`, followed by a NUL, occur.
pub(super) fn holds(haystack: &[u8], needle: &[u8]) -> bool {
    let mut rest = haystack;
    loop {
        // SAFETY: both pointers are valid for the lengths given.
        let found =
            unsafe { libc::memmem(rest.as_ptr().cast(), rest.len(), needle.as_ptr().cast(), needle.len()) };
        if found.is_null() {
            return false;
        }
        let end = found as usize - rest.as_ptr() as usize + needle.len();
        if rest.get(end) == Some(&0) {
            return true;
        }
        rest = &rest[end..];
    }
}

/// A CUDA runtime inside an object.
struct Runtime {
    /// Such as 12090.
    version: u32,
}

impl Runtime {
    fn find<'a>(symbols: &Symbols<'a>, file: &ObjectFile<'a>) -> Option<Self> {
        let mut marks = [false; MARKS.len()];
        let mut exact = None;
        // It came with 12.0 and went with 13.0.
        let mut has_second_properties = false;
        for function in symbols.functions() {
            if let Some(index) = MARKS.iter().position(|mark| mark.as_bytes() == function.name) {
                marks[index] = true;
            }
            match function.name {
                b"cudaRuntimeGetVersion" => exact = version_of(function, file),
                b"cudaGetDeviceProperties_v2" => has_second_properties = true,
                _ => {}
            }
        }
        if marks.contains(&false) {
            return None;
        }
        // Programs ask for a version that is new enough, so the newest that it may be.
        let guess = if has_second_properties { 12090 } else { 13000 };
        Some(Self { version: exact.unwrap_or(guess) })
    }
}

/// Reads the number that `cudaRuntimeGetVersion` stores, without calling it: it would initialise the
/// runtime, before the C library is.
fn version_of(function: Function<'_>, file: &ObjectFile<'_>) -> Option<u32> {
    let code = file.code_at(function.address)?;
    let code = &code[..code.len().min(function.size as usize)];
    machine::stored_constants(code)
        .chain(
            // The outer function records the call for tools; an inner one does the work.
            machine::calls(code, function.address).filter_map(|address| file.code_at(address)).flat_map(
                |code| {
                    let inner = &code[..code.len().min(64)];
                    machine::stored_constants(inner)
                },
            ),
        )
        .find(|constant| (9000..100_000).contains(constant) && constant % 10 == 0)
}

fn redirect<'a>(
    map: &LinkMap,
    file: &ObjectFile<'a>,
    symbols: &Symbols<'a>,
    runtime: &Runtime,
) -> Result<(), Obstacle> {
    overwrite_functions(map, file, symbols, |name| target_of(name, runtime.version))?;
    let known =
        if runtime.version >= 13000 { &version::RUNTIME_VERSION } else { &version::RUNTIME_VERSION_12 };
    known.store(runtime.version, Ordering::Relaxed);
    Ok(())
}

/// Overwrites the beginning of each function for which there is a target with a jump to that.
pub(super) fn overwrite_functions<'a>(
    map: &LinkMap,
    file: &ObjectFile<'a>,
    symbols: &Symbols<'a>,
    target: impl Fn(&[u8]) -> Option<*const ()>,
) -> Result<(), Obstacle> {
    let jumps = || {
        symbols.functions().filter_map(|function| {
            let target = target(function.name)?;
            let code = file.code_at(function.address)?;
            let address = map.bias().checked_add(usize::try_from(function.address).ok()?)?;
            let room = function.size >= machine::JUMP_LENGTH as u64
                || (function.address % 16 == 0 && is_followed_by_padding(code, function.size));
            (room && address != target as usize).then_some((address, target, code))
        })
    };
    let (mut first, mut last) = (usize::MAX, 0);
    for (address, _, _) in jumps() {
        first = first.min(address);
        last = last.max(address + machine::JUMP_LENGTH);
    }
    if first > last {
        return Ok(());
    }
    let in_one_segment = first
        .checked_sub(map.bias())
        .and_then(|address| file.code_at(address as u64))
        .is_some_and(|code| code.len() >= last - first);
    if !in_one_segment {
        return Err(Obstacle::Protected);
    }
    let code = Writable::new(first, last, libc::PROT_NONE).ok_or(Obstacle::Protected)?;
    for (address, target, file_code) in jumps() {
        // SAFETY: inside an executable segment of an object that is loaded and that nobody executes yet (the
        // shim's constructor runs before all others, `on_load` before the object's own), made writable above.
        let memory = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, machine::JUMP_LENGTH) };
        // What is in memory is what the file says, or this is another file by now.
        if file_code.get(..machine::JUMP_LENGTH) == Some(&*memory) {
            memory.copy_from_slice(&machine::jump(target as usize));
        }
    }
    machine::flush(first, last - first);
    drop(code);
    Ok(())
}

/// Whether what follows a short function in its code is padding for as long as a jump takes: the last one of a section is
/// followed by another section.
fn is_followed_by_padding(code: &[u8], size: u64) -> bool {
    let rest = code.get(..machine::JUMP_LENGTH).and_then(|code| code.get(size as usize..));
    rest.is_some_and(machine::is_padding)
}

/// The entry point of this library that replaces a function of a runtime.
fn target_of(name: &[u8], runtime_version: u32) -> Option<*const ()> {
    if !name.starts_with(b"cuda") && !name.starts_with(b"__cuda") {
        return None;
    }
    let name = std::str::from_utf8(name).ok()?;
    table::find(name, runtime_version).map(|address| address.0)
}

/// Code that can be written to until this is dropped.
struct Writable {
    start: usize,
    length: usize,
}

impl Writable {
    /// Makes the code in `first..last` writable, and for so long not executable unless `more` says so.
    fn new(first: usize, last: usize, more: libc::c_int) -> Option<Self> {
        // SAFETY: asks for a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
        let start = first & !(page - 1);
        let length = last.checked_next_multiple_of(page)? - start;
        let writable = Self { start, length };
        writable.protect(libc::PROT_READ | libc::PROT_WRITE | more).then_some(writable)
    }

    fn protect(&self, protection: libc::c_int) -> bool {
        // SAFETY: pages of a segment of a loaded object, of which no code is being executed.
        unsafe { libc::mprotect(self.start as *mut libc::c_void, self.length, protection) == 0 }
    }
}

impl Drop for Writable {
    fn drop(&mut self) {
        self.protect(libc::PROT_READ | libc::PROT_EXEC);
    }
}

/// Overwrites a function of the dynamic loader. `false` if the operating system does not allow it.
pub(super) fn overwrite(address: usize, code: &[u8]) -> bool {
    // The rest of the page may be needed by other threads meanwhile, if this library is loaded late.
    let end = address + code.len();
    let writable =
        Writable::new(address, end, libc::PROT_EXEC).or_else(|| Writable::new(address, end, libc::PROT_NONE));
    let Some(writable) = writable else { return false };
    // SAFETY: made writable above; the caller knows that the function there has room for the code.
    unsafe { std::slice::from_raw_parts_mut(address as *mut u8, code.len()) }.copy_from_slice(code);
    machine::flush(address, code.len());
    drop(writable);
    true
}
