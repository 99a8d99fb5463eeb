//! Programs, one after the other, by one client.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use super::touched::Life;
use super::{Run, Wrong};
use crate::cluster::puppet::Puppet;

/// How long a program may wait for its turn, or a call take, before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long a program uses its device.
const USE: Duration = Duration::from_secs(6);

/// Runs programs until no more are to begin.
pub(super) fn programs(run: &Run, number: u32) {
    for turn in 0.. {
        if run.ending.load(SeqCst) {
            return;
        }
        program(run, &format!("c{number}-{turn}"));
    }
}

fn program(run: &Run, name: &str) {
    let options = ["--gpus", "1", "--gpu-memory", "512MiB", "--share", "25%", "--name", name];
    let started = run.cluster().run("ann", &options).and_then(|mut command| {
        command.arg("--").arg(&run.program);
        Puppet::start(command)
    });
    let Ok(mut puppet) = started else {
        run.report.not_begun("it cannot be started");
        std::thread::sleep(Duration::from_millis(300));
        return;
    };
    let mut since: Option<(Instant, Life)> = None;
    while since.as_ref().is_none_or(|(since, _)| since.elapsed() < USE) {
        let asked = Instant::now();
        let answer = puppet.tell("launch 0").and_then(|()| puppet.answer("launch 0", PATIENCE));
        match answer {
            Ok(words) if words.first().is_some_and(|word| word == "cudaSuccess") => {
                run.report.kernels.fetch_add(1, SeqCst);
                if since.is_none() {
                    run.report.begun.fetch_add(1, SeqCst);
                    match Life::of(puppet.program_pid()) {
                        Ok(life) => since = Some((Instant::now(), life)),
                        Err(e) => {
                            let what = format!("{name} ran, and is gone: {e:#}\n{}", puppet.errors());
                            return run.report.wrong(Wrong::Killed, what);
                        }
                    }
                }
            }
            other => {
                // What is done to its server from now on is no reason.
                let end = Instant::now();
                let what = match other {
                    Ok(words) => words.join(" "),
                    Err(e) => format!("{e:#}"),
                };
                let hangs = asked.elapsed() >= PATIENCE;
                // It takes what it has with it, if it can.
                let ended = puppet.end_within(if hangs { Duration::ZERO } else { PATIENCE });
                let what = format!("{what}\n{}", puppet.errors());
                if hangs || ended.is_err() {
                    run.report.wrong(Wrong::Hang, format!("{name}: {what}"));
                } else {
                    failed(run, name, since.as_ref().map(|(_, life)| life), end, &what);
                }
                return;
            }
        }
        std::thread::sleep(Duration::from_millis(150));
    }
    let life = since.as_ref().map(|(_, life)| life);
    match puppet.end_within(PATIENCE) {
        Ok(status) if status.success() => {}
        Ok(status) => {
            failed(run, name, life, Instant::now(), &format!("it ended with {status}: {}", puppet.errors()))
        }
        Err(e) => run.report.wrong(Wrong::Hang, format!("{name} does not end: {e:#}")),
    }
}

/// A program has failed, which had begun if its life is known: whether that may be.
fn failed(run: &Run, name: &str, life: Option<&Life>, end: Instant, what: &str) {
    let text: String = what.chars().take(600).collect();
    if text.contains("element ") {
        return run.report.wrong(Wrong::Result, format!("{name}: {text}"));
    }
    let Some(life) = life else {
        run.report.not_begun(what);
        return std::thread::sleep(Duration::from_millis(300));
    };
    if run.touched.excuses(life, end) {
        run.report.touched.fetch_add(1, SeqCst);
    } else {
        run.report.wrong(Wrong::Killed, format!("{name} on {}: {text}", life.place()));
    }
}
