//! Random numbers, by cuRAND.
//!
//! A program's generator lives in the program's process, and each request says at which place of the generator's
//! sequence it begins. cuRAND's generators go on where they have stopped, so one that has stopped at that place is
//! taken; else a new one is made and set to the place.

use super::table::*;
use super::values::{long, refused};
use rgpu_device::{Code, Result};
use rgpu_libraries::{Distribution, Generator, Random};

const STATUS: Statuses = Statuses {
    prefix: "CURAND_STATUS_",
    known: &[
        (100, "VERSION_MISMATCH", Code::NotSupported),
        (101, "NOT_INITIALIZED", Code::NotInitialized),
        (102, "ALLOCATION_FAILED", Code::OutOfMemory),
        (103, "TYPE_ERROR", Code::InvalidValue),
        (104, "OUT_OF_RANGE", Code::InvalidValue),
        (105, "LENGTH_NOT_MULTIPLE", Code::InvalidValue),
        (106, "DOUBLE_PRECISION_REQUIRED", Code::NotSupported),
        (201, "LAUNCH_FAILURE", Code::LaunchFailed),
        (202, "PREEXISTING_FAILURE", Code::LaunchFailed),
        (203, "INITIALIZATION_FAILED", Code::NotInitialized),
        (204, "ARCH_MISMATCH", Code::NotSupported),
        (999, "INTERNAL_ERROR", Code::LaunchFailed),
    ],
};

functions! {
    property(u32, *mut i32): one "curandGetProperty";
    create(*mut Object, u32): one "curandCreateGenerator";
    destroy(Object): one "curandDestroyGenerator";
    set_stream(Object, Object): one "curandSetStream";
    set_seed(Object, u64): one "curandSetPseudoRandomGeneratorSeed";
    set_place(Object, u64): one "curandSetGeneratorOffset";
    set_dimensions(Object, u32): one "curandSetQuasiRandomGeneratorDimensions";
    bits_32(Object, Address, usize): one "curandGenerate";
    bits_64(Object, Address, usize): one "curandGenerateLongLong";
    uniform_32(Object, Address, usize): one "curandGenerateUniform";
    uniform_64(Object, Address, usize): one "curandGenerateUniformDouble";
    normal_32(Object, Address, usize, f32, f32): one "curandGenerateNormal";
    normal_64(Object, Address, usize, f64, f64): one "curandGenerateNormalDouble";
    log_normal_32(Object, Address, usize, f32, f32): one "curandGenerateLogNormal";
    log_normal_64(Object, Address, usize, f64, f64): one "curandGenerateLogNormalDouble";
    poisson(Object, Address, usize, f64): one "curandGeneratePoisson";
}

/// How many generators are kept for a stream. Each has its state in device memory.
const KEPT: usize = 8;

/// A generator in the current context.
struct Made {
    of: (Generator, u64, u32),
    /// The place in its sequence where it goes on.
    next: u64,
    object: Object,
}

/// The generators of a stream, the one that was used last at the end.
#[derive(Default)]
pub(super) struct Generators(Vec<Made>);

/// Major version, minor version and what comes then.
pub(super) fn version(table: &Table) -> Result<u32> {
    assembled(1000, |which, part| call!(table.property(which, part)))
}

fn is_quasi(generator: Generator) -> bool {
    matches!(generator, Generator::Sobol32 | Generator::Sobol64)
}

/// `curandRngType_t`
fn kind(generator: Generator) -> u32 {
    match generator {
        Generator::Xorwow => 101,
        Generator::Mrg32k3a => 121,
        Generator::Mt19937 => 142,
        Generator::Philox => 161,
        Generator::Sobol32 => 201,
        Generator::Sobol64 => 203,
    }
}

/// How far a request goes in its generator's sequence, as programs' generators count it.
fn length(work: &Random) -> u64 {
    if is_quasi(work.generator) {
        return work.count / u64::from(work.dimensions.max(1));
    }
    let words = match work.distribution {
        Distribution::Bits32
        | Distribution::UniformF32
        | Distribution::NormalF32
        | Distribution::LogNormalF32 => 1,
        _ => 2,
    };
    work.count.wrapping_mul(words)
}

/// Makes a generator whose next number is the one at the request's place.
fn make(table: &Table, work: &Random) -> Result<Object> {
    if work.generator == Generator::Mt19937 && work.place != 0 {
        return refused(
            "numbers from the middle of MT19937's sequence: cuRAND cannot set that generator to a place",
        );
    }
    let mut object = std::ptr::null_mut();
    call!(table.create(&mut object, kind(work.generator)))?;
    let set = || {
        if is_quasi(work.generator) {
            call!(table.set_dimensions(object, work.dimensions))?;
        } else {
            call!(table.set_seed(object, work.seed))?;
        }
        if work.place == 0 { Ok(()) } else { call!(table.set_place(object, work.place)) }
    };
    if let Err(error) = set() {
        let _ = call!(table.destroy(object));
        return Err(error);
    }
    Ok(object)
}

impl Generators {
    /// A generator that goes on at the request's place; it is no longer among those that are kept.
    fn take(&mut self, table: &Table, work: &Random) -> Result<Made> {
        let of = (work.generator, work.seed, work.dimensions);
        if let Some(at) = self.0.iter().position(|made| made.of == of && made.next == work.place) {
            return Ok(self.0.remove(at));
        }
        if self.0.len() >= KEPT {
            let oldest = self.0.remove(0);
            call!(table.destroy(oldest.object))?;
        }
        Ok(Made { of, next: work.place, object: make(table, work)? })
    }

    /// Fills memory with numbers.
    pub(super) fn run(&mut self, table: &Table, work: &Random, stream: Object) -> Result<()> {
        let count = long(work.count)? as usize;
        let mut made = self.take(table, work)?;
        let (to, a, b, object) = (work.addr, work.a, work.b, made.object);
        let (narrow_a, narrow_b) = (a as f32, b as f32);
        let done = call!(table.set_stream(object, stream)).and_then(|()| match work.distribution {
            Distribution::Bits32 => call!(table.bits_32(object, to, count)),
            Distribution::Bits64 => call!(table.bits_64(object, to, count)),
            Distribution::UniformF32 => call!(table.uniform_32(object, to, count)),
            Distribution::UniformF64 => call!(table.uniform_64(object, to, count)),
            Distribution::NormalF32 => call!(table.normal_32(object, to, count, narrow_a, narrow_b)),
            Distribution::NormalF64 => call!(table.normal_64(object, to, count, a, b)),
            Distribution::LogNormalF32 => call!(table.log_normal_32(object, to, count, narrow_a, narrow_b)),
            Distribution::LogNormalF64 => call!(table.log_normal_64(object, to, count, a, b)),
            Distribution::Poisson => call!(table.poisson(object, to, count, a)),
            Distribution::Binomial => refused(
                "binomial numbers: cuRAND's header declares curandGenerateBinomial, and its files lack it",
            ),
        });
        if let Err(error) = done {
            // Nobody knows where it stands now.
            let _ = call!(table.destroy(object));
            return Err(error);
        }
        made.next = work.place.wrapping_add(length(work));
        self.0.push(made);
        Ok(())
    }
}
