//! By when programs are to have ended: what part of a device keeps a deadline, and what became of it.
//!
//! A deadline is counted from when the request was taken, and stays where it is while that waits. A request that leaves its share to
//! the broker (`share_milli` 0) gets the least part of a device that keeps its deadline, or a whole one
//! ([`rgpu_placement::part`]). What is left until the deadline shrinks while it waits, so its part is chosen anew in each
//! round; once it is granted, the part is what the lease says, as if it had been asked for.

use std::borrow::Cow;

use rgpu_control::LeaseId;
use rgpu_control::api::{ErrorCode, LeaseRequest, LeaseState, Problem};
use rgpu_control::units;
use rgpu_placement::learning::Uncertain;
use rgpu_placement::part::{Need, Part};
use rgpu_placement::{Cluster, Conditions, DeviceKind, NodeId, ProfileId, WHOLE};

use super::core::Core;
use super::live::{Entry, NodeEntry};
use super::model::{self, MIB, ProfileTable};
use super::views::remote_share;
use super::{nvmes, problem};
use crate::store::LeaseRecord;

/// The longest deadline, in seconds: ten years.
const LONGEST_S: f64 = 10.0 * 365.0 * 86_400.0;

/// Refuses deadlines and estimates that are nonsense, or that contradict each other.
pub(super) fn check(request: &LeaseRequest) -> Result<(), Problem> {
    let bad = |text: String| Err(problem(ErrorCode::BadRequest, text));
    if let Some(deadline) = request.deadline_s
        && !(deadline > 0.0 && deadline <= LONGEST_S)
    {
        return bad(match deadline <= 0.0 {
            true => format!(
                "deadline_s is {deadline}: that is over already. It counts in seconds from when the request is taken"
            ),
            false => format!("deadline_s is {deadline}: a deadline is within ten years, in seconds from now"),
        });
    }
    if let Some(estimate) = request.estimate_s
        && !(estimate > 0.0 && estimate <= LONGEST_S)
    {
        return bad(format!("estimate_s is {estimate}: it is a time greater than 0, in seconds"));
    }
    if let (Some(estimate), Some(deadline)) = (request.estimate_s, request.deadline_s)
        && estimate > deadline
    {
        return bad(format!(
            "by its estimate the program takes {estimate} s on whole devices, and it is to have ended in {deadline} s: no \
             device keeps that deadline"
        ));
    }
    if request.share_milli == 0 && request.deadline_s.is_none() {
        return bad(
            "share_milli is 0: the broker chooses the share by a deadline, and none is given (deadline_s, or `rgpu run \
             --deadline`)"
                .into(),
        );
    }
    Ok(())
}

/// The request with the share that was chosen for it, where that was left to the broker.
pub(super) fn decided(request: &LeaseRequest, milli: u16) -> Cow<'_, LeaseRequest> {
    match request.share_milli {
        0 => Cow::Owned(LeaseRequest { share_milli: milli, ..request.clone() }),
        _ => Cow::Borrowed(request),
    }
}

/// As much as it may well be, if it is more than a single measurement: one deviation more than the mean.
fn cautious(quantity: Uncertain) -> f64 {
    quantity.mean + quantity.deviation
}

impl ProfileTable {
    /// By which factor the profile's times are longer for a request: its estimate, where it has one, is its local time.
    pub(super) fn scale(&self, profile: ProfileId, request: &LeaseRequest) -> f64 {
        match request.estimate_s {
            Some(estimate) => estimate / self.profiles.get(profile).local_s,
            None => request.scale.unwrap_or(1.0),
        }
    }

    /// What is known of a tenant's program, where that is enough to say how long it takes with such a part of its devices in other
    /// nodes, over a quiet network.
    pub(super) fn need(&self, tenant: &str, request: &LeaseRequest, remote_share: f64) -> Option<Need> {
        let profile = self.find(tenant, request)?;
        if request.estimate_s.is_none() && profile.0 == 0 {
            return None;
        }
        let conditions = Conditions { remote_share, ..Conditions::default() };
        let seconds = self.profiles.get(profile).completion_s(&conditions) * self.scale(profile, request);
        let program = request.program.as_ref().map(|program| (tenant.to_owned(), program.clone()));
        let taught = program.and_then(|program| self.taught(&program));
        // Of whom nothing is known may use all of a device's time.
        let device_share = taught.and_then(|known| known.share).map_or(1.0, cautious);
        let memory_mib = match request.memory {
            0 => taught.and_then(|known| known.memory_mib).map_or(0, |memory| cautious(memory).ceil() as u64),
            memory => memory.div_ceil(MIB),
        };
        Some(Need { seconds, device_share, memory_mib })
    }

    /// By which factor a request's program takes longer with its share of devices than with whole ones.
    pub(super) fn stretch(&self, tenant: &str, request: &LeaseRequest) -> f64 {
        let need = self.need(tenant, request, 0.0);
        need.map_or(1.0, |need| need.seconds_on(request.share_milli) / need.seconds)
    }

    /// The part of a device that keeps a request's deadline, which is `left_s` seconds away, as far as anything is known of its
    /// program; a whole device otherwise. Where its node has no devices, they will be others'.
    pub(super) fn part(
        &self,
        cluster: &Cluster,
        tenant: &str,
        request: &LeaseRequest,
        home: NodeId,
        left_s: f64,
    ) -> u16 {
        let own = nvmes::of_kind(cluster, home, DeviceKind::Gpu).next().is_some();
        let remote_share = if own { 0.0 } else { 1.0 };
        let part = |need: Need| need.part(model::smallest_mib(cluster, request), left_s);
        self.need(tenant, request, remote_share).map(part).map_or(WHOLE, |part: Part| part.milli)
    }
}

/// When a lease's program is to have ended, in ms since 1970.
pub(super) fn due_ms(record: &LeaseRecord) -> Option<u64> {
    let deadline = record.request.deadline_s?;
    Some(record.submitted_ms.saturating_add((deadline * 1000.0) as u64))
}

/// How it stands with a deadline.
pub(super) struct Outlook {
    /// When the program is to have ended, in ms since 1970.
    pub due_ms: u64,
    /// Whether that is expected, or was so, where anything is known.
    pub kept: Option<bool>,
    /// As people read it.
    pub text: String,
}

impl Core {
    /// How it stands with a lease's deadline, if it has one.
    pub(super) fn outlook(&self, entry: &Entry) -> Option<Outlook> {
        let record = &entry.record;
        let due_ms = due_ms(record)?;
        let now = self.unix_ms();
        let deadline = match now > due_ms {
            false => format!("its deadline is in {}", units::seconds((due_ms - now) / 1000)),
            true => format!("its deadline was {} ago", units::seconds((now - due_ms) / 1000)),
        };
        let outlook =
            |kept, text: String| Some(Outlook { due_ms, kept, text: format!("{deadline}: {text}") });
        if matches!(record.state, LeaseState::Ending | LeaseState::Ended) {
            return match entry.live.ended_in_time {
                Some(true) => outlook(Some(true), "it was kept".into()),
                Some(false) => outlook(Some(false), "it was missed".into()),
                None => outlook(None, "the program did not end well".into()),
            };
        }
        if now > due_ms {
            return outlook(Some(false), "it is missed".into());
        }
        let (from, remote_share, milli) = match record.granted_ms {
            Some(granted) => {
                (granted, remote_share(record), record.grants.first().map_or(WHOLE, |g| g.share_milli))
            }
            None => {
                let has = |node: &NodeEntry| node.available() && !node.record.registration.devices.is_empty();
                let own = self.nodes.get(&record.home).is_some_and(has);
                let share = record.request.share_milli;
                (now, if own { 0.0 } else { 1.0 }, if share == 0 { WHOLE } else { share })
            }
        };
        let Some(need) = self.profiles.need(&record.tenant, &record.request, remote_share) else {
            return outlook(None, "nothing is known of how long its program takes".into());
        };
        let seconds = need.seconds_on(milli);
        let end_ms = from.saturating_add((seconds * 1000.0) as u64).max(now);
        let kept = end_ms <= due_ms;
        let whether = if kept { "expected to be kept" } else { "not expected to be kept" };
        let granted = record.granted_ms.is_some();
        let on = if milli == WHOLE { "a whole device".into() } else { format!("{milli}/1000 of a device") };
        let so = if granted { "takes" } else { "would take" };
        outlook(Some(kept), format!("{whether}, since its program {so} about {seconds:.0} s on {on}"))
    }

    /// Counts the deadlines that have passed since this was last done.
    pub(super) fn miss_deadlines(&mut self) {
        let now = self.unix_ms();
        while let Some(&(due, id)) = self.due.first()
            && due < now
        {
            self.due.pop_first();
            let Some(entry) = self.leases.get_mut(&id) else { continue };
            entry.live.ended_in_time = Some(false);
            let record = entry.record.clone();
            self.counters.deadlines_missed += 1;
            let state = if record.state == LeaseState::Waiting { "waits" } else { "runs" };
            let text = format!("{} of {} still {state} at its deadline", record.request.name, record.tenant);
            self.note("deadline_missed", None, Some(&record), text);
        }
    }

    /// A lease's program has ended well.
    pub(super) fn meet_deadline(&mut self, id: LeaseId) {
        let now = self.unix_ms();
        let Some(entry) = self.leases.get_mut(&id) else { return };
        if entry.live.ended_in_time.is_none() && due_ms(&entry.record).is_some_and(|due| now <= due) {
            entry.live.ended_in_time = Some(true);
            self.count(|counters| counters.deadlines_kept += 1);
        }
    }

    /// Keeps a lease's deadline in mind as long as it can be missed.
    pub(super) fn mind_deadline(&mut self, record: &LeaseRecord) {
        let Some(due) = due_ms(record) else { return };
        let open = matches!(record.state, LeaseState::Waiting | LeaseState::Active);
        let missed = self.leases.get(&record.id).is_some_and(|entry| entry.live.ended_in_time.is_some());
        match open && !missed {
            true => self.due.insert((due, record.id)),
            false => self.due.remove(&(due, record.id)),
        };
    }
}
