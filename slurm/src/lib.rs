//! The Slurm plugin (SPANK): jobs ask for GPUs by options of sbatch, srun and salloc.
//!
//! ```text
//! sbatch --rgpus=2            the options are checked, and what they ask for is handed to the job's prolog
//!   └► slurmd: job prolog     as root: `rgpu slurm prolog` gets the job's lease and writes its ticket for the job's user
//!        └► slurmstepd: task  LD_PRELOAD, LD_LIBRARY_PATH and RGPU_LEASE are set, or the task is refused
//!   └► slurmd: job epilog     `rgpu slurm epilog` gives the lease back
//! ```
//!
//! Slurm loads the plugin into its commands and daemons, so it is small: whatever speaks to a broker is in the `rgpu` command. One file
//! fits one release of Slurm, as `plugin_version` says; `rgpu slurm plugin` makes a copy for another release. docs/slurm.md is the page
//! for whoever installs it.

mod node;
mod options;
mod spank;

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use node::Settings;
use options::Given;
use rgpu_control::slurm::{REQUEST_VARIABLE, SPANK_PREFIX};
use spank::{Context, RawHandle, Spank};

/// What Slurm calls the plugin.
#[used]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)] // Slurm's names
static plugin_name: [u8; 5] = *b"rgpu\0";

/// That it is one of these.
#[used]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
static plugin_type: [u8; 6] = *b"spank\0";

/// For which release of Slurm: a byte each for major, minor and micro; the last does not matter. `rgpu slurm plugin` changes it in a
/// copy of the file.
#[used]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
static plugin_version: u32 = (22 << 16) | (5 << 8);

/// Which options were given, in this process; of a heterogeneous job, for the component that is being read.
static GIVEN: Mutex<Given> = Mutex::new(Given::NOTHING);

const GOOD: c_int = 0;
const BAD: c_int = -1;

fn given() -> Given {
    *GIVEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a function does that Slurm calls. Its error is said; no panic gets into Slurm.
fn called(body: impl FnOnce() -> Result<(), String>) -> c_int {
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return GOOD,
        Ok(Err(error)) => error,
        Err(_) => "the plugin has a bug, please report it".to_owned(),
    };
    spank::error(&error);
    BAD
}

/// The settings in plugstack.conf.
///
/// # Safety
/// `words` are `count` texts, or none.
unsafe fn settings(count: c_int, words: *const *const c_char) -> Result<Settings, String> {
    let count = if words.is_null() { 0 } else { count.max(0) as usize };
    let words: Result<Vec<&str>, _> = (0..count)
        // SAFETY: by this function's contract.
        .map(|at| unsafe { CStr::from_ptr(*words.add(at)) }.to_str())
        .collect();
    Settings::parse(words.map_err(|_| "plugstack.conf is not UTF-8 in rgpu's line")?)
}

/// An option was given.
extern "C" fn take(option: c_int, argument: *const c_char, _remote: c_int) -> c_int {
    called(|| {
        let argument = match argument.is_null() {
            true => "",
            // SAFETY: Slurm hands a text over that lasts as long as the call.
            false => unsafe { CStr::from_ptr(argument) }.to_str().map_err(|_| "an option is not UTF-8")?,
        };
        GIVEN.lock().unwrap_or_else(PoisonError::into_inner).take(option, argument)
    })
}

/// Slurm loads the plugin.
///
/// # Safety
/// Slurm calls it, as `man spank` says.
#[unsafe(no_mangle)]
unsafe extern "C" fn slurm_spank_init(
    spank: *mut RawHandle,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    called(|| {
        // SAFETY: by this function's contract.
        let mut spank = unsafe {
            settings(count, words)?;
            Spank::new(spank)
        };
        if Context::current() != Context::Other
            && !options::ALL.iter().all(|option| spank.register(option, take))
        {
            return Err("Slurm does not take the options --rgpus, --rgpu-memory and --rgpu-share".into());
        }
        Ok(())
    })
}

/// The submitting command has read its options.
///
/// # Safety
/// As [`slurm_spank_init`].
#[unsafe(no_mangle)]
unsafe extern "C" fn slurm_spank_init_post_opt(
    spank: *mut RawHandle,
    _count: c_int,
    _words: *const *const c_char,
) -> c_int {
    called(|| {
        if !matches!(Context::current(), Context::Local | Context::Allocator) {
            return Ok(());
        }
        // SAFETY: by this function's contract.
        let mut spank = unsafe { Spank::new(spank) };
        let request = given().request().map(|request| request.to_string());
        let name = REQUEST_VARIABLE.strip_prefix(SPANK_PREFIX).unwrap_or(REQUEST_VARIABLE);
        if !spank.set_for_prolog(name, request.as_deref()) {
            return Err("Slurm does not take the request for GPUs into the job".into());
        }
        *GIVEN.lock().unwrap_or_else(PoisonError::into_inner) = Given::NOTHING;
        Ok(())
    })
}

/// Before a job's first task on a node, in a process of slurmd's.
///
/// # Safety
/// As [`slurm_spank_init`].
#[unsafe(no_mangle)]
unsafe extern "C" fn slurm_spank_job_prolog(
    _spank: *mut RawHandle,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    called(|| {
        // SAFETY: by this function's contract.
        unsafe { settings(count, words) }?.prolog();
        Ok(())
    });
    GOOD // what fails drains the node
}

/// After a job's last task on a node, in a process of slurmd's.
///
/// # Safety
/// As [`slurm_spank_init`].
#[unsafe(no_mangle)]
unsafe extern "C" fn slurm_spank_job_epilog(
    _spank: *mut RawHandle,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    called(|| {
        // SAFETY: by this function's contract.
        unsafe { settings(count, words) }?.epilog();
        Ok(())
    });
    GOOD // what fails drains the node
}

/// In a task's process, before its program.
///
/// # Safety
/// As [`slurm_spank_init`].
#[unsafe(no_mangle)]
unsafe extern "C" fn slurm_spank_task_init(
    spank: *mut RawHandle,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    called(|| {
        // SAFETY: by this function's contract.
        let (settings, mut spank) = unsafe { (settings(count, words)?, Spank::new(spank)) };
        settings.tell_task(&mut spank, given().request().is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spank::tests::SLURM;

    /// One test, because the options are the process's.
    #[test]
    fn the_submitting_command_hands_the_request_on_or_refuses_it() {
        let none = std::ptr::null_mut();
        SLURM.with_borrow_mut(|slurm| slurm.context = 3);
        // SAFETY: the tests' functions don't look at the handle, and there are no words.
        unsafe {
            assert_eq!(slurm_spank_init(none, 0, std::ptr::null()), GOOD);
            assert_eq!(take(1, c"2".as_ptr(), 0), GOOD);
            assert_eq!(take(3, c"25%".as_ptr(), 0), GOOD);
            assert_eq!(slurm_spank_init_post_opt(none, 0, std::ptr::null()), GOOD);
        }
        SLURM.with_borrow(|slurm| {
            assert_eq!(slurm.options, ["rgpus", "rgpu-memory", "rgpu-share"]);
            let request = "gpus=2,memory=0,share=250".to_owned();
            let name = REQUEST_VARIABLE.strip_prefix(SPANK_PREFIX).unwrap().to_owned();
            assert_eq!(slurm.prolog, [(name, request)].into());
        });
        assert_eq!(take(1, c"many".as_ptr(), 0), BAD);
        SLURM.with_borrow(|slurm| {
            assert!(slurm.errors[0].contains("rgpu: --rgpus=many"), "{:?}", slurm.errors)
        });
        // The next component of a heterogeneous job, without options.
        // SAFETY: as above.
        assert_eq!(unsafe { slurm_spank_init_post_opt(none, 0, std::ptr::null()) }, GOOD);
        SLURM.with_borrow(|slurm| assert!(slurm.prolog.is_empty()));
        assert_eq!(called(|| panic!("on purpose")), BAD);
    }
}
