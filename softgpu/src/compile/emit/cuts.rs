//! Places where a thread stops until the executor has carried an operation out.

use std::mem::offset_of;

use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::{Emitter, Result, trusted};
use crate::abi::{self, Cut, CutKind};
use rgpu_image::ptx::ast::{Operand, RegId, Type};

/// Offset of `Thread::op[n]`.
pub(super) fn operand_offset(n: usize) -> i32 {
    (offset_of!(abi::Thread, op) + n * 8) as i32
}

impl<'a> Emitter<'a, '_> {
    /// Stores an operand of a cut.
    pub(crate) fn store_op(&mut self, n: usize, value: Value) {
        let value = self.as_int(value);
        let value = self.resize(value, types::I64, false);
        self.b.ins().store(trusted(), value, self.thread, operand_offset(n));
    }

    /// A result of the cut after which control has come back.
    pub(crate) fn load_op(&mut self, n: usize, ty: Type) -> Value {
        let value = self.b.ins().load(types::I64, trusted(), self.thread, operand_offset(n));
        self.resize(value, super::int_class(ty.bits()), false)
    }

    /// Saves what is live at `next`, stops the thread, and goes on, in a new block that is switched to,
    /// with everything restored. `results` are registers that the cut defines. The caller goes on to
    /// `next` after it has stored the results.
    pub(crate) fn stop_here(&mut self, kind: CutKind, legacy: bool, next: usize, results: &[u32]) {
        let live = match &self.liveness {
            Some(liveness) => liveness.at(next),
            None => Vec::new(),
        };
        // What has changed since it was last in its place, and what will be read before the next cut.
        let mut stores = Vec::new();
        let mut loads = Vec::new();
        if let Some(plan) = &self.state {
            for reg in live.into_iter().filter(|reg| !results.contains(reg)) {
                let Some(at) = plan.place(reg) else { continue };
                if !plan.is_clean(self.current, reg) {
                    stores.push((reg, at));
                }
                if plan.is_needed(next, reg) {
                    loads.push((reg, at));
                }
            }
        }
        if !stores.is_empty() {
            let state = self.thread_field(types::I64, offset_of!(abi::Thread, state));
            for (reg, at) in stores {
                let value = self.b.use_var(self.variables[reg as usize]);
                self.b.ins().store(trusted(), value, state, at as i32);
            }
        }
        self.facts.cuts.push(Cut { kind, legacy, line: self.line });
        let number = self.facts.cuts.len() as i64;
        let number = self.iconst(types::I32, number);
        // Cuts and the places behind them are numbered alike.
        self.b.ins().store(trusted(), number, self.thread, offset_of!(abi::Thread, resume) as i32);
        self.b.ins().store(trusted(), number, self.thread, offset_of!(abi::Thread, stop) as i32);
        if let Some(latch) = self.latch {
            self.b.ins().jump(latch, &[]);
        }
        let resume = self.b.create_block();
        self.resumes.push(resume);
        self.b.switch_to_block(resume);
        if loads.is_empty() {
            return;
        }
        let state = self.thread_field(types::I64, offset_of!(abi::Thread, state));
        for (reg, at) in loads {
            let value = self.b.ins().load(self.classes[reg as usize], trusted(), state, at as i32);
            self.b.def_var(self.variables[reg as usize], value);
        }
    }

    /// A cut without results, on an edge: goes on to `next` at once.
    pub(crate) fn suspend(&mut self, kind: CutKind, legacy: bool, next: usize, results: &[u32]) {
        self.stop_here(kind, legacy, next, results);
        let block = self.blocks[next];
        self.b.ins().jump(block, &[]);
    }

    /// The block that follows the cut which is being emitted.
    pub(crate) fn behind_cut(&mut self) -> Result<usize> {
        if self.latch.is_none() {
            return Err(self.refuse("A thread cannot stop inside a function that was not inlined"));
        }
        let next = self.current + 1;
        if next >= self.blocks.len() {
            return Err(self.refuse("Nothing follows"));
        }
        Ok(next)
    }

    /// Goes on behind a cut.
    pub(crate) fn go_on(&mut self, next: usize) -> Result<bool> {
        self.jump_to(next)?;
        Ok(true)
    }

    /// `nanosleep`, and where a thread that reads must not run ahead of the one that writes.
    pub(crate) fn give_way(&mut self, _: &'a [Operand]) -> Result<bool> {
        let next = self.behind_cut()?;
        self.stop_here(CutKind::Yield, false, next, &[]);
        self.go_on(next)
    }

    /// Where a thread reads what all blocks are to have written, or changes what others are to have looked at.
    pub(crate) fn let_grid_go_first(&mut self, hold: abi::Hold, _: &'a [Operand]) -> Result<bool> {
        let next = self.behind_cut()?;
        self.stop_here(CutKind::GridYield(hold), false, next, &[]);
        self.go_on(next)
    }

    /// The lanes of a warp wait for each other. Without a mask: whoever is here once nobody else in the warp can come.
    pub(crate) fn converge(&mut self, _: &'a [Operand]) -> Result<bool> {
        let next = self.behind_cut()?;
        self.stop_here(CutKind::WarpSync, true, next, &[]);
        self.go_on(next)
    }

    /// `shfl`
    pub(crate) fn shfl(&mut self, mode: abi::ShuffleMode, sync: bool, o: &'a [Operand]) -> Result<bool> {
        let next = self.behind_cut()?;
        let (value, predicate) = self.pair(o)?;
        for n in 0..3 {
            let operand = self.src(self.operand(o, n + 1)?, Type::B32)?;
            self.store_op(n, operand);
        }
        if sync {
            self.mask(o, 4)?;
        }
        let results = registers(&[value, predicate]);
        self.stop_here(CutKind::Shuffle(mode), !sync, next, &results);
        self.result(value, 0, Type::B32)?;
        self.result(predicate, 1, Type::Pred)?;
        self.go_on(next)
    }

    /// `vote`
    pub(crate) fn vote(&mut self, mode: abi::VoteMode, sync: bool, o: &'a [Operand]) -> Result<bool> {
        let next = self.behind_cut()?;
        let destination = self.operand(o, 0)?;
        let predicate = self.src(self.operand(o, 1)?, Type::Pred)?;
        self.store_op(0, predicate);
        if sync {
            self.mask(o, 2)?;
        }
        let results = registers(&[Some(destination)]);
        self.stop_here(CutKind::Vote(mode), !sync, next, &results);
        let ty = if mode == abi::VoteMode::Ballot { Type::B32 } else { Type::Pred };
        self.result(Some(destination), 0, ty)?;
        self.go_on(next)
    }

    /// `match`
    pub(crate) fn lane_match(&mut self, all: bool, ty: Type, o: &'a [Operand]) -> Result<bool> {
        let next = self.behind_cut()?;
        let (value, predicate) = self.pair(o)?;
        let operand = self.src(self.operand(o, 1)?, ty)?;
        self.store_op(0, operand);
        self.mask(o, 2)?;
        let results = registers(&[value, predicate]);
        let kind = if all { CutKind::MatchAll } else { CutKind::MatchAny };
        self.stop_here(kind, false, next, &results);
        self.result(value, 0, Type::B32)?;
        self.result(predicate, 1, Type::Pred)?;
        self.go_on(next)
    }

    /// `redux`
    pub(crate) fn redux(&mut self, reduce: abi::ReduceOp, o: &'a [Operand]) -> Result<bool> {
        let next = self.behind_cut()?;
        let destination = self.operand(o, 0)?;
        let operand = self.src(self.operand(o, 1)?, Type::B32)?;
        self.store_op(0, operand);
        self.mask(o, 2)?;
        let results = registers(&[Some(destination)]);
        self.stop_here(CutKind::Redux(reduce), false, next, &results);
        self.result(Some(destination), 0, Type::B32)?;
        self.go_on(next)
    }

    /// `activemask`
    pub(crate) fn active_mask(&mut self, o: &'a [Operand]) -> Result<bool> {
        let next = self.behind_cut()?;
        let destination = self.operand(o, 0)?;
        let results = registers(&[Some(destination)]);
        self.stop_here(CutKind::ActiveMask, true, next, &results);
        self.result(Some(destination), 0, Type::B32)?;
        self.go_on(next)
    }

    /// `elect`
    pub(crate) fn elect(&mut self, o: &'a [Operand]) -> Result<bool> {
        let next = self.behind_cut()?;
        let (value, predicate) = self.pair(o)?;
        self.mask(o, 1)?;
        let results = registers(&[value, predicate]);
        self.stop_here(CutKind::Elect, false, next, &results);
        self.result(value, 0, Type::B32)?;
        self.result(predicate, 1, Type::Pred)?;
        self.go_on(next)
    }

    /// `d|p`, or `d` alone.
    fn pair(&self, o: &'a [Operand]) -> Result<(Option<&'a Operand>, Option<&'a Operand>)> {
        Ok(match self.operand(o, 0)? {
            Operand::Pair(pair) => (Some(&pair.0), Some(&pair.1)),
            single => (Some(single), None),
        })
    }

    /// Stores the member mask.
    pub(crate) fn mask(&mut self, o: &'a [Operand], index: usize) -> Result<()> {
        let mask = self.src(self.operand(o, index)?, Type::B32)?;
        self.store_op(3, mask);
        Ok(())
    }

    /// Stores a result of the cut in its register.
    fn result(&mut self, operand: Option<&Operand>, n: usize, ty: Type) -> Result<()> {
        let Some(operand) = operand else { return Ok(()) };
        let value = self.load_op(n, ty);
        self.set(operand, ty, value)
    }

    /// `bar`, `barrier`
    pub(crate) fn bar(
        &mut self,
        reduce: Option<abi::ReduceOp>,
        warp: bool,
        arrive: bool,
        o: &'a [Operand],
    ) -> Result<bool> {
        let next = self.behind_cut()?;
        if warp {
            self.mask(o, 0)?;
            self.stop_here(CutKind::WarpSync, false, next, &[]);
            return self.go_on(next);
        }
        // With a reduction, the result comes first and the predicate last.
        let (reduction, rest) = match (reduce, o) {
            (Some(reduce), [destination, rest @ .., predicate]) => {
                (Some((reduce, destination, predicate)), rest)
            }
            (Some(_), _) => return Err(self.refuse("An operand is missing")),
            (None, rest) => (None, rest),
        };
        let number = self.src(self.operand(rest, 0)?, Type::U32)?;
        let count = match rest.get(1) {
            Some(count) => self.src(count, Type::U32)?,
            None => self.iconst(types::I32, 0),
        };
        self.store_op(0, number);
        self.store_op(1, count);
        if self.cx.env.checks.sync {
            // The forms that all threads of a warp have to come to together.
            let aligned = self.iconst(
                types::I64,
                i64::from(!self.text.starts_with("barrier.") || self.text.contains(".aligned")),
            );
            self.store_op(abi::BARRIER_ALIGNED, aligned);
        }
        let Some((reduce, destination, predicate)) = reduction else {
            let kind = if arrive { CutKind::BarrierArrive } else { CutKind::Barrier };
            self.stop_here(kind, false, next, &[]);
            return self.go_on(next);
        };
        let predicate = self.src(predicate, Type::Pred)?;
        self.store_op(2, predicate);
        let results = registers(&[Some(destination)]);
        self.stop_here(CutKind::BarrierReduce(reduce), false, next, &results);
        let ty = if reduce == abi::ReduceOp::Popc { Type::U32 } else { Type::Pred };
        self.result(Some(destination), 0, ty)?;
        self.go_on(next)
    }
}

/// The registers among operands.
pub(super) fn registers(operands: &[Option<&Operand>]) -> Vec<u32> {
    operands
        .iter()
        .filter_map(|operand| match operand {
            Some(Operand::Reg(RegId(reg))) => Some(*reg),
            _ => None,
        })
        .collect()
}
