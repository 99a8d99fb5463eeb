//! Loading modules: from an image to compiled code with its variables in place.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use rgpu_device::{
    Code, Error, FunctionInfo, GlobalInfo, GlobalKind, Handle, Host, ModuleInfo, Ordinal, Range, Result,
};
use rustc_hash::FxHashMap;

use super::contained::contained;
use super::helpers;
use super::tiers::{Earned, Tiers};
use crate::abi::{self, WIDTHS};
use crate::compile::{Environment, GlobalLayout, Linked, Program};
use rgpu_image::{self as image, ptx};

/// Where the kernels of a module come from.
pub(super) trait Kernels: Send + Sync {
    /// The kernel with this index, if nothing has to be done for it.
    fn compiled(&self, _index: u32) -> Option<Arc<abi::Kernel>> {
        None
    }

    /// The index of the kernel that device code knows by this number.
    fn kernel_at(&self, _pointer: u64) -> Option<u32> {
        None
    }

    /// The kernel with this index, compiled when first asked for.
    fn kernel(&self, index: u32) -> Result<Arc<abi::Kernel>>;

    /// As [`Linked::improve`], of a kernel that has been compiled.
    fn improve(&self, _index: u32, _lanes: usize, _most: Option<u64>) -> Option<u64> {
        None
    }
}

impl Kernels for Linked {
    fn compiled(&self, index: u32) -> Option<Arc<abi::Kernel>> {
        Linked::compiled(self, index)
    }

    fn kernel_at(&self, pointer: u64) -> Option<u32> {
        Linked::kernel_at(self, pointer)
    }

    fn kernel(&self, index: u32) -> Result<Arc<abi::Kernel>> {
        Linked::kernel(self, index)
    }

    fn improve(&self, index: u32, lanes: usize, most: Option<u64>) -> Option<u64> {
        Linked::improve(self, index, lanes, most)
    }
}

/// A loaded module.
pub(super) struct Module {
    /// The ordinal it was loaded on.
    pub ordinal: Ordinal,
    /// Its kernels' descriptions.
    pub functions: Vec<FunctionInfo>,
    /// Its kernels; see [`Module::kernel`].
    kernels: Box<dyn Kernels>,
    /// Where its variables are, if it has any.
    pub variables: Option<u64>,
    /// What its kernels cost, by position.
    costs: Box<[Cost]>,
    /// Which code of its kernels is run, by position.
    tiers: Box<[Tiers]>,
    /// Whether it has been unloaded: then nothing more of it is launched.
    gone: AtomicBool,
}

/// What a launch is checked against, under a lock of its own. Who needs the device's lock as well takes that one first; who launches has
/// it only to put the work on its stream.
pub(super) struct Loaded {
    /// The modules, by handle.
    pub modules: FxHashMap<Handle, Arc<Module>>,
    /// Stack limits in bytes, by ordinal.
    pub stack: Vec<u64>,
}

impl Module {
    /// A module none of whose kernels has run.
    pub(super) fn new(
        ordinal: Ordinal,
        functions: Vec<FunctionInfo>,
        kernels: Box<dyn Kernels>,
        variables: Option<u64>,
    ) -> Self {
        let costs = functions.iter().map(|_| Cost::default()).collect();
        let tiers = functions.iter().map(|_| Tiers::default()).collect();
        Self { ordinal, functions, kernels, variables, costs, tiers, gone: AtomicBool::new(false) }
    }

    /// It is unloaded. To be called under the device's lock.
    pub(super) fn unload(&self) {
        self.gone.store(true, Relaxed);
    }

    /// Whether it can still be launched. To be called under the device's lock.
    pub(super) fn is_loaded(&self) -> bool {
        !self.gone.load(Relaxed)
    }

    /// A kernel, compiled when it is first asked for. That the compiler fails, in whatever way, is an error of the
    /// launch.
    pub(super) fn kernel(&self, function: u32) -> Result<Arc<abi::Kernel>> {
        match self.kernels.compiled(function) {
            Some(kernel) => Ok(kernel),
            None => contained(|| self.kernels.kernel(function)),
        }
    }

    /// The kernel that device code knows by this number, and its description.
    pub(super) fn kernel_at(&self, pointer: u64) -> Option<(u32, &FunctionInfo)> {
        let index = self.kernels.kernel_at(pointer)?;
        Some((index, self.functions.get(index as usize)?))
    }

    /// What a kernel costs.
    pub(super) fn cost(&self, function: u32) -> Option<&Cost> {
        self.costs.get(function as usize)
    }

    /// Which code of a kernel is run.
    pub(super) fn tiers(&self, function: u32) -> Option<&Tiers> {
        self.tiers.get(function as usize)
    }

    /// Gets code for vectors of threads for a kernel, if there can be some: what is kept, or else, if it has earned that, what is made now.
    pub(super) fn improve(&self, function: u32, earned: Earned) {
        let Some(tiers) = self.tiers(function) else { return };
        for lanes in WIDTHS {
            let most = match earned {
                Earned::Compile(size, most) if size == lanes => Some(most),
                Earned::Compile(..) | Earned::Look => None,
            };
            if let Some(nanoseconds) = self.kernels.improve(function, lanes, most) {
                tiers.postpone(lanes, nanoseconds);
            }
        }
    }
}

/// How long a block of a kernel took lately.
#[derive(Debug, Default)]
pub(super) struct Cost(AtomicU32);

impl Cost {
    /// One worker has run so many blocks in so many nanoseconds.
    pub(super) fn note(&self, blocks: u64, ns: u64) {
        let new = u32::try_from(ns / blocks.max(1)).unwrap_or(u32::MAX).max(1);
        let old = self.0.load(Relaxed);
        // What was long once is believed to be short only after some time.
        let next = if new >= old { new } else { old - (old - new).div_ceil(4) };
        if next != old {
            self.0.store(next, Relaxed);
        }
    }

    /// Nanoseconds that so many blocks will take one worker; `None` where nothing is known.
    pub(super) fn of(&self, blocks: u64) -> Option<u64> {
        let one = self.0.load(Relaxed);
        (one > 0).then(|| blocks.saturating_mul(one.into()))
    }
}

/// A module that has been checked, but not placed.
pub(super) struct Checked {
    program: Program,
    /// What tells it from modules with other PTX.
    identity: [u8; 32],
    managed: HashMap<String, u64>,
    /// Offsets of the variables that need room, by position.
    offsets: Vec<Option<u64>>,
    /// Bytes that the variables need.
    pub size: u64,
}

impl Checked {
    /// Reads an image for a device of this compute capability, and checks all of it.
    pub(super) fn new(image: &[u8], capability: (u32, u32), managed: &[(String, u64)]) -> Result<Self> {
        contained(|| Self::read(image, capability, managed))
    }

    fn read(image: &[u8], capability: (u32, u32), managed: &[(String, u64)]) -> Result<Self> {
        let capability = capability.0 * 10 + capability.1;
        let text = image::ptx_for(image, capability)?;
        let module = ptx::parse(&text).map_err(|e| Error::new(Code::InvalidPtx, e.to_string()))?;
        let program = Program::new(module, capability)?;
        let identity =
            blake3::keyed_hash(blake3::hash(&capability.to_le_bytes()).as_bytes(), text.as_bytes());
        let managed: HashMap<String, u64> = managed.iter().cloned().collect();
        let too_large = || Error::new(Code::OutOfMemory, "The module's variables are too large");
        let mut size = 0u64;
        let mut offsets = Vec::new();
        for global in program.globals() {
            if global.kind == GlobalKind::Managed {
                if !managed.contains_key(&global.name) {
                    return Err(Error::new(
                        Code::InvalidValue,
                        format!("The managed variable {} was given no address", global.name),
                    ));
                }
                offsets.push(None);
                continue;
            }
            // As CUDA does, begin large variables at 256.
            let align = global.align.clamp(16, 4096).max(if global.size >= 256 { 256 } else { 1 });
            let offset = size.checked_next_multiple_of(align).ok_or_else(too_large)?;
            size = offset.checked_add(global.size).ok_or_else(too_large)?;
            offsets.push(Some(offset));
        }
        Ok(Self { program, identity: *identity.as_bytes(), managed, offsets, size })
    }

    /// Variables by name and layout.
    pub(super) fn globals(&self) -> &[GlobalLayout] {
        self.program.globals()
    }

    /// Addresses of the variables when their room begins at `base`.
    fn addresses(&self, base: u64) -> HashMap<String, u64> {
        let globals = self.program.globals().iter().zip(&self.offsets);
        globals
            .map(|(global, offset)| {
                let addr = match offset {
                    Some(offset) => base + offset,
                    None => self.managed.get(&global.name).copied().unwrap_or(0),
                };
                (global.name.clone(), addr)
            })
            .collect()
    }

    /// Links the program, whose compiled kernels the host keeps; `write` stores initial values. What `checks` says is looked at while
    /// its kernels run.
    pub(super) fn place(
        self,
        base: u64,
        (arena, checks): (Range, abi::Checks),
        host: Arc<dyn Host>,
        mut write: impl FnMut(u64, &[u8], GlobalKind) -> Result<()>,
    ) -> Result<(ModuleInfo, Linked)> {
        let addresses = self.addresses(base);
        let mut infos = Vec::new();
        for global in self.program.globals() {
            let addr = addresses[&global.name];
            infos.push(GlobalInfo { name: global.name.clone(), addr, size: global.size, kind: global.kind });
            let mut bytes = global.bytes.clone();
            for relocation in &global.relocations {
                let bad = || {
                    Error::new(
                        Code::InvalidPtx,
                        format!("The initial value of {} refers to {}", global.name, relocation.symbol),
                    )
                };
                let target = addresses.get(&relocation.symbol).ok_or_else(bad)?;
                if relocation.offset.checked_add(8).is_none_or(|end| end > global.size) {
                    return Err(bad());
                }
                let at = relocation.offset as usize;
                bytes.resize(bytes.len().max(at + 8), 0);
                let place = &mut bytes[at..at + 8];
                let value = target.wrapping_add_signed(relocation.addend);
                place.copy_from_slice(&value.to_le_bytes());
            }
            // The room is zeroed; a managed variable's is the program's, and may not be.
            if global.kind == GlobalKind::Managed {
                bytes.resize(usize::try_from(global.size).unwrap_or(bytes.len()), 0);
            }
            if bytes.len() as u64 > global.size {
                bytes.truncate(global.size as usize);
            }
            if !bytes.is_empty() {
                write(addr, &bytes, global.kind)?;
            }
        }
        let info = ModuleInfo { functions: self.program.functions(), globals: infos };
        let environment = Environment { arena, globals: addresses, helpers: helpers::addresses(), checks };
        Ok((info, self.program.link(environment).keep(host, self.identity)))
    }
}

#[cfg(test)]
mod tests {
    use super::Cost;

    #[test]
    fn a_kernel_that_was_long_is_not_taken_for_short_at_once() {
        let cost = Cost::default();
        assert_eq!(cost.of(3), None);
        cost.note(2, 200);
        assert_eq!(cost.of(3), Some(300));
        cost.note(1, 8_100);
        assert_eq!(cost.of(1), Some(8_100));
        cost.note(1, 100);
        assert_eq!(cost.of(1), Some(6_100));
        (0..60).for_each(|_| cost.note(1, 100));
        assert_eq!(cost.of(1), Some(100));
        cost.note(1, u64::MAX);
        assert_eq!(cost.of(u64::MAX), Some(u64::MAX));
    }
}
