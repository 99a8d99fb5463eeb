//! Finds what a warp loads or stores as one, beside what its lanes load and store for themselves, and lets lanes wait between.
//!
//! `ldmatrix`, `stmatrix`, `wmma.load` and `wmma.store` wait for all lanes of the warp, and access memory for all of them at once: behind what
//! each lane has stored before, and before what each loads next. Here a lane loads and stores its own part of the matrix. So lanes wait for each other before such a load,
//! if one of them may have stored something since they last met; and behind such a store, if one of them may load something
//! before they meet. Copies that lanes make in the background (`cp.async`) are such stores where a lane has waited for them: a warp waits as one.

use std::collections::BTreeSet;

use super::super::flow::Flow;
use super::super::op::{MemoryTarget, Op};
use super::accesses::Forms;
use super::address;
use rgpu_image::ptx::ast::{Function, Instruction, Statement};

/// Memory that is accessed: bits.
type Where = u8;
/// The block's,
const SHARED: Where = 1;
/// all other,
const GLOBAL: Where = 2;
/// and what is copied to the block's and not waited for.
const COPIED: Where = 4;

/// What an instruction does.
#[derive(Clone, Copy, Default)]
struct Does {
    /// What a lane loads for itself,
    loads: Where,
    /// and what it stores.
    stores: Where,
    /// What a warp loads as one,
    loads_as_one: Where,
    /// and what it stores.
    stores_as_one: Where,
    /// Whether it waits for copies.
    waits: bool,
    /// Whether lanes meet there, before anything else that it does,
    meets: bool,
    /// or behind it.
    meets_behind: bool,
}

/// Whether a function has any such access.
pub(super) fn are_there(function: &Function, ops: &[Op]) -> bool {
    address::instructions(function).any(|(_, i)| is_one(&ops[i.form.0 as usize]))
}

/// Whether a warp makes an access as one.
pub(super) fn is_one(op: &Op) -> bool {
    matches!(op, Op::Ldmatrix { .. } | Op::Stmatrix { .. } | Op::WmmaLoad { .. } | Op::WmmaStore { .. })
}

fn does(instruction: &Instruction, op: &Op, forms: &Forms) -> Does {
    let memory = |shared: bool| match (shared, forms.is_generic(instruction)) {
        (true, _) => SHARED,
        (false, true) => SHARED | GLOBAL,
        (false, false) => GLOBAL,
    };
    let of = |place: MemoryTarget| match place {
        MemoryTarget::Shared | MemoryTarget::Generic => memory(place == MemoryTarget::Shared),
        MemoryTarget::Local | MemoryTarget::Param | MemoryTarget::Constant => 0,
    };
    let none = Does::default();
    match *op {
        Op::Ld { place, .. } => Does { loads: of(place), ..none },
        Op::St { place, .. } => Does { stores: of(place), ..none },
        Op::Atom { shared, .. } => Does { loads: memory(shared), stores: memory(shared), ..none },
        Op::CpAsync { .. } => Does { stores: COPIED, ..none },
        Op::WmmaLoad { shared, .. } => Does { loads_as_one: memory(shared), ..none },
        Op::WmmaStore { shared, .. } => Does { stores_as_one: memory(shared), ..none },
        // Its rows are loaded before lanes meet.
        Op::Ldmatrix { .. } => Does { loads_as_one: SHARED, meets_behind: true, ..none },
        Op::Stmatrix { .. } => Does { stores_as_one: SHARED, meets: true, ..none },
        Op::Yield | Op::GridYield { .. } | Op::Bar { arrive: true, .. } => none,
        _ if forms.waits_for_copies(instruction) => Does { waits: true, ..none },
        ref op => Does { meets: op.is_cut() && instruction.guard.is_none(), ..none },
    }
}

/// What lanes may have done since they last met.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Since {
    stored: Where,
    /// What each has loaded for itself,
    loaded: Where,
    /// and of what a warp loads as one.
    loaded_as_one: Where,
}

impl Since {
    /// Whether lanes have to meet before an instruction: a warp loads what they have stored, or stores what they have loaded, or they store what it has loaded.
    fn is_late(self, does: Does) -> bool {
        self.stored & does.loads_as_one != 0
            || self.loaded & does.stores_as_one != 0
            || self.loaded_as_one & (does.stores | does.stores_as_one) != 0
    }

    /// They meet. What is not copied yet is not there behind the place where they do either.
    fn meet(&mut self) {
        *self = Self { stored: self.stored & COPIED, ..Self::default() };
    }

    fn take(&mut self, does: Does) {
        if does.waits && self.stored & COPIED != 0 {
            self.stored = self.stored & !COPIED | SHARED;
        }
        self.stored |= does.stores;
        self.loaded |= does.loads;
        self.loaded_as_one |= does.loads_as_one;
    }

    /// Takes in what may come another way; whether that is more.
    fn join(&mut self, other: Self) -> bool {
        let now = Self {
            stored: self.stored | other.stored,
            loaded: self.loaded | other.loaded,
            loaded_as_one: self.loaded_as_one | other.loaded_as_one,
        };
        std::mem::replace(self, now) != now
    }
}

/// Statements before which the lanes of a warp have to wait for each other. Mostly none.
pub(super) fn places(function: &Function, ops: &[Op], forms: &Forms, flow: &Flow) -> BTreeSet<usize> {
    let blocks: Vec<Vec<(usize, Does)>> = flow
        .blocks
        .iter()
        .map(|block| {
            let statements = (block.first..block.end).zip(&function.body[block.first..block.end]);
            let all = statements.filter_map(|(at, statement)| match statement {
                Statement::Instruction(i) => Some((at, does(i, &ops[i.form.0 as usize], forms))),
                Statement::Label(_) => None,
            });
            all.collect()
        })
        .collect();
    let mut places = BTreeSet::new();
    // What lanes may have done since they last met.
    let mut before = vec![Since::default(); blocks.len()];
    loop {
        let mut changed = false;
        for (number, block) in blocks.iter().enumerate() {
            let mut since = before[number];
            for &(at, does) in block {
                let late = !does.meets && since.is_late(does);
                if late {
                    places.insert(at);
                }
                if does.meets || late {
                    since.meet();
                }
                since.take(does);
                if does.meets_behind {
                    since.meet();
                }
            }
            for &next in &flow.blocks[number].successors {
                changed |= before[next].join(since);
            }
        }
        if !changed {
            break;
        }
    }
    // What lanes may load before they meet.
    let mut behind = vec![0; blocks.len()];
    loop {
        let mut changed = false;
        for (number, block) in blocks.iter().enumerate().rev() {
            let mut loads = flow.blocks[number].successors.iter().fold(0, |all, &next| all | behind[next]);
            for &(at, does) in block.iter().rev() {
                if does.stores_as_one & loads != 0 {
                    places.insert(at + 1);
                    loads = 0;
                }
                if does.meets_behind {
                    loads = 0;
                }
                loads |= does.loads | does.loads_as_one;
                if does.meets || places.contains(&at) {
                    loads = 0;
                }
            }
            loads |= behind[number];
            changed |= std::mem::replace(&mut behind[number], loads) != loads;
        }
        if !changed {
            return places;
        }
    }
}
