//! The parts of transports that a peer writes numbers into, played through by bytes that a fuzzer makes.

use super::rdma::numbers;
use super::shm::hostile;

/// A ring in shared memory whose other side does what the bytes say.
///
/// # Errors
/// Something was touched that is not the ring's.
pub fn ring(bytes: &[u8]) -> Result<bool, String> {
    hostile::play(bytes)
}

/// The numbers of an RDMA peer.
///
/// # Errors
/// One of them leads out of the ring.
pub fn rdma(bytes: &[u8]) -> Result<bool, String> {
    let ring = super::rdma::RING as u64;
    let (mut arrived, mut read, mut good) = (0, 0, false);
    for piece in bytes.chunks_exact(9) {
        let number = u64::from_le_bytes(std::array::from_fn(|at| piece[1 + at]));
        match piece[0] % 3 {
            0 => {
                let Some(now) = numbers::arrived(arrived, read, number as u32) else { return Ok(good) };
                arrived = now;
            }
            1 => read += number.min(arrived - read),
            _ => {
                let room = numbers::room(arrived, number, number, u64::from(piece[0]));
                if room.is_some_and(|room| room as u64 > ring) {
                    return Err("there is room for more than the ring has".into());
                }
            }
        }
        if arrived < read || arrived - read > ring {
            return Err(format!("{arrived} bytes have arrived and {read} were read"));
        }
        good = true;
    }
    Ok(good)
}
