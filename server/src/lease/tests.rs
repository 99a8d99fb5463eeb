use super::record::WINDOW_NS;
use super::*;
use crate::ledger::Size;
use crate::test_orders;
use rgpu_control::api::{GrantUsage, LeaseOrder, LeaseSize};
use rgpu_control::proof;
use rgpu_control::token::{Claims, PrivateKey};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicUsize;

const MIB: u64 = 1 << 20;

fn unix_ms() -> u64 {
    Moment::since(Instant::now()).unix_ms
}

struct Site {
    broker: PrivateKey,
    holder: PrivateKey,
    ledger: Arc<Ledger>,
    table: Arc<LeaseTable>,
    told: Arc<AtomicUsize>,
    sessions: u64,
}

impl Site {
    fn new() -> Self {
        let (broker, holder) = (PrivateKey::generate(), PrivateKey::generate());
        let ledger = Arc::new(Ledger::new(&[1024 * MIB; 2]).unwrap());
        let table = LeaseTable::new(ledger.clone(), 2);
        let told = Arc::new(AtomicUsize::new(0));
        let counter = told.clone();
        table.on_change(move || _ = counter.fetch_add(1, SeqCst));
        Self { broker, holder, ledger, table, told, sessions: 0 }
    }

    fn with_identity() -> Self {
        let site = Self::new();
        site.table.set_identity("n0", site.broker.public());
        site
    }

    fn grant(&self, node: &str, device: u32, mib: u64, share_milli: u16) -> Grant {
        Grant { node: node.into(), device, memory: mib * MIB, share_milli }
    }

    fn claims(&self, lease: u64, grants: Vec<Grant>) -> LeaseClaims {
        LeaseClaims {
            lease: LeaseId(lease),
            version: 1,
            orders: 10,
            tenant: "ann".into(),
            not_before: unix_time() - 1,
            expires: unix_time() + 60,
            holder: self.holder.public().to_text(),
            transport: "auto".into(),
            encrypt: false,
            grants,
        }
    }

    fn admit(&mut self, claims: &LeaseClaims) -> Result<Admission, String> {
        self.sessions += 1;
        let token = self.broker.sign(&Claims::Lease(claims.clone()));
        let credential = proof::present(&token, &self.holder, self.sessions, "n0", unix_ms());
        self.table.admit(&credential, self.sessions).map_err(|e| e.to_string())
    }

    /// Begins a session; its slot.
    fn begin(&mut self, claims: &LeaseClaims) -> Result<usize, String> {
        let admission = self.admit(claims)?;
        let slot = self.ledger.take_slot().unwrap();
        self.table
            .begin(&admission, slot)
            .inspect_err(|_| self.ledger.clear_slot(slot))
            .map_err(|e| e.to_string())?;
        Ok(slot)
    }

    fn orders(&self, version: u64, leases: &[&LeaseClaims]) -> Orders {
        let order = |claims: &&LeaseClaims| LeaseOrder {
            version: claims.version,
            tenant: claims.tenant.clone(),
            holder: claims.holder.clone(),
            expires: claims.expires,
            grants: claims.grants.iter().filter(|g| g.node == "n0").cloned().collect(),
            nodes: vec![Peer { node: "n1".into(), address: "10.0.0.1:7070".into() }],
            ..test_orders::order(claims.lease)
        };
        test_orders::orders(version, leases.iter().map(order).collect())
    }
}

#[test]
fn only_good_leases_are_admitted() {
    let mut site = Site::new();
    let claims = site.claims(1, vec![site.grant("n0", 1, 100, 250), site.grant("n1", 0, 1, 1000)]);
    assert!(site.admit(&claims).unwrap_err().contains("has not reached its broker"));
    site.table.set_identity("n0", site.broker.public());
    let admission = site.admit(&claims).unwrap();
    assert_eq!(admission.terms, [Terms { device: 1, memory: 100 * MIB, share_milli: 250 }]);
    assert_eq!(admission.tenant, "ann");
    assert!(site.table.admit(b"", 5).unwrap_err().to_string().contains("wants a lease"));

    let refused = |site: &mut Site, claims: &LeaseClaims, part: &str| {
        let why = site.admit(claims).unwrap_err();
        assert!(why.contains(part), "{why}");
    };
    let expired = LeaseClaims { expires: unix_time() - 40, ..claims.clone() };
    refused(&mut site, &expired, "expired 40 s ago");
    let early = LeaseClaims { not_before: unix_time() + 60, ..claims.clone() };
    refused(&mut site, &early, "compare the clocks");
    let elsewhere = LeaseClaims { grants: vec![site.grant("n1", 0, 1, 1)], ..claims.clone() };
    refused(&mut site, &elsewhere, "gives no device of this server (n0)");
    let no_device = LeaseClaims { grants: vec![site.grant("n0", 2, 1, 1)], ..claims.clone() };
    refused(&mut site, &no_device, "device 2 of this server (n0), which has 2");

    let token = site.broker.sign(&Claims::Lease(claims.clone()));
    let stolen = proof::present(&token, &PrivateKey::generate(), 77, "n0", unix_ms());
    assert!(site.table.admit(&stolen, 77).unwrap_err().to_string().contains("proof"));
    let once = proof::present(&token, &site.holder, 78, "n0", unix_ms());
    site.table.admit(&once, 78).unwrap();
    assert!(site.table.admit(&once, 78).unwrap_err().to_string().contains("replayed"));
    let late = proof::present(&token, &site.holder, 79, "n0", unix_ms() - 61_000);
    assert!(site.table.admit(&late, 79).unwrap_err().to_string().contains("clock"));
    let forged = PrivateKey::generate().sign(&Claims::Lease(claims.clone()));
    let forged = proof::present(&forged, &site.holder, 80, "n0", unix_ms());
    assert!(site.table.admit(&forged, 80).unwrap_err().to_string().contains("forged"));
    // What was replayed is still known when the agent registers again.
    site.table.set_identity("n0", site.broker.public());
    assert!(site.table.admit(&once, 78).unwrap_err().to_string().contains("replayed"));
}

#[test]
fn what_sessions_use_is_reported_also_after_them() {
    let mut site = Site::with_identity();
    let claims = site.claims(1, vec![site.grant("n0", 1, 100, 500)]);
    let (a, b) = (site.begin(&claims).unwrap(), site.begin(&claims).unwrap());
    assert_eq!(site.told.load(SeqCst), 1);
    assert_eq!(site.ledger.lease_of(a), site.ledger.lease_of(b));
    let entry = site.ledger.lease_of(a).unwrap();
    assert_eq!(site.ledger.grant(a, 0, 60 * MIB, 60 * MIB), 60 * MIB);
    assert_eq!(site.ledger.free(b, 0), 40 * MIB);
    site.ledger.slot(a).bytes_in.store(7, SeqCst);
    site.ledger.slot(b).bytes_out.store(9, SeqCst);
    site.ledger.launched(entry, 0, 3);
    let start = monotonic_ns();
    site.table.report_at(start, unix_time());
    site.ledger.charge(entry, 0, WINDOW_NS, start);
    let (reports, ended) = site.table.report_at(start + 2 * WINDOW_NS, unix_time());
    assert!(ended.is_empty() && reports.len() == 1);
    assert_eq!((reports[0].lease, reports[0].version, reports[0].sessions), (LeaseId(1), 1, 2));
    let expected = GrantUsage {
        device: 1,
        memory: 60 * MIB,
        peak_memory: 60 * MIB,
        busy_ms: 1000,
        share_milli: 500,
        launches: 3,
        bytes_in: 7,
        bytes_out: 9,
        set_aside_milli: None,
    };
    assert_eq!(reports[0].usage, std::slice::from_ref(&expected));
    site.table.end(LeaseId(1), a);
    site.table.end(LeaseId(1), b);
    assert_eq!(site.told.load(SeqCst), 2);
    let (reports, _) = site.table.report_at(start + 2 * WINDOW_NS, unix_time());
    assert_eq!((reports[0].sessions, &reports[0].usage[0]), (0, &GrantUsage { memory: 0, ..expected }));
    // Its debts are there when it comes back, and it is forgotten when its tokens have run out.
    let again = site.begin(&claims).unwrap();
    assert!(site.ledger.delay_ns(site.ledger.lease_of(again).unwrap(), 0, start) > WINDOW_NS / 2);
    let later = claims.expires + CLOCK_SKEW_S + 1;
    assert_eq!(site.table.report_at(start, later).0.len(), 1);
    site.table.end(LeaseId(1), again);
    assert_eq!(site.table.report_at(start, later).0.len(), 0);
    assert_eq!(site.ledger.unpromised(1), 1024 * MIB);
}

#[test]
fn the_higher_version_counts() {
    let mut site = Site::with_identity();
    let old = site.claims(1, vec![site.grant("n0", 0, 100, 500)]);
    let new = LeaseClaims { version: 2, grants: vec![site.grant("n0", 0, 50, 250)], ..old.clone() };
    let slot = site.begin(&old).unwrap();
    let entry = site.ledger.lease_of(slot).unwrap();
    site.table.apply(&site.orders(20, &[&new]));
    let nodes = site.table.nodes_of(new.lease).unwrap();
    assert_eq!((nodes[0].node.as_str(), nodes[0].address.as_str()), ("n1", "10.0.0.1:7070"));
    assert_eq!((site.ledger.cap(slot, 0), site.ledger.share_milli(entry, 0)), (Some(50 * MIB), 250));
    // An older token is good, but does not change that.
    let second = site.begin(&old).unwrap();
    assert_eq!(site.ledger.cap(second, 0), Some(50 * MIB));
    let newest = LeaseClaims { version: 3, grants: vec![site.grant("n0", 0, 70, 250)], ..old.clone() };
    site.begin(&newest).unwrap();
    assert_eq!(site.ledger.cap(slot, 0), Some(70 * MIB));
    // Orders that are not later than the latest change nothing; nor can a device become another one.
    site.table.apply(&site.orders(20, &[]));
    site.table.apply(&site.orders(19, &[]));
    let moved = LeaseClaims { version: 4, grants: vec![site.grant("n0", 1, 70, 250)], ..old };
    site.table.apply(&site.orders(21, &[&moved]));
    assert_eq!(site.ledger.cap(slot, 0), Some(70 * MIB));
    assert_eq!(site.table.report().0[0].sessions, 3);
}

#[test]
fn a_lease_that_may_be_resized_has_the_size_that_orders_say() {
    let mut site = Site::with_identity();
    let claims = site.claims(1, vec![site.grant("n0", 0, 100, 500)]);
    let sized = |site: &Site, version, claims: &LeaseClaims, sizes: &[(u16, u16)]| {
        let mut orders = site.orders(version, &[claims]);
        let size = |(firm_milli, set_aside_milli): &(u16, u16)| LeaseSize {
            firm_milli: *firm_milli,
            set_aside_milli: *set_aside_milli,
        };
        orders.leases[0].sizes = sizes.iter().map(size).collect();
        orders
    };
    // The orders are there before the program, and of the token's version.
    site.table.apply(&sized(&site, 20, &claims, &[(300, 500)]));
    let slot = site.begin(&claims).unwrap();
    let entry = site.ledger.lease_of(slot).unwrap();
    let size = |firm_milli, set_aside_milli| Some(Size { firm_milli, set_aside_milli });
    assert_eq!(site.ledger.size(entry, 0), size(300, 500));
    assert_eq!(site.table.report().0[0].usage[0].set_aside_milli, Some(500));
    let told = site.told.load(SeqCst);
    let newer = LeaseClaims { version: 2, ..claims.clone() };
    site.table.apply(&sized(&site, 21, &newer, &[(400, 120)]));
    // The broker hears of it at once.
    assert_eq!((site.ledger.size(entry, 0), site.told.load(SeqCst)), (size(400, 120), told + 1));
    let report = site.table.report().0.remove(0);
    assert_eq!((report.version, report.usage[0].set_aside_milli), (2, Some(120)));
    // Orders of an older version of it say nothing, and the same ones once more are no news.
    site.table.apply(&sized(&site, 22, &claims, &[(1, 1)]));
    site.table.apply(&sized(&site, 23, &newer, &[(400, 120)]));
    assert_eq!((site.ledger.size(entry, 0), site.told.load(SeqCst)), (size(400, 120), told + 1));
    // A lease without the permission to be resized takes the entry after it, and is held to its share.
    site.table.end(LeaseId(1), slot);
    let fixed = LeaseClaims { orders: 30, ..site.claims(2, vec![site.grant("n0", 0, 100, 500)]) };
    let slot = site.begin(&fixed).unwrap();
    assert_eq!(site.ledger.size(site.ledger.lease_of(slot).unwrap(), 0), None);
    assert_eq!(site.table.report().0[1].usage[0].set_aside_milli, None);
}

#[test]
fn what_later_orders_lack_is_ended_and_stays_so() {
    let mut site = Site::with_identity();
    let claims = site.claims(1, vec![site.grant("n0", 0, 100, 500)]);
    let unused = site.claims(2, vec![site.grant("n0", 0, 100, 500)]);
    let slot = site.begin(&claims).unwrap();
    let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    site.table.started(LeaseId(1), slot, child.id());
    // Orders from before the lease say nothing about it.
    site.table.apply(&site.orders(9, &[&unused]));
    assert_eq!(site.table.report().0.len(), 2);
    assert!(child.try_wait().unwrap().is_none());
    site.table.apply(&site.orders(10, &[]));
    assert!(!child.wait().unwrap().success());
    assert!(site.ledger.slot(slot).reason().unwrap().contains("lease 0000000000000001 has ended"));
    // The one that was not used has ended at once; the other, when its process is gone.
    assert_eq!(site.table.report().1, [LeaseId(2)]);
    assert_eq!(site.table.report().0[0].sessions, 1);
    assert!(site.admit(&claims).unwrap_err().contains("has ended"));
    assert_eq!(site.ledger.grant(slot, 0, 60, 60), 60);
    site.ledger.slot(slot).bytes_in.store(7, SeqCst);
    site.table.end(LeaseId(1), slot);
    let ended = vec![LeaseId(1), LeaseId(2)];
    assert_eq!(site.table.report(), (vec![], ended.clone()));
    // What they used is told with that.
    let used = site.table.used_by_ended(&ended);
    let seen: Vec<_> = used.iter().map(|r| (r.sessions, r.usage[0].peak_memory, r.usage[0].memory)).collect();
    assert_eq!((seen, used[0].usage[0].bytes_in), (vec![(0, 60, 0), (0, 0, 0)], 7));
    site.table.confirmed(&[LeaseId(1)]);
    assert_eq!(site.table.report().1, [LeaseId(2)]);
    assert_eq!(site.table.used_by_ended(&ended).len(), 1);
    assert!(site.admit(&claims).unwrap_err().contains("has ended"));
    // A lease that the node has never heard of, and that the orders would name.
    let unheard = site.claims(3, vec![site.grant("n0", 0, 1, 1)]);
    assert!(site.admit(&unheard).unwrap_err().contains("has ended"));
    let newer = LeaseClaims { orders: 11, ..unheard };
    assert!(site.admit(&newer).is_ok());
}

#[test]
fn a_process_that_starts_when_its_lease_has_ended_is_ended() {
    let mut site = Site::with_identity();
    let claims = site.claims(1, vec![site.grant("n0", 0, 100, 500)]);
    let admission = site.admit(&claims).unwrap();
    let slot = site.begin(&claims).unwrap();
    site.table.apply(&site.orders(10, &[]));
    assert!(site.table.begin(&admission, slot + 1).unwrap_err().to_string().contains("has ended"));
    let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    site.table.started(LeaseId(1), slot, child.id());
    assert!(!child.wait().unwrap().success());
}

#[test]
fn what_the_broker_wants_to_have_proved_goes_on_and_is_shown() {
    let mut site = Site::with_identity();
    let claims = site.claims(1, vec![site.grant("n0", 0, 100, 500), site.grant("n1", 0, 7, 7)]);
    let never_used = site.claims(2, vec![site.grant("n0", 1, 100, 500)]);
    site.table.apply(&site.orders(10, &[&claims, &never_used]));
    let slot = site.begin(&claims).unwrap();
    let told = site.told.load(SeqCst);
    // The broker has lost its state: its orders name nothing.
    let asks = |version, prove: &[u64]| Orders {
        prove: prove.iter().copied().map(LeaseId).collect(),
        ..site.orders(version, &[])
    };
    site.table.apply(&asks(11, &[1, 2]));
    assert_eq!(site.table.report().0.len(), 2);
    assert!(site.ledger.slot(slot).reason().is_none());
    assert!(site.told.load(SeqCst) > told, "the broker is to hear of it at once");
    // Of what no program has used here, there is no token.
    let proofs = site.table.proofs();
    assert_eq!(proofs.len(), 1);
    assert_eq!(site.broker.public().verify_lease(&proofs[0].token, unix_time()).unwrap(), claims);
    assert_eq!(proofs[0].grants, claims.grants[..1]);
    // Asked again, it is no news; what nothing proves is ended.
    let told = site.told.load(SeqCst);
    site.table.apply(&asks(12, &[1, 2]));
    assert_eq!(site.told.load(SeqCst), told);
    site.table.apply(&asks(13, &[1]));
    assert_eq!(site.table.report().1, [LeaseId(2)]);
    // Adopted.
    site.table.apply(&site.orders(14, &[&claims]));
    assert!(site.table.proofs().is_empty() && site.ledger.slot(slot).reason().is_none());
    assert_eq!(site.table.report().0.len(), 1);
}

#[test]
fn a_lease_ends_when_it_says_unless_a_later_end_is_heard_of() {
    const S: u64 = 1_000_000_000;
    let mut site = Site::with_identity();
    let claims = site.claims(1, vec![site.grant("n0", 0, 1, 1000)]);
    let slot = site.begin(&claims).unwrap();
    let child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
    site.table.started(claims.lease, slot, child.id());
    let mut child = child;
    let now = monotonic_ns();
    // It is good for 60 s, and the tolerance of clocks is 30 s.
    site.table.end_overdue(now + 80 * S);
    assert!(site.begin(&claims).is_ok());
    // A renewal is heard of, by a token or from the broker.
    let renewed = LeaseClaims { expires: claims.expires + 100, ..claims.clone() };
    let other = site.begin(&renewed).unwrap();
    site.table.end(claims.lease, other);
    site.table.end_overdue(now + 150 * S);
    assert!(child.try_wait().unwrap().is_none());
    // A server with a broker goes on while that is away.
    site.table.set_grace(Duration::from_secs(1000));
    site.table.end_overdue(now + 1000 * S);
    assert!(child.try_wait().unwrap().is_none() && site.begin(&renewed).is_ok());
    // Then all its sessions end, and its tokens are refused.
    site.table.end_overdue(now + 1200 * S);
    assert!(!child.wait().unwrap().success());
    assert!(site.ledger.slot(slot).reason().unwrap().contains("its time is over"));
    assert!(site.admit(&renewed).unwrap_err().contains("has ended"));
}

#[test]
fn why_a_lease_has_ended_is_said_as_the_broker_says_it() {
    let mut site = Site::with_identity();
    let claims = site.claims(1, vec![site.grant("n0", 0, 1, 1000)]);
    let slot = site.begin(&claims).unwrap();
    site.table.apply(&site.orders(10, &[&claims]));
    let ended =
        vec![rgpu_control::api::EndedOrder { lease: claims.lease, reason: "it was given back".into() }];
    site.table.apply(&Orders { ended, ..site.orders(11, &[]) });
    let reason = site.ledger.slot(slot).reason().unwrap();
    assert!(reason.ends_with("has ended: it was given back"), "{reason}");
}
