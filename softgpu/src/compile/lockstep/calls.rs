//! Puts the functions that a kernel calls into it, where that may tell what its lanes do with memory that they share.
//!
//! What a program keeps apart, for example because it was built for a debugger or of several files, would be one kernel otherwise.

use std::collections::{HashMap, HashSet};

use super::super::inline::{Source, expand};
use super::accesses::Forms;
use super::address::instructions;
use super::collective;
use rgpu_image::ptx::ast::{Function, FunctionId};

/// Kernels that would have more statements are left as they are.
const STATEMENTS: usize = 1 << 14;
/// Functions that access no memory, but may compute an address, are put into kernels up to this many statements.
const SMALL: usize = 64;
/// Of functions that call each other, so many are put into each other.
const DEPTH: usize = 64;

/// A kernel with its functions in it, but for those that call themselves, or access no memory that lanes share; none where it calls none
/// or would become too large.
pub(super) fn with_functions(source: Source, kernel: usize, forms: &Forms) -> Option<Function> {
    let mut called = Called { source, forms, found: HashMap::new(), inlined: HashSet::new() };
    called.visit(FunctionId(kernel as u32), 0);
    expand(source, FunctionId(kernel as u32), &called.inlined, STATEMENTS).ok().flatten()
}

/// What is known about a function that was come to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The ones that it calls are being looked at; whether one of them calls it.
    Open { recursive: bool },
    /// Nothing more has to be done.
    Done(Facts),
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Facts {
    /// Whether it, or one that it calls, accesses memory that lanes share.
    accesses: bool,
    /// How many functions are put into each other in it.
    height: usize,
}

struct Called<'a> {
    source: Source<'a>,
    forms: &'a Forms,
    found: HashMap<FunctionId, State>,
    /// Those that are to be put into the kernel.
    inlined: HashSet<FunctionId>,
}

impl Called<'_> {
    /// Looks at a function, which so many call one after the other, and at all that it calls.
    fn visit(&mut self, id: FunctionId, depth: usize) -> Facts {
        let source = self.source;
        let function = source.function(id);
        if function.is_declaration || depth == DEPTH {
            return Facts::default();
        }
        self.found.insert(id, State::Open { recursive: false });
        let accesses = instructions(function).any(|(_, instruction)| {
            self.forms.accesses(instruction) || collective::is_one(&source.ops[instruction.form.0 as usize])
        });
        let mut facts = Facts { accesses, height: 0 };
        for callee in function.body.iter().filter_map(|statement| source.callee(statement)) {
            let called = match self.found.get_mut(&callee) {
                None => self.visit(callee, depth + 1),
                Some(State::Done(facts)) => *facts,
                Some(State::Open { recursive }) => {
                    *recursive = true;
                    Facts::default()
                }
            };
            facts.accesses |= called.accesses;
            facts.height = facts.height.max(called.height);
        }
        let recursive = self.found.get(&id) == Some(&State::Open { recursive: true });
        let matters = facts.accesses || function.body.len() <= SMALL;
        if matters && !recursive && facts.height < DEPTH {
            self.inlined.insert(id);
            facts.height += 1;
        }
        self.found.insert(id, State::Done(facts));
        facts
    }
}
