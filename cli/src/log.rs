//! What services write while they run.

use std::io::IsTerminal;

use rgpu_control::settings::LOG_VARIABLE;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Where it is not set.
const DEFAULT_LOG: &str = "info";

/// From now on events go to standard error: those that `RGPU_LOG` asks for, else what is worth knowing.
pub(crate) fn to_stderr() {
    let asked = std::env::var(LOG_VARIABLE).unwrap_or_else(|_| DEFAULT_LOG.into());
    let filter = parse(&asked).unwrap_or_else(|e| {
        eprintln!(
            "rgpu: {LOG_VARIABLE}={asked} cannot be understood ({e}): give a level, such as debug, or \
             TARGET=LEVEL, separated by commas; writing {DEFAULT_LOG}"
        );
        Targets::new().with_default(tracing_subscriber::filter::LevelFilter::INFO)
    });
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    tracing_subscriber::registry().with(filter).with(lines).init();
}

/// Levels, for all targets or for single ones, separated by commas: `debug`, `info,rgpu_server::peer=trace`.
fn parse(text: &str) -> Result<Targets, ParseError> {
    let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    parts.join(",").parse()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::filter::LevelFilter;

    #[test]
    fn levels_are_said_for_all_targets_or_for_one() {
        let filter = parse("info, rgpu_server::peer=trace,").unwrap();
        assert!(filter.would_enable("rgpu_broker", &tracing_level(LevelFilter::INFO)));
        assert!(!filter.would_enable("rgpu_broker", &tracing_level(LevelFilter::DEBUG)));
        assert!(filter.would_enable("rgpu_server::peer::board", &tracing_level(LevelFilter::TRACE)));
        assert!(!parse("off").unwrap().would_enable("rgpu_server", &tracing_level(LevelFilter::ERROR)));
        assert_eq!(parse(DEFAULT_LOG).unwrap().default_level(), Some(LevelFilter::INFO));
        assert!(parse("rgpu_server=loud").is_err());
    }

    fn tracing_level(filter: LevelFilter) -> tracing::Level {
        filter.into_level().unwrap()
    }
}
