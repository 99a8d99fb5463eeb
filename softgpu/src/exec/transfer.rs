//! Copies and fills, carried out in stream order.

use rgpu_device::{CopySink, Error, HostData, Region, RegionCursor, Result};

use super::mirror::Mirror;

/// Bytes that go through a buffer at once, where a mirrored side needs one.
const CHUNK: usize = 256 << 10;
/// Bytes that a sink gets at once.
const SINK_CHUNK: u64 = 4 << 20;
/// Rows that a sink gets at once.
const SINK_ROWS: usize = 256;

/// A region of device memory that was found to be valid.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheckedRegion {
    /// The device memory that is read or written.
    pub region: Region,
    /// Whether they are mirrored memory, which must not be touched directly.
    pub mirrored: bool,
}

/// A copy or fill.
pub(super) enum Transfer {
    /// Fills with a pattern of 1, 2 or 4 bytes.
    Fill {
        /// What is filled.
        to: CheckedRegion,
        /// The pattern.
        value: u32,
        /// Its size.
        element: u32,
    },
    /// From the host.
    In {
        /// Where to.
        to: CheckedRegion,
        /// The bytes' address in the program.
        host_addr: u64,
        /// The bytes.
        data: HostData,
    },
    /// To the host.
    Out {
        /// Where from.
        from: CheckedRegion,
        /// The bytes' address in the program.
        host_addr: u64,
        /// Who gets them.
        sink: Box<dyn CopySink>,
    },
    /// Between places on devices.
    Across {
        /// Where to.
        to: CheckedRegion,
        /// Where from.
        from: CheckedRegion,
    },
}

impl Transfer {
    /// How many bytes it moves.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Fill { to, .. } | Self::In { to, .. } | Self::Across { to, .. } => {
                to.region.bytes().unwrap_or(u64::MAX)
            }
            Self::Out { from, .. } => from.region.bytes().unwrap_or(u64::MAX),
        }
    }

    /// Whether it may have to wait for the program's side.
    pub(super) fn may_fetch(&self) -> bool {
        match self {
            Self::Fill { to, .. } | Self::In { to, .. } => to.mirrored,
            Self::Out { from, .. } => from.mirrored,
            Self::Across { to, from } => to.mirrored || from.mirrored,
        }
    }

    /// Drops it; a sink is told why.
    pub(super) fn cancel(self, error: Error) {
        if let Self::Out { sink, .. } = self {
            sink.done(Err(error));
        }
    }

    /// Carries it out. A sink is handed back, to be told the outcome once the stream has gone on: who hears
    /// of it shall find the copy over.
    ///
    /// # Safety
    /// The places must be mapped (they were checked, and memory outlives the work that was enqueued
    /// before its release), and borrowed host memory valid.
    pub(super) unsafe fn execute(self, mirror: &Mirror) -> (Result<()>, Option<Box<dyn CopySink>>) {
        let result = match self {
            Self::Fill { to, value, element } => {
                // SAFETY: as the caller promises.
                unsafe { fill(mirror, to, value, element) }
            }
            Self::In { to, host_addr, data } => {
                let region = match data {
                    HostData::Owned(mut bytes) => {
                        if !mirror.is_empty() {
                            mirror.overlay(host_addr, &mut bytes);
                        }
                        let from = Region::linear(bytes.as_ptr() as u64, bytes.len() as u64);
                        // SAFETY: as the caller promises; `bytes` lives until the end of the copy.
                        let result =
                            unsafe { copy(mirror, to, CheckedRegion { region: from, mirrored: false }) };
                        return (result, None);
                    }
                    HostData::Borrowed(source) => source.region(),
                };
                // SAFETY: as the caller promises.
                unsafe { copy(mirror, to, CheckedRegion { region, mirrored: false }) }
            }
            Self::Out { from, host_addr, mut sink } => {
                // SAFETY: as the caller promises.
                let result = unsafe { send(mirror, from, host_addr, &mut *sink) };
                return (result, Some(sink));
            }
            // SAFETY: as the caller promises.
            Self::Across { to, from } => unsafe { copy(mirror, to, from) },
        };
        (result, None)
    }
}

/// Copies equal numbers of bytes between two places, each of them mirrored, device or host memory.
unsafe fn copy(mirror: &Mirror, to: CheckedRegion, from: CheckedRegion) -> Result<()> {
    let mut source = RegionCursor::new(from.region);
    let mut target = RegionCursor::new(to.region);
    let mut buffer = Vec::new();
    while let (Some((src, src_run)), Some((dst, dst_run))) = (source.run(), target.run()) {
        let mut run = src_run.min(dst_run);
        if to.mirrored || from.mirrored {
            run = run.min(CHUNK as u64);
            buffer.resize(run as usize, 0);
            if from.mirrored {
                mirror.read(src, &mut buffer)?;
            } else {
                // SAFETY: valid as the caller promises; the buffer is our own.
                unsafe { std::ptr::copy(src as *const u8, buffer.as_mut_ptr(), run as usize) };
            }
            if to.mirrored {
                mirror.write(dst, &buffer)?;
            } else {
                // SAFETY: likewise.
                unsafe { std::ptr::copy(buffer.as_ptr(), dst as *mut u8, run as usize) };
            }
        } else {
            // SAFETY: both valid as the caller promises, and they may overlap.
            unsafe { std::ptr::copy(src as *const u8, dst as *mut u8, run as usize) };
        }
        source.advance(run);
        target.advance(run);
    }
    Ok(())
}

unsafe fn fill(mirror: &Mirror, to: CheckedRegion, value: u32, element: u32) -> Result<()> {
    let pattern = match element {
        1 => u32::from(value as u8) * 0x0101_0101,
        2 => u32::from(value as u16) * 0x0001_0001,
        _ => value,
    };
    let bytes = pattern.to_le_bytes();
    let uniform = bytes.iter().all(|&b| b == bytes[0]);
    let mut target = RegionCursor::new(to.region);
    let mut buffer = Vec::new();
    while let Some((dst, mut run)) = target.run() {
        if to.mirrored {
            run = run.min(CHUNK as u64);
            if buffer.len() < run as usize {
                buffer = bytes.iter().copied().cycle().take((run as usize).next_multiple_of(4)).collect();
            }
            mirror.write(dst, &buffer[..run as usize])?;
        } else if uniform {
            // SAFETY: valid as the caller promises.
            unsafe { std::ptr::write_bytes(dst as *mut u8, bytes[0], run as usize) };
        } else {
            let words = (run / 4) as usize;
            // SAFETY: valid as the caller promises; unaligned places are written as such.
            unsafe {
                let at = dst as *mut u32;
                for i in 0..words {
                    at.add(i).write_unaligned(pattern);
                }
                std::ptr::copy(bytes.as_ptr(), at.add(words).cast(), (run % 4) as usize);
            }
        }
        target.advance(run);
    }
    Ok(())
}

unsafe fn send(mirror: &Mirror, from: CheckedRegion, host_addr: u64, sink: &mut dyn CopySink) -> Result<()> {
    let mut source = RegionCursor::new(from.region);
    let follows = !mirror.is_empty();
    let mut sent = 0;
    let mut follow = |bytes: &[u8]| {
        if follows {
            mirror.follow(host_addr.wrapping_add(sent), bytes);
        }
        sent += bytes.len() as u64;
    };
    if from.mirrored {
        let mut buffer = vec![0; CHUNK];
        while let Some((src, run)) = source.run() {
            let run = run.min(CHUNK as u64);
            let part = &mut buffer[..run as usize];
            mirror.read(src, part)?;
            sink.chunk(&[part]);
            follow(part);
            source.advance(run);
        }
    } else {
        let mut pieces: Vec<&[u8]> = Vec::new();
        let mut bytes = 0;
        loop {
            let run = source.run();
            if let Some((src, run)) = run {
                let run = run.min(SINK_CHUNK);
                // SAFETY: valid as the caller promises. Kernels of other streams may write it meanwhile;
                // then the program has a race, and gets one or the other byte.
                pieces.push(unsafe { std::slice::from_raw_parts(src as *const u8, run as usize) });
                bytes += run;
                source.advance(run);
            }
            if (run.is_none() || bytes >= SINK_CHUNK || pieces.len() >= SINK_ROWS) && !pieces.is_empty() {
                sink.chunk(&pieces);
                pieces.iter().for_each(|p| follow(p));
                pieces.clear();
                bytes = 0;
            }
            if run.is_none() {
                break;
            }
        }
    }
    Ok(())
}
