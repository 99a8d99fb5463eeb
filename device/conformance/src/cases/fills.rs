//! Fills.

use crate::bench::{Bench, LEGACY};
use crate::{Open, host::PAGE};
use rgpu_device::{Code, Region};

/// Elements of 1, 2 and 4 bytes fill runs, rows and boxes; higher bits of the value mean nothing.
pub fn elements_fill_regions(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(64 << 10);
    let value = 0x1122_3344u32;
    for (element, expected) in [(1, [0x44; 4]), (2, [0x44, 0x33, 0x44, 0x33]), (4, value.to_le_bytes())] {
        let regions = [
            Region::linear(addr + 8, 4096),
            Region { addr, row_pitch: 64, slice_pitch: 0, width: 24, height: 9, depth: 1 },
            Region { addr: addr + 16, row_pitch: 40, slice_pitch: 800, width: 32, height: 7, depth: 5 },
        ];
        for region in regions {
            bench.device.memset(LEGACY, Region::linear(addr, 64 << 10), 0, 1).unwrap();
            bench.device.memset(LEGACY, region, value, element).unwrap();
            let bytes = bench.read_in(LEGACY, region).unwrap();
            assert!(bytes.chunks(4).all(|chunk| chunk == expected), "{element} {region:?}");
            let all = bench.read(addr, 64 << 10);
            let touched = all.iter().filter(|byte| **byte != 0).count() as u64;
            assert_eq!(Some(touched), region.bytes(), "{element} {region:?}");
        }
    }
}

/// Elements have 1, 2 or 4 bytes, and lie at multiples of that.
pub fn misaligned_fills_are_refused(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(PAGE);
    let good = Region { addr, row_pitch: 64, slice_pitch: 512, width: 24, height: 4, depth: 3 };
    let fill = |region, element| bench.device.memset(LEGACY, region, !0, element);
    for element in [0, 3, 5, 8, u32::MAX] {
        bench.refused(fill(good, element), Code::InvalidValue);
    }
    for element in [2u32, 4] {
        let off = u64::from(element) / 2;
        for region in [
            Region { addr: addr + off, ..good },
            Region { width: 24 + off, ..good },
            Region { row_pitch: 64 + off, ..good },
            Region { slice_pitch: 512 + off, ..good },
        ] {
            bench.refused(fill(region, element), Code::InvalidValue);
        }
    }
    assert!(bench.read(addr, PAGE).iter().all(|byte| *byte == 0), "something was filled");
}

/// What cannot be walked, or is no memory, is refused.
pub fn bad_regions_are_refused(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(PAGE);
    let good = Region { addr, row_pitch: 64, slice_pitch: 512, width: 24, height: 4, depth: 3 };
    for (region, expected) in [
        (Region { row_pitch: 16, ..good }, Code::InvalidPitchValue),
        (Region { slice_pitch: 64, ..good }, Code::InvalidValue),
        (Region { slice_pitch: (u64::MAX / 2) & !7, ..good }, Code::InvalidValue),
        (Region { width: !7, ..good }, Code::InvalidValue),
        (Region { slice_pitch: PAGE, ..good }, Code::InvalidValue),
        (Region::linear(addr, PAGE + 4), Code::InvalidValue),
        (Region::linear(addr - 4, 8), Code::InvalidValue),
        (Region::linear(8, 8), Code::InvalidValue),
    ] {
        bench.refused(bench.device.memset(LEGACY, region, 1, 4), expected);
    }
    assert!(bench.read(addr, PAGE).iter().all(|byte| *byte == 0), "something was filled");
}
