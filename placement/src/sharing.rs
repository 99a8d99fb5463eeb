//! How long an application takes when several devices are composed into one for it, and when it shares them.

use crate::error::Error;
use crate::ids::DeviceKind;

/// The measured performance of an application on composed and shared devices: "NVMe composition" of the thesis on
/// disaggregated NVMe (figures 3.5 and 4.3), and several programs on one partitioned GPU (figure 5.3).
///
/// Several devices of one node are *composed* into one that has their bandwidth and their capacity together. A job with such a
/// model can be given a composition where it asks for one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Sharing {
    /// Of which kind the devices are.
    pub kind: DeviceKind,
    /// `[composed - 1][sharers - 1]`: the completion time, as a multiple of the profile's, with so many devices composed and so
    /// many jobs on them, itself included. All rows have the same length. Rows of one column say that sharing does not matter.
    pub times: Vec<Vec<f64>>,
    /// Whether a job needs for itself the part of the bandwidth that it asks for. Otherwise any number of jobs that
    /// `times` knows may share the devices, and `times` says how they fare.
    pub reserves: bool,
}

impl Sharing {
    /// A job whose time does not depend on how many devices are composed, up to `composed`, as long as it has what it asks for.
    pub fn indifferent(kind: DeviceKind, composed: usize) -> Sharing {
        Sharing { kind, times: vec![vec![1.0]; composed], reserves: true }
    }

    /// How many devices can be composed.
    pub fn most_composed(&self) -> usize {
        self.times.len()
    }

    /// How many jobs can share a composition; `None` if the model sets no limit.
    pub fn most_sharers(&self) -> Option<usize> {
        self.times.first().map(Vec::len).filter(|&columns| columns > 1 || !self.reserves)
    }

    /// Whether a job that asks for one device can be given something else: more devices, or less of them.
    pub fn is_elastic(&self) -> bool {
        self.most_composed() > 1 || !self.reserves
    }

    /// The completion time with so many devices composed and so many sharers (at least one of each), as a multiple of the
    /// profile's. More devices than the model knows don't help; more sharers divide the bandwidth evenly.
    pub fn time(&self, composed: usize, sharers: usize) -> f64 {
        let Some(row) = self.times.get(composed.clamp(1, self.times.len().max(1)) - 1) else { return 1.0 };
        let column = sharers.clamp(1, row.len().max(1));
        let Some(time) = row.get(column - 1) else { return 1.0 };
        if self.most_sharers().is_some() { time * (sharers.max(1) as f64 / column as f64) } else { *time }
    }

    /// The number of devices, from `least` to `most`, that a lone job is given so that it ends soonest: as long as one more
    /// improves its time (`CalculateRequestForMinimalTime` of algorithm 1).
    pub fn best_composed(&self, least: usize, most: usize) -> usize {
        let most = most.min(self.most_composed());
        let mut best = least;
        while best < most && self.time(best + 1, 1) < self.time(best, 1) {
            best += 1;
        }
        best
    }

    /// Checks the table of times.
    pub(crate) fn check(&self, profile: &str) -> Result<(), Error> {
        let bad = |value: String, must| {
            let of = format!("profile {profile:?}");
            Err(Error::Range { what: "a completion time on shared devices", of, value, must })
        };
        let columns = self.times.first().map_or(0, Vec::len);
        if columns == 0
            || columns > usize::from(crate::WHOLE)
            || self.times.iter().any(|row| row.len() != columns)
        {
            return bad(
                format!("{columns} columns"),
                "a table whose rows have the same length, from 1 to 1000",
            );
        }
        match self.times.iter().flatten().find(|time| !(time.is_finite() && **time > 0.0)) {
            Some(time) => bad(time.to_string(), "greater than 0"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_by_hand() {
        let times = vec![vec![1.0, 1.5], vec![0.75, 1.0], vec![0.8, 0.9]];
        let sharing = Sharing { kind: DeviceKind::Nvme, times, reserves: false };
        assert_eq!((sharing.time(1, 1), sharing.time(2, 2), sharing.time(3, 1)), (1.0, 1.0, 0.8));
        // Four where two were measured: half as fast.
        assert_eq!((sharing.time(1, 4), sharing.time(9, 2)), (3.0, 0.9));
        // A third device does not help a lone job.
        assert_eq!(
            (sharing.best_composed(1, 3), sharing.best_composed(1, 1), sharing.best_composed(3, 3)),
            (2, 1, 3)
        );
        assert_eq!((sharing.most_composed(), sharing.most_sharers()), (3, Some(2)));
        let indifferent = Sharing::indifferent(DeviceKind::Nvme, 3);
        assert_eq!((indifferent.time(2, 7), indifferent.best_composed(1, 3)), (1.0, 1));
        assert_eq!(indifferent.most_sharers(), None);
        assert!(indifferent.is_elastic() && !Sharing::indifferent(DeviceKind::Nvme, 1).is_elastic());
    }

    #[test]
    fn refuses_nonsense() {
        let with = |times| Sharing { kind: DeviceKind::Gpu, times, reserves: true }.check("p");
        with(vec![vec![1.0, 2.0], vec![1.0, 1.0]]).unwrap();
        for times in
            [vec![], vec![vec![]], vec![vec![1.0], vec![1.0, 2.0]], vec![vec![0.0]], vec![vec![f64::NAN]]]
        {
            assert!(matches!(with(times), Err(Error::Range { .. })));
        }
    }
}
