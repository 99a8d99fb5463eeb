//! The heart of the shim, behind both doors. Under construction.
