//! Medians, percentiles and spreads.

use serde::Serialize;

/// Samples of one thing, in the order of measuring.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<f64>);

/// What is reported of samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// How many samples.
    pub count: usize,
    /// The smallest value measured.
    pub min: f64,
    /// A quarter is smaller.
    pub p25: f64,
    /// The median.
    pub p50: f64,
    /// Three quarters are smaller.
    pub p75: f64,
    /// 99% are smaller.
    pub p99: f64,
}

impl Samples {
    /// Adds one.
    pub(crate) fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    /// Adds nanoseconds.
    pub(crate) fn extend(&mut self, nanoseconds: &[u64]) {
        self.0.extend(nanoseconds.iter().map(|n| *n as f64));
    }

    /// Adds one, if there is one.
    pub(crate) fn extend_from(&mut self, sample: Option<f64>) {
        self.0.extend(sample);
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The summary, if there is any sample.
    pub(crate) fn summary(&self) -> Option<Summary> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |p| percentile(&sorted, p);
        Some(Summary {
            count: sorted.len(),
            min: *sorted.first()?,
            p25: at(0.25)?,
            p50: at(0.5)?,
            p75: at(0.75)?,
            p99: at(0.99)?,
        })
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

/// The percentile of sorted samples, between neighbours in proportion.
fn percentile(sorted: &[f64], p: f64) -> Option<f64> {
    let place = p * (sorted.len().checked_sub(1)? as f64);
    let (low, part) = (place.floor() as usize, place.fract());
    let (a, b) = (*sorted.get(low)?, *sorted.get(low + 1).or(sorted.get(low))?);
    Some(a + (b - a) * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_between_neighbours() {
        let summary = (1..=101).map(f64::from).collect::<Samples>().summary().unwrap();
        assert_eq!((summary.min, summary.p25, summary.p50, summary.p75), (1.0, 26.0, 51.0, 76.0));
        assert_eq!(summary.p99, 100.0);
        let two = [4.0, 2.0].into_iter().collect::<Samples>().summary().unwrap();
        assert_eq!((two.count, two.p50), (2, 3.0));
        assert_eq!(Samples::default().summary(), None);
    }
}
