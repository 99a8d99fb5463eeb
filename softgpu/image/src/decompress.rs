//! Bounded decompression: an image may claim anything about its size.

use std::io::Read;

/// The most bytes that one entry may become.
const MAX_PLAIN: u64 = 1 << 30;

/// No LZ4 byte stands for more than this many.
const MAX_LZ4_RATIO: u64 = 256;

/// Decompresses an LZ4 block of known plain size.
pub fn lz4(bytes: &[u8], size: u64) -> Result<Vec<u8>, String> {
    if size > MAX_PLAIN || size > (bytes.len() as u64).saturating_mul(MAX_LZ4_RATIO) {
        return Err(format!("{} bytes cannot hold {size}", bytes.len()));
    }
    let plain = lz4_flex::block::decompress(bytes, size as usize).map_err(|error| error.to_string())?;
    exactly(plain, size)
}

/// Decompresses Zstandard frames of known plain size.
pub fn zstd(bytes: &[u8], size: u64) -> Result<Vec<u8>, String> {
    if size > MAX_PLAIN {
        return Err(format!("{size} bytes are too many"));
    }
    let decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(|error| error.to_string())?;
    // The buffer grows with what really comes out, not with what the image claims.
    let mut plain = Vec::new();
    decoder.take(size + 1).read_to_end(&mut plain).map_err(|error| error.to_string())?;
    exactly(plain, size)
}

fn exactly(plain: Vec<u8>, size: u64) -> Result<Vec<u8>, String> {
    if plain.len() as u64 == size {
        Ok(plain)
    } else {
        Err(format!("it holds {} bytes or more instead of {size}", plain.len()))
    }
}
