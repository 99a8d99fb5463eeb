//! `rgpu check`: runs a program with the software GPU inside it, which looks at what kernels do.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use rgpu_control::settings::{
    self, BROKER_VARIABLE, CHECK_LIMIT_VARIABLE, CHECK_LOG_VARIABLE, CHECK_TALLY_VARIABLE, CHECK_VARIABLE,
    LEASE_VARIABLE, SERVER_VARIABLE,
};

use super::child::{self, Ended};
use super::{DeviceSource, cannot_start, prepare};
use crate::{Failure, Outcome};

/// Look for mistakes of a program's kernels: accesses outside of its memory, reads of memory that nothing was written to, races, and
/// barriers that not all threads come to.
///
/// The program runs with the software GPU inside itself, without a server, and with the kernels' accesses looked at one by one, so it
/// takes longer. Reports have the form of NVIDIA's compute-sanitizer; they name source lines where the program was compiled
/// with -lineinfo or -G. Where accesses are wrong, they are left out, the kernel goes on to its end, and then fails with the error 719.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    rgpu check -- ./vector_add\n  \
    rgpu check --tool racecheck --error-exitcode 1 -- ./reduction\n  \
    rgpu check --tool memcheck --tool initcheck --leak-check full --log-file report.txt -- ./train")]
pub(crate) struct Arguments {
    /// What to look for; may be given several times, or several with commas between
    #[arg(long, value_name = "TOOL", value_enum, value_delimiter = ',', default_value = "memcheck")]
    tool: Vec<Tool>,
    /// Whether to tell of memory that the program has not freed when it ends
    #[arg(long, value_name = "WHICH", value_enum, default_value = "no")]
    leak_check: Leaks,
    /// The exit status where anything was found; without it, it is the program's own
    #[arg(long, value_name = "N")]
    error_exitcode: Option<u8>,
    /// How many mistakes are reported at most by each process; 0 for all
    #[arg(long, value_name = "N", default_value_t = 100)]
    print_limit: u64,
    /// A file for the reports, which is overwritten [default: standard error]
    #[arg(long, visible_alias = "save", value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
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

/// `rgpu run`'s arguments, to be made of words.
#[derive(Parser)]
struct Run {
    #[command(flatten)]
    arguments: super::Arguments,
}

/// The file by which mistakes are counted. It is removed with this.
struct Tally(PathBuf);

impl Tally {
    fn create() -> Result<Self, Failure> {
        let mut number = [0; 8];
        // SAFETY: a buffer of that length.
        let got = unsafe { libc::getrandom(number.as_mut_ptr().cast(), number.len(), 0) };
        if got != number.len() as isize {
            return Err(Failure::new("The system gives no random numbers"));
        }
        let name = format!("rgpu-check-{}-{:016x}", std::process::id(), u64::from_le_bytes(number));
        let path = std::env::temp_dir().join(name);
        File::options().create_new(true).write(true).open(&path).map_err(|e| cannot_write(&path, &e))?;
        Ok(Self(path))
    }

    /// How many mistakes were found, and how many of them were not reported.
    fn count(&self) -> Result<(u64, u64), Failure> {
        let letters = fs::read(&self.0).map_err(|e| cannot_write(&self.0, &e))?;
        let beyond = letters.iter().filter(|&&letter| letter == b'n').count();
        Ok((letters.len() as u64, beyond as u64))
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("Cannot write to {}: {error}", path.display()))
}

/// Runs the program, and says how many mistakes there were.
pub(crate) fn main(arguments: Arguments) -> Outcome {
    let words =
        ["check", "--in-process", "--"].map(OsString::from).into_iter().chain(arguments.command.clone());
    let run = Run::try_parse_from(words).map_err(|e| Failure::with_status(e.to_string(), 2))?.arguments;
    for variable in [SERVER_VARIABLE, LEASE_VARIABLE, BROKER_VARIABLE] {
        if settings::is_on(variable) {
            eprintln!(
                "rgpu: {variable} is not used: kernels are looked at on the software GPU inside the program alone"
            );
        }
    }
    let mut prepared = prepare(&run, DeviceSource::Named)?;
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
    let program = &arguments.command[0];
    let ended = child::run(&mut prepared.command, None).map_err(|e| cannot_start(program, &e))?;
    if let Ended::Signal(signal) = ended {
        write(&format!("========= The program was killed by signal {signal}\n"));
    }
    let (count, beyond) = tally.count()?;
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    write(&format!("========= ERROR SUMMARY: {count} error{}\n", plural(count)));
    if beyond > 0 {
        write(&format!(
            "========= ERROR SUMMARY: {beyond} error{} were not printed. Use --print-limit option to adjust the number of printed errors\n",
            plural(beyond)
        ));
    }
    // Not left to the end of this function, which a signal may prevent.
    drop((tally, prepared));
    match arguments.error_exitcode {
        Some(status) if count > 0 => Ok(ExitCode::from(status)),
        _ => Ok(ExitCode::from(ended.reproduce())),
    }
}
