//! Pods get GPUs that rgpu's broker leases: a Kubernetes driver.
//!
//! - [`controller`]: one in the cluster. Publishes the pool of GPUs, and has a lease for each ResourceClaim that was allocated from it.
//! - [`node`]: one on each node. Gives containers their lease's ticket and the library (dynamic resource allocation).
//! - [`device_plugin`]: one on each node of an older cluster, which has no dynamic resource allocation.
//!
//! Both ask the broker by [`leases`]; what they ask for follows from the claim alone ([`claim`]), and private keys from a secret that they
//! share, so that nothing secret goes through the API server. Kubernetes schedules pods on nodes, the broker gives them GPUs: `docs/kubernetes.md`
//! says how the two agree.

pub mod claim;
pub mod container;
pub mod controller;
pub mod device_plugin;
pub mod leases;
pub mod names;
pub mod node;
pub mod parameters;
pub mod pool;
pub mod quantity;
pub mod sockets;
pub mod stop;
pub mod store;
