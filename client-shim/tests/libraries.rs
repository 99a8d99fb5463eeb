//! NVIDIA's other libraries as programs reach them: linked, by their file's name, and by the path of NVIDIA's own file, for which
//! a C file stands in that has functions of the same names and answers 1234.

#![cfg(target_arch = "x86_64")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// "NVIDIA's" nvJitLink: the functions under their names and under those of a version.
const NVJITLINK: &str = r#"
#include <stddef.h>
#define API(name) __attribute__((noinline, aligned(16))) int name
#define TWICE(name, ...) \
    API(name)(__VA_ARGS__) { __asm__ volatile(""); return 1234; } \
    API(__##name##_12_9)(__VA_ARGS__) { __asm__ volatile(""); return 1234; }
TWICE(nvJitLinkCreate, void **handle, unsigned count, const char **options)
TWICE(nvJitLinkAddData, void *handle, int kind, const void *data, size_t size, const char *name)
TWICE(nvJitLinkComplete, void *handle)
TWICE(nvJitLinkGetLinkedCubinSize, void *handle, size_t *size)
TWICE(nvJitLinkGetLinkedCubin, void *handle, void *cubin)
TWICE(nvJitLinkGetErrorLogSize, void *handle, size_t *size)
TWICE(nvJitLinkGetErrorLog, void *handle, char *log)
TWICE(nvJitLinkDestroy, void **handle)
API(nvJitLinkOfTomorrow)(void) { __asm__ volatile(""); return 1234; }
/* The last of a section, with no room after it: it cannot be redirected, and must not be. */
API(nvJitLinkShortAndLast)(void) { __asm__ volatile(""); return 1234; }
"#;

/// Links one PTX text, or two, and prints the codes and what comes of it. `FIND` gets a function.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static const char *HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n";
int main(int argc, char **argv) {
#ifdef LINKED
    extern int __nvJitLinkCreate_12_9(), __nvJitLinkAddData_12_9(), __nvJitLinkComplete_12_9();
    extern int __nvJitLinkGetLinkedCubinSize_12_9(), __nvJitLinkGetLinkedCubin_12_9();
    extern int __nvJitLinkGetErrorLogSize_12_9(), __nvJitLinkGetErrorLog_12_9(), __nvJitLinkDestroy_12_9();
#define FIND(name) int (*name)() = (int (*)())__##name##_12_9
#else
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) { puts(dlerror()); return 1; }
#define FIND(name) int (*name)() = (int (*)())dlsym(library, #name)
#endif
    FIND(nvJitLinkCreate); FIND(nvJitLinkAddData); FIND(nvJitLinkComplete); FIND(nvJitLinkGetLinkedCubinSize);
    FIND(nvJitLinkGetLinkedCubin); FIND(nvJitLinkGetErrorLogSize); FIND(nvJitLinkGetErrorLog); FIND(nvJitLinkDestroy);
    char first[500], second[500];
    sprintf(first, "%s.extern .func f ();\n.visible .entry k () { call f; ret; }\n", HEAD);
    sprintf(second, "%s.visible .func f () { ret; }\n", HEAD);
    void *handle = 0;
    const char *options[] = {"-arch=sm_80", "-O3"};
    printf("create %d\n", nvJitLinkCreate(&handle, 2u, options));
    printf("add %d\n", nvJitLinkAddData(handle, 2, first, strlen(first), "first"));
    printf("add %d\n", nvJitLinkAddData(handle, 10, second, strlen(second) + 1, "second"));
    printf("complete %d\n", nvJitLinkComplete(handle));
    size_t size = 0;
    int code = nvJitLinkGetLinkedCubinSize(handle, &size);
    char *cubin = calloc(size + 1, 1);
    if (code == 0) code = nvJitLinkGetLinkedCubin(handle, cubin);
    printf("cubin %d %d %d\n", code, size > 1 && strlen(cubin) + 1 == size, strstr(cubin, ".entry k") && strstr(cubin, ".func f"));
    printf("bad %d\n", nvJitLinkAddData(handle, 2, "nonsense", (size_t)8, "third"));
    size_t length = 0;
    nvJitLinkGetErrorLogSize(handle, &length);
    char *log = calloc(length + 1, 1);
    nvJitLinkGetErrorLog(handle, log);
    printf("log %d %s", length == (length ? strlen(log) + 1 : 0), length ? log : "\n");
    code = nvJitLinkDestroy(&handle);
    printf("destroy %d %d\n", code, handle == 0);
#ifndef LINKED
    int (*tomorrow)(void) = (int (*)(void))dlsym(library, "nvJitLinkOfTomorrow");
    if (tomorrow) printf("tomorrow %d\n", tomorrow());
#endif
    return 0;
}
"#;

/// "NVIDIA's" NVRTC.
const NVRTC: &str = r#"
#include <stddef.h>
#include <string.h>
#define API __attribute__((noinline, aligned(16))) int
API nvrtcGetPTXSize(void *program, size_t *size) { __asm__ volatile(""); *size = 4; return 0; }
API nvrtcGetPTX(void *program, char *text) { __asm__ volatile(""); strcpy(text, "ptx"); return 0; }
API nvrtcGetCUBINSize(void *program, size_t *size) { __asm__ volatile(""); *size = 6; return 0; }
API nvrtcGetCUBIN(void *program, char *text) { __asm__ volatile(""); strcpy(text, "cubin"); return 0; }
"#;

const ASKS_NVRTC: &str = r#"
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
int main(int argc, char **argv) {
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) { puts(dlerror()); return 1; }
    int (*sized)(void *, size_t *) = (int (*)(void *, size_t *))dlsym(library, "nvrtcGetCUBINSize");
    int (*get)(void *, char *) = (int (*)(void *, char *))dlsym(library, "nvrtcGetCUBIN");
    int (*ptx)(void *, char *) = (int (*)(void *, char *))dlsym(library, "nvrtcGetPTX");
    size_t size = 0;
    char text[16] = "", other[16] = "";
    int code = sized(0, &size) | get(0, text) | ptx(0, other);
    printf("%d %zu %s %s\n", code, size, text, other);
    return 0;
}
"#;

/// What programs see that are served.
const SERVED: &str = "create 0\nadd 0\nadd 0\ncomplete 0\ncubin 0 1 1\nbad 4\n\
                      log 1 third is no PTX: it does not begin with .version\ndestroy 0 1\n";

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rgpu-libraries-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn compile(&self, output: &str, source: &str, options: &[&str]) -> PathBuf {
        let file = self.0.join(format!("{output}.c"));
        std::fs::write(&file, source).unwrap();
        let path = self.0.join(output);
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-w", "-std=gnu11"]).arg(&file).arg("-o").arg(&path).args(options);
        assert!(compiler.current_dir(&self.0).status().unwrap().success());
        path
    }

    /// A shared object with a name and a version of its symbols, both as NVIDIA's files have them.
    fn library(&self, soname: &str, source: &str) -> PathBuf {
        std::fs::write(self.0.join("versions.map"), format!("{soname} {{ *; }};\n")).unwrap();
        let named = format!("-Wl,-soname,{soname}");
        self.compile(soname, source, &["-shared", "-fPIC", &named, "-Wl,--version-script=versions.map"])
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn rgpu() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join("librgpu.so")
}

/// Runs a program with the library preloaded, and variables set.
fn run(program: &Path, argument: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.arg(argument);
    for name in ["RGPU_SERVER", "RGPU_LEASE", "RGPU_IN_PROCESS", "RGPU_SOFTWARE_TOOLS", "LD_LIBRARY_PATH"] {
        command.env_remove(name);
    }
    command.env("LD_PRELOAD", rgpu()).envs(variables.iter().copied()).output().unwrap()
}

fn text(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}");
    assert!(!error.contains("version"), "the loader complains: {error}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

const SOFTWARE: [(&str, &str); 1] = [("RGPU_SOFTWARE_TOOLS", "1")];

#[test]
fn the_file_itself_is_redirected_where_the_device_is_a_software_gpu() {
    let scratch = Scratch::new("path");
    let library = scratch.library("libnvJitLink.so.12", NVJITLINK);
    let program = scratch.compile("program", PROGRAM, &["-ldl"]);
    for variables in [SOFTWARE, [("RGPU_IN_PROCESS", "1")]] {
        let output = run(&program, &library, &variables);
        // A function that came with a newer library is refused, and not run with a handle that is not the library's.
        assert_eq!(text(&output), format!("{SERVED}tomorrow 3\n"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("a function of nvJitLink that rgpu does not know"), "{said}");
    }
    for variables in [&[][..], &[("RGPU_IN_PROCESS", "1"), ("RGPU_SOFTWARE_TOOLS", "0")]] {
        let own = text(&run(&program, &library, variables));
        assert!(own.starts_with("create 1234\nadd 1234\n") && own.ends_with("tomorrow 1234\n"), "{own}");
    }
}

#[test]
fn a_program_that_is_linked_with_it_is_served_under_its_versions() {
    let scratch = Scratch::new("linked");
    scratch.library("libnvJitLink.so.12", NVJITLINK);
    std::os::unix::fs::symlink("libnvJitLink.so.12", scratch.0.join("libnvJitLink.so")).unwrap();
    let program = scratch.compile("program", PROGRAM, &["-DLINKED", "-L.", "-lnvJitLink", "-ldl"]);
    let own = scratch.0.to_str().unwrap();

    // With NVIDIA's file: preloaded symbols come first, and pass calls on unless the device is a software GPU.
    let with = [SOFTWARE[0], ("LD_LIBRARY_PATH", own)];
    assert_eq!(text(&run(&program, Path::new(""), &with)), SERVED);
    let passed_on = text(&run(&program, Path::new(""), &with[1..]));
    assert!(passed_on.starts_with("create 1234\n") && passed_on.contains("destroy 1234 "), "{passed_on}");

    // Without: a link of this name to the library is as good.
    let links = scratch.0.join("links");
    std::fs::create_dir(&links).unwrap();
    std::os::unix::fs::symlink(rgpu(), links.join("libnvJitLink.so.12")).unwrap();
    let with = [SOFTWARE[0], ("LD_LIBRARY_PATH", links.to_str().unwrap())];
    assert_eq!(text(&run(&program, Path::new(""), &with)), SERVED);
}

#[test]
fn the_machine_code_of_nvrtc_is_its_ptx_for_a_software_gpu() {
    let scratch = Scratch::new("nvrtc");
    let library = scratch.library("libnvrtc.so.13", NVRTC);
    let program = scratch.compile("program", ASKS_NVRTC, &["-ldl"]);
    assert_eq!(text(&run(&program, &library, &SOFTWARE)), "0 4 ptx ptx\n");
    assert_eq!(text(&run(&program, &library, &[])), "0 6 cubin ptx\n");
    // A file of another name is somebody else's.
    let other = scratch.library("libother.so.13", NVRTC);
    assert_eq!(text(&run(&program, &other, &SOFTWARE)), "0 6 cubin ptx\n");
}

/// Asks for files as Python does.
const LOOKS_FOR_FILES: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
int main(int argc, char **argv) {
    struct stat found;
    for (int i = 0; i < 3; i++) {
        const char *name = (const char *[]){"/dev/nvidiactl", "/dev/nvidiactl2", "/dev/null"}[i];
        int code = stat(name, &found);
        printf("%d %d ", code, code == 0 && S_ISCHR(found.st_mode));
        printf("%d %d\n", fstatat(AT_FDCWD, name, &found, 0), open(name, O_RDWR) < 0);
    }
    return 0;
}
"#;

#[test]
fn python_alone_finds_a_driver() {
    if Path::new("/dev/nvidiactl").exists() {
        eprintln!("skipped: this machine has NVIDIA's driver");
        return;
    }
    let scratch = Scratch::new("python");
    let found = "0 1 0 1\n-1 0 -1 1\n0 1 0 0\n";
    for options in [&["-Wl,-z,lazy"][..], &["-Wl,-z,relro,-z,now"], &["-no-pie", "-fno-pie"]] {
        let python = scratch.compile("python3.99", LOOKS_FOR_FILES, options);
        assert_eq!(text(&run(&python, Path::new(""), &[])), found, "{options:?}");
    }
    let other = scratch.compile("other", LOOKS_FOR_FILES, &[]);
    assert_eq!(text(&run(&other, Path::new(""), &[])), found.replacen("0 1 0 1", "-1 0 -1 1", 1));
}
