//! What the plugin does on a job's nodes: has a command get and give back the lease, and tells tasks of it.
//!
//! A prolog that fails drains its node, and a job's wrong or unlucky request is no fault of the node's. So the prolog never fails: why there
//! is no lease is written down, and each task that would have used it is refused.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rgpu_control::LEASE_VARIABLE;
use rgpu_control::preload::{prepend, separators};
use rgpu_control::settings::{IN_PROCESS_VARIABLE, SERVER_VARIABLE};
use rgpu_control::slurm::{JobFiles, JobRecord, REQUEST_VARIABLE, SPOOL};

use crate::spank::{self, Spank};

/// The command, where nothing else was said.
const COMMAND: &str = "/usr/bin/rgpu";

/// What stands behind the plugin's name in plugstack.conf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The `rgpu` command.
    command: PathBuf,
    /// Where the node keeps what it knows of jobs.
    spool: PathBuf,
    /// Options for the command, which knows what they mean.
    options: Vec<String>,
}

impl Settings {
    /// Reads them: `NAME=VALUE`, or `NAME` alone.
    pub(crate) fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut settings = Self { command: COMMAND.into(), spool: SPOOL.into(), options: Vec::new() };
        for word in words {
            match word.split_once('=') {
                Some(("command", value)) => settings.command = value.into(),
                Some(("spool", value)) => settings.spool = value.into(),
                _ if word.starts_with(|c: char| c.is_ascii_lowercase()) => {
                    settings.options.push(format!("--{word}"));
                }
                _ => {
                    return Err(format!(
                        "{word:?} in plugstack.conf is no setting: give NAME=VALUE, such as broker=https://broker:7080"
                    ));
                }
            }
        }
        if !settings.command.is_absolute() || !settings.spool.is_absolute() {
            return Err("command= and spool= in plugstack.conf want absolute paths".into());
        }
        Ok(settings)
    }

    fn files(&self, job: u32) -> JobFiles {
        JobFiles::new(&self.spool, &node(), job)
    }

    /// Runs `rgpu slurm ACTION`. The error is what it said.
    fn run(&self, action: &str) -> Result<(), String> {
        let output = Command::new(&self.command)
            .args(["slurm", action, "--spool"])
            .arg(&self.spool)
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()
            .map_err(|e| format!("cannot run {}: {e}", self.command.display()))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!(
                "`{} slurm {action}` failed: {}",
                self.command.display(),
                String::from_utf8_lossy(&output.stderr).trim()
            )),
        }
    }

    /// Before a job's first task on this node: gets its lease, if it asks for one.
    pub(crate) fn prolog(&self) {
        if env::var_os(REQUEST_VARIABLE).is_none() {
            return;
        }
        let Err(error) = self.run("prolog") else { return };
        spank::error(&error);
        let Some(job) = env::var("SLURM_JOB_ID").ok().and_then(|job| job.parse().ok()) else { return };
        let record = JobRecord { error: Some(error), ..JobRecord::default() };
        let written =
            std::fs::create_dir_all(self.spool.join(node())).and_then(|()| self.files(job).write(&record));
        if let Err(e) = written {
            spank::error(&format!("nothing can be kept in {}: {e}", self.spool.display()));
        }
    }

    /// After a job's last task on this node: gives its lease back.
    pub(crate) fn epilog(&self) {
        if env::var_os(REQUEST_VARIABLE).is_some()
            && let Err(error) = self.run("epilog")
        {
            spank::error(&error);
        }
    }

    /// Tells a task of its job's lease. `asked`: the step has options of ours, which its job may have had, too.
    ///
    /// # Errors
    /// There should be a lease, and there is none; for the task's standard error.
    pub(crate) fn tell_task(&self, spank: &mut Spank<'_>, asked: bool) -> Result<(), String> {
        let job = spank.job().ok_or("Slurm does not say which job this is")?;
        let record = self.files(job).read().map_err(|e| {
            format!("what is known of job {job} cannot be read in {}: {e}", self.spool.display())
        })?;
        let Some(record) = record else {
            if asked {
                return Err(format!(
                    "job {job} has no lease on this node: it was allocated without --rgpus (give it to sbatch or salloc, not to \
                     a step alone), or the plugin did not run in its prolog"
                ));
            }
            return Ok(());
        };
        if let Some(error) = &record.error {
            return Err(format!("job {job} got no GPUs: {error}"));
        }
        for (variable, entry) in record.prepended() {
            let list = spank.variable(variable);
            let list = prepend(entry, list.as_deref().map(OsStr::from_bytes), separators(variable));
            if !spank.set_variable(variable, list.as_bytes()) {
                return Err(format!("Slurm does not let {variable} be set"));
            }
        }
        if !spank.set_variable(LEASE_VARIABLE, record.ticket.as_os_str().as_bytes()) {
            return Err(format!("Slurm does not let {LEASE_VARIABLE} be set"));
        }
        for other in [SERVER_VARIABLE, IN_PROCESS_VARIABLE] {
            spank.unset_variable(other);
        }
        Ok(())
    }
}

/// Slurm's name of this node.
fn node() -> String {
    env::var("SLURMD_NODENAME").unwrap_or_else(|_| "node".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spank::tests::SLURM;
    use rgpu_control::LeaseId;

    #[test]
    fn settings_are_for_the_plugin_or_for_its_command() {
        let words = ["spool=/s", "broker=https://b:1", "broker-insecure", "command=/r"];
        let settings = Settings::parse(words).unwrap();
        assert_eq!((settings.command.to_str(), settings.spool.to_str()), (Some("/r"), Some("/s")));
        assert_eq!(settings.options, ["--broker=https://b:1", "--broker-insecure"]);
        assert_eq!(Settings::parse([]).unwrap().spool.to_str(), Some(SPOOL));
        for bad in ["", "=x", "--broker=x", "command=rgpu", "spool=here"] {
            assert!(Settings::parse([bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn tasks_are_told_of_their_jobs_lease_or_why_there_is_none() {
        let spool = env::temp_dir().join(format!("rgpu-slurm-plugin-{}", std::process::id()));
        let settings = Settings { command: COMMAND.into(), spool: spool.clone(), options: Vec::new() };
        std::fs::create_dir_all(spool.join(node())).unwrap();
        let mut files = settings.files(7);
        SLURM.with_borrow_mut(|slurm| {
            slurm.job = 7;
            slurm.task = [("LD_PRELOAD", "/other.so /x/librgpu.so"), (SERVER_VARIABLE, "s:1")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into();
        });
        // SAFETY: the tests' functions don't look at it.
        let mut spank = unsafe { Spank::new(std::ptr::null_mut()) };
        let mut tell = |asked| settings.tell_task(&mut spank, asked);
        tell(false).unwrap();
        assert!(tell(true).unwrap_err().contains("job 7 has no lease on this node"));
        let record = JobRecord {
            lease: Some(LeaseId(1)),
            error: None,
            library: "/x/librgpu.so".into(),
            links: "/x".into(),
            ticket: "/t".into(),
        };
        files.write(&record).unwrap();
        tell(false).unwrap();
        tell(true).unwrap();
        SLURM.with_borrow(|slurm| {
            let variables: Vec<_> =
                slurm.task.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let expected = [
                ("LD_LIBRARY_PATH", "/x"),
                ("LD_PRELOAD", "/x/librgpu.so:/other.so"),
                (LEASE_VARIABLE, "/t"),
            ];
            assert_eq!(variables, expected);
        });
        files.write(&JobRecord { error: Some("none is free".into()), ..JobRecord::default() }).unwrap();
        assert_eq!(tell(false).unwrap_err(), "job 7 got no GPUs: none is free");
        files = settings.files(8);
        assert_eq!(files.read().unwrap(), None);
        std::fs::remove_dir_all(spool).unwrap();
    }
}
