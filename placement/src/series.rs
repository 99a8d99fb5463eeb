//! Statistics of measured series: percentiles, rank correlation, autocorrelation, and the first-order forecast.
//!
//! These are the formulas of Kube-Knots (Thinakaran et al., CLUSTER 2019), equations 1 to 3. They are pure functions of
//! slices, oldest value first; values that are not finite are the caller's mistake, and give results that are not finite.

use std::collections::VecDeque;

/// The arithmetic mean, 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The value below or at which a `share` (0 to 1) of the values lies: the nearest rank. 0 of nothing.
pub fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0.0)
}

/// The ranks of the values, from 1; equal values share the mean of their ranks.
pub fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut from = 0;
    while from < order.len() {
        let mut to = from + 1;
        while to < order.len() && values[order[to]] == values[order[from]] {
            to += 1;
        }
        // The mean of the ranks from + 1 to `to`.
        for &i in &order[from..to] {
            ranks[i] = (from + 1 + to) as f64 / 2.0;
        }
        from = to;
    }
    ranks
}

/// Spearman's correlation ρ of two series, −1 to 1, over as many values as the shorter one has.
///
/// Without equal values this is equation 1, `1 − 6 Σ d² / (n (n² − 1))` with d the differences of ranks. With equal values that
/// formula isn't a correlation any more; what is computed is Pearson's correlation of the ranks, which is the same where both
/// are defined. A series that doesn't change, or has fewer than two values, correlates with nothing: 0.
pub fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let n = a.len().min(b.len());
    pearson(&ranks(&a[..n]), &ranks(&b[..n]))
}

fn pearson(a: &[f64], b: &[f64]) -> f64 {
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        ab += (x - mean_a) * (y - mean_b);
        aa += (x - mean_a) * (x - mean_a);
        bb += (y - mean_b) * (y - mean_b);
    }
    if aa > 0.0 && bb > 0.0 { ab / (aa.sqrt() * bb.sqrt()) } else { 0.0 }
}

/// The autocorrelation r at a `lag` of k values (equation 2), −1 to 1.
///
/// 0 where there is no trend to speak of: the series has no more than k values, or doesn't change.
pub fn autocorrelation(series: &[f64], lag: usize) -> f64 {
    if series.len() <= lag {
        return 0.0;
    }
    let mean = mean(series);
    let all: f64 = series.iter().map(|y| (y - mean) * (y - mean)).sum();
    let lagged: f64 = series.iter().zip(&series[lag..]).map(|(y, later)| (y - mean) * (later - mean)).sum();
    if all > 0.0 { lagged / all } else { 0.0 }
}

/// The first-order model of equation 3, `next = µ + φ · last`: a line through the pairs of consecutive values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FirstOrder {
    /// µ, the line's intercept.
    pub intercept: f64,
    /// φ, its slope.
    pub slope: f64,
}

impl FirstOrder {
    /// The least-squares line through the pairs of consecutive values. `None` of fewer than three values. A series
    /// that doesn't change is forecast to stay as it is.
    pub fn fit(series: &[f64]) -> Option<FirstOrder> {
        if series.len() < 3 {
            return None;
        }
        let (before, after) = (&series[..series.len() - 1], &series[1..]);
        let (mean_before, mean_after) = (mean(before), mean(after));
        let (mut both, mut square) = (0.0, 0.0);
        for (x, y) in before.iter().zip(after) {
            both += (x - mean_before) * (y - mean_after);
            square += (x - mean_before) * (x - mean_before);
        }
        let slope = if square > 0.0 { both / square } else { 0.0 };
        Some(FirstOrder { intercept: mean_after - slope * mean_before, slope })
    }

    /// The forecast for `steps` values after `last`: equation 3 applied so many times.
    ///
    /// A slope of 1 and more, or of −1 and less, would carry a long forecast away without end; it is taken as ±0.9999.
    pub fn after(&self, last: f64, steps: usize) -> f64 {
        let slope = self.slope.clamp(-0.9999, 0.9999);
        let power = slope.powi(i32::try_from(steps).unwrap_or(i32::MAX));
        let level = self.intercept / (1.0 - slope);
        level + power * (last - level)
    }
}

/// The latest values of a series, a fixed number at most.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    values: VecDeque<f64>,
    length: usize,
}

impl Window {
    /// An empty window that keeps the latest `length` values (at least one).
    pub fn new(length: usize) -> Window {
        Window { values: VecDeque::with_capacity(length.clamp(1, 1 << 16)), length: length.max(1) }
    }

    /// Adds the newest value; the oldest goes if the window is full.
    pub fn push(&mut self, value: f64) {
        if self.values.len() == self.length {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }

    /// The values, oldest first.
    pub fn to_vec(&self) -> Vec<f64> {
        self.values.iter().copied().collect()
    }

    /// The newest value.
    pub fn last(&self) -> Option<f64> {
        self.values.back().copied()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.values.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn of_a_few_by_hand() {
        assert_eq!(percentile(&[4.0, 1.0, 3.0, 2.0, 5.0], 0.8), 4.0);
        assert_eq!(
            (percentile(&[], 0.5), percentile(&[7.0], 0.0), percentile(&[7.0, 8.0], 1.0)),
            (0.0, 7.0, 8.0)
        );
        assert_eq!(ranks(&[10.0, 30.0, 10.0, 20.0]), [1.5, 4.0, 1.5, 3.0]);
        // d = 0, 1, −1: 1 − 6·2 / (3·8).
        assert!(close(spearman(&[1.0, 2.0, 3.0], &[5.0, 7.0, 6.0]), 0.5));
        assert_eq!((spearman(&[1.0, 1.0], &[1.0, 2.0]), spearman(&[], &[])), (0.0, 0.0));
        // Around 2: −1, 0, 1, 0. Products a step apart: 0, 0, 0; squares: 2.
        assert!(close(autocorrelation(&[1.0, 2.0, 3.0, 2.0], 1), 0.0));
        // Two steps apart: −1, 0.
        assert!(close(autocorrelation(&[1.0, 2.0, 3.0, 2.0], 2), -0.5));
        assert_eq!((autocorrelation(&[1.0], 1), autocorrelation(&[2.0, 2.0, 2.0], 1)), (0.0, 0.0));
    }

    #[test]
    fn a_line_is_found_again() {
        let mut series = vec![80.0];
        for _ in 0..20 {
            series.push(5.0 + 0.75 * series[series.len() - 1]);
        }
        let model = FirstOrder::fit(&series).unwrap();
        assert!(close(model.intercept, 5.0) && close(model.slope, 0.75), "{model:?}");
        assert!(close(model.after(40.0, 1), 35.0) && close(model.after(40.0, 2), 31.25));
        assert!(close(model.after(40.0, 10_000), 20.0) && close(model.after(40.0, 0), 40.0));
        assert_eq!(FirstOrder::fit(&[1.0, 2.0]), None);
        assert!(close(FirstOrder::fit(&[3.0; 5]).unwrap().after(3.0, 7), 3.0));
    }

    #[test]
    fn windows_keep_the_newest() {
        let mut window = Window::new(3);
        (1..=5).for_each(|i| window.push(f64::from(i)));
        assert_eq!((window.to_vec(), window.last()), (vec![3.0, 4.0, 5.0], Some(5.0)));
        window.clear();
        assert_eq!(window.last(), None);
    }

    fn series() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(-1e6..1e6f64, 2..60)
    }

    proptest! {
        #[test]
        fn spearman_is_equation_1_without_ties(pairs in prop::collection::hash_map(-1000..1000i32, -1000..1000i32, 2..40)) {
            // Distinct first values by the map; the second made distinct by their position.
            let a: Vec<f64> = pairs.keys().map(|x| f64::from(*x)).collect();
            let b: Vec<f64> = pairs.values().enumerate().map(|(i, y)| f64::from(*y) * 100.0 + i as f64).collect();
            let n = a.len() as f64;
            let squares: f64 = ranks(&a).iter().zip(ranks(&b)).map(|(x, y)| (x - y) * (x - y)).sum();
            prop_assert!((spearman(&a, &b) - (1.0 - 6.0 * squares / (n * (n * n - 1.0)))).abs() < 1e-9);
        }

        #[test]
        fn correlations_stay_in_their_range_and_ignore_monotone_changes(a in series(), b in series()) {
            let rho = spearman(&a, &b);
            prop_assert!((-1.0 - 1e-9..=1.0 + 1e-9).contains(&rho));
            prop_assert!((rho - spearman(&b, &a)).abs() < 1e-9);
            let stretched: Vec<f64> = a.iter().map(|x| x * x * x).collect();
            prop_assert!((rho - spearman(&stretched, &b)).abs() < 1e-9);
            for lag in 0..a.len() {
                prop_assert!(autocorrelation(&a, lag).abs() <= 1.0 + 1e-9);
            }
        }

        #[test]
        fn percentiles_are_values_and_grow(a in series(), low in 0.0..1.0f64, high in 0.0..1.0f64) {
            let (low, high) = (low.min(high), low.max(high));
            let (p, q) = (percentile(&a, low), percentile(&a, high));
            prop_assert!(p <= q && a.contains(&p) && a.contains(&q));
            let below = a.iter().filter(|x| **x <= q).count() as f64;
            prop_assert!(below + 1e-9 >= high * a.len() as f64);
        }

        #[test]
        fn no_other_line_fits_better(a in series(), off in -10.0..10.0f64, tilt in -0.5..0.5f64) {
            let Some(model) = FirstOrder::fit(&a) else { return Ok(()) };
            let error = |intercept: f64, slope: f64| -> f64 {
                a.windows(2).map(|w| w[1] - intercept - slope * w[0]).map(|e| e * e).sum()
            };
            let best = error(model.intercept, model.slope);
            prop_assert!(best <= error(model.intercept + off, model.slope + tilt) * (1.0 + 1e-9) + 1e-3);
        }
    }
}
