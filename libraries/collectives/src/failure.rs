//! What goes wrong among ranks.

use std::fmt;

/// Why ranks did not come together, or an operation did not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Somebody in this process has put an end to it.
    Stopped,
    /// It took longer than it may.
    Late(String),
    /// The connection to a rank has ended.
    Lost(String),
    /// Two ranks do different things.
    Disagreement(String),
    /// Somebody does not know the secret, or the rendezvous refuses.
    Refused(String),
    /// This machine cannot do it.
    System(String),
    /// The memory of an operation could not be read or written.
    Memory(String),
    /// What the operation is asked for makes no sense.
    Invalid(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("it was aborted"),
            Self::Late(why)
            | Self::Lost(why)
            | Self::Disagreement(why)
            | Self::Refused(why)
            | Self::System(why)
            | Self::Memory(why)
            | Self::Invalid(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Failure {}
