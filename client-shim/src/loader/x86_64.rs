//! What redirecting needs to know about x86-64.

/// `e_machine` of objects for this processor.
pub(super) const ELF_MACHINE: u16 = object::elf::EM_X86_64;
/// Whether functions can be redirected.
pub(super) const CAN_REDIRECT: bool = true;
/// How many bytes [`jump`] gives.
pub(super) const JUMP_LENGTH: usize = 13;

/// `movabs $target, %r11; jmp *%r11`. No function gets an argument in r11, or keeps it.
pub(super) fn jump(target: usize) -> [u8; JUMP_LENGTH] {
    let mut code = [0; JUMP_LENGTH];
    code[..2].copy_from_slice(&[0x49, 0xbb]);
    code[2..10].copy_from_slice(&(target as u64).to_le_bytes());
    code[10..].copy_from_slice(&[0x41, 0xff, 0xe3]);
    code
}

/// The constants in instructions `movl $constant, (%rdi)`.
pub(super) fn stored_constants(code: &[u8]) -> impl Iterator<Item = u32> {
    code.windows(6).filter_map(|bytes| match bytes {
        [0xc7, 0x07, constant @ ..] => Some(u32::from_le_bytes(constant.try_into().ok()?)),
        _ => None,
    })
}

/// Where the `call` and `jmp` instructions in a function's code lead. May contain what isn't one.
pub(super) fn calls(code: &[u8], address: u64) -> impl Iterator<Item = u64> {
    code.windows(5).enumerate().filter_map(move |(offset, bytes)| match bytes {
        [0xe8 | 0xe9, distance @ ..] => {
            let distance = i32::from_le_bytes(distance.try_into().ok()?);
            Some(address.wrapping_add(offset as u64 + 5).wrapping_add_signed(distance.into()))
        }
        _ => None,
    })
}

/// Makes the empty function at `address` jump to `target`. `false` where it isn't empty, is followed by too
/// little padding, or must not be changed.
pub(super) fn hook_breakpoint(address: usize, target: extern "C" fn()) -> bool {
    if address == 0 {
        return false;
    }
    // SAFETY: a function of the dynamic loader, which has far more code after it.
    let code = unsafe { std::slice::from_raw_parts(address as *const u8, JUMP_LENGTH) };
    is_empty_function(code) && super::redirect::overwrite(address, &jump(target as usize))
}

/// Whether all that the code does is return, with nothing but padding behind.
fn is_empty_function(code: &[u8]) -> bool {
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code); // endbr64
    let code = code.strip_prefix(&[0xf3]).unwrap_or(code); // rep ret
    code.strip_prefix(&[0xc3]).is_some_and(is_padding)
}

/// Whether code is nothing but padding; its last instruction may reach beyond it. Zeros stand between sections.
pub(super) fn is_padding(code: &[u8]) -> bool {
    let zeros = code.iter().take_while(|byte| **byte == 0).count();
    let mut padding = &code[zeros..];
    while !padding.is_empty() {
        let Some(length) = no_operation(padding) else { return false };
        padding = &padding[length.min(padding.len())..];
    }
    true
}

/// How long the padding instruction at the start of the code is: `int3`, or `nop` in its many lengths. It
/// may reach beyond the code.
fn no_operation(code: &[u8]) -> Option<usize> {
    let prefixes = code.iter().take_while(|byte| matches!(byte, 0x66 | 0x2e)).count();
    match &code[prefixes..] {
        [] | [0x0f] => Some(code.len()),
        [0xcc | 0x90, ..] => Some(prefixes + 1),
        [0x0f, 0x1f] => Some(code.len()),
        [0x0f, 0x1f, modrm, ..] => {
            let displacement = match modrm >> 6 {
                0 => 0,
                1 => 1,
                2 => 4,
                _ => return None,
            };
            let index = usize::from(modrm & 7 == 4);
            Some(prefixes + 3 + index + displacement)
        }
        _ => None,
    }
}

/// Makes processors see instructions that were written: these see them by themselves.
pub(super) fn flush(_: usize, _: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_arrives() {
        extern "C" fn answer() -> u64 {
            42
        }
        let code = jump(answer as *const () as usize);
        // SAFETY: a fresh page, filled with a jump, made executable, and called as what it jumps to.
        let got = unsafe {
            let page = libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(page, libc::MAP_FAILED);
            page.cast::<[u8; JUMP_LENGTH]>().write(code);
            assert_eq!(libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_EXEC), 0);
            let function: extern "C" fn() -> u64 = std::mem::transmute(page);
            let got = function();
            libc::munmap(page, 4096);
            got
        };
        assert_eq!(got, 42);
    }

    #[test]
    fn empty_functions_are_told_from_others() {
        let glibc = [0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f];
        assert!(is_empty_function(&glibc));
        let with_branch_tracking = [0xf3, 0x0f, 0x1e, 0xfa, 0xc3, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0];
        assert!(is_empty_function(&with_branch_tracking));
        let interrupts = [0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc];
        assert!(is_empty_function(&interrupts));
        let neighbour = [0xc3, 0x0f, 0x1f, 0x00, 0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3, 0x90, 0x90, 0x90];
        assert!(!is_empty_function(&neighbour));
        let busy = [0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90];
        assert!(!is_empty_function(&busy));
    }

    #[test]
    fn padding_is_told_from_code() {
        for padding in [&[][..], &[0, 0, 0], &[0xcc, 0x90, 0x0f, 0x1f, 0x00], &[0x66, 0x2e, 0x0f, 0x1f, 0x84]]
        {
            assert!(is_padding(padding), "{padding:x?}");
        }
        for code in [&[0x48, 0x83, 0xec, 0x08][..], &[0x90, 0x90, 0x55], &[0, 0, 0xf3, 0x0f, 0x1e, 0xfa]] {
            assert!(!is_padding(code), "{code:x?}");
        }
    }

    #[test]
    fn constants_and_calls_are_found() {
        // test %rdi,%rdi; je; movl $0x32c8,(%rdi); xor %eax,%eax; ret
        let inner = [0x48, 0x85, 0xff, 0x74, 0x0b, 0xc7, 0x07, 0xc8, 0x32, 0, 0, 0x31, 0xc0, 0xc3];
        assert_eq!(stored_constants(&inner).collect::<Vec<_>>(), [13000]);
        // mov %r12,%rdi; call -0x44d39
        let outer = [0x4c, 0x89, 0xe7, 0xe8, 0xc4, 0xb2, 0xfb, 0xff];
        assert_eq!(calls(&outer, 0x5b2c4).collect::<Vec<_>>(), [0x16590]);
    }
}
