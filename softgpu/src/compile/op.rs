//! The table of operations: what instructions come down to, decoded once for each distinct opcode with modifiers.
//!
//! A row of [`operations`] names an operation, what it has to know, its [`Traits`], and the function of the emitter
//! that makes machine code of it.

use super::opcode::{Combine, Compare, IntRounding, Rounding};
use crate::abi::tensor::TensorOp;
use crate::abi::texture::TextureOp;
use crate::abi::{Hold, ReduceOp, ShuffleMode, VoteMode};
use rgpu_device::tensor_map::Field;
use rgpu_image::ptx::ast::Type;

/// Integer operations with two sources and a result of the same type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum IntOp {
    Add,
    Sub,
    MulLo,
    MulHi,
    Mul24Lo,
    Mul24Hi,
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    /// Saturating, on `.s32`.
    AddSat,
    SubSat,
}

/// Integer operations with one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IntUnary {
    Neg,
    Abs,
    Not,
    Cnot,
    Popc,
    Clz,
    Brev,
    /// The bit's position, or with `.shiftamt` the distance from the top.
    Bfind {
        shift: bool,
    },
}

/// Integer operations with three sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IntTernary {
    MadLo,
    MadHi,
    /// `.hi.sat.s32`
    MadHiSat,
    Mad24Lo,
    Mad24Hi,
    /// `.hi.sat.s32`
    Mad24HiSat,
    Sad,
    Bfe,
    Fns,
}

/// Floating-point operations with two sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FloatOp {
    Add,
    Sub,
    Mul,
    Div,
}

/// Rounding and clamping of a floating-point result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mode {
    pub rounding: Rounding,
    pub ftz: bool,
    pub sat: bool,
}

/// Floating-point operations with one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FloatUnary {
    Rcp,
    Sqrt,
    Rsqrt,
    Sin,
    Cos,
    Lg2,
    Ex2,
    Tanh,
}

/// Kinds of numbers that `testp` recognises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TestKind {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
}

/// How `prmt` chooses bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrmtMode {
    Index,
    F4e,
    B4e,
    Rc8,
    Ecl,
    Ecr,
    Rc16,
}

/// Where a memory operation goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryTarget {
    /// Generic and global addresses: all are addresses in the arena.
    Generic,
    /// Const addresses: likewise, and nothing changes what is there while a kernel runs.
    Constant,
    /// Local addresses: the same, but where a register of 32 bits holds one.
    Local,
    Shared,
    Param,
}

/// How a memory operation is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Nobody else is looking.
    Weak,
    /// Others may be looking, but in no order: all components at once.
    Together,
    /// Others may be looking: performed exactly once, where it stands.
    Strong,
}

/// An operation of the video family on scalars: `vadd` …
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VideoOp {
    Add,
    Sub,
    AbsDiff,
    Min,
    Max,
    Avrg,
    Set(Compare),
    /// Whether the amount is taken modulo 32 (`.wrap`) instead of clamped.
    Shl {
        wrap: bool,
    },
    Shr {
        wrap: bool,
    },
}

/// What a video instruction does with its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Secondary {
    None,
    Add,
    Min,
    Max,
}

/// A `cvt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Convert {
    pub dst: Type,
    pub src: Type,
    pub rounding: Option<Rounding>,
    pub int_rounding: Option<IntRounding>,
    pub ftz: bool,
    pub sat: bool,
    pub relu: bool,
    /// Whether what is too large becomes the largest finite value (`.satfinite`).
    pub satfinite: bool,
}

/// A floating-point format of 8 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EighthFormat {
    /// Three bits of mantissa, no infinity, one NaN.
    E4m3,
    /// Two bits of mantissa; the upper half of an `f16`.
    E5m2,
}

/// Shape and types of a matrix instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MatrixShape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub a: Type,
    pub b: Type,
    pub c: Type,
    pub d: Type,
    pub a_row: bool,
    pub b_row: bool,
    pub sat: bool,
    /// For single bits: what is counted are the bits that both have, and not those that one has.
    pub and: bool,
}

/// Which fragment `wmma.load` and `wmma.store` move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fragment {
    A,
    B,
    C,
    D,
}

/// What `mbarrier` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MbarrierOp {
    Init,
    Invalidate,
    /// Arrives; with `expects`, after as many more bytes are expected as the last operand says.
    Arrive {
        drop: bool,
        result: bool,
        expects: bool,
    },
    /// So many more bytes are expected before the phase ends.
    Expect,
    /// So many of them are there.
    Complete,
    Test {
        parity: bool,
    },
    Pending,
}

/// The windows that `isspacep` asks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpaceTest {
    Const,
    Global,
    Local,
    /// The block's own shared memory.
    Shared,
    /// That of all blocks of the cluster.
    Cluster,
    Param,
}

/// How control goes on behind an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    /// With the next instruction.
    Next,
    /// Likewise, once others have come, or have had their turn: the thread stops here. See [`crate::abi`].
    Cut,
    /// At a label among the operands.
    Branch,
    /// Nowhere: the function or the thread ends.
    End,
}

/// Whether operands are used as floating-point numbers, which decides how untyped registers are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Floats {
    /// None is.
    Never,
    /// It does not matter.
    Whatever,
    /// All are of this type.
    All(Type),
    /// All but the first are of this type.
    Sources(Type),
    /// The first is of one type, the others are of another.
    Each(Type, Type),
    /// The one with this number is moved as a value of this type, and stays what it is unless that is a float.
    Moved(usize, Type),
}

/// What everybody but the emitter has to know about an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Traits {
    /// How control goes on.
    pub control: Control,
    /// Whether it only computes, and cheaply: where its guard does not hold it is executed in vain, instead of being
    /// branched around.
    pub pure: bool,
    /// Whether the first operand is written.
    pub has_result: bool,
    /// Whether it is read, too, before it is written.
    pub reads_result: bool,
    /// Whether it reads and writes the carry flag.
    pub carry: (bool, bool),
    /// Whether a loop around it may be waiting for another thread. Atomics count only where their result is used; the
    /// caller knows.
    pub observes_others: bool,
    /// Which operands are floating-point numbers.
    pub floats: Floats,
}

impl Traits {
    /// Has an effect and no result.
    const fn effect() -> Self {
        let (control, floats) = (Control::Next, Floats::Never);
        Self {
            control,
            pure: false,
            has_result: false,
            reads_result: false,
            carry: (false, false),
            observes_others: false,
            floats,
        }
    }

    /// Has a result.
    const fn value() -> Self {
        Self { has_result: true, ..Self::effect() }
    }

    /// Has a result and does nothing else.
    const fn pure() -> Self {
        Self { pure: true, ..Self::value() }
    }

    /// Threads stop there, and get a result.
    const fn cut() -> Self {
        Self { control: Control::Cut, ..Self::value() }
    }

    /// Control does not simply go on.
    const fn control(control: Control) -> Self {
        Self { control, ..Self::effect() }
    }

    const fn unless(self, impure: bool) -> Self {
        Self { pure: self.pure && !impure, ..self }
    }

    const fn with_result(self, has_result: bool) -> Self {
        Self { has_result, ..self }
    }

    const fn reading_result(self) -> Self {
        Self { reads_result: true, ..self }
    }

    const fn carry(self, reads: bool, writes: bool) -> Self {
        Self { carry: (reads, writes), ..self }
    }

    const fn observing(self, observes_others: bool) -> Self {
        Self { observes_others, ..self }
    }

    const fn floats(self, floats: Floats) -> Self {
        Self { floats, ..self }
    }
}

/// Hands all rows to a macro: the operation with its fields, its traits, and the emitter's function, which takes the
/// fields and the operands.
macro_rules! operations {
    ($use:ident) => { $use! {
        /// Without effect here: prefetches, groups of copies that were performed at once…
        Nop = Traits::effect(), nop;
        /// A form of an opcode that does not exist, or is not implemented. Kernels with it are refused.
        Refused = Traits::effect(), refused;
        Mov { ty: Type } = Traits::pure().floats(Floats::Whatever), mov;
        Int { op: IntOp, ty: Type } = Traits::pure().unless(matches!(op, IntOp::Div | IntOp::Rem)), int;
        /// Double-width product.
        MulWide { ty: Type } = Traits::pure(), mul_wide;
        /// Double-width product plus an addend of that width.
        MadWide { ty: Type } = Traits::pure(), mad_wide;
        IntUnary { op: IntUnary, ty: Type } = Traits::pure(), int_unary;
        IntTernary { op: IntTernary, ty: Type } = Traits::pure().unless(matches!(op, IntTernary::Fns)), int_ternary;
        /// `add.cc`, `addc`, `sub.cc`, `subc`.
        AddCarry { ty: Type, subtract: bool, carry_in: bool, carry_out: bool }
            = Traits::value().carry(*carry_in, *carry_out), add_carry;
        /// `mad.cc`, `madc`.
        MadCarry { ty: Type, high: bool, carry_in: bool, carry_out: bool }
            = Traits::value().carry(*carry_in, *carry_out), mad_carry;
        Bfi { ty: Type } = Traits::pure(), bfi;
        Bmsk { clamp: bool } = Traits::pure(), bmsk;
        Szext { signed: bool, clamp: bool } = Traits::pure(), szext;
        Prmt { mode: PrmtMode } = Traits::pure(), prmt;
        Lop3 { predicate: Option<Combine> } = Traits::pure(), lop3;
        Shf { left: bool, wrap: bool } = Traits::pure(), shf;
        Dp4a { a_signed: bool, b_signed: bool } = Traits::pure(), dp4a;
        Dp2a { a_signed: bool, b_signed: bool, high: bool } = Traits::pure(), dp2a;
        /// Packed 16-bit integers: add, min, max.
        PackedInt { op: IntOp, signed: bool } = Traits::pure(), packed_int;
        /// Logic on predicates.
        PredLogic { op: IntOp } = Traits::pure(), pred_logic;
        PredNot = Traits::pure(), pred_not;
        Float { op: FloatOp, ty: Type, mode: Mode }
            = Traits::pure()
                .unless(*op == FloatOp::Div || ty.bits() < 32 || mode.rounding != Rounding::Nearest)
                .floats(Floats::All(*ty)), float;
        Fma { ty: Type, mode: Mode, relu: bool } = Traits::value().floats(Floats::All(*ty)), fma;
        FloatMinMax { max: bool, ty: Type, ftz: bool, nan: bool, xorsign: bool }
            = Traits::pure().floats(Floats::All(*ty)), float_min_max;
        FloatNeg { ty: Type, ftz: bool } = Traits::pure().floats(Floats::All(*ty)), float_neg;
        FloatAbs { ty: Type, ftz: bool } = Traits::pure().floats(Floats::All(*ty)), float_abs;
        Copysign { ty: Type } = Traits::pure().floats(Floats::All(*ty)), copysign;
        Testp { kind: TestKind, ty: Type } = Traits::pure().floats(Floats::Sources(*ty)), testp;
        FloatUnary { op: FloatUnary, ty: Type, mode: Mode, approx: bool }
            = Traits::value().floats(Floats::All(*ty)), float_unary;
        Setp { compare: Compare, combine: Option<Combine>, ty: Type, ftz: bool }
            = Traits::pure().floats(Floats::Sources(*ty)), setp;
        Set { compare: Compare, combine: Option<Combine>, dst: Type, ty: Type, ftz: bool }
            = Traits::pure(), set_compare;
        Selp { ty: Type } = Traits::pure().floats(Floats::Whatever), selp;
        Slct { ty: Type, select: Type, ftz: bool } = Traits::pure(), slct;
        Cvt { convert: Convert } = Traits::value().floats(Floats::Each(convert.dst, convert.src)), cvt;
        /// `cvt.pack`: two integers narrowed with saturation.
        CvtPack { to: Type } = Traits::value(), cvt_pack;
        /// `cvt.rn.f16x2.f32` and its kin: two floats into one register.
        CvtPair { to: Type, rounding: Rounding, relu: bool, satfinite: bool } = Traits::value(), cvt_pair;
        /// `cvt.rn.satfinite.e4m3x2.f32` and its kin: two numbers of 8 bits from two floats, or from a register of halves.
        CvtToEighths { format: EighthFormat, halves: bool, relu: bool } = Traits::value(), cvt_to_eighths;
        /// `cvt.rn.f16x2.e4m3x2` and its kin.
        CvtFromEighths { format: EighthFormat, relu: bool } = Traits::value(), cvt_from_eighths;
        Ld { place: MemoryTarget, ty: Type, vector: u32, order: Order }
            = Traits::value().observing(*order == Order::Strong).floats(Floats::Moved(0, *ty)), ld;
        St { place: MemoryTarget, ty: Type, vector: u32, order: Order }
            = Traits::effect().floats(Floats::Moved(1, *ty)), st;
        Atom { shared: bool, op: Combine, ty: Type, vector: u32, result: bool }
            = Traits::effect().with_result(*result).observing(*result), atom;
        Fence = Traits::effect().observing(true), fence;
        Mbarrier { op: MbarrierOp, shared: bool }
            = Traits::effect().with_result(op.has_result()).observing(matches!(op, MbarrierOp::Test { .. })),
            mbarrier;
        /// Copies from global to shared memory; the size is an operand. With a hint, the last operand is a policy.
        CpAsync { hint: bool } = Traits::effect(), cp_async;
        /// Copies any number of bytes from global to shared memory, which may be several blocks', or within the cluster's shared memory,
        /// and tells a barrier so, or those blocks' barriers.
        CpBulk { shared: bool, multicast: bool } = Traits::effect(), cp_bulk;
        /// `st.async`: stores in shared memory, and tells a barrier so.
        StAsync { ty: Type, vector: u32 } = Traits::effect().floats(Floats::Moved(1, *ty)), st_async;
        /// `red.async`: likewise.
        RedAsync { op: Combine, ty: Type } = Traits::effect(), red_async;
        /// `mapa`: the place in another block's shared memory that an address is of in the block's own. The address is
        /// generic, or has so many bits.
        Mapa { ty: Type, generic: bool } = Traits::pure(), mapa;
        /// `getctarank`: the rank of the block whose shared memory an address is in.
        GetCtaRank { ty: Type, generic: bool } = Traits::pure(), get_cta_rank;
        /// `barrier.cluster`.
        BarCluster { wait: bool } = Traits::cut().with_result(false), bar_cluster;
        /// Bulk copies that a helper makes, of tensors and of bytes.
        Tensor { op: TensorOp } = Traits::effect(), tensor;
        /// `tensormap.replace`; the map is in shared memory, or at a generic address.
        ReplaceMap { field: Field, shared: bool } = Traits::effect(), replace_map;
        Cvta { place: MemoryTarget, to: bool } = Traits::pure(), cvta;
        Isspacep { space: SpaceTest } = Traits::pure(), isspacep;
        Bra = Traits::control(Control::Branch), bra;
        Brx = Traits::control(Control::Branch), brx;
        Call = Traits::value().floats(Floats::Whatever), call;
        Ret = Traits::control(Control::End), end_of_function;
        Exit = Traits::control(Control::End), exit;
        Trap = Traits::control(Control::End), trap;
        /// `createpolicy`: any value will do.
        Policy = Traits::pure(), policy;
        /// `nanosleep`: lets others run.
        Yield = Traits::cut().with_result(false).observing(true), give_way;
        /// No instruction of PTX: lets other blocks of the grid run first.
        GridYield { hold: Hold } = Traits::cut().with_result(false), let_grid_go_first;
        /// No instruction of PTX: the lanes of a warp wait for each other; see `lockstep`.
        Converge = Traits::cut().with_result(false), converge;
        Bar { reduce: Option<ReduceOp>, warp: bool, arrive: bool } = Traits::cut().with_result(reduce.is_some()), bar;
        Shfl { mode: ShuffleMode, sync: bool } = Traits::cut(), shfl;
        Vote { mode: VoteMode, sync: bool } = Traits::cut(), vote;
        Match { all: bool, ty: Type } = Traits::cut(), lane_match;
        Redux { reduce: ReduceOp } = Traits::cut(), redux;
        ActiveMask = Traits::cut(), active_mask;
        Elect = Traits::cut(), elect;
        VideoMad { a: Type, b: Type, plus_one: bool, sat: bool, shift: u8 } = Traits::value(), video_mad;
        Video { op: VideoOp, lanes: u32, d: Type, a: Type, b: Type, sat: bool, secondary: Secondary }
            = Traits::value(), video;
        /// `mma.sync`: fragments in registers.
        Mma { shape: MatrixShape } = Traits::cut(), mma;
        /// `mma.sp.sync`: half of the first matrix is zero, and is not there.
        MmaSparse { shape: MatrixShape } = Traits::cut(), mma_sparse;
        WmmaMma { shape: MatrixShape } = Traits::cut(), wmma_mma;
        WmmaLoad { fragment: Fragment, shape: MatrixShape, row: bool, shared: bool } = Traits::value(), wmma_load;
        WmmaStore { shape: MatrixShape, row: bool, shared: bool } = Traits::effect(), wmma_store;
        Ldmatrix { count: u32, transpose: bool, shared: bool } = Traits::cut(), ldmatrix;
        Stmatrix { count: u32, transpose: bool, shared: bool } = Traits::cut().with_result(false), stmatrix;
        Movmatrix = Traits::cut(), movmatrix;
        /// `wgmma.mma_async`: four warps multiply matrices in shared memory.
        Wgmma { shape: MatrixShape, sparse: bool } = Traits::cut().reading_result(), wgmma;
        /// Everything on textures and surfaces.
        Texture { op: TextureOp } = Traits::effect().with_result(op.has_result()), texture;
    } };
}
pub(super) use operations;

macro_rules! define {
    ($($(#[$doc:meta])* $op:ident $({ $($field:ident: $ty:ty),* })? = $traits:expr, $emit:ident;)*) => {
        /// A decoded opcode.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub(super) enum Op { $($(#[$doc])* $op $({ $($field: $ty),* })?,)* }

        impl Op {
            /// What everybody but the emitter has to know about it.
            #[allow(unused_variables)] // few traits depend on all fields
            pub(super) fn traits(&self) -> Traits {
                match self { $(Self::$op $({ $($field),* })? => $traits,)* }
            }
        }
    };
}
operations!(define);

impl Op {
    /// Whether addresses of other blocks' shared memory come from it: where none of these is, nobody has one.
    pub(super) fn knows_cluster_addresses(&self) -> bool {
        match self {
            Self::Mapa { .. } | Self::GetCtaRank { .. } => true,
            Self::CpBulk { multicast, .. } | Self::Tensor { op: TensorOp::Load { multicast, .. } } => {
                *multicast
            }
            _ => false,
        }
    }

    /// Whether a thread stops here to wait for others or to let them go first.
    pub(super) fn is_cut(&self) -> bool {
        self.traits().control == Control::Cut
    }
}

impl MbarrierOp {
    /// Whether it yields something: a token, or what was asked.
    const fn has_result(self) -> bool {
        match self {
            Self::Init | Self::Invalidate | Self::Expect | Self::Complete => false,
            Self::Arrive { result, .. } => result,
            Self::Test { .. } | Self::Pending => true,
        }
    }
}
