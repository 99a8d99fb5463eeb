//! What redirecting needs to know about AArch64.

/// `e_machine` of objects for this processor.
pub(super) const ELF_MACHINE: u16 = object::elf::EM_AARCH64;
/// Whether functions can be redirected.
pub(super) const CAN_REDIRECT: bool = true;
/// How many bytes [`jump`] gives.
pub(super) const JUMP_LENGTH: usize = 16;

const RET: u32 = 0xd65f_03c0;
const NOP: u32 = 0xd503_201f;
/// Where an indirect call may arrive, on processors that check it.
const BTI_C: u32 = 0xd503_245f;

/// `ldr x16, #8; br x16`, and the address. No function gets an argument in x16, or keeps it.
pub(super) fn jump(target: usize) -> [u8; JUMP_LENGTH] {
    let mut code = [0; JUMP_LENGTH];
    code[..4].copy_from_slice(&0x5800_0050_u32.to_le_bytes());
    code[4..8].copy_from_slice(&0xd61f_0200_u32.to_le_bytes());
    code[8..].copy_from_slice(&(target as u64).to_le_bytes());
    code
}

fn words(code: &[u8]) -> impl Iterator<Item = u32> {
    code.chunks_exact(4).filter_map(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)))
}

/// The constants in instructions `mov wN, #constant`.
pub(super) fn stored_constants(code: &[u8]) -> impl Iterator<Item = u32> {
    words(code).filter(|word| word & 0xffe0_0000 == 0x5280_0000).map(|word| word >> 5 & 0xffff)
}

/// Where the `bl` and `b` instructions in a function's code lead. May contain what isn't one.
pub(super) fn calls(code: &[u8], address: u64) -> impl Iterator<Item = u64> {
    words(code).enumerate().filter(|(_, word)| word & 0x7c00_0000 == 0x1400_0000).map(move |(index, word)| {
        let distance = i64::from((word << 6).cast_signed() >> 4);
        address.wrapping_add(4 * index as u64).wrapping_add_signed(distance)
    })
}

/// Makes the empty function at `address` jump to `target`. `false` where it isn't empty, is too far away, or must not be
/// changed.
pub(super) fn hook_breakpoint(address: usize, target: extern "C" fn()) -> bool {
    if address == 0 || !address.is_multiple_of(4) {
        return false;
    }
    // SAFETY: a function of the dynamic loader, which has far more code after it.
    let first = unsafe { *(address as *const u32) };
    // The instruction that arrives stays.
    let at = if first == BTI_C { address + 4 } else { address };
    // SAFETY: as above.
    let code = unsafe { *(at as *const u32) };
    // Other functions follow at once, so there is room for one instruction.
    match branch(at, target as usize) {
        Some(branch) if code == RET => super::redirect::overwrite(at, &branch.to_le_bytes()),
        _ => false,
    }
}

/// `b target`, where that is within 128 MiB.
fn branch(at: usize, target: usize) -> Option<u32> {
    let distance = (target as i64).wrapping_sub(at as i64);
    let near = (-(1 << 27)..1 << 27).contains(&distance) && distance % 4 == 0;
    near.then_some(0x1400_0000 | (distance >> 2) as u32 & 0x03ff_ffff)
}

/// Whether code is nothing but padding. Zeros stand between sections.
pub(super) fn is_padding(code: &[u8]) -> bool {
    code.len().is_multiple_of(4) && words(code).all(|word| word == 0 || word == NOP)
}

/// Makes processors see instructions that were written.
pub(super) fn flush(address: usize, length: usize) {
    unsafe extern "C" {
        /// Of the compiler's own library.
        fn __clear_cache(start: *mut libc::c_char, end: *mut libc::c_char);
    }
    // SAFETY: the range is mapped; its contents do not change.
    unsafe { __clear_cache(address as *mut libc::c_char, (address + length) as *mut libc::c_char) };
}

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
            flush(page as usize, JUMP_LENGTH);
            assert_eq!(libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_EXEC), 0);
            let function: extern "C" fn() -> u64 = std::mem::transmute(page);
            let got = function();
            libc::munmap(page, 4096);
            got
        };
        assert_eq!(got, 42);
    }

    #[test]
    fn branches_reach_128_mebibytes() {
        assert_eq!(branch(0x1000, 0x1008), Some(0x1400_0002));
        assert_eq!(branch(0x1000, 0xffc), Some(0x17ff_ffff));
        assert_eq!(branch(0x1000, 0x1000 + (1 << 27)), None);
        assert_eq!(branch(1 << 30, (1 << 30) - (1 << 27)), Some(0x1600_0000));
    }

    #[test]
    fn padding_constants_and_calls_are_found() {
        let code = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        assert!(is_padding(&code(&[NOP, 0, NOP])) && is_padding(&[]));
        assert!(!is_padding(&code(&[NOP, RET])));
        // mov w1, #13000; str w1, [x0]
        assert_eq!(stored_constants(&code(&[0x5286_5901, 0xb900_0001])).collect::<Vec<_>>(), [13000]);
        // nop; bl +8; b -4
        assert_eq!(calls(&code(&[NOP, 0x9400_0002, 0x17ff_ffff]), 0x100).collect::<Vec<_>>(), [0x10c, 0x104]);
    }
}
