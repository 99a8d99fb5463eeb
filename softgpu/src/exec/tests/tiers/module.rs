//! A program as a module: what comes before and behind the statements.

use std::fmt::Write;

use super::layout::{ALL, APPROXIMATE_AT, COUNTER_AT, LOCAL_AT, THREADS, constant, place};
use super::ops::{Class, canonical_text};
use super::program::{COUNTER_BYTES, COUNTER_START, COUNTERS, Program, Statement};
use super::write::{Used, Writer};

/// A body: its declarations, and its text.
struct Body {
    head: String,
    text: String,
    used: Used,
}

fn body(statements: &[Statement], masks: bool, labels: &mut u32) -> Body {
    let mut writer = Writer::new(*labels, masks);
    writer.block(statements);
    *labels = writer.labels;
    let mut head = format!(
        ".reg .b32 m<{}>, c<{}>, t<8>, tid, threads, part, approx, av<4>, yv<4>; .reg .b64 u<4>, aw<4>, yw<4>;\n\
         .reg .b16 k<2>, ah<4>, yh<4>; .reg .f32 g0, af<4>; .reg .f64 ad<4>; .reg .pred q<3>;\n",
        writer.deepest + 2,
        writer.counters + 1
    );
    for class in Class::ALL {
        writeln!(head, ".reg {} {}<{}>;", class.ty(), class.prefix(), class.count()).unwrap();
    }
    if writer.used.local {
        head.push_str(".local .align 16 .b8 local[64];\n");
    }
    head.push_str(&writer.tables);
    head.push_str(
        "mov.u32 t0, %tid.z; mov.u32 t1, %ntid.y; mov.u32 t2, %tid.y; mad.lo.u32 t0, t0, t1, t2; mov.u32 t2, %ntid.x; mov.u32 t3, %tid.x;\n\
         mad.lo.u32 tid, t0, t2, t3; mul.lo.u32 t1, t1, t2; mov.u32 t2, %ntid.z; mul.lo.u32 threads, t1, t2; mov.u32 t0, 0; mov.u32 approx, 0;\n\
         and.b32 t1, tid, 0xffffffe0; sub.u32 t1, threads, t1; min.u32 t1, t1, 32; sub.u32 t1, 32, t1; mov.b32 m0, -1; shr.u32 m0, m0, t1;\n",
    );
    if writer.used.local {
        *labels += 1;
        writeln!(
            head,
            "mov.u64 u0, local; add.u64 u1, u0, 64; mov.u64 u2, 0;\nL{labels}: st.local.u64 [u0], u2; add.u64 u0, u0, 8; setp.lt.u64 q0, u0, u1; @q0 bra L{labels};"
        )
        .unwrap();
    }
    if writer.used.parts {
        head.push_str("mov.u32 part, parts; mad.lo.u32 part, tid, 32, part;\n");
    }
    Body { head, text: writer.text, used: writer.used }
}

impl Program {
    /// The module's text, and what the kernel makes use of.
    pub(super) fn ptx(&self) -> (String, Used) {
        let mut text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.shared .align 16 .b8 place[{}];\n.shared .align 16 .b8 parts[{}];\n\
             .shared .align 16 .b8 counters[{COUNTER_BYTES}];\n",
            THREADS * 4,
            THREADS * 32,
        );
        let constants = text.len();
        let mut labels = 0;
        let mut shared = Used::default();
        for (index, function) in self.functions.iter().enumerate() {
            let mut body = body(function, self.together, &mut labels);
            shared.merge(&body.used);
            body.used.registers.insert((Class::V, 0));
            let mut setup = String::new();
            for &(class, number) in &body.used.registers {
                let name = format!("{}{number}", class.prefix());
                match (class, number) {
                    (Class::V, 0) => setup.push_str("ld.param.b32 v0, [first]; "),
                    (Class::V, 1) => setup.push_str("ld.param.b32 v1, [second]; "),
                    (Class::P, _) => write!(setup, "setp.ne.u32 {name}, t0, {}; ", number & 1).unwrap(),
                    (Class::F, _) => {
                        write!(setup, "mov.f32 {name}, 0f{:08X}; ", first(class, number)).unwrap()
                    }
                    (Class::D, _) => {
                        write!(setup, "mov.f64 {name}, 0d{:016X}; ", first(class, number)).unwrap()
                    }
                    _ => write!(setup, "mov{} {name}, {}; ", class.ty(), first(class, number)).unwrap(),
                }
            }
            writeln!(
                text,
                ".func (.param .b32 r) called{index}(.param .b32 first, .param .b32 second) {{\n{}{setup}\n{}st.param.b32 [r], v0; ret; }}",
                body.head, body.text
            )
            .unwrap();
        }
        let body = body(&self.kernel, true, &mut labels);
        shared.merge(&body.used);
        writeln!(
            text,
            ".visible .entry test(.param .u64 in, .param .u64 out, .param .u64 mine, .param .u64 counts, .param .u32 n, .param .u64 wide, .param .align 16 .b8 extra[64]) {{\n{}{}{}{}ret; }}",
            body.head,
            beginning(&body.used, &shared),
            body.text,
            end(&body.used, &shared)
        )
        .unwrap();
        if shared.constants {
            let bytes: Vec<String> = (0..256).map(|at| constant(at).to_string()).collect();
            let variable = format!(".const .align 16 .b8 constants[256] = {{{}}};\n", bytes.join(", "));
            text.insert_str(constants, &variable);
        }
        let used = Used { registers: body.used.registers, local: body.used.local, ..shared };
        (text, used)
    }
}

impl Used {
    /// What is shared by all functions.
    fn merge(&mut self, other: &Self) {
        self.counters |= other.counters;
        self.parts |= other.parts;
        self.place |= other.place;
        self.constants |= other.constants;
        self.approximations |= other.approximations;
    }
}

/// What a function's register holds at first.
pub(super) fn first(class: Class, number: usize) -> u64 {
    match class {
        Class::F => u64::from((number as f32).to_bits()),
        Class::D => (number as f64).to_bits(),
        Class::X => [0, 0x3C00, 0x4000][number],
        // A predicate is whether 0 is not the number's last bit.
        Class::P => number as u64 & 1,
        _ => number as u64,
    }
}

/// The kernel's own beginning: addresses, registers, shared memory.
fn beginning(used: &Used, shared: &Used) -> String {
    let mut text = String::from(
        ".reg .b64 own, counted, table, record, i2, i4, i8; .reg .b32 all;\n\
         mov.u32 all, %ctaid.x; mad.lo.u32 all, all, threads, tid; ld.param.u64 table, [in];\n\
         ld.param.u64 own, [mine]; mul.wide.u32 u1, all, 32; add.u64 own, own, u1; ld.param.u64 counted, [counts];\n\
         ld.param.u64 record, [out]; mul.wide.u32 i2, all, 2; mul.wide.u32 i4, all, 4; mul.wide.u32 i8, all, 8;\n\
         add.u64 i2, i2, table; add.u64 i4, i4, table; add.u64 i8, i8, table;\n",
    );
    for &(class, number) in &used.registers {
        let (name, at) = (format!("{}{number}", class.prefix()), 256 + place(class, number) * ALL);
        let size = class.bytes();
        match (class, number) {
            (Class::V, 0) => text.push_str("mov.u32 v0, %tid.x; "),
            (Class::V, 1) => text.push_str("mov.u32 v1, tid; "),
            (Class::V, 2) => text.push_str("mov.u32 v2, %ctaid.x; "),
            (Class::V, 3) => text.push_str("ld.param.u32 v3, [n]; "),
            (Class::W, 0) => text.push_str("ld.param.u64 w0, [wide]; "),
            (Class::P, _) => {
                write!(text, "ld.global.u32 t1, [i4+{at}]; setp.ne.u32 {name}, t1, 0; ").unwrap()
            }
            _ => write!(text, "ld.global{} {name}, [i{size}+{at}]; ", class.ty()).unwrap(),
        }
    }
    if shared.counters {
        let word = u32::from_ne_bytes([COUNTER_START; 4]);
        write!(
            text,
            "\nmov.u32 t3, counters; shl.b32 t2, tid, 2; mov.u32 t1, {word};\n\
             COUNTED: setp.ge.u32 q0, t2, {COUNTER_BYTES}; @q0 bra BEGIN; add.u32 t4, t3, t2; st.shared.u32 [t4], t1; mad.lo.u32 t2, threads, 4, t2; bra COUNTED;\nBEGIN:\n"
        )
        .unwrap();
    }
    if shared.parts {
        text.push_str(
            "mov.u32 part, parts; mad.lo.u32 part, tid, 32, part; st.shared.v4.u32 [part], {t0, t0, t0, t0}; st.shared.v4.u32 [part+16], {t0, t0, t0, t0};\n",
        );
    }
    if shared.place {
        text.push_str("mov.u32 t1, place; mad.lo.u32 t1, tid, 4, t1; st.shared.u32 [t1], t0;\n");
    }
    if shared.counters || shared.parts || shared.place {
        text.push_str("bar.sync 0;\n");
    }
    text.push('\n');
    text
}

/// What a thread leaves.
fn end(used: &Used, shared: &Used) -> String {
    let mut text = String::from(
        "mul.wide.u32 i2, all, 2; mul.wide.u32 i4, all, 4; mul.wide.u32 i8, all, 8; add.u64 i2, i2, record; add.u64 i4, i4, record; add.u64 i8, i8, record;\n",
    );
    for &(class, number) in &used.registers {
        let (name, at) = (format!("{}{number}", class.prefix()), place(class, number) * ALL);
        let (temporary, stored) = match class {
            Class::F => ("t5", canonical_text(class, &name, "t5")),
            Class::D => ("u2", canonical_text(class, &name, "u2")),
            Class::X => ("k0", canonical_text(class, &name, "k0")),
            Class::P => ("t5", format!("selp.b32 t5, 1, 0, {name};")),
            _ => (&*name, String::new()),
        };
        let size = class.bytes();
        writeln!(text, "{stored} st.global.b{} [i{size}+{at}], {temporary};", size * 8).unwrap();
    }
    if shared.approximations {
        writeln!(text, "st.global.u32 [i4+{}], approx;", APPROXIMATE_AT * ALL).unwrap();
    }
    if used.local {
        writeln!(
            text,
            "mul.wide.u32 u3, all, 64; add.u64 u3, u3, record; mov.u64 u0, local; add.u64 u1, u0, 64;\n\
             LAST: ld.local.u64 u2, [u0]; st.global.u64 [u3+{}], u2; add.u64 u0, u0, 8; add.u64 u3, u3, 8; setp.lt.u64 q0, u0, u1; @q0 bra LAST;",
            LOCAL_AT * ALL
        )
        .unwrap();
    }
    if shared.counters {
        let tickets = COUNTERS.len() * 32;
        writeln!(
            text,
            "bar.sync 0; mov.u32 t1, counters; and.b32 t2, tid, 31; mad.lo.u32 t1, t2, 8, t1; ld.shared.u64 u0, [t1]; st.global.u64 [i8+{}], u0;\n\
             ld.shared.u64 u0, [counters+{tickets}]; st.global.u64 [i8+{}], u0; ld.shared.u64 u0, [counters+{}]; st.global.u64 [i8+{}], u0;",
            COUNTER_AT * ALL,
            (COUNTER_AT + 8) * ALL,
            tickets + 8,
            (COUNTER_AT + 16) * ALL,
        )
        .unwrap();
    }
    text
}
