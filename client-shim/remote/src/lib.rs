//! The [`Device`](rgpu_device::Device) whose calls are forwarded: to one server ([`remote`]) or to several at once
//! ([`several`]), with a record of every call where one is wanted ([`trace`]).
//!
//! Nothing in this crate knows CUDA's entry points. Whoever has a `Device` to talk to, the preloaded library or a test,
//! can talk through this one.

pub mod remote;
pub mod several;
pub mod threads;
pub mod trace;
mod words;

pub use remote::{ConnectOptions, Credential, Encrypt, Remote};
pub use several::{Application, Server, Several};
