//! Spot checks against the figures of the PTX manual; whole products are compared in `tests/opcodes`.

use super::*;

fn shape(n: u32, k: u32, ty: Type, d: Type) -> MatrixShape {
    MatrixShape { m: 64, n, k, a: ty, b: ty, c: d, d, a_row: true, b_row: false, sat: false, and: false }
}

#[test]
fn shapes_are_those_of_the_manual() {
    use Type::*;
    for n in (8..=256).step_by(8) {
        assert!(is_supported(&shape(n, 16, F16, F32)) && is_supported(&shape(n, 32, E4m3, F16)), "{n}");
    }
    let of_bytes: Vec<u32> = (1..=300).filter(|&n| is_supported(&shape(n, 32, S8, S32))).collect();
    assert_eq!(of_bytes[..5], [8, 16, 24, 32, 48]);
    assert_eq!((of_bytes.len(), of_bytes.last()), (18, Some(&256)));
    for wrong in [
        shape(12, 16, F16, F32),
        shape(264, 16, F16, F32),
        shape(0, 16, F16, F32),
        shape(8, 8, F16, F32),
        shape(8, 16, Bf16, F16),
        shape(8, 8, Tf32, F16),
        shape(8, 32, S8, F32),
        MatrixShape { m: 16, ..shape(8, 16, F16, F32) },
        MatrixShape { b: Bf16, ..shape(8, 16, F16, F32) },
        MatrixShape { sat: true, ..shape(8, 16, F16, F32) },
    ] {
        assert!(!is_supported(&wrong), "{wrong:?}");
    }
}

#[test]
fn the_product_lies_where_the_manual_says() {
    // d2 of the lane with group 3 and position 1 of the second warp: row 16 + 3 + 8, column 2.
    assert_eq!(place_of_product(27, 2), (32 + 3 * 4 + 1, 2));
    // d5: the next eight columns.
    assert_eq!(place_of_product(0, 8 + 1), (0, 5));
    assert_eq!(words(&shape(256, 16, Type::F16, Type::F32)), (128, 4));
    assert_eq!(words(&shape(256, 16, Type::F16, Type::F16)), (64, 4));
}

#[test]
fn descriptors_lead_where_the_manual_says() {
    let descriptor = |start: u64, leading: u64, stride: u64, base: u64, swizzle: u64| {
        start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | base << 49 | swizzle << 62
    };
    let plain = Matrix::new(descriptor(1024, 128, 256, 0, 0));
    assert_eq!(plain.along_k(0, 1), 1024 + 128);
    assert_eq!(plain.along_k(9, 0), 1024 + 256 + 16);
    assert_eq!(plain.across_k(1, 9), 1024 + 256 + 128 + 16);
    // Rows of 128 bytes: row 3 of the second eight, the second 16 bytes, which change places with others.
    let wide = Matrix::new(descriptor(2048, 4096, 1024, 0, 1));
    assert_eq!(wide.along_k(11, 1), 2048 + 1024 + 3 * 128 + (1 ^ 3) * 16);
    assert_eq!(wide.across_k(9, 10), 2048 + 4096 + 1024 + 2 * 128 + (1 ^ 2) * 16);
    // Further along k, a matrix begins within the pattern.
    let second = Matrix::new(descriptor(2048 + 32, 0, 1024, 0, 1));
    assert_eq!(second.along_k(1, 0), 2048 + 128 + (2 ^ 1) * 16);
    let (middle, narrow) =
        (Matrix::new(descriptor(0, 0, 512, 0, 2)), Matrix::new(descriptor(0, 0, 256, 0, 3)));
    assert_eq!(middle.along_k(2, 1), 128);
    assert_eq!(narrow.along_k(4, 1), 128);
    // A pattern that begins two rows behind a multiple of eight.
    let shifted = Matrix::new(descriptor(256, 0, 1024, 2, 1));
    assert_eq!(shifted.along_k(0, 1), 256 + 16);
    assert_eq!(shifted.along_k(1, 1), 256 + 128);
}

#[test]
fn whatever_a_descriptor_says_nothing_outside_is_read() {
    const SHARED: usize = 8192;
    const AROUND: usize = 4096;
    // Zeros in the middle; outside are halves that are no numbers, and so would the product be.
    let mut memory = vec![0x7eu8; SHARED + 2 * AROUND];
    memory[AROUND..AROUND + SHARED].fill(0);
    let mut states = vec![[0u32; 24]; crate::abi::GROUP];
    let states: [*mut u8; crate::abi::GROUP] =
        std::array::from_fn(|thread| states[thread].as_mut_ptr().cast());
    let mut random = 0x1234_5678_9abc_def1u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut outcomes = [0u32; 2];
    for _ in 0..3000 {
        let descriptor = |bits: u64| {
            if bits & 3 == 0 {
                bits
            } else {
                bits & (0xc00e_0000_0000_0000 | 0x3f << 32 | 0x3f << 16 | 0x1ff)
            }
        };
        // Whatever the metadata says: the words behind the product are any.
        let sparse = (next() & 3 == 0).then(|| (64, next() as u32 & 1));
        if sparse.is_some() {
            // SAFETY: the states have 24 words each.
            states.iter().for_each(|state| unsafe { state.add(64).cast::<u32>().write(next() as u32) });
        }
        let group = Group {
            shape: shape(16, if sparse.is_some() { 32 } else { 16 }, Type::F16, Type::F32),
            a: None,
            d: 0,
            transpose_a: next() & 1 == 0,
            transpose_b: next() & 1 == 0,
            negate: false,
            sparse,
        };
        let work = GroupWork {
            states: &states,
            shared: (memory[AROUND..].as_ptr(), SHARED as u32),
            descriptors: [descriptor(next()), descriptor(next())],
            adds: false,
        };
        let outcome = (group.function())(&work);
        outcomes[usize::from(outcome.is_err())] += 1;
        if outcome.is_ok() {
            let zero = (0..64).all(|row| (0..16).all(|column| group.get(&work, row, column) == 0));
            assert!(zero, "{:x?}", work.descriptors);
        }
    }
    assert!(outcomes.iter().all(|&count| count > 100), "{outcomes:?}");
}
