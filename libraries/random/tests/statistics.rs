//! What comes out, against what must come out on average.

use rgpu_random::{Distribution, Pseudo, fill};

const PSEUDO: [Pseudo; 4] = [Pseudo::Xorwow, Pseudo::Mrg32k3a, Pseudo::Mt19937, Pseudo::Philox];
const ALL: [Pseudo; 6] = [PSEUDO[0], PSEUDO[1], PSEUDO[2], PSEUDO[3], Pseudo::Sobol32(2), Pseudo::Sobol64(2)];
const COUNT: usize = 1 << 17;

fn bytes(generator: Pseudo, seed: u64, distribution: Distribution) -> Vec<u8> {
    let mut bytes = vec![0; COUNT * distribution.bytes() as usize];
    fill(generator, (seed, 0), distribution, (0, COUNT as u64 / 2), &mut bytes);
    bytes
}

fn numbers(generator: Pseudo, seed: u64, distribution: Distribution) -> Vec<f64> {
    let bytes = bytes(generator, seed, distribution);
    let words = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    match distribution {
        Distribution::Poisson(_) | Distribution::Binomial(..) => {
            bytes.chunks(4).map(|b| f64::from(words(b))).collect()
        }
        _ if distribution.bytes() == 4 => {
            bytes.chunks(4).map(|b| f64::from(f32::from_bits(words(b)))).collect()
        }
        _ => bytes.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect(),
    }
}

/// Mean, variance, skewness and kurtosis.
fn moments(numbers: &[f64]) -> [f64; 4] {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let about = |power| numbers.iter().map(|x| (x - mean).powi(power)).sum::<f64>() / count;
    let variance = about(2);
    [mean, variance, about(3) / variance.powf(1.5), about(4) / variance.powi(2)]
}

/// Kolmogorov and Smirnov's distance between numbers and a distribution, times the root of their count.
fn distance(mut numbers: Vec<f64>, sum: impl Fn(f64) -> f64) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let count = numbers.len() as f64;
    let largest = numbers.iter().enumerate().map(|(i, &x)| {
        let sum = sum(x);
        (sum - i as f64 / count).abs().max((sum - (i + 1) as f64 / count).abs())
    });
    largest.fold(0.0, f64::max) * count.sqrt()
}

fn normal_sum(x: f64) -> f64 {
    0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
}

fn close(got: [f64; 4], wanted: [f64; 4], tolerance: f64, what: &str) {
    let scale = [wanted[1].sqrt(), wanted[1], 1.0, wanted[3]];
    for ((got, wanted), scale) in got.into_iter().zip(wanted).zip(scale) {
        assert!((got - wanted).abs() < tolerance * scale, "{what}: {got}, not {wanted}");
    }
}

#[test]
fn distributions_have_their_moments_and_their_shapes() {
    for generator in ALL {
        for (seed, uniform) in [(0, Distribution::UniformF32), (77, Distribution::UniformF64)] {
            let got = numbers(generator, seed, uniform);
            assert!(got.iter().all(|&x| x > 0.0 && x <= 1.0));
            close(moments(&got), [0.5, 1.0 / 12.0, 0.0, 1.8], 0.02, &format!("{generator:?}"));
            // More than 2.2 happens once in ten thousand times.
            let d = distance(got, |x| x);
            assert!(d < 2.2, "{generator:?} {d}");
        }
        for normal in [Distribution::NormalF32(3.0, 2.0), Distribution::NormalF64(3.0, 2.0)] {
            let got = numbers(generator, 1234, normal);
            close(moments(&got), [3.0, 4.0, 0.0, 3.0], 0.04, &format!("{generator:?}"));
            let d = distance(got, |x| normal_sum((x - 3.0) / 2.0));
            assert!(d < 2.2, "{generator:?} {d}");
        }
        for normal in [Distribution::LogNormalF32(0.5, 0.25), Distribution::LogNormalF64(0.5, 0.25)] {
            let got = numbers(generator, 99, normal);
            let d = distance(got, |x| normal_sum((x.ln() - 0.5) / 0.25));
            assert!(d < 2.2, "{generator:?} {d}");
        }
        for mean in [0.3f64, 7.5, 150.0, 9000.0] {
            let got = numbers(generator, 5, Distribution::Poisson(mean));
            let wanted = [mean, mean, mean.powf(-0.5), 3.0 + 1.0 / mean];
            close(moments(&got), wanted, 0.06, &format!("{generator:?} {mean}"));
        }
        for (n, p) in [(10u32, 0.25), (1000, 0.5), (100_000, 0.1)] {
            let got = numbers(generator, 6, Distribution::Binomial(n, p));
            let mean = f64::from(n) * p;
            let variance = mean * (1.0 - p);
            let wanted = [
                mean,
                variance,
                (1.0 - 2.0 * p) / variance.sqrt(),
                3.0 + (1.0 - 6.0 * p * (1.0 - p)) / variance,
            ];
            close(moments(&got), wanted, 0.06, &format!("{generator:?} {n} {p}"));
        }
    }
}

#[test]
fn bits_are_even_and_neighbours_have_nothing_to_do_with_each_other() {
    for generator in PSEUDO {
        let bytes = bytes(generator, 0xdead_beef_0123, Distribution::Bits32);
        let words: Vec<u32> = bytes.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
        let spread = 5.0 * (COUNT as f64 / 4.0).sqrt();
        for bit in 0..32 {
            let set = words.iter().filter(|&&word| word >> bit & 1 == 1).count() as f64;
            assert!((set - COUNT as f64 / 2.0).abs() < spread, "{generator:?} bit {bit}: {set}");
            let changes = words.windows(2).filter(|pair| (pair[0] ^ pair[1]) >> bit & 1 == 1).count() as f64;
            assert!((changes - COUNT as f64 / 2.0).abs() < spread, "{generator:?} bit {bit}: {changes}");
        }
    }
}

#[test]
fn any_part_of_a_sequence_is_the_same_by_itself() {
    let distributions = [
        Distribution::Bits32,
        Distribution::NormalF32(0.0, 1.0),
        Distribution::NormalF64(0.0, 1.0),
        Distribution::UniformF64,
        Distribution::Poisson(3.0),
    ];
    for (generator, distribution) in ALL.iter().flat_map(|g| distributions.map(|d| (*g, d))) {
        let size = distribution.bytes() as usize;
        let mut whole = vec![0; 4000 * size];
        fill(generator, (11, 5), distribution, (0, 2000), &mut whole);
        for (first, count) in [(0usize, 2usize), (2, 1000), (626, 1248), (3000, 1000)] {
            let mut part = vec![0; count * size];
            fill(generator, (11, 5), distribution, (first as u64, 2000), &mut part);
            assert_eq!(part, whole[first * size..][..count * size], "{generator:?} {distribution:?} {first}");
        }
    }
    for generator in PSEUDO {
        // Far away: two requests that meet there.
        let far = if generator == Pseudo::Mt19937 { 1 << 20 } else { 1 << 60 };
        let (mut one, mut other) = ([0; 400], [0; 200]);
        fill(generator, (3, far), Distribution::Bits32, (0, 1), &mut one);
        fill(generator, (3, far + 50), Distribution::Bits32, (0, 1), &mut other);
        assert_eq!(one[200..], other, "{generator:?}");
        let mut seeded = [0; 400];
        fill(generator, (4, far), Distribution::Bits32, (0, 1), &mut seeded);
        assert_ne!(one, seeded, "{generator:?}");
    }
}
