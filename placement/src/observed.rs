//! What was measured of devices and applications, for policies that decide by it; optional for all others.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::harvest::{Footprint, Sample, Telemetry};
use crate::ids::{DeviceId, ProfileId};

/// Measurements that somebody who watches the cluster passes on. Without any, policies go by what jobs ask for.
#[derive(Clone, Debug)]
pub struct Observed {
    devices: Vec<Option<Telemetry>>,
    footprints: BTreeMap<ProfileId, Footprint>,
    length: usize,
    ahead: usize,
}

impl Observed {
    /// Nothing yet, of so many devices. The latest `length` samples of a device are kept, and forecasts look `ahead` samples ahead:
    /// Kube-Knots keeps five seconds and looks one second ahead.
    pub fn new(devices: usize, length: usize, ahead: usize) -> Observed {
        Observed { devices: vec![None; devices], footprints: BTreeMap::new(), length, ahead }
    }

    /// Adds the newest sample of a device.
    pub fn sample(&mut self, device: DeviceId, sample: &Sample) -> Result<(), Error> {
        let Some(telemetry) = self.devices.get_mut(device.index()) else {
            return Err(Error::Dangling {
                from: "a measurement".into(),
                what: "device",
                name: device.0.to_string(),
            });
        };
        telemetry.get_or_insert_with(|| Telemetry::new(self.length)).push(sample);
        Ok(())
    }

    /// Says how the applications of a profile use their device over a run; the latest word counts.
    pub fn learn(&mut self, profile: ProfileId, footprint: Footprint) {
        self.footprints.insert(profile, footprint);
    }

    /// What was measured of a device lately.
    pub fn device(&self, device: DeviceId) -> Option<&Telemetry> {
        self.devices.get(device.index())?.as_ref()
    }

    /// How the applications of a profile use their device, if that was ever measured.
    pub fn footprint(&self, profile: ProfileId) -> Option<&Footprint> {
        self.footprints.get(&profile)
    }

    /// How many samples ahead forecasts look.
    pub fn ahead(&self) -> usize {
        self.ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_it_is_told_and_refuses_unknown_devices() {
        let mut observed = Observed::new(2, 3, 1);
        for memory_mib in [1.0, 2.0, 3.0, 4.0] {
            observed.sample(DeviceId(1), &Sample { memory_mib, ..Sample::default() }).unwrap();
        }
        assert!(observed.device(DeviceId(0)).is_none());
        assert_eq!(observed.device(DeviceId(1)).unwrap().series()[1], [2.0, 3.0, 4.0]);
        let error = observed.sample(DeviceId(2), &Sample::default()).unwrap_err();
        assert!(matches!(error, Error::Dangling { what: "device", .. }), "{error}");
        let footprint = Footprint::new(&[1.0], &[2.0]).unwrap();
        observed.learn(ProfileId(3), footprint.clone());
        assert_eq!(observed.footprint(ProfileId(3)), Some(&footprint));
        assert_eq!((observed.footprint(ProfileId(0)), observed.ahead()), (None, 1));
    }
}
