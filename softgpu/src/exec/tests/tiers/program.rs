//! Random structured programs. What they compute does not depend on the order in which threads run: atomic operations commute, and
//! what threads say to each other goes through barriers and operations of warps.

use super::super::containment::Random;
use super::ops::{self, Class};

/// An operand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    Register(Class, usize),
    Constant(Class, u64),
}

/// What decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Condition {
    /// `a < b`, unsigned, or its opposite.
    Less(Value, Value, bool),
    /// A predicate, or its opposite.
    Predicate(usize, bool),
}

/// A predicate, and whether its opposite.
pub(super) type Guard = Option<(usize, bool)>;

/// Where an access goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    /// The thread's own array.
    Local,
    /// The thread's own part of global memory.
    Own,
    /// The thread's own part of shared memory.
    Shared,
    /// Numbers that are the same for all and only read, by any index.
    Input,
    Constant,
    /// The kernel's parameter, at a fixed place.
    Parameter,
}

impl Space {
    /// How many bytes a thread reaches.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Local | Self::Parameter => 64,
            Self::Own | Self::Shared => 32,
            Self::Input | Self::Constant => 256,
        }
    }

    pub(super) fn is_read_only(self) -> bool {
        matches!(self, Self::Input | Self::Constant | Self::Parameter)
    }
}

/// What an access moves: its type, to what registers, and how many bytes each.
pub(super) struct Moved {
    pub ty: &'static str,
    pub class: Class,
    pub bytes: usize,
    /// Whether it is extended by its sign.
    pub signed: bool,
}

const fn moved(ty: &'static str, class: Class, bytes: usize, signed: bool) -> Moved {
    Moved { ty, class, bytes, signed }
}

pub(super) const MOVED: [Moved; 14] = [
    moved("u8", Class::V, 1, false),
    moved("s8", Class::V, 1, true),
    moved("u16", Class::V, 2, false),
    moved("s16", Class::V, 2, true),
    moved("u32", Class::V, 4, false),
    moved("s32", Class::W, 4, true),
    moved("u64", Class::W, 8, false),
    moved("u16", Class::H, 2, false),
    moved("s8", Class::H, 1, true),
    moved("b16", Class::X, 2, false),
    moved("f32", Class::F, 4, false),
    moved("f64", Class::D, 8, false),
    moved("b32", Class::F, 4, false),
    moved("u8", Class::W, 1, false),
];

/// Atomic operations whose order does not matter: the opcode's end, and how many bits.
pub(super) const COUNTERS: [(&str, u32); 8] = [
    ("add.u32", 32),
    ("add.u64", 64),
    ("min.s32", 32),
    ("max.u32", 32),
    ("and.b32", 32),
    ("or.b32", 32),
    ("xor.b64", 64),
    ("inc.u32", 32),
];

/// Bytes of one memory's counters: four of eight bytes for each operation, and a ticket with its sum.
pub(super) const COUNTER_BYTES: usize = COUNTERS.len() * 32 + 16;
/// What counters are at first, in each byte.
pub(super) const COUNTER_START: u8 = 0x0F;

/// Atomic operations on a thread's own word, of which it sees the old value.
pub(super) const OWN_ATOMICS: [&str; 8] =
    ["add.u32", "exch.b32", "cas.b32", "min.s32", "max.s32", "inc.u32", "dec.u32", "xor.b32"];

pub(super) const SHUFFLES: [&str; 4] = ["up", "down", "bfly", "idx"];
pub(super) const REDUCTIONS: [&str; 8] =
    ["add.u32", "min.s32", "max.s32", "min.u32", "max.u32", "and.b32", "or.b32", "xor.b32"];
pub(super) const VOTES: [&str; 4] = ["all", "any", "uni", "ballot"];

/// How many turns a loop has in all threads of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turns {
    /// So many, at least one.
    Given(u32),
    /// None, one or two: the rest of the block's number and this one by three.
    ByBlock(u32),
}

#[derive(Debug, Clone)]
pub(super) enum Statement {
    /// One of [`ops::all`].
    Compute {
        op: usize,
        to: usize,
        args: Vec<Value>,
        guard: Guard,
    },
    /// One of [`ops::APPROXIMATIONS`].
    Approximate {
        which: usize,
        of: usize,
    },
    /// A load or store of one to four registers.
    Access {
        store: bool,
        space: Space,
        moved: usize,
        regs: Vec<usize>,
        index: Value,
        generic: bool,
        volatile: bool,
        guard: Guard,
    },
    If(Condition, Vec<Statement>, Vec<Statement>),
    /// All threads of a block go the same way.
    UniformIf(Uniform, Vec<Statement>, Vec<Statement>),
    /// As often as the low bits of a value say, at least once.
    Loop(Value, Vec<Statement>),
    UniformLoop(Turns, Vec<Statement>),
    Switch(Value, Vec<Vec<Statement>>),
    /// A loop that is left, and gone on with, from anywhere in it. No operations of a warp are in it.
    Wild(Value, Vec<Statement>),
    /// Leaves so many wild loops and one more, or goes on with the last of those.
    Leave {
        condition: Condition,
        depth: usize,
        again: bool,
    },
    /// A loop whose second half some enter first.
    Rotated(Condition, Value, Vec<Statement>, Vec<Statement>),
    /// An atomic operation on a counter, of shared or global memory.
    Count {
        global: bool,
        counter: usize,
        value: Value,
        guard: Guard,
    },
    /// A number that no other thread has, and a sum of all of them.
    Ticket {
        global: bool,
    },
    /// What a shared counter has come to, between two barriers.
    ReadCounter {
        counter: usize,
        to: usize,
    },
    OwnAtomic {
        shared: bool,
        op: usize,
        to: usize,
        index: Value,
        value: Value,
    },
    /// Call of a function with two arguments.
    Call {
        function: usize,
        to: usize,
        args: [Value; 2],
    },
    /// Another thread's value, through shared memory between two barriers of this number.
    Exchange {
        to: usize,
        value: Value,
        distance: u32,
        barrier: u32,
    },
    /// A neighbour's in the warp, through shared memory.
    WarpExchange {
        to: usize,
        value: Value,
        lanes: u32,
    },
    /// All threads come to one barrier in two places.
    SplitBarrier(Condition, usize),
    /// Threads let others go first.
    Pause,
    Shuffle {
        mode: usize,
        to: usize,
        inside: Option<usize>,
        value: Value,
        by: Value,
        width: u32,
    },
    Reduce {
        op: usize,
        to: usize,
        value: Value,
    },
    Vote {
        mode: usize,
        to: usize,
        condition: Condition,
    },
    MatchAny {
        to: usize,
        value: Value,
    },
    MatchAll {
        to: usize,
        same: usize,
        value: Value,
    },
    /// `bar.red`: a count, all, any.
    BarrierReduce {
        mode: usize,
        to: usize,
        condition: Condition,
    },
    /// The end of the thread.
    Exit(Condition),
    /// The end of a function.
    Return(Condition, Value),
}

/// What all threads of a block know alike.
#[derive(Debug, Clone, Copy)]
pub(super) enum Uniform {
    /// The block's number.
    Block(u32),
    /// A bit of a parameter.
    Parameter(u32),
}

/// What may occur in a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Together {
    /// Each thread for itself: no operations of a warp.
    Alone,
    /// Some lanes of warps.
    Lanes,
    /// All threads of a block that are left.
    Block,
}

/// Functions of two arguments, and the kernel.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub functions: Vec<Vec<Statement>>,
    /// Whether functions contain operations of a block, and so are called by all threads only.
    pub together: bool,
    pub kernel: Vec<Statement>,
}

struct Generator {
    random: Random,
    /// Functions that may be called.
    functions: usize,
    calls_together: bool,
    /// Whether a function is made, which knows no parameters of the kernel.
    inside: bool,
    /// How many wild loops there are around.
    wild: usize,
    /// What kinds of statements there are: each program has its own.
    kinds: u64,
}

/// Kinds of statements, of which a program has some.
const KINDS: usize = 30;
/// Those for which threads wait for each other.
const TOGETHER: u64 = 1 << 19 | 0x7F << 23;
/// Those of them that are operations of a warp.
const OF_WARPS: u64 = 0xF << 25;

impl Generator {
    fn register(&mut self, class: Class) -> usize {
        self.random.below(class.count())
    }

    fn value(&mut self, class: Class) -> Value {
        const NUMBERS: [u64; 14] = [
            0,
            1,
            2,
            5,
            31,
            32,
            100,
            0xFFFF,
            0x8000,
            0x7FFF_FFFF,
            0x8000_0000,
            0xFFFF_FFFF,
            1 << 63,
            u64::MAX,
        ];
        const FLOATS: [f64; 8] = [0.0, -0.0, 1.0, -1.5, 0.1, 65504.0, 4e9, f64::INFINITY];
        if self.random.below(5) != 0 || matches!(class, Class::P | Class::X) {
            return Value::Register(class, self.register(class));
        }
        let number = self.random.pick(&NUMBERS);
        let float = self.random.pick(&FLOATS);
        Value::Constant(
            class,
            match class {
                Class::H => number & 0xFFFF,
                Class::V => number & 0xFFFF_FFFF,
                Class::F => u64::from((float as f32).to_bits()),
                Class::D => float.to_bits(),
                _ => number,
            },
        )
    }

    fn condition(&mut self) -> Condition {
        let negated = self.random.below(2) == 0;
        if self.random.below(3) == 0 {
            return Condition::Predicate(self.register(Class::P), negated);
        }
        Condition::Less(self.value(Class::V), self.value(Class::V), negated)
    }

    fn guard(&mut self) -> Guard {
        (self.random.below(4) == 0).then(|| (self.register(Class::P), self.random.below(2) == 0))
    }

    fn block(&mut self, together: Together, depth: u32) -> Vec<Statement> {
        let count = 1 + self.random.below(4);
        (0..count).map(|_| self.statement(together, depth)).collect()
    }

    fn alone(&mut self, depth: u32) -> Vec<Statement> {
        self.block(Together::Alone, depth)
    }

    fn compute(&mut self) -> Statement {
        let op = self.random.below(ops::all().len());
        let row = &ops::all()[op];
        let args = row.args.iter().map(|&class| self.value(class)).collect();
        // ptxas of CUDA 13.0 executes guarded ones of these all the same, as an H100 has shown.
        let unguarded = row.text.starts_with("testp") || row.text.starts_with("set.");
        let guard = self.guard().filter(|_| row.is_single() && !unguarded);
        Statement::Compute { op, to: self.register(row.result), args, guard }
    }

    fn access(&mut self) -> Statement {
        const SPACES: [Space; 6] =
            [Space::Local, Space::Own, Space::Shared, Space::Input, Space::Constant, Space::Parameter];
        const INSIDE: [Space; 3] = [Space::Local, Space::Shared, Space::Constant];
        let space = if self.inside { self.random.pick(&INSIDE) } else { self.random.pick(&SPACES) };
        let moved = self.random.below(MOVED.len());
        let row = &MOVED[moved];
        // Two registers of up to eight bytes, four of up to four.
        let lanes = match self.random.below(4) {
            0 => 2,
            1 if row.bytes <= 4 && row.class.count() >= 4 => 4,
            _ => 1,
        };
        let first = self.random.below(row.class.count() - lanes + 1);
        let index = match space {
            Space::Parameter => Value::Constant(Class::V, self.random.bits() & 0xFF),
            _ => self.value(Class::V),
        };
        Statement::Access {
            store: !space.is_read_only() && self.random.below(2) == 0,
            space,
            moved,
            regs: (first..first + lanes).collect(),
            index,
            generic: matches!(space, Space::Local | Space::Shared | Space::Own | Space::Input)
                && self.random.below(4) == 0,
            volatile: matches!(space, Space::Shared | Space::Own | Space::Local) && self.random.below(6) == 0,
            guard: self.guard(),
        }
    }

    fn statement(&mut self, together: Together, depth: u32) -> Statement {
        use Statement as S;
        let inner = together.min(Together::Lanes);
        let (lanes, block) = (together >= Together::Lanes, together == Together::Block);
        loop {
            let kind = self.random.below(KINDS);
            if kind >= 8 && self.kinds >> kind & 1 == 0 {
                continue;
            }
            let v = |this: &mut Self| this.register(Class::V);
            return match kind {
                0..5 => self.compute(),
                5..8 => self.access(),
                8 => S::Approximate {
                    which: self.random.below(ops::APPROXIMATIONS.len()),
                    of: self.register(Class::F),
                },
                9 | 10 if depth > 0 => {
                    S::If(self.condition(), self.block(inner, depth - 1), self.block(inner, depth - 1))
                }
                11 if depth > 0 => S::Loop(self.value(Class::V), self.block(inner, depth - 1)),
                12 if depth > 0 => {
                    let arms = 2 + self.random.below(3);
                    S::Switch(self.value(Class::V), (0..arms).map(|_| self.block(inner, depth - 1)).collect())
                }
                13 if depth > 0 && block => {
                    let number = self.random.below(3) as u32;
                    let uniform = match self.random.below(if self.inside { 1 } else { 2 }) {
                        0 => Uniform::Block(number),
                        _ => Uniform::Parameter(number),
                    };
                    S::UniformIf(uniform, self.block(together, depth - 1), self.block(together, depth - 1))
                }
                14 if depth > 0 => {
                    let turns = Turns::Given(1 + self.random.below(3) as u32);
                    S::UniformLoop(turns, self.block(together, depth - 1))
                }
                15 if depth > 0 => {
                    self.wild += 1;
                    let mut body = self.alone(depth - 1);
                    let at = self.random.below(body.len() + 1);
                    body.insert(at, self.leave());
                    self.wild -= 1;
                    S::Wild(self.value(Class::V), body)
                }
                16 if self.wild > 0 => self.leave(),
                17 if depth > 0 => S::Rotated(
                    self.condition(),
                    self.value(Class::V),
                    self.alone(depth - 1),
                    self.alone(depth - 1),
                ),
                18 => S::Count {
                    global: !self.inside && self.random.below(2) == 0,
                    counter: self.random.below(COUNTERS.len()),
                    value: self.value(Class::V),
                    guard: self.guard(),
                },
                19 if self.random.below(2) == 0 => {
                    S::Ticket { global: !self.inside && self.random.below(2) == 0 }
                }
                19 if block => S::ReadCounter { counter: self.random.below(COUNTERS.len() * 4), to: v(self) },
                20 => S::OwnAtomic {
                    shared: self.inside || self.random.below(2) == 0,
                    op: self.random.below(OWN_ATOMICS.len()),
                    to: v(self),
                    index: self.value(Class::V),
                    value: self.value(Class::V),
                },
                21 | 22 if self.functions > 0 && (block || !self.calls_together) => S::Call {
                    function: self.random.below(self.functions),
                    to: v(self),
                    args: [self.value(Class::V), self.value(Class::V)],
                },
                23 if block => match self.random.below(3) {
                    0 => S::WarpExchange {
                        to: v(self),
                        value: self.value(Class::V),
                        lanes: self.random.below(32) as u32,
                    },
                    _ => S::Exchange {
                        to: v(self),
                        value: self.value(Class::V),
                        distance: self.random.below(256) as u32,
                        barrier: self.random.below(3) as u32,
                    },
                },
                24 if block => S::SplitBarrier(self.condition(), v(self)),
                25 if lanes => S::Shuffle {
                    mode: self.random.below(SHUFFLES.len()),
                    to: v(self),
                    inside: (self.random.below(2) == 0).then(|| self.register(Class::P)),
                    value: self.value(Class::V),
                    by: self.value(Class::V),
                    width: 32 >> self.random.below(6),
                },
                26 if lanes => S::Reduce {
                    op: self.random.below(REDUCTIONS.len()),
                    to: v(self),
                    value: self.value(Class::V),
                },
                27 if lanes => {
                    S::Vote { mode: self.random.below(VOTES.len()), to: v(self), condition: self.condition() }
                }
                28 if lanes && self.random.below(2) == 0 => {
                    S::MatchAny { to: v(self), value: self.value(Class::V) }
                }
                28 if lanes => {
                    S::MatchAll { to: v(self), same: self.register(Class::P), value: self.value(Class::V) }
                }
                29 if block && !self.inside && self.random.below(3) == 0 => S::Exit(self.condition()),
                29 if block => {
                    S::BarrierReduce { mode: self.random.below(3), to: v(self), condition: self.condition() }
                }
                _ => self.compute(),
            };
        }
    }

    fn leave(&mut self) -> Statement {
        Statement::Leave {
            condition: self.condition(),
            depth: self.random.below(self.wild),
            again: self.random.below(3) == 0,
        }
    }
}

/// The program of a seed.
pub(super) fn generate(seed: u64) -> Program {
    let mut random = Random(seed);
    // Most programs lack some kinds of statements: what keeps one kernel out of a tier does not keep all.
    let kinds = match random.below(5) {
        0 => random.bits() & random.bits(),
        1 => random.bits() | random.bits(),
        // Threads wait at barriers alone.
        2 => random.bits() & !OF_WARPS,
        // No threads wait for others here.
        _ => random.bits() & !TOGETHER,
    };
    let mut generator =
        Generator { random, functions: 0, calls_together: false, inside: false, wild: 0, kinds };
    let together = generator.random.below(2) == 0;
    let place = if together { Together::Block } else { Together::Alone };
    let mut functions = Vec::new();
    generator.inside = true;
    for index in 0..generator.random.below(6).saturating_sub(3) {
        // Earlier functions may be called; there is no recursion.
        generator.functions = index;
        generator.calls_together = together;
        let mut body = generator.block(place, 1);
        if !together {
            let at = generator.random.below(body.len() + 1);
            body.insert(at, Statement::Return(generator.condition(), generator.value(Class::V)));
        }
        functions.push(body);
    }
    generator.inside = false;
    generator.functions = functions.len();
    // Most are small: compiling takes longest, and what one statement does wrong shows in a small one.
    let (parts, depth) = match generator.random.below(10) {
        0 => (3, 3),
        1..3 => (2, 2),
        3..6 => (1, 2),
        _ => (1, 1),
    };
    let mut kernel = Vec::new();
    for _ in 0..parts {
        kernel.extend(generator.block(Together::Block, depth));
    }
    // Not by the generator's numbers, so that other programs stay as they are.
    if seed % 4 == 1 {
        kernel.insert(kernel.len() / 2, Statement::Pause);
        kernel.insert(0, Statement::Pause);
    }
    // Loops in each other that may have no turns, so that threads which go on behind a barrier are in the middle of all of them.
    if seed % 8 == 6 {
        functions.iter_mut().for_each(|body| loop_by_block(body));
        loop_by_block(&mut kernel);
        for number in 0..2 {
            let inner = kernel.split_off(kernel.len() / 3);
            kernel.push(Statement::UniformLoop(Turns::ByBlock(number + (seed / 8) as u32 % 3), inner));
        }
    }
    Program { functions, together, kernel }
}

/// Has the number of the block tell how many turns loops have.
fn loop_by_block(statements: &mut [Statement]) {
    for statement in statements {
        if let Statement::UniformLoop(turns, _) = statement
            && let Turns::Given(number) = *turns
        {
            *turns = Turns::ByBlock(number);
        }
        statement.bodies().into_iter().for_each(|body| loop_by_block(body));
    }
}
