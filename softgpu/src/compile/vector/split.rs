//! Gives each loop one beginning, by copying blocks.
//!
//! A thread that goes on behind a cut begins in the middle of the loops round it. Where such a loop can also be gone round without a cut (a loop round
//! one that has a barrier and may have no turns), it has several beginnings, and the lanes of a group cannot be kept together in it. What follows
//! on a beginning, as far as the loop's first block, is copied then, and whoever comes from outside goes through the copy: Hecht and Ullman's
//! node splitting ("Characterizations of Reducible Flow Graphs", 1974).

use std::collections::{HashMap, HashSet};

use cranelift_codegen::ir::{Block, BlockArg, Function, Inst, InstructionData, Value, ValueDef};

use super::flow::{Refusal, SEVERAL, destinations};

/// All copies of a function together have at most so many instructions.
const MOST_COPIED: usize = 4000;

/// The control flow of a function: its blocks by number, and where each leads.
struct Graph {
    blocks: Vec<Block>,
    index: HashMap<Block, usize>,
    after: Vec<Vec<usize>>,
    before: Vec<Vec<usize>>,
    /// How many instructions each has.
    sizes: Vec<usize>,
}

impl Graph {
    fn new(func: &Function) -> Result<Self, Refusal> {
        let blocks: Vec<Block> = func.layout.blocks().collect();
        let index: HashMap<Block, usize> = blocks.iter().enumerate().map(|(n, &block)| (block, n)).collect();
        let mut after = Vec::with_capacity(blocks.len());
        let mut before = vec![Vec::new(); blocks.len()];
        for (number, &block) in blocks.iter().enumerate() {
            let last = func.layout.last_inst(block).ok_or("an empty block")?;
            let mut to: Vec<usize> =
                destinations(func, last)?.iter().map(|(block, _)| index[block]).collect();
            to.sort_unstable();
            to.dedup();
            to.iter().for_each(|&to: &usize| before[to].push(number));
            after.push(to);
        }
        let sizes = blocks.iter().map(|&block| func.layout.block_insts(block).count()).collect();
        Ok(Self { blocks, index, after, before, sizes })
    }

    /// The parts of a set in which each node leads to each, without those that are one node which does not lead to itself (Tarjan's algorithm).
    fn cycles(&self, has: &[bool]) -> Vec<Vec<usize>> {
        let count = self.blocks.len();
        let (mut numbers, mut lowest) = (vec![0; count], vec![0; count]);
        let (mut is_open, mut open, mut next) = (vec![false; count], Vec::new(), 1);
        let mut found = Vec::new();
        for root in (0..count).filter(|&node| has[node]) {
            let mut calls = if numbers[root] == 0 { vec![(root, 0)] } else { Vec::new() };
            while let Some((node, at)) = calls.pop() {
                if at == 0 {
                    (numbers[node], lowest[node]) = (next, next);
                    next += 1;
                    open.push(node);
                    is_open[node] = true;
                }
                if let Some(&to) = self.after[node].get(at) {
                    calls.push((node, at + 1));
                    if has[to] && numbers[to] == 0 {
                        calls.push((to, 0));
                    } else if has[to] && is_open[to] {
                        lowest[node] = lowest[node].min(numbers[to]);
                    }
                    continue;
                }
                if let Some(&(caller, _)) = calls.last() {
                    lowest[caller] = lowest[caller].min(lowest[node]);
                }
                if lowest[node] == numbers[node] {
                    let first = open.iter().rposition(|&other| other == node).unwrap_or(0);
                    let part = open.split_off(first);
                    part.iter().for_each(|&node| is_open[node] = false);
                    if part.len() > 1 || self.after[node].contains(&node) {
                        found.push(part);
                    }
                }
            }
        }
        found
    }

    /// What is to be copied so that some loop of a set has fewer beginnings, and by node what that loop has: nothing where all have one.
    fn to_copy(&self, has: &[bool]) -> Option<(Vec<usize>, Vec<bool>)> {
        for cycle in self.cycles(has) {
            let mut inside = vec![false; self.blocks.len()];
            cycle.iter().for_each(|&node| inside[node] = true);
            let begins = |node: usize| self.before[node].iter().any(|&from| !inside[from]);
            let mut begins: Vec<usize> = cycle.iter().copied().filter(|&node| begins(node)).collect();
            begins.sort_unstable();
            if let [first] = begins[..] {
                inside[first] = false;
                if let Some(found) = self.to_copy(&inside) {
                    return Some(found);
                }
                continue;
            }
            let size = |set: &Vec<usize>| set.iter().map(|&node| self.sizes[node]).sum::<usize>();
            let nodes = begins.iter().map(|&first| self.behind(&begins, first, &inside)).min_by_key(size)?;
            return Some((nodes, inside));
        }
        None
    }

    /// What the other beginnings of a loop lead to in it without its first block.
    fn behind(&self, begins: &[usize], first: usize, inside: &[bool]) -> Vec<usize> {
        let mut left = inside.to_vec();
        left[first] = false;
        let mut open: Vec<usize> = begins.iter().copied().filter(|&node| node != first).collect();
        let mut found = Vec::new();
        while let Some(node) = open.pop() {
            if std::mem::replace(&mut left[node], false) {
                found.push(node);
                open.extend(&self.after[node]);
            }
        }
        found.sort_unstable();
        found
    }
}

/// A function that does what another does, in which each loop of a thread (the loop over threads begins with the block `header`) has one beginning.
pub(super) fn with_single_beginnings(func: &Function, header: Block) -> Result<Function, Refusal> {
    let mut func = func.clone();
    func.dfg.resolve_all_aliases();
    let mut copied = 0;
    loop {
        let mut graph = Graph::new(&func)?;
        // The loop over threads is none of a thread's.
        let header = graph.index[&header];
        graph.after.iter_mut().for_each(|to| to.retain(|&to| to != header));
        graph.before[header].clear();
        let all = vec![true; graph.blocks.len()];
        let Some((nodes, inside)) = graph.to_copy(&all) else { return Ok(func) };
        copied += nodes.iter().map(|&node| graph.sizes[node]).sum::<usize>();
        if copied > MOST_COPIED {
            return Err(SEVERAL.into());
        }
        copy(&mut func, &graph, &nodes, &inside)?;
    }
}

/// Copies blocks of a loop, which has those that are `inside`: who comes from outside of it goes through the copies.
fn copy(func: &mut Function, graph: &Graph, nodes: &[usize], inside: &[bool]) -> Result<(), Refusal> {
    let mut blocks: HashMap<Block, Block> = HashMap::new();
    let mut values: HashMap<Value, Value> = HashMap::new();
    for &node in nodes {
        let old = graph.blocks[node];
        let new = func.dfg.make_block();
        func.layout.append_block(new);
        blocks.insert(old, new);
        for param in func.dfg.block_params(old).to_vec() {
            let ty = func.dfg.value_type(param);
            values.insert(param, func.dfg.append_block_param(new, ty));
        }
    }
    let mut copies: Vec<Inst> = Vec::new();
    for &node in nodes {
        let old = graph.blocks[node];
        for inst in func.layout.block_insts(old).collect::<Vec<_>>() {
            let new = func.dfg.clone_inst(inst);
            if let InstructionData::BranchTable { table, .. } = func.dfg.insts[inst] {
                // The edges of a table lie elsewhere, where those of its clone would lie, too.
                let mut own = func.dfg.jump_tables[table].clone();
                for call in own.all_branches_mut() {
                    *call = call.deep_clone(&mut func.dfg.value_lists);
                }
                let own = func.dfg.jump_tables.push(own);
                if let InstructionData::BranchTable { table, .. } = &mut func.dfg.insts[new] {
                    *table = own;
                }
            }
            func.layout.append_inst(new, blocks[&old]);
            func.srclocs[new] = func.srclocs[inst];
            let results = func.dfg.inst_results(inst).to_vec().into_iter();
            values.extend(results.zip(func.dfg.inst_results(new).to_vec()));
            copies.push(new);
        }
    }
    for &inst in &copies {
        func.dfg.map_inst_values(inst, |value| values.get(&value).copied().unwrap_or(value));
        lead_to(func, inst, &blocks);
    }
    for (node, &block) in graph.blocks.iter().enumerate() {
        if !inside[node]
            && let Some(last) = func.layout.last_inst(block)
        {
            lead_to(func, last, &blocks);
        }
    }
    let originals: HashSet<Block> = blocks.keys().copied().collect();
    let both: HashSet<Block> = blocks.iter().flat_map(|(&old, &new)| [old, new]).collect();
    // What was made in one of the blocks, and is read elsewhere, may come from the copy.
    let mut travels: Vec<Value> = Vec::new();
    for block in func.layout.blocks().filter(|block| !both.contains(block)) {
        let read = func.layout.block_insts(block).flat_map(|inst| func.dfg.inst_values(inst));
        travels.extend(read.filter(|&value| originals.contains(&block_of(func, value))));
    }
    travels.sort_unstable();
    travels.dedup();
    let graph = Graph::new(func)?;
    for value in travels {
        let home = block_of(func, value);
        join(
            func,
            &graph,
            (graph.index[&home], value),
            (graph.index[&blocks[&home]], values[&value]),
            &both,
        )?;
    }
    Ok(())
}

/// Has the end of a block lead to copies.
fn lead_to(func: &mut Function, last: Inst, blocks: &HashMap<Block, Block>) {
    let dfg = &mut func.dfg;
    for call in dfg.insts[last].branch_destination_mut(&mut dfg.jump_tables, &mut dfg.exception_tables) {
        let to = call.block(&dfg.value_lists);
        if let Some(&new) = blocks.get(&to) {
            call.set_block(new, &mut dfg.value_lists);
        }
    }
}

/// The block in which a value is made.
fn block_of(func: &Function, value: Value) -> Block {
    match func.dfg.value_def(value) {
        ValueDef::Param(block, _) => block,
        ValueDef::Result(inst, _) => func.layout.inst_block(inst).unwrap_or_else(|| unreachable!()),
        ValueDef::Union(..) => unreachable!("only while Cranelift optimises"),
    }
}

/// Which of two values comes to a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comes {
    /// Neither, as far as is known.
    Neither,
    One(Value),
    /// One or the other: a parameter of this block.
    Parameter(usize),
}

/// Has those who read a value, outside of the blocks that were copied (`both`), read the copy's where they come from there. Each of the two is given
/// with the block that makes it.
fn join(
    func: &mut Function,
    graph: &Graph,
    original: (usize, Value),
    copy: (usize, Value),
    both: &HashSet<Block>,
) -> Result<(), Refusal> {
    let count = graph.blocks.len();
    let mut comes = vec![Comes::Neither; count];
    let leaves = |comes: &[Comes], node: usize| match node {
        node if node == original.0 => Comes::One(original.1),
        node if node == copy.0 => Comes::One(copy.1),
        node => comes[node],
    };
    let mut changed = true;
    while changed {
        changed = false;
        for node in 0..count {
            if matches!(comes[node], Comes::Parameter(_)) {
                continue;
            }
            let mut now = Comes::Neither;
            for &from in &graph.before[node] {
                now = match (now, leaves(&comes, from)) {
                    (now, Comes::Neither) => now,
                    (Comes::Neither, other) => other,
                    (now, other) if now == other => now,
                    _ => Comes::Parameter(node),
                };
            }
            changed |= comes[node] != now;
            comes[node] = now;
        }
    }
    let ty = func.dfg.value_type(original.1);
    let mut parameters: HashMap<usize, Value> = HashMap::new();
    let mut open = Vec::new();
    // What is read at a place, for which a parameter may be needed.
    let mut find = |func: &mut Function, open: &mut Vec<usize>, found: Comes| match found {
        Comes::Neither => Err(Refusal::from("a value that is not made on every way")),
        Comes::One(value) => Ok(value),
        Comes::Parameter(node) => Ok(*parameters.entry(node).or_insert_with(|| {
            open.push(node);
            func.dfg.append_block_param(graph.blocks[node], ty)
        })),
    };
    for (node, &block) in graph.blocks.iter().enumerate().filter(|(_, block)| !both.contains(block)) {
        for inst in func.layout.block_insts(block).collect::<Vec<_>>() {
            if func.dfg.inst_values(inst).any(|value| value == original.1) {
                let new = find(func, &mut open, comes[node])?;
                func.dfg.map_inst_values(inst, |value| if value == original.1 { new } else { value });
            }
        }
    }
    while let Some(node) = open.pop() {
        let to = graph.blocks[node];
        for &from in &graph.before[node] {
            let given = find(func, &mut open, leaves(&comes, from))?;
            let last = func.layout.last_inst(graph.blocks[from]).ok_or("an empty block")?;
            let dfg = &mut func.dfg;
            for call in
                dfg.insts[last].branch_destination_mut(&mut dfg.jump_tables, &mut dfg.exception_tables)
            {
                if call.block(&dfg.value_lists) == to {
                    call.append_argument(BlockArg::Value(given), &mut dfg.value_lists);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cranelift_codegen::ir::{AbiParam, InstBuilder, Opcode, Signature, types};
    use cranelift_codegen::isa::CallConv;
    use cranelift_codegen::settings;
    use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};

    use super::*;

    /// Numbers that look random.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % end
        }
    }

    /// A function of one number whose control flow is random, and the block that its entry leads to. A counter ends it.
    fn made(random: &mut Random) -> (Function, Block) {
        const VARIABLES: usize = 4;
        let mut func = Function::new();
        func.signature = Signature::new(CallConv::SystemV);
        func.signature.params.push(AbiParam::new(types::I64));
        func.signature.returns.push(AbiParam::new(types::I64));
        let mut context = FunctionBuilderContext::new();
        let mut b = FunctionBuilder::new(&mut func, &mut context);
        let (entry, header, end) = (b.create_block(), b.create_block(), b.create_block());
        let blocks: Vec<Block> = (0..random.below(14) + 3).map(|_| b.create_block()).collect();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        let variables: Vec<Variable> = (0..VARIABLES).map(|_| b.declare_var(types::I64)).collect();
        let given = b.block_params(entry)[0];
        for (n, &variable) in variables.iter().enumerate() {
            let first = b.ins().iadd_imm_s(given, n as i64);
            b.def_var(variable, first);
        }
        b.ins().jump(header, &[]);
        b.switch_to_block(header);
        b.ins().jump(blocks[0], &[]);
        for &block in &blocks {
            b.switch_to_block(block);
            for _ in 0..random.below(3) {
                let (to, from) = (random.below(VARIABLES), random.below(VARIABLES));
                let [x, y] = [to, from].map(|n| b.use_var(variables[n]));
                let product = b.ins().imul_imm_s(x, 2 * random.below(50) as i64 + 1);
                let sum = b.ins().iadd(product, y);
                b.def_var(variables[to], sum);
            }
            let to: Vec<Block> = (0..3)
                .map(|_| if random.below(6) == 0 { end } else { blocks[random.below(blocks.len())] })
                .collect();
            let tested = b.use_var(variables[random.below(VARIABLES)]);
            let bits = b.ins().ushr_imm_u(tested, random.below(8) as i64);
            if random.below(4) == 0 {
                let index = b.ins().band_imm_u(bits, 3);
                let index = b.ins().ireduce(types::I32, index);
                let calls: Vec<_> = to.iter().map(|&to| b.func.dfg.block_call(to, &[])).collect();
                let table = cranelift_codegen::ir::JumpTableData::new(calls[0], &calls[1..]);
                let table = b.create_jump_table(table);
                b.ins().br_table(index, table);
            } else {
                let bit = b.ins().band_imm_u(bits, 1);
                b.ins().brif(bit, to[0], &[], to[1], &[]);
            }
        }
        b.switch_to_block(end);
        let all: Vec<Value> = variables.iter().map(|&variable| b.use_var(variable)).collect();
        let result = all[1..].iter().fold(all[0], |sum, &value| {
            let sum = b.ins().imul_imm_s(sum, 31);
            b.ins().iadd(sum, value)
        });
        b.ins().return_(&[result]);
        b.seal_all_blocks();
        b.finalize(crate::compile::code::target().unwrap().frontend_config());
        (func, header)
    }

    /// What a function makes of a number; none if that takes long.
    fn run(func: &Function, given: i64) -> Option<i64> {
        let mut known: HashMap<Value, i64> = HashMap::new();
        let mut block = func.layout.entry_block()?;
        known.insert(func.dfg.block_params(block)[0], given);
        for _ in 0..200 {
            for inst in func.layout.block_insts(block) {
                let of = |known: &HashMap<Value, i64>, value| known[&func.dfg.resolve_aliases(value)];
                let args: Vec<i64> =
                    func.dfg.inst_args(inst).iter().map(|&value| of(&known, value)).collect();
                let data = &func.dfg.insts[inst];
                let made = match (data.opcode(), &args[..]) {
                    (Opcode::Iconst, _) => match *data {
                        InstructionData::UnaryImm { imm, .. } => imm.bits(),
                        _ => unreachable!(),
                    },
                    (Opcode::Iadd, &[a, b]) => a.wrapping_add(b),
                    (Opcode::Imul, &[a, b]) => a.wrapping_mul(b),
                    (Opcode::Band, &[a, b]) => a & b,
                    (Opcode::Ushr, &[a, b]) => (a as u64 >> (b & 63)) as i64,
                    (Opcode::Ireduce, &[a]) => i64::from(a as i32),
                    (Opcode::Return, &[a]) => return Some(a),
                    (opcode, _) if opcode.is_branch() => {
                        let to = destinations(func, inst).unwrap();
                        let taken = match opcode {
                            Opcode::Jump => 0,
                            Opcode::Brif => usize::from(args[0] == 0),
                            _ => Some(1 + args[0] as usize).filter(|&n| n < to.len()).unwrap_or(0),
                        };
                        let (next, given) = &to[taken];
                        let given: Vec<i64> = given.iter().map(|&value| of(&known, value)).collect();
                        known.extend(func.dfg.block_params(*next).iter().copied().zip(given));
                        block = *next;
                        break;
                    }
                    (opcode, _) => unreachable!("{opcode}"),
                };
                known.insert(func.dfg.inst_results(inst)[0], made);
            }
        }
        None
    }

    #[test]
    fn whatever_the_control_flow_loops_get_one_beginning_and_results_stay() {
        let flags = settings::Flags::new(settings::builder());
        let mut random = Random(1);
        let (mut had_several, mut ended, mut refused) = (0, 0, 0);
        for _ in 0..2000 {
            let (func, header) = made(&mut random);
            let several = |func: &Function| {
                Graph::new(func).unwrap().to_copy(&vec![true; func.layout.blocks().count()])
            };
            let Ok(split) = with_single_beginnings(&func, header) else {
                refused += 1;
                continue;
            };
            assert_eq!(several(&split), None, "{}", split.display());
            cranelift_codegen::verify_function(&split, &flags).unwrap();
            had_several += usize::from(several(&func).is_some());
            for _ in 0..8 {
                let given = random.below(1 << 20) as i64;
                let result = run(&func, given);
                ended += usize::from(result.is_some());
                assert_eq!(run(&split, given), result, "{given}\n{}\n{}", func.display(), split.display());
            }
        }
        assert!(had_several > 300 && ended > 3000 && refused == 0, "{had_several} {ended} {refused}");
    }
}
