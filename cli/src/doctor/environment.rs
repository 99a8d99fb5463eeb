//! What does not depend on the program: this machine, the library, the server.

use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::Finding;
use crate::library::{self, Links};
use crate::{devices, probe, run};

/// The least address space that device memory is given (see the client's reservation), and something for
/// the program itself.
const LEAST_ADDRESS_SPACE: u64 = 20 << 30;

/// Checks it.
pub(super) fn check(server: Option<&str>, token_file: Option<&Path>) -> Vec<Finding> {
    let mut findings = vec![processor()];
    findings.extend(library());
    findings.extend(address_space(Resource::As));
    findings.extend(preloads());
    findings.push(reach(server, token_file));
    findings
}

fn processor() -> Finding {
    match std::env::consts::ARCH {
        "x86_64" => Finding::good("x86-64 processor"),
        "aarch64" => Finding::good("AArch64 processor"),
        other => Finding::note(format!(
            "{other} processor: programs with a statically linked CUDA runtime (nvcc's default) are supported \
             on x86-64 and AArch64 only; build with nvcc -cudart shared"
        )),
    }
}

fn library() -> Vec<Finding> {
    let path = match library::find() {
        Ok(path) => path,
        Err(failure) => {
            let advice = "cargo build --release makes it, beside the rgpu command";
            return vec![Finding::bad(failure.message, advice)];
        }
    };
    let mut findings = vec![match Links::create(&path) {
        Ok(links) => Finding::good(format!("{}; by hand: {}", path.display(), by_hand(&links))),
        Err(failure) => Finding::bad(failure.message, "set XDG_CACHE_HOME to a directory of yours"),
    }];
    if let Err(e) = std::fs::File::open(&path) {
        findings
            .push(Finding::bad(format!("{} cannot be read: {e}", path.display()), "check its permissions"));
    }
    findings
}

/// How to do without `rgpu run`.
fn by_hand(links: &Links) -> String {
    format!(
        "RGPU_SERVER=HOST:PORT LD_PRELOAD={} LD_LIBRARY_PATH={} CMD",
        links.preloadable().display(),
        links.directory().display()
    )
}

fn address_space(resource: Resource) -> Option<Finding> {
    let limit = getrlimit(resource).current?;
    if limit >= LEAST_ADDRESS_SPACE {
        let text =
            format!("address space is limited to {} GiB, which is enough for little GPUs", limit >> 30);
        return Some(Finding::note(text));
    }
    Some(Finding::bad(
        format!("address space is limited to {} MiB (ulimit -v)", limit >> 20),
        "ulimit -v unlimited: device memory takes addresses, though no memory",
    ))
}

fn preloads() -> Option<Finding> {
    let list = std::env::var("LD_PRELOAD").ok().filter(|list| !list.is_empty())?;
    (!list.contains(library::FILE_NAME))
        .then(|| Finding::note(format!("LD_PRELOAD has {list}, which is loaded after rgpu's library")))
}

fn reach(server: Option<&str>, token_file: Option<&Path>) -> Finding {
    let Some(server) = server else {
        return Finding::note(
            "no server was named (--server or RGPU_SERVER); `rgpu run --in-process` needs none",
        );
    };
    let advice = "start one there with `rgpu serve`, or name another";
    if let Err(failure) = run::check_address(server) {
        return Finding::bad(failure.message, advice);
    }
    let found = probe::token(token_file).and_then(|token| probe::ask(server, &token));
    match found {
        Ok(found) if found.answer.devices.is_empty() => {
            Finding::bad(format!("the server {server} has no device for you"), advice)
        }
        Ok(found) => {
            let (connect, hello) = found.times;
            let mut text = format!(
                "server {server}, protocol {}.{}, connects in {:.1} ms, begins a session in {:.1} ms",
                found.version.0,
                found.version.1,
                connect.as_secs_f64() * 1e3,
                hello.as_secs_f64() * 1e3
            );
            for (ordinal, device) in found.answer.devices.iter().enumerate() {
                text += &format!("\n      {}", devices::describe(ordinal, device));
            }
            Finding::Good(text)
        }
        Err(error) => Finding::bad(error.to_string(), advice),
    }
}
