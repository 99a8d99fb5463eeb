//! Fourier transforms, by cuFFT.

use super::bench::Room;
use super::table::*;
use super::values::long;
use rgpu_device::{Code, Error, Result};
use rgpu_libraries::{Fft, FftLayout, Transform};

const STATUS: Statuses = Statuses {
    prefix: "CUFFT_",
    known: &[
        (1, "INVALID_PLAN", Code::LaunchFailed),
        (2, "ALLOC_FAILED", Code::OutOfMemory),
        (3, "INVALID_TYPE", Code::InvalidValue),
        (4, "INVALID_VALUE", Code::InvalidValue),
        (5, "INTERNAL_ERROR", Code::LaunchFailed),
        (6, "EXEC_FAILED", Code::LaunchFailed),
        (7, "SETUP_FAILED", Code::LaunchFailed),
        (8, "INVALID_SIZE", Code::InvalidValue),
        (11, "INVALID_DEVICE", Code::InvalidDevice),
        (13, "NO_WORKSPACE", Code::OutOfMemory),
        (14, "NOT_IMPLEMENTED", Code::NotSupported),
        (16, "NOT_SUPPORTED", Code::NotSupported),
    ],
};

functions! {
    property(u32, *mut i32): one "cufftGetProperty";
    create(*mut Plan): one "cufftCreate";
    destroy(Plan): one "cufftDestroy";
    allocates(Plan, i32): one "cufftSetAutoAllocation";
    make(
        Plan, i32, *mut i64, *mut i64, i64, i64, *mut i64, i64, i64, u32, i64, *mut usize
    ): one "cufftMakePlanMany64";
    set_stream(Plan, Object): one "cufftSetStream";
    set_room(Plan, Address): one "cufftSetWorkArea";
    complex_32(Plan, Address, Address, i32): one "cufftExecC2C";
    complex_64(Plan, Address, Address, i32): one "cufftExecZ2Z";
    from_real_32(Plan, Address, Address): one "cufftExecR2C";
    from_real_64(Plan, Address, Address): one "cufftExecD2Z";
    to_real_32(Plan, Address, Address): one "cufftExecC2R";
    to_real_64(Plan, Address, Address): one "cufftExecZ2D";
}

/// `cufftHandle`
type Plan = i32;

/// How many plans are kept for a stream.
const KEPT: usize = 32;

/// A plan in the current context.
struct Made {
    /// What it is for: everything but addresses and direction.
    form: Fft,
    plan: Plan,
    /// Bytes that it works in.
    room: usize,
}

/// The plans of a stream, the one that was used last at the end.
#[derive(Default)]
pub(super) struct Plans(Vec<Made>);

/// Major version, minor version and what comes then.
pub(super) fn version(table: &Table) -> Result<u32> {
    assembled(1000, |which, part| call!(table.property(which, part)))
}

/// What a plan is made for.
fn form(work: &Fft) -> Fft {
    let mut form = work.clone();
    if form.transform == Transform::Inverse {
        form.transform = Transform::Forward;
    }
    (form.input.addr, form.output.addr) = (0, 0);
    form
}

/// `cufftType`
fn kind(work: &Fft) -> u32 {
    let single = match work.transform {
        Transform::Forward | Transform::Inverse => 0x29,
        Transform::RealToComplex => 0x2a,
        Transform::ComplexToReal => 0x2c,
    };
    if work.double { single | 0x40 } else { single }
}

/// Makes a plan that works in memory that it is given.
fn make(table: &Table, work: &Fft) -> Result<(Plan, usize)> {
    // Dimensions that are not there come first.
    let skipped = work.n[..2].iter().take_while(|n| **n == 1).count();
    let longs =
        |values: [u64; 3]| -> Result<Vec<i64>> { values[skipped..].iter().map(|n| long(*n)).collect() };
    let side = |layout: &FftLayout| {
        Ok::<_, Error>((longs(layout.pitch)?, long(layout.stride)?, long(layout.distance)?))
    };
    let (mut n, count) = (longs(work.n)?, long(work.count)?);
    let (mut pitch_in, stride_in, distance_in) = side(&work.input)?;
    let (mut pitch_out, stride_out, distance_out) = side(&work.output)?;
    let mut plan = 0;
    call!(table.create(&mut plan))?;
    let mut bytes = 0;
    let made = (|| {
        call!(table.allocates(plan, 0))?;
        call!(table.make(
            plan,
            n.len() as i32,
            n.as_mut_ptr(),
            pitch_in.as_mut_ptr(),
            stride_in,
            distance_in,
            pitch_out.as_mut_ptr(),
            stride_out,
            distance_out,
            kind(work),
            count,
            &mut bytes
        ))
    })();
    match made {
        Ok(()) => Ok((plan, bytes)),
        Err(error) => {
            let _ = call!(table.destroy(plan));
            Err(error)
        }
    }
}

impl Plans {
    /// The plan for a batch of transforms, and how much room it wants.
    fn plan(&mut self, table: &Table, work: &Fft) -> Result<(Plan, usize)> {
        let form = form(work);
        let made = match self.0.iter().position(|made| made.form == form) {
            Some(at) => self.0.remove(at),
            None => {
                if self.0.len() >= KEPT {
                    let oldest = self.0.remove(0);
                    call!(table.destroy(oldest.plan))?;
                }
                let (plan, room) = make(table, work)?;
                Made { form, plan, room }
            }
        };
        let found = (made.plan, made.room);
        self.0.push(made);
        Ok(found)
    }

    /// Carries out a batch of transforms.
    pub(super) fn run(
        &mut self,
        table: &Table,
        work: &Fft,
        stream: Object,
        room: &mut Room<'_>,
    ) -> Result<()> {
        let (plan, bytes) = self.plan(table, work)?;
        let (from, to) = (work.input.addr, work.output.addr);
        call!(table.set_stream(plan, stream))?;
        let place = room.take(bytes as u64)?;
        if place != 0 {
            call!(table.set_room(plan, place))?;
        }
        match (work.transform, work.double) {
            (Transform::Forward, false) => call!(table.complex_32(plan, from, to, FORWARD)),
            (Transform::Forward, true) => call!(table.complex_64(plan, from, to, FORWARD)),
            (Transform::Inverse, false) => call!(table.complex_32(plan, from, to, INVERSE)),
            (Transform::Inverse, true) => call!(table.complex_64(plan, from, to, INVERSE)),
            (Transform::RealToComplex, false) => call!(table.from_real_32(plan, from, to)),
            (Transform::RealToComplex, true) => call!(table.from_real_64(plan, from, to)),
            (Transform::ComplexToReal, false) => call!(table.to_real_32(plan, from, to)),
            (Transform::ComplexToReal, true) => call!(table.to_real_64(plan, from, to)),
        }
    }
}

/// `CUFFT_FORWARD`
const FORWARD: i32 = -1;
/// `CUFFT_INVERSE`
const INVERSE: i32 = 1;
