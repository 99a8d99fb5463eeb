//! What is asked of Slurm's controller, by Slurm's own commands.

use std::path::PathBuf;
use std::process::Command;

use crate::Failure;

/// A job, as the controller knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Job {
    /// Its id.
    pub id: u32,
    /// Its state, as `squeue` spells it.
    pub state: String,
    /// How often it was started again.
    pub restart: u32,
}

impl Job {
    /// Whether its tasks run, or are about to.
    pub(super) fn is_running(&self) -> bool {
        ["CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"]
            .contains(&self.state.as_str())
    }

    /// Whether its epilogs run.
    pub(super) fn is_completing(&self) -> bool {
        self.state == "COMPLETING"
    }
}

/// Slurm's commands.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Commands {
    /// The folder with Slurm's commands [default: those of PATH; where there is none, as in a prolog, /usr/bin and /bin]
    #[arg(long, value_name = "FOLDER")]
    slurm_bin: Option<PathBuf>,
}

impl Commands {
    /// The jobs that the controller knows, also those that have ended lately.
    pub(super) fn jobs(&self) -> Result<Vec<Job>, Failure> {
        let options =
            ["--noheader", "--all", "--array", "--states=all", "--Format=JobID:20,State:20,RestartCnt:20"];
        parse_jobs(&self.run("squeue", &options)?)
    }

    /// The account of a job; `None` where it has none.
    pub(super) fn account(&self, job: u32) -> Result<Option<String>, Failure> {
        let text = self.run("scontrol", &["--oneliner", "show", "job", &job.to_string()])?;
        Ok(value(&text, "Account").filter(|account| !["", "(null)"].contains(account)).map(str::to_owned))
    }

    /// The cluster's name.
    pub(super) fn cluster(&self) -> Result<String, Failure> {
        let text = self.run("scontrol", &["show", "config"])?;
        let name = text.lines().find_map(|line| line.strip_prefix("ClusterName")?.split_once('='));
        name.map(|(_, name)| name.trim().to_owned())
            .ok_or_else(|| Failure::new("scontrol does not say the cluster's name: give it by --cluster"))
    }

    /// How many of a licence the configuration counts; `None` where it names none.
    pub(super) fn licences(&self, name: &str) -> Result<Option<u64>, Failure> {
        let text = self.run("scontrol", &["--oneliner", "show", "licenses", name])?;
        Ok(value(&text, "Total").and_then(|total| total.parse().ok()))
    }

    /// How many of a licence a reservation keeps from jobs; `None` where there is no such reservation.
    pub(super) fn reserved(&self, reservation: &str, licence: &str) -> Option<u64> {
        // A reservation that is not there is an error of the command's.
        let text = self.run("scontrol", &["--oneliner", "show", "reservation", reservation]).ok()?;
        let licences = value(&text, "Licenses")?;
        let count = licences.split(',').find_map(|one| one.strip_prefix(licence)?.strip_prefix(':'));
        Some(count.and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    /// Has a reservation keep so many of a licence from jobs.
    pub(super) fn reserve(
        &self,
        reservation: &str,
        licence: &str,
        count: u64,
        exists: bool,
    ) -> Result<(), Failure> {
        let (name, licences) =
            (format!("ReservationName={reservation}"), format!("Licenses={licence}:{count}"));
        if exists {
            return self.run("scontrol", &["update", &name, &licences]).map(drop);
        }
        let times = ["StartTime=now", "Duration=infinite", "Users=root", "Flags=LICENSE_ONLY"];
        self.run("scontrol", &[&["create", "reservation", &name, &licences], &times[..]].concat()).map(drop)
    }

    /// Writes a running job's comment for administrators.
    pub(super) fn comment(&self, job: u32, text: &str) -> Result<(), Failure> {
        self.run("scontrol", &["update", &format!("JobId={job}"), &format!("AdminComment={text}")]).map(drop)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, Failure> {
        let path = self.slurm_bin.as_ref().map_or_else(|| program.into(), |folder| folder.join(program));
        let output = Command::new(&path).args(arguments).output().map_err(|e| {
            Failure::new(format!(
                "Cannot run {}, which belongs to Slurm: {e}. Say which folder Slurm's commands are in: slurm-bin=FOLDER in plugstack.conf, \
                 --slurm-bin FOLDER of `rgpu slurm sync`",
                path.display()
            ))
        })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::new(format!("{program} {} failed: {}", arguments.join(" "), said.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn parse_jobs(text: &str) -> Result<Vec<Job>, Failure> {
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let (id, state, restart) = (words.next()?, words.next()?, words.next()?);
        Some(Job { id: id.parse().ok()?, state: state.to_owned(), restart: restart.parse().ok()? })
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            parse(line).ok_or_else(|| Failure::new(format!("squeue says {line:?}, which is not understood")))
        })
        .collect()
}

fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_squeue_says_is_understood_or_refused() {
        let text = "5                   RUNNING             0                   \n17  CANCELLED 2\n\n";
        let jobs = parse_jobs(text).unwrap();
        assert_eq!((jobs.len(), jobs[1].id, jobs[1].restart), (2, 17, 2));
        assert!(jobs[0].is_running() && !jobs[1].is_running());
        assert!(parse_jobs("5 RUNNING\n").is_err() && parse_jobs("x RUNNING 0").is_err());
    }

    #[test]
    fn commands_are_those_of_the_folder_or_it_is_said_how_to_name_it() {
        let commands = |folder: &str| Commands { slurm_bin: Some(folder.into()) };
        assert_eq!(commands("/bin").run("echo", &["a", "b"]).unwrap(), "a b\n");
        let said = commands("/nowhere").account(7).unwrap_err().message;
        assert!(said.contains("/nowhere/scontrol") && said.contains("slurm-bin=FOLDER"), "{said}");
    }

    #[test]
    fn values_are_found_by_their_names() {
        let text = "LicenseName=rgpu Total=4000 Used=600 Free=3400 Reserved=0 Remote=no";
        assert_eq!((value(text, "Total"), value(text, "Use")), (Some("4000"), None));
    }
}
