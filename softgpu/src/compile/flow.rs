//! The control flow of a body: basic blocks, what is live where, and which loops may be waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::op::{Control, MbarrierOp, MemoryTarget, Op};
use super::vars::{Home, Vars};
use rgpu_image::ptx::ast::{AddressBase, Function, Instruction, LabelId, Operand, RegId, Statement, Symbol};

/// Fuel of a thread between two yields, in loops that may be waiting.
pub(super) const FUEL: i64 = 256;

/// A straight run of statements.
#[derive(Debug, Clone, Default)]
pub(super) struct Block {
    /// Index of its first statement.
    pub first: usize,
    /// One past its last statement.
    pub end: usize,
    /// Blocks that may follow, without repetitions.
    pub successors: Vec<usize>,
    /// Whether its last statement is a cut.
    pub cut: bool,
}

/// The blocks of a body, and where labels lead.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// In the order of the text; the first one is the entry.
    pub blocks: Vec<Block>,
    /// The block that each label begins.
    pub labels: Vec<usize>,
}

impl Flow {
    /// Splits a body into blocks.
    pub(super) fn new(function: &Function, ops: &[Op]) -> Flow {
        let body = &function.body;
        let mut flow = Flow { blocks: Vec::new(), labels: vec![usize::MAX; function.labels as usize] };
        let mut first = 0;
        let mut at = 0;
        while at < body.len() {
            match &body[at] {
                Statement::Label(label) => {
                    // Several labels may begin one block: behind an instruction a label begins another.
                    let only_labels = at == first || matches!(body[at - 1], Statement::Label(_));
                    if !only_labels {
                        flow.blocks.push(Block { first, end: at, ..Block::default() });
                        first = at;
                    }
                    flow.labels[label.0 as usize] = flow.blocks.len();
                    at += 1;
                }
                Statement::Instruction(instruction) => {
                    let op = &ops[instruction.form.0 as usize];
                    at += 1;
                    let control = op.traits().control;
                    let ends = match control {
                        Control::Branch | Control::Cut => true,
                        Control::End => instruction.guard.is_none(),
                        Control::Next => false,
                    };
                    if ends {
                        let cut = control == Control::Cut;
                        flow.blocks.push(Block { first, end: at, cut, ..Block::default() });
                        first = at;
                    }
                }
            }
        }
        // What follows the last statement is the function's end.
        flow.blocks.push(Block { first, end: body.len(), ..Block::default() });
        for index in 0..flow.blocks.len() {
            flow.blocks[index].successors = flow.successors(index, function, ops);
        }
        flow
    }

    fn successors(&self, index: usize, function: &Function, ops: &[Op]) -> Vec<usize> {
        let mut successors = Vec::new();
        if let Some(last) = self.last(index, function)
            && ops[last.form.0 as usize].traits().control == Control::Branch
        {
            let target = match last.operands.first() {
                Some(Operand::Label(label)) => Some(*label),
                _ => None,
            };
            let targets = target.iter().chain(branch_targets(function, &last.operands));
            successors.extend(targets.map(|label| self.labels[label.0 as usize]));
        }
        if index + 1 < self.blocks.len() && self.falls(index, function, ops) {
            successors.push(index + 1);
        }
        successors.sort_unstable();
        successors.dedup();
        successors
    }

    /// The last instruction of a block.
    pub(super) fn last<'a>(&self, index: usize, function: &'a Function) -> Option<&'a Instruction> {
        let block = &self.blocks[index];
        match function.body[block.first..block.end].last() {
            Some(Statement::Instruction(last)) => Some(last),
            _ => None,
        }
    }

    /// Whether threads may go on from the end of a block with what stands behind it in the text.
    pub(super) fn falls(&self, index: usize, function: &Function, ops: &[Op]) -> bool {
        self.last(index, function).is_none_or(|last| match ops[last.form.0 as usize].traits().control {
            Control::Branch | Control::End => last.guard.is_some(),
            Control::Next | Control::Cut => true,
        })
    }

    /// The blocks of all loops, by the block that each turn begins with: jumps back to one block are one loop.
    pub(super) fn loops(&self) -> BTreeMap<usize, BTreeSet<usize>> {
        let predecessors = self.predecessors();
        let mut loops: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (tail, head) in self.back_edges() {
            loops.entry(head).or_default().extend(self.loop_blocks((tail, head), &predecessors));
        }
        loops
    }

    /// Edges that lead back to a block from which their start was reached, found depth-first from the
    /// entry.
    pub(super) fn back_edges(&self) -> Vec<(usize, usize)> {
        let mut edges = Vec::new();
        // 0: not seen, 1: on the path, 2: done.
        let mut state = vec![0u8; self.blocks.len()];
        let mut path = vec![(0usize, 0usize)];
        state[0] = 1;
        while let Some((block, child)) = path.last_mut() {
            let block = *block;
            if let Some(&next) = self.blocks[block].successors.get(*child) {
                *child += 1;
                match state[next] {
                    0 => {
                        state[next] = 1;
                        path.push((next, 0));
                    }
                    1 => edges.push((block, next)),
                    _ => {}
                }
            } else {
                state[block] = 2;
                path.pop();
            }
        }
        edges
    }

    /// The blocks of the loop that a back edge closes.
    pub(super) fn loop_blocks(
        &self,
        (tail, head): (usize, usize),
        predecessors: &[Vec<usize>],
    ) -> Vec<usize> {
        let mut inside = vec![false; self.blocks.len()];
        inside[head] = true;
        let mut members = vec![head];
        let mut work = vec![tail];
        while let Some(block) = work.pop() {
            if !std::mem::replace(&mut inside[block], true) {
                members.push(block);
                work.extend(&predecessors[block]);
            }
        }
        members
    }

    pub(super) fn predecessors(&self) -> Vec<Vec<usize>> {
        let mut predecessors = vec![Vec::new(); self.blocks.len()];
        for (index, block) in self.blocks.iter().enumerate() {
            for &successor in &block.successors {
                predecessors[successor].push(index);
            }
        }
        predecessors
    }

    /// Back edges of loops that may be waiting for another thread, with how much of the thread's fuel a
    /// turn takes: much where the loop does nothing but look, and all of it where it looks at a barrier, which nobody does but to wait.
    pub(super) fn waiting_edges(
        &self,
        function: &Function,
        ops: &[Op],
        observes: impl Fn(&Instruction, &Op) -> bool,
    ) -> HashMap<(usize, usize), i64> {
        let observing: Vec<bool> = self
            .blocks
            .iter()
            .map(|block| instructions(function, block).any(|i| observes(i, &ops[i.form.0 as usize])))
            .collect();
        let mut edges = HashMap::new();
        if !observing.contains(&true) {
            return edges;
        }
        let predecessors = self.predecessors();
        for edge in self.back_edges() {
            let members = self.loop_blocks(edge, &predecessors);
            if !members.iter().any(|&m| observing[m]) {
                continue;
            }
            let any = |is: fn(&Op) -> bool| {
                let all = members.iter().flat_map(|&m| instructions(function, &self.blocks[m]));
                all.into_iter().any(|i| is(&ops[i.form.0 as usize]))
            };
            let works = any(|op| {
                matches!(op, Op::St { place: MemoryTarget::Generic | MemoryTarget::Local, .. } | Op::Call)
            });
            // A loop that also arrives does something in each turn.
            let looks_at_barrier = || {
                any(|op| matches!(op, Op::Mbarrier { op: MbarrierOp::Test { .. }, .. }))
                    && !any(|op| matches!(op, Op::Mbarrier { op: MbarrierOp::Arrive { .. }, .. }))
            };
            edges.insert(
                edge,
                match works {
                    true => 1,
                    false if looks_at_barrier() => FUEL,
                    false => 8,
                },
            );
        }
        edges
    }
}

/// The instructions of a block.
pub(super) fn instructions<'a>(
    function: &'a Function,
    block: &Block,
) -> impl Iterator<Item = &'a Instruction> {
    function.body[block.first..block.end].iter().filter_map(|statement| match statement {
        Statement::Instruction(instruction) => Some(instruction),
        Statement::Label(_) => None,
    })
}

/// Where a `brx.idx` may lead.
pub(super) fn branch_targets<'a>(function: &'a Function, operands: &[Operand]) -> &'a [LabelId] {
    match operands.get(1) {
        Some(Operand::BranchTable(table)) => &function.branch_tables[*table as usize],
        _ => &[],
    }
}

/// What an instruction does to a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Use,
    Define,
}

/// Tells every register that an instruction reads or writes. Registers are numbered as in [`Vars`].
pub(super) fn visit(instruction: &Instruction, op: &Op, vars: &Vars, f: &mut dyn FnMut(u32, Access)) {
    if let Some(guard) = instruction.guard {
        f(guard.register.0, Access::Use);
    }
    let traits = op.traits();
    let (reads_carry, writes_carry) = traits.carry;
    if reads_carry {
        f(vars.carry, Access::Use);
    }
    if writes_carry {
        f(vars.carry, Access::Define);
    }
    if matches!(op, Op::Ret) {
        for home in &vars.returns {
            if let Home::Reg(reg) = home {
                f(*reg, Access::Use);
            }
        }
    }
    for (index, operand) in instruction.operands.iter().enumerate() {
        let defined = index == 0 && traits.has_result;
        let mut registers = |reg: RegId, access| f(reg.0, access);
        if defined && traits.reads_result {
            walk(operand, false, vars, &mut registers, false);
        }
        walk(operand, defined, vars, &mut registers, matches!(op, Op::St { .. }));
    }
}

/// How many instructions of a function write each register, by number.
pub(super) fn writes(function: &Function, ops: &[Op], vars: &Vars) -> Vec<u32> {
    let mut writes = vec![0; vars.types.len()];
    for statement in &function.body {
        let Statement::Instruction(instruction) = statement else { continue };
        visit(instruction, &ops[instruction.form.0 as usize], vars, &mut |register, access| {
            if access == Access::Define {
                writes[register as usize] += 1;
            }
        });
    }
    writes
}

fn walk(operand: &Operand, defined: bool, vars: &Vars, f: &mut dyn FnMut(RegId, Access), store: bool) {
    let access = if defined { Access::Define } else { Access::Use };
    match operand {
        Operand::Reg(reg) | Operand::NotReg(reg) | Operand::Part(reg, _) => f(*reg, access),
        Operand::Address(AddressBase::Reg(reg), _) => f(*reg, Access::Use),
        Operand::Address(AddressBase::Symbol(symbol), _) => {
            if let Some(Home::Reg(reg)) = vars.home(*symbol) {
                // `st.param` into a promoted parameter is an assignment.
                f(RegId(*reg), if store { Access::Define } else { Access::Use });
            } else if let Some(Home::Pointer(reg)) = vars.home(*symbol) {
                f(RegId(*reg), Access::Use);
            }
        }
        Operand::Symbol(symbol, _) => match vars.home(*symbol) {
            Some(Home::Reg(reg)) => f(RegId(*reg), access),
            Some(Home::Pointer(reg)) => f(RegId(*reg), Access::Use),
            _ => {}
        },
        Operand::Bracket(list) => list.iter().for_each(|o| walk(o, false, vars, f, store)),
        Operand::Vector(list) | Operand::List(list) => {
            list.iter().for_each(|o| walk(o, defined, vars, f, store));
        }
        Operand::Pair(pair) => {
            walk(&pair.0, defined, vars, f, store);
            walk(&pair.1, defined, vars, f, store);
        }
        _ => {}
    }
}

/// Which registers are live at the beginning of each block.
pub(super) struct Liveness {
    words: usize,
    live_in: Vec<u64>,
    /// Read in each block before it is written there.
    used: Vec<u64>,
    /// Written in each block, whatever guards say.
    defined: Vec<u64>,
}

impl Liveness {
    /// Computes it backwards to a fixed point.
    pub(super) fn new(flow: &Flow, function: &Function, ops: &[Op], vars: &Vars) -> Liveness {
        let words = vars.types.len().div_ceil(64);
        let count = flow.blocks.len();
        let mut used = vec![0u64; words * count];
        let mut defined = vec![0u64; words * count];
        for (index, block) in flow.blocks.iter().enumerate() {
            let used = &mut used[index * words..(index + 1) * words];
            let defined = &mut defined[index * words..(index + 1) * words];
            let falls_off = block.end == function.body.len() && index + 1 == count;
            for instruction in instructions(function, block) {
                let op = &ops[instruction.form.0 as usize];
                let guarded = instruction.guard.is_some();
                visit(instruction, op, vars, &mut |reg, access| {
                    let (word, bit) = (reg as usize / 64, 1u64 << (reg % 64));
                    if access == Access::Use && defined[word] & bit == 0 {
                        used[word] |= bit;
                    }
                });
                visit(instruction, op, vars, &mut |reg, access| {
                    let (word, bit) = (reg as usize / 64, 1u64 << (reg % 64));
                    if access == Access::Define && !guarded {
                        defined[word] |= bit;
                    } else if access == Access::Define && defined[word] & bit == 0 {
                        // Keeps its old value when the guard does not hold.
                        used[word] |= bit;
                    }
                });
            }
            if falls_off {
                for home in &vars.returns {
                    if let Home::Reg(reg) = home {
                        let (word, bit) = (*reg as usize / 64, 1u64 << (reg % 64));
                        if defined[word] & bit == 0 {
                            used[word] |= bit;
                        }
                    }
                }
            }
        }
        let mut live_in = used.clone();
        let mut changed = true;
        while changed {
            changed = false;
            for index in (0..count).rev() {
                for &successor in &flow.blocks[index].successors {
                    for word in 0..words {
                        let incoming = live_in[successor * words + word] & !defined[index * words + word];
                        let slot = &mut live_in[index * words + word];
                        if incoming & !*slot != 0 {
                            *slot |= incoming;
                            changed = true;
                        }
                    }
                }
            }
        }
        Liveness { words, live_in, used, defined }
    }

    /// How many words a set of registers has.
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// What a block reads before it writes it, and what it writes in any case.
    pub(super) fn summary(&self, block: usize) -> (&[u64], &[u64]) {
        let range = block * self.words..(block + 1) * self.words;
        (&self.used[range.clone()], &self.defined[range])
    }

    /// How many registers are live at the beginning of a block, over all blocks.
    pub(super) fn total(&self) -> u64 {
        self.live_in.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The registers that are live at the beginning of a block, in order.
    pub(super) fn at(&self, block: usize) -> Vec<u32> {
        let mut registers = Vec::new();
        for (index, &word) in self.live_in[block * self.words..(block + 1) * self.words].iter().enumerate() {
            let mut word = word;
            while word != 0 {
                registers.push(index as u32 * 64 + word.trailing_zeros());
                word &= word - 1;
            }
        }
        registers
    }
}

/// Whether any instruction of a body reads the register.
pub(super) fn read_registers(function: &Function, ops: &[Op], vars: &Vars) -> Vec<bool> {
    let mut read = vec![false; vars.types.len()];
    for statement in &function.body {
        if let Statement::Instruction(instruction) = statement {
            let op = &ops[instruction.form.0 as usize];
            visit(instruction, op, vars, &mut |reg, access| {
                if access == Access::Use {
                    read[reg as usize] = true;
                }
            });
        }
    }
    read
}

/// Calls `f` with each symbol that an operand names.
pub(super) fn symbols(operand: &Operand, f: &mut dyn FnMut(Symbol)) {
    match operand {
        Operand::Address(AddressBase::Symbol(symbol), _) | Operand::Symbol(symbol, _) => f(*symbol),
        Operand::Bracket(list) | Operand::Vector(list) | Operand::List(list) => {
            list.iter().for_each(|o| symbols(o, f));
        }
        Operand::Pair(pair) => {
            symbols(&pair.0, f);
            symbols(&pair.1, f);
        }
        _ => {}
    }
}
