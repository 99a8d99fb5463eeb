//! How much memory a software GPU is given where nobody says: a part of what the machine, or its container, has free.

use std::fs;
use std::path::{Path, PathBuf};

use crate::settings::SOFTWARE_MEMORY;

/// All software GPUs of a process together get at most so many bytes by themselves: there are only so many addresses.
const MOST: u64 = 128 << 30;

/// Memory of a machine, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// What it has, or what its control groups allow.
    pub total: u64,
    /// What a new program could have of it.
    pub available: u64,
}

/// What a control group's files say.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    /// `memory.max`, or `memory.limit_in_bytes`.
    pub max: &'a str,
    /// `memory.current`, or `memory.usage_in_bytes`.
    pub current: &'a str,
    /// `memory.stat`.
    pub stat: &'a str,
}

impl Memory {
    /// This machine's, as far as the process's control groups let it; `None` where the system does not say.
    pub fn look() -> Option<Self> {
        let mut groups = Vec::new();
        for (folder, [max, current]) in folders(&fs::read_to_string("/proc/self/cgroup").unwrap_or_default())
        {
            let read = |name: &str| fs::read_to_string(folder.join(name));
            if let (Ok(max), Ok(current)) = (read(max), read(current)) {
                groups.push([max, current, read("memory.stat").unwrap_or_default()]);
            }
        }
        let groups = groups.iter().map(|[max, current, stat]| Group { max, current, stat });
        Self::of(&fs::read_to_string("/proc/meminfo").ok()?, groups)
    }

    /// The same by the text of `/proc/meminfo` and by control groups, of which each has to be kept to. A group's pages of files that
    /// nobody has used for long are free for whoever needs them.
    pub fn of<'a>(meminfo: &str, groups: impl IntoIterator<Item = Group<'a>>) -> Option<Self> {
        let kib = |name: &str| Some(field(meminfo, name)? * 1024);
        let total = kib("MemTotal:")?;
        let available = kib("MemAvailable:").or_else(|| kib("MemFree:"))?.min(total);
        let mut memory = Self { total, available };
        for group in groups {
            // `max` is no number: then there is no limit here.
            let Ok(max) = group.max.trim().parse::<u64>() else { continue };
            let idle =
                field(group.stat, "total_inactive_file").or_else(|| field(group.stat, "inactive_file"));
            let used = group.current.trim().parse::<u64>().unwrap_or(0).saturating_sub(idle.unwrap_or(0));
            memory.total = memory.total.min(max);
            memory.available = memory.available.min(max.saturating_sub(used));
        }
        Some(memory)
    }

    /// Bytes of each of so many software GPUs: half of what is available, shared among them, in whole GiB. At least
    /// [`SOFTWARE_MEMORY`] where the machine has that much at all, and all that it has where not.
    pub fn of_software_gpus(self, devices: u32) -> u64 {
        let least = SOFTWARE_MEMORY.min(self.total & !((1 << 20) - 1));
        let half = (self.available / 2).min(MOST) / u64::from(devices.max(1));
        (half >> 30 << 30).max(least)
    }
}

/// The number behind a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name).filter(|rest| rest.starts_with(char::is_whitespace)))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The folders of the groups that `/proc/self/cgroup` names, and of those around them, with the names of the files in them.
fn folders(groups: &str) -> Vec<(PathBuf, [&'static str; 2])> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, files) = match controllers {
            "" => ("/sys/fs/cgroup", ["memory.max", "memory.current"]),
            list if list.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", ["memory.limit_in_bytes", "memory.usage_in_bytes"])
            }
            _ => continue,
        };
        let own = Path::new(root).join(path.trim_start_matches('/'));
        found.extend(
            own.ancestors()
                .take_while(|folder| folder.starts_with(root))
                .map(|folder| (folder.into(), files)),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       65536000 kB\nMemFree:         1000000 kB\nMemAvailable:   41943040 kB\nBuffers: 7 kB\n";

    fn group<'a>(max: &'a str, current: &'a str, stat: &'a str) -> Group<'a> {
        Group { max, current, stat }
    }

    #[test]
    fn half_of_what_is_available_is_given() {
        let machine = Memory::of(MEMINFO, []).unwrap();
        assert_eq!(machine, Memory { total: 65_536_000 << 10, available: 40 << 30 });
        assert_eq!(machine.of_software_gpus(1), 20 << 30);
        assert_eq!(machine.of_software_gpus(3), 6 << 30);
        assert_eq!(machine.of_software_gpus(16), 4 << 30);
        let sized = |total: u64, available: u64| Memory { total: total << 20, available: available << 20 };
        assert_eq!(sized(8 << 10, 3 << 10).of_software_gpus(1), 4 << 30, "as much as before");
        assert_eq!(sized(3000, 2000).of_software_gpus(1), 3000 << 20, "no more than there is");
        assert_eq!(sized(1 << 20, 1 << 20).of_software_gpus(1), MOST);
        // Older kernels.
        let older = MEMINFO.replace("MemAvailable", "Other");
        assert_eq!(Memory::of(&older, []).unwrap().available, 1_000_000 << 10);
        assert_eq!(Memory::of("nonsense", []), None);
    }

    #[test]
    fn control_groups_are_kept_to() {
        let gib = |n: u64| (n << 30).to_string();
        let (twelve, ten, all) = (gib(12), gib(10), gib(30));
        let idle = format!("anon 5\ninactive_file {}\nactive_file 7\n", 6u64 << 30);
        let inner = Memory::of(MEMINFO, [group(&format!("{twelve}\n"), &format!("{ten}\n"), &idle)]).unwrap();
        assert_eq!(inner, Memory { total: 12 << 30, available: 8 << 30 });
        assert_eq!(inner.of_software_gpus(1), 4 << 30);
        let several = [group(&all, "0", ""), group("max\n", &ten, ""), group(&twelve, "0", "")];
        assert_eq!(Memory::of(MEMINFO, several).unwrap(), Memory { total: 12 << 30, available: 12 << 30 });
        // Version 1 of control groups counts those below as well, and has a huge number for no limit.
        let one = format!("inactive_file 1\ntotal_inactive_file {}\n", 9u64 << 30);
        let old = [group("9223372036854771712", &ten, &one), group(&twelve, &ten, &one)];
        assert_eq!(Memory::of(MEMINFO, old).unwrap(), Memory { total: 12 << 30, available: 11 << 30 });
        let beyond = Memory::of(MEMINFO, [group("1073741824", &ten, "")]).unwrap();
        assert_eq!((beyond.available, beyond.of_software_gpus(2)), (0, 1 << 30));
    }

    #[test]
    fn groups_are_looked_for_up_to_the_root() {
        let names = |text: &str| -> Vec<String> {
            folders(text).iter().map(|(folder, [file, _])| folder.join(file).display().to_string()).collect()
        };
        assert_eq!(
            names("0::/a.slice/b\n"),
            ["a.slice/b/", "a.slice/", ""].map(|part| format!("/sys/fs/cgroup/{part}memory.max"))
        );
        assert_eq!(
            names("5:cpu,cpuacct:/x\n4:memory:/docker\n1:name=systemd:/\n"),
            ["docker/", ""].map(|part| format!("/sys/fs/cgroup/memory/{part}memory.limit_in_bytes"))
        );
        assert_eq!(names("0::/\n"), ["/sys/fs/cgroup/memory.max"]);
        assert!(names("nonsense").is_empty());
    }

    #[test]
    fn this_machine_has_memory() {
        let memory = Memory::look().unwrap();
        assert!(memory.total >= memory.available && memory.of_software_gpus(1) > 0, "{memory:?}");
    }
}
