//! The NVMe devices that a node offers: attached when a lease gives them, detached when it ends.
//!
//! The commands that do so are the administrator's ([`NvmeOptions`]); what is attached, and how, is no matter of this server. They are
//! started without a shell, one at a time, in the order in which leases came, and may take no longer than they are given.
//! What is attached is written down before its command begins and struck off after it was detached, so that a server that is
//! started again detaches what the one before it left over.

mod command;
#[cfg(test)]
mod tests;

use parking_lot::{Condvar, Mutex};
use rgpu_control::LeaseId;
use rgpu_control::api::{LeaseReport, NvmeReport, NvmeState, Orders};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use command::{Template, TemplateError};

/// How long an attach or detach command may take where nothing was said.
pub const COMMAND_TIME: Duration = Duration::from_secs(30);

/// Which NVMe devices a node offers, and how they get to programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmeOptions {
    /// The devices.
    pub devices: Vec<NvmeReport>,
    /// Brings a device to the host of a lease; its last line on standard output says where the device is there.
    pub attach: Template,
    /// Takes it back.
    pub detach: Template,
    /// How long each may take.
    pub time: Duration,
    /// The folder where it is written down what is attached.
    pub state: PathBuf,
}

/// What is attached, or being so: as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Place {
    lease: LeaseId,
    device: String,
    host: String,
}

/// How it stands with a place.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Status {
    /// A command runs, or the device is attached by a server that is gone.
    Held,
    /// It is attached, and is found there.
    Attached(String),
    /// It could not be attached, for this reason. Nothing is held.
    Failed(String),
    /// It could not be detached. The lease is given up all the same; nobody gets the device before it was detached.
    Stuck,
}

#[derive(Default)]
struct Inner {
    /// The version of the latest orders.
    applied: u64,
    wanted: BTreeSet<Place>,
    places: BTreeMap<Place, Status>,
    stopping: bool,
}

/// The devices, and the thread that attaches and detaches them.
pub(crate) struct NvmeKeeper {
    node: String,
    options: NvmeOptions,
    /// Where it is written down what is attached.
    file: PathBuf,
    inner: Mutex<Inner>,
    changed: Condvar,
    tell: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
}

impl NvmeKeeper {
    /// Begins, with what an earlier server left over.
    pub(crate) fn start(node: &str, options: NvmeOptions) -> std::io::Result<Arc<Self>> {
        let file = options.state.join(format!("nvme-{node}.json"));
        let left = read(&file)?;
        if !left.is_empty() {
            tracing::info!(
                "{} NVMe devices are still attached from before, and are detached first",
                left.len()
            );
        }
        let places = left.into_iter().map(|place| (place, Status::Held)).collect();
        let keeper = Arc::new(Self {
            node: node.to_owned(),
            options,
            file,
            inner: Mutex::new(Inner { places, ..Inner::default() }),
            changed: Condvar::new(),
            tell: Mutex::default(),
        });
        let worker = keeper.clone();
        let body = move || {
            worker.detach_left_over();
            worker.work();
        };
        std::thread::Builder::new().name("agent-nvme".into()).spawn(body)?;
        Ok(keeper)
    }

    /// Calls this when something has changed that the broker should hear. It must not call the keeper.
    pub(crate) fn on_change(&self, tell: impl Fn() + Send + Sync + 'static) {
        *self.tell.lock() = Some(Arc::new(tell));
    }

    /// What the node offers.
    pub(crate) fn devices(&self) -> &[NvmeReport] {
        &self.options.devices
    }

    /// Takes the broker's orders. Must be done before the leases' table takes them: what that has ended is confirmed only when nothing
    /// of it is held here ([`NvmeKeeper::hold_back`]).
    pub(crate) fn apply(&self, orders: &Orders) {
        let mut inner = self.inner.lock();
        if orders.version <= inner.applied {
            return;
        }
        inner.applied = orders.version;
        // Leases that have yet to be proved go on as they are.
        let unproven = |place: &&Place| orders.prove.contains(&place.lease);
        let kept: Vec<Place> = inner.wanted.iter().filter(unproven).cloned().collect();
        let ordered = orders.leases.iter().flat_map(|order| {
            order.nvmes.iter().map(|nvme| Place {
                lease: order.lease,
                device: nvme.device.clone(),
                host: nvme.host.clone(),
            })
        });
        inner.wanted = ordered.chain(kept).collect();
        self.changed.notify_all();
    }

    /// How it stands with the devices that leases want.
    pub(crate) fn states(&self) -> Vec<NvmeState> {
        let inner = self.inner.lock();
        let state = |(place, status): (&Place, &Status)| {
            let (path, failure) = match status {
                Status::Attached(path) => (Some(path.clone()), None),
                Status::Failed(why) => (None, Some(why.clone())),
                Status::Held | Status::Stuck => return None,
            };
            Some(NvmeState { lease: place.lease, device: place.device.clone(), path, failure })
        };
        inner.places.iter().filter(|(place, _)| inner.wanted.contains(place)).filter_map(state).collect()
    }

    /// Leases of which something is still attached are not over: takes them out of `ended`, and says that they are there.
    pub(crate) fn hold_back(&self, leases: &mut Vec<LeaseReport>, ended: &mut Vec<LeaseId>) {
        let inner = self.inner.lock();
        let held =
            inner.places.iter().filter(|(_, status)| matches!(status, Status::Held | Status::Attached(_)));
        let held: BTreeSet<LeaseId> = held.map(|(place, _)| place.lease).collect();
        ended.retain(|lease| !held.contains(lease));
        for lease in held {
            if !leases.iter().any(|report| report.lease == lease) {
                leases.push(LeaseReport {
                    lease,
                    version: 0,
                    sessions: 0,
                    usage: Vec::new(),
                    processors: None,
                });
            }
        }
    }

    /// Ends the thread when its command is done. What is attached stays so; the next server detaches it.
    pub(crate) fn stop(&self) {
        self.inner.lock().stopping = true;
        self.changed.notify_all();
    }

    fn detach_left_over(&self) {
        let left: Vec<Place> = self.inner.lock().places.keys().cloned().collect();
        for place in left {
            self.detach(&place);
        }
    }

    fn work(&self) {
        loop {
            let (place, attach) = {
                let mut inner = self.inner.lock();
                loop {
                    if inner.stopping {
                        return;
                    }
                    // Who failed is forgotten with the lease.
                    let Inner { wanted, places, .. } = &mut *inner;
                    places.retain(|place, status| {
                        !matches!(status, Status::Failed(_)) || wanted.contains(place)
                    });
                    let over = places.iter().find(|(place, status)| {
                        matches!(status, Status::Attached(_)) && !wanted.contains(place)
                    });
                    if let Some((place, _)) = over {
                        break (place.clone(), false);
                    }
                    if let Some(place) = wanted.iter().find(|place| !places.contains_key(place)).cloned() {
                        places.insert(place.clone(), Status::Held);
                        break (place, true);
                    }
                    self.changed.wait(&mut inner);
                }
            };
            match attach {
                true => self.attach(place),
                false => self.detach(&place),
            }
        }
    }

    fn attach(&self, place: Place) {
        let status = match self.try_attach(&place) {
            Ok(path) => {
                tracing::info!(
                    "NVMe device {} is attached for lease {} at {path}",
                    place.device,
                    place.lease
                );
                Status::Attached(path)
            }
            Err(why) => {
                tracing::warn!(
                    "NVMe device {} cannot be attached for lease {}: {why}",
                    place.device,
                    place.lease
                );
                Status::Failed(why)
            }
        };
        self.put(place, Some(status));
    }

    fn try_attach(&self, place: &Place) -> Result<String, String> {
        if !self.options.devices.iter().any(|device| device.name == place.device) {
            return Err("this node does not offer it".into());
        }
        let stuck: Vec<Place> = {
            let inner = self.inner.lock();
            let of_device = |(other, status): &(&Place, &Status)| {
                other.device == place.device && **status == Status::Stuck
            };
            inner.places.iter().filter(of_device).map(|(place, _)| place.clone()).collect()
        };
        for old in stuck {
            self.detach(&old);
            if self.inner.lock().places.contains_key(&old) {
                return Err(format!("it is still attached for lease {}, and cannot be detached", old.lease));
            }
        }
        // Written down first: should this server die meanwhile, the next one detaches it.
        self.write().map_err(|e| format!("cannot write {}: {e}", self.file.display()))?;
        let attached = self.run(&self.options.attach, place);
        if attached.is_err() {
            // Half of it may have been done.
            if let Err(why) = self.run(&self.options.detach, place) {
                tracing::debug!("detaching what could not be attached: {why}");
            }
        }
        Ok(attached?.unwrap_or_else(|| place.device.clone()))
    }

    fn detach(&self, place: &Place) {
        self.put(place.clone(), Some(Status::Held));
        let status = match self.run(&self.options.detach, place) {
            Ok(_) => {
                tracing::info!("NVMe device {} of lease {} is detached", place.device, place.lease);
                None
            }
            Err(why) => {
                tracing::error!(
                    "NVMe device {} of lease {} cannot be detached, and is given to nobody until it is: {why}",
                    place.device,
                    place.lease
                );
                Some(Status::Stuck)
            }
        };
        self.put(place.clone(), status);
    }

    fn run(&self, template: &Template, place: &Place) -> Result<Option<String>, String> {
        let lease = place.lease.to_string();
        let values = [
            ("{device}", place.device.as_str()),
            ("{lease}", &lease),
            ("{target}", &self.node),
            ("{host}", &place.host),
        ];
        template.run(&values, self.options.time)
    }

    fn put(&self, place: Place, status: Option<Status>) {
        {
            let mut inner = self.inner.lock();
            match status {
                Some(status) => inner.places.insert(place, status),
                None => inner.places.remove(&place),
            };
        }
        if let Err(e) = self.write() {
            tracing::error!("cannot write {}: {e}", self.file.display());
        }
        let tell = self.tell.lock().clone();
        if let Some(tell) = tell {
            tell();
        }
    }

    /// Writes down what is attached, or may be.
    fn write(&self) -> std::io::Result<()> {
        let places: Vec<Place> = {
            let inner = self.inner.lock();
            let may_be = inner.places.iter().filter(|(_, status)| !matches!(status, Status::Failed(_)));
            may_be.map(|(place, _)| place.clone()).collect()
        };
        std::fs::create_dir_all(&self.options.state)?;
        let new = self.file.with_extension("new");
        std::fs::write(&new, serde_json::to_vec(&places)?)?;
        std::fs::File::open(&new)?.sync_all()?;
        std::fs::rename(&new, &self.file)
    }
}

/// What is written down; nothing where there is no file.
fn read(path: &Path) -> std::io::Result<Vec<Place>> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => {
            let text = format!("Cannot read which NVMe devices are attached, in {}: {e}", path.display());
            return Err(std::io::Error::new(e.kind(), text));
        }
    };
    serde_json::from_slice(&text).map_err(|e| {
        let text = format!(
            "{} does not say which NVMe devices are attached: {e}. Detach them by hand, and remove it",
            path.display()
        );
        std::io::Error::new(std::io::ErrorKind::InvalidData, text)
    })
}
