//! What `rgpu check` asks for, and the reports: of the software GPU inside the program, and of servers' software GPUs in the same words.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rgpu_control::settings::{
    self, CHECK_LIMIT_VARIABLE, CHECK_LOG_VARIABLE, CHECK_TALLY_VARIABLE, CHECK_VARIABLE,
};
use rgpu_device::{Check, Finding};

use super::error::{self, Error, Result};

/// What each line of a report begins with.
const PREFIX: &str = "=========";

/// What is to be looked at while kernels run, as `RGPU_CHECK` and `RGPU_CHECK_LIMIT` say.
pub(super) fn of_environment() -> Result<Option<Check>> {
    let Some(tools) = settings::text(CHECK_VARIABLE) else { return Ok(None) };
    let check = Check::of_tools(&tools).ok_or_else(|| error::not_understood(CHECK_VARIABLE, &tools))?;
    let limit = settings::text(CHECK_LIMIT_VARIABLE);
    let limit =
        limit.map(|limit| limit.parse().map_err(|_| error::not_understood(CHECK_LIMIT_VARIABLE, &limit)));
    let limit = limit.transpose()?;
    Ok(Some(Check { limit, ..check }))
}

/// Where reports go, and how many there were. Files are opened for each, since programs may close what is open.
pub(super) struct Reports {
    /// The file that they are added to; standard error where there is none.
    log: Option<PathBuf>,
    /// A file to which a line is added for each mistake that was written, and for more that were not ([`Reports::count`]). Without it,
    /// the process itself says at its end how many there were.
    tally: Option<PathBuf>,
    limit: u64,
    written: AtomicU64,
    left_out: AtomicU64,
}

impl Reports {
    /// As the environment says, with that limit.
    pub(super) fn new(limit: Option<u64>) -> Self {
        Self {
            log: settings::path(CHECK_LOG_VARIABLE),
            tally: settings::path(CHECK_TALLY_VARIABLE),
            limit: limit.unwrap_or(u64::MAX),
            written: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        }
    }

    /// In one piece, so that reports of several processes are not mixed. That nobody can read them is no reason to fail.
    fn write(&self, text: &str) {
        match &self.log {
            Some(log) => add(OpenOptions::new().append(true).create(true), log, text),
            None => drop(std::io::stderr().lock().write_all(text.as_bytes())),
        }
    }

    /// Parts of what is found come from kernels, and may come from a server.
    fn lines(text: &str) -> String {
        let text = error::fit_for_a_terminal(text);
        text.split('\n').map(|line| format!("{PREFIX} {line}\n")).collect()
    }

    /// Tells `rgpu check`: `p` and a number are mistakes that were written, `n` and one those that were not, `x` a process of whose kernels
    /// not all is known.
    fn count(&self, what: char, count: u64) {
        if let Some(tally) = &self.tally {
            // Where it is gone, so is whoever reads it.
            add(OpenOptions::new().append(true), tally, &format!("{what} {count}\n"));
        }
    }

    /// Writes what was found.
    pub(super) fn found(&self, finding: Finding<'_>) {
        match finding {
            Finding::Mistake(text) => {
                // Each of several servers keeps to the limit by itself.
                if self.written.fetch_add(1, Ordering::Relaxed) < self.limit {
                    self.write(&format!("{}{PREFIX}\n", Self::lines(text)));
                    self.count('p', 1);
                } else {
                    self.written.fetch_sub(1, Ordering::Relaxed);
                    self.leave_out(1);
                }
            }
            Finding::Unreported(count) => self.leave_out(count),
            Finding::Remark(text) => self.write(&Self::lines(text)),
        }
    }

    fn leave_out(&self, count: u64) {
        let add = |left_out: u64| Some(left_out.saturating_add(count));
        let _ = self.left_out.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        self.count('n', count);
    }

    /// The program ends and nothing more will be found: says how many mistakes there were, unless somebody else does.
    pub(super) fn end(&self) {
        if self.tally.is_some() {
            return;
        }
        let left_out = self.left_out.load(Ordering::Relaxed);
        let count = self.written.load(Ordering::Relaxed).saturating_add(left_out);
        let mut text = format!("ERROR SUMMARY: {count} error{}", plural(count));
        if left_out > 0 {
            text += &format!("\nERROR SUMMARY: {left_out} error{} were not printed", plural(left_out));
        }
        self.write(&Self::lines(&text));
    }

    /// Not all is known of this process's kernels, and nobody shall think so.
    pub(super) fn incomplete(&self, why: &Error) {
        let pid = std::process::id();
        self.write(&Self::lines(&format!(
            "Not all kernels of process {pid} were looked at: {}",
            why.message
        )));
        self.count('x', 1);
        self.end();
    }
}

/// The program has no session: where its kernels were to be looked at, nobody shall think that they were.
pub(super) fn not_opened(why: &Error) {
    if settings::variable(CHECK_VARIABLE).is_some() {
        Reports::new(None).incomplete(why);
    }
}

fn add(how: &OpenOptions, path: &Path, text: &str) {
    let file = how.open(path);
    if let Err(e) = file.and_then(|mut file| file.write_all(text.as_bytes())) {
        error::say_once(&format!("cannot write to {}: {e}", path.display()));
    }
}

fn plural(number: u64) -> &'static str {
    if number == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use super::super::error::Code;
    use super::*;

    #[test]
    fn reports_are_written_up_to_the_limit_and_all_are_counted() {
        let file = |name: &str| {
            let path = std::env::temp_dir().join(format!("rgpu-reports-{name}-{}", std::process::id()));
            std::fs::write(&path, "").unwrap();
            path
        };
        let (log, tally) = (file("log"), file("tally"));
        let reports =
            Reports { log: Some(log.clone()), tally: Some(tally.clone()), limit: 2, ..Reports::new(None) };
        for text in ["one\n    at \x1b[2J", "two", "three"] {
            reports.found(Finding::Mistake(text));
        }
        reports.found(Finding::Unreported(40));
        reports.found(Finding::Remark("a line"));
        reports.end();
        reports.incomplete(&Error::new(Code::SystemNotReady, "gone"));
        let text = std::fs::read_to_string(&log).unwrap();
        assert!(text.starts_with("========= one\n=========     at "), "{text}");
        assert!(!text.contains('\x1b') && !text.contains("three") && !text.contains("SUMMARY"), "{text}");
        assert!(text.contains("\n=========\n========= two\n=========\n========= a line\n"), "{text}");
        assert!(text.ends_with("were looked at: gone\n"), "{text}");
        assert_eq!(std::fs::read_to_string(&tally).unwrap(), "p 1\np 1\nn 1\nn 40\nx 1\n");
        let alone = Reports { tally: None, ..reports };
        alone.end();
        let text = std::fs::read_to_string(&log).unwrap();
        assert!(
            text.ends_with("ERROR SUMMARY: 43 errors\n========= ERROR SUMMARY: 41 errors were not printed\n"),
            "{text}"
        );
        for path in [log, tally] {
            std::fs::remove_file(path).unwrap();
        }
    }
}
