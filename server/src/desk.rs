//! Where an application's process asks the daemon for what its tenant has: [images](crate::store) of modules, compiled kernels, and
//! [memory](crate::shelf) of others. The process may open no files and knows no other process; it gets descriptors.
//!
//! A request is of one size: what is wanted, a name (a hash or a token), and two numbers that mean something where memory is lent; that
//! request carries a descriptor. The daemon answers each at once.

use crate::shelf::{Member, Piece, Token};
use crate::store::{Hash, TenantImages};
use parking_lot::{Mutex, MutexGuard};
use rgpu_control::kept::Unfinished;
use rgpu_protocol::transport::pass::{receive_message, send_message};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Requests about images, each with a hash.
pub(crate) const OPEN: u8 = 1;
pub(crate) const CREATE: u8 = 2;
pub(crate) const KEEP: u8 = 3;
pub(crate) const REMOVE: u8 = 4;
/// Added to these where it is not an image, but a compiled kernel, by its name.
pub(crate) const CODE: u8 = 0x10;
const REMOVE_CODE: u8 = REMOVE | CODE;
const OPEN_CODE: u8 = OPEN | CODE;
/// Requests about memory, each with a token.
const LEND: u8 = 5;
const BORROW: u8 = 6;
const WITHDRAW: u8 = 7;

/// What is wanted, the name, and two numbers.
const REQUEST_BYTES: usize = 1 + 32 + 8 + 8;
/// Whether there is something, and two numbers.
const ANSWER_BYTES: usize = 1 + 8 + 8;
const NOTHING: u8 = b'N';
const SOMETHING: u8 = b'Y';

/// How long an application's process waits for the daemon.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    kind: u8,
    name: [u8; 32],
    numbers: (u64, u64),
}

impl Request {
    fn to_bytes(self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0] = self.kind;
        bytes[1..33].copy_from_slice(&self.name);
        put_numbers(&mut bytes[33..], self.numbers);
        bytes
    }

    fn parse(bytes: &[u8; REQUEST_BYTES]) -> Self {
        let name = std::array::from_fn(|i| bytes[1 + i]);
        Self { kind: bytes[0], name, numbers: numbers(&bytes[33..]) }
    }
}

fn put_numbers(at: &mut [u8], (first, second): (u64, u64)) {
    at[..8].copy_from_slice(&first.to_le_bytes());
    at[8..16].copy_from_slice(&second.to_le_bytes());
}

fn numbers(at: &[u8]) -> (u64, u64) {
    let number = |from: usize| u64::from_le_bytes(std::array::from_fn(|i| at[from + i]));
    (number(0), number(8))
}

/// What the daemon has to say: there is nothing, or there is, perhaps with a descriptor and two numbers.
pub(crate) enum Reply {
    /// There is nothing.
    Nothing,
    /// It is done.
    Done,
    /// A file.
    File(File),
    /// A part of a file.
    Piece(Piece),
}

/// The daemon's side, for one application's process.
pub(crate) struct Desk {
    /// The tenant's images, if they are kept.
    pub images: Option<TenantImages>,
    /// The process's way to other processes' memory.
    pub member: Member,
}

impl Desk {
    /// Answers the process until that has gone.
    pub(crate) fn serve(mut self, socket: &UnixStream) {
        let mut unfinished = Unfinished::default();
        while let Ok(Some((request, passed))) = read_request(socket) {
            let Some(reply) = self.reply(request, passed, &mut unfinished) else { break };
            if send_reply(socket, &reply).is_err() {
                break;
            }
        }
    }

    /// `None` is for what no process of ours would ask.
    fn reply(
        &mut self,
        request: Request,
        mut passed: Vec<OwnedFd>,
        unfinished: &mut Unfinished,
    ) -> Option<Reply> {
        let Request { kind, name, numbers: (offset, size) } = request;
        Some(match kind {
            OPEN..=REMOVE | OPEN_CODE..=REMOVE_CODE => self.images.as_ref()?.answer(kind, &name, unfinished),
            LEND => {
                let lent = passed.pop().is_some_and(|file| self.member.lend(name, file, offset, size));
                if lent { Reply::Done } else { Reply::Nothing }
            }
            BORROW => self.member.borrow(&name).map_or(Reply::Nothing, Reply::Piece),
            WITHDRAW => {
                self.member.withdraw(&name);
                Reply::Done
            }
            _ => return None,
        })
    }
}

/// Reads a request, and what was passed with it; `None` at the end.
fn read_request(socket: &UnixStream) -> io::Result<Option<(Request, Vec<OwnedFd>)>> {
    let (mut bytes, mut have, mut passed) = ([0; REQUEST_BYTES], 0, Vec::new());
    while have < REQUEST_BYTES {
        wait_readable(socket.as_raw_fd(), None)?;
        let (n, descriptors) = receive_message(socket.as_raw_fd(), &mut bytes[have..])?;
        if n == 0 {
            return Ok(None);
        }
        have += n;
        passed.extend(descriptors);
        // One is passed at most.
        passed.truncate(1);
    }
    Ok(Some((Request::parse(&bytes), passed)))
}

fn send_reply(socket: &UnixStream, reply: &Reply) -> io::Result<()> {
    let mut bytes = [0; ANSWER_BYTES];
    bytes[0] = if matches!(reply, Reply::Nothing) { NOTHING } else { SOMETHING };
    let descriptor = match reply {
        Reply::Nothing | Reply::Done => None,
        Reply::File(file) => Some(file.as_raw_fd()),
        Reply::Piece(piece) => {
            put_numbers(&mut bytes[1..], (piece.offset, piece.size));
            Some(piece.file.as_raw_fd())
        }
    };
    // The process reads each answer before it asks again, so there is room.
    send_message(socket.as_raw_fd(), &bytes, descriptor.as_slice()).map(drop)
}

/// The application's side.
#[derive(Debug)]
pub struct Counter(Mutex<UnixStream>);

/// A time in which nobody else of the process asks.
pub(crate) struct Turn<'a>(MutexGuard<'a, UnixStream>);

impl Counter {
    /// The daemon answers at the other end of this socket.
    pub fn new(socket: OwnedFd) -> io::Result<Arc<Self>> {
        let socket = UnixStream::from(socket);
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Arc::new(Self(Mutex::new(socket))))
    }

    /// Waits for others' turns to be over.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn(self.0.lock())
    }

    /// Lends a part of a memory file under a token.
    pub fn lend(&self, token: &Token, file: RawFd, offset: u64, size: u64) -> bool {
        self.turn().ask(LEND, token, (offset, size), Some(file)).is_some()
    }

    /// Borrows what another process lends under a token.
    pub fn borrow(&self, token: &Token) -> Option<(OwnedFd, u64, u64)> {
        let (file, (offset, size)) = self.turn().ask(BORROW, token, (0, 0), None)?;
        Some((file?, offset, size))
    }

    /// Lends something no longer.
    pub fn withdraw(&self, token: &Token) {
        self.turn().ask(WITHDRAW, token, (0, 0), None);
    }
}

impl Turn<'_> {
    /// Asks for a file, or for something to be done to it.
    pub(crate) fn file(&mut self, kind: u8, hash: &Hash) -> Option<File> {
        self.ask(kind, hash, (0, 0), None)?.0.map(File::from)
    }

    /// The descriptor and the numbers of an answer; `None` where there is nothing, or where the daemon does not answer.
    fn ask(
        &mut self,
        kind: u8,
        name: &[u8; 32],
        numbers_sent: (u64, u64),
        passed: Option<RawFd>,
    ) -> Option<(Option<OwnedFd>, (u64, u64))> {
        let request = Request { kind, name: *name, numbers: numbers_sent }.to_bytes();
        match passed {
            Some(file) => {
                let sent = send_message(self.0.as_raw_fd(), &request, &[file]).ok()?;
                self.0.write_all(&request[sent..]).ok()?;
            }
            None => self.0.write_all(&request).ok()?,
        }
        wait_readable(self.0.as_raw_fd(), Some(PATIENCE)).ok()?;
        let mut answer = [0; ANSWER_BYTES];
        let (n, mut descriptors) = receive_message(self.0.as_raw_fd(), &mut answer).ok()?;
        (n == ANSWER_BYTES && answer[0] == SOMETHING).then(|| (descriptors.pop(), numbers(&answer[1..])))
    }
}

/// Waits until there is something to read, for so long at most.
fn wait_readable(fd: RawFd, time: Option<Duration>) -> io::Result<()> {
    let mut fd = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let milliseconds = time.map_or(-1, |time| time.as_millis() as libc::c_int);
    loop {
        // SAFETY: `fd` is one valid entry.
        match unsafe { libc::poll(&mut fd, 1, milliseconds) } {
            0 => return Err(io::ErrorKind::TimedOut.into()),
            1.. => return Ok(()),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shelf::Shelf;
    use crate::store::Tenant;
    use rgpu_protocol::transport::pass::sealed_memory_file;
    use std::os::unix::fs::FileExt;

    fn counter(shelf: &Arc<Shelf>, user: u32) -> Arc<Counter> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let desk = Desk { images: None, member: shelf.member(Tenant::of_user(user)) };
        std::thread::spawn(move || desk.serve(&theirs));
        Counter::new(ours.into()).unwrap()
    }

    #[test]
    fn memory_goes_from_process_to_process_of_a_tenant() {
        let shelf = Arc::new(Shelf::default());
        let (lender, friend, stranger) = (counter(&shelf, 7), counter(&shelf, 7), counter(&shelf, 8));
        let file = sealed_memory_file(c"device", 1 << 20).unwrap();
        assert!(lender.lend(&[1; 32], file.as_raw_fd(), 4096, 8192));
        assert!(!lender.lend(&[1; 32], file.as_raw_fd(), 4096, 8192), "the token is taken");
        let (borrowed, offset, size) = friend.borrow(&[1; 32]).unwrap();
        assert_eq!((offset, size), (4096, 8192));
        File::from(borrowed).write_all_at(b"seen", offset).unwrap();
        let mut seen = [0; 4];
        File::from(file).read_exact_at(&mut seen, 4096).unwrap();
        assert_eq!(&seen, b"seen");
        assert!(stranger.borrow(&[1; 32]).is_none() && friend.borrow(&[2; 32]).is_none());
        lender.withdraw(&[1; 32]);
        assert!(friend.borrow(&[1; 32]).is_none());
    }

    #[test]
    fn what_nobody_would_ask_ends_it() {
        let shelf = Arc::new(Shelf::default());
        for kind in [0, OPEN, CODE, OPEN | CODE, 99] {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            let desk = Desk { images: None, member: shelf.member(Tenant::of_user(7)) };
            let serving = std::thread::spawn(move || desk.serve(&theirs));
            ours.write_all(&Request { kind, name: [1; 32], numbers: (2, 3) }.to_bytes()).unwrap();
            serving.join().unwrap();
        }
        let request = Request { kind: 5, name: [1; 32], numbers: (2, 3) };
        assert_eq!(Request::parse(&request.to_bytes()), request);
    }
}
