//! `rgpu run`: starts a program with the library preloaded.

pub(crate) mod check;
mod child;
mod container;
pub(crate) mod frameworks;
mod lease;
pub(crate) mod profile;
pub(crate) mod profile_kernels;
mod renewal;
mod scratch;
mod seeking;
mod software;
mod statistics;
mod threads;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::control::is_implied;
use crate::library::{self, Links};
use crate::{Failure, Outcome};
use child::Ended;
pub(crate) use child::Held;
use container::Container;
use lease::{Asked, LeaseArguments};
use renewal::Leased;
pub(crate) use renewal::{RELEASE_TIME, RETRY};
use rgpu_control::preload::{LIBRARY_PATH_VARIABLE, PRELOAD_VARIABLE, prepend, separators};
use rgpu_control::settings::{
    self, BROKER_TOKEN_VARIABLE, BROKER_VARIABLE, CONNECT_TIMEOUT_S, HARVEST_VARIABLE, IN_PROCESS_VARIABLE,
    LEASE_VARIABLE, LIBRARY_VARIABLE, NODE_VARIABLE, SERVER_VARIABLE, SOFT_CAPABILITY_VARIABLE,
    SOFT_DEVICES_VARIABLE, SOFT_EXACT_BOUNDS_VARIABLE, SOFT_MEMORY_VARIABLE, SOFT_MULTIPROCESSORS_VARIABLE,
    SOFT_WORKERS_VARIABLE, SOFTWARE_TOOLS_VARIABLE, TOKEN_FILE_VARIABLE,
};
use rgpu_control::units::{parse_bytes, parse_capability};
use rgpu_protocol::transport::{
    CA_VARIABLE, Choice, ENCRYPT_VARIABLE, FINGERPRINT_VARIABLE, TRANSPORT_VARIABLE,
};
pub(crate) use seeking::first_unreachable;
use statistics::{Report, Statistics};

/// Start a CUDA program that uses a server's GPU instead of one in this machine.
///
/// Which server that is, is said by --server, or decided by a broker, which leases GPUs or parts of them to the program until it
/// ends. The program's exit status, or the signal it died of, becomes this command's. Programs that it starts use
/// the same GPU.
#[derive(clap::Args)]
#[command(after_help = after_help())]
pub(crate) struct Arguments {
    /// The server whose GPU to use, or several, HOST:PORT,HOST:PORT, whose GPUs the program sees as its own
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "in_process")]
    server: Option<String>,
    /// Use the software GPU inside the program itself, without a server
    #[arg(long)]
    in_process: bool,
    #[arg(long, value_name = "KIND", conflicts_with = "in_process", help = Choice::help("How to talk to the server"))]
    transport: Option<Choice>,
    /// A file with the token that the server asks for
    #[arg(long, value_name = "FILE", conflicts_with = "in_process")]
    token_file: Option<PathBuf>,
    /// Count what is sent to the server, and print it at the end, or write it to a file for other programs
    #[arg(long, value_name = "json:FILE", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    stats: Option<Report>,
    /// Memory of each software GPU, such as 512M or 2G [default: half of what the machine has available, at least 4G]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "in_process", help_heading = "With --in-process")]
    memory: Option<u64>,
    /// Processor cores that the software GPU uses [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "in_process",
        help_heading = "With --in-process")]
    workers: Option<u32>,
    /// Multiprocessors that the software GPU says it has, for programs that want more than its workers [default: one for each worker]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=224), requires = "in_process",
        help_heading = "With --in-process")]
    multiprocessors: Option<u32>,
    /// Number of software GPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64), requires = "in_process",
        help_heading = "With --in-process")]
    devices: Option<u32>,
    /// Compute capability that the software GPU reports, such as 8.0
    #[arg(long, value_name = "X.Y", value_parser = parse_capability, requires = "in_process",
        help_heading = "With --in-process")]
    compute_capability: Option<(u32, u32)>,
    /// Let kernels fault in the first page of 4 KiB beside an allocation, and not only outside of the pages of 2 MiB round it
    #[arg(long, requires = "in_process", help_heading = "With --in-process")]
    exact_bounds: bool,
    #[command(flatten)]
    lease: LeaseArguments,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Examples, and what the environment says where options don't.
fn after_help() -> String {
    format!(
        "Examples:\n  \
         rgpu run --server gpuhost:7070 --token-file token -- ./train --epochs 3\n  \
         rgpu run --gpus 1 --gpu-memory 4GiB --share 25% --broker http://broker:7080 -- ./train\n  \
         rgpu run --in-process --workers 4 -- ./vector_add\n  \
         rgpu run --server gpuhost:7070 --stats=json:stats.json -- python3 train.py\n\n\
         Environment (all of it: docs/environment.md):\n  \
         {BROKER_VARIABLE}   the broker, where neither --broker nor --server nor --in-process is given\n  \
         {BROKER_TOKEN_VARIABLE}  the file with the token for the broker, where --broker-token-file is not given\n  \
         {HARVEST_VARIABLE}  1 for --harvest\n  \
         {NODE_VARIABLE}     which of the cluster's nodes this machine is, where --node is not given\n  \
         {SERVER_VARIABLE}   the server, where nothing of that is known\n  \
         {TRANSPORT_VARIABLE}  auto, shm, tcp or rdma, where --transport is not given\n  \
         {ENCRYPT_VARIABLE}  1 for --encrypt\n  \
         {FINGERPRINT_VARIABLE}  certificates of servers that may be used, sha256:…, separated by commas; encrypts, too\n  \
         {CA_VARIABLE}   a file with certificates (PEM) that sign those of servers that may be used; encrypts, too\n  \
         RGPU_CONNECT_TIMEOUT  how many seconds connecting may take [default: {CONNECT_TIMEOUT_S}]\n  \
         {LIBRARY_VARIABLE}  where librgpu.so is, if neither beside this command nor in ../lib or ../lib/rgpu"
    )
}

/// Where the program's GPU is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeviceSource {
    /// At a server that is named, or inside the program.
    Named,
    /// Where a broker says.
    Leased,
    /// Where the environment says.
    Inherited,
}

/// Runs the program.
pub(crate) fn main(arguments: Arguments) -> Outcome {
    let source = find_device_source(&arguments)?;
    let mut prepared = prepare(&arguments, source)?;
    let statistics = Statistics::of(arguments.stats.as_ref(), &mut prepared.command)?;
    if source != DeviceSource::Leased {
        prepared.hand_over(None)?;
        if statistics.is_none() && !prepared.has_to_tidy_up() {
            // Nothing is left to do but to become the program.
            let error = prepared.command.exec();
            return Err(cannot_start(&arguments.command[0], &error));
        }
    }
    let ended = run_to_the_end(&mut prepared, &arguments, source)?;
    if let Some(statistics) = &statistics {
        statistics.report()?;
    }
    // Not left to the end of this function, which a signal may prevent.
    drop((statistics, prepared));
    Ok(ExitCode::from(ended.reproduce()))
}

/// Runs a program that is ready, or is once it has the lease that it is to have, and waits for its end.
fn run_to_the_end(
    prepared: &mut Prepared,
    arguments: &Arguments,
    source: DeviceSource,
) -> Result<Ended, Failure> {
    let program = &arguments.command[0];
    if source == DeviceSource::Leased {
        return run_leased(prepared, arguments, program);
    }
    child::run(&mut prepared.command, None).map_err(|e| cannot_start(program, &e))
}

/// A command that is ready to be started, once it has been told its lease.
struct Prepared {
    command: Command,
    /// Where the command is a container engine's: the container that it starts.
    container: Option<Container>,
}

impl Prepared {
    /// What a broker knows the program by.
    fn program<'a>(&'a self, arguments: &'a Arguments) -> &'a [OsString] {
        self.container.as_ref().map_or(&arguments.command, Container::program)
    }

    /// Tells the program of its lease, if it has one of its own. It can be started then.
    fn hand_over(&mut self, leased: Option<&Leased>) -> Result<(), Failure> {
        if let Some(leased) = leased {
            leased.hand_to(&mut self.command);
        }
        match &mut self.container {
            Some(container) => container.complete(&mut self.command, leased),
            None => Ok(()),
        }
    }

    /// Whether something is left to do after the program's end.
    fn has_to_tidy_up(&self) -> bool {
        self.container.as_ref().is_some_and(Container::holds_ticket)
    }
}

/// The program's command, with everything by which it finds its GPU but the lease.
fn prepare(arguments: &Arguments, source: DeviceSource) -> Result<Prepared, Failure> {
    let (program, rest) =
        arguments.command.split_first().ok_or_else(|| Failure::new("No program was given"))?;
    let mut command = Command::new(program);
    choose_device(&mut command, arguments, source)?;
    let container = Container::of(&arguments.command, source == DeviceSource::Leased)?;
    let software = software::is_used(arguments, source, container.is_some());
    if container.is_some() {
        if software {
            command.env(SOFTWARE_TOOLS_VARIABLE, "1");
        }
        return Ok(Prepared { command, container });
    }
    command.args(rest);
    let links = preload(&mut command)?;
    if software {
        software::prepare(&mut command, program, &links);
    }
    Ok(Prepared { command, container })
}

impl Arguments {
    /// Of a run with a lease and nothing else that is special.
    fn leased(lease: LeaseArguments, transport: Option<Choice>, command: Vec<OsString>) -> Self {
        Self {
            server: None,
            in_process: false,
            transport,
            token_file: None,
            stats: None,
            memory: None,
            workers: None,
            multiprocessors: None,
            devices: None,
            compute_capability: None,
            exact_bounds: false,
            lease,
            command,
        }
    }
}

/// Runs the program with a lease, which it takes before and gives back afterwards.
fn run_leased(prepared: &mut Prepared, arguments: &Arguments, program: &OsString) -> Result<Ended, Failure> {
    let held = Held::new().map_err(|e| Failure::new(format!("Cannot wait for signals: {e}")))?;
    let known_by = prepared.program(arguments);
    let asked = lease::obtain(&arguments.lease, known_by, arguments.transport, &held)?;
    let leased: Leased = match asked {
        Asked::Granted(leased) => leased,
        Asked::Interrupted(signal) => return Ok(Ended::Signal(signal)),
    };
    if let Some(signal) = held.wait(std::time::Duration::ZERO) {
        return Ok(Ended::Signal(signal));
    }
    prepared.hand_over(Some(&leased))?;
    let ended = child::run(&mut prepared.command, Some(&held)).map_err(|e| cannot_start(program, &e))?;
    leased.finish(ended != Ended::Status(0));
    Ok(ended)
}

/// Where the program's GPU is to be.
fn find_device_source(arguments: &Arguments) -> Result<DeviceSource, Failure> {
    let lease = &arguments.lease;
    if arguments.server.is_some() || arguments.in_process {
        if lease.given() {
            let option = lease.needs().unwrap_or("--broker");
            let text = format!(
                "{option} asks a broker for GPUs, and --server or --in-process says which to use: give one"
            );
            return Err(Failure::with_status(text, 2));
        }
        return Ok(DeviceSource::Named);
    }
    if lease.given() && !lease.broker_known() && !is_implied() {
        let option = lease.needs().unwrap_or("--broker-token-file");
        let text = format!(
            "{option} wants a broker: say which with --broker URL or RGPU_BROKER, join a cluster with `rgpu join`, or start one \
             with `rgpu cluster up`"
        );
        return Err(Failure::with_status(text, 2));
    }
    // A lease covers the programs that its program starts, also those that it starts like this.
    let inherited = settings::variable(LEASE_VARIABLE).is_some();
    if lease.given() || (lease.broker_known() && !inherited) {
        return Ok(DeviceSource::Leased);
    }
    if !inherited && !settings::is_on(SERVER_VARIABLE) && !settings::is_on(IN_PROCESS_VARIABLE) {
        if is_implied() {
            return Ok(DeviceSource::Leased);
        }
        return Err(Failure::with_status(
            "Say which GPU to use: --broker URL for one that a broker leases, --server HOST:PORT for a server's (start one \
             with `rgpu serve`), or --in-process for the software GPU inside the program. Or start a \
             cluster on this machine with `rgpu cluster up`, which is then used",
            2,
        ));
    }
    Ok(DeviceSource::Inherited)
}

fn cannot_start(program: &OsString, error: &std::io::Error) -> Failure {
    // What shells return.
    let status = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    Failure::with_status(format!("Cannot start {}: {error}", program.to_string_lossy()), status)
}

/// Says by the environment where the GPU is.
fn choose_device(command: &mut Command, arguments: &Arguments, source: DeviceSource) -> Result<(), Failure> {
    if source != DeviceSource::Inherited {
        for other in [LEASE_VARIABLE, SERVER_VARIABLE, IN_PROCESS_VARIABLE] {
            command.env_remove(other);
        }
    }
    if let Some(server) = &arguments.server {
        server.split(',').try_for_each(|one| check_address(one.trim()))?;
        command.env(SERVER_VARIABLE, server);
    } else if arguments.in_process {
        command.env(IN_PROCESS_VARIABLE, "1");
    }
    if let Some(transport) = arguments.transport {
        command.env(TRANSPORT_VARIABLE, transport.name());
    }
    if arguments.lease.encrypt {
        command.env(ENCRYPT_VARIABLE, "1");
    }
    if let Some(file) = &arguments.token_file {
        let file = file
            .canonicalize()
            .map_err(|e| Failure::new(format!("Cannot use the token file {}: {e}", file.display())))?;
        command.env(TOKEN_FILE_VARIABLE, file);
    }
    if let Some(memory) = arguments.memory {
        command.env(SOFT_MEMORY_VARIABLE, memory.to_string());
    }
    if arguments.exact_bounds {
        command.env(SOFT_EXACT_BOUNDS_VARIABLE, "1");
    }
    if let Some(workers) = arguments.workers {
        command.env(SOFT_WORKERS_VARIABLE, workers.to_string());
    }
    if let Some(multiprocessors) = arguments.multiprocessors {
        command.env(SOFT_MULTIPROCESSORS_VARIABLE, multiprocessors.to_string());
    }
    if let Some(devices) = arguments.devices {
        command.env(SOFT_DEVICES_VARIABLE, devices.to_string());
    }
    if let Some((major, minor)) = arguments.compute_capability {
        command.env(SOFT_CAPABILITY_VARIABLE, format!("{major}.{minor}"));
    }
    Ok(())
}

/// Whether a string looks like `HOST:PORT`.
pub(crate) fn check_address(address: &str) -> Result<(), Failure> {
    let good = address
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0));
    if good {
        return Ok(());
    }
    Err(Failure::with_status(
        format!("{address:?} is not a server's address: give HOST:PORT, such as gpuhost:7070 or [::1]:7070"),
        2,
    ))
}

/// Makes the program load the library.
fn preload(command: &mut Command) -> Result<Links, Failure> {
    let library = library::find()?;
    let links = Links::create(&library)?;
    for (variable, entry) in
        [(PRELOAD_VARIABLE, links.preloadable()), (LIBRARY_PATH_VARIABLE, links.directory().to_owned())]
    {
        let old = std::env::var_os(variable);
        command.env(variable, prepend(&entry, old.as_deref(), separators(variable)));
    }
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        for good in ["127.0.0.1:7070", "gpuhost:1", "[::1]:7070"] {
            assert!(check_address(good).is_ok(), "{good}");
        }
        for bad in ["", "gpuhost", ":7070", "gpuhost:", "gpuhost:0", "gpuhost:70707", "gpuhost:http"] {
            assert!(check_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_software_gpus_settings_are_checked_before_the_program_starts() {
        use clap::Parser;
        #[derive(Parser)]
        struct Command {
            #[command(flatten)]
            arguments: Arguments,
        }
        let parse = |options: &str| {
            let words = format!("run --in-process {options} -- true");
            Command::try_parse_from(words.split_whitespace()).map(|command| command.arguments)
        };
        let good =
            parse("--memory 512MiB --workers 2 --multiprocessors 108 --devices 3 --compute-capability 9.0");
        let good = good.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((good.memory, good.compute_capability), (Some(512 << 20), Some((9, 0))));
        for bad in [
            "--memory 1X",
            "--workers 0",
            "--multiprocessors 0",
            "--multiprocessors 225",
            "--devices 0",
            "--devices 65",
            "--compute-capability nine",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
