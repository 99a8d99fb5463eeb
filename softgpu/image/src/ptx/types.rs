//! Types and state spaces: the modifiers that declarations and instructions share.

/// Makes an enum of things that PTX has words for: `from_name`, `name`, `ALL` and `Display` come with it.
#[doc(hidden)]
#[macro_export]
macro_rules! ptx_words {
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
            /// All values, in the order in which they are declared.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.name()) }
        }
    };
}

crate::ptx_words! {
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

    /// Whether it is a texture, sampler or surface reference.
    pub fn is_opaque(self) -> bool {
        matches!(self, Self::TexRef | Self::SamplerRef | Self::SurfRef)
    }

    /// Whether it is untyped bits.
    pub fn is_bits(self) -> bool {
        use Type::*;
        matches!(self, B8 | B16 | B32 | B64 | B128)
    }
}

crate::ptx_words! {
    /// A state space.
    Space {
        Reg = "reg", Const = "const", Global = "global", Local = "local", Param = "param", Shared = "shared",
        SharedCta = "shared::cta", SharedCluster = "shared::cluster", ParamEntry = "param::entry",
        ParamFunc = "param::func", Tex = "tex", Sreg = "sreg",
    }
}
