//! Which of the machine's addresses others reach it by, chosen as NCCL does.

use getifaddrs::InterfaceFlags;
use std::net::IpAddr;

/// An address of the machine's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// The address.
    pub address: IpAddr,
}

/// Which interfaces may be used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// `NCCL_SOCKET_IFNAME`: beginnings of names with commas between; after `^` those that may not be used, after `=`
    /// whole names.
    pub names: Option<String>,
    /// `NCCL_SOCKET_FAMILY`: 4 or 6.
    pub family: Option<u8>,
}

impl Choice {
    /// The address to listen at; `None` where no interface fits.
    pub fn of(&self, interfaces: &[Interface]) -> Option<IpAddr> {
        let fits = |interface: &&Interface| {
            let family = if interface.address.is_ipv4() { 4 } else { 6 };
            self.family.is_none_or(|wanted| wanted == family) && self.allows(&interface.name)
        };
        interfaces.iter().filter(fits).min_by_key(|i| self.rank(i)).map(|interface| interface.address)
    }

    fn allows(&self, name: &str) -> bool {
        let Some(names) = &self.names else { return true };
        let (without, names) = names.strip_prefix('^').map_or((false, names.as_str()), |rest| (true, rest));
        let (whole, names) = names.strip_prefix('=').map_or((false, names), |rest| (true, rest));
        let named = names
            .split(',')
            .filter(|part| !part.is_empty())
            .any(|part| if whole { name == part } else { name.starts_with(part) });
        named != without
    }

    /// The less, the better. Where nobody has named it, the machine's own interface and those of containers come last.
    fn rank(&self, interface: &Interface) -> (u8, bool) {
        let kind = match interface.name.as_str() {
            "lo" => 2,
            name if name.starts_with("docker") => 1,
            _ => 0,
        };
        (kind, interface.address.is_ipv6())
    }
}

/// The machine's addresses, of interfaces that are up. Those that cannot be used without saying which interface they are of
/// (IPv6's link-local ones) are left out.
pub fn list() -> Vec<Interface> {
    let up = getifaddrs::getifaddrs().into_iter().flatten().filter(|i| i.flags.contains(InterfaceFlags::UP));
    up.filter_map(|interface| {
        let address = interface.address.ip_addr()?;
        let is_link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        (!is_link_local).then_some(Interface { name: interface.name, address })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_chosen_by_name_and_family() {
        let of =
            |name: &str, address: &str| Interface { name: name.into(), address: address.parse().unwrap() };
        let all = [
            of("lo", "127.0.0.1"),
            of("docker0", "172.17.0.1"),
            of("eth0", "2001:db8::1"),
            of("eth0", "10.0.0.1"),
            of("eth01", "10.0.0.2"),
        ];
        let choice = |names: &str, family| Choice { names: Some(names.into()), family }.of(&all);
        let ip = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        assert_eq!(Choice::default().of(&all), ip("10.0.0.1"));
        assert_eq!(Choice { names: None, family: Some(6) }.of(&all), ip("2001:db8::1"));
        assert_eq!(choice("lo", None), ip("127.0.0.1"));
        assert_eq!(choice("=eth01", None), ip("10.0.0.2"));
        assert_eq!(choice("wlan,docker", None), ip("172.17.0.1"));
        assert_eq!(choice("^eth", None), ip("172.17.0.1"));
        assert_eq!(choice("^=eth0,docker0", None), ip("10.0.0.2"));
        assert_eq!(choice("wlan", None), None);
        assert_eq!(choice("lo", Some(6)), None);
        assert_eq!(Choice::default().of(&[]), None);
    }

    #[test]
    fn the_machine_has_an_address() {
        assert!(list().iter().any(|interface| interface.address.is_loopback()), "{:?}", list());
    }
}
