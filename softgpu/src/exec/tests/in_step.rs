//! Random programs whose lanes exchange values through volatile shared memory without waiting for each other, as programs did before
//! `__syncwarp()`. An interpreter goes through each with all lanes of a warp in step, which meet again where their ways do; machine code for
//! one thread after another and for vectors of threads has to leave the same. Where `RGPU_TEST_DRIVER` names the driver of a real GPU, that
//! GPU runs the programs instead.

use std::fmt::Write;
use std::sync::Arc;

use rgpu_conformance::hardware::{Hardware, Shape};

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
    /// Ends the innermost loop, or its turn, for some.
    Leave(Condition, Way),
    Barrier,
}

/// How a loop or its turn is ended in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The loop ends.
    Out,
    /// The turn does: by way of where it ends for all,
    ToEnd,
    /// or with another end of it.
    Back,
}

/// What is known of where a statement stands.
#[derive(Debug, Clone, Copy)]
struct Where {
    depth: usize,
    /// Whether not all threads come here.
    divided: bool,
    /// Whether one lane does alone.
    one: bool,
    /// Whether it is in a loop that ends in the middle for some.
    leaves: bool,
}

struct Generator(Random);

impl Generator {
    fn register(&mut self) -> usize {
        self.0.below(REGISTERS)
    }

    fn block(&mut self, place: Where) -> Vec<Statement> {
        let count = 2 + self.0.below(4);
        (0..count).map(|_| self.statement(place)).collect()
    }

    fn condition(&mut self) -> Condition {
        match self.0.below(4) {
            0 => Condition::Below(1 + self.0.below(WARP - 1)),
            1 => Condition::Bit(self.0.below(5)),
            2 => Condition::Is(self.0.below(WARP)),
            _ => Condition::Told(self.register()),
        }
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

    fn statement(&mut self, place: Where) -> Statement {
        let Where { depth, divided, one, leaves } = place;
        let kind = self.0.below(if depth > 0 { 12 } else { 8 });
        match kind {
            0 if leaves => {
                Statement::Leave(self.condition(), self.0.pick(&[Way::Out, Way::ToEnd, Way::Back]))
            }
            0 | 1 => self.compute(),
            2..5 => {
                let place = self.place(true, false);
                Statement::Load(self.register(), place)
            }
            5..8 => Statement::Store(self.place(one, true), self.register()),
            8 | 9 => {
                let condition = self.condition();
                let one = one || matches!(condition, Condition::Is(_));
                let otherwise = (0..self.0.below(3)).map(|_| self.compute()).collect();
                let inner = Where { depth: depth - 1, divided: true, one, ..place };
                Statement::If(condition, self.block(inner), otherwise)
            }
            10 if !divided && self.0.below(4) == 0 => Statement::Barrier,
            10 => {
                let leaves = self.0.below(2) == 0;
                let inner = Where { depth: depth - 1, divided: divided || leaves, leaves, ..place };
                Statement::Loop(2 + self.0.below(3), self.block(inner))
            }
            _ => {
                let leaves = self.0.below(2) == 0;
                let inner = Where { depth: depth - 1, divided: true, leaves, ..place };
                Statement::LoopTold(self.register(), self.block(inner))
            }
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

/// Lanes that have ended a turn of the innermost loop in the middle, and those that have ended the loop.
#[derive(Default)]
struct Left {
    turn: u32,
    all: u32,
}

impl Warp {
    /// The lanes for which a condition holds.
    fn those(&self, condition: Condition, here: u32) -> u32 {
        let goes = |lane: &usize| match condition {
            Condition::Below(limit) => *lane < limit,
            Condition::Bit(bit) => lane >> bit & 1 != 0,
            Condition::Is(number) => *lane == number,
            Condition::Told(register) => self.registers[*lane][register] & 1 != 0,
        };
        let lanes = (0..WARP).filter(|lane| here >> lane & 1 != 0);
        lanes.filter(goes).fold(0, |those, lane| those | 1 << lane)
    }

    /// Goes through statements with those lanes. The lanes that come to their end.
    fn run(&mut self, statements: &[Statement], mut here: u32, left: &mut Left) -> u32 {
        for statement in statements {
            let lanes = || (0..WARP).filter(move |lane| here >> lane & 1 != 0);
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
                    let those = self.those(*condition, here);
                    here = self.run(yes, those, left) | self.run(no, here & !those, left);
                }
                Statement::Loop(count, body) => {
                    let mut going = here;
                    for _ in 0..*count {
                        going = self.turn(body, going);
                    }
                }
                Statement::LoopTold(register, body) => {
                    let counts: Vec<u32> = self.registers.iter().map(|own| own[*register] & 3).collect();
                    let mut going = here;
                    for round in 0..4 {
                        let those = lanes().filter(|lane| counts[*lane] >= round);
                        going = self.turn(body, going & those.fold(0, |those, lane| those | 1 << lane));
                    }
                }
                Statement::Leave(condition, way) => {
                    let those = self.those(*condition, here);
                    *(if *way == Way::Out { &mut left.all } else { &mut left.turn }) |= those;
                    here &= !those;
                }
                Statement::Barrier => {}
            }
        }
        here
    }

    /// One turn of a loop. The lanes that have not ended the loop in its middle.
    fn turn(&mut self, body: &[Statement], going: u32) -> u32 {
        let mut left = Left::default();
        self.run(body, going, &mut left) | left.turn
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
    /// What stands behind the end of the text: ways that one lane goes.
    far: String,
    /// The labels of the innermost loop.
    inside: Option<Inside>,
}

/// Labels of a loop: its beginning, what is behind it, and the end of a turn.
#[derive(Clone)]
struct Inside {
    begin: String,
    end: String,
    turn: String,
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
                let text = predicate(*condition);
                if let Condition::Is(_) = condition {
                    // As compilers do with what is not likely.
                    _ = writeln!(self.text, "{text} @q bra {other};");
                    self.block(no);
                    _ = writeln!(self.text, "{end}:");
                    let here = std::mem::take(&mut self.text);
                    self.block(yes);
                    let way = std::mem::replace(&mut self.text, here);
                    _ = writeln!(self.far, "{other}:\n{way}bra {end};");
                    return;
                }
                let to = if no.is_empty() { &end } else { &other };
                _ = writeln!(self.text, "{text} @!q bra {to};");
                self.block(yes);
                if !no.is_empty() {
                    _ = writeln!(self.text, "bra {end};\n{other}:");
                    self.block(no);
                }
                _ = writeln!(self.text, "{end}:");
            }
            Statement::Loop(count, body) => self.repeat(&format!("mov.u32 $c, {count};"), body),
            Statement::LoopTold(register, body) => {
                self.repeat(&format!("and.b32 $c, v{register}, 3; add.u32 $c, $c, 1;"), body)
            }
            Statement::Leave(condition, way) => {
                let inside = self.inside.clone().expect("it is in a loop");
                let text = predicate(*condition);
                let to = match way {
                    Way::Out => inside.end,
                    Way::ToEnd => inside.turn,
                    Way::Back => inside.begin,
                };
                _ = writeln!(self.text, "{text} @q bra {to};");
            }
            Statement::Barrier => self.text.push_str("bar.sync 0;\n"),
        }
    }

    fn repeat(&mut self, begin: &str, body: &[Statement]) {
        let counter = format!("c{}", self.counters);
        self.counters += 1;
        let [first, turn, end] = std::array::from_fn(|_| self.label());
        let inside = Inside { begin: first, end, turn };
        let begin = begin.replace("$c", &counter);
        let Inside { begin: first, turn, end } = &inside;
        _ = writeln!(
            self.text,
            "{begin}\n{first}: sub.s32 {counter}, {counter}, 1; setp.lt.s32 q, {counter}, 0; @q bra {end};"
        );
        let outer = self.inside.replace(inside.clone());
        self.block(body);
        self.inside = outer;
        _ = writeln!(self.text, "{turn}: bra {first};\n{end}:");
    }
}

/// Lets `q` be a condition.
fn predicate(condition: Condition) -> String {
    match condition {
        Condition::Below(limit) => format!("setp.lt.u32 q, lane, {limit};"),
        Condition::Bit(bit) => format!("and.b32 t, lane, {}; setp.ne.u32 q, t, 0;", 1 << bit),
        Condition::Is(number) => format!("setp.eq.u32 q, lane, {number};"),
        Condition::Told(register) => format!("and.b32 t, v{register}, 1; setp.ne.u32 q, t, 0;"),
    }
}

fn ptx(program: &[Statement], calls: bool) -> String {
    let (text, far) = (String::new(), String::new());
    let mut writer = Writer { text, labels: 0, counters: 0, temporaries: 0, calls, far, inside: None };
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
         ld.shared.u32 v0, [own]; st.global.u32 [at+{left}], v0; ld.shared.u32 v0, [own+{}]; st.global.u32 [at+{}], v0; ret;\n{}}}\n",
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
        writer.far,
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
        warp.run(program, !0, &mut Left::default());
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
        Ok(Progress::Yielded | Progress::Held(_) | Progress::Waiting) => return Err("it does not end".into()),
        Err(error) => return Err(error.to_string()),
    }
    let mut left = vec![0; memory.len()];
    // SAFETY: as above.
    unsafe { std::ptr::copy(base as *const u32, left.as_mut_ptr(), left.len()) };
    Ok(left)
}

/// Runs a program on a GPU of NVIDIA's.
fn launch_on(gpu: &Hardware, text: &str, threads: u32, memory: &[u32]) -> Result<Vec<u32>, String> {
    let kernel = gpu.load(text, "k")?;
    let mut bytes: Vec<u8> = memory.iter().flat_map(|word| word.to_le_bytes()).collect();
    gpu.write(0, &bytes)?;
    let shape = Shape { grid: [1; 3], block: [threads, 1, 1], shared: 0 };
    gpu.launch(&kernel, shape, &gpu.memory().to_le_bytes())?;
    gpu.read(0, &mut bytes)?;
    gpu.unload(kernel)?;
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
}

/// How the program of a seed differs, if it does, in machine code for one thread after another, or for vectors of threads too; or on a GPU.
fn difference(rig: &mut Rig, gpu: Option<&Hardware>, seed: u64, vectors: bool) -> Option<String> {
    let mut generator = Generator(Random(seed));
    let depth = 1 + generator.0.below(3);
    let program = generator.block(Where { depth, divided: false, one: false, leaves: false });
    let text = ptx(&program, (2..6).contains(&(seed % 8)));
    let threads = generator.0.pick(&SIZES);
    let memory: Vec<u32> = (0..BYTES / 4).map(|_| generator.0.bits() as u32).collect();
    let wanted = expected(&program, threads as usize, &memory);
    let differs = |left: Result<Vec<u32>, String>, how: &str| {
        let why = match left {
            Ok(left) if left == wanted => return None,
            Ok(left) => {
                let at = wanted.iter().zip(&left).position(|(a, b)| a != b).unwrap_or(wanted.len());
                format!("thread {} of {threads}, number {}", at % MOST, at / MOST)
            }
            Err(why) => why,
        };
        Some(format!("seed {seed}, {how}: {why}\n{program:?}\n{text}"))
    };
    if let Some(gpu) = gpu {
        return differs(launch_on(gpu, &text, threads, &memory), "the GPU");
    }
    let modes = [Mode::Off, Mode::by_turns(seed / 10)];
    let tried = if vectors && vector::possible().is_ok() { 2 } else { 1 };
    modes[..tried].iter().find_map(|&mode| {
        vector::CHOSEN.set(Some(mode));
        let left = rig.compile(&text).map_err(|error| error.to_string());
        differs(left.and_then(|kernel| launch(rig, &kernel, threads, &memory)), &format!("{mode:?}"))
    })
}

/// Compares so many programs; one of so many is compiled for vectors of threads, too.
fn compare(first: u64, count: u64, every: u64) {
    super::as_on_a_worker(move || {
        let mut rig = Rig::new(true, BYTES);
        let gpu = Hardware::asked();
        let mut different = 0;
        for seed in first..first + count {
            if let Some(how) = difference(&mut rig, gpu.as_ref(), seed, seed.is_multiple_of(every)) {
                assert!(gpu.is_some(), "{how}");
                // How many of them a GPU's compiler changes is of interest, too.
                different += 1;
                println!("{how}");
            }
        }
        assert_eq!(different, 0, "so many of {count} programs left something else on the GPU");
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
