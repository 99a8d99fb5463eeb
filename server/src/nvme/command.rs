//! A command as an administrator writes it, with places for what it is about.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// What can stand in a command's words.
const PLACES: [&str; 4] = ["{device}", "{lease}", "{target}", "{host}"];
/// How often it is looked whether a command has ended.
const LOOK: Duration = Duration::from_millis(20);
/// After a command's end, what it has started may go on and keep its output open: that is not waited for.
const REST: Duration = Duration::from_millis(500);
/// The most bytes of a line that are kept.
const LINE: u64 = 1024;

/// No command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// There is nothing.
    #[error("it names no command")]
    Empty,
    /// A word has braces around something else.
    #[error("`{0}` is no place: there are {{device}}, {{lease}}, {{target}} and {{host}}")]
    Place(String),
}

/// A command: words, separated by spaces. In each, `{device}`, `{lease}`, `{target}` and `{host}` stand for what it is about; what is
/// put there stays within its word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<String>);

impl FromStr for Template {
    type Err = TemplateError;
    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        for word in &words {
            let rest = PLACES.iter().fold(word.clone(), |rest, place| rest.replace(place, ""));
            if rest.contains(['{', '}']) {
                return Err(TemplateError::Place(word.clone()));
            }
        }
        if words.is_empty() { Err(TemplateError::Empty) } else { Ok(Self(words)) }
    }
}

/// A line of output.
struct Line {
    text: String,
    error: bool,
}

impl Template {
    /// Runs the command with these values. The answer is its last line on standard output.
    ///
    /// # Errors
    /// Why it failed: its last line on standard error, or else on standard output.
    pub(super) fn run(&self, values: &[(&str, &str)], limit: Duration) -> Result<Option<String>, String> {
        for (place, value) in values {
            // Programs that the command starts, such as ssh, may have a shell after all.
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
            if value.is_empty() || value.starts_with('-') || !value.chars().all(plain) {
                return Err(format!("{place} would be {value:?}, which is no plain name"));
            }
        }
        let fill = |word: &String| {
            values.iter().fold(word.clone(), |word, (place, value)| word.replace(place, value))
        };
        let words: Vec<String> = self.0.iter().map(fill).collect();
        let (program, arguments) = words.split_first().ok_or("it names no command")?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| format!("cannot start {program}: {e}"))?;
        let (lines, said) = channel();
        if let Some(output) = child.stdout.take() {
            listen(output, false, lines.clone());
        }
        if let Some(output) = child.stderr.take() {
            listen(output, true, lines);
        }
        let mut last: [Option<String>; 2] = [None, None];
        let mut hear = |time: Duration| match said.recv_timeout(time) {
            Ok(Line { text, error }) => {
                tracing::info!(command = program, "{text}");
                last[usize::from(error)] = Some(text);
                true
            }
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(time);
                false
            }
        };
        let end = Instant::now() + limit;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < end => drop(hear(LOOK)),
                Ok(None) => {
                    kill(&mut child);
                    return Err(format!("{program} took longer than {} s", limit.as_secs_f64()));
                }
                Err(e) => {
                    kill(&mut child);
                    return Err(format!("{program} cannot be waited for: {e}"));
                }
            }
        };
        let rest = Instant::now() + REST;
        while Instant::now() < rest && hear(Duration::from_millis(1)) {}
        let [output, error] = last;
        match status.success() {
            true => Ok(output),
            false => Err(error.or(output).unwrap_or_else(|| format!("{program} failed: {status}"))),
        }
    }
}

/// Passes on what is read line by line, in a thread of its own.
fn listen(output: impl Read + Send + 'static, error: bool, lines: Sender<Line>) {
    let body = move || {
        let mut output = BufReader::new(output);
        let mut bytes = Vec::new();
        while output.by_ref().take(LINE).read_until(b'\n', &mut bytes).is_ok_and(|n| n > 0) {
            let text = rgpu_control::units::printable(String::from_utf8_lossy(&bytes).trim());
            bytes.clear();
            if !text.is_empty() && lines.send(Line { text, error }).is_err() {
                return;
            }
        }
    };
    if let Err(e) = std::thread::Builder::new().name("command".into()).stack_size(128 << 10).spawn(body) {
        tracing::warn!("a command's output is not read: {e}");
    }
}

/// Ends a command and what it has started.
fn kill(child: &mut Child) {
    if let Ok(group) = libc::pid_t::try_from(child.id()) {
        // SAFETY: a plain system call. The child leads a group of its own, and has not been waited for.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    let _ = child.wait();
}
