//! Answers to asked calls, sent by the dispatch or by the device's callbacks.

use super::Activity;
use super::outgoing::Outgoing;
use parking_lot::Mutex;
use rgpu_device::{Device, Result};
use rgpu_protocol::frame::{MAX_BULK, Notice, RUN_HEADER_BYTES, encode_run};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};

/// What an asked call has come to.
pub(super) enum Reply<T> {
    Now(Result<T>),
    /// A callback sends the answer.
    Later,
}

impl<T> From<Result<T>> for Reply<T> {
    fn from(result: Result<T>) -> Self {
        Self::Now(result)
    }
}

/// Sends answers from wherever they come.
#[derive(Clone)]
pub(super) struct Answerer {
    pub(super) device: Arc<dyn Device>,
    pub(super) out: Arc<Outgoing>,
    pub(super) activity: Arc<Activity>,
    /// The thread that collects shared writes, once there is one.
    pub(super) collector: Arc<Mutex<Option<mpsc::Sender<Due>>>>,
}

/// What follows when the device's changes of mirrored memory have been sent.
pub(super) enum Due {
    Answer(Answer),
    /// A stream has reached the host function with this id.
    HostFunction(u64),
}

/// An answer that somebody else than the dispatch sends.
pub(super) struct Answer {
    /// The call's number in the table.
    pub(super) call: u16,
    /// The call's own number.
    pub(super) sequence: u64,
    /// The ordinal that it was about.
    pub(super) ordinal: u32,
    /// How it went.
    pub(super) result: Result<()>,
    /// What the answer carries where the call has not failed.
    pub(super) value: &'static [u8],
}

impl Answerer {
    /// Sends an answer.
    pub(super) fn send(&self, answer: Answer) {
        let Answer { call, sequence, ordinal, result, value } = answer;
        self.activity.unanswered.fetch_sub(1, Relaxed);
        let encode = |out: &mut Vec<u8>| out.extend_from_slice(value);
        self.out.answer(call, sequence, ordinal, result.map(|()| encode));
    }

    /// Sends what the device has changed in mirrored memory.
    pub(super) fn collect(&self) {
        // What changed may be many runs of a few bytes, which share a frame.
        let mut body = Vec::new();
        self.device.collect_shared_writes(&mut |addr, bytes| {
            for (i, part) in bytes.chunks(MAX_BULK).enumerate() {
                if !body.is_empty() && body.len() + RUN_HEADER_BYTES + part.len() > MAX_BULK {
                    self.out.notice(Notice::SharedWrites, 0, &[&body]);
                    body.clear();
                }
                encode_run(&mut body, addr + (i * MAX_BULK) as u64, part);
            }
        });
        if !body.is_empty() {
            self.out.notice(Notice::SharedWrites, 0, &[&body]);
        }
    }

    /// Answers a call that makes the device's writes visible. May be called by the device, so nothing
    /// is asked of the device here.
    pub(super) fn finish(&self, answer: Answer) {
        let collector = self.collector.lock().clone();
        match collector {
            Some(collector) => {
                // A copy's bytes need not wait for what is collected.
                self.out.flush();
                drop(collector.send(Due::Answer(answer)));
            }
            None => self.send(answer),
        }
    }
}
