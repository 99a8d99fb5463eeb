//! The door: clients that have connected and have not yet said who they are.
//!
//! Whoever connects costs a descriptor and an entry here, and nothing else until the whole of its first message has arrived; then
//! a thread [hears](super::admission) it. So those that are silent, or stop in the middle of a word, keep nobody waiting.
//! They are let go after [`PATIENCE`], or earlier where there is no room for newcomers: the oldest of the address that has most of
//! the room, else the oldest.
//!
//! A thread that hears a client waits for it once more where the connection is encrypted. Where all threads are taken, the
//! one that has been heard the longest is given up after [`GRACE`], and the newest of those that wait is heard next: who waits
//! long in a crowd is most likely part of it.
//!
//! Clients on this machine have a room of their own, which nobody fills who comes over the network.

use rgpu_protocol::hello::{MAGIC, MAX_HELLO, PREFIX_BYTES, Prefix};
use rgpu_protocol::transport::tls;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a client may take to begin.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long a client that is being heard may take where others wait.
const GRACE: Duration = Duration::from_millis(250);
/// How many clients of a room are heard at a time.
const AT_ONCE: usize = 64;
/// How many clients a room holds that have not begun, at most and at least; what there is of descriptors decides.
const MOST: u64 = 1024;
const LEAST: u64 = 64;
/// The longest record of TLS.
const LONGEST_RECORD: usize = (16 << 10) + 256;
/// Tokens below this are those of listeners and the like.
const FIRST_TOKEN: u64 = 16;
/// How often those are counted in the log that were let go.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Where a client comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// This machine, through a Unix socket.
    Local,
    /// An address, this machine's own included.
    Address(IpAddr),
}

impl Source {
    fn room(self) -> usize {
        match self {
            Self::Local => 0,
            Self::Address(_) => 1,
        }
    }
}

/// A client that is to be heard.
pub(super) struct Caller {
    pub socket: OwnedFd,
    pub peer: String,
    /// To be let go as soon as it is known who the client is.
    pub hearing: Hearing,
}

struct Waiting {
    socket: OwnedFd,
    peer: String,
    source: Source,
    since: Instant,
}

/// The clients of one kind.
#[derive(Default)]
struct Room {
    /// Those that have not begun, the oldest first.
    silent: BTreeMap<u64, Waiting>,
    /// By address, how many of those there are.
    of_source: HashMap<Source, usize>,
    /// Those that have begun and are not heard yet, the oldest first.
    begun: Vec<Waiting>,
    /// Those that are being heard: their sockets, and since when.
    heard: BTreeMap<u64, (OwnedFd, Instant)>,
}

struct Rooms {
    rooms: [Room; 2],
    next: u64,
}

/// What the door and the threads that hear clients share.
struct Shared {
    rooms: Mutex<Rooms>,
    /// Wakes the door when a thread has heard a client.
    free: OwnedFd,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Rooms> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client is being heard for as long as this exists.
pub(super) struct Hearing {
    shared: Arc<Shared>,
    room: usize,
    number: u64,
}

impl Drop for Hearing {
    fn drop(&mut self) {
        self.shared.lock().rooms[self.room].heard.remove(&self.number);
        let one = 1u64;
        // SAFETY: writes eight bytes to a descriptor of ours. It fails where it is readable anyway.
        unsafe { libc::write(self.shared.free.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

/// What the door has seen.
pub(super) struct Seen {
    /// Those of the descriptors in [`Door::watch`] that are readable, by their tokens.
    pub watched: Vec<u64>,
    /// Who can be heard now.
    pub callers: Vec<Caller>,
}

/// Holds the clients that have not said who they are.
pub(super) struct Door {
    epoll: OwnedFd,
    shared: Arc<Shared>,
    /// How many silent clients a room holds.
    capacity: usize,
    /// How many were let go that nobody has been told of, and when that was done last.
    gone: usize,
    told: Option<Instant>,
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Raises the number of descriptors that the process may have as far as it may; says how many that are.
fn descriptors() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls with a valid place.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return 0;
        }
        let most = libc::rlimit { rlim_cur: limit.rlim_max.min(1 << 20), ..limit };
        if libc::setrlimit(libc::RLIMIT_NOFILE, &most) == 0 { most.rlim_cur } else { limit.rlim_cur }
    }
}

impl Door {
    /// One that nobody has come to.
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: plain system calls.
        let (epoll, free) = unsafe {
            (
                owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))?,
                owned(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?,
            )
        };
        let rooms = Mutex::new(Rooms { rooms: Default::default(), next: FIRST_TOKEN });
        let shared = Arc::new(Shared { rooms, free });
        let capacity = (descriptors() / 8).clamp(LEAST, MOST) as usize;
        let door = Self { epoll, shared, capacity, gone: 0, told: None };
        // The token of what is seen and not told.
        door.add(door.shared.free.as_raw_fd(), FIRST_TOKEN - 1, libc::EPOLLIN as u32)?;
        Ok(door)
    }

    fn add(&self, fd: RawFd, token: u64, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: a valid event; the descriptors are open.
        let done = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Looks no more whether something arrives there. A socket that is closed here and open in the process of its session would go on to
    /// wake this one with each message.
    fn look_no_more(&self, fd: RawFd) {
        let nothing = std::ptr::null_mut();
        // SAFETY: a plain system call; the descriptor is open. It fails only where nobody looks there.
        unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, nothing) };
    }

    /// Also looks whether this is readable; the token is below [`FIRST_TOKEN`] − 1.
    pub(super) fn watch(&self, fd: RawFd, token: u64) -> io::Result<()> {
        debug_assert!(token < FIRST_TOKEN - 1);
        self.add(fd, token, libc::EPOLLIN as u32)
    }

    /// A client has come.
    pub(super) fn enter(&mut self, socket: OwnedFd, peer: String, source: Source) {
        let mut rooms = self.shared.lock();
        let token = rooms.next;
        rooms.next += 1;
        let room = &mut rooms.rooms[source.room()];
        let own = room.of_source.get(&source).copied().unwrap_or(0);
        if room.silent.len() >= self.capacity {
            let from = (own > self.capacity / 2).then_some(source);
            self.gone += usize::from(room.let_go_oldest(from));
        }
        let fd = socket.as_raw_fd();
        room.insert(token, Waiting { socket, peer, source, since: Instant::now() });
        drop(rooms);
        // Once for all that has arrived already, and once for whatever arrives later.
        let events = libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET;
        if let Err(e) = self.add(fd, token, events as u32) {
            tracing::warn!("a client cannot be waited for: {e}");
            self.shared.lock().rooms[source.room()].take(token);
        }
    }

    /// There are no descriptors for newcomers: lets one silent client go. False where there is none.
    pub(super) fn make_room(&mut self) -> bool {
        let made = self.shared.lock().rooms[1].let_go_oldest(None);
        self.gone += usize::from(made);
        made
    }

    /// Waits until something happens, and says what.
    pub(super) fn wait(&mut self) -> io::Result<Seen> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 256];
        let time = self.patience();
        // SAFETY: a valid place for so many events.
        let n = unsafe {
            libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), events.len() as i32, time)
        };
        if n < 0 {
            let e = io::Error::last_os_error();
            return match e.kind() {
                io::ErrorKind::Interrupted => Ok(Seen { watched: Vec::new(), callers: Vec::new() }),
                _ => Err(e),
            };
        }
        let mut watched = Vec::new();
        let mut rooms = self.shared.lock();
        for event in &events[..n as usize] {
            let (token, what) = (event.u64, event.events);
            if token >= FIRST_TOKEN {
                let over = what & (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0;
                rooms.rooms.iter_mut().for_each(|room| room.look(token, over));
            } else if token == FIRST_TOKEN - 1 {
                let mut count = 0u64;
                // SAFETY: reads eight bytes into a valid place.
                unsafe { libc::read(self.shared.free.as_raw_fd(), (&raw mut count).cast(), 8) };
            } else {
                watched.push(token);
            }
        }
        drop(rooms);
        let callers = self.next_callers();
        self.tell();
        Ok(Seen { watched, callers })
    }

    /// How long nothing need be done, in ms; −1 for ever.
    fn patience(&self) -> libc::c_int {
        let rooms = self.shared.lock();
        let silent = rooms.rooms.iter().filter_map(|r| Some(r.silent.first_key_value()?.1.since + PATIENCE));
        let crowded = rooms.rooms.iter().filter(|room| !room.begun.is_empty());
        let heard = crowded.filter_map(|room| Some(room.heard.first_key_value()?.1.1 + GRACE));
        let next = silent.chain(heard).min();
        next.map_or(-1, |at| at.saturating_duration_since(Instant::now()).as_millis() as libc::c_int + 1)
    }

    /// Who is heard next. Those are let go who have been silent or heard for too long.
    fn next_callers(&mut self) -> Vec<Caller> {
        let (now, mut callers) = (Instant::now(), Vec::new());
        let mut rooms = self.shared.lock();
        let Rooms { rooms, next } = &mut *rooms;
        for (number, room) in rooms.iter_mut().enumerate() {
            while room.silent.first_key_value().is_some_and(|(_, w)| now >= w.since + PATIENCE) {
                self.gone += usize::from(room.let_go_oldest(None));
            }
            let late = room.begun.iter().filter(|w| now >= w.since + PATIENCE).count();
            room.begun.drain(..late);
            self.gone += late;
            if room.heard.len() >= AT_ONCE && !room.begun.is_empty() {
                for (socket, since) in room.heard.values() {
                    if now < *since + GRACE {
                        break;
                    }
                    // Its thread finds the connection closed, and is free then.
                    // SAFETY: a plain system call on a descriptor of ours.
                    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
                }
            }
            while room.heard.len() < AT_ONCE {
                let Some(Waiting { socket, peer, .. }) = room.begun.pop() else { break };
                self.look_no_more(socket.as_raw_fd());
                let Ok(twin) = socket.try_clone() else { continue };
                *next += 1;
                room.heard.insert(*next, (twin, now));
                let hearing = Hearing { shared: self.shared.clone(), room: number, number: *next };
                callers.push(Caller { socket, peer, hearing });
            }
        }
        callers
    }

    /// Says now and then how many were let go.
    fn tell(&mut self) {
        if self.gone > 0 && self.told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
            tracing::warn!(
                "{} connections were closed on which nobody said hello in time",
                std::mem::take(&mut self.gone)
            );
            self.told = Some(Instant::now());
        }
    }
}

impl Room {
    fn insert(&mut self, token: u64, waiting: Waiting) {
        *self.of_source.entry(waiting.source).or_default() += 1;
        self.silent.insert(token, waiting);
    }

    fn take(&mut self, token: u64) -> Option<Waiting> {
        let waiting = self.silent.remove(&token)?;
        if let Some(count) = self.of_source.get_mut(&waiting.source) {
            *count -= 1;
            if *count == 0 {
                self.of_source.remove(&waiting.source);
            }
        }
        Some(waiting)
    }

    /// Lets the oldest silent client go, of a source if one is given; false where there is none.
    fn let_go_oldest(&mut self, source: Option<Source>) -> bool {
        let mut of = self.silent.iter().filter(|(_, waiting)| source.is_none_or(|s| s == waiting.source));
        let oldest = of.next().map(|(token, _)| *token);
        oldest.is_some_and(|token| self.take(token).is_some())
    }

    /// Something has arrived of a silent client, or nothing will any more.
    fn look(&mut self, token: u64, over: bool) {
        let Some(waiting) = self.silent.get(&token) else { return };
        match begun(&waiting.socket) {
            Begun::Not if !over => {}
            Begun::Gone => {
                if let Some(waiting) = self.take(token) {
                    tracing::debug!("{}: left without saying hello", waiting.peer);
                }
            }
            // What stops in the middle is heard, too: it is told so.
            Begun::Not | Begun::Whole => {
                let waiting = self.take(token);
                self.begun.extend(waiting);
            }
        }
    }
}

/// How much has arrived of a client's first message.
#[derive(Debug, PartialEq, Eq)]
enum Begun {
    /// Not all of it.
    Not,
    /// All of it, or what is no such message.
    Whole,
    /// Nothing, and the client has left.
    Gone,
}

fn begun(socket: &OwnedFd) -> Begun {
    let mut bytes = [0; PREFIX_BYTES];
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    let mut there: libc::c_int = 0;
    // SAFETY: both are valid places for the answers.
    let n = unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &raw mut there);
        libc::recv(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), flags)
    };
    match n {
        0 => Begun::Gone,
        1.. => match is_whole(&bytes[..n as usize], there.max(0) as usize) {
            true => Begun::Whole,
            false => Begun::Not,
        },
        _ => match io::Error::last_os_error().kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Begun::Not,
            _ => Begun::Gone,
        },
    }
}

/// Whether a message that begins like this has arrived, when so many bytes have.
fn is_whole(beginning: &[u8], there: usize) -> bool {
    if beginning.first() == Some(&tls::FIRST_BYTE) {
        // A record: kind, version, length.
        let Some(&[high, low]) = beginning.get(3..5).and_then(|length| length.first_chunk()) else {
            return false;
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        return length > LONGEST_RECORD || there >= 5 + length;
    }
    let Some(prefix) = beginning.first_chunk::<PREFIX_BYTES>() else {
        // Too short to tell, unless it begins with another word.
        return MAGIC.to_le_bytes().iter().zip(beginning).any(|(a, b)| a != b);
    };
    match Prefix::parse(prefix, MAX_HELLO) {
        // A socket holds more than the longest one.
        Ok(prefix) => there >= PREFIX_BYTES + prefix.length as usize,
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_protocol::hello::{self, Hello};
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_message_is_heard_when_all_of_it_has_come() {
        let hello = hello::message(&Hello::default());
        let whole = |bytes: &[u8]| is_whole(&bytes[..bytes.len().min(PREFIX_BYTES)], bytes.len());
        assert!(whole(&hello));
        assert!((1..hello.len()).all(|length| !whole(&hello[..length])));
        assert!(whole(b"GET / HTTP/1.1") && whole(b"G") && whole(b"RGPX"));
        // A first record of TLS, and one that is none.
        assert!(!whole(&[22, 3, 1, 0, 4, 1, 2, 3]) && whole(&[22, 3, 1, 0, 4, 1, 2, 3, 4]));
        assert!(!whole(&[22, 3]) && whole(&[22, 3, 1, 255, 255]));
    }

    #[test]
    fn who_has_been_let_in_wakes_nobody_at_the_door() {
        let mut door = Door::new().unwrap();
        let (mut client, server) = UnixStream::pair().unwrap();
        door.enter(server.into(), "a client".into(), Source::Local);
        client.write_all(&hello::message(&Hello::default())).unwrap();
        let mut callers = Vec::new();
        while callers.is_empty() {
            callers = door.wait().unwrap().callers;
        }
        let Caller { socket, hearing, .. } = callers.pop().unwrap();
        // Another process has it open when this one has closed it.
        let elsewhere = socket.try_clone().unwrap();
        drop(socket);
        drop(hearing);
        assert!(door.wait().unwrap().callers.is_empty());
        client.write_all(b"the first call").unwrap();
        let mut poll = libc::pollfd { fd: door.epoll.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: a valid place.
        assert_eq!(unsafe { libc::poll(&mut poll, 1, 0) }, 0, "a client in its session wakes the door");
        drop(elsewhere);
    }
}
