//! Where the device is: in a server, or in this process. Both look the same from here on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rgpu_control::settings::PROFILE_KERNELS_VARIABLE;
use rgpu_device::{AddressPlan, Device, DeviceInfo, MemoryNote, attribute};
use rgpu_remote::{Remote, Server, Several};

use super::check;
use super::error::{Code, Error, Result};
use super::host::HostSide;
use super::servers;
#[cfg(feature = "in-process")]
use super::soft_gpu;

/// Whether the program has chosen the software GPU in its own process ([`choose_in_process`]). It is the process's, not a
/// core's: the choice is made before there is any core.
static IN_PROCESS_CHOSEN: AtomicBool = AtomicBool::new(false);

/// Has every session from now on use a software GPU in this process, whatever the environment says.
///
/// # Errors
/// [`Code::NotSupported`] where this library was built without one.
pub(crate) fn choose_in_process() -> Result<()> {
    if cfg!(not(feature = "in-process")) {
        return Err(built_without(Code::NotSupported));
    }
    IN_PROCESS_CHOSEN.store(true, Ordering::Release);
    Ok(())
}

/// The error of a library that was built without the feature `in-process`.
fn built_without(code: Code) -> Error {
    Error::new(
        code,
        "this librgpu.so was built without the software GPU (the Cargo feature `in-process`): use a server's GPU \
         (RGPU_SERVER=HOST:PORT), or a library that was built with it",
    )
}

/// A device with its reserved addresses.
pub(crate) struct Session {
    /// What executes the calls: a connection to one server or several, or the software GPU in this process.
    pub device: Arc<dyn Device>,
    /// How its addresses are used.
    pub plan: AddressPlan,
    /// The devices, by ordinal.
    pub infos: Vec<DeviceInfo>,
    /// What the device calls back.
    pub host: Arc<HostSide>,
    /// Which server each device is of; empty where there are not several.
    pub groups: Vec<usize>,
    goodbye: Box<dyn Fn() + Send + Sync>,
}

impl Session {
    /// Opens the session that [`choose_in_process`] or else the environment asks for: `RGPU_IN_PROCESS=1`,
    /// `RGPU_LEASE=FILE` or `RGPU_SERVER=HOST:PORT,…`. It has the devices that `CUDA_VISIBLE_DEVICES` leaves visible.
    pub(crate) fn open() -> Result<Self> {
        let mut session = Self::with(false).inspect_err(check::not_opened)?;
        if let Ok(visible) = std::env::var("CUDA_VISIBLE_DEVICES") {
            let count = visible_devices(&visible, session.infos.len())?;
            session.infos.truncate(count);
        }
        Ok(session)
    }

    /// A session with the same devices, hidden ones too, that a server lets only look at them: for monitoring.
    pub(crate) fn observe() -> Result<Self> {
        Self::with(true)
    }

    fn with(observe: bool) -> Result<Self> {
        let chosen = IN_PROCESS_CHOSEN.load(Ordering::Acquire);
        if chosen || std::env::var("RGPU_IN_PROCESS").is_ok_and(|v| !matches!(v.as_str(), "" | "0")) {
            #[cfg(feature = "in-process")]
            return {
                let config = match chosen {
                    true => soft_gpu::config_of_machine(),
                    false => soft_gpu::config_of_environment()?,
                };
                Self::in_process(config, soft_gpu::code_folder()?)
            };
            #[cfg(not(feature = "in-process"))]
            return Err(built_without(Code::NoDevice));
        }
        if rgpu_control::settings::variable(PROFILE_KERNELS_VARIABLE).is_some() {
            let text = format!(
                "{PROFILE_KERNELS_VARIABLE} is for the software GPU inside a program (RGPU_IN_PROCESS=1): what a server's kernels do is not counted"
            );
            return Err(Error::new(Code::NoDevice, text));
        }
        match &*servers::of_environment(observe)? {
            [] => Err(Error::new(
                Code::NoDevice,
                "no GPU: set RGPU_SERVER=HOST:PORT to use a server's, or RGPU_IN_PROCESS=1 for the software GPU",
            )),
            [server] => Self::remote(server),
            several => Self::several(several),
        }
    }

    fn several(servers: &[Server]) -> Result<Self> {
        let check = servers.first().and_then(|server| server.options.check);
        let host = Arc::new(HostSide::new().report(check));
        let several = Several::connect(servers, host.clone())?;
        let (plan, groups) = (several.plan().clone(), several.groups());
        let (goodbye, puller) = (several.clone(), several.clone());
        host.set_pull(Box::new(move || {
            if let Err(error) = puller.pull_shared_writes() {
                super::error::log(&error.message);
            }
        }));
        let ends = host.clone();
        let goodbye = Box::new(move || {
            end_check(&*goodbye, &ends);
            goodbye.goodbye();
        });
        let session = Self::new(several, plan, host, goodbye)?;
        Ok(Self { groups, ..session })
    }

    fn remote(server: &Server) -> Result<Self> {
        let host = Arc::new(HostSide::new().report(server.options.check));
        let remote = Remote::connect(&server.address, server.options.clone(), host.clone())?;
        let plan = remote.plan().clone();
        let (goodbye, puller) = (remote.clone(), remote.clone());
        if !remote.writes_come_before_functions() {
            host.set_pull(Box::new(move || {
                if let Err(error) = puller.pull_shared_writes() {
                    super::error::log(&error.message);
                }
            }));
        }
        let ends = host.clone();
        let goodbye = Box::new(move || {
            end_check(&*goodbye, &ends);
            goodbye.goodbye();
        });
        Self::new(remote, plan, host, goodbye)
    }

    /// A session with a software GPU in this process, which keeps machine code in the folder.
    #[cfg(feature = "in-process")]
    pub(super) fn in_process(
        config: rgpu_softgpu::Config,
        code: Option<rgpu_control::kept::Folder>,
    ) -> Result<Self> {
        let host = Arc::new(HostSide::new().keep_code_in(code).report(config.check));
        let (device, plan) = soft_gpu::open(config, host.clone())?;
        let (ending, ends) = (device.clone(), host.clone());
        Self::new(device, plan, host, Box::new(move || end_check(&*ending, &ends)))
    }

    /// A session over an open device whose addresses are reserved.
    pub(crate) fn new(
        device: Arc<dyn Device>,
        plan: AddressPlan,
        host: Arc<HostSide>,
        goodbye: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Self> {
        let mut infos = device.infos();
        if device.shares_memory() {
            infos.iter_mut().for_each(say_that_memory_is_one);
        }
        if infos.is_empty() {
            return Err(Error::new(Code::NoDevice, "The server has no device for this application"));
        }
        if plan.devices.len() < infos.len() {
            return Err(Error::new(Code::SystemNotReady, "The address plan leaves a device out"));
        }
        host.attach(device.clone());
        Ok(Self { device, plan, infos, host, groups: Vec::new(), goodbye })
    }

    /// Whether two devices are of the same server, or in this process.
    pub(crate) fn are_together(&self, a: u32, b: u32) -> bool {
        self.groups.get(a as usize) == self.groups.get(b as usize)
    }

    /// Says goodbye: what was posted is on its way when this returns. Doesn't wait for an answer.
    pub(crate) fn close(&self) {
        (self.goodbye)();
    }
}

/// The program ends: has a device that looks at kernels tell what is left to tell.
fn end_check(device: &dyn Device, host: &HostSide) {
    if device.wants_memory_notes() {
        host.end_reports(&device.note_memory_blocking(MemoryNote::End));
    }
}

/// Has a device say what it can do where pinned and managed memory is the same memory for both sides. The kernels' own accesses
/// stay within what was allocated for them, so that pageable memory is not among it.
fn say_that_memory_is_one(info: &mut DeviceInfo) {
    for number in [attribute::HOST_NATIVE_ATOMIC_SUPPORTED, attribute::CONCURRENT_MANAGED_ACCESS] {
        match info.attributes.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(at) => info.attributes[at].1 = 1,
            Err(at) => info.attributes.insert(at, (number, 1)),
        }
    }
}

/// How many devices `CUDA_VISIBLE_DEVICES` leaves visible: the list ends at its first invalid entry. Lists that hide or
/// reorder earlier devices are refused rather than misread.
fn visible_devices(list: &str, count: usize) -> Result<usize> {
    let mut visible = 0;
    for entry in list.split(',') {
        let Some(ordinal) = entry.trim().parse::<usize>().ok().filter(|ordinal| *ordinal < count) else {
            break;
        };
        if ordinal != visible {
            let text = format!("CUDA_VISIBLE_DEVICES={list}: only lists that begin 0,1,2 are supported");
            return Err(Error::new(Code::NoDevice, text));
        }
        visible += 1;
    }
    if visible == 0 {
        return Err(Error::new(Code::NoDevice, format!("CUDA_VISIBLE_DEVICES={list} hides every device")));
    }
    Ok(visible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_hidden_from_the_end() {
        assert_eq!(visible_devices("0", 2), Ok(1));
        assert_eq!(visible_devices("0, 1", 2), Ok(2));
        assert_eq!(visible_devices("0,-1,1", 2), Ok(1));
        assert!(visible_devices("", 2).is_err() && visible_devices("-1", 2).is_err());
        assert!(visible_devices("1", 2).unwrap_err().message.contains("supported"));
    }

    #[cfg(not(feature = "in-process"))]
    #[test]
    fn a_library_without_the_software_gpu_says_so() {
        let refused = choose_in_process().unwrap_err();
        assert_eq!(refused.code, Code::NotSupported);
        assert!(refused.message.contains("built without the software GPU"), "{}", refused.message);
        assert!(!IN_PROCESS_CHOSEN.load(Ordering::Acquire));
    }
}
