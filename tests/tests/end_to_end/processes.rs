//! Process trees, signals, exit statuses, descriptors, output: what a program may expect of its world.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::{Skip, Test};
use rgpu_tests::examples::Linking;
use rgpu_tests::process;
use rgpu_tests::product::{self, Stats, temporary};
use rgpu_tests::toolkit::Version;

use crate::context::{Followed, forwarded, plain, product, program, shared_daemon};

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("processes::exit_statuses_pass_through", exit_statuses),
        Test::new("processes::deaths_by_signal_pass_through", signals),
        Test::new("processes::a_signal_to_rgpu_run_reaches_the_program", signal_reaches_program),
        Test::new("processes::a_command_that_does_not_exist", missing_command),
        Test::new("processes::a_shell_that_runs_two_programs", shell),
        Test::new("processes::make_with_two_jobs", make),
        Test::new("processes::python_with_subprocesses_and_ctypes", python),
        Test::new("processes::python_multiprocessing_fork_after_cuda", python_fork),
        Test::new("processes::the_shim_preloaded_by_hand", by_hand),
        Test::new("processes::a_program_without_cuda_is_left_alone", without_cuda),
        Test::new("processes::closing_all_descriptors", || closes_descriptors(true)),
        Test::new("processes::closing_all_descriptors_in_process", || closes_descriptors(false)),
        Test::new("processes::kernels_print_to_the_programs_standard_output", || prints(true)),
        Test::new("processes::kernels_print_to_the_programs_standard_output_in_process", || prints(false)),
        Test::new("processes::a_library_with_variables_called_like_functions", named_alike),
        Test::new("processes::a_library_that_uses_the_gpu_when_it_is_opened_and_closed", opened),
        Test::new("processes::too_little_address_space_is_an_error_with_a_name", little_address_space),
        Test::new("processes::another_user_on_the_same_machine", another_user),
    ]
}

fn run_bash(script: &str) -> Result<process::Finished> {
    let mut command = product()?.run(shared_daemon()?);
    process::run(command.args(["--", "bash", "-c", script]))
}

fn exit_statuses() -> Result<()> {
    for code in [0, 1, 7, 42, 126, 127, 255] {
        run_bash(&format!("exit {code}"))?.expect_code(code)?;
    }
    Ok(())
}

fn signals() -> Result<()> {
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGABRT] {
        let finished = run_bash(&format!("ulimit -c 0; kill -{signal} $$"))?;
        let as_signal = process::signal_of(finished.status) == Some(signal);
        let as_code = finished.status.code() == Some(128 + signal);
        ensure!(as_signal || as_code, "signal {signal} became {}", finished.status);
    }
    Ok(())
}

fn signal_reaches_program() -> Result<()> {
    let mut command = product()?.run(shared_daemon()?);
    command.args([
        "--",
        "bash",
        "-c",
        "trap 'echo got it >&2; exit 5' TERM; echo ready >&2; for i in {1..600}; do sleep 0.1; done",
    ]);
    let program = Followed::start(command, "ready")?;
    program.signal(libc::SIGTERM);
    let finished = program.finish_within(Duration::from_secs(60))?.expect_code(5)?;
    ensure!(finished.stderr.contains("got it"), "{}", finished.output());
    Ok(())
}

fn missing_command() -> Result<()> {
    let mut command = product()?.run(shared_daemon()?);
    let finished = process::run(command.args(["--", "no-such-command-anywhere"]))?.expect_code(127)?;
    ensure!(finished.stderr.contains("no-such-command-anywhere"), "{}", finished.output());
    Ok(())
}

fn shell() -> Result<()> {
    let (a, b) = (plain("vector_add")?, plain("histogram_atomics")?);
    let script = format!("{} | cat; x=$({}) || exit 9; echo \"$x\"; exit 4", a.display(), b.display());
    let finished = run_bash(&script)?.expect_code(4)?;
    for name in ["vector_add: ok", "histogram_atomics: ok"] {
        ensure!(finished.stdout.contains(name), "{}", finished.output());
    }
    Ok(())
}

fn opened() -> Result<()> {
    let program = plain("opened")?;
    let run = |command: &mut Command| -> Result<()> {
        let finished = process::run(command.arg("--").arg(&program))?.success()?;
        ensure!(finished.stdout.contains("opened: ok"), "{}", finished.output());
        Ok(())
    };
    run(&mut product()?.run(shared_daemon()?))?;
    for vectors in ["off", "auto", "first", "wide", "warp"] {
        run(product()?.run_in_process().env("RGPU_VECTORS", vectors)).with_context(|| vectors)?;
    }
    Ok(())
}

fn named_alike() -> Result<()> {
    for linking in Linking::ALL {
        let program = program("named_alike", Version::Cuda13, linking)?;
        for command in [&mut product()?.run(shared_daemon()?), &mut product()?.run_in_process()] {
            let finished = process::run(command.arg("--").arg(&program))?.success()?;
            ensure!(finished.stdout.contains("named_alike: ok"), "{}", finished.output());
        }
    }
    Ok(())
}

fn needs(program: &str) -> Result<()> {
    let found = Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    ensure!(found, Skip(format!("it needs {program}, which is not here")));
    Ok(())
}

fn make() -> Result<()> {
    needs("make")?;
    let file = temporary("Makefile");
    let (a, b) = (plain("vector_add")?, plain("spmv_csr")?);
    std::fs::write(&file, format!("all: one two\none:\n\t@{}\ntwo:\n\t@{}\n", a.display(), b.display()))?;
    let mut command = product()?.run(shared_daemon()?);
    let finished = process::run(command.args(["--", "make", "-j2", "-f"]).arg(&file))?.success()?;
    std::fs::remove_file(file)?;
    for name in ["vector_add: ok", "spmv_csr: ok"] {
        ensure!(finished.stdout.contains(name), "{}", finished.output());
    }
    Ok(())
}

fn python() -> Result<()> {
    needs("python3")?;
    let script = r#"
import ctypes, subprocess, sys
assert "vector_add: ok" in subprocess.check_output([sys.argv[1]], text=True)
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *args):
    result = getattr(cuda, name)(*args)
    assert result == 0, (name, result)
call("cuInit", 0)
count = ctypes.c_int()
call("cuDeviceGetCount", ctypes.byref(count))
assert count.value >= 1
context = ctypes.c_void_p()
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
memory = ctypes.c_uint64()
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4096))
call("cuMemsetD32_v2", memory, 0x01020304, ctypes.c_size_t(1024))
back = (ctypes.c_uint32 * 1024)()
call("cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(4096))
assert all(v == 0x01020304 for v in back)
# A process that uses CUDA itself starts others that do.
assert "vector_add: ok" in subprocess.check_output([sys.argv[1]], text=True)
print("python: ok")
"#;
    let mut command = product()?.run(shared_daemon()?);
    command.args(["--", "python3", "-c", script]).arg(plain("vector_add")?);
    let finished = process::run(&mut command)?.success()?;
    ensure!(finished.stdout.contains("python: ok"), "{}", finished.output());
    Ok(())
}

fn python_fork() -> Result<()> {
    needs("python3")?;
    let script = r#"
import ctypes, multiprocessing
def count(_):
    cuda = ctypes.CDLL("libcuda.so.1")
    n = ctypes.c_int()
    return (cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(n)), n.value)
if __name__ == "__main__":
    before = multiprocessing.get_context("fork").Pool(2)
    assert all(r == (0, 0, 1) or (r[:2] == (0, 0) and r[2] >= 1) for r in before.map(count, range(4)))
    before.close()
    before.join()
    assert count(0)[:2] == (0, 0)
    # After CUDA's first call a forked child is refused, and its end leaves the parent alone.
    after = multiprocessing.get_context("fork").Pool(2)
    answers = after.map(count, range(4))
    assert all(r[1] != 0 for r in answers), answers
    after.close()
    after.join()
    assert count(0)[:2] == (0, 0)
    print("python: ok")
"#;
    let file = temporary("fork.py");
    std::fs::write(&file, script)?;
    let mut command = product()?.run(shared_daemon()?);
    let finished = process::run(command.args(["--", "python3"]).arg(&file))?.success()?;
    std::fs::remove_file(file)?;
    ensure!(finished.stdout.contains("python: ok"), "{}", finished.output());
    Ok(())
}

fn by_hand() -> Result<()> {
    let mut command = product::clean(&plain("vector_add")?);
    command.env("RGPU_SERVER", shared_daemon()?.to_string()).env("LD_PRELOAD", product()?.shim());
    let finished = process::run(&mut command)?.success()?;
    ensure!(finished.stdout.contains("vector_add: ok"), "{}", finished.output());
    ensure!(finished.stderr.is_empty(), "something was written to standard error: {}", finished.stderr);
    Ok(())
}

fn without_cuda() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    // What the program sees of itself: descriptors, threads, and its environment but for the shim's.
    let script = "ls /proc/self/fd | wc -l; ls /proc/self/task | wc -l; ulimit -a; trap; grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status";
    let with =
        process::run(product()?.run(listener.local_addr()?).args(["--", "bash", "-c", script]))?.success()?;
    let without = process::run(product::clean(Path::new("bash")).args(["-c", script]))?.success()?;
    ensure!(with.stdout == without.stdout, "with:\n{}\nwithout:\n{}", with.stdout, without.stdout);
    ensure!(with.stderr == without.stderr, "standard error: {}", with.stderr);
    ensure!(listener.accept().is_err(), "a program without CUDA connected to the server");
    let file = temporary("stats.json");
    let mut command = product()?.run(listener.local_addr()?);
    command.arg(format!("--stats=json:{}", file.display())).args(["--", "true"]);
    process::run(&mut command)?.success()?;
    let stats = Stats::take(&file)?;
    ensure!(stats.number("round_trips")? == 0, "{}", stats.0);
    Ok(())
}

fn closes_descriptors(forward: bool) -> Result<()> {
    let program = plain("close_all")?;
    let mut command = if forward { product()?.run(shared_daemon()?) } else { product()?.run_in_process() };
    let finished = process::run(command.arg("--").arg(program))?.success()?;
    ensure!(finished.stdout.contains("close_all: ok"), "{}", finished.output());
    Ok(())
}

fn prints(forward: bool) -> Result<()> {
    let program = plain("speak")?;
    let mut command = if forward { product()?.run(shared_daemon()?) } else { product()?.run_in_process() };
    let finished = process::run(command.arg("--").arg(program))?.success()?;
    let expected: String = (0..3).map(|r| format!("host before {r}\nkernel {r} says hello\n")).collect();
    ensure!(finished.stdout == expected, "{}", finished.output());
    Ok(())
}

fn little_address_space() -> Result<()> {
    let program = plain("limited")?;
    let finished = run_bash(&format!("ulimit -v 4000000; exec {}", program.display()))?.expect_code(3)?;
    ensure!(
        finished.stdout.contains("cudaErrorMemoryAllocation") || finished.stdout.contains("cudaError"),
        "{}",
        finished.output()
    );
    ensure!(
        finished.stderr.contains("address space") || finished.stderr.contains("ulimit"),
        "nothing says what is missing\n{}",
        finished.output()
    );
    Ok(())
}

fn another_user() -> Result<()> {
    // SAFETY: geteuid has no preconditions.
    ensure!(unsafe { libc::geteuid() } == 0, Skip("only root can become another user".into()));
    needs("setpriv")?;
    let program = temporary("vector_add");
    let as_nobody = |command: &[&std::ffi::OsStr]| -> Result<process::Finished> {
        let mut nobody = product::clean(Path::new("setpriv"));
        nobody.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        process::run(nobody.env("HOME", "/nonexistent").args(command))
    };
    std::fs::copy(plain("vector_add")?, &program)?;
    let (rgpu, shim) = (product()?.rgpu(), product()?.shim());
    let readable = as_nobody(&[
        "test".as_ref(),
        "-x".as_ref(),
        rgpu.as_os_str(),
        "-a".as_ref(),
        "-r".as_ref(),
        shim.as_os_str(),
    ])?;
    ensure!(readable.status.success(), Skip("another user cannot read what was built here".into()));
    let address = shared_daemon()?.to_string();
    // One user's run must not leave something behind that gets in another's way.
    process::run(&mut forwarded(shared_daemon()?, "vector_add")?)?.success()?;
    let finished = as_nobody(&[
        rgpu.as_os_str(),
        "run".as_ref(),
        "--server".as_ref(),
        address.as_ref(),
        "--".as_ref(),
        program.as_os_str(),
    ])?
    .success()
    .context("as another user")?;
    std::fs::remove_file(program)?;
    ensure!(finished.stdout.contains("vector_add: ok"), "{}", finished.output());
    process::run(&mut forwarded(shared_daemon()?, "vector_add")?)?.success()?;
    Ok(())
}
