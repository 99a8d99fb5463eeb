//! Names inside a function.

use std::collections::HashMap;

use super::super::ast::{LabelId, RegId, Symbol};
use super::super::lexer::Position;

/// What a name of a function stands for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Name {
    /// A register; for a vector register its components follow one another.
    Reg(RegId, u32),
    /// A variable or parameter.
    Symbol(Symbol),
    /// Index of a table of branch targets.
    BranchTable(u32),
    /// Index of a table of callees.
    CallTable(u32),
    /// Index of a prototype.
    Prototype(u32),
}

/// A range of registers such as `%r<100>`.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegRange {
    pub first: u32,
    pub count: u32,
    pub vector: u32,
}

/// The names declared between two braces.
#[derive(Debug, Default)]
pub(super) struct Scope<'a> {
    pub names: HashMap<&'a str, Name>,
    pub ranges: HashMap<&'a str, RegRange>,
    /// Labels mentioned, and where they were first; defined ones have no place.
    pub labels: HashMap<&'a str, (LabelId, Option<Position>)>,
}

impl<'a> Scope<'a> {
    /// What a name stands for.
    pub(super) fn find(&self, name: &str) -> Option<Name> {
        if let Some(found) = self.names.get(name) {
            return Some(*found);
        }
        if self.ranges.is_empty() {
            return None;
        }
        // The number of a range's member may follow a name that ends in digits itself: try every cut,
        // the shortest name first.
        let mut cut = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
        while cut < name.len() {
            let (base, digits) = name.split_at(cut);
            if let Some(range) = self.ranges.get(base)
                && (digits.len() == 1 || !digits.starts_with('0'))
                && let Ok(index) = digits.parse::<u32>()
                && index < range.count
            {
                return Some(Name::Reg(RegId(range.first + index * range.vector), range.vector));
            }
            cut += 1;
        }
        None
    }
}
