//! The options of sbatch, srun and salloc.

use std::ffi::c_int;

use rgpu_control::slurm::JobRequest;
use rgpu_control::units::{parse_bytes, parse_share};

use crate::spank::Opt;

const GPUS: c_int = 1;
const MEMORY: c_int = 2;
const SHARE: c_int = 3;

/// The most GPUs that a lease can have.
const MAX_GPUS: u16 = 16;

/// What Slurm is told of them.
pub(crate) const ALL: [Opt; 3] = [
    Opt {
        name: c"rgpus",
        argument: c"N",
        usage: c"GPUs that rgpu lends the job, wherever they are; 0 for none",
        value: GPUS,
    },
    Opt {
        name: c"rgpu-memory",
        argument: c"SIZE",
        usage: c"memory of each, such as 4G; all of it unless given",
        value: MEMORY,
    },
    Opt {
        name: c"rgpu-share",
        argument: c"SHARE",
        usage: c"share of each one's time, such as 25%; all of it unless given",
        value: SHARE,
    },
];

/// What was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Given {
    gpus: Option<u16>,
    memory: Option<u64>,
    share_milli: Option<u16>,
}

impl Given {
    /// Nothing.
    pub(crate) const NOTHING: Self = Self { gpus: None, memory: None, share_milli: None };

    /// Takes an option in. The error says what is wrong with its argument.
    pub(crate) fn take(&mut self, option: c_int, argument: &str) -> Result<(), String> {
        match option {
            GPUS => {
                let gpus = argument.trim().parse::<u16>().ok().filter(|gpus| *gpus <= MAX_GPUS);
                let wrong = || {
                    format!("--rgpus={argument}: give a number of GPUs, from 1 to {MAX_GPUS}, or 0 for none")
                };
                self.gpus = Some(gpus.ok_or_else(wrong)?);
            }
            MEMORY => {
                let memory = parse_bytes(argument).map_err(|e| format!("--rgpu-memory: {e}"))?;
                if memory == 0 {
                    return Err("--rgpu-memory=0: leave it out for all of a GPU's memory".into());
                }
                self.memory = Some(memory);
            }
            SHARE => {
                self.share_milli = Some(parse_share(argument).map_err(|e| format!("--rgpu-share: {e}"))?);
            }
            _ => {}
        }
        Ok(())
    }

    /// The request that they make; `None` where no GPUs are asked for.
    pub(crate) fn request(self) -> Option<JobRequest> {
        let asked = self.memory.is_some() || self.share_milli.is_some();
        let gpus = self.gpus.unwrap_or(asked.into());
        (gpus > 0).then(|| JobRequest {
            gpus,
            memory: self.memory.unwrap_or(0),
            share_milli: self.share_milli.unwrap_or(1000),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(options: &[(c_int, &str)]) -> Result<Option<JobRequest>, String> {
        let mut given = Given::NOTHING;
        options.iter().try_for_each(|(option, argument)| given.take(*option, argument))?;
        Ok(given.request())
    }

    #[test]
    fn options_make_a_request() {
        assert_eq!(given(&[]), Ok(None));
        assert_eq!(given(&[(GPUS, "0"), (SHARE, "50%")]), Ok(None));
        let whole = JobRequest { gpus: 1, memory: 0, share_milli: 1000 };
        assert_eq!(given(&[(GPUS, "1")]), Ok(Some(whole)));
        assert_eq!(given(&[(SHARE, "25%")]), Ok(Some(JobRequest { share_milli: 250, ..whole })));
        let all = [(GPUS, "2"), (MEMORY, "4G"), (SHARE, "0.5")];
        assert_eq!(given(&all), Ok(Some(JobRequest { gpus: 2, memory: 4 << 30, share_milli: 500 })));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_the_options_name() {
        for (option, argument, name) in [
            (GPUS, "two", "--rgpus"),
            (GPUS, "-1", "--rgpus"),
            (GPUS, "17", "--rgpus"),
            (GPUS, "", "--rgpus"),
            (MEMORY, "4GB", "--rgpu-memory"),
            (MEMORY, "0", "--rgpu-memory"),
            (SHARE, "0%", "--rgpu-share"),
            (SHARE, "150%", "--rgpu-share"),
        ] {
            let error = given(&[(option, argument)]).unwrap_err();
            assert!(error.starts_with(name), "{error}");
        }
    }
}
