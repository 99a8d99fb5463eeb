//! Comparisons that the ends of a group decide: of a number that goes up from lane to lane with one that is the same in all.

use cranelift_codegen::ir::condcodes::{CondCode, IntCC};
use cranelift_codegen::ir::{InstructionData, Value};

use super::flow::Refusal;
use super::shape::{Shape, home};
use super::translate::{Form, Translator, scalar_type};

/// What the ends of a group say of a condition, as the names of answers.
pub(super) struct Ends {
    /// Whether it holds in all lanes, if they can say so.
    pub all: Option<String>,
    /// Whether it holds in none.
    pub none: Option<String>,
}

impl<const LANES: usize> Translator<'_, LANES> {
    /// What the ends of a group say of a condition, if it is a comparison of this kind that the block which is being written has made for
    /// itself: what other blocks read is made for all lanes in any case. What is written for that can be used in all of the block.
    pub(super) fn ends(&mut self, condition: Value) -> Result<Option<Ends>, Refusal> {
        let condition = self.func.dfg.resolve_aliases(condition);
        let is_own = self.number.is_some() && home(self.func, self.flow, condition) == self.number;
        if !is_own || self.travels.contains(&condition) {
            return Ok(None);
        }
        let Some(inst) = self.func.dfg.value_def(condition).inst() else { return Ok(None) };
        let InstructionData::IntCompare { cond, args, .. } = self.func.dfg.insts[inst] else {
            return Ok(None);
        };
        self.sides(cond, args)
    }

    /// What the ends of a group say of a comparison of two numbers, one of which goes up from lane to lane while the other is the same in all.
    ///
    /// The lanes' numbers are `lowest`, …, `lowest + reach`, if they do not wrap. All of them are in a range of numbers if `lowest` is in that range without
    /// its last `reach` numbers: one comparison of a single number with one that mostly is the same for all groups.
    pub(super) fn sides(&mut self, cond: IntCC, args: [Value; 2]) -> Result<Option<Ends>, Refusal> {
        let [a, b] = args.map(|arg| self.func.dfg.resolve_aliases(arg));
        let steps = [a, b].map(|arg| match self.shape(arg) {
            Shape::Affine { step, .. } => step,
            _ => i64::MAX,
        });
        let (row, other, step, cond) = match steps {
            [0, 0] => return Ok(None),
            [step, 0] => (a, b, step, cond),
            [0, step] => (b, a, step, cond.swap_args()),
            _ => return Ok(None),
        };
        let bits = self.type_of(row).bits();
        let reach = step.unsigned_abs().saturating_mul(LANES as u64 - 1);
        if bits < 32 || reach >> (bits - 2) != 0 {
            return Ok(None);
        }
        let ty = scalar_type(self.type_of(row))?;
        let valid = [self.get(row, Form::Valid)?, self.get(other, Form::Valid)?];
        let valid = self.both(&valid[0], &valid[1]);
        let (mut lowest, mut other) = (self.get(row, Form::Scalar)?, self.get(other, Form::Scalar)?);
        if step < 0 {
            lowest = self.make(format!("sub {ty} {lowest}, {reach}"));
        }
        if matches!(cond, IntCC::Equal | IntCC::NotEqual) {
            let distance = self.make(format!("sub {ty} {other}, {lowest}"));
            let beyond = self.make(format!("icmp ugt {ty} {distance}, {reach}"));
            let beyond = Some(self.both(&valid, &beyond));
            return Ok(Some(match cond {
                IntCC::Equal => Ends { all: None, none: beyond },
                _ => Ends { all: beyond, none: None },
            }));
        }
        if matches!(cond.without_equal(), IntCC::SignedLessThan | IntCC::SignedGreaterThan) {
            // Numbers with a sign have the order of those without when their first bit is the other one.
            let first_bit = i64::MIN >> (64 - bits);
            [lowest, other] =
                [lowest, other].map(|number| self.make(format!("xor {ty} {number}, {first_bit}")));
        }
        let is_above = matches!(cond.without_equal(), IntCC::UnsignedGreaterThan | IntCC::SignedGreaterThan);
        // The numbers above are those from `other` on, or from the one behind it.
        let beyond = i64::from(is_above == (cond == cond.without_equal()));
        let less = |t: &mut Self, a: &str, b: &str| {
            t.declared.insert(format!("declare {ty} @llvm.usub.sat.{ty}({ty}, {ty})\n"));
            t.make(format!("call {ty} @llvm.usub.sat.{ty}({ty} {a}, {ty} {b})"))
        };
        // How many numbers there are from there on, and before, without the last `reach` ones.
        let from = less(self, &(-(reach as i64) - beyond).to_string(), &other);
        let bound = if beyond == 0 { other } else { self.make(format!("add {ty} {other}, 1")) };
        let before = less(self, &bound, &reach.to_string());
        let behind = self.make(format!("sub {ty} {lowest}, {bound}"));
        let above = self.make(format!("icmp ult {ty} {behind}, {from}"));
        let below = self.make(format!("icmp ult {ty} {lowest}, {before}"));
        let [above, below] = [above, below].map(|answer| Some(self.both(&valid, &answer)));
        Ok(Some(if is_above { Ends { all: above, none: below } } else { Ends { all: below, none: above } }))
    }
}
