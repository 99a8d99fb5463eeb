//! What a launch needs to know of a module's kernels, read off its PTX without compiling it.
//!
//! A module can so be used before the server has told what is in it. Only the declarations of kernels are looked at:
//!
//! ```text
//! .visible .entry name(
//!     .param .u64 .ptr .global .align 4 name_param_0,
//!     .param .align 8 .b8 name_param_1[24]
//! )
//! .maxntid 256, 1, 1
//! { …
//! ```
//!
//! Where anything looks unusual there is no sketch, and the server is asked.

use rgpu_device::{FunctionInfo, ParamInfo};

/// To so many bytes the parameters of all devices' kernels are aligned as their PTX says.
const MOST_ALIGNED: u32 = 16;

/// The kernels of a PTX text in their order. What only a compiler knows is 0.
pub(super) fn kernels(text: &str) -> Option<Vec<FunctionInfo>> {
    if text.contains("/*") {
        // A declaration might stand in a comment.
        return None;
    }
    let mut found: Vec<FunctionInfo> = Vec::new();
    for (at, word) in text.match_indices(".entry") {
        let line = &text[text[..at].rfind('\n').map_or(0, |n| n + 1)..at];
        if line.contains("//") || line.contains('"') {
            continue;
        }
        let rest = &text[at + word.len()..];
        if !rest.starts_with(|c: char| c.is_ascii_whitespace()) {
            continue;
        }
        let kernel = kernel(&mut Words(rest))?;
        // A kernel may be declared before it is defined.
        match found.iter_mut().find(|f| f.name == kernel.name) {
            Some(known) => *known = kernel,
            None => found.push(kernel),
        }
    }
    Some(found)
}

/// Words and punctuation, without what separates them.
struct Words<'a>(&'a str);

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            self.0 = self.0.trim_ascii_start();
            match self.0.strip_prefix("//") {
                Some(comment) => self.0 = comment.split_once('\n')?.1,
                None => break,
            }
        }
        let of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.');
        let end = self.0.find(|c| !of_word(c)).unwrap_or(self.0.len());
        // What is no word is a character by itself.
        let end = if end == 0 { self.0.chars().next()?.len_utf8() } else { end };
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(word)
    }
}

/// What follows `.entry`.
fn kernel(words: &mut Words<'_>) -> Option<FunctionInfo> {
    let mut kernel = FunctionInfo { name: words.next()?.to_owned(), ..FunctionInfo::default() };
    let (mut next, mut explicit) = (words.next()?, false);
    if next == "(" {
        kernel.params = parameters(words)?;
        next = words.next()?;
    }
    loop {
        match next {
            "{" | ";" => {
                kernel.cluster.must_be_set = explicit && kernel.cluster.prescribed().is_none();
                return Some(kernel);
            }
            ".maxntid" => {
                let (size, after) = dimensions(words)?;
                kernel.max_threads = size.iter().try_fold(1u32, |n, d| n.checked_mul(*d))?;
                next = after;
            }
            ".reqntid" => {
                let (size, after) = dimensions(words)?;
                kernel.required_block = size;
                kernel.max_threads = size.iter().try_fold(1u32, |n, d| n.checked_mul(*d))?;
                next = after;
            }
            ".reqnctapercluster" => {
                let (size, after) = dimensions(words)?;
                kernel.cluster.required = size;
                next = after;
            }
            ".maxclusterrank" => {
                kernel.cluster.most = words.next()?.parse().ok()?;
                next = words.next()?;
            }
            ".explicitcluster" => {
                explicit = true;
                next = words.next()?;
            }
            _ => next = words.next()?,
        }
    }
}

/// Up to three numbers, and the word behind them.
fn dimensions<'a>(words: &mut Words<'a>) -> Option<([u32; 3], &'a str)> {
    let mut size = [1; 3];
    for (i, place) in size.iter_mut().enumerate() {
        *place = words.next()?.parse().ok()?;
        match words.next()? {
            "," if i < 2 => {}
            other => return Some((size, other)),
        }
    }
    None
}

/// A list of parameters, up to its end.
fn parameters(words: &mut Words<'_>) -> Option<Vec<ParamInfo>> {
    let mut params = Vec::new();
    let mut end = 0u32;
    let mut next = words.next()?;
    while next != ")" {
        if next != ".param" {
            return None;
        }
        let (mut size, mut align, mut of_pointee) = (None, None, false);
        loop {
            next = words.next()?;
            match next {
                ".align" => {
                    let n: u32 = words.next()?.parse().ok()?;
                    // After `.ptr` it is about what the pointer points to.
                    align = if of_pointee { align } else { Some(n) };
                }
                ".ptr" => of_pointee = true,
                "," | ")" => break,
                "[" => {
                    let n: u32 = words.next()?.parse().ok()?;
                    size = Some(n.checked_mul(size?)?);
                    if words.next()? != "]" {
                        return None;
                    }
                }
                word if word.starts_with('.') => {
                    if let Some(bytes) = bytes_of(word) {
                        size = Some(bytes);
                        align = align.or(Some(bytes));
                    } else if !matches!(word, ".global" | ".const" | ".local" | ".shared") {
                        return None;
                    }
                }
                _name => {}
            }
        }
        let (size, align) = (size?, align?);
        // What is aligned more closely, such as a tensor map, lies where the device's own memory for parameters says.
        if !align.is_power_of_two() || align > MOST_ALIGNED {
            return None;
        }
        let offset = end.checked_next_multiple_of(align)?;
        end = offset.checked_add(size)?;
        params.push(ParamInfo { offset, size });
        if next == "," {
            next = words.next()?;
        }
    }
    Some(params)
}

/// Bytes of a value of a type.
fn bytes_of(word: &str) -> Option<u32> {
    Some(match word {
        ".b8" | ".u8" | ".s8" => 1,
        ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => 2,
        ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" => 4,
        ".b64" | ".u64" | ".s64" | ".f64" => 8,
        ".b128" => 16,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
.version 8.0
.target sm_80
.address_size 64
// .globl _Z1kv
// .entry comment(
.entry none
.maxntid 128, 2, 1
{ ret; }
.visible .entry _Z1aPfi(
	.param .u64 .ptr .global .align 4 _Z1aPfi_param_0, // a pointer
	.param .u8 _Z1aPfi_param_1,
	.param .align 8 .b8 _Z1aPfi_param_2[24],
	.param .f32 last
)
.reqntid 32
{
	.reg .b32 %r<2>;
	ret;
}
.visible .entry empty() { ret; }
.visible .entry pairs() .explicitcluster .reqnctapercluster 2, 1, 1 { ret; }
.visible .entry clusters() .maxclusterrank 4 .explicitcluster { ret; }
";

    #[test]
    fn declarations_are_read() {
        let found = kernels(TEXT).unwrap();
        let names: Vec<&str> = found.iter().map(|f| &*f.name).collect();
        assert_eq!(names, ["none", "_Z1aPfi", "empty", "pairs", "clusters"]);
        assert_eq!((found[0].max_threads, found[1].required_block), (256, [32, 1, 1]));
        let places: Vec<_> = found[1].params.iter().map(|p| (p.offset, p.size)).collect();
        assert_eq!(places, [(0, 8), (8, 1), (16, 24), (40, 4)]);
        assert!(found[2].params.is_empty());
        assert_eq!((found[3].cluster.prescribed(), found[3].cluster.must_be_set), (Some([2, 1, 1]), false));
        assert_eq!((found[4].cluster.most, found[4].cluster.must_be_set), (4, true));
    }

    #[test]
    fn the_unusual_is_left_to_the_server() {
        assert!(kernels("/* .entry a( */").is_none());
        assert!(kernels(".entry a(.param .texref t) {}").is_none());
        assert!(kernels(".entry a(.param .u64 p").is_none());
        assert!(kernels(".entry a(.param .align 3 .b8 p[4]) {}").is_none());
        assert!(kernels(".entry a(.param .align 16 .b8 p[16]) {}").is_some());
        assert!(kernels(".entry a(.param .u32 n, .param .align 128 .b8 map[128]) {}").is_none());
        assert_eq!(kernels("nothing here"), Some(Vec::new()));
    }

    /// The compiler sees the same.
    #[cfg(feature = "in-process")]
    #[test]
    fn sketches_agree_with_the_software_gpu() {
        use rgpu_device::{Device, Range};
        struct Nobody;
        impl rgpu_device::Host for Nobody {
            fn print(&self, _: &[u8]) {}
            fn fetch(&self, _: u64, _: &mut [u8]) -> rgpu_device::Result<()> {
                Ok(())
            }
            fn host_func(&self, _: u64) {}
        }
        let config = rgpu_softgpu::Config { workers: 1, ..Default::default() };
        let gpu = rgpu_softgpu::SoftGpu::open(config, std::sync::Arc::new(Nobody)).unwrap();
        let found = (0..16u64)
            .find_map(|i| gpu.reserve(Range { base: 0x2100_0000_0000 + (i << 40), size: 1 << 39 }).ok());
        assert!(found.is_some());
        let info = gpu.module_load(0, 1, TEXT.as_bytes(), &[]).unwrap();
        for sketched in kernels(TEXT).unwrap() {
            let real = info.functions.iter().find(|f| f.name == sketched.name).unwrap();
            assert_eq!((&real.params, real.required_block), (&sketched.params, sketched.required_block));
            assert_eq!(real.cluster, sketched.cluster);
            assert!(sketched.max_threads == 0 || sketched.max_threads == real.max_threads);
        }
    }
}
