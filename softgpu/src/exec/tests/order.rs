//! Streams, events, host functions.

use std::sync::mpsc;

use rgpu_device::{Code, Device, Region, Target};

use super::kernels;
use super::{LEGACY, Rig};

const A: u64 = 0x100;
const B: u64 = 0x101;
const N: u64 = 0x102;

/// Two blocking streams and one that is not.
fn streams(rig: &Rig) {
    rig.gpu.stream_create(0, A, true, 0).unwrap();
    rig.gpu.stream_create(0, B, true, -1).unwrap();
    rig.gpu.stream_create(0, N, false, 0).unwrap();
}

#[test]
fn work_of_a_stream_is_done_in_order() {
    let rig = Rig::new(&[kernels::step]);
    streams(&rig);
    let words = 3000u64;
    let data = rig.alloc(0, 1 << 20);
    let other = rig.alloc(1 << 20, 1 << 20);
    for stream in [LEGACY, A, N] {
        rig.gpu.memset(stream, Region::linear(data, words * 4), 0, 4).unwrap();
        for _ in 0..10 {
            rig.launch(stream, 0, 30, 100, &[data]);
            rig.gpu
                .copy_on_device(stream, Region::linear(other, words * 4), Region::linear(data, words * 4))
                .unwrap();
            rig.launch(stream, 0, 30, 100, &[other]);
            rig.gpu
                .copy_on_device(stream, Region::linear(data, words * 4), Region::linear(other, words * 4))
                .unwrap();
        }
        assert_eq!(rig.words(stream, data, words as usize), vec![(1 << 20) - 1; words as usize]);
    }
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    let rig = Rig::new(&[kernels::wait_for]);
    streams(&rig);
    let flags = rig.alloc(0, 4096);
    let (go, a, b) = (flags, flags + 64, flags + 128);
    rig.gpu.memset(LEGACY, Region::linear(flags, 4096), 0, 1).unwrap();
    rig.sync().unwrap();
    // The kernel in A waits for a word that only N can bring.
    rig.launch(A, 0, 1, 1, &[go, 1, a, 7]);
    let (send, legacy) = mpsc::channel();
    let src = Region::linear(a, 4);
    let gpu = rig.gpu.clone();
    let reader = std::thread::spawn(move || send.send(super::read(&gpu, LEGACY, src, 0)).unwrap());
    while rig.gpu.query(Target::Stream(LEGACY)).unwrap() {
        std::thread::yield_now();
    }
    // B follows the legacy stream, which waits for A.
    rig.launch(B, 0, 1, 1, &[a, 7, b, 9]);
    assert!(!rig.gpu.query(Target::Stream(B)).unwrap());
    // N waits for nobody.
    rig.gpu.memset(N, Region::linear(flags + 192, 4), 3, 4).unwrap();
    rig.gpu.synchronize_blocking(Target::Stream(N)).unwrap();
    assert!(legacy.try_recv().is_err());
    rig.write(N, go, &1u32.to_le_bytes());
    assert_eq!(legacy.recv().unwrap().unwrap(), 7u32.to_le_bytes());
    reader.join().unwrap();
    assert_eq!(rig.words(LEGACY, b, 1), [9]);
}

#[test]
fn events_order_streams_and_keep_time() {
    let rig = Rig::new(&[kernels::wait_for]);
    streams(&rig);
    let (start, end, plain) = (1, 2, 3);
    rig.gpu.event_create(0, start, true).unwrap();
    rig.gpu.event_create(0, end, true).unwrap();
    rig.gpu.event_create(0, plain, false).unwrap();
    assert_eq!(rig.gpu.event_elapsed(start, end).unwrap_err().code, Code::InvalidHandle);
    let flags = rig.alloc(0, 4096);
    rig.gpu.memset(N, Region::linear(flags, 4096), 0, 1).unwrap();
    rig.gpu.synchronize_blocking(Target::Stream(N)).unwrap();
    rig.gpu.event_record(start, N).unwrap();
    rig.launch(N, 0, 1, 1, &[flags, 1, flags + 4, 2]);
    rig.gpu.event_record(end, N).unwrap();
    assert_eq!(rig.gpu.event_elapsed(start, end).unwrap_err().code, Code::NotReady);
    assert!(rig.gpu.query(Target::Event(start)).unwrap());
    assert!(!rig.gpu.query(Target::Event(end)).unwrap());
    rig.gpu.stream_wait_event(A, end).unwrap();
    rig.gpu.memset(A, Region::linear(flags + 4, 4), 5, 4).unwrap();
    assert!(!rig.gpu.query(Target::Stream(A)).unwrap());
    // Destroyed while pending: what waits for it still does.
    rig.gpu.stream_destroy(A).unwrap();
    assert_eq!(rig.gpu.stream_destroy(A).unwrap_err().code, Code::InvalidHandle);
    rig.write(B, flags, &1u32.to_le_bytes());
    rig.sync().unwrap();
    assert_eq!(rig.words(LEGACY, flags, 2), [1, 5]);
    assert!(rig.gpu.event_elapsed(start, end).unwrap() > 0.0);
    assert!(rig.gpu.event_elapsed(end, start).unwrap() < 0.0);
    rig.gpu.event_record(plain, B).unwrap();
    assert_eq!(rig.gpu.event_elapsed(plain, end).unwrap_err().code, Code::InvalidHandle);
    rig.gpu.event_destroy(end).unwrap();
    assert_eq!(rig.gpu.query(Target::Event(end)).unwrap_err().code, Code::InvalidHandle);
}

#[test]
fn a_stream_waits_for_its_host_function() {
    let rig = Rig::new(&[kernels::empty]);
    streams(&rig);
    let word = rig.alloc(0, 4096);
    rig.gpu.host_func(A, 11).unwrap();
    rig.gpu.memset(A, Region::linear(word, 4), 1, 4).unwrap();
    rig.gpu.host_func(A, 12).unwrap();
    assert_eq!(*rig.host.functions.lock(), [11]);
    assert!(!rig.gpu.query(Target::Stream(A)).unwrap());
    assert_eq!(rig.words(N, word, 1), [0]);
    rig.gpu.host_func_done(11).unwrap();
    while rig.host.functions.lock().len() < 2 {
        std::thread::yield_now();
    }
    assert_eq!(rig.words(N, word, 1), [1]);
    assert!(rig.gpu.host_func_done(99).is_err());
    rig.gpu.host_func_done(12).unwrap();
    rig.gpu.synchronize_blocking(Target::Stream(A)).unwrap();
    // A reset does not wait for a function that never returns.
    rig.gpu.host_func(A, 13).unwrap();
    rig.gpu.reset(0).unwrap();
    assert!(rig.gpu.host_func_done(13).is_err());
}

#[test]
fn many_launches_are_all_executed() {
    let rig = Rig::new(&[kernels::empty, kernels::step]);
    streams(&rig);
    let data = rig.alloc(0, 4096);
    rig.gpu.memset(LEGACY, Region::linear(data, 4096), 0, 4).unwrap();
    for i in 0..20_000 {
        rig.launch([LEGACY, A, B, N][i % 4], 0, 1, 1, &[]);
    }
    (0..20).for_each(|_| rig.launch(A, 1, 1, 1, &[data]));
    rig.sync().unwrap();
    assert_eq!(rig.gpu.counters().launches, 20_020);
    assert_eq!(rig.words(LEGACY, data, 1), [(1 << 20) - 1]);
}

#[test]
fn calls_from_several_threads_keep_each_stream_in_order() {
    let rig = Rig::new(&[kernels::step]);
    streams(&rig);
    let data = rig.alloc(0, 3 * 4096);
    rig.gpu.memset(LEGACY, Region::linear(data, 3 * 4096), 0, 4).unwrap();
    std::thread::scope(|scope| {
        for (i, stream) in [A, B, N].into_iter().enumerate() {
            let (rig, at) = (&rig, data + i as u64 * 4096);
            scope.spawn(move || {
                rig.gpu.synchronize_blocking(Target::Stream(LEGACY)).unwrap();
                (0..20).for_each(|_| rig.launch(stream, 0, 4, 256, &[at]));
                let words = rig.words(stream, at, 1024);
                assert!(words.iter().all(|&w| w == (1 << 20) - 1));
            });
        }
    });
}

#[test]
fn a_fence_holds_all_later_work_back() {
    let rig = Rig::new(&[kernels::wait_for]);
    streams(&rig);
    let flags = rig.alloc(0, 4096);
    rig.gpu.memset(N, Region::linear(flags, 4096), 0, 1).unwrap();
    rig.gpu.synchronize_blocking(Target::Stream(N)).unwrap();
    rig.launch(A, 0, 1, 1, &[flags, 1, flags + 64, 5]);
    rig.gpu.fence(A).unwrap();
    rig.gpu.stream_create(0, 0x200, false, 0).unwrap();
    rig.gpu.copy_on_device(0x200, Region::linear(flags + 128, 4), Region::linear(flags + 64, 4)).unwrap();
    rig.gpu.memset(N, Region::linear(flags + 192, 4), 6, 4).unwrap();
    assert!(!rig.gpu.query(Target::Stream(N)).unwrap());
    assert!(!rig.gpu.query(Target::Stream(0x200)).unwrap());
    // SAFETY: device memory of the same process, which the kernel polls.
    unsafe { std::sync::atomic::AtomicU32::from_ptr(flags as *mut u32) }
        .store(1, std::sync::atomic::Ordering::SeqCst);
    rig.sync().unwrap();
    assert_eq!(rig.words(LEGACY, flags + 128, 1), [5]);
    assert_eq!(rig.gpu.fence(0x999).unwrap_err().code, Code::InvalidHandle);
}

#[test]
fn who_hears_of_a_copy_finds_it_over() {
    let rig = Rig::new(&[]);
    let data = rig.alloc(0, 1 << 20);
    for size in [4, 1 << 20] {
        for _ in 0..200 {
            rig.read(LEGACY, data, size);
            assert!(rig.gpu.query(Target::Stream(LEGACY)).unwrap());
        }
    }
}
