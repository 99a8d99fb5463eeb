//! Reads CSV files by the names of their columns; every complaint names the file and the line.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::{Error, Result};

/// A CSV file in memory: a header of column names, rows, comments from `#` at the start of a line.
pub(crate) struct Table {
    path: PathBuf,
    columns: HashMap<String, usize>,
    rows: Vec<(u64, csv::StringRecord)>,
}

/// One row of a [`Table`].
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    table: &'a Table,
    line: u64,
    record: &'a csv::StringRecord,
}

impl Table {
    /// Reads a file. `required` columns must be there; any others must be among `optional`.
    pub(crate) fn read(path: &Path, required: &[&str], optional: &[&str]) -> Result<Table> {
        let text = std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        Table::parse(path, &text, required, optional)
    }

    /// Parses the text of a file; `path` is for messages.
    pub(crate) fn parse(path: &Path, text: &[u8], required: &[&str], optional: &[&str]) -> Result<Table> {
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(true)
            .comment(Some(b'#'))
            .trim(csv::Trim::All)
            .flexible(false)
            .from_reader(text);
        let header = reader.headers().map_err(|error| explain(path, text, &error))?.clone();
        let header_line = line(text, header.position());
        let mut columns = HashMap::new();
        for (i, name) in header.iter().enumerate() {
            if !required.contains(&name) && !optional.contains(&name) {
                let known = [required, optional].concat().join(", ");
                return Err(Error::row(
                    path,
                    header_line,
                    format!("unknown column {name:?}; known are {known}"),
                ));
            }
            if columns.insert(name.to_owned(), i).is_some() {
                return Err(Error::row(path, header_line, format!("the column {name:?} is there twice")));
            }
        }
        if let Some(missing) = required.iter().find(|name| !columns.contains_key(**name)) {
            return Err(Error::row(path, header_line, format!("the column {missing:?} is missing")));
        }
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|error| explain(path, text, &error))?;
            rows.push((line(text, record.position()), record));
        }
        Ok(Table { path: path.to_owned(), columns, rows })
    }

    /// The rows, in order.
    pub(crate) fn rows(&self) -> impl ExactSizeIterator<Item = Row<'_>> {
        self.rows.iter().map(|(line, record)| Row { table: self, line: *line, record })
    }

    /// Where the table comes from.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The line at which a record begins. The reader's own count stands before the empty lines and comments ahead of it.
fn line(text: &[u8], position: Option<&csv::Position>) -> u64 {
    let Some(position) = position else { return 1 };
    let mut line = position.line().max(1);
    let mut rest = text.get(position.byte() as usize..).unwrap_or_default();
    loop {
        match rest {
            [b'\n', after @ ..] => rest = after,
            [b'\r', b'\n', after @ ..] => rest = after,
            [b'#', ..] => match rest.iter().position(|byte| *byte == b'\n') {
                Some(end) => rest = &rest[end + 1..],
                None => return line,
            },
            _ => return line,
        }
        line += 1;
    }
}

fn explain(path: &Path, text: &[u8], error: &csv::Error) -> Error {
    let line = line(text, error.position());
    let what = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} fields where the header has {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => "not UTF-8".into(),
        _ => error.to_string(),
    };
    Error::row(path, line, what)
}

impl<'a> Row<'a> {
    /// The line in the file, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// A complaint about this row.
    pub(crate) fn error(&self, what: impl Into<String>) -> Error {
        Error::row(&self.table.path, self.line, what)
    }

    /// A field as text; empty if the column isn't there.
    pub(crate) fn text(&self, column: &str) -> &'a str {
        self.table.columns.get(column).and_then(|&i| self.record.get(i)).unwrap_or("")
    }

    /// A field that must not be empty.
    pub(crate) fn name(&self, column: &str) -> Result<&'a str> {
        match self.text(column) {
            "" => Err(self.error(format!("{column} is empty"))),
            text => Ok(text),
        }
    }

    /// A field as a value, `None` when empty.
    pub(crate) fn optional<T: FromStr<Err: Display>>(&self, column: &str) -> Result<Option<T>> {
        match self.text(column) {
            "" => Ok(None),
            text => match text.parse() {
                Ok(value) => Ok(Some(value)),
                Err(error) => Err(self.error(format!("{column} is {text:?}: {error}"))),
            },
        }
    }

    /// A field as a value that must be there.
    pub(crate) fn value<T: FromStr<Err: Display>>(&self, column: &str) -> Result<T> {
        self.optional(column)?.ok_or_else(|| self.error(format!("{column} is empty")))
    }

    /// A finite number within `range`, `None` when empty.
    pub(crate) fn number(&self, column: &str, range: std::ops::RangeInclusive<f64>) -> Result<Option<f64>> {
        match self.optional::<f64>(column)? {
            Some(value) if !range.contains(&value) => {
                let (low, high) = (range.start(), range.end());
                Err(self.error(format!("{column} is {value}, but must be from {low} to {high}")))
            }
            other => Ok(other),
        }
    }

    /// A duration in seconds, `None` when empty.
    pub(crate) fn seconds(&self, column: &str) -> Result<Option<crate::time::Micros>> {
        let seconds = self.number(column, 0.0..=1e9)?;
        Ok(seconds.map(crate::time::Micros::from_seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(text: &str) -> String {
        match Table::parse(Path::new("t.csv"), text.as_bytes(), &["name", "n"], &["more"]) {
            Err(error) => error.to_string(),
            Ok(table) => table.rows().find_map(|row| row.value::<u32>("n").err()).unwrap().to_string(),
        }
    }

    #[test]
    fn complaints_name_the_line() {
        assert_eq!(fails("name\na\n"), "t.csv:1: the column \"n\" is missing");
        assert_eq!(fails("name,n,x\n"), "t.csv:1: unknown column \"x\"; known are name, n, more");
        assert_eq!(fails("name,n,n\n"), "t.csv:1: the column \"n\" is there twice");
        assert_eq!(fails("# c\nname,n\na,1\nb\n"), "t.csv:4: 1 fields where the header has 2");
        assert_eq!(fails("name,n\na,1\nb,x\n"), "t.csv:3: n is \"x\": invalid digit found in string");
        assert_eq!(fails("name,n\na,1\n\nb,\n"), "t.csv:4: n is empty");
        assert_eq!(fails("\n# c\nname,n\r\na,1\r\n\r\n# c\r\nb,\r\n"), "t.csv:7: n is empty");
        assert_eq!(fails("name,n\na,-1\n"), "t.csv:2: n is \"-1\": invalid digit found in string");
        assert_eq!(fails(""), "t.csv:1: the column \"name\" is missing");
        assert_eq!(
            fails("name,n\na,99999999999\n"),
            "t.csv:2: n is \"99999999999\": number too large to fit in target type"
        );
    }

    #[test]
    fn numbers_are_finite() {
        for text in ["nan", "inf", "-1", "1e99"] {
            let csv = format!("name,n\na,{text}\n");
            let table = Table::parse(Path::new("t"), csv.as_bytes(), &["name", "n"], &[]).unwrap();
            assert!(table.rows().next().unwrap().seconds("n").is_err(), "{text}");
        }
    }
}
