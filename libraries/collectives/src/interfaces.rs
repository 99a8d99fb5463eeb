//! Which of the machine's addresses others reach it by, chosen as NCCL does.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

/// The machine's addresses, of interfaces that are up.
pub fn list() -> Vec<Interface> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: a valid place for the list, which is freed below.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Vec::new();
    }
    let mut list = Vec::new();
    let mut at = first;
    // SAFETY: null, or a member of the list, which lives until it is freed.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        let is_up = entry.ifa_flags & libc::IFF_UP as u32 != 0;
        if let Some(address) = ip_of(entry.ifa_addr).filter(|_| is_up) {
            // SAFETY: names in the list are strings.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
            list.push(Interface { name, address });
        }
    }
    // SAFETY: what getifaddrs returned, once.
    unsafe { libc::freeifaddrs(first) };
    list
}

/// An address that can be used without saying which interface it is of.
fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, and every socket address begins with its family.
    match libc::c_int::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: of that family.
            let v4 = unsafe { &*address.cast::<libc::sockaddr_in>() };
            Some(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: of that family.
            let v6 = unsafe { &*address.cast::<libc::sockaddr_in6>() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr))
                .filter(|ip| !ip.is_unicast_link_local())
                .map(Into::into)
        }
        _ => None,
    }
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
