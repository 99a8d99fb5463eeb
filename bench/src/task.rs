//! What the commanding process asks a measuring process to do, one line of JSON each way.

use serde::{Deserialize, Serialize};

/// One measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Names the device.
    Describe,
    /// When the first CUDA call had returned: nanoseconds of the system's monotonic clock.
    FirstCall,
    /// Calls that a program waits for. A sample a call.
    Asked {
        /// Which.
        call: Asked,
        /// How many.
        count: u32,
    },
    /// Launches of a kernel that does nothing, then one synchronisation. Two samples: until the last launch
    /// has returned, and until all has been synchronised.
    Launches {
        /// How many.
        count: u32,
    },
    /// One of the calls that [`crate::cuda::Driver::named`] lists. A sample a call.
    Call {
        /// Its place in the list.
        index: usize,
        /// How often.
        count: u32,
    },
    /// Copies, then a synchronisation. One sample: the whole time.
    Copies {
        /// To the device, else from it.
        to_device: bool,
        /// Of pinned host memory, else pageable.
        pinned: bool,
        /// Bytes a copy.
        bytes: usize,
        /// How many.
        count: u32,
    },
}

/// A call that a program waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Asked {
    /// How much memory is free: the smallest call that only the server can answer.
    FreeMemory,
    /// Four bytes copied to the host, when the device has nothing else to do.
    FourBytes,
}

impl Asked {
    /// What tables call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FreeMemory => "asked call (free memory)",
            Self::FourBytes => "4 B to the host, device idle",
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// Why it failed.
    pub error: Option<String>,
    /// The device's name, where that was asked.
    pub device: String,
    /// The names of the calls that can be measured, where the device was asked for.
    pub calls: Vec<String>,
    /// What was measured, in nanoseconds.
    pub samples: Vec<u64>,
    /// Round trips to the server.
    pub round_trips: u64,
    /// Bytes sent to the server.
    pub bytes_sent: u64,
    /// Bytes that came from the server.
    pub bytes_received: u64,
}

impl Reply {
    /// Bytes sent, and bytes received, a call, rounded to the nearest.
    pub(crate) fn bytes_a_call(&self, calls: u64) -> (u64, u64) {
        let each = |bytes: u64| (bytes + calls / 2) / calls.max(1);
        (each(self.bytes_sent), each(self.bytes_received))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_one_line() {
        let tasks = [
            Task::Describe,
            Task::FirstCall,
            Task::Asked { call: Asked::FourBytes, count: 3 },
            Task::Launches { count: 20_000 },
            Task::Call { index: 2, count: 1 },
            Task::Copies { to_device: true, pinned: false, bytes: 1 << 30, count: 7 },
        ];
        for task in tasks {
            let line = serde_json::to_string(&task).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<Task>(&line).unwrap(), task);
        }
        assert_ne!(Asked::FreeMemory.name(), Asked::FourBytes.name());
    }

    #[test]
    fn bytes_are_rounded_to_the_nearest() {
        let reply = Reply { bytes_sent: 149, bytes_received: 150, ..Reply::default() };
        assert_eq!(reply.bytes_a_call(100), (1, 2));
        assert_eq!(reply.bytes_a_call(0), (149, 150));
        assert_eq!(Reply::default().bytes_a_call(5), (0, 0));
    }
}
