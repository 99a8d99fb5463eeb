//! A kernel for vectors of threads as bytes, to be kept for later processes: these need no libLLVM to run it.

use rgpu_wire::{from_bytes, records, to_bytes};

use super::Made;
use crate::abi::{Cell, WIDTHS};
use crate::compile::code::Piece;
use crate::compile::kept::{Name, PieceBytes};

records! {
    Bytes { sizes: [u32; 3], phases: bool, cells: Vec<CellBytes>, piece: PieceBytes, }
    CellBytes { place: [u32; 2], alike: bool, step: i64, }
}

impl Made {
    pub(in crate::compile) fn to_bytes(&self) -> Vec<u8> {
        to_bytes(&Bytes {
            sizes: [self.state_bytes, self.local_bytes, self.lanes as u32],
            phases: self.phases,
            cells: self.cells.iter().map(CellBytes::of).collect(),
            piece: PieceBytes::of(&self.piece),
        })
    }

    /// `None` where the bytes are not what [`Made::to_bytes`] makes.
    pub(in crate::compile) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let Bytes { sizes: [state_bytes, local_bytes, lanes], phases, cells, piece } =
            from_bytes(bytes).ok()?;
        let lanes = WIDTHS.into_iter().find(|width| *width == lanes as usize)?;
        let cells = cells.iter().map(CellBytes::cell).collect();
        let piece: Piece = piece.piece()?;
        Some(Self { state_bytes, local_bytes, lanes, cells, phases, piece, is_movable: true })
    }
}

impl CellBytes {
    fn of(cell: &Cell) -> Self {
        let Cell { offset, bytes, step } = *cell;
        Self { place: [offset, bytes], alike: step.is_some(), step: step.unwrap_or(0) }
    }

    fn cell(&self) -> Cell {
        let Self { place: [offset, bytes], alike, step } = *self;
        Cell { offset, bytes, step: alike.then_some(step) }
    }
}

/// What a kernel's code for groups of so many threads is kept under, if `name` is what the kernel is kept under. LLVM makes use of more of a processor than
/// the first tier does. Which libLLVM made the code is not part of the name: it is found where there is none.
pub(in crate::compile) fn name(name: &Name, lanes: usize) -> Name {
    let mut hasher = blake3::Hasher::new_derive_key("rgpu 2026 kernels for vectors of threads");
    hasher.update(name);
    for word in processor().into_iter().chain([lanes as u32]) {
        hasher.update(&word.to_le_bytes());
    }
    *hasher.finalize().as_bytes()
}

/// What tells processors apart that are able to do different things.
#[cfg(target_arch = "x86_64")]
fn processor() -> Vec<u32> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let most = __cpuid(0).eax;
    let leaf = |number: u32, part: u32| {
        let none = std::arch::x86_64::CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };
        if number <= most { __cpuid_count(number, part) } else { none }
    };
    let (model, more, further) = (leaf(1, 0), leaf(7, 0), leaf(7, 1));
    let extended = __cpuid(0x8000_0001);
    vec![
        model.eax,
        model.ecx,
        model.edx,
        more.ebx,
        more.ecx,
        more.edx,
        further.eax,
        further.edx,
        extended.ecx,
        extended.edx,
    ]
}

/// There is no such code elsewhere.
#[cfg(not(target_arch = "x86_64"))]
fn processor() -> Vec<u32> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::code::{Link, Reference};
    use crate::compile::lines::Lines;
    use crate::compile::relocate::Target;
    use rgpu_image::ptx::ast::FunctionId;

    #[test]
    fn a_kernel_for_vectors_comes_back_from_its_bytes() {
        let reference = Reference { offset: 8, kind: Link::Address, target: Target::Own(-77), addend: 0 };
        let made = Made {
            state_bytes: 64,
            local_bytes: 5,
            lanes: 16,
            cells: vec![
                Cell { offset: 0, bytes: 4, step: Some(-3) },
                Cell { offset: 4, bytes: 8, step: None },
            ],
            phases: true,
            piece: Piece {
                id: FunctionId(3),
                bytes: (0..16).collect(),
                align: 64,
                references: vec![reference],
                lines: Lines(Vec::new()),
            },
            is_movable: true,
        };
        let bytes = made.to_bytes();
        assert_eq!(Made::from_bytes(&bytes).as_ref(), Some(&made));
        assert_eq!(Made::from_bytes(&bytes[..bytes.len() - 1]), None);
        let mut beyond = made;
        beyond.piece.references[0].offset = 9;
        assert_eq!(Made::from_bytes(&beyond.to_bytes()), None, "a reference beyond the code");
    }

    #[test]
    fn the_name_is_another_than_the_kernels_own() {
        assert_ne!(name(&[7; 32], 8), [7; 32]);
        assert_ne!(name(&[7; 32], 8), name(&[8; 32], 8));
        assert_ne!(name(&[7; 32], 8), name(&[7; 32], 16));
        assert_eq!(name(&[7; 32], 8), name(&[7; 32], 8));
    }
}
