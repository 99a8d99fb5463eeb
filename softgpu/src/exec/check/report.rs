//! Writing reports down.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Check, commas, plural};

/// What each line of a report begins with.
const PREFIX: &str = "=========";

/// Where reports go, and how many there were.
pub(super) struct Output {
    log: Option<File>,
    tally: Option<File>,
    limit: u64,
    count: AtomicU64,
}

fn open(path: &Path) -> Option<File> {
    let file = OpenOptions::new().append(true).create(true).open(path);
    file.inspect_err(|e| eprintln!("rgpu: cannot write to {}: {e}", path.display())).ok()
}

impl Output {
    /// As the settings say.
    pub(super) fn new(settings: &Check) -> Self {
        Self {
            log: settings.log.as_deref().and_then(open),
            tally: settings.tally.as_deref().and_then(open),
            limit: settings.limit.unwrap_or(u64::MAX),
            count: AtomicU64::new(0),
        }
    }

    /// In one piece, so that reports of several processes are not mixed. That nobody can read them is no reason to fail.
    fn write(&self, text: &str) {
        match &self.log {
            Some(log) => drop((&mut &*log).write_all(text.as_bytes())),
            None => drop(std::io::stderr().lock().write_all(text.as_bytes())),
        }
    }

    /// Writes one line.
    pub(super) fn line(&self, text: &str) {
        self.write(&format!("{PREFIX} {text}\n"));
    }

    /// Reports a mistake.
    pub(super) fn report(&self, lines: &[String]) {
        let shown = self.count.fetch_add(1, Ordering::Relaxed) < self.limit;
        if shown {
            let mut text = String::new();
            for line in lines {
                text.push_str(&format!("{PREFIX} {line}\n"));
            }
            text.push_str(&format!("{PREFIX}\n"));
            self.write(&text);
        }
        if let Some(tally) = &self.tally {
            let _ = (&mut &*tally).write_all(if shown { b"p" } else { b"n" });
        }
    }

    /// Says how many mistakes there were, unless somebody else does.
    pub(super) fn end(&self) {
        if self.tally.is_some() {
            return;
        }
        let count = self.count.load(Ordering::Relaxed);
        self.line(&format!("ERROR SUMMARY: {} error{}", commas(count), plural(count)));
        let left = count.saturating_sub(self.limit);
        if left > 0 {
            self.line(&format!("ERROR SUMMARY: {} error{} were not printed", commas(left), plural(left)));
        }
    }
}
