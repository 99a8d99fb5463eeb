//! Formatting what kernels print, as C's printf does.
//!
//! The arguments lie in a buffer as CUDA's compiler packs them: each aligned to its size, `float` widened
//! to `double`, what is smaller than an `int` widened to one.

/// More arguments than this are an error in CUDA.
const MOST_ARGUMENTS: usize = 32;

/// Access to the kernel's memory. Reading fails where there is none.
pub(super) trait Memory {
    /// Reads bytes.
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Option<()>;

    /// Reads up to the next NUL, at most `limit` bytes.
    fn string(&mut self, addr: u64, limit: usize) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let mut at = addr;
        while text.len() < limit {
            // Never beyond a page that the string may end in.
            let room = (4096 - (at % 4096) as usize).min(limit - text.len()).min(256);
            let mut part = [0; 256];
            self.read(at, &mut part[..room])?;
            if let Some(end) = part[..room].iter().position(|&b| b == 0) {
                text.extend_from_slice(&part[..end]);
                return Some(text);
            }
            text.extend_from_slice(&part[..room]);
            at += room as u64;
        }
        Some(text)
    }
}

/// Why nothing was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// A pointer leads nowhere.
    Address,
    /// Too many arguments.
    Arguments,
}

struct Arguments<'a, M> {
    memory: &'a mut M,
    base: u64,
    offset: u64,
    count: usize,
}

impl<M: Memory> Arguments<'_, M> {
    fn next<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        self.count += 1;
        if self.count > MOST_ARGUMENTS {
            return Err(Failure::Arguments);
        }
        let mut bytes = [0; N];
        self.offset = self.offset.next_multiple_of(N as u64);
        self.memory.read(self.base.wrapping_add(self.offset), &mut bytes).ok_or(Failure::Address)?;
        self.offset += N as u64;
        Ok(bytes)
    }

    fn int(&mut self) -> Result<i32, Failure> {
        Ok(i32::from_le_bytes(self.next()?))
    }
}

/// The longest text of one conversion, whatever width or precision it asks for.
const LONGEST: i32 = 1 << 16;
/// The longest format or string.
const LONGEST_STRING: usize = 1 << 20;

/// Formats; the text and the number of arguments.
pub(super) fn format<M: Memory>(memory: &mut M, format: u64, args: u64) -> Result<(Vec<u8>, usize), Failure> {
    let format = memory.string(format, LONGEST_STRING).ok_or(Failure::Address)?;
    let mut args = Arguments { memory, base: args, offset: 0, count: 0 };
    let mut text = Vec::with_capacity(format.len() + 32);
    let mut rest = &format[..];
    while let Some(percent) = rest.iter().position(|&b| b == b'%') {
        text.extend_from_slice(&rest[..percent]);
        rest = &rest[percent..];
        let used = conversion(rest, &mut args, &mut text)?;
        rest = &rest[used..];
    }
    text.extend_from_slice(rest);
    Ok((text, args.count))
}

/// Carries out the conversion that `spec` begins with and returns its length.
fn conversion<M: Memory>(
    spec: &[u8],
    args: &mut Arguments<'_, M>,
    text: &mut Vec<u8>,
) -> Result<usize, Failure> {
    let mut at = 1;
    let byte = |at: usize| spec.get(at).copied().unwrap_or(0);
    let mut clean = vec![b'%'];
    while matches!(byte(at), b'-' | b'+' | b' ' | b'#' | b'0') {
        clean.push(byte(at));
        at += 1;
    }
    // Width and precision, each a number or an argument.
    for part in 0..2 {
        if part == 1 {
            if byte(at) != b'.' {
                break;
            }
            at += 1;
        }
        let mut value: Option<i32> = (part == 1).then_some(0);
        if byte(at) == b'*' {
            at += 1;
            value = Some(args.int()?);
        } else {
            while byte(at).is_ascii_digit() {
                let digit = i32::from(byte(at) - b'0');
                value = Some(value.unwrap_or(0).saturating_mul(10).saturating_add(digit));
                at += 1;
            }
        }
        match (part, value) {
            (_, None) => {}
            (0, Some(width)) => {
                if width < 0 {
                    clean.push(b'-');
                }
                clean.extend_from_slice(width.unsigned_abs().min(LONGEST as u32).to_string().as_bytes());
            }
            // A negative precision counts as none.
            (_, Some(precision)) if precision < 0 => {}
            (_, Some(precision)) => {
                clean.push(b'.');
                clean.extend_from_slice(precision.min(LONGEST).to_string().as_bytes());
            }
        }
    }
    let length = at;
    while matches!(byte(at), b'h' | b'l' | b'j' | b'z' | b't' | b'L' | b'q') {
        at += 1;
    }
    let modifier = &spec[length.min(spec.len())..at.min(spec.len())];
    let kind = byte(at);
    match kind {
        b'%' => {
            text.push(b'%');
            return Ok(at + 1);
        }
        b'd' | b'i' | b'u' | b'x' | b'X' | b'o' => {
            let value = match modifier {
                b"l" | b"ll" | b"j" | b"z" | b"t" | b"q" | b"L" => i64::from_le_bytes(args.next()?),
                b"hh" if kind == b'd' || kind == b'i' => i64::from(args.int()? as i8),
                b"h" if kind == b'd' || kind == b'i' => i64::from(args.int()? as i16),
                b"hh" => i64::from(args.int()? as u8),
                b"h" => i64::from(args.int()? as u16),
                _ if kind == b'd' || kind == b'i' => i64::from(args.int()?),
                _ => i64::from(args.int()? as u32),
            };
            clean.extend_from_slice(&[b'l', b'l', kind, 0]);
            print(&clean, Value::Integer(value), text);
        }
        b'c' => {
            let value = args.int()?;
            clean.extend_from_slice(b"c\0");
            print(&clean, Value::Char(value), text);
        }
        b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
            let value = f64::from_le_bytes(args.next()?);
            clean.extend_from_slice(&[kind, 0]);
            print(&clean, Value::Double(value), text);
        }
        b'p' => {
            let value = u64::from_le_bytes(args.next()?);
            clean.extend_from_slice(b"p\0");
            print(&clean, Value::Pointer(value), text);
        }
        b's' => {
            let pointer = u64::from_le_bytes(args.next()?);
            let mut string = if pointer == 0 {
                b"(null)".to_vec()
            } else {
                args.memory.string(pointer, LONGEST_STRING).ok_or(Failure::Address)?
            };
            string.push(0);
            clean.extend_from_slice(b"s\0");
            print(&clean, Value::String(&string), text);
        }
        _ => {
            // Not a conversion: it stands for itself.
            let end = at.min(spec.len()).max(1);
            text.extend_from_slice(&spec[..end]);
            return Ok(end);
        }
    }
    Ok(at + 1)
}

enum Value<'a> {
    Integer(i64),
    Char(i32),
    Double(f64),
    Pointer(u64),
    String(&'a [u8]),
}

/// One conversion by the C library itself; `spec` is NUL-terminated and fits the value.
fn print(spec: &[u8], value: Value<'_>, text: &mut Vec<u8>) {
    let spec = spec.as_ptr().cast();
    let write = |out: *mut libc::c_char, room: usize| {
        // SAFETY: the specification has exactly one conversion, of the value's type, without `*`; the
        // output is as large as said; strings end in NUL.
        let len = unsafe {
            match value {
                Value::Integer(v) => libc::snprintf(out, room, spec, v as libc::c_longlong),
                Value::Char(v) => libc::snprintf(out, room, spec, v as libc::c_int),
                Value::Double(v) => libc::snprintf(out, room, spec, v),
                Value::Pointer(v) => libc::snprintf(out, room, spec, v as *const libc::c_void),
                Value::String(v) => libc::snprintf(out, room, spec, v.as_ptr()),
            }
        };
        usize::try_from(len).unwrap_or(0)
    };
    let mut small = [0u8; 128];
    let len = write(small.as_mut_ptr().cast(), small.len());
    if len < small.len() {
        text.extend_from_slice(&small[..len]);
        return;
    }
    let mut large = vec![0u8; len + 1];
    write(large.as_mut_ptr().cast(), large.len());
    text.extend_from_slice(&large[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory from address 4096 on.
    struct Bytes(Vec<u8>);

    impl Memory for Bytes {
        fn read(&mut self, addr: u64, buf: &mut [u8]) -> Option<()> {
            let at = addr.checked_sub(4096)? as usize;
            // As device memory, it goes on to the end of the page.
            let have = self.0.len().next_multiple_of(4096);
            self.0.resize(have, 0);
            buf.copy_from_slice(self.0.get(at..at.checked_add(buf.len())?)?);
            Some(())
        }
    }

    fn printed(text: &str, args: &[u8], extra: &[u8]) -> Result<(String, usize), Failure> {
        let mut bytes = vec![0; 4096];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes[1024..1024 + args.len()].copy_from_slice(args);
        bytes[2048..2048 + extra.len()].copy_from_slice(extra);
        let (text, count) = format(&mut Bytes(bytes), 4096, 4096 + 1024)?;
        Ok((String::from_utf8_lossy(&text).into_owned(), count))
    }

    #[test]
    fn conversions_match_c() {
        let mut args = Vec::new();
        args.extend((-7i32).to_le_bytes());
        args.extend([0; 4]);
        args.extend(1.5f64.to_le_bytes());
        args.extend((-1i64).to_le_bytes());
        args.extend(255u32.to_le_bytes());
        args.extend((b'z' as i32).to_le_bytes());
        args.extend((4096u64 + 2048).to_le_bytes());
        let (text, count) = printed("%5d|%-8.3f|%lld|%#x|%c|%s|100%%\n", &args, b"hello\0").unwrap();
        assert_eq!(text, "   -7|1.500   |-1|0xff|z|hello|100%\n");
        assert_eq!(count, 6);
    }

    #[test]
    fn width_and_precision_may_be_arguments() {
        let mut args = Vec::new();
        for v in [6i32, 2] {
            args.extend(v.to_le_bytes());
        }
        args.extend(std::f64::consts::PI.to_le_bytes());
        args.extend((-4i32).to_le_bytes());
        args.extend(300i32.to_le_bytes());
        let (text, _) = printed("[%*.*f][%*hhu]", &args, b"").unwrap();
        assert_eq!(text, "[  3.14][44  ]");
    }

    #[test]
    fn odd_formats_print_themselves_and_bad_pointers_fail() {
        assert_eq!(printed("50%% %y %", &[], b"").unwrap().0, "50% %y %");
        assert_eq!(printed("%s", &7u64.to_le_bytes(), b""), Err(Failure::Address));
        assert_eq!(printed("%s", &0u64.to_le_bytes(), b"").unwrap().0, "(null)");
        let many = "%d".repeat(33);
        assert_eq!(printed(&many, &[0; 256], b""), Err(Failure::Arguments));
        let wide = printed("%999999999d", &1i32.to_le_bytes(), b"").unwrap().0;
        assert_eq!(wide.len(), LONGEST as usize);
    }
}
