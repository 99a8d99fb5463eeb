//! How NVIDIA devices are divided among leases, and what an application's process is started with because of it.
//!
//! A software GPU's workers keep a lease to its share by themselves. On NVIDIA devices there are three ways: launches are
//! [paced](rgpu_nvidia), NVIDIA's multi-process service ([mps](crate::mps)) gives a process a part of the multiprocessors,
//! or an administrator has partitioned the GPU (MIG), and each instance is a device of its own. Which one it is, is settled
//! when the server starts, and looked at again when a program comes.

use crate::budget::WHOLE;
use crate::device_spec::{DeviceKind, DeviceSpec, Partition, is_instance};
use crate::ledger::Terms;
use crate::mps::Mps;
use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::str::FromStr;

/// Why devices cannot be divided as somebody wants.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// There is no such way to divide devices.
    #[error("`{0}` is none of `auto`, `pacing`, `mps` and `mig`")]
    Unknown(String),
    /// The devices are no NVIDIA devices.
    #[error("--partition says how NVIDIA devices are divided; a software GPU divides itself")]
    Software,
    /// The multi-process service is wanted and does not run.
    #[error(
        "--partition mps needs NVIDIA's multi-process service, and nobody answers at {}: start it as this user with \
         `nvidia-cuda-mps-control -d`, or set CUDA_MPS_PIPE_DIRECTORY to where it is",
        .0.display()
    )]
    NoService(PathBuf),
    /// One process would need an instance of a partitioned GPU and another device beside it.
    #[error(
        "CUDA shows a process one instance of a partitioned GPU (MIG) and no other device beside it, and {giver} gives {} \
         ({}): ask for one GPU for each program",
        .devices.len(),
        .devices.join(", ")
    )]
    Several {
        /// Who gives them: a lease, or the server where there is none.
        giver: &'static str,
        /// The devices' names.
        devices: Vec<String>,
    },
}

impl FromStr for Partition {
    type Err = PartitionError;
    fn from_str(text: &str) -> Result<Self, PartitionError> {
        Ok(match text {
            "auto" => Self::Auto,
            "pacing" => Self::Pacing,
            "mps" => Self::Mps,
            "mig" => Self::Mig,
            _ => return Err(PartitionError::Unknown(text.to_owned())),
        })
    }
}

/// What keeps a lease to its share of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforcer {
    /// A software GPU's own workers.
    Workers,
    /// Launches wait.
    Pacing,
    /// The multi-process service, and pacing below its limit.
    Mps,
    /// It is an instance of a partitioned GPU, which is leased whole.
    Mig,
}

impl Display for Enforcer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Workers => "workers",
            Self::Pacing => "pacing",
            Self::Mps => "mps",
            Self::Mig => "mig",
        })
    }
}

/// How this server's devices are divided.
#[derive(Debug, Clone, Default)]
pub struct Partitions {
    mps: Option<Mps>,
    /// What enforces leases of each device, as far as that is settled when the server starts.
    enforcers: Vec<Enforcer>,
    /// What of each device's memory there is to promise.
    capacity: Vec<u64>,
}

/// How an application's process is started.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrangement {
    /// The devices that the process of the application is given.
    pub device: DeviceSpec,
    /// Variables that it is started with, whatever the server's own are.
    pub environment: Vec<(&'static str, OsString)>,
    /// The percentage of the multiprocessors that it can use; 100 where nothing limits it.
    pub ceiling: u32,
    /// What enforces its lease on each of its devices, by its ordinals.
    pub enforcers: Vec<Enforcer>,
}

impl Arrangement {
    /// What enforces its lease, for a log.
    pub fn describe(&self) -> String {
        let mut text: Vec<String> = self.enforcers.iter().map(Enforcer::to_string).collect();
        text.dedup();
        match self.ceiling {
            100 => text.join(","),
            ceiling => format!("{} at {ceiling}% of the multiprocessors", text.join(",")),
        }
    }
}

impl Partitions {
    /// For settled devices, of which each has this much memory to promise.
    ///
    /// # Errors
    /// What was asked for is not there.
    pub fn new(spec: &DeviceSpec, capacity: &[u64]) -> Result<Self, PartitionError> {
        Self::with(spec, capacity, Mps::from_environment())
    }

    fn with(spec: &DeviceSpec, capacity: &[u64], mps: Mps) -> Result<Self, PartitionError> {
        let partition = spec.partition;
        if spec.kind != DeviceKind::Nvidia {
            return match partition {
                Partition::Auto => Ok(Self {
                    enforcers: vec![Enforcer::Workers; capacity.len()],
                    capacity: capacity.to_vec(),
                    ..Self::default()
                }),
                _ => Err(PartitionError::Software),
            };
        }
        let whole = (0..capacity.len()).any(|device| !spec.is_instance(device));
        let mps = match partition {
            Partition::Auto if whole && mps.answers() => Some(mps),
            Partition::Mps if whole && !mps.answers() => {
                return Err(PartitionError::NoService(mps.socket()));
            }
            Partition::Mps if whole => Some(mps),
            _ => None,
        };
        let enforcer = |device| match (partition, spec.is_instance(device), &mps) {
            (Partition::Pacing, ..) | (_, false, None) => Enforcer::Pacing,
            (_, true, _) => Enforcer::Mig,
            (_, false, Some(_)) => Enforcer::Mps,
        };
        let enforcers = (0..capacity.len()).map(enforcer).collect();
        Ok(Self { mps, enforcers, capacity: capacity.to_vec() })
    }

    /// What enforces leases of a device.
    pub fn enforcer(&self, device: usize) -> Enforcer {
        self.enforcers.get(device).copied().unwrap_or(Enforcer::Pacing)
    }

    /// How the process of an application is to be started that has this lease, or none. One that only looks gets all devices.
    ///
    /// # Errors
    /// The devices cannot be one process's.
    pub fn arrange(
        &self,
        spec: &DeviceSpec,
        terms: Option<&[Terms]>,
        looks: bool,
    ) -> Result<Arrangement, PartitionError> {
        let device = match terms {
            None => spec.clone(),
            Some(terms) => spec.only(terms.iter().map(|t| t.device).collect()),
        };
        if !looks && device.visible.len() > 1 && device.visible.iter().any(|name| is_instance(name)) {
            let giver = if terms.is_some() { "the lease" } else { "this server, without a lease," };
            return Err(PartitionError::Several { giver, devices: device.visible });
        }
        let mut environment = Vec::new();
        if !device.visible.is_empty() {
            environment.push(("CUDA_VISIBLE_DEVICES", device.visible.join(",").into()));
        }
        let numbers = match terms {
            None => (0..device.count as usize).collect::<Vec<_>>(),
            Some(terms) => terms.iter().map(|t| t.device as usize).collect(),
        };
        let mut enforcers: Vec<Enforcer> = numbers.iter().map(|n| self.enforcer(*n)).collect();
        let mut ceiling = 100;
        if enforcers.contains(&Enforcer::Mps)
            && let (Some(terms), Some(mps), false) = (terms, &self.mps, looks)
        {
            if mps.answers() {
                let most = terms.iter().map(|t| t.share_milli).max().unwrap_or(WHOLE);
                ceiling = most.div_ceil(10).clamp(1, 100);
                environment.extend(mps.environment(ceiling, &self.limits(&device, terms)));
            } else {
                tracing::warn!(
                    "nobody answers at {} any more: this session's launches are paced",
                    mps.socket().display()
                );
                enforcers.iter_mut().for_each(|e| *e = Enforcer::Pacing);
            }
        }
        Ok(Arrangement { device, environment, ceiling, enforcers })
    }

    /// By the numbers that the driver has for the devices in the process, the most memory that it may take. Absent where a
    /// lease gives everything.
    fn limits(&self, device: &DeviceSpec, terms: &[Terms]) -> Vec<(u32, u64)> {
        let mut limits = Vec::new();
        for (ordinal, terms) in terms.iter().enumerate() {
            let whole = self.capacity.get(terms.device as usize).is_none_or(|all| terms.memory >= *all);
            if !whole {
                let number = device.numbers.get(ordinal).copied().unwrap_or(ordinal as u32);
                limits.push((number, terms.memory));
            }
        }
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    const GIB: u64 = 1 << 30;

    /// A folder in which somebody answers, as the control daemon would, for as long as this lives.
    struct Service(PathBuf, Option<UnixListener>);

    impl Service {
        fn start(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("rgpu-mps-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir(&folder).unwrap();
            let listener = UnixListener::bind(folder.join("control")).unwrap();
            Self(folder, Some(listener))
        }

        fn mps(&self) -> Mps {
            Mps::at(self.0.clone())
        }
    }

    impl Drop for Service {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn nobody() -> Mps {
        Mps::at("/nonexistent/nvidia-mps".into())
    }

    fn nvidia(partition: Partition, visible: &[&str]) -> DeviceSpec {
        let visible: Vec<String> = visible.iter().map(|&name| name.into()).collect();
        let count = visible.len().max(2) as u32;
        DeviceSpec { kind: DeviceKind::Nvidia, count, memory: 0, partition, visible, ..DeviceSpec::default() }
    }

    fn terms(device: u32, share_milli: u32) -> Terms {
        Terms { device, memory: 4 * GIB, share_milli }
    }

    fn variable(arrangement: &Arrangement, name: &str) -> Option<String> {
        let found = arrangement.environment.iter().find(|(n, _)| *n == name);
        found.map(|(_, value)| value.to_str().unwrap().to_owned())
    }

    const PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
    const LIMIT: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
    const MIXED: &[&str] = &["GPU-a", "MIG-b", "MIG-c", "GPU-d"];

    #[test]
    fn the_service_is_used_where_it_runs() {
        let service = Service::start("runs");
        let spec = nvidia(Partition::Auto, &[]);
        let parts = Partitions::with(&spec, &[16 * GIB; 2], service.mps()).unwrap();
        assert_eq!(parts.enforcer(1), Enforcer::Mps);
        let quarter = parts.arrange(&spec, Some(&[terms(1, 250)]), false).unwrap();
        assert_eq!((quarter.ceiling, quarter.enforcers.as_slice()), (25, &[Enforcer::Mps][..]));
        assert_eq!(quarter.describe(), "mps at 25% of the multiprocessors");
        assert_eq!(quarter.device.numbers, [1]);
        assert_eq!(variable(&quarter, PERCENTAGE).as_deref(), Some("25"));
        assert_eq!(variable(&quarter, "CUDA_MPS_PIPE_DIRECTORY").as_deref(), service.0.to_str());
        // By the number that the driver has for it.
        assert!(variable(&quarter, LIMIT).unwrap().starts_with("1="), "{quarter:?}");
        assert_eq!(variable(&quarter, "CUDA_VISIBLE_DEVICES"), None);
        // A process has one percentage: the largest of its devices'. Pacing holds the others.
        let two = parts.arrange(&spec, Some(&[terms(1, 101), terms(0, 333)]), false).unwrap();
        assert_eq!(two.ceiling, 34);
        let all = Terms { memory: 16 * GIB, ..terms(0, 1000) };
        let all = parts.arrange(&spec, Some(&[all]), false).unwrap();
        assert_eq!((all.ceiling, variable(&all, LIMIT)), (100, None));
        // Without a lease nothing is limited, and who only looks needs nothing.
        for (terms, looks) in [(None, false), (Some(&[terms(0, 250)][..]), true)] {
            let free = parts.arrange(&spec, terms, looks).unwrap();
            assert_eq!((free.ceiling, variable(&free, PERCENTAGE)), (100, None));
        }
    }

    #[test]
    fn without_the_service_launches_are_paced() {
        let spec = nvidia(Partition::Auto, &[]);
        let parts = Partitions::with(&spec, &[16 * GIB; 2], nobody()).unwrap();
        let paced = parts.arrange(&spec, Some(&[terms(0, 250)]), false).unwrap();
        assert_eq!((paced.ceiling, paced.environment.len()), (100, 0));
        assert_eq!(paced.describe(), "pacing");
        let error = Partitions::with(&nvidia(Partition::Mps, &[]), &[GIB], nobody()).unwrap_err().to_string();
        assert!(
            error.contains("/nonexistent/nvidia-mps") && error.contains("nvidia-cuda-mps-control"),
            "{error}"
        );
        // One that ends while the server runs.
        let mut service = Service::start("ends");
        let parts = Partitions::with(&nvidia(Partition::Mps, &[]), &[16 * GIB; 2], service.mps()).unwrap();
        service.1 = None;
        let paced = parts.arrange(&spec, Some(&[terms(0, 250)]), false).unwrap();
        assert_eq!((paced.ceiling, paced.describe().as_str()), (100, "pacing"));
        // Who wants pacing gets it.
        let service = Service::start("unwanted");
        let spec = nvidia(Partition::Pacing, MIXED);
        let parts = Partitions::with(&spec, &[GIB; 4], service.mps()).unwrap();
        assert!((0..4).all(|device| parts.enforcer(device) == Enforcer::Pacing));
    }

    #[test]
    fn an_instance_is_one_process_s_only_device() {
        let service = Service::start("instances");
        for (partition, whole) in [(Partition::Auto, Enforcer::Mps), (Partition::Mps, Enforcer::Mps)] {
            let spec = nvidia(partition, MIXED);
            let parts = Partitions::with(&spec, &[16 * GIB; 4], service.mps()).unwrap();
            assert_eq!([parts.enforcer(0), parts.enforcer(1)], [whole, Enforcer::Mig]);
        }
        let spec = nvidia(Partition::Auto, MIXED);
        let parts = Partitions::with(&spec, &[16 * GIB; 4], nobody()).unwrap();
        let one = parts.arrange(&spec, Some(&[terms(2, 1000)]), false).unwrap();
        assert_eq!(variable(&one, "CUDA_VISIBLE_DEVICES").as_deref(), Some("MIG-c"));
        assert_eq!((one.device.count, one.device.visible.as_slice()), (1, &["MIG-c".to_owned()][..]));
        assert!(one.device.numbers.is_empty(), "the process's own count from 0");
        assert_eq!(one.describe(), "mig");
        let whole = parts.arrange(&spec, Some(&[terms(3, 250), terms(0, 250)]), false).unwrap();
        assert_eq!(variable(&whole, "CUDA_VISIBLE_DEVICES").as_deref(), Some("GPU-d,GPU-a"));
        for several in [&[terms(1, 1000), terms(2, 1000)][..], &[terms(0, 250), terms(1, 1000)]] {
            let error = parts.arrange(&spec, Some(several), false).unwrap_err().to_string();
            assert!(error.contains("the lease gives 2") && error.contains("MIG-b"), "{error}");
        }
        assert!(parts.arrange(&spec, None, false).unwrap_err().to_string().contains("without a lease"));
        assert_eq!(parts.arrange(&spec, None, true).unwrap().device.count, 4);
    }

    #[test]
    fn a_software_gpu_divides_itself() {
        let spec = DeviceSpec::default();
        let parts = Partitions::with(&spec, &[GIB], nobody()).unwrap();
        let arranged = parts.arrange(&spec, Some(&[terms(0, 250)]), false).unwrap();
        assert_eq!((arranged.describe().as_str(), arranged.environment.len()), ("workers", 0));
        let odd = DeviceSpec { partition: Partition::Mps, ..spec };
        assert!(Partitions::with(&odd, &[GIB], nobody()).unwrap_err().to_string().contains("--partition"));
        assert!("mps".parse() == Ok(Partition::Mps) && "MPS".parse::<Partition>().is_err());
    }
}
