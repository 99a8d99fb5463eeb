//! Random kernels that do what kernels may do with addresses, well and badly, and nothing else for long: their loops are
//! counted, and no function calls more than one other.

mod bulk;

use std::fmt::Write;

/// A small generator of random numbers (SplitMix64).
pub(in crate::exec) struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub(in crate::exec) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// A number below `limit`.
    pub(in crate::exec) fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit as u64) as usize
    }

    /// One of several.
    pub(in crate::exec) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// How many 64-bit parameters a kernel has, of which the first is where it leaves its registers.
pub(super) const PARAMS: usize = 8;
/// Bytes that each thread leaves there.
pub(super) const TRACE: usize = 128;

/// Functions of many signatures, none of which calls another, and two that call one through a pointer.
const FUNCTIONS: &str = "
.func (.param .b64 r) f0(.param .b64 x) { .reg .b64 %v<4>; ld.param.b64 %v1, [x]; add.u64 %v1, %v1, 1; st.param.b64 [r], %v1; ret; }
.func (.param .b64 r) f1(.param .align 8 .b8 p[8]) { .reg .b64 %v<4>; ld.param.b64 %v1, [p]; mov.u64 %v2, p; ld.b64 %v3, [%v2]; st.param.b64 [p], %v3; st.param.b64 [r], %v1; ret; }
.func (.param .b64 r) f2(.param .align 16 .b8 p[32], .param .b32 n) { .reg .b64 %v<4>; .reg .b32 %w<3>; ld.param.b32 %w1, [n]; cvt.u64.u32 %v2, %w1; mov.u64 %v1, p; add.u64 %v1, %v1, %v2; ld.b64 %v3, [%v1]; st.param.b64 [r], %v3; ret; }
.func (.param .align 8 .b8 s[24]) f3(.param .b64 x, .param .align 8 .b8 p[8]) { .reg .b64 %v<4>; ld.param.b64 %v1, [x]; ld.param.b64 %v2, [p]; st.param.b64 [s], %v1; st.param.b64 [s+16], %v2; mov.u64 %v3, s; st.b64 [%v3+8], %v2; ret; }
.func (.param .b32 r) f4(.param .b32 x, .param .f32 y) { .reg .b32 %w<3>; .reg .f32 %g; ld.param.b32 %w1, [x]; ld.param.f32 %g, [y]; mov.b32 %w2, %g; add.u32 %w1, %w1, %w2; st.param.b32 [r], %w1; ret; }
.func f5(.param .b64 x) { .reg .b64 %v<3>; .local .align 8 .b8 l[64]; ld.param.b64 %v1, [x]; st.local.b64 [l+8], %v1; mov.u64 %v2, l; ld.local.b64 %v1, [%v2+8]; ret; }
.func (.param .b64 r) f6(.param .b64 x, .param .b64 f) { .reg .b64 %v<4>; ld.param.b64 %v1, [x]; ld.param.b64 %v2, [f]; { .param .b64 a; .param .b64 b; st.param.b64 [a], %v1; P6: .callprototype (.param .b64 _) _ (.param .b64 _); call (b), %v2, (a), P6; ld.param.b64 %v3, [b]; } st.param.b64 [r], %v3; ret; }
.func (.param .b64 r) f7(.param .align 8 .b8 p[8], .param .b64 f) { .reg .b64 %v<4>; ld.param.b64 %v1, [p]; ld.param.b64 %v2, [f]; { .param .align 8 .b8 a[8]; .param .b64 g; .param .b64 b; st.param.b64 [a], %v1; st.param.b64 [g], %v2; T7: .calltargets f7; call (b), %v2, (a, g), T7; ld.param.b64 %v3, [b]; } st.param.b64 [r], %v3; ret; }
";

const DECLARATIONS: &str = "
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.extern .func (.param .b64 r) malloc (.param .b64 n);
.extern .func free (.param .b64 p);
.global .align 16 .b8 g[256];
.const .align 16 .b8 c[128];
.global .align 8 .b64 functions[4] = {f0, f1, f3, f7};
.global .align 1 .b8 text[24] = {37, 115, 124, 37, 108, 108, 120, 124, 37, 100, 124, 37, 102, 124, 37, 112, 10, 0};
";

struct Body<'a> {
    random: &'a mut Random,
    text: String,
    labels: usize,
    /// Registers that hold an address of shared memory, and such.
    depth: usize,
    calls: bool,
}

/// A module with one kernel, from one seed; without calls where those are not wanted.
pub(super) fn kernel(seed: u64, calls: bool) -> String {
    let mut random = Random(seed);
    let statements = 6 + random.below(30);
    let cuts = random.below(3) == 0;
    let mut body = Body { random: &mut random, text: String::new(), labels: 0, depth: 0, calls };
    for _ in 0..statements {
        body.statement(cuts);
    }
    let mut lines = body.text;
    if random.below(3) == 0 {
        lines = mutated(&lines, &mut random);
    }
    let mut text = format!(".version 8.0\n.target sm_90\n.address_size 64\n{DECLARATIONS}{FUNCTIONS}");
    text.push_str(".visible .entry k(");
    for index in 0..PARAMS {
        write!(text, "{}.param .u64 p{index}", if index > 0 { ", " } else { "" }).unwrap();
    }
    text.push_str(
        ", .param .align 16 .b8 q[48])\n{\n.reg .b64 %d<16>, %out; .reg .b32 %r<16>, %n, %c; .reg .b16 %h<4>; .reg .f32 %f<4>;\n\
         .reg .pred %p<4>, %u<4>, %loop; .reg .b32 %bits; .shared .align 16 .b8 s[512]; .local .align 16 .b8 l[128];\n",
    );
    text.push_str("mov.u32 %n, %tid.x; ld.param.u64 %out, [p0];\n");
    for index in 1..PARAMS {
        writeln!(text, "ld.param.u64 %d{index}, [p{index}];").unwrap();
    }
    for (index, name) in ["s", "l", "g", "c"].iter().enumerate() {
        writeln!(text, "mov.u64 %d{}, {name};", 8 + index).unwrap();
    }
    text.push_str(
        "cvta.shared.u64 %d12, %d8; mov.u64 %d13, functions; mov.u64 %d14, f0; mov.u64 %d15, text;\n",
    );
    text.push_str(
        "mov.u32 %r1, s; mov.u32 %r2, %tid.x; mov.u32 %r3, 64; and.b32 %r8, %r2, 7; shl.b32 %r8, %r8, 4;\n\
         mov.u32 %r9, 48; mov.u32 %r10, 3; mov.u32 %r11, 16; mov.u32 %r12, 80; mov.u32 %r0, 32; cvt.u32.u64 %r4, %d1; cvt.u32.u64 %r5, %d2;\n\
         and.b32 %r6, %r5, 255; mov.u32 %r7, %laneid; setp.ne.u32 %p1, %r6, 7; setp.lt.u32 %p2, %r2, 3;\n",
    );
    if !calls {
        // A kernel that reads what nothing was written to does not run for vectors of threads.
        text.push_str(
            "mov.b16 %h0, 0; mov.b16 %h1, 1; mov.b16 %h2, 2; mov.b16 %h3, 3; mov.f32 %f0, 0f3F800000; mov.f32 %f1, %f0; mov.f32 %f2, %f0;\n\
             mov.f32 %f3, %f0; setp.eq.u32 %p0, %n, 0; setp.eq.u32 %p3, %n, 3; mov.u32 %r13, 13; mov.u32 %r14, 14; mov.u32 %r15, 15;\n\
             mov.u32 %c, 0; setp.ne.u32 %loop, %n, %n; mov.u64 %d0, 0;\n",
        );
    }
    // The last parameter says which statements are skipped.
    text.push_str("ld.param.u32 %bits, [q+40];\n");
    for index in 0..4 {
        writeln!(text, "and.b32 %r0, %bits, {}; setp.ne.u32 %u{index}, %r0, 0;", 1 << index).unwrap();
    }
    text.push_str(&lines);
    // What the thread has come to know goes where it can be seen.
    writeln!(text, "mul.wide.u32 %d0, %n, {TRACE}; add.u64 %out, %out, %d0;").unwrap();
    for index in 1..16 {
        writeln!(text, "st.global.u64 [%out+{}], %d{index};", index * 8).unwrap();
    }
    text.push_str("mov.b64 %d0, {%r8, %r9}; st.global.u64 [%out], %d0;\n");
    for index in [10, 11, 12, 13] {
        writeln!(text, "st.global.u32 [%out+{}], %r{index};", index * 4).unwrap();
    }
    text.push_str("ret;\n}\n");
    text
}

/// Words of a body replaced by others of the kind. Nothing that decides where control goes, and how often.
fn mutated(lines: &str, random: &mut Random) -> String {
    const SPACES: &[&str] = &[".global", ".shared", ".local", ".const", ""];
    let mut all: Vec<String> = lines.lines().map(str::to_owned).collect();
    for _ in 0..1 + random.below(4) {
        let at = random.below(all.len());
        let line = &all[at];
        if ["LOOP", "bra", "brx", "loop", "%c", "L_", "bar", "call", "cp.async.bulk"]
            .iter()
            .any(|word| line.contains(word))
        {
            continue;
        }
        let (from, to) = match random.below(5) {
            0 => (random.pick(SPACES).to_owned(), random.pick(SPACES).to_owned()),
            1 => (format!("%d{}", random.below(16)), format!("%d{}", random.below(16))),
            2 => (format!("%r{}", random.below(16)), format!("%r{}", random.below(16))),
            3 => (".u32".to_owned(), random.pick(&[".u64", ".u8", ".b128", ".f64"]).to_owned()),
            _ => ("+".to_owned(), random.pick(&["+65528", "+-65536", "+4294967295", "+1", "+0"]).to_owned()),
        };
        if !from.is_empty() {
            all[at] = line.replacen(&from, &to, 1);
        }
    }
    all.join("\n") + "\n"
}

impl Body<'_> {
    fn line(&mut self, text: &str) {
        let guard = match self.random.below(6) {
            0 => "@%p1 ",
            1 => "@!%p2 ",
            _ => "",
        };
        writeln!(self.text, "{guard}{text}").unwrap();
    }

    fn wide(&mut self) -> String {
        format!("%d{}", self.random.below(16))
    }

    fn narrow(&mut self) -> String {
        format!("%r{}", self.random.below(16))
    }

    /// Where a result goes: mostly not over an address that is good.
    fn result(&mut self) -> String {
        if self.random.below(6) == 0 {
            self.wide()
        } else {
            format!("%d{}", self.random.pick(&[0, 5, 6, 7, 14]))
        }
    }

    /// The same for numbers of 32 bits; three more may follow.
    fn narrow_result(&mut self) -> usize {
        if self.random.below(6) == 0 { self.random.below(12) } else { self.random.pick(&[4, 5, 12]) }
    }

    /// A register that mostly holds an address of a state space.
    fn base(&mut self, space: &str) -> String {
        if self.random.below(8) == 0 {
            return if space == ".shared" { self.narrow() } else { self.wide() };
        }
        let good: &[&str] = match space {
            ".shared" => &["%r0", "%r1", "%r3", "%r8", "%r9", "%r11", "%d8"],
            ".local" => &["%d9"],
            ".const" => &["%d11"],
            ".global" => &["%d1", "%d2", "%d3", "%d4", "%d10", "%d13"],
            _ => &["%d1", "%d2", "%d3", "%d4", "%d9", "%d10", "%d12"],
        };
        self.random.pick(good).to_owned()
    }

    fn offset(&mut self) -> String {
        const FAR: &[&str] = &[
            "+4",
            "+8",
            "+48",
            "+-8",
            "+1",
            "+65264",
            "+-65280",
            "+65536",
            "+1048576",
            "+2147483640",
            "+-2147483648",
        ];
        let near: &[&str] = &["", "", "", "+16", "+32", "+64"];
        let offsets = if self.random.below(12) == 0 { FAR } else { near };
        self.random.pick(offsets).to_owned()
    }

    /// An address operand for a state space.
    fn address(&mut self, space: &str) -> String {
        let mut offset = self.offset();
        let base = match (space, self.random.below(4)) {
            (".shared", 0) => "s".to_owned(),
            (".local", 0) => "l".to_owned(),
            (".const", 0) => "c".to_owned(),
            (".global", 0) => self.random.pick(&["g", "functions", "text"]).to_owned(),
            ("", 0) if self.random.below(8) == 0 => {
                self.random.pick(&["4096", "65536", "1048576", "18446744073709551608"]).to_owned()
            }
            _ => self.base(space),
        };
        if base == "s" || base == "c" {
            offset = self.random.pick(&["", "+16", "+64", "+64", "+48", "+112", "+4"]).to_owned();
        }
        format!("[{base}{offset}]")
    }

    /// One statement, of which launches skip some together.
    fn statement(&mut self, cuts: bool) {
        self.labels += 1;
        let label = self.labels;
        let skipped = self.random.below(2) == 0;
        if skipped {
            let which = self.random.below(4);
            writeln!(self.text, "@%u{which} bra L_{label};").unwrap();
        }
        self.any_statement(cuts);
        if skipped {
            writeln!(self.text, "L_{label}:").unwrap();
        }
    }

    fn any_statement(&mut self, cuts: bool) {
        match self.random.below(if cuts { 29 } else { 24 }) {
            0..=4 => self.load(),
            5..=7 => self.store(),
            8 | 9 => self.atomic(),
            10..=12 => self.arithmetic(),
            13 => self.convert(),
            14..=17 if !self.calls => self.load(),
            14 | 15 => self.call(),
            16 => self.indirect(),
            17 => self.builtin(),
            18 => self.copy(),
            19 => self.branch(cuts),
            20 => self.parameter(),
            21 => self.matrix_memory(),
            22 | 23 => self.cluster(),
            24 | 25 => self.warp(),
            26 => self.barrier(),
            27 => self.cluster_barrier(),
            _ => self.matrix(),
        }
    }

    /// Addresses of other blocks' shared memory, good ones and others.
    fn cluster(&mut self) {
        let (d, a, q, s) = (self.result(), self.base(""), self.narrow(), self.narrow());
        let r = self.random.pick(&["%r8", "%r9", "%r4", "%r12"]);
        let rank = self.random.pick(&["0", "1", "2", "15", "16", "255", "256", "-1", "%r10", "%r2", "%r4"]);
        let near = self.base(".shared");
        let near = if near.starts_with("%r") { near } else { "%r1".to_owned() };
        let text = match self.random.below(12) {
            0 | 1 => format!("mapa.shared::cluster.u32 {r}, {near}, {rank};"),
            2 => format!("mapa.shared::cluster.u32 {r}, s+16, {rank};"),
            3 => format!("mapa.u64 {d}, %d12, {rank};"),
            4 => format!("mapa.u64 {d}, {a}, {rank};"),
            5 => format!("getctarank.shared::cluster.u32 {r}, {q}; getctarank.u64 {s}, {a};"),
            6 => format!("st.shared::cluster.u64 [{r}{}], {a};", self.offset()),
            7 => format!("ld.shared::cluster.v2.u64 {{{d}, %d0}}, [{r}{}];", self.offset()),
            8 => format!("atom.shared::cluster.add.u32 {r}, [{r}{}], {q};", self.offset()),
            9 => format!("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [{r}];"),
            10 => format!(
                "st.async.shared::cluster.mbarrier::complete_tx::bytes.u64 [{r}{}], {a}, [{near}];",
                self.offset()
            ),
            _ => format!(
                "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [{r}], [{near}], {q}, [{near}];"
            ),
        };
        self.line(&text);
    }

    fn cluster_barrier(&mut self) {
        let text = match self.random.below(4) {
            0 => "barrier.cluster.arrive;",
            1 => "barrier.cluster.wait;",
            _ => "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;",
        };
        writeln!(self.text, "{text}").unwrap();
    }

    fn load(&mut self) {
        let space = self.random.pick(&["", ".global", ".shared", ".local", ".const"]);
        let address = self.address(space);
        let (d, e, r) = (self.result(), self.result(), self.narrow_result());
        let order = if space == ".const" { "" } else { self.random.pick(&["", "", "", ".volatile"]) };
        let text = match self.random.below(9) {
            0..=2 => format!("ld{order}{space}.u64 {d}, {address};"),
            3 => format!("ld{order}{space}.u32 %r{r}, {address};"),
            4 => format!("ld{order}{space}.v2.u64 {{{d}, {e}}}, {address};"),
            5 => format!(
                "ld{order}{space}.v4.u32 {{%r{r}, %r{}, %r{}, %r{}}}, {address};",
                r + 1,
                r + 2,
                r + 3
            ),
            6 => format!("ld{space}.f32 %f1, {address}; mov.b32 %r{r}, %f1;"),
            7 => format!("ld{space}.u8 %r{r}, {address};"),
            _ => format!(
                "ld{space}.v4.u16 {{%h0, %h1, %h2, %h3}}, {address}; mov.b64 {d}, {{%h0, %h1, %h2, %h3}};"
            ),
        };
        self.line(&text);
    }

    fn store(&mut self) {
        let space = self.random.pick(&["", ".global", ".shared", ".local"]);
        let address = self.address(space);
        let (d, e, r) = (self.wide(), self.wide(), self.narrow());
        let text = match self.random.below(6) {
            0 | 1 => format!("st{space}.u64 {address}, {d};"),
            2 => format!("st.volatile{space}.u32 {address}, {r};"),
            3 => format!("st{space}.v2.u64 {address}, {{{d}, {e}}};"),
            4 => format!("st{space}.v4.u32 {address}, {{{r}, {r}, {r}, {r}}};"),
            _ => format!("st{space}.u8 {address}, {r};"),
        };
        self.line(&text);
    }

    fn atomic(&mut self) {
        let space = self.random.pick(&["", ".global", ".shared"]);
        let address = self.address(space);
        let (d, e, q) = (self.result(), self.wide(), self.narrow());
        let r = format!("%r{}", self.narrow_result());
        let text = match self.random.below(7) {
            0 => format!("atom{space}.add.u32 {r}, {address}, {q};"),
            1 => format!("atom{space}.exch.b64 {d}, {address}, {e};"),
            2 => format!("atom{space}.cas.b64 {d}, {address}, {e}, {d};"),
            3 => format!("atom{space}.min.s32 {r}, {address}, {q};"),
            4 => format!("red{space}.or.b64 {address}, {d};"),
            5 => format!("red{space}.add.f32 {address}, %f1;"),
            _ => format!("atom{space}.inc.u32 {r}, {address}, {q};"),
        };
        self.line(&text);
    }

    fn arithmetic(&mut self) {
        let (d, a, b, q) = (self.result(), self.wide(), self.wide(), self.narrow());
        let r = format!("%r{}", self.narrow_result());
        let small = self.random.pick(&["1", "8", "16", "-16", "65536", "4096", "0x7fffffff"]);
        let text = match self.random.below(11) {
            0 => format!("add.u64 {d}, {a}, {b};"),
            1 | 2 => format!("add.u64 {d}, {a}, {small};"),
            3 => format!("sub.u64 {d}, {a}, {b};"),
            4 => format!("xor.b64 {d}, {a}, {b};"),
            5 => format!("and.b64 {d}, {a}, -16;"),
            6 => format!("shl.b64 {d}, {a}, {q};"),
            7 => format!("mad.wide.u32 {d}, {r}, 8, {a};"),
            8 => format!("add.u32 {r}, {q}, {small};"),
            9 => format!("selp.b64 {d}, {a}, {b}, %p1;"),
            _ => format!("setp.lt.u64 %p1, {a}, {b};"),
        };
        self.line(&text);
    }

    fn convert(&mut self) {
        let (d, a) = (self.result(), self.wide());
        let r = format!("%r{}", self.narrow_result());
        let offset = self.random.pick(&["", "+8", "+64", "+-4"]);
        let text = match self.random.below(9) {
            0 => format!("cvta.shared.u64 {d}, {a};"),
            1 => format!("cvta.to.shared.u64 {d}, {a};"),
            2 => format!("cvta.local.u64 {d}, {a};"),
            3 => format!("cvta.to.global.u64 {d}, {a};"),
            4 => format!("isspacep.{} %p1, {a};", self.random.pick(&["shared", "local", "global", "const"])),
            5 => format!("mov.u64 {d}, {}{offset};", self.random.pick(&["s", "l", "g", "c", "text"])),
            6 => format!("cvt.u64.u32 {d}, {r};"),
            7 => format!("cvt.u32.u64 {r}, {a};"),
            _ => format!(
                "mov.u64 {d}, {};",
                self.random.pick(&["f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7"])
            ),
        };
        self.line(&text);
    }

    fn call(&mut self) {
        let (d, a, b, f) = (
            self.result(),
            self.wide(),
            self.base(""),
            self.random.pick(&[0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 6, 7]),
        );
        let r = format!("%r{}", self.narrow_result());
        let text = match f {
            0 => format!(
                "{{ .param .b64 x; .param .b64 y; st.param.b64 [x], {a}; call (y), f0, (x); ld.param.b64 {d}, [y]; }}"
            ),
            1 => format!(
                "{{ .param .align 8 .b8 x[8]; .param .b64 y; st.param.b64 [x], {a}; call (y), f1, (x); ld.param.b64 {d}, [y]; }}"
            ),
            2 => format!(
                "{{ .param .align 16 .b8 x[32]; .param .b32 n; .param .b64 y; st.param.b64 [x], {a}; st.param.b64 [x+24], {b}; \
                 st.param.b32 [n], {r}; call (y), f2, (x, n); ld.param.b64 {d}, [y]; }}"
            ),
            3 => format!(
                "{{ .param .b64 x; .param .align 8 .b8 p[8]; .param .align 8 .b8 y[24]; st.param.b64 [x], {a}; st.param.b64 [p], {b}; \
                 call (y), f3, (x, p); ld.param.b64 {d}, [y+{}]; }}",
                self.random.pick(&[0, 8, 16])
            ),
            4 => format!(
                "{{ .param .b32 x; .param .f32 z; .param .b32 y; st.param.b32 [x], {r}; st.param.f32 [z], %f1; call (y), f4, (x, z); ld.param.b32 {r}, [y]; }}"
            ),
            5 => format!("{{ .param .b64 x; st.param.b64 [x], {a}; call f5, (x); }}"),
            6 => format!(
                "{{ .param .b64 x; .param .b64 f; .param .b64 y; st.param.b64 [x], {a}; st.param.b64 [f], {b}; call (y), f6, (x, f); ld.param.b64 {d}, [y]; }}"
            ),
            _ => format!(
                "{{ .param .align 8 .b8 x[8]; .param .b64 f; .param .b64 y; st.param.b64 [x], {a}; st.param.b64 [f], {b}; call (y), f7, (x, f); ld.param.b64 {d}, [y]; }}"
            ),
        };
        writeln!(self.text, "{text}").unwrap();
    }

    /// A call through a pointer: of a function, of one beside it, of whatever lies in a register.
    fn indirect(&mut self) {
        let (d, a, target) = (self.result(), self.wide(), self.result());
        self.labels += 1;
        let name = format!("T{}", self.labels);
        let all = ["f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7"];
        let (others, bytes) = (
            format!("{}, {}", self.random.pick(&all), self.random.pick(&all)),
            self.random.pick(&[8, 16, 24]),
        );
        let value = ".param .b64 x;".to_owned();
        let second = ".param .b64 z; st.param.b64 [z], %d2;";
        // How the call is made, whatever the function in the register is like: the first of a table decides.
        let (how, declared, passed) = match self.random.below(6) {
            0 => (".calltargets f0;".to_owned(), value, "(x)"),
            1 => (format!(".calltargets f0, {others};"), value, "(x)"),
            2 => (format!(".calltargets f1, {others};"), ".param .align 8 .b8 x[8];".to_owned(), "(x)"),
            3 => (
                format!(".calltargets f7, {others};"),
                format!(".param .align 8 .b8 x[8]; {second}"),
                "(x, z)",
            ),
            4 => (".callprototype (.param .b64 _) _ (.param .b64 _);".to_owned(), value, "(x)"),
            _ => (
                format!(".callprototype (.param .b64 _) _ (.param .align 8 .b8 _[{bytes}]);"),
                format!(".param .align 8 .b8 x[{bytes}];"),
                "(x)",
            ),
        };
        if self.random.below(8) != 0 {
            let step = self.random.pick(&["0", "0", "0", "0", "0", "1", "2", "3", "-1", "-2", "7", "64"]);
            let near = self.random_function();
            self.line(&format!("mov.u64 {target}, {near}; add.s64 {target}, {target}, {step};"));
        }
        writeln!(
            self.text,
            "{{ {declared} .param .b64 y; st.param.b64 [x], {a}; {name}: {how} call (y), {target}, {passed}, {name}; ld.param.b64 {d}, [y]; }}"
        )
        .unwrap();
    }

    fn random_function(&mut self) -> &'static str {
        self.random.pick(&["f0", "f0", "f0", "f1", "f1", "f2", "f3", "f4", "f5", "f6", "f7"])
    }

    fn builtin(&mut self) {
        let (d, a, b) = (self.result(), self.wide(), self.base(""));
        let r = format!("%r{}", self.narrow_result());
        let text = match self.random.below(8) {
            0 => format!(
                "{{ .param .b64 x; .param .b64 y; st.param.b64 [x], {a}; call (y), malloc, (x); ld.param.b64 {d}, [y]; }}"
            ),
            1 => format!("{{ .param .b64 x; st.param.b64 [x], {a}; call free, (x); }}"),
            2 => format!(
                "setp.eq.u32 %p3, {r}, 5;\n@%p3 bra L_{0};\nbra L_{1};\nL_{0}: {{ .param .b64 m; .param .b64 f; .param .b32 n; .param .b64 o; .param .b64 z; \
                 st.param.b64 [m], {a}; st.param.b64 [f], {b}; st.param.b32 [n], {r}; st.param.b64 [o], {d}; st.param.b64 [z], {d}; \
                 call __assertfail, (m, f, n, o, z); }}\nL_{1}:",
                self.labels + 1,
                self.labels + 2
            ),
            3 => format!(
                "{{ .param .b64 f; .param .b64 a; .param .b32 y; st.param.b64 [f], {a}; st.param.b64 [a], {b}; call (y), vprintf, (f, a); ld.param.b32 {r}, [y]; }}"
            ),
            // The module's own format, over whatever the registers hold.
            _ => format!(
                "st.local.u64 [l], {a}; st.local.u64 [l+8], {b}; st.local.u64 [l+16], {d};\n\
                 {{ .param .b64 f; .param .b64 a; .param .b32 y; .reg .b64 %t<3>; mov.u64 %t1, text; mov.u64 %t2, l; st.param.b64 [f], %t1; \
                 st.param.b64 [a], %t2; call (y), vprintf, (f, a); ld.param.b32 {r}, [y]; }}"
            ),
        };
        self.labels += 2;
        writeln!(self.text, "{text}").unwrap();
    }

    fn copy(&mut self) {
        if self.random.below(3) == 0 {
            return self.bulk();
        }
        let (to, from, r) = (self.address(".shared"), self.address(".global"), self.narrow());
        let text = match self.random.below(4) {
            0 => format!("cp.async.ca.shared.global {to}, {from}, 4;"),
            1 => format!("cp.async.ca.shared.global {to}, {from}, 8;"),
            2 => format!("cp.async.cg.shared.global {to}, {from}, 16;"),
            _ => format!("cp.async.cg.shared.global {to}, {from}, 16, {r};"),
        };
        self.line(&text);
        self.line("cp.async.wait_all;");
    }

    fn branch(&mut self, cuts: bool) {
        if self.depth >= 2 {
            return self.arithmetic();
        }
        self.depth += 1;
        self.labels += 3;
        let label = self.labels;
        match self.random.below(3) {
            0 => {
                writeln!(self.text, "@%p1 bra L_{label};").unwrap();
                (0..3).for_each(|_| self.statement(false));
                writeln!(self.text, "L_{label}:").unwrap();
            }
            1 => {
                let r = self.narrow();
                writeln!(
                    self.text,
                    "B{label}: .branchtargets L_{label}, L_{};\nbrx.idx {r}, B{label};",
                    label - 1
                )
                .unwrap();
                writeln!(self.text, "L_{label}:").unwrap();
                (0..2).for_each(|_| self.statement(false));
                writeln!(self.text, "L_{}:", label - 1).unwrap();
            }
            // One loop at a time: its counter is its own.
            _ if self.depth == 1 => {
                writeln!(self.text, "mov.u32 %c, 0;\nLOOP_{label}:").unwrap();
                (0..3).for_each(|_| self.statement(cuts));
                writeln!(self.text, "add.u32 %c, %c, 1; setp.lt.u32 %loop, %c, 3; @%loop bra LOOP_{label};")
                    .unwrap();
            }
            _ => self.load(),
        }
        self.depth -= 1;
    }

    fn parameter(&mut self) {
        let d = self.result();
        let text = match self.random.below(4) {
            0 => format!("ld.param.u64 {d}, [q+{}];", self.random.pick(&[0, 8, 16, 40, 48, 4096, 32760])),
            1 => format!("mov.u64 {d}, q;"),
            2 => {
                let a = self.base("");
                format!("ld.param.u64 {d}, [{a}];")
            }
            _ => format!("ld.param.v2.u32 {{%r8, %r9}}, [q+{}];", self.random.pick(&[0, 8, 32])),
        };
        self.line(&text);
    }

    fn matrix_memory(&mut self) {
        let (d, r) = (self.wide(), self.narrow());
        let text = match self.random.below(4) {
            0 => format!(
                "wmma.load.c.sync.aligned.row.m16n16k16.f32 {{%f0, %f1, %f2, %f3, %f0, %f1, %f2, %f3}}, [{d}], {r};"
            ),
            1 => format!(
                "wmma.store.d.sync.aligned.col.m16n16k16.shared.f32 [%r8], {{%f0, %f1, %f2, %f3, %f0, %f1, %f2, %f3}}, {r};"
            ),
            2 => format!(
                "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {{%r8, %r9, %r10, %r11, %r12, %r13, %r14, %r15}}, [{d}], {r};"
            ),
            _ => format!("mbarrier.init.shared.b64 {}, {r};", self.address(".shared")),
        };
        self.line(&text);
    }

    fn warp(&mut self) {
        let (q, s) = (self.narrow(), self.narrow());
        let r = format!("%r{}", self.narrow_result());
        let text = match self.random.below(6) {
            0 => format!("shfl.sync.idx.b32 {r}, {q}, {s}, 31, -1;"),
            1 => format!("shfl.sync.bfly.b32 {r}|%p3, {q}, {s}, {s}, -1;"),
            2 => format!("vote.sync.ballot.b32 {r}, %p1, -1;"),
            3 => format!("match.any.sync.b32 {r}, {q}, -1;"),
            4 => format!("redux.sync.add.s32 {r}, {q}, -1;"),
            _ => format!("activemask.b32 {r};"),
        };
        writeln!(self.text, "{text}").unwrap();
    }

    fn barrier(&mut self) {
        let r = format!("%r{}", self.narrow_result());
        let text = match self.random.below(4) {
            0 | 1 => "bar.sync 0;".to_owned(),
            2 => format!("bar.red.popc.u32 {r}, 1, %p1;"),
            _ if self.random.below(4) == 0 => format!("bar.sync {r};"),
            _ => "barrier.sync 3;".to_owned(),
        };
        writeln!(self.text, "{text}").unwrap();
    }

    fn matrix(&mut self) {
        let address = self.address(".shared");
        let text = match self.random.below(4) {
            3 => format!("stmatrix.sync.aligned.m8n8.x2.shared.b16 {address}, {{%r8, %r9}};"),
            0 => format!("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{%r8, %r9}}, {address};"),
            1 => "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r8, %r9}, {%r10}, {%f0, %f1, %f2, %f3};".to_owned(),
            _ => "movmatrix.sync.aligned.m8n8.trans.b16 %r8, %r9;".to_owned(),
        };
        writeln!(self.text, "{text}").unwrap();
    }
}
