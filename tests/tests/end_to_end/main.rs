//! End-to-end tests: real processes, real sockets, real programs compiled by nvcc.
//!
//! `cargo test -p rgpu-tests NAME` runs those whose name contains NAME.

mod aarch64;
mod bad_bytes;
mod bench;
mod between_servers;
mod block_clusters;
mod check;
mod check_forwarded;
mod cluster;
mod containers;
mod context;
mod driver;
mod encryption;
mod gpu_check;
mod kept_code;
mod kubernetes;
mod loss;
mod mathematics;
mod matrix;
mod memory;
mod modules;
mod nccl;
mod nvml;
mod packages;
mod processes;
mod profile_kernels;
mod round_trips;
mod several;
mod sharing;
mod shim;
mod slurm;
mod tensor_maps;
mod tracing;
mod vectors;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Who starts this in the background of a shell has these ignored, and so would every program that is started here.
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
        // SAFETY: restores what every process begins with; nothing else is running yet.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let mut tests = matrix::tests();
    tests.extend(round_trips::tests());
    tests.extend(loss::tests());
    tests.extend(bad_bytes::tests());
    tests.extend(encryption::tests());
    tests.extend(processes::tests());
    tests.extend(profile_kernels::tests());
    tests.extend(mathematics::tests());
    tests.extend(memory::tests());
    tests.extend(check::tests());
    tests.extend(check_forwarded::tests());
    tests.extend(tensor_maps::tests());
    tests.extend(modules::tests());
    tests.extend(block_clusters::tests());
    tests.extend(kept_code::tests());
    tests.extend(vectors::tests());
    tests.extend(several::tests());
    tests.extend(between_servers::tests());
    tests.extend(sharing::tests());
    tests.extend(shim::tests());
    tests.extend(tracing::tests());
    tests.extend(driver::tests());
    tests.extend(nccl::tests());
    tests.extend(nvml::tests());
    tests.extend(gpu_check::tests());
    tests.extend(bench::tests());
    tests.extend(packages::tests());
    tests.extend(aarch64::tests());
    tests.extend(cluster::tests());
    tests.extend(kubernetes::tests());
    tests.extend(slurm::tests());
    tests.extend(containers::tests());
    let code = rgpu_test_runner::main(tests);
    containers::finish();
    context::finish();
    code
}
