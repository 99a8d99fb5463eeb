//! Which job gets which CPUs and GPUs, or waits: pure functions of (cluster, jobs, time).
//!
//! No clock, no I/O, no threads; randomness comes from a seed that the caller passes.
