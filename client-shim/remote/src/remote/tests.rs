//! What is sent and received, with a server that says what is written down here.

use super::credit::Credit;
use super::link::Link;
use super::outgoing::Payload;
use super::script::*;
use rgpu_device::{Host, Result};
use rgpu_protocol::calls::{Call, CopyToDevice, CreditReturn, FetchAnswer, MemInfo, MemoryInfo};
use rgpu_protocol::frame::{
    CreditRecall, FetchRequest, HEADER_BYTES, Header, MAX_BULK, Notice, encode_answer,
};
use rgpu_protocol::stats::Stats;
use rgpu_protocol::wire::{Wire, to_bytes};
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

/// A notice's frame.
fn notice(which: Notice, body: &[u8]) -> Vec<u8> {
    [&Header::notice(which, body.len(), 0).to_bytes()[..], body].concat()
}

/// Asks while the connection takes nothing but the question. While the answer to `first` waits for room, `second` asks for one, too:
/// both have to be sent when there is room, as calls of this number.
fn asked_twice_without_room(link: &Arc<Link>, script: &Script, first: &[u8], second: &[u8], answers: u16) {
    let asking = {
        let link = link.clone();
        std::thread::spawn(move || link.mem_info(0).unwrap())
    };
    script.wait_stuck();
    script.deliver(first);
    script.allow(HEADER_BYTES + MemInfo::MIN_BYTES);
    script.wait_sent(1);
    script.wait_stuck();
    script.deliver(second);
    script.wait_received();
    script.allow(usize::MAX);
    script.wait_sent(3);
    let sent: Vec<u16> = script.sent().iter().map(|header| header.call).collect();
    assert_eq!(sent, [MemInfo::NUMBER, answers, answers]);
    let mut answer = Vec::new();
    let (info, sequence) = (MemoryInfo { free: 1, total: 2 }, script.sent()[0].sequence);
    encode_answer(&mut answer, MemInfo::NUMBER, sequence, None, None, |out| info.encode(out));
    script.deliver(&answer);
    assert_eq!(asking.join().unwrap(), info);
}

/// The server asks for memory while the answer to such a question waits for room: only who sends that reads meanwhile.
#[test]
fn memory_is_asked_for_while_an_answer_waits_for_room() {
    let script = Script::default();
    let link = Link::new(Box::new(script.clone()), Arc::new(Nobody), Stats::from_environment()).unwrap();
    let request = |id| notice(Notice::FetchRequest, &to_bytes(&FetchRequest { id, addr: 4096, length: 64 }));
    asked_twice_without_room(&link, &script, &request(1), &request(2), FetchAnswer::NUMBER);
}

/// As above, with memory credit that is called back.
#[test]
fn credit_is_called_back_while_some_that_is_returned_waits_for_room() {
    let script = Script::default();
    let link = Link::new(Box::new(script.clone()), Arc::new(Nobody), Stats::from_environment()).unwrap();
    assert!(link.credit.set(Arc::new(Credit::new(vec![1 << 20]))).is_ok());
    let recall = |bytes| notice(Notice::CreditRecall, &to_bytes(&CreditRecall { ordinal: 0, bytes }));
    asked_twice_without_room(&link, &script, &recall(4096), &recall(8192), CreditReturn::NUMBER);
}
