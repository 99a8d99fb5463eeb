//! Random programs whose lanes exchange values through volatile shared memory without waiting for each other, as programs did before
//! `__syncwarp()`. An interpreter goes through each with all lanes of a warp in step, which meet again where their ways do; machine code for
//! one thread after another and for vectors of threads has to leave the same.

use std::fmt::Write;
use std::sync::Arc;

use super::containment::{Random, Rig};
use crate::abi::{Kernel, WARP};
use crate::compile::vector::{self, Mode};
use crate::exec::block::Progress;

/// Registers of a thread.
const REGISTERS: usize = 4;
/// Words of shared memory of each warp: no lane reaches farther.
const WORDS: usize = 2 * WARP;
const SIZES: [u32; 4] = [32, 64, 96, 160];
const MOST: usize = 160;
const BYTES: u64 = (MOST * (2 * REGISTERS + WORDS / WARP) * 4).next_multiple_of(4096) as u64;

/// An element of the warp's memory.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// So many behind the lane's own.
    Behind(usize),
    /// That of the lane whose number differs in these bits.
    Partner(usize),
    /// Of the lane's number times this and one more: an odd number, so that no two lanes have one place.
    Mixed(usize),
    /// The same for all.
    One(usize),
    /// Where a register leads.
    Told(usize),
}

#[derive(Debug, Clone, Copy)]
enum Condition {
    Below(usize),
    Bit(usize),
    Is(usize),
    /// The lowest bit of a register.
    Told(usize),
}

#[derive(Debug, Clone)]
enum Statement {
    /// `a = b * number + c`
    Compute(usize, usize, u32, usize),
    Load(usize, Place),
    Store(Place, usize),
    /// What is otherwise has no accesses: it is not said which way lanes go first.
    If(Condition, Vec<Statement>, Vec<Statement>),
    Loop(usize, Vec<Statement>),
    /// As often as two bits of a register say, at least once.
    LoopTold(usize, Vec<Statement>),
    Barrier,
}

struct Generator(Random);

impl Generator {
    fn register(&mut self) -> usize {
        self.0.below(REGISTERS)
    }

    fn block(&mut self, depth: usize, divided: bool, one: bool) -> Vec<Statement> {
        let count = 2 + self.0.below(4);
        (0..count).map(|_| self.statement(depth, divided, one)).collect()
    }

    fn compute(&mut self) -> Statement {
        let number = self.0.bits() as u32 | 1;
        Statement::Compute(self.register(), self.register(), number, self.register())
    }

    /// `any` says whether lanes may have one place, `own` whether that behind their own is mostly their own.
    fn place(&mut self, any: bool, own: bool) -> Place {
        match self.0.below(if any { 5 } else { 3 }) {
            0 if own && self.0.below(2) == 0 => Place::Behind(0),
            0 => Place::Behind(self.0.below(WARP)),
            1 => Place::Partner(1 << self.0.below(5)),
            2 => Place::Mixed(2 * self.0.below(16) + 1),
            3 => Place::One(self.0.below(WORDS)),
            _ => Place::Told(self.register()),
        }
    }

    /// `divided` says whether not all threads come here, `one` whether one lane does alone.
    fn statement(&mut self, depth: usize, divided: bool, one: bool) -> Statement {
        let kind = self.0.below(if depth > 0 { 12 } else { 8 });
        match kind {
            0 | 1 => self.compute(),
            2..5 => {
                let place = self.place(true, false);
                Statement::Load(self.register(), place)
            }
            5..8 => Statement::Store(self.place(one, true), self.register()),
            8 | 9 => {
                let condition = match self.0.below(4) {
                    0 => Condition::Below(1 + self.0.below(WARP - 1)),
                    1 => Condition::Bit(self.0.below(5)),
                    2 => Condition::Is(self.0.below(WARP)),
                    _ => Condition::Told(self.register()),
                };
                let one = one || matches!(condition, Condition::Is(_));
                let otherwise = (0..self.0.below(3)).map(|_| self.compute()).collect();
                Statement::If(condition, self.block(depth - 1, true, one), otherwise)
            }
            10 if !divided && self.0.below(4) == 0 => Statement::Barrier,
            10 => Statement::Loop(2 + self.0.below(3), self.block(depth - 1, divided, one)),
            _ => Statement::LoopTold(self.register(), self.block(depth - 1, true, one)),
        }
    }
}

fn place_of(place: Place, lane: usize, registers: &[u32; REGISTERS]) -> usize {
    match place {
        Place::Behind(by) => lane + by,
        Place::Partner(bits) => lane ^ bits,
        Place::Mixed(by) => (lane * by + 1) % WARP,
        Place::One(place) => place,
        Place::Told(register) => registers[register] as usize % WORDS,
    }
}

/// A warp, all lanes of which are in step.
struct Warp {
    registers: Vec<[u32; REGISTERS]>,
    memory: [u32; WORDS],
}

impl Warp {
    fn run(&mut self, statements: &[Statement], here: u32) {
        let lanes = || (0..WARP).filter(move |lane| here >> lane & 1 != 0);
        for statement in statements {
            match statement {
                Statement::Compute(to, a, number, b) => lanes().for_each(|lane| {
                    let own = &mut self.registers[lane];
                    own[*to] = own[*a].wrapping_mul(*number).wrapping_add(own[*b]);
                }),
                Statement::Load(to, place) => lanes().for_each(|lane| {
                    let own = &mut self.registers[lane];
                    own[*to] = self.memory[place_of(*place, lane, own)];
                }),
                Statement::Store(place, from) => lanes().for_each(|lane| {
                    let own = &self.registers[lane];
                    self.memory[place_of(*place, lane, own)] = own[*from];
                }),
                Statement::If(condition, yes, no) => {
                    let goes = |lane: &usize| match *condition {
                        Condition::Below(limit) => *lane < limit,
                        Condition::Bit(bit) => lane >> bit & 1 != 0,
                        Condition::Is(number) => *lane == number,
                        Condition::Told(register) => self.registers[*lane][register] & 1 != 0,
                    };
                    let those = lanes().filter(goes).fold(0, |those, lane| those | 1 << lane);
                    self.run(yes, those);
                    self.run(no, here & !those);
                }
                Statement::Loop(count, body) => (0..*count).for_each(|_| self.run(body, here)),
                Statement::LoopTold(register, body) => {
                    let counts: Vec<u32> = self.registers.iter().map(|own| own[*register] & 3).collect();
                    for round in 0..4 {
                        let those = lanes().filter(|lane| counts[*lane] >= round);
                        let those = those.fold(0, |those, lane| those | 1 << lane);
                        self.run(body, those);
                    }
                }
                Statement::Barrier => {}
            }
        }
    }
}

/// A program as PTX. The registers of all threads come from memory, and go there.
struct Writer {
    text: String,
    labels: usize,
    counters: usize,
    temporaries: usize,
    /// Whether functions are called for all accesses.
    calls: bool,
}

/// The functions of programs that have some.
const FUNCTIONS: &str = ".func (.param .b32 value) fetch(.param .b64 pointer)
    { .reg .b64 at; .reg .b32 v; ld.param.u64 at, [pointer]; ld.volatile.u32 v, [at]; st.param.b32 [value], v; ret; }
    .func put(.param .b64 pointer, .param .b32 value)
    { .reg .b64 at; .reg .b32 v; ld.param.u64 at, [pointer]; ld.param.u32 v, [value]; st.volatile.u32 [at], v; ret; }\n";

impl Writer {
    fn label(&mut self) -> String {
        self.labels += 1;
        format!("L{}", self.labels)
    }

    /// A register that nothing else is in, as a compiler has it.
    fn temporary(&mut self) -> String {
        self.temporaries += 1;
        format!("t{}", self.temporaries)
    }

    /// An operand for a place: the register that its address is in, and how far behind that it is.
    fn address(&mut self, place: Place) -> (String, usize) {
        let [number, bytes, at] = std::array::from_fn(|_| self.temporary());
        let number = match place {
            Place::Behind(by) => return ("own".into(), by * 4),
            Place::One(place) => return ("base".into(), place * 4),
            Place::Partner(bits) => format!("xor.b32 {number}, lane, {bits}; shl.b32 {bytes}, {number}, 2;"),
            Place::Mixed(by) => {
                let product = self.temporary();
                format!(
                    "mad.lo.u32 {product}, lane, {by}, 1; and.b32 {number}, {product}, {}; shl.b32 {bytes}, {number}, 2;",
                    WARP - 1
                )
            }
            Place::Told(register) => {
                format!("and.b32 {number}, v{register}, {}; shl.b32 {bytes}, {number}, 2;", WORDS - 1)
            }
        };
        _ = writeln!(self.text, "{number} add.u32 {at}, base, {bytes};");
        (at, 0)
    }

    /// An access to a place, by the kernel itself or by a function that gets a pointer which may lead anywhere.
    fn access(&mut self, place: Place, register: usize, load: bool) {
        let (at, offset) = self.address(place);
        if !self.calls {
            _ = if load {
                writeln!(self.text, "ld.volatile.shared.u32 v{register}, [{at}+{offset}];")
            } else {
                writeln!(self.text, "st.volatile.shared.u32 [{at}+{offset}], v{register};")
            };
            return;
        }
        let [offset_at, wide, pointer] = std::array::from_fn(|_| self.temporary());
        _ = writeln!(
            self.text,
            "add.u32 {offset_at}, {at}, {offset}; cvt.u64.u32 w{wide}, {offset_at}; cvta.shared.u64 w{pointer}, w{wide};"
        );
        let call = if load { "call (value), fetch, (pointer);" } else { "call put, (pointer, value);" };
        let (before, behind) = if load {
            (String::new(), format!("ld.param.b32 v{register}, [value];"))
        } else {
            (format!("st.param.b32 [value], v{register};"), String::new())
        };
        _ = writeln!(
            self.text,
            "{{ .param .b64 pointer; .param .b32 value; st.param.b64 [pointer], w{pointer}; {before} {call} {behind} }}"
        );
    }

    fn block(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Compute(to, a, number, b) => {
                _ = writeln!(self.text, "mad.lo.u32 v{to}, v{a}, {number}, v{b};");
            }
            Statement::Load(to, place) => {
                self.access(*place, *to, true);
            }
            Statement::Store(place, from) => {
                self.access(*place, *from, false);
            }
            Statement::If(condition, yes, no) => {
                let (other, end) = (self.label(), self.label());
                let text = match condition {
                    Condition::Below(limit) => format!("setp.lt.u32 q, lane, {limit};"),
                    Condition::Bit(bit) => format!("and.b32 t, lane, {}; setp.ne.u32 q, t, 0;", 1 << bit),
                    Condition::Is(number) => format!("setp.eq.u32 q, lane, {number};"),
                    Condition::Told(register) => format!("and.b32 t, v{register}, 1; setp.ne.u32 q, t, 0;"),
                };
                let to = if no.is_empty() { &end } else { &other };
                _ = writeln!(self.text, "{text} @!q bra {to};");
                self.block(yes);
                if !no.is_empty() {
                    _ = writeln!(self.text, "bra {end};\n{other}:");
                    self.block(no);
                }
                _ = writeln!(self.text, "{end}:");
            }
            Statement::Loop(count, body) => self.repeat(&format!("mov.u32 $c, {};", count - 1), body),
            Statement::LoopTold(register, body) => self.repeat(&format!("and.b32 $c, v{register}, 3;"), body),
            Statement::Barrier => self.text.push_str("bar.sync 0;\n"),
        }
    }

    fn repeat(&mut self, begin: &str, body: &[Statement]) {
        let counter = format!("c{}", self.counters);
        self.counters += 1;
        let label = self.label();
        _ = writeln!(self.text, "{}\n{label}:", begin.replace("$c", &counter));
        self.block(body);
        _ = writeln!(
            self.text,
            "sub.s32 {counter}, {counter}, 1; setp.ge.s32 q, {counter}, 0; @q bra {label};"
        );
    }
}

fn ptx(program: &[Statement], calls: bool) -> String {
    let mut writer = Writer { text: String::new(), labels: 0, counters: 0, temporaries: 0, calls };
    writer.block(program);
    let moves = |op: &str, first: usize| {
        (0..REGISTERS).fold(String::new(), |mut text, n| {
            let at = format!("[at+{}]", (first + n) * MOST * 4);
            let (register, at) = if op == "ld" { (format!("v{n}"), at) } else { (at, format!("v{n}")) };
            _ = writeln!(text, "{op}.global.u32 {register}, {at};");
            text
        })
    };
    let left = 2 * REGISTERS * MOST * 4;
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n{}.visible .entry k(.param .u64 memory)\n{{\n\
         .reg .b32 v<{REGISTERS}>, c<{}>, t<{}>, t, first, lane, base, own, tid; .reg .b64 at, wide, wt<{}>; .reg .pred q; .shared .align 4 .b8 s[{}];\n\
         mov.u32 tid, %tid.x; and.b32 lane, tid, 31; shr.u32 t, tid, 5; mov.u32 first, s; mad.lo.u32 base, t, {}, first;\n\
         shl.b32 t0, lane, 2; add.u32 own, base, t0; ld.param.u64 at, [memory]; mul.wide.u32 wide, tid, 4; add.u64 at, at, wide;\n\
         st.shared.u32 [own], tid; st.shared.u32 [own+{}], lane; bar.sync 0;\n{}{}bar.sync 0;\n{}\
         ld.shared.u32 v0, [own]; st.global.u32 [at+{left}], v0; ld.shared.u32 v0, [own+{}]; st.global.u32 [at+{}], v0; ret; }}\n",
        if calls { FUNCTIONS } else { "" },
        writer.counters + 1,
        writer.temporaries + 1,
        writer.temporaries + 1,
        MOST / WARP * WORDS * 4,
        WORDS * 4,
        WARP * 4,
        moves("ld", 0),
        writer.text,
        moves("st", REGISTERS),
        WARP * 4,
        left + MOST * 4,
    )
}

/// What a program leaves in memory that begins so.
fn expected(program: &[Statement], threads: usize, memory: &[u32]) -> Vec<u32> {
    let mut left = memory.to_vec();
    for first in (0..threads).step_by(WARP) {
        let registers = |lane: usize| std::array::from_fn(|n| memory[n * MOST + first + lane]);
        let mut warp = Warp { registers: (0..WARP).map(registers).collect(), memory: [0; WORDS] };
        for lane in 0..WARP {
            (warp.memory[lane], warp.memory[WARP + lane]) = ((first + lane) as u32, lane as u32);
        }
        warp.run(program, !0);
        for lane in 0..WARP {
            let thread = first + lane;
            (0..REGISTERS).for_each(|n| left[(REGISTERS + n) * MOST + thread] = warp.registers[lane][n]);
            left[2 * REGISTERS * MOST + thread] = warp.memory[lane];
            left[(2 * REGISTERS + 1) * MOST + thread] = warp.memory[WARP + lane];
        }
    }
    left
}

/// Runs a kernel over memory.
fn launch(rig: &mut Rig, kernel: &Arc<Kernel>, threads: u32, memory: &[u32]) -> Result<Vec<u32>, String> {
    let base = rig.memory;
    // SAFETY: the rig's memory is as long as that, and no kernel runs; its parameter slot is open and this rig's alone.
    unsafe {
        std::ptr::copy(memory.as_ptr(), base as *mut u32, memory.len());
        (rig.params() as *mut u64).write(base);
    }
    match rig.execute(kernel, 1, None, [threads, 1, 1]) {
        Ok(Progress::Finished) => {}
        Ok(Progress::Yielded | Progress::Waiting) => return Err("it does not end".into()),
        Err(error) => return Err(error.to_string()),
    }
    let mut left = vec![0; memory.len()];
    // SAFETY: as above.
    unsafe { std::ptr::copy(base as *const u32, left.as_mut_ptr(), left.len()) };
    Ok(left)
}

/// How the program of a seed differs, if it does, in machine code for one thread after another, or for vectors of threads too.
fn difference(rig: &mut Rig, seed: u64, vectors: bool) -> Option<String> {
    let mut generator = Generator(Random(seed));
    let depth = 1 + generator.0.below(3);
    let program = generator.block(depth, false, false);
    let text = ptx(&program, (2..6).contains(&(seed % 8)));
    let threads = generator.0.pick(&SIZES);
    let memory: Vec<u32> = (0..BYTES / 4).map(|_| generator.0.bits() as u32).collect();
    let wanted = expected(&program, threads as usize, &memory);
    let modes = [Mode::Off, if (seed / 10).is_multiple_of(2) { Mode::First } else { Mode::Wide }];
    let tried = if vectors && vector::possible().is_ok() { 2 } else { 1 };
    modes[..tried].iter().find_map(|&mode| {
        vector::CHOSEN.set(Some(mode));
        let left = rig.compile(&text).map_err(|error| error.to_string());
        let left = left.and_then(|kernel| launch(rig, &kernel, threads, &memory));
        let why = match left {
            Ok(left) if left == wanted => return None,
            Ok(left) => {
                let at = wanted.iter().zip(&left).position(|(a, b)| a != b).unwrap_or(wanted.len());
                format!("thread {} of {threads}, number {}", at % MOST, at / MOST)
            }
            Err(why) => why,
        };
        Some(format!("seed {seed}, {mode:?}: {why}\n{program:?}\n{text}"))
    })
}

/// Compares so many programs; one of so many is compiled for vectors of threads, too.
fn compare(first: u64, count: u64, every: u64) {
    super::as_on_a_worker(move || {
        let mut rig = Rig::new(true, BYTES);
        for seed in first..first + count {
            if let Some(how) = difference(&mut rig, seed, seed.is_multiple_of(every)) {
                panic!("{how}");
            }
        }
    });
}

#[test]
fn lanes_that_exchange_values_without_waiting_are_in_step() {
    compare(1, 600, 30);
}

/// More of them: `RGPU_FUZZ_SEED`, `RGPU_FUZZ_COUNT`.
#[test]
#[ignore = "a long run"]
fn long_run() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    compare(number("RGPU_FUZZ_SEED").unwrap_or(1_000_000), number("RGPU_FUZZ_COUNT").unwrap_or(10_000), 10);
}
