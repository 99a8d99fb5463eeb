//! Looking at what kernels do while they run (`rgpu check`): what a device is asked to look for, and what it tells of.

/// What a device looks at while kernels run. Devices that cannot ([`Device::wants_memory_notes`](crate::Device::wants_memory_notes)) are
/// not asked to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Check {
    /// Accesses outside of the program's memory, misaligned ones, and wrong frees.
    pub memory: bool,
    /// Reads of device memory that nothing was written to.
    pub initialised: bool,
    /// Threads of a block that use the same shared memory without waiting for each other.
    pub races: bool,
    /// Barriers, and operations of warps, that not all threads come to that have to.
    pub barriers: bool,
    /// Memory that the program has not freed when it ends.
    pub leaks: bool,
    /// How many mistakes are told in words at most; of the others only how many there are. `None` for all.
    pub limit: Option<u64>,
}

impl Check {
    /// The tools' names, which stand for the fields of truth values in their order.
    pub const TOOLS: [&'static str; 5] = ["memcheck", "initcheck", "racecheck", "synccheck", "leaks"];

    fn fields(&mut self) -> [&mut bool; 5] {
        let Self { memory, initialised, races, barriers, leaks, limit: _ } = self;
        [memory, initialised, races, barriers, leaks]
    }

    /// What tools of these names look for, separated by commas; without a limit. `None` where there is no such tool.
    pub fn of_tools(names: &str) -> Option<Self> {
        let mut check = Self::default();
        for name in names.split(',').map(str::trim) {
            let at = Self::TOOLS.iter().position(|tool| *tool == name)?;
            *check.fields()[at] = true;
        }
        Some(check)
    }

    /// The tools as bits, the first as the lowest.
    pub fn bits(mut self) -> u32 {
        self.fields().iter().rev().fold(0, |bits, on| bits << 1 | u32::from(**on))
    }

    /// What tools look for whose bits these are; without a limit. `None` where one of them is no tool's.
    pub fn of_bits(bits: u32) -> Option<Self> {
        if bits >> Self::TOOLS.len() != 0 {
            return None;
        }
        let mut check = Self::default();
        check.fields().into_iter().enumerate().for_each(|(at, on)| *on = bits >> at & 1 != 0);
        Some(check)
    }
}

/// What a device that looks at kernels has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding<'a> {
    /// A mistake, in lines for people.
    Mistake(&'a str),
    /// So many mistakes beyond [`Check::limit`], of which no more is told.
    Unreported(u64),
    /// A line that tells of no mistake by itself.
    Remark(&'a str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_have_names_and_bits() {
        let check = Check::of_tools("memcheck, racecheck,leaks").unwrap();
        assert!(check.memory && check.races && check.leaks && !check.initialised && !check.barriers);
        assert_eq!((check.bits(), Check::of_bits(0b10101)), (0b10101, Some(check)));
        assert_eq!(Check::of_tools("initcheck,synccheck").map(Check::bits), Some(0b01010));
        for bits in 0..32 {
            assert_eq!(Check::of_bits(bits).map(Check::bits), Some(bits));
        }
        assert_eq!((Check::of_bits(32), Check::of_tools("memcheck,speed")), (None, None));
    }
}
