//! Vectors.

use super::super::table::call;
use super::super::values::{Given, Number, complex_letter, is_complex, long, part, refused, short};
use super::Blas;
use super::table::STATUS;
use rgpu_device::Result;
use rgpu_libraries::{Combination, Combine, DataType, Reduce, Reduction};

impl Blas<'_> {
    /// Something that is done to each element of two vectors.
    pub(super) fn combine(&self, work: &Combine) -> Result<()> {
        let Combine { x, y, .. } = work;
        let (t, h, n, compute) = (self.table, self.handle, long(work.n)?, work.compute as u32);
        let (kind_x, kind_y) = (x.kind as u32, y.kind as u32);
        let alpha = Given::new(&work.alpha, work.alpha_kind);
        let beta = Given::new(&work.beta, work.beta_kind);
        let (alpha, beta, kind) = (alpha.place(), beta.place(), work.alpha_kind as u32);
        match work.what {
            Combination::Axpy => {
                self.factors_are(&[&work.alpha])?;
                call!(t.axpy(h, n, alpha, kind, x.addr, kind_x, x.inc, y.addr, kind_y, y.inc, compute))
            }
            Combination::Scale => {
                self.factors_are(&[&work.alpha])?;
                match (x.kind, is_complex(work.alpha_kind)) {
                    (DataType::C32, false) => call!(t.scale_by_real_32(h, n, alpha, x.addr, x.inc)),
                    (DataType::C64, false) => call!(t.scale_by_real_64(h, n, alpha, x.addr, x.inc)),
                    _ => call!(t.scale(h, n, alpha, kind, x.addr, kind_x, x.inc, compute)),
                }
            }
            Combination::Copy => call!(t.copy(h, n, x.addr, kind_x, x.inc, y.addr, kind_y, y.inc)),
            Combination::Swap => call!(t.swap(h, n, x.addr, kind_x, x.inc, y.addr, kind_y, y.inc)),
            Combination::Rotate => {
                self.factors_are(&[&work.alpha, &work.beta])?;
                // The general form takes a cosine and a sine of one type.
                if work.alpha_kind != work.beta_kind {
                    let letter = complex_letter(x.kind)?;
                    return call!(t.rotate_complex[letter](h, n, x.addr, x.inc, y.addr, y.inc, alpha, beta));
                }
                call!(
                    t.rotate(h, n, x.addr, kind_x, x.inc, y.addr, kind_y, y.inc, alpha, beta, kind, compute)
                )
            }
            Combination::RotateModified => self.rotate_modified(work),
        }
    }

    fn rotate_modified(&self, work: &Combine) -> Result<()> {
        let Combine { x, y, .. } = work;
        let (t, h, n) = (self.table, self.handle, long(work.n)?);
        let on_device = work.numbers_addr != 0;
        call!(t.set_mode(h, u32::from(on_device)))?;
        // Five numbers of one type, one behind the other.
        let bytes = work.alpha_kind.bytes() as usize;
        let mut numbers = [Number::new([0.0; 2], DataType::F32); 3];
        for (i, value) in work.numbers.iter().enumerate() {
            let number = Number::new([*value, 0.0], work.alpha_kind);
            // SAFETY: five numbers of at most eight bytes fit into 48.
            unsafe {
                let at = numbers.as_mut_ptr().cast::<u8>().add(i * bytes.min(8));
                at.copy_from_nonoverlapping(number.place().cast(), bytes.min(8));
            }
        }
        let place = match on_device {
            true => std::ptr::without_provenance(work.numbers_addr as usize),
            false => numbers.as_ptr().cast(),
        };
        let (kind_x, kind_y, kind, compute) =
            (x.kind as u32, y.kind as u32, work.alpha_kind as u32, work.compute as u32);
        call!(t.rotate_modified(h, n, x.addr, kind_x, x.inc, y.addr, kind_y, y.inc, place, kind, compute))
    }

    /// One number of one or two vectors.
    pub(super) fn reduce(&self, work: &Reduce) -> Result<()> {
        self.results_are_the_devices()?;
        let Reduce { x, y, result, .. } = work;
        let (t, h, n) = (self.table, self.handle, long(work.n)?);
        let (kind_x, kind_y, kind) = (x.kind as u32, y.kind as u32, work.result_kind as u32);
        let compute = work.compute as u32;
        // What is summed up of complex numbers is real here.
        let real = part(work.compute) as u32;
        match (work.what, work.result_kind) {
            (Reduction::Dot, _) => {
                call!(t.dot(h, n, x.addr, kind_x, x.inc, y.addr, kind_y, y.inc, *result, kind, compute))
            }
            (Reduction::DotConjugated, _) => {
                call!(t.dot_conjugated(
                    h, n, x.addr, kind_x, x.inc, y.addr, kind_y, y.inc, *result, kind, compute
                ))
            }
            (Reduction::Norm, _) => call!(t.norm(h, n, x.addr, kind_x, x.inc, *result, kind, real)),
            (Reduction::AbsoluteSum, _) => {
                call!(t.absolute_sum(h, n, x.addr, kind_x, x.inc, *result, kind, real))
            }
            (Reduction::Greatest, DataType::I64) => {
                call!(t.greatest(h, n, x.addr, kind_x, x.inc, *result))
            }
            (Reduction::Least, DataType::I64) => call!(t.least(h, n, x.addr, kind_x, x.inc, *result)),
            (what, DataType::I32) => {
                let (n, inc) = (short(work.n)?, short(x.inc.unsigned_abs())?);
                let inc = if x.inc < 0 { -inc } else { inc };
                match what {
                    Reduction::Greatest => call!(t.greatest_short(h, n, x.addr, kind_x, inc, *result)),
                    _ => call!(t.least_short(h, n, x.addr, kind_x, inc, *result)),
                }
            }
            (what, other) => refused(format!("{what:?} as a number of {other:?}")),
        }
    }
}
