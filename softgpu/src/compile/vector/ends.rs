//! Comparisons that the first and the last lane decide: of a number that goes up from lane to lane with one that is the same in all.

use cranelift_codegen::ir::condcodes::{CondCode, IntCC};
use cranelift_codegen::ir::{InstructionData, Value};

use super::compute::integers;
use super::flow::Refusal;
use super::shape::{Shape, home};
use super::translate::{Form, Translator, scalar_type};

/// Whether it takes many instructions to make bits of a comparison of all lanes: several registers are packed into one, unless the processor makes
/// bits at once. Then two comparisons of single numbers are less; eight lanes take no more than these.
fn is_long(lanes: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    let has_masks = std::arch::is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    let has_masks = false;
    lanes > 8 && !has_masks
}

/// What the ends of a group say of a condition, by name.
pub(super) struct Ends {
    /// Whether it holds in all lanes or in none.
    pub alike: String,
    /// Whether it holds in all of them then.
    pub holds: String,
}

impl<const LANES: usize> Translator<'_, LANES> {
    /// What the first and the last lane say of a condition, if it is a comparison of this kind that the block which is being written has made for
    /// itself: what other blocks read is made for all lanes in any case. What is written for that can be used in all of the block.
    pub(super) fn ends(&mut self, condition: Value) -> Result<Option<Ends>, Refusal> {
        let condition = self.func.dfg.resolve_aliases(condition);
        let is_own = self.number.is_some() && home(self.func, self.flow, condition) == self.number;
        if !is_own || !is_long(LANES) || self.travels.contains(&condition) {
            return Ok(None);
        }
        let Some(inst) = self.func.dfg.value_def(condition).inst() else { return Ok(None) };
        let InstructionData::IntCompare { cond, args, .. } = self.func.dfg.insts[inst] else {
            return Ok(None);
        };
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
        let follows = self.both(&valid[0], &valid[1]);
        let (first, other) = (self.get(row, Form::Scalar)?, self.get(other, Form::Scalar)?);
        if matches!(cond, IntCC::Equal | IntCC::NotEqual) {
            // What is equal to one of the lanes' numbers is no further from the first than the last is.
            let [from, to] = if step > 0 { [&first, &other] } else { [&other, &first] };
            let distance = self.make(format!("sub {ty} {to}, {from}"));
            let beyond = self.make(format!("icmp ugt {ty} {distance}, {reach}"));
            let alike = self.both(&follows, &beyond);
            return Ok(Some(Ends { alike, holds: (cond == IntCC::NotEqual).to_string() }));
        }
        let last = self.make(format!("add {ty} {first}, {}", step * (LANES as i64 - 1)));
        let sign = if matches!(cond.without_equal(), IntCC::SignedLessThan | IntCC::SignedGreaterThan) {
            's'
        } else {
            'u'
        };
        // Between two ends of which the second did not wrap no number has wrapped.
        let way = if step > 0 { "ge" } else { "le" };
        let in_order = self.make(format!("icmp {sign}{way} {ty} {last}, {first}"));
        let [holds, at_last] =
            [&first, &last].map(|end| self.make(format!("icmp {} {ty} {end}, {other}", integers(cond))));
        let agree = self.make(format!("icmp eq i1 {holds}, {at_last}"));
        let agree = self.both(&agree, &in_order);
        Ok(Some(Ends { alike: self.both(&follows, &agree), holds }))
    }
}
