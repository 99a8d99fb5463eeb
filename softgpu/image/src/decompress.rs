//! Bounded decompression: an image may claim anything about its size.

use std::io::Read;

use ruzstd::decoding::StreamingDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};

/// The most bytes that one entry may become.
const MAX_PLAIN: u64 = 1 << 30;

/// No LZ4 byte stands for more than this many.
const MAX_LZ4_RATIO: u64 = 256;

/// Decompresses an LZ4 block of known plain size.
pub(crate) fn lz4(bytes: &[u8], size: u64) -> Result<Vec<u8>, String> {
    if size > MAX_PLAIN || size > (bytes.len() as u64).saturating_mul(MAX_LZ4_RATIO) {
        return Err(format!("{} bytes cannot hold {size}", bytes.len()));
    }
    let plain = lz4_flex::block::decompress(bytes, size as usize).map_err(|error| error.to_string())?;
    exactly(plain, size)
}

/// Decompresses Zstandard frames, one after another, of known plain size together.
pub(crate) fn zstd(bytes: &[u8], size: u64) -> Result<Vec<u8>, String> {
    if size > MAX_PLAIN {
        return Err(format!("{size} bytes are too many"));
    }
    let mut rest = bytes;
    // The buffer grows with what really comes out, not with what the image claims.
    let mut plain = Vec::new();
    while !rest.is_empty() && plain.len() as u64 <= size {
        match StreamingDecoder::new(&mut rest) {
            Ok(decoder) => {
                let most = size + 1 - plain.len() as u64;
                decoder.take(most).read_to_end(&mut plain).map_err(|error| error.to_string())?;
            }
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length, ..
            })) => {
                rest = rest.get(length as usize..).ok_or("A frame to be skipped is cut off")?;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    exactly(plain, size)
}

fn exactly(plain: Vec<u8>, size: u64) -> Result<Vec<u8>, String> {
    if plain.len() as u64 == size {
        Ok(plain)
    } else {
        Err(format!("it holds {} bytes or more instead of {size}", plain.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_follow_one_another_and_may_be_skipped() {
        let text: Vec<u8> = (0..300_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        let (first, second) = text.split_at(400_001);
        let skipped = [&0x184D_2A53u32.to_le_bytes()[..], &3u32.to_le_bytes(), b"abc"].concat();
        for level in [1, 3, 19] {
            let frame = |part| ::zstd::encode_all(part, level).unwrap();
            let frames = [frame(first), skipped.clone(), frame(second)].concat();
            assert_eq!(zstd(&frames, text.len() as u64).unwrap(), text, "level {level}");
            for wrong in [text.len() as u64 - 1, text.len() as u64 + 1, 400_001, 0] {
                assert!(zstd(&frames, wrong).is_err(), "level {level}, {wrong}");
            }
            assert!(zstd(&frames[..frames.len() - 5], text.len() as u64).is_err());
        }
        assert!(zstd(&skipped[..9], 0).unwrap_err().contains("cut off"));
    }
}
