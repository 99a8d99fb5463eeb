//! Events.

use crate::bench::{Bench, LEGACY, OTHER, OWN};
use crate::{Open, host::PAGE};
use rgpu_device::{Code, Region, Target};

/// An event's handle is the caller's choice, is taken while the event is there, and free afterwards.
pub fn event_handles_are_taken_and_free(open: Open) {
    let bench = Bench::new(open);
    let device = &bench.device;
    device.event_create(0, 1, true).unwrap();
    bench.refused(device.event_create(0, 1, false), Code::InvalidValue);
    device.event_destroy(1).unwrap();
    bench.refused(device.event_destroy(1), Code::InvalidHandle);
    device.event_create(0, 1, false).unwrap();
    bench.sync().unwrap();
}

/// Whatever is asked of an event that is not there is refused.
pub fn unknown_events_are_refused(open: Open) {
    let bench = Bench::new(open);
    let device = &bench.device;
    device.event_create(0, 1, true).unwrap();
    device.event_record(1, LEGACY).unwrap();
    bench.refused(device.event_destroy(7), Code::InvalidHandle);
    bench.refused(device.event_record(7, LEGACY), Code::InvalidHandle);
    bench.refused(device.stream_wait_event(LEGACY, 7), Code::InvalidHandle);
    bench.refused(device.event_elapsed(1, 7), Code::InvalidHandle);
    bench.refused(device.event_elapsed(7, 1), Code::InvalidHandle);
    bench.refused(device.query(Target::Event(7)), Code::InvalidHandle);
    bench.refused(device.synchronize_blocking(Target::Event(7)), Code::InvalidHandle);
}

/// An event that was never recorded counts as reached, and has no time.
pub fn unrecorded_events_are_done(open: Open) {
    let bench = Bench::new(open);
    let device = &bench.device;
    device.event_create(0, 1, true).unwrap();
    device.event_create(0, 2, true).unwrap();
    assert!(bench.is_done(Target::Event(1)));
    device.synchronize_blocking(Target::Event(1)).unwrap();
    device.stream_wait_event(LEGACY, 1).unwrap();
    bench.sync().unwrap();
    device.event_record(2, LEGACY).unwrap();
    bench.sync().unwrap();
    bench.refused(device.event_elapsed(1, 2), Code::InvalidHandle);
    bench.refused(device.event_elapsed(2, 1), Code::InvalidHandle);
}

/// Events without timing have no time.
pub fn untimed_events_have_no_time(open: Open) {
    let bench = Bench::new(open);
    let device = &bench.device;
    device.event_create(0, 1, false).unwrap();
    device.event_create(0, 2, true).unwrap();
    for event in [1, 2] {
        device.event_record(event, LEGACY).unwrap();
    }
    bench.sync().unwrap();
    for (start, end) in [(1, 2), (2, 1), (1, 1)] {
        bench.refused(device.event_elapsed(start, end), Code::InvalidHandle);
    }
    assert!(bench.is_done(Target::Event(1)));
}

/// An event is reached when its stream gets there; until then its time is not known.
pub fn events_are_reached_in_order(open: Open) {
    let bench = Bench::new(open);
    let device = &bench.device;
    device.stream_create(0, OWN, false, 0).unwrap();
    for event in [1, 2] {
        device.event_create(0, event, true).unwrap();
    }
    device.event_record(1, OWN).unwrap();
    device.synchronize_blocking(Target::Event(1)).unwrap();
    bench.hold(OWN, 1);
    device.event_record(2, OWN).unwrap();
    assert!(bench.is_done(Target::Event(1)) && !bench.is_done(Target::Event(2)));
    bench.refused_while_held(device.event_elapsed(1, 2), Code::NotReady);
    bench.release(1);
    device.synchronize_blocking(Target::Event(2)).unwrap();
    assert!(bench.is_done(Target::Event(2)));
    let passed = device.event_elapsed(1, 2).unwrap();
    assert!((0.0..60_000.0).contains(&passed), "{passed} ms");
    assert_eq!(device.event_elapsed(1, 1).map(|ms| ms.abs() < 60_000.0), Ok(true));
    // A new record takes the old one's place.
    bench.hold(OWN, 2);
    device.event_record(1, OWN).unwrap();
    assert!(!bench.is_done(Target::Event(1)));
    bench.release(2);
    bench.sync().unwrap();
}

/// A stream waits for the record of an event that was there when it was told to, and for no later one.
pub fn streams_wait_for_events(open: Open) {
    let bench = Bench::new(open);
    let device = &bench.device;
    let addr = bench.alloc(PAGE);
    device.stream_create(0, OWN, false, 0).unwrap();
    device.stream_create(0, OTHER, false, 0).unwrap();
    device.event_create(0, 1, false).unwrap();
    bench.sync().unwrap();
    bench.hold(OWN, 1);
    device.memset(OWN, Region::linear(addr, 64), 1, 1).unwrap();
    device.event_record(1, OWN).unwrap();
    device.stream_wait_event(OTHER, 1).unwrap();
    // It goes on being waited for when it is gone.
    device.event_destroy(1).unwrap();
    device.memset(OTHER, Region::linear(addr, 32), 2, 1).unwrap();
    assert!(!bench.is_done(Target::Stream(OTHER)));
    bench.release(1);
    device.synchronize_blocking(Target::Stream(OTHER)).unwrap();
    assert_eq!(bench.read_in(OTHER, Region::linear(addr, 64)).unwrap(), [[2; 32], [1; 32]].concat());
}

/// An event is recorded in streams of its own device alone; streams of others can wait for it.
pub fn events_belong_to_a_device(open: Open) {
    let bench = Bench::new(open);
    let device = &bench.device;
    device.event_create(0, 1, true).unwrap();
    device.event_create(1, 2, true).unwrap();
    bench.refused(device.event_record(1, 1), Code::InvalidHandle);
    device.stream_create(0, OWN, false, 0).unwrap();
    device.stream_create(1, OTHER, false, 0).unwrap();
    bench.sync().unwrap();
    bench.hold(OWN, 1);
    device.event_record(1, OWN).unwrap();
    device.stream_wait_event(OTHER, 1).unwrap();
    device.event_record(2, OTHER).unwrap();
    assert!(!bench.is_done(Target::Event(2)));
    bench.release(1);
    device.synchronize_blocking(Target::Event(2)).unwrap();
    bench.refused(device.event_elapsed(1, 2), Code::InvalidHandle);
}
