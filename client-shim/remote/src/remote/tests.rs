//! What is sent and received, with a server that says what is written down here.

use super::link::Link;
use super::outgoing::Payload;
use super::script::*;
use rgpu_device::{Host, Result};
use rgpu_protocol::calls::{Call, CopyToDevice, MemInfo, MemoryInfo};
use rgpu_protocol::frame::{HEADER_BYTES, Header, MAX_BULK, encode_answer};
use rgpu_protocol::stats::Stats;
use rgpu_protocol::wire::Wire;
use std::sync::{Arc, mpsc};

struct Nobody;
impl Host for Nobody {
    fn print(&self, _: &[u8]) {}
    fn fetch(&self, _: u64, _: &mut [u8]) -> Result<()> {
        Ok(())
    }
    fn host_func(&self, _: u64) {}
}

/// However much data one thread has to send: a call that another one makes meanwhile goes next.
#[test]
fn an_asked_call_goes_before_the_next_piece_of_bulk_data() {
    const FRAMES: usize = 64;
    let script = Script::default();
    let link = Link::new(Box::new(script.clone()), Arc::new(Nobody), Stats::from_environment()).unwrap();
    // Ten frames, and half of one.
    script.allow(10 * (HEADER_BYTES + CopyToDevice::MIN_BYTES + MAX_BULK) + MAX_BULK / 2);
    let bulk = {
        let link = link.clone();
        std::thread::spawn(move || {
            let data = vec![1; MAX_BULK];
            for _ in 0..FRAMES {
                link.copy_to_device(1, Default::default(), 0, Payload::Bytes(&data)).unwrap();
            }
        })
    };
    script.wait_sent(10);
    script.wait_stuck();
    let (number, numbers) = mpsc::channel();
    let asking = {
        let link = link.clone();
        std::thread::spawn(move || {
            number.send(thread_number()).unwrap();
            link.mem_info(0).unwrap()
        })
    };
    // It waits for its turn, or else for the answer.
    wait_asleep(numbers.recv().unwrap());
    script.allow(usize::MAX);
    let asked = |header: &Header| header.call == MemInfo::NUMBER;
    script.wait_for("the call", |state| state.sent.iter().any(asked));
    let sequence = script.sent().into_iter().find(asked).unwrap().sequence;
    let mut answer = Vec::new();
    let info = MemoryInfo { free: 1, total: 2 };
    encode_answer(&mut answer, MemInfo::NUMBER, sequence, None, None, |out| info.encode(out));
    script.deliver(&answer);
    assert_eq!(asking.join().unwrap(), info);
    bulk.join().unwrap();
    let sent = script.sent();
    assert_eq!(sent.len(), FRAMES + 1);
    // The frame that was on its way when it was asked is the eleventh.
    assert_eq!(sent.iter().position(asked), Some(11));
}
