//! Machine code: the target, the functions that refer to one another, and the memory that holds them.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::{self, ExternalName, FuncRef, LibCall, SigRef};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa, TargetFrontendConfig};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{Context, FinalizedRelocTarget};
use cranelift_frontend::FunctionBuilder;
use rgpu_device::{Code, Error};

use super::helpers;
use super::lines::Lines;
use super::relocate::{self, FUNCTIONS, Places, Target};
use super::signature::Table;
use super::verify::{Role, Surroundings};
use rgpu_image::ptx::ast::{Function, FunctionId, Statement};

fn failure(what: impl std::fmt::Display) -> Error {
    Error::new(Code::Unknown, format!("The kernel compiler failed: {what}"))
}

/// The processor that this process runs on.
pub(super) fn target() -> Result<&'static OwnedTargetIsa, Error> {
    static TARGET: OnceLock<Result<OwnedTargetIsa, String>> = OnceLock::new();
    TARGET.get_or_init(|| make_target("speed")).as_ref().map_err(failure)
}

/// The same, for functions that are optimised already.
fn plain_target() -> Result<&'static OwnedTargetIsa, Error> {
    static TARGET: OnceLock<Result<OwnedTargetIsa, String>> = OnceLock::new();
    TARGET.get_or_init(|| make_target("none")).as_ref().map_err(failure)
}

/// The processor that this process runs on, and how code is made for it, in words: what is equal here is made alike.
pub(super) fn description() -> Result<String, Error> {
    let describe = |isa: &OwnedTargetIsa| {
        let flags: Vec<String> = isa.isa_flags().iter().map(ToString::to_string).collect();
        format!("{}\n{}\n{}", isa.triple(), isa.flags(), flags.join("\n"))
    };
    Ok(format!("{}\n{}", describe(target()?), describe(plain_target()?)))
}

fn make_target(opt_level: &str) -> Result<OwnedTargetIsa, String> {
    let mut flags = settings::builder();
    let verify = if cfg!(debug_assertions) { "true" } else { "false" };
    let choices = [
        ("opt_level", opt_level),
        ("enable_verifier", verify),
        ("enable_probestack", "true"),
        ("probestack_strategy", "inline"),
        ("unwind_info", "false"),
        ("is_pic", "false"),
        // Which line code at a block's beginning belongs to.
        ("machine_code_cfg_info", "true"),
    ];
    for (name, value) in choices {
        flags.set(name, value).map_err(|e| e.to_string())?;
    }
    let builder = cranelift_native::builder()?;
    builder.finish(settings::Flags::new(flags)).map_err(|e| e.to_string())
}

/// What one function refers to outside of itself.
pub(super) struct Importer {
    config: TargetFrontendConfig,
    functions: HashMap<FunctionId, FuncRef>,
    signatures: HashMap<(Vec<ir::Type>, Option<ir::Type>), SigRef>,
}

impl Importer {
    /// For a function that has no references yet.
    pub(super) fn new() -> Result<Self, Error> {
        let config = target()?.frontend_config();
        Ok(Self { config, functions: HashMap::new(), signatures: HashMap::new() })
    }

    /// What the front end has to know about the target.
    pub(super) fn frontend_config(&self) -> TargetFrontendConfig {
        self.config
    }

    /// The signature of a function that is not compiled here.
    pub(super) fn helper_signature(
        &mut self,
        b: &mut FunctionBuilder<'_>,
        params: &[ir::Type],
        returns: Option<ir::Type>,
    ) -> SigRef {
        *self.signatures.entry((params.to_vec(), returns)).or_insert_with(|| {
            let mut signature = ir::Signature::new(CallConv::SystemV);
            signature.params.extend(params.iter().map(|&ty| ir::AbiParam::new(ty)));
            signature.returns.extend(returns.iter().map(|&ty| ir::AbiParam::new(ty)));
            b.import_signature(signature)
        })
    }

    /// A reference to another function of the module.
    pub(super) fn function(
        &mut self,
        b: &mut FunctionBuilder<'_>,
        id: FunctionId,
        signature: ir::Signature,
    ) -> FuncRef {
        *self.functions.entry(id).or_insert_with(|| {
            let signature = b.import_signature(signature);
            let name = b.func.declare_imported_user_function(ir::UserExternalName::new(FUNCTIONS, id.0));
            b.import_function(ir::ExtFuncData {
                name: ExternalName::user(name),
                signature,
                colocated: true,
                patchable: false,
            })
        })
    }
}

/// A function's machine code, not yet in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub id: FunctionId,
    pub bytes: Vec<u8>,
    pub align: u32,
    pub references: Vec<Reference>,
    /// Which lines of the PTX text the machine code is made of.
    pub lines: Lines,
}

/// A place in a function's machine code that refers to something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reference {
    pub offset: u32,
    pub kind: Link,
    pub target: Target,
    pub addend: i64,
}

/// What stands at a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    /// The address, in eight bytes.
    Address,
    /// The distance to it from the reference, in four bytes.
    Distance,
    /// A call of AArch64's: the distance in instructions.
    Call,
    /// An instruction of AArch64's that makes the address of the page: the distance in pages.
    Page,
    /// An instruction of AArch64's that adds the place in the page.
    InPage,
}

impl Link {
    /// How many bytes it takes.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Address => 8,
            Self::Distance | Self::Call | Self::Page | Self::InPage => 4,
        }
    }
}

/// Why a function was not compiled.
pub(super) enum Failure {
    /// The compiler says so.
    Error(Error),
    /// It could touch what is not the kernel's: what is wrong, with which statement of the body, and the instruction.
    Uncontained { why: &'static str, statement: usize, text: String },
}

impl Failure {
    /// The error of a kernel whose function it is.
    pub(super) fn of(self, function: &Function, kernel: &Function) -> Error {
        match self {
            Self::Error(error) => error,
            Self::Uncontained { why, statement, text } => {
                let line = match function.body.get(statement) {
                    Some(Statement::Instruction(instruction)) => instruction.line,
                    _ => function.line,
                };
                Error::new(
                    Code::Unknown,
                    format!(
                        "Kernel {} is not run: its machine code could touch memory that is not the kernel's ({why}, from PTX \
                         line {line} in {}: {text}). That is a mistake in rgpu, not in the program; please report it",
                        kernel.name, function.name
                    ),
                )
            }
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Looks whether a function stays inside of what it may touch.
fn verify(function: &ir::Function, role: &Role, around: &Surroundings<'_>) -> Result<(), Failure> {
    super::verify::verify(function, role, around).map_err(|violation| Failure::Uncontained {
        why: violation.why,
        statement: function.srcloc(violation.inst).bits() as usize,
        text: function.dfg.display_inst(violation.inst).to_string(),
    })
}

/// Optimises a function that `emit` makes, and returns what that says of it. Nothing comes of it that [`super::verify`]
/// does not find to stay inside of what it may touch. It looks at what the optimiser has made of the function; where it cannot follow
/// that, the function stays as it was emitted.
pub(super) fn verified<Facts>(
    mut emit: impl FnMut() -> Result<(ir::Function, Facts), Error>,
    role: impl Fn(&Facts) -> Role,
    around: &Surroundings<'_>,
) -> Result<(Context, Facts), Failure> {
    let mut control = cranelift_codegen::control::ControlPlane::default();
    let (function, mut facts) = emit()?;
    let mut context = Context::for_function(function);
    context.optimize(&**target()?, &mut control).map_err(failure)?;
    super::schedule::restore_order(&mut context.func);
    #[cfg(test)]
    super::verify::tests::plant(&mut context.func);
    if verify(&context.func, &role(&facts), around).is_err() {
        let (function, again) = emit()?;
        (context, facts) = (Context::for_function(function), again);
        #[cfg(test)]
        super::verify::tests::plant(&mut context.func);
        verify(&context.func, &role(&facts), around)?;
    }
    Ok((context, facts))
}

/// Compiles a function that `emit` makes.
pub(super) fn compile<Facts>(
    id: FunctionId,
    emit: impl FnMut() -> Result<(ir::Function, Facts), Error>,
    role: impl Fn(&Facts) -> Role,
    around: &Surroundings<'_>,
    body: &Function,
) -> Result<(Piece, Facts), Failure> {
    let (context, facts) = verified(emit, role, around)?;
    Ok((piece(id, context, around, body)?, facts))
}

/// The line of the PTX text that an instruction comes from, whose place is that of a statement in a body; 0 if it comes from none.
pub(super) fn line_of(body: &Function, place: ir::SourceLoc) -> u32 {
    match body.body.get(place.bits() as usize) {
        Some(Statement::Instruction(instruction)) => instruction.line,
        _ => 0,
    }
}

/// Makes machine code of what has been verified.
pub(super) fn piece(
    id: FunctionId,
    mut context: Context,
    around: &Surroundings<'_>,
    body: &Function,
) -> Result<Piece, Error> {
    let mut control = cranelift_codegen::control::ControlPlane::default();
    let places = Places { helpers: around.helpers, table: around.table };
    let others = relocate::symbols(&mut context.func, &places);
    let names = context.func.params.user_named_funcs().clone();
    let isa = plain_target()?;
    let compiled = context.compile(&**isa, &mut control).map_err(|e| failure(format!("{:?}", e.inner)))?;
    let align = compiled.buffer.alignment.max(16);
    let bytes = compiled.buffer.data().to_vec();
    let places = compiled.buffer.get_srclocs_sorted().iter();
    let pieces = places.map(|place| (place.start, place.end, line_of(body, place.loc)));
    let lines = Lines::new(pieces, &compiled.bb_starts);
    let references = compiled
        .buffer
        .relocs()
        .iter()
        .map(|reloc| {
            let target = match &reloc.target {
                FinalizedRelocTarget::Func(offset) => Some(Target::Here(*offset)),
                FinalizedRelocTarget::ExternalName(ExternalName::User(name)) => {
                    relocate::target(&names[*name], &others)
                }
                FinalizedRelocTarget::ExternalName(ExternalName::LibCall(call)) => {
                    Some(relocate::own(library(*call)?))
                }
                _ => None,
            };
            let target = target.ok_or_else(|| failure(format!("an unknown reference {:?}", reloc.target)))?;
            let kind = match reloc.kind {
                Reloc::Abs8 => Link::Address,
                Reloc::X86PCRel4 | Reloc::X86CallPCRel4 | Reloc::X86CallPLTRel4 => Link::Distance,
                Reloc::Arm64Call => Link::Call,
                Reloc::Aarch64AdrPrelPgHi21 => Link::Page,
                Reloc::Aarch64AddAbsLo12Nc => Link::InPage,
                other => return Err(failure(format!("an unknown kind of reference {other:?}"))),
            };
            Ok(Reference { offset: reloc.offset, kind, target, addend: reloc.addend })
        })
        .collect::<Result<_, Error>>()?;
    Ok(Piece { id, bytes, align, references, lines })
}

/// The address of a function that stands in for a missing instruction.
fn library(call: LibCall) -> Result<u64, Error> {
    type F32 = extern "C" fn(f32) -> f32;
    type F64 = extern "C" fn(f64) -> f64;
    Ok(match call {
        LibCall::FmaF32 => helpers::fma32 as extern "C" fn(f32, f32, f32) -> f32 as usize as u64,
        LibCall::FmaF64 => helpers::fma64 as extern "C" fn(f64, f64, f64) -> f64 as usize as u64,
        LibCall::CeilF32 => helpers::ceil32 as F32 as usize as u64,
        LibCall::CeilF64 => helpers::ceil64 as F64 as usize as u64,
        LibCall::FloorF32 => helpers::floor32 as F32 as usize as u64,
        LibCall::FloorF64 => helpers::floor64 as F64 as usize as u64,
        LibCall::TruncF32 => helpers::trunc32 as F32 as usize as u64,
        LibCall::TruncF64 => helpers::trunc64 as F64 as usize as u64,
        LibCall::NearestF32 => helpers::nearest32 as F32 as usize as u64,
        LibCall::NearestF64 => helpers::nearest64 as F64 as usize as u64,
        other => return Err(failure(format!("no function for {other}"))),
    })
}

/// An instruction of AArch64 at an address, with what it refers to.
fn aarch64_reference(kind: Link, instruction: u32, at: u64, target: u64) -> Result<u32, Error> {
    Ok(match kind {
        Link::Call => {
            let distance = target.wrapping_sub(at) as i64;
            if !(-(1 << 27)..1 << 27).contains(&distance) {
                return Err(failure("a function is too far away"));
            }
            instruction & 0xfc00_0000 | (distance >> 2) as u32 & 0x03ff_ffff
        }
        Link::Page => {
            let pages = (target >> 12).wrapping_sub(at >> 12) as i64;
            if !(-(1 << 20)..1 << 20).contains(&pages) {
                return Err(failure("a function is too far away"));
            }
            let pages = pages as u32;
            instruction & 0x9f00_001f | (pages & 3) << 29 | (pages >> 2 & 0x7_ffff) << 5
        }
        Link::InPage => instruction & 0xffc0_03ff | (target as u32 & 0xfff) << 10,
        Link::Address | Link::Distance => return Err(failure("data in the place of an instruction")),
    })
}

/// Functions in executable memory.
pub(super) struct Image {
    start: NonNull<u8>,
    size: usize,
    places: HashMap<FunctionId, usize>,
    /// Which lines the machine code comes from, with where in the image each function begins.
    lines: Vec<(usize, Lines)>,
    /// Kept alive with the code that refers to it.
    table: Arc<Table>,
}

// SAFETY: the memory is owned, and not written after the image is made.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    /// Puts functions into place and resolves what they refer to.
    pub(super) fn new(pieces: &[Piece], table: Arc<Table>) -> Result<Self, Error> {
        let mut places = HashMap::new();
        let mut size = 0usize;
        for piece in pieces {
            size = size.next_multiple_of(piece.align as usize);
            places.insert(piece.id, size);
            size += piece.bytes.len();
        }
        let size = size.next_multiple_of(4096).max(4096);
        // SAFETY: a new private mapping; nothing else is concerned.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let start = if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast::<u8>()) };
        let Some(start) = start else { return Err(failure("no memory for machine code")) };
        let lines = pieces.iter().map(|piece| (places[&piece.id], piece.lines.clone())).collect();
        let mut image = Self { start, size, places, lines, table };
        for piece in pieces {
            image.place(piece)?;
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the range is this image's own mapping.
        unsafe {
            unsafe extern "C" {
                /// Makes processors see instructions that were written; of the compiler's own library.
                fn __clear_cache(start: *mut libc::c_char, end: *mut libc::c_char);
            }
            __clear_cache(start.as_ptr().cast(), start.as_ptr().add(size).cast());
        }
        // SAFETY: the range is this image's own mapping.
        let protected =
            unsafe { libc::mprotect(start.as_ptr().cast(), size, libc::PROT_READ | libc::PROT_EXEC) };
        if protected != 0 {
            return Err(failure("the system does not allow executable memory"));
        }
        Ok(image)
    }

    fn place(&mut self, piece: &Piece) -> Result<(), Error> {
        let base = self.places[&piece.id];
        // SAFETY: the mapping is writable, `size` long, and nobody else knows it yet.
        let memory = unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.size) };
        let start = self.start.as_ptr() as u64;
        memory[base..base + piece.bytes.len()].copy_from_slice(&piece.bytes);
        for reference in &piece.references {
            let target = match reference.target {
                Target::Function(id) => match self.places.get(&id) {
                    Some(&at) => start + at as u64,
                    None => return Err(failure("a function is missing")),
                },
                Target::Own(distance) => relocate::anchor().wrapping_add_signed(distance),
                Target::Table(offset) => self.table.address() + offset,
                Target::Here(offset) => start + base as u64 + u64::from(offset),
            };
            let value = target.wrapping_add(reference.addend as u64);
            let at = base + reference.offset as usize;
            match reference.kind {
                Link::Address => memory[at..at + 8].copy_from_slice(&value.to_le_bytes()),
                Link::Distance => {
                    let distance = value.wrapping_sub(start + at as u64) as i64;
                    let Ok(distance) = i32::try_from(distance) else {
                        return Err(failure("a function is too far away"));
                    };
                    memory[at..at + 4].copy_from_slice(&distance.to_le_bytes());
                }
                kind @ (Link::Call | Link::Page | Link::InPage) => {
                    let instruction = &mut memory[at..at + 4];
                    let old = u32::from_le_bytes([0, 1, 2, 3].map(|byte| instruction[byte]));
                    let new = aarch64_reference(kind, old, start + at as u64, value)?;
                    instruction.copy_from_slice(&new.to_le_bytes());
                }
            }
        }
        Ok(())
    }

    /// How far behind the begin an address lies, if it is one of this machine code.
    fn offset_of(&self, address: u64) -> Option<u64> {
        address.checked_sub(self.start.as_ptr() as u64).filter(|&at| at < self.size as u64)
    }

    /// Whether an address is one of this machine code.
    pub(super) fn contains(&self, address: u64) -> bool {
        self.offset_of(address).is_some()
    }

    /// The line of the PTX text that the machine code at an address comes from: what `find` says of an offset in the function's machine code.
    pub(super) fn line_at(&self, address: u64, find: impl Fn(&Lines, u32) -> Option<u32>) -> Option<u32> {
        let offset = self.offset_of(address)?;
        let (base, lines) =
            self.lines.iter().filter(|(base, _)| *base as u64 <= offset).max_by_key(|l| l.0)?;
        find(lines, (offset - *base as u64) as u32)
    }

    /// The address of a function's code.
    pub(super) fn address(&self, id: FunctionId) -> Option<usize> {
        self.places.get(&id).map(|at| self.start.as_ptr() as usize + at)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: the range is this image's own mapping; kernels that run keep the image alive.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.size) };
    }
}
