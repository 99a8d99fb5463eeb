//! How elements are combined: the operators of NCCL's, and those that programs make.

use std::ffi::c_void;

use rgpu_collectives::{Element, Factor, Operator, Reduction};

use super::comm::{self, Comm};
use super::status::{Out, Result, invalid, missing, nccl};

/// `ncclNumOps`: where programs' operators begin.
const FIRST: u32 = 5;

/// The type of a number.
pub(super) fn element(number: u32) -> Result<Element> {
    Element::from_number(number).map_or_else(|| invalid(format!("There is no ncclDataType_t {number}")), Ok)
}

fn reducible(number: u32) -> Result<Element> {
    let element = element(number)?;
    if element.can_be_reduced() { Ok(element) } else { missing(&format!("NCCL: reductions of {element:?}")) }
}

/// What a number of the program's says how to combine elements of this type.
pub(super) fn reduction(comm: &Comm, element: u32, operator: u32) -> Result<Reduction> {
    let element = reducible(element)?;
    if let Some(operator) = Operator::from_number(operator) {
        return Ok(Reduction { element, operator, factor: None });
    }
    let made = operator.checked_sub(FIRST).and_then(|at| *comm.state().operators.get(at as usize)?);
    match made {
        Some((of, factor)) if of == element => {
            Ok(Reduction { element, operator: Operator::Sum, factor: Some(factor) })
        }
        Some((of, _)) => invalid(format!("The operator {operator} is for {of:?}, not for {element:?}")),
        None => invalid(format!("There is no ncclRedOp_t {operator} of this communicator")),
    }
}

nccl! {
    fn ncclRedOpCreatePreMulSum(
        out: Out<u32>, scalar: *mut c_void, element: u32, residence: u32, comm: usize,
    ) {
        out.check()?;
        let comm = comm::get(comm)?;
        let element = reducible(element)?;
        if scalar.is_null() {
            return invalid("The factor's pointer is null");
        }
        let factor = match residence {
            0 => Factor::At(scalar as u64),
            1 => {
                let mut value = [0; 8];
                // SAFETY: the program says that an element of this type lies there.
                unsafe { std::ptr::copy_nonoverlapping(scalar.cast(), value.as_mut_ptr(), element.bytes()) };
                Factor::Value(value)
            }
            other => return invalid(format!("There is no ncclScalarResidence_t {other}")),
        };
        let at = comm.change(|state| {
            let free = state.operators.iter().position(Option::is_none);
            let at = free.unwrap_or_else(|| {
                state.operators.push(None);
                state.operators.len() - 1
            });
            state.operators[at] = Some((element, factor));
            at
        });
        out.set(FIRST + at as u32)
    }

    fn ncclRedOpDestroy(operator: u32, comm: usize) {
        let comm = comm::get(comm)?;
        let removed = comm.change(|state| {
            let at = operator.checked_sub(FIRST)? as usize;
            state.operators.get_mut(at)?.take()
        });
        if removed.is_some() { Ok(()) } else { invalid(format!("{operator} is no operator of this communicator")) }
    }
}
