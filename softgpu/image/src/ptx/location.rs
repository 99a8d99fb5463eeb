//! Where in the program's source the lines of a PTX text come from, as `.file` and `.loc` tell (`nvcc -lineinfo`, `nvcc -G`).

use std::collections::HashMap;
use std::fmt;

/// The longest chain of calls that were inlined into one another that is followed.
const LONGEST: usize = 16;

/// A place as `.loc` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The number that `.file` gave the file.
    pub file: u32,
    /// The line, from 1; 0 where nothing is known.
    pub line: u32,
    /// The column.
    pub column: u32,
}

/// Where a function's first instructions come from, until it says so.
const NOWHERE: Place = Place { file: 0, line: 0, column: 0 };

/// A `.loc`: what it says holds from its line on, until the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    ptx_line: u32,
    place: Place,
    /// Where the call was that the place was inlined for.
    inlined_at: Option<Place>,
}

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    /// The file's name, as the compiler was told it.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// What a PTX text tells about the source that it was made of.
#[derive(Debug, Clone, Default)]
pub struct Locations {
    files: HashMap<u32, String>,
    /// In the order of the text.
    entries: Vec<Entry>,
}

impl Locations {
    /// A `.file`: the escapes of its name are left as they are.
    pub(super) fn name_file(&mut self, number: u32, name: &str) {
        self.files.insert(number, name.to_owned());
    }

    /// A `.loc` in this line of the text.
    pub(super) fn add(&mut self, ptx_line: u32, place: Place, inlined_at: Option<Place>) {
        self.entries.push(Entry { ptx_line, place, inlined_at });
    }

    /// Another function begins: what was said of the one before does not hold for it.
    pub(super) fn begin_function(&mut self, ptx_line: u32) {
        if self.entries.last().is_some_and(|last| last.place != NOWHERE) {
            self.add(ptx_line, NOWHERE, None);
        }
    }

    fn source(&self, place: Place) -> Option<SourceLine> {
        let file = self.files.get(&place.file).filter(|_| place.line != 0)?;
        Some(SourceLine { file: file.clone(), line: place.line })
    }

    /// Where a line of the PTX text comes from: the source line, and then the lines of the calls that it was inlined for, the
    /// innermost first. Empty where the text does not tell.
    pub fn of_line(&self, ptx_line: u32) -> Vec<SourceLine> {
        let mut chain = Vec::new();
        let behind = self.entries.partition_point(|entry| entry.ptx_line <= ptx_line);
        let Some(mut index) = behind.checked_sub(1) else { return chain };
        let begin = self.entries[..behind].iter().rposition(|entry| entry.place == NOWHERE).unwrap_or(0);
        let mut entry = self.entries[index];
        while let Some(line) = self.source(entry.place) {
            chain.push(line);
            let Some(at) = entry.inlined_at.filter(|_| chain.len() < LONGEST) else { break };
            // A call that was itself inlined has been named before, with where its own caller is.
            let outer = self.entries[begin..index].iter().rposition(|other| other.place == at);
            entry = match outer {
                Some(outer) => {
                    index = begin + outer;
                    self.entries[index]
                }
                None => Entry { ptx_line, place: at, inlined_at: None },
            };
        }
        chain
    }

    /// [`Locations::of_line`] in words: `file.cu:12, inlined at file.cu:40`. `None` where the text does not tell.
    pub fn describe(&self, ptx_line: u32) -> Option<String> {
        let chain = self.of_line(ptx_line);
        let lines: Vec<String> = chain.iter().map(ToString::to_string).collect();
        (!lines.is_empty()).then(|| lines.join(", inlined at "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_from_the_last_location_of_their_function() {
        let place = |file, line| Place { file, line, column: 3 };
        let mut locations = Locations::default();
        locations.name_file(1, "a.cu");
        locations.name_file(2, "b.cuh");
        locations.add(10, place(1, 5), None);
        locations.add(12, place(2, 7), Some(place(1, 5)));
        // Inlined into what was inlined.
        locations.add(14, place(2, 9), Some(place(2, 7)));
        locations.begin_function(20);
        locations.add(25, place(3, 1), None);
        let said = |line| locations.describe(line).unwrap_or_default();
        assert_eq!([said(9), said(10), said(11)], ["", "a.cu:5", "a.cu:5"]);
        assert_eq!(said(13), "b.cuh:7, inlined at a.cu:5");
        assert_eq!(said(19), "b.cuh:9, inlined at b.cuh:7, inlined at a.cu:5");
        assert_eq!(
            [said(20), said(24), said(25)],
            ["", "", ""],
            "another function, and a file without a name"
        );
        // One that says that it was inlined at itself.
        locations.add(30, place(1, 2), Some(place(1, 2)));
        assert_eq!(locations.of_line(30).len(), 2);
    }
}
