//! The keeper with commands that are small scripts.

use super::*;
use crate::test_orders;
use rgpu_control::api::{LeaseOrder, NvmeOrder};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

/// No command of these tests takes so long, unless it hangs.
const SOON: Duration = Duration::from_secs(60);

/// A folder with a script, which is gone with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("rgpu-nvme-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        // Writes down what it was called with, and fails where a file says so.
        let script = format!(
            "#!/bin/sh\necho \"$*\" >> {0}/log\nif [ -e {0}/fail-$1 ]; then echo first >&2; echo no way >&2; exit 3; fi\n\
             echo hello\necho /dev/of-$2\n",
            folder.display()
        );
        let path = folder.join("script");
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        Self(folder)
    }

    fn keeper(&self) -> Arc<NvmeKeeper> {
        let template = |what: &str| {
            let text = format!(
                "{} {what} {{device}} {{lease}} {{target}} {{host}}",
                self.0.join("script").display()
            );
            text.parse().unwrap()
        };
        let device = |name: &str| NvmeReport { name: name.into(), capacity: 1 << 30, bandwidth_mbps: 1000 };
        let options = NvmeOptions {
            devices: vec![device("d0"), device("d1")],
            attach: template("attach"),
            detach: template("detach"),
            time: SOON,
            state: self.0.join("state"),
        };
        NvmeKeeper::start("n0", options).unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.0.join("log")).unwrap_or_default()
    }

    fn wait(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let end = Instant::now() + SOON;
        while !holds(&self.log()) {
            assert!(Instant::now() < end, "{what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn orders(version: u64, leases: &[(u64, &str, &str)]) -> Orders {
    let order = |(lease, device, host): &(u64, &str, &str)| LeaseOrder {
        nvmes: vec![NvmeOrder { device: (*device).into(), host: (*host).into() }],
        ..test_orders::order(LeaseId(*lease))
    };
    test_orders::orders(version, leases.iter().map(order).collect())
}

fn state_of(keeper: &NvmeKeeper, lease: u64) -> NvmeState {
    let end = Instant::now() + SOON;
    loop {
        if let Some(state) = keeper.states().into_iter().find(|state| state.lease == LeaseId(lease)) {
            return state;
        }
        assert!(Instant::now() < end, "nothing is said of lease {lease}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What is held back of a lease that has ended.
fn ended(keeper: &NvmeKeeper, lease: u64) -> Vec<LeaseId> {
    let (mut leases, mut ended) = (Vec::new(), vec![LeaseId(lease)]);
    keeper.hold_back(&mut leases, &mut ended);
    assert_eq!(leases.len() + ended.len(), 1, "it is either there or over");
    ended
}

#[test]
fn a_device_is_attached_for_a_lease_and_detached_before_that_is_over() {
    let scratch = Scratch::new("life");
    let keeper = scratch.keeper();
    keeper.apply(&orders(1, &[(1, "d0", "client-a")]));
    assert_eq!(state_of(&keeper, 1).path.as_deref(), Some("/dev/of-d0"));
    assert_eq!(ended(&keeper, 1), []);
    // Older orders say nothing.
    keeper.apply(&orders(1, &[]));
    keeper.apply(&orders(2, &[]));
    let lease = LeaseId(1);
    scratch.wait("it is detached", |log| log.ends_with(&format!("detach d0 {lease} n0 client-a\n")));
    let end = Instant::now() + SOON;
    while ended(&keeper, 1) != [lease] {
        assert!(Instant::now() < end);
    }
    assert!(scratch.log().starts_with(&format!("attach d0 {lease} n0 client-a\n")), "{}", scratch.log());
    keeper.stop();
}

#[test]
fn a_device_that_cannot_be_attached_is_told_with_the_last_line() {
    let scratch = Scratch::new("fails");
    std::fs::write(scratch.0.join("fail-attach"), "").unwrap();
    let keeper = scratch.keeper();
    keeper.apply(&orders(1, &[(1, "d0", "client-a"), (2, "d9", "client-a"), (3, "d1", "$(reboot)")]));
    assert_eq!(state_of(&keeper, 1).failure.as_deref(), Some("no way"));
    assert!(state_of(&keeper, 2).failure.unwrap().contains("does not offer"));
    assert!(state_of(&keeper, 3).failure.unwrap().contains("no plain name"));
    assert_eq!(ended(&keeper, 1), [LeaseId(1)]);
    keeper.stop();
}

#[test]
fn what_a_server_leaves_over_the_next_one_detaches_first() {
    let scratch = Scratch::new("left");
    let keeper = scratch.keeper();
    keeper.apply(&orders(1, &[(1, "d0", "client-a")]));
    state_of(&keeper, 1);
    keeper.stop();
    let keeper = scratch.keeper();
    keeper.apply(&orders(1, &[(1, "d0", "client-a"), (2, "d1", "client-b")]));
    state_of(&keeper, 1);
    state_of(&keeper, 2);
    let log = scratch.log();
    let words: Vec<&str> = log.lines().map(|line| &line[..9]).collect();
    assert_eq!(words, ["attach d0", "detach d0", "attach d0", "attach d1"]);
    keeper.stop();
}

#[test]
fn a_device_that_cannot_be_detached_is_given_to_nobody_else() {
    let scratch = Scratch::new("stuck");
    let keeper = scratch.keeper();
    keeper.apply(&orders(1, &[(1, "d0", "client-a")]));
    state_of(&keeper, 1);
    std::fs::write(scratch.0.join("fail-detach"), "").unwrap();
    keeper.apply(&orders(2, &[(2, "d0", "client-b")]));
    assert!(state_of(&keeper, 2).failure.unwrap().contains("cannot be detached"));
    // The lease itself is over: nobody is kept waiting by it.
    assert_eq!(ended(&keeper, 1), [LeaseId(1)]);
    std::fs::remove_file(scratch.0.join("fail-detach")).unwrap();
    keeper.apply(&orders(3, &[(3, "d0", "client-b")]));
    assert_eq!(state_of(&keeper, 3).path.as_deref(), Some("/dev/of-d0"));
    keeper.stop();
}

#[test]
fn commands_are_checked_and_ended_when_they_take_too_long() {
    assert_eq!("".parse::<Template>(), Err(TemplateError::Empty));
    assert_eq!("a {lea}".parse::<Template>(), Err(TemplateError::Place("{lea}".into())));
    let sleep: Template = "sleep 1000".parse().unwrap();
    let began = Instant::now();
    let why = sleep.run(&[], Duration::from_millis(50)).unwrap_err();
    assert!(why.contains("longer than 0.05 s") && began.elapsed() < SOON, "{why}");
    let none: Template = "/no/such/command".parse().unwrap();
    assert!(none.run(&[], SOON).unwrap_err().contains("cannot start"));
    assert_eq!("true".parse::<Template>().unwrap().run(&[], SOON), Ok(None));
    assert!("false".parse::<Template>().unwrap().run(&[], SOON).unwrap_err().contains("failed"));
}
