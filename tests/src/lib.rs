//! What the end-to-end tests and `cargo xtask` share: the CUDA compiler ([`toolkit`]) and programs of Debian packages ([`debian`]), fetched
//! into the user's cache ([`cached`]); the example programs ([`examples`]), what is carried to a machine with a GPU ([`gpu_check`]), the built binaries and a daemon ([`product`]),
//! processes with time limits ([`process`]), programs for other processors ([`emulator`], [`cross`]), a proxy that watches the wire ([`proxy`]), a broker with servers and clients ([`cluster`]), a browser ([`browser`]),
//! faults of brokers and servers ([`faults`]), a container engine ([`container`]), the packages by which rgpu is installed ([`packages`]), a paper's experiment on a living cluster ([`drmaestro`]), a Slurm cluster ([`slurm`]), and a pseudo-terminal ([`terminal`]).

#[cfg(feature = "end-to-end")]
pub mod browser;
pub mod cached;
#[cfg(feature = "end-to-end")]
pub mod cluster;
#[cfg(feature = "end-to-end")]
pub mod container;
pub mod cross;
pub mod debian;
#[cfg(feature = "end-to-end")]
pub mod drmaestro;
pub mod emulator;
pub mod examples;
#[cfg(feature = "end-to-end")]
pub mod faults;
pub mod gpu_check;
pub mod packages;
pub mod process;
pub mod product;
#[cfg(feature = "end-to-end")]
pub mod proxy;
#[cfg(feature = "end-to-end")]
pub mod slurm;
pub mod terminal;
pub mod toolkit;
