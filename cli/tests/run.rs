//! `rgpu run` as people use it: with real children.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A command that finds an empty file as its library, which the dynamic loader complains of and ignores, and
/// keeps its links in a directory of the test's own.
struct Rgpu {
    home: PathBuf,
}

impl Rgpu {
    fn new(name: &str) -> Self {
        let home = std::env::temp_dir().join(format!("rgpu-run-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join("librgpu.so"), "").unwrap();
        Self { home }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rgpu"));
        command
            .args(arguments)
            .env("RGPU_LIBRARY", self.home.join("librgpu.so"))
            .env("RGPU_CLUSTER_DIR", self.home.join("cluster"))
            .env("XDG_CACHE_HOME", self.home.join("cache"));
        for variable in ["RGPU_SERVER", "RGPU_IN_PROCESS", "LD_PRELOAD", "LD_LIBRARY_PATH"] {
            command.env_remove(variable);
        }
        command
    }
}

impl Drop for Rgpu {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

const RUN: [&str; 3] = ["run", "--server", "127.0.0.1:1"];
const COUNTED: [&str; 4] = ["run", "--server", "127.0.0.1:1", "--stats"];

#[test]
fn the_exit_status_is_the_programs() {
    let rgpu = Rgpu::new("status");
    for start in [&RUN[..], &COUNTED[..]] {
        let mut arguments = start.to_vec();
        arguments.extend(["--", "sh", "-c", "exit 7"]);
        assert_eq!(rgpu.command(&arguments).output().unwrap().status.code(), Some(7));
        let mut arguments = start.to_vec();
        arguments.extend(["--", "sh", "-c", "kill -ABRT $$"]);
        assert_eq!(rgpu.command(&arguments).output().unwrap().status.signal(), Some(libc::SIGABRT));
        let mut arguments = start.to_vec();
        arguments.extend(["--", "/no/such/program"]);
        let output = rgpu.command(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(127));
        assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/program"));
    }
}

#[test]
fn signals_reach_the_program() {
    let rgpu = Rgpu::new("signals");
    // The program says when it is ready, and how it was ended.
    let script = "trap 'echo usr1; exit 9' USR1; trap 'echo term; exit 10' TERM; echo ready; \
                  while :; do sleep 0.05; done";
    for (signal, said, status) in [(libc::SIGUSR1, "usr1", 9), (libc::SIGTERM, "term", 10)] {
        let mut arguments = COUNTED.to_vec();
        arguments.extend(["--", "sh", "-c", script]);
        let mut child =
            rgpu.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        // SAFETY: a child that has not been waited for.
        unsafe { libc::kill(child.id() as libc::pid_t, signal) };
        assert_eq!(lines.next().unwrap().unwrap(), said);
        assert_eq!(child.wait().unwrap().code(), Some(status));
    }
    // One that the program doesn't catch kills both in the same way. (Not one that `nohup` or a shell's `&` has
    // programs ignore.)
    let mut arguments = COUNTED.to_vec();
    arguments.extend(["--", "sh", "-c", "echo ready; exec sleep 60"]);
    let mut child = rgpu.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    // SAFETY: as above.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGUSR2) };
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGUSR2));
}

#[test]
fn the_environment_names_library_and_server_once() {
    let rgpu = Rgpu::new("environment");
    let show = "echo $LD_PRELOAD; echo $LD_LIBRARY_PATH; echo $RGPU_SERVER; echo ${RGPU_IN_PROCESS-none}";
    let nested =
        [&RUN[..], &["--", env!("CARGO_BIN_EXE_rgpu")], &RUN[..], &["--", "sh", "-c", show]].concat();
    let output = rgpu.command(&nested).env("LD_LIBRARY_PATH", "/some/where").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let [preload, path, server, in_process] = lines[..] else { panic!("{text}") };
    let directory = Path::new(preload).parent().unwrap();
    assert!(directory.starts_with(rgpu.home.join("cache")), "{preload}");
    assert!(preload.ends_with("/librgpu.so") && !preload.contains(':'), "{preload}");
    assert_eq!(path, format!("{}:/some/where", directory.display()));
    assert_eq!((server, in_process), ("127.0.0.1:1", "none"));
    for name in ["libcudart.so.12", "libcudart.so.13", "libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"] {
        assert_eq!(std::fs::read_link(directory.join(name)).unwrap(), rgpu.home.join("librgpu.so"));
    }
}

#[test]
fn statistics_have_the_documented_keys() {
    let rgpu = Rgpu::new("statistics");
    let file = rgpu.home.join("stats.json");
    let option = format!("--stats=json:{}", file.display());
    let arguments = [&RUN[..], &[&option, "--", "true"]].concat();
    assert!(rgpu.command(&arguments).status().unwrap().success());
    let value: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    for key in ["round_trips", "posted_calls", "bytes_sent", "bytes_received"] {
        assert_eq!(value[key], 0, "{key}");
    }
    assert!(value["calls"].is_object());
}

#[test]
fn what_is_missing_is_said() {
    let rgpu = Rgpu::new("missing");
    let failing = |command: &mut Command, status, what: &str| {
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{text}");
        assert!(text.contains(what), "{text}");
    };
    failing(&mut rgpu.command(&["run", "--", "true"]), 2, "--in-process");
    failing(&mut rgpu.command(&["run", "--server", "nowhere", "--", "true"]), 2, "HOST:PORT");
    failing(
        rgpu.command(&[&RUN[..], &["--", "true"]].concat()).env("RGPU_LIBRARY", "/nowhere"),
        1,
        "/nowhere",
    );
    failing(&mut rgpu.command(&["devices", "--server", "127.0.0.1:1"]), 1, "rgpu serve");
    let output = rgpu.command(&["doctor", "/no/such/program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("BAD   /no/such/program"));
}
