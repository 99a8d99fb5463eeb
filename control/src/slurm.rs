//! What rgpu's Slurm plugin and the commands that it runs agree on: what a job asks for, and what a node keeps about a job.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::LeaseId;
use crate::files;
use crate::preload::{LIBRARY_PATH_VARIABLE, PRELOAD_VARIABLE};

/// What Slurm puts before the names of variables that a plugin sets for a job's prolog and epilog.
pub const SPANK_PREFIX: &str = "SPANK_";
/// By which variable a job's prolog and epilog learn what the job asks for, as a [`JobRequest`]'s text.
pub const REQUEST_VARIABLE: &str = "SPANK_RGPU_REQUEST";
/// Where a node keeps what it knows of jobs with leases, where nothing else was said.
pub const SPOOL: &str = "/run/rgpu-slurm";

/// What a job asks for, in numbers that leave nothing to be understood: `gpus=2,memory=4294967296,share=250`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobRequest {
    /// How many GPUs.
    pub gpus: u16,
    /// Bytes of memory of each; 0 is all of a whole one's, and of a part the same part.
    pub memory: u64,
    /// Thousandths of each one's time, from 1 to 1000.
    pub share_milli: u16,
}

impl fmt::Display for JobRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gpus={},memory={},share={}", self.gpus, self.memory, self.share_milli)
    }
}

impl FromStr for JobRequest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no request for GPUs: it is made by the options --rgpus, --rgpu-memory and --rgpu-share"
            )
        };
        let rest = text.strip_prefix("gpus=").ok_or_else(wrong)?;
        let (gpus, rest) = rest.split_once(",memory=").ok_or_else(wrong)?;
        let (memory, share) = rest.split_once(",share=").ok_or_else(wrong)?;
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if ![gpus, memory, share].into_iter().all(digits) {
            return Err(wrong());
        }
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let request = Self {
            gpus: number(gpus)?.try_into().map_err(|_| wrong())?,
            memory: number(memory)?,
            share_milli: number(share)?.try_into().map_err(|_| wrong())?,
        };
        if request.gpus == 0 || !(1..=1000).contains(&request.share_milli) {
            return Err(wrong());
        }
        Ok(request)
    }
}

/// Which run of a job a lease is for. A component of a heterogeneous job and a task of an array are jobs of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobKey {
    /// Slurm's name of the cluster.
    pub cluster: String,
    /// The job's id.
    pub job: u32,
    /// How often it was started again.
    pub restart: u32,
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slurm/{}/{}/{}", self.cluster, self.job, self.restart)
    }
}

impl FromStr for JobKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = || {
            let (rest, restart) = text.strip_prefix("slurm/")?.rsplit_once('/')?;
            let (cluster, job) = rest.rsplit_once('/')?;
            Some(Self { cluster: cluster.to_owned(), job: job.parse().ok()?, restart: restart.parse().ok()? })
        };
        parsed().ok_or_else(|| format!("{text:?} is no key of a Slurm job's lease"))
    }
}

/// What a node keeps about a job that asks for GPUs. It holds no secret, and everybody may read it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The job's lease, where it has one.
    pub lease: Option<LeaseId>,
    /// Why it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// `librgpu.so`, as it can stand in LD_PRELOAD.
    pub library: PathBuf,
    /// The directory with links to it.
    pub links: PathBuf,
    /// The ticket of the lease, which the job's user alone can read.
    pub ticket: PathBuf,
}

impl JobRecord {
    /// The entries that are put first into lists of a task's environment.
    pub fn prepended(&self) -> [(&'static str, &Path); 2] {
        [(PRELOAD_VARIABLE, &self.library), (LIBRARY_PATH_VARIABLE, &self.links)]
    }
}

/// The files of one job on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFiles {
    /// What everybody may know.
    pub record: PathBuf,
    /// The ticket.
    pub ticket: PathBuf,
}

impl JobFiles {
    /// Of a job on a node (by Slurm's name, as several can be on one machine), in a spool directory.
    pub fn new(spool: &Path, node: &str, job: u32) -> Self {
        let directory = spool.join(node);
        Self {
            record: directory.join(format!("{job}.json")),
            ticket: directory.join(format!("{job}.ticket")),
        }
    }

    /// What was written of the job; `None` where nothing was.
    ///
    /// # Errors
    /// The file cannot be read, or is none of these.
    pub fn read(&self) -> io::Result<Option<JobRecord>> {
        match fs::read(&self.record) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Writes it, in one step.
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&self, record: &JobRecord) -> io::Result<()> {
        // Tasks read it as the job's user.
        files::replace(&self.record, 0o644, &serde_json::to_vec(record)?)
    }

    /// Removes both files; the record first, by whose absence others see that the job is over.
    ///
    /// # Errors
    /// What the system says, unless they are gone already.
    pub fn remove(&self) -> io::Result<()> {
        files::remove(&self.record)?;
        files::remove(&self.ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written_and_nothing_else_is() {
        let request = JobRequest { gpus: 2, memory: 4 << 30, share_milli: 250 };
        assert_eq!(request.to_string(), "gpus=2,memory=4294967296,share=250");
        assert_eq!(request.to_string().parse(), Ok(request));
        for bad in [
            "",
            "gpus=1",
            "gpus=0,memory=0,share=1",
            "gpus=1,memory=0,share=0",
            "gpus=1,memory=0,share=1001",
            "gpus=1,memory=-1,share=1",
            "gpus=+1,memory=0,share=1",
            "gpus=70000,memory=0,share=1",
            "gpus=1,memory=0,share=1,more=1",
        ] {
            assert!(bad.parse::<JobRequest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_are_read_as_they_are_written() {
        let key = JobKey { cluster: "a/b".into(), job: 17, restart: 2 };
        assert_eq!(key.to_string(), "slurm/a/b/17/2");
        assert_eq!(key.to_string().parse(), Ok(key));
        for bad in ["", "slurm/", "slurm/c/1", "kube/c/1/2", "slurm/c/1/x"] {
            assert!(bad.parse::<JobKey>().is_err(), "{bad}");
        }
    }

    #[test]
    fn records_are_kept_for_each_node_and_job() {
        let spool = std::env::temp_dir().join(format!("rgpu-slurm-{:016x}", LeaseId::random().0));
        fs::create_dir_all(spool.join("n0")).unwrap();
        let files = JobFiles::new(&spool, "n0", 7);
        assert_eq!(files.read().unwrap(), None);
        let record =
            JobRecord { lease: Some(LeaseId(3)), ticket: files.ticket.clone(), ..Default::default() };
        files.write(&record).unwrap();
        assert_eq!(files.read().unwrap(), Some(record));
        assert_eq!(JobFiles::new(&spool, "n1", 7).read().unwrap(), None);
        files.remove().unwrap();
        files.remove().unwrap();
        assert_eq!(files.read().unwrap(), None);
        fs::write(&files.record, "rubbish").unwrap();
        assert!(files.read().is_err());
        fs::remove_dir_all(spool).unwrap();
    }
}
