//! Messages to and from any of the ranks at the same time, so that no order of them can block anybody.

use std::collections::VecDeque;
use std::io::Read as _;
use std::os::fd::{AsFd as _, AsRawFd as _};

use crate::group::{Group, Peer};
use crate::socket::is_not_yet;
use crate::wait::Patience;
use crate::wire::{HEADER_BYTES, Header};
use crate::{Failure, Result};

/// Messages up to this length are sent in one piece with their header.
const TOGETHER: usize = 16 << 10;

/// What a message belongs to; see [`Header`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tag {
    pub(crate) operation: u8,
    pub(crate) element: u8,
    pub(crate) operator: u8,
    pub(crate) step: u8,
    pub(crate) root: u32,
    pub(crate) total: u64,
}

impl Tag {
    fn header(self, sequence: u64, bytes: usize) -> Header {
        let Self { operation, element, operator, step, root, total } = self;
        Header { operation, element, operator, step, root, total, sequence, bytes: bytes as u64 }
    }
}

/// A message to a rank.
pub(crate) type Send<'m> = (u32, Tag, &'m [u8]);
/// A message that is expected of a rank.
pub(crate) type Receive<'m> = (u32, Tag, &'m mut [u8]);

/// What goes to a rank, in pieces, and how much of the first is on its way.
struct Outgoing<'m> {
    pieces: VecDeque<Piece<'m>>,
    done: usize,
}

enum Piece<'m> {
    Own(Vec<u8>),
    Borrowed(&'m [u8]),
}

impl Piece<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Borrowed(bytes) => bytes,
        }
    }
}

/// What comes of a rank, and how much of the first message is there.
struct Incoming<'m> {
    messages: VecDeque<(Header, &'m mut [u8])>,
    header: [u8; HEADER_BYTES],
    done: usize,
}

struct Lane<'m> {
    rank: u32,
    out: Outgoing<'m>,
    into: Incoming<'m>,
}

impl Group {
    /// Sends and receives all of it. Messages between the same two ranks stay in order.
    pub(crate) fn exchange(&mut self, sends: Vec<Send<'_>>, receives: Vec<Receive<'_>>) -> Result<()> {
        let (sends, receives) = self.to_itself(sends, receives)?;
        let mut lanes: Vec<Lane<'_>> = Vec::new();
        for (rank, tag, bytes) in sends {
            let header = {
                let peer = self.peer(rank)?;
                peer.sent += 1;
                tag.header(peer.sent, bytes.len())
            };
            let pieces = &mut lane(&mut lanes, rank).out.pieces;
            let mut first = header.to_bytes().to_vec();
            if bytes.len() <= TOGETHER {
                first.extend_from_slice(bytes);
                pieces.push_back(Piece::Own(first));
            } else {
                pieces.extend([Piece::Own(first), Piece::Borrowed(bytes)]);
            }
        }
        for (rank, tag, place) in receives {
            let peer = self.peer(rank)?;
            peer.received += 1;
            let header = tag.header(peer.received, place.len());
            lane(&mut lanes, rank).into.messages.push_back((header, place));
        }
        self.run(&mut lanes)
    }

    /// What a rank sends to itself is copied. Yields the rest.
    fn to_itself<'s, 'r>(
        &self,
        sends: Vec<Send<'s>>,
        receives: Vec<Receive<'r>>,
    ) -> Result<(Vec<Send<'s>>, Vec<Receive<'r>>)> {
        let (own, sends): (Vec<_>, Vec<_>) = sends.into_iter().partition(|send| send.0 == self.rank);
        let (places, receives): (Vec<_>, Vec<_>) =
            receives.into_iter().partition(|place| place.0 == self.rank);
        let same = own.len() == places.len() && own.iter().zip(&places).all(|(s, r)| s.2.len() == r.2.len());
        if !same {
            return Err(Failure::Disagreement(
                "What this rank sends to itself is not what it receives of itself in the same group of calls"
                    .into(),
            ));
        }
        own.into_iter().zip(places).for_each(|(send, place)| place.2.copy_from_slice(send.2));
        Ok((sends, receives))
    }

    fn peer(&mut self, rank: u32) -> Result<&mut Peer> {
        let peer = self.peers.get_mut(rank as usize).and_then(Option::as_mut);
        peer.ok_or_else(|| Failure::Invalid(format!("There is no rank {rank}")))
    }

    fn run(&mut self, lanes: &mut Vec<Lane<'_>>) -> Result<()> {
        let mut fds = Vec::new();
        loop {
            for lane in lanes.iter_mut() {
                let socket = &self.peers[lane.rank as usize].as_ref().expect("it was found above").socket;
                let moved = lane.out.send(socket).and_then(|()| lane.into.receive(socket, lane.rank));
                moved.map_err(|failure| match failure {
                    Failure::Lost(why) => Failure::Lost(format!("Rank {}: {why}", lane.rank)),
                    other => other,
                })?;
            }
            lanes.retain(|lane| !lane.out.pieces.is_empty() || !lane.into.messages.is_empty());
            if lanes.is_empty() {
                return Ok(());
            }
            fds.clear();
            fds.extend(lanes.iter().map(|lane| {
                let socket = &self.peers[lane.rank as usize].as_ref().expect("it was found above").socket;
                let mut events = 0;
                if !lane.out.pieces.is_empty() {
                    events |= libc::POLLOUT;
                }
                if !lane.into.messages.is_empty() {
                    events |= libc::POLLIN;
                }
                libc::pollfd { fd: socket.as_fd().as_raw_fd(), events, revents: 0 }
            }));
            Patience { stop: &self.stop, until: None }.wait(&mut fds)?;
        }
    }
}

fn lane<'l, 'm>(lanes: &'l mut Vec<Lane<'m>>, rank: u32) -> &'l mut Lane<'m> {
    let at = lanes.iter().position(|lane| lane.rank == rank).unwrap_or_else(|| {
        let out = Outgoing { pieces: VecDeque::new(), done: 0 };
        let into = Incoming { messages: VecDeque::new(), header: [0; HEADER_BYTES], done: 0 };
        lanes.push(Lane { rank, out, into });
        lanes.len() - 1
    });
    &mut lanes[at]
}

impl Outgoing<'_> {
    /// Sends as much as goes.
    fn send(&mut self, socket: &crate::socket::Socket) -> Result<()> {
        while let Some(piece) = self.pieces.front() {
            match socket.write(&piece.bytes()[self.done..]) {
                Ok(n) => self.done += n,
                Err(e) if is_not_yet(&e) => return Ok(()),
                Err(e) => return Err(Failure::Lost(format!("The connection failed: {e}"))),
            }
            if self.done == piece.bytes().len() {
                self.pieces.pop_front();
                self.done = 0;
            }
        }
        Ok(())
    }
}

impl Incoming<'_> {
    /// Receives as much as is there.
    fn receive(&mut self, socket: &crate::socket::Socket, rank: u32) -> Result<()> {
        while let Some((expected, place)) = self.messages.front_mut() {
            let rest = match self.done {
                done if done < HEADER_BYTES => &mut self.header[done..],
                done => &mut place[done - HEADER_BYTES..],
            };
            // A message without bytes is over with its header.
            if !rest.is_empty() {
                match socket.reader().read(rest) {
                    Ok(0) => return Err(Failure::Lost("The connection was closed".into())),
                    Ok(n) => self.done += n,
                    Err(e) if is_not_yet(&e) => return Ok(()),
                    Err(e) => return Err(Failure::Lost(format!("The connection failed: {e}"))),
                }
            }
            if self.done == HEADER_BYTES {
                agree(Header::parse(&self.header), *expected, rank)?;
            }
            if self.done == HEADER_BYTES + place.len() {
                self.messages.pop_front();
                self.done = 0;
            }
        }
        Ok(())
    }
}

/// Whether a rank does what this one does.
fn agree(found: Option<Header>, expected: Header, rank: u32) -> Result<()> {
    let Some(found) = found else {
        return Err(Failure::Disagreement(format!("Rank {rank} sends what is no message")));
    };
    if found == expected {
        return Ok(());
    }
    Err(Failure::Disagreement(format!(
        "Rank {rank} is in {}, this rank in {}",
        crate::work::described(&found),
        crate::work::described(&expected)
    )))
}
