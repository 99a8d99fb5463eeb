//! An opcode's modifiers, described once for each distinct form in a module.

use rgpu_image::ptx::ast::{Space, Type};
use rgpu_image::ptx_words;

use super::{Modifiers, Opcode};

ptx_words! {
    /// Rounding of results to a floating-point type.
    Rounding {
        Nearest = "rn", Zero = "rz", Down = "rm", Up = "rp", NearestAway = "rna", Stochastic = "rs",
    }
}

ptx_words! {
    /// Rounding of a floating-point number to an integer.
    IntRounding { Nearest = "rni", Zero = "rzi", Down = "rmi", Up = "rpi", }
}

ptx_words! {
    /// A comparison (`lo`, `ls`, `hi`, `hs` are the unsigned ones).
    Compare {
        Eq = "eq", Ne = "ne", Lt = "lt", Le = "le", Gt = "gt", Ge = "ge",
        Lo = "lo", Ls = "ls", Hi = "hi", Hs = "hs",
        Equ = "equ", Neu = "neu", Ltu = "ltu", Leu = "leu", Gtu = "gtu", Geu = "geu",
        Num = "num", Nan = "nan",
    }
}

ptx_words! {
    /// Which half of a product.
    MulPart { Lo = "lo", Hi = "hi", Wide = "wide", }
}

ptx_words! {
    /// Memory ordering.
    Semantics {
        Weak = "weak", Relaxed = "relaxed", Acquire = "acquire", Release = "release", AcqRel = "acq_rel",
        SeqCst = "sc", Volatile = "volatile", Mmio = "mmio",
    }
}

ptx_words! {
    /// Who sees a memory operation in order. `gl` is the old name of `gpu`, for `membar`.
    Scope { Cta = "cta", Cluster = "cluster", Gpu = "gpu", Sys = "sys", Gl = "gl", }
}

ptx_words! {
    /// What `atom`, `red`, `redux`, `bar.red` or `setp` combine with.
    Combine {
        And = "and", Or = "or", Xor = "xor", Add = "add", Inc = "inc", Dec = "dec", Min = "min", Max = "max",
        Exch = "exch", Cas = "cas", Popc = "popc",
    }
}

/// An opcode with its modifiers: the text, the list, and what the usual ones mean.
///
/// A modifier that no field below describes is in `others`, in order; whoever accepts a form must have
/// looked at every field that is set, and at `others`, because a modifier that is ignored gives wrong
/// results. Hints without influence on results (caching, eviction and prefetch size) are in no field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Form {
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
    /// How a value is rounded to an integral one (`.rni`, `.rzi`, `.rmi`, `.rpi`).
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
    /// Whether subnormal numbers count as zero (`.ftz`).
    pub ftz: bool,
    /// `.sat` (and `.satfinite` is in `others`).
    pub sat: bool,
    /// Whether an approximation is enough (`.approx`).
    pub approx: bool,
    /// `.full`, of `div`.
    pub full: bool,
    /// `.cc`: writes the carry flag.
    pub cc: bool,
    /// Whether all threads of a warp are promised to go the same way (`.uni`).
    pub uni: bool,
    /// Whether threads wait for each other there (`.sync`).
    pub sync: bool,
    /// Whether all threads of a warp are promised to execute the same instruction (`.aligned`).
    pub aligned: bool,
    /// `.nc`, of `ld`.
    pub nc: bool,
    /// `.cg`, `.cv` or `.wt`: whether an access passes by the caches of a block.
    pub uncached: bool,
    /// `.to`, of `cvta`.
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
    pub(crate) fn parse(text: &str) -> Self {
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
            uncached: false,
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
    pub(crate) fn has(&self, modifier: &str) -> bool {
        self.modifiers.iter().any(|m| m == modifier)
    }

    /// The first type.
    pub(crate) fn ty(&self) -> Option<Type> {
        self.types.first().copied()
    }

    /// The state space, if exactly one is named.
    pub(crate) fn space(&self) -> Option<Space> {
        match self.spaces[..] {
            [space] => Some(space),
            _ => None,
        }
    }

    /// Records what a modifier means; false when it goes to `others`.
    fn describe(&mut self, modifier: &str) -> bool {
        let groups = self.opcode.row().modifiers;
        if let Some(ty) = Type::from_name(modifier) {
            self.types.push(ty);
            return true;
        }
        match modifier {
            "ftz" => self.ftz = true,
            "sat" => self.sat = true,
            "approx" => self.approx = true,
            "full" => self.full = true,
            "cc" => self.cc = true,
            "uni" => self.uni = true,
            "sync" => self.sync = true,
            "aligned" => self.aligned = true,
            "nc" => self.nc = true,
            "to" => self.to = true,
            "NaN" => self.nan = true,
            "noftz" => self.noftz = true,
            "v2" | "v4" | "v8" if self.vector == 1 => self.vector = u32::from(modifier.as_bytes()[1] - b'0'),
            // Hints: where copies of the data are kept, for how long, and how much is fetched ahead.
            // Those that pass by the caches which others do not look into.
            "cg" | "cv" | "wt" if groups.contains(&Modifiers::Cached) => self.uncached = true,
            "ca" | "cs" | "lu" | "wb" if groups.contains(&Modifiers::Cached) => {}
            _ if is_cache_hint(modifier) && groups.contains(&Modifiers::Memory) => {}
            _ => return self.describe_enumerated(modifier, groups),
        }
        true
    }

    /// The modifiers that choose from a list; false if it is none of them.
    fn describe_enumerated(&mut self, modifier: &str, groups: &[Modifiers]) -> bool {
        /// Fills an empty field with the value that has this name.
        fn fill<T>(field: &mut Option<T>, value: Option<T>) -> bool {
            let fits = field.is_none() && value.is_some();
            if fits {
                *field = value;
            }
            fits
        }
        if let Some(space) = Space::from_name(modifier) {
            self.spaces.push(space);
            return true;
        }
        fill(&mut self.rounding, Rounding::from_name(modifier))
            || fill(&mut self.int_rounding, IntRounding::from_name(modifier))
            || groups.iter().any(|group| match group {
                Modifiers::Compare => fill(&mut self.compare, Compare::from_name(modifier)),
                Modifiers::Part => fill(&mut self.part, MulPart::from_name(modifier)),
                Modifiers::Combine => fill(&mut self.combine, Combine::from_name(modifier)),
                Modifiers::Memory => {
                    fill(&mut self.semantics, Semantics::from_name(modifier))
                        || fill(&mut self.scope, Scope::from_name(modifier))
                }
                Modifiers::Cached => false,
            })
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
