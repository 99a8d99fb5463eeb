//! Factors, of the host or in device memory.

use rgpu_device::Result;
use rgpu_libraries::{DataType, Scalar};
use rgpu_softgpu::library::Operand;

use crate::cells::parts_at;
use crate::memory;
use crate::number::Number;

/// A factor's operand; nothing where it is the host's.
pub(crate) fn operand(scalar: &Scalar, kind: DataType) -> Result<Operand> {
    memory::array(scalar.addr, u64::from(scalar.addr != 0), kind.bytes(), false)
}

/// The factor, now.
///
/// # Safety
/// `at` is the operand that [`operand`] described for the same type.
pub(crate) unsafe fn read<T: Number>(scalar: &Scalar, kind: DataType, at: *const u8) -> T {
    if scalar.addr == 0 {
        return T::from_parts(scalar.value);
    }
    // SAFETY: the caller's promise.
    T::from_parts(unsafe { parts_at(at, kind) })
}
