//! Which of the machine's GPUs are partitioned (MIG), and into what.
//!
//! CUDA shows a process one instance of a partitioned GPU at most, and then no other device, so it cannot be asked what there
//! is. NVML can. Each function is looked for by its name; a driver without those about partitions has no partitioned GPUs.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What is called, and the first driver that has it; earlier than R450 is earlier than any that is supported.
#[cfg(test)]
pub(crate) const CALLS: &[(&str, &str)] = &[
    ("nvmlInit_v2", "before R450"),
    ("nvmlShutdown", "before R450"),
    ("nvmlDeviceGetCount_v2", "before R450"),
    ("nvmlDeviceGetHandleByIndex_v2", "before R450"),
    ("nvmlDeviceGetUUID", "before R450"),
    ("nvmlDeviceGetMigMode", "R450"),
    ("nvmlDeviceGetMaxMigDeviceCount", "R450"),
    ("nvmlDeviceGetMigDeviceHandleByIndex", "R450"),
    ("nvmlDeviceGetAttributes_v2", "R470 or earlier"),
];

/// `nvmlDevice_t`
type Handle = *mut c_void;
/// `NVML_DEVICE_MIG_ENABLE`
const ENABLED: u32 = 1;
/// Room for a UUID as text.
const UUID_BYTES: usize = 96;
/// So many instances are looked for at most; GPUs have up to eight.
const MOST_INSTANCES: u32 = 64;

/// `nvmlDeviceAttributes_t`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub multiprocessors: u32,
    shared_copy_engines: u32,
    shared_decoders: u32,
    shared_encoders: u32,
    shared_jpeg: u32,
    shared_ofa: u32,
    /// Of the GPU's slices.
    pub gpu_slices: u32,
    pub compute_slices: u32,
    pub memory_mib: u64,
}

/// A device that a process can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// As `CUDA_VISIBLE_DEVICES` takes it: `GPU-…` or `MIG-…`.
    pub name: String,
    /// An instance's GPU.
    pub parent: Option<String>,
    /// An instance's size, where NVML tells.
    pub attributes: Option<Attributes>,
}

/// Where NVML's functions are.
pub(crate) trait Symbols {
    /// A function, or null.
    fn symbol(&self, name: &CStr) -> *const c_void;
}

/// Calls a function of NVML, if there is one of this name; whether it succeeded.
macro_rules! call {
    ($symbols:ident, $name:expr, ($($argument:expr => $type:ty),*)) => {{
        let symbol = $symbols.symbol($name);
        if symbol.is_null() {
            false
        } else {
            // SAFETY: a function of this name has this interface in every NVML; places are valid for what it writes.
            unsafe {
                let function = std::mem::transmute::<*const c_void, unsafe extern "C" fn($($type),*) -> u32>(symbol);
                function($($argument),*) == 0
            }
        }
    }};
}
pub(super) use call;

/// The machine's whole GPUs and the instances of its partitioned ones, in NVML's order; none where no GPU is partitioned, or
/// NVML cannot be asked. A partitioned GPU without instances is in neither way a device.
pub(crate) fn list(symbols: &dyn Symbols) -> Option<Vec<Entry>> {
    if !call!(symbols, c"nvmlInit_v2", ()) {
        return None;
    }
    let found = list_started(symbols);
    call!(symbols, c"nvmlShutdown", ());
    found
}

fn list_started(symbols: &dyn Symbols) -> Option<Vec<Entry>> {
    let mut count = 0u32;
    if !call!(symbols, c"nvmlDeviceGetCount_v2", (&mut count => *mut u32)) {
        return None;
    }
    let (mut all, mut any) = (Vec::new(), false);
    for index in 0..count {
        let mut gpu: Handle = std::ptr::null_mut();
        // One that this user may not use, or that has failed.
        if !call!(symbols, c"nvmlDeviceGetHandleByIndex_v2", (index => u32, &mut gpu => *mut Handle)) {
            continue;
        }
        let Some(name) = uuid(symbols, gpu) else { continue };
        let (mut now, mut next) = (0u32, 0u32);
        let known = call!(symbols, c"nvmlDeviceGetMigMode", (gpu => Handle, &mut now => *mut u32, &mut next => *mut u32));
        if !known || now != ENABLED {
            all.push(Entry { name, parent: None, attributes: None });
            continue;
        }
        any = true;
        let mut most = 0u32;
        if !call!(symbols, c"nvmlDeviceGetMaxMigDeviceCount", (gpu => Handle, &mut most => *mut u32)) {
            continue;
        }
        // Indices may have gaps.
        for index in 0..most.min(MOST_INSTANCES) {
            let mut instance: Handle = std::ptr::null_mut();
            let there = call!(symbols, c"nvmlDeviceGetMigDeviceHandleByIndex",
                (gpu => Handle, index => u32, &mut instance => *mut Handle));
            let Some(own) = there.then(|| uuid(symbols, instance)).flatten() else { continue };
            let mut attributes = Attributes::default();
            let known = call!(symbols, c"nvmlDeviceGetAttributes_v2",
                (instance => Handle, &mut attributes => *mut Attributes));
            let attributes = known.then_some(attributes);
            all.push(Entry { name: own, parent: Some(name.clone()), attributes });
        }
    }
    any.then_some(all)
}

fn uuid(symbols: &dyn Symbols, device: Handle) -> Option<String> {
    let mut buffer = [0u8; UUID_BYTES];
    let (place, length) = (buffer.as_mut_ptr(), UUID_BYTES as u32 - 1);
    call!(symbols, c"nvmlDeviceGetUUID", (device => Handle, place => *mut u8, length => u32))
        .then(|| CStr::from_bytes_until_nul(&buffer).ok()?.to_str().ok().map(str::to_owned))
        .flatten()
        // Others than these CUDA does not take.
        .filter(|name| parse_uuid(name).is_some())
}

/// The bytes of `GPU-…` or `MIG-…`.
pub fn parse_uuid(name: &str) -> Option<[u8; 16]> {
    let digits = name.strip_prefix("GPU-").or_else(|| name.strip_prefix("MIG-"))?;
    let hyphens = digits.char_indices().filter(|(_, c)| *c == '-').map(|(at, _)| at);
    if digits.len() != 36 || !hyphens.eq([8, 13, 18, 23]) {
        return None;
    }
    let hex = digits.replace('-', "");
    if !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 16];
    for (place, at) in bytes.iter_mut().zip((0..32).step_by(2)) {
        *place = u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// Those of the entries that the server's own `CUDA_VISIBLE_DEVICES` names, in its order; all without it. A partitioned GPU's
/// name means all its instances.
///
/// # Errors
/// Names that mean nothing where GPUs are partitioned.
pub(crate) fn choose(entries: &[Entry], visible: Option<&str>) -> Result<Vec<Entry>, String> {
    let Some(visible) = visible else { return Ok(entries.to_vec()) };
    let mut chosen: Vec<Entry> = Vec::new();
    for name in visible.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        // As CUDA does it, the beginning of a name will do.
        let is = |own: &str| name.len() > 4 && own.starts_with(name);
        let of = |entry: &&Entry| is(&entry.name) || entry.parent.as_deref().is_some_and(is);
        let mut found = entries.iter().filter(of).peekable();
        if found.peek().is_none() {
            return Err(format!(
                "CUDA_VISIBLE_DEVICES names {name:?}, and on a machine with partitioned GPUs (MIG) devices are named by their \
                 UUIDs, as `nvidia-smi -L` lists them; there are {}",
                entries.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>().join(", ")
            ));
        }
        for entry in found {
            if !chosen.contains(entry) {
                chosen.push(entry.clone());
            }
        }
    }
    Ok(chosen)
}

/// Which of the entries one process can be shown: all whole GPUs, but each instance alone.
pub(crate) fn groups(entries: &[Entry]) -> Vec<Vec<usize>> {
    let (instances, whole): (Vec<usize>, Vec<usize>) =
        (0..entries.len()).partition(|at| entries[*at].parent.is_some());
    let whole = if whole.is_empty() { None } else { Some(whole) };
    whole.into_iter().chain(instances.into_iter().map(|at| vec![at])).collect()
}

/// NVML's library.
pub(crate) struct Library(*mut c_void);

impl Library {
    /// Opens it; it stays open, because it has threads of its own.
    pub(crate) fn open(path: &Path) -> Option<Self> {
        let name = CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: the name ends in NUL; the library is the driver's companion.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!handle.is_null()).then_some(Self(handle))
    }
}

impl Symbols for Library {
    fn symbol(&self, name: &CStr) -> *const c_void {
        // SAFETY: the library stays open, and the name ends in NUL.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GPU 0 is whole, GPU 1 has instances at indices 0 and 2 of 7, GPU 2 is partitioned and empty; GPU 3 has failed.
    /// Handles are numbers: the GPU's, plus 16 for each index from 1.
    struct Fake {
        without: &'static [&'static CStr],
    }

    unsafe extern "C" fn done() -> u32 {
        0
    }

    unsafe extern "C" fn count(out: *mut u32) -> u32 {
        // SAFETY: the code under test passes valid places; so below.
        unsafe { *out = 4 };
        0
    }

    unsafe extern "C" fn by_index(index: u32, out: *mut Handle) -> u32 {
        if index == 3 {
            return 15;
        }
        // SAFETY: as above.
        unsafe { *out = std::ptr::without_provenance_mut(0x100 + index as usize) };
        0
    }

    unsafe extern "C" fn text(device: Handle, out: *mut u8, length: u32) -> u32 {
        let number = device.addr();
        let kind = if number >= 0x110 { "MIG" } else { "GPU" };
        let text = format!("{kind}-{number:08x}-0001-0203-0405-060708090a0b\0");
        assert!(text.len() <= length as usize);
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), out, text.len()) };
        0
    }

    unsafe extern "C" fn mode(device: Handle, now: *mut u32, next: *mut u32) -> u32 {
        // SAFETY: as above.
        unsafe { (*now, *next) = (u32::from(device.addr() > 0x100), 1) };
        0
    }

    unsafe extern "C" fn most(_device: Handle, out: *mut u32) -> u32 {
        // SAFETY: as above.
        unsafe { *out = 7 };
        0
    }

    unsafe extern "C" fn instance(device: Handle, index: u32, out: *mut Handle) -> u32 {
        if device.addr() != 0x101 || !matches!(index, 0 | 2) {
            return 6;
        }
        // SAFETY: as above.
        unsafe { *out = std::ptr::without_provenance_mut(device.addr() + 16 * (index as usize + 1)) };
        0
    }

    unsafe extern "C" fn attributes(device: Handle, out: *mut Attributes) -> u32 {
        if device.addr() != 0x111 {
            return 3;
        }
        let some = Attributes {
            multiprocessors: 14,
            gpu_slices: 1,
            compute_slices: 1,
            memory_mib: 4864,
            ..Attributes::default()
        };
        // SAFETY: as above.
        unsafe { *out = some };
        0
    }

    impl Symbols for Fake {
        fn symbol(&self, name: &CStr) -> *const c_void {
            if self.without.contains(&name) {
                return std::ptr::null();
            }
            match name.to_str().unwrap() {
                "nvmlInit_v2" | "nvmlShutdown" => done as *const c_void,
                "nvmlDeviceGetCount_v2" => count as *const c_void,
                "nvmlDeviceGetHandleByIndex_v2" => by_index as *const c_void,
                "nvmlDeviceGetUUID" => text as *const c_void,
                "nvmlDeviceGetMigMode" => mode as *const c_void,
                "nvmlDeviceGetMaxMigDeviceCount" => most as *const c_void,
                "nvmlDeviceGetMigDeviceHandleByIndex" => instance as *const c_void,
                "nvmlDeviceGetAttributes_v2" => attributes as *const c_void,
                _ => std::ptr::null(),
            }
        }
    }

    #[test]
    fn instances_are_found_and_their_gpus_left_out() {
        let found = list(&Fake { without: &[] }).unwrap();
        let names: Vec<&str> = found.iter().map(|entry| &entry.name[..12]).collect();
        assert_eq!(names, ["GPU-00000100", "MIG-00000111", "MIG-00000131"]);
        assert_eq!(found[1].parent.as_deref().map(|parent| &parent[..12]), Some("GPU-00000101"));
        let size = found[1].attributes.unwrap();
        assert_eq!((size.multiprocessors, size.gpu_slices, size.memory_mib), (14, 1, 4864));
        assert_eq!((found[0].attributes, found[2].attributes), (None, None));
    }

    #[test]
    fn drivers_that_know_of_no_partitions_have_none() {
        for without in
            [c"nvmlDeviceGetMigMode", c"nvmlInit_v2", c"nvmlDeviceGetCount_v2", c"nvmlDeviceGetUUID"]
        {
            let without: &'static [&'static CStr] = Box::leak(Box::new([without]));
            assert_eq!(list(&Fake { without }), None, "{without:?}");
        }
        // Partitioned GPUs are not whole ones, even if nothing is known of their parts.
        let found = list(&Fake { without: &[c"nvmlDeviceGetMaxMigDeviceCount"] }).unwrap();
        assert_eq!(found.len(), 1);
        assert!(Library::open(Path::new("/nonexistent/libnvidia-ml.so.1")).is_none());
    }

    #[test]
    fn the_server_s_own_choice_counts() {
        let all = list(&Fake { without: &[] }).unwrap();
        let chosen = |visible: &str| -> Result<Vec<usize>, String> {
            let position = |entry: &Entry| all.iter().position(|other| other == entry).unwrap();
            Ok(choose(&all, Some(visible))?.iter().map(position).collect())
        };
        assert_eq!(choose(&all, None).unwrap(), all);
        assert_eq!(chosen(""), Ok(vec![]));
        assert_eq!(chosen("MIG-00000131, GPU-00000100"), Ok(vec![2, 0]));
        assert_eq!(chosen("GPU-00000101,MIG-00000111"), Ok(vec![1, 2]), "a GPU's instances, each once");
        for odd in ["0", "1,2", "MIG-", "GPU-00000103", "MIG-GPU-x/1/0"] {
            let error = chosen(odd).unwrap_err();
            assert!(error.contains("UUID") && error.contains("MIG-00000131"), "{odd}: {error}");
        }
        assert_eq!(groups(&all), [vec![0], vec![1], vec![2]]);
        assert_eq!(groups(&[all[1].clone(), all[0].clone(), all[0].clone()]), [vec![1, 2], vec![0]]);
        assert!(groups(&[]).is_empty());
    }

    #[test]
    fn uuids_are_read() {
        let bytes: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255];
        for kind in ["GPU", "MIG"] {
            assert_eq!(parse_uuid(&format!("{kind}-00010203-0405-0607-0809-0a0b0c0d0eff")), Some(bytes));
        }
        for odd in [
            "",
            "GPU-",
            "MIG-GPU-00010203-0405-0607-0809-0a0b0c0d0e0f/1/0",
            "00010203-0405-0607-0809-0a0b0c0d0e0f",
        ] {
            assert_eq!(parse_uuid(odd), None, "{odd}");
        }
        assert_eq!(parse_uuid("GPU-+0010203-0405-0607-0809-0a0b0c0d0e0f"), None);
        assert_eq!(parse_uuid("GPU-000102éa-0405-0607-0809-0a0b0c0d0e0f"), None);
    }

    #[test]
    fn the_structure_is_the_header_s() {
        assert_eq!((size_of::<Attributes>(), std::mem::offset_of!(Attributes, memory_mib)), (40, 32));
    }
}
