//! The shim as a file: what it exports, and what it needs.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::{Skip, Test};

use crate::context::product;

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("shim::exports_cuda_and_nvml_names_only", exports),
        Test::new("shim::needs_no_glibc_newer_than_2_28", glibc),
        Test::new("shim::has_the_drivers_soname_and_the_runtimes_version_nodes", soname),
    ]
}

fn tool(program: &str, arguments: &[&str]) -> Result<String> {
    let shim = product()?.shim();
    match Command::new(program).args(arguments).arg(shim).output() {
        Ok(output) => {
            ensure!(output.status.success(), "{program} failed: {}", String::from_utf8_lossy(&output.stderr));
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Err(_) => Err(Skip(format!("it needs {program}, which is not here")).into()),
    }
}

fn exports() -> Result<()> {
    let symbols = tool("nm", &["--dynamic", "--defined-only"])?;
    let mut foreign = vec![];
    let mut count = 0;
    for line in symbols.lines() {
        let mut fields = line.split_whitespace().skip(1);
        let (kind, symbol) = (fields.next().context("No kind")?, fields.next().context("No name")?);
        let name = symbol.split('@').next().unwrap_or(symbol);
        // A version node is an absolute symbol named after itself.
        if kind == "A" && name.starts_with("lib") {
            continue;
        }
        count += 1;
        let libraries = [
            "cublas",
            "cudnn",
            "cufft",
            "curand",
            "cusolver",
            "cusparse",
            "nccl",
            "nvJitLink",
            "__nvJitLink",
        ];
        let cuda = ["cuda", "__cuda", "nvml"].iter().chain(&libraries).any(|prefix| name.starts_with(prefix));
        let driver = name.strip_prefix("cu").is_some_and(|n| n.starts_with(|c: char| c.is_ascii_uppercase()));
        // The switch for those who load the shim as the driver.
        if !cuda && !driver && name != "rgpu_use_in_process" {
            foreign.push(name.to_owned());
        }
    }
    ensure!(count > 500, "only {count} names are exported");
    ensure!(foreign.is_empty(), "exported, but neither CUDA nor NVML: {}", foreign.join(", "));
    Ok(())
}

fn glibc() -> Result<()> {
    let symbols = tool("nm", &["--dynamic", "--undefined-only"])?;
    let mut newer = vec![];
    for symbol in symbols.split_whitespace() {
        let Some((_, version)) = symbol.split_once("@GLIBC_") else { continue };
        let mut parts = version.trim_start_matches('@').split('.').map(|p| p.parse::<u32>().unwrap_or(0));
        let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        if version > (2, 28) {
            newer.push(symbol.to_owned());
        }
    }
    // A build on a newer system binds to that system's names; a release is built against an old one.
    ensure!(newer.is_empty(), Skip(format!("built against this machine's glibc: {}", newer.join(", "))));
    Ok(())
}

fn soname() -> Result<()> {
    let dynamic = tool("readelf", &["--dynamic", "--wide"])?;
    ensure!(dynamic.contains("[libcuda.so.1]"), "the SONAME is wrong:\n{dynamic}");
    let versions = tool("readelf", &["--version-info", "--wide"])?;
    for node in ["libcudart.so.12", "libcudart.so.13"] {
        ensure!(versions.contains(node), "no version node {node}");
    }
    Ok(())
}
