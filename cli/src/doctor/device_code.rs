//! What device code a program carries, and whether the software GPU can use it.

use rgpu_image::{Entry, EntryKind, entries};

use super::Finding;

/// How a container of device code begins.
const MAGIC: [u8; 4] = 0xBA55_ED50_u32.to_le_bytes();
/// How much the section's alignment lets lie between containers.
const ALIGNMENT: usize = 8;
/// The compute capability of the software GPU, unless told otherwise.
const CAPABILITY: u32 = 80;

/// Looks at the contents of an object's sections of device code: what it was linked to, and what it was linked from
/// (`nvcc -rdc=true`), which takes the place of the former where that cannot be used.
pub(super) fn check(name: &str, section: &[u8], parts: &[u8]) -> Option<Finding> {
    let (mut whole, parts) = (containers(section), containers(parts));
    if whole.is_empty() && parts.is_empty() {
        return None;
    }
    let useless = |entries: &Vec<Entry<'_>>| has_kernels(entries) && !entries.iter().any(suits);
    if !parts.is_empty()
        && let Some(linked) = whole.iter().position(useless)
    {
        whole.remove(linked);
    }
    whole.extend(parts.into_iter().filter(|part| has_kernels(part)));
    let (useless, useful): (Vec<_>, Vec<_>) = whole.into_iter().partition(useless);
    let all = useless.len() + useful.len();
    if useless.is_empty() {
        let summary = summary(&useful);
        return Some(Finding::good(format!(
            "{name} has device code that the software GPU can compile: {summary}"
        )));
    }
    Some(Finding::note(format!(
        "{name} has device code that the software GPU cannot use ({} of {all} parts): {}; it needs PTX for \
         sm_{CAPABILITY} or older: build with nvcc -gencode arch=compute_{CAPABILITY},code=compute_{CAPABILITY}",
        useless.len(),
        summary(&useless)
    )))
}

/// Whether a container may have a kernel. What nvcc links last in each program usually has none: machine code
/// without a section of instructions.
fn has_kernels(entries: &[Entry<'_>]) -> bool {
    let has = |entry: &Entry<'_>, word: &[u8]| {
        entry.payload().map_or(true, |code| code.windows(word.len()).any(|window| window == word))
    };
    let mut texts = entries.iter().filter(|entry| entry.kind == EntryKind::Ptx).peekable();
    if texts.peek().is_some() {
        return texts.any(|text| has(text, b".entry"));
    }
    entries.iter().any(|entry| match entry.kind {
        EntryKind::Cubin => has(entry, b".text."),
        _ => true,
    })
}

fn suits(entry: &Entry<'_>) -> bool {
    entry.kind == EntryKind::Ptx && entry.suits(CAPABILITY)
}

/// The entries of all containers in a section that have any.
fn containers(section: &[u8]) -> Vec<Vec<Entry<'_>>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = section.get(at..).filter(|rest| rest.len() >= 16) {
        if !rest.starts_with(&MAGIC) {
            at += ALIGNMENT;
            continue;
        }
        let field = |range| <[u8; 8]>::try_from(&rest[range]).map_or(0, u64::from_le_bytes);
        let header = u64::from(u16::from_le_bytes([rest[6], rest[7]]));
        let length = field(8..16).saturating_add(header);
        let length = usize::try_from(length).unwrap_or(usize::MAX).clamp(16, rest.len());
        if let Ok(entries) = entries(&rest[..length])
            && !entries.is_empty()
        {
            found.push(entries);
        }
        at += length.next_multiple_of(ALIGNMENT);
    }
    found
}

/// The kinds of entries that occur, each once.
fn summary(containers: &[Vec<Entry<'_>>]) -> String {
    let mut kinds: Vec<String> = containers
        .iter()
        .flatten()
        .map(|entry| match entry.kind {
            EntryKind::Ptx => {
                format!("PTX {}.{} for sm_{}", entry.version.0, entry.version.1, entry.architecture)
            }
            EntryKind::Cubin => format!("machine code for sm_{}", entry.architecture),
            EntryKind::Other(kind) => format!("entries of unknown kind {kind}"),
        })
        .collect();
    kinds.sort();
    kinds.dedup();
    kinds.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(kind: u16, architecture: u32, payload: &[u8]) -> Vec<u8> {
        let mut entry = vec![0; 64];
        entry[..2].copy_from_slice(&kind.to_le_bytes());
        entry[2..4].copy_from_slice(&0x101_u16.to_le_bytes());
        entry[4..8].copy_from_slice(&64_u32.to_le_bytes());
        entry[8..16].copy_from_slice(&(payload.len().next_multiple_of(8) as u64).to_le_bytes());
        entry[26..28].copy_from_slice(&8_u16.to_le_bytes());
        entry[28..32].copy_from_slice(&architecture.to_le_bytes());
        entry.extend(payload);
        entry.resize(64 + payload.len().next_multiple_of(8), 0);
        let mut all = MAGIC.to_vec();
        all.extend(1_u16.to_le_bytes());
        all.extend(16_u16.to_le_bytes());
        all.extend((entry.len() as u64).to_le_bytes());
        all.extend(entry);
        all
    }

    fn container(kind: u16, architecture: u32) -> Vec<u8> {
        let payload: &[u8] =
            if kind == 1 { b".version 8.0 .visible .entry k () { }" } else { b"\x7fELF .text.k" };
        holding(kind, architecture, payload)
    }

    #[test]
    fn code_that_cannot_be_used_is_noted() {
        let good = [container(2, 90), container(1, 75)];
        let separate = [good[0].clone(), vec![0; 16], good[1].clone()].concat();
        let text = check("app", &separate, &[]).unwrap().to_string();
        assert!(text.starts_with("note") && text.contains("1 of 2 parts"), "{text}");
        assert!(text.contains("machine code for sm_90") && !text.contains("sm_75"), "{text}");
        let text = check("app", &good[1], &[]).unwrap().to_string();
        assert!(text.starts_with("ok") && text.contains("PTX 8.0 for sm_75"), "{text}");
        let text = check("app", &container(1, 90), &[]).unwrap().to_string();
        assert!(text.starts_with("note"), "{text}");
        assert_eq!(check("app", b"nothing of the kind", &[]), None);
        // Damaged: cut short, and endless.
        assert_eq!(check("app", &good[1][..40], &[]), None);
        let mut endless = container(1, 75);
        endless[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(check("app", &endless, &[]), None);
    }

    #[test]
    fn machine_code_without_kernels_is_no_reason_to_worry() {
        // What nvcc links last: nothing, where each file was compiled as a whole.
        let usual = [holding(2, 75, b"\x7fELF nothing"), container(1, 75)].concat();
        let text = check("app", &usual, &[]).unwrap().to_string();
        assert!(text.starts_with("ok") && text.contains("PTX 8.0 for sm_75"), "{text}");
    }

    #[test]
    fn what_was_linked_counts_by_its_parts() {
        let linked = container(2, 90);
        let library = holding(1, 121, b".version 8.0 .visible .func f () { }");
        let parts = [container(1, 75), container(1, 80), library].concat();
        let text = check("app", &linked, &parts).unwrap().to_string();
        assert!(text.starts_with("ok") && text.contains("sm_80"), "{text}");
        let text = check("app", &linked, &[container(1, 75), container(2, 80)].concat()).unwrap().to_string();
        assert!(text.starts_with("note") && text.contains("1 of 2 parts"), "{text}");
    }
}
