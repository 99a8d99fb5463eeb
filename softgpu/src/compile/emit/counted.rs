//! Calls by which threads say where they are, in kernels that are compiled to be counted ([`abi::counted`]).

use super::Emitter;
use crate::abi::counted::{AccessSite, Event, Loop, Region};
use crate::compile::loops::Loops;
use crate::compile::op::{Control, Op};
use cranelift_codegen::ir::types;
use rgpu_image::ptx::ast::{Instruction, Statement};

/// What is known of the function in which threads are counted.
pub(super) struct Counting {
    loops: Loops,
    /// The number of its first loop.
    first_loop: u32,
}

impl<'a> Emitter<'a, '_> {
    /// Threads are counted from here on, if that is asked for.
    pub(super) fn begin_counting(&mut self) {
        if !self.cx.env.checks.counts {
            return;
        }
        let loops = Loops::new(&self.flow);
        let sites = &mut *self.cx.sites.borrow_mut();
        let first_loop = sites.loops.len() as u32;
        let number = |index: usize| first_loop + index as u32;
        sites.loops.extend(loops.all.iter().map(|l| Loop { parent: l.parent.map(number) }));
        self.counting = Some(Counting { loops, first_loop });
    }

    /// A thread comes to the instructions from this statement of the body on.
    pub(super) fn count_region(&mut self, first: usize) {
        let Some(counting) = &self.counting else { return };
        let block = &self.flow.blocks[self.current];
        let mut region = Region::default();
        for statement in &self.function.body[first..block.end] {
            let Statement::Instruction(instruction) = statement else { continue };
            // What inlining has put in place of a call is no instruction of the program's.
            if !self.cx.unit.text(instruction.form.0).is_empty() {
                match region.lines.iter_mut().find(|(line, _)| *line == instruction.line) {
                    Some((_, count)) => *count += 1,
                    None => region.lines.push((instruction.line, 1)),
                }
            }
            let control = self.cx.unit.ops[instruction.form.0 as usize].traits().control;
            let guarded = instruction.guard.is_some();
            let several = matches!(self.cx.unit.ops[instruction.form.0 as usize], Op::Brx);
            if matches!(control, Control::Branch | Control::End) && (guarded || several) {
                region.branch = Some(instruction.line);
            }
            if self.is_left(instruction) {
                break;
            }
        }
        let number = |index: usize| counting.first_loop + index as u32;
        region.within = counting.loops.of_block[self.current].map(number);
        if first == block.first {
            let heads = counting.loops.all.iter().position(|l| l.head == self.current);
            region.heads = heads.map(number);
        }
        let event = {
            let regions = &mut self.cx.sites.borrow_mut().regions;
            regions.push(region);
            Event::Enter(regions.len() as u32 - 1)
        };
        self.tell(event);
    }

    /// Whether some threads may not come to what follows an instruction in its block.
    fn is_left(&self, instruction: &Instruction) -> bool {
        let op = &self.cx.unit.ops[instruction.form.0 as usize];
        matches!(op, Op::Call) || op.traits().control == Control::End
    }

    /// An instruction has been emitted: what follows it in its block, from `next` to `end`, may be a region of its own.
    pub(super) fn count_behind(&mut self, instruction: &Instruction, next: usize, end: usize, ended: bool) {
        if self.counting.is_some() && !ended && next < end && self.is_left(instruction) {
            self.count_region(next);
        }
    }

    /// The function has been called.
    pub(super) fn count_call(&mut self) {
        if self.cx.env.checks.counts {
            self.tell(Event::Call);
        }
    }

    /// A thread leaves the function.
    pub(super) fn count_end(&mut self) {
        if self.counting.is_some() {
            self.tell(Event::Leave);
        }
    }

    fn tell(&mut self, event: Event) {
        let what = self.iconst(types::I64, event.pack() as i64);
        let helper = self.cx.env.helpers.count;
        self.call_helper(helper, None, &[self.block, what]);
    }

    /// The number of the access that is being emitted.
    pub(super) fn counted_access(&mut self) -> u32 {
        let accesses = &mut self.cx.sites.borrow_mut().accesses;
        accesses.push(AccessSite { line: self.line, constant: self.text.contains(".const") });
        accesses.len() as u32 - 1
    }
}
