//! Symmetric matrices that are not definite, eigenvalues of any matrix, bidiagonal forms, and least squares.

use super::super::bench::Room;
use super::super::table::*;
use super::super::values::{letter, long, refused, short};
use super::{STATUS, Solver, Table, elements};
use rgpu_device::Result;
use rgpu_libraries::{Batch, Bidiagonal, DataType, Eigen, Indefinite, LeastSquares, Task};

impl Solver {
    pub(super) fn indefinite(&mut self, t: &Table, work: &Indefinite, room: &mut Room<'_>) -> Result<()> {
        let (h, fill) = (self.handle, u32::from(work.upper));
        let Indefinite { a, b, pivots, info, .. } = work;
        if work.task == Task::Factor && !work.wide {
            let (letter, n, lda, mut size) = (letter(a.kind)?, short(work.n)?, short(a.ld)?, 0);
            call!(t.sytrf_size[letter](h, n, a.addr, lda, &mut size))?;
            let place = room.take(elements(size, a.kind))?;
            return call!(t.sytrf[letter](h, fill, n, a.addr, lda, *pivots, place, size, *info));
        }
        if work.task != Task::Solve || !(work.wide || *pivots == 0) {
            return refused("symmetric factors with pivots of 64 bits, or systems with pivots of 32");
        }
        let (kind, n, columns) = (a.kind as u32, long(work.n)?, long(work.columns)?);
        let (lda, ldb, mut device, mut host) = (long(a.ld)?, long(b.ld)?, 0, 0);
        call!(t.sytrs_size(
            h,
            fill,
            n,
            columns,
            kind,
            a.addr,
            lda,
            *pivots,
            kind,
            b.addr,
            ldb,
            &mut device,
            &mut host
        ))?;
        let (place, memory) = (room.take(device as u64)?, self.host(host));
        call!(t.sytrs(
            h, fill, n, columns, kind, a.addr, lda, *pivots, kind, b.addr, ldb, place, device, memory, host,
            *info
        ))
    }

    pub(super) fn any_eigen(&mut self, t: &Table, work: &Eigen, room: &mut Room<'_>) -> Result<()> {
        let (h, p, kind, n) = (self.handle, self.params, work.a.kind as u32, long(work.n)?);
        let Eigen { a, values, vectors, info, .. } = work;
        let complex = match a.kind {
            DataType::F32 | DataType::C32 => DataType::C32,
            _ => DataType::C64,
        };
        let of_values = if work.apart { kind } else { complex as u32 };
        let (right, lda, ldv) = (u32::from(vectors.addr != 0), long(a.ld)?, long(vectors.ld.max(1))?);
        let (mut device, mut host) = (0, 0);
        call!(t.geev_size(
            h,
            p,
            0,
            right,
            n,
            kind,
            a.addr,
            lda,
            of_values,
            *values,
            kind,
            0,
            1,
            kind,
            vectors.addr,
            ldv,
            kind,
            &mut device,
            &mut host
        ))?;
        let (place, memory) = (room.take(device as u64)?, self.host(host));
        call!(t.geev(
            h,
            p,
            0,
            right,
            n,
            kind,
            a.addr,
            lda,
            of_values,
            *values,
            kind,
            0,
            1,
            kind,
            vectors.addr,
            ldv,
            kind,
            place,
            device,
            memory,
            host,
            *info
        ))
    }

    pub(super) fn bidiagonal(&mut self, t: &Table, work: &Bidiagonal, room: &mut Room<'_>) -> Result<()> {
        let (h, letter, mut size) = (self.handle, letter(work.a.kind)?, 0);
        let (m, n, lda) = (short(work.m)?, short(work.n)?, short(work.a.ld)?);
        let Bidiagonal { a, diagonal, beside, tau_q, tau_p, info, .. } = work;
        call!(t.gebrd_size[letter](h, m, n, &mut size))?;
        let place = room.take(elements(size, a.kind))?;
        call!(t.gebrd[letter](h, m, n, a.addr, lda, *diagonal, *beside, *tau_q, *tau_p, place, size, *info))
    }

    pub(super) fn least_squares(
        &mut self,
        t: &Table,
        work: &LeastSquares,
        room: &mut Room<'_>,
    ) -> Result<()> {
        if work.batch == Batch::Pointers || work.count != 1 || work.x.addr == 0 || work.keeps {
            return refused("batches of least squares, or what leaves factors");
        }
        let (h, letter, mut size, mut iterations) = (self.handle, letter(work.a.kind)?, 0, 0);
        let LeastSquares { a, b, x, info, .. } = work;
        let (m, n, columns) = (short(work.m)?, short(work.n)?, short(work.columns)?);
        let (lda, ldb, ldx) = (short(a.ld)?, short(b.ld)?, short(x.ld)?);
        call!(t.gels_size[letter](h, m, n, columns, a.addr, lda, b.addr, ldb, x.addr, ldx, 0, &mut size))?;
        let place = room.take(size as u64)?;
        call!(t.gels[letter](
            h,
            m,
            n,
            columns,
            a.addr,
            lda,
            b.addr,
            ldb,
            x.addr,
            ldx,
            place,
            size,
            &mut iterations,
            *info
        ))
    }
}
