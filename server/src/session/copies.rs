//! The dispatch of copies, and of what holds streams.

use super::answers::{Answer, Reply};
use super::bulk::{APART_FROM, BulkSender, Job};
use super::calls::{Dispatcher, Payload};
use super::host::{HOLD, OWN};
use super::outgoing::CopySender;
use crate::convert;
use rgpu_device::{Code, Handle, HostData, Region, Result, Target};
use rgpu_protocol::calls::{Call, CopyFromDevice, CopyOnDevice, CopyToDevice, Hold, Release};

/// Shorter payloads are not worth making room for.
const IN_PLACE_FROM: usize = 64 << 10;

/// A copy whose bytes are received in place.
pub(super) struct InPlaceCopy {
    pub dst: rgpu_device::Region,
    host_addr: u64,
    id: u64,
}

impl Dispatcher {
    /// Where the payload of a `copy_to_device` with these arguments may be received, if the device lets it be written in
    /// place: to be called instead of the dispatch, when the call's turn has come.
    pub(super) fn place(&mut self, arguments: &[u8], length: usize) -> Option<InPlaceCopy> {
        if length < IN_PLACE_FROM {
            return None;
        }
        let (call, _) = CopyToDevice::from_body(arguments).ok()?;
        let dst = convert::region(&call.dst);
        if dst.bytes() != Some(length as u64) || !dst.is_contiguous() {
            return None;
        }
        let id = self.own_hold();
        let there = self.device.write_in_place(call.stream, dst, id);
        there.then_some(InPlaceCopy { dst, host_addr: call.host_addr, id })
    }

    /// The payload has arrived there.
    pub(super) fn placed(&mut self, placed: &InPlaceCopy) {
        self.device.written_in_place(placed.dst, placed.host_addr, placed.id);
    }

    pub(super) fn copy_to_device(&mut self, call: CopyToDevice, payload: Payload<'_>) -> Result<()> {
        self.on_stream(call.stream);
        let dst = convert::region(&call.dst);
        let length = payload.bytes().len() as u64;
        if dst.bytes() != Some(length) {
            self.malformed("the payload is not as long as the destination says");
            return Ok(());
        }
        let data = HostData::Owned(payload.take());
        let r = self.device.copy_to_device(call.stream, dst, call.host_addr, data);
        self.took(call.stream, length, r)
    }

    pub(super) fn copy_from_device(&mut self, call: CopyFromDevice, _: Payload<'_>) -> Reply<()> {
        self.on_stream(call.stream);
        let src = convert::region(&call.src);
        if let Some(bulk) = self.sender_for(&src) {
            let done = self.later(CopyFromDevice::NUMBER);
            self.send_apart(bulk, call.stream, src, done);
            return Reply::Later;
        }
        let (answers, sequence, ordinal) = (self.answers.clone(), self.sequence, self.ordinal);
        let done = Box::new(move |result| {
            let call = CopyFromDevice::NUMBER;
            answers.finish(Answer { call, sequence, ordinal, result, value: &[] });
        });
        let sink = CopySender::new(self.out.clone(), self.sequence, done);
        self.device.copy_from_device(call.stream, src, call.host_addr, Box::new(sink));
        Reply::Later
    }

    /// The thread that is to send a copy, if it is long and its memory can be read here. Where there is mirrored memory, the
    /// device must see what it sends.
    fn sender_for(&mut self, src: &Region) -> Option<BulkSender> {
        let apart = self.addressable
            && src.bytes().is_some_and(|n| n >= APART_FROM)
            && !self.account.has_mirrored()
            && self.account.holds(src);
        if apart && self.bulk.is_none() {
            self.bulk = BulkSender::start(self.out.clone()).ok();
        }
        if apart { self.bulk.clone() } else { None }
    }

    /// Holds the stream when it has got here, and sends the copy meanwhile.
    fn send_apart(&mut self, bulk: BulkSender, stream: Handle, from: Region, done: rgpu_device::Done) {
        let (id, sequence, device) = (self.own_hold(), self.sequence, self.device.clone());
        let ordinal = self.account.ordinal_of(from.addr);
        let reached = move |result: Result<()>| {
            if result.is_err() {
                return done(result);
            }
            // Who hears of the copy shall find it over.
            let then = Box::new(move |result: Result<()>| {
                let over = device.host_func_done(id);
                done(result.and(over));
            });
            // SAFETY: it lies in one allocation, whose release waits for the work that was put on streams before; a reset
            // closes the ordinal first.
            unsafe { bulk.send(Job { sequence, ordinal, from, then }) };
        };
        self.when_reached(stream, id, Box::new(reached));
    }

    /// An id by which the session itself holds a stream.
    fn own_hold(&mut self) -> u64 {
        self.own_holds += 1;
        OWN | self.own_holds
    }

    /// Calls `done` when the stream has got here, which then waits until the host function `id` is done; or with an error
    /// when it never will. False where the id is in use.
    fn when_reached(&mut self, stream: Handle, id: u64, done: rgpu_device::Done) -> bool {
        if !self.host.expect_hold(id, done) {
            return false;
        }
        let host = self.host.clone();
        let give_up = move |result: Result<()>| {
            if let Some(done) = host.take_hold(id) {
                done(result);
            }
        };
        match self.device.host_func(stream, id) {
            // A stream that fails never gets there.
            Ok(()) => self.device.synchronize(
                Target::Stream(stream),
                Box::new(move |result| give_up(result.and(Err(Code::Unknown.into())))),
            ),
            Err(e) => give_up(Err(e)),
        }
        true
    }

    pub(super) fn copy_on_device(&mut self, call: CopyOnDevice, _: Payload<'_>) -> Result<()> {
        self.on_stream(call.stream);
        let (dst, src) = (convert::region(&call.dst), convert::region(&call.src));
        let r = self.device.copy_on_device(call.stream, dst, src);
        self.took(call.stream, 0, r)
    }

    pub(super) fn hold(&mut self, call: Hold, _: Payload<'_>) -> Reply<bool> {
        self.on_stream(call.stream);
        let id = HOLD | (call.id & ((HOLD >> 1) - 1));
        // Other streams may be what this one waits for, so all must be idle.
        let idle = || self.device.query(Target::Device(self.ordinal));
        if call.now && idle() != Ok(true) {
            return Reply::Now(Ok(false));
        }
        let done = self.later_with(Hold::NUMBER, &[1]);
        if !self.when_reached(call.stream, id, done) {
            self.malformed("the hold's id is in use");
            return Reply::Now(Ok(false));
        }
        Reply::Later
    }

    pub(super) fn release(&mut self, call: Release, _: Payload<'_>) -> Result<()> {
        self.pressure.answered();
        self.device.host_func_done(HOLD | (call.id & ((HOLD >> 1) - 1)))
    }
}
