//! The one table of calls.
//!
//! [`for_each_call!`](crate::for_each_call) hands the whole table to a macro of the reader's choice. From it come, here, a
//! record per call and the [`Call`] trait; in the client, a stub per call; in the server, the dispatch.
//! A row reads
//!
//! ```text
//! NUMBER name Record MODE PAYLOAD since MINOR (field: type, …) -> Answer;
//! ```
//!
//! - `MODE` is `posted` (no answer; a failure becomes the session's pending error) or `asked` (exactly
//!   one [answer](crate::frame)).
//! - `PAYLOAD` is `plain` (the arguments are everything) or `bulk` (bytes follow the arguments, to the
//!   end of the frame).
//! - `MINOR` is the protocol's minor version in which the row appeared. Rows are never renumbered or
//!   changed, only added.

use crate::wire::{DecodeError, Reader, Wire};
use rgpu_wire::records;

/// Invokes a macro with the table of calls. See [`calls`](crate::calls) for the form of a row.
#[macro_export]
macro_rules! for_each_call {
    ($then:ident) => {
        $then! {
            /// Backs memory with zeroes, at the expense of the session's credit. The kind is 0 for device memory, 2 for memory of
            /// which both sides have a copy, and 1, where the hello's answer allows it, for memory that both sides map.
            1 mem_alloc MemAlloc posted plain since 0 (ordinal: u32, addr: u64, size: u64, kind: u32) -> ();
            /// Releases memory; its size returns to the session's credit.
            2 mem_free MemFree posted plain since 0 (ordinal: u32, addr: u64, stream: Option<u64>) -> ();
            /// Free and total memory.
            3 mem_info MemInfo asked plain since 0 (ordinal: u32) -> MemoryInfo;
            /// Fills a region.
            4 memset MemSet posted plain since 0 (stream: u64, region: Region, value: u32, element: u32) -> ();
            /// Copies the payload into device memory.
            5 copy_to_device CopyToDevice posted bulk since 0 (stream: u64, dst: Region, host_addr: u64) -> ();
            /// Copies device memory to the host: the bytes come as `CopyData` notices, then the answer.
            6 copy_from_device CopyFromDevice asked plain since 0 (stream: u64, src: Region, host_addr: u64) -> ();
            /// Copies between regions.
            7 copy_on_device CopyOnDevice posted plain since 0 (stream: u64, dst: Region, src: Region) -> ();
            /// A part of a module's image that is too long for one frame; parts arrive in order.
            8 module_data ModuleData posted bulk since 0 (module: u64) -> ();
            /// Loads a module from the parts sent before, then the payload.
            9 module_load ModuleLoad asked bulk since 0 (ordinal: u32, module: u64, managed: Vec<Managed>) -> ModuleInfo;
            /// Unloads a module.
            10 module_unload ModuleUnload posted plain since 0 (module: u64) -> ();
            /// Launches a kernel; the payload is its parameter block.
            11 launch Launch posted bulk since 0 (stream: u64, module: u64, function: u32, grid: [u32; 3], block: [u32; 3], shared_bytes: u32, cooperative: bool) -> ();
            /// Creates a stream.
            12 stream_create StreamCreate posted plain since 0 (ordinal: u32, stream: u64, blocking: bool, priority: i32) -> ();
            /// Destroys a stream.
            13 stream_destroy StreamDestroy posted plain since 0 (stream: u64) -> ();
            /// Makes a stream wait for an event.
            14 stream_wait_event StreamWaitEvent posted plain since 0 (stream: u64, event: u64) -> ();
            /// Creates an event.
            15 event_create EventCreate posted plain since 0 (ordinal: u32, event: u64, timing: bool) -> ();
            /// Destroys an event.
            16 event_destroy EventDestroy posted plain since 0 (event: u64) -> ();
            /// Records an event.
            17 event_record EventRecord posted plain since 0 (event: u64, stream: u64) -> ();
            /// Milliseconds between two events.
            18 event_elapsed EventElapsed asked plain since 0 (start: u64, end: u64) -> f32;
            /// Waits for a device, a stream or an event.
            19 synchronize Synchronize asked plain since 0 (target: Target) -> ();
            /// Whether a device, a stream or an event is finished.
            20 query Query asked plain since 0 (target: Target) -> bool;
            /// Puts a host function on a stream.
            21 host_func HostFunc posted plain since 0 (stream: u64, id: u64) -> ();
            /// A host function has returned.
            22 host_func_done HostFuncDone posted plain since 0 (id: u64) -> ();
            /// The host may have changed mirrored memory.
            23 invalidate_shared InvalidateShared posted plain since 0 () -> ();
            /// What the device changed in mirrored memory comes as `SharedWrites` notices, then the answer.
            24 collect_shared_writes CollectSharedWrites asked plain since 0 () -> ();
            /// Sets a limit.
            25 set_limit SetLimit asked plain since 0 (ordinal: u32, limit: u32, value: u64) -> ();
            /// Abandons all work of a device and destroys everything on it.
            26 reset Reset asked plain since 0 (ordinal: u32) -> ();
            /// What the device counted.
            27 counters Counters asked plain since 0 () -> DeviceCounters;
            /// Asks for at least `bytes` more memory credit. The answer is what was granted.
            28 credit_ask CreditAsk asked plain since 0 (ordinal: u32, bytes: u64) -> u64;
            /// Gives memory credit back.
            29 credit_return CreditReturn posted plain since 0 (ordinal: u32, bytes: u64) -> ();
            /// Answers a `FetchRequest` notice: the payload is the memory's bytes, or nothing where it cannot be read.
            30 fetch_answer FetchAnswer posted bulk since 0 (id: u64) -> ();
            /// The application ends the session; nothing follows.
            31 goodbye Goodbye posted plain since 0 () -> ();
            /// Makes all later work, on whatever stream, wait for all earlier work of this one.
            32 fence Fence posted plain since 0 (stream: u64) -> ();
            /// What monitoring programs ask about a device, one group of metrics at a time.
            33 telemetry Telemetry asked plain since 1 (ordinal: u32, group: u32) -> DeviceTelemetry;
            /// [`Launch`] of a kernel that is not cooperative, where handles and numbers fit; the payload is its parameter block.
            34 launch_brief LaunchBrief posted bulk since 1 (stream: u32, module: u32, function: u32, grid: [u32; 3], block: [u16; 3], shared_bytes: u32) -> ();
            /// Loads a module without waiting: from the parts sent before, or, if `stored`, from what the server keeps under
            /// this hash. Where it keeps nothing, it asks for the image by a `ModuleWanted` notice.
            35 module_begin ModuleBegin posted plain since 1 (ordinal: u32, module: u64, hash: [u8; 32], stored: bool) -> ();
            /// The last part of an image that a `ModuleWanted` notice asked for.
            36 module_image ModuleImage posted bulk since 1 (module: u64) -> ();
            /// Gives a kernel of a module that was begun the number by which launches name it.
            37 module_function ModuleFunction posted plain since 1 (module: u64, number: u32, name: String) -> ();
            /// What is in a module that was begun.
            38 module_info ModuleInfoAsk asked plain since 1 (module: u64) -> ModuleInfo;
            /// Answered when the stream has got here, which then waits until `release`: meanwhile the client, which shares
            /// the device's memory, copies. With `now`, only if that is at once; else the answer is false.
            39 hold Hold asked plain since 1 (stream: u64, id: u64, now: bool) -> bool;
            /// Lets a held stream go on.
            40 release Release posted plain since 1 (id: u64) -> ();
            /// Lets another server connect to this session, once and soon: the connection is the link of this number, and brings
            /// copies. The answer is the key for it.
            41 peer_expect PeerExpect asked plain since 3 (link: u64) -> PeerKey;
            /// Has a connection made to the server that has given the key: the node of that name where the session has a
            /// lease that names it, else the address. It is the link of this number, and takes copies there.
            42 peer_connect PeerConnect asked plain since 3 (link: u64, node: String, address: String, key: PeerKey) -> ();
            /// Sends memory over a link. Answered when it was read; the stream is used where that takes the device's help.
            43 peer_send PeerSend asked plain since 3 (link: u64, transfer: u64, stream: u64, src: Region) -> ();
            /// Puts what comes over a link as this transfer into memory. Answered when it is there.
            44 peer_receive PeerReceive asked plain since 3 (link: u64, transfer: u64, stream: u64, dst: Region) -> ();
            /// Ends a link: what is on its way fails.
            45 peer_close PeerClose posted plain since 3 (link: u64) -> ();
            /// Has the server say, by a `Reached` notice of this number, when all that was put on the stream before is done (or
            /// never will be).
            46 mark Mark posted plain since 4 (stream: u64, number: u64) -> ();
            /// Which kernels of a loaded module the device cannot execute, and why. Since minor version 5 a [`ModuleInfo`] says
            /// of such a kernel that a block of it may have no thread (`max_threads` 0), and a client asks where it says so.
            47 refusals RefusalsAsk asked plain since 5 (module: u64) -> Refusals;
            /// Puts an operation of a mathematical library on a stream. The payload is its arguments, in a layout of the
            /// operation's own (the crate `rgpu-libraries`), which is the device's to read.
            48 library Library posted bulk since 6 (stream: u64, operation: u32) -> ();
            /// The version of a mathematical library that the device's side has, or 0 and why there is none.
            49 library_version LibraryVersionAsk asked plain since 6 (ordinal: u32, library: u32) -> LibraryVersion;
            /// Has a stream write words of memory and wait for words of it, one after another; at most 256.
            50 mem_ops MemOps posted plain since 7 (stream: u64, ops: Vec<MemOp>) -> ();
            /// Lets other sessions of the tenant open pages of an allocation. The answer is the token for it.
            51 memory_export MemoryExport asked plain since 7 (ordinal: u32, addr: u64, size: u64) -> [u8; 32];
            /// Lets nobody open any more what a token stands for.
            52 memory_withdraw MemoryWithdraw posted plain since 7 (token: [u8; 32]) -> ();
            /// Places memory of another session of the tenant at addresses of the ordinal's range. `mem_free` releases it.
            53 memory_import MemoryImport asked plain since 7 (ordinal: u32, addr: u64, size: u64, token: [u8; 32]) -> ();
            /// Tells a device that looks at kernels ([`FEATURE_CHECK`](crate::hello::FEATURE_CHECK)) what the program does with its
            /// memory; see [`MemoryChanged`].
            54 memory_changed MemoryChanged posted plain since 9 (kind: u32, base: u64, size: u64, stream: Option<u64>) -> ();
            /// The same of what begins at `base` and is freed at once, or, with `end`, of the program's end. Answered when the work
            /// before is over and all was told that was found in it.
            55 memory_settled MemorySettled asked plain since 9 (base: u64, end: bool) -> ();
            /// [`Launch`] in clusters of so many blocks in x, y, z.
            56 launch_cluster LaunchCluster posted bulk since 9 (stream: u64, module: u64, function: u32, grid: [u32; 3], block: [u32; 3], shared_bytes: u32, cooperative: bool, cluster: [u32; 3]) -> ();
            /// Makes a tensor map of the device's own from one of rgpu's, each 128 bytes.
            57 tensor_map TensorMap asked plain since 9 (ordinal: u32, map: [u64; 16]) -> MadeMap;
        }
    };
}

records! {
    /// A box of bytes: `depth` slices of `height` rows of `width` bytes.
    Region {
        /// Address of the first byte.
        addr: u64,
        /// Bytes from one row to the next.
        row_pitch: u64,
        /// Bytes from one slice to the next.
        slice_pitch: u64,
        /// Bytes in a row.
        width: u64,
        /// Rows in a slice.
        height: u64,
        /// Slices.
        depth: u64,
    }
    /// An operation of a stream on a word of memory, as `CUstreamBatchMemOpParams` has it.
    MemOp {
        /// Which: 1 waits for a word of four bytes, 2 writes one, 4 and 5 do so with eight; 3 and 6 are barriers.
        kind: u32,
        /// Of a wait its condition; as `cuda.h` has them.
        flags: u32,
        /// Where the word is.
        addr: u64,
        /// What is written or waited for.
        value: u64,
    }
    /// What lets one server connect to another one's session. The secret never crosses the wire between them.
    PeerKey {
        /// Which session.
        session: [u8; 16],
        /// Which of its keys.
        number: u64,
        /// What both sides prove to know.
        secret: [u8; 32],
    }
    /// What a synchronisation waits for.
    Target {
        /// [`Target::DEVICE`], [`Target::STREAM`] or [`Target::EVENT`].
        kind: u32,
        /// The ordinal or the handle.
        id: u64,
    }
    /// A tensor map as kernels of the device take it.
    MadeMap {
        /// Its bytes, as little-endian words.
        map: [u64; 16],
    }
    /// Free and total memory.
    MemoryInfo {
        /// Bytes that this application can still allocate.
        free: u64,
        /// Bytes in all.
        total: u64,
    }
    /// What a device counts.
    DeviceCounters {
        /// Kernel launches executed to their end.
        launches: u64,
        /// Nanoseconds in which at least one kernel was executing.
        busy_ns: u64,
    }
    /// What was measured of a device. What is not listed is not known.
    DeviceTelemetry {
        /// Metric number times 65536 plus index, and value.
        values: Vec<(u32, u64)>,
        /// Text number times 65536 plus index, and text.
        texts: Vec<(u32, String)>,
    }
    /// The address of a managed variable, chosen by the client.
    Managed {
        /// The variable's name.
        name: String,
        /// Its address.
        addr: u64,
    }
    /// A kernel of a module.
    FunctionInfo {
        /// Its (mangled) name.
        name: String,
        /// Offset and size of each parameter.
        params: Vec<(u32, u32)>,
        /// Most threads a block may have; since minor version 5 0 for a kernel that the device cannot execute.
        max_threads: u32,
        /// Registers per thread.
        registers: u32,
        /// Static shared memory in bytes.
        static_shared: u32,
        /// Local memory per thread in bytes.
        local_bytes: u32,
        /// Constant memory of the module in bytes.
        const_bytes: u32,
        /// PTX target times ten.
        ptx_version: u32,
        /// Binary architecture times ten.
        binary_version: u32,
        /// `.reqntid`, or zeros.
        required_block: [u32; 3],
    }
    /// The kernels of a module that cannot be executed.
    Refusals {
        /// Each of them, in the order of the module's kernels.
        kernels: Vec<Refusal>,
    }
    /// Why a kernel cannot be executed.
    Refusal {
        /// The kernel's (mangled) name.
        name: String,
        /// The CUDA error code that whoever asks for the kernel sees.
        code: u32,
        /// What is missing, where, for a person to read.
        message: String,
    }
    /// What a device's side has of a mathematical library.
    LibraryVersion {
        /// The library's own number for its version; 0 where there is none.
        version: u32,
        /// Why there is none, for a person to read.
        why: String,
    }
    /// A module-level variable.
    GlobalInfo {
        /// Its (mangled) name.
        name: String,
        /// Its device address.
        addr: u64,
        /// Its size in bytes.
        size: u64,
        /// Its state space: 0 global, 1 constant, 2 managed; 3 for a texture reference, 4 for a surface reference.
        kind: u32,
    }
    /// What loading a module yields.
    ModuleInfo {
        /// Its kernels.
        functions: Vec<FunctionInfo>,
        /// Its variables.
        globals: Vec<GlobalInfo>,
    }
}

impl MemoryChanged {
    /// The program may use `size` bytes at `base`, which nothing has written and which it has to free.
    pub const ALLOCATED: u32 = 0;
    /// The program may use `size` bytes at `base`, which count as written, and which it need not free.
    pub const WRITTEN: u32 = 1;
    /// What begins at `base` is free when the stream has got here.
    pub const FREED: u32 = 2;
    /// The program has freed `base`, where nothing is allocated.
    pub const FREED_WRONGLY: u32 = 3;
}

impl Target {
    /// All work of a device ordinal.
    pub const DEVICE: u32 = 0;
    /// All earlier work of a stream.
    pub const STREAM: u32 = 1;
    /// The most recent record of an event.
    pub const EVENT: u32 = 2;
}

/// A row of the table: its arguments are the implementor's fields.
pub trait Call: Wire {
    /// Its number on the wire.
    const NUMBER: u16;
    /// Its name.
    const NAME: &'static str;
    /// Whether exactly one answer follows.
    const ASKED: bool;
    /// Whether a payload follows the arguments.
    const BULK: bool;
    /// The protocol's minor version in which it appeared.
    const SINCE: u16;
    /// What the answer carries.
    type Answer: Wire;

    /// Decodes the body of a call frame into arguments and payload.
    fn from_body(body: &[u8]) -> crate::wire::Result<(Self, &[u8])> {
        let mut reader = Reader::new(body);
        let call = Self::decode(&mut reader)?;
        if Self::BULK {
            return Ok((call, reader.rest()));
        }
        reader.finish()?;
        Ok((call, &[]))
    }
}

macro_rules! flag {
    (posted) => {
        false
    };
    (asked) => {
        true
    };
    (plain) => {
        false
    };
    (bulk) => {
        true
    };
}

macro_rules! define_calls {
    ($($(#[$doc:meta])* $number:literal $name:ident $record:ident $mode:ident $payload:ident since $since:literal
       ($($field:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Default)]
            #[allow(missing_docs)]
            pub struct $record { $(pub $field: $type,)* }

            impl Wire for $record {
                const MIN_BYTES: usize = 0 $(+ <$type as Wire>::MIN_BYTES)*;
                const FIXED: bool = true $(&& <$type as Wire>::FIXED)*;
                fn encode(&self, _out: &mut Vec<u8>) {
                    $(Wire::encode(&self.$field, _out);)*
                }
                #[inline(always)]
                fn put<'a>(&self, out: &'a mut [u8]) -> &'a mut [u8] {
                    $(let out = Wire::put(&self.$field, out);)*
                    out
                }
                fn decode(_reader: &mut Reader<'_>) -> crate::wire::Result<Self> {
                    Ok(Self { $($field: Wire::decode(_reader)?,)* })
                }
            }

            impl Call for $record {
                const NUMBER: u16 = $number;
                const NAME: &'static str = stringify!($name);
                const ASKED: bool = flag!($mode);
                const BULK: bool = flag!($payload);
                const SINCE: u16 = $since;
                type Answer = $answer;
            }
        )*

        /// The calls' names by number; entry 0 is empty.
        pub const CALL_NAMES: &[&str] = &["", $(stringify!($name)),*];

        const _: () = {
            let numbers: &[u16] = &[$($number),*];
            let mut i = 0;
            while i < numbers.len() {
                assert!(numbers[i] as usize == i + 1, "the table's numbers must count up from 1");
                i += 1;
            }
        };

        /// Decodes the body of any call, for tests and tools that watch the wire. Returns the bytes
        /// that a re-encoding gives: the body itself, where it is well-formed.
        pub fn reencode(number: u16, body: &[u8]) -> crate::wire::Result<Vec<u8>> {
            match number {
                $($number => {
                    let (call, payload) = <$record as Call>::from_body(body)?;
                    let mut out = crate::wire::to_bytes(&call);
                    out.extend_from_slice(payload);
                    Ok(out)
                })*
                _ => Err(DecodeError::Unknown { what: "call", value: number.into() }),
            }
        }
    };
}
for_each_call!(define_calls);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::to_bytes;
    use proptest::prelude::*;

    #[test]
    fn rows_are_as_written() {
        assert_eq!((Launch::NUMBER, Launch::NAME, Launch::ASKED, Launch::BULK), (11, "launch", false, true));
        assert_eq!(CALL_NAMES[usize::from(Goodbye::NUMBER)], "goodbye");
        assert!(matches!(reencode(0, &[]), Err(DecodeError::Unknown { .. })));
        assert!(matches!(reencode(60000, &[]), Err(DecodeError::Unknown { .. })));
    }

    #[test]
    fn plain_calls_refuse_a_payload() {
        let mut body = to_bytes(&MemInfo { ordinal: 7 });
        body.push(0);
        assert_eq!(MemInfo::from_body(&body), Err(DecodeError::TooLong { extra: 1 }));
    }

    /// Feeds `count` pseudo-random bodies built from `seed` and shaped by truncation to every decoder.
    fn body(seed: &[u8], length: usize) -> Vec<u8> {
        seed.iter().copied().cycle().take(if seed.is_empty() { 0 } else { length }).collect()
    }

    proptest! {
        #[test]
        fn launches_come_back(stream: u64, module: u64, function: u32, grid: [u32; 3], block: [u32; 3],
                              shared_bytes: u32, cooperative: bool, params: Vec<u8>) {
            let call = Launch { stream, module, function, grid, block, shared_bytes, cooperative };
            let mut bytes = to_bytes(&call);
            bytes.extend_from_slice(&params);
            let (back, payload) = Launch::from_body(&bytes).unwrap();
            prop_assert_eq!((back, payload), (call, &params[..]));
        }

        #[test]
        fn module_infos_come_back(name: String, params: Vec<(u32, u32)>, addr: u64, count in 0usize..20) {
            let function = FunctionInfo { name: name.clone(), params, ..Default::default() };
            let global = GlobalInfo { name, addr, size: 8, kind: 2 };
            let info = ModuleInfo { functions: vec![function; count], globals: vec![global; count] };
            let bytes = to_bytes(&info);
            prop_assert_eq!(crate::wire::from_bytes::<ModuleInfo>(&bytes).unwrap(), info);
            // Every truncation is an error, none a panic.
            for n in 0..bytes.len() {
                prop_assert!(crate::wire::from_bytes::<ModuleInfo>(&bytes[..n]).is_err());
            }
        }

        #[test]
        fn any_call_survives_any_body(number in 0u16..CALL_NAMES.len() as u16 + 2, seed: Vec<u8>, length in 0usize..400) {
            let body = body(&seed, length);
            if let Ok(again) = reencode(number, &body) {
                // Zeros stand in place of an absent option's value; apart from that nothing is lost.
                prop_assert_eq!(again.len(), body.len());
            }
        }
    }
}
