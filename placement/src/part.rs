//! A whole device, or a part of it, by a deadline: algorithm 3 and the first half of algorithm 4 (lines 2 and 15) of Aaron Call's thesis
//! *Leveraging Disaggregated Accelerators and Non-Volatile Memories to Improve the Efficiency of Modern Datacenters*, for parts
//! that are enforced.
//!
//! The thesis divides a GPU into as many parts as the job's request allows, and gives a job a part if its deadline is kept there. Its
//! parts share the GPU's time as they like, so that it measures how jobs on them slow each other down. Here a server holds each
//! program to its part of the device's time. What a part does to a program's time then does not depend on its neighbours:
//!
//! ```text
//! seconds(part) = seconds · (1 + u · (1 / part − 1))
//! ```
//!
//! with u the share of a whole device's time that the program uses: the opposite of
//! [`Run::seconds_on_whole_devices`](crate::learning::Run::seconds_on_whole_devices).

use crate::cluster::WHOLE;

/// A device is divided into so many parts at most. Instances of an NVIDIA GPU are sevenths; of a smaller part the tenants would
/// notice mostly what starting a program takes.
pub const MOST_PARTS: u16 = 8;

/// What is known of a job that wants one device, or several alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Need {
    /// Its time on whole devices, in seconds.
    pub seconds: f64,
    /// u: the share of a whole device's time that it uses, from 0 to 1. 1 where nothing is known.
    pub device_share: f64,
    /// The device memory that it wants, in MiB; 0 where nothing is known.
    pub memory_mib: u64,
}

/// The part of a device that a job is to get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Thousandths of the device: [`WHOLE`], or one of equal parts.
    pub milli: u16,
    /// How long the job takes with it, in seconds.
    pub seconds: f64,
    /// Whether that keeps its deadline.
    pub keeps: bool,
}

/// By which factor a program takes longer with a part (0 to 1) of each device's time, of which it uses `device_share` (u, 0 to 1) where
/// it has whole ones: `1 + u · (1 / part − 1)`.
pub fn stretch(device_share: f64, part: f64) -> f64 {
    1.0 + device_share.clamp(0.0, 1.0) * (1.0 / part.clamp(0.001, 1.0) - 1.0)
}

impl Need {
    /// The job's time with so many thousandths of each device's time, in seconds.
    pub fn seconds_on(&self, milli: u16) -> f64 {
        self.seconds * stretch(self.device_share, f64::from(milli) / f64::from(WHOLE))
    }

    /// The least of equal parts of a device with `device_mib` MiB with which the job ends within `left_s` seconds. Where no part
    /// does, a whole device, and whether that does.
    pub fn part(&self, device_mib: u64, left_s: f64) -> Part {
        let with = |milli| {
            let seconds = self.seconds_on(milli);
            Part { milli, seconds, keeps: seconds <= left_s }
        };
        // From the smallest part on. The slowest candidate that keeps the deadline leaves the most for others.
        let most = equal_parts(WHOLE / MOST_PARTS, self.memory_mib, device_mib).min(usize::from(MOST_PARTS));
        let parts = (2..=most as u16).rev().map(|parts| with(WHOLE / parts));
        parts.into_iter().find(|part| part.keeps).unwrap_or_else(|| with(WHOLE))
    }
}

/// Algorithm 3: into how many equal parts a GPU is divided for such a request, by bandwidth (thousandths) and by memory.
pub(crate) fn equal_parts(request_milli: u16, request_mib: u64, gpu_mib: u64) -> usize {
    let by_bandwidth = usize::from(WHOLE / request_milli.max(1));
    match gpu_mib.checked_div(request_mib) {
        Some(by_memory) => by_bandwidth.min(by_memory as usize),
        None => by_bandwidth,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learning::Run;

    #[test]
    fn parts_by_hand() {
        // The thesis's example: 4 of 16 GB/s.
        assert_eq!(equal_parts(250, 2048, 16_384), 4);
        assert_eq!(equal_parts(250, 8192, 16_384), 2);
        assert_eq!(equal_parts(100, 0, 16_384), 10);
        assert_eq!(equal_parts(700, 1, 16_384), 1);
    }

    #[test]
    fn a_tight_deadline_gets_a_whole_device_and_a_lax_one_a_part() {
        let need = Need { seconds: 100.0, device_share: 1.0, memory_mib: 0 };
        let part = |left_s| {
            let part = need.part(16_384, left_s);
            (part.milli, part.keeps)
        };
        assert_eq!(part(99.0), (1000, false));
        assert_eq!(part(100.0), (1000, true));
        assert_eq!(part(199.0), (1000, true));
        assert_eq!(part(200.0), (500, true));
        assert_eq!(part(301.0), (333, true));
        assert_eq!(part(1e9), (125, true));
        assert!((need.part(16_384, 301.0).seconds - 100.0 / 0.333).abs() < 1e-9);
    }

    #[test]
    fn who_uses_little_of_a_device_keeps_its_deadline_with_little_and_who_has_much_in_memory_does_not() {
        let idle = Need { seconds: 100.0, device_share: 0.1, memory_mib: 0 };
        // 100 s · (1 + 0.1 · 3) on a quarter.
        assert!((idle.seconds_on(250) - 130.0).abs() < 1e-9);
        assert_eq!(idle.part(16_384, 131.0).milli, 250);
        let full = Need { memory_mib: 7000, ..idle };
        assert_eq!(full.part(16_384, 1e9).milli, 500);
        assert_eq!(Need { memory_mib: 9000, ..idle }.part(16_384, 1e9).milli, 1000);
    }

    #[test]
    fn it_is_the_opposite_of_what_is_learnt_from_a_run_on_a_part() {
        let need = Need { seconds: 80.0, device_share: 0.4, memory_mib: 0 };
        let seen = need.seconds_on(200);
        let back = Run::seconds_on_whole_devices(seen, 80.0 * 0.4, 0.2);
        assert!((back - 80.0).abs() < 1e-9, "{back}");
    }
}
