//! How a program comes to call this library.
//!
//! A program that links the CUDA runtime or driver dynamically finds this library by its SONAME, and there
//! is nothing to do. nvcc, though, links the runtime *statically*: then its entry points are ordinary local
//! functions of the program, or of a shared object that it loads. This module finds them by the object's
//! symbol table and overwrites the first instructions of each with a jump to the runtime door.
//!
//! - For the program and the libraries that it is linked with, a constructor does so ([`at_startup`]). The
//!   library is linked with `-z initfirst`, so that it runs before every other constructor: registering fat
//!   binaries happens in constructors.
//! - For objects loaded later, the dynamic loader itself says when: it calls an empty function of its own
//!   (`r_debug.r_brk`, meant for debuggers) after mapping them and before running their constructors. That
//!   function is redirected to [`on_load`].
//!
//! In the same way it finds files of NVIDIA's libraries that a [door](crate::libraries) stands in for, by their SONAME, and
//! overwrites what they export ([`library`]).
//!
//! All this happens in every process that inherits the preload, before its C library is initialised or while
//! the dynamic loader holds its locks. So nothing here allocates, starts a thread, or writes anything; an
//! object without CUDA costs a look at its section headers. What could not be done is remembered, and said
//! ([`obstacle`]) when the program's own copy of the runtime comes asking for the driver.

mod device_file;
mod library;
mod link_map;
mod object_file;
pub(crate) mod obstacle;
mod redirect;
mod variables;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
use x86_64 as machine;
#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
use aarch64 as machine;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod other_machine;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use other_machine as machine;

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use link_map::{Debug, ListState};
pub(crate) use redirect::read_as_object;

/// Runs when the library is loaded, before the constructors of the program and its libraries.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: Constructor = {
    extern "C" fn constructor(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
        // The unit tests are a program, and no library.
        if !cfg!(test) {
            // SAFETY: glibc passes a constructor what main gets, and the environment.
            unsafe { crate::libraries::read_environment(environment) };
            at_startup();
        }
    }
    constructor
};

/// What glibc calls with the program's arguments and environment.
type Constructor = extern "C" fn(c_int, *const *const c_char, *const *const c_char);

/// Redirects the static runtimes that are loaded already, and sees to it that later ones will be.
fn at_startup() {
    let Some(debug) = link_map::debug() else { return };
    let Some(own) = link_map::own() else { return };
    // Where this library was loaded late, the program has used its own runtime already: redirecting it now
    // would lose what it was told before.
    let early = link_map::precedes_c_library(debug, own);
    for map in link_map::iterate(debug.map()) {
        if std::ptr::eq(map, own) {
            continue;
        }
        device_file::show_to(map);
        match inspect(map, early) {
            redirect::Outcome::Nothing | redirect::Outcome::Redirected => {}
            redirect::Outcome::Obstacle(obstacle) => obstacle::remember(obstacle, map.name()),
        }
    }
    for (debug, list) in link_map::namespaces(debug).zip(&LISTS) {
        list.remember_tail(debug);
    }
    if !machine::hook_breakpoint(debug.breakpoint(), on_load) {
        obstacle::dlopen_is_unwatched();
    }
}

/// Redirects what is to be redirected in an object.
fn inspect(map: &link_map::LinkMap, may_redirect: bool) -> redirect::Outcome {
    match library::inspect(map, may_redirect) {
        redirect::Outcome::Nothing => redirect::inspect(map, may_redirect),
        done => done,
    }
}

/// What is known of each namespace's list of objects.
static LISTS: [List; 16] =
    [const { List { tail: AtomicUsize::new(0), removing: AtomicBool::new(false) } }; 16];

struct List {
    /// The last object when the list was last whole; new ones follow it.
    tail: AtomicUsize,
    /// Whether the dynamic loader is removing objects.
    removing: AtomicBool,
}

impl List {
    fn remember_tail(&self, debug: &'static Debug) {
        let last = link_map::iterate(debug.map()).last();
        self.tail.store(last.map_or(0, |map| std::ptr::from_ref(map) as usize), Ordering::Relaxed);
    }
}

/// Called by the dynamic loader whenever its list of objects begins or ends to change, with its lock held.
extern "C" fn on_load() {
    // errno belongs to the program's call of dlopen.
    // SAFETY: errno is always there.
    let errno = unsafe { *libc::__errno_location() };
    if let Some(debug) = link_map::debug() {
        for (debug, list) in link_map::namespaces(debug).zip(&LISTS) {
            match debug.state() {
                ListState::Consistent => {
                    // After removing there is nothing new, and the tail may be gone.
                    if !list.removing.swap(false, Ordering::Relaxed) {
                        redirect_after(debug, &list.tail);
                    }
                    list.remember_tail(debug);
                }
                // The first new object may be in the list already.
                ListState::Adding => {}
                ListState::Removing => list.removing.store(true, Ordering::Relaxed),
            }
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Redirects the objects that follow `tail` in the list, or all of them if it isn't in there.
fn redirect_after(debug: &'static Debug, tail: &AtomicUsize) {
    let tail = tail.load(Ordering::Relaxed);
    let known = link_map::iterate(debug.map()).any(|map| std::ptr::from_ref(map) as usize == tail);
    let mut new = !known;
    for map in link_map::iterate(debug.map()) {
        if new {
            if let redirect::Outcome::Obstacle(obstacle) = inspect(map, true) {
                obstacle::remember(obstacle, map.name());
            }
        } else {
            new = std::ptr::from_ref(map) as usize == tail;
        }
    }
}
