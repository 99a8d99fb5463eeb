//! A PTX module, parsed and resolved: no name has to be looked up by whoever compiles it.
//!
//! Scopes are flattened: every register, variable, label, table and prototype of a function has a dense
//! number within the function, whatever `{ … }` it was declared in. Ranges (`%r<100>`) are expanded.
//! Vector registers (`.reg .v4 .f32 v`) are expanded to their components; the operand `v` then is an
//! [`Operand::Vector`]. A declaration and a definition of one function or variable are one entry.

use std::fmt;
use std::sync::Arc;

pub use super::location::{Locations, SourceLine};
pub use super::types::{Space, Type};

/// Index into [`Function::registers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegId(pub u32);

/// Index into [`Module::variables`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GlobalId(pub u32);

/// Index into [`Function::variables`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocalId(pub u32);

/// Index into [`Module::functions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub u32);

/// A label of a function; labels are numbered from 0 to [`Function::labels`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelId(pub u32);

/// Index into [`Module::forms`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FormId(pub u32);

/// A whole translation unit.
#[derive(Debug, Clone, Default)]
pub struct Module {
    /// `.version`, major and minor.
    pub version: (u32, u32),
    /// The number in `.target`: 90 for `sm_90a`.
    pub target_sm: u32,
    /// The whole `.target`, as written.
    pub target: String,
    /// `.address_size`: 32 or 64 (32 when not given).
    pub address_size: u32,
    /// Module-level variables, and `.global`/`.const` ones declared inside functions.
    pub variables: Vec<Variable>,
    /// All functions, in order of first mention.
    pub functions: Vec<Function>,
    /// Every distinct opcode with modifiers that occurs in the module, as written: `ld.global.nc.v4.f32`.
    pub forms: Vec<String>,
    /// Where in the source its lines come from.
    pub locations: Locations,
}

impl Module {
    /// The opcode with its modifiers of an instruction.
    pub fn form(&self, instruction: &Instruction) -> &str {
        &self.forms[instruction.form.0 as usize]
    }
}

/// How a symbol is seen by other modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub enum Linkage {
    /// Neither of the others: local to the module.
    #[default]
    Internal,
    Visible,
    Extern,
    Weak,
    Common,
}

/// A variable or parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name. Function-scope names that occur more than once get a suffix.
    pub name: String,
    /// State space. `Reg` for parameters passed in registers (then see `registers`).
    pub space: Space,
    /// Type of an element.
    pub ty: Type,
    /// Components of an element: 1, 2, 4 or 8.
    pub vector: u32,
    /// Array dimensions, outermost first; empty for a scalar. An open `[]` that no initialiser closes
    /// is 0.
    pub dims: Vec<u64>,
    /// Alignment in bytes: as declared, or else the element's size (power of two).
    pub align: u32,
    /// Size in bytes: of the element times all dimensions. 0 for an open array.
    pub size: u64,
    /// Whether the outermost dimension is open (`[]`): dynamic shared memory, or an extern array.
    pub open: bool,
    /// Initial value; `None` means zeros.
    pub init: Option<Initialiser>,
    /// Who else can see the name (`.visible`, `.extern`, `.weak`, …).
    pub linkage: Linkage,
    /// Whether host and device both use the variable (`.attribute(.managed)`).
    pub managed: bool,
    /// `.ptr` annotation on an entry's parameter.
    pub pointer: Option<Pointer>,
    /// The registers of a `.reg` parameter (one, or the components of a vector); empty otherwise.
    pub registers: Vec<RegId>,
    /// Line of the declaration.
    pub line: u32,
}

/// `.ptr .space .align N` on an entry's parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    /// Where it points; `None` is generic.
    pub space: Option<Space>,
    /// What its value is aligned to (4 when not given).
    pub align: u32,
}

/// What a variable holds at first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Initialiser {
    /// The bytes; may be shorter than the variable, the rest is zeros.
    pub bytes: Vec<u8>,
    /// Addresses to be stored over them.
    pub relocations: Vec<Relocation>,
}

/// An address within an initialiser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation {
    /// Where, in bytes from the start of the variable.
    pub offset: u64,
    /// How many bytes are stored there, little-endian.
    pub width: u32,
    /// How far the address is shifted right before it is stored: 0, or the place of the mask's byte in
    /// forms such as `0xFF00(symbol)`.
    pub shift: u32,
    /// The variable or function whose address is stored there.
    pub target: Symbol,
    /// Added to the address.
    pub addend: i64,
    /// Whether the address is generic (`generic(symbol)`) instead of one of the symbol's space.
    pub generic: bool,
}

/// What a name in an operand or initialiser stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// One of [`Module::variables`].
    Global(GlobalId),
    /// One of [`Function::variables`].
    Local(LocalId),
    /// One of [`Function::params`], by index.
    Param(u32),
    /// One of [`Function::returns`], by index.
    Return(u32),
    /// A function.
    Function(FunctionId),
}

/// A register that a function declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// The register's name.
    pub name: RegName,
    /// The type that it was declared with.
    pub ty: Type,
}

/// A register's name: `base`, or `base` and a number for members of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegName {
    /// The name without the number.
    pub base: Arc<str>,
    /// The number in a range.
    pub index: Option<u32>,
    /// The component of a vector register: 0 is `.x`.
    pub component: Option<u8>,
}

impl fmt::Display for RegName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)?;
        if let Some(index) = self.index {
            write!(f, "{index}")?;
        }
        match self.component {
            Some(c @ 0..4) => write!(f, ".{}", ['x', 'y', 'z', 'w'][c as usize]),
            Some(c) => write!(f, ".{c}"),
            None => Ok(()),
        }
    }
}

/// A function or kernel, defined or only declared.
#[derive(Debug, Clone, Default)]
pub struct Function {
    /// The function's name, as the text spells it.
    pub name: String,
    /// Whether it is a kernel (`.entry`).
    pub is_entry: bool,
    /// Whether no body was given.
    pub is_declaration: bool,
    /// Who else can see the name (`.visible`, `.extern`, `.weak`, …).
    pub linkage: Linkage,
    /// The function that this name is an `.alias` of.
    pub alias_of: Option<FunctionId>,
    /// Parameters in order.
    pub params: Vec<Variable>,
    /// Return parameters (at most one in practice).
    pub returns: Vec<Variable>,
    /// All registers that it declares, by number.
    pub registers: Vec<Register>,
    /// `.local`, `.shared` and `.param` variables of the body, from all its scopes.
    pub variables: Vec<Variable>,
    /// How many labels there are.
    pub labels: u32,
    /// The labels' names.
    pub label_names: Vec<String>,
    /// The labels that each `.branchtargets` table lists.
    pub branch_tables: Vec<Vec<LabelId>>,
    /// The functions that each `.calltargets` table lists.
    pub call_tables: Vec<Vec<FunctionId>>,
    /// The `.callprototype`s, by number.
    pub prototypes: Vec<Prototype>,
    /// The body in order.
    pub body: Vec<Statement>,
    /// `.maxntid`, missing dimensions are 1.
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid`, missing dimensions are 1.
    pub required_threads: Option<[u32; 3]>,
    /// How many blocks a multiprocessor is to hold at least (`.minnctapersm`).
    pub min_blocks: Option<u32>,
    /// How many registers a thread may use at most (`.maxnreg`).
    pub max_registers: Option<u32>,
    /// Blocks of a cluster in x, y, z, where it prescribes them (`.reqnctapercluster`).
    pub required_cluster: Option<[u32; 3]>,
    /// Whether launches have to be in clusters (`.explicitcluster`).
    pub needs_cluster: bool,
    /// Whether a grid's size counts clusters (`.blocksareclusters`).
    pub counts_clusters: bool,
    /// The most blocks that a cluster may have (`.maxclusterrank`).
    pub max_cluster: Option<u32>,
    /// Whether calls of it do not come back (`.noreturn`).
    pub noreturn: bool,
    /// Line of the declaration or definition.
    pub line: u32,
}

/// Signature of an indirect call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prototype {
    /// Parameters in order.
    pub params: Vec<Variable>,
    /// The parameters in which it returns values.
    pub returns: Vec<Variable>,
    /// Whether calls of it do not come back (`.noreturn`).
    pub noreturn: bool,
}

/// One step of a body.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// A place that branches go to. Each label occurs exactly once.
    Label(LabelId),
    /// An instruction.
    Instruction(Instruction),
}

/// The predicate in front of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// The predicate register.
    pub register: RegId,
    /// Whether the instruction is executed where the predicate is false (`@!p`).
    pub negated: bool,
}

/// An instruction.
///
/// A `call` always has four operands: [`Operand::List`] of the return values, the callee (a
/// [`Symbol::Function`] or a register), [`Operand::List`] of the arguments, and a
/// [`Operand::Prototype`], [`Operand::CallTable`] or, for direct calls, [`Operand::Sink`].
#[derive(Debug, Clone, PartialEq)]
pub struct Instruction {
    /// The opcode and its modifiers. Where the operands are of no kind that the parser knows, it is the whole text of the
    /// instruction instead, without operands: an opcode that nobody can execute.
    pub form: FormId,
    /// Line in the text.
    pub line: u32,
    /// The predicate under which the instruction is executed; `None` where it always is.
    pub guard: Option<Guard>,
    /// Operands in the order written.
    pub operands: Vec<Operand>,
}

/// What an address is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressBase {
    /// A register.
    Reg(RegId),
    /// A variable or parameter.
    Symbol(Symbol),
    /// Nothing: the offset is the address.
    Absolute,
}

/// What an instruction reads, writes or goes to.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// A register.
    Reg(RegId),
    /// `!p`.
    NotReg(RegId),
    /// Part of a register, or what is negated: `r.h0`, `-r`.
    Part(RegId, Part),
    /// An integer, as 64 bits in two's complement; take the low bits that are needed. `true` when it
    /// was written negative.
    Int(u64, bool),
    /// A float written as `0f…`.
    F32(u32),
    /// A float written as `0d…` or in decimal.
    F64(u64),
    /// `[base+offset]`.
    Address(AddressBase, i64),
    /// `[a, b, …]`: textures, surfaces, tensors.
    Bracket(Vec<Operand>),
    /// The address (in its own space) of a symbol, plus an offset.
    Symbol(Symbol, i64),
    /// An element of an array, `name[index]`: how many bytes behind the symbol it lies, or, where a register says which
    /// element it is, the register with its address. Whether that is an address to access or one to take, the opcode says:
    /// `ld.u32 r, a[1]` and `mov.u32 r, a[1]`.
    Element(AddressBase, i64),
    /// `{a, b, …}`.
    Vector(Vec<Operand>),
    /// `(a, b, …)` in calls.
    List(Vec<Operand>),
    /// `p|q`: two destinations.
    Pair(Box<(Operand, Operand)>),
    /// A branch target.
    Label(LabelId),
    /// A special register.
    Special(Special),
    /// `_`.
    Sink,
    /// Index into [`Function::branch_tables`].
    BranchTable(u32),
    /// Index into [`Function::call_tables`].
    CallTable(u32),
    /// Index into [`Function::prototypes`].
    Prototype(u32),
}

/// What of a register of 32 bits an operand of a video instruction names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The number of its first bit.
    pub first: u8,
    /// How many bits it has: 8, 16 or 32.
    pub bits: u8,
    /// Whether a minus stands before it.
    pub negative: bool,
}

impl Part {
    /// All of a register.
    pub const WHOLE: Self = Self { first: 0, bits: 32, negative: false };
}

/// A special register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Special {
    TidX,
    TidY,
    TidZ,
    NtidX,
    NtidY,
    NtidZ,
    CtaidX,
    CtaidY,
    CtaidZ,
    NctaidX,
    NctaidY,
    NctaidZ,
    LaneId,
    WarpId,
    NwarpId,
    WarpSize,
    SmId,
    NsmId,
    GridId,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    Clock,
    ClockHi,
    Clock64,
    GlobalTimer,
    GlobalTimerLo,
    GlobalTimerHi,
    DynamicSmemSize,
    TotalSmemSize,
    AggrSmemSize,
    /// `%envreg<n>`.
    EnvReg(u8),
    /// `%pm<n>` and `%pm<n>_64`.
    Pm(u8),
    ClusterIdX,
    ClusterIdY,
    ClusterIdZ,
    NclusterIdX,
    NclusterIdY,
    NclusterIdZ,
    ClusterCtaidX,
    ClusterCtaidY,
    ClusterCtaidZ,
    ClusterNctaidX,
    ClusterNctaidY,
    ClusterNctaidZ,
    ClusterCtaRank,
    ClusterNctaRank,
    IsExplicitCluster,
    ReservedSmemBegin,
    ReservedSmemEnd,
    ReservedSmemCap,
    /// `%reserved_smem_offset_0` and `_1`.
    ReservedSmemOffset(u8),
    CurrentGraphExec,
}
