//! Which processors leases run on.

use rgpu_control::LeaseId;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::Path;

/// The processors that leases can be given, and who has which.
#[derive(Debug, Default)]
pub(super) struct Cores {
    /// By NUMA node; the threads of one core are neighbours.
    nodes: Vec<Vec<u32>>,
    given: BTreeMap<LeaseId, Vec<u32>>,
}

impl Cores {
    /// Those that this process may use, as the machine below `system` (usually `/sys/devices/system`) arranges them.
    ///
    /// # Errors
    /// The system does not say which processors the process may use.
    pub(super) fn read(system: &Path) -> io::Result<Self> {
        let set = sched_getaffinity(None)?;
        let own: Vec<u32> =
            (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect();
        Ok(Self::arranged(&own, system))
    }

    fn arranged(own: &[u32], system: &Path) -> Self {
        let first_thread = |cpu: &u32| {
            let file = system.join(format!("cpu/cpu{cpu}/topology/thread_siblings_list"));
            let threads = std::fs::read_to_string(file).map(|text| parse_list(&text)).unwrap_or_default();
            threads.first().copied().unwrap_or(*cpu)
        };
        let mut rest: BTreeSet<u32> = own.iter().copied().collect();
        let mut nodes = Vec::new();
        for file in numbered(&system.join("node"), "node") {
            let list = std::fs::read_to_string(file.join("cpulist")).unwrap_or_default();
            nodes.push(parse_list(&list).into_iter().filter(|cpu| rest.remove(cpu)).collect());
        }
        // A system that knows of no nodes is one.
        nodes.push(rest.into_iter().collect());
        nodes.retain(|node: &Vec<u32>| !node.is_empty());
        for node in &mut nodes {
            node.sort_by_cached_key(|cpu| (first_thread(cpu), *cpu));
        }
        Self { nodes, given: BTreeMap::new() }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.nodes.iter().map(Vec::len).sum()
    }

    /// The processors of a lease; all, where it has none of its own.
    pub(super) fn of(&self, lease: LeaseId) -> Vec<u32> {
        let all = || self.nodes.iter().flatten().copied().collect();
        self.given.get(&lease).cloned().unwrap_or_else(all)
    }

    /// Whether a lease has processors of its own.
    pub(super) fn has_own(&self, lease: LeaseId) -> bool {
        self.given.contains_key(&lease)
    }

    /// Gives each of these leases so many processors, and all others none of their own. Leases keep those that they have, unless
    /// they share some that they need not share any more. The leases whose processors are different now come back.
    pub(super) fn settle(&mut self, wanted: &BTreeMap<LeaseId, u32>) -> Vec<LeaseId> {
        let before = self.given.clone();
        let count = self.count();
        let wanted: BTreeMap<LeaseId, usize> =
            wanted.iter().map(|(lease, cores)| (*lease, (*cores as usize).clamp(1, count.max(1)))).collect();
        self.given.retain(|lease, cores| wanted.get(lease) == Some(&cores.len()));
        for (lease, cores) in &wanted {
            if !self.given.contains_key(lease) {
                let chosen = self.choose(*cores, &self.users(*lease));
                self.given.insert(*lease, chosen);
            }
        }
        // Somebody may have left.
        for (lease, cores) in &wanted {
            let users = self.users(*lease);
            let shared =
                |set: &[u32]| set.iter().map(|cpu| users.get(cpu).copied().unwrap_or(0)).sum::<u32>();
            let has = shared(&self.given[lease]);
            if has > 0 {
                let other = self.choose(*cores, &users);
                if shared(&other) < has {
                    self.given.insert(*lease, other);
                }
            }
        }
        let all: BTreeSet<&LeaseId> = before.keys().chain(self.given.keys()).collect();
        all.into_iter().filter(|lease| before.get(lease) != self.given.get(lease)).copied().collect()
    }

    /// How many other leases have each processor.
    fn users(&self, except: LeaseId) -> HashMap<u32, u32> {
        let mut users = HashMap::new();
        for cpu in self.given.iter().filter(|(lease, _)| **lease != except).flat_map(|(_, cores)| cores) {
            *users.entry(*cpu).or_default() += 1;
        }
        users
    }

    /// So many processors that as few others as possible have; in one NUMA node where one has so many, in the one with the fewest
    /// of them left over.
    fn choose(&self, count: usize, users: &HashMap<u32, u32>) -> Vec<u32> {
        let of = |cpu: &u32| users.get(cpu).copied().unwrap_or(0);
        let most = users.values().copied().max().unwrap_or(0);
        for level in 0..=most {
            let free = |node: &Vec<u32>| -> Vec<u32> {
                let mut free: Vec<u32> = node.iter().filter(|cpu| of(cpu) <= level).copied().collect();
                free.sort_by_key(of);
                free
            };
            let mut nodes: Vec<Vec<u32>> = self.nodes.iter().map(free).collect();
            if let Some(near) = nodes.iter().filter(|free| free.len() >= count).min_by_key(|free| free.len())
            {
                return near[..count].to_vec();
            }
            nodes.sort_by_key(|free| std::cmp::Reverse(free.len()));
            let spread: Vec<u32> = nodes.concat();
            if spread.len() >= count {
                return spread[..count].to_vec();
            }
        }
        Vec::new()
    }
}

/// Holds one thread of any process to these processors.
pub(super) fn pin(thread: u32, cores: &[u32]) -> io::Result<()> {
    let thread = i32::try_from(thread).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    let mut set = CpuSet::new();
    cores.iter().for_each(|cpu| set.set(*cpu as usize));
    Ok(sched_setaffinity(Some(thread), &set)?)
}

/// The folders `PREFIX0`, `PREFIX1`, … of a folder, by number.
fn numbered(folder: &Path, prefix: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |name: &str| name.strip_prefix(prefix)?.parse::<u32>().ok();
    let mut found: Vec<_> =
        entries.filter_map(|entry| Some((number(entry.file_name().to_str()?)?, entry.path()))).collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// The numbers of a list such as `0-3,8`; what is none is left out.
fn parse_list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?.min(CpuSet::MAX_CPU as u32 - 1))
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// Numbers as a list such as `0-3,8`.
pub(super) fn list(numbers: &[u32]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in sorted {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let text = |(first, last): (u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(nodes: &[&[u32]]) -> Cores {
        Cores { nodes: nodes.iter().map(|node| node.to_vec()).collect(), given: BTreeMap::new() }
    }

    fn wanted(of: &[(u64, u32)]) -> BTreeMap<LeaseId, u32> {
        of.iter().map(|(lease, count)| (LeaseId(*lease), *count)).collect()
    }

    #[test]
    fn lists_are_read_and_written() {
        assert_eq!(parse_list("0-2,8\n"), [0, 1, 2, 8]);
        assert!(parse_list("").is_empty() && parse_list("x-y,5-").is_empty());
        assert_eq!(parse_list("1023-4294967295"), [1023]);
        assert_eq!(list(&[8, 1, 0, 2]), "0-2,8");
        assert_eq!(list(&[]), "");
    }

    #[test]
    fn threads_of_a_core_are_neighbours_and_nodes_are_those_of_the_machine() {
        let place = std::env::temp_dir().join(format!("rgpu-cores-{:016x}", LeaseId::random().0));
        let write = |file: &str, text: &str| {
            let file = place.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("node/node0/cpulist", "0-1,4-5\n");
        write("node/node1/cpulist", "2-3,6-7\n");
        for cpu in 0..8 {
            let siblings = format!("{},{}\n", cpu % 4, cpu % 4 + 4);
            write(&format!("cpu/cpu{cpu}/topology/thread_siblings_list"), &siblings);
        }
        let found = Cores::arranged(&[0, 1, 2, 3, 4, 5, 6, 9], &place);
        std::fs::remove_dir_all(place).unwrap();
        assert_eq!(found.nodes, [vec![0, 4, 1, 5], vec![2, 6, 3], vec![9]]);
        assert_eq!(found.count(), 8);
    }

    #[test]
    fn leases_get_processors_of_their_own_in_one_node() {
        let mut cores = cores(&[&[0, 1, 2, 3], &[4, 5, 6, 7]]);
        let (a, b, c) = (LeaseId(1), LeaseId(2), LeaseId(3));
        assert_eq!(cores.settle(&wanted(&[(1, 3)])), [a]);
        assert_eq!(cores.of(a), [0, 1, 2]);
        // Two do not fit beside it, one does.
        assert_eq!(cores.settle(&wanted(&[(1, 3), (2, 2)])), [b]);
        assert_eq!(cores.of(b), [4, 5]);
        assert_eq!(cores.settle(&wanted(&[(1, 3), (2, 2), (3, 1)])), [c]);
        assert_eq!(cores.of(c), [3]);
        // Nothing changes for those who stay.
        assert!(cores.settle(&wanted(&[(1, 3), (2, 2), (3, 1)])).is_empty());
        assert_eq!(cores.settle(&wanted(&[(1, 3), (2, 2)])), [c]);
        assert_eq!((cores.of(c).len(), cores.has_own(c), cores.has_own(a)), (8, false, true));
    }

    #[test]
    fn who_shares_gets_its_own_when_somebody_leaves() {
        let mut cores = cores(&[&[0, 1]]);
        let all = wanted(&[(1, 1), (2, 1), (3, 1)]);
        cores.settle(&all);
        let of = |cores: &Cores, lease| cores.of(LeaseId(lease));
        assert_eq!(of(&cores, 1), [0]);
        assert_eq!(of(&cores, 2), [1]);
        let shared = of(&cores, 3);
        // The one that it does not share with leaves.
        let gone = 2 - u64::from(shared[0] == 1);
        let stays: Vec<(u64, u32)> = (1..=3).filter(|lease| *lease != gone).map(|lease| (lease, 1)).collect();
        let changed = cores.settle(&wanted(&stays));
        assert_eq!(changed.len(), 2, "one left, and one of those that shared moved");
        let mut left: Vec<u32> = stays.iter().flat_map(|(lease, _)| of(&cores, *lease)).collect();
        left.sort_unstable();
        assert_eq!(left, [0, 1]);
        // More than there are is all.
        cores.settle(&wanted(&[(1, 9)]));
        assert_eq!(of(&cores, 1), [0, 1]);
    }

    #[test]
    fn threads_are_held_to_processors() {
        let own = Cores::read(Path::new("/sys/devices/system")).unwrap();
        let all = own.of(LeaseId(1));
        assert!(!all.is_empty());
        let one = all[..1].to_vec();
        std::thread::spawn(move || {
            let this = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            pin(this, &one).unwrap();
            let now = sched_getaffinity(None).unwrap();
            assert_eq!((now.count(), now.is_set(one[0] as usize)), (1, true));
        })
        .join()
        .unwrap();
        assert!(pin(u32::MAX, &[0]).is_err());
    }
}
