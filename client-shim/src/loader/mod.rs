//! How a program comes to call this library.
