//! The client shim: the library that is preloaded into CUDA programs.
//!
//! A program knocks on one of the doors: [`runtime`] (cuda*), [`driver`] (cu*) or [`nvml`]. Each is a table of entry
//! points in one form ([`doors::table`]) and their bodies, over the C types of [`abi`]; so are those of NVIDIA's other
//! [`libraries`]. Behind CUDA's doors stands
//! [`core`], which knows contexts, streams, memory and modules in the driver API's terms, and which hands
//! work to a [`rgpu_device::Device`]: either [`rgpu_remote`], which forwards to a server, or the software GPU
//! inside this very process (the feature `in-process`). [`loader`] sees to it that the program's calls arrive
//! here at all.

mod abi;
#[cfg(test)]
mod api_docs;
mod core;
mod doors;
mod driver;
#[doc(hidden)]
pub mod fuzzing;
mod in_process;
mod libraries;
mod loader;
mod nvml;
mod runtime;

use core::graph;
