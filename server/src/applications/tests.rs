use super::*;
use crate::test_orders;
use rgpu_control::api::LeaseOrder;
use rustix::process::Pid;
use rustix::thread::sched_getaffinity;
use std::fs;
use std::process::{Child, Command, Stdio};

/// A machine whose resctrl and cgroup are plain files.
struct Machine {
    root: PathBuf,
    applications: Applications,
}

impl Machine {
    fn new() -> Self {
        let root = std::env::temp_dir().join(format!("rgpu-applications-{:016x}", LeaseId::random().0));
        for folder in ["resctrl/info/L3", "resctrl/info/MB", "cgroup"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("resctrl/schemata"), "L3:0=ff\nMB:0=100\n").unwrap();
        fs::write(root.join("resctrl/info/L3/cbm_mask"), "ff\n").unwrap();
        fs::write(root.join("cgroup/cgroup.controllers"), "cpu\n").unwrap();
        let options = ProcessorOptions { resctrl: root.join("resctrl"), cgroup: Some(root.join("cgroup")) };
        let applications = Applications::new(&options, "n");
        Self { root, applications }
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.root.join(file)).ok()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root); // only tidiness
    }
}

fn process() -> Child {
    Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()
}

fn orders(version: u64, leases: &[(LeaseId, ProcessorOrder)]) -> Orders {
    let order = |(lease, processors): &(LeaseId, ProcessorOrder)| LeaseOrder {
        processors: Some(processors.clone()),
        ..test_orders::order(*lease)
    };
    test_orders::orders(version, leases.iter().map(order).collect())
}

fn report(lease: LeaseId) -> LeaseReport {
    LeaseReport { lease, version: 1, sessions: 1, usage: Vec::new(), processors: None }
}

#[test]
fn a_lease_has_what_was_ordered_until_it_is_over() {
    let machine = Machine::new();
    let apps = &machine.applications;
    let controls = apps.controls();
    assert_eq!((controls.llc_ways, controls.weights, controls.memory_bandwidth), (7, true, true));
    assert!(controls.cores > 0);
    let (a, group) = (LeaseId(0xa), "rgpu.n.000000000000000a");
    let order = ProcessorOrder {
        cores: Some(1),
        weight: Some(25),
        llc_ways: Some(2),
        memory_bandwidth_percent: Some(40),
    };
    // The orders come before the first process, and after the second.
    apps.follow(&orders(2, &[(a, order.clone())]));
    let mut children = [process(), process()];
    let pids = children.each_ref().map(Child::id);
    apps.started(a, pids[0]);
    apps.started(a, pids[1]);
    let affinity = |pid: u32| sched_getaffinity(Pid::from_raw(pid as i32)).unwrap().count();
    assert_eq!(pids.map(affinity), [1, 1]);
    let schemata = machine.read(&format!("resctrl/{group}/schemata")).unwrap();
    assert_eq!(schemata, "L3:0=c0\nMB:0=40\n");
    let tasks = machine.read(&format!("resctrl/{group}/tasks")).unwrap();
    assert!(pids.iter().all(|pid| tasks.lines().any(|task| task == pid.to_string())), "{tasks}");
    let weight = machine.read(&format!("cgroup/{group}/cpu.weight")).unwrap();
    assert_eq!(weight, "25\n");
    // Older orders change nothing, newer ones do.
    apps.follow(&orders(1, &[]));
    apps.follow(&orders(3, &[(a, ProcessorOrder { llc_ways: Some(3), ..ProcessorOrder::default() })]));
    assert_eq!(affinity(pids[0]), controls.cores);
    assert!(machine.read(&format!("resctrl/{group}/schemata")).unwrap().ends_with("L3:0=e0\nMB:0=100\n"));
    let mut reports = [report(a), report(LeaseId(0xb))];
    apps.add_to(&mut reports, &mut []);
    let usage = reports[0].processors.clone().unwrap();
    assert_eq!((usage.llc_mask.as_deref(), usage.cores, usage.weight), (Some("e0"), None, Some(100)));
    assert_eq!(reports[1].processors, None);
    // Its end is ordered while a process lives.
    apps.follow(&orders(4, &[]));
    assert!(machine.root.join("resctrl").join(group).exists());
    for child in &mut children {
        child.kill().unwrap();
        apps.ended(a, child.id());
        child.wait().unwrap();
    }
    for tree in ["resctrl", "cgroup"] {
        assert!(!machine.root.join(tree).join(group).exists(), "{tree}");
    }
    let mut used = [report(a)];
    apps.add_to(&mut [], &mut used);
    assert!(used[0].processors.is_some(), "what it has used is told once more");
    apps.add_to(&mut [], &mut []);
    apps.add_to(&mut [], &mut used);
    assert_eq!(used[0].processors, None);
}

#[test]
fn nothing_is_left_behind_by_a_server_that_stops() {
    let machine = Machine::new();
    let order = ProcessorOrder { weight: Some(1), llc_ways: Some(1), ..ProcessorOrder::default() };
    machine.applications.follow(&orders(1, &[(LeaseId(1), order)]));
    let group = "rgpu.n.0000000000000001";
    assert!(machine.root.join("resctrl").join(group).exists());
    assert!(machine.root.join("cgroup").join(group).exists());
    machine.applications.stop();
    assert!(!machine.root.join("resctrl").join(group).exists());
    assert!(!machine.root.join("cgroup").join(group).exists());
}

#[test]
fn what_the_machine_cannot_do_is_named_and_harms_nobody() {
    let nowhere = std::env::temp_dir().join("rgpu-no-such-folder");
    let options = ProcessorOptions { resctrl: nowhere.clone(), cgroup: Some(nowhere) };
    let apps = Applications::new(&options, "n");
    let controls = apps.controls();
    assert_eq!((controls.llc_ways, controls.weights, controls.memory_bandwidth), (0, false, false));
    let order = ProcessorOrder { weight: Some(1), llc_ways: Some(1), ..ProcessorOrder::default() };
    let all = [(LeaseId(1), order.clone()), (LeaseId(2), order)];
    apps.follow(&orders(1, &all));
    apps.follow(&orders(2, &all));
    // Each reason once, whomever it concerns.
    assert_eq!(apps.inner.lock().said.len(), 2);
    let mut child = process();
    apps.started(LeaseId(1), child.id());
    let mut reports = [report(LeaseId(1))];
    apps.add_to(&mut reports, &mut []);
    let usage = reports[0].processors.clone().unwrap();
    assert_eq!((usage.llc_mask, usage.weight, usage.cores), (None, None, None));
    child.kill().unwrap();
    apps.ended(LeaseId(1), child.id());
    child.wait().unwrap();
}

#[test]
fn processors_used_are_worked_out_over_a_window() {
    let mut held = Held::default();
    let begin = Instant::now();
    assert_eq!(held.window(begin, 100), 0);
    assert_eq!(held.window(begin + WINDOW / 2, 900), 0);
    assert_eq!(held.window(begin + 2 * WINDOW, 3100), 1500);
    assert_eq!(held.window(begin + 2 * WINDOW + WINDOW / 2, 3600), 1500);
    assert_eq!(held.window(begin + 4 * WINDOW, 3100), 0);
}
