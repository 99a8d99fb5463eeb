//! Tables of text.

/// A table: a line of titles, and lines of cells. Columns are as wide as they need to be.
pub(crate) struct Table {
    titles: &'static [&'static str],
    /// Which columns are numbers, which end at the same place.
    right: &'static [usize],
    rows: Vec<Vec<String>>,
}

impl Table {
    /// One without lines.
    pub(crate) fn new(titles: &'static [&'static str], right: &'static [usize]) -> Self {
        Self { titles, right, rows: Vec::new() }
    }

    /// Adds a line.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    /// The text, a line for each.
    pub(crate) fn lines(&self) -> Vec<String> {
        let length = |text: &str| text.chars().count();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| length(cell)).max().unwrap_or(0).max(self.titles[column].len())
        };
        let widths: Vec<usize> = (0..self.titles.len()).map(width).collect();
        let line = |cells: Vec<&str>| {
            let mut text = String::new();
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                let gap = " ".repeat(width.saturating_sub(length(cell)));
                let (before, after) =
                    if self.right.contains(&column) { (gap, String::new()) } else { (String::new(), gap) };
                text += &format!("{}{before}{cell}{after}", if column > 0 { "  " } else { "" });
            }
            text.trim_end().to_owned()
        };
        let mut lines = vec![line(self.titles.to_vec())];
        lines.extend(self.rows.iter().map(|row| line(row.iter().map(String::as_str).collect())));
        lines
    }

    /// Prints it.
    pub(crate) fn print(&self) {
        print_lines(&self.lines());
    }
}

/// Prints lines, as long as somebody reads them: `rgpu leases | head` is no reason to complain.
pub(crate) fn print_lines(lines: &[String]) {
    use std::io::Write;
    let mut stdout = std::io::stdout().lock();
    for line in lines {
        if writeln!(stdout, "{line}").is_err() {
            return;
        }
    }
}

pub(crate) use rgpu_control::units::printable;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["NAME", "N"], &[1]);
        table.row(["ä".into(), "1000".into()]);
        table.row(["longer\x1b[2J".into(), "7".into()]);
        assert_eq!(
            table.lines(),
            ["NAME                N", "ä                1000", "longer\\u{1b}[2J     7"]
        );
    }
}
