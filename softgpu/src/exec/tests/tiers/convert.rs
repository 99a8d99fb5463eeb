//! Conversions.

use rustc_apfloat::ieee::{Double, Half, Single};
use rustc_apfloat::{Float, FloatConvert};

use super::float;
use super::ops::Class::{self, D, F, H, V, W, X};
use super::ops::{ROUNDINGS, Table, by_class, canonical_text, extend, f32_of};

impl Table {
    pub(super) fn conversions(&mut self) {
        const INTEGERS: [(&str, u32, bool, Class); 8] = [
            ("u8", 8, false, V),
            ("s8", 8, true, V),
            ("u16", 16, false, H),
            ("s16", 16, true, H),
            ("u32", 32, false, V),
            ("s32", 32, true, V),
            ("u64", 64, false, W),
            ("s64", 64, true, W),
        ];
        let number = |value: u64, bits: u32, signed: bool| match signed {
            true => i128::from(extend(value, bits)),
            false => i128::from(value & (u64::MAX >> (64 - bits))),
        };
        for (from, from_bits, from_signed, from_class) in INTEGERS {
            for (to, to_bits, to_signed, to_class) in INTEGERS {
                if to_bits == 8 {
                    continue;
                }
                self.add(format!("cvt.{to}.{from}"), to_class, &[from_class], move |a| {
                    number(a[0], from_bits, from_signed) as u64
                });
                let (low, high) = if to_signed {
                    (-(1i128 << (to_bits - 1)), (1i128 << (to_bits - 1)) - 1)
                } else {
                    (0, (1i128 << to_bits) - 1)
                };
                // There is no such instruction where every number fits.
                let fits = from_bits + u32::from(to_signed && !from_signed) <= to_bits
                    && (to_signed || !from_signed);
                if fits {
                    continue;
                }
                self.add(format!("cvt.sat.{to}.{from}"), to_class, &[from_class], move |a| {
                    number(a[0], from_bits, from_signed).clamp(low, high) as u64
                });
            }
            for (class, ty) in [(F, "f32"), (D, "f64"), (X, "f16")] {
                for (mode, round) in ROUNDINGS {
                    self.add(format!("cvt.{mode}.{ty}.{from}"), class, &[from_class], move |a| {
                        let value = number(a[0], from_bits, from_signed);
                        by_class!(class, T => T::from_i128_r(value, round).value.to_bits() as u64)
                    });
                }
                if from_bits == 8 {
                    continue;
                }
                for (mode, round) in ROUNDINGS {
                    // Of what is no number comes another one from a double, and to 64 bits.
                    let nan = if class == D || from_bits == 64 { 1u64 << (from_bits - 1) } else { 0 };
                    self.add(format!("cvt.{mode}i.{from}.{ty}"), from_class, &[class], move |a| {
                        float::to_integer(class, a[0], round, from_signed, from_bits).unwrap_or(nan)
                    });
                }
            }
        }
        for (mode, round) in ROUNDINGS {
            self.add(format!("cvt.{mode}.f32.f64"), F, &[D], move |a| {
                let mut lost = false;
                FloatConvert::<Single>::convert_r(Double::from_bits(a[0].into()), round, &mut lost)
                    .value
                    .to_bits() as u64
            });
            self.add(format!("cvt.{mode}.f16.f32"), X, &[F], move |a| {
                let mut lost = false;
                FloatConvert::<Half>::convert_r(Single::from_bits(a[0].into()), round, &mut lost)
                    .value
                    .to_bits() as u64
            });
            for (class, ty) in [(F, "f32"), (D, "f64"), (X, "f16")] {
                self.add(format!("cvt.{mode}i.{ty}.{ty}"), class, &[class], move |a| {
                    by_class!(class, T => T::from_bits(a[0].into()).round_to_integral(round).value.to_bits() as u64)
                });
            }
        }
        self.add("cvt.f64.f32", D, &[F], |a| f64::from(f32_of(a[0])).to_bits());
        self.add("cvt.f32.f16", F, &[X], |a| {
            let mut lost = false;
            FloatConvert::<Single>::convert(Half::from_bits(a[0].into()), &mut lost).value.to_bits() as u64
        });
        // The bits of a number, and a number of such bits.
        for (class, int, bits) in [(F, V, 32), (D, W, 64), (X, H, 16)] {
            self.add(canonical_text(class, "$a", "$d"), int, &[class], move |a| class.canonical(a[0]));
            self.add(format!("mov.b{bits} $d, $a;"), class, &[int], |a| a[0]);
        }
    }
}
