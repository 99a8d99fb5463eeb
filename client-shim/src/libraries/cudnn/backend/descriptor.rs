//! Descriptors: made, filled, finalised, asked.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use super::super::{Out, Result, Status, guard};
use super::attribute::{Attribute, kind, name};
use super::graph::{self, Graph};
use crate::abi::c_functions;
use crate::core::error;
use crate::core::registry::Registry;

/// The numbers of descriptors (`cudnnBackendDescriptorType_t`) that are more than their attributes.
pub(super) mod sort {
    pub(in super::super) const ENGINE: u32 = 2;
    pub(in super::super) const CONFIG: u32 = 3;
    pub(in super::super) const HEURISTIC: u32 = 4;
    pub(in super::super) const PLAN: u32 = 5;
    pub(in super::super) const CONVOLUTION_FORWARD: u32 = 10;
    pub(in super::super) const CONVOLUTION_FILTER: u32 = 11;
    pub(in super::super) const CONVOLUTION_DATA: u32 = 12;
    pub(in super::super) const POINTWISE: u32 = 13;
    pub(in super::super) const GRAPH: u32 = 15;
    pub(in super::super) const TENSOR: u32 = 17;
    pub(in super::super) const MATMUL: u32 = 19;
    pub(in super::super) const REDUCTION: u32 = 22;
    /// One more than the last.
    pub(in super::super) const END: u32 = 64;
}

/// What is known of a descriptor.
#[derive(Clone)]
pub(super) struct State {
    /// What it describes.
    pub(super) sort: u32,
    finalized: bool,
    /// Its attributes by name.
    attributes: BTreeMap<u32, Attribute>,
    /// What an operation graph comes to, and what an engine, a configuration or a plan is for.
    pub(super) graph: Option<Arc<Graph>>,
}

impl State {
    /// An attribute that was set.
    pub(super) fn get(&self, name: u32) -> Option<&Attribute> {
        self.attributes.get(&name)
    }

    /// The descriptor that an attribute names, which has to be finalised.
    pub(super) fn descriptor(&self, name: u32) -> Result<State> {
        let handle = self.get(name).and_then(Attribute::number).ok_or(Status::BadParam)?;
        finalized(handle as usize)
    }

    fn finalize(&mut self) -> Result<()> {
        match self.sort {
            sort::TENSOR => graph::check_tensor(self)?,
            sort::GRAPH => self.graph = Some(Arc::new(Graph::new(self)?)),
            sort::ENGINE => {
                self.graph = self.descriptor(name::ENGINE_GRAPH)?.graph;
                if self.get(name::ENGINE_INDEX).and_then(Attribute::number).is_some_and(|index| index != 0) {
                    return Err(Status::NotSupported);
                }
            }
            sort::CONFIG => self.graph = self.descriptor(name::CONFIG_ENGINE)?.graph,
            sort::HEURISTIC => self.graph = self.descriptor(name::HEURISTIC_GRAPH)?.graph,
            sort::PLAN => self.graph = self.descriptor(name::PLAN_CONFIG)?.graph,
            _ => {}
        }
        self.finalized = true;
        Ok(())
    }

    /// What a finalised descriptor says without having been told.
    fn computed(&self, name: u32) -> Option<Attribute> {
        Some(match (self.sort, name) {
            (sort::GRAPH, name::GRAPH_ENGINES) => Attribute::int64(1),
            (sort::ENGINE, name::ENGINE_INDEX) => Attribute::int64(0),
            (sort::CONFIG, name::CONFIG_WORKSPACE) | (sort::PLAN, name::PLAN_WORKSPACE) => {
                Attribute::int64(0)
            }
            (sort::CONFIG, name::CONFIG_SHARED_MEMORY) => Attribute::int32(0),
            (
                sort::ENGINE,
                name::ENGINE_KNOBS | name::ENGINE_NUMERICAL_NOTES | name::ENGINE_BEHAVIOUR_NOTES,
            )
            | (sort::CONFIG, name::CONFIG_KNOBS) => Attribute::none(kind::DESCRIPTOR),
            _ => return None,
        })
    }

    /// The one configuration that the heuristics of a graph give.
    fn result(&self) -> State {
        let made = |sort: u32, attributes: BTreeMap<u32, Attribute>| State {
            sort,
            finalized: true,
            attributes,
            graph: self.graph.clone(),
        };
        let graph = self.get(name::HEURISTIC_GRAPH).cloned();
        let engine = made(sort::ENGINE, graph.map(|graph| (name::ENGINE_GRAPH, graph)).into_iter().collect());
        let handle = insert(engine);
        let engine = Attribute { kind: kind::DESCRIPTOR, bytes: handle.to_ne_bytes().to_vec() };
        made(sort::CONFIG, [(name::CONFIG_ENGINE, engine)].into())
    }
}

static DESCRIPTORS: LazyLock<Registry<Mutex<State>>> = LazyLock::new(|| Registry::new("cuDNN descriptor"));

fn insert(state: State) -> usize {
    let mut handle = 0;
    DESCRIPTORS.insert(|raw| {
        handle = raw;
        Mutex::new(state)
    });
    handle
}

fn find(handle: usize) -> Result<Arc<Mutex<State>>> {
    DESCRIPTORS.get(handle).map_err(|_| Status::BadParam)
}

/// A descriptor that was finalised.
pub(super) fn finalized(handle: usize) -> Result<State> {
    let state = find(handle)?.lock().clone();
    if state.finalized { Ok(state) } else { Err(Status::NotFinalized) }
}

/// Gives a program what an attribute has. Descriptors are not handed out: the program has made some, which become copies.
///
/// # Safety
/// `elements` has room for `room` of the attribute's elements, or is null.
unsafe fn give(attribute: &Attribute, room: i64, elements: *mut c_void) -> Result<()> {
    let count = attribute.count().min(usize::try_from(room).unwrap_or(0));
    if elements.is_null() || count == 0 {
        return Ok(());
    }
    if attribute.kind == kind::DESCRIPTOR {
        for (index, source) in attribute.words().into_iter().take(count).enumerate() {
            // SAFETY: the caller's promise: there are that many handles.
            let target = unsafe { elements.cast::<usize>().add(index).read_unaligned() };
            // Neither is locked while the other is looked for: they may be one.
            let copy = find(source as usize)?.lock().clone();
            *find(target)?.lock() = copy;
        }
        return Ok(());
    }
    let length = attribute.bytes.len() / attribute.count().max(1) * count;
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(attribute.bytes.as_ptr(), elements.cast::<u8>(), length) };
    Ok(())
}

c_functions! {
    /// `cudnnBackendCreateDescriptor`.
    fn cudnnBackendCreateDescriptor(sort: u32, descriptor: Out<usize>) -> u32 {
        guard("cudnnBackendCreateDescriptor", || {
            descriptor.check()?;
            if sort >= sort::END {
                return Err(Status::NotSupported);
            }
            let state = State { sort, finalized: false, attributes: BTreeMap::new(), graph: None };
            descriptor.set(insert(state))
        })
    }
    /// `cudnnBackendDestroyDescriptor`.
    fn cudnnBackendDestroyDescriptor(descriptor: usize) -> u32 {
        guard("cudnnBackendDestroyDescriptor", || {
            DESCRIPTORS.remove(descriptor).map(drop).map_err(|_| Status::BadParam)
        })
    }
    /// `cudnnBackendSetAttribute`.
    fn cudnnBackendSetAttribute(
        descriptor: usize,
        name: u32,
        kind: u32,
        count: i64,
        elements: *const c_void,
    ) -> u32 {
        guard("cudnnBackendSetAttribute", || {
            let state = find(descriptor)?;
            // SAFETY: the program says that so many elements are there.
            let attribute = unsafe { Attribute::read(kind, count, elements) }?;
            let mut state = state.lock();
            if state.finalized {
                return Err(Status::NotSupported);
            }
            state.attributes.insert(name, attribute);
            Ok(())
        })
    }
    /// `cudnnBackendFinalize`.
    fn cudnnBackendFinalize(descriptor: usize) -> u32 {
        guard("cudnnBackendFinalize", || {
            // What it names is locked in turn, so it is finalised aside.
            let found = find(descriptor)?;
            let mut state = found.lock().clone();
            state.finalize()?;
            *found.lock() = state;
            Ok(())
        })
    }
    /// `cudnnBackendGetAttribute`.
    fn cudnnBackendGetAttribute(
        descriptor: usize,
        name: u32,
        kind: u32,
        room: i64,
        count: Out<i64>,
        elements: *mut c_void,
    ) -> u32 {
        guard("cudnnBackendGetAttribute", || {
            let state = finalized(descriptor)?;
            if (state.sort, name) == (sort::HEURISTIC, name::HEURISTIC_RESULTS) {
                if room > 0 && !elements.is_null() {
                    // SAFETY: the program has put so many handles there.
                    let target = unsafe { elements.cast::<usize>().read_unaligned() };
                    let target = find(target)?;
                    *target.lock() = state.result();
                }
                count.set_if_wanted(1);
                return Ok(());
            }
            let computed = state.computed(name);
            let Some(attribute) = computed.as_ref().or_else(|| state.get(name)) else {
                error::log(&format!("cuDNN: the attribute {name} of a descriptor {} is not known", state.sort));
                return Err(Status::NotSupported);
            };
            if attribute.count() > 0 && attribute.kind != kind {
                return Err(Status::BadParam);
            }
            count.set_if_wanted(attribute.count() as i64);
            // SAFETY: the program says that there is so much room.
            unsafe { give(attribute, room, elements) }
        })
    }
}
