//! Registers that are made anew behind a cut, instead of being kept in the thread's state.
//!
//! What is computed from a thread's numbers, its block's, the kernel's parameters and constants alone is the same wherever it is computed. Such a
//! register is given its value in front of all places where a thread may go on, so that one value is there for the whole kernel: nothing of it is
//! stored at a cut, and code for groups of threads knows how it goes up from lane to lane, whichever lanes have stopped where.

use super::flow::{Access, Flow, Liveness, visit};
use super::op::{IntOp, IntTernary, MemoryTarget, Op};
use super::vars::{Home, Vars};
use rgpu_image::ptx::ast::{AddressBase, Function, Instruction, Operand, RegId, Special, Statement};

/// A register is kept in the state if more instructions than these make it.
const MOST_INSTRUCTIONS: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Renewed {
    /// The statements that make such registers, each behind those that it depends on.
    pub statements: Vec<usize>,
    /// By register: whether it is one of them.
    pub registers: Vec<bool>,
    /// By statement: whether it makes one.
    is_early: Vec<bool>,
}

impl Renewed {
    /// Finds these registers of a kernel, among those that are live behind its cuts or where its `yields` lead.
    pub(super) fn find(
        function: &Function,
        ops: &[Op],
        vars: &Vars,
        flow: &Flow,
        liveness: &Liveness,
        yields: &[(usize, usize)],
    ) -> Self {
        let mut search = Search { function, ops, vars, made: made_once(function, ops, vars) };
        // What may be read where it has no value yet would have one.
        for reg in liveness.at(0) {
            search.made[reg as usize] = None;
        }
        let mut found = Self {
            statements: Vec::new(),
            registers: vec![false; vars.types.len()],
            is_early: vec![false; function.body.len()],
        };
        let behind = (1..flow.blocks.len()).filter(|&next| flow.blocks[next - 1].cut);
        let mut live: Vec<u32> =
            behind.chain(yields.iter().map(|&(_, to)| to)).flat_map(|next| liveness.at(next)).collect();
        live.sort_unstable();
        live.dedup();
        for reg in live {
            let mut needed = Vec::new();
            if !search.add(reg, &mut Vec::new(), &mut needed) {
                continue;
            }
            for (reg, statement) in needed {
                if !std::mem::replace(&mut found.registers[reg as usize], true) {
                    found.statements.push(statement);
                    found.is_early[statement] = true;
                }
            }
        }
        found
    }

    /// Whether a statement of the function makes one of them.
    pub(super) fn has(&self, statement: usize) -> bool {
        self.is_early.get(statement) == Some(&true)
    }
}

/// By register: the statement that writes it, if it is the only one, and does the same anywhere.
fn made_once(function: &Function, ops: &[Op], vars: &Vars) -> Vec<Option<usize>> {
    let writes = super::flow::writes(function, ops, vars);
    let mut made = vec![None; vars.types.len()];
    for (at, statement) in function.body.iter().enumerate() {
        if let Statement::Instruction(instruction) = statement
            && let (None, Some(Operand::Reg(RegId(reg)))) = (instruction.guard, instruction.operands.first())
            && writes[*reg as usize] == 1
            && is_same_anywhere(instruction, &ops[instruction.form.0 as usize], vars)
        {
            made[*reg as usize] = Some(at);
        }
    }
    made
}

struct Search<'a> {
    function: &'a Function,
    ops: &'a [Op],
    vars: &'a Vars,
    /// See [`made_once`].
    made: Vec<Option<usize>>,
}

impl Search<'_> {
    /// Adds a register and what it depends on, if all of it can be made anywhere, and is not too much. `open` is what depends on it.
    fn add(&self, reg: u32, open: &mut Vec<u32>, needed: &mut Vec<(u32, usize)>) -> bool {
        if needed.iter().any(|&(other, _)| other == reg) {
            return true;
        }
        let Some(statement) = self.made[reg as usize] else { return false };
        if open.contains(&reg) || open.len() + needed.len() >= MOST_INSTRUCTIONS {
            return false;
        }
        open.push(reg);
        let all = self.read(statement).into_iter().all(|reg| self.add(reg, open, needed));
        open.pop();
        needed.push((reg, statement));
        all
    }

    /// The registers that a statement reads.
    fn read(&self, statement: usize) -> Vec<u32> {
        let mut read = Vec::new();
        if let Statement::Instruction(instruction) = &self.function.body[statement] {
            visit(instruction, &self.ops[instruction.form.0 as usize], self.vars, &mut |reg, access| {
                if access == Access::Use {
                    read.push(reg);
                }
            });
        }
        read
    }
}

/// Whether an instruction depends on its operands alone, and makes one value with little effort.
fn is_same_anywhere(instruction: &Instruction, op: &Op, vars: &Vars) -> bool {
    let cheap = match op {
        Op::Mov { .. }
        | Op::MulWide { .. }
        | Op::MadWide { .. }
        | Op::IntUnary { .. }
        | Op::Bfi { .. }
        | Op::Szext { .. }
        | Op::Prmt { .. }
        | Op::Shf { .. }
        | Op::PredLogic { .. }
        | Op::PredNot
        | Op::Selp { .. }
        | Op::Cvta { .. }
        | Op::Lop3 { predicate: None }
        | Op::Setp { combine: None, .. } => true,
        Op::Int { op, .. } => !matches!(op, IntOp::Div | IntOp::Rem),
        Op::IntTernary { op, .. } => !matches!(op, IntTernary::Fns),
        Op::Cvt { convert } => !convert.dst.is_float() && !convert.src.is_float(),
        Op::Ld { place: MemoryTarget::Param, vector: 1, .. } => {
            let Some(Operand::Address(AddressBase::Symbol(symbol), _)) = instruction.operands.get(1) else {
                return false;
            };
            matches!(vars.home(*symbol), Some(Home::Block(_)))
        }
        _ => false,
    };
    cheap && instruction.operands.iter().skip(1).all(is_fixed)
}

/// Whether an operand is the same from a thread's beginning to its end, as far as its registers are.
fn is_fixed(operand: &Operand) -> bool {
    use Special as S;
    match operand {
        Operand::Special(special) => matches!(
            special,
            S::TidX
                | S::TidY
                | S::TidZ
                | S::NtidX
                | S::NtidY
                | S::NtidZ
                | S::CtaidX
                | S::CtaidY
                | S::CtaidZ
                | S::NctaidX
                | S::NctaidY
                | S::NctaidZ
                | S::LaneId
                | S::WarpId
                | S::WarpSize
        ),
        Operand::Reg(_) | Operand::NotReg(_) | Operand::Int(..) | Operand::F32(_) | Operand::F64(_) => true,
        Operand::Symbol(..) | Operand::Address(..) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::unit::Unit;
    use super::*;

    /// Which of the registers `%r…` of a kernel with this body are made anew, and how many statements of it make such registers.
    fn found(body: &str) -> (Vec<u32>, usize) {
        let text = format!(
            ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u32 n)\n{{\n\
             .reg .b32 %r<20>; .reg .pred %p<4>; .reg .b64 %rd<4>; .shared .align 4 .b8 s[256];\n{body}\nret; }}\n"
        );
        let unit = Unit::new(rgpu_image::ptx::parse(&text).unwrap()).unwrap();
        let function = &unit.module.functions[unit.kernels[0].0 as usize];
        let (vars, flow) = (Vars::new(function, &unit.ops), Flow::new(function, &unit.ops));
        let liveness = Liveness::new(&flow, function, &unit.ops, &vars);
        let renewed = Renewed::find(function, &unit.ops, &vars, &flow, &liveness, &[]);
        let number = |at: usize| {
            let name = &function.registers.get(at)?.name;
            name.index.filter(|_| &*name.base == "%r")
        };
        let registers = renewed.registers.iter().enumerate().filter(|(_, is)| **is);
        let mut registers: Vec<u32> = registers.filter_map(|(at, _)| number(at)).collect();
        registers.sort_unstable();
        (registers, (0..function.body.len()).filter(|&at| renewed.has(at)).count())
    }

    /// Reads registers behind a barrier.
    const READ: &str = "bar.sync 0; add.u32 %r9, %r1, %r2; add.u32 %r9, %r9, %r3; add.u32 %r9, %r9, %r4; st.shared.u32 [s], %r9;";

    #[test]
    fn what_depends_on_numbers_and_parameters_alone_is_made_anew() {
        // The fifth is needed for the first alone.
        let body = "mov.u32 %r5, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r2, 8, %r5; ld.param.u32 %r3, [n]; setp.lt.u32 %p1, %r1, %r3;
            selp.b32 %r4, %r1, 7, %p1;";
        assert_eq!(found(&format!("{body} {READ}")), (vec![1, 2, 3, 4, 5], 6));
        // Nothing is live behind the last barrier.
        assert_eq!(found(&format!("{body} st.shared.u32 [s], %r4; bar.sync 0;")), (vec![], 0));
    }

    #[test]
    fn what_may_differ_from_time_to_time_is_kept() {
        // What is loaded, a clock, what is written twice, and what is written by some.
        let body = "ld.shared.u32 %r1, [s+4]; mov.u32 %r2, %clock; mov.u32 %r3, 1; @%p1 mov.u32 %r3, 2; mov.u32 %r4, 1; @%p1 mov.u32 %r4, %tid.x;";
        assert_eq!(found(&format!("{body} {READ}")), (vec![], 0));
        // What depends on it, and what goes round.
        let body = "mov.u32 %r1, %clock; add.u32 %r2, %r1, 1; mov.u32 %r3, 5; mov.u32 %r4, 0; L: add.u32 %r4, %r4, %r3; setp.lt.u32 %p1, %r4, 9;";
        assert_eq!(found(&format!("{body} {READ} @%p1 bra L;")), (vec![3], 1));
        // What has no value on some way.
        let body = "setp.eq.u32 %p1, %r5, 0; @%p1 bra M; mov.u32 %r1, 1; M: mov.u32 %r2, %tid.x;";
        assert_eq!(found(&format!("{body} {READ}")), (vec![2], 1));
    }

    #[test]
    fn who_reads_such_a_register_first_is_no_statement_that_makes_it() {
        let body = "mov.b32 %r1, 0xffffffff; mov.u32 %r2, 1; mov.u32 %r3, 2; mov.u32 %r4, 3; bar.warp.sync %r1; bar.warp.sync %r1;";
        assert_eq!(found(&format!("{body} {READ}")), (vec![1, 2, 3, 4], 4));
    }

    #[test]
    fn what_takes_long_is_kept() {
        let sums = |count: usize| {
            let next = |n: usize| format!("add.u32 %r{}, %r{n}, {n};", n + 1);
            let sums: String = (1..=count).map(next).collect();
            found(&format!("mov.u32 %r1, %tid.x; {sums} bar.sync 0; st.shared.u32 [s], %r{};", count + 1)).1
        };
        assert_eq!(sums(MOST_INSTRUCTIONS - 1), MOST_INSTRUCTIONS);
        assert_eq!(sums(MOST_INSTRUCTIONS), 0);
    }
}
