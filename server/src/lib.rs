//! The server: a daemon that accepts applications, and a process for each of them that executes their
//! calls on a [`Device`].
//!
//! ```text
//!              rgpu serve (daemon)                 rgpu __app-server (one per application)
//!  connect --> accept, read and check the hello
//!              start a process ------------------> open the device, answer the hello
//!                                                  drop every privilege that is not needed
//!  calls ---------------------------------------->  read, execute in order
//!              reap it, take its memory credit     exit when the application is gone
//!              back, log one line
//! ```
//!
//! A client that speaks TLS does so with the application's process, which is started first and has the daemon sign its
//! handshake.
//!
//! The daemon never executes anything for an application and holds no device. It listens ([`daemon`]),
//! checks what a stranger says before any process is spent on it, and keeps the [`ledger`]: how much memory
//! each application has been promised. With a broker, its [`agent`] tells that one what the node has and does, and brings its
//! orders to the [leases](lease), and what they say of processors and caches to the leases' applications. An application's
//! [`session`] lives and dies with its own process ([`app`]), which is confined ([`confine`]) because kernels become native code
//! in it.
//!
//! [`Device`]: rgpu_device::Device

pub mod agent;
pub mod app;
mod applications;
mod budget;
pub mod confine;
mod convert;
pub mod daemon;
pub mod desk;
mod device_spec;
mod encryption;
#[doc(hidden)]
pub mod fuzzing;
mod greeting;
mod handshake;
pub mod inventory;
pub mod lease;
pub mod ledger;
mod local;
mod mps;
pub mod nvme;
mod observer;
mod options;
mod orders;
mod pacer;
pub mod partition;
pub mod peer;
mod secret;
pub mod session;
pub mod shelf;
pub mod store;
#[cfg(test)]
mod test_orders;
mod words;

pub use app::app_server_main;
pub use applications::ProcessorOptions;
pub use daemon::serve;
pub use device_spec::{DeviceKind, DeviceSpec, Partition};
pub use options::{Encryption, Options, TlsOptions};

/// The hidden subcommand under which the daemon starts itself again for an application.
pub const APP_SERVER_COMMAND: &str = "__app-server";
