//! `rgpu doctor`: what is visible, what is missing, what to do.

mod device_code;
mod environment;
mod program;
mod python;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use rgpu_control::settings::SERVER_VARIABLE;

use crate::Outcome;

/// Check what rgpu needs: the library, the server, and (given a command) whether it can run under rgpu.
///
/// Exits with 0 if everything is fine, with 1 if something has to be done, which is then said.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    rgpu doctor --server gpuhost:7070\n  \
    rgpu doctor ./vector_add\n  \
    rgpu doctor python train.py")]
pub(crate) struct Arguments {
    /// The server to check
    #[arg(long, value_name = "HOST:PORT", env = SERVER_VARIABLE)]
    server: Option<String>,
    /// A file with the token that the server asks for
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A program, looked up in PATH as a shell does; its arguments are not used
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Finding {
    /// As it should be.
    Good(String),
    /// Worth knowing.
    Note(String),
    /// It won't work: what is wrong, and what to do.
    Bad {
        /// What is wrong.
        what: String,
        /// What to do.
        advice: String,
    },
}

impl Finding {
    fn good(text: impl Into<String>) -> Self {
        Self::Good(text.into())
    }

    fn note(text: impl Into<String>) -> Self {
        Self::Note(text.into())
    }

    fn bad(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::Bad { what: what.into(), advice: advice.into() }
    }

    fn is_bad(&self) -> bool {
        matches!(self, Self::Bad { .. })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good(text) => write!(f, "ok    {text}"),
            Self::Note(text) => write!(f, "note  {text}"),
            Self::Bad { what, advice } => write!(f, "BAD   {what}\n      -> {advice}"),
        }
    }
}

/// Checks everything and says what was found.
pub(crate) fn main(arguments: &Arguments) -> Outcome {
    let mut findings = environment::check(arguments.server.as_deref(), arguments.token_file.as_deref());
    if let Some(command) = arguments.command.first() {
        findings.extend(program::check(command));
        findings.extend(python::check(command));
    }
    for finding in &findings {
        println!("{finding}");
    }
    let bad = findings.iter().filter(|finding| finding.is_bad()).count();
    if bad > 0 {
        println!("{bad} {} to be done.", if bad == 1 { "thing has" } else { "things have" });
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
