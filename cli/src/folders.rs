//! Where a user's files are.

use std::path::PathBuf;

use rgpu_control::settings;

/// What is kept from one run to the next: `$XDG_STATE_HOME/rgpu`, else `~/.local/state/rgpu`. `None` for a user without a home.
pub(crate) fn state() -> Option<PathBuf> {
    of_user("XDG_STATE_HOME", ".local/state")
}

/// What the user has set up: `$XDG_CONFIG_HOME/rgpu`, else `~/.config/rgpu`. `None` for a user without a home.
pub(crate) fn config() -> Option<PathBuf> {
    of_user("XDG_CONFIG_HOME", ".config")
}

fn of_user(variable: &str, at_home: &str) -> Option<PathBuf> {
    let absolute = |name: &str| settings::path(name).filter(|path| path.is_absolute());
    let base = absolute(variable).or_else(|| Some(absolute("HOME")?.join(at_home)))?;
    Some(base.join("rgpu"))
}
