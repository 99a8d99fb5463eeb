//! What was measured of devices and applications, for policies that decide by it; optional for all others.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::harvest::{Footprint, Need, Sample, Telemetry};
use crate::ids::{DeviceId, JobId, ProfileId};

/// Measurements that somebody who watches the cluster passes on. Without any, policies go by what jobs ask for.
#[derive(Clone, Debug)]
pub struct Observed {
    devices: Vec<Option<Telemetry>>,
    footprints: BTreeMap<ProfileId, Footprint>,
    resizable: Option<Resizable>,
    length: usize,
    ahead: usize,
}

/// How much of its device a job has that may be resized by what it uses (section IV-C), or would have at its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// What is set aside for it.
    pub set_aside: Need,
    /// Thousandths of the device's time that it was promised.
    pub promised_milli: u16,
}

/// What can be resized while it runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resizable {
    lenders: Vec<bool>,
    sizes: BTreeMap<JobId, Size>,
}

impl Resizable {
    /// The size of a job that may be resized.
    pub(crate) fn size(&self, job: JobId) -> Option<Size> {
        self.sizes.get(&job).copied()
    }

    /// Whether time of a device that one job leaves can be lent to others.
    pub(crate) fn lends(&self, device: DeviceId) -> bool {
        self.lenders.get(device.index()) == Some(&true)
    }
}

impl Observed {
    /// Nothing yet, of so many devices. The latest `length` samples of a device are kept, and forecasts look `ahead` samples ahead:
    /// Kube-Knots keeps five seconds and looks one second ahead.
    pub fn new(devices: usize, length: usize, ahead: usize) -> Observed {
        Observed { devices: vec![None; devices], footprints: BTreeMap::new(), resizable: None, length, ahead }
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

    /// From now on jobs count with what they ask for, but for those that [`Observed::resize`] names: they may be resized, on these
    /// devices. Before that, what is known of any job's use counts.
    pub fn set_lenders(&mut self, devices: impl IntoIterator<Item = DeviceId>) {
        let resizable = self.resizable.get_or_insert_default();
        resizable.lenders = vec![false; self.devices.len()];
        for device in devices {
            if let Some(lends) = resizable.lenders.get_mut(device.index()) {
                *lends = true;
            }
        }
    }

    /// A job may be resized, and has this size, or would have it at its start.
    pub fn resize(&mut self, job: JobId, size: Size) {
        self.resizable.get_or_insert_default().sizes.insert(job, size);
    }

    /// What can be resized, if anything can.
    pub(crate) fn resizable(&self) -> Option<&Resizable> {
        self.resizable.as_ref()
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

    #[test]
    fn says_what_can_be_resized() {
        let mut observed = Observed::new(2, 3, 1);
        assert!(observed.resizable().is_none());
        observed.set_lenders([DeviceId(1), DeviceId(7)]);
        let size = Size { set_aside: Need { memory_mib: 1.0, sm: 20.0 }, promised_milli: 500 };
        observed.resize(JobId(1), size);
        let resizable = observed.resizable().unwrap();
        assert_eq!((resizable.size(JobId(0)), resizable.size(JobId(1))), (None, Some(size)));
        assert_eq!([0, 1, 7].map(|device| resizable.lends(DeviceId(device))), [false, true, false]);
    }
}
