//! Cache ways and memory bandwidth, by Linux's resctrl (Intel's CAT and MBA, AMD's QoS; `Documentation/filesystems/resctrl.rst`).

use super::groups::Groups;
use rgpu_control::LeaseId;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What a lease is to have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wish {
    /// Ways of the last-level cache.
    pub(super) ways: Option<u32>,
    /// Percent of the memory bandwidth.
    pub(super) percent: Option<u32>,
}

impl Wish {
    fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// What a lease has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Has {
    /// Its ways, a bit each.
    pub(super) mask: Option<u64>,
    /// Percent of the memory bandwidth, as far as the hardware can tell such apart.
    pub(super) percent: Option<u32>,
}

/// What resctrl measures of a lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Bytes of the last-level cache in use.
    pub(super) llc_bytes: Option<u64>,
    /// Bytes between cache and memory since the group was made.
    pub(super) memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Cache {
    /// The numbers of the caches: one in each socket, or in each part of it.
    ids: Vec<u32>,
    /// All ways.
    all: u64,
    /// The fewest ways that a group can have.
    least: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Bandwidth {
    ids: Vec<u32>,
    least: u32,
    step: u32,
}

/// The machine's resctrl, and the groups of one node's leases in it.
#[derive(Debug)]
pub(super) struct Resctrl {
    groups: Groups,
    cache: Option<Cache>,
    bandwidth: Option<Bandwidth>,
    has: BTreeMap<LeaseId, Has>,
}

impl Resctrl {
    /// Where resctrl is mounted; groups that an earlier server of this node has left are removed.
    ///
    /// # Errors
    /// What is missing, in words for people.
    pub(super) fn open(root: &Path, node: &str) -> Result<Self, String> {
        let groups = Groups::new(root.to_owned(), node);
        let Ok(schemata) = fs::read_to_string(root.join("schemata")) else {
            return Err(format!(
                "resctrl is not mounted at {} (`mount -t resctrl resctrl /sys/fs/resctrl`, on a machine that has it)",
                root.display()
            ));
        };
        groups.check_writable().map_err(|e| format!("{} cannot be written: {e}", root.display()))?;
        let line = |resource: &str| {
            schemata
                .lines()
                .find_map(|line| line.trim().strip_prefix(resource)?.strip_prefix(':').map(parse_line))
        };
        let info = |file: &str| fs::read_to_string(root.join("info").join(file)).ok();
        let number = |file: &str| info(file)?.trim().parse::<u32>().ok();
        let cache = line("L3").and_then(|ids| {
            let all = u64::from_str_radix(info("L3/cbm_mask")?.trim(), 16).ok()?;
            let ids = ids.into_iter().map(|(id, _)| id).collect();
            Some(Cache { ids, all, least: number("L3/min_cbm_bits").unwrap_or(1).max(1) })
        });
        // Where it is mounted with the option `mba_MBps`, the numbers are no percents.
        let percents = |values: &Vec<(u32, String)>| {
            values.iter().all(|(_, value)| value.parse::<u32>().is_ok_and(|percent| percent <= 100))
        };
        let bandwidth = line("MB").filter(percents).map(|ids| Bandwidth {
            ids: ids.into_iter().map(|(id, _)| id).collect(),
            least: number("MB/min_bandwidth").unwrap_or(10).clamp(1, 100),
            step: number("MB/bandwidth_gran").unwrap_or(10).clamp(1, 100),
        });
        let stale = groups.remove_stale();
        if stale > 0 {
            tracing::info!("{stale} groups of an earlier server were removed from {}", root.display());
        }
        Ok(Self { groups, cache, bandwidth, has: BTreeMap::new() })
    }

    /// How many ways there are for leases: everybody else keeps as many as a group must have.
    pub(super) fn ways(&self) -> u32 {
        self.cache.as_ref().map_or(0, |cache| cache.all.count_ones().saturating_sub(cache.least))
    }

    /// Whether memory bandwidth can be limited.
    pub(super) fn limits_bandwidth(&self) -> bool {
        self.bandwidth.is_some()
    }

    /// What a lease has; `None` where it has no group.
    pub(super) fn of(&self, lease: LeaseId) -> Option<Has> {
        self.has.get(&lease).copied()
    }

    /// Puts a thread into a lease's group.
    pub(super) fn add(&self, lease: LeaseId, thread: u32) -> io::Result<()> {
        self.groups.write(lease, "tasks", &thread.to_string())
    }

    /// Makes, changes and removes groups so that each lease has what it wishes, if there is so much. The leases whose group is new
    /// come back, and what went wrong with which.
    pub(super) fn settle(
        &mut self,
        wishes: &BTreeMap<LeaseId, Wish>,
    ) -> (Vec<LeaseId>, Vec<(LeaseId, String)>) {
        let (mut new, mut failed) = (Vec::new(), Vec::new());
        let wishes: BTreeMap<LeaseId, Wish> =
            wishes.iter().filter(|(_, wish)| !wish.is_empty()).map(|(id, wish)| (*id, *wish)).collect();
        let gone: Vec<LeaseId> = self.has.keys().filter(|id| !wishes.contains_key(id)).copied().collect();
        for lease in gone {
            self.groups.remove(lease);
            self.has.remove(&lease);
        }
        let masks = self.masks(&wishes);
        for (lease, wish) in wishes {
            let mut problem = |text: String| failed.push((lease, text));
            let mask = masks.get(&lease).copied();
            match (wish.ways, mask, &self.cache) {
                (Some(_), None, None) => problem("this machine's last-level cache cannot be divided".into()),
                (Some(ways), None, Some(_)) => problem(format!(
                    "there are not {ways} ways of the last-level cache that nobody else has, of {}",
                    self.ways()
                )),
                _ => {}
            }
            if wish.percent.is_some() && self.bandwidth.is_none() {
                problem("this machine's memory bandwidth cannot be limited".into());
            }
            let percent =
                wish.percent.zip(self.bandwidth.as_ref()).map(|(percent, limits)| limits.round(percent));
            let has = Has { mask, percent };
            let before = self.has.get(&lease).copied();
            if before == Some(has) || has == Has::default() && before.is_none() {
                continue;
            }
            match self.write(lease, has) {
                Ok(()) => {
                    self.has.insert(lease, has);
                    if before.is_none() {
                        new.push(lease);
                    }
                }
                Err(e) => {
                    let status = fs::read_to_string(self.groups.root().join("info/last_cmd_status"));
                    problem(format!("its group is not made: {e}; {}", status.unwrap_or_default().trim()));
                    if before.is_none() {
                        self.groups.remove(lease);
                    }
                }
            }
        }
        (new, failed)
    }

    fn write(&self, lease: LeaseId, has: Has) -> io::Result<()> {
        self.groups.make(lease)?;
        let line = |resource: &str, ids: &[u32], value: String| {
            let parts: Vec<String> = ids.iter().map(|id| format!("{id}={value}")).collect();
            self.groups.write(lease, "schemata", &format!("{resource}:{}", parts.join(";")))
        };
        if let Some(cache) = &self.cache {
            // A lease without ways of its own uses the cache as everybody does.
            line("L3", &cache.ids, format!("{:x}", has.mask.unwrap_or(cache.all)))?;
        }
        if let Some(bandwidth) = &self.bandwidth {
            line("MB", &bandwidth.ids, has.percent.unwrap_or(100).to_string())?;
        }
        Ok(())
    }

    /// The ways of each lease that wishes some and gets them. They keep those that they have, unless somebody else finds no room
    /// that way: ways of a group have to be neighbours, so then all move together.
    fn masks(&self, wishes: &BTreeMap<LeaseId, Wish>) -> BTreeMap<LeaseId, u64> {
        let Some(cache) = &self.cache else { return BTreeMap::new() };
        let wanted: BTreeMap<LeaseId, u32> =
            wishes.iter().filter_map(|(lease, wish)| Some((*lease, wish.ways?.max(cache.least)))).collect();
        let foreign = self.foreign(cache);
        let keeps = |(lease, ways): (&LeaseId, &u32)| {
            let mask = self.has.get(lease)?.mask.filter(|mask| mask.count_ones() == *ways)?;
            Some((*lease, mask))
        };
        let mut masks: BTreeMap<LeaseId, u64> = wanted.iter().filter_map(keeps).collect();
        if fill(&mut masks, &wanted, cache, foreign) {
            return masks;
        }
        let mut packed = BTreeMap::new();
        match fill(&mut packed, &wanted, cache, foreign) || packed.len() > masks.len() {
            true => packed,
            false => masks,
        }
    }

    /// The ways that other nodes on this machine have given to their leases.
    fn foreign(&self, cache: &Cache) -> u64 {
        let mask = |folder: PathBuf| {
            let schemata = fs::read_to_string(folder.join("schemata")).unwrap_or_default();
            let mut lines = schemata.lines().filter_map(|line| line.trim().strip_prefix("L3:"));
            // The last line counts where lines were only added.
            let values = lines.next_back().map(parse_line).unwrap_or_default().into_iter();
            let all = values.fold(0, |all, (_, value)| all | u64::from_str_radix(&value, 16).unwrap_or(0));
            if all == cache.all { 0 } else { all }
        };
        self.groups.of_others().into_iter().map(mask).fold(0, |all, mask| all | mask)
    }

    /// What is measured of a lease that has a group.
    pub(super) fn seen(&self, lease: LeaseId) -> Seen {
        if !self.has.contains_key(&lease) {
            return Seen::default();
        }
        let folders =
            fs::read_dir(self.groups.folder(lease).join("mon_data")).into_iter().flatten().flatten();
        let mut seen = Seen::default();
        for folder in folders.map(|entry| entry.path()) {
            // A value that the hardware cannot tell now is a word.
            let value = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
            for (sum, file) in
                [(&mut seen.llc_bytes, "llc_occupancy"), (&mut seen.memory_bytes, "mbm_total_bytes")]
            {
                if let Some(value) = value(file) {
                    *sum = Some(sum.unwrap_or(0).saturating_add(value));
                }
            }
        }
        seen
    }

    /// Removes all groups.
    pub(super) fn clear(&mut self) {
        for lease in std::mem::take(&mut self.has).into_keys() {
            self.groups.remove(lease);
        }
    }
}

impl Bandwidth {
    /// The next limit that the hardware knows, not below what was asked for.
    fn round(&self, percent: u32) -> u32 {
        percent.clamp(self.least, 100).div_ceil(self.step).saturating_mul(self.step).min(100)
    }
}

/// Gives ways to those that have none yet, the highest first. Whether all got theirs.
fn fill(
    masks: &mut BTreeMap<LeaseId, u64>,
    wanted: &BTreeMap<LeaseId, u32>,
    cache: &Cache,
    foreign: u64,
) -> bool {
    // The lowest ways stay everybody else's.
    let kept = (1u64 << cache.least.min(63)) - 1;
    let mut free = cache.all & !foreign & !(kept << cache.all.trailing_zeros().min(63));
    free &= !masks.values().fold(0, |all, mask| all | mask);
    let mut complete = true;
    for (lease, ways) in wanted {
        if masks.contains_key(lease) {
            continue;
        }
        let run = if *ways >= 64 { None } else { highest_run(free, *ways) };
        match run {
            Some(mask) => {
                free &= !mask;
                masks.insert(*lease, mask);
            }
            None => complete = false,
        }
    }
    complete
}

/// The highest bits of a mask of which so many are neighbours.
fn highest_run(free: u64, count: u32) -> Option<u64> {
    let run = (1u64 << count) - 1;
    (0..=64 - count).rev().map(|shift| run << shift).find(|mask| free & mask == *mask)
}

/// Of `0=fff;1=fff` each number with its value.
fn parse_line(text: &str) -> Vec<(u32, String)> {
    let parts = text.split(';').filter_map(|part| part.split_once('='));
    parts.filter_map(|(id, value)| Some((id.trim().parse().ok()?, value.trim().to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of plain files that looks like resctrl's.
    struct Tree(PathBuf);

    impl Tree {
        fn new(schemata: &str, mask: &str) -> Self {
            let root = std::env::temp_dir().join(format!("rgpu-resctrl-{:016x}", LeaseId::random().0));
            fs::create_dir_all(root.join("info/L3")).unwrap();
            fs::create_dir_all(root.join("info/MB")).unwrap();
            fs::write(root.join("schemata"), schemata).unwrap();
            fs::write(root.join("info/L3/cbm_mask"), mask).unwrap();
            fs::write(root.join("info/L3/min_cbm_bits"), "1\n").unwrap();
            fs::write(root.join("info/MB/min_bandwidth"), "10\n").unwrap();
            fs::write(root.join("info/MB/bandwidth_gran"), "10\n").unwrap();
            Self(root)
        }

        fn file(&self, group: &str, file: &str) -> String {
            fs::read_to_string(self.0.join(group).join(file)).unwrap()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0); // only tidiness
        }
    }

    fn ways(of: &[(u64, u32)]) -> BTreeMap<LeaseId, Wish> {
        of.iter().map(|(id, ways)| (LeaseId(*id), Wish { ways: Some(*ways), percent: None })).collect()
    }

    const PLAIN: &str = "    L3:0=ff;1=ff\n    MB:0=100;1=100\n";

    #[test]
    fn a_group_has_what_it_wishes_in_every_socket() {
        let tree = Tree::new(PLAIN, "ff\n");
        let mut resctrl = Resctrl::open(&tree.0, "n").unwrap();
        assert_eq!((resctrl.ways(), resctrl.limits_bandwidth()), (7, true));
        let lease = LeaseId(1);
        let wish = Wish { ways: Some(3), percent: Some(25) };
        let (new, failed) = resctrl.settle(&BTreeMap::from([(lease, wish), (LeaseId(2), Wish::default())]));
        assert_eq!((new, failed.len()), (vec![lease], 0));
        assert_eq!(resctrl.of(lease), Some(Has { mask: Some(0xe0), percent: Some(30) }));
        assert_eq!(resctrl.of(LeaseId(2)), None);
        resctrl.add(lease, 41).unwrap();
        resctrl.add(lease, 42).unwrap();
        let group = "rgpu.n.0000000000000001";
        assert_eq!(tree.file(group, "schemata"), "L3:0=e0;1=e0\nMB:0=30;1=30\n");
        assert_eq!(tree.file(group, "tasks"), "41\n42\n");
        // As it is already.
        assert_eq!(resctrl.settle(&BTreeMap::from([(lease, wish)])), (vec![], vec![]));
        assert_eq!(resctrl.settle(&BTreeMap::new()), (vec![], vec![]));
        assert!(!tree.0.join(group).exists());
    }

    #[test]
    fn leases_move_together_where_somebody_finds_no_room() {
        let tree = Tree::new(PLAIN, "ff\n");
        let mut resctrl = Resctrl::open(&tree.0, "n").unwrap();
        let mask = |resctrl: &Resctrl, id| resctrl.of(LeaseId(id)).and_then(|has| has.mask);
        resctrl.settle(&ways(&[(1, 2), (2, 2), (3, 2)]));
        assert_eq!([1, 2, 3].map(|id| mask(&resctrl, id)), [Some(0xc0), Some(0x30), Some(0x0c)]);
        // Two ways and one are free, but not three together.
        let (new, failed) = resctrl.settle(&ways(&[(1, 2), (3, 2), (4, 3)]));
        assert_eq!((new, failed.len()), (vec![LeaseId(4)], 0));
        assert_eq!([1, 3, 4].map(|id| mask(&resctrl, id)), [Some(0xc0), Some(0x30), Some(0x0e)]);
        // Who comes last to a full cache gets none, and the others keep theirs.
        let (_, failed) = resctrl.settle(&ways(&[(1, 2), (3, 2), (4, 3), (5, 1)]));
        assert!(
            failed.len() == 1 && failed[0].0 == LeaseId(5) && failed[0].1.contains("1 ways"),
            "{failed:?}"
        );
        assert_eq!((mask(&resctrl, 4), mask(&resctrl, 5)), (Some(0x0e), None));
        assert_eq!(resctrl.settle(&ways(&[(1, 64)])).1.len(), 1);
    }

    #[test]
    fn other_nodes_on_the_machine_keep_their_ways() {
        let tree = Tree::new(PLAIN, "ff\n");
        let (mut a, mut b) = (Resctrl::open(&tree.0, "a").unwrap(), Resctrl::open(&tree.0, "b").unwrap());
        a.settle(&ways(&[(1, 4)]));
        b.settle(&ways(&[(2, 3)]));
        assert_eq!(a.of(LeaseId(1)).unwrap().mask, Some(0xf0));
        assert_eq!(b.of(LeaseId(2)).unwrap().mask, Some(0x0e));
        // An earlier server of a has died.
        let again = Resctrl::open(&tree.0, "a").unwrap();
        assert!(!again.groups.folder(LeaseId(1)).exists() && b.groups.folder(LeaseId(2)).exists());
        b.clear();
        assert!(!b.groups.folder(LeaseId(2)).exists());
    }

    #[test]
    fn what_is_measured_is_added_up() {
        let tree = Tree::new(PLAIN, "ff\n");
        let mut resctrl = Resctrl::open(&tree.0, "n").unwrap();
        resctrl.settle(&ways(&[(1, 2)]));
        assert_eq!(resctrl.seen(LeaseId(1)), Seen::default());
        for (socket, text) in [("mon_L3_00", "1000\n"), ("mon_L3_01", "24\n")] {
            let folder = resctrl.groups.folder(LeaseId(1)).join("mon_data").join(socket);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("mbm_total_bytes"), text).unwrap();
            fs::write(folder.join("llc_occupancy"), "Unavailable\n").unwrap();
        }
        assert_eq!(resctrl.seen(LeaseId(1)), Seen { llc_bytes: None, memory_bytes: Some(1024) });
    }

    #[test]
    fn what_a_machine_lacks_is_said() {
        let tree = Tree::new("MB:0=4294967295\n", "ff\n");
        let mut resctrl = Resctrl::open(&tree.0, "n").unwrap();
        assert_eq!((resctrl.ways(), resctrl.limits_bandwidth()), (0, false));
        let wish = Wish { ways: Some(3), percent: Some(25) };
        let (new, failed) = resctrl.settle(&BTreeMap::from([(LeaseId(1), wish)]));
        assert!(new.is_empty() && failed.len() == 2, "{failed:?}");
        assert!(!resctrl.groups.folder(LeaseId(1)).exists());
        let missing = Resctrl::open(&tree.0.join("nowhere"), "n").unwrap_err();
        assert!(missing.contains("not mounted") && missing.contains("nowhere"), "{missing}");
    }
}
