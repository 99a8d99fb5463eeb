//! `docs/api.md`: which calls are implemented, written from the doors' own tables.

use std::fmt::Write as _;
use std::path::Path;

use crate::doors::CUDA_VERSION;
use crate::doors::table::Row;
use crate::{driver, libraries, nvml, runtime};

/// Set to write the page instead of comparing it.
const WRITE: &str = "RGPU_WRITE_DOCS";

/// The page.
fn page() -> String {
    let mut text = String::from(
        "# Calls\n\n\
         Which entry points of the CUDA runtime, the driver, NVML and NVIDIA's other libraries are implemented, and which are answered as\n\
         unsupported: those say their name once on stderr and return cudaErrorNotSupported or\n\
         CUDA_ERROR_NOT_SUPPORTED; those of NVML are named in the log alone (RGPU_LOG=1). The names that end in\n\
         `_ptds` and `_ptsz`, which programs compiled for per-thread default streams call, are as their\n\
         namesakes without.\n\n\
         This page is written from the tables in the code; after changing them, run\n\
         `RGPU_WRITE_DOCS=1 cargo test -p rgpu-client api_docs`.\n",
    );
    let (oldest, newest) = (runtime::table::OLDEST, runtime::table::NEWEST);
    let runtime_of = |version| -> Vec<_> {
        let rows = runtime::table::TABLE.iter().filter(|row: &&Row| row.is_in(version));
        rows.map(|row| (row.name, row.implemented)).collect()
    };
    let symbols = |table: &'static [Row]| -> Vec<_> {
        let twin = |row: &&Row| row.symbol.ends_with("_ptsz");
        table.iter().filter(|row| !twin(row)).map(|row| (row.symbol, row.implemented)).collect()
    };
    let mut lists = vec![
        ("CUDA runtime 12.x", runtime_of(oldest)),
        ("CUDA runtime 13.x", runtime_of(newest)),
        ("CUDA driver", symbols(driver::table::TABLE)),
        ("NVML", symbols(nvml::table::TABLE)),
    ];
    lists.extend(libraries::DOORS.iter().map(|door| (door.name, symbols(door.table))));
    for (title, mut entries) in lists {
        entries.sort_unstable();
        let (done, refused): (Vec<_>, Vec<_>) = entries.into_iter().partition(|e| e.1);
        let _ = write!(text, "\n## {title}\n\n{} implemented, {} unsupported.\n", done.len(), refused.len());
        for (what, names) in [("Implemented", done), ("Unsupported", refused)] {
            let _ = write!(text, "\n### {what}\n\n");
            for (name, _) in names {
                let _ = writeln!(text, "- `{name}`");
            }
        }
    }
    text
}

#[test]
fn the_page_says_what_the_tables_say() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/api.md");
    let page = page();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == page, "docs/api.md is out of date: {WRITE}=1 cargo test -p rgpu-client api_docs");
}

#[test]
fn no_driver_is_newer_than_what_it_offers() {
    for row in driver::table::TABLE {
        assert!(row.since <= CUDA_VERSION, "{}", row.symbol);
    }
}
