//! For tests of the Kubernetes driver, on machines without Kubernetes.
//!
//! - [`apiserver`]: keeps objects as an API server does, and refuses what one would refuse.
//! - [`schema`]: the published OpenAPI schemas of Kubernetes' objects, strictly: what they do not know is an error.
//! - [`kubelet`]: does what a kubelet does with a plugin's sockets, and complains of what one would not take.
//! - [`manifests`]: those of `packaging/kubernetes`.
//! - [`cdi`]: what a container runtime makes of a description of a device.
//!
//! None of these is Kubernetes: what is checked is what its published interfaces say.

pub mod apiserver;
pub mod cdi;
pub mod kubelet;
pub mod manifests;
pub mod rules;
pub mod schema;
