//! Requests for leases, as programs make them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::api::LeaseRequest;

/// Programs that execute another one, by the beginning of their name: what they execute is the program.
const INTERPRETERS: [&str; 8] = ["python", "bash", "sh", "dash", "zsh", "perl", "julia", "node"];

/// By what name a broker learns about a command's program, and a number for what it does: commands with the same arguments do the
/// same work. The script of an interpreter is the program, or the module that Python is told with `-m`.
pub fn identity(command: &[OsString]) -> (String, u64) {
    let name = |of: &OsString| {
        Path::new(of).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    };
    let Some((first, rest)) = command.split_first() else { return (String::new(), 0) };
    let mut program = name(first);
    let is_interpreter = |name: &str| {
        let kind = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        INTERPRETERS.contains(&kind)
    };
    if is_interpreter(&program) {
        let module = rest.iter().position(|argument| argument == "-m").and_then(|at| rest.get(at + 1));
        let script = || rest.iter().find(|argument| !argument.as_bytes().starts_with(b"-"));
        // A text of commands (`bash -c …`) has no name.
        let text = rest.iter().any(|argument| argument == "-c");
        if let Some(script) = module.or_else(script).filter(|_| !text) {
            program = name(script);
        }
    }
    let mut hasher = blake3::Hasher::new();
    for argument in rest {
        hasher.update(&(argument.len() as u64).to_le_bytes()).update(argument.as_bytes());
    }
    let hash = *hasher.finalize().as_bytes();
    let number = u64::from_le_bytes([hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7]]);
    // A program may be called like a file that nobody would type; a broker refuses such names.
    let program = program.chars().filter(|c| !c.is_control()).take(64).collect();
    (program, number)
}

impl LeaseRequest {
    /// A request for one whole device, whichever; nothing else is wished for.
    pub fn new(name: String, machine: String, holder: String) -> Self {
        Self {
            name,
            gpus: 1,
            memory: 0,
            share_milli: 1000,
            models: Vec::new(),
            machine,
            node: None,
            holder,
            transport: "auto".into(),
            profile: None,
            program: None,
            input: None,
            scale: None,
            goal_s: None,
            importance: None,
            deadline_s: None,
            estimate_s: None,
            traffic_mbps: None,
            nvmes: 0,
            nvme_capacity: 0,
            nvme_bandwidth_mbps: 0,
            wait_s: 0,
            now_or_never: false,
            encrypt: false,
            on_node: None,
            harvest: false,
            key: None,
            on_behalf_of: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_known_by_its_program_and_its_arguments() {
        let of = |line: &str| identity(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of("./bin/nw 2048 10").0, "nw");
        assert_eq!(of("/usr/bin/python3.12 -u /home/ann/train.py --epochs 3").0, "train.py");
        assert_eq!(of("python3 -m vllm.entrypoints serve").0, "vllm.entrypoints");
        assert_eq!(of("bash -c nw").0, "bash");
        assert_eq!(of("python3").0, "python3");
        assert_eq!(identity(&[]), (String::new(), 0));
        assert_eq!(of("a/nw 2048 10").1, of("b/nw 2048 10").1);
        assert_ne!(of("nw 2048 10").1, of("nw 2048 11").1);
        assert_ne!(of("nw 20 4810").1, of("nw 204 810").1);
        assert_eq!(of("a\nb").0, "ab");
    }
}
