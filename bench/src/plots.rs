//! Which plots a benchmark's results make.

use std::path::Path;

use crate::report::{Report, Row};
use crate::{Failure, micro, plot};

/// One plot for each thing measured: by size for copies, else by way.
pub(crate) fn draw(directory: &Path, report: &Report) -> Result<(), Failure> {
    std::fs::create_dir_all(directory)
        .map_err(|e| Failure::new(format!("Cannot create {}: {e}", directory.display())))?;
    let file =
        |name: &str| directory.join(format!("{}.svg", name.replace([',', ' '], "-").replace("--", "-")));
    if report.benchmark != "bandwidth" {
        return plot::bars(&file(&report.benchmark), &report.benchmark, &report.rows);
    }
    for to_device in [true, false] {
        for pinned in [false, true] {
            let title = micro::copy_name(to_device, pinned);
            let lines = curves(&report.rows, &title);
            let labels = plot::Labels { title: &title, x: "size of a copy (bytes)", y: "bandwidth (GiB/s)" };
            plot::lines(&file(&title), labels, &lines)?;
        }
    }
    Ok(())
}

/// A line a way, and one a limit.
fn curves(rows: &[Row], title: &str) -> Vec<plot::Line> {
    let mut lines: Vec<plot::Line> = Vec::new();
    let mut add = |name: &str, x: f64, y: f64| {
        let at = lines.iter().position(|l| l.name == name).unwrap_or_else(|| {
            lines.push(plot::Line { name: name.into(), points: Vec::new() });
            lines.len() - 1
        });
        if lines[at].points.last().is_none_or(|p| p.0 < x) {
            lines[at].points.push((x, y));
        }
    };
    for row in rows {
        let Some(bytes) =
            row.what.strip_prefix(title).and_then(|rest| size_of(rest.trim_start_matches(", ")))
        else {
            continue;
        };
        add(&row.way, bytes, row.value.p50);
        if let Some(limit) = row.limit {
            add(&row.limit_name, bytes, limit.p50);
        }
    }
    lines
}

/// The inverse of [`micro::size_name`].
fn size_of(name: &str) -> Option<f64> {
    let (number, unit) = name.split_once(' ')?;
    let scale = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * f64::from(scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Samples;

    #[test]
    fn sizes_are_read_back() {
        for bytes in [4, 4096, 64 << 20] {
            assert_eq!(size_of(&micro::size_name(bytes)), Some(bytes as f64));
        }
        assert_eq!((size_of("4"), size_of("4 kg"), size_of("x KiB")), (None, None, None));
    }

    #[test]
    fn a_curve_is_a_way_or_a_limit_by_size() {
        let title = micro::copy_name(true, false);
        let summary = |value: f64| Samples::from_iter([value]).summary();
        let row = |what: String, way: &str, value: f64, limit: f64| {
            Row::new(what, way, "GiB/s", summary(value).unwrap()).with_limit("memcpy", summary(limit))
        };
        let size = |bytes| format!("{title}, {}", micro::size_name(bytes));
        let rows = [
            row(size(4096), "shm", 1.0, 8.0),
            row(size(4096), "tcp", 0.5, 8.0),
            row(size(1 << 20), "shm", 3.0, 9.0),
            row("something else, 4 KiB".into(), "shm", 7.0, 7.0),
        ];
        let lines = curves(&rows, &title);
        let found: Vec<_> = lines.iter().map(|line| (line.name.as_str(), line.points.as_slice())).collect();
        let expected: [(&str, &[(f64, f64)]); 3] = [
            ("shm", &[(4096.0, 1.0), (1_048_576.0, 3.0)]),
            ("memcpy", &[(4096.0, 8.0), (1_048_576.0, 9.0)]),
            ("tcp", &[(4096.0, 0.5)]),
        ];
        assert_eq!(found, expected);
    }
}
