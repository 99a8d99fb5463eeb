//! What is known of the numbers of lanes, or threads, where they come to a statement: they were compared on the way.

use super::super::op::{IntOp, Op};
use super::super::opcode::{Combine, Compare};
use super::address::{Addresses, LANE, Linear};
use super::ways::Decision;
use rgpu_image::ptx::ast::{Function, Guard, Operand, Statement};

/// More predicates than this are not followed back from one.
const PREDICATES: usize = 32;

/// Two numbers that were compared.
pub(super) struct Compared {
    /// Their difference.
    pub difference: Linear,
    /// Whether it is not negative then, or not positive, if one of both is known.
    is_positive: Option<bool>,
}

/// Where a number was compared with a constant.
pub(super) struct Bound {
    /// The number.
    pub term: u32,
    /// The constant.
    pub with: i64,
    /// Whether the number is not less then, or not more, if one of both is known.
    pub is_lower: Option<bool>,
}

impl Compared {
    /// What it says of a number alone, if it does.
    pub(super) fn bound(&self) -> Option<Bound> {
        let [(term, sign @ (1 | -1))] = self.difference.terms[..] else { return None };
        let is_lower = self.is_positive.map(|positive| positive == (sign > 0));
        Some(Bound { term, with: self.difference.constant.wrapping_mul(-sign), is_lower })
    }

    /// The number that the lane's is not less than, where it was compared with one.
    pub(super) fn least(&self) -> Option<u32> {
        match self.difference.terms[..] {
            [(LANE, sign @ (1 | -1)), (term, other)] if other == -sign => {
                (self.is_positive? == (sign > 0)).then_some(term)
            }
            _ => None,
        }
    }
}

/// Whether a difference is not negative, or not positive, where a comparison of both numbers has this result, if one of both is known.
fn is_positive(compare: Compare, result: Option<bool>, difference: &Linear) -> Option<bool> {
    let result = result?;
    match compare {
        Compare::Lt | Compare::Le | Compare::Lo | Compare::Ls => Some(!result),
        Compare::Gt | Compare::Ge | Compare::Hi | Compare::Hs => Some(result),
        // No number of a lane is negative.
        Compare::Eq | Compare::Ne if difference.constant == 0 && result == (compare == Compare::Ne) => {
            let [(_, sign)] = difference.terms[..] else { return None };
            Some(sign > 0)
        }
        _ => None,
    }
}

/// The comparisons on which it depends whether a statement in a block is executed.
pub(super) fn before(
    function: &Function,
    ops: &[Op],
    decisions: &[Decision],
    (block, at): (usize, usize),
    addresses: &mut Addresses,
) -> Vec<Compared> {
    let own = match &function.body[at] {
        Statement::Instruction(instruction) => instruction.guard.map(|guard| (guard, Some(true))),
        Statement::Label(_) => None,
    };
    let mut open: Vec<(u32, Option<bool>)> = decisions
        .iter()
        .filter_map(|decision| decision.about(block))
        .chain(own)
        .map(|(Guard { register, negated }, passes)| (register.0, passes.map(|passes| passes != negated)))
        .collect();
    let (mut found, mut next) = (Vec::new(), 0);
    while let Some(&(predicate, value)) = open.get(next).filter(|_| next < PREDICATES) {
        next += 1;
        let Some(instruction) = addresses.only_definition(predicate) else { continue };
        let operands = &instruction.operands;
        let (inner, from) = match (&ops[instruction.form.0 as usize], &operands[..]) {
            (&Op::Setp { compare, combine, .. }, [_, a, b, ..]) => {
                let value = match combine {
                    // The second of two predicates is the other way round.
                    _ if matches!(operands[0], Operand::Pair(_)) => None,
                    None => value,
                    Some(Combine::And) => value.filter(|value| *value),
                    Some(Combine::Or) => value.filter(|value| !*value),
                    Some(_) => None,
                };
                if let Some(difference) = addresses.difference(a, b) {
                    let is_positive = is_positive(compare, value, &difference);
                    found.push(Compared { difference, is_positive });
                }
                (value, 3)
            }
            (Op::PredLogic { op: IntOp::And }, _) => (value.filter(|value| *value), 1),
            (Op::PredLogic { op: IntOp::Or }, _) => (value.filter(|value| !*value), 1),
            (Op::PredLogic { .. }, _) => (None, 1),
            (Op::PredNot, _) => (value.map(|value| !value), 1),
            (Op::Mov { .. }, _) => (value, 1),
            _ => continue,
        };
        for operand in operands.iter().skip(from) {
            if let Operand::Reg(register) = operand
                && !open.iter().any(|&(known, _)| known == register.0)
            {
                open.push((register.0, inner));
            }
        }
    }
    found
}
