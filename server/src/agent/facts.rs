//! What a node says about itself when it registers.

use crate::convert;
use crate::device_spec::DeviceKind;
use crate::inventory::Settled;
use crate::partition::Enforcer;
use rgpu_control::api::DeviceReport;
use rgpu_control::token::{self, Claims, Role, TokenError};
use rgpu_protocol::hello::DeviceInfo;
use rgpu_protocol::transport::{Choice, Connectors};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::network;

/// The devices, with the memory that each has to promise.
pub(super) fn devices(settled: &Settled) -> Vec<DeviceReport> {
    let Settled { spec, capacity, infos, partitions } = settled;
    let software = spec.kind != DeviceKind::Nvidia;
    let infos: Vec<DeviceInfo> = match software {
        false => infos.clone(),
        true => {
            let config = rgpu_softgpu::Config {
                devices: spec.count,
                memory_bytes_per_device: spec.memory,
                workers: spec.workers as usize,
                compute_capability: spec.compute_capability,
                identity: spec.identity,
                ..rgpu_softgpu::Config::default()
            };
            rgpu_softgpu::describe(&config).into_iter().map(convert::device_info).collect()
        }
    };
    let reports = infos.iter().zip(capacity).enumerate().map(|(index, (info, memory))| DeviceReport {
        index: index as u32,
        model: info.name.clone(),
        uuid: match spec.visible.get(index) {
            Some(name) => name.clone(),
            None => uuid_text(info.uuid),
        },
        memory: *memory,
        bus_mbps: 0,
        // An instance is a part already, and leased whole.
        partitionable: partitions.enforcer(index) != Enforcer::Mig,
        alone: spec.is_instance(index),
        compute_capability: format!("{}.{}", info.compute_capability.0, info.compute_capability.1),
        software,
        enforced_by: partitions.enforcer(index).to_string(),
    });
    reports.collect()
}

fn uuid_text(bytes: [u8; 16]) -> String {
    let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let parts = [&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]];
    format!("GPU-{}", parts.map(hex).join("-"))
}

/// Main memory in MiB.
pub(super) fn memory_mib() -> u64 {
    // SAFETY: both ask for a number.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    (pages.max(0) as u64).saturating_mul(size.max(0) as u64) >> 20
}

/// Thousandths of processor cores.
pub(super) fn cpu_milli() -> u64 {
    std::thread::available_parallelism().map_or(1, usize::from) as u64 * 1000
}

/// The names of the transports that a server offers.
pub(super) fn transports(connectors: Connectors, choice: Choice) -> Vec<String> {
    choice
        .of(connectors)
        .filter(|connector| connector.is_available())
        .map(|connector| connector.kind().name().to_owned())
        .collect()
}

/// Where programs reach a server that listens at `listen`: from other machines, and from this one.
///
/// A server that listens at all addresses is reached at the one that faces the broker.
pub(super) fn addresses(
    listen: SocketAddr,
    advertise: Option<&str>,
    broker: &str,
) -> io::Result<(String, Option<String>)> {
    let local = listen.ip().is_unspecified().then(|| {
        let ip: IpAddr = match listen.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        SocketAddr::new(ip, listen.port()).to_string()
    });
    if let Some(address) = advertise {
        return Ok((address.to_owned(), local.or_else(|| Some(listen.to_string()))));
    }
    if local.is_none() {
        return Ok((listen.to_string(), None));
    }
    let facing = network::address_towards(&network::host_and_port(broker))
        .map_err(|e| io::Error::new(e.kind(), format!("no way to {broker} is known: {e}")))?;
    Ok((SocketAddr::new(facing, listen.port()).to_string(), local))
}

/// Whether a text is `HOST:PORT`.
pub(super) fn is_address(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0))
}

/// Why a token is not this node's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NameError {
    /// It is no token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// It is a lease's.
    #[error("the token is a lease's; a node's is needed")]
    Lease,
    /// It is of somebody who asks for leases.
    #[error("the token is for the {} {name}, not for a node: {ISSUE}", role.name())]
    Tenant {
        /// What it allows.
        role: Role,
        /// Whom it is for.
        name: String,
    },
    /// It is another node's.
    #[error("the token is for the node {found}, and this is to be {given}: {ISSUE}")]
    Other {
        /// The node that the token is for.
        found: String,
        /// The one that this is to be.
        given: String,
    },
    /// It is an administrator's, and nothing else names the node.
    #[error("the token is an administrator's: {ISSUE}, or say --node NAME")]
    Admin,
}

/// What helps.
const ISSUE: &str = "issue one with `rgpu broker token --role node --name NAME`";

/// The node's name: the one that was given, else the token's.
///
/// # Errors
/// The token is not that node's.
pub(super) fn name(given: Option<&str>, token: &str) -> Result<String, NameError> {
    let Claims::Role(claims) = token::peek(token)? else { return Err(NameError::Lease) };
    match (claims.role, given) {
        (Role::Tenant | Role::Engine, _) => Err(NameError::Tenant { role: claims.role, name: claims.name }),
        (Role::Node, Some(name)) if name != claims.name => {
            Err(NameError::Other { found: claims.name, given: name.to_owned() })
        }
        (Role::Admin, None) => Err(NameError::Admin),
        (_, Some(name)) => Ok(name.to_owned()),
        (Role::Node, None) => Ok(claims.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_spec::DeviceSpec;
    use crate::{inventory, partition::Partitions};
    use rgpu_control::token::{PrivateKey, RoleClaims};

    fn token(role: Role, name: &str) -> String {
        let claims = RoleClaims { role, name: name.into(), not_before: 0, expires: 9 };
        PrivateKey::generate().sign(&Claims::Role(claims))
    }

    #[test]
    fn the_token_names_the_node() {
        assert_eq!(name(None, &token(Role::Node, "n0")).unwrap(), "n0");
        assert_eq!(name(Some("n0"), &token(Role::Node, "n0")).unwrap(), "n0");
        assert!(name(Some("n1"), &token(Role::Node, "n0")).unwrap_err().to_string().contains("n1"));
        assert!(name(None, &token(Role::Tenant, "ann")).unwrap_err().to_string().contains("tenant ann"));
        assert!(name(Some("n0"), &token(Role::Engine, "n0")).unwrap_err().to_string().contains("engine n0"));
        assert!(name(None, &token(Role::Admin, "root")).is_err());
        assert_eq!(name(Some("n0"), &token(Role::Admin, "root")).unwrap(), "n0");
        assert!(name(Some("n0"), "no token").is_err());
    }

    #[test]
    fn software_devices_are_described() {
        let spec = DeviceSpec { count: 2, memory: 1 << 30, ..DeviceSpec::default() };
        let found = devices(&inventory::settle(spec).unwrap());
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].index, found[1].memory, found[1].software), (1, 1 << 30, true));
        assert_eq!(found[0].compute_capability, "8.0");
        assert_eq!((found[0].enforced_by.as_str(), found[0].partitionable), ("workers", true));
        assert!(found[0].uuid.starts_with("GPU-") && found[0].uuid != found[1].uuid, "{found:?}");
    }

    #[test]
    fn instances_are_leased_whole() {
        let names = ["MIG-00010203-0405-0607-0809-0a0b0c0d0e0f", "GPU-00010203-0405-0607-0809-0a0b0c0d0e10"];
        let spec = DeviceSpec {
            kind: DeviceKind::Nvidia,
            count: 2,
            visible: names.map(str::to_owned).to_vec(),
            ..DeviceSpec::default()
        };
        let partitions = Partitions::new(&spec, &[5, 7]).unwrap();
        let infos = vec![DeviceInfo::default(); 2];
        let found = devices(&Settled { spec, capacity: vec![5, 7], infos, partitions });
        assert_eq!((found[0].uuid.as_str(), found[0].enforced_by.as_str()), (names[0], "mig"));
        assert!(!found[0].partitionable && found[1].partitionable);
        assert!(found[0].alone && !found[1].alone);
    }

    #[test]
    fn a_server_is_reached_where_it_listens_or_where_it_says() {
        let at = |listen: &str, advertise| {
            addresses(listen.parse().unwrap(), advertise, "http://127.0.0.1:9").unwrap()
        };
        assert_eq!(at("10.0.0.1:7", None), ("10.0.0.1:7".into(), None));
        assert_eq!(at("0.0.0.0:7", None), ("127.0.0.1:7".into(), Some("127.0.0.1:7".into())));
        assert_eq!(at("0.0.0.0:7", Some("gpu:8")), ("gpu:8".into(), Some("127.0.0.1:7".into())));
        assert_eq!(at("10.0.0.1:7", Some("gpu:8")), ("gpu:8".into(), Some("10.0.0.1:7".into())));
        assert!(is_address("gpu:8") && !is_address("gpu") && !is_address(":8") && !is_address("gpu:0"));
        assert!(memory_mib() > 0 && cpu_milli() >= 1000);
        use rgpu_protocol::transport::{CONNECTORS, Tcp};
        assert_eq!(transports(CONNECTORS, Choice::Only(Tcp::KIND)), ["tcp"]);
    }
}
