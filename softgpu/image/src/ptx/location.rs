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
        let nowhere = Place { file: 0, line: 0, column: 0 };
        if self.entries.last().is_some_and(|last| last.place != nowhere) {
            self.add(ptx_line, nowhere, None);
        }
    }

    fn source(&self, place: Place) -> Option<SourceLine> {
        let file = self.files.get(&place.file).filter(|_| place.line != 0)?;
        Some(SourceLine { file: file.clone(), line: place.line })
    }

    /// Where a line of the PTX text comes from: the source line, and then the lines of the calls that it was inlined for, the
    /// innermost first. Empty where the text does not tell.
    pub fn of_line(&self, ptx_line: u32) -> Vec<SourceLine> {
        let mut end = self.entries.partition_point(|entry| entry.ptx_line <= ptx_line);
        let mut chain = Vec::new();
        let Some(mut entry) = end.checked_sub(1).map(|at| self.entries[at]) else { return chain };
        while let Some(line) = self.source(entry.place) {
            chain.push(line);
            let Some(at) = entry.inlined_at.filter(|_| chain.len() < LONGEST) else { break };
            // A call that was itself inlined has been named before, with where its own caller is.
            let before = &self.entries[..end];
            let outer =
                before.iter().rposition(|other| other.place == at && other.ptx_line <= entry.ptx_line);
            entry = match outer {
                Some(outer) => {
                    end = outer;
                    self.entries[outer]
                }
                None => Entry { ptx_line: entry.ptx_line, place: at, inlined_at: None },
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
