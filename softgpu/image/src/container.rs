//! The entries of a fat binary.

use std::borrow::Cow;

use rgpu_device::{Code, Error, Result};

use super::decompress::{lz4, zstd};
use super::{CONTAINER_MAGIC, read_u16, read_u32, read_u64};

/// What an entry holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// PTX text.
    Ptx,
    /// An ELF cubin.
    Cubin,
    /// Something else, with its number.
    Other(u16),
}

const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;
/// Only for devices of exactly this architecture (`sm_90a`).
const FLAG_ARCHITECTURE: u64 = 0x10_0000;
/// Only for devices of this architecture's family (`sm_100f`).
const FLAG_FAMILY: u64 = 0x20_0000;

/// An entry of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What it holds.
    pub kind: EntryKind,
    /// The architecture, 80 for `sm_80`.
    pub architecture: u32,
    /// The version of PTX, major and minor.
    pub version: (u16, u16),
    /// The entry's flags, among them how its payload is compressed.
    pub flags: u64,
    /// Header and payload.
    pub bytes: &'a [u8],
    header_size: usize,
}

impl<'a> Entry<'a> {
    /// Whether a device of this compute capability can use it.
    pub fn suits(&self, capability: u32) -> bool {
        let architecture = self.architecture;
        if self.flags & FLAG_ARCHITECTURE != 0 {
            return architecture == capability;
        }
        let same_family = architecture / 10 == capability / 10;
        if self.flags & FLAG_FAMILY != 0 || self.kind == EntryKind::Cubin {
            return architecture <= capability && same_family;
        }
        architecture <= capability
    }

    /// Whether it is for one architecture, or one family, alone.
    pub(super) fn is_specific(&self) -> bool {
        self.specific() != 0
    }

    /// Which of the flags it has that say so.
    fn specific(&self) -> u64 {
        self.flags & (FLAG_ARCHITECTURE | FLAG_FAMILY)
    }

    /// Whether it is for the same architecture as another entry, and as specific to it.
    pub(super) fn is_of_architecture(&self, other: &Entry<'_>) -> bool {
        (self.architecture, self.specific()) == (other.architecture, other.specific())
    }

    /// Which of several that suit is the best: the highest.
    pub(super) fn rank(&self) -> (u32, u64, (u16, u16)) {
        (self.architecture, self.specific(), self.version)
    }

    /// In words.
    pub(super) fn describe(&self) -> String {
        let suffix = match self.specific() {
            0 => "",
            FLAG_FAMILY => "f",
            _ => "a",
        };
        let architecture = self.architecture;
        match self.kind {
            EntryKind::Ptx => format!("PTX for sm_{architecture}{suffix}"),
            EntryKind::Cubin => format!("machine code for sm_{architecture}{suffix}"),
            EntryKind::Other(kind) => format!("an entry of unknown kind {kind}"),
        }
    }

    /// The payload, decompressed.
    ///
    /// # Errors
    /// [`Code::InvalidImage`] if it cannot be decompressed.
    pub fn payload(&self) -> Result<Cow<'a, [u8]>> {
        let payload = self.bytes.get(self.header_size..).unwrap_or(&[]);
        let method = self.flags & (FLAG_LZ4 | FLAG_ZSTD);
        if method == 0 {
            return Ok(Cow::Borrowed(payload));
        }
        let (compressed, size) = match (read_u32(self.bytes, 16), read_u64(self.bytes, 56)) {
            (Some(compressed), Some(size)) => (compressed as usize, size),
            _ => return Err(invalid("an entry is too short")),
        };
        let Some(payload) = payload.get(..compressed) else {
            return Err(invalid("an entry's compressed size is larger than the entry"));
        };
        let plain = match method {
            FLAG_LZ4 => lz4(payload, size),
            FLAG_ZSTD => zstd(payload, size),
            _ => Err("it is said to be compressed in two ways".to_owned()),
        };
        plain.map(Cow::Owned).map_err(|reason| invalid(&format!("{} is damaged: {reason}", self.describe())))
    }
}

/// All entries of a container, and of those that follow it directly.
///
/// # Errors
/// [`Code::InvalidImage`] if sizes in it don't fit.
pub fn entries(bytes: &[u8]) -> Result<Vec<Entry<'_>>> {
    let mut all = Vec::new();
    let mut rest = bytes;
    let mut first = true;
    while first || read_u32(rest, 0) == Some(CONTAINER_MAGIC) {
        first = false;
        let (Some(CONTAINER_MAGIC), Some(header), Some(size)) =
            (read_u32(rest, 0), read_u16(rest, 6), read_u64(rest, 8))
        else {
            return Err(invalid("it does not begin with a container's header"));
        };
        let header = header as usize;
        let end = usize::try_from(size).ok().and_then(|size| size.checked_add(header));
        let (Some(end), true) = (end, header >= 16) else {
            return Err(invalid("the container's header is damaged"));
        };
        let Some(mut inside) = rest.get(header..end) else {
            return Err(invalid(&format!(
                "the container is {end} bytes long, of which {} are there",
                rest.len()
            )));
        };
        while !inside.is_empty() {
            let entry = entry(inside)?;
            inside = &inside[entry.bytes.len()..];
            all.push(entry);
        }
        rest = &rest[end..];
    }
    Ok(all)
}

fn entry(bytes: &[u8]) -> Result<Entry<'_>> {
    let fields = || {
        Some((
            read_u16(bytes, 0)?,
            read_u32(bytes, 4)? as usize,
            read_u64(bytes, 8)?,
            read_u16(bytes, 24)?,
            read_u16(bytes, 26)?,
            read_u32(bytes, 28)?,
            read_u64(bytes, 40)?,
        ))
    };
    let Some((kind, header_size, size, minor, major, architecture, flags)) = fields() else {
        return Err(invalid("an entry's header is cut off"));
    };
    let end = usize::try_from(size).ok().and_then(|size| size.checked_add(header_size));
    let (Some(end), true) = (end.filter(|end| *end <= bytes.len()), header_size >= 64) else {
        return Err(invalid("an entry is larger than its container"));
    };
    let kind = match kind {
        1 => EntryKind::Ptx,
        2 => EntryKind::Cubin,
        other => EntryKind::Other(other),
    };
    Ok(Entry { kind, architecture, version: (major, minor), flags, bytes: &bytes[..end], header_size })
}

fn invalid(reason: &str) -> Error {
    Error::new(Code::InvalidImage, format!("The fat binary is not valid: {reason}"))
}
