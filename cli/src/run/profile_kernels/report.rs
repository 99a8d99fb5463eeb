//! Reports: tables for people, and JSON and CSV for programs.

use std::fmt::Write;

use rgpu_control::units;

use super::part::{Counts, Kernel, Memory, Profile};
use crate::table::Table;

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn time(ns: f64) -> String {
    match ns {
        ns if ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.1} us", ns / 1e3),
    }
}

fn percent(part: u64, all: u64) -> String {
    if all == 0 { "-".into() } else { format!("{:.1}%", 100.0 * part as f64 / all as f64) }
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.1}"))
}

fn amount(bytes: u64) -> String {
    if bytes == 0 { "-".into() } else { units::bytes(bytes) }
}

/// Bytes that are read by a kind of access, those of atomic operations included.
fn read(memory: &Memory) -> String {
    amount(memory.read + memory.atomic)
}

fn written(memory: &Memory) -> String {
    amount(memory.written + memory.atomic)
}

const KERNEL_TITLES: &[&str] = &[
    "Time", "Total", "Launches", "Average", "Shortest", "Longest", "Lanes", "Diverged", "Read", "Written",
    "Sect/Req", "Kernel",
];
const LINE_TITLES: &[&str] = &[
    "Time",
    "Instr.",
    "Lanes",
    "Diverged",
    "Read",
    "Written",
    "Sect/Req",
    "Shared",
    "Banks/Req",
    "Local",
    "Line",
];

/// The report. `chosen` is which kernels were asked for.
pub(super) fn text(profile: &Profile, lines: usize, chosen: &[String]) -> String {
    let mut text = String::new();
    let mut say = |line: &str| {
        let _ = writeln!(text, "{line}");
    };
    let (launches, kernels, processes) =
        (profile.launches.len(), profile.kernels.len(), profile.processes.len());
    if kernels == 0 && chosen.is_empty() {
        say("rgpu: the program has launched no kernels");
    } else if kernels == 0 {
        say(&format!("rgpu: no kernel was launched whose name contains {}", chosen.join(" or ")));
    } else {
        say(&format!(
            "========= RGPU PROFILE: {launches} launch{} of {kernels} kernel{} in {processes} process{}",
            if launches == 1 { "" } else { "es" },
            plural(kernels),
            if processes == 1 { "" } else { "es" }
        ));
        let mut table = Table::new(KERNEL_TITLES, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let all = profile.kernels.iter().map(|kernel| kernel.total_ns).sum();
        profile.kernels.iter().for_each(|kernel| table.row(kernel_row(kernel, all)));
        table.lines().iter().for_each(|line| say(line));
        for kernel in profile.kernels.iter().filter(|_| lines > 0) {
            say(&format!("\n========= {}", kernel.name));
            let mut table = Table::new(LINE_TITLES, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
            let found = kernel.by_source();
            found.iter().take(lines).for_each(|(place, counts)| table.row(line_row(kernel, place, counts)));
            table.lines().iter().for_each(|line| say(line));
            if found.len() > lines {
                let more = found.len() - lines;
                say(&format!("({more} more line{}: --lines {})", plural(more), found.len()));
            }
            if kernel.estimated {
                say(
                    "(Warps have done too much to remember all of it: Lanes, Diverged, Sect/Req and Banks/Req are estimates.)",
                );
            }
        }
    }
    if profile.lost_processes > 0 {
        let (count, them) = (profile.lost_processes, if profile.lost_processes == 1 { "it" } else { "them" });
        say(&format!(
            "rgpu: {count} process{} did not come to the end of the program; nothing was counted of {them}",
            if count == 1 { "" } else { "es" }
        ));
    }
    if profile.launches_left_out > 0 {
        say(&format!(
            "rgpu: {} launches were too many to be told one by one; they count in lines, but not in times",
            profile.launches_left_out
        ));
    }
    text
}

fn kernel_row(kernel: &Kernel, all: u64) -> [String; 12] {
    let counts = &kernel.counts;
    [
        percent(kernel.total_ns, all),
        time(kernel.total_ns as f64),
        kernel.launches.to_string(),
        time(kernel.total_ns as f64 / kernel.launches.max(1) as f64),
        time(kernel.min_ns.min(kernel.max_ns) as f64),
        time(kernel.max_ns as f64),
        number(counts.lanes()),
        percent(counts.diverged, counts.branches),
        read(&counts.global),
        written(&counts.global),
        number(counts.global.per_request()),
        kernel.name.clone(),
    ]
}

fn line_row(kernel: &Kernel, place: &str, counts: &Counts) -> [String; 11] {
    let both = |memory: &Memory| amount(memory.read + memory.written + 2 * memory.atomic);
    [
        percent(counts.warp_instructions, kernel.counts.warp_instructions),
        counts.warp_instructions.to_string(),
        number(counts.lanes()),
        percent(counts.diverged, counts.branches),
        read(&counts.global),
        written(&counts.global),
        number(counts.global.per_request()),
        both(&counts.shared),
        number(counts.shared.per_request()),
        both(&counts.local),
        place.to_owned(),
    ]
}

/// All that was counted.
pub(super) fn json(profile: &Profile) -> String {
    serde_json::to_string_pretty(profile).unwrap_or_default() + "\n"
}

/// Text as CSV has it.
fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

const MEMORIES: [&str; 4] = ["global", "shared", "local", "constant"];

fn count_titles() -> String {
    let mut titles = "thread_instructions,warp_instructions,branches,diverged".to_owned();
    for memory in MEMORIES {
        for what in ["accesses", "requests", "transactions", "read", "written", "atomic"] {
            let _ = write!(titles, ",{memory}_{what}");
        }
    }
    titles
}

fn count_fields(counts: &Counts) -> String {
    let Counts { thread_instructions, warp_instructions, branches, diverged, .. } = counts;
    let mut fields = format!("{thread_instructions},{warp_instructions},{branches},{diverged}");
    for memory in [counts.global, counts.shared, counts.local, counts.constant] {
        let Memory { accesses, requests, transactions, read, written, atomic } = memory;
        let _ = write!(fields, ",{accesses},{requests},{transactions},{read},{written},{atomic}");
    }
    fields
}

/// What was counted by kernel.
pub(super) fn kernels_csv(profile: &Profile) -> String {
    let mut text = format!("kernel,launches,total_ns,min_ns,max_ns,estimated,{}\n", count_titles());
    for kernel in &profile.kernels {
        let Kernel { name, launches, total_ns, min_ns, max_ns, estimated, counts, .. } = kernel;
        let min_ns = min_ns.min(max_ns);
        let counts = count_fields(counts);
        let _ =
            writeln!(text, "{},{launches},{total_ns},{min_ns},{max_ns},{estimated},{counts}", field(name));
    }
    text
}

/// What was counted by kernel and line.
pub(super) fn lines_csv(profile: &Profile) -> String {
    let mut text = format!("kernel,ptx_line,source,inlined_at,time_ns,{}\n", count_titles());
    for kernel in &profile.kernels {
        for line in &kernel.lines {
            let source = line.source.first().map_or("", String::as_str);
            let calls = line.source.get(1..).unwrap_or_default().join(" ");
            let _ = writeln!(
                text,
                "{},{},{},{},{:.0},{}",
                field(&kernel.name),
                line.ptx_line,
                field(source),
                field(&calls),
                kernel.time_of(&line.counts),
                count_fields(&line.counts)
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::part::tests::example;
    use super::*;

    #[test]
    fn the_report_has_kernels_and_lines() {
        let profile = example();
        let report = text(&profile, 1, &[]);
        for part in
            ["2 launches of 1 kernel in 2 processes", "28.0", "100.0%", "in.h:1", "(1 more line: --lines 2)"]
        {
            assert!(report.contains(part), "{part}\nis not in\n{report}");
        }
        assert!(text(&Profile::default(), 5, &[]).contains("no kernels"));
        assert!(text(&Profile::default(), 5, &["x".into()]).contains("contains x"));
    }

    #[test]
    fn csv_has_as_many_fields_as_titles() {
        let profile = example();
        for text in [kernels_csv(&profile), lines_csv(&profile)] {
            let counts: Vec<usize> = text.lines().map(|line| line.matches(',').count()).collect();
            assert!(counts.len() > 1 && counts.iter().all(|count| *count == counts[0]), "{text}");
        }
        assert_eq!(field("a,\"b\""), "\"a,\"\"b\"\"\"");
        let json: serde_json::Value = serde_json::from_str(&json(&profile)).unwrap();
        assert_eq!(json["kernels"][0]["lines"][0]["global"]["transactions"], 8);
    }
}
