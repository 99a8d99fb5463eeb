//! What a claim or a class can say to this driver beyond what the scheduler understands.

use serde::{Deserialize, Serialize};

/// The version of [`Parameters`].
const VERSION: &str = "rgpu.dev/v1";
/// Their kind.
const KIND: &str = "LeaseParameters";

/// Parameters of a lease, in `config[].opaque.parameters` of a claim or class.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Parameters {
    /// `rgpu.dev/v1`.
    #[serde(default)]
    api_version: String,
    /// `LeaseParameters`.
    #[serde(default)]
    kind: String,
    /// Whether nothing leaves the pod's machine unencrypted; only servers that encrypt are given then.
    pub encrypt: Option<bool>,
    /// Whether the broker may resize the lease by what its program uses.
    pub harvest: Option<bool>,
    /// The program's name, by which the broker learns from its runs.
    pub program: Option<String>,
    /// A profile of the broker's configuration.
    pub profile: Option<String>,
    /// The traffic that each remote GPU makes, in Mbit/s.
    pub traffic_mbps: Option<u64>,
}

impl Parameters {
    /// Reads them.
    ///
    /// # Errors
    /// They are none, in words for whoever wrote them.
    pub fn read(value: &serde_json::Value) -> Result<Self, String> {
        let read: Self = Deserialize::deserialize(value).map_err(|e| {
            format!("The claim's or class's parameters for {} are wrong: {e}", crate::names::DRIVER)
        })?;
        if read.api_version != VERSION || read.kind != KIND {
            return Err(format!(
                "The claim's or class's parameters are of kind {:?} {:?}; this driver knows {VERSION} {KIND}",
                read.api_version, read.kind
            ));
        }
        Ok(read)
    }

    /// These, but for what the later ones say.
    pub(crate) fn then(self, later: Self) -> Self {
        Self {
            api_version: later.api_version,
            kind: later.kind,
            encrypt: later.encrypt.or(self.encrypt),
            harvest: later.harvest.or(self.harvest),
            program: later.program.or(self.program),
            profile: later.profile.or(self.profile),
            traffic_mbps: later.traffic_mbps.or(self.traffic_mbps),
        }
    }
}
