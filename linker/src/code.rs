//! The machine code of the functions that a link gets.

use object::{Architecture, elf};

/// A processor that is linked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

/// A function's code.
#[derive(Debug, Default)]
pub(crate) struct Code {
    /// The instructions.
    pub bytes: Vec<u8>,
    /// What in them the linker fills in.
    pub references: Vec<Reference>,
}

/// A place in code that depends on where a symbol is.
#[derive(Debug)]
pub(crate) struct Reference {
    /// Bytes from the code's beginning.
    pub at: u64,
    pub symbol: String,
    /// The relocation's type in ELF.
    pub kind: u32,
    pub addend: i64,
}

/// A system call that has no function of its own in glibc 2.28. The kernel's `struct stat` is the C library's.
pub(crate) struct SystemCall {
    /// The function.
    pub name: &'static str,
    /// Its number on x86-64.
    x86_64: u32,
    /// Its number on AArch64, and the flags of `fstatat`, which stands there for calls that take a path alone.
    aarch64: (u32, Option<u16>),
}

const AT_SYMLINK_NOFOLLOW: u16 = 0x100;

const fn call(name: &'static str, x86_64: u32, aarch64: u32, flags: Option<u16>) -> SystemCall {
    SystemCall { name, x86_64, aarch64: (aarch64, flags) }
}

/// Those calls.
pub(crate) const SYSTEM_CALLS: [SystemCall; 9] = [
    call("stat", 4, 79, Some(0)),
    call("stat64", 4, 79, Some(0)),
    call("fstat", 5, 80, None),
    call("fstat64", 5, 80, None),
    call("lstat", 6, 79, Some(AT_SYMLINK_NOFOLLOW)),
    call("lstat64", 6, 79, Some(AT_SYMLINK_NOFOLLOW)),
    call("fstatat", 262, 79, None),
    call("fstatat64", 262, 79, None),
    call("gettid", 186, 178, None),
];

impl Code {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend(bytes);
        self
    }

    fn words(&mut self, words: &[u32]) -> &mut Self {
        words.iter().for_each(|word| self.bytes.extend(word.to_le_bytes()));
        self
    }

    /// x86-64: four bytes with the distance to a symbol.
    fn distance(&mut self, symbol: &str, kind: u32) -> &mut Self {
        let at = self.bytes.len() as u64;
        self.references.push(Reference { at, symbol: symbol.to_owned(), kind, addend: -4 });
        self.bytes(&[0; 4])
    }

    /// AArch64: an instruction with a part of a symbol's address.
    fn word(&mut self, word: u32, symbol: &str, kind: u32) -> &mut Self {
        let at = self.bytes.len() as u64;
        self.references.push(Reference { at, symbol: symbol.to_owned(), kind, addend: 0 });
        self.words(&[word])
    }
}

impl Machine {
    /// By what Rust calls it.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    pub(crate) fn architecture(self) -> Architecture {
        match self {
            Self::X86_64 => Architecture::X86_64,
            Self::Aarch64 => Architecture::Aarch64,
        }
    }

    /// The version that most functions of the C library have, of the first glibc for this processor.
    pub(crate) fn first_version(self) -> &'static str {
        match self {
            Self::X86_64 => "GLIBC_2.2.5",
            Self::Aarch64 => "GLIBC_2.17",
        }
    }

    /// Code that is never run.
    pub(crate) fn trap(self) -> Code {
        let mut code = Code::default();
        match self {
            Self::X86_64 => code.bytes(&[0x0f, 0x0b]),   // ud2
            Self::Aarch64 => code.words(&[0x0000_0000]), // udf #0
        };
        code
    }

    /// A jump to another function.
    pub(crate) fn jump(self, target: &str) -> Code {
        let mut code = Code::default();
        match self {
            Self::X86_64 => code.bytes(&[0xe9]).distance(target, elf::R_X86_64_PLT32), // jmp target
            Self::Aarch64 => code.word(0x1400_0000, target, elf::R_AARCH64_JUMP26),    // b target
        };
        code
    }

    /// A system call as a function that sets errno.
    pub(crate) fn system_call(self, call: &SystemCall) -> Code {
        let mut code = Code::default();
        match self {
            Self::X86_64 => {
                code.bytes(&[0xb8]).bytes(&call.x86_64.to_le_bytes()); // mov $number, %eax
                code.bytes(&[0x49, 0x89, 0xca]); // mov %rcx, %r10: the fourth argument, if there is one
                code.bytes(&[0x0f, 0x05]); // syscall
                code.bytes(&[0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff]); // cmp $-4095, %rax
                code.bytes(&[0x73, 0x01, 0xc3]); // jae over; ret
                code.bytes(&[0xf7, 0xd8, 0x50]); // over: neg %eax; push %rax
                code.bytes(&[0xe8]).distance("__errno_location", elf::R_X86_64_PLT32); // call __errno_location
                code.bytes(&[0x5a, 0x89, 0x10]); // pop %rdx; mov %edx, (%rax)
                code.bytes(&[0xb8, 0xff, 0xff, 0xff, 0xff, 0xc3]); // mov $-1, %eax; ret
            }
            Self::Aarch64 => {
                let (number, flags) = call.aarch64;
                if let Some(flags) = flags {
                    code.words(&[
                        0xd280_0003 | u32::from(flags) << 5, // mov x3, #flags
                        0xaa01_03e2,                         // mov x2, x1
                        0xaa00_03e1,                         // mov x1, x0
                        0x9280_0c60,                         // mov x0, #-100: AT_FDCWD
                    ]);
                }
                code.words(&[
                    0xd280_0008 | number << 5, // mov x8, #number
                    0xd400_0001,               // svc #0
                    0xb13f_fc1f,               // cmn x0, #4095
                    0x5400_0042,               // b.hs over
                    0xd65f_03c0,               // ret
                    0xa9be_7bfd,               // over: stp x29, x30, [sp, #-32]!
                    0xf900_0be0,               // str x0, [sp, #16]
                ]);
                code.word(0x9400_0000, "__errno_location", elf::R_AARCH64_CALL26); // bl __errno_location
                code.words(&[
                    0xf940_0be1, // ldr x1, [sp, #16]
                    0x4b01_03e1, // neg w1, w1
                    0xb900_0001, // str w1, [x0]
                    0x1280_0000, // mov w0, #-1
                    0xa8c2_7bfd, // ldp x29, x30, [sp], #32
                    0xd65f_03c0, // ret
                ]);
            }
        }
        code
    }

    /// A start of programs that hands the C library's own a function to run their constructors with: the fourth argument.
    pub(crate) fn start(self, libc_start: &str) -> Code {
        let mut code = Code::default();
        match self {
            Self::X86_64 => {
                code.bytes(&[0x48, 0x8d, 0x0d, 5, 0, 0, 0]); // lea init(%rip), %rcx
                code.bytes(&[0xe9]).distance(libc_start, elf::R_X86_64_PLT32); // jmp libc_start
                code.bytes(&[0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56]); // init: push rbx, rbp, r12, r13, r14
                code.bytes(&[0x89, 0xfd, 0x49, 0x89, 0xf4, 0x49, 0x89, 0xd5]); // mov edi, ebp; rsi, r12; rdx, r13
                code.bytes(&[0xe8]).distance("_init", elf::R_X86_64_PLT32); // call _init
                code.bytes(&[0x48, 0x8d, 0x1d]).distance("__init_array_start", elf::R_X86_64_PC32); // lea, rbx
                code.bytes(&[0x4c, 0x8d, 0x35]).distance("__init_array_end", elf::R_X86_64_PC32); // lea, r14
                code.bytes(&[0x4c, 0x39, 0xf3, 0x73, 0x10]); // next: cmp r14, rbx; jae end
                code.bytes(&[0x89, 0xef, 0x4c, 0x89, 0xe6, 0x4c, 0x89, 0xea]); // mov ebp, edi; r12, rsi; r13, rdx
                code.bytes(&[0xff, 0x13]); // call *(%rbx)
                code.bytes(&[0x48, 0x83, 0xc3, 0x08, 0xeb, 0xeb]); // add $8, %rbx; jmp next
                code.bytes(&[0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5d, 0x5b, 0xc3]); // end: pop all; ret
            }
            Self::Aarch64 => {
                code.words(&[0x1000_0043]); // adr x3, init
                code.word(0x1400_0000, libc_start, elf::R_AARCH64_JUMP26); // b libc_start
                code.words(&[
                    0xa9bc_7bfd, // init: stp x29, x30, [sp, #-64]!
                    0x9100_03fd, // mov x29, sp
                    0xa901_53f3, // stp x19, x20, [sp, #16]
                    0xa902_5bf5, // stp x21, x22, [sp, #32]
                    0xf900_1bf7, // str x23, [sp, #48]
                    0xaa00_03f3, // mov x19, x0
                    0xaa01_03f4, // mov x20, x1
                    0xaa02_03f5, // mov x21, x2
                ]);
                code.word(0x9400_0000, "_init", elf::R_AARCH64_CALL26); // bl _init
                for (page, offset, symbol) in [
                    (0x9000_0016, 0x9100_02d6, "__init_array_start"), // adrp x22; add x22, x22
                    (0x9000_0017, 0x9100_02f7, "__init_array_end"),   // adrp x23; add x23, x23
                ] {
                    code.word(page, symbol, elf::R_AARCH64_ADR_PREL_PG_HI21);
                    code.word(offset, symbol, elf::R_AARCH64_ADD_ABS_LO12_NC);
                }
                code.words(&[
                    0xeb17_02df, // next: cmp x22, x23
                    0x5400_00e2, // b.hs end
                    0xaa13_03e0, // mov x0, x19
                    0xaa14_03e1, // mov x1, x20
                    0xaa15_03e2, // mov x2, x21
                    0xf840_86c3, // ldr x3, [x22], #8
                    0xd63f_0060, // blr x3
                    0x17ff_fff9, // b next
                    0xf940_1bf7, // end: ldr x23, [sp, #48]
                    0xa942_5bf5, // ldp x21, x22, [sp, #32]
                    0xa941_53f3, // ldp x19, x20, [sp, #16]
                    0xa8c4_7bfd, // ldp x29, x30, [sp], #64
                    0xd65f_03c0, // ret
                ]);
            }
        }
        code
    }
}
