//! Lets the library run on older systems than the one that it is linked on.
//!
//! The linker binds each function of the C library to its newest version, and so the result to the newest
//! C library that any of them needs, although most of them merely moved there from libpthread and libdl
//! (2.34), and had versions that every C library still answers to. So the link sees, before the C library,
//! *stand-ins* for the libraries of glibc 2.28: shared objects of the right name, with the functions at
//! their versions of that time, and nothing inside. What 2.28 doesn't have at all is defined in an object
//! file that is linked in.
//!
//! Only for x86-64; elsewhere the library needs a C library as new as the one that it is linked with.

use object::write::{Object, Relocation, SectionId};
use object::{RelocationEncoding, RelocationFlags, RelocationKind};

use super::linker::{define, undefined};

/// A stand-in.
pub(crate) struct StandIn {
    /// The name of the library that it stands in for.
    pub soname: &'static str,
    /// Versions and what is defined in each.
    pub versions: &'static [(&'static str, &'static [&'static str])],
}

/// The stand-ins for the libraries of glibc 2.28 on x86-64.
const STAND_INS: [StandIn; 3] = [
    StandIn {
        soname: "libpthread.so.0",
        versions: &[
            (
                "GLIBC_2.2.5",
                &[
                    "pthread_attr_getguardsize",
                    "pthread_attr_getstack",
                    "pthread_attr_getstacksize",
                    "pthread_attr_setguardsize",
                    "pthread_attr_setstack",
                    "pthread_attr_setstacksize",
                    "pthread_cancel",
                    "pthread_create",
                    "pthread_detach",
                    "pthread_getattr_np",
                    "pthread_getspecific",
                    "pthread_join",
                    "pthread_key_create",
                    "pthread_key_delete",
                    "pthread_kill",
                    "pthread_mutex_trylock",
                    "pthread_mutexattr_destroy",
                    "pthread_mutexattr_init",
                    "pthread_mutexattr_settype",
                    "pthread_once",
                    "pthread_rwlock_destroy",
                    "pthread_rwlock_init",
                    "pthread_rwlock_rdlock",
                    "pthread_rwlock_tryrdlock",
                    "pthread_rwlock_trywrlock",
                    "pthread_rwlock_unlock",
                    "pthread_rwlock_wrlock",
                    "pthread_setspecific",
                    "pthread_sigmask",
                    "sem_destroy",
                    "sem_init",
                    "sem_post",
                    "sem_timedwait",
                    "sem_trywait",
                    "sem_wait",
                ],
            ),
            ("GLIBC_2.3.4", &["pthread_getaffinity_np", "pthread_setaffinity_np"]),
            ("GLIBC_2.12", &["pthread_getname_np", "pthread_setname_np"]),
        ],
    },
    StandIn {
        soname: "libdl.so.2",
        versions: &[
            ("GLIBC_2.2.5", &["dladdr", "dlclose", "dlerror", "dlopen", "dlsym", "dlvsym"]),
            ("GLIBC_2.3.3", &["dladdr1", "dlinfo"]),
        ],
    },
    // These have newer versions that do without an error handler which nobody here sets.
    StandIn { soname: "libm.so.6", versions: &[("GLIBC_2.2.5", &["exp", "hypot", "log", "pow"])] },
];

unsafe extern "C" {
    safe fn gnu_get_libc_version() -> *const std::ffi::c_char;
}

/// The stand-ins that the link needs: none where the libraries themselves are still there.
pub(crate) fn stand_ins() -> &'static [StandIn] {
    // SAFETY: glibc returns a string that lives for ever.
    let version = unsafe { std::ffi::CStr::from_ptr(gnu_get_libc_version()) }.to_string_lossy();
    let minor = version.strip_prefix("2.").and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    if cfg!(target_arch = "x86_64") && minor.is_none_or(|minor| minor >= 34) { &STAND_INS } else { &[] }
}

impl StandIn {
    /// Its version script.
    pub(crate) fn script(&self) -> String {
        self.versions
            .iter()
            .map(|(version, names)| {
                let names: String = names.iter().map(|name| format!(" {name};")).collect();
                format!("{version} {{{names} }};\n")
            })
            .collect()
    }

    /// Its object file's contents.
    pub(crate) fn define_in(&self, object: &mut Object<'_>, text: SectionId) {
        for (_, names) in self.versions {
            for name in *names {
                let offset = object.append_section_data(text, &[0xcc; 8], 8);
                define(object, text, name, offset, 8);
            }
        }
    }
}

/// System calls that have no function of their own in glibc 2.28: name, number, and whether the call has a
/// fourth argument. The kernel's `struct stat` is the C library's.
const SYSTEM_CALLS: [(&str, u32, bool); 9] = [
    ("stat", 4, false),
    ("stat64", 4, false),
    ("fstat", 5, false),
    ("fstat64", 5, false),
    ("lstat", 6, false),
    ("lstat64", 6, false),
    ("fstatat", 262, true),
    ("fstatat64", 262, true),
    ("gettid", 186, false),
];

/// Defines the functions that glibc 2.28 lacks.
pub(crate) fn define_missing(object: &mut Object<'_>, text: SectionId) -> Result<(), object::write::Error> {
    for (name, number, four) in SYSTEM_CALLS {
        let mut code = vec![0xb8]; // mov $number, %eax
        code.extend(number.to_le_bytes());
        if four {
            code.extend([0x49, 0x89, 0xca]); // mov %rcx, %r10
        }
        code.extend([0x0f, 0x05]); // syscall
        code.extend([0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff]); // cmp $-4095, %rax
        code.extend([0x73, 0x01, 0xc3]); // jae over; ret
        code.extend([0xf7, 0xd8, 0x50]); // over: neg %eax; push %rax
        code.push(0xe8); // call __errno_location
        let call = code.len() as u64;
        code.extend([0; 4]);
        code.extend([0x5a, 0x89, 0x10]); // pop %rdx; mov %edx, (%rax)
        code.extend([0xb8, 0xff, 0xff, 0xff, 0xff, 0xc3]); // mov $-1, %eax; ret
        let offset = object.append_section_data(text, &code, 16);
        define(object, text, name, offset, code.len() as u64);
        let symbol = object.add_symbol(undefined("__errno_location"));
        let flags = RelocationFlags::Generic {
            kind: RelocationKind::PltRelative,
            encoding: RelocationEncoding::X86Branch,
            size: 32,
        };
        object.add_relocation(text, Relocation { offset: offset + call, symbol, addend: -4, flags })?;
    }
    // Rust's library asks for it when a process is started in another directory, which nothing here does. ENOSYS (38).
    let code = [0xb8, 38, 0, 0, 0, 0xc3]; // mov $38, %eax; ret
    let offset = object.append_section_data(text, &code, 16);
    define(object, text, "posix_spawn_file_actions_addchdir_np", offset, code.len() as u64);
    Ok(())
}
