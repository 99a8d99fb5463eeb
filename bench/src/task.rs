//! What the commanding process asks a measuring process to do, one line of JSON each way.

use serde::{Deserialize, Serialize};

/// One measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
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
pub enum Asked {
    /// How much memory is free: the smallest call that only the server can answer.
    FreeMemory,
    /// Four bytes copied to the host, when the device has nothing else to do.
    FourBytes,
}

impl Asked {
    /// What tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::FreeMemory => "asked call (free memory)",
            Self::FourBytes => "4 B to the host, device idle",
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reply {
    /// Why it failed.
    pub error: Option<String>,
    /// The device's name, where that was asked.
    pub device: String,
    /// The names of the calls that can be measured, where the device was asked for.
    pub calls: Vec<String>,
    /// Nanoseconds.
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
    pub fn bytes_a_call(&self, calls: u64) -> (u64, u64) {
        let each = |bytes: u64| (bytes + calls / 2) / calls.max(1);
        (each(self.bytes_sent), each(self.bytes_received))
    }
}
