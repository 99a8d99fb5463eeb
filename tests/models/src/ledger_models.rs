//! Models of the ledger: applications' processes that promise themselves memory at the same time, and the daemon.

use std::sync::Arc;

use loom::thread;

use crate::explore;
use crate::ledger::{Ledger, Terms};

const MEMORY: u64 = 10;
/// More than half of it.
const MUCH: u64 = 6;

/// Executes a model with a ledger that is new each time, whose device has so much memory.
fn with_ledger(preemptions: usize, memory: u64, model: impl Fn(&Arc<Ledger>) + Send + Sync + 'static) {
    // Its memory is mapped for as long as a process lives, so it is one for all executions.
    let ledger = Arc::new(Ledger::create().expect("there is memory"));
    explore(preemptions, move || {
        ledger.set_capacity(&[memory]);
        model(&ledger);
    });
}

fn take(ledger: &Ledger) -> usize {
    ledger.take_slot().expect("there is a slot")
}

fn terms(memory: u64) -> Terms {
    Terms { device: 0, memory, share_milli: 1000 }
}

/// Two processes ask at once for more than there is: at most one gets it.
pub fn no_memory_is_promised_twice() {
    with_ledger(4, MEMORY, |ledger| {
        let (a, b) = (take(ledger), take(ledger));
        let other = ledger.clone();
        let one = thread::spawn(move || other.grant(a, 0, 0, MUCH));
        let two = ledger.grant(b, 0, 0, MUCH);
        let one = one.join().expect("it does not panic");
        assert!(one + two <= MEMORY, "{one} and {two} of {MEMORY}");
        assert_eq!(ledger.unpromised(0), MEMORY - one - two, "what was refused is taken back");
    });
}

/// Two processes of one lease do, on a device that has more than the lease.
pub fn a_lease_is_not_exceeded() {
    with_ledger(4, 10 * MEMORY, |ledger| {
        let (a, b) = (take(ledger), take(ledger));
        let lease = ledger.take_lease(&[terms(MEMORY)], &[]).expect("there is an entry");
        ledger.bind(a, lease);
        ledger.bind(b, lease);
        let other = ledger.clone();
        let one = thread::spawn(move || other.grant(a, 0, 0, MUCH));
        let two = ledger.grant(b, 0, 0, MUCH);
        let one = one.join().expect("it does not panic");
        assert!(one + two <= MEMORY, "{one} and {two} of {MEMORY}");
        assert_eq!(ledger.used(lease, 0).memory, one + two);
    });
}

/// The same for what they allocate of what they were promised, after the lease was made smaller.
pub fn a_smaller_lease_is_not_exceeded() {
    with_ledger(4, 10 * MEMORY, |ledger| {
        let (a, b) = (take(ledger), take(ledger));
        let lease = ledger.take_lease(&[terms(2 * MEMORY)], &[]).expect("there is an entry");
        for slot in [a, b] {
            ledger.bind(slot, lease);
            assert_eq!(ledger.grant(slot, 0, 0, MUCH), MUCH);
        }
        ledger.set_terms(lease, &[terms(MEMORY)]);
        let other = ledger.clone();
        let one = thread::spawn(move || other.allocate(a, 0, MUCH));
        let two = ledger.allocate(b, 0, MUCH);
        let one = one.join().expect("it does not panic");
        assert!(!(one && two), "both have allocated");
    });
}

/// The daemon clears an application's slot while another one asks for memory, and a third one for a slot. What they get fits; a
/// new application in the slot keeps what it was promised; and nothing is lost.
pub fn what_an_application_had_comes_back_once() {
    with_ledger(3, MEMORY, |ledger| {
        let (gone, stays) = (take(ledger), take(ledger));
        assert_eq!(ledger.grant(gone, 0, 0, MUCH), MUCH);
        let (daemon, new) = (ledger.clone(), ledger.clone());
        let cleared = thread::spawn(move || daemon.clear_slot(gone));
        let new = thread::spawn(move || match new.take_slot() {
            Some(slot) => {
                assert_eq!(slot, gone);
                new.grant(slot, 0, 0, MUCH)
            }
            None => 0,
        });
        let got = ledger.grant(stays, 0, 0, MUCH);
        cleared.join().expect("it does not panic");
        let got = got + new.join().expect("it does not panic");
        assert!(got == 0 || got == MUCH);
        assert_eq!(ledger.unpromised(0), MEMORY - got);
    });
}

/// Two threads of the daemon take slots at once: not the same.
pub fn no_slot_is_taken_twice() {
    with_ledger(4, MEMORY, |ledger| {
        let other = ledger.clone();
        let one = thread::spawn(move || other.take_slot());
        let two = ledger.take_slot();
        let one = one.join().expect("it does not panic");
        assert!(one.is_some() && two.is_some() && one != two, "{one:?} and {two:?}");
        assert_eq!(ledger.take_slot(), None);
    });
}
