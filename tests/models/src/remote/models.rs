//! Models of the client's memory credit: the server calls back what the program is just spending.

use std::sync::Arc;

use loom::sync::atomic::Ordering::SeqCst;
use loom::thread;

use super::credit::Credit;
use super::link::Link;
use crate::explore;

const CREDIT: u64 = 10;

/// Calls credit back, twice, by the thread that reads, which never waits, while the program does something of an allocation's.
/// Whoever of the two is last returns it: no recall is left for later, when nobody may come.
fn recall_meanwhile(spent_before: bool, spent_after: u64, program: fn(&Credit, &Link)) {
    explore(4, move || {
        let both = Arc::new((Credit::new(vec![CREDIT]), Link::default()));
        if spent_before {
            allocate(&both.0, &both.1);
        }
        let reader = both.clone();
        let reader = thread::spawn(move || {
            // Each tells all that is too much as of then.
            reader.0.recall(&reader.1, 0, CREDIT / 2);
            reader.0.recall(&reader.1, 0, CREDIT);
        });
        let (credit, link) = &*both;
        program(credit, link);
        reader.join().expect("it does not panic");
        assert!(!credit.any_recalled.load(SeqCst) && credit.recalled.lock().is_empty(), "a recall is left");
        let left = credit.account.lock().left(0).expect("there is one ordinal");
        let (returned, asked) = (*link.returned.lock(), *link.asked.lock());
        assert_eq!(left + returned + spent_after, CREDIT + asked, "credit was lost, or is there twice");
        assert!(returned >= CREDIT - 1, "what was not spent was kept");
    });
}

fn allocate(credit: &Credit, link: &Link) {
    credit.spend(link, 0, 0x1000, 1, || Ok(())).expect("there is credit");
}

/// The program allocates while credit is called back.
pub fn a_recall_during_an_allocation_is_not_forgotten() {
    recall_meanwhile(false, 1, allocate);
}

/// The program releases while credit is called back.
pub fn a_recall_during_a_release_is_not_forgotten() {
    recall_meanwhile(true, 0, |credit, link| {
        assert!(credit.regain(link, 0x1000, || Ok(())).expect("it is sent"), "it was allocated");
    });
}
