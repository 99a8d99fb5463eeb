//! The compiler on wrong modules: it may refuse them, at once or when a kernel is asked for, but never
//! panic. The modules are those of the conformance cases with some words replaced. Nothing is executed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rgpu_device::Range;
use rgpu_image::ptx::parse;
use rgpu_softgpu::abi::Helpers;
use rgpu_softgpu::compile::{Environment, Program};

use super::coverage::{all_cases, covered};
use super::values::Random;

/// What words are replaced with.
const WORDS: &[&str] = &[
    "a0",
    "a1",
    "d0",
    "d1",
    "pin",
    "pout",
    "gid",
    "tid",
    "scratch",
    "beyond",
    "extra",
    "in",
    "place",
    "0",
    "1",
    "-1",
    "33",
    "0xffffffffffffffff",
    "0f7fc00000",
    "0d3ff0000000000000",
    "_",
    "%tid.x",
    "%clock64",
    "DONE",
    "!beyond",
    "{a0, d0}",
    "{a0, a0, a0}",
    "[pin]",
    "[pout+1]",
    "[scratch]",
    "[extra+3]",
    "[12]",
    "a0|d0",
    "(a0)",
    "add",
    "ld",
    "st",
    "cvt",
    "setp",
    "atom",
    "mov",
    "bra",
    "call",
    "ret",
    "shfl",
    ".f32",
    ".f64",
    ".u8",
    ".s16",
    ".b32",
    ".u64",
    ".b64",
    ".pred",
    ".f16",
    ".f16x2",
    ".bf16",
    ".v2",
    ".v4",
    ".global",
    ".shared",
    ".local",
    ".param",
    ".const",
    ".rn",
    ".rzi",
    ".ftz",
    ".sat",
    ".wide",
    ".lo",
    ".cc",
    ".sync",
    ".to",
    ".and",
    ".lt",
    ".nan",
    ".reg",
    ".align",
    ";",
    ",",
    "@beyond ",
    "test",
    "table",
    "functions",
    "twice",
];

/// Words, with the white space and the punctuation between them.
fn split(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '%' | '$');
    while let Some(first) = rest.chars().next() {
        // A dot begins a word: modifiers are replaced one by one.
        let tail = &rest[first.len_utf8()..];
        let length = if is_word(first) || first == '.' {
            first.len_utf8() + tail.find(|c| !is_word(c)).unwrap_or(tail.len())
        } else {
            first.len_utf8()
        };
        words.push(&rest[..length]);
        rest = &rest[length..];
    }
    words
}

fn compile(text: &str) -> Result<(), String> {
    let module = parse(text).map_err(|error| error.to_string())?;
    let program = Program::new(module, 90).map_err(|error| error.to_string())?;
    let base = 0x1000_0000_0000u64;
    let globals =
        program.globals().iter().zip(1u64..).map(|(g, n)| (g.name.clone(), base + (n << 20))).collect();
    let helpers = Helpers {
        vprintf: 64,
        malloc: 64,
        free: 64,
        assertfail: 64,
        globaltimer: 64,
        clock: 64,
        device_runtime: 64,
        check: 64,
        texture: 64,
        textures: 64,
        count: 64,
        tensor: 64,
        tensors: 64,
        exchange: 64,
        exchange_by_name: 64,
    };
    let environment =
        Environment { arena: Range { base, size: 1 << 40 }, globals, helpers, checks: Default::default() };
    let count = program.functions().len() as u32;
    let linked = program.link(environment);
    (0..count).try_for_each(|index| linked.kernel(index).map(drop).map_err(|error| error.to_string()))
}

/// Whether a refusal is the compiler's own failure: code that Cranelift does not take, or that could touch what it must not.
fn is_our_mistake(why: &str) -> bool {
    why.contains("The kernel compiler failed") || why.contains("a mistake in rgpu")
}

#[test]
fn wrong_modules_never_panic() {
    let cases = all_cases();
    let mut random = Random(20_260_101);
    let (mut accepted, mut refused) = (0, 0);
    let rounds = std::env::var("RGPU_FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(3000);
    for _ in 0..rounds {
        let text = cases[random.below(cases.len())].ptx();
        let mut words = split(&text);
        let begin = words.iter().position(|w| *w == "tested").map_or(0, |at| at + 2);
        for _ in 0..=random.below(2) {
            let at = loop {
                let at = begin + random.below(words.len() - begin);
                if !words[at].trim().is_empty() {
                    break at;
                }
            };
            match random.below(8) {
                0 => words[at] = "",
                1 => words[at] = words[begin + random.below(words.len() - begin)],
                _ => words[at] = WORDS[random.below(WORDS.len())],
            }
        }
        let text = words.concat();
        match catch_unwind(AssertUnwindSafe(|| compile(&text))) {
            Ok(Ok(())) => accepted += 1,
            Ok(Err(why)) => {
                refused += 1;
                assert!(!is_our_mistake(&why), "{why}\n{text}");
            }
            Err(_) => panic!("the compiler panicked on:\n{text}"),
        }
    }
    // Otherwise the words are badly chosen.
    assert!(accepted > rounds / 50 && refused > rounds / 10, "{accepted} accepted, {refused} refused");
}

/// Operands of every kind and size.
const OPERANDS: &[&str] = &[
    "p1",
    "h1",
    "r1",
    "rd1",
    "f1",
    "fd1",
    "q1",
    "!p1",
    "!r1",
    "!f1",
    "0",
    "1",
    "-1",
    "16",
    "0xffffffffffffffff",
    "0f7fc00000",
    "0d3ff0000000000000",
    "_",
    "%tid.x",
    "%clock64",
    "%clusterid.x",
    "%dynamic_smem_size",
    "g",
    "s",
    "l",
    "in",
    "s+4",
    "g+1",
    "helper",
    "LABEL",
    "{r1, r2}",
    "{r1, r2, r3, r4}",
    "{h1, h2}",
    "{p1, p2}",
    "{rd1, rd2}",
    "{f1, f2, f3, f4}",
    "{r1, p1}",
    "{{r1, r2}, r3}",
    "{0, 1}",
    "[r1]",
    "[rd1]",
    "[rd1+8]",
    "[h1]",
    "[p1]",
    "[f1]",
    "[g]",
    "[s]",
    "[l+4]",
    "[in]",
    "[in+6]",
    "[16]",
    "[helper]",
    "[rd1, r1]",
    "r1|p1",
    "p1|p2",
    "p1|_",
    "f1|p1",
    "rd1|p1",
    "p1|r1",
    "_|_",
    "TABLE",
];

/// Each form that is covered, with operands that have nothing to do with it: parsing, decoding and emitting end, with
/// machine code or with an error, and Cranelift never sees what its own checks find wrong.
#[test]
fn no_operands_make_the_compiler_panic() {
    let mut random = Random(20_261_122);
    let (mut accepted, mut refused, mut wrong) = (0, 0, Vec::new());
    let mut forms: Vec<String> = covered().into_iter().collect();
    let more = [
        "createpolicy.fractional.L2::evict_first.b64",
        "createpolicy.range.global.L2::evict_last.b64",
        "createpolicy.cvt.L2.b64",
        "applypriority.global.L2::evict_normal",
        "discard.global.L2",
        "bar.arrive",
        "barrier.sync.aligned",
        "bra.uni",
        "call.uni",
        "brx.idx",
        "call",
        "ret.uni",
        "exit",
        "trap",
        "brkpt",
        "griddepcontrol.wait",
        "mbarrier.try_wait.parity.shared.b64",
        "cp.async.cg.shared.global.L2::cache_hint",
        "ld.global.L2::cache_hint.u32",
        "st.relaxed.sys.v4.u32",
        "ld.volatile.v4.u64",
        "ld.v8.u8",
        "st.v8.b64",
        "ld.param.v4.u32",
        "st.param.v2.f32",
        "cvta.to.local.u64",
        "tex.2d.v4.f32.f32",
        "wgmma.fence.sync.aligned",
    ];
    forms.extend(more.map(str::to_owned));
    let rounds = std::env::var("RGPU_FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(8);
    for form in forms.iter().flat_map(|form| std::iter::repeat_n(form, rounds)) {
        let count = random.below(6);
        let operands: Vec<&str> = (0..count).map(|_| OPERANDS[random.below(OPERANDS.len())]).collect();
        let guard = ["", "", "@p1 ", "@!p2 "][random.below(4)];
        let instruction = format!("{guard}{form} {};", operands.join(", "));
        let names = ".reg .pred p<3>; .reg .b16 h<3>; .reg .b32 r<5>; .reg .b64 rd<5>; .reg .f32 f<5>; .reg .f64 fd<3>;
             .reg .b128 q<2>; .shared .b32 s[8]; .local .b64 l[2];";
        let body = format!("{names}\n{{ TABLE: .branchtargets LABEL, LABEL;\n{instruction} }}\nLABEL: ret;");
        // In a kernel, and in a function, where threads cannot always stop.
        let (inside, outside) = if random.below(3) == 0 {
            ("call function, (rd9);\n ret;", &body[..])
        } else {
            (&body[..], "ret;")
        };
        let text = format!(
            ".version 8.6\n.target sm_90\n.address_size 64\n.global .b32 g[8];\n.func helper() {{ ret; }}\n\
             .func function(.param .b64 in) {{ {outside} }}\n\
             .visible .entry test(.param .b64 in) {{ .reg .b64 rd9; mov.u64 rd9, 0;\n {inside} }}\n"
        );
        match catch_unwind(AssertUnwindSafe(|| compile(&text))) {
            Ok(Ok(())) => accepted += 1,
            Ok(Err(why)) if is_our_mistake(&why) => wrong.push(format!("{why} on:\n{text}")),
            Ok(Err(_)) => refused += 1,
            Err(_) => wrong.push(format!("A panic on:\n{text}")),
        }
    }
    wrong.truncate(20);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Otherwise the operands are badly chosen.
    assert!(accepted > forms.len() / 50 && refused > accepted, "{accepted} accepted, {refused} refused");
}
