//! Streams: handles, order, waiting, host functions.

use crate::bench::{Bench, LEGACY, OTHER, OWN, code};
use crate::{Open, host::PAGE};
use rgpu_device::{Code, MemOp, MemoryKind, Region, Result, Target};
use std::sync::mpsc;

/// A handle that nobody has.
const NOBODY: u64 = 0xdead;

/// A stream's handle is the caller's choice, is taken while the stream is there, and free afterwards.
pub fn stream_handles_are_taken_and_free(open: Open) {
    let bench = Bench::new(open);
    let create = |handle| bench.device.stream_create(0, handle, true, 0);
    create(OWN).unwrap();
    bench.refused(create(OWN), Code::InvalidValue);
    // The legacy streams' handles are nobody's to take.
    bench.refused(create(LEGACY), Code::InvalidValue);
    bench.refused(create(0xff), Code::InvalidValue);
    bench.device.stream_destroy(OWN).unwrap();
    bench.refused(bench.device.stream_destroy(OWN), Code::InvalidHandle);
    bench.refused(bench.device.stream_destroy(LEGACY), Code::InvalidHandle);
    create(OWN).unwrap();
    bench.sync().unwrap();
}

/// Whatever is put on a stream that is not there is refused.
pub fn unknown_streams_are_refused(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(PAGE);
    let run = Region::linear(addr, 16);
    let device = &bench.device;
    device.event_create(0, 1, true).unwrap();
    for stream in [NOBODY, 0xfe] {
        bench.refused(device.stream_destroy(stream), Code::InvalidHandle);
        bench.refused(device.memset(stream, run, 0, 1), Code::InvalidHandle);
        bench.refused(bench.write_in(stream, run, &[1; 16]), Code::InvalidHandle);
        bench.refused(bench.read_in(stream, run), Code::InvalidHandle);
        bench.refused_at_once(bench.hear(&bench.read_by_sink(stream, run)), Code::InvalidHandle);
        bench.refused(device.copy_on_device(stream, run, run), Code::InvalidHandle);
        bench.refused(device.event_record(1, stream), Code::InvalidHandle);
        bench.refused(device.stream_wait_event(stream, 1), Code::InvalidHandle);
        bench.refused(device.fence(stream), Code::InvalidHandle);
        bench.refused(device.host_func(stream, 5), Code::InvalidHandle);
        bench.refused(device.query(Target::Stream(stream)), Code::InvalidHandle);
        bench.refused(device.synchronize_blocking(Target::Stream(stream)), Code::InvalidHandle);
    }
}

/// A stream that was destroyed still does what was put on it.
pub fn destroyed_streams_finish_their_work(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(PAGE);
    bench.device.stream_create(0, OWN, false, 0).unwrap();
    bench.hold(OWN, 3);
    bench.device.memset(OWN, Region::linear(addr, 64), 6, 1).unwrap();
    bench.device.stream_destroy(OWN).unwrap();
    assert!(!bench.is_done(Target::Device(0)));
    bench.release(3);
    bench.sync().unwrap();
    assert_eq!(bench.read(addr, 64), [6; 64]);
}

/// Work of one stream is done in its order, and other streams do not wait for it.
pub fn streams_are_independent(open: Open) {
    let bench = Bench::new(open);
    let (held, free) = (bench.alloc(PAGE), bench.alloc(PAGE));
    bench.device.stream_create(0, OWN, false, 0).unwrap();
    bench.device.stream_create(0, OTHER, false, -1).unwrap();
    bench.sync().unwrap();
    bench.hold(OWN, 1);
    bench.device.memset(OWN, Region::linear(held, 64), 1, 1).unwrap();
    bench.device.memset(OWN, Region::linear(held, 32), 2, 1).unwrap();
    bench.device.memset(OTHER, Region::linear(free, 64), 3, 1).unwrap();
    bench.device.synchronize_blocking(Target::Stream(OTHER)).unwrap();
    assert_eq!(bench.read_in(OTHER, Region::linear(free, 64)).unwrap(), [3; 64]);
    assert_eq!(bench.read_in(OTHER, Region::linear(held, 64)).unwrap(), [0; 64]);
    assert!(bench.is_done(Target::Stream(OTHER)));
    assert!(!bench.is_done(Target::Stream(OWN)) && !bench.is_done(Target::Device(0)));
    bench.release(1);
    bench.device.synchronize_blocking(Target::Stream(OWN)).unwrap();
    assert_eq!(bench.read_in(OWN, Region::linear(held, 64)).unwrap(), [[2; 32], [1; 32]].concat());
    assert!(bench.is_done(Target::Stream(OWN)));
}

/// The legacy stream waits for blocking streams, and they for it.
pub fn the_legacy_stream_and_blocking_ones_wait_for_each_other(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(PAGE);
    bench.device.stream_create(0, OWN, true, 0).unwrap();
    bench.device.stream_create(0, OTHER, true, 0).unwrap();
    bench.sync().unwrap();
    bench.hold(OWN, 1);
    bench.device.memset(LEGACY, Region::linear(addr, 64), 1, 1).unwrap();
    bench.device.memset(OTHER, Region::linear(addr, 32), 2, 1).unwrap();
    assert!(!bench.is_done(Target::Stream(LEGACY)) && !bench.is_done(Target::Stream(OTHER)));
    bench.release(1);
    bench.device.synchronize_blocking(Target::Stream(OTHER)).unwrap();
    assert!(bench.is_done(Target::Stream(LEGACY)) && bench.is_done(Target::Stream(OWN)));
    assert_eq!(bench.read(addr, 64), [[2; 32], [1; 32]].concat());
}

/// Streams that do not block are not waited for by the legacy stream.
pub fn the_legacy_stream_does_not_wait_for_others(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(PAGE);
    bench.device.stream_create(0, OWN, false, 0).unwrap();
    bench.sync().unwrap();
    bench.hold(OWN, 1);
    bench.device.memset(LEGACY, Region::linear(addr, 64), 1, 1).unwrap();
    bench.device.synchronize_blocking(Target::Stream(LEGACY)).unwrap();
    assert!(!bench.is_done(Target::Stream(OWN)));
    bench.release(1);
    bench.sync().unwrap();
}

/// Behind a fence all work, on whatever stream, waits for the fenced one.
pub fn fences_hold_all_streams(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(PAGE);
    bench.device.stream_create(0, OWN, false, 0).unwrap();
    bench.device.stream_create(0, OTHER, false, 0).unwrap();
    bench.sync().unwrap();
    bench.hold(OWN, 1);
    bench.device.memset(OWN, Region::linear(addr, 64), 1, 1).unwrap();
    bench.device.fence(OWN).unwrap();
    bench.device.memset(OTHER, Region::linear(addr, 32), 2, 1).unwrap();
    assert!(!bench.is_done(Target::Stream(OTHER)));
    bench.release(1);
    bench.device.synchronize_blocking(Target::Stream(OTHER)).unwrap();
    assert_eq!(bench.read_in(OTHER, Region::linear(addr, 64)).unwrap(), [[2; 32], [1; 32]].concat());
}

/// A callback is called when what it waits for is done, and not before.
pub fn callbacks_come_when_work_is_done(open: Open) {
    let bench = Bench::new(open);
    bench.device.stream_create(0, OWN, false, 0).unwrap();
    bench.sync().unwrap();
    bench.hold(OWN, 1);
    let wait = |target| {
        let (send, receive) = mpsc::channel::<Result<()>>();
        bench.device.synchronize(target, Box::new(move |result| drop(send.send(result))));
        receive
    };
    let waits = [wait(Target::Stream(OWN)), wait(Target::Device(0))];
    assert!(!bench.is_done(Target::Stream(OWN)));
    for receive in &waits {
        assert!(receive.try_recv().is_err(), "it was called too soon");
    }
    bench.release(1);
    for receive in &waits {
        bench.hear(receive).unwrap();
    }
    let unknown = bench.hear(&wait(Target::Stream(NOBODY)));
    assert_eq!(code(unknown), Some(Code::InvalidHandle));
}

/// Host functions are called in their stream's order, and streams wait for their end; ends of others are refused.
pub fn host_functions_are_waited_for(open: Open) {
    let bench = Bench::new(open);
    bench.device.stream_create(0, OWN, false, 0).unwrap();
    bench.hold(OWN, 10);
    bench.device.host_func(OWN, 11).unwrap();
    assert!(!bench.is_done(Target::Stream(OWN)));
    assert!(!bench.host.has_reached(11), "the second was called before the first was over");
    bench.release(10);
    bench.host.wait_for_function(11);
    bench.release(11);
    bench.device.synchronize_blocking(Target::Stream(OWN)).unwrap();
    for id in [11, 12] {
        bench.refused(bench.device.host_func_done(id), Code::InvalidValue);
    }
}

/// An operation on a word: 1 and 4 wait until it is equal, 2 and 5 write; of four bytes and of eight.
fn word(number: u32, addr: u64, value: u64) -> MemOp {
    MemOp::new(number, addr, value, u32::from(matches!(number, 1 | 4))).unwrap()
}

/// Streams write words of device memory, and wait until other streams' work, or a copy, has written some.
pub fn words_are_written_and_waited_for(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(PAGE);
    for stream in [OWN, OTHER] {
        bench.device.stream_create(0, stream, false, 0).unwrap();
    }
    let ops = [word(1, addr, 1), word(5, addr + 8, 7 << 40 | 5), word(4, addr + 16, 9), word(2, addr + 4, 3)];
    bench.device.mem_ops(OWN, &ops).unwrap();
    assert!(!bench.is_done(Target::Stream(OWN)));
    bench.device.mem_ops(OTHER, &[word(2, addr, 1)]).unwrap();
    bench.device.synchronize_blocking(Target::Stream(OTHER)).unwrap();
    assert!(!bench.is_done(Target::Stream(OWN)), "it waits for a second word");
    bench.write_in(OTHER, Region::linear(addr + 16, 8), &9u64.to_le_bytes()).unwrap();
    bench.device.synchronize_blocking(Target::Stream(OWN)).unwrap();
    assert_eq!(bench.words(addr, 6), [1, 3, 5, 7 << 8, 9, 0]);
}

/// Words that are nobody's, or that the device has a copy of its own of, are no stream's business.
pub fn bad_words_are_refused(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(PAGE);
    let ops = |stream, op| bench.device.mem_ops(stream, &[op]);
    bench.refused(ops(NOBODY, word(2, addr, 1)), Code::InvalidHandle);
    bench.refused(ops(LEGACY, word(2, addr + PAGE, 1)), Code::InvalidValue);
    bench.refused(ops(LEGACY, word(5, addr + 2 * PAGE - 8, 1)), Code::InvalidValue);
    bench.refused(bench.device.mem_ops(LEGACY, &[word(2, addr, 1); MemOp::MOST + 1]), Code::InvalidValue);
    let shared = bench.plan.shared.base;
    bench.device.mem_alloc(0, shared, PAGE, MemoryKind::Mirrored).unwrap();
    bench.refused(ops(LEGACY, word(2, shared, 1)), Code::NotSupported);
    assert_eq!(bench.words(addr, 1), [0]);
}
