//! Tests of the ledger.

use super::block::LEASES;
use super::*;

#[test]
fn promises_never_exceed_the_memory() {
    let ledger = Ledger::new(&[1000]).unwrap();
    let (a, b) = (ledger.take_slot().unwrap(), ledger.take_slot().unwrap());
    assert_eq!(ledger.grant(a, 0, 600, 800), 800);
    assert_eq!(ledger.grant(b, 0, 150, 300), 150);
    assert_eq!(ledger.grant(b, 0, 100, 300), 0);
    assert_eq!(ledger.grant(b, 5, 1, 1), 0);
    assert_eq!(ledger.unpromised(0), 50);
    ledger.take_back(a, 0, 300);
    assert_eq!(ledger.unpromised(0), 350);
    ledger.clear_slot(a);
    assert_eq!(ledger.unpromised(0), 850);
    assert_eq!(ledger.grant(b, 0, u64::MAX, u64::MAX), 0);
}

fn terms(device: u32, memory: u64) -> Terms {
    Terms { device, memory, share_milli: 1000 }
}

#[test]
fn applications_of_a_lease_share_its_grant() {
    let ledger = Ledger::new(&[1000, 1000]).unwrap();
    let lease = ledger.take_lease(&[terms(1, 400), terms(0, 100)], &[]).unwrap();
    let (a, b, other) =
        (ledger.take_slot().unwrap(), ledger.take_slot().unwrap(), ledger.take_slot().unwrap());
    ledger.bind(a, lease);
    ledger.bind(b, lease);
    assert_eq!(ledger.grant(a, 0, 300, 300), 300);
    assert_eq!((ledger.free(b, 0), ledger.free(b, 1), ledger.free(b, 2)), (100, 100, 0));
    assert_eq!(ledger.grant(b, 0, 60, 200), 60);
    assert_eq!(ledger.grant(b, 0, 50, 50), 0);
    assert_eq!(ledger.grant(b, 2, 1, 1), 0);
    // The other sees what is left of the devices, not of the lease.
    assert_eq!((ledger.free(other, 0), ledger.free(other, 1)), (1000, 640));
    assert_eq!(ledger.grant(other, 1, 900, 640), 640);
    assert_eq!(ledger.grant(b, 0, 40, 40), 0);
    assert_eq!((ledger.used(lease, 0).memory, ledger.used(lease, 0).peak_memory), (360, 360));
    ledger.clear_slot(a);
    assert_eq!((ledger.used(lease, 0).memory, ledger.used(lease, 0).peak_memory), (60, 360));
    assert_eq!(ledger.cap(b, 0), Some(400));
    assert_eq!(ledger.cap(other, 0), None);
}

#[test]
fn a_smaller_lease_counts_at_once() {
    let ledger = Ledger::new(&[1000]).unwrap();
    let lease = ledger.take_lease(&[terms(0, 500)], &[]).unwrap();
    let slot = ledger.take_slot().unwrap();
    ledger.bind(slot, lease);
    assert_eq!(ledger.grant(slot, 0, 400, 400), 400);
    assert!(ledger.allocate(slot, 0, 150));
    ledger.set_terms(lease, &[terms(0, 200)]);
    assert_eq!((ledger.excess(slot, 0), ledger.free(slot, 0)), (200, 0));
    assert!(!ledger.allocate(slot, 0, 100) && ledger.allocate(slot, 0, 50));
    ledger.deallocate(slot, 0, 100);
    assert!(ledger.allocate(slot, 0, 100));
    ledger.take_back(slot, 0, 200);
    assert_eq!(ledger.excess(slot, 0), 0);
    assert_eq!(ledger.grant(slot, 0, 1, 1), 0);
}

#[test]
fn a_devices_peak_is_of_what_all_have_allocated_at_a_time() {
    let ledger = Ledger::new(&[1000, 1000]).unwrap();
    let lease = ledger.take_lease(&[terms(1, 400)], &[]).unwrap();
    let slots: [usize; 3] = std::array::from_fn(|_| ledger.take_slot().unwrap());
    let [a, b, other] = slots;
    [a, b].into_iter().for_each(|slot| ledger.bind(slot, lease));
    // What is promised is not yet used.
    assert_eq!((ledger.grant(a, 0, 200, 200), ledger.grant(b, 0, 200, 200)), (200, 200));
    assert_eq!(ledger.grant(other, 1, 500, 500), 500);
    assert_eq!([ledger.peak(0), ledger.peak(1), ledger.peak(99)], [0; 3]);
    assert!(ledger.allocate(a, 0, 150) && ledger.allocate(other, 1, 400));
    assert_eq!(ledger.peak(1), 550);
    ledger.deallocate(other, 1, 300);
    assert!(ledger.allocate(b, 0, 200));
    assert_eq!(ledger.peak(1), 550, "450 at a time are less");
    // The lease's ordinal 0 is device 1, everybody else's is device 0; what is refused is not counted.
    assert!(!ledger.allocate(a, 0, 100) && ledger.allocate(other, 0, 70));
    assert_eq!([ledger.peak(0), ledger.peak(1)], [70, 550]);
    // It stays what it was when they have gone, and the next begin with nothing.
    slots.into_iter().for_each(|slot| ledger.clear_slot(slot));
    let next = ledger.take_slot().unwrap();
    assert!(ledger.allocate(next, 1, 551));
    assert_eq!([ledger.peak(0), ledger.peak(1)], [70, 551]);
    // More than there is would be seen, whoever allowed it.
    assert!(ledger.allocate(next, 0, 1001));
    assert_eq!(ledger.peak(0), 1001);
}

#[test]
fn every_slot_that_was_ever_taken_counts() {
    let ledger = Ledger::new(&[1000]).unwrap();
    let slots: Vec<usize> = (0..SLOTS).map_while(|_| ledger.take_slot()).collect();
    assert_eq!((slots.len(), ledger.take_slot()), (SLOTS, None));
    slots.iter().for_each(|slot| assert_eq!(ledger.grant(*slot, 0, 1, 1), 1));
    assert_eq!(ledger.unpromised(0), 1000 - SLOTS as u64);
    slots[1..].iter().for_each(|slot| ledger.clear_slot(*slot));
    assert_eq!((ledger.unpromised(0), ledger.take_slot()), (999, Some(1)));
}

#[test]
fn memory_of_the_ending_is_waited_for() {
    let ledger = std::sync::Arc::new(Ledger::new(&[1000]).unwrap());
    let (a, b) = (ledger.take_slot().unwrap(), ledger.take_slot().unwrap());
    assert_eq!(ledger.grant(a, 0, 1000, 1000), 1000);
    assert_eq!(ledger.grant(b, 0, 500, 500), 0);
    ledger.slot(a).set_ending();
    let other = ledger.clone();
    let reaper = std::thread::spawn(move || {
        std::thread::sleep(5 * NOTICED_LOOKS * LOOK);
        other.clear_slot(a);
    });
    assert_eq!(ledger.grant(b, 0, 500, 500), 500);
    reaper.join().unwrap();
}

#[test]
fn time_is_charged_to_the_lease() {
    let ledger = Ledger::new(&[10, 10]).unwrap();
    let half = Terms { share_milli: 500, ..terms(1, 1) };
    let lease = ledger.take_lease(&[terms(0, 1), half], &[]).unwrap();
    let now = 1 << 40;
    ledger.charge(lease, 0, 1 << 30, now);
    ledger.charge(lease, 1, 1 << 30, now);
    ledger.launched(lease, 1, 3);
    assert_eq!(ledger.delay_ns(lease, 0, now), 0);
    assert!(ledger.delay_ns(lease, 1, now) > 1 << 30);
    let used = [ledger.used(lease, 0), ledger.used(lease, 1)];
    assert_eq!((used[0].busy_ns, used[1].busy_ns, used[1].launches), (1 << 30, 1 << 30, 3));
    // A lease that comes again has its debts.
    ledger.clear_lease(lease);
    let again = ledger.take_lease(&[terms(0, 1), half], &used).unwrap();
    assert_eq!(ledger.used(again, 1), used[1]);
    assert!(ledger.delay_ns(again, 1, now) > 1 << 30);
    assert_eq!((0..2 * LEASES).filter_map(|_| ledger.take_lease(&[], &[])).count(), LEASES - 1);
}

#[test]
fn the_busy_add_up_while_they_are_busy() {
    let ledger = Ledger::new(&[10]).unwrap();
    let (a, b) = (ledger.take_slot().unwrap(), ledger.take_slot().unwrap());
    let now = monotonic_ns();
    ledger.slot(a).set_busy(30, now);
    ledger.slot(b).set_busy(40, now);
    assert_eq!(ledger.busy_percent_at(now), 70);
    ledger.slot(b).set_busy(90, now);
    assert_eq!(ledger.busy_percent_at(now), 100);
    ledger.clear_slot(b);
    assert_eq!(ledger.busy_percent(), 30);
    assert_eq!(ledger.busy_percent_at(now + 2 * BUSY_LASTS.as_nanos() as u64), 0);
}

/// The ledger as the application's process in a slot maps it.
fn joined(ledger: &Ledger, slot: usize) -> Ledger {
    let ours = ledger.descriptors().unwrap();
    let theirs = Descriptors {
        rules: ours.rules.try_clone().unwrap(),
        usage: ours.usage.try_clone().unwrap(),
        own: ours.own.try_clone().unwrap(),
    };
    Ledger::join(theirs, slot).unwrap()
}

#[test]
fn two_maps_see_one_ledger() {
    let ledger = Ledger::new(&[10]).unwrap();
    let slot = ledger.take_slot().unwrap();
    let other = joined(&ledger, slot);
    other.slot(slot).set_reason("over");
    other.slot(slot).set_reason("again");
    assert_eq!(ledger.slot(slot).reason().as_deref(), Some("over"));
}

/// Whether the memory at a place can be made writable.
fn can_be_written<T>(place: &T) -> bool {
    let page = std::ptr::from_ref(place).addr() & !4095;
    // SAFETY: it adds a right to memory of this process; nothing relies on its absence.
    unsafe { libc::mprotect(page as *mut _, 4096, libc::PROT_READ | libc::PROT_WRITE) == 0 }
}

#[test]
fn an_application_writes_its_own_use_and_nothing_else() {
    let ledger = Ledger::new(&[1000]).unwrap();
    let (lease, other) = (
        ledger.take_lease(&[terms(0, 400)], &[]).unwrap(),
        ledger.take_lease(&[terms(0, 500)], &[]).unwrap(),
    );
    let (slot, stranger) = (ledger.take_slot().unwrap(), ledger.take_slot().unwrap());
    ledger.bind(slot, lease);
    ledger.bind(stranger, other);
    let mine = joined(&ledger, slot);
    assert_eq!(mine.grant(slot, 0, 100, 100), 100);
    mine.charge(lease, 0, 5, 1);
    assert_eq!((ledger.used(lease, 0).memory, ledger.used(lease, 0).busy_ns), (100, 5));
    assert!(can_be_written(mine.slot(slot)) && can_be_written(mine.lease_use(lease)));
    // What it may have, and everything of others', cannot be made writable.
    assert!(!can_be_written(mine.rules) && !can_be_written(mine.lease(lease)));
    assert!(!can_be_written(mine.slot(stranger)) && !can_be_written(mine.lease_use(other)));
    assert!(!can_be_written(&mine.usage.slots[slot]));
}

#[test]
fn nobody_takes_the_ledger_away() {
    let ledger = Ledger::new(&[1000]).unwrap();
    let Descriptors { rules, usage, own } = ledger.descriptors().unwrap();
    for fd in [rules, usage, own] {
        for size in [0, 1 << 30] {
            assert!(rustix::fs::ftruncate(fd, size).is_err());
        }
    }
    let written = [rustix::io::pwrite(rules, b"x", 0), rustix::io::pwrite(usage, b"x", 0)];
    assert!(written.iter().all(Result::is_err));
    let both = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: what is mapped, if it were, is not used.
    let mapped =
        unsafe { [block::map::<u64>(rules, 0, both).err(), block::map::<u64>(usage, 0, both).err()] };
    assert!(mapped.iter().all(Option::is_some));
}

#[test]
fn a_lie_takes_from_nobody_else() {
    let ledger = Ledger::new(&[1000]).unwrap();
    let lease = ledger.take_lease(&[terms(0, 300)], &[]).unwrap();
    let liars: [usize; 2] = std::array::from_fn(|_| ledger.take_slot().unwrap());
    for slot in liars {
        ledger.bind(slot, lease);
        let mine = joined(&ledger, slot);
        mine.slot(slot).granted[0].store(u64::MAX, SeqCst);
        mine.slot(slot).allocated[0].store(u64::MAX, SeqCst);
    }
    assert_eq!((ledger.unpromised(0), ledger.used(lease, 0).memory), (700, 300));
    let honest = ledger.take_slot().unwrap();
    assert_eq!(ledger.grant(honest, 0, 700, 700), 700);
    // A lease that was made smaller may still hold what it had.
    ledger.set_terms(lease, &[terms(0, 100)]);
    assert_eq!(ledger.used(lease, 0).memory, 300);
}
