//! Descriptors: created, set, asked and destroyed.

use std::sync::OnceLock;

use parking_lot::Mutex;

use super::super::{Out, Result, Status};
use crate::core::registry::Registry;

/// The descriptors of one kind. One that has been created and not set says nothing yet.
pub(super) struct Forms<T> {
    what: &'static str,
    all: OnceLock<Registry<Mutex<Option<T>>>>,
}

impl<T: Clone> Forms<T> {
    /// No descriptors; `what` names their kind in messages.
    pub(super) const fn new(what: &'static str) -> Self {
        Self { what, all: OnceLock::new() }
    }

    fn all(&self) -> &Registry<Mutex<Option<T>>> {
        self.all.get_or_init(|| Registry::new(self.what))
    }

    /// Makes a descriptor.
    pub(super) fn create(&self, out: Out<usize>) -> Result<()> {
        out.check()?;
        let mut handle = 0;
        self.all().insert(|raw| {
            handle = raw;
            Mutex::new(None)
        });
        out.set(handle)
    }

    /// Ends one.
    pub(super) fn destroy(&self, raw: usize) -> Result<()> {
        self.all().remove(raw).map(drop).map_err(|_| Status::BadParam)
    }

    /// Says what one describes.
    pub(super) fn set(&self, raw: usize, value: T) -> Result<()> {
        let form = self.all().get(raw).map_err(|_| Status::BadParam)?;
        *form.lock() = Some(value);
        Ok(())
    }

    /// Changes what one describes, or `start` where it describes nothing yet.
    pub(super) fn change(&self, raw: usize, start: T, change: impl FnOnce(&mut T)) -> Result<()> {
        let form = self.all().get(raw).map_err(|_| Status::BadParam)?;
        change(form.lock().get_or_insert(start));
        Ok(())
    }

    /// What one describes.
    pub(super) fn get(&self, raw: usize) -> Result<T> {
        let form = self.all().get(raw).map_err(|_| Status::BadParam)?;
        let value = form.lock().clone();
        value.ok_or(Status::BadParam)
    }
}

/// The functions that create and destroy descriptors of one kind.
macro_rules! created_and_destroyed {
    ($forms:path, $create:ident, $destroy:ident) => {
        super::calls! {
            #[doc = concat!("`", stringify!($create), "`.")]
            fn $create(descriptor: Out<usize>) {
                $forms.create(descriptor)
            }
            #[doc = concat!("`", stringify!($destroy), "`.")]
            fn $destroy(descriptor: usize) {
                $forms.destroy(descriptor)
            }
        }
    };
}
pub(super) use created_and_destroyed;

/// A list of lengths that the caller gives as `int`s.
///
/// # Safety
/// So many are there.
pub(super) unsafe fn lengths(list: super::super::In<i32>, count: i32) -> Result<Vec<i64>> {
    let count = usize::try_from(count).ok().filter(|&count| count <= 8).ok_or(Status::BadParam)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { list.list(count) }?.into_iter().map(i64::from).collect())
}

/// Gives the first `wanted` of a list back as `int`s.
///
/// # Safety
/// There is room for so many.
pub(super) unsafe fn give(list: &[i64], wanted: usize, out: Out<i32>) -> Result<()> {
    for (index, &value) in list.iter().take(wanted).enumerate() {
        // SAFETY: the caller's promise.
        unsafe { out.at(index) }.set(value as i32)?;
    }
    Ok(())
}
