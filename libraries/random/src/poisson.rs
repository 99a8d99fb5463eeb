//! Poisson's and the binomial distribution, by inversion.

/// Beyond this mean, and for so many trials, the normal distribution is as good; cuRAND has the same limit for Poisson's.
const TABLED: f64 = 4000.0;

/// A distribution over whole numbers.
#[derive(Debug, Clone)]
pub(crate) enum Discrete {
    /// The sums of the probabilities of 0, 1, ….
    Table(Vec<f64>),
    /// The normal distribution of this mean and deviation, rounded, up to a largest number.
    Rounded(f64, f64, f64),
}

/// Sums of probabilities that are proportional to these logarithms.
fn table(logarithms: impl Iterator<Item = f64>) -> Discrete {
    let mut sum = 0.0;
    let mut sums: Vec<f64> = logarithms
        .map(|l| {
            sum += l.exp();
            sum
        })
        .collect();
    sums.iter_mut().for_each(|s| *s /= sum);
    Discrete::Table(sums)
}

impl Discrete {
    /// Poisson's distribution of this mean.
    pub(crate) fn poisson(mean: f64) -> Self {
        if mean > TABLED {
            return Self::Rounded(mean, mean.sqrt(), f64::from(u32::MAX));
        }
        let most = (mean + 12.0 * mean.sqrt() + 40.0) as u32;
        table((0..=most).map(|k| f64::from(k) * mean.ln() - mean - libm::lgamma(f64::from(k) + 1.0)))
    }

    /// How many of `n` trials succeed, each with probability `p`.
    pub(crate) fn binomial(n: u32, p: f64) -> Self {
        let count = f64::from(n);
        if p <= 0.0 || p >= 1.0 {
            return Self::Rounded(if p <= 0.0 { 0.0 } else { count }, 0.0, count);
        }
        if count > TABLED {
            return Self::Rounded(count * p, (count * p * (1.0 - p)).sqrt(), count);
        }
        let choose =
            |k: f64| libm::lgamma(count + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(count - k + 1.0);
        table((0..=n).map(f64::from).map(|k| choose(k) + k * p.ln() + (count - k) * (-p).ln_1p()))
    }

    /// The number at this place of the distribution, from 0 to 1.
    pub(crate) fn at(&self, place: f64) -> u32 {
        match self {
            Self::Table(sums) => sums.partition_point(|&sum| sum < place).min(sums.len() - 1) as u32,
            Self::Rounded(mean, deviation, most) => {
                (mean + deviation * crate::quasi::normal_at(place)).round().clamp(0.0, *most) as u32
            }
        }
    }
}
