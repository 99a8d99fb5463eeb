//! The virtual-memory calls.

use rgpu_device::Ordinal;

use super::forward;
use crate::core::error::Result;
use crate::core::process::Core;
use crate::core::registry::Raw;
use crate::core::virtual_memory::Access;

forward! { virtual_memory:
    /// `cuMemAddressReserve`: addresses with nothing behind them; at `hint` where that is possible.
    fn address_reserve(&self, ordinal: Ordinal, size: u64, alignment: u64, hint: u64) -> Result<u64>;
    /// `cuMemAddressFree`: a whole reservation, with nothing mapped in it.
    fn address_free(&self, addr: u64, size: u64) -> Result<()>;
    /// `cuMemCreate`: memory without an address.
    fn physical_create(&self, ordinal: Ordinal, size: u64) -> Result<Raw>;
    /// The device and size of memory made by [`Core::physical_create`].
    fn physical_info(&self, raw: Raw) -> Result<(Ordinal, u64)>;
    /// `cuMemRelease`: the memory goes when it is mapped no more.
    fn physical_release(&self, raw: Raw) -> Result<()>;
    /// `cuMemRetainAllocationHandle`: one more handle of what is mapped at an address.
    fn physical_retain(&self, addr: u64) -> Result<Raw>;
    /// `cuMemMap`: the memory gets an address, and nobody has access to it yet.
    fn map(&self, addr: u64, size: u64, offset: u64, raw: Raw) -> Result<()>;
    /// `cuMemUnmap`: whole mappings.
    fn unmap(&self, addr: u64, size: u64) -> Result<()>;
    /// `cuMemSetAccess`, for one device.
    fn set_access(&self, addr: u64, size: u64, who: Ordinal, access: Access) -> Result<()>;
    /// `cuMemGetAccess`.
    fn access(&self, addr: u64, who: Ordinal) -> Result<Access>;
}
