//! Whether a device that others use has room for one more application, by what was measured of all of them: the correlation-based
//! provisioning (CBP) and the peak prediction (PP) of Kube-Knots (Thinakaran et al., CLUSTER 2019), sections IV-C and IV-D.
//!
//! Pure functions: whoever watches the devices brings the series along. What an application did in its *earlier* runs is its
//! [`Footprint`]; what the device did lately is in its windows. Nothing here knows how a run will go on.

use crate::series::{FirstOrder, Window, autocorrelation, percentile, spearman};

/// What is wanted of a device, or used of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Need {
    /// Memory in MiB.
    pub memory_mib: f64,
    /// Percent of the device's multiprocessors (SM utilisation).
    pub sm: f64,
}

/// How an application used its device over one of its runs, from start to end, in [`Footprint::POINTS`] steps of equal length.
#[derive(Clone, Debug, PartialEq)]
pub struct Footprint {
    memory_mib: Vec<f64>,
    sm: Vec<f64>,
    typical: Need,
}

impl Footprint {
    /// How many steps a run is divided into, so that runs of different lengths can be compared.
    pub const POINTS: usize = 64;
    /// The share of a run during which its typical use is enough: pods are resized for the 80th percentile.
    pub const TYPICAL: f64 = 0.8;

    /// Of the measured memory (MiB) and SM utilisation (percent) of a whole run, oldest first. `None` if nothing was measured.
    pub fn new(memory_mib: &[f64], sm: &[f64]) -> Option<Footprint> {
        if memory_mib.is_empty() || sm.is_empty() {
            return None;
        }
        let typical = Need {
            memory_mib: percentile(memory_mib, Footprint::TYPICAL),
            sm: percentile(sm, Footprint::TYPICAL),
        };
        let resample = |series: &[f64]| -> Vec<f64> {
            (0..Footprint::POINTS).map(|i| series[i * series.len() / Footprint::POINTS]).collect()
        };
        Some(Footprint { memory_mib: resample(memory_mib), sm: resample(sm), typical })
    }

    /// What it is given by CBP: the 80th percentile of what it used.
    pub fn typical(&self) -> Need {
        self.typical
    }

    /// How much two applications want the same at the same time, were they started together: the greater of Spearman's
    /// correlations of their memory and of their SM utilisation.
    pub fn correlation(&self, other: &Footprint) -> f64 {
        spearman(&self.memory_mib, &other.memory_mib).max(spearman(&self.sm, &other.sm))
    }
}

/// An application on a device, or one that wants to get there.
#[derive(Clone, Copy, Debug)]
pub struct Pod<'a> {
    /// What its owner asked for.
    pub asked: Need,
    /// What it did in an earlier run, if it was ever seen.
    pub footprint: Option<&'a Footprint>,
    /// Whether it is so short that correlation says nothing of it (latency-critical queries; section II-B).
    pub short: bool,
}

impl Pod<'_> {
    /// What is set aside for it: its typical use, or what was asked for while that is not known. Never more than was asked for.
    pub fn reserved(&self) -> Need {
        let Some(footprint) = self.footprint else { return self.asked };
        let typical = footprint.typical();
        Need { memory_mib: typical.memory_mib.min(self.asked.memory_mib), sm: typical.sm.min(self.asked.sm) }
    }
}

/// What a device was measured to do at one moment: the five metrics that Kube-Knots logs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// SM utilisation in percent.
    pub sm: f64,
    /// Memory in use, in MiB.
    pub memory_mib: f64,
    /// Power in watts.
    pub power_w: f64,
    /// What it sends to its host, in MB/s.
    pub tx_mb_s: f64,
    /// What it receives from its host, in MB/s.
    pub rx_mb_s: f64,
}

/// A device's latest samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Telemetry {
    series: [Window; Sample::NAMES.len()],
}

impl Sample {
    /// The metrics' names, in the order of [`Sample::values`].
    pub const NAMES: [&'static str; 5] = ["SM", "memory", "power", "tx", "rx"];

    /// The metrics, in the order of [`Sample::NAMES`].
    pub fn values(&self) -> [f64; Sample::NAMES.len()] {
        [self.sm, self.memory_mib, self.power_w, self.tx_mb_s, self.rx_mb_s]
    }
}

impl Telemetry {
    /// None yet; the latest `length` will be kept.
    pub fn new(length: usize) -> Telemetry {
        Telemetry { series: std::array::from_fn(|_| Window::new(length)) }
    }

    /// Adds the newest sample.
    pub fn push(&mut self, sample: &Sample) {
        for (window, value) in self.series.iter_mut().zip(sample.values()) {
            window.push(value);
        }
    }

    /// The series of each metric, oldest first, in the order of [`Sample::NAMES`].
    pub fn series(&self) -> [Vec<f64>; Sample::NAMES.len()] {
        std::array::from_fn(|i| self.series[i].to_vec())
    }

    /// The newest memory in use, in MiB; 0 before the first sample.
    pub fn memory_mib(&self) -> f64 {
        self.series[1].last().unwrap_or(0.0)
    }

    /// The forecast `steps` samples ahead.
    pub fn forecast(&self, steps: usize) -> Forecast {
        Forecast::new(&self.series[1].to_vec(), &self.series[0].to_vec(), steps)
    }
}

/// A device's use a while from now, as far as its latest use tells.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forecast {
    /// Memory in MiB; `None` if the series shows no trend.
    pub memory_mib: Option<f64>,
    /// SM utilisation in percent; `None` if the series shows no trend.
    pub sm: Option<f64>,
}

impl Forecast {
    /// From a device's latest memory (MiB) and SM utilisation (percent), `steps` values ahead: where the autocorrelation from one
    /// value to the next (equation 2) is greater than 0, the first-order forecast (equation 3).
    pub fn new(memory_mib: &[f64], sm: &[f64], steps: usize) -> Forecast {
        Forecast { memory_mib: forecast(memory_mib, steps), sm: forecast(sm, steps) }
    }
}

/// The forecast of one series, `steps` values ahead; `None` if its autocorrelation from one value to the next is 0 or less.
pub fn forecast(series: &[f64], steps: usize) -> Option<f64> {
    let last = *series.last()?;
    if autocorrelation(series, 1) <= 0.0 {
        return None;
    }
    Some(FirstOrder::fit(series)?.after(last, steps).max(0.0))
}

/// Which scheme decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Correlation-based provisioning alone.
    Cbp,
    /// The same, and what it refuses is let in where the forecast has room for it (algorithm 1).
    PeakPrediction,
}

/// What was decided about an application and a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// What is set aside for everybody fits, and nobody there peaks together with it.
    Fits,
    /// That isn't so, but the forecast leaves room.
    Forecast,
    /// The reservations exceed the device.
    Full,
    /// One that is there wants the same at the same time: its correlation is [`CORRELATION`] or more.
    Correlated,
}

impl Verdict {
    /// Whether the application may go there.
    pub fn admits(self) -> bool {
        matches!(self, Verdict::Fits | Verdict::Forecast)
    }
}

/// From this correlation on, two applications are kept apart.
pub const CORRELATION: f64 = 0.5;

/// Decides whether `pod` may join `residents` on a device of `capacity`. `forecast` is asked only where it matters.
pub fn decide(
    scheme: Scheme,
    capacity: Need,
    residents: &[Pod<'_>],
    pod: &Pod<'_>,
    forecast: impl FnOnce() -> Forecast,
) -> Verdict {
    let need = pod.reserved();
    let mut sum = need;
    for resident in residents {
        let reserved = resident.reserved();
        sum.memory_mib += reserved.memory_mib;
        sum.sm += reserved.sm;
    }
    let refused = if sum.memory_mib > capacity.memory_mib || sum.sm > capacity.sm {
        Verdict::Full
    } else if residents.iter().any(|resident| contend(resident, pod)) {
        Verdict::Correlated
    } else {
        return Verdict::Fits;
    };
    if scheme == Scheme::Cbp {
        return refused;
    }
    // Without a trend in either series nothing is known of the next second, and the refusal stands.
    let ahead = forecast();
    match (ahead.memory_mib, ahead.sm) {
        (Some(memory_mib), Some(sm))
            if memory_mib + need.memory_mib <= capacity.memory_mib && sm + need.sm <= capacity.sm =>
        {
            Verdict::Forecast
        }
        _ => refused,
    }
}

/// Whether two are known to want the same at the same time.
fn contend(a: &Pod<'_>, b: &Pod<'_>) -> bool {
    match (a.footprint, b.footprint) {
        (Some(mine), Some(other)) if !a.short && !b.short => mine.correlation(other) >= CORRELATION,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEVICE: Need = Need { memory_mib: 100.0, sm: 100.0 };

    fn rising() -> Vec<f64> {
        (0..100).map(|i| f64::from(i) / 2.0).collect()
    }

    fn falling() -> Vec<f64> {
        rising().into_iter().rev().collect()
    }

    fn print(series: &[f64]) -> Footprint {
        Footprint::new(series, series).unwrap()
    }

    fn pod(footprint: &Footprint) -> Pod<'_> {
        Pod { asked: DEVICE, footprint: Some(footprint), short: false }
    }

    fn never() -> Forecast {
        panic!("nobody needs a forecast")
    }

    #[test]
    fn typical_use_is_set_aside_once_it_is_known() {
        let footprint = print(&rising());
        assert_eq!(pod(&footprint).reserved(), Need { memory_mib: 39.5, sm: 39.5 });
        let unknown = Pod { footprint: None, ..pod(&footprint) };
        assert_eq!(unknown.reserved(), DEVICE);
        let modest = Pod { asked: Need { memory_mib: 10.0, sm: 50.0 }, ..pod(&footprint) };
        assert_eq!(modest.reserved(), Need { memory_mib: 10.0, sm: 39.5 });
        assert_eq!(Footprint::new(&[], &[1.0]), None);
    }

    #[test]
    fn those_that_peak_together_are_kept_apart() {
        let (up, down) = (print(&rising()), print(&falling()));
        let by = |resident, newcomer| decide(Scheme::Cbp, DEVICE, &[resident], &newcomer, never);
        assert_eq!(by(pod(&up), pod(&down)), Verdict::Fits);
        assert_eq!(by(pod(&up), pod(&up)), Verdict::Correlated);
        assert_eq!(by(Pod { short: true, ..pod(&up) }, pod(&up)), Verdict::Fits);
        assert_eq!(by(Pod { footprint: None, ..pod(&up) }, pod(&down)), Verdict::Full);
        assert_eq!(decide(Scheme::Cbp, DEVICE, &[], &pod(&up), never), Verdict::Fits);
    }

    #[test]
    fn the_forecast_lets_in_what_has_room_in_time() {
        let up = print(&rising());
        let by = |series: &[f64]| {
            let ahead = || Forecast::new(series, series, 5);
            decide(Scheme::PeakPrediction, DEVICE, &[pod(&up)], &pod(&up), ahead)
        };
        // It goes down towards 0: room. It goes up towards 100: none. It jumps: no trend.
        let halves: Vec<f64> = (0..12).map(|i| 90.0 * 0.7f64.powi(i)).collect();
        assert_eq!(by(&halves), Verdict::Forecast);
        let grows: Vec<f64> = halves.iter().map(|y| 100.0 - y).collect();
        assert_eq!(by(&grows), Verdict::Correlated);
        let jumps: Vec<f64> = (0..20).map(|i| f64::from(i % 2) * 20.0).collect();
        assert_eq!(by(&jumps), Verdict::Correlated);
        assert_eq!(by(&[]), Verdict::Correlated);
    }

    #[test]
    fn telemetry_keeps_five_series() {
        let mut telemetry = Telemetry::new(50);
        assert_eq!((telemetry.memory_mib(), telemetry.forecast(1)), (0.0, Forecast::default()));
        for (i, memory_mib) in rising().into_iter().enumerate() {
            telemetry.push(&Sample { sm: f64::from(i as u32 % 2), memory_mib, ..Sample::default() });
        }
        let series = telemetry.series();
        assert_eq!((series[1][0], series[1].len(), telemetry.memory_mib()), (25.0, 50, 49.5));
        let ahead = telemetry.forecast(1);
        assert!((ahead.memory_mib.unwrap() - 50.0).abs() < 0.1, "{ahead:?}");
        assert_eq!(ahead.sm, None);
    }

    proptest! {
        #[test]
        fn what_cbp_admits_fits(needs in prop::collection::vec((1.0..60.0f64, 1.0..60.0f64), 1..8)) {
            let pods: Vec<Pod<'_>> = needs
                .iter()
                .map(|(memory_mib, sm)| Pod { asked: Need { memory_mib: *memory_mib, sm: *sm }, footprint: None, short: false })
                .collect();
            let (last, others) = pods.split_last().unwrap();
            let fits = needs.iter().map(|n| n.0).sum::<f64>() <= 100.0 && needs.iter().map(|n| n.1).sum::<f64>() <= 100.0;
            let verdict = decide(Scheme::Cbp, DEVICE, others, last, never);
            // Sums in another order differ by rounding only, which these numbers don't come close to.
            prop_assert_eq!(verdict.admits(), fits);
            // Whoever is let in by CBP is let in by PP.
            if verdict.admits() {
                prop_assert!(decide(Scheme::PeakPrediction, DEVICE, others, last, never).admits());
            }
        }
    }
}
