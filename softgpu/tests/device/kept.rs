//! Machine code that one process keeps and another runs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rgpu_device::{Device, Launch};

use super::kept_code::{Code, Folder};
use super::{LEGACY, MODULE, Rig};

/// Everything that machine code refers to: functions of the module, by name and through the table, a variable, the executor's
/// functions, and others of this library.
const TEXT: &str = ".version 8.0\n.target sm_80\n.address_size 64\n
    .global .u64 pointers[2] = { twice, thrice };
    .global .u64 factor = 5;
    .extern .func (.param .b64 r) malloc(.param .b64 n);
    .extern .func free(.param .b64 p);
    .func (.param .b64 r) twice(.param .b64 x) { .reg .b64 %v; ld.param.b64 %v, [x]; add.u64 %v, %v, %v; st.param.b64 [r], %v; ret; }
    .func (.param .b64 r) thrice(.param .b64 x) { .reg .b64 %v; ld.param.b64 %v, [x]; mul.lo.u64 %v, %v, 3; st.param.b64 [r], %v; ret; }
    .visible .entry k(.param .u64 out, .param .u64 which) {
      .reg .b64 %rd<20>; .reg .b32 %r<9>; .reg .f32 %f<4>;
      ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [which];
      mov.u64 %rd3, pointers; mad.lo.u64 %rd3, %rd2, 8, %rd3; ld.global.u64 %rd4, [%rd3];
      ld.global.u64 %rd5, [factor];
      { .param .b64 a; .param .b64 b; st.param.b64 [a], %rd5; T: .callprototype (.param .b64 _) _ (.param .b64 _);
        call (b), %rd4, (a), T; ld.param.b64 %rd6, [b]; }
      { .param .b64 a; .param .b64 b; st.param.b64 [a], %rd6; call (b), twice, (a); ld.param.b64 %rd7, [b]; }
      st.global.u32 [%rd1], %rd7;
      { .param .b64 n; .param .b64 p; mov.b64 %rd8, 64; st.param.b64 [n], %rd8; call (p), malloc, (n); ld.param.b64 %rd9, [p]; }
      mov.u32 %r1, 77; st.u32 [%rd9], %r1; ld.u32 %r2, [%rd9]; st.global.u32 [%rd1+4], %r2;
      { .param .b64 p; st.param.b64 [p], %rd9; call free, (p); }
      mov.f32 %f1, 0f40400000; lg2.approx.f32 %f2, %f1; mov.b32 %r3, %f2; st.global.u32 [%rd1+8], %r3;
      mov.u32 %r4, 168; mov.u32 %r5, 0; mov.s32 %r6, 2; fns.b32 %r7, %r4, %r5, %r6; st.global.u32 [%rd1+12], %r7;
      bar.sync 0;
      mov.u64 %rd10, %globaltimer; setp.ne.u64 %p1, %rd10, 0; selp.u32 %r8, 1, 0, %p1; st.global.u32 [%rd1+16], %r8;
      ret; }\0";

/// What [`TEXT`] and kernels of nvcc's compute on a device with this code; how many kernels were found and how many compiled.
fn run(code: Code) -> (u32, u32) {
    let rig = Rig::with(code, true);
    let text = TEXT.replace(".reg .f32 %f<4>;", ".reg .f32 %f<4>; .reg .pred %p<2>;");
    rig.gpu.module_load(0, MODULE + 1, text.as_bytes(), &[]).unwrap();
    for (which, result) in [(0u64, 20), (1, 30)] {
        let params: Vec<u8> = [rig.memory, which].iter().flat_map(|p| p.to_le_bytes()).collect();
        let (grid, block) = ([1; 3], [1; 3]);
        let (module, shared_bytes, cooperative, params) = (MODULE + 1, 0, false, &params[..]);
        let stream = LEGACY;
        let launch = Launch {
            stream,
            module,
            function: 0,
            grid,
            block,
            shared_bytes,
            cooperative,
            cluster: [0; 3],
            params,
        };
        rig.gpu.launch(launch).unwrap();
        rig.sync().unwrap();
        let log = 3f32.log2().to_bits() as i32;
        assert_eq!(rig.read(rig.memory, 5), [result, 77, log, 5, 1]);
    }
    let input: Vec<i32> = (0..1000).map(|i| i % 11 - 5).collect();
    let expected: i32 = input.iter().zip([1, 2, 3, 4].iter().cycle()).map(|(v, w)| v * w).sum();
    let out = rig.memory + (512 << 10);
    rig.write(rig.memory, &input);
    rig.write(out, &[0]);
    let mut params = rig.memory.to_le_bytes().to_vec();
    params.extend(out.to_le_bytes());
    params.extend((input.len() as u64).to_le_bytes());
    rig.launch(LEGACY, "weighted_sum", 2, 64, 8, &params);
    assert_eq!(rig.read(out, 1), [expected]);
    rig.launch(LEGACY, "greet", 1, 3, 0, &4i32.to_le_bytes());
    rig.sync().unwrap();
    assert_eq!(rig.printed(), "thread 0: 6.00\nthread 1: 6.00\nthread 2: 6.00\n");
    (rig.program.code.found(), rig.program.code.kept())
}

/// The folder that a process of [`in_a_process`] uses.
const FOLDER: &str = "RGPU_TEST_KEPT_CODE";

/// [`run`] in a process of its own, where everything lies elsewhere.
fn in_a_process(folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "kept::one_process", "--nocapture"]).env(FOLDER, folder);
    command
}

fn counted(output: &std::process::Output) -> (u32, u32) {
    let text = String::from_utf8_lossy(&output.stdout);
    let told = text.lines().find_map(|line| line.split_once("kernels found ")?.1.split_once(" compiled "));
    let Some((found, compiled)) = told else { panic!("{output:?}") };
    (found.parse().unwrap(), compiled.parse().unwrap())
}

/// Runs in the processes that the other tests start; by itself it has nothing to do.
#[test]
fn one_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let (found, compiled) = run(Code::of(folder));
    println!("\nkernels found {found} compiled {compiled}");
}

#[test]
fn another_process_compiles_nothing_again() {
    let folder = Folder::new("again");
    let process = || counted(&in_a_process(folder.as_ref()).output().unwrap());
    assert_eq!(process(), (0, 3));
    let files = folder.files();
    assert_eq!(files.len(), 3);
    assert_eq!((process(), process()), ((3, 0), (3, 0)));
    // Bytes that are no kernel's are not run.
    fs::write(&files[0], b"nonsense").unwrap();
    assert_eq!(process(), (3, 1));
    assert_eq!(process(), (3, 0));
}

#[test]
fn processes_at_the_same_time_do_not_disturb_each_other() {
    let folder = Folder::new("together");
    let processes: Vec<_> = (0..4)
        .map(|_| in_a_process(folder.as_ref()).stdout(std::process::Stdio::piped()).spawn().unwrap())
        .collect();
    for process in processes {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let (found, compiled) = counted(&output);
        assert!(found + compiled >= 3);
    }
    assert_eq!(folder.files().len(), 3);
}

/// Kernels of [`measure`]'s module.
const MANY: u32 = 1000;

/// A module of kernels, each of some hundred instructions and different from the others.
fn many() -> String {
    let mut text = String::from(".version 8.0\n.target sm_80\n.address_size 64\n");
    for number in 0..MANY {
        let body: String = (0..30)
            .map(|i| {
                format!(
                    "mul.f32 %f2, %f1, 0f3F7D70A4; fma.rn.f32 %f1, %f1, %f2, %f3; add.s32 %r3, %r2, {}; xor.b32 %r2, %r3, %r1;\n",
                    number * 31 + i
                )
            })
            .collect();
        text += &format!(
            ".visible .entry k{number}(.param .u64 out, .param .u32 count) {{
              .reg .b64 %rd<4>; .reg .b32 %r<9>; .reg .f32 %f<5>; .reg .pred %p<2>;
              ld.param.u64 %rd1, [out]; ld.param.u32 %r4, [count];
              mov.u32 %r1, %tid.x; mov.u32 %r2, %r1; cvt.rn.f32.u32 %f1, %r1; mov.f32 %f3, 0f3F000000; mov.u32 %r5, 0;
              L: {body}
              add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, %r4; @%p1 bra L;
              mov.b32 %r6, %f1; xor.b32 %r6, %r6, %r2;
              mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r6; ret; }}\n"
        );
    }
    text + "\0"
}

/// One process of [`measure`]: loads the module, launches one kernel, and then all.
#[test]
#[ignore = "a part of kept::measure"]
fn measured_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let rig = Rig::with(Code::of(folder), true);
    let text = many();
    let begun = Instant::now();
    rig.gpu.module_load(0, MODULE + 1, text.as_bytes(), &[]).unwrap();
    let loaded = begun.elapsed();
    let launch = |function| {
        let mut params = rig.memory.to_le_bytes().to_vec();
        params.extend(3u32.to_le_bytes());
        let (grid, block, shared_bytes) = ([1; 3], [32, 1, 1], 0);
        let (stream, module, cooperative, params) = (LEGACY, MODULE + 1, false, &params[..]);
        rig.gpu
            .launch(Launch {
                stream,
                module,
                function,
                grid,
                block,
                shared_bytes,
                cooperative,
                cluster: [0; 3],
                params,
            })
            .unwrap();
        rig.sync().unwrap();
    };
    launch(MANY / 2);
    let first = begun.elapsed();
    (0..MANY).for_each(launch);
    let all = begun.elapsed();
    let kept = rig.program.code.kept();
    println!("\nmilliseconds {} {} {} {kept}", loaded.as_millis(), first.as_millis(), all.as_millis());
}

/// Prints what keeping machine code saves: in pairs of processes, one without anything kept and one with all. What it printed is in
/// docs/measurements.
#[test]
#[ignore = "a measurement: cargo test -p rgpu-softgpu --test device -- --ignored --nocapture kept::measure --exact"]
fn measure() {
    let process = |folder: &Folder| -> Vec<u64> {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--ignored", "--exact", "kept::measured_process", "--nocapture"])
            .env(FOLDER, folder.as_ref());
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find_map(|line| line.strip_prefix("milliseconds "));
        line.unwrap_or_else(|| panic!("{output:?}"))
            .split(' ')
            .map(|number| number.parse().unwrap())
            .collect()
    };
    println!("\nmodule of {MANY} kernels, {} bytes of PTX; milliseconds, cold and warm", many().len());
    for _ in 0..5 {
        let folder = Folder::new("measured");
        let (cold, warm) = (process(&folder), process(&folder));
        assert_eq!((cold[3], warm[3]), (u64::from(MANY), 0));
        let bytes: u64 = folder.files().iter().map(|file| fs::metadata(file).unwrap().len()).sum();
        for (what, at) in [("loaded", 0), ("first launch done", 1), ("all launched", 2)] {
            println!(
                "{what}: {} and {}, ratio {:.2}",
                cold[at],
                warm[at],
                cold[at] as f64 / warm[at].max(1) as f64
            );
        }
        println!("{bytes} bytes kept");
    }
}
