//! Redirects stand-ins for programs with a static CUDA runtime: C files with functions of the same names,
//! which give the answer 1234 when nobody redirects them.

#![cfg(target_arch = "x86_64")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A runtime of the version that `VERSION` says, and a constructor that calls it.
const RUNTIME: &str = r#"
#include <stdio.h>
#define RUNTIME __attribute__((visibility("hidden"), noinline, aligned(16)))
RUNTIME int cudaMalloc(void **p, unsigned long n) { __asm__ volatile(""); *p = 0; return 1234; }
RUNTIME int cudaGetExportTable(void **p, void *id) { __asm__ volatile(""); *p = 0; return 1234; }
RUNTIME int cudaGetDeviceCount(int *n) { __asm__ volatile(""); *n = 77; return 1234; }
RUNTIME void **__cudaRegisterFatBinary(void *p) { __asm__ volatile(""); return 0; }
static __attribute__((noinline)) int version_inside(int *v) { *v = VERSION; return 0; }
RUNTIME int cudaRuntimeGetVersion(int *v) {
    __asm__ volatile("");
    int result = version_inside(v);
    __asm__ volatile("");
    *v = -*v;
    return result;
}
/* Nobody else's business, whatever it is called. */
__attribute__((noinline)) int cudaOfMyOwn(void) { __asm__ volatile(""); return 5; }
static void report(const char *when) {
    int count = -1, version = -1;
    int error = cudaGetDeviceCount(&count);
    cudaRuntimeGetVersion(&version);
    printf("%s %s %d %d\n", NAME, when, error == 1234, version);
}
__attribute__((constructor)) static void construct(void) { report("constructor"); }
"#;

const PROGRAM: &str = r#"
#include <dlfcn.h>
int main(int argc, char **argv) {
    report("main");
    for (int i = 1; i < argc; i++) {
        void *opened = dlopen(argv[i], RTLD_NOW);
        if (!opened) { puts(dlerror()); return 1; }
        int (*call)(void) = (int (*)(void))dlsym(opened, "call");
        call();
        dlclose(opened);
    }
    return cudaOfMyOwn();
}
"#;

const LIBRARY: &str = "int call(void) { report(\"call\"); return cudaOfMyOwn(); }\n";

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rgpu-redirect-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Compiles the runtime and `rest`.
    fn compile(&self, output: &str, version: u32, rest: &str, options: &[&str]) -> PathBuf {
        let source = self.0.join(format!("{output}.c"));
        std::fs::write(&source, format!("{RUNTIME}{rest}")).unwrap();
        let path = self.0.join(output);
        let compiled = Command::new("cc")
            .args(["-O1", "-w", "-fPIC", &format!("-DVERSION={version}"), &format!("-DNAME=\"{output}\"")])
            .arg(&source)
            .arg("-o")
            .arg(&path)
            .args(options)
            .current_dir(&self.0)
            .status()
            .unwrap();
        assert!(compiled.success());
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn library() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join("librgpu.so")
}

fn run(program: &Path, arguments: &[&Path], preload: bool) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env_remove("RGPU_SERVER").env_remove("RGPU_IN_PROCESS").env_remove("LD_PRELOAD");
    if preload {
        command.env("LD_PRELOAD", library());
    }
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_program_its_libraries_and_what_it_opens_are_redirected_before_their_constructors() {
    let scratch = Scratch::new("all");
    let linked = scratch.compile("liblinked.so", 13020, LIBRARY, &["-shared"]);
    let opened = scratch.compile("libopened.so", 12080, LIBRARY, &["-shared"]);
    let options = ["-Wl,--no-as-needed", "-L.", "-llinked", "-Wl,-rpath,$ORIGIN", "-ldl"];
    let program = scratch.compile("program", 13030, PROGRAM, &options);

    let alone = run(&program, &[&opened], false);
    assert!(text(&alone).contains("libopened.so constructor 1 -12080"), "{}", text(&alone));

    // Opened twice, because the second time its place may be that of the first.
    let output = run(&program, &[&opened, &opened, &linked], true);
    let expected = "liblinked.so constructor 0 13030\n\
                    program constructor 0 13030\n\
                    program main 0 13030\n\
                    libopened.so constructor 0 12080\n\
                    libopened.so call 0 12080\n\
                    libopened.so constructor 0 12080\n\
                    libopened.so call 0 12080\n\
                    liblinked.so call 0 13030\n";
    // All runtimes of one major version share one number, the program's or that of the last one found.
    let normal = text(&output).replace("13020", "13030");
    assert_eq!(normal, expected, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(5));
}

#[test]
fn a_program_that_cannot_be_relocated_is_redirected_too() {
    let scratch = Scratch::new("fixed");
    let program = scratch.compile("fixed", 12040, PROGRAM, &["-no-pie", "-fno-pie", "-ldl"]);
    let output = run(&program, &[], true);
    assert_eq!(text(&output), "fixed constructor 0 12040\nfixed main 0 12040\n");
}

#[test]
fn a_stripped_program_is_left_alone() {
    let scratch = Scratch::new("stripped");
    let program = scratch.compile("stripped", 13000, PROGRAM, &["-s", "-ldl"]);
    let output = run(&program, &[], true);
    assert_eq!(text(&output), "stripped constructor 1 -13000\nstripped main 1 -13000\n");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn functions_that_only_share_some_names_are_left_alone() {
    let scratch = Scratch::new("other");
    let source = scratch.0.join("other.c");
    let code = "#include <stdio.h>\n\
                __attribute__((noinline)) int cudaMalloc(void) { __asm__ volatile(\"\"); return 3; }\n\
                int main() { return cudaMalloc(); }\n";
    std::fs::write(&source, code).unwrap();
    let program = scratch.0.join("other");
    assert!(Command::new("cc").args([&source, Path::new("-o"), &program]).status().unwrap().success());
    assert_eq!(run(&program, &[], true).status.code(), Some(3));
}

#[test]
fn a_program_without_cuda_notices_nothing() {
    let look = "ls /proc/self/task | wc -l; ls /proc/self/fd; ulimit -a; echo $-";
    let shell = |preload| {
        let mut command = Command::new("sh");
        command.args(["-c", look]).env_remove("LD_PRELOAD");
        if preload {
            command.env("LD_PRELOAD", library());
        }
        command.output().unwrap()
    };
    let (without, with) = (shell(false), shell(true));
    assert_eq!(text(&with), text(&without));
    assert_eq!(with.stderr, without.stderr);
    assert_eq!(with.status, without.status);
}
