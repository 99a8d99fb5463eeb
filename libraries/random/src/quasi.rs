//! Sobol's points, with the direction numbers of Joe and Kuo, and what is made of them by inversion.

/// For so many dimensions there are direction numbers here.
pub const DIMENSIONS: usize = JOE_KUO.len() + 1;

/// From the second dimension on: the primitive polynomial's inner coefficients as a number, and the first direction numbers, as many
/// as its degree.
const JOE_KUO: &[(u32, &[u32])] = &[
    (0, &[1]),
    (1, &[1, 3]),
    (1, &[1, 3, 1]),
    (2, &[1, 1, 1]),
    (1, &[1, 1, 3, 3]),
    (4, &[1, 3, 5, 13]),
    (2, &[1, 1, 5, 5, 17]),
    (4, &[1, 1, 5, 5, 5]),
    (7, &[1, 1, 7, 11, 19]),
    (11, &[1, 1, 5, 1, 1]),
    (13, &[1, 1, 1, 3, 11]),
    (14, &[1, 3, 5, 5, 31]),
    (1, &[1, 3, 3, 9, 7, 49]),
    (13, &[1, 1, 1, 15, 21, 21]),
    (16, &[1, 3, 1, 13, 27, 49]),
    (19, &[1, 1, 1, 15, 7, 5]),
    (22, &[1, 3, 1, 15, 13, 25]),
    (25, &[1, 1, 5, 5, 19, 61]),
    (1, &[1, 3, 7, 11, 23, 15, 103]),
    (4, &[1, 3, 7, 13, 13, 15, 69]),
];

/// One dimension of the sequence.
pub struct Sobol {
    /// Direction numbers as fractions: the first is one half.
    directions: [u64; 64],
}

impl Sobol {
    /// The dimension of this number, of which 0 is the first. Beyond [`DIMENSIONS`] there are none; it is the last one then.
    pub fn new(dimension: usize) -> Self {
        let mut numbers = [1u64; 64];
        if let Some((coefficients, first)) =
            dimension.checked_sub(1).map(|d| JOE_KUO[d.min(JOE_KUO.len() - 1)])
        {
            let degree = first.len();
            for i in 0..64 {
                if let Some(&number) = first.get(i) {
                    numbers[i] = number.into();
                    continue;
                }
                let mut number = numbers[i - degree] ^ (numbers[i - degree] << degree);
                for k in 1..degree {
                    if coefficients >> (degree - 1 - k) & 1 == 1 {
                        number ^= numbers[i - k] << k;
                    }
                }
                numbers[i] = number;
            }
        }
        let mut directions = [0; 64];
        for (i, (direction, number)) in directions.iter_mut().zip(numbers).enumerate() {
            *direction = number << (63 - i);
        }
        Self { directions }
    }

    /// The number of a point, as a fraction of 2^64, in the order of Gray's code.
    pub fn word64(&self, point: u64) -> u64 {
        let mut gray = point ^ (point >> 1);
        let mut word = 0;
        while gray != 0 {
            word ^= self.directions[gray.trailing_zeros() as usize];
            gray &= gray - 1;
        }
        word
    }

    /// The number of a point, as a fraction of 2^32.
    pub fn word32(&self, point: u64) -> u32 {
        (self.word64(point & 0xffff_ffff) >> 32) as u32
    }
}

fn polynomial(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().fold(0.0, |sum, c| sum * x + c)
}

/// The number below which a normal number lies with this probability: Acklam's approximation, and a step of Halley's.
pub fn normal_at(place: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 6] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 5] = [
        7.784_695_709_041_462e-3,
        3.224_671_290_700_398e-1,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    let place = place.clamp(1e-300, 1.0 - f64::EPSILON / 2.0);
    let tail = |p: f64| {
        let q = (-2.0 * p.ln()).sqrt();
        polynomial(&C, q) / polynomial(&D, q)
    };
    let x = if place < 0.02425 {
        tail(place)
    } else if place > 1.0 - 0.02425 {
        -tail(1.0 - place)
    } else {
        let q = place - 0.5;
        polynomial(&A, q * q) * q / polynomial(&B, q * q)
    };
    let error = 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2) - place;
    let step = error * std::f64::consts::TAU.sqrt() * (x * x / 2.0).exp();
    x - step / (1.0 + x * step / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_points_are_those_of_the_paper() {
        let number = |dimension, point| f64::from(Sobol::new(dimension).word32(point)) / 4_294_967_296.0;
        // The beginning of the sequence as its authors print it.
        let points = [[0.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.75, 0.25, 0.25], [0.25, 0.75, 0.75]];
        for (i, point) in points.iter().enumerate() {
            for (dimension, value) in point.iter().enumerate() {
                assert_eq!(number(dimension, i as u64), *value);
            }
        }
        assert_eq!([4, 5, 6, 7].map(|i| number(2, i)), [0.625, 0.125, 0.875, 0.375]);
    }

    #[test]
    fn each_dimension_fills_each_interval_once_and_pairs_of_them_are_even() {
        for dimension in 0..DIMENSIONS {
            let sobol = Sobol::new(dimension);
            let mut seen: Vec<u32> = (0..1024).map(|point| sobol.word32(point) >> 22).collect();
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..1024), "{dimension}");
            let other = Sobol::new((dimension + 1) % DIMENSIONS);
            let mut squares = [0u32; 16];
            for point in 0..4096 {
                squares[(sobol.word32(point) >> 30 << 2 | other.word32(point) >> 30) as usize] += 1;
            }
            assert_eq!(squares, [256; 16], "{dimension}");
        }
    }

    #[test]
    fn the_inverse_is_one() {
        for i in 1..10_000 {
            let place = f64::from(i) / 10_000.0;
            let back = 0.5 * libm::erfc(-normal_at(place) / std::f64::consts::SQRT_2);
            assert!((back - place).abs() < 1e-14, "{place} {back}");
        }
    }
}
