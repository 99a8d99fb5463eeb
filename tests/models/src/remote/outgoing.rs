//! What is sent to the server at once.

/// An answer.
pub(crate) enum Urgent {
    /// Memory credit of an ordinal.
    Credit(u32, u64),
}
