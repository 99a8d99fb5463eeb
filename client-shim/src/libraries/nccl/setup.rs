//! How communicators are made.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use rgpu_collectives::interfaces::{self, Choice};
use rgpu_collectives::{Failure as F, ID_BYTES, Joining, Process, UniqueId, rendezvous};
use rgpu_control::settings::{self, NCCL_SECRET_VARIABLE, NCCL_TIMEOUT_S, NCCL_TIMEOUT_VARIABLE};
use rgpu_control::units::parse_duration;
use rgpu_device::Ordinal;

use super::comm::{self, Comm, Task};
use super::status::{Failure, In, Out, Result, Status, fail, invalid, nccl};
use super::{group, worker};
use crate::core::{Context, current, error};

/// What `ncclConfig_t` of all versions begins with.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct ConfigHead {
    size: usize,
    magic: u32,
    _version: u32,
    blocking: i32,
}

/// `NCCL_API_MAGIC`.
const MAGIC: u32 = 0xcafe_beef;
/// `NCCL_CONFIG_UNDEF_INT`.
const UNDEFINED: i32 = i32::MIN;
/// `NCCL_SPLIT_NOCOLOR`.
const NO_COLOR: i32 = -1;
/// Secrets are not shorter.
const SHORTEST_SECRET: usize = 16;

/// An `ncclUniqueId`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct IdBytes([u8; ID_BYTES]);

#[cfg(test)]
crate::abi::signature::structures!(IdBytes);

impl IdBytes {
    fn parsed(&self) -> Result<UniqueId> {
        let id = UniqueId::parse(&self.0);
        id.map_or_else(|| invalid("The id is none that ncclGetUniqueId of rgpu has made"), Ok)
    }
}

/// Whether calls of a communicator wait, by its configuration.
fn is_blocking(config: In<ConfigHead>, otherwise: bool) -> Result<bool> {
    if config.is_null() {
        return Ok(otherwise);
    }
    let config = config.get()?;
    if config.magic != MAGIC || config.size < size_of::<ConfigHead>() {
        return invalid("The configuration was not initialised with NCCL_CONFIG_INITIALIZER");
    }
    match config.blocking {
        UNDEFINED => Ok(otherwise),
        0 => Ok(false),
        1 => Ok(true),
        other => invalid(format!("A configuration whose `blocking` is {other}")),
    }
}

fn choice() -> Choice {
    let family = match settings::text("NCCL_SOCKET_FAMILY").as_deref() {
        Some("AF_INET") => Some(4),
        Some("AF_INET6") => Some(6),
        _ => None,
    };
    Choice { names: settings::text("NCCL_SOCKET_IFNAME"), family }
}

/// The address that the program's settings name; nothing where they leave it open.
fn address() -> std::result::Result<Option<IpAddr>, F> {
    let choice = choice();
    if choice == Choice::default() {
        return Ok(None);
    }
    let chosen = choice.of(&interfaces::list());
    chosen.map(Some).ok_or_else(|| {
        F::System(format!("No interface is as NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY say ({choice:?})"))
    })
}

/// How long ranks may take to come together.
fn limit() -> Duration {
    let said = settings::text(NCCL_TIMEOUT_VARIABLE).and_then(|text| match parse_duration(&text) {
        Ok(time) if !time.is_zero() => Some(time),
        _ => {
            error::say_once(&format!(
                "{NCCL_TIMEOUT_VARIABLE}={text} is no time; {NCCL_TIMEOUT_S} seconds count"
            ));
            None
        }
    });
    said.unwrap_or(Duration::from_secs(NCCL_TIMEOUT_S))
}

/// Opens a rendezvous in this process.
pub(super) fn announced() -> std::result::Result<UniqueId, F> {
    let address = address()?.or_else(|| Choice::default().of(&interfaces::list()));
    let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    rendezvous::announce(address, limit())
        .map_err(|e| F::System(format!("The rendezvous cannot listen at {address}: {e}")))
}

/// The rendezvous at the address that `NCCL_COMM_ID` says, with the secret that ranks know of each other beforehand.
fn known_beforehand(place: &str) -> Result<UniqueId> {
    let addresses = place.to_socket_addrs().ok().and_then(|mut found| found.next());
    let Some(address) = addresses.filter(|address: &SocketAddr| address.port() != 0) else {
        return invalid(format!("NCCL_COMM_ID={place} is no HOST:PORT"));
    };
    let secret = settings::text(NCCL_SECRET_VARIABLE).unwrap_or_default();
    if secret.len() < SHORTEST_SECRET {
        let why = format!(
            "With NCCL_COMM_ID, {NCCL_SECRET_VARIABLE} has to be set to the same {SHORTEST_SECRET} characters or more in all ranks: \
             without a secret anybody could join"
        );
        error::say_once(&why);
        return fail(Status::InvalidUsage, why);
    }
    let secret = blake3::derive_key("rgpu NCCL rendezvous 2026", secret.as_bytes());
    Ok(UniqueId { address, secret, fixed: true })
}

/// How this process joins.
pub(super) fn joining(id: UniqueId, rank: u32, ranks: u32, device: Ordinal) -> Joining {
    // What is wrong with the settings was said when the id was made, or the rank is reachable from where the
    // rendezvous is.
    let address = address().ok().flatten();
    Joining { id, rank, ranks, limit: limit(), address, process: Process::this(), device }
}

/// Where the program wants a communicator's handle, and a new one in this context.
fn new_at(out: Out<usize>, context: Arc<Context>, blocking: bool, place: (u32, u32)) -> Result<Arc<Comm>> {
    out.check()?;
    let comm = Comm::new(context, blocking, place)?;
    out.set(comm.raw)?;
    Ok(comm)
}

fn init(out: Out<usize>, ranks: i32, id: &IdBytes, rank: i32, config: In<ConfigHead>) -> Result<()> {
    out.check()?;
    let (Ok(of), Ok(own)) = (u32::try_from(ranks), u32::try_from(rank)) else {
        return invalid(format!("Rank {rank} of {ranks}"));
    };
    if own >= of {
        return invalid(format!("Rank {rank} of {ranks}"));
    }
    let blocking = is_blocking(config, true)?;
    let id = id.parsed()?;
    let context = current()?.runtime_context()?;
    let device = context.ordinal;
    let comm = new_at(out, context, blocking, (own, of))?;
    worker::start(comm.clone(), joining(id, own, of, device));
    group::started(comm)
}

/// Does something with each of these devices current, and then makes what was current before current again.
fn on_devices(devices: &[i32], mut body: impl FnMut(u32, Arc<Context>) -> Result<()>) -> Result<()> {
    let core = current()?;
    let (before, context) = (core.get_device(), core.context_current_raw());
    let done = (0..).zip(devices).try_for_each(|(rank, device)| {
        let device = u32::try_from(*device).ok().filter(|device| *device < core.device_count());
        let Some(device) = device else {
            return invalid(format!("There is no device {}", devices[rank as usize]));
        };
        core.set_device(device)?;
        body(rank, core.runtime_context()?)
    });
    core.set_device(before)?;
    if context != 0 {
        core.context_set_current(context)?;
    }
    done
}

fn init_all(out: Out<usize>, devices: &[i32]) -> Result<()> {
    if (1..devices.len()).any(|i| devices[..i].contains(&devices[i])) {
        return fail(Status::InvalidUsage, "A device is to be two ranks");
    }
    // All ranks are in this process, so nobody else needs to get there.
    let id = rendezvous::announce(Ipv4Addr::LOCALHOST.into(), limit());
    let id = id.map_err(|e| Failure { status: Status::SystemError, why: e.to_string() })?;
    let (ranks, mut comms) = (devices.len() as u32, Vec::new());
    let made = on_devices(devices, |rank, context| {
        comms.push(Comm::new(context, true, (rank, ranks))?);
        Ok(())
    });
    if let Err(failure) = made {
        comms.iter().for_each(|comm| comm.forget());
        return Err(failure);
    }
    for (rank, comm) in (0..).zip(&comms) {
        worker::start(comm.clone(), joining(id.clone(), rank, ranks, comm.context.ordinal));
    }
    for (i, comm) in comms.into_iter().enumerate() {
        // SAFETY: the program has room for as many as it has named devices.
        unsafe { out.at(i) }.set(comm.raw)?;
        group::started(comm)?;
    }
    Ok(())
}

nccl! {
    fn ncclGetUniqueId(out: Out<IdBytes>) {
        out.check()?;
        let id = match settings::text("NCCL_COMM_ID") {
            Some(place) => known_beforehand(&place)?,
            None => announced()?,
        };
        out.set(IdBytes(id.to_bytes()))
    }

    fn ncclCommInitRank(out: Out<usize>, ranks: i32, id: IdBytes, rank: i32) {
        group::noting(init(out, ranks, &id, rank, In::null()))
    }

    fn ncclCommInitRankConfig(out: Out<usize>, ranks: i32, id: IdBytes, rank: i32, config: In<ConfigHead>) {
        group::noting(init(out, ranks, &id, rank, config))
    }

    /// The ranks meet where the first id says: that scales as far as this library does.
    fn ncclCommInitRankScalable(
        out: Out<usize>, ranks: i32, rank: i32, count: i32, ids: In<IdBytes>, config: In<ConfigHead>,
    ) {
        if count < 1 || count > ranks {
            return invalid(format!("{count} ids for {ranks} ranks"));
        }
        group::noting(init(out, ranks, &ids.get()?, rank, config))
    }

    fn ncclCommInitAll(out: Out<usize>, count: i32, devices: In<i32>) {
        out.check()?;
        if count < 1 || count as u32 > current()?.device_count() {
            return invalid(format!("{count} ranks, with {} devices", current()?.device_count()));
        }
        let devices = if devices.is_null() {
            (0..count).collect()
        } else {
            // SAFETY: the program says that so many are there.
            unsafe { devices.list(count as usize) }?
        };
        group::noting(init_all(out, &devices))
    }

    fn ncclCommSplit(comm: usize, color: i32, key: i32, out: Out<usize>, config: In<ConfigHead>) {
        let comm = comm::get(comm)?;
        out.check()?;
        if color < 0 && color != NO_COLOR {
            return invalid(format!("The color {color}"));
        }
        let blocking = is_blocking(config, comm.blocking)?;
        comm.check()?;
        if color == NO_COLOR {
            out.set(0)?;
            return comm.enqueue(Task::Split { color, key, child: None }, &[]);
        }
        let child = new_at(out, comm.context.clone(), blocking, (0, 0))?;
        comm.enqueue(Task::Split { color, key, child: Some(child.clone()) }, &[])?;
        group::noting(group::started(child))
    }

    fn ncclCommShrink(
        comm: usize, excluded: In<i32>, count: i32, out: Out<usize>, config: In<ConfigHead>, flags: i32,
    ) {
        let comm = comm::get(comm)?;
        out.check()?;
        if flags != 0 {
            return super::status::missing("ncclCommShrink of a communicator whose operations are to be aborted");
        }
        let blocking = is_blocking(config, comm.blocking)?;
        comm.check()?;
        let (own, ranks) = comm.state().place;
        // SAFETY: the program says that so many are there.
        let excluded = unsafe { excluded.list(usize::try_from(count).unwrap_or(0)) }?;
        if excluded.is_empty() || excluded.iter().any(|rank| !(0..ranks as i32).contains(rank)) {
            return invalid(format!("The ranks {excluded:?} are to be left out of {ranks}"));
        }
        if excluded.contains(&(own as i32)) {
            return invalid("A rank that is left out takes no part");
        }
        let members = (0..ranks).filter(|rank| !excluded.contains(&(*rank as i32))).collect();
        let child = new_at(out, comm.context.clone(), blocking, (0, 0))?;
        comm.enqueue(Task::Shrink { members, child: child.clone() }, &[])?;
        group::noting(group::started(child))
    }
}
