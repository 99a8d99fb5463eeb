//! The driver door: cu*.
