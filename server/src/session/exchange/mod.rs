//! Copies straight from one server to another, as a session sees them.
//!
//! A *link* is a connection to a session of the same program with another server, over which copies go in one direction.
//! Its number is the program's choice. The daemon makes the connection, or accepts it; see [`crate::peer`]. Each link has a
//! thread: a [sender](sender) or a [receiver](receiver). The thread that reads the program's calls waits for neither.
//!
//! Streams are not held here: the program sees to it that nothing else uses the memory meanwhile. Where device memory lies
//! in this process, bytes are sent from where they are and received to where they belong, by system calls alone, for which
//! memory that a program has freed too early is an error. Otherwise the device copies, part by part, on the stream that the
//! program gives. It waits for nothing of the network there, so transfers in opposite directions don't wait for each other.

mod receiver;
mod sender;

use super::Activity;
use super::answers::Reply;
use super::calls::{Dispatcher, Payload};
use super::outgoing::Outgoing;
use crate::convert;
use crate::peer::{Channel, Identity, Tell};
use parking_lot::Mutex;
use receiver::Receiver;
use rgpu_device::{Code, Device, Done, Error, Handle, Region, Result};
use rgpu_protocol::calls::*;
use rgpu_protocol::transport::Tcp;
use sender::Sender;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Rows of fewer bytes are not sent or received one by one.
const SHORTEST_ROW: u64 = 4 << 10;
/// How long a key is good.
const KEY_TIME: Duration = Duration::from_secs(60);
/// A session can have so many keys that nobody has used, and so many links.
const MAX_KEYS: usize = 128;
const MAX_LINKS: usize = 256;

/// An error of the way between two servers: the program can copy otherwise.
fn no_link(text: impl Into<String>) -> Error {
    Error::new(Code::PeerAccessUnsupported, text.into())
}

/// What is copied, or where to.
struct CopyEnd {
    /// The stream for what the device has to do.
    stream: Handle,
    region: Region,
    /// Whether the memory lies in this process, at its addresses.
    here: bool,
}

/// What the threads of links use of the session.
struct Surroundings {
    device: Arc<dyn Device>,
    out: Arc<Outgoing>,
    activity: Arc<Activity>,
}

impl Surroundings {
    fn sent(&self, bytes: u64) {
        self.out.sent.fetch_add(bytes, Relaxed);
    }

    fn received(&self, bytes: u64) {
        self.activity.from_peers.fetch_add(bytes, Relaxed);
    }
}

/// One end of a link.
#[derive(Clone)]
enum Link {
    Sends(Arc<Sender>),
    Receives(Arc<Receiver>),
}

/// The links of a session.
pub(super) struct Exchange {
    channel: Channel,
    identity: Identity,
    next_key: AtomicU64,
    state: Mutex<ExchangeState>,
}

#[derive(Default)]
struct ExchangeState {
    /// Whether somebody hears what the daemon says.
    listening: bool,
    /// Keys that nobody has used: their links, and since when.
    keys: HashMap<u64, (u64, Instant)>,
    /// Links that the daemon was asked for.
    asked: HashMap<u64, Done>,
    links: HashMap<u64, Link>,
}

impl Exchange {
    /// Without links. The daemon is at the other end of the channel.
    pub(super) fn new(channel: Channel, identity: Identity) -> Arc<Self> {
        Arc::new(Self { channel, identity, next_key: AtomicU64::new(1), state: Mutex::default() })
    }

    /// Ends all links.
    pub(super) fn end(&self) {
        self.channel.shut();
        let links = std::mem::take(&mut self.state.lock().links);
        links.into_values().for_each(|link| link.close());
    }

    /// Starts the thread that hears the daemon.
    fn listen(self: &Arc<Self>, around: &Arc<Surroundings>, state: &mut ExchangeState) -> Result<()> {
        if state.listening {
            return Ok(());
        }
        let (exchange, around) = (self.clone(), around.clone());
        let body = move || exchange.hear(&around);
        let thread = std::thread::Builder::new().name("peers".into()).stack_size(128 << 10).spawn(body);
        thread.map_err(|e| no_link(format!("Cannot start a thread: {e}")))?;
        state.listening = true;
        Ok(())
    }

    fn hear(&self, around: &Arc<Surroundings>) {
        while let Ok(Some((message, descriptor))) = self.channel.receive() {
            match (Tell::parse(&message), descriptor) {
                (Ok(Tell::Connected { link }), Some(descriptor)) => self.connected(link, descriptor, around),
                (Ok(Tell::Failed { link, text }), _) => {
                    let done = self.state.lock().asked.remove(&link);
                    done.into_iter().for_each(|done| done(Err(no_link(text.clone()))));
                }
                (Ok(Tell::Arrived { number, nonce }), Some(descriptor)) => {
                    self.arrived(number, nonce, descriptor, around);
                }
                _ => tracing::error!("the daemon said something that makes no sense"),
            }
        }
        let asked = std::mem::take(&mut self.state.lock().asked);
        asked.into_values().for_each(|done| done(Err(no_link("The server is being stopped"))));
    }

    /// The daemon has connected to another server.
    fn connected(&self, number: u64, descriptor: OwnedFd, around: &Arc<Surroundings>) {
        let mut state = self.state.lock();
        let Some(done) = state.asked.remove(&number) else { return };
        let made = Tcp::adopt(descriptor, "another server".into())
            .and_then(|tcp| Sender::start(tcp, around.clone()))
            .map_err(|e| no_link(format!("The connection cannot be used: {e}")));
        let result = made.map(|sender| drop(state.links.insert(number, Link::Sends(sender))));
        drop(state);
        done(result);
    }

    /// Another server knows the key with a number, and waits for the answer.
    fn arrived(&self, number: u64, nonce: [u8; 16], descriptor: OwnedFd, around: &Arc<Surroundings>) {
        let Ok(tcp) = Tcp::adopt(descriptor, "another server".into()) else { return };
        let mut state = self.state.lock();
        let found = state.keys.remove(&number).filter(|(_, since)| since.elapsed() < KEY_TIME);
        let receiver = found.and_then(|(link, _)| match state.links.get(&link) {
            Some(Link::Receives(receiver)) => Some(receiver.clone()),
            _ => None,
        });
        drop(state);
        match receiver {
            Some(receiver) => {
                let shown = crate::peer::answer(&self.identity.key(number), &nonce);
                receiver.start(tcp, shown, around.clone());
            }
            None => drop(crate::greeting::say(&tcp, &crate::peer::refusal())),
        }
    }

    /// A key for a link over which copies are to come.
    fn expect(self: &Arc<Self>, link: u64, around: &Arc<Surroundings>) -> Result<PeerKey> {
        let mut state = self.state.lock();
        let ExchangeState { keys, links, .. } = &mut *state;
        keys.retain(|_, (link, since)| since.elapsed() < KEY_TIME && links.contains_key(link));
        if keys.len() >= MAX_KEYS || links.len() >= MAX_LINKS {
            return Err(no_link("The session has too many links to other servers"));
        }
        if links.contains_key(&link) || state.asked.contains_key(&link) {
            return Err(Error::new(Code::InvalidHandle, format!("There is a link {link} already")));
        }
        self.listen(around, &mut state)?;
        let number = self.next_key.fetch_add(1, Relaxed);
        state.keys.insert(number, (link, Instant::now()));
        state.links.insert(link, Link::Receives(Receiver::new()));
        Ok(self.identity.key(number))
    }

    /// Has a connection made over which copies are to go.
    fn connect(self: &Arc<Self>, call: PeerConnect, around: &Arc<Surroundings>, done: Done) {
        let PeerConnect { link, node, address, key } = call;
        let mut state = self.state.lock();
        let taken = state.links.contains_key(&link) || state.asked.contains_key(&link);
        let asked = match taken {
            true => Err(Error::new(Code::InvalidHandle, format!("There is a link {link} already"))),
            false if state.links.len() + state.asked.len() >= MAX_LINKS => {
                Err(no_link("The session has too many links to other servers"))
            }
            false => self.listen(around, &mut state),
        };
        let asked = asked.and_then(|()| {
            let ask = crate::peer::Ask { link, node, address, key };
            let sent = self.channel.send(&ask.to_bytes(), None);
            sent.map_err(|e| no_link(format!("The daemon cannot be asked: {e}")))
        });
        match asked {
            // The daemon's answer is not looked for before the lock is free.
            Ok(()) => drop(state.asked.insert(link, done)),
            Err(error) => {
                drop(state);
                done(Err(error));
            }
        }
    }

    fn link(&self, number: u64) -> Result<Link> {
        let found = self.state.lock().links.get(&number).cloned();
        found.ok_or_else(|| no_link(format!("There is no link {number}")))
    }

    fn close(&self, number: u64) {
        let mut state = self.state.lock();
        let (link, done) = (state.links.remove(&number), state.asked.remove(&number));
        drop(state);
        link.into_iter().for_each(|link| link.close());
        done.into_iter().for_each(|done| done(Err(no_link("The program has given the link up"))));
    }
}

impl Link {
    fn close(&self) {
        match self {
            Self::Sends(sender) => sender.close(),
            Self::Receives(receiver) => receiver.close(),
        }
    }
}

impl Dispatcher {
    /// Where copies go to other servers, if they may.
    pub(super) fn meet_peers(&mut self, exchange: Option<Arc<Exchange>>) {
        self.exchange = exchange;
    }

    fn exchange(&self) -> Result<(Arc<Exchange>, Arc<Surroundings>)> {
        let text = "This session's copies do not go straight to other servers";
        let exchange = self.exchange.clone().ok_or_else(|| no_link(text))?;
        let (device, out) = (self.device.clone(), self.out.clone());
        Ok((exchange, Arc::new(Surroundings { device, out, activity: self.activity.clone() })))
    }

    /// What is known of memory that a call names.
    fn spot(&mut self, stream: Handle, region: &rgpu_protocol::calls::Region) -> Result<CopyEnd> {
        self.on_stream(stream);
        let region = convert::region(region);
        region.check()?;
        let rows = region.is_contiguous() || region.width >= SHORTEST_ROW;
        Ok(CopyEnd { stream, region, here: rows && self.addressable && self.account.holds(&region) })
    }

    pub(super) fn peer_expect(&mut self, call: PeerExpect, _: Payload<'_>) -> Reply<PeerKey> {
        self.exchange().and_then(|(exchange, around)| exchange.expect(call.link, &around)).into()
    }

    pub(super) fn peer_connect(&mut self, call: PeerConnect, _: Payload<'_>) -> Reply<()> {
        match self.exchange() {
            Ok((exchange, around)) => {
                exchange.connect(call, &around, self.later(PeerConnect::NUMBER));
                Reply::Later
            }
            Err(error) => Reply::Now(Err(error)),
        }
    }

    fn end_of(&self, link: u64) -> Result<Link> {
        self.exchange()?.0.link(link)
    }

    // Also what is wrong with the memory is told through the link: the other server counts on that.

    pub(super) fn peer_send(&mut self, call: PeerSend, _: Payload<'_>) -> Reply<()> {
        let place = self.spot(call.stream, &call.src);
        match self.end_of(call.link) {
            Ok(Link::Sends(sender)) => {
                sender.send(call.transfer, place, self.later(PeerSend::NUMBER));
                Reply::Later
            }
            Ok(Link::Receives(_)) => Reply::Now(Err(no_link("The link is for receiving"))),
            Err(error) => Reply::Now(Err(error)),
        }
    }

    pub(super) fn peer_receive(&mut self, call: PeerReceive, _: Payload<'_>) -> Reply<()> {
        let place = self.spot(call.stream, &call.dst);
        match self.end_of(call.link) {
            Ok(Link::Receives(receiver)) => {
                receiver.receive(call.transfer, place, self.later(PeerReceive::NUMBER));
                Reply::Later
            }
            Ok(Link::Sends(_)) => Reply::Now(Err(no_link("The link is for sending"))),
            Err(error) => Reply::Now(Err(error)),
        }
    }

    pub(super) fn peer_close(&mut self, call: PeerClose, _: Payload<'_>) -> Result<()> {
        if let Ok((exchange, _)) = self.exchange() {
            exchange.close(call.link);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
