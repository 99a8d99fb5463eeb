//! Finds which registers lead into a function's own variables in local memory, whatever else is so, and names the variables where they are accessed.
//!
//! Compilers take the address of all of a function's variables once, and reach each by a register and an offset. An access through a register could go
//! anywhere, so it is confined each time, and the register is kept from one cut to the next. One to a variable that is named is known to be inside.

use std::collections::HashMap;

use super::flow::writes;
use super::op::{IntOp, MemoryTarget, Op};
use super::unit::Unit;
use super::vars::Vars;
use rgpu_image::ptx::ast::{AddressBase, Function, Instruction, Module, Operand, Space, Statement, Symbol};

/// Somewhere in a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The variable.
    pub symbol: Symbol,
    /// The least offset in it.
    pub offset: i64,
    /// The bits that may be set in what is added to that.
    pub index: u64,
}

impl Place {
    /// The same, so far behind, if an access of so many bytes there is one to the variable, however the index is.
    pub(super) fn inside(self, function: &Function, behind: i64, bytes: u32) -> Option<Self> {
        let Symbol::Local(id) = self.symbol else { return None };
        let offset = self.offset.checked_add(behind).filter(|offset| *offset >= 0)?;
        let end = (offset as u64).checked_add(self.index)?.checked_add(bytes.into())?;
        (end <= function.variables[id.0 as usize].size).then_some(Self { offset, ..self })
    }
}

/// What is known of a register.
#[derive(Clone, Copy)]
enum Known {
    Place(Place),
    /// A number of which only these bits may be set.
    Bits(u64),
}

/// Names the variables in all functions of a module.
pub(super) fn name(module: &mut Module, ops: &[Op]) {
    for function in module.functions.iter_mut().filter(|f| !f.is_declaration && has_variables(f)) {
        let places = places(function, ops, &Vars::new(function, ops));
        let mut body = std::mem::take(&mut function.body);
        for statement in &mut body {
            let Statement::Instruction(instruction) = statement else { continue };
            let Some((number, bytes, count)) = accessed(&ops[instruction.form.0 as usize]) else { continue };
            if let Some(operand) = instruction.operands.get_mut(number)
                && let Operand::Address(AddressBase::Reg(register), behind) = *operand
                && let Some(place) = places.get(&register.0).filter(|place| place.index == 0)
                && let Some(place) = place.inside(function, behind, bytes * count)
            {
                *operand = Operand::Address(AddressBase::Symbol(place.symbol), place.offset);
            }
        }
        function.body = body;
    }
}

/// Whether a function has any variables in local memory.
pub(super) fn has_variables(function: &Function) -> bool {
    function.variables.iter().any(|variable| variable.space == Space::Local)
}

/// Whether a symbol is one of them.
pub(super) fn is_variable(function: &Function, symbol: Symbol) -> bool {
    let Symbol::Local(id) = symbol else { return false };
    function.variables.get(id.0 as usize).is_some_and(|variable| variable.space == Space::Local)
}

/// The operand that says where an instruction loads or stores that may access local memory, how many bytes an element of that has, and how many there are.
pub(super) fn accessed(op: &Op) -> Option<(usize, u32, u32)> {
    let (number, place, ty, vector) = match *op {
        Op::Ld { place, ty, vector, .. } => (1, place, ty, vector),
        Op::St { place, ty, vector, .. } => (0, place, ty, vector),
        _ => return None,
    };
    matches!(place, MemoryTarget::Local | MemoryTarget::Generic).then(|| (number, ty.bits() / 8, vector))
}

/// The registers of a function that are written once, with a place in one of its variables. Whoever reads one before has nothing that is defined.
pub(super) fn places(function: &Function, ops: &[Op], vars: &Vars) -> HashMap<u32, Place> {
    if !has_variables(function) {
        return HashMap::new();
    }
    let writes = writes(function, ops, vars);
    let mut known: HashMap<u32, Known> = HashMap::new();
    for instruction in Unit::instructions(function) {
        let Some(Operand::Reg(register)) = instruction.operands.first() else { continue };
        if writes[register.0 as usize] == 1
            && instruction.guard.is_none()
            && let Some(found) = computed(instruction, &ops[instruction.form.0 as usize], function, &known)
        {
            known.insert(register.0, found);
        }
    }
    let place = |(register, known)| match known {
        Known::Place(place) => Some((register, place)),
        Known::Bits(_) => None,
    };
    known.into_iter().filter_map(place).collect()
}

/// What an instruction makes, as far as it is known what it is made of.
fn computed(
    instruction: &Instruction,
    op: &Op,
    function: &Function,
    known: &HashMap<u32, Known>,
) -> Option<Known> {
    let of = |number: usize| match *instruction.operands.get(number)? {
        Operand::Reg(register) => known.get(&register.0).copied(),
        Operand::Int(value, _) => u64::try_from(value as i64).ok().map(Known::Bits),
        Operand::Symbol(symbol, offset) => {
            is_variable(function, symbol).then_some(Known::Place(Place { symbol, offset, index: 0 }))
        }
        _ => None,
    };
    let int = |number: usize| match instruction.operands.get(number)? {
        Operand::Int(value, _) => Some(*value as i64),
        _ => None,
    };
    let bits = |number: usize| match of(number) {
        Some(Known::Bits(bits)) => bits,
        _ => u64::MAX,
    };
    let shifted = |bits: u64, by: u32, width: u32| {
        (by < width && bits.leading_zeros() > by + 64 - width).then(|| Known::Bits(bits << by))
    };
    match *op {
        Op::Mov { ty } if ty.bits() == 64 => of(1),
        Op::Cvta { .. } => of(1).filter(|known| matches!(known, Known::Place(_))),
        Op::Cvt { ref convert } if !(convert.dst.is_float() || convert.src.is_float()) => {
            // Whatever sign the number has, if its first bit is none that may be set.
            let fits = |bits: u64| bits < 1 << (convert.src.bits().min(convert.dst.bits()) - 1);
            Some(Known::Bits(bits(1))).filter(|_| fits(bits(1)))
        }
        Op::Int { op: IntOp::Add | IntOp::Sub, ty } if ty.bits() == 64 => {
            let sign = if matches!(*op, Op::Int { op: IntOp::Sub, .. }) { -1 } else { 1 };
            match (of(1), int(1), of(2), int(2)) {
                (Some(Known::Place(place)), _, _, Some(by)) => {
                    let offset = place.offset.checked_add(by.checked_mul(sign)?)?;
                    Some(Known::Place(Place { offset, ..place }))
                }
                (Some(Known::Place(place)), _, Some(Known::Bits(bits)), _)
                | (Some(Known::Bits(bits)), None, Some(Known::Place(place)), _)
                    if sign == 1 && place.index & bits == 0 =>
                {
                    Some(Known::Place(Place { index: place.index | bits, ..place }))
                }
                _ => None,
            }
        }
        Op::Int { op: IntOp::And, .. } => {
            Some(Known::Bits(bits(1) & bits(2))).filter(|_| bits(1) & bits(2) < 1 << 31)
        }
        Op::Int { op: IntOp::Shl, ty } => shifted(bits(1), u32::try_from(int(2)?).ok()?, ty.bits()),
        Op::MulWide { .. } => {
            let times = int(2).filter(|times| *times > 0 && times & (times - 1) == 0)?;
            if bits(1) < 1 << 15 { shifted(bits(1), times.trailing_zeros(), 63) } else { None }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many loads of a kernel's body name its variable `v` of 64 bytes, and of how many the emitter is told the index's bits.
    fn found(body: &str) -> (usize, usize) {
        let text = format!(
            ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u32 n)\n{{\n\
             .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .local .align 16 .b8 v[64];\n\
             ld.param.u64 %rd1, [a]; ld.param.u32 %r1, [n]; mov.u64 %rd2, v; cvta.local.u64 %rd3, %rd2;\n{body}\nret; }}\n"
        );
        let unit = Unit::new(rgpu_image::ptx::parse(&text).unwrap()).unwrap();
        let function = &unit.module.functions[unit.kernels[0].0 as usize];
        let places = places(function, &unit.ops, &Vars::new(function, &unit.ops));
        let (mut named, mut indexed) = (0, 0);
        for instruction in Unit::instructions(function) {
            let Some((number, bytes, count)) = accessed(&unit.ops[instruction.form.0 as usize]) else {
                continue;
            };
            match instruction.operands[number] {
                Operand::Address(AddressBase::Symbol(_), _) => named += 1,
                Operand::Address(AddressBase::Reg(register), behind) => {
                    let place = places.get(&register.0).filter(|place| place.index != 0);
                    indexed +=
                        usize::from(place.and_then(|p| p.inside(function, behind, bytes * count)).is_some());
                }
                _ => {}
            }
        }
        (named, indexed)
    }

    #[test]
    fn accesses_to_variables_name_them() {
        assert_eq!(found("ld.local.u32 %r2, [%rd2+60]; ld.u32 %r3, [%rd3];"), (2, 0));
        assert_eq!(
            found("add.u64 %rd4, %rd3, 16; sub.s64 %rd5, %rd4, 8; ld.v4.u32 {%r2, %r3, %r4, %r5}, [%rd5-8];"),
            (1, 0)
        );
        assert_eq!(found("ld.local.u32 %r2, [%rd2+61]; ld.local.u32 %r3, [%rd2+-4];"), (0, 0), "outside");
        // A register that leads elsewhere in some turns, or for some threads.
        assert_eq!(
            found(
                "mov.u64 %rd4, %rd2; L: ld.local.u32 %r2, [%rd4]; add.u64 %rd4, %rd4, 4; setp.lt.u32 %p1, %r2, %r1; @%p1 bra L;"
            ),
            (0, 0)
        );
        assert_eq!(found("setp.eq.u32 %p1, %r1, 0; @%p1 mov.u64 %rd4, %rd2; ld.u32 %r2, [%rd4];"), (0, 0));
        assert_eq!(
            found("add.u64 %rd4, %rd2, %rd1; ld.u32 %r2, [%rd4];"),
            (0, 0),
            "by a number that may be any"
        );
        assert_eq!(
            found("add.u64 %rd4, %rd2, %rd3; ld.u32 %r2, [%rd4];"),
            (0, 0),
            "the sum of two addresses"
        );
    }

    #[test]
    fn the_bits_of_an_index_are_known() {
        let index = |index: &str| found(&format!("{index} add.u64 %rd5, %rd3, %rd4; ld.u32 %r3, [%rd5];")).1;
        assert_eq!(index("and.b64 %rd4, %rd1, 60;"), 1);
        assert_eq!(index("and.b64 %rd4, %rd1, 124;"), 0, "too many");
        assert_eq!(index("and.b32 %r2, %r1, 15; mul.wide.u32 %rd4, %r2, 4;"), 1);
        assert_eq!(index("and.b32 %r2, %r1, 15; mul.wide.s32 %rd4, %r2, 8;"), 0);
        assert_eq!(index("and.b32 %r2, %r1, 15; cvt.u64.u32 %rd6, %r2; shl.b64 %rd4, %rd6, 2;"), 1);
        assert_eq!(index("and.b32 %r2, %r1, 15; shl.b32 %r4, %r2, 2; cvt.s64.s32 %rd4, %r4;"), 1);
        assert_eq!(
            index("and.b32 %r2, %r1, 15; shl.b32 %r4, %r2, 30; cvt.s64.s32 %rd4, %r4;"),
            0,
            "bits are lost"
        );
        assert_eq!(index("and.b32 %r2, %r1, -4; cvt.u64.u32 %rd4, %r2;"), 0);
        // A row and a column, which have no bit in common, and two that do.
        let sum = |other: &str| {
            found(&format!(
                "and.b64 %rd4, %rd1, 48; add.u64 %rd5, %rd3, %rd4; and.b64 %rd6, %rd1, {other}; add.u64 %rd7, %rd6, %rd5; ld.u32 %r3, [%rd7];"
            ))
        };
        assert_eq!((sum("12").1, sum("28").1), (1, 0));
    }
}
