//! `rgpu profile-kernels`: runs a program with the software GPU inside it, which counts what kernels do.

mod flame;
mod part;
mod report;
mod trace;

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use rgpu_control::settings::{
    self, BROKER_VARIABLE, CHECK_VARIABLE, LEASE_VARIABLE, PROFILE_KERNELS_VARIABLE, SERVER_VARIABLE,
};

use super::child::{self, Ended};
use super::scratch::{self, cannot_write};
use super::{DeviceSource, cannot_start, prepare};
use crate::{Failure, Outcome};
use part::Profile;

/// Count what a program's kernels do: how often each line is executed and by how many lanes of a warp, where lanes part, and what is
/// read and written.
///
/// The program runs with the software GPU inside itself, without a server, and takes longer than usual. Lines are those of the
/// source where the program was compiled with -lineinfo or -G, else those of the PTX text. The report goes to the standard error.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    rgpu profile-kernels -- ./vector_add\n  \
    rgpu profile-kernels --kernel reduce --lines 20 -- ./reduction\n  \
    rgpu profile-kernels --output profile -- python3 train.py\n  \
    rgpu profile-kernels --flame-graph flame.svg --trace trace.json -- ./train")]
pub(crate) struct Arguments {
    /// Report only kernels whose names contain this; may be given several times
    #[arg(long, value_name = "TEXT")]
    kernel: Vec<String>,
    /// How many lines of each kernel are reported; 0 for none
    #[arg(long, value_name = "N", default_value_t = 10)]
    lines: usize,
    /// Write everything into this folder: report.txt, profile.json, kernels.csv, lines.csv, trace.json, flame.svg and flame.folded
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Write a flame graph of kernels and their lines (SVG)
    #[arg(long, value_name = "FILE")]
    flame_graph: Option<PathBuf>,
    /// Write the flame graph's stacks as text, for other programs
    #[arg(long, value_name = "FILE")]
    folded: Option<PathBuf>,
    /// Write all launches over time, for Perfetto or chrome://tracing (JSON)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write all that was counted (JSON)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write what was counted by kernel and line (CSV)
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// `rgpu run`'s arguments, to be made of words.
#[derive(Parser)]
struct Run {
    #[command(flatten)]
    arguments: super::Arguments,
}

/// The folder to which processes add what they have counted. It is removed with this.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Result<Self, Failure> {
        use std::os::unix::fs::DirBuilderExt;
        let path = scratch::path("profile");
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(|e| cannot_write(&path, &e))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Makes a file's text of what was counted, and of the report.
type Text = fn(&Profile, &str) -> String;

impl Arguments {
    /// The files to be written, each with what makes its text.
    fn files(&self) -> Vec<(PathBuf, Text)> {
        let single: [(&Option<PathBuf>, &str, Text); 5] = [
            (&self.flame_graph, "flame.svg", |profile, _| flame::svg(profile)),
            (&self.folded, "flame.folded", |profile, _| flame::folded(profile)),
            (&self.trace, "trace.json", |profile, _| trace::text(profile)),
            (&self.json, "profile.json", |profile, _| report::json(profile)),
            (&self.csv, "lines.csv", |profile, _| report::lines_csv(profile)),
        ];
        let mut files: Vec<(PathBuf, Text)> = Vec::new();
        for (chosen, name, text) in single {
            files.extend(chosen.iter().map(|path| (path.clone(), text)));
            files.extend(self.output.iter().map(|folder| (folder.join(name), text)));
        }
        if let Some(folder) = &self.output {
            files.push((folder.join("report.txt"), |_, report| report.to_owned()));
            files.push((folder.join("kernels.csv"), |profile, _| report::kernels_csv(profile)));
        }
        files
    }
}

/// Runs the program, and reports what its kernels did.
pub(crate) fn main(arguments: Arguments) -> Outcome {
    let words = ["profile-kernels", "--in-process", "--"].map(OsString::from).into_iter();
    let run = Run::try_parse_from(words.chain(arguments.command.clone()))
        .map_err(|e| Failure::with_status(e.to_string(), 2))?
        .arguments;
    for variable in [SERVER_VARIABLE, LEASE_VARIABLE, BROKER_VARIABLE] {
        if settings::is_on(variable) {
            eprintln!(
                "rgpu: {variable} is not used: kernels are counted on the software GPU inside the program alone"
            );
        }
    }
    let mut prepared = prepare(&run, DeviceSource::Named)?;
    if prepared.container.is_some() {
        return Err(Failure::with_status(
            "What a container's programs do cannot be counted from outside: run `rgpu profile-kernels` in the container",
            2,
        ));
    }
    // What cannot be written is told before the program runs.
    if let Some(folder) = &arguments.output {
        fs::create_dir_all(folder).map_err(|e| cannot_write(folder, &e))?;
    }
    for (path, _) in arguments.files() {
        fs::write(&path, "").map_err(|e| cannot_write(&path, &e))?;
    }
    let folder = Folder::create()?;
    prepared.command.env(PROFILE_KERNELS_VARIABLE, &folder.0).env_remove(CHECK_VARIABLE);
    let program = &arguments.command[0];
    let ended = child::run(&mut prepared.command, None).map_err(|e| cannot_start(program, &e))?;
    if let Ended::Signal(signal) = ended {
        eprintln!("rgpu: the program was killed by signal {signal}");
    }
    let wanted = |name: &str| {
        arguments.kernel.is_empty() || arguments.kernel.iter().any(|text| name.contains(text.as_str()))
    };
    let profile = Profile::read(&folder.0, wanted)?;
    let report = report::text(&profile, arguments.lines, &arguments.kernel);
    eprint!("{report}");
    for (path, text) in arguments.files() {
        fs::write(&path, text(&profile, &report)).map_err(|e| cannot_write(&path, &e))?;
    }
    // Not left to the end of this function, which a signal may prevent.
    drop((folder, prepared));
    Ok(ExitCode::from(ended.reproduce()))
}
