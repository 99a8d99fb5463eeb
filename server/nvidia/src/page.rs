//! `docs/compatibility.md`: which of the driver's calls the NVIDIA device makes, written from the table.

use super::libraries::TABLES;
use super::mig;
use super::table::{ROWS, Row};
use rgpu_control::libraries::LIBRARIES;
use std::fmt::Write as _;
use std::path::Path;

/// Set to write the page instead of comparing it.
const WRITE: &str = "RGPU_WRITE_DOCS";

fn version(number: u32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

fn symbols(row: &Row) -> String {
    let names: Vec<String> =
        row.sources.iter().map(|s| format!("`{}`", s.symbol.to_string_lossy())).collect();
    names.join(", else ")
}

/// What is said of mathematical libraries.
fn libraries() -> String {
    let mut text = String::from(
        "\n## Mathematical libraries\n\nOpened when an application asks for them ([libraries.md](libraries.md#on-an-nvidia-gpu)). None is \
         needed, and no function of\nthem is: what is missing is refused by name when an operation wants it.\n\n",
    );
    for (name, rows) in TABLES {
        let library = LIBRARIES.iter().find(|library| library.name == *name);
        let files: Vec<String> =
            library.iter().flat_map(|l| l.files).map(|(file, _)| format!("`{file}`")).collect();
        let functions: Vec<String> =
            rows.iter().flat_map(|row| row.names).map(|name| format!("`{name}`")).collect();
        let _ = writeln!(text, "### {}\n\n{}\n", files.join(", "), functions.join(", "));
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// The page.
fn page() -> String {
    let oldest = version(super::MIN_VERSION);
    let mut text = format!(
        "# Compatibility\n\n\
         ## NVIDIA drivers\n\n\
         `rgpu serve --device nvidia` opens the machine's driver when it starts; nothing of CUDA is needed to\n\
         build rgpu, and no toolkit on the server. Drivers of CUDA {oldest} and later are accepted, 13.x\n\
         included: each entry point is asked for at the version whose binary interface is used, through\n\
         `cuGetProcAddress`, and else by its exported symbol. Devices need unified addressing and the\n\
         virtual-memory calls (attribute 102); one without is refused by name.\n\n\
         Below, the version is the CUDA version in which the interface appeared.\n\n\
         ### Needed\n\n"
    );
    let (needed, wanted): (Vec<&Row>, Vec<&Row>) = ROWS.iter().partition(|row| row.required);
    text.push_str("| call | since |\n| --- | --- |\n");
    for row in needed {
        let _ = writeln!(text, "| {} | {} |", symbols(row), version(row.since()));
    }
    text.push_str(
        "\n### Used where the driver has them\n\n| call | since | without it |\n| --- | --- | --- |\n",
    );
    for row in wanted {
        let _ = writeln!(text, "| {} | {} | {} |", symbols(row), version(row.since()), row.without);
    }
    text.push_str(
        "\n### NVML, for partitioned GPUs (MIG)\n\nAsked when the server starts, by the process that looks for devices. \
         Without one of these calls no GPU\ncounts as partitioned, except that sizes are left out without the last one.\n\n\
         | call | driver |\n| --- | --- |\n",
    );
    for (call, since) in mig::CALLS {
        let _ = writeln!(text, "| `{call}` | {since} |");
    }
    text.push_str(
        "\nMonitoring asks for more, all of it optional: see [nvml.md](nvml.md).\n\n\
         The multi-process service (MPS) is reached by the driver itself; rgpu connects to its socket to see whether \
         it is\nthere, and sets `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` (GPUs of compute capability 7.0 and later) and\n\
         `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` (drivers of CUDA 11.5 and later).\n",
    );
    text.push_str(&libraries());
    text.push_str(
        "\nThis page is written from the tables in `server/nvidia/src/table.rs` and `server/nvidia/src/libraries`; after changing them, run\n\
         `RGPU_WRITE_DOCS=1 cargo test -p rgpu-nvidia compatibility`.\n",
    );
    text
}

/// Where the part of the page begins that is not written from a table.
const BY_HAND: &str = "\n## What frameworks import";

#[test]
fn the_compatibility_page_says_what_the_table_says() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compatibility.md");
    let page = page();
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    let (written, by_hand) = found.split_at(found.find(BY_HAND).unwrap_or(found.len()));
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&file, format!("{page}{by_hand}")).unwrap();
        return;
    }
    assert!(
        written == page,
        "docs/compatibility.md is out of date: {WRITE}=1 cargo test -p rgpu-nvidia compatibility"
    );
}

#[test]
fn rows_are_complete() {
    for row in ROWS {
        let name = row.sources[0].symbol.to_string_lossy();
        assert!(row.required || !row.without.is_empty(), "{name}: what happens without it?");
        assert!(row.sources.windows(2).all(|w| w[0].version > w[1].version), "{name}: newest first");
        // Whatever is needed, the oldest driver has.
        assert!(!row.required || row.since() <= super::MIN_VERSION, "{name}");
        for source in row.sources {
            let (name, symbol) = (source.name.to_string_lossy(), source.symbol.to_string_lossy());
            assert!(symbol.starts_with(&*name), "{symbol}");
        }
    }
}
