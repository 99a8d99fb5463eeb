//! The statements of a program as PTX.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::ops::{self, Class, canonical_text};
use super::program::{
    COUNTERS, Condition, Guard, MOVED, OWN_ATOMICS, Space, Statement, Turns, Uniform, Value,
};

/// What a body makes use of.
#[derive(Debug, Clone, Default)]
pub(super) struct Used {
    pub registers: BTreeSet<(Class, usize)>,
    pub local: bool,
    pub counters: bool,
    pub parts: bool,
    pub place: bool,
    pub constants: bool,
    pub approximations: bool,
}

/// Writes a body.
pub(super) struct Writer {
    pub text: String,
    pub tables: String,
    pub labels: u32,
    pub counters: u32,
    /// Masks are registers m0, m1, …, one for each level of nesting.
    pub level: usize,
    pub deepest: usize,
    /// Whether there are masks here.
    pub masks: bool,
    /// The labels behind the wild loops around, and those where they go on.
    pub wild: Vec<(String, String)>,
    pub used: Used,
}

impl Writer {
    /// For a body; labels are numbered on from those.
    pub(super) fn new(labels: u32, masks: bool) -> Self {
        Self {
            text: String::new(),
            tables: String::new(),
            labels,
            counters: 0,
            level: 0,
            deepest: 0,
            masks,
            wild: Vec::new(),
            used: Used::default(),
        }
    }

    pub(super) fn label(&mut self) -> String {
        self.labels += 1;
        format!("L{}", self.labels)
    }

    fn counter(&mut self) -> String {
        self.counters += 1;
        format!("c{}", self.counters)
    }

    pub(super) fn line(&mut self, text: impl AsRef<str>) {
        self.text.push_str(text.as_ref());
        self.text.push('\n');
    }

    pub(super) fn register(&mut self, class: Class, number: usize) -> String {
        self.used.registers.insert((class, number));
        format!("{}{number}", class.prefix())
    }

    pub(super) fn v(&mut self, number: usize) -> String {
        self.register(Class::V, number)
    }

    /// An operand's name. Constants are moved to a register, of which there is one for each place.
    pub(super) fn operand(&mut self, value: Value, place: usize) -> String {
        match value {
            Value::Register(class, number) => self.register(class, number),
            Value::Constant(class, bits) => {
                let (ty, name) = (class.ty(), format!("a{}{place}", class.prefix()));
                let number = match class {
                    Class::F => format!("0f{bits:08X}"),
                    Class::D => format!("0d{bits:016X}"),
                    _ => bits.to_string(),
                };
                self.line(format!("mov{ty} {name}, {number};"));
                name
            }
        }
    }

    fn guard(&mut self, guard: Guard) -> String {
        match guard {
            Some((p, negated)) => {
                format!("@{}{} ", if negated { "!" } else { "" }, self.register(Class::P, p))
            }
            None => String::new(),
        }
    }

    /// Sets q0.
    pub(super) fn condition(&mut self, condition: Condition) {
        match condition {
            Condition::Less(a, b, negated) => {
                let (a, b) = (self.operand(a, 0), self.operand(b, 1));
                self.line(format!("setp.{}.u32 q0, {a}, {b};", if negated { "ge" } else { "lt" }));
            }
            Condition::Predicate(p, negated) => {
                let p = self.register(Class::P, p);
                self.line(format!("{}.pred q0, {p};", if negated { "not" } else { "mov" }));
            }
        }
    }

    fn deeper(&mut self, part: &[Statement]) {
        self.level += 1;
        self.deepest = self.deepest.max(self.level);
        self.block(part);
        self.level -= 1;
    }

    /// A part without operations of a warp, after which its lanes come together.
    fn quiet(&mut self, write: impl FnOnce(&mut Self)) {
        let masks = std::mem::replace(&mut self.masks, false);
        write(self);
        self.masks = masks;
        self.together();
    }

    fn together(&mut self) {
        if self.masks {
            let mask = self.mask();
            self.line(format!("bar.warp.sync {mask};"));
        }
    }

    pub(super) fn mask(&self) -> String {
        format!("m{}", self.level)
    }

    fn next_mask(&self) -> String {
        format!("m{}", self.level + 1)
    }

    pub(super) fn block(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    /// The address of a counter in u0 or t4, as an operand.
    fn counter_address(&mut self, global: bool, offset: usize) -> String {
        if global {
            return format!("[counted+{offset}]");
        }
        self.used.counters = true;
        format!("[counters+{offset}]")
    }

    fn statement(&mut self, statement: &Statement) {
        use Statement as S;
        match statement {
            S::Compute { op, to, args, guard } => {
                let row = &ops::all()[*op];
                let mut text = row.text.clone();
                for (at, (&value, name)) in args.iter().zip(["$a", "$b", "$c", "$e"]).enumerate() {
                    let operand = self.operand(value, at);
                    text = text.replace(name, &operand);
                }
                let to = self.register(row.result, *to);
                let guard = self.guard(*guard);
                self.line(format!("{guard}{}", text.replace("$d", &to)));
            }
            S::Approximate { which, of } => {
                self.used.approximations = true;
                let of = self.register(Class::F, *of);
                self.line(ops::APPROXIMATIONS[*which].replace("$a", &of));
                self.line(canonical_text(Class::F, "g0", "t5"));
                self.line("mul.lo.u32 approx, approx, 31; xor.b32 approx, approx, t5;");
            }
            S::Access { .. } => self.access(statement),
            S::If(condition, yes, no) => {
                let (other, end) = (self.label(), self.label());
                self.condition(*condition);
                let (outer, inner) = (self.mask(), self.next_mask());
                if self.masks {
                    self.line(format!("vote.sync.ballot.b32 {inner}, q0, {outer};"));
                }
                self.line(format!("@!q0 bra {other};"));
                self.deeper(yes);
                self.line(format!("bra {end};\n{other}:"));
                if self.masks {
                    // The mask of the others; the register was written by them, too.
                    self.line(format!("not.b32 {inner}, {inner}; and.b32 {inner}, {inner}, {outer};"));
                }
                self.deeper(no);
                self.line(format!("{end}:"));
            }
            S::UniformIf(uniform, yes, no) => {
                let (other, end) = (self.label(), self.label());
                match uniform {
                    Uniform::Block(number) => self.line(format!("mov.u32 t0, %ctaid.x; setp.eq.u32 q0, t0, {number};")),
                    Uniform::Parameter(bit) => self.line(format!(
                        "ld.param.u32 t0, [n]; and.b32 t0, t0, {}; setp.ne.u32 q0, t0, 0;",
                        1 << bit
                    )),
                }
                self.line(format!("@!q0 bra.uni {other};"));
                self.block(yes);
                self.line(format!("bra.uni {end};\n{other}:"));
                self.block(no);
                self.line(format!("{end}:"));
            }
            S::Loop(count, body) => {
                let (begin, counter) = (self.label(), self.counter());
                let (outer, inner) = (self.mask(), self.next_mask());
                let count = self.operand(*count, 0);
                self.line(format!("and.b32 {counter}, {count}, 3;"));
                if self.masks {
                    self.line(format!("mov.b32 {inner}, {outer};"));
                }
                self.line(format!("{begin}:"));
                self.deeper(body);
                self.line(format!("setp.ne.u32 q0, {counter}, 0; sub.u32 {counter}, {counter}, 1;"));
                if self.masks {
                    self.line(format!("vote.sync.ballot.b32 {inner}, q0, {inner};"));
                }
                self.line(format!("@q0 bra {begin};"));
                // Lanes leave one by one; warp operations of all need them together again.
                self.together();
            }
            S::UniformLoop(turns, body) => {
                let (begin, end, counter) = (self.label(), self.label(), self.counter());
                let (outer, inner) = (self.mask(), self.next_mask());
                match turns {
                    Turns::Given(turns) => self.line(format!("mov.u32 {counter}, {turns};")),
                    Turns::ByBlock(number) => self.line(format!(
                        "mov.u32 {counter}, %ctaid.x; add.u32 {counter}, {counter}, {number}; rem.u32 {counter}, {counter}, 3;"
                    )),
                }
                if self.masks {
                    self.line(format!("mov.b32 {inner}, {outer};"));
                }
                self.line(format!("{begin}:"));
                if matches!(turns, Turns::ByBlock(_)) {
                    self.line(format!("setp.eq.u32 q0, {counter}, 0; @q0 bra.uni {end};"));
                }
                self.deeper(body);
                self.line(format!(
                    "sub.u32 {counter}, {counter}, 1; setp.ne.u32 q0, {counter}, 0; @q0 bra {begin};\n{end}:"
                ));
            }
            S::Switch(value, arms) => self.switch(*value, arms),
            S::Wild(count, body) => self.quiet(|this| {
                let (begin, counter) = (this.label(), this.counter());
                let (end, next) = (this.label(), this.label());
                let count = this.operand(*count, 0);
                this.line(format!("and.b32 {counter}, {count}, 3;\n{begin}:"));
                this.wild.push((end.clone(), next.clone()));
                this.deeper(body);
                this.wild.pop();
                this.line(format!(
                    "{next}: setp.ne.u32 q0, {counter}, 0; sub.u32 {counter}, {counter}, 1; @q0 bra {begin};\n{end}:"
                ));
            }),
            S::Leave { condition, depth, again } => {
                let Some(at) = self.wild.len().checked_sub(1 + depth) else { return };
                let (end, next) = &self.wild[at];
                let to = if *again { next.clone() } else { end.clone() };
                self.condition(*condition);
                self.line(format!("@q0 bra {to};"));
            }
            S::Rotated(condition, count, first, second) => self.quiet(|this| {
                let (begin, middle, counter) = (this.label(), this.label(), this.counter());
                let count = this.operand(*count, 0);
                this.line(format!("and.b32 {counter}, {count}, 3;"));
                this.condition(*condition);
                this.line(format!("@q0 bra {middle};\n{begin}:"));
                this.deeper(first);
                this.line(format!("{middle}:"));
                this.deeper(second);
                this.line(format!(
                    "setp.ne.u32 q0, {counter}, 0; sub.u32 {counter}, {counter}, 1; @q0 bra {begin};"
                ));
            }),
            S::Count { global, counter, value, guard } => {
                let (name, bits) = COUNTERS[*counter];
                let (value, guard) = (self.operand(*value, 0), self.guard(*guard));
                let space = if *global { "global" } else { "shared" };
                let amount = match (name, bits) {
                    ("inc.u32", _) => "5",
                    (_, 32) => &value,
                    _ => {
                        self.line(format!("mul.wide.u32 u1, {value}, 0x9E3779B1;"));
                        "u1"
                    }
                };
                self.line(format!("and.b32 t4, {value}, 3; shl.b32 t4, t4, 3;"));
                if *global {
                    self.line("cvt.u64.u32 u0, t4; add.u64 u0, u0, counted;");
                    self.line(format!("{guard}red.{space}.{name} [u0+{}], {amount};", counter * 32));
                } else {
                    self.used.counters = true;
                    self.line("mov.u32 t5, counters; add.u32 t4, t4, t5;");
                    self.line(format!("{guard}red.{space}.{name} [t4+{}], {amount};", counter * 32));
                }
            }
            S::Ticket { global } => {
                let at = COUNTERS.len() * 32;
                let (ticket, sum) = (self.counter_address(*global, at), self.counter_address(*global, at + 8));
                let space = if *global { "global" } else { "shared" };
                self.line(format!(
                    "atom.{space}.add.u32 t5, {ticket}, 1; mad.lo.u32 t5, t5, t5, t5; red.{space}.add.u32 {sum}, t5;"
                ));
            }
            S::ReadCounter { counter, to } => {
                let (from, to) = (self.counter_address(false, counter * 8), self.v(*to));
                self.line(format!("bar.sync 0; ld.shared.u32 {to}, {from}; bar.sync 0;"));
            }
            S::OwnAtomic { shared, op, to, index, value } => {
                let (index, value, to) = (self.operand(*index, 0), self.operand(*value, 1), self.v(*to));
                self.line(format!("and.b32 t4, {index}, 7; shl.b32 t4, t4, 2;"));
                let name = OWN_ATOMICS[*op];
                let compared = if name == "cas.b32" { "0, " } else { "" };
                if *shared {
                    self.used.parts = true;
                    self.line(format!("add.u32 t4, t4, part; atom.shared.{name} {to}, [t4], {compared}{value};"));
                } else {
                    self.line(format!(
                        "cvt.u64.u32 u0, t4; add.u64 u0, u0, own; atom.global.{name} {to}, [u0], {compared}{value};"
                    ));
                }
            }
            S::Call { function, to, args } => {
                let (a, b, to) = (self.operand(args[0], 0), self.operand(args[1], 1), self.v(*to));
                self.line(format!(
                    "{{ .param .b32 x; .param .b32 y; .param .b32 z; st.param.b32 [x], {a}; st.param.b32 [y], {b}; \
                     call.uni (z), called{function}, (x, y); ld.param.b32 {to}, [z]; }}"
                ));
            }
            _ => self.between(statement),
        }
    }

    fn switch(&mut self, value: Value, arms: &[Vec<Statement>]) {
        let end = self.label();
        let labels: Vec<String> = arms.iter().map(|_| self.label()).collect();
        let table = self.label();
        let (outer, inner) = (self.mask(), self.next_mask());
        writeln!(self.tables, "{table}: .branchtargets {};", labels.join(", ")).unwrap();
        let value = self.operand(value, 0);
        self.line(format!("rem.u32 t0, {value}, {};", arms.len()));
        if self.masks {
            // The lanes that go the same way.
            for index in 0..arms.len() {
                self.line(format!(
                    "setp.eq.u32 q0, t0, {index}; vote.sync.ballot.b32 t1, q0, {outer}; @q0 mov.b32 {inner}, t1;"
                ));
            }
        }
        self.line(format!("brx.idx t0, {table};"));
        for (label, arm) in labels.iter().zip(arms) {
            self.line(format!("{label}:"));
            self.deeper(arm);
            self.line(format!("bra {end};"));
        }
        self.line(format!("{end}:"));
    }

    fn access(&mut self, statement: &Statement) {
        let Statement::Access { store, space, moved, regs, index, generic, volatile, guard } = statement
        else {
            return;
        };
        let row = &MOVED[*moved];
        let size = row.bytes * regs.len();
        let guard = self.guard(*guard);
        let index = match index {
            Value::Constant(_, bits) if *space == Space::Parameter => {
                ((*bits as usize * size) & (space.bytes() - 1)).to_string()
            }
            _ => {
                let index = self.operand(*index, 0);
                self.line(format!("mul.lo.u32 t4, {index}, {size}; and.b32 t4, t4, {};", space.bytes() - 1));
                if *space != Space::Shared {
                    self.line("cvt.u64.u32 u0, t4;");
                }
                String::new()
            }
        };
        let mut local = String::new();
        let mut name = match space {
            Space::Local => {
                self.used.local = true;
                // Registers that are written once, as compilers make them, and no bits in the index that are zeros anyway.
                self.labels += 1;
                let own = self.labels;
                let bits = if size.is_power_of_two() { space.bytes() - size } else { space.bytes() - 1 };
                self.line(format!(
                    ".reg .b64 index{own}, variable{own}, local{own}; and.b64 index{own}, u0, {bits}; mov.u64 variable{own}, local; \
                     add.u64 local{own}, variable{own}, index{own};"
                ));
                local = format!("local{own}");
                ".local"
            }
            Space::Own => {
                self.line("add.u64 u0, u0, own;");
                ".global"
            }
            Space::Input => {
                self.line("add.u64 u0, u0, table;");
                ".global"
            }
            Space::Constant => {
                self.used.constants = true;
                self.line("mov.u64 u1, constants; add.u64 u0, u0, u1;");
                ".const"
            }
            Space::Shared => {
                self.used.parts = true;
                self.line("add.u32 t4, t4, part;");
                ".shared"
            }
            Space::Parameter => ".param",
        };
        let mut address = match space {
            Space::Shared => "[t4]".to_owned(),
            Space::Parameter => format!("[extra+{index}]"),
            Space::Local => format!("[{local}]"),
            _ => "[u0]".to_owned(),
        };
        if *generic {
            match space {
                Space::Shared => self.line("cvt.u64.u32 u0, t4; cvta.shared.u64 u0, u0;"),
                Space::Local => self.line(format!("cvta.local.u64 u0, {local};")),
                _ => {}
            }
            (name, address) = ("", "[u0]".to_owned());
        }
        let mut ty = row.ty;
        let names: Vec<String> = if *store && row.class.is_float() {
            let (to, stored) = match row.class {
                Class::F => ("yv", "b32"),
                Class::D => ("yw", "b64"),
                _ => ("yh", "b16"),
            };
            ty = stored;
            (0..regs.len())
                .map(|at| {
                    let from = self.register(row.class, regs[at]);
                    self.line(canonical_text(row.class, &from, &format!("{to}{at}")));
                    format!("{to}{at}")
                })
                .collect()
        } else {
            regs.iter().map(|&r| self.register(row.class, r)).collect()
        };
        let (vector, names) = match names.len() {
            1 => (String::new(), names[0].clone()),
            count => (format!(".v{count}"), format!("{{{}}}", names.join(", "))),
        };
        // Local memory has it by generic addresses only.
        let volatile = if *volatile && (*generic || *space != Space::Local) { ".volatile" } else { "" };
        self.line(match store {
            true => format!("{guard}st{volatile}{name}{vector}.{ty} {address}, {names};"),
            false => format!("{guard}ld{volatile}{name}{vector}.{ty} {names}, {address};"),
        });
    }
}
