//! Images of GPU code, and the files of programs.

use crate::input::Material;
use rgpu_image::{Accepts, entries, for_device, link, ptx, ptx_for, size_of_container, size_of_cubin, sniff};

const SMALL: &str = include_str!("../../corpus/small.ptx");
const CALLS: &str = include_str!("../../corpus/calls.ptx");
const OTHER: &str = include_str!("../../corpus/other.ptx");

const WORDS: &[&str] = &[
    ".version 8.0",
    ".target sm_80",
    ".address_size 64",
    ".visible",
    ".weak",
    ".extern",
    ".entry",
    ".func",
    ".param",
    ".reg",
    ".global",
    ".shared",
    ".const",
    ".local",
    ".align",
    ".b8",
    ".b16",
    ".b32",
    ".b64",
    ".u32",
    ".s64",
    ".f32",
    ".f64",
    ".pred",
    ".v2",
    ".v4",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ",",
    ";",
    ":",
    "%r<5>",
    "%rd1",
    "%p1",
    "@%p1",
    "@!%p1",
    "ld",
    "st",
    "mov",
    "add",
    "mad.lo",
    "setp.lt",
    "bra",
    "call",
    "ret",
    "exit",
    "bar.sync 0",
    "cvt.rn",
    "atom.add",
    "generic(x)",
    "0f3F800000",
    "0d",
    "0x7fffffffffffffff",
    "18446744073709551616",
    "-1",
    "\"",
    "//",
    "/*",
    "*/",
    "\n",
    ".branchtargets",
    ".calltargets",
    ".callprototype",
    "_",
    "$L1",
    "1+2*(3-4)",
    "<",
    ">",
    ".pragma \"x\";",
    ".loc 1 2 3",
    ".file 1 \"a\"",
    ".section .debug_str",
    "wmma.load.a.sync.aligned.row.m16n16k16.f16",
    ".alias a, b;",
    ".maxntid 1,1,1",
];

pub(super) fn ptx(bytes: &[u8]) -> Result<bool, String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(false) };
    Ok(ptx::parse(text).is_ok())
}

pub(super) fn ptx_texts() -> Material {
    Material::texts(&[SMALL, CALLS, OTHER], WORDS)
}

/// Texts are apart where this byte stands.
const BETWEEN: u8 = 0x1e;

/// Of a name that two texts declare differently.
const DISAGREEMENTS: [&str; 2] = ["has been declared with other parameters", "has been declared differently"];

pub(super) fn linker(bytes: &[u8]) -> Result<bool, String> {
    let texts: Result<Vec<&str>, _> =
        bytes.split(|byte| *byte == BETWEEN).take(4).map(std::str::from_utf8).collect();
    let Ok(texts) = texts else { return Ok(false) };
    let Ok(linked) = link(&texts) else { return Ok(false) };
    // Of texts that can be parsed, what is made of them can be, unless they say different things of one name: whether they do is
    // for the parser to find out, and to say.
    if texts.len() > 1
        && texts.iter().all(|text| ptx::parse(text).is_ok())
        && let Err(e) = ptx::parse(&linked)
        && !DISAGREEMENTS.iter().any(|said| e.to_string().contains(said))
    {
        return Err(format!("what was linked of texts that can be parsed cannot be: {e}: {linked:?}"));
    }
    Ok(true)
}

pub(super) fn linker_texts() -> Material {
    let both = |a: &str, b: &str| [a.as_bytes(), &[BETWEEN], b.as_bytes()].concat();
    let mut material = Material::texts(&[], WORDS);
    material.examples = vec![both(CALLS, OTHER), both(OTHER, CALLS), both(SMALL, OTHER), both(SMALL, SMALL)];
    material.words.push(vec![BETWEEN]);
    material
}

pub(super) fn images(bytes: &[u8]) -> Result<bool, String> {
    let kind = sniff(bytes);
    let header = &bytes[..bytes.len().min(64)];
    let _ = (size_of_container(header), size_of_cubin(header));
    let accepts =
        Accepts { ptx: true, cubin: bytes.len() & 1 == 0, capability: (bytes.len() & 2 == 0).then_some(80) };
    if let Ok(kept) = for_device(bytes, accepts) {
        if kept.len() > bytes.len() + 16 {
            return Err(format!("{} bytes are kept of {}", kept.len(), bytes.len()));
        }
        if let Err(e) = for_device(&kept, accepts) {
            return Err(format!("what a device can use is refused: {}", e.message));
        }
    }
    let mut total = 0;
    if let Ok(all) = entries(bytes) {
        for entry in all {
            total += entry.bytes.len();
            let _ = entry.payload();
        }
    }
    if total > bytes.len() {
        return Err(format!("entries of {total} bytes in {}", bytes.len()));
    }
    let _ = ptx_for(bytes, 80);
    Ok(kind.is_some())
}

/// A container's entry.
fn entry(kind: u16, architecture: u32, flags: u64, payload: &[u8], plain: usize) -> Vec<u8> {
    let padded = payload.len().next_multiple_of(8);
    let mut out = vec![0; 64];
    out[..2].copy_from_slice(&kind.to_le_bytes());
    out[2..4].copy_from_slice(&0x101u16.to_le_bytes());
    out[4..8].copy_from_slice(&64u32.to_le_bytes());
    out[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
    out[16..20].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    out[24..26].copy_from_slice(&0u16.to_le_bytes());
    out[26..28].copy_from_slice(&8u16.to_le_bytes());
    out[28..32].copy_from_slice(&architecture.to_le_bytes());
    out[40..48].copy_from_slice(&flags.to_le_bytes());
    out[56..64].copy_from_slice(&(plain as u64).to_le_bytes());
    out.extend_from_slice(payload);
    out.resize(64 + padded, 0);
    out
}

fn container(entries: &[Vec<u8>]) -> Vec<u8> {
    let inside = entries.concat();
    let mut out = Vec::new();
    out.extend(0xBA55_ED50u32.to_le_bytes());
    out.extend(1u16.to_le_bytes());
    out.extend(16u16.to_le_bytes());
    out.extend((inside.len() as u64).to_le_bytes());
    out.extend(inside);
    out
}

pub(super) fn containers() -> Material {
    let text = SMALL.as_bytes();
    let lz4 = lz4_flex::block::compress(text);
    let zstd = zstd::bulk::compress(text, 3).unwrap_or_default();
    let object = object();
    let plain = container(&[entry(1, 80, 0, text, 0)]);
    let all = container(&[
        entry(2, 80, 0, &object, 0),
        entry(1, 75, 0x2000, &lz4, text.len()),
        entry(1, 80, 0x8000, &zstd, text.len()),
        entry(7, 80, 0, b"odd", 0),
    ]);
    let (short, long) = (lz4_flex::block::compress(&[0; 60_000]), zstd::bulk::compress(&[0; 60_000], 3));
    let bombs = container(&[
        entry(1, 80, 0x2000, &short, 60_000),
        entry(1, 80, 0x8000, &long.unwrap_or_default(), 60_000),
    ]);
    let two = [&plain[..], &all].concat();
    Material { examples: vec![plain, all, bombs, two, object, text.to_vec()], words: Vec::new() }
}

pub(super) fn elf(bytes: &[u8]) -> Result<bool, String> {
    Ok(rgpu::fuzzing::object_file(bytes))
}

pub(super) fn objects() -> Material {
    let names = ["__cudaRegisterFatBinary", "cudaGetExportTable", "cudaMalloc", "cudaRuntimeGetVersion"];
    Material { examples: vec![object()], words: names.map(|name| name.as_bytes().to_vec()).to_vec() }
}

/// A small ELF object for x86-64 with functions, their names, and device code.
fn object() -> Vec<u8> {
    const NAMES: [&str; 4] =
        ["__cudaRegisterFatBinary", "cudaGetExportTable", "cudaMalloc", "cudaRuntimeGetVersion"];
    let code = [0xc7, 0x07, 0x12, 0x2f, 0, 0, 0xe8, 0, 0, 0, 0, 0xc3];
    let mut names = vec![0];
    let mut symbols = vec![0; 24];
    for name in NAMES {
        let mut symbol = [0; 24];
        symbol[..4].copy_from_slice(&(names.len() as u32).to_le_bytes());
        // A global function in section 1.
        (symbol[4], symbol[6]) = (0x12, 1);
        symbol[8..16].copy_from_slice(&0x1000u64.to_le_bytes());
        symbol[16..24].copy_from_slice(&(code.len() as u64).to_le_bytes());
        symbols.extend(symbol);
        names.extend_from_slice(name.as_bytes());
        names.push(0);
    }
    let section_names = b"\0.text\0.symtab\0.strtab\0.nv_fatbin\0.shstrtab\0.dynsym\0";
    let mut out = vec![0; 64 + 56];
    let mut place = |bytes: &[u8]| {
        let at = out.len() as u64;
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(8), 0);
        (at, bytes.len() as u64)
    };
    let [text, symtab, strtab, fatbin, shstrtab] =
        [&code[..], &symbols, &names, b"device code", section_names].map(&mut place);
    let headers = out.len() as u64;
    let mut section = |name: u32, kind: u32, (at, size): (u64, u64), link: u32, entry: u64, address: u64| {
        let mut header = [0; 64];
        header[..4].copy_from_slice(&name.to_le_bytes());
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[16..24].copy_from_slice(&address.to_le_bytes());
        header[24..32].copy_from_slice(&at.to_le_bytes());
        header[32..40].copy_from_slice(&size.to_le_bytes());
        header[40..44].copy_from_slice(&link.to_le_bytes());
        header[56..64].copy_from_slice(&entry.to_le_bytes());
        out.extend(header);
    };
    section(0, 0, (0, 0), 0, 0, 0);
    section(1, 1, text, 0, 0, 0x1000);
    section(7, 2, symtab, 3, 24, 0);
    section(15, 3, strtab, 0, 0, 0);
    section(23, 1, fatbin, 0, 0, 0);
    section(34, 3, shstrtab, 0, 0, 0);
    section(44, 11, symtab, 3, 24, 0);
    out[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(16, &3u16.to_le_bytes());
    put(18, &62u16.to_le_bytes());
    put(20, &1u32.to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(40, &headers.to_le_bytes());
    for (at, number) in [(52, 64u16), (54, 56), (56, 1), (58, 64), (60, 7), (62, 5)] {
        put(at, &number.to_le_bytes());
    }
    // One executable segment: the code.
    put(64, &1u32.to_le_bytes());
    put(68, &5u32.to_le_bytes());
    for (at, number) in [(72, text.0), (80, 0x1000), (88, 0x1000), (96, text.1), (104, text.1), (112, 8)] {
        put(at, &number.to_le_bytes());
    }
    out
}
