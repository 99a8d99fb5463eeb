//! What the placement is told of measurements.

use std::collections::BTreeMap;

use rgpu_control::api::LeaseState;
use rgpu_placement::harvest::{Footprint, Need};
use rgpu_placement::{DeviceId, DeviceKind, Observed, Size, WHOLE};

use super::feed::{News, Seen};
use super::learnt::Program;
use super::model::{self, MIB};
use super::nvmes;
use super::plan::Planner;
use super::series::{DEVICE_SAMPLES, Measured, STALE_BEATS};
use crate::store::LeaseRecord;

/// So far ahead forecasts look, in ms: section IV-D of the paper.
const AHEAD_MS: u64 = 1000;

/// What was measured, as it was told last.
#[derive(Default)]
pub(super) struct Observations {
    nodes: BTreeMap<String, Measured>,
    footprints: BTreeMap<Program, Footprint>,
}

impl Observations {
    /// Takes note of what is new.
    pub(super) fn take(&mut self, news: &News) {
        if news.nodes.is_some() {
            *self = Self { nodes: news.measured.clone(), footprints: news.footprints.clone() };
            return;
        }
        let measured = news.measured.iter().map(|(name, measured)| (name.clone(), measured.clone()));
        self.nodes.extend(measured);
        let learnt = news.footprints.iter().map(|(program, footprint)| (program.clone(), footprint.clone()));
        self.footprints.extend(learnt);
    }
}

impl Planner {
    /// The size of a lease that may be resized; nothing where the policy resizes none.
    pub(super) fn size(&self, seen: &Seen, record: &LeaseRecord) -> Option<Size> {
        // A share that is chosen in each round is not resized besides, as long as its lease waits.
        let set_aside = seen.set_aside_milli.filter(|_| self.harvests && record.request.share_milli > 0)?;
        let state = self.state.as_ref()?;
        let (memory_mib, promised_milli) = match record.state {
            LeaseState::Waiting => {
                let wish = model::device_request(state.cluster(), &record.request, 0);
                (wish.memory_mib, wish.milli)
            }
            _ => {
                let grant = record.grants.first()?;
                (record.counted(grant).div_ceil(MIB), grant.share_milli)
            }
        };
        let sm = f64::from(set_aside) * 100.0 / f64::from(WHOLE);
        Some(Size { set_aside: Need { memory_mib: memory_mib as f64, sm }, promised_milli })
    }

    /// Tells the state what was measured, where the policy decides by that.
    pub(super) fn observe(&mut self, now_s: f64) {
        let Some(state) = &mut self.state else { return };
        if !self.harvests {
            state.set_observed(None);
            return;
        }
        let heartbeat_ms = self.settings.heartbeat_ms.max(1);
        let ahead = AHEAD_MS.div_ceil(heartbeat_ms) as usize;
        let mut observed = Observed::new(state.cluster().devices().len(), DEVICE_SAMPLES, ahead);
        let stale_s = (STALE_BEATS * heartbeat_ms) as f64 / 1000.0;
        let mut lenders: Vec<DeviceId> = Vec::new();
        for (name, measured) in &self.observed.nodes {
            let Some(node) = self.nodes.get(name).filter(|_| now_s - measured.at_s <= stale_s) else {
                continue;
            };
            let devices = nvmes::of_kind(state.cluster(), *node, DeviceKind::Gpu);
            let devices: Vec<DeviceId> = devices.collect();
            for (i, device) in devices.into_iter().enumerate() {
                if measured.lends.get(i) == Some(&true) {
                    lenders.push(device);
                }
                for sample in measured.devices.get(i).into_iter().flatten() {
                    // The device is one of the cluster's.
                    let _ = observed.sample(device, sample);
                }
            }
        }
        observed.set_lenders(lenders);
        for known in self.known.values() {
            if let Some(size) = known.size {
                observed.resize(known.job, size);
            }
        }
        for (program, footprint) in &self.observed.footprints {
            self.profiles.of_program(program).for_each(|id| observed.learn(id, footprint.clone()));
        }
        state.set_observed(Some(observed));
    }
}
