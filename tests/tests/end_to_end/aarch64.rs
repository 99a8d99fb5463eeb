//! The library for 64-bit ARM, where it was built: programs for that processor run with it, emulated.

use rgpu_test_runner::{Skip, Test};
use rgpu_tests::cross::Trial;
use rgpu_tests::examples::target;

use crate::context::product;

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![Test::new("aarch64::programs_run_in_process_and_with_this_machines_server", || {
        let folder = target().join("package/aarch64-unknown-linux-gnu");
        let built = ["release", "debug"].map(|profile| folder.join(profile));
        let built = built.iter().find(|folder| folder.join("librgpu.so").exists()).unwrap_or(&built[0]);
        let trial = Trial::prepare(built).map_err(|e| Skip(format!("{e:#}")))?;
        trial.run(product()?).map(drop)
    })]
}
