//! Whether an instruction has the operands that its opcode takes: how many, of what kind and size.
//!
//! What it finds wrong would otherwise turn up when a kernel is first launched, long after the module has
//! been loaded. Opcodes that it does not know are left alone.

use super::ast::{Operand, Register};
use super::opcode::{Form, MulPart, Opcode, Type};

/// What an operand has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Written; a register of this many bits (1 is a predicate).
    To(u32),
    /// Read; likewise, or a constant.
    From(u32),
    /// Written; a register of at least this many bits. The second is how many there are (a vector).
    WideTo(u32, u32),
    /// Read; likewise.
    WideFrom(u32, u32),
    /// Written; a register, or a vector with this many bits in all.
    AnyTo(u32),
    /// Read; likewise.
    AnyFrom(u32),
    /// Written: a predicate, or two of them.
    Predicates,
    /// Written: a register of this size, and perhaps a predicate (`d|p`).
    WithPredicate(u32),
    /// In brackets.
    Address,
    /// Not looked at.
    Other,
}

use Role::{Address, AnyFrom, AnyTo, From, Other, Predicates, To, WideFrom, WideTo, WithPredicate};

/// What the forms of a module demand, worked out once for each.
#[derive(Debug, Default)]
pub struct Checker {
    /// By the form's number: for how many operands, and what they have to be.
    known: Vec<Option<Demands>>,
}

#[derive(Debug)]
struct Demands {
    count: usize,
    /// The roles, and how many of the last may be missing; `None` if they are not looked at.
    roles: Option<(Vec<Role>, usize)>,
}

impl Checker {
    /// Checks the operands of an instruction, whose form has this number; an error says what is wrong.
    pub fn check(
        &mut self,
        number: u32,
        form: &Form,
        operands: &[Operand],
        registers: &[Register],
    ) -> Result<(), String> {
        let number = number as usize;
        if self.known.len() <= number {
            self.known.resize_with(number + 1, || None);
        }
        let count = operands.len();
        let slot = &mut self.known[number];
        if slot.as_ref().is_none_or(|demands| demands.count != count) {
            *slot = Some(Demands { count, roles: roles(form, count) });
        }
        match slot {
            Some(Demands { roles: Some((roles, optional)), .. }) => {
                check(form, roles, *optional, operands, registers)
            }
            _ => Ok(()),
        }
    }
}

fn check(
    form: &Form,
    roles: &[Role],
    optional: usize,
    operands: &[Operand],
    registers: &[Register],
) -> Result<(), String> {
    let (least, most) = (roles.len() - optional, roles.len());
    if !(least..=most).contains(&operands.len()) {
        let takes = if optional == 0 { most.to_string() } else { format!("{least} to {most}") };
        return Err(format!("{} takes {takes} operands, not {}", form.text, operands.len()));
    }
    for (index, (operand, role)) in operands.iter().zip(roles).enumerate() {
        if let Err(why) = fits(operand, *role, registers) {
            return Err(format!("Operand {} of {} {why}", index + 1, form.text));
        }
    }
    Ok(())
}

/// What the operands have to be, and how many of the last may be missing.
fn roles(form: &Form, count: usize) -> Option<(Vec<Role>, usize)> {
    use Opcode as O;
    let bits = |index: usize| form.types.get(index).map(|ty: &Type| ty.bits());
    let simple = |sources: usize| {
        let bits = bits(0).filter(|_| form.types.len() == 1)?;
        let mut roles = vec![To(bits)];
        roles.resize(sources + 1, From(bits));
        Some((roles, 0))
    };
    let exactly = |roles: &[Role]| Some((roles.to_vec(), 0));
    match form.opcode {
        O::Mul if form.part == Some(MulPart::Wide) => {
            let bits = bits(0)?;
            exactly(&[To(bits * 2), From(bits), From(bits)])
        }
        O::Mad if form.part == Some(MulPart::Wide) => {
            let bits = bits(0)?;
            exactly(&[To(bits * 2), From(bits), From(bits), From(bits * 2)])
        }
        O::Min | O::Max => {
            let bits = bits(0).filter(|_| form.types.len() == 1)?;
            Some((vec![To(bits), From(bits), From(bits), From(bits)], 1))
        }
        O::Add
        | O::Addc
        | O::Sub
        | O::Subc
        | O::Mul
        | O::Mul24
        | O::Div
        | O::Rem
        | O::And
        | O::Or
        | O::Xor
        | O::Copysign => simple(2),
        O::Mad | O::Madc | O::Mad24 | O::Fma | O::Sad => simple(3),
        O::Neg
        | O::Abs
        | O::Not
        | O::Cnot
        | O::Brev
        | O::Rcp
        | O::Sqrt
        | O::Rsqrt
        | O::Sin
        | O::Cos
        | O::Lg2
        | O::Ex2
        | O::Tanh => simple(1),
        O::Shl | O::Shr => exactly(&[To(bits(0)?), From(bits(0)?), From(32)]),
        O::Popc | O::Clz | O::Bfind => exactly(&[To(32), From(bits(0)?)]),
        O::Bfe => exactly(&[To(bits(0)?), From(bits(0)?), From(32), From(32)]),
        O::Bfi => exactly(&[To(bits(0)?), From(bits(0)?), From(bits(0)?), From(32), From(32)]),
        O::Bmsk | O::Szext => exactly(&[To(32), From(32), From(32)]),
        O::Shf | O::Prmt | O::Dp4a | O::Dp2a => exactly(&[To(32), From(32), From(32), From(32)]),
        O::Lop3 if form.modifiers == ["b32"] => exactly(&[To(32), From(32), From(32), From(32), From(32)]),
        O::Testp => exactly(&[To(1), From(bits(0)?)]),
        O::Selp => exactly(&[To(bits(0)?), From(bits(0)?), From(bits(0)?), From(1)]),
        O::Slct => exactly(&[To(bits(0)?), From(bits(0)?), From(bits(0)?), From(bits(1)?)]),
        O::Setp => {
            let mut roles = vec![Predicates, From(bits(0)?), From(bits(0)?)];
            roles.resize(3 + usize::from(form.combine.is_some()), From(1));
            Some((roles, 0))
        }
        O::Set => {
            let mut roles = vec![To(bits(0)?), From(bits(1)?), From(bits(1)?)];
            roles.resize(3 + usize::from(form.combine.is_some()), From(1));
            Some((roles, 0))
        }
        O::Cvt => match (count, form.types.len()) {
            (2, 2) => exactly(&[WideTo(bits(0)?, 1), WideFrom(bits(1)?, 1)]),
            _ => Some((vec![Other; 4], 2)),
        },
        O::Mov => exactly(&[AnyTo(bits(0)? * form.vector), AnyFrom(bits(0)? * form.vector)]),
        O::Cvta => exactly(&[To(bits(0)?), From(bits(0)?)]),
        O::Isspacep => exactly(&[To(1), Other]),
        O::Ld | O::Ldu => Some((vec![WideTo(bits(0)?, form.vector), Address, Other], 1)),
        O::St => Some((vec![Address, WideFrom(bits(0)?, form.vector), Other], 1)),
        O::Atom if form.vector == 1 => {
            let bits = bits(0)?;
            Some((vec![To(bits), Address, From(bits), From(bits), Other], 2))
        }
        O::Red if form.vector == 1 => Some((vec![Address, From(bits(0)?), Other], 1)),
        O::Shfl => {
            let mut roles = vec![WithPredicate(32), From(32), From(32), From(32)];
            roles.resize(4 + usize::from(form.sync), From(32));
            Some((roles, 0))
        }
        O::Vote => {
            let result = if form.ty() == Some(Type::Pred) { 1 } else { 32 };
            let mut roles = vec![To(result), From(1)];
            roles.resize(2 + usize::from(form.sync), From(32));
            Some((roles, 0))
        }
        O::Match => exactly(&[WithPredicate(32), From(bits(0)?), From(32)]),
        O::Redux => exactly(&[To(bits(0)?), From(bits(0)?), From(32)]),
        O::Elect => exactly(&[WithPredicate(32), From(32)]),
        O::Activemask => exactly(&[To(32)]),
        O::Nanosleep => exactly(&[From(32)]),
        O::Ret | O::Exit | O::Trap | O::Brkpt => exactly(&[]),
        O::Brx => exactly(&[From(32), Other]),
        _ => None,
    }
}

fn fits(operand: &Operand, role: Role, registers: &[Register]) -> Result<(), String> {
    match role {
        To(bits) => written(operand).and_then(|()| sized(operand, bits, bits, registers)),
        From(1) => match operand {
            Operand::Reg(_) | Operand::NotReg(_) | Operand::Int(..) => sized(operand, 1, 1, registers),
            _ => Err("is no predicate".to_owned()),
        },
        From(bits) => scalar(operand).and_then(|()| sized(operand, bits, bits, registers)),
        WideTo(bits, count) => vector(operand, count, |element| {
            written(element).and_then(|()| sized(element, bits, u32::MAX, registers))
        }),
        WideFrom(bits, count) => vector(operand, count, |element| {
            scalar(element).and_then(|()| sized(element, bits, u32::MAX, registers))
        }),
        AnyTo(bits) | AnyFrom(bits) => {
            let to = matches!(role, AnyTo(_));
            let Operand::Vector(elements) = operand else {
                return fits(operand, if to { To(bits) } else { From(bits) }, registers);
            };
            // The parts together are as large as the whole.
            let part = bits / elements.len().max(1) as u32;
            if !matches!(elements.len(), 2 | 4) {
                return Err("is not made of two or four parts".to_owned());
            }
            elements.iter().try_for_each(|e| fits(e, if to { To(part) } else { From(part) }, registers))
        }
        Predicates => match operand {
            Operand::Pair(pair) => {
                fits(&pair.0, To(1), registers).and_then(|()| fits(&pair.1, To(1), registers))
            }
            _ => fits(operand, To(1), registers),
        },
        WithPredicate(bits) => match operand {
            Operand::Pair(pair) => {
                fits(&pair.0, To(bits), registers).and_then(|()| fits(&pair.1, To(1), registers))
            }
            _ => fits(operand, To(bits), registers),
        },
        Address => match operand {
            Operand::Address(..) => Ok(()),
            _ => Err("is no address".to_owned()),
        },
        Other => Ok(()),
    }
}

fn written(operand: &Operand) -> Result<(), String> {
    match operand {
        Operand::Reg(_) | Operand::Sink => Ok(()),
        _ => Err("is no register".to_owned()),
    }
}

fn scalar(operand: &Operand) -> Result<(), String> {
    match operand {
        Operand::Reg(_)
        | Operand::Int(..)
        | Operand::F32(_)
        | Operand::F64(_)
        | Operand::Symbol(..)
        | Operand::Special(_) => Ok(()),
        _ => Err("is neither a register nor a constant".to_owned()),
    }
}

/// The elements of a vector, or the operand itself where one is wanted.
fn vector(
    operand: &Operand,
    count: u32,
    check: impl Fn(&Operand) -> Result<(), String>,
) -> Result<(), String> {
    match operand {
        Operand::Vector(elements) if elements.len() == count as usize => elements.iter().try_for_each(check),
        Operand::Vector(elements) => Err(format!("has {} elements instead of {count}", elements.len())),
        _ if count == 1 => check(operand),
        _ => Err(format!("is no vector of {count}")),
    }
}

/// Whether a register has between `low` and `high` bits; others have no size. Types of 8 bits live in larger
/// registers.
fn sized(operand: &Operand, low: u32, high: u32, registers: &[Register]) -> Result<(), String> {
    let (Operand::Reg(id) | Operand::NotReg(id)) = operand else { return Ok(()) };
    let Some(register) = registers.get(id.0 as usize) else { return Err("does not exist".to_owned()) };
    let bits = register.ty.bits();
    let high = if low == 8 { u32::MAX } else { high };
    if (low..=high).contains(&bits) && (bits == 1) == (low == 1) {
        Ok(())
    } else {
        Err(format!("({}) has {bits} bits instead of {low}", register.name))
    }
}
