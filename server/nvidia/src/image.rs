//! What is in an image, as far as the driver does not tell: names of kernels and variables, parameters, and
//! whether kernels print.
//!
//! Nothing here decides what is loaded. The driver is asked for every name, and what it does not know is left
//! out, so reading too much does no harm, and images are not believed.

use rgpu_device::{GlobalKind, ParamInfo};
use rgpu_image::{self as image, EntryKind, ImageKind};
use std::collections::BTreeMap;

/// What an image says about a kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// Its parameters, in order.
    pub params: Vec<ParamInfo>,
    /// `.reqntid`, or zeros.
    pub required_block: [u32; 3],
}

/// What is in an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Kernels by name. From a cubin, device functions may be among them.
    pub kernels: BTreeMap<String, Kernel>,
    /// Variables by name.
    pub variables: BTreeMap<String, GlobalKind>,
    /// Whether a kernel may print.
    pub prints: bool,
}

impl Contents {
    /// Reads an image of any kind.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut contents = Self::default();
        match image::sniff(bytes) {
            Some(ImageKind::Container) => {
                for entry in image::entries(bytes).unwrap_or_default() {
                    let Ok(payload) = entry.payload() else { continue };
                    match entry.kind {
                        EntryKind::Ptx => contents.add_ptx(&payload),
                        EntryKind::Cubin => contents.add_cubin(&payload),
                        EntryKind::Other(_) => {}
                    }
                }
            }
            Some(ImageKind::Cubin) => contents.add_cubin(bytes),
            Some(ImageKind::Ptx) => contents.add_ptx(bytes),
            None => {}
        }
        contents
    }

    fn look_for_printing(&mut self, bytes: &[u8]) {
        self.prints |= bytes.windows(7).any(|w| w == b"vprintf");
    }

    fn add_ptx(&mut self, bytes: &[u8]) {
        self.look_for_printing(bytes);
        let mut tokens = Tokens { rest: bytes };
        let mut outside = false;
        while let Some(token) = tokens.next() {
            match token {
                Token::Word(".extern") => outside = true,
                Token::Word(".visible" | ".weak" | ".common") => {}
                Token::Word(".entry") => {
                    if let Some((name, kernel)) = entry(&mut tokens) {
                        self.kernels.entry(name).or_insert(kernel);
                    }
                    outside = false;
                }
                Token::Word(".func") => {
                    tokens.skip_to_body();
                    outside = false;
                }
                Token::Word(space @ (".global" | ".const")) => {
                    let kind = if space == ".const" { GlobalKind::Constant } else { GlobalKind::Global };
                    let (names, managed) = variable(&mut tokens);
                    let kind = if managed { GlobalKind::Managed } else { kind };
                    if !outside {
                        self.variables.extend(names.into_iter().map(|name| (name, kind)));
                    }
                    outside = false;
                }
                Token::Mark(b'{') => tokens.skip_block(),
                _ => outside = false,
            }
        }
    }

    fn add_cubin(&mut self, bytes: &[u8]) {
        self.look_for_printing(bytes);
        let Some(elf) = Elf::new(bytes) else { return };
        for i in 0..elf.count {
            let Some(section) = elf.section(i) else { continue };
            let Some(name) = elf.section_name(&section) else { continue };
            if let Some(kernel) = name.strip_prefix(".text.") {
                self.kernels.entry(kernel.to_owned()).or_default();
            } else if let Some(kernel) = name.strip_prefix(".nv.info.") {
                let found = attributes(elf.bytes_of(&section));
                *self.kernels.entry(kernel.to_owned()).or_default() = found;
            } else if section.kind == SYMBOLS {
                self.add_symbols(&elf, &section);
            }
        }
    }

    fn add_symbols(&mut self, elf: &Elf<'_>, table: &Section) {
        const OBJECT: u8 = 1;
        let Some(names) = elf.section(table.link) else { return };
        for symbol in elf.bytes_of(table).chunks_exact(24) {
            let section = u32::from(u16::from_le_bytes([symbol[6], symbol[7]]));
            let (Some(name), true) =
                (elf.text(&names, read_u32(symbol, 0).unwrap_or(0)), symbol[4] & 15 == OBJECT)
            else {
                continue;
            };
            let Some(home) = elf.section(section).and_then(|s| elf.section_name(&s)) else { continue };
            let kind =
                if home.starts_with(".nv.constant") { GlobalKind::Constant } else { GlobalKind::Global };
            self.variables.entry(name.to_owned()).or_insert(kind);
        }
    }
}

/// The attributes of a kernel in its `.nv.info` section.
fn attributes(mut bytes: &[u8]) -> Kernel {
    const WITH_BYTES: u8 = 4;
    const REQUIRED_BLOCK: u8 = 0x10;
    const PARAMETER: u8 = 0x17;
    let mut kernel = Kernel::default();
    let mut params = BTreeMap::new();
    while let [format, attribute, low, high, rest @ ..] = bytes {
        let size = if *format == WITH_BYTES { u16::from_le_bytes([*low, *high]) as usize } else { 0 };
        let Some(value) = rest.get(..size) else { break };
        let word = |at| read_u32(value, at).unwrap_or(0);
        match *attribute {
            PARAMETER if size == 12 => {
                let (ordinal, offset) = (word(4) & 0xFFFF, word(4) >> 16);
                params.insert(ordinal, ParamInfo { offset, size: word(8) >> 18 });
            }
            REQUIRED_BLOCK if size == 12 => kernel.required_block = [word(0), word(4), word(8)],
            _ => {}
        }
        bytes = &rest[size..];
    }
    kernel.params = params.into_values().collect();
    kernel
}

const SYMBOLS: u32 = 2;

struct Elf<'a> {
    bytes: &'a [u8],
    table: u64,
    entry: u64,
    count: u32,
    names: u32,
}

struct Section {
    name: u32,
    kind: u32,
    offset: u64,
    size: u64,
    link: u32,
}

impl<'a> Elf<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let half = |at: usize| Some(u32::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)));
        bytes.starts_with(b"\x7fELF\x02\x01").then_some(())?;
        Some(Self {
            bytes,
            table: read_u64(bytes, 0x28)?,
            entry: u64::from(half(0x3A)?),
            count: half(0x3C)?,
            names: half(0x3E)?,
        })
    }

    fn section(&self, index: u32) -> Option<Section> {
        let at = self.table.checked_add(u64::from(index).checked_mul(self.entry)?)?;
        let at = usize::try_from(at).ok().filter(|_| index < self.count && self.entry >= 64)?;
        let header = self.bytes.get(at..at.checked_add(64)?)?;
        Some(Section {
            name: read_u32(header, 0)?,
            kind: read_u32(header, 4)?,
            offset: read_u64(header, 24)?,
            size: read_u64(header, 32)?,
            link: read_u32(header, 40)?,
        })
    }

    fn bytes_of(&self, section: &Section) -> &'a [u8] {
        const WITHOUT_BYTES: u32 = 8;
        let end = section.offset.checked_add(section.size).and_then(|end| usize::try_from(end).ok());
        match end {
            Some(end) if section.kind != WITHOUT_BYTES => {
                self.bytes.get(section.offset as usize..end).unwrap_or(&[])
            }
            _ => &[],
        }
    }

    fn text(&self, names: &Section, at: u32) -> Option<&'a str> {
        let rest = self.bytes_of(names).get(at as usize..)?;
        let end = rest.iter().position(|b| *b == 0)?;
        std::str::from_utf8(&rest[..end]).ok().filter(|text| !text.is_empty())
    }

    fn section_name(&self, section: &Section) -> Option<&'a str> {
        self.text(&self.section(self.names)?, section.name)
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// A kernel's head, after `.entry`; its body is skipped.
fn entry(tokens: &mut Tokens<'_>) -> Option<(String, Kernel)> {
    let Some(Token::Word(name)) = tokens.next() else { return None };
    let mut kernel = Kernel::default();
    let mut in_list = false;
    while let Some(token) = tokens.next() {
        match token {
            Token::Mark(b'(') => in_list = true,
            Token::Mark(b')') => in_list = false,
            Token::Word(".param") if in_list => {
                let (param, last) = parameter(tokens, kernel.params.last().copied());
                kernel.params.extend(param);
                in_list = !last;
            }
            Token::Word(".reqntid") => {
                kernel.required_block = [1; 3];
                for i in 0..3 {
                    let Some(Token::Word(number)) = tokens.next() else { break };
                    kernel.required_block[i] = number.parse().unwrap_or(1);
                    if !tokens.take(b',') {
                        break;
                    }
                }
            }
            Token::Mark(b'{') => {
                tokens.skip_block();
                break;
            }
            Token::Mark(b';') => break,
            _ => {}
        }
    }
    Some((name.to_owned(), kernel))
}

/// A parameter, after `.param`; true if it is the last one.
fn parameter(tokens: &mut Tokens<'_>, before: Option<ParamInfo>) -> (Option<ParamInfo>, bool) {
    let (mut size, mut align, mut count) = (0u32, 0u32, 1u32);
    let mut last = true;
    while let Some(token) = tokens.next() {
        match token {
            Token::Word(".align") => {
                let Some(Token::Word(number)) = tokens.next() else { break };
                // After the type it speaks of what a pointer points to.
                if size == 0 {
                    align = number.parse().unwrap_or(0);
                }
            }
            Token::Word(".ptr") => {}
            Token::Word(word) if word.starts_with('.') && size == 0 => {
                let bits = word.trim_start_matches(|c: char| !c.is_ascii_digit());
                size = bits.parse::<u32>().map_or(8, |bits| bits / 8);
            }
            Token::Mark(b'[') => {
                if let Some(Token::Word(number)) = tokens.next() {
                    count = number.parse().unwrap_or(0);
                }
            }
            Token::Mark(b',') => {
                last = false;
                break;
            }
            Token::Mark(b')') => break,
            _ => {}
        }
    }
    let align = align.max(size).max(1);
    let end = before.map_or(0, |p| p.offset.saturating_add(p.size));
    let offset = end.checked_next_multiple_of(align).unwrap_or(end);
    (Some(ParamInfo { offset, size: size.saturating_mul(count) }), last)
}

/// The names that a variable's declaration declares, and whether it is managed.
fn variable(tokens: &mut Tokens<'_>) -> (Vec<String>, bool) {
    let (mut names, mut managed, mut depth) = (Vec::new(), false, 0u32);
    let mut name = None;
    let mut initial = false;
    while let Some(token) = tokens.next() {
        match token {
            Token::Word(".managed") => managed = true,
            Token::Word(".align") => drop(tokens.next()),
            Token::Word(word)
                if depth == 0 && !initial && !word.starts_with(|c: char| c == '.' || c.is_ascii_digit()) =>
            {
                name = Some(word.to_owned());
            }
            Token::Mark(b'{' | b'(' | b'[') => depth += 1,
            Token::Mark(b'}' | b')' | b']') => depth = depth.saturating_sub(1),
            Token::Mark(b'=') if depth == 0 => initial = true,
            Token::Mark(b',') if depth == 0 => {
                names.extend(name.take());
                initial = false;
            }
            Token::Mark(b';') if depth == 0 => break,
            _ => {}
        }
    }
    names.extend(name);
    (names, managed)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Mark(u8),
}

/// PTX text as words and marks; comments and texts in quotes are left out.
struct Tokens<'a> {
    rest: &'a [u8],
}

fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.' | b':')
}

impl<'a> Tokens<'a> {
    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let rest = self.rest.trim_ascii_start();
            let &first = rest.first().filter(|b| **b != 0)?;
            if rest.starts_with(b"//") {
                self.rest = &rest[rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())..];
            } else if rest.starts_with(b"/*") {
                let end = rest.windows(2).skip(2).position(|w| w == b"*/").map_or(rest.len(), |at| at + 4);
                self.rest = &rest[end..];
            } else if first == b'"' {
                let end = rest[1..].iter().position(|b| *b == b'"').map_or(rest.len(), |at| at + 2);
                self.rest = &rest[end..];
            } else if in_word(first) {
                let end = rest.iter().position(|b| !in_word(*b)).unwrap_or(rest.len());
                self.rest = &rest[end..];
                return Some(Token::Word(std::str::from_utf8(&rest[..end]).unwrap_or("")));
            } else {
                self.rest = &rest[1..];
                return Some(Token::Mark(first));
            }
        }
    }

    /// Takes the next token if it is this mark.
    fn take(&mut self, mark: u8) -> bool {
        let before = self.rest;
        let taken = self.next() == Some(Token::Mark(mark));
        if !taken {
            self.rest = before;
        }
        taken
    }

    /// Skips to the end of the block that was just opened.
    fn skip_block(&mut self) {
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                Some(Token::Mark(b'{')) => depth += 1,
                Some(Token::Mark(b'}')) => depth -= 1,
                Some(_) => {}
                None => break,
            }
        }
    }

    /// Skips a function, or its declaration.
    fn skip_to_body(&mut self) {
        while let Some(token) = self.next() {
            match token {
                Token::Mark(b'{') => return self.skip_block(),
                Token::Mark(b';') => return,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
//
// .entry commented(.param .u32 x)
.version 8.0
.target sm_80, debug
.address_size 64
.file 1 "a{b.cu"
.extern .func (.param .b32 func_retval0) vprintf(.param .b64 a, .param .b64 b);
.extern .shared .align 4 .b8 dynamic[];
.extern .global .align 4 .u32 elsewhere;
.visible .global .align 8 .b8 table[16] = {1, 2, 0xff, generic(limit)};
.global .align 4 .u32 _ZL5count = 7, second;
.visible .const .align 4 .f32 limit;
/* .global .u32 no; */
.visible .global .attribute(.managed) .align 4 .u32 shared_one;
.func helper(.param .b64 p) { .reg .b32 %r<2>; { ret; } }
.visible .entry _Z3addPfi8Bigi(
    .param .u64 .ptr .global .align 16 _Z3addPfi8Bigi_param_0,
    .param .u32 _Z3addPfi8Bigi_param_1,
    .param .align 16 .b8 _Z3addPfi8Bigi_param_2[40],
    .param .u8 _Z3addPfi8Bigi_param_3
)
.maxntid 128, 1, 1
.reqntid 64, 2
{
    $L__BB0_1: // }
    .param .b32 retval0;
    call.uni (retval0), vprintf, (param0, param1);
    ret;
}
.visible .entry nothing() { ret; }
.weak .entry old
{ ret; }
"#;

    #[test]
    fn ptx_is_read() {
        let mut image = TEXT.as_bytes().to_vec();
        image.push(0);
        let contents = Contents::of(&image);
        assert!(contents.prints);
        let names: Vec<_> = contents.kernels.keys().map(String::as_str).collect();
        assert_eq!(names, ["_Z3addPfi8Bigi", "nothing", "old"]);
        let add = &contents.kernels["_Z3addPfi8Bigi"];
        let params: Vec<_> = add.params.iter().map(|p| (p.offset, p.size)).collect();
        assert_eq!(params, [(0, 8), (8, 4), (16, 40), (56, 1)]);
        assert_eq!(add.required_block, [64, 2, 1]);
        let variables: Vec<_> = contents.variables.iter().map(|(n, k)| (n.as_str(), *k)).collect();
        assert_eq!(
            variables,
            [
                ("_ZL5count", GlobalKind::Global),
                ("limit", GlobalKind::Constant),
                ("second", GlobalKind::Global),
                ("shared_one", GlobalKind::Managed),
                ("table", GlobalKind::Global),
            ]
        );
    }

    /// A cubin in small: section names, `.nv.info` of a kernel, symbols.
    fn cubin() -> Vec<u8> {
        let names = b"\0.shstrtab\0.text.k\0.nv.info.k\0.symtab\0.strtab\0.nv.constant3\0.nv.global\0";
        let name = |text: &str| names.windows(text.len()).position(|w| w == text.as_bytes()).unwrap() as u32;
        let strings = b"\0k\0limit\0table\0vprintf\0";
        let mut info = Vec::new();
        // Parameter 1 first, as compilers write them.
        for (ordinal, offset, size) in [(1u32, 8u32, 4u32), (0, 0, 8)] {
            info.extend_from_slice(&[4, 0x17, 12, 0]);
            info.extend_from_slice(&0u32.to_le_bytes());
            info.extend_from_slice(&(ordinal | offset << 16).to_le_bytes());
            info.extend_from_slice(&(size << 18 | 0x1f000).to_le_bytes());
        }
        info.extend_from_slice(&[3, 0x19, 12, 0]);
        info.extend_from_slice(&[4, 0x10, 12, 0]);
        [32u32, 4, 1].iter().for_each(|n| info.extend_from_slice(&n.to_le_bytes()));
        let mut symbols = vec![0; 24];
        for (at, kind, section) in [(1u32, 2u8, 2u16), (3, 1, 6), (9, 1, 7)] {
            symbols.extend_from_slice(&at.to_le_bytes());
            symbols.extend_from_slice(&[0x10 | kind, 0]);
            symbols.extend_from_slice(&section.to_le_bytes());
            symbols.extend_from_slice(&[0; 16]);
        }
        let sections: [(&str, u32, &[u8], u32); 7] = [
            (".shstrtab", 3, names, 0),
            (".text.k", 1, b"code", 0),
            (".nv.info.k", 0x7000_0000, &info, 0),
            (".symtab", 2, &symbols, 5),
            (".strtab", 3, strings, 0),
            (".nv.constant3", 1, b"1234", 0),
            (".nv.global", 8, b"", 0),
        ];
        let mut elf = vec![0; 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut headers = vec![0; 64];
        for (text, kind, bytes, link) in sections {
            let mut header = [0; 64];
            header[..4].copy_from_slice(&name(text).to_le_bytes());
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&(elf.len() as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            header[40..44].copy_from_slice(&link.to_le_bytes());
            headers.extend_from_slice(&header);
            elf.extend_from_slice(bytes);
        }
        let table = elf.len() as u64;
        elf[0x28..0x30].copy_from_slice(&table.to_le_bytes());
        elf[0x3A..0x3C].copy_from_slice(&64u16.to_le_bytes());
        elf[0x3C..0x3E].copy_from_slice(&8u16.to_le_bytes());
        elf[0x3E..0x40].copy_from_slice(&1u16.to_le_bytes());
        elf.extend_from_slice(&headers);
        elf
    }

    #[test]
    fn cubins_are_read() {
        let cubin = cubin();
        let contents = Contents::of(&cubin);
        assert!(contents.prints);
        let kernel = &contents.kernels["k"];
        assert_eq!(kernel.required_block, [32, 4, 1]);
        let params: Vec<_> = kernel.params.iter().map(|p| (p.offset, p.size)).collect();
        assert_eq!(params, [(0, 8), (8, 4)]);
        assert_eq!(contents.variables["limit"], GlobalKind::Constant);
        assert_eq!(contents.variables["table"], GlobalKind::Global);
        assert_eq!(contents.variables.len(), 2);
    }

    #[test]
    fn damaged_images_are_survived() {
        let cubin = cubin();
        for cut in 0..cubin.len() {
            Contents::of(&cubin[..cut]);
        }
        for at in 0..cubin.len() {
            let mut damaged = cubin.clone();
            damaged[at] = 0xFF;
            Contents::of(&damaged);
        }
        for cut in 0..TEXT.len() {
            Contents::of(&TEXT.as_bytes()[..cut]);
        }
        Contents::of(b".entry");
        Contents::of(b".visible .entry x(.param .b8");
    }
}
