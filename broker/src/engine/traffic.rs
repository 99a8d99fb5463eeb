//! What traffic there is on a node's link that isn't its leases', over some time.
//!
//! A node measures what passes its network interface, and what its servers received and sent for leases, at one moment each; what
//! remains is others'. The two are not counted in the same instant: bytes that have passed the interface, and that a server has
//! not taken yet, look like others' for one heartbeat. So it is not the last heartbeat that a decision is made by, but
//! an average, in which what is longer ago counts less.

/// Measured traffic of others.
///
/// An exponentially weighted average: what was measured `t` ago counts with e^(-t / time constant). The weight is
/// that of time, not of heartbeats: two that come at once, which say the same, count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Others {
    /// When it was last heard of, in ms of the engine's time.
    heard: Option<u64>,
    into: f64,
    out: f64,
}

impl Others {
    /// So many heartbeats are the time constant: a load that begins is seen to 63% after two of them, to 95% after
    /// six; and of a single heartbeat's mistake, 39% at most.
    const HEARTBEATS: u64 = 2;

    /// Takes note of what has come in and gone out since the last time, in Mbit/s. The first time, that is all there is.
    pub(super) fn hear(&mut self, now: u64, heartbeat_ms: u64, into: u64, out: u64) {
        let part = self.heard.map_or(1.0, |then| {
            let constant = (Self::HEARTBEATS * heartbeat_ms).max(1) as f64;
            1.0 - (-(now.saturating_sub(then) as f64) / constant).exp()
        });
        self.heard = Some(now);
        self.into += part * (into as f64 - self.into);
        self.out += part * (out as f64 - self.out);
    }

    /// The direction in which there is more, in Mbit/s.
    pub(super) fn mbps(&self) -> u64 {
        self.into.max(self.out).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hears of traffic every second.
    fn hear(others: &mut Others, now: &mut u64, measured: &[u64]) -> Vec<u64> {
        let beat = |mbps: &u64| {
            *now += 1000;
            others.hear(*now, 1000, *mbps, 0);
            others.mbps()
        };
        measured.iter().map(beat).collect()
    }

    #[test]
    fn a_load_is_seen_at_once_by_who_knows_nothing_yet() {
        let mut others = Others::default();
        assert_eq!(others.mbps(), 0);
        others.hear(5, 1000, 30, 400);
        assert_eq!(others.mbps(), 400);
    }

    #[test]
    fn one_heartbeat_counts_a_part_and_many_count_wholly() {
        let (mut others, mut now) = (Others::default(), 0);
        assert_eq!(hear(&mut others, &mut now, &[0, 1000]), [0, 393]);
        assert_eq!(hear(&mut others, &mut now, &[0, 0, 0, 0, 0, 0]), [239, 145, 88, 53, 32, 20]);
        hear(&mut others, &mut now, &[0; 20]);
        assert_eq!(hear(&mut others, &mut now, &[1000; 6]), [393, 632, 777, 865, 918, 950]);
        hear(&mut others, &mut now, &[1000; 20]);
        assert_eq!(others.mbps(), 1000);
    }

    #[test]
    fn heartbeats_that_come_at_once_count_as_one_and_a_long_silence_as_many() {
        let (mut others, mut now) = (Others::default(), 0);
        hear(&mut others, &mut now, &[0, 1000]);
        let once = others;
        for _ in 0..10 {
            others.hear(now, 1000, 1000, 0);
        }
        assert_eq!(others, once);
        // The engine's time doesn't go back; if it did, nothing would come of it.
        others.hear(now - 500, 1000, 1000, 0);
        assert_eq!(others.mbps(), once.mbps());
        others.hear(now + 60_000, 1000, 70, 50);
        assert_eq!(others.mbps(), 70);
    }

    #[test]
    fn directions_are_averaged_by_themselves() {
        let mut others = Others::default();
        others.hear(0, 1000, 100, 0);
        // In and out in turn is a half each way, not all of it both ways.
        for i in 1..100 {
            others.hear(i * 1000, 1000, 100 * (i % 2), 100 * ((i + 1) % 2));
        }
        assert!((30..70).contains(&others.mbps()), "{others:?}");
    }
}
