//! `rgpu slurm`: GPUs for the jobs of a Slurm cluster.
//!
//! The plugin (`slurm/`) runs `prolog` and `epilog` on a job's nodes, `sync` runs beside Slurm's controller, and `plugin` makes the
//! plugin fit the machine's Slurm. docs/slurm.md is the page for whoever installs it.

mod job;
mod lease;
mod licences;
mod plugin;
mod slurmctld;
mod sync;

use crate::Outcome;

/// Give the jobs of a Slurm cluster GPUs that a broker leases.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Sync(Box<sync::Arguments>),
    Plugin(plugin::Arguments),
    /// Gets a job's lease; run by the plugin before the job's first task on a node
    #[command(hide = true)]
    Prolog(Box<job::Arguments>),
    /// Renews a job's lease on a node; started by `prolog`
    #[command(hide = true)]
    Keep(Box<job::Arguments>),
    /// Gives a job's lease back; run by the plugin after the job's last task on a node
    #[command(hide = true)]
    Epilog(Box<job::Arguments>),
}

/// Does what was asked for.
pub(crate) fn main(arguments: &Arguments) -> Outcome {
    match &arguments.action {
        Action::Sync(arguments) => sync::main(arguments),
        Action::Plugin(arguments) => plugin::main(arguments),
        Action::Prolog(arguments) => job::prolog(arguments),
        Action::Keep(arguments) => job::keep(arguments),
        Action::Epilog(arguments) => job::epilog(arguments),
    }
}
