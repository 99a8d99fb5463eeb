//! Instructions that only compute, for one lane or all: the text is the same but for the types.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{Inst, InstructionData, Opcode, Value, types};

use super::flow::Refusal;
use super::shape::{Shape, UNIFORM, constant};
use super::translate::{Form, Translator, all_lanes, narrow, scalar_type, vector_type};

impl<const LANES: usize> Translator<'_, LANES> {
    /// Writes an instruction.
    pub(super) fn instruction(&mut self, inst: Inst) -> Result<(), Refusal> {
        let data = &self.func.dfg.insts[inst];
        let opcode = data.opcode();
        if super::shape::is_constant(opcode) || opcode == Opcode::Nop {
            return Ok(());
        }
        let has_effect =
            opcode.can_load() || opcode.can_store() || opcode.is_call() || opcode.other_side_effects();
        let start = self.text.len();
        let done = self.at_once(inst)?;
        if done || has_effect {
            if !done {
                self.effect(inst)?;
            }
            self.debug.note(&mut self.text, start, self.func.srcloc(inst));
            return Ok(());
        }
        let &[result] = self.func.dfg.inst_results(inst) else { return Err(opcode.to_string()) };
        match self.shape(result) {
            Shape::Affine { guarded: false, .. } => {
                let name = self.compute(inst, false)?;
                self.define(result, Form::Scalar, name)
            }
            Shape::Affine { guarded: true, .. } => {
                let name = self.compute(inst, false)?;
                self.define(result, Form::Scalar, name)?;
                let name = self.compute(inst, true)?;
                self.define(result, Form::Vector, name)?;
                let name = self.validity(inst)?;
                self.define(result, Form::Valid, name)
            }
            Shape::Varying | Shape::Unknown => {
                let name = self.compute(inst, true)?;
                self.define(result, Form::Vector, name)
            }
        }
    }

    /// Whether the lanes of a guarded result follow from its first.
    fn validity(&mut self, inst: Inst) -> Result<String, Refusal> {
        let data = &self.func.dfg.insts[inst];
        let opcode = data.opcode();
        let args = self.func.dfg.inst_args(inst).to_vec();
        let mut valid = "true".to_string();
        for &arg in &args {
            let other = self.get(arg, Form::Valid)?;
            valid = self.both(&valid, &other);
        }
        let chosen = match opcode {
            Opcode::Smin => Some(IntCC::SignedLessThanOrEqual),
            Opcode::Smax => Some(IntCC::SignedGreaterThanOrEqual),
            Opcode::Umin => Some(IntCC::UnsignedLessThanOrEqual),
            Opcode::Umax => Some(IntCC::UnsignedGreaterThanOrEqual),
            _ => None,
        };
        if let (Some(cond), &[a, b]) = (chosen, &args[..]) {
            // The one that goes up is the one that all lanes have to choose.
            let goes_up = !matches!(self.shape(a), Shape::Affine { step: 0, .. });
            let ends = self.sides(cond, if goes_up { [a, b] } else { [b, a] })?;
            return Ok(ends.and_then(|ends| ends.all).unwrap_or_else(|| "false".into()));
        }
        if let (Opcode::Uextend | Opcode::Sextend, Shape::Affine { step, .. }) = (opcode, self.shape(args[0]))
        {
            // The first and the last lane's numbers tell: no number between them wraps if these do not.
            let (narrow, wide) = (
                scalar_type(self.type_of(args[0]))?,
                scalar_type(self.type_of(self.func.dfg.first_result(inst)))?,
            );
            let extend = if opcode == Opcode::Uextend { "zext" } else { "sext" };
            let far = step.unsigned_abs() >= 1 << (self.type_of(args[0]).bits() - 5);
            if far {
                return Ok("false".into());
            }
            let first = self.get(args[0], Form::Scalar)?;
            let first = self.make(format!("{extend} {narrow} {first} to {wide}"));
            let last = self.make(format!("add {wide} {first}, {}", step * (LANES as i64 - 1)));
            let low = self.make(format!("trunc {wide} {last} to {narrow}"));
            let again = self.make(format!("{extend} {narrow} {low} to {wide}"));
            let fits = self.make(format!("icmp eq {wide} {again}, {last}"));
            valid = self.both(&valid, &fits);
        }
        Ok(valid)
    }

    /// Whether two things hold.
    pub(super) fn both(&mut self, a: &str, b: &str) -> String {
        match (a, b) {
            ("true", other) | (other, "true") => other.to_owned(),
            _ => self.make(format!("and i1 {a}, {b}")),
        }
    }

    fn shaped(&self, value: Value, vector: bool) -> Result<String, Refusal> {
        let ty = self.type_of(value);
        if vector { vector_type::<LANES>(ty) } else { Ok(scalar_type(ty)?.to_owned()) }
    }

    /// A call of an intrinsic function whose name ends in its types.
    fn intrinsic(&mut self, name: &str, result: &str, tails: &[&str], arguments: &[(&str, &str)]) -> String {
        let tail = |ty: &str| {
            let element = |ty: &str| match ty {
                "float" => "f32".to_string(),
                "double" => "f64".to_string(),
                ty => ty.to_string(),
            };
            match ty.strip_prefix(&format!("<{LANES} x ")) {
                Some(rest) => format!("v{LANES}{}", element(rest.trim_end_matches('>'))),
                None => element(ty),
            }
        };
        let tails: Vec<String> = tails.iter().map(|ty| tail(ty)).collect();
        let name = format!("@llvm.{name}.{}", tails.join("."));
        let kinds: Vec<&str> = arguments.iter().map(|(ty, _)| *ty).collect();
        self.declared.insert(format!("declare {result} {name}({})\n", kinds.join(", ")));
        let arguments: Vec<String> = arguments.iter().map(|(ty, value)| format!("{ty} {value}")).collect();
        self.make(format!("call {result} {name}({})", arguments.join(", ")))
    }

    /// Writes what an instruction computes, and returns its name.
    fn compute(&mut self, inst: Inst, vector: bool) -> Result<String, Refusal> {
        use Opcode as O;
        let data = self.func.dfg.insts[inst];
        let opcode = data.opcode();
        let form = if vector { Form::Vector } else { Form::Scalar };
        let result = self.func.dfg.first_result(inst);
        let out = self.shaped(result, vector)?;
        let values = self.func.dfg.inst_args(inst).to_vec();
        let from = self.shaped(values[0], vector)?;
        let bits = self.type_of(result).bits();
        let element = scalar_type(self.type_of(result))?;
        let same = |number: i64| {
            let number = narrow(element, number);
            if vector { all_lanes::<LANES>(element, number) } else { number.to_string() }
        };
        if matches!(opcode, O::Select | O::SelectSpectreGuard) {
            return self.select(&values, &out, form);
        }
        let mut a = Vec::with_capacity(values.len());
        for &value in &values {
            a.push(self.get(value, form)?);
        }
        let plain = |name: &str| format!("{name} {out} {}, {}", a[0], a.get(1).map_or("", |a| a));
        let mask = |t: &mut Self, value: &str| {
            // The amount of a shift may be of another type; what is above the width does not count.
            let given = t.type_of(values[1]).bits();
            let kind = t.shaped(values[1], vector)?;
            let value = match given.cmp(&bits) {
                std::cmp::Ordering::Less => t.make(format!("zext {kind} {value} to {out}")),
                std::cmp::Ordering::Greater => t.make(format!("trunc {kind} {value} to {out}")),
                std::cmp::Ordering::Equal => value.to_owned(),
            };
            Ok::<_, Refusal>(t.make(format!("and {out} {value}, {}", same(i64::from(bits) - 1))))
        };
        Ok(match opcode {
            O::Iadd => self.make(plain("add")),
            O::Isub => self.make(plain("sub")),
            O::Imul => self.make(plain("mul")),
            O::Band => self.make(plain("and")),
            O::Bor => self.make(plain("or")),
            O::Bxor => self.make(plain("xor")),
            O::Ineg => self.make(format!("sub {out} {}, {}", same(0), a[0])),
            O::Bnot => self.make(format!("xor {out} {}, {}", a[0], same(-1))),
            O::Bitselect if self.type_of(result).is_int() => {
                let not = self.make(format!("xor {out} {}, {}", a[0], same(-1)));
                let one = self.make(format!("and {out} {}, {}", a[0], a[1]));
                let other = self.make(format!("and {out} {not}, {}", a[2]));
                self.make(format!("or {out} {one}, {other}"))
            }
            O::Ishl | O::Ushr | O::Sshr => {
                let amount = mask(self, &a[1])?;
                let name = match opcode {
                    O::Ishl => "shl",
                    O::Ushr => "lshr",
                    _ => "ashr",
                };
                self.make(format!("{name} {out} {}, {amount}", a[0]))
            }
            O::Rotl | O::Rotr => {
                let amount = mask(self, &a[1])?;
                let name = if opcode == O::Rotl { "fshl" } else { "fshr" };
                self.intrinsic(name, &out, &[&out], &[(&out, &a[0]), (&out, &a[0]), (&out, &amount)])
            }
            O::Udiv | O::Sdiv | O::Urem | O::Srem => {
                // Where a lane is not there, its divisor may be anything.
                let mut divisor = a[1].clone();
                if let (Some(mask), true) = (self.mask.clone(), vector) {
                    divisor = self
                        .make(format!("select <{LANES} x i1> {mask}, {out} {divisor}, {out} {}", same(1)));
                }
                let bit = if vector { format!("<{LANES} x i1>") } else { "i1".into() };
                let zero = self.make(format!("icmp eq {out} {divisor}, {}", same(0)));
                let divisor = self.make(format!("select {bit} {zero}, {out} {}, {out} {divisor}", same(1)));
                if vector && bits == 32 && constant(self.func, values[1]).is_none() {
                    return Ok(self.divided(opcode, &a[0], &divisor));
                }
                let name = match opcode {
                    O::Udiv => "udiv",
                    O::Sdiv => "sdiv",
                    O::Urem => "urem",
                    _ => "srem",
                };
                self.make(format!("{name} {out} {}, {divisor}", a[0]))
            }
            O::Umin | O::Umax | O::Smin | O::Smax => {
                let name = opcode.to_string();
                self.intrinsic(&name, &out, &[&out], &[(&out, &a[0]), (&out, &a[1])])
            }
            O::Umulhi | O::Smulhi => {
                let wide = out.replace(element, &format!("i{}", 2 * bits));
                let extend = if opcode == O::Umulhi { "zext" } else { "sext" };
                let x = self.make(format!("{extend} {out} {} to {wide}", a[0]));
                let y = self.make(format!("{extend} {out} {} to {wide}", a[1]));
                let product = self.make(format!("mul {wide} {x}, {y}"));
                let kind = format!("i{}", 2 * bits);
                let amount = if vector { all_lanes::<LANES>(&kind, bits) } else { bits.to_string() };
                let high = self.make(format!("lshr {wide} {product}, {amount}"));
                self.make(format!("trunc {wide} {high} to {out}"))
            }
            O::Iabs => self.intrinsic("abs", &out, &[&out], &[(&out, &a[0]), ("i1", "false")]),
            O::Clz => self.intrinsic("ctlz", &out, &[&out], &[(&out, &a[0]), ("i1", "false")]),
            O::Ctz => self.intrinsic("cttz", &out, &[&out], &[(&out, &a[0]), ("i1", "false")]),
            O::Popcnt => self.intrinsic("ctpop", &out, &[&out], &[(&out, &a[0])]),
            O::Bitrev => self.intrinsic("bitreverse", &out, &[&out], &[(&out, &a[0])]),
            O::Bswap => self.intrinsic("bswap", &out, &[&out], &[(&out, &a[0])]),
            O::Uextend => self.make(format!("zext {from} {} to {out}", a[0])),
            O::Sextend => self.make(format!("sext {from} {} to {out}", a[0])),
            O::Ireduce => self.make(format!("trunc {from} {} to {out}", a[0])),
            O::Bmask => {
                let zero = if vector { "zeroinitializer" } else { "0" };
                let bit = if vector { format!("<{LANES} x i1>") } else { "i1".into() };
                let some = self.make(format!("icmp ne {from} {}, {zero}", a[0]));
                self.make(format!("sext {bit} {some} to {out}"))
            }
            O::Icmp if self.is_settled(&values) => same(1),
            O::Icmp | O::Fcmp => {
                let name = match data {
                    InstructionData::IntCompare { cond, .. } => format!("icmp {}", integers(cond)),
                    InstructionData::FloatCompare { cond, .. } => format!("fcmp {}", floats(cond)),
                    _ => return Err("a comparison".into()),
                };
                let bit = if vector { format!("<{LANES} x i1>") } else { "i1".into() };
                let some = self.make(format!("{name} {from} {}, {}", a[0], a[1]));
                self.make(format!("zext {bit} {some} to {out}"))
            }
            O::Fadd => self.make(plain("fadd")),
            O::Fsub => self.make(plain("fsub")),
            O::Fmul => self.make(plain("fmul")),
            O::Fdiv => self.make(plain("fdiv")),
            O::Fneg => self.make(format!("fneg {out} {}", a[0])),
            O::Fabs => self.intrinsic("fabs", &out, &[&out], &[(&out, &a[0])]),
            O::Sqrt => self.intrinsic("sqrt", &out, &[&out], &[(&out, &a[0])]),
            O::Ceil => self.intrinsic("ceil", &out, &[&out], &[(&out, &a[0])]),
            O::Floor => self.intrinsic("floor", &out, &[&out], &[(&out, &a[0])]),
            O::Trunc => self.intrinsic("trunc", &out, &[&out], &[(&out, &a[0])]),
            O::Nearest => self.intrinsic("nearbyint", &out, &[&out], &[(&out, &a[0])]),
            O::Fcopysign => self.intrinsic("copysign", &out, &[&out], &[(&out, &a[0]), (&out, &a[1])]),
            O::Fma => self.intrinsic("fma", &out, &[&out], &[(&out, &a[0]), (&out, &a[1]), (&out, &a[2])]),
            O::Fmin | O::Fmax => self.extreme(opcode == O::Fmax, result, vector, &a)?,
            O::Fpromote => self.make(format!("fpext {from} {} to {out}", a[0])),
            O::Fdemote => self.make(format!("fptrunc {from} {} to {out}", a[0])),
            O::FcvtFromSint => self.make(format!("sitofp {from} {} to {out}", a[0])),
            O::FcvtFromUint => self.make(format!("uitofp {from} {} to {out}", a[0])),
            O::FcvtToSintSat | O::FcvtToUintSat if vector && bits == 32 => {
                self.rounded(opcode == O::FcvtToSintSat, self.type_of(values[0]) == types::F64, &a[0])
            }
            O::FcvtToSintSat => self.intrinsic("fptosi.sat", &out, &[&out, &from], &[(&from, &a[0])]),
            O::FcvtToUintSat => self.intrinsic("fptoui.sat", &out, &[&out, &from], &[(&from, &a[0])]),
            O::Bitcast => self.make(format!("bitcast {from} {} to {out}", a[0])),
            other => return Err(other.to_string()),
        })
    }

    /// Quotients or remainders of numbers of 32 bits, whose divisors are no zeros: processors divide vectors of floating-point numbers alone. In
    /// double precision, with its 53 bits, a quotient is never rounded to the next integer: it is at least one over the divisor away from it.
    fn divided(&mut self, opcode: Opcode, a: &str, divisor: &str) -> String {
        let (int, float) = (format!("<{LANES} x i32>"), format!("<{LANES} x double>"));
        let signed = matches!(opcode, Opcode::Sdiv | Opcode::Srem);
        let (to, from) = if signed { ("sitofp", "fptosi") } else { ("uitofp", "fptoui") };
        let x = self.make(format!("{to} {int} {a} to {float}"));
        let y = self.make(format!("{to} {int} {divisor} to {float}"));
        let quotient = self.make(format!("fdiv {float} {x}, {y}"));
        let quotient = self.make(format!("{from} {float} {quotient} to {int}"));
        if matches!(opcode, Opcode::Udiv | Opcode::Sdiv) {
            return quotient;
        }
        let product = self.make(format!("mul {int} {quotient}, {divisor}"));
        self.make(format!("sub {int} {a}, {product}"))
    }

    /// Floating-point numbers as integers of 32 bits: rounded to zero, the nearest there is where they are too large, and zero where they are no
    /// numbers. (What LLVM has for that goes from lane to lane.)
    fn rounded(&mut self, signed: bool, double: bool, x: &str) -> String {
        let ty = if double { "double" } else { "float" };
        let (float, int, bit) =
            (format!("<{LANES} x {ty}>"), format!("<{LANES} x i32>"), format!("<{LANES} x i1>"));
        // The first number that is too large; as LLVM writes both types.
        let (bound, most) = if signed { (2f64.powi(31), i32::MAX) } else { (2f64.powi(32), -1) };
        let number = |value: f64| all_lanes::<LANES>(ty, format!("{:#018x}", value.to_bits()));
        let numbers = if signed {
            let none = self.make(format!("fcmp uno {float} {x}, {x}"));
            let x = self.make(format!("select {bit} {none}, {float} {}, {float} {x}", number(0.0)));
            let low = self.make(format!("fcmp olt {float} {x}, {}", number(-bound)));
            self.make(format!("select {bit} {low}, {float} {}, {float} {x}", number(-bound)))
        } else {
            let some = self.make(format!("fcmp ogt {float} {x}, {}", number(0.0)));
            self.make(format!("select {bit} {some}, {float} {x}, {float} {}", number(0.0)))
        };
        let large = self.make(format!("fcmp oge {float} {numbers}, {}", number(bound)));
        let small = self.make(format!("select {bit} {large}, {float} {}, {float} {numbers}", number(0.0)));
        let convert = if signed { "fptosi" } else { "fptoui" };
        let result = self.make(format!("{convert} {float} {small} to {int}"));
        self.make(format!("select {bit} {large}, {int} {}, {int} {result}", all_lanes::<LANES>("i32", most)))
    }

    fn select(&mut self, values: &[Value], out: &str, form: Form) -> Result<String, Refusal> {
        let (yes, no) = (self.get(values[1], form)?, self.get(values[2], form)?);
        if self.shape(values[0]) == UNIFORM {
            let ty = scalar_type(self.type_of(values[0]))?;
            let condition = self.get(values[0], Form::Scalar)?;
            let condition = self.make(format!("icmp ne {ty} {condition}, 0"));
            return Ok(self.make(format!("select i1 {condition}, {out} {yes}, {out} {no}")));
        }
        let condition = self.holds(values[0])?;
        Ok(self.make(format!("select <{LANES} x i1> {condition}, {out} {yes}, {out} {no}")))
    }

    /// The smaller or larger of two numbers: no number if one is none, and of zeros the one with the sign asked for.
    fn extreme(
        &mut self,
        larger: bool,
        result: Value,
        vector: bool,
        a: &[String],
    ) -> Result<String, Refusal> {
        let out = self.shaped(result, vector)?;
        let wide = self.type_of(result) == types::F64;
        let element = scalar_type(self.type_of(result))?;
        let int = out.replace(element, if wide { "i64" } else { "i32" });
        let bit = if vector { format!("<{LANES} x i1>") } else { "i1".into() };
        let (x, y) = (&a[0], &a[1]);
        let neither = self.make(format!("fcmp uno {out} {x}, {y}"));
        let sum = self.make(format!("fadd {out} {x}, {y}"));
        let equal = self.make(format!("fcmp oeq {out} {x}, {y}"));
        let (i, j) = (
            self.make(format!("bitcast {out} {x} to {int}")),
            self.make(format!("bitcast {out} {y} to {int}")),
        );
        let merged = self.make(format!("{} {int} {i}, {j}", if larger { "and" } else { "or" }));
        let merged = self.make(format!("bitcast {int} {merged} to {out}"));
        let first = self.make(format!("fcmp {} {out} {x}, {y}", if larger { "ogt" } else { "olt" }));
        let chosen = self.make(format!("select {bit} {first}, {out} {x}, {out} {y}"));
        let chosen = self.make(format!("select {bit} {equal}, {out} {merged}, {out} {chosen}"));
        Ok(self.make(format!("select {bit} {neither}, {out} {sum}, {out} {chosen}")))
    }
}

/// LLVM's name of a comparison of integers.
fn integers(condition: IntCC) -> &'static str {
    match condition {
        IntCC::Equal => "eq",
        IntCC::NotEqual => "ne",
        IntCC::SignedLessThan => "slt",
        IntCC::SignedGreaterThanOrEqual => "sge",
        IntCC::SignedGreaterThan => "sgt",
        IntCC::SignedLessThanOrEqual => "sle",
        IntCC::UnsignedLessThan => "ult",
        IntCC::UnsignedGreaterThanOrEqual => "uge",
        IntCC::UnsignedGreaterThan => "ugt",
        IntCC::UnsignedLessThanOrEqual => "ule",
    }
}

fn floats(condition: FloatCC) -> &'static str {
    match condition {
        FloatCC::Ordered => "ord",
        FloatCC::Unordered => "uno",
        FloatCC::Equal => "oeq",
        FloatCC::NotEqual => "une",
        FloatCC::OrderedNotEqual => "one",
        FloatCC::UnorderedOrEqual => "ueq",
        FloatCC::LessThan => "olt",
        FloatCC::LessThanOrEqual => "ole",
        FloatCC::GreaterThan => "ogt",
        FloatCC::GreaterThanOrEqual => "oge",
        FloatCC::UnorderedOrLessThan => "ult",
        FloatCC::UnorderedOrLessThanOrEqual => "ule",
        FloatCC::UnorderedOrGreaterThan => "ugt",
        FloatCC::UnorderedOrGreaterThanOrEqual => "uge",
    }
}
