//! The table of opcodes: one row for each opcode of PTX that there is.
//!
//! A row says how the opcode is written, which operands it takes ([`operands`]), and which function of
//! [`super::decode`] finds out what it means together with its modifiers ([`form`]). What it means is an
//! operation; the table of those ([`super::op`]) says how it is carried out. To add an opcode, give it operands
//! and a decoder in its row here, and, unless it comes down to operations that exist, add a row there.

mod form;
mod operands;
#[cfg(test)]
mod tests;

pub(super) use form::{Combine, Compare, Form, IntRounding, MulPart, Rounding, Scope, Semantics};
pub(super) use operands::{Checker, Operands};

use super::decode::Reader;
use super::op::Op;
use operands::{
    Role::{self, *},
    Width::{self, *},
    rules,
};

/// What is known about an opcode.
pub(super) struct Row {
    /// How it is written in PTX; empty for what is no opcode.
    pub name: &'static str,
    /// Which operands it takes.
    pub operands: Operands,
    /// Finds out what it means with its modifiers; `None` if nothing that can be executed.
    pub decode: fn(&mut Reader) -> Option<Op>,
    /// Words that mean something as modifiers of this opcode, and something else with others.
    pub modifiers: &'static [Modifiers],
}

/// Groups of modifiers which only some opcodes have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Modifiers {
    /// Of memory operations: order, scope, and hints about the second-level cache.
    Memory,
    /// Hints about how long data stay in caches: `.ca`, `.cg`, …
    Cached,
    /// Comparisons.
    Compare,
    /// Which half of a product.
    Part,
    /// What results are combined with.
    Combine,
}

/// Makes [`Opcode`] and its rows. A row is: the opcode, how it is written, its operands, its decoder, and groups
/// of modifiers that it has. Operands are a list of roles (of which `; n` may be missing at the end), the name of a
/// rule in brackets if they depend on the modifiers, or `any` for opcodes that cannot be executed.
macro_rules! opcodes {
    ($($opcode:ident $name:literal $operands:tt $decode:ident $([$($group:ident)*])?;)*) => {
        /// An opcode, without its modifiers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(super) enum Opcode { $($opcode,)* }

        impl Opcode {
            /// All of them.
            pub(super) const ALL: &'static [Self] = &[$(Self::$opcode,)*];

            /// The opcode that is written so.
            pub(super) fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$opcode),)* _ => None }
            }

            /// What is known about it.
            pub(super) fn row(self) -> &'static Row {
                match self { $(
                    Self::$opcode => {
                        static ROW: Row = Row {
                            name: $name,
                            operands: operands!($operands),
                            decode: Reader::$decode,
                            modifiers: &[$($(Modifiers::$group),*)?],
                        };
                        &ROW
                    }
                )* }
            }
        }
    };
}

macro_rules! operands {
    (any) => { Operands::Any };
    (($rule:ident)) => { Operands::ByForm(rules::$rule) };
    ([$($role:expr),*]) => { Operands::Listed(const { &[$($role),*] as &[Role<Width>] }, 0) };
    ([$($role:expr),*; $optional:literal]) => {
        Operands::Listed(const { &[$($role),*] as &[Role<Width>] }, $optional)
    };
}

/// The width of a form's first type, and of its second one.
const T: Width = OfType(0);
const U: Width = OfType(1);

const PRED: Width = Bits(1);
const W32: Width = Bits(32);
const W64: Width = Bits(64);

opcodes! {
    Abs "abs" [To(T), From(T)] sign;
    Activemask "activemask" [To(W32)] activemask;
    Add "add" [To(T), From(T), From(T)] add;
    Addc "addc" [To(T), From(T), From(T)] add;
    Alloca "alloca" any refused;
    And "and" [To(T), From(T), From(T)] logic;
    Applypriority "applypriority" [Address, Constant] cache_hint;
    Atom "atom" (atom) atomic [Memory Combine];
    Bar "bar" (bar) bar [Combine];
    Barrier "barrier" (bar) bar [Combine];
    Bfe "bfe" [To(T), From(T), From(W32), From(W32)] bfe;
    Bfi "bfi" [To(T), From(T), From(T), From(W32), From(W32)] bfi;
    Bfind "bfind" [To(W32), From(T)] bfind;
    Bmsk "bmsk" [To(W32), From(W32), From(W32)] bmsk;
    Bra "bra" [Target] bra;
    Brev "brev" [To(T), From(T)] count_bits;
    Brkpt "brkpt" [] trap;
    Brx "brx" [From(W32), Targets] brx;
    Call "call" [Arguments, Callee, Arguments, Signature] call;
    Clusterlaunchcontrol "clusterlaunchcontrol" any refused;
    Clz "clz" [To(W32), From(T)] count_bits;
    Cnot "cnot" [To(T), From(T)] not;
    Copysign "copysign" [To(T), From(T), From(T)] copysign;
    Cos "cos" [To(T), From(T)] float_unary;
    Cp "cp" (cp) cp [Memory Cached];
    Createpolicy "createpolicy" (createpolicy) createpolicy;
    Cvt "cvt" (cvt) cvt;
    Cvta "cvta" [To(T), From(T)] cvta;
    Discard "discard" [Address, Constant] cache_hint;
    Div "div" [To(T), From(T), From(T)] div;
    Dp2a "dp2a" [To(W32), From(W32), From(W32), From(W32)] dp2a;
    Dp4a "dp4a" [To(W32), From(W32), From(W32), From(W32)] dp4a;
    Elect "elect" [WithPredicate(W32), From(W32)] elect;
    Ex2 "ex2" [To(T), From(T)] float_unary;
    Exit "exit" [] exit;
    Fence "fence" (fence) fence [Memory];
    Fma "fma" [To(T), From(T), From(T), From(T)] fma;
    Fns "fns" [To(W32), From(W32), From(W32), From(W32)] fns;
    Getctarank "getctarank" [To(W32), From(T)] get_cta_rank;
    Griddepcontrol "griddepcontrol" [] griddepcontrol;
    Isspacep "isspacep" [To(PRED), From(W64)] isspacep;
    Istypep "istypep" [To(PRED), From(W64)] istypep;
    Ld "ld" (load) load [Memory Cached];
    Ldmatrix "ldmatrix" [FragmentTo, Address] ldmatrix;
    Ldu "ldu" (load) load [Memory Cached];
    Lg2 "lg2" [To(T), From(T)] float_unary;
    Lop3 "lop3" (lop3) lop3;
    Mad "mad" (mad) mad [Part];
    Mad24 "mad24" [To(T), From(T), From(T), From(T)] mad24 [Part];
    Madc "madc" [To(T), From(T), From(T), From(T)] mad [Part];
    Mapa "mapa" [To(T), From(T), From(W32)] mapa;
    Match "match" [WithPredicate(W32), From(T), From(W32)] lane_match;
    Max "max" (min_max) min_max;
    Mbarrier "mbarrier" (mbarrier) mbarrier;
    Membar "membar" [] fence [Memory];
    Min "min" (min_max) min_max;
    Mma "mma" (mma) mma;
    Mov "mov" (mov) mov;
    Movmatrix "movmatrix" [To(W32), From(W32)] movmatrix;
    Mul "mul" (mul) mul [Part];
    Mul24 "mul24" [To(T), From(T), From(T)] mul24 [Part];
    Multimem "multimem" any refused;
    Nanosleep "nanosleep" [From(W32)] nanosleep;
    Neg "neg" [To(T), From(T)] sign;
    Not "not" [To(T), From(T)] not;
    Or "or" [To(T), From(T), From(T)] logic;
    Pmevent "pmevent" [Constant] pmevent;
    Popc "popc" [To(W32), From(T)] count_bits;
    Prefetch "prefetch" [Address] cache_hint [Memory];
    Prefetchu "prefetchu" [Address] cache_hint;
    Prmt "prmt" [To(W32), From(W32), From(W32), From(W32)] prmt;
    Rcp "rcp" [To(T), From(T)] float_unary;
    Red "red" (red) atomic [Memory Combine];
    Redux "redux" [To(T), From(T), From(W32)] redux [Combine];
    Rem "rem" [To(T), From(T), From(T)] rem;
    Ret "ret" [] ret;
    Rsqrt "rsqrt" [To(T), From(T)] float_unary;
    Sad "sad" [To(T), From(T), From(T), From(T)] sad;
    Selp "selp" [To(T), From(T), From(T), From(PRED)] selp;
    Set "set" (set) set [Compare Combine];
    Setmaxnreg "setmaxnreg" [Constant] setmaxnreg;
    Setp "setp" (setp) setp [Compare Combine];
    Shf "shf" [To(W32), From(W32), From(W32), From(W32)] shf;
    Shfl "shfl" (shfl) shfl;
    Shl "shl" [To(T), From(T), From(W32)] shift;
    Shr "shr" [To(T), From(T), From(W32)] shift;
    Sin "sin" [To(T), From(T)] float_unary;
    Slct "slct" [To(T), From(T), From(T), From(U)] slct;
    Sqrt "sqrt" [To(T), From(T)] float_unary;
    St "st" (store) store [Memory Cached];
    Stackrestore "stackrestore" any refused;
    Stacksave "stacksave" any refused;
    Stmatrix "stmatrix" [Address, FragmentFrom] stmatrix;
    Sub "sub" [To(T), From(T), From(T)] add;
    Subc "subc" [To(T), From(T), From(T)] add;
    Suld "suld" (suld) suld [Cached];
    Suq "suq" (texture_query) texture_query;
    Sured "sured" (sured) sured [Cached Combine];
    Sust "sust" (sust) sust [Cached];
    Szext "szext" [To(W32), From(W32), From(W32)] szext;
    Tanh "tanh" [To(T), From(T)] float_unary;
    Tcgen05 "tcgen05" any refused;
    Tensormap "tensormap" (tensormap) tensormap [Memory];
    Testp "testp" [To(PRED), From(T)] testp;
    Tex "tex" (tex) tex;
    Tld4 "tld4" (tld4) tld4;
    Trap "trap" [] trap;
    Txq "txq" (texture_query) texture_query;
    Unknown "" any refused;
    Vabsdiff "vabsdiff" (video) video;
    Vabsdiff2 "vabsdiff2" (video) video;
    Vabsdiff4 "vabsdiff4" (video) video;
    Vadd "vadd" (video) video;
    Vadd2 "vadd2" (video) video;
    Vadd4 "vadd4" (video) video;
    Vavrg2 "vavrg2" (video) video;
    Vavrg4 "vavrg4" (video) video;
    Vmad "vmad" [To(W32), SignedPart, SignedPart, Signed] vmad;
    Vmax "vmax" (video) video;
    Vmax2 "vmax2" (video) video;
    Vmax4 "vmax4" (video) video;
    Vmin "vmin" (video) video;
    Vmin2 "vmin2" (video) video;
    Vmin4 "vmin4" (video) video;
    Vote "vote" (vote) vote;
    Vset "vset" (video) video;
    Vset2 "vset2" (video) video;
    Vset4 "vset4" (video) video;
    Vshl "vshl" (video) video;
    Vshr "vshr" (video) video;
    Vsub "vsub" (video) video;
    Vsub2 "vsub2" (video) video;
    Vsub4 "vsub4" (video) video;
    Wgmma "wgmma" (wgmma) wgmma;
    Wmma "wmma" (wmma) wmma;
    Xor "xor" [To(T), From(T), From(T)] logic;
}
