//! What a program computes, found by going through it with all threads of a block in step.

use super::layout::{self, ALL, COUNTER_AT, LOCAL_AT, THREADS};
use super::module;
use super::ops::{self, Class};
use super::program::{
    COUNTER_BYTES, COUNTER_START, COUNTERS, Condition, Guard, MOVED, OWN_ATOMICS, Program, REDUCTIONS,
    SHUFFLES, Space, Statement, Turns, Uniform, VOTES, Value,
};
use super::write::Used;

/// What a launch is given.
pub(super) struct Launch {
    pub grid: u32,
    pub block: [u32; 3],
    /// The 256 numbers that are only read, and then what each thread begins with.
    pub input: Vec<u8>,
    /// Each thread's own part of global memory.
    pub own: Vec<u8>,
    /// The kernel's parameters.
    pub n: u32,
    pub wide: u64,
    pub extra: [u8; 64],
}

/// What it leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Left {
    pub records: Vec<u8>,
    pub own: Vec<u8>,
    pub counters: Vec<u8>,
}

/// Why a thread does nothing now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Away {
    Exited,
    Returned,
    /// It has left the wild loop with this number.
    Left(usize),
    /// It goes on with the next round of it.
    Again(usize),
}

/// The registers of one thread in one function.
#[derive(Clone)]
struct Thread {
    registers: [[u64; 6]; 7],
    local: [u8; 64],
    away: Option<Away>,
    returned: u64,
}

impl Thread {
    fn value(&self, value: Value) -> u64 {
        match value {
            Value::Register(class, number) => self.registers[class as usize][number],
            Value::Constant(_, bits) => bits,
        }
    }

    fn set(&mut self, class: Class, number: usize, value: u64) {
        self.registers[class as usize][number] = class.canonical(value);
    }

    fn v(&mut self, number: usize, value: u32) {
        self.set(Class::V, number, u64::from(value));
    }

    fn condition(&self, condition: Condition) -> bool {
        match condition {
            Condition::Less(a, b, negated) => (self.value(a) < self.value(b)) != negated,
            Condition::Predicate(p, negated) => self.guarded(Some((p, negated))),
        }
    }

    fn guarded(&self, guard: Guard) -> bool {
        guard.is_none_or(|(p, negated)| (self.registers[Class::P as usize][p] != 0) != negated)
    }
}

/// What a block shares.
struct Memory {
    place: Vec<u32>,
    parts: Vec<[u8; 32]>,
    counters: Vec<u8>,
}

struct Machine<'a> {
    program: &'a Program,
    launch: &'a Launch,
    number: u32,
    count: usize,
    memory: Memory,
    own: &'a mut [u8],
    global: &'a mut [u8],
    /// How many wild loops there are around.
    wild: usize,
}

fn read(bytes: &[u8], at: usize, size: usize) -> u64 {
    (0..size).fold(0, |all, n| all | u64::from(bytes[at + n]) << (8 * n))
}

fn write_to(bytes: &mut [u8], at: usize, size: usize, value: u64) {
    bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
}

fn inc(old: u32, limit: u32) -> u32 {
    if old >= limit { 0 } else { old + 1 }
}

fn dec(old: u32, limit: u32) -> u32 {
    if old == 0 || old > limit { limit } else { old - 1 }
}

/// The threads that are somewhere.
type Here = Vec<bool>;

impl Machine<'_> {
    fn run(&mut self, threads: &mut Vec<Thread>, statements: &[Statement], here: &Here) {
        for statement in statements {
            self.step(threads, statement, here);
        }
    }

    fn step(&mut self, threads: &mut Vec<Thread>, statement: &Statement, here: &Here) {
        use Statement as S;
        let active: Here = threads.iter().zip(here).map(|(t, here)| *here && t.away.is_none()).collect();
        let each = |threads: &mut Vec<Thread>, action: &mut dyn FnMut(usize, &mut Thread)| {
            for (index, thread) in threads.iter_mut().enumerate() {
                if active[index] {
                    action(index, thread);
                }
            }
        };
        match statement {
            S::Compute { op, to, args, guard } => {
                let row = &ops::all()[*op];
                each(threads, &mut |_, t| {
                    if t.guarded(*guard) {
                        let mut values = [0; 4];
                        args.iter().zip(&mut values).for_each(|(&arg, value)| *value = t.value(arg));
                        t.set(row.result, *to, (row.eval)(&values[..args.len()]));
                    }
                });
            }
            S::Approximate { .. } => {}
            S::Access { store, space, moved, regs, index, guard, .. } => {
                let row = &MOVED[*moved];
                let size = row.bytes * regs.len();
                let number = self.number as usize * self.count;
                for thread in 0..threads.len() {
                    let t = &mut threads[thread];
                    if !active[thread] || !t.guarded(*guard) {
                        continue;
                    }
                    let at =
                        (t.value(*index) as u32).wrapping_mul(size as u32) as usize & (space.bytes() - 1);
                    let mut memory: Vec<u8> = match space {
                        Space::Local => t.local.to_vec(),
                        Space::Own => self.own[(number + thread) * 32..][..32].to_vec(),
                        Space::Shared => self.memory.parts[thread].to_vec(),
                        Space::Input => self.launch.input[..256].to_vec(),
                        Space::Constant => (0..256).map(layout::constant).collect(),
                        Space::Parameter => self.launch.extra.to_vec(),
                    };
                    for (lane, &register) in regs.iter().enumerate() {
                        let at = at + lane * row.bytes;
                        if *store {
                            let value = row.class.canonical(t.value(Value::Register(row.class, register)));
                            write_to(&mut memory, at, row.bytes, value);
                        } else {
                            let bits = read(&memory, at, row.bytes);
                            let shift = 64 - 8 * row.bytes;
                            let bits =
                                if row.signed { ((bits << shift) as i64 >> shift) as u64 } else { bits };
                            t.set(row.class, register, bits);
                        }
                    }
                    if *store {
                        match space {
                            Space::Local => t.local.copy_from_slice(&memory),
                            Space::Own => self.own[(number + thread) * 32..][..32].copy_from_slice(&memory),
                            _ => self.memory.parts[thread].copy_from_slice(&memory),
                        }
                    }
                }
            }
            S::If(condition, yes, no) => {
                let those: Here = threads
                    .iter()
                    .zip(&active)
                    .map(|(t, active)| *active && t.condition(*condition))
                    .collect();
                let others = active.iter().zip(&those).map(|(active, those)| *active && !those).collect();
                self.run(threads, yes, &those);
                self.run(threads, no, &others);
            }
            S::UniformIf(uniform, yes, no) => {
                let is = match uniform {
                    Uniform::Block(number) => self.number == *number,
                    Uniform::Parameter(bit) => self.launch.n >> bit & 1 != 0,
                };
                self.run(threads, if is { yes } else { no }, here);
            }
            S::Loop(count, body) => {
                let counts: Vec<u64> = threads.iter().map(|t| t.value(*count) & 3).collect();
                for round in 0..4 {
                    let those = active.iter().zip(&counts).map(|(a, count)| *a && *count >= round).collect();
                    self.run(threads, body, &those);
                }
            }
            S::UniformLoop(turns, body) => {
                let turns = match *turns {
                    Turns::Given(turns) => turns,
                    Turns::ByBlock(number) => (self.number + number) % 3,
                };
                (0..turns).for_each(|_| self.run(threads, body, here));
            }
            S::Switch(value, arms) => {
                let choices: Vec<usize> =
                    threads.iter().map(|t| t.value(*value) as usize % arms.len()).collect();
                for (index, arm) in arms.iter().enumerate() {
                    let those =
                        active.iter().zip(&choices).map(|(a, choice)| *a && *choice == index).collect();
                    self.run(threads, arm, &those);
                }
            }
            S::Wild(count, body) => {
                let counts: Vec<u64> = threads.iter().map(|t| t.value(*count) & 3).collect();
                let this = self.wild;
                self.wild += 1;
                for round in 0..4 {
                    let those = active.iter().zip(&counts).map(|(a, count)| *a && *count >= round).collect();
                    self.run(threads, body, &those);
                    threads
                        .iter_mut()
                        .filter(|t| t.away == Some(Away::Again(this)))
                        .for_each(|t| t.away = None);
                }
                self.wild = this;
                threads.iter_mut().filter(|t| t.away == Some(Away::Left(this))).for_each(|t| t.away = None);
            }
            S::Leave { condition, depth, again } => {
                let Some(at) = self.wild.checked_sub(1 + depth) else { return };
                let to = if *again { Away::Again(at) } else { Away::Left(at) };
                each(threads, &mut |_, t| {
                    if t.condition(*condition) {
                        t.away = Some(to);
                    }
                });
            }
            S::Rotated(condition, count, first, second) => {
                let counts: Vec<u64> = threads.iter().map(|t| t.value(*count) & 3).collect();
                let skips: Here = threads.iter().map(|t| t.condition(*condition)).collect();
                for round in 0..4 {
                    let those: Here =
                        active.iter().zip(&counts).map(|(a, count)| *a && *count >= round).collect();
                    let begins = those
                        .iter()
                        .zip(&skips)
                        .map(|(those, skip)| *those && !(round == 0 && *skip))
                        .collect();
                    self.run(threads, first, &begins);
                    self.run(threads, second, &those);
                }
            }
            S::Count { global, counter, value, guard } => {
                let counters = if *global { &mut *self.global } else { &mut self.memory.counters };
                each(threads, &mut |_, t| {
                    if t.guarded(*guard) {
                        count(counters, *counter, t.value(*value));
                    }
                });
            }
            S::Ticket { global } => {
                let counters = if *global { &mut *self.global } else { &mut self.memory.counters };
                let at = COUNTERS.len() * 32;
                each(threads, &mut |_, _| {
                    let ticket = read(counters, at, 4) as u32;
                    write_to(counters, at, 4, u64::from(ticket.wrapping_add(1)));
                    let sum = (read(counters, at + 8, 4) as u32)
                        .wrapping_add(ticket.wrapping_mul(ticket).wrapping_add(ticket));
                    write_to(counters, at + 8, 4, u64::from(sum));
                });
            }
            S::ReadCounter { counter, to } => {
                let value = read(&self.memory.counters, counter * 8, 4);
                each(threads, &mut |_, t| t.v(*to, value as u32));
            }
            S::OwnAtomic { shared, op, to, index, value } => {
                let first = self.number as usize * self.count;
                for thread in (0..threads.len()).filter(|&thread| active[thread]) {
                    let t = &mut threads[thread];
                    let memory = match shared {
                        true => &mut self.memory.parts[thread][..],
                        false => &mut self.own[(first + thread) * 32..][..32],
                    };
                    let at = (t.value(*index) as usize & 7) * 4;
                    let (old, b) = (read(memory, at, 4) as u32, t.value(*value) as u32);
                    let new = match OWN_ATOMICS[*op] {
                        "add.u32" => old.wrapping_add(b),
                        "exch.b32" => b,
                        "cas.b32" if old != 0 => old,
                        "cas.b32" => b,
                        "min.s32" => (old as i32).min(b as i32) as u32,
                        "max.s32" => (old as i32).max(b as i32) as u32,
                        "inc.u32" => inc(old, b),
                        "dec.u32" => dec(old, b),
                        _ => old ^ b,
                    };
                    write_to(memory, at, 4, u64::from(new));
                    t.v(*to, old);
                }
            }
            S::Call { function, to, args } => {
                let frame = |t: &Thread| {
                    let mut registers = [[0; 6]; 7];
                    for class in Class::ALL {
                        let of_class = &mut registers[class as usize][..class.count()];
                        for (number, register) in of_class.iter_mut().enumerate() {
                            *register = module::first(class, number);
                        }
                    }
                    registers[Class::V as usize][0] = t.value(args[0]);
                    registers[Class::V as usize][1] = t.value(args[1]);
                    Thread { registers, local: [0; 64], away: None, returned: 0 }
                };
                let mut callees: Vec<Thread> = threads.iter().map(frame).collect();
                let wild = std::mem::take(&mut self.wild);
                let program = self.program;
                self.run(&mut callees, &program.functions[*function], &active);
                self.wild = wild;
                each(threads, &mut |index, t| {
                    let callee = &callees[index];
                    let returned = match callee.away {
                        Some(_) => callee.returned,
                        None => callee.registers[Class::V as usize][0],
                    };
                    t.v(*to, returned as u32);
                });
            }
            _ => self.together(threads, statement, &active),
        }
    }

    /// What threads do together.
    fn together(&mut self, threads: &mut [Thread], statement: &Statement, active: &Here) {
        use Statement as S;
        let count = self.count;
        let all = || (0..count).filter(|&thread| active[thread]);
        // The members of a thread's warp.
        let warp =
            |thread: usize| (thread / 32 * 32..count.min(thread / 32 * 32 + 32)).filter(|&lane| active[lane]);
        match statement {
            S::Exchange { to, value, distance, .. } => {
                all().for_each(|thread| self.memory.place[thread] = threads[thread].value(*value) as u32);
                all().for_each(|thread| {
                    threads[thread].v(*to, self.memory.place[(thread + *distance as usize) % count]);
                });
            }
            S::WarpExchange { to, value, lanes } => {
                all().for_each(|thread| self.memory.place[thread] = threads[thread].value(*value) as u32);
                all().for_each(|thread| {
                    let other = thread ^ *lanes as usize;
                    threads[thread].v(*to, self.memory.place[if other >= count { thread } else { other }]);
                });
            }
            S::Pause => {}
            S::SplitBarrier(condition, v) => {
                for thread in all() {
                    let t = &threads[thread];
                    let value = t.value(Value::Register(Class::V, *v)) as u32;
                    self.memory.place[thread] =
                        if t.condition(*condition) { value } else { value.wrapping_add(1) };
                }
                all().for_each(|thread| threads[thread].v(*v, self.memory.place[(thread + 1) % count]));
            }
            S::Shuffle { mode, to, inside, value, by, width } => {
                let values: Vec<u32> = threads.iter().map(|t| t.value(*value) as u32).collect();
                for thread in all() {
                    let (lane, by) = ((thread % 32) as u32, threads[thread].value(*by) as u32 & 31);
                    let first = lane & !(width - 1);
                    let last = first + width - 1;
                    let (source, is_inside) = match SHUFFLES[*mode] {
                        "up" => (lane.wrapping_sub(by), lane >= first + by),
                        "down" => (lane + by, lane + by <= last),
                        "bfly" => (lane ^ by, lane ^ by <= last),
                        _ => (first | by & (width - 1), true),
                    };
                    let source = if is_inside { thread / 32 * 32 + source as usize } else { thread };
                    // A lane that is not there hands zero over.
                    let is_here = source < count && active[source];
                    let value = if is_here { values[source] } else { 0 };
                    threads[thread].v(*to, value);
                    if let Some(p) = inside {
                        threads[thread].set(Class::P, *p, u64::from(is_inside));
                    }
                }
            }
            S::Reduce { op, to, value } => {
                let values: Vec<u32> = threads.iter().map(|t| t.value(*value) as u32).collect();
                let combine = |a: u32, b: u32| match REDUCTIONS[*op] {
                    "add.u32" => a.wrapping_add(b),
                    "min.s32" => (a as i32).min(b as i32) as u32,
                    "max.s32" => (a as i32).max(b as i32) as u32,
                    "min.u32" => a.min(b),
                    "max.u32" => a.max(b),
                    "and.b32" => a & b,
                    "or.b32" => a | b,
                    _ => a ^ b,
                };
                for thread in all() {
                    let result = warp(thread).map(|lane| values[lane]).reduce(combine);
                    threads[thread].v(*to, result.unwrap_or(0));
                }
            }
            S::Vote { mode, to, condition } => {
                let those: Here = threads.iter().map(|t| t.condition(*condition)).collect();
                for thread in all() {
                    let ballot = warp(thread).filter(|&l| those[l]).fold(0u32, |all, l| all | 1 << (l % 32));
                    let members = warp(thread).fold(0u32, |all, l| all | 1 << (l % 32));
                    let result = match VOTES[*mode] {
                        "all" => u32::from(ballot == members),
                        "any" => u32::from(ballot != 0),
                        "uni" => u32::from(ballot == 0 || ballot == members),
                        _ => ballot,
                    };
                    threads[thread].v(*to, result);
                }
            }
            S::MatchAny { to, value } => {
                let values: Vec<u64> = threads.iter().map(|t| t.value(*value) & 7).collect();
                for thread in all() {
                    let same = warp(thread).filter(|&l| values[l] == values[thread]);
                    let same = same.fold(0u32, |all, l| all | 1 << (l % 32));
                    threads[thread].v(*to, same);
                }
            }
            S::MatchAll { to, same, value } => {
                let values: Vec<u64> = threads.iter().map(|t| t.value(*value) & 1).collect();
                for thread in all() {
                    let is = warp(thread).all(|l| values[l] == values[thread]);
                    let members = warp(thread).fold(0u32, |all, l| all | 1 << (l % 32));
                    threads[thread].v(*to, if is { members } else { 0 });
                    threads[thread].set(Class::P, *same, u64::from(is));
                }
            }
            S::BarrierReduce { mode, to, condition } => {
                let those: Vec<bool> = all().map(|thread| threads[thread].condition(*condition)).collect();
                let result = match mode {
                    0 => those.iter().filter(|is| **is).count() as u32,
                    1 => u32::from(those.iter().all(|is| *is)),
                    _ => u32::from(those.iter().any(|is| !*is)),
                };
                all().for_each(|thread| threads[thread].v(*to, result));
            }
            S::Exit(condition) => all().for_each(|thread| {
                if threads[thread].condition(*condition) {
                    threads[thread].away = Some(Away::Exited);
                }
            }),
            S::Return(condition, value) => all().for_each(|thread| {
                let t = &mut threads[thread];
                if t.condition(*condition) {
                    (t.away, t.returned) = (Some(Away::Returned), t.value(*value));
                }
            }),
            _ => {}
        }
    }
}

/// One atomic operation on a counter.
fn count(counters: &mut [u8], counter: usize, value: u64) {
    let (name, bits) = COUNTERS[counter];
    let at = counter * 32 + (value as usize & 3) * 8;
    let size = bits as usize / 8;
    let old = read(counters, at, size);
    let (short, b) = (old as u32, value as u32);
    let wide = value * 0x9E37_79B1;
    let new = match name {
        "add.u32" => u64::from(short.wrapping_add(b)),
        "add.u64" => old.wrapping_add(wide),
        "min.s32" => u64::from((short as i32).min(b as i32) as u32),
        "max.u32" => u64::from(short.max(b)),
        "and.b32" => u64::from(short & b),
        "or.b32" => u64::from(short | b),
        "xor.b64" => old ^ wide,
        _ => u64::from(inc(short, 5)),
    };
    write_to(counters, at, size, new);
}

/// What a launch of the program leaves, if memory holds `before`.
pub(super) fn expected(program: &Program, used: &Used, launch: &Launch, mut left: Left) -> Left {
    let [x, y, z] = launch.block;
    let count = (x * y * z) as usize;
    for number in 0..launch.grid {
        let thread = |index: usize| {
            let all = number as usize * count + index;
            let mut registers = [[0; 6]; 7];
            for class in Class::ALL {
                let of_class = &mut registers[class as usize][..class.count()];
                for (number, register) in of_class.iter_mut().enumerate() {
                    let bits = read(&launch.input, 256 + layout::place_of(class, number, all), class.bytes());
                    *register = if class == Class::P { u64::from(bits != 0) } else { class.canonical(bits) };
                }
            }
            registers[Class::V as usize][..4].copy_from_slice(&[
                index as u64 % u64::from(x),
                index as u64,
                u64::from(number),
                u64::from(launch.n),
            ]);
            registers[Class::W as usize][0] = launch.wide;
            Thread { registers, local: [0; 64], away: None, returned: 0 }
        };
        let mut threads: Vec<Thread> = (0..count).map(thread).collect();
        let mut machine = Machine {
            program,
            launch,
            number,
            count,
            memory: Memory {
                place: vec![0; THREADS],
                parts: vec![[0; 32]; count],
                counters: vec![COUNTER_START; COUNTER_BYTES],
            },
            own: &mut left.own,
            global: &mut left.counters,
            wild: 0,
        };
        machine.run(&mut threads, &program.kernel, &vec![true; count]);
        let counters = machine.memory.counters;
        for (index, thread) in threads.iter().enumerate().filter(|(_, t)| t.away.is_none()) {
            let all = number as usize * count + index;
            let records = &mut left.records[..];
            for &(class, register) in &used.registers {
                let bits = class.canonical(thread.registers[class as usize][register]);
                write_to(records, layout::place_of(class, register, all), class.bytes(), bits);
            }
            if used.local {
                records[LOCAL_AT * ALL + all * 64..][..64].copy_from_slice(&thread.local);
            }
            if used.counters {
                let tickets = COUNTERS.len() * 32;
                for (at, from) in [(0, index % 32 * 8), (8, tickets), (16, tickets + 8)] {
                    let to = (COUNTER_AT + at) * ALL + all * 8;
                    records[to..to + 8].copy_from_slice(&counters[from..from + 8]);
                }
            }
        }
    }
    left
}
