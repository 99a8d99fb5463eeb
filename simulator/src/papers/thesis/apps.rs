//! The applications: what they ask for (tables 4.1 and 5.1), and how they share devices. `docs/profiles.md` has the sources.

use rgpu_placement::{DeviceKind, DeviceRequest, Profile, ProfileId, Profiles, Sharing, Task};

use crate::error::Result;

/// An application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum App {
    /// Bandwidth-bound: a stage of SMUFIN, which finds variants in genomes.
    Smufin,
    /// Capacity-bound: like TPCx-IoT.
    Capacity,
    /// Compute-bound.
    Compute,
    /// GPU-bound: YOLO, which finds objects in pictures.
    Yolo,
    /// Bandwidth-bound and linear: the benchmark *fio*.
    Fio,
}

/// Bandwidth of an NVMe in MB/s (table 4.2).
pub const NVME_MBPS: u64 = 2000;
/// Capacity of an NVMe in GB (table 4.2).
pub const NVME_GB: u64 = 600;
/// Bandwidth of a GPU in MB/s (table 5.2).
pub const GPU_MBPS: u64 = 4000;
/// Memory of a GPU in GB (table 5.2).
pub const GPU_GB: u64 = 16;
/// MiB that stand for a GB of the thesis.
pub const GB: u64 = 1024;

/// Seconds that SMUFIN takes on 1, 2 and 3 composed NVMes (rows), shared by 1 to 6 (columns): figures 3.5 and 4.3.
const SMUFIN_S: [[f64; 6]; 3] = [
    [1489.15, 1601.25, 1677.35, 1936.245, 2411.56, 2802.62],
    [1455.48, 1455.45, 1474.12, 1569.89, 1668.35, 1835.62],
    [1478.5, 1461.5, 1513.0, 1550.5, 1578.5, 1618.5],
];

/// Times of YOLO beside 0 to 3 others on one GPU, as multiples of its time alone: figure 5.3.
const YOLO: [f64; 4] = [1.0, 175.0 / 151.0, 282.0 / 151.0, 3.5];

impl App {
    /// All of them, in the order of the mixes.
    pub const ALL: [App; 5] = [App::Smufin, App::Capacity, App::Compute, App::Yolo, App::Fio];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            App::Smufin => "bandwidth-bound",
            App::Capacity => "capacity-bound",
            App::Compute => "compute-bound",
            App::Yolo => "GPU-bound",
            App::Fio => "fio",
        }
    }

    /// Its base execution time in seconds.
    pub fn base_s(self) -> f64 {
        match self {
            App::Smufin | App::Fio => 1600.0,
            App::Capacity => 800.0,
            App::Compute => 900.0,
            App::Yolo => 152.0,
        }
    }

    /// The cores that it asks for.
    pub fn cores(self) -> u64 {
        match self {
            App::Smufin | App::Capacity | App::Fio => 6,
            App::Compute => 15,
            App::Yolo => 2,
        }
    }

    /// The bandwidth in MB/s and the capacity in GB that it asks for, of an NVMe.
    pub fn nvme(self) -> (u64, u64) {
        match self {
            App::Smufin | App::Fio => (1800, 43),
            App::Capacity => (160, 600),
            App::Compute | App::Yolo => (0, 0),
        }
    }

    /// The same of a GPU.
    pub fn gpu(self) -> (u64, u64) {
        if self == App::Yolo { (1000, 2) } else { (0, 0) }
    }

    /// What it asks for, as a task.
    pub fn task(self) -> Task {
        let task = Task::new(self.cores() * 1000, 0);
        let part = |kind, (mbps, gb): (u64, u64), of: u64| DeviceRequest {
            kind,
            memory_mib: gb * GB,
            ..DeviceRequest::part((mbps * 1000 / of) as u16)
        };
        match self {
            App::Compute => task,
            App::Yolo => task.with(part(DeviceKind::Gpu, self.gpu(), GPU_MBPS)),
            _ => task.with(part(DeviceKind::Nvme, self.nvme(), NVME_MBPS)),
        }
    }

    /// How it shares devices.
    fn sharing(self) -> Option<Sharing> {
        let kind = DeviceKind::Nvme;
        match self {
            App::Smufin => {
                let times = SMUFIN_S.map(|row| row.map(|seconds| seconds / self.base_s()).to_vec()).to_vec();
                Some(Sharing { kind, times, reserves: false })
            }
            App::Fio => {
                let row = |composed: u32| (1..=6).map(|n| f64::from(n) / f64::from(composed)).collect();
                Some(Sharing { kind, times: (1..=3).map(row).collect(), reserves: false })
            }
            App::Capacity => Some(Sharing::indifferent(kind, 3)),
            App::Yolo => Some(Sharing { kind: DeviceKind::Gpu, times: vec![YOLO.to_vec()], reserves: true }),
            App::Compute => None,
        }
    }

    /// The number of its profile.
    pub fn profile(self) -> ProfileId {
        ProfileId(App::ALL.iter().position(|app| *app == self).unwrap_or(0) as u32)
    }
}

/// The profiles. Without `models`, NVMes take everybody as long as the table says; GPUs are shared as they are in any case.
/// `overhead` is the part by which a GPU-bound job takes longer with a GPU of another node.
pub fn profiles(models: bool, overhead: f64) -> Result<Profiles> {
    let profiles = App::ALL.map(|app| {
        let remote = if app == App::Yolo { 1.0 + overhead } else { 1.0 };
        Profile {
            remote_s: app.base_s() * remote,
            sharing: app.sharing().filter(|sharing| models || sharing.kind == DeviceKind::Gpu),
            ..Profile::new(app.name(), app.base_s())
        }
    });
    Ok(Profiles::new(profiles.to_vec())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curves_say_what_the_text_says() {
        let smufin = App::Smufin.sharing().unwrap();
        let time = |composed, sharers| smufin.time(composed, sharers);
        // Section 3.4: up to three on two devices, and six on three, fare about as one on one.
        assert!(time(2, 3) <= time(1, 1) && time(3, 6) < time(1, 1) * 1.1);
        // The degradation shows from four on with two devices.
        assert!(time(2, 4) > time(2, 3) * 1.05 && time(2, 2) < time(2, 1) * 1.01);
        // A third device does not help one job alone: the smallest of equals is taken.
        assert_eq!(smufin.best_composed(1, 10), 2);
        let yolo = App::Yolo.sharing().unwrap();
        assert_eq!(yolo.time(1, 4), 3.5);
        assert!(3.0 / yolo.time(1, 3) < 2.0 && 2.0 / yolo.time(1, 2) > 1.7);
        assert_eq!(App::Fio.sharing().unwrap().best_composed(1, 10), 3);
        profiles(true, 0.05).unwrap();
    }
}
