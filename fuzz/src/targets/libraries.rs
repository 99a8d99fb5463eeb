//! What clients ask mathematical libraries for.

use std::sync::OnceLock;

use crate::input::Material;
use crate::random::Random;
use rgpu_libraries::Operation;

/// Reads an operation (its number, and its arguments) and makes a plan of it, which nobody carries out: what it computes with is
/// checked against the client's memory before.
pub(super) fn operations(bytes: &[u8]) -> Result<bool, String> {
    let Some((number, params)) = bytes.split_first_chunk::<4>() else { return Ok(false) };
    let number = u32::from_le_bytes(*number);
    let read = Operation::read(number, params);
    let plan = rgpu_softlib::LIBRARIES.plan(number, params);
    let operation = match (read, &plan) {
        (Ok(operation), _) => operation,
        (Err(error), Ok(_)) => return Err(format!("{error}, but there is a plan")),
        (Err(_), Err(_)) => return Ok(false),
    };
    let (again, written) = operation.written();
    // Where there is no value, its bytes mean nothing, and are zeros when they are written: what was read must come back.
    let comes_back = || {
        let read = Operation::read(again, &written);
        written.len() == params.len()
            && read.is_ok_and(|read| format!("{read:?}") == format!("{operation:?}"))
    };
    if again != number || (written != params && !comes_back()) {
        return Err(format!("{operation:?} does not come back"));
    }
    let Ok(plan) = plan else { return Ok(false) };
    for operand in &plan.operands {
        if operand.addr.checked_add(operand.bytes).is_none() {
            return Err(format!("{operation:?} uses {operand:?}, which is longer than the address space"));
        }
    }
    for threads in [1, 2, 64] {
        let pieces = plan.computation.pieces(threads);
        if pieces > 1 << 20 {
            return Err(format!("{operation:?} is cut into {pieces} pieces for {threads} threads"));
        }
    }
    Ok(true)
}

fn written(number: u32, params: &[u8]) -> Vec<u8> {
    [&number.to_le_bytes(), params].concat()
}

/// An operation of each number whose arguments are zeros, as far as such arguments can be read.
pub(super) fn examples() -> Material {
    let zeros = [0u8; 1024];
    let examples = Operation::NAMES.iter().filter_map(|(number, _)| {
        let length = (0..zeros.len()).find(|length| Operation::read(*number, &zeros[..*length]).is_ok())?;
        Some(written(*number, &zeros[..length]))
    });
    Material { examples: examples.collect(), ..Material::default() }
}

/// An operation with numbers that are small or awkward.
pub(super) fn some_operation(random: &mut Random, into: &mut Vec<u8>) {
    static EXAMPLES: OnceLock<Material> = OnceLock::new();
    let material = EXAMPLES.get_or_init(examples);
    let Some(example) = random.pick(&material.examples) else { return };
    into.extend_from_slice(example);
    for _ in 0..random.below(12) {
        let at = 4 + random.below(into.len().saturating_sub(12).max(1));
        let at = at - at % 4;
        let number = if random.one_in(3) { random.awkward() } else { random.below(40) as u64 };
        let end = (at + 8).min(into.len());
        let bytes = number.to_le_bytes();
        into[at..end].copy_from_slice(&bytes[..end - at]);
    }
}
