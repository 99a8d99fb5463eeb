//! Opcodes that direct control, and barriers.

use super::Reader;
use crate::abi::ReduceOp;
use crate::compile::op::*;
use crate::compile::opcode::Combine;
use rgpu_image::ptx::ast::Type;

impl Reader {
    /// `bra`
    pub(crate) fn bra(&mut self) -> Option<Op> {
        self.form.uni = false;
        Some(Op::Bra)
    }

    /// `brx`
    pub(crate) fn brx(&mut self) -> Option<Op> {
        self.form.uni = false;
        self.other("idx").then_some(Op::Brx)
    }

    /// `call`
    pub(crate) fn call(&mut self) -> Option<Op> {
        self.form.uni = false;
        Some(Op::Call)
    }

    /// `ret`
    pub(crate) fn ret(&mut self) -> Option<Op> {
        self.form.uni = false;
        Some(Op::Ret)
    }

    /// `exit`
    pub(crate) fn exit(&mut self) -> Option<Op> {
        Some(Op::Exit)
    }

    /// `trap`, `brkpt`
    pub(crate) fn trap(&mut self) -> Option<Op> {
        Some(Op::Trap)
    }

    /// `nanosleep`
    pub(crate) fn nanosleep(&mut self) -> Option<Op> {
        self.ty_of(&[Type::U32])?;
        Some(Op::Yield)
    }

    /// `pmevent`: nobody counts.
    pub(crate) fn pmevent(&mut self) -> Option<Op> {
        self.other("mask");
        Some(Op::Nop)
    }

    /// `griddepcontrol`: grids follow one another completely here.
    pub(crate) fn griddepcontrol(&mut self) -> Option<Op> {
        (self.other("launch_dependents") | self.other("wait")).then_some(Op::Nop)
    }

    /// `bar`, `barrier`
    pub(crate) fn bar(&mut self) -> Option<Op> {
        self.other("cta");
        self.form.aligned = false;
        if self.other("cluster") {
            // One worker runs a cluster, whatever the order that is asked for.
            return if self.other("arrive") {
                let _ = self.other("release") || self.other("relaxed");
                Some(Op::BarCluster { wait: false })
            } else if self.other("wait") {
                self.other("acquire");
                Some(Op::BarCluster { wait: true })
            } else {
                None
            };
        }
        if self.other("warp") {
            self.sync()?;
            return Some(Op::Bar { reduce: None, warp: true, arrive: false });
        }
        if self.other("arrive") {
            return Some(Op::Bar { reduce: None, warp: false, arrive: true });
        }
        if self.other("red") {
            let reduce = match (self.form.combine.take()?, self.ty()?) {
                (Combine::Popc, Type::U32) => ReduceOp::Popc,
                (Combine::And, Type::Pred) => ReduceOp::PredicateAnd,
                (Combine::Or, Type::Pred) => ReduceOp::PredicateOr,
                _ => return None,
            };
            return Some(Op::Bar { reduce: Some(reduce), warp: false, arrive: false });
        }
        self.sync()?;
        Some(Op::Bar { reduce: None, warp: false, arrive: false })
    }
}
