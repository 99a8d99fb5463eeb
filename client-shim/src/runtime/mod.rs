//! The runtime door: cuda*.
