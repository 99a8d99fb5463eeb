//! Images of modules that are kept across sessions.

/// The hash of an image.
pub type Hash = [u8; 32];

/// An application's way to what is kept for its tenant.
#[derive(Debug)]
pub struct Store {}

impl Store {
    /// The image with this hash, if it is there and whole.
    pub fn get(&self, _hash: &Hash) -> Option<Vec<u8>> {
        None
    }

    /// Keeps an image.
    pub fn put(&self, _hash: Hash, _image: &[u8]) {}
}
