//! What an instruction means, decoded once for each distinct opcode with modifiers.

use crate::abi::{ReduceOp, ShuffleMode, VoteMode};
use rgpu_image::ptx::ast::Type;
use rgpu_image::ptx::opcode::{Combine, Compare, IntRounding, Rounding};

/// Integer operations with two sources and a result of the same type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntOp {
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
pub enum IntUnary {
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
pub enum IntTernary {
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
pub enum FloatOp {
    Add,
    Sub,
    Mul,
    Div,
}

/// Rounding and clamping of a floating-point result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    pub rounding: Rounding,
    pub ftz: bool,
    pub sat: bool,
}

/// Floating-point operations with one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloatUnary {
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
pub enum TestKind {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
}

/// How `prmt` chooses bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrmtMode {
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
pub enum Place {
    /// Generic, global, const and local addresses: all are addresses in the arena.
    Generic,
    Shared,
    Param,
}

/// How a memory operation is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Nobody else is looking.
    Weak,
    /// Others may be looking: performed exactly once, where it stands.
    Strong,
}

/// An operation of the video family on scalars: `vadd` …
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VideoOp {
    Add,
    Sub,
    AbsDiff,
    Min,
    Max,
    Avrg,
    Set(Compare),
}

/// What a video instruction does with its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secondary {
    None,
    Add,
    Min,
    Max,
}

/// A `cvt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convert {
    pub dst: Type,
    pub src: Type,
    pub rounding: Option<Rounding>,
    pub int_rounding: Option<IntRounding>,
    pub ftz: bool,
    pub sat: bool,
    pub relu: bool,
    /// `.satfinite`
    pub satfinite: bool,
}

/// Shape and types of a matrix instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatrixShape {
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
}

/// Which fragment `wmma.load` and `wmma.store` move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fragment {
    A,
    B,
    C,
    D,
}

/// What `mbarrier` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MbarrierOp {
    Init,
    Invalidate,
    Arrive { drop: bool, result: bool },
    Test { parity: bool },
    Pending,
}

/// A decoded opcode.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// Without effect here: prefetches, groups of copies that were performed at once…
    Nop,
    Mov(Type),
    Int(IntOp, Type),
    /// Double-width product.
    MulWide(Type),
    /// Double-width product plus an addend of that width.
    MadWide(Type),
    IntUnary(IntUnary, Type),
    IntTernary(IntTernary, Type),
    /// `add.cc`, `addc`, `sub.cc`, `subc`.
    AddCarry {
        ty: Type,
        subtract: bool,
        carry_in: bool,
        carry_out: bool,
    },
    /// `mad.cc`, `madc`.
    MadCarry {
        ty: Type,
        high: bool,
        carry_in: bool,
        carry_out: bool,
    },
    Bfi(Type),
    Bmsk {
        clamp: bool,
    },
    Szext {
        signed: bool,
        clamp: bool,
    },
    Prmt(PrmtMode),
    Lop3 {
        predicate: Option<Combine>,
    },
    Shf {
        left: bool,
        wrap: bool,
    },
    Dp4a {
        a_signed: bool,
        b_signed: bool,
    },
    Dp2a {
        a_signed: bool,
        b_signed: bool,
        high: bool,
    },
    /// Packed 16-bit integers: add, min, max.
    PackedInt {
        op: IntOp,
        signed: bool,
    },
    /// Logic on predicates.
    PredLogic(IntOp),
    PredNot,
    Float(FloatOp, Type, Mode),
    Fma {
        ty: Type,
        mode: Mode,
        relu: bool,
    },
    FloatMinMax {
        max: bool,
        ty: Type,
        ftz: bool,
        nan: bool,
        xorsign: bool,
    },
    FloatNeg {
        ty: Type,
        ftz: bool,
    },
    FloatAbs {
        ty: Type,
        ftz: bool,
    },
    Copysign(Type),
    Testp(TestKind, Type),
    FloatUnary {
        op: FloatUnary,
        ty: Type,
        mode: Mode,
        approx: bool,
    },
    Setp {
        compare: Compare,
        combine: Option<Combine>,
        ty: Type,
        ftz: bool,
    },
    Set {
        compare: Compare,
        combine: Option<Combine>,
        dst: Type,
        ty: Type,
        ftz: bool,
    },
    Selp(Type),
    Slct {
        ty: Type,
        select: Type,
        ftz: bool,
    },
    Cvt(Convert),
    /// `cvt.pack`: two integers narrowed with saturation.
    CvtPack {
        to: Type,
        from: Type,
        three: bool,
    },
    /// `cvt.rn.f16x2.f32` and its kin: two floats into one register.
    CvtPair {
        to: Type,
        from: Type,
        rounding: Rounding,
        relu: bool,
        satfinite: bool,
    },
    Ld {
        place: Place,
        ty: Type,
        vector: u32,
        order: Order,
    },
    St {
        place: Place,
        ty: Type,
        vector: u32,
        order: Order,
    },
    Atom {
        shared: bool,
        op: Combine,
        ty: Type,
        vector: u32,
        result: bool,
    },
    Fence,
    Mbarrier {
        op: MbarrierOp,
        shared: bool,
    },
    /// Copies from global to shared memory; the size is an operand.
    CpAsync,
    Cvta {
        shared: bool,
        to: bool,
    },
    Isspacep(SpaceTest),
    Bra,
    Brx,
    Call,
    Ret,
    Exit,
    Trap,
    /// `createpolicy`: any value will do.
    Policy,
    /// `nanosleep`: lets others run.
    Yield,
    /// No instruction of PTX: the lanes of a warp wait for each other; see `lockstep`.
    Converge,
    Bar {
        reduce: Option<ReduceOp>,
        warp: bool,
        arrive: bool,
    },
    Shfl {
        mode: ShuffleMode,
        sync: bool,
    },
    Vote {
        mode: VoteMode,
        sync: bool,
    },
    Match {
        all: bool,
        ty: Type,
    },
    Redux(ReduceOp),
    ActiveMask,
    Elect,
    Video {
        op: VideoOp,
        lanes: u32,
        d: Type,
        a: Type,
        b: Type,
        sat: bool,
        secondary: Secondary,
        plus_one: bool,
    },
    /// `mma.sync`: fragments in registers.
    Mma(Box<MatrixShape>),
    WmmaMma(Box<MatrixShape>),
    WmmaLoad {
        fragment: Fragment,
        shape: Box<MatrixShape>,
        row: bool,
        shared: bool,
    },
    WmmaStore {
        shape: Box<MatrixShape>,
        row: bool,
        shared: bool,
    },
    Ldmatrix {
        count: u32,
        transpose: bool,
        shared: bool,
    },
    Movmatrix,
}

/// The windows that `isspacep` asks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceTest {
    Const,
    Global,
    Local,
    Shared,
    Param,
}

impl Op {
    /// Whether a thread stops here to wait for others or to let them go first.
    pub fn is_cut(&self) -> bool {
        matches!(
            self,
            Op::Bar { .. }
                | Op::Yield
                | Op::Converge
                | Op::Shfl { .. }
                | Op::Vote { .. }
                | Op::Match { .. }
                | Op::Redux(_)
                | Op::ActiveMask
                | Op::Elect
                | Op::Mma(_)
                | Op::WmmaMma(_)
                | Op::Ldmatrix { .. }
                | Op::Movmatrix
        )
    }

    /// Whether a loop around it may be waiting for another thread. Atomics count only where their result
    /// is used; the caller knows.
    pub fn may_observe_others(&self) -> bool {
        matches!(
            self,
            Op::Ld { order: Order::Strong, .. }
                | Op::Mbarrier { op: MbarrierOp::Test { .. }, .. }
                | Op::Fence
                | Op::Atom { result: true, .. }
                | Op::Yield
        )
    }
}
