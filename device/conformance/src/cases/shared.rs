//! Mirrored memory, of which host and device each have a copy.

use crate::bench::{Bench, LEGACY, pointers};
use crate::{Open, host::PAGE};
use rgpu_device::{Code, MemoryKind, Region};

/// Mirrored memory, with the host's copy full of a word.
fn mirrored(bench: &Bench, pages: u64, word: u32) -> u64 {
    let addr = bench.plan.shared.base;
    bench.host.store(addr, &word.to_le_bytes().repeat((pages * PAGE / 4) as usize));
    bench.device.mem_alloc(0, addr, pages * PAGE, MemoryKind::Mirrored).unwrap();
    addr
}

/// Kernels see the host's bytes, and what they change comes back.
pub fn kernels_and_the_host_see_each_others_bytes(open: Open) {
    let bench = Bench::new(open);
    let info = bench.load();
    let (addr, out) = (mirrored(&bench, 2, 40), bench.alloc(PAGE));
    let params = pointers(out, addr);
    bench.device.launch(bench.launch(&info, "successor", &params)).unwrap();
    assert_eq!(bench.words(out, 1), [41]);
    assert!(bench.host.fetched().contains(&addr));
    // The host changes its copy: it is looked at again.
    bench.host.store(addr, &9u32.to_le_bytes());
    bench.device.invalidate_shared().unwrap();
    bench.device.launch(bench.launch(&info, "successor", &params)).unwrap();
    assert_eq!(bench.words(out, 1), [10]);
    // The device changes its copy: it comes when it is asked for.
    let params = pointers(addr + PAGE + 8, out);
    bench.device.launch(bench.launch(&info, "successor", &params)).unwrap();
    bench.sync().unwrap();
    bench.collect();
    assert_eq!(bench.host.load(addr + PAGE, 12), [40u32, 40, 11].map(u32::to_le_bytes).concat());
    assert_eq!(bench.collect(), [], "it came twice");
    bench.device.mem_free(0, addr, None).unwrap();
    bench.sync().unwrap();
}

/// Copies and fills of mirrored memory change the device's copy, and come back.
pub fn copies_and_fills_come_back(open: Open) {
    let bench = Bench::new(open);
    let addr = mirrored(&bench, 1, 0x0101_0101);
    bench.device.memset(LEGACY, Region::linear(addr + 16, 32), 5, 1).unwrap();
    let kept = bench.alloc(PAGE);
    bench.device.copy_on_device(LEGACY, Region::linear(kept, 64), Region::linear(addr, 64)).unwrap();
    bench.sync().unwrap();
    let expected = [[1; 16].as_slice(), &[5; 32], &[1; 16]].concat();
    assert_eq!(bench.read(kept, 64), expected);
    bench.sync().unwrap();
    bench.collect();
    assert_eq!(bench.host.load(addr, 64), expected);
}

/// Mirrored memory lies in the shared range.
pub fn mirrored_memory_has_its_place(open: Open) {
    let bench = Bench::new(open);
    let alloc = |addr, size| bench.device.mem_alloc(0, addr, size, MemoryKind::Mirrored);
    bench.refused(alloc(bench.base(0), PAGE), Code::InvalidValue);
    bench.refused(alloc(bench.plan.shared.base + 8, PAGE), Code::InvalidValue);
    let addr = mirrored(&bench, 1, 0);
    bench.refused(alloc(addr, PAGE), Code::InvalidValue);
    bench.device.mem_free(0, addr, None).unwrap();
    bench.refused_at_once(bench.device.mem_free(0, addr, None), Code::InvalidValue);
    alloc(addr, PAGE).unwrap();
    bench.sync().unwrap();
}
