//! Finding room in an address range.
