//! Texture and surface references: variables of a module that a program binds memory or an array to, and says of how it is read.
//!
//! On a software GPU such a variable is the header of an object ([`rgpu_device::texture`]). What a program says is kept here. Before the
//! next launch of a kernel of the module the header is written anew, if it differs, in an order with other kernels that leaves to
//! each what was bound when it was launched ([`Core::settle_references`](super::Core::settle_references)).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rgpu_device::Ordinal;
use rgpu_device::texture::{ChannelKind, TEXTURE_HEADER_BYTES, TexelFormat};

use super::array;
use super::error::{Result, invalid};
use super::generation;
use super::registry::Raw;
use super::texture::{self, Object, Resource, TextureDesc};

/// A header as it lies in memory.
pub(super) type HeaderBytes = [u8; TEXTURE_HEADER_BYTES];

/// What a program has said of a reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct State {
    /// What is bound.
    pub(crate) bound: Option<Resource>,
    /// The texels of linear memory, or those of what is bound.
    pub(crate) format: TexelFormat,
    /// How it is read.
    pub(crate) texture: TextureDesc,
}

impl State {
    /// Nothing is bound.
    fn new() -> Self {
        let format = TexelFormat { kind: ChannelKind::Float, bits: 32, channels: 1 };
        // As the runtime's class for references has it where a program says nothing.
        let texture = TextureDesc { address: [1; 3], ..TextureDesc::default() };
        Self { bound: None, format, texture }
    }

    /// The object that a reference is like, as long as something is bound.
    fn object(&self, surface: bool) -> Option<Object> {
        let resource = match self.bound? {
            // Its format may be said after its place.
            Resource::Linear { addr, bytes, .. } => Resource::Linear { addr, bytes, format: self.format },
            other => other,
        };
        let texture = (!surface).then_some(self.texture);
        Some(Object { resource, texture, view: None })
    }
}

/// Numbers of changes to the references of a module.
#[derive(Default)]
struct Changes {
    made: AtomicU64,
    /// So many of them are in the headers.
    settled: AtomicU64,
}

/// Where a module's reference lies.
struct Home {
    name: String,
    addr: u64,
    changes: Arc<Changes>,
    /// The header that was written last; zeros, which the device begins with, are none.
    written: Mutex<Option<HeaderBytes>>,
}

/// A texture or surface reference (`CUtexref`, `CUsurfref`).
pub(crate) struct Reference {
    /// The program's handle.
    pub(crate) raw: Raw,
    /// Whether it is a surface.
    pub(crate) surface: bool,
    /// The ordinal of the device that it belongs to.
    pub(crate) ordinal: Ordinal,
    /// None for one that the program made itself.
    home: Option<Home>,
    state: Mutex<State>,
}

impl Reference {
    /// One that belongs to no module, which kernels never see.
    pub(super) fn free(raw: Raw, ordinal: Ordinal) -> Self {
        Self { raw, surface: false, ordinal, home: None, state: Mutex::new(State::new()) }
    }

    /// Whether it is a module's.
    pub(super) fn is_of_module(&self) -> bool {
        self.home.is_some()
    }

    /// What was said of it.
    pub(crate) fn state(&self) -> State {
        *self.state.lock()
    }

    /// Changes what was said of it, unless `change` fails.
    pub(crate) fn change(&self, change: impl FnOnce(&mut State) -> Result<()>) -> Result<()> {
        {
            let mut state = self.state.lock();
            let mut next = *state;
            change(&mut next)?;
            if next == *state {
                return Ok(());
            }
            *state = next;
        }
        if let Some(home) = &self.home {
            home.changes.made.fetch_add(1, Ordering::Release);
            // The next launch must look at it.
            generation::begin_new();
        }
        Ok(())
    }

    /// Binds something, if that can be read or written on a device with these attributes.
    pub(crate) fn bind(&self, resource: Resource, of_device: &dyn Fn(u32) -> i32) -> Result<()> {
        if let Resource::Array(raw) = resource
            && self.surface
            && array::array(raw)?.shape.flags & array::SURFACE == 0
        {
            return Err(invalid("the array was not created for surfaces"));
        }
        self.change(|state| {
            state.bound = Some(resource);
            if let Resource::Plane { format, .. } = resource {
                state.format = format;
            }
            let object = state.object(self.surface).ok_or_else(|| invalid("nothing is bound"))?;
            // How it is read may be said later.
            let texture = object.texture.map(|_| TextureDesc::default());
            let header = texture::header(&Object { texture, ..object }, of_device)?;
            state.format = header.format;
            Ok(())
        })
    }
}

/// The references of a module that a program has asked for.
#[derive(Default)]
pub(super) struct References {
    known: Mutex<HashMap<String, Arc<Reference>>>,
    changes: Arc<Changes>,
}

impl References {
    /// Whether a header differs from what the program has said.
    #[inline]
    pub(super) fn unsettled(&self) -> bool {
        let Changes { made, settled } = &*self.changes;
        made.load(Ordering::Acquire) != settled.load(Ordering::Acquire)
    }

    /// The reference of this name, which lies here; `insert` gives a new one its handle. It is the same each time.
    pub(super) fn get(
        &self,
        (name, addr): (&str, u64),
        surface: bool,
        ordinal: Ordinal,
        insert: impl FnOnce(Box<dyn FnOnce(Raw) -> Reference>) -> Arc<Reference>,
    ) -> Arc<Reference> {
        let mut known = self.known.lock();
        if let Some(reference) = known.get(name) {
            return reference.clone();
        }
        let changes = self.changes.clone();
        let home = Home { name: name.to_owned(), addr, changes, written: Mutex::new(None) };
        let state = Mutex::new(State::new());
        let new = insert(Box::new(move |raw| Reference { raw, surface, ordinal, home: Some(home), state }));
        known.insert(name.to_owned(), new.clone());
        new
    }

    /// Takes all out: the module goes away.
    pub(super) fn take(&self) -> Vec<Arc<Reference>> {
        self.known.lock().drain().map(|(_, reference)| reference).collect()
    }

    /// Looks at all headers that differ from what the program has said. Others who want the same wait.
    pub(super) fn settle(
        &self,
        of_device: &dyn Fn(u32) -> i32,
        mut write: impl FnMut(&Due) -> Result<()>,
    ) -> Result<()> {
        let known = self.known.lock();
        // What is changed from here on is settled the next time.
        let made = self.changes.made.load(Ordering::Acquire);
        for reference in known.values() {
            settle_one(reference, of_device, &mut write)?;
        }
        self.changes.settled.store(made, Ordering::Release);
        Ok(())
    }
}

/// A header to be written.
pub(super) struct Due<'r> {
    /// The variable's name.
    pub(super) name: &'r str,
    /// Where it lies.
    pub(super) addr: u64,
    /// What is written there.
    pub(super) bytes: HeaderBytes,
    /// Whether kernels may be reading another header there.
    pub(super) again: bool,
    /// Why nothing can be read, though something is bound.
    pub(super) why_not: Option<String>,
}

fn settle_one(
    reference: &Reference,
    of_device: &dyn Fn(u32) -> i32,
    write: &mut impl FnMut(&Due) -> Result<()>,
) -> Result<()> {
    let Some(Home { name, addr, written, .. }) = &reference.home else { return Ok(()) };
    let object = reference.state().object(reference.surface);
    let header = object.map(|object| texture::header(&object, of_device));
    let (bytes, why_not) = match header {
        None => ([0; TEXTURE_HEADER_BYTES], None),
        Some(Ok(header)) => (header.to_bytes(), None),
        Some(Err(error)) => ([0; TEXTURE_HEADER_BYTES], Some(error.message)),
    };
    let mut written: MutexGuard<Option<HeaderBytes>> = written.lock();
    if *written == Some(bytes) || written.is_none() && bytes == [0; TEXTURE_HEADER_BYTES] && why_not.is_none()
    {
        return Ok(());
    }
    write(&Due { name, addr: *addr, bytes, again: written.is_some(), why_not })?;
    *written = Some(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Code;

    fn device(_: u32) -> i32 {
        0
    }

    fn memory(addr: u64) -> Resource {
        Resource::Linear { addr, format: State::new().format, bytes: 64 }
    }

    fn reference(references: &References) -> Arc<Reference> {
        references.get(("picture", 4096), false, 0, |make| Arc::new(make(64)))
    }

    fn say(reference: &Reference, what: impl FnOnce(&mut State)) {
        let said = reference.change(|state| {
            what(state);
            Ok(())
        });
        said.unwrap();
    }

    /// What is written when the references are settled.
    fn settled(references: &References) -> Vec<(u64, bool, bool, Option<String>)> {
        let mut found = Vec::new();
        references
            .settle(&device, |due| {
                found.push((due.addr, due.bytes == [0; 128], due.again, due.why_not.clone()));
                Ok(())
            })
            .unwrap();
        found
    }

    #[test]
    fn a_header_is_written_once_for_each_change() {
        let references = References::default();
        let picture = reference(&references);
        assert!(Arc::ptr_eq(&picture, &reference(&references)));
        assert!(!references.unsettled());
        picture.bind(memory(512), &device).unwrap();
        assert!(references.unsettled());
        assert_eq!(settled(&references), [(4096, false, false, None)]);
        assert!(!references.unsettled());
        assert_eq!(settled(&references), []);
        // Binding the same again changes nothing.
        picture.bind(memory(512), &device).unwrap();
        assert!(!references.unsettled());
        picture.bind(memory(1024), &device).unwrap();
        assert_eq!(settled(&references), [(4096, false, true, None)]);
        // What kernels read does not change by the most samples that they might take.
        say(&picture, |state| state.texture.max_anisotropy = 4);
        assert!(references.unsettled());
        assert_eq!(settled(&references), []);
    }

    #[test]
    fn what_cannot_be_read_is_not_bound_to_kernels() {
        let references = References::default();
        let picture = reference(&references);
        assert_eq!(picture.bind(memory(0), &device).unwrap_err().code, Code::InvalidValue);
        assert_eq!(picture.state().bound, None, "a call that fails changes nothing");
        let format = TexelFormat { kind: ChannelKind::Unsigned, bits: 8, channels: 1 };
        let plane = Resource::Plane { addr: 512, format, width: 8, height: 2, pitch: 32 };
        picture.bind(plane, &device).unwrap();
        assert_eq!(picture.state().format, format);
        say(&picture, |state| (state.texture.filter, state.texture.flags) = (1, texture::READ_AS_INTEGER));
        let found = settled(&references);
        assert!(matches!(&found[..], [(4096, true, false, Some(why))] if why.contains("mixed")), "{found:?}");
        // One more change, and it can be read.
        say(&picture, |state| state.texture.flags = 0);
        assert_eq!(settled(&references), [(4096, false, true, None)]);
    }

    #[test]
    fn changes_while_headers_are_written_are_settled_later() {
        let references = References::default();
        let picture = reference(&references);
        picture.bind(memory(512), &device).unwrap();
        references.settle(&device, |_| picture.bind(memory(1024), &device)).unwrap();
        assert!(references.unsettled());
        assert_eq!(settled(&references), [(4096, false, true, None)]);
        assert!(!references.unsettled());
    }

    #[test]
    fn the_format_of_linear_memory_may_be_said_after_its_place() {
        let picture = Reference::free(64, 0);
        picture.bind(memory(512), &device).unwrap();
        let format = TexelFormat { kind: ChannelKind::Unsigned, bits: 8, channels: 4 };
        say(&picture, |state| state.format = format);
        let object = picture.state().object(false).unwrap();
        assert_eq!(texture::header(&object, &device).unwrap().format, format);
    }
}
