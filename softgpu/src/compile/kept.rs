//! Compiled kernels as bytes, to be kept for later processes.
//!
//! A kernel's bytes are found again by a [`Name`]: a hash of all that its machine code depends on. So there is nothing to be
//! brought up to date: what was changed has another name.

use std::sync::{Arc, OnceLock};

use rgpu_device::{Error, Host};
use rgpu_image::ptx::ast::{FunctionId, Type};
use rgpu_wire::{from_bytes, records, to_bytes};

use super::code::{Link, Piece, Reference};
use super::helpers::group::Group;
use super::helpers::matrix::{Offsets, Operation};
use super::lines::Lines;
use super::op::MatrixShape;
use super::relocate::Target;
use super::{Environment, Unit, code};
use crate::abi::counted::Sites;
use crate::abi::{Cut, CutKind, Hold, ReduceOp, ShuffleMode, VoteMode};

/// What a kernel's bytes are kept under.
pub(super) type Name = [u8; 32];

/// A kernel's machine code, not in its place yet, and what is known about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Compiled {
    pub state_bytes: u32,
    pub local_bytes: u32,
    pub static_shared: u32,
    pub reserved_shared: bool,
    pub cuts: Vec<Cut>,
    pub matrix_ops: Vec<Operation>,
    pub group_ops: Vec<Group>,
    /// The kernel, then the functions that it calls.
    pub pieces: Vec<Piece>,
    /// What the table of functions holds: number, function and signature.
    pub entries: Vec<(u32, FunctionId, u32)>,
    /// What is counted, in kernels that are compiled for that; these are not kept.
    pub sites: Option<Sites>,
}

/// Where a module's kernels are kept.
pub(super) struct Shelf {
    host: Arc<dyn Host>,
    module: [u8; 32],
}

impl Shelf {
    /// For the module with this identity: what is equal there is the same PTX.
    pub(super) fn new(host: Arc<dyn Host>, module: [u8; 32]) -> Self {
        Self { host, module }
    }

    /// What the kernel with this index is kept under in these surroundings. `None` where it cannot be said what this library is.
    pub(super) fn name(
        &self,
        unit: &Unit,
        environment: &Environment,
        index: u32,
    ) -> Result<Option<Name>, Error> {
        let Some(library) = library() else { return Ok(None) };
        let mut hasher = blake3::Hasher::new_derive_key("rgpu 2026 compiled kernels");
        hasher.update(library).update(&self.module);
        let words = |hasher: &mut blake3::Hasher, words: &[u64]| {
            for word in words {
                hasher.update(&word.to_le_bytes());
            }
        };
        let processor = code::description()?;
        words(&mut hasher, &[processor.len() as u64]);
        hasher.update(processor.as_bytes());
        let arena = environment.arena;
        words(&mut hasher, &[index.into(), arena.base, arena.size, unit.first_number().unwrap_or(0)]);
        // Kernels that are looked at while they run are others.
        words(&mut hasher, &[environment.checks.bits()]);
        for global in &unit.globals {
            words(&mut hasher, &[environment.globals.get(&global.name).copied().unwrap_or(0)]);
        }
        Ok(Some(*hasher.finalize().as_bytes()))
    }

    /// What is kept under a name, if that is there and whole.
    pub(super) fn find<T>(&self, name: &Name, from_bytes: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        from_bytes(&self.host.kept_code(name)?)
    }

    /// Keeps a kernel's bytes.
    pub(super) fn keep(&self, name: &Name, bytes: &[u8]) {
        self.host.keep_code(name, bytes);
    }
}

/// What tells this library from every other build of it: the build id that its linker gave it, or else a hash of its machine code.
fn library() -> Option<&'static [u8]> {
    static LIBRARY: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    LIBRARY.get_or_init(|| super::identity::of_object_at(super::relocate::anchor())).as_deref()
}

records! {
    Bytes {
        sizes: [u32; 3],
        reserved_shared: bool,
        cuts: Vec<CutBytes>,
        matrix_ops: Vec<MatrixBytes>,
        group_ops: Vec<MatrixBytes>,
        pieces: Vec<PieceBytes>,
        entries: Vec<[u32; 3]>,
    }
    CutBytes { kind: u8, detail: u32, legacy: bool, line: u32, }
    MatrixBytes { kind: u8, shape: [u32; 3], types: [u8; 4], flags: u8, numbers: [u32; 5], }
    PieceBytes { id: u32, align: u32, bytes: Vec<u8>, references: Vec<ReferenceBytes>, lines: Vec<[u32; 2]>, }
    ReferenceBytes { offset: u32, kind: u8, target: u8, value: i64, addend: i64, }
}

impl Compiled {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        to_bytes(&Bytes {
            sizes: [self.state_bytes, self.local_bytes, self.static_shared],
            reserved_shared: self.reserved_shared,
            cuts: self.cuts.iter().map(CutBytes::of).collect(),
            matrix_ops: self.matrix_ops.iter().map(MatrixBytes::of).collect(),
            group_ops: self.group_ops.iter().map(MatrixBytes::of_group).collect(),
            pieces: self.pieces.iter().map(PieceBytes::of).collect(),
            entries: self.entries.iter().map(|&(number, id, shape)| [number, id.0, shape]).collect(),
        })
    }

    /// `None` where the bytes are not what [`Compiled::to_bytes`] makes.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: Bytes = from_bytes(bytes).ok()?;
        let [state_bytes, local_bytes, static_shared] = bytes.sizes;
        Some(Self {
            state_bytes,
            local_bytes,
            static_shared,
            reserved_shared: bytes.reserved_shared,
            cuts: bytes.cuts.iter().map(CutBytes::cut).collect::<Option<_>>()?,
            matrix_ops: bytes.matrix_ops.iter().map(MatrixBytes::operation).collect::<Option<_>>()?,
            group_ops: bytes.group_ops.iter().map(MatrixBytes::group).collect::<Option<_>>()?,
            pieces: bytes.pieces.into_iter().map(PieceBytes::piece).collect::<Option<_>>()?,
            entries: bytes
                .entries
                .iter()
                .map(|&[number, id, shape]| (number, FunctionId(id), shape))
                .collect(),
            sites: None,
        })
    }
}

const SHUFFLES: [ShuffleMode; 4] =
    [ShuffleMode::Up, ShuffleMode::Down, ShuffleMode::Butterfly, ShuffleMode::Index];
const VOTES: [VoteMode; 4] = [VoteMode::All, VoteMode::Any, VoteMode::Uniform, VoteMode::Ballot];
const HOLDS: [Hold; 2] = [Hold::ToTheEnd, Hold::ForATurn];
const REDUCES: [ReduceOp; 11] = {
    use ReduceOp::*;
    [Add, MinS32, MaxS32, MinU32, MaxU32, And, Or, Xor, Popc, PredicateAnd, PredicateOr]
};

fn position<T: PartialEq>(all: &[T], one: T) -> u32 {
    all.iter().position(|other| *other == one).map_or(u32::MAX, |at| at as u32)
}

impl CutBytes {
    fn of(cut: &Cut) -> Self {
        let (kind, detail) = match cut.kind {
            CutKind::Barrier => (0, 0),
            CutKind::BarrierArrive => (1, 0),
            CutKind::BarrierReduce(op) => (2, position(&REDUCES, op)),
            CutKind::Shuffle(mode) => (3, position(&SHUFFLES, mode)),
            CutKind::Vote(mode) => (4, position(&VOTES, mode)),
            CutKind::MatchAny => (5, 0),
            CutKind::MatchAll => (6, 0),
            CutKind::Redux(op) => (7, position(&REDUCES, op)),
            CutKind::WarpSync => (8, 0),
            CutKind::ActiveMask => (9, 0),
            CutKind::Elect => (10, 0),
            CutKind::Yield => (11, 0),
            CutKind::Matrix(index) => (12, index.into()),
            CutKind::ClusterArrive => (13, 0),
            CutKind::ClusterWait => (14, 0),
            CutKind::Group(index) => (15, index.into()),
            CutKind::GridYield(hold) => (16, position(&HOLDS, hold)),
        };
        Self { kind, detail, legacy: cut.legacy, line: cut.line }
    }

    fn cut(&self) -> Option<Cut> {
        let detail = self.detail as usize;
        let kind = match self.kind {
            0 => CutKind::Barrier,
            1 => CutKind::BarrierArrive,
            2 => CutKind::BarrierReduce(*REDUCES.get(detail)?),
            3 => CutKind::Shuffle(*SHUFFLES.get(detail)?),
            4 => CutKind::Vote(*VOTES.get(detail)?),
            5 => CutKind::MatchAny,
            6 => CutKind::MatchAll,
            7 => CutKind::Redux(*REDUCES.get(detail)?),
            8 => CutKind::WarpSync,
            9 => CutKind::ActiveMask,
            10 => CutKind::Elect,
            11 => CutKind::Yield,
            12 => CutKind::Matrix(u16::try_from(self.detail).ok()?),
            13 => CutKind::ClusterArrive,
            14 => CutKind::ClusterWait,
            15 => CutKind::Group(u16::try_from(self.detail).ok()?),
            16 => CutKind::GridYield(*HOLDS.get(detail)?),
            _ => return None,
        };
        Some(Cut { kind, legacy: self.legacy, line: self.line })
    }
}

/// The first of the flags of an operation on matrices that is a selector's.
const SELECTOR: u32 = 5;

impl MatrixBytes {
    fn of(operation: &Operation) -> Self {
        let number = |number: usize| number as u32;
        match *operation {
            Operation::Multiply { shape: s, wmma, at: Offsets { a, b, c, d } } => Self {
                kind: 0,
                shape: [s.m, s.n, s.k],
                types: [s.a, s.b, s.c, s.d].map(|ty| position(Type::ALL, ty) as u8),
                flags: [s.a_row, s.b_row, s.sat, wmma, s.and]
                    .iter()
                    .rev()
                    .fold(0, |all, &bit| all << 1 | u8::from(bit)),
                numbers: [a, b, c, d, 0].map(number),
            },
            Operation::MultiplySparse { shape, selector, at, metadata } => {
                let dense = Self::of(&Operation::Multiply { shape, wmma: false, at });
                let [a, b, c, d, _] = dense.numbers;
                let flags = dense.flags | (selector as u8) << SELECTOR;
                Self { kind: 4, flags, numbers: [a, b, c, d, number(metadata)], ..dense }
            }
            Operation::Distribute { count, transpose, rows, out } => Self {
                kind: 1,
                flags: transpose.into(),
                numbers: [count, rows, out, 0, 0].map(number),
                ..Self::default()
            },
            Operation::Transpose { at, out } => {
                Self { kind: 2, numbers: [at, out, 0, 0, 0].map(number), ..Self::default() }
            }
            Operation::Collect { count, transpose, words, rows } => Self {
                kind: 3,
                flags: transpose.into(),
                numbers: [count, words, rows, 0, 0].map(number),
                ..Self::default()
            },
        }
    }

    fn operation(&self) -> Option<Operation> {
        let [m, n, k] = self.shape;
        let flag = |bit: u8| self.flags >> bit & 1 == 1;
        let ty = |index: usize| Type::ALL.get(usize::from(self.types[index])).copied();
        let numbers = self.numbers.map(|number| number as usize);
        Some(match (self.kind, numbers) {
            (kind @ (0 | 4), [a, b, c, d, metadata]) => {
                let shape = MatrixShape {
                    m,
                    n,
                    k,
                    a: ty(0)?,
                    b: ty(1)?,
                    c: ty(2)?,
                    d: ty(3)?,
                    a_row: flag(0),
                    b_row: flag(1),
                    sat: flag(2),
                    and: flag(4),
                };
                let at = Offsets { a, b, c, d };
                let selector = u32::from(self.flags >> SELECTOR);
                match kind {
                    0 => Operation::Multiply { shape, wmma: flag(3), at },
                    _ => Operation::MultiplySparse { shape, selector, at, metadata },
                }
            }
            (1, [count, rows, out, ..]) => Operation::Distribute { count, transpose: flag(0), rows, out },
            (2, [at, out, ..]) => Operation::Transpose { at, out },
            (3, [count, words, rows, ..]) => Operation::Collect { count, transpose: flag(0), words, rows },
            _ => return None,
        })
    }

    fn of_group(group: &Group) -> Self {
        let MatrixShape { m, n, k, a, b, c, d, sat, .. } = group.shape;
        let flags = [sat, group.a.is_some(), group.transpose_a, group.transpose_b, group.negate];
        let (metadata, selector) = group.sparse.unwrap_or_default();
        let sparse = u32::from(group.sparse.is_some());
        Self {
            kind: 0,
            shape: [m, n, k],
            types: [a, b, c, d].map(|ty| position(Type::ALL, ty) as u8),
            flags: flags.iter().rev().fold(0, |all, &bit| all << 1 | u8::from(bit)),
            numbers: [group.a.unwrap_or(0) as u32, group.d as u32, sparse, metadata as u32, selector],
        }
    }

    fn group(&self) -> Option<Group> {
        let [m, n, k] = self.shape;
        let flag = |bit: u8| self.flags >> bit & 1 == 1;
        let ty = |index: usize| Type::ALL.get(usize::from(self.types[index])).copied();
        let (a, b, c, d) = (ty(0)?, ty(1)?, ty(2)?, ty(3)?);
        let shape = MatrixShape { m, n, k, a, b, c, d, a_row: true, b_row: false, sat: flag(0), and: false };
        use super::helpers::group;
        let [.., sparse, metadata, selector] = self.numbers;
        let exists = match sparse {
            0 => group::is_supported(&shape),
            _ => group::is_supported_sparse(&shape) && group::has_metadata(&shape, selector),
        };
        exists.then_some(Group {
            shape,
            a: flag(1).then_some(self.numbers[0] as usize),
            d: self.numbers[1] as usize,
            transpose_a: flag(2),
            transpose_b: flag(3),
            negate: flag(4),
            sparse: (sparse != 0).then_some((metadata as usize, selector)),
        })
    }
}

impl PieceBytes {
    pub(super) fn of(piece: &Piece) -> Self {
        let Piece { id, bytes, align, references, lines } = piece;
        let references = references.iter().map(ReferenceBytes::of).collect();
        Self { id: id.0, align: *align, bytes: bytes.clone(), references, lines: lines.0.clone() }
    }

    pub(super) fn piece(self) -> Option<Piece> {
        let references = self.references.iter().map(ReferenceBytes::reference).collect::<Option<Vec<_>>>()?;
        let length = self.bytes.len();
        let fits =
            |r: &Reference| (r.offset as usize).checked_add(r.kind.bytes()).is_some_and(|end| end <= length);
        let valid = self.align.is_power_of_two() && self.align <= 4096 && references.iter().all(fits);
        let (id, lines) = (FunctionId(self.id), Lines(self.lines));
        valid.then_some(Piece { id, bytes: self.bytes, align: self.align, references, lines })
    }
}

impl ReferenceBytes {
    fn of(reference: &Reference) -> Self {
        let (target, value) = match reference.target {
            Target::Function(id) => (0, i64::from(id.0)),
            Target::Own(distance) => (1, distance),
            Target::Table(offset) => (2, offset as i64),
            Target::Here(offset) => (3, i64::from(offset)),
        };
        let kind = match reference.kind {
            Link::Address => 0,
            Link::Distance => 1,
            Link::Call => 2,
            Link::Page => 3,
            Link::InPage => 4,
        };
        Self { offset: reference.offset, kind, target, value, addend: reference.addend }
    }

    fn reference(&self) -> Option<Reference> {
        let number = || u32::try_from(self.value).ok();
        let target = match self.target {
            0 => Target::Function(FunctionId(number()?)),
            1 => Target::Own(self.value),
            2 => Target::Table(number()?.into()),
            3 => Target::Here(number()?),
            _ => return None,
        };
        let kind = match self.kind {
            0 => Link::Address,
            1 => Link::Distance,
            2 => Link::Call,
            3 => Link::Page,
            4 => Link::InPage,
            _ => return None,
        };
        Some(Reference { offset: self.offset, kind, target, addend: self.addend })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Compiled {
        let kinds = [CutKind::Barrier, CutKind::BarrierArrive, CutKind::MatchAny, CutKind::MatchAll]
            .into_iter()
            .chain([
                CutKind::WarpSync,
                CutKind::ActiveMask,
                CutKind::Elect,
                CutKind::Yield,
                CutKind::Matrix(700),
                CutKind::Group(7),
            ])
            .chain(SHUFFLES.map(CutKind::Shuffle))
            .chain(VOTES.map(CutKind::Vote))
            .chain(HOLDS.map(CutKind::GridYield))
            .chain(REDUCES.map(CutKind::Redux))
            .chain(REDUCES.map(CutKind::BarrierReduce));
        let shape = MatrixShape {
            m: 16,
            n: 8,
            k: 32,
            a: Type::F16,
            b: Type::Bf16,
            c: Type::F32,
            d: Type::S32,
            a_row: true,
            b_row: false,
            sat: true,
            and: false,
        };
        let at = Offsets { a: 16, b: 32, c: 64, d: 128 };
        let reference = |kind, target| Reference { offset: 2, kind, target, addend: -4 };
        Compiled {
            state_bytes: 1,
            local_bytes: 2,
            static_shared: 3,
            reserved_shared: true,
            cuts: kinds.zip(7..).map(|(kind, line)| Cut { kind, legacy: line % 2 == 0, line }).collect(),
            matrix_ops: vec![
                Operation::Multiply { shape, wmma: true, at },
                Operation::Multiply {
                    shape: MatrixShape { b_row: true, sat: false, and: true, ..shape },
                    wmma: false,
                    at,
                },
                Operation::MultiplySparse { shape, selector: 3, at, metadata: 144 },
                Operation::Distribute { count: 4, transpose: true, rows: 16, out: 32 },
                Operation::Transpose { at: 48, out: 64 },
                Operation::Collect { count: 2, transpose: true, words: 16, rows: 32 },
            ],
            group_ops: vec![Group {
                shape: MatrixShape {
                    m: 64,
                    n: 24,
                    k: 64,
                    a: Type::S8,
                    b: Type::U8,
                    c: Type::S32,
                    d: Type::S32,
                    a_row: true,
                    b_row: false,
                    sat: true,
                    and: false,
                },
                a: Some(16),
                d: 64,
                transpose_a: false,
                transpose_b: true,
                negate: false,
                sparse: Some((80, 0)),
            }],
            pieces: vec![Piece {
                id: FunctionId(9),
                bytes: (0..10).collect(),
                align: 16,
                lines: Lines(vec![[0, 0], [4, 7]]),
                references: vec![
                    reference(Link::Distance, Target::Function(FunctionId(5))),
                    reference(Link::Address, Target::Own(-123_456_789_012)),
                    reference(Link::Address, Target::Table(48)),
                    reference(Link::Distance, Target::Here(7)),
                    reference(Link::Call, Target::Function(FunctionId(5))),
                    reference(Link::Page, Target::Here(7)),
                    reference(Link::InPage, Target::Here(7)),
                ],
            }],
            entries: vec![(0, FunctionId(5), 2), (3, FunctionId(6), u32::MAX)],
            sites: None,
        }
    }

    #[test]
    fn a_kernel_comes_back_from_its_bytes() {
        let example = example();
        let bytes = example.to_bytes();
        assert_eq!(Compiled::from_bytes(&bytes).as_ref(), Some(&example));
        assert_eq!(Compiled::from_bytes(&bytes[..bytes.len() - 1]), None);
        let mut beyond = example;
        beyond.pieces[0].references[1].offset = 3;
        assert_eq!(Compiled::from_bytes(&beyond.to_bytes()), None, "a reference beyond the code");
    }

    #[test]
    fn this_library_is_known() {
        assert!(library().is_some_and(|id| id.len() >= 8));
    }
}
