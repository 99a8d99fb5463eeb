//! The one command that people type.

#[cfg(feature = "bench")]
mod bench;
#[cfg(feature = "broker")]
mod broker;
#[cfg(all(feature = "broker", feature = "serve"))]
mod cluster;
mod control;
mod devices;
mod doctor;
mod encrypted;
mod explain;
mod folders;
mod join;
mod joined;
mod leases;
#[cfg(any(
    test,
    not(all(feature = "bench", feature = "broker", feature = "serve", feature = "sim", feature = "top"))
))]
mod left_out;
mod library;
#[cfg(any(feature = "serve", feature = "broker"))]
mod log;
mod manual;
mod nodes;
mod own_cluster;
#[cfg(feature = "broker")]
mod policy;
mod probe;
mod profiles;
mod ptxas;
mod run;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "sim")]
mod sim;
mod slurm;
#[cfg(feature = "sim")]
mod solve;
mod status;
mod table;
mod ui;

#[cfg(not(feature = "bench"))]
left_out::left_out!(bench, "bench");
#[cfg(not(feature = "broker"))]
left_out::left_out!(broker, "broker");
#[cfg(not(feature = "broker"))]
left_out::left_out!(policy, "broker");
#[cfg(not(all(feature = "broker", feature = "serve")))]
left_out::left_out!(cluster, "broker,serve");
#[cfg(not(feature = "serve"))]
left_out::left_out!(serve, "serve");
#[cfg(not(feature = "sim"))]
left_out::left_out!(sim, "sim");
#[cfg(not(feature = "sim"))]
left_out::left_out!(solve, "sim");

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs unmodified CUDA programs on GPUs that are not in this machine
#[derive(Parser)]
#[command(
    name = "rgpu",
    version,
    after_help = "Examples:\n  \
        rgpu serve --listen 127.0.0.1:7070 --device software\n  \
        rgpu run --server 127.0.0.1:7070 -- ./vector_add\n  \
        rgpu run --in-process -- ./vector_add\n  \
        rgpu cluster up\n  \
        rgpu run --broker http://broker:7080 --gpus 1 --share 25% -- ./vector_add\n  \
        rgpu check -- ./vector_add\n  \
        rgpu profile-kernels -- ./vector_add\n  \
        rgpu doctor ./vector_add"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<run::Arguments>),
    Check(Box<run::check::Arguments>),
    Profile(Box<run::profile::Arguments>),
    ProfileKernels(run::profile_kernels::Arguments),
    Serve(Box<serve::Arguments>),
    Broker(Box<broker::Arguments>),
    Cluster(cluster::Arguments),
    Join(join::Arguments),
    Devices(devices::Arguments),
    Doctor(doctor::Arguments),
    Ptxas(ptxas::Arguments),
    Status(status::Arguments),
    Ui(ui::Arguments),
    Leases(leases::Arguments),
    Explain(explain::Arguments),
    Nodes(nodes::Arguments),
    Policy(policy::Arguments),
    Profiles(profiles::Arguments),
    Slurm(slurm::Arguments),
    Sim(sim::Arguments),
    Solve(solve::Arguments),
    Bench(bench::Arguments),
    Completions(manual::CompletionArguments),
    Manual(manual::ManualArguments),
    /// The process that serves one application; started by `rgpu serve`.
    #[cfg(feature = "serve")]
    #[command(name = rgpu_server::APP_SERVER_COMMAND, hide = true)]
    AppServer,
    /// The process that looks for NVIDIA devices; started by `rgpu serve` and `rgpu devices`.
    #[cfg(feature = "serve")]
    #[command(name = rgpu_server::inventory::INVENTORY_COMMAND, hide = true)]
    Inventory {
        /// The driver's library
        driver: Option<std::ffi::OsString>,
    },
    /// The process that measures NVIDIA devices; started by `rgpu serve`.
    #[cfg(feature = "serve")]
    #[command(name = rgpu_server::agent::TELEMETRY_COMMAND, hide = true)]
    Telemetry {
        /// Their UUIDs, separated by commas
        devices: String,
        /// The driver's library
        driver: Option<std::ffi::OsString>,
    },
    /// The process that keeps a cluster running; started by `rgpu cluster up`.
    #[cfg(all(feature = "broker", feature = "serve"))]
    #[command(name = cluster::SUPERVISOR_COMMAND, hide = true)]
    ClusterSupervisor {
        /// The cluster's directory
        directory: std::path::PathBuf,
    },
    /// A process that measures for `rgpu bench`.
    #[cfg(feature = "bench")]
    #[command(name = bench::WORKER_COMMAND, hide = true)]
    BenchWorker,
}

fn main() -> ExitCode {
    let command = ptxas::started_as().map_or_else(|| Arguments::parse().command, Command::Ptxas);
    let result = match command {
        Command::Run(arguments) => run::main(*arguments),
        Command::Check(arguments) => run::check::main(*arguments),
        Command::Profile(arguments) => run::profile::main(*arguments),
        Command::ProfileKernels(arguments) => run::profile_kernels::main(arguments),
        Command::Serve(arguments) => serve::main(*arguments),
        Command::Broker(arguments) => broker::main(*arguments),
        Command::Cluster(arguments) => cluster::main(arguments),
        Command::Join(arguments) => join::main(arguments),
        Command::Devices(arguments) => devices::main(&arguments),
        Command::Doctor(arguments) => doctor::main(&arguments),
        Command::Ptxas(arguments) => ptxas::main(&arguments),
        Command::Status(arguments) => status::main(&arguments),
        Command::Ui(arguments) => ui::main(&arguments),
        Command::Leases(arguments) => leases::main(&arguments),
        Command::Explain(arguments) => explain::main(&arguments),
        Command::Nodes(arguments) => nodes::main(&arguments),
        Command::Policy(arguments) => policy::main(arguments),
        Command::Profiles(arguments) => profiles::main(&arguments),
        Command::Slurm(arguments) => slurm::main(&arguments),
        Command::Sim(arguments) => sim::main(arguments),
        Command::Solve(arguments) => solve::main(arguments),
        Command::Bench(arguments) => bench::main(arguments),
        Command::Completions(arguments) => manual::completions(&arguments),
        Command::Manual(arguments) => manual::manual(&arguments),
        #[cfg(feature = "serve")]
        Command::AppServer => serve::app_server(),
        #[cfg(feature = "serve")]
        Command::Inventory { driver } => Ok(rgpu_server::inventory::inventory_main(driver.as_deref())),
        #[cfg(feature = "serve")]
        Command::Telemetry { devices, driver } => {
            Ok(rgpu_server::agent::telemetry_main(&devices, driver.as_deref()))
        }
        #[cfg(all(feature = "broker", feature = "serve"))]
        Command::ClusterSupervisor { directory } => cluster::supervise(directory),
        #[cfg(feature = "bench")]
        Command::BenchWorker => bench::worker_main(),
    };
    result.unwrap_or_else(|failure| {
        eprintln!("rgpu: {}", failure.message);
        ExitCode::from(failure.status)
    })
}

/// Why a command failed, for people, and the exit status that says so.
#[derive(Debug)]
struct Failure {
    message: String,
    status: u8,
}

impl Failure {
    /// An ordinary failure.
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: 1 }
    }

    /// A failure with an exit status of its own.
    fn with_status(message: impl Into<String>, status: u8) -> Self {
        Self { message: message.into(), status }
    }
}

/// The outcome of a command.
type Outcome = Result<ExitCode, Failure>;
