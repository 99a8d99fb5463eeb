//! Whether an instruction has the operands that its opcode takes: how many, of what kind and size.
//!
//! Emission counts on it: an instruction that has passed has as many operands as its row in the table says.

use super::form::{Combine, Form, MulPart};
use rgpu_image::ptx::ast::{AddressBase, Operand, Register, Special, Type};

/// How many bits an operand has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// So many; 1 is a predicate.
    Bits(u32),
    /// As many as this one of the form's types.
    OfType(usize),
}

/// What an operand has to be. `W` is how its size is given: a [`Width`] in the table, bits for a certain form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role<W> {
    /// Written; a register of this size.
    To(W),
    /// Read; likewise, or a constant.
    From(W),
    /// Written: part of a register of 32 bits.
    PartTo,
    /// Read: such a part, a register of 32 bits, or a constant.
    PartFrom,
    /// Read: likewise, or the negative of it.
    SignedPart,
    /// Read: a register of 32 bits, or a constant, or the negative of it.
    Signed,
    /// Written; a register of at least this size. The second is how many there are (a vector).
    WideTo(W, u32),
    /// Read; likewise.
    WideFrom(W, u32),
    /// Written; a register, or a vector of this size in all.
    AnyTo(W),
    /// Read; likewise.
    AnyFrom(W),
    /// Written: a predicate, or two of them.
    Predicates,
    /// Written: a register of this size, and perhaps a predicate (`d|p`).
    WithPredicate(W),
    /// Written: so many registers of this size or larger, and perhaps a predicate.
    WideWithPredicate(W, u32),
    /// Written: a register of this size and a predicate.
    AndPredicate(W),
    /// Written: the registers of a matrix fragment; how many depends on its shape.
    FragmentTo,
    /// Read: likewise.
    FragmentFrom,
    /// In brackets.
    Address,
    /// In brackets: a texture or surface.
    Object,
    /// In brackets: a texture or surface, and so many coordinates.
    Texel(usize),
    /// In brackets: the address of a tensor map, and so many coordinates.
    Tensor(usize),
    /// An integer.
    Constant,
    /// Read: a register of 32 bits, a predicate, or a constant.
    SizeOrPredicate,
    /// A label.
    Target,
    /// A table of labels.
    Targets,
    /// What a call passes, or gets back.
    Arguments,
    /// What is called.
    Callee,
    /// The prototype of an indirect call, or nothing.
    Signature,
}

use Role::*;

/// The operands of an opcode.
pub(crate) enum Operands {
    /// These; so many of the last may be missing.
    Listed(&'static [Role<Width>], usize),
    /// What the form, and how many there are, say.
    ByForm(fn(&Form, usize) -> Option<Demands>),
    /// Whatever is written: the opcode cannot be executed.
    Any,
}

/// The roles of a form's operands, and how many of the last may be missing.
#[derive(Debug)]
pub(crate) struct Demands {
    roles: Vec<Role<u32>>,
    optional: usize,
}

impl Demands {
    fn exactly(roles: &[Role<u32>]) -> Option<Self> {
        Some(Self { roles: roles.to_vec(), optional: 0 })
    }
}

impl Operands {
    /// What a form demands where an instruction has so many operands. `None` if its types do not say enough, which
    /// no form that can be executed leads to.
    pub(crate) fn demands(&self, form: &Form, count: usize) -> Option<Demands> {
        match self {
            Self::Listed(roles, optional) => {
                let roles = roles.iter().map(|role| role.of(form)).collect::<Option<_>>()?;
                Some(Demands { roles, optional: *optional })
            }
            Self::ByForm(rule) => rule(form, count),
            Self::Any => None,
        }
    }
}

impl Role<Width> {
    /// The same role with its size in bits.
    fn of(self, form: &Form) -> Option<Role<u32>> {
        let bits = |width| match width {
            Width::Bits(bits) => Some(bits),
            Width::OfType(index) => form.types.get(index).map(|ty: &Type| ty.bits()),
        };
        Some(match self {
            To(width) => To(bits(width)?),
            From(width) => From(bits(width)?),
            WideTo(width, count) => WideTo(bits(width)?, count),
            WideFrom(width, count) => WideFrom(bits(width)?, count),
            AnyTo(width) => AnyTo(bits(width)?),
            AnyFrom(width) => AnyFrom(bits(width)?),
            Predicates => Predicates,
            WithPredicate(width) => WithPredicate(bits(width)?),
            WideWithPredicate(width, count) => WideWithPredicate(bits(width)?, count),
            AndPredicate(width) => AndPredicate(bits(width)?),
            FragmentTo => FragmentTo,
            FragmentFrom => FragmentFrom,
            Address => Address,
            Object => Object,
            Texel(count) => Texel(count),
            Tensor(count) => Tensor(count),
            Constant => Constant,
            SizeOrPredicate => SizeOrPredicate,
            Target => Target,
            Targets => Targets,
            PartTo => PartTo,
            PartFrom => PartFrom,
            SignedPart => SignedPart,
            Signed => Signed,
            Arguments => Arguments,
            Callee => Callee,
            Signature => Signature,
        })
    }
}

mod tensor;
mod texture;

/// The rules of opcodes whose operands depend on their modifiers.
pub(super) mod rules {
    use super::tensor::bulk;
    pub(crate) use super::tensor::{fence, tensormap, wgmma};
    pub(crate) use super::texture::{suld, sured, sust, tex, texture_query, tld4};
    use super::*;

    pub(super) fn bits(form: &Form, index: usize) -> Option<u32> {
        form.types.get(index).map(|ty| ty.bits())
    }

    /// The same with a cache policy at the end, where the form has a hint.
    pub(super) fn hinted(form: &Form, mut roles: Vec<Role<u32>>, optional: usize) -> Option<Demands> {
        if form.has("L2::cache_hint") {
            roles.push(From(64));
        }
        Some(Demands { roles, optional })
    }

    /// `mul`
    pub(crate) fn mul(form: &Form, _: usize) -> Option<Demands> {
        let bits = bits(form, 0)?;
        let wide = if form.part == Some(MulPart::Wide) { bits * 2 } else { bits };
        Demands::exactly(&[To(wide), From(bits), From(bits)])
    }

    /// `mad`
    pub(crate) fn mad(form: &Form, _: usize) -> Option<Demands> {
        let bits = bits(form, 0)?;
        let wide = if form.part == Some(MulPart::Wide) { bits * 2 } else { bits };
        Demands::exactly(&[To(wide), From(bits), From(bits), From(wide)])
    }

    /// `lop3`, which with `.or` or `.and` has a predicate on either side.
    pub(crate) fn lop3(form: &Form, _: usize) -> Option<Demands> {
        let plain = [To(32), From(32), From(32), From(32), Constant];
        if form.has("or") || form.has("and") {
            let [_, a, b, c, table] = plain;
            return Demands::exactly(&[AndPredicate(32), a, b, c, table, From(1)]);
        }
        Demands::exactly(&plain)
    }

    /// `min` and `max`: of two numbers, or of three singles
    pub(crate) fn min_max(form: &Form, operands: usize) -> Option<Demands> {
        let bits = form.ty()?.bits();
        let three = operands == 4 && form.ty() == Some(Type::F32) && !form.has("xorsign");
        let mut roles = vec![To(bits), From(bits), From(bits)];
        roles.resize(if three { 4 } else { 3 }, From(bits));
        Demands::exactly(&roles)
    }

    /// `setp`
    pub(crate) fn setp(form: &Form, _: usize) -> Option<Demands> {
        let mut roles = vec![Predicates, From(bits(form, 0)?), From(bits(form, 0)?)];
        roles.resize(3 + usize::from(form.combine.is_some()), From(1));
        Some(Demands { roles, optional: 0 })
    }

    /// `set`
    pub(crate) fn set(form: &Form, _: usize) -> Option<Demands> {
        let mut roles = vec![To(bits(form, 0)?), From(bits(form, 1)?), From(bits(form, 1)?)];
        roles.resize(3 + usize::from(form.combine.is_some()), From(1));
        Some(Demands { roles, optional: 0 })
    }

    /// `cvt`: one source, two that are packed, or two and what is packed below them.
    pub(crate) fn cvt(form: &Form, _: usize) -> Option<Demands> {
        let packed = [To(32), From(32), From(32), From(32)];
        match (form.has("pack"), form.types.as_slice()) {
            (true, types) => Demands::exactly(&packed[..types.len() + 1]),
            (false, [Type::F16x2 | Type::Bf16x2, Type::F32]) => Demands::exactly(&packed[..3]),
            (false, [Type::E4m3x2 | Type::E5m2x2, Type::F32]) => {
                Demands::exactly(&[To(16), From(32), From(32)])
            }
            (false, [to, from]) => Demands::exactly(&[WideTo(to.bits(), 1), WideFrom(from.bits(), 1)]),
            (false, _) => None,
        }
    }

    /// `mov`
    pub(crate) fn mov(form: &Form, _: usize) -> Option<Demands> {
        let bits = bits(form, 0)? * form.vector;
        Demands::exactly(&[AnyTo(bits), AnyFrom(bits)])
    }

    /// `ld`, `ldu`
    pub(crate) fn load(form: &Form, _: usize) -> Option<Demands> {
        hinted(form, vec![WideTo(bits(form, 0)?, form.vector), Address], 0)
    }

    /// `st`
    pub(crate) fn store(form: &Form, _: usize) -> Option<Demands> {
        told(form, vec![Address, WideFrom(bits(form, 0)?, form.vector)])
    }

    /// The same with a barrier that is told, where the form is asynchronous, or with a cache policy.
    fn told(form: &Form, mut roles: Vec<Role<u32>>) -> Option<Demands> {
        if form.has("async") {
            roles.push(Address);
        }
        hinted(form, roles, 0)
    }

    /// `atom`
    pub(crate) fn atom(form: &Form, _: usize) -> Option<Demands> {
        let bits = bits(form, 0)?;
        if form.vector > 1 {
            return hinted(form, vec![WideTo(bits, form.vector), Address, WideFrom(bits, form.vector)], 0);
        }
        let mut roles = vec![To(bits), Address, From(bits)];
        roles.resize(3 + usize::from(form.combine == Some(Combine::Cas)), From(bits));
        hinted(form, roles, 0)
    }

    /// `red`
    pub(crate) fn red(form: &Form, _: usize) -> Option<Demands> {
        let bits = bits(form, 0)?;
        let from = if form.vector > 1 { WideFrom(bits, form.vector) } else { From(bits) };
        told(form, vec![Address, from])
    }

    /// `cp.async` and what belongs to it.
    pub(crate) fn cp(form: &Form, count: usize) -> Option<Demands> {
        if form.has("mbarrier") {
            return Demands::exactly(&[Address]);
        }
        if form.has("commit_group") || form.has("wait_all") {
            return Demands::exactly(&[]);
        }
        if form.has("wait_group") {
            return Demands::exactly(&[Constant]);
        }
        if form.has("bulk") {
            return bulk(form);
        }
        // How much of the source is read, or whether it is ignored, may be left out.
        let mut roles = vec![Address, Address, Constant];
        let hint = usize::from(form.has("L2::cache_hint"));
        if count > roles.len() + hint {
            roles.push(SizeOrPredicate);
        }
        hinted(form, roles, 0)
    }

    /// `createpolicy`: for a range of addresses, for a fraction of the accesses, or made of an access property.
    pub(crate) fn createpolicy(form: &Form, _: usize) -> Option<Demands> {
        if form.has("range") {
            return Demands::exactly(&[To(64), Address, From(32), From(32)]);
        }
        let (from, optional) = if form.has("fractional") { (32, 1) } else { (64, 0) };
        Some(Demands { roles: vec![To(64), From(from)], optional })
    }

    /// `mbarrier`
    pub(crate) fn mbarrier(form: &Form, _: usize) -> Option<Demands> {
        let arrives = form.has("arrive") || form.has("arrive_drop");
        if form.has("init") {
            Demands::exactly(&[Address, From(32)])
        } else if form.has("inval") {
            Demands::exactly(&[Address])
        } else if arrives && (form.has("noComplete") || form.has("expect_tx")) {
            Demands::exactly(&[To(64), Address, From(32)])
        } else if !arrives && (form.has("expect_tx") || form.has("complete_tx")) {
            Demands::exactly(&[Address, From(32)])
        } else if arrives {
            Some(Demands { roles: vec![To(64), Address, From(32)], optional: 1 })
        } else if form.has("test_wait") || form.has("try_wait") {
            let phase = if form.has("parity") { 32 } else { 64 };
            let mut roles = vec![To(1), Address, From(phase)];
            // How long to wait at most.
            let optional = usize::from(form.has("try_wait"));
            roles.resize(3 + optional, From(32));
            Some(Demands { roles, optional })
        } else {
            // How many arrivals are pending.
            Demands::exactly(&[To(32), From(64)])
        }
    }

    /// `bar`, `barrier`
    pub(crate) fn bar(form: &Form, count: usize) -> Option<Demands> {
        if form.has("cluster") {
            return Demands::exactly(&[]);
        }
        if form.has("warp") {
            return Demands::exactly(&[From(32)]);
        }
        if !form.has("red") {
            return Some(Demands { roles: vec![From(32), From(32)], optional: 1 });
        }
        let to = if form.ty() == Some(Type::Pred) { 1 } else { 32 };
        // The count of threads stands before the predicate.
        match count {
            4 => Demands::exactly(&[To(to), From(32), From(32), From(1)]),
            _ => Demands::exactly(&[To(to), From(32), From(1)]),
        }
    }

    /// `shfl`
    pub(crate) fn shfl(form: &Form, _: usize) -> Option<Demands> {
        let mut roles = vec![WithPredicate(32), From(32), From(32), From(32)];
        roles.resize(4 + usize::from(form.sync), From(32));
        Some(Demands { roles, optional: 0 })
    }

    /// `vote`
    pub(crate) fn vote(form: &Form, _: usize) -> Option<Demands> {
        let result = if form.ty() == Some(Type::Pred) { 1 } else { 32 };
        let mut roles = vec![To(result), From(1)];
        roles.resize(2 + usize::from(form.sync), From(32));
        Some(Demands { roles, optional: 0 })
    }

    /// `vadd` and its kin: those on scalars have a third source only for a second operation, or where part of the result is written.
    pub(crate) fn video(form: &Form, operands: usize) -> Option<Demands> {
        if form.opcode.row().name.ends_with(['2', '4']) {
            return Demands::exactly(&[To(32), From(32), From(32), From(32)]);
        }
        if form.has("add") || form.has("min") || form.has("max") {
            return Demands::exactly(&[To(32), PartFrom, PartFrom, From(32)]);
        }
        let to = if operands > 3 { PartTo } else { To(32) };
        let roles = vec![to, PartFrom, PartFrom, From(32)];
        Some(Demands { roles, optional: 1 })
    }

    /// `mma`, which metadata and a selector follow where half of the first matrix is not there
    pub(crate) fn mma(form: &Form, _: usize) -> Option<Demands> {
        let mut roles = vec![FragmentTo, FragmentFrom, FragmentFrom, FragmentFrom];
        if form.has("sp") || form.has("sp::ordered_metadata") {
            roles.extend([From(32), Constant]);
        }
        Demands::exactly(&roles)
    }

    /// `wmma`
    pub(crate) fn wmma(form: &Form, _: usize) -> Option<Demands> {
        let (roles, optional) = if form.has("load") {
            (vec![FragmentTo, Address, From(32)], 1)
        } else if form.has("store") {
            (vec![Address, FragmentFrom, From(32)], 1)
        } else {
            (vec![FragmentTo, FragmentFrom, FragmentFrom, FragmentFrom], 0)
        };
        Some(Demands { roles, optional })
    }
}

/// What the forms of a module demand, worked out once for each.
#[derive(Default)]
pub(crate) struct Checker {
    /// By the form's number: for how many operands, and what they have to be.
    known: Vec<Option<(usize, Option<Demands>)>>,
}

impl Checker {
    /// Checks the operands of an instruction, whose form has this number and can be executed; an error says
    /// what is wrong. Elements of arrays become what the opcode makes of them: addresses to access, or to take.
    pub(crate) fn check(
        &mut self,
        number: usize,
        form: &Form,
        operands: &mut [Operand],
        registers: &[Register],
    ) -> Result<(), String> {
        if self.known.len() <= number {
            self.known.resize_with(number + 1, || None);
        }
        let count = operands.len();
        let slot = &mut self.known[number];
        if slot.as_ref().is_none_or(|known| known.0 != count) {
            *slot = Some((count, form.opcode.row().operands.demands(form, count)));
        }
        match slot {
            Some((_, Some(demands))) => {
                check(form, demands, operands, registers)?;
                for (operand, role) in operands.iter_mut().zip(&demands.roles) {
                    settle(operand, *role == Address);
                }
                Ok(())
            }
            _ => Err(format!("The operands of {} are not known", form.text)),
        }
    }
}

fn check(form: &Form, demands: &Demands, operands: &[Operand], registers: &[Register]) -> Result<(), String> {
    let Demands { roles, optional } = demands;
    let (least, most) = (roles.len() - optional, roles.len());
    if !(least..=most).contains(&operands.len()) {
        let takes = if *optional == 0 { most.to_string() } else { format!("{least} to {most}") };
        return Err(format!("{} takes {takes} operands, not {}", form.text, operands.len()));
    }
    for (index, (operand, role)) in operands.iter().zip(roles).enumerate() {
        if let Err(why) = fits(operand, *role, registers) {
            return Err(format!("Operand {} of {} {why}", index + 1, form.text));
        }
    }
    Ok(())
}

fn fits(operand: &Operand, role: Role<u32>, registers: &[Register]) -> Result<(), String> {
    match role {
        To(bits) => written(operand).and_then(|()| sized(operand, bits, bits, registers)),
        From(1) => match operand {
            Operand::Reg(_) | Operand::NotReg(_) | Operand::Int(..) => sized(operand, 1, 1, registers),
            Operand::Special(Special::IsExplicitCluster) => Ok(()),
            _ => Err("is no predicate".to_owned()),
        },
        From(bits) => scalar(operand).and_then(|()| sized(operand, bits, bits, registers)),
        PartTo | PartFrom | SignedPart | Signed => match operand {
            Operand::Part(_, part) if part.negative && matches!(role, PartTo | PartFrom) => {
                Err("is negated".to_owned())
            }
            Operand::Part(_, part) if part.bits < 32 && role == Signed => {
                Err("is no whole register".to_owned())
            }
            Operand::Part(register, _) => sized(&Operand::Reg(*register), 32, 32, registers),
            _ if role == PartTo => Err("is no part of a register".to_owned()),
            _ => fits(operand, From(32), registers),
        },
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
        Predicates => with_predicate(operand, To(1), registers),
        WithPredicate(bits) => with_predicate(operand, To(bits), registers),
        WideWithPredicate(bits, count) => with_predicate(operand, WideTo(bits, count), registers),
        AndPredicate(bits) => match operand {
            Operand::Pair(_) => fits(operand, WithPredicate(bits), registers),
            _ => Err("is no register with a predicate".to_owned()),
        },
        FragmentTo => elements(operand).iter().try_for_each(written),
        FragmentFrom => elements(operand).iter().try_for_each(scalar),
        Address => is("address", matches!(operand, Operand::Address(..) | Operand::Element(..))),
        Object => object(operand, registers),
        Texel(count) => match operand {
            Operand::Bracket(parts) => match &parts[..] {
                [first, coordinates] => {
                    object(first, registers)?;
                    let given = elements(coordinates);
                    if !(count..=4).contains(&given.len()) {
                        return Err(format!("has {} coordinates instead of {count}", given.len()));
                    }
                    given.iter().try_for_each(|part| fits(part, From(32), registers))
                }
                _ => Err("has a sampler of its own, which is not supported".to_owned()),
            },
            _ => Err("has no coordinates".to_owned()),
        },
        Tensor(count) => match operand {
            Operand::Bracket(parts) => match &parts[..] {
                [Operand::Address(..) | Operand::Element(..), coordinates] => {
                    let given = elements(coordinates);
                    if given.len() != count {
                        return Err(format!("has {} coordinates instead of {count}", given.len()));
                    }
                    given.iter().try_for_each(|part| fits(part, From(32), registers))
                }
                _ => Err("is no address of a tensor map with coordinates".to_owned()),
            },
            _ => Err("has no coordinates".to_owned()),
        },
        Constant => is("constant", matches!(operand, Operand::Int(..))),
        SizeOrPredicate => fits(operand, From(1), registers).or_else(|_| fits(operand, From(32), registers)),
        Target => is("label", matches!(operand, Operand::Label(_))),
        Targets => is("table of labels", matches!(operand, Operand::BranchTable(_))),
        Arguments => is("list", matches!(operand, Operand::List(_))),
        Callee => is("function", matches!(operand, Operand::Symbol(..) | Operand::Reg(_))),
        Signature => {
            is("prototype", matches!(operand, Operand::Prototype(_) | Operand::CallTable(_) | Operand::Sink))
        }
    }
}

/// Whether it names a texture or surface: a register that has its handle, or a reference, whose type whoever knows the module looks at.
fn object(operand: &Operand, registers: &[Register]) -> Result<(), String> {
    match operand {
        Operand::Address(AddressBase::Reg(reg), 0) => fits(&Operand::Reg(*reg), From(64), registers),
        Operand::Address(AddressBase::Symbol(_), 0) => Ok(()),
        _ => Err("is neither a register with a texture or surface object nor a reference".to_owned()),
    }
}

/// What is written, and perhaps a predicate (`d|p`).
fn with_predicate(operand: &Operand, role: Role<u32>, registers: &[Register]) -> Result<(), String> {
    match operand {
        Operand::Pair(pair) => fits(&pair.0, role, registers).and_then(|()| fits(&pair.1, To(1), registers)),
        _ => fits(operand, role, registers),
    }
}

/// Makes an address to access, or one to take, of an element.
fn settle(operand: &mut Operand, is_access: bool) {
    match operand {
        Operand::Element(AddressBase::Reg(register), 0) if !is_access => *operand = Operand::Reg(*register),
        Operand::Element(AddressBase::Symbol(symbol), offset) if !is_access => {
            *operand = Operand::Symbol(*symbol, *offset);
        }
        Operand::Element(base, offset) => *operand = Operand::Address(*base, *offset),
        Operand::Vector(list) | Operand::List(list) => {
            list.iter_mut().for_each(|element| settle(element, is_access));
        }
        _ => {}
    }
}

fn is(what: &str, it_is: bool) -> Result<(), String> {
    if it_is { Ok(()) } else { Err(format!("is no {what}")) }
}

/// The elements of a vector, or the operand itself.
fn elements(operand: &Operand) -> &[Operand] {
    match operand {
        Operand::Vector(elements) => elements,
        single => std::slice::from_ref(single),
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
        | Operand::Element(..)
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
