//! Kernels that try to leave the arena: what they may see of the process that runs them is nothing.

use rgpu_device::{Code, Device, Launch, MemoryKind, Result};

use super::{LEGACY, MODULE, Rig};

/// What no kernel may ever read, or change. Kept in a place of its own.
struct Secret(Box<[u64; 8]>);

const WORD: u64 = 0x5ec2_e7c0_ffee_d00d;

impl Secret {
    fn new() -> Self {
        Self(Box::new([WORD; 8]))
    }

    fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// Read past the optimiser, which sees nobody write.
    fn is_intact(&self) -> bool {
        // SAFETY: plain reads of the box's own words.
        self.0.iter().all(|word| unsafe { std::ptr::from_ref(word).read_volatile() } == WORD)
    }
}

/// Runs the first kernel of a module with one thread, and waits for it.
fn run(rig: &Rig, text: &str, params: &[u64]) -> Result<()> {
    let bytes: Vec<u8> = params.iter().flat_map(|p| p.to_le_bytes()).collect();
    rig.gpu.module_load(0, MODULE + 1, text.as_bytes(), &[]).unwrap();
    rig.gpu.launch(Launch {
        stream: LEGACY,
        module: MODULE + 1,
        function: 0,
        grid: [1; 3],
        block: [1; 3],
        shared_bytes: 0,
        cooperative: false,
        cluster: [0; 3],
        params: &bytes,
    })?;
    rig.sync()
}

/// Functions with one parameter of eight bytes each: `scalar` takes it as a value, `reads` and `writes` as bytes that
/// lie somewhere. `known` is there for its address, from which those of the others can be guessed.
const FUNCTIONS: &str = ".version 8.0\n.target sm_80\n.address_size 64\n
    .func (.param .b64 r) known(.param .b64 x, .param .b64 y) { .reg .b64 %v; mov.b64 %v, 0; st.param.b64 [r], %v; ret; }
    .func (.param .b64 r) reads(.param .align 8 .b8 p[8]) { .reg .b64 %v; ld.param.b64 %v, [p]; st.param.b64 [r], %v; ret; }
    .func (.param .b64 r) writes(.param .align 8 .b8 p[8]) { .reg .b64 %v; mov.b64 %v, 7; st.param.b64 [p], %v; st.param.b64 [r], %v; ret; }
    .func (.param .b64 r) wide(.param .align 16 .b8 p[8]) { .reg .b64 %v; ld.param.b64 %v, [p]; st.param.b64 [r], %v; ret; }
    .func (.param .b64 r) scalar(.param .b64 x) { .reg .b64 %v; ld.param.b64 %v, [x]; st.param.b64 [r], %v; ret; }
";

/// How an indirect call says what it calls: by a table of targets, or by a prototype.
const CALLS: [&str; 2] =
    ["T: .calltargets scalar;", "T: .callprototype (.param .b64 _) _ (.param .b64 _); mov.u64 %rd6, scalar;"];

/// A kernel that calls function number `known + step` with the address as its value, as `call` says.
fn guess(step: i64, call: &str) -> String {
    format!(
        "{FUNCTIONS}
        .visible .entry k(.param .u64 out, .param .u64 addr, .param .u64 zero) {{
          .reg .b64 %rd<12>; .reg .pred %p<2>;
          ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [addr]; ld.param.u64 %rd5, [zero];
          setp.eq.u64 %p1, %rd5, 0; @%p1 bra GO;
          {{ .param .align 8 .b8 a[8]; .param .b64 b; st.param.b64 [a], %rd2;
             call (b), reads, (a); call (b), writes, (a); }}
          {{ .param .align 16 .b8 a[8]; .param .b64 b; st.param.b64 [a], %rd2; call (b), wide, (a); }}
          GO: mov.u64 %rd3, known; add.s64 %rd3, %rd3, {step};
          {{ .param .b64 a; .param .b64 b; st.param.b64 [a], %rd2;
             {call}
             call (b), %rd3, (a), T;
             ld.param.b64 %rd4, [b]; }}
          st.global.u64 [%rd1], %rd4; ret; }}\0"
    )
}

#[test]
fn a_guessed_function_number_enters_nothing_of_another_signature() {
    let secret = Secret::new();
    let mut entered = 0;
    let rig = Rig::new();
    for call in CALLS {
        for step in -8..=16 {
            rig.gpu.reset(0).unwrap();
            rig.gpu.mem_alloc(0, rig.memory, 1 << 20, MemoryKind::Device).unwrap();
            rig.write(rig.memory, &[0, 0]);
            rig.sync().unwrap();
            let result = run(&rig, &guess(step, call), &[rig.memory, secret.address(), 0]);
            assert!(secret.is_intact(), "function {step} wrote through {call}");
            match result {
                // `scalar` itself may be entered: it hands back the number that it was given.
                Ok(()) => {
                    let words = rig.read(rig.memory, 2);
                    let got = u64::from(words[0] as u32) | u64::from(words[1] as u32) << 32;
                    assert_eq!(got, secret.address(), "function {step} read through {call}");
                    entered += 1;
                }
                Err(error) => assert_eq!(error.code, Code::InvalidPc, "{error}"),
            }
        }
    }
    assert!(entered > 0, "the function that may be called was never found");
}

/// Whatever a table of call targets says first decides how the call is made: no other function in it is entered with
/// another signature.
#[test]
fn a_table_of_call_targets_with_functions_of_several_signatures_enters_only_those_of_the_call() {
    let secret = Secret::new();
    for (target, may) in [("scalar", true), ("reads", false), ("writes", false), ("wide", false)] {
        let rig = Rig::new();
        let text = guess(0, CALLS[0])
            .replace(".calltargets scalar", ".calltargets scalar, reads, writes, wide")
            .replace("mov.u64 %rd3, known", &format!("mov.u64 %rd3, {target}"));
        let result = run(&rig, &text, &[rig.memory, secret.address(), 0]);
        assert!(secret.is_intact(), "{target}");
        match result {
            Ok(()) => assert!(may, "{target} was entered"),
            Err(error) => assert!(!may && error.code == Code::InvalidPc, "{target}: {error}"),
        }
    }
}

/// A variable in shared memory is no argument that a function could follow as an address.
#[test]
fn a_shared_variable_as_an_argument_is_refused_by_name() {
    let rig = Rig::new();
    let text = format!(
        "{FUNCTIONS}
        .visible .entry k(.param .u64 out) {{
          .reg .b64 %rd<4>; .shared .align 8 .b8 s[8];
          {{ .param .b64 b; call (b), reads, (s); ld.param.b64 %rd2, [b]; }}
          ld.param.u64 %rd1, [out]; st.global.u64 [%rd1], %rd2; ret; }}\0"
    );
    let error = run(&rig, &text, &[rig.memory]).unwrap_err();
    assert_eq!(error.code, Code::InvalidPtx, "{error}");
}

const BUILTINS: &str = ".version 8.0\n.target sm_80\n.address_size 64\n
    .extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
    .extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
    .global .align 1 .b8 text[16] = {37, 115, 124, 37, 108, 108, 120, 10, 0};
";

/// What a kernel prints when format or arguments lie in the process's own memory.
fn printed(call: &str, secret: u64) -> (Result<()>, String) {
    let rig = Rig::new();
    let text = format!(
        "{BUILTINS}
        .visible .entry k(.param .u64 addr) {{
          .reg .b64 %rd<8>; .reg .b32 %r<4>; .local .align 8 .b8 args[16];
          ld.param.u64 %rd1, [addr]; mov.u64 %rd2, args; mov.u64 %rd3, text; cvta.global.u64 %rd3, %rd3;
          st.local.u64 [args], %rd1; st.local.u64 [args+8], %rd1;
          {call} ret; }}\0"
    );
    let result = run(&rig, &text, &[secret]);
    let printed = rig.program.printed.lock().unwrap().clone();
    (result, String::from_utf8_lossy(&printed).into_owned())
}

#[test]
fn printf_reads_nothing_but_device_memory() {
    let words = Box::new(*b"HOSTSECRETHOSTSECRET\0\0\0\0");
    let address = words.as_ptr() as u64;
    let print = |format: &str, args: &str| {
        format!(
            "{{ .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], {format}; st.param.b64 [a], {args};
               call (r), vprintf, (f, a); ld.param.b32 %r1, [r]; }}"
        )
    };
    for (what, format, args) in
        [("the format", "%rd1", "%rd2"), ("the arguments", "%rd3", "%rd1"), ("a string", "%rd3", "%rd2")]
    {
        let (result, text) = printed(&print(format, args), address);
        assert!(!text.contains("SECRET") && !text.contains("5445524345535453"), "{what}: {text}");
        assert_eq!(result.unwrap_err().code, Code::IllegalAddress, "{what}");
    }
}

#[test]
fn a_failed_assertion_prints_nothing_but_device_memory() {
    let words = Box::new(*b"HOSTSECRETHOSTSECRET\0\0\0\0");
    let (result, text) = printed(
        "{ .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 s;
           st.param.b64 [m], %rd1; st.param.b64 [f], %rd1; st.param.b32 [l], 7; st.param.b64 [n], %rd1;
           st.param.b64 [s], %rd1;
           call __assertfail, (m, f, l, n, s); }",
        words.as_ptr() as u64,
    );
    assert_eq!(result.unwrap_err().code, Code::Assert);
    assert!(!text.contains("SECRET"), "{text}");
}

/// Far beside a wild pointer, too, an access is what it is.
#[test]
fn a_wild_pointer_is_an_illegal_address_at_every_offset() {
    let secret = Secret::new();
    for offset in [0, 8, 4096, 65264, -8, -65280, 1 << 20, -(1 << 20)] {
        let rig = Rig::new();
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a) {{
               .reg .b64 %d<3>; ld.param.u64 %d1, [a]; ld.global.u64 %d2, [%d1+{offset}]; st.global.u64 [%d1+{offset}], %d2; ret; }}\0"
        );
        let error = run(&rig, &text, &[secret.address()]).unwrap_err();
        assert_eq!(error.code, Code::IllegalAddress, "{offset}: {error}");
    }
    assert!(secret.is_intact());
}

/// Functions with large frames on the processor's stack, which is full before the thread's local memory is, and helpers
/// called from the last of them.
#[test]
fn calls_that_are_too_deep_for_a_helper_end_the_kernel_and_not_the_process() {
    let mut live = String::new();
    let mut used = String::new();
    for n in 0..200 {
        live += &format!("ld.global.u64 %v{n}, [%m+{}];\n", n * 8);
        used += &format!("xor.b64 %x, %x, %v{n};\n");
    }
    let text = format!(
        "{BUILTINS}
        .global .align 1 .b8 digits[8] = {{37, 46, 53, 48, 48, 102, 0}};
        .func (.param .b64 r) deep(.param .b64 n, .param .b64 m) {{
          .reg .b64 %v<200>, %x, %n, %m, %a; .reg .b32 %r; .reg .pred %p;
          ld.param.b64 %n, [n]; ld.param.b64 %m, [m]; mov.u64 %a, digits;
          {live}
          {{ .param .b64 f; .param .b64 a; .param .b32 y; st.param.b64 [f], %a; st.param.b64 [a], %m; call (y), vprintf, (f, a); }}
          mov.u64 %x, 0; setp.eq.u64 %p, %n, 0; @%p bra OUT;
          {{ .param .b64 k; .param .b64 q; .param .b64 y; sub.u64 %a, %n, 1; st.param.b64 [k], %a; st.param.b64 [q], %m;
             call (y), deep, (k, q); ld.param.b64 %x, [y]; }}
          OUT: {used} st.param.b64 [r], %x; ret; }}
        .visible .entry k(.param .u64 m, .param .u64 n) {{
          .reg .b64 %m, %n, %x; ld.param.u64 %m, [m]; ld.param.u64 %n, [n];
          {{ .param .b64 k; .param .b64 q; .param .b64 y; st.param.b64 [k], %n; st.param.b64 [q], %m;
             call (y), deep, (k, q); ld.param.b64 %x, [y]; }}
          st.global.u64 [%m], %x; ret; }}\0"
    );
    let rig = Rig::new();
    rig.gpu.set_limit(0, rgpu_device::Limit::StackSize, 512 << 10).unwrap();
    let error = run(&rig, &text, &[rig.memory, 1 << 40]).unwrap_err();
    assert_eq!(error.code, Code::HardwareStackError, "{error}");
}
