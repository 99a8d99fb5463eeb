//! The object file that LLVM makes, turned into one run of bytes that means the same wherever it lies.

use std::collections::HashMap;

use object::{Object, ObjectSection, ObjectSymbol, RelocationKind, RelocationTarget, SectionIndex};

use super::debug;
use crate::compile::lines::Lines;

/// The function's name.
const KERNEL: &str = "kernel";
/// The name of the table of addresses that the code calls.
pub(super) const ADDRESSES: &str = "addresses";

/// Machine code that begins with the kernel.
#[derive(Debug)]
pub(super) struct Linked {
    pub bytes: Vec<u8>,
    /// Where in the bytes the table of addresses lies: a number of words that are still zero.
    pub addresses: usize,
    /// The lines of the PTX text that the code comes from.
    pub lines: Lines,
}

/// Joins the sections of an object file that are needed when it runs, with room for so many addresses behind them.
pub(super) fn link(file: &[u8], addresses: usize) -> Result<Linked, String> {
    let file = object::File::parse(file).map_err(|e| e.to_string())?;
    let mut sections: Vec<_> = file.sections().filter(is_loaded).collect();
    // The code comes first, and the kernel is the only function in it.
    sections.sort_by_key(|section| section.kind() != object::SectionKind::Text);
    let mut bytes = Vec::new();
    let mut places: HashMap<SectionIndex, usize> = HashMap::new();
    for section in &sections {
        let at = bytes.len().next_multiple_of(section.align().max(1) as usize);
        bytes.resize(at, 0);
        bytes.extend_from_slice(section.data().map_err(|e| e.to_string())?);
        places.insert(section.index(), at);
    }
    let table = bytes.len().next_multiple_of(8);
    bytes.resize(table + 8 * addresses, 0);
    let kernel = file.symbols().find(|symbol| symbol.name() == Ok(KERNEL) && symbol.is_definition());
    let kernel = kernel.and_then(|symbol| {
        let place = places.get(&symbol.section_index()?)?;
        Some(place + symbol.address() as usize)
    });
    if kernel != Some(0) {
        return Err("LLVM's code does not begin with the kernel".into());
    }
    for section in &sections {
        let base = places[&section.index()];
        for (offset, relocation) in section.relocations() {
            let RelocationTarget::Symbol(index) = relocation.target() else {
                return Err("a reference to nothing known".into());
            };
            let symbol = file.symbol_by_index(index).map_err(|e| e.to_string())?;
            let name = symbol.name().unwrap_or_default();
            let target = match symbol.section_index() {
                Some(section) => places.get(&section).map(|place| place + symbol.address() as usize),
                None => (name == ADDRESSES).then_some(table),
            };
            let Some(target) = target else { return Err(format!("LLVM's code refers to {name}")) };
            let relative =
                matches!(relocation.kind(), RelocationKind::Relative | RelocationKind::PltRelative);
            if !relative || relocation.size() != 32 {
                return Err(format!("a reference that depends on where the code lies, to {name}"));
            }
            let at = base + offset as usize;
            let distance = target as i64 + relocation.addend() - at as i64;
            let distance = i32::try_from(distance).map_err(|_| "LLVM's code is too large")?;
            let place = bytes.get_mut(at..at + 4).ok_or("a reference outside of the code")?;
            place.copy_from_slice(&distance.to_le_bytes());
        }
    }
    Ok(Linked { bytes, addresses: table, lines: debug::lines(&file) })
}

/// Whether a section is needed when the code runs. What unwinds is not: nothing passes through kernels.
fn is_loaded<'data>(section: &impl ObjectSection<'data>) -> bool {
    let object::SectionFlags::Elf { sh_flags } = section.flags() else { return false };
    let unwinds = section.name().is_ok_and(|name| name.starts_with(".eh_frame"));
    sh_flags & u64::from(object::elf::SHF_ALLOC) != 0 && section.size() > 0 && !unwinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::vector::{llvm, possible};

    /// What LLVM makes of a text, if this machine has one.
    fn made(text: &str) -> Option<Vec<u8>> {
        possible().ok()?;
        let busy = llvm::Busy::begin().ok()?;
        Some(llvm::compile(text, &busy).expect("it is valid"))
    }

    #[test]
    fn constants_and_tables_of_jumps_and_addresses_lie_behind_the_code() {
        let cases: Vec<String> = (0..9).map(|n| format!("i64 {n}, label %l{n}")).collect();
        let blocks: Vec<String> = (0..9)
            .map(|n| format!("l{n}:\n store double {}.125, ptr %out\n br label %end\n", n * n))
            .collect();
        let text = format!(
            "@{ADDRESSES} = external hidden constant [2 x i64]
            define void @kernel(i64 %n, ptr %out) {{
                switch i64 %n, label %end [ {} ]
                {}
            end:
                %at = load i64, ptr getelementptr inbounds (i8, ptr @{ADDRESSES}, i64 8)
                %old = load <4 x i64>, ptr %out
                %new = add <4 x i64> %old, <i64 5, i64 6, i64 7, i64 8>
                store <4 x i64> %new, ptr %out
                store i64 %at, ptr %out
                ret void
            }}",
            cases.join(" "),
            blocks.join("")
        );
        let Some(file) = made(&text) else { return };
        let linked = link(&file, 2).unwrap();
        assert_eq!(linked.addresses + 16, linked.bytes.len());
        assert!(linked.addresses.is_multiple_of(8));
        assert!(linked.bytes[linked.addresses..].iter().all(|&byte| byte == 0));
        let has = |number: u64| linked.bytes.windows(8).any(|bytes| bytes == number.to_le_bytes());
        assert!((5..9).all(has), "a constant is missing");
        // Damaged files are refused, or what comes of them is as harmless; nothing panics.
        (0..file.len()).for_each(|end| _ = link(&file[..end], 2));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let text = "declare void @elsewhere()
            define void @kernel(i64 %n, ptr %out) { call void @elsewhere() ret void }";
        let Some(file) = made(text) else { return };
        assert_eq!(link(&file, 0).unwrap_err(), "LLVM's code refers to elsewhere");
    }

    #[test]
    fn code_that_does_not_begin_with_the_kernel_is_refused() {
        let text = "define void @other() { ret void } define void @kernel(i64 %n, ptr %out) { ret void }";
        let Some(file) = made(text) else { return };
        assert_eq!(link(&file, 0).unwrap_err(), "LLVM's code does not begin with the kernel");
    }
}
