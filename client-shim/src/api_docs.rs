//! `docs/api.md`: which calls are implemented, written from the doors' own tables.

use std::fmt::Write as _;
use std::path::Path;

use crate::runtime::table::Node;
use crate::{driver, nvml, runtime};

/// Set to write the page instead of comparing it.
const WRITE: &str = "RGPU_WRITE_DOCS";

/// The page.
fn page() -> String {
    let mut text = String::from(
        "# Calls\n\n\
         Which entry points of the CUDA runtime, the driver and NVML are implemented, and which are answered as\n\
         unsupported: those say their name once on stderr and return cudaErrorNotSupported or\n\
         CUDA_ERROR_NOT_SUPPORTED; those of NVML are named in the log alone (RGPU_LOG=1). The names that end in\n\
         `_ptds` and `_ptsz`, which programs compiled for per-thread default streams call, are as their\n\
         namesakes without.\n\n\
         This page is written from the tables in the code; after changing them, run\n\
         `RGPU_WRITE_DOCS=1 cargo test -p rgpu-client api_docs`.\n",
    );
    let twin = |name: &str| name.ends_with("_ptds") || name.ends_with("_ptsz");
    let mut lists = Vec::new();
    for (title, skipped) in [("CUDA runtime 12.x", Node::V13), ("CUDA runtime 13.x", Node::V12)] {
        let entries = runtime::table::status().filter(|e| e.1 != skipped && !twin(e.0));
        lists.push((title, entries.map(|(name, _, implemented)| (name, implemented)).collect::<Vec<_>>()));
    }
    lists.push(("CUDA driver", driver::status().into_iter().filter(|e| !twin(e.0)).collect()));
    lists.push(("NVML", nvml::status()));
    for (title, mut entries) in lists {
        entries.sort_unstable();
        entries.dedup();
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
