//! What crosses a session's connection.

use crate::input::Material;
use crate::random::Random;
use rgpu_protocol::calls::{self, CALL_NAMES, Call};
use rgpu_protocol::frame::{
    AnswerBody, CreditRecall, Failure, FetchRequest, Found, Header, Kind, MAX_BODY, Notice, Part, Traced,
    encode_answer, encode_run, runs,
};
use rgpu_protocol::hello::{
    self, Hello, HelloAnswer, HelloCheck, HelloExtras, HelloMore, HelloSeat, MAX_HELLO, MAX_HELLO_ANSWER,
    PREFIX_BYTES, Prefix, Status,
};
use rgpu_protocol::reader::FrameReader;
use rgpu_protocol::transport::{Ready, Transport};
use rgpu_protocol::wire::{Reader, Wire, from_bytes, to_bytes};
use rgpu_protocol::{for_each_call, fuzzing};
use std::io::{self, IoSlice};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// A prefix and what follows it.
fn prefixed(bytes: &[u8], limit: usize) -> Option<(Prefix, &[u8])> {
    let (prefix, body) = bytes.split_at_checked(PREFIX_BYTES)?;
    let prefix = Prefix::parse(prefix.try_into().ok()?, limit).ok()?;
    Some((prefix, body.get(..prefix.length as usize)?))
}

pub(super) fn hello(bytes: &[u8]) -> Result<bool, String> {
    let Some((_, body)) = prefixed(bytes, MAX_HELLO) else { return Ok(false) };
    let Ok((hello, _)) = Hello::parse_with_more(body) else { return Ok(false) };
    match Hello::parse(&hello::message(&hello)[PREFIX_BYTES..]) {
        Ok(again) if again == hello => Ok(true),
        again => Err(format!("{hello:?} comes back as {again:?}")),
    }
}

pub(super) fn hellos() -> Material {
    let hello = |features| Hello {
        features,
        session: 7,
        credential: b"token".to_vec(),
        program: "vector_add".into(),
        pid: 9,
        ..Hello::default()
    };
    let more = HelloMore {
        offer: vec![1; 40],
        seat: HelloSeat { index: 1, of: 2 },
        check: HelloCheck { tools: 5, limit: 100 },
    };
    let long = hello::message(&(hello(u64::MAX), more));
    Material { examples: vec![hello::message(&hello(0)), hello::message(&hello(3)), long], words: Vec::new() }
}

pub(super) fn hello_answer(bytes: &[u8]) -> Result<bool, String> {
    let Some((prefix, body)) = prefixed(bytes, MAX_HELLO_ANSWER) else { return Ok(false) };
    Ok(HelloAnswer::parse_with_extras(prefix, body).is_ok())
}

pub(super) fn hello_answers() -> Material {
    let refused = HelloAnswer::refused(Status::Version, "speaks 2.0");
    let accepted = HelloAnswer {
        status: Status::Accepted as u32,
        features: 5,
        devices: vec![hello::DeviceInfo::default(); 2],
        credit: vec![1 << 30, 2],
        ..HelloAnswer::default()
    };
    let extras = HelloExtras { keeps_images: true, images: vec![1, 2, 3] };
    let all = vec![hello::message(&refused), hello::message(&accepted), hello::message(&(accepted, extras))];
    Material { examples: all, words: Vec::new() }
}

/// A connection that has these bytes, and gives them out in pieces.
struct Pieces<'a> {
    bytes: &'a [u8],
    at: AtomicUsize,
    state: AtomicUsize,
}

impl Pieces<'_> {
    fn next(&self, most: usize) -> &[u8] {
        let state = self.state.load(Relaxed).wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.state.store(state, Relaxed);
        let at = self.at.load(Relaxed);
        let n = (1 + (state >> 16) % 5000).min(most).min(self.bytes.len() - at);
        self.at.store(at + n, Relaxed);
        &self.bytes[at..at + n]
    }
}

impl Transport for Pieces<'_> {
    fn send(&self, _pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        let piece = self.next(into.len());
        into[..piece.len()].copy_from_slice(piece);
        Ok(piece.len())
    }
    unsafe fn recv_at(&self, addr: u64, length: usize) -> io::Result<usize> {
        let piece = self.next(length);
        // SAFETY: the caller vouches for so many bytes.
        unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), addr as *mut u8, piece.len()) };
        Ok(piece.len())
    }
    fn wait(&self, _want: Ready, _wake: Option<RawFd>, _time: Option<Duration>) -> io::Result<Ready> {
        Ok(Ready::READ)
    }
    fn wait_for_hangup(&self, _time: Option<Duration>) -> io::Result<bool> {
        Ok(true)
    }
    fn is_unanswered(&self) -> bool {
        false
    }
    fn shutdown(&self) {}
    fn descriptor(&self) -> RawFd {
        -1
    }
    fn peer(&self) -> String {
        String::new()
    }
}

pub(super) fn frames(bytes: &[u8]) -> Result<bool, String> {
    let transport = Pieces { bytes, at: AtomicUsize::new(0), state: AtomicUsize::new(bytes.len()) };
    let (mut reader, mut body) = (FrameReader::default(), Vec::new());
    let mut wait = || Ok(());
    let mut frames = 0;
    while let Ok(header) = reader.header(&transport, &mut wait) {
        if header.length as usize > MAX_BODY {
            return Err(format!("a body of {} bytes is accepted", header.length));
        }
        body.clear();
        if reader.body(&transport, &mut wait, header.length as usize, &mut body).is_err() {
            break;
        }
        if body.len() != header.length as usize {
            return Err(format!("{} bytes of a body of {}", body.len(), header.length));
        }
        frames += 1;
        let good = match header.kind {
            Kind::Call => calls::reencode(header.call, &body).is_ok(),
            Kind::Answer => AnswerBody::parse(header.flags, &body).is_ok(),
            Kind::Notice => notice(header.call, &body),
            Kind::Part => Part::try_from(header.call).is_ok(),
        };
        if !good {
            break;
        }
    }
    Ok(frames > 0)
}

fn frame(kind: Kind, call: u16, body: &[u8]) -> Vec<u8> {
    let header = Header { length: body.len() as u32, kind, flags: 0, call, sequence: 5 };
    [&header.to_bytes()[..], body].concat()
}

pub(super) fn frame_examples() -> Material {
    let mut random = Random::of("frames", 0, 0);
    let mut examples = Vec::new();
    for number in 1..CALL_NAMES.len() as u16 {
        let mut body = Vec::new();
        arguments(number, &mut random, &mut body);
        examples.push(frame(Kind::Call, number, &body));
    }
    for notice in notice_examples().examples {
        examples.push(frame(Kind::Notice, u16::from(notice[0]), &notice[1..]));
    }
    examples.push(frame(Kind::Part, 1, &[3; 100]));
    let mut answer = Vec::new();
    let failure = Failure::new(700, 0, "an address");
    encode_answer(&mut answer, 9, 5, Some(&failure), Some(&failure), |out| out.push(1));
    examples.push(answer);
    let all = examples.concat();
    examples.push(all);
    Material { examples, words: Vec::new() }
}

/// Values of the types that calls are made of.
trait Some {
    fn some(random: &mut Random) -> Self;
}

macro_rules! numbers {
    ($($t:ty)*) => { $(impl Some for $t {
        fn some(random: &mut Random) -> Self {
            random.awkward() as $t
        }
    })* };
}
numbers!(u8 u16 u32 u64 i32);

impl Some for bool {
    fn some(random: &mut Random) -> Self {
        random.one_in(2)
    }
}

impl Some for String {
    fn some(random: &mut Random) -> Self {
        let length = random.below(20);
        (0..length).map(|_| char::from_u32(random.below(0x3000) as u32).unwrap_or('x')).collect()
    }
}

impl<T: Some> Some for Option<T> {
    fn some(random: &mut Random) -> Self {
        random.one_in(2).then(|| T::some(random))
    }
}

impl<T: Some> Some for Vec<T> {
    fn some(random: &mut Random) -> Self {
        let length = random.below(4);
        (0..length).map(|_| T::some(random)).collect()
    }
}

impl<T: Some, const N: usize> Some for [T; N] {
    fn some(random: &mut Random) -> Self {
        std::array::from_fn(|_| T::some(random))
    }
}

macro_rules! fields {
    ($($name:ident { $($field:ident)* })*) => { $(impl Some for calls::$name {
        fn some(random: &mut Random) -> Self {
            Self { $($field: Some::some(random),)* }
        }
    })* };
}
fields! {
    Region { addr row_pitch slice_pitch width height depth }
    MemOp { kind flags addr value }
    PeerKey { session number secret }
    Target { kind id }
    Managed { name addr }
}

macro_rules! make_arguments {
    ($($(#[$doc:meta])* $number:literal $name:ident $record:ident $mode:ident $payload:ident since $since:literal
       ($($field:ident: $type:ty),*) -> $answer:ty;)*) => {
        /// Appends arguments of a call, and a payload where it has one.
        fn arguments(number: u16, random: &mut Random, out: &mut Vec<u8>) {
            use rgpu_protocol::calls::*;
            match number {
                $($number => {
                    let call = $record { $($field: <$type as Some>::some(random),)* };
                    call.encode(out);
                    if <$record as Call>::BULK {
                        let length = random.below(64);
                        out.extend((0..length).map(|_| random.next() as u8));
                    }
                })*
                _ => {}
            }
        }

        /// Decodes a call's answer.
        fn answer(number: u16, bytes: &[u8]) -> bool {
            match number {
                $($number => from_bytes::<<calls::$record as Call>::Answer>(bytes).is_ok(),)*
                _ => false,
            }
        }
    };
}
for_each_call!(make_arguments);

/// A call's number, and arguments of it.
pub(super) fn some_call(random: &mut Random, out: &mut Vec<u8>) {
    let number = random.below(CALL_NAMES.len() + 1) as u16;
    out.extend(number.to_le_bytes());
    arguments(number, random, out);
}

/// The number that an input begins with, and the rest.
fn numbered(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u16::from_le_bytes(*number), rest))
}

pub(super) fn calls(bytes: &[u8]) -> Result<bool, String> {
    let Some((number, body)) = numbered(bytes) else { return Ok(false) };
    let Ok(again) = calls::reencode(number, body) else { return Ok(false) };
    // Zeros stand in place of an absent option's value; apart from that nothing is lost.
    match calls::reencode(number, &again) {
        Ok(third) if third == again && again.len() == body.len() => Ok(true),
        third => Err(format!("{body:?} comes back as {again:?}, and that as {third:?}")),
    }
}

pub(super) fn answers(bytes: &[u8]) -> Result<bool, String> {
    let Some((number, rest)) = numbered(bytes) else { return Ok(false) };
    let (number, flags) = (number & 0xff, (number >> 8) as u8 & 3);
    match AnswerBody::parse(flags, rest) {
        Ok(body) => Ok(answer(number, body.answer)),
        Err(_) => Ok(false),
    }
}

pub(super) fn answer_examples() -> Material {
    use rgpu_protocol::calls::{DeviceTelemetry, FunctionInfo, GlobalInfo, MemoryInfo, ModuleInfo};
    let function = FunctionInfo { name: "k".into(), params: vec![(0, 8), (8, 4)], ..FunctionInfo::default() };
    let global = GlobalInfo { name: "g".into(), addr: 4096, size: 8, kind: 1 };
    let module = ModuleInfo { functions: vec![function; 3], globals: vec![global; 2] };
    let telemetry = DeviceTelemetry { values: vec![(1, 2), (3, 4)], texts: vec![(5, "x".into())] };
    let failure = to_bytes(&Failure::new(2, 1, "out of memory"));
    let of = |number: u16, flags: u8, body: Vec<u8>| [&[number as u8, flags][..], &body].concat();
    let examples = vec![
        of(3, 0, to_bytes(&MemoryInfo { free: 1, total: 2 })),
        of(9, 0, to_bytes(&module)),
        of(38, 2, [failure.clone(), to_bytes(&module)].concat()),
        of(33, 0, to_bytes(&telemetry)),
        of(20, 0, vec![1]),
        of(41, 1, failure.clone()),
        of(19, 3, [&failure[..], &failure].concat()),
    ];
    Material { examples, words: Vec::new() }
}

fn notice(number: u16, body: &[u8]) -> bool {
    let Ok(notice) = Notice::try_from(number) else { return false };
    match notice {
        Notice::Print | Notice::CopyData | Notice::Heartbeat => true,
        Notice::HostFunc | Notice::ModuleWanted | Notice::Reached => from_bytes::<u64>(body).is_ok(),
        Notice::FetchRequest => from_bytes::<FetchRequest>(body).is_ok(),
        Notice::SharedWrites => runs(body).all(|run| run.is_ok()),
        Notice::Goodbye => from_bytes::<Failure>(body).is_ok(),
        Notice::Trace => from_bytes::<Vec<Traced>>(body).is_ok(),
        Notice::CreditRecall => from_bytes::<CreditRecall>(body).is_ok(),
        Notice::Found => from_bytes::<Found>(body).is_ok(),
    }
}

pub(super) fn notices(bytes: &[u8]) -> Result<bool, String> {
    let Some((number, body)) = bytes.split_first() else { return Ok(false) };
    let total: usize = runs(body).filter_map(Result::ok).map(|(_, run)| run.len()).sum();
    if total > body.len() {
        return Err(format!("runs of {total} bytes in {}", body.len()));
    }
    let mut reader = Reader::new(body);
    let _ = Header::decode(&mut reader);
    Ok(notice(u16::from(*number), body))
}

pub(super) fn notice_examples() -> Material {
    let mut written = vec![Notice::SharedWrites as u8];
    encode_run(&mut written, 4096, &[1; 70]);
    encode_run(&mut written, 8192, &[]);
    let of = |notice: Notice, body: Vec<u8>| [&[notice as u8][..], &body].concat();
    let examples = vec![
        written,
        of(Notice::Print, b"text".to_vec()),
        of(Notice::HostFunc, to_bytes(&7u64)),
        of(Notice::FetchRequest, to_bytes(&FetchRequest { id: 1, addr: 4096, length: 4096 })),
        of(Notice::CopyData, vec![1; 50]),
        of(Notice::Heartbeat, Vec::new()),
        of(Notice::Goodbye, to_bytes(&Failure::new(1, 2, "bye"))),
        of(Notice::ModuleWanted, to_bytes(&9u64)),
        of(Notice::Trace, to_bytes(&vec![Traced::default(); 3])),
        of(Notice::CreditRecall, to_bytes(&CreditRecall { ordinal: 0, bytes: 1 << 20 })),
        of(Notice::Reached, to_bytes(&3u64)),
        of(Notice::Found, to_bytes(&Found::new(Found::MISTAKE, 1, "Invalid __global__ read"))),
    ];
    Material { examples, words: Vec::new() }
}

pub(super) fn shm_ring(bytes: &[u8]) -> Result<bool, String> {
    fuzzing::ring(bytes)
}

pub(super) fn rdma(bytes: &[u8]) -> Result<bool, String> {
    fuzzing::rdma(bytes)
}

/// This side's role in a ring, and a few moves.
pub(super) fn role_and_moves(random: &mut Random, out: &mut Vec<u8>) {
    out.push(random.next() as u8);
    moves(random, out);
}

/// A few moves: a byte that chooses, and a number.
pub(super) fn moves(random: &mut Random, out: &mut Vec<u8>) {
    for _ in 0..=random.below(40) {
        // One that moves more than the ring holds takes long.
        let choice = if random.one_in(500) { 0xf8 + random.below(8) as u8 } else { random.below(0xf8) as u8 };
        let number = if random.one_in(3) { random.awkward() } else { random.below(1 << 20) as u64 };
        out.push(choice);
        out.extend(number.to_le_bytes());
    }
}
