//! What is counted in kernels that are compiled for it ([`super::Checks::counts`]).
//!
//! A kernel, with the functions that it calls, is divided into *regions*: runs of instructions that a thread passes from the first to
//! the last. Threads say when they come to one ([`Event`]), and describe each access to memory before they make it, so that all else
//! follows from tables that are made when the kernel is compiled ([`Sites`]).

/// A run of instructions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Region {
    /// The lines of the PTX text that its instructions stand in, each with how many they are.
    pub lines: Vec<(u32, u32)>,
    /// The innermost loop that it is part of, by its number in [`Sites::loops`].
    pub within: Option<u32>,
    /// The loop each turn of which it begins.
    pub heads: Option<u32>,
    /// The line of the branch that it ends with, if some threads may go one way and some another.
    pub branch: Option<u32>,
}

/// A loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loop {
    /// The loop that it is part of.
    pub parent: Option<u32>,
}

/// Where memory is accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessSite {
    /// The line of the PTX text.
    pub line: u32,
    /// Whether it names constant memory.
    pub constant: bool,
}

/// All that is counted in a kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sites {
    /// Regions, by the numbers that threads say.
    pub regions: Vec<Region>,
    /// Loops of all functions.
    pub loops: Vec<Loop>,
    /// Accesses, by the numbers that threads say.
    pub accesses: Vec<AccessSite>,
}

/// What a thread says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It comes to the region with this number.
    Enter(u32),
    /// A function has been called.
    Call,
    /// It leaves the function, or has come to the kernel's end.
    Leave,
}

impl Event {
    /// As one number.
    pub fn pack(self) -> u64 {
        match self {
            Self::Enter(region) => region.into(),
            Self::Call => 1 << 32,
            Self::Leave => 2 << 32,
        }
    }

    /// What [`Event::pack`] has made a number of.
    pub fn unpack(number: u64) -> Self {
        match number >> 32 {
            0 => Self::Enter(number as u32),
            1 => Self::Call,
            _ => Self::Leave,
        }
    }
}
