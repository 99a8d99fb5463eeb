//! What every [`Device`](rgpu_device::Device) is held to: one set of cases, which compare results and error codes.
//!
//! A device is given to the cases by a function that opens it, `fn(Arc<TestHost>) -> Subject`, anew for each case. A crate's
//! tests run all cases, each a test of its own, by one line:
//!
//! ```ignore
//! rgpu_conformance::suite!(open_device);
//! ```
//!
//! Where a device cannot do something by its nature, or the place where it is tested cannot, the line says so, and the cases
//! that need it are ignored by name: `suite!(open_device, without: [Printing])`. A test program with a `main` of its own
//! runs them by [`harness::run`]. What can be left out are the [`Needs`].
//!
//! Devices may differ in *when* they report what is wrong with a call that nobody waits for: at once, or, where calls are
//! posted, when somebody waits next ([`Subject::posts`]). Cases ask [`Bench::refused`], which knows both; the code is the
//! same.

#![deny(missing_docs)]

mod bench;
pub mod cases;
pub mod hardware;
pub mod harness;
mod host;

pub use bench::{Bench, Subject};
pub use host::TestHost;

use std::sync::Arc;

/// Opens the device that a case works with.
pub type Open = fn(Arc<TestHost>) -> Subject;

/// What a case needs beyond what every device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// Kernels are executed as their PTX says.
    Kernels,
    /// What kernels print comes to the host.
    Printing,
    /// A kernel's fault is found out, and says what it was.
    Faults,
    /// After a kernel's fault a reset makes the device usable again, which NVIDIA's driver does not.
    Recovery,
    /// Work in the legacy stream and in blocking streams waits for each other.
    LegacyOrder,
    /// Images that are none are told from modules.
    Images,
    /// There are two ordinals.
    TwoDevices,
    /// There are mathematical libraries.
    Libraries,
}

/// One case: something that every device answers alike.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name, with its group in front: `memory::runs_out_and_comes_back`.
    pub name: &'static str,
    /// What it needs.
    pub needs: Needs,
    /// Runs it. It panics where the device does not conform.
    pub run: fn(Open),
}

/// The one list of cases: what a group needs, the group, and its cases.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_case {
    ($callback:ident [$($extra:tt)*]) => {
        $crate::$callback! {
            $($extra)*
            [Nothing memory:
                devices_describe_themselves
                plans_are_made_once
                bad_places_are_refused
                unknown_ordinals_are_refused
                runs_out_and_comes_back
                what_is_free_is_told
                only_allocations_are_freed
                new_memory_is_zero
                freeing_waits_for_earlier_work
                freeing_in_a_streams_order
                direct_memory_is_seen_by_both
                whole_pages_of_an_allocation_are_exported
            ]
            [Nothing copies:
                what_was_sent_comes_back
                borrowed_memory_is_sent
                copies_of_nothing_are_fine
                bad_targets_are_refused
                bad_sources_are_refused
                unallocated_memory_is_refused
                bad_host_regions_are_refused
                shapes_that_differ_are_refused
                regions_are_copied_on_the_device
                neighbours_are_one_run
                copies_keep_their_streams_order
            ]
            [TwoDevices copies:
                devices_copy_to_each_other
            ]
            [Nothing fills:
                elements_fill_regions
                misaligned_fills_are_refused
                bad_regions_are_refused
            ]
            [Nothing streams:
                stream_handles_are_taken_and_free
                unknown_streams_are_refused
                destroyed_streams_finish_their_work
                streams_are_independent
                the_legacy_stream_does_not_wait_for_others
                fences_hold_all_streams
                callbacks_come_when_work_is_done
                host_functions_are_waited_for
                words_are_written_and_waited_for
                bad_words_are_refused
            ]
            [LegacyOrder streams:
                the_legacy_stream_and_blocking_ones_wait_for_each_other
            ]
            [Nothing events:
                event_handles_are_taken_and_free
                unknown_events_are_refused
                unrecorded_events_are_done
                untimed_events_have_no_time
                events_are_reached_in_order
                streams_wait_for_events
            ]
            [TwoDevices events:
                events_belong_to_a_device
            ]
            [Nothing modules:
                modules_describe_themselves
                variables_are_memory
                module_handles_are_taken_and_free
            ]
            [Images modules:
                bad_images_are_refused
                kernels_that_cannot_run_are_refused_alone
            ]
            [Kernels modules:
                modules_can_be_begun
            ]
            [Kernels launches:
                kernels_run
                launches_keep_their_order
                launches_are_prepared_and_repeated
            ]
            [Nothing launches:
                impossible_shapes_are_refused
                too_much_shared_memory_is_refused
                missing_parameters_are_refused
                unknown_kernels_and_streams_are_refused
                cooperative_launches_fit_or_are_refused
                clusters_are_launched_or_refused
                launches_are_counted
            ]
            [Printing launches:
                printed_text_comes_before_the_end
            ]
            [Libraries libraries:
                libraries_have_versions
                products_are_computed
                operations_keep_their_streams_order
                unknown_operations_are_refused
                wrong_addresses_stick
            ]
            [Faults errors:
                illegal_addresses_stick
                failed_assertions_stick
            ]
            [Recovery errors:
                resets_mend_illegal_addresses
                resets_mend_failed_assertions
            ]
            [Nothing errors:
                errors_of_arguments_do_not_stick
                resets_leave_nothing
                limits_are_set
                measurements_are_told_or_not_supported
            ]
            [TwoDevices errors:
                other_ordinals_go_on
            ]
            [Kernels shared:
                kernels_and_the_host_see_each_others_bytes
            ]
            [Nothing shared:
                copies_and_fills_come_back
                mirrored_memory_has_its_place
            ]
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! define_cases {
    ($([$need:ident $group:ident: $($name:ident)*])*) => {
        /// All cases, in the order in which they are listed.
        pub const CASES: &[Case] = &[$($(Case {
            name: concat!(stringify!($group), "::", stringify!($name)),
            needs: Needs::$need,
            run: cases::$group::$name,
        },)*)*];
    };
}
for_each_case!(define_cases []);

/// Runs every case as a test: `suite!(open)`, or `suite!(open, without: [Printing, Faults])` with [`Needs`] that the device
/// does not meet, whose cases are ignored. To stand in a module of its own.
#[macro_export]
macro_rules! suite {
    ($open:path) => { $crate::suite!($open, without: []); };
    ($open:path, without: [$($lacking:ident),* $(,)?]) => {
        $crate::for_each_case!(__tests [$open, [$($lacking)*]]);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ($open:path, $lacking:tt $([$need:ident $group:ident: $($name:ident)*])*) => {
        $($crate::__tests_of!($lacking $need $open, $group, $($name)*);)*
    };
}

/// Tests of a group, ignored where the first list names what they need.
#[doc(hidden)]
#[macro_export]
macro_rules! __tests_of {
    ([Kernels $($rest:ident)*] Kernels $($all:tt)*) => { $crate::__ignored!(Kernels $($all)*); };
    ([Printing $($rest:ident)*] Printing $($all:tt)*) => { $crate::__ignored!(Printing $($all)*); };
    ([Faults $($rest:ident)*] Faults $($all:tt)*) => { $crate::__ignored!(Faults $($all)*); };
    ([LegacyOrder $($rest:ident)*] LegacyOrder $($all:tt)*) => { $crate::__ignored!(LegacyOrder $($all)*); };
    ([Recovery $($rest:ident)*] Recovery $($all:tt)*) => { $crate::__ignored!(Recovery $($all)*); };
    ([Images $($rest:ident)*] Images $($all:tt)*) => { $crate::__ignored!(Images $($all)*); };
    ([TwoDevices $($rest:ident)*] TwoDevices $($all:tt)*) => { $crate::__ignored!(TwoDevices $($all)*); };
    ([Libraries $($rest:ident)*] Libraries $($all:tt)*) => { $crate::__ignored!(Libraries $($all)*); };
    ([$other:ident $($rest:ident)*] $need:ident $($all:tt)*) => {
        $crate::__tests_of!([$($rest)*] $need $($all)*);
    };
    ([] $need:ident $open:path, $group:ident, $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $crate::cases::$group::$name($open);
            }
        )*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __ignored {
    ($need:ident $open:path, $group:ident, $($name:ident)*) => {
        $(
            #[test]
            #[ignore = concat!("the device is declared to be without ", stringify!($need))]
            fn $name() {
                $crate::cases::$group::$name($open);
            }
        )*
    };
}
