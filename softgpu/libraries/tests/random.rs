//! Random numbers on the device: the sequences themselves are tested where they are made.

mod rig;

use rgpu_device::Code;
use rgpu_libraries::{Distribution, Generator, Random};
use rgpu_random::{Pseudo, fill};
use rig::Rig;

fn random(generator: Generator, distribution: Distribution, addr: u64, count: u64) -> Random {
    Random {
        generator,
        distribution,
        addr,
        count,
        seed: 7,
        dimensions: 3,
        a: 1.5,
        b: 0.5,
        ..Random::default()
    }
}

#[test]
fn memory_is_filled_with_the_sequence_however_many_threads_do_it() {
    let rig = Rig::shared();
    let count = 3 * 50_001;
    for (generator, of) in [
        (Generator::Xorwow, Pseudo::Xorwow),
        (Generator::Mrg32k3a, Pseudo::Mrg32k3a),
        (Generator::Mt19937, Pseudo::Mt19937),
        (Generator::Philox, Pseudo::Philox),
        (Generator::Sobol32, Pseudo::Sobol32(3)),
        (Generator::Sobol64, Pseudo::Sobol64(3)),
    ] {
        for (distribution, wanted) in [
            (Distribution::Bits32, rgpu_random::Distribution::Bits32),
            (Distribution::NormalF32, rgpu_random::Distribution::NormalF32(1.5, 0.5)),
            (Distribution::LogNormalF64, rgpu_random::Distribution::LogNormalF64(1.5, 0.5)),
            (Distribution::Poisson, rgpu_random::Distribution::Poisson(1.5)),
        ] {
            let bytes = count * wanted.bytes();
            let addr = rig.put(&vec![0u8; bytes as usize]);
            rig.call(&Random { place: 9, ..random(generator, distribution, addr, count) }).unwrap();
            let mut expected = vec![0; bytes as usize];
            fill(of, (7, 9), wanted, (0, count / 3), &mut expected);
            assert!(
                rig.get::<u8>(addr, expected.len()).unwrap() == expected,
                "{generator:?} {distribution:?}"
            );
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_and_what_is_missing_is_named() {
    let rig = Rig::new();
    let addr = rig.put(&[0u32; 30]);
    let good = random(Generator::Sobol32, Distribution::Poisson, addr, 30);
    rig.call(&good).unwrap();
    let refused = |random: Random, code| assert_eq!(rig.call(&random).unwrap_err().code, code, "{random:?}");
    refused(Random { count: 29, ..good.clone() }, Code::InvalidValue);
    refused(Random { a: -1.0, ..good.clone() }, Code::InvalidValue);
    refused(Random { a: f64::NAN, ..good.clone() }, Code::InvalidValue);
    refused(Random { distribution: Distribution::Binomial, b: 1.5, ..good.clone() }, Code::InvalidValue);
    refused(Random { dimensions: 0, ..good.clone() }, Code::InvalidValue);
    refused(Random { dimensions: 20_000, count: 20_000, ..good.clone() }, Code::NotSupported);
    refused(Random { count: u64::MAX / 3 * 3, ..good.clone() }, Code::InvalidValue);
    refused(Random { count: 3 << 20, ..good }, Code::IllegalAddress);
}
