//! Handles that a program holds, and the objects they stand for.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use rustc_hash::FxHasher;

use super::error::{Code, Error, Result};

/// What a program holds instead of an object. It looks like a pointer, but nothing lies there.
pub(crate) type Raw = usize;

/// Where handles start: not a canonical address, so that following one faults and none is ever mistaken for a pointer.
const FIRST: usize = 0x0052_4750_0000_0040;

/// It is the process's, not a core's, so that no two objects of any kind ever have the same handle.
static NEXT: AtomicUsize = AtomicUsize::new(FIRST);

/// A handle that was never given out before, of whatever kind.
pub(crate) fn fresh() -> Raw {
    NEXT.fetch_add(64, Ordering::Relaxed)
}

/// A map by handles or addresses, which are hashed in two instructions.
pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<FxHasher>>;

/// The living objects of one kind. A handle that was destroyed or never existed is an error.
pub(crate) struct Registry<T> {
    what: &'static str,
    map: RwLock<NumberMap<Raw, Arc<T>>>,
}

impl<T> Registry<T> {
    /// An empty registry; `what` names the kind in messages.
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, map: RwLock::new(NumberMap::default()) }
    }

    /// Registers the object that `make` builds around its new handle.
    pub(crate) fn insert(&self, make: impl FnOnce(Raw) -> T) -> Arc<T> {
        let raw = fresh();
        let object = Arc::new(make(raw));
        self.map.write().insert(raw, object.clone());
        object
    }

    /// The object behind a handle.
    pub(crate) fn get(&self, raw: Raw) -> Result<Arc<T>> {
        self.map.read().get(&raw).cloned().ok_or_else(|| self.unknown(raw))
    }

    /// Whether the handle is alive.
    pub(crate) fn contains(&self, raw: Raw) -> bool {
        self.map.read().contains_key(&raw)
    }

    /// Takes the object out; its handle is invalid from now on.
    pub(crate) fn remove(&self, raw: Raw) -> Result<Arc<T>> {
        self.map.write().remove(&raw).ok_or_else(|| self.unknown(raw))
    }

    /// Takes out all objects for which `which` holds.
    pub(crate) fn remove_where(&self, mut which: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        let mut map = self.map.write();
        let keys: Vec<Raw> = map.iter().filter(|(_, v)| which(v)).map(|(k, _)| *k).collect();
        keys.iter().filter_map(|k| map.remove(k)).collect()
    }

    /// All living objects for which `which` holds.
    pub(crate) fn filter(&self, mut which: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        self.map.read().values().filter(|v| which(v)).cloned().collect()
    }

    fn unknown(&self, raw: Raw) -> Error {
        Error::new(Code::InvalidHandle, format!("{raw:#x} is not a living {}", self.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_never_reused() {
        let registry = Registry::new("thing");
        let a = registry.insert(|raw| raw);
        assert_eq!(*registry.get(*a).unwrap(), *a);
        registry.remove(*a).unwrap();
        let b = registry.insert(|raw| raw);
        assert_ne!(*a, *b);
        assert_eq!(registry.get(*a).unwrap_err().code, Code::InvalidHandle);
        assert_eq!(registry.get(0).unwrap_err().code, Code::InvalidHandle);
        assert_eq!(registry.remove(*a).unwrap_err().code, Code::InvalidHandle);
    }
}
