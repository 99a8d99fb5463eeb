//! A queue pair and what belongs to it.

use super::sys::{self, *};
use std::ffi::{CStr, c_int};
use std::io;
use std::net::IpAddr;
use std::ptr::null_mut;

/// Writes under way at a time, and messages that the peer has not reported as read.
pub(super) const DEPTH: u32 = 256;
const RECEIVES: u32 = 2 * DEPTH + 16;
/// Which device, `NAME`, `NAME:PORT` or `NAME:PORT:GID`, where the first that works is not the right one.
const DEVICE_VARIABLE: &str = "RGPU_RDMA_DEVICE";

/// What the other side must know to write into our memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    qp: u32,
    first: u32,
    lid: u16,
    mtu: u8,
    ethernet: bool,
    gid: Gid,
    /// Address of the memory that this end has registered.
    pub base: u64,
    /// The key to it.
    pub rkey: u32,
}

impl Info {
    /// Bytes of one.
    pub const BYTES: usize = 40;

    /// The record as it travels in the hello.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..4].copy_from_slice(&self.qp.to_le_bytes());
        out[4..8].copy_from_slice(&self.first.to_le_bytes());
        out[8..10].copy_from_slice(&self.lid.to_le_bytes());
        (out[10], out[11]) = (self.mtu, self.ethernet.into());
        out[12..28].copy_from_slice(&self.gid);
        out[28..36].copy_from_slice(&self.base.to_le_bytes());
        out[36..].copy_from_slice(&self.rkey.to_le_bytes());
        out
    }

    /// From bytes; `None` where there are too few.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.get(..Self::BYTES)?.try_into().ok()?;
        let four = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[12..28]);
        let mut base = [0; 8];
        base.copy_from_slice(&bytes[28..36]);
        Some(Self {
            qp: u32::from_le_bytes(four(0)),
            first: u32::from_le_bytes(four(4)),
            lid: u16::from_le_bytes([bytes[8], bytes[9]]),
            mtu: bytes[10],
            ethernet: bytes[11] != 0,
            gid,
            base: u64::from_le_bytes(base),
            rkey: u32::from_le_bytes(four(36)),
        })
    }
}

/// A queue pair, its completion queue, and the device they are on.
pub(super) struct Endpoint {
    pub library: &'static Library,
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub channel: *mut CompChannel,
    pub cq: *mut Cq,
    pub qp: *mut Qp,
    port: u8,
    gid_index: u8,
    info: Info,
}

// SAFETY: libibverbs is thread-safe; objects are destroyed by `drop` alone.
unsafe impl Send for Endpoint {}
// SAFETY: likewise.
unsafe impl Sync for Endpoint {}

fn last(what: &str) -> io::Error {
    let e = io::Error::last_os_error();
    io::Error::new(e.kind(), format!("{what}: {e}"))
}

impl Endpoint {
    /// Opens the first device that can reach others from `local`, or the one that the environment names.
    pub(super) fn open(local: Option<IpAddr>) -> io::Result<Self> {
        let library = sys::library()?;
        let wanted = std::env::var(DEVICE_VARIABLE).unwrap_or_default();
        let mut wanted = wanted.split(':');
        let name = wanted.next().filter(|n| !n.is_empty());
        let port = wanted.next().and_then(|p| p.parse::<u8>().ok());
        let gid = wanted.next().and_then(|g| g.parse::<u8>().ok());
        let mut why = io::Error::new(io::ErrorKind::NotFound, "this machine has no RDMA device");
        let mut count: c_int = 0;
        // SAFETY: the list is valid for `count` devices until it is freed.
        unsafe {
            let list = (library.get_device_list)(&mut count);
            if list.is_null() {
                return Err(why);
            }
            let mut found = None;
            for i in 0..count as usize {
                let device = *list.add(i);
                let own = CStr::from_ptr((library.get_device_name)(device));
                if name.is_some_and(|n| own.to_bytes() != n.as_bytes()) {
                    continue;
                }
                match Self::on(library, device, port.unwrap_or(1), gid, local) {
                    Ok(endpoint) => {
                        found = Some(endpoint);
                        break;
                    }
                    Err(e) => why = e,
                }
            }
            (library.free_device_list)(list);
            found.ok_or(why)
        }
    }

    /// # Safety
    /// The device is one of the list that is not freed yet.
    unsafe fn on(
        library: &'static Library,
        device: *mut Device,
        port: u8,
        gid_index: Option<u8>,
        local: Option<IpAddr>,
    ) -> io::Result<Self> {
        let mut first = [0; 4];
        // SAFETY: fills a valid place.
        unsafe { libc::getrandom(first.as_mut_ptr().cast(), 3, 0) };
        // SAFETY: the functions get what they returned before, and valid places; `Drop` sees to whatever there is.
        unsafe {
            let context = (library.open_device)(device);
            if context.is_null() {
                return Err(last("the RDMA device cannot be opened"));
            }
            let nothing = Info {
                qp: 0,
                first: u32::from_le_bytes(first),
                lid: 0,
                mtu: 0,
                ethernet: true,
                gid: [0; 16],
                base: 0,
                rkey: 0,
            };
            let mut endpoint = Self {
                library,
                context,
                pd: null_mut(),
                channel: null_mut(),
                cq: null_mut(),
                qp: null_mut(),
                port,
                gid_index: 0,
                info: nothing,
            };
            let mut attributes = PortAttr::default();
            if (library.query_port)(context, port, &mut attributes) != 0 || attributes.state != PORT_ACTIVE {
                return Err(io::Error::new(
                    io::ErrorKind::NotConnected,
                    "the RDMA device's port is not active",
                ));
            }
            endpoint.info.lid = attributes.lid;
            endpoint.info.mtu = attributes.active_mtu as u8;
            endpoint.info.ethernet = attributes.link_layer == LINK_ETHERNET;
            (endpoint.gid_index, endpoint.info.gid) =
                endpoint.choose_gid(attributes.gids, gid_index, local)?;
            endpoint.pd = (library.alloc_pd)(context);
            endpoint.channel = (library.create_comp_channel)(context);
            if endpoint.pd.is_null() || endpoint.channel.is_null() {
                return Err(last("the RDMA device has no room"));
            }
            let fd = (*endpoint.channel).fd;
            libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK);
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
            let entries = (DEPTH + RECEIVES) as c_int;
            endpoint.cq = (library.create_cq)(context, entries, null_mut(), endpoint.channel, 0);
            if endpoint.cq.is_null() {
                return Err(last("the RDMA device has no completion queue left"));
            }
            let mut init = QpInitAttr {
                context: null_mut(),
                send_cq: endpoint.cq,
                recv_cq: endpoint.cq,
                srq: null_mut(),
                cap: QpCap {
                    max_send_wr: DEPTH,
                    max_recv_wr: RECEIVES,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: 0,
                },
                kind: QPT_RC,
                all_signaled: 1,
            };
            endpoint.qp = (library.create_qp)(endpoint.pd, &mut init);
            if endpoint.qp.is_null() {
                return Err(last("the RDMA device has no queue pair left"));
            }
            endpoint.info.qp = (*endpoint.qp).number;
            let mut attributes =
                QpAttr { state: STATE_INIT, port, access: ACCESS_REMOTE_WRITE as u32, ..QpAttr::default() };
            endpoint.modify(&mut attributes, MASK_INIT)?;
            for _ in 0..RECEIVES {
                endpoint.post_receive()?;
            }
            Ok(endpoint)
        }
    }

    /// The identifier that stands for our address, or else the last that is none of a local link alone.
    fn choose_gid(&self, count: c_int, given: Option<u8>, local: Option<IpAddr>) -> io::Result<(u8, Gid)> {
        let own = local.map(|ip| match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        });
        let mut best = None;
        for index in 0..count.clamp(0, 255) {
            let mut gid = [0; 16];
            // SAFETY: `gid` is a valid place.
            let r = unsafe { (self.library.query_gid)(self.context, self.port, index, &mut gid) };
            if r != 0 || gid == [0; 16] {
                continue;
            }
            let index = index as u8;
            if given == Some(index) || (given.is_none() && own == Some(gid)) {
                return Ok((index, gid));
            }
            let routable = gid[..2] != [0xfe, 0x80];
            if given.is_none() && (best.is_none() || routable) {
                best = Some((index, gid));
            }
        }
        best.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the RDMA device has no address"))
    }

    /// What the peer must know, but for the memory.
    pub(super) fn info(&self) -> Info {
        self.info
    }

    fn modify(&self, attributes: &mut QpAttr, mask: c_int) -> io::Result<()> {
        // SAFETY: the queue pair is ours.
        match unsafe { (self.library.modify_qp)(self.qp, attributes, mask) } {
            0 => Ok(()),
            e => Err(io::Error::other(format!(
                "the RDMA connection cannot be made: {}",
                io::Error::from_raw_os_error(e.abs())
            ))),
        }
    }

    /// Connects to the peer.
    pub(super) fn connect(&self, peer: &Info) -> io::Result<()> {
        let global = GlobalRoute {
            dgid: peer.gid,
            sgid_index: self.gid_index,
            hop_limit: 64,
            ..GlobalRoute::default()
        };
        let ah = AhAttr {
            grh: global,
            dlid: peer.lid,
            is_global: u8::from(self.info.ethernet || peer.lid == 0),
            port: self.port,
            ..AhAttr::default()
        };
        let mut ready = QpAttr {
            state: STATE_RTR,
            path_mtu: u32::from(self.info.mtu.min(peer.mtu)).clamp(1, 5),
            rq_psn: peer.first & 0xff_ffff,
            dest_qp: peer.qp,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            ah,
            ..QpAttr::default()
        };
        self.modify(&mut ready, MASK_RTR)?;
        let mut sending = QpAttr {
            state: STATE_RTS,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            sq_psn: self.info.first & 0xff_ffff,
            max_rd_atomic: 1,
            ..QpAttr::default()
        };
        self.modify(&mut sending, MASK_RTS)
    }

    /// Gives all that is under way back with an error.
    pub(super) fn abandon(&self) {
        let _ = self.modify(&mut QpAttr { state: STATE_ERROR, ..QpAttr::default() }, MASK_STATE);
    }

    /// Registers memory, which pins it.
    pub(super) fn register(&self, base: *mut u8, size: usize, access: c_int) -> io::Result<Registered> {
        // SAFETY: the caller's memory; what is written there comes from the peer alone, inside the range.
        let mr = unsafe { (self.library.reg_mr)(self.pd, base.cast(), size, access) };
        if mr.is_null() {
            return Err(last("memory cannot be registered for RDMA (see `ulimit -l`)"));
        }
        Ok(Registered { library: self.library, mr })
    }

    /// Has room for one more message.
    pub(super) fn post_receive(&self) -> io::Result<()> {
        let mut wr = RecvWr { id: 0, next: null_mut(), list: null_mut(), count: 0 };
        let mut bad = null_mut();
        // SAFETY: the request is read before the call returns; the queue pair is ours.
        match unsafe { ((*self.context).post_recv)(self.qp, &mut wr, &mut bad) } {
            0 => Ok(()),
            e => Err(io::Error::from_raw_os_error(e.abs())),
        }
    }

    /// Writes `length` bytes at `from` to the peer's memory at `to`; with a number, the peer is told.
    pub(super) fn write(
        &self,
        id: u64,
        (from, lkey): (u64, u32),
        length: usize,
        (to, rkey): (u64, u32),
        number: Option<u32>,
    ) -> io::Result<()> {
        let mut sge = Sge { addr: from, length: length as u32, lkey };
        let mut wr = SendWr::zeroed();
        (wr.id, wr.list, wr.count) = (id, &mut sge, 1);
        wr.opcode = if number.is_some() { OP_WRITE_WITH_IMM } else { OP_WRITE };
        wr.flags = SEND_SIGNALED;
        wr.imm = number.unwrap_or(0).to_be();
        (wr.remote_addr, wr.rkey) = (to, rkey);
        let mut bad = null_mut();
        // SAFETY: the request is read before the call returns; what it names stays as its owner promises.
        match unsafe { ((*self.context).post_send)(self.qp, &mut wr, &mut bad) } {
            0 => Ok(()),
            e => Err(io::Error::from_raw_os_error(e.abs())),
        }
    }

    /// Takes a completion.
    pub(super) fn poll(&self) -> io::Result<Option<Wc>> {
        let mut wc = Wc::default();
        // SAFETY: room for one; the queue is ours.
        match unsafe { ((*self.context).poll_cq)(self.cq, 1, &mut wc) } {
            0 => Ok(None),
            n if n > 0 => Ok(Some(wc)),
            _ => Err(io::Error::other("the RDMA completion queue failed")),
        }
    }

    /// Has the channel become readable with the next completion.
    pub(super) fn arm(&self) {
        // SAFETY: the queue is ours.
        unsafe { ((*self.context).req_notify_cq)(self.cq, 0) };
    }

    /// Takes the events that made the channel readable.
    pub(super) fn take_events(&self) {
        let (mut cq, mut context) = (null_mut(), null_mut());
        // SAFETY: valid places; the channel does not block.
        unsafe {
            while (self.library.get_cq_event)(self.channel, &mut cq, &mut context) == 0 {
                (self.library.ack_cq_events)(cq, 1);
            }
        }
    }

    /// Readable with the next completion, once armed.
    pub(super) fn descriptor(&self) -> c_int {
        // SAFETY: ours, as long as we live.
        unsafe { (*self.channel).fd }
    }

    /// What a completion's status means.
    pub(super) fn describe(&self, status: u32) -> String {
        // SAFETY: returns a constant string.
        unsafe { CStr::from_ptr((self.library.wc_status_str)(status)) }.to_string_lossy().into_owned()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // SAFETY: each was made by the library, and is destroyed after what stands on it.
        unsafe {
            if !self.qp.is_null() {
                (self.library.destroy_qp)(self.qp);
            }
            if !self.cq.is_null() {
                (self.library.destroy_cq)(self.cq);
            }
            if !self.channel.is_null() {
                (self.library.destroy_comp_channel)(self.channel);
            }
            if !self.pd.is_null() {
                (self.library.dealloc_pd)(self.pd);
            }
            (self.library.close_device)(self.context);
        }
    }
}

/// Memory that is registered. Must be dropped before the endpoint.
pub(super) struct Registered {
    library: &'static Library,
    mr: *mut Mr,
}

// SAFETY: as the endpoint.
unsafe impl Send for Registered {}
// SAFETY: likewise.
unsafe impl Sync for Registered {}

impl Registered {
    /// The key for our own requests.
    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: ours, as long as we live.
        unsafe { (*self.mr).lkey }
    }

    /// The key for the peer's.
    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: likewise.
        unsafe { (*self.mr).rkey }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: made by the library, and destroyed once.
        unsafe { (self.library.dereg_mr)(self.mr) };
    }
}
