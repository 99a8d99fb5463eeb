//! The compiler on wrong modules: it may refuse them, at once or when a kernel is asked for, but never
//! panic. The modules are those of the conformance cases with some words replaced. Nothing is executed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rgpu_device::Range;
use rgpu_image::ptx::parse;
use rgpu_softgpu::abi::Helpers;
use rgpu_softgpu::compile::{Environment, Program};

use super::coverage::all_cases;
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
    let helpers = Helpers { vprintf: 64, malloc: 64, free: 64, assertfail: 64, globaltimer: 64, clock: 64 };
    let environment = Environment { arena: Range { base, size: 1 << 40 }, globals, helpers };
    let count = program.functions().len() as u32;
    let linked = program.link(environment);
    (0..count).try_for_each(|index| linked.kernel(index).map(drop).map_err(|error| error.to_string()))
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
            Ok(Err(_)) => refused += 1,
            Err(_) => panic!("the compiler panicked on:\n{text}"),
        }
    }
    // Otherwise the words are badly chosen.
    assert!(accepted > rounds / 50 && refused > rounds / 10, "{accepted} accepted, {refused} refused");
}
