//! What a server is told when it is started.

use std::path::PathBuf;
use std::str::FromStr;

/// Which device applications get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSpec {
    /// How many device ordinals an application sees.
    pub count: u32,
    /// Memory of each in bytes, shared by all applications.
    pub memory: u64,
    /// Worker threads of each application; 0 means one for each core.
    pub workers: u32,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
}

/// The most ordinals that are supported.
pub const MAX_DEVICES: u32 = 16;

impl Default for DeviceSpec {
    fn default() -> Self {
        Self { count: 1, memory: 4 << 30, workers: 0, compute_capability: (8, 0) }
    }
}

/// `software`, or `software:N` for N of them.
impl FromStr for DeviceSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, count) = text.split_once(':').unwrap_or((text, "1"));
        if kind != "software" {
            return Err(format!("device `{kind}` is not known; there is `software`, or `software:N`"));
        }
        match count.parse() {
            Ok(count @ 1..=MAX_DEVICES) => Ok(Self { count, ..Self::default() }),
            _ => Err(format!("`{count}` is not a number of devices from 1 to {MAX_DEVICES}")),
        }
    }
}

/// How a server runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Address and port to listen on; port 0 picks a free one.
    pub listen: String,
    /// What applications get.
    pub device: DeviceSpec,
    /// A file with the token that applications must present. Without one only loopback addresses are
    /// listened on, unless `insecure`.
    pub token_file: Option<PathBuf>,
    /// Serve anybody who can reach the address.
    pub insecure: bool,
    /// The most applications at a time.
    pub max_sessions: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:0".into(),
            device: DeviceSpec::default(),
            token_file: None,
            insecure: false,
            max_sessions: 128,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_counted() {
        assert_eq!("software".parse::<DeviceSpec>().unwrap().count, 1);
        assert_eq!("software:4".parse::<DeviceSpec>().unwrap().count, 4);
        for wrong in ["software:0", "software:17", "software:x", "nvidia", ""] {
            assert!(wrong.parse::<DeviceSpec>().is_err(), "{wrong}");
        }
    }
}
