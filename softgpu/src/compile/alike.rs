//! Which registers lanes have alike, as far as that decides where they are kept.
//!
//! Code for groups of threads keeps a value that is the same in all lanes, or that grows by equal steps from lane to lane, once for a group. It does so by the
//! place in the state that the value has, so that such a value must not share its place with another that is not like it.
//!
//! Nothing here has to be exact: what is found decides beside which others a register is kept, and nothing else.

use super::flow::{Access, Flow, instructions, visit};
use super::op::{IntOp, IntTernary, MemoryTarget, Op};
use super::vars::Vars;
use rgpu_image::ptx::ast::{AddressBase, Function, Instruction, Operand, Special};

/// How the lanes' values of a register differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Alike {
    /// All threads of a block have one value.
    Block,
    /// The lanes of a group have one value, for all that is known.
    Group,
    /// Each lane has so much more than the one before it.
    Step(i64),
    /// Each has its own.
    Not,
}

use Alike::{Block, Group, Not, Step};

impl Alike {
    /// What a register is that has the one value or the other; `None` is what has no value yet.
    fn or(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (known, None) | (None, known) => known,
            (Some(a), Some(b)) if a == b => Some(a),
            (Some(Block | Group), Some(Block | Group)) => Some(Group),
            _ => Some(Not),
        }
    }

    /// What an operation makes of two values that is not a sum.
    fn with(self, other: Self) -> Self {
        match (self, other) {
            (Block, Block) => Block,
            (Block | Group, Block | Group) => Group,
            _ => Not,
        }
    }

    fn is_one(self) -> bool {
        matches!(self, Block | Group)
    }

    fn step(self) -> Option<i64> {
        match self {
            Block | Group => Some(0),
            Step(step) => Some(step),
            Not => None,
        }
    }

    /// The sum of two values, of which the other is taken so many times.
    fn plus(self, other: Self, times: i64) -> Self {
        match self.step().zip(other.step()) {
            Some((a, b)) => self.of_step(other, a.wrapping_add(b.wrapping_mul(times))),
            None => Not,
        }
    }

    /// What has this step and is made of two values.
    fn of_step(self, other: Self, step: i64) -> Self {
        match step {
            0 if self == Block && other == Block => Block,
            0 => Group,
            step => Step(step),
        }
    }

    /// A value, so many times.
    fn times(self, times: i64) -> Self {
        self.step().map_or(Not, |step| self.of_step(self, step.wrapping_mul(times)))
    }
}

/// Looks at all registers of a kernel, by their numbers. Those that are written nowhere are the same for all.
pub(super) fn find(function: &Function, ops: &[Op], vars: &Vars, flow: &Flow) -> Vec<Alike> {
    let mut finder = Finder {
        known: vec![None; vars.types.len()],
        several: super::flow::writes(function, ops, vars).iter().map(|&writes| writes > 1).collect(),
    };
    // By block, whether lanes come there apart.
    let mut apart = vec![false; flow.blocks.len()];
    loop {
        let mut changed = false;
        // Where lanes that a branch has parted are elsewhere, by the text: up to where it leads, or, behind the end of a loop, all of the loop. How many such parts begin at a
        // block, and end before it.
        let mut parts = vec![(0, 0); flow.blocks.len() + 1];
        for (number, block) in flow.blocks.iter().enumerate() {
            for instruction in instructions(function, block) {
                let op = &ops[instruction.form.0 as usize];
                changed |= finder.look(instruction, op, vars, apart[number]);
            }
            let guard = instructions(function, block).last().and_then(|last| last.guard);
            if guard.is_some_and(|guard| finder.parts(guard.register.0)) {
                for &to in &block.successors {
                    let (first, end) = if to > number { (number + 1, to) } else { (to, number + 1) };
                    parts[first].0 += 1;
                    parts[end].1 += 1;
                }
            }
        }
        let mut open = 0;
        for (apart, (begin, end)) in apart.iter_mut().zip(parts) {
            open += begin - end;
            changed |= open > 0 && !std::mem::replace(apart, true);
        }
        if !changed {
            return finder.known.into_iter().map(|known| known.unwrap_or(Block)).collect();
        }
    }
}

struct Finder {
    /// What is known of each register.
    known: Vec<Option<Alike>>,
    /// Registers that are written in several places.
    several: Vec<bool>,
}

impl Finder {
    /// What an operand's value is; `None` where it has none yet.
    fn of(&self, operand: Option<&Operand>) -> Option<Alike> {
        match operand? {
            Operand::Reg(register) => self.known[register.0 as usize],
            Operand::NotReg(register) | Operand::Part(register, _) => {
                self.known[register.0 as usize].map(|known| known.with(Block))
            }
            Operand::Address(AddressBase::Reg(register), _) => self.known[register.0 as usize],
            Operand::Special(special) => Some(of_special(*special)),
            _ => Some(Block),
        }
    }

    /// Whether lanes part at a predicate.
    fn parts(&self, predicate: u32) -> bool {
        self.known[predicate as usize].is_some_and(|known| !known.is_one())
    }

    /// Looks at an instruction; whether something is known now that was not.
    fn look(&mut self, instruction: &Instruction, op: &Op, vars: &Vars, apart: bool) -> bool {
        let mut alike = self.result(instruction, op, vars);
        if instruction.guard.is_some_and(|guard| self.parts(guard.register.0)) {
            alike = Some(Not);
        }
        let mut changed = false;
        visit(instruction, op, vars, &mut |register, access| {
            if access != Access::Define {
                return;
            }
            let register = register as usize;
            let own = if apart && self.several[register] { Some(Not) } else { alike };
            let now = Alike::or(self.known[register], own);
            changed |= self.known[register] != now;
            self.known[register] = now;
        });
        changed
    }

    /// What an instruction's result is; `None` while one of its operands has no value yet.
    fn result(&self, instruction: &Instruction, op: &Op, vars: &Vars) -> Option<Alike> {
        let operand = |index: usize| self.of(instruction.operands.get(index));
        let number = |index: usize| match instruction.operands.get(index) {
            Some(&Operand::Int(number, _)) => Some(number as i64),
            _ => None,
        };
        let times = |index: usize| match number(index) {
            Some(number) => Some(operand(index - 1)?.times(number)),
            None => Some(operand(index - 1)?.with(operand(index)?)),
        };
        match op {
            Op::Mov { .. } | Op::Cvta { .. } | Op::Cvt { .. } => match instruction.operands.get(1) {
                Some(Operand::Vector(_)) => self.made_of(instruction, op, vars),
                _ => operand(1),
            },
            Op::Int { op: IntOp::Add, .. } => Some(operand(1)?.plus(operand(2)?, 1)),
            Op::Int { op: IntOp::Sub, .. } => Some(operand(1)?.plus(operand(2)?, -1)),
            Op::Int { op: IntOp::MulLo, .. } | Op::MulWide { .. } => times(2),
            Op::Int { op: IntOp::Shl, .. } => match number(2) {
                Some(by) => Some(operand(1)?.times(1_i64.checked_shl(by as u32).unwrap_or(0))),
                None => times(2),
            },
            Op::IntTernary { op: IntTernary::MadLo, .. } | Op::MadWide { .. } => {
                Some(times(2)?.plus(operand(3)?, 1))
            }
            Op::Ld { place: MemoryTarget::Param, .. } => self.made_of(instruction, op, vars),
            Op::Ld { .. } => {
                let through = self.made_of(instruction, op, vars)?;
                Some(if through.is_one() { Group } else { Not })
            }
            Op::Atom { .. } | Op::Call | Op::Texture { .. } | Op::Mbarrier { .. } | Op::WmmaLoad { .. } => {
                Some(Not)
            }
            op if op.is_cut() => Some(Not),
            op => self.made_of(instruction, op, vars),
        }
    }

    /// What something is that is made of all that an instruction reads.
    fn made_of(&self, instruction: &Instruction, op: &Op, vars: &Vars) -> Option<Alike> {
        let mut alike = Some(Block);
        visit(instruction, op, vars, &mut |register, access| {
            if access == Access::Use {
                alike = alike.zip(self.known[register as usize]).map(|(a, b)| a.with(b));
            }
        });
        let specials = instruction.operands.iter().filter_map(|operand| match operand {
            Operand::Special(special) => Some(of_special(*special)),
            _ => None,
        });
        specials.fold(alike, |alike, special| alike.map(|alike| alike.with(special)))
    }
}

/// How the lanes' values of a special register differ.
fn of_special(special: Special) -> Alike {
    use Special::*;
    match special {
        TidX | LaneId => Step(1),
        TidY | TidZ | WarpId => Group,
        LanemaskEq | LanemaskLe | LanemaskLt | LanemaskGe | LanemaskGt => Not,
        Clock | ClockHi | Clock64 | GlobalTimer | GlobalTimerLo | GlobalTimerHi | Pm(_) => Not,
        _ => Block,
    }
}

#[cfg(test)]
mod tests {
    use super::super::unit::Unit;
    use super::*;

    /// What is found of the registers `%r1` to `%r9` of a kernel with this body.
    fn found(body: &str) -> Vec<Alike> {
        let text = format!(
            ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u32 n)\n{{\n\
             .reg .b32 %r<10>; .reg .pred %p<4>; .reg .b64 %rd<4>; .shared .align 4 .b8 s[256];\n{body}\nret; }}\n"
        );
        let unit = Unit::new(rgpu_image::ptx::parse(&text).unwrap()).unwrap();
        let function = &unit.module.functions[unit.kernels[0].0 as usize];
        let (vars, flow) = (Vars::new(function, &unit.ops), Flow::new(function, &unit.ops));
        let known = find(function, &unit.ops, &vars, &flow);
        let number = |n| {
            let is = |register: &rgpu_image::ptx::ast::Register| {
                &*register.name.base == "%r" && register.name.index == Some(n)
            };
            function.registers.iter().position(is).unwrap()
        };
        (1..10).map(|n| known[number(n)]).collect()
    }

    #[test]
    fn what_is_the_same_in_all_lanes_or_grows_with_them_is_found() {
        let known = found(
            "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r1, 12, %r2; mov.u32 %r4, %tid.y; add.u32 %r5, %r4, %r2;
             ld.param.u64 %rd1, [a]; ld.global.u32 %r6, [%rd1]; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
             ld.global.u32 %r7, [%rd3]; sub.u32 %r8, %r2, %r1; xor.b32 %r9, %r1, %r2;",
        );
        assert_eq!(known, [Step(1), Block, Step(12), Group, Group, Group, Not, Step(-1), Not]);
    }

    #[test]
    fn what_lanes_set_apart_from_each_other_is_not_alike() {
        let known = found(
            "mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r5, 0; ld.param.u32 %r4, [n]; setp.lt.u32 %p1, %r1, %r4;
             @%p1 bra M; mov.u32 %r2, 1; M: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, %r4; @%p2 bra M;
             N: add.u32 %r5, %r5, 1; mov.u32 %r6, %r5; setp.lt.u32 %p3, %r5, %r1; @%p3 bra N; @%p1 mov.u32 %r7, 5; selp.b32 %r8, 1, 2, %p2;
             shl.b32 %r9, %r1, 3;",
        );
        assert_eq!(known, [Step(1), Not, Block, Block, Not, Not, Not, Block, Step(8)]);
    }
}
