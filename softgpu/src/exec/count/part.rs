//! What a process writes down when it ends: JSON, which `rgpu profile-kernels` reads.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{AccessCount, Counts, State};
use crate::abi::Kernel;

/// What the kinds of memory are called, in the order of [`super::Memory`].
const MEMORIES: [&str; 4] = ["global", "shared", "local", "constant"];

/// Text as JSON has it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", letter as u32);
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

fn list<T>(items: impl IntoIterator<Item = T>, text: impl Fn(T) -> String) -> String {
    format!("[{}]", items.into_iter().map(text).collect::<Vec<_>>().join(","))
}

/// What was counted of a line of the PTX text.
#[derive(Default)]
struct Line {
    threads: u64,
    warps: u64,
    branches: u64,
    diverged: u64,
    memory: [AccessCount; 4],
}

fn lines(kernel: &Kernel, counts: &Counts) -> BTreeMap<u32, Line> {
    let mut lines: BTreeMap<u32, Line> = BTreeMap::new();
    let Some(sites) = &kernel.sites else { return lines };
    for (region, count) in sites.regions.iter().zip(&counts.regions).filter(|(_, count)| count.threads > 0) {
        for &(line, instructions) in &region.lines {
            let line = lines.entry(line).or_default();
            line.threads += count.threads * u64::from(instructions);
            line.warps += count.warps * u64::from(instructions);
        }
        if let Some(branch) = region.branch {
            let line = lines.entry(branch).or_default();
            line.branches += count.warps;
            line.diverged += count.diverged;
        }
    }
    for (site, counts) in sites.accesses.iter().zip(&counts.accesses) {
        for (index, more) in counts.iter().enumerate().filter(|(_, count)| count.threads > 0) {
            let sum = &mut lines.entry(site.line).or_default().memory[index];
            sum.threads += more.threads;
            sum.requests += more.requests;
            sum.units += more.units;
            sum.bytes.iter_mut().zip(more.bytes).for_each(|(sum, more)| *sum += more);
        }
    }
    lines
}

fn line_text(kernel: &Kernel, (number, line): (u32, Line)) -> String {
    let mut text = format!(
        "{{\"ptx_line\":{number},\"source\":{},\"thread_instructions\":{},\"warp_instructions\":{},\"branches\":{},\"diverged\":{}",
        list(kernel.code.chain(number), |place| quoted(&place)),
        line.threads,
        line.warps,
        line.branches,
        line.diverged
    );
    for (name, count) in MEMORIES.iter().zip(line.memory).filter(|(_, count)| count.threads > 0) {
        let AccessCount { threads, requests, units, bytes: [read, written, atomic] } = count;
        let _ = write!(
            text,
            ",\"{name}\":{{\"accesses\":{threads},\"requests\":{requests},\"transactions\":{units},\"read\":{read},\"written\":{written},\"atomic\":{atomic}}}"
        );
    }
    text + "}"
}

/// All of it.
pub(super) fn text(state: &State) -> String {
    let program = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
    let kernels = list(&state.kernels, |(kernel, counts)| {
        format!(
            "\n{{\"name\":{},\"estimated\":{},\"lines\":{}}}",
            quoted(&kernel.name),
            counts.estimated,
            list(lines(kernel, counts), |line| line_text(kernel, line))
        )
    });
    let launches = list(&state.launches, |ran| {
        format!(
            "\n{{\"kernel\":{},\"device\":{},\"stream\":{},\"begun_ns\":{},\"took_ns\":{},\"grid\":{:?},\"block\":{:?},\"dynamic_shared\":{},\"failed\":{}}}",
            ran.kernel,
            ran.device,
            ran.stream,
            ran.begun,
            ran.took,
            ran.grid,
            ran.block,
            ran.shared,
            ran.failed
        )
    });
    format!(
        "{{\"pid\":{},\"program\":{},\"launches_left_out\":{},\"kernels\":{kernels},\"launches\":{launches}}}\n",
        std::process::id(),
        quoted(&program),
        state.more
    )
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn text_is_quoted() {
        assert_eq!(quoted("a\"b\\c\nd\u{7f}é"), r#""a\"b\\c\u000ad\u007fé""#);
    }
}
