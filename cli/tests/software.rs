//! What `rgpu run` does for programs whose device is a software GPU.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A command that finds an empty file as its library, which the dynamic loader complains of and ignores, and keeps its links in a
/// directory of the test's own.
struct Rgpu {
    home: PathBuf,
}

impl Rgpu {
    fn new(name: &str) -> Self {
        let home = std::env::temp_dir().join(format!("rgpu-software-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join("librgpu.so"), "").unwrap();
        Self { home }
    }

    /// Runs a line of the shell's.
    fn run(&self, options: &[&str], environment: &[(&str, &str)], line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rgpu"));
        command.arg("run").args(options).args(["--", "sh", "-c", line]);
        command
            .env("RGPU_LIBRARY", self.home.join("librgpu.so"))
            .env("RGPU_CLUSTER_DIR", self.home.join("cluster"))
            .env("XDG_CACHE_HOME", self.home.join("cache"));
        for name in ["SERVER", "LEASE", "BROKER", "IN_PROCESS", "SOFTWARE_TOOLS"] {
            command.env_remove(format!("RGPU_{name}"));
        }
        for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "TRITON_PTXAS_PATH", "XLA_FLAGS", "CUDA_ROOT"] {
            command.env_remove(name);
        }
        command.envs(environment.iter().copied()).output().unwrap()
    }
}

impl Drop for Rgpu {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_assembler_is_where_triton_is_told_that_it_is() {
    let rgpu = Rgpu::new("ptxas");
    let ptx = rgpu.home.join("k.ptx");
    let source = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n";
    std::fs::write(&ptx, source).unwrap();
    let made = rgpu.home.join("k.o");
    let line = format!(
        "$TRITON_PTXAS_PATH --version; $TRITON_PTXAS_BLACKWELL_PATH -v --gpu-name=sm_80 {} -o {} && echo made",
        ptx.display(),
        made.display()
    );
    let output = rgpu.run(&["--in-process"], &[], &line);
    assert!(text(&output).contains("release 13.0") && text(&output).ends_with("made\n"), "{output:?}");
    assert_eq!(std::fs::read(&made).unwrap(), [source.as_bytes(), b"\0"].concat());
    // In the words, and with the status, that frameworks look for.
    std::fs::write(&ptx, ".version 99.99\n").unwrap();
    let output = rgpu.run(&["--in-process"], &[], &line.replace("&& echo made", "; exit $?"));
    assert_eq!(output.status.code(), Some(255));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("line 1; fatal   : Unsupported .version 99.99; current version is '9.0'"),
        "{said}"
    );
    // The same as a subcommand.
    let output = Command::new(env!("CARGO_BIN_EXE_rgpu")).args(["ptxas", "--version"]).output().unwrap();
    assert!(text(&output).contains("release 13.0"), "{output:?}");
}

#[test]
fn what_the_user_has_set_stays() {
    let rgpu = Rgpu::new("set");
    let line = "echo $RGPU_SOFTWARE_TOOLS; echo $TRITON_PTXAS_PATH; echo $LD_LIBRARY_PATH";
    let ours = text(&rgpu.run(&["--in-process"], &[], line));
    let lines: Vec<&str> = ours.lines().collect();
    assert_eq!(lines[0], "1");
    assert!(lines[1].ends_with("/software/bin/ptxas") && lines[2].contains("/software:"), "{ours}");

    let own = [("TRITON_PTXAS_PATH", "/own/ptxas"), ("LD_LIBRARY_PATH", "/own/lib")];
    let kept = text(&rgpu.run(&["--in-process"], &own, line));
    assert!(kept.contains("\n/own/ptxas\n") && kept.ends_with(":/own/lib\n"), "{kept}");

    // Where nobody answers, and where the user says so, nothing is done.
    for (options, environment) in [
        (["--server", "127.0.0.1:1"].as_slice(), [].as_slice()),
        (&["--in-process"], &[("RGPU_SOFTWARE_TOOLS", "0")]),
    ] {
        let none = text(&rgpu.run(options, environment, line));
        assert!(!none.contains("/software"), "{options:?}: {none}");
    }
    let said = text(&rgpu.run(&["--server", "127.0.0.1:1"], &[("RGPU_SOFTWARE_TOOLS", "1")], line));
    assert!(said.contains("/software/bin/ptxas"), "{said}");
}

#[test]
fn flags_for_xla_come_after_the_users() {
    let rgpu = Rgpu::new("xla");
    let environment = rgpu.home.join("env");
    let plugin = environment.join("lib/python3.11/site-packages/jax_plugins/xla_cuda12");
    std::fs::create_dir_all(&plugin).unwrap();
    std::fs::create_dir_all(environment.join("bin")).unwrap();
    std::fs::write(environment.join("pyvenv.cfg"), "").unwrap();
    std::fs::write(
        plugin.join("xla_cuda_plugin.so"),
        "..xla_gpu_autotune_level..xla_gpu_enable_libnvjitlink..",
    )
    .unwrap();
    symlink("/bin/sh", environment.join("bin/python3")).unwrap();
    let path = format!("{}:/usr/bin:/bin", environment.join("bin").display());
    let set = [("PATH", path.as_str()), ("XLA_FLAGS", "--xla_gpu_autotune_level=4")];
    let flags = text(&rgpu.run(&["--in-process"], &set, "echo $XLA_FLAGS"));
    assert_eq!(flags, "--xla_gpu_autotune_level=4 --xla_gpu_enable_libnvjitlink=false\n");
}
