//! The software GPU: runs CUDA kernels on the CPU.
//!
//! A module's PTX ([`rgpu_image`] finds it in a fat binary and parses it) is compiled to machine code
//! ([`compile`]), which [`exec`] runs over the blocks of a grid on the CPU's cores. [`abi`] is the
//! contract between the last two. [`SoftGpu`] puts all of it behind [`rgpu_device::Device`].

pub mod abi;
pub mod compile;
pub mod exec;
pub mod library;

pub use compile::vector::open_before_confinement;
pub use exec::{Config, Profile, SoftGpu, describe};
