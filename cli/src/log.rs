//! What services write while they run.

use std::io::IsTerminal;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// From now on events go to standard error: those that `RGPU_LOG` asks for, else what is worth knowing.
///
/// `RGPU_LOG` is a level (`debug`), or levels by module with commas between (`rgpu_broker=debug,info`).
pub fn to_stderr() {
    let layer = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    tracing_subscriber::registry().with(layer).with(wanted(std::env::var("RGPU_LOG").ok().as_deref())).init();
}

/// What is written: what was asked for, where that makes sense.
fn wanted(asked: Option<&str>) -> Targets {
    let asked = asked.filter(|text| !text.is_empty()).and_then(|text| text.parse().ok());
    asked.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO))
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::LevelFilter;

    use super::wanted;

    #[test]
    fn levels_are_for_all_or_by_module() {
        let level = |asked| wanted(asked).default_level();
        assert_eq!(level(None), Some(LevelFilter::INFO));
        assert_eq!(level(Some("")), Some(LevelFilter::INFO));
        assert_eq!(level(Some("rgpu_broker=loud")), Some(LevelFilter::INFO));
        assert_eq!(level(Some("debug")), Some(LevelFilter::DEBUG));
        let some = wanted(Some("rgpu_broker=debug,warn"));
        assert_eq!(some.default_level(), Some(LevelFilter::WARN));
        assert!(some.iter().any(|(target, level)| target == "rgpu_broker" && level == LevelFilter::DEBUG));
    }
}
