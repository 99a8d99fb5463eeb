//! Results: a table for people, JSON for programs.

use std::path::Path;

use serde::Serialize;

use crate::Failure;
use crate::measure::Summary;

/// Everything that one invocation found out.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The subcommand that measured.
    pub benchmark: String,
    /// What it ran on.
    pub conditions: Conditions,
    /// One row for each thing measured.
    pub rows: Vec<Row>,
}

/// What the figures were measured under.
#[derive(Debug, Serialize)]
pub(crate) struct Conditions {
    /// The version of rgpu.
    pub version: String,
    /// The device's name.
    pub device: String,
    /// Processor cores of this machine.
    pub cores: usize,
    /// Rounds, each of which measures every way once, one after another.
    pub rounds: u32,
    /// Added to each round trip, in seconds.
    pub added_delay: f64,
    /// Bits a second that the link was limited to.
    pub rate: Option<f64>,
}

/// One thing measured in one way.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    /// What was measured.
    pub what: String,
    /// In which way.
    pub way: String,
    /// The unit of the figures.
    pub unit: &'static str,
    /// The measured values, summed up.
    pub value: Summary,
    /// What the value is compared with, such as "raw ping-pong".
    pub limit_name: String,
    /// The limit's figures, in the same unit.
    pub limit: Option<Summary>,
    /// Median over median.
    pub ratio: Option<f64>,
    /// 99th percentile over 99th percentile, where single calls were timed.
    pub ratio_p99: Option<f64>,
    /// The smallest and the largest ratio of medians of any round.
    pub ratio_spread: Option<(f64, f64)>,
    /// Bytes sent and received, a call, where they were counted.
    pub bytes: Option<(u64, u64)>,
    /// Round trips a call, where they were counted.
    pub round_trips: Option<f64>,
}

impl Row {
    /// A row without a limit.
    pub(crate) fn new(
        what: impl Into<String>,
        way: impl Into<String>,
        unit: &'static str,
        value: Summary,
    ) -> Self {
        Self {
            what: what.into(),
            way: way.into(),
            unit,
            value,
            limit_name: String::new(),
            limit: None,
            ratio: None,
            ratio_p99: None,
            ratio_spread: None,
            bytes: None,
            round_trips: None,
        }
    }

    /// Compares the medians with a limit's.
    pub(crate) fn with_limit(mut self, name: &str, limit: Option<Summary>) -> Self {
        self.limit_name = name.into();
        self.ratio = limit.map(|l| self.value.p50 / l.p50);
        self.limit = limit;
        self
    }
}

fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

impl Report {
    /// The table.
    pub(crate) fn table(&self) -> String {
        let c = &self.conditions;
        let text = format!(
            "{}: {}, {} cores, {} interleaved rounds{}{}\n",
            self.benchmark,
            c.device,
            c.cores,
            c.rounds,
            if c.added_delay > 0.0 { format!(", {} ms added", c.added_delay * 1e3) } else { String::new() },
            c.rate.map_or(String::new(), |r| format!(", {} Mbit/s", r / 1e6)),
        );
        let head = [
            "what",
            "way",
            "unit",
            "p25",
            "median",
            "p75",
            "p99",
            "limit",
            "median",
            "ratio",
            "p99 ratio",
            "of rounds",
            "bytes",
            "trips",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(self.rows.iter().map(|row| {
            let ratio = |r: Option<f64>| r.map_or(String::new(), |r| format!("{r:.2}"));
            vec![
                row.what.clone(),
                row.way.clone(),
                row.unit.into(),
                figure(row.value.p25),
                figure(row.value.p50),
                figure(row.value.p75),
                if row.value.count >= 100 { figure(row.value.p99) } else { String::new() },
                row.limit_name.clone(),
                row.limit.map_or(String::new(), |l| figure(l.p50)),
                ratio(row.ratio),
                ratio(row.ratio_p99),
                row.ratio_spread.map_or(String::new(), |(low, high)| format!("{low:.2}–{high:.2}")),
                row.bytes.map_or(String::new(), |(sent, received)| format!("{sent}+{received}")),
                row.round_trips.map_or(String::new(), figure),
            ]
        }));
        // Columns that nobody fills are left out.
        let filled: Vec<usize> =
            (0..head.len()).filter(|i| rows[1..].iter().any(|r| !r[*i].is_empty())).collect();
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| filled.iter().map(|&i| row[i].clone()).collect()).collect();
        text + &aligned(&rows, |column| matches!(filled[column], 0..3 | 7))
    }

    /// Writes the JSON form.
    pub(crate) fn write_json(&self, path: &Path) -> Result<(), Failure> {
        write_json(self, path)
    }
}

/// Rows of equally many cells as lines of text, the columns aligned.
pub(crate) fn aligned(rows: &[Vec<String>], to_the_left: impl Fn(usize) -> bool) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(i, (cell, &w))| if to_the_left(i) { format!("{cell:<w$}") } else { format!("{cell:>w$}") })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Writes what was measured to a file, as JSON for people and programs.
pub(crate) fn write_json(report: &impl Serialize, path: &Path) -> Result<(), Failure> {
    let problem = |e: String| Failure::new(format!("Cannot write {}: {e}", path.display()));
    let text = serde_json::to_string_pretty(report).map_err(|e| problem(e.to_string()))?;
    std::fs::write(path, text + "\n").map_err(|e| problem(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Samples;

    fn report(rows: Vec<Row>) -> Report {
        let conditions = Conditions {
            version: "1".into(),
            device: "D".into(),
            cores: 2,
            rounds: 3,
            added_delay: 0.005,
            rate: Some(1e9),
        };
        Report { benchmark: "latency".into(), conditions, rows }
    }

    #[test]
    fn figures_have_as_many_digits_as_they_are_worth() {
        let shown = [12_345.6, 1000.0, 99.96, 12.34, 1.234, 0.1, 0.0123, 0.0].map(figure);
        assert_eq!(shown, ["12346", "1000", "100.0", "12.3", "1.23", "0.10", "0.0123", "0.0000"]);
    }

    #[test]
    fn what_was_added_to_the_link_stands_above_the_table() {
        let value = Samples::from_iter([1.0]).summary().unwrap();
        let head = report(vec![Row::new("asked", "tcp", "µs", value)]).table();
        let head = head.lines().next().unwrap();
        assert_eq!(head, "latency: D, 2 cores, 3 interleaved rounds, 5 ms added, 1000 Mbit/s");
    }

    #[test]
    fn the_last_percentile_is_shown_of_a_hundred_samples() {
        let row = |count: u32| {
            let value = (1..=count).map(f64::from).collect::<Samples>().summary().unwrap();
            Row::new("asked", "tcp", "µs", value)
        };
        assert!(!report(vec![row(99)]).table().contains("p99"));
        assert!(report(vec![row(100)]).table().contains("p99"));
    }

    #[test]
    fn programs_read_what_the_table_shows() {
        let value = Samples::from_iter([2.0, 4.0, 6.0]).summary().unwrap();
        let mut row = Row::new("asked", "tcp", "µs", value);
        row = row.with_limit("raw", Samples::from_iter([2.0]).summary());
        row.bytes = Some((50, 8));
        let path = std::env::temp_dir().join(format!("rgpu-bench-report-{}.json", std::process::id()));
        report(vec![row]).write_json(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["conditions"]["added_delay"], 0.005);
        let row = &json["rows"][0];
        assert_eq!((&row["way"], &row["unit"]), (&"tcp".into(), &"µs".into()));
        assert_eq!((row["value"]["p50"].as_f64(), row["ratio"].as_f64()), (Some(4.0), Some(2.0)));
        assert_eq!(row["bytes"], serde_json::json!([50, 8]));
        assert!(row["round_trips"].is_null());
        assert!(report(Vec::new()).write_json(Path::new("/proc/nonexistent/x.json")).is_err());
    }

    #[test]
    fn tables_leave_out_empty_columns() {
        let value = Samples::from_iter([1.0, 2.0, 3.0]).summary().unwrap();
        let limit = Samples::from_iter([1.0]).summary();
        let conditions = Conditions {
            version: "1".into(),
            device: "D".into(),
            cores: 2,
            rounds: 3,
            added_delay: 0.0,
            rate: None,
        };
        let row = Row::new("asked", "tcp", "µs", value).with_limit("raw", limit);
        assert_eq!(row.ratio, Some(2.0));
        let table = Report { benchmark: "latency".into(), conditions, rows: vec![row] }.table();
        assert!(table.contains("ratio") && table.contains("2.00"), "{table}");
        assert!(!table.contains("trips"), "{table}");
    }
}
