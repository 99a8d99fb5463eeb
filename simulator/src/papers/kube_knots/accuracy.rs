//! How well the forecast predicts, by how often the devices are asked: figure 10b.

use rgpu_placement::harvest::{Sample, forecast};
use rgpu_placement::series::{mean, spearman};

use super::cluster::AHEAD_MS;
use super::workload::MEMORY_MIB;

/// The heartbeats compared, in ms.
pub(super) const HEARTBEATS_MS: [usize; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
/// How long the forecast looks back, in ms.
const WINDOW_MS: usize = 5_000;
/// How far apart the moments are at which it is asked, in ms.
const EVERY_MS: usize = 97;
/// A forecast is right if it is off by no more than so many percent of the device.
const WITHIN: f64 = 10.0;

/// How many of a hundred forecasts were right. Where the series has no trend and nothing is forecast, that counts as wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Right {
    /// Of the next heartbeat's value: equation 3 as printed.
    pub next: f64,
    /// Of the mean over the second that comes.
    pub second: f64,
}

/// The accuracy with that heartbeat, over all devices' samples (one a millisecond), memory and SM utilisation together.
pub(super) fn accuracy(devices: &[Vec<Sample>], heartbeat_ms: usize) -> Right {
    let (mut asked, mut next, mut second) = (0u64, 0u64, 0u64);
    let steps = (AHEAD_MS as usize / heartbeat_ms).max(1);
    for samples in devices {
        let memory: Vec<f64> = samples.iter().map(|sample| sample.memory_mib / MEMORY_MIB * 100.0).collect();
        let sm: Vec<f64> = samples.iter().map(|sample| sample.sm).collect();
        for series in [memory, sm] {
            let last = series.len().saturating_sub(AHEAD_MS as usize + 1);
            for now in (WINDOW_MS..last).step_by(EVERY_MS) {
                let window = &series[now + 1 - WINDOW_MS..=now];
                // Whoever sleeps isn't asked.
                if window.iter().all(|value| *value == 0.0) {
                    continue;
                }
                // Sampled so that the newest value is that of now.
                let skip = (WINDOW_MS - 1) % heartbeat_ms;
                let seen: Vec<f64> = window[skip..].iter().step_by(heartbeat_ms).copied().collect();
                asked += 1;
                let right = |steps, truth: f64| {
                    forecast(&seen, steps).is_some_and(|value| (value - truth).abs() <= WITHIN)
                };
                next += u64::from(right(1, series[now + heartbeat_ms]));
                second += u64::from(right(steps, mean(&series[now + 1..=now + AHEAD_MS as usize])));
            }
        }
    }
    let share = |right: u64| if asked == 0 { 0.0 } else { right as f64 / asked as f64 * 100.0 };
    Right { next: share(next), second: share(second) }
}

/// Spearman's correlations among the five metrics of the devices that were used, in the order of [`Sample::NAMES`].
pub(super) fn correlations(devices: &[Vec<Sample>]) -> [[f64; 5]; 5] {
    // One sample in ten says as much, and sorts faster.
    let used = devices.iter().flatten().step_by(10).filter(|sample| sample.memory_mib > 0.0);
    let samples: Vec<[f64; 5]> = used.map(Sample::values).collect();
    let series: [Vec<f64>; 5] = std::array::from_fn(|i| samples.iter().map(|values| values[i]).collect());
    std::array::from_fn(|i| std::array::from_fn(|j| spearman(&series[i], &series[j])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(sm: impl Fn(usize) -> f64) -> Vec<Sample> {
        (0..9000).map(|i| Sample { sm: sm(i), memory_mib: sm(i) * 100.0, ..Sample::default() }).collect()
    }

    #[test]
    fn slow_changes_are_predicted_and_fast_ones_are_not() {
        // A wave of 20 s, sampled every millisecond, is its own next value; one of 1.9 s sampled every second is anything.
        let wave = |ms: f64| move |i: usize| 50.0 + 40.0 * libm::sin(i as f64 / ms * std::f64::consts::TAU);
        assert!(accuracy(&[device(wave(20_000.0))], 1).next > 99.0);
        assert!(accuracy(&[device(wave(1_900.0))], 1000).next < 50.0);
        assert_eq!(accuracy(&[device(|_| 0.0)], 1), Right::default());
        // What jumps from one sample to the next has no trend.
        assert_eq!(accuracy(&[device(|i| (i % 2) as f64)], 1).next, 0.0);
    }

    #[test]
    fn metrics_that_go_together_correlate() {
        let table = correlations(&[device(|i| (i % 90) as f64)]);
        assert!(table[0][1] > 0.99 && table[0][3] == 0.0);
    }
}
