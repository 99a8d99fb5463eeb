//! What is changed of a link so that its result runs with glibc 2.28.
//!
//! - Most functions merely moved into the C library from libpthread and libdl (2.34). For those the link sees, before
//!   the C library, *stand-ins* for these libraries as they were: shared objects of the right name, with the functions at
//!   their versions of that time, and nothing inside.
//! - Functions that have a newer version beside the old one are defined, for the inside, as jumps to the old one.
//! - What 2.28 does not have at all is defined: a few system calls, which had no function of their own.
//! - Since 2.34 `__libc_start_main` runs a program's constructors itself, before that the program's own start did. So the latter
//!   is there again: with old C libraries they would not be run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::code::{Machine, SYSTEM_CALLS};
use super::{Link, Result, Seen, new_object};

/// Changes a link.
pub(crate) fn adjust(link: &mut Link, real: &Path) -> Result<()> {
    for stand_in in &STAND_INS {
        let library = stand_in.make(link.machine, real, &link.directory)?;
        link.before_c_library(library);
    }
    for name in OLD_VERSIONS {
        let old = format!("{name}@{}", link.machine.first_version());
        link.jump(name, &old, Seen::Inside)?;
    }
    for call in &SYSTEM_CALLS {
        let code = link.machine.system_call(call);
        link.define(call.name, &code, Seen::Inside)?;
    }
    // Rust's library starts processes in other directories by it where it is there, and else in another way.
    link.remove("posix_spawn_file_actions_addchdir_np");
    if !link.arguments.iter().any(|argument| argument == "-shared") {
        let code = link.machine.start(&format!("__libc_start_main@{}", link.machine.first_version()));
        link.define("__libc_start_main", &code, Seen::Inside)?;
    }
    Ok(())
}

/// What has a version that is newer than 2.28. Those of the mathematical functions do without an error handler which nobody here sets.
const OLD_VERSIONS: [&str; 9] = ["exp", "exp2", "fmod", "fmodf", "hypot", "hypotf", "log", "log2", "pow"];

/// A stand-in.
struct StandIn {
    /// The name of the library that it stands in for.
    soname: &'static str,
    /// Versions on x86-64, and what is defined in each. Where a processor's first version is newer, that is theirs.
    versions: &'static [(&'static str, &'static [&'static str])],
}

const STAND_INS: [StandIn; 2] = [
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
];

impl StandIn {
    /// Makes the shared object.
    fn make(&self, machine: Machine, real: &Path, directory: &Path) -> Result<PathBuf> {
        let mut link = Link {
            arguments: Vec::new(),
            directory: directory.to_owned(),
            machine,
            object: new_object(machine),
        };
        for (_, names) in self.versions {
            for name in *names {
                link.define(name, &machine.trap(), Seen::Everywhere)?;
            }
        }
        let file = |suffix: &str| directory.join(format!("{}{suffix}", self.soname));
        fs::write(file(".o"), link.object.write()?)?;
        fs::write(file(".map"), self.script(machine))?;
        let library = file(".so");
        let status = Command::new(real)
            .args(["-shared", "-soname", self.soname])
            .arg(format!("--version-script={}", file(".map").display()))
            .arg(file(".o"))
            .arg("-o")
            .arg(&library)
            .status()?;
        if !status.success() {
            return Err(format!("Cannot link a stand-in for {}", self.soname).into());
        }
        Ok(library)
    }

    /// Its version script.
    fn script(&self, machine: Machine) -> String {
        let names = |names: &[&str]| names.iter().map(|name| format!(" {name};")).collect::<String>();
        if machine == Machine::X86_64 {
            return self
                .versions
                .iter()
                .map(|(node, all)| format!("{node} {{{} }};\n", names(all)))
                .collect();
        }
        let all: String = self.versions.iter().map(|(_, all)| names(all)).collect();
        format!("{} {{{all} }};\n", machine.first_version())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_the_processor() {
        let threads = &STAND_INS[0];
        let usual = threads.script(Machine::X86_64);
        assert!(usual.starts_with("GLIBC_2.2.5 { pthread_attr_getguardsize;"), "{usual}");
        assert!(usual.contains("GLIBC_2.12 { pthread_getname_np; pthread_setname_np; };"), "{usual}");
        let arm = threads.script(Machine::Aarch64);
        assert_eq!(arm.matches("GLIBC").count(), 1, "{arm}");
        assert!(arm.starts_with("GLIBC_2.17 {") && arm.contains(" pthread_getname_np;"), "{arm}");
    }
}
