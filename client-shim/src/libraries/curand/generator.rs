//! Generators: how they are made and set up.

use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rgpu_libraries::Generator as Kind32;

use super::CURAND;
use crate::core::registry::Registry;
use crate::libraries::math::{Kind, Out, Result, fail, invalid, math, missing, property};

/// A generator of the program's.
#[derive(Debug, Clone)]
pub(super) struct Generator {
    /// What it is.
    pub(super) of: Kind32,
    /// Whether its numbers are made in this process, for the program's own memory.
    pub(super) on_host: bool,
    pub(super) stream: usize,
    pub(super) seed: u64,
    pub(super) dimensions: u32,
    /// Where its sequence begins, as the program said.
    pub(super) offset: u64,
    /// How far it is from there.
    pub(super) taken: u64,
}

impl Generator {
    /// Whether it makes points.
    pub(super) fn is_quasi(&self) -> bool {
        matches!(self.of, Kind32::Sobol32 | Kind32::Sobol64)
    }
}

static GENERATORS: LazyLock<Registry<Mutex<Generator>>> = LazyLock::new(|| Registry::new("cuRAND generator"));

/// The generator of a handle.
pub(super) fn get(handle: usize) -> Result<Arc<Mutex<Generator>>> {
    Ok(GENERATORS.get(handle)?)
}

/// A generator by `curandRngType`.
fn create(out: Out<usize>, kind: u32, on_host: bool) -> Result<()> {
    out.check()?;
    let of = match kind {
        100 | 101 => Kind32::Xorwow,
        121 => Kind32::Mrg32k3a,
        141 => return missing("cuRAND: the generator MTGP32"),
        142 => Kind32::Mt19937,
        161 => Kind32::Philox,
        200 | 201 => Kind32::Sobol32,
        202 => return missing("cuRAND: the generator SCRAMBLED_SOBOL32"),
        203 => Kind32::Sobol64,
        204 => return missing("cuRAND: the generator SCRAMBLED_SOBOL64"),
        other => return fail(Kind::InvalidType, format!("There is no curandRngType {other}")),
    };
    if !on_host {
        CURAND.version()?;
    }
    let generator = Generator { of, on_host, stream: 0, seed: 0, dimensions: 1, offset: 0, taken: 0 };
    let mut handle = 0;
    GENERATORS.insert(|raw| {
        handle = raw;
        Mutex::new(generator)
    });
    out.set(handle)
}

math! {
    CURAND;

    fn curandCreateGenerator(out: Out<usize>, kind: u32) {
        create(out, kind, false)
    }

    fn curandCreateGeneratorHost(out: Out<usize>, kind: u32) {
        create(out, kind, true)
    }

    fn curandDestroyGenerator(handle: usize) {
        GENERATORS.remove(handle)?;
        Ok(())
    }

    fn curandGetVersion(version: Out<i32>) {
        version.check()?;
        version.set(CURAND.version()? as i32)
    }

    fn curandGetProperty(which: u32, value: Out<i32>) {
        value.check()?;
        value.set(property(CURAND.version()?, 1000, 100, which)?)
    }

    fn curandSetStream(handle: usize, stream: usize) {
        get(handle)?.lock().stream = stream;
        Ok(())
    }

    /// The sequence begins anew.
    fn curandSetPseudoRandomGeneratorSeed(handle: usize, seed: u64) {
        let generator = get(handle)?;
        let mut generator = generator.lock();
        if generator.is_quasi() {
            return fail(Kind::InvalidType, "A quasirandom generator has no seed");
        }
        (generator.seed, generator.taken) = (seed, 0);
        Ok(())
    }

    fn curandSetGeneratorOffset(handle: usize, offset: u64) {
        let generator = get(handle)?;
        let mut generator = generator.lock();
        if generator.of == Kind32::Mt19937 {
            return fail(Kind::InvalidType, "MT19937 has no offset");
        }
        (generator.offset, generator.taken) = (offset, 0);
        Ok(())
    }

    /// All orders are the same here: that of the sequence.
    fn curandSetGeneratorOrdering(handle: usize, order: u32) {
        let generator = get(handle)?;
        let quasi = generator.lock().is_quasi();
        if !(if quasi { 201..=201 } else { 100..=104 }).contains(&order) {
            return invalid(format!("There is no order {order} of such a generator's numbers"));
        }
        Ok(())
    }

    fn curandSetQuasiRandomGeneratorDimensions(handle: usize, dimensions: u32) {
        let generator = get(handle)?;
        let mut generator = generator.lock();
        if !generator.is_quasi() {
            return fail(Kind::InvalidType, "A pseudorandom generator has no dimensions");
        }
        if !(1..=20_000).contains(&dimensions) {
            return invalid(format!("Points of {dimensions} dimensions"));
        }
        if dimensions as usize > rgpu_random::quasi::DIMENSIONS {
            return missing(&format!(
                "cuRAND: Sobol points of more than {} dimensions",
                rgpu_random::quasi::DIMENSIONS
            ));
        }
        (generator.dimensions, generator.taken) = (dimensions, 0);
        Ok(())
    }

    /// There is nothing to prepare.
    fn curandGenerateSeeds(handle: usize) {
        get(handle).map(drop)
    }
}
