//! Modules that are loaded without anybody waiting for it.
//!
//! A module that was [begun](rgpu_protocol::calls::ModuleBegin) is loaded by a thread of its own, while other calls
//! go on; the first call that names it waits for that. If it cannot be loaded, every use of it fails with the reason.
//!
//! The image comes from the client, or from the [store](crate::store). Where the store has lost it since the client
//! was told what is there, the client is asked for it. Until it has come, all other calls are put aside by the reader,
//! because they may rely on the module.

use super::answers::Reply;
use super::calls::{Dispatcher, Payload};
use super::refusals::Refused;
use super::variables::Variables;
use crate::convert;
use crate::store::{Hash, Store};
use parking_lot::{Condvar, Mutex};
use rgpu_device::{Code, Device, Error, Handle, ModuleInfo, Ordinal, Result};
use rgpu_protocol::calls::{self as wire, Call};
use rgpu_protocol::frame::Notice;
use rgpu_protocol::numbers::NumberMap;
use rgpu_protocol::wire::Wire;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// So many modules are being loaded at a time.
const AT_ONCE: usize = 4;
/// The most kernels of a module that can have numbers.
const MAX_NUMBERS: u32 = 1 << 20;
/// The most bytes that the names of all kernels with numbers can have together: mangled names are long, and programs have many.
const MAX_NAMES: usize = 256 << 20;
/// The most modules that a session can have begun at a time.
const MAX_BEGUN: usize = 64 << 10;

/// A load, under way or finished.
#[derive(Default)]
struct Load {
    outcome: Mutex<Option<Result<ModuleInfo>>>,
    finished: Condvar,
}

impl Load {
    fn finish(&self, outcome: Result<ModuleInfo>) {
        *self.outcome.lock() = Some(outcome);
        self.finished.notify_all();
    }

    /// Waits for the end, and tells what `look` makes of it.
    fn wait<T>(&self, look: impl FnOnce(&ModuleInfo) -> Result<T>) -> Result<T> {
        let mut outcome = self.outcome.lock();
        loop {
            match &*outcome {
                Some(Ok(info)) => return look(info),
                Some(Err(e)) => return Err(e.clone()),
                None => self.finished.wait(&mut outcome),
            }
        }
    }
}

/// A kernel that has a number.
struct Numbered {
    name: String,
    /// Its place in the device's [`ModuleInfo`], once somebody has looked.
    index: Option<u32>,
}

struct Begun {
    /// Bytes of the names below.
    names: usize,
    ordinal: Ordinal,
    load: Arc<Load>,
    numbers: NumberMap<u32, Numbered>,
}

/// What was asked for.
struct Wanted {
    ordinal: Ordinal,
    module: Handle,
    hash: Hash,
}

/// The modules of a session that were begun.
pub(super) struct Modules {
    begun: NumberMap<Handle, Begun>,
    /// Loads that may be under way, oldest first.
    under_way: Vec<Arc<Load>>,
    wanted: Option<Wanted>,
    /// Bytes of the names of all kernels with numbers.
    names: usize,
    /// What the last launch named, and the kernel's place.
    last: Option<(Handle, u32, u32)>,
    pub store: Option<Arc<Store>>,
    pub variables: Arc<Variables>,
    pub refused: Arc<Refused>,
    /// The protocol's minor version that the client speaks.
    pub minor: u16,
}

impl Modules {
    /// None yet.
    pub(super) fn new(variables: Arc<Variables>) -> Self {
        let (begun, under_way, refused) = Default::default();
        Self {
            begun,
            under_way,
            wanted: None,
            names: 0,
            last: None,
            store: None,
            variables,
            refused,
            minor: 0,
        }
    }

    /// Whether an image is waited for, because of which most calls have to wait.
    pub(super) fn is_waiting(&self) -> bool {
        self.wanted.is_some()
    }

    /// The place of a kernel in its module; that of a module that was loaded otherwise is its number.
    #[inline]
    pub(super) fn kernel(&mut self, module: Handle, number: u32) -> Result<u32> {
        match self.last {
            Some((m, n, index)) if (m, n) == (module, number) => Ok(index),
            _ => self.look_up(module, number),
        }
    }

    fn look_up(&mut self, module: Handle, number: u32) -> Result<u32> {
        let Some(begun) = self.begun.get_mut(&module) else { return Ok(number) };
        let Some(numbered) = begun.numbers.get_mut(&number) else {
            let text = format!("The module has no kernel number {number}");
            return Err(Error::new(Code::InvalidDeviceFunction, text));
        };
        let index = match numbered.index {
            Some(index) => index,
            None => begun.load.wait(|info| {
                let index = info.functions.iter().position(|f| f.name == numbered.name).ok_or_else(|| {
                    Error::new(
                        Code::InvalidDeviceFunction,
                        format!("The module has no kernel {}", numbered.name),
                    )
                })?;
                Ok(index as u32)
            })?,
        };
        numbered.index = Some(index);
        self.last = Some((module, number, index));
        Ok(index)
    }

    /// The program unloads a module. False where nothing of it is on the device.
    pub(super) fn forget(&mut self, module: Handle) -> bool {
        self.last = None;
        let begun = self.begun.remove(&module);
        self.names -= begun.as_ref().map_or(0, |begun| begun.names);
        let there = begun.is_none_or(|begun| begun.load.wait(|_| Ok(())).is_ok());
        self.variables.unloaded(module);
        self.refused.unloaded(module);
        there
    }

    /// An ordinal is about to be reset.
    pub(super) fn reset(&mut self, ordinal: Ordinal) {
        self.last = None;
        self.begun.retain(|_, begun| {
            let gone = begun.ordinal == ordinal;
            if gone {
                let _ = begun.load.wait(|_| Ok(())); // nothing may come to life after the reset
            }
            !gone
        });
        self.names = self.begun.values().map(|begun| begun.names).sum();
        self.variables.reset(ordinal);
        self.refused.reset(ordinal);
    }

    fn begin(
        &mut self,
        device: &Arc<dyn Device>,
        ordinal: Ordinal,
        module: Handle,
        image: Vec<u8>,
        keep: Option<Hash>,
    ) -> Result<()> {
        if self.begun.len() >= MAX_BEGUN {
            let text = format!("A program can have {MAX_BEGUN} modules at a time");
            return Err(Error::new(Code::OutOfMemory, text));
        }
        self.under_way.retain(|load| load.outcome.lock().is_none());
        if self.under_way.len() >= AT_ONCE {
            let _ = self.under_way.remove(0).wait(|_| Ok(())); // whoever uses it sees how it ended
        }
        let load = Arc::new(Load::default());
        let (device, theirs) = (device.clone(), load.clone());
        let store = keep.and(self.store.clone());
        let keeping = store.as_ref().map(Store::keeping);
        let (variables, refused) = (self.variables.clone(), self.refused.clone());
        let body = move || {
            let outcome = variables.load(&*device, ordinal, module, &image, &[]);
            let well = outcome.as_ref().map(|info| refused.loaded(ordinal, module, info)).is_ok();
            theirs.finish(outcome);
            if let (Some(store), Some(hash), true) = (store, keep, well) {
                store.put(hash, &image);
            }
            drop(keeping);
        };
        let started = std::thread::Builder::new().name("module".into()).spawn(body);
        if let Err(e) = started {
            let text = format!("Cannot start a thread that compiles: {e}");
            load.finish(Err(Error::new(Code::OperatingSystem, text)));
        }
        self.under_way.push(load.clone());
        let replaced =
            self.begun.insert(module, Begun { names: 0, ordinal, load, numbers: NumberMap::default() });
        self.names -= replaced.as_ref().map_or(0, |begun| begun.names);
        match replaced {
            Some(_) => Err(Error::new(Code::InvalidValue, format!("The module {module:#x} was begun twice"))),
            None => Ok(()),
        }
    }
}

impl Dispatcher {
    pub(super) fn module_begin(&mut self, call: wire::ModuleBegin, _: Payload<'_>) -> Result<()> {
        let wire::ModuleBegin { ordinal, module, hash, stored } = call;
        self.ordinal = ordinal;
        let image = if stored {
            self.modules.store.as_ref().and_then(|store| store.get(&hash))
        } else {
            self.images.remove(&module)
        };
        match image {
            Some(image) => {
                let keep = (!stored).then_some(hash);
                self.modules.begin(&self.device, ordinal, module, image, keep)
            }
            None if stored => {
                self.modules.wanted = Some(Wanted { ordinal, module, hash });
                self.out.notice(Notice::ModuleWanted, 0, &[&module.to_le_bytes()]);
                Ok(())
            }
            None => {
                self.malformed("a module was begun of whose image nothing was sent");
                Ok(())
            }
        }
    }

    pub(super) fn module_image(&mut self, call: wire::ModuleImage, payload: Payload<'_>) -> Result<()> {
        match self.modules.wanted.take() {
            Some(wanted) if wanted.module == call.module => {
                self.ordinal = wanted.ordinal;
                let mut image = self.images.remove(&call.module).unwrap_or_default();
                image.extend_from_slice(payload.bytes());
                self.modules.begin(&self.device, wanted.ordinal, wanted.module, image, Some(wanted.hash))
            }
            _ => {
                self.malformed("an image was sent that was not asked for");
                Ok(())
            }
        }
    }

    pub(super) fn module_function(&mut self, call: wire::ModuleFunction, _: Payload<'_>) -> Result<()> {
        let names = self.modules.names.saturating_add(call.name.len());
        match self.modules.begun.get_mut(&call.module) {
            Some(_) if names > MAX_NAMES => {
                let text = format!("The names of a program's kernels have more than {MAX_NAMES} bytes");
                Err(Error::new(Code::OutOfMemory, text))
            }
            Some(begun) if call.number < MAX_NUMBERS => {
                begun.names += call.name.len();
                self.modules.names = names;
                self.modules.last = None;
                begun.numbers.insert(call.number, Numbered { name: call.name, index: None });
                Ok(())
            }
            _ => Err(Error::new(Code::InvalidHandle, format!("No module {:#x} was begun", call.module))),
        }
    }

    pub(super) fn module_info(
        &mut self,
        call: wire::ModuleInfoAsk,
        _: Payload<'_>,
    ) -> Reply<wire::ModuleInfo> {
        let Some(begun) = self.modules.begun.get(&call.module) else {
            let text = format!("No module {:#x} was begun", call.module);
            return Reply::Now(Err(Error::new(Code::InvalidHandle, text)));
        };
        self.ordinal = begun.ordinal;
        // Compiling takes its time, in which other threads' calls go on.
        let (load, answers) = (begun.load.clone(), self.answers.clone());
        let (sequence, ordinal, minor) = (self.sequence, self.ordinal, self.modules.minor);
        let tell = move || {
            let info = load.wait(|info| Ok(convert::module_info(info.clone(), minor)));
            answers.activity.unanswered.fetch_sub(1, Relaxed);
            let encode = info.map(|info| move |out: &mut Vec<u8>| info.encode(out));
            answers.out.answer(wire::ModuleInfoAsk::NUMBER, sequence, ordinal, encode);
        };
        match self.helpers.do_soon(tell) {
            Ok(()) => Reply::Later,
            Err(e) => {
                let text = format!("Cannot start a thread: {e}");
                Reply::Now(Err(Error::new(Code::OperatingSystem, text)))
            }
        }
    }

    pub(super) fn refusals(&mut self, call: wire::RefusalsAsk, _: Payload<'_>) -> Reply<wire::Refusals> {
        Reply::Now(Ok(self.modules.refused.of(call.module)))
    }
}
