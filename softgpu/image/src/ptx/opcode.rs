//! Opcodes and their modifiers, described once per distinct form of a module.

use std::fmt;

macro_rules! names {
    ($(#[$doc:meta])* $enum:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)]
        pub enum $enum { $($(#[$vdoc])* $variant,)* }

        impl $enum {
            /// The value written so in PTX (without the leading dot).
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)* _ => None }
            }
            /// How it is written in PTX (without the leading dot).
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
        }

        impl fmt::Display for $enum {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(self.name()) }
        }
    };
}

names! {
    /// A type of operands and variables.
    Type {
        B8 = "b8", B16 = "b16", B32 = "b32", B64 = "b64", B128 = "b128",
        U8 = "u8", U16 = "u16", U32 = "u32", U64 = "u64",
        S8 = "s8", S16 = "s16", S32 = "s32", S64 = "s64",
        F16 = "f16", F16x2 = "f16x2", Bf16 = "bf16", Bf16x2 = "bf16x2", Tf32 = "tf32",
        F32 = "f32", F32x2 = "f32x2", F64 = "f64",
        U16x2 = "u16x2", S16x2 = "s16x2",
        Pred = "pred",
        B1 = "b1", U4 = "u4", S4 = "s4", U2 = "u2", S2 = "s2",
        E4m3 = "e4m3", E5m2 = "e5m2", E4m3x2 = "e4m3x2", E5m2x2 = "e5m2x2",
        E2m1 = "e2m1", E2m1x2 = "e2m1x2", E2m3 = "e2m3", E2m3x2 = "e2m3x2", E3m2 = "e3m2", E3m2x2 = "e3m2x2",
        E4m3x4 = "e4m3x4", E5m2x4 = "e5m2x4", E2m1x4 = "e2m1x4", E2m3x4 = "e2m3x4", E3m2x4 = "e3m2x4",
        Ue8m0 = "ue8m0", Ue8m0x2 = "ue8m0x2", Ue4m3 = "ue4m3",
        TexRef = "texref", SamplerRef = "samplerref", SurfRef = "surfref",
    }
}

impl Type {
    /// Size in bits; 1 for predicates; 64 for the opaque references.
    pub fn bits(self) -> u32 {
        use Type::*;
        match self {
            Pred | B1 => 1,
            U2 | S2 => 2,
            U4 | S4 | E2m1 => 4,
            E2m3 | E3m2 => 6,
            B8 | U8 | S8 | E4m3 | E5m2 | E2m1x2 | Ue8m0 | Ue4m3 => 8,
            B16 | U16 | S16 | F16 | Bf16 | E4m3x2 | E5m2x2 | E2m3x2 | E3m2x2 | Ue8m0x2 | E2m1x4 => 16,
            B32 | U32 | S32 | F32 | F16x2 | Bf16x2 | Tf32 | U16x2 | S16x2 | E4m3x4 | E5m2x4 | E2m3x4
            | E3m2x4 => 32,
            B64 | U64 | S64 | F64 | F32x2 | TexRef | SamplerRef | SurfRef => 64,
            B128 => 128,
        }
    }

    /// Size in memory, in bytes.
    pub fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// Whether it is a signed integer.
    pub fn is_signed(self) -> bool {
        use Type::*;
        matches!(self, S8 | S16 | S32 | S64 | S16x2 | S4 | S2)
    }

    /// Whether it is an unsigned integer.
    pub fn is_unsigned(self) -> bool {
        use Type::*;
        matches!(self, U8 | U16 | U32 | U64 | U16x2 | U4 | U2)
    }

    /// Whether it is a floating-point type (packed ones included).
    pub fn is_float(self) -> bool {
        use Type::*;
        matches!(self, F16 | F16x2 | Bf16 | Bf16x2 | Tf32 | F32 | F32x2 | F64)
    }

    /// Whether it is untyped bits.
    pub fn is_bits(self) -> bool {
        use Type::*;
        matches!(self, B8 | B16 | B32 | B64 | B128)
    }
}

names! {
    /// A state space.
    Space {
        Reg = "reg", Const = "const", Global = "global", Local = "local", Param = "param", Shared = "shared",
        SharedCta = "shared::cta", SharedCluster = "shared::cluster", ParamEntry = "param::entry",
        ParamFunc = "param::func", Tex = "tex", Sreg = "sreg",
    }
}

names! {
    /// Rounding of results to a floating-point type.
    Rounding {
        Nearest = "rn", Zero = "rz", Down = "rm", Up = "rp", NearestAway = "rna", Stochastic = "rs",
    }
}

names! {
    /// Rounding of a floating-point number to an integer.
    IntRounding { Nearest = "rni", Zero = "rzi", Down = "rmi", Up = "rpi", }
}

names! {
    /// A comparison (`lo`, `ls`, `hi`, `hs` are the unsigned ones).
    Compare {
        Eq = "eq", Ne = "ne", Lt = "lt", Le = "le", Gt = "gt", Ge = "ge",
        Lo = "lo", Ls = "ls", Hi = "hi", Hs = "hs",
        Equ = "equ", Neu = "neu", Ltu = "ltu", Leu = "leu", Gtu = "gtu", Geu = "geu",
        Num = "num", Nan = "nan",
    }
}

names! {
    /// Which half of a product.
    MulPart { Lo = "lo", Hi = "hi", Wide = "wide", }
}

names! {
    /// Memory ordering.
    Semantics {
        Weak = "weak", Relaxed = "relaxed", Acquire = "acquire", Release = "release", AcqRel = "acq_rel",
        SeqCst = "sc", Volatile = "volatile", Mmio = "mmio",
    }
}

names! {
    /// Who sees a memory operation in order. `gl` is the old name of `gpu`, for `membar`.
    Scope { Cta = "cta", Cluster = "cluster", Gpu = "gpu", Sys = "sys", Gl = "gl", }
}

names! {
    /// What `atom`, `red`, `redux`, `bar.red` or `setp` combine with.
    Combine {
        And = "and", Or = "or", Xor = "xor", Add = "add", Inc = "inc", Dec = "dec", Min = "min", Max = "max",
        Exch = "exch", Cas = "cas", Popc = "popc",
    }
}

names! {
    /// A base opcode.
    Opcode {
        Abs = "abs", Activemask = "activemask", Add = "add", Addc = "addc", Alloca = "alloca", And = "and",
        Applypriority = "applypriority", Atom = "atom", Bar = "bar", Barrier = "barrier", Bfe = "bfe",
        Bfi = "bfi", Bfind = "bfind", Bmsk = "bmsk", Bra = "bra", Brev = "brev", Brkpt = "brkpt", Brx = "brx",
        Call = "call", Clusterlaunchcontrol = "clusterlaunchcontrol", Clz = "clz", Cnot = "cnot",
        Copysign = "copysign", Cos = "cos", Cp = "cp", Createpolicy = "createpolicy", Cvt = "cvt",
        Cvta = "cvta", Discard = "discard", Div = "div", Dp2a = "dp2a", Dp4a = "dp4a", Elect = "elect",
        Ex2 = "ex2", Exit = "exit", Fence = "fence", Fma = "fma", Fns = "fns", Getctarank = "getctarank",
        Griddepcontrol = "griddepcontrol", Isspacep = "isspacep", Istypep = "istypep", Ld = "ld",
        Ldmatrix = "ldmatrix", Ldu = "ldu", Lg2 = "lg2", Lop3 = "lop3", Mad = "mad", Mad24 = "mad24",
        Madc = "madc", Mapa = "mapa", Match = "match", Max = "max", Mbarrier = "mbarrier", Membar = "membar",
        Min = "min", Mma = "mma", Mov = "mov", Movmatrix = "movmatrix", Mul = "mul", Mul24 = "mul24",
        Multimem = "multimem", Nanosleep = "nanosleep", Neg = "neg", Not = "not", Or = "or", Pmevent = "pmevent",
        Popc = "popc", Prefetch = "prefetch", Prefetchu = "prefetchu", Prmt = "prmt", Rcp = "rcp", Red = "red",
        Redux = "redux", Rem = "rem", Ret = "ret", Rsqrt = "rsqrt", Sad = "sad", Selp = "selp", Set = "set",
        Setmaxnreg = "setmaxnreg", Setp = "setp", Shf = "shf", Shfl = "shfl", Shl = "shl", Shr = "shr",
        Sin = "sin", Slct = "slct", Sqrt = "sqrt", St = "st", Stackrestore = "stackrestore",
        Stacksave = "stacksave", Stmatrix = "stmatrix", Sub = "sub", Subc = "subc", Suld = "suld",
        Suq = "suq", Sured = "sured", Sust = "sust", Szext = "szext", Tanh = "tanh", Tcgen05 = "tcgen05",
        Tensormap = "tensormap", Testp = "testp", Tex = "tex", Tld4 = "tld4", Trap = "trap", Txq = "txq",
        Vabsdiff = "vabsdiff", Vabsdiff2 = "vabsdiff2", Vabsdiff4 = "vabsdiff4", Vadd = "vadd", Vadd2 = "vadd2",
        Vadd4 = "vadd4", Vavrg2 = "vavrg2", Vavrg4 = "vavrg4", Vmad = "vmad", Vmax = "vmax", Vmax2 = "vmax2",
        Vmax4 = "vmax4", Vmin = "vmin", Vmin2 = "vmin2", Vmin4 = "vmin4", Vote = "vote", Vset = "vset",
        Vset2 = "vset2", Vset4 = "vset4", Vshl = "vshl", Vshr = "vshr", Vsub = "vsub", Vsub2 = "vsub2",
        Vsub4 = "vsub4", Wgmma = "wgmma", Wmma = "wmma", Xor = "xor",
        /// Not a PTX opcode that this parser knows; to be refused by its text.
        Unknown = "",
    }
}

/// An opcode with its modifiers: the text, the list, and what the usual ones mean.
///
/// A modifier that no field below describes is in `others`, in order; whoever accepts a form must have
/// looked at every field that is set, and at `others`, because a modifier that is ignored gives wrong
/// results. Hints without influence on results (caching, eviction and prefetch size) are in no field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    /// All of it: `ld.global.nc.v4.f32`.
    pub text: String,
    /// The first part.
    pub opcode: Opcode,
    /// The rest, in order, without dots, `::` parts kept together.
    pub modifiers: Vec<String>,
    /// Types, in order: `[d, a]` for `cvt.d.a`.
    pub types: Vec<Type>,
    /// `.v2`, `.v4`, `.v8`; 1 otherwise.
    pub vector: u32,
    /// State spaces, in order.
    pub spaces: Vec<Space>,
    /// `.rn` …; the first one.
    pub rounding: Option<Rounding>,
    /// `.rni` …
    pub int_rounding: Option<IntRounding>,
    /// `.lt` … of `setp` and `set`.
    pub compare: Option<Compare>,
    /// What `setp`/`set` combine with (`.and`, `.or`, `.xor`), and the operation of `atom`, `red`, `redux`,
    /// `bar.red`.
    pub combine: Option<Combine>,
    /// `.lo`, `.hi`, `.wide` of `mul` and `mad`.
    pub part: Option<MulPart>,
    /// `.weak`, `.relaxed`, `.acquire`, `.release`, `.acq_rel`, `.sc`, `.volatile`, `.mmio`.
    pub semantics: Option<Semantics>,
    /// `.cta`, `.gpu`, `.sys`, …
    pub scope: Option<Scope>,
    /// `.ftz`.
    pub ftz: bool,
    /// `.sat` (and `.satfinite` is in `others`).
    pub sat: bool,
    /// `.approx`.
    pub approx: bool,
    /// `.full` of `div`.
    pub full: bool,
    /// `.cc`: writes the carry flag.
    pub cc: bool,
    /// `.uni`.
    pub uni: bool,
    /// `.sync`.
    pub sync: bool,
    /// `.aligned`.
    pub aligned: bool,
    /// `.nc` of `ld`.
    pub nc: bool,
    /// `.to` of `cvta`.
    pub to: bool,
    /// `.NaN` of `min`/`max`.
    pub nan: bool,
    /// `.noftz` (no influence where denormals are kept anyway).
    pub noftz: bool,
    /// Modifiers not described above.
    pub others: Vec<String>,
}

impl Form {
    /// Describes an opcode with its modifiers, such as `ld.global.nc.f32`. Never fails: an opcode that
    /// does not exist becomes [`Opcode::Unknown`], a modifier that is not understood goes to `others`.
    pub fn parse(text: &str) -> Self {
        let mut parts = text.split('.');
        let opcode = parts.next().and_then(Opcode::from_name).unwrap_or(Opcode::Unknown);
        let mut form = Self {
            text: text.to_owned(),
            opcode,
            modifiers: parts.map(str::to_owned).collect(),
            types: Vec::new(),
            vector: 1,
            spaces: Vec::new(),
            rounding: None,
            int_rounding: None,
            compare: None,
            combine: None,
            part: None,
            semantics: None,
            scope: None,
            ftz: false,
            sat: false,
            approx: false,
            full: false,
            cc: false,
            uni: false,
            sync: false,
            aligned: false,
            nc: false,
            to: false,
            nan: false,
            noftz: false,
            others: Vec::new(),
        };
        for index in 0..form.modifiers.len() {
            let modifier = form.modifiers[index].clone();
            if !form.describe(&modifier) {
                form.others.push(modifier);
            }
        }
        form
    }

    /// Whether a modifier occurs anywhere.
    pub fn has(&self, modifier: &str) -> bool {
        self.modifiers.iter().any(|m| m == modifier)
    }

    /// The first type.
    pub fn ty(&self) -> Option<Type> {
        self.types.first().copied()
    }

    /// The state space, if exactly one is named.
    pub fn space(&self) -> Option<Space> {
        match self.spaces[..] {
            [space] => Some(space),
            _ => None,
        }
    }

    /// Records what a modifier means; false when it goes to `others`.
    fn describe(&mut self, modifier: &str) -> bool {
        use Opcode as Op;
        let op = self.opcode;
        if let Some(ty) = Type::from_name(modifier) {
            self.types.push(ty);
            return true;
        }
        let memory = matches!(
            op,
            Op::Ld | Op::St | Op::Ldu | Op::Atom | Op::Red | Op::Cp | Op::Prefetch | Op::Membar | Op::Fence
        );
        match modifier {
            "ftz" => self.ftz = true,
            "sat" => self.sat = true,
            "approx" => self.approx = true,
            "full" if op == Op::Div => self.full = true,
            "cc" => self.cc = true,
            "uni" if op != Op::Vote => self.uni = true,
            "sync" => self.sync = true,
            "aligned" => self.aligned = true,
            "nc" if op == Op::Ld => self.nc = true,
            "to" if op == Op::Cvta => self.to = true,
            "NaN" => self.nan = true,
            "noftz" => self.noftz = true,
            "v2" | "v4" | "v8" if self.vector == 1 => self.vector = u32::from(modifier.as_bytes()[1] - b'0'),
            // Hints: where copies of the data are kept, for how long, and how much is fetched ahead.
            "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt"
                if matches!(op, Op::Ld | Op::St | Op::Ldu | Op::Cp) => {}
            _ if is_cache_hint(modifier) && memory => {}
            _ => return self.describe_enumerated(modifier, memory),
        }
        true
    }

    /// The modifiers that choose from a list.
    fn describe_enumerated(&mut self, modifier: &str, memory: bool) -> bool {
        use Opcode as Op;
        let op = self.opcode;
        if let Some(space) = Space::from_name(modifier) {
            self.spaces.push(space);
            return true;
        }
        if let (Some(rounding), None) = (Rounding::from_name(modifier), self.rounding) {
            self.rounding = Some(rounding);
            return true;
        }
        if let (Some(rounding), None) = (IntRounding::from_name(modifier), self.int_rounding) {
            self.int_rounding = Some(rounding);
            return true;
        }
        if matches!(op, Op::Setp | Op::Set)
            && self.compare.is_none()
            && let Some(compare) = Compare::from_name(modifier)
        {
            self.compare = Some(compare);
            return true;
        }
        if matches!(op, Op::Mul | Op::Mad | Op::Madc | Op::Mul24 | Op::Mad24)
            && let (Some(part), None) = (MulPart::from_name(modifier), self.part)
        {
            self.part = Some(part);
            return true;
        }
        if matches!(op, Op::Setp | Op::Set | Op::Atom | Op::Red | Op::Redux | Op::Bar | Op::Barrier)
            && let (Some(combine), None) = (Combine::from_name(modifier), self.combine)
        {
            self.combine = Some(combine);
            return true;
        }
        if memory && let (Some(semantics), None) = (Semantics::from_name(modifier), self.semantics) {
            self.semantics = Some(semantics);
            return true;
        }
        if memory && let (Some(scope), None) = (Scope::from_name(modifier), self.scope) {
            self.scope = Some(scope);
            return true;
        }
        false
    }
}

/// Whether a modifier of a memory operation is only about caching.
fn is_cache_hint(modifier: &str) -> bool {
    matches!(
        modifier,
        "L1::evict_normal"
            | "L1::evict_unchanged"
            | "L1::evict_first"
            | "L1::evict_last"
            | "L1::no_allocate"
            | "L2::evict_normal"
            | "L2::evict_first"
            | "L2::evict_last"
            | "L2::64B"
            | "L2::128B"
            | "L2::256B"
    )
}
