//! Mirrored memory: when the device must look again, and what it changed.
