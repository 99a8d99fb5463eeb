//! Placeholder until the tests are here.
fn main() -> std::process::ExitCode {
    rgpu_tests::runner::main(vec![])
}
