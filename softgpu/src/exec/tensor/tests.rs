//! What does not need a kernel: whatever a tensor map says, nothing but the arena and the block's window is touched.

use rgpu_device::Range;
use rgpu_device::tensor_map::{
    Element, Shape, Swizzle, TENSOR_MAP_BYTES, TENSOR_MAP_MAGIC, TENSOR_MAP_MAGIC_AT, TensorMap,
};

use super::{Reach, Space};
use crate::abi::operands::WORDS;
use crate::abi::tensor::{BYTES, COORDINATES, SHARED, TensorOp};
use crate::abi::{TRAP_ADDRESS, TRAP_MISALIGNED, TRAP_TENSOR_MAP};
use crate::exec::arena::WINDOW;

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
            1 => u32::MAX - self.next() as u32 % 4,
            2 => 0,
            _ => self.next() as u32 % 40,
        }
    }
}

/// Memory with a window of shared memory in the middle, and canaries around the arena and around the window.
struct Memory {
    words: Vec<u64>,
    arena: Range,
    window: u64,
}

const CANARY: u64 = 0x5ca1_ab1e_5ca1_ab1e;
/// Words of each of the parts: canaries, global memory, the window, canaries.
const PART: usize = WINDOW as usize / 8;

impl Memory {
    fn new() -> Self {
        let mut words = vec![CANARY; 4 * PART + 32];
        // At a multiple of 256 bytes, as windows and allocations are.
        let start = (words.as_mut_ptr() as u64).next_multiple_of(256);
        let part = WINDOW;
        Self { words, arena: Range { base: start + part, size: 2 * part }, window: start + 2 * part }
    }

    fn reach(&self) -> Reach<'_> {
        Reach { space: Space(self.arena), window: self.window, look: None }
    }

    /// Changes memory of the arena.
    fn put(&mut self, at: u64, bytes: &[u8]) {
        assert!(self.arena.contains(at, bytes.len() as u64));
        // SAFETY: it lies in the vector.
        unsafe { std::ptr::copy(bytes.as_ptr(), at as *mut u8, bytes.len()) };
    }

    fn get(&self, at: u64) -> u8 {
        assert!(self.arena.contains(at, 1));
        // SAFETY: it lies in the vector.
        unsafe { (at as *const u8).read() }
    }

    fn outside_is_untouched(&self) -> bool {
        let start = self.words.as_ptr() as u64;
        let word = |address: u64| ((address - start) / 8) as usize;
        let (before, behind) = (word(self.arena.base), word(self.arena.end()));
        self.words[..before].iter().chain(&self.words[behind..]).all(|&word| word == CANARY)
    }
}

#[test]
fn whatever_a_map_says_nothing_outside_is_touched() {
    let mut memory = Memory::new();
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut outcomes = [0u32; 4];
    for round in 0..60_000 {
        let global = memory.arena.base;
        let handle = global + random.next() % 4 * 64 + if random.next().is_multiple_of(32) { 8 } else { 0 };
        let address = match random.next() % 8 {
            0 => random.next(),
            1 => global - 256,
            2 => memory.arena.end() - random.next() % 16 * 16,
            3 => memory.window - random.next() % 16 * 16,
            _ => global + 1024 + random.next() % 64 * 16,
        };
        let rank = 1 + (random.next() % 5) as usize;
        let element = Element::ALL[random.next() as usize % 13];
        let row = [16, 32, 64, 128, 256, 48][random.next() as usize % 6];
        let swizzle = Swizzle::from_number((random.next() % 6) as u32).unwrap_or_default();
        let im2col = rank >= 3 && random.next().is_multiple_of(3);
        let length = row / element.bytes();
        let mut size = std::array::from_fn(|_| 1 + random.next() as u32 % 6);
        size[0] = length;
        let shape = match im2col {
            false => Shape::Tiled { size },
            true => Shape::Im2col {
                lower: std::array::from_fn(|_| random.next() as i32 % 4),
                upper: std::array::from_fn(|_| random.next() as i32 % 4),
                channels: length,
                pixels: 1 + random.next() as u32 % 40,
            },
        };
        let map = TensorMap {
            address,
            rank,
            sizes: std::array::from_fn(|_| u64::from(random.small()).max(1)),
            strides: std::array::from_fn(|_| match random.next() % 8 {
                0 => random.next() & 0xff_ffff_fff0,
                _ => random.next() % 64 * 16,
            }),
            steps: std::array::from_fn(|_| 1 + (random.next() % 8) as u32),
            element,
            swizzle,
            promotion: 0,
            nan: element.is_float() && random.next() & 1 == 0,
            shape,
        };
        let mut bytes = map.to_bytes();
        // Any bytes at all, or some that are others.
        match random.next() % 8 {
            0 => bytes.iter_mut().for_each(|byte| *byte = random.next() as u8),
            1 => bytes[8..].iter_mut().for_each(|byte| *byte = random.next() as u8),
            2 => bytes[8 + random.next() as usize % 100] = random.next() as u8,
            _ => {}
        }
        memory.put(handle, &bytes);
        let mut words: [u32; WORDS] = std::array::from_fn(|_| random.small());
        words[SHARED] = match random.next() % 8 {
            0 => random.next() as u32,
            1 => WINDOW as u32 - random.next() as u32 % 8 * 128,
            _ => random.next() as u32 % 64 * 128,
        };
        if !random.next().is_multiple_of(4) {
            words[BYTES] = random.next() as u32 % 64 * 16;
        }
        // Of the fitting rank, mostly.
        let (im2col, reduce) = (u64::from(im2col), random.next() % 9);
        let number = match random.next() % 8 {
            0..=2 => (rank as u64) << 8 | im2col << 16,
            3..=5 => 1 | (rank as u64) << 8 | im2col << 16 | reduce << 24,
            6 => (random.next() % 5) | ((random.next() & 0x07_0707) << 8),
            _ => 2 + random.next() % 3,
        };
        let Some(op) = TensorOp::from_number(number) else { continue };
        let to = if random.next() & 1 == 0 { handle } else { address };
        let target = if matches!(op, TensorOp::Load { .. } | TensorOp::Store { .. }) { handle } else { to };
        let outcome = memory.reach().operate(target, op, &mut words);
        outcomes[match outcome {
            Ok(()) => 0,
            Err(TRAP_ADDRESS) => 1,
            Err(TRAP_MISALIGNED) => 2,
            Err(TRAP_TENSOR_MAP) => 3,
            Err(other) => panic!("{other:#x}"),
        }] += 1;
        if round % 1000 == 0 {
            assert!(memory.outside_is_untouched(), "something outside was written by round {round}: {op:?}");
        }
    }
    assert!(memory.outside_is_untouched(), "something outside was written");
    assert!(outcomes.iter().all(|&count| count > 300), "{outcomes:?}");
}

fn plane() -> TensorMap {
    TensorMap {
        address: 0,
        rank: 2,
        sizes: [20, 5, 1, 1, 1],
        strides: [48, 0, 0, 0],
        steps: [1; 5],
        element: Element::U16,
        swizzle: Swizzle::B32,
        promotion: 0,
        nan: false,
        shape: Shape::Tiled { size: [16, 4, 1, 1, 1] },
    }
}

#[test]
fn a_tile_lies_where_it_should_with_zeros_around_it() {
    let mut memory = Memory::new();
    let (tensor, handle) = (memory.arena.base + 4096, memory.arena.base);
    for at in 0..5 * 48u64 {
        memory.put(tensor + at, &[at as u8 | 1]);
    }
    memory.put(handle, &TensorMap { address: tensor, ..plane() }.to_bytes());
    let mut words = [0u32; WORDS];
    words[SHARED] = 128;
    (words[COORDINATES], words[COORDINATES + 1]) = (8, -1i32 as u32);
    let load = TensorOp::Load { rank: 2, im2col: false, multicast: false };
    memory.reach().operate(handle, load, &mut words).unwrap();
    assert_eq!(words[BYTES], 4 * 32);
    for row in 0..4u64 {
        for x in 0..16u64 {
            let at = row * 32 + x * 2;
            let place = Swizzle::B32.place(128 + at as u32);
            let inside = row >= 1 && x + 8 < 20;
            let expected = if inside { ((row - 1) * 48 + (x + 8) * 2) as u8 | 1 } else { 0 };
            assert_eq!(memory.get(memory.window + u64::from(place)), expected, "row {row}, {x}");
        }
    }
    for (wrong, trap) in [
        (TensorOp::Load { rank: 3, im2col: false, multicast: false }, TRAP_TENSOR_MAP),
        (TensorOp::Load { rank: 2, im2col: true, multicast: false }, TRAP_TENSOR_MAP),
    ] {
        assert_eq!(memory.reach().operate(handle, wrong, &mut words), Err(trap));
    }
    words[SHARED] = 64;
    assert_eq!(memory.reach().operate(handle, load, &mut words), Err(TRAP_MISALIGNED));
    words[SHARED] = WINDOW as u32;
    assert_eq!(memory.reach().operate(handle, load, &mut words), Err(TRAP_ADDRESS));
    words[SHARED] = 128;
    assert_eq!(memory.reach().operate(handle + 8, load, &mut words), Err(TRAP_MISALIGNED));
    let mut bytes = [0; TENSOR_MAP_BYTES];
    bytes[TENSOR_MAP_MAGIC_AT..][..8].copy_from_slice(&TENSOR_MAP_MAGIC.to_le_bytes());
    memory.put(handle, &bytes);
    assert_eq!(memory.reach().operate(handle, load, &mut words), Err(TRAP_TENSOR_MAP));
}
