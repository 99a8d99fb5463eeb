//! Which values of a kernel are the same in all lanes, which go up by a constant from lane to lane, and which are anything;
//! and where lanes may be apart.

use std::collections::{BTreeMap, HashMap};
use std::mem::offset_of;

use cranelift_codegen::ir::{Function, Inst, InstructionData, Opcode, Type, Value, ValueDef, types};

use super::flow::{Flow, Refusal, destinations};
use crate::abi;

/// What is known of a value's lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Nothing yet.
    Unknown,
    /// Lane `n` has the first lane's value and `n * step`. Where `guarded`, only if a flag says so that goes along.
    Affine { step: i64, guarded: bool },
    /// Anything.
    Varying,
}

/// The same in all lanes.
pub(super) const UNIFORM: Shape = Shape::Affine { step: 0, guarded: false };

impl Shape {
    fn meet(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, shape) | (shape, Self::Unknown) => shape,
            (Self::Affine { step: a, guarded: x }, Self::Affine { step: b, guarded: y }) if a == b => {
                Self::Affine { step: a, guarded: x || y }
            }
            _ => Self::Varying,
        }
    }
}

/// The threads that a value is looked at in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Span {
    /// A group, which goes through the kernel in step.
    Group,
    /// All threads of a block, as if they did: nothing but what is the same in all of them is told from what is not.
    Block,
}

/// What is known of the values in the threads' states, by their offsets there, and their types.
pub(super) type Cells = BTreeMap<i32, (Shape, Type)>;

/// See the module.
pub(super) struct Shapes {
    span: Span,
    shapes: HashMap<Value, Shape>,
    /// By block: whether some lanes may be there without others.
    pub partial: Vec<bool>,
    /// By block: whether lanes may come there by different edges at once, or at different times.
    pub joins: Vec<bool>,
    /// By loop: whether lanes may leave it at different times.
    pub apart: Vec<bool>,
    /// Values that are read outside of a loop which lanes leave at different times.
    pub escapes: HashMap<Value, bool>,
    uses: HashMap<Value, Vec<usize>>,
    /// How many bytes of state a thread has.
    pub state_bytes: u32,
    /// What is known of the values in the threads' states.
    pub cells: Cells,
}

/// The block in which a value is made; none for the function's first.
pub(super) fn home(func: &Function, flow: &Flow, value: Value) -> Option<usize> {
    let block = match func.dfg.value_def(value) {
        ValueDef::Result(inst, _) => func.layout.inst_block(inst)?,
        ValueDef::Param(block, _) => block,
        ValueDef::Union(..) => return None,
    };
    flow.index.get(&block).copied()
}

/// What field of the thread an access is to.
pub(super) fn thread_field(func: &Function, flow: &Flow, inst: Inst) -> Option<usize> {
    let InstructionData::Load { opcode: Opcode::Load, arg, offset, .. } = func.dfg.insts[inst] else {
        return None;
    };
    let offset = i64::from(i32::from(offset));
    (func.dfg.resolve_aliases(arg) == flow.thread).then(|| usize::try_from(offset).ok()).flatten()
}

/// Which word of an operation's operands an access is to, if it is to one: see [`abi::Block::words`].
pub(super) fn block_word(func: &Function, flow: &Flow, inst: Inst) -> Option<usize> {
    let (address, offset) = match func.dfg.insts[inst] {
        InstructionData::Load { opcode: Opcode::Load, arg, offset, .. } => (arg, offset),
        InstructionData::Store { opcode: Opcode::Store, args: [_, address], offset, .. } => (address, offset),
        _ => return None,
    };
    const WORDS: usize = offset_of!(abi::Block, words);
    let block = func.dfg.block_params(flow.entry)[2];
    let offset = usize::try_from(i32::from(offset)).ok()?.checked_sub(WORDS)? / 4;
    (func.dfg.resolve_aliases(address) == block && offset < abi::operands::WORDS).then_some(offset)
}

/// Whether a load is one of what never changes while a kernel runs.
fn is_constant_memory(func: &Function, inst: Inst) -> bool {
    matches!(func.dfg.insts[inst], InstructionData::Load { flags, .. } if func.dfg.mem_flags[flags].readonly())
}

/// Whether a value is the number of a thread in its row of the block, or in its warp.
fn is_number_of_thread(func: &Function, flow: &Flow, value: Value) -> bool {
    let ValueDef::Result(inst, _) = func.dfg.value_def(func.dfg.resolve_aliases(value)) else { return false };
    let field = thread_field(func, flow, inst);
    field == Some(offset_of!(abi::Thread, tid)) || field == Some(offset_of!(abi::Thread, lane))
}

/// Where in its state a thread keeps what it loads or stores.
pub(super) fn state_offset(func: &Function, flow: &Flow, inst: Inst) -> Option<i32> {
    let (address, offset) = match func.dfg.insts[inst] {
        InstructionData::Load { opcode: Opcode::Load, arg, offset, .. } => (arg, offset),
        InstructionData::Store { opcode: Opcode::Store, args: [_, address], offset, .. } => (address, offset),
        _ => return None,
    };
    let ValueDef::Result(made, _) = func.dfg.value_def(func.dfg.resolve_aliases(address)) else {
        return None;
    };
    (thread_field(func, flow, made) == Some(offset_of!(abi::Thread, state))).then(|| offset.into())
}

/// The number that a value always is.
pub(super) fn constant(func: &Function, value: Value) -> Option<i64> {
    let ValueDef::Result(inst, _) = func.dfg.value_def(func.dfg.resolve_aliases(value)) else { return None };
    match func.dfg.insts[inst] {
        InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits()),
        _ => None,
    }
}

impl Shapes {
    /// Looks at a kernel whose threads have so many bytes of state.
    pub(super) fn new(func: &Function, flow: &Flow, state_bytes: u32, span: Span) -> Result<Self, Refusal> {
        let count = flow.blocks.len();
        let mut uses: HashMap<Value, Vec<usize>> = HashMap::new();
        for (number, &block) in flow.blocks.iter().enumerate() {
            for inst in func.layout.block_insts(block) {
                // What goes along an edge is read where the edge begins.
                let given =
                    destinations(func, inst).unwrap_or_default().into_iter().flat_map(|(_, args)| args);
                let args = func.dfg.inst_args(inst).iter().map(|&value| func.dfg.resolve_aliases(value));
                for value in args.chain(given) {
                    uses.entry(value).or_default().push(number);
                }
            }
        }
        let mut shapes = Self {
            span,
            shapes: HashMap::new(),
            partial: vec![false; count],
            joins: vec![false; count],
            apart: vec![false; flow.loops.len()],
            escapes: HashMap::new(),
            uses,
            state_bytes,
            cells: BTreeMap::new(),
        };
        shapes.find_cells(func, flow)?;
        let thread = match span {
            Span::Group => Shape::Affine { step: size_of::<abi::Thread>() as i64, guarded: false },
            Span::Block => Shape::Varying,
        };
        shapes.shapes.insert(flow.thread, thread);
        loop {
            let changed = shapes.values(func, flow);
            if !shapes.spread(func, flow) && !changed {
                return Ok(shapes);
            }
        }
    }

    /// Finds the values that threads keep in their states. Each has its place for good.
    fn find_cells(&mut self, func: &Function, flow: &Flow) -> Result<(), Refusal> {
        for inst in flow.blocks.iter().flat_map(|&block| func.layout.block_insts(block)) {
            let Some(offset) = state_offset(func, flow, inst) else { continue };
            let ty = match func.dfg.insts[inst] {
                InstructionData::Store { args: [value, _], .. } => func.dfg.value_type(value),
                _ => func.dfg.value_type(func.dfg.first_result(inst)),
            };
            match self.cells.entry(offset).or_insert((Shape::Unknown, ty)) {
                (_, other) if *other == ty => {}
                // The same bits as another type: what is known of numbers does not hold for them.
                (shape, other) if other.bytes() == ty.bytes() => *shape = Shape::Varying,
                _ => return Err("a value of the state has two sizes".into()),
            }
        }
        let ends = self.cells.iter().map(|(&at, (_, ty))| at + ty.bytes() as i32);
        if ends.zip(self.cells.keys().skip(1)).any(|(end, &next)| end > next) {
            return Err("values of the state overlap".into());
        }
        Ok(())
    }

    /// Whether lanes leave a loop at different times on the way from a block to another one.
    pub(super) fn leaves_apart(&self, flow: &Flow, from: usize, to: usize) -> bool {
        let mut loops = flow.loops.iter().zip(&self.apart);
        loops.any(|(l, apart)| *apart && l.has[from] && !l.has[to])
    }

    /// What is known of a value.
    pub(super) fn of(&self, func: &Function, value: Value) -> Shape {
        let value = func.dfg.resolve_aliases(value);
        match func.dfg.value_def(value) {
            ValueDef::Result(inst, _) if is_constant(func.dfg.insts[inst].opcode()) => UNIFORM,
            _ => self.shapes.get(&value).copied().unwrap_or(Shape::Unknown),
        }
    }

    /// One round over all values; whether anything is known less well than before.
    fn values(&mut self, func: &Function, flow: &Flow) -> bool {
        let mut changed = false;
        // What is made before all threads is one for all.
        for inst in func.layout.block_insts(flow.entry) {
            for &value in func.dfg.inst_results(inst) {
                self.shapes.insert(value, UNIFORM);
            }
        }
        for &value in func.dfg.block_params(flow.entry) {
            self.shapes.insert(value, UNIFORM);
        }
        let mut given: HashMap<(usize, usize), Vec<(usize, Value)>> = HashMap::new();
        for (from, edges) in flow.edges.iter().enumerate() {
            for edge in edges {
                for (at, &value) in edge.args.iter().enumerate() {
                    given.entry((edge.to, at)).or_default().push((from, value));
                }
            }
        }
        for &number in &flow.order {
            let block = flow.blocks[number];
            for (at, &param) in func.dfg.block_params(block).iter().enumerate() {
                if param == flow.thread {
                    continue;
                }
                let given = given.get(&(number, at)).map_or(&[][..], |given| given);
                let same = given.windows(2).all(|pair| pair[0].1 == pair[1].1);
                let mut shape = Shape::Unknown;
                for &(from, value) in given {
                    shape = shape.meet(self.of(func, value));
                    let late = |(l, apart): (usize, &bool)| {
                        let has = &flow.loops[l].has;
                        *apart && has[from] && !has[number] && home(func, flow, value).is_some_and(|h| has[h])
                    };
                    if self.apart.iter().enumerate().any(late) {
                        shape = Shape::Varying;
                    }
                }
                if self.joins[number] && !same {
                    shape = Shape::Varying;
                }
                changed |= self.lower(flow, param, number, shape);
            }
            for inst in func.layout.block_insts(block) {
                if let InstructionData::Store { args: [value, _], .. } = func.dfg.insts[inst]
                    && let Some(offset) = state_offset(func, flow, inst)
                {
                    changed |= self.meet_cell(offset, self.of(func, value));
                }
                let shape = self.result(func, flow, inst);
                for &value in func.dfg.inst_results(inst) {
                    changed |= self.lower(flow, value, number, shape);
                }
            }
        }
        changed
    }

    /// A value of the state is known as well as all that is stored there.
    fn meet_cell(&mut self, offset: i32, shape: Shape) -> bool {
        let Some((old, _)) = self.cells.get_mut(&offset) else { return false };
        let new = old.meet(shape);
        std::mem::replace(old, new) != new
    }

    fn lower(&mut self, flow: &Flow, value: Value, block: usize, shape: Shape) -> bool {
        let mut shape = shape;
        let mut uses = self.uses.get(&value).into_iter().flatten();
        if uses.any(|&number| self.leaves_apart(flow, block, number)) {
            shape = Shape::Varying;
            self.escapes.insert(value, true);
        }
        let old = self.shapes.get(&value).copied().unwrap_or(Shape::Unknown);
        let new = old.meet(shape);
        self.shapes.insert(value, new);
        new != old
    }

    /// What is known of an instruction's result.
    fn result(&self, func: &Function, flow: &Flow, inst: Inst) -> Shape {
        let data = &func.dfg.insts[inst];
        let opcode = data.opcode();
        if is_constant(opcode) {
            return UNIFORM;
        }
        if let Some(field) = thread_field(func, flow, inst) {
            let ty = func.dfg.value_type(func.dfg.first_result(inst));
            // The executor calls the function for threads of one row of the block, which are to go on in the same place.
            const X: usize = offset_of!(abi::Thread, tid);
            const Y: usize = X + 4;
            const Z: usize = X + 8;
            const LANE: usize = offset_of!(abi::Thread, lane);
            const RESUME: usize = offset_of!(abi::Thread, resume);
            const STATE: usize = offset_of!(abi::Thread, state);
            // How often threads let others go first counts for nobody: the first lane counts for all.
            const FUEL: usize = offset_of!(abi::Thread, fuel);
            return match field {
                // Behind a cut, where threads go on is known.
                RESUME if self.span == Span::Block => UNIFORM,
                _ if self.span == Span::Block => Shape::Varying,
                X | LANE if ty == types::I32 => Shape::Affine { step: 1, guarded: false },
                Y | Z | RESUME | FUEL if ty == types::I32 => UNIFORM,
                STATE if ty == types::I64 => {
                    Shape::Affine { step: abi::state_stride(self.state_bytes) as i64, guarded: false }
                }
                _ => Shape::Varying,
            };
        }
        if opcode == Opcode::Load
            && let Some(offset) = state_offset(func, flow, inst)
        {
            return self.cells.get(&offset).map_or(Shape::Varying, |cell| cell.0);
        }
        if opcode == Opcode::Load && block_word(func, flow, inst).is_some() {
            return Shape::Varying;
        }
        let args: Vec<Shape> = func.dfg.inst_args(inst).iter().map(|&v| self.of(func, v)).collect();
        if opcode == Opcode::Load {
            // Groups come to it one after another: meanwhile others may have stored something there.
            if self.span == Span::Block && !is_constant_memory(func, inst) {
                return Shape::Varying;
            }
            return match args[0] {
                Shape::Unknown => Shape::Unknown,
                UNIFORM => UNIFORM,
                _ => Shape::Varying,
            };
        }
        if opcode.is_call() || opcode.can_load() || opcode.can_store() || opcode.other_side_effects() {
            return Shape::Varying;
        }
        if args.contains(&Shape::Unknown) {
            return Shape::Unknown;
        }
        if args.iter().all(|shape| *shape == UNIFORM) {
            return UNIFORM;
        }
        let results = func.dfg.inst_results(inst);
        let [result] = results else { return Shape::Varying };
        if !func.dfg.value_type(*result).is_int() {
            return Shape::Varying;
        }
        let wrap = |step: i64| match func.dfg.value_type(*result).bits() {
            64 => step,
            bits => step << (64 - bits) >> (64 - bits),
        };
        let affine = |shape: Shape| match shape {
            Shape::Affine { step, guarded } => Some((step, guarded)),
            _ => None,
        };
        let args: Option<Vec<(i64, bool)>> = args.into_iter().map(affine).collect();
        let Some(args) = args else { return Shape::Varying };
        let guarded = args.iter().any(|arg| arg.1);
        let by = |at: usize| constant(func, func.dfg.inst_args(inst)[at]);
        let step = match (opcode, &args[..]) {
            (Opcode::Iadd, [a, b]) => Some(a.0.wrapping_add(b.0)),
            (Opcode::Isub, [a, b]) => Some(a.0.wrapping_sub(b.0)),
            (Opcode::Ineg, [a]) => Some(a.0.wrapping_neg()),
            // Where all lanes have the one that goes up: what keeps an index inside mostly leaves it as it is.
            (Opcode::Smin | Opcode::Smax | Opcode::Umin | Opcode::Umax, [a, b]) if a.0 == 0 || b.0 == 0 => {
                return Shape::Affine { step: a.0.wrapping_add(b.0), guarded: true };
            }
            (Opcode::Ireduce, [a]) => Some(a.0),
            (Opcode::Imul, [a, b]) => match (by(0), by(1)) {
                (_, Some(times)) => Some(a.0.wrapping_mul(times)),
                (Some(times), _) => Some(b.0.wrapping_mul(times)),
                _ => None,
            },
            (Opcode::Ishl, [a, _]) => {
                let bits = u64::from(func.dfg.value_type(*result).bits());
                by(1).map(|by| a.0.wrapping_shl((by as u64 & (bits - 1)) as u32))
            }
            // The numbers of threads in their blocks are small.
            (Opcode::Uextend | Opcode::Sextend, [a]) => {
                let small = is_number_of_thread(func, flow, func.dfg.inst_args(inst)[0]);
                return Shape::Affine { step: a.0, guarded: !small };
            }
            _ => None,
        };
        match step {
            Some(step) => Shape::Affine { step: wrap(step), guarded },
            None => Shape::Varying,
        }
    }

    /// Finds out where lanes may be apart; whether they may be in more places than was known.
    fn spread(&mut self, func: &Function, flow: &Flow) -> bool {
        let before = (self.partial.clone(), self.joins.clone(), self.apart.clone(), self.cells.clone());
        let exit = flow.exit();
        for from in 0..flow.blocks.len() {
            let successors = flow.successors(from);
            let Some(last) = func.layout.last_inst(flow.blocks[from]) else { continue };
            let (InstructionData::Brif { arg, .. } | InstructionData::BranchTable { arg, .. }) =
                func.dfg.insts[last]
            else {
                continue;
            };
            // A branch of which nothing is known yet is looked at in a later round.
            if matches!(self.of(func, arg), UNIFORM | Shape::Unknown) {
                continue;
            }
            for (at, edge) in flow.edges[from].iter().enumerate() {
                // Two edges of one branch to the same block.
                if edge.to < exit && flow.edges[from][..at].iter().any(|other| other.to == edge.to) {
                    self.joins[edge.to] = true;
                }
            }
            let meet = flow.meet[from];
            let mut stack = successors.clone();
            let mut seen = vec![false; exit + 1];
            while let Some(block) = stack.pop() {
                if block == meet || block == exit || std::mem::replace(&mut seen[block], true) {
                    continue;
                }
                self.partial[block] = true;
                stack.extend(flow.successors(block));
            }
            self.stop_apart(flow, from);
            self.label(flow, successors.iter().map(|&to| (from, to)).collect());
            for (number, l) in flow.loops.iter().enumerate() {
                if !l.has[from] || meet < exit && l.has[meet] {
                    continue;
                }
                self.apart[number] = true;
                let mut exits = Vec::new();
                for block in (0..exit).filter(|&block| l.has[block]) {
                    exits.extend(
                        flow.successors(block)
                            .iter()
                            .filter(|&&to| to < exit && !l.has[to])
                            .map(|&to| (block, to)),
                    );
                }
                for &(_, to) in &exits {
                    self.joins[to] |= exits.iter().filter(|exit| exit.1 == to).count() > 1;
                }
                self.label(flow, exits);
            }
        }
        before != (self.partial.clone(), self.joins.clone(), self.apart.clone(), self.cells.clone())
    }

    /// Where lanes that leave a block by different edges come to cuts before they are together again, what one of them keeps in its state
    /// tells nothing of another's. Lanes that end on the way do not count: their group never goes on as one.
    fn stop_apart(&mut self, flow: &Flow, from: usize) {
        let exit = flow.exit();
        let Some(meet) = flow.meet_before_cut[from] else { return };
        let mut stack = flow.successors(from);
        let mut seen = vec![false; exit + 1];
        while let Some(block) = stack.pop() {
            let ends = block == meet || block == exit || flow.meet_before_cut[block].is_none();
            if ends || std::mem::replace(&mut seen[block], true) {
                continue;
            }
            if flow.cuts[block] {
                self.cells.values_mut().for_each(|cell| cell.0 = Shape::Varying);
                return;
            }
            stack.extend(flow.successors(block));
        }
    }

    /// Where those meet that have gone by different edges.
    fn label(&mut self, flow: &Flow, edges: Vec<(usize, usize)>) {
        let exit = flow.exit();
        let mut labels: Vec<Option<usize>> = vec![None; exit];
        // The labels that come to a loop's first block from inside.
        let mut around: HashMap<usize, usize> = HashMap::new();
        let mut first = flow.order.len();
        let mut arrive =
            |joins: &mut [bool], labels: &mut [Option<usize>], from: usize, to: usize, label: usize| {
                if to == exit {
                    return;
                }
                if flow.is_back(from, to) {
                    if *around.entry(to).or_insert(label) != label {
                        joins[to] = true;
                    }
                    return;
                }
                match labels[to] {
                    None => labels[to] = Some(label),
                    Some(other) if other != label => {
                        joins[to] = true;
                        labels[to] = Some(to);
                    }
                    Some(_) => {}
                }
            };
        for (from, to) in edges {
            arrive(&mut self.joins, &mut labels, from, to, to);
            if to < exit && !flow.is_back(from, to) {
                first = first.min(flow.place[to]);
            }
        }
        for &block in flow.order.iter().skip(first) {
            let Some(label) = labels[block] else { continue };
            for to in flow.successors(block) {
                arrive(&mut self.joins, &mut labels, block, to, label);
            }
        }
    }
}

/// Whether an instruction makes a constant.
pub(super) fn is_constant(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Iconst | Opcode::F32const | Opcode::F64const)
}
