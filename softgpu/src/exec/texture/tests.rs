//! What does not need a kernel: whatever a header says, nothing but the arena is touched; conversions of texels.

use rgpu_device::Range;
use rgpu_device::texture::TEXTURE_MAGIC;

use super::format::{from_half, to_half};
use super::{Latest, Space, Trap, Words};
use crate::abi::operands::WORDS;
use crate::abi::texture::TextureOp;
use crate::abi::{TRAP_ADDRESS, TRAP_MISALIGNED};

/// Carries an operation out.
fn operate(space: Space, latest: &Latest, handle: u64, op: TextureOp, words: &mut Words) -> Result<(), Trap> {
    super::operate(space, super::header(space, latest, handle, op)?, op, words)
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Mostly something that could be meant.
    fn small(&mut self) -> u32 {
        match self.next() % 8 {
            0 => self.next() as u32,
            1 => u32::MAX,
            2 => 0,
            _ => self.next() as u32 % 70,
        }
    }
}

#[test]
fn whatever_a_header_says_nothing_outside_is_touched() {
    const WORDS_OF_SPACE: usize = 1 << 12;
    const CANARY: u64 = 0x5ca1_ab1e_5ca1_ab1e;
    let mut memory = vec![CANARY; 3 * WORDS_OF_SPACE];
    let start = memory.as_mut_ptr() as u64;
    let arena = Range { base: start + 8 * WORDS_OF_SPACE as u64, size: 8 * WORDS_OF_SPACE as u64 };
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut outcomes = [0u32; 3];
    let latest = Latest::default();
    for _ in 0..200_000 {
        let handle = arena.base + random.next() % 64 * 8;
        let base = match random.next() % 8 {
            0 => random.next(),
            1 => start,
            2 => arena.end() - random.next() % 64,
            _ => arena.base + 1024 + random.next() % 64 * 8,
        };
        let mut header = [0u64; 16];
        header[0] = TEXTURE_MAGIC;
        header[1] = base;
        for pitch in &mut header[2..4] {
            *pitch = if random.next().is_multiple_of(8) { random.next() } else { random.next() % 512 };
        }
        for pair in &mut header[4..6] {
            *pair = u64::from(random.small()) | u64::from(random.small()) << 32;
        }
        let bits = [8, 16, 32, 7][random.next() as usize % 4];
        let channels = [1, 2, 4, 4][random.next() as usize % 4];
        header[6] = (random.next() % 9) | ((random.next() % 3) << 8) | (bits << 16) | (channels << 24);
        header[6] |= ((random.next() % 64) << 32) | ((random.next() & 0x03_0303) << 40);
        for rest in &mut header[7..11] {
            *rest = if random.next() & 1 == 0 { random.next() } else { 0x4000_0000_3f80_0000 };
        }
        let number = (random.next() % 8) | ((random.next() & 0x0307_0307) << 8);
        let Some(op) = TextureOp::from_number(number) else { continue };
        // SAFETY: the header lies in the vector, which nobody else uses.
        unsafe { std::ptr::copy(header.as_ptr(), handle as *mut u64, header.len()) };
        let mut words: [u32; WORDS] = std::array::from_fn(|_| match random.next() % 3 {
            0 => random.small(),
            1 => ((random.next() % 400) as f32 / 4.0 - 20.0).to_bits(),
            _ => random.next() as u32,
        });
        let outcome = operate(Space(arena), &latest, handle, op, &mut words);
        outcomes[match outcome {
            Ok(()) => 0,
            Err(TRAP_ADDRESS) => 1,
            Err(TRAP_MISALIGNED) => 2,
            Err(other) => panic!("{other:#x}"),
        }] += 1;
    }
    // What a surface stored would show here.
    let outside = memory[..WORDS_OF_SPACE].iter().chain(&memory[2 * WORDS_OF_SPACE..]);
    assert!(outside.into_iter().all(|&word| word == CANARY), "something outside was written");
    assert!(outcomes.iter().all(|&count| count > 300), "{outcomes:?}");
}

#[test]
fn handles_of_nothing_are_recognised() {
    let memory = [0u64; 64];
    let arena = Range { base: memory.as_ptr() as u64, size: 512 };
    let mut words = [7; WORDS];
    let is = TextureOp::Is { surface: false };
    let latest = Latest::default();
    for handle in [0, arena.base, arena.end() - 64, u64::MAX] {
        assert_eq!(operate(Space(arena), &latest, handle, is, &mut words), Ok(()));
        assert_eq!(words[0], 0);
        let query = TextureOp::from_number(2).unwrap();
        assert_eq!(operate(Space(arena), &latest, handle, query, &mut words), Err(TRAP_ADDRESS));
    }
}

#[test]
fn halves_are_singles_and_back() {
    for half in 0..=u16::MAX {
        let single = from_half(half);
        if half & 0x7fff > 0x7c00 {
            assert!(single.is_nan());
        } else {
            assert_eq!(to_half(single), half, "{single}");
        }
    }
    for (single, half) in [
        (65519.996, 0x7bff),
        (65520.0, 0x7c00),
        (-1e9, 0xfc00),
        (1.0 + 1.0 / 2048.0, 0x3c00),
        (1.0 + 3.0 / 2048.0, 0x3c02),
        (2.980_232_2e-8, 0),
        (2.980_233e-8, 1),
        (1e-30, 0),
    ] {
        assert_eq!(to_half(single), half, "{single}");
    }
    assert_eq!(to_half(f32::NAN), 0x7fff);
}
