//! What services write while they run.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// From now on events go to standard error: those that `RGPU_LOG` asks for, else what is worth knowing.
pub fn to_stderr() {
    let filter = EnvFilter::try_from_env("RGPU_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}
