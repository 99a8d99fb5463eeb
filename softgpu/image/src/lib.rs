//! Images of GPU code: PTX text, ELF cubins, and fat binaries that hold any number of both.
//!
//! ```text
//! container = header (16 bytes) entry…          containers may follow one another
//! header    = u32 0xBA55ED50, u16 version, u16 header size, u64 bytes of all entries
//! entry     = header (64 bytes or more), payload
//! ```
//!
//! The client calls [`for_device`] to send no more than a device can use; the software GPU calls
//! [`ptx_for`] to choose what it compiles. Images come from programs: nothing in them is believed.

mod container;
mod decompress;
mod link;
pub mod ptx;

use rgpu_device::{Code, Error, Result};

pub use container::{Entry, EntryKind, entries};
pub use link::link;

/// What programs find of CUDA's device runtime, which NVIDIA's library has as machine code: PTX to be linked with theirs.
pub const DEVICE_RUNTIME: &str = include_str!("device_runtime.ptx");

/// Magic number of a fat binary container.
const CONTAINER_MAGIC: u32 = 0xBA55_ED50;

/// The newest major version of PTX that is read.
const MAX_PTX_MAJOR: u32 = 9;

/// What an image is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// A fat binary's container.
    Container,
    /// An ELF file with machine code for one architecture.
    Cubin,
    /// PTX text.
    Ptx,
}

/// What an image is, by its first bytes (16 are enough, but for PTX text that begins with a comment).
pub fn sniff(bytes: &[u8]) -> Option<ImageKind> {
    if read_u32(bytes, 0) == Some(CONTAINER_MAGIC) {
        return Some(ImageKind::Container);
    }
    if bytes.starts_with(b"\x7fELF") {
        return Some(ImageKind::Cubin);
    }
    let mut rest = bytes;
    loop {
        rest = rest.trim_ascii_start();
        if rest.starts_with(b".version") {
            return Some(ImageKind::Ptx);
        }
        if rest.starts_with(b"//") || rest.starts_with(b"#") {
            let end = rest.iter().position(|b| *b == b'\n')?;
            rest = &rest[end..];
        } else if rest.starts_with(b"/*") {
            let end = rest.windows(2).position(|w| w == b"*/")?;
            rest = &rest[end + 2..];
        } else {
            return None;
        }
    }
}

/// How long a container is, by its first 16 bytes. `None` if it is no container.
///
/// Whoever has only a pointer to an image reads 16 bytes and then knows how many more there are.
pub fn size_of_container(header: &[u8]) -> Option<usize> {
    if read_u32(header, 0)? != CONTAINER_MAGIC {
        return None;
    }
    let size = u64::from(read_u16(header, 6)?).checked_add(read_u64(header, 8)?)?;
    usize::try_from(size).ok().filter(|s| *s <= isize::MAX as usize)
}

/// How long an ELF cubin is, by its first 64 bytes: up to the end of the section headers or the program
/// headers, which stand last. `None` if it is no 64-bit ELF file.
pub fn size_of_cubin(header: &[u8]) -> Option<usize> {
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let table = |offset: usize, entry: usize| {
        let bytes = u64::from(read_u16(header, entry)?) * u64::from(read_u16(header, entry + 2)?);
        read_u64(header, offset)?.checked_add(bytes)
    };
    let size = table(0x20, 0x36)?.max(table(0x28, 0x3A)?);
    usize::try_from(size).ok().filter(|s| *s <= isize::MAX as usize)
}

/// What a device takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepts {
    /// Whether PTX text can be used.
    pub ptx: bool,
    /// Whether machine code can be used.
    pub cubin: bool,
    /// Its compute capability (80 for 8.0), if only what suits it is to be kept.
    pub capability: Option<u32>,
}

/// The part of an image that a device can use: entries of other kinds, and for other architectures, are
/// left out of a container. Other images are returned as they are.
///
/// # Errors
/// [`Code::NoBinaryForGpu`] if nothing is left, [`Code::InvalidImage`] if it is no image.
pub fn for_device(bytes: &[u8], accepts: Accepts) -> Result<Vec<u8>> {
    match sniff(bytes) {
        None => Err(not_an_image()),
        Some(ImageKind::Ptx) if !accepts.ptx => Err(nothing_usable("PTX")),
        Some(ImageKind::Cubin) if !accepts.cubin => Err(nothing_usable(&describe_cubin(bytes))),
        Some(ImageKind::Ptx | ImageKind::Cubin) => Ok(bytes.to_vec()),
        Some(ImageKind::Container) => {
            let all = entries(bytes)?;
            let mut kept: Vec<&Entry<'_>> = all
                .iter()
                .filter(|entry| match entry.kind {
                    // What compiles PTX without NVIDIA's compiler takes newer PTX, too.
                    EntryKind::Ptx if !accepts.cubin => accepts.ptx,
                    EntryKind::Ptx => accepts.ptx && accepts.capability.is_none_or(|c| entry.suits(c)),
                    EntryKind::Cubin => accepts.cubin && accepts.capability.is_none_or(|c| entry.suits(c)),
                    EntryKind::Other(_) => false,
                })
                .collect();
            if let Some(capability) = accepts.capability {
                // Of several PTX texts only the best would ever be used.
                let best = best_text(kept.iter().copied(), capability);
                kept.retain(|e| e.kind != EntryKind::Ptx || best.is_some_and(|b| std::ptr::eq(*e, b)));
            }
            if kept.is_empty() {
                return Err(nothing_usable(&describe_entries(&all)));
            }
            let size: usize = kept.iter().map(|e| e.bytes.len()).sum();
            let mut out = Vec::with_capacity(16 + size);
            out.extend_from_slice(&CONTAINER_MAGIC.to_le_bytes());
            out.extend_from_slice(&1u16.to_le_bytes());
            out.extend_from_slice(&16u16.to_le_bytes());
            out.extend_from_slice(&(size as u64).to_le_bytes());
            kept.iter().for_each(|e| out.extend_from_slice(e.bytes));
            Ok(out)
        }
    }
}

/// The entry with the PTX text that suits a device best: the one for the newest architecture that is not newer than the device; where all
/// are newer, the oldest, and what is for one architecture alone last.
fn best_text<'e, 'a: 'e>(
    entries: impl Iterator<Item = &'e Entry<'a>> + Clone,
    capability: u32,
) -> Option<&'e Entry<'a>> {
    let texts = entries.filter(|entry| entry.kind == EntryKind::Ptx);
    let suits = texts.clone().filter(|entry| entry.suits(capability)).max_by_key(|entry| entry.rank());
    suits.or_else(|| texts.min_by_key(|entry| (entry.is_specific(), entry.rank())))
}

/// The PTX text in an image that suits a device of this compute capability best: the one for the newest architecture that is not
/// newer than the device. Where all are newer it is the oldest: a software GPU compiles it as it does any other, and refuses the kernels
/// that have instructions which it lacks.
///
/// # Errors
/// [`Code::NoBinaryForGpu`] if there is none, naming what is there instead; [`Code::InvalidImage`] if it
/// is no image; [`Code::UnsupportedPtxVersion`] if the text is of a newer version of PTX.
pub fn ptx_for(bytes: &[u8], capability: u32) -> Result<String> {
    let text = match sniff(bytes) {
        None => return Err(not_an_image()),
        Some(ImageKind::Ptx) => text(bytes)?,
        Some(ImageKind::Cubin) => return Err(nothing_usable(&describe_cubin(bytes))),
        Some(ImageKind::Container) => {
            let all = entries(bytes)?;
            let Some(best) = best_text(all.iter(), capability) else {
                return Err(nothing_usable(&describe_entries(&all)));
            };
            text(&best.payload()?)?
        }
    };
    check_version(&text)?;
    Ok(text)
}

/// Whether [`ptx_for`]'s text and the machine code that a device of this compute capability runs were made of the same source. Programs
/// are often compiled for several architectures, of which the newest one alone has its PTX in the image; what a kernel prescribes about
/// its blocks may differ between them. True where there is no such machine code.
pub fn is_text_of_code(bytes: &[u8], capability: u32) -> bool {
    if sniff(bytes) != Some(ImageKind::Container) {
        return true;
    }
    let Ok(all) = entries(bytes) else { return false };
    let code = all.iter().filter(|e| e.kind == EntryKind::Cubin && e.suits(capability));
    match (code.max_by_key(|e| e.rank()), best_text(all.iter(), capability)) {
        (Some(code), Some(text)) => code.is_of_architecture(text),
        _ => true,
    }
}

/// Refuses a text of a version that nobody here has read about.
fn check_version(text: &str) -> Result<()> {
    let rest = text.find(".version").map_or("", |at| &text[at + ".version".len()..]);
    let version =
        rest.split(|c: char| c.is_ascii_whitespace() || c == ',').find(|word| !word.is_empty()).unwrap_or("");
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major > MAX_PTX_MAJOR) {
        return Err(Error::new(
            Code::UnsupportedPtxVersion,
            format!(
                "The module is PTX {version}; the newest that the software GPU reads is {MAX_PTX_MAJOR}.x"
            ),
        ));
    }
    Ok(())
}

/// PTX bytes as text, without the NULs that end it.
fn text(bytes: &[u8]) -> Result<String> {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    // Comments and strings may be in any encoding; nothing else is outside ASCII.
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

fn not_an_image() -> Error {
    Error::new(Code::InvalidImage, "The image is neither a fat binary nor a cubin nor PTX text")
}

fn nothing_usable(inside: &str) -> Error {
    Error::new(
        Code::NoBinaryForGpu,
        format!(
            "The image has nothing that this device can run; it holds {inside}. Compile it with PTX, such as -gencode arch=compute_80,code=compute_80"
        ),
    )
}

fn describe_entries(entries: &[Entry<'_>]) -> String {
    let mut names: Vec<String> = entries.iter().map(Entry::describe).collect();
    names.sort();
    names.dedup();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// A cubin's architecture stands in its ELF flags: bits 0–7 in the old layout, 8–15 in the new one.
fn describe_cubin(bytes: &[u8]) -> String {
    let flags = read_u32(bytes, 0x30).unwrap_or(0);
    let abi = bytes.get(8).copied().unwrap_or(0);
    let architecture = if abi >= 8 { flags >> 8 & 0xFF } else { flags & 0xFF };
    format!("machine code (a cubin) for sm_{architecture}")
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests;
