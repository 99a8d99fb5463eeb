//! Cells of the papers' tables.

use crate::statistics::{deviation, mean};

/// The mean over the seeds and its spread, with so many digits behind the point.
pub(super) fn cell(values: &[f64], digits: usize) -> String {
    format!("{:.digits$} ±{:.digits$}", mean(values), deviation(values))
}

/// Cells of these texts.
pub(super) fn texts(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_means_and_spreads() {
        assert_eq!(cell(&[1.0, 3.0], 1), "2.0 ±1.4");
        assert_eq!(texts(&["a", ""]), ["a", ""]);
    }
}
