//! Where a user's files are.

use std::path::PathBuf;

use rgpu_control::settings;

/// What is kept from one run to the next: `$XDG_STATE_HOME/rgpu`, else `~/.local/state/rgpu`. `None` for a user without a home.
pub(crate) fn state() -> Option<PathBuf> {
    let absolute = |name: &str| settings::path(name).filter(|path| path.is_absolute());
    let states = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(states.join("rgpu"))
}
