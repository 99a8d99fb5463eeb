//! Keeps threads abreast where a program counts on it.
//!
//! Code from before `__syncwarp()` lets the lanes of a warp exchange values through `volatile` shared
//! memory without any synchronization: the last steps of a reduction, a scan of a warp. Today's devices do
//! not promise that this works, but it does work on them, because the lanes run abreast. Here each lane
//! runs alone from one cut to the next; so lanes wait for each other before a volatile access to shared
//! memory that could come before another lane's earlier one ([`volatile`]).
//!
//! Some exchange values through memory that is not volatile, of the block or of all; [`exchange`] finds them.
//!
//! Another habit: all threads read a variable of the block, and one of them writes it anew without a barrier
//! between, much later as a device counts. Here that thread may be the first to run; so it lets all others
//! go first ([`hasty`]).
//!
//! Or threads go through what all have filled in a loop before, in another order ([`filled`]).
//!
//! Or a warp changes what others have not come to yet, because a barrier is missing ([`ahead`], [`beside`], [`copies`]), or says that all of them are through ([`done`]).
//!
//! What a warp loads or stores as one (`ldmatrix`) comes behind what its lanes have stored, and before what they load ([`collective`]).
//!
//! One thread of the grid, or one block, reads in a loop what all blocks have stored, and nothing waits for the others ([`grid`]), or raises
//! a number for which others wait to be just so ([`raised`]).
//!
//! And an operation that takes whoever has come, in a loop, is for the lanes of one round ([`gather`]).
//!
//! What a kernel's functions do counts as if they stood in it ([`calls`]), and what it keeps in local memory as if it were in registers ([`slots`]). Where lanes wait, the text is put in an order in which they meet ([`order`]).

mod accesses;
mod address;
mod ahead;
mod beside;
mod calls;
mod collective;
mod compared;
mod copies;
mod done;
mod exchange;
mod filled;
mod found;
mod gather;
mod grid;
mod hasty;
mod order;
mod raised;
mod single;
mod slots;
#[cfg(test)]
mod tests;
mod volatile;
mod ways;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use self::accesses::{Access, Accesses, Forms};
use self::address::{Addresses, Rows};
use self::found::Memory;
use self::ways::Ways;
use super::flow::Flow;
use super::inline::Source;
use super::op::Op;
use super::opcode::Form;
use super::unit::synthetic;
use rgpu_image::ptx::ast::{FormId, Function, Guard, Instruction, Module, Operand, Statement};

/// The operand that says what memory an instruction loads, stores or changes, and how many bytes that is.
fn accessed<'a>(instruction: &'a Instruction, op: &Op) -> Option<(&'a Operand, i64)> {
    let (index, ty, vector) = match *op {
        Op::Ld { ty, vector, .. } => (1, ty, vector),
        Op::St { ty, vector, .. } => (0, ty, vector),
        Op::Atom { ty, vector, result, .. } => (usize::from(result), ty, vector),
        Op::CpAsync { .. } => {
            let Some(&Operand::Int(bytes, _)) = instruction.operands.get(2) else { return None };
            return Some((instruction.operands.first()?, bytes as i64));
        }
        _ => return None,
    };
    Some((instruction.operands.get(index)?, i64::from(ty.bits() / 8) * i64::from(vector)))
}

/// Inserts the places where lanes wait for each other. `ops` are those of all forms, the synthetic ones
/// first, and `forms` the module's own.
pub(super) fn insert(module: &mut Module, forms: &[Form], ops: &[Op]) {
    let forms = Forms::new(forms);
    let kernels = (0..module.functions.len()).filter(|&index| {
        let function = &module.functions[index];
        function.is_entry && !function.is_declaration
    });
    for index in kernels.collect::<Vec<_>>() {
        let whole = calls::with_functions(Source { module: &*module, ops }, index, &forms);
        match whole.and_then(|mut whole| align(&mut whole, module, ops, &forms).then_some(whole)) {
            Some(whole) => module.functions[index] = whole,
            None => {
                let mut function = std::mem::take(&mut module.functions[index]);
                align(&mut function, module, ops, &forms);
                module.functions[index] = function;
            }
        }
    }
    for index in 0..module.functions.len() {
        if !(module.functions[index].is_entry || module.functions[index].is_declaration) {
            let mut function = std::mem::take(&mut module.functions[index]);
            if volatile::align(&mut function, module, ops, &forms) {
                order::arrange(&mut function, ops);
            }
            module.functions[index] = function;
        }
    }
}

/// Inserts them in a kernel. Whether there are any.
fn align(function: &mut Function, module: &Module, ops: &[Op], forms: &Forms) -> bool {
    let mut found = places(function, module, ops, forms);
    if found.is_empty() && !volatile::accesses(function, module, ops, forms) {
        return false;
    }
    if order::join_turns(function, ops) {
        found = places(function, module, ops, forms);
    }
    wait_before(function, &found);
    let any = volatile::align(function, module, ops, forms) || !found.is_empty();
    if any {
        order::arrange(function, ops);
    }
    any
}

/// Where threads of a kernel wait. Mostly nowhere.
#[derive(Default)]
struct Places {
    /// Statements before which lanes wait for each other.
    converging: BTreeSet<usize>,
    /// Those before which a thread lets others go first, where its guard holds.
    yielding: Vec<(usize, Option<Guard>)>,
    /// Those before which it lets other blocks go first: with what form, and the guard.
    letting: Vec<(usize, u32, Option<Guard>)>,
}

impl Places {
    fn is_empty(&self) -> bool {
        self.converging.is_empty() && self.yielding.is_empty() && self.letting.is_empty()
    }
}

/// What lanes or threads may have to wait for in a kernel, as far as a short look at it says.
struct Looks {
    exchanging: BTreeMap<usize, Access>,
    count: exchange::Count,
    exchange: bool,
    hasty: bool,
    gathers: bool,
    copies: bool,
    done: bool,
    collective: bool,
    of_grid: bool,
    raises: bool,
    renews: bool,
}

impl Looks {
    fn at(function: &Function, ops: &[Op], forms: &Forms) -> Self {
        let exchanging = forms.exchanging(function, ops);
        let count = exchange::Count::of(&exchanging);
        Self {
            exchange: count.may_exchange(function),
            exchanging,
            count,
            hasty: forms.may_change_shared(function, ops),
            gathers: gather::gathers(function, ops),
            copies: copies::are_there(function, ops),
            done: done::are_there(function, ops),
            collective: collective::are_there(function, ops),
            of_grid: grid::are_there(function, ops),
            raises: raised::are_there(function, ops),
            renews: beside::may_renew_for_all(function, ops),
        }
    }

    fn finds_any(&self) -> bool {
        let Self { exchange, hasty, gathers, copies, done, collective, of_grid, raises, renews, .. } = *self;
        [exchange, hasty, gathers, copies, done, collective, of_grid, raises, renews].contains(&true)
    }
}

/// Finds them.
fn places(function: &Function, module: &Module, ops: &[Op], forms: &Forms) -> Places {
    let mut looks = Looks::at(function, ops, forms);
    if !looks.finds_any() {
        return Places::default();
    }
    let seen = slots::in_registers(function, ops);
    if let Cow::Owned(seen) = &seen {
        looks = Looks::at(seen, ops, forms);
    }
    let (function, looks) = (&*seen, looks);
    let Looks {
        exchanging,
        count,
        exchange,
        hasty,
        gathers,
        copies,
        done,
        collective,
        of_grid,
        raises,
        renews,
    } = looks;
    let flow = Flow::new(function, ops);
    let mut addresses = count.are_few(&flow).then(|| Addresses::new(function, ops, Rows::Whole)).flatten();
    let accesses = Accesses::new(function, module, ops, forms, addresses.as_mut());
    let mut converging = match &mut addresses {
        Some(addresses) if exchange => {
            let mut places = exchange::places(function, ops, &exchanging, &accesses, &flow, addresses);
            if address::names_row(function)
                && let Some(mut addresses) = Addresses::new(function, ops, Rows::Short)
            {
                places.extend(exchange::places(function, ops, &exchanging, &accesses, &flow, &mut addresses));
            }
            places
        }
        _ => BTreeSet::new(),
    };
    if gathers && flow.blocks.len() <= exchange::BLOCKS {
        let divides = |predicate| addresses.as_ref().is_none_or(|addresses| addresses.divides(predicate));
        let ways = Ways::new(function, &flow, divides);
        converging.extend(gather::places(function, ops, &flow, &ways));
    }
    if collective {
        converging.extend(collective::places(function, ops, forms, &flow));
    }
    let mut yielding = Vec::new();
    if copies {
        let waiting = copies::places(function, ops, &flow, &accesses);
        yielding.extend(waiting.into_iter().map(|at| (at, None)));
    }
    if done && let Some(addresses) = &addresses {
        yielding.extend(done::places(function, ops, &flow, addresses));
    }
    if hasty || renews {
        let differs = |addresses: &Addresses| Ways::new(function, &flow, |p| addresses.differs(p));
        let ways = addresses.as_ref().map(differs);
        let (ways, body) = (ways.as_ref(), (function, ops));
        let conditions = ways.map_or_else(|| vec![0; flow.blocks.len()], |ways| ways.conditions(&flow));
        if renews && let (Some(ways), Some(addresses)) = (ways, &mut addresses) {
            let found = found::find(body, Memory::All, &accesses, &flow, &conditions, Some(addresses));
            yielding.extend(beside::stores(body, &flow, ways, (Memory::All, &found), addresses));
            yielding.extend(filled::places(body, &flow, &found, addresses));
        }
        if hasty {
            let found = found::find(body, Memory::Block, &accesses, &flow, &conditions, addresses.as_mut());
            if let (Some(ways), Some(addresses)) = (ways, &mut addresses) {
                let waiting = ahead::places(function, ops, &flow, ways, &found, addresses);
                yielding.extend(waiting.into_iter().map(|at| (at, None)));
                yielding.extend(beside::stores(body, &flow, ways, (Memory::Block, &found), addresses));
                yielding.extend(filled::places(body, &flow, &found, addresses));
            }
            yielding.extend(hasty::stores(function, ops, &flow, &found, addresses.as_ref()));
        }
    }
    let mut letting = Vec::new();
    if of_grid && let Some(addresses) = &mut addresses {
        let places = grid::places(function, ops, &flow, addresses);
        letting.extend(places.into_iter().map(|at| (at, synthetic::GRID_YIELD, None)));
    }
    if raises && let Some(addresses) = &mut addresses {
        let places = raised::places(function, ops, &flow, addresses);
        letting.extend(places.into_iter().map(|(at, guard)| (at, synthetic::GRID_TURN, guard)));
    }
    Places { converging, yielding, letting }
}

/// Puts waiting in front of statements.
fn wait_before(function: &mut Function, Places { converging, yielding, letting }: &Places) {
    let body = std::mem::take(&mut function.body);
    for (index, statement) in body.into_iter().enumerate() {
        let line = match &statement {
            Statement::Instruction(instruction) => instruction.line,
            Statement::Label(_) => 0,
        };
        if converging.contains(&index) {
            function.body.push(Statement::Instruction(waiting(synthetic::CONVERGE, line)));
        }
        if let Some(&(_, guard)) = yielding.iter().find(|(at, _)| *at == index) {
            let first = waiting(synthetic::YIELD, line);
            function.body.push(Statement::Instruction(Instruction { guard, ..first }));
        }
        for &(_, form, guard) in letting.iter().filter(|(at, ..)| *at == index) {
            let first = waiting(form, line);
            function.body.push(Statement::Instruction(Instruction { guard, ..first }));
        }
        function.body.push(statement);
    }
}

fn waiting(form: u32, line: u32) -> Instruction {
    Instruction { form: FormId(form), line, guard: None, operands: Vec::new() }
}
