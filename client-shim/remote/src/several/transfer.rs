//! Copies and fills that concern more than one server.

use std::collections::VecDeque;
use std::sync::mpsc::{channel, sync_channel};

use rgpu_device::{
    Code, Device, Done, Error, FIRST_STREAM, Handle, HostData, HostSource, HostTarget, Region, Result, Target,
};

use super::gates::{Business, Job};
use super::straight::Side;
use super::{Several, Spot};
use crate::remote::cut;

/// So many parts of a copy between servers are on their way at once.
const AHEAD: usize = 8;

/// What is done at a meeting, with the devices at hand.
type Work = Box<dyn FnOnce(&Several) -> Result<()> + Send>;

impl Several {
    /// The streams that a copy or fill has to do with: its own, and, as the legacy stream waits for whatever was begun on the
    /// devices, and they for it, in that case those of the memory's devices.
    fn participants(&self, stream: Handle, memory: &[Spot]) -> Result<Vec<(usize, Handle)>> {
        let mut all = vec![self.stream(stream)?];
        if stream < FIRST_STREAM {
            for spot in memory {
                let other = (spot.server, Handle::from(spot.local));
                if !all.contains(&other) {
                    all.push(other);
                }
            }
        }
        Ok(all)
    }

    /// The job that does some work once everybody has arrived, and tells how it went.
    fn job(
        &self,
        server: usize,
        work: Work,
        tell: impl FnOnce(&Several, Result<()>) + Send + 'static,
    ) -> Job {
        let me = self.me.clone();
        Box::new(move |arrived| {
            let Some(me) = me.upgrade() else { return };
            if me.has_mirrors() {
                // What the stream has done so far came with its arrival.
                me.take_over(server);
            }
            let result = arrived.and_then(|()| work(&me));
            tell(&me, result);
        })
    }

    /// Does some work in a stream's order; a failure is reported by whatever waits next.
    fn do_later(&self, stream: Handle, memory: &[Spot], work: Work) -> Result<()> {
        let streams = self.participants(stream, memory)?;
        let tell = |me: &Several, result: Result<()>| {
            if let Err(error) = result {
                me.fail_later(error);
            }
        };
        let job = self.job(streams[0].0, work, tell);
        self.gates.meet(&streams, None, Business::Job(job));
        Ok(())
    }

    /// Does some work in a stream's order, and waits for it.
    fn do_now(&self, stream: Handle, memory: &[Spot], work: Work) -> Result<()> {
        let streams = self.participants(stream, memory)?;
        let (send, receive) = sync_channel(1);
        let job = self.job(streams[0].0, work, move |_, result| drop(send.send(result)));
        self.gates.meet(&streams, None, Business::Job(job));
        let result = receive.recv().unwrap_or_else(|_| Err(Error::from(Code::Unknown)));
        self.settle(result)
    }

    /// Makes a stream wait for an event of another server.
    pub(super) fn wait_for_event(&self, stream: (usize, Handle), event: Handle, server: usize) {
        let waiting = stream.0;
        let work: Work = Box::new(move |me: &Several| {
            if me.has_mirrors() {
                me.take_over(server);
                // Posted before the stream goes on, so what comes after the event in it sees the host's copy as it is now.
                me.remote(waiting).invalidate_shared()?;
            }
            Ok(())
        });
        let tell = |me: &Several, result: Result<()>| {
            if let Err(error) = result {
                me.fail_later(error);
            }
        };
        let job = self.job(waiting, work, tell);
        let mut others = |done: Done| self.remote(server).synchronize(Target::Event(event), done);
        self.gates.meet(&[stream], Some(&mut others), Business::Brief(job));
    }

    /// Before the host's copy of mirrored memory is read for a server, or looked at by its device, on behalf of a stream
    /// that may be waiting for another server to change it.
    pub(super) fn before_looking(&self, (server, stream): (usize, Handle)) -> Result<()> {
        if self.gates.any_at(server) && self.has_mirrors() {
            self.remote(server).synchronize_blocking(Target::Stream(stream))?;
            (0..self.servers.len()).for_each(|server| self.take_over(server));
            self.remote(server).invalidate_shared()?;
        }
        Ok(())
    }

    /// Where a copy or fill takes place: the servers of its regions, `None` for those in which any server will do.
    pub(super) fn place(&self, region: &Region) -> Option<Spot> {
        self.home(region.addr)
    }

    pub(super) fn fill(&self, stream: Handle, region: Region, value: u32, element: u32) -> Result<()> {
        let (server, local) = self.stream(stream)?;
        region.check_fill(element)?;
        match self.place(&region).filter(|spot| spot.server != server) {
            None => self.remote(server).memset(local, region, value, element),
            Some(spot) => {
                let companion = self.companion(spot)?;
                let work = move |me: &Several| {
                    let remote = me.remote(spot.server);
                    remote.memset(companion, region, value, element)?;
                    remote.synchronize_blocking(Target::Stream(companion))
                };
                self.do_later(stream, &[spot], Box::new(work))
            }
        }
    }

    pub(super) fn send(
        &self,
        stream: Handle,
        dst: Region,
        host_addr: u64,
        data: HostData,
        blocking: bool,
    ) -> Result<()> {
        let (server, local) = self.stream(stream)?;
        data.check(&dst)?;
        let Some(spot) = self.place(&dst).filter(|spot| spot.server != server) else {
            if self.is_shared(host_addr) {
                self.before_looking((server, local))?;
            }
            return match data {
                HostData::Borrowed(src) if blocking => {
                    self.remote(server).copy_to_device_blocking(local, dst, host_addr, src)
                }
                data => self.remote(server).copy_to_device(local, dst, host_addr, data),
            };
        };
        let companion = self.companion(spot)?;
        let data = match data {
            // Mirrored memory is read when the stream gets there: the program keeps it, and a device may still change it.
            HostData::Borrowed(src) if !blocking && !self.is_shared(host_addr) => {
                HostData::Owned(src.gather())
            }
            data => data,
        };
        let work = Box::new(move |me: &Several| {
            let remote = me.remote(spot.server);
            remote.copy_to_device(companion, dst, host_addr, data)?;
            remote.synchronize_blocking(Target::Stream(companion))
        });
        match blocking {
            true => self.do_now(stream, &[spot], work),
            false => self.do_later(stream, &[spot], work),
        }
    }

    /// Copies to the host from another server than the stream's, and calls back.
    pub(super) fn receive_later(
        &self,
        stream: Handle,
        (spot, src): (Spot, Region),
        dst: HostTarget,
        done: Done,
    ) {
        let prepared = dst.region().check_copy(&src).and_then(|()| self.companion(spot));
        let prepared = prepared.and_then(|c| Ok((c, self.participants(stream, &[spot])?)));
        let (companion, streams) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return done(Err(error)),
        };
        let work: Work = Box::new(move |me: &Several| {
            me.remote(spot.server).copy_from_device_blocking(companion, src, dst)
        });
        let job = self.job(streams[0].0, work, move |_, result| done(result));
        self.gates.meet(&streams, None, Business::Job(job));
    }

    /// Copies to the host, and waits.
    pub(super) fn receive(&self, stream: Handle, (spot, src): (Spot, Region), dst: HostTarget) -> Result<()> {
        dst.region().check_copy(&src)?;
        let companion = self.companion(spot)?;
        let work = Box::new(move |me: &Several| {
            me.remote(spot.server).copy_from_device_blocking(companion, src, dst)
        });
        self.do_now(stream, &[spot], work)
    }

    pub(super) fn copy(&self, stream: Handle, dst: Region, src: Region) -> Result<()> {
        let (server, local) = self.stream(stream)?;
        dst.check_copy(&src)?;
        let (to, from) = (self.place(&dst), self.place(&src));
        match (to, from) {
            (Some(to), Some(from)) if to.server != from.server => {
                // So that an error is reported by this very call.
                let streams = (self.companion(to)?, self.companion(from)?);
                let work = move |me: &Several| {
                    let (to, from) = ((to, streams.0, dst), (from, streams.1, src));
                    if me.copy_straight(to, from)? { Ok(()) } else { me.relay(to, from) }
                };
                self.do_later(stream, &[to, from], Box::new(work))
            }
            (Some(spot), _) | (_, Some(spot)) if spot.server != server => {
                let companion = self.companion(spot)?;
                let work = move |me: &Several| {
                    let remote = me.remote(spot.server);
                    remote.copy_on_device(companion, dst, src)?;
                    remote.synchronize_blocking(Target::Stream(companion))
                };
                self.do_later(stream, &[spot], Box::new(work))
            }
            _ => self.remote(server).copy_on_device(local, dst, src),
        }
    }

    /// Copies from one server to another through this process, in parts of which several are on their way.
    fn relay(&self, (to, to_stream, dst): Side, (from, from_stream, src): Side) -> Result<()> {
        let (source, target) = (self.remote(from.server), self.remote(to.server));
        let mut parts = cut(dst, src).into_iter();
        let (send, receive) = channel::<Result<()>>();
        let mut underway: VecDeque<(Region, Vec<u8>)> = VecDeque::new();
        let mut spare: Vec<Vec<u8>> = Vec::new();
        let mut result = Ok(());
        loop {
            while result.is_ok() && underway.len() < AHEAD {
                let Some((to_part, from_part)) = parts.next() else { break };
                let bytes = from_part.bytes().unwrap_or(0) as usize;
                let mut buffer = spare.pop().unwrap_or_default();
                buffer.resize(bytes, 0);
                let place = packed(&from_part, buffer.as_mut_ptr() as u64);
                let send = send.clone();
                let done: Done = Box::new(move |result| drop(send.send(result)));
                underway.push_back((to_part, buffer));
                // SAFETY: the buffer is kept, and not looked at, until there is word of it below.
                let place = unsafe { HostTarget::new(place) };
                source.copy_from_device_into(from_stream, from_part, place, done);
            }
            // Their bytes arrive in the order in which they were asked for; word of them may not, so that with any word the first one's bytes are
            // here. After a failure the others are still waited for.
            let Some((to_part, buffer)) = underway.pop_front() else { break };
            let arrived = receive.recv().unwrap_or_else(|_| Err(Error::from(Code::Unknown)));
            result = result.and(arrived);
            if result.is_ok() {
                // SAFETY: a forwarding device reads the bytes before the call returns.
                let bytes = unsafe { HostSource::new(packed(&to_part, buffer.as_ptr() as u64)) };
                result = target.copy_to_device(to_stream, to_part, 0, HostData::Borrowed(bytes));
            }
            spare.push(buffer);
        }
        result?;
        target.synchronize_blocking(Target::Stream(to_stream))?;
        target.count_between_servers(src.bytes().unwrap_or(0), false);
        Ok(())
    }
}

/// A region of the same shape without gaps.
fn packed(shape: &Region, addr: u64) -> Region {
    Region { addr, row_pitch: shape.width, slice_pitch: shape.width * shape.height, ..*shape }
}
