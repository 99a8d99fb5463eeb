//! Connecting to all servers at once, with addresses that suit all of them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, RwLock};
use rgpu_device::attribute::PCI_DOMAIN_ID;
use rgpu_device::{AddressPlan, Code, Device, DeviceInfo, Error, FIRST_STREAM, Host, Range, Result, Seat};

use super::gates::Gates;
use super::{Application, Owners, Server, Several, Spot};
use crate::remote::{CommonAddresses, Remote, SharedRange};
use crate::threads::without_signals;

impl Several {
    /// Connects to servers, in the order of their devices' ordinals.
    pub fn connect(servers: &[Server], host: Arc<dyn Application>) -> Result<Arc<Self>> {
        let count = servers.len() as u32;
        if count > Seat::MOST {
            let text = format!("{count} servers are too many for one program; {} can be used", Seat::MOST);
            return Err(Error::new(Code::NoDevice, text));
        }
        if servers.iter().all(|server| server.options.observe) {
            let remotes = connect_all(servers, None, &host)?;
            return Self::new(servers, remotes, None, host);
        }
        let mut tried = Vec::new();
        let mut refusal: Option<Error> = None;
        loop {
            let addresses = CommonAddresses::next(&mut tried, count).map_err(|e| match &refusal {
                Some(refusal) => Error::new(e.code, format!("{} ({})", e.message, refusal.message)),
                None => e,
            })?;
            match connect_all(servers, Some(addresses.range()), &host) {
                Ok(remotes) => return Self::new(servers, remotes, Some(addresses), host),
                // Whoever has agreed is left again.
                Err(error) if error.code == Code::MapFailed => refusal = Some(error),
                Err(error) => return Err(error),
            }
        }
    }

    fn new(
        named: &[Server],
        remotes: Vec<Arc<Remote>>,
        addresses: Option<CommonAddresses>,
        host: Arc<dyn Application>,
    ) -> Result<Arc<Self>> {
        let whole = addresses.as_ref().map_or_else(Range::default, CommonAddresses::range);
        let of = remotes.len() as u32;
        let (mut spots, mut infos, mut all) = (Vec::new(), Vec::new(), Vec::new());
        let mut plan = AddressPlan { whole, ..AddressPlan::default() };
        for (index, remote) in remotes.iter().enumerate() {
            let mut part = Range::default();
            if addresses.is_some() {
                let seat = Seat { index: index as u32, of };
                let Some((own, shared)) = seat.parts(whole) else {
                    return Err(Error::new(Code::MapFailed, "The addresses are too few"));
                };
                let theirs = remote.plan();
                let inside = |range: &Range| own.contains(range.base, range.size);
                if theirs.shared != shared || !theirs.devices.iter().all(inside) {
                    let text = format!("The server {} does not keep to its addresses", remote.address());
                    return Err(Error::new(Code::SystemNotReady, text));
                }
                (part, plan.shared) = (own, shared);
            }
            plan.devices.extend_from_slice(&remote.plan().devices);
            for (local, mut info) in remote.infos().into_iter().enumerate() {
                make_unique(&mut info, index as u32, &infos);
                spots.push(Spot { server: index, local: local as u32 });
                infos.push(info);
            }
            let node = named.get(index).map_or_else(String::new, |server| server.node.clone());
            all.push(super::Member { remote: remote.clone(), part, node });
        }
        if spots.len() as u64 > FIRST_STREAM {
            let text = format!("{} devices are too many for one program", spots.len());
            return Err(Error::new(Code::NoDevice, text));
        }
        Ok(Arc::new_cyclic(|me| Self {
            servers: all,
            spots,
            plan,
            infos,
            host,
            streams: Owners::default(),
            events: Owners::default(),
            modules: Owners::default(),
            host_funcs: Mutex::default(),
            elsewhere: RwLock::default(),
            mirrored: Mutex::default(),
            gates: Gates::new(remotes),
            companions: Mutex::default(),
            next_stream: AtomicU64::new(0),
            pending: Mutex::default(),
            links: super::straight::Links::default(),
            me: me.clone(),
            _addresses: addresses,
        }))
    }
}

/// Devices of different machines may have the same place on the bus; software GPUs, the same UUID. Programs tell them
/// apart by these.
fn make_unique(info: &mut DeviceInfo, server: u32, others: &[DeviceInfo]) {
    let domain = (server as i32) << 8;
    match info.attributes.iter_mut().find(|(number, _)| *number == PCI_DOMAIN_ID) {
        Some((_, value)) => *value = value.wrapping_add(domain),
        None => info.attributes.push((PCI_DOMAIN_ID, domain)),
    }
    // They are looked up by halving.
    info.attributes.sort_unstable_by_key(|(number, _)| *number);
    while others.iter().any(|other| other.uuid == info.uuid) {
        let last = info.uuid.last_chunk_mut::<4>();
        if let Some(bytes) = last {
            *bytes = u32::from_be_bytes(*bytes).wrapping_add(0x100).to_be_bytes();
        }
    }
}

/// Connects to all servers. [`Code::MapFailed`] where one of them refuses the addresses.
fn connect_all(
    servers: &[Server],
    range: Option<Range>,
    host: &Arc<dyn Application>,
) -> Result<Vec<Arc<Remote>>> {
    let of = servers.len() as u32;
    let connect = |index: usize, server: &Server| {
        let mut options = server.options.clone();
        options.shared_range =
            range.map(|range| SharedRange { seat: Seat { index: index as u32, of }, range });
        Remote::connect(&server.address, options, host.clone() as Arc<dyn Host>)
    };
    let results: Vec<Result<Arc<Remote>>> = without_signals(|| {
        std::thread::scope(|scope| {
            let connect = &connect;
            let started: Vec<_> = servers
                .iter()
                .enumerate()
                .map(|(index, server)| {
                    let body = move || connect(index, server);
                    std::thread::Builder::new().name("rgpu-connect".into()).spawn_scoped(scope, body)
                })
                .collect();
            let finish = |thread: std::io::Result<std::thread::ScopedJoinHandle<'_, _>>| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|_| Err(Code::Unknown.into())),
                Err(e) => Err(Error::new(Code::OperatingSystem, format!("Cannot start a thread: {e}"))),
            };
            started.into_iter().map(finish).collect()
        })
    });
    // What is wrong otherwise counts for more than addresses, of which there may be others.
    let (mut remotes, mut refusal) = (Vec::new(), None);
    for result in results {
        match result {
            Ok(remote) => remotes.push(remote),
            Err(error) if error.code == Code::MapFailed => refusal = Some(error),
            Err(error) => return Err(error),
        }
    }
    refusal.map_or(Ok(remotes), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_several_servers_can_be_told_apart() {
        let mut all: Vec<DeviceInfo> = Vec::new();
        for server in 0..3 {
            for ordinal in 0..2 {
                let mut uuid = *b"rgpu-software-00";
                uuid[15] += ordinal;
                let mut info = DeviceInfo {
                    uuid,
                    attributes: vec![(1, 5), (PCI_DOMAIN_ID + 1, 6)],
                    ..DeviceInfo::default()
                };
                make_unique(&mut info, server, &all);
                assert!(all.iter().all(|other| other.uuid != info.uuid), "{info:?}");
                assert_eq!(info.attributes[1], (PCI_DOMAIN_ID, (server as i32) << 8));
                all.push(info);
            }
        }
    }
}
