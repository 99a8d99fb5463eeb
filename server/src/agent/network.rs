//! The machine's network interface: which one it is, what it can carry, and what it does carry.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Where neither the system nor anybody else says what the interface can carry.
pub(super) const DEFAULT_MBPS: u64 = 1000;

/// The address of this machine from which the broker, and so probably everybody, is reached. Nothing is sent.
pub(super) fn address_towards(host: &str) -> io::Result<IpAddr> {
    let target = host
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address")))?;
    let any: SocketAddr = match target {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(target)?;
    Ok(socket.local_addr()?.ip())
}

/// `HOST:PORT` of a URL.
pub(super) fn host_and_port(url: &str) -> String {
    let (rest, port) = match url.strip_prefix("https://") {
        Some(rest) => (rest, 443),
        None => (url.strip_prefix("http://").unwrap_or(url), 80),
    };
    let host = rest.split('/').next().unwrap_or(rest);
    let ported = host.rsplit_once(':').is_some_and(|(before, port)| {
        port.parse::<u16>().is_ok() && (!before.contains(':') || before.ends_with(']'))
    });
    if ported { host.to_owned() } else { format!("{host}:{port}") }
}

/// The interface that has an address.
fn interface_of(address: IpAddr) -> Option<String> {
    let mut interfaces = getifaddrs::getifaddrs().ok()?;
    interfaces.find(|interface| interface.address.ip_addr() == Some(address)).map(|interface| interface.name)
}

/// The interface of the default route, from the text of `/proc/net/route`: the one with the lowest metric.
fn default_route(routes: &str) -> Option<&str> {
    // Interface, destination, gateway, flags, references, uses, metric, mask, ….
    let route = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let metric: u32 = fields.get(6)?.parse().ok()?;
        (*fields.get(1)? == "00000000" && *fields.get(7)? == "00000000").then_some(metric)
    };
    let defaults = routes.lines().skip(1).filter_map(|line| Some((route(line)?, line)));
    let (_, cheapest) = defaults.min_by_key(|(metric, _)| *metric)?;
    cheapest.split_ascii_whitespace().next()
}

/// The interface by which other machines reach an address of this one. That the loopback interface has it doesn't count:
/// then it is the default route's.
pub(super) fn interface(address: Option<IpAddr>) -> Option<String> {
    let own = address.filter(|address| !address.is_loopback()).and_then(interface_of);
    own.or_else(|| {
        let routes = fs::read_to_string("/proc/net/route").ok()?;
        default_route(&routes).map(str::to_owned)
    })
}

/// What the driver says that the interface can carry, in Mbit/s. It is asked by `ioctl`, which knows the process's own network
/// namespace; `/sys/class/net` may show another one.
pub(super) fn speed_mbps(interface: &str) -> Option<u64> {
    /// `struct ethtool_cmd` of the kernel.
    #[repr(C)]
    #[derive(Default)]
    struct EthtoolCommand {
        command: u32,
        supported: u32,
        advertising: u32,
        speed: u16,
        duplex: u8,
        port: u8,
        phy_address: u8,
        transceiver: u8,
        autonegotiation: u8,
        mdio_support: u8,
        most_sent: u32,
        most_received: u32,
        speed_high: u16,
        rest: [u8; 10],
    }
    const ETHTOOL_GSET: u32 = 1;
    const SIOCETHTOOL: u32 = 0x8946;
    let mut command = EthtoolCommand { command: ETHTOOL_GSET, ..EthtoolCommand::default() };
    // SAFETY: all zeros is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return None;
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *place = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut command).cast();
    // SAFETY: a plain system call; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return None;
    }
    // SAFETY: a fresh descriptor.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the request names a live structure of the kind that the command fills in.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    if done != 0 {
        return None;
    }
    let speed = u32::from(command.speed_high) << 16 | u32::from(command.speed);
    // Both mean that it is not known.
    (speed != 0 && speed != u32::MAX && speed != 0xffff).then_some(speed.into())
}

/// Bytes that an interface has received and sent, from the text of `/proc/net/dev`. Without an interface, all of them but the
/// loopback one.
fn counted(text: &str, interface: Option<&str>) -> Option<(u64, u64)> {
    let mut sum = None;
    for line in text.lines() {
        let Some((name, numbers)) = line.split_once(':') else { continue };
        let name = name.trim();
        if interface.map_or(name == "lo", |wanted| wanted != name) {
            continue;
        }
        let numbers: Vec<u64> = numbers.split_ascii_whitespace().map_while(|n| n.parse().ok()).collect();
        let (Some(received), Some(sent)) = (numbers.first(), numbers.get(8)) else { continue };
        let (all_in, all_out): (u64, u64) = sum.unwrap_or_default();
        sum = Some((all_in.wrapping_add(*received), all_out.wrapping_add(*sent)));
    }
    sum
}

/// Counters of bytes, read at a time.
type Reading = (Instant, (u64, u64), (u64, u64));

/// Measures traffic, from one time to the next.
#[derive(Debug)]
pub(super) struct Meter {
    interface: Option<String>,
    last: Option<Reading>,
    load: Load,
    /// What came in and went out, and belongs to nobody known yet.
    unclaimed: [Unclaimed; 2],
}

/// Bytes that have passed the interface, and that no lease has been said to have had.
///
/// A server counts what a lease receives and sends when a message is complete, and a long one takes longer than the time between two
/// measurements. So bytes count as others' only when nobody has claimed them for a while.
#[derive(Debug, Default)]
struct Unclaimed(VecDeque<(Instant, u64)>);

/// After so long, bytes that no lease has had are others'.
const CLAIMED_WITHIN: Duration = Duration::from_secs(2);

impl Unclaimed {
    /// Of what passed the interface lately, what was others'. `nic` bytes did since the last time, and leases had `own`.
    fn others(&mut self, now: Instant, nic: u64, own: u64) -> u64 {
        if nic > own {
            self.0.push_back((now, nic - own));
        }
        let mut surplus = own.saturating_sub(nic);
        while let Some((_, bytes)) = self.0.front_mut()
            && surplus > 0
        {
            let claimed = surplus.min(*bytes);
            (*bytes, surplus) = (*bytes - claimed, surplus - claimed);
            if *bytes == 0 {
                self.0.pop_front();
            }
        }
        let mut others = 0;
        while let Some((then, bytes)) = self.0.front()
            && now.saturating_duration_since(*then) >= CLAIMED_WITHIN
        {
            others += bytes;
            self.0.pop_front();
        }
        others
    }
}

/// Measured traffic, in Mbit/s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Into the interface.
    pub nic_in: u64,
    /// Out of it.
    pub nic_out: u64,
    /// Of what came in, what belongs to leases.
    pub own_in: u64,
    /// Of what went out, what belongs to leases.
    pub own_out: u64,
}

/// Over less time than this nothing is measured: a few packets would look like a flood.
const SHORTEST: Duration = Duration::from_millis(400);

impl Meter {
    /// Measures an interface.
    pub(super) fn new(interface: Option<String>) -> Self {
        Self { interface, last: None, load: Load::default(), unclaimed: Default::default() }
    }

    /// The traffic since the last time, where that is long enough ago; else the same as then. `own` are the bytes that were
    /// received and sent for leases so far.
    pub(super) fn measure(&mut self, own: (u64, u64)) -> Load {
        let text = fs::read_to_string("/proc/net/dev").unwrap_or_default();
        let nic = counted(&text, self.interface.as_deref()).unwrap_or_default();
        self.measured((Instant::now(), nic, own))
    }

    fn measured(&mut self, now: Reading) -> Load {
        let Some(last) = self.last else {
            self.last = Some(now);
            return self.load;
        };
        let time = now.0.saturating_duration_since(last.0);
        if time < SHORTEST {
            return self.load;
        }
        let rate = |bytes: u64| (bytes as f64 * 8.0 / time.as_secs_f64() / 1e6).round() as u64;
        // A counter that fell was set back.
        let since =
            |now: (u64, u64), last: (u64, u64)| [now.0.saturating_sub(last.0), now.1.saturating_sub(last.1)];
        let (nic, own) = (since(now.1, last.1), since(now.2, last.2));
        let mut own_of = |way: usize| {
            let others = self.unclaimed[way].others(now.0, nic[way], own[way]);
            // What goes through shared memory is nothing of the interface's.
            rate(nic[way]).saturating_sub(rate(others))
        };
        let (own_in, own_out) = (own_of(0), own_of(1));
        let (nic_in, nic_out) = (rate(nic[0]), rate(nic[1]));
        self.last = Some(now);
        self.load = Load { nic_in, nic_out, own_in, own_out };
        self.load
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: &str = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 9000      10    0    0    0     0          0         0     9000      10    0    0    0     0       0          0
  eth0:12345678   100    0    0    0     0          0         0  8765432      90    0    0    0     0       0          0
  wlan0:      10   1    0    0    0     0          0         0       20       1    0    0    0     0       0          0
";

    #[test]
    fn counters_are_read() {
        assert_eq!(counted(DEV, Some("eth0")), Some((12_345_678, 8_765_432)));
        assert_eq!(counted(DEV, Some("lo")), Some((9000, 9000)));
        assert_eq!(counted(DEV, None), Some((12_345_688, 8_765_452)));
        assert_eq!(counted(DEV, Some("eth")), None);
        for odd in ["", "eth0:", "eth0: 1 2 3", "eth0: x", "nothing"] {
            assert_eq!(counted(odd, Some("eth0")), None, "{odd}");
        }
        let real = fs::read_to_string("/proc/net/dev").unwrap();
        assert!(counted(&real, Some("lo")).is_some());
    }

    #[test]
    fn the_default_route_is_the_one_that_costs_least() {
        let head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
        let far = "wlan0\t00000000\t0100A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n";
        let near = "eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n";
        let net = "eth1\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        assert_eq!(default_route(&format!("{head}{net}{far}{near}")), Some("eth0"));
        assert_eq!(default_route(&format!("{head}{net}")), None);
        assert_eq!(default_route(""), None);
    }

    #[test]
    fn interfaces_are_found_by_address() {
        assert_eq!(interface_of(Ipv4Addr::LOCALHOST.into()).as_deref(), Some("lo"));
        assert_eq!(interface_of(Ipv4Addr::new(192, 0, 2, 77).into()), None);
        assert_eq!(speed_mbps("there-is-no-such-one"), None);
        assert_eq!(speed_mbps("nosuchif"), None);
    }

    #[test]
    fn brokers_have_a_host_and_a_port() {
        assert_eq!(host_and_port("http://a:1/"), "a:1");
        assert_eq!(host_and_port("https://a"), "a:443");
        assert_eq!(host_and_port("http://[::1]"), "[::1]:80");
        assert_eq!(host_and_port("http://[::1]:7"), "[::1]:7");
        assert_eq!(address_towards("127.0.0.1:9").unwrap(), Ipv4Addr::LOCALHOST);
    }

    #[test]
    fn traffic_is_bits_in_a_second_of_which_own_is_a_part() {
        let start = Instant::now();
        let at =
            |ms: u64, nic: u64, own: u64| (start + Duration::from_millis(ms), (nic, nic / 2), (own, own));
        let mut meter = Meter::new(None);
        assert_eq!(meter.measured(at(0, 1_000_000, 0)), Load::default());
        let load = Load { nic_in: 80, nic_out: 40, own_in: 80, own_out: 40 };
        assert_eq!(meter.measured(at(1000, 11_000_000, 90_000_000)), load);
        // Too soon: the same as before.
        assert_eq!(meter.measured(at(1100, 12_000_000, 90_000_000)), load);
        // Nobody has had that so far; somebody may have, who has not counted it yet.
        let load = Load { nic_in: 8, nic_out: 4, own_in: 8, own_out: 4 };
        assert_eq!(meter.measured(at(2000, 12_000_000, 0)), load);
        let load = Load { nic_in: 4, nic_out: 2, own_in: 0, own_out: 0 };
        assert_eq!(meter.measured(at(4000, 13_000_000, 0)), load);
    }

    #[test]
    fn what_a_lease_counts_late_is_not_others() {
        let start = Instant::now();
        let mut meter = Meter::new(None);
        let (mut nic, mut own) = (0u64, 0u64);
        meter.measured((start, (0, 0), (0, 0)));
        let mut others = 0;
        for second in 1..=60u64 {
            nic += 116_000_000;
            // Messages of 174 MB are counted when they are complete: every other second one, then two.
            own = nic / 174_000_000 * 174_000_000;
            let load = meter.measured((start + Duration::from_secs(second), (nic, 0), (own, 0)));
            others += load.nic_in - load.own_in;
        }
        assert!(nic - own < 174_000_000);
        assert_eq!(others, 0);
        // What others really have is seen, a little later.
        let mut seen = 0;
        for second in 61..=70u64 {
            nic += 50_000_000;
            let load = meter.measured((start + Duration::from_secs(second), (nic, 0), (own, 0)));
            seen = load.nic_in - load.own_in;
        }
        assert_eq!(seen, 400);
    }
}
