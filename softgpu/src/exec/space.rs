//! The arena, as helpers read and write it for the kernel that called them: each access is checked to lie there. Where nothing is
//! mapped, it faults and ends the kernel as the kernel's own would; so such a helper owns nothing and can be abandoned anywhere.

use rgpu_device::Range;

use crate::abi::TRAP_ADDRESS;

/// A trap's number.
pub(super) type Trap = u32;

/// The memory that kernels may touch, as helpers touch it for them.
#[derive(Clone, Copy)]
pub(super) struct Space(pub(super) Range);

#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Unaligned<T>(T);

impl Space {
    /// Checks that so many bytes at an address may be accessed.
    pub(super) fn check(self, addr: u64, bytes: u64) -> Result<u64, Trap> {
        if self.0.contains(addr, bytes) { Ok(addr) } else { Err(TRAP_ADDRESS) }
    }

    /// Reads a number that any bits make one of.
    pub(super) fn get<T: Bits>(self, addr: u64) -> Result<T, Trap> {
        let addr = self.check(addr, size_of::<T>() as u64)?;
        // SAFETY: the address lies in the arena, where a fault ends the kernel and not this process; nothing is asked of its
        // alignment. Others may write there: whatever is read is a value.
        Ok(unsafe { (addr as *const Unaligned<T>).read_volatile() }.0)
    }

    /// Reads several that lie side by side.
    pub(super) fn get_all<T: Bits, const N: usize>(self, addr: u64) -> Result<[T; N], Trap> {
        let addr = self.check(addr, size_of::<[T; N]>() as u64)?;
        // SAFETY: as above, for each of them.
        Ok(std::array::from_fn(|index| unsafe { (addr as *const Unaligned<T>).add(index).read_volatile() }.0))
    }

    /// Writes one.
    pub(super) fn put<T: Bits>(self, addr: u64, value: T) -> Result<(), Trap> {
        let addr = self.check(addr, size_of::<T>() as u64)?;
        // SAFETY: as for reading. Nothing of Rust's lies in the arena.
        unsafe { (addr as *mut Unaligned<T>).write_volatile(Unaligned(value)) };
        Ok(())
    }
}

/// Numbers that any bits make one of.
pub(super) trait Bits: Copy {}
impl Bits for u8 {}
impl Bits for u16 {}
impl Bits for u32 {}
impl Bits for u64 {}
