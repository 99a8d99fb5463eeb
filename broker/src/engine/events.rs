//! What happened, for those who look on.

use std::collections::VecDeque;

use rgpu_control::LeaseId;
use rgpu_control::api::Event;
use rgpu_control::token::Role;
use tokio::sync::watch;

use super::{Caller, Engine};

/// The latest events.
pub(crate) struct EventLog {
    ring: VecDeque<Event>,
    limit: usize,
    /// The number of the latest event.
    latest: watch::Sender<u64>,
}

/// An event that has no number yet.
#[derive(Debug, Clone)]
pub(crate) struct Happened {
    pub kind: &'static str,
    pub node: Option<String>,
    pub lease: Option<LeaseId>,
    pub tenant: Option<String>,
    pub text: String,
}

impl EventLog {
    /// Numbers go on from `first`.
    pub(super) fn new(limit: usize, first: u64) -> Self {
        Self { ring: VecDeque::new(), limit: limit.max(1), latest: watch::Sender::new(first) }
    }

    pub(super) fn push(&mut self, time: u64, happened: Happened) {
        let number = *self.latest.borrow() + 1;
        let Happened { kind, node, lease, tenant, text } = happened;
        if self.ring.len() >= self.limit {
            self.ring.pop_front();
        }
        self.ring.push_back(Event { number, time, kind: kind.into(), node, lease, tenant, text });
        self.latest.send_replace(number);
    }

    pub(super) fn latest(&self) -> u64 {
        *self.latest.borrow()
    }

    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// Those after `number` that the caller may see, some hundred at most, and the number of the last one looked at.
    pub(super) fn after(&self, number: u64, caller: &Caller) -> (VecDeque<Event>, u64) {
        let from = self.ring.partition_point(|event| event.number <= number);
        let mut last = number;
        let mut found = VecDeque::new();
        for event in self.ring.range(from..) {
            last = event.number;
            if visible(event, caller) {
                found.push_back(event.clone());
                if found.len() >= 256 {
                    break;
                }
            }
        }
        (found, last)
    }
}

fn visible(event: &Event, caller: &Caller) -> bool {
    match caller.role {
        Role::Admin => true,
        Role::Tenant | Role::Engine => event.tenant.as_ref().is_none_or(|tenant| caller.sees(tenant)),
        Role::Node => event.tenant.is_none(),
    }
}

/// A caller's events, as they happen. If more happen than are kept before the caller takes them, the numbers jump.
pub struct Events {
    pub(super) engine: Engine,
    pub(super) caller: Caller,
    pub(super) last: u64,
    pub(super) found: VecDeque<Event>,
    pub(super) latest: watch::Receiver<u64>,
}

impl Events {
    /// The next one that the caller may see; `None` when the engine stops. Can be cancelled.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.found.pop_front() {
                return Some(event);
            }
            self.latest.borrow_and_update();
            (self.found, self.last) = self.engine.events_after(self.last, &self.caller);
            if self.found.is_empty() {
                let mut stopping = self.engine.stopping();
                tokio::select! {
                    changed = self.latest.changed() => changed.ok()?,
                    _ = stopping.wait_for(|stopping| *stopping) => return None,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_see_what_is_theirs_and_what_is_everybodys() {
        let mut log = EventLog::new(3, 100);
        let caller = |role, name: &str| Caller { role, name: name.into() };
        for tenant in [Some("ann"), Some("bob"), None, Some("ann")] {
            log.push(
                0,
                Happened {
                    kind: "k",
                    node: None,
                    lease: None,
                    tenant: tenant.map(str::to_owned),
                    text: String::new(),
                },
            );
        }
        let numbers = |role, name| {
            let (events, last) = log.after(100, &caller(role, name));
            assert_eq!(last, 104);
            events.iter().map(|event| event.number).collect::<Vec<_>>()
        };
        // The first one is forgotten.
        assert_eq!(numbers(Role::Admin, "x"), [102, 103, 104]);
        assert_eq!(numbers(Role::Tenant, "ann"), [103, 104]);
        assert_eq!(numbers(Role::Tenant, "bob"), [102, 103]);
        assert_eq!(numbers(Role::Node, "n"), [103]);
        assert!(log.after(104, &caller(Role::Admin, "x")).0.is_empty());
    }
}
