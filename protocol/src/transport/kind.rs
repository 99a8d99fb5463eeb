//! What a transport is called.

use std::fmt;

/// The names of a transport. Its own file has it as a constant, such as [`Tcp::KIND`](super::Tcp::KIND).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    name: &'static str,
    title: &'static str,
}

impl Kind {
    /// `name` is what users write in options and what travels in leases, in lower case; `title` is how sentences call it.
    pub const fn new(name: &'static str, title: &'static str) -> Self {
        Self { name, title }
    }

    /// Its name as users write it: `tcp`, `shm`, `rdma`.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// What sentences call it: `TCP`, `shared memory`, `RDMA`.
    pub fn title(self) -> &'static str {
        self.title
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
