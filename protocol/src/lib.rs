//! Everything that both ends of a forwarded CUDA session agree on.
//!
//! A *client* (the shim inside a CUDA program) and a *server* (a process of its own on the machine that
//! has the GPU) exchange frames over a [transport]. This page is the wire in ten minutes.
//!
//! ```text
//! client                                              server
//!   | -- Hello: version, credential, range -----------> |  the daemon checks it, starts a process
//!   | <-- HelloAnswer: devices, address plan, credit -- |  and hands it the connection
//!   |                                                   |
//!   | -- mem_alloc    #1  posted ---------------------> |
//!   | -- copy_to_dev… #2  posted, bytes follow -------> |
//!   | -- launch       #3  posted ---------------------> |
//!   | -- synchronize  #4  asked ----------------------> |
//!   |                                  (kernel prints)  |
//!   | <----------------------------- notice: print ---- |
//!   | <------------------------------- answer #4 ------ |  + pending error of #1..#3, if any
//!   | -- goodbye      #5  posted ---------------------> |  nobody waits for anything
//! ```
//!
//! **The calls** are the methods of `rgpu_device::Device`, one for one, plus a few for the session
//! itself. [`calls`] holds the table of them, each with its number, its arguments and its answer; stubs,
//! wire types and dispatch all come from it.
//!
//! **Posted or asked.** A *posted* call has no answer. Where it fails, the failure becomes the session's
//! *pending error*, and travels with the next answer; if there is one already, the first is kept. An
//! *asked* call has exactly one answer. Answers come in the order in which things finish, not in which
//! they were asked: that of a `synchronize` when its target is done, so that no thread's waiting delays
//! another thread.
//!
//! **Order.** The server executes calls in the order in which they arrive, and the client sends them in
//! the order in which the program made them, across all its threads.
//!
//! **Handles and addresses** are chosen by the client, so that creating a stream or allocating memory
//! needs no answer. The hello fixes the address ranges. Memory is taken from *credit*: bytes per device
//! which the server has set aside for this session. The client counts its allocations against it, and
//! asks for more ([`calls::CreditAsk`]) when it runs out; a refusal is the program's out-of-memory error,
//! reported by the very call.
//!
//! **Bulk data** follows a call's arguments in the same frame, at most [`frame::MAX_BULK`] bytes. A
//! longer copy is several calls, each of which is a copy by itself; a longer image is sent ahead in
//! parts. So a long transfer never occupies the wire for long.
//!
//! **Notices** are what the server sends unasked: printed text, host functions that are due, requests for
//! the host's bytes of mirrored memory, what the device has changed there, bytes of a copy to the host,
//! a sign of life. Everything that a synchronisation makes visible is sent before its answer.
//!
//! **Back-pressure** has two parts. A client sends at most [`STREAM_WINDOW`] of bulk data for a stream, and [`BULK_WINDOW`]
//! in all, ahead of what it knows to be done; it knows by asking a `synchronize` now and then. In the same way it posts at most
//! [`STREAM_CALLS`] calls to a stream, and [`SESSION_CALLS`] in all; it knows by [`calls::Mark`]s, which the server answers by
//! notices. So what waits for its stream does not lie in the way of other calls. A server that has too much undone work
//! nevertheless stops reading,
//! and the client's next flush waits. Neither holds while a host function (or, for the server, a fetch) is outstanding, because
//! the work may be waiting for those. A client that waits to send reads what arrives meanwhile.
//!
//! **Liveness.** A server that has anything to do sends [`frame::Notice::Heartbeat`] every two seconds; a
//! client that waits, and hears nothing for [`SILENCE`], gives the connection up. An idle connection
//! costs the TCP stack's own probe every five seconds, sent by the server alone.
//!
//! **Versions.** The hello carries major and minor; a different major is refused, of different minors the
//! smaller is spoken. Rows of the table, notices and fields at the end of the hello may be added in a
//! minor version; nothing is changed or renumbered.
//!
//! **Bad bytes.** Every decoder checks every bound and allocates at most in proportion to bytes that have
//! arrived: a frame's body is at most [`frame::MAX_BODY`], a hello at most [`hello::MAX_HELLO`]. Anything
//! malformed ends the session, with the reason on both sides. What is well-formed but wrong (an address
//! outside its range, a handle that does not exist) is a CUDA error.

pub mod calls;
mod fields;
pub mod frame;
#[doc(hidden)]
pub mod fuzzing;
pub mod hello;
pub mod numbers;
pub mod reader;
pub mod stats;
pub mod sys;
pub mod transport;
pub use rgpu_wire as wire;

/// A client sends no more bulk data for one stream than this before the server has said that enough of it is done, so that the
/// server goes on reading other calls.
pub const STREAM_WINDOW: u64 = 24 << 20;

/// The same for all streams of a session together. Less than what makes a server stop reading.
pub const BULK_WINDOW: u64 = 40 << 20;

/// A client posts no more calls to one stream than this before the server has said that enough of them are done, so that the
/// server goes on reading other streams' calls. Since minor version 4.
pub const STREAM_CALLS: u64 = 8 << 10;

/// The same for all streams of a session together. Less than what makes a server stop reading.
pub const SESSION_CALLS: u64 = 32 << 10;

/// How long a waiting client bears silence. Several times [`frame::HEARTBEAT`], for busy machines.
pub const SILENCE: std::time::Duration = std::time::Duration::from_secs(8);
