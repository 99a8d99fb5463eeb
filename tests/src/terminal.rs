//! A program at a terminal: what it draws, and keys for it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process;

/// A program whose terminal we are; killed when dropped.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    ours: File,
    drawn: Arc<Mutex<Vec<u8>>>,
}

/// Both ends of a pseudo-terminal, ours first.
fn pair(columns: u16, rows: u16) -> io::Result<(OwnedFd, OwnedFd)> {
    let (mut ours, mut theirs) = (-1, -1);
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: both places and the size are valid; no name and no settings are asked for or given.
    let made = unsafe {
        libc::openpty(&mut ours, &mut theirs, std::ptr::null_mut(), std::ptr::null(), &raw const size)
    };
    if made != 0 {
        return Err(io::Error::last_os_error());
    }
    for end in [ours, theirs] {
        // SAFETY: plain system call. Programs that are started meanwhile must not keep it open.
        unsafe { libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    // SAFETY: the call succeeded: both are fresh descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) })
}

impl Terminal {
    /// Starts a program at a terminal of that size.
    pub fn start(mut command: Command, columns: u16, rows: u16) -> Result<Self> {
        let (ours, theirs) = pair(columns, rows).context("There is no pseudo-terminal to be had")?;
        command.env("TERM", "xterm-256color");
        command.stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(theirs);
        let terminal = || {
            // SAFETY: plain system calls, which may be made between fork and exec.
            match unsafe { libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 } {
                true => Err(io::Error::last_os_error()),
                false => Ok(()),
            }
        };
        // SAFETY: the closure makes system calls only.
        unsafe { command.pre_exec(terminal) };
        let child = command.spawn().with_context(|| format!("Starting {:?}", command.get_program()))?;
        // The command keeps the program's end open.
        drop(command);
        let ours = File::from(ours);
        let drawn = Arc::new(Mutex::new(Vec::new()));
        let (mut from, kept) = (ours.try_clone()?, drawn.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                kept.lock().expect("no thread panics").extend_from_slice(&buffer[..n]);
            }
        });
        Ok(Self { child, ours, drawn })
    }

    /// All that was written to the terminal so far, with what moves the cursor.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.drawn.lock().expect("no thread panics")).into_owned()
    }

    /// Waits until all of these are on the screen, or were written as they stand.
    pub fn wait_for(&self, words: &[&str], limit: Duration) -> Result<()> {
        let missing = || {
            let text = self.text();
            let screen = screen(&text);
            words.iter().find(|word| !screen.contains(**word) && !text.contains(**word)).copied()
        };
        let drawn = process::wait_until("the terminal shows everything", limit, || missing().is_none());
        drawn.map(drop).with_context(|| format!("{:?} is missing:\n{}", missing(), self.text()))
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) -> Result<()> {
        ensure!(self.child.try_wait()?.is_none(), "the program has ended already:\n{}", self.text());
        Ok(self.ours.write_all(key.as_bytes())?)
    }

    /// Waits for the program's end.
    pub fn end_within(&mut self, limit: Duration) -> Result<ExitStatus> {
        let mut status = None;
        process::wait_until("the program ends", limit, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        })
        .with_context(|| self.text())?;
        status.context("No status")
    }

    /// Whether the terminal waits for whole lines and shows what is typed, as a shell wants it.
    pub fn is_as_before(&self) -> Result<bool> {
        let mut settings = std::mem::MaybeUninit::<libc::termios>::uninit();
        // SAFETY: there is room for the settings.
        let known = unsafe { libc::tcgetattr(self.ours.as_raw_fd(), settings.as_mut_ptr()) };
        ensure!(known == 0, "the terminal's settings: {}", io::Error::last_os_error());
        // SAFETY: the call succeeded, and has filled them in.
        let flags = unsafe { settings.assume_init() }.c_lflag;
        Ok(flags & libc::ICANON != 0 && flags & libc::ECHO != 0)
    }
}

/// What a screen shows, line by line, on which this was written. Programs write only what differs from what was there: what is
/// read in one piece may have been written in several.
fn screen(text: &str) -> String {
    let mut cells: BTreeMap<(usize, usize), char> = BTreeMap::new();
    let (mut row, mut column) = (1, 1);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' if characters.peek() == Some(&'[') => {
                characters.next();
                let mut parameters = String::new();
                let last = characters.by_ref().find(|c| {
                    let over = c.is_ascii_alphabetic();
                    if !over {
                        parameters.push(*c);
                    }
                    over
                });
                let mut numbers = parameters.split(';').map(|number| number.parse().unwrap_or(1));
                match last {
                    Some('H') => {
                        (row, column) = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(1));
                    }
                    Some('J') => cells.clear(),
                    _ => {}
                }
            }
            '\r' => column = 1,
            '\n' => row += 1,
            _ => {
                cells.insert((row, column), character);
                column += 1;
            }
        }
    }
    let mut lines: BTreeMap<usize, String> = BTreeMap::new();
    for ((row, column), character) in cells {
        let line = lines.entry(row).or_default();
        let filled = line.chars().count() + 1;
        line.extend(std::iter::repeat_n(' ', column.saturating_sub(filled)));
        line.push(character);
    }
    lines.into_values().collect::<Vec<_>>().join("\n")
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill(); // may have ended already
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::screen;

    #[test]
    fn what_is_written_piecemeal_is_read_in_one_piece() {
        let text = "\u{1b}[?1049h\u{1b}[1;1Hlost\u{1b}[1m\u{1b}[2;5Hab12\u{1b}[2;5Hcd\u{1b}[2;8H3\r\nend";
        assert_eq!(screen(text), "lost\n    cd13\nend");
        assert_eq!(screen("old\u{1b}[2J\u{1b}[1;1Hnew"), "new");
    }
}
