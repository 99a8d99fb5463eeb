//! What a person is told when a software GPU's memory does not suffice.

use std::sync::atomic::{AtomicBool, Ordering};

use rgpu_control::settings::SOFT_MEMORY_VARIABLE;
use rgpu_control::units;
use rgpu_device::{MemoryInfo, Ordinal};

use super::Memory;
use crate::core::error::{Code, Result, say};

/// Whose decision it is how much memory there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The program's own process has the software GPU.
    Process,
    /// A server has it.
    Server,
    /// A lease gives less than the server has.
    Lease,
}

impl Memory {
    /// Says on standard error, once in a process, how much was asked for, how much there is, and how to get more, if an
    /// allocation failed because a software GPU's memory did not suffice. Later failures say nothing: allocators
    /// ask again with less.
    pub(super) fn explain<T>(&self, ordinal: Ordinal, asked: u64, result: Result<T>) -> Result<T> {
        static SAID: AtomicBool = AtomicBool::new(false);
        let exhausted = result.as_ref().is_err_and(|error| error.code == Code::OutOfMemory);
        let software = self.devices.info(ordinal).is_ok_and(|info| info.accepts_ptx && !info.accepts_cubin);
        if exhausted
            && software
            && !SAID.swap(true, Ordering::Relaxed)
            && let (Ok(has), Ok(info)) = (self.mem_info(ordinal), self.devices.info(ordinal))
        {
            let owner = match () {
                () if self.devices.sees_host_memory() => Owner::Process,
                () if has.total < info.total_memory => Owner::Lease,
                () => Owner::Server,
            };
            say(&advice(ordinal, asked, has, owner));
        }
        result
    }
}

fn advice(ordinal: Ordinal, asked: u64, has: MemoryInfo, owner: Owner) -> String {
    let used = has.total.saturating_sub(has.free);
    // Twice as much as there is, or what would have sufficed.
    let enough = asked.saturating_add(used).max(has.total.saturating_mul(2));
    let more = format!("{}G", enough.div_ceil(1 << 30).checked_next_power_of_two().unwrap_or(u64::MAX));
    let how = match owner {
        Owner::Process => {
            format!("`rgpu run --in-process --memory {more}` or {SOFT_MEMORY_VARIABLE}={more} gives it more")
        }
        Owner::Server => format!("`rgpu serve --memory {more}` on the server's machine gives it more"),
        Owner::Lease => format!("`rgpu run --gpu-memory {more}` asks for more, as far as the server has it"),
    };
    let (asked, free, total) = (units::bytes(asked), units::bytes(has.free), units::bytes(has.total));
    format!(
        "the program asked for {asked} of software GPU {ordinal}'s memory, of which {free} of {total} are free; {how} \
         (said once)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_the_option_that_gives_more() {
        let has = MemoryInfo { free: 100 << 20, total: 2 << 30 };
        let said = advice(1, 7 << 30, has, Owner::Process);
        assert_eq!(
            said,
            "the program asked for 7.0 GiB of software GPU 1's memory, of which 100 MiB of 2.0 GiB are free; \
             `rgpu run --in-process --memory 16G` or RGPU_SOFT_MEMORY=16G gives it more (said once)"
        );
        assert!(advice(0, 4096, has, Owner::Server).contains("`rgpu serve --memory 4G`"));
        assert!(advice(0, 4096, has, Owner::Lease).contains("`rgpu run --gpu-memory 4G`"));
        assert!(advice(0, u64::MAX, has, Owner::Server).contains("--memory 17179869184G"));
    }
}
