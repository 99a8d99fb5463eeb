//! IEEE arithmetic on bits, by `rustc_apfloat`; square roots by integers.

use rustc_apfloat::ieee::{BFloat, Double, Half, Single};
use rustc_apfloat::{Float, FloatConvert, Round};

use super::case::Want;

/// A floating-point format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    F16,
    Bf16,
    F32,
    F64,
}

/// A rounding mode by its PTX name.
pub(crate) fn round(name: &str) -> Round {
    match name {
        "rn" | "rni" => Round::NearestTiesToEven,
        "rz" | "rzi" => Round::TowardZero,
        "rm" | "rmi" => Round::TowardNegative,
        "rp" | "rpi" => Round::TowardPositive,
        "rna" => Round::NearestTiesToAway,
        _ => panic!("{name} is no rounding mode"),
    }
}

macro_rules! by_format {
    ($format:expr, $F:ident => $body:expr) => {
        match $format {
            Format::F16 => {
                type $F = Half;
                $body
            }
            Format::Bf16 => {
                type $F = BFloat;
                $body
            }
            Format::F32 => {
                type $F = Single;
                $body
            }
            Format::F64 => {
                type $F = Double;
                $body
            }
        }
    };
}

impl Format {
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::F16 | Self::Bf16 => 16,
            Self::F32 => 32,
            Self::F64 => 64,
        }
    }

    /// Bits of the fraction.
    pub(crate) fn fraction(self) -> u32 {
        match self {
            Self::F16 => 10,
            Self::Bf16 => 7,
            Self::F32 => 23,
            Self::F64 => 52,
        }
    }

    fn sign(self) -> u64 {
        1 << (self.bits() - 1)
    }

    /// The bits of infinity.
    pub(crate) fn infinity(self) -> u64 {
        (self.sign() - 1) >> self.fraction() << self.fraction()
    }

    pub(crate) fn is_nan(self, a: u64) -> bool {
        a & (self.sign() - 1) > self.infinity()
    }

    pub(crate) fn is_zero(self, a: u64) -> bool {
        a & (self.sign() - 1) == 0
    }

    fn is_subnormal(self, a: u64) -> bool {
        a & self.infinity() == 0 && !self.is_zero(a)
    }

    /// Replaces a subnormal number by a zero of its sign.
    pub(crate) fn flush(self, a: u64) -> u64 {
        if self.is_subnormal(a) { a & self.sign() } else { a }
    }

    /// These bits, or any NaN if they are one.
    pub(crate) fn want(self, bits: u64) -> Want {
        match (self.is_nan(bits), self) {
            (false, _) => Want::Bits(bits),
            (true, Self::F16) => Want::NanF16,
            (true, Self::Bf16) => Want::NanBf16,
            (true, Self::F32) => Want::NanF32,
            (true, Self::F64) => Want::NanF64,
        }
    }

    /// The same for an operation that may saturate, where the sign of a zero is not specified; or that replaces numbers which are too
    /// small by zero: devices do so with what rounds up to the least that is not, too.
    pub(crate) fn want_of(self, opcode: &str, bits: u64) -> Want {
        if opcode.contains(".sat") && self.is_zero(bits) {
            return Want::OneOf(vec![Want::Bits(0), Want::Bits(self.sign())]);
        }
        let least = 1 << self.fraction();
        if opcode.contains(".ftz") && bits & !self.sign() == least {
            let zero = if opcode.contains(".sat") { 0 } else { bits & self.sign() };
            return Want::OneOf(vec![Want::Bits(bits), Want::Bits(zero)]);
        }
        self.want(bits)
    }

    /// `+`, `-`, `*`, `/`.
    pub(crate) fn binary(self, operator: char, a: u64, b: u64, mode: &str) -> u64 {
        let mode = round(mode);
        by_format!(self, F => {
            let (a, b) = (F::from_bits(a.into()), F::from_bits(b.into()));
            let result = match operator {
                '+' => a.add_r(b, mode),
                '-' => a.sub_r(b, mode),
                '*' => a.mul_r(b, mode),
                '/' => a.div_r(b, mode),
                _ => panic!("{operator} is no operator"),
            };
            result.value.to_bits() as u64
        })
    }

    /// `a * b + c`, rounded once.
    pub(crate) fn fma(self, a: u64, b: u64, c: u64, mode: &str) -> u64 {
        let mode = round(mode);
        by_format!(self, F => {
            let [a, b, c] = [a, b, c].map(|v| F::from_bits(v.into()));
            a.mul_add_r(b, c, mode).value.to_bits() as u64
        })
    }

    /// Rounds to an integral value.
    pub(crate) fn integral(self, a: u64, mode: &str) -> u64 {
        by_format!(self, F => F::from_bits(a.into()).round_to_integral(round(mode)).value.to_bits() as u64)
    }

    /// The number as an `f64`; exact for all formats.
    pub(crate) fn to_f64(self, a: u64) -> f64 {
        f64::from_bits(self.convert(a, Self::F64, "rn"))
    }

    /// The same number in another format.
    pub(crate) fn convert(self, a: u64, to: Self, mode: &str) -> u64 {
        let mode = round(mode);
        let mut loses = false;
        by_format!(self, F => {
            let a = F::from_bits(a.into());
            if self == to {
                return a.to_bits() as u64;
            }
            match to {
                Self::F16 => FloatConvert::<Half>::convert_r(a, mode, &mut loses).value.to_bits() as u64,
                Self::Bf16 => FloatConvert::<BFloat>::convert_r(a, mode, &mut loses).value.to_bits() as u64,
                Self::F32 => FloatConvert::<Single>::convert_r(a, mode, &mut loses).value.to_bits() as u64,
                Self::F64 => FloatConvert::<Double>::convert_r(a, mode, &mut loses).value.to_bits() as u64,
            }
        })
    }

    /// The integer nearest in the mode's sense, clamped to the type's range. NaN becomes what PTX says:
    /// 0, or, for 64-bit results and `f64` sources, the number with only the top bit set.
    pub(crate) fn to_integer(self, a: u64, mode: &str, signed: bool, bits: u32) -> i128 {
        let (low, high) = if signed {
            (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
        } else {
            (0, (1i128 << bits) - 1)
        };
        if self.is_nan(a) {
            return 0;
        }
        let value = self.to_f64(self.integral(a, mode));
        // Integral numbers beyond 2^100 are clamped anyway.
        if value > 1e30 {
            high
        } else if value < -1e30 {
            low
        } else {
            (value as i128).clamp(low, high)
        }
    }

    /// An integer in this format.
    pub(crate) fn integer(self, value: i128, mode: &str) -> u64 {
        let mode = round(mode);
        by_format!(self, F => F::from_i128_r(value, mode).value.to_bits() as u64)
    }

    /// The square root. The root of the significand is taken in integers, with more bits than are needed,
    /// and what is left over is kept in the last one.
    pub(crate) fn sqrt(self, a: u64, mode: &str) -> u64 {
        if self.is_nan(a) || self.is_zero(a) || a == self.infinity() {
            return a;
        }
        if a & self.sign() != 0 {
            return self.infinity() | 1 << (self.fraction() - 1);
        }
        let value = self.to_f64(a);
        // value = significand * 2^exponent with an even exponent; subnormal doubles are scaled first.
        let (scaled, shift) = if value < 1e-290 { (value * 2f64.powi(200), 200) } else { (value, 0) };
        let raw = scaled.to_bits();
        let mut significand = u128::from(raw & ((1 << 52) - 1) | 1 << 52);
        let mut exponent = (raw >> 52) as i32 - 1075 - shift;
        if exponent % 2 != 0 {
            significand *= 2;
            exponent -= 1;
        }
        significand <<= 70;
        exponent -= 70;
        let root = significand.isqrt();
        // Between root and root + 1: a half in units of root, on a doubled scale.
        let sticky = u128::from(root * root != significand);
        let (bits, exponent) = (root * 2 + sticky, exponent / 2 - 1);
        let mode = round(mode);
        by_format!(self, F => {
            // An exact quadruple of the integer, then one rounding to the format.
            let exact = rustc_apfloat::ieee::Quad::from_u128(bits).value.scalbn(exponent);
            let mut loses = false;
            FloatConvert::<F>::convert_r(exact, mode, &mut loses).value.to_bits() as u64
        })
    }

    /// The smaller or larger; a NaN loses against a number; -0 is smaller than 0.
    pub(crate) fn min_max(self, a: u64, b: u64, maximum: bool) -> u64 {
        match (self.is_nan(a), self.is_nan(b)) {
            (true, _) => b,
            (_, true) => a,
            _ => {
                // Order of the bits as sign and magnitude.
                let key =
                    |v: u64| if v & self.sign() != 0 { -((v & !self.sign()) as i128) - 1 } else { v as i128 };
                if (key(a) > key(b)) == maximum { a } else { b }
            }
        }
    }

    /// Clamps to `[0, 1]`; NaN becomes 0.
    pub(crate) fn saturate(self, a: u64) -> u64 {
        let one = self.integer(1, "rn");
        if self.is_nan(a) || a & self.sign() != 0 {
            0
        } else if a > one {
            one
        } else {
            a
        }
    }
}
