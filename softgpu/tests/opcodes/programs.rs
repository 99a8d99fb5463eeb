//! Whole kernels: random structured programs, run on the software GPU and by a plain interpreter that keeps
//! all threads of a block in step. What single opcodes cannot show: branches of all kinds, values that live
//! across barriers and warp operations, warp operations of the lanes that are left, calls.

use std::fmt::Write;

use super::gpu::{Run, gpu};
use super::values::Random;

const THREADS: usize = 96;
const BLOCKS: usize = 3;
const VARIABLES: usize = 6;
const FUNCTIONS: usize = 3;

#[derive(Debug, Clone, Copy)]
enum Operator {
    Add,
    Sub,
    Mul,
    And,
    Xor,
    Min,
    Shl,
    Shr,
}

const OPERATORS: [(Operator, &str); 8] = [
    (Operator::Add, "add.u32"),
    (Operator::Sub, "sub.s32"),
    (Operator::Mul, "mul.lo.u32"),
    (Operator::And, "and.b32"),
    (Operator::Xor, "xor.b32"),
    (Operator::Min, "min.u32"),
    (Operator::Shl, "shl.b32"),
    (Operator::Shr, "shr.u32"),
];

/// An operand: a variable or a constant.
#[derive(Debug, Clone, Copy)]
enum Value {
    Variable(usize),
    Constant(u32),
}

/// `a < b`, unsigned, or its opposite.
#[derive(Debug, Clone, Copy)]
struct Condition {
    a: Value,
    b: Value,
    negated: bool,
}

#[derive(Debug, Clone)]
enum Statement {
    Compute(usize, usize, Value, Value),
    /// `w[i] += a * b` in 64 bits, and its upper half to a variable.
    Wide(usize, usize, Value, Value),
    /// A double is added to, and what is below 1000 of it goes to a variable.
    Double(usize, Value),
    /// A half-word is added to.
    Half(usize, Value),
    SetPredicate(usize, Condition),
    /// `v = p ? a : b`
    Select(usize, usize, Value, Value),
    /// `@p v = a + b` or `@!p`.
    Guarded(usize, bool, usize, Value, Value),
    If(Condition, Vec<Statement>, Vec<Statement>),
    /// Either all threads of a block or none.
    UniformIf(u32, Vec<Statement>, Vec<Statement>),
    /// As often as the low bits of a value say, at least once.
    Loop(Value, Vec<Statement>),
    UniformLoop(u32, Vec<Statement>),
    Switch(Value, Vec<Vec<Statement>>),
    StoreLocal(Value, Value),
    LoadLocal(usize, Value),
    CountShared(Value),
    /// Call of a function with two arguments.
    Call(usize, usize, Value, Value),
    /// Another thread's value, through shared memory and a barrier.
    Exchange(usize, Value, u32),
    /// A shuffle of whole warps.
    Shuffle(usize, Value, u32),
    /// Of the lanes that are here.
    Sum(usize, Value),
    Ballot(usize, Condition),
    BarrierCount(usize, Condition),
    /// The end of a function.
    Return(Condition, Value),
}

/// What may occur in a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Together {
    /// Each thread for itself: no operations of a warp (functions that may be called from anywhere).
    Alone,
    /// Some lanes of warps.
    Lanes,
    /// All threads of a block.
    Block,
}

struct Generator {
    random: Random,
    /// Functions that may be called.
    functions: usize,
    calls_together: bool,
}

impl Generator {
    fn variable(&mut self) -> usize {
        self.random.below(VARIABLES)
    }

    fn value(&mut self) -> Value {
        match self.random.below(4) {
            0 => Value::Constant([0, 1, 2, 5, 31, 100, 0xFFFF, 0x8000_0000, u32::MAX][self.random.below(9)]),
            _ => Value::Variable(self.variable()),
        }
    }

    fn condition(&mut self) -> Condition {
        Condition { a: self.value(), b: self.value(), negated: self.random.below(2) == 0 }
    }

    fn block(&mut self, together: Together, depth: u32) -> Vec<Statement> {
        let count = 1 + self.random.below(5);
        (0..count).map(|_| self.statement(together, depth)).collect()
    }

    fn statement(&mut self, together: Together, depth: u32) -> Statement {
        use Statement as S;
        let inner = together.min(Together::Lanes);
        loop {
            return match self.random.below(24) {
                0..4 => S::Compute(
                    self.random.below(OPERATORS.len()),
                    self.variable(),
                    self.value(),
                    self.value(),
                ),
                4 => S::Wide(self.random.below(2), self.variable(), self.value(), self.value()),
                5 => S::Double(self.variable(), self.value()),
                6 => S::Half(self.variable(), self.value()),
                7 => S::SetPredicate(self.random.below(2), self.condition()),
                8 => S::Select(self.random.below(2), self.variable(), self.value(), self.value()),
                9 => S::Guarded(
                    self.random.below(2),
                    self.random.below(2) == 0,
                    self.variable(),
                    self.value(),
                    self.value(),
                ),
                10 => S::StoreLocal(self.value(), self.value()),
                11 => S::LoadLocal(self.variable(), self.value()),
                12 => S::CountShared(self.value()),
                13 if depth > 0 => {
                    S::If(self.condition(), self.block(inner, depth - 1), self.block(inner, depth - 1))
                }
                14 if depth > 0 => S::Loop(self.value(), self.block(inner, depth - 1)),
                15 if depth > 0 => {
                    let arms = 2 + self.random.below(3);
                    S::Switch(self.value(), (0..arms).map(|_| self.block(inner, depth - 1)).collect())
                }
                16 if depth > 0 && together == Together::Block => S::UniformIf(
                    self.random.below(3) as u32,
                    self.block(together, depth - 1),
                    self.block(together, depth - 1),
                ),
                17 if depth > 0 => {
                    S::UniformLoop(1 + self.random.below(3) as u32, self.block(together, depth - 1))
                }
                18 if self.functions > 0 && (together == Together::Block || !self.calls_together) => {
                    S::Call(self.random.below(self.functions), self.variable(), self.value(), self.value())
                }
                19 if together == Together::Block => {
                    S::Exchange(self.variable(), self.value(), self.random.below(THREADS) as u32)
                }
                20 if together == Together::Block => {
                    S::Shuffle(self.variable(), self.value(), self.random.below(32) as u32)
                }
                21 if together >= Together::Lanes => S::Sum(self.variable(), self.value()),
                22 if together >= Together::Lanes => S::Ballot(self.variable(), self.condition()),
                23 if together == Together::Block => S::BarrierCount(self.variable(), self.condition()),
                _ => continue,
            };
        }
    }
}

/// A program: functions of two arguments, and the kernel.
struct Program {
    functions: Vec<Vec<Statement>>,
    /// Whether functions contain operations of a block, and so are called by all threads only.
    together: bool,
    kernel: Vec<Statement>,
}

fn generate(seed: u64) -> Program {
    let mut generator = Generator { random: Random(seed), functions: 0, calls_together: false };
    let together = generator.random.below(2) == 0;
    let place = if together { Together::Block } else { Together::Alone };
    let mut functions = Vec::new();
    for index in 0..FUNCTIONS {
        // Earlier functions may be called; there is no recursion.
        generator.functions = index;
        generator.calls_together = together;
        let mut body = generator.block(place, 2);
        if !together {
            let at = generator.random.below(body.len() + 1);
            body.insert(at, Statement::Return(generator.condition(), generator.value()));
        }
        functions.push(body);
    }
    generator.functions = FUNCTIONS;
    let mut kernel = Vec::new();
    for _ in 0..4 {
        kernel.extend(generator.block(Together::Block, 3));
    }
    Program { functions, together, kernel }
}

// The text.

struct Writer {
    text: String,
    labels: u32,
    /// Masks are registers m0, m1, …, one per level of nesting.
    level: usize,
    deepest: usize,
    /// Whether there are masks at all.
    masks: bool,
    tables: String,
    result: bool,
}

impl Writer {
    fn label(&mut self) -> String {
        self.labels += 1;
        format!("L{}", self.labels)
    }

    fn line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn value(value: Value) -> String {
        match value {
            Value::Variable(n) => format!("v{n}"),
            Value::Constant(c) => c.to_string(),
        }
    }

    fn condition(&mut self, predicate: &str, Condition { a, b, negated }: Condition) {
        let compare = if negated { "ge" } else { "lt" };
        let (a, b) = (Self::value(a), Self::value(b));
        // A constant cannot stand first everywhere; moved to a register, it can.
        self.line(&format!("mov.u32 t0, {a}; setp.{compare}.u32 {predicate}, t0, {b};"));
    }

    fn deeper(&mut self, part: &[Statement]) {
        self.level += 1;
        self.deepest = self.deepest.max(self.level);
        self.block(part);
        self.level -= 1;
    }

    fn mask(&self) -> String {
        format!("m{}", self.level)
    }

    fn next_mask(&self) -> String {
        format!("m{}", self.level + 1)
    }

    fn block(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &Statement) {
        use Statement as S;
        let v = Self::value;
        match statement {
            S::Compute(operator, d, a, b) => {
                let name = OPERATORS[*operator].1;
                let shift = matches!(OPERATORS[*operator].0, Operator::Shl | Operator::Shr);
                let (a, b) = (v(*a), v(*b));
                let b = if shift {
                    self.line(&format!("and.b32 t1, {b}, 15;"));
                    "t1".to_owned()
                } else {
                    b
                };
                self.line(&format!("mov.u32 t0, {a}; {name} v{d}, t0, {b};"));
            }
            S::Wide(w, d, a, b) => {
                let (a, b) = (v(*a), v(*b));
                self.line(&format!(
                    "mov.u32 t0, {a}; mul.wide.u32 l, t0, {b}; add.u64 w{w}, w{w}, l; mov.b64 {{_, v{d}}}, w{w};"
                ));
            }
            S::Double(d, a) => self.line(&format!(
                "mov.u32 t0, {}; cvt.rn.f64.u32 e, t0; add.rn.f64 f, f, e; cvt.rzi.u64.f64 l, f; rem.u64 l, l, 1000; cvt.u32.u64 v{d}, l;",
                v(*a)
            )),
            S::Half(d, a) => {
                self.line(&format!("mov.u32 t0, {}; cvt.u16.u32 g, t0; add.u16 h, h, g; cvt.u32.u16 v{d}, h;", v(*a)));
            }
            S::SetPredicate(p, condition) => self.condition(&format!("p{p}"), *condition),
            S::Select(p, d, a, b) => self.line(&format!("selp.b32 v{d}, {}, {}, p{p};", v(*a), v(*b))),
            S::Guarded(p, negated, d, a, b) => {
                let not = if *negated { "!" } else { "" };
                self.line(&format!("mov.u32 t0, {}; @{not}p{p} add.u32 v{d}, t0, {};", v(*a), v(*b)));
            }
            S::If(condition, yes, no) => {
                let (other, end) = (self.label(), self.label());
                self.condition("q", *condition);
                let (outer, inner) = (self.mask(), self.next_mask());
                if self.masks {
                    self.line(&format!("vote.sync.ballot.b32 {inner}, q, {outer};"));
                }
                self.line(&format!("@!q bra {other};"));
                self.deeper(yes);
                self.line(&format!("bra {end};\n{other}:"));
                if self.masks {
                    // The mask of the others; the register was written by them, too.
                    self.line(&format!("not.b32 {inner}, {inner}; and.b32 {inner}, {inner}, {outer};"));
                }
                self.deeper(no);
                self.line(&format!("{end}:"));
            }
            S::UniformIf(bit, yes, no) => {
                let (other, end) = (self.label(), self.label());
                self.line(&format!("mov.u32 t0, %ctaid.x; setp.eq.u32 q, t0, {bit}; @!q bra.uni {other};"));
                self.block(yes);
                self.line(&format!("bra.uni {end};\n{other}:"));
                self.block(no);
                self.line(&format!("{end}:"));
            }
            S::Loop(count, body) => {
                let begin = self.label();
                let (outer, inner) = (self.mask(), self.next_mask());
                let counter = format!("c{}", self.level + 1);
                self.line(&format!("and.b32 {counter}, {}, 3; mov.b32 {inner}, {outer};\n{begin}:", v(*count)));
                self.deeper(body);
                self.line(&format!("setp.ne.u32 q, {counter}, 0; sub.u32 {counter}, {counter}, 1;"));
                if self.masks {
                    self.line(&format!("vote.sync.ballot.b32 {inner}, q, {inner};"));
                }
                self.line(&format!("@q bra {begin};"));
                // Lanes leave one by one; warp operations of all need them together again.
                if self.masks {
                    self.line(&format!("bar.warp.sync {outer};"));
                }
            }
            S::UniformLoop(count, body) => {
                let begin = self.label();
                let counter = format!("c{}", self.level + 1);
                let (outer, inner) = (self.mask(), self.next_mask());
                self.line(&format!("mov.u32 {counter}, {count}; mov.b32 {inner}, {outer};\n{begin}:"));
                self.deeper(body);
                self.line(&format!("sub.u32 {counter}, {counter}, 1; setp.ne.u32 q, {counter}, 0; @q bra {begin};"));
            }
            S::Switch(value, arms) => {
                let end = self.label();
                let labels: Vec<String> = arms.iter().map(|_| self.label()).collect();
                let table = self.label();
                let (outer, inner) = (self.mask(), self.next_mask());
                writeln!(self.tables, "{table}: .branchtargets {};", labels.join(", ")).unwrap();
                self.line(&format!("mov.u32 t0, {}; rem.u32 t0, t0, {};", v(*value), arms.len()));
                if self.masks {
                    // The lanes that go the same way.
                    for index in 0..arms.len() {
                        self.line(&format!(
                            "setp.eq.u32 q, t0, {index}; vote.sync.ballot.b32 t1, q, {outer}; @q mov.b32 {inner}, t1;"
                        ));
                    }
                }
                self.line(&format!("brx.idx t0, {table};"));
                for (label, arm) in labels.iter().zip(arms) {
                    self.line(&format!("{label}:"));
                    self.deeper(arm);
                    self.line(&format!("bra {end};"));
                }
                self.line(&format!("{end}:"));
            }
            S::StoreLocal(index, value) => self.line(&format!(
                "mov.u64 l, array; and.b32 t0, {}, 7; mul.wide.u32 k, t0, 4; add.u64 l, l, k; mov.u32 t0, {}; st.local.u32 [l], t0;",
                v(*index),
                v(*value)
            )),
            S::LoadLocal(d, index) => self.line(&format!(
                "mov.u64 l, array; and.b32 t0, {}, 7; mul.wide.u32 k, t0, 4; add.u64 l, l, k; ld.local.u32 v{d}, [l];",
                v(*index)
            )),
            S::CountShared(value) => self.line(&format!(
                "mov.u32 t0, {}; and.b32 t1, t0, 3; shl.b32 t1, t1, 2; mov.u32 t2, counters; add.u32 t1, t1, t2; red.shared.add.u32 [t1], t0;",
                v(*value)
            )),
            S::Call(function, d, a, b) => self.line(&format!(
                "{{ .param .b32 x; .param .b32 y; .param .b32 z; mov.u32 t0, {}; st.param.b32 [x], t0; mov.u32 t0, {}; st.param.b32 [y], t0; call.uni (z), f{function}, (x, y); ld.param.b32 v{d}, [z]; }}",
                v(*a),
                v(*b)
            )),
            S::Exchange(d, a, distance) => self.line(&format!(
                "mov.u32 t0, place; shl.b32 t1, tid, 2; add.u32 t1, t1, t0; mov.u32 t2, {}; st.shared.u32 [t1], t2; bar.sync 0; add.u32 t1, tid, {distance}; rem.u32 t1, t1, {THREADS}; shl.b32 t1, t1, 2; add.u32 t1, t1, t0; ld.shared.u32 v{d}, [t1]; bar.sync 0;",
                v(*a)
            )),
            S::Shuffle(d, a, lane) => {
                self.line(&format!("mov.u32 t0, {}; shfl.sync.bfly.b32 v{d}, t0, {lane}, 31, -1;", v(*a)));
            }
            S::Sum(d, a) => self.line(&format!("mov.u32 t0, {}; redux.sync.add.u32 v{d}, t0, {};", v(*a), self.mask())),
            S::Ballot(d, condition) => {
                self.condition("q", *condition);
                let mask = self.mask();
                self.line(&format!("vote.sync.ballot.b32 v{d}, q, {mask};"));
            }
            S::BarrierCount(d, condition) => {
                self.condition("q", *condition);
                self.line(&format!("bar.red.popc.u32 v{d}, 0, q;"));
            }
            S::Return(condition, value) => {
                assert!(self.result);
                self.condition("q", *condition);
                self.line(&format!("mov.u32 t0, {}; @q st.param.b32 [r], t0; @q ret;", v(*value)));
            }
        }
    }
}

const SCRATCH: &str = ".reg .b32 t0, t1, t2, tid; .reg .b64 l, k, w0, w1; .reg .f64 e, f; .reg .b16 g, h; .reg .pred p0, p1, q;
    .local .align 4 .b32 array[8]; mov.u64 w0, 0; mov.u64 w1, 1; mov.f64 f, 0d0000000000000000; mov.u16 h, 7;
    setp.ne.u32 p0, 0, 0; setp.eq.u32 p1, 0, 0; mov.u32 tid, %tid.x; mov.u32 t0, 0;
    st.local.u32 [array], t0; st.local.u32 [array+4], t0; st.local.u32 [array+8], t0; st.local.u32 [array+12], t0;
    st.local.u32 [array+16], t0; st.local.u32 [array+20], t0; st.local.u32 [array+24], t0; st.local.u32 [array+28], t0;";

fn body(statements: &[Statement], setup: &str, masks: bool, result: bool, labels: &mut u32) -> String {
    let mut writer = Writer {
        text: String::new(),
        labels: *labels,
        level: 0,
        deepest: 0,
        masks,
        tables: String::new(),
        result,
    };
    writer.block(statements);
    *labels = writer.labels;
    let levels = writer.deepest + 2;
    format!(
        ".reg .b32 v<{VARIABLES}>, m<{levels}>, c<{levels}>;\n{SCRATCH}\n{setup} mov.b32 m0, -1;\n{}{}",
        writer.tables, writer.text
    )
}

impl Program {
    fn ptx(&self) -> String {
        let mut text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.shared .align 4 .b32 place[{THREADS}];\n.shared .align 4 .b32 counters[4];\n"
        );
        let mut labels = 0;
        for (index, function) in self.functions.iter().enumerate() {
            let setup = "ld.param.b32 v0, [first]; ld.param.b32 v1, [second]; mov.u32 v2, 0; mov.u32 v3, 1; mov.u32 v4, 2; mov.u32 v5, 3;";
            let body = body(function, setup, self.together, true, &mut labels);
            writeln!(
                text,
                ".func (.param .b32 r) f{index}(.param .b32 first, .param .b32 second) {{\n{body}st.param.b32 [r], v0; ret; }}"
            )
            .unwrap();
        }
        let setup = ".reg .pred few; mov.u32 v0, tid; mov.u32 v1, %ctaid.x; mul.lo.u32 v1, v1, 77; mul.lo.u32 v2, tid, 0x9E3779B1; shr.u32 v3, v2, 7; mad.lo.u32 v4, tid, tid, v1; mov.u32 v5, 5;
            setp.lt.u32 few, tid, 4; mov.u32 t1, counters; mad.lo.u32 t1, tid, 4, t1; @few st.shared.u32 [t1], 0; bar.sync 0;";
        let body = body(&self.kernel, setup, true, false, &mut labels);
        writeln!(
            text,
            ".visible .entry test(.param .u64 in, .param .u64 out, .param .u32 n, .param .align 16 .b8 extra[64]) {{\n{body}\
             bar.sync 0; .reg .b64 address; ld.param.u64 address, [out]; mov.u32 t0, %ctaid.x; mad.lo.u32 t0, t0, {THREADS}, tid; mul.wide.u32 l, t0, 32; add.u64 address, address, l;\n\
             mov.u32 t1, counters; and.b32 t0, tid, 3; mad.lo.u32 t1, t0, 4, t1; ld.shared.u32 t0, [t1]; cvt.rzi.u32.f64 t1, f;\n\
             st.global.v4.u32 [address], {{v0, v1, v2, v3}}; st.global.v4.u32 [address+16], {{v4, v5, t0, t1}}; ret; }}"
        )
        .unwrap();
        text
    }
}

// The interpreter.

#[derive(Clone)]
struct Thread {
    v: [u32; VARIABLES],
    w: [u64; 2],
    f: f64,
    h: u16,
    p: [bool; 2],
    local: [u32; 8],
}

impl Thread {
    fn new(v: [u32; VARIABLES]) -> Self {
        Self { v, w: [0, 1], f: 0.0, h: 7, p: [false, true], local: [0; 8] }
    }

    fn value(&self, value: Value) -> u32 {
        match value {
            Value::Variable(n) => self.v[n],
            Value::Constant(c) => c,
        }
    }

    fn condition(&self, c: Condition) -> bool {
        (self.value(c.a) < self.value(c.b)) != c.negated
    }
}

/// One block of threads; a function call is another one with the same counters.
struct Block<'a> {
    program: &'a Program,
    number: u32,
    threads: Vec<Thread>,
    returned: Vec<Option<u32>>,
    counters: [u32; 4],
}

impl Block<'_> {
    fn run(&mut self, statements: &[Statement], active: &mut [bool]) {
        for statement in statements {
            self.step(statement, active);
        }
    }

    /// Does something to each thread that is here.
    fn each(&mut self, active: &[bool], mut action: impl FnMut(&mut Thread)) {
        self.threads
            .iter_mut()
            .zip(active)
            .filter(|(_, active)| **active)
            .for_each(|(thread, _)| action(thread));
    }

    /// The threads that are here and for which something is so.
    fn those(&self, active: &[bool], mut is: impl FnMut(&Thread) -> bool) -> Vec<bool> {
        self.threads.iter().zip(active).map(|(thread, active)| *active && is(thread)).collect()
    }

    fn step(&mut self, statement: &Statement, active: &mut [bool]) {
        use Statement as S;
        match statement {
            S::Compute(operator, d, a, b) => self.each(active, |t| {
                let (a, b) = (t.value(*a), t.value(*b));
                t.v[*d] = match OPERATORS[*operator].0 {
                    Operator::Add => a.wrapping_add(b),
                    Operator::Sub => a.wrapping_sub(b),
                    Operator::Mul => a.wrapping_mul(b),
                    Operator::And => a & b,
                    Operator::Xor => a ^ b,
                    Operator::Min => a.min(b),
                    Operator::Shl => a << (b & 15),
                    Operator::Shr => a >> (b & 15),
                };
            }),
            S::Wide(w, d, a, b) => self.each(active, |t| {
                let product = u64::from(t.value(*a)) * u64::from(t.value(*b));
                t.w[*w] = t.w[*w].wrapping_add(product);
                t.v[*d] = (t.w[*w] >> 32) as u32;
            }),
            S::Double(d, a) => self.each(active, |t| {
                t.f += f64::from(t.value(*a));
                t.v[*d] = (t.f as u64 % 1000) as u32;
            }),
            S::Half(d, a) => self.each(active, |t| {
                t.h = t.h.wrapping_add(t.value(*a) as u16);
                t.v[*d] = u32::from(t.h);
            }),
            S::SetPredicate(p, condition) => self.each(active, |t| t.p[*p] = t.condition(*condition)),
            S::Select(p, d, a, b) => self.each(active, |t| t.v[*d] = t.value(if t.p[*p] { *a } else { *b })),
            S::Guarded(p, negated, d, a, b) => self.each(active, |t| {
                if t.p[*p] != *negated {
                    t.v[*d] = t.value(*a).wrapping_add(t.value(*b));
                }
            }),
            S::If(condition, yes, no) => {
                let mut those = self.those(active, |t| t.condition(*condition));
                let mut others: Vec<bool> = active.iter().zip(&those).map(|(a, t)| *a && !t).collect();
                self.run(yes, &mut those);
                self.run(no, &mut others);
            }
            S::UniformIf(block, yes, no) => self.run(if self.number == *block { yes } else { no }, active),
            S::Loop(count, body) => {
                let counts: Vec<u32> = self.threads.iter().map(|t| t.value(*count) & 3).collect();
                let mut here = active.to_vec();
                for round in 0..4 {
                    here.iter_mut().zip(&counts).for_each(|(here, count)| *here &= *count >= round);
                    self.run(body, &mut here);
                }
            }
            S::UniformLoop(count, body) => (0..*count).for_each(|_| self.run(body, active)),
            S::Switch(value, arms) => {
                let choices: Vec<usize> =
                    self.threads.iter().map(|t| t.value(*value) as usize % arms.len()).collect();
                for (index, arm) in arms.iter().enumerate() {
                    let mut those: Vec<bool> =
                        active.iter().zip(&choices).map(|(a, c)| *a && *c == index).collect();
                    self.run(arm, &mut those);
                }
            }
            S::StoreLocal(index, value) => {
                self.each(active, |t| t.local[t.value(*index) as usize & 7] = t.value(*value));
            }
            S::LoadLocal(d, index) => self.each(active, |t| t.v[*d] = t.local[t.value(*index) as usize & 7]),
            S::CountShared(value) => {
                let mut counters = self.counters;
                self.each(active, |t| {
                    let value = t.value(*value);
                    let counter = &mut counters[value as usize & 3];
                    *counter = counter.wrapping_add(value);
                });
                self.counters = counters;
            }
            S::Call(function, d, a, b) => {
                let frame = |t: &Thread| Thread::new([t.value(*a), t.value(*b), 0, 1, 2, 3]);
                let mut callee = Block {
                    program: self.program,
                    number: self.number,
                    threads: self.threads.iter().map(frame).collect(),
                    returned: vec![None; THREADS],
                    counters: self.counters,
                };
                callee.run(&self.program.functions[*function], &mut active.to_vec());
                self.counters = callee.counters;
                for (index, thread) in self.threads.iter_mut().enumerate() {
                    if active[index] {
                        thread.v[*d] = callee.returned[index].unwrap_or(callee.threads[index].v[0]);
                    }
                }
            }
            S::Exchange(d, a, distance) => {
                let values: Vec<u32> = self.threads.iter().map(|t| t.value(*a)).collect();
                for (index, thread) in self.threads.iter_mut().enumerate() {
                    thread.v[*d] = values[(index + *distance as usize) % THREADS];
                }
            }
            S::Shuffle(d, a, lane) => {
                let values: Vec<u32> = self.threads.iter().map(|t| t.value(*a)).collect();
                for (index, thread) in self.threads.iter_mut().enumerate() {
                    thread.v[*d] = values[index ^ *lane as usize];
                }
            }
            S::Sum(d, a) => {
                for warp in 0..THREADS / 32 {
                    let lanes = warp * 32..warp * 32 + 32;
                    let sum = lanes
                        .clone()
                        .filter(|n| active[*n])
                        .map(|n| self.threads[n].value(*a))
                        .fold(0, u32::wrapping_add);
                    lanes.filter(|n| active[*n]).for_each(|n| self.threads[n].v[*d] = sum);
                }
            }
            S::Ballot(d, condition) => {
                let those = self.those(active, |t| t.condition(*condition));
                for (index, thread) in self.threads.iter_mut().enumerate() {
                    if active[index] {
                        let warp = &those[index / 32 * 32..][..32];
                        thread.v[*d] = warp.iter().enumerate().map(|(lane, is)| u32::from(*is) << lane).sum();
                    }
                }
            }
            S::BarrierCount(d, condition) => {
                let count = self.those(active, |t| t.condition(*condition)).iter().filter(|is| **is).count();
                self.each(active, |t| t.v[*d] = count as u32);
            }
            S::Return(condition, value) => {
                let threads = self.threads.iter().zip(&mut self.returned).zip(active);
                for ((thread, returned), active) in threads.filter(|(_, active)| **active) {
                    if thread.condition(*condition) {
                        *returned = Some(thread.value(*value));
                        *active = false;
                    }
                }
            }
        }
    }
}

fn expected(program: &Program) -> Vec<u32> {
    let mut all = Vec::new();
    for number in 0..BLOCKS as u32 {
        let thread = |tid: u32| {
            let (v1, v2) = (number * 77, tid.wrapping_mul(0x9E37_79B1));
            Thread::new([tid, v1, v2, v2 >> 7, tid * tid + v1, 5])
        };
        let mut block = Block {
            program,
            number,
            threads: (0..THREADS as u32).map(thread).collect(),
            returned: vec![None; THREADS],
            counters: [0; 4],
        };
        block.run(&program.kernel, &mut [true; THREADS]);
        for (tid, thread) in block.threads.iter().enumerate() {
            all.extend(thread.v);
            all.extend([block.counters[tid & 3], thread.f as u32]);
        }
    }
    all
}

/// Runs one program; an error says what came out wrong.
fn check(seed: u64) -> Result<(), String> {
    let program = generate(seed);
    let ptx = program.ptx();
    let wanted = expected(&program);
    let output = vec![0; wanted.len() * 4];
    let run = Run {
        ptx: &ptx,
        input: &[],
        output: &output,
        count: 0,
        extra: [0; 64],
        grid: BLOCKS as u32,
        block: THREADS as u32,
        shared: 0,
    };
    let got = gpu().run(&run).map_err(|error| format!("program {seed}: {error}\n{ptx}"))?;
    let got: Vec<u32> = got.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
    match got.iter().zip(&wanted).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => {
            let (thread, word) = (at / 8, at % 8);
            Err(format!(
                "program {seed}: thread {thread}, word {word} is {:#x}, not {:#x}\n{ptx}",
                got[at], wanted[at]
            ))
        }
    }
}

#[test]
fn random_programs_compute_what_an_interpreter_does() {
    let count = std::env::var("RGPU_PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    let first = std::env::var("RGPU_FIRST_PROGRAM").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    for seed in first..first + count {
        if let Err(why) = check(seed) {
            panic!("{why}");
        }
    }
}
