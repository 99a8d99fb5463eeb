//! Means and spreads.

pub use rgpu_placement::series::mean;

/// The sample standard deviation, 0 of fewer than two values.
pub fn deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    libm::sqrt(squares / (values.len() - 1) as f64)
}

/// The value below which a share of `sorted` lies (the nearest rank), 0 of nothing.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0.0)
}

/// Draws from the exponential distribution with a mean of 1.
pub fn exponential(rng: &mut rgpu_placement::Rng) -> f64 {
    -libm::log(1.0 - rng.unit())
}

/// Draws from the standard normal distribution.
pub fn normal(rng: &mut rgpu_placement::Rng) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - rng.unit()));
    radius * libm::cos(2.0 * std::f64::consts::PI * rng.unit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_few_by_hand() {
        assert_eq!(mean(&[1.0, 2.0, 6.0]), 3.0);
        assert!((deviation(&[1.0, 2.0, 6.0]) - libm::sqrt(7.0)).abs() < 1e-12);
        assert_eq!((mean(&[]), deviation(&[1.0]), quantile(&[], 0.5)), (0.0, 0.0, 0.0));
        let sorted = [1.0, 2.0, 3.0, 4.0];
        assert_eq!([0.0, 0.5, 0.51, 1.0].map(|share| quantile(&sorted, share)), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn distributions_have_their_moments() {
        let mut rng = rgpu_placement::Rng::new(1);
        let draws: Vec<f64> = (0..100_000).map(|_| exponential(&mut rng)).collect();
        assert!((mean(&draws) - 1.0).abs() < 0.02 && (deviation(&draws) - 1.0).abs() < 0.02);
        let draws: Vec<f64> = (0..100_000).map(|_| normal(&mut rng)).collect();
        assert!(mean(&draws).abs() < 0.02 && (deviation(&draws) - 1.0).abs() < 0.02);
    }
}
