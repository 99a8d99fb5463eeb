//! How devices lie to each other, and to the processors of this machine.

use std::ffi::c_uint;

use super::handles::index;
use super::results::Return;
use super::types::Device;
use super::{Out, observer};

/// `NVML_TOPOLOGY_INTERNAL`: on one board.
const INTERNAL: u32 = 0;
/// `nvmlGpuP2PStatus_t`.
const P2P_OK: u32 = 0;
const P2P_NOT_SUPPORTED: u32 = 5;
const P2P_UNKNOWN: u32 = 6;

nvml! {
    /// `nvmlDeviceGetTopologyCommonAncestor`: only a device and itself are known to be close.
    fn nvmlDeviceGetTopologyCommonAncestor(first: Device, second: Device, level: Out<c_uint>) {
        if index(first)? != index(second)? {
            return Err(Return::NOT_SUPPORTED);
        }
        level.set(INTERNAL)
    }
    /// `nvmlDeviceOnSameBoard`.
    fn nvmlDeviceOnSameBoard(first: Device, second: Device, same: Out<i32>) {
        if index(first)? != index(second)? {
            return Err(Return::NOT_SUPPORTED);
        }
        same.set(1)
    }
    /// `nvmlDeviceGetP2PStatus`: software GPUs read and write each other's memory, and no more; of others nothing
    /// is known here.
    fn nvmlDeviceGetP2PStatus(first: Device, second: Device, kind: c_uint, status: Out<c_uint>) {
        let (first, second) = (index(first)?, index(second)?);
        if kind > 5 || first == second {
            return Err(Return::INVALID_ARGUMENT);
        }
        let info = observer::info(first)?;
        let software = info.accepts_ptx && !info.accepts_cubin;
        status.set(match (software, kind) {
            (true, 0 | 1) => P2P_OK,
            (true, _) => P2P_NOT_SUPPORTED,
            (false, _) => P2P_UNKNOWN,
        })
    }
}
