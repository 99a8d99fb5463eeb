//! Numbers and addresses that a function keeps in its own variables in local memory, as if they were in registers.
//!
//! What was built for a debugger keeps a variable there whose address is taken, and an object's members always are there where its methods are functions.
//! An array that such a pointer leads to would not be known as the block's memory.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::super::locals::{accessed, has_variables, is_variable};
use super::super::op::Op;
use super::super::unit::synthetic;
use super::address::{Addresses, Rows, instructions};
use rgpu_image::ptx::ast::{
    FormId, Function, Instruction, LocalId, Operand, RegId, RegName, Register, Statement, Symbol, Type,
};

/// The address of a variable may be kept in another one, and that one's address as well: so often.
const ROUNDS: usize = 4;

/// A place in a variable: the variable, and the offset in it.
type Slot = (LocalId, i64);

/// The same function, statement by statement, but with moves from and to registers of their own in place of loads and stores of such places. It is to be looked
/// at, and not to be executed: whether others have the address of such a place is not asked.
pub(super) fn in_registers<'a>(function: &'a Function, ops: &[Op]) -> Cow<'a, Function> {
    let mut seen = Cow::Borrowed(function);
    let mut registers: HashMap<Slot, RegId> = HashMap::new();
    for _ in 0..ROUNDS {
        let found = found(&seen, ops);
        if found.is_empty() {
            break;
        }
        let function = seen.to_mut();
        for (at, slot, bytes) in found {
            let register = *registers.entry(slot).or_insert_with(|| {
                let ty = if bytes == 8 { Type::B64 } else { Type::B32 };
                let name = RegName { base: Arc::from("slot"), index: None, component: None };
                function.registers.push(Register { name, ty });
                RegId(function.registers.len() as u32 - 1)
            });
            let Statement::Instruction(instruction) = &mut function.body[at] else { continue };
            let is_load = matches!(ops[instruction.form.0 as usize], Op::Ld { .. });
            instruction.operands[usize::from(is_load)] = Operand::Reg(register);
            instruction.form = FormId(synthetic::MOVE[bytes.trailing_zeros() as usize]);
        }
    }
    seen
}

/// Stands for the width of the elements of arrays of addresses.
const OF_POINTERS: u32 = 0;

/// Whether a store is one of an address.
fn stores_pointer(addresses: &mut Addresses, store: &Instruction) -> bool {
    store.operands.get(1).is_some_and(|value| addresses.is_pointer(value))
}

/// The statements that load or store such a place, the place, and its bytes.
fn found(function: &Function, ops: &[Op]) -> Vec<(usize, Slot, u32)> {
    if !has_variables(function) {
        return Vec::new();
    }
    let Some(mut addresses) = Addresses::new(function, ops, Rows::Whole) else { return Vec::new() };
    let mut found = Vec::new();
    // How wide the accesses to each place are, and for accesses of each width where arrays of such elements begin.
    let mut widths: BTreeMap<Slot, BTreeSet<u32>> = BTreeMap::new();
    let mut arrays: BTreeMap<(LocalId, u32), i64> = BTreeMap::new();
    // Whether nothing but addresses is stored to a place: such a one is no element of an array that lies before it, unless that is one of addresses.
    let mut pointers: BTreeMap<Slot, bool> = BTreeMap::new();
    for (at, instruction) in instructions(function) {
        let Some((number, bytes, count)) = accessed(&ops[instruction.form.0 as usize]) else { continue };
        let Some(operand) = instruction.operands.get(number) else { continue };
        let Some(address) = addresses.address(operand) else { continue };
        let Some(Symbol::Local(id)) =
            addresses.symbol_of(&address).filter(|symbol| is_variable(function, *symbol))
        else {
            continue;
        };
        if count == 1 && addresses.place_in_variable(&address).is_some() {
            let slot = (id, address.constant);
            widths.entry(slot).or_default().insert(bytes);
            if number == 0 {
                *pointers.entry(slot).or_insert(true) &= stores_pointer(&mut addresses, instruction);
            }
            found.push((at, slot, bytes));
        } else {
            let of_pointers = number == 0 && stores_pointer(&mut addresses, instruction);
            for kind in [Some(bytes), of_pointers.then_some(OF_POINTERS)].into_iter().flatten() {
                let begins = arrays.entry((id, kind)).or_insert(i64::MAX);
                *begins = address.constant.min(*begins);
            }
        }
    }
    let is_element =
        |(id, offset): Slot, bytes: u32| arrays.get(&(id, bytes)).is_some_and(|begins| *begins <= offset);
    found.retain(|&(_, slot, bytes)| {
        let is_pointer = || pointers.get(&slot).is_some_and(|all| *all) && !is_element(slot, OF_POINTERS);
        matches!(bytes, 4 | 8) && widths[&slot].len() == 1 && (!is_element(slot, bytes) || is_pointer())
    });
    found
}
