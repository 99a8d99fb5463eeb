//! Frames: what travels after the hello.
//!
//! ```text
//!  0        4      5       6      8                16
//!  +--------+------+-------+------+-----------------+----------
//!  | length | kind | flags | call | sequence number | body ...
//!  +--------+------+-------+------+-----------------+----------
//! ```
//!
//! `length` counts the body alone and is at most [`MAX_BODY`]. A call's sequence number is one more than
//! that of the call before; an answer bears its call's number; a notice bears 0, or, with
//! [`Notice::CopyData`], the call's number that it belongs to. Between servers there are only [parts](Part) of copies.

use crate::wire::{DecodeError, Reader, Result, Wire};
use rgpu_wire::records;

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 16;
/// The longest payload that one frame carries; more is sent in several.
pub const MAX_BULK: usize = 1 << 20;
/// The longest body that is accepted: a payload and its arguments.
pub const MAX_BODY: usize = MAX_BULK + (1 << 20);
/// The longest error message that is sent.
pub const MAX_MESSAGE: usize = 8 << 10;
/// The longest text of a [`Found`]: it names kernels, whose names may be long.
pub const MAX_FOUND: usize = 64 << 10;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// From the client: a row of the [table](crate::calls).
    Call = 1,
    /// From the server: the end of an asked call.
    Answer = 2,
    /// From the server, unasked: `call` says which [`Notice`].
    Notice = 3,
    /// Between servers: bytes of a copy, whose number stands in `sequence`; `call` says which [`Part`] of it.
    Part = 4,
}

/// Where bytes stand in a copy between servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Part {
    /// More follow.
    More = 0,
    /// These are the last.
    Last = 1,
    /// The sender has failed to read them: the copy ends here, and the bytes that came mean nothing. No body.
    Failed = 2,
}

impl TryFrom<u16> for Part {
    type Error = DecodeError;
    fn try_from(value: u16) -> Result<Self> {
        match value {
            0 => Ok(Self::More),
            1 => Ok(Self::Last),
            2 => Ok(Self::Failed),
            _ => Err(DecodeError::Unknown { what: "part of a copy", value: value.into() }),
        }
    }
}

/// What the server tells unasked; the number stands in the header's `call` field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Notice {
    /// Text that kernels printed. Body: the text.
    Print = 1,
    /// A stream has reached a host function. Body: its id, u64. Since minor version 8 what the device has changed in mirrored
    /// memory comes before it, so that the client need not ask.
    HostFunc = 2,
    /// The device needs the host's bytes of mirrored memory. Body: [`FetchRequest`].
    FetchRequest = 3,
    /// The device has changed mirrored memory. Body: runs, see [`runs`].
    SharedWrites = 4,
    /// The next bytes of a copy to the host. Body: the bytes.
    CopyData = 5,
    /// The server is alive, and busy. No body. Sent every [`HEARTBEAT`] while calls arrive, wait to be
    /// executed or are unanswered; never on an idle connection.
    Heartbeat = 6,
    /// The server ends the session. Body: [`Failure`] saying why.
    Goodbye = 7,
    /// The server does not have the image of a module that was [begun](crate::calls::ModuleBegin), and executes nothing
    /// until it comes. Body: the module, u64.
    ModuleWanted = 8,
    /// When calls were executed, for a client that asked for it in the hello. Body: a list of [`Traced`].
    Trace = 9,
    /// The client's lease was made smaller: it is to return credit that it has not spent. Body: [`CreditRecall`]. Since minor
    /// version 2.
    CreditRecall = 10,
    /// What was put on a stream before a [mark](crate::calls::Mark) is over. Body: the mark's number, u64. Since minor version
    /// 4; sent to nobody who has not asked for it.
    Reached = 11,
    /// A device that looks at kernels has found something. Body: [`Found`]. Sent before the kernel's completion is reported. Since minor
    /// version 9, to clients that have asked for it in the hello.
    Found = 12,
}

/// The minor version since which [`Notice::SharedWrites`] precede a [`Notice::HostFunc`].
pub const WRITES_BEFORE_FUNCTIONS: u16 = 8;

/// How often a busy server shows that it is alive.
pub const HEARTBEAT: std::time::Duration = std::time::Duration::from_secs(2);

impl TryFrom<u16> for Notice {
    type Error = DecodeError;
    fn try_from(value: u16) -> Result<Self> {
        Ok(match value {
            1 => Self::Print,
            2 => Self::HostFunc,
            3 => Self::FetchRequest,
            4 => Self::SharedWrites,
            5 => Self::CopyData,
            6 => Self::Heartbeat,
            7 => Self::Goodbye,
            8 => Self::ModuleWanted,
            9 => Self::Trace,
            10 => Self::CreditRecall,
            11 => Self::Reached,
            12 => Self::Found,
            _ => return Err(DecodeError::Unknown { what: "notice", value: value.into() }),
        })
    }
}

/// In an answer: the body begins with a [`Failure`], the call's own.
pub const FLAG_FAILED: u8 = 1;
/// In an answer: the body begins with (after the call's own, if any) a [`Failure`] that is the session's
/// pending error.
pub const FLAG_PENDING: u8 = 2;

records! {
    /// An error, in CUDA's numbers.
    Failure {
        /// `CUresult`.
        code: u32,
        /// The device ordinal it belongs to; `u32::MAX` where it belongs to none.
        ordinal: u32,
        /// What happened, in words.
        message: String,
    }
    /// What a server has measured of a call, in nanoseconds of a clock of its own.
    Traced {
        /// [`Traced::DISPATCHED`], [`Traced::FINISHED`] or [`Traced::ANSWERED`].
        kind: u8,
        /// The call's number in the table.
        call: u16,
        /// The call's sequence number.
        sequence: u64,
        /// Where work was finished: the stream.
        stream: u64,
        /// When the server began with it; 0 where work was finished.
        start: u64,
        /// When it was dispatched, finished or answered.
        end: u64,
    }
    /// Credit is called back.
    CreditRecall {
        /// The device ordinal.
        ordinal: u32,
        /// How much, in bytes; the client returns that or all that it has not spent, whichever is less.
        bytes: u64,
    }
    /// What was found in looking at kernels.
    Found {
        /// [`Found::MISTAKE`], [`Found::UNREPORTED`] or [`Found::REMARK`].
        kind: u8,
        /// How many mistakes it stands for.
        count: u64,
        /// What it is, in lines for people; at most [`MAX_FOUND`] bytes.
        text: String,
    }
    /// The device needs the host's bytes of mirrored memory.
    FetchRequest {
        /// To be named in the answer.
        id: u64,
        /// First byte.
        addr: u64,
        /// Bytes wanted; at most [`MAX_BULK`].
        length: u64,
    }
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes that follow.
    pub length: u32,
    /// What the frame is.
    pub kind: Kind,
    /// [`FLAG_FAILED`] and [`FLAG_PENDING`].
    pub flags: u8,
    /// The call's number, or the notice's.
    pub call: u16,
    /// The call's sequence number.
    pub sequence: u64,
}

impl Header {
    /// Decodes and checks a header.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self> {
        Self::decode(&mut Reader::new(bytes))
    }

    /// The header as bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut b = [0; HEADER_BYTES];
        b[..4].copy_from_slice(&self.length.to_le_bytes());
        b[4] = self.kind as u8;
        b[5] = self.flags;
        b[6..8].copy_from_slice(&self.call.to_le_bytes());
        b[8..].copy_from_slice(&self.sequence.to_le_bytes());
        b
    }

    /// The header of a notice.
    pub fn notice(notice: Notice, length: usize, sequence: u64) -> Self {
        Self { length: length as u32, kind: Kind::Notice, flags: 0, call: notice as u16, sequence }
    }

    /// The header of a part of a copy between servers.
    pub fn part(part: Part, length: usize, transfer: u64) -> Self {
        Self { length: length as u32, kind: Kind::Part, flags: 0, call: part as u16, sequence: transfer }
    }
}

impl Wire for Header {
    const MIN_BYTES: usize = HEADER_BYTES;
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let length = u32::decode(reader)?;
        let kind = match u8::decode(reader)? {
            1 => Kind::Call,
            2 => Kind::Answer,
            3 => Kind::Notice,
            4 => Kind::Part,
            k => return Err(DecodeError::Unknown { what: "frame kind", value: k.into() }),
        };
        let flags = u8::decode(reader)?;
        if flags & !(FLAG_FAILED | FLAG_PENDING) != 0 || (flags != 0 && kind != Kind::Answer) {
            return Err(DecodeError::Unknown { what: "frame flags", value: flags.into() });
        }
        let call = u16::decode(reader)?;
        let sequence = u64::decode(reader)?;
        if length as usize > MAX_BODY {
            return Err(DecodeError::OverLimit {
                what: "frame body",
                length: length.into(),
                limit: MAX_BODY as u64,
            });
        }
        Ok(Self { length, kind, flags, call, sequence })
    }
}

/// An answer's body, taken apart.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerBody<'a> {
    /// The call's own failure.
    pub failed: Option<Failure>,
    /// The session's pending error.
    pub pending: Option<Failure>,
    /// The answer, empty where the call failed.
    pub answer: &'a [u8],
}

impl<'a> AnswerBody<'a> {
    /// Takes an answer's body apart.
    pub fn parse(flags: u8, body: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(body);
        let mut next = |flag| (flags & flag != 0).then(|| Failure::decode(&mut reader)).transpose();
        let failed = next(FLAG_FAILED)?;
        let pending = next(FLAG_PENDING)?;
        Ok(Self { failed, pending, answer: reader.rest() })
    }
}

impl CreditRecall {
    /// The minor version of clients that know it.
    pub const SINCE: u16 = 2;
}

impl Found {
    /// A mistake, told in words.
    pub const MISTAKE: u8 = 0;
    /// Mistakes beyond the limit that the client has set, of which no more is told.
    pub const UNREPORTED: u8 = 1;
    /// A line that tells of no mistake by itself.
    pub const REMARK: u8 = 2;

    /// Something found, whose text is cut to [`MAX_FOUND`].
    pub fn new(kind: u8, count: u64, text: &str) -> Self {
        Self { kind, count, text: text[..text.floor_char_boundary(MAX_FOUND)].to_owned() }
    }
}

impl Traced {
    /// The server has executed a call, or handed it to the device.
    pub const DISPATCHED: u8 = 0;
    /// What a call put on a stream is done.
    pub const FINISHED: u8 = 1;
    /// The server answers a call.
    pub const ANSWERED: u8 = 2;
}

impl Failure {
    /// A failure whose message is cut to [`MAX_MESSAGE`].
    pub fn new(code: u32, ordinal: u32, message: &str) -> Self {
        let end = message.floor_char_boundary(MAX_MESSAGE);
        Self { code, ordinal, message: message[..end].to_owned() }
    }
}

/// Bytes of a run's header: its address, u64, and its length, u32.
pub const RUN_HEADER_BYTES: usize = 12;

/// Appends a run of changed bytes to the body of [`Notice::SharedWrites`].
pub fn encode_run(out: &mut Vec<u8>, addr: u64, bytes: &[u8]) {
    addr.encode(out);
    (bytes.len() as u32).encode(out);
    out.extend_from_slice(bytes);
}

/// The runs of a [`Notice::SharedWrites`]: addresses and bytes.
pub fn runs(body: &[u8]) -> impl Iterator<Item = Result<(u64, &[u8])>> {
    let mut reader = Reader::new(body);
    std::iter::from_fn(move || {
        if reader.left() == 0 {
            return None;
        }
        let run = u64::decode(&mut reader).and_then(|addr| {
            let length = u32::decode(&mut reader)?;
            Ok((addr, reader.take(length as usize, "run of changed bytes")?))
        });
        if run.is_err() {
            reader.rest();
        }
        Some(run)
    })
}

/// Appends a whole answer frame.
pub fn encode_answer(
    out: &mut Vec<u8>,
    call: u16,
    sequence: u64,
    failed: Option<&Failure>,
    pending: Option<&Failure>,
    answer: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    let mut flags = 0;
    out.extend_from_slice(&[0; HEADER_BYTES]);
    if let Some(f) = failed {
        flags |= FLAG_FAILED;
        f.encode(out);
    }
    if let Some(f) = pending {
        flags |= FLAG_PENDING;
        f.encode(out);
    }
    if failed.is_none() {
        answer(out);
    }
    let length = (out.len() - start - HEADER_BYTES) as u32;
    let header = Header { length, kind: Kind::Answer, flags, call, sequence };
    out[start..start + HEADER_BYTES].copy_from_slice(&header.to_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::from_bytes;
    use proptest::prelude::*;

    #[test]
    fn oversized_bodies_are_refused() {
        let mut bytes = Header::notice(Notice::Print, MAX_BODY, 0).to_bytes();
        assert!(Header::parse(&bytes).is_ok());
        bytes[..4].copy_from_slice(&(MAX_BODY as u32 + 1).to_le_bytes());
        assert!(matches!(Header::parse(&bytes), Err(DecodeError::OverLimit { .. })));
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let f = Failure::new(1, 0, &"ö".repeat(MAX_MESSAGE));
        assert_eq!(f.message.len(), MAX_MESSAGE);
        assert_eq!(
            Failure::new(1, 0, &format!("a{}", "ö".repeat(MAX_MESSAGE))).message.len(),
            MAX_MESSAGE - 1
        );
    }

    fn failure() -> impl Strategy<Value = Option<Failure>> {
        proptest::option::of(
            (any::<u32>(), any::<u32>(), any::<String>()).prop_map(|(code, ordinal, message)| Failure {
                code,
                ordinal,
                message,
            }),
        )
    }

    proptest! {
        #[test]
        fn answers_come_back(failed in failure(), pending in failure(), call: u16, sequence: u64, value: u64) {
            let mut out = Vec::new();
            encode_answer(&mut out, call, sequence, failed.as_ref(), pending.as_ref(), |o| value.encode(o));
            let header = from_bytes::<Header>(&out[..HEADER_BYTES]).unwrap();
            prop_assert_eq!((header.kind, header.call, header.sequence), (Kind::Answer, call, sequence));
            let body = AnswerBody::parse(header.flags, &out[HEADER_BYTES..]).unwrap();
            prop_assert_eq!(&body.failed, &failed);
            prop_assert_eq!(&body.pending, &pending);
            if failed.is_none() {
                prop_assert_eq!(from_bytes::<u64>(body.answer).unwrap(), value);
            }
        }

        #[test]
        fn runs_come_back(written: Vec<(u64, Vec<u8>)>, cut in 0usize..40, noise: Vec<u8>) {
            let mut body = Vec::new();
            written.iter().for_each(|(addr, bytes)| encode_run(&mut body, *addr, bytes));
            let read: Result<Vec<_>> = runs(&body).collect();
            let same: Vec<_> = written.iter().map(|(addr, bytes)| (*addr, &bytes[..])).collect();
            prop_assert_eq!(read.unwrap(), same);
            prop_assert!(runs(&body[..body.len().saturating_sub(cut)]).count() <= written.len());
            prop_assert!(runs(&noise).count() <= noise.len());
        }

        #[test]
        fn arbitrary_headers_and_answers_never_panic(bytes: [u8; HEADER_BYTES], flags: u8, body: Vec<u8>) {
            if let Ok(header) = Header::parse(&bytes) {
                prop_assert_eq!(header.to_bytes(), bytes);
            }
            let _ = AnswerBody::parse(flags, &body);
        }
    }
}
