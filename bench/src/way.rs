//! The ways to a GPU that are compared, and the processes that measure each.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use clap::ValueEnum;
use serde::Serialize;

use rgpu_protocol::transport::{CA_VARIABLE, ENCRYPT_VARIABLE, FINGERPRINT_VARIABLE};

use crate::Failure;
use crate::task::{Reply, Task};

/// How a program gets at a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// This machine's own driver, without rgpu
    Native,
    /// The software GPU inside the program, without a server
    InProcess,
    /// A server, over shared memory
    Shm,
    /// A server, over TCP
    Tcp,
    /// A server, over TCP, encrypted
    Tls,
    /// A server, over RDMA
    Rdma,
}

impl Way {
    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::InProcess => "in-process",
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Rdma => "rdma",
        }
    }

    /// Whether a server is needed.
    pub(crate) fn is_remote(self) -> bool {
        matches!(self, Self::Shm | Self::Tcp | Self::Tls | Self::Rdma)
    }

    /// Whether it goes over TCP, where a raw connection is its limit, and where a proxy can be put.
    pub(crate) fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp | Self::Tls)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is needed to start programs.
#[derive(Debug, Clone)]
pub(crate) struct Launcher {
    /// The `rgpu` command.
    pub rgpu: PathBuf,
    /// The server's address.
    pub server: Option<String>,
    /// The address of the same server through the shaping proxy, for TCP.
    pub shaped: Option<SocketAddr>,
    /// A file with the token that the server asks for.
    pub token_file: Option<PathBuf>,
    /// By what the server's certificate is known, where the environment doesn't say it.
    pub fingerprint: Option<String>,
}

impl Launcher {
    /// A command that runs `program` in one of the ways; its arguments are to be added.
    pub(crate) fn command(&self, way: Way, program: &Path) -> Result<Command, Failure> {
        if way == Way::Native {
            return Ok(Command::new(program));
        }
        let mut command = Command::new(&self.rgpu);
        command.arg("run");
        if way.is_remote() {
            let shaped = self.shaped.filter(|_| way.is_tcp()).map(|address| address.to_string());
            let server = shaped.or_else(|| self.server.clone());
            let server = server.ok_or_else(|| Failure::new(format!("{way} needs a server")))?;
            let transport = if way.is_tcp() { "tcp" } else { way.name() };
            command.args(["--server", &server, "--transport", transport]);
            if way == Way::Tls {
                command
                    .arg("--encrypt")
                    .envs(self.fingerprint.iter().map(|print| (FINGERPRINT_VARIABLE, print)));
            } else {
                // Either of them would encrypt.
                command.env_remove(FINGERPRINT_VARIABLE).env_remove(CA_VARIABLE).env_remove(ENCRYPT_VARIABLE);
            }
            if let Some(file) = &self.token_file {
                command.arg("--token-file").arg(file);
            }
        } else {
            command.arg("--in-process");
        }
        command.arg("--").arg(program);
        Ok(command)
    }
}

/// A process that measures one way.
#[derive(Debug)]
pub(crate) struct Worker {
    /// By which way the programs reach the GPU.
    pub way: Way,
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts one. It makes no CUDA call before its first task.
    pub(crate) fn start(launcher: &Launcher, way: Way) -> Result<Self, Failure> {
        let statistics = Counters::create()?;
        let mut process = launcher
            .command(way, &launcher.rgpu)?
            .arg(crate::WORKER_COMMAND)
            .env(rgpu_protocol::stats::STATS_FILE_VARIABLE, statistics.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| Failure::new(format!("Cannot start {}: {e}", launcher.rgpu.display())))?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Failure::new("A process has no pipes"));
        };
        let mut worker = Self { way, process, input, output: BufReader::new(output) };
        // The answer shows that the file has been opened, so that its name may go.
        worker.ask(&Task::Describe)?;
        Ok(worker)
    }

    /// Has a task done.
    pub(crate) fn ask(&mut self, task: &Task) -> Result<Reply, Failure> {
        self.begin(task)?;
        self.finish()
    }

    fn gone(&self, why: &str) -> Failure {
        Failure::new(format!("The {} measurement ended: {why}", self.way))
    }

    /// Hands it a task.
    pub(crate) fn begin(&mut self, task: &Task) -> Result<(), Failure> {
        let text = serde_json::to_string(task).map_err(|e| self.gone(&e.to_string()))?;
        writeln!(self.input, "{text}").map_err(|e| self.gone(&e.to_string()))
    }

    /// Waits until the task is done that was handed to it.
    pub(crate) fn finish(&mut self) -> Result<Reply, Failure> {
        let mut line = String::new();
        let len = self.output.read_line(&mut line).map_err(|e| self.gone(&e.to_string()))?;
        if len == 0 {
            let status = self.process.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
            return Err(self.gone(&status));
        }
        let reply: Reply = serde_json::from_str(&line).map_err(|e| self.gone(&format!("{e}; `{line}`")))?;
        match &reply.error {
            Some(error) => Err(Failure::new(format!("{}: {error}", self.way))),
            None => Ok(reply),
        }
    }
}

impl Worker {
    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill(); // it may have ended
        let _ = self.process.wait();
    }
}

/// A file of counters that the measured library maps, removed when dropped.
#[derive(Debug)]
pub(crate) struct Counters(PathBuf);

impl Counters {
    /// A new, empty one.
    pub(crate) fn create() -> Result<Self, Failure> {
        use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rgpu-bench-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::File::create_new(&path)
            .map_err(|e| Failure::new(format!("Cannot create {}: {e}", path.display())))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// What has been counted.
    pub(crate) fn read(&self) -> Result<rgpu_protocol::stats::Snapshot, Failure> {
        let file = std::fs::File::options().read(true).write(true).open(&self.0);
        file.and_then(|file| rgpu_protocol::stats::Stats::map_file(&file))
            .map(rgpu_protocol::stats::Stats::snapshot)
            .map_err(|e| Failure::new(format!("Cannot read {}: {e}", self.0.display())))
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0); // a temporary file, at worst left over
    }
}

/// A process that says in its first line of output where it listens: `rgpu serve`, or a raw peer.
#[derive(Debug)]
pub(crate) struct Service {
    process: Child,
    /// Where it listens.
    pub address: String,
    /// By what its certificate is known, if it encrypts.
    pub fingerprint: Option<String>,
}

impl Service {
    /// Starts `rgpu` with these arguments, and waits until it listens.
    pub(crate) fn start(rgpu: &Path, arguments: &[&str]) -> Result<Self, Failure> {
        let what = arguments.join(" ");
        Self::follow_with(what, Command::new(rgpu).args(arguments), arguments.contains(&"--tls"))
    }

    /// Starts a command, and waits until it listens.
    pub(crate) fn follow(what: String, command: &mut Command) -> Result<Self, Failure> {
        Self::follow_with(what, command, false)
    }

    fn follow_with(what: String, command: &mut Command, encrypts: bool) -> Result<Self, Failure> {
        let mut process = command
            .env(rgpu_control::settings::LOG_VARIABLE, "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| Failure::new(format!("Cannot start `rgpu {what}`: {e}")))?;
        let mut line = String::new();
        let output = process.stdout.take().ok_or_else(|| Failure::new("A process has no pipe"))?;
        let mut output = BufReader::new(output);
        let read = output.read_line(&mut line);
        let mut second = String::new();
        if encrypts {
            output.read_line(&mut second).map_err(|e| Failure::new(format!("`rgpu {what}`: {e}")))?;
        }
        let fingerprint = second.trim().rsplit_once(' ').map(|(_, print)| print.to_owned());
        let address = line.trim().rsplit(' ').next().unwrap_or_default();
        let address = address.trim_start_matches("http://").to_owned();
        let service = Self { process, address, fingerprint };
        match read {
            Ok(_) if service.address.parse::<SocketAddr>().is_ok() => Ok(service),
            _ => Err(Failure::new(format!("`rgpu {what}` did not start: it said {line:?}"))),
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill(); // it may have ended
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_has_one_name() {
        for way in Way::value_variants() {
            let option = way.to_possible_value().unwrap();
            assert_eq!(option.get_name(), way.name());
            assert_eq!(serde_json::to_value(way).unwrap(), way.name());
            assert_eq!(way.to_string(), way.name());
            assert!(way.is_remote() || !way.is_tcp());
        }
    }

    fn launcher() -> Launcher {
        Launcher {
            rgpu: "/bin/rgpu".into(),
            server: Some("host:1".into()),
            shaped: Some("127.0.0.1:2".parse().unwrap()),
            token_file: Some("/token".into()),
            fingerprint: Some("sha256:ab".into()),
        }
    }

    fn line(launcher: &Launcher, way: Way) -> String {
        let command = launcher.command(way, Path::new("/app")).unwrap();
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn programs_are_started_as_people_would() {
        let launcher = launcher();
        assert_eq!(line(&launcher, Way::Native), "/app");
        assert_eq!(line(&launcher, Way::InProcess), "/bin/rgpu run --in-process -- /app");
        assert_eq!(
            line(&launcher, Way::Shm),
            "/bin/rgpu run --server host:1 --transport shm --token-file /token -- /app"
        );
        // A proxy shapes TCP alone.
        assert_eq!(
            line(&launcher, Way::Tls),
            "/bin/rgpu run --server 127.0.0.1:2 --transport tcp --encrypt --token-file /token -- /app"
        );
        let encrypted = launcher.command(Way::Tls, Path::new("/app")).unwrap();
        let set = |(name, value): (&std::ffi::OsStr, Option<&std::ffi::OsStr>)| {
            name == FINGERPRINT_VARIABLE && value == Some("sha256:ab".as_ref())
        };
        assert!(encrypted.get_envs().any(set));
        // What would encrypt is taken away from who is to go in the clear.
        let clear = launcher.command(Way::Tcp, Path::new("/app")).unwrap();
        let removed: Vec<_> = clear.get_envs().filter(|(_, value)| value.is_none()).collect();
        assert_eq!(removed.len(), 3);
        let nowhere = Launcher { server: None, shaped: None, ..launcher };
        assert!(nowhere.command(Way::Tcp, Path::new("/app")).unwrap_err().to_string().contains("server"));
        assert!(nowhere.command(Way::InProcess, Path::new("/app")).is_ok());
    }
}
