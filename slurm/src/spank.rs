//! The few functions of Slurm's interface for plugins (SPANK) that are used here. `man spank` describes them; they have been the same
//! since Slurm 20.

use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;

/// What Slurm's functions are given to know whose call it is.
#[repr(C)]
pub(crate) struct RawHandle {
    _opaque: [u8; 0],
    _not_ours: PhantomData<*mut ()>,
}

/// An option, as Slurm wants it described. Slurm copies all of it.
#[repr(C)]
struct RawOption {
    name: *const c_char,
    argument: *const c_char,
    usage: *const c_char,
    has_argument: c_int,
    value: c_int,
    callback: extern "C" fn(c_int, *const c_char, c_int) -> c_int,
}

/// What Slurm's functions return where all is well.
const SUCCESS: c_int = 0;

#[cfg(not(test))]
unsafe extern "C" {
    fn spank_context() -> c_int;
    fn spank_option_register(spank: *mut RawHandle, option: *mut RawOption) -> c_int;
    fn spank_get_item(spank: *mut RawHandle, item: c_int, ...) -> c_int;
    fn spank_getenv(spank: *mut RawHandle, name: *const c_char, value: *mut c_char, length: c_int) -> c_int;
    fn spank_setenv(
        spank: *mut RawHandle,
        name: *const c_char,
        value: *const c_char,
        overwrite: c_int,
    ) -> c_int;
    fn spank_unsetenv(spank: *mut RawHandle, name: *const c_char) -> c_int;
    fn spank_job_control_setenv(
        spank: *mut RawHandle,
        name: *const c_char,
        value: *const c_char,
        overwrite: c_int,
    ) -> c_int;
    fn spank_job_control_unsetenv(spank: *mut RawHandle, name: *const c_char) -> c_int;
    fn slurm_error(format: *const c_char, ...);
}

// Tests are no process of Slurm's.
#[cfg(test)]
use tests::{
    slurm_error, spank_context, spank_get_item, spank_getenv, spank_job_control_setenv,
    spank_job_control_unsetenv, spank_option_register, spank_setenv, spank_unsetenv,
};

/// Which process the plugin is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    /// srun.
    Local,
    /// sbatch or salloc.
    Allocator,
    /// slurmstepd, which starts tasks.
    Remote,
    /// Another one of Slurm's.
    Other,
}

impl Context {
    /// The process's own.
    pub(crate) fn current() -> Self {
        // SAFETY: takes nothing.
        match unsafe { spank_context() } {
            1 => Self::Local,
            2 => Self::Remote,
            3 => Self::Allocator,
            _ => Self::Other,
        }
    }
}

/// An option of the submitting commands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opt {
    /// Its name, without the dashes.
    pub name: &'static CStr,
    /// What its argument is called.
    pub argument: &'static CStr,
    /// What it means.
    pub usage: &'static CStr,
    /// The number that the callback gets.
    pub value: c_int,
}

/// What one call of Slurm's may ask Slurm.
pub(crate) struct Spank<'a> {
    raw: *mut RawHandle,
    call: PhantomData<&'a mut RawHandle>,
}

impl Spank<'_> {
    /// Of the handle that Slurm has called a function of the plugin with.
    ///
    /// # Safety
    /// It is that one, and the call lasts as long as this lives.
    pub(crate) unsafe fn new(raw: *mut RawHandle) -> Self {
        Self { raw, call: PhantomData }
    }

    /// Has Slurm accept an option.
    pub(crate) fn register(
        &mut self,
        option: &Opt,
        callback: extern "C" fn(c_int, *const c_char, c_int) -> c_int,
    ) -> bool {
        let mut raw = RawOption {
            name: option.name.as_ptr(),
            argument: option.argument.as_ptr(),
            usage: option.usage.as_ptr(),
            has_argument: 1,
            value: option.value,
            callback,
        };
        // SAFETY: the handle is good by `new`; the description's texts are static, and Slurm copies it.
        unsafe { spank_option_register(self.raw, &mut raw) == SUCCESS }
    }

    /// The id of the step's job.
    pub(crate) fn job(&mut self) -> Option<u32> {
        /// `S_JOB_ID`: a `uint32_t`.
        const JOB_ID: c_int = 2;
        let mut job = 0u32;
        // SAFETY: the handle is good by `new`; this item is written to a place of that type.
        (unsafe { spank_get_item(self.raw, JOB_ID, &raw mut job) } == SUCCESS).then_some(job)
    }

    /// A variable of the task's environment; `None` where it is not set, or longer than lists of libraries are.
    pub(crate) fn variable(&mut self, name: &str) -> Option<Vec<u8>> {
        let name = CString::new(name).ok()?;
        let mut value = vec![0u8; 64 << 10];
        // SAFETY: the handle is good by `new`; the text ends in a zero, and the place has that length.
        let found =
            unsafe { spank_getenv(self.raw, name.as_ptr(), value.as_mut_ptr().cast(), value.len() as c_int) };
        if found != SUCCESS {
            return None;
        }
        value.truncate(value.iter().position(|byte| *byte == 0)?);
        Some(value)
    }

    /// Sets a variable of the task's environment.
    pub(crate) fn set_variable(&mut self, name: &str, value: &[u8]) -> bool {
        let (Ok(name), Ok(value)) = (CString::new(name), CString::new(value)) else { return false };
        // SAFETY: the handle is good by `new`; both texts end in a zero, and Slurm copies them.
        unsafe { spank_setenv(self.raw, name.as_ptr(), value.as_ptr(), 1) == SUCCESS }
    }

    /// Takes a variable out of the task's environment.
    pub(crate) fn unset_variable(&mut self, name: &str) {
        let Ok(name) = CString::new(name) else { return };
        // SAFETY: the handle is good by `new`; the text ends in a zero. One that is not set is none the worse.
        unsafe { spank_unsetenv(self.raw, name.as_ptr()) };
    }

    /// Sets a variable for the job's prolog and epilog, or takes it away.
    pub(crate) fn set_for_prolog(&mut self, name: &str, value: Option<&str>) -> bool {
        let Ok(name) = CString::new(name) else { return false };
        let Some(value) = value else {
            // SAFETY: as in `unset_variable`.
            unsafe { spank_job_control_unsetenv(self.raw, name.as_ptr()) };
            return true;
        };
        let Ok(value) = CString::new(value) else { return false };
        // SAFETY: as in `set_variable`.
        unsafe { spank_job_control_setenv(self.raw, name.as_ptr(), value.as_ptr(), 1) == SUCCESS }
    }
}

/// Says an error where Slurm's own errors are said: srun's and sbatch's standard error, a task's, slurmd's log.
pub(crate) fn error(text: &str) {
    for line in text.lines() {
        let Ok(line) = CString::new(format!("rgpu: {line}")) else { continue };
        // SAFETY: a format with one text, which ends in a zero.
        unsafe { slurm_error(c"%s".as_ptr(), line.as_ptr()) };
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! Slurm's functions, as far as tests need them.

    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::*;

    /// What Slurm knows in a test.
    #[derive(Default)]
    pub(crate) struct Slurm {
        pub context: c_int,
        pub job: u32,
        pub options: Vec<String>,
        pub task: BTreeMap<String, String>,
        pub prolog: BTreeMap<String, String>,
        pub errors: Vec<String>,
    }

    thread_local! {
        /// That of this thread's test.
        pub(crate) static SLURM: RefCell<Slurm> = RefCell::default();
    }

    fn with<T>(body: impl FnOnce(&mut Slurm) -> T) -> T {
        SLURM.with_borrow_mut(body)
    }

    /// SAFETY of all of these: called by this crate with live texts alone.
    unsafe fn text(text: *const c_char) -> String {
        // SAFETY: as above.
        unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
    }

    pub(super) unsafe fn spank_context() -> c_int {
        with(|slurm| slurm.context)
    }

    pub(super) unsafe fn spank_option_register(_: *mut RawHandle, option: *mut RawOption) -> c_int {
        // SAFETY: as above.
        let name = unsafe { text((*option).name) };
        with(|slurm| slurm.options.push(name));
        SUCCESS
    }

    pub(super) unsafe fn spank_get_item(_: *mut RawHandle, item: c_int, job: *mut u32) -> c_int {
        assert_eq!(item, 2);
        // SAFETY: as above.
        unsafe { *job = with(|slurm| slurm.job) };
        SUCCESS
    }

    pub(super) unsafe fn spank_getenv(
        _: *mut RawHandle,
        name: *const c_char,
        value: *mut c_char,
        length: c_int,
    ) -> c_int {
        // SAFETY: as above.
        let name = unsafe { text(name) };
        let Some(found) = with(|slurm| slurm.task.get(&name).cloned()) else { return 1 };
        let found = CString::new(found).unwrap();
        assert!(found.as_bytes_with_nul().len() <= length as usize);
        // SAFETY: there is room for it.
        unsafe { value.copy_from(found.as_ptr(), found.as_bytes_with_nul().len()) };
        SUCCESS
    }

    pub(super) unsafe fn spank_setenv(
        _: *mut RawHandle,
        name: *const c_char,
        value: *const c_char,
        _: c_int,
    ) -> c_int {
        // SAFETY: as above.
        let (name, value) = unsafe { (text(name), text(value)) };
        with(|slurm| slurm.task.insert(name, value));
        SUCCESS
    }

    pub(super) unsafe fn spank_unsetenv(_: *mut RawHandle, name: *const c_char) -> c_int {
        // SAFETY: as above.
        let name = unsafe { text(name) };
        with(|slurm| slurm.task.remove(&name));
        SUCCESS
    }

    pub(super) unsafe fn spank_job_control_setenv(
        _: *mut RawHandle,
        name: *const c_char,
        value: *const c_char,
        _: c_int,
    ) -> c_int {
        // SAFETY: as above.
        let (name, value) = unsafe { (text(name), text(value)) };
        with(|slurm| slurm.prolog.insert(name, value));
        SUCCESS
    }

    pub(super) unsafe fn spank_job_control_unsetenv(_: *mut RawHandle, name: *const c_char) -> c_int {
        // SAFETY: as above.
        let name = unsafe { text(name) };
        with(|slurm| slurm.prolog.remove(&name));
        SUCCESS
    }

    pub(super) unsafe fn slurm_error(format: *const c_char, line: *const c_char) {
        // SAFETY: as above.
        let (format, line) = unsafe { (text(format), text(line)) };
        assert_eq!(format, "%s");
        with(|slurm| slurm.errors.push(line));
    }
}
