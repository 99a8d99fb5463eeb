//! From PTX to machine code.
//!
//! [`Program::new`] decodes every instruction of a module, so that whatever cannot be executed is refused
//! when the module is loaded, by name and line. [`Program::link`] fixes the addresses of the module's
//! variables; [`Linked::kernel`] compiles a kernel the first time that it is asked for. What compiled
//! code expects of its surroundings is described in [`crate::abi`].

use std::collections::HashMap;
use std::sync::Arc;

use rgpu_device::{Error, FunctionInfo, GlobalKind, Range};

use crate::abi;
use crate::ptx::ast::Module;

/// A module whose every instruction can be compiled.
pub struct Program {}

/// A variable of a module, to be placed in memory by the executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalLayout {
    /// Its name.
    pub name: String,
    /// Its size in bytes (may be 0).
    pub size: u64,
    /// What its address has to be a multiple of.
    pub align: u64,
    /// Its state space.
    pub kind: GlobalKind,
    /// Its first bytes; the rest is zeros.
    pub bytes: Vec<u8>,
    /// Addresses to be added into the bytes.
    pub relocations: Vec<GlobalRelocation>,
}

/// The address of a variable inside the initial value of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalRelocation {
    /// Where the 64-bit address is stored, in bytes from the start of the variable.
    pub offset: u64,
    /// The variable whose address it is.
    pub symbol: String,
    /// Added to the address.
    pub addend: i64,
}

/// Where a program is going to run.
#[derive(Debug, Clone)]
pub struct Environment {
    /// All memory that kernels may touch. Its first and last [`abi::ARENA_MARGIN`] bytes are never mapped.
    pub arena: Range,
    /// The address of each variable of [`Program::globals`].
    pub globals: HashMap<String, u64>,
    /// What compiled code calls.
    pub helpers: abi::Helpers,
}

/// A program with the addresses of its variables fixed.
pub struct Linked {}

impl Program {
    /// Checks a module and lays its variables out. `compute_capability` is 80 for 8.0.
    pub fn new(_module: Module, _compute_capability: u32) -> Result<Program, Error> {
        Err(Error::new(rgpu_device::Code::NotSupported, "The compiler is not there yet"))
    }

    /// The kernels. A launch names one by its index.
    pub fn functions(&self) -> Vec<FunctionInfo> {
        Vec::new()
    }

    /// The variables that need memory.
    pub fn globals(&self) -> &[GlobalLayout] {
        &[]
    }

    /// Fixes the addresses of the variables.
    pub fn link(self, _environment: Environment) -> Linked {
        Linked {}
    }
}

impl Linked {
    /// The kernel with this index, compiled when first asked for.
    pub fn kernel(&self, _index: u32) -> Result<Arc<abi::Kernel>, Error> {
        Err(Error::new(rgpu_device::Code::NotSupported, "The compiler is not there yet"))
    }
}
