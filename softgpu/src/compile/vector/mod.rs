//! The second tier: a kernel for several consecutive threads at a time (a group: one of [`WIDTHS`]), as LLVM's vector code.
//!
//! It is made of what the first tier was made of, after that was verified: each instruction of Cranelift's does for each lane what it
//! did for a thread, so that each lane's addresses are the confined ones. No arithmetic is changed on the way. A kernel in which
//! something is not translated stays in the first tier, and so does every kernel where the machine has no libLLVM.
//!
//! `flow` orders the blocks, `shape` finds out what is the same in all lanes and where lanes may be apart, `segments` and `phases` divide the
//! code into what all groups of a block do before they go on, `translate`, `compute`, `ends` and
//! `effects` write LLVM's text, `llvm` has the machine's libLLVM compile it, `object` makes one run of bytes of that, and `kept` has these
//! come back in later processes.

mod compute;
mod debug;
mod effects;
mod ends;
#[cfg(target_arch = "x86_64")]
mod exit;
mod flow;
mod kept;
mod llvm;
mod multiples;
mod object;
mod operands;
mod phases;
mod rows;
mod segments;
mod shape;
mod split;
mod structures;
mod translate;
mod whole;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cranelift_codegen::ir;
use rgpu_device::{Code, Error};
use rgpu_image::ptx::ast::{Function, FunctionId, Locations};

use self::translate::Translator;
use super::code::{Image, Link, Piece, Reference};
use super::lines::Origins;
use super::relocate::{self, Places};
use super::signature::Table;
use crate::abi::{Cell, Cut, RunFn, Vectors, WIDTHS, width_index};

pub(super) use kept::name;

/// The environment variable that says when kernels are compiled for vectors of threads.
pub const VARIABLE: &str = "RGPU_VECTORS";

/// Whether this process cannot open libraries, and has not opened libLLVM before that.
static CLOSED: AtomicBool = AtomicBool::new(false);

#[cfg(test)]
thread_local! {
    /// For tests: when this thread compiles for vectors, whatever the environment says.
    pub(crate) static CHOSEN: std::cell::Cell<Option<Mode>> = const { std::cell::Cell::new(None) };
}

/// Opens libLLVM now, where the environment asks for code for vectors of threads by name: in a process that is going to be confined, and
/// cannot open a library then.
pub fn open_before_confinement() {
    if wanted().is_some_and(|wanted| wanted != Mode::Off) {
        let _ = possible();
    }
}

/// From now on no library is opened: kernels are compiled for vectors of threads only if that was prepared for.
pub(crate) fn close() {
    if !llvm::is_open() {
        CLOSED.store(true, Ordering::Relaxed);
    }
}

/// When kernels are compiled for vectors of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Never.
    Off,
    /// In the background, when they have taken long enough, and run so where that takes less time.
    Auto,
    /// Before they are first launched, and always run so.
    First,
    /// Likewise, and in groups of the second size where their blocks have rows of those.
    Wide,
    /// Likewise, and in groups of a whole warp where their blocks consist of those.
    Warp,
}

impl Mode {
    /// Those in which there is code for vectors before a kernel is first launched, for tests that take them by turns.
    #[cfg(test)]
    pub(crate) fn by_turns(turn: u64) -> Self {
        [Self::First, Self::Wide, Self::Warp][(turn % 3) as usize]
    }

    /// The sizes of groups that there is to be code for before a kernel is first launched.
    pub(crate) fn at_once(self) -> &'static [usize] {
        match self {
            Self::Off | Self::Auto => &[],
            Self::First => &[WIDTHS[0]],
            Self::Wide => &[WIDTHS[0], WIDTHS[1]],
            Self::Warp => &[WIDTHS[0], WIDTHS[2]],
        }
    }
}

/// When this process compiles kernels for vectors of threads.
pub fn mode() -> Mode {
    static WANTED: OnceLock<Mode> = OnceLock::new();
    if CLOSED.load(Ordering::Relaxed) {
        return Mode::Off;
    }
    #[cfg(test)]
    if let Some(chosen) = CHOSEN.get() {
        return if possible().is_ok() { chosen } else { Mode::Off };
    }
    *WANTED.get_or_init(|| match wanted() {
        // Nothing is opened before there is something to compile.
        wanted if has_vectors() => wanted.unwrap_or(Mode::Auto),
        _ => Mode::Off,
    })
}

/// This thread launches kernels: if it ends the process, the process waits for who compiles, or at least for the library to be open. Must not be called
/// with a lock held, for what is done the first time takes the dynamic loader's.
pub(crate) fn note_launch() {
    if mode() != Mode::Off {
        llvm::wait_when_thread_ends();
    }
}

/// What the environment says, if it says anything.
fn wanted() -> Option<Mode> {
    std::env::var_os(VARIABLE).map(|value| match value.to_str() {
        Some("first") => Mode::First,
        Some("wide") => Mode::Wide,
        Some("warp") => Mode::Warp,
        Some("auto") => Mode::Auto,
        _ => Mode::Off,
    })
}

/// Whether what LLVM is given and makes, and why a kernel stays in the first tier, is shown: for who works on this.
const SHOWS: bool = false;

/// Says what keeps a kernel in the first tier, for who works on it.
pub(super) fn say(kernel: &str, why: &str) {
    if SHOWS {
        eprintln!("{kernel} stays in the first tier: {why}");
    }
}

/// Whether this machine can run such code, and why not.
pub fn possible() -> Result<(), String> {
    if has_vectors() { llvm::available() } else { Err("the processor has no vectors of 256 bits".into()) }
}

/// Whether the processor has the vectors.
fn has_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

static KERNELS: AtomicU64 = AtomicU64::new(0);

/// How many kernels this process has code of for vectors of threads, compiled or kept.
pub fn kernels() -> u64 {
    KERNELS.load(Ordering::Relaxed)
}

/// A kernel for vectors of threads, not in its place yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Made {
    /// Bytes of its threads' states.
    pub state_bytes: u32,
    /// Bytes of its threads' local memory.
    pub local_bytes: u32,
    /// Threads of a group.
    pub lanes: usize,
    /// What it keeps of the states.
    pub cells: Vec<Cell>,
    /// See [`Vectors::phases`].
    pub phases: bool,
    /// The machine code.
    pub piece: Piece,
    /// Whether it means the same in every process.
    pub is_movable: bool,
}

/// Why there is no code for vectors of threads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotMade {
    /// There can be none.
    Refused(String),
    /// Making it takes about so many nanoseconds, which is more than it may.
    Costs(u64),
}

impl From<String> for NotMade {
    fn from(why: String) -> Self {
        Self::Refused(why)
    }
}

/// The longest that LLVM may work on a kernel, in nanoseconds.
const MOST_NANOSECONDS: u64 = 10_000_000_000;

/// What takes no longer than this, in nanoseconds, is compiled at once: later processes find it.
const SOON: u64 = 1_500_000_000;

/// About how many nanoseconds LLVM takes for a text of so many bytes, made of a function of so many blocks and instructions, as measured: where values live through
/// many blocks, each instruction takes longer.
fn nanoseconds_of(bytes: usize, (blocks, instructions): (usize, usize)) -> u64 {
    const FOR_A_BYTE: u64 = 700;
    const FOR_A_BLOCK_AND_INSTRUCTION: u64 = 800;
    bytes as u64 * FOR_A_BYTE + blocks as u64 * instructions as u64 * FOR_A_BLOCK_AND_INSTRUCTION
}

/// Who compiles: a process that ends waits until this is gone.
pub(super) struct Compiler(llvm::Busy);

impl Compiler {
    /// Begins to compile; not where the process ends already, or where there is no libLLVM. Whoever has one must not ask for another. Where a launch `waits`
    /// for this, it does not wait for ever until the library is open.
    pub(super) fn begin(waits: bool) -> Result<Self, String> {
        if waits {
            llvm::open_soon()?;
        }
        // The process waits for the opening of the library, too.
        let busy = llvm::Busy::begin()?;
        possible()?;
        Ok(Self(busy))
    }

    /// Compiles a verified kernel, whose threads have so many bytes of state and of local memory, and these cuts, for groups of `lanes` threads, or says what
    /// keeps it in the first tier. `body` is what the function was made of, and `places` says where this library's functions are, and `most` how many nanoseconds it may take, about.
    pub(super) fn compile(
        &self,
        (id, lanes): (FunctionId, usize),
        (func, body): (&ir::Function, &Function),
        (state_bytes, local_bytes): (u32, u32),
        cuts: &[Cut],
        places: &Places<'_>,
        most: u64,
    ) -> Result<Made, NotMade> {
        if SHOWS {
            eprintln!("{}", func.display());
        }
        let own;
        let (func, flow) = match flow::Flow::new(func) {
            Err(why) if why == flow::SEVERAL => {
                own = split::with_single_beginnings(func, flow::beginning(func)?.1)?;
                (&own, flow::Flow::new(&own)?)
            }
            flow => (func, flow?),
        };
        let shapes = shape::Shapes::new(func, &flow, state_bytes, shape::Span::Group)?;
        let attributes = llvm::processor()?;
        let translate = match width_index(lanes) {
            0 => Translator::<{ WIDTHS[0] }>::translate,
            1 => Translator::<{ WIDTHS[1] }>::translate,
            _ => Translator::<{ WIDTHS[2] }>::translate,
        };
        let translated = translate(func, &flow, &shapes, cuts, &attributes, places, body)?;
        if SHOWS {
            eprintln!("{}", translated.text);
        }
        let size = (func.layout.blocks().count(), func.dfg.num_insts());
        match nanoseconds_of(translated.own_bytes, size) {
            MOST_NANOSECONDS.. => return Err("LLVM would take too long".to_owned().into()),
            // What is there already is good enough for the time being.
            needed if lanes != WIDTHS[0] && needed > most => return Err(NotMade::Costs(needed)),
            needed if needed > most.max(SOON) => return Err(NotMade::Costs(needed)),
            _ => {}
        }
        let file = llvm::compile(&translated.text, &self.0)?;
        let linked = object::link(&file, translated.addresses.len())?;
        let offsets = (linked.addresses as u32..).step_by(8);
        let references = translated.addresses.iter().zip(offsets);
        let references = references
            .map(|(&target, offset)| Reference { offset, kind: Link::Address, target, addend: 0 })
            .collect();
        let (bytes, lines) = (linked.bytes, linked.lines);
        let is_movable = translated.is_movable && relocate::is_movable(&bytes, places.table);
        let piece = Piece { id, bytes, align: 64, references, lines };
        let (cells, phases) = (translated.cells, translated.phases);
        Ok(Made { state_bytes, local_bytes, lanes, cells, phases, piece, is_movable })
    }
}

impl Made {
    /// Puts it into its place in this process.
    pub(super) fn place(self, table: Arc<Table>, source: Arc<Locations>) -> Result<Vectors, Error> {
        let id = self.piece.id;
        let image = Image::new(&[self.piece], table)?;
        let missing = || Error::new(Code::Unknown, "The compiled kernel is not in its place");
        let address = image.address(id).ok_or_else(missing)?;
        // SAFETY: the translator gives the function the signature of `RunFn`.
        let run = unsafe { std::mem::transmute::<usize, RunFn>(address) };
        KERNELS.fetch_add(1, Ordering::Relaxed);
        let Self { lanes, cells, phases, local_bytes, .. } = self;
        Ok(Vectors {
            run,
            lanes,
            cells,
            phases,
            local_bytes,
            code: Arc::new(Origins { image: Arc::new(image), source }),
        })
    }
}
