//! `rgpu check`: runs a program with a software GPU, inside it or at a server, which looks at what kernels do.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use rgpu_control::settings::{
    self, BROKER_VARIABLE, CHECK_LIMIT_VARIABLE, CHECK_LOG_VARIABLE, CHECK_TALLY_VARIABLE, CHECK_VARIABLE,
    LEASE_VARIABLE, SERVER_VARIABLE,
};

use super::child::Ended;
use super::scratch::{self, cannot_write};
use super::statistics::Statistics;
use super::{DeviceSource, prepare, run_to_the_end};
use crate::{Failure, Outcome};

/// Look for mistakes of a program's kernels: accesses outside of its memory, reads of memory that nothing was written to, races, and
/// barriers that not all threads come to.
///
/// The program runs with a software GPU, inside itself or at a server, and with the kernels' accesses looked at one by one, so it
/// takes longer. Without --server, a lease's options, RGPU_SERVER, RGPU_LEASE or RGPU_BROKER it is the one inside the program. Reports have
/// the form of NVIDIA's compute-sanitizer; they name source lines where the program was compiled with -lineinfo or -G. Where accesses
/// are wrong, they are left out, the kernel goes on to its end, and then fails with the error 719.
#[derive(clap::Args)]
#[group(skip)]
#[command(after_help = "Examples:\n  \
    rgpu check -- ./vector_add\n  \
    rgpu check --tool racecheck --error-exitcode 1 -- ./reduction\n  \
    rgpu check --server gpuhost:7070 --token-file token -- ./train\n  \
    rgpu check --tool memcheck --tool initcheck --leak-check full --log-file report.txt -- ./train")]
pub(crate) struct Arguments {
    /// What to look for; may be given several times, or several with commas between
    #[arg(long, value_name = "TOOL", value_enum, value_delimiter = ',', default_value = "memcheck")]
    tool: Vec<Tool>,
    /// Whether to tell of memory that the program has not freed when it ends
    #[arg(long, value_name = "WHICH", value_enum, default_value = "no")]
    leak_check: Leaks,
    /// The exit status where anything was found, or not all kernels were looked at; without it, it is the program's own
    #[arg(long, value_name = "N")]
    error_exitcode: Option<u8>,
    /// How many mistakes are reported at most by each process; 0 for all
    #[arg(long, value_name = "N", default_value_t = 100)]
    print_limit: u64,
    /// A file for the reports, which is overwritten [default: standard error]
    #[arg(long, visible_alias = "save", value_name = "FILE")]
    log_file: Option<PathBuf>,
    #[command(flatten)]
    run: super::Arguments,
}

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Tool {
    /// Accesses outside of the program's memory, misaligned ones, and wrong frees
    Memcheck,
    /// Reads of device memory that nothing was written to
    Initcheck,
    /// Threads of a block that use the same shared memory without waiting for each other
    Racecheck,
    /// Barriers and operations of warps that not all threads come to
    Synccheck,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Self::Memcheck => "memcheck",
            Self::Initcheck => "initcheck",
            Self::Racecheck => "racecheck",
            Self::Synccheck => "synccheck",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Leaks {
    /// Nothing is told
    No,
    /// Each allocation that is left is told
    Full,
}

/// The file by which mistakes are counted. It is removed with this.
struct Tally(PathBuf);

impl Tally {
    fn create() -> Result<Self, Failure> {
        let path = scratch::path("check");
        File::options().create_new(true).write(true).open(&path).map_err(|e| cannot_write(&path, &e))?;
        Ok(Self(path))
    }

    /// What the program's processes have counted.
    fn count(&self) -> Result<Counted, Failure> {
        let text = fs::read_to_string(&self.0).map_err(|e| cannot_write(&self.0, &e))?;
        Ok(Counted::of(&text))
    }
}

/// What was counted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    /// Mistakes that were reported.
    reported: u64,
    /// Mistakes beyond the limit.
    beyond: u64,
    /// Processes of whose kernels not all were looked at.
    incomplete: u64,
}

impl Counted {
    /// Sums up what processes have added to the tally: a letter and a number in each line.
    fn of(text: &str) -> Self {
        let mut counted = Self::default();
        for (what, count) in text.lines().filter_map(|line| line.split_once(' ')) {
            let sum = match what {
                "p" => &mut counted.reported,
                "n" => &mut counted.beyond,
                "x" => &mut counted.incomplete,
                _ => continue,
            };
            *sum = sum.saturating_add(count.parse().unwrap_or(0));
        }
        counted
    }

    fn mistakes(&self) -> u64 {
        self.reported.saturating_add(self.beyond)
    }

    /// The last lines of the reports.
    fn summary(&self) -> String {
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        let (all, beyond, incomplete) = (self.mistakes(), self.beyond, self.incomplete);
        let mut text = format!("========= ERROR SUMMARY: {all} error{}\n", plural(all));
        if beyond > 0 {
            text += &format!(
                "========= ERROR SUMMARY: {beyond} error{} were not printed. Use --print-limit option to adjust the number of printed \
                 errors\n",
                plural(beyond)
            );
        }
        if incomplete > 0 {
            let es = if incomplete == 1 { "" } else { "es" };
            text += &format!(
                "========= Not all kernels were looked at: see what is said of {incomplete} process{es} above\n"
            );
        }
        text
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Where the program's GPU is: inside the program, unless something says where else.
fn find_device_source(run: &mut super::Arguments) -> Result<DeviceSource, Failure> {
    let named = [SERVER_VARIABLE, LEASE_VARIABLE, BROKER_VARIABLE].into_iter().any(settings::is_on);
    run.in_process |= run.server.is_none() && !run.lease.given() && !named;
    super::find_device_source(run)
}

/// Runs the program, and says how many mistakes there were.
pub(crate) fn main(mut arguments: Arguments) -> Outcome {
    let source = find_device_source(&mut arguments.run)?;
    let run = &arguments.run;
    let mut prepared = prepare(run, source)?;
    if prepared.container.is_some() {
        return Err(Failure::with_status(
            "A container's programs cannot be looked at from outside: run `rgpu check` in the container",
            2,
        ));
    }
    let mut tools: Vec<&str> = arguments.tool.iter().map(|tool| tool.name()).collect();
    let title = format!("========= RGPU CHECK: {}\n", tools.join(", "));
    if arguments.leak_check == Leaks::Full {
        tools.push("leaks");
    }
    let tally = Tally::create()?;
    prepared.command.env(CHECK_VARIABLE, tools.join(",")).env(CHECK_TALLY_VARIABLE, &tally.0);
    prepared.command.env_remove(CHECK_LIMIT_VARIABLE).env_remove(CHECK_LOG_VARIABLE);
    if arguments.print_limit > 0 {
        prepared.command.env(CHECK_LIMIT_VARIABLE, arguments.print_limit.to_string());
    }
    let mut log = None;
    if let Some(path) = &arguments.log_file {
        let path = std::path::absolute(path).map_err(|e| cannot_write(path, &e))?;
        File::create(&path).map_err(|e| cannot_write(&path, &e))?;
        // As the program's processes do, so that nobody writes over another.
        log = Some(File::options().append(true).open(&path).map_err(|e| cannot_write(&path, &e))?);
        prepared.command.env(CHECK_LOG_VARIABLE, &path);
    }
    let write = |text: &str| match &log {
        Some(log) => drop((&mut &*log).write_all(text.as_bytes())),
        None => eprint!("{text}"),
    };
    write(&title);
    let statistics = Statistics::of(run.stats.as_ref(), &mut prepared.command)?;
    let ended = run_to_the_end(&mut prepared, run, source)?;
    if let Ended::Signal(signal) = ended {
        write(&format!("========= The program was killed by signal {signal}\n"));
    }
    if let Some(statistics) = &statistics {
        statistics.report()?;
    }
    let counted = tally.count()?;
    write(&counted.summary());
    // Not left to the end of this function, which a signal may prevent.
    drop((tally, statistics, prepared));
    match arguments.error_exitcode {
        Some(status) if counted.mistakes() > 0 || counted.incomplete > 0 => Ok(ExitCode::from(status)),
        _ => Ok(ExitCode::from(ended.reproduce())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_processes_have_counted_is_summed_up() {
        let counted = Counted::of("p 1\nn 40\np 1\nx 1\nwhat\nn many\n");
        assert_eq!(counted, Counted { reported: 2, beyond: 40, incomplete: 1 });
        let summary = counted.summary();
        assert!(summary.starts_with("========= ERROR SUMMARY: 42 errors\n"), "{summary}");
        assert!(summary.contains("SUMMARY: 40 errors were not printed. Use --print-limit"), "{summary}");
        assert!(
            summary.ends_with("Not all kernels were looked at: see what is said of 1 process above\n"),
            "{summary}"
        );
        assert_eq!(Counted::of("").summary(), "========= ERROR SUMMARY: 0 errors\n");
        assert_eq!(Counted::of("n 18446744073709551615\np 1\n").mistakes(), u64::MAX);
    }

    #[test]
    fn options_that_say_where_the_gpu_is_are_those_of_run() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: Arguments,
        }
        let parse = |line: &str| {
            <Line as clap::Parser>::try_parse_from(line.split_whitespace()).map(|line| line.arguments)
        };
        let named = parse("check --server a:1,b:2 --tool initcheck --token-file t -- x --tool y")
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((named.run.server.as_deref(), named.run.command.len()), (Some("a:1,b:2"), 3));
        assert!(parse("check --in-process --memory 1G --print-limit 0 -- x").is_ok());
        assert!(parse("check --server a:1 --in-process -- x").is_err());
    }
}
