//! Calls that look at accesses before they are made, in kernels that are compiled so ([`abi::Checks`]).
//!
//! The executor's function says which address to access instead, mostly the same. It is confined like any address that a kernel has
//! made, so that what the function says is as harmless as what a kernel does.

use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::memory::Target;
use super::{Emitter, Result, user};
use crate::abi::{Access, AccessKind};
use crate::compile::op::{MemoryTarget, Op};
use crate::compile::vars::Home;
use rgpu_image::ptx::ast::{AddressBase, Operand, Symbol};

/// What the accesses of an operation do; where it makes several that differ, the emitter says so for each.
pub(super) fn kind_of(op: &Op) -> AccessKind {
    match op {
        Op::St { .. } | Op::StAsync { .. } | Op::WmmaStore { .. } | Op::Stmatrix { .. } => AccessKind::Write,
        Op::Atom { .. } | Op::RedAsync { .. } => AccessKind::Atomic,
        Op::Mbarrier { .. } => AccessKind::Barrier,
        _ => AccessKind::Read,
    }
}

/// Whether an instruction says how it is ordered. An atomic operation is relaxed where it says nothing, so that this says nothing of it.
fn is_ordered(text: &str) -> bool {
    let mut parts = text.split('.');
    match parts.next() {
        Some("ld" | "st") => parts.any(|part| matches!(part, "relaxed" | "acquire" | "release")),
        Some("atom" | "red") => parts.any(|part| matches!(part, "acquire" | "release" | "acq_rel")),
        _ => false,
    }
}

impl<'a> Emitter<'a, '_> {
    /// Emits something without looking at its accesses.
    pub(super) fn unseen<R>(&mut self, emit: impl FnOnce(&mut Self) -> R) -> R {
        let looks = std::mem::replace(&mut self.looks, false);
        let result = emit(self);
        self.looks = looks;
        result
    }

    /// Whether accesses are looked at here.
    pub(super) fn looks(&self) -> bool {
        self.looks
    }

    /// Has an access looked at, to a generic address: where to go instead.
    pub(super) fn seen(&mut self, address: Value, width: u32) -> Result<Target> {
        let counts = self.cx.env.checks.counts;
        let line = if counts { self.counted_access() } else { self.line };
        let access = Access { kind: self.access, ordered: is_ordered(self.text), size: width, line };
        let what = self.iconst(types::I64, access.pack() as i64);
        let helper = self.cx.env.helpers.check;
        let checked = self.call_helper(helper, Some(types::I64), &[self.block, address, what]);
        let checked = checked.ok_or_else(|| self.refuse("A helper without a result"))?;
        let base = self.confine(checked);
        Ok(Target { base: self.aligned(base, checked, width), offset: 0, flags: user() })
    }

    /// Where an access goes that is looked at; `None` for one that needs no look.
    pub(super) fn seen_target(
        &mut self,
        place: MemoryTarget,
        (base, offset): (AddressBase, i64),
        width: u32,
    ) -> Result<Option<Target>> {
        if !self.looks || place == MemoryTarget::Param {
            return Ok(None);
        }
        let shared = place == MemoryTarget::Shared;
        let checks = self.cx.env.checks;
        if !checks.memory && !checks.counts && place == MemoryTarget::Local {
            return Ok(None);
        }
        if let AddressBase::Symbol(symbol) = base
            && (self.is_passed(symbol) || self.is_within(symbol, offset, width) && !checks.counts)
            && !(shared && checks.shared)
        {
            return Ok(None);
        }
        let address = self.generic_address(place, (base, offset))?;
        self.seen(address, width).map(Some)
    }

    /// The generic address of a place.
    pub(super) fn generic_address(
        &mut self,
        place: MemoryTarget,
        (base, offset): (AddressBase, i64),
    ) -> Result<Value> {
        let shared = place == MemoryTarget::Shared;
        Ok(match base {
            AddressBase::Reg(reg) if shared => {
                let value = self.register(reg);
                let value = self.as_int(value);
                let value = self.resize(value, types::I32, false);
                let value = self.add_const(value, offset);
                self.in_window(value)
            }
            AddressBase::Absolute if shared => {
                let value = self.shared_address(i64::from(offset as u32));
                self.in_window(value)
            }
            AddressBase::Symbol(symbol) if shared => {
                let value = self.symbol(symbol, offset)?;
                let value = self.resize(value, types::I32, false);
                self.in_window(value)
            }
            AddressBase::Reg(reg) => {
                let address = self.address_register(place, reg)?;
                self.add_const(address, offset)
            }
            AddressBase::Absolute => self.iconst(types::I64, offset),
            AddressBase::Symbol(symbol) => self.symbol(symbol, offset)?,
        })
    }

    /// The generic address of an offset in shared memory.
    fn in_window(&mut self, at: Value) -> Value {
        let at = self.resize(at, types::I64, false);
        let window = self.shared_base();
        self.b.ins().iadd(window, at)
    }

    /// Whether a variable is one that the compiler has put somewhere for what is passed.
    fn is_passed(&self, symbol: Symbol) -> bool {
        matches!(symbol, Symbol::Param(_) | Symbol::Return(_))
            || matches!(self.vars.home(symbol), Some(Home::Pointer(_) | Home::Reg(_)))
    }

    /// Whether an access to a variable that is named is one to its bytes, and aligned, as far as that is known now.
    fn is_within(&self, symbol: Symbol, offset: i64, width: u32) -> bool {
        let (size, align) = match symbol {
            Symbol::Global(id) => {
                let variable = &self.cx.unit.module.variables[id.0 as usize];
                (variable.size, variable.align)
            }
            Symbol::Local(id) => {
                let variable = &self.function.variables[id.0 as usize];
                (variable.size, variable.align)
            }
            // What is passed lies where the compiler has put it.
            Symbol::Param(_) | Symbol::Return(_) => return true,
            Symbol::Function(_) => return false,
        };
        let end = offset.checked_add(i64::from(width));
        let inside = offset >= 0 && end.is_some_and(|end| end as u64 <= size);
        inside && align >= width && offset % i64::from(width.max(1)) == 0
    }

    /// Says what the accesses do that are emitted from now on.
    pub(super) fn seen_as(&mut self, kind: AccessKind) {
        self.access = kind;
    }

    /// An address operand's parts.
    pub(super) fn parts(&self, operand: &Operand) -> Result<(AddressBase, i64)> {
        match operand {
            Operand::Address(base, offset) => Ok((*base, *offset)),
            _ => Err(self.refuse("An address is expected here")),
        }
    }
}
