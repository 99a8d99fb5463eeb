//! The process that keeps a cluster's broker and nodes running.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::process::{Pid, Signal, kill_process};

use super::files::{self, Member, State};
use crate::Failure;
use crate::own_cluster::{OwnCluster, Plan, PlannedNode};
use crate::run::Held;

/// The hidden subcommand.
pub(crate) const SUPERVISOR_COMMAND: &str = "__cluster-supervisor";

/// How often processes are looked after.
const LOOK: Duration = Duration::from_millis(100);
/// How long it takes until a process that has ended is started again, the first time and at most.
const AGAIN: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];
/// A process that has run for so long is started again at once.
const STEADY: Duration = Duration::from_secs(60);
/// How long processes have to stop by themselves.
const STOP_TIME: Duration = Duration::from_secs(15);

/// A process that is kept running.
struct Kept {
    name: String,
    arguments: Vec<std::ffi::OsString>,
    child: Option<Child>,
    started: Instant,
    again: Instant,
    pause: Duration,
    restarts: u32,
}

impl Kept {
    fn broker(cluster: &OwnCluster, plan: &Plan) -> Self {
        let mut arguments = vec!["broker".into(), "--config".into(), files::broker_config(cluster).into()];
        arguments.extend(["--listen".into(), plan.broker.clone().into()]);
        Self::new("broker".into(), arguments)
    }

    fn node(cluster: &OwnCluster, plan: &Plan, node: &PlannedNode) -> Self {
        let token = files::node_token(cluster, &node.name);
        let mut arguments =
            ["serve", "--listen", "127.0.0.1:0", "--device", &node.device].map(Into::into).to_vec();
        if let Some(memory) = node.memory {
            arguments.extend(["--memory".into(), memory.to_string().into()]);
        }
        arguments.extend(["--broker".into(), plan.url().into(), "--broker-token-file".into(), token.into()]);
        Self::new(node.name.clone(), arguments)
    }

    fn new(name: String, arguments: Vec<std::ffi::OsString>) -> Self {
        let now = Instant::now();
        Self { name, arguments, child: None, started: now, again: now, pause: AGAIN[0], restarts: 0 }
    }

    fn start(&mut self, cluster: &OwnCluster, held: &Held) -> io::Result<()> {
        let log = files::log(cluster, &self.name)?;
        let mut command = Command::new("/proc/self/exe");
        command.args(&self.arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // What is set for the user's other commands is not meant for these.
        for name in rgpu_control::settings::all().iter().map(|setting| setting.name) {
            if name != rgpu_control::settings::LOG_VARIABLE {
                command.env_remove(name);
            }
        }
        held.release_in(&mut command);
        ends_with_this_process(&mut command);
        self.started = Instant::now();
        self.child = Some(command.spawn()?);
        Ok(())
    }

    /// Looks whether it runs, and starts it where that is due. Tells whether anything has changed.
    fn look(&mut self, cluster: &OwnCluster, held: &Held) -> bool {
        let now = Instant::now();
        match &mut self.child {
            Some(child) => {
                let Ok(Some(status)) = child.try_wait() else { return false };
                self.child = None;
                self.ended(&format!("has ended ({status})"), now);
                true
            }
            None if now >= self.again => {
                if let Err(e) = self.start(cluster, held) {
                    self.ended(&format!("cannot be started: {e}"), now);
                }
                true
            }
            None => false,
        }
    }

    /// Says that there is no process, and when there will be one.
    fn ended(&mut self, how: &str, now: Instant) {
        if now - self.started > STEADY {
            self.pause = AGAIN[0];
        }
        eprintln!("rgpu cluster: {} {how}; it is started again in {:?}", self.name, self.pause);
        self.restarts += 1;
        self.again = now + self.pause;
        self.pause = (self.pause * 2).min(AGAIN[1]);
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            // A child that has not been waited for, so the id is still its own.
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| matches!(child.try_wait(), Ok(Some(_)) | Err(_)))
    }

    fn member(&self) -> Member {
        Member { name: self.name.clone(), pid: self.child.as_ref().map(Child::id), restarts: self.restarts }
    }
}

/// Keeps the cluster running until a signal says to stop. `beside` is done meanwhile, in a thread that ends with the process.
pub(super) fn run(cluster: &OwnCluster, beside: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let lock = lock(cluster)?;
    let held = Held::new().map_err(|e| Failure::new(format!("Cannot wait for signals: {e}")))?;
    let plan = cluster.plan().ok().flatten().ok_or_else(|| {
        let text = format!("{} does not say what the cluster consists of", cluster.plan_path().display());
        Failure::new(text)
    })?;
    // After the signals are held: a thread that doesn't hold them would get them.
    std::thread::spawn(beside);
    let nodes = plan.nodes.iter().map(|node| Kept::node(cluster, &plan, node));
    let mut kept: Vec<Kept> = [Kept::broker(cluster, &plan)].into_iter().chain(nodes).collect();
    loop {
        let mut changed = false;
        for one in &mut kept {
            changed |= one.look(cluster, &held);
        }
        if changed {
            say(cluster, &kept);
        }
        if held.wait(LOOK).is_some() {
            break;
        }
    }
    // Nodes tell the broker that they leave, so it stops after them.
    let (broker, nodes) = kept.split_at_mut(1);
    for group in [nodes, broker] {
        stop(group);
    }
    say(cluster, &kept);
    drop(lock);
    Ok(())
}

fn say(cluster: &OwnCluster, kept: &[Kept]) {
    let state = State { members: kept.iter().map(Kept::member).collect() };
    if let Err(e) = state.write(cluster) {
        eprintln!("rgpu cluster: the state in {} cannot be written: {e}", cluster.directory.display());
    }
}

fn stop(kept: &mut [Kept]) {
    for one in kept.iter() {
        one.signal(Signal::TERM);
    }
    let until = Instant::now() + STOP_TIME;
    while !kept.iter_mut().all(Kept::has_ended) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    for one in kept.iter_mut() {
        if !one.has_ended() {
            eprintln!("rgpu cluster: {} has not stopped within {STOP_TIME:?}, and is killed", one.name);
            one.signal(Signal::KILL);
        }
        let _: Option<io::Result<ExitStatus>> = one.child.take().map(|mut child| child.wait());
    }
}

/// Makes this process the cluster's supervisor, as long as the file is open.
fn lock(cluster: &OwnCluster) -> Result<File, Failure> {
    let path = cluster.lock_path();
    let failed = |e: io::Error| Failure::new(format!("Cannot write {}: {e}", path.display()));
    let mut file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    let until = Instant::now() + Duration::from_secs(1);
    // Somebody who looks whether it is locked has it for a moment.
    while rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() > until {
            return Err(Failure::new("Another process keeps this cluster running already"));
        }
        std::thread::sleep(LOOK / 10);
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
    Ok(file)
}

/// Makes a process independent of the terminal and the session that it is started from.
pub(super) fn detach(command: &mut Command) {
    // SAFETY: all that the closure calls is setsid, which may be called after a fork.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        })
    };
}

/// Has a process told to stop when this one is killed: nobody else would do that.
fn ends_with_this_process(command: &mut Command) {
    let parent = rustix::process::getpid();
    // SAFETY: all that the closure calls is prctl and getppid, which may be called after a fork.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
            // It may have been killed before that.
            match rustix::process::getppid() {
                Some(found) if found == parent => Ok(()),
                _ => Err(io::ErrorKind::Interrupted.into()),
            }
        })
    };
}
