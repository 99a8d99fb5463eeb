//! What a software GPU needs to carry out the operations of mathematical libraries.
//!
//! The software GPU itself knows none: who opens it may give it a set of [`Libraries`] in its [`Config`](crate::Config). Their
//! numbers and arguments are those of [`rgpu_device::LibraryCall`].

use rgpu_device::Result;

/// Memory that an operation uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    /// The device address of its first byte.
    pub addr: u64,
    /// How many bytes from there on are used.
    pub bytes: u64,
    /// Whether it is written.
    pub written: bool,
}

/// An operation whose operands are in place.
pub trait Computation: Send + Sync {
    /// Into how many pieces, which can be done at the same time, it is cut where so many threads work on it.
    fn pieces(&self, threads: usize) -> usize {
        let _ = threads;
        1
    }

    /// Does one piece of `pieces`. `memory` has the first byte of each operand, in the plan's order; each is as long as it says.
    /// Kernels of other streams may use the same memory at the same time, so it must be accessed by pointers alone.
    ///
    /// # Errors
    /// What keeps the operation from being done. The other pieces are not begun then.
    ///
    /// # Safety
    /// The pointers must be valid for the operands' lengths, and those of operands that are written writable.
    unsafe fn run(&self, memory: &[*mut u8], piece: usize, pieces: usize) -> Result<()>;

    /// Once all pieces are done: what is to be done next, where that depended on what is in memory.
    ///
    /// # Errors
    /// What keeps the operation from going on.
    ///
    /// # Safety
    /// As for [`Computation::run`].
    unsafe fn then(&self, memory: &[*mut u8]) -> Result<Option<Plan>> {
        let _ = memory;
        Ok(None)
    }
}

/// What an operation comes to.
pub struct Plan {
    /// The memory that it uses. It is checked before anything is computed.
    pub operands: Vec<Operand>,
    /// What is done with it.
    pub computation: Box<dyn Computation>,
}

/// A set of mathematical libraries for the processor.
pub trait Libraries: std::fmt::Debug + Send + Sync {
    /// The version of the library of this number, as that library numbers its versions.
    ///
    /// # Errors
    /// Why there is none.
    fn version(&self, library: u32) -> Result<u32>;

    /// What an operation with these arguments comes to.
    ///
    /// # Errors
    /// [`InvalidValue`](rgpu_device::Code::InvalidValue) where the arguments cannot be read or make no sense;
    /// [`NotSupported`](rgpu_device::Code::NotSupported), by name, for what is missing.
    fn plan(&self, operation: u32, params: &[u8]) -> Result<Plan>;
}
