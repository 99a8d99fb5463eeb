//! The fuzzer itself: inputs follow from their seed, failures are found, told and kept, and no target fails at once.

use rgpu_fuzz::memory::Counting;
use rgpu_fuzz::random::Random;
use rgpu_fuzz::run::{self, Length, Plan};
use rgpu_fuzz::{TARGETS, Target};
use std::path::{Path, PathBuf};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn plan(inputs: u64) -> Plan {
    let failures = std::env::temp_dir().join(format!("rgpu-fuzz-{}", std::process::id()));
    Plan { seed: 7, from: 0, length: Length::Inputs(inputs), failures }
}

#[test]
fn an_input_follows_from_target_seed_and_number() {
    for target in TARGETS {
        let material = target.material();
        let make = |seed, number| {
            let mut bytes = vec![1, 2, 3];
            target.input(&mut Random::of(target.name, seed, number), &material, &mut bytes);
            bytes
        };
        let all: Vec<_> = (0..50).map(|number| make(1, number)).collect();
        assert_eq!(all, (0..50).map(|number| make(1, number)).collect::<Vec<_>>(), "{}", target.name);
        assert_ne!(all, (0..50).map(|number| make(2, number)).collect::<Vec<_>>(), "{}", target.name);
    }
}

#[test]
fn no_target_fails_at_once_and_each_accepts_some() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in TARGETS {
        let outcome = run::run(target, &plan(300));
        assert_eq!(outcome.failure, None);
        assert!(outcome.accepted > 0, "{} accepts nothing: its examples are no good", target.name);
        assert!(run::run_kept(target, &kept).unwrap().is_ok());
    }
}

static PANICS: Target = Target {
    name: "panics",
    about: "",
    material: Default::default,
    generate: None,
    run: |bytes| {
        assert!(bytes.len() < 100, "too long for me");
        Ok(true)
    },
    memory: 1 << 20,
    memory_per_byte: 64,
};

static GREEDY: Target = Target {
    run: |bytes| Ok(Vec::<u8>::with_capacity(bytes.len() << 12).capacity() > 0),
    memory: 1000,
    name: "greedy",
    ..PANICS
};

#[test]
fn failures_are_found_told_and_kept() {
    for (target, said) in [(&PANICS, "too long for me"), (&GREEDY, "are allowed")] {
        if target.name == "panics" {
            run::keep_panics();
        }
        let outcome = run::run(target, &plan(10_000));
        let told = outcome.failure.expect("it fails");
        assert!(told.contains(said) && told.contains("--seed 7"), "{told}");
        let path = told.split_whitespace().find(|word| word.contains("rgpu-fuzz-")).map(PathBuf::from);
        let bytes = std::fs::read(path.expect("a file")).unwrap();
        assert!(run::run_one(target, &bytes).is_err());
    }
    let _ = std::fs::remove_dir_all(plan(0).failures); // only tidiness
}
