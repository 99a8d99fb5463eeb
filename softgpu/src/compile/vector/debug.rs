//! Which line of the PTX text each access to memory comes from: told to LLVM as the debug information of a source file, and read from that of
//! the object file. A kernel that does something wrong is looked up there, as in the first tier.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use cranelift_codegen::ir::SourceLoc;
use gimli::{DebugLine, DebugLineOffset, LittleEndian};
use object::{Object, ObjectSection};
use rgpu_image::ptx::ast::Function;

use crate::compile::code::line_of;
use crate::compile::lines::Lines;

/// What the kernel's function has attached, in a module that [`DebugInfo::metadata`] stands in.
pub(super) const OF_KERNEL: &str = "!dbg !4";

/// What every module says of its source file. `!0` is another's.
const HEAD: &str = "!llvm.dbg.cu = !{!1}
!llvm.module.flags = !{!2}
!1 = distinct !DICompileUnit(language: DW_LANG_C99, file: !3, emissionKind: LineTablesOnly)
!2 = !{i32 2, !\"Debug Info Version\", i32 3}
!3 = !DIFile(filename: \"kernel.ptx\", directory: \"/\")
!4 = distinct !DISubprogram(name: \"kernel\", scope: !3, file: !3, line: 1, type: !5, spFlags: DISPFlagDefinition, unit: !1)
!5 = !DISubroutineType(types: !6)
!6 = !{null}
";
/// What the number of a line's metadata is more than the line's.
const BEHIND: u32 = 6;

/// The lines that the accesses of a module come from.
pub(super) struct DebugInfo<'a> {
    body: &'a Function,
    lines: BTreeSet<u32>,
    added: usize,
}

impl<'a> DebugInfo<'a> {
    /// None yet. Places are those of statements in the body.
    pub(super) fn new(body: &'a Function) -> Self {
        Self { body, lines: BTreeSet::new(), added: 0 }
    }

    /// Notes where the accesses of a text, from `start` on, come from.
    pub(super) fn note(&mut self, text: &mut String, start: usize, place: SourceLoc) {
        let line = line_of(self.body, place);
        if line == 0 || !text[start..].lines().any(accesses) {
            return;
        }
        self.lines.insert(line);
        let written = text.split_off(start);
        for instruction in written.lines() {
            text.push_str(instruction);
            if accesses(instruction) {
                let _ = write!(text, ", !dbg !{}", BEHIND + line);
            }
            text.push('\n');
        }
        self.added += text.len() - start - written.len();
    }

    /// So many bytes of the text are not the kernel's own.
    pub(super) fn added(&self) -> usize {
        self.added
    }

    /// The metadata that the module ends with.
    pub(super) fn metadata(&self) -> String {
        let mut text = HEAD.to_owned();
        for line in &self.lines {
            let _ = writeln!(text, "!{} = !DILocation(line: {line}, scope: !4)", BEHIND + line);
        }
        text
    }
}

/// Whether a line of LLVM's text is an instruction that touches memory or calls.
fn accesses(line: &str) -> bool {
    let instruction = match line.split_once(" = ") {
        Some((name, instruction)) if name.starts_with('%') => instruction,
        _ => line,
    };
    let (opcode, _) = instruction.split_once(' ').unwrap_or((instruction, ""));
    matches!(opcode, "load" | "store" | "call" | "atomicrmw" | "cmpxchg")
}

/// The lines of an object file's code, which is one function at the begin of its section; none where the file does not tell.
pub(super) fn lines(file: &object::File<'_>) -> Lines {
    let section = file.section_by_name(".debug_line").and_then(|section| section.data().ok());
    section.and_then(|data| read(data).ok()).unwrap_or_default()
}

fn read(data: &[u8]) -> gimli::Result<Lines> {
    let table = DebugLine::new(data, LittleEndian);
    let mut rows = table.program(DebugLineOffset(0), 8, None, None)?.rows();
    let (mut pieces, mut before) = (Vec::new(), None);
    while let Some((_, row)) = rows.next_row()? {
        let at = row.address() as u32;
        if let Some((start, line)) = before {
            pieces.push((start, at, line));
        }
        let line = row.line().map_or(0, |line| line.get() as u32);
        before = (!row.end_sequence()).then_some((at, line));
    }
    Ok(Lines::new(pieces.into_iter(), &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_told_from_the_rest() {
        for line in
            ["%t1 = load i64, ptr %p", "store i64 1, ptr %p", "call void %f()", "%t9 = call i64 @f(i64 1)"]
        {
            assert!(accesses(line), "{line}");
        }
        for line in ["%t1 = add i64 1, 2", "l7:", "br label %l7", "ret void", "%t2 = phi i64 [ 1, %l2 ]", ""]
        {
            assert!(!accesses(line), "{line}");
        }
    }
}
