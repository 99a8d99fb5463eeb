//! How much memory operands take.

use rgpu_device::Result;
use rgpu_libraries::{Matrix, Vector};
use rgpu_softgpu::library::Operand;

use crate::invalid;

/// A matrix of `rows` × `columns` for `count` problems that lie `stride` elements apart, as one operand. What lies between is
/// the operation's, too.
pub(crate) fn matrix(m: &Matrix, rows: u64, columns: u64, count: u64, written: bool) -> Result<Operand> {
    let none = Operand { addr: m.addr, bytes: 0, written };
    if rows == 0 || columns == 0 || count == 0 {
        return Ok(none);
    }
    if m.ld < rows {
        return invalid(format!(
            "A leading dimension of {} is less than the {rows} rows of its matrix",
            m.ld
        ));
    }
    if m.stride < 0 && count > 1 {
        return invalid("A batch with a negative stride");
    }
    let extent = || {
        let last = (columns - 1).checked_mul(m.ld)?.checked_add(rows)?;
        let elements = m.stride.unsigned_abs().checked_mul(count - 1)?.checked_add(last)?;
        elements.checked_mul(m.kind.bytes()).filter(|bytes| *bytes <= i64::MAX as u64)
    };
    match extent() {
        Some(bytes) if m.addr.checked_add(bytes).is_some() => Ok(Operand { bytes, ..none }),
        _ => invalid("A matrix that is longer than the address space"),
    }
}

/// A vector of `n` elements for each of `count` problems, as one operand.
pub(crate) fn vector(v: &Vector, n: u64, count: u64, written: bool) -> Result<Operand> {
    let none = Operand { addr: v.addr, bytes: 0, written };
    if n == 0 || count == 0 {
        return Ok(none);
    }
    if v.stride < 0 && count > 1 {
        return invalid("A batch with a negative stride");
    }
    let extent = || {
        let last = (n - 1).checked_mul(v.inc.unsigned_abs())?.checked_add(1)?;
        let elements = v.stride.unsigned_abs().checked_mul(count - 1)?.checked_add(last)?;
        elements.checked_mul(v.kind.bytes()).filter(|bytes| *bytes <= i64::MAX as u64)
    };
    match extent() {
        Some(bytes) if v.addr.checked_add(bytes).is_some() => Ok(Operand { bytes, ..none }),
        _ => invalid("A vector that is longer than the address space"),
    }
}

/// An array of so many elements of so many bytes.
pub(crate) fn array(addr: u64, count: u64, each: u64, written: bool) -> Result<Operand> {
    match count.checked_mul(each) {
        Some(bytes) if addr.checked_add(bytes).is_some() => Ok(Operand { addr, bytes, written }),
        _ => invalid("An array that is longer than the address space"),
    }
}
